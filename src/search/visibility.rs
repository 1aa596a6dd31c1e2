//! What the next model call sees of a message, and what hides it.
//!
//! A message on the chain of its session's current loop is seen from there, any other from its own
//! loop as leaf. Which blocks are active, and where a context begins, is read as a build reads it.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use crate::context::{BuildOptions, Chain, Purpose, settings};
use crate::model::{LoopId, Role};
use crate::store::active_blocks::{ChainLink, View};
use crate::store::{
    BlockCore, BlockKey, BlockMessage, CoverageRow, Cut, Disposition, LoopKey, LoopRow, RunKey,
    SessionKey, SessionRow, StoreRead, StoreResult,
};

/// What became of a message in a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// Whether the context does not hold it.
    pub(super) hidden: bool,
    /// The block that covers it.
    pub(super) by: Option<Cover>,
}

/// The block that covers a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cover {
    pub(super) run: String,
    pub(super) loop_id: LoopId,
    pub(super) generation: u32,
    pub(super) disposition: Disposition,
}

/// What one search looked up already.
#[derive(Default)]
pub(super) struct Sights {
    sessions: HashMap<SessionKey, SessionRow>,
    loops: HashMap<LoopKey, LoopRow>,
    /// By leaf.
    outlooks: HashMap<LoopKey, Outlook>,
    coverage: HashMap<BlockKey, Vec<CoverageRow>>,
    /// The pinned messages that a rollup quotes.
    quotes: HashMap<BlockKey, HashSet<(LoopKey, u32)>>,
    runs: HashMap<RunKey, String>,
}

/// A chain as it is seen from its leaf.
struct Outlook {
    /// The loops from the anchor of the active rollup (or the root) on.
    links: HashMap<LoopKey, ChainLink>,
    /// Those of them that are in the context.
    shown: HashSet<LoopKey>,
    /// The loops before them: how many of their turns belong to the chain.
    older: HashMap<LoopKey, Cut>,
    /// The rollup that stands for these.
    rollup: Option<BlockCore>,
}

/// A message, as far as it matters where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageSpot {
    pub(super) loop_key: LoopKey,
    pub(super) seq: u32,
    pub(super) turn: Option<u32>,
    pub(super) role: Role,
}

impl Sights {
    pub(super) fn session(
        &mut self,
        read: &dyn StoreRead,
        key: SessionKey,
    ) -> StoreResult<&SessionRow> {
        entry(&mut self.sessions, key, || read.session_by_key(key)).map(|row| &*row)
    }

    pub(super) fn loop_of(&mut self, read: &dyn StoreRead, key: LoopKey) -> StoreResult<&LoopRow> {
        entry(&mut self.loops, key, || read.loop_by_key(key)).map(|row| &*row)
    }

    /// Returns what became of a message.
    pub(super) fn of(&mut self, read: &dyn StoreRead, spot: MessageSpot) -> StoreResult<Sight> {
        let session = self.loop_of(read, spot.loop_key)?.session;
        let current = self.session(read, session)?.current_loop;
        if let Some(current) = current
            && let Some(sight) = self.from(read, current, spot)?
        {
            return Ok(sight);
        }
        Ok(self.from(read, spot.loop_key, spot)?.unwrap_or_default())
    }

    /// Returns what became of a message as seen from `leaf`, `None` if it is not on its chain.
    fn from(
        &mut self,
        read: &dyn StoreRead,
        leaf: LoopKey,
        spot: MessageSpot,
    ) -> StoreResult<Option<Sight>> {
        let outlook = entry(&mut self.outlooks, leaf, || Outlook::load(read, leaf))?;
        let is_note = spot.role == Role::Extension || spot.turn.is_none();
        if let Some(cut) = outlook.older.get(&spot.loop_key) {
            if spot.turn.is_some_and(|turn| !cut.holds(turn, spot.seq)) {
                return Ok(None);
            }
            let Some(rollup) = outlook.rollup.clone() else {
                return Ok(Some(Sight {
                    hidden: true,
                    by: None,
                }));
            };
            let quotes = entry(&mut self.quotes, rollup.key, || {
                let messages = read.block_messages(rollup.key)?;
                Ok(messages.iter().filter_map(BlockMessage::quoted).collect())
            })?;
            let disposition = match quotes.contains(&(spot.loop_key, spot.seq)) {
                true => Disposition::Kept,
                false => Disposition::RolledUp,
            };
            return Ok(Some(Sight {
                hidden: disposition != Disposition::Kept,
                by: Some(self.cover(read, &rollup, disposition)?),
            }));
        }
        let link = outlook.links.get(&spot.loop_key);
        let Some(link) = link.filter(|link| spot.seq < link.end_seq) else {
            return Ok(None);
        };
        let out_of_scope = !outlook.shown.contains(&spot.loop_key);
        let block = link.block.clone();
        let mut sight = self.through(read, block, spot)?;
        sight.hidden |= out_of_scope || is_note;
        Ok(Some(sight))
    }

    /// Returns what became of a message in a loop that is read through `block`.
    fn through(
        &mut self,
        read: &dyn StoreRead,
        block: Option<BlockCore>,
        spot: MessageSpot,
    ) -> StoreResult<Sight> {
        let Some(block) = block.filter(|block| spot.seq < block.through) else {
            return Ok(Sight::default());
        };
        let rows = entry(&mut self.coverage, block.key, || read.coverage(block.key))?;
        // A note between what is covered may be in no row.
        let disposition = covering(rows, spot).map(|row| row.disposition);
        let shown = [Some(Disposition::Kept), Some(Disposition::Truncated)];
        let by = disposition.map(|disposition| self.cover(read, &block, disposition));
        Ok(Sight {
            hidden: !shown.contains(&disposition),
            by: by.transpose()?,
        })
    }

    fn cover(
        &mut self,
        read: &dyn StoreRead,
        block: &BlockCore,
        disposition: Disposition,
    ) -> StoreResult<Cover> {
        let run = entry(&mut self.runs, block.run, || {
            read.run_by_key(block.run).map(|run| run.run_id)
        })?;
        Ok(Cover {
            run: run.clone(),
            disposition,
            generation: block.generation,
            loop_id: self.loop_of(read, block.loop_key)?.loop_id.clone(),
        })
    }
}

fn covering(rows: &[CoverageRow], spot: MessageSpot) -> Option<&CoverageRow> {
    let has = |row: &&CoverageRow| {
        let within = |(first, last): (u32, u32)| (first..=last).contains(&spot.seq);
        row.loop_key == spot.loop_key && row.seqs.is_some_and(within)
    };
    rows.iter().find(has)
}

impl Outlook {
    fn load(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Self> {
        let view = View::default();
        let session = read.loop_by_key(leaf)?.session;
        let plan = settings(read, session, leaf, view, &BuildOptions::default())?;
        let build = Purpose::Build;
        let chain = Chain::load(read, leaf, view, &plan.config, &plan.window, build)?;
        let rollup = chain.links.first().filter(|link| link.is_anchor());
        let rollup = rollup.and_then(|link| link.block.clone());
        let shown = chain.links.iter().skip(chain.start);
        let shown = shown.map(|link| link.row.key).collect();
        let links: HashMap<_, _> = chain.links.into_iter().map(|l| (l.row.key, l)).collect();
        let (mut older, mut cut) = (HashMap::new(), Cut::NONE);
        read.walk(leaf, &mut |row| {
            if !links.contains_key(&row.key) {
                older.insert(row.key, cut);
            }
            cut = row.parent_cut();
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self {
            links,
            shown,
            older,
            rollup,
        })
    }
}

/// Returns what is known of `key`, which is looked up the first time.
fn entry<K: std::hash::Hash + Eq, T>(
    known: &mut HashMap<K, T>,
    key: K,
    look_up: impl FnOnce() -> StoreResult<T>,
) -> StoreResult<&mut T> {
    use std::collections::hash_map::Entry;
    match known.entry(key) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => Ok(entry.insert(look_up()?)),
    }
}
