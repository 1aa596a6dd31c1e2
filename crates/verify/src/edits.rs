//! Edits of messages: digests, targets, sizes, and the counters by which a read knows that there are some.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use loopstore::extend::{
    CoverageRow, Disposition, EditRow, LoopKey, Outcome, PackedRun, RunRow, StoreResult, digest,
    edit_sizes, packed_edits,
};
use loopstore::model::EditAction;

use super::report::ProblemKind;
use super::runs::check_row_digest;
use super::sessions::SessionScope;
use super::verify::Verify;

/// Checks the edits of a run: their digests, and that their messages are in the session.
pub(super) fn check(
    verify: &mut Verify<'_>,
    scope: &mut SessionScope,
    place: &str,
    row: &RunRow,
) -> StoreResult<()> {
    let edits = verify.scan.edits_and_digests(row.key);
    let edits = verify.found.readable(place, edits)?.unwrap_or_default();
    check_packed(verify, place, row, &edits)?;
    for (ordinal, (edit, stored)) in edits.into_iter().enumerate() {
        verify.found.checked.edits += 1;
        let place = format!("{place}, edit {ordinal}");
        check_row_digest(verify, &place, &stored, &digest::edit(&edit));
        *scope.edits.entry(edit.loop_key).or_default() += 1;
        if row.outcome != Outcome::Committed {
            let detail = format!("its run ended as {}", row.outcome.as_str());
            verify.found.add(ProblemKind::Run, &place, detail);
        }
        let owner = verify.scan.loop_by_key(edit.loop_key);
        let Some(owner) = verify.found.readable(&place, owner)? else {
            continue;
        };
        if owner.session != scope.key || edit.seqs.1 >= owner.totals.next_seq {
            let (id, (from, to)) = (owner.loop_id.clone(), edit.seqs);
            let detail = format!("loop `{id}` of this session has no messages {from} to {to}");
            verify.found.add(ProblemKind::Run, &place, detail);
            continue;
        }
        check_sizes(verify, &place, &edit)?;
    }
    Ok(())
}

/// Checks that the packed edits of a committed run are those of its rows: contexts are built from them.
fn check_packed(
    verify: &mut Verify<'_>,
    place: &str,
    row: &RunRow,
    edits: &[(EditRow, [u8; 32])],
) -> StoreResult<()> {
    if row.outcome != Outcome::Committed {
        return Ok(());
    }
    let stored = verify.scan.packed_edits_of_run(row.key);
    let Some(stored) = verify.found.readable(place, stored)? else {
        return Ok(());
    };
    let run = PackedRun {
        run: row.key,
        run_id: row.run_id.clone(),
        point: row.point,
    };
    let rows: Vec<EditRow> = edits.iter().map(|(edit, _)| edit.clone()).collect();
    let derived = (!rows.is_empty()).then(|| packed_edits::pack(&run, &rows));
    if stored != derived {
        let detail = "its packed edits are not those of its rows in edits".to_owned();
        verify.found.add(ProblemKind::Run, place, detail);
    }
    Ok(())
}

/// Checks that the sizes of an edit are those of its messages: contexts add them up.
fn check_sizes(verify: &mut Verify<'_>, place: &str, edit: &EditRow) -> StoreResult<()> {
    let mut derived = edit.clone();
    let measured = edit_sizes::measure(verify.scan, verify.counter, &mut derived);
    if verify.found.readable(place, measured)?.is_some() && derived != *edit {
        let sizes = |row: &EditRow| format!("{:?} to {:?}", row.before, row.after);
        let detail = format!(
            "its sizes are {}, its messages' {}",
            sizes(edit),
            sizes(&derived)
        );
        verify.found.add(ProblemKind::Total, place, detail);
    }
    Ok(())
}

/// Checks that each loop and the session count their edits: a read of a loop without edits looks for none.
pub(super) fn check_counts(verify: &mut Verify<'_>, scope: &SessionScope) -> StoreResult<()> {
    let rows = verify.scan.loops(scope.key);
    let rows = verify
        .found
        .readable(&scope.place, rows)?
        .unwrap_or_default();
    for row in rows {
        let found = scope.edits.get(&row.key).copied().unwrap_or(0);
        if row.edits != found {
            let (place, counted) = (&scope.place, row.edits);
            let detail = format!(
                "loop `{}` counts {counted} edits and has {found}",
                row.loop_id
            );
            verify.found.add(ProblemKind::Total, place, detail);
        }
    }
    let counted = verify.scan.edit_count(scope.key);
    let counted = verify
        .found
        .readable(&scope.place, counted)?
        .unwrap_or_default();
    let found: u64 = scope.edits.values().copied().map(u64::from).sum();
    if counted != found {
        let detail = format!("it counts {counted} edits and has {found}");
        verify.found.add(ProblemKind::Total, &scope.place, detail);
    }
    Ok(())
}

/// Returns the messages that runs removed something of, in the loops of which coverage says that some are removed.
pub(super) fn removed_messages(
    verify: &Verify<'_>,
    coverage: &[CoverageRow],
) -> StoreResult<Vec<(LoopKey, (u32, u32))>> {
    let rows = coverage.iter();
    let rows = rows.filter(|row| row.disposition == Disposition::Removed);
    let loops: BTreeSet<LoopKey> = rows.map(|row| row.loop_key).collect();
    let mut removed = Vec::new();
    for key in loops {
        verify.scan.edits_of_loop(key, &mut |found| {
            let is_removed = found.edit.action == EditAction::Removed;
            removed.extend(is_removed.then_some((key, found.edit.seqs)));
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(removed)
}
