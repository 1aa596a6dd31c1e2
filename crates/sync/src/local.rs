//! A database that is opened here.

use std::collections::{BTreeSet, HashMap};

use loopstore::extend::receipt::Receipt;
use loopstore::extend::scan::StoreScan;
use loopstore::extend::{
    Database, ReceiptRow, SessionRow, SourceRow, StoreRead, StoreResult, StoreWrite, lease,
};
use loopstore::internal::{database, seal};
use loopstore::model::SessionId;
use loopstore_admin::retention::finish;
use loopstore_copy::internal::{seal_again, seal_alone};
use loopstore_export::export_source;
use loopstore_model::clock::now;
use sha2::{Digest as _, Sha256};

use crate::document::{SessionDocument, SessionText};
use crate::files::{self, OfferedFile};
use crate::fingerprint::{bucket, bucket_hashes, entries, is_in};
use crate::peer::{
    FileName, Peer, PeerEntry, PeerError, PeerInfo, PeerResult, RemovalReceipt, RemoveOutcome,
    StoreOutcome, SyncFilter,
};
use crate::rows::read_text;
use crate::{hides, write};

/// A database that is opened here.
pub(crate) struct LocalPeer<'a> {
    database: &'a dyn Database,
    filter: SyncFilter,
    /// True if sessions that the other database removed are kept.
    keeps_removed: bool,
    /// True if nothing is written.
    dry_run: bool,
    /// The fingerprints, once they were computed.
    entries: Option<Vec<PeerEntry>>,
    /// True if bytes of removed content may remain in the file.
    has_leftovers: bool,
    /// The files that the next write stores, with the session that they belong to.
    offered: Vec<OfferedFile>,
    offered_to: Option<SessionId>,
}

impl<'a> LocalPeer<'a> {
    pub(crate) fn new(
        database: &'a dyn Database,
        filter: SyncFilter,
        keeps_removed: bool,
        dry_run: bool,
    ) -> Self {
        Self {
            database,
            filter,
            keeps_removed,
            dry_run,
            entries: None,
            has_leftovers: false,
            offered: Vec::new(),
            offered_to: None,
        }
    }

    fn all_entries(&mut self) -> PeerResult<&[PeerEntry]> {
        let found = match self.entries.take() {
            Some(entries) => entries,
            None => database::scan(self.database, |scan| entries(scan, &self.filter))?,
        };
        Ok(self.entries.insert(found))
    }

    fn read<T>(&self, work: impl FnOnce(&dyn StoreRead) -> StoreResult<T>) -> StoreResult<T> {
        loopstore::extend::read(self.database, work)
    }

    /// Returns the kept files of a session under their names.
    fn sources(&self, id: &SessionId) -> StoreResult<Vec<(FileName, SourceRow)>> {
        self.read(|read| {
            let Some(row) = read.session(id)? else {
                return Ok(Vec::new());
            };
            let named = read.sources(row.key)?.into_iter().map(|row| {
                let name = FileName {
                    format: row.format.clone(),
                    path: row.path.clone(),
                    bytes: row.bytes,
                };
                (name, row)
            });
            Ok(named.collect())
        })
    }

    fn bytes_of(&self, row: &SourceRow) -> PeerResult<Vec<u8>> {
        let mut bytes = Vec::new();
        export_source(self.database, row, &mut bytes)?;
        Ok(bytes)
    }
}

impl Peer for LocalPeer<'_> {
    fn info(&mut self) -> PeerResult<PeerInfo> {
        if let Some(since) = &self.filter.since
            && self.filter.since_millis().is_none()
        {
            return Err(PeerError::Session(format!("`{since}` is not a time")));
        }
        let mut hash = Sha256::new();
        for receipt in self.receipts()? {
            hash.update(format!("{:?}", receipt.name()));
        }
        Ok(PeerInfo {
            place: self.database.place(),
            counter: self.database.counter().name().to_owned(),
            receipts: hex::encode(hash.finalize()),
        })
    }

    fn buckets(&mut self) -> PeerResult<Vec<String>> {
        Ok(bucket_hashes(self.all_entries()?))
    }

    fn entries(&mut self, buckets: &[u16]) -> PeerResult<Vec<PeerEntry>> {
        let wanted: BTreeSet<u16> = buckets.iter().copied().collect();
        let entries = self.all_entries()?.iter();
        let found = entries.filter(|entry| wanted.contains(&bucket(&entry.id)));
        Ok(found.cloned().collect())
    }

    fn receipts(&mut self) -> PeerResult<Vec<RemovalReceipt>> {
        let rows = database::scan(self.database, |scan| scan.receipts())?;
        let mut receipts: Vec<_> = rows.iter().filter_map(RemovalReceipt::of).collect();
        receipts.sort_by(|a, b| a.name().cmp(&b.name()));
        receipts.dedup_by(|a, b| a.name() == b.name());
        Ok(receipts)
    }

    fn has(&mut self, id: &SessionId) -> PeerResult<bool> {
        Ok(self.read(|read| Ok(read.session(id)?.is_some()))?)
    }

    fn load(
        &mut self,
        id: &SessionId,
        _have: Option<&SessionText>,
    ) -> PeerResult<Option<SessionText>> {
        let counter = self.database.counter().name();
        let mut found = None;
        self.read(|read| {
            found = Some(read_text(read, counter, id));
            Ok(())
        })?;
        found.unwrap_or(Ok(None))
    }

    fn store(
        &mut self,
        id: &SessionId,
        expected: Option<&SessionText>,
        text: &SessionText,
        is_apart: bool,
    ) -> PeerResult<StoreOutcome> {
        self.check_writes()?;
        if let Some(stored) = expected.filter(|_| self.keeps_removed) {
            let parse = |text| SessionDocument::parse(id, text).map_err(PeerError::Session);
            if parse(text)?.redacts(&parse(stored)?) {
                let reason = "it was redacted elsewhere, and this database keeps it";
                return Err(PeerError::Session(reason.into()));
            }
        }
        let mut offered = std::mem::take(&mut self.offered);
        if self.offered_to.take().as_ref() != Some(id) {
            offered.clear();
        }
        if expected.is_none() && !is_apart {
            let document = SessionDocument::parse(id, text).map_err(PeerError::Session)?;
            if let Some(id) = hides::later_id(self.database, &document)? {
                return Ok(StoreOutcome::Renamed(id));
            }
        }
        let expected = expected.map(SessionText::digest);
        let written = write::write_session(self.database, id, expected, text, &offered)?;
        self.has_leftovers |= written.has_leftovers;
        Ok(written.outcome)
    }

    fn follow_hides(&mut self, text: &SessionText, id: &SessionId) -> PeerResult<bool> {
        self.check_writes()?;
        hides::follow(self.database, text, id)
    }

    fn remove(&mut self, receipt: &RemovalReceipt) -> PeerResult<RemoveOutcome> {
        let (row, content) = receipt.row().map_err(PeerError::Session)?;
        let mut outcome = RemoveOutcome::Absent;
        let work = |write: &mut dyn StoreWrite| {
            outcome = self.remove_within(write, &row, &content)?;
            Ok(())
        };
        match self.dry_run {
            // The transaction is taken back.
            true => database::scan(self.database, |scan| {
                outcome = self.removal(scan, &content)?.0;
                Ok(())
            })?,
            false => database::removing(self.database, work)?,
        }
        self.has_leftovers |= outcome == RemoveOutcome::Removed && !self.dry_run;
        self.entries = None;
        Ok(outcome)
    }

    fn place_receipt(&mut self, receipt: &RemovalReceipt) -> PeerResult<()> {
        self.check_writes()?;
        let (row, content) = receipt.row().map_err(PeerError::Session)?;
        let is_removal = receipt.is_removal();
        database::removing(self.database, |write| {
            if is_known(write, &row, &content)? {
                return Ok(());
            }
            match write.session(&content.session)? {
                Some(session) if !is_removal => seal_again(write, session.key, &row),
                None if !is_removal => Ok(false),
                _ => seal_alone(write, &row),
            }?;
            Ok(())
        })?;
        Ok(())
    }

    fn files(&mut self, id: &SessionId) -> PeerResult<Vec<FileName>> {
        let named = self.sources(id)?.into_iter();
        Ok(named.map(|(name, _)| name).collect())
    }

    fn file(&mut self, id: &SessionId, name: &FileName) -> PeerResult<Vec<u8>> {
        let mut named = self.sources(id)?.into_iter();
        match named.find(|(other, _)| other == name) {
            Some((_, row)) => self.bytes_of(&row),
            None => Err(PeerError::Session("a kept file was removed".into())),
        }
    }

    fn offer(&mut self, id: &SessionId, name: &FileName, bytes: Vec<u8>) -> PeerResult<()> {
        self.check_writes()?;
        if self.offered_to.as_ref() != Some(id) {
            self.offered.clear();
            self.offered_to = Some(id.clone());
        }
        let name = name.clone();
        self.offered.push(OfferedFile { name, bytes });
        Ok(())
    }

    fn keep(&mut self, id: &SessionId, name: &FileName, bytes: &[u8]) -> PeerResult<()> {
        self.check_writes()?;
        let file = OfferedFile {
            name: name.clone(),
            bytes: bytes.to_vec(),
        };
        database::removing(self.database, |write| match write.session(id)? {
            Some(row) => files::keep(write, row.key, &file),
            None => Ok(()),
        })?;
        Ok(())
    }

    fn finish(&mut self) -> PeerResult<()> {
        if std::mem::take(&mut self.has_leftovers) {
            finish(self.database)?;
        }
        Ok(())
    }
}

impl LocalPeer<'_> {
    fn check_writes(&self) -> PeerResult<()> {
        match self.dry_run {
            true => Err(PeerError::Session("nothing is written in a dry run".into())),
            false => Ok(()),
        }
    }

    /// Returns the result that the removal of a session will have, and the session.
    fn removal(
        &self,
        scan: &dyn StoreScan,
        content: &Receipt,
    ) -> StoreResult<(RemoveOutcome, Option<SessionRow>)> {
        let Some(row) = named_by(scan, &content.session)? else {
            return Ok((RemoveOutcome::Absent, None));
        };
        if !is_in(&self.filter, &row) {
            return Ok((RemoveOutcome::Filtered, None));
        }
        let removed: HashMap<&str, u32> = content
            .loops
            .iter()
            .map(|one| (one.loop_id.as_str(), one.messages))
            .collect();
        let loops = scan.loops(row.key)?;
        let is_same = |one: &loopstore::extend::LoopRow| removed.contains_key(one.loop_id.as_str());
        let both_empty = loops.is_empty() && removed.is_empty();
        if !both_empty && !loops.iter().any(is_same) {
            return Ok((RemoveOutcome::Absent, None));
        }
        if self.keeps_removed {
            return Ok((RemoveOutcome::Refused, None));
        }
        let now = now();
        for one in &loops {
            if lease::held(scan, one.key, now)?.is_some() {
                return Ok((RemoveOutcome::InUse, None));
            }
        }
        Ok((RemoveOutcome::Removed, Some(row)))
    }

    /// Removes a session, and stores the receipt of the other database.
    fn remove_within(
        &self,
        write: &mut dyn StoreWrite,
        receipt: &ReceiptRow,
        content: &Receipt,
    ) -> StoreResult<RemoveOutcome> {
        let (outcome, row) = self.removal(write, content)?;
        match (outcome, row) {
            (RemoveOutcome::Removed, Some(row)) => {
                let opened = write.open_receipt(row.key, &receipt.kind, &receipt.opened_at)?;
                for file in write.sources(row.key)? {
                    let mut others = write.sessions_of(file.key)?;
                    others.retain(|other| *other != row.key);
                    if others.is_empty() {
                        write.remove_source(file.key)?;
                    } else {
                        write.unlink_source(row.key, file.key)?;
                    }
                }
                write.remove_session(row.key)?;
                write.note_scrub()?;
                seal(write, (opened, row.key), receipt)?;
            }
            (RemoveOutcome::Absent, _) if !is_known(write, receipt, content)? => {
                seal_alone(write, receipt)?;
            }
            _ => {}
        }
        Ok(outcome)
    }
}

/// Returns the session that a receipt names. One of the databases may have hidden it.
fn named_by(scan: &dyn StoreScan, id: &SessionId) -> StoreResult<Option<SessionRow>> {
    let shown = id.as_str().rsplit_once('~');
    let shown = shown.and_then(|(shown, _)| SessionId::new(shown).ok());
    let ids: Vec<&SessionId> = [id].into_iter().chain(&shown).collect();
    Ok(hides::known_as(scan, &ids)?.into_iter().next())
}

/// True if a receipt is stored.
fn is_known(scan: &dyn StoreScan, row: &ReceiptRow, content: &Receipt) -> StoreResult<bool> {
    let is_same = |other: &ReceiptRow| {
        (&other.kind, &other.opened_at) == (&row.kind, &row.opened_at)
            && Receipt::read(other).is_some_and(|other| other.session == content.session)
    };
    Ok(scan.receipts()?.iter().any(is_same))
}
