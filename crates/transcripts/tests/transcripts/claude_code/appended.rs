//! Appended records are imported from the end of a file with the same result as from the whole file, wherever the file
//! was cut.

use std::path::{Path, PathBuf};

use loopstore::{
    AgentMessage, BuildOptions, Database, SessionFilter, SessionId, SqliteStore, Store,
    build_context_from_session,
};
use loopstore_export::export;
use loopstore_transcripts::{ImportOptions, import_appended, import_paths};

use crate::support::{keyed, root};

/// Two stores with the same transcript, and the number of times that only its end was read.
struct StorePair {
    whole: SqliteStore,
    appended: SqliteStore,
    path: PathBuf,
    /// The session, once something was imported.
    session: Option<SessionId>,
    ends: usize,
}

/// Returns the exported lines without the audit chain, which contains times.
fn lines(store: &dyn Database) -> Vec<String> {
    let sessions = store.session_rows(&SessionFilter::default()).unwrap();
    let text = |id: &SessionId| {
        let mut text = Vec::new();
        export(store, id, None, "jsonl".parse().unwrap(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    let ids = sessions.iter().filter_map(|one| one.text("session_id"));
    let texts: String = ids.map(|id| text(&SessionId::new(id).unwrap())).collect();
    let kept = texts
        .lines()
        .filter(|line| !line.starts_with("{\"record\":\"audit\""));
    kept.map(without_digests).collect()
}

/// Salts are random, and digests depend on them.
fn without_digests(line: &str) -> String {
    let mut words: Vec<&str> = line.split('"').collect();
    for word in &mut words {
        if matches!(word.len(), 32 | 64) && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            *word = "digest";
        }
    }
    words.join("\"")
}

impl StorePair {
    fn new(path: PathBuf) -> Self {
        let at = |name: &str| keyed::open(path.with_file_name(name)).unwrap();
        let (whole, appended) = (at("whole.db"), at("appended.db"));
        Self {
            whole,
            appended,
            path,
            session: None,
            ends: 0,
        }
    }

    fn import(&mut self, text: &[u8]) {
        std::fs::write(&self.path, text).unwrap();
        let whole = |store: &SqliteStore| {
            let (paths, options) = ([self.path.clone()], ImportOptions::default());
            import_paths(store, &paths, &options, &mut |_| {}).ok()
        };
        let report = whole(&self.whole);
        let end = self.session.as_ref().and_then(|session| {
            let end = import_appended(&self.appended, &self.path, "claude-code", session);
            end.unwrap()
        });
        match end {
            Some(_) => self.ends += 1,
            None => assert_eq!(whole(&self.appended).is_some(), report.is_some()),
        }
        let session = report.and_then(|report| report.sessions.first().cloned());
        self.session = session.or(self.session.take());
    }

    fn check(&self, at: usize) {
        let (whole, appended) = (lines(&self.whole), lines(&self.appended));
        for (whole, appended) in whole.iter().zip(&appended) {
            assert_eq!(whole, appended, "{} cut at {at}", self.path.display());
        }
        assert!(whole == appended, "{} cut at {at}", self.path.display());
    }
}

/// Imports a transcript up to each of these offsets, in order.
fn grow(name: &str, text: &[u8], cuts: &[usize]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut pair = StorePair::new(folder.path().join(name));
    for cut in cuts {
        pair.import(&text[..*cut]);
        pair.check(*cut);
    }
    pair.ends
}

/// Returns the ends of all lines, and an offset within each line.
fn places(text: &[u8]) -> Vec<usize> {
    let (mut places, mut at) = (Vec::new(), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        places.extend([at + line.len() / 2, at + line.len()]);
        at += line.len();
    }
    places
}

#[test]
fn every_fixture_comes_in_line_by_line_as_it_does_whole() {
    let mut ends = 0;
    for name in [
        "compactions.jsonl",
        "kite-1.jsonl",
        "rewinds.jsonl",
        "project/parent-7.jsonl",
    ] {
        let text = std::fs::read(root::fixture(&format!("claude-code/{name}"))).unwrap();
        let name = Path::new(name).file_name().unwrap().to_str().unwrap();
        ends += grow(name, &text, &places(&text));
    }
    assert!(ends > 20, "only {ends} times only the end was read");
}

/// Returns the current loop of a session, and the context of the next model call.
fn shown(store: &SqliteStore, session: &SessionId) -> (Option<String>, Vec<AgentMessage>) {
    let rows = store.session_rows(&SessionFilter::default()).unwrap();
    let mut own = rows.iter();
    let row = own.find(|row| row.text("session_id").as_deref() == Some(session.as_str()));
    let current = row.and_then(|row| row.text("current_loop_id"));
    let options = BuildOptions::default();
    let context = build_context_from_session(store, session, &options).unwrap();
    (current, context.messages)
}

#[test]
fn an_older_copy_of_a_transcript_moves_nothing() {
    for name in ["compactions.jsonl", "kite-1.jsonl", "rewinds.jsonl"] {
        let text = std::fs::read(root::fixture(&format!("claude-code/{name}"))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let store = keyed::open(folder.path().join("a.db")).unwrap();
        let import = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let (paths, options) = ([path.clone()], ImportOptions::default());
            import_paths(&store, &paths, &options, &mut |_| {})
        };
        let session = import(&text).unwrap().sessions[0].clone();
        let before = shown(&store, &session);
        for cut in places(&text) {
            // A beginning that is too short to be recognised is rejected.
            let _ = import(&text[..cut]);
            assert_eq!(shown(&store, &session), before, "{name} cut at {cut}");
        }
    }
}

/// Returns prompts, answers with calls, notes, and now and then a record that depends on the whole file.
fn conversation(odd: &str) -> String {
    let mut text = String::new();
    let mut last: Option<String> = None;
    let mut record = |kind: &str, parent: Option<&str>, message: serde_json::Value| {
        let uuid = format!("u{}", text.lines().count());
        let parent = parent.map(str::to_owned).or(last.take());
        let parent = parent.filter(|parent| parent != "none");
        let record = serde_json::json!({"parentUuid": parent, "isSidechain": false, "cwd": "/w",
            "sessionId": "s1", "version": "2.1.300", "type": kind, "message": message,
            "uuid": uuid, "timestamp": format!("2026-03-01T10:00:{:02}.000Z", text.lines().count() % 60)});
        text += &format!("{record}\n{{\"type\":\"last-prompt\",\"sessionId\":\"s1\"}}\n");
        last = Some(uuid.clone());
        uuid
    };
    let mut first = String::new();
    for turn in 0..6 {
        let ask = serde_json::json!({"role": "user", "content": format!("Part {turn}")});
        let parent = match (odd, turn) {
            ("rewinds", 4) => Some(first.as_str()),
            ("begins again", 4) => Some("none"),
            ("lost", 4) => Some("u999"),
            _ => None,
        };
        let prompt = record("user", parent, ask);
        if turn == 1 {
            first = prompt;
        }
        for step in 0..3 {
            let id = format!("c{turn}.{step}");
            let call =
                serde_json::json!({"type": "tool_use", "id": id, "name": "Bash", "input": {}});
            record(
                "assistant",
                None,
                serde_json::json!({"id": format!("m{turn}.{step}"), "model": "m",
                "role": "assistant", "type": "message", "content": [call]}),
            );
            let of = if odd == "late results" && turn == 5 {
                "c4.0"
            } else {
                &id
            };
            record(
                "user",
                None,
                serde_json::json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": of, "content": "done"}]}),
            );
        }
    }
    text
}

#[test]
fn what_hangs_on_what_stands_before_is_read_whole() {
    for odd in ["", "rewinds", "begins again", "lost", "late results"] {
        let text = conversation(odd);
        let ends = grow("s1.jsonl", text.as_bytes(), &places(text.as_bytes()));
        assert!(ends > 20, "{odd}: only {ends} times only the end was read");
    }
}

#[test]
fn only_a_stored_session_of_the_format_is_gone_on_with() {
    let text = conversation("");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s1.jsonl");
    std::fs::write(&path, &text).unwrap();
    let store = Store::in_memory().unwrap();
    let session = SessionId::new("s1").unwrap();
    let none = |store: &Store, format: &str, session: &SessionId| {
        let read = import_appended(store.database(), &path, format, session);
        assert!(read.unwrap().is_none(), "{format}");
    };
    none(&store, "claude-code", &session);
    let (paths, options) = ([path.clone()], ImportOptions::default());
    import_paths(store.database(), &paths, &options, &mut |_| {}).unwrap();
    none(&store, "codex", &session);
    none(&store, "nonsense", &session);
    none(&store, "claude-code", &SessionId::new("s2").unwrap());
    let read = import_appended(store.database(), &path, "claude-code", &session);
    assert_eq!(read.unwrap().unwrap().added_messages, 0);
    // Another file with the same name: its end does not belong to this session.
    std::fs::write(&path, text.replace("\"u", "\"v")).unwrap();
    none(&store, "claude-code", &session);
    std::fs::remove_file(&path).unwrap();
    let read = import_appended(store.database(), &path, "claude-code", &session);
    assert!(read.is_err());
    let redacted = Store::in_memory().unwrap();
    std::fs::write(&path, &text).unwrap();
    let redact = ImportOptions {
        redact: true,
        ..ImportOptions::default()
    };
    import_paths(redacted.database(), &paths, &redact, &mut |_| {}).unwrap();
    none(&redacted, "claude-code", &session);
}

#[test]
fn recorded_transcripts_come_in_piece_by_piece_as_they_do_whole() {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS") else {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing checked");
        return;
    };
    let mut ends = 0;
    for entry in std::fs::read_dir(Path::new(&folder).join("claude-code")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let text = match std::fs::read(&path) {
            Ok(text) if name.ends_with(".jsonl") && text.len() < 2 << 20 => text,
            _ => continue,
        };
        let places = places(&text);
        let every = (places.len() / 12).max(1);
        let cuts: Vec<usize> = places
            .iter()
            .step_by(every)
            .copied()
            .chain([text.len()])
            .collect();
        ends += grow(name, &text, &cuts);
    }
    assert!(ends > 0);
}
