//! Sessions of Gemini CLI.

use std::path::Path;
use std::sync::Arc;

use insta::assert_snapshot;
use loopstore::{Database, Message, SqliteStore, Store};
use serde_json::{Value, json};

use crate::support::recording::real_transcripts;
use crate::tools::recorder::{Recorder, importer};
use crate::tools::stored::{content_of, import, is_sound, rows, shown, store};

#[test]
fn calls_and_results_come_out_of_the_answer() {
    let recorded = Recorder::of_fixture("gemini-cli", "tide.json");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session tide-1
      loop m1 Initial Completed
        - note warning
        0 user When is high tide?
        0 assistant Looking. [g1 g2]
        0 toolResult 06:12 <g1 read>
        0 toolResult no such tool <g2 run failed>
        - note info
        1 assistant At 06:12.
      loop m4 Default after m1:1 Running
        0 user And low tide?
        0 assistant  [g3]
    "##);
}

#[test]
fn an_image_within_a_response_is_of_the_result() {
    let call = r#"{"id":"c","name":"read","args":{"path":"a.png"},"status":"success","result":[{"functionResponse":
        {"id":"c","name":"read","response":{"output":"1 image"},"parts":[{"inlineData":{"data":"iVBORw0KGgo=","mimeType":"image/png"}}]}}]}"#
        .replace('\n', "");
    let lines = [
        r#"{"sessionId":"g","projectHash":"h","startTime":"2026-01-01T10:00:00.000Z","lastUpdated":"2026-01-01T10:00:00.000Z","kind":"main"}"#,
        r#"{"id":"u1","timestamp":"2026-01-01T10:00:01.000Z","type":"user","content":[{"text":"Look."}]}"#,
        &format!(r#"{{"id":"m1","timestamp":"2026-01-01T10:00:02.000Z","type":"gemini","content":"","toolCalls":[{call}]}}"#),
    ]
    .join("\n");
    let recorded = Recorder::of("gemini-cli", Path::new("g.jsonl"), lines.as_bytes());
    let content = recorded.json_of(2)["content"].clone();
    let kinds: Vec<&str> = content
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["text", "image"], "{content}");
}

#[test]
fn the_last_writing_of_a_message_counts() {
    let recorded = Recorder::of_fixture("gemini-cli", "ebb.jsonl");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r#"
    session ebb-1 "Boats"
      loop m1 Initial Completed
        - note session
        0 user List the boats
        - note set
        0 assistant One moment. [h1]
        0 toolResult Gull <h1 ls>
        1 assistant Gull and Tern.
        - note set
    "#);
}

fn rewound() -> Vec<String> {
    let text = std::fs::read_to_string("../../tests/fixtures/gemini-cli/rewound.jsonl").unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Imports lines, and returns the context.
fn context_of(lines: &[String]) -> (Recorder, Vec<String>) {
    let bytes = lines.join("\n") + "\n";
    let store = store();
    import(&store, importer("gemini-cli"), "a.jsonl", bytes.as_bytes()).unwrap();
    is_sound(&store, &bytes);
    let recorded = Recorder::of("gemini-cli", "a.jsonl", bytes.as_bytes());
    (recorded, shown(&store, "flood-1"))
}

#[test]
fn messages_that_were_taken_back_or_replaced_are_another_path_or_a_compaction() {
    let recorded = Recorder::of_fixture("gemini-cli", "rewound.jsonl");
    assert_eq!(recorded.skips(), [""; 0]);
    assert_snapshot!(recorded.outline(), @r##"
    session flood-1
      loop u1 Initial Completed
        - note session
        - note set
        0 user <session_context>
        0 user Which boats are in?
        0 assistant I look. [k1]
        0 toolResult Gull <k1 ls>
        - note response
        1 assistant The Gull.
      loop u2 Default after u1:1 Completed
        0 user Sell her
        0 assistant Sold.
      loop line-10 {Branch:{tag:line-10}} after u1:1 Completed
        - note rewind
        - note set
        0 user Paint her
        0 assistant Which colour?
      loop u4 Default after line-10:0 Completed
        0 user Blue
        0 assistant Blue it is.
      ? compaction in line-10@4: summary of 2 keeps line-10:0
    "##);
}

#[test]
fn the_context_is_the_list_of_messages_as_it_stands() {
    let lines = rewound();
    let frame = "<session_context>\nThe quay is at /quay.\n</session_context>";
    let first = [
        frame,
        "Which boats are in?",
        "I look. k1",
        "Gull",
        "The Gull.",
    ];
    let until = |line: usize| context_of(&lines[..line]).1;
    assert_eq!(until(9), [&first[..], &["Sell her", "Sold."]].concat());
    // Reverted messages are gone even if nothing follows.
    assert_eq!(until(10), first);
    assert_eq!(until(11), first);
    assert_eq!(
        until(13),
        [&first[..], &["Paint her", "Which colour?"]].concat()
    );
    let summary = [
        "<state_snapshot>The Gull is in.</state_snapshot>",
        "Got it.",
    ];
    let kept = [&summary[..], &["Paint her", "Which colour?"]].concat();
    assert_eq!(until(14), kept);
    assert_eq!(until(16), [&kept[..], &["Blue", "Blue it is."]].concat());
}

#[test]
fn going_back_to_what_is_not_there_leaves_nothing() {
    let mut lines = rewound();
    lines.push(r#"{"$rewindTo":"nowhere"}"#.into());
    let (recorded, context) = context_of(&lines);
    assert_eq!((recorded.skips().len(), context.len()), (0, 0));
    lines.push(r#"{"$rewindTo":"u4"}"#.into());
    lines.push(r#"{"$rewindTo":7}"#.into());
    lines.push(r#"{"$set":{"messages":[]}}"#.into());
    lines.push(r#"{"$set":{"messages":"none"}}"#.into());
    let (recorded, context) = context_of(&lines);
    assert_eq!((recorded.skips().len(), context.len()), (0, 0));
    let after = r#"{"id":"u9","timestamp":"2026-06-02T06:00:00.000Z","type":"user","content":[{"text":"Anew"}]}"#;
    lines.push(after.into());
    assert_eq!(context_of(&lines).1, ["Anew"]);
}

#[test]
fn a_list_that_ends_earlier_goes_back_and_one_in_the_middle_of_a_turn_is_told() {
    let lines = rewound();
    let mut cut = lines[..9].to_vec();
    // An interrupted prompt is removed from the list.
    cut.push(lines[10].clone());
    let (recorded, context) = context_of(&cut);
    assert_eq!((recorded.skips().len(), context.len()), (0, 5));
    cut.push(r#"{"$rewindTo":"g1"}"#.into());
    let (recorded, context) = context_of(&cut);
    assert_eq!(recorded.skips().len(), 1, "{:?}", recorded.skips());
    assert_eq!(context.len(), 4);
    // A rewind to the first prompt: the messages before it stay.
    let mut cut = lines[..9].to_vec();
    cut.push(r#"{"$rewindTo":"u1"}"#.into());
    let (recorded, context) = context_of(&cut);
    assert_eq!((recorded.skips().len(), context.len()), (0, 1));
    // A rewind to a message that only the summary contains.
    let mut cut = lines[..16].to_vec();
    cut.push(r#"{"$rewindTo":"s2"}"#.into());
    let (recorded, _) = context_of(&cut);
    assert_eq!(recorded.skips().len(), 1, "{:?}", recorded.skips());
}

#[test]
fn a_list_that_cannot_be_read_takes_nothing_back() {
    let mut lines = rewound();
    lines.truncate(9);
    let before = context_of(&lines).1;
    for odd in [
        r#"{"$set":{"messages":[{"type":"user","content":[{"text":"Without an id"}]}]}}"#,
        r#"{"$set":{"messages":["none"]}}"#,
    ] {
        let lines = [&lines[..], &[odd.to_owned()]].concat();
        let (recorded, context) = context_of(&lines);
        assert_eq!((recorded.skips().len(), &context), (1, &before), "{odd}");
    }
}

#[test]
fn responses_without_ids_are_all_kept() {
    let mut lines = rewound();
    lines.truncate(2);
    let response = |output: &str| {
        format!(r#"{{"functionResponse":{{"name":"ls","response":{{"output":"{output}"}}}}}}"#)
    };
    let parts = [response("Gull"), response("Tern")].join(",");
    lines.push(format!(
        r#"{{"id":"r1","timestamp":"2026-06-02T06:00:00.000Z","type":"user","content":[{parts}]}}"#
    ));
    let context = context_of(&lines).1;
    assert!(
        context.ends_with(&["Gull".into(), "Tern".into()]),
        "{context:?}"
    );
}

#[test]
fn a_response_in_the_users_name_is_a_result_once() {
    let mut lines = rewound();
    lines.truncate(7);
    // Without the version of the message that has the result in its call.
    lines[4] = lines[4].replace(r#""result":[{"functionResponse":{"id":"k1","name":"ls","response":{"output":"Gull"}}}],"status":"success""#, r#""status":"executing""#);
    let (recorded, context) = context_of(&lines);
    assert_eq!(context[2..], ["I look. k1", "Gull", "The Gull."]);
    assert_eq!(recorded.sessions[0].loops.len(), 1);
}

/// Returns a document without the messages from `end` on, and without the fields `cut` of its last message.
fn prefix(document: &Value, end: usize, cut: &[&str]) -> Vec<u8> {
    let mut document = document.clone();
    let messages = document["messages"].as_array_mut().unwrap();
    messages.truncate(end);
    let last = messages.last_mut().filter(|last| last["type"] == "gemini");
    if let Some(last) = last.and_then(Value::as_object_mut) {
        for key in cut {
            last.remove(*key);
        }
        // Without its results, as while its tools run.
        if let (true, Some(calls)) = (cut.is_empty(), last.get_mut("toolCalls")) {
            for call in calls.as_array_mut().unwrap() {
                let call = call.as_object_mut().unwrap();
                call.remove("result");
                call.insert("status".into(), "executing".into());
            }
        }
    }
    serde_json::to_vec_pretty(&document).unwrap()
}

/// Returns everything in a store except the ticks and times of its import.
fn stored_rows(store: &SqliteStore) -> Vec<String> {
    let mut all = content_of(store);
    for sql in [
        "SELECT loop_id, seq, turn, role, author, payload FROM v_messages ORDER BY 1, 2",
        "SELECT loop_id, parent_turn, status, turns, messages, tokens FROM v_loops ORDER BY 1",
        "SELECT loop_id, turn, messages, tokens FROM v_turns ORDER BY 1, 2",
    ] {
        all.extend(rows(store, sql));
    }
    all
}

fn grows_as_a_whole(document: &Value) {
    let whole = store();
    let bytes = serde_json::to_vec_pretty(document).unwrap();
    import(&whole, importer("gemini-cli"), "grow.json", &bytes).unwrap();
    let count = document["messages"].as_array().unwrap().len();
    let grown = store();
    for end in 1..=count {
        for cut in [&["toolCalls", "content"][..], &["toolCalls"], &[]] {
            let part = prefix(document, end, cut);
            import(&grown, importer("gemini-cli"), "grow.json", &part);
            is_sound(&grown, &format!("{end} {cut:?}"));
        }
        // One state by itself, then the whole.
        let twice = store();
        import(
            &twice,
            importer("gemini-cli"),
            "grow.json",
            &prefix(document, end, &["toolCalls"]),
        );
        import(&twice, importer("gemini-cli"), "grow.json", &bytes).unwrap();
        assert_eq!(
            stored_rows(&twice),
            stored_rows(&whole),
            "after {end} messages"
        );
    }
    import(&grown, importer("gemini-cli"), "grow.json", &bytes).unwrap();
    assert_eq!(stored_rows(&grown), stored_rows(&whole));
    let report = import(&grown, importer("gemini-cli"), "grow.json", &bytes).unwrap();
    assert_eq!((report.added_messages, report.revised), (0, 0));
    is_sound(&grown, "grown");
}

#[test]
fn a_document_that_grows_ends_as_the_whole_does() {
    let text = std::fs::read_to_string("../../tests/fixtures/gemini-cli/tide.json").unwrap();
    grows_as_a_whole(&serde_json::from_str(&text).unwrap());
}

#[test]
fn a_recorded_document_that_grows_ends_as_the_whole_does() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    let read = |name: &str| std::fs::read(folder.join("gemini-cli").join(name)).unwrap();
    let (first, second) = (read("grow-a.json"), read("grow-b.json"));
    let (grown, whole) = (store(), store());
    for bytes in [&first, &second] {
        import(&grown, importer("gemini-cli"), "grow.json", bytes).unwrap();
    }
    import(&whole, importer("gemini-cli"), "grow.json", &second).unwrap();
    assert_eq!(stored_rows(&grown), stored_rows(&whole));
    grows_as_a_whole(&serde_json::from_slice(&second).unwrap());
}

#[test]
fn an_answer_that_something_stands_behind_is_not_replaced() {
    let text = std::fs::read_to_string("../../tests/fixtures/gemini-cli/tide.json").unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let first = document["messages"].as_array().unwrap().iter();
    let answer = first.clone().position(|m| m["type"] == "gemini").unwrap();
    let store = store();
    let part = prefix(&document, answer + 1, &["toolCalls"]);
    import(&store, importer("gemini-cli"), "tide.json", &part).unwrap();
    let store = Arc::new(store);
    let database: Arc<dyn Database> = store.clone();
    let chat = Store::from(database).session("tide-1").unwrap();
    chat.append([Message::user("Go on here.")]).unwrap();
    let whole = serde_json::to_vec_pretty(&document).unwrap();
    import(&store, importer("gemini-cli"), "tide.json", &whole).unwrap();
    is_sound(&store, "behind");
    let sql = "SELECT seq, json_extract(payload, '$.content') FROM v_messages
        WHERE loop_id = 'm1' AND role = 'assistant' ORDER BY seq";
    let answers = rows(&store, sql);
    let all = rows(
        &store,
        "SELECT loop_id, seq, turn, role, text FROM v_messages ORDER BY 1, 2",
    );
    assert!(!answers[0].contains("toolCall"), "{answers:#?} {all:#?}");
}

/// A session with two calls; with `masked`, their results are masked, and a prompt follows.
fn with_results(masked: bool) -> Vec<u8> {
    let text = |number: usize| match masked {
        true => format!(
            "<tool_output_masked>\nOutput: line {number}\n\n[4,000 characters omitted]\n\nFull output: out-{number}.txt\n</tool_output_masked>"
        ),
        false => format!("line {number}\n").repeat(500),
    };
    let call = |number: usize| {
        let (id, text) = (format!("c{number}"), text(number));
        json!({"id": format!("m{number}"), "timestamp": format!("2026-01-01T10:00:0{}.000Z", number + 2),
            "type": "gemini", "content": "", "model": "gemini-3-pro",
            "toolCalls": [{"id": id, "name": "read_file", "args": {"path": format!("{number}.txt")},
                "status": "success", "result": [{"functionResponse":
                    {"id": id, "name": "read_file", "response": {"output": text}}}]}]})
    };
    let user = |id: &str, second: u32, text: &str| json!({"id": id, "timestamp": format!("2026-01-01T10:00:{second:02}.000Z"), "type": "user", "content": text});
    let answer = |id: &str, second: u32| {
        json!({"id": id, "timestamp": format!("2026-01-01T10:00:{second:02}.000Z"), "type": "gemini",
            "content": "Done.", "model": "gemini-3-pro"})
    };
    let mut messages = vec![
        user("u1", 1, "Read both."),
        call(1),
        call(2),
        answer("m3", 6),
    ];
    if masked {
        messages.extend([user("u2", 10, "And now?"), answer("m4", 11)]);
    }
    let document = json!({"sessionId": "mask-1", "projectHash": "h", "startTime": "2026-01-01T10:00:00.000Z",
        "lastUpdated": "2026-01-01T10:00:12.000Z", "messages": messages});
    serde_json::to_vec(&document).unwrap()
}

#[test]
fn results_that_were_masked_later_are_edits_and_keep_their_text() {
    let (store, gemini) = (store(), importer("gemini-cli"));
    import(&store, gemini, "mask.json", &with_results(false)).unwrap();
    let first = rows(
        &store,
        "SELECT payload FROM v_messages ORDER BY loop_id, seq",
    );
    for _ in 0..2 {
        let report = import(&store, gemini, "mask.json", &with_results(true)).unwrap();
        assert_eq!((report.revised, report.branches.len()), (0, 0));
        let runs = rows(
            &store,
            "SELECT trigger, strategy, outcome FROM v_compaction_runs",
        );
        let run = r#""edit" "gemini-cli" "committed""#;
        assert_eq!(runs, [run, run]);
    }
    assert_eq!(
        rows(
            &store,
            "SELECT payload FROM v_messages ORDER BY loop_id, seq"
        )[..first.len()],
        first
    );
    let edits = rows(
        &store,
        "SELECT action, text LIKE '<tool_output_masked>%' FROM v_edits",
    );
    assert_eq!(edits, [r#""replaced" 1"#, r#""replaced" 1"#]);
    is_sound(&store, "masked");
    // The answer after the masking saw the masked text, and the one before it saw the results.
    let database: Arc<dyn Database> = Arc::new(store);
    let chat = Store::from(database.clone()).session("mask-1").unwrap();
    let masked = |context: loopstore::Context| {
        let texts = context
            .messages
            .iter()
            .filter_map(|message| message.message())
            .flat_map(Message::texts);
        texts
            .filter(|text| text.contains("tool_output_masked"))
            .count()
    };
    let answers = chat
        .entries(&loopstore::EntryQuery::new().roles([loopstore::Role::Assistant]))
        .unwrap();
    let before = answers.iter().map(|answer| {
        let (loop_id, seq) = (answer.loop_id.clone(), answer.seq);
        masked(
            chat.context_as_of(loopstore::AsOf::Before { loop_id, seq })
                .unwrap(),
        )
    });
    assert_eq!(before.collect::<Vec<_>>(), [0, 0, 0, 2]);
}

#[test]
fn an_older_file_brings_nothing_new_after_a_masked_one() {
    let (store, gemini) = (store(), importer("gemini-cli"));
    import(&store, gemini, "mask.json", &with_results(true)).unwrap();
    let report = import(&store, gemini, "mask.json", &with_results(false)).unwrap();
    assert_eq!(
        (report.added_messages, report.revised, report.branches.len()),
        (0, 0, 0)
    );
    assert_eq!(
        rows(&store, "SELECT count(*) FROM v_compaction_runs"),
        ["0"]
    );
}
