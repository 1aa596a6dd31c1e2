//! Interprets a call by the shape of its arguments first, then by the words of the tool's name.

mod fields;
pub(super) mod texts;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::log::CallPosition;
use super::outcome::CallKind;
use super::patch::{self, FileEffect};
use super::plan::{self, PlanChange};
use super::shell::{self, GitUse, Runner};
use super::tables::{arguments, tools};
use fields::{is_path, of_fields};
use loopstore_model::ToolCall;

/// The length of a description, in bytes.
const LONGEST_DESCRIPTION: usize = 400;
/// The most files of one call.
const MOST_FILES: usize = 500;

/// The effects of a call if it succeeds.
#[derive(Debug, Default)]
pub(super) struct CallAction {
    /// The command line, or the tool and its main argument; the task of a sub-agent.
    pub(super) description: String,
    /// Equal for calls that do the same.
    pub(super) key: String,
    pub(super) is_command: bool,
    /// True if the call builds, tests or runs something, or has an effect outside of files: books, sends, cancels.
    pub(super) runs: bool,
    /// True if the exit code is that of a viewer at the end of a pipe.
    pub(super) hides_exit: bool,
    pub(super) runners: Vec<Runner>,
    pub(super) files: Vec<FileEffect>,
    /// The folder that relative paths refer to.
    pub(super) folder: Option<String>,
    /// The folder that the call names as its own, without the folders that its command line changes to.
    pub(super) workdir: Option<String>,
    /// The calls of git whose output names a commit.
    pub(super) git: GitUse,
    /// The position of the call, for the log of ended calls.
    pub(super) position: CallPosition,
    pub(super) plan: Option<PlanChange>,
    /// True if the call gives a task to a sub-agent.
    pub(super) delegates: bool,
    /// True if the call changes the open file of an editor without naming it.
    pub(super) edits_open_file: bool,
    /// True if the call opens the named file in an editor.
    pub(super) opens: bool,
    /// The id of the background command or sub-agent that the call polls, writes to or ends.
    pub(super) about: Option<String>,
    /// True if the provider executes the call: the history has no result for it.
    pub(super) is_hosted: bool,
}

impl CallAction {
    pub(super) fn kind(&self) -> CallKind {
        CallKind {
            is_command: self.is_command,
            // Other tools with an effect have an answer, not the output of a run.
            runs: self.runs && self.is_command,
            hides_exit: self.hides_exit,
        }
    }

    /// Returns the kind of the call if its result has the form of a command's.
    pub(super) fn kind_as_command(&self) -> CallKind {
        CallKind {
            is_command: true,
            ..self.kind()
        }
    }
}

/// Returns the effects of a call.
pub(super) fn read_call(call: &ToolCall) -> CallAction {
    let words = words_of(&call.name);
    let arguments = match call.arguments.read::<Value>() {
        Ok(Value::Object(fields)) => fields,
        Ok(Value::String(text)) => return of_text(&call.name, &words, &text),
        _ => Map::new(),
    };
    of_arguments(&call.name, &words, &arguments)
}

/// Splits a tool's name: `mcp__fs__writeFile` is `mcp`, `fs`, `write`, `file`.
fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars().take(120) {
        if !c.is_alphanumeric() || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Reads a call whose arguments are one text: a patch, a command line, or JSON encoded twice.
fn of_text(name: &str, words: &[String], text: &str) -> CallAction {
    if text.trim_start().starts_with('{')
        && let Ok(Value::Object(fields)) = serde_json::from_str(text)
    {
        return of_arguments(name, words, &fields);
    }
    let files = patch::changes(text);
    if files.is_empty() && is_shell(words) {
        return command(text, None, false);
    }
    patched(name, files)
}

fn patched(name: &str, mut files: Vec<FileEffect>) -> CallAction {
    files.truncate(MOST_FILES);
    let paths: Vec<&str> = files.iter().map(|file| &*file.path).take(4).collect();
    let description = labelled(name, &paths.join(" "));
    CallAction {
        key: description.clone(),
        description,
        files,
        ..CallAction::default()
    }
}

fn is_shell(words: &[String]) -> bool {
    has_word(words, tools::SHELLS)
}

/// True if an argument of a search only says how to show the results: the agent knows it from its tool.
pub(crate) fn is_search_setting(tool: &str, key: &str) -> bool {
    arguments::SEARCH_SETTINGS.contains(&&*key.to_lowercase())
        && has_word(&words_of(tool), tools::SEARCHING_TEXT)
}

/// True if one of the words of a name is in a table.
fn has_word(words: &[String], table: &[&str]) -> bool {
    words.iter().any(|word| table.contains(&&**word))
}

/// Reads a command line. `editor`: the shell has an editor's commands.
pub(super) fn command(line: &str, folder: Option<&str>, editor: bool) -> CallAction {
    let mut read = shell::read(line, editor);
    for runner in &mut read.runners {
        runner.folder = runner.folder.take().or_else(|| folder.map(str::to_owned));
    }
    let line = line.trim();
    let first = line.split_whitespace().next().unwrap_or("");
    let is_patch = tools::APPLY_PATCH.contains(&first) && !read.files.is_empty();
    let description = match is_patch {
        true => labelled(first, &read.files[0].path),
        false => one_line(line),
    };
    // The rest of an `edit` command is the new text, not a command line.
    let read = match editor && first == "edit" {
        true => shell::CommandLine::default(),
        false => read,
    };
    let mut key = shell::normalised(line);
    key.truncate(key.floor_char_boundary(4_096));
    CallAction {
        description,
        key,
        is_command: true,
        runs: read.runs,
        hides_exit: read.hides_exit,
        runners: read.runners,
        opens: editor && matches!(first, "open" | "create"),
        edits_open_file: editor && first == "edit",
        files: read.files,
        folder: read.folder.or_else(|| folder.map(str::to_owned)),
        workdir: folder.map(str::to_owned),
        git: read.git,
        ..CallAction::default()
    }
}

/// Returns the command line of a call, unless its argument is the operation of an editor.
fn own_command_line<'a>(
    words: &[String],
    fields: &'a Map<String, Value>,
    path: Option<&str>,
) -> Option<Cow<'a, str>> {
    command_line(fields).filter(|line| {
        let is_line = line.contains(' ') || !has_word(words, tools::WITH_OPERATIONS);
        (is_shell(words) || is_line)
            && !(path.is_some() && arguments::EDITOR_OPERATIONS.contains(&&**line))
    })
}

fn text_of<'a>(fields: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| fields.get(*key)?.as_str())
}

fn of_arguments(name: &str, words: &[String], fields: &Map<String, Value>) -> CallAction {
    let has = |table: &[&str]| has_word(words, table);
    let path = path_of(fields).filter(|path| is_path(path));
    if let Some(line) = own_command_line(words, fields, path) {
        let folder = text_of(fields, arguments::COMMAND_FOLDERS);
        return command(
            &line,
            folder.filter(|folder| folder.starts_with('/')),
            false,
        );
    }
    let folder = text_of(fields, arguments::FOLDERS);
    let patch = text_of(fields, arguments::PATCHES);
    let mut files = patch.map(patch::changes).unwrap_or_default();
    if files.is_empty() {
        files = of_fields(words, fields, path);
    }
    let about = arguments::BACKGROUND_IDS
        .iter()
        .find_map(|key| match fields.get(*key)? {
            Value::String(id) => Some(id.clone()),
            Value::Number(id) => Some(id.to_string()),
            _ => None,
        });
    let task =
        text_of(fields, arguments::TASKS).filter(|_| has(tools::DELEGATING) && path.is_none());
    let delegates = task.is_some();
    let replaces = arguments::NEW_TEXTS
        .iter()
        .any(|key| fields.contains_key(*key));
    let plan = plan::change(words, fields);
    let runs = task.is_none()
        && path.is_none()
        && about.is_none()
        && plan.is_none()
        && files.is_empty()
        && !replaces
        && has_side_effects(words);
    let sought = text_of(fields, arguments::SEARCHES);
    let subject = match (path, sought.filter(|_| files.is_empty() && !replaces)) {
        (Some(path), Some(sought)) => Cow::Owned(format!("{sought} {path}")),
        (Some(path), None) => Cow::Borrowed(path),
        (None, _) => Cow::Borrowed(main_argument(fields).unwrap_or("")),
    };
    let description = match task {
        Some(task) => one_line(task),
        None if runs => with_arguments(name, fields),
        None => labelled(name, &subject),
    };
    CallAction {
        key: labelled(name, &subject),
        description,
        delegates,
        edits_open_file: files.is_empty()
            && path.is_none()
            && replaces
            && has(tools::EDITING_OPEN_FILE),
        opens: has(tools::OPENING) && path.is_some(),
        files,
        runs,
        folder: folder.map(str::to_owned),
        workdir: folder.map(str::to_owned),
        git: GitUse {
            commits: has(tools::COMMITTING),
            ..GitUse::default()
        },
        plan,
        about,
        // Only a search that the provider runs has a `type`.
        is_hosted: name == tools::HOSTED_SEARCH && fields.get("type").is_some_and(Value::is_string),
        ..CallAction::default()
    }
}

/// True if no word of a tool's name says that the tool has no lasting effect.
fn has_side_effects(words: &[String]) -> bool {
    !words.is_empty() && !has_word(words, tools::WITHOUT_EFFECT)
}

/// Returns the tool's name and all arguments with their names, on one line.
fn with_arguments(name: &str, fields: &Map<String, Value>) -> String {
    let mut line = name.to_owned();
    for (at, (key, value)) in fields.iter().enumerate() {
        let parted = if at > 0 { ", " } else { " " };
        let value = match value {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            other => Cow::Owned(other.to_string()),
        };
        let most = LONGEST_DESCRIPTION.saturating_sub(line.len());
        line.push_str(&format!(
            "{parted}{key} {}",
            &value[..value.floor_char_boundary(most)]
        ));
        if line.len() >= LONGEST_DESCRIPTION {
            break;
        }
    }
    one_line(&line)
}

/// Returns the path among the arguments, under a known name or one that ends like a path's.
fn path_of(fields: &Map<String, Value>) -> Option<&str> {
    let named = || {
        fields.iter().find_map(|(key, value)| {
            let key = key.to_ascii_lowercase();
            let is_one = arguments::PATH_ENDS.iter().any(|end| key.ends_with(end));
            let is_other = arguments::NO_PATHS.iter().any(|other| key.contains(other));
            value.as_str().filter(|_| is_one && !is_other)
        })
    };
    text_of(fields, arguments::PATHS).or_else(named)
}

/// Returns the command line of a shell call, which is a text or a list of words.
fn command_line(fields: &Map<String, Value>) -> Option<Cow<'_, str>> {
    arguments::COMMAND_LINES
        .iter()
        .find_map(|key| match fields.get(*key)? {
            Value::String(line) => Some(Cow::Borrowed(line.as_str())),
            Value::Array(list) => {
                let words: Vec<&str> = list.iter().map(Value::as_str).collect::<Option<_>>()?;
                match words.as_slice() {
                    [] => None,
                    [shell, flag, line, ..]
                        if shell.ends_with("sh")
                            && flag.starts_with('-')
                            && flag.ends_with('c') =>
                    {
                        Some(Cow::Borrowed(*line))
                    }
                    [one] => Some(Cow::Borrowed(*one)),
                    [program, patch] if tools::APPLY_PATCH.contains(program) => {
                        Some(Cow::Owned(format!("{program} '{patch}'")))
                    }
                    words if *key == arguments::COMMAND_LIST => Some(Cow::Owned(words.join("\n"))),
                    words => Some(Cow::Owned(
                        words
                            .iter()
                            .map(|word| quoted(word))
                            .collect::<Vec<_>>()
                            .join(" "),
                    )),
                }
            }
            _ => None,
        })
}

fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', "'\\''"))),
    }
}

/// Returns the argument that describes a call best.
fn main_argument(fields: &Map<String, Value>) -> Option<&str> {
    // An id describes a call better than any other text.
    let by_id = || {
        let mut ids = fields
            .iter()
            .filter(|(key, _)| key.to_ascii_lowercase().ends_with("id"));
        ids.find_map(|(_, value)| value.as_str())
    };
    let named = text_of(fields, arguments::DESCRIBING);
    named
        .or_else(by_id)
        .or_else(|| fields.values().find_map(Value::as_str))
}

fn labelled(name: &str, about: &str) -> String {
    one_line(&format!(
        "{name} {}",
        &about[..about.floor_char_boundary(LONGEST_DESCRIPTION)]
    ))
}

/// Returns a text on one line, cut to [`LONGEST_DESCRIPTION`] bytes.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(
            word.chars()
                .filter(|c| !c.is_control())
                .take(LONGEST_DESCRIPTION),
        );
        if line.len() > LONGEST_DESCRIPTION {
            line.truncate(line.floor_char_boundary(LONGEST_DESCRIPTION));
            line.push('…');
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests;
