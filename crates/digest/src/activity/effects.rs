//! What one call does, for those who compare calls.

use super::actions::read_call;
use super::files::normal;
use super::patch::FileOperation;
use loopstore_model::ToolCall;

/// What a call does if it succeeds, told from its arguments.
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
    /// In a line what it does: the command, or the tool and what it is about.
    pub description: String,
    /// The command line, spelt so that two that do the same are the same.
    pub command: Option<String>,
    /// Files that it reads.
    pub reads: Vec<String>,
    /// Files that it creates, changes, moves or deletes.
    pub changes: Vec<String>,
}

impl CallEffects {
    /// Reads a call.
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
