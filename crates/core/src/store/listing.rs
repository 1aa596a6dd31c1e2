//! Lists of sessions and loops: rows of the views, with prompts and titles from the messages.
//!
//! A view has no prompt of archived messages; these lists read it from the archive.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::columns::Columns;
use super::error::{StoreError, StoreResult};
use super::prompt::{loop_prompts, own_title, session_prompts};
use super::query::{QueryRows, Record};
use super::rows::noted_events;
use super::{LoopKey, SessionKey, SessionRow, StoreRead};
use crate::model::{Json, SessionId, Time};

/// The number of sessions that are read at a time.
const PAGE: usize = 256;

/// The filter, the order and the page of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFilter {
    /// The importer of the sessions.
    pub source: Option<String>,
    /// A text that the project contains, in upper or lower case.
    pub project: Option<String>,
    /// A text that the title, the prompt or the id contains, in upper or lower case.
    pub text: Option<String>,
    /// The earliest time at which a session was last active.
    pub since: Option<Time>,
    /// True to list the hidden sessions in place of the others.
    pub hidden: bool,
    /// The cursor after which the list begins. The cost of a page does not depend on its position in the list.
    pub after: Option<SessionCursor>,
    /// The number of sessions to skip at the beginning. Skipped sessions are read, so a larger offset takes longer.
    pub offset: usize,
    /// The largest number of sessions to list.
    pub limit: Option<usize>,
}

impl SessionFilter {
    /// True if the filter needs the columns of each row.
    fn looks_at_rows(&self) -> bool {
        self.project.is_some() || self.text.is_some() || self.since.is_some()
    }

    /// True if a row may match before its prompt is read.
    fn may_take(&self, row: &Record) -> bool {
        let is_late = |since: &Time| {
            let last = row.text("last_active_at").map(Time::from_text);
            last.is_some_and(|last| last.millis() >= since.millis())
        };
        let of_project = self.project.as_ref();
        of_project.is_none_or(|part| has(row, "project", part))
            && self.since.as_ref().is_none_or(is_late)
    }

    /// True if a row with its prompt matches.
    fn takes(&self, row: &Record) -> bool {
        let columns = ["title", "prompt", "session_id"];
        let text = self.text.as_ref();
        text.is_none_or(|part| columns.iter().any(|column| has(row, column, part)))
    }
}

fn has(row: &Record, column: &str, part: &str) -> bool {
    let text = row.text(column);
    text.is_some_and(|text| text.to_lowercase().contains(&part.to_lowercase()))
}

/// A place in the list of sessions: right after one of them, at its position when the cursor was made.
///
/// A session that is active later moves to the top; the cursor stays valid even if its session moves or is
/// removed. As text, a cursor can be sent to a client and parsed again.
///
/// ```
/// use loopstore::{Message, SessionFilter, Store};
///
/// let store = Store::in_memory()?;
/// for city in ["Bern", "Rome", "Oslo"] {
///     store.session(city)?.append([Message::user("Will it rain?")])?;
/// }
/// let mut page = SessionFilter { limit: Some(2), ..SessionFilter::default() };
/// let first = store.sessions(&page)?;
/// let cursor = first[1].cursor().to_string();
/// page.after = Some(cursor.parse()?);
/// let second = store.sessions(&page)?;
/// assert_eq!((first.len(), second.len()), (2, 1));
/// assert_eq!(second[0].session_id.as_str(), "Bern");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCursor {
    /// The time of the session; `None`: after all sessions that have a time.
    #[doc(hidden)]
    pub last_active_at: Option<String>,
    #[doc(hidden)]
    pub key: i64,
}

impl SessionCursor {
    /// The cursor after all sessions that have a time.
    #[doc(hidden)]
    pub const UNTIMED: Self = Self {
        last_active_at: None,
        key: i64::MAX,
    };

    pub fn of(row: &SessionRow) -> Self {
        Self {
            last_active_at: row.last_active_at.clone(),
            key: row.key.0,
        }
    }

    /// Returns the cursor right after a session at its present position; `None` if there is no such session.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn behind(read: &dyn StoreRead, session: &SessionId) -> StoreResult<Option<Self>> {
        Ok(read.session(session)?.as_ref().map(Self::of))
    }
}

impl fmt::Display for SessionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.last_active_at {
            Some(time) => write!(f, "{}@{time}", self.key),
            None => write!(f, "{}", self.key),
        }
    }
}

impl FromStr for SessionCursor {
    type Err = StoreError;

    fn from_str(text: &str) -> StoreResult<Self> {
        let (key, time) = match text.split_once('@') {
            Some((key, time)) => (key, Some(time.to_owned())),
            None => (text, None),
        };
        // No stored text has a zero byte before the part that is compared.
        let is_time = time.as_ref().is_none_or(|time| !time.contains('\0'));
        match key.parse() {
            Ok(key) if is_time => Ok(Self {
                last_active_at: time,
                key,
            }),
            _ => Err(StoreError::Invalid(format!(
                "{text:?} is no place in a list of sessions; take one from a row of the list"
            ))),
        }
    }
}

/// A session of a list, without its prompt and title.
pub struct ListedSession {
    /// The position right after the session.
    pub cursor: SessionCursor,
    /// The columns of the session.
    pub record: Record,
}

/// Sums over the loops of a session.
pub struct LoopSums {
    /// The number of loops.
    pub loops: i64,
    /// The number of turns.
    pub turns: i64,
    /// The number of messages.
    pub messages: i64,
    /// The number of tokens.
    pub tokens: i64,
}

impl LoopSums {
    /// Reads the sums from their columns.
    pub fn of(row: &impl Columns) -> StoreResult<Self> {
        Ok(Self {
            loops: row.get("loops")?,
            turns: row.get("turns")?,
            messages: row.get("messages")?,
            tokens: row.get("tokens")?,
        })
    }

    /// Returns the sums as columns of a record.
    pub fn columns(&self) -> [(&'static str, Json); 4] {
        let number = |number: &i64| Json::of(number).unwrap_or_default();
        [
            ("loops", number(&self.loops)),
            ("turns", number(&self.turns)),
            ("messages", number(&self.messages)),
            ("tokens", number(&self.tokens)),
        ]
    }
}

/// The reads of a backend for the list of sessions, last active first, of equal times the last created. Only
/// the source and the hidden flag of the filter apply.
pub trait SessionList {
    /// Returns the cursor after the first `count` sessions; `None` if there are fewer.
    fn place(&self, filter: &SessionFilter, count: usize) -> StoreResult<Option<SessionCursor>>;

    /// Returns the first `count` sessions after a cursor; after a cursor with a time, only sessions with a time.
    fn page(
        &self,
        filter: &SessionFilter,
        behind: Option<&SessionCursor>,
        count: usize,
    ) -> StoreResult<Vec<ListedSession>>;
}

/// Lists the sessions that match a filter, with their prompts and titles.
pub fn sessions<R: SessionList + StoreRead>(
    read: &R,
    filter: &SessionFilter,
) -> StoreResult<Vec<(SessionCursor, Record)>> {
    let limit = filter.limit.unwrap_or(usize::MAX);
    let (mut skip, mut behind) = (filter.offset, filter.after.clone());
    if skip > 0 && behind.is_none() && !filter.looks_at_rows() {
        behind = read.place(filter, std::mem::take(&mut skip))?;
        if behind.is_none() {
            return Ok(Vec::new());
        }
    }
    let mut found = Vec::new();
    while found.len() < limit {
        let count = match skip > 0 || filter.looks_at_rows() {
            true => PAGE,
            false => PAGE.min(limit - found.len()),
        };
        let page = read.page(filter, behind.as_ref(), count)?;
        let next = match page.last() {
            Some(last) if page.len() == count => Some(last.cursor.clone()),
            _ => behind
                .filter(|place| place.last_active_at.is_some())
                .map(|_| SessionCursor::UNTIMED),
        };
        let mut rows = with_prompts(read, page, filter)?;
        let skipped = skip.min(rows.len());
        skip -= skipped;
        rows.drain(..skipped);
        rows.truncate(limit - found.len());
        found.append(&mut rows);
        behind = next;
        if behind.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Adds prompts and titles to sessions, and removes those that do not match.
fn with_prompts(
    read: &dyn StoreRead,
    mut page: Vec<ListedSession>,
    filter: &SessionFilter,
) -> StoreResult<Vec<(SessionCursor, Record)>> {
    page.retain(|row| filter.may_take(&row.record));
    let keys: Vec<SessionKey> = page.iter().map(|row| SessionKey(row.cursor.key)).collect();
    let prompts = session_prompts(read, &keys)?;
    let described = page.into_iter().map(|mut row| {
        let prompt = prompts.get(&SessionKey(row.cursor.key));
        describe(&mut row.record, prompt);
        (row.cursor, row.record)
    });
    Ok(described.filter(|(_, row)| filter.takes(row)).collect())
}

/// Adds the prompts of a session and of its loops, in the order of their creation, and the session's title.
pub(super) fn session_and_loops(
    read: &dyn StoreRead,
    id: &SessionId,
    session: &mut Record,
    loops: &mut [Record],
) -> StoreResult<()> {
    let Some(owner) = read.session(id)? else {
        return Ok(());
    };
    let prompt = super::prompt::session_prompt(read, owner.key)?;
    session.set("title", text(owner.title.as_ref()));
    describe(session, prompt.as_ref());
    let prompts: HashMap<LoopKey, String> = loop_prompts(read, owner.key)?;
    let keys = read.loops(owner.key)?;
    let keys: HashMap<&str, LoopKey> = keys
        .iter()
        .map(|row| (row.loop_id.as_str(), row.key))
        .collect();
    for row in loops {
        let key = row.text("loop_id").and_then(|id| keys.get(&*id).copied());
        row.set("prompt", text(key.and_then(|key| prompts.get(&key))));
    }
    Ok(())
}

fn describe(session: &mut Record, prompt: Option<&String>) {
    session.set("prompt", text(prompt));
    if own_title(session.text("title").as_deref()).is_none() {
        session.set("title", text(prompt));
    }
}

fn text(text: Option<&String>) -> Json {
    text.map(|text| Json::string(text)).unwrap_or_default()
}

/// A session with its loops and their blocks, as rows of the views.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    /// The row of `v_sessions`.
    pub session: Record,
    /// The rows of `v_loops` in the order of their creation, each with the rows of
    /// `v_compaction_blocks` on it.
    pub loops: Vec<(Record, Vec<Record>)>,
    /// The rows of `v_edits` by run, oldest run first.
    pub edits: Vec<Record>,
}

/// Groups the rows of a session into a view.
pub fn view_of(
    read: &dyn StoreRead,
    id: &SessionId,
    [found, loops, blocks, edits]: [QueryRows; 4],
) -> StoreResult<SessionView> {
    let missing = || StoreError::NoSession(id.to_string());
    let mut session = found
        .into_records()
        .into_iter()
        .next()
        .ok_or_else(missing)?;
    let mut loops = loops.into_records();
    session_and_loops(read, id, &mut session, &mut loops)?;
    Ok(SessionView {
        session,
        loops: with_blocks(loops, blocks.into_records()),
        edits: edits.into_records(),
    })
}

fn with_blocks(loops: Vec<Record>, blocks: Vec<Record>) -> Vec<(Record, Vec<Record>)> {
    let mut by_loop = group_by(blocks, "loop_id");
    let with_own = |row: Record| {
        let own = by_loop.remove(&row.text("loop_id")).unwrap_or_default();
        (row, own)
    };
    loops.into_iter().map(with_own).collect()
}

/// Groups rows by the text in a column.
fn group_by(rows: Vec<Record>, column: &str) -> HashMap<Option<String>, Vec<Record>> {
    let mut groups: HashMap<Option<String>, Vec<Record>> = HashMap::new();
    for row in rows {
        groups.entry(row.text(column)).or_default().push(row);
    }
    groups
}

/// Sorts runs of several sessions by their start, newest first. The times are compared as instants, since other tools
/// write them with any time zone.
pub fn sort_by_start(runs: &mut [Record]) {
    let began = |run: &Record| Time::from_text(run.text("started_at")?).millis();
    runs.sort_by_cached_key(|run| Reverse(began(run)));
}

/// Adds to each run its events, undos and redos.
pub fn with_flips(runs: QueryRows, flips: QueryRows) -> StoreResult<Vec<Record>> {
    let mut flips = group_by(flips.into_records(), "run_id");
    let mut records = runs.into_records();
    for record in &mut records {
        let own = flips.remove(&record.text("run_id")).unwrap_or_default();
        let other = |error: serde_json::Error| StoreError::Other(Box::new(error));
        let own = Json::of(&own).map_err(other)?;
        // Parsed from the text in the row.
        let events = record.text("events");
        record.set(
            "events",
            Json::of(&noted_events(events.as_deref())).map_err(other)?,
        );
        record.push("flips", own);
    }
    Ok(records)
}
