//! The digests of raw records, by which an import recognises stored messages, and the ids of sessions without one.

use std::ops::ControlFlow;

use loopstore::extend::{LoopKey, SessionKey, StoreRead, StoreResult};
use loopstore::model::SessionId;
use loopstore_model::MAX_ID_BYTES;
use sha2::{Digest as _, Sha256};

/// The longest id that is made from a file's name and a record's key, in bytes.
const MAX_MADE_ID: usize = 200;

/// The digest of a raw record, keyed per database.
pub(super) type RecordDigest = [u8; 32];

/// A bit in the first byte of the digest of an extension that keeps a changed record. An import must not match such an
/// extension with a record of the transcript, and a transcript may itself contain extensions of kind `revised`, so the
/// kind does not distinguish them.
const REVISED: u8 = 0x80;

/// Makes digests.
#[derive(Clone, Default)]
pub(super) struct Digests {
    key: Vec<u8>,
}

impl Digests {
    pub(super) fn new(read: &dyn StoreRead) -> StoreResult<Self> {
        Ok(Self {
            key: read.import_key()?,
        })
    }

    /// Returns the digest of a raw record.
    pub(super) fn of(&self, raw: &[u8]) -> RecordDigest {
        let mut digest = self.hash(&[raw]);
        digest[0] &= !REVISED;
        digest
    }

    /// Returns the digest of the extension that keeps a changed record of the message `seq`.
    pub(super) fn revised(&self, seq: u32, record: &RecordDigest) -> RecordDigest {
        let mut digest = self.hash(&[&seq.to_le_bytes(), record]);
        digest[0] |= REVISED;
        digest
    }

    fn hash(&self, parts: &[&[u8]]) -> RecordDigest {
        let mut hash = Sha256::new();
        hash.update(&self.key);
        for part in parts {
            hash.update(part);
        }
        hash.finalize().into()
    }
}

/// Returns the digest of a raw record in the database with this import key.
pub fn record_digest(key: &[u8], raw: &[u8]) -> [u8; 32] {
    let key = key.to_vec();
    Digests { key }.of(raw)
}

/// True if a digest belongs to an extension that keeps a changed record.
pub(super) fn is_revised(digest: &RecordDigest) -> bool {
    digest[0] & REVISED != 0
}

fn visit(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    end: u32,
    each: &mut dyn FnMut(u32, RecordDigest) -> ControlFlow<()>,
) -> StoreResult<()> {
    read.messages(loop_key, 0..end, &mut |message| {
        Ok(match message.origin {
            Some(origin) => each(message.seq, origin),
            None => ControlFlow::Continue(()),
        })
    })
}

/// Returns the number of messages that a stored and a new session share, if one is a prefix of the other.
pub(super) fn common_prefix(
    read: &dyn StoreRead,
    session: SessionKey,
    new: &[RecordDigest],
) -> StoreResult<Option<usize>> {
    let (mut common, mut differs) = (0, false);
    for row in read.loops(session)? {
        visit(read, row.key, row.totals.next_seq, &mut |_, digest| {
            if is_revised(&digest) {
                return ControlFlow::Continue(());
            }
            match new.get(common) {
                Some(expected) if *expected == digest => {
                    common += 1;
                    ControlFlow::Continue(())
                }
                Some(_) => {
                    differs = true;
                    ControlFlow::Break(())
                }
                None => ControlFlow::Break(()),
            }
        })?;
        if differs || common == new.len() {
            break;
        }
    }
    Ok((!differs).then_some(common))
}

/// Returns an id made from the name of a file and the key of a record; `taken` is true for ids in use.
pub(super) fn made_id(
    file_stem: &str,
    key: &str,
    taken: &mut dyn FnMut(&SessionId) -> StoreResult<bool>,
) -> StoreResult<SessionId> {
    let mut base = harmless(&format!("{file_stem}-{key}"));
    if base.is_empty() {
        base.push_str("session");
    }
    free_id(&base, 1, taken)
}

/// Returns an id for a session whose own id belongs to another session: its id with a number; `taken` is true for ids
/// in use.
pub(super) fn next_id(
    own: &SessionId,
    taken: &mut dyn FnMut(&SessionId) -> StoreResult<bool>,
) -> StoreResult<SessionId> {
    free_id(own.as_str(), 2, taken)
}

fn free_id(
    base: &str,
    first: u64,
    taken: &mut dyn FnMut(&SessionId) -> StoreResult<bool>,
) -> StoreResult<SessionId> {
    let mut number = first;
    loop {
        let end = match number {
            1 => String::new(),
            _ => format!("-{number}"),
        };
        let mut text = base.to_owned();
        while text.len() + end.len() > MAX_ID_BYTES {
            text.pop();
        }
        let id = SessionId::new(text + &end)
            .map_err(|e| loopstore::extend::StoreError::Invalid(e.to_string()))?;
        if !taken(&id)? {
            return Ok(id);
        }
        number += 1;
    }
}

/// Replaces each run of characters other than ASCII letters, digits, `.`, `_` and `-` by a dash.
pub(super) fn harmless(text: &str) -> String {
    let mut made = String::new();
    for c in text.chars() {
        let plain = c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let c = if plain { c } else { '-' };
        if c != '-' || !made.ends_with('-') {
            made.push(c);
        }
        if made.len() >= MAX_MADE_ID {
            break;
        }
    }
    made.trim_matches(|c| matches!(c, '.' | '-')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_hold_harmless_characters() {
        assert_eq!(harmless("../../etc/passwd"), "etc-passwd");
        assert_eq!(harmless("a b'; DROP--x"), "a-b-DROP-x");
        assert_eq!(harmless("日本"), "");
        assert!(harmless(&"x".repeat(9999)).len() <= MAX_MADE_ID);
    }

    #[test]
    fn a_made_id_that_is_taken_gets_a_number() {
        let id = made_id("runs", "0/1", &mut |id| Ok(id.as_str() != "runs-0-1-3")).unwrap();
        assert_eq!(id.as_str(), "runs-0-1-3");
        assert_eq!(
            made_id("", "", &mut |_| Ok(false)).unwrap().as_str(),
            "session"
        );
        let long = SessionId::new("é".repeat(MAX_ID_BYTES / 2)).unwrap();
        let id = next_id(&long, &mut |_| Ok(false)).unwrap();
        assert!(id.as_str().ends_with("é-2"));
    }
}
