//! Exports can be imported again: sessions unchanged, files byte for byte.

use std::path::{Path, PathBuf};

use loopstore::extend::source::sources;
use loopstore::internal::history_fingerprint;
use loopstore::model::*;
use loopstore::provider::Form;
use loopstore::{BuildOptions, SqliteStore, build_context_from_session};
use loopstore_export::{ExportForm, export, export_source};
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};
use loopstore_verify::verify;
use proptest::prelude::*;

use crate::support::amount::amount;
use crate::support::histories::{History, Random, answer, loop_id, user};
use crate::support::keyed;
use crate::support::provider_faults::provider_faults;
use crate::support::recording::real_transcripts;

fn exported(store: &SqliteStore, id: &SessionId, form: ExportForm) -> String {
    let mut out = Vec::new();
    export(store, id, None, form, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn import(store: &SqliteStore, path: &Path) -> ImportReport {
    let options = ImportOptions::default();
    import_paths(store, &[path.to_owned()], &options, &mut |_| {}).unwrap()
}

fn import_text(store: &SqliteStore, text: &str) -> ImportReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.json");
    std::fs::write(&path, text).unwrap();
    import(store, &path)
}

/// Returns everything that importing stored content again must leave unchanged.
fn counts(store: &SqliteStore) -> String {
    let sql = "SELECT (SELECT count(*) FROM v_messages), (SELECT count(*) FROM v_turns),
        (SELECT count(*) FROM v_compaction_runs), (SELECT count(*) FROM v_compaction_blocks),
        (SELECT group_concat(loop_id || ' ' || status || ' ' || coalesce(parent_turn, '-'))
         FROM v_loops), (SELECT group_concat(current_loop_id) FROM v_sessions)";
    format!("{:?}", store.query(sql).unwrap().rows)
}

/// Compares documents line by line.
fn same(left: &str, right: &str) {
    for (left, right) in left.lines().zip(right.lines()) {
        assert_eq!(left, right);
    }
    assert_eq!(left, right);
}

fn contexts(store: &SqliteStore, id: &SessionId, loops: usize) -> Vec<String> {
    let context = |at: usize| {
        let leaf = Some(loop_id(at));
        let options = BuildOptions {
            leaf,
            ..BuildOptions::default()
        };
        let context = build_context_from_session(store, id, &options).unwrap();
        serde_json::to_string(&context.messages).unwrap()
    };
    (0..loops).map(context).collect()
}

/// Returns the position and the text of a line's message.
fn message_of(line: &str) -> Option<String> {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let keys = ["loop", "turn", "seq", "tokens", "message"];
    (line["record"] == "message").then(|| keys.map(|key| line[key].to_string()).join(" "))
}

#[test]
fn a_random_session_survives_its_own_export() {
    let histories = amount("LOOPSTORE_HISTORIES", 40);
    for seed in 0..histories {
        println!("seed {seed}");
        let store = SqliteStore::in_memory().unwrap();
        let mut random = Random::new(seed);
        let mut history = History::new(&store, "s");
        for _ in 0..45 {
            history.step(&mut random);
        }
        let (id, loops) = (history.session.clone(), history.loops);
        let text = exported(&store, &id, ExportForm::PhiCore);
        let (counted, shown) = (counts(&store), contexts(&store, &id, loops));

        // Into the same database: nothing changes.
        let report = import_text(&store, &text);
        assert_eq!((report.added_messages, report.skipped.len()), (0, 0));
        assert_eq!(counts(&store), counted);
        assert_eq!(contexts(&store, &id, loops), shown);
        same(&exported(&store, &id, ExportForm::PhiCore), &text);
        let report = verify(&store).unwrap();
        assert!(report.ok, "{:?}", report.problems);

        // Into another database: the same document again, and the same originals.
        let other = SqliteStore::in_memory().unwrap();
        import_text(&other, &text);
        same(&exported(&other, &id, ExportForm::PhiCore), &text);
        let lines = |store| {
            let text = exported(store, &id, ExportForm::Lines);
            let mut lines: Vec<String> = text.lines().filter_map(message_of).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines(&other), lines(&store));
        let report = verify(&other).unwrap();
        assert!(report.ok, "{:?}", report.problems);
        let counted = counts(&other);
        import_text(&other, &text);
        assert_eq!(counts(&other), counted);
    }
}

#[test]
fn the_context_of_a_compacted_session_comes_along() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    for at in 0..5 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        for turn in 0..6 {
            let text = format!("{at} {turn} {}", "word ".repeat(60));
            history.append(at, vec![user(&text, turn), answer(&text, &[], turn)]);
        }
        history.end_loop(at);
        if at % 2 == 0 {
            history.compact(at, (1, 2), true);
        }
        let other = SqliteStore::in_memory().unwrap();
        let text = exported(&store, &history.session, ExportForm::PhiCore);
        import_text(&other, &text);
        let leaf = |store| contexts(store, &history.session, at + 1).pop().unwrap();
        assert_eq!(leaf(&other), leaf(&store), "after loop {at}");
    }
    assert!(history.committed >= 2);
}

fn canonical(text: &str) -> Vec<[u8; 32]> {
    let session: Session = serde_json::from_str(text).unwrap();
    let mut parts: Vec<_> = session
        .loops
        .iter()
        .map(|l| history_fingerprint(&Json::of(l).unwrap()))
        .collect();
    parts.sort_unstable();
    let bare = Session {
        loops: Vec::new(),
        ..session
    };
    parts.push(history_fingerprint(&Json::of(&bare).unwrap()));
    parts
}

#[test]
fn a_document_comes_back_with_unknown_fields_and_the_text_of_numbers() {
    let text = r#"{"session_id":"odd","agent_id":null,"created_at":"2026-01-02T03:04:05.10Z",
        "mood":{"n":1.50},"last_active_at":"2026-01-02T03:04:09+02:00","loops":[
        {"loop_id":"a","status":"Aborted","weather":"fair","metadata":{"x":1e5},"messages":[
        {"role":"user","content":[{"type":"text","text":"hi","cache":true}],"timestamp":1.0e3},
        {"role":"extension","kind":"note","data":[1,2.0]},
        {"role":"assistant","content":[{"type":"odd","n":0.10}],"stopReason":"stop","model":"m",
         "provider":"p","usage":{"input":1,"output":2},"timestamp":2000,"nodeId":"n1"}],
        "turns":[{"turn_id":{"loop_id":"a","turn_index":0},"triggered_by":"User","input_messages":[
        {"role":"user","content":[{"type":"text","text":"hi","cache":true}],"timestamp":1.0e3}]}],
        "events":[{"sequence":1,"event":{"type":"AgentStart"}}]},
        {"loop_id":"b","parent_loop_id":"a","parent_turn":0,"continuation_kind":"Default",
         "started_at":"soon","compaction_block":{"keep_first":{"startTurn":4,"endTurn":9}},
         "messages":[{"role":"user","content":[],"timestamp":3000}]}]}"#;
    let store = SqliteStore::in_memory().unwrap();
    import_text(&store, text);
    let id = SessionId::new("odd").unwrap();
    let written = exported(&store, &id, ExportForm::PhiCore);
    assert_eq!(canonical(&written), canonical(text), "{written}");
}

#[test]
fn recorded_documents_come_back_as_they_are() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    for name in [
        "compacted-one-loop",
        "compacted-four-loops",
        "tree-branches-rerun",
        "child7",
    ] {
        let path = folder.join("phi-core").join(format!("{name}.json"));
        let store = SqliteStore::in_memory().unwrap();
        let id = import(&store, &path).sessions.remove(0);
        let original = std::fs::read_to_string(&path).unwrap();
        let written = exported(&store, &id, ExportForm::PhiCore);
        assert_eq!(canonical(&written), canonical(&original), "{name}");
        let counted = counts(&store);
        import_text(&store, &written);
        assert_eq!(counts(&store), counted, "{name}");
    }
}

#[test]
fn a_loop_that_continues_nothing_of_its_parent_stays_so() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    history.start_loop(Some(0), None);
    history.append(0, vec![user("later", 0)]);
    history.append(1, vec![user("mine", 0)]);
    let text = exported(&store, &history.session, ExportForm::PhiCore);
    assert!(text.contains("\"parent_turn\":-1"), "{text}");
    let other = SqliteStore::in_memory().unwrap();
    import_text(&other, &text);
    let seen = |store| contexts(store, &history.session, 2);
    assert_eq!(seen(&other), seen(&store));
}

#[test]
fn a_document_that_holds_records_of_another_tool_is_known_for_what_it_is() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    let record = r#"{"type":"user","uuid":"u","sessionId":"x","parentUuid":null,"timestamp":"2026-01-02T03:04:05Z","message":{"role":"user","content":"hi"}}"#;
    let note = AgentMessage::extension("record", Json::parse(record).unwrap());
    let summary = r#"{"type":"summary","summary":"s","leafUuid":"l"}"#;
    let summary = AgentMessage::extension("record", Json::parse(summary).unwrap());
    history.append(0, vec![note, summary, user(record, 0)]);
    let text = exported(&store, &history.session, ExportForm::PhiCore);
    let other = SqliteStore::in_memory().unwrap();
    let report = import_text(&other, &text);
    assert_eq!(report.sessions[0], history.session);
    same(
        &exported(&other, &history.session, ExportForm::PhiCore),
        &text,
    );
}

#[test]
fn requests_hold_the_originals_and_are_valid() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    for turn in 0..8 {
        let text = format!("{turn} {}", "word ".repeat(60));
        history.append(0, vec![user(&text, turn), answer(&text, &["c"], turn)]);
    }
    history.end_loop(0);
    history.compact(0, (1, 2), true);
    assert_eq!(history.committed, 1);
    for form in Form::ALL {
        let text = exported(&store, &history.session, ExportForm::Request(form));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(provider_faults(&value, form), []);
        for turn in 0..8 {
            assert!(text.contains(&format!("{turn} word word")), "{turn}");
        }
    }
}

fn kept(store: &SqliteStore, id: &SessionId) -> Vec<Vec<u8>> {
    let write = |row| {
        let mut out = Vec::new();
        let bytes = export_source(store, row, &mut out).unwrap();
        assert_eq!((bytes, row.bytes), (out.len() as u64, out.len() as u64));
        out
    };
    sources(store, id).unwrap().iter().map(write).collect()
}

fn lines(from: usize, to: usize) -> String {
    let line = |at: usize| {
        format!(
            "{{\"task_id\":{at},\"trial\":0,\"traj\":[{{\"role\":\"user\",\"content\":\"ask {at} {}\"}}]}}\n",
            "x".repeat(at * 37 % 5000)
        )
    };
    (from..to).map(line).collect()
}

#[test]
fn a_file_that_grows_is_given_back_whole_and_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("a.db"), folder.path().join("runs.jsonl"));
    let store = keyed::open(&path).unwrap();
    let mut ids = Vec::new();
    for end in [3, 4, 5, 900, 901, 1800] {
        std::fs::write(&file, lines(0, end)).unwrap();
        ids = import(&store, &file).sessions;
        assert_eq!(ids.len(), end);
        assert_eq!(kept(&store, &ids[0]), [lines(0, end).into_bytes()]);
    }
    // An earlier state removes nothing, also under another name.
    for name in ["runs.jsonl", "copy.jsonl"] {
        let earlier = folder.path().join(name);
        std::fs::write(&earlier, lines(0, 900)).unwrap();
        import(&store, &earlier);
        assert_eq!(kept(&store, &ids[0])[0], lines(0, 1800).into_bytes());
    }
    for id in [&ids[0], &ids[900], &ids[1799]] {
        assert_eq!(kept(&store, id)[0], lines(0, 1800).into_bytes());
    }
    let connection = keyed::raw(&path).unwrap();
    let whole: i64 = connection
        .query_row("SELECT sum(bytes) FROM source_pieces", [], |row| row.get(0))
        .unwrap();
    let pieces: i64 = connection
        .query_row("SELECT count(*) FROM source_pieces", [], |row| row.get(0))
        .unwrap();
    let copies = kept(&store, &ids[0]).len() as i64 - 1;
    assert_eq!(copies, 0, "the copy is a state of the same file");
    assert_eq!(whole, lines(0, 1800).len() as i64);
    assert!(pieces < 10, "{pieces}");
    assert!(verify(&store).unwrap().ok);
}

#[test]
fn a_file_that_is_rewritten_in_its_place_is_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    let store = SqliteStore::in_memory().unwrap();
    let document = |mood: &str| {
        format!(
            r#"{{"session_id":"s","mood":"{mood}","loops":[{{"loop_id":"a","messages":[{{"role":"user","content":[]}}]}}]}}"#
        )
    };
    for mood in ["fair", "foul", "f"] {
        std::fs::write(&file, document(mood)).unwrap();
        let id = import(&store, &file).sessions.remove(0);
        assert_eq!(kept(&store, &id), [document(mood).into_bytes()]);
    }
}

#[test]
fn nothing_is_kept_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.jsonl");
    std::fs::write(&file, lines(0, 3)).unwrap();
    let store = SqliteStore::in_memory().unwrap();
    let without = ImportOptions {
        without_source: true,
        ..ImportOptions::default()
    };
    let report = import_paths(&store, std::slice::from_ref(&file), &without, &mut |_| {}).unwrap();
    let only = ImportOptions {
        session: Some(report.sessions[0].clone()),
        ..ImportOptions::default()
    };
    let _ = import_paths(&store, std::slice::from_ref(&file), &only, &mut |_| {});
    assert_eq!(sources(&store, &report.sessions[0]).unwrap(), []);
    import(&store, &file);
    assert_eq!(kept(&store, &report.sessions[0]).len(), 1);
}

#[test]
fn a_damaged_part_is_an_error_and_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("a.db"), folder.path().join("runs.jsonl"));
    std::fs::write(&file, lines(0, 3)).unwrap();
    let id = import(&keyed::open(&path).unwrap(), &file)
        .sessions
        .remove(0);
    for (sql, name) in [
        (
            "UPDATE source_pieces SET data = x'00'",
            "cannot be unpacked",
        ),
        ("UPDATE source_pieces SET bytes = 7", "parts that were kept"),
        ("DELETE FROM source_parts", "parts that were kept"),
    ] {
        let damaged = folder.path().join("damaged.db");
        std::fs::copy(&path, &damaged).unwrap();
        let connection = keyed::raw(&damaged).unwrap();
        let update = "DROP TRIGGER source_pieces_no_update";
        connection
            .execute_batch(&format!("{update}; {sql}"))
            .unwrap();
        let trigger = "CREATE TRIGGER source_pieces_no_update
BEFORE UPDATE ON source_pieces
BEGIN
    SELECT RAISE(ABORT, 'source pieces are immutable');
END";
        connection.execute_batch(trigger).unwrap();
        drop(connection);
        let store = keyed::open(&damaged).unwrap();
        let row = sources(&store, &id).unwrap().remove(0);
        let error = export_source(&store, &row, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains(name), "{sql}: {error}");
        let report = verify(&store).unwrap();
        let found = report.problems.iter().filter(|p| p.place == "source 1");
        assert_eq!((report.ok, found.count()), (false, 1), "{sql}: {report:?}");
    }
}

#[test]
fn recorded_transcripts_are_given_back_byte_for_byte() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    let mut checked = 0;
    for name in ["phi-core", "openai-chat", "claude-code"] {
        for file in files(&folder.join(name)) {
            let store = SqliteStore::in_memory().unwrap();
            let options = ImportOptions::default();
            let Ok(report) =
                import_paths(&store, std::slice::from_ref(&file), &options, &mut |_| {})
            else {
                continue;
            };
            for id in &report.sessions {
                assert_eq!(
                    kept(&store, id),
                    [std::fs::read(&file).unwrap()],
                    "{file:?}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The last state of a file is exported, whatever states preceded it.
    #[test]
    fn any_states_of_a_file_are_kept(states in prop::collection::vec((0usize..60, any::<bool>()), 1..6)) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.jsonl");
        let store = SqliteStore::in_memory().unwrap();
        let id = SessionId::new("s").unwrap();
        let mut longest = String::new();
        for (size, odd) in states {
            let mark = if odd { "odd" } else { "even" };
            let head = format!(r#"{{"session_id":"s","mark":"{mark}","loops":[{{"loop_id":"a","messages":[{{"role":"user","content":[]}}]}}]}}"#);
            let text = format!("{head}\n{}", "\n".repeat(size * 3000));
            std::fs::write(&file, &text).unwrap();
            import(&store, &file);
            let is_within = longest.starts_with(&text);
            longest = if is_within { longest } else { text };
            prop_assert_eq!(&kept(&store, &id), &[longest.clone().into_bytes()]);
        }
    }
}
