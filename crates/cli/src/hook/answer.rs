//! What each agent gets for each event.
//!
//! Claude Code and Codex summarise by themselves, and take context at the start of the session that goes on
//! from the summary. pi takes a whole compaction from its extension, OpenCode what its summary is to hold.

use std::path::PathBuf;

use loopstore::SessionId;
use loopstore_export::NativeAgent;
use serde_json::json;

use super::input::{self, Event, InputError};
use super::log::Entry;
use super::{Args, codex, handback, record};
use crate::App;
use crate::error::CliError;

/// The most tokens that are handed back after a compaction.
const HANDED_BACK: u64 = 1_000;
/// The most tokens of a working state that stands in for an agent's own summary.
const IN_PLACE: u64 = 4_000;

/// What an event asks for, beside recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Nothing.
    Nothing,
    /// Nothing, and there may be no transcript yet, or none at all.
    NothingYet,
    /// What the agent's summary lost, as Claude Code and Codex take it.
    HandBack,
    /// The working state, under this key.
    InPlace(&'static str),
}

impl Wanted {
    fn of(agent: NativeAgent, event: &str, details: &Event) -> Self {
        let is_compacted = details.source.as_deref() == Some("compact");
        match (agent, event) {
            (NativeAgent::Pi, "session_before_compact") => Self::InPlace("summary"),
            (NativeAgent::OpenCode, "experimental.session.compacting") => Self::InPlace("context"),
            (NativeAgent::ClaudeCode | NativeAgent::Codex, "SessionStart") if is_compacted => {
                Self::HandBack
            }
            (NativeAgent::ClaudeCode | NativeAgent::Codex, "SessionStart" | "SessionEnd")
            | (NativeAgent::Pi, "session_shutdown") => Self::NothingYet,
            _ => Self::Nothing,
        }
    }

    /// Whether the record must be complete before the answer.
    fn waits(self) -> bool {
        matches!(self, Self::HandBack | Self::InPlace(_))
    }
}

/// Records what the event tells of, and returns what the agent gets.
pub fn to(app: &mut App, args: &Args, entry: &mut Entry) -> Result<Option<String>, CliError> {
    let bytes = match &args.details {
        Some(details) => details.clone().into_bytes(),
        None => input::read(args.agent).map_err(failed)?,
    };
    if args.detached {
        let paths: Vec<PathBuf> = serde_json::from_slice(&bytes)?;
        record::detached(app, args.agent, &paths, entry)?;
        return Ok(None);
    }
    let event = match args.agent {
        NativeAgent::OpenCode => Event::of_export(&bytes),
        _ => Event::parse(&bytes),
    };
    let event = event.map_err(failed)?;
    let wanted = Wanted::of(args.agent, &args.event, &event);
    let session = event.session_id().map_err(failed)?;
    let recorded = recorded(app, args, &event, &bytes, wanted, entry);
    // What is recorded already helps the agent even if nothing came in now.
    if let Err(error) = &recorded {
        entry.fail(error.reason(), error.hint());
    }
    let session = recorded
        .ok()
        .flatten()
        .or_else(|| SessionId::new(session?).ok());
    let Some(session) = session else {
        return Ok(None);
    };
    match wanted {
        Wanted::Nothing | Wanted::NothingYet => Ok(None),
        Wanted::HandBack => {
            let text = handback::after_compaction(&*app.open_to_read()?, &session, HANDED_BACK)?;
            Ok(text.map(|text| {
                json!({"hookSpecificOutput": {
                    "hookEventName": "SessionStart", "additionalContext": text}})
                .to_string()
            }))
        }
        Wanted::InPlace(key) => {
            let text = handback::in_place(&*app.open_to_read()?, &session, IN_PLACE)?;
            Ok(text.map(|text| json!({ key: text }).to_string()))
        }
    }
}

/// Records, and returns the session if the transcript alone says which it is.
fn recorded(
    app: &App,
    args: &Args,
    event: &Event,
    bytes: &[u8],
    wanted: Wanted,
    entry: &mut Entry,
) -> Result<Option<SessionId>, CliError> {
    if args.agent == NativeAgent::OpenCode {
        return record::export(app, bytes, entry);
    }
    let may_lack = wanted == Wanted::NothingYet;
    let mut paths = event.transcripts(may_lack).map_err(failed)?;
    if paths.is_empty() && args.agent == NativeAgent::Codex {
        // `notify` names only the session.
        let id = event.session_id().map_err(failed)?;
        paths.extend(id.and_then(codex::transcript_of));
    }
    if paths.is_empty() && !may_lack {
        let text = format!(
            "the event {} named no transcript",
            args.event.escape_debug()
        );
        return Err(CliError::Failed(text.into()));
    }
    let session = event.session_id().map_err(failed)?;
    let session = session.and_then(|id| SessionId::new(id).ok());
    let request = record::Request {
        args,
        paths: &paths,
        session: session.as_ref(),
        waits: wanted.waits(),
        keeps: may_lack || args.event == "PreCompact",
    };
    record::transcripts(app, &request, entry)
}

fn failed(error: InputError) -> CliError {
    CliError::Failed(Box::new(error))
}
