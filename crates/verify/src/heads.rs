//! Heads: a head is a short text that identifies all final content of a database, and is kept outside of the
//! database.
//!
//! Digests within a database prove that the database is consistent. They do not prove that its end was not cut off,
//! or that the whole database was not rewritten. A head is the digest of the ends of all chains at a point in time.
//! The ends themselves stay in the database, so that the text can be short.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::str::FromStr;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use hmac::{Hmac, KeyInit as _, Mac as _};
use loopstore::extend::{
    self as store, Database, HeadRow, LoopKey, StoreError, StoreRead, StoreResult,
    audit::AuditChain, receipt::Receipt, scan::StoreScan,
};
use loopstore::internal::{database, to_json, unhex};
use loopstore::model::{LoopId, SessionId, Time};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::report::{Findings, ProblemKind, VerifyReport};

/// The first field of a head.
const FORMAT: &str = "loopstore-head-1";

/// A short text that identifies all final content of a database at a point in time.
///
/// ```
/// use loopstore_verify::{take_head, verify_against};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
/// let head = take_head(store.database(), Some(b"a key of mine"))?.to_string();
/// chat.append([Message::user("And tomorrow?")])?;
/// let report = verify_against(store.database(), &head.parse()?, Some(b"a key of mine"))?;
/// assert!(report.ok, "{:?}", report.problems);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    sha256: [u8; 32],
    /// The HMAC-SHA256 of the digest with a key of the user.
    signature: Option<[u8; 32]>,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORMAT}:{}", hex::encode(self.sha256))?;
        match &self.signature {
            Some(signature) => write!(f, ":{}", hex::encode(signature)),
            None => Ok(()),
        }
    }
}

/// The error of a text that is not a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a head reads `{FORMAT}:` and 64 hexadecimal digits, and 64 more if it is signed")]
pub struct HeadParseError;

impl FromStr for Head {
    type Err = HeadParseError;

    fn from_str(text: &str) -> Result<Self, HeadParseError> {
        let mut parts = text.trim().split(':');
        if parts.next() != Some(FORMAT) {
            return Err(HeadParseError);
        }
        let sha256 = parts.next().and_then(unhex).ok_or(HeadParseError)?;
        let signature = match parts.next() {
            Some(part) => Some(unhex(part).ok_or(HeadParseError)?),
            None => None,
        };
        match parts.next() {
            Some(_) => Err(HeadParseError),
            None => Ok(Self { sha256, signature }),
        }
    }
}

impl Head {
    fn mac(&self, key: &[u8]) -> StoreResult<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(key)
            .map_err(|error| StoreError::Invalid(error.to_string()))?;
        mac.update(FORMAT.as_bytes());
        mac.update(&self.sha256);
        Ok(mac)
    }
}

/// The end of a chain: the number of its entries, and its digest in hexadecimal digits.
type ChainEnd = (u64, String);

/// The state of a database from which a head is computed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HeadState {
    /// The receipts; one chain for each tenant if tenants are kept apart.
    receipts: Vec<ChainEnd>,
    sessions: BTreeMap<SessionId, SessionChains>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SessionChains {
    audit: ChainEnd,
    /// The final messages of each loop.
    loops: BTreeMap<LoopId, ChainEnd>,
}

impl HeadState {
    fn of(scan: &dyn StoreScan) -> StoreResult<Self> {
        let ends = scan.receipt_chains()?;
        let mut state = Self {
            receipts: ends.iter().map(end_of).collect(),
            sessions: BTreeMap::new(),
        };
        for key in scan.session_keys()? {
            let row = scan.session_by_key(key)?;
            let mut loops = BTreeMap::new();
            for row in scan.loops(key)? {
                let sealed = row.totals.sealed_seq;
                if let Some(chain) = chain_at(scan, row.key, sealed)? {
                    loops.insert(row.core.loop_id, (u64::from(sealed), hex::encode(chain)));
                }
            }
            let audit = end_of(&scan.audit_chain(key)?);
            state
                .sessions
                .insert(row.session_id, SessionChains { audit, loops });
        }
        Ok(state)
    }
}

fn end_of(chain: &AuditChain) -> ChainEnd {
    (chain.end.seq, hex::encode(chain.end.chain))
}

/// Returns the chain digest of a loop after the first `seq` messages.
fn chain_at(read: &dyn StoreRead, loop_key: LoopKey, seq: u32) -> StoreResult<Option<[u8; 32]>> {
    let Some(last) = seq.checked_sub(1) else {
        return Ok(None);
    };
    let mut found = None;
    read.messages(loop_key, last..seq, &mut |message| {
        found = Some(message.chain);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Returns true if a chain still begins with the entries that it had at that time.
fn begins_with(chain: &AuditChain, (seq, digest): &ChainEnd) -> bool {
    let Some(last) = seq.checked_sub(1) else {
        return true;
    };
    let row = usize::try_from(last).ok().and_then(|at| chain.rows.get(at));
    row.is_some_and(|row| row.end.seq == *seq && hex::encode(row.end.chain) == *digest)
}

/// Records the ends of all chains in the database, and returns the head that identifies them. With a key the head is
/// signed.
///
/// # Errors
/// If the store cannot be read or written.
pub fn take_head(database: &dyn Database, key: Option<&[u8]>) -> StoreResult<Head> {
    let state = database::scan(database, |scan| to_json(&HeadState::of(scan)?))?;
    let mut head = Head {
        sha256: Sha256::digest(&state).into(),
        signature: None,
    };
    if let Some(key) = key {
        head.signature = Some(head.mac(key)?.finalize().into_bytes().into());
    }
    let is_known = database::scan(database, |scan| Ok(scan.head(&head.sha256)?.is_some()))?;
    if !is_known {
        let failed = |error: std::io::Error| StoreError::Io(error.into());
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(state.as_bytes()).map_err(failed)?;
        let row = HeadRow {
            sha256: head.sha256,
            taken_at: Time::now().as_str().to_owned(),
            content: encoder.finish().map_err(failed)?,
        };
        store::write(database, |write| write.insert_head(&row))?;
    }
    Ok(head)
}

/// Checks a store as [`verify`](super::verify) does, and compares the store with a head. Each session must still
/// begin with the content that it had when the head was taken, unless it was erased or pruned since.
///
/// # Errors
/// If the store cannot be read for another reason than damage.
pub fn verify_against(
    database: &dyn Database,
    head: &Head,
    key: Option<&[u8]>,
) -> StoreResult<VerifyReport> {
    let mut report = super::verify(database)?;
    let mut found = Findings::default();
    let is_signed = match (key, head.signature) {
        (Some(key), Some(signature)) => head.mac(key)?.verify_slice(&signature).is_ok(),
        (None, _) => true,
        (Some(_), None) => false,
    };
    if !is_signed {
        let detail = "it is not signed with this key";
        found.add(ProblemKind::Head, "head", detail);
    }
    let checked = database::scan(database, |scan| check(scan, head, &mut found));
    found.readable("head", checked)?;
    let headed = found.into_report();
    report.ok &= headed.ok;
    report.problems.extend(headed.problems);
    Ok(report)
}

fn check(scan: &dyn StoreScan, head: &Head, found: &mut Findings) -> StoreResult<()> {
    let Some(state) = stored(scan, head)? else {
        let detail =
            "what it stands for is not here: the end was cut off, or it is of another database";
        found.add(ProblemKind::Head, "head", detail);
        return Ok(());
    };
    let chains = scan.receipt_chains()?;
    for end in &state.receipts {
        if !chains.iter().any(|chain| begins_with(chain, end)) {
            let detail = format!("they had {} rows then, which are not here any more", end.0);
            found.add(ProblemKind::Head, "receipts", detail);
        }
    }
    let removed: BTreeSet<SessionId> = scan
        .receipts()?
        .iter()
        .filter_map(|row| {
            let receipt = Receipt::read(row)?;
            // A receipt of another kind removed all rows of a session, which were then written anew.
            let is_removal = matches!(row.kind.as_str(), "erase" | "prune")
                || receipt.counts.contains_key("sessions");
            is_removal.then_some(receipt.session)
        })
        .collect();
    for (id, then) in &state.sessions {
        if removed.contains(id) {
            continue;
        }
        let place = format!("session {id}");
        let Some(row) = scan.session(id)? else {
            found.add(
                ProblemKind::Head,
                place,
                "it is not here any more, and there is no receipt",
            );
            continue;
        };
        if !begins_with(&scan.audit_chain(row.key)?, &then.audit) {
            let detail = format!(
                "its audit chain had {} rows then, others than now",
                then.audit.0
            );
            found.add(ProblemKind::Head, &place, detail);
        }
        for (loop_id, (messages, chain)) in &then.loops {
            let now = match scan.loop_by_id(row.key, loop_id)? {
                Some(row) => chain_at(scan, row.key, u32::try_from(*messages).unwrap_or(u32::MAX))?,
                None => None,
            };
            if now.is_none_or(|now| hex::encode(now) != *chain) {
                let place = format!("{place}, loop {loop_id}");
                let detail = format!("it had {messages} final messages then, others than now");
                found.add(ProblemKind::Head, place, detail);
            }
        }
    }
    Ok(())
}

/// Returns the state that a head was computed from; `None` if the database does not contain it.
fn stored(scan: &dyn StoreScan, head: &Head) -> StoreResult<Option<HeadState>> {
    let Some(content) = scan.head(&head.sha256)? else {
        return Ok(None);
    };
    let mut text = String::new();
    let damaged = || StoreError::Damaged("what the head stands for is not what was stored".into());
    DeflateDecoder::new(&content[..])
        .read_to_string(&mut text)
        .map_err(|_| damaged())?;
    if <[u8; 32]>::from(Sha256::digest(&text)) != head.sha256 {
        return Err(damaged());
    }
    serde_json::from_str(&text).map(Some).map_err(|_| damaged())
}
