//! `loopstore stats`

mod usage;

use std::path::PathBuf;

use loopstore::extend::sqlite::Stats;
use loopstore_agents::doctor;
use loopstore_report::Prices;
use loopstore_terminal::amount::{self, Edge};
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::{App, CliError, Done, text};
use serde::Serialize;

use self::usage::{Group, UsageFilter};

/// Print the number of rows in the database and the size of its files, or with --by what models used
///
/// With --by, the tokens that providers reported, with reads and writes of their caches, and their cost. An answer that
/// several transcripts contain, as after a fork or a resume, counts once. Days are those of UTC.
#[derive(clap::Args)]
pub struct StatsArgs {
    /// Sum the usage by day, project, model or session.
    #[arg(long, value_enum)]
    by: Option<Group>,
    /// Only answers at or after this time, such as 2026-01-31, yesterday or 7d (seven days ago).
    #[arg(long, value_name = "TIME", requires = "by")]
    since: Option<String>,
    /// Only answers at or before this time; a date includes the whole day.
    #[arg(long, value_name = "TIME", requires = "by")]
    until: Option<String>,
    /// Only sessions whose project folder has this in its path, in upper or lower case.
    #[arg(long, value_name = "TEXT", requires = "by")]
    project: Option<String>,
    /// A file of prices per million tokens: {"MODEL": {"input", "output", "cache_read", "cache_write"}}, or these as
    /// "models" beside "currency" and "date". Without a price the cost in the transcript counts.
    #[arg(long, value_name = "FILE", requires = "by", value_hint = clap::ValueHint::FilePath)]
    prices: Option<PathBuf>,
}

#[derive(Serialize)]
struct StatsJson {
    path: String,
    #[serde(flatten)]
    stats: Stats,
}

/// Prints the figures.
pub fn run(app: &mut App, args: &StatsArgs) -> Result<Done, CliError> {
    if let Some(by) = args.by {
        return print_usage(app, args, by);
    }
    let store = app.open_to_read()?;
    let stats = StatsJson {
        path: app.place(),
        stats: store.stats()?,
    };
    app.print(&stats, || lines(&stats))?;
    doctor::warn(app, &*store);
    Ok(Done::Well)
}

fn print_usage(app: &mut App, args: &StatsArgs, by: Group) -> Result<Done, CliError> {
    let time = |given: &Option<String>, edge| {
        let time = given
            .as_deref()
            .map(|given| amount::parse_time(given, edge));
        let time = time.transpose().map_err(CliError::Usage)?;
        // A parsed time always has milliseconds.
        Ok::<_, CliError>(time.map(|time| time.millis().unwrap_or_default()))
    };
    let filter = UsageFilter {
        since: time(&args.since, Edge::Start)?,
        until: time(&args.until, Edge::End)?,
        project: args.project.clone(),
    };
    let prices = args.prices.as_deref().map(super::report::read_prices);
    let prices: Option<Prices> = prices.transpose()?;
    let store = app.open_to_read()?;
    let report = usage::usage(&*store, by, &filter, prices.as_ref())?;
    if app.json {
        app.out.json(&report)?;
        return Ok(Done::Well);
    }
    let (table, notes) = usage::shown(&report, &mut ShortNames::new(&*store));
    app.out.table(&table)?;
    app.out.text("")?;
    for line in notes {
        app.out.text(&line)?;
    }
    Ok(Done::Well)
}

fn lines(database: &StatsJson) -> String {
    let stats = &database.stats;
    let size = |bytes: i64| text::bytes(bytes.unsigned_abs());
    let lines = [
        ("database", text::line(&database.path)),
        ("sessions", text::number(stats.sessions)),
        ("loops", text::number(stats.loops)),
        ("turns", text::number(stats.turns)),
        ("messages", text::number(stats.messages)),
        ("extensions", text::number(stats.extensions)),
        ("tokens", text::number(stats.tokens)),
        ("message size", size(stats.bytes)),
        ("compaction runs", text::number(stats.runs)),
        ("blocks", text::number(stats.blocks)),
        ("blobs", text::number(stats.blobs)),
        ("blob size", size(stats.blob_bytes)),
        ("file size", size(stats.file_bytes)),
        ("log size", size(stats.wal_bytes)),
    ];
    let line = |(name, value): &(&str, String)| format!("{name:<16} {value}");
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}
