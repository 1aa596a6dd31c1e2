//! `loopstore sql`

use std::time::Duration;

use loopstore::Json;
use loopstore::extend::sqlite::{QueryLimits, QueryRows};
use loopstore_terminal::output::note;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, amount, nearest, text, with_causes};

/// The names of the views for the help.
const VIEWS: [&str; 19] = [
    "v_sessions",
    "v_loops",
    "v_turns",
    "v_messages",
    "v_tool_calls",
    "v_file_changes",
    "v_commits",
    "v_chain",
    "v_compaction_runs",
    "v_compaction_events",
    "v_compaction_blocks",
    "v_edits",
    "v_pins",
    "v_coverage",
    "v_context",
    "v_usage",
    "v_manifests",
    "v_session_tree",
    "v_receipts",
];

/// Query the database in SQL, read-only
///
/// Made for this are the views `v_sessions`, `v_loops`, `v_turns`, `v_messages`, `v_tool_calls`, `v_file_changes`,
/// `v_commits`, `v_chain`, `v_compaction_runs`, `v_compaction_events`, `v_compaction_blocks`, `v_edits`, `v_pins`,
/// `v_coverage`, `v_context`, `v_usage`, `v_manifests`, `v_session_tree` and `v_receipts`.
#[derive(clap::Args)]
pub struct SqlArgs {
    /// One SELECT; it may begin with a comment.
    #[arg(allow_hyphen_values = true)]
    query: String,
    /// Print at most this many rows; a note on stderr says if there are more.
    #[arg(long, value_name = "N")]
    max_rows: Option<usize>,
    /// Cancel a query that takes longer than this; 0 means never.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = amount::seconds)]
    timeout: u64,
}

/// Runs the query and prints its rows.
pub fn run(app: &mut App, args: &SqlArgs) -> Result<Done, CliError> {
    if args.query.trim_start().starts_with(['.', '\\']) {
        let views = VIEWS.join(", ");
        return Err(CliError::Usage(format!(
            "`{}` is a command of another shell; what is asked here is one SELECT, best of these views: {views}",
            text::line(args.query.trim())
        )));
    }
    let limits = QueryLimits {
        rows: args.max_rows,
        time: (args.timeout > 0).then(|| Duration::from_secs(args.timeout)),
    };
    let store = app.open_to_read()?;
    let rows = store.query_within(&args.query, limits);
    let rows = rows.map_err(|error| with_near_view(error.into()))?;
    if rows.is_cut {
        note("note: there are more rows; raise --max-rows to see them");
    }
    if app.json {
        app.out.json(&rows.records())?;
    } else {
        app.out.table(&table(&rows))?;
        app.out
            .text(&format!("({})", text::count(rows.rows.len() as u64, "row")))?;
    }
    Ok(Done::Well)
}

/// Adds views with similar names to an error about an unknown table.
fn with_near_view(error: CliError) -> CliError {
    let CliError::Failed(cause) = error else {
        return error;
    };
    let text = with_causes(&*cause);
    let name = |before: &str| Some(text.split_once(before)?.1);
    let name = name("no such table: ")
        .or_else(|| name("relation \""))
        .unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = &name[..name.find(|c| !is_name(c)).unwrap_or(name.len())];
    match nearest::question(&nearest::nearest(name, &VIEWS)) {
        Some(question) => CliError::Failed(format!("{text}; {question}").into()),
        None => CliError::Failed(cause),
    }
}

/// Returns the rows as a table; a column that contains only numbers is aligned right.
pub fn table(rows: &QueryRows) -> TextTable {
    let column = |(at, name): (usize, &String)| {
        let mut cells = rows.rows.iter().map(|row| &row[at]);
        let is_number = !rows.rows.is_empty() && cells.all(|cell| cell.read::<f64>().is_ok());
        if is_number {
            Column::number(name)
        } else {
            Column::text(name, 8)
        }
    };
    let mut table = TextTable::new(rows.columns.iter().enumerate().map(column).collect());
    for row in &rows.rows {
        table.row(row.iter().map(cell).collect());
    }
    table
}

fn cell(value: &Json) -> String {
    if value.is_null() {
        return "NULL".into();
    }
    let text = value.read::<String>();
    text.unwrap_or_else(|_| value.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_views_are_those_of_a_fresh_database() {
        let store = loopstore::SqliteStore::in_memory().unwrap();
        let sql =
            "SELECT name FROM sqlite_master WHERE type = 'view' AND name LIKE 'v!_%' ESCAPE '!'
            ORDER BY rowid";
        let rows = store.query(sql).unwrap().records();
        let names: Vec<String> = rows.iter().filter_map(|row| row.text("name")).collect();
        assert_eq!(names, VIEWS);
    }
}
