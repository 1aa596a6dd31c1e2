//! `loopstore eval compactions`

use std::path::PathBuf;

use crate::{
    CompactionResult, CompactionsReport, ForgottenValue, RepeatedCall, RepeatedKind, STATE_KINDS,
    compactions,
};
use loopstore_report::write_compactions;
use loopstore_terminal::output::{check_target, note, write_whole_file};
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, text};

use super::{chosen, imported, names};

/// Measure recorded compactions: lost values, repeated calls, and the strategies of loopstore in comparison
///
/// Each compaction with a text in the transcript is compared with the strategies: they get the messages that the text
/// replaces, and the number of its tokens. A value is needed if a later tool call takes it from these messages and
/// the messages kept beside the text do not contain it. Facts of the work are counted as by `eval state`.
/// `with-handback` is the recorded text with the handback of loopstore, of at most 1,000 tokens. A call is repeated
/// if the agent, before the next compaction, again read a file or ran a command although nothing had changed. The
/// transcripts are imported into memory; the database of --db is not touched.
#[derive(clap::Args)]
pub struct EvalCompactionsArgs {
    /// The transcripts: files and folders, as for `import`.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A strategy to compare; may be repeated.
    #[arg(long = "strategy", value_name = "NAME", value_parser = names(), default_value = "digest")]
    strategies: Vec<String>,
    /// Also write a page that shows the lost values, the repeated calls and the handback of each compaction.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace an existing page.
    #[arg(long, requires = "html")]
    force: bool,
}

/// The maximum number of lines of a list; the page and --json have more.
const MOST_LINES: usize = 10;

/// Compares and prints.
pub fn run(app: &mut App, args: &EvalCompactionsArgs) -> Result<Done, CliError> {
    if let Some(page) = &args.html {
        check_target(app, page, args.force)?;
    }
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
        print(app, &report)?;
    }
    if let Some(page) = &args.html {
        let mut bytes = Vec::new();
        write_compactions(&report, &mut bytes)?;
        write_whole_file(page, &bytes)?;
        note(&format!(
            "wrote {}",
            text::line(&page.display().to_string())
        ));
    }
    if report.needed == 0 {
        note("note: nothing was needed after the compactions, so the figures say nothing");
    }
    Ok(Done::Well)
}

fn print(app: &mut App, report: &CompactionsReport) -> Result<(), CliError> {
    app.out.table(&table(report))?;
    app.out
        .text("\nWhat the texts state of the work until then, of all compactions")?;
    app.out.table(&state_table(report))?;
    let forgotten: Vec<&ForgottenValue> = report
        .compactions
        .iter()
        .flat_map(|one| &one.forgotten)
        .collect();
    if !forgotten.is_empty() {
        let count = text::count(forgotten.len() as u64, "value");
        app.out
            .text(&format!("\nNeeded afterwards, and gone: {count}"))?;
        let mut table = TextTable::new(vec![
            Column::text("HANDED BACK", 11),
            Column::text("VALUE", 60),
        ]);
        for value in forgotten.iter().take(MOST_LINES) {
            let back = if value.is_handed_back { "yes" } else { "no" };
            table.row(vec![back.to_owned(), value.value.clone()]);
        }
        app.out.table(&table)?;
    }
    let mut again: Vec<&RepeatedCall> = report
        .compactions
        .iter()
        .flat_map(|one| &one.again)
        .collect();
    if !again.is_empty() {
        let count = |kind| again.iter().filter(|call| call.kind == kind).count() as u64;
        let files = text::count(count(RepeatedKind::Read), "file");
        let commands = text::count(count(RepeatedKind::Command), "command");
        let tokens = text::number(again.iter().map(|call| call.tokens).sum::<u64>());
        app.out.text(&format!(
            "\nDone again though nothing had changed: {files} read, {commands} run, {tokens} tokens"
        ))?;
        again.sort_by_key(|call| std::cmp::Reverse(call.tokens));
        let mut table = TextTable::new(vec![
            Column::text("HOW", 4),
            Column::number("TOKENS"),
            Column::text("WHAT", 60),
        ]);
        for call in again.iter().take(MOST_LINES) {
            let how = match call.kind {
                RepeatedKind::Read => "read",
                RepeatedKind::Command => "run",
            };
            table.row(vec![
                how.to_owned(),
                text::number(call.tokens),
                call.what.clone(),
            ]);
        }
        app.out.table(&table)?;
    }
    Ok(())
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
