//! The working state of a session as a text, for an agent that compacts its own context. The text supplements the
//! agent's summary, or replaces it.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::compaction::LoopMessage;
use crate::context::states::shown_chain;
use crate::context::{self, AsOf, BuildError, BuildOptions, TurnState};
use crate::model::{AgentMessage, Content, LoopId, Role, SessionId};
use crate::store::active_blocks::{ChainView, chain};
use crate::store::{self, LiveEdits, LoopKey, MessageEdit, SessionStore, StoreRead, StoreResult};
use loopstore_digest::{DigestInput, Digester, loop_label, supplement_headers};

/// Tokens that are read at most, the newest: an agent waits for the answer.
const MOST_READ: u64 = 1_000_000;

/// The working state of a session.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Handback {
    /// The text: the plan, unresolved errors, changed files, a person's lasting instructions, and exact values.
    pub text: String,
    /// The tokens of the text.
    pub tokens: u64,
    /// The number of messages that the text was made from.
    pub messages: usize,
}

/// The relation of a working state to the agent's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryRelation {
    /// The working state replaces the summary.
    Replaces,
    /// The working state supplements a summary that is not known yet: it contains the facts that summaries are likely
    /// to omit.
    Supplements,
}

/// Returns the working state of the turns that summaries replace, in at most `max_tokens` tokens. It contains the
/// facts that an agent is likely to need and that the context does not contain. Add it to a summary that another
/// program wrote. `None` if no turn is hidden, or if nothing is missing. Of a long session only the newest million
/// tokens are read.
///
/// With `as_of`, the context at that moment is used.
///
/// ```
/// use loopstore::handback::handback;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("deploy")?;
/// chat.append([Message::user("Never restart the server on port 7071.")])?;
/// assert!(handback(store.database(), chat.id(), None, 1_000)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the session or the moment does not exist, or the store fails.
pub fn handback(
    store: &dyn SessionStore,
    session: &SessionId,
    as_of: Option<&AsOf>,
    max_tokens: u64,
) -> Result<Option<Handback>, BuildError> {
    let hidden = store::read(store, |read| turns(read, session, as_of, Taken::Hidden))?;
    if hidden.is_empty() {
        return Ok(None);
    }
    let options = BuildOptions {
        as_of: as_of.cloned(),
        ..BuildOptions::default()
    };
    let seen = context::build_context_from_session(store, session, &options)?;
    let mut digester =
        Digester::new().with_headers(supplement_headers(session, only_loop(&hidden)));
    for message in &seen.messages {
        digester = digester.supplementing(texts_of(message));
    }
    written(store, digester, &hidden, loop_label, max_tokens)
}

/// Returns the working state of all turns on the chain of a session's current loop, in at most `max_tokens` tokens.
/// `None` if the chain has no content for it. Of a long session only the newest million tokens are read.
///
/// ```
/// use loopstore::handback::{SummaryRelation, working_state};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("deploy")?;
/// chat.append([Message::user("Never restart the server on port 7071.")])?;
/// let state = working_state(store.database(), chat.id(), SummaryRelation::Replaces, 1_000)?;
/// assert!(state.is_some_and(|state| state.text.contains("Never restart the server on port 7071.")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the session does not exist, or the store fails.
pub fn working_state(
    store: &dyn SessionStore,
    session: &SessionId,
    relation: SummaryRelation,
    max_tokens: u64,
) -> Result<Option<Handback>, BuildError> {
    let all = store::read(store, |read| turns(read, session, None, Taken::All))?;
    let digester = match relation {
        SummaryRelation::Replaces => Digester::new(),
        SummaryRelation::Supplements => Digester::new().supplementing([]),
    };
    // Its last line has the ids, to be expanded.
    written(store, digester, &all, LoopId::to_string, max_tokens)
}

fn written(
    store: &dyn SessionStore,
    mut digester: Digester,
    parts: &[LoopTurns],
    name: fn(&LoopId) -> String,
    max_tokens: u64,
) -> Result<Option<Handback>, BuildError> {
    let only = only_loop(parts);
    let mut read = 0;
    for part in parts {
        let messages = store::read(store, |read| part.messages(read))?;
        read += messages.len();
        digester.add(DigestInput::Messages {
            loop_name: only.is_none().then(|| name(&part.loop_id)),
            messages,
        });
    }
    let counter = store.counter();
    let message = digester.finish(max_tokens, counter).message(Role::User);
    Ok(message.map(|message| Handback {
        tokens: counter.message_tokens(&message),
        text: texts_of(&message).collect(),
        messages: read,
    }))
}

fn only_loop(parts: &[LoopTurns]) -> Option<&LoopId> {
    match parts {
        [only] => Some(&only.loop_id),
        _ => None,
    }
}

/// Turns of a loop that a working state is made from.
struct LoopTurns {
    key: LoopKey,
    loop_id: LoopId,
    /// Of each turn of the loop, up to where the chain leaves it, whether it is one of them.
    taken: Vec<bool>,
    /// The live edits of the loop.
    edits: Option<Arc<LiveEdits>>,
    /// The first sequence that is read, and the one where the chain leaves the loop, maybe within a turn.
    from: u32,
    end: u32,
}

impl LoopTurns {
    /// Returns true if the turn belongs to the set.
    fn has(&self, turn: u32) -> bool {
        self.taken.get(turn as usize) == Some(&true)
    }

    /// Begins at the first turn from which on there are at most `left` tokens, and takes them from it. Whether
    /// something is left.
    fn begin(&mut self, read: &dyn StoreRead, left: &mut u64) -> StoreResult<bool> {
        let through = |turn: Option<usize>| -> StoreResult<u64> {
            let turn = turn.and_then(|turn| u32::try_from(turn).ok());
            let row = turn.map(|turn| read.turn(self.key, turn)).transpose()?;
            Ok(row.flatten().map_or(0, |row| row.tokens))
        };
        let end = self.taken.iter().rposition(|taken| *taken);
        let all = through(end)?;
        let (mut low, mut high) = (0, end.map_or(0, |end| end + 1));
        while low < high {
            let middle = low + (high - low) / 2;
            match all.saturating_sub(through(middle.checked_sub(1))?) <= *left {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        *left -= all.saturating_sub(through(low.checked_sub(1))?);
        let first = read.turn(self.key, u32::try_from(low).unwrap_or(u32::MAX))?;
        self.from = first.map_or(u32::MAX, |row| row.first_seq);
        Ok(low == 0)
    }

    /// Reads the messages as contexts show them with the live edits: no text may bring back what was removed.
    fn messages(&self, read: &dyn StoreRead) -> StoreResult<Vec<LoopMessage>> {
        let mut messages = Vec::new();
        read.messages(self.key, self.from..self.end, &mut |row| {
            let edit = self.edits.as_ref().and_then(|edits| edits.at(row.seq));
            let is_shown = row.body.role != Role::Extension && edit != Some(MessageEdit::Removed);
            if let Some(turn) = row.turn.filter(|turn| self.has(*turn) && is_shown) {
                let (seq, mut message) = (row.seq, store::decode(read, row.body)?);
                if let Some(MessageEdit::Parts(edited)) = edit {
                    edited.apply(&mut message);
                }
                messages.push(LoopMessage { turn, seq, message });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(messages)
    }
}

/// The turns of a chain that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// The turns that the context of the chain does not show.
    Hidden,
    All,
}

/// Returns turns of a chain, by loop from the root: the newest of them, up to [`MOST_READ`].
fn turns(
    read: &dyn StoreRead,
    session: &SessionId,
    as_of: Option<&AsOf>,
    wanted: Taken,
) -> StoreResult<Vec<LoopTurns>> {
    let owner = context::session_of(read, session)?;
    let (leaf, view) = match as_of {
        Some(as_of) => context::moment_of(read, &owner, as_of)?,
        None if owner.current_loop.is_none() => return Ok(Vec::new()),
        None => (context::leaf_of(read, &owner, None)?, ChainView::default()),
    };
    let mut hidden: HashMap<LoopKey, Vec<bool>> = HashMap::new();
    if wanted == Taken::Hidden {
        let states = shown_chain(read, &leaf, view)?.states.into_iter();
        let is_hidden =
            |turns: Vec<TurnState>| turns.into_iter().map(TurnState::is_hidden).collect();
        hidden.extend(states.map(|of_loop| (of_loop.key, is_hidden(of_loop.turns))));
    }
    let (mut left, mut parts) = (MOST_READ, Vec::new());
    for link in chain(read, leaf.key, ChainView { raw: true, ..view })?
        .into_iter()
        .rev()
    {
        let taken = match wanted {
            Taken::Hidden => hidden.remove(&link.row.key).unwrap_or_default(),
            Taken::All => vec![true; link.turns as usize],
        };
        if !taken.contains(&true) {
            continue;
        }
        let mut turns = LoopTurns {
            key: link.row.key,
            loop_id: link.row.loop_id,
            taken,
            edits: link.edits,
            from: 0,
            end: link.end_seq,
        };
        let is_whole = turns.begin(read, &mut left)?;
        if turns.from < turns.end {
            parts.push(turns);
        }
        if !is_whole {
            break;
        }
    }
    parts.reverse();
    Ok(parts)
}

/// Returns what a message says: its texts, and the arguments of its calls.
fn texts_of(message: &AgentMessage) -> impl Iterator<Item = &str> {
    let content = message.message().map(|message| message.content());
    content
        .into_iter()
        .flatten()
        .filter_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            Content::ToolCall(call) => Some(call.arguments.as_str()),
            _ => None,
        })
}
