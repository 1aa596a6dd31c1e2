//! Tables partitioned by session: each statement of the hot path touches one partition.
//!
//! `auto_explain` logs the plan of every statement that the store sends, and of those that references and triggers
//! execute for it.

use std::collections::BTreeSet;

use loopstore::extend::{self as store, lease};
use loopstore::*;
use loopstore_postgres::{BY_SESSION, Engine, PostgresStore, schema};

use crate::support::histories::{History, answer, result, user};
use crate::support::server;

/// The server settings that log the plan of every statement.
pub const EXPLAIN: [(&str, &str); 5] = [
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_nested_statements", "on"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_timing", "off"),
];

fn turn(turn: u32) -> Vec<AgentMessage> {
    let call = format!("call-{turn}");
    vec![
        user("please", turn),
        answer(&"words ".repeat(40), &[&call], turn),
        result(
            &call,
            vec![
                Content::text("line\n".repeat(40)),
                Content::image("aGVsbG8=", "image/png"),
            ],
            turn,
        ),
    ]
}

/// Appends, builds, compacts, undoes, forks and holds a lease.
fn run_operations(store: &PostgresStore, id: &str) {
    let mut history = History::new(store, id);
    for number in 0..8 {
        history.append(0, turn(number));
    }
    history.start_loop(Some(0), Some(4));
    history.append(1, turn(9));
    assert_eq!(history.compact(0, (1, 1), false)["outcome"], "committed");
    history.compact(1, (1, 1), true);
    assert!(history.flip(0, false));
    assert!(history.flip(0, true));
    for at in 0..2 {
        let options = BuildOptions {
            leaf: Some(crate::support::histories::loop_id(at)),
            ..BuildOptions::default()
        };
        build_context_from_session(store, &history.session, &options).unwrap();
    }
    let key = history.row(0).key;
    store::write(store, |write| {
        let lease::Acquire::Acquired(lease) = lease::acquire(write, key, "me", 1_000, 0)? else {
            panic!("it is free");
        };
        lease::renew(write, &lease, 1)?;
        lease::release(write, &lease, 2)
    })
    .unwrap();
}

/// Returns the logged plans on partitioned tables: a statement, and the numbers of its partitions.
fn plans(log: &str) -> Vec<(String, BTreeSet<u32>)> {
    let mut plans: Vec<String> = Vec::new();
    for line in log.lines() {
        match plans.last_mut() {
            Some(plan) if line.starts_with('\t') => {
                plan.push('\n');
                plan.push_str(line);
            }
            _ => plans.push(line.to_owned()),
        }
    }
    let touched = |plan: &String| {
        let words = plan.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let part = words.filter_map(|word| {
            let (table, number) = word.rsplit_once("_p")?;
            BY_SESSION.contains(&table).then(|| number.parse().ok())?
        });
        part.collect::<BTreeSet<u32>>()
    };
    let told = plans.iter().filter(|plan| plan.contains("Query Text:"));
    told.map(|plan| (plan.clone(), touched(plan))).collect()
}

#[test]
fn each_statement_of_the_hot_path_touches_one_partition() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.database();
    let script = schema(Engine::Plain { partitions: 4 });
    server.client(&name).batch_execute(&script).unwrap();
    let address = explaining(&server.address(&name));
    check_plans(&PostgresStore::open(&address).unwrap(), server);
}

/// Returns an address through which every statement is explained.
pub fn explaining(address: &str) -> String {
    let settings = EXPLAIN.map(|(name, value)| format!("-c%20{name}%3D{value}"));
    format!("{address}?options={}", settings.join("%20"))
}

/// Runs operations on a store whose server logs plans, and checks that each statement touches one partition.
pub fn check_plans(store: &PostgresStore, server: &server::PostgresServer) {
    let log = || std::fs::read_to_string(server.folder.join("log")).unwrap();
    let before = log().len();
    for number in 0..3 {
        run_operations(store, &format!("session-{number}"));
    }
    let log = log();
    let plans = plans(&log[before..]);
    let of_partitions: Vec<_> = plans
        .iter()
        .filter(|(_, parts)| !parts.is_empty())
        .collect();
    assert!(of_partitions.len() > 100, "{} plans", of_partitions.len());
    for (plan, parts) in of_partitions {
        // Parts that are marked as never executed were not touched.
        assert!(parts.len() == 1 || touched_one(plan), "{parts:?}\n{plan}");
    }
    let report = loopstore_verify::verify(store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

/// True if all partitions of a plan but one were never executed.
fn touched_one(plan: &str) -> bool {
    let lines = plan
        .lines()
        .filter(|line| line.contains("_p") && line.contains("->"));
    let touched = lines.filter(|line| !line.contains("never executed"));
    let part = |line: &str| {
        let words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words
            .filter_map(|word| word.rsplit_once("_p")?.1.parse::<u32>().ok())
            .next()
    };
    touched.filter_map(part).collect::<BTreeSet<u32>>().len() <= 1
}

#[test]
fn the_printed_schema_is_the_one_that_the_store_makes() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.database();
    let script = schema(Engine::Plain { partitions: 1 });
    server.client(&name).batch_execute(&script).unwrap();
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    run_operations(&store, "session");
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}
