//! Chats in the form of OpenAI's API: lists of runs as tau-bench writes them (`{task_id, trial, reward, info, traj}`),
//! a list of messages, an object with `messages`, or one of these per line.
//!
//! A chat has no id: a run is identified by `task_id` and `trial`, else by its index in the file. A loop is a user
//! message and everything until the next. Fields of a message without a place in the model are kept in its extra field
//! `source`.

pub(super) mod message;

use std::path::Path;

use loopstore::model::{Extra, Json, LoopStatus, Role, Session, SessionId};
use serde_json::value::RawValue;

use super::fields::{Fields, list, reason, shown};
use super::json_stream::{JsonStream, LineCounter, LooseItems, StreamItem};
use super::key_outline::KeyOutline;
use super::signs::{is_bare_trajectory, is_task};
use super::transcript::{Style, TranscriptBuilder};
use super::{Identity, ImportError, Importer, MAX_RECORD_BYTES, SessionHead, Sink, Source};

/// Reads OpenAI chats.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChat;

impl Importer for OpenAiChat {
    fn format(&self) -> &'static str {
        "openai-chat"
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        let outline = KeyOutline::of(head);
        let known = ["", "[]."].iter().any(|at| is_chat(&outline, at)) || outline.has("[][].role");
        known && !is_bare_trajectory(head) && !is_task(path, head)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let path = source.path;
        let mut reader = ChatReader {
            sink,
            loose: LooseItems::new(),
            runs: 0,
            sessions: 0,
        };
        let mut pieces = JsonStream::new(source)?;
        while let Some(piece) = pieces.next()? {
            reader.piece(piece)?;
        }
        let ended = reader.loose.take();
        reader.loose_session(ended)?;
        match reader.sessions {
            0 => Err(ImportError::NoTranscript(format!(
                "{} holds no chat",
                path.display()
            ))),
            _ => Ok(()),
        }
    }
}

/// True if the object at `at` is a run, or a chat that no other format claims.
fn is_chat(outline: &KeyOutline, at: &str) -> bool {
    let has = |key: &str| outline.has(&format!("{at}{key}"));
    let run = has("traj") || has("task_id") && (has("trial") || has("reward"));
    let chat = has("messages[].role") || has("role") && has("content");
    run || chat && !is_others(outline, at)
}

/// True if the object at `at` has a field that identifies another format.
pub(super) fn is_others(outline: &KeyOutline, at: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "agent",
        "history",
        "info",
        "kwargs",
        "message_type",
        "projectHash",
        "response",
        "sessionId",
        "session_id",
        "source_message_count",
        "trajectory",
        "trajectory_format",
    ];
    OTHERS.iter().any(|key| outline.has(&format!("{at}{key}")))
}

/// A message as it is in the file, with its line.
type ChatRecord = (u64, Result<Json, String>);

struct ChatReader<'a> {
    sink: &'a mut dyn Sink,
    /// Messages without a run around them.
    loose: LooseItems<ChatRecord>,
    runs: u64,
    sessions: u64,
}

impl ChatReader<'_> {
    fn piece(&mut self, piece: StreamItem) -> Result<(), ImportError> {
        let text = match piece.text {
            Ok(text) => text,
            Err(reason) => return self.skip(piece.line, reason),
        };
        if text.starts_with('[') {
            return match serde_json::from_str(&text) {
                Ok(messages) => self.run(
                    LineCounter::new(&text, piece.line),
                    Extra::default(),
                    messages,
                ),
                Err(error) => self.skip(piece.line, &reason(error)),
            };
        }
        let mut fields = match Fields::parse(&text) {
            Ok(fields) => fields,
            Err(reason) => return self.skip(piece.line, &reason),
        };
        match ["traj", "messages"]
            .iter()
            .find_map(|key| fields.take(key))
            .map(list)
        {
            Some(Some(messages)) => {
                let (extra, bad) = run_extra(&fields);
                bad.into_iter()
                    .for_each(|reason| self.sink.skip(Some(piece.line), reason));
                self.run(LineCounter::new(&text, piece.line), extra, messages)
            }
            Some(None) => self.skip(piece.line, "the messages of the run are not a list"),
            None if fields.get("role").is_some() => {
                let ended = self.loose.add(piece.list, (piece.line, record(&text)));
                self.loose_session(ended)
            }
            None => self.skip(piece.line, "neither a run nor a message"),
        }
    }

    fn skip(&mut self, line: u64, reason: &str) -> Result<(), ImportError> {
        self.sink.skip(Some(line), reason.into());
        Ok(())
    }

    fn loose_session(&mut self, records: Option<Vec<ChatRecord>>) -> Result<(), ImportError> {
        match records {
            Some(records) => self.session(1, Extra::default(), records),
            None => Ok(()),
        }
    }

    fn run(
        &mut self,
        mut lines: LineCounter<'_>,
        extra: Extra,
        raw: Vec<&RawValue>,
    ) -> Result<(), ImportError> {
        let ended = self.loose.take();
        self.loose_session(ended)?;
        let line = lines.first;
        let read = |raw: &RawValue| (lines.of(raw.get()), record(raw.get()));
        let messages = raw.into_iter().map(read).collect();
        self.session(line, extra, messages)
    }

    fn session(
        &mut self,
        line: u64,
        extra: Extra,
        records: Vec<ChatRecord>,
    ) -> Result<(), ImportError> {
        let key = key_of(&extra).unwrap_or_else(|| self.runs.to_string());
        self.runs += 1;
        let mut chat = TranscriptBuilder::new(&mut *self.sink, head(key, extra)?, Style::Document);
        for (nth, (line, record)) in records.into_iter().enumerate() {
            let read = record.and_then(|record| Ok((message::read(&record, nth)?, record)));
            match read {
                Ok((message, record)) => {
                    if message.role() == Role::User {
                        // A recorded conversation has ended.
                        chat.ended_as(Some(LoopStatus::Completed));
                    }
                    chat.message(String::new, message, record.as_str().as_bytes())?;
                }
                Err(reason) => chat.skip(line, format!("message {}: {reason}", nth + 1)),
            }
        }
        if !chat.is_unfinished() {
            chat.ended_as(Some(LoopStatus::Completed));
        }
        match chat.finish()? {
            true => self.sessions += 1,
            false => self.sink.skip(Some(line), "a run without messages".into()),
        }
        Ok(())
    }
}

fn record(text: &str) -> Result<Json, String> {
    match text.len() > MAX_RECORD_BYTES {
        true => Err("longer than 64 MiB".into()),
        false => Json::parse(text).map_err(reason),
    }
}

/// Returns the fields of a run other than its messages, and the reasons why some are lost. Fields with the name of a
/// field of the session are kept below `source`.
pub(super) fn run_extra(fields: &Fields<'_>) -> (Extra, Vec<String>) {
    const TAKEN: [&str; 9] = [
        "agent_id",
        "created_at",
        "formation",
        "last_active_at",
        "loops",
        "parent_spawn_ref",
        "scope",
        "session_id",
        "source",
    ];
    let (mut extra, mut source, mut bad) = (Extra::default(), Extra::default(), Vec::new());
    for (key, value) in fields.iter() {
        let place = if TAKEN.contains(&key) {
            &mut source
        } else {
            &mut extra
        };
        match Json::parse(value.get()) {
            Ok(value) => place.insert(key, value),
            Err(error) => bad.push(format!("field `{}`: {}", shown(key), reason(error))),
        }
    }
    match message::object(&source) {
        Ok(_) if source.is_empty() => {}
        Ok(source) => extra.insert("source", source),
        Err(reason) => bad.push(format!("fields of the run: {reason}")),
    }
    (extra, bad)
}

fn key_of(extra: &Extra) -> Option<String> {
    let part = |key| {
        let value: &Json = extra.get(key)?;
        let number = value
            .as_str()
            .starts_with(|c: char| c == '-' || c.is_ascii_digit());
        value
            .read()
            .ok()
            .or_else(|| number.then(|| value.as_str().to_owned()))
    };
    let (task, trial): (String, String) = (part("task_id")?, part("trial")?);
    Some(format!("{task}/{trial}"))
}

pub(super) fn head(key: String, extra: Extra) -> Result<SessionHead, ImportError> {
    let placeholder = SessionId::new(key.as_str()).or_else(|_| SessionId::new("run"));
    let session_id = placeholder.map_err(|error| ImportError::NoTranscript(error.to_string()))?;
    let session = Session {
        session_id,
        agent_id: None,
        created_at: None,
        last_active_at: None,
        formation: None,
        parent_spawn_ref: None,
        scope: None,
        loops: Vec::new(),
        extra,
    };
    Ok(SessionHead {
        identity: Identity::Key(key),
        session,
        title: None,
        project: None,
    })
}
