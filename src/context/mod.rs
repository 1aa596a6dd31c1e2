//! What the next model call sees.
//!
//! A context is the chain of a leaf, root to leaf, each loop read through the active block on
//! it: its sections in order, then its tail; without a block, raw up to the cut. Building reads
//! only what it returns.

mod build;
mod chain;
pub(crate) mod faults;
mod live;
mod manifest;
pub(crate) mod moment;
mod recent_window;
pub(crate) mod states;

use std::ops::ControlFlow;

use crate::compaction::{
    CompactionConfig, CompactionScope, ContextConfig, KeepRecent, Noted, OlderLoops, RecentWindow,
};
use crate::model::{
    AgentMessage, LoopId, Message, Role, SealingProvider, SessionId, Time, ToolCall,
};
use crate::overlay::SealedRecord;
use crate::store::active_blocks::{ActiveBlocks, View};
use crate::store::{
    self, LoopKey, SessionKey, SessionStore, Size, StoreError, StoreRead, StoreResult,
};

use manifest::{BuiltAt, row_of};

pub(crate) use build::{build, messages_with, originals_of, shown_messages};
pub(crate) use chain::{Chain, Purpose, size_with};
pub use faults::{ContextFault, FaultKind};
pub(crate) use faults::{Pairing, faults_of, goes_on, introduced};
pub(crate) use live::KeptContext;
pub(crate) use manifest::{derive, was_replaced};
pub(crate) use moment::{leaf_of, moment_of, session_of};
pub use states::TurnState;
pub(crate) use states::{LoopStates, turn_states};

/// A moment at which a context is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// For the run's own loop, just after its commit.
    Run(String),
    /// For that loop, just after the last message of that turn. A loop that went on counts as at
    /// work then: when loops end is not recorded.
    Turn {
        /// The loop.
        loop_id: LoopId,
        /// The turn, by position from 0.
        turn: u32,
    },
    /// For that loop, just before this message was appended: what the model saw if the message is
    /// its answer. Messages of the same append that stand before it are there already.
    Before {
        /// The loop.
        loop_id: LoopId,
        /// The message's sequence.
        seq: u32,
    },
}

impl AsOf {
    /// For this loop, just after the last message of this turn.
    pub fn turn(loop_id: impl Into<String>, turn: u32) -> Self {
        let loop_id = LoopId::of(loop_id);
        Self::Turn { loop_id, turn }
    }

    /// For the run's own loop, just after its commit.
    pub fn run(run_id: impl Into<String>) -> Self {
        Self::Run(run_id.into())
    }

    /// Just after the last turn or run of a session until this time; with a loop, of that loop. Times are
    /// those of the messages, as whoever recorded them said.
    ///
    /// # Errors
    /// If the session or the loop is not there, or nothing had happened by then.
    ///
    /// # Examples
    /// ```
    /// use loopstore::context::AsOf;
    /// use loopstore::*;
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// let json = r#"{"role":"user","content":[{"type":"text","text":"Will it rain?"}],
    ///     "timestamp":1767225600000}"#;
    /// chat.append([serde_json::from_str::<AgentMessage>(json)?])?;
    /// let new_year = Time::from_text("2026-01-01T00:00:00Z");
    /// let moment = AsOf::time(store.database(), chat.id(), None, &new_year)?;
    /// assert_eq!(chat.context_as_of(moment)?.messages.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time(
        store: &dyn SessionStore,
        session: &SessionId,
        of_loop: Option<&LoopId>,
        time: &Time,
    ) -> StoreResult<Self> {
        let invalid = || StoreError::Invalid(format!("`{}` is not a time", time.as_str()));
        let until = time.millis().ok_or_else(invalid)?;
        store::read(store, |read| {
            let owner = session_of(read, session)?;
            moment::last_until(read, &owner, of_loop, until)?.ok_or_else(|| {
                let time = time.as_str();
                StoreError::Invalid(format!("nothing is recorded of `{session}` until {time}"))
            })
        })
    }
}

/// What to build. Options that are not given come from the newest run that is live from the leaf,
/// else from the defaults.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// The leaf; the session's current loop if not given.
    pub leaf: Option<LoopId>,
    /// The moment; now if not given. It names the leaf itself.
    pub as_of: Option<AsOf>,
    /// The provider that the context goes to: its own compaction stands for what is before it. For `None`
    /// no such compaction counts.
    pub provider: Option<SealingProvider>,
    /// Tokens that the messages may have; more is an error.
    pub budget: Option<u64>,
    /// Bytes of JSON that the messages may have; more is an error.
    pub max_bytes: Option<u64>,
    /// What becomes of loops before the scope.
    pub older_loops: Option<OlderLoops>,
    /// The scope, for [`OlderLoops::Skip`].
    pub scope: Option<CompactionScope>,
    /// Whether to leave a manifest: a row that says which messages the context was made of.
    pub record: bool,
    /// Whether to compare each message with its digest; one that does not fit is an error. It is `verify`
    /// for what is shown, and makes a build about half slower, several times where the processor has
    /// no instructions for SHA-256.
    pub check: bool,
}

/// Where a part of a context comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartSection {
    /// The summary of everything up to its loop.
    Rollup,
    /// Kept word for word from the start.
    First,
    /// A summary.
    Compacted,
    /// Kept at the end, long tool outputs cut.
    Recent,
    /// After what the block covers.
    Tail,
    /// No block is active.
    Raw,
    /// The compaction that a provider made in the place of everything up to its loop.
    Sealed,
}

impl PartSection {
    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rollup => "rollup",
            Self::First => "first",
            Self::Compacted => "compacted",
            Self::Recent => "recent",
            Self::Tail => "tail",
            Self::Raw => "raw",
            Self::Sealed => "sealed",
        }
    }
}

/// Consecutive messages of a context from one section of one loop.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// The loop.
    pub loop_id: LoopId,
    /// The section.
    pub section: PartSection,
    /// The first turn that it stands for.
    pub from_turn: u32,
    /// The last one.
    pub to_turn: u32,
    /// Messages.
    pub messages: u64,
    /// Sum of their counts.
    pub tokens: u64,
}

impl Part {
    /// Whether these messages of the same section come right after.
    fn goes_on_with(&self, next: &Self) -> bool {
        (&self.loop_id, self.section) == (&next.loop_id, next.section)
    }
}

/// What the next model call sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    /// The leaf.
    pub leaf: LoopId,
    /// The messages in order.
    pub messages: Vec<AgentMessage>,
    /// Sum of the messages' counts.
    pub tokens: u64,
    /// Sum of the messages' JSON.
    pub bytes: u64,
    /// Where they come from.
    pub parts: Vec<Part>,
    /// What a provider would object to.
    pub faults: Vec<ContextFault>,
    /// The provider that it was built for, if for one.
    pub provider: Option<SealingProvider>,
    /// The message with the compaction of that provider which stands for all before, if one does.
    pub compaction: Option<usize>,
    /// The id of the manifest, if one was left.
    pub manifest: Option<String>,
}

impl Context {
    /// Returns the tool calls that have no result yet, in order.
    pub fn open_calls(&self) -> Vec<&ToolCall> {
        let mut open: Vec<&ToolCall> = Vec::new();
        for message in self.messages.iter().filter_map(AgentMessage::message) {
            match message {
                Message::ToolResult(result) => {
                    open.retain(|call| call.id != result.tool_call_id);
                }
                made => open.extend(made.tool_calls()),
            }
        }
        open
    }

    /// Whether the model is to be called: the last message is not its own, and no call is open.
    pub fn awaits_answer(&self) -> bool {
        let last = self.messages.iter().rev().find_map(AgentMessage::message);
        let is_input = last.is_some_and(|message| message.role() != Role::Assistant);
        is_input && self.open_calls().is_empty()
    }
}

/// Why a context was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store failed, or what was asked for is not there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The context does not fit.
    #[error("the context has {tokens} tokens and {budget} fit; compact it first")]
    NeedsCompaction {
        /// What it has.
        tokens: u64,
        /// What fits.
        budget: u64,
    },
    /// The context does not fit, for its bytes.
    #[error("the context has {bytes} bytes and {budget} fit; compact it first")]
    NeedsFewerBytes {
        /// What it has.
        bytes: u64,
        /// What fits.
        budget: u64,
    },
    /// A loop that is not there.
    #[error("{0}")]
    Invalid(String),
}

/// Builds what the next model call of a session sees.
///
/// # Errors
/// If the session, loop, run or turn is not there, or the messages do not fit
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
    options: &BuildOptions,
) -> Result<Context, BuildError> {
    let (mut built, mut needed) = (None, None);
    store.read(&mut |read| {
        let (owner, leaf, view) = find_leaf(read, session, options)?;
        if options.record && view.leaf_end.is_some() {
            let why = "a context before a message leaves no manifest";
            return Err(StoreError::Invalid(why.into()));
        }
        let plan = settings(read, owner, leaf, view, options)?;
        let chain = Chain::load(read, leaf, view, &plan.config, &plan.window, Purpose::Build)?;
        needed = too_large(chain.size(), options);
        if needed.is_none() {
            let (context, outline) = build(read, session, &chain, options)?;
            let mut manifest = None;
            if options.record {
                let moment = BuiltAt {
                    session: owner,
                    leaf,
                    tick: match view.at {
                        Some(tick) => tick,
                        None => read.session_by_key(owner)?.tick,
                    },
                    older_loops: &plan.config.older_loops.to_string(),
                    counter: store.counter().name(),
                };
                manifest = Some(row_of(&moment, outline));
            }
            built = Some((context, manifest));
        }
        Ok(())
    })?;
    if let Some(needed) = needed {
        return Err(needed);
    }
    let none = || StoreError::Invalid("the store did not run the read".into());
    let (mut context, manifest) = built.ok_or_else(none)?;
    if let Some(manifest) = manifest {
        store.write(&mut |write| write.insert_manifest(&manifest).map(|_| ()))?;
        context.manifest = Some(manifest.manifest_id);
    }
    Ok(context)
}

/// Returns the parts that [`build_context_from_session`] would give, from stored sizes: no message is
/// built, and budgets do not count.
///
/// # Errors
/// If the session, loop or moment is not there, or the store fails.
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
        let plan = settings(read, owner, leaf, view, options)?;
        let chain = Chain::load(read, leaf, view, &plan.config, &plan.window, Purpose::Build)?;
        build::parts_of(read, &chain)
    })
}

/// Builds what a session's next model call saw at a moment: after a run, for the run's own loop;
/// after a turn, for its loop. What was appended, compacted or undone since does not count.
///
/// # Errors
/// If the session, run, loop or turn is not there, or the store fails.
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

/// Says by how much a context is too large, if it is.
fn too_large(shown: Size, options: &BuildOptions) -> Option<BuildError> {
    let tokens = shown.tokens;
    if let Some(budget) = options.budget.filter(|budget| tokens > *budget) {
        return Some(BuildError::NeedsCompaction { tokens, budget });
    }
    let bytes = shown.bytes;
    let budget = options.max_bytes.filter(|budget| bytes > *budget)?;
    Some(BuildError::NeedsFewerBytes { bytes, budget })
}

/// Returns how many loops before the leaf are in `scope`.
///
/// One recursive query walks the chain over stored totals and stops when it has the answer; no
/// message body is read. With [`CompactionScope::TokenBudget`] each loop costs what it shows now,
/// the leaf included; an exact fit is in scope. A loop that shows the call of a result in scope is
/// in scope too.
///
/// # Errors
/// If the session or the loop is not there, or the store fails.
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
        let view = View::default();
        let chain = Chain::load(read, leaf, view, &config, window, Purpose::Build)?;
        Ok(chain.links.len() - 1 - chain.start)
    })
}

/// How a chain is read: the policy and the window.
#[derive(Clone, Debug)]
pub(crate) struct ChainSettings {
    pub(crate) config: CompactionConfig,
    pub(crate) window: ContextConfig,
}

/// Returns what a build takes from the newest live run, with the options that are given in its place.
///
/// Where older loops are rolled up a build leaves no loop out, and asks for no more than that word. Only
/// [`OlderLoops::Skip`] needs a scope, and so the run's configuration: else it is the default one.
pub(crate) fn settings(
    read: &dyn StoreRead,
    session: SessionKey,
    leaf: LoopKey,
    view: View,
    options: &BuildOptions,
) -> StoreResult<ChainSettings> {
    let mut walk = ActiveBlocks::new(read, leaf, view);
    let newest = walk.newest_live(session, |run| (run.key, run.older_loops.parse().ok()))?;
    let of_run = newest.and_then(|(_, older_loops)| older_loops);
    let older_loops = options.older_loops.or(of_run).unwrap_or_default();
    if older_loops == OlderLoops::Rollup {
        let config = CompactionConfig {
            older_loops,
            ..CompactionConfig::default()
        };
        let window = ContextConfig::default();
        return Ok(ChainSettings { config, window });
    }
    let json = match newest {
        // What a fallback left out must not come back: the context was checked without it.
        Some((run, _)) => {
            let run = read.run_by_key(run)?;
            Some(run.reached.unwrap_or(run.config))
        }
        None => None,
    };
    // A run of another tool or a later version may hold less or more: what is missing is default.
    let noted: Noted<'_> = json
        .as_deref()
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    let scope = options.scope.or_else(|| noted.scope.parse().ok());
    let config = CompactionConfig {
        keep_first_turns: noted.keep_first_turns,
        keep_recent: KeepRecent::Turns(noted.keep_recent_turns),
        compaction_scope: scope.unwrap_or(CompactionScope::FixedCount(3)),
        older_loops,
        recent_window: noted
            .recent_window
            .parse()
            .unwrap_or(RecentWindow::default()),
        max_summary_tokens: noted.max_summary_tokens,
        ..CompactionConfig::default()
    };
    let window = ContextConfig {
        max_context_tokens: options.budget.unwrap_or(noted.max_context_tokens),
        system_prompt_tokens: if options.budget.is_some() {
            0
        } else {
            noted.system_tokens
        },
        ..ContextConfig::default()
    };
    Ok(ChainSettings { config, window })
}

/// Returns how a context is seen that goes to a provider, or to nobody in particular.
pub(crate) fn view_for(provider: Option<SealingProvider>) -> View {
    View {
        provider,
        ..View::default()
    }
}

/// Returns the message of a chain that holds the provider's compaction which stands for all before it, if
/// one does.
///
/// # Errors
/// What the store returns.
pub(crate) fn live_compaction(
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

/// Where the compaction of a provider stands that counts for it.
pub(crate) enum LiveCompaction {
    /// In this message of a loop.
    InMessage(LoopKey, u32),
    /// In none: it came behind the messages of a loop before this sequence, as a message of its own.
    Behind(LoopKey, u32, Box<AgentMessage>),
}

/// Finds the session, the leaf, and how the moment is seen.
fn find_leaf(
    read: &dyn StoreRead,
    session: &SessionId,
    options: &BuildOptions,
) -> StoreResult<(SessionKey, LoopKey, View)> {
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
/// If one of them is not there.
pub(crate) fn keys_of(
    read: &dyn StoreRead,
    session: &SessionId,
    leaf: Option<&LoopId>,
) -> StoreResult<(SessionKey, LoopKey)> {
    // An agent asks before each model call: of neither more is read than the key.
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
/// If the session or the loop is not there.
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
