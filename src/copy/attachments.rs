//! What a session has beside its lines: the files that were kept of imports, and what was decided
//! about it. Both are read first, and written only where they are not the same.

use std::io::sink;

use super::spool::{Digested, Way};
use super::{Copy, CopyError};
use crate::export::{ExportError, export_source};
use crate::model::SessionId;
use crate::store::{
    self, SessionFlags, SessionStore, SourceRow, StoreError, StoreRead, StoreResult, source,
};

/// What stands beside the lines of a session.
struct Beside {
    files: Vec<SourceRow>,
    flags: SessionFlags,
}

impl Beside {
    /// `None`: the session is not there.
    fn of(store: &dyn SessionStore, id: &SessionId) -> StoreResult<Option<Self>> {
        store::read(store, |read| {
            let Some(row) = read.session(id)? else {
                return Ok(None);
            };
            Ok(Some(Self {
                files: read.sources(row.key)?,
                flags: read.flags(row.key)?,
            }))
        })
    }
}

/// Brings what stands beside the lines of a session.
pub(super) fn bring(copy: &Copy<'_>, id: &SessionId) -> Result<(), CopyError> {
    let (Some(here), Some(there)) = (Beside::of(copy.from, id)?, Beside::of(copy.to, id)?) else {
        return Ok(());
    };
    // A file would hold what was taken out of the session there.
    if !there.flags.redacts || here.flags.redacts {
        for file in &here.files {
            if !is_there(copy, file, &there.files)? {
                bring_file(copy, id, file)?;
            }
        }
    }
    let flags = SessionFlags {
        redacts: here.flags.redacts || there.flags.redacts,
        ..here.flags
    };
    if flags == there.flags {
        return Ok(());
    }
    Ok(store::write(copy.to, |write| {
        let key = key_of(write.as_read(), id)?;
        write.put_flags(key, &flags)
    })?)
}

/// Whether one of these files has the same bytes; how they lie in parts may differ.
fn is_there(copy: &Copy<'_>, file: &SourceRow, there: &[SourceRow]) -> Result<bool, CopyError> {
    let mut alike = there
        .iter()
        .filter(|other| (&other.format, other.bytes) == (&file.format, file.bytes));
    if alike.clone().any(|other| other.digest == file.digest) {
        return Ok(true);
    }
    let Some(other) = alike.next() else {
        return Ok(false);
    };
    Ok(digest_of(copy.from, file)? == digest_of(copy.to, other)?)
}

fn digest_of(store: &dyn SessionStore, file: &SourceRow) -> Result<[u8; 32], CopyError> {
    let mut digested = Digested::new(sink());
    export_source(store, file, &mut digested)?;
    Ok(digested.finish().map_err(ExportError::from)?.digest)
}

fn bring_file(copy: &Copy<'_>, id: &SessionId, file: &SourceRow) -> Result<(), CopyError> {
    let mut way = Way::new(copy.folder)?;
    export_source(copy.from, file, &mut way.file)?;
    let kept = store::write(copy.to, |write| {
        let key = key_of(write.as_read(), id)?;
        let (format, path) = (&file.format, &file.path);
        // A refusal of the store must end the transaction.
        match source::keep(write, &mut way.file, format, path, &[key]) {
            Err(source::SourceError::Store(error)) => Err(error),
            Err(source::SourceError::Io(error)) => Err(StoreError::Io(error.into())),
            Ok(()) => Ok(()),
        }
    });
    Ok(kept?)
}

fn key_of(read: &dyn StoreRead, id: &SessionId) -> StoreResult<store::SessionKey> {
    let row = read.session(id)?;
    let row = row.ok_or_else(|| StoreError::NoSession(id.to_string()))?;
    Ok(row.key)
}
