//! Lines and fields that harnesses put around an output.

/// Objects of a result that may hold its exit code.
pub(in super::super) const EXIT_OBJECTS: &[&str] = &["metadata", "details", "result"];

/// Fields with an exit code.
pub(in super::super) const EXIT_FIELDS: &[&str] =
    &["exit_code", "exitCode", "returncode", "exit_status"];

/// Fields with an output, in the order in which they are joined.
pub(in super::super) const OUTPUT_FIELDS: &[&str] = &["output", "stdout", "stderr", "content"];

/// The words of a line that reports an exit code and nothing else.
pub(in super::super) const EXIT_LINE_WORDS: &[&str] = &[
    "process",
    "command",
    "the",
    "shell",
    "tool",
    "completed",
    "exited",
    "finished",
    "failed",
    "with",
    "exit",
    "code",
    "exit_code",
    "exitcode",
    "returncode",
    "return",
    "status",
    "error",
    "non-zero",
    "signal",
    "and",
    "was",
];

/// The words of which such a line has one.
pub(in super::super) const EXIT_WORDS: &[&str] =
    &["exit", "exited", "exit_code", "exitcode", "returncode"];

/// The beginnings of a line that reports a timeout, in lower case.
pub(in super::super) const TIMEOUT_SUBJECTS: &[&str] = &[
    "command",
    "error: command",
    "process",
    "the command",
    "tool",
    "execution",
];

/// Text before the name of a command or sub-agent that continues in the background.
pub(in super::super) const BACKGROUND_MARKS: &[&str] = &[
    "running with session ID ",
    "running in background with ID: ",
    "running in the background with ID: ",
    "background with ID ",
    AGENT_ID,
    "shell_id: ",
    "Background PIDs: ",
];

/// Text before the id of a sub-agent; one that has ended has an id too.
pub(in super::super) const AGENT_ID: &str = "agentId: ";

/// The beginning of the result of a sub-agent that continues in the background.
pub(in super::super) const BACKGROUND_AGENT: &str = "Async";

/// The beginnings of a line with such a name.
pub(in super::super) const BACKGROUND_LINES: &[&str] = &[
    "Command",
    "Process",
    "Async agent",
    "agentId",
    "Agent",
    "Background",
    "Task",
];

/// The states of a notice of the end of a task, if it failed.
pub(in super::super) const FAILED_TASKS: &[&str] = &["failed", "killed", "error"];

/// The states of a task that has ended.
pub(in super::super) const ENDED_TASKS: &[&str] = &["completed", "failed", "killed"];

/// The beginnings of lines before or after an output.
pub(in super::super) const FRAME_LINES: &[&str] = &[
    "Error: (none)",
    "Signal:",
    "Background PIDs:",
    "Process Group PGID:",
    "Wall time:",
    "Chunk ID:",
    "Original token count:",
    "Output:",
    "Total output lines:",
    "[Current working",
    "[Python interpreter",
    "(no output)",
];

/// The marks before the working folder, with the character after it.
pub(in super::super) const FOLDER_MARKS: &[(&str, char)] = &[
    ("<cwd>", '<'),
    ("(Current directory: ", ')'),
    ("[Current working directory: ", ']'),
];

/// The beginnings of a text in the user's name that is the output of a command.
pub(in super::super) const OBSERVATION_STARTS: &[&str] =
    &["<returncode>", "Observation:", "OBSERVATION:"];

/// The ends of such a text.
pub(in super::super) const OBSERVATION_ENDS: &[&str] = &["bash-$"];

/// The languages of a fenced block that an agent without tools gives to a shell.
pub(in super::super) const SHELL_FENCES: &[&str] = &["bash", "sh", "shell", "mswea_bash_command"];

/// The beginnings of an editor's answer that says that it changed nothing, in lower case.
pub(in super::super) const UNCHANGED: &[&str] = &[
    "error",
    "failed",
    "your proposed edit has introduced",
    "your edit was not applied",
    "no replacement",
    "no match",
    "no changes",
    "could not",
    "cannot",
    "invalid",
    "string not found",
    "search string not found",
    "no file open",
    "file not found",
    "tool_use_error",
    "tool error",
];

/// Words of an answer to a write that created the file, in lower case, as those of the next two tables.
pub(in super::super) const CREATED: &[&str] = &["creat", "new file"];

/// Words of such an answer that say something else.
pub(in super::super) const NOT_CREATED: &[&str] = &["error", "overw"];

/// Words of an answer to a write of a file that existed.
pub(in super::super) const OVERWRITTEN: &[&str] =
    &["has been updated", "overw", "successfully updated"];

/// Words for a refusal in the first sentence of an error, in lower case, as those of the next four tables.
pub(in super::super) const REFUSED: &[&str] = &[
    "reject",
    "denied",
    "denies",
    "declin",
    "refus",
    "doesn't want",
    "does not want",
    "not allow",
    "disallow",
    "cancel",
    "not approve",
    "interrupted by user",
];

/// The beginnings of an error that is a refusal.
pub(in super::super) const REFUSALS: &[&str] =
    &["action rejected", "tool call rejected", "tool use rejected"];

/// The beginnings of an error that may be a refusal.
pub(in super::super) const REFUSAL_SUBJECTS: &[&str] = &[
    "the user ",
    "user ",
    "[operation cancelled]",
    "[request interrupted",
    "tool ",
    "the tool ",
];

/// Words of which such an error has one.
pub(in super::super) const REFUSING: &[&str] = &["user", "cancelled"];

/// Words of a short error that is a refusal, whatever it begins with.
pub(in super::super) const REFUSED_BY_USER: &[&str] = &[
    "rejected by user",
    "rejected by the user",
    "denied by user",
    "denied by the user",
];

/// Text before the reason that the person gave. The first of the table that the error has wins.
pub(in super::super) const REASON_MARKS: &[&str] = &[
    "the user said:",
    "user said:",
    "following feedback:",
    "feedback:",
    "reason for the rejection:",
    "following reason:",
    "Reason:",
    "reason:",
    "rejected:",
    "message:",
    "user's message:",
    "instructions:",
];

/// Text after the reason.
pub(in super::super) const REASON_END: &str = "\n\nNote: The user's next message";

/// The beginnings of the reasons that harnesses give where the person gave none.
pub(in super::super) const REASONS_OF_HARNESS: &[&str] = &["User did not allow", "User cancelled"];
