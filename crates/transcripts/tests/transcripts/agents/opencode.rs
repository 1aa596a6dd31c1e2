//! OpenCode's exports.

use insta::assert_snapshot;
use loopstore::{AgentMessage, Author, Json, Role, SessionId, SqliteStore, Store};
use loopstore_transcripts::{Importer, OpenCode};
use serde_json::{Value, json};

use crate::agents::stage::*;
use crate::support::recording::{import, import_fixture, try_import};

const NAME: &str = "opencode/harbour.json";

fn document() -> Value {
    serde_json::from_slice(&std::fs::read(fixture(NAME)).unwrap()).unwrap()
}

#[test]
fn prompts_are_loops_and_tool_parts_are_calls_with_their_results() {
    let found = import_fixture(&OpenCode, NAME);
    assert_snapshot!(outline(&found), @r#"
    session Own(SessionId("ses_harbour1")) "Tide tables"
      loop ses_harbour1 after - Completed
        0 user "When is low tide?" + image image/png + other {"type":"file","mime":"text/plain","filename":"notes.txt","u…
        0 assistant thinking "Look at the table." signed + "I look at the table." + call call_a read {"filePath":"tides.csv"} + call call_b bash {"command":"tide --now"} model=otter-2 stop=toolUse usage={"input":1000,"output":90,"reasoning":20,"cache_read":60,"cache_write":40,"total_tokens":1210,"cost":0.0125}
        0 toolResult "04:10,0.3\n16:42,0.5" of read call_a
        0 toolResult "tide: not found" of bash call_b failed
        1 assistant "At 04:10." model=otter-2 stop=stop usage={"input":1200,"output":10,"reasoning":0,"cache_read":0,"cache_write":0,"cost":0}
      loop msg_04 after ses_harbour1 Running started ses_child2 by call_c
        0 user "Ask the other harbour too."
        0 assistant call call_c task {"prompt":"Low tide at the other harbour?"} model=otter-2 usage={"input":0,"output":0,"reasoning":0,"cache_read":0,"cache_write":0,"cost":0}
    "#);
    let session = &found.sessions[0].head.session;
    assert_eq!(
        session
            .parent_spawn_ref
            .as_ref()
            .unwrap()
            .parent_session_id
            .as_str(),
        "ses_port0"
    );
    assert_eq!(
        session.created_at.as_ref().unwrap().as_str(),
        "2026-02-02T02:40:00Z"
    );
    let source = session.extra.get("source").map(Json::as_str).unwrap();
    assert!(
        source.contains("quiet-harbour") && source.contains("1.14.30"),
        "{source}"
    );
}

#[test]
fn what_no_model_sees_stays_with_its_message() {
    let found = import_fixture(&OpenCode, NAME);
    let messages: Vec<_> = found.sessions[0].messages().collect();
    let kinds = |at: usize| -> Vec<String> {
        let parts = source(messages[at])["parts"].clone();
        let parts = parts.as_array().cloned().unwrap_or_default();
        parts
            .iter()
            .map(|part| part["type"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(kinds(0), ["text"]);
    assert_eq!(kinds(1), ["step-start", "patch", "step-finish"]);
    assert_eq!(source(messages[1])["path"]["cwd"], "/work/harbour");
    let result = source(messages[2]);
    assert_eq!(
        (&result["title"], &result["metadata"]["truncated"]),
        (&json!("tides.csv"), &json!(false))
    );
    let metadata = found.sessions[0].loops[0].record.metadata.as_ref().unwrap();
    assert_eq!(metadata.as_str(), r#"{"summary":{"diffs":[]}}"#);
}

#[test]
fn the_store_holds_it_once_and_gives_the_file_back() {
    let path = fixture(NAME);
    let (store, report) = imported(&path);
    assert_eq!((report.loops, report.turns, report.messages), (2, 3, 7));
    check_original(&store, &report.sessions[0], &std::fs::read(&path).unwrap());
}

#[test]
fn a_session_that_went_on_adds_only_what_is_new() {
    let before = document();
    let mut after = before.clone();
    after["messages"][0]["info"]["summary"] = json!({ "diffs": [{ "file": "a.txt" }] });
    after["info"]["time"]["updated"] = json!(1770000999000_i64);
    let last = &mut after["messages"][4];
    last["info"]["time"]["completed"] = json!(1770000060000_i64);
    last["info"]["finish"] = json!("tool-calls");
    last["parts"][0]["state"]["status"] = json!("completed");
    last["parts"][0]["state"]["output"] = json!("At 05:00.");
    let mut end = before["messages"][2].clone();
    end["info"]["id"] = json!("msg_06");
    after["messages"].as_array_mut().unwrap().push(end);
    let store = SqliteStore::in_memory().unwrap();
    import_bytes(&store, "a.json", before.to_string().as_bytes()).unwrap();
    let grown = import_bytes(&store, "b.json", after.to_string().as_bytes()).unwrap();
    // The running call is rewritten with its result, and the answer follows.
    assert_eq!((grown.added_messages, grown.revised), (3, 0));
    let whole = SqliteStore::in_memory().unwrap();
    import_bytes(&whole, "a.json", after.to_string().as_bytes()).unwrap();
    assert_eq!(state(&store), state(&whole));
    let earlier = import_bytes(&store, "a.json", before.to_string().as_bytes()).unwrap();
    assert_eq!(earlier.added_messages, 0);
    check_store(&store, &grown.sessions);
}

#[test]
fn every_prefix_of_the_messages_grows_to_the_whole() {
    let whole = document();
    let expected = SqliteStore::in_memory().unwrap();
    import_bytes(&expected, "a.json", whole.to_string().as_bytes()).unwrap();
    for count in 1..5 {
        let mut part = whole.clone();
        part["messages"].as_array_mut().unwrap().truncate(count);
        let store = SqliteStore::in_memory().unwrap();
        import_bytes(&store, "a.json", part.to_string().as_bytes()).unwrap();
        let grown = import_bytes(&store, "a.json", whole.to_string().as_bytes()).unwrap();
        assert_eq!(grown.revised, 0);
        assert_eq!(state(&store), state(&expected), "{count} messages first");
    }
}

#[test]
fn a_summary_is_a_compaction() {
    let mut document = document();
    let messages = document["messages"].as_array_mut().unwrap();
    messages.truncate(4);
    messages[3]["parts"][0] = json!({ "type": "compaction", "auto": true, "id": "prt_c" });
    let mut summary = messages[2].clone();
    summary["info"]["summary"] = json!(true);
    summary["info"]["id"] = json!("msg_05");
    summary["parts"][0]["text"] = json!("The tide is low at 04:10.");
    let mut next = messages[0].clone();
    next["info"]["id"] = json!("msg_06");
    messages.extend([summary, next]);
    let found = import(&OpenCode, &document.to_string());
    assert_eq!(found.sessions[0].loops[0].compactions.len(), 1);
    assert_eq!(found.sessions[0].loop_ids(), ["ses_harbour1", "msg_06"]);
    let store = SqliteStore::in_memory().unwrap();
    let report = import_bytes(&store, "a.json", document.to_string().as_bytes()).unwrap();
    check_store(&store, &report.sessions);
    let runs = store
        .query("SELECT strategy, outcome FROM v_compaction_runs")
        .unwrap();
    assert_eq!(format!("{:?}", runs.rows), r#"[["opencode", "committed"]]"#);
    // A summary that was cut off replaces nothing.
    let summary = &mut document["messages"][4]["info"];
    summary["finish"] = json!(null);
    summary["error"] = json!({ "name": "MessageAbortedError", "data": { "message": "aborted" } });
    let found = import(&OpenCode, &document.to_string());
    assert_eq!(found.sessions[0].loops[0].compactions.len(), 0);
}

#[test]
fn a_message_that_holds_a_whole_run_comes_apart_into_its_model_calls() {
    let mut document = document();
    let messages = document["messages"].as_array_mut().unwrap();
    let more = messages[2]["parts"][0].clone();
    let parts = messages[1]["parts"].as_array_mut().unwrap();
    parts.extend([json!({ "type": "step-start" }), more]);
    messages.truncate(2);
    let found = import(&OpenCode, &document.to_string());
    assert_eq!(found.sessions[0].loops[0].turns(), ["uatt", "a"]);
}

#[test]
fn an_odd_message_costs_only_itself() {
    let mut document = document();
    let messages = document["messages"].as_array_mut().unwrap();
    messages.insert(1, json!(7));
    messages.insert(2, json!({ "info": { "role": 7 }, "parts": [] }));
    messages.insert(3, json!({ "info": { "role": "user" }, "parts": "none" }));
    messages.insert(
        4,
        json!({ "info": { "role": "system", "id": "x" }, "parts": [] }),
    );
    messages.insert(
        5,
        json!({ "role": "user", "parts": [{ "type": "text", "text": "bare" }] }),
    );
    let found = import(&OpenCode, &document.to_string());
    assert_snapshot!(found.reasons(), @r#"
    Some(1) message 2: invalid type: integer `7`, expected an object
    Some(1) message 3: its role is missing or no text
    Some(1) message 4: its parts are not a list
    "#);
    assert_eq!(found.sessions[0].messages().count(), 9);
}

#[test]
fn damage_is_told_and_never_panics() {
    let bytes = std::fs::read(fixture(NAME)).unwrap();
    check_cuts(&fixture(NAME), 2501);
    check_flips(&OpenCode, &bytes);
    check_wrong_types(&OpenCode, &document());
    for end in [
        &b"{\"info\":{\"id\":\"s\"},\"messages\":[]}"[..],
        b"{}",
        b"[7]",
        b"\xFF\xFE{",
    ] {
        assert!(try_import(&OpenCode, end).1.is_err());
    }
}

#[test]
fn a_huge_message_takes_no_longer_than_it_is_long() {
    let mut document = document();
    for nth in 0..20_000 {
        document["messages"][1]["info"][format!("field-{nth}")] = json!(nth);
    }
    let part = document["messages"][1]["parts"][3].clone();
    let parts = document["messages"][1]["parts"].as_array_mut().unwrap();
    parts.extend(std::iter::repeat_n(part, 5_000));
    document["messages"][2]["parts"][0]["text"] = json!("x".repeat(8 << 20));
    let found = import(&OpenCode, &document.to_string());
    assert_eq!(found.reasons(), "");
    assert_eq!(found.sessions[0].messages().count(), 5_007);
}

#[test]
fn ids_are_only_text() {
    for id in [
        "'; DROP TABLE messages; --",
        "../../etc/passwd",
        "",
        "\u{202e}",
    ] {
        let text = document()
            .to_string()
            .replace("ses_harbour1", &id.replace('"', ""));
        let text = text.replace("msg_04", "msg_01").replace("call_a", "call_b");
        let store = SqliteStore::in_memory().unwrap();
        let report = import_bytes(&store, "a.json", text.as_bytes()).unwrap();
        assert_eq!(report.messages, 7, "{id}");
        check_store(&store, &report.sessions);
    }
    assert!(OpenCode.detect(std::path::Path::new("x"), document().to_string().as_bytes()));
}

#[test]
fn a_refusal_is_a_persons_word_where_no_tool_could_have_said_it() {
    let refused = "The user rejected permission to use this specific tool call with the following feedback: Not now.";
    let output = format!("grep: {refused}");
    let begun = json!({ "output": "" });
    let cases = [
        ("bash", refused, Value::Null, Author::Human),
        ("edit", refused, json!({}), Author::Human),
        // OpenCode asks before a tool starts.
        ("bash", refused, begun, Author::Harness),
        ("bash", &output, Value::Null, Author::Harness),
        (
            "bash",
            "The user rejected permission to use this specific tool call.",
            Value::Null,
            Author::Harness,
        ),
        // Tools of a server and sub-agents fail with texts of their own.
        ("quay_find", refused, Value::Null, Author::Harness),
        ("task", refused, Value::Null, Author::Harness),
    ];
    for (tool, error, metadata, author) in cases {
        let mut file = document();
        let part = &mut file["messages"][1]["parts"];
        let part = part.as_array_mut().unwrap();
        let called = part
            .iter_mut()
            .find(|part| part["callID"] == "call_b")
            .unwrap();
        called["tool"] = json!(tool);
        called["state"] =
            json!({"status": "error", "input": {}, "error": error, "metadata": metadata});
        let store = SqliteStore::in_memory().unwrap();
        let report = import_bytes(&store, "a.json", file.to_string().as_bytes()).unwrap();
        let chat = Store::from(store).session(&report.sessions[0]).unwrap();
        let context = chat.context().unwrap();
        let result = context.messages.iter().filter_map(|m| m.message());
        let result = result
            .filter(|m| m.role() == Role::ToolResult)
            .nth(1)
            .unwrap();
        assert_eq!(result.author(), author, "{tool}: {error}");
    }
}

/// Imports a document, and returns the texts and calls of the context.
fn context_of(document: &Value) -> Vec<String> {
    let store = SqliteStore::in_memory().unwrap();
    let report = import_bytes(&store, "a.json", document.to_string().as_bytes()).unwrap();
    check_store(&store, &report.sessions);
    shown(store, &report.sessions[0])
}

fn shown(store: SqliteStore, session: &SessionId) -> Vec<String> {
    let chat = Store::from(store).session(session).unwrap();
    let context = chat.context().unwrap();
    let text = |message: &AgentMessage| {
        let message = message.message().unwrap();
        let calls = message.tool_calls().map(|call| call.id.as_str());
        let text = message.texts().chain(calls).collect::<Vec<_>>().join(" ");
        // The marker of a cleared result.
        if text.starts_with("[cleared: ") {
            "#".into()
        } else {
            text
        }
    };
    context.messages.iter().map(text).collect()
}

fn runs(store: &SqliteStore) -> usize {
    let runs = store.query("SELECT run_id FROM v_compaction_runs");
    runs.unwrap().rows.len()
}

const RUN: [&str; 5] = [
    "When is low tide?",
    "I look at the table. call_a call_b",
    "04:10,0.3\n16:42,0.5",
    "tide: not found",
    "At 04:10.",
];

/// Returns a session whose first prompt was compacted, with this field in the request.
fn compacted(tail: Value) -> Value {
    let mut document = document();
    let messages = document["messages"].as_array_mut().unwrap();
    messages.truncate(4);
    messages[3]["parts"][0] =
        json!({ "type": "compaction", "auto": true, "id": "prt_c", "tail_start_id": tail });
    let mut summary = messages[2].clone();
    summary["info"]["summary"] = json!(true);
    summary["info"]["id"] = json!("msg_05");
    summary["info"]["parentID"] = json!("msg_04");
    summary["parts"][0]["text"] = json!("They look for the tide.");
    let mut next = messages[0].clone();
    next["info"]["id"] = json!("msg_06");
    next["info"]["time"]["created"] = json!(1770000060000_i64);
    next["parts"] = json!([{ "type": "text", "text": "Go on." }]);
    messages.extend([summary, next]);
    document
}

#[test]
fn a_compaction_keeps_what_stands_from_its_tail_on() {
    let summary = "They look for the tide.";
    let kept = |tail: Value| context_of(&compacted(tail));
    assert_eq!(kept(json!("msg_03")), [summary, "At 04:10.", "Go on."]);
    let run = [&[summary], &RUN[1..], &["Go on."]].concat();
    assert_eq!(kept(json!("msg_02")), run);
    for tail in [json!(null), json!("msg_99"), json!(7), json!("msg_04")] {
        assert_eq!(kept(tail.clone()), [summary, "Go on."], "{tail}");
    }
}

/// Returns the document with the result of a call cleared at a time.
fn emptied(document: &Value, at: Value) -> Value {
    let mut document = document.clone();
    document["messages"][1]["parts"][3]["state"]["time"]["compacted"] = at;
    document
}

#[test]
fn results_that_were_emptied_are_edits_and_stay_as_they_were() {
    let whole = document();
    let cleared = "#";
    let end = ["Ask the other harbour too.", "call_c"];
    for (at, first_loop) in [(1770000049000_i64, true), (1770000051000, false)] {
        let after = emptied(&whole, json!(at));
        let context = context_of(&after);
        assert_eq!(context[2], cleared);
        assert_eq!(context.len(), 7);
        let found = import(&OpenCode, &after.to_string());
        assert_eq!(
            found.sessions[0].loops[0].compactions.len() == 1,
            first_loop
        );
        let result = found.sessions[0].messages().nth(2).unwrap();
        assert!(!Json::of(result).unwrap().as_str().contains("compacted"));
        // The mark comes with an export that is otherwise unchanged.
        let store = SqliteStore::in_memory().unwrap();
        import_bytes(&store, "a.json", whole.to_string().as_bytes()).unwrap();
        let report = import_bytes(&store, "a.json", after.to_string().as_bytes()).unwrap();
        assert_eq!((report.added_messages, report.revised), (0, 0));
        assert_eq!(runs(&store), 1);
        let again = import_bytes(&store, "a.json", after.to_string().as_bytes()).unwrap();
        assert_eq!((again.added_messages, runs(&store)), (0, 1));
        assert_eq!(shown(store, &report.sessions[0]), context);
    }
    for at in [json!(null), json!("x"), json!([])] {
        assert_eq!(context_of(&emptied(&whole, at)), [&RUN[..], &end].concat());
    }
}

#[test]
fn what_was_emptied_stays_empty_behind_a_revert() {
    let cleared = "#";
    let mut longer = document();
    let messages = longer["messages"].as_array_mut().unwrap();
    let mut next = messages[3].clone();
    next["info"]["id"] = json!("msg_06");
    next["info"]["time"]["created"] = json!(1770000060000_i64);
    messages.push(next);
    // Cleared before the reverted prompt, after it, and before a prompt that is reverted with it.
    for (whole, at) in [
        (document(), 1_770_000_049_000_i64),
        (document(), 1_770_000_051_000),
        (longer, 1_770_000_051_000),
    ] {
        let mut after = emptied(&whole, json!(at));
        after["info"]["revert"] = json!({ "messageID": "msg_04" });
        let context = context_of(&after);
        assert_eq!(context, [RUN[0], RUN[1], cleared, RUN[3], RUN[4]], "{at}");
    }
}

#[test]
fn a_mark_may_stand_anywhere_in_the_time() {
    let whole = serde_json::to_string_pretty(&document()).unwrap();
    let mark = "\"compacted\": 1770000051000";
    let (start, end) = ("\"start\": 1770000002000", "\"end\": 1770000002100");
    for (key, marked) in [
        (start, format!("{start},\n  {mark}")),
        (end, format!("{mark},\n  {end}")),
        (end, format!("{end},\n  {mark}")),
    ] {
        let store = SqliteStore::in_memory().unwrap();
        import_bytes(&store, "a.json", whole.as_bytes()).unwrap();
        let after = whole.replacen(key, &marked, 1);
        let report = import_bytes(&store, "a.json", after.as_bytes()).unwrap();
        let came = (report.added_messages, report.revised, runs(&store));
        assert_eq!(came, (0, 0, 1), "{marked}");
    }
}

fn reverted(message: &str, part: Value) -> Value {
    let mut document = document();
    document["info"]["revert"] = json!({ "messageID": message, "partID": part, "snapshot": "aaa" });
    document
}

#[test]
fn what_was_reverted_is_not_in_the_context_and_stays_in_the_record() {
    let none = Value::Null;
    assert_eq!(context_of(&reverted("msg_04", none.clone())), RUN);
    assert_eq!(context_of(&reverted("msg_01", none.clone())).len(), 0);
    let prompt = "Ask the other harbour too.";
    assert_eq!(
        context_of(&reverted("msg_05", none.clone())),
        [&RUN[..], &[prompt]].concat()
    );
    // The first parts of an answer stay, with the prompt in their turn.
    assert_eq!(
        context_of(&reverted("msg_02", json!("prt_09"))),
        [RUN[0], "I look at the table. call_a", RUN[2]]
    );
    assert_eq!(context_of(&reverted("msg_02", json!("prt_99"))), RUN[..1]);
    let end = [prompt, "call_c"];
    for message in ["msg_99", ""] {
        assert_eq!(
            context_of(&reverted(message, none.clone())),
            [&RUN[..], &end].concat()
        );
    }
    let found = import(&OpenCode, &reverted("msg_04", none).to_string());
    assert_eq!(
        found.sessions[0].loop_ids(),
        ["ses_harbour1", "msg_04", "revert-msg_04"]
    );
}

#[test]
fn a_prompt_after_a_revert_goes_on_from_before_it() {
    let store = SqliteStore::in_memory().unwrap();
    let before = reverted("msg_04", Value::Null);
    for document in [document(), before.clone(), before] {
        import_bytes(&store, "a.json", document.to_string().as_bytes()).unwrap();
    }
    // OpenCode removes the reverted messages with the next prompt.
    let mut after = document();
    let messages = after["messages"].as_array_mut().unwrap();
    messages.truncate(4);
    messages[3]["info"]["id"] = json!("msg_06");
    messages[3]["parts"][0]["text"] = json!("And high tide?");
    let report = import_bytes(&store, "a.json", after.to_string().as_bytes()).unwrap();
    assert_eq!((report.added_messages, report.revised), (1, 0));
    check_store(&store, &report.sessions);
    let said = state(&store);
    assert!(said.iter().any(|row| row.contains("Ask the other harbour")));
    assert_eq!(
        shown(store, &report.sessions[0]),
        [&RUN[..], &["And high tide?"]].concat()
    );
}

/// Returns a session as OpenCode stores it, from its export.
fn parts_of_document() -> (Value, Vec<(Value, Vec<Value>)>) {
    let document = document();
    let messages = document["messages"].as_array().unwrap().iter();
    let messages = messages.map(|message| {
        (
            message["info"].clone(),
            message["parts"].as_array().unwrap().clone(),
        )
    });
    (document["info"].clone(), messages.collect())
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

/// Removes the fields that a row has in other columns.
fn without(mut value: Value, keys: &[&str]) -> String {
    for key in keys {
        value.as_object_mut().unwrap().remove(*key);
    }
    value.to_string()
}

fn write_database(path: &std::path::Path) {
    let (info, messages) = parts_of_document();
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(
        "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT,
             slug TEXT, directory TEXT NOT NULL, title TEXT NOT NULL, version TEXT NOT NULL,
             revert TEXT, cost REAL NOT NULL DEFAULT 0, time_created INTEGER, time_updated INTEGER);
         CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, time_created INTEGER,
             time_updated INTEGER, data TEXT NOT NULL);
         CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
             time_created INTEGER, time_updated INTEGER, data TEXT NOT NULL);",
    )
    .unwrap();
    let session = id(&info);
    let text = |key: &str| info[key].as_str().map(str::to_owned);
    file.execute(
        "INSERT INTO session VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, 0.5, ?8, ?9)",
        rusqlite::params![
            session,
            text("projectID"),
            text("parentID"),
            text("slug"),
            text("directory"),
            text("title"),
            text("version"),
            info["time"]["created"].as_i64(),
            info["time"]["updated"].as_i64()
        ],
    )
    .unwrap();
    for (message, parts) in messages {
        let created = message["time"]["created"].as_i64();
        let of = id(&message);
        let data = without(message, &["id", "sessionID"]);
        file.execute(
            "INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)",
            rusqlite::params![of, session, created, data],
        )
        .unwrap();
        for (number, part) in parts.into_iter().enumerate() {
            let data = without(part, &["id", "sessionID", "messageID"]);
            let part = format!("prt_{of}_{number:03}");
            file.execute(
                "INSERT INTO part VALUES (?1, ?2, ?3, 0, 0, ?4)",
                rusqlite::params![part, of, session, data],
            )
            .unwrap();
        }
    }
}

fn write_folder(storage: &std::path::Path, is_older: bool) -> std::path::PathBuf {
    let (info, messages) = parts_of_document();
    let write = |path: std::path::PathBuf, value: &Value| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, serde_json::to_string_pretty(value).unwrap()).unwrap();
    };
    let session = id(&info);
    let (file, base) = match is_older {
        true => (storage.join("session/info"), storage.join("session")),
        false => (storage.join("session/p1"), storage.to_owned()),
    };
    let file = file.join(format!("{session}.json"));
    write(file.clone(), &info);
    for (message, parts) in messages {
        let of = id(&message);
        write(
            base.join("message")
                .join(&session)
                .join(format!("{of}.json")),
            &message,
        );
        let folder = match is_older {
            true => base.join("part").join(&session).join(&of),
            false => base.join("part").join(&of),
        };
        for (number, part) in parts.into_iter().enumerate() {
            write(folder.join(format!("prt_{number:03}.json")), &part);
        }
    }
    write(
        storage.join("project/p1.json"),
        &json!({"id": "p1", "worktree": "/w"}),
    );
    file
}

/// Returns what a model sees, and the status of each loop.
fn conversation(store: &SqliteStore) -> Vec<String> {
    let sql = "SELECT loop_id, seq, role, text, turn FROM v_messages ORDER BY 1, 2";
    let loops = "SELECT session_id, loop_id, status FROM v_loops ORDER BY 1, 2";
    let titles = "SELECT session_id, title, project FROM v_sessions";
    [sql, loops, titles]
        .iter()
        .flat_map(|sql| store.query(sql).unwrap().rows)
        .map(|row| format!("{row:?}"))
        .collect()
}

#[test]
fn sessions_are_read_where_opencode_keeps_them() {
    let (expected, _) = imported(&fixture(NAME));
    let expected = conversation(&expected);
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("opencode.db");
    write_database(&database);
    let (store, report) = imported(&database);
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
    assert_eq!(conversation(&store), expected);
    for is_older in [false, true] {
        let storage = folder.path().join(format!("{is_older}/storage"));
        let file = write_folder(&storage, is_older);
        let (store, report) = imported(&file);
        assert!(report.skipped.is_empty(), "{:?}", report.skipped);
        assert_eq!(conversation(&store), expected);
        // The same in a folder that contains no other transcript.
        let store = SqliteStore::in_memory().unwrap();
        let report = import_into(&store, &storage);
        assert_eq!((report.sessions.len(), report.unknown_files), (1, 0));
        assert_eq!(report.unread, []);
    }
}

#[test]
fn damage_in_opencodes_own_files_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("opencode.db");
    write_database(&database);
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute_batch(
            "UPDATE part SET data = '{\"type\":\"text\",\"text\":\"half \\ud83d\"}' WHERE id = 'prt_msg_04_000';
             UPDATE message SET data = 'nonsense' WHERE id = 'msg_02';
             CREATE TABLE session_message (session_id);
             INSERT INTO session (id, project_id, directory, title, version) VALUES ('ses_new', 'p', '/', 't', '2');
             INSERT INTO session_message VALUES ('ses_new')",
        )
        .unwrap();
    drop(connection);
    let store = SqliteStore::in_memory().unwrap();
    let report = import_into(&store, &database);
    assert_eq!(report.repaired.len(), 1, "{:?}", report.repaired);
    let is_reported = |words: &str| report.skipped.iter().any(|one| one.reason.contains(words));
    assert!(
        is_reported("msg_02") && is_reported("session_message"),
        "{:?}",
        report.skipped
    );
    let storage = folder.path().join("storage");
    let file = write_folder(&storage, false);
    std::fs::write(
        storage.join("message/ses_harbour1/msg_02.json"),
        "{\"role\":",
    )
    .unwrap();
    let report = import_into(&SqliteStore::in_memory().unwrap(), &file);
    assert!(
        report
            .skipped
            .iter()
            .any(|one| one.reason.contains("msg_02"))
    );
    std::fs::remove_dir_all(storage.join("message")).unwrap();
    let report = import_bytes(&store, "ses_x.json", &std::fs::read(&file).unwrap());
    assert!(report.is_err());
}
