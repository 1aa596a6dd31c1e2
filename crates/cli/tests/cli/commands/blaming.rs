//! `blame`: the lines of a file, its changes, and what cannot be answered.

use serde_json::{Value, json};

use crate::commands::stage::Stage;

/// Returns a session of Claude Code that writes a file, edits it and commits.
fn transcript() -> String {
    let calls = [
        (
            "Write",
            json!({"file_path": "/repo/lamp.py", "content": "def on():\n    pass\n"}),
            "File created successfully at: /repo/lamp.py",
        ),
        (
            "Bash",
            json!({"command": "git add . && git commit -m 'Add a lamp'"}),
            "[main 1a2b3c4] Add a lamp\n 1 file changed",
        ),
        (
            "Edit",
            json!({"file_path": "/repo/lamp.py", "old_string": "    pass", "new_string": "    shine()"}),
            "The file /repo/lamp.py has been updated.",
        ),
        (
            "Bash",
            json!({"command": "sed -i s/on/off/ /repo/lamp.py"}),
            "",
        ),
    ];
    let mut lines = Vec::new();
    let mut before = Value::Null;
    let mut line = |mut value: Value| {
        value["parentUuid"] = std::mem::replace(&mut before, value["uuid"].clone());
        value["sessionId"] = "lamp".into();
        value["cwd"] = "/repo".into();
        lines.push(value.to_string());
    };
    let at = |second: usize| format!("2026-01-05T09:00:{second:02}.000Z");
    line(json!({"type": "user", "uuid": "u", "timestamp": at(0),
        "message": {"role": "user", "content": "Write a lamp"}}));
    for (nth, (tool, input, result)) in calls.into_iter().enumerate() {
        let id = format!("c{nth}");
        line(
            json!({"type": "assistant", "uuid": format!("a{nth}"), "timestamp": at(nth * 2 + 1),
            "message": {"role": "assistant", "model": "a-model", "id": format!("m{nth}"),
                "content": [{"type": "tool_use", "id": id, "name": tool, "input": input}]}}),
        );
        line(
            json!({"type": "user", "uuid": format!("r{nth}"), "timestamp": at(nth * 2 + 2),
            "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": result}]}}),
        );
    }
    lines.join("\n") + "\n"
}

fn stage() -> Stage {
    let stage = Stage::empty();
    std::fs::write(stage.path("lamp.jsonl"), transcript()).unwrap();
    assert_eq!(stage.say("import lamp.jsonl").code, 0);
    stage
}

#[test]
fn a_line_has_its_session_turn_and_prompt() {
    let stage = stage();
    std::fs::write(stage.path("lamp.py"), "def on():\n    shine()\n# mine\n").unwrap();
    let said = stage.say("blame lamp.py");
    assert_eq!(said.code, 0, "{said}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines[0].starts_with("LINES"), "{said}");
    for (line, parts) in [
        (
            lines[1],
            [
                "1 ",
                "lamp",
                ":0",
                "2026-01-05 09:00:02",
                "1a2b3c4",
                "Write a lamp",
            ],
        ),
        (
            lines[2],
            [
                "2 ",
                "lamp",
                ":2",
                "2026-01-05 09:00:06",
                "a-model",
                "Write a lamp",
            ],
        ),
    ] {
        assert!(parts.iter().all(|part| line.contains(part)), "{said}");
    }
    assert!(
        lines[3].starts_with('3') && lines[3].contains("unknown"),
        "{said}"
    );
    // The effect of `sed` is not known.
    assert!(
        said.out.contains("1 change could not be followed"),
        "{said}"
    );
    let one = stage.json("blame lamp.py:2");
    assert_eq!(one["ranges"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&one["ranges"][0]["turn"], &one["ranges"][0]["commit"]),
        (&json!(2), &Value::Null)
    );
    let both = stage.json("blame lamp.py:1-2");
    assert_eq!(both["ranges"][0]["commit"]["commit_id"], "1a2b3c4");
    assert_eq!(both["paths"], json!(["/repo/lamp.py"]));
    let changes = stage.say("blame lamp.py --changes");
    assert_eq!(
        changes
            .out
            .lines()
            .filter(|line| line.contains("edited"))
            .count(),
        3,
        "{changes}"
    );
}

#[test]
fn a_file_that_is_gone_has_the_lines_that_were_recorded() {
    let stage = stage();
    let said = stage.say("blame /repo/lamp.py");
    assert!(said.out.contains("not on disk"), "{said}");
    let found = stage.json("blame /repo/lamp.py");
    assert_eq!(
        (&found["on_disk"], &found["lines"]),
        (&json!(false), &json!(2))
    );
}

#[test]
fn an_agent_trace_is_one_record() {
    let stage = stage();
    std::fs::create_dir_all(stage.path("repo/.git")).unwrap();
    std::fs::write(stage.path("repo/lamp.py"), "def on():\n    shine()\n").unwrap();
    let revision = "1a2b3c4d".repeat(5);
    let said = stage.say(&format!(
        "blame repo/lamp.py --agent-trace --revision {revision}"
    ));
    let record = said.json();
    assert_eq!(record["version"], "0.1.0");
    assert_eq!(record["vcs"], json!({"type": "git", "revision": revision}));
    assert_eq!(record["files"][0]["path"], "lamp.py");
    let conversation = &record["files"][0]["conversations"][0];
    assert_eq!(conversation["contributor"]["type"], "ai");
    assert_eq!(conversation["ranges"][1]["end_line"], 2);
    assert_eq!(
        stage
            .say("blame lamp.py --agent-trace --revision 1a2b")
            .code,
        2
    );
}

#[test]
fn what_cannot_be_answered_is_an_error() {
    let stage = stage();
    std::fs::write(stage.path("binary"), b"a\0b").unwrap();
    std::fs::write(stage.path("latin"), b"\xe9\n").unwrap();
    std::fs::write(stage.path("lamp.py"), "def on():\n").unwrap();
    std::fs::create_dir(stage.path("folder")).unwrap();
    for (line, code, reason) in [
        (
            "blame nowhere.py",
            1,
            "no session has a recorded change of `nowhere.py`",
        ),
        ("blame binary", 1, "binary file"),
        ("blame latin", 1, "no session has"),
        ("blame folder", 1, "is a folder"),
        ("blame lamp.py:2", 1, "has 1 lines; line 2 does not exist"),
        ("blame lamp.py:0", 2, "no line or range of lines"),
        ("blame lamp.py:3-2", 2, "no line or range of lines"),
        ("blame lamp.py --session other", 1, "other"),
        ("blame lamp.py --project other", 1, "no session has"),
        ("blame ../../../../../../etc/../..", 1, "is a folder"),
    ] {
        let said = stage.say(line);
        assert_eq!(said.code, code, "{line}\n{said}");
        assert!(said.err.contains(reason), "{line}\n{said}");
    }
    let said = stage.run(&["blame", ""]);
    assert_eq!(said.code, 2, "{said}");
}
