//! The texts that Codex itself writes into items, and its kinds of items. A new version of Codex is an edit here.

/// The beginnings of user items that Codex wrote itself.
pub(super) const ADDED: [&str; 12] = [
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<collaboration_mode>",
    "<environment_context>",
    "<hook_prompt",
    "<permissions instructions>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
    "Warning: ",
];
/// The kind of a call that the provider executes.
pub(super) const HOSTED: &str = "web_search_call";
/// The field of an item that only Codex reads; the provider's API does not define it.
pub(super) const OWN: &str = "internal_chat_message_metadata_passthrough";
