//! Sessions and loops.

use serde::{Deserialize, Serialize};

use super::json::{Extra, Int, Json, json_object};
use super::{AgentMessage, CompactionBlock, LoopId, SessionId, Time, Usage};

json_object! {
    /// The origin of a sub-agent's session.
    pub struct ParentSpawnRef {
        /// The session of the caller.
        must parent_session_id: SessionId = "parent_session_id",
        /// The loop of the caller.
        maybe parent_loop_id: LoopId = "parent_loop_id",
        /// The tool call that started it.
        maybe tool_call_id: String = "tool_call_id",
        /// The tool that started it.
        maybe tool_name: String = "tool_name",
    }
}

json_object! {
    /// A loop in another session that a tool call of this loop started.
    pub struct ChildLoopRef {
        /// The call.
        maybe tool_call_id: String = "tool_call_id",
        /// The tool.
        maybe tool_name: String = "tool_name",
        /// The loop that it started.
        must child_loop_id: LoopId = "child_loop_id",
        /// The session of that loop.
        maybe child_session_id: SessionId = "child_session_id",
    }
}

/// The relation of a loop to its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContinuationKind {
    /// The first loop of a session.
    #[default]
    Initial,
    /// A loop that answers the next prompt.
    Default,
    /// A repetition of the parent's prompt.
    Rerun {
        /// The reason, or the number of the repetition.
        tag: String,
    },
    /// An alternative continuation from the same turn.
    Branch {
        /// The name of the branch.
        tag: String,
    },
    /// A loop that begins with the result of a compaction.
    Compaction,
    /// An unknown kind, kept unchanged.
    Other(Json),
}

#[derive(Serialize, Deserialize)]
enum KindForm {
    Initial,
    Default,
    Compaction,
    Rerun { tag: String },
    Branch { tag: String },
}

impl Serialize for ContinuationKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match self {
            Self::Initial => KindForm::Initial,
            Self::Default => KindForm::Default,
            Self::Compaction => KindForm::Compaction,
            Self::Rerun { tag } => KindForm::Rerun { tag: tag.clone() },
            Self::Branch { tag } => KindForm::Branch { tag: tag.clone() },
            Self::Other(json) => return json.serialize(serializer),
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ContinuationKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        Ok(match json.read::<KindForm>() {
            Ok(KindForm::Initial) => Self::Initial,
            Ok(KindForm::Default) => Self::Default,
            Ok(KindForm::Compaction) => Self::Compaction,
            Ok(KindForm::Rerun { tag }) => Self::Rerun { tag },
            Ok(KindForm::Branch { tag }) => Self::Branch { tag },
            Err(_) => Self::Other(json),
        })
    }
}

/// The status of a loop. An unknown word is kept unchanged and counts as ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LoopStatus {
    /// The loop was created and has not started.
    Pending,
    /// The agent is running: the last turn may be incomplete.
    Running,
    /// The agent stopped by itself.
    #[default]
    Completed,
    /// The input was refused.
    Rejected,
    /// The agent was stopped.
    Aborted,
    /// Another word.
    Other(String),
}

impl LoopStatus {
    /// Returns the word of the status in JSON and SQL.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Rejected => "Rejected",
            Self::Aborted => "Aborted",
            Self::Other(word) => word,
        }
    }

    /// True if every turn of a loop in this status is complete.
    pub fn is_ended(&self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

impl From<&str> for LoopStatus {
    fn from(word: &str) -> Self {
        match word {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Completed" => Self::Completed,
            "Rejected" => Self::Rejected,
            "Aborted" => Self::Aborted,
            _ => Self::Other(word.to_owned()),
        }
    }
}

impl From<String> for LoopStatus {
    fn from(word: String) -> Self {
        Self::from(word.as_str())
    }
}

impl Serialize for LoopStatus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for LoopStatus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

json_object! {
    /// The metadata of a turn as its source recorded it.
    pub struct Turn {
        /// The id of the turn in the source.
        maybe turn_id: Json = "turn_id",
        /// `User`, `SubAgent`, `Continuation` or `Branch`.
        maybe triggered_by: String = "triggered_by",
        /// Tokens of the call.
        maybe usage: Usage = "usage",
        /// The start of the turn.
        maybe started_at: Time = "started_at",
        /// The end of the turn.
        maybe ended_at: Time = "ended_at",
    }
}

json_object! {
    /// One agent run: a prompt and everything until the agent stops.
    pub struct LoopRecord {
        /// The id of the loop, unique within its session.
        must loop_id: LoopId = "loop_id",
        /// The session.
        null session_id: SessionId = "session_id",
        /// The agent that ran.
        null agent_id: String = "agent_id",
        /// The loop that this one continues; it may belong to another session.
        null parent_loop_id: LoopId = "parent_loop_id",
        /// The last turn of the parent that belongs to this loop's chain, inclusive; absent
        /// means the last turn that the parent had when this loop was created.
        maybe parent_turn: Int = "parent_turn",
        /// The relation to the parent.
        null continuation_kind: ContinuationKind = "continuation_kind",
        /// The start of the loop.
        null started_at: Time = "started_at",
        /// The end of the loop.
        null ended_at: Time = "ended_at",
        /// The status.
        list status: LoopStatus = "status",
        /// The reason why the input was rejected.
        null rejection: Json = "rejection",
        /// The model and its settings.
        null config: Json = "config",
        /// The messages, never rewritten.
        list messages: Vec<AgentMessage> = "messages",
        /// The metadata of turns.
        list turns: Vec<Turn> = "turns",
        /// Tokens of the whole loop.
        maybe usage: Usage = "usage",
        /// Metadata of the source.
        maybe metadata: Json = "metadata",
        /// The events of the source, in order.
        list events: Vec<Json> = "events",
        /// The loops that continue this one.
        list children_loop_ids: Vec<LoopId> = "children_loop_ids",
        /// The loops of other sessions that this one started.
        list child_loop_refs: Vec<ChildLoopRef> = "child_loop_refs",
        /// The group of parallel branches, and the selected one.
        null parallel_group: Json = "parallel_group",
        /// The active overlay.
        maybe compaction_block: CompactionBlock = "compaction_block",
    }
}

json_object! {
    /// One agent's history: a tree of loops.
    pub struct Session {
        /// The id of the session.
        must session_id: SessionId = "session_id",
        /// The agent.
        null agent_id: String = "agent_id",
        /// The start of the session.
        null created_at: Time = "created_at",
        /// The time of the last activity.
        null last_active_at: Time = "last_active_at",
        /// The way in which the session was created, as its source recorded it.
        maybe formation: Json = "formation",
        /// The origin of a sub-agent's session.
        null parent_spawn_ref: ParentSpawnRef = "parent_spawn_ref",
        /// `ephemeral` or `persistent`.
        maybe scope: String = "scope",
        /// The loops, parents before children.
        list loops: Vec<LoopRecord> = "loops",
    }
}

impl Session {
    /// Returns an empty session.
    pub fn new(session_id: SessionId, agent_id: impl Into<String>) -> Self {
        let now = Time::now();
        Self {
            session_id,
            agent_id: Some(agent_id.into()),
            created_at: Some(now.clone()),
            last_active_at: Some(now.clone()),
            formation: Json::of(&serde_json::json!({"Explicit": {"timestamp": now}})).ok(),
            parent_spawn_ref: None,
            scope: Some("persistent".into()),
            loops: Vec::new(),
            extra: Extra::default(),
        }
    }
}

impl LoopRecord {
    /// Returns an empty, running loop.
    pub fn new(loop_id: LoopId, parent_loop_id: Option<LoopId>) -> Self {
        let kind = match parent_loop_id {
            None => ContinuationKind::Initial,
            Some(_) => ContinuationKind::Default,
        };
        Self {
            loop_id,
            session_id: None,
            agent_id: None,
            parent_loop_id,
            parent_turn: None,
            continuation_kind: Some(kind),
            started_at: Some(Time::now()),
            ended_at: None,
            status: LoopStatus::Running,
            rejection: None,
            config: None,
            messages: Vec::new(),
            turns: Vec::new(),
            usage: None,
            metadata: None,
            events: Vec::new(),
            children_loop_ids: Vec::new(),
            child_loop_refs: Vec::new(),
            parallel_group: None,
            compaction_block: None,
            extra: Extra::default(),
        }
    }
}
