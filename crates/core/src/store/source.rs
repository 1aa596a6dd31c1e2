//! The files that sessions were imported from, kept byte for byte.
//!
//! A file is kept as parts of at most 1 MiB, each compressed and named by its SHA-256. A file that
//! is imported again is compared part by part: equal parts stay, and appended ones are added. A file that
//! was rewritten in place is rewritten from the first part that differs. Neither way needs more than a
//! part in memory.

use std::io::{self, Read, Seek, SeekFrom, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use sha2::{Digest as _, Sha256};

use super::rows::{SourceKey, SourcePart, SourcePiece, SourceRow};
use super::{SessionKey, SessionStore, StoreError, StoreRead, StoreResult, StoreWrite};
use crate::model::SessionId;

/// The largest size of a part.
pub const MAX_PART_BYTES: usize = 1 << 20;
/// A last part smaller than this is written again together with the appended bytes: a file that grows
/// line by line must not become a part for each line.
const MIN_PART_BYTES: u64 = 64 << 10;

/// The compression level of parts. A higher one costs an import twice the time and saves a tenth of the bytes.
const LEVEL: u32 = 3;

/// A file that can be read again from any position.
pub trait SourceFile: Read + Seek {}
impl<T: Read + Seek + ?Sized> SourceFile for T {}

/// An error on keeping or returning a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The store failed, or is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be read, or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Keeps a file for the sessions that it contains messages of.
///
/// Nothing is added for a file that is an earlier state of a kept one.
///
/// # Errors
/// If the file cannot be read or the store refuses.
pub fn keep(
    write: &mut dyn StoreWrite,
    file: &mut dyn SourceFile,
    format: &str,
    path: &str,
    sessions: &[SessionKey],
) -> Result<(), SourceError> {
    let none = &mut std::iter::empty();
    keep_packed(write, file, none, format, path, sessions)
}

/// Parts of a file that were packed beforehand, from the first on, in order.
pub type SourcePieces<'a> = dyn Iterator<Item = io::Result<SourcePiece>> + 'a;

/// Keeps a file as [`keep`] does; for a new file, the packed `pieces` are used as far as they reach.
pub fn keep_packed(
    write: &mut dyn StoreWrite,
    file: &mut dyn SourceFile,
    pieces: &mut SourcePieces<'_>,
    format: &str,
    path: &str,
    sessions: &[SessionKey],
) -> Result<(), SourceError> {
    let key = match find_kept(write, file, format, path, sessions)? {
        Some((row, place)) => {
            if let Some(place) = place {
                rewrite(write, file, row.clone(), path, place)?;
            }
            row.key
        }
        None => {
            let row = SourceRow {
                key: SourceKey(0),
                format: format.to_owned(),
                path: path.to_owned(),
                bytes: 0,
                digest: [0; 32],
            };
            let key = write.insert_source(&row)?;
            let place = put_packed(write, file, pieces, key)?;
            let row = SourceRow { key, ..row };
            rewrite(write, file, row, path, place)?;
            key
        }
    };
    for session in sessions {
        write.link_source(*session, key)?;
    }
    Ok(())
}

/// Returns the files that are kept for a session, oldest first.
///
/// # Errors
/// If the session does not exist, or the store fails.
pub fn sources(store: &dyn SessionStore, session: &SessionId) -> StoreResult<Vec<SourceRow>> {
    super::read(store, |read| {
        let row = read.session(session)?;
        let row = row.ok_or_else(|| StoreError::NoSession(session.to_string()))?;
        read.sources(row.key)
    })
}

/// Writes the bytes of a kept file.
///
/// # Errors
/// If a part does not match its digest, or `out` fails.
pub fn write_out(
    read: &dyn StoreRead,
    source: &SourceRow,
    out: &mut dyn Write,
) -> Result<u64, SourceError> {
    let parts = read.source_parts(source.key)?;
    let bytes = parts.iter().map(|part| part.bytes).sum();
    if digest_of(&parts) != source.digest || bytes != source.bytes {
        let detail = "a source has not the parts that were kept";
        return Err(StoreError::Damaged(detail.into()).into());
    }
    for part in &parts {
        out.write_all(&unpacked(read, part)?)?;
    }
    Ok(bytes)
}

fn digest_of(parts: &[SourcePart]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.sha256);
    }
    hash.finalize().into()
}

/// Returns the unpacked bytes of a part.
///
/// # Errors
/// If the bytes do not match the digest that names the part.
pub fn unpacked(read: &dyn StoreRead, part: &SourcePart) -> StoreResult<Vec<u8>> {
    let damaged = |what: &str| StoreError::Damaged(format!("a part of a source {what}"));
    let packed = read.source_piece(&part.sha256)?;
    let packed = packed.ok_or_else(|| damaged("is missing"))?;
    let mut data = Vec::new();
    // Reading one byte more than the limit detects a longer part.
    let most = MAX_PART_BYTES as u64 + 1;
    DeflateDecoder::new(&packed[..])
        .take(most)
        .read_to_end(&mut data)
        .map_err(|_| damaged("cannot be unpacked"))?;
    let is_same = <[u8; 32]>::from(Sha256::digest(&data)) == part.sha256;
    if !is_same || data.len() as u64 != part.bytes {
        return Err(damaged("is another one"));
    }
    Ok(data)
}

/// The position at which new parts begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PartStart {
    part: u32,
    offset: u64,
}

/// The relation of a file to a kept one.
enum Relation {
    /// The file is the kept one, or an earlier state of it.
    Within,
    /// The file continues after the kept parts.
    Extends(PartStart),
    /// The file is equal up to this position.
    Differs(PartStart),
}

/// Returns the kept file that this one is a state of, and the relation of the two.
fn find_kept(
    read: &dyn StoreWrite,
    file: &mut dyn SourceFile,
    format: &str,
    path: &str,
    sessions: &[SessionKey],
) -> Result<Option<(SourceRow, Option<PartStart>)>, SourceError> {
    let mut rows: Vec<SourceRow> = Vec::new();
    for session in sessions {
        rows.extend(read.sources(*session)?);
    }
    rows.retain(|row| row.format == format);
    rows.sort_by_key(|row| row.key);
    rows.dedup_by_key(|row| row.key);
    let mut rewritten = None;
    for row in rows {
        match compare(read, file, &row)? {
            Relation::Within => return Ok(Some((row, None))),
            Relation::Extends(place) => return Ok(Some((row, Some(place)))),
            Relation::Differs(place) if row.path == path => rewritten = Some((row, Some(place))),
            Relation::Differs(_) => {}
        }
    }
    Ok(rewritten)
}

fn compare(
    read: &dyn StoreRead,
    file: &mut dyn SourceFile,
    row: &SourceRow,
) -> Result<Relation, SourceError> {
    file.rewind()?;
    let (mut place, mut before) = (PartStart::default(), PartStart::default());
    for part in read.source_parts(row.key)? {
        let here = read_some(file, part.bytes)?;
        if here.len() as u64 != part.bytes {
            let kept = unpacked(read, &part)?;
            return Ok(match kept.starts_with(&here) {
                true => Relation::Within,
                false => Relation::Differs(place),
            });
        }
        if <[u8; 32]>::from(Sha256::digest(&here)) != part.sha256 {
            return Ok(Relation::Differs(place));
        }
        before = place;
        place.part += 1;
        place.offset += part.bytes;
    }
    if read_some(file, 1)?.is_empty() {
        return Ok(Relation::Within);
    }
    let is_small = place.offset - before.offset < MIN_PART_BYTES;
    Ok(Relation::Extends(if is_small { before } else { place }))
}

/// Keeps the parts that were packed beforehand, and returns the position at which the rest of the file begins.
/// Parts that cannot be read are left to the caller.
fn put_packed(
    write: &mut dyn StoreWrite,
    file: &mut dyn SourceFile,
    pieces: &mut SourcePieces<'_>,
    key: SourceKey,
) -> Result<PartStart, SourceError> {
    let mut place = PartStart::default();
    for piece in pieces.map_while(Result::ok) {
        let end = place.offset + piece.bytes;
        let is_last = piece.bytes < MAX_PART_BYTES as u64;
        // A file that has grown since has other parts at its end.
        if is_last && file.seek(SeekFrom::End(0))? != end {
            break;
        }
        write.put_source_part(key, place.part, &piece)?;
        place.part = following(place.part)?;
        place.offset = end;
    }
    Ok(place)
}

fn following(part: u32) -> StoreResult<u32> {
    let too_many = || StoreError::Invalid("a source has too many parts".into());
    part.checked_add(1).ok_or_else(too_many)
}

/// Replaces the kept parts from `place` on by those of the file.
fn rewrite(
    write: &mut dyn StoreWrite,
    file: &mut dyn SourceFile,
    mut row: SourceRow,
    path: &str,
    place: PartStart,
) -> Result<(), SourceError> {
    write.remove_source_parts(row.key, place.part)?;
    file.seek(SeekFrom::Start(place.offset))?;
    row.bytes = place.offset;
    path.clone_into(&mut row.path);
    let mut number = place.part;
    loop {
        let data = read_some(file, MAX_PART_BYTES as u64)?;
        if data.is_empty() {
            break;
        }
        row.bytes += data.len() as u64;
        write.put_source_part(row.key, number, &packed(&data)?)?;
        number = following(number)?;
    }
    row.digest = digest_of(&write.source_parts(row.key)?);
    Ok(write.update_source(&row)?)
}

pub(super) fn packed(data: &[u8]) -> io::Result<SourcePiece> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
    encoder.write_all(data)?;
    Ok(SourcePiece {
        sha256: Sha256::digest(data).into(),
        bytes: data.len() as u64,
        data: encoder.finish()?,
    })
}

/// Reads at most `most` bytes; fewer only at the end.
pub(super) fn read_some(file: &mut dyn SourceFile, most: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    // A damaged length must not ask for all memory.
    file.take(most.min(MAX_PART_BYTES as u64))
        .read_to_end(&mut data)?;
    Ok(data)
}
