//! The sizes of a chain: the size that each loop shows, and with `Skip` the first loop of the context.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::ControlFlow;

use super::BuildOptions;
use super::recent_window::WindowReach;
use super::settings::settings_on;
use crate::compaction::plan::{
    ChainTurn, ForeignAnswer, LoopFacts, fit, is_hidden, reached, window,
};
use crate::compaction::{CompactionConfig, CompactionScope, ContextConfig, OlderLoops};
use crate::model::{Message, Turns};
use crate::overlay::turn_seqs;
use crate::store::active_blocks::{ActiveBlocks, ChainLink, ChainView, depth_of};
use crate::store::append::{recorded_size, size_through};
use crate::store::{
    self, BlockCore, BlockKey, CallSite, LiveEdits, LoopKey, MessageEdit, NewBlock, Section,
    SessionKey, Size, StoreError, StoreRead, StoreResult,
};

/// The loops of a chain from the first that may be in the context to the leaf.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Root first.
    pub links: Vec<ChainLink>,
    /// The facts about each loop for the plan; empty for a build that needs none.
    pub facts: Vec<LoopFacts>,
    /// The size that each loop shows.
    pub shown: Vec<Size>,
    /// The number of turns in the recent window, if the purpose needs it.
    pub recent: u32,
    /// The first loop in the context.
    pub start: usize,
    /// The treatment of the loops before the scope.
    pub older_loops: OlderLoops,
}

impl Chain {
    /// Reads a chain. With `Skip` the walk ends as soon as no earlier loop can be in the context or in
    /// the plan; otherwise an active rollup ends it.
    pub fn load(
        read: &dyn StoreRead,
        leaf: LoopKey,
        view: ChainView,
        config: &CompactionConfig,
        limits: &ContextConfig,
        purpose: Purpose,
    ) -> StoreResult<Self> {
        Self::load_with(read, leaf, view, config, limits, purpose, &[])
    }

    /// Reads a chain with these blocks active.
    pub fn load_with(
        read: &dyn StoreRead,
        leaf: LoopKey,
        mut view: ChainView,
        config: &CompactionConfig,
        limits: &ContextConfig,
        purpose: Purpose,
        blocks: &[&BlockCore],
    ) -> StoreResult<Self> {
        view.without_rollups |= config.older_loops == OlderLoops::Skip;
        let walk = ActiveBlocks::new(read, leaf, view).with_blocks(blocks.iter().copied());
        Self::load_along(read, walk, config, limits, purpose)
    }

    /// Reads the chain of a walk.
    pub fn load_along(
        read: &dyn StoreRead,
        mut walk: ActiveBlocks<'_>,
        config: &CompactionConfig,
        limits: &ContextConfig,
        purpose: Purpose,
    ) -> StoreResult<Self> {
        let mut load = ChainLoader::new(read, walk.view(), purpose);
        walk.run(&mut |link| load.visit(link, config, limits))?;
        load.finish(walk.leaf(), config, limits)
    }

    /// Reads a chain as a build does, with the options and the configuration of the newest live run, in one walk.
    pub fn load_active(
        read: &dyn StoreRead,
        (session, leaf): (SessionKey, LoopKey),
        view: ChainView,
        options: &BuildOptions,
    ) -> StoreResult<Self> {
        let walk = ActiveBlocks::new(read, leaf, view);
        Self::load_active_along(read, session, walk, options)
    }

    /// Reads the chain of a walk as [`load_active`](Self::load_active) does.
    pub fn load_active_along(
        read: &dyn StoreRead,
        session: SessionKey,
        mut walk: ActiveBlocks<'_>,
        options: &BuildOptions,
    ) -> StoreResult<Self> {
        let leaf = walk.leaf();
        let mut load = ChainLoader::new(read, walk.view(), Purpose::Build);
        let settings = OnceCell::new();
        let mut begin = |walk: &mut ActiveBlocks<'_>| {
            let found = settings_on(walk, read, session, options)?;
            if found.0.older_loops == OlderLoops::Skip {
                walk.ignore_rollups();
            }
            settings.get_or_init(|| found);
            Ok(())
        };
        walk.run_after(&mut begin, &mut |link| {
            let (config, window) = settings.get().ok_or_else(|| missing_leaf(leaf))?;
            load.visit(link, config, window)
        })?;
        let (config, window) = settings.into_inner().ok_or_else(|| missing_leaf(leaf))?;
        load.finish(leaf, &config, &window)
    }

    /// Returns the last loop.
    ///
    /// # Errors
    /// If the chain has no loops, which a loaded chain always has.
    pub fn leaf(&self) -> StoreResult<&ChainLink> {
        let none = || StoreError::Damaged("a chain without loops".into());
        self.links.last().ok_or_else(none)
    }

    /// Returns the size of the context.
    pub fn size(&self) -> Size {
        let mut size = Size::default();
        for shown in self.shown.iter().skip(self.start) {
            size.add(*shown);
        }
        size
    }

    /// Returns the chain with the hidden turns of the loops in `other`, since a loop without a new block stays
    /// unchanged.
    pub fn hiding_as(mut self, other: &Self) -> Self {
        for (link, facts) in self.links.iter().zip(&mut self.facts) {
            let place = depth_of(&other.links, link.row.key);
            facts.hidden = place.and_then(|depth| other.facts[depth].hidden);
        }
        self
    }

    /// Returns the first loop in the context. With `Skip`, a loop that shows the call of a result
    /// in the context is in scope, and the loops between too.
    fn first_in_context(
        &self,
        config: &CompactionConfig,
        limits: &ContextConfig,
    ) -> StoreResult<usize> {
        if config.older_loops == OlderLoops::Rollup {
            return Ok(0);
        }
        let mut from = reached(&window(&self.facts, config, self.recent));
        loop {
            let first = self.scope_from(from, config, limits)?;
            match self.call_left_behind(first) {
                Some(depth) => from = depth,
                None => return Ok(first),
            }
        }
    }

    fn scope_from(
        &self,
        from: usize,
        config: &CompactionConfig,
        limits: &ContextConfig,
    ) -> StoreResult<usize> {
        let leaf = self.links.len() - 1;
        if let CompactionScope::FixedCount(count) = config.compaction_scope {
            return Ok(from.min(leaf.saturating_sub(count)));
        }
        let spent = self.shown.iter().skip(from).map(|size| size.tokens).sum();
        fit(limits.budget().tokens, spent, from, |depth| {
            Ok(self.shown[depth].tokens)
        })
    }

    fn call_left_behind(&self, first: usize) -> Option<usize> {
        let shows = |depth: usize, turn: u32| !is_hidden(&self.facts[depth], turn);
        for (depth, facts) in self.facts.iter().enumerate().skip(first) {
            for ForeignAnswer { turn, call } in &facts.answers {
                let parted = call.depth < first;
                if parted && shows(depth, *turn) && shows(call.depth, call.turn) {
                    return Some(call.depth);
                }
            }
        }
        None
    }
}

/// Returns the size of the context of a leaf, with every loop of its chain, with these blocks active.
pub fn size_with(
    read: &dyn StoreRead,
    leaf: LoopKey,
    view: ChainView,
    blocks: &[NewBlock],
) -> StoreResult<Size> {
    let config = CompactionConfig {
        older_loops: OlderLoops::Rollup,
        ..CompactionConfig::default()
    };
    let cores: Vec<&BlockCore> = blocks.iter().map(|block| &block.row.core).collect();
    let (window, purpose) = (ContextConfig::default(), Purpose::Build);
    Ok(Chain::load_with(read, leaf, view, &config, &window, purpose, &cores)?.size())
}

/// The purpose that a chain is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To read the context.
    Build,
    /// To plan a compaction, after which loops cost less and more of them may fit a budget.
    Plan,
}

/// The extent of a chain that is needed: with `Skip` no further than scope and window may reach.
struct ChainExtent {
    all: bool,
    earlier: usize,
    reach: WindowReach,
    left: Option<u64>,
}

impl ChainExtent {
    fn new(config: &CompactionConfig, limits: &ContextConfig, purpose: Purpose) -> Self {
        let (earlier, left) = match config.compaction_scope {
            CompactionScope::FixedCount(count) => (count, None),
            CompactionScope::TokenBudget => (0, Some(limits.budget().tokens)),
        };
        let shrinks = purpose == Purpose::Plan && left.is_some();
        let all = config.older_loops == OlderLoops::Rollup || shrinks;
        Self {
            all,
            earlier,
            reach: WindowReach::new(config),
            left,
        }
    }

    fn more_after(
        &mut self,
        read: &dyn StoreRead,
        link: &ChainLink,
        size: Size,
    ) -> StoreResult<bool> {
        let more = self.all || self.earlier > 0;
        self.earlier = self.earlier.saturating_sub(1);
        self.reach.add_loop(read, link)?;
        self.left = self.left.and_then(|left| left.checked_sub(size.tokens));
        Ok(more || self.reach.wants_more() || self.left.is_some())
    }
}

/// A chain while it is read.
struct ChainLoader<'a> {
    read: &'a dyn StoreRead,
    view: ChainView,
    purpose: Purpose,
    need: Option<ChainExtent>,
    /// Leaf first.
    links: Vec<ChainLink>,
    shown: Vec<Size>,
    /// Per link, if facts are wanted: the calls of other turns that its turns answer.
    sites: Vec<Vec<(u32, Vec<CallSite>)>>,
    /// The oldest loop that contains one of these calls.
    oldest_call: Option<LoopKey>,
}

impl<'a> ChainLoader<'a> {
    fn new(read: &'a dyn StoreRead, view: ChainView, purpose: Purpose) -> Self {
        Self {
            read,
            view,
            purpose,
            need: None,
            links: Vec::new(),
            shown: Vec::new(),
            sites: Vec::new(),
            oldest_call: None,
        }
    }

    /// Adds the next loop; breaks if no further loop is needed.
    fn visit(
        &mut self,
        link: ChainLink,
        config: &CompactionConfig,
        limits: &ContextConfig,
    ) -> StoreResult<ControlFlow<()>> {
        let size = shown_of(self.read, &link, self.view)?;
        self.shown.push(size);
        // A build with every loop needs only sizes.
        if self.purpose == Purpose::Build && config.older_loops != OlderLoops::Skip {
            self.links.push(link);
            return Ok(ControlFlow::Continue(()));
        }
        let purpose = self.purpose;
        let need = self
            .need
            .get_or_insert_with(|| ChainExtent::new(config, limits, purpose));
        let more = need.more_after(self.read, &link, size)?;
        self.add(link)?;
        Ok(if more || self.awaits_a_call() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    }

    /// Adds a loop with the calls of other loops that its turns answer.
    fn add(&mut self, link: ChainLink) -> StoreResult<()> {
        let mut answers = self.read.answers(link.row.key, 0..link.turns)?;
        if let Some((turn, _)) = answers.last()
            && link.end_of(turn.saturating_add(1)).is_some()
            && !answers_others(self.read, &link)?
        {
            answers.pop();
        }
        let calls = answers.iter().flat_map(|(_, sites)| sites);
        let calls = calls.map(|site| site.loop_key);
        self.oldest_call = calls.chain(self.oldest_call).min();
        self.sites.push(answers);
        self.links.push(link);
        Ok(())
    }

    /// True if a loop that is not loaded yet contains a call that a loaded one answers.
    fn awaits_a_call(&self) -> bool {
        let last = self.links.last().map(|link| link.row.key);
        self.oldest_call.is_some() && self.oldest_call < last
    }

    fn finish(
        mut self,
        leaf: LoopKey,
        config: &CompactionConfig,
        limits: &ContextConfig,
    ) -> StoreResult<Chain> {
        if self.links.is_empty() {
            return Err(missing_leaf(leaf));
        }
        self.shown.reverse();
        self.links.reverse();
        self.sites.reverse();
        let recent = match &self.need {
            Some(need) => need.reach.turns(),
            None => WindowReach::new(config).turns(),
        };
        let mut chain = Chain {
            facts: self.facts(),
            links: self.links,
            shown: self.shown,
            recent,
            start: 0,
            older_loops: config.older_loops,
        };
        chain.start = chain.first_in_context(config, limits)?;
        Ok(chain)
    }

    /// Returns the facts about each loop for the plan, root first.
    fn facts(&self) -> Vec<LoopFacts> {
        let leaf = self.links.len().saturating_sub(1);
        let mut all = Vec::with_capacity(self.sites.len());
        for (depth, (link, sites)) in self.links.iter().zip(&self.sites).enumerate() {
            let (mut answers, mut orphans) = (Vec::new(), Vec::new());
            for (turn, sites) in sites {
                for site in sites {
                    match depth_of(&self.links, site.loop_key) {
                        None => orphans.push(*turn),
                        Some(depth) => {
                            let call = ChainTurn {
                                depth,
                                turn: site.turn,
                            };
                            answers.push(ForeignAnswer { turn: *turn, call });
                        }
                    }
                }
            }
            let turns = if depth == leaf {
                link.complete
            } else {
                link.turns
            };
            let hidden = link.block.as_ref().and_then(|block| block.layout.compacted);
            let rolled_up = match link.is_anchor() {
                // Without turns of its own the text is in the first one.
                true => hidden.map_or(1, Turns::end).min(turns),
                false => 0,
            };
            all.push(LoopFacts {
                turns,
                rolled_up,
                hidden,
                answers,
                orphans,
            });
        }
        all
    }
}

/// Returns the error of a chain without its leaf.
fn missing_leaf(leaf: LoopKey) -> StoreError {
    StoreError::Damaged(format!("loop {} is missing", leaf.0))
}

/// True if the part of a turn before the chain's cut contains a result of another turn's call.
fn answers_others(read: &dyn StoreRead, link: &ChainLink) -> StoreResult<bool> {
    let Some(last) = link.turns.checked_sub(1) else {
        return Ok(false);
    };
    let row = read.turn(link.row.key, last)?;
    let first = row.map_or(link.end_seq, |row| row.first_seq);
    let (mut made, mut found) = (HashSet::new(), false);
    read.messages(link.row.key, first..link.end_seq, &mut |row| {
        let message = store::decode(read, row.body)?;
        if let Some(Message::ToolResult(result)) = message.message() {
            found |= !made.contains(&result.tool_call_id);
        }
        let calls = message.message().into_iter().flat_map(Message::tool_calls);
        made.extend(calls.map(|call| call.id.clone()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Returns the size that a loop shows: its block and the tail, or the loop itself.
fn shown_of(read: &dyn StoreRead, link: &ChainLink, view: ChainView) -> StoreResult<Size> {
    let size = match &link.block {
        None => size_to(read, link, view)?,
        Some(block) => {
            let mut size = block.size;
            size.add(tail_of(read, link, block, view)?);
            size
        }
    };
    match &link.edits {
        None => Ok(size),
        Some(edits) => edited_size(read, link, edits, size),
    }
}

/// Returns the size that a loop shows with its live edits, from the size that it would show without them.
fn edited_size(
    read: &dyn StoreRead,
    link: &ChainLink,
    edits: &LiveEdits,
    mut size: Size,
) -> StoreResult<Size> {
    let key = link.row.key;
    let Some(block) = &link.block else {
        return edits.resized(read, key, &(0..link.end_seq), size);
    };
    if let Some(turns) = block.layout.first {
        let seqs = turn_seqs(read, key, turns, block.through)?;
        size = edits.resized(read, key, &seqs, size)?;
    }
    if let Some(turns) = block.layout.recent {
        let seqs = turn_seqs(read, key, turns, block.through)?;
        if edits.touches(&seqs) {
            size = with_originals(read, block, edits, size)?;
            size = edits.resized(read, key, &seqs, size)?;
        }
    }
    edits.resized(read, key, &(block.through..link.end_seq), size)
}

/// Returns the size of a block if it showed the originals of edited messages that it shortens or drops: the size from
/// which [`LiveEdits::resized`] counts. A message that a block drops is not shown whatever the edits, so its edited form
/// is taken off.
fn with_originals(
    read: &dyn StoreRead,
    block: &BlockCore,
    edits: &LiveEdits,
    mut size: Size,
) -> StoreResult<Size> {
    if block.key == BlockKey::default() {
        // A block that is not written yet shortens no message with edits.
        return Ok(size);
    }
    for message in read.block_messages(block.key)? {
        let Some(seq) = message
            .replaces
            .filter(|_| message.section == Section::Recent)
        else {
            continue;
        };
        let Some(edit) = edits.at(seq) else { continue };
        let original = recorded_size(read, block.loop_key, seq..seq.saturating_add(1))?;
        size.add(original);
        match (message.body, edit) {
            (Some(body), _) => {
                size = size.without(Size {
                    tokens: body.tokens,
                    bytes: body.bytes,
                    messages: 1,
                });
            }
            (None, MessageEdit::Removed) => {}
            (None, MessageEdit::Parts(edited)) => size = size.without(edited.resized(original)),
        }
    }
    Ok(size)
}

/// Returns the size of everything of a loop that belongs to the chain.
fn size_to(read: &dyn StoreRead, link: &ChainLink, view: ChainView) -> StoreResult<Size> {
    let totals = &link.row.totals;
    if link.end_seq == totals.next_seq {
        return Ok(Size {
            tokens: totals.tokens,
            bytes: totals.bytes,
            messages: totals.messages,
        });
    }
    let Some(last) = link.turns.checked_sub(1) else {
        return Ok(Size::default());
    };
    if view.at.is_none() {
        return link.size_through(read, link.turns);
    }
    // The moment may be within the last turn.
    let mut size = size_through(read, link.row.key, last)?;
    let row = read
        .turn(link.row.key, last)?
        .ok_or_else(|| StoreError::Damaged(format!("turn {last} is missing")))?;
    size.add(recorded_size(
        read,
        link.row.key,
        row.first_seq..link.end_seq,
    )?);
    Ok(size)
}

/// Returns the size of the messages after the block.
fn tail_of(
    read: &dyn StoreRead,
    link: &ChainLink,
    block: &BlockCore,
    view: ChainView,
) -> StoreResult<Size> {
    let key = link.row.key;
    let covered = block.layout.end();
    if covered >= link.turns {
        return recorded_size(read, key, block.through..link.end_seq);
    }
    // Whole turns come from the totals; only late messages of a covered turn are read.
    let next = read
        .turn(key, covered)?
        .ok_or_else(|| StoreError::Damaged(format!("turn {covered} is missing")))?;
    let mut size = recorded_size(read, key, block.through..next.first_seq.min(link.end_seq))?;
    size.add(size_to(read, link, view)?.without(size_through(read, key, covered)?));
    Ok(size)
}
