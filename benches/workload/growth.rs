//! Two sessions of different age that do the same alternately.

use std::path::Path;
use std::time::{Duration, Instant};

use loopstore::*;

use super::store::Recorded;
use super::turns::{IN_A_LOOP, Turns, of_messages};
use super::{Outcome, median};

/// The number of turns of a measured loop.
const NEW_TURNS: usize = 12;

/// The ratios of the times of the older session to those of the younger one.
pub struct Ratios {
    pub append: f64,
    /// The ratio for each byte of the context.
    pub build: f64,
    pub compact: f64,
}

/// A session and its next content.
pub struct Aged<S = SqliteStore> {
    pub recorded: Recorded<S>,
    turns: Turns,
}

impl Aged {
    /// Returns one session of this number of messages, in loops of 96 turns.
    pub fn giant(file: &Path, messages: usize) -> Outcome<Self> {
        let mut aged = Self::young(Recorded::create(file, Durability::Normal)?);
        let (mut left, mut turns) = (messages, Turns::small(2));
        while left > 0 {
            let some = of_messages(&mut turns, left.min(5_000));
            left -= left.min(some.iter().map(Vec::len).sum());
            aged.recorded.fill(some)?;
        }
        aged.recorded.compact(config(), CompactTrigger::Length)?;
        Ok(aged)
    }

    /// Returns a small session in a database with this number of messages in other sessions.
    pub fn among_others(file: &Path, messages: usize) -> Outcome<Self> {
        let mut store =
            SqliteStore::open_with(file, SqliteOptions::new().durability(Durability::Normal))?;
        let sessions = (messages / 10).min(10_000);
        let mut turns = Turns::small(3);
        for at in 0..sessions {
            let mut other = Recorded::within(store, &format!("other-{at}"))?;
            other.fill(of_messages(&mut turns, messages / sessions))?;
            store = other.store;
        }
        Self::within(store)
    }

    /// Returns a session of this number of loops of two turns.
    pub fn of_loops(file: &Path, loops: usize) -> Outcome<Self> {
        let mut aged = Self::young(Recorded::create(file, Durability::Normal)?);
        for _ in 0..loops {
            aged.recorded.start()?;
            let two = [aged.turns.next_turn(), aged.turns.next_turn()];
            aged.recorded.append(two.concat())?;
        }
        aged.recorded.compact(config(), CompactTrigger::Force)?;
        Ok(aged)
    }

    /// Returns a session whose loop was compacted `generations` times.
    pub fn of_generations(file: &Path, generations: usize) -> Outcome<Self> {
        let mut aged = Self::young(Recorded::create(file, Durability::Normal)?);
        let some = (0..IN_A_LOOP).map(|_| aged.turns.next_turn()).collect();
        aged.recorded.fill(some)?;
        for _ in 0..generations {
            aged.recorded.compact(config(), CompactTrigger::Force)?;
        }
        Ok(aged)
    }
}

impl<S: SessionStore> Aged<S> {
    /// Returns a small session in a store.
    pub fn within(store: S) -> Outcome<Self> {
        let mut aged = Self::young(Recorded::within(store, "session")?);
        let some = (0..4 * IN_A_LOOP).map(|_| aged.turns.next_turn());
        let some = some.collect();
        aged.recorded.fill(some)?;
        aged.recorded.compact(config(), CompactTrigger::Length)?;
        Ok(aged)
    }

    fn young(recorded: Recorded<S>) -> Self {
        let turns = Turns::new(2);
        Self { recorded, turns }
    }

    /// Returns the time of a build for each byte, in nanoseconds.
    pub fn build(&self) -> Outcome<f64> {
        let begun = Instant::now();
        let context = self.recorded.build()?;
        Ok(begun.elapsed().as_secs_f64() * 1e9 / context.bytes as f64)
    }

    /// Adds a loop turn by turn, and compacts.
    fn go_on(&mut self, appends: &mut Vec<Duration>) -> Outcome<Duration> {
        self.recorded.start()?;
        for _ in 0..NEW_TURNS {
            let turn = self.turns.next_turn();
            appends.push(self.recorded.append(turn)?);
        }
        let begun = Instant::now();
        self.recorded.compact(config(), CompactTrigger::Length)?;
        Ok(begun.elapsed())
    }
}

/// Returns a configuration that keeps the last turns and a few loops, whatever there is before.
fn config() -> CompactionConfig {
    CompactionConfig {
        keep_recent: KeepRecent::Turns(10),
        ..CompactionConfig::default()
    }
}

/// Runs the same operations on both sessions repeatedly.
pub fn compare<S: SessionStore>(
    young: &mut Aged<S>,
    old: &mut Aged<S>,
    rounds: usize,
) -> Outcome<Ratios> {
    let mut appends = [Vec::new(), Vec::new()];
    let mut compactions = [Vec::new(), Vec::new()];
    let mut builds = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (at, aged) in [&mut *young, &mut *old].into_iter().enumerate() {
            compactions[at].push(aged.go_on(&mut appends[at])?);
        }
        compare_builds([young, old], &mut builds)?;
    }
    let ratio =
        |[young, old]: [Vec<Duration>; 2]| median(old.into_iter()) / median(young.into_iter());
    Ok(Ratios {
        append: ratio(appends),
        compact: ratio(compactions),
        build: middle(&mut builds[1]) / middle(&mut builds[0]),
    })
}

/// Returns the ratio of the build times of both sessions, per byte.
pub fn builds(young: &Aged, old: &Aged, rounds: usize) -> Outcome<f64> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        compare_builds([young, old], &mut times)?;
    }
    Ok(middle(&mut times[1]) / middle(&mut times[0]))
}

fn compare_builds<S: SessionStore>(of: [&Aged<S>; 2], times: &mut [Vec<f64>; 2]) -> Outcome<()> {
    for _ in 0..8 {
        for (times, aged) in times.iter_mut().zip(of) {
            times.push(aged.build()?);
        }
    }
    Ok(())
}

fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
