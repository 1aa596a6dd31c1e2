//! Finds the messages of the chain that the targets of a request name.

use super::chain_messages::{ChainMessage, ChainMessages, Place};
use super::refused;
use super::report::SkippedMessage;
use super::request::{EditFilter, EditRequest, EditTarget};
use crate::model::{EditAction, LoopId, Message};
use crate::store::{EditRefusal, MessageEdit, StoreResult};

/// The messages and parts that a request names.
#[derive(Default)]
pub(super) struct Targets {
    /// Messages, or a part of one.
    pub(super) found: Vec<(Place, Option<u32>)>,
    pub(super) skipped: Vec<SkippedMessage>,
}

impl Targets {
    /// Finds the targets of a request.
    pub(super) fn of(messages: &mut ChainMessages<'_>, request: &EditRequest) -> StoreResult<Self> {
        let mut targets = Self::default();
        for target in &request.targets {
            match target {
                EditTarget::Turns(loop_id, turns) => {
                    let depth = depth_of(messages, loop_id)?;
                    for turn in turns.clone() {
                        targets.add_turn(messages, depth, turn)?;
                    }
                }
                EditTarget::Message(loop_id, turn, seq) => {
                    let place = place_of(messages, (loop_id, *turn, *seq))?;
                    check(messages, place, *turn, None)?;
                    targets.found.push((place, None));
                }
                EditTarget::Part(loop_id, turn, seq, part) => {
                    let place = place_of(messages, (loop_id, *turn, *seq))?;
                    check(messages, place, *turn, Some(*part))?;
                    targets.found.push((place, Some(*part)));
                }
                EditTarget::Call(id) => targets.add_call(messages, id, request.action)?,
                EditTarget::Matching(filter) => targets.add_matching(messages, filter, request)?,
                EditTarget::OldResults {
                    keep,
                    exclude_tools,
                } => {
                    targets.add_old_results(messages, (*keep, exclude_tools), request.action)?;
                }
            }
        }
        Ok(targets)
    }

    fn add_turn(
        &mut self,
        messages: &mut ChainMessages<'_>,
        depth: usize,
        turn: u32,
    ) -> StoreResult<()> {
        let loop_id = messages.links[depth].row.loop_id.to_string();
        if turn >= messages.links[depth].turns {
            return Err(not_on_chain(
                messages,
                format!("turn {turn} of loop `{loop_id}`"),
            ));
        }
        if messages.is_in_flight(depth, turn) {
            return Err(refused(EditRefusal::InFlight { loop_id, turn }));
        }
        let own = messages.of(depth)?.iter();
        let seqs: Vec<u32> = own
            .filter(|own| own.turn == turn)
            .map(|own| own.seq)
            .collect();
        for seq in seqs {
            if messages.is_pinned((depth, seq)) {
                return Err(refused(EditRefusal::Pinned { loop_id, seq }));
            }
            match messages.is_removed((depth, seq), None) {
                true => self.skip(messages, (depth, seq), turn, "removed already"),
                false => self.found.push(((depth, seq), None)),
            }
        }
        Ok(())
    }

    fn add_call(
        &mut self,
        messages: &mut ChainMessages<'_>,
        id: &str,
        action: EditAction,
    ) -> StoreResult<()> {
        let Some((place, part)) = messages.call(None, id)? else {
            return Err(not_on_chain(messages, format!("call `{id}`")));
        };
        let turn = messages.at(place)?.map_or(0, |message| message.turn);
        if action == EditAction::Removed {
            check(messages, place, turn, Some(part))?;
            self.found.push((place, Some(part)));
            return Ok(());
        }
        for place in messages.results(place, id)? {
            let turn = messages.at(place)?.map_or(0, |message| message.turn);
            check(messages, place, turn, None)?;
            self.found.push((place, None));
        }
        Ok(())
    }

    fn add_matching(
        &mut self,
        messages: &mut ChainMessages<'_>,
        filter: &EditFilter,
        request: &EditRequest,
    ) -> StoreResult<()> {
        if filter.is_empty() {
            return Err(refused(EditRefusal::EmptyFilter));
        }
        let words = filter.words.as_deref().unwrap_or_default().to_lowercase();
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut newer = 0;
        for depth in (0..messages.links.len()).rev() {
            let complete = messages.links[depth].complete;
            let age = |turn: u32| newer + complete.saturating_sub(turn.saturating_add(1));
            let own = messages.of(depth)?.iter();
            let matching =
                own.filter(|own| fits(own, filter, &words) && is_old(filter, age(own.turn)));
            let matching: Vec<(u32, u32)> = matching.map(|own| (own.seq, own.turn)).collect();
            newer += complete;
            for (seq, turn) in matching {
                let place = (depth, seq);
                match reason_to_skip(messages, place, turn, request.action) {
                    Some(reason) => self.skip(messages, place, turn, reason),
                    None => self.found.push((place, None)),
                }
            }
        }
        Ok(())
    }

    pub(super) fn skip(
        &mut self,
        messages: &ChainMessages<'_>,
        (depth, seq): Place,
        turn: u32,
        reason: &'static str,
    ) {
        self.skipped.push(SkippedMessage {
            loop_id: messages.links[depth].row.loop_id.clone(),
            turn,
            seq,
            reason,
        });
    }
}

pub(super) fn reason_to_skip(
    messages: &ChainMessages<'_>,
    place: Place,
    turn: u32,
    action: EditAction,
) -> Option<&'static str> {
    if messages.is_in_flight(place.0, turn) {
        return Some("in flight");
    }
    if messages.is_pinned(place) {
        return Some("pinned");
    }
    match messages.edit(place) {
        Some(MessageEdit::Removed) => Some("removed already"),
        Some(MessageEdit::Parts(_)) if action == EditAction::Cleared => Some("edited already"),
        _ => None,
    }
}

fn is_old(filter: &EditFilter, age: u32) -> bool {
    filter.older_than.is_none_or(|least| age >= least)
}

fn fits(message: &ChainMessage, filter: &EditFilter, words: &[&str]) -> bool {
    let is_tool = filter.tool.as_ref().is_none_or(
        |tool| matches!(&message.message, Message::ToolResult(result) if result.tool_name == *tool),
    );
    let is_large = filter.larger.is_none_or(|bytes| message.size.bytes > bytes);
    is_tool && is_large && has_words(&message.message, words)
}

fn has_words(message: &Message, words: &[&str]) -> bool {
    if words.is_empty() {
        return true;
    }
    let text: Vec<&str> = message.texts().collect();
    let text = text.join("\n").to_lowercase();
    words.iter().all(|word| text.contains(word))
}

fn depth_of(messages: &ChainMessages<'_>, loop_id: &LoopId) -> StoreResult<usize> {
    let mut links = messages.links.iter();
    let at = links.position(|link| link.row.loop_id == *loop_id);
    at.ok_or_else(|| not_on_chain(messages, format!("loop `{loop_id}`")))
}

fn not_on_chain(messages: &ChainMessages<'_>, what: String) -> crate::store::StoreError {
    let leaf = messages.links.last();
    let leaf = leaf.map_or_else(String::new, |leaf| leaf.row.loop_id.to_string());
    refused(EditRefusal::NotOnChain { what, leaf })
}

/// Returns the place of a message by its loop, its turn and its sequence.
pub(super) fn place_of(
    messages: &mut ChainMessages<'_>,
    (loop_id, turn, seq): (&LoopId, u32, u32),
) -> StoreResult<Place> {
    let depth = depth_of(messages, loop_id)?;
    let found = messages.at((depth, seq))?.map(|message| message.turn);
    match found {
        Some(found) if found == turn => Ok((depth, seq)),
        None if seq < messages.links[depth].end_seq => Err(refused(EditRefusal::Extension {
            loop_id: loop_id.to_string(),
            seq,
        })),
        _ => Err(not_on_chain(
            messages,
            format!("message {seq} of turn {turn} of loop `{loop_id}`"),
        )),
    }
}

/// Fails if a message, or its part, cannot be edited.
fn check(
    messages: &mut ChainMessages<'_>,
    place: Place,
    turn: u32,
    part: Option<u32>,
) -> StoreResult<()> {
    let (loop_id, seq) = (messages.links[place.0].row.loop_id.to_string(), place.1);
    let parts = messages
        .at(place)?
        .map_or(0, |own| own.message.content().len());
    if messages.is_in_flight(place.0, turn) {
        return Err(refused(EditRefusal::InFlight { loop_id, turn }));
    }
    if let Some(part) = part.filter(|part| *part as usize >= parts) {
        return Err(refused(EditRefusal::NoPart {
            loop_id,
            seq,
            part,
            parts,
        }));
    }
    if messages.is_pinned(place) {
        return Err(refused(EditRefusal::Pinned { loop_id, seq }));
    }
    if messages.is_removed(place, part) {
        return Err(refused(EditRefusal::Removed { loop_id, seq }));
    }
    Ok(())
}
