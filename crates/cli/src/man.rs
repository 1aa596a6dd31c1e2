//! `loopstore man`

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use loopstore_terminal::{App, CliError, Done};

use super::Cli;

/// Write the manual pages, one for each command
///
/// `man -l man/loopstore.1` shows one; in `share/man/man1` below a folder of MANPATH they are found by
/// name. Without a folder, prints the page of the program itself.
#[derive(clap::Args)]
pub struct ManArgs {
    /// The folder, created if it does not exist.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Writes the pages.
pub fn run(app: &mut App, args: &ManArgs) -> Result<Done, CliError> {
    let program = Cli::command().disable_help_subcommand(true);
    let Some(folder) = &args.folder else {
        // Rendered in memory first, since a closed pipe is not an error of the page.
        let mut page = Vec::new();
        clap_mangen::Man::new(program).render(&mut page)?;
        app.out.bytes(&page)?;
        return Ok(Done::Well);
    };
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(program.clone(), folder)?;
    let named = |command: &Command| format!("loopstore-{}.1", command.get_name());
    let commands = program.get_subcommands().map(named);
    let pages: Vec<String> = ["loopstore.1".to_owned()]
        .into_iter()
        .chain(commands)
        .map(|name| folder.join(name).display().to_string())
        .collect();
    app.print(&serde_json::json!({ "written": pages }), || {
        pages.join("\n")
    })?;
    Ok(Done::Well)
}
