//! The folders in which coding agents keep their sessions.

use std::env::var_os;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use loopstore_export::{NativeAgent, NativeSession};
use loopstore_terminal::CliError;
use loopstore_terminal::folders::{folder, set, with_home};
use unicode_normalization::UnicodeNormalization;

/// The variable with the folder in which pi keeps all sessions.
const PI_SESSIONS: &str = "PI_CODING_AGENT_SESSION_DIR";

/// Returns the path at which the agent looks for the file of a session.
///
/// # Errors
/// If neither the agent's variable nor HOME is set.
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
        NativeAgent::ClaudeCode => composed(root),
        _ => root,
    };
    Ok(std::path::absolute(root.join(place_in(&root, session)))?)
}

/// Returns the path below its folder where the agent looks. Claude Code's two kinds of programs name the folder of a
/// long project path differently: an existing folder is used, else the name of the installed program.
fn place_in(root: &Path, session: &NativeSession) -> PathBuf {
    let places = session.places();
    let is_there = |place: &&PathBuf| {
        place
            .parent()
            .is_some_and(|folder| root.join(folder).is_dir())
    };
    let known = places.iter().find(is_there);
    let usual = if is_script("claude") {
        places.last()
    } else {
        places.first()
    };
    known.or(usual).cloned().unwrap_or_else(|| session.place())
}

/// True if the program of this name is a script, not a native executable.
fn is_script(program: &str) -> bool {
    let path = var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    let Some(program) = found.into_iter().find(|file| file.is_file()) else {
        return false;
    };
    let mut start = [0; 2];
    let read = File::open(program).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && &start == b"#!"
}

/// Returns a path as Claude Code reads it, with letters and accents composed.
fn composed(path: PathBuf) -> PathBuf {
    match path.to_str() {
        Some(text) => text.nfc().collect::<String>().into(),
        None => path,
    }
}
