//! The user's folders, and the database that commands use if nothing names one.

use std::env::var_os;
use std::path::{Path, PathBuf};

/// The file name of a database that nothing names.
const DATABASE: &str = "loopstore.db";

/// Returns the database of the user, in the folder for the data of programs; `None` if no home folder is known.
pub fn user_database() -> Option<PathBuf> {
    let data = folder("XDG_DATA_HOME", ".local/share")?;
    Some(data.join("loopstore").join(DATABASE))
}

/// Returns the file `loopstore.db` in the current folder or the nearest folder above it that has one. In the current
/// folder its path is relative.
pub(crate) fn found_database() -> Option<PathBuf> {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let here = PathBuf::from(DATABASE);
    if is_there(&here) {
        return Some(here);
    }
    let current = std::env::current_dir().ok()?;
    let above = current.ancestors().skip(1);
    let mut paths = above.map(|folder| folder.join(DATABASE));
    paths.find(|path| is_there(path))
}

/// Returns the database that commands use if nothing names one and none is found: the one of the user, else a file in
/// the current folder.
pub(crate) fn default_database() -> PathBuf {
    user_database().unwrap_or_else(|| DATABASE.into())
}

/// Returns the folder in a variable, else the default folder in the home folder.
pub fn folder(variable: &str, usual: &str) -> Option<PathBuf> {
    let given = set(variable).map(with_home);
    given.or_else(|| Some(home()?.join(usual)))
}

/// True if a variable contains the path of a folder.
pub fn is_set(variable: &str) -> bool {
    set(variable).is_some()
}

/// Returns the path in a variable; `None` if it is empty.
pub fn set(variable: &str) -> Option<PathBuf> {
    let value = var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Returns the home folder.
pub fn home() -> Option<PathBuf> {
    set("HOME")
}

/// Returns a path with `~` replaced by the home folder, as shells read it.
pub fn with_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    }
}
