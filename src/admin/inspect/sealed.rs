//! The compactions of providers: whether what their runs tell of is still there, where it was and as it was.

use std::ops::ControlFlow;

use super::report::ProblemKind;
use super::verify::Verify;
use crate::model::{AgentMessage, Content, Message, Role, SealingProvider};
use crate::overlay::SealedRecord;
use crate::store::{Outcome, RunRow, StoreResult, decode};

/// What to do about all of these.
const WHAT_TO_DO: &str =
    "repair the session: that undoes the compaction and compacts the originals";

/// Checks the compaction that a run tells of, unless it was undone.
pub(super) fn check(verify: &mut Verify<'_>, place: &str, run: &RunRow) -> StoreResult<()> {
    let Some(provider) = SealingProvider::of_strategy(&run.strategy) else {
        return Ok(());
    };
    let flips = verify.scan.flips(run.key);
    let flips = verify.found.readable(place, flips)?.unwrap_or_default();
    if run.outcome != Outcome::Committed || flips.last().is_some_and(|flip| !flip.redo) {
        return Ok(());
    }
    // One that came in the place of a whole conversation stands in its block, which has its digest.
    let Some(record) = SealedRecord::of(run) else {
        return Ok(());
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

/// Returns the message that a compaction stands in, `None` if it is not there; within, `None` if what it says
/// was archived.
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
