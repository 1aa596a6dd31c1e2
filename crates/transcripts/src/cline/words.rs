//! The tools of Cline and Roo Code, and the texts that they themselves write into messages. A new version of either is
//! an edit here.

/// The tools that all versions called in XML.
pub(super) const TOOLS: [&str; 36] = [
    "access_mcp_resource",
    "apply_diff",
    "ask_followup_question",
    "attempt_completion",
    "browser_action",
    "codebase_search",
    "condense",
    "edit_file",
    "execute_command",
    "fetch_instructions",
    "generate_explanation",
    "generate_image",
    "insert_content",
    "list_code_definition_names",
    "list_files",
    "load_mcp_documentation",
    "new_rule",
    "new_task",
    "plan_mode_respond",
    "plan_mode_response",
    "read_file",
    "replace_in_file",
    "report_bug",
    "run_slash_command",
    "search_and_replace",
    "search_files",
    "str_replace",
    "summarize_task",
    "switch_mode",
    "update_todo_list",
    "use_mcp_tool",
    "use_skill",
    "use_subagents",
    "web_fetch",
    "web_search",
    "write_to_file",
];
/// The beginnings of blocks with a person's words, and the elements that contain the words.
pub(super) const WORDS: [(&str, &str); 7] = [
    ("<task>", "task"),
    ("<user_message>", "user_message"),
    ("<user_input", "user_input"),
    ("<feedback>", "feedback"),
    ("[TASK RESUMPTION]", "user_message"),
    ("The user has provided feedback on the results", "feedback"),
    ("The user provided the following feedback", "feedback"),
];
/// The beginnings of blocks of the harness.
pub(super) const HARNESS: [&str; 16] = [
    "# TODO LIST",
    "# task_progress",
    "<environment_details>",
    "<explicit_instructions",
    "<file_content",
    "<folder_content",
    "<hook_context",
    "<mode_notice",
    "<system-reminder>",
    "<url_content",
    "<workspace_diagnostics",
    "Files attached by the user",
    "Tool [",
    "[ERROR]",
    "[TASK RESUMPTION]",
    "[Sliding window truncation",
];
/// Tools whose result is the words of a person, and the elements that contain the words.
pub(super) const ASKING: [(&str, &str); 4] = [
    ("ask_followup_question", "answer"),
    ("plan_mode_respond", "user_message"),
    ("plan_mode_response", "user_message"),
    ("act_mode_respond", "user_message"),
];
/// The call that ends a task.
pub(super) const END: &str = "attempt_completion";
/// The beginnings of results that report a failure or a call that was not executed.
pub(super) const FAILED: [&str; 5] = [
    "The tool execution failed with the following error",
    "The user denied this operation",
    "Command failed with exit code",
    "Task was interrupted before this tool call could be completed",
    "[migration] Tool result missing",
];
/// The keys that Roo adds to a message when it hides the message.
pub(super) const MARKS: [&str; 2] = ["condenseParent", "truncationParent"];
/// The text of answers that the program writes in place of the model.
pub(super) const NO_ANSWER: &str = "Failure: I did not provide a response.";
/// Texts that only Roo writes into its messages.
pub(super) const ROO_MARKS: [&str; 5] = [
    "# Current Workspace Directory",
    "<slug>",
    "\"condenseParent\"",
    "\"truncationParent\"",
    "\"isSummary\"",
];
/// The folders in which Roo Code, its fork Kilo Code, and Cline keep their tasks.
pub(super) const ROO_FOLDERS: [&str; 2] = ["rooveterinaryinc.roo-cline", "kilocode.kilo-code"];
pub(super) const CLINE_FOLDERS: [&str; 2] = ["saoudrizwan.claude-dev", ".cline"];
/// The files in the folder of a task other than its messages.
pub(super) const OF_TASK: [&str; 5] = [
    "ui_messages.json",
    "claude_messages.json",
    "history_item.json",
    "task_metadata.json",
    "context_history.json",
];
/// The names of lists of tasks.
pub(super) const LISTS: [&str; 2] = ["taskHistory.json", "_index.json"];
