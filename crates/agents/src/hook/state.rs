//! The folder for the state of hooks and installers: `$XDG_STATE_HOME/loopstore`, else `~/.local/state/loopstore`.
//! Only its owner can read it.

use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use loopstore_terminal::folders;

/// Returns the folder; `None` if neither variable is set.
pub fn folder() -> Option<PathBuf> {
    let state = folders::folder("XDG_STATE_HOME", ".local/state")?;
    Some(state.join("loopstore"))
}

/// Returns a folder within the state folder, which is created if it does not exist.
pub fn made(name: &str) -> io::Result<PathBuf> {
    let unknown = || io::Error::new(ErrorKind::NotFound, "set HOME or XDG_STATE_HOME");
    let path = folder().ok_or_else(unknown)?.join(name);
    let mut folders = std::fs::DirBuilder::new();
    folders.recursive(true).mode(0o700).create(&path)?;
    Ok(path)
}
