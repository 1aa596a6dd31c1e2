//! `loopstore eval cost`

use std::path::PathBuf;

use loopstore_terminal::output::note;
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, amount, text};

use super::imported;
use crate::{CostResult, TokenPrices, cost};

/// Measure what the model calls of a session cost under several policies: cached and written tokens, and the whole bill
/// of each compaction
///
/// Each session is replayed call by call. What a context has in common with the one before is read from the provider's
/// cache, and the rest is written to it. The bill of a compaction is the call that makes its text, the cache that it
/// breaks, and the files that the next five turns need and that it hid. The policies are `never` (nothing is
/// shortened), `headroom` and `target` with the digest, `clear` (only old tool results are cleared) and `clear-first`.
/// Sessions that record compactions of their agent are also compared with these. Prices are in units of the price of
/// an input token. The transcripts are imported into memory; the database of --db is not touched.
#[derive(clap::Args)]
pub struct EvalCostArgs {
    /// The transcripts: files and folders, as for `import`.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The context window in tokens [default: a quarter of the tokens of each session].
    #[arg(long, value_name = "N", value_parser = amount::some_tokens)]
    window: Option<u64>,
    /// The price of a token that is read from the cache.
    #[arg(long, value_name = "PRICE", default_value_t = 0.1, value_parser = price)]
    price_cached: f64,
    /// The price of a token that is written to the cache.
    #[arg(long, value_name = "PRICE", default_value_t = 1.25, value_parser = price)]
    price_written: f64,
    /// The price of a token of an answer.
    #[arg(long, value_name = "PRICE", default_value_t = 5.0, value_parser = price)]
    price_output: f64,
}

fn price(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(price) if price.is_finite() && price >= 0.0 => Ok(price),
        _ => Err("expected a number such as 0.1".into()),
    }
}

/// Measures and prints.
pub fn run(app: &mut App, args: &EvalCostArgs) -> Result<Done, CliError> {
    let (store, sessions) = imported(&args.paths)?;
    let prices = TokenPrices {
        cached: args.price_cached,
        written: args.price_written,
        output: args.price_output,
    };
    let report = cost(&store, &sessions, args.window, &prices)?;
    if report.sessions == 0 {
        let sessions = text::count(sessions.len() as u64, "session");
        let why = format!("{sessions} imported, and none is long enough to be compacted");
        return Err(CliError::Failed(why.into()));
    }
    if app.json {
        app.out.json(&report)?;
        return Ok(Done::Well);
    }
    app.out.table(&table(&report.results))?;
    if !report.recorded.is_empty() {
        app.out
            .text("\nSessions that record compactions, in the window of the first of them")?;
        app.out.table(&table(&report.recorded))?;
    }
    if report.skipped > 0 {
        let skipped = text::count(report.skipped as u64, "session");
        note(&format!(
            "note: {skipped} too short to be compacted skipped"
        ));
    }
    Ok(Done::Well)
}

fn table(results: &[CostResult]) -> TextTable {
    let mut table = TextTable::new(vec![
        Column::text("POLICY", 11),
        Column::number("CALLS"),
        Column::number("SHORTENED"),
        Column::number("OVER"),
        Column::number("CACHED"),
        Column::number("WRITTEN"),
        Column::number("OWN CALLS"),
        Column::number("BROKEN"),
        Column::number("AGAIN"),
        Column::number("BILL OF ONE"),
        Column::number("TOTAL"),
    ]);
    for one in results {
        let each = match one.compactions {
            0 => "-".to_owned(),
            count => rounded(one.bill() / count as f64),
        };
        table.row(vec![
            one.policy.clone(),
            text::number(one.calls as u64),
            text::number(one.compactions as u64),
            text::number(one.over as u64),
            text::number(one.cached),
            text::number(one.written),
            rounded(one.own),
            rounded(one.broken),
            rounded(one.again),
            each,
            rounded(one.total),
        ]);
    }
    table
}

fn rounded(price: f64) -> String {
    text::number(price.round() as u64)
}
