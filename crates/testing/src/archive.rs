//! The shared parts of the tests of archiving.

use loopstore::*;
use loopstore_admin::retention::{
    ArchiveReport, ArchiveRequest, UnarchiveRequest, archive, unarchive,
};

pub use crate::whole::assert_whole;

use crate::histories::{History, Random, answer, loop_id, result, user};

/// Archives loops by name.
pub fn archive_loops(store: &dyn Database, id: &SessionId, loops: &[usize]) -> ArchiveReport {
    let request = ArchiveRequest {
        session: Some(id.clone()),
        loops: loops.iter().map(|at| loop_id(*at)).collect(),
        ..ArchiveRequest::default()
    };
    archive(store, &request).unwrap()
}

/// Archives the cold loops.
pub fn archive_cold(store: &dyn Database) -> ArchiveReport {
    archive(store, &ArchiveRequest::default()).unwrap()
}

pub fn bring_back(store: &dyn Database) -> ArchiveReport {
    unarchive(store, &UnarchiveRequest::default()).unwrap()
}

/// Returns a turn of a prompt, an answer with a call and its usage, and a result.
pub fn turn(text: &str, turn: u32) -> Vec<AgentMessage> {
    let call = format!("call-{turn}");
    let mut reply = answer(
        &format!("{text} is answered at length. ").repeat(4),
        &[&call],
        turn,
    );
    if let Some(Message::Assistant(message)) = reply.message_mut() {
        message.model = Some("model-1".into());
        let usage = r#"{"input":100,"output":7}"#;
        message.usage = Some(serde_json::from_str(usage).unwrap());
    }
    let output = vec![Content::text(
        format!("{text}: a line of output\n").repeat(20),
    )];
    vec![user(text, turn), reply, result(&call, output, turn)]
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

/// Returns the number of messages in packs.
pub fn packed(store: &SqliteStore) -> i64 {
    number(
        store,
        "SELECT count(*) AS n FROM messages WHERE head IS NULL",
    )
}

/// Archives or restores some loops; returns true if messages were moved.
fn move_something(store: &SqliteStore, history: &History<'_>, random: &mut Random) -> bool {
    let ended = |at: &usize| {
        let row = history.row(*at);
        row.status.is_ended() && row.totals.sealed_seq == row.totals.next_seq
    };
    let ended: Vec<usize> = (0..history.loops).filter(ended).collect();
    let report = match random.below(4) {
        0 => archive_cold(store),
        1 => bring_back(store),
        _ if ended.is_empty() => return false,
        _ => {
            let one = ended[random.below(ended.len() as u64) as usize];
            archive_loops(store, &history.session, &[one])
        }
    };
    report.messages > 0
}

/// Something that is seen of a history.
pub type StoreView = dyn Fn(&SqliteStore, &History<'_>) -> Vec<String>;

/// Plays one history with archiving and one without. The result of `everything` must not change when messages
/// are moved, and in the end `contexts` must return the same for both. Returns the number of times that
/// messages were moved.
pub fn play(seed: u64, everything: &StoreView, contexts: &StoreView) -> u32 {
    let [mine, twin] = [(); 2].map(|()| SqliteStore::in_memory().unwrap());
    let mut mine_history = History::new(&mine, "s");
    let mut twin_history = History::new(&twin, "s");
    let [mut random, mut again, mut moves] = [seed, seed, !seed].map(Random::new);
    let mut moved = 0;
    for step in 0..16 + seed % 24 {
        mine_history.step(&mut random);
        twin_history.step(&mut again);
        if moves.one_in(6) {
            let at = moves.below(mine_history.loops as u64) as usize;
            mine_history.end_loop(at);
            twin_history.end_loop(at);
        }
        if !moves.one_in(4) {
            continue;
        }
        let before = everything(&mine, &mine_history);
        if move_something(&mine, &mine_history, &mut moves) {
            moved += 1;
            let when = format!("seed {seed}, step {step}");
            same(&before, &everything(&mine, &mine_history), &when);
            assert_whole(&mine);
        }
    }
    let when = format!("seed {seed}, beside its twin");
    let seen = contexts(&twin, &twin_history);
    same(&seen, &contexts(&mine, &mine_history), &when);
    assert_whole(&mine);
    moved
}

/// Compares two results of a view.
pub fn same(before: &[String], after: &[String], when: &str) {
    for (at, (before, after)) in before.iter().zip(after).enumerate() {
        let pairs = before.bytes().zip(after.bytes());
        let equal = pairs.take_while(|(a, b)| a == b).count();
        let part = |text: &str| {
            let from = text.floor_char_boundary(equal.saturating_sub(200));
            let to = text.ceil_char_boundary(equal + 200);
            text[from..to].to_owned()
        };
        assert!(
            before == after,
            "{when}, piece {at}:\n…{}…\nis now\n…{}…",
            part(before),
            part(after)
        );
    }
    assert_eq!(before.len(), after.len(), "{when}");
}
