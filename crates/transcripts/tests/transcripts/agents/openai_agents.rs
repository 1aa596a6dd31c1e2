//! The SQLite files of OpenAI's agents SDK. The tables are those that `SQLiteSession` creates.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use loopstore::SqliteStore;
use loopstore_transcripts::{
    ImportOptions, ImportReport, Importer, OpenAiAgents, Source, import_paths,
};
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::agents::stage::*;
use crate::support::recording::Recording;

pub const TABLES: &str = "CREATE TABLE agent_sessions (
        session_id TEXT PRIMARY KEY,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
    );
    CREATE TABLE agent_messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        message_data TEXT NOT NULL,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id) ON DELETE CASCADE
    );
    CREATE INDEX idx_agent_messages_session_id ON agent_messages (session_id, id);";

pub struct File {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
    connection: Connection,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chats 100%.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .unwrap();
        connection.execute_batch(TABLES).unwrap();
        Self {
            _folder: folder,
            path,
            connection,
        }
    }

    pub fn add(&self, session: &str, items: &[Value]) {
        let at = "2026-02-02 02:40:00";
        let sql = "INSERT OR IGNORE INTO agent_sessions VALUES (?1, ?2, ?2)";
        self.connection.execute(sql, params![session, at]).unwrap();
        for item in items {
            let sql = "INSERT INTO agent_messages (session_id, message_data, created_at)
                       VALUES (?1, ?2, ?3)";
            let data = item.to_string();
            self.connection
                .execute(sql, params![session, data, at])
                .unwrap();
        }
    }

    /// Deletes all items, as the SDK does to clear a session.
    pub fn clear(&self) {
        self.connection
            .execute("DELETE FROM agent_messages", [])
            .unwrap();
    }

    /// Checkpoints the write-ahead log.
    fn checkpoint(&self) {
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
    }
}

/// Returns a file of one session with these items.
pub fn file_of(items: &[Value]) -> File {
    let file = File::new();
    file.add("s", items);
    file
}

fn items() -> Vec<Value> {
    vec![
        json!({ "role": "system", "content": "Be brief." }),
        json!({ "role": "user", "content": "Is the lamp lit?" }),
        json!({ "id": "rs_1", "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Look." }], "encrypted_content": "xx" }),
        json!({ "arguments": "{\"lamp\":\"1\"}", "call_id": "call_1", "name": "look", "type": "function_call", "id": "fc_1", "status": "completed" }),
        json!({ "input": "free text", "call_id": "call_2", "name": "patch", "type": "custom_tool_call" }),
        json!({ "call_id": "call_1", "output": "dark", "type": "function_call_output" }),
        json!({ "call_id": "call_2", "output": [{ "type": "input_text", "text": "ok" }, { "type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=" }], "type": "custom_tool_call_output" }),
        json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" }),
        json!({ "id": "msg_1", "content": [{ "annotations": [], "text": "It is dark.", "type": "output_text", "logprobs": [] }, { "type": "refusal", "refusal": "No more." }], "role": "assistant", "status": "completed", "type": "message" }),
        json!({ "role": "user", "content": [{ "type": "input_text", "text": "See" }, { "type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=" }, { "type": "input_file", "file_id": "f" }] }),
        json!({ "type": "hologram", "x": 1 }),
        json!({ "role": "assistant", "content": "Yes." }),
    ]
}

fn recorded(path: &Path) -> Recording {
    let mut found = Recording::default();
    let mut reader = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut source = Source {
        path,
        reader: &mut reader,
    };
    OpenAiAgents.import(&mut source, &mut found).unwrap();
    found
}

fn try_path(path: &Path, format: Option<&str>) -> Result<ImportReport, String> {
    let store = SqliteStore::in_memory().unwrap();
    let options = ImportOptions {
        format: format.map(str::to_owned),
        ..ImportOptions::default()
    };
    import_paths(&store, &[path.to_owned()], &options, &mut |_| {}).map_err(|e| e.to_string())
}

#[test]
fn items_are_prompts_answers_and_results() {
    let file = File::new();
    file.add("chat-1", &items());
    file.add("chat-2", &items()[1..2]);
    assert_snapshot!(outline(&recorded(&file.path)), @r#"
    session Own(SessionId("chat-1"))
      loop row-1 after - Completed
        - system {"content":"Be brief."}
        0 user "Is the lamp lit?"
        0 assistant sealed reasoning of openai, 108 bytes + call call_1 look {"lamp":"1"} + call call_2 patch "free text"
        0 toolResult "dark" of look call_1
        0 toolResult "ok" + image image/png of patch call_2
        1 assistant other {"id":"ws_1","status":"completed","type":"web_search_call"} + "It is dark." + "No more."
      loop row-10 after row-1 Completed
        0 user "See" + image image/png + other {"file_id":"f","type":"input_file"}
        - hologram {"type":"hologram","x":1}
        0 assistant "Yes."
    session Own(SessionId("chat-2"))
      loop row-13 after - Running
        0 user "Is the lamp lit?"
    "#);
    let head = &recorded(&file.path).sessions[0].head.session;
    assert_eq!(
        head.created_at.as_ref().unwrap().as_str(),
        "2026-02-02T02:40:00Z"
    );
}

#[test]
fn the_store_holds_it_once_and_gives_the_file_back() {
    let file = File::new();
    file.add("chat-1", &items());
    file.checkpoint();
    let (store, report) = imported(&file.path);
    assert_eq!(report.messages, 7);
    check_original(
        &store,
        &report.sessions[0],
        &std::fs::read(&file.path).unwrap(),
    );
}

#[test]
fn a_file_that_is_only_read_stays_as_it_is() {
    let file = File::new();
    file.add("chat-1", &items());
    let File {
        _folder,
        path,
        connection,
    } = file;
    drop(connection);
    let names = || {
        let entries = std::fs::read_dir(path.parent().unwrap()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    let before = (names(), std::fs::read(&path).unwrap());
    imported(&path);
    assert_eq!((names(), std::fs::read(&path).unwrap()), before);
}

#[test]
fn a_session_that_grows_adds_only_what_is_new_also_from_the_log() {
    let all = items();
    for count in 1..all.len() {
        let file = File::new();
        file.add("chat-1", &all[..count]);
        file.checkpoint();
        let store = SqliteStore::in_memory().unwrap();
        import_into(&store, &file.path);
        file.add("chat-1", &all[count..]);
        let grown = import_into(&store, &file.path);
        assert_eq!(grown.revised, 0, "{count}");
        check_store(&store, &grown.sessions);
        let texts = store.query("SELECT count(*) FROM v_tool_calls WHERE result_seq IS NULL");
        assert_eq!(
            format!("{:?}", texts.unwrap().rows),
            "[[0]]",
            "{count} items first"
        );
        let kept = state(&store);
        assert_eq!(import_into(&store, &file.path).added_messages, 0);
        assert_eq!(state(&store), kept);
    }
}

#[test]
fn an_odd_row_costs_only_itself() {
    let file = File::new();
    file.add(
        "a",
        &[json!(7), json!({}), json!({ "role": "user", "content": 7 })],
    );
    file.add(
        "a",
        &[
            json!({ "role": 7 }),
            json!("x"),
            json!({ "role": "user", "content": "hi" }),
        ],
    );
    let sql = "INSERT INTO agent_messages (session_id, message_data) VALUES ('a', ?1)";
    for odd in ["", "{\"role\":", "nonsense"] {
        file.connection.execute(sql, [odd]).unwrap();
    }
    file.connection.execute(sql, [&b"\xFF\xFE"[..]]).unwrap();
    file.connection.execute(sql, [7]).unwrap();
    file.add("'; DROP TABLE agent_messages; --", &items());
    file.add("../../etc/passwd", &items());
    file.add(&"x".repeat(2000), &items()[..2]);
    let found = recorded(&file.path);
    assert_eq!(found.skipped.len(), 10, "{}", found.reasons());
    assert_eq!(found.sessions.len(), 4);
    // The tables are only in the write-ahead log so far.
    let report = try_path(&file.path, None).unwrap();
    assert_eq!(report.sessions.len(), 4);
}

#[test]
fn other_tables_and_damage_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE notes (id INTEGER, text TEXT)")
        .unwrap();
    drop(other);
    assert!(
        try_path(&path, None)
            .unwrap_err()
            .contains("not in a known format")
    );
    let own = folder.path().join("own.db");
    drop(loopstore::SqliteStore::open(&own).unwrap());
    let refused = try_path(&own, None).unwrap_err();
    assert!(refused.contains("is a loopstore database"), "{refused}");
    let forced = try_path(&path, Some("openai-agents")).unwrap_err();
    assert!(
        forced.contains("no table with session_id and message_data"),
        "{forced}"
    );
    let file = File::new();
    assert!(
        try_path(&file.path, Some("openai-agents"))
            .unwrap_err()
            .contains("no conversation")
    );
    for _ in 0..20 {
        file.add("chat-1", &items());
    }
    file.checkpoint();
    let bytes = std::fs::read(&file.path).unwrap();
    let mut some = 0;
    for at in (0..bytes.len()).step_by(4099) {
        for damaged in [bytes[..at].to_vec(), {
            let mut bytes = bytes.clone();
            let end = (at + 300).min(bytes.len());
            bytes[at..end].fill(0xA5);
            bytes
        }] {
            let path = folder.path().join("damaged.db");
            std::fs::write(&path, damaged).unwrap();
            match try_path(&path, Some("openai-agents")) {
                Ok(report) => some += report.messages,
                Err(reason) => assert!(!reason.is_empty()),
            }
        }
    }
    assert!(some > 0, "what can be read of a damaged file comes in");
    std::fs::write(&path, b"SQLite format 3\0message_data session_id").unwrap();
    assert!(try_path(&path, None).is_err());
}

#[test]
fn tables_of_other_names_are_known_by_their_columns() {
    let file = File::new();
    file.add("chat-1", &items());
    let sql = "ALTER TABLE agent_messages RENAME TO \"my \"\"items\"; ALTER TABLE agent_sessions RENAME TO s";
    file.connection.execute_batch(sql).unwrap();
    assert_eq!(recorded(&file.path).sessions[0].messages().count(), 9);
    file.connection
        .execute_batch("PRAGMA foreign_keys = OFF; DROP TABLE s")
        .unwrap();
    assert_eq!(recorded(&file.path).sessions[0].messages().count(), 9);
}

/// The table that `AdvancedSQLiteSession` adds.
const STRUCTURE: &str = "CREATE TABLE message_structure (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        message_id INTEGER NOT NULL,
        branch_id TEXT NOT NULL DEFAULT 'main',
        message_type TEXT NOT NULL,
        sequence_number INTEGER NOT NULL
    );";

impl File {
    /// Puts rows on a branch, in order.
    fn on_branch(&self, branch: &str, rows: &[i64]) {
        for row in rows {
            let sql = "INSERT INTO message_structure
                           (session_id, message_id, branch_id, message_type, sequence_number)
                       SELECT 's', ?1, ?2, 'user', 1 + count(*) FROM message_structure";
            self.connection.execute(sql, params![row, branch]).unwrap();
        }
    }
}

fn branched() -> File {
    let say = |text: &str| json!({ "role": "user", "content": text });
    let answer = |text: &str| json!({ "role": "assistant", "content": text });
    let file = file_of(&[
        say("To the sea"),
        answer("Which way?"),
        say("By train"),
        answer("Booked the train."),
        say("By boat"),
        answer("Booked the boat."),
    ]);
    file.connection.execute_batch(STRUCTURE).unwrap();
    file.on_branch("main", &[1, 2, 3, 4]);
    file.on_branch("other", &[1, 2, 5, 6]);
    file
}

/// Returns what the model sees of the session.
fn context(store: &SqliteStore) -> String {
    let id = "s".parse().unwrap();
    let mut out = Vec::new();
    let form = loopstore_export::ExportForm::Request(loopstore::provider::Form::OpenAiChat);
    loopstore_export::export(store, &id, None, form, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn branches_are_branches_and_the_one_written_last_is_current() {
    let file = branched();
    assert_snapshot!(outline(&recorded(&file.path)), @r#"
    session Own(SessionId("s"))
      loop row-1 after - Completed
        0 user "To the sea"
        0 assistant "Which way?"
      loop row-3 after row-1 Completed
        0 user "By train"
        0 assistant "Booked the train."
      loop row-5 after row-1 Completed
        0 user "By boat"
        0 assistant "Booked the boat."
    "#);
    let (store, report) = imported(&file.path);
    assert_eq!(report.messages, 6);
    let shown = context(&store);
    assert!(
        shown.contains("sea") && shown.contains("boat") && !shown.contains("train"),
        "{shown}"
    );
    // The user returns to the first branch and continues there.
    file.add(
        "s",
        &[json!({ "role": "user", "content": "With a bicycle" })],
    );
    file.on_branch("main", &[7]);
    let again = import_into(&store, &file.path);
    assert_eq!((again.added_messages, again.revised), (1, 0));
    let shown = context(&store);
    assert!(
        shown.contains("bicycle") && shown.contains("train") && !shown.contains("boat"),
        "{shown}"
    );
}

#[test]
fn a_branch_on_which_nothing_was_said_is_current_all_the_same() {
    let file = branched();
    file.on_branch("third", &[1, 2]);
    let store = SqliteStore::in_memory().unwrap();
    import_into(&store, &file.path);
    let shown = context(&store);
    assert!(
        shown.contains("way") && !shown.contains("boat") && !shown.contains("train"),
        "{shown}"
    );
}

#[test]
fn a_branch_may_leave_a_turn_in_its_middle_and_name_rows_that_are_gone() {
    let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "look", "arguments": "{}" });
    let result = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": format!("saw {id}") });
    let say = |text: &str| json!({ "role": "user", "content": text });
    let file = file_of(&[
        say("Look"),
        call("c1"),
        result("c1"),
        call("c2"),
        result("c2"),
        say("Enough"),
    ]);
    file.connection.execute_batch(STRUCTURE).unwrap();
    file.on_branch("main", &[1, 2, 3, 4, 5]);
    file.on_branch("other", &[1, 2, 3, 99, 6]);
    let (store, _) = imported(&file.path);
    let shown = context(&store);
    assert!(
        shown.contains("saw c1") && shown.contains("Enough") && !shown.contains("saw c2"),
        "{shown}"
    );
    // Rows in a cycle, of no session, and in no order.
    file.on_branch("odd", &[6, 1, 5, 2, -3, 6, 5]);
    check_store(&store, &import_into(&store, &file.path).sessions);
}

#[test]
fn tables_are_found_wherever_they_stand_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("late.db");
    let connection = Connection::open(&path).unwrap();
    for number in 0..400 {
        let sql = format!(
            "CREATE TABLE other_{number} (a, b, c); INSERT INTO other_{number} VALUES (1, 2, 3)"
        );
        connection.execute_batch(&sql).unwrap();
    }
    connection.execute_batch(TABLES).unwrap();
    connection
        .execute_batch("INSERT INTO agent_sessions (session_id) VALUES ('late')")
        .unwrap();
    let sql = "INSERT INTO agent_messages (session_id, message_data) VALUES ('late', ?1)";
    connection
        .execute(sql, [r#"{"role":"user","content":"hello \ud83d"}"#])
        .unwrap();
    drop(connection);
    let report = try_path(&path, None).unwrap();
    assert_eq!((report.sessions.len(), report.repaired.len()), (1, 1));
}
