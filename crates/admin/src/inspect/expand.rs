//! Reading the content that a compaction hid: the originals of a range of turns, and the bytes of an image.

mod page;

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::str::FromStr;

use loopstore::extend::{
    self as store, LoopRow, SessionStore, StoreError, StoreRead, StoreResult, leaf_of, lookup,
    search::parse_query, session_of,
};
use loopstore::internal::question;
use loopstore::model::{AgentMessage, LoopId, Role, SessionId};
use loopstore::search::SearchError;
use sha2::{Digest as _, Sha256};

use self::page::ExpandedPage;

/// The turns of a session to read, and the size of the answer.
#[derive(Clone, Debug, Default)]
pub struct ExpandRequest {
    /// The loop; the session's current loop if `None`.
    pub loop_id: Option<LoopId>,
    /// The first and the last turn.
    pub turns: (u32, u32),
    /// The position within these turns to start from; their beginning if `None`.
    pub from: Option<MessageOffset>,
    /// Only messages that match this query (see [`parse_query`](loopstore::extend::search::parse_query)). Long
    /// messages are cut to the lines around the matches.
    pub matching: Option<String>,
    /// The maximum number of tokens of the answer, which applies to its messages and to its text.
    pub max_tokens: Option<u64>,
}

impl ExpandRequest {
    /// Returns a request for the turns `first` to `last`, both inclusive, of the session's current loop, without a
    /// limit.
    pub fn turns(first: u32, last: u32) -> Self {
        Self {
            turns: (first, last),
            ..Self::default()
        }
    }
}

/// A position in a loop: a message, and an offset in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct MessageOffset {
    /// The sequence of the message in the loop.
    pub seq: u32,
    /// The number of characters of its text before the position.
    pub offset: u64,
}

impl fmt::Display for MessageOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => write!(f, "{}", self.seq),
            offset => write!(f, "{}:{offset}", self.seq),
        }
    }
}

impl FromStr for MessageOffset {
    type Err = String;

    /// Reads `12` or `12:3400`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (seq, offset) = text.split_once(':').unwrap_or((text, "0"));
        match (seq.parse(), offset.parse()) {
            (Ok(seq), Ok(offset)) => Ok(Self { seq, offset }),
            _ => Err("expected the number of a message, or MESSAGE:OFFSET such as 12:3400".into()),
        }
    }
}

/// Turns of a loop as they were recorded, without extensions.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Expanded {
    /// The messages in order. A message that is not shown whole contains the shown parts of its text as text blocks.
    /// Its text is its blocks, each on a line of its own.
    pub messages: Vec<AgentMessage>,
    /// The sum of the tokens of these messages.
    pub tokens: u64,
    /// The position at which the next page starts; `None` if this page is the last.
    pub next: Option<MessageOffset>,
    /// The messages that are not shown whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<CutMessage>,
    /// The sequences of the messages in the loop.
    #[serde(skip)]
    seqs: Vec<u32>,
}

/// A message of an answer as text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ShownMessage {
    /// Its place in the loop.
    pub message: u32,
    /// The role of the message; for a tool result with the tool and the call.
    pub author: String,
    /// The blocks of the message, each on a line of its own, or the parts of them that are shown.
    pub text: String,
    /// True if the message is not shown whole.
    pub cut: bool,
}

/// A message that is not shown whole.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CutMessage {
    /// The index of the message in the answer.
    pub message: usize,
    /// Its place in the loop.
    pub seq: u32,
    /// The number of lines of its text.
    pub lines: u64,
    /// The number of characters of its text.
    pub chars: u64,
    /// The parts that are shown.
    pub shown: Vec<ShownPart>,
}

/// A part of a message's text; the ends of its ranges are inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ShownPart {
    /// The first and the last line, counted from 1.
    pub lines: (u64, u64),
    /// The first and the last character, counted from 0.
    pub chars: (u64, u64),
    /// True if the part begins, and if it ends, with a whole line.
    #[serde(skip)]
    edges: (bool, bool),
}

impl Expanded {
    /// Returns the messages as text, each with its author.
    pub fn shown(&self) -> Vec<ShownMessage> {
        let is_cut = |at| self.cut.iter().any(|cut| cut.message == at);
        let messages = self.messages.iter().zip(&self.seqs).enumerate();
        messages
            .map(|(at, (message, seq))| page::shown_message(message, *seq, is_cut(at)))
            .collect()
    }

    /// Returns the messages as one text, with `> ` before each line of a message. `…` marks an omitted part, with the
    /// ranges of its lines and characters.
    pub fn text(&self) -> String {
        let cut = |at| self.cut.iter().find(|cut| cut.message == at);
        let messages = self.messages.iter().enumerate();
        messages
            .map(|(at, message)| page::text(message, cut(at)))
            .collect()
    }
}

/// Returns turns of a loop as they were recorded.
///
/// Without [`ExpandRequest::max_tokens`] the answer contains all of the turns. With it the answer ends after a
/// message, or after a line of a message that is too long for one answer. Repeated calls from each [`Expanded::next`]
/// return all of the turns, and no part twice.
///
/// # Errors
/// If the session, the loop, a turn or the message does not exist, the query is invalid, or
/// [`SearchError::TooFewTokens`].
///
/// # Examples
/// ```
/// use loopstore_admin::inspect::{ExpandRequest, expand};
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
/// // The originals that the summary replaces.
/// let mut request = ExpandRequest::turns(2, 5);
/// assert_eq!(expand(store.database(), chat.id(), &request)?.messages.len(), 4);
/// // As many messages as fit, and where to go on.
/// request.max_tokens = Some(700);
/// let page = expand(store.database(), chat.id(), &request)?;
/// assert_eq!(page.messages.len(), 2);
/// request.from = page.next;
/// let page = expand(store.database(), chat.id(), &request)?;
/// assert_eq!((page.messages.len(), page.next), (2, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn expand(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &ExpandRequest,
) -> Result<Expanded, SearchError> {
    let matching = request.matching.as_deref();
    let query = matching
        .map(|text| parse_query(&question(text)))
        .transpose()?;
    let counter = store.counter();
    let mut page = ExpandedPage::new(counter, query, request.max_tokens, request.from);
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let row = leaf_of(read, &owner, request.loop_id.as_ref())?;
        let seqs = seqs(read, &row, request)?;
        read.messages(row.key, seqs, &mut |message| {
            if message.body.role == Role::Extension {
                return Ok(ControlFlow::Continue(()));
            }
            let (seq, tokens) = (message.seq, message.body.tokens);
            Ok(page.add(seq, store::decode(read, message.body)?, tokens))
        })
    })?;
    page.end()
}

/// Returns the sequences of the messages of the requested turns, from the beginning of the answer on.
fn seqs(read: &dyn StoreRead, row: &LoopRow, request: &ExpandRequest) -> StoreResult<Range<u32>> {
    let ((first, last), turns) = (request.turns, row.totals.turns);
    if first > last || first >= turns {
        return Err(StoreError::Invalid(no_turns(row, first, last)));
    }
    let first_of = |turn| {
        read.turn(row.key, turn)
            .map(|turn| turn.map(|turn| turn.first_seq))
    };
    let start = first_of(first)?.unwrap_or_default();
    let after = first_of(last.saturating_add(1))?;
    let end = after.unwrap_or(row.totals.next_seq);
    match request.from {
        Some(from) if !(start..end).contains(&from.seq) => Err(StoreError::Invalid(format!(
            "message {} is not in the turns {first}..{}, which hold the messages {start}..{}",
            from.seq,
            last.min(turns - 1),
            end.saturating_sub(1),
        ))),
        Some(from) => Ok(from.seq..end),
        None => Ok(start..end),
    }
}

/// Describes why a loop has no turns `first` to `last`.
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
    /// The id of the blob: its SHA-256 in hexadecimal digits, as in the column `payload` of `v_messages`.
    pub id: String,
    /// The bytes.
    pub data: Vec<u8>,
}

/// Returns the blob whose id is or begins with `given`.
///
/// # Errors
/// If no blob or several blobs match, or the bytes do not match the id.
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
