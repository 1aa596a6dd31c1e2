//! `loopstore diff`

use anstyle::AnsiColor;
use loopstore::context::TurnState;
use loopstore::extend::{Disposition, SessionRow};
use loopstore::{Context, Database};
use loopstore_admin::inspect::{ContextDiff, DiffRequest, DiffSide, diff, diff_contexts};
use loopstore_terminal::diff_lines::diff_lines;
use loopstore_terminal::select::GivenAsOf;
use loopstore_terminal::{App, CliError, Done, context_text, select, text};
use similar::{ChangeTag, TextDiff};

/// Compare two contexts of a session turn by turn
///
/// A context is named by a run (just after it), by LOOP:TURN, by a date or time, by `now`, or by `raw`: the originals
/// without any block or edit. Without --from it is the one just before the newest active compaction or edit. Edits that
/// only one of the contexts has are listed with their runs.
#[derive(clap::Args)]
pub struct DiffArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The first context [default: just before the newest active compaction or edit].
    #[arg(long, value_name = "RUN|LOOP:TURN|raw|now")]
    from: Option<GivenContext>,
    /// The second context [default: now].
    #[arg(long, value_name = "RUN|LOOP:TURN|raw|now")]
    to: Option<GivenContext>,
    /// The loop for `now` and `raw` [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// Compare the texts of the two contexts line by line.
    #[arg(long)]
    text: bool,
}

/// A context in the form of an argument.
#[derive(Clone)]
enum GivenContext {
    Raw,
    Now,
    AsOf(GivenAsOf),
}

impl std::str::FromStr for GivenContext {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "raw" => Ok(Self::Raw),
            "now" => Ok(Self::Now),
            other => other.parse().map(Self::AsOf),
        }
    }
}

impl GivenContext {
    fn side(&self, store: &dyn Database, session: &SessionRow) -> Result<DiffSide, CliError> {
        Ok(match self {
            Self::Raw => DiffSide::Raw,
            Self::Now => DiffSide::Now,
            Self::AsOf(moment) => DiffSide::At(select::as_of(store, session, moment, None)?.0),
        })
    }
}

/// Compares the contexts.
pub fn run(app: &mut App, args: &DiffArgs) -> Result<Done, CliError> {
    if args.text && app.json {
        let text = "--json cannot be used with --text";
        return Err(CliError::Usage(text.into()));
    }
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let side = |given: &Option<GivenContext>| {
        let side = |given: &GivenContext| given.side(&*store, &session);
        given.as_ref().map(side).transpose()
    };
    let request = DiffRequest {
        from: side(&args.from)?,
        to: side(&args.to)?,
        leaf: select::loop_id(&*store, &session, args.loop_id.as_deref())?,
    };
    let found = diff(&*store, &session.session_id, &request)?;
    if app.json {
        app.out.json(&found)?;
    } else if args.text {
        let contexts = diff_contexts(&*store, &session.session_id, &request)?;
        print_lines(app, &found, &contexts)?;
    } else {
        print_changes(app, &found)?;
    }
    Ok(Done::Well)
}

fn print_changes(app: &mut App, diff: &ContextDiff) -> Result<(), CliError> {
    for (line, state) in diff_lines(diff) {
        app.out.coloured(&line, colour(state))?;
    }
    Ok(())
}

fn colour(state: Option<TurnState>) -> Option<AnsiColor> {
    Some(match state? {
        TurnState::Raw | TurnState::Covered(Disposition::Kept) => AnsiColor::Green,
        TurnState::Edited | TurnState::Covered(Disposition::Truncated) => AnsiColor::Yellow,
        TurnState::Covered(
            Disposition::Summarised | Disposition::RolledUp | Disposition::Sealed,
        ) => AnsiColor::Cyan,
        TurnState::Covered(Disposition::Dropped | Disposition::Removed) => AnsiColor::Red,
    })
}

/// Prints the differences between the texts of the contexts, each with three lines of context.
fn print_lines(app: &mut App, diff: &ContextDiff, of: &[Context; 2]) -> Result<(), CliError> {
    let [before, after] = [lines_of(&of[0])?, lines_of(&of[1])?];
    let lines = TextDiff::from_lines(&before, &after);
    app.out.text(&format!("--- {}", text::line(&diff.from)))?;
    app.out.text(&format!("+++ {}", text::line(&diff.to)))?;
    for hunk in lines.unified_diff().context_radius(3).iter_hunks() {
        let head = hunk.header().to_string();
        app.out.coloured(head.trim_end(), Some(AnsiColor::Cyan))?;
        for change in hunk.iter_changes() {
            let (sign, colour) = match change.tag() {
                ChangeTag::Delete => ('-', Some(AnsiColor::Red)),
                ChangeTag::Insert => ('+', Some(AnsiColor::Green)),
                ChangeTag::Equal => (' ', None),
            };
            let line = change.value().strip_suffix('\n').unwrap_or(change.value());
            app.out.coloured(&format!("{sign}{line}"), colour)?;
        }
    }
    Ok(())
}

fn lines_of(context: &Context) -> Result<String, CliError> {
    let mut all = String::new();
    context_text::lines(context, &mut |lines| {
        all.push_str(lines);
        all.push('\n');
        Ok(())
    })?;
    Ok(all)
}
