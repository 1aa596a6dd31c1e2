//! The runs that an undo of the edits of some messages takes back.

use std::collections::BTreeSet;

use super::chain_messages::{ChainMessages, Place};
use super::refused;
use super::request::EditTarget;
use super::resolve::is_bound;
use super::targets::place_of;
use crate::context::{leaf_of, session_of};
use crate::model::{Content, LoopId, Message, Role, SessionId};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{EditRefusal, EditRow, RunKey, StoreRead, StoreResult};

/// The most addresses that a refusal lists.
const MOST_NAMED: usize = 5;

/// Returns the live runs of edits of the targets, newest first. A part is a target of its own: the runs that edit only
/// other parts of its message stay.
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
    let named = Restored::named(&mut messages, targets)?;
    let mut walk = ActiveBlocks::new(read, leaf.key, ChainView::default());
    let mut runs: BTreeSet<RunKey> = BTreeSet::new();
    for depth in 0..messages.links.len() {
        for edit in walk.live_rows(messages.links[depth].row.key)? {
            runs.extend(named.touches(depth, &edit.edit).then_some(edit.run));
        }
    }
    if runs.is_empty() {
        return Err(refused(EditRefusal::NotEdited));
    }
    let all = named.with_pairs(&mut messages)?;
    for run in &runs {
        let mut others = Vec::new();
        for row in read.edits_of_run(*run)? {
            others.extend(all.others(&mut messages, &row)?);
        }
        if !others.is_empty() {
            return Err(refused(EditRefusal::OtherTargets {
                run: read.run_by_key(*run)?.run_id,
                others: listed(&others),
            }));
        }
    }
    Ok(runs.into_iter().rev().collect())
}

fn listed(others: &[String]) -> String {
    let more = others.len().saturating_sub(MOST_NAMED);
    let named = others[..others.len() - more].join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Messages and parts of messages.
#[derive(Default)]
struct Restored {
    messages: BTreeSet<Place>,
    /// Parts of other messages.
    parts: BTreeSet<(Place, u32)>,
}

impl Restored {
    /// Returns what the targets name, whether or not it is removed.
    fn named(messages: &mut ChainMessages<'_>, targets: &[EditTarget]) -> StoreResult<Self> {
        let mut named = Self::default();
        for target in targets {
            match target {
                EditTarget::Turns(loop_id, turns) => {
                    let ids = messages.links.iter().map(|link| &link.row.loop_id);
                    let depth = ids.into_iter().position(|id| id == loop_id);
                    if let Some(depth) = depth {
                        let own = messages.of(depth)?.iter();
                        let own = own.filter(|own| turns.contains(&own.turn));
                        named.messages.extend(own.map(|own| (depth, own.seq)));
                    }
                }
                EditTarget::Message(loop_id, turn, seq) => {
                    let place = place_of(messages, (loop_id, *turn, *seq))?;
                    named.messages.insert(place);
                }
                EditTarget::Part(loop_id, turn, seq, part) => {
                    let place = place_of(messages, (loop_id, *turn, *seq))?;
                    check_part(messages, place, *part)?;
                    named.parts.insert((place, *part));
                }
                EditTarget::Call(id) => {
                    let call = messages.call(None, id)?;
                    if let Some((place, _)) = call {
                        named.messages.insert(place);
                        named.messages.extend(messages.results(place, id)?);
                    }
                }
                EditTarget::Matching(_) | EditTarget::OldResults { .. } => {
                    let why = "messages are restored by turn, message, part or call; name one";
                    return Err(refused(EditRefusal::Text(why)));
                }
            }
        }
        Ok(named)
    }

    /// True if an edit of a loop of the chain edits something of these.
    fn touches(&self, depth: usize, edit: &EditRow) -> bool {
        let is_here = |place: &Place| place.0 == depth && edit.covers(place.1);
        let is_part = |part: u32| edit.part.is_none_or(|edited| edited.number == part);
        let mut parts = self.parts.iter();
        self.messages.iter().any(is_here)
            || parts.any(|(place, part)| is_here(place) && is_part(*part))
    }

    /// Adds what an edit of these takes with it: the other halves of pairs, and bound content. Of whole messages, that
    /// are the answers of their turns.
    fn with_pairs(self, messages: &mut ChainMessages<'_>) -> StoreResult<Self> {
        let mut all = Self {
            messages: pairs_of_messages(messages, &self.messages)?,
            parts: self.parts.clone(),
        };
        for (place, part) in self.parts {
            let Some(message) = messages.at(place)? else {
                continue;
            };
            let content = message.message.content().get(part as usize);
            let answered = match (content, &message.message) {
                (Some(Content::ToolCall(call)), _) => Answered::Call(call.id.clone()),
                (_, Message::ToolResult(result)) => Answered::Result(result.tool_call_id.clone()),
                _ => Answered::Nothing,
            };
            let mut answer = Some(place);
            match answered {
                Answered::Call(id) => {
                    for result in messages.results(place, &id)? {
                        all.messages.insert(result);
                    }
                }
                Answered::Result(id) => {
                    let call = messages.call(Some(place), &id)?;
                    all.parts.extend(call);
                    answer = call.map(|(place, _)| place);
                }
                Answered::Nothing => {}
            }
            if let Some(answer) = answer {
                all.parts.extend(bound_in_turn(messages, answer)?);
            }
        }
        Ok(all)
    }

    /// Returns the addresses of the messages and parts of an edit that are not among these.
    fn others(&self, messages: &mut ChainMessages<'_>, row: &EditRow) -> StoreResult<Vec<String>> {
        let mut links = messages.links.iter();
        let depth = links.position(|link| link.row.key == row.loop_key);
        let Some(depth) = depth else {
            return Ok(vec!["messages of another chain".into()]);
        };
        let loop_id = messages.links[depth].row.loop_id.clone();
        let mut others = Vec::new();
        let own = messages.of(depth)?.iter();
        for message in own.filter(|own| row.covers(own.seq)) {
            let place = (depth, message.seq);
            if self.messages.contains(&place) {
                continue;
            }
            let address = format!("{loop_id}:{}:{}", message.turn, message.seq);
            let edited = match row.part {
                Some(part) => part.number..part.number.saturating_add(1),
                None => 0..u32::try_from(message.message.content().len()).unwrap_or(u32::MAX),
            };
            let count = edited.len();
            let missing = edited.filter(|part| !self.parts.contains(&(place, *part)));
            let missing: Vec<u32> = missing.collect();
            match row.part.is_none() && missing.len() == count {
                true => others.push(address),
                false => others.extend(missing.iter().map(|part| format!("{address}:{part}"))),
            }
        }
        Ok(others)
    }
}

/// The other half of the pair of a part.
enum Answered {
    /// The results of this call.
    Call(String),
    /// The call of a result.
    Result(String),
    Nothing,
}

fn check_part(messages: &mut ChainMessages<'_>, place: Place, part: u32) -> StoreResult<()> {
    let loop_id = messages.links[place.0].row.loop_id.to_string();
    let parts = messages
        .at(place)?
        .map_or(0, |own| own.message.content().len());
    match (part as usize) < parts {
        true => Ok(()),
        false => Err(refused(EditRefusal::NoPart {
            loop_id,
            seq: place.1,
            part,
            parts,
        })),
    }
}

/// Returns the content that a provider bound to the answers of the turn of a message; none if it is no answer.
fn bound_in_turn(messages: &mut ChainMessages<'_>, place: Place) -> StoreResult<Vec<(Place, u32)>> {
    let answer = messages.at(place)?;
    let answer = answer.filter(|own| own.message.role() == Role::Assistant);
    let Some(turn) = answer.map(|own| own.turn) else {
        return Ok(Vec::new());
    };
    let own = messages.of(place.0)?.iter();
    let answers = own.filter(|own| own.turn == turn && own.message.role() == Role::Assistant);
    let bound = answers.flat_map(|own| {
        let parts = (0u32..).zip(own.message.content());
        let bound = parts.filter(|(_, part)| is_bound(part));
        bound.map(|(number, _)| ((place.0, own.seq), number))
    });
    Ok(bound.collect())
}

/// Returns the messages with what an edit of them takes with it: the other halves of pairs, and the answers of their
/// turns.
fn pairs_of_messages(
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
            found.extend(messages.results(place, &call)?);
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
