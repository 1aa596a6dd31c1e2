//! Reads the records of a JSON Lines file, in order or at the locations that an earlier pass found.

use std::io::SeekFrom;
use std::path::Path;

use super::fields::Fields;
use super::lines::{LinePart, SourceLocation, ValueReader};
use super::{ImportError, ReadSeek, unread};

/// The content of a line.
pub(super) enum RecordLine<'a> {
    /// An object, with its text.
    Record(&'a str, Fields<'a>),
    /// A line that is not an object.
    Bad {
        /// The reason why the line is not a record.
        reason: String,
        /// The bytes to keep. Empty if the line is too long, or if the file ends within it: the writer may not have
        /// finished the last line, and if it were kept now, the next import would add it again, whole.
        kept: &'a [u8],
    },
}

/// Reads a file record by record.
pub(super) struct RecordStream<'a> {
    path: &'a Path,
    lines: ValueReader<'a>,
}

impl<'a> RecordStream<'a> {
    /// Returns a stream at the start of the file.
    pub(super) fn new(path: &'a Path, reader: &'a mut dyn ReadSeek) -> Result<Self, ImportError> {
        let lines = ValueReader::new(reader).map_err(unread(path))?;
        Ok(Self { path, lines })
    }

    /// Returns the next line that is not blank.
    pub(super) fn next(&mut self) -> Result<Option<(SourceLocation, RecordLine<'_>)>, ImportError> {
        let Some((location, found)) = self.lines.next().map_err(unread(self.path))? else {
            return Ok(None);
        };
        let line = match found {
            LinePart::Value(text) => match Fields::parse(text) {
                Ok(fields) => RecordLine::Record(text, fields),
                Err(reason) => RecordLine::Bad {
                    reason,
                    kept: text.as_bytes(),
                },
            },
            LinePart::Unreadable { bytes, reason, cut } => RecordLine::Bad {
                reason,
                kept: if cut { &[] } else { bytes },
            },
        };
        Ok(Some((location, line)))
    }
}

/// Reads records at the locations that an earlier pass found.
pub(super) struct RecordReader<'a> {
    path: &'a Path,
    reader: &'a mut dyn ReadSeek,
    /// The current position of the reader.
    at: u64,
}

impl<'a> RecordReader<'a> {
    /// Returns a reader at the start of the file.
    pub(super) fn new(path: &'a Path, reader: &'a mut dyn ReadSeek) -> Result<Self, ImportError> {
        reader.seek(SeekFrom::Start(0)).map_err(unread(path))?;
        Ok(Self {
            path,
            reader,
            at: 0,
        })
    }

    /// Reads one record.
    pub(super) fn bytes(&mut self, location: SourceLocation) -> Result<Vec<u8>, ImportError> {
        let mut bytes = Vec::new();
        self.read(location, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads one record and appends its bytes to `bytes`.
    pub(super) fn read(
        &mut self,
        location: SourceLocation,
        bytes: &mut Vec<u8>,
    ) -> Result<(), ImportError> {
        // A relative seek keeps what a buffered reader has read ahead.
        let distance = location.offset.wrapping_sub(self.at) as i64;
        let from = bytes.len();
        bytes.resize(from + location.len, 0);
        let read = self.reader.seek_relative(distance);
        let read = read.and_then(|()| self.reader.read_exact(&mut bytes[from..]));
        read.map_err(unread(self.path))?;
        self.at = location.offset + location.len as u64;
        Ok(())
    }
}
