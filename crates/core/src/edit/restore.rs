//! The runs that an undo of the edits of some messages takes back.

use std::collections::BTreeSet;

use super::chain_messages::{ChainMessages, Place};
use super::refused;
use super::request::EditTarget;
use super::targets::place_of;
use crate::context::{leaf_of, session_of};
use crate::model::{LoopId, Message, Role, SessionId};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{EditRefusal, EditRow, RunKey, StoreRead, StoreResult};

/// Returns the live runs of edits of the targets, newest first.
///
/// # Errors
/// [`StoreError::EditRefused`](crate::store::StoreError::EditRefused) if no live edit has these targets, or if one of the
/// runs has other targets too. Also if the session or the loop does not exist, or the store fails.
pub fn runs_to_undo(
    read: &dyn StoreRead,
    session: &SessionId,
    leaf: Option<&LoopId>,
    targets: &[EditTarget],
) -> StoreResult<Vec<RunKey>> {
    let owner = session_of(read, session)?;
    let leaf = leaf_of(read, &owner, leaf)?;
    let mut messages = ChainMessages::load(read, &owner, leaf.key)?;
    let named = named(&mut messages, targets)?;
    let mut walk = ActiveBlocks::new(read, leaf.key, ChainView::default());
    let mut runs: BTreeSet<RunKey> = BTreeSet::new();
    for depth in 0..messages.links.len() {
        for edit in walk.live_rows(messages.links[depth].row.key)? {
            let is_named = named
                .iter()
                .any(|place| place.0 == depth && edit.edit.covers(place.1));
            runs.extend(is_named.then_some(edit.run));
        }
    }
    if runs.is_empty() {
        return Err(refused(EditRefusal::NotEdited));
    }
    let with_pairs = with_pairs(&mut messages, &named)?;
    for run in &runs {
        for row in read.edits_of_run(*run)? {
            if !is_within(&mut messages, &row, &with_pairs)? {
                let run = read.run_by_key(*run)?.run_id;
                return Err(refused(EditRefusal::OtherTargets { run }));
            }
        }
    }
    Ok(runs.into_iter().rev().collect())
}

/// Returns the messages that the targets name, whether or not they are removed.
fn named(messages: &mut ChainMessages<'_>, targets: &[EditTarget]) -> StoreResult<BTreeSet<Place>> {
    let mut named = BTreeSet::new();
    for target in targets {
        match target {
            EditTarget::Turns(loop_id, turns) => {
                let ids = messages.links.iter().map(|link| &link.row.loop_id);
                let depth = ids.into_iter().position(|id| id == loop_id);
                if let Some(depth) = depth {
                    let own = messages.of(depth)?.iter();
                    let own = own.filter(|own| turns.contains(&own.turn));
                    named.extend(own.map(|own| (depth, own.seq)));
                }
            }
            EditTarget::Message(loop_id, turn, seq) | EditTarget::Part(loop_id, turn, seq, _) => {
                named.insert(place_of(messages, (loop_id, *turn, *seq))?);
            }
            EditTarget::Call(id) => {
                let call = messages.call(None, id)?;
                named.extend(call.map(|(place, _)| place));
                let near = call.map_or(0, |(place, _)| place.0);
                named.extend(messages.results(near, id)?);
            }
            EditTarget::Matching(_) | EditTarget::OldResults { .. } => {
                let why = "messages are restored by turn, message or call; name one";
                return Err(refused(EditRefusal::Text(why)));
            }
        }
    }
    Ok(named)
}

/// Returns the messages with what an edit of them takes with it: the other halves of pairs, and the answers of their
/// turns.
fn with_pairs(
    messages: &mut ChainMessages<'_>,
    named: &BTreeSet<Place>,
) -> StoreResult<BTreeSet<Place>> {
    let mut all = named.clone();
    let mut queue: Vec<Place> = named.iter().copied().collect();
    while let Some(place) = queue.pop() {
        let Some(message) = messages.at(place)? else {
            continue;
        };
        let turn = message.turn;
        let calls: Vec<String> = message
            .message
            .tool_calls()
            .map(|call| call.id.clone())
            .collect();
        let answered = match &message.message {
            Message::ToolResult(result) => Some(result.tool_call_id.clone()),
            _ => None,
        };
        let mut found = Vec::new();
        for call in calls {
            found.extend(messages.results(place.0, &call)?);
        }
        if let Some(call) = answered {
            found.extend(messages.call(Some(place), &call)?.map(|(place, _)| place));
        }
        let answers = messages.of(place.0)?.iter();
        let answers =
            answers.filter(|own| own.turn == turn && own.message.role() == Role::Assistant);
        found.extend(answers.map(|own| (place.0, own.seq)));
        queue.extend(found.into_iter().filter(|place| all.insert(*place)));
    }
    Ok(all)
}

/// True if all messages of an edit are among these.
fn is_within(
    messages: &mut ChainMessages<'_>,
    row: &EditRow,
    places: &BTreeSet<Place>,
) -> StoreResult<bool> {
    let depth = messages
        .links
        .iter()
        .position(|link| link.row.key == row.loop_key);
    let Some(depth) = depth else {
        return Ok(false);
    };
    let own = messages.of(depth)?.iter();
    let mut own = own.filter(|own| row.covers(own.seq));
    Ok(own.all(|own| places.contains(&(depth, own.seq))))
}
