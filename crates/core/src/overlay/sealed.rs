//! What the run of a provider's compaction says of it.

use sha2::{Digest as _, Sha256};

use crate::model::{Json, LoopId};
use crate::store::{BlockCore, Disposition, RunRow, StoreRead, StoreResult};

/// Where a compaction within an answer stands, and what it was.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct SealedRecord {
    /// The loop.
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    /// The sequence number of the message.
    pub seq: u32,
    /// SHA-256 of the item's JSON as it came.
    pub sha256: String,
}

/// The field with the digest, in the record of a compaction that stands in its block.
const WHOLE: &str = "loopstore_sealed_sha256";

/// The field with the last message that such a compaction was made of, if more was said since.
const THROUGH: &str = "loopstore_sealed_through";

#[derive(serde::Deserialize)]
struct WholeRecord {
    #[serde(rename = "loopstore_sealed_sha256")]
    sha256: Option<String>,
    #[serde(rename = "loopstore_sealed_through")]
    through: Option<(LoopId, u32)>,
}

impl SealedRecord {
    /// The record of an item that stands in a message of a loop.
    pub fn new(loop_id: &LoopId, seq: u32, item: &Json) -> Self {
        Self {
            loop_id: loop_id.clone(),
            seq,
            sha256: Self::digest(item),
        }
    }

    /// Reads the record of a run; `None` if it tells of something else.
    pub fn of(run: &RunRow) -> Option<Self> {
        serde_json::from_str(run.record.as_deref()?).ok()
    }

    /// Returns the digest of an item.
    pub fn digest(item: &Json) -> String {
        hex::encode(Sha256::digest(item.as_str()))
    }

    /// Whether the item is the one that was recorded.
    pub fn is_of(&self, item: &Json) -> bool {
        self.sha256 == Self::digest(item)
    }

    /// Returns the record of a compaction that came in the place of a whole conversation, or of it through one
    /// message, with the digest of its item.
    pub fn of_whole(record: &Json, item: &Json, through: Option<(&LoopId, u32)>) -> Json {
        let mut own = format!("\"{WHOLE}\":\"{}\"", Self::digest(item));
        if let Some((loop_id, seq)) = through {
            let id = Json::string(loop_id.as_str());
            own.push_str(&format!(",\"{THROUGH}\":[{},{seq}]", id.as_str()));
        }
        let text = record.as_str().trim_end();
        // What its maker recorded stays as it was written.
        let text = match text.strip_suffix('}') {
            Some(fields) if fields.trim_end().ends_with('{') => format!("{fields}{own}}}"),
            Some(fields) => format!("{fields},{own}}}"),
            None => format!("{{{own}}}"),
        };
        Json::parse(&text).unwrap_or_default()
    }

    /// Returns the digest that a run recorded of its item, wherever that stands.
    pub fn recorded(run: &RunRow) -> Option<String> {
        if let Some(record) = Self::of(run) {
            return Some(record.sha256);
        }
        let whole: WholeRecord = serde_json::from_str(run.record.as_deref()?).ok()?;
        whole.sha256
    }

    /// Returns the last message that a run's compaction was made of, if the run names one.
    pub fn through(run: &RunRow) -> Option<(LoopId, u32)> {
        let whole: WholeRecord = serde_json::from_str(run.record.as_deref()?).ok()?;
        whole.through
    }

    /// Returns the record as it stands in the row of its run.
    pub fn to_json(&self) -> Json {
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
pub fn has_originals(read: &dyn StoreRead, block: &BlockCore) -> StoreResult<bool> {
    if block.extends.is_some() {
        return Ok(true);
    }
    let rows = read.coverage(block.key)?;
    Ok(rows
        .iter()
        .any(|row| row.disposition == Disposition::Sealed))
}
