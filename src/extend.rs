//! For those who extend loopstore: the contract of a backend, its rows and keys, and the transactions below
//! the front door; and what strategies are made of. Importers of further formats are in `loopstore-transcripts`.
//!
//! A program that only keeps sessions needs none of this: see [`Store`](crate::Store). What stands here is
//! public so that a backend, a tool that repairs, or a recorder of another kind can be written outside of
//! the crate; it changes more often than the front page does.
//!
//! ```
//! use loopstore::extend::{self, append, session};
//! use loopstore::*;
//!
//! let store = SqliteStore::in_memory()?;
//! let id = SessionId::new("weather")?;
//! extend::write(&store, |write| {
//!     let key = session::create_session(write, &Session::new(id.clone(), "agent"), None, None)?;
//!     let first = LoopRecord::new(LoopId::generate(), None);
//!     let loop_key = session::create_loop(write, key, &first)?;
//!     let prompt = AgentMessage::from(Message::user("Will it rain?"));
//!     append::append(write, loop_key, vec![prompt.into()], store.counter())
//! })?;
//! let context = build_context_from_session(&store, &id, &BuildOptions::default())?;
//! assert_eq!(context.messages.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(no_inline)]
pub use crate::context::as_of::{leaf_of, moment_of, session_of};
#[doc(no_inline)]
pub use crate::context::over_time::SizesOverTime;
#[doc(no_inline)]
pub use crate::context::states::{LoopStates, ShownChain, shown_chain, turn_dispositions};
#[doc(no_inline)]
pub use loopstore_core::store::*;

/// SQLite alone: formats, and counting tokens anew; with what it shares with other backends.
pub mod sqlite {
    pub use crate::sqlite::{Durability, SqliteOptions, SqliteStore, format_version, recount};
    #[doc(no_inline)]
    pub use crate::sqlite::{
        QueryLimits, QueryRows, Record, RecountError, RecountProgress, RecountReport, Scrubbed,
        SessionView, Stats,
    };
}

/// What strategies are made of: the digest, what is cut, and the compaction of messages that
/// belong to no session.
pub mod compaction {
    #[doc(no_inline)]
    pub use loopstore_digest::activity::{
        Activity, AgentPlan, AgentWork, CallEffects, CallHistory, FileAct, FileEvent, FileWork,
        PendingCall, PlanItem, PlanState, SourceTurn,
    };
    #[doc(no_inline)]
    pub use loopstore_digest::{DIGEST, Digest, DigestInput, Digester, digest_of, document_work};
    #[doc(no_inline)]
    pub use loopstore_model::compaction::Budget;
    #[doc(no_inline)]
    pub use loopstore_model::compaction::RunConfig;
    #[doc(no_inline)]
    pub use loopstore_model::compaction::one_liner;
    #[doc(no_inline)]
    pub use loopstore_model::compaction::{
        CompactionStrategy, DefaultCompaction, compact_messages, keep_within_budget,
    };
    #[doc(no_inline)]
    pub use loopstore_model::compaction::{EarlierBlock, ReadError, TurnReader};
    #[doc(no_inline)]
    pub use loopstore_model::compaction::{
        OutputSize, PrunedMessage, Pruning, image_reference, output_cap,
    };
    #[doc(no_inline)]
    pub use loopstore_model::compaction::{cut_tool_result, truncate_head_tail};
}

/// What a provider would object to in any messages.
pub mod context {
    #[doc(no_inline)]
    pub use loopstore_provider::faults::{faults_of, introduced};
}

/// The upkeep of the search index, and what it takes for words.
pub mod search {
    pub use crate::search::catch_up::{Indexed, index, rebuild_index};
    pub use crate::search::query::{MAX_QUERY_WORDS, Query, parse_query};
    #[doc(no_inline)]
    pub use loopstore_digest::words::stems::content_words;
}
