//! Files that an earlier import read. A file that is unchanged since then is not read again.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use loopstore::extend::SessionStore;

use super::report::ImportReport;

/// A memory of imported files.
pub trait ImportedFiles: Debug + Send + Sync {
    /// Returns the report of an earlier import of a file that has not changed since and whose sessions are stored;
    /// `None` if the file must be read.
    fn unchanged(&self, store: &dyn SessionStore, path: &Path) -> Option<ImportReport>;

    /// Records the state of a file, and of the other files that are read with it, before it is read.
    fn begin(&self, path: &Path, others: Vec<PathBuf>);

    /// Records that a file of this format was imported in the state that was recorded before. A file without such a
    /// state is not remembered.
    fn finish(&self, store: &dyn SessionStore, path: &Path, format: &str, report: &ImportReport);
}
