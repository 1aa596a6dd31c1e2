//! The rows of a session that are not in its lines: the kept files of imports, the keys of its appends, and its
//! flags. They are read first, and written only where they differ.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::sink;

use loopstore::extend::{
    self as store, AppendKey, LoopKey, SessionFlags, SessionKey, SessionStore, SourceRow,
    StoreError, StoreRead, StoreResult, source,
};
use loopstore::model::{LoopId, SessionId};
use loopstore_export::{ExportError, export_source};

use crate::spool::{Digested, LineSpool};
use crate::{CopyError, SessionCopier};

/// The rows of a session that its JSON lines do not have.
struct SessionAttachments {
    files: Vec<SourceRow>,
    append_keys: Vec<(LoopId, AppendKey)>,
    flags: SessionFlags,
}

impl SessionAttachments {
    /// Returns `None` if the session does not exist.
    fn of(store: &dyn SessionStore, id: &SessionId) -> StoreResult<Option<Self>> {
        store::read(store, |read| {
            let Some(row) = read.session(id)? else {
                return Ok(None);
            };
            Ok(Some(Self {
                files: read.sources(row.key)?,
                append_keys: append_keys(read, row.key)?,
                flags: read.flags(row.key)?,
            }))
        })
    }
}

/// Copies the rows of a session that are not in its lines.
pub(super) fn copy_attachments(copy: &SessionCopier<'_>, id: &SessionId) -> Result<(), CopyError> {
    let (Some(here), Some(there)) = (
        SessionAttachments::of(copy.from, id)?,
        SessionAttachments::of(copy.to, id)?,
    ) else {
        return Ok(());
    };
    // A kept file would bring back content that was redacted in the target.
    if !there.flags.redacts || here.flags.redacts {
        for file in &here.files {
            if !is_there(copy, file, &there.files)? {
                copy_file(copy, id, file)?;
            }
        }
    }
    copy_append_keys(copy, id, &here.append_keys, &there.append_keys)?;
    // If the session is protected in both, the time of the target stays.
    let protected_there = there.flags.protected_at.clone();
    let protected_at = here.flags.protected_at;
    let flags = SessionFlags {
        protected_at: protected_at.map(|since| protected_there.unwrap_or(since)),
        redacts: here.flags.redacts || there.flags.redacts,
    };
    if flags == there.flags {
        return Ok(());
    }
    Ok(store::write(copy.to, |write| {
        let key = key_of(write, id)?;
        write.put_flags(key, &flags)
    })?)
}

/// Returns the keys of a session's appends, each with the loops of the append.
fn append_keys(read: &dyn StoreRead, session: SessionKey) -> StoreResult<Vec<(LoopId, AppendKey)>> {
    let mut loops: BTreeMap<LoopKey, LoopId> = BTreeMap::new();
    let keys = read.append_keys(session)?.into_iter().map(|row| {
        let id = match loops.entry(row.loop_key) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let row = read.loop_by_key(row.loop_key)?;
                new.insert(row.core.loop_id).clone()
            }
        };
        Ok((id, row))
    });
    keys.collect()
}

/// Copies the missing keys of appends whose loops are in the target.
fn copy_append_keys(
    copy: &SessionCopier<'_>,
    id: &SessionId,
    here: &[(LoopId, AppendKey)],
    there: &[(LoopId, AppendKey)],
) -> StoreResult<()> {
    let known: BTreeSet<&str> = there.iter().map(|(_, row)| row.name.as_str()).collect();
    let mut new = here
        .iter()
        .filter(|(_, row)| !known.contains(&*row.name))
        .peekable();
    if new.peek().is_none() {
        return Ok(());
    }
    store::write(copy.to, |write| {
        let session = key_of(write, id)?;
        for (loop_id, row) in new {
            let Some(owner) = write.loop_by_id(session, loop_id)? else {
                continue;
            };
            let loop_key = owner.core.key;
            if write.append_key(session, &row.name)?.is_none() {
                write.insert_append_key(
                    session,
                    &AppendKey {
                        loop_key,
                        ..row.clone()
                    },
                )?;
            }
        }
        Ok(())
    })
}

/// True if one of these files has the same bytes; the parts that they are stored in may differ.
fn is_there(
    copy: &SessionCopier<'_>,
    file: &SourceRow,
    there: &[SourceRow],
) -> Result<bool, CopyError> {
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

fn copy_file(copy: &SessionCopier<'_>, id: &SessionId, file: &SourceRow) -> Result<(), CopyError> {
    let mut way = LineSpool::new(copy.folder)?;
    export_source(copy.from, file, &mut way.file)?;
    let kept = store::write(copy.to, |write| {
        let key = key_of(write, id)?;
        let (format, path) = (&file.format, &file.path);
        // An error of the store must end the transaction.
        match source::keep(write, &mut way.file, format, path, &[key]) {
            Err(source::SourceError::Store(error)) => Err(error),
            Err(source::SourceError::Io(error)) => Err(StoreError::Io(error.into())),
            Ok(()) => Ok(()),
        }
    });
    Ok(kept?)
}

fn key_of(read: &dyn StoreRead, id: &SessionId) -> StoreResult<SessionKey> {
    let row = read.session(id)?;
    let row = row.ok_or_else(|| StoreError::NoSession(id.to_string()))?;
    Ok(row.key)
}
