//! `loopstore stats`

use loopstore::extend::sqlite::Stats;
use loopstore_terminal::{App, CliError, Done, text};
use serde::Serialize;

/// Print the number of rows in the database, and the size of its files
#[derive(clap::Args)]
pub struct StatsArgs {}

#[derive(Serialize)]
struct StatsJson {
    path: String,
    #[serde(flatten)]
    stats: Stats,
}

/// Prints the figures.
pub fn run(app: &mut App, _: &StatsArgs) -> Result<Done, CliError> {
    let stats = StatsJson {
        path: app.place(),
        stats: app.open_to_read()?.stats()?,
    };
    app.print(&stats, || lines(&stats))?;
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
