//! What a compaction left out, to be handed to the agent that goes on after it.

use std::ops::ControlFlow;

use crate::compaction::Placed;
use crate::compaction::digest::{DigestInput, Digester, beside_headers, short};
use crate::context::states::shown_chain;
use crate::context::{self, AsOf, BuildError, BuildOptions, TurnState};
use crate::model::{AgentMessage, Content, LoopId, Role, SessionId};
use crate::store::active_blocks::View;
use crate::store::{self, LoopKey, SessionStore, StoreRead, StoreResult};

/// What a context leaves out of the turns that its summaries stand for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Handback {
    /// The text: the plan, errors that are still open, changed files, what a person said to hold, exact
    /// values.
    pub text: String,
    /// Its tokens.
    pub tokens: u64,
}

/// Makes a text of at most `max_tokens` from the turns that a summary stands for: what an agent is likely to
/// miss and what nothing in the context says. It is meant to stand beside a summary that another program
/// wrote. `None` if no turn is hidden, or nothing is missing.
///
/// With `as_of` the context is that of the moment.
///
/// ```
/// use loopstore::compact::handback;
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
/// If the session or the moment is not there, or the store fails.
pub fn handback(
    store: &dyn SessionStore,
    session: &SessionId,
    as_of: Option<&AsOf>,
    max_tokens: u64,
) -> Result<Option<Handback>, BuildError> {
    let hidden = store::read(store, |read| hidden_turns(read, session, as_of))?;
    let (Some(first), Some(last)) = (hidden.first(), hidden.last()) else {
        return Ok(None);
    };
    let only = (first.key == last.key).then_some(&first.loop_id);
    let mut digester = Digester::new().with_headers(beside_headers(session, only));
    let options = BuildOptions {
        as_of: as_of.cloned(),
        ..BuildOptions::default()
    };
    let seen = context::build_context_from_session(store, session, &options)?;
    for message in &seen.messages {
        digester = digester.beside(texts_of(message));
    }
    for part in &hidden {
        digester.add(DigestInput::Messages {
            of: only.is_none().then(|| short(&part.loop_id)),
            messages: store::read(store, |read| part.messages(read))?,
        });
    }
    let counter = store.counter();
    let message = digester.finish(max_tokens, counter).message(Role::User);
    Ok(message.map(|message| Handback {
        tokens: counter.message_tokens(&message),
        text: texts_of(&message).collect(),
    }))
}

/// The turns of a loop that a context does not show.
struct HiddenTurns {
    key: LoopKey,
    loop_id: LoopId,
    turns: Vec<TurnState>,
}

impl HiddenTurns {
    /// Whether a turn is one of them.
    fn has(&self, turn: u32) -> bool {
        self.turns
            .get(turn as usize)
            .is_some_and(|state| state.is_hidden())
    }

    fn messages(&self, read: &dyn StoreRead) -> StoreResult<Vec<Placed>> {
        let mut messages = Vec::new();
        read.messages(self.key, 0..u32::MAX, &mut |row| {
            match row.turn {
                Some(turn) if self.has(turn) && row.body.role != Role::Extension => {
                    let message = store::decode(read, row.body)?;
                    messages.push(Placed {
                        turn,
                        seq: row.seq,
                        message,
                    });
                }
                Some(turn) if turn as usize >= self.turns.len() => {
                    return Ok(ControlFlow::Break(()));
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(messages)
    }
}

/// Returns the hidden turns of the chain that a context shows, by loop from the root.
fn hidden_turns(
    read: &dyn StoreRead,
    session: &SessionId,
    as_of: Option<&AsOf>,
) -> StoreResult<Vec<HiddenTurns>> {
    let owner = context::session_of(read, session)?;
    let (leaf, view) = match as_of {
        Some(as_of) => context::moment_of(read, &owner, as_of)?,
        None if owner.current_loop.is_none() => return Ok(Vec::new()),
        None => (context::leaf_of(read, &owner, None)?, View::default()),
    };
    let states = shown_chain(read, &leaf, view)?.states.into_iter();
    let is_hidden = |turns: &[TurnState]| turns.iter().any(|state| state.is_hidden());
    Ok(states
        .filter(|of_loop| is_hidden(&of_loop.turns))
        .map(|of_loop| HiddenTurns {
            key: of_loop.key,
            loop_id: of_loop.loop_id,
            turns: of_loop.turns,
        })
        .collect())
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
