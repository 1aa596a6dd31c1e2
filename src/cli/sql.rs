//! `loopstore sql`

use std::time::Duration;

use loopstore::Json;
use loopstore::store::sqlite::{QueryLimits, QueryRows};

use super::error::CliError;
use super::output::{note, width};
use super::table::{Column, Table};
use super::{App, Done, text};

/// Ask a question in SQL; nothing can be changed
///
/// The views `v_sessions`, `v_loops`, `v_turns`, `v_messages`, `v_tool_calls`, `v_chain`,
/// `v_compaction_runs`, `v_compaction_blocks`, `v_coverage`, `v_context` and `v_usage` are made for
/// this.
#[derive(clap::Args)]
pub struct Args {
    /// One SELECT; it may begin with a comment.
    #[arg(allow_hyphen_values = true)]
    query: String,
    /// Give no more rows than this; more are told of on stderr.
    #[arg(long, value_name = "N")]
    max_rows: Option<usize>,
    /// Stop a query that takes longer than this; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// Runs the query and prints its rows.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let limits = QueryLimits {
        rows: args.max_rows,
        time: (args.timeout > 0).then(|| Duration::from_secs(args.timeout)),
    };
    let rows = app.open_to_read()?.query_within(&args.query, limits)?;
    if rows.is_cut {
        note("there are more rows; --max-rows gives more of them");
    }
    if app.json {
        app.out.json(&rows.records())?;
    } else {
        app.out.text(&table(&rows).lines(width()))?;
        app.out
            .text(&format!("({})", text::count(rows.rows.len() as u64, "row")))?;
    }
    Ok(Done::Well)
}

/// Returns the rows as a table; a column of nothing but numbers stands to the right.
pub fn table(rows: &QueryRows) -> Table {
    let column = |(at, name): (usize, &String)| {
        let mut cells = rows.rows.iter().map(|row| &row[at]);
        let is_number = !rows.rows.is_empty() && cells.all(|cell| cell.read::<f64>().is_ok());
        if is_number {
            Column::number(name)
        } else {
            Column::text(name, 8)
        }
    };
    let mut table = Table::new(rows.columns.iter().enumerate().map(column).collect());
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
