//! Ids as they are given: whole, or the beginning.

use loopstore::context::AsOf;
use loopstore::store::{self, RunRow, SessionRow, StoreRead, StoreResult, lookup};
use loopstore::{Database, LoopId};

/// Returns the session whose id is or begins with `given`.
pub fn session(store: &dyn Database, given: &str) -> StoreResult<SessionRow> {
    store::read(store, |read| lookup::session(read, given))
}

/// Returns the loop whose id is or begins with `given`, if one was given.
pub fn loop_id(
    store: &dyn Database,
    session: &SessionRow,
    given: Option<&str>,
) -> StoreResult<Option<LoopId>> {
    let find = |given| {
        store::read(store, |read| {
            lookup::loop_of(read, session.key, given).map(|row| row.loop_id)
        })
    };
    given.map(find).transpose()
}

/// Returns the run whose id is or begins with `given`, if one was given.
pub fn run_id(
    store: &dyn Database,
    session: &SessionRow,
    given: Option<&str>,
) -> StoreResult<Option<String>> {
    let find = |given| {
        store::read(store, |read| {
            lookup::run(read, session.key, given).map(|run| run.run_id)
        })
    };
    given.map(find).transpose()
}

/// A moment as it is given: `RUN` or `LOOP:TURN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Just after a run.
    Run(String),
    /// Just after a turn.
    Turn(String, u32),
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once(':') {
            _ if text.is_empty() => Err("give a run, or LOOP:TURN".into()),
            None => Ok(Self::Run(text.into())),
            Some(("", _)) => Err("there is no loop before the `:`".into()),
            Some((in_loop, turn)) => match turn.parse() {
                Ok(turn) => Ok(Self::Turn(in_loop.into(), turn)),
                Err(_) => Err(format!("`{turn}` is no turn; give a run, or LOOP:TURN")),
            },
        }
    }
}

/// Returns the moment, and the loop that it is read from.
pub fn moment(
    store: &dyn Database,
    session: &SessionRow,
    given: &Moment,
) -> StoreResult<(AsOf, LoopId)> {
    store::read(store, |read| match given {
        Moment::Run(given) => {
            let run = lookup::run(read, session.key, given)?;
            let in_loop = loop_of(read, &run)?;
            Ok((AsOf::Run(run.run_id), in_loop))
        }
        Moment::Turn(given, turn) => {
            let loop_id = lookup::loop_of(read, session.key, given)?.loop_id;
            let as_of = AsOf::Turn {
                loop_id: loop_id.clone(),
                turn: *turn,
            };
            Ok((as_of, loop_id))
        }
    })
}

fn loop_of(read: &dyn StoreRead, run: &RunRow) -> StoreResult<LoopId> {
    Ok(read.loop_by_key(run.point.in_loop)?.loop_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_split_at_the_last_colon() {
        assert_eq!("r1".parse(), Ok(Moment::Run("r1".into())));
        assert_eq!("a:b:3".parse(), Ok(Moment::Turn("a:b".into(), 3)));
        for bad in ["", ":", ":3", "a:", "a:x", "a:-1", "a:99999999999"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
