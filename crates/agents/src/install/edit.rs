//! The changes to the files of each agent, and their removal.

use std::path::PathBuf;

use loopstore_export::NativeAgent;
use loopstore_terminal::{CliError, folders};
use serde::{Deserialize, Serialize};

use super::setup::Setup;
use super::{json, scripts, toml};

/// The reason that a file cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file does not parse.
    #[error("it cannot be read: {0}")]
    Syntax(String),
    /// A part of the file does not have the form that the agent reads.
    #[error("{0} is not what the agent reads there")]
    Shape(&'static str),
    /// A file with this name exists that loopstore did not write.
    #[error("it is not from `loopstore install`; move it away first")]
    Foreign,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// Hooks in Claude Code's settings.
    ClaudeHooks,
    /// The server of tools in Claude Code's list.
    ClaudeServer,
    /// Hooks, notice and server in Codex's configuration.
    Codex,
    /// The extension of pi, a file of loopstore.
    PiExtension,
    /// The plugin of OpenCode, a file of loopstore.
    OpenCodePlugin,
    /// The server of tools in OpenCode's list.
    OpenCodeServer,
}

impl Edit {
    /// True if the whole file belongs to loopstore.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::PiExtension | Self::OpenCodePlugin)
    }

    /// Returns the file with the entries of loopstore. Existing entries are replaced.
    pub fn add(self, text: Option<&str>, setup: &Setup) -> Result<String, EditError> {
        let bare = match (self.is_whole(), text) {
            (true, Some(text)) if !text.contains(scripts::MARK) => return Err(EditError::Foreign),
            (_, Some(text)) => self.remove(text)?,
            (_, None) => String::new(),
        };
        let server = setup.server().unwrap_or_default();
        match self {
            Self::ClaudeHooks => json::add_hooks(&bare, setup),
            Self::ClaudeServer => json::add_claude_server(&bare, &server),
            Self::Codex => toml::add(&bare, setup),
            Self::PiExtension => Ok(scripts::pi(setup)),
            Self::OpenCodePlugin => Ok(scripts::opencode(setup)),
            Self::OpenCodeServer => json::add_opencode_server(&bare, &server),
        }
    }

    /// Returns the file without the entries of loopstore; a file without any is returned as it is.
    pub fn remove(self, text: &str) -> Result<String, EditError> {
        match self {
            Self::ClaudeHooks => json::remove_hooks(text),
            Self::ClaudeServer => json::remove_server(text, "mcpServers"),
            Self::Codex => toml::remove(text),
            Self::OpenCodeServer => json::remove_server(text, "mcp"),
            Self::PiExtension | Self::OpenCodePlugin => Ok(String::new()),
        }
    }
}

/// A file that is changed.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file.
    pub path: PathBuf,
    /// The kind of change.
    pub edit: Edit,
}

/// Returns the files of an agent to change, with or without the server of tools.
pub fn targets(agent: NativeAgent, with_server: bool) -> Result<Vec<Target>, CliError> {
    let root = root(agent)?;
    let one = |path: PathBuf, edit| Target { path, edit };
    Ok(match agent {
        NativeAgent::ClaudeCode => {
            let mut targets = vec![one(root.join("settings.json"), Edit::ClaudeHooks)];
            if with_server {
                targets.push(one(claude_list(root)?, Edit::ClaudeServer));
            }
            targets
        }
        NativeAgent::Codex => vec![one(root.join("config.toml"), Edit::Codex)],
        NativeAgent::Pi => vec![one(root.join("extensions/loopstore.ts"), Edit::PiExtension)],
        NativeAgent::OpenCode => {
            let mut targets = vec![one(root.join("plugin/loopstore.js"), Edit::OpenCodePlugin)];
            if with_server {
                let with_comments = root.join("opencode.jsonc");
                let path = match with_comments.exists() {
                    true => with_comments,
                    false => root.join("opencode.json"),
                };
                targets.push(one(path, Edit::OpenCodeServer));
            }
            targets
        }
    })
}

/// Returns the folder in which an agent keeps its configuration.
pub fn root(agent: NativeAgent) -> Result<PathBuf, CliError> {
    let (variable, usual) = match agent {
        NativeAgent::ClaudeCode => ("CLAUDE_CONFIG_DIR", ".claude"),
        NativeAgent::Codex => ("CODEX_HOME", ".codex"),
        NativeAgent::Pi => ("PI_CODING_AGENT_DIR", ".pi/agent"),
        NativeAgent::OpenCode => ("XDG_CONFIG_HOME", ".config"),
    };
    let root = folders::folder(variable, usual).ok_or_else(|| unknown(agent, variable))?;
    let root = match agent {
        NativeAgent::OpenCode => root.join("opencode"),
        _ => root,
    };
    Ok(std::path::absolute(root)?)
}

/// Returns the path of Claude Code's list of servers, which is next to its folder, unless a variable names the folder.
fn claude_list(root: PathBuf) -> Result<PathBuf, CliError> {
    if folders::is_set("CLAUDE_CONFIG_DIR") {
        return Ok(root.join(".claude.json"));
    }
    let home =
        folders::home().ok_or_else(|| unknown(NativeAgent::ClaudeCode, "CLAUDE_CONFIG_DIR"))?;
    Ok(std::path::absolute(home.join(".claude.json"))?)
}

fn unknown(agent: NativeAgent, variable: &str) -> CliError {
    let agent = agent.as_str();
    CliError::Failed(
        format!("where {agent} keeps its configuration is not known: set HOME or {variable}")
            .into(),
    )
}
