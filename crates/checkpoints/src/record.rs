//! The arguments and results of calls, and the stored records.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::{AgentMessage, Json, LoopId};
use serde::{Deserialize, Serialize};

/// The kinds of the extensions, which no model sees.
pub(crate) mod kinds {
    pub(crate) const CHECKPOINT: &str = "langgraph.checkpoint";
    pub(crate) const WRITES: &str = "langgraph.writes";
    pub(crate) const DELETED: &str = "langgraph.deleted";
    /// A message inserted into the middle of a list: it cannot be part of a line.
    pub(crate) const MESSAGE: &str = "langgraph.message";
}

/// A message of a session: its loop and its sequence there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MessagePosition(pub LoopId, pub u32);

/// A part of a list of messages: one stored message of any kind, or the messages of a line from one to
/// another, both inclusive, without extensions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<MessagePosition>", into = "Vec<MessagePosition>")]
pub struct Segment {
    /// The first message.
    pub from: MessagePosition,
    /// The last message; `None` if the segment has only the first.
    pub to: Option<MessagePosition>,
}

impl From<Segment> for Vec<MessagePosition> {
    fn from(segment: Segment) -> Self {
        std::iter::once(segment.from).chain(segment.to).collect()
    }
}

impl TryFrom<Vec<MessagePosition>> for Segment {
    type Error = String;

    fn try_from(places: Vec<MessagePosition>) -> Result<Self, String> {
        let mut places = places.into_iter();
        match (places.next(), places.next(), places.next()) {
            (Some(from), to, None) => Ok(Self { from, to }),
            _ => Err("a segment has one place or two".into()),
        }
    }
}

/// A part of a list of messages to store: stored segments, then new messages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPart {
    /// The segments that are stored already.
    #[serde(default)]
    pub kept: Vec<Segment>,
    /// The messages after the segments.
    #[serde(default)]
    pub new: Vec<AgentMessage>,
    /// The message, not in the list, after which a list without stored segments begins.
    #[serde(default)]
    pub behind: Option<MessagePosition>,
}

/// The new value of a channel: either field is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewValue {
    /// The value in the encoding of the caller.
    #[serde(default)]
    pub data: Option<Json>,
    /// A list of messages, each of which is stored once.
    #[serde(default)]
    pub list: Option<Vec<ListPart>>,
}

/// A checkpoint to store.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewCheckpoint {
    /// Its namespace; empty: the graph itself.
    #[serde(default)]
    pub ns: String,
    /// Its id.
    pub id: String,
    /// The checkpoint that it follows.
    #[serde(default)]
    pub parent: Option<String>,
    /// The checkpoint without values and versions, in the caller's encoding.
    pub checkpoint: Json,
    /// The version of each channel.
    pub versions: BTreeMap<String, Json>,
    /// The metadata.
    pub metadata: BTreeMap<String, Json>,
    /// The channels that have a value of a new version.
    #[serde(default)]
    pub values: BTreeMap<String, NewValue>,
    /// The channels that have a value of a version which is stored already.
    #[serde(default)]
    pub unchanged: BTreeSet<String>,
    /// The messages that values refer to, as lists; see [`Value::Data`].
    #[serde(default)]
    pub said: Vec<Vec<ListPart>>,
    /// The session of the segments, from [`PutResult::session`].
    #[serde(default)]
    pub session: Option<i64>,
}

/// The positions of the messages of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredList {
    /// The whole list.
    pub segments: Vec<Segment>,
    /// The new messages in order: the position of each one, and the index of its segment.
    pub new: Vec<(LoopId, u32, usize)>,
}

/// The result of storing a checkpoint or writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PutResult {
    /// The number of the session, which changes if the thread is deleted.
    pub session: i64,
    /// The lists of messages.
    pub lists: BTreeMap<String, StoredList>,
    /// The lists that values refer to.
    pub said: Vec<StoredList>,
    /// A sentence for each part of a report of cleared content that is not recorded as an edit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The writes of a task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewWrites {
    /// The namespace of the checkpoint.
    #[serde(default)]
    pub ns: String,
    /// The checkpoint that the task continues.
    pub id: String,
    /// The task.
    pub task: String,
    /// The path of the task in its step.
    #[serde(default)]
    pub path: String,
    /// Index, channel and value of each write. A write with a negative index replaces an earlier one.
    pub writes: Vec<(i64, String, Json)>,
    /// The messages that values refer to, as lists; see [`Value::Data`].
    #[serde(default)]
    pub said: Vec<Vec<ListPart>>,
    /// The session of the segments, from [`PutResult::session`].
    #[serde(default)]
    pub session: Option<i64>,
}

/// The value of a channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A value in the caller's encoding. A value that refers to messages is passed as `{"said": …}`, with the numbers
    /// of the messages, counted through all lists of `said`. Such a value is returned as `{"said": …, "list": […]}`;
    /// the list contains the messages by segments.
    Data {
        /// The value.
        data: Json,
    },
    /// A list of messages by segments.
    List {
        /// The segments.
        list: Vec<MessagesOf>,
    },
}

/// The messages of a segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MessagesOf {
    /// The segment.
    pub segment: Segment,
    /// The position of each message.
    pub places: Vec<MessagePosition>,
    /// The messages; `None` for a message that the caller has: see [`Bodies::Changed`].
    pub messages: Vec<Option<AgentMessage>>,
}

/// The messages whose content a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// All messages.
    All,
    /// Only messages that were redacted, pruned or removed since they were stored. The others are as the caller, which
    /// keeps them by their positions, has them: a stored message never changes otherwise.
    Changed,
}

/// A stored write: task, channel, value.
pub type Write = (String, String, Json);

/// A stored checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checkpoint {
    /// Its thread.
    pub thread: String,
    /// Its namespace.
    pub ns: String,
    /// Its id.
    pub id: String,
    /// The checkpoint that it follows.
    pub parent: Option<String>,
    /// The checkpoint without values and versions, in the caller's encoding.
    pub checkpoint: Json,
    /// The version of each channel.
    pub versions: BTreeMap<String, Json>,
    /// The metadata.
    pub metadata: BTreeMap<String, Json>,
    /// The values.
    pub values: BTreeMap<String, Value>,
    /// The writes of the tasks that continue it, in the order in which a step applies them.
    pub writes: Vec<Write>,
    /// The session's number.
    pub session: i64,
}

/// A reference to a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointRef {
    /// Its thread.
    pub thread: String,
    /// Its namespace.
    pub ns: String,
    /// Its id.
    pub id: String,
}

/// A query for checkpoints.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListQuery {
    /// Only checkpoints of this thread.
    pub thread: Option<String>,
    /// Only checkpoints of this namespace.
    pub ns: Option<String>,
    /// Only this checkpoint.
    pub id: Option<String>,
    /// Only checkpoints with smaller ids.
    pub before: Option<String>,
    /// Only checkpoints whose metadata have these values.
    pub filter: BTreeMap<String, serde_json::Value>,
    /// The maximum number of results.
    pub limit: Option<usize>,
}

/// The writes to a channel on the way to a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChannelHistory {
    /// The writes since `seed`, oldest first.
    pub writes: Vec<Write>,
    /// The value before these writes.
    pub seed: Option<Value>,
}

/// A checkpoint in its extension.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointRecord {
    pub(crate) ns: String,
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    pub(crate) checkpoint: Json,
    pub(crate) versions: BTreeMap<String, Json>,
    pub(crate) metadata: BTreeMap<String, Json>,
    /// The new values.
    pub(crate) values: BTreeMap<String, StoredValue>,
    /// The checkpoints that contain the other values.
    pub(crate) at: BTreeMap<String, MessagePosition>,
    /// The messages that values refer to.
    pub(crate) said: Vec<Segment>,
}

/// A value in a checkpoint's extension.
#[derive(Clone, Debug)]
pub(crate) enum StoredValue {
    Data(Json),
    List(Vec<Segment>),
}

/// Writes in their extension.
#[derive(Clone, Debug)]
pub(crate) struct WritesRecord {
    pub(crate) ns: String,
    pub(crate) id: String,
    pub(crate) task: String,
    pub(crate) path: String,
    pub(crate) writes: Vec<(i64, String, Json)>,
    /// The messages that values refer to.
    pub(crate) said: Vec<Segment>,
}
