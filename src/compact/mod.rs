//! Joins compaction to a store: plan from a snapshot, run the strategy with no transaction open,
//! commit by comparing.
//!
//! The commit is one write transaction that looks again at what is in force over the chain. If
//! that is what the plan saw, it writes run, blocks, replacement messages and coverage; if not,
//! only the run, as a conflict. An append never conflicts: turns that came meanwhile are the tail.

mod blocks;
mod commit;
mod events;
mod fallback;
mod flips;
mod notes;
mod planner;
mod report;
mod rollup;

use std::time::Instant;

use crate::compaction::{CompactionConfig, ContextConfig, StrategyError};
use crate::context::{BuildOptions, Chain, Purpose, keys_of, settings};
use crate::model::{LoopId, SessionId, Time};
use crate::store::active_blocks::{ChainLink, View};
use crate::store::{
    self, BlockCore, BlockKey, LoopKey, Outcome, Point, SessionKey, SessionStore, Size, StoreRead,
    StoreResult,
};

pub use events::{CompactionEnded, CompactionHook, CompactionStarted, Decision, Hooks};
pub use flips::{FlipReport, FlipRequest, redo, undo};
use planner::Planner;
pub use report::{
    BlockReport, BudgetTooSmall, BudgetUnit, CompactOutcome, CompactReport, CoverageCounts,
};

/// What asks for a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactTrigger {
    /// The policy, if it fires.
    #[default]
    Policy,
    /// The provider stopped its answer for length: the policy is not asked.
    Length,
    /// The user: the policy is not asked, the plan is made as if nothing were in force, and the
    /// gain is measured against the originals.
    Force,
}

/// What to compact, and how.
#[derive(Clone, Debug, Default)]
pub struct CompactRequest {
    /// The leaf; the session's current loop if not given.
    pub leaf: Option<LoopId>,
    /// The policy.
    pub config: CompactionConfig,
    /// The window.
    pub window: ContextConfig,
    /// What asks for it.
    pub trigger: CompactTrigger,
    /// Only say what would be done; no hook is called.
    pub dry_run: bool,
    /// What is called before and after.
    pub hooks: Hooks,
}

/// Compacts the chain of a leaf: asks the trigger, then makes one run.
///
/// The current loop gets a block of up to three sections, each earlier loop in scope one in which
/// it is summarised; what does not fit the policy's target is given up step by step. Every attempt
/// but one that was not needed leaves a run as its audit row; a strategy that fails, or a budget
/// that nothing can fit, gives a report with the outcome `failed`, not an error.
///
/// # Errors
/// If the session or the loop is not there, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
///
/// # use loopstore::store::{append, session};
/// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
/// # let new = Session::new(id.clone(), "agent");
/// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
/// # monday.status = LoopStatus::Completed;
/// # let loop_key = store::write(&store, |write| {
/// #     let key = session::create_session(write, &new, None, None)?;
/// #     let loop_key = session::create_loop(write, key, &monday)?;
/// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
/// #     let said = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, said.collect(), &HeuristicTokenCounter)?;
/// #     Ok(loop_key)
/// # })?;
/// let request = CompactRequest {
///     window: ContextConfig { max_context_tokens: 6_000, ..ContextConfig::default() },
///     ..CompactRequest::default()
/// };
/// let report = compact_session_loops(&store, &id, &request)?;
/// assert!(report.run.is_some());
/// assert!(report.after.tokens < report.before.tokens);
/// // Nothing more is done until the window fills again.
/// assert_eq!(compact_session_loops(&store, &id, &request)?.run, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compact_session_loops(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
) -> StoreResult<CompactReport> {
    let begun = Instant::now();
    let started_at = Time::now();
    let snapshot = match Asked::load(store, session, request)? {
        Asked::NotYet(size) => return Ok(CompactReport::new(request, size)),
        Asked::Compact(snapshot) => snapshot,
    };
    let mut report = CompactReport::new(request, snapshot.before);
    let (config, window) = (&request.config, &request.window);
    let mut planner = Planner::new(store, &snapshot, request)?;
    let attempt = commit::Attempt {
        store,
        snapshot: &snapshot,
        request,
        begun,
        plan: commit::plan_digest(&snapshot, request, &planner.outline()?)?,
        started: report.started(session, &snapshot, request, started_at),
    };
    if let Some(tried) = attempt.was_tried()? {
        report.tried_before(&tried, window.budget());
        return Ok(report);
    }
    if let Some(reason) = attempt.veto() {
        return attempt.end(report, Outcome::Vetoed, Some(reason));
    }
    let tried = fallback::fit(&mut planner, config, config.policy.target_of(window));
    let asked = notes::take(&mut report, planner.notes())?;
    match tried {
        // A summariser that was asked in vain leaves its audit row; a narrower scope alone is a
        // gain.
        Ok(tried) if !asked && tried.changes_nothing(snapshot.before) => {
            report.fallback = None;
            report.error = None;
            attempt.leave(report)
        }
        Ok(tried) => attempt.finish(report, tried),
        Err(StrategyError::Store(error)) => Err(error),
        Err(StrategyError::Failed(error)) => attempt.end(report, Outcome::Failed, Some(error)),
    }
}

/// What the trigger says.
enum Asked {
    /// Nothing is to be done about a context of this size.
    NotYet(Size),
    Compact(Box<Snapshot>),
}

impl Asked {
    /// Asks the trigger, which looks at stored totals only, and reads on if it fires.
    fn load(
        store: &dyn SessionStore,
        session: &SessionId,
        request: &CompactRequest,
    ) -> StoreResult<Self> {
        store::read(store, |read| {
            let (owner, leaf) = keys_of(read, session, request.leaf.as_ref())?;
            let before = match request.trigger {
                CompactTrigger::Force => None,
                _ => Some(size_in_force(read, owner, leaf)?),
            };
            let fires = |size| request.config.should_compact(&request.window, size);
            match before.filter(|size| request.trigger == CompactTrigger::Policy && !fires(*size)) {
                Some(size) => Ok(Self::NotYet(size)),
                None => Ok(Self::Compact(Box::new(Snapshot::load(
                    read, owner, leaf, before, request,
                )?))),
            }
        })
    }
}

/// What a plan is made from: the chain as it stood in one snapshot.
pub(crate) struct Snapshot {
    session: SessionKey,
    leaf: LoopKey,
    leaf_id: LoopId,
    /// As the plan sees it: through the blocks in force, or raw with `force`.
    chain: Chain,
    /// The first loop that can be planned: the one after the anchor of the rollup in force.
    base: usize,
    /// The block on each loop of the chain that is really in force.
    in_force: Vec<(LoopKey, Option<BlockKey>)>,
    /// The anchor of the rollup that is really in force.
    anchor: Option<LoopKey>,
    /// What the gain is measured against: the context as it is built now, or the originals with
    /// `force`.
    before: Size,
    /// Digests of what could still be replaced of the loops before the leaf.
    open: Vec<[u8; 32]>,
    /// The number that the run would have.
    round: u32,
}

impl Snapshot {
    fn load(
        read: &dyn StoreRead,
        session: SessionKey,
        leaf: LoopKey,
        before: Option<Size>,
        request: &CompactRequest,
    ) -> StoreResult<Self> {
        let load = |view| {
            let (config, window) = (&request.config, &request.window);
            Chain::load(read, leaf, view, config, window, Purpose::Plan)
        };
        let real = load(View::default())?;
        let in_force = real.in_force();
        let anchor = real.links.first().filter(|link| link.is_anchor());
        let anchor = anchor.map(|link| link.row.key);
        let chain = if request.trigger == CompactTrigger::Force {
            let raw = View {
                raw: true,
                ..View::default()
            };
            load(raw)?.hiding_as(&real)
        } else {
            real
        };
        let base = match chain.links.first() {
            Some(first) if first.is_anchor() && chain.links.len() > 1 => 1,
            _ => 0,
        };
        Ok(Self {
            session,
            leaf,
            leaf_id: chain.leaf()?.row.loop_id.clone(),
            before: before.unwrap_or_else(|| chain.size()),
            open: open_digests(read, &chain.links)?,
            chain,
            base,
            in_force,
            anchor,
            round: notes::next_round(read, session, leaf)?,
        })
    }

    fn point(&self) -> Point {
        let turns = self.chain.links.last().map_or(0, |leaf| leaf.complete);
        Point {
            loop_key: self.leaf,
            turns,
        }
    }

    /// Whether a block or a rollup really applies to a loop.
    fn block_applies(&self, depth: usize) -> bool {
        let key = self.chain.links[depth].row.key;
        let has_block =
            |(loop_key, block): &(LoopKey, Option<BlockKey>)| *loop_key == key && block.is_some();
        self.in_force.iter().any(has_block) || self.anchor.is_some_and(|anchor| key <= anchor)
    }

    /// Returns the rollup in force, if it stands on the leaf itself.
    fn rollup_on_leaf(&self) -> Option<&BlockCore> {
        let leaf = self.chain.links.last().filter(|link| link.is_anchor())?;
        leaf.block.as_ref()
    }
}

/// Returns the digests of the messages of earlier loops that their writers may still replace: a
/// block over them must not outlive that.
fn open_digests(read: &dyn StoreRead, links: &[ChainLink]) -> StoreResult<Vec<[u8; 32]>> {
    let mut digests = Vec::new();
    for link in links.iter().rev().skip(1) {
        let open = link.row.totals.sealed_seq..link.end_seq;
        if open.is_empty() {
            continue;
        }
        read.messages(link.row.key, open, &mut |row| {
            digests.push(row.body.digest);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
    }
    Ok(digests)
}

/// Returns the size of the context as it is built now: with the scope of the newest live run, not
/// with that of the next one.
fn size_in_force(read: &dyn StoreRead, session: SessionKey, leaf: LoopKey) -> StoreResult<Size> {
    let view = View::default();
    let now = settings(read, session, leaf, view, &BuildOptions::default())?;
    let purpose = Purpose::Build;
    Ok(Chain::load(read, leaf, view, &now.config, &now.window, purpose)?.size())
}
