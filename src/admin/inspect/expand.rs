//! Reading what a compaction hid: the originals of a range of turns, and the bytes of an image.

use std::ops::ControlFlow;

use sha2::{Digest as _, Sha256};

use crate::context::{leaf_of, session_of};
use crate::model::{AgentMessage, LoopId, Role, SessionId};
use crate::store::{self, LoopRow, SessionStore, StoreError, StoreResult, lookup};

/// Some turns of a loop as they were recorded; extensions are left out.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Expanded {
    /// The messages in order.
    pub messages: Vec<AgentMessage>,
    /// Sum of their counts.
    pub tokens: u64,
    /// The turn to go on from, if not all turns that were asked for fit.
    pub next: Option<u32>,
}

/// Returns the turns `first` to `last` (both inclusive) of a loop, as many whole ones as fit
/// `max_tokens` but at least one.
///
/// # Errors
/// If the session or the loop is not there, or the loop has no turn `first`.
///
/// # Examples
/// ```
/// use loopstore::admin::inspect::expand;
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
/// // What the summary stands for, word for word.
/// let hidden = expand(store.database(), chat.id(), None, (2, 5), None)?;
/// assert_eq!(hidden.messages.len(), 4);
/// // As many turns as fit, and where to go on.
/// let piece = expand(store.database(), chat.id(), None, (2, 5), Some(700))?;
/// assert_eq!((piece.messages.len(), piece.next), (2, Some(4)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn expand(
    store: &dyn SessionStore,
    session: &SessionId,
    loop_id: Option<&LoopId>,
    (first, last): (u32, u32),
    max_tokens: Option<u64>,
) -> StoreResult<Expanded> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let row = leaf_of(read, &owner, loop_id)?;
        let turns = row.totals.turns;
        if first > last || first >= turns {
            return Err(StoreError::Invalid(no_turns(&row, first, last)));
        }
        let rows = read.turns(row.key, first..last.saturating_add(1))?;
        let before = store::append::size_through(read, row.key, first)?.tokens;
        let fits = |through: u64| max_tokens.is_none_or(|most| through - before <= most);
        let count = rows.iter().take_while(|turn| fits(turn.tokens)).count();
        let (shown, rest) = rows.split_at(count.max(1));
        let start = shown.first().map_or(0, |turn| turn.first_seq);
        let after = shown.last().map_or(first, |turn| turn.turn) + 1;
        let next_turn = read.turn(row.key, after)?;
        let end = next_turn.map_or(row.totals.next_seq, |turn| turn.first_seq);
        let mut expanded = Expanded {
            messages: Vec::new(),
            tokens: 0,
            next: rest.first().map(|turn| turn.turn),
        };
        read.messages(row.key, start..end, &mut |message| {
            if message.body.role != Role::Extension {
                expanded.tokens += message.body.tokens;
                expanded.messages.push(store::decode(read, message.body)?);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(expanded)
    })
}

/// Tells why a loop has no turns `first` to `last`.
fn no_turns(row: &LoopRow, first: u32, last: u32) -> String {
    if first > last {
        return format!("{first}..{last} is backwards; give {last}..{first}");
    }
    let (id, before) = (&row.loop_id, row.parent_loop_id.as_ref());
    match (row.totals.turns, before) {
        (0, Some(before)) => {
            format!("loop `{id}` has no turns yet; what was before it is in loop `{before}`")
        }
        (0, None) => format!("loop `{id}` has no turns yet"),
        (1, _) => format!("loop `{id}` has only turn 0"),
        (turns, _) => format!("loop `{id}` has only the turns 0..{}", turns - 1),
    }
}

/// The bytes of an image, or of other binary content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobBytes {
    /// Its id: the SHA-256 in hexadecimal digits, as `payload` of `v_messages` shows it.
    pub id: String,
    /// The bytes.
    pub data: Vec<u8>,
}

/// Returns the blob whose id is or begins with `given`.
///
/// # Errors
/// If there is none, several begin so, or its bytes are not those that its id names.
pub fn blob(store: &dyn SessionStore, given: &str) -> StoreResult<BlobBytes> {
    store::read(store, |read| {
        let name = lookup::blob(read, given)?;
        let id = hex::encode(name);
        let data = read
            .blob(&name)?
            .filter(|data| <[u8; 32]>::from(Sha256::digest(data)) == name)
            .ok_or_else(|| StoreError::Damaged(format!("blob {id} is another one")))?;
        Ok(BlobBytes { id, data })
    })
}
