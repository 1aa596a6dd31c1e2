//! Gemini CLI: a document `{sessionId, projectHash, messages, …}` that is rewritten as the session grows or, in newer
//! versions, one JSON record per line: a header, messages, and updates of the header (`{"$set": …}`). A message that is
//! written again replaces the earlier one. `{"$rewindTo": id}` removes a message and all after it. An update of the
//! header may contain a new list of messages, with some removed or the first ones replaced by a summary.
//!
//! Calls and results are inside the message of the model; they become a call and messages of their own.

mod emit;
mod listed;
pub(crate) mod messages;

use std::path::Path;

use self::emit::GeminiReader;
use super::fields::{Fields, list};
use super::json_stream::{self, JsonStream};
use super::key_outline::KeyOutline;
use super::lines::{LinePart, SourceLocation, ValueReader};
use super::records::RecordReader;
use super::{ImportError, Importer, Sink, Source, holds_conversation, unread};

/// The name of the tool, for agents.
const TOOL: &str = "gemini-cli";

/// Reads the sessions of Gemini CLI.
#[derive(Clone, Copy, Debug, Default)]
pub struct GeminiCli;

impl Importer for GeminiCli {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let is_session = |keys: &KeyOutline| {
            keys.has("sessionId") && keys.has("projectHash")
                || keys.has("messages[].type")
                    && keys.has("messages[].content")
                    && keys.has("messages[].timestamp")
        };
        let mut lines = head.split(|byte| *byte == b'\n').take(20);
        is_session(&KeyOutline::of(head))
            || lines.any(|line| looks_like_a_record(&KeyOutline::of(line)))
    }

    fn rewrites(&self) -> bool {
        true
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let path = source.path;
        let mut reader = GeminiReader::new(path, sink);
        match is_document(source)? {
            true => document(source, &mut reader)?,
            false => lines(source, &mut reader)?,
        }
        holds_conversation(reader.finish()?)
    }
}

/// True if a line, which may be truncated, can only be a message of the newer layout.
fn looks_like_a_record(keys: &KeyOutline) -> bool {
    const OTHERS: [&str; 5] = ["uuid", "parentId", "message", "payload", "role"];
    let is_message = ["id", "timestamp", "type", "content"]
        .iter()
        .all(|key| keys.has(key));
    let is_answer = ["thoughts", "tokens", "toolCalls"]
        .iter()
        .any(|key| keys.has(key));
    is_message && is_answer && !OTHERS.iter().any(|key| keys.has(key))
}

/// True if the file is one value of several lines.
fn is_document(source: &mut Source<'_>) -> Result<bool, ImportError> {
    let failed = unread(source.path);
    let mut lines = ValueReader::new(&mut *source.reader).map_err(failed)?;
    let first = lines.next().map_err(failed)?;
    Ok(match first {
        Some((_, LinePart::Unreadable { bytes, .. })) => {
            let begins = bytes.trim_ascii();
            begins == b"{" || begins == b"[" || KeyOutline::of(bytes).has("messages")
        }
        _ => false,
    })
}

/// Reads a document; a list of documents is read like several documents.
fn document(source: &mut Source<'_>, reader: &mut GeminiReader<'_>) -> Result<(), ImportError> {
    let mut pieces = JsonStream::new(source)?;
    while let Some(piece) = pieces.next()? {
        match &piece.text {
            Ok(text) => whole(text, piece.line, reader)?,
            Err(reason) => reader.skip(piece.line, *reason),
        }
    }
    Ok(())
}

/// Reads a document as a whole.
fn whole(text: &str, line: u64, reader: &mut GeminiReader<'_>) -> Result<(), ImportError> {
    let mut fields = match Fields::parse(text) {
        Ok(fields) => fields,
        Err(reason) => {
            reader.skip(line, reason);
            return Ok(());
        }
    };
    let messages = fields.take("messages");
    reader.header(&fields);
    let mut lines = json_stream::LineCounter::new(text, line);
    let Some(messages) = messages else {
        return Ok(());
    };
    let Some(messages) = list(messages) else {
        reader.skip(line, "its messages are not a list");
        return Ok(());
    };
    reader.begin();
    for message in messages {
        let line = lines.of(message.get());
        reader.message(message.get(), line)?;
    }
    Ok(())
}

/// The indexed facts of a line.
struct LineMark {
    place: SourceLocation,
    /// The location of the last version of its message.
    last: SourceLocation,
    /// False if the line was reported as unreadable.
    is_value: bool,
}

/// Reads the newer layout in two passes, since only the end shows which version of a message is the last.
fn lines(source: &mut Source<'_>, reader: &mut GeminiReader<'_>) -> Result<(), ImportError> {
    let written = last_writings(source, reader)?;
    reader.begin();
    let mut records = RecordReader::new(source.path, &mut *source.reader)?;
    for line in written {
        let raw = records.bytes(line.last)?;
        match std::str::from_utf8(&raw) {
            Ok(text) if line.is_value => reader.record(text, line.place.line)?,
            _ => reader.unreadable(&raw)?,
        }
    }
    Ok(())
}

fn last_writings(
    source: &mut Source<'_>,
    reader: &mut GeminiReader<'_>,
) -> Result<Vec<LineMark>, ImportError> {
    let failed = unread(source.path);
    let mut written: Vec<LineMark> = Vec::new();
    let mut known = std::collections::HashMap::new();
    let mut lines = ValueReader::new(&mut *source.reader).map_err(failed)?;
    while let Some((place, found)) = lines.next().map_err(failed)? {
        match found {
            LinePart::Value(text) => {
                let id = reader.peek(text);
                let earlier = id.and_then(|id| {
                    let at = known.entry(id).or_insert(written.len());
                    written.get_mut(*at)
                });
                match earlier {
                    Some(earlier) => earlier.last = place,
                    None => written.push(LineMark {
                        place,
                        last: place,
                        is_value: true,
                    }),
                }
            }
            // The writer may not have finished the last line: if it were kept now, the next import would add it again,
            // whole.
            LinePart::Unreadable { bytes, reason, cut } => {
                if !bytes.is_empty() && !cut {
                    written.push(LineMark {
                        place,
                        last: place,
                        is_value: false,
                    });
                }
                reader.skip(place.line, reason);
            }
        }
    }
    Ok(written)
}
