//! One turn: its row against its messages.

use std::collections::BTreeSet;

use loopstore::extend::{CallSite, LoopRow, MessageRow, StoreResult, Tick, TurnRow};
use loopstore::model::Role;

use super::calls::check_calls_from_above;
use super::report::ProblemKind;
use super::verify::Verify;

/// A turn as its messages show it. Its sums are its own, not those of the loop.
pub(super) struct Turn {
    pub(super) row: TurnRow,
    /// The ids of its results whose call is not in this loop.
    pub(super) calls_from_above: Vec<String>,
    /// The tick of its first message.
    pub(super) began: Tick,
    /// True if every message of the turn is stored.
    pub(super) is_whole: bool,
    /// True if every message before the turn is stored too.
    pub(super) knows_calls: bool,
}

impl Turn {
    pub(super) fn add(&mut self, message: &MessageRow, tokens: u64, bytes: u64) {
        let row = &mut self.row;
        row.messages += 1;
        row.prompts += u64::from(message.body.is_prompt());
        row.tokens = row.tokens.saturating_add(tokens);
        row.bytes = row.bytes.saturating_add(bytes);
        row.answered |= message.body.role == Role::Assistant;
        row.tick = message.tick;
        row.started_at = row.started_at.or(message.created_at);
        row.ended_at = message.created_at.or(row.ended_at);
    }
}

/// Compares a turn with its row, whose sums continue those of the row before, and returns the row.
pub(super) fn check_turn(
    verify: &mut Verify<'_>,
    loop_key: &LoopRow,
    place: &str,
    turn: Turn,
    before: Option<TurnRow>,
) -> StoreResult<Option<TurnRow>> {
    verify.found.checked.turns += 1;
    let place = format!("{place}, turn {}", turn.row.turn);
    let stored = verify.scan.turn(loop_key.key, turn.row.turn);
    let Some(stored) = verify.found.readable(&place, stored)? else {
        return Ok(None);
    };
    let Some(stored) = stored else {
        let detail = "its row is missing";
        verify.found.add(ProblemKind::Sequence, place, detail);
        return Ok(None);
    };
    let (found, kind, derived) = (&mut verify.found, ProblemKind::Turn, &turn.row);
    let at = &place;
    found.compare(kind, at, "first_seq", &stored.first_seq, &derived.first_seq);
    found.compare(kind, at, "tick", &stored.tick, &derived.tick);
    let (a, b) = (&stored.started_at, &derived.started_at);
    found.compare(kind, at, "started_at", a, b);
    found.compare(kind, at, "ended_at", &stored.ended_at, &derived.ended_at);
    if let Some(before) = before {
        check_sums(verify, at, derived, &stored, &before);
    }
    if turn.is_whole {
        let (found, a, b) = (&mut verify.found, &stored.turn_index, &derived.turn_index);
        found.compare(kind, at, "turn_index", a, b);
        found.compare(kind, at, "answered", &stored.answered, &derived.answered);
    }
    if turn.is_whole && turn.knows_calls {
        check_answers(verify, loop_key, at, &turn, &stored)?;
    }
    Ok(Some(stored))
}

fn check_sums(
    verify: &mut Verify<'_>,
    at: &str,
    derived: &TurnRow,
    stored: &TurnRow,
    before: &TurnRow,
) {
    let sums = [
        (
            "messages",
            stored.messages,
            before.messages,
            derived.messages,
        ),
        ("prompts", stored.prompts, before.prompts, derived.prompts),
        ("tokens", stored.tokens, before.tokens, derived.tokens),
        ("bytes", stored.bytes, before.bytes, derived.bytes),
    ];
    for (what, stored, before, own) in sums {
        let derived = before.saturating_add(own);
        let found = &mut verify.found;
        found.compare(ProblemKind::Turn, at, what, &stored, &derived);
    }
}

/// Compares the calls of other turns that this turn answers.
fn check_answers(
    verify: &mut Verify<'_>,
    loop_key: &LoopRow,
    at: &str,
    turn: &Turn,
    stored: &TurnRow,
) -> StoreResult<()> {
    let is_own = |site: &&CallSite| site.loop_key == loop_key.key;
    let own: BTreeSet<&CallSite> = stored.answers.iter().filter(is_own).collect();
    let derived: BTreeSet<&CallSite> = turn.row.answers.iter().collect();
    let found = &mut verify.found;
    found.compare(ProblemKind::Turn, at, "answers", &own, &derived);
    check_calls_from_above(verify, loop_key, at, turn, stored)
}
