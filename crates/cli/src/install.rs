//! `loopstore install`

use loopstore_agents::install::{self, InstallRequest};
use loopstore_export::NativeAgent;
use loopstore_terminal::{App, CliError, Done};

use super::hook::agent;

/// Set up an agent to record its sessions and to be helped through its compactions
///
/// Writes a few lines into the agent's own configuration, so that it calls `loopstore hook`. What is to be
/// written is shown first and asked for; what was there before is kept, and --uninstall puts it back byte
/// for byte. The sessions go to --db [default: $XDG_DATA_HOME/loopstore/loopstore.db, else in
/// ~/.local/share], which is created if it is not there.
#[derive(clap::Args)]
pub struct InstallArgs {
    /// The agent.
    #[arg(value_parser = agent())]
    agent: NativeAgent,
    /// Set up the server of tools too, `loopstore mcp`: the agent can look up compacted messages.
    #[arg(long)]
    mcp: bool,
    /// The writing tools of the server that the agent may use: remember, compact, undo, drop, clear. None of them
    /// removes or changes a message.
    #[arg(long, value_name = "TOOL", value_delimiter = ',', requires = "mcp",
        value_parser = ["remember", "compact", "undo", "drop", "clear"])]
    allow: Vec<String>,
    /// Replace secrets (keys, tokens, passwords, private keys) with markers before anything is stored, and store no
    /// copies of the transcripts. Stays until the setup is removed.
    #[arg(long)]
    redact: bool,
    /// Only show what would be written.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Remove the setup.
    #[arg(long, conflicts_with_all = ["mcp", "allow", "redact"])]
    uninstall: bool,
}

/// Installs, or uninstalls.
pub fn run(app: &mut App, args: &InstallArgs) -> Result<Done, CliError> {
    if args.mcp && !cfg!(feature = "mcp") {
        let text = "this loopstore was built without `mcp`; build it with `--features mcp`: \
                    `cargo install --path crates/cli --features mcp`";
        return Err(CliError::Usage(text.into()));
    }
    let request = InstallRequest {
        agent: args.agent,
        mcp: args.mcp,
        allow: args.allow.clone(),
        redact: args.redact,
        dry_run: args.dry_run,
        yes: args.yes,
        uninstall: args.uninstall,
    };
    install::run(app, &request)
}
