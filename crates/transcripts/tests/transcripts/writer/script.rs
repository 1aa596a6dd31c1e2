//! A scripted importer, and helpers to read its result.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use loopstore::extend::active_blocks::{self, ChainLink, ChainView};
use loopstore::extend::{Section, StoreRead, StoreResult, decode, read};
use loopstore::*;
use loopstore_transcripts::{
    FoundCompaction, FoundEffect, Identity, ImportError, ImportReport, Importer, SessionHead, Sink,
    Source, import_source,
};

/// One call of the sink.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum Step {
    Own(&'static str),
    Key(&'static str),
    Loop(LoopRecord),
    Message(String, AgentMessage, String),
    Found(FoundCompaction),
    Fail,
}

pub struct Script(pub Vec<Step>);

impl Importer for Script {
    fn format(&self) -> &'static str {
        "script"
    }

    fn detect(&self, path: &Path, _head: &[u8]) -> bool {
        path.extension()
            .is_some_and(|extension| extension == "script")
    }

    fn import(&self, _source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        for step in self.0.clone() {
            match step {
                Step::Own(id) => sink.session(head(Identity::Own(session(id))))?,
                Step::Key(key) => sink.session(head(Identity::Key(key.into())))?,
                Step::Loop(record) => sink.begin_loop(record)?,
                Step::Message(loop_key, message, raw) => {
                    sink.message(&loop_id(&loop_key), message, raw.as_bytes())?;
                }
                Step::Found(found) => sink.compaction(found)?,
                Step::Fail => return Err(ImportError::NoTranscript("it broke off".into())),
            }
        }
        Ok(())
    }
}

pub fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub fn loop_id(id: &str) -> LoopId {
    LoopId::new(id).unwrap()
}

pub fn head(identity: Identity) -> SessionHead {
    let mut session = Session::new(session("replaced"), "agent");
    session.created_at = Some(Time::from_text("2026-01-01T00:00:00Z"));
    session.last_active_at = Some(Time::from_text("2026-01-02T00:00:00Z"));
    session.formation = None;
    SessionHead {
        identity,
        session,
        title: Some("A title".into()),
        project: None,
    }
}

pub fn record(id: &str, parent: Option<&str>, status: LoopStatus) -> LoopRecord {
    let mut record = LoopRecord::new(loop_id(id), parent.map(loop_id));
    record.started_at = Some(Time::from_text("2026-01-01T00:00:00Z"));
    record.status = status;
    record
}

pub fn begin(id: &str, parent: Option<&str>) -> Step {
    Step::Loop(record(id, parent, LoopStatus::Completed))
}

pub fn running(id: &str, parent: Option<&str>) -> Step {
    Step::Loop(record(id, parent, LoopStatus::Running))
}

/// Returns a message whose raw record is its JSON.
pub fn step(loop_key: &str, turn: u32, message: Message) -> Step {
    let message = AgentMessage::from(message).in_turn(TurnId::new(loop_key, turn));
    let raw = serde_json::to_string(&message).unwrap();
    Step::Message(loop_key.into(), message, raw)
}

pub fn user(loop_key: &str, turn: u32, text: &str) -> Step {
    step(loop_key, turn, Message::user(text))
}

pub fn assistant(loop_key: &str, turn: u32, text: &str) -> Step {
    step(loop_key, turn, answer(vec![Content::text(text)]))
}

pub fn call(loop_key: &str, turn: u32, id: &str) -> Step {
    let arguments = Json::parse(r#"{"path":"a.rs"}"#).unwrap();
    step(
        loop_key,
        turn,
        answer(vec![Content::tool_call(id, "read", arguments)]),
    )
}

pub fn result(loop_key: &str, turn: u32, id: &str, text: &str) -> Step {
    let result = ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "read".into(),
        content: vec![Content::text(text)],
        ..ToolResultMessage::default()
    };
    step(loop_key, turn, Message::ToolResult(result))
}

pub fn note(loop_key: &str, kind: &str, text: &str) -> Step {
    let raw = format!("{kind} {text}");
    Step::Message(
        loop_key.into(),
        AgentMessage::extension(kind, Json::string(text)),
        raw,
    )
}

fn answer(content: Vec<Content>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        ..AssistantMessage::default()
    })
}

/// Returns a prompt, a call with its result, and an answer: two turns, four messages.
pub fn work(loop_key: &str, name: &str) -> Vec<Step> {
    let id = format!("call-{name}");
    vec![
        user(loop_key, 0, &format!("prompt {name}")),
        call(loop_key, 0, &id),
        result(loop_key, 0, &id, &format!("result {name}")),
        assistant(loop_key, 1, &format!("answer {name}")),
    ]
}

pub fn found(loop_key: &str, effect: FoundEffect) -> Step {
    Step::Found(FoundCompaction {
        loop_id: loop_id(loop_key),
        strategy: "tool".into(),
        trigger: Some("auto".into()),
        effect,
        at: Some(Time::from_text("2026-01-01T12:00:00Z")),
        record: Json::parse(r#"{"compactMetadata":{"durationMs":1234,"preTokens":9}}"#).unwrap(),
    })
}

pub fn summary(loop_key: &str, text: &str, first_kept: Option<(&str, u32)>) -> Step {
    found(
        loop_key,
        FoundEffect::Summary {
            messages: vec![Message::user(text).into()],
            first_kept: first_kept.map(|(kept, turn)| (loop_id(kept), turn)),
        },
    )
}

pub fn import_as(
    store: &SqliteStore,
    file: &str,
    steps: &[Step],
) -> Result<ImportReport, ImportError> {
    let mut source = Source {
        path: Path::new(file),
        reader: &mut std::io::Cursor::new(Vec::new()),
    };
    import_source(store, &Script(steps.to_vec()), &mut source, None)
}

pub fn import(store: &SqliteStore, steps: &[Step]) -> ImportReport {
    import_as(store, "folder/file.script", steps).unwrap()
}

pub fn store() -> SqliteStore {
    SqliteStore::in_memory().unwrap()
}

pub fn imported(steps: &[Step]) -> SqliteStore {
    let store = store();
    import(&store, steps);
    store
}

/// Returns the rows of a query as text.
pub fn rows(store: &SqliteStore, sql: &str) -> Vec<String> {
    let found = store.query(sql).unwrap();
    let line = |row: &Vec<Json>| {
        row.iter()
            .map(|v| v.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    found.rows.iter().map(|row| line(row).join(" ")).collect()
}

pub const TABLES: [&str; 11] = [
    "sessions",
    "loops",
    "turns",
    "messages",
    "blobs",
    "runs",
    "flips",
    "blocks",
    "block_messages",
    "coverage",
    "imports",
];

/// Returns all stored rows.
pub fn dump(store: &SqliteStore) -> BTreeMap<&'static str, Vec<String>> {
    TABLES
        .into_iter()
        .map(|table| (table, rows(store, &format!("SELECT * FROM {table}"))))
        .collect()
}

/// Returns what two databases must have in common after the same import: all columns except keys, salts, ticks and
/// times.
pub fn essence(store: &SqliteStore) -> Vec<Vec<String>> {
    [
        "SELECT session_id, agent_id, title, created_at, last_active_at, source, meta,
             (SELECT loop_id FROM loops l WHERE l.key = current_loop) FROM sessions",
        "SELECT loop_id, parent_loop_id, parent_turn, kind, status, started_at, ended_at, next_seq,
             sealed_seq, turns, complete, messages, tokens, bytes, generation, open_calls, meta,
             history FROM loops",
        "SELECT id, first_seq, messages, tokens, turn_index, answered, answers
         FROM turns",
        "SELECT id, turn, role, tokens, head, body FROM messages ORDER BY tick, id",
        "SELECT run_id, loop, turns, trigger, strategy, round, outcome, error, tokens_before,
             tokens_after, messages_before, messages_after, record FROM runs",
        "SELECT loop, generation, run, kind, extends, compacted_start, compacted_end, recent_start,
             recent_end, through, tokens_covered, tokens_block, extra FROM blocks",
        "SELECT id, section, replaces, role, head, body FROM block_messages",
        "SELECT * FROM coverage",
    ]
    .iter()
    .map(|sql| rows(store, sql))
    .collect()
}

pub fn chain(store: &SqliteStore, loop_key: &str) -> Vec<ChainLink> {
    read(store, |snapshot| {
        let session = snapshot.sessions()?.remove(0).key;
        let leaf = snapshot.loop_by_id(session, &loop_id(loop_key))?.unwrap();
        active_blocks::chain(snapshot, leaf.key, ChainView::default())
    })
    .unwrap()
}

/// Returns the texts of the context of a leaf, by its active blocks alone.
pub fn context(store: &SqliteStore, loop_key: &str) -> Vec<String> {
    let links = chain(store, loop_key);
    read(store, |snapshot| {
        let mut shown = Vec::new();
        for link in &links {
            show(snapshot, link, &mut shown)?;
        }
        Ok(shown)
    })
    .unwrap()
}

fn show(read: &dyn StoreRead, link: &ChainLink, shown: &mut Vec<String>) -> StoreResult<()> {
    let (mut through, mut replaced) = (0, BTreeMap::new());
    let mut compacted = Vec::new();
    let layout = link
        .block
        .as_ref()
        .map(|b| b.layout.clone())
        .unwrap_or_default();
    if let Some(block) = &link.block {
        through = block.through;
        for message in read.block_messages(block.key)? {
            let text = match message.body {
                Some(body) => Some(text_of(&decode(read, body)?)),
                None => None,
            };
            match message.section {
                Section::Compacted => compacted.extend(text),
                Section::Recent => drop(replaced.insert(message.replaces.unwrap(), text)),
            }
        }
    }
    read.messages(link.row.key, 0..link.end_seq, &mut |row| {
        let turn = row.turn.unwrap_or(0);
        let covered = row.seq < through;
        let hidden = layout
            .compacted
            .filter(|t| covered && t.first <= turn && turn <= t.last);
        if covered && layout.compacted.is_some_and(|t| turn >= t.first) {
            shown.append(&mut compacted);
        }
        if row.body.role == Role::Extension || hidden.is_some() {
            return Ok(ControlFlow::Continue(()));
        }
        match replaced.remove(&row.seq).filter(|_| covered) {
            Some(text) => shown.extend(text),
            None => shown.push(text_of(&decode(read, row.body)?)),
        }
        Ok(ControlFlow::Continue(()))
    })
}

pub fn text_of(message: &AgentMessage) -> String {
    let message = message.message().unwrap();
    let texts: Vec<&str> = message.texts().collect();
    match message.tool_calls().next() {
        Some(call) => format!("call {}", call.id),
        None => texts.join(" "),
    }
}
