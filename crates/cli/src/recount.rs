//! `loopstore recount`

use loopstore::extend::sqlite::{RecountProgress, RecountReport, recount};
use loopstore::{COUNTERS, OpenError, counter_named};
use loopstore_terminal::{App, CliError, Done, progress, server, text};

/// Recount the tokens of the whole database with another counter
///
/// Every later command uses that counter. Earlier runs keep their counts, and each names its counter.
/// Run it again to resume after an interruption.
#[derive(clap::Args)]
pub struct RecountArgs {
    /// The counter: heuristic (or estimate: four bytes per token); with the feature `tiktoken` also
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
        return Err("this counter needs a loopstore built with `--features tiktoken`".into());
    }
    Err(format!("expected one of {}", COUNTERS.join(", ")))
}

/// Recounts and prints the counts.
pub fn run(app: &mut App, args: &RecountArgs) -> Result<Done, CliError> {
    let name = args.counter.clone().unwrap_or_else(|| unfinished(app));
    let counter = counter_named(&name)
        .ok_or_else(|| CliError::Usage(format!("unknown counter `{}`", text::line(&name))))?;
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
    app.print(&report, || summary(&report))?;
    Ok(Done::Well)
}

/// Returns the counter of an interrupted recount, if this program has it, else the default.
fn unfinished(app: &App) -> String {
    match app.open_to_read() {
        Err(OpenError::Recounting { to }) if counter_named(&to).is_some() => to,
        _ => COUNTERS[0].to_owned(),
    }
}

fn summary(report: &RecountReport) -> String {
    let (from, to) = (text::line(&report.from), text::line(&report.to));
    if from == to && !report.resumed {
        return format!("Nothing to do: the database already counts with {to}.");
    }
    let messages = text::count(report.messages, "message");
    let blocks = text::count(report.blocks, "block");
    let resumed = if report.resumed { " (resumed)" } else { "" };
    format!("Recounted{resumed}: {messages}, {blocks}; {from} -> {to}")
}
