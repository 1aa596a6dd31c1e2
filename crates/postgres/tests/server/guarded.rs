//! The writes that the database itself rejects, whoever sends them.

use loopstore::extend::append::append;
use loopstore::extend::{self as store, StoreRead};
use loopstore::model::*;
use loopstore::*;
use loopstore_admin::retention::{ArchiveRequest, archive};
use loopstore_postgres::{PostgresOptions, PostgresStore, grants};
use postgres::Client;

use crate::support::histories::{History, answer, user};
use crate::support::server;

/// Returns a database with a compacted session, and a connection of its owner.
fn compacted() -> Option<(PostgresStore, Client)> {
    let server = server::server()?;
    let name = server.prepared();
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    let mut history = History::new(&store, "s");
    for turn in 0..6 {
        history.append(
            0,
            vec![
                user("please", turn),
                answer(&"words ".repeat(40), &[], turn),
            ],
        );
    }
    assert_eq!(history.compact(0, (1, 1), false)["outcome"], "committed");
    assert!(history.flip(0, false));
    Some((store, server.client(&name)))
}

#[test]
fn what_is_stored_is_not_changed_also_by_the_owner_of_the_tables() {
    let Some((store, mut client)) = compacted() else {
        return;
    };
    let first = client.query_one("SELECT loop_id FROM loops LIMIT 1", &[]);
    let first: String = first.unwrap().get(0);
    let of = PinRef::message(first.as_str(), 0, 0);
    let session = SessionId::new("s").unwrap();
    let edits = EditRequest::remove([EditTarget::Message(LoopId::of(first.as_str()), 1, 3)]);
    edit(&store, &session, &edits).unwrap();
    pin(&store, &session, &PinRequest { of, leaf: None }).unwrap();
    for sql in [
        "UPDATE messages SET head = 'x' WHERE seq = 0",
        "UPDATE messages SET body = 'x', escaped = TRUE",
        "UPDATE messages SET seq = seq + 100",
        "UPDATE messages SET salt = NULL",
        "DELETE FROM messages WHERE seq = 0",
        "DELETE FROM turns WHERE turn = 0",
        "UPDATE turns SET first_seq = first_seq + 1",
        "UPDATE loops SET sealed_seq = 0",
        "UPDATE loops SET loop_id = 'x'",
        "DELETE FROM loops",
        "UPDATE sessions SET tick = 0",
        "UPDATE sessions SET session_id = 'x'",
        "DELETE FROM sessions",
        "DELETE FROM session_names",
        "UPDATE session_names SET session = session + 1",
        "UPDATE runs SET outcome = 'failed'",
        "UPDATE runs SET edits = '\\x00' WHERE edits IS NOT NULL",
        "INSERT INTO store_meta (name, value) VALUES ('recount', '{}');
         UPDATE runs SET edits = NULL, config = '{}' WHERE edits IS NOT NULL",
        "DELETE FROM runs",
        "UPDATE flips SET kind = 'redo'",
        "UPDATE pins SET kind = 'unpin'",
        "DELETE FROM pins",
        "DELETE FROM flips",
        "UPDATE blocks SET through = 0",
        "DELETE FROM blocks",
        "UPDATE block_messages SET head = 'x'",
        "DELETE FROM block_messages",
        "UPDATE edits SET text = 'x'",
        "DELETE FROM edits",
        "TRUNCATE edits",
        "UPDATE loops SET edits = 0",
        "INSERT INTO edits SELECT session, run, ordinal + 90, loop, from_seq, to_seq, part, parts, action,
             text, escaped, tokens_before, tokens_after, bytes_before, bytes_after, messages, salt, digest
             FROM edits",
        "UPDATE coverage SET disposition = 'kept'",
        "DELETE FROM coverage",
        "UPDATE audit SET digest = ''",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "UPDATE sessions SET audit_seq = 0",
        "UPDATE sessions SET audit = ''",
        "INSERT INTO audit SELECT session, audit_seq + 9, kind, digest, was, chain FROM audit",
        // The rows of a committed run are closed.
        "INSERT INTO coverage SELECT session, block, ordinal + 90, loop, from_seq, to_seq, from_turn,
             to_turn, disposition FROM coverage",
        "INSERT INTO block_messages SELECT session, block, ordinal + 90, section, replaces, quotes, role,
             tokens, bytes, body_block, salt, digest, head, 'ignore all' FROM block_messages",
        "INSERT INTO flips SELECT session, key + 90, run, 'redo', loop, turns, tick + 90, at, reason,
             '\\x00' FROM flips",
        "UPDATE runs SET digest = NULL, outcome = 'running'",
        "TRUNCATE messages",
        "TRUNCATE sessions CASCADE",
        "UPDATE store_meta SET value = 'x' WHERE name = 'import_key'",
        "DELETE FROM store_meta",
        // A temporary table with the name of the receipts is not used.
        "CREATE TEMP TABLE maintenance (session BIGINT, closed_at TEXT);
         INSERT INTO maintenance SELECT session, NULL FROM sessions;
         DELETE FROM messages",
    ] {
        let mut transaction = client.transaction().unwrap();
        let refused = transaction.batch_execute(sql);
        let error = refused.expect_err(sql);
        let code = error.code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("23001"), "{sql}: {error:?}");
    }
    // Counts depend on the counter and may be written again.
    let mut transaction = client.transaction().unwrap();
    transaction
        .batch_execute("UPDATE messages SET tokens = 0")
        .unwrap();
    drop(transaction);
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

/// The rows are deleted while triggers are disabled, as the owner of the server can do.
#[test]
fn a_row_that_was_deleted_without_triggers_is_missed() {
    let Some((store, mut client)) = compacted() else {
        return;
    };
    let whole = loopstore_verify::verify(&store).unwrap();
    assert!(whole.ok, "{:?}", whole.problems);
    assert_eq!(whole.checked.audit, 2);
    let request = loopstore_admin::retention::EraseRequest {
        force: true,
        ..loopstore_admin::retention::EraseRequest::new(SessionId::new("gone").unwrap())
    };
    let history = History::new(&store, "gone");
    history.append(0, vec![user("please", 0)]);
    loopstore_admin::retention::erase(&store, &request).unwrap();
    let run = "DELETE FROM flips; DELETE FROM coverage; DELETE FROM block_messages;
         DELETE FROM blocks; DELETE FROM runs; UPDATE loops SET generation = 0";
    for sql in [
        "DELETE FROM flips",
        "DELETE FROM flips; DELETE FROM audit WHERE kind = 'flip'",
        run,
        &format!("{run}; DELETE FROM audit WHERE session > 0"),
        "DELETE FROM maintenance",
        "DELETE FROM maintenance; DELETE FROM audit WHERE session = 0",
        "DELETE FROM audit WHERE audit_seq = 1",
    ] {
        // The rows come back after the check.
        let kept = "CREATE SCHEMA kept; CREATE TABLE kept.audit AS TABLE audit;
             CREATE TABLE kept.flips AS TABLE flips; CREATE TABLE kept.runs AS TABLE runs;
             CREATE TABLE kept.blocks AS TABLE blocks; CREATE TABLE kept.coverage AS TABLE coverage;
             CREATE TABLE kept.block_messages AS TABLE block_messages;
             CREATE TABLE kept.maintenance AS TABLE maintenance;
             CREATE TABLE kept.loops AS TABLE loops;
             SET session_replication_role = replica;";
        client.batch_execute(&format!("{kept} {sql};")).unwrap();
        let report = loopstore_verify::verify(&store).unwrap();
        assert!(!report.ok, "{sql}");
        let back = [
            "audit",
            "runs",
            "flips",
            "blocks",
            "coverage",
            "block_messages",
            "maintenance",
        ];
        for table in back {
            let sql = format!("DELETE FROM {table}; INSERT INTO {table} TABLE kept.{table}");
            client.batch_execute(&sql).unwrap();
        }
        client
            .batch_execute(
                "UPDATE loops l SET generation = k.generation FROM kept.loops k
                 WHERE k.session = l.session AND k.key = l.key;
                 SET session_replication_role = origin; DROP SCHEMA kept CASCADE",
            )
            .unwrap();
        let report = loopstore_verify::verify(&store).unwrap();
        assert!(report.ok, "{sql}: {:?}", report.problems);
    }
}

#[test]
fn a_pack_is_not_changed_added_or_removed_without_a_receipt() {
    let Some((store, mut client)) = compacted() else {
        return;
    };
    let mut history = History::new(&store, "t");
    history.append(0, vec![user_says(0), answer("yes", &["call"], 0)]);
    history.end_loop(0);
    history.start_loop(Some(0), None);
    let request = ArchiveRequest {
        shown: true,
        ..ArchiveRequest::default()
    };
    assert_eq!(archive(&store, &request).unwrap().messages, 2);
    for sql in [
        "UPDATE packs SET content = ''",
        "UPDATE packed_heads SET head = '{}'",
        "DELETE FROM packs",
        "DELETE FROM packed_heads",
        "TRUNCATE packs",
        "INSERT INTO packs SELECT session, loop, seq + 9, last_seq, bytes, digest, content FROM packs",
        "INSERT INTO packed_heads SELECT session, loop, seq + 9, head FROM packed_heads",
        "UPDATE messages SET head = '{}' WHERE head IS NULL",
    ] {
        let error = client.batch_execute(sql).expect_err(sql);
        let code = error.code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("23001"), "{sql}: {error:?}");
    }
    let sql = "SET session_replication_role = replica;
         UPDATE packs SET content = content || '\\x00'; RESET session_replication_role";
    client.batch_execute(sql).unwrap();
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(!report.ok);
    let problem = &report.problems[0];
    assert!(
        problem.detail.contains("not what its digest says"),
        "{problem:?}"
    );
}

#[test]
fn a_role_that_may_append_and_compact_may_change_and_remove_nothing() {
    let Some((owner, mut client)) = compacted() else {
        return;
    };
    let role = format!("writer of {}", owner.place().rsplit('/').next().unwrap());
    let sql = format!(
        "CREATE ROLE \"{role}\" LOGIN PASSWORD '{}'; {}",
        server::PASSWORD,
        grants(&role)
    );
    client.batch_execute(&sql).unwrap();
    let (place, user) = (owner.place(), role.replace(' ', "%20"));
    let address = place.replace("postgres://", &format!("postgres://{user}@"));
    let address = address.replace(
        server::server().unwrap().folder.to_str().unwrap(),
        &server::server()
            .unwrap()
            .folder
            .to_str()
            .unwrap()
            .replace('/', "%2F"),
    );
    let store = PostgresStore::open(&address).unwrap();
    let mut history = History::new(&store, "own");
    for turn in 0..6 {
        let text = "words ".repeat(40);
        history.append(0, vec![user_says(turn), answer(&text, &[], turn)]);
    }
    assert_eq!(history.compact(0, (1, 1), false)["outcome"], "committed");
    assert!(history.flip(0, false) && history.flip(0, true));
    loopstore::extend::search::index(&store, &mut |_| {}).unwrap();
    let mut client = Client::connect(&address, postgres::NoTls).unwrap();
    for sql in [
        "UPDATE messages SET tokens = 0",
        "UPDATE blocks SET through = 0",
        "DELETE FROM runs",
        "DELETE FROM sessions",
        "TRUNCATE messages",
        "INSERT INTO maintenance SELECT session, (session << 23) + 1, 'erase', '', NULL, '' FROM sessions",
        "ALTER TABLE messages DISABLE TRIGGER ALL",
        "DROP TRIGGER messages_no_delete ON messages",
        "SET session_replication_role = replica",
        "UPDATE store_meta SET value = ''",
        "INSERT INTO store_meta VALUES ('recount', '')",
    ] {
        let error = client.batch_execute(sql).expect_err(sql);
        let code = error.code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("42501"), "{sql}: {error:?}");
    }
    // The role may delete and update rows that are not final; triggers reject it for final rows.
    for sql in ["DELETE FROM messages", "UPDATE runs SET error = NULL"] {
        let refused = client.batch_execute(sql).unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "23001", "{sql}");
    }
}

fn user_says(turn: u32) -> AgentMessage {
    user("please", turn)
}

#[test]
fn verify_tells_what_was_changed_behind_the_triggers() {
    let Some((store, mut client)) = compacted() else {
        return;
    };
    client
        .batch_execute(
            "SET session_replication_role = replica;
             UPDATE messages SET head = replace(head, 'please', 'pleese') WHERE seq = 0;
             DELETE FROM messages WHERE seq = 3;
             RESET session_replication_role;
             DROP TRIGGER runs_no_update ON runs;
             ALTER TABLE flips DISABLE TRIGGER flips_stay",
        )
        .unwrap();
    let report = loopstore_verify::verify(&store).unwrap();
    let problems = format!("{:?}", report.problems);
    for part in [
        "the trigger runs_no_update",
        "the trigger flips_stay",
        "message 0",
        "messages 3 to 3",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
    }
}

#[test]
fn texts_with_zeros_and_odd_json_are_kept_word_for_word_and_break_no_view() {
    let Some(server) = server::server() else {
        return;
    };
    let store = PostgresStore::open(&server.address(&server.prepared())).unwrap();
    let history = History::new(&store, "s");
    let odd = [
        "\0".repeat(100),
        format!("a\0b\u{1}c{}", "x".repeat(100)),
        format!("short\0{}", "\u{FFFF}"),
        "\u{1}0 and \u{1}1".repeat(20),
    ];
    let raw = r#"{"role":"user","content":[{"type":"text","text":"half \ud800 and \u0000"}]}"#;
    let mut messages: Vec<AgentMessage> = odd.iter().map(|text| user(text, 0)).collect();
    messages.extend(serde_json::from_str::<AgentMessage>(raw));
    let texts = |messages: &[AgentMessage]| serde_json::to_string(messages).unwrap();
    history.append(0, messages.clone());
    let context =
        build_context_from_session(&store, &history.session, &BuildOptions::default()).unwrap();
    assert_eq!(texts(&context.messages), texts(&messages));
    for view in [
        "v_messages",
        "v_turns",
        "v_usage",
        "v_tool_calls",
        "v_context",
    ] {
        let limits = loopstore::extend::sqlite::QueryLimits::default();
        store
            .query_within(&format!("SELECT * FROM {view}"), limits)
            .unwrap();
    }
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

#[test]
fn sessions_are_written_side_by_side_and_one_session_in_turn() {
    let Some(server) = server::server() else {
        return;
    };
    let options = PostgresOptions::new().connections(16);
    let store = PostgresStore::open_with(&server.address(&server.prepared()), options).unwrap();
    let loops: Vec<_> = (0..2)
        .map(|number| History::new(&store, &format!("s{number}")).row(0).key)
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let (store, loop_key) = (&store, loops[thread % 2]);
            scope.spawn(move || {
                for number in 0..5 {
                    let turn = (thread * 100 + number) as u32;
                    store::write(store, |write| {
                        let new = vec![user("hello", turn).into(), answer("yes", &[], turn).into()];
                        append(write, loop_key, new, &HeuristicTokenCounter)
                    })
                    .unwrap();
                }
            });
        }
    });
    // A write of one session does not wait for a write of another.
    store::write(&store, |write| {
        write.loop_by_key(loops[0])?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                store::write(&store, |write| {
                    write.loop_by_key(loops[1]).map(|row| row.totals)
                })
            });
            let totals = other.join().unwrap().unwrap();
            assert_eq!((totals.next_seq, totals.turns), (40, 20));
        });
        Ok(())
    })
    .unwrap();
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

#[test]
fn a_key_tells_its_session_and_sessions_come_in_the_order_of_their_birth() {
    let Some(store) = server::store() else { return };
    let mut keys = Vec::new();
    for number in 0..20 {
        let row = History::new(&store, &format!("s{number}")).row(0);
        keys.push(row.session);
    }
    assert!(keys.is_sorted());
    let found = store::read(&store, |read: &dyn StoreRead| read.sessions()).unwrap();
    assert_eq!(found.len(), 20);
}
