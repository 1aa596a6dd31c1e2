//! Creates sessions, loops and forks; hides sessions.

use std::ops::ControlFlow;

use super::error::{StoreError, StoreResult};
use super::rows::{
    HideRow, LoopCore, LoopMeta, LoopProgress, LoopRow, LoopTotals, SessionActivity, SessionRow,
};
use super::{LoopKey, SessionKey, StoreRead, StoreWrite, Tick};
use crate::model::{
    ContinuationKind, LoopId, LoopRecord, LoopStatus, MAX_ID_BYTES, Session, SessionId, Time,
};

/// The value of `parent_turn` for a loop whose chain includes no turn of its parent.
pub const NO_TURN: i64 = -1;

/// The field of a loop's document with the last message of `parent_turn` that belongs to its chain.
const PARENT_SEQ: &str = "parent_seq";

/// The number of digits that are appended to the id of a hidden session.
const HIDDEN_DIGITS: usize = 8;

/// Adds a session without loops; [`create_loop`] adds these one by one.
///
/// # Errors
/// If a session with this id exists already, or `session` has loops.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let (id, title) = (SessionId::generate(), Some("The weather".into()));
/// let new = Session::new(id.clone(), "agent");
/// store::write(&store, |write| session::create_session(write, &new, title, None))?;
/// let row = store::read(&store, |read| read.session(&id))?;
/// assert_eq!(row.and_then(|row| row.title), Some("The weather".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn create_session(
    write: &mut dyn StoreWrite,
    session: &Session,
    title: Option<String>,
    source: Option<String>,
) -> StoreResult<SessionKey> {
    if !session.loops.is_empty() {
        return Err(StoreError::Invalid(format!(
            "session `{}` comes with {} loops, which are not stored with it; create each loop and append its \
             messages, or import the session as a document",
            session.session_id,
            session.loops.len()
        )));
    }
    if write.session(&session.session_id)?.is_some() {
        return Err(StoreError::SessionExists(session.session_id.to_string()));
    }
    let mut row = SessionRow {
        key: SessionKey(0),
        session_id: session.session_id.clone(),
        agent_id: None,
        title,
        created_at: None,
        last_active_at: None,
        current_loop: None,
        tick: 0,
        source,
        project: None,
        meta: String::new(),
    };
    describe_session(&mut row, session)?;
    write.insert_session(&row)
}

/// The labels by which people recognise a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionLabels {
    /// The new title; unchanged if `None`.
    pub title: Option<String>,
    /// The new folder that the agent works in; unchanged if `None`.
    pub project: Option<String>,
}

/// Sets the title of a session, or the folder that its agent works in.
///
/// # Errors
/// If the session does not exist, or the store fails.
pub fn label(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    labels: SessionLabels,
) -> StoreResult<()> {
    let row = write.session_by_key(session)?;
    let new = SessionRow {
        title: labels.title.or_else(|| row.title.clone()),
        project: labels.project.or_else(|| row.project.clone()),
        ..row.clone()
    };
    if new != row {
        write.update_session(&new)?;
    }
    Ok(())
}

/// Hides a session from lists and search, and frees its id. The session is kept unchanged under another
/// id, which is returned.
///
/// # Errors
/// If the session is hidden already, one of its loops is leased, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let id = SessionId::new("weather")?;
/// let new = Session::new(id.clone(), "agent");
/// let hidden = store::write(&store, |write| {
///     let key = session::create_session(write, &new, None, None)?;
///     session::hide(write, key)
/// })?;
/// assert!(hidden.as_str().starts_with("weather~"));
/// assert_eq!(store::read(&store, |read| read.session(&id))?, None);
/// store::write(&store, |write| {
///     let key = write.session(&hidden)?.map(|row| row.key);
///     session::unhide(write, key.ok_or(StoreError::NoSession(hidden.to_string()))?, &id)
/// })?;
/// assert!(store::read(&store, |read| read.session(&id))?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn hide(write: &mut dyn StoreWrite, session: SessionKey) -> StoreResult<SessionId> {
    let row = write.session_by_key(session)?;
    if is_hidden(write, session)? {
        return Err(StoreError::Invalid(format!(
            "session `{}` is hidden already",
            row.session_id
        )));
    }
    let mut driven = write.loops_at_work(Some(session))?;
    driven.extend(row.current_loop.filter(|key| !driven.contains(key)));
    for key in driven {
        super::lease::ensure_unleased(write, key, super::lease::now())?;
    }
    let id = free_id(write, &row.session_id)?;
    rename(write, row, id.clone(), true)?;
    Ok(id)
}

/// Shows a hidden session again, under an id that no other session has.
///
/// # Errors
/// If the session is not hidden, another session has the id, or the store fails.
pub fn unhide(write: &mut dyn StoreWrite, session: SessionKey, id: &SessionId) -> StoreResult<()> {
    let row = write.session_by_key(session)?;
    if !is_hidden(write, session)? {
        let id = row.session_id;
        return Err(StoreError::Invalid(format!("session `{id}` is not hidden")));
    }
    if write.session(id)?.is_some_and(|found| found.key != session) {
        return Err(StoreError::SessionExists(id.to_string()));
    }
    rename(write, row, id.clone(), false)
}

/// True if a session is hidden.
///
/// # Errors
/// If the store fails.
pub fn is_hidden(read: &dyn StoreRead, session: SessionKey) -> StoreResult<bool> {
    Ok(read.hides(session)?.last().is_some_and(|last| last.hidden))
}

/// Returns the sessions that are not hidden, last active first.
///
/// # Errors
/// If the store fails.
pub fn shown_sessions(read: &dyn StoreRead) -> StoreResult<Vec<SessionRow>> {
    let (mut rows, hidden) = (read.sessions()?, read.hidden_sessions()?);
    rows.retain(|row| hidden.binary_search(&row.key).is_err());
    Ok(rows)
}

fn rename(
    write: &mut dyn StoreWrite,
    row: SessionRow,
    id: SessionId,
    hidden: bool,
) -> StoreResult<()> {
    let hide = HideRow {
        hidden,
        was: row.session_id.clone(),
        session_id: id,
        tick: row.tick + 1,
        at: Time::now().as_str().to_owned(),
    };
    // A tick later than the row's: a copy that takes over the row alone is seen to be incomplete.
    apply_hide(write, row, &hide, hide.tick + 1)
}

/// Hides a session or shows it again, as the row `hide` records, and sets the session's clock to `tick`.
#[doc(hidden)]
pub fn apply_hide(
    write: &mut dyn StoreWrite,
    row: SessionRow,
    hide: &HideRow,
    tick: Tick,
) -> StoreResult<()> {
    write.insert_hide(row.key, hide)?;
    // The session's document contains its id too.
    let mut document: Session = super::codec::from_json(&row.meta)?;
    document.session_id = hide.session_id.clone();
    let row = SessionRow {
        tick,
        session_id: hide.session_id.clone(),
        meta: super::codec::to_json(&document)?,
        ..row
    };
    write.update_session(&row)
}

/// Returns an id that no session has, and that none in another database is likely to have.
fn free_id(read: &dyn StoreRead, id: &SessionId) -> StoreResult<SessionId> {
    loop {
        let random = LoopId::generate().to_string();
        let end = random.len().saturating_sub(HIDDEN_DIGITS);
        let mut kept = id.as_str().len().min(MAX_ID_BYTES - HIDDEN_DIGITS - 1);
        while !id.as_str().is_char_boundary(kept) {
            kept -= 1;
        }
        let hidden = format!("{}~{}", &id.as_str()[..kept], &random[end..]);
        let hidden =
            SessionId::new(hidden).map_err(|error| StoreError::Invalid(error.to_string()))?;
        if read.session(&hidden)?.is_none() {
            return Ok(hidden);
        }
    }
}

/// Copies the metadata of `session` into a row.
///
/// The document keeps its times unchanged. The columns contain the same instants in one form, by which lists are
/// ordered.
///
/// # Errors
/// If the metadata cannot be written as JSON.
pub fn describe_session(row: &mut SessionRow, session: &Session) -> StoreResult<()> {
    row.agent_id = session.agent_id.clone();
    row.created_at = session.created_at.as_ref().and_then(Time::sortable);
    row.last_active_at = session.last_active_at.as_ref().and_then(Time::sortable);
    row.meta = super::codec::to_json(session)?;
    Ok(())
}

/// Creates a loop without messages: these are appended later.
///
/// Without a `parent_turn`, the chain of the loop includes all present messages of the parent; with [`NO_TURN`] it
/// includes none. If the parent is not in this session, only its id is recorded.
///
/// # Errors
/// If the loop exists already, `parent_turn` is beyond the parent's last turn, or `record` has messages,
/// turns, events or a block.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let (first, second) = (LoopId::new("monday")?, LoopId::new("tuesday")?);
/// let new = Session::new(SessionId::new("weather")?, "agent");
/// let loops = store::write(&store, |write| {
///     let key = session::create_session(write, &new, None, None)?;
///     session::create_loop(write, key, &LoopRecord::new(first.clone(), None))?;
///     // It continues the first.
///     session::create_loop(write, key, &LoopRecord::new(second, Some(first)))?;
///     write.loops(key)
/// })?;
/// assert_eq!(loops[1].parent, Some(loops[0].key));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn create_loop(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    record: &LoopRecord,
) -> StoreResult<LoopKey> {
    ensure_empty(record)?;
    if write.loop_by_id(session, &record.loop_id)?.is_some() {
        return Err(StoreError::LoopExists(record.loop_id.to_string()));
    }
    let parent = match &record.parent_loop_id {
        Some(id) => write.loop_by_id(session, id)?,
        None => None,
    };
    add_loop(write, session, record, parent.as_deref())
}

/// Rejects a record with content, which would be kept as metadata that nothing reads.
fn ensure_empty(record: &LoopRecord) -> StoreResult<()> {
    let parts = [
        (record.messages.len(), "messages"),
        (record.turns.len(), "turns"),
        (record.events.len(), "events"),
        (usize::from(record.compaction_block.is_some()), "block"),
    ];
    match parts.into_iter().find(|(count, _)| *count > 0) {
        None => Ok(()),
        Some((count, what)) => Err(StoreError::Invalid(format!(
            "loop `{}` comes with {count} {what}, which are not stored with it; create the loop and append \
             its messages, or import its session as a document",
            record.loop_id
        ))),
    }
}

/// Creates a loop that does not exist yet, as a child of the present state of its parent.
///
/// # Errors
/// If `parent_turn` is beyond the parent's last turn.
#[doc(hidden)]
pub fn add_loop(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    record: &LoopRecord,
    parent: Option<&LoopCore>,
) -> StoreResult<LoopKey> {
    let mut owner = (&write.session_by_key(session)?).into();
    let row = add_loop_to(write, &mut owner, record, parent)?;
    write.touch_session(&owner)?;
    Ok(row.core.key)
}

/// Adds a loop as [`add_loop`] does, for a caller that has read the activity of the session and writes it
/// afterwards: in `owner`, the clock is raised and the loop becomes the current one.
///
/// # Errors
/// As [`add_loop`].
pub(crate) fn add_loop_to(
    write: &mut dyn StoreWrite,
    owner: &mut SessionActivity,
    record: &LoopRecord,
    parent: Option<&LoopCore>,
) -> StoreResult<LoopRow> {
    owner.tick += 1;
    let cut = cut_of(write, parent, record)?;
    let mut row = LoopRow {
        core: LoopCore {
            key: LoopKey(0),
            session: owner.key,
            loop_id: record.loop_id.clone(),
            parent: parent.map(|parent| parent.key),
            parent_turn: cut.0,
            parent_seq: cut.1,
            status: record.status.clone(),
            totals: LoopTotals::default(),
            edits: 0,
        },
        parent_loop_id: record.parent_loop_id.clone(),
        kind: String::new(),
        started_at: None,
        ended_at: None,
        tick: owner.tick,
        progress: LoopProgress::default(),
    };
    let meta = describe_loop(&mut row, record)?;
    row.key = write.insert_loop(&row, &meta)?;
    owner.current_loop = Some(row.key);
    Ok(row)
}

/// A fork: a loop that continues from the middle of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Its id.
    pub loop_id: LoopId,
    /// The last turn of the parent that belongs to its chain.
    pub turn: u32,
    /// The last message of that turn that belongs to it; the whole turn if `None`.
    pub seq: Option<u32>,
    /// The name of the branch.
    pub tag: String,
}

/// Creates a branch after a complete turn of a loop, or after a message of a turn. The branch is one row:
/// the parent's messages up to that turn, and the blocks that were active then, are read through it. It
/// becomes the current loop.
///
/// # Errors
/// If the parent has no such turn, if the turn is still in flight, or if the session has a loop with
/// this id.
///
/// # Examples
/// ```
/// use loopstore::extend as store;
/// use loopstore::extend::session::Fork;
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
/// #     let messages = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, messages.collect(), &HeuristicTokenCounter)?;
/// #     Ok(loop_key)
/// # })?;
/// let branch = Fork { loop_id: LoopId::new("another")?, turn: 9, seq: None, tag: "sunny".into() };
/// store::write(&store, |write| session::fork(write, loop_key, &branch))?;
/// let context = build_context_from_session(&store, &id, &BuildOptions::default())?;
/// assert_eq!((&context.leaf, context.messages.len()), (&branch.loop_id, 10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fork(write: &mut dyn StoreWrite, parent: LoopKey, fork: &Fork) -> StoreResult<LoopKey> {
    let parent = write.loop_by_key(parent)?;
    let (id, turn, totals) = (&parent.loop_id, fork.turn, &parent.totals);
    if totals.turns == 0 {
        return Err(StoreError::Invalid(format!("loop `{id}` has no turns yet")));
    }
    if turn >= totals.turns {
        let last = totals.turns - 1;
        return Err(StoreError::Invalid(format!(
            "loop `{id}` has no turn {turn}; its last turn is {last}"
        )));
    }
    if turn >= totals.complete && fork.seq.is_none() {
        return Err(StoreError::Invalid(format!(
            "turn {turn} of loop `{id}` is still open; fork from an earlier turn, or when it is \
             complete"
        )));
    }
    if let Some(seq) = fork.seq
        && seq >= totals.sealed_seq
        && write.session_by_key(parent.session)?.source.is_some()
    {
        return Err(StoreError::Invalid(format!(
            "message {seq} of loop `{id}` may be replaced when its transcript grows; fork from an earlier one"
        )));
    }
    let mut record = LoopRecord::new(fork.loop_id.clone(), Some(parent.loop_id.clone()));
    record.parent_turn = Some(i64::from(turn).into());
    if let Some(seq) = fork.seq {
        set_parent_seq(&mut record, seq);
    }
    record.status = LoopStatus::Pending;
    let tag = fork.tag.clone();
    record.continuation_kind = Some(ContinuationKind::Branch { tag });
    create_loop(write, parent.session, &record)
}

/// Returns the last turn of the parent that belongs to the new loop's chain, and the last message of that turn
/// if not all of it does.
fn cut_of(
    read: &dyn StoreRead,
    parent: Option<&LoopCore>,
    record: &LoopRecord,
) -> StoreResult<(Option<u32>, Option<u32>)> {
    let Some(parent) = parent else {
        return Ok((None, None));
    };
    let (id, turns) = (&parent.loop_id, parent.totals.turns);
    let last = turns.checked_sub(1);
    let Some(wanted) = &record.parent_turn else {
        return Ok((last, None));
    };
    if wanted.get() == NO_TURN {
        return Ok((None, None));
    }
    let turn = match u32::try_from(wanted.get()) {
        Ok(turn) if Some(turn) <= last => turn,
        _ => {
            return Err(StoreError::Invalid(format!(
                "loop `{id}` has no turn {}: it has {turns}",
                wanted.get()
            )));
        }
    };
    match parent_seq(record) {
        None => Ok((Some(turn), None)),
        Some(seq) => Ok((Some(turn), part_of(read, parent, turn, seq)?)),
    }
}

/// Returns the sequence of the message after which the chain of `record` leaves its parent, if that is within a turn.
#[doc(hidden)]
pub fn parent_seq(record: &LoopRecord) -> Option<i64> {
    record.extra.get(PARENT_SEQ)?.read().ok()
}

/// Sets the sequence of the message after which the chain of `record` leaves its parent, within a turn.
pub fn set_parent_seq(record: &mut LoopRecord, seq: u32) {
    let seq = serde_json::Value::from(seq);
    record.extra.insert(PARENT_SEQ, seq.into());
}

/// Removes the value that `set_parent_seq` sets, so that the chain of `record` includes the whole turn.
pub fn forget_parent_seq(record: &mut LoopRecord) {
    record.extra.remove(PARENT_SEQ);
}

/// Returns the cut after a message of a turn; `None` if that is the end of the turn.
#[doc(hidden)]
pub fn part_of(
    read: &dyn StoreRead,
    parent: &LoopCore,
    turn: u32,
    seq: i64,
) -> StoreResult<Option<u32>> {
    let first = read.turn(parent.key, turn)?.map(|row| row.first_seq);
    let next = read.turn(parent.key, turn.saturating_add(1))?;
    let end = next.map_or(parent.totals.next_seq, |next| next.first_seq);
    let found = u32::try_from(seq).ok().zip(first);
    let found = found.filter(|(seq, first)| seq >= first && *seq < end);
    let Some((seq, _)) = found else {
        return Err(StoreError::Invalid(format!(
            "turn {turn} of loop `{}` has no message {seq}",
            parent.loop_id
        )));
    };
    // A turn in flight may grow; nothing that is shown is added to any other.
    let mut is_end = turn < parent.totals.complete;
    read.sizes(parent.key, seq.saturating_add(1)..end, &mut |message| {
        is_end = false;
        let _ = message;
        Ok(ControlFlow::Break(()))
    })?;
    Ok((!is_end).then_some(seq))
}

/// Copies the metadata of `record` into a row, and returns the document that is stored with it.
///
/// # Errors
/// If the metadata cannot be written as JSON.
pub fn describe_loop(row: &mut LoopRow, record: &LoopRecord) -> StoreResult<LoopMeta> {
    let text = |time: &Option<Time>| time.as_ref().map(|time| time.as_str().to_owned());
    row.kind = super::codec::to_json(&kind_of(record))?;
    row.status = record.status.clone();
    row.started_at = text(&record.started_at);
    row.ended_at = text(&record.ended_at);
    LoopMeta::of(record)
}

fn kind_of(record: &LoopRecord) -> ContinuationKind {
    record.continuation_kind.clone().unwrap_or_default()
}

/// Returns the name from which the ids of a session's runs are made. It includes the session's id and the number of
/// hidden sessions that had this id before, since these may have runs of the same transcript.
///
/// # Errors
/// If the store fails.
pub fn run_owner(read: &dyn StoreRead, id: &SessionId) -> StoreResult<String> {
    Ok(match read.renamed_from(id)?.len() {
        0 => id.to_string(),
        before => format!("{id}~{before}"),
    })
}

/// Changes the metadata of a loop.
#[doc(hidden)]
pub fn edit_loop(
    write: &mut dyn StoreWrite,
    key: LoopKey,
    edit: impl FnOnce(&mut LoopRecord),
) -> StoreResult<()> {
    let before = write.loop_meta(key)?;
    let mut record = before.record()?;
    edit(&mut record);
    let meta = LoopMeta {
        history: before.history,
        ..LoopMeta::of(&record)?
    };
    write.update_loop_meta(key, &meta)
}
