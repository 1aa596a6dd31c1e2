//! The packed forms of the records.

use std::collections::BTreeMap;

use loopstore::Json;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::names;
use crate::packed::{OpenValues, Slot, filled, pack, unpack};
use crate::record::{CheckpointRecord, MessagePosition, Segment, StoredValue, WritesRecord};

/// A record that is stored as an extension.
pub(crate) trait RecordForm: Sized {
    /// Writes the record.
    fn to_json(&self) -> Result<Json>;

    /// Reads the record; the error is a text.
    fn from_json(data: &Json) -> Result<Self, String>;

    /// Sets the fields that only the name of the append contains.
    fn named(self, name: &str) -> Self {
        let _ = name;
        self
    }
}

/// Namespace, parent, checkpoint, versions, metadata, values, places of other values, messages.
#[derive(Serialize, Deserialize)]
struct CheckpointForm(
    String,
    Option<String>,
    Slot,
    BTreeMap<String, Json>,
    BTreeMap<String, Slot>,
    BTreeMap<String, ValueForm>,
    BTreeMap<String, MessagePosition>,
    Vec<Segment>,
);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ValueForm {
    Data(Slot),
    List(Vec<Segment>),
}

impl RecordForm for CheckpointRecord {
    fn to_json(&self) -> Result<Json> {
        let mut open = OpenValues::default();
        let own = self.checkpoint.clone();
        // Only the tasks of an older version contain content of a program.
        let checkpoint = match own.as_str() {
            text if text.starts_with("{\"value\":{") && !text.contains("\"pending_sends\"") => {
                Some((own,))
            }
            _ => open.add_open(own),
        };
        let metadata = self.metadata.iter().map(|(name, value)| {
            let value = value.clone();
            let is_own = match name.as_str() {
                "step" => value.read::<i64>().is_ok(),
                "parents" | "counters_since_delta_snapshot" => true,
                _ => false,
            };
            let slot = match is_own {
                true => Some((value,)),
                false => open.add(value),
            };
            (name.clone(), slot)
        });
        let metadata = metadata.collect();
        let values = self.values.iter().map(|(channel, value)| {
            let form = match value {
                StoredValue::Data(data) => ValueForm::Data(open.add(data.clone())),
                StoredValue::List(segments) => ValueForm::List(segments.clone()),
            };
            (channel.clone(), form)
        });
        let form = CheckpointForm(
            self.ns.clone(),
            self.parent.clone(),
            checkpoint,
            self.versions.clone(),
            metadata,
            values.collect(),
            self.at.clone(),
            self.said.clone(),
        );
        pack(&form, open)
    }

    fn from_json(data: &Json) -> Result<Self, String> {
        let (form, mut open) = unpack(data)?;
        let CheckpointForm(ns, parent, checkpoint, versions, metadata, values, at, said) = form;
        let checkpoint = filled(checkpoint, &mut open)?;
        let metadata = metadata
            .into_iter()
            .map(|(name, slot)| Ok((name, filled(slot, &mut open)?)))
            .collect::<Result<_, String>>()?;
        let values = values
            .into_iter()
            .map(|(channel, form)| {
                let value = match form {
                    ValueForm::Data(slot) => StoredValue::Data(filled(slot, &mut open)?),
                    ValueForm::List(segments) => StoredValue::List(segments),
                };
                Ok((channel, value))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self {
            ns,
            id: String::new(),
            parent,
            checkpoint,
            versions,
            metadata,
            values,
            at,
            said,
        })
    }

    fn named(self, name: &str) -> Self {
        let id = names::id(name);
        Self { id, ..self }
    }
}

/// Namespace, checkpoint, task, path, writes, messages.
#[derive(Serialize, Deserialize)]
struct WritesForm(
    String,
    String,
    String,
    String,
    Vec<(i64, String, Slot)>,
    Vec<Segment>,
);

impl RecordForm for WritesRecord {
    fn to_json(&self) -> Result<Json> {
        let mut open = OpenValues::default();
        let writes = self
            .writes
            .iter()
            .map(|(index, channel, value)| (*index, channel.clone(), open.add(value.clone())));
        let form = WritesForm(
            self.ns.clone(),
            self.id.clone(),
            self.task.clone(),
            self.path.clone(),
            writes.collect(),
            self.said.clone(),
        );
        pack(&form, open)
    }

    fn from_json(data: &Json) -> Result<Self, String> {
        let (form, mut open) = unpack(data)?;
        let WritesForm(ns, id, task, path, writes, said) = form;
        let writes = writes
            .into_iter()
            .map(|(index, channel, slot)| Ok((index, channel, filled(slot, &mut open)?)))
            .collect::<Result<_, String>>()?;
        Ok(Self {
            ns,
            id,
            task,
            path,
            writes,
            said,
        })
    }
}
