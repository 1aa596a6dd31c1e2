//! The tasks of Cline and Roo Code, and Cline's newer sessions.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use loopstore::SqliteStore;
use loopstore_transcripts::{Cline, Importer, RooCode, Source};
use serde_json::{Value, json};

use crate::agents::stage::*;
use crate::support::recording::{Recording, import, try_import};

const NATIVE: &str = "cline/tasks/1780000000000/api_conversation_history.json";
const XML: &str = "cline/tasks/1735000000000/api_conversation_history.json";
const SESSION: &str = "cline/sessions/1784000000000_abcde/1784000000000_abcde.messages.json";
const ROO: &str =
    "roo-code/tasks/01980000-aaaa-7bbb-8ccc-000000000001/api_conversation_history.json";
const CHILD: &str =
    "roo-code/tasks/01980000-aaaa-7bbb-8ccc-000000000002/api_conversation_history.json";
const FILE: &str = "api_conversation_history.json";

fn read(importer: &dyn Importer, name: &str) -> Recording {
    let (path, mut recording) = (fixture(name), Recording::default());
    let mut file = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
    let mut source = Source {
        path: &path,
        reader: &mut file,
    };
    importer.import(&mut source, &mut recording).unwrap();
    recording
}

/// Copies the messages of a task without the other files.
fn messages_only(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(fixture(name).file_name().unwrap());
    std::fs::copy(fixture(name), &path).unwrap();
    (folder, path)
}

fn list(name: &str) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(fixture(name)).unwrap()).unwrap()
}

fn of(list: &[Value]) -> String {
    Value::from(list).to_string()
}

#[test]
fn a_task_of_cline_with_calls_becomes_turns_though_results_are_texts() {
    assert_snapshot!(outline(&read(&Cline, NATIVE)), @r###"
    session Own(SessionId("1780000000000")) "Rename the field ‚größe‘ 📏"
      loop at-1780000000010 after - Completed
        0 user "<task>\n" + "Rename the field ‚größe‘ 📏" + "\n</task>" + image image/png + "# task_progress RECOMMENDED\nKeep a list." + "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        0 assistant thinking "Read first." signed + "I read two files." + call toolu_1 read_file {"path":"src/größe.rs"} + call toolu_2 read_file {"path":"src/missing.rs"} model=claude-sonnet-4-5 stop=toolUse usage={"input":12,"output":60,"cache_read":9000,"cost":0.01}
        0 toolResult "struct Größe(u8);" of read_file toolu_1
        0 toolResult "The tool execution failed with the following error:\n<error>\n…" of read_file toolu_2 failed
        0 user "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        1 assistant "Now a command." + call toolu_3 execute_command {"command":"cargo check","requires_approval":false} model=claude-sonnet-4-5 stop=toolUse usage={"input":8,"output":30,"cache_read":9500,"cost":0.01}
        1 toolResult "The user denied this operation." of execute_command toolu_3 failed
        2 user "The user provided the following feedback:\n<feedback>\n" + "no network, please" + "\n</feedback>" + "<environment_details>\n# Visual Studio Code Visible Files\nsrc…" + "<explicit_instructions type=\"summarize_task\">\nSummarise now.…"
        2 assistant call toolu_4 summarize_task {"context":"1. Primary request: rename the field.\n2. src/gr… model=claude-sonnet-4-5 stop=toolUse usage={"input":9,"output":40,"cache_read":9900,"cost":0.01}
        2 toolResult "This session is being continued from a previous conversation…" of summarize_task toolu_4
        2 user "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "<task>\n", extra: Extra { fields: [("author", "harness")], absent: [] } }), Text(Text { text: "Rename the field ‚größe‘ 📏", extra: Extra { fields: [], absent: [] } }), Text(Text { text: "\n</task>", extra: Extra { fields: [("author", "harness")], absent: [] } }), Image(Image { data: "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==", mime_type: "image/png", extra: Extra { fields: [], absent: [] } }), Text(Text { text: "# task_progress RECOMMENDED\nKeep a list.", extra: Extra { fields: [("author", "harness")], absent: [] } }), Text(Text { text: "<environment_details>\n# Visual Studio Code Visible Files\nsrc/größe.rs\n\n# Current Time\n5/28/2026, 8:26:40 PM (UTC, UTC+0:00)\n\n# Current Working Directory (/home/dev/größe) Files\nsrc/\nsrc/größe.rs\n\n# Current Mode\nACT MODE\n</environment_details>", extra: Extra { fields: [("author", "harness")], absent: [] } })], timestamp: Some(1780000000010), author: None }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: Some((LoopId("at-1780000000010"), 2)) }
      loop at-1780000015000 after at-1780000000010 Completed
        0 assistant "Renamed." + call toolu_5 attempt_completion {"result":"The field is renamed ✅"} model=claude-sonnet-4-5 stop=toolUse usage={"input":700,"output":20,"cache_read":0,"cost":0.01}
    "###);
}

#[test]
fn calls_in_the_text_of_answers_are_calls() {
    assert_snapshot!(outline(&read(&Cline, XML)), @r###"
    session Own(SessionId("1735000000000"))
      loop message-0-fa341b54 after - Aborted
        0 user "<task>\n" + "Say hello in naïve.py" + "\n</task>" + "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        0 assistant "<thinking>Write it.</thinking>" + call x1 write_to_file {"content":"print(\"<content>héllo</content>\")","path":"naï… stop=toolUse
        0 toolResult "The content was successfully saved to naïve.py." of write_to_file x1
        0 user "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        1 assistant "It is written, isn't it?" stop=stop
        2 user "[ERROR] You did not use a tool in your previous response! Pl…" + "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        2 assistant "<execute_command>\n<command>python naïve.py</command>\n\n[Respo…" stop=stop
      loop message-6-dcd81b53 after message-0-fa341b54 Completed
        0 user "[TASK RESUMPTION] This task was interrupted 2 minutes ago.\n\n…" + "do not run it" + "\n</user_message>" + "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        0 assistant call x7 attempt_completion {"result":"Done, not run."} stop=toolUse
    "###);
}

#[test]
fn a_newer_session_tells_its_title_and_its_compaction() {
    assert_snapshot!(outline(&read(&Cline, SESSION)), @r###"
    session Own(SessionId("1784000000000_abcde")) "list the files ☕"
      loop at-1784000000000 after - Completed
        - system {"content":"You are a helper."}
        0 user "<user_input mode=\"act\">" + "list the files ☕" + "</user_input>"
        0 assistant thinking "Use a command." signed + call toolu_a run_commands {"commands":["ls"]} model=claude-sonnet-4-5 stop=toolUse usage={"input":900,"output":30,"cache_read":800,"cache_write":0,"cost":0.002}
        0 toolResult "ls: permission denied" of run_commands toolu_a failed
        1 assistant "I may not list them." model=claude-sonnet-4-5 stop=stop usage={"input":950,"output":9,"cache_read":900,"cache_write":0,"cost":0.001}
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "Context summary:\n\nListing files failed: permission denied.", extra: Extra { fields: [], absent: [] } })], timestamp: None, author: Some(Harness) }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: None }
      loop at-1784000009000 after at-1784000000000 Completed
        0 user "<user_input mode=\"act\">" + "never mind" + "</user_input>"
        0 assistant "Fine." model=claude-sonnet-4-5 stop=stop usage={"input":300,"output":3,"cache_read":0,"cache_write":0,"cost":0.001}
    "###);
}

#[test]
fn a_task_of_roo_is_condensed_and_delegates() {
    assert_snapshot!(outline(&read(&RooCode, ROO)), @r###"
    session Own(SessionId("01980000-aaaa-7bbb-8ccc-000000000001")) "Fix the 日本 module"
      loop at-1770000000000 after - Completed
        0 user "<user_message>\n" + "Fix the 日本 module" + "\n</user_message>" + "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        0 assistant thinking "Start by reading." + "Reading." + call call_1 read_file {"path":"日本.py"} + call call_2 execute_command {"command":"pytest"} model=m-1 stop=toolUse usage={"input":40,"output":60,"cache_read":7000,"cache_write":0,"cost":0.01}
        0 toolResult "1 | x = 1" of read_file call_1
        0 toolResult "{\"status\":\"error\",\"message\":\"The tool execution failed\",\"err…" of execute_command call_2 failed
        0 user "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        1 assistant "I delegate." + call call_3 new_task {"mode":"code","message":"Write a test for 日本.py","todos":"[… model=m-1 stop=toolUse usage={"input":50,"output":30,"cache_read":7100,"cache_write":0,"cost":0.01}
        1 toolResult "Subtask 01980000-aaaa-7bbb-8ccc-000000000002 completed.\n\nRes…" of new_task call_3
        1 user "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        2 assistant "Good." model=m-1 stop=stop usage={"input":20,"output":5,"cache_read":7300,"cache_write":0,"cost":0.01}
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "## Conversation Summary\nReading 日本.py; pytest is missing; a test was written.", extra: Extra { fields: [], absent: [] } }), Text(Text { text: "<system-reminder>\nFolded: 日本.py\n</system-reminder>", extra: Extra { fields: [], absent: [] } })], timestamp: None, author: Some(Harness) }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: None }
      loop at-1770000065000 after at-1770000000000 Completed
        0 assistant call call_4 attempt_completion {"result":"Fixed. 完了"} model=m-1 stop=toolUse usage={"input":410,"output":12,"cache_read":0,"cache_write":0,"cost":0.01}
    "###);
    let child = read(&RooCode, CHILD);
    assert_snapshot!(outline(&child), @r###"
    session Own(SessionId("01980000-aaaa-7bbb-8ccc-000000000002")) "Write a test for 日本.py"
      loop at-1770000006000 after - Completed
        0 user "<task>\n" + "Write a test for 日本.py" + "\n</task>" + "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        0 assistant call x1 read_file {"args":"<file>\n<path>日本.py</path>\n</file>"} model=m-1 stop=toolUse
        0 toolResult "<files>\n<file><path>日本.py</path>\n<content lines=\"1-1\">\n1 | x…" of read_file x1
        0 user "<environment_details>\n# Visual Studio Code Visible Files\nsrc…"
        1 assistant call x4 attempt_completion {"result":"The test is written."} model=m-1 stop=toolUse
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "<task>\n", extra: Extra { fields: [("author", "harness")], absent: [] } }), Text(Text { text: "Write a test for 日本.py", extra: Extra { fields: [], absent: [] } }), Text(Text { text: "\n</task>", extra: Extra { fields: [("author", "harness")], absent: [] } }), Text(Text { text: "<environment_details>\n# Visual Studio Code Visible Files\nsrc/größe.rs\n\n# Current Time\n5/28/2026, 8:26:40 PM (UTC, UTC+0:00)\n\n# Current Workspace Directory (/home/dev/日本) Files\nsrc/\nsrc/größe.rs\n\n# Current Mode\n<slug>code</slug>\n<name>💻 Code</name>\n<model>m-1</model>\n</environment_details>", extra: Extra { fields: [("author", "harness")], absent: [] } })], timestamp: Some(1770000006000), author: Some(Agent) }), turn_id: None, extra: Extra { fields: [], absent: [] } }), Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "[Sliding window truncation: 2 messages hidden to reduce context]", extra: Extra { fields: [], absent: [] } })], timestamp: None, author: Some(Harness) }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: Some((LoopId("at-1770000006000"), 1)) }
    "###);
    let parent = child.sessions[0].head.session.parent_spawn_ref.clone();
    let parent = parent.unwrap().parent_session_id;
    assert_eq!(parent.as_str(), "01980000-aaaa-7bbb-8ccc-000000000001");
}

#[test]
fn the_store_holds_each_once_and_gives_the_files_back() {
    for name in [NATIVE, XML, SESSION, ROO, CHILD] {
        let path = fixture(name);
        let (store, report) = imported(&path);
        assert_eq!(report.sessions.len(), 1, "{name}");
        check_original(&store, &report.sessions[0], &std::fs::read(&path).unwrap());
    }
}

#[test]
fn a_folder_of_tasks_brings_the_tasks_and_nothing_of_what_stands_beside_them() {
    let store = SqliteStore::in_memory().unwrap();
    let report = import_all(&store, &[fixture("cline"), fixture("roo-code")]);
    let mut ids: Vec<&str> = report.sessions.iter().map(|id| id.as_str()).collect();
    ids.sort_unstable();
    let expected = [
        "01980000-aaaa-7bbb-8ccc-000000000001",
        "01980000-aaaa-7bbb-8ccc-000000000002",
        "1735000000000",
        "1780000000000",
        "1784000000000_abcde",
    ];
    assert_eq!(ids, expected, "{report:?}");
    assert!(report.skipped.is_empty(), "{:?}", report.skipped);
}

#[test]
fn a_task_that_is_written_anew_at_each_message_adds_only_what_is_new() {
    for name in [NATIVE, XML, ROO, CHILD] {
        let messages = list(name);
        let expected = SqliteStore::in_memory().unwrap();
        import_bytes(&expected, FILE, of(&messages).as_bytes()).unwrap();
        let store = SqliteStore::in_memory().unwrap();
        for count in 1..=messages.len() {
            // Messages that are hidden later are marked only then.
            let mut part = messages[..count].to_vec();
            if count < messages.len() {
                for message in &mut part {
                    let fields = message.as_object_mut().unwrap();
                    fields.retain(|key, _| !key.ends_with("Parent"));
                }
            }
            let report = import_bytes(&store, FILE, of(&part).as_bytes()).unwrap();
            assert_eq!(
                (report.sessions.len(), report.revised),
                (1, 0),
                "{name} {count}"
            );
        }
        assert_same(&state(&store), &state(&expected), name);
    }
}

#[test]
fn a_prompt_in_the_place_of_one_that_was_taken_back_is_another_path() {
    let say = |ts: u64, role: &str, text: &str| json!({"role": role, "ts": ts, "content": [{"type": "text", "text": text}]});
    let begin = [
        say(
            1,
            "user",
            "<task>\none\n</task>\n<environment_details>\n</environment_details>",
        ),
        say(2, "assistant", "First."),
    ];
    let with = |more: [Value; 2]| of(&[begin.as_slice(), more.as_slice()].concat());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1790000000000").join(FILE);
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    let came_in = |text: String| {
        std::fs::write(&path, text).unwrap();
        import_into(&store, &path)
    };
    let wrong = [
        say(3, "user", "<user_message>\ntwo\n</user_message>"),
        say(4, "assistant", "Wrong."),
    ];
    let right = [
        say(5, "user", "<user_message>\nthree\n</user_message>"),
        say(6, "assistant", "Right."),
    ];
    came_in(with(wrong));
    let report = came_in(with(right));
    assert_eq!(
        (report.added_messages, report.revised),
        (2, 0),
        "{report:?}"
    );
    check_store(&store, &report.sessions);
    let sql = "SELECT loop_id, parent_loop_id FROM v_loops ORDER BY 1";
    let loops = format!("{:?}", store.query(sql).unwrap().rows);
    assert!(loops.contains("at-3") && loops.contains("at-5"), "{loops}");
}

#[test]
fn what_roo_kept_behind_an_older_summary_stays() {
    let say = |role: &str, text: &str| json!({"role": role, "content": text});
    let mut messages = vec![say(
        "user",
        "<task>\nzero\n</task>\n<environment_details># Current Workspace Directory (/a) Files</environment_details>",
    )];
    for n in 1..=6 {
        let role = if n % 2 == 1 { "assistant" } else { "user" };
        messages.push(say(role, &format!("number {n}")));
    }
    messages.insert(
        4,
        json!({"role": "assistant", "content": "What came before.", "isSummary": true}),
    );
    messages.push(say("assistant", "number 7"));
    let found = import(&RooCode, &of(&messages));
    assert_snapshot!(outline(&found), @r###"
    session Series("b5da070109609dd6fc62f184fb06e342bdfaa577741ecae8bd6a1d253cf2200e")
      loop message-0-b5da0701 after - Completed
        0 user "<task>\n" + "zero" + "\n</task>\n<environment_details># Current Workspace Directory …"
        0 assistant "number 1" stop=stop
      loop message-2-7b533856 after message-0-b5da0701 Completed
        0 user "number 2"
        0 assistant "number 3" stop=stop
      loop message-5-e6b2454a after message-2-7b533856 Completed
        0 user "number 4"
        0 assistant "number 5" stop=stop
      loop message-7-a57ae57d after message-5-e6b2454a Aborted
        0 user "number 6"
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "<task>\n", extra: Extra { fields: [("author", "harness")], absent: [] } }), Text(Text { text: "zero", extra: Extra { fields: [], absent: [] } }), Text(Text { text: "\n</task>\n<environment_details># Current Workspace Directory (/a) Files</environment_details>", extra: Extra { fields: [("author", "harness")], absent: [] } })], timestamp: None, author: None }), turn_id: None, extra: Extra { fields: [], absent: [] } }), Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "What came before.", extra: Extra { fields: [], absent: [] } })], timestamp: None, author: Some(Harness) }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: Some((LoopId("message-5-e6b2454a"), 0)) }
      loop message-8-bc05cdfa after message-7-a57ae57d Completed
        0 assistant "number 7" stop=stop
    "###);
    let store = SqliteStore::in_memory().unwrap();
    let report = import_bytes(&store, FILE, of(&messages).as_bytes()).unwrap();
    check_store(&store, &report.sessions);
    let runs = store.query("SELECT run_id FROM v_compaction_runs").unwrap();
    assert_eq!(runs.rows.len(), 1);
}

#[test]
fn a_session_that_is_compacted_again_keeps_its_loops() {
    let folder = tempfile::tempdir().unwrap();
    let at = |end: &str| folder.path().join(format!("1784000000000_abcde{end}.json"));
    let mut session: Value =
        serde_json::from_slice(&std::fs::read(fixture(SESSION)).unwrap()).unwrap();
    let compacted = |count: usize| {
        json!({"version": 1, "source_message_count": count, "messages": [
            {"role": "user", "content": [{"type": "text", "text": format!("Context summary:\n\nAll of {count}.")}]}]})
    };
    let messages = session["messages"].as_array().unwrap().clone();
    let store = SqliteStore::in_memory().unwrap();
    // Within a call, then later.
    for (count, upto) in [(3, 4), (5, 6)] {
        session["messages"] = messages[..upto].into();
        std::fs::write(at(".messages"), session.to_string()).unwrap();
        std::fs::write(at(".compaction"), compacted(count).to_string()).unwrap();
        let report = import_into(&store, &at(".messages"));
        assert_eq!((report.sessions.len(), report.revised), (1, 0));
        check_store(&store, &report.sessions);
    }
    let runs = store.query("SELECT run_id FROM v_compaction_runs").unwrap();
    let loops = store.query("SELECT loop_id FROM v_loops").unwrap();
    assert_eq!((runs.rows.len(), loops.rows.len()), (2, 2));
}

#[test]
fn what_a_person_says_to_a_question_and_of_the_end_is_theirs() {
    let call = |id: &str, name: &str, input: Value| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": input}]});
    let back = |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
    let feedback =
        "The user has provided feedback on the results.\n<feedback>\nnot like that\n</feedback>";
    let messages = [
        back("<task>\npaint it\n</task>\n<environment_details>\nx\n</environment_details>"),
        call(
            "c1",
            "ask_followup_question",
            json!({"question": "Which colour?"}),
        ),
        back("[ask_followup_question for 'Which colour?'] Result:\n<answer>\nred\n</answer>"),
        call("c2", "read_file", json!({"path": "a"})),
        back(
            "[read_file for 'a'] Result:\n<answer>\nblue\n</answer>\n<feedback>\nalways blue\n</feedback>",
        ),
        call("c3", "attempt_completion", json!({"result": "Done."})),
        back(&format!("[attempt_completion] Result:\n{feedback}")),
        call(
            "c4",
            "attempt_completion",
            json!({"result": "Done.", "command": "cat notes"}),
        ),
        back(&format!("[attempt_completion] Result:\n{feedback}")),
    ];
    let found = import(&Cline, &of(&messages));
    assert_snapshot!(outline(&found), @r###"
    session Series("8fa6e3ea4e4e4967dc3ba63f0dda2c41c11c2da9d1fff576a4475846b300924d")
      loop message-0-8fa6e3ea after - Completed
        0 user "<task>\n" + "paint it" + "\n</task>\n<environment_details>\nx\n</environment_details>"
        0 assistant call c1 ask_followup_question {"question":"Which colour?"} stop=toolUse
        0 toolResult "<answer>\n" + "red" + "\n</answer>" of ask_followup_question c1
        1 assistant call c2 read_file {"path":"a"} stop=toolUse
        1 toolResult "<answer>\nblue\n</answer>\n<feedback>\nalways blue\n</feedback>" of read_file c2
        2 assistant call c3 attempt_completion {"result":"Done."} stop=toolUse
        2 toolResult  of attempt_completion c3
      loop message-6-cf04abe4 after message-0-8fa6e3ea Completed
        0 user "The user has provided feedback on the results.\n<feedback>\n" + "not like that" + "\n</feedback>"
        0 assistant call c4 attempt_completion {"command":"cat notes","result":"Done."} stop=toolUse
        0 toolResult "The user has provided feedback on the results.\n<feedback>\nno…" of attempt_completion c4
    "###);
    let said = found.sessions[0].loops.iter().flat_map(|of| &of.messages);
    let of_people: Vec<String> = said
        .filter_map(|m| m.message())
        .filter(|m| m.author() == loopstore::Author::Human)
        .flat_map(|m| m.texts().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let all = of_people.concat();
    assert!(
        all.contains("red") && all.contains("not like that"),
        "{all}"
    );
    assert!(!all.contains("blue"), "{all}");
}

#[test]
fn damage_costs_no_more_than_its_messages() {
    for (importer, name) in [
        (&Cline as &dyn Importer, NATIVE),
        (&Cline, XML),
        (&Cline, SESSION),
        (&RooCode, ROO),
        (&RooCode, CHILD),
    ] {
        let (_folder, path) = messages_only(name);
        check_cuts(&path, 89);
        check_flips(importer, &std::fs::read(&path).unwrap());
    }
    for name in [XML, CHILD] {
        let document = Value::from(list(name));
        check_wrong_types(&Cline, &document);
        check_wrong_types(&RooCode, &document);
    }
    let session = std::fs::read(fixture(SESSION)).unwrap();
    check_wrong_types(&Cline, &serde_json::from_slice(&session).unwrap());
}

#[test]
fn odd_files_beside_a_task_cost_only_what_they_tell() {
    let odd = [
        "",
        "[",
        "7",
        "[{\"ts\":[],\"say\":7,\"conversationHistoryDeletedRange\":[2,18446744073709551615]}]",
        "[{\"ts\":1,\"say\":\"api_req_started\",\"text\":\"{\",\"conversationHistoryIndex\":9223372036854775807}]",
        "[{\"conversationHistoryDeletedRange\":[9,1]},{\"conversationHistoryDeletedRange\":[2,3],\"conversationHistoryIndex\":-9}]",
        "{\"id\":\"../../etc\",\"task\":[],\"parentTaskId\":\"\\u0000\",\"model_usage\":{},\"entries\":7}",
    ];
    for text in odd {
        let (folder, path) = messages_only(NATIVE);
        for name in [
            "ui_messages.json",
            "history_item.json",
            "task_metadata.json",
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let store = SqliteStore::in_memory().unwrap();
        let report = import_into(&store, &path);
        assert_eq!(report.sessions.len(), 1, "{text}");
        check_store(&store, &report.sessions);
    }
    let (folder, path) = messages_only(NATIVE);
    std::fs::create_dir(folder.path().join("ui_messages.json")).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    assert_eq!(import_into(&store, &path).skipped.len(), 1);
}

#[test]
fn odd_messages_are_told_and_nothing_panics() {
    for role in ["user", "assistant", "system", ""] {
        for content in [
            json!(null),
            json!(7),
            json!([7]),
            json!([{"type": "tool_result"}]),
            json!([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_result"}]}]),
            json!([{"type": "tool_use"}]),
            json!([{"type": "text", "text": "[x] Result:"}, {"type": "image"}]),
            json!([{"type": "text", "text": "<task>"}]),
            json!([{"type": "text", "text": "[TASK RESUMPTION] <user_message"}]),
        ] {
            let message =
                json!({"role": role, "content": content, "ts": 9.5e300, "isSummary": true});
            for message in [
                message.clone(),
                json!({"role": role, "content": message["content"]}),
            ] {
                let _ = try_import(&Cline, of(&[message]).as_bytes());
            }
        }
    }
}

#[test]
fn each_file_is_taken_for_what_it_is() {
    let knows = |name: &str| importer_of(&fixture(name)).map(Importer::format);
    assert_eq!(knows(NATIVE), Some("cline"));
    assert_eq!(knows(XML), Some("cline"));
    assert_eq!(knows(SESSION), Some("cline"));
    assert_eq!(knows(ROO), Some("roo-code"));
    assert_eq!(knows(CHILD), Some("roo-code"));
    for beside in [
        "cline/tasks/1780000000000/ui_messages.json",
        "cline/tasks/1780000000000/task_metadata.json",
        "cline/state/taskHistory.json",
        "cline/sessions/1784000000000_abcde/1784000000000_abcde.json",
        "cline/sessions/1784000000000_abcde/1784000000000_abcde.compaction.json",
        "roo-code/tasks/_index.json",
    ] {
        assert_eq!(knows(beside), None, "{beside}");
    }
    // Outside of a folder, under another name, and in the folder of either program.
    let text = std::fs::read(fixture(NATIVE)).unwrap();
    assert!(Cline.detect(Path::new("task.json"), &text));
    let roo = Path::new("rooveterinaryinc.roo-cline/tasks/1/api_conversation_history.json");
    assert!(RooCode.detect(roo, &text) && !Cline.detect(roo, &text));
    let chat = br#"[{"role":"user","content":"Hi"}]"#;
    assert!(!Cline.detect(Path::new("chat.json"), chat));
}
