//! loopstore keeps the sessions of long-running agents in SQLite, with compaction as an overlay.
//!
//! An agent appends what happened, and nothing that it wrote is ever changed. When its context
//! window fills, a compaction writes *blocks* over loops: what to keep, what to shorten, what to
//! replace by a summary. The next model call reads through the blocks. A compaction can be undone,
//! and everything is plain rows that `sqlite3` can query.
//!
//! - Originals are never rewritten: triggers refuse it, and each message has a digest.
//! - A block is an overlay, numbered per loop; undo and redo are rows.
//! - A turn lands whole or not at all, also after a power loss.
//! - Every block says what became of each turn that it covers.
//! - Every attempt leaves an audit row.
//! - Every database of a released version opens.
//!
//! ```
//! # fn model(_: serde_json::Value) -> Result<serde_json::Value, loopstore::Error> {
//! #     Ok(serde_json::json!({"role": "assistant", "content": [{"type": "text", "text": "No."}]}))
//! # }
//! # let folder = tempfile::tempdir()?;
//! # std::env::set_current_dir(folder.path())?;
//! use loopstore::provider::{self, Form};
//! use loopstore::{AsOf, Message, Policy, Store, TurnRef};
//!
//! let store = Store::open("agent.db")?;
//! let chat = store.session("weather")?.with_policy(Policy::new(128_000));
//! chat.append([Message::user("Will it rain?")])?; // The session begins, and its first loop.
//! let ready = chat.prepare()?; // Compacted if the policy says so; it fits, or is an error.
//! let answer = model(ready.to(Form::Anthropic)?)?; // JSON of the provider, out and in.
//! chat.append(provider::read(Form::Anthropic, &answer)?)?; // Turns make themselves.
//! let then = chat.context_as_of(AsOf::turn("loop-1", 0))?; // As it was after any turn.
//! let side = chat.fork_at(TurnRef::new("loop-1", 0))?; // A branch: one row, nothing copied.
//! # assert_eq!((then.messages.len(), side.context()?.messages.len()), (2, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The page below begins with the front door: [`Store`], [`SessionHandle`], [`Policy`], [`Prepared`] and
//! [`Error`]; [`provider`] reads and writes what providers take and give, and the messages are in
//! [`model`]. Then come rooms for those who need more, each using only those before it: [`tokens`] counts,
//! [`compaction`] plans and makes the text, [`compact`] joins that to a store, [`context`] is what the next
//! model call sees, [`handback`] writes the working state for agents that compact by themselves,
//! [`search`](mod@search) finds messages. Behind [`extend`] stands the store itself: its
//! contract for backends, rows, keys and transactions; and what strategies of one's own are made of.
//!
//! Packages beside this one: `loopstore-transcripts` reads what other agents wrote, `loopstore-export` writes it,
//! `loopstore-redact` finds secrets, `loopstore-recorder` records agents that emit events, `loopstore-phi` holds
//! adapters for phi-core, and `loopstore-report` shows a session as one page. For those who run a database there are
//! `loopstore-verify` (checks), `loopstore-admin` (removals, archives, backups, replays) and `loopstore-copy` (to
//! another database).
//! `ARCHITECTURE.md` draws the map.

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("loopstore is tested on 64-bit little-endian machines only, and refuses others");

mod api;
pub mod compact;
pub mod compaction;
pub mod extend;
pub mod handback;
#[doc(hidden)]
pub mod internal;
pub mod search;
mod sqlite;

#[doc(no_inline)]
pub use loopstore_core::context;
#[doc(hidden)]
pub use loopstore_core::failpoints;
use loopstore_core::{overlay, store};
use loopstore_digest::words;
use loopstore_model::clock;
#[doc(no_inline)]
pub use loopstore_model::{self as model, tokens};
#[doc(no_inline)]
pub use loopstore_provider as provider;

// The front door.
pub use api::{
    Appended, CallState, Entry, EntryQuery, EntryRef, Error, KeyQuery, KeyedAppend, LoopSpec,
    Policy, Prepared, Result, SessionHandle, SessionSummary, Settings, SettingsError, Store,
    StoreOptions, StoredBlock, StrategyName, TurnRef,
};
#[cfg(feature = "tokio")]
pub use api::{AsyncSession, AsyncStore};
#[doc(no_inline)]
pub use context::{AsOf, Context};
pub use search::{
    Recall, RecallPart, SearchHit, SearchQuery, SearchResults, Snippet, recall, search,
};
pub use sqlite::Durability;
#[doc(no_inline)]
pub use store::{Key, KeyError, OpenError, SessionCursor, SessionFilter, StoreError};

// Messages, loops and sessions.
#[doc(no_inline)]
pub use model::{
    AgentMessage, AssistantMessage, Author, ChildLoopRef, CompactedSection, CompactionBlock,
    Content, ContinuationKind, ExtensionMessage, Extra, Image, Int, InvalidId, Json, LlmMessage,
    LoopId, LoopRecord, LoopStatus, MAX_JSON_DEPTH, Message, ParentSpawnRef, Role, Sealed,
    SealingProvider, Session, SessionId, Text, Thinking, Time, ToolCall, ToolResultMessage, Turn,
    TurnId, TurnMap, TurnRange, Turns, Usage, UserMessage,
};

// Tokens.
#[cfg(feature = "tiktoken")]
#[doc(no_inline)]
pub use tokens::TiktokenCounter;
#[doc(no_inline)]
pub use tokens::{
    COUNTERS, ContextTracker, HeuristicTokenCounter, TokenCounter, content_tokens, counter_named,
    estimate_tokens, message_tokens, total_tokens,
};

// When and how to compact, and what becomes of it.
pub use compact::{
    BudgetTooSmall, CompactReport, CompactRequest, CompactTrigger, CompactionEnded, CompactionHook,
    CompactionStarted, ContextTokens, Decision, FlipReport, FlipRequest, Hooks, Pin, PinChange,
    PinList, PinRef, PinReport, PinRequest, RepairReport, TokenSource, compact_session_loops, pin,
    pins, redo, repair_session, undo, unpin,
};
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use compaction::FutureSummarizer;
#[doc(no_inline)]
pub use compaction::{
    BlockCompactionStrategy, CancelFlag, CommandSummarizer, CompactionConfig, CompactionPolicy,
    CompactionScope, ContextConfig, DefaultBlockCompaction, DigestCompaction, Draft, KeepRecent,
    LoopSlice, ModelWindows, OlderLoops, Placed, Recent, RecentWindow, RollupSlice, Shown,
    StrategyError, SummarizeCompaction, SummarizeOptions, Summarizer, SummarizerError, Summary,
    SummaryAnswer, SummaryPrompt, SummaryRequest, SummaryRole, UnknownModel, UnknownWord,
};
#[doc(no_inline)]
pub use context::{BuildOptions, build_context_as_of, build_context_from_session, resolve_scope};

pub use sqlite::{SqliteOptions, SqliteStore};
#[doc(no_inline)]
pub use store::{Database, SessionStore};
