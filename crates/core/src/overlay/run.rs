//! The commit of a run with its blocks.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{
    BlockMessage, EditRow, LoopKey, NewBlock, RunRow, SessionKey, StoreRead, StoreResult,
    StoreWrite,
};

/// Returns the number of the next run from a leaf: one more than the committed runs of its chain.
pub fn next_round(read: &dyn StoreRead, session: SessionKey, leaf: LoopKey) -> StoreResult<u32> {
    let mut round = 1;
    ActiveBlocks::new(read, leaf, ChainView::default()).run_summaries(session, &mut |_, run| {
        round = run.round.saturating_add(1);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(round)
}

/// Returns the runs whose edits the text of a block is made with.
fn edits_behind(read: &dyn StoreRead, leaf: LoopKey, block: &NewBlock) -> StoreResult<Vec<String>> {
    let owner = read.loop_by_key(block.row.loop_key)?;
    let mut walk = ActiveBlocks::new(read, leaf, ChainView::default());
    let own = walk.live_edits(owner.key)?;
    let found = walk.edits_behind(owner.parent, &block.row.core, own.as_ref())?;
    Ok(found.into_iter().collect())
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
    let is_edited = !blocks.is_empty() && write.edit_count(run.session)? > 0;
    let mut generations = Vec::with_capacity(blocks.len());
    for mut block in blocks {
        // An earlier loop may still run: covered messages must not be replaced any more.
        let (loop_key, through) = (block.row.loop_key, block.row.through);
        block.row.generation = write.begin_generation(loop_key, through)?;
        block.row.run = run.key;
        if is_edited {
            block.row.edits = edits_behind(write, run.point.loop_key, &block)?;
        }
        let quoted = block.messages.iter().filter_map(BlockMessage::quoted);
        let of_others = quoted.filter(|(quoted, _)| *quoted != loop_key);
        seal(
            write,
            of_others.map(|(quoted, seq)| (quoted, seq.saturating_add(1))),
        )?;
        generations.push(block.row.generation);
        write.insert_block(&block)?;
    }
    write.close_run(&run, was)?;
    write.touch_session(&(&session).into())?;
    Ok(generations)
}

/// Writes a run with edits at the session's next tick, and leaves it open: the caller closes it with the size of the
/// context that the edits leave.
///
/// # Errors
/// If the store fails.
pub fn begin_edits(
    write: &mut dyn StoreWrite,
    run: &mut RunRow,
    edits: &[EditRow],
) -> StoreResult<()> {
    let mut session = write.session_by_key(run.session)?;
    session.tick += 1;
    run.tick = session.tick;
    run.key = write.insert_run(run)?;
    let ends = edits.iter();
    seal(
        write,
        ends.map(|edit| (edit.loop_key, edit.seqs.1.saturating_add(1))),
    )?;
    write.insert_edits(run.key, edits)?;
    write.touch_session(&(&session).into())
}

/// Makes the messages before these numbers final. An earlier loop may still run: its edited and quoted messages must not
/// be replaced any more.
fn seal(
    write: &mut dyn StoreWrite,
    before: impl IntoIterator<Item = (LoopKey, u32)>,
) -> StoreResult<()> {
    let mut ends: BTreeMap<LoopKey, u32> = BTreeMap::new();
    for (key, seq) in before {
        let end = ends.entry(key).or_default();
        *end = (*end).max(seq);
    }
    for (key, end) in ends {
        let mut owner = write.loop_by_key(key)?;
        if owner.totals.sealed_seq < end {
            owner.totals.sealed_seq = end;
            write.update_totals(&owner, &owner.progress)?;
        }
    }
    Ok(())
}
