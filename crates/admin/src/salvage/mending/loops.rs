//! The repair of a loop: it ends before its first damaged message, and derived rows are derived again.

use std::ops::ControlFlow;

use loopstore::extend::{LoopKey, LoopMeta, LoopRow, MessageRow, StoreError, StoreResult, codec};
use loopstore::internal::{LoopRebuild, Removable, to_json};
use loopstore::model::LoopRecord;
use loopstore_verify::internal::Subject;
use loopstore_verify::{Problem, ProblemKind};

use super::{ATTEMPTS, SalvageMending};

impl SalvageMending<'_, '_> {
    /// Ends a loop before its first damaged message, and derives the rest again. A loop that cannot be repaired
    /// is removed.
    pub(super) fn one_loop(
        &mut self,
        key: LoopKey,
        faults: &[&(Subject, Problem)],
    ) -> StoreResult<()> {
        let attempt = self.attempt(Subject::Loop(key));
        let of_message = |fault: &&&(Subject, Problem)| match fault.0 {
            // Derived columns of a message are repaired; at the second attempt the message is removed.
            Subject::Message(_, seq) => (attempt > 1 || !is_derived(fault.1.kind)).then_some(seq),
            _ => None,
        };
        let first = faults
            .iter()
            .filter_map(|fault| Some((of_message(&fault)?, &fault.1)))
            .min_by_key(|(seq, _)| *seq);
        let (_, problem) = faults[0];
        let whole = |problem: &Problem| {
            let place = problem.place.split(", message ").next().unwrap_or_default();
            place.split(", turn ").next().unwrap_or_default().to_owned()
        };
        let Some(row) = self.loop_row(key)? else {
            return self.remove_loop(key, problem);
        };
        if first.is_none() && attempt > ATTEMPTS {
            return self.remove_loop(key, problem);
        }
        if let Some((seq, problem)) = first {
            self.cut(&row, seq, &whole(problem), &problem.detail)?;
        } else if let Some(seq) = self.tail_is_gone(&row)? {
            self.cut(&row, seq, &whole(problem), "nothing is there")?;
        }
        self.meta(key, problem)?;
        self.parent(key)?;
        match self.rebuild(key) {
            Err(StoreError::Damaged(_)) => self.remove_loop(key, problem),
            outcome => outcome,
        }
    }

    fn cut(&mut self, row: &LoopRow, seq: u32, place: &str, reason: &str) -> StoreResult<()> {
        self.mender.cut(row.key, seq)?;
        let last = row.totals.next_seq.saturating_sub(1).max(seq);
        let reason = format!("it ends before message {seq}: {reason}");
        let place = format!("{place}, messages {seq} to {last}");
        self.lose("message", place, reason);
        Ok(())
    }

    /// Returns the end of a loop whose last messages are gone. A wrong number in its row is ignored if the
    /// row's chain of digests is that of the last message.
    fn tail_is_gone(&self, row: &LoopRow) -> StoreResult<Option<u32>> {
        let (mut next, mut chain) = (0, [0; 32]);
        let read = self
            .mender
            .scan()
            .messages(row.key, 0..u32::MAX, &mut |message| {
                if message.seq != next {
                    return Ok(ControlFlow::Break(()));
                }
                next += 1;
                chain = message.chain;
                Ok(ControlFlow::Continue(()))
            });
        match read {
            Ok(()) | Err(StoreError::Damaged(_)) => {}
            Err(error) => return Err(error),
        }
        Ok((next < row.totals.next_seq && chain != row.progress.chain).then_some(next))
    }

    /// Returns the row of a loop, without its derived columns if these make it unreadable.
    fn loop_row(&mut self, key: LoopKey) -> StoreResult<Option<LoopRow>> {
        if let Ok(row) = self.mender.scan().loop_by_key(key) {
            return Ok(Some(row));
        }
        self.mender.forget_totals(key)?;
        Ok(self.mender.scan().loop_by_key(key).ok())
    }

    fn remove_loop(&mut self, key: LoopKey, problem: &Problem) -> StoreResult<()> {
        self.lose("loop", &problem.place, &problem.detail);
        self.mender.remove(Removable::Loop(key))
    }

    /// Replaces the metadata of a loop's source if they cannot be read.
    fn meta(&mut self, key: LoopKey, problem: &Problem) -> StoreResult<()> {
        let row = self.mender.scan().loop_by_key(key)?;
        let LoopMeta { meta, history } = self.mender.scan().loop_meta(key)?;
        let record = serde_json::from_str::<LoopRecord>(&meta);
        let is_own = record.is_ok_and(|record| record.loop_id == row.loop_id);
        let is_json = |text: &String| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let history_is_json = history.as_ref().is_none_or(is_json);
        if is_own && history_is_json {
            return Ok(());
        }
        let reason = "what its source said of it cannot be read";
        self.lose("loop", &problem.place, reason);
        let meta = match is_own {
            true => meta,
            false => to_json(&LoopRecord::new(row.core.loop_id, row.parent_loop_id))?,
        };
        let history = history.filter(|_| history_is_json);
        self.mender
            .write()
            .update_loop_meta(key, &LoopMeta { meta, history })
    }

    /// Makes a loop a root if its parent has lost the turn that it continues.
    fn parent(&mut self, key: LoopKey) -> StoreResult<()> {
        let row = self.mender.scan().loop_by_key(key)?;
        let Some(parent) = row.parent else {
            // Without the parent its turn means nothing.
            return match row.parent_turn {
                Some(_) => self.mender.detach(key),
                None => Ok(()),
            };
        };
        let reason = match self.mender.scan().loop_by_key(parent) {
            Err(_) => "its parent is gone",
            Ok(parent) if parent.session != row.session => "its parent is in another session",
            Ok(parent) if row.parent_loop_id.as_ref() != Some(&parent.loop_id) => {
                "its parent is not the one that it names"
            }
            Ok(parent)
                if row.parent_turns() > parent.totals.turns
                    || row
                        .parent_seq
                        .is_some_and(|seq| seq >= parent.totals.next_seq) =>
            {
                "its parent has lost the turn that it goes on from"
            }
            Ok(_) => return Ok(()),
        };
        self.detach(key, reason)
    }

    pub(super) fn detach(&mut self, key: LoopKey, reason: &str) -> StoreResult<()> {
        let place = match self.loop_row(key)? {
            Some(row) => format!("loop {}, its parent", row.loop_id),
            None => format!("loop with key {}, its parent", key.0),
        };
        self.lose(
            "parent",
            place,
            format!("{reason}; it begins a chain of its own"),
        );
        self.mender.detach(key)?;
        match self.rebuild(key) {
            // Another fault of the loop, which the repair of its session finds.
            Err(StoreError::Damaged(_)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Derives the turns and totals of a loop again from its messages.
    fn rebuild(&mut self, key: LoopKey) -> StoreResult<()> {
        let row = self.mender.scan().loop_by_key(key)?;
        let session = self.mender.scan().session_by_key(row.session)?;
        self.mender.forget_turns(key)?;
        let mut rebuild = LoopRebuild::begin(row.core, (&session).into());
        let mut next = 0;
        while let Some(row) = self.message(key, next)? {
            next = row.seq.saturating_add(1);
            let (mut row, mut shown) = (row, Vec::new());
            let scan = self.mender.scan();
            let message = codec::decode(row.body.clone(), &mut |name| {
                shown.push(*name);
                scan.blob(name)
            });
            // The message is found again later, and the loop ends before it.
            let Ok(message) = message else { break };
            row.body.tokens = codec::count_message(&message, self.counter)?;
            row.body.bytes = codec::json_bytes(&message)?;
            row.body.lines = codec::tool_result_lines(&message);
            let row = rebuild.push(self.mender.write(), row, &message)?;
            self.mender.rewrite(key, &row, &shown)?;
        }
        rebuild.finish(self.mender.write())
    }

    /// Returns the message with this sequence, if it exists and can be read.
    fn message(&self, key: LoopKey, seq: u32) -> StoreResult<Option<MessageRow>> {
        let mut found = None;
        let read = self
            .mender
            .scan()
            .messages(key, seq..seq.saturating_add(1), &mut |row| {
                found = Some(row);
                Ok(ControlFlow::Break(()))
            });
        match read {
            Err(StoreError::Damaged(_)) => Ok(None),
            read => read.map(|()| found),
        }
    }
}

/// True if the wrong value is derived from the text of the message.
fn is_derived(kind: ProblemKind) -> bool {
    use ProblemKind as Kind;
    matches!(kind, Kind::Count | Kind::Turn | Kind::Chain | Kind::Blob)
}
