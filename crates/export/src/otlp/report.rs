//! The result of an OTLP export.

use std::collections::BTreeMap;

use serde::Serialize;

/// The numbers of an OTLP export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OtlpReport {
    /// The number of spans.
    pub spans: u64,
    /// The number of events: compactions, edits, undos and redos, and input without an answer.
    pub events: u64,
    /// The values that the session does not record or traces cannot represent, with the number of cases.
    pub gaps: BTreeMap<OtlpGap, u64>,
}

/// A value that was guessed or left out of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OtlpGap {
    /// A message has no time; the time of the message before it was used.
    TimeMissing,
    /// A message is older than its input; the span has no duration.
    TimeReversed,
    /// An answer names no provider; it was guessed from the name of the model, or is `unknown`.
    ProviderMissing,
    /// An answer names no model.
    ModelMissing,
    /// An answer has no usage.
    UsageMissing,
    /// A tool call has no result; the span has no duration.
    ResultMissing,
    /// A result has no call; the span has no duration and no arguments.
    CallMissing,
    /// Messages have no answer; they are in an event.
    InputUnanswered,
    /// A note that no model saw was left out.
    NoteOmitted,
    /// Content that only its provider can read was left out.
    OpaqueOmitted,
    /// The content of a message was removed from the store.
    MessageRemoved,
}

impl OtlpGap {
    /// Returns the word in JSON and in the attribute `loopstore.gap.WORD`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TimeMissing => "time_missing",
            Self::TimeReversed => "time_reversed",
            Self::ProviderMissing => "provider_missing",
            Self::ModelMissing => "model_missing",
            Self::UsageMissing => "usage_missing",
            Self::ResultMissing => "result_missing",
            Self::CallMissing => "call_missing",
            Self::InputUnanswered => "input_unanswered",
            Self::NoteOmitted => "note_omitted",
            Self::OpaqueOmitted => "opaque_omitted",
            Self::MessageRemoved => "message_removed",
        }
    }

    /// Returns a description for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::TimeMissing => "messages without a time: the time before was used",
            Self::TimeReversed => "answers or results older than their input: no duration",
            Self::ProviderMissing => "answers without a provider: guessed from the model",
            Self::ModelMissing => "answers without a model",
            Self::UsageMissing => "answers without usage",
            Self::ResultMissing => "tool calls without a result: no duration",
            Self::CallMissing => "results without a tool call: no duration",
            Self::InputUnanswered => "messages without an answer: written as events",
            Self::NoteOmitted => "notes that no model saw: left out",
            Self::OpaqueOmitted => "items that only their provider can read: left out",
            Self::MessageRemoved => "messages whose content was removed from the store",
        }
    }
}

impl OtlpReport {
    pub(super) fn add(&mut self, gap: OtlpGap) {
        *self.gaps.entry(gap).or_default() += 1;
    }

    pub(super) fn merge(&mut self, gaps: LoopGaps) {
        for (gap, count) in gaps.0 {
            *self.gaps.entry(gap).or_default() += count;
        }
    }
}

/// The gaps of one loop.
#[derive(Default)]
pub(super) struct LoopGaps(BTreeMap<OtlpGap, u64>);

impl LoopGaps {
    pub(super) fn add(&mut self, gap: OtlpGap) {
        self.add_many(gap, 1);
    }

    pub(super) fn add_many(&mut self, gap: OtlpGap, count: u64) {
        if count > 0 {
            *self.0.entry(gap).or_default() += count;
        }
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (OtlpGap, u64)> {
        self.0.iter().map(|(gap, count)| (*gap, *count))
    }
}
