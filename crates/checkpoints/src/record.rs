//! What is asked for, what is stored, and what is given back.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::{AgentMessage, Json, LoopId};
use serde::{Deserialize, Serialize};

/// The kinds of the extensions that hold what no model sees.
pub(crate) mod kinds {
    pub(crate) const CHECKPOINT: &str = "langgraph.checkpoint";
    pub(crate) const WRITES: &str = "langgraph.writes";
    pub(crate) const DELETED: &str = "langgraph.deleted";
    /// A message that came into the middle of a list: no line can hold it there.
    pub(crate) const MESSAGE: &str = "langgraph.message";
}

/// A message of a session: its loop and its sequence there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place(pub LoopId, pub u32);

/// A part of a list of messages: one stored message whatever it is, or what a line holds from one message to
/// another, both inclusive, without the extensions among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Place>", into = "Vec<Place>")]
pub struct Segment {
    /// The first message.
    pub from: Place,
    /// The last one of a line; `None`: the first is all.
    pub to: Option<Place>,
}

impl From<Segment> for Vec<Place> {
    fn from(segment: Segment) -> Self {
        std::iter::once(segment.from).chain(segment.to).collect()
    }
}

impl TryFrom<Vec<Place>> for Segment {
    type Error = String;

    fn try_from(places: Vec<Place>) -> Result<Self, String> {
        let mut places = places.into_iter();
        match (places.next(), places.next(), places.next()) {
            (Some(from), to, None) => Ok(Self { from, to }),
            _ => Err("a segment has one place or two".into()),
        }
    }
}

/// A part of a list of messages that is to be stored: what of it is stored already, or new messages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// What is stored.
    #[serde(default)]
    pub kept: Vec<Segment>,
    /// The messages behind that.
    #[serde(default)]
    pub new: Vec<AgentMessage>,
    /// Where a list that keeps nothing goes on: behind this message, which is none of it.
    #[serde(default)]
    pub behind: Option<Place>,
}

/// The new value of a channel: one of the two.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewValue {
    /// In the caller's encoding.
    #[serde(default)]
    pub data: Option<Json>,
    /// A list of messages, each of which is stored once.
    #[serde(default)]
    pub list: Option<Vec<Part>>,
}

/// A checkpoint that is to be stored.
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
    /// What is known of it.
    pub metadata: BTreeMap<String, Json>,
    /// The channels that have a value of a new version.
    #[serde(default)]
    pub values: BTreeMap<String, NewValue>,
    /// The channels that have a value of a version which is stored already.
    #[serde(default)]
    pub unchanged: BTreeSet<String>,
    /// The messages that values refer to, as lists; see [`Value::Data`].
    #[serde(default)]
    pub said: Vec<Vec<Part>>,
    /// The session that the segments are of, as [`Stored::session`] says.
    #[serde(default)]
    pub session: Option<i64>,
}

/// Where the messages of a list went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredList {
    /// The whole list.
    pub segments: Vec<Segment>,
    /// The new messages in order: where each one is, and which segment holds it.
    pub new: Vec<(LoopId, u32, usize)>,
}

/// What a put did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// The session's number: another one after the thread was deleted.
    pub session: i64,
    /// The lists of messages.
    pub lists: BTreeMap<String, StoredList>,
    /// The lists that values refer to.
    pub said: Vec<StoredList>,
}

/// What a task wrote.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewWrites {
    /// The namespace of the checkpoint.
    #[serde(default)]
    pub ns: String,
    /// The checkpoint that the task goes on from.
    pub id: String,
    /// The task.
    pub task: String,
    /// Where the task stands in its step.
    #[serde(default)]
    pub path: String,
    /// Index, channel and value of each write. One with a negative index is written over an earlier one.
    pub writes: Vec<(i64, String, Json)>,
    /// The messages that values refer to, as lists; see [`Value::Data`].
    #[serde(default)]
    pub said: Vec<Vec<Part>>,
    /// The session that the segments are of, as [`Stored::session`] says.
    #[serde(default)]
    pub session: Option<i64>,
}

/// The value of a channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// In the caller's encoding. One that refers to messages was given as `{"said": …}`, where the caller says
    /// which of them it means, counted through all lists of `said`. It comes back as
    /// `{"said": …, "list": […]}`: the list holds the messages by segments.
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
    /// Where each message is.
    pub places: Vec<Place>,
    /// The messages.
    pub messages: Vec<AgentMessage>,
}

/// A write that is stored: task, channel, value.
pub type Write = (String, String, Json);

/// A checkpoint as it is stored.
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
    /// The checkpoint without values and versions, as it was given.
    pub checkpoint: Json,
    /// The version of each channel.
    pub versions: BTreeMap<String, Json>,
    /// What is known of it.
    pub metadata: BTreeMap<String, Json>,
    /// The values.
    pub values: BTreeMap<String, Value>,
    /// What tasks wrote that go on from it, in the order in which a step applies them.
    pub writes: Vec<Write>,
    /// The session's number.
    pub session: i64,
}

/// Where a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointRef {
    /// Its thread.
    pub thread: String,
    /// Its namespace.
    pub ns: String,
    /// Its id.
    pub id: String,
}

/// Which checkpoints to list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListQuery {
    /// Of this thread only.
    pub thread: Option<String>,
    /// Of this namespace only.
    pub ns: Option<String>,
    /// This one only.
    pub id: Option<String>,
    /// Those whose id is smaller.
    pub before: Option<String>,
    /// Those whose metadata have these values.
    pub filter: BTreeMap<String, serde_json::Value>,
    /// At most so many.
    pub limit: Option<usize>,
}

/// What a channel got on the way to a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChannelHistory {
    /// The writes since `seed`, oldest first.
    pub writes: Vec<Write>,
    /// The value that they go on from.
    pub seed: Option<Value>,
}

/// A checkpoint in its extension.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) ns: String,
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    pub(crate) checkpoint: Json,
    pub(crate) versions: BTreeMap<String, Json>,
    pub(crate) metadata: BTreeMap<String, Json>,
    /// What is new.
    pub(crate) values: BTreeMap<String, StoredValue>,
    /// The checkpoints in which the other values stand.
    pub(crate) at: BTreeMap<String, Place>,
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
