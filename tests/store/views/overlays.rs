//! Views of compaction: chains, runs, blocks, coverage and the context.

use loopstore::extend::{BlockKind, LoopKey, Outcome, Section};
use serde_json::json;

use crate::views::stage::{BlockOf, Stage, assistant, result, user};

const CONTEXT: &str = "SELECT leaf_loop_id, ordinal, loop_id, section, from_turn, to_turn,
    messages, tokens FROM v_context ORDER BY leaf_loop_id, ordinal";

/// Returns a block over the first eight turns of a loop: one kept, five summarised, two recent.
fn eight_turns(loop_key: LoopKey) -> BlockOf {
    BlockOf::new(loop_key, BlockKind::Current, 16)
        .first(0, 0)
        .compacted(1, 5, &["what happened"])
        .recent(6, 7)
}

#[test]
fn chains_lead_from_the_root_to_every_leaf() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 2);
    let main = stage.start("main", Some(("root", None)));
    stage.turns(main, 1);
    let fork = stage.start("fork", Some(("root", Some(0))));
    stage.turns(fork, 1);
    assert_eq!(
        stage.lines("SELECT * FROM v_chain ORDER BY leaf_loop_id, depth"),
        [
            "s|fork|root|0",
            "s|fork|fork|1",
            "s|main|root|0",
            "s|main|main|1"
        ]
    );
    // Later turns of the root are not on the chain of any child.
    stage.turns(root, 1);
    assert_eq!(
        stage.lines("SELECT DISTINCT leaf_loop_id FROM v_chain ORDER BY 1"),
        ["fork", "main", "root"]
    );
}

#[test]
fn the_current_loop_is_a_leaf_and_an_empty_parent_is_none() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.start("child", Some(("root", None)));
    let leaves = "SELECT DISTINCT leaf_loop_id FROM v_chain ORDER BY 1";
    assert_eq!(stage.lines(leaves), ["child"]);
    stage.append(
        root,
        json!([{"role": "extension", "kind": "note", "data": 1}]),
    );
    assert_eq!(stage.lines(leaves), ["child", "root"]);
}

#[test]
fn a_loop_without_a_block_is_raw_up_to_its_cut() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 5);
    let child = stage.start("child", Some(("root", Some(2))));
    stage.append(
        child,
        json!([{"role": "extension", "kind": "note", "data": 1}, user(0, "four")]),
    );
    assert_eq!(
        stage.lines(CONTEXT),
        [
            "child|0|root|raw|0|2|6|33",
            "child|1|child|raw|0|0|1|5",
            "root|0|root|raw|0|4|10|55",
        ]
    );
}

#[test]
fn a_block_shows_its_sections_and_its_tail() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 8);
    let block = eight_turns(root)
        .message(Section::Recent, Some(13), Some("cut"))
        .message(Section::Recent, Some(14), None)
        .message(Section::Recent, None, Some("added"))
        .done();
    stage.run("run-1", root, vec![block]);
    stage.turns(root, 1);
    assert_eq!(
        stage.lines(CONTEXT),
        [
            "root|0|root|first|0|0|2|11",
            "root|1|root|compacted|1|5|1|8",
            "root|2|root|recent|6|7|4|22",
            "root|3|root|tail|8|8|2|11",
        ]
    );
    assert_eq!(
        stage.lines("SELECT * FROM v_coverage"),
        [
            "s|root|1|root|0|1|0|0|kept",
            "s|root|1|root|2|11|1|5|summarised",
            "s|root|1|root|12|15|6|7|kept",
        ]
    );
    assert_eq!(
        stage.lines("SELECT * FROM v_compaction_blocks"),
        ["s|root|1|run-1|current||0|0|1|5|6|7|100|25|0.25|1|2026-01-01T00:00:02Z"]
    );
}

#[test]
fn a_late_result_of_a_covered_turn_is_in_the_tail_only() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 8);
    stage.run("run-1", root, vec![eight_turns(root).done()]);
    stage.append(root, json!([result(7, "x", "late")]));
    assert_eq!(
        stage.lines(CONTEXT)[2..],
        ["root|2|root|recent|6|7|4|22", "root|3|root|tail|7|7|1|10"]
    );
}

#[test]
fn a_fork_starts_as_its_parent_stood_at_that_turn() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 8);
    stage.run("run-1", root, vec![eight_turns(root).done()]);
    stage.turns(root, 2);
    let before = stage.start("before", Some(("root", Some(6))));
    stage.turns(before, 1);
    let after = stage.start("after", Some(("root", Some(8))));
    stage.turns(after, 1);
    assert_eq!(
        stage.lines(CONTEXT),
        [
            "after|0|root|first|0|0|2|11",
            "after|1|root|compacted|1|5|1|8",
            "after|2|root|recent|6|7|4|22",
            "after|3|root|tail|8|8|2|11",
            "after|4|after|raw|0|0|2|11",
            "before|0|root|raw|0|6|14|77",
            "before|1|before|raw|0|0|2|11",
            "root|0|root|first|0|0|2|11",
            "root|1|root|compacted|1|5|1|8",
            "root|2|root|recent|6|7|4|22",
            "root|3|root|tail|8|9|4|22",
        ]
    );
}

#[test]
fn undo_and_redo_flip_what_is_live_and_active() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 8);
    let first = stage.run("run-1", root, vec![eight_turns(root).done()]);
    stage.run("run-2", root, vec![eight_turns(root).done()]);
    let fork = stage.start("fork", Some(("root", None)));
    stage.turns(fork, 1);
    let live = "SELECT r.run_id, r.is_live, b.generation, b.is_active
        FROM v_compaction_runs r JOIN v_compaction_blocks b USING (run_id) ORDER BY 1";
    assert_eq!(stage.lines(live), ["run-1|1|1|0", "run-2|1|2|1"]);
    let second = stage.run_with("run-3", root, vec![eight_turns(root).done()], |row| {
        row.outcome = Outcome::NoGain;
        row.error = Some("no gain".into());
    });
    stage.flip(first, fork, false);
    assert_eq!(
        stage.lines(live),
        ["run-1|1|1|0", "run-2|1|2|1", "run-3|0|3|0"]
    );
    stage.flip(second, root, true);
    let two = stage.run("run-4", root, vec![eight_turns(root).done()]);
    stage.flip(two, root, false);
    stage.flip(two, root, true);
    stage.flip(two, root, false);
    assert_eq!(
        stage.lines(live),
        ["run-1|1|1|0", "run-2|1|2|1", "run-3|0|3|0", "run-4|0|4|0"]
    );
    stage.flip(two, root, true);
    assert_eq!(
        stage.lines(live)[1..],
        ["run-2|1|2|0", "run-3|0|3|0", "run-4|1|4|1"]
    );
    assert_eq!(
        stage.lines("SELECT * FROM v_compaction_runs WHERE run_id = 'run-3'"),
        [
            "s|run-3|root|manual|digest|1|no_gain|0||no gain|100|50|1000|500|10|5|\
          2026-01-01T00:00:02Z|7|{}|8|fixed:3|rollup|heuristic||"
        ]
    );
}

/// Creates five loops of two turns; a rollup on the third covers the first three.
fn rolled_up(change: impl FnOnce(&mut loopstore::extend::RunRow)) -> Stage {
    let stage = Stage::new("s");
    let keys = line(&stage, 5);
    let old = BlockOf::new(keys[1], BlockKind::Rollup, 4).compacted(0, 1, &["older"]);
    stage.run("run-1", keys[1], vec![old.done()]);
    let extended = stage.newest_block(keys[1]);
    let rollup = BlockOf::new(keys[2], BlockKind::Rollup, 4)
        .compacted(0, 1, &["everything"])
        .change(|row| row.extends = Some(extended));
    let earlier = BlockOf::new(keys[3], BlockKind::Earlier, 4).compacted(0, 1, &["a loop"]);
    let hidden = BlockOf::new(keys[0], BlockKind::Earlier, 4).compacted(0, 1, &["hidden"]);
    stage.run_with(
        "run-2",
        keys[4],
        vec![hidden.done(), rollup.done(), earlier.done()],
        change,
    );
    stage
}

fn line(stage: &Stage, count: usize) -> Vec<LoopKey> {
    let mut keys = Vec::new();
    for at in 0..count {
        let parent = at.checked_sub(1).map(|at| format!("l{at}"));
        let key = stage.start(&format!("l{at}"), parent.as_deref().map(|id| (id, None)));
        stage.turns(key, 2);
        keys.push(key);
    }
    keys
}

#[test]
fn a_rollup_stands_for_every_loop_up_to_its_anchor() {
    let stage = rolled_up(|_| ());
    assert_eq!(
        stage.lines(CONTEXT),
        [
            "l4|0|l2|rollup|0|1|1|7",
            "l4|1|l3|compacted|0|1|1|6",
            "l4|2|l4|raw|0|1|4|22",
        ]
    );
    assert_eq!(
        stage.lines(
            "SELECT loop_id, generation, run_id, kind, extends, is_active FROM v_compaction_blocks"
        ),
        [
            "l1|1|run-1|rollup||1",
            "l0|1|run-2|earlier||0",
            "l2|1|run-2|rollup|l1#1|1",
            "l3|1|run-2|earlier||1",
        ]
    );
}

fn config(text: serde_json::Value) -> impl FnOnce(&mut loopstore::extend::RunRow) {
    move |row| {
        row.older_loops = "skip".into();
        row.scope = text["scope"].as_str().unwrap().to_owned();
        row.config = text.to_string();
    }
}

#[test]
fn skipped_loops_are_not_in_the_context() {
    let stage = rolled_up(config(json!({"scope": "fixed:2", "recent_window": "loop"})));
    assert_eq!(
        stage.lines(CONTEXT),
        [
            "l4|0|l2|raw|0|1|4|22",
            "l4|1|l3|compacted|0|1|1|6",
            "l4|2|l4|raw|0|1|4|22",
        ]
    );
    let all = rolled_up(config(json!({"scope": "fixed:9", "recent_window": "loop"})));
    assert_eq!(
        all.lines(CONTEXT)[0],
        "l4|0|l0|compacted|0|1|1|6",
        "rollups do not count"
    );
}

#[test]
fn the_recent_window_reaches_back_over_the_scope() {
    for (keep, shown) in [(2, 1), (3, 2), (4, 2), (5, 3), (100, 5)] {
        let stage = rolled_up(config(
            json!({"scope": "fixed:0", "recent_window": "chain", "keep_recent_turns": keep}),
        ));
        assert_eq!(stage.lines(CONTEXT).len(), shown, "{keep}");
    }
}

#[test]
fn a_token_budget_walks_back_while_loops_fit() {
    // l4 raw 22, l3 by its block 25, l2 and l1 raw 22 each, l0 by its block 25.
    for (window, shown) in [
        (10, 1),
        (46, 1),
        (47, 2),
        (68, 2),
        (69, 3),
        (91, 4),
        (116, 5),
    ] {
        let stage = rolled_up(config(
            json!({"scope": "token-budget", "recent_window": "loop",
            "max_context_tokens": window + 1000, "system_tokens": 1000}),
        ));
        assert_eq!(stage.lines(CONTEXT).len(), shown, "{window}");
    }
}

#[test]
fn only_the_newest_live_run_decides_how_older_loops_are_shown() {
    let stage = rolled_up(config(json!({"scope": "fixed:0", "recent_window": "loop"})));
    assert_eq!(stage.lines(CONTEXT).len(), 1);
    let leaf = stage.chain_of("l4").last().unwrap().row.key;
    let empty = stage.run("run-3", leaf, Vec::new());
    assert_eq!(stage.lines(CONTEXT).len(), 3);
    stage.flip(empty, leaf, false);
    assert_eq!(stage.lines(CONTEXT).len(), 1);
}

impl Stage {
    fn chain_of(&self, loop_id: &str) -> Vec<loopstore::extend::active_blocks::ChainLink> {
        use loopstore::extend::read;
        let id = loopstore::LoopId::new(loop_id).unwrap();
        let row = read(&self.store, |r| r.loop_by_id(self.session, &id)).unwrap();
        self.chain(row.unwrap().key, Default::default())
    }
}

#[test]
fn a_loop_without_turns_leaves_no_row() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 1);
    let empty = stage.start("empty", Some(("root", None)));
    stage.append(
        empty,
        json!([{"role": "extension", "kind": "note", "data": 1}]),
    );
    let leaf = stage.start("leaf", Some(("empty", None)));
    let nothing = BlockOf::new(empty, BlockKind::Earlier, 0);
    stage.append(leaf, json!([user(0, "four"), assistant(0, "eight ch")]));
    stage.run("run-1", leaf, vec![nothing.done()]);
    assert_eq!(
        stage.lines("SELECT leaf_loop_id, ordinal, loop_id, section FROM v_context"),
        ["leaf|0|root|raw", "leaf|1|leaf|raw"]
    );
    // No division by zero.
    let none = BlockOf::new(empty, BlockKind::Earlier, 0).change(|row| row.tokens_covered = 0);
    stage.run("run-2", leaf, vec![none.done()]);
    assert_eq!(
        stage.lines("SELECT ratio FROM v_compaction_blocks ORDER BY generation"),
        ["0.25", ""]
    );
}
