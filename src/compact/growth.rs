//! The sizes of the turns by which a chain grows.

use super::policy::Policy;
use crate::compaction::growth::Growth;
use crate::store::active_blocks::ChainLink;
use crate::store::append::size_through;
use crate::store::{StoreError, StoreRead, StoreResult};

/// The number of newest turns of which a typical one is the mean.
const SAMPLE: usize = 32;

/// Reads the sizes of the newest complete turns of a chain.
pub(super) fn growth_of(
    read: &dyn StoreRead,
    links: &[ChainLink],
    policy: &Policy,
) -> StoreResult<Growth> {
    let mut sizes = Vec::new();
    for link in links.iter().rev() {
        let through =
            |turns| Ok::<u64, StoreError>(size_through(read, link.row.key, turns)?.tokens);
        for turn in (0..link.complete.min(link.turns)).rev() {
            if sizes.len() == SAMPLE {
                break;
            }
            let size = through(turn + 1)?;
            sizes.push(size.saturating_sub(through(turn)?));
        }
    }
    Ok(Growth::new(&policy.compaction, &policy.window, sizes))
}

/// True if the window of a policy is a size to hand a conversation over in.
pub(super) fn is_handed_over(policy: &Policy) -> bool {
    crate::compaction::growth::is_handed_over(&policy.compaction, &policy.window)
}
