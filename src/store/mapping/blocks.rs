//! Blocks, their messages and coverage.

use super::stored_message;
use crate::store::columns::Columns;
use crate::store::{
    BlockCore, BlockMessage, BlockRow, CoverageRow, Generation, Layout, LoopKey, Point, Section,
    StoreResult,
};

pub(in crate::store) fn block_row(row: &impl Columns) -> StoreResult<BlockRow> {
    Ok(BlockRow {
        core: block_core(row, row.get("loop")?)?,
        tokens_covered: row.get("tokens_covered")?,
        strategy: row.get("strategy")?,
        shaping: row.get("shaping")?,
        created_at: row.get("created_at")?,
        extra: row.get("extra")?,
    })
}

/// Reads what a chain needs of a block, of which the loop is known.
fn block_core(row: &impl Columns, loop_key: LoopKey) -> StoreResult<BlockCore> {
    Ok(BlockCore {
        key: row.get("key")?,
        loop_key,
        generation: row.get("generation")?,
        run: row.get("run")?,
        kind: row.get("kind")?,
        extends: row.get("extends")?,
        layout: Layout {
            first: row.turns("first_start", "first_end")?,
            compacted: row.turns("compacted_start", "compacted_end")?,
            recent: row.turns("recent_start", "recent_end")?,
        },
        through: row.get("through")?,
        size: row.size("tokens_block", "bytes_block", "messages_block")?,
    })
}

/// Reads a block and what tells whether it is in force; its loop is known.
pub(in crate::store) fn generation(
    row: &impl Columns,
    loop_key: LoopKey,
) -> StoreResult<Generation> {
    Ok(Generation {
        block: block_core(row, loop_key)?,
        point: Point {
            loop_key: row.get("run_loop")?,
            turns: row.get("run_turns")?,
        },
        tick: row.get("run_tick")?,
    })
}

pub(in crate::store) fn block_message(row: &impl Columns) -> StoreResult<BlockMessage> {
    Ok(BlockMessage {
        section: match row.get("section")? {
            1_i64 => Section::Compacted,
            _ => Section::Recent,
        },
        replaces: row.get("replaces")?,
        body: match row.get("role")? {
            None => None,
            Some(role) => Some(stored_message(row, role, None)?),
        },
    })
}

/// Returns a section as it is stored.
pub(in crate::store) fn section_number(section: Section) -> i64 {
    match section {
        Section::Compacted => 1,
        Section::Recent => 2,
    }
}

pub(in crate::store) fn coverage_row(row: &impl Columns) -> StoreResult<CoverageRow> {
    let (loop_key, seqs) = (row.get("loop")?, pair(row, "from_seq", "to_seq")?);
    Ok(CoverageRow {
        loop_key,
        seqs,
        turns: pair(row, "from_turn", "to_turn")?,
        disposition: row.get("disposition")?,
    })
}

fn pair(
    row: &impl Columns,
    from: &'static str,
    to: &'static str,
) -> StoreResult<Option<(u32, u32)>> {
    Ok(row.turns(from, to)?.map(|range| (range.first, range.last)))
}
