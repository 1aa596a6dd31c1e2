//! What happens around a compaction: events, and hooks that get them.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::guard::guarded;
use super::outcome::CompactOutcome;
use super::snapshot::ContextTokens;
use crate::model::{LoopId, SessionId};

/// A compaction begins: its trigger has fired, and nothing has been read or asked for yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "compactionStarted", rename_all = "camelCase")]
pub struct CompactionStarted {
    /// The session.
    pub session_id: SessionId,
    /// The leaf.
    pub loop_id: LoopId,
    /// What asked for it.
    pub trigger: String,
    /// What makes the text.
    pub strategy: String,
    /// What the trigger was asked about, and who counted it.
    pub asked_about: ContextTokens,
    /// Tokens of the context.
    pub tokens_before: u64,
    /// Bytes of the context.
    pub bytes_before: u64,
    /// Messages of the context.
    pub messages_before: u64,
    /// When, as ISO-8601 text.
    pub timestamp: String,
}

/// A compaction has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "compactionEnded", rename_all = "camelCase")]
pub struct CompactionEnded {
    /// The session.
    pub session_id: SessionId,
    /// The leaf.
    pub loop_id: LoopId,
    /// How.
    pub outcome: CompactOutcome,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// Tokens of the context after, or as it would have been.
    pub tokens_after: u64,
    /// Messages of the context before.
    pub messages_before: u64,
    /// Messages of the context after, or as it would have been.
    pub messages_after: u64,
    /// When, as ISO-8601 text.
    pub timestamp: String,
}

/// What a hook says to a compaction that is about to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Proceed,
    /// Leave it, for this reason. The run is stored as vetoed.
    Veto(String),
}

/// Is called around a compaction, with no transaction open.
///
/// ```
/// use loopstore::compact::CompactOutcome;
/// use loopstore::*;
/// use std::sync::Arc;
///
/// struct NotNow;
///
/// impl CompactionHook for NotNow {
///     fn before(&self, begins: &CompactionStarted) -> Decision {
///         Decision::Veto(format!("{} tokens can wait", begins.tokens_before))
///     }
/// }
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let mut request = CompactRequest::default();
/// # request.trigger = CompactTrigger::Force;
/// request.hooks.push(Arc::new(NotNow));
/// let report = chat.compact(&request)?;
/// assert_eq!(report.outcome, CompactOutcome::Vetoed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CompactionHook: Send + Sync {
    /// Before anything is read for it; the place to save what it will hide, or to say no.
    fn before(&self, _: &CompactionStarted) -> Decision {
        Decision::Proceed
    }

    /// After its audit row is written, and after the import that brought a compaction of another tool. Nothing
    /// can be changed any more: a panic here ends with this call.
    fn after(&self, _: &CompactionEnded) {}
}

/// The hooks of a compaction or an import, in the order in which they are called.
#[derive(Clone, Default)]
pub struct Hooks(Vec<Arc<dyn CompactionHook>>);

impl Hooks {
    /// Adds a hook.
    pub fn push(&mut self, hook: Arc<dyn CompactionHook>) {
        self.0.push(hook);
    }

    /// Asks each hook; returns the reason of the first that says no.
    pub(super) fn veto(&self, event: &CompactionStarted) -> Option<String> {
        self.0.iter().find_map(|hook| match hook.before(event) {
            Decision::Proceed => None,
            Decision::Veto(reason) => Some(reason),
        })
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls each hook; one that panics keeps nothing from the others or from who compacts. Returns what
    /// one of them panicked with. What was written stays.
    #[doc(hidden)]
    pub fn after(&self, event: &CompactionEnded) -> Option<String> {
        let panics = self
            .0
            .iter()
            .map(|hook| guarded(|| hook.after(event)).err());
        panics.fold(None, Option::or)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hooks", self.0.len())
    }
}
