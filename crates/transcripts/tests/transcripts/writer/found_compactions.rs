//! Compactions of other tools: the positions of their blocks, the messages that they cover, and the contexts.

use loopstore::extend::{BlockKind, read};
use loopstore::internal::restore_block;
use loopstore::*;
use loopstore_transcripts::{FoundCompaction, FoundEffect};
use serde_json::json;

use crate::writer::script::*;

/// Returns three loops of two turns each.
fn three() -> Vec<Step> {
    let mut steps = vec![Step::Own("s"), begin("a", None)];
    steps.extend(work("a", "one"));
    steps.push(begin("b", Some("a")));
    steps.extend(work("b", "two"));
    steps.push(begin("c", Some("b")));
    steps.extend(work("c", "three"));
    steps
}

fn with(mut steps: Vec<Step>, more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    steps.extend(more);
    steps
}

const BLOCKS: &str = "SELECT loop, generation, kind, extends, first_start, first_end,
    compacted_start, compacted_end, recent_start, recent_end, through FROM blocks ORDER BY key";
const COVERAGE: &str = "SELECT id >> 32, loop, from_seq, to_seq, from_turn, to_turn, disposition
    FROM coverage ORDER BY id";

/// Checks the figures of the last run against the current context.
fn check_sizes(store: &SqliteStore, leaf: &str) {
    let shown = context(store, leaf).len().to_string();
    let sql = "SELECT messages_after FROM runs ORDER BY key DESC LIMIT 1";
    assert_eq!(rows(store, sql), [shown]);
}

#[test]
fn a_summary_of_everything_stands_on_the_loop_where_it_was_made() {
    let steps = with(
        vec![Step::Own("s"), begin("a", None)],
        with(work("a", "one"), [summary("a", "sum", None)]),
    );
    let store = imported(&steps);
    assert_eq!(
        rows(&store, BLOCKS),
        [r#"1 1 "current" null null null 0 1 null null 4"#]
    );
    assert_eq!(rows(&store, COVERAGE), [r#"1 1 0 3 0 1 "summarised""#]);
    assert_eq!(context(&store, "a"), ["sum"]);
    assert_eq!(
        rows(
            &store,
            "SELECT turns, trigger, strategy, round, outcome, error, scope, older_loops, counter,
                 messages_before, messages_after, started_at, duration_ms, config, record FROM runs"
        ),
        [concat!(
            r#"2 "auto" "tool" 1 "committed" null "fixed:0" "rollup" "heuristic" 4 1 "#,
            r#""2026-01-01T12:00:00Z" 1234 "{}" "#,
            r#""{\"compactMetadata\":{\"durationMs\":1234,\"preTokens\":9}}""#
        )]
    );
    let grown = with(steps, [user("a", 2, "more")]);
    import(&store, &grown);
    assert_eq!(context(&store, "a"), ["sum", "more"]);
    assert_eq!(essence(&store), essence(&imported(&grown)));
}

#[test]
fn a_summary_with_kept_turns_stands_where_the_first_of_them_is() {
    let store = imported(&with(three(), [summary("c", "sum", Some(("b", 1)))]));
    assert_eq!(
        rows(&store, BLOCKS),
        [r#"2 1 "rollup" null null null 0 0 1 1 4"#]
    );
    assert_eq!(
        rows(&store, COVERAGE),
        [
            r#"1 1 0 3 0 1 "rolled_up""#,
            r#"1 2 0 2 0 0 "summarised""#,
            r#"1 2 3 3 1 1 "kept""#
        ]
    );
    let shown = [
        "sum",
        "answer two",
        "prompt three",
        "call call-three",
        "result three",
        "answer three",
    ];
    assert_eq!(context(&store, "c"), shown);
    check_sizes(&store, "c");
    assert_eq!(
        chain(&store, "c")[0].block.as_ref().unwrap().kind,
        BlockKind::Rollup
    );
}

#[test]
fn a_summary_before_the_first_turn_of_a_loop_stands_on_the_loop_before() {
    for first_kept in [Some(("c", 0)), Some(("b", 9))] {
        let store = imported(&with(three(), [summary("c", "sum", first_kept)]));
        let (blocks, shown) = (rows(&store, BLOCKS), context(&store, "c"));
        assert_eq!(blocks, [r#"2 1 "rollup" null null null 0 1 null null 4"#]);
        assert_eq!(shown.len(), 5);
        check_sizes(&store, "c");
    }
    let store = imported(&with(three(), [summary("c", "sum", Some(("b", 0)))]));
    assert_eq!(
        rows(&store, BLOCKS),
        [r#"1 1 "rollup" null null null 0 1 null null 4"#]
    );
    // A prompt without an answer is still in flight: its loop cannot be covered.
    let open = [
        running("d", Some("c")),
        user("d", 0, "next"),
        summary("d", "sum", None),
    ];
    let store = imported(&with(three(), open));
    assert_eq!(context(&store, "d"), ["sum", "next"]);
    check_sizes(&store, "d");
}

#[test]
fn a_later_summary_goes_on_from_the_one_before() {
    let mut steps = three();
    steps.push(summary("c", "first", Some(("c", 1))));
    steps.push(user("c", 2, "tail"));
    steps.push(begin("d", Some("c")));
    steps.extend(work("d", "four"));
    steps.push(summary("d", "second", None));
    steps.push(user("d", 2, "on"));
    steps.push(assistant("d", 2, "yes"));
    steps.push(summary("d", "third", Some(("d", 2))));
    let store = imported(&steps);
    assert_eq!(
        rows(&store, BLOCKS),
        [
            r#"3 1 "rollup" null null null 0 0 1 1 4"#,
            r#"4 1 "rollup" 1 null null 0 1 null null 4"#,
            r#"4 2 "rollup" 2 null null 0 1 2 2 6"#,
        ]
    );
    // The second compaction kept a part of the loop before it, so that loop gets a new block, which covers it whole.
    assert_eq!(
        rows(&store, COVERAGE)[4..],
        [
            r#"2 3 0 4 0 2 "rolled_up""#,
            r#"2 4 0 3 0 1 "summarised""#,
            r#"3 4 0 3 0 1 "summarised""#,
            r#"3 4 4 5 2 2 "kept""#,
        ]
    );
    assert_eq!(context(&store, "d"), ["third", "on", "yes"]);
    assert_eq!(rows(&store, "SELECT round FROM runs"), ["1", "2", "3"]);
    check_sizes(&store, "d");
    let whole = essence(&store);
    let before = dump(&store);
    import(&store, &steps);
    assert_eq!(dump(&store), before);
    for cut in 2..steps.len() {
        let store = imported(&steps[..cut]);
        import(&store, &steps);
        assert_eq!(essence(&store), whole, "cut before step {cut}");
    }
}

#[test]
fn turns_kept_from_before_an_earlier_summary_are_shown_again() {
    let mut steps = three();
    steps.push(summary("c", "first", None));
    steps.push(user("c", 2, "tail"));
    steps.push(assistant("c", 2, "yes"));
    steps.push(summary("c", "second", Some(("b", 1))));
    let store = imported(&steps);
    assert_eq!(
        rows(&store, BLOCKS)[1..],
        [
            r#"2 1 "rollup" null null null 0 0 1 1 4"#,
            r#"3 2 "current" null 0 2 null null null null 6"#,
        ]
    );
    let shown = context(&store, "c");
    assert_eq!(shown[..2], ["second", "answer two"]);
    assert_eq!(shown.len(), 8);
    check_sizes(&store, "c");
}

#[test]
fn a_boundary_never_parts_a_call_from_its_result() {
    let steps = vec![
        Step::Own("s"),
        begin("a", None),
        user("a", 0, "go"),
        call("a", 1, "c"),
        result("a", 2, "c", "done"),
        assistant("a", 3, "end"),
        summary("a", "sum", Some(("a", 2))),
    ];
    let store = imported(&steps);
    assert_eq!(context(&store, "a"), ["sum", "call c", "done", "end"]);
    check_sizes(&store, "a");
}

#[test]
fn a_summary_of_nothing_is_recorded_without_a_block() {
    let store = imported(&with(three(), [summary("c", "sum", Some(("a", 0)))]));
    assert_eq!(
        rows(&store, "SELECT outcome, error IS NULL FROM runs"),
        [r#""no_gain" 0"#]
    );
    assert_eq!(rows(&store, "SELECT count(*) FROM blocks"), ["0"]);
    assert_eq!(context(&store, "c").len(), 12);
}

fn clear(loop_key: &str, calls: &[&str]) -> Step {
    edited(loop_key, calls, &[])
}

fn edited(loop_key: &str, calls: &[&str], replaced: &[(&str, &str)]) -> Step {
    let texts = replaced.iter();
    found(
        loop_key,
        FoundEffect::EditedResults {
            tool_call_ids: calls.iter().map(|id| (*id).to_owned()).collect(),
            replaced: texts
                .map(|(id, text)| ((*id).to_owned(), (*text).to_owned()))
                .collect(),
        },
    )
}

/// Returns the texts that a model sees, with the edits, and with `#` for each marker of a cleared result.
fn shown(store: &SqliteStore, leaf: &str) -> Vec<String> {
    let is_marker = |text: &String| text.starts_with("[cleared: ");
    let session = read(store, |read| Ok(read.sessions()?.remove(0).session_id)).unwrap();
    let options = BuildOptions {
        leaf: Some(loop_id(leaf)),
        ..BuildOptions::default()
    };
    let context = build_context_from_session(store, &session, &options).unwrap();
    let texts = context.messages.iter().map(text_of);
    texts
        .map(|text| if is_marker(&text) { "#".into() } else { text })
        .collect()
}

const EDITS: &str = "SELECT id >> 32, loop, from_seq, part, action FROM edits ORDER BY id";

#[test]
fn cleared_results_are_replaced_wherever_they_show() {
    let mut steps = three();
    steps.push(clear("c", &["call-one", "call-three", "unknown"]));
    let store = imported(&steps);
    assert_eq!(rows(&store, BLOCKS), [""; 0]);
    assert_eq!(
        rows(&store, EDITS),
        [r#"1 1 2 0 "cleared""#, r#"1 3 2 0 "cleared""#]
    );
    assert_eq!(
        rows(&store, "SELECT trigger, strategy FROM runs"),
        [r#""edit" "tool""#]
    );
    let texts = shown(&store, "c");
    assert_eq!(
        (texts[2].as_str(), texts[6].as_str(), texts[10].as_str()),
        ("#", "result two", "#")
    );
    check_sizes(&store, "c");
    // Cleared results stay cleared, and repeating the clearing changes nothing.
    steps.push(clear("c", &["call-two"]));
    steps.push(clear("c", &["call-two", "call-one"]));
    import(&store, &steps);
    assert_eq!(essence(&store), essence(&imported(&steps)));
    assert_eq!(
        rows(&store, "SELECT outcome FROM runs"),
        [r#""committed""#, r#""committed""#, r#""no_gain""#]
    );
    let cleared = shown(&store, "c");
    assert_eq!(cleared.iter().filter(|text| *text == "#").count(), 3);
}

#[test]
fn a_text_of_the_transcript_replaces_the_result() {
    let mut steps = three();
    let texts = [("call-two", "masked, see out.txt")];
    steps.push(edited("c", &["call-one", "call-two"], &texts));
    let store = imported(&steps);
    let texts = shown(&store, "c");
    assert_eq!(
        (texts[2].as_str(), texts[6].as_str()),
        ("#", "masked, see out.txt")
    );
    let actions = "SELECT action, text LIKE 'masked%' FROM edits ORDER BY id";
    assert_eq!(rows(&store, actions), [r#""cleared" 0"#, r#""replaced" 1"#]);
    import(&store, &steps);
    assert_eq!(rows(&store, "SELECT count(*) FROM runs"), ["1"]);
}

#[test]
fn results_are_cleared_behind_a_summary_that_stays() {
    let mut steps = three();
    steps.push(summary("c", "sum", Some(("b", 1))));
    steps.extend([
        call("c", 2, "late"),
        result("c", 2, "late", "late result"),
        assistant("c", 3, "end"),
    ]);
    steps.push(clear("c", &["call-one", "late"]));
    steps.push(begin("d", Some("c")));
    steps.extend(work("d", "four"));
    let store = imported(&steps);
    let texts = shown(&store, "d");
    assert_eq!(texts[..2], ["sum", "answer two"]);
    assert_eq!(texts[6..9], ["call late", "#", "end"]);
    let again = with(steps, [summary("d", "sum 2", Some(("c", 3)))]);
    let store = imported(&again);
    assert_eq!(context(&store, "d")[..2], ["sum 2", "end"]);
    check_sizes(&store, "d");
}

#[test]
fn results_are_cleared_behind_a_rollup() {
    let mut steps = three();
    steps.push(summary("c", "sum", Some(("c", 0))));
    steps.push(summary("c", "sum 2", Some(("b", 0))));
    steps.push(clear("c", &["call-two"]));
    let store = imported(&steps);
    let texts = shown(&store, "c");
    assert_eq!(
        (texts[0].as_str(), texts[3].as_str(), texts.len()),
        ("sum 2", "#", 9)
    );
    let mut steps = three();
    steps.push(summary("c", "sum", Some(("b", 0))));
    steps.push(begin("d", Some("c")));
    steps.extend(work("d", "four"));
    steps.push(summary("d", "sum 2", Some(("b", 1))));
    steps.push(clear("d", &["call-two", "call-three"]));
    let store = imported(&steps);
    assert_eq!(shown(&store, "d")[4], "#");
    check_sizes(&store, "d");
}

fn block(json: serde_json::Value) -> Step {
    Step::Found(FoundCompaction {
        loop_id: loop_id("a"),
        strategy: "phi-core".into(),
        trigger: None,
        effect: FoundEffect::Block(Box::new(serde_json::from_value(json).unwrap())),
        at: None,
        record: Json::null(),
    })
}

/// Returns one loop of four turns, the second with a call, with notes between them.
fn four() -> Vec<Step> {
    vec![
        Step::Own("s"),
        begin("a", None),
        note("a", "system", "be brief"),
        user("a", 0, "go"),
        call("a", 1, "c"),
        result("a", 1, "c", "a long result"),
        note("a", "progress", "half"),
        assistant("a", 2, "so far"),
        assistant("a", 3, "end"),
        note("a", "progress", "whole"),
    ]
}

fn message(steps: &[Step], at: usize) -> serde_json::Value {
    match &steps[at] {
        Step::Message(_, message, _) => serde_json::to_value(message).unwrap(),
        _ => unreachable!(),
    }
}

#[test]
fn a_block_of_the_tool_itself_stands_as_it_is_and_comes_back() {
    let steps = four();
    let mut cut = message(&steps, 5);
    cut["content"][0]["text"] = json!("a [...]");
    let recent = |messages: Vec<serde_json::Value>| {
        json!({
            "keep_first": {"startTurn": 0, "endTurn": 0, "odd": 1.5},
            "keep_compacted": null,
            "keep_recent": {"range": {"startTurn": 1, "endTurn": 3}, "messages": messages},
            "createdAt": "2026-01-01T00:00:00.000000001+02:00",
            "unknown": {"b": [1e3], "a": null},
        })
    };
    let (a, note, b, c) = (
        message(&steps, 4),
        message(&steps, 6),
        message(&steps, 7),
        message(&steps, 8),
    );
    for messages in [
        vec![a.clone(), cut.clone(), note, b.clone(), c.clone()],
        vec![a, cut, b, c],
    ] {
        let written = recent(messages);
        let store = imported(&with(steps.clone(), [block(written.clone())]));
        assert_eq!(
            rows(&store, BLOCKS),
            [r#"1 1 "current" null 0 0 null null 1 3 7"#]
        );
        assert_eq!(
            rows(
                &store,
                "SELECT section, replaces FROM block_messages WHERE role IS NOT NULL"
            ),
            ["2 3"]
        );
        assert_eq!(
            context(&store, "a"),
            ["go", "call c", "a [...]", "so far", "end"]
        );
        check_sizes(&store, "a");
        let link = chain(&store, "a").remove(0);
        let back = read(&store, |snapshot| {
            let row = snapshot.block_by_key(link.block.as_ref().unwrap().key)?;
            restore_block(snapshot, &link, &row)
        })
        .unwrap();
        assert_eq!(serde_json::to_value(back.unwrap()).unwrap(), written);
    }
}

#[test]
fn a_block_with_a_summary_shows_it() {
    let written = json!({
        "keep_compacted": {"range": {"startTurn": 0, "endTurn": 2},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "[Summary] x"}]}]},
        "keep_recent": {"range": {"startTurn": 3, "endTurn": 3}, "messages": [message(&four(), 8)]},
    });
    let steps = with(four(), [block(written)]);
    let store = imported(&steps);
    assert_eq!(context(&store, "a"), ["[Summary] x", "end"]);
    assert_eq!(
        rows(&store, COVERAGE),
        [r#"1 1 1 5 0 2 "summarised""#, r#"1 1 6 6 3 3 "kept""#]
    );
    let before = dump(&store);
    import(&store, &steps);
    assert_eq!(dump(&store), before);
}

#[test]
fn a_block_that_breaks_the_rules_is_a_failed_run_that_says_which() {
    let range = |first: i64, last: i64| json!({"startTurn": first, "endTurn": last});
    let section = |first, last| json!({"range": range(first, last), "messages": []});
    for (written, part) in [
        (json!({}), "end before turn 0"),
        (json!({"keep_first": range(0, 2)}), "end before turn 3"),
        (json!({"keep_first": range(0, 4)}), "reach beyond the loop"),
        (
            json!({"keep_first": range(2, 1)}),
            "2 to 1 is not a range of turns",
        ),
        (
            json!({"keep_first": range(-1, 3)}),
            "-1 to 3 is not a range of turns",
        ),
        (
            json!({"keep_compacted": section(1, 3)}),
            "begin at turn 1, not at turn 0",
        ),
        (
            json!({"keep_first": range(0, 0), "keep_compacted": section(2, 3)}),
            "a gap before turn 2",
        ),
        (
            json!({"keep_first": range(0, 1), "keep_compacted": section(1, 3)}),
            "turn 1 is in the section before",
        ),
        (
            json!({"keep_recent": section(0, 3)}),
            "0 messages stand for",
        ),
    ] {
        let store = imported(&with(four(), [block(written.clone())]));
        let run = rows(&store, "SELECT outcome, error, record FROM runs").remove(0);
        assert!(
            run.starts_with(r#""failed""#) && run.contains(part),
            "{run}"
        );
        let record = rows(&store, "SELECT record FROM runs").remove(0);
        let record: String = serde_json::from_str(&record).unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&record).unwrap(),
            written
        );
        assert_eq!(rows(&store, "SELECT count(*) FROM blocks"), ["0"]);
        assert_eq!(context(&store, "a").len(), 5);
    }
}

#[test]
fn a_block_that_parts_a_pair_or_covers_a_turn_in_flight_is_refused() {
    let parting = json!({
        "keep_first": {"startTurn": 0, "endTurn": 0},
        "keep_compacted": {"range": {"startTurn": 1, "endTurn": 1}, "messages": []},
    });
    let steps = [
        Step::Own("s"),
        begin("a", None),
        call("a", 0, "c"),
        result("a", 1, "c", "r"),
    ];
    let store = imported(&with(steps.to_vec(), [block(parting)]));
    let error = rows(&store, "SELECT error FROM runs").remove(0);
    assert!(error.contains("different sections"), "{error}");
    let open = [Step::Own("s"), running("a", None), user("a", 0, "go")];
    let whole = json!({"keep_first": {"startTurn": 0, "endTurn": 0}});
    let store = imported(&with(open.to_vec(), [block(whole)]));
    let error = rows(&store, "SELECT error FROM runs").remove(0);
    assert!(error.contains("in flight"), "{error}");
}

#[test]
fn equal_compactions_are_told_apart_by_their_order() {
    let mut steps = vec![Step::Own("s"), begin("a", None)];
    for turn in 0..3 {
        steps.extend([
            user("a", turn, "go"),
            assistant("a", turn, "ok"),
            summary("a", "sum", None),
        ]);
    }
    let store = imported(&steps);
    assert_eq!(
        rows(&store, "SELECT count(DISTINCT run_id), count(*) FROM runs"),
        ["3 3"]
    );
    assert_eq!(
        rows(&store, "SELECT count(*) FROM runs WHERE instr(run_id, ':')"),
        ["0"]
    );
    let before = dump(&store);
    import(&store, &steps);
    assert_eq!(dump(&store), before);
    assert_eq!(context(&store, "a"), ["sum"]);
}
