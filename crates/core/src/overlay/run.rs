//! The commit of a run with its blocks.

use std::ops::ControlFlow;

use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{LoopKey, NewBlock, RunRow, SessionKey, StoreRead, StoreResult, StoreWrite};

/// Returns the number of the next run from a leaf: one more than the committed runs of its chain.
pub fn next_round(read: &dyn StoreRead, session: SessionKey, leaf: LoopKey) -> StoreResult<u32> {
    let mut round = 1;
    ActiveBlocks::new(read, leaf, ChainView::default()).run_summaries(session, &mut |_, run| {
        round = run.round.saturating_add(1);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(round)
}

/// Writes a run and its blocks at the session's next tick; returns the generations of the blocks. If the run is
/// already stored as an open run, `was` is its digest in the audit chain.
///
/// # Errors
/// If the store fails.
pub fn commit(
    write: &mut dyn StoreWrite,
    mut run: RunRow,
    blocks: Vec<NewBlock>,
    was: Option<[u8; 32]>,
) -> StoreResult<Vec<u32>> {
    let mut session = write.session_by_key(run.session)?;
    session.tick += 1;
    run.tick = session.tick;
    run.round = next_round(write, run.session, run.point.loop_key)?;
    if was.is_none() {
        run.key = write.insert_run(&run)?;
    }
    let mut generations = Vec::with_capacity(blocks.len());
    for mut block in blocks {
        let mut owner = write.loop_by_key(block.row.loop_key)?;
        owner.totals.generation += 1;
        // An earlier loop may still run: covered messages must not be replaced any more.
        owner.totals.sealed_seq = owner.totals.sealed_seq.max(block.row.through);
        write.update_totals(&owner, &owner.progress)?;
        block.row.generation = owner.totals.generation;
        block.row.run = run.key;
        generations.push(block.row.generation);
        write.insert_block(&block)?;
    }
    write.close_run(&run, was)?;
    write.touch_session(&(&session).into())?;
    Ok(generations)
}
