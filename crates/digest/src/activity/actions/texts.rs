//! The texts that a call writes into files, from its arguments.
//!
//! The activity of an agent needs no texts, so they are read only here, when the changes of a file are followed.

mod patch;

use loopstore_model::{Content, Message, ToolCall};
use serde_json::{Map, Value};

use super::super::files::normal;
use super::super::patch::{FileEffect, FileOperation};
use super::super::shell;
use super::super::tables::{arguments, tools};
use super::{
    command, has_word, is_path, is_shell, own_command_line, path_of, read_call, text_of, words_of,
};
pub(in super::super) use patch::patch_texts;

/// A file and its change, as the arguments of a call say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The normalised path as the call names it; empty for the open file of an editor.
    pub path: String,
    /// The operation.
    pub operation: FileOperation,
    /// The texts that the operation writes; `None` if the arguments do not contain them.
    pub text: Option<TextChange>,
}

/// A change of the text of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextChange {
    /// The whole text is this.
    Write(String),
    /// The text is added at the end.
    Append(String),
    /// Texts are replaced, one after the other.
    Replace(Vec<TextReplacement>),
    /// The text is inserted after this line, counted from 1; 0 is the beginning.
    Insert {
        /// The line.
        after: u32,
        /// The inserted lines.
        text: String,
    },
    /// A range of lines, counted from 1 with both ends included, is replaced.
    Lines {
        /// The first line.
        first: u32,
        /// The last line.
        last: u32,
        /// The new lines.
        text: String,
    },
    /// The hunks of a patch are applied.
    Hunks(Vec<Hunk>),
}

/// A text that replaces another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextReplacement {
    /// The text that is replaced. If it is empty, the file is created.
    pub old: String,
    /// The text that is written instead.
    pub new: String,
    /// True if every occurrence is replaced.
    pub all: bool,
}

/// A hunk of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// The line of the old text at which it begins, counted from 1, if the patch has it.
    pub first_line: Option<u32>,
    /// A line above the hunk that the patch names.
    pub below: Option<String>,
    /// The lines in order.
    pub lines: Vec<HunkLine>,
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HunkLine {
    /// The line stays.
    Kept(String),
    /// The line is removed.
    Removed(String),
    /// The line is added.
    Added(String),
}

/// Returns the changes of files by a call of a message. `call` is its index among the calls of the message, or `None`
/// if the text of the message is a command.
///
/// ```
/// use loopstore_digest::activity::{TextChange, message_changes};
/// use loopstore_model::Message;
/// use serde_json::json;
///
/// let write = json!({"file_path": "src/a.rs", "content": "fn a() {}\n"});
/// let answer = Message::assistant("").with_tool_call("c1", "Write", write);
/// let changes = message_changes(&answer, Some(0));
/// assert_eq!(changes[0].path, "src/a.rs");
/// assert_eq!(changes[0].text, Some(TextChange::Write("fn a() {}\n".into())));
/// ```
pub fn message_changes(message: &Message, call: Option<u32>) -> Vec<FileChange> {
    let Some(index) = call else {
        let line = message
            .texts()
            .last()
            .and_then(super::super::reader::fenced);
        return line.map_or_else(Vec::new, |line| {
            with_texts(command(line, None, true).files, shell::texts(line))
        });
    };
    let calls = message.content().iter().filter_map(|block| match block {
        Content::ToolCall(call) => Some(call),
        _ => None,
    });
    let mut calls = calls.skip(index as usize);
    calls.next().map_or_else(Vec::new, call_changes)
}

fn call_changes(call: &ToolCall) -> Vec<FileChange> {
    let words = words_of(&call.name);
    let action = read_call(call);
    let (texts, own) = match call.arguments.read::<Value>() {
        Ok(Value::Object(fields)) => argument_texts(&words, &fields),
        Ok(Value::String(text)) => (text_texts(&words, &text), None),
        _ => (Vec::new(), None),
    };
    let opens = action.edits_open_file;
    let mut changes = with_texts(action.files, texts);
    if opens {
        changes.push(FileChange {
            path: String::new(),
            operation: FileOperation::Edit,
            text: own,
        });
    }
    changes
}

/// Gives each effect the first text of its path that fits its operation.
fn with_texts(files: Vec<FileEffect>, texts: Vec<(String, TextChange)>) -> Vec<FileChange> {
    let mut texts: Vec<Option<(String, TextChange)>> = texts.into_iter().map(Some).collect();
    let change = |file: FileEffect| {
        let text = texts.iter_mut().find_map(|text| {
            text.take_if(|(path, text)| *path == file.path && fits(text, &file.change))
        });
        FileChange {
            path: normal(&file.path),
            operation: file.change,
            text: text.map(|(_, text)| text),
        }
    };
    files.into_iter().map(change).collect()
}

fn fits(text: &TextChange, operation: &FileOperation) -> bool {
    use FileOperation::{Create, Edit, MoveFrom, Write};
    match text {
        TextChange::Write(_) => matches!(operation, Create | Write),
        TextChange::Replace(_) => matches!(operation, Create | Edit),
        TextChange::Hunks(_) => matches!(operation, Edit | MoveFrom(_)),
        TextChange::Append(_) | TextChange::Insert { .. } | TextChange::Lines { .. } => {
            *operation == Edit
        }
    }
}

/// Returns the texts of a call whose arguments are one text.
fn text_texts(words: &[String], text: &str) -> Vec<(String, TextChange)> {
    if text.trim_start().starts_with('{')
        && let Ok(Value::Object(fields)) = serde_json::from_str(text)
    {
        return argument_texts(words, &fields).0;
    }
    let texts = patch_texts(text);
    match texts.is_empty() && is_shell(words) {
        true => shell::texts(text),
        false => texts,
    }
}

/// Returns the texts of named arguments by path, and the change of the open file of an editor.
fn argument_texts(
    words: &[String],
    fields: &Map<String, Value>,
) -> (Vec<(String, TextChange)>, Option<TextChange>) {
    let path = path_of(fields).filter(|path| is_path(path));
    if let Some(line) = own_command_line(words, fields, path) {
        return (shell::texts(&line), None);
    }
    let patch = text_of(fields, arguments::PATCHES);
    let texts = patch.map(patch_texts).unwrap_or_default();
    if !texts.is_empty() {
        return (texts, None);
    }
    let own = field_text(words, fields);
    match path {
        Some(path) => (
            Vec::from_iter(own.map(|text| (path.to_owned(), text))),
            None,
        ),
        None => (listed(fields), own),
    }
}

/// Returns the changes that are listed by path.
fn listed(fields: &Map<String, Value>) -> Vec<(String, TextChange)> {
    let Some(changes) = fields.get("changes").and_then(Value::as_object) else {
        return Vec::new();
    };
    let change = |(path, change): (&String, &Value)| {
        let has = |key: &str| {
            change.get(key).or_else(|| {
                let kind = change.get("type").and_then(Value::as_str);
                (kind == Some(key)).then_some(change)
            })
        };
        let text = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let text = match (has("add"), has("update")) {
            (Some(add), _) => TextChange::Write(text(add, "content")?),
            (_, Some(update)) => TextChange::Hunks(patch::hunks(&text(update, "unified_diff")?)),
            _ => return None,
        };
        Some((path.clone(), text))
    };
    changes.iter().filter_map(change).collect()
}

/// Returns the change that the arguments of an editor describe.
fn field_text(words: &[String], fields: &Map<String, Value>) -> Option<TextChange> {
    if arguments::SKETCHES
        .iter()
        .any(|key| fields.contains_key(*key))
    {
        return None;
    }
    let operation = fields.get("command").and_then(Value::as_str).unwrap_or("");
    let edits = arguments::EDIT_LISTS
        .iter()
        .find_map(|key| fields.get(*key)?.as_array());
    if let Some(edits) = edits {
        let edits = edits
            .iter()
            .map(|edit| replacement(edit.as_object()?))
            .collect::<Option<Vec<_>>>();
        return edits
            .filter(|edits| !edits.is_empty())
            .map(TextChange::Replace);
    }
    let whole = text_of(fields, arguments::WHOLE_TEXTS);
    if operation == "create" {
        return whole.map(|text| TextChange::Write(text.to_owned()));
    }
    let blocks = text_of(fields, arguments::EDIT_BLOCKS).map(patch::blocks);
    if let Some(blocks) = blocks.filter(|blocks| !blocks.is_empty()) {
        return Some(TextChange::Hunks(blocks));
    }
    let new = text_of(fields, arguments::NEW_TEXTS);
    let line = |key: &str| u32::try_from(fields.get(key)?.as_u64()?).ok();
    if let Some(after) = arguments::INSERT_LINES.iter().find_map(|key| line(key)) {
        let text = new.or(whole)?.to_owned();
        return Some(TextChange::Insert { after, text });
    }
    if let Some(replacement) = replacement(fields) {
        return Some(TextChange::Replace(vec![replacement]));
    }
    let range = arguments::EDITED_LINES
        .iter()
        .find_map(|(first, last)| Some((line(first)?, line(last)?)));
    if let (Some(new), Some((first, last))) = (new, range) {
        let text = new.to_owned();
        return Some(TextChange::Lines { first, last, text });
    }
    let whole = whole.filter(|_| new.is_none())?.to_owned();
    if operation == "append" || has_word(words, &["append"]) {
        return Some(TextChange::Append(whole));
    }
    // An inserted text is not the whole text.
    (!has_word(words, tools::ADDING)).then_some(TextChange::Write(whole))
}

fn replacement(fields: &Map<String, Value>) -> Option<TextReplacement> {
    let old = text_of(fields, arguments::OLD_TEXTS)?;
    let new = text_of(fields, arguments::NEW_TEXTS).unwrap_or("");
    let is_true = |key: &&str| match fields.get(*key) {
        Some(Value::Bool(is_true)) => *is_true,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    };
    let is_many = |key: &&str| fields.get(*key).and_then(Value::as_u64) > Some(1);
    Some(TextReplacement {
        old: old.to_owned(),
        new: new.to_owned(),
        all: arguments::ALL_OCCURRENCES.iter().any(is_true)
            || arguments::OCCURRENCES.iter().any(is_many),
    })
}

#[cfg(test)]
mod tests;
