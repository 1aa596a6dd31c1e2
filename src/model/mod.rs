//! Plain types: what a session, a loop, a turn and a message are.
//!
//! Their JSON is the interchange form: one document per session, as phi-core writes it. Unknown
//! fields, the text of times and the text of numbers survive reading and writing.

pub(crate) mod author;
mod block;
mod content;
pub(crate) mod extension_kinds;
pub(crate) mod fast_parse;
pub(crate) mod ids;
mod image;
#[doc(hidden)]
pub mod json;
mod layout;
mod message;
mod plain_text;
mod provider;
pub(crate) mod received;
mod session;
mod time;
pub(crate) mod turn_map;
mod wire;

pub use author::Author;
pub use block::{CompactedSection, CompactionBlock, TurnRange};
pub use content::{Content, Image, Sealed, Text, Thinking, ToolCall};
pub(crate) use ids::MAX_ID_BYTES;
pub use ids::{InvalidId, LoopId, SessionId};
pub(crate) use image::{blob_id, image_data};
pub use json::{Extra, Int, Json, MAX_JSON_DEPTH};
pub use layout::{Layout, Size, Turns};
pub use message::{
    AgentMessage, AssistantMessage, ExtensionMessage, LlmMessage, Message, Role, ToolResultMessage,
    TurnId, Usage, UserMessage,
};
pub use provider::SealingProvider;
pub use session::{
    ChildLoopRef, ContinuationKind, LoopRecord, LoopStatus, ParentSpawnRef, Session, Turn,
};
pub use time::Time;
pub(crate) use turn_map::GroupCursor;
pub use turn_map::TurnMap;
