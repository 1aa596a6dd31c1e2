//! The guarantees that a LangGraph saver relies on, tested without LangGraph.

use loopstore::extend::sqlite::QueryLimits;
use loopstore::{Message, Store};
use serde_json::{Value as Any, json};

mod copies;
mod reports;
mod said;

use crate::{
    Bodies, Checkpoints, Error, Language, ListQuery, NewCheckpoint, NewWrites, PutResult, Strategy,
    Value,
};

fn python() -> Checkpoints {
    Checkpoints::new(Store::in_memory().unwrap(), Language::Python)
}

fn checkpoint(form: Any) -> NewCheckpoint {
    let mut whole = json!({"checkpoint": {"v": 4}, "metadata": {"source": "loop"}, "versions": {}});
    let fields = whole.as_object_mut().unwrap();
    fields.extend(form.as_object().unwrap().clone());
    serde_json::from_str(&whole.to_string()).unwrap()
}

fn writes(form: Any) -> NewWrites {
    serde_json::from_str(&form.to_string()).unwrap()
}

fn user(text: &str) -> Any {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

fn answer(text: &str) -> Any {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}]})
}

/// Stores a list of messages as version `n` of the channel `messages`.
fn put_list(saver: &Checkpoints, id: &str, parent: Option<&str>, n: u32, parts: Any) -> PutResult {
    let form = json!({
        "id": id, "parent": parent, "versions": {"messages": n},
        "values": {"messages": {"list": parts}},
    });
    saver.put("t", checkpoint(form)).unwrap()
}

fn segments(stored: &PutResult) -> Any {
    serde_json::to_value(&stored.lists["messages"].segments).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    let Value::List { list } = value else {
        panic!("{value:?}");
    };
    let messages = list.iter().flat_map(|part| part.messages.iter().flatten());
    let text = |message: &loopstore::AgentMessage| match message.message() {
        Some(message) => message.texts().collect::<String>(),
        None => serde_json::to_value(message).unwrap()["data"].to_string(),
    };
    messages.map(text).collect()
}

fn state(saver: &Checkpoints, id: &str) -> Vec<String> {
    let found = saver.get("t", "", Some(id)).unwrap().unwrap();
    texts(&found.values["messages"])
}

fn context(saver: &Checkpoints) -> Vec<String> {
    let context = saver.store().session("t").unwrap().context().unwrap();
    let text = |message: &loopstore::AgentMessage| message.message().unwrap().texts().collect();
    context.messages.iter().map(text).collect()
}

#[test]
fn a_list_that_grows_is_two_places_and_each_message_is_stored_once() {
    let saver = python();
    let mut stored = put_list(&saver, "c0", None, 0, json!([{"new": [user("0")]}]));
    for n in 1..30 {
        let (id, parent) = (format!("c{n:02}"), format!("c{:02}", n - 1));
        let message = if n % 2 == 0 {
            user(&n.to_string())
        } else {
            answer(&n.to_string())
        };
        let kept = segments(&stored);
        let parent = if n == 1 { "c0" } else { &parent };
        stored = put_list(
            &saver,
            &id,
            Some(parent),
            n,
            json!([{"kept": kept, "new": [message]}]),
        );
    }
    assert_eq!(segments(&stored), json!([[["loop-1", 0], ["loop-15", 2]]]));
    let all: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    assert_eq!(state(&saver, "c29"), all);
    assert_eq!(state(&saver, "c11"), all[..12]);
    assert_eq!(context(&saver), all);
    assert_eq!(saver.store().search("29").unwrap().hits.len(), 1);
}

#[test]
fn who_has_the_messages_gets_their_positions_only() {
    let saver = python();
    let parts = json!([{"new": [user("q"), answer("1")]}]);
    put_list(&saver, "a", None, 1, parts);
    let list = |bodies| {
        let found = saver.get_with("t", "", None, bodies).unwrap().unwrap();
        match found.values["messages"].clone() {
            Value::List { list } => list,
            other => panic!("{other:?}"),
        }
    };
    let (all, changed) = (list(Bodies::All), list(Bodies::Changed));
    assert_eq!(all[0].places, changed[0].places);
    assert!(all[0].messages.iter().all(Option::is_some));
    assert_eq!(changed[0].messages, [None, None]);
}

#[test]
fn who_goes_on_from_an_earlier_state_gets_a_branch_and_the_other_one_stays() {
    let saver = python();
    let first = put_list(
        &saver,
        "a",
        None,
        1,
        json!([{"new": [user("q"), answer("1")]}]),
    );
    let kept = segments(&first);
    put_list(
        &saver,
        "b",
        Some("a"),
        2,
        json!([{"kept": kept, "new": [user("left")]}]),
    );
    put_list(
        &saver,
        "c",
        Some("a"),
        2,
        json!([{"kept": kept, "new": [user("right")]}]),
    );
    assert_eq!(state(&saver, "b"), ["q", "1", "left"]);
    assert_eq!(state(&saver, "c"), ["q", "1", "right"]);
    assert_eq!(context(&saver), ["q", "1", "right"]);
}

#[test]
fn a_branch_may_leave_a_turn_whose_call_is_open() {
    let saver = python();
    let call = json!({"role": "assistant", "content":
        [{"type": "toolCall", "id": "c1", "name": "rm", "arguments": {"all": true}}]});
    let first = put_list(&saver, "a", None, 1, json!([{"new": [user("q"), call]}]));
    // The call is edited before it is approved: the question stays, and the answer is replaced.
    let question = json!([[["loop-1", 0], ["loop-1", 0]]]);
    let edited = json!({"role": "assistant", "content":
        [{"type": "toolCall", "id": "c1", "name": "rm", "arguments": {"all": false}}]});
    let result = json!({"role": "toolResult", "toolCallId": "c1", "content": [{"type": "text", "text": "ok"}]});
    let stored = put_list(
        &saver,
        "b",
        Some("a"),
        2,
        json!([{"kept": question, "new": [edited, result]}]),
    );
    assert_eq!(state(&saver, "b"), ["q", "", "ok"]);
    assert_eq!(context(&saver), ["q", "", "ok"]);
    assert_eq!(segments(&first), json!([[["loop-1", 0], ["loop-1", 1]]]));
    assert_eq!(segments(&stored)[0][0], json!(["loop-1", 0]));
    let handle = saver.store().session("t").unwrap();
    assert_eq!(handle.context().unwrap().faults, []);
}

#[test]
fn a_list_that_lost_messages_is_segments_and_goes_on_at_its_end() {
    let saver = python();
    let new = [user("0"), answer("1"), user("2"), answer("3")];
    put_list(&saver, "a", None, 1, json!([{"new": new}]));
    let kept = json!([
        [["loop-1", 0], ["loop-1", 0]],
        [["loop-2", 1], ["loop-2", 1]]
    ]);
    let stored = put_list(
        &saver,
        "b",
        Some("a"),
        2,
        json!([{"kept": kept, "new": [user("4")]}]),
    );
    assert_eq!(state(&saver, "b"), ["0", "3", "4"]);
    // The record still contains everything.
    assert_eq!(context(&saver), ["0", "1", "2", "3", "4"]);
    assert_eq!(segments(&stored)[1], json!([["loop-2", 1], ["loop-3", 0]]));
}

#[test]
fn a_message_in_the_middle_is_kept_beside_the_line() {
    let saver = python();
    put_list(
        &saver,
        "a",
        None,
        1,
        json!([{"new": [user("0"), answer("1")]}]),
    );
    let parts = json!([
        {"new": [user("zero")]},
        {"kept": [[["loop-1", 1], ["loop-1", 1]]], "new": [user("2")]},
    ]);
    let stored = put_list(&saver, "b", Some("a"), 2, parts);
    assert_eq!(segments(&stored)[0].as_array().unwrap().len(), 1);
    let found = saver.get("t", "", Some("b")).unwrap().unwrap();
    assert!(texts(&found.values["messages"])[0].contains("zero"));
    assert_eq!(context(&saver), ["0", "1", "2"]);
}

#[test]
fn a_system_message_is_one_of_the_list_and_in_no_context() {
    let saver = python();
    let system = json!({"role": "extension", "kind": "system", "data": {"content": "be brief"}});
    let new = json!([{"new": [system, user("q")]}]);
    let first = put_list(&saver, "a", None, 1, new);
    let kept = segments(&first);
    let more = json!([{"kept": kept, "new": [answer("1")]}]);
    put_list(&saver, "b", Some("a"), 2, more);
    assert_eq!(state(&saver, "b").len(), 3);
    assert_eq!(context(&saver), ["q", "1"]);
}

#[test]
fn a_list_that_begins_anew_has_a_line_of_its_own() {
    let saver = python();
    put_list(
        &saver,
        "a",
        None,
        1,
        json!([{"new": [user("q"), answer("1")]}]),
    );
    put_list(&saver, "b", Some("a"), 2, json!([{"new": [user("anew")]}]));
    assert_eq!(state(&saver, "b"), ["anew"]);
    assert_eq!(context(&saver), ["anew"]);
    assert_eq!(state(&saver, "a"), ["q", "1"]);
}

#[test]
fn a_value_is_stored_with_the_checkpoint_that_brought_it() {
    let saver = python();
    let first = json!({"id": "a", "versions": {"x": 1, "y": 1},
        "values": {"x": {"data": "large"}, "y": {"data": 1}}});
    saver.put("t", checkpoint(first)).unwrap();
    for (id, parent) in [("b", "a"), ("c", "b")] {
        let next = json!({"id": id, "parent": parent, "versions": {"x": 1, "y": id},
            "values": {"y": {"data": id}}, "unchanged": ["x"]});
        saver.put("t", checkpoint(next)).unwrap();
    }
    let found = saver.get("t", "", None).unwrap().unwrap();
    assert_eq!(
        (found.id.as_str(), found.parent.as_deref()),
        ("c", Some("b"))
    );
    let found = serde_json::to_value(&found.values).unwrap();
    assert_eq!(found, json!({"x": {"data": "large"}, "y": {"data": "c"}}));
    let sql = "SELECT count(*) AS n FROM v_messages WHERE payload LIKE '%large%'";
    let rows = saver
        .store()
        .database()
        .query_within(sql, QueryLimits::default())
        .unwrap();
    assert_eq!(
        serde_json::to_value(rows.records()).unwrap(),
        json!([{"n": 1}])
    );
    // A channel whose version was never stored is reported as missing.
    let other = json!({"id": "d", "parent": "c", "versions": {"x": 9}, "unchanged": ["x"]});
    let error = saver.put("t", checkpoint(other)).unwrap_err();
    assert!(matches!(error, Error::Missing(channels) if channels == ["x"]));
    assert!(saver.get("t", "", Some("d")).unwrap().is_none());
    // A channel that lost its value has none.
    let gone =
        json!({"id": "e", "parent": "c", "versions": {"x": 2, "y": "c"}, "unchanged": ["y"]});
    saver.put("t", checkpoint(gone)).unwrap();
    let found = saver.get("t", "", Some("e")).unwrap().unwrap();
    assert_eq!(found.values.keys().collect::<Vec<_>>(), ["y"]);
}

#[test]
fn writes_are_kept_by_index_and_special_ones_replaced() {
    let saver = python();
    // A task may finish before its checkpoint is stored.
    let write = |task: &str, path: &str, writes_: Any| {
        let new = json!({"id": "a", "task": task, "path": path, "writes": writes_});
        saver.put_writes("t", writes(new)).unwrap();
    };
    write("2", "b", json!([[0, "x", "late"]]));
    write("1", "c", json!([[0, "x", 1], [-1, "__error__", "first"]]));
    write(
        "1",
        "c",
        json!([[0, "x", 2], [1, "y", 3], [-1, "__error__", "second"]]),
    );
    write("1", "c", json!([[0, "x", 4]]));
    saver.put("t", checkpoint(json!({"id": "a"}))).unwrap();
    let found = saver.get("t", "", None).unwrap().unwrap();
    let found = serde_json::to_value(&found.writes).unwrap();
    let expected = json!([
        ["2", "x", "late"],
        ["1", "__error__", "second"],
        ["1", "x", 1],
        ["1", "y", 3],
    ]);
    assert_eq!(found, expected);
}

#[test]
fn a_list_of_checkpoints_is_filtered_and_the_newest_come_first() {
    let saver = python();
    for (thread, ns, id, step) in [
        ("t", "", "c1", 1),
        ("t", "", "c3", 3),
        ("t", "sub/x:1|y", "c2", 2),
        ("u", "", "c4", 1),
    ] {
        let new =
            json!({"ns": ns, "id": id, "metadata": {"step": step, "run_id": format!("r{step}")}});
        saver.put(thread, checkpoint(new)).unwrap();
    }
    let list = |query: Any| -> Vec<String> {
        let query: ListQuery = serde_json::from_value(query).unwrap();
        let found = saver.list(&query).unwrap();
        found.into_iter().map(|found| found.id).collect()
    };
    assert_eq!(list(json!({})), ["c4", "c3", "c2", "c1"]);
    assert_eq!(list(json!({"thread": "t"})), ["c3", "c2", "c1"]);
    assert_eq!(list(json!({"thread": "t", "ns": ""})), ["c3", "c1"]);
    assert_eq!(list(json!({"thread": "t", "ns": "sub/x:1|y"})), ["c2"]);
    assert_eq!(
        list(json!({"thread": "t", "ns": "sub"})),
        Vec::<String>::new()
    );
    assert_eq!(list(json!({"before": "c3", "limit": 1})), ["c2"]);
    assert_eq!(list(json!({"filter": {"step": 1.0}})), ["c4", "c1"]);
    assert_eq!(
        list(json!({"filter": {"nothing": 1}})),
        Vec::<String>::new()
    );
    assert_eq!(list(json!({"thread": "nobody"})), Vec::<String>::new());
    assert_eq!(list(json!({"limit": 0})), Vec::<String>::new());
    assert_eq!(saver.delete_for_runs(&["r1".into()]).unwrap(), 2);
    assert_eq!(list(json!({})), ["c3", "c2"]);
    assert!(saver.get("t", "", Some("c1")).unwrap().is_none());
    // An id may be used again.
    saver.put("t", checkpoint(json!({"id": "c1"}))).unwrap();
    assert_eq!(list(json!({"thread": "t", "ns": ""})), ["c3", "c1"]);
}

#[test]
fn prune_keeps_what_a_delta_channel_needs() {
    let saver = python();
    for (id, parent, values) in [
        ("a", None, json!({})),
        ("b", Some("a"), json!({"log": {"data": "seed"}})),
        ("c", Some("b"), json!({})),
        ("d", Some("c"), json!({})),
    ] {
        let new = json!({"id": id, "parent": parent, "values": values, "versions": {"log": id},
            "metadata": {"counters_since_delta_snapshot": {"log": [1, 1]}}});
        saver.put("t", checkpoint(new)).unwrap();
        let new = json!({"id": id, "task": "1", "writes": [[0, "log", id], [1, "other", 0]]});
        saver.put_writes("t", writes(new)).unwrap();
    }
    let history = |saver: &Checkpoints| saver.history("t", "", None, &["log".into()]).unwrap();
    let found = history(&saver);
    let expected = json!({"log": {
        "writes": [["1", "log", "b"], ["1", "log", "c"]], "seed": {"data": "seed"},
    }});
    assert_eq!(serde_json::to_value(&found).unwrap(), expected);
    assert_eq!(saver.prune("t", Strategy::KeepLatest).unwrap(), 1);
    assert_eq!(history(&saver), found);
    assert_eq!(saver.prune("t", Strategy::Delete).unwrap(), 3);
    assert!(saver.get("t", "", None).unwrap().is_none());
    assert_eq!(saver.prune("nobody", Strategy::Delete).unwrap(), 0);
}

#[test]
fn a_checkpoint_that_is_put_again_is_replaced() {
    let saver = python();
    for n in [1, 2] {
        let new = json!({"id": "a", "metadata": {"n": n}});
        saver.put("t", checkpoint(new)).unwrap();
    }
    let found = saver.get("t", "", None).unwrap().unwrap();
    assert_eq!(found.metadata["n"].as_str(), "2");
    let all = saver.list(&ListQuery::default()).unwrap();
    assert_eq!(all.len(), 1);
}

#[test]
fn a_thread_of_the_other_language_is_refused_and_its_messages_are_shared() {
    let saver = python();
    put_list(&saver, "a", None, 1, json!([{"new": [user("q")]}]));
    let other = Checkpoints::new(saver.store().clone(), Language::JavaScript);
    let refused = [
        other.get("t", "", None).err(),
        other.put("t", checkpoint(json!({"id": "b"}))).err(),
        other
            .put_writes("t", writes(json!({"id": "a", "task": "1", "writes": []})))
            .err(),
        other.prune("t", Strategy::Delete).err(),
        other.copy_thread("t", "u").err(),
    ];
    for error in refused {
        assert!(
            matches!(
                error,
                Some(Error::Foreign {
                    theirs: "Python",
                    ..
                })
            ),
            "{error:?}"
        );
    }
    assert_eq!(other.list(&ListQuery::default()).unwrap(), []);
    assert_eq!(context(&other), ["q"]);
}

#[test]
fn what_was_remembered_of_a_deleted_thread_is_refused() {
    let saver = python();
    let stored = put_list(&saver, "a", None, 1, json!([{"new": [user("q")]}]));
    saver.delete_thread("t", crate::OnDelete::Hide).unwrap();
    assert!(saver.get("t", "", None).unwrap().is_none());
    assert_eq!(context(&saver), Vec::<String>::new());
    let again = json!({"id": "b", "session": stored.session, "versions": {"messages": 1},
        "values": {"messages": {"list": [{"kept": segments(&stored)}]}}});
    put_list(&saver, "a", None, 1, json!([{"new": [user("anew")]}]));
    let error = saver.put("t", checkpoint(again)).unwrap_err();
    assert!(matches!(error, Error::Stale(_)), "{error}");
    saver.delete_thread("t", crate::OnDelete::Erase).unwrap();
    assert!(saver.get("t", "", None).unwrap().is_none());
    saver
        .delete_thread("nobody", crate::OnDelete::Hide)
        .unwrap();
    saver
        .delete_thread("nobody", crate::OnDelete::Erase)
        .unwrap();
}

#[test]
fn a_copy_holds_everything_and_goes_its_own_way() {
    let saver = python();
    let first = put_list(
        &saver,
        "a",
        None,
        1,
        json!([{"new": [user("q"), answer("1")]}]),
    );
    let kept = segments(&first);
    put_list(
        &saver,
        "b",
        Some("a"),
        2,
        json!([{"kept": kept, "new": [user("2")]}]),
    );
    let new = json!({"id": "b", "task": "1", "writes": [[0, "x", 1]]});
    saver.put_writes("t", writes(new)).unwrap();
    saver.copy_thread("t", "u").unwrap();
    for id in ["a", "b"] {
        let [one, other] =
            ["t", "u"].map(|thread| saver.get(thread, "", Some(id)).unwrap().unwrap());
        assert_eq!((&one.values, &one.writes), (&other.values, &other.writes));
    }
    let next = json!({"id": "c", "parent": "b", "versions": {"messages": 3}, "values": {"messages":
        {"list": [{"kept": [[["loop-1", 0], ["loop-2", 0]]], "new": [answer("mine")]}]}}});
    saver.put("u", checkpoint(next)).unwrap();
    assert_eq!(context(&saver), ["q", "1", "2"]);
    assert!(matches!(
        saver.copy_thread("t", "u"),
        Err(Error::ThreadExists(_))
    ));
    saver.copy_thread("nobody", "v").unwrap();
    assert!(saver.get("v", "", None).unwrap().is_none());
    let report = loopstore_verify::verify(saver.store().database()).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn names_that_no_key_holds_are_refused_or_shortened() {
    let saver = python();
    let long = "n".repeat(4_000);
    for ns in [&*long, "a/b", "a", "%"] {
        let new = json!({"ns": ns, "id": "x/y", "metadata": {"ns": ns}});
        saver.put("t", checkpoint(new)).unwrap();
        let task = json!({"ns": ns, "id": "x/y", "task": long, "writes": [[0, "x", ns]]});
        saver.put_writes("t", writes(task)).unwrap();
    }
    for ns in [&*long, "a/b", "a", "%"] {
        let found = saver.get("t", ns, None).unwrap().unwrap();
        assert_eq!((found.ns.as_str(), found.writes.len()), (ns, 1));
    }
    for id in ["", &long] {
        let error = saver.put("t", checkpoint(json!({"id": id}))).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(saver.get("t", "", Some(id)).unwrap().is_none());
    }
    assert!(matches!(
        saver.put("", checkpoint(json!({"id": "a"}))),
        Err(Error::Id(_))
    ));
    assert!(matches!(saver.get(&long, "", None), Err(Error::Id(_))));
}

#[test]
fn places_that_are_not_there_are_errors() {
    let saver = python();
    put_list(&saver, "a", None, 1, json!([{"new": [user("q")]}]));
    for kept in [
        json!([[["loop-9", 0], ["loop-9", 0]]]),
        json!([[["loop-1", 0], ["loop-1", 77]]]),
    ] {
        let form = json!({"id": "b", "versions": {"messages": 1},
            "values": {"messages": {"list": [{"kept": kept, "new": [user("x")]}]}}});
        saver.put("t", checkpoint(form)).unwrap_err();
    }
    assert!(saver.get("t", "", Some("b")).unwrap().is_none());
    let broken = r#"{"id": "b", "checkpoint": 1, "versions": {}, "metadata": {}, "nonsense": 1}"#;
    assert!(serde_json::from_str::<NewCheckpoint>(broken).is_err());
    let broken = r#"{"kept": [[]]}"#;
    assert!(serde_json::from_str::<crate::ListPart>(broken).is_err());
}

#[test]
fn a_compaction_and_notes_of_others_change_no_state() {
    let saver = python();
    let long = "the words of a long answer ".repeat(200);
    let mut stored = put_list(&saver, "a", None, 0, json!([{"new": [user("0")]}]));
    for n in 1..40 {
        let text = format!("{n} {long}");
        let message = if n % 2 == 0 {
            user(&text)
        } else {
            answer(&text)
        };
        let parts = json!([{"kept": segments(&stored), "new": [message]}]);
        stored = put_list(&saver, &format!("b{n:03}"), None, n, parts);
    }
    let before = state(&saver, "b039");
    let handle = saver.store().session("t").unwrap();
    let handle = handle.with_policy(loopstore::Policy::new(20_000));
    assert!(
        !handle.prepare().unwrap().was_compacted() || handle.context().unwrap().tokens < 20_000
    );
    handle
        .append([Message::user("a note of another program")])
        .unwrap();
    assert_eq!(state(&saver, "b039"), before);
    let parts = json!([{"kept": segments(&stored), "new": [user("on")]}]);
    put_list(&saver, "c", None, 99, parts);
    let mut after = before;
    after.push("on".into());
    assert_eq!(state(&saver, "c"), after);
}
