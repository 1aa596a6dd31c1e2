//! loopstore stores the sessions of long-running agents in SQLite, with compaction as an overlay.
//!
//! An agent appends messages to a session, and loopstore never rewrites a stored message. When the context window
//! fills, a *compaction* writes *blocks* over the session: a block keeps some turns, shortens others, and replaces
//! the rest by a summary. The next model call reads the session through the blocks. Each compaction can be undone,
//! the context of any earlier turn can be built again, and all data are rows that `sqlite3` can query.
//!
//! # Promises
//!
//! - **Originals are immutable.** Triggers reject a change of a stored message, and each message has a digest. Only
//!   an explicit removal, such as a redaction, takes content out, and it leaves a receipt.
//! - **Compactions are overlays.** Blocks are numbered per loop. An undo or a redo adds a row and deletes nothing.
//! - **Appends are atomic.** A turn is stored whole or not at all, also after a power loss.
//! - **Coverage is recorded.** Each block lists the disposition of each turn that it covers, such as kept, truncated,
//!   summarised or dropped.
//! - **Attempts are audited.** Each attempt to compact leaves an audit row, also if it fails or a hook vetoes it. A
//!   call that finds nothing to compact leaves none.
//! - **Formats stay readable.** A later version opens each database that a released version wrote.
//!
//! # Example
//!
//! An agent records a prompt, calls its model, and records the answer. Then it reads an earlier context and begins a
//! branch.
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
//! The system prompt is appended like any message, read by [`provider::read`] from the field `system` of a request to
//! Anthropic, or from a message with the role `system`. A request begins with the newest one, no compaction covers it,
//! and [`Policy::system_prompts`] selects others. Answers bring their token usage: [`SessionHandle::usage`].
//!
//! # Modules
//!
//! Most programs need only the types at the top of this page: [`Store`], [`SessionHandle`], [`Policy`], [`Prepared`]
//! and [`Error`]. The modules are for programs that need more, from plain types to the parts of the store itself:
//!
//! | module | content |
//! | --- | --- |
//! | [`model`] | messages, loops and sessions |
//! | [`tokens`] | token counters |
//! | [`provider`] | conversion of messages from and to the JSON of providers |
//! | [`compaction`] | the plan of a compaction, and the strategies that make its texts |
//! | [`context`] | the messages that the next model call sees |
//! | [`compact`] | compaction of a session in a store; undo, redo, pins and repair |
//! | [`handback`] | the working state of a session, for agents that compact by themselves |
//! | [`search`](mod@search) | search for messages, and answers from them |
//! | [`extend`] | the contract of a backend, its rows, keys and transactions; the parts of strategies |
//!
//! # Crates
//!
//! | to | use |
//! | --- | --- |
//! | read the transcripts of other agents | `loopstore-transcripts` |
//! | write sessions in the formats of other agents | `loopstore-export` |
//! | record agents that emit events | `loopstore-recorder` |
//! | record agents of editors (Agent Client Protocol) | `loopstore-acp` |
//! | find and replace secrets | `loopstore-redact` |
//! | show a session as one page | `loopstore-report` |
//! | find the turn that wrote a line of a file | `loopstore-blame` |
//! | check a database | `loopstore-verify` |
//! | remove, archive, back up or replay sessions | `loopstore-admin` |
//! | copy sessions to another database | `loopstore-copy` |
//! | store sessions in PostgreSQL | `loopstore-postgres` |
//! | store the conversations of rig | `loopstore-rig` |
//! | store the checkpoints of LangGraph | `loopstore-checkpoints` |
//! | use phi-core | `loopstore-phi` |
//! | work in a shell | `loopstore-cli`, the command `loopstore` |
//!
//! This crate also exports items of the crates that it is made of: `loopstore-model` (types and plans),
//! `loopstore-digest` (summaries without a model), `loopstore-summarize` (summaries by a model),
//! `loopstore-provider`, and `loopstore-core` (the rules for every backend). A program depends on `loopstore` only.
//! `ARCHITECTURE.md` describes how the crates depend on each other.
//!
//! # Features
//!
//! All features are off by default.
//!
//! | feature | adds |
//! | --- | --- |
//! | `http` | summaries by a model over HTTP |
//! | `sqlcipher` | encrypted databases |
//! | `tiktoken` | the token counters of OpenAI's models |
//! | `tokio` | `AsyncStore` and `AsyncSession`, the same calls for async code |
//! | `toml` | settings from a TOML file |

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
mod edit;
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
    Prepared, Result, SessionHandle, SessionSummary, Settings, SettingsError, Store, StoreOptions,
    StoredBlock, StrategyName, TurnRef,
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
pub use store::{Key, KeyError, OpenError, SessionCursor, SessionFilter, StoreError, UsageCost};

// Messages, loops and sessions.
#[doc(no_inline)]
pub use model::{
    AgentMessage, AssistantMessage, Author, ChildLoopRef, CompactedSection, CompactionBlock,
    Content, ContinuationKind, EditAction, ExtensionMessage, Extra, Image, Int, InvalidId, Json,
    LlmMessage, LoopId, LoopRecord, LoopStatus, MAX_JSON_DEPTH, Message, ParentSpawnRef, Role,
    Sealed, SealingProvider, Session, SessionId, Text, Thinking, Time, ToolCall, ToolResultMessage,
    Turn, TurnId, TurnMap, TurnRange, Turns, Usage, UserMessage,
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
    PinList, PinRef, PinReport, PinRequest, Policy, RepairReport, TokenSource,
    compact_session_loops, pin, pins, redo, repair_session, undo, unpin,
};
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use compaction::FutureSummarizer;
#[doc(no_inline)]
pub use compaction::{
    BlockCompactionStrategy, CancelFlag, CommandSummarizer, CompactionConfig, CompactionPolicy,
    CompactionScope, ContextConfig, ContextMessage, DefaultBlockCompaction, DigestCompaction,
    Draft, KeepRecent, LoopMessage, LoopSlice, ModelWindows, OlderLoops, Recent, RecentWindow,
    RollupSlice, StrategyError, SummarizeCompaction, SummarizeOptions, Summarizer, SummarizerError,
    Summary, SummaryAnswer, SummaryPrompt, SummaryRequest, SummaryRole, UnknownModel, UnknownWord,
};
#[doc(no_inline)]
pub use context::{BuildOptions, build_context_as_of, build_context_from_session, resolve_scope};

// Edits of messages in contexts.
pub use edit::{
    ClearToolResults, EditFilter, EditReport, EditRequest, EditTarget, EditedMessage,
    SkippedMessage, edit, restore,
};
#[doc(no_inline)]
pub use store::EditRefusal;

pub use sqlite::{SqliteOptions, SqliteStore};
#[doc(no_inline)]
pub use store::{Database, SessionStore};
