//! Stored content is loaded as types: the session, its loops with their messages, and their blocks.

use crate::support::histories::{History, Random, answer, loop_id, user};
use crate::support::recording::real_transcripts;
use loopstore::model::*;
use loopstore::{
    CompactRequest, CompactTrigger, CompactionConfig, ContextConfig, Database, Error, KeepRecent,
    Policy, SessionHandle, SqliteStore, Store,
};
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use std::sync::Arc;

fn handle(store: &Arc<SqliteStore>, id: &SessionId) -> SessionHandle {
    let database: Arc<dyn Database> = store.clone();
    Store::from(database).session(id).unwrap()
}

/// Returns the JSON export, parsed.
fn exported(store: &SqliteStore, id: &SessionId) -> Session {
    let mut out = Vec::new();
    export(store, id, None, ExportForm::PhiCore, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// Serialises and parses a value, so that it no longer depends on the fields that its source left out.
fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(loaded: &T) -> T {
    serde_json::from_str(&serde_json::to_string(loaded).unwrap()).unwrap()
}

/// Compares what is loaded, whole and in parts, with the export.
fn assert_as_exported(store: &Arc<SqliteStore>, id: &SessionId) {
    let (chat, expected) = (handle(store, id), exported(store, id));
    assert_eq!(round_trip(&chat.load_whole().unwrap()), expected, "{id}");
    let outline = chat.load().unwrap();
    assert_eq!(outline.loops.len(), expected.loops.len());
    for (outline, expected) in outline.loops.iter().zip(&expected.loops) {
        let bare = (&outline.messages, &outline.turns, &outline.events);
        assert_eq!(bare, (&vec![], &vec![], &vec![]));
        assert_eq!(outline.compaction_block, None);
        let whole = chat.load_loop(&outline.loop_id).unwrap();
        assert_eq!(&round_trip(&whole), expected);
        let whole = round_trip(&whole);
        let emptied = LoopRecord {
            messages: Vec::new(),
            turns: Vec::new(),
            events: Vec::new(),
            compaction_block: None,
            ..whole
        };
        assert_eq!(emptied, round_trip(outline));
        let blocks = chat.blocks(&outline.loop_id).unwrap();
        for (at, stored) in blocks.iter().enumerate() {
            assert_eq!(stored.generation as usize, at + 1);
            let loaded = chat.block(&outline.loop_id, stored.generation).unwrap();
            assert_eq!(&loaded, stored);
        }
        let active: Vec<_> = blocks.iter().filter(|block| block.is_active).collect();
        let found = chat.active_block(&outline.loop_id).unwrap();
        assert_eq!(active, found.iter().collect::<Vec<_>>());
    }
}

#[test]
fn random_sessions_load_as_they_are_exported() {
    for seed in 0..30 {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let mut random = Random::new(seed);
        let mut history = History::new(&*store, "s");
        for _ in 0..40 {
            history.step(&mut random);
        }
        let id = history.session.clone();
        assert_as_exported(&store, &id);
    }
}

#[test]
fn recorded_sessions_load_as_they_are_exported() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    for format in ["phi-core", "pi", "codex", "gemini-cli"] {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let options = ImportOptions::default();
        let report = import_paths(&*store, &[folder.join(format)], &options, &mut |_| {}).unwrap();
        for id in &report.sessions {
            assert_as_exported(&store, id);
        }
    }
}

#[test]
fn every_generation_stays_and_the_one_in_force_is_told() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut history = History::new(&*store, "s");
    for turn in 0..8 {
        let text = "words ".repeat(60);
        history.append(0, vec![user(&text, turn), answer(&text, &[], turn)]);
    }
    let (id, first) = (history.session.clone(), loop_id(0));
    let chat = handle(&store, &id);
    assert_eq!(chat.active_block(&first).unwrap(), None);
    assert_eq!(history.compact(0, (1, 3), false)["outcome"], "committed");
    assert_eq!(history.compact(0, (1, 2), true)["outcome"], "committed");
    let generations = |only_active: bool| {
        let mut blocks = chat.blocks(&first).unwrap();
        blocks.retain(|block| block.is_active || !only_active);
        blocks
            .into_iter()
            .map(|block| block.generation)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (generations(false), generations(true)),
        (vec![1, 2], vec![2])
    );
    assert!(history.flip(0, false));
    assert_eq!(
        (generations(false), generations(true)),
        (vec![1, 2], vec![1])
    );

    let block = chat.block(&first, 1).unwrap().block;
    assert_eq!(block.keep_first, Some(TurnRange::new(0, 0)));
    let compacted = block.keep_compacted.unwrap();
    assert_eq!(compacted.range, TurnRange::new(1, 4));
    assert!(!compacted.messages.is_empty());
    assert_eq!(block.keep_recent.unwrap().range, TurnRange::new(5, 7));
    // Later messages are not part of the block, but of the record of the loop.
    history.append(0, vec![user("and now?", 8), answer("now", &[], 8)]);
    let recent = |block: CompactionBlock| block.keep_recent.unwrap().range;
    assert_eq!(
        recent(chat.block(&first, 1).unwrap().block),
        TurnRange::new(5, 7)
    );
    let record = chat.load_loop(&first).unwrap();
    assert_eq!(
        recent(record.compaction_block.unwrap()),
        TurnRange::new(5, 8)
    );
}

#[test]
fn what_is_not_there_is_said_to_be_missing() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let history = History::new(&*store, "s");
    let chat = handle(&store, &history.session);
    let missing = |error: Error| match error {
        Error::NotFound { what, id } => format!("{what} {id}"),
        other => panic!("{other}"),
    };
    let (absent, first) = (LoopId::new("absent").unwrap(), loop_id(0));
    assert_eq!(missing(chat.load_loop(&absent).unwrap_err()), "loop absent");
    assert_eq!(missing(chat.blocks(&absent).unwrap_err()), "loop absent");
    assert_eq!(
        missing(chat.block(&first, 7).unwrap_err()),
        format!("block {first}#7")
    );
    let nobody = handle(&store, &SessionId::new("nobody").unwrap());
    assert_eq!(missing(nobody.load().unwrap_err()), "session nobody");
    assert_eq!(missing(nobody.load_whole().unwrap_err()), "session nobody");
}

#[test]
fn an_author_comes_back_and_decides_what_a_task_is() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let id = SessionId::new("s").unwrap();
    let chat = handle(&store, &id);
    let note = Message::user("The build is done.").with_author(Author::Harness);
    chat.append([note, Message::user("Mend the roof.")])
        .unwrap();
    for hour in 0..12 {
        let said = format!("Hour {hour}: {}", "rain ".repeat(60));
        chat.append([Message::assistant(said)]).unwrap();
    }
    let request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    chat.compact(&request).unwrap();
    let session = chat.load_whole().unwrap();
    let authors: Vec<_> = session.loops[0].messages[..3]
        .iter()
        .map(AgentMessage::author)
        .collect();
    assert_eq!(authors, [Author::Harness, Author::Human, Author::Agent]);
    assert_as_exported(&store, &id);
    let stored = store
        .query("SELECT prompts FROM turns ORDER BY id LIMIT 1")
        .unwrap();
    assert_eq!(stored.rows[0][0].as_str(), "1");
}

#[test]
fn what_a_harness_says_is_no_user_turn() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let history = History::new(&*store, "s");
    for turn in 0..10 {
        let text = "words ".repeat(80);
        let prompt = match turn {
            0..=5 => Message::user(&text),
            _ => Message::user("The build goes on.").with_author(Author::Harness),
        };
        let prompt = AgentMessage::from(prompt).in_turn(TurnId::new("l", turn));
        history.append(0, vec![prompt, answer(&text, &[], turn)]);
    }
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_recent: KeepRecent::UserTurns(2),
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    let chat = handle(&store, &history.session);
    chat.compact(&request).unwrap();
    let block = chat.active_block(&loop_id(0)).unwrap().unwrap().block;
    assert_eq!(block.keep_recent.unwrap().range, TurnRange::new(4, 9));
}
