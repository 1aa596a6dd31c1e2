//! `loopstore expand`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use loopstore::inspect::{self, Expanded, Replaced};
use loopstore::store::StoreError;
use serde::Serialize;
use serde_json::json;

use super::error::CliError;
use super::output::write_file;
use super::{App, Done, context_text, expand_block, select, text};

/// Read turns as they were recorded, whatever a compaction made of them; or take out an image
///
/// The images of a message are named by `blob` in `payload` of the view `v_messages`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct Args {
    /// The session: its id or the beginning of it.
    #[arg(required_unless_present = "blob")]
    session: Option<String>,
    /// The loop [default: the current one; with --run the one that it wrote a block on].
    #[arg(long = "loop", value_name = "LOOP", requires = "session")]
    loop_id: Option<String>,
    /// The turns, both ends included, counted from 0: A..B, or A for one.
    #[arg(long, value_name = "A..B", group = "what", requires = "session")]
    turns: Option<String>,
    /// The turns that a block of the loop replaced, by the number of the block.
    #[arg(long, value_name = "GENERATION", group = "what", requires = "session")]
    pub(super) block: Option<u32>,
    /// The turns that the block of a run replaced: the id of the run or the beginning of it.
    #[arg(long, value_name = "RUN", group = "what", requires = "session")]
    pub(super) run: Option<String>,
    /// Which turns of the block [default: those that it replaced, else its recent ones, else its
    /// first].
    #[arg(long, value_enum, conflicts_with_all = ["turns", "blob"])]
    pub(super) section: Option<expand_block::Section>,
    /// Whole turns of at most this many tokens, but at least one; the answer says where to go on.
    #[arg(long, value_name = "N", requires = "session")]
    max_tokens: Option<u64>,
    /// The bytes of this image: its id or the beginning of it.
    #[arg(long, value_name = "ID", group = "what", conflicts_with_all = ["session", "loop_id", "max_tokens"])]
    blob: Option<String>,
    /// Write the bytes to this file, which is written over [default: stdout].
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
struct Told {
    #[serde(flatten)]
    block: Option<Replaced>,
    #[serde(flatten)]
    expanded: Expanded,
}

/// Prints the turns, or writes the image.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    match (&args.blob, &args.session) {
        (Some(id), _) => write_blob(app, id, args.output.as_deref()),
        (None, Some(session)) => print_turns(app, args, session),
        // The parser lets nothing else through.
        (None, None) => Err(CliError::Usage("give SESSION, or --blob".into())),
    }
}

fn print_turns(app: &mut App, args: &Args, session: &str) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, session)?;
    let mut loop_id = select::loop_id(&*store, &session, args.loop_id.as_deref())?;
    let block = expand_block::find(&*store, &session, loop_id.as_ref(), args)?;
    let turns = match &block {
        Some(block) => block.turns,
        None => range(args.turns.as_deref().unwrap_or_default())?,
    };
    if let Some(block) = &block {
        loop_id = Some(block.loop_id.clone());
    }
    let id = &session.session_id;
    let expanded = inspect::expand(&*store, id, loop_id.as_ref(), turns, args.max_tokens)?;
    if app.json {
        app.out.json(&Told { block, expanded })?;
        return Ok(Done::Well);
    }
    if let Some(block) = &block {
        app.out.text(&expand_block::heading(block))?;
    }
    for message in &expanded.messages {
        app.out.text(&context_text::message(message))?;
    }
    if let Some(next) = expanded.next {
        let named = block.map(|block| format!("--loop {} ", text::line(block.loop_id.as_str())));
        let named = named.unwrap_or_default();
        let rest = format!("Go on with {named}--turns {next}..{}.", turns.1);
        app.out.text(&rest)?;
    }
    Ok(Done::Well)
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
            let told = json!({"blob": blob.id, "bytes": bytes, "file": shown, "base64": base64});
            app.out.json(&told)?;
        }
        Some(file) => {
            let (size, file) = (text::bytes(bytes), text::line(&file));
            app.out.text(&format!("Wrote {size} to {file}."))?;
        }
        None if std::io::stdout().is_terminal() => {
            let why = "an image is nothing for a terminal; give -o FILE, or redirect the output";
            return Err(CliError::Usage(why.into()));
        }
        None => app.out.bytes(&blob.data)?,
    }
    Ok(Done::Well)
}

fn range(given: &str) -> Result<(u32, u32), StoreError> {
    let (first, last) = given.split_once("..").unwrap_or((given, given));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Ok((first, last)),
        _ => Err(StoreError::Invalid(format!(
            "`{}` is no range of turns; give A..B, such as 0..4",
            text::line(given)
        ))),
    }
}
