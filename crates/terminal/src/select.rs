//! Lookup of ids: whole, or a unique prefix. Of sessions, `@` is the newest and `@-` the one before.

use std::fmt;

use loopstore::context::AsOf;
use loopstore::extend::sqlite::Record;
use loopstore::extend::{
    self as store, EDIT_TRIGGER, LoopRow, RunRow, SessionRow, StoreError, StoreRead, StoreResult,
    lookup,
};
use loopstore::{Database, LoopId, SealingProvider, SessionFilter, SessionId, Time};

use super::amount::{self, Edge};
use super::nearest;

/// Reads the name of a provider that compacts by itself.
pub fn provider(given: &str) -> Result<SealingProvider, String> {
    let mut known = SealingProvider::ALL.into_iter();
    let found = known.find(|provider| provider.as_str() == given);
    found.ok_or_else(|| "one of: openai, anthropic".to_owned())
}

/// Returns the provider that made the run, if only this provider can read the compaction. The edits that a provider
/// applied are no compaction.
pub fn sealed_by(run: &Record) -> Option<SealingProvider> {
    let is_edit = run.text("trigger").as_deref() == Some(EDIT_TRIGGER);
    SealingProvider::of_strategy(&run.text("strategy")?).filter(|_| !is_edit)
}

/// An id that matches no item or several items.
#[derive(Debug)]
pub struct Unknown {
    /// The reason.
    pub error: StoreError,
    /// The ids nearest to it.
    pub near: Vec<String>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(question) = nearest::question(&self.near) else {
            return self.error.fmt(f);
        };
        write!(f, "{}; {question}", self.error)
    }
}

impl std::error::Error for Unknown {}

/// Adds the nearest ids to an error about an unknown id.
fn with_near(store: &dyn Database, session: Option<&SessionRow>, error: StoreError) -> Unknown {
    let near = match (&error, session) {
        (StoreError::NoSession(given), _) => nearest::sessions(store, given),
        (StoreError::NoLoop(given), Some(session)) => nearest::loops(store, session, given),
        (StoreError::NoRun(given), Some(session)) => nearest::runs(store, session, given),
        _ => Ok(Vec::new()),
    };
    Unknown {
        error,
        near: near.unwrap_or_default(),
    }
}

/// The number of sessions that are read at once to find the newest.
const PAGE: usize = 50;

/// Returns the session whose id is or begins with `given`. `@` is the session that was active last, `@-` the one before,
/// and so on; the sessions of sub-agents do not count. A part of `given` before a `/` may be a prefix of its own.
pub fn session(store: &dyn Database, given: &str) -> Result<SessionRow, Unknown> {
    let found = store::read(store, |read| match steps_back(given) {
        Some(_) if SessionId::new(given).is_ok_and(|id| is_stored(read, &id)) => {
            lookup::session(read, given)
        }
        Some(_) => Err(StoreError::NoSession(given.to_owned())),
        None => by_parts(read, given),
    });
    match (found, steps_back(given)) {
        (Err(StoreError::NoSession(_)), Some(back)) => newest(store, given, back),
        (found, _) => found.map_err(|error| with_near(store, None, error)),
    }
}

fn is_stored(read: &dyn StoreRead, id: &SessionId) -> bool {
    read.session(id).is_ok_and(|row| row.is_some())
}

/// Returns how many sessions before the newest `@`, `@-`, `@--` and so on name.
fn steps_back(given: &str) -> Option<usize> {
    let marks = given.strip_prefix('@')?;
    marks
        .bytes()
        .all(|byte| byte == b'-')
        .then_some(marks.len())
}

/// Looks up an id of which each part before a `/` may be a prefix.
fn by_parts(read: &dyn StoreRead, given: &str) -> StoreResult<SessionRow> {
    match (lookup::session(read, given), given.rsplit_once('/')) {
        (Err(StoreError::NoSession(_)), Some((parent, own))) => {
            let parent = by_parts(read, parent).map_err(|error| match error {
                StoreError::NoSession(_) => StoreError::NoSession(given.to_owned()),
                other => other,
            })?;
            lookup::session(read, &format!("{}/{own}", parent.session_id))
        }
        (found, _) => found,
    }
}

/// Returns the newest session but `back`.
fn newest(store: &dyn Database, given: &str, back: usize) -> Result<SessionRow, Unknown> {
    let mut filter = SessionFilter {
        limit: Some(PAGE),
        ..SessionFilter::default()
    };
    let mut left = back;
    let unknown = |error| with_near(store, None, error);
    loop {
        let page = store.session_rows(&filter).map_err(unknown)?;
        for row in &page {
            let id = row
                .text("session_id")
                .and_then(|id| SessionId::new(id).ok());
            let row = id.map(|id| store::read(store, |read| read.session(&id)));
            let row = row.transpose().map_err(unknown)?.flatten();
            let Some(row) = row.filter(|row| row.started_by().is_none()) else {
                continue;
            };
            match left.checked_sub(1) {
                Some(rest) => left = rest,
                None => return Ok(row),
            }
        }
        if page.len() < PAGE {
            let error = StoreError::NoSession(given.to_owned());
            return Err(Unknown {
                error,
                near: Vec::new(),
            });
        }
        filter.offset += PAGE;
    }
}

/// Returns the id of the session whose id is or begins with `given`, if one was given.
pub fn session_id(store: &dyn Database, given: Option<&str>) -> Result<Option<SessionId>, Unknown> {
    let find = |given| session(store, given).map(|row| row.session_id);
    given.map(find).transpose()
}

/// Returns the loop whose id is or begins with `given`.
pub fn loop_row(
    store: &dyn Database,
    session: &SessionRow,
    given: &str,
) -> Result<LoopRow, Unknown> {
    let found = store::read(store, |read| lookup::loop_of(read, session.key, given));
    found.map_err(|error| with_near(store, Some(session), error))
}

/// Returns the id of the loop whose id is or begins with `given`, if one was given.
pub fn loop_id(
    store: &dyn Database,
    session: &SessionRow,
    given: Option<&str>,
) -> Result<Option<LoopId>, Unknown> {
    let find = |given| loop_row(store, session, given).map(|row| row.core.loop_id);
    given.map(find).transpose()
}

/// Returns the run whose id is or begins with `given`, if one was given.
pub fn run_id(
    store: &dyn Database,
    session: &SessionRow,
    given: Option<&str>,
) -> Result<Option<String>, Unknown> {
    let find = |given| {
        let found = store::read(store, |read| lookup::run(read, session.key, given));
        found.map(|run| run.run_id)
    };
    let found = given.map(find).transpose();
    found.map_err(|error| with_near(store, Some(session), error))
}

/// The argument of `--as-of`: `RUN`, `LOOP:TURN` or a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenAsOf {
    /// Just after a run, or the moment of a manifest.
    Run(String),
    /// Just after a turn.
    Turn(String, u32),
    /// Just after the last turn or run up to a time.
    Time(Time),
}

impl std::str::FromStr for GivenAsOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(time) = amount::time(text, Edge::End) {
            return Ok(Self::Time(time));
        }
        match text.rsplit_once(':') {
            _ if text.is_empty() => Err("expected a run, a manifest or LOOP:TURN".into()),
            None => Ok(Self::Run(text.into())),
            Some(("", _)) => Err("the loop before `:` is missing".into()),
            Some((loop_id, turn)) => match turn.parse() {
                Ok(turn) => Ok(Self::Turn(loop_id.into(), turn)),
                Err(_) => Err(format!(
                    "`{turn}` is not a turn; expected a run, a manifest, LOOP:TURN or a time"
                )),
            },
        }
    }
}

/// Returns the point of a context, and the loop that the context is read from. `of_loop` is the loop of the command
/// line.
pub fn as_of(
    store: &dyn Database,
    session: &SessionRow,
    given: &GivenAsOf,
    of_loop: Option<&LoopId>,
) -> Result<(AsOf, LoopId), Unknown> {
    let found = match given {
        GivenAsOf::Run(given) => store::read(store, |read| {
            if let Some(row) = read.manifest(session.key, given)? {
                let loop_id = read.loop_by_key(row.leaf)?.core.loop_id;
                return Ok((AsOf::Manifest(row.manifest_id), loop_id));
            }
            let run = lookup::run(read, session.key, given)?;
            let loop_id = loop_of(read, &run)?;
            Ok((AsOf::Run(run.run_id), loop_id))
        }),
        GivenAsOf::Turn(given, turn) => store::read(store, |read| {
            let loop_id = lookup::loop_of(read, session.key, given)?.core.loop_id;
            Ok((AsOf::turn(loop_id.as_str(), *turn), loop_id))
        }),
        GivenAsOf::Time(time) => match AsOf::time(store, &session.session_id, of_loop, time) {
            Ok(AsOf::Run(run)) => {
                return as_of(store, session, &GivenAsOf::Run(run), of_loop);
            }
            Ok(AsOf::Manifest(id)) => {
                return as_of(store, session, &GivenAsOf::Run(id), of_loop);
            }
            Ok(AsOf::Turn { loop_id, turn }) => Ok((AsOf::turn(loop_id.as_str(), turn), loop_id)),
            Ok(AsOf::Before { loop_id, seq }) => {
                let leaf = loop_id.clone();
                Ok((AsOf::Before { loop_id, seq }, leaf))
            }
            Err(error) => Err(error),
        },
    };
    found.map_err(|error| with_near(store, Some(session), error))
}

fn loop_of(read: &dyn StoreRead, run: &RunRow) -> StoreResult<LoopId> {
    Ok(read.loop_by_key(run.point.loop_key)?.core.loop_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_split_at_the_last_colon() {
        assert_eq!("r1".parse(), Ok(GivenAsOf::Run("r1".into())));
        assert_eq!("a:b:3".parse(), Ok(GivenAsOf::Turn("a:b".into(), 3)));
        let time = |text: &str| GivenAsOf::Time(Time::from_text(text));
        for (given, meant) in [
            ("2026-11-01", "2026-11-01T23:59:59.999999999"),
            ("2026-11-01T12:00", "2026-11-01T12:00:59.999999999"),
            ("2026-11-01 12:00:30", "2026-11-01T12:00:30"),
            ("2026-11-01T12:00:30+02:00", "2026-11-01T12:00:30+02:00"),
        ] {
            assert_eq!(given.parse(), Ok(time(meant)), "{given}");
        }
        assert_eq!(
            "2026-13-01".parse(),
            Ok(GivenAsOf::Run("2026-13-01".into()))
        );
        for bad in ["", ":", ":3", "a:", "a:x", "a:-1", "a:99999999999"] {
            assert!(bad.parse::<GivenAsOf>().is_err(), "{bad}");
        }
    }
}
