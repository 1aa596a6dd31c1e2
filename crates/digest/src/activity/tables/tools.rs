//! Words of tool names. `mcp__fs__writeFile` has the words `mcp`, `fs`, `write` and `file`.

/// Tools that run a command line.
pub(in super::super) const SHELLS: &[&str] = &[
    "bash",
    "shell",
    "terminal",
    "exec",
    "command",
    "execute",
    "cmd",
    "powershell",
    "console",
    "zsh",
    "sh",
    "run",
    "script",
    "pty",
];

/// Tools whose argument `command` names an operation (`view`) if it is a single word.
pub(in super::super) const WITH_OPERATIONS: &[&str] =
    &["editor", "edit", "tracker", "browser", "task", "todo"];

/// Tools that give a task to a sub-agent.
pub(in super::super) const DELEGATING: &[&str] =
    &["task", "agent", "subagent", "delegate", "spawn"];

/// Tools that change the open file of an editor if they name no file.
pub(in super::super) const EDITING_OPEN_FILE: &[&str] = &["edit", "insert", "replace"];

/// Tools that open a file in an editor.
pub(in super::super) const OPENING: &[&str] = &["open", "create", "goto"];

/// Tools that search or list instead of reading or changing one file.
pub(in super::super) const SEARCHING: &[&str] = &[
    "grep",
    "glob",
    "search",
    "list",
    "ls",
    "find",
    "dir",
    "directory",
    "folder",
    "mkdir",
];

/// Tools that search in files.
pub(in super::super) const SEARCHING_TEXT: &[&str] = &["glob", "grep", "rg", "ripgrep"];

/// Tools that move a file.
pub(in super::super) const MOVING: &[&str] = &["move", "rename", "mv"];

/// Tools that read a file.
pub(in super::super) const READING: &[&str] = &["read", "view", "open", "cat", "show"];

/// Tools that delete a file.
pub(in super::super) const DELETING: &[&str] = &["delete", "remove", "rm", "unlink"];

/// Tools that replace a text in a file, even by nothing.
pub(in super::super) const REPLACING: &[&str] = &["edit", "replace"];

/// Tools that add a text to a file.
pub(in super::super) const ADDING: &[&str] = &["append", "insert"];

/// Tools that create a file.
pub(in super::super) const CREATING: &[&str] = &["create"];

/// Tools that write a whole file.
pub(in super::super) const WRITING: &[&str] = &[
    "write",
    "save",
    "put",
    "editor",
    "edit",
    "update",
    "file",
    "overwrite",
];

/// Tools that make a commit.
pub(in super::super) const COMMITTING: &[&str] = &["commit"];

/// Tools that edit a file by an operation of their own.
pub(in super::super) const PATCHING: &[&str] = &["edit", "patch"];

/// Tools and arguments that record a plan. Words that contain one of these count too (`todowrite`).
pub(in super::super) const PLANNING: &[&str] = &[
    "todo",
    "todos",
    "plan",
    "plans",
    "task",
    "tasks",
    "checklist",
    "steps",
    "progress",
];

/// Tools without a lasting effect: they look something up, think, ask the user, or control the harness.
pub(in super::super) const WITHOUT_EFFECT: &[&str] = &[
    "answer",
    "ask",
    "attempt",
    "browse",
    "calc",
    "calculate",
    "check",
    "close",
    "completion",
    "compute",
    "context",
    "count",
    "describe",
    "diff",
    "enter",
    "exit",
    "explore",
    "fetch",
    "find",
    "finish",
    "get",
    "glob",
    "goto",
    "grep",
    "has",
    "info",
    "inspect",
    "is",
    "list",
    "load",
    "look",
    "lookup",
    "ls",
    "memory",
    "mode",
    "open",
    "output",
    "plan",
    "query",
    "read",
    "recall",
    "resolve",
    "respond",
    "retrieve",
    "screenshot",
    "scroll",
    "search",
    "select",
    "show",
    "skill",
    "snapshot",
    "status",
    "think",
    "todo",
    "todos",
    "view",
    "wait",
    "web",
];

/// The search that a provider runs by itself: no result of it is recorded.
pub(in super::super) const HOSTED_SEARCH: &str = "web_search";

/// The beginnings of the names of tools that end a command in the background.
pub(in super::super) const ENDING_BACKGROUND: &[&str] = &["kill", "taskstop"];

/// The names of a patch as a program of a shell.
pub(in super::super) const APPLY_PATCH: &[&str] = &["apply_patch", "applypatch"];
