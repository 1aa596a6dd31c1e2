//! `loopstore recount`

use loopstore::store::sqlite::{RecountProgress, RecountReport, recount};
use loopstore::{COUNTERS, OpenError, counter_named};

use super::error::CliError;
use super::{App, Done, progress, server, text};

/// Count the tokens of the whole database anew, with another counter
///
/// Every later command uses that counter. What earlier runs say of tokens stays: each names its own
/// counter. A recount that is cut off goes on where it stopped when it is run again.
#[derive(clap::Args)]
pub struct Args {
    /// The counter: heuristic (or estimate: four bytes a token); with the feature `tiktoken` also
    /// tiktoken:o200k_base and tiktoken:cl100k_base [default: that of an unfinished recount, else
    /// heuristic].
    #[arg(long, value_name = "NAME", value_parser = known)]
    counter: Option<String>,
}

fn known(given: &str) -> Result<String, String> {
    if given == "estimate" {
        return Ok(COUNTERS[0].to_owned());
    }
    if COUNTERS.contains(&given) {
        return Ok(given.to_owned());
    }
    if given.starts_with("tiktoken") && !cfg!(feature = "tiktoken") {
        return Err("it takes a loopstore built with `--features tiktoken`".into());
    }
    Err(format!("it is none of {}", COUNTERS.join(", ")))
}

/// Counts and tells how much.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let name = args.counter.clone().unwrap_or_else(|| unfinished(app));
    let counter = counter_named(&name)
        .ok_or_else(|| CliError::Usage(format!("no counter `{}`", text::line(&name))))?;
    let bar = progress::bar("messages");
    let show = &mut |seen: RecountProgress| {
        bar.set_length(seen.all_messages);
        bar.set_position(seen.messages);
        bar.set_message(text::count(seen.blocks, "block"));
    };
    let result = match app.address() {
        Some(address) => server::recount(address, counter, show),
        None => recount(&app.db, app.options().counter(counter), show),
    };
    bar.finish_and_clear();
    let report = result?;
    if app.json {
        app.out.json(&report)?;
    } else {
        app.out.text(&told(&report))?;
    }
    Ok(Done::Well)
}

/// Returns the counter that a recount was cut off with, if this program has it, else the default.
fn unfinished(app: &App) -> String {
    match app.open_to_read() {
        Err(OpenError::Recounting { to }) if counter_named(&to).is_some() => to,
        _ => COUNTERS[0].to_owned(),
    }
}

fn told(report: &RecountReport) -> String {
    let (from, to) = (text::line(&report.from), text::line(&report.to));
    if from == to && !report.resumed {
        return format!("Nothing to do: the database counts with {to} already.");
    }
    let messages = text::count(report.messages, "message");
    let blocks = text::count(report.blocks, "block");
    let resumed = if report.resumed { ", gone on with" } else { "" };
    format!("Counted anew{resumed}: {messages}, {blocks}; {from} -> {to}")
}
