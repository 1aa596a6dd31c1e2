//! The place at which a loop is split, and what is before and after it.

use std::collections::HashSet;

use loopstore::model::{AgentMessage, LoopId, Message};
use loopstore_transcripts::internal::form::JsonTurnRef;

use crate::document::{LoopDocument, RunDocument, StoredMessageLine};

/// The place at which a loop is split.
pub(crate) struct LoopFork<'a> {
    pub(crate) loop_id: &'a LoopId,
    pub(crate) branch: &'a LoopId,
    /// The first turn of the branch, and its first message.
    pub(crate) turn: u32,
    pub(crate) seq: u32,
    /// True if the loop gets another id as a whole.
    pub(crate) is_whole: bool,
    /// The first message that differs, and its tick.
    pub(crate) different: u32,
    tick: i64,
    /// True if the first turn of the branch was complete before the message that differs.
    was_complete: bool,
    /// The messages of the loop before the split.
    pub(crate) messages: Vec<StoredMessageLine>,
    /// The tokens, bytes and messages of the loop before the first turn of the branch.
    pub(crate) before: (u64, u64, u64),
}

impl LoopFork<'_> {
    /// Moves a point of a session: a loop, and the number of its complete turns.
    pub(crate) fn move_point(&self, loop_id: &mut LoopId, turns: &mut u32) {
        if loop_id == self.loop_id {
            loop_id.clone_from(self.branch);
            *turns = turns.saturating_sub(self.turn);
        }
    }

    /// True if something that was done to the loop when it had so many complete turns belongs to the branch. The tick
    /// decides only if the turn that differs was complete before and after the message that differs.
    pub(crate) fn is_point_after(&self, turns: u32, tick: i64) -> bool {
        let is_in_turn = turns == self.turn + 1 && self.was_complete;
        self.is_whole || turns > self.turn && (!is_in_turn || tick >= self.tick)
    }

    /// True if a loop that continues this one continues the branch.
    pub(crate) fn is_child_after(&self, child: &LoopDocument) -> bool {
        let line = &child.line;
        match (line.parent_turn, line.parent_seq) {
            _ if self.is_whole => true,
            (None, _) => false,
            (Some(turn), _) if turn != self.turn => turn > self.turn,
            (_, Some(seq)) => seq >= self.different,
            (_, None) => {
                self.seq == self.different || line.tick >= self.tick || self.is_answered_in(child)
            }
        }
    }

    /// True if a loop has the result of a call from the message that differs on.
    fn is_answered_in(&self, child: &LoopDocument) -> bool {
        let after = self.messages.get(self.different as usize..);
        let calls: HashSet<String> = messages_of(after.unwrap_or_default())
            .flat_map(|message| calls_in(&message))
            .collect();
        messages_of(&child.messages).any(|message| match message {
            Message::ToolResult(result) => calls.contains(&result.tool_call_id),
            _ => false,
        })
    }

    /// True if a run on the loop belongs to the branch.
    pub(crate) fn is_run_after(&self, run: &RunDocument) -> bool {
        let edits = &mut run.edits.iter();
        if edits.any(|edit| edit.loop_id == *self.loop_id && edit.seqs.1 >= self.different) {
            return true;
        }
        let blocks = run.blocks.iter().map(|block| &block.line);
        let own = blocks.filter(|line| line.loop_id == *self.loop_id);
        let through = own.map(|line| line.through).max().unwrap_or(0);
        self.is_point_after(run.line.turns, run.line.tick) || through > self.different
    }

    /// Moves the place of a message.
    pub(crate) fn move_seq(&self, loop_id: &mut LoopId, seq: &mut u32) {
        if loop_id == self.loop_id && *seq >= self.seq {
            loop_id.clone_from(self.branch);
            *seq -= self.seq;
        }
    }

    pub(crate) fn move_turn(&self, place: &mut JsonTurnRef) {
        if place.loop_id == *self.loop_id && place.turn >= self.turn {
            place.loop_id.clone_from(self.branch);
            place.turn -= self.turn;
        }
    }

    /// Returns the two parts of a range of turns.
    pub(crate) fn parts_of_turns(&self, range: Option<(u32, u32)>) -> RangeParts {
        parts(range, self.turn)
    }

    /// Returns the two parts of a range of messages.
    pub(crate) fn parts_of_seqs(&self, range: Option<(u32, u32)>) -> RangeParts {
        parts(range, self.seq)
    }
}

/// The part of a range that stays, and the part in the branch, as numbered there.
pub(crate) type RangeParts = (Option<(u32, u32)>, Option<(u32, u32)>);

fn parts(range: Option<(u32, u32)>, at: u32) -> RangeParts {
    let Some((first, last)) = range else {
        return (None, None);
    };
    let stays = (first < at).then(|| (first, last.min(at.saturating_sub(1))));
    let moved = (last >= at).then(|| (first.max(at) - at, last - at));
    (stays, moved)
}

/// Returns the place at which a loop of a session is split: before its message `seq`, or as a whole.
pub(crate) fn fork_of<'a>(
    one: &LoopDocument,
    seq: Option<u32>,
    (loop_id, branch): (&'a LoopId, &'a LoopId),
) -> LoopFork<'a> {
    let (is_whole, seq) = (seq.is_none(), seq.unwrap_or(0));
    let rest = one.messages.get(seq as usize..).unwrap_or_default();
    let different = rest.first().filter(|_| !is_whole);
    let mut turn = different.and_then(|message| message.turn).unwrap_or(0);
    let mut first = one
        .turns
        .get(turn as usize)
        .map_or(0, |turn| turn.first_seq);
    // Extensions after a turn do not change it.
    let of_turn = rest.iter().take_while(|message| message.turn == Some(turn));
    if different.is_some_and(|message| message.turn.is_some())
        && first < seq
        && of_turn.into_iter().all(is_extension)
    {
        (turn, first) = (turn + 1, seq);
    }
    let last = turn
        .checked_sub(1)
        .and_then(|last| one.turns.get(last as usize));
    let first = if turn == 0 { 0 } else { first };
    let common = one.messages.get(first as usize..seq as usize);
    LoopFork {
        loop_id,
        branch,
        turn,
        seq: first,
        is_whole,
        different: seq,
        tick: different.map_or(i64::MIN, |message| message.tick),
        was_complete: is_complete(common.unwrap_or_default()),
        messages: one.messages.clone(),
        before: last.map_or((0, 0, 0), |last| (last.tokens, last.bytes, last.messages)),
    }
}

/// True if the messages of a turn have an answer and the results of all calls.
fn is_complete(messages: &[StoredMessageLine]) -> bool {
    let (mut is_answered, mut open) = (false, HashSet::new());
    for message in messages_of(messages) {
        is_answered |= matches!(message, Message::Assistant(_));
        open.extend(calls_in(&message));
        if let Message::ToolResult(result) = &message {
            open.remove(&result.tool_call_id);
        }
    }
    is_answered && open.is_empty()
}

/// Returns the messages that are no extensions.
fn messages_of(lines: &[StoredMessageLine]) -> impl Iterator<Item = Message> {
    let stored = lines.iter().filter_map(|line| line.message.as_ref());
    let read = stored.filter_map(|json| serde_json::from_str::<AgentMessage>(json.get()).ok());
    read.filter_map(|message| message.message().cloned())
}

/// Returns the ids of the calls of a message.
fn calls_in(message: &Message) -> Vec<String> {
    message.tool_calls().map(|call| call.id.clone()).collect()
}

/// True if a message is an extension, which belongs to no turn of its own.
fn is_extension(line: &StoredMessageLine) -> bool {
    let message = line.message.as_ref();
    let message = message.and_then(|json| serde_json::from_str(json.get()).ok());
    matches!(message, Some(AgentMessage::Extension(_)))
}
