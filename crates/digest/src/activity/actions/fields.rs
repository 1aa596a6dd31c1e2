//! What a call with fields does to files.

use serde_json::{Map, Value};

use super::super::patch::{self, FileEffect, FileOperation};
use super::{MOST_FILES, NEW, PATHS, is_shell, text_of};

const OLD: [&str; 10] = [
    "old_string",
    "oldString",
    "old_str",
    "oldText",
    "old_text",
    "search",
    "oldStr",
    "old_content",
    "find",
    "old",
];
const WHOLE: [&str; 9] = [
    "content",
    "contents",
    "file_text",
    "text",
    "file_content",
    "CodeContent",
    "body",
    "fileText",
    "data",
];
const LINES: [&str; 14] = [
    "offset",
    "limit",
    "start_line",
    "end_line",
    "startLine",
    "endLine",
    "view_range",
    "line_number",
    "line_start",
    "line_end",
    "start_line_one_indexed",
    "should_read_entire_file",
    "StartLine",
    "lines",
];

/// Reads what a call with a path does to it.
pub(super) fn of_fields(
    words: &[String],
    fields: &Map<String, Value>,
    path: Option<&str>,
) -> Vec<FileEffect> {
    let is = |known: &[&str]| words.iter().any(|word| known.contains(&&**word));
    let told = fields.get("command").and_then(Value::as_str).unwrap_or("");
    let seeks = is(&[
        "grep",
        "glob",
        "search",
        "list",
        "ls",
        "find",
        "dir",
        "directory",
        "folder",
        "mkdir",
    ]) || fields.contains_key("pattern")
        || fields.contains_key("query");
    let moves = [
        ("source", "destination"),
        ("source_path", "destination_path"),
        ("old_path", "new_path"),
        ("oldPath", "newPath"),
        ("from", "to"),
        ("path", "new_path"),
    ];
    if is(&["move", "rename", "mv"])
        && let Some((from, to)) = moves
            .iter()
            .find_map(|(from, to)| Some((fields.get(*from)?.as_str()?, fields.get(*to)?.as_str()?)))
    {
        let both = is_path(from) && is_path(to);
        return Vec::from_iter(
            both.then(|| FileEffect::new(to, FileOperation::MoveFrom(from.to_owned()))),
        );
    }
    let reads = is(&["read", "view", "open", "cat", "show"]) || told == "view" || told == "read";
    let Some(path) = path else {
        return many(fields, reads && !seeks);
    };
    let deletes = is(&["delete", "remove", "rm", "unlink"]) || told == "delete";
    let mut found = FileEffect::new(path, FileOperation::Edit);
    let edits = fields
        .get("edits")
        .or_else(|| fields.get("replacements"))
        .and_then(Value::as_array);
    let old = text_of(fields, &OLD);
    let new = text_of(fields, &NEW);
    let blocks = text_of(fields, &["diff", "content", "edits"])
        .filter(|text| text.contains("<<<<<<< SEARCH"));
    let whole = WHOLE
        .iter()
        .any(|key| fields.get(*key).is_some_and(Value::is_string));
    if deletes {
        found.change = FileOperation::Delete;
    } else if seeks {
        return Vec::new();
    } else if let Some(edits) = edits {
        for edit in edits.iter().filter_map(Value::as_object).take(50) {
            let new = text_of(edit, &NEW).unwrap_or("");
            patch::add_symbols(
                &mut found.symbols,
                text_of(edit, &OLD).unwrap_or(""),
                new,
                path,
            );
        }
        let first = edits.first().and_then(Value::as_object);
        if first.is_some_and(|edit| text_of(edit, &OLD) == Some("")) {
            found = FileEffect::new(path, FileOperation::Create);
        }
    } else if told == "create" {
        found.change = FileOperation::Create;
    } else if let Some(blocks) = blocks {
        patch::add_block_symbols(&mut found.symbols, blocks, path);
    } else if old == Some("") && new.is_some() && told != "insert" {
        found.change = FileOperation::Create;
    } else if new.is_some() || old.is_some() && is(&["edit", "replace"]) {
        patch::add_symbols(
            &mut found.symbols,
            old.unwrap_or(""),
            new.unwrap_or(""),
            path,
        );
    } else if reads {
        found.change = FileOperation::Read;
    } else if whole && (told == "append" || is(&["append", "insert"])) {
        found.change = FileOperation::Edit;
    } else if is(&["create"]) {
        found.change = FileOperation::Create;
    } else if whole
        && (is(&[
            "write",
            "save",
            "put",
            "editor",
            "edit",
            "update",
            "file",
            "overwrite",
        ]) || told == "write")
    {
        found.change = FileOperation::Write;
    } else if LINES.iter().any(|key| fields.contains_key(*key)) && !is_shell(words) {
        found.change = FileOperation::Read;
    } else if is(&["edit", "patch"]) && !told.is_empty() && told != "undo_edit" {
        found.change = FileOperation::Edit;
    } else {
        return Vec::new();
    }
    vec![found]
}

/// Reads a list of files that are read or edited at once.
fn many(fields: &Map<String, Value>, reads: bool) -> Vec<FileEffect> {
    let lists = ["paths", "file_paths", "files", "filePaths", "changes"];
    let Some(list) = lists.iter().find_map(|key| fields.get(*key)?.as_array()) else {
        // Codex's own form: each path with what is done to it.
        let Some(changes) = fields.get("changes").and_then(Value::as_object) else {
            return Vec::new();
        };
        let change = |(path, change): (&String, &Value)| {
            let has = |key: &str| {
                change.get(key).is_some() || change.get("type").and_then(Value::as_str) == Some(key)
            };
            let change = match () {
                () if has("add") => FileOperation::Create,
                () if has("delete") => FileOperation::Delete,
                () => FileOperation::Edit,
            };
            FileEffect::new(path.as_str(), change)
        };
        return changes
            .iter()
            .filter(|(path, _)| is_path(path))
            .take(MOST_FILES)
            .map(change)
            .collect();
    };
    let path_of = |item: &Value| -> Option<String> {
        let path = item
            .as_str()
            .or_else(|| text_of(item.as_object()?, &PATHS))?;
        is_path(path).then(|| path.to_owned())
    };
    let paths = list
        .iter()
        .take(MOST_FILES)
        .filter_map(path_of)
        .filter(|_| reads);
    paths
        .map(|path| FileEffect::new(path, FileOperation::Read))
        .collect()
}

pub(super) fn is_path(path: &str) -> bool {
    let is_url = path.contains("://") && !path.starts_with("file://");
    !path.trim().is_empty() && path.len() <= 4_096 && !path.contains(['\n', '\r', '\0']) && !is_url
}
