//! Reads and replaces files of the user: atomically, following links, with their permissions.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The maximum size of a file that is changed.
const MAX_BYTES: u64 = 64 << 20;

/// Returns the content of a file; `None` if the file does not exist.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let data = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => path.metadata()?,
    };
    if !data.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    if data.len() > MAX_BYTES {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "it is too large"));
    }
    std::fs::read(path).map(Some)
}

/// Replaces a file, and returns the folders that were created for it.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<Vec<PathBuf>> {
    // The target of a link is replaced, not the link.
    let target = match path.symlink_metadata() {
        Ok(_) => path.canonicalize()?,
        Err(_) => path.to_owned(),
    };
    let folder = target.parent().unwrap_or(Path::new("/"));
    let made = make_folders(folder)?;
    let permissions = target.metadata().ok().map(|data| data.permissions());
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".loopstore-{}", std::process::id()));
    let temporary = folder.join(name);
    let mut options = OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|file| fill(file, bytes, permissions))
        .and_then(|()| std::fs::rename(&temporary, &target));
    if written.is_err() {
        // The file may not exist.
        let _ = std::fs::remove_file(&temporary);
    }
    written.map(|()| made)
}

fn fill(mut file: File, bytes: &[u8], permissions: Option<Permissions>) -> io::Result<()> {
    file.write_all(bytes)?;
    file.set_permissions(permissions.unwrap_or(Permissions::from_mode(0o600)))?;
    file.sync_all()
}

/// Creates a folder with its parents. Returns the created folders, outermost first.
fn make_folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let missing = folder.ancestors().take_while(|folder| !folder.exists());
    let mut made: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    made.reverse();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    Ok(made)
}

/// Removes a file, and the empty folders that were created for it.
pub fn remove(path: &Path, folders: &[PathBuf]) -> io::Result<()> {
    std::fs::remove_file(path)?;
    for folder in folders.iter().rev() {
        if std::fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}
