//! `loopstore sessions`

use loopstore::extend::sqlite::Record;

use super::error::CliError;
use super::table::{Column, TextTable};
use super::{App, Done, text};

/// List the sessions, most recently active first
#[derive(clap::Args)]
pub struct Args {}

/// Lists the sessions.
pub fn run(app: &mut App, _: &Args) -> Result<Done, CliError> {
    let rows = app.open_to_read()?.session_rows()?;
    if app.json {
        app.out.json(&rows)?;
    } else if rows.is_empty() {
        app.out
            .text("No sessions yet; `loopstore import` adds some.")?;
    } else {
        app.out.table(&table(&rows))?;
    }
    Ok(Done::Well)
}

fn table(rows: &[Record]) -> TextTable {
    let mut table = TextTable::new(vec![
        Column::text("SESSION", 18),
        Column::text("TITLE", 8).optional(),
        Column::number("LOOPS"),
        Column::number("TURNS"),
        Column::number("MESSAGES").optional(),
        Column::number("TOKENS"),
        Column::text("LAST ACTIVE", 19).optional(),
        Column::text("SOURCE", 6).optional(),
    ]);
    for row in rows {
        let number = |column| row.number(column).map(text::number).unwrap_or_default();
        table.row(vec![
            row.text("session_id").unwrap_or_default(),
            row.text("title").unwrap_or_default(),
            number("loops"),
            number("turns"),
            number("messages"),
            number("tokens"),
            row.text("last_active_at")
                .map(|time| text::time(&time))
                .unwrap_or_default(),
            row.text("source").unwrap_or_default(),
        ]);
    }
    table
}
