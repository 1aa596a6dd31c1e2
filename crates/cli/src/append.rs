//! `loopstore append`

use std::ops::Range;
use std::sync::Arc;

use clap::ValueEnum;
use loopstore::provider::{self, Form};
use loopstore::{
    AgentMessage, Appended, COUNTERS, Database, LoopId, SessionHandle, SessionId, Store,
};
use loopstore_terminal::server::Access;
use loopstore_terminal::{App, CliError, Done, with_causes};
use loopstore_transcripts::{JsonLine, JsonLines};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

/// The longest line in bytes.
const MAX_LINE: u64 = 64 << 20;

/// Append messages from stdin to a session
///
/// A line is a message, an array of messages, or {"key": "…", "messages": […]}; each line is one transaction. The
/// first line creates the session; the roles of messages decide where turns and loops begin. A key is unique in its
/// session: a repeated line with the same key appends nothing, so an interrupted program can send its last lines
/// again. Other messages with that key are an error.
///
/// For each line one line of JSON is printed at once, when its messages are durable:
/// {"line", "session_id", "loop_id", "turns", "seqs", "tokens", "duplicate"}. Damage that an import repairs
/// is repaired here too, and named in "notes": half of an emoji becomes U+FFFD, a record that was cut off
/// does not take along the one behind it on the line (each record of a line is a transaction and has an
/// answer), and a tool call or a result without an id or a name is completed. The first bad line prints
/// {"line", "error"} and ends the command; the lines before it are kept.
#[derive(clap::Args)]
pub struct AppendArgs {
    /// The whole id of the session.
    session: String,
    /// The form of the messages.
    #[arg(long, value_name = "FORMAT", default_value = "loopstore")]
    format: LineFormat,
    /// The title of the session; without a title, lists show its first prompt.
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// The folder in which the agent works.
    #[arg(long, value_name = "FOLDER")]
    project: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LineFormat {
    /// As `context --format json` prints them; `content` may also be a text.
    Loopstore,
    /// Messages of chat completions, or whole answers.
    Openai,
    /// Items of Responses, or whole answers.
    Responses,
    /// Anthropic messages, or whole answers.
    Anthropic,
}

/// A line with a key and messages. The messages stay text, so that content for a provider is stored unchanged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keyed<'a> {
    key: Option<String>,
    #[serde(borrow)]
    messages: &'a RawValue,
}

impl<'a> Keyed<'a> {
    fn of(line: &'a [u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Named {
            messages: Option<IgnoredAny>,
        }
        let is_object = line.trim_ascii_start().starts_with(b"{");
        if is_object && serde_json::from_slice::<Named>(line)?.messages.is_some() {
            return serde_json::from_slice(line);
        }
        let messages = serde_json::from_slice(line)?;
        Ok(Self {
            key: None,
            messages,
        })
    }
}

#[derive(Serialize)]
struct LineReceipt<'a> {
    line: u64,
    session_id: &'a SessionId,
    loop_id: &'a LoopId,
    turns: Option<[u32; 2]>,
    seqs: Option<[u32; 2]>,
    tokens: u64,
    duplicate: bool,
    /// The repairs of the line, and the values that were skipped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Refused<'a> {
    line: u64,
    error: &'a str,
}

/// Appends the messages on stdin.
pub fn run(app: &mut App, args: &AppendArgs) -> Result<Done, CliError> {
    let usage = |error| CliError::Usage(format!("SESSION: {error}"));
    SessionId::new(args.session.as_str()).map_err(usage)?;
    // Without a line nothing is created.
    let mut session = None;
    let mut labels = Some((&args.title, &args.project));
    let mut lines = JsonLines::new(std::io::stdin().lock(), MAX_LINE);
    loop {
        let (number, records) = match lines.next_line() {
            Ok(None) => return Ok(Done::Well),
            Ok(Some(line)) => (line.number, Ok(LineRecords::of(line))),
            Err(error) => (lines.number().max(1), Err(error.to_string())),
        };
        let session = match &session {
            Some(session) => session,
            None => {
                let database: Arc<dyn Database> = app.open(Access::Create(COUNTERS[0]))?.into();
                let opened = Store::from(database).session(&args.session);
                session.insert(opened.map_err(usage)?)
            }
        };
        let refused = match records {
            Ok(records) => append_all(app, session, args.format, number, &records, &mut labels)?,
            Err(error) => Some(error),
        };
        if let Some(error) = &refused {
            let line = number;
            app.out.json_line(&Refused { line, error })?;
            return Ok(Done::Badly);
        }
        app.out.flush()?;
    }
}

/// The title and the project, until they are stored.
type Labels<'a> = Option<(&'a Option<String>, &'a Option<String>)>;

/// Appends the records of a line. Returns the reason why a record is rejected.
fn append_all(
    app: &mut App,
    session: &SessionHandle,
    format: LineFormat,
    number: u64,
    records: &LineRecords,
    labels: &mut Labels<'_>,
) -> Result<Option<String>, CliError> {
    for record in &records.texts {
        let appended = append(session, format, record.as_bytes()).and_then(|appended| {
            // The session exists now.
            label(session, labels.take())?;
            Ok(appended)
        });
        match appended {
            Ok(appended) => {
                let receipt = receipt(number, session, &appended, &records.notes);
                app.out.json_line(&receipt)?;
            }
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}

/// The records of a line: mostly one.
struct LineRecords {
    texts: Vec<String>,
    /// The repairs, and the values that were skipped.
    notes: Vec<String>,
}

impl LineRecords {
    /// Splits a line into records. A line that cannot be read as JSON values is one record, which fails as a whole.
    fn of(line: JsonLine) -> Self {
        let mut notes = line.repairs.clone();
        let texts = match line.values() {
            Ok((texts, skipped)) if !texts.is_empty() => {
                notes.extend(skipped);
                texts
            }
            _ => vec![line.text],
        };
        Self { texts, notes }
    }
}

/// Stores the title and the project, if they were given.
fn label(session: &SessionHandle, labels: Labels<'_>) -> Result<(), String> {
    let (title, project) = labels.unwrap_or((&None, &None));
    let failed = |error: loopstore::Error| with_causes(&error);
    if let Some(title) = title {
        session.set_title(title).map_err(failed)?;
    }
    if let Some(project) = project {
        session.set_project(project).map_err(failed)?;
    }
    Ok(())
}

/// Appends the messages of a line.
fn append(session: &SessionHandle, format: LineFormat, line: &[u8]) -> Result<Appended, String> {
    let Keyed { key, messages } = Keyed::of(line).map_err(|error| match error.classify() {
        Category::Syntax | Category::Eof => format!("the line is not JSON: {error}"),
        Category::Data | Category::Io => error.to_string(),
    })?;
    let messages = messages_of(format, messages.get())?;
    let appended = match key {
        Some(key) => session.append_once(&key, messages),
        None => session.append(messages),
    };
    appended.map_err(|error| with_causes(&error))
}

fn messages_of(format: LineFormat, text: &str) -> Result<Vec<AgentMessage>, String> {
    let form = match format {
        LineFormat::Loopstore => {
            return provider::read_own(text).map_err(|error| error.to_string());
        }
        LineFormat::Openai => Form::OpenAiChat,
        LineFormat::Responses => Form::OpenAiResponses,
        LineFormat::Anthropic => Form::Anthropic,
    };
    provider::read_str(form, text).map_err(|error| with_causes(&error))
}

fn receipt<'a>(
    line: u64,
    session: &'a SessionHandle,
    appended: &'a Appended,
    repaired: &[String],
) -> LineReceipt<'a> {
    let range = |of: &Range<u32>| (!of.is_empty()).then(|| [of.start, of.end - 1]);
    let notes = repaired.iter().chain(&appended.notes).cloned().collect();
    LineReceipt {
        line,
        session_id: session.id(),
        loop_id: &appended.loop_id,
        turns: range(&appended.turns),
        seqs: range(&appended.seqs),
        tokens: appended.tokens,
        duplicate: appended.duplicate,
        notes,
    }
}
