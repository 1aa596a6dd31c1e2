//! The errors of this crate.

use std::path::PathBuf;

use loopstore::StoreError;

/// An error that ends a blame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlameError {
    /// No session changed the file.
    #[error("no session has a recorded change of `{0}`")]
    NoChange(String),
    /// Several recorded files match the path equally well.
    #[error("`{file}` matches several recorded files ({}); give more of the path, or one of the recorded paths", .paths.join(", "))]
    SeveralFiles {
        /// The path as it was given.
        file: String,
        /// The recorded paths, of many the first.
        paths: Vec<String>,
    },
    /// The file has fewer lines.
    #[error("`{file}` has {lines} lines; line {line} does not exist")]
    NoLine {
        /// The path as it was given.
        file: String,
        /// The line that was asked for.
        line: u32,
        /// The number of lines.
        lines: u32,
    },
    /// Lines were asked for of a file whose text is not known.
    #[error(
        "the lines of `{0}` are not known: the file is not on disk, and no change wrote all of it; leave out the lines"
    )]
    UnknownLines(String),
    /// The path is a folder.
    #[error("`{}` is a folder; give a file in it", .0.display())]
    Folder(PathBuf),
    /// The file is not text.
    #[error("`{}` is a binary file: it contains a zero byte", .0.display())]
    Binary(PathBuf),
    /// The file is too large.
    #[error("`{}` has {bytes} bytes; blame reads at most {most}", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The largest size.
        most: u64,
    },
    /// The file could not be read.
    #[error("`{}` could not be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
