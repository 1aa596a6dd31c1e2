//! The difference between two contexts of a session, turn by turn.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::OlderLoops;
use loopstore::context::{AsOf, BuildOptions, Context, TurnState};
use loopstore::extend::{
    self as store, Disposition, LoopKey, LoopRow, LoopStates, RunKey, SessionRow, SessionStore,
    StoreRead, StoreResult,
    active_blocks::{ActiveBlocks, ChainView},
    leaf_of, moment_of, session_of,
};
use loopstore::internal::{Chain, build, turn_states};
use loopstore::model::{LoopId, SessionId};
use serde::Serialize;

use super::edits::{RunEdits, edits_of, live_runs};

/// One of the two contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffSide {
    /// The originals, as if no block were active and no edit were live. They are those of the other side's point in
    /// time, if it has one, else the current ones.
    Raw,
    /// The context of the next model call.
    Now,
    /// The context as of a tick or run.
    At(AsOf),
    /// The context of a run's loop just before the run was committed.
    Before(String),
}

/// The contexts to compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffRequest {
    /// The first context; if `None`, the context just before the newest run that is live in the second context, or
    /// the originals if there is no such run.
    pub from: Option<DiffSide>,
    /// The second context; [`DiffSide::Now`] if `None`.
    pub to: Option<DiffSide>,
    /// The leaf of [`DiffSide::Now`] and [`DiffSide::Raw`]; the current loop if `None`.
    pub leaf: Option<LoopId>,
}

/// Consecutive turns of a loop that the two contexts show differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnChange {
    /// The loop.
    pub loop_id: LoopId,
    /// The first turn.
    pub from_turn: u32,
    /// The last one.
    pub to_turn: u32,
    /// The state in the first context; `None` if the context does not contain the turns.
    pub before: Option<TurnState>,
    /// The state in the second context; `None` if the context does not contain the turns.
    pub after: Option<TurnState>,
}

/// Consecutive turns of a loop that both contexts show as a summary, with different summaries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RewrittenTurns {
    /// The loop.
    pub loop_id: LoopId,
    /// The first turn.
    pub from_turn: u32,
    /// The last one.
    pub to_turn: u32,
    /// The block of the first context: its loop, `#` and its generation.
    pub before: String,
    /// The block of the second context.
    pub after: String,
}

/// The difference between two contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContextDiff {
    /// The name of the first context: `raw`, `now`, a run, `LOOP:TURN` or `before RUN`.
    pub from: String,
    /// The name of the second context.
    pub to: String,
    /// The tokens of both contexts.
    pub tokens: [u64; 2],
    /// The number of messages of both contexts.
    pub messages: [u64; 2],
    /// The changes, loop by loop from the root.
    pub changes: Vec<TurnChange>,
    /// The turns for which only the summary differs.
    pub rewritten: Vec<RewrittenTurns>,
    /// The runs of edits that are live in the second context and not in the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<RunEdits>,
    /// The runs of edits that are live in the first context and not in the second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restored: Vec<RunEdits>,
    /// The number of turns in each state, for each context.
    pub counts: BTreeMap<&'static str, [u64; 2]>,
}

/// Compares the state of each turn in two contexts of a session.
///
/// # Errors
/// If the session, a loop, a run or a turn does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore_admin::inspect::{DiffRequest, diff};
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
/// // By default: what the newest compaction changed.
/// let found = diff(store.database(), chat.id(), &DiffRequest::default())?;
/// assert!(found.tokens[1] < found.tokens[0]);
/// assert_eq!(found.counts["raw"], [40, 0]);
/// for change in &found.changes {
///     let (from, to) = (change.from_turn, change.to_turn);
///     println!("turns {from} to {to}: {:?}, now {:?}", change.before, change.after);
/// }
///
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn diff(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &DiffRequest,
) -> StoreResult<ContextDiff> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let [before, after] = sides(read, &owner, request)?;
        let (from, to) = (before.load(read)?, after.load(read)?);
        let (a, b) = (from.chain.size(), to.chain.size());
        let pairs = pairs(read, &from.states, &to.states)?;
        let only = |in_one: &Loaded, other: &Loaded| {
            let runs = in_one.edit_runs.difference(&other.edit_runs);
            runs.map(|run| edits_of(read, *run))
                .collect::<StoreResult<_>>()
        };
        Ok(ContextDiff {
            from: before.label,
            to: after.label,
            tokens: [a.tokens, b.tokens],
            messages: [a.messages, b.messages],
            changes: changes(&pairs),
            rewritten: rewritten(&pairs),
            edited: only(&to, &from)?,
            restored: only(&from, &to)?,
            counts: counts(&pairs),
        })
    })
}

/// Builds the two contexts that [`diff`] compares.
///
/// # Errors
/// As [`diff`].
///
/// # Examples
/// ```
/// use loopstore_admin::inspect::{DiffRequest, DiffSide, diff_contexts};
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
/// let request = DiffRequest { from: Some(DiffSide::Raw), ..DiffRequest::default() };
/// let [raw, now] = diff_contexts(store.database(), chat.id(), &request)?;
/// assert!(now.messages.len() < raw.messages.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn diff_contexts(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &DiffRequest,
) -> StoreResult<[Context; 2]> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let context = |side: &Side| {
            let chain = side.chain(read)?;
            build(read, session, &chain, &BuildOptions::default()).map(|(context, _)| context)
        };
        let [before, after] = sides(read, &owner, request)?;
        Ok([context(&before)?, context(&after)?])
    })
}

/// A context whose name is known and whose content is not read yet.
struct Side {
    label: String,
    leaf: LoopRow,
    view: ChainView,
}

struct Loaded {
    chain: Chain,
    states: Vec<LoopStates>,
    /// The runs whose edits are live.
    edit_runs: BTreeSet<RunKey>,
}

impl Side {
    fn chain(&self, read: &dyn StoreRead) -> StoreResult<Chain> {
        let options = BuildOptions {
            // The originals of all loops are shown, also if the newest run omits older loops.
            older_loops: self.view.raw.then_some(OlderLoops::Rollup),
            ..BuildOptions::default()
        };
        Chain::load_active(
            read,
            (self.leaf.session, self.leaf.key),
            self.view,
            &options,
        )
    }

    fn load(&self, read: &dyn StoreRead) -> StoreResult<Loaded> {
        let chain = self.chain(read)?;
        Ok(Loaded {
            states: turn_states(read, &chain, self.view)?,
            edit_runs: live_runs(read, &self.leaf, self.view)?,
            chain,
        })
    }
}

/// Finds both sides; the second one first, since the first may depend on it.
fn sides(
    read: &dyn StoreRead,
    owner: &SessionRow,
    request: &DiffRequest,
) -> StoreResult<[Side; 2]> {
    let to = request.to.clone().unwrap_or(DiffSide::Now);
    let from = match &request.from {
        Some(from) => from.clone(),
        None => before_newest(read, owner, &to, request)?,
    };
    let before = side(read, owner, &from, &to, request)?;
    let after = side(read, owner, &to, &from, request)?;
    Ok([before, after])
}

/// Returns the context just before the newest compaction or edit that is live in `to`.
fn before_newest(
    read: &dyn StoreRead,
    owner: &SessionRow,
    to: &DiffSide,
    request: &DiffRequest,
) -> StoreResult<DiffSide> {
    let (leaf, view) = place(read, owner, to, request)?;
    let mut walk = ActiveBlocks::new(read, leaf.key, view);
    let (compaction, mut edits) = (walk.newest_live_run()?, None);
    walk.runs(&mut |walk, run| {
        if run.is_edit() && walk.is_live(run.key)? {
            edits = Some(run);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let run = compaction
        .into_iter()
        .chain(edits)
        .max_by_key(|run| run.tick);
    Ok(run.map_or(DiffSide::Raw, |run| DiffSide::Before(run.run_id)))
}

fn side(
    read: &dyn StoreRead,
    owner: &SessionRow,
    side: &DiffSide,
    other: &DiffSide,
    request: &DiffRequest,
) -> StoreResult<Side> {
    let raw = *side == DiffSide::Raw;
    let (leaf, view) = place(read, owner, if raw { other } else { side }, request)?;
    let label = match side {
        DiffSide::Raw => "raw".to_owned(),
        DiffSide::Now => "now".to_owned(),
        DiffSide::At(AsOf::Run(run)) => run.clone(),
        DiffSide::At(AsOf::Manifest(id)) => format!("manifest {id}"),
        DiffSide::At(AsOf::Turn { loop_id, turn }) => format!("{loop_id}:{turn}"),
        DiffSide::At(AsOf::Before { loop_id, seq }) => format!("before message {seq} of {loop_id}"),
        DiffSide::Before(run) => format!("before {run}"),
    };
    let view = ChainView {
        raw,
        without_edits: raw,
        ..view
    };
    Ok(Side { label, leaf, view })
}

/// Returns the leaf and the point in time of a side.
fn place(
    read: &dyn StoreRead,
    owner: &SessionRow,
    side: &DiffSide,
    request: &DiffRequest,
) -> StoreResult<(LoopRow, ChainView)> {
    match side {
        DiffSide::Raw | DiffSide::Now => {
            let leaf = leaf_of(read, owner, request.leaf.as_ref())?;
            Ok((leaf, ChainView::default()))
        }
        DiffSide::At(as_of) => moment_of(read, owner, as_of),
        DiffSide::Before(run) => {
            let (leaf, view) = moment_of(read, owner, &AsOf::Run(run.clone()))?;
            let at = view.at.map(|tick| tick - 1);
            Ok((leaf, ChainView { at, ..view }))
        }
    }
}

/// The states of one turn in both contexts.
#[derive(Clone, Debug, PartialEq)]
struct TurnPair {
    states: [Option<TurnState>; 2],
    /// The blocks whose texts replace the turn.
    texts: [Option<String>; 2],
}

/// A loop with the pairs of its turns.
type LoopPairs = (LoopId, Vec<TurnPair>);

/// Pairs the turns of both contexts. The keys of loops rise from the root to the leaf.
fn pairs(
    read: &dyn StoreRead,
    from: &[LoopStates],
    to: &[LoopStates],
) -> StoreResult<Vec<LoopPairs>> {
    let keys: BTreeSet<LoopKey> = from.iter().chain(to).map(|states| states.key).collect();
    let mut all = Vec::new();
    for key in keys {
        let of = |all: &[LoopStates]| {
            let place = all.binary_search_by_key(&key, |states| states.key);
            place.ok().map(|at| all[at].clone())
        };
        let both = [of(from), of(to)];
        let Some(loop_id) = both.iter().flatten().map(|s| s.loop_id.clone()).next() else {
            continue;
        };
        let [a, b] = &both;
        let names = [name(read, a.as_ref())?, name(read, b.as_ref())?];
        let turns = both.iter().flatten().map(|states| states.turns.len()).max();
        let pair = |turn: usize| {
            let state = |s: &Option<LoopStates>| s.as_ref()?.turns.get(turn).copied();
            let states = [state(a), state(b)];
            let text = |at: usize| names[at].clone().filter(|_| is_text(states[at]));
            let texts = [text(0), text(1)];
            TurnPair { states, texts }
        };
        all.push((loop_id, (0..turns.unwrap_or(0)).map(pair).collect()));
    }
    Ok(all)
}

/// True if the turn is replaced by a summary.
fn is_text(state: Option<TurnState>) -> bool {
    use Disposition as D;
    matches!(
        state,
        Some(TurnState::Covered(D::Summarised | D::RolledUp | D::Sealed))
    )
}

/// Returns the name of the block that applies to a loop: `LOOP#GENERATION`.
fn name(read: &dyn StoreRead, states: Option<&LoopStates>) -> StoreResult<Option<String>> {
    let Some(block) = states.and_then(|states| states.block.as_ref()) else {
        return Ok(None);
    };
    let loop_id = read.loop_by_key(block.loop_key)?.core.loop_id;
    Ok(Some(format!("{loop_id}#{}", block.generation)))
}

/// Groups consecutive turns for which `what` returns the same value.
fn runs<T: PartialEq>(
    pairs: &[TurnPair],
    what: impl Fn(&TurnPair) -> Option<T>,
) -> Vec<(u32, u32, T)> {
    let mut runs: Vec<(u32, u32, T)> = Vec::new();
    for (turn, pair) in (0u32..).zip(pairs) {
        let Some(found) = what(pair) else { continue };
        match runs.last_mut() {
            Some((_, last, same)) if *last + 1 == turn && *same == found => *last = turn,
            _ => runs.push((turn, turn, found)),
        }
    }
    runs
}

fn changes(pairs: &[LoopPairs]) -> Vec<TurnChange> {
    let differs = |pair: &TurnPair| (pair.states[0] != pair.states[1]).then_some(pair.states);
    let mut all = Vec::new();
    for (loop_id, turns) in pairs {
        for (from_turn, to_turn, [before, after]) in runs(turns, differs) {
            all.push(TurnChange {
                loop_id: loop_id.clone(),
                from_turn,
                to_turn,
                before,
                after,
            });
        }
    }
    all
}

fn rewritten(pairs: &[LoopPairs]) -> Vec<RewrittenTurns> {
    let differs = |pair: &TurnPair| {
        let [before, after] = pair.texts.clone();
        let (before, after) = before.zip(after)?;
        (pair.states[0] == pair.states[1] && before != after).then_some((before, after))
    };
    let mut all = Vec::new();
    for (loop_id, turns) in pairs {
        for (from_turn, to_turn, (before, after)) in runs(turns, differs) {
            all.push(RewrittenTurns {
                loop_id: loop_id.clone(),
                from_turn,
                to_turn,
                before,
                after,
            });
        }
    }
    all
}

fn counts(pairs: &[LoopPairs]) -> BTreeMap<&'static str, [u64; 2]> {
    let mut counts: BTreeMap<&'static str, [u64; 2]> = BTreeMap::new();
    for pair in pairs.iter().flat_map(|(_, turns)| turns) {
        for (side, state) in pair.states.iter().enumerate() {
            if let Some(state) = state {
                counts.entry(state.as_str()).or_default()[side] += 1;
            }
        }
    }
    counts
}
