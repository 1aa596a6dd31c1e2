//! Sub-agents, parallel loops, and their cost.

use loopstore::extend as store;
use loopstore::*;
use loopstore_recorder::event::*;
use loopstore_recorder::{AgentEvent, RecordError, RecorderOptions, SessionRecorder};
use loopstore_recorder::{Formation, usage_tree};

use crate::support::events::*;

fn spent(name: &str, text: &str, usage: &str) -> Vec<AgentEvent> {
    let json = format!(
        r#"{{"role":"assistant","content":[{{"type":"text","text":"{text}"}}],"model":"m","provider":"p","usage":{usage}}}"#
    );
    let reply: AgentMessage = serde_json::from_str(&json).unwrap();
    vec![
        turn_start(name, 0),
        begins(name, &reply),
        ends(name, &reply),
        turn_end(name),
    ]
}

/// Records a session `name` whose first loop, `name.1`, was started by a call of the loop `parent`.
fn sub_agent(recorder: &mut SessionRecorder<'_>, name: &str, parent: &str, usage: &str) {
    let loop_key = format!("{name}.1");
    let mut start = AgentStart::new(SessionId::new(name).unwrap(), id(&loop_key));
    start.parent_loop_id = Some(id(parent));
    record_all(recorder, vec![AgentEvent::AgentStart(start)]);
    record_all(recorder, spent(&loop_key, "x", usage));
}

#[test]
fn sub_agents_are_linked_both_ways_and_their_costs_add_up() {
    let store = SqliteStore::in_memory().unwrap();
    let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
    record_all(
        &mut recorder,
        vec![start("a"), turn_start("a", 0), call_start("a", "c", "{}")],
    );
    sub_agent(
        &mut recorder,
        "sub",
        "a",
        r#"{"input":10,"output":5,"cost":{"total":0.5}}"#,
    );
    sub_agent(
        &mut recorder,
        "subsub",
        "sub.1",
        r#"{"input":100,"output":1,"total_tokens":7,"cost":0.25}"#,
    );
    record_all(&mut recorder, vec![end("subsub.1"), end("sub.1")]);
    let mut done = ToolExecutionEnd::new(id("a"), "c", "pay");
    done.child_loop_id = Some(id("sub.1"));
    done.child_session_id = Some(SessionId::new("sub").unwrap());
    record_all(
        &mut recorder,
        vec![AgentEvent::ToolExecutionEnd(done), turn_end("a")],
    );

    let tree = usage_tree(&store, &session(), None).unwrap();
    assert_eq!(
        (tree.own.total, tree.tree.total, tree.tree.cost),
        (0, 22, 0.75)
    );
    assert_eq!(tree.children[0].children[0].own.input, 100);
    let price = |model: Option<&str>, spent: &loopstore::UsageCost| {
        assert_eq!(model, Some("m"));
        Some(spent.input as f64)
    };
    assert_eq!(
        usage_tree(&store, &session(), Some(&price))
            .unwrap()
            .tree
            .cost,
        110.0
    );

    let sql = "SELECT session_id, parent_session_id, parent_loop_id, total, cost, tree_sessions,
        tree_total, tree_cost FROM v_session_tree ORDER BY tree_sessions DESC";
    let rows: Vec<String> = store
        .query(sql)
        .unwrap()
        .records()
        .iter()
        .map(|row| {
            row.iter()
                .map(|(_, json)| json.as_str().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"), @r#"
    "s" null null 0 0.0 3 22 0.75
    "sub" "s" "a" 15 0.5 2 22 0.75
    "subsub" "sub" "sub.1" 7 0.25 1 7 0.25
    "#);
    let key = row(&store, "a").key;
    let meta = store::read(&store, |read| read.loop_meta(key))
        .unwrap()
        .meta;
    let record: LoopRecord = serde_json::from_str(&meta).unwrap();
    assert_eq!(record.child_loop_refs[0].child_loop_id, id("sub.1"));
    let config =
        store.query("SELECT meta ->> '$.config.model' AS m FROM loops WHERE loop_id = 'sub.1'");
    assert_eq!(config.unwrap().records()[0].text("m").as_deref(), Some("m"));
}

#[test]
fn sessions_that_start_each_other_are_counted_once() {
    let store = SqliteStore::in_memory().unwrap();
    let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
    let mut first = AgentStart::new(session(), id("a"));
    first.parent_session_id = Some(SessionId::new("sub").unwrap());
    first.parent_loop_id = Some(id("sub.1"));
    record_all(&mut recorder, vec![AgentEvent::AgentStart(first)]);
    sub_agent(&mut recorder, "sub", "a", r#"{"input":10,"output":5}"#);
    for name in ["s", "sub"] {
        let tree = usage_tree(&store, &SessionId::new(name).unwrap(), None).unwrap();
        assert_eq!(tree.tree.total, 15);
    }
    let sums = store
        .query("SELECT DISTINCT tree_sessions, tree_total FROM v_session_tree")
        .unwrap();
    assert_eq!(sums.records().len(), 1);
    assert_eq!(sums.records()[0].number("tree_total"), Some(15));
}

fn announce(extra: &str) -> AgentEvent {
    let text = format!(
        r#"{{"type":"parallelLoopStart","session_id":"s","loop_ids":["x","y","z"]{extra}}}"#
    );
    AgentEvent::parse(&text).unwrap()
}

fn select(name: &str) -> AgentEvent {
    let text = format!(
        r#"{{"type":"parallelLoopEnd","session_id":"s","selected_loop_id":"{name}","evaluation_usage":{{"input":3,"output":4}}}}"#
    );
    AgentEvent::parse(&text).unwrap()
}

fn group(store: &SqliteStore) -> String {
    let sql = "SELECT loop_id, status, meta ->> '$.parallel_group.is_selected' AS is_it,
        meta ->> '$.parallel_group.selected_loop_id' AS selected FROM loops ORDER BY key";
    let told = |row: &store::sqlite::Record| {
        row.iter()
            .map(|(_, json)| json.as_str().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    store
        .query(sql)
        .unwrap()
        .records()
        .iter()
        .map(told)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn one_of_several_parallel_loops_is_selected() {
    let store = SqliteStore::in_memory().unwrap();
    let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
    record_all(&mut recorder, vec![announce(r#","parent_loop_id":null"#)]);
    assert_eq!(row(&store, "x").status, LoopStatus::Pending);
    record_all(&mut recorder, vec![start("x"), start("y")]);
    record_all(&mut recorder, turn("y", 0));
    record_all(&mut recorder, vec![end("x")]);
    let early = recorder.record(select("z")).unwrap_err();
    assert!(
        matches!(early, RecordError::Contradiction { .. }),
        "{early}"
    );
    record_all(&mut recorder, vec![end("y"), select("y"), select("y")]);
    insta::assert_snapshot!(group(&store), @r#"
    "x" "Completed" 0 "y"
    "y" "Completed" 1 "y"
    "z" "Aborted" 0 "y"
    "#);
    let other = recorder.record(select("x")).unwrap_err();
    assert!(
        matches!(other, RecordError::Contradiction { .. }),
        "{other}"
    );
    assert!(recorder.record(start("z")).is_err(), "it was aborted");
}

#[test]
fn announced_loops_whose_parent_is_not_told_are_stored_when_they_begin() {
    let store = SqliteStore::in_memory().unwrap();
    let mut recorder = SessionRecorder::new(&store, RecorderOptions::default());
    record_all(&mut recorder, vec![start("a"), end("a"), announce("")]);
    assert!(recorder.record(announce("")).is_err());
    record_all(
        &mut recorder,
        vec![
            start_after("x", "a"),
            end("x"),
            start_after("z", "a"),
            select("x"),
        ],
    );
    insta::assert_snapshot!(group(&store), @r#"
    "a" "Completed" null null
    "x" "Completed" 1 "x"
    "z" "Running" 0 "x"
    "#);
    assert_eq!(row(&store, "x").parent, Some(row(&store, "a").key));
    let alone = recorder.record(select("a")).unwrap_err();
    assert!(
        matches!(alone, RecordError::Contradiction { .. }),
        "{alone}"
    );
}

#[test]
fn a_session_says_why_it_exists() {
    let store = SqliteStore::in_memory().unwrap();
    let formation = Formation::InactivityTimeout {
        threshold_secs: 60,
        previous_session_id: SessionId::new("before").unwrap(),
    };
    let options = RecorderOptions {
        formation,
        ..RecorderOptions::default()
    };
    record_all(&mut SessionRecorder::new(&store, options), vec![start("a")]);
    let sql =
        "SELECT meta ->> '$.formation.InactivityTimeout.previous_session_id' AS f FROM sessions";
    assert_eq!(
        store.query(sql).unwrap().records()[0].text("f").as_deref(),
        Some("before")
    );
}
