//! Moments in the past: the loop of a moment, and the view of it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::model::{LoopId, SessionId, Time};
use crate::store::active_blocks::ChainView;
use crate::store::{
    self, LoopKey, LoopRow, ManifestRow, Outcome, SessionRow, SessionStore, StoreError, StoreRead,
    StoreResult, Tick, TurnRow,
};

/// A moment at which a context is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// The run's own loop, just after the commit of the run.
    Run(String),
    /// A loop, just after the last message of a turn. A loop that grew later counts as running then, as
    /// the ends of loops are not recorded.
    Turn {
        /// The loop.
        loop_id: LoopId,
        /// The turn, by position from 0.
        turn: u32,
    },
    /// The context that a manifest was recorded of. If a message of it was replaced or pruned since, the context is an
    /// error, never another one. A redacted message is shown as it is now.
    Manifest(String),
    /// A loop, just before a message was appended. If the message is an answer, this is the context that the model
    /// saw. Earlier messages of the same append are included.
    Before {
        /// The loop.
        loop_id: LoopId,
        /// The message's sequence.
        seq: u32,
    },
}

impl AsOf {
    /// Returns the moment of a loop just after the last message of a turn.
    pub fn turn(loop_id: impl Into<String>, turn: u32) -> Self {
        let loop_id = LoopId::of(loop_id);
        Self::Turn { loop_id, turn }
    }

    /// The run's own loop, just after the commit of the run.
    pub fn run(run_id: impl Into<String>) -> Self {
        Self::Run(run_id.into())
    }

    /// Returns the moment of a manifest.
    pub fn manifest(manifest_id: impl Into<String>) -> Self {
        Self::Manifest(manifest_id.into())
    }

    /// Returns the moment just after the last turn or run of a session, or of one loop, until this time. The times of
    /// messages are used as they were recorded.
    ///
    /// # Errors
    /// If the session or the loop does not exist, or had no turns and runs by then.
    ///
    /// # Examples
    /// ```
    /// use loopstore::context::AsOf;
    /// use loopstore::*;
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// let json = r#"{"role":"user","content":[{"type":"text","text":"Will it rain?"}],
    ///     "timestamp":1767225600000}"#;
    /// chat.append([serde_json::from_str::<AgentMessage>(json)?])?;
    /// let new_year = Time::from_text("2026-01-01T00:00:00Z");
    /// let moment = AsOf::time(store.database(), chat.id(), None, &new_year)?;
    /// assert_eq!(chat.context_as_of(moment)?.messages.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time(
        store: &dyn SessionStore,
        session: &SessionId,
        of_loop: Option<&LoopId>,
        time: &Time,
    ) -> StoreResult<Self> {
        let invalid = || StoreError::Invalid(format!("`{}` is not a time", time.as_str()));
        let until = time.millis().ok_or_else(invalid)?;
        store::read(store, |read| {
            let owner = session_of(read, session)?;
            last_until(read, &owner, of_loop, until)?.ok_or_else(|| {
                let time = time.as_str();
                StoreError::Invalid(format!("nothing is recorded of `{session}` until {time}"))
            })
        })
    }
}

/// Returns the loop of a moment, and the view of the moment.
///
/// # Errors
/// If the run, the loop, the turn or the manifest does not exist.
pub fn moment_of(
    read: &dyn StoreRead,
    owner: &SessionRow,
    as_of: &AsOf,
) -> StoreResult<(LoopRow, ChainView)> {
    let at = |tick: Tick| ChainView {
        at: Some(tick),
        ..ChainView::default()
    };
    match as_of {
        AsOf::Run(run_id) => {
            let mut found = None;
            read.runs(owner.key, &mut |run| {
                if run.run_id == *run_id {
                    found = Some(run);
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            let run = found.ok_or_else(|| StoreError::NoRun(run_id.clone()))?;
            let view = ChainView {
                complete: run.point.turns,
                ..at(run.tick)
            };
            Ok((read.loop_by_key(run.point.loop_key)?, view))
        }
        AsOf::Turn { loop_id, turn } => {
            let leaf = leaf_of(read, owner, Some(loop_id))?;
            let row = read.turn(leaf.key, *turn)?.ok_or_else(|| {
                let turns = leaf.totals.turns;
                StoreError::Invalid(format!(
                    "loop `{loop_id}` has no turn {turn}: it has {turns}"
                ))
            })?;
            Ok((leaf, at(row.tick)))
        }
        AsOf::Manifest(id) => {
            let row = recorded(read, owner, id)?;
            Ok((read.loop_by_key(row.leaf)?, at(row.tick)))
        }
        AsOf::Before { loop_id, seq } => {
            let leaf = leaf_of(read, owner, Some(loop_id))?;
            before(read, leaf, *seq)
        }
    }
}

/// Returns a manifest of the session.
///
/// # Errors
/// If there is none.
pub(super) fn recorded(
    read: &dyn StoreRead,
    owner: &SessionRow,
    id: &str,
) -> StoreResult<ManifestRow> {
    read.manifest(owner.key, id)?
        .ok_or_else(|| StoreError::NoManifest(id.to_owned()))
}

/// Returns the last turn or committed run until a time, in milliseconds since the epoch. The last is the one
/// with the highest tick.
///
/// # Errors
/// If the loop does not exist.
pub fn last_until(
    read: &dyn StoreRead,
    owner: &SessionRow,
    of_loop: Option<&LoopId>,
    until: i64,
) -> StoreResult<Option<AsOf>> {
    let loops = match of_loop {
        Some(id) => vec![leaf_of(read, owner, Some(id))?],
        None => read.loops(owner.key)?,
    };
    let mut last: Option<(Tick, AsOf)> = None;
    let mut offer = |tick: Tick, as_of: &dyn Fn() -> AsOf| {
        if last.as_ref().is_none_or(|(known, _)| *known < tick) {
            last = Some((tick, as_of()));
        }
    };
    for row in &loops {
        let turns = read.turns(row.key, 0..row.totals.turns)?;
        let until = |turn: &&TurnRow| turn.ended_at.is_some_and(|ended| ended <= until);
        if let Some(turn) = turns.iter().filter(until).max_by_key(|turn| turn.tick) {
            offer(turn.tick, &|| AsOf::turn(row.loop_id.as_str(), turn.turn));
        }
    }
    let keys: HashSet<LoopKey> = loops.iter().map(|row| row.key).collect();
    read.runs(owner.key, &mut |run| {
        let ended = Time::from_text(run.started_at.as_str()).millis();
        let ended = ended.map(|started| started.saturating_add(run.duration_ms as i64));
        if run.outcome == Outcome::Committed
            && ended.is_some_and(|ended| ended <= until)
            && keys.contains(&run.point.loop_key)
        {
            offer(run.tick, &|| AsOf::run(run.run_id.as_str()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(last.map(|(_, as_of)| as_of))
}

/// Returns a loop as it was just before one of its messages, and the view of that moment.
fn before(read: &dyn StoreRead, leaf: LoopRow, seq: u32) -> StoreResult<(LoopRow, ChainView)> {
    let mut tick = None;
    read.messages(leaf.key, seq..seq.saturating_add(1), &mut |row| {
        tick = Some(row.tick);
        Ok(ControlFlow::Break(()))
    })?;
    let tick = tick.ok_or_else(|| {
        let messages = leaf.totals.next_seq;
        let id = &leaf.loop_id;
        StoreError::Invalid(format!(
            "loop `{id}` has {messages} messages; there is no message {seq}"
        ))
    })?;
    let view = ChainView {
        at: Some(tick - 1),
        leaf_end: Some(seq),
        ..ChainView::default()
    };
    Ok((leaf, view))
}

/// Returns the session.
///
/// # Errors
/// If there is none.
pub fn session_of(read: &dyn StoreRead, id: &SessionId) -> StoreResult<SessionRow> {
    read.session(id)?
        .ok_or_else(|| StoreError::NoSession(id.to_string()))
}

/// Returns the named loop, or the session's current one.
///
/// # Errors
/// If there is none.
pub fn leaf_of(
    read: &dyn StoreRead,
    session: &SessionRow,
    id: Option<&LoopId>,
) -> StoreResult<LoopRow> {
    match (id, session.current_loop) {
        (Some(id), _) => read
            .loop_by_id(session.key, id)?
            .ok_or_else(|| StoreError::NoLoop(id.to_string())),
        (None, Some(current)) => read.loop_by_key(current),
        (None, None) => Err(StoreError::Invalid(format!(
            "session `{}` has no loops yet",
            session.session_id
        ))),
    }
}
