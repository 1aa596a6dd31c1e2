//! The changes of files by tool calls, as the lines of a diff.

use std::time::Duration;

use loopstore::model::Message;
use loopstore_digest::activity::{
    FileChange, FileOperation, Hunk, HunkLine, TextChange, TextReplacement, message_changes,
};
use serde::{Serialize, Serializer};
use similar::{ChangeTag, TextDiff};

/// The number of unchanged lines around a change.
const AROUND: usize = 2;
/// The maximum time that two texts are compared; then the rest of them counts as different.
const PATIENCE: Duration = Duration::from_millis(200);

/// A file that a tool call changes if it succeeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// The path; empty for the open file of an editor.
    pub path: String,
    /// A verb: `created`, `wrote`, `edited`, `deleted`, `reverted`, `moved`.
    pub action: &'static str,
    /// The earlier path of a file that was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
    /// The lines; none if the arguments of the call do not contain them.
    pub diff: Vec<DiffLine>,
}

/// A line of a diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffLine {
    /// The line stays.
    Kept(String),
    /// The line is removed.
    Removed(String),
    /// The line is added.
    Added(String),
    /// The position of the lines below.
    At(String),
}

impl DiffLine {
    /// Returns the sign before the line, and the line.
    pub fn parts(&self) -> (char, &str) {
        match self {
            Self::Kept(line) => (' ', line),
            Self::Removed(line) => ('-', line),
            Self::Added(line) => ('+', line),
            Self::At(place) => ('@', place),
        }
    }
}

impl Serialize for DiffLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (sign, line) = self.parts();
        serializer.serialize_str(&format!("{sign}{line}"))
    }
}

/// Returns the files that a call of a message changes if it succeeds. `call` is its index among the calls of the
/// message.
///
/// ```
/// use loopstore::Message;
/// use loopstore_admin::inspect::{DiffLine, changed_files};
/// use serde_json::json;
///
/// let edit = json!({"file_path": "a.rs", "old_string": "let a = 1;", "new_string": "let a = 2;"});
/// let answer = Message::assistant("").with_tool_call("c1", "Edit", edit);
/// let files = changed_files(&answer, 0);
/// assert_eq!((&*files[0].path, files[0].action), ("a.rs", "edited"));
/// assert_eq!(files[0].diff[1], DiffLine::Added("let a = 2;".into()));
/// ```
pub fn changed_files(message: &Message, call: u32) -> Vec<ChangedFile> {
    let changes = message_changes(message, Some(call));
    changes.iter().filter_map(changed_file).collect()
}

/// Returns a change of a file; `None` if the file is only read.
fn changed_file(change: &FileChange) -> Option<ChangedFile> {
    let action = match &change.operation {
        FileOperation::Create | FileOperation::Touch => "created",
        FileOperation::Write => "wrote",
        FileOperation::Edit => "edited",
        FileOperation::Delete => "deleted",
        FileOperation::Revert => "reverted",
        FileOperation::MoveFrom(_) => "moved",
        FileOperation::Read => return None,
    };
    Some(ChangedFile {
        path: change.path.clone(),
        action,
        moved_from: match &change.operation {
            FileOperation::MoveFrom(from) => Some(from.clone()),
            _ => None,
        },
        diff: change.text.as_ref().map(diff_lines).unwrap_or_default(),
    })
}

fn diff_lines(change: &TextChange) -> Vec<DiffLine> {
    match change {
        TextChange::Write(text) => added(text),
        TextChange::Append(text) => at("at the end".into(), text),
        TextChange::Insert { after, text } => at(format!("after line {after}"), text),
        TextChange::Lines { first, last, text } => {
            at(format!("in place of lines {first} to {last}"), text)
        }
        TextChange::Replace(replacements) => replacements.iter().flat_map(replaced).collect(),
        TextChange::Hunks(hunks) => hunks.iter().flat_map(hunk_lines).collect(),
    }
}

fn added(text: &str) -> Vec<DiffLine> {
    let line = |line: &str| DiffLine::Added(line.to_owned());
    text.lines().map(line).collect()
}

fn at(place: String, text: &str) -> Vec<DiffLine> {
    let mut lines = vec![DiffLine::At(place)];
    lines.extend(added(text));
    lines
}

fn replaced(replacement: &TextReplacement) -> Vec<DiffLine> {
    let mut lines = Vec::new();
    if replacement.all {
        lines.push(DiffLine::At("every occurrence".into()));
    }
    let (old, new) = (&*replacement.old, &*replacement.new);
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
    for (nth, group) in diff.grouped_ops(AROUND).iter().enumerate() {
        if nth > 0 {
            lines.push(DiffLine::At("…".into()));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value().trim_end_matches(['\n', '\r']).to_owned();
            lines.push(match change.tag() {
                ChangeTag::Equal => DiffLine::Kept(line),
                ChangeTag::Delete => DiffLine::Removed(line),
                ChangeTag::Insert => DiffLine::Added(line),
            });
        }
    }
    lines
}

fn hunk_lines(hunk: &Hunk) -> Vec<DiffLine> {
    let place = match (&hunk.below, hunk.first_line) {
        (Some(line), _) => Some(format!("below {}", line.trim())),
        (None, Some(line)) => Some(format!("line {line}")),
        (None, None) => None,
    };
    let mut lines: Vec<DiffLine> = place.into_iter().map(DiffLine::At).collect();
    lines.extend(hunk.lines.iter().map(|line| match line {
        HunkLine::Kept(line) => DiffLine::Kept(line.clone()),
        HunkLine::Removed(line) => DiffLine::Removed(line.clone()),
        HunkLine::Added(line) => DiffLine::Added(line.clone()),
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(operation: FileOperation, text: Option<TextChange>) -> FileChange {
        FileChange {
            path: "src/a.rs".into(),
            operation,
            text,
        }
    }

    fn lines(text: TextChange) -> Vec<String> {
        let changed = changed_file(&change(FileOperation::Edit, Some(text))).unwrap();
        let line = |line: &DiffLine| format!("{}{}", line.parts().0, line.parts().1);
        changed.diff.iter().map(line).collect()
    }

    #[test]
    fn only_the_lines_around_a_change_are_shown() {
        let old = "a\nb\nc\nd\ne\nf\n".to_owned();
        let new = old.replace("d\n", "D\n");
        let all = false;
        let replaced = lines(TextChange::Replace(vec![TextReplacement { old, new, all }]));
        assert_eq!(replaced, [" b", " c", "-d", "+D", " e", " f"]);
    }

    #[test]
    fn each_kind_of_change_names_its_place() {
        let text = || "x\n".to_owned();
        assert_eq!(lines(TextChange::Write(text())), ["+x"]);
        assert_eq!(lines(TextChange::Append(text())), ["@at the end", "+x"]);
        let insert = TextChange::Insert {
            after: 3,
            text: text(),
        };
        assert_eq!(lines(insert), ["@after line 3", "+x"]);
        let range = TextChange::Lines {
            first: 1,
            last: 2,
            text: text(),
        };
        assert_eq!(lines(range), ["@in place of lines 1 to 2", "+x"]);
        let hunk = Hunk {
            first_line: None,
            below: Some("fn a() ".into()),
            lines: vec![HunkLine::Removed("x".into()), HunkLine::Added("y".into())],
        };
        let hunks = TextChange::Hunks(vec![hunk]);
        assert_eq!(lines(hunks), ["@below fn a()", "-x", "+y"]);
    }

    #[test]
    fn a_file_that_is_only_read_is_not_changed() {
        assert!(changed_file(&change(FileOperation::Read, None)).is_none());
        let moved = changed_file(&change(FileOperation::MoveFrom("b.rs".into()), None)).unwrap();
        assert_eq!(
            (moved.action, moved.moved_from.as_deref()),
            ("moved", Some("b.rs"))
        );
    }
}
