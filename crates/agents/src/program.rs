//! The path of this program, for configurations that call it.

use std::io;
use std::path::{Path, PathBuf};

/// Returns the path of this program: the executable, or the console script that Python runs.
pub fn path() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    if is_loopstore(&own) {
        return Ok(own);
    }
    let mut arguments = std::env::args_os().take(2).map(PathBuf::from);
    let script = arguments.find(|path| is_loopstore(path) && path.is_file());
    script.map_or(Ok(own), std::path::absolute)
}

fn is_loopstore(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "loopstore")
}
