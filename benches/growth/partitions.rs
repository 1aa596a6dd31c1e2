//! Sessions of 100 messages on a server whose tables have 16 partitions.

use std::time::Instant;

use loopstore_postgres::{Engine, PostgresOptions, PostgresStore, schema};

use crate::workload::Outcome;
use crate::workload::growth::Aged;
use crate::workload::turns::{Turns, of_messages};
use crate::{judge_growth, upkeep};
use loopstore_testing::server::{self, PostgresServer};

/// The number of messages of a session.
const IN_A_SESSION: usize = 100;
/// The number of sessions that are recorded; the others are copies of these.
const RECORDED: usize = 20;

/// The tables with rows of a recorded session, and the columns that hold keys with the session in them.
const TABLES: [(&str, &[&str]); 7] = [
    ("sessions", &["current_loop"]),
    ("session_names", &[]),
    ("loops", &["key"]),
    ("turns", &["loop"]),
    ("messages", &["loop"]),
    ("message_words", &["loop"]),
    ("indexed_loops", &["loop"]),
];

/// Copies rows `copies` times, each copy with sessions of its own.
fn copy(server: &PostgresServer, database: &str, copies: usize) -> Outcome<()> {
    let mut client = server.client(database);
    // Triggers and foreign keys would check each row; all rows are copies of checked ones.
    client.batch_execute("SET session_replication_role = replica")?;
    // Keys of sessions are milliseconds: the copies go back in time by more than the recording took.
    let born = "(t.session - 600000::BIGINT * n)";
    for (table, keys) in TABLES {
        let sql = "SELECT attname::TEXT FROM pg_attribute
             WHERE attrelid = $1::TEXT::REGCLASS AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
        let columns: Vec<String> = client
            .query(sql, &[&table])?
            .iter()
            .map(|row| row.get(0))
            .collect();
        let value = |column: &String| match column.as_str() {
            "session" => born.to_owned(),
            "session_id" => "t.session_id || '-' || n".to_owned(),
            name if keys.contains(&name) => {
                format!("({born} << 23) + (t.{name} & ((1 << 23) - 1))")
            }
            name => format!("t.{name}"),
        };
        let values: Vec<String> = columns.iter().map(value).collect();
        let (columns, values) = (columns.join(", "), values.join(", "));
        client.batch_execute(&format!(
            "INSERT INTO {table} ({columns}) SELECT {values} FROM {table} t, generate_series(1, {copies}) n"
        ))?;
    }
    client.batch_execute("ANALYZE")?;
    Ok(())
}

/// Returns a small session in a database with this number of messages in other sessions.
fn among_others(server: &PostgresServer, messages: usize) -> Outcome<Aged<PostgresStore>> {
    let database = server.database();
    let script = schema(Engine::Plain { partitions: 16 });
    server.client(&database).batch_execute(&script)?;
    // A statement over ten million rows takes long.
    let options = PostgresOptions::new().statement_limit(None);
    let store = PostgresStore::open_with(&server.address(&database), options)?;
    let sessions = messages / IN_A_SESSION;
    let recorded = RECORDED.min(sessions);
    let mut turns = Turns::small(3);
    for at in 0..recorded {
        let some = of_messages(&mut turns, IN_A_SESSION);
        upkeep::add(&store, &format!("other-{at}"), some, None)?;
    }
    upkeep::index(&store)?;
    copy(server, &database, sessions / recorded - 1)?;
    let mut client = server.client(&database);
    let there: i64 = client
        .query_one("SELECT count(*) FROM messages", &[])?
        .get(0);
    println!("    {there} messages");
    Aged::within(store)
}

/// Compares a small number of sessions with a large one.
pub fn run((few, many): (usize, usize), met: &mut bool) -> Outcome<()> {
    let server = server::server().ok_or("PostgreSQL is not installed")?;
    let begun = Instant::now();
    let mut young = among_others(server, few)?;
    let mut old = among_others(server, many)?;
    println!(
        "partitions: {many} messages / {few}; filled in {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    judge_growth("partitions", [&mut young, &mut old], met)?;
    let sql =
        "SELECT pg_database_size(datname) FROM pg_database WHERE datname LIKE 'test%' ORDER BY 1";
    for row in server.client("postgres").query(sql, &[])? {
        println!("    {:.1} MB", row.get::<_, i64>(0) as f64 / 1e6);
    }
    let ratio = upkeep::scrub(&young.recorded.store, &old.recorded.store)?;
    println!("scrub, partitions: {ratio:.2} (goes with the size)");
    Ok(())
}
