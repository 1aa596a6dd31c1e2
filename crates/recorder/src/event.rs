//! The events of an agent while it works.
//!
//! The JSON of an event is tagged `type`, in camelCase (`agentStart`; `AgentStart` is read too),
//! with fields in snake_case. Unknown fields are kept and written back.

use loopstore::model::{
    AgentMessage, ContinuationKind, Extra, Int, Json, LoopId, SessionId, Time, Usage,
};
use loopstore_model::json::json_object;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

json_object! {
    /// The model and its options.
    pub struct LoopConfigSnapshot {
        /// The model.
        list model: String = "model",
        /// The provider.
        list provider: String = "provider",
        /// The id of the configuration.
        maybe config_id: String = "config_id",
        /// The display name.
        maybe name: String = "name",
        /// The protocol.
        maybe api: String = "api",
        /// The address of the provider.
        maybe base_url: String = "base_url",
        /// True if the model reasons.
        maybe reasoning: Json = "reasoning",
        /// The maximum number of tokens of a context.
        maybe context_window: Int = "context_window",
        /// The maximum number of tokens of an answer.
        maybe max_tokens: Int = "max_tokens",
        /// The thinking level.
        maybe thinking_level: Json = "thinking_level",
        /// The temperature.
        maybe temperature: Json = "temperature",
    }
}

json_object! {
    /// A loop begins. The session is created if it does not exist.
    pub struct AgentStart {
        /// The agent.
        maybe agent_id: String = "agent_id",
        /// The session.
        must session_id: SessionId = "session_id",
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The parent of the loop; a parent in another session started it as a sub-agent. Without
        /// a parent the loop continues the session's current loop, unless it is `Initial`.
        null parent_loop_id: LoopId = "parent_loop_id",
        /// The last turn of the parent that belongs to this loop's chain; all of its turns if `None`.
        maybe parent_turn: Int = "parent_turn",
        /// The session of the parent, if it differs from the session of the loop.
        maybe parent_session_id: SessionId = "parent_session_id",
        /// The call that started a sub-agent.
        maybe tool_call_id: String = "tool_call_id",
        /// The tool that started a sub-agent.
        maybe tool_name: String = "tool_name",
        /// The kind of continuation; `Initial` for a loop without a parent.
        null continuation_kind: ContinuationKind = "continuation_kind",
        /// The time of the event.
        maybe timestamp: Time = "timestamp",
        /// Metadata of the caller.
        maybe metadata: Json = "metadata",
        /// The model and its options.
        maybe config_snapshot: LoopConfigSnapshot = "config_snapshot",
    }
}

json_object! {
    /// A loop ends.
    pub struct AgentEnd {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The messages of the loop; used only if no earlier event had them.
        list messages: Vec<AgentMessage> = "messages",
        /// Tokens of the whole loop.
        maybe usage: Usage = "usage",
        /// The time of the event.
        maybe timestamp: Time = "timestamp",
        /// The reason that the input was rejected, if it was.
        maybe rejection: Json = "rejection",
        /// True if the agent was stopped.
        maybe aborted: bool = "aborted",
    }
}

json_object! {
    /// A turn begins.
    pub struct TurnStart {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The index of the turn in the loop; larger than the index of the turn before.
        must turn_index: Int = "turn_index",
        /// The time of the event.
        maybe timestamp: Time = "timestamp",
        /// `User`, `SubAgent`, `Continuation`, `FollowUp` or `Branch`.
        maybe triggered_by: String = "triggered_by",
    }
}

json_object! {
    /// A request goes to the model.
    pub struct TurnRequest {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The turn.
        maybe turn_index: Int = "turn_index",
        /// The time of the event.
        maybe timestamp: Time = "timestamp",
        /// The payload, which is another copy of the context. Stored only with
        /// [`RecorderOptions::request_payloads`](crate::RecorderOptions).
        maybe request_payload: Json = "request_payload",
    }
}

json_object! {
    /// The end of a turn: the answer and the results of its calls are complete.
    pub struct TurnEnd {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The turn.
        maybe turn_index: Int = "turn_index",
        /// The answer.
        maybe message: AgentMessage = "message",
        /// Tokens of the call.
        maybe usage: Usage = "usage",
        /// The time of the event.
        maybe timestamp: Time = "timestamp",
        /// The results of the turn's calls.
        list tool_results: Vec<AgentMessage> = "tool_results",
    }
}

json_object! {
    /// A message begins.
    pub struct MessageStart {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The message so far.
        must message: AgentMessage = "message",
    }
}

json_object! {
    /// A piece of a message came.
    pub struct MessageUpdate {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The message so far.
        maybe message: AgentMessage = "message",
        /// The piece.
        maybe delta: Json = "delta",
    }
}

json_object! {
    /// A message is complete.
    pub struct MessageEnd {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The message.
        must message: AgentMessage = "message",
    }
}

json_object! {
    /// A tool is about to run.
    pub struct ToolExecutionStart {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The call.
        must tool_call_id: String = "tool_call_id",
        /// The tool.
        list tool_name: String = "tool_name",
        /// The arguments.
        list args: Json = "args",
        /// The idempotency key; derived if `None`.
        maybe idempotency_key: String = "idempotency_key",
    }
}

json_object! {
    /// A tool gave a part of its result.
    pub struct ToolExecutionUpdate {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The call.
        must tool_call_id: String = "tool_call_id",
        /// The tool.
        list tool_name: String = "tool_name",
        /// The part.
        maybe partial_result: Json = "partial_result",
    }
}

json_object! {
    /// A tool has run.
    pub struct ToolExecutionEnd {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The call.
        must tool_call_id: String = "tool_call_id",
        /// The tool.
        list tool_name: String = "tool_name",
        /// The result.
        maybe result: Json = "result",
        /// True if the call failed.
        list is_error: bool = "is_error",
        /// The loop of the sub-agent that the tool started.
        maybe child_loop_id: LoopId = "child_loop_id",
        /// The session of that loop.
        maybe child_session_id: SessionId = "child_session_id",
    }
}

json_object! {
    /// A tool reports its progress.
    pub struct Progress {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The call.
        maybe tool_call_id: String = "tool_call_id",
        /// The tool.
        maybe tool_name: String = "tool_name",
        /// The text.
        list text: String = "text",
    }
}

json_object! {
    /// A filter rejected the input.
    pub struct InputRejected {
        /// The loop.
        must loop_id: LoopId = "loop_id",
        /// The reason.
        list reason: Json = "reason",
    }
}

json_object! {
    /// Several loops are about to answer the same prompt.
    pub struct ParallelLoopStart {
        /// The session.
        must session_id: SessionId = "session_id",
        /// The loops.
        must loop_ids: Vec<LoopId> = "loop_ids",
        /// The common parent of the loops. If the field is present (`null`: no parent), the loops are stored as
        /// pending; otherwise each loop is stored when it begins.
        null parent_loop_id: LoopId = "parent_loop_id",
        /// The time of the event.
        maybe timestamp: Time = "timestamp",
    }
}

json_object! {
    /// One of several loops was selected.
    pub struct ParallelLoopEnd {
        /// The session.
        must session_id: SessionId = "session_id",
        /// The loop that was selected.
        must selected_loop_id: LoopId = "selected_loop_id",
        /// The index of the selected loop in the list.
        maybe selected_config_index: Int = "selected_config_index",
        /// The usage of the evaluation of the loops.
        maybe evaluation_usage: Usage = "evaluation_usage",
        /// The time of the event.
        maybe timestamp: Time = "timestamp",
    }
}

json_object! {
    /// An event of a loop that is stored without further effect: a compaction, a pruning, a revert.
    pub struct LoopNotice {
        /// The loop.
        must loop_id: LoopId = "loop_id",
    }
}

macro_rules! agent_events {
    ($( $(#[$meta:meta])* $name:ident($payload:ident) = $tag:literal $(| $alias:literal)* ),* $(,)?) => {
        /// The events of an agent while it works.
        // Events come one at a time and are taken apart at once.
        #[allow(clippy::large_enum_variant)]
        #[derive(Clone, Debug, PartialEq)]
        pub enum AgentEvent {
            $( $(#[$meta])* $name($payload), )*
            /// An event of a type unknown to this version; stored with its loop if it names one.
            Other(Json),
        }

        impl AgentEvent {
            /// Returns the type of the event, as in its JSON.
            pub fn name(&self) -> &'static str {
                match self {
                    $( Self::$name(_) => $tag, )*
                    Self::Other(_) => "other",
                }
            }

            fn read(tag: &str, json: &Json) -> serde_json::Result<Option<Self>> {
                match tag {
                    $( $tag | stringify!($name) $(| $alias)* => {
                        let mut event: $payload = json.read()?;
                        event.extra.remove("type");
                        Ok(Some(Self::$name(event)))
                    } )*
                    _ => Ok(None),
                }
            }

            fn fields(&self) -> serde_json::Result<Json> {
                match self {
                    $( Self::$name(event) => Json::of(event), )*
                    Self::Other(json) => Ok(json.clone()),
                }
            }
        }
    };
}

agent_events! {
    /// A loop begins.
    AgentStart(AgentStart) = "agentStart",
    /// A loop ends.
    AgentEnd(AgentEnd) = "agentEnd",
    /// A turn begins.
    TurnStart(TurnStart) = "turnStart",
    /// A request goes to the model.
    TurnRequest(TurnRequest) = "turnRequest",
    /// A turn ends.
    TurnEnd(TurnEnd) = "turnEnd",
    /// A message begins.
    MessageStart(MessageStart) = "messageStart",
    /// A piece of a message came.
    MessageUpdate(MessageUpdate) = "messageUpdate",
    /// A message is complete.
    MessageEnd(MessageEnd) = "messageEnd",
    /// A tool is about to run.
    ToolExecutionStart(ToolExecutionStart) = "toolExecutionStart",
    /// A tool gave a part of its result.
    ToolExecutionUpdate(ToolExecutionUpdate) = "toolExecutionUpdate",
    /// A tool has run.
    ToolExecutionEnd(ToolExecutionEnd) = "toolExecutionEnd",
    /// A tool reports its progress.
    Progress(Progress) = "progress" | "progressMessage" | "ProgressMessage",
    /// A filter rejected the input.
    InputRejected(InputRejected) = "inputRejected",
    /// Several loops are about to answer the same prompt.
    ParallelLoopStart(ParallelLoopStart) = "parallelLoopStart",
    /// One of them was selected.
    ParallelLoopEnd(ParallelLoopEnd) = "parallelLoopEnd",
    /// A compaction begins.
    CompactionStarted(LoopNotice) = "compactionStarted",
    /// A compaction has ended.
    CompactionEnded(LoopNotice) = "compactionEnded",
    /// Messages were pruned from the agent's context.
    PruneApplied(LoopNotice) = "pruneApplied" | "prunApplied" | "PrunApplied",
    /// The agent's context was reverted to an earlier point.
    RevertApplied(LoopNotice) = "revertApplied",
}

impl AgentEvent {
    /// Reads one event.
    ///
    /// # Errors
    /// If `text` is not a JSON object with a `type`, or a required field of a known type is missing.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

impl Serialize for AgentEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error as _, SerializeMap};
        if let Self::Other(json) = self {
            return json.serialize(serializer);
        }
        let fields = self.fields().map_err(S::Error::custom)?;
        let fields: Fields = fields.read().map_err(S::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.name())?;
        for (key, value) in fields.extra.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for AgentEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        #[derive(Deserialize)]
        struct Tag {
            r#type: String,
        }
        let json = Json::deserialize(deserializer)?;
        let tag: Tag = json.read().map_err(D::Error::custom)?;
        match Self::read(&tag.r#type, &json).map_err(D::Error::custom)? {
            Some(event) => Ok(event),
            None => Ok(Self::Other(json)),
        }
    }
}

json_object! {
    /// An object without known fields.
    pub struct Fields {}
}

// Constructors without the optional fields.
impl AgentStart {
    /// Returns the start of a loop, with the current time. The loop continues the session's current loop.
    pub fn new(session_id: SessionId, loop_id: LoopId) -> Self {
        Self {
            agent_id: None,
            session_id,
            loop_id,
            parent_loop_id: None,
            parent_turn: None,
            parent_session_id: None,
            tool_call_id: None,
            tool_name: None,
            continuation_kind: None,
            timestamp: Some(Time::now()),
            metadata: None,
            config_snapshot: None,
            extra: Extra::default(),
        }
    }

    /// Makes the loop begin without a parent, with an empty context.
    #[must_use]
    pub fn fresh_start(mut self) -> Self {
        self.parent_loop_id = None;
        self.continuation_kind = Some(ContinuationKind::Initial);
        self
    }
}

impl AgentEnd {
    /// Returns the end of a loop, with the current time.
    pub fn new(loop_id: LoopId) -> Self {
        Self {
            loop_id,
            messages: Vec::new(),
            usage: None,
            timestamp: Some(Time::now()),
            rejection: None,
            aborted: None,
            extra: Extra::default(),
        }
    }
}

impl TurnStart {
    /// Returns the start of a turn, with the current time.
    pub fn new(loop_id: LoopId, turn_index: u32) -> Self {
        Self {
            loop_id,
            turn_index: i64::from(turn_index).into(),
            timestamp: Some(Time::now()),
            triggered_by: None,
            extra: Extra::default(),
        }
    }
}

impl TurnEnd {
    /// Returns the end of a turn, with the current time.
    pub fn new(loop_id: LoopId) -> Self {
        Self {
            loop_id,
            turn_index: None,
            message: None,
            usage: None,
            timestamp: Some(Time::now()),
            tool_results: Vec::new(),
            extra: Extra::default(),
        }
    }
}

impl MessageStart {
    /// Returns the start of a message.
    pub fn new(loop_id: LoopId, message: AgentMessage) -> Self {
        Self {
            loop_id,
            message,
            extra: Extra::default(),
        }
    }
}

impl MessageEnd {
    /// Returns the end of a message.
    pub fn new(loop_id: LoopId, message: AgentMessage) -> Self {
        Self {
            loop_id,
            message,
            extra: Extra::default(),
        }
    }
}

impl ToolExecutionStart {
    /// Returns the start of a tool call.
    pub fn new(
        loop_id: LoopId,
        tool_call_id: impl Into<String>,
        tool_name: impl Into<String>,
        args: Json,
    ) -> Self {
        Self {
            loop_id,
            tool_call_id: tool_call_id.into(),
            tool_name: tool_name.into(),
            args,
            idempotency_key: None,
            extra: Extra::default(),
        }
    }
}

impl ToolExecutionEnd {
    /// Returns the end of a successful tool call.
    pub fn new(
        loop_id: LoopId,
        tool_call_id: impl Into<String>,
        tool_name: impl Into<String>,
    ) -> Self {
        Self {
            loop_id,
            tool_call_id: tool_call_id.into(),
            tool_name: tool_name.into(),
            result: None,
            is_error: false,
            child_loop_id: None,
            child_session_id: None,
            extra: Extra::default(),
        }
    }
}
