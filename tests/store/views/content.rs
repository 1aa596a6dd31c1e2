//! Views of recorded content: sessions, loops, turns, messages, calls, usage.

use loopstore::{ContinuationKind, LoopId, LoopRecord, LoopStatus};
use serde_json::{Value, json};

use crate::views::all_views;
use crate::views::stage::{Stage, assistant, call, result, time, user};

#[test]
fn sessions_and_loops_show_their_totals() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.turns(root, 3);
    stage.append(
        root,
        json!([{"role": "extension", "kind": "note", "data": 1}]),
    );
    let next = stage.start("next", Some(("root", Some(1))));
    stage.turns(next, 1);
    let mut rows = stage.rows("SELECT * FROM v_sessions");
    // The note has the time of its append.
    let last_active = rows[0][4].take();
    assert!(last_active.as_str().unwrap() > "2026-01-01T00:00:02.500Z");
    let wanted = json!([
        "s",
        "agent",
        "A title",
        "2026-01-01T00:00:00.000Z",
        null,
        "next",
        2,
        4,
        8,
        44,
        null,
        "four",
        null,
        null
    ]);
    assert_eq!(json!(rows[0]), wanted);
    assert_eq!(
        stage.lines("SELECT * FROM v_loops"),
        [
            "s|root|||Initial|Completed|2026-01-01T00:00:01Z||3|6|33|0|four|",
            "s|next|root|1|Default|Completed|2026-01-01T00:00:01Z||1|2|11|0|four|",
        ]
    );
}

#[test]
fn continuation_kinds_read_plainly() {
    let stage = Stage::new("s");
    let kinds = [
        ContinuationKind::Initial,
        ContinuationKind::Default,
        ContinuationKind::Compaction,
        ContinuationKind::Rerun {
            tag: "it's \"x\"".into(),
        },
        ContinuationKind::Branch { tag: String::new() },
        ContinuationKind::Other(loopstore::Json::parse(r#"{"Later":1}"#).unwrap()),
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let mut record = LoopRecord::new(LoopId::new(format!("l{at}")).unwrap(), None);
        record.continuation_kind = Some(kind);
        stage.start_as(&record);
    }
    assert_eq!(
        stage.lines("SELECT continuation_kind FROM v_loops ORDER BY loop_id"),
        [
            "Initial",
            "Default",
            "Compaction",
            "Rerun:it's \"x\"",
            "Branch:",
            "{\"Later\":1}"
        ]
    );
}

#[test]
fn turns_show_differences_and_who_triggered_them() {
    let stage = Stage::new("s");
    let mut record = LoopRecord::new(LoopId::new("b").unwrap(), None);
    record.continuation_kind = Some(ContinuationKind::Branch { tag: "t".into() });
    record.status = LoopStatus::Completed;
    let branch = stage.start_as(&record);
    let mut answer = assistant(0, "eight ch");
    answer["usage"] = json!({"input": 100, "output": 7});
    let mut second = assistant(0, "");
    second["usage"] = json!({"input": 5, "output": 1});
    stage.append(
        branch,
        json!([
            answer,
            second,
            user(5, "four"),
            assistant(5, "eight ch"),
            assistant(6, "")
        ]),
    );
    assert_eq!(
        stage.lines("SELECT * FROM v_turns"),
        [
            "s|b|0|0|Branch|2026-01-01T00:00:00.500Z|2026-01-01T00:00:00.500Z|2|10|105|8",
            "s|b|1|5|User|2026-01-01T00:00:05.000Z|2026-01-01T00:00:05.500Z|2|11|0|0",
            "s|b|2|6|Continuation|2026-01-01T00:00:06.500Z|2026-01-01T00:00:06.500Z|1|4|0|0",
        ]
    );
}

#[test]
fn a_message_shows_its_whole_text_and_json() {
    let stage = Stage::new("s");
    let root = stage.start("l", None);
    let long = "long \"quoted\"\nline \\ \u{1F600} ".repeat(20);
    let message = json!({"role": "user", "content": [
        {"type": "text", "text": "first"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
        {"type": "text", "text": long},
        {"type": "strange", "text": "not shown"},
        "a block that is not an object",
        {"type": "text", "text": "last"},
    ], "timestamp": 1_767_225_600_123_i64});
    stage.append(
        root,
        json!([
            {"role": "extension", "kind": "system", "data": {"text": "rules"}},
            message,
            {"role": "assistant", "content": []},
            {"role": "extension", "kind": "note", "data": null},
        ]),
    );
    let rows = stage.rows(
        "SELECT seq, turn, role, text, created_at, payload, bytes FROM v_messages ORDER BY seq",
    );
    let payload =
        |row: &[Value]| -> Value { serde_json::from_str(row[5].as_str().unwrap()).unwrap() };
    assert_eq!(
        rows[0][..4],
        [json!(0), json!(null), json!("extension"), json!(null)]
    );
    // The time of the append, since the message has none of its own.
    assert!(rows[0][4].as_str().unwrap() > "2026-01-01");
    assert_eq!(payload(&rows[0])["data"]["text"], "rules");
    assert_eq!(rows[1][1], 0);
    assert_eq!(rows[1][3], format!("first\n{long}\nlast"));
    assert_eq!(rows[1][4], "2026-01-01T00:00:00.123Z");
    let shown = payload(&rows[1]);
    assert_eq!(shown["content"][2]["text"], long);
    let image = &shown["content"][1];
    assert_eq!(image["type"], "image");
    assert_eq!(image["mimeType"], "image/png");
    assert_eq!(image["bytes"], 5);
    assert_eq!(image["blob"].as_str().unwrap().len(), 64);
    assert_eq!(image.get("data"), None);
    assert_eq!(rows[2][1..4], [json!(1), json!("assistant"), json!(null)]);
    assert_eq!(rows[3][1..4], [json!(1), json!("extension"), json!(null)]);
}

#[test]
fn removed_and_damaged_messages_never_make_a_view_fail() {
    let stage = Stage::new("s");
    let gone = stage.start("gone", None);
    stage.turns(gone, 2);
    let damaged = stage.start("damaged", Some(("gone", None)));
    let mut answer = call(0, &["c"]);
    answer["usage"] = json!({"input": 9_223_372_036_854_775_807_i64, "output": 1});
    let mut huge = assistant(1, "");
    huge["timestamp"] = json!(9_223_372_036_854_775_807_i64);
    huge["usage"] = json!({"input": 9_223_372_036_854_775_807_i64, "output": 1});
    let messages = json!([
        user(0, &"x".repeat(100)),
        answer,
        result(0, "c", "done"),
        huge,
        user(2, "")
    ]);
    stage.append(damaged, messages);
    stage.maintain(
        "UPDATE messages SET head = NULL, body = NULL, salt = NULL
             WHERE id >> 32 = (SELECT key FROM loops WHERE loop_id = 'gone');
         UPDATE messages SET head = 'no JSON' WHERE role = 0 AND head IS NOT NULL;
         UPDATE messages SET body_block = -1 WHERE body IS NOT NULL;
         UPDATE loops SET kind = 'no JSON' WHERE loop_id = 'damaged'",
    );
    for view in all_views() {
        stage.rows(&format!("SELECT * FROM {view}"));
    }
    assert_eq!(
        stage.lines("SELECT loop_id, archived, continuation_kind FROM v_loops"),
        ["gone|1|Initial", "damaged|0|no JSON"]
    );
    assert_eq!(
        stage.lines(
            "SELECT DISTINCT payload, text, tokens > 0 FROM v_messages WHERE loop_id = 'gone'"
        ),
        ["||1"]
    );
    assert_eq!(
        stage.lines("SELECT result_text FROM v_tool_calls"),
        ["done"]
    );
    assert_eq!(stage.lines("SELECT input FROM v_usage"), ["1000000000000"]);
    assert_eq!(
        stage.lines("SELECT started_at FROM v_turns WHERE loop_id = 'damaged' AND turn = 1"),
        [""]
    );
}

#[test]
fn every_call_meets_its_result() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    stage.append(root, json!([user(0, "go"), call(0, &["a", "a\"'b"])]));
    let mut failed = result(0, "a\"'b", "no");
    failed["isError"] = json!(true);
    failed["content"] = json!([{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]);
    stage.append(root, json!([failed, result(0, "a", "yes")]));
    stage.append(root, json!([call(1, &["late", "never"])]));
    stage.append(
        root,
        json!([
            user(2, "wait"),
            result(2, "late", "late"),
            call(2, &["next"])
        ]),
    );
    let child = stage.start("child", Some(("root", None)));
    stage.append(
        child,
        json!([user(0, "on"), result(0, "next", "in the child")]),
    );
    // The id of an answered call is used again.
    stage.append(child, json!([call(1, &["a"]), result(1, "a", "again")]));
    assert_eq!(
        stage.lines(
            "SELECT loop_id, turn, tool_call_id, tool_name, arguments, call_seq, result_seq,
                 result_text, is_error, result_loop_id FROM v_tool_calls"
        ),
        [
            "root|0|a|run|{\"id\":\"a\"}|1|3|yes|0|root",
            "root|0|a\"'b|run|{\"id\":\"a\\\"'b\"}|1|2|no\nway|1|root",
            "root|1|late|run|{\"id\":\"late\"}|4|6|late|0|root",
            "root|1|never|run|{\"id\":\"never\"}|4||||",
            "root|2|next|run|{\"id\":\"next\"}|7|1|in the child|0|child",
            "child|1|a|run|{\"id\":\"a\"}|2|3|again|0|child",
        ]
    );
}

#[test]
fn calls_of_messages_without_turns_meet_their_results() {
    let stage = Stage::new("s");
    let root = stage.start("root", None);
    let bare = |mut message: Value| {
        message.as_object_mut().unwrap().remove("turnId");
        message
    };
    stage.append(
        root,
        json!([
            bare(call(0, &["a", "b"])),
            bare(result(0, "b", "B")),
            bare(result(0, "a", "A")),
            bare(call(0, &["c"])),
            bare(call(0, &["d"])),
            bare(result(0, "d", "D")),
        ]),
    );
    assert_eq!(
        stage.lines("SELECT tool_call_id, turn, result_seq, result_text FROM v_tool_calls"),
        ["a|0|2|A", "b|0|1|B", "c|3||", "d|4|5|D"]
    );
}

#[test]
fn usage_is_summed_by_loop_and_model() {
    let stage = Stage::new("s");
    let root = stage.start("l", None);
    let answer = |model: &str, usage: Value| {
        let mut message = assistant(0, "x");
        message["model"] = json!(model);
        message["usage"] = usage;
        message
    };
    stage.append(
        root,
        json!([
            answer("a", json!({"input": 10, "output": 5, "cache_read": 3, "cache_write": 2})),
            answer("a", json!({"input": 1, "output": 1, "reasoning": 1, "total_tokens": 50})),
            answer("b", json!({"input": 1, "output": 2})),
            assistant(0, "no usage"),
            {"role": "assistant", "content": [], "usage": {"input": 4, "output": 0}},
        ]),
    );
    assert_eq!(
        stage.lines("SELECT * FROM v_usage ORDER BY model"),
        [
            "s|l||4|0|0|0|0|4",
            "s|l|a|11|6|3|2|1|70",
            "s|l|b|1|2|0|0|0|3"
        ]
    );
}

#[test]
fn ids_are_only_text() {
    let odd = "'; DROP TABLE messages; -- \"`[%_";
    let stage = Stage::new(odd);
    let mut record = LoopRecord::new(LoopId::new(odd).unwrap(), None);
    record.started_at = time("when it began");
    let root = stage.start_as(&record);
    stage.turns(root, 1);
    let quoted = odd.replace('\'', "''");
    for view in ["v_loops", "v_messages", "v_turns"] {
        let sql = format!(
            "SELECT DISTINCT loop_id FROM {view}
             WHERE session_id = '{quoted}' AND loop_id = '{quoted}'"
        );
        assert_eq!(stage.lines(&sql), [odd], "{view}");
    }
}

#[test]
fn changed_files_and_commits_are_named_by_their_calls() {
    let stage = Stage::new("s");
    let key = stage.start("l", None);
    let block = |id: &str, name: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments});
    let patch = "*** Begin Patch\n*** Add File: n\\x.rs\n+*** Update File: inside\n*** Update File: o\r\n*** Move to: p q\n*** Delete File: z\n*** Foo: bar\n*** End Patch";
    let output = "[main (root-commit) 1a2b3c4] Add a \\n lamp\n 1 file\n[detached HEAD abcdef0] x] y\n[nothex xyz1234] no\n[ 1234567] no\n[a] b 1234567] no";
    let calls = [
        (
            "c0",
            block(
                "c0",
                "Write",
                json!({"file_path": "a\"b\\n.py", "content": "x"}),
            ),
            "ok",
        ),
        (
            "c1",
            block(
                "c1",
                "Edit",
                json!({"path": "b", "old_string": "x", "content": "y"}),
            ),
            "ok",
        ),
        ("c2", block("c2", "Read", json!({"file_path": "c"})), "ok"),
        ("c3", block("c3", "apply_patch", json!(patch)), "ok"),
        (
            "c4",
            block("c4", "shell", json!({"command": ["apply_patch", patch]})),
            "ok",
        ),
        (
            "c5",
            block("c5", "Bash", json!({"command": "git commit -m x"})),
            output,
        ),
        (
            "c6",
            block("c6", "Bash", json!({"command": "cat notes"})),
            output,
        ),
        ("c7", block("c7", "x", json!([1, null])), "ok"),
    ];
    for (turn, (id, block, output)) in (0..).zip(calls) {
        let mut answer = call(turn, &[id]);
        answer["content"] = json!([block]);
        stage.append(key, json!([answer, result(turn, id, output)]));
    }
    let files = "SELECT tool_call_id, path, action FROM v_file_changes";
    let of_patch = ["n\\x.rs|created", "o|edited", "p q|moved", "z|deleted"];
    let mut expected = vec!["c0|a\"b\\n.py|written".to_owned(), "c1|b|edited".to_owned()];
    for id in ["c3", "c4"] {
        expected.extend(of_patch.iter().map(|file| format!("{id}|{file}")));
    }
    assert_eq!(stage.lines(files), expected);
    assert_eq!(
        stage.lines("SELECT turn, commit_id, branch, subject FROM v_commits"),
        ["5|1a2b3c4|main|Add a \\n lamp", "5|abcdef0||x] y"]
    );
}
