//! The turns with thinking of a conversation, and those that a report refers to.
//!
//! The documentation calls a turn what the model writes between two prompts, with the results of its calls; yet a
//! provider may count each answer. Both readings are tried. Since the provider clears all turns but the newest that the
//! setting keeps, a known setting shows which reading has the reported number. In the same way the number shows whether
//! the request contained thinking that was cleared before, if that is not known.

use std::collections::HashSet;

use super::{BlockPlace, EditedRequest, ResolvedEdits, ResolvedThinking, UnresolvedEdit, reported};
use crate::Form;
use crate::write::kept_item;
use loopstore_model::{ClearedThinking, Content, Role};

/// The end of a turn.
#[derive(Clone, Copy, PartialEq)]
enum ThinkingTurnEnd {
    /// The next prompt.
    Prompt,
    /// The next prompt or tool result.
    Answer,
}

/// The blocks of thinking of a turn.
type TurnThinking = Vec<BlockPlace>;

/// Adds the turns of an edit.
pub(super) fn resolve(
    edit: &ClearedThinking,
    request: &EditedRequest<'_>,
    resolved: &mut ResolvedEdits,
) {
    let count = reported(&edit.turns);
    let taken: HashSet<BlockPlace> = resolved
        .thinking
        .iter()
        .flat_map(|turn| turn.blocks.iter().copied())
        .collect();
    let mut readings = Vec::new();
    for end in [ThinkingTurnEnd::Prompt, ThinkingTurnEnd::Answer] {
        for counts_cleared in counts(request, count) {
            let mut turns = eligible(request, end, counts_cleared);
            turns.retain(|turn| !turn.iter().any(|block| taken.contains(block)));
            readings.push(turns);
        }
    }
    let mut picked = choose(readings, count, kept(request).is_some());
    picked.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    let missing = count.saturating_sub(picked.len() as u64);
    for blocks in picked {
        if request.is_cleared(&blocks) {
            resolved.repeated_thinking += 1;
        } else {
            resolved.thinking.push(ResolvedThinking { blocks });
        }
    }
    if missing > 0 {
        let missing = UnresolvedEdit::Thinking(missing);
        resolved.unresolved.push(missing);
    }
}

/// Returns the number of newest turns that the setting keeps, if it is known.
fn kept(request: &EditedRequest<'_>) -> Option<usize> {
    let setting = request.setting?.clear_thinking?;
    Some(setting.kept())
}

/// Returns whether the report counts turns that were cleared before: the likelier answer first, if both are possible.
fn counts(request: &EditedRequest<'_>, count: u64) -> Vec<bool> {
    match request.sends_cleared_thinking {
        _ if !request.counts_cleared => vec![false],
        Some(sends) => vec![sends],
        None => {
            let turns = turns(request, ThinkingTurnEnd::Prompt);
            let cleared = turns.iter().filter(|turn| request.is_cleared(turn)).count() as u64;
            // An agent that sends all thinking each time has more cleared each time.
            let is_more = count > cleared;
            vec![is_more, !is_more]
        }
    }
}

/// Returns the reading with the reported number of turns, else the first with as many.
fn choose(
    mut readings: Vec<Vec<TurnThinking>>,
    count: u64,
    is_kept_known: bool,
) -> Vec<TurnThinking> {
    let len = |turns: &Vec<TurnThinking>| turns.len() as u64;
    let exact = readings.iter().position(|turns| len(turns) == count);
    let enough = readings.iter().position(|turns| len(turns) >= count);
    let last = readings.len().saturating_sub(1);
    let found = exact.filter(|_| is_kept_known).or(enough);
    readings.swap_remove(found.unwrap_or(last))
}

/// Returns the turns with thinking that the setting does not keep.
fn eligible(
    request: &EditedRequest<'_>,
    end: ThinkingTurnEnd,
    counts_cleared: bool,
) -> Vec<TurnThinking> {
    let mut turns = turns(request, end);
    // The provider keeps one turn at least, which tells requests with all thinking from those without.
    let least = usize::from(request.sends_cleared_thinking.is_none());
    turns.truncate(turns.len().saturating_sub(kept(request).unwrap_or(least)));
    turns.retain(|turn| counts_cleared || !request.is_cleared(turn));
    turns
}

/// Returns the turns of a request that have thinking, in order.
fn turns(request: &EditedRequest<'_>, end: ThinkingTurnEnd) -> Vec<TurnThinking> {
    let (mut turns, mut open) = (Vec::new(), TurnThinking::new());
    for (at, message) in request.messages() {
        match message.role() {
            Role::Assistant => {
                let blocks = request.blocks(at);
                let blocks = blocks.filter(|(_, block)| is_sent_thinking(block));
                open.extend(blocks.map(|(block, _)| BlockPlace { message: at, block }));
            }
            Role::ToolResult if end == ThinkingTurnEnd::Prompt => {}
            Role::User | Role::ToolResult => turns.push(std::mem::take(&mut open)),
            Role::Extension => {}
        }
    }
    turns.push(open);
    turns.retain(|turn| !turn.is_empty());
    turns
}

/// True for thinking that a request to Anthropic contains.
fn is_sent_thinking(block: &Content) -> bool {
    let is_own = || match block {
        Content::Sealed(_) => kept_item(block, Form::Anthropic).is_some(),
        _ => true,
    };
    block.is_signed_thinking() && is_own()
}
