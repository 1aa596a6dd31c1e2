//! Copies of threads.
//!
//! The history of the session is repeated in its copy, in the same order. So a compaction applies to the same loops at
//! the same time, an undo undoes it, and a context as of an earlier point is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use loopstore::extend::append::{NewMessage, append};
use loopstore::extend::codec::encode;
use loopstore::extend::{
    AppendKey, BlockKey, BlockRow, FlipRow, LoopKey, LoopRow, NewBlock, Outcome, PinRow, Point,
    RunKey, RunRow, SessionKey, SessionRow, StoreRead, StoreWrite, Tick, decode, session,
};
use loopstore::tokens::TokenCounter;
use loopstore::{AgentMessage, Json, LoopId, LoopRecord, Session, SessionId, StoreError};

use crate::Checkpoints;
use crate::error::{Error, Result};
use crate::lines::PARENT_SEQ;

/// The number of messages that are copied at a time.
const PAGE: usize = 256;

impl Checkpoints {
    /// Copies a thread: its loops with all messages, checkpoints and writes, its compactions and edits with their
    /// undos, and its pins. Does nothing if the thread does not exist. A compaction is not copied if the content of its messages
    /// was removed.
    ///
    /// # Errors
    /// [`Error::ThreadExists`] if the target is not empty, [`Error::Foreign`], or if the store fails.
    pub fn copy_thread(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (SessionId::new(from)?, SessionId::new(to)?);
        self.write(|write| {
            let Some(source) = self.own(write, &from)? else {
                return Ok(());
            };
            let source = write.session_by_key(source)?;
            let target = match write.session(&to)? {
                Some(row) if row.current_loop.is_some() => {
                    return Err(Error::ThreadExists(to.to_string()));
                }
                Some(row) => row.key,
                None => {
                    let new = Session {
                        agent_id: source.agent_id.clone(),
                        ..Session::new(to, "")
                    };
                    session::create_session(write, &new, source.title.clone(), None)?
                }
            };
            let mut copy = ThreadCopy {
                target,
                counter: self.store.database().counter(),
                loops: BTreeMap::new(),
                runs: BTreeMap::new(),
                run_ids: BTreeMap::new(),
                blocks: BTreeMap::new(),
                removed: BTreeSet::new(),
                write,
            };
            for step in steps(copy.write, source.key)? {
                copy.apply(step)?;
            }
            copy.names(&source)
        })
    }
}

/// A step in the history of a session.
enum CopyStep {
    Loop(LoopRow),
    Messages(LoopKey, Range<u32>),
    Run(RunRow),
    Flip(FlipRow),
    Pin(PinRow),
}

/// Returns the history of a session, in order.
fn steps(read: &dyn StoreRead, session: SessionKey) -> Result<Vec<CopyStep>> {
    let mut steps: Vec<(Tick, CopyStep)> = Vec::new();
    let loops = read.loops(session)?;
    let ends: Vec<(LoopKey, Tick, u32)> = loops
        .iter()
        .map(|row| (row.key, row.tick, row.totals.next_seq))
        .collect();
    steps.extend(loops.into_iter().map(|row| (row.tick, CopyStep::Loop(row))));
    for (key, mut tick, end) in ends {
        let mut first = 0;
        read.messages(key, 0..end, &mut |row| {
            // A loop begins before its messages, and they follow each other, whatever their times.
            if row.tick > tick {
                if row.seq > first {
                    steps.push((tick, CopyStep::Messages(key, first..row.seq)));
                }
                (tick, first) = (row.tick, row.seq);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if end > first {
            steps.push((tick, CopyStep::Messages(key, first..end)));
        }
    }
    let mut runs = Vec::new();
    read.runs(session, &mut |run| {
        if run.outcome != Outcome::Running {
            runs.push(run);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    runs.reverse();
    for run in runs {
        let flips = read.flips(run.key)?.into_iter();
        steps.push((run.tick, CopyStep::Run(run)));
        steps.extend(flips.map(|flip| (flip.tick, CopyStep::Flip(flip))));
    }
    let pins = read.pins(session)?.into_iter();
    steps.extend(pins.map(|pin| (pin.tick, CopyStep::Pin(pin))));
    // The sort is stable.
    steps.sort_by_key(|(tick, _)| *tick);
    Ok(steps.into_iter().map(|(_, step)| step).collect())
}

/// The state of a copy.
struct ThreadCopy<'a> {
    write: &'a mut dyn StoreWrite,
    target: SessionKey,
    counter: &'a dyn TokenCounter,
    loops: BTreeMap<LoopKey, LoopKey>,
    runs: BTreeMap<RunKey, RunKey>,
    /// The ids of the copied runs, by those of the originals.
    run_ids: BTreeMap<String, String>,
    blocks: BTreeMap<BlockKey, BlockKey>,
    /// Loops with messages whose content was removed: the copy has other messages in their places.
    removed: BTreeSet<LoopKey>,
}

impl ThreadCopy<'_> {
    fn apply(&mut self, step: CopyStep) -> Result<()> {
        match step {
            CopyStep::Loop(row) => {
                let record = record_of(self.write, &row)?;
                let key = session::create_loop(self.write, self.target, &record)?;
                self.loops.insert(row.key, key);
                Ok(())
            }
            CopyStep::Messages(from, seqs) => self.messages(from, seqs),
            CopyStep::Run(row) => self.run(row),
            CopyStep::Flip(row) => {
                let Some(run) = self.runs.get(&row.run).copied() else {
                    return Ok(());
                };
                let (point, tick) = (self.point(row.point)?, self.next_tick()?);
                let row = FlipRow {
                    run,
                    point,
                    tick,
                    ..row
                };
                Ok(self.write.insert_flip(self.target, &row)?)
            }
            CopyStep::Pin(row) => {
                let (loop_key, point) = (self.copied(row.loop_key)?, self.point(row.point)?);
                let tick = self.next_tick()?;
                let row = PinRow {
                    loop_key,
                    point,
                    tick,
                    ..row
                };
                Ok(self.write.insert_pin(self.target, &row)?)
            }
        }
    }

    fn copied(&self, key: LoopKey) -> Result<LoopKey> {
        let missing = || StoreError::Damaged("a loop of another session is named".into());
        Ok(self.loops.get(&key).copied().ok_or_else(missing)?)
    }

    fn point(&self, point: Point) -> Result<Point> {
        Ok(Point {
            loop_key: self.copied(point.loop_key)?,
            turns: point.turns,
        })
    }

    fn next_tick(&mut self) -> Result<Tick> {
        let mut row = self.write.session_by_key(self.target)?;
        row.tick += 1;
        self.write.touch_session(&(&row).into())?;
        Ok(row.tick)
    }

    fn messages(&mut self, from: LoopKey, seqs: Range<u32>) -> Result<()> {
        let to = self.copied(from)?;
        let mut all: Vec<NewMessage> = Vec::new();
        let (read, removed) = (&*self.write, &mut self.removed);
        read.messages(from, seqs, &mut |row| {
            let is_extension = row.body.role == loopstore::Role::Extension;
            let message = decode(read, row.body)?;
            if !is_extension && matches!(message, AgentMessage::Extension(_)) {
                removed.insert(from);
            }
            all.push(message.into());
            Ok(ControlFlow::Continue(()))
        })?;
        let mut all = all.into_iter().peekable();
        while all.peek().is_some() {
            let page = all.by_ref().take(PAGE).collect();
            append(self.write, to, page, self.counter)?;
        }
        Ok(())
    }

    fn run(&mut self, row: RunRow) -> Result<()> {
        let blocks = self.write.blocks_of_run(row.key)?;
        let mut copies = Vec::with_capacity(blocks.len());
        let own: BTreeSet<BlockKey> = blocks.iter().map(|block| block.key).collect();
        for block in blocks {
            match self.block(&block, &own)? {
                Some(copy) => copies.push((block.key, copy)),
                None => return Ok(()),
            }
        }
        let mut edits = self.write.edits_of_run(row.key)?;
        if !edits.is_empty() {
            edits.retain(|edit| self.loops.contains_key(&edit.loop_key));
            if edits.is_empty() {
                return Ok(());
            }
        }
        for edit in &mut edits {
            edit.loop_key = self.copied(edit.loop_key)?;
        }
        let (from, from_id) = (row.key, row.run_id.clone());
        let mut row = RunRow {
            session: self.target,
            run_id: LoopId::generate().to_string(),
            point: self.point(row.point)?,
            tick: self.next_tick()?,
            ..row
        };
        row.key = self.write.insert_run(&row)?;
        self.runs.insert(from, row.key);
        self.run_ids.insert(from_id, row.run_id.clone());
        self.write.insert_edits(row.key, &edits)?;
        for (from, mut copy) in copies {
            let mut owner = self.write.loop_by_key(copy.row.loop_key)?;
            let totals = &mut owner.totals;
            totals.generation = copy.row.generation;
            totals.sealed_seq = totals.sealed_seq.max(copy.row.through);
            self.write.update_totals(&owner, &owner.progress)?;
            copy.row.run = row.key;
            if let Some(extends) = copy.row.extends {
                copy.row.extends = self.blocks.get(&extends).copied();
            }
            let key = self.write.insert_block(&copy)?;
            self.blocks.insert(from, key);
        }
        Ok(self.write.close_run(&row, None)?)
    }

    /// Returns the copy of a block, whose `extends` still names the original; `None` if it depends on content that
    /// is not copied.
    fn block(&self, block: &BlockRow, own: &BTreeSet<BlockKey>) -> Result<Option<NewBlock>> {
        let is_here = |key: &LoopKey| self.loops.contains_key(key) && !self.removed.contains(key);
        let read: &dyn StoreRead = self.write;
        let mut row = block.clone();
        let is_known = |key: BlockKey| self.blocks.contains_key(&key) || own.contains(&key);
        if !is_here(&block.loop_key) || block.extends.is_some_and(|extends| !is_known(extends)) {
            return Ok(None);
        }
        row.loop_key = self.copied(block.loop_key)?;
        for id in &mut row.edits {
            match self.run_ids.get(id) {
                Some(copied) => id.clone_from(copied),
                None => return Ok(None),
            }
        }
        row.edits.sort_unstable();
        let mut copy = NewBlock {
            row,
            messages: Vec::new(),
            coverage: Vec::new(),
            blobs: Vec::new(),
        };
        for mut message in read.block_messages(block.key)? {
            if let Some(quoted) = message.quotes {
                if !is_here(&quoted) {
                    return Ok(None);
                }
                message.quotes = Some(self.copied(quoted)?);
                if let Some(seq) = message.replaces {
                    let place = (self.copied(quoted)?, seq);
                    let quoting = copy.row.quoting();
                    let body = loopstore::extend::quote_body(read, self.counter, quoting, place)?;
                    message.body = Some(body);
                }
            } else if let Some(body) = message.body.take() {
                let (body, blobs) = encode(decode(read, body)?, self.counter)?;
                message.body = Some(body);
                copy.blobs.extend(blobs);
            }
            copy.messages.push(message);
        }
        for mut range in read.coverage(block.key)? {
            if !is_here(&range.loop_key) {
                return Ok(None);
            }
            range.loop_key = self.copied(range.loop_key)?;
            copy.coverage.push(range);
        }
        Ok(Some(copy))
    }

    /// Copies the names of appends, and sets the current loop.
    fn names(&mut self, source: &SessionRow) -> Result<()> {
        for key in self.write.append_keys(source.key)? {
            if let Some(loop_key) = self.loops.get(&key.loop_key) {
                let loop_key = *loop_key;
                self.write
                    .insert_append_key(self.target, &AppendKey { loop_key, ..key })?;
            }
        }
        let mut row = self.write.session_by_key(self.target)?;
        let current = source.current_loop.and_then(|key| self.loops.get(&key));
        row.current_loop = current.copied().or(row.current_loop);
        Ok(self.write.touch_session(&(&row).into())?)
    }
}

/// Returns the record of a loop, without its content.
fn record_of(read: &dyn StoreRead, row: &LoopRow) -> Result<LoopRecord> {
    let mut record = read.loop_meta(row.key)?.record()?;
    record.extra.remove(PARENT_SEQ);
    if let Some(seq) = row.parent_seq {
        let seq = Json::of(&seq).map_err(|error| Error::Invalid(error.to_string()))?;
        record.extra.insert(PARENT_SEQ, seq);
    }
    let turn = row.parent_turn.map_or(session::NO_TURN, i64::from);
    Ok(LoopRecord {
        status: row.status.clone(),
        parent_turn: row.parent.map(|_| turn.into()),
        ..record
    })
}
