//! goose's sessions, in lines and in its SQLite file.

use std::path::PathBuf;

use insta::assert_snapshot;
use loopstore::SqliteStore;
use loopstore_transcripts::{Goose, Importer, OpenAiAgents, OpenAiChat};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::agents::stage::*;
use crate::support::recording::{Recording, import_fixture, try_import};

const LINES: &str = "goose/20250812_101500.jsonl";

/// Creates a database with the statements of the fixture.
fn database() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    // The tables are in no particular order.
    let sql = format!("PRAGMA foreign_keys = OFF; {}", include_str!("goose.sql"));
    Connection::open(&path)
        .unwrap()
        .execute_batch(&sql)
        .unwrap();
    (folder, path)
}

fn read_file(path: &std::path::Path) -> Recording {
    let mut recording = Recording::default();
    let mut file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut source = loopstore_transcripts::Source {
        path,
        reader: &mut file,
    };
    Goose.import(&mut source, &mut recording).unwrap();
    recording
}

#[test]
fn lines_become_turns_and_a_model_gets_only_what_was_for_it() {
    assert_snapshot!(outline(&import_fixture(&Goose, LINES)), @r#"
    session Own(SessionId("some")) "Count lines ž"
      loop message-1 after - Completed
        0 user "kolik řádků má žluť.txt? 🪿"
        0 assistant thinking "wc will do" signed + "I count." + call call_1 developer__shell {"command":"wc -l žluť.txt"} + call call_2 unreadable null stop=toolUse
        0 toolResult "3 žluť.txt" of developer__shell call_1
        0 toolResult "Could not interpret tool use parameters" of unreadable call_2 failed
        1 assistant "Three lines." stop=stop
      loop message-5 after message-1 Completed
        0 user "and this picture?" + image image/png
        0 assistant "A single dot." stop=stop
    "#);
}

#[test]
fn rows_become_sessions_and_a_compaction_hides_what_was_before_it() {
    let (_folder, path) = database();
    assert_snapshot!(outline(&read_file(&path)), @r#"
    session Own(SessionId("20260701_1")) "Tests for žluť"
      loop msg-u1 after - Aborted
        0 user "run the tests 🪿"
        0 assistant "Running." model=claude-sonnet-4-5 stop=stop
        0 assistant call call_1 developer__shell {"command":"make test"} model=claude-sonnet-4-5 stop=toolUse
        0 toolResult "make: *** No rule to make target 'test'." of developer__shell call_1 failed
        1 assistant call call_2 delegate {"instructions":"Count the words in žluť.txt"} + call call_3 todo__todo_write null model=claude-sonnet-4-5 stop=toolUse
        1 toolResult "ok" of todo__todo_write call_3
        1 toolResult "scheduled" of delegate call_2
        2 user "Subagent finished: 7 words"
        compaction Summary { messages: [Llm(LlmMessage { message: User(UserMessage { content: [Text(Text { text: "The user wants the tests run; there is no test target; žluť.txt has 7 words.", extra: Extra { fields: [], absent: [] } })], timestamp: Some(1782900031000), author: Some(Harness) }), turn_id: None, extra: Extra { fields: [], absent: [] } }), Llm(LlmMessage { message: Assistant(AssistantMessage { content: [Text(Text { text: "Your context was compacted. The previous message contains a summary of the conversation so far. Do not mention it.", extra: Extra { fields: [], absent: [] } })], stop_reason: None, model: None, provider: None, usage: None, timestamp: None, error_message: None, author: None }), turn_id: None, extra: Extra { fields: [], absent: [] } })], first_kept: None }
      loop loop-1 after msg-u1 Completed
        - goose-message [{"type":"text","text":"run the tests 🪿"}]
        - goose-message [{"type":"systemNotification","notificationType":"inlineMess…
        0 user "<turn-context>\nIt is 10:00.\n</turn-context>"
        0 assistant thinking "say it plainly" + "There is no test target." model=claude-sonnet-4-5 stop=stop usage={"input":390,"output":10,"total_tokens":400}
    session Own(SessionId("20260701_2")) "count words"
      loop msg-b1 after - Completed
        0 user "Count the words in žluť.txt"
        0 assistant "7 words" model=claude-sonnet-4-5 stop=stop
    "#);
}

#[test]
fn the_store_holds_both_once_and_gives_the_files_back() {
    let (_folder, database) = database();
    for (path, sessions) in [(fixture(LINES), 1), (database, 2)] {
        let (store, report) = imported(&path);
        assert_eq!(report.sessions.len(), sessions);
        check_original(&store, &report.sessions[0], &std::fs::read(&path).unwrap());
    }
}

#[test]
fn a_session_that_went_on_adds_only_what_is_new() {
    let text = std::fs::read_to_string(fixture(LINES)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let name = "20250812_101500.jsonl";
    let store = SqliteStore::in_memory().unwrap();
    for count in 2..=lines.len() {
        let part = lines[..count].join("\n") + "\n";
        let report = import_bytes(&store, name, part.as_bytes()).unwrap();
        assert_eq!((report.sessions.len(), report.revised), (1, 0), "{count}");
    }
    let whole = SqliteStore::in_memory().unwrap();
    import_bytes(&whole, name, text.as_bytes()).unwrap();
    assert_same(&state(&store), &state(&whole), "line by line");
}

#[test]
fn a_compaction_that_comes_later_changes_no_message() {
    let (folder, path) = database();
    let connection = Connection::open(&path).unwrap();
    // The state before the compaction: every message is for both, and nothing is summarised.
    connection
        .execute_batch(
            "CREATE TABLE later AS SELECT * FROM messages WHERE id BETWEEN 8 AND 13;
             DELETE FROM messages WHERE id BETWEEN 8 AND 13;
             UPDATE messages SET metadata_json = NULL WHERE id < 7;",
        )
        .unwrap();
    let store = SqliteStore::in_memory().unwrap();
    let first = import_into(&store, &path);
    connection
        .execute_batch(
            "UPDATE messages SET metadata_json = '{\"userVisible\":true,\"agentVisible\":false}' WHERE id < 7;
             INSERT INTO messages SELECT * FROM later; DROP TABLE later;",
        )
        .unwrap();
    drop(connection);
    let second = import_into(&store, &path);
    assert_eq!((first.revised, second.revised), (0, 0));
    check_store(&store, &second.sessions);
    let runs = store
        .query("SELECT run_id FROM v_compaction_runs")
        .unwrap()
        .rows;
    assert_eq!(runs.len(), 1);
    drop(folder);
}

#[test]
fn what_goose_notes_of_a_message_later_changes_no_message() {
    let text = std::fs::read_to_string(fixture(LINES)).unwrap();
    let noted: Vec<String> = text
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            if record.get("role").is_some() {
                record["metadata"] = json!({"userVisible": true, "agentVisible": false});
                for item in record["content"].as_array_mut().unwrap() {
                    item["_meta"] = json!({"goose.toolSummary.title": "Counting"});
                }
            }
            record.to_string()
        })
        .collect();
    let name = "20250812_101500.jsonl";
    let store = SqliteStore::in_memory().unwrap();
    import_bytes(&store, name, text.as_bytes()).unwrap();
    let before = state(&store);
    let again = import_bytes(&store, name, (noted.join("\n") + "\n").as_bytes()).unwrap();
    assert_eq!((again.added_messages, again.revised), (0, 0));
    assert_same(&state(&store), &before, "with notes");
}

#[test]
fn damage_costs_no_more_than_its_records() {
    check_cuts(&fixture(LINES), 83);
    check_flips(&Goose, &std::fs::read(fixture(LINES)).unwrap());
    let (folder, path) = database();
    let bytes = std::fs::read(&path).unwrap();
    for end in [10, 100, 4_096, bytes.len() / 2] {
        let store = SqliteStore::in_memory().unwrap();
        let _ = import_bytes(&store, "sessions.db", &bytes[..end]);
    }
    drop(folder);
}

#[test]
fn odd_items_are_left_to_the_record_and_nothing_panics() {
    let odd = [
        json!(null),
        json!(7),
        json!("x"),
        json!([[]]),
        json!([{"type": 7}]),
        json!([{"type": "toolRequest"}]),
        json!([{"type": "toolResponse", "toolResult": "x"}]),
        json!([{"type": "text", "annotations": {"audience": "all"}, "text": "t"}]),
    ];
    for content in odd {
        for role in ["user", "assistant", "system", ""] {
            let line =
                json!({"role": role, "created": -9.5e300, "content": content, "metadata": 7});
            let _ = try_import(&Goose, line.to_string().as_bytes());
        }
    }
}

#[test]
fn no_other_format_is_taken_for_it() {
    let (_folder, path) = database();
    let head = std::fs::read(&path).unwrap();
    assert!(Goose.detect(&path, &head) && !OpenAiAgents.detect(&path, &head));
    let text = std::fs::read(fixture(LINES)).unwrap();
    let name = std::path::Path::new("a.jsonl");
    assert!(Goose.detect(name, &text) && !OpenAiChat.detect(name, &text));
    let chat: Value = json!([{"role": "user", "content": "Hi", "created": 7}]);
    assert!(!Goose.detect(name, chat.to_string().as_bytes()));
}

#[test]
fn rows_stand_in_the_order_in_which_they_were_written_whatever_their_times() {
    let second = 1_782_900_000_i64;
    for times in [
        // Equal times; a result before its call; seconds after milliseconds; microseconds and nanoseconds.
        [second; 4],
        [second, second + 5, second + 2, second + 6],
        [second * 1_000, second * 1_000 + 1, second + 2, second + 3],
        [
            second * 1_000_000_000,
            second * 1_000_000,
            second * 1_000,
            second,
        ],
    ] {
        let (_folder, path) = database();
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("DELETE FROM messages; DELETE FROM sessions WHERE id LIKE '%_2'")
            .unwrap();
        for (row, (role, item)) in [
            ("user", json!({"type": "text", "text": "list"})),
            (
                "assistant",
                json!({"type": "toolRequest", "id": "k1", "toolCall": {"status": "success",
                "value": {"name": "sh", "arguments": {}}}}),
            ),
            (
                "user",
                json!({"type": "toolResponse", "id": "k1", "toolResult": {"status": "success",
                "value": [{"type": "text", "text": "a b"}]}}),
            ),
            ("assistant", json!({"type": "text", "text": "two"})),
        ]
        .into_iter()
        .enumerate()
        {
            let sql = "INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp)
                       VALUES (?1, '20260701_1', ?2, ?3, ?4)";
            let content = format!("[{item}]");
            let id = format!("m{row}");
            connection
                .execute(sql, (id, role, content, times[row]))
                .unwrap();
        }
        drop(connection);
        let found = read_file(&path);
        let roles: Vec<String> = found.sessions[0]
            .messages()
            .map(|m| format!("{:?}", m.role()))
            .collect();
        assert_eq!(
            roles,
            ["User", "Assistant", "ToolResult", "Assistant"],
            "{times:?}"
        );
        let stamp =
            |message: &loopstore::AgentMessage| message.message().and_then(|m| m.timestamp());
        for (message, time) in found.sessions[0].messages().zip(times) {
            let seconds = stamp(message).unwrap() / 1_000;
            assert!((seconds - second).abs() < 10, "{time} {seconds}");
        }
    }
}

#[test]
fn half_an_emoji_in_a_row_costs_nothing_else() {
    let (_folder, path) = database();
    let connection = Connection::open(&path).unwrap();
    let half = r#"[{"type":"text","text":"Running \ud83d."}]"#;
    connection
        .execute("UPDATE messages SET content_json = ?1 WHERE id = 2", [half])
        .unwrap();
    drop(connection);
    let (store, report) = imported(&path);
    assert_eq!(
        (report.repaired.len(), report.repaired[0].line),
        (1, Some(2))
    );
    let found = store
        .query("SELECT text FROM v_messages WHERE text LIKE 'Running %'")
        .unwrap();
    assert!(format!("{:?}", found.rows[0][0]).contains('\u{fffd}'));
}
