//! A report of Anthropic becomes a run of edits, and the state of the graph does not change.

use loopstore::extend::sqlite::QueryLimits;

use super::*;

fn call(id: &str) -> Any {
    let call = json!({"type": "toolCall", "id": id, "name": "look", "arguments": {"at": id}});
    json!({"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]})
}

fn result(id: &str) -> Any {
    let text = format!("{id}: {}", "rain ".repeat(80));
    json!({"role": "toolResult", "toolCallId": id, "toolName": "look",
        "content": [{"type": "text", "text": text}]})
}

/// An answer as both languages store it, with the field `context_management` of its response.
fn reporting(text: &str, report: &Any) -> Any {
    let metadata = json!({"model_name": "claude", "context_management": report});
    json!({"role": "assistant", "content": [{"type": "text", "text": text}],
        "langgraph": {"id": text, "fields": {"response_metadata": metadata}}})
}

fn cleared(uses: u64) -> Any {
    json!({"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": uses,
        "cleared_input_tokens": 100}]})
}

fn runs(saver: &Checkpoints) -> Vec<String> {
    let store = saver.store();
    let sql = "SELECT strategy FROM v_compaction_runs ORDER BY started_at, run_id";
    let rows = store
        .database()
        .query_within(sql, QueryLimits::default())
        .unwrap();
    let strategies = rows.records().into_iter().map(|row| row.text("strategy"));
    strategies.collect::<Option<_>>().unwrap()
}

#[test]
fn what_was_cleared_before_an_answer_is_an_edit_and_the_state_stays() {
    let saver = python();
    let begin = json!([{"new": [user("q"), call("c1"), result("c1"), call("c2"), result("c2")]}]);
    let first = put_list(&saver, "a", None, 1, begin);
    let before = state(&saver, "a");
    assert_eq!(context(&saver), before);
    let next = json!([{"kept": segments(&first), "new": [reporting("It rains.", &cleared(1))]}]);
    let second = put_list(&saver, "b", Some("a"), 2, next);
    assert_eq!(
        (runs(&saver), second.notes.len()),
        (vec!["provider:anthropic".into()], 0)
    );
    let mut whole = before.clone();
    whole.push("It rains.".into());
    assert_eq!(
        (state(&saver, "a"), state(&saver, "b")),
        (before, whole.clone())
    );
    let seen = context(&saver);
    assert!(seen[2].starts_with("[cleared: "), "{seen:?}");
    assert_eq!((&seen[4], &seen[5]), (&whole[4], &whole[5]));
    // The same message in a later list is no second report, and a report of the same uses is no new edit.
    let again =
        json!([{"kept": segments(&second), "new": [user("on"), reporting("Yes.", &cleared(1))]}]);
    put_list(&saver, "c", Some("b"), 3, again);
    assert_eq!(runs(&saver).len(), 1);
    // A branch from before the answer does not have the edit.
    let other = json!([{"kept": segments(&first), "new": [answer("Who knows?")]}]);
    put_list(&saver, "d", Some("a"), 2, other);
    assert!(context(&saver)[2].starts_with("c1: "));
    saver.store().session("t").unwrap().undo().unwrap_err();
}

#[test]
fn a_report_that_cannot_be_recorded_is_a_note_and_no_error() {
    for (report, notes) in [
        (cleared(9), 1),
        (cleared(0), 0),
        (json!({"applied_edits": []}), 0),
        (json!({"applied_edits": 7}), 0),
        (json!(null), 0),
        (json!("applied_edits"), 0),
    ] {
        let saver = python();
        let begin =
            json!([{"new": [user("q"), call("c1"), result("c1"), reporting("So.", &report)]}]);
        let stored = put_list(&saver, "a", None, 1, begin);
        assert_eq!(stored.notes.len(), notes, "{report}: {:?}", stored.notes);
        assert_eq!(runs(&saver), [""; 0], "{report}");
        assert_eq!(context(&saver), state(&saver, "a"));
    }
    // A graph may begin with an answer.
    let stored = put_list(
        &python(),
        "a",
        None,
        1,
        json!([{"new": [reporting("So.", &cleared(2))]}]),
    );
    assert_eq!(stored.notes.len(), 1);
}
