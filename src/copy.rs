//! All sessions of one database into another, whatever backends they have.
//!
//! A session goes as the lines of its export, which hold all that is stored of it, and is compared as
//! such when it is there: the same bytes are the same session. What is in the other database already
//! is not written again, so a copy that was cut off goes on where it was, and one that is made again
//! brings what came since. Each session is one snapshot of the source, and one transaction of the
//! target. Files that were kept of imports go along; receipts of what was removed stay where they are.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::export::{ExportError, ExportForm, export, export_source, sources};
use crate::import::{ImportError, ImportOptions, import_paths};
use crate::model::SessionId;
use crate::store::{self, SessionStore, StoreError, StoreResult, source};

/// Why a copy ended before it was done. What was copied stays, and the next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the stores failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A session could not be written out.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A session could not be brought in.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The folder for what is on its way cannot be used.
    #[error("{path}: {source}")]
    Folder {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopyReport {
    /// Sessions of the source.
    pub sessions: u64,
    /// Sessions that came over, whole or what was new of them.
    pub copied: u64,
    /// Sessions that were there already, byte for byte.
    pub same: u64,
    /// Sessions that are not the same in both afterwards.
    pub differ: Vec<SessionId>,
    /// Bytes of the lines of all sessions.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
}

/// Copies all sessions of `from` to `to`, by way of files in `folder`, and compares them there.
/// `progress` is told how many of how many are done.
///
/// # Errors
/// If a store or the folder fails.
pub fn copy(
    from: &dyn SessionStore,
    to: &dyn SessionStore,
    folder: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CopyReport, CopyError> {
    let begun = Instant::now();
    let mut rows = store::read(from, |read| read.sessions())?;
    // The first that was stored is the first again.
    rows.sort_by_key(|row| row.key);
    let mut report = CopyReport {
        sessions: rows.len() as u64,
        ..CopyReport::default()
    };
    for (done, row) in (1..).zip(&rows) {
        one(from, to, folder, &row.session_id, &mut report)?;
        progress(done, report.sessions);
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn one(
    from: &dyn SessionStore,
    to: &dyn SessionStore,
    folder: &Path,
    id: &SessionId,
    report: &mut CopyReport,
) -> Result<(), CopyError> {
    let way = Way::new(folder)?;
    let (digest, bytes) = match lines(from, id, &mut &way.file) {
        // It was removed since the list was made.
        Err(CopyError::Export(ExportError::Store(StoreError::NoSession(_)))) => return Ok(()),
        written => written?,
    };
    report.bytes += bytes;
    if digest_in(to, id)? == Some(digest) {
        report.same += 1;
    } else {
        let options = ImportOptions {
            without_source: true,
            ..ImportOptions::default()
        };
        import_paths(to, std::slice::from_ref(&way.path), &options, &mut |_| {})?;
        report.copied += 1;
        if digest_in(to, id)? != Some(digest) {
            report.differ.push(id.clone());
        }
    }
    kept_files(from, to, folder, id)
}

/// Takes over what is kept beside the lines: the files of imports, and what was decided.
fn kept_files(
    from: &dyn SessionStore,
    to: &dyn SessionStore,
    folder: &Path,
    id: &SessionId,
) -> Result<(), CopyError> {
    for row in sources(from, id)? {
        let mut way = Way::new(folder)?;
        export_source(from, &row, &mut way.file)?;
        let kept = store::write(to, |write| {
            let key = key_of(write.session(id)?, id)?;
            Ok(source::keep(
                write,
                &mut way.file,
                &row.format,
                &row.path,
                &[key],
            ))
        })?;
        kept.map_err(ExportError::from)?;
    }
    let flags = store::read(from, |read| read.flags(key_of(read.session(id)?, id)?))?;
    Ok(store::write(to, |write| {
        let key = key_of(write.session(id)?, id)?;
        match write.flags(key)? == flags {
            true => Ok(()),
            false => write.put_flags(key, &flags),
        }
    })?)
}

fn key_of(row: Option<store::SessionRow>, id: &SessionId) -> StoreResult<store::SessionKey> {
    row.map(|row| row.key)
        .ok_or_else(|| StoreError::NoSession(id.to_string()))
}

/// Writes the lines of a session; returns their digest and how many bytes they have.
fn lines(
    store: &dyn SessionStore,
    id: &SessionId,
    out: &mut dyn Write,
) -> Result<([u8; 32], u64), CopyError> {
    let mut digested = Digested {
        out: BufWriter::new(out),
        hash: Sha256::new(),
        bytes: 0,
    };
    export(store, id, None, ExportForm::Lines, &mut digested)?;
    digested.out.flush().map_err(ExportError::from)?;
    Ok((digested.hash.finalize().into(), digested.bytes))
}

/// Returns the digest of a session's lines, `None` if it is not there.
fn digest_in(store: &dyn SessionStore, id: &SessionId) -> Result<Option<[u8; 32]>, CopyError> {
    match lines(store, id, &mut io::sink()) {
        Ok((digest, _)) => Ok(Some(digest)),
        Err(CopyError::Export(ExportError::Store(StoreError::NoSession(_)))) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file that nobody else can read, and that goes when it has been read.
struct Way {
    path: PathBuf,
    file: File,
}

impl Way {
    fn new(folder: &Path) -> Result<Self, CopyError> {
        let name = format!("loopstore-copy-{}.jsonl", uuid::Uuid::now_v7());
        let path = folder.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(CopyError::Folder { path, source }),
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // What is left over is no more than a file in a folder for such.
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Digested<W> {
    out: W,
    hash: Sha256,
    bytes: u64,
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
