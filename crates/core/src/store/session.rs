//! Beginning sessions, loops and forks.

use std::ops::ControlFlow;

use super::error::{StoreError, StoreResult};
use super::rows::{
    HideRow, LoopCore, LoopMeta, LoopProgress, LoopRow, LoopTotals, SessionActivity, SessionRow,
};
use super::{LoopKey, SessionKey, StoreRead, StoreWrite, Tick};
use crate::model::{
    ContinuationKind, LoopId, LoopRecord, LoopStatus, MAX_ID_BYTES, Session, SessionId, Time,
};

/// The `parent_turn` of a loop whose chain holds no turn of its parent.
pub const NO_TURN: i64 = -1;

/// The field of a loop's document that says within which message of `parent_turn` its chain leaves the parent.
const PARENT_SEQ: &str = "parent_seq";

/// How many digits the id of a hidden session has behind the one that it had.
const HIDDEN_DIGITS: usize = 8;

/// Adds a session without loops: these come one by one, by [`create_loop`].
///
/// # Errors
/// If a session with this id is there already, or `session` has loops.
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

/// What people know a session by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionLabels {
    /// A title; `None`: it stays as it is.
    pub title: Option<String>,
    /// The folder that the agent works in; `None`: it stays as it is.
    pub project: Option<String>,
}

/// Gives a session a title, or notes the folder that its agent works in.
///
/// # Errors
/// If the session is not there, or the store fails.
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

/// Hides a session: it is in no list and no search any more, and the id may be used again. It stays as it
/// is under an id of its own, which is returned.
///
/// # Errors
/// If it is hidden already, somebody drives a loop of it, or the store refuses.
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
    let id = own_id(write, &row.session_id)?;
    rename(write, row, id.clone(), true)?;
    Ok(id)
}

/// Brings a hidden session back, under an id that no other session has.
///
/// # Errors
/// If it is not hidden, another session has the id, or the store refuses.
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

/// Whether a session is hidden.
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
    // What comes after it is later in any copy: one that takes over the row alone has not all of it.
    apply_hide(write, row, &hide, hide.tick + 1)
}

/// Hides a session or brings it back as `hide` says; its clock shows `tick` then.
#[doc(hidden)]
pub fn apply_hide(
    write: &mut dyn StoreWrite,
    row: SessionRow,
    hide: &HideRow,
    tick: Tick,
) -> StoreResult<()> {
    write.insert_hide(row.key, hide)?;
    // Its own document names it too.
    let mut said: Session = super::codec::from_json(&row.meta)?;
    said.session_id = hide.session_id.clone();
    let row = SessionRow {
        tick,
        session_id: hide.session_id.clone(),
        meta: super::codec::to_json(&said)?,
        ..row
    };
    write.update_session(&row)
}

/// Returns an id that no session has, and that none in another database is likely to have.
fn own_id(read: &dyn StoreRead, id: &SessionId) -> StoreResult<SessionId> {
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

/// Takes over what `session` says of itself.
///
/// The document keeps its times to the letter; the columns hold the instants, which lists are ordered by.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn describe_session(row: &mut SessionRow, session: &Session) -> StoreResult<()> {
    row.agent_id = session.agent_id.clone();
    row.created_at = session.created_at.as_ref().and_then(Time::sortable);
    row.last_active_at = session.last_active_at.as_ref().and_then(Time::sortable);
    row.meta = super::codec::to_json(session)?;
    Ok(())
}

/// Begins a loop without messages: these are appended.
///
/// Without a `parent_turn` the chain of the loop holds everything that the parent has now, with
/// [`NO_TURN`] nothing of it. A parent that is not in this session is only noted.
///
/// # Errors
/// If the loop is there already, `parent_turn` is beyond the parent's last turn, or `record` has messages,
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
///     // It goes on from the first.
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

/// Refuses a record with content: it would be kept as metadata, where nothing reads it.
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

/// Begins a loop that is not there yet, below its parent as it is now.
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

/// The same for who has read what changes of its session, and writes that afterwards: `owner`, where the clock
/// is raised and the loop becomes the current one.
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

/// A loop from the middle of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Its id.
    pub loop_id: LoopId,
    /// The last turn of the parent that belongs to its chain.
    pub turn: u32,
    /// The last message of that turn that does; `None`: the whole turn.
    pub seq: Option<u32>,
    /// Which branch it is.
    pub tag: String,
}

/// Begins a branch after a complete turn of a loop, or after a message of a turn. It is one row: what the parent holds up to that
/// turn, and the blocks that were active then, are read through it. It becomes the current loop.
///
/// # Errors
/// If the parent has no such turn, if that is still in flight, or if the session has a loop of this
/// id.
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

/// Returns the message that a record's chain leaves its parent after, within a turn.
#[doc(hidden)]
pub fn parent_seq(record: &LoopRecord) -> Option<i64> {
    record.extra.get(PARENT_SEQ)?.read().ok()
}

/// Lets a record's chain leave its parent after a message, within a turn.
pub fn set_parent_seq(record: &mut LoopRecord, seq: u32) {
    let seq = serde_json::Value::from(seq);
    record.extra.insert(PARENT_SEQ, seq.into());
}

/// Lets a record's chain hold the whole turn.
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
    // More may come to a turn in flight; to any other, nothing that would be shown.
    let mut is_end = turn < parent.totals.complete;
    read.sizes(parent.key, seq.saturating_add(1)..end, &mut |message| {
        is_end = false;
        let _ = message;
        Ok(ControlFlow::Break(()))
    })?;
    Ok((!is_end).then_some(seq))
}

/// Takes over what `record` says of itself, and returns what is stored beside the row.
///
/// # Errors
/// If it cannot be written as JSON.
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

/// Returns the name that the ids of a session's runs are made with: its own, and how many sessions had that
/// id before and are hidden now, as those may have runs of the same transcript.
///
/// # Errors
/// What the store returns.
pub fn run_owner(read: &dyn StoreRead, id: &SessionId) -> StoreResult<String> {
    Ok(match read.renamed_from(id)?.len() {
        0 => id.to_string(),
        before => format!("{id}~{before}"),
    })
}

/// Changes what a loop says of itself.
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
