//! The turns that a block replaces.

use loopstore::extend::{
    self as store, BlockKey, BlockRow, LoopRow, SessionRow, SessionStore, StoreError, StoreRead,
    StoreResult, Turns, leaf_of, session_of,
};
use loopstore::model::{LoopId, SessionId};

/// The name of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockName {
    /// The generation of the block in its loop.
    Generation(u32),
    /// The run that wrote the block.
    Run(String),
}

/// A section of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockSection {
    /// The first turns, kept verbatim.
    First,
    /// The turns that the summary replaces.
    Compacted,
    /// The recent turns, kept with long tool outputs truncated.
    Recent,
}

impl BlockSection {
    /// Returns the name of the section in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Compacted => "compacted",
            Self::Recent => "recent",
        }
    }
}

/// The turns that a section of a block represents.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReplacedTurns {
    /// The loop of the block.
    pub loop_id: LoopId,
    /// The generation of the block.
    pub generation: u32,
    /// The run that wrote it.
    pub run_id: String,
    /// The section.
    pub section: BlockSection,
    /// Its turns, both ends inclusive.
    pub turns: (u32, u32),
    /// All turns that the block covers, including those of other loops if the block is a rollup.
    pub covers: Vec<CoveredTurns>,
}

/// Turns of a loop, and their disposition in a block.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CoveredTurns {
    /// The loop.
    pub loop_id: LoopId,
    /// Its turns, both ends inclusive.
    pub turns: Option<(u32, u32)>,
    /// `kept`, `truncated`, `summarised`, `dropped` or `rolled_up`.
    pub disposition: &'static str,
}

/// Returns the turns that a block replaces, or the turns of `section`.
///
/// # Errors
/// If the session, loop, run, block or section does not exist, or the run wrote several blocks and `loop_id` is
/// `None`.
///
/// # Examples
/// ```
/// use loopstore_admin::inspect::{BlockName, BlockSection, replaced};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// # let trigger = CompactTrigger::Force;
/// # let request = CompactRequest { trigger, ..CompactRequest::default() };
/// chat.compact(&request)?;
/// let (name, section) = (BlockName::Generation(1), Some(BlockSection::Compacted));
/// let found = replaced(store.database(), chat.id(), None, &name, section)?;
/// assert_eq!(found.turns, (2, 29));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replaced(
    store: &dyn SessionStore,
    session: &SessionId,
    loop_id: Option<&LoopId>,
    name: &BlockName,
    section: Option<BlockSection>,
) -> StoreResult<ReplacedTurns> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let block = match name {
            BlockName::Generation(generation) => {
                numbered(read, &leaf_of(read, &owner, loop_id)?, *generation)?
            }
            BlockName::Run(run) => of_run(read, &owner, loop_id, run)?,
        };
        let (section, turns) = turns_of(&block, section)?;
        Ok(ReplacedTurns {
            loop_id: read.loop_by_key(block.loop_key)?.core.loop_id,
            generation: block.generation,
            run_id: read.run_by_key(block.run)?.run_id,
            section,
            turns: (turns.first, turns.last),
            covers: covers(read, &block)?,
        })
    })
}

fn numbered(read: &dyn StoreRead, row: &LoopRow, generation: u32) -> StoreResult<BlockRow> {
    let blocks = read.blocks_of_loop(row.key)?;
    let last = blocks.last().map_or(0, |block| block.generation);
    let found = blocks.into_iter().find(|b| b.generation == generation);
    found.ok_or_else(|| {
        let loop_id = &row.loop_id;
        StoreError::Invalid(match last {
            0 => format!("loop `{loop_id}` has no block"),
            last => format!("loop `{loop_id}` has no block {generation}; the last one is {last}"),
        })
    })
}

fn of_run(
    read: &dyn StoreRead,
    owner: &SessionRow,
    loop_id: Option<&LoopId>,
    given: &str,
) -> StoreResult<BlockRow> {
    let run = store::lookup::run(read, owner.key, given)?;
    let mut blocks = read.blocks_of_run(run.key)?;
    if loop_id.is_some() {
        let named = leaf_of(read, owner, loop_id)?.key;
        blocks.retain(|block| block.loop_key == named);
    }
    let mut loops = Vec::new();
    for block in &blocks {
        loops.push(format!("`{}`", read.loop_by_key(block.loop_key)?.loop_id));
    }
    let last = blocks.pop();
    match (last, loops.len()) {
        (Some(block), 1) => Ok(block),
        (None, _) => Err(StoreError::Invalid(match loop_id {
            Some(id) => format!("run `{}` wrote no block on loop `{id}`", run.run_id),
            None => format!("run `{}` wrote no block", run.run_id),
        })),
        _ => Err(StoreError::Invalid(format!(
            "run `{}` wrote a block on each of the loops {}; name one of them",
            run.run_id,
            loops.join(", ")
        ))),
    }
}

/// Returns a section with its turns: the named section, else the first one that hides content.
fn turns_of(block: &BlockRow, named: Option<BlockSection>) -> StoreResult<(BlockSection, Turns)> {
    let layout = &block.layout;
    let of = |section| match section {
        BlockSection::First => layout.first,
        BlockSection::Compacted => layout.compacted,
        BlockSection::Recent => layout.recent,
    };
    let order = [
        BlockSection::Compacted,
        BlockSection::Recent,
        BlockSection::First,
    ];
    let mut sections = order
        .into_iter()
        .filter(|section| named.is_none_or(|named| named == *section));
    let found = sections.find_map(|section| of(section).map(|turns| (section, turns)));
    found.ok_or_else(|| {
        let generation = block.generation;
        StoreError::Invalid(match named {
            Some(named) => format!("block {generation} has no {} section", named.as_str()),
            None => format!("block {generation} stands for no turn"),
        })
    })
}

/// Returns the turns that a block covers, including those of the rollups that it extends; the oldest first.
fn covers(read: &dyn StoreRead, block: &BlockRow) -> StoreResult<Vec<CoveredTurns>> {
    let mut rollups = vec![block.key];
    let mut before = block.extends;
    // A rollup is younger than the one that it extends; anything else is damage.
    while let Some(key) = before.filter(|key| rollups.last().is_some_and(|last| key < last)) {
        rollups.push(key);
        before = extended(read, block, key)?;
    }
    let mut covers = Vec::new();
    for key in rollups.into_iter().rev() {
        for row in read.coverage(key)? {
            covers.push(CoveredTurns {
                loop_id: read.loop_by_key(row.loop_key)?.core.loop_id,
                turns: row.turns,
                disposition: row.disposition.as_str(),
            });
        }
    }
    Ok(covers)
}

/// Returns the rollup that the rollup `key` extends. Both are on the chain of `block`.
fn extended(
    read: &dyn StoreRead,
    block: &BlockRow,
    key: BlockKey,
) -> StoreResult<Option<BlockKey>> {
    let mut found = None;
    read.walk(block.loop_key, &mut |row| {
        let blocks = read.blocks_of_loop(row.key)?;
        if let Some(rollup) = blocks.iter().find(|rollup| rollup.key == key) {
            found = rollup.extends;
            return Ok(std::ops::ControlFlow::Break(()));
        }
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(found)
}
