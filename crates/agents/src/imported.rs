//! The memory of imported files: a file that has not changed since an import is not read by the next one.
//!
//! The memory belongs to the machine and not to the database: the times and inodes of files have no meaning elsewhere.
//! It is a file for each database in `$XDG_CACHE_HOME/loopstore/imported`, else `~/.cache/loopstore/imported`, which
//! can be deleted at any time. An entry counts only while the sessions of its file are stored as the import left them,
//! so that a database from a backup, or one without an erased session, is filled again.

mod stamps;

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use loopstore::extend::{self as store, SessionKey, SessionStore, StoreRead, StoreResult};
use loopstore::model::Time;
use loopstore::{Database, SessionId};
use loopstore_terminal::folders;
use loopstore_transcripts::{ImportOptions, ImportReport, ImportedFiles};
use serde::{Deserialize, Serialize};

use self::stamps::FileStamps;

/// The time in seconds before an import in which a file may have changed without another modification time: some
/// file systems count whole seconds.
const UNCERTAIN_SECONDS: i64 = 2;
/// The number of databases whose memories are kept.
const DATABASES: usize = 32;

/// The memory of the files that were imported into one database.
#[derive(Debug)]
pub struct ImportMemory {
    file: PathBuf,
    /// The options of the import that decide what is stored.
    options: u64,
    format: Option<String>,
    /// The time at which the memory was opened, in seconds since the epoch.
    started: i64,
    entries: Mutex<MemoryEntries>,
}

#[derive(Debug, Default)]
struct MemoryEntries {
    /// True once the file of the memory was read: a memory of many files takes longer to read than all else that
    /// `doctor` compares.
    is_read: bool,
    of_files: HashMap<PathBuf, MemoryEntry>,
    /// The stamps of files that are being imported.
    begun: HashMap<PathBuf, FileStamps>,
    is_changed: bool,
}

/// An imported file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct MemoryEntry {
    options: u64,
    format: String,
    /// The beginning of the import, in seconds since the epoch.
    imported_at: i64,
    files: FileStamps,
    sessions: Vec<RememberedSession>,
    loops: u64,
    turns: u64,
    messages: u64,
}

/// The state of a session after the import.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RememberedSession {
    id: SessionId,
    key: i64,
    tick: i64,
    /// The newest receipt, possibly of another session.
    last_receipt: i64,
    /// The keys of the loops, each with its number of messages. Copies of a database share their memory, and the tick
    /// says nothing about the content of another copy.
    loops: Vec<(i64, u32)>,
}

impl RememberedSession {
    /// True if nothing of an earlier state is missing.
    fn continues(&self, before: &Self) -> bool {
        let now: HashMap<i64, u32> = self.loops.iter().copied().collect();
        let is_there = |(key, length): &(i64, u32)| now.get(key).is_some_and(|now| now >= length);
        self.key == before.key
            && self.tick >= before.tick
            && self.last_receipt >= before.last_receipt
            && before.loops.iter().all(is_there)
    }
}

impl ImportMemory {
    /// Opens the memory of a database; `None` if there is no folder for it. The memory is read when it is first used.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn open(store: &dyn Database, options: &ImportOptions) -> StoreResult<Option<Self>> {
        let folder = folder();
        let memory = folder.map(|folder| Self::open_in(&folder, store, options));
        memory.transpose()
    }

    fn open_in(folder: &Path, store: &dyn Database, options: &ImportOptions) -> StoreResult<Self> {
        let key = store::read(store, |read| read.import_key())?;
        // A database that was put back from a backup is another file.
        let files = store.files();
        let data = files.first().and_then(|path| path.metadata().ok());
        let number = data.map(|data| (data.dev(), data.ino()));
        let file = folder.join(format!("{:016x}.json", hash_of(&(key, number))));
        let relevant = (
            env!("CARGO_PKG_VERSION"),
            options.session.as_ref().map(SessionId::as_str),
            options.without_source,
            options.redact,
            options.redact.then(|| format!("{:?}", options.redaction)),
        );
        Ok(Self {
            file,
            options: hash_of(&relevant),
            format: options.format.clone(),
            started: seconds(),
            entries: Mutex::default(),
        })
    }

    /// Writes the memory, if it has changed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self) -> io::Result<()> {
        let mut entries = self.entries();
        let Some(folder) = self.file.parent().filter(|_| entries.is_changed) else {
            return Ok(());
        };
        let mut made = DirBuilder::new();
        made.recursive(true).mode(0o700).create(folder)?;
        entries
            .of_files
            .retain(|path, _| path.symlink_metadata().is_ok());
        let text = serde_json::to_vec(&entries.of_files)?;
        let unfinished = self.file.with_extension(std::process::id().to_string());
        std::fs::write(&unfinished, text)?;
        std::fs::rename(&unfinished, &self.file)?;
        entries.is_changed = false;
        remove_oldest(folder)
    }

    fn entries(&self) -> MutexGuard<'_, MemoryEntries> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if !entries.is_read {
            entries.is_read = true;
            // A memory that cannot be read is an empty one.
            let text = std::fs::read(&self.file).unwrap_or_default();
            entries.of_files = serde_json::from_slice(&text).unwrap_or_default();
        }
        entries
    }

    /// True if a file was imported, whatever the options, and has not changed since.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        let path = std::path::absolute(path).unwrap_or_default();
        let entries = self.entries();
        let entry = entries.of_files.get(&path);
        entry.is_some_and(|entry| entry.files.are_unchanged())
    }

    /// Returns the entry of a file that has not changed since.
    fn entry(&self, path: &Path) -> Option<MemoryEntry> {
        let path = std::path::absolute(path).ok()?;
        let entry = self.entries().of_files.get(&path)?.clone();
        let is_same = entry.options == self.options
            && self.format.as_ref().is_none_or(|format| *format == entry.format)
            // A clock that was set back says nothing about what happened since.
            && entry.imported_at <= self.started
            && entry.files.are_unchanged();
        is_same.then_some(entry)
    }
}

impl ImportedFiles for ImportMemory {
    fn unchanged(&self, store: &dyn SessionStore, path: &Path) -> Option<ImportReport> {
        let entry = self.entry(path)?;
        let is_stored = store::read(store, |read| {
            for session in &entry.sessions {
                let now = stored(read, &session.id)?;
                if !now.is_some_and(|now| now.continues(session)) {
                    return Ok(false);
                }
                let key = SessionKey(session.key);
                if read.has_receipt_after(key, session.last_receipt)? {
                    return Ok(false);
                }
            }
            Ok::<_, store::StoreError>(true)
        });
        is_stored.ok().filter(|is_stored| *is_stored)?;
        let mut report = ImportReport::default();
        report.files = 1;
        report.unchanged = 1;
        report.bytes = entry.files.bytes();
        report.sessions = entry.sessions.into_iter().map(|one| one.id).collect();
        report.loops = entry.loops;
        report.turns = entry.turns;
        report.messages = entry.messages;
        Some(report)
    }

    fn begin(&self, path: &Path, others: Vec<PathBuf>) {
        // The memory is JSON, whose texts are UTF-8.
        let path = std::path::absolute(path).ok();
        if let Some(path) = path.filter(|path| path.to_str().is_some()) {
            let files = FileStamps::of(&path, others);
            self.entries().begun.insert(path, files);
        }
    }

    fn finish(&self, store: &dyn SessionStore, path: &Path, format: &str, report: &ImportReport) {
        let Ok(path) = std::path::absolute(path) else {
            return;
        };
        let Some(files) = self.entries().begun.remove(&path) else {
            return;
        };
        let newest = files.newest();
        let is_settled = newest.is_some_and(|newest| newest < self.started - UNCERTAIN_SECONDS);
        let sessions = store::read(store, |read| {
            let stored = report.sessions.iter().map(|id| stored(read, id));
            stored.collect::<StoreResult<Option<Vec<RememberedSession>>>>()
        });
        let mut entries = self.entries();
        match sessions {
            Ok(Some(sessions)) if is_settled && !sessions.is_empty() && is_complete(report) => {
                let entry = MemoryEntry {
                    options: self.options,
                    format: format.to_owned(),
                    imported_at: self.started,
                    files,
                    sessions,
                    loops: report.loops,
                    turns: report.turns,
                    messages: report.messages,
                };
                entries.of_files.insert(path, entry);
                entries.is_changed = true;
            }
            // The next import reads the file.
            _ => entries.is_changed |= entries.of_files.remove(&path).is_some(),
        }
    }
}

/// True if the report lists nothing about its file. A list is printed again only if the file is read again.
fn is_complete(report: &ImportReport) -> bool {
    let lists = [
        report.skipped.is_empty(),
        report.repaired.is_empty(),
        report.notes.is_empty(),
        report.held_back.is_empty(),
        report.unredacted.is_empty(),
        report.branches.is_empty(),
        report.separated.is_empty(),
        report.unread.is_empty(),
        report.failed.is_empty(),
    ];
    lists.iter().all(|is_empty| *is_empty)
}

/// Returns the present state of a session.
fn stored(read: &dyn StoreRead, id: &SessionId) -> StoreResult<Option<RememberedSession>> {
    let Some(row) = read.session(id)? else {
        return Ok(None);
    };
    Ok(Some(RememberedSession {
        id: id.clone(),
        key: row.key.0,
        tick: row.tick,
        last_receipt: read.last_receipt(row.key)?,
        loops: read
            .loop_lengths(row.key)?
            .into_iter()
            .map(|(key, length)| (key.0, length))
            .collect(),
    }))
}

fn folder() -> Option<PathBuf> {
    let cache = folders::folder("XDG_CACHE_HOME", ".cache")?;
    Some(cache.join("loopstore").join("imported"))
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    value.hash(&mut hash);
    hash.finish()
}

fn seconds() -> i64 {
    Time::now().millis().unwrap_or_default() / 1000
}

/// Removes the memories of the databases that were not imported into for the longest time.
fn remove_oldest(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort_unstable();
    let surplus = files.len().saturating_sub(DATABASES);
    for (_, path) in files.into_iter().take(surplus) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use loopstore::Store;
    use loopstore_transcripts::import_paths;

    use super::*;

    const CHAT: &str =
        r#"[{"role":"user","content":"Will it rain?"},{"role":"assistant","content":"No."}]"#;

    struct Stage {
        folder: tempfile::TempDir,
        store: Store,
    }

    impl Stage {
        /// Creates a chat that was written an hour ago.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::in_memory().unwrap();
            let stage = Self { folder, store };
            stage.write(CHAT, Duration::from_secs(3600));
            stage
        }

        fn chat(&self) -> PathBuf {
            self.folder.path().join("chat.json")
        }

        fn write(&self, text: &str, age: Duration) {
            std::fs::write(self.chat(), text).unwrap();
            let file = File::options().write(true).open(self.chat()).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }

        /// Imports into a store with the memory of earlier imports.
        fn import_as(
            &self,
            store: &Store,
            mut options: ImportOptions,
            adjust: impl FnOnce(&mut ImportMemory),
        ) -> ImportReport {
            let folder = self.folder.path().join("memory");
            let mut memory = ImportMemory::open_in(&folder, store.database(), &options).unwrap();
            adjust(&mut memory);
            let memory = Arc::new(memory);
            options.known = Some(memory.clone());
            let paths = [self.chat()];
            let report = import_paths(store.database(), &paths, &options, &mut |_| {}).unwrap();
            memory.save().unwrap();
            report
        }

        fn import(&self) -> ImportReport {
            self.import_as(&self.store, ImportOptions::default(), |_| {})
        }
    }

    #[test]
    fn an_unchanged_file_is_not_read_and_its_report_stays() {
        let stage = Stage::new();
        let first = stage.import();
        assert_eq!((first.unchanged, first.added_messages), (0, 2));
        let again = stage.import();
        assert_eq!(
            (again.unchanged, again.files, again.added_messages),
            (1, 1, 0)
        );
        assert_eq!(again.sessions, first.sessions);
        assert_eq!((again.loops, again.turns), (first.loops, first.turns));
        assert_eq!((again.messages, again.bytes), (first.messages, first.bytes));
    }

    #[test]
    fn equal_size_and_time_do_not_hide_another_content() {
        let stage = Stage::new();
        stage.import();
        let modified = stage.chat().metadata().unwrap().modified().unwrap();
        std::fs::write(stage.chat(), CHAT.replace("rain", "snow")).unwrap();
        let file = File::options().write(true).open(stage.chat()).unwrap();
        file.set_modified(modified).unwrap();
        let again = stage.import();
        assert_eq!(again.unchanged, 0);
        assert!(
            again.added_messages + again.revised > 0,
            "the content is read"
        );
    }

    #[test]
    fn a_file_that_was_written_just_before_its_import_is_read_again() {
        let stage = Stage::new();
        stage.write(CHAT, Duration::ZERO);
        stage.import();
        assert_eq!(stage.import().unchanged, 0);
    }

    #[test]
    fn a_clock_that_was_set_back_is_not_trusted() {
        let stage = Stage::new();
        stage.import();
        let earlier = |memory: &mut ImportMemory| memory.started -= 60;
        let again = stage.import_as(&stage.store, ImportOptions::default(), earlier);
        assert_eq!(again.unchanged, 0);
    }

    #[test]
    fn other_options_read_the_file_again() {
        let stage = Stage::new();
        stage.import();
        let redacting = ImportOptions {
            redact: true,
            ..ImportOptions::default()
        };
        assert_eq!(
            stage.import_as(&stage.store, redacting, |_| {}).unchanged,
            0
        );
        let format = |name: &str| ImportOptions {
            format: Some(name.to_owned()),
            ..ImportOptions::default()
        };
        stage.import();
        let same = stage.import_as(&stage.store, format("openai-chat"), |_| {});
        assert_eq!(same.unchanged, 1);
    }

    /// Copies a database with all its content.
    fn copied(from: &Path, to: &Path) -> Store {
        std::fs::copy(from, to).unwrap();
        Store::open(to).unwrap()
    }

    #[test]
    fn a_copy_that_went_on_otherwise_does_not_hide_what_it_lacks() {
        let stage = Stage::new();
        let path = |name: &str| stage.folder.path().join(name);
        drop(Store::open(path("first.db")).unwrap());
        let other = copied(&path("first.db"), &path("second.db"));
        let first = Store::open(path("first.db")).unwrap();
        let report = stage.import_as(&first, ImportOptions::default(), |_| {});
        assert_eq!(report.added_messages, 2);
        // The copy has the session in an earlier state and the same key, and a later tick.
        let longer = path("chat.json");
        stage.write(
            r#"[{"role":"user","content":"Will it rain?"}]"#,
            Duration::from_secs(3600),
        );
        let options = ImportOptions::default();
        import_paths(other.database(), &[longer], &options, &mut |_| {}).unwrap();
        let lengths = |store: &Store| {
            store::read(store.database(), |read| {
                let id = &report.sessions[0];
                Ok::<_, store::StoreError>(stored(read, id)?.unwrap())
            })
            .unwrap()
        };
        let (here, mut there) = (lengths(&first), lengths(&other));
        there.tick = here.tick + 1;
        assert_eq!((there.key, there.loops.len()), (here.key, here.loops.len()));
        assert!(!there.continues(&here), "the copy lacks a message");
        assert!(here.continues(&here));
    }

    #[test]
    fn a_file_with_skipped_content_is_read_and_reported_again() {
        let stage = Stage::new();
        let with_damage = CHAT.replace("}]", "},{\"role\":\"nobody\",\"content\":7}]");
        stage.write(&with_damage, Duration::from_secs(3600));
        let first = stage.import();
        assert!(!first.skipped.is_empty(), "{first:?}");
        let again = stage.import();
        assert_eq!((again.unchanged, again.skipped), (0, first.skipped));
    }

    #[test]
    fn a_change_of_a_file_that_is_read_with_the_transcript_is_a_change() {
        let stage = Stage::new();
        let report = stage.import();
        let folder = stage.folder.path();
        let (store, options) = (stage.store.database(), ImportOptions::default());
        let memory = ImportMemory::open_in(&folder.join("memory"), store, &options).unwrap();
        let parent = folder.join("parent.jsonl");
        memory.begin(&stage.chat(), vec![parent.clone()]);
        memory.finish(store, &stage.chat(), "openai-chat", &report);
        assert!(memory.unchanged(store, &stage.chat()).is_some());
        std::fs::write(parent, "{}").unwrap();
        assert!(memory.unchanged(store, &stage.chat()).is_none());
    }

    #[test]
    fn a_memory_of_another_database_or_of_none_is_no_memory() {
        let stage = Stage::new();
        stage.import();
        let other = Store::in_memory().unwrap();
        let report = stage.import_as(&other, ImportOptions::default(), |_| {});
        assert_eq!((report.unchanged, report.added_messages), (0, 2));
        let files = std::fs::read_dir(stage.folder.path().join("memory")).unwrap();
        for file in files {
            std::fs::write(file.unwrap().path(), "{\"broken\": ").unwrap();
        }
        assert_eq!(stage.import().unchanged, 0);
        assert_eq!(stage.import().unchanged, 1);
    }
}
