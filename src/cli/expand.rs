//! `loopstore expand`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use loopstore::inspect;
use loopstore::store::StoreError;
use serde_json::json;

use super::error::CliError;
use super::output::write_file;
use super::{App, Done, context_text, select, text};

/// Read turns as they were recorded, whatever a compaction made of them; or take out an image
///
/// The images of a message are named by `blob` in `payload` of the view `v_messages`.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or the beginning of it.
    #[arg(required_unless_present = "blob")]
    session: Option<String>,
    /// The loop [default: the current one].
    #[arg(long = "loop", value_name = "LOOP", requires = "session")]
    in_loop: Option<String>,
    /// The turns, both ends included, counted from 0: A..B, or A for one.
    #[arg(long, value_name = "A..B", required_unless_present = "blob")]
    turns: Option<String>,
    /// Whole turns of at most this many tokens, but at least one; the answer says where to go on.
    #[arg(long, value_name = "N", requires = "turns")]
    max_tokens: Option<u64>,
    /// The bytes of this image: its id or the beginning of it.
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "in_loop", "turns", "max_tokens"])]
    blob: Option<String>,
    /// Write the bytes to this file, which is written over [default: stdout].
    #[arg(
        short,
        long,
        value_name = "FILE",
        requires = "blob",
        conflicts_with = "turns"
    )]
    output: Option<PathBuf>,
}

/// Prints the turns, or writes the image.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    match (&args.blob, &args.session, &args.turns) {
        (Some(id), ..) => write_blob(app, id, args.output.as_deref()),
        (None, Some(session), Some(turns)) => print_turns(app, args, session, turns),
        // The parser lets nothing else through.
        _ => Err(CliError::Usage(
            "give SESSION and --turns, or --blob".into(),
        )),
    }
}

fn print_turns(app: &mut App, args: &Args, session: &str, turns: &str) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&store, session)?;
    let in_loop = select::loop_id(&store, &session, args.in_loop.as_deref())?;
    let turns = range(turns)?;
    let id = &session.session_id;
    let expanded = inspect::expand(&store, id, in_loop.as_ref(), turns, args.max_tokens)?;
    if app.json {
        app.out.json(&expanded)?;
        return Ok(Done::Well);
    }
    for message in &expanded.messages {
        app.out.text(&context_text::message(message))?;
    }
    if let Some(next) = expanded.next {
        let rest = format!("Go on with --turns {next}..{}.", turns.1);
        app.out.text(&rest)?;
    }
    Ok(Done::Well)
}

fn write_blob(app: &mut App, id: &str, file: Option<&Path>) -> Result<Done, CliError> {
    let blob = inspect::blob(&app.open_to_read()?, id)?;
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
