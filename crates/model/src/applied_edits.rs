//! Reports of providers and agents about content that they cleared from a context.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::content::Tagged;
use super::json::{Extra, Int, Json, json_object};
use super::message::{AgentMessage, Message};

json_object! {
    /// The report of a provider or an agent about content that it cleared before the model read the context.
    ///
    /// An answer carries the report of its own call in the field `appliedEdits`. The field says how much was cleared,
    /// and only if the reporter names calls, which. It is part of the record and is never sent to a provider.
    ///
    /// ```
    /// use loopstore_model::{AgentMessage, AppliedEdit, AppliedEdits, ClearedToolUses, Message};
    ///
    /// let cleared = ClearedToolUses::new(8).with_tokens(50_000);
    /// let report = AppliedEdits::new("provider:anthropic", vec![AppliedEdit::ClearedToolUses(cleared)]);
    /// let mut answer = AgentMessage::from(Message::assistant("It will."));
    /// answer.set_applied_edits(&report)?;
    /// assert_eq!(answer.applied_edits(), Some(report));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub struct AppliedEdits {
        /// The strategy of the run that records the edits: `provider:anthropic`, `claude-code` or the name of another
        /// agent.
        must strategy: String = "strategy",
        /// The edits in the order of the report.
        list edits: Vec<AppliedEdit> = "edits",
        /// The setting of the request, as the provider defines it, if it is known.
        maybe setting: Json = "setting",
    }
}

json_object! {
    /// Tool uses whose results were cleared.
    pub struct ClearedToolUses {
        /// The number of tool uses.
        must count: Int = "count",
        /// The number of tokens that were cleared.
        maybe tokens: Int = "tokens",
        /// The ids of the calls, if the reporter names them.
        maybe tool_call_ids: Vec<String> = "toolCallIds",
    }
}

json_object! {
    /// Turns of the model whose thinking was cleared.
    pub struct ClearedThinking {
        /// The number of turns.
        must turns: Int = "turns",
        /// The number of tokens that were cleared.
        maybe tokens: Int = "tokens",
    }
}

/// One edit of a report. An edit of an unknown type is kept unchanged.
#[derive(Clone, Debug, PartialEq)]
pub enum AppliedEdit {
    /// `"type":"clearedToolUses"`.
    ClearedToolUses(ClearedToolUses),
    /// `"type":"clearedThinking"`.
    ClearedThinking(ClearedThinking),
    /// Any other type: the whole edit.
    Other(Json),
}

impl AppliedEdits {
    /// Returns the report of edits for a run of this strategy.
    pub fn new(strategy: impl Into<String>, edits: Vec<AppliedEdit>) -> Self {
        Self {
            strategy: strategy.into(),
            edits,
            setting: None,
            extra: Extra::default(),
        }
    }

    /// Sets the setting of the request, for instance the field `context_management` of a request to Anthropic.
    #[must_use]
    pub fn with_setting(mut self, setting: Json) -> Self {
        self.setting = Some(setting);
        self
    }

    /// True if nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.extra.is_empty()
    }
}

impl ClearedToolUses {
    /// Returns an edit that cleared `count` tool uses.
    pub fn new(count: u32) -> Self {
        Self {
            count: i64::from(count).into(),
            tokens: None,
            tool_call_ids: None,
            extra: Extra::default(),
        }
    }

    /// Returns an edit that cleared the results of these calls.
    pub fn of_calls(ids: Vec<String>) -> Self {
        Self {
            count: (ids.len() as i64).into(),
            tokens: None,
            tool_call_ids: Some(ids),
            extra: Extra::default(),
        }
    }

    /// Sets the number of tokens that were cleared.
    #[must_use]
    pub fn with_tokens(mut self, tokens: u32) -> Self {
        self.tokens = Some(i64::from(tokens).into());
        self
    }
}

impl ClearedThinking {
    /// Returns an edit that cleared the thinking of `turns` turns.
    pub fn new(turns: u32) -> Self {
        Self {
            turns: i64::from(turns).into(),
            tokens: None,
            extra: Extra::default(),
        }
    }

    /// Sets the number of tokens that were cleared.
    #[must_use]
    pub fn with_tokens(mut self, tokens: u32) -> Self {
        self.tokens = Some(i64::from(tokens).into());
        self
    }
}

impl Serialize for AppliedEdit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::ClearedToolUses(edit) => Tagged("clearedToolUses", edit).serialize(serializer),
            Self::ClearedThinking(edit) => Tagged("clearedThinking", edit).serialize(serializer),
            Self::Other(edit) => edit.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for AppliedEdit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer).map(Self::from_json)
    }
}

impl AppliedEdit {
    /// Reads an edit. An edit of a known type with wrong fields is kept unchanged.
    fn from_json(raw: Json) -> Self {
        let edit = match raw.type_name().as_deref() {
            Some("clearedToolUses") => raw.read().map(Self::ClearedToolUses),
            Some("clearedThinking") => raw.read().map(Self::ClearedThinking),
            _ => return Self::Other(raw),
        };
        let Ok(mut edit) = edit else {
            return Self::Other(raw);
        };
        match &mut edit {
            Self::ClearedToolUses(edit) => edit.extra.remove("type"),
            Self::ClearedThinking(edit) => edit.extra.remove("type"),
            Self::Other(_) => None,
        };
        edit
    }
}

/// The field of an answer with the report of its call.
const APPLIED_EDITS: &str = "appliedEdits";

impl AgentMessage {
    /// Returns the report of the edits that were applied to the context of an answer; `None` if the message is no
    /// answer or has no report that can be read.
    pub fn applied_edits(&self) -> Option<AppliedEdits> {
        let Self::Llm(message) = self else {
            return None;
        };
        let is_answer = matches!(message.message, Message::Assistant(_));
        let report = message.extra.get(APPLIED_EDITS).filter(|_| is_answer)?;
        report.read().ok()
    }

    /// True if the message is an answer with a report that cannot be read.
    #[doc(hidden)]
    pub fn has_unreadable_edits(&self) -> bool {
        let Self::Llm(message) = self else {
            return false;
        };
        if !matches!(message.message, Message::Assistant(_)) {
            return false;
        }
        // The field of an answer of Anthropic, which stays among the unknown fields if it is no report.
        let source = message.extra.get("source");
        let source = source.and_then(|source| source.read::<UnreadReport>().ok());
        let is_unread = source.and_then(|source| source.context_management);
        let own = message.extra.get(APPLIED_EDITS);
        is_unread.is_some_and(|value| !value.is_null())
            || own.is_some_and(|own| own.read::<AppliedEdits>().is_err())
    }

    /// Sets the report of the edits that were applied to the context of the message, an answer.
    ///
    /// # Errors
    /// If an edit of an unknown type nests too deep for the field ([`MAX_JSON_DEPTH`](crate::MAX_JSON_DEPTH)).
    pub fn set_applied_edits(&mut self, report: &AppliedEdits) -> serde_json::Result<()> {
        let report = Json::of(report)?;
        self.extra_mut().insert(APPLIED_EDITS, report);
        Ok(())
    }
}

/// The unknown fields of an answer, as far as they concern a report.
#[derive(Deserialize)]
struct UnreadReport {
    context_management: Option<Json>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with a report in the interchange form.
    fn answer(report: &str) -> String {
        format!(
            r#"{{"role":"assistant","content":[],"model":"m","responseId":"r","appliedEdits":{report}}}"#
        )
    }

    #[test]
    fn a_report_is_read_and_written_as_it_was() {
        let report = concat!(
            r#"{"strategy":"provider:anthropic","edits":["#,
            r#"{"type":"clearedThinking","turns":3,"tokens":1.5e4},"#,
            r#"{"type":"clearedToolUses","count":2,"toolCallIds":["a","b"],"source":{"x":1.50}},"#,
            r#"{"type":"clear_images_2027","n":1},"#,
            r#"{"type":"clearedToolUses","count":"many"}],"later":null}"#
        );
        let text = answer(report);
        let message: AgentMessage = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
        let read = message.applied_edits().unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), report);
        assert_eq!(read.strategy, "provider:anthropic");
        let AppliedEdit::ClearedThinking(thinking) = &read.edits[0] else {
            panic!("{read:?}");
        };
        assert_eq!(thinking.turns.get(), 3);
        assert_eq!(thinking.tokens.as_ref().map(Int::get), Some(15_000));
        let AppliedEdit::ClearedToolUses(uses) = &read.edits[1] else {
            panic!("{read:?}");
        };
        assert_eq!(uses.tool_call_ids.as_deref().unwrap(), ["a", "b"]);
        assert!(matches!(&read.edits[2], AppliedEdit::Other(_)));
        assert!(matches!(&read.edits[3], AppliedEdit::Other(_)));
        let mut again = message.clone();
        again.set_applied_edits(&read).unwrap();
        assert_eq!(again, message);
    }

    #[test]
    fn only_an_answer_has_a_report_and_another_shape_is_an_unknown_field() {
        for report in [
            "7",
            "[]",
            r#"{"edits":[]}"#,
            r#"{"strategy":"a","edits":7}"#,
        ] {
            let text = answer(report);
            let message: AgentMessage = serde_json::from_str(&text).unwrap();
            assert_eq!(message.applied_edits(), None, "{report}");
            assert!(message.has_unreadable_edits(), "{report}");
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
        }
        let prompt = r#"{"role":"user","content":[],"appliedEdits":{"strategy":"a","edits":[]}}"#;
        let prompt: AgentMessage = serde_json::from_str(prompt).unwrap();
        assert_eq!(prompt.applied_edits(), None);
    }
}
