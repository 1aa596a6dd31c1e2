//! What the run of a provider's compaction says of it.

use sha2::{Digest as _, Sha256};

use crate::model::{Json, LoopId};
use crate::store::{BlockCore, Disposition, RunRow, StoreRead, StoreResult};

/// Where a compaction within an answer stands, and what it was.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct SealedRecord {
    #[serde(rename = "loop")]
    pub(crate) loop_id: LoopId,
    pub(crate) seq: u32,
    /// SHA-256 of the item's JSON as it came.
    pub(crate) sha256: String,
}

impl SealedRecord {
    /// The record of an item that stands in a message of a loop.
    pub(crate) fn new(loop_id: &LoopId, seq: u32, item: &Json) -> Self {
        Self {
            loop_id: loop_id.clone(),
            seq,
            sha256: Self::digest(item),
        }
    }

    /// Reads the record of a run; `None` if it tells of something else.
    pub(crate) fn of(run: &RunRow) -> Option<Self> {
        serde_json::from_str(run.record.as_deref()?).ok()
    }

    /// Returns the digest of an item.
    pub(crate) fn digest(item: &Json) -> String {
        hex::encode(Sha256::digest(item.as_str()))
    }

    /// Whether the item is the one that was recorded.
    pub(crate) fn is_of(&self, item: &Json) -> bool {
        self.sha256 == Self::digest(item)
    }

    pub(crate) fn to_json(&self) -> Json {
        serde_json::to_string(self)
            .ok()
            .and_then(|text| Json::parse(&text).ok())
            .unwrap_or_default()
    }
}

/// Whether originals are stored of what a provider's compaction stands for.
///
/// # Errors
/// What the store returns.
pub(crate) fn has_originals(read: &dyn StoreRead, block: &BlockCore) -> StoreResult<bool> {
    if block.extends.is_some() {
        return Ok(true);
    }
    let rows = read.coverage(block.key)?;
    Ok(rows
        .iter()
        .any(|row| row.disposition == Disposition::Sealed))
}
