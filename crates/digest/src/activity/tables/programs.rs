//! Programs that agents run in a shell, and their flags.

/// Programs that neither build, test nor run anything of the work: they inspect, move and transfer files, set up the
/// shell, or are words of its syntax. `git` and the commands of its hosts are here for all but the commands of
/// [`CHANGING_GIT`] and [`CHANGING_HOSTS`].
pub(in super::super) const UTILITIES: &[&str] = &[
    "ls",
    "cat",
    "rg",
    "grep",
    "egrep",
    "fgrep",
    "ag",
    "find",
    "fd",
    "head",
    "tail",
    "sed",
    "nl",
    "less",
    "more",
    "bat",
    "wc",
    "pwd",
    "which",
    "whereis",
    "echo",
    "printf",
    "tree",
    "stat",
    "file",
    "env",
    "printenv",
    "jq",
    "yq",
    "sort",
    "uniq",
    "cut",
    "awk",
    "xargs",
    "test",
    "[",
    "[[",
    "true",
    "false",
    ":",
    "sleep",
    "date",
    "ps",
    "du",
    "df",
    "diff",
    "cmp",
    "readlink",
    "realpath",
    "basename",
    "dirname",
    "type",
    "tr",
    "column",
    "git",
    "gh",
    "rm",
    "mv",
    "cp",
    "mkdir",
    "rmdir",
    "touch",
    "chmod",
    "chown",
    "ln",
    "tee",
    "export",
    "source",
    ".",
    "set",
    "unset",
    "kill",
    "pkill",
    "curl",
    "wget",
    "apply_patch",
    "patch",
    "for",
    "done",
    "fi",
    "strings",
    "xxd",
    "popd",
    "id",
    "}",
];

/// Commands of the editors that some harnesses put into a shell.
pub(in super::super) const EDITOR_COMMANDS: &[&str] = &[
    "open",
    "create",
    "edit",
    "str_replace_editor",
    "goto",
    "scroll_down",
    "scroll_up",
    "search_file",
    "search_dir",
    "find_file",
    "submit",
    "wait",
    "exit",
];

/// Programs that show what they read, or a part of it. At the end of a pipe, they hide the exit code of the program
/// before them. A search hides none: what it shows was searched for.
pub(in super::super) const VIEWERS: &[&str] =
    &["tail", "head", "cat", "less", "more", "tee", "nl", "sed"];

/// Programs at the end of a pipe without which a command is the same command.
pub(in super::super) const TRIMMING_VIEWERS: &[&str] = &["tail", "head", "cat", "less"];

/// Words before a command that only say how it is run.
pub(in super::super) const WRAPPERS: &[&str] = &[
    "sudo", "time", "nice", "nohup", "env", "exec", "command", "do", "then", "else", "if", "while",
    "until", "!", "{", "(",
];

/// Wrappers with an argument, and maybe a flag before it.
pub(in super::super) const TIMEOUTS: &[&str] = &["timeout", "gtimeout"];

/// Wrappers of two words.
pub(in super::super) const TWO_WORD_WRAPPERS: &[(&str, &str)] = &[
    ("uv", "run"),
    ("poetry", "run"),
    ("pipenv", "run"),
    ("rye", "run"),
    ("pdm", "run"),
    ("bundle", "exec"),
    ("mise", "exec"),
    ("python", "-m"),
    ("python3", "-m"),
];

/// Wrappers of one word, unless a flag follows.
pub(in super::super) const PACKAGE_RUNNERS: &[&str] = &["npx", "bunx"];

/// Programs that run a script by its name after `run`.
pub(in super::super) const SCRIPT_RUNNERS: &[&str] =
    &["npm", "pnpm", "yarn", "bun", "deno", "mise", "task", "just"];

/// Programs whose first argument says what they do.
pub(in super::super) const WITH_COMMANDS: &[&str] = &[
    "cargo", "go", "dotnet", "mix", "swift", "zig", "docker", "make", "gradle", "gradlew", "mvn",
    "uv", "pip", "rake", "python", "python3", "node", "ruby", "bash", "sh", "tsx", "ts-node",
];

/// Flags that change only how much a program prints, or how fast it runs.
pub(in super::super) const PRINTING_FLAGS: &[&str] = &[
    "-v",
    "-vv",
    "-q",
    "-s",
    "-x",
    "--verbose",
    "--quiet",
    "--nocapture",
    "--",
    "-l",
    "--no-fail-fast",
    "--run",
];

/// The beginnings of other such flags.
pub(in super::super) const PRINTING_FLAG_STARTS: &[&str] = &["--color", "--tb", "-j"];

/// Flags that select which tests run, or of which part.
pub(in super::super) const SELECTING_FLAGS: &[&str] = &[
    "-k",
    "-m",
    "-t",
    "-g",
    "-p",
    "-run",
    "--grep",
    "--filter",
    "--testNamePattern",
    "--testPathPattern",
    "--test-name-pattern",
    "--lib",
    "--bin",
    "--bins",
    "--test",
    "--tests",
    "--doc",
    "--package",
    "--project",
    "--only",
];

/// Flags with which a program does nothing else.
pub(in super::super) const ASKING_FLAGS: &[&str] = &["--help", "--version"];

/// Git and the programs of its hosts.
pub(in super::super) const GIT_PROGRAMS: &[&str] = &["git", "gh", "glab"];

/// Flags of these programs that have an argument and come before the command.
pub(in super::super) const GIT_FLAGS: &[&str] = &["-c", "-C", "-R"];

/// Commands of git that make a commit and print its id.
pub(in super::super) const COMMITTING_GIT: &[&str] =
    &["git commit", "git cherry-pick", "git revert"];

/// Commands of git with an effect beyond the files.
pub(in super::super) const CHANGING_GIT: &[&str] = &[
    "commit",
    "push",
    "merge",
    "rebase",
    "cherry-pick",
    "revert",
    "am",
];

/// Commands of its hosts with an effect.
pub(in super::super) const CHANGING_HOSTS: &[&str] = &[
    "create", "merge", "edit", "close", "reopen", "comment", "review", "ready",
];
