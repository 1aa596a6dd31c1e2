//! `loopstore eval compactions`

use std::path::PathBuf;

use loopstore_report::eval::{CompactionResult, CompactionsReport, STATE_KINDS, compactions};

use super::{chosen, imported, names};
use crate::error::CliError;
use crate::output::note;
use crate::table::{Column, TextTable};
use crate::{App, Done, text};

/// The compactions that transcripts record, beside ours in their place
///
/// Each compaction of which the transcript holds the text is set against the strategies: they get the
/// messages that the text stands for, and as many tokens as it has. The values needed are those that a later
/// tool call takes from these messages, and that nothing kept beside the text holds; what is stated of the
/// work is counted as `eval state` does. The transcripts are imported into memory; the database of --db is
/// not touched.
#[derive(clap::Args)]
pub struct Args {
    /// Transcripts: files and folders, as `import` takes them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A strategy to set beside them; may be repeated.
    #[arg(long = "strategy", value_name = "NAME", value_parser = names(), default_value = "digest")]
    strategies: Vec<String>,
}

/// Compares and prints.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let (store, sessions) = imported(&args.paths)?;
    let report = compactions(&store, &sessions, &chosen(&args.strategies))?;
    if report.compactions.is_empty() {
        let sessions = text::count(sessions.len() as u64, "session");
        let why = format!("{sessions} imported, and none records a compaction with its text");
        return Err(CliError::Failed(why.into()));
    }
    if app.json {
        app.out.json(&report)?;
    } else {
        app.out.table(&table(&report))?;
        app.out
            .text("\nWhat the texts state of the work until then, of all compactions")?;
        app.out.table(&state_table(&report))?;
    }
    if report.needed == 0 {
        note("note: nothing was needed after the compactions, so the figures say nothing");
    }
    Ok(Done::Well)
}

fn table(report: &CompactionsReport) -> TextTable {
    let mut columns = vec![
        Column::text("SESSION", 12),
        Column::text("COMPACTION", 12),
        Column::number("ORIGINALS"),
        Column::number("TOKENS"),
        Column::number("NEEDED"),
    ];
    let names = report.results.iter().map(|result| &result.candidate);
    columns.extend(names.map(|name| Column::number(name.to_uppercase())));
    let mut table = TextTable::new(columns);
    for one in &report.compactions {
        let tokens = one.results.first().map_or(0, |recorded| recorded.tokens);
        let mut row = vec![one.session_id.clone(), one.run_id.clone()];
        row.extend(figures(one.originals, tokens, one.needed, &one.results));
        table.row(row);
    }
    let originals = report.compactions.iter().map(|one| one.originals).sum();
    let tokens = report.results.first().map_or(0, |recorded| recorded.tokens);
    let count = text::count(report.compactions.len() as u64, "compaction");
    let mut row = vec!["all".to_owned(), count];
    row.extend(figures(originals, tokens, report.needed, &report.results));
    table.row(row);
    table
}

fn state_table(report: &CompactionsReport) -> TextTable {
    let mut columns = vec![Column::text("TEXT", 8)];
    columns.extend(STATE_KINDS.map(|kind| Column::number(kind.to_uppercase())));
    let mut table = TextTable::new(columns);
    let mut row = |name: &str, cell: &dyn Fn(&str) -> Option<String>| {
        let cells = STATE_KINDS
            .iter()
            .map(|kind| cell(kind).unwrap_or_else(|| "-".to_owned()));
        table.row(std::iter::once(name.to_owned()).chain(cells).collect());
    };
    if let Some(first) = report.results.first() {
        row("facts", &|kind| {
            Some(text::number(first.state.of(kind)?.facts as u64))
        });
    }
    for result in &report.results {
        let share = |kind: &str| {
            let count = result.state.of(kind)?;
            Some(text::share(count.stated as u64, count.facts as u64))
        };
        row(&result.candidate, &share);
    }
    table
}

fn figures(
    originals: u64,
    tokens: u64,
    needed: usize,
    results: &[CompactionResult],
) -> impl Iterator<Item = String> {
    let first = [
        text::number(originals),
        text::number(tokens),
        text::number(needed as u64),
    ];
    let kept = move |result: &CompactionResult| match needed {
        0 => "-".to_owned(),
        _ => text::share(result.kept as u64, needed as u64),
    };
    first.into_iter().chain(results.iter().map(kept))
}
