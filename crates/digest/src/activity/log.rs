//! The log of ended calls, for code that follows the changes of files call by call.

use super::actions::CallAction;
use super::files::normal;
use super::outcome::{output_of, unwrap_json};
use super::patch::FileOperation;

/// The longest subject of a commit that is kept, in bytes.
const LONGEST_SUBJECT: usize = 200;
/// The most commits of one call.
const MOST_COMMITS: usize = 32;

/// The position of a call: the message as the reader numbered it, and the index of the call among the message's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallPosition {
    /// The number of the message, set by [`Activity::set_position`](super::Activity::set_position).
    pub message: u64,
    /// The index of the call; `None` if the text of the message is the command.
    pub call: Option<u32>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The call succeeded.
    Succeeded,
    /// The call failed, was refused, or reported that it changed nothing.
    Failed,
    /// The record has no result of the call.
    NoResult,
}

/// A call that has ended, with the files that its arguments name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedCall {
    /// The position of the call.
    pub position: CallPosition,
    /// The end of the call.
    pub end: CallEnd,
    /// True if the call is a command of a shell, part of which may have succeeded if it failed.
    pub is_command: bool,
    /// The files by their normalised paths as the call names them, in the order of
    /// [`message_changes`](super::message_changes).
    pub files: Vec<(String, FileOperation)>,
    /// The folder that the call names as its own.
    pub workdir: Option<String>,
    /// The working folder that the harness named last.
    pub cwd: Option<String>,
    /// The first folder that a command changed to, a guess at the working folder.
    pub guessed_folder: Option<String>,
    /// The commits that the output of the call names.
    pub commits: Vec<GitCommit>,
}

/// A commit that the output of a call names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCommit {
    /// The id, which git may have shortened.
    pub id: String,
    /// The reason why the output names it.
    pub kind: GitCommitKind,
    /// The branch, if the output names it.
    pub branch: Option<String>,
    /// The first line of the message, if the output contains it.
    pub subject: Option<String>,
}

/// The relation of a call to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitCommitKind {
    /// The call made the commit.
    Made,
    /// The call printed the id of the current commit.
    Head,
}

/// The calls that have ended, and the number of the message that is read.
#[derive(Default)]
pub(super) struct CallLog {
    pub(super) message: u64,
    pub(super) ended: Vec<EndedCall>,
}

impl EndedCall {
    pub(super) fn of(
        action: &CallAction,
        end: CallEnd,
        text: &str,
        cwd: Option<&str>,
        folder: Option<&str>,
    ) -> Self {
        let files = action.files.iter();
        Self {
            position: action.position,
            end,
            is_command: action.is_command,
            files: files
                .map(|file| (normal(&file.path), file.change.clone()))
                .collect(),
            workdir: action.workdir.clone(),
            cwd: cwd.map(str::to_owned),
            guessed_folder: folder.map(str::to_owned),
            commits: commits(action, text),
        }
    }
}

/// Returns the commits that the output of a call names. Output of a failed command counts too: a later part of the
/// command line may have failed.
fn commits(action: &CallAction, text: &str) -> Vec<GitCommit> {
    if !action.git.commits && !action.git.prints_head {
        return Vec::new();
    }
    let unpacked = unwrap_json(text);
    let text = match &unpacked {
        Some((output, _)) => output,
        None => output_of(text),
    };
    let mut found: Vec<GitCommit> = Vec::new();
    for line in text.lines().map(str::trim) {
        if found.len() == MOST_COMMITS {
            break;
        }
        let made = action.git.commits.then(|| made_commit(line)).flatten();
        let head = || (action.git.prints_head && is_id(line)).then(|| head_commit(line));
        let Some(commit) = made.or_else(head) else {
            continue;
        };
        // `git commit && git rev-parse HEAD` prints the short id first, then the whole id.
        match found.last_mut() {
            Some(last) if commit.id.starts_with(&last.id) => last.id = commit.id,
            _ => found.push(commit),
        }
    }
    found
}

fn head_commit(id: &str) -> GitCommit {
    GitCommit {
        id: id.to_owned(),
        kind: GitCommitKind::Head,
        branch: None,
        subject: None,
    }
}

/// Reads the line that git prints for a commit: `[main 1a2b3c4] Subject`, `[main (root-commit) 1a2b3c4] Subject`.
fn made_commit(line: &str) -> Option<GitCommit> {
    let (inside, subject) = line.strip_prefix('[')?.split_once("] ")?;
    let (branch, id) = inside.rsplit_once(' ')?;
    let branch = branch.trim_end_matches("(root-commit)").trim_end();
    if !is_id(id) || branch.is_empty() || branch.contains('[') {
        return None;
    }
    let subject = &subject[..subject.floor_char_boundary(LONGEST_SUBJECT)];
    Some(GitCommit {
        id: id.to_owned(),
        kind: GitCommitKind::Made,
        branch: (branch != "detached HEAD").then(|| branch.to_owned()),
        subject: Some(subject.to_owned()),
    })
}

/// True if a text is an id of git: whole, or shortened to seven digits or more.
fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (7..=64).contains(&text.len()) && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use loopstore_model::Message;
    use serde_json::json;

    use super::super::{Activity, SourceTurn};
    use super::*;

    fn ended(command: &str, result: &str) -> EndedCall {
        let mut activity = Activity::default();
        activity.log_calls();
        activity.set_position(7);
        let place = SourceTurn {
            loop_name: None,
            turn: 0,
        };
        let call = json!({"command": command, "cwd": "/repo"});
        activity.add_message(
            &Message::assistant("").with_tool_call("c", "Bash", call),
            &place,
        );
        assert_eq!(activity.unanswered().len(), 1);
        activity.add_message(&Message::tool_result("c", result), &place);
        assert!(activity.unanswered().is_empty());
        activity.take_ended().remove(0)
    }

    fn ids(command: &str, result: &str) -> Vec<(String, GitCommitKind)> {
        let commits = ended(command, result).commits.into_iter();
        commits.map(|commit| (commit.id, commit.kind)).collect()
    }

    #[test]
    fn commits_are_read_from_the_output_of_git() {
        use GitCommitKind::{Head, Made};
        let call = ended(
            "git add . && git commit -m x",
            "[main 1a2b3c4] Mend it\n 1 file",
        );
        let commit = &call.commits[0];
        assert_eq!(commit.branch.as_deref(), Some("main"));
        assert_eq!(commit.subject.as_deref(), Some("Mend it"));
        assert_eq!(call.position.message, 7);
        assert_eq!(
            ids("git commit -qm x", "[a/b (root-commit) abcdef0] S"),
            [("abcdef0".into(), Made)]
        );
        let whole = "1a2b3c4d".repeat(5);
        assert_eq!(
            ids(
                "git -C /r commit -m x; git rev-parse HEAD",
                &format!("[main 1a2b3c4] S\n{whole}\n")
            ),
            [(whole.clone(), Made)]
        );
        assert_eq!(ids("git rev-parse HEAD", &whole), [(whole.clone(), Head)]);
        // A text that looks like the line of git, without a commit.
        assert_eq!(ids("cat notes", "[main 1a2b3c4] Mend it"), []);
        assert_eq!(ids("git commit -m x", "[main nothex1] Mend it"), []);
        assert_eq!(
            ids("git commit -m x", "[ 1a2b3c4] Mend it\n[1a2b3c4] x"),
            []
        );
        assert_eq!(ids("git rev-parse main", &whole), []);
    }

    #[test]
    fn a_call_is_logged_with_its_end_and_its_files() {
        let call = ended("cd sub && echo x > a.txt", "");
        assert_eq!(call.end, CallEnd::Succeeded);
        assert_eq!(call.files, [("sub/a.txt".to_owned(), FileOperation::Write)]);
        assert_eq!(call.workdir.as_deref(), Some("/repo"));
        let call = ended("cargo test", "error: it failed\nexit code: 101");
        assert_eq!(call.end, CallEnd::Failed);
    }
}
