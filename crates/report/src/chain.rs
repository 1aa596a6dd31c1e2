//! The state of each turn of a chain in the context of its leaf.

use serde::Serialize;

use super::messages::WrittenMessages;
use loopstore::extend::active_blocks::{ChainLink, ChainView};
use loopstore::extend::{LoopRow, Size, StoreRead, StoreResult, shown_chain};

/// One loop of the chain.
#[derive(Debug, Serialize)]
pub(super) struct ChainLoop {
    /// The loop, by its position in the index.
    #[serde(rename = "loop")]
    loop_key: usize,
    /// The number of its turns that belong to the chain.
    turns: u32,
    /// The states of these turns, as runs of the same state: a word and a number of turns.
    states: Vec<(&'static str, u32)>,
    /// The block that applies to the loop, by its position in the index.
    block: Option<usize>,
}

/// The state of a turn before the start of the context.
const LEFT_OUT: &str = "left_out";

/// Returns the chain, and the size of the context.
pub(super) fn chain_of(
    read: &dyn StoreRead,
    leaf: &LoopRow,
    links: &[ChainLink],
    found: &WrittenMessages,
) -> StoreResult<(Vec<ChainLoop>, Size)> {
    let shown = shown_chain(read, leaf, ChainView::default())?;
    let mut all = Vec::with_capacity(links.len());
    for link in links {
        let states = &shown.states;
        let place = states.binary_search_by_key(&link.row.key, |states| states.key);
        let own = place.ok().map(|at| &states[at]);
        let words = own.map(|own| own.turns.iter().map(|state| state.as_str()).collect());
        let words = words.unwrap_or_else(|| vec![LEFT_OUT; link.turns as usize]);
        let block = own.and_then(|own| own.block.as_ref());
        all.push(ChainLoop {
            loop_key: found.place_of(link.row.key).unwrap_or_default(),
            turns: link.turns,
            states: runs(&words),
            block: block.and_then(|block| found.block_of(block.key)),
        });
    }
    Ok((all, shown.size))
}

fn runs(words: &[&'static str]) -> Vec<(&'static str, u32)> {
    let mut runs: Vec<(&'static str, u32)> = Vec::new();
    for word in words {
        match runs.last_mut() {
            Some((last, count)) if last == word => *count += 1,
            _ => runs.push((word, 1)),
        }
    }
    runs
}
