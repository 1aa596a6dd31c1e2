//! The texts that OpenCode itself writes into parts, and the columns of its databases. A new version of OpenCode is an
//! edit here.

/// Tools of OpenCode whose errors are its own texts. Tools of servers are named `SERVER_TOOL`, and a sub-agent may fail
/// with any text.
pub(super) const OWN_WORDS: [&str; 12] = [
    "bash",
    "codesearch",
    "edit",
    "glob",
    "grep",
    "list",
    "lsp",
    "patch",
    "read",
    "webfetch",
    "websearch",
    "write",
];
/// The beginning of the result of a call that a person refused with a reason.
pub(super) const REFUSED: &str =
    "The user rejected permission to use this specific tool call with the following feedback:";
/// The columns of a session that have another name in an export.
pub(super) const NAMES: [(&str, &str); 4] = [
    ("project_id", "projectID"),
    ("parent_id", "parentID"),
    ("workspace_id", "workspaceID"),
    ("share_url", "shareURL"),
];
/// Columns that contain JSON.
pub(super) const JSON: [&str; 5] = ["revert", "permission", "model", "summary_diffs", "metadata"];
/// The prefixes of the names of time columns.
pub(super) const TIME: &str = "time_";
