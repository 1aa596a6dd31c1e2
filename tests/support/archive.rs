//! What the tests of archiving share.

use loopstore::inspect::verify;
use loopstore::retention::{ArchiveReport, ArchiveRequest, UnarchiveRequest, archive, unarchive};
use loopstore::*;

use crate::support::histories::{History, answer, loop_id, result, user};

pub fn assert_whole(store: &dyn Database) {
    let report = verify(store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    assert!(report.index.is_empty(), "{:?}", report.index);
}

/// Archives loops by name.
pub fn archive_loops(store: &dyn Database, id: &SessionId, loops: &[usize]) -> ArchiveReport {
    let request = ArchiveRequest {
        session: Some(id.clone()),
        loops: loops.iter().map(|at| loop_id(*at)).collect(),
        ..ArchiveRequest::default()
    };
    archive(store, &request).unwrap()
}

/// Archives what is cold.
pub fn archive_cold(store: &dyn Database) -> ArchiveReport {
    archive(store, &ArchiveRequest::default()).unwrap()
}

pub fn bring_back(store: &dyn Database) -> ArchiveReport {
    unarchive(store, &UnarchiveRequest::default()).unwrap()
}

/// A turn of a prompt, an answer with a call and what it was billed for, and a result.
pub fn turn(text: &str, turn: u32) -> Vec<AgentMessage> {
    let call = format!("call-{turn}");
    let mut told = answer(
        &format!("{text} is answered at length. ").repeat(4),
        &[&call],
        turn,
    );
    if let Some(Message::Assistant(message)) = told.message_mut() {
        message.model = Some("model-1".into());
        let usage = r#"{"input":100,"output":7}"#;
        message.usage = Some(serde_json::from_str(usage).unwrap());
    }
    let output = vec![Content::text(
        format!("{text}: a line of output\n").repeat(20),
    )];
    vec![user(text, turn), told, result(&call, output, turn)]
}

/// A session of ended loops one after another, and a current one that still runs.
pub fn line<'a>(store: &'a dyn SessionStore, id: &str, loops: usize, turns: u32) -> History<'a> {
    let mut history = History::new(store, id);
    for at in 0..loops {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        for number in 0..turns {
            history.append(at, turn(&format!("{id} loop {at} turn {number}"), number));
        }
        history.end_loop(at);
    }
    history.start_loop(Some(loops - 1), None);
    history.append(loops, turn("now", 0));
    history
}

pub fn number(store: &SqliteStore, sql: &str) -> i64 {
    let rows = store.query(sql).unwrap().records();
    rows[0].number("n").unwrap()
}

/// How many messages are in packs.
pub fn packed(store: &SqliteStore) -> i64 {
    number(
        store,
        "SELECT count(*) AS n FROM messages WHERE head IS NULL",
    )
}
