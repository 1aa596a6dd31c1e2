//! Finds the old tool results of a context.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::chain_messages::{ChainMessages, Place};
use super::targets::{Targets, reason_to_skip};
use crate::context::{BuildOptions, Chain};
use crate::model::{EditAction, Message};
use crate::overlay::turn_seqs;
use crate::store::active_blocks::{ChainLink, ChainView};
use crate::store::{LoopKey, Section, StoreRead, StoreResult};

/// A tool result of a context.
struct OldResult {
    place: Place,
    turn: u32,
    is_excluded: bool,
}

/// The originals that a loop shows, some of them shortened or edited.
struct ShownOriginals {
    seqs: Vec<Range<u32>>,
    /// The messages among them that the block drops.
    dropped: BTreeSet<u32>,
}

impl Targets {
    /// Adds the tool results that the context shows, newest first, except the newest `keep` and those of some tools.
    pub(super) fn add_old_results(
        &mut self,
        messages: &mut ChainMessages<'_>,
        (mut keep, exclude_tools): (u32, &[String]),
        action: EditAction,
    ) -> StoreResult<()> {
        for OldResult {
            place,
            turn,
            is_excluded,
        } in shown_results(messages, exclude_tools)?.into_iter().rev()
        {
            let is_shown = !messages.is_removed(place, None);
            if keep > 0 {
                keep -= u32::from(is_shown);
            } else if is_excluded {
                self.skip(messages, place, turn, "of an excluded tool");
            } else if let Some(reason) = reason_to_skip(messages, place, turn, action) {
                self.skip(messages, place, turn, reason);
            } else {
                self.found.push((place, None));
            }
        }
        Ok(())
    }
}

/// Returns the results of the messages that the context of a chain shows or edits remove, oldest first. Results behind
/// a summary are not among them: to edit them would free nothing.
fn shown_results(
    messages: &mut ChainMessages<'_>,
    exclude_tools: &[String],
) -> StoreResult<Vec<OldResult>> {
    let shown = shown_originals(messages)?;
    // Agents that name no tool in a result name it in the call; ids of calls may return.
    let (mut calls, mut results) = (HashMap::new(), Vec::new());
    for depth in 0..messages.links.len() {
        let Some(shown) = shown.get(&messages.links[depth].row.key) else {
            continue;
        };
        for own in messages.of(depth)? {
            for call in own.message.tool_calls() {
                calls.insert(call.id.clone(), call.name.clone());
            }
            let Message::ToolResult(result) = &own.message else {
                continue;
            };
            let tool = match result.tool_name.is_empty() {
                true => calls.get(&result.tool_call_id),
                false => Some(&result.tool_name),
            };
            if shown.has(own.seq) {
                results.push(OldResult {
                    place: (depth, own.seq),
                    turn: own.turn,
                    is_excluded: tool.is_some_and(|tool| exclude_tools.contains(tool)),
                });
            }
        }
    }
    Ok(results)
}

/// Returns the originals that the context of a chain shows, for each loop that the context reaches.
fn shown_originals(messages: &ChainMessages<'_>) -> StoreResult<HashMap<LoopKey, ShownOriginals>> {
    let Some(leaf) = messages.links.last().map(|link| &link.row) else {
        return Ok(HashMap::new());
    };
    let (read, options) = (messages.read, BuildOptions::default());
    let place = (leaf.session, leaf.key);
    let chain = Chain::load_active(read, place, ChainView::default(), &options)?;
    let links = chain.links.iter().skip(chain.start);
    let of_loop = |link: &ChainLink| Ok((link.row.key, ShownOriginals::of(read, link)?));
    links.map(of_loop).collect()
}

impl ShownOriginals {
    fn of(read: &dyn StoreRead, link: &ChainLink) -> StoreResult<Self> {
        let (mut seqs, mut dropped) = (Vec::new(), BTreeSet::new());
        let Some(block) = &link.block else {
            seqs.push(0..link.end_seq);
            return Ok(Self { seqs, dropped });
        };
        for turns in [block.layout.first, block.layout.recent]
            .into_iter()
            .flatten()
        {
            seqs.push(turn_seqs(read, link.row.key, turns, block.through)?);
        }
        seqs.push(block.through..link.end_seq);
        for message in read.block_messages(block.key)? {
            let is_dropped = message.section == Section::Recent && message.body.is_none();
            dropped.extend(message.replaces.filter(|_| is_dropped));
        }
        Ok(Self { seqs, dropped })
    }

    fn has(&self, seq: u32) -> bool {
        self.seqs.iter().any(|seqs| seqs.contains(&seq)) && !self.dropped.contains(&seq)
    }
}
