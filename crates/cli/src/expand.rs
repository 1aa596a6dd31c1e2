//! `loopstore expand`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use loopstore::admin::inspect::{self, Expanded, Replaced};
use serde::Serialize;
use serde_json::json;

use super::error::CliError;
use super::output::write_file;
use super::{App, Done, amount, context_text, expand_block, select, text};

/// Read turns as recorded, whether compacted or not; or extract an image
///
/// In the view `v_messages`, `blob` in `payload` names the images of a message.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct Args {
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
    /// Which section of the block [default: the compacted one, else recent, else first].
    #[arg(long, value_enum, conflicts_with_all = ["turns", "blob"])]
    pub(super) section: Option<expand_block::SectionName>,
    /// Stop after this many tokens, at whole turns and after at least one; the output says where to
    /// continue.
    #[arg(long, value_name = "N", requires = "session", value_parser = amount::tokens)]
    max_tokens: Option<u64>,
    /// The bytes of this image: its id or a unique prefix.
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
        (None, None) => Err(CliError::Usage("expected SESSION or --blob".into())),
    }
}

fn print_turns(app: &mut App, args: &Args, session: &str) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, session)?;
    let mut loop_id = select::loop_id(&*store, &session, args.loop_id.as_deref())?;
    let block = expand_block::find(&*store, &session, loop_id.as_ref(), args)?;
    let turns = match (&block, args.turns) {
        (Some(block), _) => block.turns,
        (None, Some(turns)) => turns,
        // The parser lets nothing else through.
        (None, None) => return Err(CliError::Usage("expected --turns".into())),
    };
    if let Some(block) = &block {
        loop_id = Some(block.loop_id.clone());
    }
    let id = &session.session_id;
    let expanded = inspect::expand(&*store, id, loop_id.as_ref(), turns, args.max_tokens)?;
    if app.json {
        app.out.json(&ExpandedJson { block, expanded })?;
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
        let rest = format!("Continue with {named}--turns {next}..{}.", turns.1);
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
