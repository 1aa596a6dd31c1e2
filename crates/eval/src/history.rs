//! A session as a single sequence of turns.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use loopstore::compaction::LoopMessage;
use loopstore::extend::active_blocks::{ChainView, chain};
use loopstore::extend::compaction::DigestInput;
use loopstore::extend::{
    self as store, LoopKey, Outcome, SessionStore, StoreRead, StoreResult, leaf_of, session_of,
};
use loopstore::model::{LoopId, Message, Role, SessionId};
use loopstore::tokens::TokenCounter;

/// The messages of a chain, oldest first; turns are numbered through all its loops.
///
/// ```
/// use loopstore_eval::History;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let history = History::load(store.database(), chat.id())?;
/// let (before, after) = history.cut();
/// assert_eq!((before.len(), after.len()), (24, 17));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The messages; `turn` is counted through all loops.
    pub messages: Vec<LoopMessage>,
    /// The loops of the messages.
    pub loops: Vec<HistoryLoop>,
}

/// A loop of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryLoop {
    /// Its id.
    pub loop_id: LoopId,
    /// The number of its first turn in the chain.
    pub first_turn: u32,
}

impl History {
    /// Reads the chain of a session's current loop as recorded, without overlays.
    ///
    /// # Errors
    /// If the session is not there or the store cannot be read.
    pub fn load(store: &dyn SessionStore, session: &SessionId) -> StoreResult<Self> {
        store::read(store, |read| {
            let owner = session_of(read, session)?;
            if owner.current_loop.is_none() {
                return Ok(Self::default());
            }
            let leaf = leaf_of(read, &owner, None)?;
            Self::of_chain(read, leaf.key, ChainView::default())
        })
    }

    /// Reads a chain as it was at the point of a view, without overlays.
    pub(super) fn of_chain(
        read: &dyn StoreRead,
        leaf: LoopKey,
        view: ChainView,
    ) -> StoreResult<Self> {
        let raw = ChainView { raw: true, ..view };
        let (mut history, mut turns) = (Self::default(), 0);
        for link in chain(read, leaf, raw)? {
            read.messages(link.row.key, 0..link.end_seq, &mut |row| {
                if let (Some(turn), true) = (row.turn, row.body.role != Role::Extension) {
                    history.messages.push(LoopMessage {
                        turn: turns + turn,
                        seq: row.seq,
                        message: store::decode(read, row.body)?,
                    });
                }
                Ok(ControlFlow::Continue(()))
            })?;
            history.loops.push(HistoryLoop {
                loop_id: link.row.loop_id,
                first_turn: turns,
            });
            turns += link.turns;
        }
        Ok(history)
    }

    /// Returns a history of its first messages, with their loops.
    pub(super) fn first(&self, count: usize) -> Self {
        let messages = self.messages[..count].to_vec();
        let last = messages.last().map(|placed| placed.turn);
        let mut loops = self.loops.clone();
        loops.retain(|one| last.is_some_and(|last| one.first_turn <= last));
        Self { messages, loops }
    }

    /// Converts turns given by loop and position to numbers of turns in the chain.
    pub(super) fn numbers(&self, turns: &HashSet<(LoopId, u32)>) -> HashSet<u32> {
        let first: HashMap<&LoopId, u32> = self
            .loops
            .iter()
            .map(|one| (&one.loop_id, one.first_turn))
            .collect();
        let number = |(id, turn): &(LoopId, u32)| Some(first.get(id)? + turn);
        turns.iter().filter_map(number).collect()
    }

    /// Returns the messages after those of another history; `None` if this one does not begin with the other.
    pub(super) fn after(&self, before: &Self) -> Option<&[LoopMessage]> {
        let begins = self.loops.starts_with(&before.loops);
        let last = before.messages.last();
        let same = |one: &LoopMessage| {
            last.is_none_or(|last| (last.turn, last.seq) == (one.turn, one.seq))
        };
        let (shared, after) = self.messages.split_at_checked(before.messages.len())?;
        (begins && shared.last().is_none_or(same)).then_some(after)
    }

    /// Returns the tokens of all messages.
    pub fn tokens(&self, counter: &dyn TokenCounter) -> u64 {
        let count = |placed: &LoopMessage| counter.message_tokens(&placed.message);
        self.messages.iter().map(count).sum()
    }

    /// Returns the messages loop by loop with the turns of each loop, as a rollup reads them. A loop is named if there
    /// are several.
    pub(super) fn by_loop(&self) -> Vec<DigestInput> {
        let mut rest = &self.messages[..];
        let mut parts = Vec::with_capacity(self.loops.len());
        for (at, of_chain) in self.loops.iter().enumerate() {
            let next = self.loops.get(at + 1).map(|next| next.first_turn);
            let end = rest.partition_point(|placed| next.is_none_or(|next| placed.turn < next));
            let (own, after) = rest.split_at(end);
            let renumbered = own.iter().map(|placed| LoopMessage {
                turn: placed.turn.saturating_sub(of_chain.first_turn),
                ..placed.clone()
            });
            parts.push(DigestInput::Messages {
                loop_name: (self.loops.len() > 1).then(|| of_chain.short_name()),
                messages: renumbered.collect(),
            });
            rest = after;
        }
        parts
    }

    /// Returns the messages before and after the cut. The cut is at 60 % of the messages, moved back to the end of a
    /// turn at which no call waits for its result.
    pub fn cut(&self) -> (&[LoopMessage], &[LoopMessage]) {
        let messages = &self.messages;
        let mut at = messages.len() * 6 / 10;
        while at > 0 && !self.is_whole(at) {
            at -= 1;
        }
        messages.split_at(at)
    }

    fn is_whole(&self, at: usize) -> bool {
        let (before, after) = self.messages.split_at(at);
        let ends_turn = match (before.last(), after.first()) {
            (Some(last), Some(next)) => last.turn != next.turn,
            _ => true,
        };
        if !ends_turn {
            return false;
        }
        // Ids may be reused: a call is open only until its next result.
        let mut open = HashSet::new();
        for placed in before {
            let message = placed.message.message();
            open.extend(
                message
                    .into_iter()
                    .flat_map(Message::tool_calls)
                    .map(|call| &*call.id),
            );
            answers(placed).map(|id| open.remove(id));
        }
        !after.iter().filter_map(answers).any(|id| open.contains(id))
    }
}

/// Returns the ids of the committed runs of a session, oldest first, without those that only their provider can
/// read.
///
/// # Errors
/// If the session is not there or the store cannot be read.
///
/// # Examples
/// ```
/// use loopstore::provider::{self, Form};
/// use loopstore::*;
/// use loopstore_eval::readable_runs;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let said = chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
/// let given = serde_json::json!([{"type": "compaction", "id": "cmp_1", "encrypted_content": "…"}]);
/// let given = provider::read(Form::OpenAiResponses, &given)?;
/// let through = EntryRef::new(said.loop_id.as_str(), 1);
/// chat.record_compaction(SealingProvider::OpenAi, &through, given)?;
/// assert!(readable_runs(store.database(), chat.id())?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn readable_runs(store: &dyn SessionStore, session: &SessionId) -> StoreResult<Vec<String>> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let mut runs = Vec::new();
        read.runs(owner.key, &mut |run| {
            let is_sealed = run.sealed_by().is_some();
            if run.outcome == Outcome::Committed && !is_sealed {
                runs.push(run.run_id);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        runs.reverse();
        Ok(runs)
    })
}

impl HistoryLoop {
    /// Returns the beginning of the id, which is enough to name the loop in a command.
    fn short_name(&self) -> String {
        let plain = self.loop_id.as_str().chars();
        plain.filter(|c| !c.is_whitespace()).take(12).collect()
    }
}

fn answers(placed: &LoopMessage) -> Option<&str> {
    match placed.message.message() {
        Some(Message::ToolResult(result)) => Some(&result.tool_call_id),
        _ => None,
    }
}
