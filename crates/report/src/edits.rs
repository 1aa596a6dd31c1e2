//! The edits of runs.

use serde::Serialize;

use super::messages::WrittenMessages;
use loopstore::extend::{EditRow, RunRow, StoreRead, StoreResult};

/// An edit. The page shows edited messages with it, as contexts do.
#[derive(Serialize)]
pub(super) struct IndexedEdit {
    /// The loop, by its position in the index.
    #[serde(rename = "loop")]
    loop_key: Option<usize>,
    from: u32,
    to: u32,
    /// The part of the message; `None` if messages are removed as a whole.
    part: Option<u32>,
    action: &'static str,
    text: Option<String>,
}

/// Returns the edits of a run in order.
pub(super) fn edits_of(
    read: &dyn StoreRead,
    run: &RunRow,
    found: &WrittenMessages,
) -> StoreResult<Vec<IndexedEdit>> {
    if !run.is_edit() {
        return Ok(Vec::new());
    }
    let edit = |row: EditRow| IndexedEdit {
        loop_key: found.place_of(row.loop_key),
        from: row.seqs.0,
        to: row.seqs.1,
        part: row.part.map(|part| part.number),
        action: row.action.as_str(),
        text: row.text,
    };
    Ok(read.edits_of_run(run.key)?.into_iter().map(edit).collect())
}
