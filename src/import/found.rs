//! Blocks from layouts: what they cover, what they cost, and the run that writes them.
//!
//! A compaction that another tool made is told as a layout and replacement messages; the rest
//! (coverage, sizes, which context it changed) follows from what is stored.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use crate::model::{AgentMessage, Role};
use crate::store::active_blocks::{self, ActiveBlocks, ChainLink, View};
use crate::store::append::size_through;
use crate::store::{
    BlockCore, BlockKey, BlockKind, BlockMessage, BlockRow, CoverageRow, Disposition, Layout,
    LoopKey, NewBlock, RunKey, RunRow, Section, Size, StoreError, StoreRead, StoreResult,
    StoreWrite, Turns, codec,
};
use crate::tokens::TokenCounter;

/// A chain as a compaction meets it: every loop from the root, with what is in force.
pub(crate) struct Scene {
    /// Root first.
    pub(crate) links: Vec<ChainLink>,
    /// The loop that holds the rollup in force.
    pub(crate) anchor: Option<usize>,
}

impl Scene {
    /// Reads the chain of `leaf`.
    pub(crate) fn of(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Self> {
        let raw = View {
            raw: true,
            ..View::default()
        };
        let mut links = active_blocks::chain(read, leaf, raw)?;
        let forced = active_blocks::chain(read, leaf, View::default())?;
        let first = links
            .len()
            .checked_sub(forced.len())
            .filter(|_| !links.is_empty())
            .ok_or_else(|| StoreError::Damaged("a chain without loops".into()))?;
        let anchor = forced
            .first()
            .is_some_and(ChainLink::is_anchor)
            .then_some(first);
        for (link, forced) in links[first..].iter_mut().zip(forced) {
            link.block = forced.block;
        }
        Ok(Self { links, anchor })
    }

    /// Returns the place of the leaf.
    pub(crate) fn leaf(&self) -> usize {
        self.links.len() - 1
    }

    /// Returns how many turns of a loop a block may cover: those in flight stay out.
    pub(crate) fn end(&self, at: usize) -> u32 {
        if at == self.leaf() {
            self.links[at].complete
        } else {
            self.links[at].turns
        }
    }

    /// Returns the place of a loop.
    pub(crate) fn place(&self, key: LoopKey) -> Option<usize> {
        self.links.iter().position(|link| link.row.key == key)
    }

    /// Returns the size of the context if `new` blocks were in force too.
    pub(crate) fn size(&self, read: &dyn StoreRead, new: &[NewBlock]) -> StoreResult<Size> {
        let mut size = Size::default();
        for link in self.links.iter().rev() {
            let block = new
                .iter()
                .map(|block| &block.row.core)
                .find(|row| row.loop_key == link.row.key)
                .or(link.block.as_ref());
            size.add(shown_size(read, link, block)?);
            if block.is_some_and(|block| block.kind == BlockKind::Rollup) {
                break;
            }
        }
        Ok(size)
    }
}

/// Returns what a loop shows with this block.
fn shown_size(
    read: &dyn StoreRead,
    link: &ChainLink,
    block: Option<&BlockCore>,
) -> StoreResult<Size> {
    let Some(block) = block else {
        return size_through(read, link.row.key, link.turns);
    };
    let mut size = block.size;
    read.sizes(link.row.key, block.through..link.end_seq, &mut |message| {
        if message.role != Role::Extension {
            size.add(message.size);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(size)
}

/// A message that stands for an original of a kept turn.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// The original's sequence.
    pub(crate) seq: u32,
    /// What is shown; `None`: nothing.
    pub(crate) message: Option<AgentMessage>,
}

/// A block as it is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: BlockKind,
    pub(crate) extends: Option<BlockKey>,
    pub(crate) layout: Layout,
    /// What stands for `layout.compacted`.
    pub(crate) compacted: Vec<AgentMessage>,
    /// What differs in `layout.recent`, in order.
    pub(crate) recent: Vec<Replacement>,
    /// Loops before that are covered whole.
    pub(crate) rolled_up: Vec<CoverageRow>,
    /// Tokens of the loops before, for a rollup.
    pub(crate) tokens_before: u64,
    pub(crate) strategy: String,
    /// ISO-8601 text.
    pub(crate) created_at: String,
    /// A foreign block without its messages.
    pub(crate) extra: Option<String>,
}

impl Wanted {
    /// A block that shows its loop as it is.
    pub(crate) fn plain(kind: BlockKind, turns: u32, strategy: &str, created_at: &str) -> Self {
        Self {
            kind,
            extends: None,
            layout: Layout {
                first: Turns::of(0..turns),
                ..Layout::default()
            },
            compacted: Vec::new(),
            recent: Vec::new(),
            rolled_up: Vec::new(),
            tokens_before: 0,
            strategy: strategy.to_owned(),
            created_at: created_at.to_owned(),
            extra: None,
        }
    }

    /// Works out coverage and sizes over what is stored of the loop. The run is not set yet.
    pub(crate) fn build(
        self,
        read: &dyn StoreRead,
        link: &ChainLink,
        counter: &dyn TokenCounter,
    ) -> StoreResult<NewBlock> {
        let key = link.row.key;
        let covered = size_through(read, key, self.layout.end())?;
        let mut coverage = self.rolled_up.clone();
        let mut size = Size::default();
        let (mut messages, mut blobs) = (Vec::new(), Vec::new());
        if let Some(turns) = self.layout.first {
            coverage.push(whole(read, link, turns, Disposition::Kept)?);
            size.add(range_size(read, key, turns)?);
        }
        if let Some(turns) = self.layout.compacted {
            let gone = self.compacted.is_empty();
            let what = [Disposition::Summarised, Disposition::Dropped][usize::from(gone)];
            coverage.push(whole(read, link, turns, what)?);
        }
        if let Some(turns) = self.layout.recent {
            let (rows, raw) = recent_coverage(read, link, turns, &self.recent)?;
            coverage.extend(rows);
            size.add(raw);
        }
        let compacted = self
            .compacted
            .into_iter()
            .map(|message| (None, Some(message)));
        let recent = self.recent.into_iter().map(|r| (Some(r.seq), r.message));
        for (replaces, message) in compacted.chain(recent) {
            let body = match message {
                Some(message) => {
                    let (body, shown) = codec::encode(message, counter)?;
                    blobs.extend(shown);
                    Some(body)
                }
                None => None,
            };
            size.add(body.as_ref().map_or(Size::default(), body_size));
            let section = [Section::Compacted, Section::Recent][usize::from(replaces.is_some())];
            messages.push(BlockMessage {
                section,
                replaces,
                body,
            });
        }
        let through = through(read, link, self.layout.end())?;
        close_gaps(&mut coverage, key, through);
        let row = BlockRow {
            core: BlockCore {
                key: BlockKey(0),
                loop_key: key,
                generation: link.row.totals.generation + 1,
                run: RunKey(0),
                kind: self.kind,
                extends: self.extends,
                through,
                layout: self.layout,
                size,
            },
            tokens_covered: covered.tokens + self.tokens_before,
            strategy: self.strategy,
            shaping: String::new(),
            created_at: self.created_at,
            extra: self.extra,
        };
        Ok(NewBlock {
            row,
            messages,
            coverage,
            blobs,
        })
    }
}

fn body_size(body: &crate::store::StoredMessage) -> Size {
    if body.role == Role::Extension {
        return Size::default();
    }
    Size {
        tokens: body.tokens,
        bytes: body.bytes,
        messages: 1,
    }
}

/// Returns the sequence with which a turn begins; after the last turn, the end of the link.
pub(crate) fn first_seq(read: &dyn StoreRead, link: &ChainLink, turn: u32) -> StoreResult<u32> {
    if turn >= link.turns {
        return Ok(link.end_seq);
    }
    let row = read.turn(link.row.key, turn)?;
    row.map(|row| row.first_seq)
        .ok_or_else(|| StoreError::Damaged(format!("turn {turn} is missing")))
}

/// Returns the sequence after the last message of the first `turns` turns, extensions aside.
fn through(read: &dyn StoreRead, link: &ChainLink, turns: u32) -> StoreResult<u32> {
    let Some(last) = turns.checked_sub(1) else {
        return Ok(0);
    };
    let seqs = seqs(read, link, Turns { first: last, last })?;
    let mut end = seqs.start;
    read.sizes(link.row.key, seqs, &mut |message| {
        if message.role != Role::Extension {
            end = message.seq + 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(end)
}

/// Lets the ranges of a loop follow each other: extensions between two belong to the first.
fn close_gaps(coverage: &mut [CoverageRow], loop_key: LoopKey, through: u32) {
    let mut end = through;
    for row in coverage.iter_mut().rev() {
        if row.loop_key == loop_key
            && let Some(seqs) = &mut row.seqs
        {
            seqs.1 = end.saturating_sub(1);
            end = seqs.0;
        }
    }
}

/// Returns the sequences of some turns. Extensions after a turn are within it.
pub(crate) fn seqs(
    read: &dyn StoreRead,
    link: &ChainLink,
    turns: Turns,
) -> StoreResult<Range<u32>> {
    Ok(first_seq(read, link, turns.first)?..first_seq(read, link, turns.end())?)
}

/// Returns the size of some turns as they were appended.
fn range_size(read: &dyn StoreRead, key: LoopKey, turns: Turns) -> StoreResult<Size> {
    let before = size_through(read, key, turns.first)?;
    Ok(size_through(read, key, turns.end())?.without(before))
}

fn whole(
    read: &dyn StoreRead,
    link: &ChainLink,
    turns: Turns,
    disposition: Disposition,
) -> StoreResult<CoverageRow> {
    let seqs = seqs(read, link, turns)?;
    Ok(CoverageRow {
        loop_key: link.row.key,
        seqs: seqs.end.checked_sub(1).map(|last| (seqs.start, last)),
        turns: Some((turns.first, turns.last)),
        disposition,
    })
}

/// Returns the coverage of a loop that went whole, up to its cut, into a summary elsewhere.
pub(crate) fn rolled_up(link: &ChainLink) -> CoverageRow {
    CoverageRow {
        loop_key: link.row.key,
        seqs: link.end_seq.checked_sub(1).map(|last| (0, last)),
        turns: link.turns.checked_sub(1).map(|last| (0, last)),
        disposition: Disposition::RolledUp,
    }
}

/// Returns the coverage of turns of which some messages are replaced, and the size of the others.
fn recent_coverage(
    read: &dyn StoreRead,
    link: &ChainLink,
    turns: Turns,
    replaced: &[Replacement],
) -> StoreResult<(Vec<CoverageRow>, Size)> {
    if replaced.is_empty() {
        let row = whole(read, link, turns, Disposition::Kept)?;
        return Ok((vec![row], range_size(read, link.row.key, turns)?));
    }
    let shown: BTreeMap<u32, bool> = replaced
        .iter()
        .map(|r| (r.seq, r.message.is_some()))
        .collect();
    let (mut rows, mut size) = (Vec::<CoverageRow>::new(), Size::default());
    read.sizes(link.row.key, seqs(read, link, turns)?, &mut |message| {
        let (true, Some(turn)) = (message.role != Role::Extension, message.turn) else {
            return Ok(ControlFlow::Continue(()));
        };
        let disposition = match shown.get(&message.seq) {
            None => Disposition::Kept,
            Some(true) => Disposition::Truncated,
            Some(false) => Disposition::Dropped,
        };
        if disposition == Disposition::Kept {
            size.add(message.size);
        }
        extend(&mut rows, link.row.key, message.seq, turn, disposition);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((rows, size))
}

/// Adds one message to the last range, or begins another.
fn extend(
    rows: &mut Vec<CoverageRow>,
    loop_key: LoopKey,
    seq: u32,
    turn: u32,
    disposition: Disposition,
) {
    if let Some(last) = rows.last_mut()
        && last.disposition == disposition
        && let (Some(seqs), Some(turns)) = (&mut last.seqs, &mut last.turns)
    {
        seqs.1 = seq;
        turns.1 = turn;
        return;
    }
    rows.push(CoverageRow {
        loop_key,
        seqs: Some((seq, seq)),
        turns: Some((turn, turn)),
        disposition,
    });
}

/// Returns which round of compaction of a chain comes next, from 1.
pub(crate) fn next_round(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<u32> {
    let mut round = 1;
    ActiveBlocks::new(read, leaf, View::default()).runs(&mut |_, run| {
        round = run.round.saturating_add(1);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(round)
}

/// Writes a run and its blocks at the session's next tick.
///
/// # Errors
/// What the store returns.
pub(crate) fn commit(
    write: &mut dyn StoreWrite,
    mut run: RunRow,
    blocks: Vec<NewBlock>,
) -> StoreResult<RunKey> {
    let mut session = write.session_by_key(run.session)?;
    session.tick += 1;
    run.tick = session.tick;
    write.update_session(&session)?;
    let key = write.insert_run(&run)?;
    for mut block in blocks {
        block.row.run = key;
        let mut row = write.loop_by_key(block.row.loop_key)?;
        row.totals.generation = block.row.generation;
        row.totals.sealed_seq = row.totals.sealed_seq.max(block.row.through);
        write.update_loop(&row)?;
        write.insert_block(&block)?;
    }
    Ok(key)
}
