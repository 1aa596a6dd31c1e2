//! `verify` reports tampering with a store, and reports nothing otherwise.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use loopstore::context::AsOf;
use loopstore::model::{AgentMessage, Content, Json};
use loopstore::search::{SearchQuery, search};
use loopstore::{
    BuildOptions, CompactRequest, CompactTrigger, OpenError, PinRef, PinRequest, SessionId,
    SqliteStore, build_context_from_session, compact_session_loops, pin, pins, unpin,
};
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_admin::salvage::salvage;
use loopstore_export::export;
use loopstore_verify::{Problem, ProblemKind as Kind, VerifyReport, verify};

use crate::support::amount::{amount, from_variable, is_long};
use crate::support::histories::{History, Random, answer, loop_id, open, result, user};
use crate::support::keyed;

#[test]
fn random_histories_verify_clean() {
    let mut committed = 0;
    for seed in 1..100 {
        let store = SqliteStore::in_memory().unwrap();
        let mut random = Random::new(seed);
        let mut history = History::new(&store, "s");
        for step in 0..random.below(40) + 3 {
            history.step(&mut random);
            if step % 8 == 0 {
                let report = verify(&store).unwrap();
                assert!(report.ok, "seed {seed} step {step}: {:#?}", report.problems);
            }
        }
        let report = verify(&store).unwrap();
        assert!(report.ok, "seed {seed}: {:#?}", report.problems);
        committed += history.committed;
    }
    assert!(committed > 50, "{committed} runs: the test tests nothing");
}

/// A file with two sessions: forks, a late result, a result of a call in the loop before, images, notes, blocks of two
/// runs, an undo and a redo.
struct SampleDatabase {
    folder: tempfile::TempDir,
    file: PathBuf,
}

const LONG: &str = "a sentence that says enough to stand apart from the rest of its message, ";

fn long(name: &str) -> String {
    format!("{name}: {}", LONG.repeat(4))
}

impl SampleDatabase {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("whole.db");
        let store = open(&file);
        for session in ["s", "t"] {
            record(&store, session);
        }
        record_pinned(&store, "p");
        let report = verify(&store).unwrap();
        assert!(report.ok, "{:#?}", report.problems);
        drop(store);
        // Without unused pages, which could contain texts that nothing reads.
        let connection = keyed::raw(&file).unwrap();
        connection.execute_batch("VACUUM").unwrap();
        Self { folder, file }
    }

    /// Copies the file.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        std::fs::copy(&self.file, &copy).unwrap();
        copy
    }

    /// Runs `sql` on an unguarded copy, and verifies the copy.
    fn after(&self, sql: &str) -> VerifyReport {
        let copy = self.copy("damaged.db");
        tamper(&copy, sql);
        verify(&open(&copy)).unwrap()
    }
}

fn record(store: &SqliteStore, session: &str) {
    let mut history = History::new(store, session);
    for turn in 0..6 {
        let call = format!("{session}-{turn}");
        let note = AgentMessage::extension("system", Json::string("be brief"));
        let mut messages = vec![
            user(&long("please"), turn),
            note,
            answer(&long("working"), &[&call], turn),
        ];
        let output = vec![
            Content::text("line\n".repeat(30)),
            Content::image("aGVsbG8=", "image/png"),
        ];
        // The call of turn 1 is answered in turn 2, that of turn 5 in the next loop.
        match turn {
            1 | 5 => {}
            2 => {
                let late = format!("{session}-1");
                messages.push(result(&call, output.clone(), turn));
                messages.push(result(&late, output, turn));
            }
            _ => messages.push(result(&call, output, turn)),
        }
        history.append(0, messages);
    }
    assert_eq!(history.compact(0, (1, 1), false)["outcome"], "committed");
    history.start_loop(Some(0), None);
    let call = format!("{session}-5");
    for turn in 0..5 {
        let mut messages = vec![user(&long("next"), turn)];
        if turn == 0 {
            messages.push(result(&call, vec![Content::text("late")], turn));
        }
        messages.push(answer(&long("done"), &[], turn));
        history.append(1, messages);
    }
    assert_eq!(history.compact(1, (1, 2), false)["outcome"], "committed");
    assert!(history.flip(1, false) && history.flip(1, true));
    let recorded = BuildOptions {
        record: true,
        ..BuildOptions::default()
    };
    build_context_from_session(store, &history.session, &recorded).unwrap();
    history.start_loop(Some(0), Some(2));
    history.append(2, vec![user(&long("a fork"), 0), answer("yes", &[], 0)]);
}

/// Records a session with pins, one of them removed, a quote in a block and two in a rollup.
fn record_pinned(store: &SqliteStore, session: &str) {
    let mut history = History::new(store, session);
    for at in 0..5 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        for turn in 0..4 {
            let name = format!("{at} {turn}");
            let messages = vec![
                user(&long(&name), turn),
                answer(&long("working"), &[], turn),
            ];
            history.append(at, messages);
        }
        if [0, 1, 3].contains(&at) {
            assert!(history.pin(at, PinRef::message(loop_id(at).as_str(), 1, 2)));
        }
    }
    let of = PinRef::message(loop_id(4).as_str(), 3, 6);
    assert!(history.pin(4, of.clone()));
    let leaf = Some(loop_id(4));
    unpin(store, &history.session, &PinRequest { of, leaf }).unwrap();
    assert_eq!(history.compact(4, (0, 1), false)["outcome"], "committed");
    let quotes = "SELECT count(*) AS n FROM block_messages WHERE quotes IS NOT NULL";
    assert_eq!(
        store.query_with(quotes, &[]).unwrap().records()[0].number("n"),
        Some(3)
    );
}

/// Runs `sql` without triggers and checks.
fn tamper(file: &Path, sql: &str) {
    let connection = keyed::raw(file).unwrap();
    connection
        .execute_batch(
            "PRAGMA synchronous = off; PRAGMA foreign_keys = off;
             PRAGMA ignore_check_constraints = on;",
        )
        .unwrap();
    let triggers: Vec<(String, String)> = connection
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let drops: String = triggers
        .iter()
        .map(|(name, _)| format!("DROP TRIGGER {name};"))
        .collect();
    let makes: String = triggers.iter().map(|(_, sql)| format!("{sql};")).collect();
    connection
        .execute_batch(&format!("BEGIN; {drops} {sql}; {makes} COMMIT;"))
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let changed = connection.total_changes() > 0 || sql.starts_with("DROP");
    assert!(changed, "{sql} changes nothing");
}

fn has(report: &VerifyReport, kind: Kind, place: &str) -> bool {
    let fits = |problem: &Problem| problem.kind == kind && problem.place == place;
    report.problems.iter().any(fits)
}

/// Each damage, with the kind and the place of the problem that must be found.
#[rustfmt::skip]
const DAMAGES: &[(&str, Kind, &str)] = &[
    // Loop 1 of session s has key 1; a message's id is (loop << 32) | sequence.
    ("UPDATE messages SET body = replace(body, 'sentence', 'sentance') WHERE id = (1 << 32) | 0", Kind::Digest, "session s, loop loop-0, message 0"),
    ("UPDATE messages SET head = replace(head, 'turnIndex', 'turnindex') WHERE id = (1 << 32) | 2", Kind::Digest, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET salt = randomblob(16) WHERE id = (1 << 32) | 2", Kind::Digest, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET salt = NULL WHERE id = (1 << 32) | 2", Kind::Digest, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET digest = randomblob(32) WHERE id = (1 << 32) | 2", Kind::Chain, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET chain = randomblob(32) WHERE id = (1 << 32) | 2", Kind::Chain, "session s, loop loop-0, message 2"),
    ("UPDATE loops SET chain = randomblob(32) WHERE key = 1", Kind::Chain, "session s, loop loop-0"),
    ("UPDATE messages SET author = 2 WHERE id = (1 << 32) | 0", Kind::Count, "session s, loop loop-0, message 0"),
    ("UPDATE messages SET role = 0 WHERE id = (1 << 32) | 2", Kind::Digest, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET salt = NULL, head = NULL, body = NULL WHERE id = (1 << 32) | 2", Kind::Receipt, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET head = CAST(x'7bff7d' AS TEXT) WHERE id = (1 << 32) | 2", Kind::Unreadable, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET role = 9 WHERE id = (1 << 32) | 2", Kind::Unreadable, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET digest = x'00' WHERE id = (1 << 32) | 2", Kind::Unreadable, "session s, loop loop-0, message 2"),
    ("DELETE FROM messages WHERE id = (1 << 32) | 2", Kind::Sequence, "session s, loop loop-0, message 3"),
    ("DELETE FROM messages WHERE id >> 32 = 1 AND id & 4294967295 >= 20", Kind::Total, "session s, loop loop-0"),
    ("UPDATE messages SET id = (1 << 32) | 900 WHERE id = (1 << 32) | 3", Kind::Sequence, "session s, loop loop-0, message 900"),
    ("UPDATE messages SET id = (77 << 32) | 3 WHERE id = (1 << 32) | 3", Kind::Stray, "messages, row 330712481795"),
    ("UPDATE messages SET tokens = tokens + 1 WHERE id = (1 << 32) | 2", Kind::Count, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET bytes = bytes + 1 WHERE id = (1 << 32) | 2", Kind::Count, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET lines = 1 WHERE id = (1 << 32) | 3", Kind::Count, "session s, loop loop-0, message 3"),
    ("UPDATE messages SET created_at = 5 WHERE id = (1 << 32) | 2", Kind::Chain, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET turn = 3 WHERE id = (1 << 32) | 2", Kind::Turn, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET tick = 99999 WHERE id = (1 << 32) | 2", Kind::Tick, "session s, loop loop-0, message 2"),
    ("UPDATE messages SET tick = 1 WHERE id = (1 << 32) | 9", Kind::Tick, "session s, loop loop-0, message 9"),
    ("UPDATE turns SET tokens = tokens + 1 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET prompts = prompts + 1 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET messages = messages + 1 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET bytes = bytes - 1 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET first_seq = first_seq + 1 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET turn_index = 8 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET answered = 0 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET tick = tick + 1 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET ended_at = 3 WHERE id = (1 << 32) | 3", Kind::Turn, "session s, loop loop-0, turn 3"),
    ("UPDATE turns SET answers = NULL WHERE id = (1 << 32) | 2", Kind::Turn, "session s, loop loop-0, turn 2"),
    ("UPDATE turns SET answers = '[[1,0]]' WHERE id = (1 << 32) | 2", Kind::Turn, "session s, loop loop-0, turn 2"),
    ("UPDATE turns SET answers = NULL WHERE id = (2 << 32) | 0", Kind::Turn, "session s, loop loop-1, turn 0"),
    ("UPDATE turns SET answers = '[[1,3]]' WHERE id = (2 << 32) | 0", Kind::Turn, "session s, loop loop-1, turn 0"),
    ("UPDATE turns SET answers = 'x' WHERE id = (1 << 32) | 2", Kind::Unreadable, "session s, loop loop-0, turn 2"),
    ("DELETE FROM turns WHERE id = (1 << 32) | 3", Kind::Sequence, "session s, loop loop-0, turn 3"),
    ("INSERT INTO turns (id, first_seq, messages, prompts, tokens, bytes, answered, tick) VALUES ((1 << 32) | 6, 30, 1, 1, 1, 1, 1, 1)", Kind::Sequence, "session s, loop loop-0, turn 6"),
    ("UPDATE loops SET tokens = tokens + 1 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET bytes = bytes + 1 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET messages = messages + 1 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET turns = turns + 1 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET complete = complete - 1 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET next_seq = next_seq + 1 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET sealed_seq = 3 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET sealed_seq = 999 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET system_tokens = system_tokens + 1 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET generation = 9 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET last_turn_index = 9 WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET open_calls = NULL WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET status = 'completed' WHERE key = 1", Kind::Total, "session s, loop loop-0"),
    ("UPDATE loops SET open_calls = '[' WHERE key = 1", Kind::Unreadable, "session s, loop with key 1"),
    ("UPDATE loops SET loop_id = 'other' WHERE key = 1", Kind::Parent, "session s, loop other"),
    ("UPDATE loops SET meta = '{' WHERE key = 1", Kind::Unreadable, "session s, loop loop-0"),
    ("UPDATE loops SET history = '{' WHERE key = 1", Kind::Unreadable, "session s, loop loop-0"),
    ("UPDATE loops SET tick = 1000 WHERE key = 3", Kind::Tick, "session s, loop loop-2"),
    ("UPDATE loops SET tick = 1 WHERE key = 3", Kind::Tick, "session s, loop loop-2"),
    ("UPDATE loops SET parent = 4 WHERE key = 2", Kind::Parent, "session s, loop loop-1"),
    ("UPDATE loops SET parent = 3 WHERE key = 2", Kind::Parent, "session s, loop loop-1"),
    ("UPDATE loops SET parent = NULL WHERE key = 2", Kind::Parent, "session s, loop loop-1"),
    ("UPDATE loops SET parent_turn = 6 WHERE key = 2", Kind::Parent, "session s, loop loop-1"),
    ("UPDATE loops SET parent = 99 WHERE key = 2", Kind::Sqlite, "database"),
    ("DELETE FROM loops WHERE key = 1", Kind::Stray, "messages, row 4294967296"),
    ("UPDATE sessions SET current_loop = 5 WHERE key = 1", Kind::Session, "session s"),
    ("UPDATE sessions SET current_loop = NULL WHERE key = 1", Kind::Session, "session s"),
    ("UPDATE sessions SET session_id = 'other' WHERE key = 1", Kind::Session, "session other"),
    ("UPDATE sessions SET session_id = '' WHERE key = 1", Kind::Unreadable, "session with key 1"),
    ("UPDATE sessions SET meta = '[' WHERE key = 1", Kind::Unreadable, "session s"),
    ("UPDATE sessions SET tick = 3 WHERE key = 1", Kind::Tick, "session s, loop loop-1"),
    ("DELETE FROM sessions WHERE key = 1", Kind::Sqlite, "database"),
    ("UPDATE blobs SET data = x'00'", Kind::Blob, "blob 1"),
    ("UPDATE blobs SET bytes = 9", Kind::Blob, "blob 1"),
    ("UPDATE blobs SET sha256 = randomblob(32)", Kind::Blob, "session s, loop loop-0, message 3"),
    ("DELETE FROM blobs", Kind::Blob, "session s, loop loop-0, message 3"),
    ("DELETE FROM blob_refs WHERE owner = (1 << 32) | 3", Kind::Blob, "session s, loop loop-0, message 3"),
    ("UPDATE blob_refs SET owner = 7 WHERE owner = (1 << 32) | 3", Kind::Stray, "blob_refs, row 7"),
    ("UPDATE runs SET trigger = 'manual' WHERE key = 1", Kind::Digest, "session s, run RUN1"),
    ("UPDATE runs SET digest = randomblob(32) WHERE key = 1", Kind::Digest, "session s, run RUN1"),
    ("UPDATE runs SET outcome = 'failed' WHERE key = 1", Kind::Run, "session s, run RUN1"),
    ("UPDATE runs SET outcome = 'odd' WHERE key = 1", Kind::Unreadable, "session s, run with key 1"),
    ("UPDATE runs SET edits = x'00' WHERE key = 1", Kind::Run, "session s, run RUN1"),
    ("UPDATE runs SET turns = 99 WHERE key = 1", Kind::Run, "session s, run RUN1"),
    ("UPDATE runs SET loop = 4 WHERE key = 1", Kind::Run, "session s, run RUN1"),
    ("UPDATE runs SET tick = 1 WHERE key = 1", Kind::Tick, "session s, run RUN1"),
    ("UPDATE runs SET tick = 5 WHERE key = 1", Kind::Tick, "session s, loop loop-0, block 1"),
    ("UPDATE runs SET config = 'no' WHERE key = 1", Kind::Unreadable, "session s, run RUN1"),
    ("DELETE FROM runs WHERE key = 1", Kind::Unreadable, "session s, loop loop-0, block 1"),
    ("UPDATE flips SET reason = 'because' WHERE key = 1", Kind::Digest, "session s, flip 1"),
    ("UPDATE flips SET kind = 'redo' WHERE key = 1", Kind::Digest, "session s, flip 1"),
    ("UPDATE flips SET run = 3 WHERE key = 1", Kind::Run, "session s, flip 1"),
    ("UPDATE flips SET tick = 1 WHERE key = 1", Kind::Tick, "session s, flip 1"),
    // Session p has pins 1 to 5, the last of which removes the fourth; there are quotes in the rollup on loop-1 and in
    // the block on loop-3.
    ("UPDATE pins SET seq = seq + 1 WHERE key = 1", Kind::Digest, "session p, pin 1"),
    ("UPDATE pins SET seq = 4294967295 WHERE key = 1", Kind::Digest, "session p, pin 1"),
    ("UPDATE pins SET kind = 'unpin' WHERE key = 1", Kind::Digest, "session p, pin 1"),
    ("UPDATE pins SET kind = 'pin' WHERE key = 5", Kind::Digest, "session p, pin 5"),
    ("UPDATE pins SET kind = 'odd' WHERE key = 1", Kind::Digest, "session p, pin 1"),
    ("UPDATE pins SET at = '' WHERE key = 1", Kind::Digest, "session p, pin 1"),
    ("UPDATE pins SET digest = randomblob(32) WHERE key = 1", Kind::Audit, "session p, pin 1"),
    ("UPDATE pins SET digest = x'00' WHERE key = 1", Kind::Unreadable, "session p, pin 1"),
    ("UPDATE pins SET message_loop = 1 WHERE key = 1", Kind::Run, "session p, pin 1"),
    ("UPDATE pins SET message_loop = 99 WHERE key = 1", Kind::Unreadable, "session p, pin 1"),
    ("UPDATE pins SET loop = 1 WHERE key = 1", Kind::Run, "session p, pin 1"),
    ("UPDATE pins SET turns = 99 WHERE key = 1", Kind::Run, "session p, pin 1"),
    ("UPDATE pins SET tick = 1 WHERE key = 1", Kind::Tick, "session p, pin 1"),
    ("UPDATE pins SET session = 1 WHERE key = 1", Kind::Run, "session s, pin 1"),
    ("UPDATE pins SET session = 99 WHERE key = 1", Kind::Sqlite, "database"),
    ("DELETE FROM pins WHERE key = 1", Kind::Audit, "session p"),
    ("DELETE FROM pins WHERE key = 5", Kind::Audit, "session p"),
    ("INSERT INTO pins SELECT 9, session, kind, message_loop, seq + 2, loop, turns, tick, at, digest FROM pins WHERE key = 1", Kind::Digest, "session p, pin 9"),
    ("INSERT INTO pins SELECT 9, session, kind, message_loop, seq, loop, turns, tick, at, digest FROM pins WHERE key = 1", Kind::Audit, "session p, pin 9"),
    ("UPDATE block_messages SET quotes = NULL WHERE quotes = (SELECT key FROM loops WHERE session = 3 AND loop_id = 'loop-3')", Kind::Block, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET quotes = 1 WHERE quotes = (SELECT key FROM loops WHERE session = 3 AND loop_id = 'loop-3')", Kind::Block, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET quotes = 1 WHERE quotes = (SELECT key FROM loops WHERE session = 3 AND loop_id = 'loop-0')", Kind::Coverage, "session p, loop loop-1, block 1"),
    ("UPDATE block_messages SET quotes = 99 WHERE quotes IS NOT NULL", Kind::Unreadable, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET replaces = replaces + 1 WHERE quotes IS NOT NULL", Kind::Block, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET replaces = replaces + 1 WHERE quotes IS NOT NULL", Kind::Coverage, "session p, loop loop-1, block 1"),
    ("UPDATE block_messages SET replaces = 4294967295 WHERE quotes IS NOT NULL", Kind::Unreadable, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET replaces = -1 WHERE quotes IS NOT NULL", Kind::Unreadable, "session p, loop loop-3, block 1"),
    ("UPDATE block_messages SET replaces = NULL WHERE quotes IS NOT NULL", Kind::Digest, "session p, loop loop-3, block 1"),
    ("UPDATE block_messages SET tokens = tokens + 1 WHERE quotes IS NOT NULL", Kind::Block, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET digest = randomblob(32) WHERE quotes IS NOT NULL", Kind::Block, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET head = '{\"role\":\"user\",\"content\":\"ignore all\"}' WHERE quotes IS NOT NULL", Kind::Block, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE block_messages SET section = 2 WHERE quotes IS NOT NULL", Kind::Block, "session p, loop loop-3, block 1, message 4"),
    ("DELETE FROM block_messages WHERE quotes IS NOT NULL", Kind::Digest, "session p, loop loop-3, block 1"),
    ("UPDATE coverage SET disposition = 'rolled_up' WHERE disposition = 'kept' AND loop <> (SELECT loop FROM blocks WHERE key = coverage.id >> 32)", Kind::Coverage, "session p, loop loop-1, block 1"),
    ("UPDATE coverage SET disposition = 'summarised' WHERE disposition = 'kept' AND loop = (SELECT key FROM loops WHERE session = 3 AND loop_id = 'loop-3')", Kind::Coverage, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE messages SET body = replace(body, 'sentence', 'sentance') WHERE id = ((SELECT key FROM loops WHERE session = 3 AND loop_id = 'loop-3') << 32) | 2", Kind::Digest, "session p, loop loop-3, message 2"),
    ("DELETE FROM messages WHERE id = ((SELECT key FROM loops WHERE session = 3 AND loop_id = 'loop-3') << 32) | 2", Kind::Unreadable, "session p, loop loop-3, block 1, message 4"),
    ("UPDATE blocks SET strategy = 'other' WHERE key = 1", Kind::Digest, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET compacted_start = 2 WHERE key = 1", Kind::Block, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET recent_end = 9 WHERE key = 1", Kind::Block, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET recent_end = 4294967295 WHERE key = 1", Kind::Block, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET through = through - 1 WHERE key = 1", Kind::Coverage, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET through = 999 WHERE key = 1", Kind::Block, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET tokens_block = 1 WHERE key = 1", Kind::Count, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET tokens_covered = 1 WHERE key = 1", Kind::Count, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET generation = 7 WHERE key = 1", Kind::Block, "session s, loop loop-0, block 7"),
    ("UPDATE blocks SET kind = 'earlier' WHERE key = 1", Kind::Block, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET run = 3 WHERE key = 1", Kind::Block, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET extends = 2 WHERE key = 1", Kind::Block, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET kind = 'odd' WHERE key = 1", Kind::Unreadable, "session s, loop loop-0, block with key 1"),
    ("UPDATE blocks SET kind = 'rollup' WHERE loop = 2", Kind::Coverage, "session s, loop loop-1, block 1"),
    ("DELETE FROM blocks WHERE key = 1", Kind::Stray, "coverage, row 4294967296"),
    ("UPDATE block_messages SET head = replace(head, 'Summary', 'Sumnary') WHERE id >> 32 = 1", Kind::Digest, "session s, loop loop-0, block 1, message 0"),
    ("UPDATE block_messages SET tokens = 1 WHERE id >> 32 = 1", Kind::Count, "session s, loop loop-0, block 1, message 0"),
    ("UPDATE block_messages SET section = 3 - section WHERE id >> 32 = 1", Kind::Block, "session s, loop loop-0, block 1, message 0"),
    ("UPDATE block_messages SET role = NULL WHERE id = 1 << 32", Kind::Stray, "block_messages, row 4294967296"),
    ("DELETE FROM block_messages WHERE id = 1 << 32", Kind::Digest, "session s, loop loop-0, block 1"),
    ("UPDATE coverage SET disposition = 'kept' WHERE disposition = 'summarised'", Kind::Coverage, "session s, loop loop-0, block 1"),
    ("UPDATE coverage SET to_seq = to_seq - 1 WHERE id = 1 << 32", Kind::Coverage, "session s, loop loop-0, block 1"),
    ("UPDATE coverage SET to_turn = to_turn + 1 WHERE id = 1 << 32", Kind::Coverage, "session s, loop loop-0, block 1"),
    ("UPDATE coverage SET loop = 2 WHERE id = 1 << 32", Kind::Coverage, "session s, loop loop-0, block 1"),
    ("DELETE FROM coverage WHERE id = 1 << 32", Kind::Coverage, "session s, loop loop-0, block 1"),
    ("UPDATE blocks SET compacted_end = 1, recent_start = 2 WHERE key = 1", Kind::Pairs, "session s, loop loop-0, block 1"),
    ("INSERT INTO maintenance (session, kind, opened_at, detail) VALUES (1, 'redact', '2026-01-01T00:00:00Z', '')", Kind::Receipt, "receipt 1"),
    ("UPDATE loops SET parent_loop_id = NULL WHERE key = 2", Kind::Parent, "session s, loop loop-1"),
    ("DROP INDEX runs_loop", Kind::Schema, "database"),
    ("DROP TABLE flips; CREATE TABLE flips (key INTEGER PRIMARY KEY, session, run, tick, kind, loop, turns, at, reason, digest)", Kind::Schema, "database"),
];

#[test]
fn each_damage_is_found_where_it_is() {
    let stage = SampleDatabase::new();
    let connection = keyed::raw(&stage.file).unwrap();
    let run: String = connection
        .query_row("SELECT run_id FROM runs WHERE key = 1", [], |row| {
            row.get(0)
        })
        .unwrap();
    drop(connection);
    let mut missed = Vec::new();
    for (sql, kind, place) in DAMAGES {
        let report = stage.after(sql);
        let place = place.replace("RUN1", &run);
        assert_eq!(report.ok, report.problems.is_empty());
        if !has(&report, *kind, &place) {
            missed.push(format!(
                "{sql}\n  gives no {kind:?} at {place}: {:#?}",
                report.problems
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Rows of the two sessions are lost, never whole sessions, and the new database is valid.
#[test]
fn each_damage_is_salvaged_around() {
    let stage = SampleDatabase::new();
    let to = stage.folder.path().join("salvaged.db");
    // Each takes a while; `LOOPSTORE_FLIPS` tries them all.
    let is_all = is_long() || from_variable("LOOPSTORE_FLIPS").is_some();
    for (sql, ..) in DAMAGES.iter().step_by(if is_all { 1 } else { 6 }) {
        let copy = stage.copy("damaged.db");
        tamper(&copy, sql);
        let before = std::fs::read(&copy).unwrap();
        let report = salvage(&copy, keyed::key().as_ref(), &to, true)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let found = verify(&open(&to)).unwrap();
        assert!(found.ok, "{sql}: {:#?}", found.problems);
        assert_eq!(std::fs::read(&copy).unwrap(), before, "{sql}");
        assert_eq!(report.kept, found.checked, "{sql}");
        assert!(report.kept.messages >= 20, "{sql}: {report:#?}");
    }
}

#[test]
fn damage_of_one_session_says_nothing_of_another() {
    let stage = SampleDatabase::new();
    for (sql, _, _) in DAMAGES.iter().filter(|(sql, ..)| sql.contains("(1 << 32)")) {
        for problem in stage.after(sql).problems {
            let is_strange = problem.place.contains("session t");
            assert!(!is_strange, "{sql}: {problem:?}");
        }
    }
}

#[test]
fn a_message_that_cannot_be_read_does_not_hide_the_next_damage() {
    let stage = SampleDatabase::new();
    let report = stage.after(
        "UPDATE messages SET role = 9 WHERE id IN ((1 << 32) | 2, (1 << 32) | 4);
         UPDATE messages SET body = 'x' WHERE id = (1 << 32) | 6;
         UPDATE loops SET open_calls = '[' WHERE key = 2;
         UPDATE turns SET tokens = -1 WHERE id = (3 << 32) | 0;",
    );
    for seq in [2, 4] {
        let place = format!("session s, loop loop-0, message {seq}");
        assert!(has(&report, Kind::Unreadable, &place), "{report:#?}");
    }
    assert!(has(
        &report,
        Kind::Digest,
        "session s, loop loop-0, message 6"
    ));
    assert!(has(&report, Kind::Unreadable, "session s, loop with key 2"));
    assert!(has(
        &report,
        Kind::Unreadable,
        "session s, loop loop-2, turn 0"
    ));
}

#[test]
fn a_redacted_message_with_its_receipt_is_whole() {
    let stage = SampleDatabase::new();
    let copy = stage.copy("redacted.db");
    let session = SessionId::new("s").unwrap();
    let store = open(&copy);
    loopstore::extend::write(&store, |write| {
        let key = write.session(&session)?.unwrap().key;
        let last = write.loops(key)?.pop().unwrap().core.key;
        let secret = user("git clone https://me:hunter2hunter2@example.org/x", 9);
        let counter = loopstore::HeuristicTokenCounter;
        loopstore::extend::append::append(write, last, vec![secret.into()], &counter)
    })
    .unwrap();
    redact_session(&store, &RedactRequest::new(session)).unwrap();
    drop(store);
    tamper(
        &copy,
        "UPDATE messages SET salt = NULL, head = NULL, body = NULL
         WHERE id IN ((1 << 32) | 2, (1 << 32) | 6, (2 << 32) | 1);
         DELETE FROM blob_refs WHERE owner IN ((1 << 32) | 2, (1 << 32) | 6, (2 << 32) | 1);",
    );
    let report = verify(&open(&copy)).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    assert_eq!(report.checked.receipts, 1);
}

#[test]
fn a_build_that_checks_refuses_a_message_that_was_changed() {
    let stage = SampleDatabase::new();
    let copy = stage.copy("changed.db");
    let build = |check: bool| {
        let options = BuildOptions {
            leaf: Some(loop_id(2)),
            check,
            ..BuildOptions::default()
        };
        let session = SessionId::new("s").unwrap();
        build_context_from_session(&open(&copy), &session, &options)
    };
    let whole = serde_json::to_string(&build(true).unwrap().messages).unwrap();
    tamper(
        &copy,
        "UPDATE messages SET body = replace(body, 'sentence', 'sentance') WHERE id = (1 << 32) | 2",
    );
    // Reading alone does not detect it.
    let changed = serde_json::to_string(&build(false).unwrap().messages).unwrap();
    assert_ne!(whole, changed);
    let refused = build(true).unwrap_err().to_string();
    assert!(
        refused.contains("message 2 of loop loop-0 is not what its digest says"),
        "{refused}"
    );
}

#[test]
fn a_build_that_checks_refuses_a_quote_of_a_message_that_was_changed() {
    let stage = SampleDatabase::new();
    let loop_of =
        |id: &str| format!("(SELECT key FROM loops WHERE session = 3 AND loop_id = '{id}')");
    for (damage, of) in [
        (
            format!(
                "UPDATE messages SET body = replace(body, 'sentence', 'sentance') WHERE id = ({} << 32) | 2",
                loop_of("loop-0")
            ),
            "message 2 of loop loop-0",
        ),
        (
            format!(
                "UPDATE block_messages SET replaces = 4 WHERE quotes = {}",
                loop_of("loop-3")
            ),
            "message 4 of loop loop-3",
        ),
    ] {
        let copy = stage.copy("quoted.db");
        let build = || {
            let options = BuildOptions {
                check: true,
                ..BuildOptions::default()
            };
            let session = SessionId::new("p").unwrap();
            build_context_from_session(&open(&copy), &session, &options)
        };
        build().unwrap();
        tamper(&copy, &damage);
        let refused = build().unwrap_err().to_string();
        let why = format!("{of} is not what its digest says");
        assert!(refused.contains(&why), "{damage}: {refused}");
    }
}

/// For any damage to pins and quotes: an answer or an error, and no panic.
#[test]
fn nothing_that_reads_pins_panics_on_damage() {
    let stage = SampleDatabase::new();
    let is_of_pins = |sql: &&str| sql.contains("pins") || sql.contains("quotes");
    let damages = DAMAGES.iter().map(|(sql, ..)| *sql);
    for sql in damages.filter(is_of_pins) {
        let copy = stage.copy("damaged.db");
        tamper(&copy, sql);
        let read = || {
            let store = open(&copy);
            let session = SessionId::new("p").unwrap();
            for at in 0..5 {
                let options = BuildOptions {
                    leaf: Some(loop_id(at)),
                    ..BuildOptions::default()
                };
                drop(build_context_from_session(&store, &session, &options));
                drop(pins(&store, &session, Some(&loop_id(at))));
            }
            drop(search(&store, &SearchQuery::new("sentence")));
            let of = PinRef::message("loop-2", 1, 2);
            drop(pin(&store, &session, &PinRequest { of, leaf: None }));
            let request = CompactRequest {
                trigger: CompactTrigger::Force,
                ..CompactRequest::default()
            };
            drop(compact_session_loops(&store, &session, &request));
            for form in ["jsonl", "phi-core", "openai"] {
                let form = form.parse().unwrap();
                drop(export(&store, &session, None, form, &mut Vec::new()));
            }
        };
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        assert!(read.is_ok(), "{sql}");
    }
}

#[test]
fn a_missing_trigger_is_a_problem() {
    let stage = SampleDatabase::new();
    let copy = stage.copy("undefended.db");
    let connection = keyed::raw(&copy).unwrap();
    connection
        .execute_batch("DROP TRIGGER messages_no_update")
        .unwrap();
    drop(connection);
    let report = verify(&open(&copy)).unwrap();
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    assert!(has(&report, Kind::Schema, "database"), "{report:#?}");
}

#[test]
fn a_thousand_problems_are_listed_and_the_rest_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.db");
    let store = open(&file);
    let history = History::new(&store, "s");
    history.append(0, (0..1100).map(|turn| user("hello", turn)).collect());
    drop(store);
    tamper(&file, "UPDATE messages SET digest = zeroblob(32)");
    let report = verify(&open(&file)).unwrap();
    assert_eq!(report.problems.len(), 1001);
    let last = report.problems.last().unwrap();
    assert_eq!(last.kind, Kind::More);
    assert!(last.detail.ends_with("more problems"), "{last:?}");
}

#[test]
fn the_report_is_the_json_that_scripts_rely_on() {
    let stage = SampleDatabase::new();
    let report = stage.after("UPDATE messages SET salt = zeroblob(16) WHERE id = 1 << 32");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!(json["checked"]["sessions"], 3);
    assert_eq!(json["checked"]["loops"], 11);
    assert_eq!(json["checked"]["pins"], 5);
    assert_eq!(json["problems"][0]["kind"], "digest");
    let place = "session s, loop loop-0, message 0";
    assert_eq!(json["problems"][0]["where"], place);
    assert!(json["problems"][0]["detail"].is_string());
}

#[test]
fn a_flipped_bit_in_a_text_is_always_found() {
    if keyed::leaves_out("a_flipped_bit_in_a_text_is_always_found") {
        return;
    }
    let stage = SampleDatabase::new();
    let whole = std::fs::read(&stage.file).unwrap();
    let needle = LONG.as_bytes();
    // An inner page of a tree (type 5) contains no text, but may have been a leaf before.
    let page = keyed::page_bytes();
    let is_leaf = |at: usize| whole[at / page * page] != 5;
    let places: Vec<usize> = (0..whole.len() - needle.len())
        .filter(|at| whole[*at..].starts_with(needle) && is_leaf(*at))
        .collect();
    assert!(places.len() > 50, "{}", places.len());
    let mut random = Random::new(7);
    let copy = stage.folder.path().join("flipped.db");
    for _ in 0..100 {
        let mut bytes = whole.clone();
        let place = places[random.below(places.len() as u64) as usize];
        let at = place + random.below(needle.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(&copy, bytes).unwrap();
        let report = verify(&open(&copy)).unwrap();
        assert!(!report.ok, "a bit of byte {at} was flipped");
    }
}

/// Returns all answers of the store: the current contexts of all loops, and the messages.
fn answers(store: &SqliteStore) -> Result<BTreeSet<String>, String> {
    let mut answers = BTreeSet::new();
    for session in ["s", "t"] {
        let id = SessionId::new(session).unwrap();
        for at in 0..3 {
            let leaf = loop_id(at);
            let as_of = AsOf::Turn {
                loop_id: leaf.clone(),
                turn: 0,
            };
            let now = BuildOptions {
                leaf: Some(leaf),
                ..BuildOptions::default()
            };
            let then = BuildOptions {
                as_of: Some(as_of),
                ..BuildOptions::default()
            };
            for options in [now, then] {
                let context = build_context_from_session(store, &id, &options)
                    .map_err(|error| error.to_string())?;
                let messages = serde_json::to_string(&context.messages).unwrap();
                answers.insert(format!("{session} {at} {messages} {}", context.tokens));
            }
        }
    }
    Ok(answers)
}

#[test]
fn a_bit_flipped_anywhere_is_never_a_silent_wrong_answer() {
    if keyed::leaves_out("a_bit_flipped_anywhere_is_never_a_silent_wrong_answer") {
        return;
    }
    let stage = SampleDatabase::new();
    let whole = std::fs::read(&stage.file).unwrap();
    let right = answers(&open(&stage.file)).unwrap();
    let whole_file = std::fs::read(&stage.file).unwrap();
    assert_eq!(whole.len(), whole_file.len());
    let copy = stage.folder.path().join("flipped.db");
    let flips = amount("LOOPSTORE_FLIPS", 250);
    let (mut found, mut harmless) = (0, 0);
    for seed in 0..flips {
        let mut random = Random::new(seed);
        let mut bytes = whole.clone();
        // Half of the file is empty, and a zero there is not stored content.
        let at = (0..)
            .map(|_| random.below(whole.len() as u64) as usize)
            .find(|at| whole[*at] != 0)
            .unwrap();
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(&copy, bytes).unwrap();
        let _ = std::fs::remove_file(stage.folder.path().join("flipped.db-wal"));
        let _ = std::fs::remove_file(stage.folder.path().join("flipped.db-shm"));
        let store = match keyed::open(&copy) {
            Ok(store) => store,
            Err(OpenError::Other { cause, .. }) => panic!("byte {at}: {cause}"),
            Err(_) => {
                found += 1;
                continue;
            }
        };
        let report = match verify(&store) {
            Ok(report) => report,
            Err(error) => panic!("byte {at}: {error}"),
        };
        if !report.ok {
            found += 1;
            continue;
        }
        assert_eq!(answers(&store).as_ref(), Ok(&right), "byte {at}");
        harmless += 1;
    }
    assert!(found > 50 && harmless > 0, "{found} found, {harmless} not");
}

#[test]
fn a_page_of_garbage_is_a_problem_of_sqlite_and_ends_nothing() {
    let stage = SampleDatabase::new();
    let whole = std::fs::read(&stage.file).unwrap();
    let copy = stage.folder.path().join("garbage.db");
    let size = keyed::page_bytes();
    for page in 1..whole.len() / size {
        let mut bytes = whole.clone();
        bytes[page * size..(page + 1) * size].fill(0xA7);
        std::fs::write(&copy, bytes).unwrap();
        let report = match keyed::open(&copy) {
            Ok(store) => verify(&store).unwrap(),
            Err(OpenError::Damaged { .. }) => continue,
            Err(error) => panic!("page {page}: {error}"),
        };
        assert!(
            has(&report, Kind::Sqlite, "database"),
            "page {page}: {report:#?}"
        );
    }
}

#[test]
fn a_manifest_whose_context_is_another_now_is_damage() {
    let stage = SampleDatabase::new();
    let kinds = |sql: &str| -> BTreeSet<Kind> {
        let problems = stage.after(sql).problems;
        problems.iter().map(|problem| problem.kind).collect()
    };
    let whole = [
        "UPDATE manifests SET tokens = tokens + 1",
        "UPDATE manifests SET parts = '[]'",
        "UPDATE manifests SET sha256 = zeroblob(32)",
    ];
    for sql in whole {
        assert_eq!(kinds(sql), BTreeSet::from([Kind::Digest]), "{sql}");
    }
    // The blocks that were active at that tick have changed.
    let found = kinds("DELETE FROM flips WHERE kind = 'redo'");
    assert!(found.contains(&Kind::Manifest), "{found:?}");
    assert!(kinds("UPDATE manifests SET parts = 'x'").contains(&Kind::Unreadable));
    assert!(kinds("UPDATE manifests SET loop = 99").contains(&Kind::Digest));
}
