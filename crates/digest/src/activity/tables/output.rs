//! Marks of compilers, test runners and progress bars.

/// Marks of a line that counts no errors, in lower case, as those of the next four tables.
pub(in super::super) const NO_ERRORS: &[&str] = &[
    "0 error",
    "0 fail",
    "no error",
    "without error",
    "error: (none)",
];

/// The beginnings of a line that reports an error.
pub(in super::super) const ERROR_STARTS: &[&str] = &["fatal:", "panic:", "e   "];

/// The beginnings of a line that reports a failed test.
pub(in super::super) const FAILED_STARTS: &[&str] =
    &["fail ", "fail:", "--- fail", "failed", "not ok ", "assert"];

/// Words of a line that reports a problem less surely.
pub(in super::super) const PROBLEMS: &[&str] = &[
    "no such file",
    "not found",
    "permission denied",
    "command failed",
    "cannot ",
    "can't ",
    "could not",
    "undefined",
    "unmatched",
    "syntax error",
    "invalid ",
    "unknown ",
    "unable to",
    "failed to",
];

/// Whole words that hint at an error.
pub(in super::super) const ERROR_WORDS: &[&str] = &["error", "errors", "failed"];

/// Things that the summary of a run counts.
pub(in super::super) const COUNTED: &[&str] = &[
    "passed",
    "passing",
    "failed",
    "failing",
    "failures",
    "failure",
    "error",
    "errors",
    "warning",
    "warnings",
    "issue",
    "issues",
    "problem",
    "problems",
    "test",
    "tests",
    "skipped",
    "examples",
    "assertions",
    "checks",
    "suites",
    "specs",
    "vulnerabilities",
    "pass",
    "fail",
    "files",
];

/// Counted things that other lines count too.
pub(in super::super) const GENERIC: &[&str] = &[
    "test", "tests", "files", "examples", "checks", "suites", "specs",
];

/// Counted things that passed.
pub(in super::super) const PASSES: &[&str] = &["passed", "passing", "pass"];

/// Counted things that failed.
pub(in super::super) const FAILURES: &[&str] =
    &["failed", "failing", "failures", "failure", "fail"];

/// Counted things that a build reports if it failed.
pub(in super::super) const BUILD_ERRORS: &[&str] = &["error", "errors", "issue", "issues"];

/// Separators between a line number and its line. The first that matches wins.
pub(in super::super) const NUMBER_MARKS: &[&str] = &[
    "→", "\t", ":", "-", " | ", " |", "| ", "|", " │ ", " │", "│",
];

/// Parts of the first word of a progress line, without the letter that may be a capital.
pub(in super::super) const PROGRESS: &[&str] = &[
    "ownload", "etch", "eceiv", "esolv", "xtract", "pload", "rogress", "ompress", "ounting",
    "nstall", "uilding", "oading",
];

/// Characters of a progress bar.
pub(in super::super) const BARS: &[char] = &['█', '▉', '▓', '▒', '░', '━', '╸', '#', '=', '>', '.'];
