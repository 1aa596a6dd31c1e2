//! The record that the run of a provider's compaction keeps of its item.

use sha2::{Digest as _, Sha256};

use crate::model::{Json, LoopId};
use crate::store::{BlockCore, Disposition, RunRow, StoreRead, StoreResult};

/// The position of a provider's compaction within an answer, and the digest of its item.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct SealedRecord {
    /// The loop.
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    /// The sequence number of the message.
    pub seq: u32,
    /// SHA-256 of the item's JSON as received.
    pub sha256: String,
}

/// The field with the digest, in the record of a compaction whose item is in its block.
const WHOLE: &str = "loopstore_sealed_sha256";

/// The field with the last message that such a compaction was made of, if later messages exist.
const THROUGH: &str = "loopstore_sealed_through";

#[derive(serde::Deserialize)]
struct WholeRecord {
    #[serde(rename = "loopstore_sealed_sha256")]
    sha256: Option<String>,
    #[serde(rename = "loopstore_sealed_through")]
    through: Option<(LoopId, u32)>,
}

impl SealedRecord {
    /// Returns the record of an item in a message of a loop.
    pub fn new(loop_id: &LoopId, seq: u32, item: &Json) -> Self {
        Self {
            loop_id: loop_id.clone(),
            seq,
            sha256: Self::digest(item),
        }
    }

    /// Reads the record of a run; `None` if the record has another form.
    pub fn of(run: &RunRow) -> Option<Self> {
        serde_json::from_str(run.record.as_deref()?).ok()
    }

    /// Returns the digest of an item.
    pub fn digest(item: &Json) -> String {
        hex::encode(Sha256::digest(item.as_str()))
    }

    /// True if the item is the recorded one.
    pub fn is_of(&self, item: &Json) -> bool {
        self.sha256 == Self::digest(item)
    }

    /// Returns the record of a compaction that replaces a whole conversation, or its messages through one
    /// message, with the digest of its item.
    pub fn of_whole(record: &Json, item: &Json, through: Option<(&LoopId, u32)>) -> Json {
        let mut own = format!("\"{WHOLE}\":\"{}\"", Self::digest(item));
        if let Some((loop_id, seq)) = through {
            let id = Json::string(loop_id.as_str());
            own.push_str(&format!(",\"{THROUGH}\":[{},{seq}]", id.as_str()));
        }
        let text = record.as_str().trim_end();
        // The fields of the maker's record stay byte for byte.
        let text = match text.strip_suffix('}') {
            Some(fields) if fields.trim_end().ends_with('{') => format!("{fields}{own}}}"),
            Some(fields) => format!("{fields},{own}}}"),
            None => format!("{{{own}}}"),
        };
        Json::parse(&text).unwrap_or_default()
    }

    /// Returns the digest of the item that a run recorded, for an item in a message or in the run's block.
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

    /// Returns the record in the form of the run's row.
    pub fn to_json(&self) -> Json {
        serde_json::to_string(self)
            .ok()
            .and_then(|text| Json::parse(&text).ok())
            .unwrap_or_default()
    }
}

/// True if the originals that a provider's compaction replaces are stored.
///
/// # Errors
/// If the store fails.
pub fn has_originals(read: &dyn StoreRead, block: &BlockCore) -> StoreResult<bool> {
    if block.extends.is_some() {
        return Ok(true);
    }
    let rows = read.coverage(block.key)?;
    Ok(rows
        .iter()
        .any(|row| row.disposition == Disposition::Sealed))
}
