//! The life of an append: messages in, whole turns out.
//!
//! One transaction groups the messages into turns, counts, seals, chains the digests and raises
//! the session's tick. Nothing here reads a message body.

mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use super::codec;
use super::error::{StoreError, StoreResult};
use super::lease::{self, Lease};
use super::ready::Ready;
use super::rows::{CallSite, LoopProgress, LoopRow, MessageRow, Size, TurnRow};
use super::{AppendState, LoopCore, LoopKey, SessionActivity, StoreRead, StoreWrite, Tick};
use crate::model::{AgentMessage, LoopStatus, Message, Role, Time};
use crate::tokens::TokenCounter;

pub(crate) use turns::{append_in_turns, end_of_line, free_loop_id};

/// A message to append, with the keyed digest of the record that it was imported from.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The message.
    pub message: AgentMessage,
    /// The digest, `None` if it was not imported.
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

/// What an append did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The sequences of the messages.
    pub seqs: Range<u32>,
    /// Turn groups of the loop afterwards.
    pub turns: u32,
    /// Turn groups that are not in flight.
    pub complete: u32,
    /// The session's tick afterwards.
    pub tick: Tick,
}

/// Appends messages to a loop that nobody drives.
///
/// # Errors
/// If the loop is not there, somebody drives it ([`StoreError::LeaseHeld`]), or the store refuses.
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
) -> StoreResult<Appended> {
    let state = write.append_state(loop_key)?;
    lease::ensure_row_unleased(write, state.lease.as_ref(), lease::now())?;
    append_all(write, state, ready(messages, counter))
}

/// Appends messages to a loop for the holder of its lease.
pub(crate) fn append_leased(
    write: &mut dyn StoreWrite,
    (lease, now): (&Lease, i64),
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
) -> StoreResult<Appended> {
    let state = write.append_state(lease.loop_key)?;
    lease::keep_row(write, lease, state.lease.as_ref(), now)?;
    append_all(write, state, ready(messages, counter))
}

fn ready(
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
) -> impl Iterator<Item = StoreResult<Ready>> {
    messages.into_iter().map(|new| Ready::of(new, counter))
}

/// Appends messages that are in their stored form to a loop that nobody drives. One that has ended
/// runs again.
pub(crate) fn append_ready(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    messages: Vec<Ready>,
) -> StoreResult<Appended> {
    let mut state = write.append_state(loop_key)?;
    lease::ensure_row_unleased(write, state.lease.as_ref(), lease::now())?;
    if state.row.status.is_ended() {
        state.row.status = LoopStatus::Running;
    }
    append_all(write, state, messages.into_iter().map(Ok))
}

fn append_all(
    write: &mut dyn StoreWrite,
    state: AppendState,
    messages: impl Iterator<Item = StoreResult<Ready>>,
) -> StoreResult<Appended> {
    let from = state.row.totals.next_seq;
    let mut append = Append::begin(state)?;
    for message in messages {
        append.push(write, message?)?;
    }
    append.finish(write, from)
}

/// Replaces the last turn of a loop, which must not be sealed, by `messages`.
///
/// # Errors
/// If the turn is sealed, the loop has none, somebody drives it, or the store refuses.
///
/// # Examples
/// ```
/// use loopstore::extend::append::{append, replace_last_turn};
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// # let store = SqliteStore::in_memory()?;
/// # let new = Session::new(SessionId::new("weather")?, "agent");
/// let mut record = LoopRecord::new(LoopId::generate(), None);
/// // Its last turn may still change.
/// record.status = LoopStatus::Running;
/// let half = AgentMessage::from(Message::user("Will it"));
/// let whole = AgentMessage::from(Message::user("Will it rain?"));
/// let turns = store::write(&store, |write| {
///     let key = session::create_session(write, &new, None, None)?;
///     let loop_key = session::create_loop(write, key, &record)?;
///     append(write, loop_key, vec![half.into()], &HeuristicTokenCounter)?;
///     replace_last_turn(write, loop_key, vec![whole.into()], &HeuristicTokenCounter)
/// })?;
/// assert_eq!(turns.seqs, 0..1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replace_last_turn(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    messages: Vec<NewMessage>,
    counter: &dyn TokenCounter,
) -> StoreResult<Appended> {
    lease::ensure_unleased(write, loop_key, lease::now())?;
    let mut row = write.loop_by_key(loop_key)?;
    let Some(turn) = row.totals.turns.checked_sub(1) else {
        return append(write, loop_key, messages, counter);
    };
    let last = turn_of(write, loop_key, turn)?;
    if last.first_seq < row.totals.sealed_seq {
        return Err(StoreError::Invalid(format!(
            "turn {turn} is complete and cannot be replaced"
        )));
    }
    roll_back(write, &mut row, &last)?;
    write.remove_unsealed(loop_key, last.first_seq, turn)?;
    write.update_totals(&row, &row.progress)?;
    append(write, loop_key, messages, counter)
}

/// Sets the loop's totals back to what they were before its last turn.
fn roll_back(write: &dyn StoreWrite, row: &mut LoopRow, last: &TurnRow) -> StoreResult<()> {
    let before = match last.turn.checked_sub(1) {
        Some(turn) => turn_of(write, row.key, turn)?,
        None => TurnRow::default(),
    };
    let (system, reopened) = undone_by_removal(write, row, last)?;
    let totals = &mut row.totals;
    totals.turns = last.turn;
    totals.complete = totals.complete.min(last.turn);
    totals.next_seq = last.first_seq;
    totals.messages = before.messages;
    totals.tokens = before.tokens;
    totals.bytes = before.bytes;
    let (key, progress) = (row.key, &mut row.progress);
    progress.system_tokens = progress.system_tokens.saturating_sub(system);
    progress.last_turn_index = before.turn_index;
    progress.open_calls.retain(|_, made| *made < last.turn);
    progress.open_calls.extend(reopened);
    progress.chain = [0; 32];
    if let Some(seq) = last.first_seq.checked_sub(1) {
        write.messages(key, seq..seq + 1, &mut |message| {
            progress.chain = message.chain;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(())
}

/// Returns what goes with a loop's last turn: the tokens of its system prompts, and the calls of
/// earlier turns that were open before it. It answered them, or made a call of the same id.
fn undone_by_removal(
    read: &dyn StoreWrite,
    row: &LoopRow,
    last: &TurnRow,
) -> StoreResult<(u64, BTreeMap<String, u32>)> {
    let (mut system, mut ids) = (0, BTreeSet::new());
    let seqs = last.first_seq..row.totals.next_seq;
    read.messages(row.key, seqs, &mut |message| {
        let tokens = message.body.tokens;
        match super::decode(read, message.body)? {
            AgentMessage::Extension(extension) if extension.kind == "system" => system += tokens,
            AgentMessage::Llm(llm) => {
                let message = llm.message;
                ids.extend(message.tool_calls().map(|call| call.id.clone()));
                if let Message::ToolResult(result) = message {
                    ids.insert(result.tool_call_id);
                }
            }
            AgentMessage::Extension(_) => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((system, open_before(read, row, last.first_seq, &ids)?))
}

/// Returns which of these calls had no result before a message of the loop, and their turns.
fn open_before(
    read: &dyn StoreWrite,
    row: &LoopRow,
    before: u32,
    ids: &BTreeSet<String>,
) -> StoreResult<BTreeMap<String, u32>> {
    let mut open = BTreeMap::new();
    if ids.is_empty() {
        return Ok(open);
    }
    read.messages(row.key, 0..before, &mut |stored| {
        let is_said = matches!(stored.body.role, Role::Assistant | Role::ToolResult);
        let Some(turn) = stored.turn.filter(|_| is_said) else {
            return Ok(ControlFlow::Continue(()));
        };
        let message = super::decode(read, stored.body)?;
        let calls = message.message().into_iter().flat_map(Message::tool_calls);
        for call in calls.filter(|call| ids.contains(&call.id)) {
            open.insert(call.id.clone(), turn);
        }
        if let Some(Message::ToolResult(result)) = message.message() {
            open.remove(&result.tool_call_id);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(open)
}

fn turn_of(read: &(impl StoreRead + ?Sized), loop_key: LoopKey, turn: u32) -> StoreResult<TurnRow> {
    read.turn(loop_key, turn)?.ok_or_else(|| missing_turn(turn))
}

fn missing_turn(turn: u32) -> StoreError {
    StoreError::Damaged(format!("turn {turn} is missing"))
}

/// Ends a loop that nobody drives, or sets it running again.
///
/// # Errors
/// If the loop is not there, somebody drives it, or the store refuses.
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
/// #     let said = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, said.collect(), &HeuristicTokenCounter)?;
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

/// The same for its driver, which has shown its lease in this transaction. It ended at `at`, now if
/// not given.
pub(crate) fn set_status_leased(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    status: crate::model::LoopStatus,
    at: Option<&Time>,
) -> StoreResult<()> {
    let mut row = write.loop_by_key(loop_key)?;
    let at = at.cloned().unwrap_or_else(Time::now);
    row.ended_at = status.is_ended().then(|| at.as_str().to_owned());
    row.status = status;
    seal(write, &mut row)?;
    write.update_loop(&row)
}

/// Works out which turns are complete, and seals them. A turn that was sealed stays sealed.
pub(crate) fn seal(read: &dyn StoreWrite, row: &mut LoopRow) -> StoreResult<()> {
    let last = match row.totals.turns.checked_sub(1) {
        Some(turn) => Some(turn_of(read, row.key, turn)?),
        None => None,
    };
    seal_with(&mut row.core, &row.progress, last.as_ref());
    Ok(())
}

fn seal_with(row: &mut LoopCore, progress: &LoopProgress, last: Option<&TurnRow>) {
    let ended = row.status.is_ended();
    let open = &progress.open_calls;
    let in_flight = last.is_some_and(|last| {
        !ended && (!last.answered || open.values().any(|made| *made == last.turn))
    });
    let totals = &mut row.totals;
    totals.complete = totals.turns - u32::from(in_flight);
    let sealed = match last {
        Some(last) if in_flight => last.first_seq,
        _ => totals.next_seq,
    };
    totals.sealed_seq = totals.sealed_seq.max(sealed);
}

/// The state of an append in progress.
struct Append {
    row: LoopCore,
    progress: LoopProgress,
    session: SessionActivity,
    /// The last turn, as far as it has come.
    turn: Option<TurnRow>,
    cursor: crate::model::GroupCursor,
    /// Whether `turn` differs from what is stored.
    dirty: bool,
    /// Whether the tick has been raised yet.
    ticked: bool,
}

impl Append {
    fn begin(state: AppendState) -> StoreResult<Self> {
        let turns = state.row.totals.turns;
        let cursor = match &state.last {
            Some(turn) => crate::model::GroupCursor::after(turn.turn_index),
            None if turns == 0 => crate::model::GroupCursor::default(),
            None => return Err(missing_turn(turns - 1)),
        };
        Ok(Self {
            row: state.row,
            progress: state.progress,
            session: state.session,
            turn: state.last,
            cursor,
            dirty: false,
            ticked: false,
        })
    }

    fn push(&mut self, write: &mut dyn StoreWrite, new: Ready) -> StoreResult<()> {
        if new.body.role != Role::Extension {
            self.enter_turn(write, new.turn_index)?;
            self.follow_calls(write, &new)?;
        }
        if !self.ticked {
            self.raise_tick();
        }
        self.count(&new.body, new.is_system, new.created_at);
        let Ready {
            body,
            blobs,
            origin,
            created_at,
            ..
        } = new;
        let totals = &mut self.row.totals;
        self.progress.chain = codec::chain(&self.progress.chain, &body.digest);
        let row = MessageRow {
            seq: totals.next_seq,
            turn: totals.turns.checked_sub(1),
            tick: self.session.tick,
            body,
            created_at,
            origin,
            chain: self.progress.chain,
        };
        totals.next_seq = totals
            .next_seq
            .checked_add(1)
            .ok_or_else(|| StoreError::Invalid("a loop can hold at most 2^32 messages".into()))?;
        write.insert_message(self.row.key, &row, &blobs)
    }

    fn raise_tick(&mut self) {
        self.session.tick += 1;
        self.ticked = true;
    }

    /// Begins a new turn group if this message does.
    fn enter_turn(
        &mut self,
        write: &mut dyn StoreWrite,
        turn_index: Option<i64>,
    ) -> StoreResult<()> {
        if !self.cursor.begins(turn_index) && self.turn.is_some() {
            return Ok(());
        }
        self.flush(write)?;
        self.raise_tick();
        let before = self.turn.take().unwrap_or_default();
        self.turn = Some(TurnRow {
            turn: self.row.totals.turns,
            first_seq: self.row.totals.next_seq,
            turn_index,
            answered: false,
            answers: Vec::new(),
            started_at: None,
            ended_at: None,
            ..before
        });
        self.row.totals.turns += 1;
        self.progress.last_turn_index = turn_index;
        Ok(())
    }

    /// Keeps track of calls without a result, and of results that answer another turn's call.
    fn follow_calls(&mut self, read: &dyn StoreWrite, new: &Ready) -> StoreResult<()> {
        let Some(turn) = self.turn.as_mut() else {
            return Ok(());
        };
        let calls = &mut self.progress.open_calls;
        for id in &new.calls {
            calls.insert(id.clone(), turn.turn);
        }
        let Some(id) = &new.answers else {
            return Ok(());
        };
        let site = match calls.remove(id) {
            Some(made) if made == turn.turn => None,
            Some(made) => Some(CallSite {
                loop_key: self.row.key,
                turn: made,
            }),
            None => call_above(read, &self.row, id)?,
        };
        if let Some(site) = site.filter(|site| !turn.answers.contains(site)) {
            turn.answers.push(site);
        }
        Ok(())
    }

    fn count(&mut self, body: &super::StoredMessage, is_system: bool, created_at: Option<i64>) {
        if body.role == Role::Extension {
            self.progress.system_tokens += if is_system { body.tokens } else { 0 };
            return;
        }
        let totals = &mut self.row.totals;
        totals.messages += 1;
        totals.tokens += body.tokens;
        totals.bytes += body.bytes;
        let Some(turn) = self.turn.as_mut() else {
            return;
        };
        turn.messages = totals.messages;
        turn.tokens = totals.tokens;
        turn.bytes = totals.bytes;
        turn.prompts += u64::from(body.role == Role::User);
        turn.answered |= body.role == Role::Assistant;
        turn.started_at = turn.started_at.or(created_at);
        turn.ended_at = created_at.or(turn.ended_at);
        turn.tick = self.session.tick;
        self.dirty = true;
    }

    fn flush(&mut self, write: &mut dyn StoreWrite) -> StoreResult<()> {
        if let (true, Some(turn)) = (self.dirty, &self.turn) {
            write.put_turn(self.row.key, turn)?;
        }
        self.dirty = false;
        Ok(())
    }

    fn finish(mut self, write: &mut dyn StoreWrite, from: u32) -> StoreResult<Appended> {
        self.flush(write)?;
        if self.row.totals.next_seq > from {
            seal_with(&mut self.row, &self.progress, self.turn.as_ref());
            write.update_totals(&self.row, &self.progress)?;
            self.session.current_loop = Some(self.row.key);
            self.session.last_active_at = Some(self.last_active());
            write.touch_session(&self.session)?;
        }
        let totals = &self.row.totals;
        Ok(Appended {
            seqs: from..totals.next_seq,
            turns: totals.turns,
            complete: totals.complete,
            tick: self.session.tick,
        })
    }

    /// The time of the last message if it has one: an import must not look like activity today.
    fn last_active(&self) -> String {
        let said = self
            .turn
            .as_ref()
            .and_then(|turn| turn.ended_at)
            .and_then(Time::from_millis);
        let known = self.session.last_active_at.clone().map(Time::from_text);
        match (said, known) {
            (Some(said), Some(known)) if said.millis() < known.millis() => known,
            (Some(said), _) => said,
            (None, _) => Time::now(),
        }
        .as_str()
        .to_owned()
    }
}

/// Derives the turns and totals of a loop again, message by message, from rows that are there.
pub(crate) struct Retell {
    append: Append,
}

impl Retell {
    /// Begins with a loop whose turns are gone.
    pub(crate) fn begin(mut row: LoopCore, session: SessionActivity) -> Self {
        row.totals = super::LoopTotals {
            generation: row.totals.generation,
            // A block may have sealed more than the turns that are complete.
            sealed_seq: row.totals.sealed_seq,
            ..Default::default()
        };
        Self {
            append: Append {
                row,
                progress: LoopProgress::default(),
                session,
                turn: None,
                cursor: crate::model::GroupCursor::default(),
                dirty: false,
                ticked: true,
            },
        }
    }

    /// Takes the next message and returns its row with what follows from the messages before.
    pub(crate) fn push(
        &mut self,
        write: &mut dyn StoreWrite,
        row: MessageRow,
        message: &AgentMessage,
    ) -> StoreResult<MessageRow> {
        let append = &mut self.append;
        let told = Ready::stored(message, row.body.clone());
        if told.role() != Role::Extension {
            append.enter_turn(write, told.turn_index)?;
            append.follow_calls(write, &told)?;
        }
        append.session.tick = row.tick;
        append.count(&told.body, told.is_system, told.created_at);
        let (totals, progress) = (&mut append.row.totals, &mut append.progress);
        progress.chain = codec::chain(&progress.chain, &row.body.digest);
        totals.next_seq = row.seq.saturating_add(1);
        Ok(MessageRow {
            turn: totals.turns.checked_sub(1),
            created_at: told.created_at,
            chain: progress.chain,
            ..row
        })
    }

    /// Writes the last turn and the totals.
    pub(crate) fn finish(mut self, write: &mut dyn StoreWrite) -> StoreResult<()> {
        self.append.flush(write)?;
        let Append {
            row,
            progress,
            turn,
            ..
        } = &mut self.append;
        let totals = &mut row.totals;
        totals.sealed_seq = totals.sealed_seq.min(totals.next_seq);
        seal_with(row, progress, turn.as_ref());
        write.update_totals(row, progress)
    }
}

/// Finds the call `id` in the loops before: among their unanswered ones, or among those that were
/// answered only after this chain had left the loop.
fn call_above(read: &dyn StoreWrite, row: &LoopCore, id: &str) -> StoreResult<Option<CallSite>> {
    let Some(parent) = row.parent else {
        return Ok(None);
    };
    let (mut cut, mut found) = (row.parent_turns(), None);
    read.walk(parent, &mut |above| {
        let open = above.progress.open_calls.get(id).copied();
        let made = match open.filter(|turn| *turn < cut) {
            Some(turn) => Some(turn),
            None => answered_later(read, &above, cut, id)?,
        };
        if let Some(turn) = made {
            let loop_key = above.key;
            found = Some(CallSite { loop_key, turn });
            return Ok(ControlFlow::Break(()));
        }
        cut = above.parent_turns();
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Finds the call `id` in the first `cut` turns of a loop, if a later turn answers it. This reads
/// messages, but only those of turns whose calls were answered across the cut.
fn answered_later(
    read: &dyn StoreWrite,
    row: &LoopCore,
    cut: u32,
    id: &str,
) -> StoreResult<Option<u32>> {
    let answers = read.answers(row.key, cut..row.totals.turns)?;
    let sites = answers.into_iter().flat_map(|(_, sites)| sites);
    for site in sites.filter(|site| site.loop_key == row.key && site.turn < cut) {
        if turn_calls(read, row, site.turn, id)? {
            return Ok(Some(site.turn));
        }
    }
    Ok(None)
}

/// Whether a turn makes the call `id`.
fn turn_calls(read: &dyn StoreWrite, row: &LoopCore, turn: u32, id: &str) -> StoreResult<bool> {
    let first = turn_of(read, row.key, turn)?.first_seq;
    let next = read.turn(row.key, turn + 1)?;
    let end = next.map_or(row.totals.next_seq, |next| next.first_seq);
    let mut calls = false;
    read.messages(row.key, first..end, &mut |message| {
        let message = super::decode(read, message.body)?;
        calls |= message
            .message()
            .is_some_and(|message| message.tool_calls().any(|call| call.id == id));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(calls)
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
