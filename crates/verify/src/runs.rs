//! Runs, undos and redos.

use loopstore::extend::{
    FlipKey, HideRow, Outcome, PinKey, Point, RunKey, RunRow, StoreResult, audit::AuditKind, digest,
};

use super::report::{ProblemKind, Subject, short};
use super::sessions::SessionScope;
use super::verify::Verify;
use super::{audit, edits, sealed};

/// Checks the runs of a session, and its undos and redos.
pub(super) fn check(verify: &mut Verify<'_>, scope: &mut SessionScope) -> StoreResult<()> {
    let runs = verify.scan.run_keys(scope.key);
    let runs = verify.found.readable(&scope.place, runs)?;
    for key in runs.into_iter().flatten() {
        check_run(verify, scope, key)?;
    }
    edits::check_counts(verify, scope)?;
    let flips = verify.scan.flip_keys(scope.key);
    let flips = verify.found.readable(&scope.place, flips)?;
    for key in flips.into_iter().flatten() {
        check_flip(verify, scope, key)?;
    }
    let pins = verify.scan.pin_keys(scope.key);
    let pins = verify.found.readable(&scope.place, pins)?;
    for key in pins.into_iter().flatten() {
        check_pin(verify, scope, key)?;
    }
    check_hides(verify, scope)
}

/// Checks the hides and unhides of a session: each continues with the id that the one before set.
fn check_hides(verify: &mut Verify<'_>, scope: &mut SessionScope) -> StoreResult<()> {
    let keys = verify.scan.hide_keys(scope.key);
    let keys = verify.found.readable(&scope.place, keys)?;
    let mut last: Option<HideRow> = None;
    for key in keys.into_iter().flatten() {
        verify.found.checked.hides += 1;
        verify.found.subject = Subject::Hide(key);
        let place = format!("{}, hide {}", scope.place, key.0);
        let row = verify.scan.hide_and_digest(key);
        let Some((row, stored)) = verify.found.readable(&place, row)? else {
            continue;
        };
        check_row_digest(verify, &place, &stored, &digest::hide(&row));
        audit::take(verify, &mut scope.audited, AuditKind::Hide, stored, &place);
        scope.check_tick(verify, &place, row.tick);
        let goes_on = match &last {
            Some(last) => row.was == last.session_id && row.hidden != last.hidden,
            None => row.hidden,
        };
        if !goes_on {
            let detail = "it does not go on from the one before";
            verify.found.add(ProblemKind::Session, place, detail);
        }
        last = Some(row);
    }
    if let Some(last) = last
        && scope.id.as_ref().is_some_and(|id| *id != last.session_id)
    {
        verify.found.subject = Subject::Session(scope.key);
        let detail = format!("it was given the id {}", last.session_id);
        verify.found.add(ProblemKind::Session, &scope.place, detail);
    }
    Ok(())
}

fn check_run(verify: &mut Verify<'_>, scope: &mut SessionScope, key: RunKey) -> StoreResult<()> {
    verify.found.checked.runs += 1;
    verify.found.subject = Subject::Run(key);
    let place = format!("{}, run with key {}", scope.place, key.0);
    let row = verify.scan.run_and_digest(key);
    let Some((row, stored)) = verify.found.readable(&place, row)? else {
        return Ok(());
    };
    let place = format!("{}, run {}", scope.place, row.run_id);
    let blocks = verify.scan.part_digests(key);
    let Some(blocks) = verify.found.readable(&place, blocks)? else {
        return Ok(());
    };
    let derived = digest::run(&row, &blocks);
    let stored = stored.unwrap_or(derived);
    check_row_digest(verify, &place, &stored, &derived);
    audit::take(verify, &mut scope.audited, AuditKind::Run, stored, &place);
    // A running one has no tick of its end.
    if row.outcome != Outcome::Running {
        scope.check_tick(verify, &place, row.tick);
    }
    check_point(verify, scope, &place, row.point)?;
    check_json(verify, &place, &row);
    check_blocks(verify, &place, &row)?;
    edits::check(verify, scope, &place, &row)?;
    sealed::check(verify, scope, &place, &row)
}

pub(super) fn check_row_digest(
    verify: &mut Verify<'_>,
    place: &str,
    stored: &[u8; 32],
    derived: &[u8; 32],
) {
    if stored != derived {
        let detail = format!("{} should be {}", short(stored), short(derived));
        verify.found.add(ProblemKind::Digest, place, detail);
    }
}

/// Checks that a point is in the session and not after the last turn of its loop.
fn check_point(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    place: &str,
    point: Point,
) -> StoreResult<()> {
    let row = verify.scan.loop_by_key(point.loop_key);
    let Some(row) = verify.found.readable(place, row)? else {
        return Ok(());
    };
    if row.session != scope.key {
        let detail = format!("its loop {} is in another session", row.loop_id);
        verify.found.add(ProblemKind::Run, place, detail);
    }
    if point.turns > row.totals.turns {
        let (turns, has) = (point.turns, row.totals.turns);
        let detail = format!("it was made after {turns} turns of a loop that has {has}");
        verify.found.add(ProblemKind::Run, place, detail);
    }
    Ok(())
}

fn check_json(verify: &mut Verify<'_>, place: &str, row: &RunRow) {
    let parts = [Some(&row.config), row.usage.as_ref(), row.reached.as_ref()];
    for json in parts.into_iter().flatten() {
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(json) {
            verify.found.add(ProblemKind::Unreadable, place, error);
        }
    }
}

/// Checks that only a committed run has blocks.
fn check_blocks(verify: &mut Verify<'_>, place: &str, row: &RunRow) -> StoreResult<()> {
    if row.outcome == Outcome::Committed {
        return Ok(());
    }
    let blocks = verify.scan.blocks_of_run(row.key);
    let blocks = verify.found.readable(place, blocks)?.unwrap_or_default();
    if !blocks.is_empty() {
        let outcome = row.outcome.as_str();
        let detail = format!("it ended as {outcome} and has {} blocks", blocks.len());
        verify.found.add(ProblemKind::Run, place, detail);
    }
    Ok(())
}

fn check_pin(verify: &mut Verify<'_>, scope: &mut SessionScope, key: PinKey) -> StoreResult<()> {
    verify.found.checked.pins += 1;
    verify.found.subject = Subject::Pin(key);
    let place = format!("{}, pin {}", scope.place, key.0);
    let row = verify.scan.pin_and_digest(key);
    let Some((row, stored)) = verify.found.readable(&place, row)? else {
        return Ok(());
    };
    check_row_digest(verify, &place, &stored, &digest::pin(&row));
    audit::take(verify, &mut scope.audited, AuditKind::Pin, stored, &place);
    scope.check_tick(verify, &place, row.tick);
    check_point(verify, scope, &place, row.point)?;
    let owner = verify.scan.loop_by_key(row.loop_key);
    let Some(owner) = verify.found.readable(&place, owner)? else {
        return Ok(());
    };
    if owner.session != scope.key {
        let detail = format!("loop `{}` is not one of this session", owner.loop_id);
        verify.found.add(ProblemKind::Run, place, detail);
    }
    Ok(())
}

fn check_flip(verify: &mut Verify<'_>, scope: &mut SessionScope, key: FlipKey) -> StoreResult<()> {
    verify.found.checked.flips += 1;
    verify.found.subject = Subject::Flip(key);
    let place = format!("{}, flip {}", scope.place, key.0);
    let row = verify.scan.flip_and_digest(key);
    let Some((row, stored)) = verify.found.readable(&place, row)? else {
        return Ok(());
    };
    check_row_digest(verify, &place, &stored, &digest::flip(&row));
    audit::take(verify, &mut scope.audited, AuditKind::Flip, stored, &place);
    scope.check_tick(verify, &place, row.tick);
    check_point(verify, scope, &place, row.point)?;
    let run = verify.scan.run_by_key(row.run);
    let Some(run) = verify.found.readable(&place, run)? else {
        return Ok(());
    };
    let is_fit = run.session == scope.key && run.outcome == Outcome::Committed;
    if !is_fit || run.tick >= row.tick {
        let id = run.run_id;
        let detail = format!("run {id} is not an earlier committed run of this session");
        verify.found.add(ProblemKind::Run, place, detail);
    }
    Ok(())
}
