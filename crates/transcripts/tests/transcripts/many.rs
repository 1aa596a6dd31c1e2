//! Imports of many files: reading ahead while the writer works must not change the result.

use std::fs;
use std::path::{Path, PathBuf};

use loopstore::extend::{read, source};
use loopstore::{SessionId, SqliteStore};
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};
use rusqlite::types::Value;
use serde_json::json;

/// The stored columns without those that are random, keyed per database or times of the import.
const ROWS: [&str; 6] = [
    "SELECT key, session_id, title, created_at, current_loop, tick, source, meta
     FROM sessions ORDER BY key",
    "SELECT key, session, loop_id, parent, parent_turn, kind, status, started_at, ended_at, tick,
         next_seq, sealed_seq, turns, tokens, bytes, open_calls, meta FROM loops ORDER BY key",
    "SELECT id, messages, tokens, bytes, answers, tick FROM turns ORDER BY id",
    "SELECT id, turn, role, tick, tokens, bytes, lines, created_at, body_block, head, body
     FROM messages ORDER BY id",
    "SELECT i.key, i.session, i.file_name FROM imports i ORDER BY key",
    "SELECT p.id, i.sha256, i.bytes FROM source_parts p JOIN source_pieces i ON i.key = p.piece
     ORDER BY p.id",
];

fn rows(db: &Path) -> Vec<Vec<Value>> {
    let connection = crate::support::keyed::raw(db).unwrap();
    let mut all = Vec::new();
    for sql in ROWS {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
        let rows = statement.query_map([], row).unwrap();
        all.extend(rows.map(Result::<Vec<Value>, _>::unwrap));
    }
    all
}

/// Returns a transcript of Claude Code: prompts, answers with a call, results of `bytes` bytes.
fn transcript(session: &str, prompts: usize, bytes: usize) -> String {
    let (mut lines, mut parent) = (String::new(), None);
    let mut say = |kind: &str, message: serde_json::Value| {
        let uuid = format!("{session}-{}", lines.len());
        let record = json!({
            "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": session,
            "timestamp": "2026-01-01T00:00:00.000Z", "isSidechain": false, "message": message,
        });
        lines.push_str(&format!("{record}\n"));
        parent = Some(uuid);
    };
    for number in 0..prompts {
        let id = format!("{session}-call-{number}");
        say(
            "user",
            json!({ "role": "user", "content": format!("Prompt {number}\n\u{e9}\u{1}") }),
        );
        let call =
            json!({ "type": "tool_use", "id": id, "name": "Read", "input": { "at": number } });
        let usage = json!({ "input_tokens": number, "output_tokens": 2 });
        let answer = json!({ "id": format!("m{number}"), "role": "assistant", "model": "m",
            "content": [{ "type": "text", "text": "So I read." }, call], "usage": usage });
        say("assistant", answer);
        let text: String = (0..bytes)
            .map(|at| char::from(b' ' + ((at * number) % 91) as u8))
            .collect();
        let result = json!({ "type": "tool_result", "tool_use_id": id, "content": text });
        say("user", json!({ "role": "user", "content": [result] }));
    }
    lines
}

fn write(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Writes valid and invalid files, long and short ones, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let damaged = transcript("damaged", 5, 50).replacen("Prompt 3", "\u{0}", 1) + "{\"cut";
    let chat = json!({ "messages": [{ "role": "user", "content": "Hello" },
        { "role": "assistant", "content": "Hello to you" }] });
    let only_notes =
        "{\"type\":\"progress\",\"sessionId\":\"n\",\"parentUuid\":null,\"uuid\":\"u\"}\n";
    vec![
        write(folder, "01.jsonl", transcript("first", 40, 2_000)),
        write(folder, "02.jsonl", transcript("second", 1, 1)),
        write(folder, "03.jsonl", only_notes),
        write(folder, "04.jsonl", damaged),
        write(folder, "05.jsonl", chat.to_string()),
        write(folder, "06.jsonl", transcript("first", 43, 2_000)),
        write(folder, "07.jsonl", transcript("second", 1, 2)),
        write(folder, "08.jsonl", transcript("third", 400, 900)),
        write(folder, "09.jsonl", transcript("fourth", 2, 70_000)),
        write(folder, "10.jsonl", chat.to_string()),
        write(folder, "11.jsonl", transcript("first", 12, 2_000)),
    ]
}

fn import(store: &SqliteStore, paths: &[PathBuf]) -> Option<ImportReport> {
    import_paths(store, paths, &ImportOptions::default(), &mut |_| ()).ok()
}

#[test]
fn many_files_come_in_as_if_they_came_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let transcripts = folder.path().join("transcripts");
    fs::create_dir(&transcripts).unwrap();
    let files = files(&transcripts);
    let (one, all) = (folder.path().join("one.db"), folder.path().join("all.db"));
    let (by_one, at_once) = (
        crate::support::keyed::open(&one).unwrap(),
        crate::support::keyed::open(&all).unwrap(),
    );
    let mut expected = ImportReport::default();
    for file in &files {
        if let Some(report) = import(&by_one, std::slice::from_ref(file)) {
            expected.merge(report);
        }
    }
    let report = import(&at_once, &[transcripts]).unwrap();
    assert_eq!(report.sessions, expected.sessions);
    assert_eq!(report.added_messages, expected.added_messages);
    assert_eq!(report.messages, expected.messages);
    assert_eq!(report.revised, expected.revised);
    let reasons = |report: &ImportReport| -> Vec<_> {
        let skipped = report.skipped.iter();
        let of_file = |file: &str| !file.ends_with("03.jsonl");
        let reasons = skipped.filter(|skipped| of_file(&skipped.file));
        reasons
            .map(|skipped| (skipped.line, skipped.reason.clone()))
            .collect()
    };
    assert_eq!(reasons(&report), reasons(&expected));
    assert!(
        report
            .skipped
            .iter()
            .any(|skipped| skipped.file.ends_with("03.jsonl"))
    );
    let rows = rows(&all);
    assert!(rows.len() > 1_500);
    for (at_once, by_one) in rows.iter().zip(&self::rows(&one)) {
        assert_eq!(at_once, by_one);
    }
    assert_eq!(rows.len(), self::rows(&one).len());
}

/// Returns the stored copy of the file that a session was imported from.
fn kept(store: &SqliteStore, session: &str) -> Vec<u8> {
    let id = SessionId::new(session).unwrap();
    read(store, |read| {
        let key = read.session(&id)?.unwrap().key;
        let sources = read.sources(key)?;
        assert_eq!(sources.len(), 1);
        let mut out = Vec::new();
        source::write_out(read, &sources[0], &mut out).unwrap();
        Ok(out)
    })
    .unwrap()
}

#[test]
fn a_file_of_many_parts_is_kept_byte_for_byte_and_so_is_what_it_grows_by() {
    let folder = tempfile::tempdir().unwrap();
    let store = crate::support::keyed::open(folder.path().join("a.db")).unwrap();
    let mut text = transcript("long", 60, 80_000);
    assert!(text.len() > 4 << 20);
    let path = write(folder.path(), "long.jsonl", &text);
    import(&store, std::slice::from_ref(&path)).unwrap();
    assert_eq!(kept(&store, "long"), text.as_bytes());
    text = transcript("long", 75, 80_000);
    write(folder.path(), "long.jsonl", &text);
    import(&store, &[path]).unwrap();
    assert_eq!(kept(&store, "long"), text.as_bytes());
}
