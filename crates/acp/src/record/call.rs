//! A tool call as its updates describe it.

use std::collections::HashMap;

use loopstore::model::{AgentMessage, Content, Extra, Json, Message, ToolCall, ToolResultMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::content::block;
use super::{DETAILS, MAX_ID};

/// The longest title that becomes the name of a tool.
const MAX_NAME: usize = 64;

/// The fields of `tool_call` and `tool_call_update`. A field that is absent has not changed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallUpdate {
    pub tool_call_id: String,
    title: Option<String>,
    name: Option<String>,
    kind: Option<String>,
    pub status: Option<String>,
    content: Option<Vec<Value>>,
    locations: Option<Value>,
    raw_input: Option<Box<RawValue>>,
    raw_output: Option<Value>,
    #[serde(rename = "_meta")]
    meta: Option<Value>,
}

/// The state of a tool call.
#[derive(Default)]
pub(crate) struct ToolState {
    id: String,
    title: Option<String>,
    name: Option<String>,
    kind: Option<String>,
    status: Option<String>,
    content: Vec<Value>,
    locations: Option<Value>,
    raw_input: Option<Json>,
    raw_output: Option<Value>,
    /// True if its result is stored.
    pub is_answered: bool,
}

impl ToolState {
    pub fn new(id: &str) -> Self {
        Self {
            id: id.chars().take(MAX_ID).collect(),
            ..Self::default()
        }
    }

    /// Applies an update.
    pub fn update(&mut self, update: CallUpdate) {
        fn set<T>(field: &mut Option<T>, new: Option<T>) {
            if new.is_some() {
                *field = new;
            }
        }
        // The name of the tool, which an agent sends for editors that know it.
        let meta = update.meta.as_ref();
        let named = meta.and_then(|meta| meta["claudeCode"]["toolName"].as_str());
        set(&mut self.name, update.name.or(named.map(str::to_owned)));
        set(&mut self.title, update.title);
        set(&mut self.kind, update.kind);
        set(&mut self.status, update.status);
        set(&mut self.locations, update.locations);
        set(&mut self.raw_output, update.raw_output);
        let input = update.raw_input.and_then(|raw| Json::parse(raw.get()).ok());
        set(&mut self.raw_input, input.filter(|input| !input.is_null()));
        if let Some(content) = update.content {
            self.content = content;
        }
    }

    /// True if the call has its result.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_deref(), Some("completed" | "failed"))
    }

    /// True if something of a result is known.
    pub fn has_output(&self) -> bool {
        !self.content.is_empty() || self.raw_output.is_some()
    }

    fn tool_name(&self) -> String {
        let kind = self.kind.as_deref().filter(|kind| *kind != "other");
        let names = [self.name.as_deref(), kind, self.title.as_deref()];
        let name = names.into_iter().flatten().find(|name| !name.is_empty());
        name.unwrap_or("tool").chars().take(MAX_NAME).collect()
    }

    /// Returns the call as a block of an answer.
    pub fn block(&self) -> Content {
        let mut extra = Extra::default();
        let mut details = json!({});
        for (name, value) in [
            ("title", self.title.clone().map(Value::from)),
            ("kind", self.kind.clone().map(Value::from)),
            ("locations", self.locations.clone()),
        ] {
            if let Some(value) = value {
                details[name] = value;
            }
        }
        let arguments = match self.own_arguments() {
            Some(arguments) => arguments,
            None => {
                // The agent sends no arguments: what its updates show stands for them.
                details["argumentsFrom"] = "updates".into();
                self.shown_arguments().into()
            }
        };
        extra.insert(DETAILS, details.into());
        Content::ToolCall(ToolCall {
            id: self.id.clone(),
            name: self.tool_name(),
            arguments,
            extra,
        })
    }

    fn own_arguments(&self) -> Option<Json> {
        let arguments = self.raw_input.clone()?;
        let is_object = arguments.as_str().starts_with('{');
        match arguments.as_str() {
            "{}" if !self.diffs().is_empty() => None,
            _ if is_object => Some(arguments),
            // Providers take objects only.
            _ => Json::of(&json!({"input": arguments.read::<Value>().ok()?})).ok(),
        }
    }

    fn diffs(&self) -> Vec<&Value> {
        let content = self.content.iter();
        content.filter(|item| item["type"] == "diff").collect()
    }

    fn shown_arguments(&self) -> Value {
        let edit = |diff: &Value| match diff["oldText"].as_str() {
            Some(old) => {
                json!({"path": diff["path"], "old_string": old, "new_string": diff["newText"]})
            }
            None => json!({"path": diff["path"], "content": diff["newText"]}),
        };
        if let Some(diff) = self.diffs().first() {
            return edit(diff);
        }
        let title = self.title.as_deref().unwrap_or_default();
        let path = self
            .locations
            .as_ref()
            .map(|locations| &locations[0]["path"]);
        match (self.kind.as_deref(), path) {
            (Some("execute"), _) => json!({"command": title.trim_matches('`')}),
            (_, Some(Value::String(path))) => json!({"path": path}),
            _ => json!({"title": title}),
        }
    }

    /// Returns the result. `terminals` has the output of the editor's terminals by their ids.
    pub fn result(&self, terminals: &HashMap<String, String>) -> AgentMessage {
        let message = Message::ToolResult(ToolResultMessage {
            tool_call_id: self.id.clone(),
            tool_name: self.tool_name(),
            content: self.result_blocks(terminals),
            is_error: self.status.as_deref() == Some("failed"),
            ..ToolResultMessage::default()
        });
        let mut message = AgentMessage::from(message);
        let mut details = json!({"status": self.status});
        let diffs = self.diffs();
        if !diffs.is_empty() {
            details["diffs"] = json!(diffs);
        }
        if let Some(output) = self.raw_output.as_ref().filter(|output| output.is_object()) {
            details["rawOutput"] = output.clone();
        }
        message.extra_mut().insert(DETAILS, details.into());
        message
    }

    fn result_blocks(&self, terminals: &HashMap<String, String>) -> Vec<Content> {
        let shown = self
            .content
            .iter()
            .filter_map(|item| shown_block(item, terminals));
        let shown: Vec<Content> = shown.collect();
        if !shown.is_empty() {
            return shown;
        }
        let text = self.raw_output.as_ref().and_then(output_text);
        text.map(Content::text).into_iter().collect()
    }
}

fn shown_block(item: &Value, terminals: &HashMap<String, String>) -> Option<Content> {
    match item["type"].as_str()? {
        "content" => {
            let raw = serde_json::value::to_raw_value(&item["content"]).ok()?;
            Some(block(&raw))
        }
        "diff" => {
            let lines = |name: &str| item[name].as_str().map_or(0, |text| text.lines().count());
            let (path, old, new) = (item["path"].as_str()?, lines("oldText"), lines("newText"));
            Some(Content::text(format!(
                "[{path}: {old} lines before, {new} after]"
            )))
        }
        "terminal" => {
            let output = terminals.get(item["terminalId"].as_str()?)?;
            Some(Content::text(output.clone()))
        }
        _ => Some(Content::Other(item.clone().into())),
    }
}

/// Returns the text of an output that the agent sends only in its own form.
fn output_text(output: &Value) -> Option<String> {
    if let Some(text) = output.as_str() {
        return Some(text.to_owned());
    }
    let texts = [
        "formatted_output",
        "aggregated_output",
        "output",
        "stdout",
        "text",
    ];
    let text = texts.iter().find_map(|name| output[*name].as_str());
    match text {
        Some(text) => Some(text.to_owned()),
        None if output.is_null() => None,
        None => Some(output.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(updates: &[Value]) -> ToolState {
        let mut call = ToolState::new("c1");
        for update in updates {
            let mut update = update.clone();
            update["toolCallId"] = "c1".into();
            call.update(serde_json::from_value(update).unwrap());
        }
        call
    }

    fn block_of(call: &ToolState) -> (String, Value) {
        match call.block() {
            Content::ToolCall(call) => (call.name, call.arguments.read().unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_has_the_tool_and_the_arguments_of_all_its_updates() {
        let meta = json!({"claudeCode": {"toolName": "Bash"}});
        let call = call(&[
            json!({"title": "Terminal", "kind": "execute", "rawInput": {}, "_meta": meta}),
            json!({"title": "`ls`", "rawInput": {"command": "ls"}}),
            json!({"status": "completed", "rawOutput": {"exit_code": 0, "stdout": "a.rs"}}),
        ]);
        assert_eq!(block_of(&call), ("Bash".into(), json!({"command": "ls"})));
        let result = call.result(&HashMap::new());
        let texts: Vec<_> = result.message().unwrap().texts().collect();
        assert_eq!(texts, ["a.rs"]);
    }

    #[test]
    fn an_agent_without_raw_input_still_says_what_it_edits_and_runs() {
        let diff = json!({"type": "diff", "path": "/a.rs", "oldText": "a", "newText": "b\nc"});
        let edit = call(&[json!({"title": "Edit a.rs", "kind": "edit", "content": [diff]})]);
        let arguments = json!({"path": "/a.rs", "old_string": "a", "new_string": "b\nc"});
        assert_eq!(block_of(&edit), ("edit".into(), arguments));
        let run = call(&[json!({"title": "`cargo test`", "kind": "execute"})]);
        assert_eq!(
            block_of(&run),
            ("execute".into(), json!({"command": "cargo test"}))
        );
        let read =
            call(&[json!({"title": "Read", "kind": "read", "locations": [{"path": "/a.rs"}]})]);
        assert_eq!(block_of(&read).1, json!({"path": "/a.rs"}));
        let other = call(&[json!({"title": "Ask", "kind": "other", "rawInput": "why"})]);
        assert_eq!(block_of(&other), ("Ask".into(), json!({"input": "why"})));
    }

    #[test]
    fn the_output_of_the_editors_terminal_is_the_result() {
        let run = call(&[
            json!({"status": "failed", "content": [{"type": "terminal", "terminalId": "t"}]}),
        ]);
        let terminals = HashMap::from([("t".to_owned(), "no such file".to_owned())]);
        let result = run.result(&terminals);
        assert!(matches!(result.message(), Some(Message::ToolResult(result)) if result.is_error));
        assert_eq!(
            result.message().unwrap().texts().next(),
            Some("no such file")
        );
    }
}
