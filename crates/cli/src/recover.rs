//! `loopstore recover`

use loopstore::Json;
use loopstore_recorder::{AbortedLoop, HeldLoop, RecoverReport, RecoverRequest, StartedCall};
use loopstore_terminal::{App, CliError, Done, select, text};

/// Mark loops of dead agents as aborted, and list tool calls without a result
///
/// A pending or running loop is left alone while its lease lasts. A call that started and has no result
/// may have taken effect: its idempotency key lets the tool check.
#[derive(clap::Args)]
pub struct RecoverArgs {
    /// The session: its id or a unique prefix [default: all].
    session: Option<String>,
    /// Ignore leases, and include running loops that never had one, such as imported ones.
    #[arg(long)]
    all: bool,
    /// Only report what would be done.
    #[arg(long)]
    dry_run: bool,
}

/// Marks loops and lists calls.
pub fn run(app: &mut App, args: &RecoverArgs) -> Result<Done, CliError> {
    let store = app.open_for(!args.dry_run)?;
    let request = RecoverRequest {
        session: select::session_id(&*store, args.session.as_deref())?,
        all: args.all,
        dry_run: args.dry_run,
    };
    let report = loopstore_recorder::recover(&*store, &request)?;
    app.print(&report, || summary(&report))?;
    Ok(Done::Well)
}

fn summary(report: &RecoverReport) -> String {
    let mut lines: Vec<String> = Vec::new();
    let done = if report.dry_run {
        "Would abort"
    } else {
        "Aborted"
    };
    lines.extend(report.aborted.iter().map(|one| aborted(done, one)));
    lines.extend(report.left.iter().map(skipped_loop));
    if lines.is_empty() {
        lines.push("No loop is pending or running.".into());
    }
    if !report.interrupted.is_empty() {
        let runs = text::count(report.interrupted.len() as u64, "compaction");
        lines.push(format!(
            "{runs} interrupted: {}.",
            report.interrupted.join(", ")
        ));
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
        (Some(owner), Some(until)) => format!("leased by {} until {until}", text::line(owner)),
        _ => "no lease".into(),
    };
    format!(
        "{done} {} of session {} ({}, {driver}; {} kept)",
        text::line(one.loop_id.as_str()),
        text::line(one.session_id.as_str()),
        one.was,
        text::count(u64::from(one.turns), "turn"),
    )
}

fn skipped_loop(one: &HeldLoop) -> String {
    let why = match (&one.owner, &one.lease_until) {
        (Some(owner), Some(until)) => format!("leased by {} until {until}", text::line(owner)),
        _ => "it never had a lease; --all aborts it".into(),
    };
    format!(
        "Left {} of session {}: {why}",
        text::line(one.loop_id.as_str()),
        text::line(one.session_id.as_str()),
    )
}

fn call(call: &StartedCall) -> String {
    format!(
        "{} {} in loop {} of session {}, started {} (attempts: {})\n  arguments {}\n  key {}",
        text::line(&call.tool_name),
        text::line(&call.tool_call_id),
        text::line(call.loop_id.as_str()),
        text::line(call.session_id.as_str()),
        call.started_at,
        call.attempts,
        text::line(Json::as_str(&call.arguments)),
        text::line(&call.idempotency_key),
    )
}
