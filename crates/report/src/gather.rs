//! The index of a page: everything but the messages.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::calls::CallTable;
use super::chain::{ChainLoop, chain_of};
use super::curve::{Curve, curve_of};
use super::edits::{IndexedEdit, edits_of};
use super::messages::{WrittenMessages, places};
use super::usage::{UsageLines, usage_of};
use super::{ReportLine, ReportOptions};
use loopstore::extend::active_blocks::{self, ChainLink, ChainView};
use loopstore::extend::{
    BlockKey, BlockRow, Disposition, EDIT_TRIGGER, LoopKey, LoopRow, Outcome, RunKey, RunRow,
    SessionRow, StoreRead, StoreResult, Turns, prompt, turn_dispositions,
};
use loopstore::model::{Json, Time};

/// The index of a page.
#[derive(Serialize)]
pub(super) struct SessionIndex {
    version: &'static str,
    made_at: String,
    overview: Option<String>,
    session: SessionHeader,
    /// The leaf of the displayed chain, by position.
    leaf: Option<usize>,
    loops: Vec<IndexedLoop>,
    blocks: Vec<IndexedBlock>,
    /// Newest first.
    runs: Vec<IndexedRun>,
    chain: Vec<ChainLoop>,
    /// The size of the context of the next model call.
    context: IndexedSize,
    curve: Curve,
    calls: CallTable,
    usage: UsageLines,
}

#[derive(Serialize)]
struct SessionHeader {
    session_id: String,
    title: Option<String>,
    prompt: Option<String>,
    project: Option<String>,
    agent_id: Option<String>,
    created_at: Option<String>,
    last_active_at: Option<String>,
    source: Option<String>,
}

#[derive(Clone, Copy, Default, Serialize)]
struct IndexedSize {
    messages: u64,
    tokens: u64,
    bytes: u64,
}

impl From<loopstore::extend::Size> for IndexedSize {
    fn from(size: loopstore::extend::Size) -> Self {
        Self {
            messages: size.messages,
            tokens: size.tokens,
            bytes: size.bytes,
        }
    }
}

#[derive(Serialize)]
struct IndexedLoop {
    loop_id: String,
    prompt: Option<String>,
    parent: Option<usize>,
    parent_turn: Option<u32>,
    parent_seq: Option<u32>,
    kind: Box<RawValue>,
    status: String,
    started_at: Option<String>,
    ended_at: Option<String>,
    messages: u64,
    tokens: u64,
    /// The sequence after the last.
    end: u32,
    /// For each turn: its first sequence, its tokens, and its start in milliseconds.
    turns: Vec<(u32, u64, Option<i64>)>,
    pieces: Vec<(u32, usize)>,
}

#[derive(Serialize)]
struct IndexedBlock {
    #[serde(rename = "loop")]
    loop_key: usize,
    generation: u32,
    kind: &'static str,
    /// By position in `runs`.
    run: Option<usize>,
    extends: Option<usize>,
    first: Option<(u32, u32)>,
    compacted: Option<(u32, u32)>,
    recent: Option<(u32, u32)>,
    tokens_covered: u64,
    tokens: u64,
    strategy: String,
    created_at: String,
    piece: usize,
    /// True if the block is active from the loop of its run, as in the views.
    is_active: bool,
    /// The number of turns of each disposition, over all loops that the block covers.
    coverage: Vec<(&'static str, u64)>,
}

#[derive(Serialize)]
struct IndexedRun {
    run_id: String,
    #[serde(rename = "loop")]
    loop_key: Option<usize>,
    trigger: String,
    strategy: String,
    round: u32,
    outcome: &'static str,
    fallback: Option<String>,
    error: Option<String>,
    before: IndexedSize,
    after: IndexedSize,
    started_at: String,
    duration_ms: u64,
    /// The events of the run: its start, and its end.
    events: Vec<Json>,
    /// The maximum tokens of the messages, if the run recorded them: its window without the system prompt.
    budget: Option<u64>,
    counter: String,
    /// The reason that was given for edits.
    reason: Option<String>,
    /// True if the edits are live in the displayed context.
    is_shown: bool,
    edits: Vec<IndexedEdit>,
}

impl SessionIndex {
    /// Returns the line of the session in the overview.
    pub(super) fn line(&self) -> ReportLine {
        let header = &self.session;
        let committed = |run: &&IndexedRun| {
            run.outcome == Outcome::Committed.as_str() && run.trigger != EDIT_TRIGGER
        };
        let cost = self.usage.tree.total.cost;
        ReportLine {
            session_id: header.session_id.clone(),
            title: header.title.clone(),
            project: header.project.clone(),
            source: header.source.clone(),
            last_active_at: header.last_active_at.clone(),
            loops: self.loops.len() as u64,
            turns: self.loops.iter().map(|row| row.turns.len() as u64).sum(),
            messages: self.loops.iter().map(|row| row.messages).sum(),
            tokens: self.loops.iter().map(|row| row.tokens).sum(),
            context: self.context.tokens,
            compactions: self.runs.iter().filter(committed).count() as u64,
            calls: self.calls.calls.len() as u64,
            failed: self.calls.calls.iter().filter(|call| call.failed).count() as u64,
            cost: self.usage.is_priced.then_some(cost),
        }
    }
}

/// Returns the index of a session, as seen from `leaf`.
pub(super) fn index(
    read: &dyn StoreRead,
    owner: &SessionRow,
    leaf: Option<&LoopRow>,
    found: WrittenMessages,
    options: &ReportOptions,
) -> StoreResult<SessionIndex> {
    let runs = runs_of(read, owner)?;
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    let (mut chain, mut context, mut links) = (Vec::new(), IndexedSize::default(), Vec::new());
    if let Some(leaf) = leaf {
        links = active_blocks::chain(read, leaf.key, raw)?;
        let (states, size) = chain_of(read, leaf, &links, &found)?;
        (chain, context) = (states, size.into());
    }
    Ok(SessionIndex {
        version: env!("CARGO_PKG_VERSION"),
        made_at: Time::now().as_str().to_owned(),
        overview: options.overview.clone(),
        session: session_header(read, owner)?,
        leaf: leaf.and_then(|leaf| found.place_of(leaf.key)),
        loops: loop_lines(read, owner, &found)?,
        blocks: block_lines(read, &found, &runs)?,
        chain,
        context,
        curve: curve_of(read, owner, &links)?,
        usage: usage_of(read, owner, options)?,
        runs: run_lines(read, &runs, &found, &links)?,
        calls: found.calls,
    })
}

fn session_header(read: &dyn StoreRead, owner: &SessionRow) -> StoreResult<SessionHeader> {
    Ok(SessionHeader {
        session_id: owner.session_id.to_string(),
        title: prompt::session_title(read, owner)?,
        prompt: prompt::session_prompt(read, owner.key)?,
        project: owner.project.clone(),
        agent_id: owner.agent_id.clone(),
        created_at: owner.created_at.clone(),
        last_active_at: owner.last_active_at.clone(),
        source: owner.source.clone(),
    })
}

fn runs_of(read: &dyn StoreRead, owner: &SessionRow) -> StoreResult<Vec<RunRow>> {
    let mut runs = Vec::new();
    read.runs(owner.key, &mut |mut run| {
        // The record of another tool may be large, and no page shows it.
        run.record = None;
        runs.push(run);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(runs)
}

fn loop_lines(
    read: &dyn StoreRead,
    owner: &SessionRow,
    found: &WrittenMessages,
) -> StoreResult<Vec<IndexedLoop>> {
    let mut prompts = prompt::loop_prompts(read, owner.key)?;
    let places = places(&found.loops);
    let mut lines = Vec::with_capacity(found.loops.len());
    for (row, pieces) in found.loops.iter().zip(&found.pieces) {
        let mut before = 0;
        let mut turns = Vec::with_capacity(row.totals.turns as usize);
        for turn in read.turns(row.key, 0..row.totals.turns)? {
            turns.push((
                turn.first_seq,
                turn.tokens - before.min(turn.tokens),
                turn.started_at,
            ));
            before = turn.tokens;
        }
        let kind = RawValue::from_string(row.kind.clone());
        lines.push(IndexedLoop {
            loop_id: row.loop_id.to_string(),
            prompt: prompts.remove(&row.key),
            parent: row.parent.and_then(|key| places.get(&key).copied()),
            parent_turn: row.parent_turn,
            parent_seq: row.parent_seq,
            kind: kind.unwrap_or_default(),
            status: row.status.as_str().to_owned(),
            started_at: row.started_at.clone(),
            ended_at: row.ended_at.clone(),
            messages: row.totals.messages,
            tokens: row.totals.tokens,
            end: row.totals.next_seq,
            turns,
            pieces: pieces.clone(),
        });
    }
    Ok(lines)
}

fn block_lines(
    read: &dyn StoreRead,
    found: &WrittenMessages,
    runs: &[RunRow],
) -> StoreResult<Vec<IndexedBlock>> {
    let ends = |turns: Option<Turns>| turns.map(|turns| (turns.first, turns.last));
    let mut lines = Vec::with_capacity(found.blocks.len());
    let mut active = HashMap::new();
    let places = runs.iter().enumerate().map(|(at, run)| (run.key, at));
    let places: HashMap<RunKey, usize> = places.collect();
    for (row, piece) in &found.blocks {
        let run = places.get(&row.run).copied();
        let is_active = match run {
            Some(at) => is_active(read, row, runs[at].point.loop_key, &mut active)?,
            None => false,
        };
        lines.push(IndexedBlock {
            loop_key: found.place_of(row.loop_key).unwrap_or_default(),
            generation: row.generation,
            kind: row.kind.as_str(),
            run,
            is_active,
            extends: row.extends.and_then(|key| found.block_of(key)),
            first: ends(row.layout.first),
            compacted: ends(row.layout.compacted),
            recent: ends(row.layout.recent),
            tokens_covered: row.tokens_covered,
            tokens: row.size.tokens,
            strategy: row.strategy.clone(),
            created_at: row.created_at.clone(),
            piece: *piece,
            coverage: covered(read, row)?,
        });
    }
    Ok(lines)
}

/// True if a block is active from `leaf`, whose active blocks are read once.
fn is_active(
    read: &dyn StoreRead,
    block: &BlockRow,
    leaf: LoopKey,
    active: &mut HashMap<LoopKey, HashSet<BlockKey>>,
) -> StoreResult<bool> {
    if let Some(known) = active.get(&leaf) {
        return Ok(known.contains(&block.key));
    }
    let links = active_blocks::chain(read, leaf, ChainView::default())?;
    let keys = links
        .iter()
        .filter_map(|link| Some(link.block.as_ref()?.key));
    let keys: HashSet<BlockKey> = keys.collect();
    let is_active = keys.contains(&block.key);
    active.insert(leaf, keys);
    Ok(is_active)
}

/// Counts the turns of each disposition.
fn covered(read: &dyn StoreRead, block: &BlockRow) -> StoreResult<Vec<(&'static str, u64)>> {
    let dispositions = turn_dispositions(&read.coverage(block.key)?);
    let count = |disposition: Disposition| {
        let turns = dispositions.values().flat_map(|turns| turns.values());
        let own = turns.filter(|state| **state == disposition).count();
        (disposition.as_str(), own as u64)
    };
    let counted = Disposition::ALL.into_iter().map(count);
    Ok(counted.filter(|(_, count)| *count > 0).collect())
}

fn run_lines(
    read: &dyn StoreRead,
    runs: &[RunRow],
    found: &WrittenMessages,
    links: &[ChainLink],
) -> StoreResult<Vec<IndexedRun>> {
    let shown = links.iter().filter_map(|link| link.edits.as_ref());
    let shown: HashSet<RunKey> = shown.flat_map(|edits| edits.runs()).copied().collect();
    let line = |run: &RunRow| {
        Ok(IndexedRun {
            run_id: run.run_id.clone(),
            loop_key: found.place_of(run.point.loop_key),
            trigger: run.trigger.clone(),
            strategy: run.strategy.clone(),
            round: run.round,
            outcome: run.outcome.as_str(),
            fallback: run.fallback.clone(),
            error: run.error.clone(),
            before: run.before.into(),
            after: run.after.into(),
            started_at: run.started_at.clone(),
            duration_ms: run.duration_ms,
            events: run.noted_events(),
            budget: budget_of(&run.config),
            counter: run.counter.clone(),
            reason: run.edit_reason(),
            is_shown: shown.contains(&run.key),
            edits: edits_of(read, run, found)?,
        })
    };
    runs.iter().map(line).collect()
}

/// Returns the budget of messages in a run's configuration; `None` if it has none.
fn budget_of(config: &str) -> Option<u64> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    let window = config.get("max_context_tokens")?.as_u64()?;
    let system = config
        .get("system_tokens")
        .and_then(|tokens| tokens.as_u64());
    Some(window.saturating_sub(system.unwrap_or(0)))
}
