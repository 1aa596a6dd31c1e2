//! What a context shows of each turn of a chain.
//!
//! The coverage of the active blocks says it: nothing here looks at what a block shows.

use std::collections::HashMap;

use super::chain::{Chain, Purpose};
use super::{BuildOptions, settings};
use crate::model::LoopId;
use crate::overlay::whole_as;
use crate::store::active_blocks::{ChainLink, View, chain, depth_of};
use crate::store::{
    BlockCore, CoverageRow, Disposition, LoopCore, LoopKey, Size, StoreError, StoreRead,
    StoreResult,
};

/// What a context shows of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnState {
    /// As it was recorded: no block covers it.
    Raw,
    /// What the block that covers it says. Of a turn whose messages went different ways something
    /// was cut: it is [`Disposition::Truncated`].
    Covered(Disposition),
}

impl TurnState {
    /// Returns the word in JSON: `raw`, or that of the disposition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Covered(disposition) => disposition.as_str(),
        }
    }
}

impl TurnState {
    /// Whether a context shows nothing of the turn itself: a text stands for it, or nothing does.
    pub fn is_hidden(self) -> bool {
        match self {
            Self::Raw => false,
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

/// One loop of a context: what is shown of each of its turns, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopStates {
    /// The loop.
    pub key: LoopKey,
    /// Its id.
    pub loop_id: LoopId,
    /// What is shown of each turn that belongs to the chain.
    pub turns: Vec<TurnState>,
    /// The block that speaks for the loop.
    pub block: Option<BlockCore>,
}

/// A chain as the context of its leaf shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownChain {
    /// Loop by loop from the root; loops that the context leaves out are not named.
    pub states: Vec<LoopStates>,
    /// The size of the context.
    pub size: Size,
}

/// Returns what the context of a leaf shows of each turn of its chain, with the size of that context.
///
/// # Errors
/// If a row is damaged, or the store fails.
pub fn shown_chain(read: &dyn StoreRead, leaf: &LoopCore, view: View) -> StoreResult<ShownChain> {
    let chain = plain_chain(read, leaf, view)?;
    Ok(ShownChain {
        states: turn_states(read, &chain, view)?,
        size: chain.size(),
    })
}

/// Loads a chain with the options that its newest run says.
fn plain_chain(read: &dyn StoreRead, leaf: &LoopCore, view: View) -> StoreResult<Chain> {
    let plain = settings(read, leaf.session, leaf.key, view, &BuildOptions::default())?;
    let (config, window) = (&plain.config, &plain.window);
    Chain::load(read, leaf.key, view, config, window, Purpose::Build)
}

/// Returns what the context of a chain shows of each turn, loop by loop from the root. Loops that
/// it leaves out are not named.
pub fn turn_states(
    read: &dyn StoreRead,
    loaded: &Chain,
    view: View,
) -> StoreResult<Vec<LoopStates>> {
    let Some(leaf) = loaded.links.last() else {
        return Ok(Vec::new());
    };
    let whole = View { raw: true, ..view };
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

/// Returns what is shown of the turns of a loop that is in the context itself.
fn states_of(read: &dyn StoreRead, link: &ChainLink) -> StoreResult<Vec<TurnState>> {
    let Some(block) = &link.block else {
        return Ok(vec![TurnState::Raw; link.turns as usize]);
    };
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

/// Returns what is shown of a loop before the anchor of the active rollup.
fn rolled_up(
    link: &ChainLink,
    anchor: &BlockCore,
    covered: &HashMap<LoopKey, HashMap<u32, Disposition>>,
) -> Vec<TurnState> {
    let own = covered.get(&link.row.key);
    let state = |turn| {
        let noted = own.and_then(|own| own.get(&turn)).copied();
        TurnState::Covered(noted.unwrap_or(whole_as(anchor.kind)))
    };
    (0..link.turns).map(state).collect()
}

/// Returns what a block says of each turn that it covers; for a rollup also what those say that it
/// extends, of turns that it does not name itself.
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

/// Returns what one block's own rows say of each turn.
pub fn turn_dispositions(rows: &[CoverageRow]) -> HashMap<LoopKey, HashMap<u32, Disposition>> {
    let mut all: HashMap<LoopKey, HashMap<u32, Disposition>> = HashMap::new();
    for row in rows {
        let turns = all.entry(row.loop_key).or_default();
        let (first, last) = row.turns.map_or((1, 0), |turns| turns);
        for turn in first..=last {
            let state = turns.entry(turn).or_insert(row.disposition);
            *state = together(*state, row.disposition);
        }
    }
    all
}

/// Returns what became of a turn whose messages went two ways.
fn together(one: Disposition, other: Disposition) -> Disposition {
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
