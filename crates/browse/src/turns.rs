//! Reads turns: their beginnings, and whole turns next to their form in the context.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use loopstore::context::TurnState;
use loopstore::extend::active_blocks::{ChainView, chain};
use loopstore::extend::{
    self as store, BlockCore, Disposition, LiveEdits, LoopKey, LoopRow, MessageEdit, MessageRow,
    Section, StoreRead, StoreResult, TurnRow,
};
use loopstore::{AgentMessage, Content, Database, LoopId, Message, Role, SessionId};
use loopstore_terminal::{context_text, text};

use super::cursor::{Pane, Tone};
use super::loops::{loop_of, name, owner, seen};
use super::reader::{MessagePlace, TurnText};
use super::session::{TurnItem, TurnPage};

/// The maximum number of messages of a turn that are read for its line.
const LOOKED_AT: u32 = 8;

/// The bytes of a text that a line of the list needs.
const LINE: usize = 300;

/// The maximum size of a message in the reader, in bytes.
const MOST: usize = 1 << 20;

/// Reads the beginnings of some turns of a loop.
pub fn page(
    store: &dyn Database,
    session: &SessionId,
    loop_id: &LoopId,
    range: Range<u32>,
) -> StoreResult<TurnPage> {
    store::read(store, |read| {
        let row = loop_of(read, &owner(read, session)?, loop_id)?;
        let mut before = match range.start.checked_sub(1) {
            Some(turn) => read.turn(row.key, turn)?.map_or(0, |turn| turn.tokens),
            None => 0,
        };
        let turns = read.turns(row.key, range.clone())?;
        let mut rows = Vec::with_capacity(turns.len());
        for (at, turn) in turns.iter().enumerate() {
            let next = turns.get(at + 1);
            let end = next.map_or(row.totals.next_seq, |next| next.first_seq);
            rows.push(TurnItem {
                turn: turn.turn,
                tokens: turn.tokens.saturating_sub(before),
                text: beginning(read, row.key, turn, end)?,
            });
            before = turn.tokens;
        }
        Ok(TurnPage {
            loop_id: loop_id.clone(),
            range,
            rows,
        })
    })
}

/// Returns the beginning of a turn: the prompt, the answer and its calls.
fn beginning(
    read: &dyn StoreRead,
    loop_id: LoopKey,
    turn: &TurnRow,
    end: u32,
) -> StoreResult<String> {
    let mut parts: Vec<String> = Vec::new();
    let seqs = turn.first_seq..end.min(turn.first_seq.saturating_add(LOOKED_AT));
    read.messages(loop_id, seqs, &mut |row| {
        // If this is the last turn of the page, the message belongs to the next one.
        if row.turn != Some(turn.turn) {
            return Ok(ControlFlow::Break(()));
        }
        let role = row.body.role;
        if matches!(role, Role::User | Role::Assistant) {
            let message = store::decode(read, row.body)?;
            parts.extend(texts_of(&message));
        }
        let is_answered = role == Role::Assistant && !parts.is_empty();
        Ok(match is_answered {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    Ok(parts.join("  "))
}

fn texts_of(message: &AgentMessage) -> Vec<String> {
    if let Some(prompt) = message.message().and_then(Message::prompt_text) {
        return vec![format!("› {}", beginning_of(&prompt))];
    }
    let content = message.message().map_or(&[][..], Message::content);
    let text = content.iter().filter_map(|block| match block {
        Content::Text(text) if !text.text.trim().is_empty() => Some(beginning_of(&text.text)),
        Content::ToolCall(call) => Some(format!("[{}]", text::line(&call.name))),
        _ => None,
    });
    text.collect()
}

fn beginning_of(said: &str) -> String {
    let said = said.trim_start();
    let said = &said[..said.floor_char_boundary(LINE)];
    text::line(said.trim_end())
}

/// Reads a turn as recorded, and its form in the context of `leaf`.
pub fn turn_text(
    store: &dyn Database,
    session: &SessionId,
    leaf: &LoopId,
    loop_id: &LoopId,
    turn: u32,
) -> StoreResult<TurnText> {
    let state = seen(store, session, leaf)?.state(loop_id, turn);
    store::read(store, |read| {
        let session = owner(read, session)?;
        let row = loop_of(read, &session, loop_id)?;
        let leaf = loop_of(read, &session, leaf)?;
        let messages = messages_of(read, &row, turn)?;
        let block = match state {
            Some(TurnState::Edited | TurnState::Covered(_)) => block_for(read, leaf.key, row.key)?,
            _ => None,
        };
        let edits = match state {
            Some(TurnState::Edited | TurnState::Covered(Disposition::Removed)) => {
                edits_for(read, leaf.key, row.key)?
            }
            _ => None,
        };
        let (about, shown) = match (&edits, &block, state) {
            (Some(edits), block, _) => (
                edited_by(read, edits, row.key, &messages)?,
                Some(edited(read, block.as_ref(), edits, &messages)?),
            ),
            (None, Some(block), Some(state)) => (
                about(read, block, Some(state))?,
                shown(read, block, state, &messages)?,
            ),
            _ => (String::new(), None),
        };
        let (mut originals, mut places) = (PaneText::default(), Vec::new());
        for message in messages.into_iter().filter(is_shown) {
            let (seq, part) = (message.seq, originals.0.len());
            let message = store::decode(read, message.body)?;
            let role = originals.add(&message, "");
            places.push(MessagePlace { seq, role, part });
        }
        Ok(TurnText {
            state,
            about,
            shown,
            originals: Pane::new(originals.0),
            messages: places,
        })
    })
}

fn is_shown(row: &MessageRow) -> bool {
    row.body.role != Role::Extension
}

fn messages_of(read: &dyn StoreRead, row: &LoopRow, turn: u32) -> StoreResult<Vec<MessageRow>> {
    let Some(first) = read.turn(row.key, turn)? else {
        return Ok(Vec::new());
    };
    let next = read.turn(row.key, turn.saturating_add(1))?;
    let end = next.map_or(row.totals.next_seq, |next| next.first_seq);
    let mut messages = Vec::new();
    read.messages(row.key, first.first_seq..end, &mut |message| {
        messages.push(message);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(messages)
}

/// Returns the block that applies to a loop: its own, or the rollup that covers it.
fn block_for(read: &dyn StoreRead, leaf: LoopKey, of: LoopKey) -> StoreResult<Option<BlockCore>> {
    let links = chain(read, leaf, ChainView::default())?;
    let own = links.iter().position(|link| link.row.key == of);
    Ok(links
        .into_iter()
        .nth(own.unwrap_or(0))
        .and_then(|link| link.block))
}

/// Returns the live edits of a loop on the chain of a leaf.
fn edits_for(
    read: &dyn StoreRead,
    leaf: LoopKey,
    of: LoopKey,
) -> StoreResult<Option<Arc<LiveEdits>>> {
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    let mut links = chain(read, leaf, raw)?.into_iter();
    let own = links.find(|link| link.row.key == of);
    Ok(own.and_then(|link| link.edits))
}

/// Returns the runs whose edits change the form of a turn, with their reasons.
fn edited_by(
    read: &dyn StoreRead,
    edits: &LiveEdits,
    loop_key: LoopKey,
    messages: &[MessageRow],
) -> StoreResult<String> {
    let mut runs = Vec::new();
    for run in edits.runs() {
        let edited = read.edits_of_run(*run)?;
        let mut own = edited.iter().filter(|edit| edit.loop_key == loop_key);
        if own.any(|edit| messages.iter().any(|row| edit.covers(row.seq))) {
            let row = read.run_by_key(*run)?;
            let reason = row.edit_reason().map(|reason| format!(" ({reason})"));
            runs.push(format!("run {}{}", row.run_id, reason.unwrap_or_default()));
        }
    }
    Ok(runs.join(", "))
}

/// Returns the messages of a turn as contexts show them with edits. A removed message is named in its place.
fn edited(
    read: &dyn StoreRead,
    block: Option<&BlockCore>,
    edits: &LiveEdits,
    messages: &[MessageRow],
) -> StoreResult<Pane> {
    let cut = match block {
        Some(block) => read.block_messages(block.key)?,
        None => Vec::new(),
    };
    let mut shown = PaneText::default();
    for row in messages.iter().filter(|row| is_shown(row)) {
        let other = cut
            .iter()
            .find(|own| own.section == Section::Recent && own.replaces == Some(row.seq));
        let body = match other.filter(|_| edits.at(row.seq).is_none()) {
            Some(other) => other.body.clone(),
            None => Some(row.body.clone()),
        };
        let Some(body) = body else { continue };
        let mut message = store::decode(read, body)?;
        match edits.at(row.seq) {
            None => {
                shown.add(&message, "");
            }
            Some(MessageEdit::Parts(parts)) => {
                parts.apply(&mut message);
                shown.add(&message, ", edited");
            }
            Some(MessageEdit::Removed) => {
                let line = format!("message {} was removed\n", row.seq);
                shown.0.push((line, Tone::Gone));
            }
        }
    }
    Ok(Pane::new(shown.0))
}

/// Returns the block that covers a turn, and the turns that its summary replaces.
fn about(read: &dyn StoreRead, block: &BlockCore, state: Option<TurnState>) -> StoreResult<String> {
    let is_summary = matches!(
        state,
        Some(TurnState::Covered(
            Disposition::Summarised | Disposition::RolledUp | Disposition::Sealed
        ))
    );
    let turns = block.layout.compacted.filter(|_| is_summary);
    let stands = turns.map_or(String::new(), |turns| {
        let turns = text::turns(turns.first, turns.last);
        format!(", a summary of turns {turns}")
    });
    let on = read.loop_by_key(block.loop_key)?.core.loop_id;
    let run = read.run_by_key(block.run)?.run_id;
    Ok(format!("{} on {on}{stands}, run {run}", name(block)))
}

/// Returns the messages that a block shows for a turn; `None` if it shows the turn as recorded.
fn shown(
    read: &dyn StoreRead,
    block: &BlockCore,
    state: TurnState,
    messages: &[MessageRow],
) -> StoreResult<Option<Pane>> {
    match state {
        TurnState::Raw | TurnState::Edited | TurnState::Covered(Disposition::Kept) => Ok(None),
        TurnState::Covered(Disposition::Truncated) => cut(read, block, messages).map(Some),
        TurnState::Covered(Disposition::Dropped) => {
            let none = "The context holds nothing of this turn.".to_owned();
            Ok(Some(Pane::new(vec![(none, Tone::Faint)])))
        }
        TurnState::Covered(_) => summary(read, block).map(Some),
    }
}

fn summary(read: &dyn StoreRead, block: &BlockCore) -> StoreResult<Pane> {
    let mut shown = Vec::new();
    for message in read.block_messages(block.key)? {
        if message.section == Section::Compacted {
            shown.extend(store::shown_message(read, block.quoting(), message)?);
        }
    }
    Ok(pane(shown.iter()))
}

/// Returns the messages of a turn, with the truncated ones in the form of the block.
fn cut(read: &dyn StoreRead, block: &BlockCore, messages: &[MessageRow]) -> StoreResult<Pane> {
    let own = read.block_messages(block.key)?;
    let mut shown = Vec::new();
    for row in messages.iter().filter(|row| is_shown(row)) {
        let other = own
            .iter()
            .find(|own| own.section == Section::Recent && own.replaces == Some(row.seq));
        let body = match other {
            Some(other) => other.body.clone(),
            None => Some(row.body.clone()),
        };
        if let Some(body) = body {
            shown.push(store::decode(read, body)?);
        }
    }
    Ok(pane(shown.iter()))
}

/// Returns messages as lines, each under its role.
fn pane<'a>(messages: impl Iterator<Item = &'a AgentMessage>) -> Pane {
    let mut parts = PaneText::default();
    for message in messages {
        parts.add(message, "");
    }
    Pane::new(parts.0)
}

/// The parts of a pane with messages.
#[derive(Default)]
struct PaneText(Vec<(String, Tone)>);

impl PaneText {
    /// Adds a message under its role, followed by a note. Returns the role.
    fn add(&mut self, message: &AgentMessage, note: &str) -> String {
        let whole = context_text::alone(message);
        let (role, body) = whole.split_once('\n').unwrap_or((&whole, ""));
        self.0.push((format!("{role}{note}"), Tone::Head));
        let shown = &body[..body.floor_char_boundary(MOST)];
        self.0.push((shown.to_owned(), Tone::Plain));
        if shown.len() < body.len() {
            let rest = text::bytes((body.len() - shown.len()) as u64);
            let more = format!("… {rest} more; `loopstore expand` prints all\n");
            self.0.push((more, Tone::Faint));
        }
        role.to_owned()
    }
}
