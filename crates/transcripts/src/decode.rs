//! The text of a transcript: decompressed, as UTF-8, and free of damage that no parser of JSON reads.
//!
//! Every importer reads through [`read_transcript`], so that none depends on the encoding of its file. The same repairs
//! apply to the lines of `append` ([`JsonLines`](super::JsonLines)) and to JSON in the columns of databases
//! ([`repaired`]).

use std::io::{BufReader, ErrorKind};
use std::path::Path;

pub(super) use loopstore_decode::{Repairer, TextFile, is_json_text, repaired, replace_lone};
use loopstore_locks::SharedFile;

use super::{ImportError, Importer, Sink, Source, unread};

/// Reads a transcript into a sink as an import does. Compressed files and other encodings are decoded, and damaged
/// JSON is repaired. Each repair is reported to the sink.
///
/// # Errors
/// If the source cannot be read or contains no transcript of the format, or the sink returns an error.
pub fn read_transcript(
    importer: &dyn Importer,
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
) -> Result<(), ImportError> {
    let mut decoded = DecodedSource::of(source)?;
    decoded.report(sink);
    let read = importer.import(&mut decoded.source(source), sink);
    match (read, decoded.0.cut()) {
        // With this error the sink is dropped, and its report with it.
        (Err(ImportError::NoTranscript(reason)), Some(cut)) => {
            Err(ImportError::NoTranscript(format!("{reason} before {cut}")))
        }
        (read, _) => read,
    }
}

/// A source that an importer can read.
pub(super) struct DecodedSource(loopstore_decode::Decoded);

impl DecodedSource {
    /// Examines a source, and copies a text that has to be decoded or repaired.
    pub(super) fn of(source: &mut Source<'_>) -> Result<Self, ImportError> {
        Self::read(source, true)
    }

    /// Examines a source that is decoded but not repaired: every byte of its text is needed.
    pub(super) fn without_repairs(source: &mut Source<'_>) -> Result<Self, ImportError> {
        Self::read(source, false)
    }

    fn read(source: &mut Source<'_>, repairs: bool) -> Result<Self, ImportError> {
        let decoded = loopstore_decode::Decoded::read(source.path, &mut *source.reader, repairs);
        decoded.map(Self).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => ImportError::NoTranscript(error.to_string()),
            _ => unread(source.path)(error),
        })
    }

    /// Reports the repairs to a sink.
    pub(super) fn report(&self, sink: &mut dyn Sink) {
        if self.0.was_utf16() {
            sink.repaired(None, 1, "read as UTF-16");
        }
        for repair in self.0.repairs() {
            sink.repaired(Some(repair.line), repair.count, repair.damage.reason());
        }
        if let Some(reason) = self.0.cut() {
            let reason = format!("the file was read as far as it goes: {reason}");
            sink.skip(None, reason);
        }
    }

    /// Returns the reason that the text ends before the end of the file; `None` if the text is complete.
    pub(super) fn cut(&self) -> Option<&str> {
        self.0.cut()
    }

    /// Returns the source to read: the decoded copy if there is one, else `source`.
    pub(super) fn source<'a>(&'a mut self, source: &'a mut Source<'_>) -> Source<'a> {
        let (path, reader) = self.0.text(source.path, &mut *source.reader);
        Source { path, reader }
    }
}

/// Opens a file as text that is decoded while it is read, without repairs.
pub(super) fn open_text(path: &Path, buffer: usize) -> std::io::Result<TextFile> {
    TextFile::new(
        path,
        BufReader::with_capacity(buffer, SharedFile::open(path)?),
    )
}
