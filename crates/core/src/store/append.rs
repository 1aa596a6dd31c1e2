//! Appends: messages are grouped into turns, and complete turns become final.
//!
//! One transaction groups the messages into turns, counts them, makes complete turns final, chains the
//! digests and raises the session's tick. Nothing here reads a message body.

mod calls;
mod replace;
mod state;
mod turns;

use std::ops::{ControlFlow, Range};

use super::encoded::EncodedMessage;
use super::error::{StoreError, StoreResult};
use super::lease::{self, Lease};
use super::rows::{LoopProgress, LoopRow, Size, TurnRow};
use super::{AppendState, LoopCore, LoopKey, StoreRead, StoreWrite, Tick};
use crate::model::{AgentMessage, LoopStatus, Role, SealingProvider, Time};
use crate::tokens::TokenCounter;

pub use replace::replace_last_turn;
#[doc(hidden)]
pub use replace::replace_turn;
use state::Append;
pub use state::DefaultTime;
#[doc(hidden)]
pub use state::LoopRebuild;
pub use turns::end_of_line;
pub use turns::{Appended, TurnsAppend, TurnsAppended, append_in_turns, free_loop_id};

/// A message to append, with the keyed digest of the record that it was imported from.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The message.
    pub message: AgentMessage,
    /// The digest; `None` if the message was not imported.
    pub origin: Option<[u8; 32]>,
}

impl From<AgentMessage> for NewMessage {
    fn from(message: AgentMessage) -> Self {
        Self {
            message,
            origin: None,
        }
    }
}

/// The messages that were appended to one loop, and the loop afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedMessages {
    /// The sequences of the messages.
    pub seqs: Range<u32>,
    /// The number of turn groups of the loop afterwards.
    pub turns: u32,
    /// The number of these turn groups that are not in flight.
    pub complete: u32,
    /// The session's tick afterwards.
    pub tick: Tick,
    /// The messages that contain a provider's own compaction.
    #[doc(hidden)]
    pub compactions: Vec<AppendedCompaction>,
    /// A sentence for each part of a report of cleared content that is not recorded as an edit.
    pub notes: Vec<String>,
}

impl AppendedMessages {
    /// Returns the result of this append and one to the same loop after it, as of one append.
    #[must_use]
    #[doc(hidden)]
    pub fn followed_by(mut self, next: Self) -> Self {
        self.compactions.extend(next.compactions);
        self.notes.extend(next.notes);
        Self {
            seqs: self.seqs.start..next.seqs.end,
            compactions: self.compactions,
            notes: self.notes,
            ..next
        }
    }
}

/// An appended message with a compaction that only its provider can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct AppendedCompaction {
    pub loop_key: LoopKey,
    pub seq: u32,
    pub provider: SealingProvider,
}

/// Appends messages to a loop that is not leased. A message without a time of its own gets that of the append.
///
/// # Errors
/// If the loop does not exist, is leased ([`StoreError::LeaseHeld`]), or the store fails.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, append, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let new = Session::new(SessionId::new("weather")?, "agent");
/// let loop_key = store::write(&store, |write| {
///     let key = session::create_session(write, &new, None, None)?;
///     session::create_loop(write, key, &LoopRecord::new(LoopId::generate(), None))
/// })?;
/// let prompt = |text| AgentMessage::from(Message::user(text)).into();
/// let prompts = ["Will it rain?", "And tomorrow?"].map(prompt).to_vec();
/// let appended = store::write(&store, |write| {
///     append::append(write, loop_key, prompts, store.counter())
/// })?;
/// assert_eq!((appended.seqs, appended.turns), (0..2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn append(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
) -> StoreResult<AppendedMessages> {
    let now = lease::now();
    append_ended_by(
        write,
        loop_key,
        messages,
        counter,
        (now, Some(now)),
        LastTurn::Final,
    )
}

fn append_ended_by(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
    (now, stamp): (i64, DefaultTime),
    last_turn: LastTurn,
) -> StoreResult<AppendedMessages> {
    let state = write.append_state(loop_key)?;
    lease::ensure_row_unleased(write, state.lease.as_ref(), now)?;
    append_all(
        write,
        state,
        encode_all(messages, counter),
        stamp,
        last_turn,
    )
}

/// Appends messages to a loop for the holder of its lease.
#[doc(hidden)]
pub fn append_leased(
    write: &mut dyn StoreWrite,
    (lease, now): (&Lease, i64),
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
) -> StoreResult<AppendedMessages> {
    let state = write.append_state(lease.loop_key)?;
    lease::keep_row(write, lease, state.lease.as_ref(), now)?;
    let messages = encode_all(messages, counter);
    append_all(write, state, messages, Some(now), LastTurn::Final)
}

fn encode_all(
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
) -> impl Iterator<Item = StoreResult<EncodedMessage>> {
    messages
        .into_iter()
        .map(|new| EncodedMessage::of(new, counter))
}

/// The treatment of the last turn of a loop once it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastTurn {
    /// The turn is final: it can no longer be replaced.
    Final,
    /// The turn may be replaced until another one follows, as its transcript is rewritten while it grows.
    Open,
}

/// Appends imported messages in their stored form to a loop that is not leased. A loop that has ended is
/// set running again.
#[doc(hidden)]
pub fn append_encoded(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    messages: Vec<EncodedMessage>,
    last_turn: LastTurn,
) -> StoreResult<AppendedMessages> {
    let mut state = write.append_state(loop_key)?;
    lease::ensure_row_unleased(write, state.lease.as_ref(), lease::now())?;
    if state.row.status.is_ended() {
        state.row.status = LoopStatus::Running;
    }
    append_all(write, state, messages.into_iter().map(Ok), None, last_turn)
}

fn append_all(
    write: &mut dyn StoreWrite,
    state: AppendState,
    messages: impl Iterator<Item = StoreResult<EncodedMessage>>,
    stamp: DefaultTime,
    last_turn: LastTurn,
) -> StoreResult<AppendedMessages> {
    let from = state.row.totals.next_seq;
    let mut append = Append::begin(state, stamp)?;
    for message in messages {
        append.push(write, message?)?;
    }
    append.finish(write, from, last_turn)
}

fn turn_of(read: &(impl StoreRead + ?Sized), loop_key: LoopKey, turn: u32) -> StoreResult<TurnRow> {
    read.turn(loop_key, turn)?.ok_or_else(|| missing_turn(turn))
}

fn missing_turn(turn: u32) -> StoreError {
    StoreError::Damaged(format!("turn {turn} is missing"))
}

/// Ends a loop that is not leased, or sets it running again.
///
/// # Errors
/// If the loop does not exist, is leased, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::extend as store;
/// use loopstore::extend::append::set_status;
/// use loopstore::*;
///
/// # use loopstore::extend::{append, session};
/// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
/// # let new = Session::new(id.clone(), "agent");
/// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
/// # monday.status = LoopStatus::Completed;
/// # let loop_key = store::write(&store, |write| {
/// #     let key = session::create_session(write, &new, None, None)?;
/// #     let loop_key = session::create_loop(write, key, &monday)?;
/// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
/// #     let messages = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, messages.collect(), &HeuristicTokenCounter)?;
/// #     Ok(loop_key)
/// # })?;
/// store::write(&store, |write| set_status(write, loop_key, LoopStatus::Aborted))?;
/// let row = store::read(&store, |read| read.loop_by_key(loop_key))?;
/// assert_eq!(row.status, LoopStatus::Aborted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_status(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    status: crate::model::LoopStatus,
) -> StoreResult<()> {
    lease::ensure_unleased(write, loop_key, lease::now())?;
    set_status_leased(write, loop_key, status, None)
}

/// Sets the status of a loop for the holder of the lease, which was checked in this transaction. `at` is the time at
/// which the loop ended; the present time if `None`.
#[doc(hidden)]
pub fn set_status_leased(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    status: crate::model::LoopStatus,
    at: Option<&Time>,
) -> StoreResult<()> {
    let mut row = write.loop_by_key(loop_key)?;
    let at = at.cloned().unwrap_or_else(Time::now);
    row.ended_at = status.is_ended().then(|| at.as_str().to_owned());
    row.status = status;
    finalize_turns(write, &mut row, LastTurn::Final)?;
    write.update_loop(&row)
}

/// Determines the complete turns of a loop and makes them final. A final turn stays final.
#[doc(hidden)]
pub fn finalize_turns(
    read: &dyn StoreWrite,
    row: &mut LoopRow,
    last_turn: LastTurn,
) -> StoreResult<()> {
    let last = match row.totals.turns.checked_sub(1) {
        Some(turn) => Some(turn_of(read, row.key, turn)?),
        None => None,
    };
    finalize_turns_with(&mut row.core, &row.progress, last.as_ref(), last_turn);
    Ok(())
}

fn finalize_turns_with(
    row: &mut LoopCore,
    progress: &LoopProgress,
    last: Option<&TurnRow>,
    last_turn: LastTurn,
) {
    let ended = row.status.is_ended();
    let open = &progress.open_calls;
    let in_flight = last.is_some_and(|last| {
        !ended && (!last.answered || open.values().any(|made| *made == last.turn))
    });
    let totals = &mut row.totals;
    totals.complete = totals.turns - u32::from(in_flight);
    let final_seq = match last {
        Some(last) if in_flight || last_turn == LastTurn::Open => last.first_seq,
        _ => totals.next_seq,
    };
    totals.sealed_seq = totals.sealed_seq.max(final_seq);
}

/// Returns the size of the first `turns` turns of a loop.
///
/// # Errors
/// If a turn is missing.
pub fn size_through(
    read: &(impl StoreRead + ?Sized),
    loop_key: LoopKey,
    turns: u32,
) -> StoreResult<Size> {
    match turns.checked_sub(1) {
        None => Ok(Size::default()),
        Some(last) => Ok(turn_of(read, loop_key, last)?.size()),
    }
}

/// Returns the size of the first `turns` turns of a loop; of the last turn only the messages before the
/// sequence `end`, if given.
///
/// # Errors
/// If a turn is missing.
pub fn size_within(
    read: &(impl StoreRead + ?Sized),
    loop_key: LoopKey,
    turns: u32,
    end: Option<u32>,
) -> StoreResult<Size> {
    let (Some(end), Some(last)) = (end, turns.checked_sub(1)) else {
        return size_through(read, loop_key, turns);
    };
    let mut size = size_through(read, loop_key, last)?;
    let first = turn_of(read, loop_key, last)?.first_seq;
    size.add(recorded_size(read, loop_key, first..end)?);
    Ok(size)
}

/// Returns the size of messages of a loop as they were recorded; extensions do not count.
///
/// # Errors
/// If the store fails.
pub(crate) fn recorded_size(
    read: &(impl StoreRead + ?Sized),
    loop_key: LoopKey,
    seqs: std::ops::Range<u32>,
) -> StoreResult<Size> {
    let mut size = Size::default();
    read.sizes(loop_key, seqs, &mut |message| {
        if message.role != Role::Extension {
            size.add(message.size);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(size)
}
