//! A stored session as the types of the interchange form, for exports and for programs that load a session.
//!
//! The record of a loop has the block that is active on the loop. If the current loop continues the whole loop, that
//! is the block active for the current loop, else the block active for the loop itself. The form has neither tails
//! nor rollups. So a block includes the turns after it, and a loop that a rollup covers has an empty block.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use crate::model::{
    AgentMessage, CompactedSection, CompactionBlock, Extra, Int, Json, LoopRecord, Role, Session,
    Time, Turn, TurnRange,
};
use crate::overlay::ChainSnapshot;
use crate::overlay::foreign::{OWN_RUN, block_form};
use crate::store::active_blocks::{ActiveBlocks, ChainLink, ChainView};
use crate::store::history::restore_history;
use crate::store::session::NO_TURN;
use crate::store::{
    BlockKey, BlockRow, LoopKey, LoopRow, Outcome, RunKey, SessionRow, StoreError, StoreRead,
    StoreResult, codec, decode,
};

/// The field of a session that names its current loop, if that is not the last one.
pub const CURRENT_LOOP: &str = "loopstore_current_loop";

/// Puts the current loop last, so that an import of the document makes it the current one.
pub fn ordered(mut loops: Vec<LoopRow>, current: Option<LoopKey>) -> Vec<LoopRow> {
    let is_parent = loops.iter().any(|row| row.parent == current);
    let at = loops.iter().position(|row| Some(row.key) == current);
    if let Some(at) = at.filter(|_| !is_parent) {
        let last = loops.remove(at);
        loops.push(last);
    }
    loops
}

/// The source of a block in a record.
enum Overlay {
    /// A block on the loop.
    Block(Box<BlockRow>),
    /// A rollup on a later loop.
    RolledUp(RunKey, String),
}

fn overlays(
    read: &dyn StoreRead,
    session: &SessionRow,
    loops: &[LoopRow],
) -> StoreResult<HashMap<LoopKey, Overlay>> {
    let mut found = HashMap::new();
    let mut seen = HashSet::new();
    if let Some(current) = session.current_loop {
        let chain = ChainSnapshot::load(read, current, ChainView::default())?;
        let rollup = chain.anchor.and_then(|at| chain.links[at].block.clone());
        for (at, link) in chain.links.iter().enumerate() {
            // The context of the current loop has only a part of a loop that it left midway.
            if link.is_part || link.turns < link.row.totals.turns {
                continue;
            }
            seen.insert(link.row.key);
            let above = chain.anchor.is_some_and(|anchor| at < anchor);
            let overlay = match (&link.block, &rollup) {
                (_, Some(rollup)) if above => {
                    let at = read.block_by_key(rollup.key)?.created_at;
                    Some(Overlay::RolledUp(rollup.run, at))
                }
                (Some(block), _) => {
                    let row = read.block_by_key(block.key)?;
                    Some(Overlay::Block(Box::new(row)))
                }
                (None, _) => None,
            };
            found.extend(overlay.map(|overlay| (link.row.key, overlay)));
        }
    }
    for row in loops.iter().filter(|row| !seen.contains(&row.key)) {
        let block = own_block(read, row.key)?;
        found.extend(block.map(|block| (row.key, Overlay::Block(Box::new(block)))));
    }
    Ok(found)
}

/// Returns the block that is active on a loop, seen from itself.
fn own_block(read: &dyn StoreRead, key: LoopKey) -> StoreResult<Option<BlockRow>> {
    let mut block = None;
    ActiveBlocks::new(read, key, ChainView::default()).run(&mut |link| {
        block = link.block;
        Ok(ControlFlow::Break(()))
    })?;
    block.map(|block| read.block_by_key(block.key)).transpose()
}

/// Returns the blocks of the source that break the rules, unchanged.
fn broken(
    read: &dyn StoreRead,
    session: &SessionRow,
) -> StoreResult<HashMap<LoopKey, CompactionBlock>> {
    let mut found = HashMap::new();
    read.runs(session.key, &mut |run| {
        if run.outcome == Outcome::Failed
            && let Some(record) = &run.record
        {
            found.entry(run.point.loop_key).or_insert(noted(record)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// The history of a loop in its source, without its messages.
#[derive(serde::Deserialize)]
struct SourceHistory {
    turns: Vec<Turn>,
    events: Vec<Json>,
}

/// The records of a session's loops.
pub struct SessionRecords<'a> {
    /// The snapshot that the records are read from.
    pub read: &'a dyn StoreRead,
    overlays: HashMap<LoopKey, Overlay>,
    broken: HashMap<LoopKey, CompactionBlock>,
}

/// Returns the record of a session, without its loops.
pub fn session_record(row: &SessionRow, loops: &[LoopRow]) -> StoreResult<Session> {
    let mut session: Session = noted(&row.meta)?;
    // A document of this form has the time of its last activity.
    let is_in_document = row.source.as_deref() == Some("phi-core");
    let known = row.last_active_at.as_deref().filter(|_| !is_in_document);
    let newer = newer(session.last_active_at.as_ref(), known);
    session.last_active_at = newer.or(session.last_active_at);
    for (name, label) in [("title", &row.title), ("project", &row.project)] {
        if let Some(label) = label
            && session.extra.get(name).is_none()
        {
            session.extra.insert(name, Json::string(label));
        }
    }
    session.extra.remove(CURRENT_LOOP);
    let is_last = loops.last().map(|last| last.key) == row.current_loop;
    let current = loops.iter().find(|l| Some(l.key) == row.current_loop);
    if let Some(current) = current.filter(|_| !is_last) {
        let id = Json::string(current.loop_id.as_str());
        session.extra.insert(CURRENT_LOOP, id);
    }
    Ok(session)
}

impl<'a> SessionRecords<'a> {
    /// Reads the active blocks of these loops of a session.
    pub fn of(
        read: &'a dyn StoreRead,
        session: &SessionRow,
        loops: &[LoopRow],
    ) -> StoreResult<Self> {
        Ok(Self {
            read,
            overlays: overlays(read, session, loops)?,
            broken: broken(read, session)?,
        })
    }

    /// Returns the active block of a loop, if the block is on that loop.
    pub fn active(&self, row: &LoopRow) -> Option<BlockKey> {
        match self.overlays.get(&row.key) {
            Some(Overlay::Block(block)) => Some(block.key),
            _ => None,
        }
    }

    /// Returns the record of a loop, without messages, turns, events and block.
    pub fn outline(&self, row: &LoopRow) -> StoreResult<LoopRecord> {
        let mut record = self.read.loop_meta(row.key)?.record()?;
        record.status = row.status.clone();
        for (noted, known) in [
            (&mut record.started_at, &row.started_at),
            (&mut record.ended_at, &row.ended_at),
        ] {
            *noted = known.as_ref().map(Time::from_text);
        }
        if let Some(cut) = self.cut(row, record.parent_turn.as_ref())? {
            record.parent_turn = Some(cut.into());
        }
        Ok(record)
    }

    /// Returns the record of a loop with its status, turns, events and active block, but without messages.
    pub fn loop_record(&self, row: &LoopRow) -> StoreResult<LoopRecord> {
        let meta = self.read.loop_meta(row.key)?;
        let mut record = self.outline(row)?;
        if let Some(history) = &meta.history {
            let SourceHistory { turns, events } = noted(&self.history(row.key, history)?)?;
            (record.turns, record.events) = (turns, events);
        }
        record.compaction_block = self.block(row)?;
        Ok(record)
    }

    /// Returns a stored block of a loop, as it was made.
    pub fn stored_block(&self, row: &LoopRow, block: &BlockRow) -> StoreResult<CompactionBlock> {
        block_form(self.read, &link_of(row), block)
    }

    /// Returns the cut if it differs from the recorded one, or without a record from the parent's last turn.
    fn cut(&self, row: &LoopRow, noted: Option<&Int>) -> StoreResult<Option<i64>> {
        let Some(parent) = row.parent else {
            return Ok(None);
        };
        let last = self.read.loop_by_key(parent)?.totals.turns.checked_sub(1);
        let cut = row.parent_turn.map_or(NO_TURN, i64::from);
        let is_noted = match noted {
            Some(noted) => noted.get() == cut,
            None => row.parent_turn == last && row.parent_seq.is_none(),
        };
        Ok((!is_noted).then_some(cut))
    }

    /// Returns the recorded turns and events, with their messages.
    fn history(&self, key: LoopKey, history: &str) -> StoreResult<String> {
        let read = self.read;
        restore_history(history, &mut |seq| {
            let text = codec::to_json(&message_of(read, key, seq)?)?;
            Json::parse(&text).map_err(|error| StoreError::Damaged(error.to_string()))
        })
    }

    fn block(&self, row: &LoopRow) -> StoreResult<Option<CompactionBlock>> {
        Ok(match self.overlays.get(&row.key) {
            Some(Overlay::Block(block)) => Some(whole_block(self.read, row, block)?),
            Some(Overlay::RolledUp(run, at)) if row.totals.turns > 0 => {
                let run = self.read.run_by_key(*run)?.run_id;
                Some(hidden(row.totals.turns, at, &run))
            }
            Some(Overlay::RolledUp(..)) => None,
            None => self.broken.get(&row.key).cloned(),
        })
    }
}

fn noted<T: serde::de::DeserializeOwned>(text: &str) -> StoreResult<T> {
    let damaged = |error| StoreError::Damaged(format!("what a source noted: {error}"));
    serde_json::from_str(text).map_err(damaged)
}

/// Returns the time of the last activity, if it is later than the one that the source recorded.
fn newer(noted: Option<&Time>, known: Option<&str>) -> Option<Time> {
    let known = Time::from_text(known?);
    (noted.and_then(Time::millis) < known.millis()).then_some(known)
}

fn message_of(read: &dyn StoreRead, key: LoopKey, seq: u32) -> StoreResult<AgentMessage> {
    let mut found = None;
    read.messages(key, seq..seq.saturating_add(1), &mut |row| {
        found = Some(decode(read, row.body)?);
        Ok(ControlFlow::Break(()))
    })?;
    found.ok_or_else(|| StoreError::Damaged(format!("message {seq} is missing")))
}

/// Returns the link of a whole loop.
fn link_of(row: &LoopRow) -> ChainLink {
    ChainLink {
        turns: row.totals.turns,
        complete: row.totals.complete,
        end_seq: row.totals.next_seq,
        is_part: false,
        row: row.core.clone(),
        block: None,
        edits: None,
    }
}

/// Returns a block that includes the turns after it.
fn whole_block(
    read: &dyn StoreRead,
    row: &LoopRow,
    stored: &BlockRow,
) -> StoreResult<CompactionBlock> {
    let turns = row.totals.turns;
    let mut block = block_form(read, &link_of(row), stored)?;
    let tail = tail(read, row, stored.through)?;
    if tail.is_empty() && stored.extra.is_some() {
        return Ok(block);
    }
    if !tail.is_empty() {
        take_in(&mut block, tail, stored.layout.end(), turns);
    }
    if block.extra.get(OWN_RUN).is_none() {
        let run = read.run_by_key(stored.run)?.run_id;
        block.extra.insert(OWN_RUN, Json::string(&run));
    }
    Ok(block)
}

/// Returns the messages that a block does not cover, from its last turn's end on.
fn tail(read: &dyn StoreRead, row: &LoopRow, through: u32) -> StoreResult<Vec<AgentMessage>> {
    let mut tail = Vec::new();
    read.messages(row.key, through..row.totals.next_seq, &mut |message| {
        if message.body.role != Role::Extension {
            tail.push(decode(read, message.body)?);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(tail)
}

fn take_in(block: &mut CompactionBlock, mut tail: Vec<AgentMessage>, from: u32, turns: u32) {
    let last = turns.saturating_sub(1);
    match (&mut block.keep_recent, &mut block.keep_compacted) {
        (Some(recent), _) => {
            recent.range.end = i64::from(last).into();
            recent.messages.append(&mut tail);
        }
        // Only late results of covered turns: there are no turns for a section of their own.
        (None, Some(compacted)) if from >= turns => compacted.messages.append(&mut tail),
        (None, _) => {
            block.keep_recent = Some(CompactedSection {
                range: TurnRange::new(from.min(last), last),
                messages: tail,
                extra: Extra::default(),
            });
        }
    }
}

/// Returns the block of a loop without any shown message.
fn hidden(turns: u32, created_at: &str, run: &str) -> CompactionBlock {
    let mut block = CompactionBlock {
        keep_first: None,
        keep_compacted: Some(CompactedSection {
            range: TurnRange::new(0, turns - 1),
            messages: Vec::new(),
            extra: Extra::default(),
        }),
        keep_recent: None,
        created_at: Some(Time::from_text(created_at)),
        extra: Extra::default(),
    };
    block.extra.insert(OWN_RUN, Json::string(run));
    block
}
