//! A copy of a file in its old format, kept before a migration rewrites what is stored.
//!
//! Adding a table or a column needs none: whatever goes wrong, the transaction takes it back. A migration
//! that rewrites rows could be wrong itself, and nobody would find out before the old rows are gone.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use super::encryption::unlock;
use super::migration::Formats;
use super::options::SqliteOptions;
use super::place::with_end;
use super::schema::open_locked;
use crate::store::error::{Cause, OpenError};

/// Pages copied at once.
const PAGES_PER_STEP: i32 = 1024;

/// Copies the file at `path` to `PATH.format-N` if its format `found` is older than one whose migration
/// rewrites rows. A copy of that name is whole, from one who was cut off later, and stays.
///
/// # Errors
/// If the copy cannot be written: then nothing must be rewritten.
pub(super) fn keep(
    connection: &Connection,
    path: &Path,
    options: &SqliteOptions,
    found: i64,
    formats: &Formats,
) -> Result<(), OpenError> {
    let copy = with_end(path, &format!(".format-{found}"));
    let is_needed = found > 0 && formats.rewrites_after(found);
    if !is_needed || copy.exists() {
        return Ok(());
    }
    let failed = |cause: Cause| OpenError::Other {
        path: copy.clone(),
        cause,
    };
    let part = with_end(&copy, ".part");
    write(connection, &part, options).map_err(failed)?;
    std::fs::rename(&part, &copy)
        .and_then(|()| File::open(folder_of(&copy))?.sync_all())
        .map_err(|error| failed(Box::new(error)))
}

fn write(connection: &Connection, part: &PathBuf, options: &SqliteOptions) -> Result<(), Cause> {
    // A file that is there already was left by an interrupted copy.
    let mut file = OpenOptions::new();
    let file = file.write(true).create(true).truncate(true);
    file.mode(0o600).open(part)?;
    let mut copy = open_locked(part, OpenFlags::default())?;
    unlock(&copy, options.key.as_ref())?;
    Backup::new(connection, &mut copy)?.run_to_completion(PAGES_PER_STEP, Duration::ZERO, None)?;
    copy.close().map_err(|(_, error)| error)?;
    Ok(File::open(part)?.sync_all()?)
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}
