//! A session as lines of JSON: everything that is stored of the session, so that an import of the lines
//! gives the same session again. `loopstore_core::session_lines` defines the lines.
//!
//! Of a chain only the messages are written, in the same form.

use std::collections::HashMap;
use std::io::Write;
use std::ops::ControlFlow;

use loopstore::extend as store;
use loopstore::extend::codec::to_json;
use loopstore::extend::{
    BlockKey, BlockRow, LoopKey, LoopRow, ManifestRow, MessageRow, Note, Outcome, RunKey, RunRow,
    Section, SessionRow, StoreError, StoreRead, StoreResult, codec,
};
use loopstore::model::{AgentMessage, LoopId};
use loopstore_transcripts::internal::form::*;
use serde::Serialize;

use super::{ExportError, ExportRange, each_message_of};

/// The number of turns that are read at a time.
const TURNS_AT_ONCE: u32 = 1024;

/// Writes the messages of a chain, loop by loop.
pub(super) fn write_chain(
    read: &dyn StoreRead,
    session: &SessionRow,
    stretches: &[ExportRange],
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut lines = LineWriter::new(read, session, out)?;
    stretches
        .iter()
        .try_for_each(|stretch| lines.messages(stretch))
}

/// Writes the whole session; `counter` is the name of its token counter.
pub(super) fn write(
    read: &dyn StoreRead,
    session: &SessionRow,
    counter: &str,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut lines = LineWriter::new(read, session, out)?;
    lines.all(counter)
}

/// Writes the lines of the session without those of its messages, as the values of a list. The end counts the messages
/// too.
pub(super) fn write_rows(
    read: &dyn StoreRead,
    session: &SessionRow,
    counter: &str,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut lines = LineWriter::new(read, session, out)?;
    lines.is_list = true;
    lines.all(counter)
}

/// Returns the closed runs of a session, oldest first.
pub(super) fn runs(read: &dyn StoreRead, session: &SessionRow) -> StoreResult<Vec<RunKey>> {
    let mut keys = Vec::new();
    read.runs(session.key, &mut |run| {
        if run.outcome != Outcome::Running {
            keys.push(run.key);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    keys.reverse();
    Ok(keys)
}

/// Returns the manifests of a session, oldest first.
fn manifests(read: &dyn StoreRead, session: &SessionRow) -> StoreResult<Vec<ManifestRow>> {
    let mut rows = read.manifests(session.key)?;
    rows.reverse();
    Ok(rows)
}

struct LineWriter<'a> {
    read: &'a dyn StoreRead,
    session: &'a SessionRow,
    ids: HashMap<LoopKey, LoopId>,
    out: &'a mut dyn Write,
    written: u64,
    /// True if the lines are the values of a list, without those of messages.
    is_list: bool,
}

impl<'a> LineWriter<'a> {
    fn new(
        read: &'a dyn StoreRead,
        session: &'a SessionRow,
        out: &'a mut dyn Write,
    ) -> StoreResult<Self> {
        let loops = read.loops(session.key)?;
        Ok(Self {
            read,
            session,
            ids: loops
                .into_iter()
                .map(|row| (row.key, row.core.loop_id))
                .collect(),
            out,
            written: 0,
            is_list: false,
        })
    }

    fn all(&mut self, counter: &str) -> Result<(), ExportError> {
        let (read, session) = (self.read, self.session);
        self.session(counter)?;
        for row in read.loops(session.key)? {
            self.one_loop(row)?;
        }
        for run in runs(read, session)? {
            self.run(&read.run_by_key(run)?)?;
        }
        self.pins()?;
        self.hides()?;
        for row in manifests(read, session)? {
            self.manifest(&row)?;
        }
        let records = self.written;
        self.line(&EndLine {
            record: LineKind::End,
            records,
        })
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), ExportError> {
        if self.is_list && self.written > 0 {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *self.out, line)?;
        if !self.is_list {
            self.out.write_all(b"\n")?;
        }
        self.written += 1;
        Ok(())
    }

    fn id(&self, key: LoopKey) -> StoreResult<LoopId> {
        let missing = || StoreError::Damaged(format!("loop {} is not in its session", key.0));
        self.ids.get(&key).cloned().ok_or_else(missing)
    }

    fn session(&mut self, counter: &str) -> Result<(), ExportError> {
        let row = self.session;
        let line = SessionLine {
            record: LineKind::Session,
            loopstore: FORM,
            session: row.session_id.clone(),
            agent_id: row.agent_id.clone(),
            title: row.title.clone(),
            created_at: row.created_at.clone(),
            last_active_at: row.last_active_at.clone(),
            current_loop: row.current_loop.map(|key| self.id(key)).transpose()?,
            tick: row.tick,
            source: row.source.clone(),
            project: row.project.clone(),
            counter: counter.to_owned(),
            meta: raw(&row.meta)?,
        };
        self.line(&line)
    }

    fn one_loop(&mut self, row: LoopRow) -> Result<(), ExportError> {
        let line = self.loop_line(&row)?;
        self.line(&line)?;
        self.turns(&row)?;
        let end_seq = row.totals.next_seq;
        let stretch = ExportRange { row, end_seq };
        match self.is_list {
            true => self.written += u64::from(end_seq),
            false => self.messages(&stretch)?,
        }
        self.notes(&stretch.row)?;
        self.calls(&stretch.row)
    }

    fn loop_line(&self, row: &LoopRow) -> StoreResult<LoopLine> {
        let (totals, progress) = (&row.totals, &row.progress);
        let meta = self.read.loop_meta(row.key)?;
        Ok(LoopLine {
            record: LineKind::Loop,
            loop_id: row.loop_id.clone(),
            parent: row.parent.map(|key| self.id(key)).transpose()?,
            parent_loop_id: row.parent_loop_id.clone(),
            parent_turn: row.parent_turn,
            parent_seq: row.parent_seq,
            kind: raw(&row.kind)?,
            status: row.status.clone(),
            started_at: row.started_at.clone(),
            ended_at: row.ended_at.clone(),
            tick: row.tick,
            next_seq: totals.next_seq,
            sealed_seq: totals.sealed_seq,
            turns: totals.turns,
            complete: totals.complete,
            messages: totals.messages,
            tokens: totals.tokens,
            bytes: totals.bytes,
            system_tokens: progress.system_tokens,
            generation: totals.generation,
            last_turn_index: progress.last_turn_index,
            open_calls: progress.open_calls.clone(),
            chain: hex::encode(progress.chain),
            meta: raw(&meta.meta)?,
            history: raw_if(meta.history.as_deref())?,
        })
    }

    fn turns(&mut self, row: &LoopRow) -> Result<(), ExportError> {
        let mut from = 0;
        while from < row.totals.turns {
            let to = from.saturating_add(TURNS_AT_ONCE).min(row.totals.turns);
            for turn in self.read.turns(row.key, from..to)? {
                let site = |site: &store::CallSite| {
                    Ok(JsonTurnRef {
                        loop_id: self.id(site.loop_key)?,
                        turn: site.turn,
                    })
                };
                let answers: StoreResult<Vec<JsonTurnRef>> =
                    turn.answers.iter().map(site).collect();
                let line = TurnLine {
                    record: LineKind::Turn,
                    loop_id: row.loop_id.clone(),
                    turn: turn.turn,
                    first_seq: turn.first_seq,
                    messages: turn.messages,
                    prompts: turn.prompts,
                    tokens: turn.tokens,
                    bytes: turn.bytes,
                    turn_index: turn.turn_index,
                    answered: turn.answered,
                    answers: answers?,
                    tick: turn.tick,
                    started_at: turn.started_at,
                    ended_at: turn.ended_at,
                };
                self.line(&line)?;
            }
            from = to;
        }
        Ok(())
    }

    fn messages(&mut self, stretch: &ExportRange) -> Result<(), ExportError> {
        let (read, mut chain) = (self.read, [0; 32]);
        each_message_of(read, stretch.row.key, 0..stretch.end_seq, &mut |row| {
            // A message without its content has no source of its time: the chain has it.
            let stamped = row.chain != codec::chain(&chain, &row.body.digest, None);
            chain = row.chain;
            let line = message_line(read, self.session, &stretch.row, row)?;
            self.line(&MessageLine { stamped, ..line })
        })
    }

    fn notes(&mut self, row: &LoopRow) -> Result<(), ExportError> {
        for note in self.read.notes(row.key)? {
            let (event, turn) = match &note {
                Note::Event(text) => (Some(raw(text)?), None),
                Note::Turn(text) => (None, Some(raw(text)?)),
            };
            self.line(&NoteLine {
                record: LineKind::Note,
                loop_id: row.loop_id.clone(),
                event,
                turn,
            })?;
        }
        Ok(())
    }

    fn calls(&mut self, row: &LoopRow) -> Result<(), ExportError> {
        for call in self.read.calls_of_loop(row.key)? {
            self.line(&CallLine {
                record: LineKind::Call,
                loop_id: row.loop_id.clone(),
                call_id: call.call_id,
                nth: call.nth,
                tool_name: call.tool_name,
                arguments: raw_if(call.arguments.as_deref())?,
                idempotency_key: call.idempotency_key,
                turn_index: call.turn_index,
                started_at: call.started_at,
                attempts: call.attempts,
                finished_at: call.finished_at,
            })?;
        }
        Ok(())
    }

    /// Writes a run with its blocks, edits and flips.
    fn run(&mut self, run: &RunRow) -> Result<(), ExportError> {
        let line = self.run_line(run)?;
        self.line(&line)?;
        for block in self.read.blocks_of_run(run.key)? {
            let line = self.block_line(&run.run_id, &block)?;
            self.line(&line)?;
        }
        for edit in self.read.edits_of_run(run.key)? {
            let loop_id = self.id(edit.loop_key)?;
            self.line(&EditLine {
                record: LineKind::Edit,
                run: run.run_id.clone(),
                loop_id,
                seqs: edit.seqs,
                part: edit.part.map(|part| (part.number, part.of)),
                action: edit.action,
                text: edit.text,
                before: edit.before.into(),
                after: edit.after.into(),
                salt: hex::encode(edit.salt),
            })?;
        }
        for flip in self.read.flips(run.key)? {
            let line = FlipLine {
                record: LineKind::Flip,
                run: run.run_id.clone(),
                redo: flip.redo,
                loop_id: self.id(flip.point.loop_key)?,
                turns: flip.point.turns,
                tick: flip.tick,
                at: flip.at,
                reason: flip.reason,
            };
            self.line(&line)?;
        }
        Ok(())
    }

    fn pins(&mut self) -> Result<(), ExportError> {
        for pin in self.read.pins(self.session.key)? {
            self.line(&PinLine {
                record: LineKind::Pin,
                loop_id: self.id(pin.loop_key)?,
                seq: pin.seq,
                pinned: pin.pinned,
                leaf: self.id(pin.point.loop_key)?,
                turns: pin.point.turns,
                tick: pin.tick,
                at: pin.at,
            })?;
        }
        Ok(())
    }

    fn hides(&mut self) -> Result<(), ExportError> {
        for hide in self.read.hides(self.session.key)? {
            self.line(&HideLine {
                record: LineKind::Hide,
                hidden: hide.hidden,
                was: hide.was,
                session: hide.session_id,
                tick: hide.tick,
                at: hide.at,
            })?;
        }
        Ok(())
    }

    fn run_line(&self, run: &RunRow) -> StoreResult<RunLine> {
        Ok(RunLine {
            record: LineKind::Run,
            run: run.run_id.clone(),
            loop_id: self.id(run.point.loop_key)?,
            turns: run.point.turns,
            tick: run.tick,
            trigger: run.trigger.clone(),
            strategy: run.strategy.clone(),
            round: run.round,
            outcome: run.outcome.as_str().to_owned(),
            fallback: run.fallback.clone(),
            error: run.error.clone(),
            scope: run.scope.clone(),
            older_loops: run.older_loops.clone(),
            counter: run.counter.clone(),
            before: run.before.into(),
            after: run.after.into(),
            started_at: run.started_at.clone(),
            duration_ms: run.duration_ms,
            config: raw(&run.config)?,
            usage: raw_if(run.usage.as_deref())?,
            plan: hex::encode(run.plan),
            recorded: raw_if(run.record.as_deref())?,
            events: raw_if(run.events.as_deref())?,
            reached: raw_if(run.reached.as_deref())?,
        })
    }

    fn block_line(&self, run: &str, block: &BlockRow) -> StoreResult<BlockLine> {
        let extends = block.extends.map(|key| self.name(key)).transpose()?;
        let mut line = BlockLine::of(block, run, self.id(block.loop_key)?, extends)?;
        for shown in self.read.block_messages(block.key)? {
            let (salt, digest, message) = match shown.body {
                None => (None, None, None),
                Some(body) => (
                    body.salt.as_ref().map(hex::encode),
                    Some(hex::encode(body.digest)),
                    match body.head {
                        None => None,
                        Some(_) => Some(raw(&to_json(&store::decode(self.read, body)?)?)?),
                    },
                ),
            };
            line.shows.push(ShownForm {
                recent: shown.section == Section::Recent,
                replaces: shown.replaces,
                quotes: shown.quotes.map(|key| self.id(key)).transpose()?,
                salt,
                digest,
                message,
            });
        }
        for row in self.read.coverage(block.key)? {
            let loop_id = self.id(row.loop_key)?;
            line.coverage.push(CoverageForm::of(&row, loop_id));
        }
        Ok(line)
    }

    fn name(&self, key: BlockKey) -> StoreResult<BlockAddress> {
        let block = self.read.block_by_key(key)?;
        Ok(BlockAddress {
            loop_id: self.id(block.loop_key)?,
            generation: block.generation,
        })
    }

    fn manifest(&mut self, row: &ManifestRow) -> Result<(), ExportError> {
        let mut parts = Vec::new();
        for part in &row.parts {
            parts.push(PartForm {
                loop_id: self.id(part.loop_key)?,
                section: part.section.clone(),
                block: part.block.map(|key| self.name(key)).transpose()?,
                seqs: part.seqs,
                messages: part.messages,
            });
        }
        let line = ManifestLine {
            record: LineKind::Manifest,
            manifest: row.manifest_id.clone(),
            loop_id: self.id(row.leaf)?,
            tick: row.tick,
            recorded_at: row.recorded_at.clone(),
            older_loops: row.older_loops.clone(),
            parts,
            size: row.size.into(),
            counter: row.counter.clone(),
            sha256: hex::encode(row.sha256),
        };
        self.line(&line)
    }
}

fn message_line(
    read: &dyn StoreRead,
    session: &SessionRow,
    loop_key: &LoopRow,
    row: MessageRow,
) -> StoreResult<MessageLine<AgentMessage>> {
    let is_there = row.body.head.is_some();
    Ok(MessageLine {
        record: LineKind::Message,
        session: session.session_id.clone(),
        loop_id: loop_key.loop_id.clone(),
        turn: row.turn,
        seq: row.seq,
        tokens: row.body.tokens,
        tick: row.tick,
        created_at: row.created_at,
        stamped: false,
        salt: row.body.salt.as_ref().map(hex::encode),
        digest: hex::encode(row.body.digest),
        message: match is_there {
            true => Some(store::decode(read, row.body)?),
            false => None,
        },
    })
}
