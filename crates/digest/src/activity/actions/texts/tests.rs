use serde_json::json;

use super::*;

fn changes(name: &str, arguments: Value) -> Vec<FileChange> {
    let answer = Message::assistant("").with_tool_call("c", name, arguments);
    message_changes(&answer, Some(0))
}

fn text(name: &str, arguments: Value) -> Option<TextChange> {
    let mut changes = changes(name, arguments);
    assert_eq!(changes.len(), 1, "{changes:?}");
    changes.remove(0).text
}

fn replaced(old: &str, new: &str, all: bool) -> TextReplacement {
    TextReplacement {
        old: old.into(),
        new: new.into(),
        all,
    }
}

fn write(text: &str) -> Option<TextChange> {
    Some(TextChange::Write(text.into()))
}

#[test]
fn every_editor_has_its_texts() {
    let edit = |all| Some(TextChange::Replace(vec![replaced("x", "y", all)]));
    for (name, arguments, expected) in [
        (
            "Write",
            json!({"file_path": "a", "content": "t\n"}),
            write("t\n"),
        ),
        (
            "write_file",
            json!({"file_path": "a", "content": ""}),
            write(""),
        ),
        (
            "str_replace_editor",
            json!({"command": "create", "path": "a", "file_text": "t"}),
            write("t"),
        ),
        ("create", json!({"filename": "a"}), None),
        (
            "Edit",
            json!({"file_path": "a", "old_string": "x", "new_string": "y"}),
            edit(false),
        ),
        (
            "Edit",
            json!({"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": true}),
            edit(true),
        ),
        (
            "replace",
            json!({"file_path": "a", "old_string": "x", "new_string": "y", "expected_replacements": 2}),
            edit(true),
        ),
        (
            "edit",
            json!({"path": "a", "oldText": "x", "newText": "y"}),
            edit(false),
        ),
        (
            "MultiEdit",
            json!({"file_path": "a", "edits": [
                {"old_string": "", "new_string": "p"}, {"old_string": "p", "new_string": "q"}]}),
            Some(TextChange::Replace(vec![
                replaced("", "p", false),
                replaced("p", "q", false),
            ])),
        ),
        (
            "str_replace_editor",
            json!({"command": "insert", "path": "a", "insert_line": 3, "new_str": "x"}),
            Some(TextChange::Insert {
                after: 3,
                text: "x".into(),
            }),
        ),
        (
            "edit_file_lines",
            json!({"path": "a", "start_line": 2, "end_line": 4, "replacement": "x"}),
            Some(TextChange::Lines {
                first: 2,
                last: 4,
                text: "x".into(),
            }),
        ),
        (
            "append_file",
            json!({"path": "a", "content": "x"}),
            Some(TextChange::Append("x".into())),
        ),
        (
            "edit_file",
            json!({"target_file": "a", "code_edit": "// ... existing code ..."}),
            None,
        ),
        (
            "NotebookEdit",
            json!({"notebook_path": "a.ipynb", "new_source": "y"}),
            None,
        ),
        // An edit of a list that is not understood.
        (
            "MultiEdit",
            json!({"file_path": "a", "edits": [{"new_string": "y"}]}),
            None,
        ),
        (
            "Bash",
            json!({"command": "cat > a <<'EOF'\n$x\nEOF"}),
            write("$x\n"),
        ),
        (
            "Bash",
            json!({"command": "cat <<EOF > a\nx\nEOF\n"}),
            write("x\n"),
        ),
        ("Bash", json!({"command": "cat > a <<EOF\n$x\nEOF"}), None),
        (
            "Bash",
            json!({"command": "cat >> a <<EOF\nx\nEOF"}),
            Some(TextChange::Append("x\n".into())),
        ),
        (
            "Bash",
            json!({"command": "cat b - > a <<EOF\nx\nEOF"}),
            None,
        ),
        (
            "Bash",
            json!({"command": "tee a <<EOF\nx\nEOF"}),
            write("x\n"),
        ),
        ("Bash", json!({"command": "echo x > a"}), None),
        ("Bash", json!({"command": "sed -i s/x/y/ a"}), None),
    ] {
        assert_eq!(
            text(name, arguments.clone()),
            expected,
            "{name} {arguments}"
        );
    }
    let open = changes("edit", json!({"search": "x", "replace": "y"}));
    assert_eq!((&*open[0].path, &open[0].text), ("", &edit(false)));
}

#[test]
fn a_text_belongs_to_the_operation_that_writes_it() {
    let found = changes(
        "Bash",
        json!({"command": "cd d && echo x > a; cat >> a <<EOF\ny\nEOF"}),
    );
    let texts: Vec<_> = found
        .iter()
        .map(|change| (&*change.path, change.text.clone()))
        .collect();
    let added = Some(TextChange::Append("y\n".into()));
    assert_eq!(texts, [("d/a", None), ("d/a", added)]);
}

#[test]
fn patches_have_their_hunks() {
    use HunkLine::{Added, Kept, Removed};
    let patch = "*** Begin Patch\n*** Add File: n\n+one\n+\n*** Update File: o\n*** Move to: p\n@@ fn a\n@@ fn b\n x\n-y\n+z\n\n+w\n*** End of File\n*** Delete File: q\n*** End Patch\nrest";
    for arguments in [
        json!(patch),
        json!({"input": patch}),
        json!({"command": ["apply_patch", patch]}),
    ] {
        let found = changes("apply_patch", arguments);
        assert_eq!(found[0].text, write("one\n\n"));
        let hunk = Hunk {
            first_line: None,
            below: Some("fn b".into()),
            lines: vec![
                Kept("x".into()),
                Removed("y".into()),
                Added("z".into()),
                Kept(String::new()),
                Added("w".into()),
            ],
        };
        assert_eq!(found[1].operation, FileOperation::MoveFrom("o".into()));
        assert_eq!(found[1].text, Some(TextChange::Hunks(vec![hunk])));
        assert_eq!(
            (&found[2].operation, &found[2].text),
            (&FileOperation::Delete, &None)
        );
    }
    let diff = "--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@ fn c\n--- gone\n+++ here\n k\n\\ No newline at end of file\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-o\n";
    let found = changes("apply_diff", json!({"diff": diff}));
    let hunk = Hunk {
        first_line: Some(3),
        below: Some("fn c".into()),
        lines: vec![
            Removed("-- gone".into()),
            Added("++ here".into()),
            Kept("k".into()),
        ],
    };
    let change = found.iter().find(|change| change.path == "x").unwrap();
    assert_eq!(change.text, Some(TextChange::Hunks(vec![hunk])));
    let new = found.iter().find(|change| change.path == "new").unwrap();
    assert_eq!(new.text, write("n\n"));
}

#[test]
fn blocks_are_hunks() {
    use HunkLine::{Added, Removed};
    let diff = "<<<<<<< SEARCH\nx\n=======\ny\nz\n>>>>>>> REPLACE\n<<<<<<< SEARCH\n=======\nn\n>>>>>>> REPLACE";
    let Some(TextChange::Hunks(hunks)) =
        text("replace_in_file", json!({"path": "a", "diff": diff}))
    else {
        panic!("no hunks")
    };
    assert_eq!(
        hunks[0].lines,
        [Removed("x".into()), Added("y".into()), Added("z".into())]
    );
    assert_eq!(hunks[1].lines, [Added("n".into())]);
}

#[test]
fn hostile_arguments_have_no_texts() {
    for (name, arguments) in [
        (
            "apply_patch",
            json!("*** Begin Patch\n*** Update File: a\n@@ -4294967295,9 +1 @@\n+x"),
        ),
        (
            "apply_patch",
            json!("--- a\n+++ b\n@@ -1,99999999999 +1 @@\n+é\n\u{0}"),
        ),
        (
            "apply_diff",
            json!({"path": "a", "diff": "<<<<<<< SEARCH\n=======\n"}),
        ),
        ("Edit", json!({"file_path": "a", "edits": []})),
        ("x", json!([1])),
        ("Bash", json!({"command": "cat > a <<EOF"})),
    ] {
        let found = changes(name, arguments.clone());
        assert!(found.len() <= 1, "{arguments}: {found:?}");
    }
}
