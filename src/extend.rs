//! The items for extensions of loopstore: the contract of a backend, its rows, keys and transactions, and the parts
//! of strategies. Importers of further formats are in `loopstore-transcripts`.
//!
//! A program that only stores sessions needs none of these items; see [`Store`](crate::Store). They are public so
//! that another crate can be a backend, a repair tool or a recorder. They change more often than the items of the
//! crate root.
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

/// Items of the SQLite backend: the store, its format, and the recount of tokens.
pub mod sqlite {
    pub use crate::sqlite::{Durability, SqliteOptions, SqliteStore, format_version, recount};
    #[doc(no_inline)]
    pub use crate::sqlite::{
        QueryLimits, QueryRows, Record, RecountError, RecountProgress, RecountReport, ScrubState,
        SessionView, Stats,
    };
}

/// The parts of strategies: the digest, the cuts of tool outputs, and the compaction of messages without a session.
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

/// The faults for which a provider may reject messages.
pub mod context {
    #[doc(no_inline)]
    pub use loopstore_provider::faults::{faults_of, introduced};
}

/// The maintenance of the search index, the parser of queries, and the words of a text.
pub mod search {
    pub use crate::search::catch_up::{Indexed, index, rebuild_index};
    pub use crate::search::query::{MAX_QUERY_WORDS, Query, parse_query};
    #[doc(no_inline)]
    pub use loopstore_digest::words::stems::content_words;
}
