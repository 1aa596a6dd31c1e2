//! Names of arguments, and the words that are their values. Of the tables that are searched for the name of one
//! argument, the first name that a call has wins.

/// The path of a file.
pub(in super::super) const PATHS: &[&str] = &[
    "path",
    "file_path",
    "filePath",
    "filepath",
    "filename",
    "file_name",
    "fileName",
    "file",
    "absolute_path",
    "absolutePath",
    "target_file",
    "targetFile",
    "notebook_path",
    "TargetFile",
    "AbsolutePath",
    "relative_path",
    "relative_workspace_path",
    "abs_path",
    "uri",
    "destination_file",
];

/// The ends of other names of a path.
pub(in super::super) const PATH_ENDS: &[&str] = &["path", "file"];

/// Parts of names that end as a path does and name something else.
pub(in super::super) const NO_PATHS: &[&str] = &[
    "root", "dir", "folder", "project", "work", "cwd", "log", "base",
];

/// Lists of files.
pub(in super::super) const FILE_LISTS: &[&str] =
    &["paths", "file_paths", "files", "filePaths", "changes"];

/// The old and the new path of a file that is moved.
pub(in super::super) const MOVES: &[(&str, &str)] = &[
    ("source", "destination"),
    ("source_path", "destination_path"),
    ("old_path", "new_path"),
    ("oldPath", "newPath"),
    ("from", "to"),
    ("path", "new_path"),
];

/// The text that an edit replaces.
pub(in super::super) const OLD_TEXTS: &[&str] = &[
    "old_string",
    "oldString",
    "old_str",
    "oldText",
    "old_text",
    "search",
    "oldStr",
    "old_content",
    "find",
    "old",
];

/// The text that an edit writes instead.
pub(in super::super) const NEW_TEXTS: &[&str] = &[
    "new",
    "new_string",
    "newString",
    "new_str",
    "newText",
    "new_text",
    "replace",
    "replacement_text",
    "newStr",
    "new_source",
    "new_content",
    "replacement",
    "code_edit",
    "insert_text",
    "text_to_insert",
];

/// True if an edit replaces every occurrence of its text.
pub(in super::super) const ALL_OCCURRENCES: &[&str] = &[
    "replace_all",
    "replaceAll",
    "replace-all",
    "allow_multiple",
    "all_occurrences",
];

/// The number of occurrences that an edit expects.
pub(in super::super) const OCCURRENCES: &[&str] = &["expected_replacements", "count"];

/// The line after which a text is inserted.
pub(in super::super) const INSERT_LINES: &[&str] = &["insert_line", "insertLine"];

/// The first and the last line of a range that an edit replaces.
pub(in super::super) const EDITED_LINES: &[(&str, &str)] =
    &[("start_line", "end_line"), ("startLine", "endLine")];

/// Texts of which the tool leaves out unchanged parts, so that the text of the file is not known.
pub(in super::super) const SKETCHES: &[&str] = &["code_edit", "new_source"];

/// Lists of edits of one file.
pub(in super::super) const EDIT_LISTS: &[&str] = &["edits", "replacements"];

/// Texts that may hold search and replace blocks.
pub(in super::super) const EDIT_BLOCKS: &[&str] = &["diff", "content", "edits"];

/// The whole text of a file.
pub(in super::super) const WHOLE_TEXTS: &[&str] = &[
    "content",
    "contents",
    "file_text",
    "text",
    "file_content",
    "CodeContent",
    "body",
    "fileText",
    "data",
];

/// The lines of a file to read.
pub(in super::super) const LINE_RANGES: &[&str] = &[
    "offset",
    "limit",
    "start_line",
    "end_line",
    "startLine",
    "endLine",
    "view_range",
    "line_number",
    "line_start",
    "line_end",
    "start_line_one_indexed",
    "should_read_entire_file",
    "StartLine",
    "lines",
];

/// Parts of the names of limits of time and size.
pub(in super::super) const LIMITS: &[&str] = &[
    "timeout",
    "time_ms",
    "timeMs",
    "max_output",
    "maxOutput",
    "max_tokens",
    "maxTokens",
];

/// Texts that may be a patch.
pub(in super::super) const PATCHES: &[&str] = &[
    "patch",
    "diff",
    "input",
    "patchText",
    "patch_text",
    "changes",
];

/// The command line of a shell.
pub(in super::super) const COMMAND_LINES: &[&str] = &[
    "command",
    "cmd",
    "script",
    "commandLine",
    "CommandLine",
    "bash_command",
    "shell_command",
    COMMAND_LIST,
];

/// The list of several command lines; other lists are the words of one.
pub(in super::super) const COMMAND_LIST: &str = "commands";

/// The folder that a command line runs in.
pub(in super::super) const COMMAND_FOLDERS: &[&str] = &[
    "workdir",
    "cwd",
    "working_directory",
    "workingDirectory",
    "directory",
    "Cwd",
];

/// The folder that the paths of another call are relative to.
pub(in super::super) const FOLDERS: &[&str] = &["workdir", "cwd", "working_directory"];

/// The name of a command or sub-agent in the background.
pub(in super::super) const BACKGROUND_IDS: &[&str] = &[
    "session_id",
    "bash_id",
    "shell_id",
    "task_id",
    "agentId",
    "agent_id",
    "process_id",
    "sessionId",
];

/// The task of a sub-agent.
pub(in super::super) const TASKS: &[&str] = &["prompt", "task", "instructions", "message", "goal"];

/// The pattern or question of a search.
pub(in super::super) const SEARCHES: &[&str] = &["pattern", "query", "regex"];

/// Arguments by which a search says how to show its results.
pub(in super::super) const SEARCH_SETTINGS: &[&str] = &[
    "case_sensitive",
    "context_lines",
    "head_limit",
    "max_results",
    "mode",
    "multiline",
    "order",
    "output_mode",
    "outputmode",
    "sort",
    "type",
];

/// Arguments that a call with a path has only if it is a search.
pub(in super::super) const SEARCHES_IN_A_PATH: &[&str] = &["pattern", "query"];

/// Arguments that describe a call best.
pub(in super::super) const DESCRIBING: &[&str] = &[
    "query",
    "url",
    "pattern",
    "description",
    "name",
    "title",
    "subject",
    "prompt",
    "task",
    "question",
    "expression",
    "id",
];

/// Operations of an editor, as the value of `command`.
pub(in super::super) const EDITOR_OPERATIONS: &[&str] = &[
    "view",
    "create",
    "str_replace",
    "insert",
    "undo_edit",
    "read",
    "write",
    "edit",
    "delete",
    "rename",
    "append",
    "overwrite",
    "replace",
];

/// Operations of an editor that read.
pub(in super::super) const READING_OPERATIONS: &[&str] = &["view", "read"];

/// The text of an item of a plan.
pub(in super::super) const ITEM_TEXTS: &[&str] = &[
    "content",
    "step",
    "text",
    "title",
    "description",
    "task",
    "subject",
    "name",
    "activeForm",
];

/// The state of an item of a plan: a word, or true if it is done.
pub(in super::super) const ITEM_STATES: &[&str] = &[
    "status",
    "state",
    "done",
    "completed",
    "checked",
    "complete",
    "is_done",
];

/// The number of the item of a plan that a call updates.
pub(in super::super) const ITEM_NUMBERS: &[&str] = &["taskId", "task_id", "id"];

/// Words for an item that is not begun, without marks and in lower case, as those of the next three tables.
pub(in super::super) const PENDING: &[&str] = &[
    "pending",
    "todo",
    "open",
    "notstarted",
    "queued",
    "planned",
    "blocked",
    "new",
];

/// Words for an item that is being worked on.
pub(in super::super) const IN_PROGRESS: &[&str] = &[
    "inprogress",
    "active",
    "doing",
    "started",
    "running",
    "current",
    "wip",
];

/// Words for an item that is done.
pub(in super::super) const DONE: &[&str] = &[
    "completed",
    "complete",
    "done",
    "finished",
    "resolved",
    "closed",
];

/// Words for an item that was given up.
pub(in super::super) const CANCELLED: &[&str] = &[
    "cancelled",
    "canceled",
    "skipped",
    "abandoned",
    "dropped",
    "deleted",
    "failed",
];
