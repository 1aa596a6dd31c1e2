//! The answers to the events of each agent.
//!
//! Claude Code and Codex write summaries themselves, and accept additional context at the start of the session that
//! continues from the summary. pi accepts a whole compaction from its extension, and OpenCode the content of its
//! summary.

use std::path::PathBuf;

use loopstore::SessionId;
use loopstore_export::NativeAgent;
use loopstore_terminal::{App, CliError};
use serde_json::json;

use super::input::{self, HookEvent, InputError};
use super::log::HookEntry;
use super::{HookCall, codex, handback, record};

/// The maximum number of tokens of the handback after a compaction.
const HANDED_BACK: u64 = 1_000;
/// The maximum number of tokens of a working state that replaces an agent's own summary.
const IN_PLACE: u64 = 4_000;

/// The answer to an event, in addition to the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// No answer.
    Nothing,
    /// No answer, and the transcript may not exist.
    NothingYet,
    /// The working state that the agent's summary may lack, in the form of Claude Code and Codex.
    HandBack,
    /// The working state, under this key.
    InPlace(&'static str),
}

impl Wanted {
    fn of(agent: NativeAgent, event: &str, details: &HookEvent) -> Self {
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

    /// True if the record must be complete before the answer.
    fn waits(self) -> bool {
        matches!(self, Self::HandBack | Self::InPlace(_))
    }
}

/// Records the transcripts of the event, and returns the answer for the agent.
pub fn answer(
    app: &mut App,
    call: &HookCall,
    entry: &mut HookEntry,
) -> Result<Option<String>, CliError> {
    let bytes = match &call.details {
        Some(details) => details.clone().into_bytes(),
        None => input::read(call.agent).map_err(failed)?,
    };
    if call.detached {
        let paths: Vec<PathBuf> = serde_json::from_slice(&bytes)?;
        record::detached(app, call.agent, &paths, entry)?;
        return Ok(None);
    }
    let event = match call.agent {
        NativeAgent::OpenCode => HookEvent::of_export(&bytes),
        _ => HookEvent::parse(&bytes),
    };
    let event = event.map_err(failed)?;
    let wanted = Wanted::of(call.agent, &call.event, &event);
    let session = event.session_id().map_err(failed)?;
    let recorded = recorded(app, call, &event, &bytes, wanted, entry);
    // Earlier records help the agent even if this event could not be recorded.
    if let Err(error) = &recorded {
        entry.fail(error.reason(), app.hint(error));
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

/// Records, and returns the session if only the transcript identifies it.
fn recorded(
    app: &App,
    call: &HookCall,
    event: &HookEvent,
    bytes: &[u8],
    wanted: Wanted,
    entry: &mut HookEntry,
) -> Result<Option<SessionId>, CliError> {
    if call.agent == NativeAgent::OpenCode {
        return record::export(app, bytes, entry);
    }
    let may_lack = wanted == Wanted::NothingYet;
    let mut paths = event.transcripts(may_lack).map_err(failed)?;
    if paths.is_empty() && call.agent == NativeAgent::Codex {
        // `notify` passes only the id of the session.
        let id = event.session_id().map_err(failed)?;
        paths.extend(id.and_then(codex::transcript_of));
    }
    if paths.is_empty() && !may_lack {
        let text = format!(
            "the event {} named no transcript",
            call.event.escape_debug()
        );
        return Err(CliError::Failed(text.into()));
    }
    let session = event.session_id().map_err(failed)?;
    let session = session.and_then(|id| SessionId::new(id).ok());
    let request = record::RecordRequest {
        call,
        paths: &paths,
        session: session.as_ref(),
        waits: wanted.waits(),
        keeps: may_lack || call.event == "PreCompact",
    };
    record::transcripts(app, &request, entry)
}

fn failed(error: InputError) -> CliError {
    CliError::Failed(Box::new(error))
}
