//! `loopstore recover`

use std::collections::BTreeSet;

use loopstore::{Database, Json, LoopId};
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
    let undriven = Undriven::of(&*store, &report)?;
    app.print(&report, || summary(&report, &undriven))?;
    Ok(Done::Well)
}

/// The loops that never had a lease.
#[derive(Default)]
struct Undriven {
    /// Loops of imported transcripts.
    imported: u64,
    /// Loops without an open turn.
    idle: u64,
    /// Loops whose last turn waits for an answer or a result.
    open: BTreeSet<LoopId>,
}

impl Undriven {
    fn of(store: &dyn Database, report: &RecoverReport) -> Result<Self, CliError> {
        let mut found = Self::default();
        for held in report.left.iter().filter(|held| held.owner.is_none()) {
            let session = select::session(store, held.session_id.as_str())?;
            let row = select::loop_row(store, &session, held.loop_id.as_str())?;
            if session.source.is_some() {
                found.imported += 1;
            } else if row.totals.complete == row.totals.turns {
                found.idle += 1;
            } else {
                found.open.insert(held.loop_id.clone());
            }
        }
        Ok(found)
    }

    /// Returns a line about the loops that are not listed.
    fn line(&self) -> Option<String> {
        let counts = [(self.idle, "idle loop"), (self.imported, "imported loop")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, one)| text::count(count, one)).collect();
        (!counts.is_empty()).then(|| {
            format!(
                "Left {}, which no agent drives; --all aborts them.",
                counts.join(" and ")
            )
        })
    }
}

fn summary(report: &RecoverReport, undriven: &Undriven) -> String {
    let mut lines: Vec<String> = Vec::new();
    let done = if report.dry_run {
        "Would abort"
    } else {
        "Aborted"
    };
    lines.extend(report.aborted.iter().map(|one| aborted(done, one)));
    let is_listed = |one: &&HeldLoop| one.owner.is_some() || undriven.open.contains(&one.loop_id);
    lines.extend(report.left.iter().filter(is_listed).map(skipped_loop));
    lines.extend(undriven.line());
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
