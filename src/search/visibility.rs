//! The visibility of a message in the next model call, and the block that hides it.
//!
//! A message on the chain of its session's current loop is seen from there, any other from its own
//! loop as leaf. The active blocks and the start of a context are read as a build reads them.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use crate::context::{BuildOptions, Chain};
use crate::model::{LoopId, Role};
use crate::overlay::whole_as;
use crate::store::active_blocks::{ChainLink, ChainView};
use crate::store::index::Match;
use crate::store::{
    BlockCore, BlockKey, BlockMessage, CoverageRow, Cut, Disposition, LoopKey, LoopRow, RunKey,
    SessionKey, SessionRow, StoreRead, StoreResult,
};

/// The visibility of a message in a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Visibility {
    /// True if the context does not contain the message.
    pub(super) hidden: bool,
    /// The block that covers it.
    pub(super) by: Option<CoveringBlock>,
}

/// The block that covers a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoveringBlock {
    pub(super) run: String,
    pub(super) loop_id: LoopId,
    pub(super) generation: u32,
    pub(super) disposition: Disposition,
}

/// The rows that a search has read so far.
#[derive(Default)]
pub(super) struct VisibilityCache {
    sessions: HashMap<SessionKey, SessionRow>,
    loops: HashMap<LoopKey, LoopRow>,
    /// By leaf.
    chains: HashMap<LoopKey, ChainVisibility>,
    coverage: HashMap<BlockKey, Vec<CoverageRow>>,
    /// The pinned messages that a rollup quotes.
    quotes: HashMap<BlockKey, HashSet<(LoopKey, u32)>>,
    runs: HashMap<RunKey, String>,
}

/// The loops of a chain that a context from its leaf contains.
struct ChainVisibility {
    /// The loops from the anchor of the active rollup (or the root) on.
    links: HashMap<LoopKey, ChainLink>,
    /// The loops that are in the context.
    shown: HashSet<LoopKey>,
    /// The loops before them, each with the end of the turns that belong to the chain.
    older: HashMap<LoopKey, Cut>,
    /// The rollup that replaces these.
    rollup: Option<BlockCore>,
}

impl VisibilityCache {
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

    /// Returns the visibility of a message.
    pub(super) fn of(&mut self, read: &dyn StoreRead, found: &Match) -> StoreResult<Visibility> {
        let session = self.loop_of(read, found.loop_key)?.session;
        let current = self.session(read, session)?.current_loop;
        if let Some(current) = current
            && let Some(visibility) = self.from(read, current, found)?
        {
            return Ok(visibility);
        }
        Ok(self.from(read, found.loop_key, found)?.unwrap_or_default())
    }

    /// Returns the visibility of a message from `leaf`; `None` if it is not on the chain of `leaf`.
    fn from(
        &mut self,
        read: &dyn StoreRead,
        leaf: LoopKey,
        found: &Match,
    ) -> StoreResult<Option<Visibility>> {
        let chain = entry(&mut self.chains, leaf, || ChainVisibility::load(read, leaf))?;
        let is_note = found.role == Role::Extension || found.turn.is_none();
        if let Some(cut) = chain.older.get(&found.loop_key) {
            if found.turn.is_some_and(|turn| !cut.holds(turn, found.seq)) {
                return Ok(None);
            }
            let Some(rollup) = chain.rollup.clone() else {
                return Ok(Some(Visibility {
                    hidden: true,
                    by: None,
                }));
            };
            let quotes = entry(&mut self.quotes, rollup.key, || {
                let messages = read.block_messages(rollup.key)?;
                Ok(messages.iter().filter_map(BlockMessage::quoted).collect())
            })?;
            let disposition = match quotes.contains(&(found.loop_key, found.seq)) {
                true => Disposition::Kept,
                false => whole_as(rollup.kind),
            };
            return Ok(Some(Visibility {
                hidden: disposition != Disposition::Kept,
                by: Some(self.cover(read, &rollup, disposition)?),
            }));
        }
        let link = chain.links.get(&found.loop_key);
        let Some(link) = link.filter(|link| found.seq < link.end_seq) else {
            return Ok(None);
        };
        let out_of_scope = !chain.shown.contains(&found.loop_key);
        let block = link.block.clone();
        let mut visibility = self.through(read, block, found)?;
        visibility.hidden |= out_of_scope || is_note;
        Ok(Some(visibility))
    }

    /// Returns the visibility of a message in a loop with this active block.
    fn through(
        &mut self,
        read: &dyn StoreRead,
        block: Option<BlockCore>,
        found: &Match,
    ) -> StoreResult<Visibility> {
        let Some(block) = block.filter(|block| found.seq < block.through) else {
            return Ok(Visibility::default());
        };
        let rows = entry(&mut self.coverage, block.key, || read.coverage(block.key))?;
        // An extension between covered messages may be in no row.
        let disposition = covering(rows, found).map(|row| row.disposition);
        let shown = [Some(Disposition::Kept), Some(Disposition::Truncated)];
        let by = disposition.map(|disposition| self.cover(read, &block, disposition));
        Ok(Visibility {
            hidden: !shown.contains(&disposition),
            by: by.transpose()?,
        })
    }

    fn cover(
        &mut self,
        read: &dyn StoreRead,
        block: &BlockCore,
        disposition: Disposition,
    ) -> StoreResult<CoveringBlock> {
        let run = entry(&mut self.runs, block.run, || {
            read.run_by_key(block.run).map(|run| run.run_id)
        })?;
        Ok(CoveringBlock {
            run: run.clone(),
            disposition,
            generation: block.generation,
            loop_id: self.loop_of(read, block.loop_key)?.loop_id.clone(),
        })
    }
}

fn covering<'a>(rows: &'a [CoverageRow], found: &Match) -> Option<&'a CoverageRow> {
    let has = |row: &&CoverageRow| {
        let within = |(first, last): (u32, u32)| (first..=last).contains(&found.seq);
        row.loop_key == found.loop_key && row.seqs.is_some_and(within)
    };
    rows.iter().find(has)
}

impl ChainVisibility {
    fn load(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Self> {
        let view = ChainView::default();
        let session = read.loop_by_key(leaf)?.session;
        let chain = Chain::load_active(read, (session, leaf), view, &BuildOptions::default())?;
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

/// Returns the entry of `key`, which is read the first time.
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
