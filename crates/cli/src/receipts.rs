//! `loopstore receipts`

use loopstore::extend::sqlite::Record;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, text};

/// List what was removed: redactions, erasures, prunings and archivings, oldest first
#[derive(clap::Args)]
pub struct ReceiptsArgs {
    /// The whole id of a session, also of one that was erased [default: all].
    session: Option<String>,
}

/// Lists the receipts.
pub fn run(app: &mut App, args: &ReceiptsArgs) -> Result<Done, CliError> {
    let mut rows = app.open_to_read()?.receipt_rows()?;
    if let Some(session) = &args.session {
        rows.retain(|row| row.text("session_id").as_ref() == Some(session));
    }
    if app.json {
        app.out.json(&rows)?;
    } else if rows.is_empty() {
        app.out.text("Nothing was removed.")?;
    } else {
        app.out.table(&table(&rows))?;
    }
    Ok(Done::Well)
}

fn table(rows: &[Record]) -> TextTable {
    let mut table = TextTable::new(vec![
        Column::number("RECEIPT"),
        Column::id("SESSION"),
        Column::text("KIND", 7),
        Column::text("CLOSED", 19),
        Column::number("MESSAGES").optional(),
        Column::number("FILES").optional(),
        Column::text("REASON", 8).optional(),
    ]);
    for row in rows {
        let text = |column| row.text(column).unwrap_or_default();
        let number = |column| row.number(column).map(text::number).unwrap_or_default();
        let closed = row.text("closed_at");
        table.row(vec![
            number("receipt"),
            text("session_id"),
            text("kind"),
            closed.map_or_else(|| "still open".into(), |time| text::time(&time)),
            number("messages"),
            number("sources"),
            text("reason"),
        ]);
    }
    table
}
