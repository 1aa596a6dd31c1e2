//! loopstore's own lines: all that is stored of a session, as `export --format jsonl` writes it. The same lines are in
//! the documents of `export --format atif`.
//!
//! The lines are written into the store unchanged, in one transaction. Then the session is checked as by `verify`, so
//! that an altered file leaves no rows. If the session is stored already, only new rows are added. [`form`] defines
//! the lines, [`page`] the page of `loopstore share` that carries them.

mod atif;
mod blocks;
pub use loopstore::internal::session_lines as form;
mod loop_rows;
pub mod page;
mod redacted;
mod restore;
mod runs;

use std::io::{Read as _, SeekFrom};
use std::path::Path;

use loopstore::extend::StoreWrite;
use loopstore::model::{MAX_JSON_DEPTH, SessionId};
use loopstore::tokens::TokenCounter;
use serde::de::DeserializeOwned;

use self::form::{AnyLine, LineKind};
pub use self::restore::{RecordOrigins, SessionRestorer};
use super::decode::DecodedSource;
use super::fields::reason;
use super::key_outline::KeyOutline;
use super::lines::{LinePart, ValueReader};
use super::{ImportError, ImportReport, Importer, ReadSeek, Sink, Source};

/// The messages of a block are in one line, and each may be as long as a record.
const MAX_LINE_BYTES: usize = 256 << 20;
/// The beginning of a file by which its form is recognised.
const HEAD_BYTES: u64 = 64 << 10;
/// The number of levels by which a line is deeper than a stored value.
const MORE_DEPTH: usize = 16;

/// Reads loopstore's own lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionLines;

impl Importer for SessionLines {
    fn format(&self) -> &'static str {
        "loopstore"
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let outline = KeyOutline::of(head);
        page::is_page(head)
            || (outline.has("record") && outline.has("loopstore"))
            || atif::is_document(&outline)
    }

    fn import(&self, _source: &mut Source<'_>, _sink: &mut dyn Sink) -> Result<(), ImportError> {
        Err(wrong("its lines are not a transcript"))
    }

    fn holds_rows(&self) -> bool {
        true
    }

    fn restore(
        &self,
        source: &mut Source<'_>,
        into: &mut SessionRestorer<'_>,
    ) -> Option<Result<(), ImportError>> {
        Some(read_lines(source, into))
    }
}

/// Restores one session from its lines within a transaction, as an import of the lines does. New messages get the
/// `origins` of their records.
///
/// # Errors
/// If the lines are no session, or the store has another one with this id. The caller must end the transaction then.
pub fn restore_session(
    write: &mut dyn StoreWrite,
    counter: &dyn TokenCounter,
    session: &SessionId,
    lines: &mut dyn ReadSeek,
    origins: &RecordOrigins,
) -> Result<ImportReport, ImportError> {
    let mut into = SessionRestorer::new(write, counter, Some(session)).with_origins(origins);
    let mut source = Source {
        path: Path::new("the lines of the session"),
        reader: lines,
    };
    read(&mut source, &mut into)?;
    Ok(into.finish())
}

/// Reads the lines of a file, or of a page.
fn read_lines(source: &mut Source<'_>, into: &mut SessionRestorer<'_>) -> Result<(), ImportError> {
    let Some(mut packed) = page::packed_lines(source)? else {
        return read(source, into);
    };
    let mut packed = Source {
        path: source.path,
        reader: &mut packed,
    };
    let mut lines = DecodedSource::without_repairs(&mut packed)?;
    read(&mut lines.source(&mut packed), into)?;
    match lines.cut() {
        None => Ok(()),
        Some(cut) => Err(wrong(format!("the session in the page is damaged: {cut}"))),
    }
}

fn read(source: &mut Source<'_>, into: &mut SessionRestorer<'_>) -> Result<(), ImportError> {
    let unread = |error| ImportError::Read {
        path: source.path.to_owned(),
        source: error,
    };
    source.reader.seek(SeekFrom::Start(0)).map_err(unread)?;
    let mut head = Vec::new();
    let mut start = (&mut *source.reader).take(HEAD_BYTES);
    start.read_to_end(&mut head).map_err(unread)?;
    source.reader.seek(SeekFrom::Start(0)).map_err(unread)?;
    if atif::is_document(&KeyOutline::of(&head)) {
        return atif::read(source, into);
    }
    let mut lines = ValueReader::new(source.reader)
        .map_err(unread)?
        .with_limits(MAX_LINE_BYTES, MAX_JSON_DEPTH + MORE_DEPTH);
    let mut last = 0;
    while let Some((place, found)) = lines.next().map_err(unread)? {
        last = place.line;
        let taken = match found {
            LinePart::Value(text) => take(text, into),
            LinePart::Unreadable { reason, .. } => Err(wrong(reason)),
        };
        taken.map_err(|error| in_line(last, error))?;
    }
    into.is_whole().map_err(|error| in_line(last, error))
}

fn take(text: &str, into: &mut SessionRestorer<'_>) -> Result<(), ImportError> {
    let record = parse::<AnyLine>(text)?.record;
    match record {
        LineKind::Session => return into.session(parse(text)?),
        LineKind::End => return into.end(parse(text)?),
        _ => {}
    }
    let Some(mut session) = into.next_in_session()? else {
        return Ok(());
    };
    match record {
        LineKind::Loop => session.one_loop(parse(text)?),
        LineKind::Turn => session.turn(parse(text)?),
        LineKind::Message => session.message(parse(text)?),
        LineKind::Note => session.note(parse(text)?),
        LineKind::Call => session.call(parse(text)?),
        LineKind::Run => session.run(parse(text)?),
        LineKind::Block => session.block(parse(text)?),
        LineKind::Edit => session.edit(parse(text)?),
        LineKind::Flip => session.flip(parse(text)?),
        LineKind::Pin => session.pin(parse(text)?),
        LineKind::Hide => session.hide(parse(text)?),
        LineKind::Manifest => session.manifest(parse(text)?),
        LineKind::Session | LineKind::End => Ok(()),
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ImportError> {
    serde_json::from_str(text).map_err(|error| wrong(reason(error)))
}

fn wrong(reason: impl Into<String>) -> ImportError {
    ImportError::NoTranscript(reason.into())
}

fn in_line(line: u64, error: ImportError) -> ImportError {
    match error {
        ImportError::NoTranscript(reason) => {
            ImportError::NoTranscript(format!("line {line}: {reason}"))
        }
        ImportError::Refused(reason) => ImportError::Refused(format!("line {line}: {reason}")),
        other @ (ImportError::Read { .. } | ImportError::Store(_)) => other,
    }
}
