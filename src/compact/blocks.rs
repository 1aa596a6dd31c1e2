//! From a strategy's draft to the rows of a block: sizes and honest coverage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::planner::size_of;
use super::report::CoverageCounts;
use crate::compaction::plan::LoopFacts;
use crate::compaction::{Draft, Recent, Summary, seqs_of};
use crate::context::faults_of;
use crate::model::{AgentMessage, Content, Message, Role};
use crate::store::active_blocks::ChainLink;
use crate::store::append::size_through;
use crate::store::codec;
use crate::store::{
    self, BlockKind, BlockMessage, BlockRow, CoverageRow, Disposition, Layout, LoopKey,
    MessageSize, NewBlock, Section, Size, StoreError, StoreRead, StoreResult, Turns,
};
use crate::tokens::TokenCounter;

/// Checks a draft against the plan: its sections follow each other from the first turn to the last
/// planned one, and part no call from its result.
pub(super) fn check(
    draft: &Draft,
    planned: &Layout,
    facts: &[LoopFacts],
    depth: usize,
) -> Result<(), String> {
    let layout = draft.layout();
    if layout == *planned {
        return Ok(());
    }
    let mut next = 0;
    for turns in [layout.first, layout.compacted, layout.recent]
        .into_iter()
        .flatten()
    {
        if turns.first != next || turns.last < turns.first {
            return Err(format!(
                "a section begins at turn {} where {next} follows",
                turns.first
            ));
        }
        next = turns.end();
    }
    if next != planned.end() {
        return Err(format!(
            "the sections end at turn {next} of {}",
            planned.end()
        ));
    }
    let is_kept = |turn: u32| {
        layout
            .compacted
            .is_none_or(|c| turn < c.first || c.last < turn)
    };
    for answer in facts[depth]
        .answers
        .iter()
        .filter(|answer| answer.call.depth == depth)
    {
        if is_kept(answer.turn) != is_kept(answer.call.turn) {
            let (call, result) = (answer.call.turn, answer.turn);
            return Err(format!(
                "a call in turn {call} is parted from its result in {result}"
            ));
        }
    }
    Ok(())
}

/// Checks that a summary holds nothing that a provider would object to: a call without its
/// result, a result without its call.
pub(super) fn check_summary(summary: &Summary) -> Result<(), String> {
    if summary.messages.iter().any(|m| m.message().is_none()) {
        return Err("a summary holds an extension message, which no context shows".into());
    }
    match faults_of(&summary.messages, false).first() {
        None => Ok(()),
        Some(fault) => Err(format!(
            "message {} of a summary has a fault: {:?}",
            fault.message, fault.kind
        )),
    }
}

/// Checks the messages of a draft: the summary by itself, and each replaced message against its
/// original. From sequence `current` on a provider wants the thinking that it signed back.
pub(super) fn check_messages(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    through: u32,
    draft: &Draft,
    current: u32,
) -> StoreResult<Result<(), String>> {
    if let Some((_, summary)) = &draft.compacted
        && let Err(error) = check_summary(summary)
    {
        return Ok(Err(error));
    }
    let Some(recent) = &draft.recent else {
        return Ok(Ok(()));
    };
    let section = seqs_of(read, loop_key, recent.turns, through)?;
    for (seq, shown) in &recent.replaced {
        if !section.contains(seq) {
            return Ok(Err(format!("message {seq} is not in the section")));
        }
        let mut original = None;
        read.messages(loop_key, *seq..seq.saturating_add(1), &mut |row| {
            original = Some(store::decode(read, row.body)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let keeps = original
            .as_ref()
            .is_none_or(|original| stands_for(original, shown.as_ref(), *seq >= current));
        if !keeps {
            return Ok(Err(format!(
                "the replacement of message {seq} has not its role, its calls or its thinking"
            )));
        }
    }
    Ok(Ok(()))
}

/// Whether a message may be shown in place of another one: it has the same role and the same
/// calls or result, and with `signed` the same signed thinking.
fn stands_for(original: &AgentMessage, shown: Option<&AgentMessage>, signed: bool) -> bool {
    let marks = |message: Option<&AgentMessage>| {
        let inner = message.and_then(AgentMessage::message)?;
        let ids: Vec<String> = match inner {
            Message::ToolResult(result) => vec![result.tool_call_id.clone()],
            _ => inner.tool_calls().map(|call| call.id.clone()).collect(),
        };
        let thinking: Vec<Content> = inner
            .content()
            .iter()
            .filter_map(|block| match block {
                block if signed && block.is_signed_thinking() => Some(block.clone()),
                _ => None,
            })
            .collect();
        Some((ids, thinking))
    };
    match shown {
        None => marks(Some(original))
            .is_none_or(|(ids, thinking)| ids.is_empty() && thinking.is_empty()),
        Some(shown) => {
            shown.role() == original.role() && marks(Some(original)) == marks(Some(shown))
        }
    }
}

/// Returns the sequence after the last message of the first `turns` turns of a link.
pub(super) fn through(read: &dyn StoreRead, link: &ChainLink, turns: u32) -> StoreResult<u32> {
    let Some(last) = turns.checked_sub(1) else {
        return Ok(0);
    };
    let only = Turns { first: last, last };
    let seqs = seqs_of(read, link.row.key, only, link.end_seq)?;
    let mut end = seqs.start;
    read.sizes(link.row.key, seqs, &mut |message| {
        if message.role != Role::Extension {
            end = message.seq + 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(end)
}

/// Turns a draft into a block; `row` has its place, its sections and what made it.
pub(super) fn assemble(
    read: &dyn StoreRead,
    mut row: BlockRow,
    draft: Draft,
    counter: &dyn TokenCounter,
) -> StoreResult<NewBlock> {
    let mut parts = Parts {
        read,
        counter,
        loop_key: row.loop_key,
        through: row.through,
        size: Size::default(),
        block: NewBlock {
            row: row.clone(),
            messages: Vec::new(),
            coverage: Vec::new(),
            blobs: Vec::new(),
        },
    };
    if let Some(turns) = draft.first {
        parts.add_first(turns)?;
    }
    if let Some((turns, summary)) = draft.compacted {
        parts.add_compacted(turns, summary)?;
    }
    if let Some(recent) = draft.recent {
        parts.add_recent(recent)?;
    }
    row.size = parts.size;
    row.tokens_covered = size_through(read, row.loop_key, row.layout.end())?.tokens;
    let mut block = parts.block;
    close_gaps(&mut block.coverage, row.through);
    block.row = row;
    Ok(block)
}

/// Extensions between two ranges belong to the first of them.
fn close_gaps(coverage: &mut [CoverageRow], through: u32) {
    let starts: Vec<u32> = coverage
        .iter()
        .filter_map(|row| Some(row.seqs?.0))
        .skip(1)
        .collect();
    let ends = starts.into_iter().chain([through]);
    for (row, end) in coverage
        .iter_mut()
        .filter(|row| row.seqs.is_some())
        .zip(ends)
    {
        row.seqs = row.seqs.map(|(start, _)| (start, end.saturating_sub(1)));
    }
}

struct Parts<'a> {
    read: &'a dyn StoreRead,
    counter: &'a dyn TokenCounter,
    loop_key: LoopKey,
    through: u32,
    size: Size,
    block: NewBlock,
}

impl Parts<'_> {
    fn add_first(&mut self, turns: Turns) -> StoreResult<()> {
        self.size.add(size_of(self.read, self.loop_key, turns)?);
        self.cover(turns, Disposition::Kept)
    }

    fn cover(&mut self, turns: Turns, disposition: Disposition) -> StoreResult<()> {
        let seqs = seqs_of(self.read, self.loop_key, turns, self.through)?;
        self.block.coverage.push(CoverageRow {
            loop_key: self.loop_key,
            seqs: Some((seqs.start, seqs.end.saturating_sub(1))),
            turns: Some((turns.first, turns.last)),
            disposition,
        });
        Ok(())
    }

    fn add_compacted(&mut self, turns: Turns, summary: Summary) -> StoreResult<()> {
        for message in summary.messages {
            let (stored, blobs) = codec::encode(message, self.counter)?;
            self.size.add(size_of_stored(&stored));
            self.block.blobs.extend(blobs);
            let body = Some(stored);
            self.block.messages.push(BlockMessage {
                section: Section::Compacted,
                replaces: None,
                body,
            });
        }
        if self.block.row.kind == BlockKind::Rollup && !self.block.messages.is_empty() {
            return self.cover(turns, Disposition::RolledUp);
        }
        for (turns, disposition) in dispositions(turns, &summary.turns) {
            self.cover(turns, disposition)?;
        }
        Ok(())
    }

    fn add_recent(&mut self, recent: Recent) -> StoreResult<()> {
        self.size
            .add(size_of(self.read, self.loop_key, recent.turns)?);
        let mut replaced: BTreeMap<u32, _> = recent.replaced.into_iter().collect();
        let seqs = seqs_of(self.read, self.loop_key, recent.turns, self.through)?;
        let mut originals: Vec<(MessageSize, Disposition)> = Vec::new();
        self.read.sizes(self.loop_key, seqs, &mut |message| {
            if message.role != Role::Extension {
                let disposition = match replaced.get(&message.seq) {
                    None => Disposition::Kept,
                    Some(Some(_)) => Disposition::Truncated,
                    Some(None) => Disposition::Dropped,
                };
                originals.push((message, disposition));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (original, disposition) in &originals {
            self.cover_message(original, *disposition);
            let Some(other) = replaced.remove(&original.seq) else {
                continue;
            };
            self.size = self.size.without(original.size);
            let body = match other {
                None => None,
                Some(message) => {
                    let (stored, blobs) = codec::encode(message, self.counter)?;
                    self.size.add(size_of_stored(&stored));
                    self.block.blobs.extend(blobs);
                    Some(stored)
                }
            };
            let replaces = Some(original.seq);
            self.block.messages.push(BlockMessage {
                section: Section::Recent,
                replaces,
                body,
            });
        }
        match replaced.into_keys().next() {
            None => Ok(()),
            Some(seq) => Err(StoreError::Invalid(format!(
                "message {seq} is not in the section"
            ))),
        }
    }

    /// Covers one message of a kept range, together with its neighbours of the same lot.
    fn cover_message(&mut self, message: &MessageSize, disposition: Disposition) {
        let (seq, turn) = (message.seq, message.turn.unwrap_or_default());
        let after_first = self
            .block
            .row
            .layout
            .recent
            .map_or(0, |recent| recent.first);
        if let Some(row) = self.block.coverage.last_mut()
            && row.disposition == disposition
            && let (Some(seqs), Some(turns)) = (row.seqs.as_mut(), row.turns.as_mut())
            && turns.0 >= after_first
        {
            (seqs.1, turns.1) = (seq, turn);
            return;
        }
        self.block.coverage.push(CoverageRow {
            loop_key: self.loop_key,
            seqs: Some((seq, seq)),
            turns: Some((turn, turn)),
            disposition,
        });
    }
}

fn size_of_stored(stored: &crate::store::StoredMessage) -> Size {
    Size {
        tokens: stored.tokens,
        bytes: stored.bytes,
        messages: 1,
    }
}

/// Splits compacted turns into runs of summarised and dropped ones.
fn dispositions(turns: Turns, summarised: &BTreeSet<u32>) -> Vec<(Turns, Disposition)> {
    let mut runs: Vec<(Turns, Disposition)> = Vec::new();
    for turn in turns.first..=turns.last {
        let disposition = if summarised.contains(&turn) {
            Disposition::Summarised
        } else {
            Disposition::Dropped
        };
        match runs.last_mut() {
            Some((run, same)) if *same == disposition => run.last = turn,
            _ => runs.push((
                Turns {
                    first: turn,
                    last: turn,
                },
                disposition,
            )),
        }
    }
    runs
}

/// Counts the messages that each disposition of a block covers; extensions do not count.
pub(super) fn counts(
    read: &dyn StoreRead,
    coverage: &[CoverageRow],
) -> StoreResult<CoverageCounts> {
    let mut counts = CoverageCounts::default();
    for row in coverage {
        let messages = match (row.disposition, row.seqs, row.turns) {
            (Disposition::Kept | Disposition::Truncated | Disposition::Dropped, Some(seqs), _) => {
                let mut messages = 0;
                read.sizes(
                    row.loop_key,
                    seqs.0..seqs.1.saturating_add(1),
                    &mut |message| {
                        messages += u64::from(message.role != Role::Extension);
                        Ok(ControlFlow::Continue(()))
                    },
                )?;
                messages
            }
            (_, _, Some((first, last))) => {
                size_of(read, row.loop_key, Turns { first, last })?.messages
            }
            _ => 0,
        };
        counts.add(row.disposition, messages);
    }
    Ok(counts)
}
