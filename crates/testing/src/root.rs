//! The folder of the repository: tests that run in the folder of one package read files of another.

use std::path::{Path, PathBuf};

/// Returns the path of a file of the repository, from its top.
pub fn path(file: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = package.ancestors();
    let root = above.find(|folder| folder.join("tests/fixtures").is_dir());
    root.expect("the fixtures are in the repository").join(file)
}

/// Returns the path of a file of the fixtures.
pub fn fixture(name: &str) -> PathBuf {
    path("tests/fixtures").join(name)
}
