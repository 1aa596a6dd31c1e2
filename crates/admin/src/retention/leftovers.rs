//! The search for removed content in all that is still stored.
//!
//! All content is read through the store, so packs are unpacked, pages decrypted and files put together. In a
//! file all sessions are searched; on a server, which may have a hundred thousand, only those connected with
//! the redacted one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::SqliteStore;
use loopstore::extend::source::unpacked;
use loopstore::extend::{
    Database, LoopRow, ReceiptRow, SessionKey, SourceRow, StoreError, StoreResult, StoredMessage,
    scan::StoreScan,
};
use loopstore::internal::database;
use loopstore::model::SessionId;
use loopstore_redact::Redactor;
use serde::Serialize;

/// The number of bytes at the end of a part of a file that are searched again with the next part.
const OVERLAP: usize = 4096;

/// A place that still contains removed content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentRemnant {
    /// The session that the place belongs to; `None` if several sessions may share it.
    pub session_id: Option<SessionId>,
    /// The table, or table and column.
    pub place: String,
    /// The number of occurrences.
    pub count: u64,
}

/// Returns the places that still contain secrets of the redactor, or parts of them. `shared` are the kept files
/// that the session had and other sessions still have.
pub(super) fn search(
    store: &dyn Database,
    session: &SessionId,
    redactor: &mut Redactor,
    shared: Vec<SourceRow>,
) -> StoreResult<Vec<ContentRemnant>> {
    let is_file = SqliteStore::downcast(store).is_some();
    database::scan(store, |scan| {
        let mut search = LeftoverSearch {
            own: session,
            redactor,
            receipts: scan.receipts()?,
            found: BTreeMap::new(),
        };
        let keys = match is_file {
            true => scan.session_keys()?,
            false => family(scan, session)?,
        };
        let shared = shared.into_iter().map(|row| (row.key, row));
        let mut sources: BTreeMap<_, _> = shared.collect();
        for key in keys {
            let id = scan.session_by_key(key)?.session_id;
            for row in scan.sources(key)? {
                sources.insert(row.key, row);
            }
            search.in_session(scan, key, &id)?;
        }
        for row in sources.into_values() {
            search.in_source(scan, &row)?;
        }
        if is_file {
            search.in_blobs(scan)?;
        }
        Ok(search.places())
    })
}

/// Returns the sessions connected with one: those that it started or that continue it, and those that started
/// it or that it continues.
fn family(scan: &dyn StoreScan, session: &SessionId) -> StoreResult<Vec<SessionKey>> {
    let Some(row) = scan.session(session)? else {
        return Ok(Vec::new());
    };
    let (mut known, mut next) = (BTreeSet::from([row.key]), vec![row.key]);
    while let Some(key) = next.pop() {
        let mut near = scan.started_by(key)?;
        let linked = scan.continuations(key)?;
        near.extend(linked.by.into_iter().chain(linked.of));
        next.extend(near.into_iter().filter(|key| known.insert(*key)));
    }
    Ok(known.into_iter().collect())
}

struct LeftoverSearch<'a> {
    /// The redacted session. In other sessions, a word that is also in a secret is not reported as a part of
    /// the secret.
    own: &'a SessionId,
    redactor: &'a mut Redactor,
    receipts: Vec<ReceiptRow>,
    found: BTreeMap<(Option<SessionId>, String), u64>,
}

impl LeftoverSearch<'_> {
    fn places(self) -> Vec<ContentRemnant> {
        let place = |((session_id, place), count)| ContentRemnant {
            session_id,
            place,
            count,
        };
        self.found.into_iter().map(place).collect()
    }

    fn add(&mut self, session: Option<&SessionId>, place: &str, count: u64) {
        if count > 0 {
            let at = (session.cloned(), place.to_owned());
            *self.found.entry(at).or_default() += count;
        }
    }

    fn in_text(&mut self, session: Option<&SessionId>, place: &str, text: &str) {
        let in_doubt = session.is_none_or(|session| session == self.own);
        let count = self.redactor.count_in(text, in_doubt);
        self.add(session, place, count);
    }

    fn in_message(&mut self, session: &SessionId, place: &str, body: &StoredMessage) {
        for text in [&body.head, &body.text].into_iter().flatten() {
            self.in_text(Some(session), place, text);
        }
    }

    fn in_session(
        &mut self,
        scan: &dyn StoreScan,
        key: SessionKey,
        id: &SessionId,
    ) -> StoreResult<()> {
        for row in scan.loops(key)? {
            self.in_loop(scan, &row, id)?;
        }
        scan.texts(key, &mut |cell| {
            self.in_text(Some(id), cell.place, cell.text);
            Ok(())
        })?;
        let own = self.receipts.iter().filter(|row| row.session == key);
        let count = own
            .map(|row| self.redactor.count_in(&row.detail, true))
            .sum();
        self.add(Some(id), "maintenance.detail", count);
        Ok(())
    }

    fn in_loop(&mut self, scan: &dyn StoreScan, row: &LoopRow, id: &SessionId) -> StoreResult<()> {
        scan.messages(row.key, 0..row.totals.next_seq, &mut |message| {
            self.in_message(id, "messages", &message.body);
            Ok(ControlFlow::Continue(()))
        })?;
        for (_, head) in scan.packed_heads(row.key, 0..row.totals.next_seq)? {
            self.in_text(Some(id), "packed_heads", &head);
        }
        for block in scan.blocks_of_loop(row.key)? {
            for message in scan.block_messages(block.key)? {
                if let Some(body) = &message.body {
                    self.in_message(id, "block_messages", body);
                }
            }
        }
        Ok(())
    }

    fn in_source(&mut self, scan: &dyn StoreScan, row: &SourceRow) -> StoreResult<()> {
        let mut before = Vec::new();
        self.in_text(None, "sources", &row.path);
        for part in scan.source_parts(row.key)? {
            before.extend(unpacked(scan, &part)?);
            self.in_text(None, "sources", &String::from_utf8_lossy(&before));
            before.drain(..before.len().saturating_sub(OVERLAP));
        }
        Ok(())
    }

    fn in_blobs(&mut self, scan: &dyn StoreScan) -> StoreResult<()> {
        let mut after = i64::MIN;
        while let Some(key) = scan.next_blob(after)? {
            let row = match scan.blob_row(key) {
                Err(StoreError::Damaged(_)) => None,
                row => Some(row?),
            };
            let holds = row.is_some_and(|row| self.redactor.is_in_bytes(&row.data));
            self.add(None, "blobs", u64::from(holds));
            after = key;
        }
        Ok(())
    }
}
