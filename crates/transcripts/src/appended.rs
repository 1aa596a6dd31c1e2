//! Imports the records that were appended to a transcript since the last import, without reading the rest of the file.
//!
//! The first record of the newest stored loop is searched for at the end of the file, and the file from there on is
//! read as a transcript of its own. This is correct only if no record there depends on an earlier one. The format
//! decides that ([`Importer::is_readable_alone`]); if it cannot tell, the whole file must be read.

use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use loopstore::extend as store;
use loopstore::extend::{SessionStore, StoreRead, StoreResult, codec};
use loopstore::model::{AgentMessage, LoopId, LoopRecord, Session, SessionId};
use memchr::{memmem, memrchr};

use super::decode::repaired;
use super::{
    FoundCompaction, ImportError, ImportReport, Importer, SessionHead, Sink, Source, import_source,
    importers, unread,
};

/// The sizes of the ends of a file that are searched, in bytes, in this order.
const WINDOWS: [u64; 3] = [256 << 10, 1 << 20, 4 << 20];

/// The stored part of a session that its transcript continues.
struct StoredPrefix {
    title: Option<String>,
    session: Session,
    newest: LoopRecord,
}

/// Imports the records that were appended to the transcript of a stored session, and reads only the end of the file.
/// Returns `None` if the whole file must be read. No copy of the file is kept.
///
/// # Errors
/// If the file cannot be read, or the store rejects its content. Nothing is written then.
///
/// # Examples
/// ```
/// use loopstore_transcripts::{ImportOptions, import_appended, import_paths};
/// use loopstore::{SessionId, Store};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("s1.jsonl");
/// let record = |number: usize, kind: &str| {
///     let parent = number.checked_sub(1).map(|parent| format!("u{parent}"));
///     let message = serde_json::json!({"role": kind, "content": "Go on."});
///     serde_json::json!({"sessionId": "s1", "uuid": format!("u{number}"), "parentUuid": parent,
///         "type": kind, "message": message}).to_string() + "\n"
/// };
/// let prompts = |numbers: std::ops::Range<usize>| numbers.map(|number| record(number, "user")).collect();
/// let mut text: String = prompts(0..3);
/// std::fs::write(&path, &text)?;
/// let store = Store::in_memory()?;
/// import_paths(store.database(), &[path.clone()], &ImportOptions::default(), &mut |_| {})?;
/// text += &prompts(3..5);
/// std::fs::write(&path, &text)?;
/// let session = SessionId::new("s1")?;
/// let report = import_appended(store.database(), &path, "claude-code", &session)?;
/// assert_eq!(report.unwrap().added_messages, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import_appended(
    store: &dyn SessionStore,
    path: &Path,
    format: &str,
    session: &SessionId,
) -> Result<Option<ImportReport>, ImportError> {
    let Some(importer) = importers().iter().find(|one| one.format() == format) else {
        return Ok(None);
    };
    let Some(known) = store::read(store, |read| known(read, session, format))? else {
        return Ok(None);
    };
    let Some(end) = end_from(path, &known.newest.loop_id)? else {
        return Ok(None);
    };
    let title = known.title.as_deref();
    if !importer.is_readable_alone(&end, &known.newest.loop_id, title) {
        return Ok(None);
    }
    let appended = AppendedTail {
        importer: *importer,
        session: known.session,
        newest: known.newest,
    };
    let mut source = Source {
        path,
        reader: &mut Cursor::new(end),
    };
    import_source(store, &appended, &mut source, Some(session.clone())).map(Some)
}

/// Returns the stored part of a session that its transcript may continue: a session of this format, not redacted, with
/// a loop before its newest one.
fn known(read: &dyn StoreRead, id: &SessionId, format: &str) -> StoreResult<Option<StoredPrefix>> {
    let Some(session) = read.session(id)? else {
        return Ok(None);
    };
    if session.source.as_deref() != Some(format) || read.flags(session.key)?.redacts {
        return Ok(None);
    }
    let loops = read.loops(session.key)?;
    let newest = loops.iter().max_by_key(|row| row.key.0);
    // Messages before the first loop are stored in that loop.
    let Some(newest) = newest.filter(|_| loops.len() > 1) else {
        return Ok(None);
    };
    let meta = read.loop_meta(newest.key)?;
    Ok(Some(StoredPrefix {
        title: session.title,
        session: codec::from_json(&session.meta)?,
        newest: codec::from_json(&meta.meta)?,
    }))
}

/// Returns the end of a file, beginning with the line whose record has this id.
fn end_from(path: &Path, id: &LoopId) -> Result<Option<Vec<u8>>, ImportError> {
    let failed = unread(path);
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let Ok(quoted) = serde_json::to_string(id.as_str()) else {
        return Ok(None);
    };
    for window in WINDOWS {
        let begin = length.saturating_sub(window);
        file.seek(SeekFrom::Start(begin)).map_err(failed)?;
        let mut end = Vec::new();
        let mut rest = (&mut file).take(window);
        rest.read_to_end(&mut end).map_err(failed)?;
        if let Some(at) = line_of(&end, &quoted) {
            // Repairs are counted when the whole file is read.
            let end = repaired(&end[at..]).0.into_owned();
            return Ok(Some(end.into_bytes()));
        }
        if begin == 0 {
            break;
        }
    }
    Ok(None)
}

/// Returns the offset of the first whole line whose record has this id; `quoted` is the id in quotes.
fn line_of(end: &[u8], quoted: &str) -> Option<usize> {
    // The first line may be truncated.
    let first = end.iter().position(|byte| *byte == b'\n')? + 1;
    let text = end.get(first..)?;
    let mut found = memmem::find_iter(text, quoted).map(|at| &text[..at]);
    let before = found.find(|before| before.trim_ascii_end().ends_with(b"\"uuid\":"))?;
    Some(first + memrchr(b'\n', before).map_or(0, |at| at + 1))
}

/// Reads the end of a transcript with the importer of the whole.
struct AppendedTail<'a> {
    importer: &'a dyn Importer,
    session: Session,
    newest: LoopRecord,
}

impl Importer for AppendedTail<'_> {
    fn format(&self) -> &'static str {
        self.importer.format()
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        self.importer.detect(path, head)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let (session, newest) = (&self.session, &self.newest);
        self.importer.import(
            source,
            &mut AppendedSink {
                sink,
                session,
                newest,
            },
        )
    }

    fn rewrites(&self) -> bool {
        self.importer.rewrites()
    }
}

/// Corrects the fields that only the beginning of a transcript contains.
struct AppendedSink<'a> {
    sink: &'a mut dyn Sink,
    session: &'a Session,
    newest: &'a LoopRecord,
}

impl Sink for AppendedSink<'_> {
    fn session(&mut self, mut head: SessionHead) -> Result<(), ImportError> {
        let (new, stored) = (&mut head.session, self.session);
        new.created_at.clone_from(&stored.created_at);
        new.formation.clone_from(&stored.formation);
        // A stored value stays if the record has none.
        head.project = None;
        head.title = None;
        self.sink.session(head)
    }

    fn begin_loop(&mut self, mut record: LoopRecord) -> Result<(), ImportError> {
        if record.loop_id == self.newest.loop_id {
            record
                .parent_loop_id
                .clone_from(&self.newest.parent_loop_id);
            record.parent_turn.clone_from(&self.newest.parent_turn);
            record
                .continuation_kind
                .clone_from(&self.newest.continuation_kind);
        }
        self.sink.begin_loop(record)
    }

    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        self.sink.message(loop_id, message, raw)
    }

    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError> {
        self.sink.compaction(found)
    }

    fn end_document(&mut self) -> Result<(), ImportError> {
        self.sink.end_document()
    }

    fn skip(&mut self, line: Option<u64>, reason: String) {
        self.sink.skip(line, reason);
    }

    fn repaired(&mut self, line: Option<u64>, count: u64, what: &str) {
        self.sink.repaired(line, count, what);
    }
}
