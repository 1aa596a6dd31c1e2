//! Pins: messages that every later compaction keeps word for word.
//!
//! Pinning and unpinning add a row each, which counts from a point of a chain as an undo does. A pin affects the next
//! compaction; blocks that are already written stay unchanged.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::context::{leaf_of, session_of};
use crate::model::{AgentMessage, Author, Content, LoopId, Role, SessionId, Time, Turns};
use crate::overlay::{ChainPins, PinnedMessage, turn_seqs};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{
    self, Cut, LoopRow, PinRow, Point, SessionRow, SessionStore, StoreError, StoreRead, StoreResult,
};

/// A reference to one message of a turn, or to all messages of the turn that a person or the agent wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRef {
    /// The loop.
    pub loop_id: LoopId,
    /// The turn, by position from 0.
    pub turn: u32,
    /// The message, by its sequence in the loop; if `None`, all messages of the turn that a person or the agent
    /// wrote.
    pub seq: Option<u32>,
}

impl PinRef {
    /// Refers to the messages of a turn that a person or the agent wrote.
    pub fn turn(loop_id: impl Into<String>, turn: u32) -> Self {
        Self {
            loop_id: LoopId::of(loop_id),
            turn,
            seq: None,
        }
    }

    /// Refers to one message of a turn.
    pub fn message(loop_id: impl Into<String>, turn: u32, seq: u32) -> Self {
        Self {
            seq: Some(seq),
            ..Self::turn(loop_id, turn)
        }
    }
}

/// The messages to pin or unpin.
#[derive(Clone, Debug)]
pub struct PinRequest {
    /// The messages.
    pub of: PinRef,
    /// The leaf at which the pins are recorded. If `None`: the session's current loop if the message is on its chain,
    /// else the message's own loop.
    pub leaf: Option<LoopId>,
}

/// The result of pinning or unpinning messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinReport {
    /// The session.
    pub session_id: SessionId,
    /// The leaf at which the pins were recorded.
    pub leaf_loop_id: LoopId,
    /// `pinned` or `unpinned`.
    pub outcome: &'static str,
    /// The messages, including those that were already pinned or unpinned.
    pub messages: Vec<PinChange>,
}

/// A message of a request to pin or unpin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinChange {
    /// The loop.
    pub loop_id: LoopId,
    /// The turn.
    pub turn: u32,
    /// Its sequence.
    pub seq: u32,
    /// True if the request changed the message.
    pub changed: bool,
}

/// The pinned messages of the chain of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinList {
    /// The session.
    pub session_id: SessionId,
    /// The leaf.
    pub leaf_loop_id: LoopId,
    /// The messages from the root to the leaf.
    pub pins: Vec<Pin>,
}

/// A pinned message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pin {
    /// The loop.
    pub loop_id: LoopId,
    /// The turn.
    pub turn: u32,
    /// Its sequence.
    pub seq: u32,
    /// `user`, `assistant` or `toolResult`.
    pub role: &'static str,
    /// The author of the message: `human`, `agent` or `harness`.
    pub author: &'static str,
    /// Tokens of the message.
    pub tokens: u64,
    /// The time at which the message was pinned, as ISO-8601 text.
    pub created_at: String,
    /// Its first words, on one line.
    pub text: String,
}

/// The number of characters of a pinned message that a list shows.
const MOST_TEXT: usize = 100;

/// Pins messages: every later compaction keeps them word for word.
///
/// # Errors
/// If the session, the loop or the message does not exist, the turn has no message that can be pinned, or the store
/// fails.
///
/// # Examples
/// ```
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?"), Message::assistant("The code is 7-11.")])?;
/// chat.append((0..40).map(report))?;
/// chat.pin(PinRef::message("loop-1", 0, 1))?;
/// # let mut request = Policy::default().keep_first(0).request();
/// # request.trigger = CompactTrigger::Force;
/// chat.compact(&request)?;
/// let context = chat.context()?.messages;
/// assert!(context.iter().any(|message| format!("{message:?}").contains("The code is 7-11.")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pin(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &PinRequest,
) -> StoreResult<PinReport> {
    change(store, session, request, true)
}

/// Removes pins: the next compaction treats the messages like any others. A reference without a sequence removes the
/// pins of all messages of the turn.
///
/// # Errors
/// If the session, the loop or the message does not exist, none of these messages is pinned, or the store fails.
pub fn unpin(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &PinRequest,
) -> StoreResult<PinReport> {
    change(store, session, request, false)
}

/// Returns the pinned messages of the chain of a leaf; the leaf is the session's current loop if `None`.
///
/// # Errors
/// If the session or the loop does not exist, or the store fails.
pub fn pins(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
) -> StoreResult<PinList> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let leaf = leaf_of(read, &owner, leaf)?;
        let rows = read.pins(owner.key)?;
        let live = ChainPins::load(read, owner.key, leaf.key)?;
        let pins = live.messages.iter().map(|pin| listed(read, &rows, pin));
        Ok(PinList {
            session_id: owner.session_id,
            leaf_loop_id: leaf.core.loop_id,
            pins: pins.collect::<StoreResult<_>>()?,
        })
    })
}

fn listed(read: &dyn StoreRead, rows: &[PinRow], pin: &PinnedMessage) -> StoreResult<Pin> {
    let is_made = |row: &&PinRow| row.pinned && (row.loop_key, row.seq) == pin.place();
    let made = rows.iter().rev().find(is_made);
    let mut found = None;
    read.messages(
        pin.loop_key,
        pin.seq..pin.seq.saturating_add(1),
        &mut |row| {
            let (role, author, tokens) = (row.body.role, row.body.author, row.body.tokens);
            found = Some((role, author, tokens, store::decode(read, row.body)?));
            Ok(ControlFlow::Break(()))
        },
    )?;
    let missing = || StoreError::Damaged(format!("the pinned message {} is missing", pin.seq));
    let (role, author, tokens, message) = found.ok_or_else(missing)?;
    Ok(Pin {
        loop_id: read.loop_by_key(pin.loop_key)?.core.loop_id,
        turn: pin.turn,
        seq: pin.seq,
        role: role.as_str(),
        author: author.as_str(),
        tokens,
        created_at: made.map_or_else(String::new, |row| row.at.clone()),
        text: first_words(&message),
    })
}

fn first_words(message: &AgentMessage) -> String {
    let inner = message.message();
    let text: Vec<&str> = inner.map_or_else(Vec::new, |inner| inner.texts().collect());
    let text = text.join(" ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn change(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &PinRequest,
    pinned: bool,
) -> StoreResult<PinReport> {
    store::write(store, |write| {
        let mut owner = session_of(write, session)?;
        let of = leaf_of(write, &owner, Some(&request.of.loop_id))?;
        let leaf = leaf_for(write, &owner, &of, request)?;
        let live = ChainPins::load(write, owner.key, leaf.key)?.messages;
        let seqs = match pinned {
            true => without_rewritten(write, &leaf, &of, to_pin(write, &of, &request.of)?)?,
            false => to_unpin(&of, &request.of, &live)?,
        };
        let mut messages = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let is_live = live.iter().any(|pin| pin.place() == (of.key, seq));
            if is_live != pinned {
                owner.tick += 1;
                let row = PinRow {
                    loop_key: of.key,
                    seq,
                    pinned,
                    point: Point {
                        loop_key: leaf.key,
                        turns: leaf.totals.complete,
                    },
                    tick: owner.tick,
                    at: Time::now().as_str().to_owned(),
                };
                write.insert_pin(owner.key, &row)?;
            }
            messages.push(PinChange {
                loop_id: of.loop_id.clone(),
                turn: request.of.turn,
                seq,
                changed: is_live != pinned,
            });
        }
        write.touch_session(&(&owner).into())?;
        Ok(PinReport {
            session_id: owner.session_id,
            leaf_loop_id: leaf.core.loop_id,
            outcome: if pinned { "pinned" } else { "unpinned" },
            messages,
        })
    })
}

/// Returns the leaf from where a pin is made: one whose chain holds the turn.
fn leaf_for(
    read: &dyn StoreRead,
    owner: &SessionRow,
    of: &LoopRow,
    request: &PinRequest,
) -> StoreResult<LoopRow> {
    let asked = leaf_of(read, owner, request.leaf.as_ref())?;
    let (mut cut, mut holds) = (Cut::NONE, false);
    // Of a turn that the chain leaves midway, its first message at least.
    let seq = match request.of.seq {
        Some(seq) => seq,
        None => read
            .turn(of.key, request.of.turn)?
            .map_or(0, |turn| turn.first_seq),
    };
    read.walk(asked.key, &mut |row| {
        holds |= row.key == of.key && cut.holds(request.of.turn, seq);
        cut = row.parent_cut();
        Ok(ControlFlow::Continue(()))
    })?;
    match (holds, request.leaf.is_some()) {
        (true, _) => Ok(asked),
        (false, false) => Ok(of.clone()),
        (false, true) => Err(StoreError::Invalid(format!(
            "turn {} of loop `{}` is not on the chain of loop `{}`",
            request.of.turn, of.loop_id, asked.loop_id
        ))),
    }
}

/// Returns the messages that are to be pinned.
fn to_pin(read: &dyn StoreRead, of: &LoopRow, asked: &PinRef) -> StoreResult<Vec<u32>> {
    let (id, turn) = (&of.loop_id, asked.turn);
    if turn >= of.totals.turns {
        return Err(StoreError::Invalid(match of.totals.turns {
            0 => format!("loop `{id}` has no turns yet"),
            turns => format!(
                "loop `{id}` has no turn {turn}; its last turn is {}",
                turns - 1
            ),
        }));
    }
    let seqs = turn_seqs(read, of.key, Turns::only(turn), of.totals.next_seq)?;
    let (mut found, mut others) = (Vec::new(), Vec::new());
    read.messages(of.key, seqs, &mut |row| {
        let is_written = matches!(row.body.author, Author::Human | Author::Agent)
            && row.body.role != Role::ToolResult;
        if row.body.role != Role::Extension && row.turn == Some(turn) {
            let seq = row.seq;
            let can = is_shown(&store::decode(read, row.body)?);
            match can && asked.seq.map_or(is_written, |asked| asked == seq) {
                true => found.push(seq),
                false if can => others.push(seq.to_string()),
                false => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if !found.is_empty() {
        return Ok(found);
    }
    let others = match others.is_empty() {
        true => String::new(),
        false => format!("; it has {}", others.join(", ")),
    };
    Err(StoreError::Invalid(match asked.seq {
        Some(seq) => {
            format!("turn {turn} of loop `{id}` has no message {seq} that can be pinned{others}")
        }
        None => format!(
            "nobody but the harness says anything in turn {turn} of loop `{id}`; name a message by \
             its sequence{others}"
        ),
    }))
}

/// Returns these messages; fails if a live edit removes or replaces something of one.
fn without_rewritten(
    read: &dyn StoreRead,
    leaf: &LoopRow,
    of: &LoopRow,
    seqs: Vec<u32>,
) -> StoreResult<Vec<u32>> {
    if of.edits == 0 {
        return Ok(seqs);
    }
    let edits = ActiveBlocks::new(read, leaf.key, ChainView::default()).live_edits(of.key)?;
    for seq in edits.iter().flat_map(|_| &seqs) {
        let only = *seq..seq.saturating_add(1);
        let run = edits
            .as_ref()
            .and_then(|edits| edits.rewriting(&only).next());
        if let Some(run) = run {
            let id = &of.loop_id;
            return Err(StoreError::Invalid(format!(
                "message {seq} of loop `{id}` was removed or replaced by run `{run}`: undo the run, then pin it"
            )));
        }
    }
    Ok(seqs)
}

/// True if a quote of the message would not be empty.
fn is_shown(message: &AgentMessage) -> bool {
    let says = |content: &Content| match content {
        Content::Text(text) => !text.text.trim().is_empty(),
        Content::Thinking(_) | Content::Sealed(_) => false,
        _ => true,
    };
    let inner = message.message();
    inner.is_some_and(|inner| inner.content().iter().any(says))
}

/// Returns the messages to unpin.
fn to_unpin(of: &LoopRow, asked: &PinRef, live: &[PinnedMessage]) -> StoreResult<Vec<u32>> {
    let is_asked = |pin: &&PinnedMessage| {
        let is_seq = asked.seq.is_none_or(|seq| seq == pin.seq);
        pin.loop_key == of.key && pin.turn == asked.turn && is_seq
    };
    let found: Vec<u32> = live.iter().filter(is_asked).map(|pin| pin.seq).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let (id, turn) = (&of.loop_id, asked.turn);
    Err(StoreError::Invalid(match asked.seq {
        Some(seq) => format!("message {seq} of turn {turn} of loop `{id}` is not pinned"),
        None => format!("no message of turn {turn} of loop `{id}` is pinned"),
    }))
}
