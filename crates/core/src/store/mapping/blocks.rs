//! Blocks, their messages and coverage.

use super::stored_message;
use crate::model::Author;
use crate::store::codec::{role_number, to_json};
use crate::store::columns::Columns;
use crate::store::digest;
use crate::store::values::{BoundValue, values};
use crate::store::{
    BlockCore, BlockMessage, BlockRow, CoverageRow, Generation, Layout, LoopKey, NewBlock, Point,
    Section, StoreResult,
};

/// Reads a block from its columns.
pub fn block_row(row: &impl Columns) -> StoreResult<BlockRow> {
    Ok(BlockRow {
        core: block_core(row, row.get("loop")?)?,
        tokens_covered: row.get("tokens_covered")?,
        strategy: row.get("strategy")?,
        shaping: row.get("shaping")?,
        created_at: row.get("created_at")?,
        extra: row.get("extra")?,
    })
}

/// Reads the core of a block whose loop is known.
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
        edits: row.json("edits")?,
    })
}

/// Reads a block with the position and the tick of its run; the loop is known.
pub fn generation(row: &impl Columns, loop_key: LoopKey) -> StoreResult<Generation> {
    Ok(Generation {
        block: block_core(row, loop_key)?,
        point: Point {
            loop_key: row.get("run_loop")?,
            turns: row.get("run_turns")?,
        },
        tick: row.get("run_tick")?,
    })
}

/// Reads a message of a block from its columns.
pub fn block_message(row: &impl Columns) -> StoreResult<BlockMessage> {
    Ok(BlockMessage {
        section: match row.get("section")? {
            1_i64 => Section::Compacted,
            _ => Section::Recent,
        },
        replaces: row.get("replaces")?,
        quotes: row.get("quotes")?,
        body: match row.get("role")? {
            None => None,
            Some(role) => Some(stored_message(row, role, Author::of_role(role), None)?),
        },
    })
}

fn section_number(section: Section) -> i64 {
    match section {
        Section::Compacted => 1,
        Section::Recent => 2,
    }
}

/// Reads a row of the coverage of a block from its columns.
pub fn coverage_row(row: &impl Columns) -> StoreResult<CoverageRow> {
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

/// The columns of the values of a block.
pub const BLOCK_COLUMNS: &str = "loop, generation, run, kind, extends, first_start,
    first_end, compacted_start, compacted_end, recent_start, recent_end, through, tokens_covered,
    tokens_block, bytes_block, messages_block, edits, strategy, shaping, created_at, extra, digest";

/// Returns the values of a block, in the order of [`BLOCK_COLUMNS`].
pub fn block_values(block: &NewBlock) -> StoreResult<Vec<BoundValue<'_>>> {
    let (row, layout) = (&block.row, &block.row.layout);
    let mut values = values![
        &row.loop_key,
        &row.generation,
        &row.run,
        &row.kind,
        &row.extends
    ];
    for range in [layout.first, layout.compacted, layout.recent] {
        let end = |end: Option<u32>| BoundValue::Integer(end.map(i64::from));
        values.push(end(range.map(|turns| turns.first)));
        values.push(end(range.map(|turns| turns.last)));
    }
    values.extend(values![
        &row.through,
        &row.tokens_covered,
        &row.size.tokens,
        &row.size.bytes,
        &row.size.messages,
    ]);
    values.push(match row.edits.is_empty() {
        true => BoundValue::Text(None),
        false => BoundValue::Json(to_json(&row.edits)?),
    });
    values.extend(values![
        &row.strategy,
        &row.shaping,
        &row.created_at,
        &row.extra,
    ]);
    let digest = digest::block(row, &block.messages, &block.coverage);
    values.push(BoundValue::Digest(digest.into()));
    Ok(values)
}

/// The columns of a message of a block; the text comes last.
pub const BLOCK_MESSAGE_COLUMNS: &str =
    "section, replaces, quotes, role, tokens, bytes, body_block, salt, digest, head, body";

/// Returns the values of a message of a block but for its text.
pub fn block_message_values(message: &BlockMessage) -> StoreResult<Vec<BoundValue<'_>>> {
    let section = BoundValue::Integer(Some(section_number(message.section)));
    let mut values = vec![section];
    values.extend(values![&message.replaces, &message.quotes]);
    match &message.body {
        Some(body) => {
            values.push(BoundValue::Integer(Some(role_number(body.role).into())));
            values.extend(values![
                &body.tokens,
                &body.bytes,
                &body.text_block,
                &body.salt,
                &body.digest,
                &body.head,
            ]);
        }
        None => values.extend([
            BoundValue::Integer(None),
            BoundValue::Integer(Some(0)),
            BoundValue::Integer(Some(0)),
            BoundValue::Integer(None),
            BoundValue::Bytes(None),
            BoundValue::Bytes(Some(&[0; 32])),
            BoundValue::Text(None),
        ]),
    }
    Ok(values)
}
