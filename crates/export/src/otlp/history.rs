//! The compactions and edits of a session: their events, and the moments from which they apply.

use std::collections::HashMap;
use std::ops::ControlFlow;

use loopstore::extend::{
    EditRow, FlipRow, LoopKey, Outcome, Point, RunRow, Section, SessionRow, StoreRead, StoreResult,
    Tick, shown_message,
};
use loopstore::model::{LoopId, Time, Usage};

use super::parts::{self, messages_json};
use super::wire::{OtlpAttributes, OtlpEvent, UnixNano, word};
use super::{ExportError, OtlpContent};

/// The runs of a session, oldest first, each with its undos and redos.
pub(super) struct SessionHistory(Vec<(RunRow, Vec<FlipRow>)>);

/// The loops of a chain, each with the number of its turns that belong to the chain.
pub(super) type ChainCuts = [(LoopKey, u32)];

impl SessionHistory {
    /// Reads the runs of a session.
    pub(super) fn of(read: &dyn StoreRead, session: &SessionRow) -> StoreResult<Self> {
        let mut runs = Vec::new();
        read.runs(session.key, &mut |mut run| {
            // The record of another tool may be large.
            run.record = None;
            runs.push(run);
            Ok(ControlFlow::Continue(()))
        })?;
        runs.reverse();
        let with_flips = |run: RunRow| Ok((read.flips(run.key)?, run));
        let runs: StoreResult<Vec<_>> = runs.into_iter().map(with_flips).collect();
        let runs = runs?.into_iter().map(|(flips, run)| (run, flips));
        Ok(Self(runs.collect()))
    }

    /// True if a compaction was in effect on the chain at `tick`.
    pub(super) fn is_compacted(&self, chain: &ChainCuts, tick: Tick) -> bool {
        let counts = |point: Point| {
            let cut = chain.iter().find(|(key, _)| *key == point.loop_key);
            cut.is_some_and(|(_, turns)| point.turns <= *turns)
        };
        self.0.iter().any(|(run, flips)| {
            let is_compaction = run.outcome == Outcome::Committed && !run.is_edit();
            let mut flips = flips.iter().rev();
            let last = flips.find(|flip| flip.tick < tick && counts(flip.point));
            is_compaction
                && run.tick < tick
                && counts(run.point)
                && last.is_none_or(|flip| flip.redo)
        })
    }

    /// Returns the events of the runs of a loop, and of the undos and redos that were made there.
    pub(super) fn events(
        &self,
        read: &dyn StoreRead,
        key: LoopKey,
        names: &HashMap<LoopKey, LoopId>,
        content: OtlpContent,
    ) -> Result<Vec<OtlpEvent>, ExportError> {
        let mut events = Vec::new();
        for (run, flips) in &self.0 {
            if run.point.loop_key == key {
                events.push((run.tick, run_event(read, run, content)?));
                for edit in read.edits_of_run(run.key)? {
                    events.push((run.tick, edit_event(run, &edit, names, content)));
                }
            }
            let own = flips.iter().filter(|flip| flip.point.loop_key == key);
            events.extend(own.map(|flip| (flip.tick, flip_event(run, flip, content))));
        }
        events.sort_by_key(|(tick, _)| *tick);
        Ok(events.into_iter().map(|(_, event)| event).collect())
    }
}

fn instant(text: &str, later_ms: u64) -> UnixNano {
    let at = Time::from_text(text).millis().unwrap_or_default();
    let end = at.saturating_add_unsigned(later_ms);
    UnixNano::from_millis(end).unwrap_or_default()
}

/// Returns the event of a run: `loopstore.compaction`, or `loopstore.edits` if it only edits.
fn run_event(
    read: &dyn StoreRead,
    run: &RunRow,
    content: OtlpContent,
) -> Result<OtlpEvent, ExportError> {
    let mut attributes = OtlpAttributes::default();
    attributes.text("loopstore.run.id", run.run_id.as_str());
    attributes.text("loopstore.run.outcome", run.outcome.as_str());
    attributes.text("loopstore.run.trigger", word(&run.trigger));
    attributes.text("loopstore.run.strategy", word(&run.strategy));
    attributes.int("loopstore.run.round", u64::from(run.round));
    attributes.text_if("loopstore.run.fallback", run.fallback.as_deref().map(word));
    attributes.text("loopstore.run.counter", word(&run.counter));
    for (name, size) in [("before", run.before), ("after", run.after)] {
        attributes.int(&format!("loopstore.run.tokens_{name}"), size.tokens);
        attributes.int(&format!("loopstore.run.messages_{name}"), size.messages);
        attributes.int(&format!("loopstore.run.bytes_{name}"), size.bytes);
    }
    attributes.int("loopstore.run.duration_ms", run.duration_ms);
    let usage = run.usage.as_deref();
    if let Some(usage) = usage.and_then(|text| serde_json::from_str::<Usage>(text).ok()) {
        add_usage(&mut attributes, &TokenSums::of(&usage));
    }
    if content == OtlpContent::Included {
        attributes.text_if("loopstore.run.error", run.error.as_deref());
        let texts = summaries(read, run)?;
        let shown = texts.iter().filter_map(parts::shown_message);
        if !texts.is_empty() {
            attributes.text("loopstore.run.messages", messages_json(shown, false)?);
        }
    }
    Ok(OtlpEvent {
        time_unix_nano: instant(&run.started_at, run.duration_ms),
        name: match run.is_edit() {
            true => "loopstore.edits",
            false => "loopstore.compaction",
        },
        attributes,
    })
}

/// Returns the messages that a run shows instead of the turns that it compacted.
fn summaries(
    read: &dyn StoreRead,
    run: &RunRow,
) -> StoreResult<Vec<loopstore::model::AgentMessage>> {
    let mut shown = Vec::new();
    for block in read.blocks_of_run(run.key)? {
        for message in read.block_messages(block.key)? {
            if message.section == Section::Compacted {
                shown.extend(shown_message(read, block.quoting(), message)?);
            }
        }
    }
    Ok(shown)
}

fn edit_event(
    run: &RunRow,
    edit: &EditRow,
    names: &HashMap<LoopKey, LoopId>,
    content: OtlpContent,
) -> OtlpEvent {
    let mut attributes = OtlpAttributes::default();
    attributes.text("loopstore.run.id", run.run_id.as_str());
    attributes.text("loopstore.edit.action", edit.action.as_str());
    let loop_id = names.get(&edit.loop_key);
    attributes.text_if("loopstore.edit.loop.id", loop_id.map(LoopId::as_str));
    attributes.int("loopstore.edit.first_seq", u64::from(edit.seqs.0));
    attributes.int("loopstore.edit.last_seq", u64::from(edit.seqs.1));
    if let Some(part) = edit.part {
        attributes.int("loopstore.edit.part", u64::from(part.number));
    }
    attributes.int("loopstore.edit.tokens_before", edit.before.tokens);
    attributes.int("loopstore.edit.tokens_after", edit.after.tokens);
    if content == OtlpContent::Included {
        attributes.text_if("loopstore.edit.text", edit.text.as_deref());
    }
    OtlpEvent {
        time_unix_nano: instant(&run.started_at, run.duration_ms),
        name: "loopstore.edit",
        attributes,
    }
}

fn flip_event(run: &RunRow, flip: &FlipRow, content: OtlpContent) -> OtlpEvent {
    let mut attributes = OtlpAttributes::default();
    attributes.text("loopstore.run.id", run.run_id.as_str());
    if content == OtlpContent::Included {
        attributes.text_if("loopstore.flip.reason", flip.reason.as_deref());
    }
    OtlpEvent {
        time_unix_nano: instant(&flip.at, 0),
        name: match flip.redo {
            true => "loopstore.redo",
            false => "loopstore.undo",
        },
        attributes,
    }
}

/// Sums of reported tokens. `input` includes cached tokens, as the conventions ask.
#[derive(Clone, Copy, Default)]
pub(super) struct TokenSums {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: Option<u64>,
    pub(super) cache_write: Option<u64>,
    pub(super) reasoning: Option<u64>,
}

impl TokenSums {
    pub(super) fn of(usage: &Usage) -> Self {
        let count = |int: i64| u64::try_from(int).unwrap_or(0);
        let maybe = |int: &Option<loopstore::model::Int>| int.as_ref().map(|int| count(int.get()));
        let output = count(usage.output.get());
        let (cache_read, cache_write) = (maybe(&usage.cache_read), maybe(&usage.cache_write));
        // Some sources include cached tokens in the input, others do not.
        let all = loopstore::tokens::reported_tokens(usage);
        let input = match all {
            Some(all) => all.saturating_sub(output),
            None => count(usage.input.get()),
        };
        Self {
            input,
            output,
            cache_read,
            cache_write,
            reasoning: maybe(&usage.reasoning),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        let maybe = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        };
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = maybe(self.cache_read, other.cache_read);
        self.cache_write = maybe(self.cache_write, other.cache_write);
        self.reasoning = maybe(self.reasoning, other.reasoning);
    }
}

/// Adds the usage to the attributes of a span or an event.
pub(super) fn add_usage(attributes: &mut OtlpAttributes, sums: &TokenSums) {
    attributes.int("gen_ai.usage.input_tokens", sums.input);
    attributes.int("gen_ai.usage.output_tokens", sums.output);
    for (key, count) in [
        ("gen_ai.usage.cache_read.input_tokens", sums.cache_read),
        ("gen_ai.usage.cache_write.input_tokens", sums.cache_write),
        ("gen_ai.usage.reasoning.output_tokens", sums.reasoning),
    ] {
        if let Some(count) = count {
            attributes.int(key, count);
        }
    }
}
