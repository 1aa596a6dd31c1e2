//! The structs by which records are parsed; every field is left unparsed until it is needed.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The fields of a record that the tree needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordFields<'a> {
    #[serde(borrow, default)]
    pub(super) r#type: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) subtype: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) uuid: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) parent_uuid: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) logical_parent_uuid: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) session_id: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) agent_id: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) timestamp: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) cwd: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) is_sidechain: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) is_meta: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) is_compact_summary: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) is_visible_in_transcript_only: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) message: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) attachment: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) summary: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) leaf_uuid: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) custom_title: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) ai_title: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) compact_metadata: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use_result: RawField<'a>,
    #[serde(borrow, default, rename = "parentToolUseID")]
    pub(super) parent_tool_use_id: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) data: RawField<'a>,
}

/// `message`.
#[derive(Deserialize)]
pub(super) struct MessageBody<'a> {
    #[serde(borrow, default)]
    pub(super) id: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) model: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) content: RawField<'a>,
}

/// One block of a message.
#[derive(Deserialize)]
pub(super) struct ContentBlock<'a> {
    #[serde(borrow, default)]
    pub(super) r#type: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) text: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) id: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) name: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) input: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use_id: RawField<'a>,
}

/// `compactMetadata`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow, default)]
    pub(super) preserved_segment: RawField<'a>,
    #[serde(borrow, default)]
    pub(super) preserved_messages: RawField<'a>,
}

/// A value that is not parsed yet; an absent value reads as `None`.
#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct RawField<'a>(#[serde(borrow)] Option<&'a RawValue>);

impl<'a> RawField<'a> {
    /// Reads the value; `None` if it has another shape.
    pub(super) fn read<T: Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.0?.get()).ok()
    }

    /// Reads a list; `None` if the value is not a list. A string is not parsed at all: the error would contain all of
    /// it.
    pub(super) fn list(self) -> Option<Vec<Self>> {
        self.read_if('[')
    }

    fn read_if<T: Deserialize<'a>>(self, begins: char) -> Option<T> {
        self.0.filter(|raw| raw.get().starts_with(begins))?;
        self.read()
    }

    /// Reads a string that is not empty.
    pub(super) fn text(self) -> Option<String> {
        self.read_if::<String>('"').filter(|text| !text.is_empty())
    }

    /// True if the value is `true`.
    pub(super) fn is_true(self) -> bool {
        self.read() == Some(true)
    }

    /// True if the field is present and not `null`.
    pub(super) fn is_set(self) -> bool {
        self.0.is_some()
    }

    /// True if the JSON contains `word`.
    pub(super) fn contains(self, word: &str) -> bool {
        self.0.is_some_and(|raw| raw.get().contains(word))
    }

    /// Reads one field of an object.
    pub(super) fn field(self, name: &str) -> Option<String> {
        let mut fields: std::collections::BTreeMap<Cow<'a, str>, RawField<'a>> = self.read()?;
        fields.remove(name)?.text()
    }

    /// Returns the JSON as it is in the record.
    pub(super) fn json(self) -> Option<&'a str> {
        self.0.map(RawValue::get)
    }
}
