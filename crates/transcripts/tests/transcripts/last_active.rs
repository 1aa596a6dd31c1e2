//! The time of a session's last activity: never later than the times in its files, and never the time of the import.

use std::fs::{self, File};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use loopstore::extend::SessionFilter;
use loopstore::{SqliteStore, Time};
use loopstore_transcripts::{
    ClaudeCode, ImportOptions, Importer, OpenAiChat, Source, import_paths, import_source,
};
use serde_json::json;

/// 2026-05-28T20:26:40.777Z
const TASK: u64 = 1_780_000_000_777;

fn write(path: &Path, text: &str, modified_ms: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    modified(path, modified_ms);
}

fn modified(path: &Path, ms: u64) {
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_millis(ms))
        .unwrap();
}

fn import(store: &SqliteStore, path: &Path) -> u64 {
    let options = ImportOptions::default();
    let report = import_paths(store, &[path.to_owned()], &options, &mut |_| {}).unwrap();
    report.added_messages
}

/// Returns the sessions of the list, with the times of their last activity.
fn listed(store: &SqliteStore) -> Vec<(String, Option<String>)> {
    let rows = store.session_rows(&SessionFilter::default()).unwrap();
    let row = |row: &loopstore::extend::sqlite::Record| {
        (row.text("session_id").unwrap(), row.text("last_active_at"))
    };
    rows.iter().map(row).collect()
}

fn last_active(store: &SqliteStore) -> Option<String> {
    let mut all = listed(store);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).1
}

fn at(ms: u64) -> Option<String> {
    let text = Time::from_millis(ms as i64).unwrap().as_str().to_owned();
    // Times in whole seconds are written with milliseconds too.
    Some(if text.contains('.') {
        text
    } else {
        text.replace('Z', ".000Z")
    })
}

fn task(messages: usize) -> String {
    let prompt =
        json!({"role": "user", "content": [{"type": "text", "text": "<task>\nMend it.\n</task>"}]});
    let answer =
        json!({"role": "assistant", "content": [{"type": "text", "text": "It is mended."}]});
    let all: Vec<_> = [prompt, answer]
        .into_iter()
        .cycle()
        .take(messages)
        .collect();
    json!(all).to_string()
}

fn task_file(folder: &Path) -> PathBuf {
    folder.join(format!("tasks/{TASK}/api_conversation_history.json"))
}

#[test]
fn a_task_was_active_when_its_id_or_the_list_of_tasks_tells() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::in_memory().unwrap();
    let path = task_file(folder.path());
    // The file was copied today.
    write(&path, &task(2), 1_795_000_000_000);
    import(&store, &path);
    assert_eq!(last_active(&store), at(TASK));
    // The session is recognised, and nothing in it is new.
    assert_eq!(import(&store, &path), 0);
    assert_eq!(last_active(&store), at(TASK));
    // The list of tasks has the time of the last activity.
    let list = json!([{"id": TASK.to_string(), "ts": TASK + 60_000, "task": "Mend it."}]);
    write(
        &folder.path().join("state/taskHistory.json"),
        &list.to_string(),
        1_795_000_000_000,
    );
    let store = SqliteStore::in_memory().unwrap();
    import(&store, &path);
    assert_eq!(last_active(&store), at(TASK + 60_000));
}

#[test]
fn a_transcript_without_times_was_active_when_its_file_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.json");
    let chat = |messages: usize| {
        let say = |at: usize| {
            let role = if at.is_multiple_of(2) {
                "user"
            } else {
                "assistant"
            };
            json!({"role": role, "content": format!("Message {at}")})
        };
        json!((0..messages).map(say).collect::<Vec<_>>()).to_string()
    };
    let store = SqliteStore::in_memory().unwrap();
    write(&path, &chat(2), 1_770_000_000_000);
    import(&store, &path);
    assert_eq!(last_active(&store), at(1_770_000_000_000));
    // A newer modification time alone is no activity; a longer transcript is.
    modified(&path, 1_775_000_000_000);
    assert_eq!(import(&store, &path), 0);
    assert_eq!(last_active(&store), at(1_770_000_000_000));
    write(&path, &chat(4), 1_776_000_000_000);
    assert_eq!(import(&store, &path), 2);
    assert_eq!(last_active(&store), at(1_776_000_000_000));
}

#[test]
fn what_is_no_file_and_has_no_times_is_listed_last() {
    let store = SqliteStore::in_memory().unwrap();
    let read = |importer: &dyn Importer, name: &str, text: &str| {
        let mut text = Cursor::new(text.to_owned());
        let mut source = Source {
            path: Path::new(name),
            reader: &mut text,
        };
        import_source(&store, importer, &mut source, None).unwrap();
    };
    read(
        &OpenAiChat,
        "no/chat.json",
        r#"[{"role":"user","content":"When was that?"}]"#,
    );
    let line = |uuid: &str, at: &str| {
        let record = json!({
            "type": "user", "uuid": uuid, "parentUuid": null, "sessionId": format!("s-{uuid}"),
            "timestamp": at, "isSidechain": false, "message": {"role": "user", "content": "Hello."},
        });
        format!("{record}\n")
    };
    read(
        &ClaudeCode,
        "no/a.jsonl",
        &line("midnight", "2026-03-02T09:00:00+09:00"),
    );
    read(
        &ClaudeCode,
        "no/b.jsonl",
        &line("six", "2026-03-02T06:00:00Z"),
    );
    let found = listed(&store);
    let times: Vec<_> = found.iter().map(|(_, at)| at.as_deref()).collect();
    let wanted = [
        Some("2026-03-02T06:00:00.000Z"),
        Some("2026-03-02T00:00:00.000Z"),
        None,
    ];
    assert_eq!(times, wanted, "{found:?}");
    let since = SessionFilter {
        since: Some(Time::from_text("2026-03-02T05:00:00Z")),
        ..SessionFilter::default()
    };
    assert_eq!(store.session_rows(&since).unwrap().len(), 1);
}
