//! The state of each turn of a chain in a context.
//!
//! The states come from the coverage of the active blocks and from live edits; no message is read.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::BuildOptions;
use super::chain::Chain;
use crate::model::{LoopId, Role};
use crate::overlay::whole_as;
use crate::store::active_blocks::{ChainLink, ChainView, chain, depth_of};
use crate::store::{
    BlockCore, CoverageRow, Disposition, LiveEdits, LoopCore, LoopKey, MessageEdit, Size,
    StoreError, StoreRead, StoreResult,
};

/// The state of a turn in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnState {
    /// No block covers the turn; the context shows it as it was recorded.
    Raw,
    /// Live edits removed, cleared or replaced something of the turn, and no summary replaces it. A turn of which
    /// nothing is left is [`Disposition::Removed`].
    Edited,
    /// The disposition according to the block that covers the turn. A turn whose messages have different
    /// dispositions is [`Disposition::Truncated`], as a part of it was cut.
    Covered(Disposition),
}

impl TurnState {
    /// Returns the word in JSON: `raw`, or that of the disposition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Edited => "edited",
            Self::Covered(disposition) => disposition.as_str(),
        }
    }
}

impl TurnState {
    /// True if a context shows nothing of the turn itself: a text replaces it, or it was dropped.
    pub fn is_hidden(self) -> bool {
        match self {
            Self::Raw | Self::Edited => false,
            Self::Covered(Disposition::Kept | Disposition::Truncated) => false,
            Self::Covered(_) => true,
        }
    }
}

impl serde::Serialize for TurnState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One loop of a context: the states of its turns, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopStates {
    /// The loop.
    pub key: LoopKey,
    /// Its id.
    pub loop_id: LoopId,
    /// The state of each turn that belongs to the chain.
    pub turns: Vec<TurnState>,
    /// The block that the states come from.
    pub block: Option<BlockCore>,
}

/// The states of the turns of a chain, with the size of its context.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownChain {
    /// The states loop by loop from the root, without the loops that the context leaves out.
    pub states: Vec<LoopStates>,
    /// The size of the context.
    pub size: Size,
}

/// Returns the state of each turn of the chain of a leaf in its context, with the size of that context.
///
/// # Errors
/// If a row is damaged, or the store fails.
pub fn shown_chain(
    read: &dyn StoreRead,
    leaf: &LoopCore,
    view: ChainView,
) -> StoreResult<ShownChain> {
    let chain = plain_chain(read, leaf, view)?;
    Ok(ShownChain {
        states: turn_states(read, &chain, view)?,
        size: chain.size(),
    })
}

/// Loads a chain with the options of its newest run.
fn plain_chain(read: &dyn StoreRead, leaf: &LoopCore, view: ChainView) -> StoreResult<Chain> {
    let keys = (leaf.session, leaf.key);
    Chain::load_active(read, keys, view, &BuildOptions::default())
}

/// Returns the state of each turn of a chain in its context, loop by loop from the root, without the loops
/// that the context leaves out.
pub fn turn_states(
    read: &dyn StoreRead,
    loaded: &Chain,
    view: ChainView,
) -> StoreResult<Vec<LoopStates>> {
    let Some(leaf) = loaded.links.last() else {
        return Ok(Vec::new());
    };
    let whole = ChainView { raw: true, ..view };
    let first = loaded.links.first().filter(|link| link.is_anchor());
    let anchor = first.and_then(|link| link.block.as_ref());
    let above = match anchor {
        Some(anchor) => coverage_of(read, anchor)?,
        None => HashMap::new(),
    };
    let shown = &loaded.links[loaded.start..];
    let mut all = Vec::new();
    for link in chain(read, leaf.row.key, whole)? {
        let in_context = depth_of(shown, link.row.key).map(|depth| &shown[depth]);
        let is_before = first.is_some_and(|first| link.row.key < first.row.key);
        let (turns, block) = match (in_context, anchor) {
            (Some(link), _) => (states_of(read, link)?, link.block.clone()),
            (None, Some(anchor)) if is_before => {
                (rolled_up(&link, anchor, &above), Some(anchor.clone()))
            }
            _ => continue,
        };
        all.push(LoopStates {
            key: link.row.key,
            loop_id: link.row.loop_id,
            turns,
            block,
        });
    }
    Ok(all)
}

/// Returns the states of the turns of a loop that is in the context itself.
fn states_of(read: &dyn StoreRead, link: &ChainLink) -> StoreResult<Vec<TurnState>> {
    let mut states = match &link.block {
        Some(block) => covered_states(read, link, block)?,
        None => vec![TurnState::Raw; link.turns as usize],
    };
    if let Some(edits) = &link.edits {
        apply_edits(read, link, edits, &mut states)?;
    }
    Ok(states)
}

/// Returns the states of the turns of a loop according to its block.
fn covered_states(
    read: &dyn StoreRead,
    link: &ChainLink,
    block: &BlockCore,
) -> StoreResult<Vec<TurnState>> {
    let covered = coverage_of(read, block)?;
    let own = covered.get(&link.row.key);
    let mut states = Vec::new();
    for turn in 0..link.turns {
        let state = own.and_then(|own| own.get(&turn)).copied();
        if state.is_none() && turn < block.layout.end() {
            return Err(StoreError::Damaged(format!(
                "no coverage of turn {turn} of loop {}",
                link.row.loop_id
            )));
        }
        states.push(state.map_or(TurnState::Raw, TurnState::Covered));
    }
    Ok(states)
}

/// Changes the states of the turns of which live edits show something in another form, or not at all.
fn apply_edits(
    read: &dyn StoreRead,
    link: &ChainLink,
    edits: &LiveEdits,
    states: &mut [TurnState],
) -> StoreResult<()> {
    // Of each turn, the number of messages that are shown, and whether one of its messages has an edit.
    let mut turns = vec![(0_u32, false); states.len()];
    read.sizes(link.row.key, 0..link.end_seq, &mut |message| {
        let is_context = message.role != Role::Extension;
        let turn = message.turn.filter(|_| is_context);
        if let Some((shown, is_edited)) = turn.and_then(|turn| turns.get_mut(turn as usize)) {
            let edit = edits.at(message.seq);
            *shown += u32::from(edit != Some(MessageEdit::Removed));
            *is_edited |= edit.is_some();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for (state, (shown, is_edited)) in states.iter_mut().zip(turns) {
        if is_edited && !state.is_hidden() {
            *state = match shown {
                0 => TurnState::Covered(Disposition::Removed),
                _ => TurnState::Edited,
            };
        }
    }
    Ok(())
}

/// Returns the states of a loop before the anchor of the active rollup.
fn rolled_up(
    link: &ChainLink,
    anchor: &BlockCore,
    covered: &HashMap<LoopKey, HashMap<u32, Disposition>>,
) -> Vec<TurnState> {
    let own = covered.get(&link.row.key);
    let state = |turn| {
        let disposition = own.and_then(|own| own.get(&turn)).copied();
        TurnState::Covered(disposition.unwrap_or(whole_as(anchor.kind)))
    };
    (0..link.turns).map(state).collect()
}

/// Returns the disposition of each turn that a block covers; for a rollup, turns without a row of its own
/// have the disposition in the rollups that it extends.
fn coverage_of(
    read: &dyn StoreRead,
    block: &BlockCore,
) -> StoreResult<HashMap<LoopKey, HashMap<u32, Disposition>>> {
    let mut all: HashMap<LoopKey, HashMap<u32, Disposition>> = HashMap::new();
    let mut next = Some((block.key, block.extends));
    while let Some((key, extends)) = next {
        for (loop_key, turns) in turn_dispositions(&read.coverage(key)?) {
            let known = all.entry(loop_key).or_default();
            for (turn, disposition) in turns {
                known.entry(turn).or_insert(disposition);
            }
        }
        // Keys fall, so that the way back cannot be a circle.
        next = match extends.filter(|before| *before < key) {
            Some(before) => Some((before, read.block_by_key(before)?.extends)),
            None => None,
        };
    }
    Ok(all)
}

/// Returns the disposition of each turn in one block's own rows.
pub fn turn_dispositions(rows: &[CoverageRow]) -> HashMap<LoopKey, HashMap<u32, Disposition>> {
    let mut all: HashMap<LoopKey, HashMap<u32, Disposition>> = HashMap::new();
    for row in rows {
        let turns = all.entry(row.loop_key).or_default();
        let (first, last) = row.turns.map_or((1, 0), |turns| turns);
        for turn in first..=last {
            let state = turns.entry(turn).or_insert(row.disposition);
            *state = combine(*state, row.disposition);
        }
    }
    all
}

/// Returns the disposition of a turn whose messages have two dispositions.
fn combine(one: Disposition, other: Disposition) -> Disposition {
    use Disposition as D;
    match (one, other) {
        (one, other) if one == other => one,
        (D::Summarised | D::RolledUp | D::Sealed, _) => one,
        (_, D::Summarised | D::RolledUp | D::Sealed) => other,
        _ => D::Truncated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_whose_messages_went_different_ways_is_truncated() {
        let row = |seq: u32, turns, disposition| CoverageRow {
            loop_key: LoopKey(1),
            seqs: Some((seq, seq)),
            turns: Some(turns),
            disposition,
        };
        let rows = [
            row(0, (0, 1), Disposition::Kept),
            row(1, (1, 1), Disposition::Truncated),
            row(2, (1, 2), Disposition::Kept),
            row(3, (3, 3), Disposition::Dropped),
            row(4, (4, 4), Disposition::Dropped),
            row(5, (4, 4), Disposition::Kept),
        ];
        let dispositions = &turn_dispositions(&rows)[&LoopKey(1)];
        let words: Vec<&str> = (0..5).map(|turn| dispositions[&turn].as_str()).collect();
        assert_eq!(words, ["kept", "truncated", "kept", "dropped", "truncated"]);
    }
}
