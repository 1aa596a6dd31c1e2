//! Beginning sessions, loops and forks.

use super::error::{StoreError, StoreResult};
use super::rows::{LoopCore, LoopMeta, LoopProgress, LoopRow, LoopTotals, SessionRow};
use super::{LoopKey, SessionKey, StoreWrite};
use crate::model::{ContinuationKind, LoopId, LoopRecord, LoopStatus, Session, Time};

/// The `parent_turn` of a loop whose chain holds no turn of its parent.
pub const NO_TURN: i64 = -1;

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

/// Takes over what `session` says of itself.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn describe_session(row: &mut SessionRow, session: &Session) -> StoreResult<()> {
    let text = |time: &Option<Time>| time.as_ref().map(|time| time.as_str().to_owned());
    row.agent_id = session.agent_id.clone();
    row.created_at = text(&session.created_at);
    row.last_active_at = text(&session.last_active_at);
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
    add_loop(write, session, record, parent)
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
pub(crate) fn add_loop(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    record: &LoopRecord,
    parent: Option<LoopRow>,
) -> StoreResult<LoopKey> {
    let mut owner = write.session_by_key(session)?;
    owner.tick += 1;
    let mut row = LoopRow {
        core: LoopCore {
            key: LoopKey(0),
            session,
            loop_id: record.loop_id.clone(),
            parent: parent.as_ref().map(|parent| parent.key),
            parent_turn: cut_of(parent.as_ref(), record)?,
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
    let key = write.insert_loop(&row, &meta)?;
    owner.current_loop = Some(key);
    write.touch_session(&(&owner).into())?;
    Ok(key)
}

/// A loop from the middle of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// Its id.
    pub loop_id: LoopId,
    /// The last turn of the parent that belongs to its chain.
    pub turn: u32,
    /// Which branch it is.
    pub tag: String,
}

/// Begins a branch after a complete turn of a loop. It is one row: what the parent holds up to that
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
/// let branch = Fork { loop_id: LoopId::new("another")?, turn: 9, tag: "sunny".into() };
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
    if turn >= totals.complete {
        return Err(StoreError::Invalid(format!(
            "turn {turn} of loop `{id}` is still open; fork from an earlier turn, or when it is \
             complete"
        )));
    }
    let mut record = LoopRecord::new(fork.loop_id.clone(), Some(parent.loop_id.clone()));
    record.parent_turn = Some(i64::from(turn).into());
    record.status = LoopStatus::Pending;
    let tag = fork.tag.clone();
    record.continuation_kind = Some(ContinuationKind::Branch { tag });
    let key = create_loop(write, parent.session, &record)?;
    // The loop itself has not started: without this nothing would say that the session is in use.
    let mut session = write.session_by_key(parent.session)?;
    session.last_active_at = Some(Time::now().as_str().to_owned());
    write.touch_session(&(&session).into())?;
    Ok(key)
}

/// Returns the last turn of the parent that belongs to the new loop's chain.
fn cut_of(parent: Option<&LoopRow>, record: &LoopRecord) -> StoreResult<Option<u32>> {
    let Some(parent) = parent else {
        return Ok(None);
    };
    let last = parent.totals.turns.checked_sub(1);
    let Some(wanted) = &record.parent_turn else {
        return Ok(last);
    };
    if wanted.get() == NO_TURN {
        return Ok(None);
    }
    match u32::try_from(wanted.get()) {
        Ok(turn) if Some(turn) <= last => Ok(Some(turn)),
        _ => Err(StoreError::Invalid(format!(
            "loop `{}` has {} turns; there is no turn {}",
            parent.loop_id,
            parent.totals.turns,
            wanted.get()
        ))),
    }
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
    Ok(LoopMeta {
        meta: super::codec::to_json(record)?,
        history: None,
    })
}

fn kind_of(record: &LoopRecord) -> ContinuationKind {
    record.continuation_kind.clone().unwrap_or_default()
}
