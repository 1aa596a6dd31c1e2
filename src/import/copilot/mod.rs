//! Copilot CLI: one JSON event `{type, data, id, timestamp, parentId}` a line, in the order of what
//! happened.
//!
//! What was said and what tools gave back become messages; all other events are kept as they are.
//! Events of a sub-agent name the call that started it (`parentToolCallId`): each sub-agent is a
//! session of its own.

mod messages;

use std::collections::HashMap;
use std::path::Path;

use self::messages::Said;
use super::blocks::{note, object, text, unreadable};
use super::fields::Fields;
use super::lines::{Found, Lines, Place};
use super::outline::Outline;
use super::telling::{Telling, identity, session};
use super::{
    FoundEffect, Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation,
};
use crate::model::{ChildLoopRef, Json, ParentSpawnRef, SessionId, Time};

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
        let mut reader = Reader {
            tracks: vec![Track {
                call: None,
                telling: Telling::new(head),
            }],
            by_call: HashMap::new(),
            current: 0,
        };
        let mut lines = Lines::new(&mut *source.reader).map_err(|error| failed(path, error))?;
        while let Some((place, found)) = lines.next().map_err(|error| failed(path, error))? {
            reader.line(place, found, sink)?;
        }
        holds_conversation(reader.finish(sink)?)
    }
}

fn failed(path: &Path, source: std::io::Error) -> ImportError {
    ImportError::Read {
        path: path.to_owned(),
        source,
    }
}

/// Whether a line (maybe cut) can only be Copilot's.
fn looks_like_an_event(line: &[u8]) -> bool {
    const OTHERS: [&str; 6] = [
        "customType",
        "uuid",
        "payload",
        "message",
        "source",
        "loops",
    ];
    let keys = Outline::of(line);
    let is_event = keys.has("type") && keys.has("data");
    // A first line may be cut before the fields that come after `data`.
    let is_start = keys.has("data.sessionId") && keys.has("data.copilotVersion");
    let is_whole = keys.has("id") && keys.has("timestamp") && keys.has("parentId");
    is_event && (is_start || is_whole) && !OTHERS.iter().any(|key| keys.has(key))
}

/// Reads which session it is and how long it went on.
fn read_head(source: &mut Source<'_>) -> Result<SessionHead, ImportError> {
    let path = source.path;
    let (mut own, mut started, mut ended) = (None, None, None);
    let mut lines = Lines::new(&mut *source.reader).map_err(|error| failed(path, error))?;
    while let Some((_, found)) = lines.next().map_err(|error| failed(path, error))? {
        let Found::Value(json) = found else { continue };
        let Ok(event) = Fields::parse(json) else {
            continue;
        };
        if own.is_none() {
            own = session_in(&event);
        }
        if let Some(time) = text(event.get("timestamp")).filter(|t| is_time(t)) {
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
        title: None,
    })
}

fn is_time(text: &str) -> bool {
    Time::from_text(text).millis().is_some()
}

/// Returns the session that an event names: its own, or that of a hook's input.
fn session_in(event: &Fields<'_>) -> Option<String> {
    let data = object(event.get("data"))?;
    let input = || object(data.get("input"));
    text(data.get("sessionId")).or_else(|| text(input()?.get("sessionId")))
}

/// The events of a session lie in a folder with its id.
fn id_of_folder(path: &Path) -> Option<String> {
    let name = path.parent()?.file_name()?.to_str()?;
    uuid::Uuid::try_parse(name).ok()?;
    Some(name.to_owned())
}

/// The session of the file, or of a sub-agent.
struct Track {
    /// The call that started it.
    call: Option<String>,
    telling: Telling,
}

struct Reader {
    /// That of the file first.
    tracks: Vec<Track>,
    by_call: HashMap<String, usize>,
    /// The one told of last.
    current: usize,
}

impl Reader {
    fn line(
        &mut self,
        place: Place,
        found: Found<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let (bytes, reason) = match found {
            Found::Value(json) => match Fields::parse(json) {
                Ok(event) => return self.event(json, event, place, sink),
                Err(reason) => (json.as_bytes(), reason),
            },
            Found::Unreadable { bytes, reason, cut } => {
                // The writer may not be done with the last line: kept now, it would come again.
                (if cut { &[] } else { bytes }, reason)
            }
        };
        sink.skip(Some(place.line), reason);
        match bytes.is_empty() {
            true => Ok(()),
            false => {
                self.turn_to(0, sink)?;
                self.tracks[0].telling.note(unreadable(bytes), bytes, sink)
            }
        }
    }

    fn event(
        &mut self,
        json: &str,
        event: Fields<'_>,
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let kind = text(event.get("type"));
        let id = text(event.get("id")).unwrap_or_else(|| format!("line-{}", place.line));
        let time = text(event.get("timestamp")).filter(|t| is_time(t));
        let data = object(event.get("data"));
        let call = data.and_then(|data| text(data.get("parentToolCallId")));
        let said = messages::read(event, place.line).unwrap_or_else(|reason| {
            sink.skip(Some(place.line), reason);
            Said::Note
        });
        let track = match call {
            Some(call) if !matches!(said, Said::Note) => self.track_of(call),
            Some(call) => self.by_call.get(&call).copied().unwrap_or(0),
            None => 0,
        };
        self.turn_to(track, sink)?;
        let telling = &mut self.tracks[track].telling;
        telling.at(time.map(Time::from_text));
        let raw = json.as_bytes();
        let is_new = telling.here().is_none();
        match said {
            Said::Note => telling.note(note(kind.as_deref(), json), raw, sink)?,
            Said::System(message) => telling.note(message, raw, sink)?,
            Said::Prompt(message) => telling.prompt(id, message, raw, sink)?,
            Said::Answer(message) => telling.answer(|| id, message, raw, sink)?,
            Said::Result(call, message) => {
                let name = telling.tool_name(&call).unwrap_or_default();
                let message = messages::named(message, name);
                telling.result(&call, || id, message, raw, sink)?;
            }
            Said::Abort => {
                telling.note(note(kind.as_deref(), json), raw, sink)?;
                telling.interrupted();
            }
            Said::Compaction(_) if is_new => {
                telling.note(note(kind.as_deref(), json), raw, sink)?;
            }
            Said::Compaction(message) => {
                let effect = FoundEffect::Summary {
                    messages: vec![message],
                    first_kept: None,
                };
                let record = Json::parse(json).unwrap_or_default();
                telling.compaction(TOOL, None, effect, record, sink)?;
            }
        }
        if is_new && track > 0 {
            self.link(track);
        }
        Ok(())
    }

    /// Makes the session of a track the one that is told of.
    fn turn_to(&mut self, track: usize, sink: &mut dyn Sink) -> Result<(), ImportError> {
        if track == self.current {
            return Ok(());
        }
        self.current = track;
        self.tracks[track].telling.resume(sink)
    }

    /// Returns the track of the sub-agent that a call started.
    fn track_of(&mut self, call: String) -> usize {
        if let Some(track) = self.by_call.get(&call) {
            return *track;
        }
        let main = &self.tracks[0].telling;
        let parent = main.head().session.session_id.clone();
        let name = format!("{parent}/agent-{call}");
        let id = SessionId::new(name).unwrap_or_else(|_| SessionId::generate());
        let mut session = session(id.clone(), TOOL, None);
        let site = main.site(&call);
        session.parent_spawn_ref = Some(ParentSpawnRef {
            parent_session_id: parent,
            parent_loop_id: site.map(|(_, loop_id)| loop_id.clone()),
            tool_call_id: Some(call.clone()),
            tool_name: site.map(|(name, _)| name.to_owned()),
            extra: Default::default(),
        });
        let identity = match &main.head().identity {
            Identity::Own(_) => Identity::Own(id),
            Identity::Key(key) | Identity::Series(key) => {
                Identity::Key(format!("{key}/agent-{call}"))
            }
        };
        let telling = Telling::new(SessionHead {
            identity,
            session,
            title: None,
        });
        self.tracks.push(Track {
            call: Some(call.clone()),
            telling,
        });
        self.by_call.insert(call, self.tracks.len() - 1);
        self.tracks.len() - 1
    }

    /// Notes in the main session which loop a call started.
    fn link(&mut self, track: usize) {
        let child = &self.tracks[track];
        let (Some(call), Some(loop_id)) = (child.call.clone(), child.telling.loop_id(0)) else {
            return;
        };
        let session = child.telling.head().session.session_id.clone();
        let child_ref = ChildLoopRef {
            tool_name: self.tracks[0].telling.tool_name(&call).map(str::to_owned),
            tool_call_id: Some(call.clone()),
            child_loop_id: loop_id.clone(),
            child_session_id: Some(session),
            extra: Default::default(),
        };
        self.tracks[0].telling.started(&call, child_ref);
    }

    fn finish(&mut self, sink: &mut dyn Sink) -> Result<bool, ImportError> {
        let mut any = false;
        for track in (0..self.tracks.len()).rev() {
            self.turn_to(track, sink)?;
            any |= self.tracks[track].telling.finish(sink)?;
        }
        Ok(any)
    }
}
