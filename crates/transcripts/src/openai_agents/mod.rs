//! OpenAI's agents SDK: the SQLite file of `SQLiteSession`, whose rows contain items of the Responses API.
//!
//! A message of the user begins a loop; consecutive output items of the model are one answer. A loop is named after its
//! first row, whose number the SDK never reuses: after a session was cleared or its newest row removed, later messages
//! are never taken for the removed ones. In a conversation with branches, the branch that was written last is current
//! ([`branches`]). The file is read in place, since its write-ahead log may contain the newest rows.

mod branches;
mod database;
mod emit;

use std::ops::ControlFlow;
use std::path::Path;

use loopstore::extend::StoreError;
use loopstore::model::Time;

use self::database::{AgentFile, AgentSession};
use self::emit::AgentsEmitter;
use super::transcript::{self, Style, TranscriptBuilder};
use super::values::session_id;
use super::{
    Identity, ImportError, Importer, SQLITE_MAGIC, SessionHead, Sink, Source, holds_conversation,
};

/// Reads the sessions of OpenAI's agents SDK.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiAgents;

/// The name of the format, also used for agents.
const TOOL: &str = "openai-agents";

impl Importer for OpenAiAgents {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        head.starts_with(SQLITE_MAGIC) && AgentFile::open(path).is_ok()
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let file = AgentFile::open(source.path).map_err(ImportError::NoTranscript)?;
        let sessions = file.sessions().map_err(ImportError::NoTranscript)?;
        let mut any = false;
        for session in sessions {
            any |= self.session(&file, session, sink)?;
        }
        holds_conversation(any)
    }
}

impl OpenAiAgents {
    fn session(
        &self,
        file: &AgentFile,
        session: AgentSession,
        sink: &mut dyn Sink,
    ) -> Result<bool, ImportError> {
        let transcript = TranscriptBuilder::new(sink, head(&session)?, Style::Document);
        let mut emitter = AgentsEmitter::new(transcript, file, &session.id);
        match file.branches(&session.id) {
            Ok(Some(branches)) => emitter.branched(branches)?,
            Ok(None) => in_order(file, &session.id, &mut emitter)?,
            Err(reason) => {
                emitter.skip(format!("its branches cannot be read: {reason}"));
                in_order(file, &session.id, &mut emitter)?;
            }
        }
        emitter.end()
    }
}

/// Reads a conversation row by row.
fn in_order(
    file: &AgentFile,
    session: &str,
    emitter: &mut AgentsEmitter<'_>,
) -> Result<(), ImportError> {
    let mut failed = None;
    let read = file.items(session, &mut |item| {
        failed = emitter.row(item).err();
        Ok(match failed {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if let Err(reason) = read.map_err(|error: StoreError| ImportError::from(error))? {
        emitter.skip(reason);
    }
    Ok(())
}

fn head(session: &AgentSession) -> Result<SessionHead, ImportError> {
    let own = session_id(Some(session.id.clone()));
    let placeholder = session_id(Some(TOOL.to_owned()));
    let id = own.clone().or(placeholder);
    let id = id.ok_or_else(|| ImportError::NoTranscript("a session without an id".into()))?;
    let created = session.created_at.as_deref().map(time);
    let mut head = transcript::session(id, TOOL, created);
    head.last_active_at = session.updated_at.as_deref().map(time);
    Ok(SessionHead {
        identity: own.map_or_else(|| Identity::Key("0".into()), Identity::Own),
        session: head,
        title: None,
        project: None,
    })
}

/// Converts a time of SQLite, which is in UTC and has a space between date and time.
fn time(text: &str) -> Time {
    let iso = format!("{}Z", text.replacen(' ', "T", 1));
    let read = Time::from_text(iso.as_str());
    match read.parse() {
        Some(_) => read,
        None => Time::from_text(text),
    }
}
