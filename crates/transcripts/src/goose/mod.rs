//! goose: `sessions/<id>.jsonl`, one line for the session and one for each message; since October 2025 the SQLite file
//! `sessions/sessions.db`, whose rows contain the same messages.
//!
//! Both readers follow goose's source; no recordings were available. Results are user messages, and a message may be
//! for the person only or for the model only: after a compaction the earlier messages are for the person, and a summary
//! for the model follows them.

mod content;
mod database;
mod emit;

use std::path::Path;

use loopstore::model::{SessionId, Time};

use self::database::{GooseFile, GooseSession};
use self::emit::{GooseEmitter, GooseMessage};
use super::fields::Fields;
use super::key_outline::KeyOutline;
use super::records::{RecordLine, RecordStream};
use super::transcript::{identity, session, started_by};
use super::values::text_of;
use super::{ImportError, Importer, SQLITE_MAGIC, SessionHead, Sink, Source, holds_conversation};

const TOOL: &str = "goose";

/// Reads the sessions of goose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Goose;

impl Importer for Goose {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        if head.starts_with(SQLITE_MAGIC) {
            return GooseFile::open(path).is_ok();
        }
        head.split(|byte| *byte == b'\n').take(20).any(is_own)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut magic = [0; SQLITE_MAGIC.len()];
        let is_file = source.reader.read_exact(&mut magic).is_ok() && magic == SQLITE_MAGIC;
        holds_conversation(match is_file {
            true => rows(source, sink)?,
            false => lines(source, sink)?,
        })
    }

    fn rewrites(&self) -> bool {
        true
    }
}

/// True if a line can only be goose's.
fn is_own(line: &[u8]) -> bool {
    let keys = KeyOutline::of(line);
    let has = |all: &[&str]| all.iter().all(|key| keys.has(key));
    let is_about = has(&["working_dir", "message_count"]) && !keys.has("role");
    let is_message = has(&["role", "created", "content[].type"])
        && (keys.has("content[].toolCall") || keys.has("content[].toolResult"));
    is_about || is_message
}

/// Reads a session of lines.
fn lines(source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let path = source.path;
    let mut about = GooseSession {
        // The session is named after the file.
        id: path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default(),
        ..GooseSession::default()
    };
    let mut records = RecordStream::new(path, &mut *source.reader)?;
    while let Some((_, line)) = records.next()? {
        if let RecordLine::Record(_, fields) = line
            && fields.get("role").is_none()
        {
            about.name = text_of(fields.get("description")).or(about.name.take());
            about.project = text_of(fields.get("working_dir")).or(about.project.take());
        }
    }
    let mut emitter = GooseEmitter::new(sink, head(path, about), None);
    let mut records = RecordStream::new(path, &mut *source.reader)?;
    while let Some((location, line)) = records.next()? {
        match line {
            RecordLine::Record(_, fields) if fields.get("role").is_none() => {}
            RecordLine::Record(json, fields) => {
                emitter.message(of_line(json, &fields), location.line)?;
            }
            RecordLine::Bad { reason, .. } => emitter.skip(location.line, reason),
        }
    }
    emitter.finish()
}

fn of_line<'a>(json: &'a str, fields: &Fields<'a>) -> GooseMessage<'a> {
    GooseMessage {
        id: text_of(fields.get("id")),
        role: fields.text("role").unwrap_or_default(),
        content: fields.get("content").map_or("[]", |content| content.get()),
        metadata: fields.get("metadata").map_or("{}", |about| about.get()),
        created: fields.read("created"),
        raw: json,
    }
}

/// Reads the sessions of a file.
fn rows(source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let file = GooseFile::open(source.path).map_err(ImportError::NoTranscript)?;
    let mut any = false;
    for about in file.sessions().map_err(ImportError::NoTranscript)? {
        let (id, model) = (about.id.clone(), about.model.clone());
        let mut emitter = GooseEmitter::new(&mut *sink, head(source.path, about), model);
        let mut failed = None;
        let read = file.messages(&id, &mut |row| {
            let content = emitter.repair(row.content, row.row);
            let metadata = row.metadata.map(|json| emitter.repair(json, row.row));
            let message = GooseMessage {
                id: row.message_id,
                role: row.role,
                content: &content,
                metadata: metadata.as_deref().unwrap_or("{}"),
                created: row.created,
                raw: &content,
            };
            let done = emitter.message(message, row.row);
            failed = done.err();
            failed.is_none()
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if let Err(reason) = read {
            emitter.skip(None, format!("session `{id}`: {reason}"));
        }
        any |= emitter.finish()?;
    }
    Ok(any)
}

fn head(path: &Path, about: GooseSession) -> SessionHead {
    let own =
        (!about.id.is_empty() && SessionId::new(about.id.as_str()).is_ok()).then_some(about.id);
    let (identity, id) = identity(path, own.as_deref());
    // SQLite's own times are in UTC and have a space between date and time.
    let time = |text: String| match text.contains('T') {
        true => Time::from_text(text),
        false => Time::from_text(format!("{}Z", text.replacen(' ', "T", 1))),
    };
    let mut session = session(id, TOOL, about.created.map(time));
    session.last_active_at = about.updated.map(time);
    session.parent_spawn_ref = about.parent.as_deref().and_then(started_by);
    SessionHead {
        identity,
        session,
        title: about.name,
        project: about.project,
    }
}
