//! Where coding agents keep their sessions, as each of them finds it.

use std::env::var_os;
use std::path::PathBuf;

use loopstore::export::{NativeAgent, NativeSession};

use super::error::CliError;

/// The folder in which pi keeps all sessions, if it is to be another.
const PI_SESSIONS: &str = "PI_CODING_AGENT_SESSION_DIR";

/// Returns where the agent looks for the file of a session.
///
/// # Errors
/// If neither the agent's variable nor HOME says where its folder is.
pub fn file_of(session: &NativeSession) -> Result<PathBuf, CliError> {
    let agent = session.agent();
    if agent == NativeAgent::Pi
        && let Some(folder) = set(PI_SESSIONS)
    {
        return Ok(with_home(folder).join(session.file_name()));
    }
    let (variable, usual) = match agent {
        NativeAgent::ClaudeCode => ("CLAUDE_CONFIG_DIR", ".claude"),
        NativeAgent::Codex => ("CODEX_HOME", ".codex"),
        NativeAgent::Pi => ("PI_CODING_AGENT_DIR", ".pi/agent"),
        NativeAgent::OpenCode => ("XDG_DATA_HOME", ".local/share"),
    };
    let root = folder(variable, usual).ok_or_else(|| {
        let why = format!(
            "where {} keeps its sessions is not known: set HOME or {variable}, or name a file with -o",
            agent.as_str()
        );
        CliError::Failed(why.into())
    })?;
    let root = match agent {
        NativeAgent::OpenCode => root.join("opencode"),
        _ => root,
    };
    Ok(std::path::absolute(root.join(session.place()))?)
}

/// Returns the folder that a variable names, else the usual one in the home folder.
pub fn folder(variable: &str, usual: &str) -> Option<PathBuf> {
    let given = set(variable).map(with_home);
    given.or_else(|| Some(home()?.join(usual)))
}

/// Whether a variable names a folder.
pub fn is_set(variable: &str) -> bool {
    set(variable).is_some()
}

fn set(variable: &str) -> Option<PathBuf> {
    let value = var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

pub fn home() -> Option<PathBuf> {
    set("HOME")
}

/// Returns a path in which `~` stands for the home folder, as the agents read their variables.
fn with_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    }
}
