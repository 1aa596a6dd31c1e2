//! A session that has one text in every place for content, and the bytes of a database.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use loopstore::compact::FlipRequest;
use loopstore::extend::{self as store, CallRow, ImportRow, Note, Outcome, source};
use loopstore::search::{SearchQuery, search};
use loopstore::*;

pub use crate::whole::assert_whole;

use crate::histories::{History, answer, loop_id, open, result, user};

/// A token by its form; the part that is searched for has no sign in it, so that the words of the
/// index hold it too.
pub const CORE: &str = "zq7xw8e9r1t2y3u4i5o6p7a8s9d1f2g3h4j5";

pub fn token() -> String {
    format!("ghp_{CORE}")
}

pub struct Stage {
    folder: tempfile::TempDir,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self) -> PathBuf {
        self.path("loopstore.db")
    }

    pub fn store(&self) -> SqliteStore {
        open(&self.file())
    }

    /// Returns the number of occurrences of `what` in the database and its log, in either case.
    pub fn count(&self, what: &[u8]) -> usize {
        let file = self.file();
        let log = PathBuf::from(format!("{}-wal", file.display()));
        count_in(&file, what) + count_in(&log, what)
    }
}

fn count_in(path: &Path, what: &[u8]) -> usize {
    let bytes = std::fs::read(path).unwrap_or_default();
    let same = |part: &&[u8]| part.eq_ignore_ascii_case(what);
    bytes.windows(what.len()).filter(same).count()
}

pub fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub fn number(store: &SqliteStore, sql: &str) -> i64 {
    let rows = store.query(sql).unwrap().records();
    rows[0].number("n").unwrap()
}

/// Records a session of six plain turns.
pub fn told<'a>(store: &'a SqliteStore, id: &str) -> History<'a> {
    let history = History::new(store, id);
    for turn in 0..6 {
        let words = format!("what is said in {id} at turn {turn}");
        let messages = vec![
            user(&words, turn),
            answer(&"plain words ".repeat(30), &[], turn),
        ];
        history.append(0, messages);
    }
    history
}

/// A session of some turns in which nothing is secret.
pub fn plain(store: &SqliteStore, id: &str) {
    let mut history = told(store, id);
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
}

/// Records a session with `mark` in every place for content except ids.
pub fn tell(store: &SqliteStore, id: &str, mark: &str) {
    let mut history = History::new(store, id);
    for turn in 0..8 {
        history.append(0, turn_with(mark, turn));
    }
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
    let flip = FlipRequest {
        reason: Some(format!("because of {mark}")),
        ..FlipRequest::default()
    };
    undo(store, &history.session, &flip).unwrap();
    redo(store, &history.session, &flip).unwrap();
    history.start_loop(Some(0), Some(5));
    history.append(1, turn_with(mark, 0));
    assert_eq!(history.compact(1, (0, 0), true)["outcome"], "committed");
    describe(store, id, mark);
    note(store, id, mark);
    let options = BuildOptions {
        record: true,
        ..BuildOptions::default()
    };
    build_context_from_session(store, &history.session, &options).unwrap();
    assert!(
        !search(store, &SearchQuery::new(CORE))
            .unwrap()
            .hits
            .is_empty()
    );
    check_everywhere(store, mark);
}

fn turn_with(mark: &str, turn: u32) -> Vec<AgentMessage> {
    let call = format!("call-{turn}");
    let pixels = STANDARD.encode(format!("pixels {CORE}"));
    let thinking = Content::thinking(format!("I saw {mark}"), Some("c2lnbmF0dXJl".into()));
    let mut reply = answer(&format!("found {mark} at {turn}"), &[&call], turn);
    if let Some(Message::Assistant(message)) = reply.message_mut() {
        message.content.insert(0, thinking);
        let args = format!("{{\"header\":\"x {mark}\",\"list\":[1.50,\"{mark}\"]}}");
        let args = Json::parse(&args).unwrap();
        message
            .content
            .push(Content::tool_call(format!("more-{turn}"), "tool", args));
    }
    let output = vec![
        Content::text(format!("{}\n{mark}\n", "a line of output\n".repeat(12))),
        Content::image(pixels, "image/png"),
    ];
    vec![
        AgentMessage::extension("system", Json::string(&format!("the key is {mark}"))),
        user(&format!("use {mark} for turn {turn}"), turn),
        reply,
        result(&call, output, turn),
        result(&format!("more-{turn}"), vec![Content::text("fine")], turn),
    ]
}

/// Writes the mark into the descriptions of session, loops, runs and imports.
fn describe(store: &SqliteStore, id: &str, mark: &str) {
    store::write(store, |write| {
        let mut row = write.session(&session(id))?.unwrap();
        let mut record = Session::new(session(id), "agent");
        record.extra.insert("note", Json::string(mark));
        row.title = Some(format!("About {mark}"));
        row.project = Some(format!("/work/{mark}"));
        row.agent_id = Some(format!("agent {mark}"));
        row.meta = serde_json::to_string(&record).unwrap();
        row.tick += 1;
        write.update_session(&row)?;
        let mut failed = None;
        write.runs(row.key, &mut |run| {
            failed = Some(run);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        let mut run = failed.unwrap();
        run.run_id = format!("failed-{id}");
        run.tick = row.tick;
        run.outcome = Outcome::Failed;
        run.error = Some(format!("refused: {mark}"));
        run.record = Some(format!("{{\"was\":\"{mark}\"}}"));
        run.events = Some(format!(
            "[{{\"type\":\"compactionEnded\",\"error\":\"{mark}\"}}]"
        ));
        run.key = write.insert_run(&run)?;
        write.close_run(&run, None)?;
        let key = write.loops(row.key)?[0].key;
        let mut meta = write.loop_meta(key)?;
        meta.meta = meta
            .meta
            .replacen('{', &format!("{{\"noted\":\"{mark}\","), 1);
        meta.history = Some(format!(
            "{{\"turns\":[],\"events\":[{{\"said\":\"{mark}\"}}]}}"
        ));
        write.update_loop_meta(key, &meta)?;
        let from = ImportRow {
            format: "openai-chat".into(),
            path: format!("/tmp/{mark}/chat.json"),
            file_name: format!("{mark}.json"),
            record_key: Some(mark.into()),
        };
        write.insert_import(row.key, &from)?;
        let mut file = Cursor::new(format!("the file with {mark}"));
        source::keep(write, &mut file, "openai-chat", &from.path, &[row.key]).unwrap();
        Ok(())
    })
    .unwrap();
}

/// Writes the mark into the rows of a recorder while a loop runs.
fn note(store: &SqliteStore, id: &str, mark: &str) {
    store::write(store, |write| {
        let row = write.session(&session(id))?.unwrap();
        let key = write.loop_by_id(row.key, &loop_id(1))?.unwrap().key;
        write.insert_note(
            key,
            &Note::Event(format!("{{\"type\":\"progress\",\"text\":\"{mark}\"}}")),
        )?;
        write.insert_call(&CallRow {
            loop_key: key,
            call_id: "pending".into(),
            nth: 0,
            tool_name: "pay".into(),
            arguments: Some(format!("{{\"with\":\"{mark}\"}}")),
            idempotency_key: format!("key-of-{id}"),
            turn_index: Some(0),
            started_at: "2026-01-01T00:00:00Z".into(),
            attempts: 1,
            finished_at: None,
        })
    })
    .unwrap();
}

/// Asserts that the mark is in every place: a test that searches for a mark that was never stored would pass.
fn check_everywhere(store: &SqliteStore, mark: &str) {
    for place in [
        "sessions WHERE title || project || agent_id || meta",
        "loops WHERE meta || history",
        "messages WHERE head",
        "messages WHERE body",
        "block_messages WHERE coalesce(head, '') || coalesce(body, '')",
        "runs WHERE error || record || events",
        "flips WHERE reason",
        "imports WHERE path || file_name || record_key",
        "started_calls WHERE arguments",
        "notes WHERE note",
    ] {
        let sql = format!("SELECT count(*) AS n FROM {place} LIKE '%{mark}%'");
        assert!(number(store, &sql) > 0, "{place}");
    }
    let kept = "SELECT count(*) AS n FROM source_pieces";
    assert!(number(store, kept) > 0);
    assert!(number(store, "SELECT count(*) AS n FROM manifests") > 0);
}
