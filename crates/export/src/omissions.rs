//! The completeness report of an export: what the form has no place for, by kind, with counts.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// The kind of content that a form cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OmissionKind {
    /// The provider's signature of a thinking block.
    ThinkingSignature,
    /// An item that only its provider can read.
    SealedItem,
    /// An image whose type the form does not have, or whose bytes are not in the message.
    Image,
    /// A block of an unknown type.
    UnknownBlock,
    /// Fields of a block that loopstore does not interpret.
    BlockFields,
    /// Fields of a message: the provider, the stop reason, the author, unknown fields.
    MessageFields,
    /// Arguments of a call that are not an object.
    Arguments,
    /// A result that does not follow the answer with its call.
    SeparateResult,
    /// A record that no model sees.
    Record,
    /// A message whose content was removed.
    RemovedMessage,
    /// The status, the times and the metadata of a loop.
    Loop,
    /// A loop, or the end of one, that is not on the chain of the current loop.
    Branch,
    /// A run of compaction with its blocks and undos.
    Run,
    /// An edit of messages.
    Edit,
    /// A pin of a message.
    Pin,
    /// An event that hid or showed the session.
    Hide,
    /// The manifest of a context.
    Manifest,
    /// A sub-agent whose session is not stored, or is too deeply nested, or is a part of the document already.
    Subagent,
    /// A sub-agent whose call is not in the document.
    SubagentCall,
    /// A version of an agent that the store does not have, although the form requires one.
    AgentVersion,
}

impl OmissionKind {
    /// Returns a description for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::ThinkingSignature => "signatures of thinking",
            Self::SealedItem => "items that only their provider can read",
            Self::Image => "images of a type that the format does not have, or without their bytes",
            Self::UnknownBlock => "blocks of unknown types",
            Self::BlockFields => "blocks with fields that the format does not have",
            Self::MessageFields => "messages with fields that the format does not have",
            Self::Arguments => "arguments of calls that are not objects",
            Self::SeparateResult => "results that do not follow the answer with their call",
            Self::Record => "records that no model sees",
            Self::RemovedMessage => "messages whose content was removed",
            Self::Loop => "loops with their status, times and metadata",
            Self::Branch => "loops that are not on the chain of the current loop",
            Self::Run => "runs of compaction with their blocks and undos",
            Self::Edit => "edits of messages",
            Self::Pin => "pins",
            Self::Hide => "events that hid or showed the session",
            Self::Manifest => "manifests of contexts",
            Self::Subagent => "sub-agents that are not embedded",
            Self::SubagentCall => "sub-agents whose call is not in the document",
            Self::AgentVersion => "versions of agents",
        }
    }

    /// True if a whole session is restored from the document with it.
    fn is_ever_kept(self) -> bool {
        !matches!(self, Self::Subagent | Self::AgentVersion)
    }
}

/// Content of one kind that the form cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// The kind.
    pub kind: OmissionKind,
    /// The number of occurrences.
    pub count: u64,
    /// True if the document contains it in a field for extensions, from which an import restores it.
    pub kept: bool,
}

/// Writes the kind, the count, and the place of the content.
impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.kept {
            true => "only in extra.loopstore",
            false => "not in the document",
        };
        write!(f, "{}: {}, {place}", self.kind.label(), self.count)
    }
}

/// Counts by kind.
#[derive(Debug, Default)]
pub(crate) struct OmissionCounts(BTreeMap<OmissionKind, u64>);

impl OmissionCounts {
    /// Counts one occurrence.
    pub(crate) fn add(&mut self, kind: OmissionKind) {
        self.add_many(kind, 1);
    }

    /// Counts several occurrences.
    pub(crate) fn add_many(&mut self, kind: OmissionKind, count: u64) {
        if count > 0 {
            *self.0.entry(kind).or_default() += count;
        }
    }

    /// Returns the report; `has_rows` is true if a session is restored from the document.
    pub(crate) fn report(&self, has_rows: bool) -> Vec<Omission> {
        let omission = |(kind, count): (&OmissionKind, &u64)| Omission {
            kind: *kind,
            count: *count,
            kept: has_rows && kind.is_ever_kept(),
        };
        self.0.iter().map(omission).collect()
    }
}
