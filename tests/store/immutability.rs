//! The changes that the database itself rejects, from any program: here the plain `sqlite3` program, which has foreign
//! keys off.

use loopstore_testing::refusals::is_of_a_trigger;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::histories::{History, answer, result, user};
use crate::support::needs;
use crate::support::plain::open;
use loopstore::model::Content;
use loopstore::{
    BuildOptions, EditRequest, EditTarget, PinRef, PinRequest, build_context_from_session, edit,
    pin,
};

/// Runs `sql` in the `sqlite3` program. `Err` contains its error message.
fn sqlite3(file: &Path, sql: &str) -> Result<String, String> {
    let output = Command::new("sqlite3")
        .arg("-bail")
        .arg(file)
        .arg(sql)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() && output.stderr.is_empty() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// Creates two sessions, each with blocks, blobs, flips and a turn in flight, and a closed receipt.
fn stage() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = open(&file);
    for session in ["s", "t"] {
        let mut history = History::new(&store, session);
        for turn in 0..5 {
            let call = format!("call-{turn}");
            let output = vec![
                Content::text("line\n".repeat(40)),
                Content::image("aGVsbG8=", "image/png"),
            ];
            history.append(
                0,
                vec![
                    user("please", turn),
                    answer(&"words ".repeat(30), &[&call], turn),
                    result(&call, output, turn),
                ],
            );
        }
        assert_eq!(history.compact(0, (1, 2), false)["outcome"], "committed");
        assert!(history.flip(0, false));
        let edits = EditRequest::clear([EditTarget::Call("call-3".into())]);
        edit(&store, &history.session, &edits).unwrap();
        let of = PinRef::turn("loop-0", 1);
        pin(&store, &history.session, &PinRequest { of, leaf: None }).unwrap();
        let recorded = BuildOptions {
            record: true,
            ..BuildOptions::default()
        };
        build_context_from_session(&store, &history.session, &recorded).unwrap();
        let image = vec![Content::image("aGVsbG8=", "image/png")];
        let messages = vec![
            user("and now", 5),
            answer("working", &["open", "done"], 5),
            result("done", image, 5),
        ];
        history.append(0, messages);
    }
    drop(store);
    sqlite3(
        &file,
        "INSERT INTO maintenance (session, kind, opened_at, detail)
         VALUES (9, 'prune', 'a', 'd'), (1, 'redact', 'a', 'd'), (2, 'redact', 'a', 'd');
         INSERT INTO redactions (owner, receipt, salt, digest)
         VALUES ((1 << 32) | 1, 1, x'01', x'02'), (-(1 << 32), 1, x'01', x'02');
         UPDATE maintenance SET closed_at = 'b', detail = 'done';
         INSERT INTO audit (session, audit_seq, kind, digest, chain)
         SELECT key, audit_seq + 1, 'import', x'07', x'08' FROM sessions;
         INSERT INTO imports (session, format, path, file_name, imported_at, digest)
         VALUES (1, 'f', 'p', 'n', 'now', x'07'), (2, 'f', 'p', 'n', 'now', x'07');
         INSERT INTO audit (session, audit_seq, kind, digest, chain)
         SELECT key, audit_seq + 1, 'hide', x'09', x'0a' FROM sessions;
         INSERT INTO hides (session, kind, was, session_id, tick, at, digest)
         VALUES (1, 'hide', 's', 's~', 1, 'now', x'09'), (2, 'hide', 't', 't~', 1, 'now', x'09');
         INSERT INTO leases (loop, owner, token, ttl, renewed_at, expires_at, released)
         VALUES (1, 'o', 3, 1, 1, 2, 1), (2, 'o', 3, 1, 1, 2, 1);
         INSERT INTO started_calls (loop, call_id, nth, tool_name, arguments, idempotency_key,
             started_at, attempts)
         VALUES (1, 'c', 0, 't', '{}', 'k', 'then', 1), (2, 'c', 0, 't', '{}', 'k', 'then', 1);
         INSERT INTO append_keys
             (session, name, loop, first_seq, end_seq, first_turn, end_turn, tokens)
         VALUES (1, 'k', 1, 0, 1, 0, 1, 1), (2, 'k', 1, 0, 1, 0, 1, 1);
         INSERT INTO session_flags (session, protected_at, redacts) VALUES (1, 'then', 1), (2, 'then', 1);",
    )
    .unwrap();
    (folder, file)
}

/// A table, its key, a column with a value to set, and the row to attack: each of session 1.
struct Target {
    table: &'static str,
    key: &'static str,
    set: &'static str,
    row: &'static str,
}

const fn target(
    table: &'static str,
    key: &'static str,
    set: &'static str,
    row: &'static str,
) -> Target {
    Target {
        table,
        key,
        set,
        row,
    }
}

const M: &str = "id = (1 << 32) | 1";
const E: &str = "id = 2 << 32";

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    target("messages", "id", "body = 'x'", M), target("messages", "id", "head = 'x'", M),
    target("messages", "id", "head = NULL", M), target("messages", "id", "turn = 3", M),
    target("messages", "id", "author = 0", M), target("messages", "id", "author = 2", M),
    target("messages", "id", "role = 0", M), target("messages", "id", "tick = 3000", M),
    target("messages", "id", "created_at = 3", M), target("messages", "id", "body_block = 7", M),
    target("messages", "id", "origin = x'00'", M), target("messages", "id", "salt = NULL", M),
    target("messages", "id", "digest = x'00'", M), target("messages", "id", "chain = x'00'", M),
    target("messages", "id", "id = 3", M), target("messages", "id", "rowid = 3", M),
    target("messages", "id", "oid = (1 << 32) | 2", M), target("messages", "id", "_rowid_ = 3", M),
    target("loops", "key", "key = 9", "key = 1"), target("loops", "key", "rowid = 9", "key = 1"),
    target("loops", "key", "session = 2", "key = 1"), target("loops", "key", "loop_id = 'x'", "key = 1"),
    target("loops", "key", "parent = 0", "key = 1"), target("loops", "key", "parent_turn = 0", "key = 1"),
    target("loops", "key", "tick = 9", "key = 1"), target("loops", "key", "sealed_seq = 0", "key = 1"),
    target("loops", "key", "sealed_seq = sealed_seq - 1", "key = 1"),
    target("sessions", "key", "key = 9", "key = 1"), target("sessions", "key", "oid = 9", "key = 1"),
    target("sessions", "key", "session_id = 'x'", "key = 1"), target("sessions", "key", "tick = 1", "key = 1"),
    target("turns", "id", "id = 3", "id = 1 << 32"), target("turns", "id", "rowid = 3", "id = 1 << 32"),
    target("turns", "id", "first_seq = 9", "id = 1 << 32"), target("turns", "id", "turn_index = 9", "id = 1 << 32"),
    target("runs", "key", "outcome = 'failed'", "key = 1"), target("runs", "key", "rowid = 9", "key = 1"),
    target("runs", "key", "error = 'x'", "key = 1"), target("runs", "key", "run_id = 'x'", "key = 1"),
    target("runs", "key", "edits = x'00'", "key = 2"), target("runs", "key", "edits = NULL", "key = 2"),
    target("pins", "key", "kind = 'unpin'", "key = 1"), target("pins", "key", "rowid = 9", "key = 1"),
    target("pins", "key", "seq = 9", "key = 1"), target("block_messages", "id", "quotes = 1", "id = 1 << 32"),
    target("hides", "key", "kind = 'unhide'", "key = 1"), target("hides", "key", "rowid = 9", "key = 1"),
    target("hides", "key", "session_id = 'x'", "key = 1"),
    target("flips", "key", "kind = 'redo'", "key = 1"), target("flips", "key", "rowid = 9", "key = 1"),
    target("flips", "key", "reason = 'x'", "key = 1"),
    target("blocks", "key", "through = 1", "key = 1"), target("blocks", "key", "rowid = 9", "key = 1"),
    target("blocks", "key", "strategy = 'x'", "key = 1"), target("blocks", "key", "generation = 9", "key = 1"),
    target("block_messages", "id", "head = 'x'", "id = 1 << 32"), target("block_messages", "id", "rowid = 9", "id = 1 << 32"),
    target("block_messages", "id", "body = 'x'", "id = 1 << 32"), target("block_messages", "id", "section = 2", "id = 1 << 32"),
    target("block_messages", "id", "replaces = 2", "id = 1 << 32"), target("block_messages", "id", "role = NULL", "id = 1 << 32"),
    target("block_messages", "id", "salt = NULL", "id = 1 << 32"), target("block_messages", "id", "digest = x'00'", "id = 1 << 32"),
    target("edits", "id", "text = 'x'", E), target("edits", "id", "rowid = 9", E),
    target("edits", "id", "action = 'replaced'", E), target("edits", "id", "part = NULL", E),
    target("edits", "id", "to_seq = 99", E), target("edits", "id", "salt = x'00'", E),
    target("edits", "id", "bytes_after = 1", E), target("edits", "id", "digest = x'00'", E),
    target("loops", "key", "edits = 0", "key = 1"), target("sessions", "key", "edits = 0", "key = 1"),
    target("blocks", "key", "edits = '[]'", "key = 1"),
    target("coverage", "id", "disposition = 'dropped'", "id = 1 << 32"), target("coverage", "id", "rowid = 9", "id = 1 << 32"),
    target("coverage", "id", "to_seq = 99", "id = 1 << 32"),
    target("manifests", "key", "sha256 = x'00'", "key = 1"), target("manifests", "key", "rowid = 9", "key = 1"),
    target("manifests", "key", "parts = '[]'", "key = 1"), target("manifests", "key", "tick = 1000", "key = 1"),
    target("manifests", "key", "manifest_id = 'x'", "key = 1"),
    target("imports", "key", "session = 2", "key = 1"), target("imports", "key", "rowid = 9", "key = 1"),
    target("imports", "key", "record_key = 'x'", "key = 1"),
    target("append_keys", "session, name", "session = 2", "session = 1 AND name = 'k'"),
    target("append_keys", "session, name", "name = 'x'", "session = 1 AND name = 'k'"),
    target("append_keys", "session, name", "end_seq = 9", "session = 1 AND name = 'k'"),
    target("session_flags", "session", "session = 9", "session = 1"), target("session_flags", "session", "rowid = 9", "session = 1"),
    target("session_flags", "session", "redacts = 0", "session = 1"),
    target("session_flags", "session", "protected_at = 'x'", "session = 1"),
    target("redactions", "owner", "digest = x'00'", "owner = (1 << 32) | 1"), target("redactions", "owner", "rowid = 9", "owner = -(1 << 32)"),
    target("redactions", "owner", "salt = x'00'", "owner = -(1 << 32)"),
    target("started_calls", "key", "arguments = '[]'", "key = 1"), target("started_calls", "key", "rowid = 9", "key = 1"),
    target("started_calls", "key", "idempotency_key = 'x'", "key = 1"), target("started_calls", "key", "tool_name = 'x'", "key = 1"),
];

/// Rows that no statement may change, during maintenance or not.
#[rustfmt::skip]
const ALWAYS: &[Target] = &[
    target("blobs", "key", "data = x'00'", "key = 1"), target("blobs", "key", "rowid = 9", "key = 1"),
    target("blobs", "key", "sha256 = x'00'", "key = 1"), target("blobs", "key", "bytes = 1", "key = 1"),
    target("blob_refs", "owner", "owner = 9", "owner = (1 << 32) | 2"),
    target("maintenance", "key", "closed_at = NULL", "key = 1"), target("maintenance", "key", "detail = 'x'", "key = 1"),
    target("maintenance", "key", "closed_at = 'c'", "key = 1"), target("maintenance", "key", "rowid = 9", "key = 1"),
    target("sessions", "key", "audit_seq = 0", "key = 1"), target("sessions", "key", "audit = x'00'", "key = 1"),
    target("audit", "session, audit_seq", "digest = x'00'", "session = 1 AND audit_seq = 1"),
    target("audit", "session, audit_seq", "was = x'00'", "session = 1 AND audit_seq = 1"),
    target("receipt_chain", "session", "audit = x'00'", "session = 0"),
    target("leases", "loop", "token = 1", "loop = 1"), target("leases", "loop", "loop = 9", "loop = 1"),
    target("store_meta", "name", "value = x'00'", "name = 'import_key'"),
    target("store_meta", "name", "name = 'other'", "name = 'import_key'"),
];

/// Returns an insert of the row, with the columns in `set` replaced. `columns` are those of the table.
fn insert(columns: &str, verb: &str, target: &Target, conflict: &str) -> String {
    let (column, value) = target.set.split_once(" = ").unwrap();
    let values: Vec<&str> = columns
        .split(',')
        .map(|name| if name == column { value } else { name })
        .collect();
    let (table, row) = (target.table, target.row);
    let values = values.join(", ");
    format!("{verb} INTO {table} ({columns}) SELECT {values} FROM {table} WHERE {row} {conflict}")
}

/// Returns statements that change or remove the row in every possible way.
fn attacks(file: &Path, target: &Target) -> Vec<String> {
    let Target {
        table,
        key,
        set,
        row,
    } = target;
    let mut attacks = vec![
        format!("UPDATE {table} SET {set} WHERE {row}"),
        format!("UPDATE OR REPLACE {table} SET {set} WHERE {row}"),
        format!("UPDATE OR IGNORE {table} SET {set} WHERE {row}"),
    ];
    let is_alias = ["rowid", "oid", "_rowid_"].contains(&set.split(' ').next().unwrap());
    // With another key it would be another row.
    let names_key = key
        .split(", ")
        .any(|part| set.starts_with(&format!("{part} = ")));
    if is_alias || names_key {
        return attacks;
    }
    let keys = if *table == "blob_refs" {
        "owner, blob"
    } else {
        key
    };
    let upsert = format!("ON CONFLICT ({keys}) DO UPDATE SET {set}");
    let sql = format!("SELECT group_concat(name) FROM pragma_table_info('{table}')");
    let columns = sqlite3(file, &sql).unwrap();
    attacks.extend([
        insert(&columns, "INSERT OR REPLACE", target, ""),
        insert(&columns, "REPLACE", target, ""),
        insert(&columns, "INSERT", target, &upsert),
    ]);
    attacks
}

fn everything(file: &Path) -> String {
    sqlite3(file, ".dump").unwrap()
}

/// Runs each of these statements in one `sqlite3` program, which continues after an error: a program for each takes
/// most of its time to read the schema. Returns the error of each statement; `None` if it was not refused.
fn refusals(file: &Path, statements: &[String]) -> Vec<Option<String>> {
    let lines = statements.iter().map(|sql| sql.replace('\n', " ") + "\n");
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), lines.collect::<String>()).unwrap();
    let output = Command::new("sqlite3")
        .arg("-batch")
        .arg(file)
        .stdin(std::fs::File::open(script.path()).unwrap())
        .output()
        .unwrap();
    let mut refusals = vec![None; statements.len()];
    for error in String::from_utf8_lossy(&output.stderr).lines() {
        // Lines without a number continue the error before.
        let after = error.split_once(" near line ").map(|(_, after)| after);
        let number = after.and_then(|after| after.split_once(':')?.0.parse::<usize>().ok());
        if let Some(number) = number {
            refusals[number - 1] = Some(error.to_owned());
        }
    }
    refusals
}

/// Tries each attack with recursive triggers off and on. Returns the attacks that were not stopped, and at the end
/// whether one that was refused changed something after all.
fn unstopped(file: &Path, attacks: &[String]) -> Vec<String> {
    let before = everything(file);
    let mut unstopped = Vec::new();
    for recursive in ["off", "on"] {
        let pragma = format!("PRAGMA recursive_triggers = {recursive};");
        let statements: Vec<String> = attacks
            .iter()
            .map(|attack| format!("{pragma} {attack};"))
            .collect();
        for (attack, refusal) in attacks.iter().zip(refusals(file, &statements)) {
            if !refusal.as_deref().is_some_and(is_of_a_trigger) {
                unstopped.push(format!("{attack} ({recursive}): {refusal:?}"));
            }
        }
    }
    let after = everything(file);
    let mut changed = after.lines().zip(before.lines()).filter(|(a, b)| a != b);
    match changed.next() {
        Some((after, before)) => unstopped.push(format!("changed: {before}\n     to: {after}")),
        None => assert_eq!(after.len(), before.len()),
    }
    unstopped
}

#[test]
fn what_was_written_cannot_be_changed_in_any_way() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let targets = TARGETS.iter().chain(ALWAYS);
    let attacks: Vec<String> = targets.flat_map(|target| attacks(&file, target)).collect();
    let unstopped = unstopped(&file, &attacks);
    assert!(unstopped.is_empty(), "{unstopped:#?}");
}

#[test]
fn what_was_written_cannot_be_removed() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let tables = TARGETS.iter().chain(ALWAYS).map(|t| (t.table, t.row));
    let mut deletes: Vec<String> = tables
        .map(|(table, row)| format!("DELETE FROM {table} WHERE {row}"))
        .collect();
    deletes.dedup();
    deletes.push("DELETE FROM blob_refs WHERE owner < 0".into());
    deletes.push("DELETE FROM messages".into());
    deletes.push("DELETE FROM turns".into());
    deletes.retain(|sql| {
        sql != "DELETE FROM blob_refs WHERE owner < 0" || {
            sqlite3(&file, "SELECT count(*) FROM blob_refs WHERE owner < 0").unwrap() != "0"
        }
    });
    let unstopped = unstopped(&file, &deletes);
    assert!(unstopped.is_empty(), "{unstopped:#?}");
}

#[test]
fn a_row_cannot_be_put_in_place_of_another_by_its_second_key() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let columns = |table: &str, replaced: &[(&str, &str)]| {
        let sql = format!("SELECT group_concat(name) FROM pragma_table_info('{table}')");
        let names = sqlite3(&file, &sql).unwrap();
        let values: Vec<String> = names
            .split(',')
            .map(|name| {
                let other = replaced.iter().find(|(column, _)| *column == name);
                other.map_or(name.to_owned(), |(_, value)| (*value).to_owned())
            })
            .collect();
        format!(
            "REPLACE INTO {table} ({names}) SELECT {} FROM {table} WHERE key = 1",
            values.join(",")
        )
    };
    let attacks = [
        columns("sessions", &[("key", "77")]),
        columns("loops", &[("key", "77")]),
        columns("runs", &[("key", "77")]),
        columns("blocks", &[("key", "77")]),
        columns("blobs", &[("key", "77")]),
        columns("manifests", &[("key", "77")]),
    ];
    let unstopped = unstopped(&file, &attacks);
    assert!(unstopped.is_empty(), "{unstopped:#?}");
}

#[test]
fn a_message_of_the_turn_in_flight_may_go() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let in_flight =
        "id >> 32 = 1 AND id & 4294967295 >= (SELECT sealed_seq FROM loops WHERE key = 1)";
    let left = format!("SELECT count(*) FROM messages WHERE {in_flight}");
    assert_eq!(sqlite3(&file, &left).unwrap(), "3");
    let owner = in_flight.replace("id ", "owner ");
    sqlite3(
        &file,
        &format!(
            "DELETE FROM blob_refs WHERE {owner}; DELETE FROM messages WHERE {in_flight};
             DELETE FROM turns WHERE id = (1 << 32) | 5;"
        ),
    )
    .unwrap();
    assert_eq!(sqlite3(&file, &left).unwrap(), "0");
}

#[test]
fn maintenance_opens_its_own_session_and_no_other() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let open = |session: u32| {
        let sql = format!(
            "INSERT INTO maintenance (session, kind, opened_at, detail)
             VALUES ({session}, 'erase', 'now', '')"
        );
        sqlite3(&file, &sql).unwrap();
    };
    open(2);
    let updates = |targets: &[Target]| -> Vec<String> {
        let updates = targets
            .iter()
            .map(|target| attacks(&file, target).swap_remove(0));
        updates.collect()
    };
    for targets in [TARGETS, ALWAYS] {
        let unstopped = unstopped(&file, &updates(targets));
        assert!(unstopped.is_empty(), "{unstopped:#?}");
    }
    open(1);
    for target in TARGETS {
        let (table, set, row) = (target.table, target.set, target.row);
        let sql = format!(
            "PRAGMA ignore_check_constraints = on; BEGIN; UPDATE {table} SET {set} WHERE {row}; SELECT changes(); ROLLBACK;"
        );
        match sqlite3(&file, &sql) {
            Ok(changes) => assert_eq!(changes, "1", "{sql}"),
            Err(refusal) => assert!(
                refusal.contains("UNIQUE constraint") || refusal.contains("NOT NULL"),
                "{sql}: {refusal}"
            ),
        }
        let sql = format!("BEGIN; DELETE FROM {table} WHERE {row}; SELECT changes(); ROLLBACK;");
        assert_eq!(sqlite3(&file, &sql).as_deref(), Ok("1"), "{sql}");
    }
    let left = unstopped(&file, &updates(ALWAYS));
    assert!(left.is_empty(), "{left:#?}");
    sqlite3(
        &file,
        "UPDATE maintenance SET closed_at = 'then' WHERE closed_at IS NULL",
    )
    .unwrap();
    let left = unstopped(&file, &updates(TARGETS));
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn a_receipt_is_closed_once_and_then_stays() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    sqlite3(
        &file,
        "INSERT INTO maintenance (session, kind, opened_at, detail) VALUES (1, 'redact', 'a', 'd')",
    )
    .unwrap();
    let attacks = [
        "DELETE FROM maintenance WHERE key = 4",
        "UPDATE maintenance SET detail = 'x' WHERE key = 4",
        "UPDATE maintenance SET session = 2, closed_at = 'b' WHERE key = 4",
        "UPDATE maintenance SET kind = 'erase', closed_at = 'b' WHERE key = 4",
        "UPDATE maintenance SET opened_at = 'x', closed_at = 'b' WHERE key = 4",
        "UPDATE maintenance SET rowid = 7, closed_at = 'b' WHERE key = 4",
        "INSERT OR REPLACE INTO maintenance (key, session, kind, opened_at, detail)
         VALUES (4, 1, 'erase', 'x', 'x')",
    ]
    .map(str::to_owned);
    let left = unstopped(&file, &attacks);
    assert!(left.is_empty(), "{left:#?}");
    let close = "UPDATE maintenance SET closed_at = 'b', detail = 'two' WHERE key = 4";
    sqlite3(&file, close).unwrap();
    let left = unstopped(&file, &[close.to_owned(), attacks[0].clone()]);
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn a_session_may_be_protected_released_and_redacted_from_now_on() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let store = open(&file);
    let id = loopstore::SessionId::new("s").unwrap();
    for protected in [false, true, true, false] {
        let since = loopstore_admin::retention::set_protected(&store, &id, protected).unwrap();
        assert_eq!(since.is_some(), protected);
    }
    drop(store);
    let flags = "SELECT session, protected_at, redacts FROM session_flags WHERE session = 1";
    assert_eq!(sqlite3(&file, flags).unwrap(), "1||1");
    sqlite3(
        &file,
        "UPDATE session_flags SET protected_at = 'now' WHERE session = 1",
    )
    .unwrap();
    assert_eq!(sqlite3(&file, flags).unwrap(), "1|now|1");
}

#[test]
fn a_recount_rewrites_packed_edits_and_no_other_column_of_a_run() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let recounting = "INSERT INTO store_meta (name, value) VALUES ('recount', '{}');";
    let changes = |set: &str| {
        let sql = format!(
            "BEGIN; {recounting} UPDATE runs SET {set} WHERE key = 2; SELECT changes(); ROLLBACK;"
        );
        sqlite3(&file, &sql)
    };
    assert_eq!(changes("edits = x'00'").as_deref(), Ok("1"));
    for set in [
        "edits = x'00', error = 'x'",
        "config = '{}'",
        "digest = x'00'",
        "rowid = 9",
    ] {
        assert!(changes(set).is_err(), "{set}");
    }
}

#[test]
fn counts_may_be_rewritten() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let (_folder, file) = stage();
    let sql = format!(
        "UPDATE messages SET tokens = 1, bytes = 2, lines = 3 WHERE {M}; SELECT changes();"
    );
    assert_eq!(sqlite3(&file, &sql).as_deref(), Ok("1"));
}
