//! Codex: rollouts, one JSON record `{timestamp, type, payload}` per line, in the order of the events.
//!
//! `response_item`s are what the model sees and become messages; all other records are kept unchanged. The transcript
//! is read in two passes, because later records show which user items are prompts, which items form one answer, and
//! what an answer cost ([`index`]). The second pass reads the records again and emits them ([`emit`]). Older rollouts
//! have no envelope and are read as if they had one ([`bare`]); the oldest, which are single documents, are converted
//! to lines ([`document`]).

mod bare;
mod document;
mod emit;
mod index;
mod items;
mod words;

use std::io::{BufRead, Cursor};
use std::path::Path;

use loopstore::model::Time;

use self::index::{CodexIndex, RolloutMeta};
use super::fields::Fields;
use super::json_stream::documents;
use super::key_outline::KeyOutline;
use super::records::{RecordLine, RecordStream};
use super::transcript::{identity, session, started_by};
use super::{
    ImportError, Importer, ReadSeek, SessionHead, Sink, Source, holds_conversation, unread,
};

/// The name of the tool, for compactions and agents.
const TOOL: &str = "codex";

/// Reads the rollouts of Codex.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codex;

impl Importer for Codex {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let mut lines = head.split(|byte| *byte == b'\n').take(20);
        lines.any(|line| {
            let keys = KeyOutline::of(line);
            let has_envelope = keys.has("type") && keys.has("payload") && keys.has("timestamp");
            has_envelope || bare::is_bare(&keys)
        }) || document::is_document(&KeyOutline::of(head))
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let path = source.path;
        let failed = unread(path);
        source.reader.rewind().map_err(failed)?;
        let outline = KeyOutline::of(BufRead::fill_buf(&mut *source.reader).map_err(failed)?);
        if !document::is_document(&outline) {
            return holds_conversation(rollout(source, sink)?);
        }
        let any = documents(source, sink, &mut |document, sink| {
            let line = document.line;
            match document::lines(document) {
                Ok(lines) => {
                    let reader = &mut Cursor::new(lines.into_bytes());
                    rollout(&mut Source { path, reader }, sink)
                }
                Err(reason) => {
                    sink.skip(Some(line), reason);
                    Ok(false)
                }
            }
        })?;
        holds_conversation(any)
    }
}

/// Reads a rollout of lines. Returns true if there was a conversation.
fn rollout(source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let path = source.path;
    let mut skip = |line, reason| sink.skip(Some(line), reason);
    let index = read_index(path, source.reader, &mut skip)?;
    let head = head(path, &index);
    emit::emit(source, &index, head, sink)
}

/// Runs the first pass.
fn read_index(
    path: &Path,
    reader: &mut dyn ReadSeek,
    skip: &mut dyn FnMut(u64, String),
) -> Result<CodexIndex, ImportError> {
    let mut index = CodexIndex::default();
    let mut records = RecordStream::new(path, reader)?;
    while let Some((location, line)) = records.next()? {
        match line {
            RecordLine::Record(text, fields) => match bare::enveloped(text, &fields) {
                None => index.record(&fields, location),
                Some(text) => index.record(&Fields::parse(&text).unwrap_or_default(), location),
            },
            RecordLine::Bad { reason, kept } => {
                if !kept.is_empty() {
                    index.unreadable(location);
                }
                skip(location.line, reason);
            }
        }
    }
    if let Some(line) = index.finish() {
        skip(
            line,
            "what it is shows in the next record, which is still to come".into(),
        );
    }
    Ok(index)
}

/// Returns the head of the session from its metadata; without metadata, the id is that in the name of the file.
fn head(path: &Path, index: &CodexIndex) -> SessionHead {
    let nothing = RolloutMeta::default();
    let meta = index.meta.as_ref().unwrap_or(&nothing);
    let (identity, id) = identity(path, meta.id.as_deref());
    let mut session = session(id, TOOL, index.started.clone().map(Time::from_text));
    session.last_active_at = index.ended.clone().map(Time::from_text);
    session.parent_spawn_ref = meta.parent.as_deref().and_then(started_by);
    SessionHead {
        identity,
        session,
        title: index.title.clone(),
        project: meta.project.clone().or_else(|| index.folder.clone()),
    }
}
