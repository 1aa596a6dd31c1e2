//! Contexts: the messages that the next model call sees.
//!
//! A context contains the chain of a leaf, root to leaf, and reads each loop through its active block: the sections
//! of the block in order, then the turns after the block. A loop without an active block is read as it was recorded,
//! up to the point where the chain leaves it. A build reads only the messages that it returns.

#[doc(hidden)]
pub mod as_of;
#[doc(hidden)]
pub mod build;
mod built;
#[doc(hidden)]
pub mod chain;
mod live;
#[doc(hidden)]
pub mod manifest;
#[doc(hidden)]
pub mod over_time;
mod prompt;
mod recent_window;
mod sealed_faults;
#[doc(hidden)]
mod settings;
#[doc(hidden)]
pub mod states;

use std::ops::ControlFlow;

use crate::compaction::{
    CompactionConfig, CompactionScope, ContextConfig, OlderLoops, RecentWindow,
};
use crate::model::{AgentMessage, LoopId, SealingProvider, SessionId};
use crate::overlay::SealedRecord;
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{
    self, LoopKey, SessionKey, SessionStore, Size, StoreError, StoreRead, StoreResult,
};

use manifest::{BuiltAt, row_of};

pub use as_of::AsOf;
#[doc(hidden)]
pub use as_of::{leaf_of, moment_of, session_of};
#[doc(hidden)]
pub use build::{build, messages_with, originals_of, placed_messages, shown_messages};
pub use built::{BuildError, BuildOptions, Context, Part, PartSection};
#[doc(hidden)]
pub use chain::{Chain, Purpose, size_with};
#[doc(hidden)]
pub use live::KeptContext;
pub use loopstore_provider::faults::{ContextFault, FaultKind};
#[doc(hidden)]
pub use loopstore_provider::faults::{continues_answer, faults_of, introduced, open_calls};
#[doc(hidden)]
pub use prompt::system_prompt;
pub use prompt::{SystemPrompt, SystemPrompts};
#[doc(hidden)]
pub use states::TurnState;

/// Builds the context of the next model call of a session.
///
/// # Errors
/// If the session, loop, run or turn does not exist, or the messages do not fit
/// [`BuildOptions::budget`].
///
/// # Examples
/// ```
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let context = build_context_from_session(store.database(), chat.id(), &BuildOptions::default())?;
/// assert_eq!(context.messages.len(), 41);
/// assert!(context.faults.is_empty());
/// // What does not fit is an error, never a part of the context.
/// let options = BuildOptions { budget: Some(1_000), ..BuildOptions::default() };
/// assert!(build_context_from_session(store.database(), chat.id(), &options).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn build_context_from_session(
    store: &dyn SessionStore,
    session: &SessionId,
    given: &BuildOptions,
) -> Result<Context, BuildError> {
    let (mut built, mut needed) = (None, None);
    store.read(Box::new(|read| {
        let recorded = manifest::named(read, session, given)?;
        let as_recorded = recorded
            .as_ref()
            .map(|row| manifest::options_of(row, given));
        let options = as_recorded.transpose()?;
        let options = options.as_ref().unwrap_or(given);
        let (owner, leaf, view) = find_leaf(read, session, options)?;
        if options.record && view.leaf_end.is_some() {
            let why = "a context before a message leaves no manifest";
            return Err(StoreError::Invalid(why.into()));
        }
        let mut chain = Chain::load_active(read, (owner, leaf), view, options)?;
        if let Some(recorded) = &recorded {
            manifest::start_as_recorded(&mut chain, recorded);
        }
        needed = too_large(chain.size(), options);
        if needed.is_none() {
            let (mut context, outline) = build(read, session, &chain, options)?;
            let mut manifest = None;
            if let Some(recorded) = recorded {
                manifest::check(&recorded, &outline)?;
                context.manifest = Some(recorded.manifest_id);
            } else if options.record {
                let built_at = BuiltAt {
                    session: owner,
                    leaf,
                    tick: match view.at {
                        Some(tick) => tick,
                        None => read.session_by_key(owner)?.tick,
                    },
                    older_loops: &chain.older_loops.to_string(),
                    counter: store.counter().name(),
                };
                manifest = Some(row_of(&built_at, outline));
            }
            built = Some((context, manifest));
        }
        Ok(())
    }))?;
    if let Some(needed) = needed {
        return Err(needed);
    }
    let none = || StoreError::Invalid("the store did not run the read".into());
    let (mut context, manifest) = built.ok_or_else(none)?;
    if let Some(manifest) = manifest {
        store.write(Box::new(|write| {
            write.insert_manifest(&manifest).map(|_| ())
        }))?;
        context.manifest = Some(manifest.manifest_id);
    }
    Ok(context)
}

/// Returns the parts of the context that [`build_context_from_session`] would return, from stored sizes: no
/// message is built, and budgets do not count.
///
/// # Errors
/// If the session, loop or moment does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::context::context_parts;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// # let trigger = CompactTrigger::Force;
/// # let request = CompactRequest { trigger, ..CompactRequest::default() };
/// chat.compact(&request)?;
/// let parts = context_parts(store.database(), chat.id(), &BuildOptions::default())?;
/// let sections: Vec<&str> = parts.iter().map(|part| part.section.as_str()).collect();
/// assert_eq!(sections, ["first", "compacted", "recent"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn context_parts(
    store: &dyn SessionStore,
    session: &SessionId,
    options: &BuildOptions,
) -> StoreResult<Vec<Part>> {
    store::read(store, |read| {
        let (owner, leaf, view) = find_leaf(read, session, options)?;
        let chain = Chain::load_active(read, (owner, leaf), view, options)?;
        build::parts_of(read, &chain)
    })
}

/// Builds the context of a session's next model call at a moment: after a run, for the run's own loop;
/// after a turn, for its loop. Later appends, compactions and undos do not count.
///
/// # Errors
/// If the session, run, loop or turn does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// # let trigger = CompactTrigger::Force;
/// # let request = CompactRequest { trigger, ..CompactRequest::default() };
/// chat.compact(&request)?;
/// let then = AsOf::turn("loop-1", 4);
/// let context = build_context_as_of(store.database(), chat.id(), then)?;
/// assert_eq!(context.messages.len(), 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn build_context_as_of(
    store: &dyn SessionStore,
    session: &SessionId,
    as_of: AsOf,
) -> Result<Context, BuildError> {
    let options = BuildOptions {
        as_of: Some(as_of),
        ..BuildOptions::default()
    };
    build_context_from_session(store, session, &options)
}

/// Returns the error for a context that is too large, if it is.
fn too_large(shown: Size, options: &BuildOptions) -> Option<BuildError> {
    let tokens = shown.tokens;
    if let Some(budget) = options.budget.filter(|budget| tokens > *budget) {
        return Some(BuildError::NeedsCompaction { tokens, budget });
    }
    let bytes = shown.bytes;
    let budget = options.max_bytes.filter(|budget| bytes > *budget)?;
    Some(BuildError::NeedsFewerBytes { bytes, budget })
}

/// Returns the number of loops before the leaf that are in `scope`.
///
/// One recursive query walks the chain over stored totals and stops when it has the answer; no
/// message body is read. With [`CompactionScope::TokenBudget`] each loop costs what it shows now,
/// the leaf included; an exact fit is in scope. A loop that shows the call of a result in scope is
/// in scope too.
///
/// # Errors
/// If the session or the loop does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("chat")?;
/// for _ in 0..5 {
///     chat.begin_loop(LoopSpec::default())?;
///     chat.append([Message::user("x".repeat(384))])?;
/// }
/// // A chain of five loops with 100 tokens each: beside the leaf two more fit.
/// let window = ContextConfig { max_context_tokens: 350, ..ContextConfig::default() };
/// let loops = resolve_scope(store.database(), chat.id(), None, CompactionScope::TokenBudget, &window)?;
/// assert_eq!(loops, 2);
/// let loops = resolve_scope(store.database(), chat.id(), None, CompactionScope::FixedCount(9), &window)?;
/// assert_eq!(loops, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn resolve_scope(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
    scope: CompactionScope,
    window: &ContextConfig,
) -> StoreResult<usize> {
    let config = CompactionConfig {
        compaction_scope: scope,
        older_loops: OlderLoops::Skip,
        recent_window: RecentWindow::CurrentLoop,
        ..CompactionConfig::default()
    };
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let leaf = leaf_of(read, &owner, leaf)?.key;
        let view = ChainView::default();
        let chain = Chain::load(read, leaf, view, &config, window, Purpose::Build)?;
        Ok(chain.links.len() - 1 - chain.start)
    })
}

/// Returns the view of a context for a provider, or for none in particular.
pub fn view_for(provider: Option<SealingProvider>) -> ChainView {
    ChainView {
        provider,
        ..ChainView::default()
    }
}

/// Returns the position of the provider's compaction that replaces all messages before it, if the chain has
/// one.
///
/// # Errors
/// If the store fails.
pub fn live_compaction(
    read: &dyn StoreRead,
    leaf: LoopKey,
    provider: SealingProvider,
) -> StoreResult<Option<LiveCompaction>> {
    let mut found = None;
    ActiveBlocks::new(read, leaf, view_for(Some(provider))).run(&mut |link| {
        found = link.block.filter(|block| block.kind.is_sealed());
        Ok(ControlFlow::Continue(()))
    })?;
    let Some(block) = found else {
        return Ok(None);
    };
    if let Some(record) = SealedRecord::of(&read.run_by_key(block.run)?) {
        let place = LiveCompaction::InMessage(block.loop_key, record.seq);
        return Ok(Some(place));
    }
    for message in read.block_messages(block.key)? {
        let Some(body) = message.body else { continue };
        let message = store::decode(read, body)?;
        if message
            .last_compaction()
            .is_some_and(|(_, by)| by == provider)
        {
            let (loop_key, end_seq) = (block.loop_key, block.through);
            return Ok(Some(LiveCompaction::Behind(
                loop_key,
                end_seq,
                message.into(),
            )));
        }
    }
    Ok(None)
}

/// The position of the compaction that counts for a provider.
pub enum LiveCompaction {
    /// In this message of a loop.
    InMessage(LoopKey, u32),
    /// In a message of its own, which is not a message of the loop: it follows the messages of the loop before this
    /// sequence.
    Behind(LoopKey, u32, Box<AgentMessage>),
}

/// Finds the session and the leaf, and the view of the moment.
fn find_leaf(
    read: &dyn StoreRead,
    session: &SessionId,
    options: &BuildOptions,
) -> StoreResult<(SessionKey, LoopKey, ChainView)> {
    let Some(as_of) = &options.as_of else {
        let (session, leaf) = keys_of(read, session, options.leaf.as_ref())?;
        return Ok((session, leaf, view_for(options.provider)));
    };
    let owner = session_of(read, session)?;
    let (leaf, mut view) = moment_of(read, &owner, as_of)?;
    view.provider = options.provider;
    Ok((owner.key, leaf.key, view))
}

/// Returns the keys of a session and of the loop named, or of its current one.
///
/// # Errors
/// If the session or the loop does not exist.
pub fn keys_of(
    read: &dyn StoreRead,
    session: &SessionId,
    leaf: Option<&LoopId>,
) -> StoreResult<(SessionKey, LoopKey)> {
    // Called before each model call, so only the keys are read.
    if leaf.is_none()
        && let Some(keys) = read.current(session)?
    {
        return Ok(keys);
    }
    let owner = session_of(read, session)?;
    Ok((owner.key, leaf_of(read, &owner, leaf)?.key))
}

/// Returns the tokens of the system prompts that a chain was recorded with.
///
/// # Errors
/// If the session or the loop does not exist.
///
/// # Examples
/// ```
/// use loopstore::context::system_tokens;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// // A transcript's system prompt is kept as an extension of the kind `system`.
/// let prompt = AgentMessage::extension("system", Json::string("You know the weather."));
/// chat.append([prompt])?;
/// assert_eq!(system_tokens(store.database(), chat.id(), None)?, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn system_tokens(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
) -> StoreResult<u64> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let leaf = leaf_of(read, &owner, leaf)?;
        let mut tokens = 0;
        read.walk(leaf.key, &mut |row| {
            tokens += row.progress.system_tokens;
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(tokens)
    })
}
