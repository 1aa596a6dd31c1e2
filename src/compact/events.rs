//! The events of a compaction, and the hooks that receive them.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::approval::{Approval, Proposal};
use super::guard::guarded;
use super::outcome::CompactOutcome;
use super::snapshot::ContextTokens;
use crate::model::{LoopId, SessionId};

/// The start of a compaction: its trigger has fired, and no text has been requested yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "compactionStarted", rename_all = "camelCase")]
pub struct CompactionStarted {
    /// The session.
    pub session_id: SessionId,
    /// The leaf.
    pub loop_id: LoopId,
    /// The trigger.
    pub trigger: String,
    /// The name of the strategy.
    pub strategy: String,
    /// The size of the context with which the trigger was evaluated, and the source of that size.
    pub asked_about: ContextTokens,
    /// Tokens of the context.
    pub tokens_before: u64,
    /// Bytes of the context.
    pub bytes_before: u64,
    /// Messages of the context.
    pub messages_before: u64,
    /// The time of the event, as ISO-8601 text.
    pub timestamp: String,
}

/// The end of a compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "compactionEnded", rename_all = "camelCase")]
pub struct CompactionEnded {
    /// The session.
    pub session_id: SessionId,
    /// The leaf.
    pub loop_id: LoopId,
    /// The outcome.
    pub outcome: CompactOutcome,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// Tokens of the context after, or as it would have been.
    pub tokens_after: u64,
    /// Messages of the context before.
    pub messages_before: u64,
    /// Messages of the context after, or as it would have been.
    pub messages_after: u64,
    /// The time of the event, as ISO-8601 text.
    pub timestamp: String,
}

/// The decision of a hook about a compaction that is about to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Compact.
    Proceed,
    /// Do not compact, for this reason. The run is recorded as vetoed.
    Veto(String),
}

/// A context that has reached [`Policy::warn_at`](super::Policy::warn_at()) without reaching the trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowWarning {
    /// The session.
    pub session_id: SessionId,
    /// Tokens of the context and of the system prompt, as the store counts them.
    pub tokens: u64,
    /// The window in tokens.
    pub window: u64,
    /// The used share of the window in percent, rounded down.
    pub percent: u32,
}

/// A hook that is called around a compaction, with no transaction open.
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
/// request.policy.hooks.push(Arc::new(NotNow));
/// let report = chat.compact(&request)?;
/// assert_eq!(report.outcome, CompactOutcome::Vetoed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CompactionHook: Send + Sync {
    /// Called before anything is read: a hook may save the messages that will be hidden, or veto the compaction.
    fn before(&self, _: &CompactionStarted) -> Decision {
        Decision::Proceed
    }

    /// Called with the texts and the context as it would be, before a commit. The hook may refuse, postpone or rewrite
    /// the compaction. A dry run does not call it.
    ///
    /// ```
    /// use loopstore::compact::{Approval, CompactOutcome, CompactionHook, Proposal};
    /// use loopstore::*;
    ///
    /// struct ByHand;
    ///
    /// impl CompactionHook for ByHand {
    ///     fn approve(&self, proposal: &Proposal<'_>) -> Approval {
    ///         let text = |at| (at, "It rained for 28 hours.".to_owned());
    ///         let with_text = |at: &usize| proposal.blocks[*at].text.is_some();
    ///         Approval::Rewrite((0..proposal.blocks.len()).filter(with_text).map(text).collect())
    ///     }
    /// }
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?.with_policy(Policy::new(6_000).hook(ByHand));
    /// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
    /// chat.append([Message::user("How is the weather?")])?;
    /// chat.append((0..40).map(report))?;
    /// let prepared = chat.prepare()?;
    /// assert!(prepared.was_compacted());
    /// let texts = prepared.messages().iter().filter_map(|m| m.message()).flat_map(Message::texts);
    /// assert_eq!(texts.filter(|text| *text == "It rained for 28 hours.").count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn approve(&self, _: &Proposal<'_>) -> Approval {
        Approval::Commit
    }

    /// Called by [`SessionHandle::prepare`](crate::SessionHandle::prepare) and other compactions whose trigger did not
    /// fire, each time the context has reached [`Policy::warn_at`](super::Policy::warn_at()). A panic in it is caught.
    fn warn(&self, _: &WindowWarning) {}

    /// Called after the audit row is written, and after an import that contains a compaction of another tool. The
    /// hook cannot change the outcome; a panic in it is caught.
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

    /// Calls each hook; returns the reason of the first veto.
    pub(super) fn veto(&self, event: &CompactionStarted) -> Option<String> {
        self.0.iter().find_map(|hook| match hook.before(event) {
            Decision::Proceed => None,
            Decision::Veto(reason) => Some(reason),
        })
    }

    /// Returns the hooks in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn CompactionHook> {
        self.0.iter().map(|hook| &**hook)
    }

    /// Calls each hook; returns the message of one of the panics, if there was one.
    pub(super) fn warn(&self, warning: &WindowWarning) -> Option<String> {
        let panics = self.iter().map(|hook| guarded(|| hook.warn(warning)).err());
        panics.fold(None, Option::or)
    }

    /// True if there are no hooks.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls each hook after the end of a compaction. A panic in a hook is caught, and the other hooks are still
    /// called. Returns the message of one of the panics, if there was one.
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
