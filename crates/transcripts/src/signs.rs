//! Signs of formats that resemble others, by which the importers of those others reject a file. The signs are known in
//! every build, whichever formats it reads.

use std::path::Path;

use memchr::memmem;
use serde_json::value::RawValue;

use super::fields::Fields;
use super::key_outline::KeyOutline;

/// The end of the name of aider's chat history, usually the whole name.
pub(super) const CHAT_HISTORY: &str = ".aider.chat.history.md";
/// The name of the file with the messages of a task of Cline or Roo Code.
pub(super) const TASK_FILE: &str = "api_conversation_history.json";
/// The commands by which a run of mini-swe-agent ends itself; its task names one of them.
const ENDS: [&str; 2] = [
    "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    "MINI_SWE_AGENT_FINAL_OUTPUT",
];

/// True if bytes contain a text.
pub(super) fn contains(bytes: &[u8], text: &str) -> bool {
    memmem::find(bytes, text.as_bytes()).is_some()
}

/// True if a file is the task of Cline or Roo Code: by its name, or because its first message has a task and the
/// state of an editor.
pub(super) fn is_task(path: &Path, head: &[u8]) -> bool {
    let outline = KeyOutline::of(head);
    if !outline.has("[].role") || !outline.has("[].content") {
        return false;
    }
    let is_named = path.file_name().is_some_and(|name| name == TASK_FILE);
    let has_prompt = contains(head, "\"<task>") || contains(head, "\"<user_message>");
    is_named || has_prompt && contains(head, "<environment_details>")
}

/// True if a file begins with a list of messages that can only be a run of mini-swe-agent: its task names the command
/// that ends the run, or an answer is followed by the output of a command.
pub(super) fn is_bare_trajectory(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let Some(mut rest) = head.trim_ascii_start().strip_prefix(b"[") else {
        return false;
    };
    let mut answered = false;
    for _ in 0..8 {
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest);
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<&RawValue>();
        let Some(Ok(value)) = values.next() else {
            return false;
        };
        let fields = Fields::parse(value.get()).unwrap_or_default();
        let (role, content) = (fields.text("role"), fields.text("content"));
        let (Some(role), Some(content)) = (role, content) else {
            return false;
        };
        match role.as_str() {
            "user" if ENDS.iter().any(|end| content.contains(end)) => return true,
            "user" if answered && content.starts_with("<returncode>") => return true,
            "assistant" => answered = content.contains("```"),
            _ => {}
        }
        rest = &rest[values.byte_offset()..];
    }
    false
}

/// True if a file begins with records that only Qwen Code writes; those of Claude Code look alike.
pub(super) fn is_qwen(head: &[u8]) -> bool {
    const OWN: [&str; 5] = [
        "message.parts",
        "provenance",
        "systemPayload",
        "toolCallResult",
        "usageMetadata",
    ];
    // Few files contain any of these words, and the outline of a long record costs a pass over it.
    let last_names = OWN.map(|path| path.rsplit('.').next().unwrap_or(path));
    let may_be_own = last_names
        .iter()
        .any(|name| memmem::find(head, name.as_bytes()).is_some());
    if !may_be_own {
        return false;
    }
    let is_own = |line: &[u8]| {
        let keys = KeyOutline::of(line);
        let is_record = ["uuid", "sessionId", "type"]
            .iter()
            .all(|key| keys.has(key));
        is_record && OWN.iter().any(|key| keys.has(key))
    };
    head.split(|byte| *byte == b'\n').take(20).any(is_own)
}
