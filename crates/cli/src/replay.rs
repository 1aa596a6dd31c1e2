//! `loopstore replay`

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use loopstore::provider::{Form, Mending, ProviderRequest};
use loopstore::search::quote_lines;
use loopstore::{AgentMessage, Json, LoopId};
use loopstore_admin::replay::{ChangeKind, Replay, ReplayChange, ReplayStep, ReplayedTurn};
use loopstore_terminal::{App, CliError, Done, amount, context_text, edits, select, text};
use serde::Serialize;

use super::context::ContextOutput;

/// Replay a session as it happened
///
/// From the root to a loop, turn by turn in recorded order, with compactions, edits, undos and redos where
/// they took effect. On a terminal it keeps the recorded pace; gaps longer than --max-gap are
/// shortened. Elsewhere, and with --json or --as, it does not wait unless --speed is given. --json
/// prints one array of steps, element by element.
#[derive(clap::Args)]
pub struct ReplayArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop where the branch ends [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// The speed as a multiple of the recorded pace [default: 1 on a terminal].
    #[arg(long, value_name = "X", value_parser = speed, conflicts_with = "instant")]
    speed: Option<f64>,
    /// Do not wait.
    #[arg(long)]
    instant: bool,
    /// The longest pause.
    #[arg(long, value_name = "DURATION", default_value = "3", value_parser = seconds)]
    max_gap: f64,
    /// Show with each turn what the model saw before it answered.
    #[arg(long)]
    contexts: bool,
    /// Print the requests of the recorded model calls, one line of JSON each, for openai,
    /// responses or anthropic: to run the session against another model. With --json an array that also lists
    /// what was mended.
    #[arg(long = "as", value_name = "PROVIDER", conflicts_with = "contexts")]
    form: Option<Form>,
}

impl ReplayArgs {
    /// True if the whole output is printed for people without pauses.
    pub fn is_read_at_once(&self) -> bool {
        self.instant && self.form.is_none()
    }
}

fn speed(given: &str) -> Result<f64, String> {
    match given.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(speed),
        _ => Err("expected a number above 0, such as 10 or 0.5".into()),
    }
}

fn seconds(given: &str) -> Result<f64, String> {
    let whole = || amount::seconds(given).map(|seconds| seconds as f64);
    match given.parse::<f64>().or_else(|_| whole()) {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0 to 86400, or a duration such as 2m".into()),
    }
}

/// Replays the session.
pub fn run(app: &mut App, args: &ReplayArgs) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let leaf = select::loop_id(&*store, &session, args.loop_id.as_deref())?;
    let wants_contexts = args.contexts || args.form.is_some();
    let provider = args.form.and_then(Form::sealing_provider);
    let replay = Replay::new(&*store, &session.session_id, leaf.as_ref())?.for_provider(provider);
    let mut player = Player {
        app,
        pace: Pace::of(args, wants_waiting),
        form: args.form,
        is_first: true,
        loop_id: None,
    };
    player.pace.waits &= !(player.app.json && args.speed.is_none());
    for step in replay.with_contexts(wants_contexts) {
        player.step(step?)?;
    }
    player.end()?;
    Ok(Done::Well)
}

/// True if a person is watching, not a program that reads lines.
fn wants_waiting(args: &ReplayArgs) -> bool {
    args.form.is_none() && std::io::stdout().is_terminal()
}

/// Computes the pause before each message.
struct Pace {
    waits: bool,
    speed: f64,
    max_gap: f64,
    last: Option<i64>,
}

impl Pace {
    fn of(args: &ReplayArgs, by_default: fn(&ReplayArgs) -> bool) -> Self {
        Self {
            waits: !args.instant && (args.speed.is_some() || by_default(args)),
            speed: args.speed.unwrap_or(1.0),
            max_gap: args.max_gap,
            last: None,
        }
    }

    /// Returns the pause before an event `at` milliseconds after the epoch. There is no pause for a time before the
    /// last one, or without a time.
    fn gap(&mut self, at: Option<i64>) -> Duration {
        let Some(at) = at else { return Duration::ZERO };
        let last = self.last.replace(at).unwrap_or(at);
        let seconds = at.saturating_sub(last).max(0) as f64 / 1000.0 / self.speed;
        Duration::from_secs_f64(seconds.min(self.max_gap))
    }
}

struct Player<'a> {
    app: &'a mut App,
    pace: Pace,
    form: Option<Form>,
    is_first: bool,
    /// The loop that was announced last.
    loop_id: Option<LoopId>,
}

impl Player<'_> {
    fn step(&mut self, step: ReplayStep) -> Result<(), CliError> {
        match (step, self.form) {
            (ReplayStep::Turn(turn), Some(form)) => self.request(&turn, form),
            (ReplayStep::Change(_), Some(_)) => Ok(()),
            (ReplayStep::Turn(turn), None) => self.turn(&turn),
            (ReplayStep::Change(change), None) if self.app.json => self.element(&change),
            (ReplayStep::Change(change), None) => self.app.out.text(&change_line(&change)),
        }
    }

    fn end(&mut self) -> Result<(), CliError> {
        match self.app.json {
            true => self.app.out.end_elements(self.is_first),
            false => Ok(()),
        }
    }

    fn element(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let first = std::mem::replace(&mut self.is_first, false);
        self.app.out.element(first, value)
    }

    fn wait(&mut self, at: Option<i64>) -> Result<(), CliError> {
        if !self.pace.waits {
            return Ok(());
        }
        let gap = self.pace.gap(at);
        if !gap.is_zero() {
            self.app.out.flush()?;
            std::thread::sleep(gap);
        }
        Ok(())
    }

    fn request(&mut self, turn: &ReplayedTurn, form: Form) -> Result<(), CliError> {
        let Some(context) = &turn.context else {
            return Ok(());
        };
        let first = turn.times.iter().flatten().next();
        self.wait(first.copied())?;
        let request = ProviderRequest::of_context(form, context)?;
        if self.app.json {
            return self.element(&RecordedRequest {
                loop_id: turn.loop_id.as_str(),
                turn: turn.turn,
                seq: turn.answer_seq,
                request: &request,
                mended: &request.mended,
            });
        }
        self.app.out.json_line(&request)
    }

    fn turn(&mut self, turn: &ReplayedTurn) -> Result<(), CliError> {
        if self.app.json {
            self.wait(turn.times.iter().flatten().next().copied())?;
            return self.element(&TurnJson::of(turn));
        }
        if self.loop_id.as_ref() != Some(&turn.loop_id) {
            let name = text::line(turn.loop_id.as_str());
            self.app.out.text(&format!("── loop {name}\n"))?;
            self.loop_id = Some(turn.loop_id.clone());
        }
        self.app.out.text(&format!("── turn {}", turn.turn))?;
        if let Some(context) = &turn.context {
            context_text::print(&mut self.app.out, context)?;
            self.app.out.text("── what happened")?;
        }
        for (message, at) in turn.messages.iter().zip(&turn.times) {
            self.wait(*at)?;
            self.app.out.text(&render(message))?;
        }
        Ok(())
    }
}

/// A step of `--json`.
#[derive(Serialize)]
struct TurnJson<'a> {
    loop_id: &'a str,
    turn: u32,
    seqs: [u32; 2],
    messages: &'a [AgentMessage],
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<ContextOutput<'a>>,
}

impl<'a> TurnJson<'a> {
    fn of(turn: &'a ReplayedTurn) -> Self {
        // A turn has at least one message.
        let last = (turn.messages.len() as u32).saturating_sub(1);
        Self {
            loop_id: turn.loop_id.as_str(),
            turn: turn.turn,
            seqs: [turn.first_seq, turn.first_seq + last],
            messages: &turn.messages,
            context: turn.context.as_ref().map(ContextOutput::of),
        }
    }
}

/// A request of `--as` with `--json`.
#[derive(Serialize)]
struct RecordedRequest<'a, R: Serialize> {
    loop_id: &'a str,
    turn: u32,
    seq: Option<u32>,
    #[serde(flatten)]
    request: &'a R,
    mended: &'a [Mending],
}

/// Returns a message as a context shows it, or the content of a note, which no context shows.
fn render(message: &AgentMessage) -> String {
    match message {
        AgentMessage::Extension(note) => {
            let data = quote_lines(note.data.as_str());
            format!("note {}\n{data}\n", text::line(&note.kind))
        }
        AgentMessage::Llm(_) => context_text::message(message),
    }
}

fn change_line(change: &ReplayChange) -> String {
    let (run, at) = (text::line(&change.run_id), text::time(&change.at));
    let of = text::line(change.loop_id.as_str());
    match change.change {
        ChangeKind::Compacted => {
            let events: String = change.events.iter().map(event_line).collect();
            format!(
                "── compacted by {} from loop {of}: {} to {} tokens (run {run}, {at})\n{events}",
                text::line(&change.strategy),
                text::number(change.tokens_before),
                text::number(change.tokens_after)
            )
        }
        ChangeKind::Edited => format!(
            "── edited from loop {of}: {} to {} tokens (run {run}, {at}){}\n{}",
            text::number(change.tokens_before),
            text::number(change.tokens_after),
            reason_of(change),
            edits_of(change)
        ),
        ChangeKind::Undone | ChangeKind::Redone => {
            let what = match change.change {
                ChangeKind::Undone => "undone",
                _ => "redone",
            };
            format!(
                "── {what} from loop {of}: run {run} ({at}){}\n{}",
                reason_of(change),
                edits_of(change)
            )
        }
    }
}

fn reason_of(change: &ReplayChange) -> String {
    let reason = change.reason.as_deref().map(text::line);
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

fn edits_of(change: &ReplayChange) -> String {
    let lines = edits::edit_lines(&change.edits).into_iter();
    lines.map(|line| format!("{line}\n")).collect()
}

fn event_line(event: &Json) -> String {
    let of = |key: &str| {
        let fields = event.read::<BTreeMap<String, Json>>().unwrap_or_default();
        let value = fields.get(key).map(Json::read::<String>);
        value.and_then(Result::ok).unwrap_or_default()
    };
    format!(
        "   {} at {}\n",
        text::line(&of("type")),
        text::time(&of("timestamp"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_scaled_and_bounded() {
        let mut pace = Pace {
            waits: true,
            speed: 10.0,
            max_gap: 3.0,
            last: None,
        };
        let mut gap = |at| pace.gap(at).as_secs_f64();
        assert_eq!(gap(Some(1_000_000)), 0.0);
        assert_eq!(gap(Some(1_005_000)), 0.5);
        assert_eq!(gap(None), 0.0);
        assert_eq!(gap(Some(1_003_000)), 0.0);
        assert_eq!(gap(Some(9_000_000)), 3.0);
        assert_eq!(gap(Some(i64::MIN)), 0.0);
        assert_eq!(gap(Some(i64::MAX)), 3.0);
    }

    #[test]
    fn a_pace_must_be_one() {
        for bad in ["0", "-1", "x", "inf", "NaN", ""] {
            assert!(speed(bad).is_err(), "{bad}");
        }
        assert_eq!(speed("0.5"), Ok(0.5));
        assert!(seconds("-1").is_err() && seconds("1e9").is_err() && seconds("NaN").is_err());
    }
}
