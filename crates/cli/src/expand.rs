//! `loopstore expand`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use loopstore_admin::inspect::{self, ExpandRequest, Expanded, MessageOffset, ReplacedTurns};
use loopstore_terminal::output::{within, write_file};
use loopstore_terminal::{App, CliError, Done, amount, context_text, select, text, usual_database};
use serde::Serialize;
use serde_json::json;

use super::expand_block;

/// Read turns as recorded, whether compacted or not; or extract an image
///
/// In the view `v_messages`, `blob` in `payload` names the images of a message.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct ExpandArgs {
    /// The session: its id or a unique prefix.
    #[arg(required_unless_present = "blob")]
    session: Option<String>,
    /// The loop [default: the current one; with --run the one it wrote a block on].
    #[arg(long = "loop", value_name = "LOOP", requires = "session")]
    loop_id: Option<String>,
    /// The turns, counted from 0: A..B with both ends included, or A for one.
    #[arg(long, value_name = "A..B", group = "what", requires = "session", value_parser = amount::turns)]
    turns: Option<(u32, u32)>,
    /// The turns that this block of the loop replaced.
    #[arg(long, value_name = "GENERATION", group = "what", requires = "session")]
    pub(super) block: Option<u32>,
    /// The turns that the block of this run replaced: the id of the run or a unique prefix.
    #[arg(long, value_name = "RUN", group = "what", requires = "session")]
    pub(super) run: Option<String>,
    /// The section of the block [default: the compacted one, else recent, else first].
    #[arg(long, value_enum, conflicts_with_all = ["turns", "blob"])]
    pub(super) section: Option<expand_block::SectionName>,
    /// Only messages that match this query (in the syntax of `search`), and of long messages the lines around the
    /// matches.
    #[arg(
        long = "match",
        value_name = "WORDS",
        requires = "session",
        conflicts_with = "blob",
        allow_hyphen_values = true
    )]
    matching: Option<String>,
    /// The maximum number of tokens: the answer ends at a message, or at a line of a long message, and prints how to
    /// continue.
    #[arg(long, value_name = "N", requires = "session", value_parser = amount::tokens)]
    max_tokens: Option<u64>,
    /// Continue at this message, after this number of its characters; each answer prints the position.
    #[arg(
        long = "from",
        value_name = "MESSAGE[:OFFSET]",
        requires = "session",
        conflicts_with = "blob"
    )]
    start: Option<MessageOffset>,
    /// The image to extract: its id or a unique prefix.
    #[arg(long, value_name = "ID", group = "what", conflicts_with_all = ["session", "loop_id", "max_tokens"])]
    blob: Option<String>,
    /// Write the bytes to this file, replacing it [default: stdout].
    #[arg(
        short,
        long,
        value_name = "FILE",
        requires = "blob",
        conflicts_with_all = ["turns", "block", "run"]
    )]
    output: Option<PathBuf>,
}

#[derive(Serialize)]
struct ExpandedJson {
    #[serde(flatten)]
    block: Option<ReplacedTurns>,
    #[serde(flatten)]
    expanded: Expanded,
}

/// Prints the turns, or writes the image.
pub fn run(app: &mut App, args: &ExpandArgs) -> Result<Done, CliError> {
    match (&args.blob, &args.session) {
        (Some(id), _) => write_blob(app, id, args.output.as_deref()),
        (None, Some(session)) => print_turns(app, args, session),
        // The parser rejects everything else.
        (None, None) => Err(CliError::Usage("expected SESSION or --blob".into())),
    }
}

fn print_turns(app: &mut App, args: &ExpandArgs, session: &str) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, session)?;
    let mut loop_id = select::loop_id(&*store, &session, args.loop_id.as_deref())?;
    let block = expand_block::find(&*store, &session, loop_id.as_ref(), args)?;
    let turns = match (&block, args.turns) {
        (Some(block), _) => block.turns,
        (None, Some(turns)) => turns,
        // The parser rejects everything else.
        (None, None) => return Err(CliError::Usage("expected --turns".into())),
    };
    if let Some(block) = &block {
        loop_id = Some(block.loop_id.clone());
    }
    let mut request = ExpandRequest::turns(turns.0, turns.1);
    request.loop_id = loop_id;
    request.from = args.start;
    request.matching.clone_from(&args.matching);
    request.max_tokens = args.max_tokens;
    let id = &session.session_id;
    if app.json {
        let expanded = inspect::expand(&*store, id, &request)?;
        app.out.json(&ExpandedJson { block, expanded })?;
        return Ok(Done::Well);
    }
    let heading = block.as_ref().map(expand_block::heading);
    let is_whole = args.matching.is_none() && args.max_tokens.is_none() && args.start.is_none();
    if is_whole {
        if let Some(heading) = heading {
            app.out.text(&heading)?;
        }
        for message in &inspect::expand(&*store, id, &request)?.messages {
            app.out.text(&context_text::message(message))?;
        }
        return Ok(Done::Well);
    }
    let heading = heading.map_or_else(String::new, |heading| heading + "\n");
    let command = command(app, id.as_str(), &request);
    let page = |tokens| {
        request.max_tokens = tokens;
        let page = inspect::expand(&*store, id, &request)?;
        let end = match page.next {
            Some(next) => format!("Continue with `{command} --from {next}`."),
            None if page.messages.is_empty() => "Nothing found.".into(),
            None => String::new(),
        };
        Ok(format!("{heading}{}{end}", page.text()))
    };
    let around = format!("{heading}Continue with `{command} --from 99999:9999999`.");
    let text = within(&*store, args.max_tokens, &around, page)?;
    app.out.text(text.trim_end_matches('\n'))?;
    Ok(Done::Well)
}

/// Returns the command that reads the same turns again, without the position to begin at.
fn command(app: &App, session: &str, request: &ExpandRequest) -> String {
    let mut words = vec!["loopstore".to_owned()];
    if app.db != usual_database() {
        words.extend(["--db".into(), text::quoted(&app.place())]);
    }
    words.extend(["expand".into(), text::quoted(session)]);
    if let Some(loop_id) = &request.loop_id {
        words.extend(["--loop".into(), text::quoted(loop_id.as_str())]);
    }
    let (first, last) = request.turns;
    words.extend(["--turns".into(), format!("{first}..{last}")]);
    if let Some(query) = &request.matching {
        words.push(format!("--match={}", text::quoted(query)));
    }
    if let Some(tokens) = request.max_tokens {
        words.extend(["--max-tokens".into(), tokens.to_string()]);
    }
    words.join(" ")
}

fn write_blob(app: &mut App, id: &str, file: Option<&Path>) -> Result<Done, CliError> {
    let blob = inspect::blob(&*app.open_to_read()?, id)?;
    let bytes = blob.data.len() as u64;
    if let Some(file) = file {
        write_file(app, file, &blob.data)?;
    }
    let shown = file.map(|file| file.display().to_string());
    match shown {
        _ if app.json => {
            let base64 = file.is_none().then(|| STANDARD.encode(&blob.data));
            let image = json!({"blob": blob.id, "bytes": bytes, "file": shown, "base64": base64});
            app.out.json(&image)?;
        }
        Some(file) => {
            let (size, file) = (text::bytes(bytes), text::line(&file));
            app.out.text(&format!("Wrote {size} to {file}."))?;
        }
        None if std::io::stdout().is_terminal() => {
            let why = "not writing an image to a terminal; use -o FILE or redirect the output";
            return Err(CliError::Usage(why.into()));
        }
        None => app.out.bytes(&blob.data)?,
    }
    Ok(Done::Well)
}
