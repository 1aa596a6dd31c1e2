//! The metadata of a loop, as its source recorded it.
//!
//! Nearly all fields of nearly all loops are empty, and a session has many loops. So a document that has all
//! its fields is stored without the empty ones, and with a field that marks it. A document that lacked a
//! field from the beginning is stored unchanged, and lacks the field when it is read.

use crate::model::{Json, LoopRecord};
use crate::store::codec::{from_json, to_json};
use crate::store::error::{StoreError, StoreResult};

/// The metadata of a loop, as its source recorded it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopMeta {
    /// The interchange form without messages, turns and events; [`LoopMeta::record`] reads it.
    pub meta: String,
    /// Recorded turns and events.
    pub history: Option<String>,
}

/// The field that marks a shortened document: `true`, or a list with the document's own value of this name.
const BRIEF: &str = "brief";

/// The fields that are left out if they are empty.
const LEFT_OUT: [&str; 14] = [
    "session_id",
    "agent_id",
    "parent_loop_id",
    "continuation_kind",
    "started_at",
    "ended_at",
    "rejection",
    "config",
    "messages",
    "turns",
    "events",
    "children_loop_ids",
    "child_loop_refs",
    "parallel_group",
];

impl LoopMeta {
    /// Encodes the metadata of a record.
    ///
    /// # Errors
    /// If the record cannot be written as JSON.
    pub fn of(record: &LoopRecord) -> StoreResult<Self> {
        let mut stored = record.clone();
        let extra = &mut stored.extra;
        let note = match extra.get(BRIEF) {
            Some(own) => Some(Json::of(&[own])),
            None if extra.lacks_fields() => None,
            None => {
                extra.set_absent(&LEFT_OUT);
                Some(Json::of(&true))
            }
        };
        if let Some(note) = note {
            let invalid = |error: serde_json::Error| StoreError::Invalid(error.to_string());
            extra.insert(BRIEF, note.map_err(invalid)?);
        }
        Ok(Self {
            meta: to_json(&stored)?,
            history: None,
        })
    }

    /// Decodes the record.
    ///
    /// # Errors
    /// If the document is damaged.
    pub fn record(&self) -> StoreResult<LoopRecord> {
        let mut record: LoopRecord = from_json(&self.meta)?;
        let note = record.extra.get(BRIEF).map(Json::read::<Vec<Json>>);
        match note {
            None => {}
            Some(Err(_)) => {
                record.extra.remove(BRIEF);
                record.extra.set_absent(&[]);
            }
            Some(Ok(own)) => {
                let own = own.into_iter().next().unwrap_or_default();
                record.extra.insert(BRIEF, own);
            }
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LoopId;

    fn stored(document: &str) -> String {
        let record: LoopRecord = serde_json::from_str(document).unwrap();
        let meta = LoopMeta::of(&record).unwrap();
        assert_eq!(meta.record().unwrap(), record);
        assert_eq!(serde_json::to_string(&record).unwrap(), document);
        meta.meta
    }

    #[test]
    fn a_loop_that_says_little_takes_little() {
        let record = LoopRecord::new(LoopId::new("loop-2").unwrap(), None);
        let whole = serde_json::to_string(&record).unwrap();
        let brief = stored(&whole);
        assert!(brief.len() < 130 && brief.contains("loop-2"), "{brief}");
        assert!(!brief.contains("null") && !brief.contains("[]"), "{brief}");
    }

    #[test]
    fn every_document_comes_back_as_it_was() {
        let record = LoopRecord::new(LoopId::new("loop-2").unwrap(), None);
        let whole = serde_json::to_string(&record).unwrap();
        let with = |end: &str| format!("{},{end}}}", &whole[..whole.len() - 1]);
        for document in [
            r#"{"loop_id":"a"}"#.to_owned(),
            r#"{"loop_id":"a","config":null,"events":[],"brief":true}"#.to_owned(),
            whole.replace(r#""config":null"#, r#""config":{"model":null,"tools":[]}"#),
            whole.replace(r#","rejection":null"#, ""),
            with(r#""brief":true"#),
            with(r#""brief":[true],"more":null"#),
            with(r#""brief":null,"parent_turn":null"#),
        ] {
            stored(&document);
        }
    }
}
