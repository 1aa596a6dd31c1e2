//! Which file is meant, commits, and input that is hostile or wrong.

use loopstore::model::{Message, SessionId};
use loopstore_blame::{AgentTraceOptions, BlameError, BlameRequest, FileText, agent_trace, blame};
use serde_json::{Value, json};

use crate::stage::{Stage, lines, request};

fn write(path: &str, text: &str) -> Value {
    json!({"file_path": path, "content": text})
}

#[test]
fn a_file_is_found_by_its_path_its_end_or_its_recorded_path() {
    let mut stage = Stage::new();
    stage.call("one", "Write", write("/old/repo/src/a.rs", "one\n"), "");
    stage.call("two", "Write", write("/other/lib/a.rs", "two\n"), "");
    let turn = |request: &BlameRequest| {
        let found = blame(stage.store.database(), request)?;
        let turn = found.ranges[0].turn.clone().unwrap();
        Ok::<_, BlameError>((turn.session_id, found.paths))
    };
    // The repository was moved.
    let moved = turn(&request("/new/repo/src/a.rs", None));
    assert!(matches!(moved, Err(BlameError::NoChange(_))));
    let mut typed = request("src/a.rs", None);
    typed.absolute = vec!["/new/repo/src/a.rs".into()];
    assert_eq!(
        turn(&typed).unwrap(),
        ("one".into(), vec!["/old/repo/src/a.rs".into()])
    );
    let mut name = request("a.rs", None);
    name.absolute.clear();
    assert!(matches!(turn(&name), Err(BlameError::SeveralFiles { paths, .. }) if paths.len() == 2));
    name.session = Some(SessionId::new("two").unwrap());
    assert_eq!(turn(&name).unwrap().0, "two");
    name.session = None;
    name.recorded = vec!["/other/lib/./a.rs".into()];
    assert_eq!(turn(&name).unwrap().0, "two");
    name.project = Some("nowhere".into());
    assert!(matches!(turn(&name), Err(BlameError::NoChange(_))));
}

#[test]
fn lines_that_do_not_exist_are_refused() {
    let mut stage = Stage::new();
    stage.call("one", "Write", write("/r/a", "1\n2\n3\n"), "");
    let edit = json!({"file_path": "/r/b", "old_string": "x", "new_string": "y"});
    stage.call("one", "Edit", edit, "");
    let ranges = |file: &str, lines| {
        let mut request = request(file, None);
        request.lines = Some(lines);
        blame(stage.store.database(), &request).map(|found| found.ranges)
    };
    let range = &ranges("/r/a", (2, 3)).unwrap()[0];
    assert_eq!((range.from_line, range.to_line), (2, 3));
    for lines in [(4, 4), (0, 1), (3, 2), (1, u32::MAX)] {
        assert!(matches!(
            ranges("/r/a", lines),
            Err(BlameError::NoLine { lines: 3, .. })
        ));
    }
    assert!(matches!(
        ranges("/r/b", (1, 1)),
        Err(BlameError::UnknownLines(_))
    ));
    // An empty file has no lines.
    let found = stage.blame("/r/a", Some("")).unwrap();
    assert_eq!((found.lines, found.ranges.len()), (Some(0), 0));
}

#[test]
fn hostile_paths_and_texts_are_only_texts() {
    let mut stage = Stage::new();
    let long = "x/".repeat(2_000) + "a";
    let odd = [
        "/",
        ".",
        "..",
        "../../etc/passwd",
        "~",
        "/r/\u{202e}a",
        "/r/a b'c\"d$(e)",
        &long,
    ];
    for path in odd {
        stage.call(
            "one",
            "Write",
            write(path, "é\u{0}\u{1b}[31m\r\n\u{85}"),
            "",
        );
    }
    let deep = json!({"command": "mv ".to_owned() + &"a ".repeat(5_000)});
    stage.call("one", "Bash", deep, "");
    stage.call(
        "one",
        "apply_patch",
        json!("*** Begin Patch\n*** Update File: q\n@@ -1,4294967295 +9,1 @@\n+x\n*** End Patch"),
        "",
    );
    for path in odd.into_iter().chain(["", "q", "a\0b", "/r/../../.."]) {
        for file in [request(path, None), request(path, Some("é\n\u{0}"))] {
            let _ = blame(stage.store.database(), &file);
            let typed = BlameRequest {
                absolute: Vec::new(),
                ..file
            };
            let _ = blame(stage.store.database(), &typed);
        }
    }
    assert!(stage.blame("/r/a b'c\"d$(e)", None).is_ok());
}

#[test]
fn many_changes_of_a_large_file_take_no_longer_than_they_should() {
    let mut stage = Stage::new();
    let text: String = (0..20_000)
        .map(|at| format!("line number {at}\n"))
        .collect();
    stage.call("one", "Write", write("/r/large", &text), "");
    let other: String = (0..20_000)
        .rev()
        .map(|at| format!("line number {at}\n"))
        .collect();
    stage.call("one", "Write", write("/r/large", &other), "");
    for at in 0..100 {
        let old = format!("line number {at}99\n");
        let edit = json!({"file_path": "/r/large", "old_string": old, "new_string": format!("changed {at}\n")});
        stage.call("one", "Edit", edit, "");
    }
    let found = stage.blame("/r/large", None).unwrap();
    assert_eq!(found.lines, Some(20_000));
    assert!(lines(&found).iter().all(Option::is_some));
}

#[test]
fn line_ends_and_lines_that_are_not_utf8_are_told_apart() {
    let mut stage = Stage::new();
    stage.call("one", "Write", write("/r/a", "first\nsecond\nthird"), "");
    let mut asked = request("/r/a", None);
    let text = String::from_utf8_lossy(b"first\r\nsec\xffond\r\nthird\r\n").into_owned();
    asked.text = Some(FileText { text, not_utf8: 1 });
    let found = blame(stage.store.database(), &asked).unwrap();
    let known: Vec<bool> = lines(&found).iter().map(Option::is_some).collect();
    assert_eq!((known, found.not_utf8_lines), (vec![true, false, true], 1));
}

#[test]
fn a_commit_belongs_to_the_changes_before_it() {
    let mut stage = Stage::new();
    stage.prompt("one", "Write a lamp.\nAnd test it.");
    stage.call("one", "Write", write("/r/a", "first\n"), "");
    let commit =
        json!({"command": "git add -A && git commit -m 'Add a lamp' && git rev-parse HEAD"});
    let id = "1a2b3c4d".repeat(5);
    stage.call(
        "one",
        "Bash",
        commit,
        &format!("[main 1a2b3c4] Add a lamp\n 1 file changed\n{id}\n"),
    );
    let edit =
        json!({"file_path": "/r/a", "old_string": "first\n", "new_string": "first\nlater\n"});
    stage.call("two", "Edit", edit, "");
    let found = stage.blame("/r/a", None).unwrap();
    let turn = found.ranges[0].turn.as_ref().unwrap();
    let commit = turn.commit.as_ref().unwrap();
    assert_eq!(
        (&*commit.commit_id, commit.branch.as_deref()),
        (&*id, Some("main"))
    );
    assert_eq!(commit.subject.as_deref(), Some("Add a lamp"));
    assert_eq!(turn.prompt.as_deref(), Some("Write a lamp. And test it."));
    assert_eq!(turn.model.as_deref(), Some("a-model"));
    assert_eq!(found.ranges[1].turn.as_ref().unwrap().commit, None);
}

#[test]
fn a_repeated_call_is_one_change() {
    let stage = Stage::new();
    let mut call = Message::assistant("").with_tool_call("c-1", "Write", write("/r/a", "x\n"));
    if let Message::Assistant(answer) = &mut call {
        answer.timestamp = Some(1_767_225_600_000.into());
    }
    // A resumed session begins with a copy of the session before.
    for session in ["one", "two"] {
        let chat = stage.store.session(session).unwrap();
        chat.append([call.clone(), Message::tool_result("c-1", "")])
            .unwrap();
    }
    let found = stage.blame("/r/a", None).unwrap();
    assert_eq!(
        (found.changes.len(), found.repeated_calls, found.sessions),
        (1, 1, 2)
    );
}

#[test]
fn a_hidden_session_is_not_read() {
    let mut stage = Stage::new();
    stage.call("one", "Write", write("/r/a", "x\n"), "");
    stage.store.session("one").unwrap().hide().unwrap();
    assert!(matches!(
        stage.blame("/r/a", None),
        Err(BlameError::NoChange(_))
    ));
}

#[test]
fn an_agent_trace_has_the_required_fields() {
    let mut stage = Stage::new();
    stage.call("a b/é", "Write", write("/r/a", "first\nsecond\n"), "");
    let found = stage.blame("/r/a", Some("mine\nfirst\nsecond\n")).unwrap();
    let options = AgentTraceOptions {
        path: Some("src/a".into()),
        revision: Some("0".repeat(40)),
        timestamp: "2026-01-01T00:00:00Z".into(),
        text: Some("mine\nfirst\nsecond\n".into()),
    };
    let record = agent_trace(&found, &options);
    assert_eq!(record, agent_trace(&found, &options));
    assert_eq!(record["version"], "0.1.0");
    let id = record["id"].as_str().unwrap();
    let parts: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!((parts, &id[14..15]), (vec![8, 4, 4, 4, 12], "8"));
    assert_eq!(record["vcs"]["type"], "git");
    assert_eq!(record["tool"]["name"], "loopstore");
    let file = &record["files"][0];
    assert_eq!(file["path"], "src/a");
    let conversations = file["conversations"].as_array().unwrap();
    assert_eq!(conversations[0]["contributor"], json!({"type": "unknown"}));
    assert_eq!(conversations[0]["ranges"][0]["end_line"], 1);
    let own = &conversations[1];
    assert_eq!(
        own["contributor"],
        json!({"type": "ai", "model_id": "a-model"})
    );
    assert_eq!(own["url"], "loopstore:session/a%20b%2F%C3%A9");
    let range = &own["ranges"][0];
    assert_eq!(
        (&range["start_line"], &range["end_line"]),
        (&json!(2), &json!(3))
    );
    let hash = range["content_hash"].as_str().unwrap();
    assert_eq!((hash.len(), &hash[..7]), (71, "sha256:"));
    let turn = &record["metadata"]["dev.loopstore"]["turns"][0];
    assert_eq!((&turn["turn"], &turn["start_line"]), (&json!(0), &json!(2)));
}
