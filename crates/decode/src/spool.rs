//! A temporary copy of a text: in memory, or in an unnamed file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

/// The size up to which a copy stays in memory, in bytes.
const MAX_HELD: usize = 4 << 20;

/// A copy that is being written.
pub(crate) enum SpoolWriter {
    Memory(Vec<u8>),
    File(BufWriter<File>),
}

/// A copy.
pub(crate) enum TextSpool {
    Memory(Cursor<Vec<u8>>),
    File(BufReader<File>),
}

impl SpoolWriter {
    pub(crate) fn new() -> Self {
        Self::Memory(Vec::new())
    }

    /// Makes the copy readable from its beginning.
    pub(crate) fn finish(self) -> io::Result<TextSpool> {
        Ok(match self {
            Self::Memory(bytes) => TextSpool::Memory(Cursor::new(bytes)),
            Self::File(file) => {
                let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.rewind()?;
                TextSpool::File(BufReader::with_capacity(128 << 10, file))
            }
        })
    }
}

impl Write for SpoolWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Memory(held) if held.len() + bytes.len() <= MAX_HELD => {
                held.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            Self::Memory(held) => {
                let mut file = BufWriter::new(unnamed_file()?);
                file.write_all(held)?;
                *self = Self::File(file);
                self.write(bytes)
            }
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Memory(_) => Ok(()),
        }
    }
}

/// Creates a file that only its owner can read, and removes its name, so that the file is gone when the program
/// ends, even if it is killed.
fn unnamed_file() -> io::Result<File> {
    let name = format!(".loopstore-{}", uuid::Uuid::now_v7());
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

impl Read for TextSpool {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => bytes.read(buffer),
            Self::File(file) => file.read(buffer),
        }
    }
}

impl BufRead for TextSpool {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Self::Memory(bytes) => bytes.fill_buf(),
            Self::File(file) => file.fill_buf(),
        }
    }

    fn consume(&mut self, read: usize) {
        match self {
            Self::Memory(bytes) => bytes.consume(read),
            Self::File(file) => file.consume(read),
        }
    }
}

impl Seek for TextSpool {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Memory(bytes) => bytes.seek(to),
            Self::File(file) => file.seek(to),
        }
    }

    fn seek_relative(&mut self, distance: i64) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => bytes.seek_relative(distance),
            Self::File(file) => file.seek_relative(distance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_copies_are_read_as_they_were_written() {
        for size in [10, MAX_HELD, MAX_HELD + 1, 2 * MAX_HELD] {
            let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            let mut writer = SpoolWriter::new();
            for part in bytes.chunks(100_003) {
                writer.write_all(part).unwrap();
            }
            let mut copy = writer.finish().unwrap();
            assert_eq!(matches!(copy, TextSpool::File(_)), size > MAX_HELD);
            let mut found = Vec::new();
            copy.read_to_end(&mut found).unwrap();
            assert!(found == bytes);
            copy.seek(SeekFrom::Start(7)).unwrap();
            copy.seek_relative(-2).unwrap();
            let mut three = [0; 3];
            copy.read_exact(&mut three).unwrap();
            assert_eq!(three, [5, 6, 7]);
        }
    }
}
