//! Appends without turn ids: the turn and the loop of a message are derived from its order.
//!
//! A turn is one model call with its inputs and its tool results; a loop is a prompt and everything
//! until the agent stops. Both follow from the order of the messages and from the calls that have no
//! result yet, so that a caller appends messages and names neither. Everything that the decision needs is
//! read in the append's own transaction.

use std::ops::{ControlFlow, Range};

use super::{Append, AppendedCompaction, EncodedMessage, LastTurn};
use crate::model::received;
use crate::model::{
    AgentMessage, Author, LlmMessage, LoopId, LoopRecord, LoopStatus, Message, Role, ToolCall,
    TurnId,
};
use crate::store::error::StoreResult;
use crate::store::{AppendKey, LoopKey, SessionKey, StoreRead, StoreWrite, lease, session};
use crate::tokens::TokenCounter;

/// The result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Appended {
    /// The loop of the last of the messages.
    pub loop_id: LoopId,
    /// The turns of the messages in that loop, including turns that existed before the append.
    pub turns: Range<u32>,
    /// The sequences of the messages in that loop.
    pub seqs: Range<u32>,
    /// The tokens of all messages.
    pub tokens: u64,
    /// The loops that the messages began, in order.
    pub begun: Vec<LoopId>,
    /// A sentence for each tool call or result whose missing id or name, or arguments of another type, were
    /// completed, and for each part of a report of cleared content that is not recorded as an edit.
    pub notes: Vec<String>,
    /// True if the session already had an append under this key; nothing was appended.
    pub duplicate: bool,
}

impl Appended {
    /// Returns the result of an earlier append under a key, in the loop of this id.
    pub fn before(loop_id: LoopId, known: AppendKey) -> Self {
        Self {
            loop_id,
            turns: known.turns,
            seqs: known.seqs,
            tokens: known.tokens,
            begun: Vec::new(),
            notes: Vec::new(),
            duplicate: true,
        }
    }

    /// Returns the result of this append and one after it to the same line, as of one append.
    #[must_use]
    #[doc(hidden)]
    pub fn followed_by(mut self, next: Self) -> Self {
        self.begun.extend(next.begun);
        self.notes.extend(next.notes);
        let is_same = self.loop_id == next.loop_id;
        let (turns, seqs) = match is_same {
            true => (
                self.turns.start.min(next.turns.start)..next.turns.end,
                self.seqs.start..next.seqs.end,
            ),
            false => (next.turns, next.seqs),
        };
        Self {
            loop_id: next.loop_id,
            turns,
            seqs,
            tokens: self.tokens + next.tokens,
            begun: self.begun,
            notes: self.notes,
            duplicate: false,
        }
    }
}

/// The result of an append that assigns turns and loops, with what the rows of the append need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnsAppended {
    /// The result for the caller.
    pub appended: Appended,
    /// The loop that contains the last of the messages.
    pub loop_key: LoopKey,
    /// The ids of the calls that the messages answer.
    pub answered: Vec<String>,
    /// The messages that contain a provider's own compaction.
    pub compactions: Vec<AppendedCompaction>,
}

/// The turn or loop that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagePlacement {
    OpenTurn,
    NewTurn,
    NewLoop,
}

/// Appends messages to the line that ends in `leaf`, and assigns their turns and loops. Without a leaf,
/// the session's first loop begins. A message without a time of its own gets that of the append.
///
/// # Errors
/// If the leaf is leased, or the store fails.
pub fn append_in_turns(
    write: &mut dyn StoreWrite,
    owner: SessionKey,
    leaf: Option<LoopKey>,
    messages: impl IntoIterator<Item = AgentMessage>,
    counter: &dyn TokenCounter,
) -> StoreResult<TurnsAppended> {
    let mut append = TurnsAppend::begin(write, owner, leaf)?;
    for message in messages {
        append.push(write, message, counter)?;
    }
    append.finish(write)
}

/// An append like [`append_in_turns`], message by message, so that a later message can refer to the position of an
/// earlier one. Until [`TurnsAppend::finish`] is called, no other code may read or write the loop in the transaction,
/// and the transaction must not be committed.
pub struct TurnsAppend {
    owner: SessionKey,
    open: OpenLoop,
    tokens: u64,
    begun: Vec<LoopId>,
    answered: Vec<String>,
    notes: Vec<String>,
}

impl TurnsAppend {
    /// Begins an append to the line that ends in `leaf`, or with the session's first loop.
    ///
    /// # Errors
    /// If the leaf is leased, or the store fails.
    pub fn begin(
        write: &mut dyn StoreWrite,
        owner: SessionKey,
        leaf: Option<LoopKey>,
    ) -> StoreResult<Self> {
        let mut begun = Vec::new();
        let leaf = match leaf {
            Some(leaf) => leaf,
            None => {
                let id = free_loop_id(write, owner)?;
                begun.push(id.clone());
                session::add_loop(write, owner, &LoopRecord::new(id, None), None)?
            }
        };
        Ok(Self {
            owner,
            open: OpenLoop::of(write, leaf)?,
            tokens: 0,
            begun,
            answered: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Returns the loop of the last message.
    pub fn loop_key(&self) -> LoopKey {
        self.open.append.row.key
    }

    /// Returns the id of that loop.
    pub fn loop_id(&self) -> &LoopId {
        &self.open.append.row.loop_id
    }

    /// Returns the sequence of the next message, if it belongs to the same loop.
    pub fn next_seq(&self) -> u32 {
        self.open.append.row.totals.next_seq
    }

    /// Appends a message.
    ///
    /// # Errors
    /// If the store fails.
    pub fn push(
        &mut self,
        write: &mut dyn StoreWrite,
        message: AgentMessage,
        counter: &dyn TokenCounter,
    ) -> StoreResult<()> {
        let message = match message {
            AgentMessage::Llm(message) => {
                let mut place = self.open.place(write, &message)?;
                if place == MessagePlacement::NewLoop {
                    let id = self.open.next_id(write, self.owner)?;
                    self.begun.push(id.clone());
                    self.open.go_on(write, id)?;
                    place = MessagePlacement::NewTurn;
                }
                let mut message = AgentMessage::Llm(self.open.numbered(message, place));
                self.open.name_calls(write, &mut message)?;
                if let Some(Message::ToolResult(result)) = message.message() {
                    self.answered.push(result.tool_call_id.clone());
                }
                self.notes.append(&mut received::notes(&message));
                message
            }
            extension => extension,
        };
        let ready = EncodedMessage::of(message.into(), counter)?;
        self.tokens += ready.body.tokens;
        self.open.append.push(write, ready)
    }

    /// Writes the totals, and returns the positions of the messages.
    ///
    /// # Errors
    /// If the store fails.
    pub fn finish(self, write: &mut dyn StoreWrite) -> StoreResult<TurnsAppended> {
        let Self {
            open,
            tokens,
            begun,
            answered,
            notes,
            ..
        } = self;
        let (loop_key, loop_id) = (open.append.row.key, open.append.row.loop_id.clone());
        let turns_before = open.turns_before;
        let written = open.append.finish(write, open.from, LastTurn::Final)?;
        // A message that joined an existing turn changed that turn too.
        let first = turns_before.saturating_sub(u32::from(open.joined));
        Ok(TurnsAppended {
            appended: Appended {
                loop_id,
                seqs: written.seqs,
                turns: first..written.turns,
                tokens,
                begun,
                notes,
                duplicate: false,
            },
            loop_key,
            answered,
            compactions: written.compactions,
        })
    }
}

/// A loop that is appended to.
struct OpenLoop {
    append: Append,
    /// The sequence of the first message of this append.
    from: u32,
    /// The turns before this append.
    turns_before: u32,
    /// True if a message of this append joined a turn that existed before.
    joined: bool,
    /// The response that the last message is a part of; the outer `None`: not read yet.
    response: Option<Option<String>>,
}

impl OpenLoop {
    fn of(write: &mut dyn StoreWrite, leaf: LoopKey) -> StoreResult<Self> {
        let mut state = write.append_state(leaf)?;
        let now = lease::now();
        lease::ensure_row_unleased(write, state.lease.as_ref(), now)?;
        if state.row.status == LoopStatus::Pending {
            state.row.status = LoopStatus::Running;
        }
        let totals = state.row.totals;
        Ok(Self {
            append: Append::begin(state, Some(now))?,
            from: totals.next_seq,
            turns_before: totals.turns,
            joined: false,
            response: None,
        })
    }

    /// Returns an id for the loop that continues this one.
    fn next_id(&self, read: &dyn StoreRead, owner: SessionKey) -> StoreResult<LoopId> {
        let row = &self.append.row;
        match self.append.current_loop() {
            Some(current) if current == row.key => free_after(read, owner, Some(&row.loop_id)),
            _ => free_loop_id(read, owner),
        }
    }

    /// Writes the appended state, ends the loop if it runs, and creates the loop that continues it.
    fn go_on(&mut self, write: &mut dyn StoreWrite, id: LoopId) -> StoreResult<()> {
        let record = LoopRecord::new(id, Some(self.append.row.loop_id.clone()));
        self.append = self.append.go_on(write, self.from, &record)?;
        (self.from, self.turns_before, self.joined) = (0, 0, false);
        Ok(())
    }

    /// Returns the placement of a message.
    fn place(
        &mut self,
        read: &dyn StoreWrite,
        message: &LlmMessage,
    ) -> StoreResult<MessagePlacement> {
        let (role, response) = (message.message.role(), message.response());
        let goes_on = response.is_some() && self.last_response(read)? == response;
        self.response = Some(response.map(str::to_owned));
        if self.own_index(message).is_some() {
            return Ok(MessagePlacement::OpenTurn);
        }
        let row = &self.append.row;
        if row.status.is_ended() {
            match role {
                Role::User => return Ok(MessagePlacement::NewLoop),
                // The agent continues the ended loop.
                _ => self.append.row.status = LoopStatus::Running,
            }
        }
        let Some(turn) = &self.append.turn else {
            return Ok(MessagePlacement::NewTurn);
        };
        let calls = &self.append.progress.open_calls;
        let is_waiting = calls.values().any(|made| *made == turn.turn);
        let is_harness = message.message.author() == Author::Harness;
        Ok(match role {
            Role::ToolResult => MessagePlacement::OpenTurn,
            Role::Assistant if !turn.answered || goes_on => MessagePlacement::OpenTurn,
            Role::User if !turn.answered || is_waiting && is_harness => MessagePlacement::OpenTurn,
            // A user message while calls wait: their turn gets no more results that a model reads there, and must
            // not stay in flight for ever.
            Role::User if is_waiting => MessagePlacement::NewTurn,
            Role::User => MessagePlacement::NewLoop,
            _ => MessagePlacement::NewTurn,
        })
    }

    /// Names the calls of a message that have no id, and the call that a result without an id answers.
    fn name_calls(&self, read: &dyn StoreWrite, message: &mut AgentMessage) -> StoreResult<()> {
        match message.message() {
            Some(Message::Assistant(_)) => {
                let row = &self.append.row;
                let prefix = format!("call-{}-{}", row.key.0, row.totals.next_seq);
                received::name_calls(message, &prefix);
            }
            Some(Message::ToolResult(result)) if result.tool_call_id.is_empty() => {
                let open = self.open_calls(read)?;
                received::pair_result(message, &open);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the calls of the last turn that have no result, in order.
    fn open_calls(&self, read: &dyn StoreWrite) -> StoreResult<Vec<ToolCall>> {
        let (row, mut open) = (&self.append.row, Vec::new());
        let Some(turn) = &self.append.turn else {
            return Ok(open);
        };
        let is_open = |id: &str| self.append.progress.open_calls.get(id) == Some(&turn.turn);
        if !self
            .append
            .progress
            .open_calls
            .values()
            .any(|made| *made == turn.turn)
        {
            return Ok(open);
        }
        read.messages(
            row.key,
            turn.first_seq..row.totals.next_seq,
            &mut |stored| {
                if stored.body.role == Role::Assistant {
                    let message = crate::store::decode(read, stored.body)?;
                    let made = message.message().into_iter().flat_map(Message::tool_calls);
                    open.extend(made.filter(|call| is_open(&call.id)).cloned());
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(open)
    }

    /// Returns the index that the message's source gave its turn, if the index belongs to this loop.
    fn own_index(&self, message: &LlmMessage) -> Option<i64> {
        let id = message.turn_id.as_ref()?;
        (id.loop_id == self.append.row.loop_id.as_str()).then(|| id.turn_index.get())
    }

    /// Puts the message into its turn.
    fn numbered(&mut self, mut message: LlmMessage, place: MessagePlacement) -> LlmMessage {
        let last = self.append.turn.as_ref();
        if let Some(index) = self.own_index(&message) {
            self.joined |= last.is_some_and(|turn| {
                turn.turn_index == Some(index) && turn.turn + 1 == self.turns_before
            });
            return message;
        }
        let open = last.filter(|_| place == MessagePlacement::OpenTurn);
        // A turn without an index takes no more messages: a message without one is a turn of its own.
        let index = match open.and_then(|turn| turn.turn_index) {
            Some(index) => {
                self.joined |= last.is_some_and(|turn| turn.turn + 1 == self.turns_before);
                index
            }
            None => {
                let position = i64::from(self.append.row.totals.turns);
                let taken = last.is_some_and(|turn| turn.turn_index == Some(position));
                position + i64::from(taken)
            }
        };
        message.turn_id = Some(TurnId {
            loop_id: self.append.row.loop_id.as_str().to_owned(),
            turn_index: index.into(),
            extra: crate::model::Extra::default(),
        });
        message
    }

    /// Returns the response that the loop's last message is a part of.
    fn last_response(&mut self, read: &dyn StoreWrite) -> StoreResult<Option<&str>> {
        if self.response.is_none() {
            self.response = Some(self.stored_response(read)?);
        }
        Ok(self.response.as_ref().and_then(Option::as_deref))
    }

    fn stored_response(&self, read: &dyn StoreWrite) -> StoreResult<Option<String>> {
        let (row, mut response) = (&self.append.row, None);
        let Some(turn) = &self.append.turn else {
            return Ok(None);
        };
        read.messages(
            row.key,
            turn.first_seq..row.totals.next_seq,
            &mut |stored| {
                if stored.body.role != Role::Extension {
                    response = match crate::store::decode(read, stored.body)? {
                        AgentMessage::Llm(message) => message.response().map(str::to_owned),
                        AgentMessage::Extension(_) => None,
                    };
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(response)
    }
}

/// Returns an id that no loop of the session has: `loop-1`, `loop-2` and so on.
///
/// # Errors
/// If the store fails.
pub fn free_loop_id(read: &dyn StoreRead, owner: SessionKey) -> StoreResult<LoopId> {
    let current = match read.session_by_key(owner)?.current_loop {
        Some(key) => Some(read.loop_by_key(key)?),
        None => None,
    };
    free_after(read, owner, current.as_ref().map(|row| &row.loop_id))
}

/// Returns the next free id after that of the session's current loop.
fn free_after(
    read: &dyn StoreRead,
    owner: SessionKey,
    current: Option<&LoopId>,
) -> StoreResult<LoopId> {
    let current = current.and_then(|id| id.as_str().strip_prefix("loop-"));
    let mut number: u64 = current.and_then(|number| number.parse().ok()).unwrap_or(0);
    // The next id is nearly always free. Where branches have taken many, the steps grow, so that
    // few lookups are needed.
    let mut step = 1;
    loop {
        number = number.saturating_add(step);
        let id = LoopId::of(format!("loop-{number}"));
        if read.loop_by_id(owner, &id)?.is_none() {
            return Ok(id);
        }
        step = if step < 8 { step + 1 } else { step * 2 };
    }
}

/// Returns the loop in which the line through `from` now ends: its newest child that continues it by
/// default, the newest such child of that, and so on.
///
/// # Errors
/// If the store fails.
pub fn end_of_line(read: &dyn StoreRead, from: LoopKey) -> StoreResult<LoopKey> {
    let mut leaf = from;
    while let Some(next) = read.default_child(leaf)? {
        leaf = next;
    }
    Ok(leaf)
}
