//! Sessions in ATIF documents that `export --format atif` wrote: the lines are in `extra.loopstore` of a trajectory, and
//! the messages in its steps ([`loopstore_atif::stored`]).

use loopstore::model::{LoopId, SessionId};
use loopstore_atif::document::{DocumentError, StoredTrajectory};

use super::form::{AnyLine, LineKind, LoopLine, MessageLine, SessionLine};
use super::{SessionRestorer, in_line, parse, take, wrong};
use crate::fields::shown;
use crate::json_stream::{JsonStream, LineCounter};
use crate::key_outline::KeyOutline;
use crate::{ImportError, Source};

/// The maximum number of levels of sub-agents.
const MAX_DEPTH: usize = 32;

/// True if a file begins with a document that contains the rows of a session.
pub(super) fn is_document(outline: &KeyOutline) -> bool {
    let at = |prefix: &str| {
        let has = |key: &str| outline.has(&format!("{prefix}{key}"));
        has("schema_version") && (has("extra.loopstore.lines") || has("steps[].extra.loopstore"))
    };
    at("") || at("[].")
}

/// Restores the sessions of a file of documents.
pub(super) fn read(
    source: &mut Source<'_>,
    into: &mut SessionRestorer<'_>,
) -> Result<(), ImportError> {
    let mut stream = JsonStream::new(source)?;
    while let Some(item) = stream.next()? {
        let text = item
            .text
            .map_err(|reason| in_line(item.line, wrong(reason)))?;
        let mut lines = LineCounter::new(&text, item.line);
        let read = trajectory(&text, 0, into).and_then(|()| {
            into.is_whole()
                .map_err(|error| PartError { part: "", error })
        });
        read.map_err(|failed| match failed.part {
            "" => in_line(item.line, failed.error),
            part => in_line(lines.of(part), failed.error),
        })?;
    }
    Ok(())
}

/// An error, and the text of the part of the document that it is about.
struct PartError<'a> {
    part: &'a str,
    error: ImportError,
}

impl<'a> From<DocumentError<'a>> for PartError<'a> {
    fn from(error: DocumentError<'a>) -> Self {
        Self {
            part: error.part,
            error: wrong(error.reason),
        }
    }
}

/// Restores the session of a trajectory, then those of its sub-agents.
fn trajectory<'a>(
    text: &'a str,
    depth: usize,
    into: &mut SessionRestorer<'_>,
) -> Result<(), PartError<'a>> {
    let failed = |part: &'a str| move |error| PartError { part, error };
    if depth > MAX_DEPTH {
        return Err(failed(text)(wrong("its sub-agents are nested too deeply")));
    }
    let mut stored = StoredTrajectory::read(text)?;
    let mut session: Option<SessionId> = None;
    // The loop whose messages come after its turns.
    let mut waiting: Option<LoopId> = None;
    for line in std::mem::take(&mut stored.lines) {
        let line = line.get();
        let record = parse::<AnyLine>(line).map_err(failed(line))?.record;
        if record != LineKind::Turn
            && let Some(loop_id) = waiting.take()
            && let Some(session) = &session
        {
            messages(&mut stored, session, &loop_id, into)?;
        }
        match record {
            LineKind::Session => {
                let line = parse::<SessionLine>(line).map_err(failed(line))?;
                session = Some(line.session);
            }
            LineKind::Loop => {
                let line = parse::<LoopLine>(line).map_err(failed(line))?;
                waiting = Some(line.loop_id);
            }
            LineKind::Message => {
                return Err(failed(line)(wrong("its messages must be in its steps")));
            }
            _ => {}
        }
        take(line, into).map_err(failed(line))?;
    }
    if let Some((loop_id, step)) = stored.left() {
        let id = shown(loop_id.as_str());
        let why = format!("its step is of loop `{id}`, which is not among the lines");
        return Err(failed(step)(wrong(why)));
    }
    for raw in &stored.subagents {
        trajectory(raw.get(), depth + 1, into)?;
    }
    Ok(())
}

/// Restores the messages of a loop.
fn messages<'a>(
    stored: &mut StoredTrajectory<'a>,
    session: &SessionId,
    loop_id: &LoopId,
    into: &mut SessionRestorer<'_>,
) -> Result<(), PartError<'a>> {
    stored.take_messages(loop_id, &mut |part, found| {
        let row = found.row;
        let line = MessageLine {
            record: LineKind::Message,
            session: session.clone(),
            loop_id: loop_id.clone(),
            turn: row.turn,
            seq: row.seq,
            tokens: row.tokens,
            tick: row.tick,
            created_at: row.created_at,
            stamped: row.stamped,
            salt: row.salt,
            digest: row.digest,
            message: found.text,
        };
        let target = into.next_in_session();
        let restored = match target {
            Ok(Some(mut target)) => target.message(line),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        restored.map_err(|error| PartError { part, error })
    })
}
