//! The files and folders of an import: finds the transcripts among them, and records the result of each.

use std::io::{BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use loopstore::compact::Hooks;
use loopstore::extend::SessionStore;
use loopstore::internal::is_store;
use loopstore::model::SessionId;
use loopstore_locks::SharedFile;
use loopstore_redact::RedactionPolicy;
use walkdir::{DirEntry, WalkDir};

use super::detect::{left_out, missing_feature};
use super::known::ImportedFiles;
use super::matching::Digests;
use super::one_file::import_and_keep;
use super::queue::{FileQueue, OpenedTranscript};
use super::report::{ImportReport, Skipped};
use super::signs::CHAT_HISTORY;
use super::sniff::{FileHead, sniff};
use super::unread::reason_of;
use super::{ImportError, Importer, Source, importers, unread};

/// The number of bytes read at once.
pub(super) const BUFFER_BYTES: usize = 128 << 10;
/// The number of reasons that an error lists.
const MAX_REASONS: usize = 5;

/// The options of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The format of all files; `None` to detect the format of each file.
    pub format: Option<String>,
    /// The only session to import; `None` for all. With a session, no copies of the files are kept, since they
    /// contain other sessions.
    pub session: Option<SessionId>,
    /// True to keep no copies of the files.
    pub without_source: bool,
    /// True to replace secrets by markers before anything is stored. No copies of the files are kept then, since they
    /// contain the secrets.
    pub redact: bool,
    /// The policy by which secrets are replaced in redacted sessions.
    pub redaction: RedactionPolicy,
    /// The hooks to call for each imported compaction, after the transaction of its file is committed.
    pub hooks: Hooks,
    /// The files that earlier imports read, which are not read again while they are unchanged; `None` to read all.
    pub known: Option<Arc<dyn ImportedFiles>>,
}

impl ImportOptions {
    pub(super) fn keeps_files(&self) -> bool {
        !self.without_source && self.session.is_none()
    }
}

/// The progress of an import, before each file.
#[derive(Clone, Copy, Debug)]
pub struct FileProgress<'a> {
    /// The file.
    pub path: &'a Path,
    /// The number of the file, from 1.
    pub file: u64,
    /// The number of files.
    pub files: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// Imports files and folders into a store with all [`importers`].
///
/// A folder is walked in the order of names; links to folders and hidden entries are skipped. Each file is one
/// transaction. A file in a folder that fails leaves no rows and becomes an entry in `skipped`; the import continues
/// with the next file.
///
/// A path in `paths` that does not exist, is of no known format or contains no transcript becomes an entry in
/// `failed`; the import continues with the next path. Files in folders that may contain a conversation and are not
/// read are in `unread`, each with the reason.
///
/// # Errors
/// If no session was imported and none was stored already.
///
/// # Examples
/// ```
/// use loopstore::Store;
/// use loopstore_transcripts::{ImportOptions, import_paths};
///
/// let folder = tempfile::tempdir()?;
/// let chat = r#"[{"role":"user","content":"Will it rain?"},{"role":"assistant","content":"No."}]"#;
/// std::fs::write(folder.path().join("chat.json"), chat)?;
/// let (store, paths) = (Store::in_memory()?, [folder.path().to_owned()]);
/// let report = import_paths(store.database(), &paths, &ImportOptions::default(), &mut |_| {})?;
/// assert_eq!((report.sessions.len(), report.added_messages), (1, 2));
/// // What is there is not added again.
/// let again = import_paths(store.database(), &paths, &ImportOptions::default(), &mut |_| {})?;
/// assert_eq!((again.messages, again.added_messages), (2, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import_paths(
    store: &dyn SessionStore,
    paths: &[PathBuf],
    options: &ImportOptions,
    progress: &mut dyn FnMut(FileProgress<'_>),
) -> Result<ImportReport, ImportError> {
    import_paths_with(store, paths, options, importers(), progress)
}

/// Imports files and folders as [`import_paths`] does, with these importers.
///
/// # Errors
/// As [`import_paths`].
pub fn import_paths_with(
    store: &dyn SessionStore,
    paths: &[PathBuf],
    options: &ImportOptions,
    importers: &[&dyn Importer],
    progress: &mut dyn FnMut(FileProgress<'_>),
) -> Result<ImportReport, ImportError> {
    let begun = Instant::now();
    let mut search = FileSearch {
        importers: chosen(importers, options)?,
        is_forced: options.format.is_some(),
        store,
        known: options.known.as_deref(),
        own: own_files(store),
        report: ImportReport::default(),
        found: Vec::new(),
    };
    let mut failures = Vec::new();
    for path in paths {
        if let Err(error) = search.named(path) {
            failures.push((path, error));
        }
    }
    let FileSearch {
        mut report, found, ..
    } = search;
    if found.is_empty()
        && report.unchanged == 0
        && failures.len() == 1
        && let Some((_, error)) = failures.pop()
    {
        return Err(error);
    }
    for (path, error) in failures {
        report.fail(path, &error);
    }
    let files = found.len() as u64;
    let digests = digests_of(store)?;
    thread::scope(|scope| -> Result<(), ImportError> {
        let mut queue = FileQueue::new(scope, store.counter(), digests, &found, options);
        for (file, transcript) in (1..).zip(&found) {
            progress(FileProgress {
                path: &transcript.path,
                file,
                files,
                bytes: transcript.bytes,
            });
            match import_file(store, transcript, queue.next(), options) {
                Ok(one) => {
                    if let Some(known) = &options.known {
                        let format = transcript.importer.format();
                        known.finish(store, &transcript.path, format, &one);
                    }
                    report.merge(one);
                    report.files += 1;
                    report.bytes += transcript.bytes;
                }
                Err(error @ ImportError::Store(_)) => return Err(error),
                Err(error) if transcript.is_named => report.fail(&transcript.path, &error),
                Err(error) => {
                    report.skip(transcript.path.to_string_lossy(), None, with_causes(&error));
                }
            }
        }
        Ok(())
    })?;
    report.seconds = begun.elapsed().as_secs_f64();
    if report.sessions.is_empty() {
        return Err(nothing_came_in(&report, options));
    }
    Ok(report)
}

fn chosen<'a>(
    importers: &[&'a dyn Importer],
    options: &ImportOptions,
) -> Result<Vec<&'a dyn Importer>, ImportError> {
    let Some(format) = &options.format else {
        return Ok(importers.to_vec());
    };
    let one = importers.iter().find(|i| i.format() == format);
    one.map(|importer| vec![*importer]).ok_or_else(|| {
        ImportError::NoTranscript(match missing_feature(format) {
            Some(feature) => format!(
                "this build cannot read the format `{format}`; \
                 build loopstore-transcripts with its feature `{feature}`"
            ),
            None => format!(
                "unknown format `{}`; known formats are {}",
                format.escape_debug(),
                names(importers)
            ),
        })
    })
}

fn names(importers: &[&dyn Importer]) -> String {
    let names: Vec<&str> = importers.iter().map(|i| i.format()).collect();
    let left_out = match &left_out()[..] {
        [] => String::new(),
        formats => format!(" (this build leaves out {})", formats.join(", ")),
    };
    match names.is_empty() {
        true => format!("none{left_out}"),
        false => names.join(", ") + &left_out,
    }
}

/// Returns the text of an error with its causes.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn nothing_came_in(report: &ImportReport, options: &ImportOptions) -> ImportError {
    let mut text = match &options.session {
        Some(session) => format!("no session `{session}` came in"),
        None => "no session came in".into(),
    };
    let skipped = report.failed.iter().chain(&report.skipped);
    text.push_str(&reasons(
        skipped,
        report.failed.len() + report.skipped.len(),
    ));
    ImportError::NoTranscript(text)
}

/// Lists the first [`MAX_REASONS`] of `count` reasons.
fn reasons<'a>(skipped: impl Iterator<Item = &'a Skipped>, count: usize) -> String {
    let mut text = String::new();
    for skipped in skipped.take(MAX_REASONS) {
        text.push_str(&format!("; {}: {}", skipped.file, skipped.reason));
    }
    if count > MAX_REASONS {
        text.push_str(&format!("; and {} more", count - MAX_REASONS));
    }
    text
}

/// Examines an entry of a folder as an import of the folder does. Returns the reason why the entry is not read, if it
/// may contain a conversation.
pub(super) fn unread_entry(
    store: &dyn SessionStore,
    path: &Path,
    options: &ImportOptions,
) -> Option<Skipped> {
    let mut search = FileSearch {
        importers: chosen(importers(), options).ok()?,
        is_forced: options.format.is_some(),
        store,
        known: options.known.as_deref(),
        own: own_files(store),
        report: ImportReport::default(),
        found: Vec::new(),
    };
    // An entry that cannot be examined now is examined again when it changes.
    search.entry(path).ok()?;
    search.report.unread.pop()
}

/// A file to import.
pub(super) struct Transcript<'a> {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// True if the path was named by the caller rather than found in a folder.
    pub(super) is_named: bool,
    pub(super) importer: &'a dyn Importer,
}

/// The search for transcripts.
struct FileSearch<'a> {
    importers: Vec<&'a dyn Importer>,
    is_forced: bool,
    store: &'a dyn SessionStore,
    known: Option<&'a dyn ImportedFiles>,
    /// Device and inode of the files of the store itself, which must not be opened here.
    own: Vec<(u64, u64)>,
    report: ImportReport,
    found: Vec<Transcript<'a>>,
}

impl<'a> FileSearch<'a> {
    /// Examines a path that the caller named.
    fn named(&mut self, path: &Path) -> Result<(), ImportError> {
        let data = std::fs::metadata(path).map_err(unread(path))?;
        if data.is_dir() {
            return self.named_folder(path);
        }
        if !data.is_file() {
            let reason = format!("{} is neither a file nor a folder", path.display());
            return Err(ImportError::NoTranscript(reason));
        }
        if self.is_own(&data) {
            let reason = "it belongs to the database that is imported into";
            self.report.skip(path.to_string_lossy(), None, reason);
            return Ok(());
        }
        if data.len() == 0 {
            self.report
                .skip(path.to_string_lossy(), None, "the file is empty");
            return Ok(());
        }
        if self.is_unchanged(path) {
            return Ok(());
        }
        let mut why = None;
        let known = if self.is_forced {
            self.importers.first().copied()
        } else {
            let head = sniff(path).map_err(|error| unusable(path, error))?;
            if head.is_sqlite && is_store(&head.bytes) {
                return Err(ImportError::NoTranscript(format!(
                    "{} is a loopstore database: it can be opened, and its sessions copied",
                    path.display()
                )));
            }
            why = Some(&head)
                .filter(|head| head.is_sqlite)
                .and_then(|head| reason_of(path, head, None));
            self.importer_of(&head)
        };
        let Some(importer) = known else {
            return Err(ImportError::NoTranscript(format!(
                "{} is not in a known format{}; known formats are {}",
                path.display(),
                why.map_or(String::new(), |why| format!(": it is {why}")),
                names(&self.importers)
            )));
        };
        self.take(path, data.len(), importer, true);
        Ok(())
    }

    fn named_folder(&mut self, path: &Path) -> Result<(), ImportError> {
        let (found, unchanged) = (self.found.len(), self.report.unchanged);
        let unknown = self.report.unknown_files;
        self.walk(path);
        if self.found.len() > found || self.report.unchanged > unchanged {
            return Ok(());
        }
        let unknown = self.report.unknown_files - unknown;
        let mut text = format!("{} holds no transcript", path.display());
        match unknown {
            0 => text.push_str(" and no other file"),
            1 => text.push_str(", only one file of another kind"),
            _ => text.push_str(&format!(", only {unknown} files of other kinds")),
        }
        let (unread, skipped) = (&self.report.unread, &self.report.skipped);
        text.push_str(&reasons(
            unread.iter().chain(skipped),
            unread.len() + skipped.len(),
        ));
        Err(ImportError::NoTranscript(text))
    }

    /// Examines the files of a folder and its subfolders.
    fn walk(&mut self, folder: &Path) {
        for entry in files_within(folder) {
            let looked = match entry {
                Ok(path) => self.entry(&path).map_err(|error| (path, error)),
                Err(unreadable) => Err(unreadable),
            };
            if let Err((path, error)) = looked {
                let reason = format!("cannot be read: {error}");
                self.report.skip(path.to_string_lossy(), None, reason);
            }
        }
    }

    fn entry(&mut self, path: &Path) -> std::io::Result<()> {
        let data = std::fs::metadata(path)?;
        if data.is_dir() {
            let reason =
                "a link to a folder, which is not followed; import that folder by its name";
            self.not_read(path, Some(reason.into()));
            return Ok(());
        }
        if !data.is_file() || self.is_own(&data) {
            return Ok(());
        }
        if data.len() == 0 {
            self.report
                .skip(path.to_string_lossy(), None, "the file is empty");
            return Ok(());
        }
        if self.is_unchanged(path) {
            return Ok(());
        }
        let head = match sniff(path) {
            Ok(head) => head,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                self.not_read(path, Some(error.to_string()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match self.importer_of(&head) {
            Some(importer) => self.take(path, data.len(), importer, false),
            None if self.is_companion(&head.path) => {}
            None => self.not_read(path, reason_of(path, &head, self.format())),
        }
        Ok(())
    }

    /// Counts a file that is not read. With a reason, the file is listed: it may contain a conversation.
    fn not_read(&mut self, path: &Path, reason: Option<String>) {
        self.report.unknown_files += 1;
        self.report.unread.extend(reason.map(|reason| Skipped {
            file: path.to_string_lossy().into_owned(),
            line: None,
            reason,
        }));
    }

    /// Returns the format that the caller named, if any.
    fn format(&self) -> Option<&'static str> {
        let importer = self.importers.first().filter(|_| self.is_forced);
        importer.map(|importer| importer.format())
    }

    fn is_companion(&self, path: &Path) -> bool {
        self.importers.iter().any(|one| one.is_companion(path))
    }

    fn is_own(&self, data: &std::fs::Metadata) -> bool {
        self.own.contains(&(data.dev(), data.ino()))
    }

    fn importer_of(&self, head: &FileHead) -> Option<&'a dyn Importer> {
        if head.is_sqlite && is_store(&head.bytes) {
            return None;
        }
        let mut importers = self.importers.iter().copied();
        importers.find(|importer| importer.detect(&head.path, &head.bytes))
    }

    /// Counts a file that an earlier import read and that is unchanged since. Returns false for any other.
    fn is_unchanged(&mut self, path: &Path) -> bool {
        let known = self
            .known
            .and_then(|known| known.unchanged(self.store, path));
        let is_known = known.is_some();
        self.report.merge(known.unwrap_or_default());
        is_known
    }

    fn take(&mut self, path: &Path, bytes: u64, importer: &'a dyn Importer, is_named: bool) {
        if let (Some(known), Some(others)) = (self.known, importer.other_files(path)) {
            known.begin(path, others);
        }
        self.found.push(Transcript {
            path: path.to_owned(),
            bytes,
            is_named,
            importer,
        });
    }
}

/// Returns the error for a named file whose beginning cannot be read.
fn unusable(path: &Path, error: std::io::Error) -> ImportError {
    match error.kind() {
        ErrorKind::InvalidData => {
            ImportError::NoTranscript(format!("{} cannot be read: {error}", path.display()))
        }
        _ => unread(path)(error),
    }
}

/// Returns device and inode of the files of a store, links resolved.
fn own_files(store: &dyn SessionStore) -> Vec<(u64, u64)> {
    let files = store.files();
    let data = files.iter().filter_map(|path| path.metadata().ok());
    data.map(|data| (data.dev(), data.ino())).collect()
}

/// Returns the files of a folder and its subfolders, ordered by name, the files of a folder before its subfolders.
/// Hidden entries except aider's are left out, and links to folders are not followed.
pub(super) fn files_within(
    folder: &Path,
) -> impl Iterator<Item = Result<PathBuf, (PathBuf, std::io::Error)>> {
    // The only transcripts with hidden names.
    let is_shown = |entry: &DirEntry| {
        !entry.file_name().as_encoded_bytes().starts_with(b".") || entry.file_name() == CHAT_HISTORY
    };
    let unreadable = |error: walkdir::Error| {
        let path = error.path().map_or_else(PathBuf::new, Path::to_owned);
        (
            path,
            error.into_io_error().unwrap_or(ErrorKind::Other.into()),
        )
    };
    WalkDir::new(folder)
        .min_depth(1)
        .sort_by_key(|entry| (entry.file_type().is_dir(), entry.file_name().to_owned()))
        .into_iter()
        .filter_entry(is_shown)
        .filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.file_type().is_dir()))
        .map(move |entry| entry.map(DirEntry::into_path).map_err(unreadable))
}

fn digests_of(store: &dyn SessionStore) -> Result<Digests, ImportError> {
    let mut digests = Digests::default();
    store.read(Box::new(|read| {
        digests = Digests::new(read)?;
        Ok(())
    }))?;
    Ok(digests)
}

fn import_file(
    store: &dyn SessionStore,
    transcript: &Transcript<'_>,
    ahead: Option<OpenedTranscript<'_>>,
    options: &ImportOptions,
) -> Result<ImportReport, ImportError> {
    let path = &transcript.path;
    let file = SharedFile::open(path).map_err(unread(path))?;
    let mut source = Source {
        path,
        reader: &mut BufReader::with_capacity(BUFFER_BYTES, file),
    };
    import_and_keep(store, transcript.importer, &mut source, ahead, options)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_is_walked_by_names_without_hidden_entries_and_links_to_folders() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for within in ["b", "b/.hidden", "b/c"] {
            fs::create_dir(at(within)).unwrap();
        }
        for file in ["z", "a", ".x", "b/.hidden/e", "b/c/f", "b/d"] {
            fs::write(at(file), file).unwrap();
        }
        std::os::unix::fs::symlink(at("b"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("alias")).unwrap();
        let files = |folder: &Path| -> Vec<String> {
            let files = files_within(folder).map(Result::unwrap);
            let files = files.filter(|path| path.is_file());
            let name = |path: PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
            files.map(name).collect()
        };
        assert_eq!(files(folder.path()), ["a", "alias", "z", "b/d", "b/c/f"]);
        assert_eq!(files(&at("link")), ["d", "c/f"]);
    }
}
