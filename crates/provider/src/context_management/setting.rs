//! The setting of a request.

use std::num::NonZeroU32;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use loopstore_model::Json;

/// The value of the header `anthropic-beta` that a request with the setting needs.
pub const BETA: &str = "context-management-2025-06-27";

/// The field `context_management` of a request: the content that Anthropic clears from a conversation before the model
/// reads it.
///
/// The default clears nothing, and is not written. The provider clears anew in each request, and keeps no state: the
/// next request with the same messages and setting is cleared in the same way.
///
/// ```
/// use loopstore_model::Message;
/// use loopstore_provider::context_management::{ClearToolUses, ContextManagement};
/// use loopstore_provider::{Form, ProviderRequest};
///
/// let setting = ContextManagement {
///     clear_tool_uses: Some(ClearToolUses { keep: Some(5), ..ClearToolUses::default() }),
///     ..ContextManagement::default()
/// };
/// let request = ProviderRequest::new(Form::Anthropic, &[Message::user("hello").into()]);
/// let request = serde_json::to_value(request.with_context_management(setting))?;
/// assert_eq!(
///     request["context_management"],
///     serde_json::json!({"edits": [
///         {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 5}},
///     ]}),
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextManagement {
    /// Clears the results of old tool uses.
    pub clear_tool_uses: Option<ClearToolUses>,
    /// Clears the thinking of old turns. The provider accepts it only if the request enables thinking.
    pub clear_thinking: Option<ClearThinking>,
}

/// The edit `clear_tool_uses_20250919`. For each field that is `None` the provider's default applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearToolUses {
    /// The size of the conversation from which on results are cleared; 100,000 input tokens by default.
    pub trigger: Option<ClearTrigger>,
    /// The number of newest tool uses whose results stay; 3 by default.
    pub keep: Option<u32>,
    /// The least number of input tokens to clear. If the provider cannot clear so many, it clears nothing.
    pub clear_at_least: Option<u64>,
    /// The names of tools whose uses are never cleared.
    pub exclude_tools: Vec<String>,
    /// The tools whose arguments are cleared too.
    pub clear_tool_inputs: ClearToolInputs,
}

/// The size of a conversation from which on the provider clears results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearTrigger {
    /// The number of input tokens.
    InputTokens(u64),
    /// The number of tool uses.
    ToolUses(u32),
}

/// The tools whose arguments are cleared with their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClearToolInputs {
    /// No tool.
    #[default]
    None,
    /// Every tool.
    All,
    /// The tools of these names.
    Of(Vec<String>),
}

/// The edit `clear_thinking_20251015`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearThinking {
    /// The turns whose thinking stays; by default the newest.
    pub keep: Option<KeptThinking>,
}

/// The turns of the model whose thinking stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptThinking {
    /// Every turn.
    All,
    /// The newest turns with thinking.
    Turns(NonZeroU32),
}

/// The provider's default of [`ClearToolUses::keep`].
const KEPT_TOOL_USES: u32 = 3;

const TOOL_USES: &str = "clear_tool_uses_20250919";
const THINKING: &str = "clear_thinking_20251015";

impl ContextManagement {
    /// True if the setting clears nothing.
    pub fn is_empty(&self) -> bool {
        self.clear_tool_uses.is_none() && self.clear_thinking.is_none()
    }
}

impl ClearToolUses {
    /// Returns the number of newest tool uses whose results stay.
    pub(super) fn kept(&self) -> usize {
        self.keep.unwrap_or(KEPT_TOOL_USES) as usize
    }
}

impl ClearToolInputs {
    /// True if the arguments of a tool are cleared.
    pub(super) fn includes(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of(names) => names.iter().any(|one| one == name),
        }
    }
}

impl ClearThinking {
    /// Returns the number of newest turns whose thinking stays.
    pub(super) fn kept(self) -> usize {
        match self.keep {
            Some(KeptThinking::All) => usize::MAX,
            Some(KeptThinking::Turns(turns)) => turns.get() as usize,
            None => 1,
        }
    }
}

/// A number with its unit, as the provider writes amounts.
#[derive(Deserialize, Serialize)]
struct Amount {
    r#type: AmountUnit,
    value: u64,
}

#[derive(Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum AmountUnit {
    InputTokens,
    ToolUses,
    ThinkingTurns,
}

impl Amount {
    fn of(unit: AmountUnit, value: impl Into<u64>) -> Self {
        Self {
            r#type: unit,
            value: value.into(),
        }
    }

    /// Returns the value if it has this unit.
    fn value_in(&self, unit: AmountUnit) -> Option<u64> {
        (self.r#type == unit).then_some(self.value)
    }

    /// Returns the value, which must be a number of this unit.
    fn count_in(&self, unit: AmountUnit) -> Option<u32> {
        self.value_in(unit)?.try_into().ok()
    }
}

impl From<ClearTrigger> for Amount {
    fn from(trigger: ClearTrigger) -> Self {
        match trigger {
            ClearTrigger::InputTokens(tokens) => Self::of(AmountUnit::InputTokens, tokens),
            ClearTrigger::ToolUses(uses) => Self::of(AmountUnit::ToolUses, uses),
        }
    }
}

impl Amount {
    fn trigger(&self) -> Option<ClearTrigger> {
        let tokens = self.value_in(AmountUnit::InputTokens);
        let uses = self.count_in(AmountUnit::ToolUses);
        let tokens = tokens.map(ClearTrigger::InputTokens);
        tokens.or(uses.map(ClearTrigger::ToolUses))
    }
}

impl Serialize for ContextManagement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Edit<'a> {
            Thinking(&'a ClearThinking),
            ToolUses(&'a ClearToolUses),
        }
        // The provider rejects a list in which the edit of thinking is not the first.
        let thinking = self.clear_thinking.as_ref().map(Edit::Thinking);
        let uses = self.clear_tool_uses.as_ref().map(Edit::ToolUses);
        let edits: Vec<Edit<'_>> = thinking.into_iter().chain(uses).collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("edits", &edits)?;
        map.end()
    }
}

impl Serialize for ClearToolUses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", TOOL_USES)?;
        if let Some(trigger) = self.trigger {
            map.serialize_entry("trigger", &Amount::from(trigger))?;
        }
        if let Some(keep) = self.keep {
            map.serialize_entry("keep", &Amount::of(AmountUnit::ToolUses, keep))?;
        }
        if let Some(least) = self.clear_at_least {
            let least = Amount::of(AmountUnit::InputTokens, least);
            map.serialize_entry("clear_at_least", &least)?;
        }
        if !self.exclude_tools.is_empty() {
            map.serialize_entry("exclude_tools", &self.exclude_tools)?;
        }
        match &self.clear_tool_inputs {
            ClearToolInputs::None => {}
            ClearToolInputs::All => map.serialize_entry("clear_tool_inputs", &true)?,
            ClearToolInputs::Of(names) => map.serialize_entry("clear_tool_inputs", names)?,
        }
        map.end()
    }
}

impl Serialize for ClearThinking {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", THINKING)?;
        match self.keep {
            None => {}
            Some(KeptThinking::All) => map.serialize_entry("keep", "all")?,
            Some(KeptThinking::Turns(turns)) => {
                let turns = Amount::of(AmountUnit::ThinkingTurns, turns.get());
                map.serialize_entry("keep", &turns)?;
            }
        }
        map.end()
    }
}

/// Reads the setting of a recorded request. Edits of other types, such as compactions, are skipped.
impl<'de> Deserialize<'de> for ContextManagement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Edits {
            #[serde(default)]
            edits: Vec<Json>,
        }
        let mut setting = Self::default();
        for edit in Edits::deserialize(deserializer)?.edits {
            match edit.type_name().as_deref() {
                Some(TOOL_USES) => setting.clear_tool_uses = edit.read().map(tool_uses).ok(),
                Some(THINKING) => setting.clear_thinking = edit.read().map(thinking).ok(),
                _ => {}
            }
        }
        Ok(setting)
    }
}

#[derive(Deserialize)]
struct ToolUsesEdit {
    trigger: Option<Amount>,
    keep: Option<Amount>,
    clear_at_least: Option<Amount>,
    exclude_tools: Option<Vec<String>>,
    clear_tool_inputs: Option<ToolInputs>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToolInputs {
    All(bool),
    Of(Vec<String>),
}

fn tool_uses(edit: ToolUsesEdit) -> ClearToolUses {
    let keep = edit.keep.as_ref();
    let least = edit.clear_at_least.as_ref();
    ClearToolUses {
        trigger: edit.trigger.as_ref().and_then(Amount::trigger),
        keep: keep.and_then(|keep| keep.count_in(AmountUnit::ToolUses)),
        clear_at_least: least.and_then(|least| least.value_in(AmountUnit::InputTokens)),
        exclude_tools: edit.exclude_tools.unwrap_or_default(),
        clear_tool_inputs: match edit.clear_tool_inputs {
            Some(ToolInputs::All(true)) => ClearToolInputs::All,
            Some(ToolInputs::Of(names)) => ClearToolInputs::Of(names),
            Some(ToolInputs::All(false)) | None => ClearToolInputs::None,
        },
    }
}

#[derive(Deserialize)]
struct ThinkingEdit {
    keep: Option<ThinkingKeep>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ThinkingKeep {
    Turns(Amount),
    Word(String),
    Tagged { r#type: String },
}

fn thinking(edit: ThinkingEdit) -> ClearThinking {
    let turns = |turns: Amount| {
        let turns = turns.count_in(AmountUnit::ThinkingTurns);
        turns.and_then(NonZeroU32::new).map(KeptThinking::Turns)
    };
    let all = |word: String| (word == "all").then_some(KeptThinking::All);
    ClearThinking {
        keep: edit.keep.and_then(|keep| match keep {
            ThinkingKeep::Turns(amount) => turns(amount),
            ThinkingKeep::Word(word) | ThinkingKeep::Tagged { r#type: word } => all(word),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn full() -> ContextManagement {
        ContextManagement {
            clear_tool_uses: Some(ClearToolUses {
                trigger: Some(ClearTrigger::InputTokens(30_000)),
                keep: Some(3),
                clear_at_least: Some(5_000),
                exclude_tools: vec!["web_search".into()],
                clear_tool_inputs: ClearToolInputs::All,
            }),
            clear_thinking: Some(ClearThinking {
                keep: NonZeroU32::new(2).map(KeptThinking::Turns),
            }),
        }
    }

    #[test]
    fn the_setting_is_written_as_documented_and_read_again() {
        let written = json!({"edits": [
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 2}},
            {"type": "clear_tool_uses_20250919",
             "trigger": {"type": "input_tokens", "value": 30_000},
             "keep": {"type": "tool_uses", "value": 3},
             "clear_at_least": {"type": "input_tokens", "value": 5_000},
             "exclude_tools": ["web_search"], "clear_tool_inputs": true},
        ]});
        assert_eq!(serde_json::to_value(full()).unwrap(), written);
        let read: ContextManagement = serde_json::from_value(written).unwrap();
        assert_eq!(read, full());
    }

    #[test]
    fn fields_that_are_not_set_are_not_written() {
        let plain = ContextManagement {
            clear_tool_uses: Some(ClearToolUses::default()),
            clear_thinking: Some(ClearThinking::default()),
        };
        let written = serde_json::to_value(&plain).unwrap();
        let edits = json!([{"type": THINKING}, {"type": TOOL_USES}]);
        assert_eq!(written["edits"], edits);
        let read: ContextManagement = serde_json::from_value(written).unwrap();
        assert_eq!(read, plain);
        let uses = plain.clear_tool_uses.map(|uses| uses.kept());
        assert_eq!(uses, Some(3));
        assert_eq!(plain.clear_thinking.map(ClearThinking::kept), Some(1));
    }

    #[test]
    fn every_form_of_a_recorded_setting_is_read() {
        let read = |edit: Value| -> ContextManagement {
            serde_json::from_value(json!({"edits": [edit]})).unwrap()
        };
        for all in [json!("all"), json!({"type": "all"})] {
            let setting = read(json!({"type": THINKING, "keep": all}));
            let keep = setting.clear_thinking.and_then(|edit| edit.keep);
            assert_eq!(keep, Some(KeptThinking::All));
        }
        let named = json!({"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 9},
            "clear_tool_inputs": ["ls"], "exclude_tools": null});
        let uses = read(named).clear_tool_uses.unwrap();
        assert_eq!(uses.trigger, Some(ClearTrigger::ToolUses(9)));
        assert_eq!(
            uses.clear_tool_inputs,
            ClearToolInputs::Of(vec!["ls".into()])
        );
        let other =
            json!({"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1}});
        assert!(read(other).is_empty());
    }
}
