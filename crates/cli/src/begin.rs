//! `loopstore` without a command

use loopstore_agents::install::record;
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::{App, CliError, Done, select, text};

use super::sessions;

/// Lists the sessions, or prints how to start if there is no database.
pub fn run(app: &mut App) -> Result<Done, CliError> {
    let is_missing = app.address().is_none() && app.db.symlink_metadata().is_err();
    if is_missing && !app.json {
        let elsewhere = record::database().filter(|database| *database != app.place());
        let recorded = elsewhere.map_or(String::new(), |database| {
            format!(
                "Agents record into {}: name it with --db, or LOOPSTORE_DB.\n",
                text::line(&database)
            )
        });
        app.out.text(&format!(
            "There is no database at {} yet. To start:\n\n  \
               loopstore init           find and import the transcripts of agents on this machine\n  \
               loopstore demo           walk through a generated session\n  \
               loopstore import PATH…   import transcripts, such as ~/.claude/projects\n\n\
             {recorded}`loopstore --help` lists all commands; --db names another database.",
            app.place()
        ))?;
        return Ok(Done::Well);
    }
    let done = sessions::run(app, &sessions::SessionsArgs::default())?;
    if !app.json {
        let read = newest(app).map_or_else(String::new, |id| {
            let command = app.command_line(&["read".to_owned(), id]);
            format!("`{command}` reads the newest; ")
        });
        app.out
            .text(&format!("\n{read}`loopstore --help` lists all commands."))?;
    }
    Ok(done)
}

/// Returns the short form of the id of the newest session, if there is one.
fn newest(app: &App) -> Option<String> {
    let store = app.open_to_read().ok()?;
    let session = select::session(&*store, "@").ok()?;
    Some(ShortNames::new(&*store).session(session.session_id.as_str()))
}
