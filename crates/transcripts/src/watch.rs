//! Imports transcripts while they grow.
//!
//! Each pass compares the length and the modification time of every file with those of the pass before, and imports
//! the changed files: an import adds only new messages. An unchanged file is not read.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use loopstore::extend::SessionStore;

use super::files::{FileProgress, ImportOptions, files_within, import_paths, unread_entry};
use super::lines::CUT_BEFORE_RECORD;
use super::report::{ImportReport, Skipped};
use super::{ImportError, log_of};

/// The reasons for a record that its writer has not finished.
const UNFINISHED: [&str; 2] = ["cut off", "the list is cut off"];

/// The size and modification time of a file and its write-ahead log at the last pass.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    bytes: u64,
    changed: Option<SystemTime>,
    log: Option<(u64, Option<SystemTime>)>,
}

/// A changed file, and the result of its import.
#[derive(Debug)]
pub struct WatchedImport {
    /// The file.
    pub path: PathBuf,
    /// The report of the import. `skipped` contains neither lines that were reported before nor an unfinished last
    /// record. `repaired` contains each kind of damage once. `unread` contains each entry of a folder once.
    pub result: Result<ImportReport, ImportError>,
}

/// Imports files and folders again whenever they change.
///
/// ```
/// use loopstore::Store;
/// use loopstore_transcripts::{ImportOptions, Watch};
///
/// let (store, folder) = (Store::in_memory()?, tempfile::tempdir()?);
/// let mut watch = Watch::new(vec![folder.path().into()], ImportOptions::default());
/// # let chat = r#"[{"role":"user","content":"Will it rain?"}]"#;
/// std::fs::write(folder.path().join("chat.json"), chat)?;
/// let mut added = 0;
/// watch.look(store.database(), &|| false, &mut |progress| match progress.result {
///     Ok(report) => added += report.added_messages,
///     Err(error) => eprintln!("{}: {error}", progress.path.display()),
/// });
/// assert_eq!((watch.files(), added), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watch {
    paths: Vec<PathBuf>,
    options: ImportOptions,
    seen: HashMap<PathBuf, FileStamp>,
    reported: HashMap<PathBuf, Vec<Skipped>>,
    /// The kinds of damage that were reported for each file.
    repaired: HashMap<PathBuf, HashSet<String>>,
    failed: HashMap<PathBuf, String>,
    /// The entries of folders that were reported as unread.
    unread: HashSet<PathBuf>,
}

impl Watch {
    /// Returns a watch of these files and folders. The first call of [`Watch::look`] imports all of them.
    pub fn new(paths: Vec<PathBuf>, options: ImportOptions) -> Self {
        Self {
            paths,
            options,
            seen: HashMap::new(),
            reported: HashMap::new(),
            repaired: HashMap::new(),
            failed: HashMap::new(),
            unread: HashSet::new(),
        }
    }

    /// Returns the number of files that existed at the last call of [`Watch::look`].
    pub fn files(&self) -> usize {
        self.seen.len()
    }

    /// Imports the files that changed since the last call, and calls `each` with every result. Returns when all are
    /// imported or `stop` returns true.
    ///
    /// A file of no known format is tried again after it changes, and a missing file after it is created.
    pub fn look(
        &mut self,
        store: &dyn SessionStore,
        stop: &dyn Fn() -> bool,
        each: &mut dyn FnMut(WatchedImport),
    ) {
        let found = files_in(&self.paths);
        let there: HashSet<&PathBuf> = found.iter().collect();
        self.seen.retain(|path, _| there.contains(path));
        for path in found {
            if stop() {
                return;
            }
            let Some(stamp) = stamp(&path).filter(|stamp| stamp.bytes > 0) else {
                // A link to a folder is not followed.
                if path.is_dir()
                    && let Some(unread) = self.unread(store, &path)
                {
                    each(unread);
                }
                continue;
            };
            if self.seen.get(&path) == Some(&stamp) {
                continue;
            }
            let mut silent = |_: FileProgress<'_>| {};
            let paths = std::slice::from_ref(&path);
            let result = import_paths(store, paths, &self.options, &mut silent);
            // A file that could not be stored is tried again.
            if !matches!(result, Err(ImportError::Store(_))) {
                self.seen.insert(path.clone(), stamp);
            }
            if matches!(result, Err(ImportError::NoTranscript(_)))
                && let Some(unread) = self.unread(store, &path)
            {
                each(unread);
            } else if let Some(progress) = self.progress(path, result) {
                each(progress);
            }
        }
    }

    /// Returns the reason why an entry of a folder is not read, unless it was reported before.
    fn unread(&mut self, store: &dyn SessionStore, path: &Path) -> Option<WatchedImport> {
        if self.unread.contains(path) || self.paths.iter().any(|named| named == path) {
            return None;
        }
        let unread = unread_entry(store, path, &self.options)?;
        self.unread.insert(path.to_owned());
        let report = ImportReport {
            unread: vec![unread],
            unknown_files: 1,
            ..ImportReport::default()
        };
        Some(WatchedImport {
            path: path.to_owned(),
            result: Ok(report),
        })
    }

    fn progress(
        &mut self,
        path: PathBuf,
        mut result: Result<ImportReport, ImportError>,
    ) -> Option<WatchedImport> {
        if let Err(error) = &result {
            // A failure that repeats in each pass is reported once.
            let reason = error.to_string();
            if self.failed.get(&path) == Some(&reason) {
                return None;
            }
            self.failed.insert(path.clone(), reason);
        } else {
            self.failed.remove(&path);
        }
        if let Ok(report) = &mut result {
            let reported = self.reported.entry(path.clone()).or_default();
            report.skipped.retain(|skipped| {
                let unfinished = UNFINISHED.iter().any(|why| skipped.reason.starts_with(why))
                    && skipped.reason != CUT_BEFORE_RECORD;
                !unfinished && !reported.contains(skipped)
            });
            reported.extend(report.skipped.iter().cloned());
            let known = self.repaired.entry(path.clone()).or_default();
            report
                .repaired
                .retain(|repaired| known.insert(repaired.what.clone()));
            let is_news = report.added_messages > 0
                || report.revised > 0
                || !report.skipped.is_empty()
                || !report.unredacted.is_empty();
            if !is_news {
                return None;
            }
        }
        Some(WatchedImport { path, result })
    }
}

/// Returns the files that an import of these paths would read.
fn files_in(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        match path.is_dir() {
            // A folder that cannot be read now may be readable in the next pass.
            true => found.extend(files_within(path).flatten()),
            false => found.push(path.clone()),
        }
    }
    found
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let data = std::fs::metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)?;
    let log = std::fs::metadata(log_of(path)).ok();
    Some(FileStamp {
        bytes: data.len(),
        changed: data.modified().ok(),
        log: log.map(|log| (log.len(), log.modified().ok())),
    })
}
