//! Finds the old tool results of a context.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::chain_messages::{ChainMessage, ChainMessages};
use super::targets::{Targets, reason_to_skip};
use crate::context::{BuildOptions, Chain};
use crate::model::{EditAction, Message};
use crate::overlay::turn_seqs;
use crate::store::active_blocks::{ChainLink, ChainView};
use crate::store::{LoopKey, Section, StoreRead, StoreResult};

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
        let shown = shown_originals(messages)?;
        for depth in (0..messages.links.len()).rev() {
            // Results behind a summary would free nothing.
            let Some(shown) = shown.get(&messages.links[depth].row.key) else {
                continue;
            };
            let result = |own: &ChainMessage| match &own.message {
                Message::ToolResult(result) if shown.has(own.seq) => {
                    Some((own.seq, own.turn, exclude_tools.contains(&result.tool_name)))
                }
                _ => None,
            };
            let results: Vec<_> = messages.of(depth)?.iter().filter_map(result).collect();
            for (seq, turn, is_excluded) in results.into_iter().rev() {
                let place = (depth, seq);
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
        }
        Ok(())
    }
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
