use serde_json::{Value, json};

use super::calls::MOST_CALLS;
use super::*;
use crate::activity::CallHistory;
use crate::activity::FileAct;
use loopstore_model::ToolResultMessage;

fn place(turn: u32) -> SourceTurn {
    SourceTurn {
        loop_name: None,
        turn,
    }
}

#[derive(Default)]
struct RecordedAgent {
    activity: Activity,
    turn: u32,
}

impl RecordedAgent {
    fn call(&mut self, id: &str, name: &str, arguments: Value) {
        self.turn += 1;
        let message = Message::assistant("").with_tool_call(id, name, arguments);
        self.activity.add_message(&message, &place(self.turn));
    }

    fn result(&mut self, id: &str, text: &str, is_error: bool) {
        let result = ToolResultMessage {
            tool_call_id: id.into(),
            content: vec![Content::text(text)],
            is_error,
            ..ToolResultMessage::default()
        };
        self.activity
            .add_message(&Message::ToolResult(result), &place(self.turn));
    }

    fn does(&mut self, name: &str, arguments: Value, text: &str, is_error: bool) {
        self.call("c", name, arguments);
        self.result("c", text, is_error);
    }

    fn run(&mut self, line: &str, text: &str) {
        let is_error = text.starts_with("Exit code");
        self.does("Bash", json!({"command": line}), text, is_error);
    }

    fn acts(&self) -> Vec<(&str, Vec<FileAct>)> {
        let acts = |file: &super::super::FileWork| {
            file.events.iter().map(|event| event.act.clone()).collect()
        };
        self.activity
            .work()
            .files
            .iter()
            .map(|file| (file.path.as_str(), acts(file)))
            .collect()
    }

    fn history(&self, description: &str) -> &CallHistory {
        let mut calls = self.activity.work().calls.iter();
        calls
            .find(|history| history.description == description)
            .unwrap()
    }
}

#[test]
fn a_call_that_does_something_is_told_with_what_it_took_and_answered() {
    let mut agent = RecordedAgent::default();
    let book = json!({"reservation": "JG7FMM", "cabin": "economy", "bags": 2});
    agent.does("update_reservation", book, "booked as E-88101\n", false);
    agent.does(
        "get_reservation",
        json!({"reservation": "JG7FMM"}),
        "{}",
        false,
    );
    agent.does(
        "TodoWrite",
        json!({"todos": [{"content": "a", "status": "pending"}]}),
        "ok",
        false,
    );
    let [history] = &*agent.activity.work().calls else {
        panic!("{:?}", agent.activity.work().calls);
    };
    let what = "update_reservation bags 2, cabin economy, reservation JG7FMM";
    assert_eq!(
        (&*history.description, history.is_command, history.runs),
        (what, false, true)
    );
    assert_eq!(history.result.as_deref(), Some("booked as E-88101"));
}

#[test]
fn what_was_done_with_other_arguments_is_told_apart() {
    let mut agent = RecordedAgent::default();
    let book = |flight: &str| json!({"user_id": "U1", "flight": flight});
    agent.does("book_flight", book("A"), "ok", false);
    agent.does("book_flight", book("B"), "ok", false);
    agent.does("book_flight", book("C"), "full", true);
    agent.does("book_flight", book("D"), "ok", false);
    let told: Vec<_> = agent
        .activity
        .work()
        .calls
        .iter()
        .map(|a| (&*a.description, a.passed.is_some()))
        .collect();
    assert_eq!(
        told,
        [
            ("book_flight flight A, user_id U1", false),
            ("book_flight flight B, user_id U1", false),
            ("book_flight flight D, user_id U1", true),
        ]
    );
}

#[test]
fn a_run_in_another_folder_is_another_run() {
    let mut agent = RecordedAgent::default();
    agent.run("make test", "ok");
    agent.run("cd frontend && make test", "Exit code 2\nerror: x");
    agent.run("cd backend && make test", "ok");
    assert!(agent.history("cd frontend && make test").passed.is_none());
    agent.run("cd /repo/frontend && make test", "ok");
    assert!(
        agent
            .history("cd /repo/frontend && make test")
            .passed
            .is_some()
    );
}

#[test]
fn a_push_that_failed_is_open_until_one_goes_through() {
    let mut agent = RecordedAgent::default();
    agent.run(
        "git push origin main",
        "Exit code 1\nerror: failed to push some refs",
    );
    agent.run("git status", "clean");
    assert!(agent.history("git push origin main").passed.is_none());
    agent.run(
        "git commit -m x",
        "Exit code 1\nnothing to commit, working tree clean",
    );
    assert!(agent.history("git commit -m x").failure.is_none());
    agent.run("git commit --amend -S && git push", "ok");
    assert!(agent.history("git push origin main").passed.is_some());
}

#[test]
fn a_call_that_failed_or_was_refused_changes_nothing() {
    let mut agent = RecordedAgent::default();
    let edit = || json!({"file_path": "a.rs", "old_string": "x", "new_string": "y"});
    agent.does(
        "Edit",
        edit(),
        "<tool_use_error>String to replace not found in file.</tool_use_error>",
        true,
    );
    agent.does(
        "edit",
        edit(),
        "Your proposed edit has introduced new syntax error(s).",
        false,
    );
    agent.does(
        "TodoWrite",
        json!({"todos": [{"content": "a", "status": "pending"}]}),
        "The user doesn't want to proceed with this tool use.",
        true,
    );
    assert_eq!((agent.acts(), &agent.activity.work().plan), (vec![], &None));
    assert_eq!(agent.activity.work().calls.len(), 3);
    assert_eq!(agent.history("Edit a.rs").passed, None);
    agent.does("Edit", edit(), "The file a.rs has been updated.", false);
    assert_eq!(agent.acts(), [("a.rs", vec![FileAct::Edited])]);
    let edited = agent.history("Edit a.rs");
    assert_eq!(
        edited.failure.as_ref().unwrap().1,
        "String to replace not found in file."
    );
    assert_eq!((edited.times, &edited.passed), (2, &Some(place(4))));
}

#[test]
fn failures_are_resolved_by_the_same_or_a_wider_run() {
    let mut agent = RecordedAgent::default();
    agent.run(
        "cargo test name",
        "Exit code 101\nerror[E0308]: mismatched types",
    );
    agent.run("cargo build", "ok");
    assert_eq!(agent.history("cargo test name").passed, None);
    agent.run(
        "cd /r && cargo test 2>&1 | tail -3",
        "test result: ok. 3 passed; 0 failed",
    );
    assert_eq!(agent.history("cargo test name").passed, Some(place(3)));
    let wide = agent.history("cd /r && cargo test 2>&1 | tail -3");
    assert_eq!(
        wide.result.as_deref(),
        Some("test result: ok. 3 passed; 0 failed")
    );
    agent.run("cargo test", "Exit code 101\nerror: x");
    assert_eq!(agent.history("cargo test").times, 2);
    assert!(agent.history("cargo test").passed.is_none());
    let order: Vec<&str> = agent
        .activity
        .work()
        .calls
        .iter()
        .map(|history| &*history.description)
        .collect();
    assert_eq!(order, ["cargo test name", "cargo build", "cargo test"]);
}

#[test]
fn calls_without_a_result_are_open() {
    let mut agent = RecordedAgent::default();
    agent.call("a", "Task", json!({"prompt": "look", "subagent_type": "x"}));
    agent.call("b", "Bash", json!({"command": "sleep 9"}));
    agent.call("b", "Bash", json!({"command": "sleep 9"}));
    agent.call("b", "Bash", json!({"command": "sleep 10"}));
    agent.result("b", "", false);
    agent.result("other", "", false);
    let open: Vec<(&str, &str)> = agent
        .activity
        .work()
        .running
        .iter()
        .map(|call| (&*call.id, &*call.description))
        .collect();
    assert_eq!(open.len(), 2);
    assert_eq!(open[0], ("a", "look"));
    agent.call(
        "w",
        "web_search",
        json!({"type": "open_page", "url": "https://x"}),
    );
    assert_eq!(agent.activity.work().running.len(), 2);
}

#[test]
fn what_runs_in_the_background_is_open_until_its_end_is_told() {
    let mut agent = RecordedAgent::default();
    agent.does(
        "exec_command",
        json!({"cmd": "cargo test"}),
        "Chunk ID: 1\nProcess running with session ID 47\nOutput:\n",
        false,
    );
    assert_eq!(agent.activity.work().running.len(), 1);
    agent.does(
        "write_stdin",
        json!({"session_id": 47, "chars": ""}),
        "Chunk ID: 2\nProcess exited with code 101\nOutput:\nerror: x\n",
        false,
    );
    assert!(agent.activity.work().running.is_empty());
    assert_eq!(
        agent.history("cargo test").failure.as_ref().unwrap().1,
        "error: x"
    );
    agent.call(
        "d",
        "Bash",
        json!({"command": "make serve", "run_in_background": true}),
    );
    agent.result(
        "d",
        "Command running in background with ID: b1. Output is",
        false,
    );
    assert_eq!(agent.activity.work().running.len(), 1);
    let note = "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>";
    agent.activity.add_message(&Message::user(note), &place(9));
    assert!(agent.activity.work().running.is_empty());
}

#[test]
fn commands_in_the_text_of_an_answer_are_read_if_they_were_run() {
    let mut agent = RecordedAgent::default();
    let says = |text: &str| Message::assistant(text);
    let block = "I edit.\n\n```mswea_bash_command\nsed -i 's/a/b/' x.py\n```";
    agent.activity.add_message(&says(block), &place(1));
    agent
        .activity
        .add_message(&Message::user("No, wait."), &place(1));
    assert_eq!(agent.acts(), []);
    agent.activity.add_message(&says(block), &place(2));
    agent.activity.add_message(
        &Message::user("<returncode>1</returncode>\n<output>\nsed: no file\n</output>"),
        &place(2),
    );
    assert_eq!(agent.acts(), []);
    assert_eq!(
        agent.activity.work().calls[0].failure.as_ref().unwrap().1,
        "sed: no file"
    );
    agent.activity.add_message(&says(block), &place(3));
    agent.activity.add_message(
        &Message::user("<returncode>0</returncode>\n<output>\n</output>"),
        &place(3),
    );
    assert_eq!(agent.acts(), [("x.py", vec![FileAct::Edited])]);
    agent
        .activity
        .add_message(&says("```\nopen main.py\n```"), &place(4));
    agent.activity.add_message(
        &Message::user(
            "[File: /w/main.py]\n(Open file: /w/main.py)\n(Current directory: /w)\nbash-$",
        ),
        &place(4),
    );
    agent
        .activity
        .add_message(&says("```\nedit 1:1\nx\nend_of_edit\n```"), &place(5));
    agent.activity.add_message(
        &Message::user("File updated.\n(Open file: /w/main.py)\n(Current directory: /w)\nbash-$"),
        &place(5),
    );
    assert_eq!(
        agent.acts()[1],
        ("main.py", vec![FileAct::Read, FileAct::Edited])
    );
}

#[test]
fn a_restored_activity_goes_on() {
    let mut agent = RecordedAgent::default();
    agent.run("cargo test a", "Exit code 101\nerror: x");
    agent.does(
        "Write",
        json!({"file_path": "/r/src/a.rs", "content": "x"}),
        "File created successfully at: /r/src/a.rs",
        false,
    );
    agent.does(
        "TaskCreate",
        json!({"subject": "one", "description": "x"}),
        "Task #1 created",
        false,
    );
    agent.call("open", "Bash", json!({"command": "sleep 9"}));
    let work = std::mem::take(&mut agent.activity).into_work();
    agent.activity = Activity::restore(work.clone());
    assert_eq!(agent.activity.work(), &work);
    agent.result("open", "", false);
    agent.does(
        "Edit",
        json!({"file_path": "src/a.rs", "old_string": "x", "new_string": "y"}),
        "done",
        false,
    );
    agent.does(
        "TaskUpdate",
        json!({"taskId": "1", "status": "completed"}),
        "ok",
        false,
    );
    agent.run("cargo test", "1 passed");
    assert_eq!(
        agent.acts(),
        [("src/a.rs", vec![FileAct::Created, FileAct::Edited])]
    );
    assert!(agent.activity.work().running.is_empty());
    assert_eq!(
        agent.activity.work().plan.as_ref().unwrap().items[0].state,
        PlanState::Done
    );
    assert!(agent.history("cargo test a").passed.is_some());
}

#[test]
fn memory_is_bounded_and_hostile_calls_are_taken() {
    let mut agent = RecordedAgent::default();
    for turn in 0..6_000 {
        agent.run(&format!("ls {turn}"), "");
        agent.call(&format!("open{turn}"), "x", json!({"a": turn}));
    }
    agent.run("cargo test", "Exit code 1\nerror: x");
    let work = agent.activity.work();
    assert!(work.calls.len() <= MOST_CALLS && work.running.len() <= MOST_OPEN);
    for arguments in [
        json!({"command": "x".repeat(8 << 20)}),
        json!({"file_path": "../../a", "content": "y".repeat(8 << 20)}),
        json!("{\"broken"),
        json!([[[]]]),
    ] {
        agent.does("Write", arguments, &"z".repeat(8 << 20), false);
    }
    assert!(
        agent
            .activity
            .work()
            .calls
            .iter()
            .all(|history| history.description.len() < 500)
    );
}

#[test]
fn a_search_is_told_with_what_was_sought_and_the_files_it_found() {
    let mut agent = RecordedAgent::default();
    let sought = |pattern: &str| json!({"pattern": pattern, "path": "src"});
    agent.does(
        "Grep",
        sought("kite"),
        "src/a.rs:1:kite\nsrc/b.rs:2:kite",
        false,
    );
    agent.does("Grep", sought("wing"), "No matches found", false);
    agent.does(
        "Read",
        json!({"file_path": "files.txt"}),
        "src/a.rs\nsrc/b.rs",
        false,
    );
    agent.run("rg -l wing", "src/c.rs\n");
    let found: Vec<_> = agent
        .activity
        .work()
        .calls
        .iter()
        .map(|history| (history.description.as_str(), history.result.as_deref()))
        .collect();
    let expected = [
        ("Grep kite src", Some("2 files: src/a.rs, src/b.rs")),
        ("rg -l wing", Some("1 file: src/c.rs")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_a_document_says_is_open_is_closed_by_what_comes_after() {
    let mut agent = RecordedAgent::default();
    let edit = json!({"file_path": "Money.java", "old_string": "a", "new_string": "b"});
    agent.does("replace_in_file", edit.clone(), "no match", true);
    let book = |date: &str| json!({"ticket_id": "4WQ150", "date": date});
    agent.does("book_seat", book("01-02"), "date is full", true);
    let long = format!("make {}", "all ".repeat(200));
    agent.run(&long, "Exit code 2\nerror: x");
    agent.call("w", "wait", json!({"seconds": 5}));
    let mut work = agent.activity.into_work();
    work.running.iter_mut().for_each(|call| call.id.clear());
    // As a document has them.
    work.calls
        .iter_mut()
        .for_each(|history| history.is_command = true);
    let mut agent = RecordedAgent {
        activity: Activity::restore(work),
        turn: 10,
    };
    agent.result("w", "done", false);
    agent.does("replace_in_file", edit, "ok", false);
    agent.does("book_seat", book("01-03"), "ok", false);
    agent.run(&long, "ok");
    let work = agent.activity.work();
    assert_eq!(work.running, []);
    assert_eq!(work.calls.len(), 3, "{:?}", work.calls);
    assert!(work.calls.iter().all(|history| history.passed.is_some()));
}
