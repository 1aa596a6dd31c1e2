//! The kept files of imports, and the marks of their records.
//!
//! A mark is a digest of a raw record, keyed per database, so it cannot be copied. It is made again from the kept
//! file: the importer of its format reads the file, and each record gives its mark to the stored message with the same
//! content. So the next import of the transcript recognises the messages, whichever database it goes to.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use loopstore::extend::codec::to_json;
use loopstore::extend::{SessionKey, StoreError, StoreResult, StoreWrite, source};
use loopstore::model::{AgentMessage, LoopId, LoopRecord};
use loopstore_transcripts::internal::{RecordOrigins, record_digest};
use loopstore_transcripts::{
    FoundCompaction, ImportError, SessionHead, Sink, Source, importers, read_transcript,
};
use sha2::{Digest as _, Sha256};

use crate::document::SessionDocument;
use crate::merge::content_key;
use crate::peer::FileName;

/// A kept file on its way to a database.
pub(crate) struct OfferedFile {
    pub(crate) name: FileName,
    pub(crate) bytes: Vec<u8>,
}

/// The marks of records, by the content of their messages, in the order of the records.
#[derive(Default)]
pub(crate) struct ImportMarks(HashMap<[u8; 32], Vec<[u8; 32]>>);

impl ImportMarks {
    /// Adds the marks of the records of a file; none if no importer reads it.
    pub(crate) fn read(&mut self, key: &[u8], file: &OfferedFile) {
        let format = &file.name.format;
        let mut known = importers().iter();
        let Some(importer) = known.find(|importer| importer.format() == format) else {
            return;
        };
        let mut source = Source {
            path: Path::new(&file.name.path),
            reader: &mut Cursor::new(&file.bytes),
        };
        let mut sink = MarkSink { key, marks: self };
        // A file that cannot be read gives the marks before its damage, as an import does.
        let _ = read_transcript(*importer, &mut source, &mut sink);
    }

    /// Adds the mark of a stored message.
    pub(crate) fn add(&mut self, content: [u8; 32], mark: [u8; 32]) {
        self.0.entry(content).or_default().push(mark);
    }

    /// Adds the marks of the messages of a session that have none in `origins`.
    pub(crate) fn complete(&self, document: &SessionDocument, origins: &mut RecordOrigins) {
        let mut given: HashMap<[u8; 32], usize> = HashMap::new();
        for message in document.loops.iter().flat_map(|one| &one.messages) {
            let content = content_key(message);
            let (Some(marks), Some(digest)) = (
                self.0.get(&content),
                loopstore::extend::codec::unhex(&message.digest),
            ) else {
                continue;
            };
            let nth = given.entry(content).or_default();
            if let Some(mark) = marks.get(*nth).or(marks.last()) {
                origins.entry(digest).or_insert(*mark);
            }
            *nth += 1;
        }
    }
}

/// Collects the marks of records.
struct MarkSink<'a> {
    key: &'a [u8],
    marks: &'a mut ImportMarks,
}

impl Sink for MarkSink<'_> {
    fn session(&mut self, _head: SessionHead) -> Result<(), ImportError> {
        Ok(())
    }

    fn begin_loop(&mut self, _record: LoopRecord) -> Result<(), ImportError> {
        Ok(())
    }

    fn message(
        &mut self,
        _loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let content = Sha256::digest(to_json(&message)?).into();
        self.marks.add(content, record_digest(self.key, raw));
        Ok(())
    }

    fn compaction(&mut self, _found: FoundCompaction) -> Result<(), ImportError> {
        Ok(())
    }

    fn skip(&mut self, _line: Option<u64>, _reason: String) {}
}

/// Keeps a file for a session, unless the session redacts. A file of another machine at the same path is kept beside
/// the one that is there.
pub(crate) fn keep(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    file: &OfferedFile,
) -> StoreResult<()> {
    // A kept file would bring back content that was redacted.
    if write.flags(session)?.redacts {
        return Ok(());
    }
    let (name, bytes) = (&file.name, &file.bytes);
    let mut path = name.path.clone();
    for row in write.sources(session)? {
        if (&row.format, &row.path) != (&name.format, &name.path) {
            continue;
        }
        let mut stored = Vec::new();
        checked(source::write_out(write, &row, &mut stored))?;
        if !stored.starts_with(bytes) && !bytes.starts_with(&stored) {
            let digest: [u8; 32] = Sha256::digest(bytes).into();
            path = format!("{}~{}", name.path, hex::encode(&digest[..4]));
        }
    }
    let reader = &mut Cursor::new(bytes);
    checked(source::keep(write, reader, &name.format, &path, &[session]))
}

fn checked<T>(result: Result<T, source::SourceError>) -> StoreResult<T> {
    result.map_err(|error| match error {
        source::SourceError::Store(error) => error,
        source::SourceError::Io(error) => StoreError::Io(error.into()),
    })
}
