//! The cost of queries over the views: steps of SQLite's virtual machine, and the query plans.

use rusqlite::StatementStatus;

use loopstore::extend::BlockKind;

use crate::support::needs;
use crate::views::stage::{BlockOf, Stage};

/// Returns the rows of a query and the number of its steps.
fn steps(stage: &Stage, sql: &str) -> (usize, i64) {
    let connection = crate::support::plain::raw(&stage.path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut count = 0;
    while rows.next().unwrap().is_some() {
        count += 1;
    }
    drop(rows);
    (count, statement.get_status(StatementStatus::VmStep).into())
}

/// Creates a chain of loops of one turn each; every `every`th has a run that also covers the two loops before.
fn line(loops: usize, every: usize) -> Stage {
    let stage = Stage::new("s");
    let mut keys = Vec::new();
    for at in 0..loops {
        let parent = at.checked_sub(1).map(|at| format!("l{at}"));
        let key = stage.start(&format!("l{at}"), parent.as_deref().map(|id| (id, None)));
        stage.turns(key, 1);
        keys.push(key);
        if at > 1 && at % every == 0 {
            let blocks = keys[at - 2..at].iter().map(|key| {
                BlockOf::new(*key, BlockKind::Earlier, 2)
                    .compacted(0, 0, &["x"])
                    .done()
            });
            stage.run(&format!("run-{at}"), key, blocks.collect());
        }
    }
    stage
}

#[test]
fn a_long_line_of_loops_costs_in_proportion() {
    let short = line(500, 10);
    let long = line(2000, 10);
    for view in [
        "v_context",
        "v_chain",
        "v_loops",
        "v_compaction_blocks",
        "v_tool_calls",
        "v_messages",
        "v_turns",
        "v_usage",
    ] {
        let sql = format!("SELECT * FROM {view} WHERE session_id = 's'");
        let (_, less) = steps(&short, &sql);
        let (_, more) = steps(&long, &sql);
        assert!(
            more < 6 * less,
            "{view}: {less} steps for 500 loops, {more} for 2000"
        );
    }
    let rows = long.rows("SELECT * FROM v_context WHERE session_id = 's'");
    assert_eq!(rows.len(), 2000);
}

/// Creates eight loops with this number of runs on the last one, each with a block on all, every other one undone.
fn undone(runs: usize) -> Stage {
    let stage = Stage::new("s");
    let mut keys = Vec::new();
    for at in 0..8_usize {
        let parent = at.checked_sub(1).map(|at| format!("l{at}"));
        let key = stage.start(&format!("l{at}"), parent.as_deref().map(|id| (id, None)));
        stage.turns(key, 1);
        keys.push(key);
    }
    let leaf = keys[7];
    for at in 0..runs {
        let blocks = keys.iter().map(|key| {
            BlockOf::new(*key, BlockKind::Earlier, 2)
                .compacted(0, 0, &["x"])
                .done()
        });
        let run = stage.run(&format!("run-{at}"), leaf, blocks.collect());
        if at % 2 == 0 {
            stage.flip(run, leaf, false);
        }
    }
    stage
}

#[test]
fn compactions_that_were_undone_cost_in_proportion() {
    let (few, many) = (undone(20), undone(80));
    for view in ["v_compaction_blocks", "v_compaction_runs", "v_context"] {
        let sql = format!("SELECT * FROM {view} WHERE session_id = 's'");
        let (_, less) = steps(&few, &sql);
        let (_, more) = steps(&many, &sql);
        assert!(
            more < 6 * less,
            "{view}: {less} steps for 20 runs, {more} for 80"
        );
    }
}

#[test]
fn other_sessions_cost_nothing() {
    let mut stage = line(50, 10);
    let sql = |view: &str| format!("SELECT * FROM {view} WHERE session_id = 's'");
    let views: Vec<&str> = crate::views::all_views().collect();
    let before: Vec<_> = views.iter().map(|view| steps(&stage, &sql(view))).collect();
    let other = loopstore::Session::new(loopstore::SessionId::new("other").unwrap(), "agent");
    let key = loopstore::extend::write(&stage.store, |w| {
        loopstore::extend::session::create_session(w, &other, None, None)
    });
    stage.session = key.unwrap();
    let mut parent: Option<String> = None;
    for at in 0..50 {
        let id = format!("o{at}");
        let key = stage.start(&id, parent.as_deref().map(|id| (id, None)));
        stage.turns(key, 1);
        stage.run(&format!("other-{at}"), key, Vec::new());
        parent = Some(id);
    }
    for (view, (rows, cost)) in views.iter().zip(before) {
        let (rows_after, cost_after) = steps(&stage, &sql(view));
        assert_eq!(rows_after, rows, "{view}");
        assert!(
            cost_after <= cost + 20,
            "{view}: {cost} steps, then {cost_after}"
        );
    }
}

#[test]
fn no_view_makes_an_index_of_its_own() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let stage = Stage::new("s");
    for view in crate::views::all_views() {
        for sql in [
            "",
            "WHERE session_id = 's'",
            "WHERE session_id > 's' ORDER BY 1, 2",
        ] {
            let sql = format!("EXPLAIN QUERY PLAN SELECT * FROM {view} {sql}");
            let plan = stage.shell_text(&[], &sql);
            assert!(!plan.contains("AUTOMATIC"), "{sql}:\n{plan}");
        }
    }
}

#[test]
fn blocks_are_found_by_their_run_and_else_session_by_session() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let stage = Stage::new("s");
    let plan = |sql: &str| {
        let sql = format!("EXPLAIN QUERY PLAN SELECT * FROM v_compaction_blocks {sql}");
        stage.shell_text(&[], &sql)
    };
    for sql in [
        "WHERE run_id = 'r'",
        "WHERE session_id = 's' AND run_id = 'r'",
    ] {
        let plan = plan(sql);
        assert!(plan.contains("SEARCH r USING INDEX"), "{sql}:\n{plan}");
        for table in ["s", "leaf", "b", "l"] {
            assert!(!plan.contains(&format!("SCAN {table} ")), "{sql}:\n{plan}");
        }
    }
    // The active blocks are looked up once for each loop, not for each run.
    for sql in ["", "WHERE session_id = 's'", "WHERE loop_id = 'l'"] {
        let plan = plan(sql);
        let at = |step: &str| {
            plan.find(step)
                .unwrap_or_else(|| panic!("{sql}: {step}\n{plan}"))
        };
        assert!(
            at("SCAN known") < at("SEARCH r USING INTEGER PRIMARY KEY"),
            "{sql}:\n{plan}"
        );
        assert!(!plan.contains("SCAN r\n"), "{sql}:\n{plan}");
    }
}

#[test]
fn messages_of_a_loop_are_found_by_their_keys() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    let stage = Stage::new("s");
    for view in ["v_messages", "v_tool_calls", "v_turns", "v_usage"] {
        let plan = stage.shell_text(
            &[],
            &format!(
                "EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE session_id = 's' AND loop_id = 'l'"
            ),
        );
        for table in ["s", "l", "m", "t"] {
            assert!(
                !plan.contains(&format!("SCAN {table}\n")),
                "{view}:\n{plan}"
            );
        }
        assert!(
            plan.contains("USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            "{view}:\n{plan}"
        );
        assert!(
            plan.contains("(session=? AND loop_id=?)"),
            "{view}:\n{plan}"
        );
    }
}
