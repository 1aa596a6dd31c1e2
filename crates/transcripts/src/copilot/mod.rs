//! Copilot CLI: one JSON event `{type, data, id, timestamp, parentId}` per line, in the order of the events.
//!
//! Prompts, answers and results become messages; all other events are kept unchanged. The events of a sub-agent name
//! the call that started it (`parentToolCallId`). Each sub-agent is a session of its own.

mod messages;

use std::collections::HashMap;
use std::path::Path;

use loopstore::model::{ChildLoopRef, Json, ParentSpawnRef, SessionId, Time};

use self::messages::CopilotRecord;
use super::extension::{extension_of, unreadable};
use super::fields::Fields;
use super::key_outline::KeyOutline;
use super::records::{RecordLine, RecordStream};
use super::transcript::{Style, TranscriptBuilder, identity, session};
use super::{
    FoundEffect, Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation,
};
use crate::values::text_of;

/// The name of the tool, for compactions and agents.
const TOOL: &str = "copilot-cli";

/// Reads the events of Copilot CLI.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopilotCli;

impl Importer for CopilotCli {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let mut lines = head.split(|byte| *byte == b'\n').take(20);
        lines.any(looks_like_an_event)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let path = source.path;
        let head = read_head(source)?;
        let mut reader = CopilotReader {
            transcript: TranscriptBuilder::new(sink, head, Style::Log),
            by_call: HashMap::new(),
        };
        let mut records = RecordStream::new(path, &mut *source.reader)?;
        while let Some((location, line)) = records.next()? {
            reader.line(location.line, line)?;
        }
        holds_conversation(reader.transcript.finish()?)
    }
}

/// True if a line, which may be truncated, can only be Copilot's.
fn looks_like_an_event(line: &[u8]) -> bool {
    const OTHERS: [&str; 6] = [
        "customType",
        "uuid",
        "payload",
        "message",
        "source",
        "loops",
    ];
    let keys = KeyOutline::of(line);
    let is_event = keys.has("type") && keys.has("data");
    // The first line may be truncated before the fields after `data`.
    let is_start = keys.has("data.sessionId") && keys.has("data.copilotVersion");
    let is_whole = keys.has("id") && keys.has("timestamp") && keys.has("parentId");
    is_event && (is_start || is_whole) && !OTHERS.iter().any(|key| keys.has(key))
}

/// Reads the id and the last activity of the session.
fn read_head(source: &mut Source<'_>) -> Result<SessionHead, ImportError> {
    let path = source.path;
    let (mut own, mut started, mut ended) = (None, None, None);
    let (mut title, mut project) = (None, None);
    let mut records = RecordStream::new(path, &mut *source.reader)?;
    while let Some((_, line)) = records.next()? {
        let RecordLine::Record(_, event) = line else {
            continue;
        };
        if own.is_none() {
            own = session_in(&event);
        }
        match event.text("type").as_deref() {
            Some("session.title_changed") => {
                title = event.object("data").text("title").or(title);
            }
            _ if project.is_none() => project = folder_of(&event),
            _ => {}
        }
        if let Some(time) = event.text("timestamp").filter(|t| is_time(t)) {
            started.get_or_insert_with(|| time.clone());
            ended = Some(time);
        }
    }
    let own = own.or_else(|| id_of_folder(path));
    let (identity, id) = identity(path, own.as_deref());
    let mut session = session(id, TOOL, started.map(Time::from_text));
    session.last_active_at = ended.map(Time::from_text);
    Ok(SessionHead {
        identity,
        session,
        title,
        project,
    })
}

fn is_time(text: &str) -> bool {
    Time::from_text(text).millis().is_some()
}

/// Returns the folder in which the session began, if the event names it.
fn folder_of(event: &Fields<'_>) -> Option<String> {
    event.child("data")?.child("context")?.text("cwd")
}

/// Returns the session that an event names: its own, or that of the input of a hook.
fn session_in(event: &Fields<'_>) -> Option<String> {
    let data = event.child("data")?;
    let input = || data.child("input");
    data.text("sessionId")
        .or_else(|| text_of(input()?.get("sessionId")))
}

/// Returns the id of the session from the name of the folder that contains its events.
fn id_of_folder(path: &Path) -> Option<String> {
    let name = path.parent()?.file_name()?.to_str()?;
    uuid::Uuid::try_parse(name).ok()?;
    Some(name.to_owned())
}

struct CopilotReader<'a> {
    transcript: TranscriptBuilder<'a>,
    /// The numbers of the sub-agents' sessions, by the calls that started them.
    by_call: HashMap<String, usize>,
}

impl CopilotReader<'_> {
    fn line(&mut self, number: u64, line: RecordLine<'_>) -> Result<(), ImportError> {
        let (reason, kept) = match line {
            RecordLine::Record(json, event) => return self.event(json, event, number),
            RecordLine::Bad { reason, kept } => (reason, kept),
        };
        self.transcript.skip(number, reason);
        if kept.is_empty() {
            return Ok(());
        }
        self.transcript.select(0)?;
        self.transcript.extension(unreadable(kept), kept)
    }

    fn event(&mut self, json: &str, event: Fields<'_>, line: u64) -> Result<(), ImportError> {
        let kind = event.text("type");
        let id = event.text("id").unwrap_or_else(|| format!("line-{line}"));
        let time = event.text("timestamp").filter(|t| is_time(t));
        let data = event.child("data");
        let call = data.and_then(|data| data.text("parentToolCallId"));
        let record = messages::read(event, line).unwrap_or_else(|reason| {
            self.transcript.skip(line, reason);
            CopilotRecord::Extension
        });
        let session = match &call {
            Some(call) if !matches!(record, CopilotRecord::Extension) => self.session_of(call),
            Some(call) => self.by_call.get(call).copied().unwrap_or(0),
            None => 0,
        };
        self.transcript.select(session)?;
        self.transcript.at(time.map(Time::from_text));
        let raw = json.as_bytes();
        let is_new = self.transcript.here().is_none();
        let kept = || extension_of(kind.as_deref(), json);
        match record {
            CopilotRecord::Message(message) => self.transcript.message(|| id, message, raw)?,
            CopilotRecord::Extension => self.transcript.extension(kept(), raw)?,
            CopilotRecord::Abort => {
                self.transcript.extension(kept(), raw)?;
                self.transcript.interrupted();
            }
            CopilotRecord::Compaction(_) if is_new => self.transcript.extension(kept(), raw)?,
            CopilotRecord::Compaction(message) => {
                let effect = FoundEffect::Summary {
                    messages: vec![message],
                    first_kept: None,
                };
                let record = Json::parse(json).unwrap_or_default();
                self.transcript.compaction(TOOL, effect, record)?;
            }
        }
        if let Some(call) = call.filter(|_| is_new && session > 0) {
            self.link(session, call);
        }
        Ok(())
    }

    /// Returns the session of the sub-agent that a call started.
    fn session_of(&mut self, call: &str) -> usize {
        if let Some(session) = self.by_call.get(call) {
            return *session;
        }
        let main = self.transcript.head(0);
        let (parent, project) = (main.session.session_id.clone(), main.project.clone());
        let name = format!("{parent}/agent-{call}");
        let id = SessionId::new(name).unwrap_or_else(|_| SessionId::generate());
        let mut session = session(id.clone(), TOOL, None);
        let site = self.transcript.call(0, call);
        session.parent_spawn_ref = Some(ParentSpawnRef {
            parent_session_id: parent,
            parent_loop_id: site.map(|(_, loop_id)| loop_id.clone()),
            tool_call_id: Some(call.to_owned()),
            tool_name: site.map(|(name, _)| name.to_owned()),
            extra: Default::default(),
        });
        let identity = match &main.identity {
            Identity::Own(_) => Identity::Own(id),
            Identity::Key(key) | Identity::Series(key) => {
                Identity::Key(format!("{key}/agent-{call}"))
            }
        };
        let number = self.transcript.add_session(SessionHead {
            identity,
            session,
            title: None,
            project,
        });
        self.by_call.insert(call.to_owned(), number);
        number
    }

    /// Records in the main session which loop a call started.
    fn link(&mut self, session: usize, call: String) {
        let Some(first) = self.transcript.loop_at(0) else {
            return;
        };
        let tool = self.transcript.call(0, &call).map(|(tool, _)| tool);
        let child = ChildLoopRef {
            tool_name: tool.map(str::to_owned),
            tool_call_id: Some(call.clone()),
            child_loop_id: first.id.clone(),
            child_session_id: Some(self.transcript.head(session).session.session_id.clone()),
            extra: Default::default(),
        };
        self.transcript.started(0, &call, child);
    }
}
