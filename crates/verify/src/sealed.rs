//! The compactions of providers: each that a run records is still in its place and unchanged.

use std::ops::ControlFlow;

use loopstore::extend::{Outcome, RunRow, StoreResult, decode, scan::StoreScan};
use loopstore::internal::SealedRecord;
use loopstore::model::{AgentMessage, Content, Message, Role, SealingProvider};

use super::report::ProblemKind;
use super::sessions::SessionScope;
use super::verify::Verify;

/// The remedy for all problems of this kind.
const WHAT_TO_DO: &str =
    "repair the session: that undoes the compaction and compacts the originals";

/// Checks the compaction that a run records, unless it was undone.
pub(super) fn check(
    verify: &mut Verify<'_>,
    scope: &mut SessionScope,
    place: &str,
    run: &RunRow,
) -> StoreResult<()> {
    let Some(provider) = run.sealed_by() else {
        return Ok(());
    };
    let recorded = SealedRecord::of(run).map(|record| (record.loop_id, record.seq, provider));
    scope.recorded.extend(recorded);
    let flips = verify.scan.flips(run.key);
    let flips = verify.found.readable(place, flips)?.unwrap_or_default();
    if run.outcome != Outcome::Committed || flips.last().is_some_and(|flip| !flip.redo) {
        return Ok(());
    }
    let Some(record) = SealedRecord::of(run) else {
        return check_whole(verify, place, run, provider);
    };
    let message = message_of(verify, run, &record);
    let Some(message) = verify.found.readable(place, message)? else {
        return Ok(());
    };
    if message == Some(None) {
        return Ok(());
    }
    let message = message.flatten();
    for detail in faults(message.as_ref(), provider, &record) {
        let detail = format!("{detail}; {WHAT_TO_DO}");
        verify.found.add(ProblemKind::Sealed, place, detail);
    }
    Ok(())
}

/// Checks a compaction that replaced a whole conversation: it is in its block.
fn check_whole(
    verify: &mut Verify<'_>,
    place: &str,
    run: &RunRow,
    provider: SealingProvider,
) -> StoreResult<()> {
    let Some(recorded) = SealedRecord::recorded(run) else {
        return Ok(());
    };
    let items = items_of_blocks(verify.scan, run, provider);
    let Some(Some(items)) = verify.found.readable(place, items)? else {
        return Ok(());
    };
    let name = provider.as_str();
    let detail = match items.contains(&recorded) {
        true => return Ok(()),
        false if items.is_empty() => format!("orphaned: its block holds no compaction of {name}"),
        false => format!("altered: the compaction in its block is not what {name} gave"),
    };
    let detail = format!("{detail}; {WHAT_TO_DO}");
    verify.found.add(ProblemKind::Sealed, place, detail);
    Ok(())
}

/// Returns the digests of the compactions in the blocks of a run; `None` if the content of the blocks was
/// removed.
fn items_of_blocks(
    scan: &dyn StoreScan,
    run: &RunRow,
    provider: SealingProvider,
) -> StoreResult<Option<Vec<String>>> {
    let mut items = Vec::new();
    for block in scan.blocks_of_run(run.key)? {
        for message in scan.block_messages(block.key)? {
            let Some(body) = message.body else { continue };
            if body.head.is_none() {
                return Ok(None);
            }
            let message = decode(scan, body)?;
            let content = message.message().map_or(&[][..], Message::content);
            let own = content.iter().filter_map(Content::as_compaction);
            let own = own.filter(|(by, _)| *by == provider);
            items.extend(own.map(|(_, sealed)| SealedRecord::digest(&sealed.item)));
        }
    }
    Ok(Some(items))
}

/// Checks that a run records every compaction in a message.
pub(super) fn check_orphans(verify: &mut Verify<'_>, scope: &SessionScope) {
    for (loop_id, seq, provider) in scope.sealed.difference(&scope.recorded) {
        let place = format!("{}, loop {loop_id}, message {seq}", scope.place);
        let name = provider.as_str();
        let detail = format!(
            "orphaned: no run tells of its compaction of {name}, which counts in no context; \
             repair the session"
        );
        verify.found.add(ProblemKind::Sealed, place, detail);
    }
}

/// Returns the message that contains a compaction; `None` if it does not exist. The inner value is `None` if
/// the content was archived.
fn message_of(
    verify: &Verify<'_>,
    run: &RunRow,
    record: &SealedRecord,
) -> StoreResult<Option<Option<AgentMessage>>> {
    let Some(row) = verify.scan.loop_by_id(run.session, &record.loop_id)? else {
        return Ok(None);
    };
    let (mut found, seq) = (None, record.seq);
    verify
        .scan
        .messages(row.key, seq..seq.saturating_add(1), &mut |row| {
            let has_content = row.body.head.is_some();
            found = Some(match has_content {
                true => Some(decode(verify.scan, row.body)?),
                false => None,
            });
            Ok(ControlFlow::Break(()))
        })?;
    Ok(found)
}

fn faults(
    message: Option<&AgentMessage>,
    provider: SealingProvider,
    record: &SealedRecord,
) -> Vec<String> {
    let SealedRecord { loop_id, seq, .. } = record;
    let name = provider.as_str();
    let content = message
        .and_then(AgentMessage::message)
        .map(Message::content);
    let own = content.unwrap_or_default().iter().enumerate();
    let own: Vec<_> = own
        .filter_map(|(at, block): (usize, &Content)| {
            let (by, sealed) = block.as_compaction()?;
            (by == provider).then_some((at, sealed))
        })
        .collect();
    let Some((_, last)) = own.last() else {
        return vec![format!(
            "orphaned: message {seq} of loop {loop_id} holds no compaction of {name}"
        )];
    };
    let mut faults = Vec::new();
    let is_answer = message.is_some_and(|message| message.role() == Role::Assistant);
    let is_anthropic = provider == SealingProvider::Anthropic;
    if !is_answer || (is_anthropic && own.first().is_some_and(|(at, _)| *at > 0)) {
        faults.push(format!(
            "misplaced: the compaction in message {seq} of loop {loop_id} is not first in an answer"
        ));
    }
    if is_anthropic && own.len() > 1 {
        faults.push(format!(
            "second: message {seq} of loop {loop_id} holds {} compactions",
            own.len()
        ));
    }
    if !record.is_of(&last.item) {
        faults.push(format!(
            "altered: the compaction in message {seq} of loop {loop_id} is not what {name} gave"
        ));
    }
    faults
}
