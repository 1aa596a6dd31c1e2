//! The effects on files of a call with named arguments.

use serde_json::{Map, Value};

use super::super::patch::{self, FileEffect, FileOperation};
use super::super::tables::{arguments, tools};
use super::{MOST_FILES, has_word, is_shell, text_of};

/// Returns the effects on the file with this path, or on the files that a list names.
pub(super) fn of_fields(
    words: &[String],
    fields: &Map<String, Value>,
    path: Option<&str>,
) -> Vec<FileEffect> {
    let is = |table: &[&str]| has_word(words, table);
    let operation = fields.get("command").and_then(Value::as_str).unwrap_or("");
    let seeks = is(tools::SEARCHING)
        || arguments::SEARCHES_IN_A_PATH
            .iter()
            .any(|key| fields.contains_key(*key));
    if is(tools::MOVING)
        && let Some((from, to)) = arguments::MOVES
            .iter()
            .find_map(|(from, to)| Some((fields.get(*from)?.as_str()?, fields.get(*to)?.as_str()?)))
    {
        let both = is_path(from) && is_path(to);
        return Vec::from_iter(
            both.then(|| FileEffect::new(to, FileOperation::MoveFrom(from.to_owned()))),
        );
    }
    let reads = is(tools::READING) || arguments::READING_OPERATIONS.contains(&operation);
    let Some(path) = path else {
        return many(fields, reads && !seeks);
    };
    let deletes = is(tools::DELETING) || operation == "delete";
    let mut found = FileEffect::new(path, FileOperation::Edit);
    let edits = arguments::EDIT_LISTS
        .iter()
        .find_map(|key| fields.get(*key))
        .and_then(Value::as_array);
    let old = text_of(fields, arguments::OLD_TEXTS);
    let new = text_of(fields, arguments::NEW_TEXTS);
    let blocks =
        text_of(fields, arguments::EDIT_BLOCKS).filter(|text| text.contains("<<<<<<< SEARCH"));
    let whole = arguments::WHOLE_TEXTS
        .iter()
        .any(|key| fields.get(*key).is_some_and(Value::is_string));
    if deletes {
        found.change = FileOperation::Delete;
    } else if seeks {
        return Vec::new();
    } else if let Some(edits) = edits {
        for edit in edits.iter().filter_map(Value::as_object).take(50) {
            let new = text_of(edit, arguments::NEW_TEXTS).unwrap_or("");
            patch::add_symbols(
                &mut found.symbols,
                text_of(edit, arguments::OLD_TEXTS).unwrap_or(""),
                new,
                path,
            );
        }
        let first = edits.first().and_then(Value::as_object);
        if first.is_some_and(|edit| text_of(edit, arguments::OLD_TEXTS) == Some("")) {
            found = FileEffect::new(path, FileOperation::Create);
        }
    } else if operation == "create" {
        found.change = FileOperation::Create;
    } else if let Some(blocks) = blocks {
        patch::add_block_symbols(&mut found.symbols, blocks, path);
    } else if old == Some("") && new.is_some() && operation != "insert" {
        found.change = FileOperation::Create;
    } else if new.is_some() || old.is_some() && is(tools::REPLACING) {
        patch::add_symbols(
            &mut found.symbols,
            old.unwrap_or(""),
            new.unwrap_or(""),
            path,
        );
    } else if reads {
        found.change = FileOperation::Read;
    } else if whole && (operation == "append" || is(tools::ADDING)) {
        found.change = FileOperation::Edit;
    } else if is(tools::CREATING) {
        found.change = FileOperation::Create;
    } else if whole && (is(tools::WRITING) || operation == "write") {
        found.change = FileOperation::Write;
    } else if arguments::LINE_RANGES
        .iter()
        .any(|key| fields.contains_key(*key))
        && !is_shell(words)
    {
        found.change = FileOperation::Read;
    } else if is(tools::PATCHING) && !operation.is_empty() && operation != "undo_edit" {
        found.change = FileOperation::Edit;
    } else {
        return Vec::new();
    }
    vec![found]
}

/// Returns the effects on a list of files.
fn many(fields: &Map<String, Value>, reads: bool) -> Vec<FileEffect> {
    let Some(list) = arguments::FILE_LISTS
        .iter()
        .find_map(|key| fields.get(*key)?.as_array())
    else {
        // Codex maps each path to its change.
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
            .or_else(|| text_of(item.as_object()?, arguments::PATHS))?;
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
