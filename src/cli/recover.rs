//! `loopstore recover`

use loopstore::Json;
use loopstore::recorder::{
    self, AbortedLoop, HeldLoop, RecoverReport, RecoverRequest, StartedCall,
};

use super::error::CliError;
use super::{App, Done, select, text};

/// Mark loops as aborted whose agent is gone, and list tool calls without a result
///
/// A loop that is pending or running is left alone while the lease of its driver lasts. A call that
/// had started and has no result may have done its work: the idempotency key tells the tool.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or the beginning of it [default: all].
    session: Option<String>,
    /// Whatever the lease; also running loops that were imported and never had a driver.
    #[arg(long)]
    all: bool,
    /// Only tell.
    #[arg(long)]
    dry_run: bool,
}

/// Marks loops and lists calls.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = match args.dry_run {
        true => app.open_to_read()?,
        false => app.open_to_write()?,
    };
    let find = |given: &String| select::session(&*store, given).map(|row| row.session_id);
    let request = RecoverRequest {
        session: args.session.as_ref().map(find).transpose()?,
        all: args.all,
        dry_run: args.dry_run,
    };
    let report = recorder::recover(&*store, &request)?;
    if app.json {
        app.out.json(&report)?;
    } else {
        app.out.text(&told(&report))?;
    }
    Ok(Done::Well)
}

fn told(report: &RecoverReport) -> String {
    let mut lines: Vec<String> = Vec::new();
    let done = if report.dry_run {
        "Would abort"
    } else {
        "Aborted"
    };
    lines.extend(report.aborted.iter().map(|one| aborted(done, one)));
    lines.extend(report.left.iter().map(left));
    if lines.is_empty() {
        lines.push("No loop is pending or running.".into());
    }
    if !report.calls.is_empty() {
        let calls = text::count(report.calls.len() as u64, "started call");
        lines.push(format!("\n{calls} without a result:"));
        lines.extend(report.calls.iter().map(call));
    }
    lines.join("\n")
}

fn aborted(done: &str, one: &AbortedLoop) -> String {
    let driver = match (&one.owner, &one.lease_until) {
        (Some(owner), Some(until)) => format!("driven by {} until {until}", text::line(owner)),
        _ => "without a driver".into(),
    };
    format!(
        "{done} {} of session {} ({}, {driver}; {} kept)",
        text::line(one.loop_id.as_str()),
        text::line(one.session.as_str()),
        one.was,
        text::count(u64::from(one.turns), "turn"),
    )
}

fn left(one: &HeldLoop) -> String {
    let why = match (&one.owner, &one.lease_until) {
        (Some(owner), Some(until)) => format!("{} drives it until {until}", text::line(owner)),
        _ => "it never had a driver; --all aborts it".into(),
    };
    format!(
        "Left {} of session {}: {why}",
        text::line(one.loop_id.as_str()),
        text::line(one.session.as_str()),
    )
}

fn call(call: &StartedCall) -> String {
    format!(
        "{} {} in loop {} of session {}, started {} (attempts: {})\n  arguments {}\n  key {}",
        text::line(&call.tool_name),
        text::line(&call.tool_call_id),
        text::line(call.loop_id.as_str()),
        text::line(call.session.as_str()),
        call.started_at,
        call.attempts,
        text::line(Json::as_str(&call.arguments)),
        text::line(&call.idempotency_key),
    )
}
