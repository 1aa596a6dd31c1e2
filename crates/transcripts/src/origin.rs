//! The origin of a transcript.

use std::path::Path;

use super::activity;

/// The origin of a transcript: its format and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The format.
    pub format: String,
    /// The path of the file, as passed to the import.
    pub path: String,
    /// The file's name without folders.
    pub file_name: String,
    /// The modification time of the file, in milliseconds since the epoch; `None` if the file does not exist.
    pub modified_at: Option<i64>,
}

impl Origin {
    /// Returns the origin of a transcript of this format in this file.
    pub fn new(format: &str, path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            format: format.to_owned(),
            path: path.to_string_lossy().into_owned(),
            file_name: name.to_string_lossy().into_owned(),
            modified_at: activity::modified_at(path),
        }
    }

    pub(super) fn stem(&self) -> &str {
        let name = self.file_name.as_str();
        name.rsplit_once('.')
            .map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
    }
}
