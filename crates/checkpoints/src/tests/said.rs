//! Messages that values refer to, and the packed form of records.

use super::*;
use crate::forms::RecordForm;
use crate::record::{CheckpointRecord, WritesRecord};

fn put_writes(saver: &Checkpoints, form: Any) -> PutResult {
    saver.put_writes("t", writes(form)).unwrap()
}

fn count(saver: &Checkpoints, text: &str) -> i64 {
    let sql = format!("SELECT count(*) AS n FROM v_messages WHERE payload LIKE '%{text}%'");
    let database = saver.store().database();
    let rows = database.query_within(&sql, QueryLimits::default()).unwrap();
    serde_json::to_value(rows.records()).unwrap()[0]["n"]
        .as_i64()
        .unwrap()
}

/// Stores a list with a question that a task answers; the answer is written by the task, and then stored as the end of
/// the list.
fn answered(saver: &Checkpoints) -> PutResult {
    put_list(saver, "a", None, 1, json!([{"new": [user("question")]}]));
    let said = json!([[{"behind": ["loop-1", 0], "new": [answer("the answer")]}]]);
    put_writes(
        saver,
        json!({"id": "a", "task": "1", "said": said,
            "writes": [[0, "messages", {"said": [[0, 1]]}], [1, "other", {"value": "plain"}]]}),
    )
}

#[test]
fn a_message_that_a_task_said_is_stored_once_and_found_by_its_list() {
    let saver = python();
    let stored = answered(&saver);
    assert_eq!(context(&saver), ["question", "the answer"]);
    let place = json!(stored.said[0].new[0]);
    assert_eq!(place, json!(["loop-1", 2, 0]));
    let kept = json!([{"kept": [[["loop-1", 0], ["loop-1", 2]]]}]);
    put_list(&saver, "b", Some("a"), 2, kept);
    assert_eq!(state(&saver, "b"), ["question", "the answer"]);
    assert_eq!(state(&saver, "a"), ["question"]);
    assert_eq!(count(&saver, "the answer"), 1);
    let found = saver.get("t", "", Some("a")).unwrap().unwrap();
    let value: Any = found.writes[0].2.read().unwrap();
    assert_eq!(value["said"], json!([[0, 1]]));
    let message = &value["list"][0]["messages"][0];
    assert_eq!(message["content"][0]["text"], "the answer");
    assert_eq!(found.writes[1].2.as_str(), r#"{"value":"plain"}"#);
    // Repeating the task adds nothing.
    let again = json!({"id": "a", "task": "1", "writes": [[0, "messages", {"value": "late"}]],
        "said": [[{"behind": ["loop-1", 0], "new": [answer("late")]}]]});
    assert_eq!(put_writes(&saver, again).said, []);
    assert_eq!(count(&saver, "late"), 0);
}

#[test]
fn writes_that_arrive_after_the_next_checkpoint_leave_its_list_the_current_one() {
    let saver = python();
    answered(&saver);
    // Another order than that in which the tasks ended: a branch.
    let list = json!([{"kept": [[["loop-1", 0], ["loop-1", 0]]]}, {"new": [answer("first"), answer("second")]}]);
    put_list(&saver, "b", Some("a"), 2, list);
    assert_eq!(context(&saver), ["question", "first", "second"]);
    let late = json!({"id": "a", "task": "2", "said": [],
        "writes": [[0, "messages", {"value": "late"}]]});
    put_writes(&saver, late);
    assert_eq!(context(&saver), ["question", "first", "second"]);
    let found = saver.get("t", "", Some("a")).unwrap().unwrap();
    assert_eq!(found.writes.len(), 3);
}

#[test]
fn a_value_of_a_checkpoint_refers_to_messages_from_wherever_it_is_read() {
    let saver = python();
    put_list(
        &saver,
        "a",
        None,
        1,
        json!([{"new": [user("0"), answer("1")]}]),
    );
    let input = json!({"id": "b", "parent": "a", "versions": {"messages": 1, "__start__": 2},
        "unchanged": ["messages"],
        "said": [[{"kept": [[["loop-1", 0], ["loop-1", 0]]]}], [{"behind": ["loop-1", 1], "new": [user("2")]}]],
        "values": {"__start__": {"data": {"said": {"messages": [[1, 1]], "before": [[0, 1]]}}}}});
    let stored = saver.put("t", checkpoint(input)).unwrap();
    assert_eq!(stored.said.len(), 2);
    let later = json!({"id": "c", "parent": "b", "versions": {"messages": 1, "__start__": 2},
        "unchanged": ["messages", "__start__"]});
    saver.put("t", checkpoint(later)).unwrap();
    saver.copy_thread("t", "u").unwrap();
    for (thread, id) in [("t", "b"), ("t", "c"), ("u", "c")] {
        let found = saver.get(thread, "", Some(id)).unwrap().unwrap();
        let value = serde_json::to_value(&found.values["__start__"]).unwrap();
        let list = value["data"]["list"].as_array().unwrap();
        let texts: Vec<&Any> = list
            .iter()
            .map(|part| &part["messages"][0]["content"][0]["text"])
            .collect();
        assert_eq!(texts, ["0", "2"], "{thread} {id}");
    }
    assert_eq!(context(&saver), ["0", "1", "2"]);
}

#[test]
fn a_message_that_is_said_where_a_line_has_gone_on_leaves_the_line_as_it_is() {
    let saver = python();
    answered(&saver);
    let said = json!([[{"behind": ["loop-1", 0], "new": [answer("another")]}]]);
    let form =
        json!({"id": "a", "task": "2", "said": said, "writes": [[0, "messages", {"said": 0}]]});
    put_writes(&saver, form);
    assert_eq!(context(&saver), ["question", "another"]);
    let kept = json!([{"kept": [[["loop-1", 0], ["loop-1", 2]]], "new": [user("on")]}]);
    put_list(&saver, "b", Some("a"), 2, kept);
    assert_eq!(context(&saver), ["question", "the answer", "on"]);
}

#[test]
fn what_refers_to_nothing_is_refused_and_nothing_of_it_is_kept() {
    let saver = python();
    put_list(&saver, "a", None, 1, json!([{"new": [user("q")]}]));
    for said in [
        json!([[{"behind": ["loop-9", 0], "new": [answer("lost")]}]]),
        json!([[{"behind": ["loop-1", 7], "new": [answer("lost")]}]]),
        json!([[{"kept": [[["loop-9", 0], ["loop-9", 0]]]}]]),
    ] {
        let form = json!({"id": "a", "task": "1", "said": said, "writes": [[0, "x", {"said": 0}]]});
        saver.put_writes("t", writes(form)).unwrap_err();
    }
    let found = saver.get("t", "", Some("a")).unwrap().unwrap();
    assert_eq!((found.writes.len(), count(&saver, "lost")), (0, 0));
    let session = found.session + 1;
    let form = json!({"id": "a", "task": "1", "session": session, "writes": [[0, "x", 1]]});
    let error = saver.put_writes("t", writes(form)).unwrap_err();
    assert!(matches!(error, Error::Stale(_)), "{error}");
    // A caller's value that only looks like a reference is returned unchanged.
    let form = json!({"id": "a", "task": "1", "writes": [[0, "x", {"said": "so"}]]});
    put_writes(&saver, form);
    let found = saver.get("t", "", Some("a")).unwrap().unwrap();
    assert_eq!(found.writes[0].2.as_str(), r#"{"said":"so"}"#);
}

#[test]
fn what_a_program_said_is_not_packed_and_all_comes_back() {
    let saver = python();
    let form = json!({"id": "a", "versions": {"x": "1"},
        "checkpoint": {"value": {"v": 4, "versions_seen": {"n": {"x": "1"}}, "text": "\u{e4}\u{1f600}"}},
        "metadata": {"source": "loop", "step": 3, "parents": {"": "a"}, "note": "a secret of metadata"},
        "values": {"x": {"data": {"value": "a secret of a value"}}, "y": {"data": {"value": null}}}});
    let mut form = form;
    form["versions"]["y"] = json!(1);
    saver.put("t", checkpoint(form.clone())).unwrap();
    for secret in ["a secret of metadata", "a secret of a value"] {
        assert_eq!(count(&saver, secret), 1, "{secret}");
    }
    assert_eq!(count(&saver, "versions_seen"), 0);
    let found = serde_json::to_value(saver.get("t", "", None).unwrap().unwrap()).unwrap();
    for field in ["checkpoint", "metadata", "values", "versions"] {
        assert_eq!(found[field], form[field], "{field}");
    }
    // Tasks that an older version sent are part of its checkpoint.
    let older =
        json!({"id": "b", "checkpoint": {"value": {"v": 2, "pending_sends": ["a secret task"]}}});
    saver.put("t", checkpoint(older)).unwrap();
    assert_eq!(count(&saver, "a secret task"), 1);
}

#[test]
fn a_packed_record_that_is_cut_short_or_hostile_is_an_error() {
    let record = WritesRecord {
        ns: "ns".into(),
        id: "id".into(),
        task: "task".into(),
        path: "~__pregel_pull, model".into(),
        writes: vec![(0, "x".into(), loopstore::Json::string("text")); 40],
        said: Vec::new(),
    };
    let whole = record.to_json().unwrap();
    let again = WritesRecord::from_json(&whole).unwrap();
    assert_eq!((again.task, again.writes), (record.task, record.writes));
    let form: Any = whole.read().unwrap();
    let packed = form["packed"].as_str().unwrap();
    for end in 0..packed.len() {
        let cut = json!({"packed": packed[..end], "open": form["open"]});
        let cut = loopstore::Json::of(&cut).unwrap();
        WritesRecord::from_json(&cut).unwrap_err();
    }
    let few = json!({"packed": packed, "open": ["text"]});
    WritesRecord::from_json(&loopstore::Json::of(&few).unwrap()).unwrap_err();
    for other in [
        "null",
        "3",
        "\"\"",
        "\"%%%\"",
        "{}",
        "[]",
        r#"{"packed":1,"open":[]}"#,
    ] {
        let other = loopstore::Json::parse(other).unwrap();
        WritesRecord::from_json(&other).unwrap_err();
        CheckpointRecord::from_json(&other).unwrap_err();
    }
    // A record of another kind is rejected.
    CheckpointRecord::from_json(&whole).unwrap_err();
}

#[test]
fn a_large_record_is_packed_whole() {
    let saver = python();
    let versions: serde_json::Map<String, Any> = (0..4_000)
        .map(|n| {
            (
                format!("channel {n} {}", n * 7919 % 1009),
                json!(format!("{n}.{}", n * n)),
            )
        })
        .collect();
    let form = json!({"id": "a", "versions": versions});
    saver.put("t", checkpoint(form)).unwrap();
    let found = saver.get("t", "", None).unwrap().unwrap();
    assert_eq!(
        serde_json::to_value(&found.versions).unwrap(),
        Any::Object(versions)
    );
}
