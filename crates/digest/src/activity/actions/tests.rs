use serde_json::json;

use super::*;
use crate::activity::patch::FileOperation;
use loopstore_model::{Content, Json};

fn of(name: &str, arguments: Value) -> CallAction {
    let arguments = Json::of(&arguments).unwrap();
    let Content::ToolCall(call) = Content::tool_call("c", name, arguments) else {
        unreachable!("a call")
    };
    read_call(&call)
}

fn change(name: &str, arguments: Value) -> Option<(String, FileOperation)> {
    let file = of(name, arguments).files.pop()?;
    Some((file.path, file.change))
}

fn is(path: &str, change: FileOperation) -> Option<(String, FileOperation)> {
    Some((path.to_owned(), change))
}

#[test]
fn every_agents_calls_are_known() {
    use FileOperation::{Create, Delete, Edit, Read, Write};
    assert_eq!(
        change("Read", json!({"file_path": "/a.rs", "offset": 5})),
        is("/a.rs", Read)
    );
    assert_eq!(
        change(
            "Edit",
            json!({"file_path": "a", "old_string": "x", "new_string": "y"})
        ),
        is("a", Edit)
    );
    assert_eq!(
        change(
            "Edit",
            json!({"file_path": "a", "old_string": "", "new_string": "y"})
        ),
        is("a", Create)
    );
    assert_eq!(
        change(
            "MultiEdit",
            json!({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]})
        ),
        is("a", Edit)
    );
    assert_eq!(
        change(
            "NotebookEdit",
            json!({"notebook_path": "a.ipynb", "new_source": "y"})
        ),
        is("a.ipynb", Edit)
    );
    assert_eq!(
        change("Write", json!({"file_path": "a", "content": "y"})),
        is("a", Write)
    );
    assert_eq!(
        change(
            "edit",
            json!({"filePath": "a", "oldString": "x", "newString": "y"})
        ),
        is("a", Edit)
    );
    assert_eq!(
        change("edit", json!({"path": "a", "oldText": "x", "newText": "y"})),
        is("a", Edit)
    );
    assert_eq!(
        change("write_file", json!({"file_path": "a", "content": "y"})),
        is("a", Write)
    );
    assert_eq!(
        change(
            "replace",
            json!({"file_path": "a", "old_string": "x", "new_string": "y"})
        ),
        is("a", Edit)
    );
    assert_eq!(
        change("read_many_files", json!({"paths": ["a", "b"]})),
        is("b", Read)
    );
    assert_eq!(
        change(
            "str_replace_editor",
            json!({"command": "create", "path": "a", "file_text": "y"})
        ),
        is("a", Create)
    );
    assert_eq!(
        change("file_editor", json!({"command": "view", "path": "a"})),
        is("a", Read)
    );
    assert_eq!(
        change(
            "file_editor",
            json!({"command": "insert", "path": "a", "insert_line": 3, "new_str": "x"})
        ),
        is("a", Edit)
    );
    assert_eq!(change("create", json!({"filename": "a"})), is("a", Create));
    assert_eq!(
        change("open", json!({"path": "a", "line_number": 4})),
        is("a", Read)
    );
    assert_eq!(
        change("delete_file", json!({"target_file": "a"})),
        is("a", Delete)
    );
    assert_eq!(
        change("move_file", json!({"source": "a", "destination": "b"})),
        is("b", FileOperation::MoveFrom("a".into()))
    );
    assert_eq!(
        change(
            "replace_in_file",
            json!({"path": "a", "diff": "<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE"})
        ),
        is("a", Edit)
    );
    let patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch";
    assert_eq!(change("apply_patch", json!(patch)), is("a", Delete));
    assert_eq!(
        change("apply_patch", json!({"input": patch})),
        is("a", Delete)
    );
    assert_eq!(
        change("shell", json!({"command": ["apply_patch", patch]})),
        is("a", Delete)
    );
    assert_eq!(
        change("shell", json!({"command": ["bash", "-lc", "rm a"]})),
        is("a", Delete)
    );
    assert_eq!(
        change("exec_command", json!({"cmd": "rm a"})),
        is("a", Delete)
    );
    // Unknown tools.
    assert_eq!(
        change(
            "edit_file",
            json!({"sourceFile": "a", "old": "x", "new": "y"})
        ),
        is("a", Edit)
    );
    assert_eq!(
        change(
            "frobnicate",
            json!({"path": "a", "old_text": "x", "new_text": "y"})
        ),
        is("a", Edit)
    );
}

#[test]
fn what_touches_no_file_is_left_out() {
    for (name, arguments) in [
        ("Grep", json!({"pattern": "x", "path": "src"})),
        ("Glob", json!({"pattern": "*.rs", "path": "src"})),
        ("LS", json!({"path": "src"})),
        ("bash", json!({"path": "a.rs", "n": 3})),
        ("WebFetch", json!({"url": "https://x", "prompt": "y"})),
        ("Write", json!({"file_path": "", "content": "y"})),
        ("Write", json!({"file_path": "a\nb", "content": "y"})),
        ("Write", json!({"file_path": "a\0", "content": "y"})),
        ("write_memory", json!({"content": "y"})),
        ("read", json!({"path": "https://x/y"})),
        ("x", json!([1, 2])),
        ("x", json!(null)),
    ] {
        assert_eq!(change(name, arguments.clone()), None, "{name} {arguments}");
    }
}

#[test]
fn a_command_and_a_task_are_told() {
    let test = of(
        "Bash",
        json!({"command": "cd /r && cargo test\n", "description": "Test"}),
    );
    assert_eq!(
        (&*test.description, &*test.key),
        ("cd /r && cargo test", "cargo test")
    );
    assert!(test.is_command && test.runs);
    assert_eq!(test.folder.as_deref(), Some("/r"));
    let task = of(
        "Task",
        json!({"description": "d", "prompt": "Find  it.\nNow.", "subagent_type": "Explore"}),
    );
    assert_eq!(task.description, "Find it. Now.");
    let tracker = of("task_tracker", json!({"command": "view"}));
    assert!(!tracker.is_command);
    let huge = of("Bash", json!({"command": "x".repeat(1 << 20)}));
    assert!(huge.description.len() < 500);
    assert_eq!(
        of("write_stdin", json!({"session_id": 7, "chars": ""}))
            .about
            .as_deref(),
        Some("7")
    );
    let edit = of("edit", json!({"search": "x", "replace": "y"}));
    assert!(edit.edits_open_file && edit.files.is_empty());
}
