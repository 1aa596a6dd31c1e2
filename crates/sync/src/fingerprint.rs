//! The fingerprints of sessions: equal in databases with the same state of a session, and cheap. No message is
//! read, as the digest chain of a loop stands for all of its messages.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use loopstore::extend::audit::AuditKind;
use loopstore::extend::scan::StoreScan;
use loopstore::extend::{LoopRow, Outcome, SessionKey, SessionRow, StoreResult};
use loopstore::model::{SessionId, Time};
use sha2::{Digest as _, Sha256};

use crate::peer::{BUCKETS, PeerEntry, SyncFilter};

/// The bytes of a fingerprint.
const BYTES: usize = 16;

/// Returns the fingerprints of the sessions that the filter selects, in the order of their ids.
pub(crate) fn entries(scan: &dyn StoreScan, filter: &SyncFilter) -> StoreResult<Vec<PeerEntry>> {
    let project = filter.project.as_ref().map(|text| text.to_lowercase());
    let since = filter.since_millis();
    let mut entries = Vec::new();
    for key in scan.session_keys()? {
        let row = scan.session_by_key(key)?;
        if is_selected(&row, project.as_deref(), since) {
            entries.push(PeerEntry {
                fingerprint: fingerprint(scan, &row)?,
                id: row.session_id,
            });
        }
    }
    entries.sort();
    Ok(entries)
}

fn is_selected(row: &SessionRow, project: Option<&str>, since: Option<i64>) -> bool {
    let has_project = |text: &str| {
        let project = row.project.as_ref().map(|own| own.to_lowercase());
        project.is_some_and(|own| own.contains(text))
    };
    let is_late = |since: i64| {
        let last = row.last_active_at.as_ref();
        let last = last.and_then(|last| Time::from_text(last.as_str()).millis());
        last.is_some_and(|last| last >= since)
    };
    project.is_none_or(has_project) && since.is_none_or(is_late)
}

/// True if the filter selects a session.
pub(crate) fn is_in(filter: &SyncFilter, row: &SessionRow) -> bool {
    let project = filter.project.as_ref().map(|text| text.to_lowercase());
    is_selected(row, project.as_deref(), filter.since_millis())
}

/// Collects values of a session, each with its length.
struct RowValues(Sha256);

impl RowValues {
    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    fn maybe(&mut self, text: Option<&str>) {
        self.number(i64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn number(&mut self, number: i64) {
        self.0.update(number.to_le_bytes());
    }
}

fn fingerprint(scan: &dyn StoreScan, row: &SessionRow) -> StoreResult<String> {
    let mut values = RowValues(Sha256::new());
    for text in [&row.agent_id, &row.title, &row.source, &row.project] {
        values.maybe(text.as_deref());
    }
    values.maybe(row.created_at.as_deref());
    values.maybe(row.last_active_at.as_deref());
    values.text(&row.meta);
    values.number(row.tick);
    let mut loops = scan.loops(row.key)?;
    loops.sort_by(|a, b| a.loop_id.as_str().cmp(b.loop_id.as_str()));
    for one in &loops {
        add_loop(scan, &mut values, one, row)?;
    }
    add_audited(scan, &mut values, row.key)?;
    add_attachments(scan, &mut values, row.key)?;
    let digest: [u8; 32] = values.0.finalize().into();
    Ok(hex::encode(&digest[..BYTES]))
}

fn add_loop(
    scan: &dyn StoreScan,
    values: &mut RowValues,
    one: &LoopRow,
    session: &SessionRow,
) -> StoreResult<()> {
    values.text(one.loop_id.as_str());
    values.number(i64::from(session.current_loop == Some(one.key)));
    values.number(one.tick);
    values.number(one.parent_turn.map_or(-1, i64::from));
    values.number(one.parent_seq.map_or(-1, i64::from));
    values.maybe(one.parent_loop_id.as_ref().map(|id| id.as_str()));
    values.text(&format!("{:?}", one.status));
    values.maybe(one.started_at.as_deref());
    values.maybe(one.ended_at.as_deref());
    let totals = &one.totals;
    let numbers = [
        totals.next_seq,
        totals.sealed_seq,
        totals.complete,
        totals.generation,
    ];
    numbers
        .into_iter()
        .for_each(|number| values.number(number.into()));
    values.0.update(one.progress.chain);
    if one.status.is_ended() {
        return Ok(());
    }
    values.number(i64::try_from(scan.notes(one.key)?.len()).unwrap_or(i64::MAX));
    for call in scan.calls_of_loop(one.key)? {
        values.text(&call.call_id);
        values.number(call.attempts.into());
        values.maybe(call.finished_at.as_deref());
    }
    Ok(())
}

/// Adds what the audit chain says that there is.
fn add_audited(
    scan: &dyn StoreScan,
    values: &mut RowValues,
    session: SessionKey,
) -> StoreResult<()> {
    let chain = scan.audit_chain(session)?;
    let kinds: BTreeSet<AuditKind> = chain.rows.iter().map(|row| row.entry.kind).collect();
    if kinds.contains(&AuditKind::Run) {
        let mut runs = BTreeSet::new();
        scan.runs(session, &mut |run| {
            if run.outcome != Outcome::Running {
                let flips = scan.flips(run.key)?.into_iter();
                let flips: BTreeSet<(i64, bool)> =
                    flips.map(|flip| (flip.tick, flip.redo)).collect();
                runs.insert((run.run_id, flips));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (run, flips) in runs {
            values.text(&run);
            for (tick, redo) in flips {
                values.number(tick);
                values.number(redo.into());
            }
        }
    }
    if kinds.contains(&AuditKind::Pin) {
        let pins = scan.pins(session)?.into_iter();
        let pins: BTreeSet<(i64, u32, String)> =
            pins.map(|pin| (pin.tick, pin.seq, pin.at)).collect();
        for (tick, seq, at) in pins {
            values.number(tick);
            values.number(seq.into());
            values.text(&at);
        }
    }
    if kinds.contains(&AuditKind::Hide) {
        for hide in scan.hides(session)? {
            values.text(hide.session_id.as_str());
        }
    }
    if kinds.contains(&AuditKind::Manifest) {
        let manifests = scan.manifests(session)?.into_iter();
        let ids: BTreeSet<String> = manifests.map(|row| row.manifest_id).collect();
        ids.iter().for_each(|id| values.text(id));
    }
    if kinds.contains(&AuditKind::Import) {
        let mut marks = BTreeSet::new();
        for import in scan.imports(session)? {
            marks.insert((import.format, import.path, import.record_key));
        }
        for (format, path, record) in marks {
            values.text(&format);
            values.text(&path);
            values.maybe(record.as_deref());
        }
    }
    Ok(())
}

fn add_attachments(
    scan: &dyn StoreScan,
    values: &mut RowValues,
    session: SessionKey,
) -> StoreResult<()> {
    let flags = scan.flags(session)?;
    values.number(flags.redacts.into());
    values.maybe(flags.protected_at.as_deref());
    for key in scan.append_keys(session)? {
        values.text(&key.name);
    }
    let mut files: Vec<(String, u64)> = Vec::new();
    for file in scan.sources(session)? {
        files.push((file.format, file.bytes));
    }
    files.sort();
    for (format, bytes) in files.iter().filter(|_| !flags.redacts) {
        values.text(format);
        values.0.update(bytes.to_le_bytes());
    }
    Ok(())
}

/// Returns the bucket of a session.
pub(crate) fn bucket(id: &SessionId) -> u16 {
    let digest: [u8; 32] = Sha256::digest(id.as_str()).into();
    u16::from_le_bytes([digest[0], digest[1]]) % BUCKETS
}

/// Returns the hash of each bucket.
pub(crate) fn bucket_hashes(entries: &[PeerEntry]) -> Vec<String> {
    let mut hashes: Vec<Option<Sha256>> = vec![None; usize::from(BUCKETS)];
    for entry in entries {
        let hash = &mut hashes[usize::from(bucket(&entry.id))];
        let hash = hash.get_or_insert_with(Sha256::new);
        hash.update((entry.id.as_str().len() as u64).to_le_bytes());
        hash.update(entry.id.as_str());
        hash.update(&entry.fingerprint);
    }
    let text = |hash: Option<Sha256>| match hash {
        Some(hash) => {
            let digest: [u8; 32] = hash.finalize().into();
            hex::encode(&digest[..BYTES])
        }
        None => String::new(),
    };
    hashes.into_iter().map(text).collect()
}
