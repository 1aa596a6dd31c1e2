//! The part of a document from which a session is restored as it was stored: `extra.loopstore`.
//!
//! The root of a document has the rows of the session without its messages, as the lines of `export --format jsonl`.
//! Each step has the rows of its messages. A message that differs from what the step says is described by the
//! difference, or contained as a whole.

use std::fmt;

use loopstore_model::{AgentMessage, LoopId};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::form::Step;
use crate::messages::{message_of, result_of};

/// The number of this form of `extra.loopstore`.
pub const STORED_FORM: u32 = 1;

/// The `extra` of a step.
#[derive(Serialize)]
pub struct StoredExtra {
    /// The part of loopstore.
    pub loopstore: StoredStep,
}

/// The messages of a step.
#[derive(Serialize)]
pub struct StoredStep {
    /// The loop of the messages.
    #[serde(rename = "loop")]
    pub loop_id: LoopId,
    /// The messages, in their order.
    pub messages: Vec<StepMessage>,
}

/// The row of a message, and its difference from what the step says.
#[derive(Default, Serialize, Deserialize)]
pub struct StepMessage {
    /// The position in the loop.
    pub seq: u32,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The number of tokens.
    pub tokens: u64,
    /// The tick of the append.
    pub tick: i64,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<i64>,
    /// True if the store gave the message its time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamped: bool,
    /// Hexadecimal text; absent if the content was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    /// Hexadecimal text.
    pub digest: String,
    /// True if the content was removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The index of the result of the step; absent for the message of the step itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<usize>,
    /// The whole message, if the step does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<RawValue>>,
    /// Fields of the message that the step lacks or has with another value.
    #[serde(default, skip_serializing_if = "ObjectFields::is_empty")]
    pub set: ObjectFields,
    /// Fields that the message does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// The blocks of the message: the number of a block of the step, such a number with more fields, or a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<Box<RawValue>>>,
}

/// The fields of an object with the text of their values, in their order.
#[derive(Default)]
pub struct ObjectFields(Vec<(String, Box<RawValue>)>);

impl ObjectFields {
    fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, key: &str) -> Option<&str> {
        let mut fields = self.0.iter();
        let (_, value) = fields.find(|(name, _)| name == key)?;
        Some(value.get())
    }

    fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }
}

impl Serialize for ObjectFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ObjectFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = ObjectFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectFields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(ObjectFields(fields))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl StepMessage {
    /// Describes the message as a difference from what the step says, or contains it as a whole if it has no place in
    /// the step.
    ///
    /// # Errors
    /// If the message cannot be written as JSON.
    pub fn describe(
        &mut self,
        step: &Step,
        in_step: bool,
        message: &AgentMessage,
    ) -> serde_json::Result<()> {
        let wanted = serde_json::to_string(message)?;
        if in_step && let Some(base) = self.said_by(step) {
            let base = serde_json::to_string(&base)?;
            self.compare(&ObjectFields::parse(&base)?, ObjectFields::parse(&wanted)?)?;
            // The order of fields may differ.
            if let Ok(Some(text)) = self.text(step)
                && text == wanted
            {
                return Ok(());
            }
            self.set = ObjectFields::default();
            self.without.clear();
            self.content = None;
        }
        self.message = Some(RawValue::from_string(wanted)?);
        Ok(())
    }

    fn said_by(&self, step: &Step) -> Option<AgentMessage> {
        match self.result {
            None => Some(message_of(step)),
            Some(nth) => Some(result_of(step, step.results().get(nth)?)),
        }
    }

    fn compare(&mut self, base: &ObjectFields, wanted: ObjectFields) -> serde_json::Result<()> {
        let missing = base.0.iter().map(|(key, _)| key);
        let missing = missing.filter(|key| wanted.get(key).is_none());
        self.without = missing.cloned().collect();
        for (key, value) in wanted.0 {
            let old = base.get(&key);
            if old == Some(value.get()) {
                continue;
            }
            match (key.as_str(), old) {
                ("content", Some(old)) => self.content = Some(blocks_of(old, &value)?),
                _ => self.set.set(&key, value),
            }
        }
        Ok(())
    }

    /// Returns the message as JSON; `None` if its content was removed.
    ///
    /// # Errors
    /// If the step lacks what the message refers to; the error gives the reason.
    pub fn text(&self, step: &Step) -> Result<Option<String>, String> {
        if self.removed {
            return Ok(None);
        }
        if let Some(message) = &self.message {
            return Ok(Some(message.get().to_owned()));
        }
        let base = self.said_by(step).ok_or("its step has no such result")?;
        let text = serde_json::to_string(&base).map_err(|error| error.to_string())?;
        let merged = self.merged(&text).map_err(|error| error.to_string())?;
        // The fields are in the order in which a message is written.
        let message: AgentMessage =
            serde_json::from_str(&merged).map_err(|error| error.to_string())?;
        serde_json::to_string(&message)
            .map(Some)
            .map_err(|error| error.to_string())
    }

    fn merged(&self, base: &str) -> serde_json::Result<String> {
        let mut fields = ObjectFields::parse(base)?;
        if let Some(blocks) = &self.content {
            let old = fields.get("content").unwrap_or("[]");
            let old: Vec<Box<RawValue>> = serde_json::from_str(old)?;
            let blocks = blocks.iter().map(|block| full_block(&old, block));
            let blocks: Vec<String> = blocks.collect::<serde_json::Result<_>>()?;
            let text = format!("[{}]", blocks.join(","));
            fields.set("content", RawValue::from_string(text)?);
        }
        fields.0.retain(|(key, _)| !self.without.contains(key));
        for (key, value) in &self.set.0 {
            fields.set(key, value.clone());
        }
        serde_json::to_string(&fields)
    }
}

/// Returns the blocks of a message, with the numbers of blocks of the step in place of equal ones.
fn blocks_of(old: &str, wanted: &RawValue) -> serde_json::Result<Vec<Box<RawValue>>> {
    let old: Vec<&RawValue> = serde_json::from_str(old)?;
    let wanted: Vec<&RawValue> = serde_json::from_str(wanted.get())?;
    // Blocks mostly keep their order.
    let mut next = 0;
    let mut blocks = Vec::with_capacity(wanted.len());
    for block in wanted {
        let order = (next..old.len()).chain(0..next);
        let mut short = None;
        for nth in order {
            if let Some(text) = same_with_more(old[nth].get(), block.get(), nth)? {
                (short, next) = (Some(text), nth + 1);
                break;
            }
        }
        let text = short.unwrap_or_else(|| block.get().to_owned());
        blocks.push(RawValue::from_string(text)?);
    }
    Ok(blocks)
}

/// Returns the short form of a block that has all fields of a block of the step.
fn same_with_more(old: &str, wanted: &str, nth: usize) -> serde_json::Result<Option<String>> {
    if old == wanted {
        return Ok(Some(nth.to_string()));
    }
    let (old, wanted) = (ObjectFields::parse(old)?, ObjectFields::parse(wanted));
    let Ok(mut wanted) = wanted else {
        return Ok(None);
    };
    let has_all = (old.0.iter()).all(|(key, value)| wanted.get(key) == Some(value.get()));
    if !has_all || old.get("type").is_none() {
        return Ok(None);
    }
    wanted.0.retain(|(key, _)| old.get(key).is_none());
    let more = serde_json::to_string(&wanted)?;
    Ok(Some(format!("[{nth},{more}]")))
}

/// Returns a block from its short form.
fn full_block(old: &[Box<RawValue>], block: &RawValue) -> serde_json::Result<String> {
    use serde::de::Error;
    let missing = || serde_json::Error::custom("its step has no such block");
    if let Ok(nth) = serde_json::from_str::<usize>(block.get()) {
        return old
            .get(nth)
            .map(|old| old.get().to_owned())
            .ok_or_else(missing);
    }
    let Ok((nth, more)) = serde_json::from_str::<(usize, ObjectFields)>(block.get()) else {
        return Ok(block.get().to_owned());
    };
    let old = old.get(nth).ok_or_else(missing)?;
    let mut fields = ObjectFields::parse(old.get())?;
    for (key, value) in more.0 {
        fields.set(&key, value);
    }
    serde_json::to_string(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Observation, ObservationResult, StepCall, StepSource};
    use loopstore_model::{Content, Json, Message};
    use serde_json::json;

    fn described(step: &Step, message: &AgentMessage, result: Option<usize>) -> StepMessage {
        let mut stored = StepMessage {
            result,
            ..StepMessage::default()
        };
        stored.describe(step, true, message).unwrap();
        let written = serde_json::to_string(&stored).unwrap();
        let read: StepMessage = serde_json::from_str(&written).unwrap();
        let text = read.text(step).unwrap().unwrap();
        assert_eq!(text, serde_json::to_string(message).unwrap());
        read
    }

    fn answer_step() -> Step {
        let mut step = Step::new(StepSource::Agent, Json::string("I look."));
        step.reasoning_content = Some("Clouds.".into());
        step.tool_calls = vec![StepCall {
            tool_call_id: "c1".into(),
            function_name: "forecast".into(),
            arguments: json!({"days": 3}).into(),
            extra: None,
        }];
        step.observation = Some(Observation {
            results: vec![ObservationResult {
                source_call_id: Some("c1".into()),
                content: Some(Json::string("Rain.")),
                ..ObservationResult::default()
            }],
        });
        step
    }

    #[test]
    fn only_what_a_step_does_not_say_is_stored() {
        let step = answer_step();
        let answer = Message::assistant("I look.")
            .with_thinking("Clouds.", Some("c2ln"))
            .with_tool_call("c1", "forecast", json!({"days": 3}));
        let stored = described(&step, &answer.into(), None);
        assert!(stored.message.is_none());
        let blocks: Vec<&str> = stored.content.iter().flatten().map(|b| b.get()).collect();
        assert_eq!(blocks, [r#"[0,{"signature":"c2ln"}]"#, "1", "2"]);
        let mut result = Message::tool_result("c1", "Rain.");
        let Message::ToolResult(inner) = &mut result else {
            unreachable!()
        };
        inner.tool_name = "forecast".into();
        let stored = described(&step, &result.into(), Some(0));
        assert!(stored.message.is_none() && stored.content.is_none());
        assert!(stored.set.is_empty() && stored.without.is_empty());
    }

    #[test]
    fn blocks_in_another_order_and_unknown_ones_come_back() {
        let step = answer_step();
        let mut answer = Message::assistant("")
            .with_tool_call("c1", "forecast", json!({"days": 3}))
            .with_thinking("Other clouds.", None);
        let item = Json::parse(r#"{"type":"reasoning","encrypted_content":"gAAA","n":1.50}"#);
        answer
            .content_mut()
            .push(Content::sealed("openai", item.unwrap()));
        answer.content_mut().push(Content::text("I look."));
        answer.content_mut().push(Content::Other(
            Json::parse(r#"{"x":[1,{"y":null}]}"#).unwrap(),
        ));
        let stored = described(&step, &answer.into(), None);
        assert!(stored.message.is_none());
        assert_eq!(stored.content.iter().flatten().count(), 5);
    }

    #[test]
    fn another_kind_of_message_is_stored_whole_or_as_a_difference() {
        let step = answer_step();
        for message in [
            AgentMessage::extension("progress", json!({"at": 1}).into()),
            Message::user("Hi").into(),
            Message::tool_result("c9", "").with_error().into(),
        ] {
            described(&step, &message, None);
            described(&step, &message, Some(0));
        }
    }

    #[test]
    fn a_reference_to_what_a_step_does_not_have_is_an_error() {
        let step = answer_step();
        for text in [
            r#"{"seq":0,"tokens":1,"tick":1,"digest":"","result":3}"#,
            r#"{"seq":0,"tokens":1,"tick":1,"digest":"","content":[9]}"#,
            r#"{"seq":0,"tokens":1,"tick":1,"digest":"","content":[[9,{}]]}"#,
            r#"{"seq":0,"tokens":1,"tick":1,"digest":"","without":["role"]}"#,
        ] {
            let stored: StepMessage = serde_json::from_str(text).unwrap();
            assert!(stored.text(&step).is_err(), "{text}");
        }
    }
}
