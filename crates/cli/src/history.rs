//! `loopstore history`

use loopstore::extend::sqlite::Record;
use loopstore_terminal::runs::{edit_reason, flips, run_state};
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, select, text};

/// List the compactions and edits, newest first, with every undo and redo
///
/// An edit has the trigger `edit`; `loopstore show` and `loopstore diff` list what it changed.
#[derive(clap::Args)]
pub struct HistoryArgs {
    /// The session: its id or a unique prefix [default: all].
    session: Option<String>,
}

/// Lists the runs.
pub fn run(app: &mut App, args: &HistoryArgs) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session_id(&*store, args.session.as_deref())?;
    let runs = store.run_rows(session.as_ref())?;
    if app.json {
        app.out.json(&runs)?;
        return Ok(Done::Well);
    }
    if runs.is_empty() {
        app.out
            .text("No compactions or edits yet; `loopstore compact` makes a compaction.")?;
        return Ok(Done::Well);
    }
    app.out.table(&runs_table(&runs, session.is_none()))?;
    let more = [
        errors_table(&runs),
        reasons_table(&runs),
        flips_table(&runs),
    ];
    for table in more.into_iter().flatten() {
        app.out.text("")?;
        app.out.table(&table)?;
    }
    Ok(Done::Well)
}

fn runs_table(runs: &[Record], of_all: bool) -> TextTable {
    let mut columns = vec![Column::id("RUN", 18)];
    if of_all {
        columns.push(Column::id("SESSION", 10));
    }
    columns.extend([
        Column::id("LOOP", 8),
        Column::text("STARTED", 19).optional(),
        Column::text("TRIGGER", 8).optional(),
        Column::text("STRATEGY", 8).optional(),
        Column::text("OUTCOME", 9),
        Column::text("STATE", 8),
        Column::number("BEFORE"),
        Column::number("AFTER"),
    ]);
    let mut table = TextTable::new(columns);
    for run in runs {
        let text = |column| run.text(column).unwrap_or_default();
        let number = |column| run.number(column).map(text::number).unwrap_or_default();
        // A run without a result has no size after it.
        let after = match text("outcome").as_str() {
            "failed" => String::new(),
            _ => number("tokens_after"),
        };
        let mut cells = vec![text("run_id")];
        if of_all {
            cells.push(text("session_id"));
        }
        cells.extend([
            text("loop_id"),
            text::time(&text("started_at")),
            text("trigger"),
            text("strategy"),
            text("outcome"),
            run_state(run).to_owned(),
            number("tokens_before"),
            after,
        ]);
        table.row(cells);
    }
    table
}

/// Returns the reasons why runs failed, were vetoed or fell back, if there are any.
fn errors_table(runs: &[Record]) -> Option<TextTable> {
    let mut table = TextTable::new(vec![Column::id("RUN", 18), Column::text("ERROR", 12)]);
    let mut found = false;
    for run in runs {
        if let Some(error) = run.text("error") {
            found = true;
            table.row(vec![run.text("run_id").unwrap_or_default(), error]);
        }
    }
    found.then_some(table)
}

/// Returns the reasons that were given for edits, if there are any.
fn reasons_table(runs: &[Record]) -> Option<TextTable> {
    let mut table = TextTable::new(vec![Column::id("RUN", 18), Column::text("REASON", 12)]);
    let mut found = false;
    for run in runs {
        if let Some(reason) = edit_reason(run) {
            found = true;
            table.row(vec![run.text("run_id").unwrap_or_default(), reason]);
        }
    }
    found.then_some(table)
}

/// Returns the undos and redos, newest first, if there are any.
fn flips_table(runs: &[Record]) -> Option<TextTable> {
    let mut table = TextTable::new(vec![
        Column::id("RUN", 18),
        Column::text("WHAT", 4),
        Column::id("LOOP", 8),
        Column::number("TURNS"),
        Column::text("WHEN", 19),
        Column::text("REASON", 8).optional(),
    ]);
    let mut found = false;
    for run in runs {
        for flip in flips(run) {
            found = true;
            table.row(vec![
                run.text("run_id").unwrap_or_default(),
                flip.kind,
                flip.loop_id,
                text::number(flip.turns),
                text::time(&flip.at),
                flip.reason.unwrap_or_default(),
            ]);
        }
    }
    found.then_some(table)
}
