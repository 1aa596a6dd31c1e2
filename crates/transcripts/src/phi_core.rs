//! phi-core's session documents, which are also loopstore's interchange form: one session per file, a list of sessions,
//! or one per line.
//!
//! Parent loops come first. A message or a loop that cannot be read is left out and reported. Of a session or a loop,
//! only the unreadable field is left out; its value is kept in the extra field `unreadable`.

mod lenient;
mod order;

use std::collections::HashMap;
use std::path::Path;

use loopstore::model::{AgentMessage, Content, Json, LoopId, LoopRecord, Message, Session};
use serde_json::value::RawValue;

use super::fields::{Fields, list, reason, shown, some};
use super::json_stream::{JsonStream, LineCounter, StreamItem};
use super::key_outline::KeyOutline;
use super::values::redacted_thinking;
use super::{
    FoundCompaction, FoundEffect, Identity, ImportError, Importer, MAX_RECORD_BYTES, SessionHead,
    Sink, Source,
};

/// Reads phi-core's session documents.
#[derive(Clone, Copy, Debug, Default)]
pub struct PhiCore;

impl Importer for PhiCore {
    fn format(&self) -> &'static str {
        "phi-core"
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let outline = KeyOutline::of(head);
        ["", "[]."].iter().any(|at| is_session(&outline, at))
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let path = source.path;
        let mut sessions = 0;
        let mut pieces = JsonStream::new(source)?;
        while let Some(piece) = pieces.next()? {
            sessions += u64::from(import_piece(piece, sink)?);
        }
        match sessions {
            0 => Err(ImportError::NoTranscript(format!(
                "{} holds no session",
                path.display()
            ))),
            _ => Ok(()),
        }
    }
}

fn is_session(outline: &KeyOutline, at: &str) -> bool {
    const KEYS: [&str; 7] = [
        "agent_id",
        "created_at",
        "formation",
        "last_active_at",
        "loops",
        "scope",
        "session_id",
    ];
    let has = |key: &str| outline.has(&format!("{at}{key}"));
    has("loops[].loop_id")
        || has("session_id") && has("loops")
        || KEYS.iter().filter(|key| has(key)).count() >= 3
}

/// Imports one document. Returns true if it contains a session.
fn import_piece(piece: StreamItem, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let read = piece.text.map_err(str::to_owned);
    let text = match &read {
        Ok(text) => text,
        Err(reason) => {
            sink.skip(Some(piece.line), reason.clone());
            return Ok(false);
        }
    };
    let mut document = PhiTranscript {
        lines: LineCounter::new(text, piece.line),
        sink,
    };
    match document.session(text) {
        Ok((head, loops)) => {
            document.sink.session(head)?;
            document.loops(loops)?;
            document.sink.end_document()?;
            Ok(true)
        }
        Err(reason) => {
            sink.skip(Some(piece.line), reason);
            Ok(false)
        }
    }
}

/// A loop as it is in the document.
struct RawLoop<'a> {
    text: &'a str,
    loop_id: LoopId,
    fields: Fields<'a>,
    messages: Vec<&'a RawValue>,
}

struct PhiTranscript<'a, 'b> {
    lines: LineCounter<'a>,
    sink: &'b mut dyn Sink,
}

impl<'a> PhiTranscript<'a, '_> {
    fn skip(&mut self, part: &str, reason: String) {
        let line = self.lines.of(part);
        self.sink.skip(Some(line), reason);
    }

    fn session(&mut self, text: &'a str) -> Result<(SessionHead, Vec<&'a RawValue>), String> {
        let mut fields = Fields::parse(text)?;
        let loops = fields.take("loops");
        if loops.is_some() {
            fields.set("loops", empty_list()?);
        }
        let (mut session, bad) = lenient::read::<Session>(&mut fields, "session_id")?;
        for reason in bad.keep_in(&mut session.extra) {
            self.skip(text, format!("the session's {reason}"));
        }
        let found = some(loops).map(|loops| list(loops).ok_or(loops));
        let loops = found.unwrap_or(Ok(Vec::new())).unwrap_or_else(|loops| {
            self.skip(loops.get(), "its `loops` are not a list".into());
            Vec::new()
        });
        let identity = Identity::Own(session.session_id.clone());
        let label = |name| session.extra.get(name).and_then(|text| text.read().ok());
        let (title, project) = (label("title"), label("project"));
        Ok((
            SessionHead {
                identity,
                session,
                title,
                project,
            },
            loops,
        ))
    }

    fn loops(&mut self, raw: Vec<&'a RawValue>) -> Result<(), ImportError> {
        let mut loops = self.distinct(raw);
        let at: HashMap<&str, usize> = loops
            .iter()
            .enumerate()
            .map(|(at, raw)| (raw.loop_id.as_str(), at))
            .collect();
        let parents: Vec<Option<usize>> = loops
            .iter()
            .map(|raw| at.get(parent_of(&raw.fields)?.as_str()).copied())
            .collect();
        for (at, cut) in order::parents_first(&parents) {
            self.one_loop(&mut loops[at], cut)?;
        }
        Ok(())
    }

    /// Returns the loops of the document; of two loops with one id, the one with more messages.
    fn distinct(&mut self, raw: Vec<&'a RawValue>) -> Vec<RawLoop<'a>> {
        let mut loops: Vec<RawLoop<'a>> = Vec::new();
        let mut known: HashMap<LoopId, usize> = HashMap::new();
        for (nth, raw) in raw.into_iter().enumerate() {
            let mut found = match self.read_loop(raw) {
                Ok(found) => found,
                Err(reason) => {
                    self.skip(raw.get(), format!("loop {}: {reason}", nth + 1));
                    continue;
                }
            };
            let Some(at) = known.get(&found.loop_id).copied() else {
                known.insert(found.loop_id.clone(), loops.len());
                loops.push(found);
                continue;
            };
            if found.messages.len() > loops[at].messages.len() {
                std::mem::swap(&mut found, &mut loops[at]);
            }
            let (id, kept) = (shown(found.loop_id.as_str()), loops[at].messages.len());
            let reason = format!(
                "loop `{id}` is listed twice: the one with {kept} messages replaces the one with {}",
                found.messages.len()
            );
            self.skip(found.text, reason);
        }
        loops
    }

    fn read_loop(&mut self, raw: &'a RawValue) -> Result<RawLoop<'a>, String> {
        let mut fields = Fields::parse(raw.get())?;
        let id = fields.get("loop_id").ok_or("it has no loop_id")?;
        let loop_id: LoopId = serde_json::from_str(id.get())
            .map_err(|error| format!("its loop_id: {}", reason(error)))?;
        let value = fields.take("messages");
        if value.is_some() {
            fields.set("messages", empty_list()?);
        }
        let messages = match some(value).map(|value| list(value).ok_or(value)) {
            Some(Ok(messages)) => messages,
            None => Vec::new(),
            Some(Err(value)) => {
                let id = shown(loop_id.as_str());
                self.skip(
                    value.get(),
                    format!("loop `{id}`: its `messages` are not a list"),
                );
                Vec::new()
            }
        };
        Ok(RawLoop {
            text: raw.get(),
            loop_id,
            fields,
            messages,
        })
    }

    fn one_loop(&mut self, raw: &mut RawLoop<'a>, cut: bool) -> Result<(), ImportError> {
        let id = shown(raw.loop_id.as_str());
        let own = raw.fields.get("compaction_block").map(RawValue::get);
        let (mut record, bad) = match lenient::read::<LoopRecord>(&mut raw.fields, "loop_id") {
            Ok(read) => read,
            Err(reason) => {
                self.skip(raw.text, format!("loop `{id}`: {reason}"));
                return Ok(());
            }
        };
        for reason in bad.keep_in(&mut record.extra) {
            self.skip(raw.text, format!("loop `{id}`: {reason}"));
        }
        if let Some(parent) = record.parent_loop_id.take_if(|_| cut) {
            record
                .extra
                .insert("parent_loop_id_cut", Json::string(parent.as_str()));
            let reason = format!("loop `{id}` descends from itself: the link to its parent is cut");
            self.skip(raw.text, reason);
        }
        let block = record.compaction_block.take();
        self.sink.begin_loop(record)?;
        self.messages(raw)?;
        let Some(block) = block else { return Ok(()) };
        self.sink.compaction(FoundCompaction {
            loop_id: raw.loop_id.clone(),
            strategy: "phi-core".into(),
            trigger: None,
            at: block.created_at.clone(),
            record: own
                .and_then(|own| Json::parse(own).ok())
                .unwrap_or_default(),
            effect: FoundEffect::Block(Box::new(block)),
        })
    }

    fn messages(&mut self, raw: &RawLoop<'a>) -> Result<(), ImportError> {
        for (nth, text) in raw.messages.iter().map(|raw| raw.get()).enumerate() {
            match read_message(text) {
                Ok((message, json)) => {
                    self.sink
                        .message(&raw.loop_id, message, json.as_str().as_bytes())?;
                }
                Err(reason) => {
                    let id = shown(raw.loop_id.as_str());
                    self.skip(
                        text,
                        format!("message {} of loop `{id}`: {reason}", nth + 1),
                    );
                }
            }
        }
        Ok(())
    }
}

fn read_message(text: &str) -> Result<(AgentMessage, Json), String> {
    if text.len() > MAX_RECORD_BYTES {
        return Err("longer than 64 MiB".into());
    }
    let json = Json::parse(text).map_err(reason)?;
    let mut message: AgentMessage = json.read().map_err(reason)?;
    let content = message.message_mut().map(Message::content_mut);
    for block in content.into_iter().flatten() {
        if let Content::Other(other) = block
            && let Some(sealed) = redacted_thinking(other)
        {
            *block = sealed;
        }
    }
    Ok((message, json))
}

fn parent_of(fields: &Fields<'_>) -> Option<String> {
    serde_json::from_str(fields.get("parent_loop_id")?.get()).ok()
}

fn empty_list() -> Result<&'static RawValue, String> {
    serde_json::from_str("[]").map_err(reason)
}
