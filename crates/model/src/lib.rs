//! The plain types of loopstore: sessions, loops, turns and messages, token counters, and the plan of a compaction.
//!
//! The JSON of the types is the interchange format: one document per session, as phi-core writes it. Unknown fields,
//! the text of times and the text of numbers are unchanged when a document is read and written again.
//!
//! [`tokens`] counts the tokens of messages. [`compaction`] has the configuration of a compaction, its plan over the
//! sizes of turns, and the traits of strategies, with the simplest strategies.
//!
//! The crate accesses no database and no file, and calls no model. The store is the crate `loopstore`, which exports
//! these types; programs use them from there.

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod applied_edits;
#[doc(hidden)]
pub mod author;
mod block;
#[doc(hidden)]
pub mod clock;
pub mod compaction;
mod content;
mod edit;
#[doc(hidden)]
pub mod extension_kinds;
#[doc(hidden)]
pub mod fast_parse;
mod ids;
mod image;
#[doc(hidden)]
pub mod json;
mod layout;
mod message;
mod plain_text;
mod provider;
#[doc(hidden)]
pub mod received;
#[doc(hidden)]
pub mod redaction;
mod session;
mod time;
pub mod tokens;
mod turn_map;
mod wire;

pub use applied_edits::{AppliedEdit, AppliedEdits, ClearedThinking, ClearedToolUses};
pub use author::Author;
pub use block::{CompactedSection, CompactionBlock, TurnRange};
pub use content::{Content, Image, Sealed, Text, Thinking, ToolCall};
pub use edit::EditAction;
#[doc(hidden)]
pub use ids::MAX_ID_BYTES;
pub use ids::{InvalidId, LoopId, SessionId};
#[doc(hidden)]
pub use image::{blob_id, image_data};
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
#[doc(hidden)]
pub use turn_map::GroupCursor;
pub use turn_map::TurnMap;
