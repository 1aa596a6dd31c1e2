//! The agent of a trajectory, as far as the session names it.

use std::ops::ControlFlow;

use loopstore::extend::{self as store, LoopRow, SessionRow, StoreRead, StoreResult};
use loopstore::model::{AgentMessage, ExtensionMessage};
use serde_json::{Map, Value, json};

/// The version of an agent that the store does not have; the form requires one.
const UNKNOWN: &str = "unknown";
/// The number of messages at the beginning of a session in which records of the agent name its version.
const FIRST: u32 = 50;

/// The agent of a session.
pub(super) struct StoredAgent {
    fields: Map<String, Value>,
}

impl StoredAgent {
    /// Reads the agent of a session from its metadata, from its loops, and from the first records of the agent.
    pub fn read(
        read: &dyn StoreRead,
        session: &SessionRow,
        loops: &[LoopRow],
    ) -> StoreResult<Self> {
        let meta: Value = serde_json::from_str(&session.meta).unwrap_or_default();
        let mut fields = Map::new();
        // The agent of an imported trajectory.
        let own = &meta["agent"];
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        for (key, is_valid) in [
            ("version", is_text(&own["version"])),
            ("model_name", is_text(&own["model_name"])),
            (
                "tool_definitions",
                is_list_of_objects(&own["tool_definitions"]),
            ),
            ("extra", own["extra"].is_object()),
        ] {
            if is_valid {
                fields.insert(key.into(), own[key].clone());
            }
        }
        // The tools of an imported request.
        if !fields.contains_key("tool_definitions") && is_list_of_objects(&meta["tools"]) {
            fields.insert("tool_definitions".into(), meta["tools"].clone());
        }
        if !fields.contains_key("version")
            && let Some(version) = version_of(read, loops)?
        {
            fields.insert("version".into(), version.into());
        }
        let name = session.agent_id.as_ref().or(session.source.as_ref());
        let name = name.map_or(UNKNOWN, String::as_str);
        fields.insert("name".into(), name.into());
        Ok(Self { fields })
    }

    /// True if the version of the agent is stored.
    pub fn has_version(&self) -> bool {
        self.fields.contains_key("version")
    }

    /// Returns the agent in the form of the format.
    pub fn json(mut self) -> Value {
        self.fields
            .entry("version")
            .or_insert_with(|| json!(UNKNOWN));
        Value::Object(self.fields)
    }
}

fn is_list_of_objects(value: &Value) -> bool {
    let items = value.as_array();
    items.is_some_and(|items| !items.is_empty() && items.iter().all(Value::is_object))
}

/// Returns the version that the newest loop, or else the first record of the agent, names.
fn version_of(read: &dyn StoreRead, loops: &[LoopRow]) -> StoreResult<Option<String>> {
    for row in loops.iter().rev() {
        let meta = read.loop_meta(row.key)?.meta;
        let meta: Value = serde_json::from_str(&meta).unwrap_or_default();
        // A recorder of the Agent Client Protocol.
        if let Some(version) = meta["metadata"]["acp"]["agentVersion"].as_str() {
            return Ok(Some(version.to_owned()));
        }
    }
    let Some(first) = loops.first() else {
        return Ok(None);
    };
    let mut version = None;
    read.messages(first.key, 0..FIRST, &mut |row| {
        if let AgentMessage::Extension(record) = store::decode(read, row.body)? {
            version = recorded_version(&record);
        }
        Ok(match version {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    })?;
    Ok(version)
}

/// Returns the version of the agent that wrote a record.
fn recorded_version(record: &ExtensionMessage) -> Option<String> {
    let data: Value = record.data.read().ok()?;
    let named = [
        // Codex.
        &data["payload"]["cli_version"],
        // Claude Code and Qwen Code.
        &data["version"],
        // Copilot CLI.
        &data["data"]["copilotVersion"],
    ];
    let version = named.into_iter().find_map(Value::as_str)?;
    (!version.is_empty()).then(|| version.to_owned())
}
