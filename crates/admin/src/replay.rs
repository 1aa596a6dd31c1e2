//! A replay of a session: turn by turn along one branch, with the context of the model at each turn.
//!
//! A replay reads the loops from the root to a leaf, each up to the turn at which the branch leaves it. It holds one
//! turn in memory, and a small entry for each loop and each compaction of the branch. No read stays open between two
//! steps, so a slow caller blocks no writer.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::inspect::{RecordedEdit, recorded};
use loopstore::BuildOptions;
use loopstore::context::{AsOf, BuildError, Context, build_context_from_session};
use loopstore::extend::{
    self as store, Cut, LoopKey, SessionStore, StoreRead, StoreResult, Tick,
    active_blocks::{ActiveBlocks, ChainView},
    leaf_of, session_of,
};
use loopstore::model::{AgentMessage, Json, LoopId, Role, SealingProvider, SessionId};

/// A step of a replay.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayStep {
    /// A compaction or edits took effect, or were undone or redone.
    Change(ReplayChange),
    /// A turn happened.
    Turn(Box<ReplayedTurn>),
}

/// A compaction or edits took effect, or were undone or redone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReplayChange {
    /// The kind of the change: `compacted`, `edited`, `undone` or `redone`.
    pub change: ChangeKind,
    /// The run.
    pub run_id: String,
    /// The loop from which the change was made.
    pub loop_id: LoopId,
    /// The strategy that made the text.
    pub strategy: String,
    /// The time of the change, as ISO-8601 text.
    pub at: String,
    /// The reason that was given for the edits, the undo or the redo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The edits of the run; none for a compaction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<RecordedEdit>,
    /// The events of the run as JSON: `compactionStarted`, then `compactionEnded`. An undo or redo has no events.
    pub events: Vec<Json>,
    /// The tokens of the context before the run.
    pub tokens_before: u64,
    /// The tokens of the context after the run.
    pub tokens_after: u64,
    /// The position of the change in the order of the session.
    #[serde(skip)]
    pub tick: Tick,
}

/// The kind of a change to a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The run was committed.
    Compacted,
    /// The run removed, cleared or replaced messages.
    Edited,
    /// The run was undone and is no longer active.
    Undone,
    /// The run was redone and is active again.
    Redone,
}

/// A turn as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedTurn {
    /// The loop.
    pub loop_id: LoopId,
    /// Its position in the loop, from 0.
    pub turn: u32,
    /// The sequence of the first message of `messages`.
    pub first_seq: u32,
    /// The messages of the turn, including the extensions before and within the turn.
    pub messages: Vec<AgentMessage>,
    /// The time of each message in milliseconds since the epoch; `None` if the message has no time.
    pub times: Vec<Option<i64>>,
    /// The sequence of the model's first answer; `None` if there is none.
    pub answer_seq: Option<u32>,
    /// The context of the model just before its first answer; `None` without an answer, or if the replay does not
    /// return contexts ([`Replay::with_contexts`]).
    pub context: Option<Context>,
}

/// The turns of one loop that belong to the branch.
#[derive(Clone, Debug)]
struct BranchTurns {
    key: LoopKey,
    loop_id: LoopId,
    turns: u32,
    /// The end of the last turn, if the branch leaves the loop within it.
    end: Option<u32>,
}

/// An iterator over the steps of a recorded session.
///
/// A context is the context just before the turn's first answer: it has the messages that were stored by then, and
/// the runs that were active. A compaction of the branch is returned where it took effect: before the turn whose
/// answer followed it. A late tool result is returned with its turn, but is in no context before the result was
/// stored.
///
/// # Examples
/// ```
/// use loopstore_admin::replay::{Replay, ReplayStep};
/// # use loopstore::*;
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// for step in Replay::new(store.database(), chat.id(), None)?.with_contexts(true) {
///     if let ReplayStep::Turn(turn) = step? {
///         println!("turn {} of loop {}", turn.turn, turn.loop_id);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replay<'a> {
    store: &'a dyn SessionStore,
    session: SessionId,
    with_contexts: bool,
    provider: Option<SealingProvider>,
    stretches: VecDeque<BranchTurns>,
    /// The next turn of the first stretch.
    turn: u32,
    /// True if the changes before the next turn are skipped.
    skips_changes: bool,
    changes: VecDeque<ReplayChange>,
    /// A turn that is returned after the changes before it.
    waiting: Option<(Tick, Box<ReplayedTurn>)>,
    failed: bool,
}

impl<'a> Replay<'a> {
    /// Returns a replay of the branch that ends in `leaf`, or in the session's current loop if `leaf` is `None`.
    ///
    /// # Errors
    /// If the session or the loop does not exist, or the store fails.
    pub fn new(
        store: &'a dyn SessionStore,
        session: &SessionId,
        leaf: Option<&LoopId>,
    ) -> StoreResult<Self> {
        let (stretches, changes) = store::read(store, |read| {
            let owner = session_of(read, session)?;
            let leaf = leaf_of(read, &owner, leaf)?.key;
            Ok((stretches(read, leaf)?, changes(read, leaf)?))
        })?;
        Ok(Self {
            store,
            session: session.clone(),
            with_contexts: false,
            provider: None,
            stretches,
            turn: 0,
            skips_changes: false,
            changes,
            waiting: None,
            failed: false,
        })
    }

    /// Sets whether each turn is returned with the context of the model.
    #[must_use]
    pub fn with_contexts(mut self, with_contexts: bool) -> Self {
        self.with_contexts = with_contexts;
        self
    }

    /// Sets the provider that contexts are made for: they include compactions by this provider.
    #[must_use]
    pub fn for_provider(mut self, provider: Option<SealingProvider>) -> Self {
        self.provider = provider;
        self
    }

    /// Skips the turns and changes before a turn of the branch. If the branch does not contain the loop, it skips
    /// nothing.
    #[must_use]
    pub fn from_turn(mut self, loop_id: &LoopId, turn: u32) -> Self {
        let is_it = |stretch: &BranchTurns| stretch.loop_id == *loop_id;
        if let Some(at) = self.stretches.iter().position(is_it) {
            self.stretches.drain(..at);
            self.turn = turn;
            self.skips_changes = true;
        }
        self
    }

    /// Skips all but the last `count` turns, and the changes before them.
    #[must_use]
    pub fn last_turns(mut self, count: u32) -> Self {
        let all = self
            .stretches
            .iter()
            .map(|stretch| u64::from(stretch.turns));
        let mut skipped = all.sum::<u64>().saturating_sub(u64::from(count));
        self.skips_changes |= skipped > 0;
        while let Some(first) = self.stretches.front() {
            match skipped.checked_sub(u64::from(first.turns)) {
                Some(rest) if self.stretches.len() > 1 => skipped = rest,
                // Less than the turns of a loop.
                _ => {
                    self.turn = u32::try_from(skipped).unwrap_or(u32::MAX);
                    break;
                }
            }
            self.stretches.pop_front();
        }
        self
    }

    fn step(&mut self) -> Result<Option<ReplayStep>, BuildError> {
        if self.waiting.is_none() {
            self.waiting = self.read_turn()?;
        }
        if let Some((tick, _)) = self.waiting.as_ref().filter(|_| self.skips_changes) {
            self.changes.retain(|change| change.tick >= *tick);
            self.skips_changes = false;
        }
        let until = self.waiting.as_ref().map(|(tick, _)| *tick);
        let is_due = |change: &ReplayChange| until.is_none_or(|tick| change.tick < tick);
        if self.changes.front().is_some_and(is_due) {
            return Ok(self.changes.pop_front().map(ReplayStep::Change));
        }
        let Some((_, mut turn)) = self.waiting.take() else {
            return Ok(None);
        };
        if let Some(seq) = turn.answer_seq.filter(|_| self.with_contexts) {
            turn.context = Some(self.context(&turn.loop_id, seq)?);
        }
        Ok(Some(ReplayStep::Turn(turn)))
    }

    fn context(&self, loop_id: &LoopId, seq: u32) -> Result<Context, BuildError> {
        let loop_id = loop_id.clone();
        let options = BuildOptions {
            as_of: Some(AsOf::Before { loop_id, seq }),
            provider: self.provider,
            ..BuildOptions::default()
        };
        build_context_from_session(self.store, &self.session, &options)
    }

    /// Reads the next turn, and when its answer (or, without one, its first message) came.
    fn read_turn(&mut self) -> StoreResult<Option<(Tick, Box<ReplayedTurn>)>> {
        while self.stretches.front().is_some_and(|s| s.turns <= self.turn) {
            self.stretches.pop_front();
            self.turn = 0;
        }
        let Some(stretch) = self.stretches.front() else {
            return Ok(None);
        };
        let turn = self.turn;
        self.turn += 1;
        store::read(self.store, |read| turn_of(read, stretch, turn)).map(Some)
    }
}

impl Iterator for Replay<'_> {
    type Item = Result<ReplayStep, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = self.step();
        self.failed = step.is_err();
        step.transpose()
    }
}

/// Returns the loops of the branch, root first.
fn stretches(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<VecDeque<BranchTurns>> {
    let (mut found, mut cut) = (VecDeque::new(), Cut::NONE);
    read.walk(leaf, &mut |row| {
        let turns = cut.turns().min(row.totals.turns);
        let end = cut.part.map(|last| last.saturating_add(1));
        cut = row.parent_cut();
        found.push_front(BranchTurns {
            key: row.key,
            loop_id: row.core.loop_id,
            turns,
            end,
        });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Returns the compactions and edits that apply to the leaf, and their undos and redos, in order.
///
/// # Errors
/// If a row is damaged, or the store fails.
pub fn changes(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<VecDeque<ReplayChange>> {
    let mut found = Vec::new();
    ActiveBlocks::new(read, leaf, ChainView::default()).runs(&mut |walk, run| {
        let committed = ReplayChange {
            change: match run.is_edit() {
                true => ChangeKind::Edited,
                false => ChangeKind::Compacted,
            },
            reason: run.edit_reason(),
            edits: match run.is_edit() {
                true => recorded(read, run.key)?,
                false => Vec::new(),
            },
            events: run.noted_events(),
            run_id: run.run_id,
            loop_id: read.loop_by_key(run.point.loop_key)?.core.loop_id,
            strategy: run.strategy,
            at: run.started_at,
            tokens_before: run.before.tokens,
            tokens_after: run.after.tokens,
            tick: run.tick,
        };
        for flip in read.flips(run.key)? {
            if walk.counts(flip.point)? {
                found.push(ReplayChange {
                    change: match flip.redo {
                        true => ChangeKind::Redone,
                        false => ChangeKind::Undone,
                    },
                    loop_id: read.loop_by_key(flip.point.loop_key)?.core.loop_id,
                    at: flip.at,
                    reason: flip.reason,
                    events: Vec::new(),
                    tick: flip.tick,
                    ..committed.clone()
                });
            }
        }
        found.push(committed);
        Ok(ControlFlow::Continue(()))
    })?;
    found.sort_by_key(|change| change.tick);
    Ok(found.into())
}

fn turn_of(
    read: &dyn StoreRead,
    stretch: &BranchTurns,
    turn: u32,
) -> StoreResult<(Tick, Box<ReplayedTurn>)> {
    let missing = || store::StoreError::Damaged(format!("turn {turn} is missing"));
    let first = read.turn(stretch.key, turn)?.ok_or_else(missing)?.first_seq;
    let next = read.turn(stretch.key, turn.saturating_add(1))?;
    let end = match next {
        Some(next) => next.first_seq,
        None => read.loop_by_key(stretch.key)?.totals.next_seq,
    };
    let end = stretch.end.map_or(end, |cut| cut.min(end));
    // Messages before the first turn belong to none.
    let first = if turn == 0 { 0 } else { first };
    let mut replayed = Box::new(ReplayedTurn {
        loop_id: stretch.loop_id.clone(),
        turn,
        first_seq: first,
        messages: Vec::new(),
        times: Vec::new(),
        answer_seq: None,
        context: None,
    });
    let (mut begun, mut answered) = (None, None);
    read.messages(stretch.key, first..end, &mut |row| {
        begun = begun.or(Some(row.tick));
        if row.body.role == Role::Assistant && answered.is_none() {
            answered = Some(row.tick);
            replayed.answer_seq = Some(row.seq);
        }
        replayed.times.push(row.created_at);
        replayed.messages.push(store::decode(read, row.body)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((answered.or(begun).unwrap_or_default(), replayed))
}
