//! The stored messages of a session in pages: from the end, or after a message.

use std::ops::{ControlFlow, Range};

use super::{Error, Result, SessionHandle};
use crate::model::{AgentMessage, LoopId, Role};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{
    self, LoopCore, LoopKey, MessageRef, StoreError, StoreRead, StoreResult, decode_ref,
};

/// The number of messages that are read at a time for a filtered query.
const PAGE: u32 = 64;
/// The largest number that is read at a time, for filters that few messages pass.
const MAX_PAGE: u32 = 4_096;

/// A stored message, with its position.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// Its loop.
    pub loop_id: LoopId,
    /// Its turn, by position from 0; `None` for an extension before the first turn.
    pub turn: Option<u32>,
    /// Its sequence in the loop, from 0.
    pub seq: u32,
    /// Milliseconds since the epoch, if the message has a time.
    pub created_at: Option<i64>,
    /// The message as it was stored.
    pub message: AgentMessage,
}

impl Entry {
    /// Returns its position.
    pub fn position(&self) -> EntryRef {
        EntryRef {
            loop_id: self.loop_id.clone(),
            seq: self.seq,
        }
    }
}

/// The position of a stored message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryRef {
    /// Its loop.
    pub loop_id: LoopId,
    /// Its sequence in the loop, from 0.
    pub seq: u32,
}

impl EntryRef {
    /// Refers to message `seq` of loop `loop_id`.
    pub fn new(loop_id: impl Into<String>, seq: u32) -> Self {
        Self {
            loop_id: LoopId::of(loop_id),
            seq,
        }
    }
}

/// A query for stored messages. Without filters it selects all messages of the handle's line, including extensions.
///
/// ```
/// use loopstore::{EntryQuery, Message, Role, Store};
///
/// let chat = Store::in_memory()?.session("weather")?;
/// chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
/// chat.append([Message::user("When?"), Message::assistant("At noon.")])?;
/// let answers = EntryQuery::new().roles([Role::Assistant]);
/// let last = chat.entries(&answers.clone().last(1))?;
/// assert_eq!((last[0].loop_id.as_str(), last[0].seq), ("loop-2", 1));
/// // The page before it.
/// let page = chat.entries(&answers.before(last[0].position()).last(10))?;
/// assert_eq!(page[0].loop_id.as_str(), "loop-1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct EntryQuery {
    whole_session: bool,
    of_loop: Option<(LoopId, Range<u32>)>,
    roles: Option<Vec<Role>>,
    kinds: Option<Vec<String>>,
    after: Option<EntryRef>,
    before: Option<EntryRef>,
    last: Option<usize>,
    limit: Option<usize>,
}

impl EntryQuery {
    /// Selects all messages of the handle's line, root first. If the next loop continues from the middle of a loop,
    /// the messages after that point are left out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects all messages of the session, loop by loop in the order in which the loops began. These include other
    /// branches, and messages after the point at which a branch leaves its loop.
    pub fn whole_session() -> Self {
        Self {
            whole_session: true,
            ..Self::default()
        }
    }

    /// Selects the messages `seqs` of one loop, on any line; sequences without a message are skipped.
    pub fn of_loop(loop_id: LoopId, seqs: Range<u32>) -> Self {
        Self {
            of_loop: Some((loop_id, seqs)),
            ..Self::default()
        }
    }

    /// Selects only messages of these roles.
    pub fn roles(mut self, roles: impl IntoIterator<Item = Role>) -> Self {
        self.roles = Some(roles.into_iter().collect());
        self
    }

    /// Selects only extensions of these kinds, in addition to [`EntryQuery::roles`].
    pub fn kinds<K: Into<String>>(mut self, kinds: impl IntoIterator<Item = K>) -> Self {
        self.kinds = Some(kinds.into_iter().map(Into::into).collect());
        self
    }

    /// Selects only messages after this one.
    pub fn after(mut self, position: EntryRef) -> Self {
        self.after = Some(position);
        self
    }

    /// Selects only messages before this one.
    pub fn before(mut self, position: EntryRef) -> Self {
        self.before = Some(position);
        self
    }

    /// Selects only the last `count` messages. The messages before them are not read.
    pub fn last(mut self, count: usize) -> Self {
        self.last = Some(count);
        self
    }

    /// Selects only the first `count` messages.
    pub fn limit(mut self, count: usize) -> Self {
        self.limit = Some(count);
        self
    }

    fn is_filtered(&self) -> bool {
        self.roles.is_some() || self.kinds.is_some()
    }

    /// True if the query may select a message of this role.
    fn may_take(&self, role: Role) -> bool {
        let is_extension = role == Role::Extension;
        match (&self.roles, &self.kinds) {
            (None, None) => true,
            (roles, kinds) => {
                roles.as_ref().is_some_and(|roles| roles.contains(&role))
                    || is_extension && kinds.is_some()
            }
        }
    }

    /// True if the query selects a message of such a role.
    fn takes(&self, message: &AgentMessage) -> bool {
        let AgentMessage::Extension(extension) = message else {
            return true;
        };
        let is_named = |kinds: &Vec<String>| kinds.contains(&extension.kind);
        let by_role = self.roles.as_ref();
        self.kinds.as_ref().is_none_or(is_named)
            || by_role.is_some_and(|roles| roles.contains(&Role::Extension))
    }
}

impl SessionHandle {
    /// Returns stored messages in order, including the messages that a compaction hides, and the extensions. For a
    /// session that does not exist the list is empty.
    ///
    /// ```
    /// use loopstore::{AgentMessage, EntryQuery, EntryRef, Message, Store};
    /// use serde_json::json;
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// let note = AgentMessage::extension("mood", json!({"is": "sunny"}).into());
    /// chat.append([Message::user("Will it rain?").into(), note])?;
    /// let notes = chat.entries(&EntryQuery::new().kinds(["mood"]))?;
    /// assert_eq!((notes[0].turn, notes[0].seq), (Some(0), 1));
    /// // What came since.
    /// chat.append([Message::assistant("It will.")])?;
    /// let new = chat.entries(&EntryQuery::new().after(EntryRef::new("loop-1", 1)))?;
    /// assert_eq!(new.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if a position of the query is no message of the line (or of the session), or if the
    /// session does not have the loop of the query. Also if the store fails.
    pub fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>> {
        let found = store::read(self.backend(), |read| {
            let mut entries = match query.last {
                Some(count) => {
                    let mut last = BackwardReader::new(read, query, count);
                    match self.ranges(read, query, &mut |range| last.read(&range))? {
                        Ok(()) => last.finish(),
                        Err(missing) => return Ok(Err(missing)),
                    }
                }
                None => {
                    let mut ranges = Vec::new();
                    let all = self.ranges(read, query, &mut |range| {
                        ranges.push(range);
                        Ok(ControlFlow::Continue(()))
                    })?;
                    match all {
                        Ok(()) => first_of(read, &ranges, query)?,
                        Err(missing) => return Ok(Err(missing)),
                    }
                }
            };
            entries.truncate(query.limit.unwrap_or(usize::MAX));
            Ok(Ok(entries))
        })?;
        found.map_err(no_message)
    }

    /// Counts the messages that [`SessionHandle::entries`] would return. Without a filter by role or kind no message is
    /// read.
    ///
    /// # Errors
    /// As [`SessionHandle::entries`].
    pub fn count_entries(&self, query: &EntryQuery) -> Result<u64> {
        let most = query.last.unwrap_or(usize::MAX);
        let most = most.min(query.limit.unwrap_or(usize::MAX)) as u64;
        let mut count = 0;
        let found = store::read(self.backend(), |read| {
            self.ranges(read, query, &mut |range| {
                count += count_range(read, &range, query)?;
                Ok(ControlFlow::Continue(()))
            })
        })?;
        found.map(|()| count.min(most)).map_err(no_message)
    }

    /// Visits the ranges of the selected messages, last loop first; nothing if there
    /// is no such session. The inner error is a position without a message.
    fn ranges(
        &self,
        read: &dyn StoreRead,
        query: &EntryQuery,
        visit: &mut dyn FnMut(LoopRange) -> StoreResult<ControlFlow<()>>,
    ) -> StoreResult<std::result::Result<(), EntryRef>> {
        let Some(position) = self.line().find(read, self.id())? else {
            return Ok(Ok(()));
        };
        let mut between = BetweenPositions::new(query);
        if let Some((id, seqs)) = &query.of_loop {
            let row = read.loop_by_id(position.session, id)?;
            let row = row.ok_or_else(|| StoreError::NoLoop(id.to_string()))?;
            let end = seqs.end.min(row.totals.next_seq);
            let _ = between.visit_loop(row.core, end, &mut |mut range| {
                range.seqs.start = range.seqs.start.max(seqs.start);
                match range.seqs.is_empty() {
                    true => Ok(ControlFlow::Break(())),
                    false => visit(range),
                }
            })?;
        } else if query.whole_session {
            for row in read.loops(position.session)?.into_iter().rev() {
                let end = row.totals.next_seq;
                if between.visit_loop(row.core, end, visit)?.is_break() {
                    break;
                }
            }
        } else if let Some(leaf) = position.leaf {
            let raw = ChainView {
                raw: true,
                ..ChainView::default()
            };
            ActiveBlocks::new(read, leaf, raw).run(&mut |link| {
                let end = link.end_seq;
                between.visit_loop(link.row, end, visit)
            })?;
        }
        Ok(between.finish())
    }
}

fn no_message(at: EntryRef) -> Error {
    Error::not_found("message", format!("{}:{}", at.loop_id, at.seq))
}

/// Some messages of a loop.
struct LoopRange {
    loop_key: LoopKey,
    loop_id: LoopId,
    seqs: Range<u32>,
}

/// Follows loops, last one first, between two positions.
struct BetweenPositions<'a> {
    /// The positions that were not visited yet.
    after: Option<&'a EntryRef>,
    before: Option<&'a EntryRef>,
    is_enough: bool,
}

impl<'a> BetweenPositions<'a> {
    fn new(query: &'a EntryQuery) -> Self {
        Self {
            after: query.after.as_ref(),
            before: query.before.as_ref(),
            is_enough: false,
        }
    }

    /// Visits a loop whose messages before `end` belong to the line.
    fn visit_loop(
        &mut self,
        row: LoopCore,
        end: u32,
        visit: &mut dyn FnMut(LoopRange) -> StoreResult<ControlFlow<()>>,
    ) -> StoreResult<ControlFlow<()>> {
        let mut seqs = 0..end;
        let is_in = |at: &&EntryRef| at.loop_id == row.loop_id;
        let after = self.after.filter(is_in);
        if let Some(after) = after {
            if after.seq >= end {
                return Ok(ControlFlow::Break(()));
            }
            seqs.start = after.seq + 1;
            self.after = None;
        }
        match self.before {
            Some(before) if is_in(&before) => {
                if before.seq >= end {
                    return Ok(ControlFlow::Break(()));
                }
                seqs.end = before.seq;
                self.before = None;
            }
            // There is nothing between them.
            Some(_) if after.is_some() => {
                self.before = None;
                return Ok(ControlFlow::Break(()));
            }
            Some(_) => return Ok(ControlFlow::Continue(())),
            None => {}
        }
        if !seqs.is_empty() && !self.is_enough {
            let loop_key = row.key;
            let loop_id = row.loop_id;
            let range = LoopRange {
                loop_key,
                loop_id,
                seqs,
            };
            self.is_enough = visit(range)?.is_break();
        }
        // The position is searched all the same: it must exist.
        Ok(
            if after.is_some() || self.is_enough && self.after.is_none() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            },
        )
    }

    fn finish(self) -> std::result::Result<(), EntryRef> {
        match self.before.or(self.after) {
            Some(missing) => Err(missing.clone()),
            None => Ok(()),
        }
    }
}

/// Returns a message if the query selects it.
fn taken(
    read: &dyn StoreRead,
    stored: &MessageRef<'_>,
    query: &EntryQuery,
) -> StoreResult<Option<AgentMessage>> {
    if !query.may_take(stored.message.role) {
        return Ok(None);
    }
    let message = decode_ref(read, &stored.message)?;
    // A redacted message is an extension now, and keeps its role in queries.
    let takes = stored.message.role != Role::Extension || query.takes(&message);
    Ok(takes.then_some(message))
}

/// Reads messages of a loop, and breaks when `entries` has as many as are wanted.
fn read_range(
    read: &dyn StoreRead,
    range: &LoopRange,
    seqs: Range<u32>,
    query: &EntryQuery,
    most: usize,
    entries: &mut Vec<Entry>,
) -> StoreResult<()> {
    if entries.len() >= most {
        return Ok(());
    }
    read.message_refs_with_times(range.loop_key, seqs, &mut |stored| {
        if let Some(message) = taken(read, stored, query)? {
            entries.push(Entry {
                loop_id: range.loop_id.clone(),
                turn: stored.turn,
                seq: stored.seq,
                created_at: stored.created_at,
                message,
            });
        }
        Ok(if entries.len() >= most {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    })
}

fn first_of(
    read: &dyn StoreRead,
    ranges: &[LoopRange],
    query: &EntryQuery,
) -> StoreResult<Vec<Entry>> {
    let (most, mut entries) = (query.limit.unwrap_or(usize::MAX), Vec::new());
    for range in ranges.iter().rev() {
        let seqs = range.seqs.clone();
        read_range(read, range, seqs, query, most, &mut entries)?;
    }
    Ok(entries)
}

/// Reads backwards page by page until there are enough messages.
struct BackwardReader<'a> {
    read: &'a dyn StoreRead,
    query: &'a EntryQuery,
    missing: usize,
    page: u32,
    /// The newest first; within a page the oldest.
    pages: Vec<Vec<Entry>>,
}

impl<'a> BackwardReader<'a> {
    fn new(read: &'a dyn StoreRead, query: &'a EntryQuery, count: usize) -> Self {
        Self {
            read,
            query,
            missing: count,
            page: PAGE,
            pages: Vec::new(),
        }
    }

    fn read(&mut self, range: &LoopRange) -> StoreResult<ControlFlow<()>> {
        let mut end = range.seqs.end;
        while self.missing > 0 && end > range.seqs.start {
            let wanted = match self.query.is_filtered() {
                true => self.page,
                false => u32::try_from(self.missing).unwrap_or(u32::MAX),
            };
            let start = end.saturating_sub(wanted).max(range.seqs.start);
            let mut page = Vec::new();
            let seqs = start..end;
            read_range(self.read, range, seqs, self.query, usize::MAX, &mut page)?;
            let extra = page.len().saturating_sub(self.missing);
            page.drain(..extra);
            self.missing -= page.len();
            self.pages.push(page);
            self.page = self.page.saturating_mul(2).min(MAX_PAGE);
            end = start;
        }
        Ok(match self.missing {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    }

    fn finish(mut self) -> Vec<Entry> {
        let count = self.pages.iter().map(Vec::len).sum();
        let mut entries = Vec::with_capacity(count);
        while let Some(mut page) = self.pages.pop() {
            entries.append(&mut page);
        }
        entries
    }
}

fn count_range(read: &dyn StoreRead, range: &LoopRange, query: &EntryQuery) -> StoreResult<u64> {
    let (key, seqs) = (range.loop_key, range.seqs.clone());
    let mut count = 0;
    if !query.is_filtered() {
        return Ok(u64::from(seqs.end - seqs.start));
    }
    if query.kinds.is_none() {
        read.sizes(key, seqs, &mut |message| {
            count += u64::from(query.may_take(message.role));
            Ok(ControlFlow::Continue(()))
        })?;
    } else {
        read.message_refs(key, seqs, false, &mut |message| {
            count += u64::from(taken(read, message, query)?.is_some());
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(count)
}
