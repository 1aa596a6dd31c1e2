//! Edits of messages.

use crate::store::columns::Columns;
use crate::store::digest;
use crate::store::values::{BoundValue, values};
use crate::store::{EditRow, EditedPart, PackedRun, Point, RunEdit, Size, StoreResult};

/// Reads an edit from its columns.
pub fn edit_row(row: &impl Columns) -> StoreResult<EditRow> {
    let (loop_key, from, to) = (row.get("loop")?, row.get("from_seq")?, row.get("to_seq")?);
    let part: (Option<u32>, Option<u32>) = (row.get("part")?, row.get("parts")?);
    let action = row.get("action")?;
    let text = row.content("text")?.map(|text| text.into_owned());
    let before = row.size("tokens_before", "bytes_before", "messages")?;
    Ok(EditRow {
        loop_key,
        seqs: (from, to),
        part: part
            .0
            .zip(part.1)
            .map(|(number, of)| EditedPart { number, of }),
        action,
        text,
        before,
        after: Size {
            tokens: row.get("tokens_after")?,
            bytes: row.get("bytes_after")?,
            messages: 0,
        },
        salt: row.get("salt")?,
    })
}

/// Reads an edit with the position and the tick of its run.
pub fn run_edit(row: &impl Columns) -> StoreResult<RunEdit> {
    Ok(RunEdit {
        run: row.get("run")?,
        run_id: row.get("run_id")?,
        point: Point {
            loop_key: row.get("run_loop")?,
            turns: row.get("run_turns")?,
        },
        tick: row.get("run_tick")?,
        ordinal: row.number("ordinal")?,
        edit: edit_row(row)?,
    })
}

/// Reads the run of packed edits from its columns.
pub fn packed_run(row: &impl Columns) -> StoreResult<PackedRun> {
    Ok(PackedRun {
        run: row.get("key")?,
        run_id: row.get("run_id")?,
        point: Point {
            loop_key: row.get("loop")?,
            turns: row.get("turns")?,
        },
    })
}

/// The columns of the values of an edit; the text comes last.
pub const EDIT_COLUMNS: &str = "loop, from_seq, to_seq, part, parts, action, tokens_before,
    bytes_before, messages, tokens_after, bytes_after, salt, digest, text";

/// Returns the values of an edit but for its text.
pub fn edit_values(row: &EditRow) -> StoreResult<Vec<BoundValue<'_>>> {
    let (from, to) = (&row.seqs.0, &row.seqs.1);
    let number = |number: Option<u32>| BoundValue::Integer(number.map(i64::from));
    let mut values = values![&row.loop_key, from, to];
    values.push(number(row.part.map(|part| part.number)));
    values.push(number(row.part.map(|part| part.of)));
    values.extend(values![
        row.action.as_str(),
        &row.before.tokens,
        &row.before.bytes,
        &row.before.messages,
        &row.after.tokens,
        &row.after.bytes,
        &row.salt,
    ]);
    values.push(BoundValue::Digest(digest::edit(row).into()));
    Ok(values)
}
