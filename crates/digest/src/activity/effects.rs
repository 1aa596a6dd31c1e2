//! The effects of a single call, for code that compares calls.

use super::actions::read_call;
use super::files::normal;
use super::patch::FileOperation;
use loopstore_model::ToolCall;

/// The effects of a call if it succeeds, derived from its arguments.
///
/// ```
/// use loopstore_digest::activity::CallEffects;
/// use loopstore_model::Message;
/// use serde_json::json;
///
/// let acts = |tool: &str, arguments: serde_json::Value| {
///     let answer = Message::assistant("").with_tool_call("c1", tool, arguments);
///     answer.tool_calls().map(CallEffects::of).next().unwrap()
/// };
/// let read = acts("Read", json!({"file_path": "./src/a.rs"}));
/// assert_eq!((&*read.reads[0], read.command), ("src/a.rs", None));
/// let run = acts("Bash", json!({"command": "cargo  test"}));
/// assert_eq!(run.command.as_deref(), Some("cargo test"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallEffects {
    /// One line: the command, or the tool and its main argument.
    pub description: String,
    /// The normalised command line, equal for commands that do the same; `None` for other tools.
    pub command: Option<String>,
    /// Normalised paths of the files that the call reads.
    pub reads: Vec<String>,
    /// Normalised paths of the files that the call creates, changes, moves or deletes.
    pub changes: Vec<String>,
}

impl CallEffects {
    /// Returns the effects of a call.
    pub fn of(call: &ToolCall) -> Self {
        let action = read_call(call);
        let (reads, changes): (Vec<_>, Vec<_>) = action
            .files
            .iter()
            .partition(|file| file.change == FileOperation::Read);
        let paths = |files: Vec<&super::patch::FileEffect>| {
            files.into_iter().map(|file| normal(&file.path)).collect()
        };
        Self {
            description: action.description,
            command: action.is_command.then_some(action.key),
            reads: paths(reads),
            changes: paths(changes),
        }
    }
}
