//! The configuration and the strategies of a compaction.
//!
//! Nothing in this module depends on a store. A strategy reads a loop through a [`LoopSlice`].
//!
//! A request names the strategy of its run:
//!
//! ```
//! use loopstore::*;
//! use std::sync::Arc;
//!
//! /// Says only how much is gone.
//! struct Gone;
//!
//! impl BlockCompactionStrategy for Gone {
//!     fn name(&self) -> &str {
//!         "gone"
//!     }
//!
//!     fn keep_compacted(
//!         &self,
//!         slice: &LoopSlice<'_>,
//!         turns: Turns,
//!         _: &CompactionConfig,
//!     ) -> Result<Summary, StrategyError> {
//!         let text = format!("[{} messages are left out]", slice.messages(turns)?.len());
//!         // No turn counts as summarised: the text says nothing of any.
//!         Ok(Summary { messages: vec![Message::user(text).into()], ..Summary::default() })
//!     }
//! }
//!
//! let store = Store::in_memory()?;
//! let chat = store.session("weather")?;
//! let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
//! chat.append([Message::user("How is the weather?")])?;
//! chat.append((0..40).map(report))?;
//! let mut request = CompactRequest::default();
//! # request.trigger = CompactTrigger::Force;
//! request.policy.compaction.block_strategy = Some(Arc::new(Gone));
//! let report = chat.compact(&request)?;
//! assert_eq!(report.strategy, "gone");
//! let context = chat.context()?;
//! assert_eq!(context.messages[3], Message::user("[28 messages are left out]").into());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A model writes the text through a [`Summarizer`]:
//!
//! ```
//! use loopstore::*;
//! use std::sync::Arc;
//!
//! /// Stands for a model.
//! struct Model;
//!
//! impl Summarizer for Model {
//!     fn name(&self) -> &str {
//!         "model"
//!     }
//!
//!     fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
//!         let text = "## Task\nWatch the weather.\n\n## Plan\nStay inside: it rains.".to_owned();
//!         Ok(SummaryAnswer { text, ..SummaryAnswer::default() })
//!     }
//! }
//!
//! let store = Store::in_memory()?;
//! let chat = store.session("weather")?;
//! let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
//! chat.append([Message::user("How is the weather?")])?;
//! chat.append((0..40).map(report))?;
//! let mut request = CompactRequest::default();
//! # request.trigger = CompactTrigger::Force;
//! request.policy.compaction.block_strategy = Some(Arc::new(SummarizeCompaction::new(Arc::new(Model))));
//! let report = chat.compact(&request)?;
//! // The model did it, and no fallback had to.
//! assert_eq!((&*report.strategy, report.fallback), ("summarize", None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The one-liner writes a line for each answer:
//!
//! ```
//! use loopstore::*;
//! use std::sync::Arc;
//!
//! let store = Store::in_memory()?;
//! let chat = store.session("weather")?;
//! let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
//! chat.append([Message::user("How is the weather?")])?;
//! chat.append((0..40).map(report))?;
//! let mut request = CompactRequest::default();
//! # request.trigger = CompactTrigger::Force;
//! request.policy.compaction.block_strategy = Some(Arc::new(DefaultBlockCompaction));
//! let report = chat.compact(&request)?;
//! assert_eq!(report.strategy, "one-liner");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[doc(no_inline)]
pub use loopstore_digest::DigestCompaction;
#[doc(no_inline)]
pub use loopstore_model::compaction::{
    BlockCompactionStrategy, CancelFlag, CompactionConfig, CompactionPolicy, CompactionScope,
    ContextConfig, ContextMessage, DefaultBlockCompaction, Draft, KeepRecent, LoopMessage,
    LoopSlice, ModelWindows, OlderLoops, Recent, RecentWindow, RollupSlice, StrategyError, Summary,
    SummaryNotes, UnknownModel, UnknownWord,
};
pub(crate) use loopstore_model::compaction::{
    Budget, DEFAULT_STRATEGY, EarlierBlock, OutputSize, PrunedMessage, Pruning, ReadError,
    RunConfig, cut_recent, cut_tool_result, growth, has_no_content, output_cap, plan,
};
#[cfg(feature = "tokio")]
#[doc(no_inline)]
pub use loopstore_summarize::FutureSummarizer;
#[doc(no_inline)]
pub use loopstore_summarize::{
    self as summarize, CommandSummarizer, SummarizeCompaction, SummarizeOptions, Summarizer,
    SummarizerError, SummaryAnswer, SummaryPrompt, SummaryRequest, SummaryRole,
};
