//! Reads the file whose lines are attributed.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use loopstore_digest::activity::normal;

use crate::error::BlameError;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// The text of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileText {
    /// The text. A line that is not UTF-8 has replacement characters.
    pub text: String,
    /// The number of lines that are not UTF-8; no recorded line is equal to them.
    pub not_utf8: u64,
}

/// Reads a file; `None` if there is none.
///
/// # Errors
/// If the path is a folder or no plain file, or the file is binary, too large or unreadable.
pub fn read_file(path: &Path) -> Result<Option<FileText>, BlameError> {
    let unreadable = |source| BlameError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let too_large = |bytes| BlameError::TooLarge {
        path: path.to_owned(),
        bytes,
        most: MAX_FILE_BYTES,
    };
    // A pipe or a device would never end.
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    if about.is_dir() {
        return Err(BlameError::Folder(path.to_owned()));
    }
    if !about.is_file() {
        return Err(unreadable(std::io::Error::other("it is not a plain file")));
    }
    if about.len() > MAX_FILE_BYTES {
        return Err(too_large(about.len()));
    }
    let mut bytes = Vec::new();
    let mut file = File::open(path)
        .map_err(unreadable)?
        .take(MAX_FILE_BYTES + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large(bytes.len() as u64));
    }
    if bytes.contains(&0) {
        return Err(BlameError::Binary(path.to_owned()));
    }
    let lines = bytes.split(|byte| *byte == b'\n');
    let not_utf8 = lines.filter(|line| std::str::from_utf8(line).is_err());
    Ok(Some(FileText {
        not_utf8: not_utf8.count() as u64,
        text: String::from_utf8_lossy(&bytes).into_owned(),
    }))
}

fn is_absent(error: &std::io::Error) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::NotADirectory,
        ErrorKind::InvalidFilename,
        ErrorKind::InvalidInput,
    ];
    kinds.contains(&error.kind())
}

/// Returns the absolute spellings of a path, normalised: within the working folder `folder`, and without symbolic
/// links if the file exists.
pub fn spellings(path: &Path, folder: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_str().map(normal);
    let joined = folder.join(path);
    let mut found = Vec::from_iter(text(&joined));
    // The folder may be behind a symbolic link even if the file is gone.
    let linked = joined.canonicalize().ok().or_else(|| {
        let is_plain = |part: &Component<'_>| !matches!(part, Component::ParentDir);
        let parent = joined.parent()?.canonicalize().ok()?;
        let name = joined.file_name()?;
        joined
            .components()
            .all(|part| is_plain(&part))
            .then(|| -> PathBuf { parent.join(name) })
    });
    let linked = linked.and_then(|path| text(&path));
    found.extend(linked.filter(|path| !found.contains(path)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).unwrap();
        write("text", b"a\nb\n");
        write("latin", b"a\n\xe9\n");
        write("binary", b"a\0b");
        assert_eq!(read_file(&path("text")).unwrap().unwrap().text, "a\nb\n");
        assert_eq!(read_file(&path("latin")).unwrap().unwrap().not_utf8, 1);
        assert_eq!(read_file(&path("none")).unwrap(), None);
        assert_eq!(read_file(&path("text/below")).unwrap(), None);
        assert_eq!(read_file(Path::new("a\0b")).unwrap(), None);
        assert!(matches!(
            read_file(&path("binary")),
            Err(BlameError::Binary(_))
        ));
        assert!(matches!(
            read_file(folder.path()),
            Err(BlameError::Folder(_))
        ));
        let huge = File::create(path("huge")).unwrap();
        huge.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(matches!(
            read_file(&path("huge")),
            Err(BlameError::TooLarge { .. })
        ));
        let long = PathBuf::from("x".repeat(5_000));
        assert!(matches!(
            read_file(&long),
            Ok(None) | Err(BlameError::Unreadable { .. })
        ));
    }

    #[test]
    fn a_path_has_its_spellings() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("real")).unwrap();
        std::os::unix::fs::symlink(real.join("real"), real.join("link")).unwrap();
        let text = |path: &str| real.join(path).to_str().unwrap().to_owned();
        assert_eq!(
            spellings(Path::new("link/../link/a"), &real)[0],
            text("link/a")
        );
        assert_eq!(
            spellings(Path::new("link/a"), &real),
            [text("link/a"), text("real/a")]
        );
    }
}
