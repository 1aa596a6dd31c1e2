//! Content between both databases: an unnamed file, and lines that are digested as they are written.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use loopstore::extend::{SessionStore, StoreError};
use loopstore::model::SessionId;
use loopstore_export::{ExportError, ExportForm, export};
use sha2::{Digest as _, Sha256};

use crate::CopyError;

/// A file that no other user can read, and that is deleted when it is closed, also if the process is killed.
pub(super) struct LineSpool {
    pub(super) file: File,
}

impl LineSpool {
    pub(super) fn new(folder: &Path) -> Result<Self, CopyError> {
        let name = format!(
            "loopstore-copy-{}.jsonl",
            loopstore_model::clock::new_uuid()
        );
        let path = folder.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        // The name is removed before anything is written.
        let file = file.and_then(|file| std::fs::remove_file(&path).map(|()| file));
        match file {
            Ok(file) => Ok(Self { file }),
            Err(source) => Err(CopyError::Folder { path, source }),
        }
    }

    /// Returns a reader from the beginning of the file.
    pub(super) fn reader(&mut self) -> Result<BufReader<&mut File>, CopyError> {
        self.file.rewind().map_err(ExportError::from)?;
        Ok(BufReader::new(&mut self.file))
    }
}

/// The lines of a session, as they were written.
pub(super) struct SpooledLines {
    pub(super) digest: [u8; 32],
    pub(super) bytes: u64,
}

impl SpooledLines {
    /// Writes the lines of a session; `None` if the session does not exist.
    pub(super) fn of(
        store: &dyn SessionStore,
        id: &SessionId,
        out: &mut dyn Write,
    ) -> Result<Option<Self>, CopyError> {
        let mut digested = Digested::new(out);
        match export(store, id, None, ExportForm::Lines, &mut digested) {
            Err(ExportError::Store(StoreError::NoSession(_))) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Some(digested.finish().map_err(ExportError::from)?)),
        }
    }
}

/// Returns the digest of a session's lines; `None` if the session does not exist.
pub(super) fn digest_in(
    store: &dyn SessionStore,
    id: &SessionId,
) -> Result<Option<[u8; 32]>, CopyError> {
    let lines = SpooledLines::of(store, id, &mut io::sink())?;
    Ok(lines.map(|lines| lines.digest))
}

/// A writer that digests what it passes on.
pub(super) struct Digested<W: Write> {
    out: BufWriter<W>,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Digested<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out: BufWriter::new(out),
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    pub(super) fn finish(mut self) -> io::Result<SpooledLines> {
        self.out.flush()?;
        Ok(SpooledLines {
            digest: self.hash.finalize().into(),
            bytes: self.bytes,
        })
    }
}

impl<W: Write> Write for Digested<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
