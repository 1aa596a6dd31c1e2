//! A message in the form of a program without a model.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::workload::Outcome;

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plain {
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    pub content: Vec<Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<Place>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Block {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    pub loop_id: String,
    pub turn_index: i64,
}

impl Plain {
    /// Returns the same message; it is an error if its JSON has not the same size.
    pub fn of(message: &loopstore::AgentMessage) -> Outcome<Self> {
        let json = serde_json::to_string(message)?;
        let plain: Self = serde_json::from_str(&json)?;
        match serde_json::to_string(&plain)?.len() == json.len() {
            true => Ok(plain),
            false => Err(format!("the ceiling would write other bytes than {json}").into()),
        }
    }

    /// Removes the largest text, and returns it with the number of its block.
    pub fn take_text(&mut self) -> Option<(usize, String)> {
        let size = |block: &Block| block.text.as_ref().map_or(0, String::len);
        let (at, block) = self
            .content
            .iter_mut()
            .enumerate()
            .max_by_key(|(_, block)| size(block))?;
        Some((at, block.text.as_mut().map(std::mem::take)?))
    }

    /// Puts it back.
    pub fn put_text(&mut self, at: usize, text: String) {
        if let Some(block) = self.content.get_mut(at) {
            block.text = Some(text);
        }
    }
}

/// Runs `work`; returns its duration and its result.
pub fn timed<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<(Duration, T)> {
    let begun = Instant::now();
    let done = work()?;
    Ok((begun.elapsed(), done))
}
