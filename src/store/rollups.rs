//! Which loops a rollup covers beside its own.

use std::collections::BTreeMap;

use super::rows::{BlockCore, LoopKey};
use super::{StoreRead, StoreResult};

/// Returns the loops before its own that a rollup covers and that the one which it extends does not, each
/// with the last sequence and the last turn that it covers.
pub(crate) fn added_loops(
    read: &(impl StoreRead + ?Sized),
    block: &BlockCore,
) -> StoreResult<Vec<(LoopKey, u32, u32)>> {
    let mut added: BTreeMap<LoopKey, (u32, u32)> = BTreeMap::new();
    for row in read.coverage(block.key)? {
        // A loop of which something is quoted has several rows, in order.
        if let (Some((_, seq)), Some((_, turn))) = (row.seqs, row.turns)
            && row.loop_key != block.loop_key
        {
            added.insert(row.loop_key, (seq, turn));
        }
    }
    // Keys fall, so that the way back cannot be a circle.
    let (mut key, mut before) = (block.key, block.extends);
    while let Some(earlier) = before.filter(|before| *before < key && !added.is_empty()) {
        let row = read.block_by_key(earlier)?;
        added.remove(&row.loop_key);
        for row in read.coverage(earlier)? {
            added.remove(&row.loop_key);
        }
        (key, before) = (earlier, row.extends);
    }
    let rows = added.into_iter();
    Ok(rows.map(|(key, (seq, turn))| (key, seq, turn)).collect())
}
