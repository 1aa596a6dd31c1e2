//! Moves content into packs and back, a few MiB in each transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::extend::packs::Pack;
use loopstore::extend::packs::PackRow;
use loopstore::extend::{
    Database, LoopKey, LoopRow, MessageRow, SessionRow, StoreResult, StoreWrite, receipt::Receipt,
    scan::StoreScan,
};
use loopstore::internal::{MAX_PACK_BYTES, OpenReceipt, database, each_pack};

use super::cold::is_at_work;
use super::{
    ArchiveReport, ArchiveRequest, ColdLoop, MovedLoop, SkipReason, SkippedLoop, UnarchiveRequest,
};

/// The approximate size of the content that is moved in one transaction.
const BATCH_BYTES: u64 = 4 << 20;

/// Consecutive messages of a loop, to be archived.
struct MessageRun {
    /// The index of the loop.
    at: usize,
    rows: Vec<MessageRow>,
    packs: Vec<Pack>,
}

impl MessageRun {
    fn moved(&self) -> (u64, u64, u64) {
        let before = self.rows.iter().map(bytes_of).sum();
        let after = self.packs.iter().map(Pack::size).sum();
        (self.rows.len() as u64, before, after)
    }
}

fn bytes_of(row: &MessageRow) -> u64 {
    let bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    (bytes(&row.body.head) + bytes(&row.body.text)) as u64
}

/// Archives loops of a session, one after another.
pub(super) fn into_packs(
    store: &dyn Database,
    session: &SessionRow,
    cold: Vec<ColdLoop>,
    request: &ArchiveRequest,
    report: &mut ArchiveReport,
) -> StoreResult<()> {
    let mut work = ArchiveWork {
        session,
        moved: begin(session, &cold),
        stopped: vec![false; cold.len()],
        cold,
        reason: request.reason.as_deref(),
    };
    let mut place = (0, 0);
    loop {
        let mut runs = database::scan(store, |scan| work.next_runs(scan, &mut place))?;
        if runs.is_empty() {
            break;
        }
        for run in &mut runs {
            run.packs = packs_of(&work.cold[run.at], &run.rows)?;
        }
        if request.dry_run {
            runs.iter().for_each(|run| work.note(run));
            continue;
        }
        let done = database::removing(store, |write| work.write(write, &runs))?;
        runs.retain(|run| !work.stopped[run.at]);
        runs.iter().for_each(|run| work.note(run));
        report.receipts.extend(done);
    }
    report.kept.extend(work.changed());
    report.take(work.moved);
    Ok(())
}

fn begin(session: &SessionRow, loops: &[ColdLoop]) -> BTreeMap<usize, MovedLoop> {
    let moved = |one: &ColdLoop| MovedLoop {
        session_id: session.session_id.clone(),
        loop_id: one.loop_id.clone(),
        messages: 0,
        bytes_before: 0,
        bytes_after: 0,
    };
    loops.iter().map(moved).enumerate().collect()
}

/// Compresses messages into packs of a size at which reading one message unpacks little.
fn packs_of(of: &ColdLoop, rows: &[MessageRow]) -> StoreResult<Vec<Pack>> {
    let (mut packs, mut rest) = (Vec::new(), rows);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&MessageRow| {
            bytes += bytes_of(row);
            bytes <= MAX_PACK_BYTES as u64
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (these, after) = rest.split_at(count);
        packs.extend(Pack::of(of.key, these)?);
        rest = after;
    }
    Ok(packs)
}

struct ArchiveWork<'a> {
    session: &'a SessionRow,
    cold: Vec<ColdLoop>,
    /// The moved content, by index in `cold`.
    moved: BTreeMap<usize, MovedLoop>,
    /// For each loop, true if it changed since it was chosen.
    stopped: Vec<bool>,
    reason: Option<&'a str>,
}

impl ArchiveWork<'_> {
    /// Reads the next messages to move, from a loop and a sequence on.
    fn next_runs(
        &self,
        scan: &dyn StoreScan,
        (at, seq): &mut (usize, u32),
    ) -> StoreResult<Vec<MessageRun>> {
        let (mut runs, mut bytes) = (Vec::new(), 0);
        while let Some(one) = self.cold.get(*at)
            && bytes < BATCH_BYTES
        {
            let range = match self.stopped[*at] {
                true => None,
                false => scan.unpacked(one.key, *seq)?,
            };
            let Some(range) = range else {
                (*at, *seq) = (*at + 1, 0);
                continue;
            };
            let mut rows = Vec::new();
            scan.messages(one.key, range, &mut |row| {
                bytes += bytes_of(&row);
                *seq = row.seq.saturating_add(1);
                rows.push(row);
                Ok(match bytes < BATCH_BYTES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            runs.push(MessageRun {
                at: *at,
                rows,
                packs: Vec::new(),
            });
        }
        Ok(runs)
    }

    fn note(&mut self, run: &MessageRun) {
        let (messages, before, after) = run.moved();
        if let Some(moved) = self.moved.get_mut(&run.at) {
            moved.messages += messages;
            moved.bytes_before += before;
            moved.bytes_after += after;
        }
    }

    fn changed(&self) -> impl Iterator<Item = SkippedLoop> {
        let changed = self.cold.iter().zip(&self.stopped);
        changed
            .filter(|(_, stopped)| **stopped)
            .map(|(one, _)| SkippedLoop {
                session_id: self.session.session_id.clone(),
                loop_id: one.loop_id.clone(),
                why: SkipReason::Changed,
            })
    }

    /// Writes packs within a transaction; returns the receipt, or `None` if there was nothing to write.
    fn write(
        &mut self,
        write: &mut dyn StoreWrite,
        runs: &[MessageRun],
    ) -> StoreResult<Option<i64>> {
        let id = &self.session.session_id;
        let now = write.session(id)?;
        let Some(now) = now.filter(|now| now.key == self.session.key) else {
            self.stopped.fill(true);
            return Ok(None);
        };
        let mut rows = Vec::new();
        for run in runs {
            let one = &self.cold[run.at];
            match still_fits(write, &now, one, run)? {
                Some(row) => rows.push(row),
                None => self.stopped[run.at] = true,
            }
        }
        let runs = runs.iter().filter(|run| !self.stopped[run.at]);
        let runs: Vec<&MessageRun> = runs.collect();
        if runs.is_empty() {
            return Ok(None);
        }
        rows.dedup_by_key(|row| row.key);
        rows.retain(|row| runs.iter().any(|run| self.cold[run.at].key == row.key));
        // Packed messages must not be replaced any more.
        for row in &mut rows {
            if row.totals.sealed_seq < row.totals.next_seq {
                row.totals.sealed_seq = row.totals.next_seq;
                write.update_totals(&row.core, &row.progress)?;
            }
        }
        let mut receipt = Receipt::of_loops(now.session_id, self.reason, rows);
        let open = OpenReceipt::new(write, now.key, "archive")?;
        let mut packs = 0;
        for run in &runs {
            for pack in &run.packs {
                write.put_pack(self.cold[run.at].key, pack)?;
                packs += 1;
            }
        }
        let messages = runs.iter().map(|run| run.rows.len() as u64).sum();
        let counts = [("archived_messages", messages), ("packs", packs)];
        let counts = counts.map(|(name, count)| (name.to_owned(), count));
        receipt.counts.extend(counts);
        open.close(write, &receipt).map(Some)
    }
}

/// Returns the row of a loop if the loop is still cold and its messages are the compressed ones.
fn still_fits(
    write: &dyn StoreWrite,
    session: &SessionRow,
    one: &ColdLoop,
    run: &MessageRun,
) -> StoreResult<Option<LoopRow>> {
    let row = write.loop_by_key(one.key)?;
    if is_at_work(write, session, &row, one.also_current)?.is_some() {
        return Ok(None);
    }
    let (Some(first), Some(last)) = (run.rows.first(), run.rows.last()) else {
        return Ok(None);
    };
    let range = first.seq..last.seq.saturating_add(1);
    let there = write.unpacked(one.key, first.seq)?;
    if there.is_none_or(|there| there.start != range.start || there.end < range.end) {
        return Ok(None);
    }
    let mut expected = run.rows.iter();
    let mut is_same = true;
    write.messages(one.key, range, &mut |row| {
        is_same = expected.next() == Some(&row);
        Ok(match is_same {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    })?;
    Ok((is_same && expected.next().is_none()).then_some(row))
}

/// Restores the archived loops of a session.
pub(super) fn out_of_packs(
    store: &dyn Database,
    session: &SessionRow,
    loops: Vec<ColdLoop>,
    request: &UnarchiveRequest,
    report: &mut ArchiveReport,
) -> StoreResult<()> {
    let mut moved = begin(session, &loops);
    let mut next = (0, 0);
    loop {
        let packs = database::scan(store, |scan| next_packs(scan, &loops, &mut next))?;
        if packs.is_empty() {
            break;
        }
        if !request.dry_run {
            let done =
                |write: &mut dyn StoreWrite| bring_back(write, session, &loops, &packs, request);
            report.receipts.extend(database::removing(store, done)?);
        }
        for pack in &packs {
            if let Some(moved) = moved.get_mut(&pack.at) {
                moved.messages += pack.row.messages();
                moved.bytes_before += pack.bytes;
                moved.bytes_after += pack.row.content_bytes();
            }
        }
    }
    report.take(moved);
    Ok(())
}

/// A pack to restore.
struct PackOfLoop {
    /// The index of the loop.
    at: usize,
    row: PackRow,
    /// The size in bytes, with the heads that the views read.
    bytes: u64,
}

/// Returns the next packs to restore, from a loop and a sequence on. One transaction restores all of them, so
/// that a session of usual size is restored completely or not at all.
fn next_packs(
    scan: &dyn StoreScan,
    loops: &[ColdLoop],
    (at, seq): &mut (usize, u32),
) -> StoreResult<Vec<PackOfLoop>> {
    let (mut packs, mut bytes) = (Vec::new(), 0);
    while let Some(one) = loops.get(*at)
        && bytes < BATCH_BYTES
    {
        let mut is_done = true;
        each_pack(scan, one.key, *seq, &mut |row| {
            if bytes >= BATCH_BYTES {
                is_done = false;
                return Ok(ControlFlow::Break(()));
            }
            let content = scan.pack_content(one.key, row.first)?;
            let heads = scan.packed_heads(one.key, row.first..row.last.saturating_add(1))?;
            let heads: usize = heads.iter().map(|(_, head)| head.len()).sum();
            bytes += row.bytes;
            *seq = row.last.saturating_add(1);
            packs.push(PackOfLoop {
                at: *at,
                row,
                bytes: (content.len() + heads) as u64,
            });
            Ok(ControlFlow::Continue(()))
        })?;
        if is_done {
            (*at, *seq) = (*at + 1, 0);
        }
    }
    Ok(packs)
}

fn bring_back(
    write: &mut dyn StoreWrite,
    session: &SessionRow,
    loops: &[ColdLoop],
    packs: &[PackOfLoop],
    request: &UnarchiveRequest,
) -> StoreResult<Option<i64>> {
    // Another program may have restored the pack meanwhile.
    let mut there = Vec::new();
    for pack in packs {
        let key = loops[pack.at].key;
        if write.pack_at(key, pack.row.first)? == Some(pack.row) {
            there.push((key, pack.row));
        }
    }
    if there.is_empty() {
        return Ok(None);
    }
    let keys: BTreeSet<LoopKey> = there.iter().map(|(key, _)| *key).collect();
    let rows = keys.into_iter().map(|key| write.loop_by_key(key));
    let rows = rows.collect::<StoreResult<Vec<_>>>()?;
    let reason = request.reason.as_deref();
    let mut receipt = Receipt::of_loops(session.session_id.clone(), reason, rows);
    let open = OpenReceipt::new(write, session.key, "archive")?;
    let mut messages = 0;
    for (key, pack) in there {
        write.take_pack(key, pack.first)?;
        messages += pack.messages();
    }
    receipt
        .counts
        .insert("unarchived_messages".into(), messages);
    open.close(write, &receipt).map(Some)
}
