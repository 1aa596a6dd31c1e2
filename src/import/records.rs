//! The second pass of an importer that makes two: records are read again where the first found them.

use std::io::SeekFrom;
use std::path::Path;

use super::lines::Place;
use super::{ImportError, ReadSeek};

/// Reads records where the first pass found them.
pub(super) struct Records<'a> {
    path: &'a Path,
    reader: &'a mut dyn ReadSeek,
    /// Where the reader stands.
    at: u64,
}

impl<'a> Records<'a> {
    /// Begins at the start of the file.
    pub(super) fn new(path: &'a Path, reader: &'a mut dyn ReadSeek) -> Result<Self, ImportError> {
        let records = Self {
            path,
            reader,
            at: 0,
        };
        let start = records.reader.seek(SeekFrom::Start(0));
        records.checked(start)?;
        Ok(records)
    }

    fn checked<T>(&self, result: std::io::Result<T>) -> Result<T, ImportError> {
        result.map_err(|source| ImportError::Read {
            path: self.path.to_owned(),
            source,
        })
    }

    /// Reads one record.
    pub(super) fn bytes(&mut self, place: Place) -> Result<Vec<u8>, ImportError> {
        let mut bytes = Vec::new();
        self.read(place, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads one record behind what is in `bytes`.
    pub(super) fn read(&mut self, place: Place, bytes: &mut Vec<u8>) -> Result<(), ImportError> {
        // A relative seek keeps what a buffered reader has read ahead.
        let distance = place.offset.wrapping_sub(self.at) as i64;
        let moved = self.reader.seek_relative(distance);
        self.checked(moved)?;
        let from = bytes.len();
        bytes.resize(from + place.len, 0);
        let read = self.reader.read_exact(&mut bytes[from..]);
        self.checked(read)?;
        self.at = place.offset + place.len as u64;
        Ok(())
    }
}
