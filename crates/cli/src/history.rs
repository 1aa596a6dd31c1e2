//! `loopstore history`

use loopstore::extend::sqlite::Record;
use loopstore_terminal::runs::{edit_reason, flips, run_state};
use loopstore_terminal::short::ShortNames;
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
    let names = &mut ShortNames::new(&*store);
    app.out
        .table(&runs_table(&runs, session.is_none(), names))?;
    let more = [
        errors_table(&runs, names),
        reasons_table(&runs, names),
        flips_table(&runs, names),
    ];
    for table in more.into_iter().flatten() {
        app.out.text("")?;
        app.out.table(&table)?;
    }
    Ok(Done::Well)
}

fn runs_table(runs: &[Record], of_all: bool, names: &mut ShortNames<'_>) -> TextTable {
    let mut columns = vec![Column::id("RUN")];
    if of_all {
        columns.push(Column::id("SESSION"));
    }
    columns.extend([
        Column::id("LOOP"),
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
        let session = text("session_id");
        let mut cells = vec![names.run(&session, &text("run_id"))];
        if of_all {
            cells.push(names.session(&session));
        }
        cells.extend([
            names.loop_id(&session, &text("loop_id")),
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

/// Returns the short form of the id of a run.
fn run_name(run: &Record, names: &mut ShortNames<'_>) -> String {
    let text = |column| run.text(column).unwrap_or_default();
    names.run(&text("session_id"), &text("run_id"))
}

/// Returns the reasons why runs failed, were vetoed or fell back, if there are any.
fn errors_table(runs: &[Record], names: &mut ShortNames<'_>) -> Option<TextTable> {
    let mut table = TextTable::new(vec![Column::id("RUN"), Column::text("ERROR", 12)]);
    let mut found = false;
    for run in runs {
        if let Some(error) = run.text("error") {
            found = true;
            table.row(vec![run_name(run, names), error]);
        }
    }
    found.then_some(table)
}

/// Returns the reasons that were given for edits, if there are any.
fn reasons_table(runs: &[Record], names: &mut ShortNames<'_>) -> Option<TextTable> {
    let mut table = TextTable::new(vec![Column::id("RUN"), Column::text("REASON", 12)]);
    let mut found = false;
    for run in runs {
        if let Some(reason) = edit_reason(run) {
            found = true;
            table.row(vec![run_name(run, names), reason]);
        }
    }
    found.then_some(table)
}

/// Returns the undos and redos, newest first, if there are any.
fn flips_table(runs: &[Record], names: &mut ShortNames<'_>) -> Option<TextTable> {
    let mut table = TextTable::new(vec![
        Column::id("RUN"),
        Column::text("WHAT", 4),
        Column::id("LOOP"),
        Column::number("TURNS"),
        Column::text("WHEN", 19),
        Column::text("REASON", 8).optional(),
    ]);
    let mut found = false;
    for run in runs {
        let session = run.text("session_id").unwrap_or_default();
        for flip in flips(run) {
            found = true;
            table.row(vec![
                run_name(run, names),
                flip.kind,
                names.loop_id(&session, &flip.loop_id),
                text::number(flip.turns),
                text::time(&flip.at),
                flip.reason.unwrap_or_default(),
            ]);
        }
    }
    found.then_some(table)
}
