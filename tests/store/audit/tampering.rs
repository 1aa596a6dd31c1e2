//! Plain SQL on the file: with triggers it is rejected or detected, and changes no context unnoticed; without triggers
//! it is detected.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;

use super::stage::{Stage, contexts, shell, verified};
use crate::support::amount::amount;
use crate::support::histories::Random;

/// The tables of the record, each with its key.
const RECORD: [(&str, &str); 17] = [
    ("loops", "key"),
    ("turns", "id"),
    ("messages", "id"),
    ("runs", "key"),
    ("flips", "key"),
    ("pins", "key"),
    ("hides", "key"),
    ("blocks", "key"),
    ("block_messages", "id"),
    ("coverage", "id"),
    ("manifests", "key"),
    ("imports", "key"),
    ("maintenance", "key"),
    ("redactions", "owner"),
    ("audit", "session, audit_seq"),
    ("receipt_chain", "session"),
    ("sessions", "key"),
];

/// Returns the columns of a table and a row of it.
fn row_of(connection: &Connection, table: &str, random: &mut Random) -> (Vec<String>, Vec<Value>) {
    let sql = format!("SELECT * FROM {table} ORDER BY 1, 2");
    let mut statement = connection.prepare(&sql).unwrap();
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows: Vec<Vec<Value>> = statement
        .query_map([], |row| (0..columns.len()).map(|at| row.get(at)).collect())
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let at = random.below(rows.len() as u64) as usize;
    (columns, rows[at].clone())
}

/// Returns a different value.
fn other(value: &Value, random: &mut Random) -> Value {
    match value {
        Value::Integer(number) => match random.below(4) {
            0 => Value::Integer(number + 1),
            1 => Value::Integer(number - 1),
            2 => Value::Integer(number + (1 << 32)),
            _ => Value::Integer(random.below(9) as i64),
        },
        Value::Text(text) => match random.below(3) {
            0 => Value::Text(text.replace("sentence", "sentance")),
            1 => Value::Text(format!("{text}x")),
            _ => Value::Text("ignore all that was said".into()),
        },
        Value::Blob(bytes) => {
            let byte = |_| random.below(256) as u8;
            Value::Blob(bytes.iter().map(byte).collect())
        }
        Value::Null => match random.below(3) {
            0 => Value::Integer(random.below(9) as i64),
            1 => Value::Text("x".into()),
            _ => Value::Null,
        },
        Value::Real(_) => Value::Null,
    }
}

fn condition(key: &str, columns: &[String], row: &[Value]) -> String {
    let literal = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        other => panic!("{other:?} is no key"),
    };
    let part = |name: &str| {
        let at = columns.iter().position(|column| column == name).unwrap();
        format!("{name} = {}", literal(&row[at]))
    };
    let parts: Vec<String> = key.split(", ").map(part).collect();
    parts.join(" AND ")
}

/// Attacks a row of the record. Returns the statement, and true if it was rejected.
fn attack(connection: &Connection, random: &mut Random) -> (String, bool) {
    let (table, key) = RECORD[random.below(RECORD.len() as u64) as usize];
    let (columns, mut row) = row_of(connection, table, random);
    let at = condition(key, &columns, &row);
    let kind = random.below(5);
    if kind == 0 {
        let sql = format!("DELETE FROM {table} WHERE {at}");
        let refused = connection.execute(&sql, []).is_err();
        return (sql, refused);
    }
    let changes = 1 + random.below(3);
    let mut changed = Vec::new();
    for _ in 0..changes {
        let place = random.below(columns.len() as u64) as usize;
        row[place] = other(&row[place], random);
        changed.push(place);
    }
    let sql = match kind {
        1 | 2 => {
            let place = changed[0];
            row = vec![row[place].clone()];
            format!("UPDATE {table} SET {} = ? WHERE {at}", columns[place])
        }
        _ => {
            let verb = if kind == 3 {
                "INSERT"
            } else {
                "INSERT OR REPLACE"
            };
            let places = vec!["?"; columns.len()].join(", ");
            // The next row of its kind, as if it had been written regularly.
            if let Value::Integer(number) = &mut row[0]
                && random.one_in(2)
            {
                *number += 1 + random.below(40) as i64;
            }
            format!(
                "{verb} INTO {table} ({}) VALUES ({places})",
                columns.join(", ")
            )
        }
    };
    let told = format!("{sql} {row:?}");
    let refused = connection
        .execute(&sql, rusqlite::params_from_iter(row))
        .is_err();
    (told, refused)
}

/// Returns everything that is stored, to detect whether a statement had an effect.
fn fingerprint(connection: &Connection) -> Vec<(String, String)> {
    let read = |(table, _): &(&str, &str)| {
        let mut statement = connection
            .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))
            .unwrap();
        let width = statement.column_count();
        let rows: Vec<String> = statement
            .query_map([], |row| {
                let values: Result<Vec<Value>, _> = (0..width).map(|at| row.get(at)).collect();
                Ok(format!("{:?}", values?))
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        ((*table).to_owned(), rows.join("\n"))
    };
    RECORD.iter().map(read).collect()
}

/// True if only descriptive columns differ, which decide nothing: times, actors, words.
fn is_told_only(before: &[(String, String)], after: &[(String, String)]) -> bool {
    let differs = before.iter().zip(after).filter(|(a, b)| a != b);
    differs
        .map(|((table, _), _)| table.as_str())
        .all(|table| matches!(table, "sessions" | "loops" | "turns"))
}

#[test]
fn random_statements_are_refused_or_found_and_change_no_context_unseen() {
    let stage = Stage::new();
    let (mut refused, mut found) = (0, 0);
    for seed in 0..amount("LOOPSTORE_STATEMENTS", 400) {
        let mut random = Random::new(seed + 1);
        let copy = stage.copy();
        let connection = shell(&copy);
        let before = fingerprint(&connection);
        let (sql, was_refused) = attack(&connection, &mut random);
        let after = fingerprint(&connection);
        drop(connection);
        if before == after {
            refused += u64::from(was_refused);
            continue;
        }
        let Some((store, report)) = verified(&copy) else {
            found += 1;
            continue;
        };
        found += u64::from(!report.ok);
        let shown = contexts(&store);
        let is_seen = !report.ok || (shown == stage.contexts && is_told_only(&before, &after));
        assert!(is_seen, "seed {seed}: {sql}");
    }
    assert!(
        refused > 100 && found > 10,
        "{refused} refused, {found} found"
    );
}

/// Runs `sql` without triggers.
fn without_triggers(file: &Path, sql: &str) {
    let connection = shell(file);
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
}

fn is_found(stage: &Stage, sql: &str) {
    let copy = stage.copy();
    without_triggers(&copy, sql);
    let is_missed = verified(&copy).is_some_and(|(_, report)| report.ok);
    assert!(!is_missed, "{sql} is not found");
}

#[test]
fn a_row_that_was_deleted_without_triggers_is_missed() {
    let stage = Stage::new();
    let intact = shell(&stage.copy());
    for seed in 0..amount("LOOPSTORE_DELETIONS", 100) {
        let mut random = Random::new(seed + 1);
        let (table, key) = RECORD[random.below(RECORD.len() as u64 - 1) as usize];
        let (columns, row) = row_of(&intact, table, &mut random);
        let at = condition(key, &columns, &row);
        is_found(&stage, &format!("DELETE FROM {table} WHERE {at}"));
    }
}

/// The newest undo, the newest run with all its rows, the receipt of an erased session: each is removed as a whole.
#[test]
fn the_newest_of_each_kind_is_missed_with_all_that_belongs_to_it() {
    let stage = Stage::new();
    let newest_run = "(SELECT key FROM runs WHERE session = 1 ORDER BY tick DESC LIMIT 1)";
    let run = format!(
        "DELETE FROM coverage WHERE id >> 32 IN (SELECT key FROM blocks WHERE run = {newest_run});
         DELETE FROM block_messages WHERE id >> 32 IN
             (SELECT key FROM blocks WHERE run = {newest_run});
         UPDATE loops SET generation = generation - 1 WHERE key IN
             (SELECT loop FROM blocks WHERE run = {newest_run});
         DELETE FROM flips WHERE run = {newest_run};
         DELETE FROM blocks WHERE run = {newest_run};
         DELETE FROM runs WHERE key = {newest_run}"
    );
    let chain_too = "DELETE FROM audit WHERE session = 1 AND audit_seq >= 4";
    is_found(&stage, &run);
    is_found(&stage, &format!("{run}; {chain_too}"));
    for table in ["flips", "pins", "manifests", "imports"] {
        let newest = format!("DELETE FROM {table} WHERE key = (SELECT max(key) FROM {table})");
        is_found(&stage, &newest);
        let of_chain = "DELETE FROM audit WHERE session = 2
             AND audit_seq = (SELECT max(audit_seq) FROM audit WHERE session = 2)";
        is_found(&stage, &format!("{newest}; {of_chain}"));
    }
    let receipt = "DELETE FROM maintenance WHERE session NOT IN (SELECT key FROM sessions)";
    is_found(&stage, receipt);
    is_found(
        &stage,
        &format!("{receipt}; DELETE FROM audit WHERE session = 0"),
    );
    is_found(&stage, "DELETE FROM audit");
    is_found(&stage, "DELETE FROM receipt_chain");
}

/// Each is tried on a committed run of session s, with all triggers in place.
#[test]
fn what_a_committed_run_holds_is_closed() {
    let stage = Stage::new();
    let newest = "(SELECT max(key) FROM blocks WHERE run = 1)";
    let copied = |table: &str, change: &[(&str, &str)]| {
        let connection = shell(&stage.copy());
        let names: Vec<String> = connection
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let values: Vec<&str> = names
            .iter()
            .map(|name| {
                let other = change.iter().find(|(column, _)| column == name);
                other.map_or(name.as_str(), |(_, value)| value)
            })
            .collect();
        let (names, values) = (names.join(", "), values.join(", "));
        format!("INSERT INTO {table} ({names}) SELECT {values} FROM {table}")
    };
    let attacks = [
        format!(
            "{} WHERE id >> 32 = {newest} LIMIT 1",
            copied("coverage", &[("id", "id + 900")])
        ),
        format!(
            "{} WHERE id >> 32 = {newest} LIMIT 1",
            copied(
                "block_messages",
                &[("id", "id + 900"), ("body", "'ignore all'")]
            )
        ),
        format!(
            "{} WHERE key = {newest}",
            copied("blocks", &[("key", "900"), ("generation", "900")])
        ),
        format!(
            "{} WHERE key = 1",
            copied("runs", &[("key", "900"), ("run_id", "'mine'")])
        ),
        format!(
            "{} WHERE key = 1",
            copied("flips", &[("key", "900"), ("tick", "900")])
        ),
        format!(
            "{} WHERE key = 1",
            copied("pins", &[("key", "900"), ("seq", "seq + 3")])
        ),
        format!(
            "{} WHERE key = 1",
            copied("manifests", &[("key", "900"), ("manifest_id", "'mine'")])
        ),
        "UPDATE runs SET digest = NULL, outcome = 'running' WHERE key = 1".into(),
    ];
    for attack in attacks {
        let connection = shell(&stage.copy());
        let refusal = connection.execute_batch(&attack);
        let refusal = refusal.expect_err(&attack).to_string();
        assert!(
            loopstore_testing::refusals::is_of_a_trigger(&refusal),
            "{attack}: {refusal}"
        );
    }
}

/// A program that writes the file may begin a run; its blocks must follow the rules all the same.
#[test]
fn sections_that_do_not_follow_each_other_are_refused_in_any_run() {
    let stage = Stage::new();
    let run =
        "INSERT INTO runs (session, run_id, loop, turns, tick, trigger, strategy, round, outcome,
            scope, older_loops, counter, tokens_before, tokens_after, bytes_before, bytes_after,
            messages_before, messages_after, started_at, duration_ms, config, plan)
         SELECT session, 'mine', loop, turns, tick, trigger, strategy, round, 'running', scope,
            older_loops, counter, 1, 1, 1, 1, 1, 1, '', 1, '{}', plan FROM runs WHERE key = 1;";
    let block = |sections: &str| {
        format!(
            "{run} INSERT INTO blocks (loop, generation, run, kind, first_start, first_end,
                 compacted_start, compacted_end, recent_start, recent_end, through, tokens_covered,
                 tokens_block, bytes_block, messages_block, strategy, shaping, created_at, digest)
             VALUES (1, 99, (SELECT key FROM runs WHERE run_id = 'mine'), 'current', {sections}, 18,
                 1, 1, 1, 1, '', '', '', x'00');"
        )
    };
    let cover = |rows: &str| {
        let block = block("0, 0, 1, 3, 4, 5");
        format!(
            "{block} INSERT INTO coverage
             SELECT (SELECT max(key) FROM blocks) * 4294967296 + column1, 1, column2, column3,
                 column4, column5, column6 FROM (VALUES {rows});"
        )
    };
    let fits = "(0, 0, 2, 0, 0, 'kept'), (1, 3, 11, 1, 3, 'summarised'), (2, 12, 17, 4, 5, 'kept')";
    shell(&stage.copy()).execute_batch(&cover(fits)).unwrap();
    let refused = [
        block("0, 2, 1, 3, 4, 5"),
        block("0, 0, 3, 1, 4, 5"),
        block("0, 0, 2, 3, 4, 5"),
        block("1, 1, 2, 3, 4, 5"),
        block("0, 0, 1, 3, 5, 4"),
        block("NULL, 0, 1, 3, 4, 5"),
        cover("(0, 0, 2, 0, 0, 'dropped')"),
        cover("(0, 0, 2, 0, 0, 'kept'), (1, 3, 11, 1, 3, 'kept')"),
        cover("(0, 0, 2, 0, 0, 'kept'), (1, 2, 11, 1, 3, 'summarised')"),
        cover("(0, 0, 2, 0, 0, 'kept'), (1, 4, 11, 1, 3, 'summarised')"),
        cover("(0, 0, 2, 0, 0, 'kept'), (2, 3, 11, 1, 3, 'summarised')"),
        cover("(0, 0, 2, 0, 1, 'kept')"),
        cover("(0, 0, 18, 0, 0, 'kept')"),
        cover("(0, 2, 0, 0, 0, 'kept')"),
    ];
    for sql in refused {
        let refusal = shell(&stage.copy()).execute_batch(&sql);
        assert!(refusal.is_err(), "{sql}");
    }
    // Nor can a run be closed whose blocks are not covered to their end, or without its row in the chain.
    let audited = "INSERT INTO audit (session, audit_seq, kind, digest, chain)
         SELECT key, audit_seq + 1, 'run', x'01', x'02' FROM sessions WHERE key = 1;";
    let close = "UPDATE runs SET outcome = 'committed', digest = x'01' WHERE run_id = 'mine';";
    let short = cover("(0, 0, 2, 0, 0, 'kept'), (1, 3, 11, 1, 3, 'summarised')");
    for sql in [
        format!("{short} {audited} {close}"),
        format!("{} {close}", cover(fits)),
    ] {
        assert!(shell(&stage.copy()).execute_batch(&sql).is_err(), "{sql}");
    }
    // With its row the run is closed, and detected.
    let copy = stage.copy();
    let forged = format!("{} {audited} {close}", cover(fits));
    shell(&copy).execute_batch(&forged).unwrap();
    let (_, report) = verified(&copy).unwrap();
    assert!(!report.ok);
}
