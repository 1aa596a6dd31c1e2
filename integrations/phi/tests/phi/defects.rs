//! The known differences between phi-core's contexts and loopstore's: a fixed list, and how each is recognised
//! from phi-core's records. A difference that none of them explains is a fault of loopstore.

use std::collections::HashSet;

use phi_core::context::{
    CompactedSection, CompactionBlock, CompactionConfig, CompactionScope, TurnMap, TurnRange,
};
use phi_core::context::{build_context_from_session, total_tokens};
use phi_core::{AgentMessage, Content, LoopRecord, Message};

use super::world::World;

/// A window that everything fits.
pub const WIDE: usize = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// Turns after a block are in no context.
    TailHidden,
    /// A block from the time when its loop was the current one stays: the turns that it kept are not shown.
    AgedBlock,
    /// The first and the last turns of a block overlap, so that the context has them twice.
    TurnsTwice,
    /// With `keep_first_turns` of 0 the first turn is kept, next to its summary.
    FirstOfNone,
    /// A call and its result are treated differently.
    PairParted,
    /// A summary is as long as the turns that it replaces.
    SummaryTooLong,
    /// The whole context did not become smaller.
    NoGain,
    /// An open turn is compacted.
    InFlight,
    /// An extension is a turn of its own, splits the turn that contains it, and is in the context.
    ExtensionIsTurn,
    /// A branch from the middle of a loop shows all of that loop.
    WholeParent,
}

use Defect::*;

pub const ALL: [Defect; 10] = [
    TailHidden,
    AgedBlock,
    TurnsTwice,
    FirstOfNone,
    PairParted,
    SummaryTooLong,
    NoGain,
    InFlight,
    ExtensionIsTurn,
    WholeParent,
];

/// The loops that phi-core shows from the leaf.
struct Seen<'a> {
    world: &'a World,
    config: &'a CompactionConfig,
    /// The loops of the chain, root first.
    chain: Vec<&'a LoopRecord>,
    /// The loops of the chain that are in scope.
    scope: Vec<&'a LoopRecord>,
}

/// Returns the defects that show in the context of the leaf.
pub fn recognised(world: &World, config: &CompactionConfig) -> Vec<Defect> {
    let seen = Seen::new(world, config);
    ALL.into_iter().filter(|one| seen.shows(*one)).collect()
}

/// Returns the context that phi-core would show with whole blocks and the turns after them, if nothing else
/// differs: it then equals the context of loopstore.
pub fn repaired(
    world: &World,
    config: &CompactionConfig,
    defects: &[Defect],
) -> Option<Vec<AgentMessage>> {
    let seen = Seen::new(world, config);
    let blocks = |record: &LoopRecord| record.compaction_block.is_some();
    // loopstore would have replaced an aged block at a later compaction.
    let only_one_aged = seen.earlier().filter(|record| blocks(record)).count() == 1
        && seen
            .earlier()
            .last()
            .is_some_and(|record| seen.is_sound(record))
        && !blocks(world.leaf());
    // A turn that was open when the block was made may be complete by now.
    let answered = !world.traits.late_results && !world.traits.unanswered;
    let is_all = answered
        && match defects {
            [TailHidden] => seen.earlier().all(|record| !hides_tail(record)),
            [AgedBlock] | [TailHidden, AgedBlock] => only_one_aged,
            _ => false,
        };
    let shown = seen.scope.iter().flat_map(|record| whole_block(record));
    is_all.then(|| shown.collect())
}

/// Returns all messages that a block shows, and those after it.
fn whole_block(record: &LoopRecord) -> Vec<AgentMessage> {
    let Some(block) = &record.compaction_block else {
        return record.messages.clone();
    };
    let mut shown = Vec::new();
    if let Some(range) = &block.keep_first {
        shown.extend_from_slice(originals(record, range));
    }
    for section in [&block.keep_compacted, &block.keep_recent] {
        shown.extend(section.iter().flat_map(|section| section.messages.clone()));
    }
    let tail = TurnRange {
        start_turn: covered(record),
        end_turn: turns(record).saturating_sub(1),
    };
    if tail.start_turn <= tail.end_turn {
        shown.extend_from_slice(originals(record, &tail));
    }
    shown
}

fn turns(record: &LoopRecord) -> u32 {
    TurnMap::from_messages(&record.messages).turn_count()
}

fn originals<'a>(record: &'a LoopRecord, range: &TurnRange) -> &'a [AgentMessage] {
    TurnMap::from_messages(&record.messages).messages_for_range(range, &record.messages)
}

fn calls(message: &AgentMessage) -> Vec<&str> {
    let Some(Message::Assistant { content, .. }) = message.as_llm() else {
        return Vec::new();
    };
    let calls = content.iter().filter_map(|block| match block {
        Content::ToolCall { id, .. } => Some(id.as_str()),
        _ => None,
    });
    calls.collect()
}

fn answered(message: &AgentMessage) -> Option<&str> {
    match message.as_llm() {
        Some(Message::ToolResult { tool_call_id, .. }) => Some(tool_call_id),
        _ => None,
    }
}

impl<'a> Seen<'a> {
    fn new(world: &'a World, config: &'a CompactionConfig) -> Self {
        let ids = world.session.loop_chain_to(&world.leaf().loop_id);
        let chain: Vec<&LoopRecord> = ids
            .iter()
            .map(|id| world.session.get_loop(id).unwrap())
            .collect();
        let earlier = match config.compaction_scope {
            CompactionScope::FixedCount(count) => count,
            // The window holds every loop.
            CompactionScope::TokenBudget => chain.len(),
        };
        let scope = chain[chain.len().saturating_sub(earlier + 1)..].to_vec();
        Self {
            world,
            config,
            chain,
            scope,
        }
    }

    fn shows(&self, defect: Defect) -> bool {
        let leaf = self.world.leaf();
        let block = leaf.compaction_block.as_ref();
        match defect {
            TailHidden => self.scope.iter().any(|record| hides_tail(record)),
            AgedBlock => self.earlier().any(|record| {
                let block = record.compaction_block.as_ref();
                block.is_some_and(|b| b.keep_first.is_some() || b.keep_recent.is_some())
            }),
            TurnsTwice => block.is_some_and(overlaps),
            FirstOfNone => block.is_some() && self.config.keep_first_turns == 0,
            PairParted => self.parts_a_pair(),
            SummaryTooLong => self.scope.iter().any(|record| {
                let block = record.compaction_block.as_ref();
                block
                    .and_then(|block| block.keep_compacted.as_ref())
                    .is_some_and(|section| is_too_long(record, section))
            }),
            NoGain => block.is_some() && self.gains_nothing(),
            InFlight => block.is_some() && in_flight(leaf),
            ExtensionIsTurn => self
                .scope
                .iter()
                .flat_map(|record| &record.messages)
                .any(|message| message.as_llm().is_none()),
            WholeParent => {
                self.scope
                    .iter()
                    .zip(self.scope.iter().skip(1))
                    .any(|(parent, child)| {
                        let cut = self.world.cuts.get(&child.loop_id);
                        cut.is_some_and(|cut| cut + 1 < turns(parent))
                    })
            }
        }
    }

    fn earlier(&self) -> impl Iterator<Item = &&LoopRecord> {
        self.scope[..self.scope.len() - 1].iter()
    }

    /// Returns true if the loop has a block that loopstore would have made, too.
    fn is_sound(&self, record: &LoopRecord) -> bool {
        let (first, whole) = (self.config.keep_first_turns, whole_block(record));
        let overlaps = record.compaction_block.as_ref().is_some_and(overlaps);
        record.compaction_block.is_some()
            && first > 0
            && !overlaps
            && !in_flight(record)
            && total_tokens(&whole) < total_tokens(&record.messages)
    }

    fn gains_nothing(&self) -> bool {
        let leaf = &self.world.leaf().loop_id;
        let context =
            build_context_from_session(&self.world.session, leaf, self.config, WIDE, None);
        let raw: usize = self.scope.iter().map(|r| total_tokens(&r.messages)).sum();
        total_tokens(&context) >= raw
    }

    /// Returns the loop and the section of a turn.
    fn section(&self, record: &LoopRecord, turn: u32) -> (String, u32) {
        let within = |range: &TurnRange| (range.start_turn..=range.end_turn).contains(&turn);
        let section = record.compaction_block.as_ref().map_or(0, |block| {
            let first = block.keep_first.as_ref().is_some_and(within);
            let middle = block.keep_compacted.as_ref();
            let recent = block.keep_recent.as_ref();
            match () {
                () if recent.is_some_and(|section| within(&section.range)) => 3,
                () if middle.is_some_and(|section| within(&section.range)) => 2,
                () if first => 1,
                () => 4,
            }
        });
        (record.loop_id.clone(), section)
    }

    fn parts_a_pair(&self) -> bool {
        let mut made = Vec::new();
        for record in &self.chain {
            let map = TurnMap::from_messages(&record.messages);
            for turn in 0..map.turn_count() {
                let (from, to) = map.turn_msg_range(turn).unwrap();
                let place = self.section(record, turn);
                for message in &record.messages[from..=to] {
                    made.extend(calls(message).into_iter().map(|id| (id, place.clone())));
                    let call = answered(message).and_then(|id| made.iter().find(|c| c.0 == id));
                    if call.is_some_and(|(_, at)| *at != place) {
                        return true;
                    }
                }
            }
        }
        false
    }
}

/// Returns true if the first turns of a block are among its last ones.
fn overlaps(block: &CompactionBlock) -> bool {
    let first = block.keep_first.as_ref().map(|range| range.end_turn);
    let recent = block.keep_recent.as_ref().map(|s| s.range.start_turn);
    first
        .zip(recent)
        .is_some_and(|(first, recent)| first >= recent)
}

fn hides_tail(record: &LoopRecord) -> bool {
    record.compaction_block.is_some() && covered(record) < turns(record)
}

/// Returns the number of turns that a loop's block covers; a block without sections covers none.
fn covered(record: &LoopRecord) -> u32 {
    let Some(block) = &record.compaction_block else {
        return 0;
    };
    let ends = [
        block.keep_first.as_ref().map(|range| range.end_turn),
        block.keep_compacted.as_ref().map(|s| s.range.end_turn),
        block.keep_recent.as_ref().map(|s| s.range.end_turn),
    ];
    ends.into_iter().flatten().max().map_or(0, |end| end + 1)
}

fn is_too_long(record: &LoopRecord, section: &CompactedSection) -> bool {
    total_tokens(&section.messages) >= total_tokens(originals(record, &section.range))
}

/// Returns true if the last turn waits for its answer or for a result.
fn in_flight(record: &LoopRecord) -> bool {
    let Some(last) = turns(record).checked_sub(1) else {
        return false;
    };
    let range = TurnRange {
        start_turn: last,
        end_turn: last,
    };
    let last = originals(record, &range);
    let results: HashSet<&str> = record.messages.iter().filter_map(answered).collect();
    let answers =
        |message: &&AgentMessage| matches!(message.as_llm(), Some(Message::Assistant { .. }));
    !last.iter().any(|message| answers(&message))
        || last.iter().flat_map(calls).any(|id| !results.contains(id))
}
