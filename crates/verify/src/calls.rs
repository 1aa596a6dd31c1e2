//! Calls and results that are not in one turn.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use loopstore::extend::{
    self as store, CallSite, Cut, LoopKey, LoopRow, StoreRead, StoreResult, TurnRow,
};
use loopstore::model::Message;

use super::report::ProblemKind;
use super::turns::Turn;
use super::verify::Verify;

/// The calls of a loop that have no result yet.
#[derive(Debug, Default)]
pub(super) struct CallBook {
    open: BTreeMap<String, u32>,
}

impl CallBook {
    pub(super) fn open(&self) -> &BTreeMap<String, u32> {
        &self.open
    }

    /// Records the calls of a message, or the call that it answers.
    pub(super) fn follow(&mut self, loop_key: LoopKey, turn: &mut Turn, message: &Message) {
        let number = turn.row.turn;
        for call in message.tool_calls() {
            self.open.insert(call.id.clone(), number);
        }
        let Message::ToolResult(result) = message else {
            return;
        };
        match self.open.remove(&result.tool_call_id) {
            Some(made) if made == number => {}
            Some(made) => {
                let site = CallSite {
                    loop_key,
                    turn: made,
                };
                if !turn.row.answers.contains(&site) {
                    turn.row.answers.push(site);
                }
            }
            None => turn.calls_from_above.push(result.tool_call_id.clone()),
        }
    }
}

/// Checks the calls of earlier loops that a turn answers.
///
/// They were resolved when the result came; since then a loop above may have got more calls, or the result of
/// the same call. So a recorded site must contain such a call unless its turn changed later, and a call that
/// existed then must be recorded unless a call of a nearer loop was.
pub(super) fn check_calls_from_above(
    verify: &mut Verify<'_>,
    loop_key: &LoopRow,
    at: &str,
    turn: &Turn,
    stored: &TurnRow,
) -> StoreResult<()> {
    let named: Vec<CallSite> = stored
        .answers
        .iter()
        .copied()
        .filter(|site| site.loop_key != loop_key.key)
        .collect();
    if named.is_empty() && turn.calls_from_above.is_empty() {
        return Ok(());
    }
    let above = above(verify.scan, loop_key);
    let Some(above) = verify.found.readable(at, above)? else {
        return Ok(());
    };
    for site in &named {
        let holds = holds(verify, &above, turn, *site);
        if verify.found.readable(at, holds)? == Some(false) {
            let (key, turn) = (site.loop_key.0, site.turn);
            let detail = format!("it answers no call of turn {turn} of the loop with key {key}");
            verify.found.add(ProblemKind::Turn, at, detail);
        }
    }
    for id in &turn.calls_from_above {
        let expected = expected(verify.scan, &above, turn, id);
        let Some(Some(site)) = verify.found.readable(at, expected)? else {
            continue;
        };
        if !named
            .iter()
            .any(|named| *named == site || named.loop_key > site.loop_key)
        {
            let (key, turn) = (site.loop_key.0, site.turn);
            let detail = format!("the call of turn {turn} of the loop with key {key} is not named");
            verify.found.add(ProblemKind::Turn, at, detail);
        }
    }
    Ok(())
}

/// Returns the loops above, nearest first, each with the turn at which the chain leaves it.
fn above(read: &dyn StoreRead, loop_key: &LoopRow) -> StoreResult<Vec<(LoopRow, Cut)>> {
    let mut above = Vec::new();
    let Some(parent) = loop_key.parent else {
        return Ok(above);
    };
    let mut cut = loop_key.parent_cut();
    read.walk(parent, &mut |row| {
        let next = row.parent_cut();
        above.push((row, std::mem::replace(&mut cut, next)));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(above)
}

fn holds(
    verify: &Verify<'_>,
    above: &[(LoopRow, Cut)],
    turn: &Turn,
    site: CallSite,
) -> StoreResult<bool> {
    let is_above =
        |(row, cut): &(LoopRow, Cut)| row.key == site.loop_key && site.turn < cut.turns();
    if !above.iter().any(is_above) {
        return Ok(false);
    }
    let ids = |id: &str| turn.calls_from_above.iter().any(|other| other == id);
    let holds = calls_in(verify.scan, site, u32::MAX, &ids)?;
    Ok(holds || changed_after(verify.scan, site, turn)?)
}

/// Returns true if the turn of a call was appended to after the first message of `turn`.
fn changed_after(read: &dyn StoreRead, site: CallSite, turn: &Turn) -> StoreResult<bool> {
    let row = read.turn(site.loop_key, site.turn)?;
    Ok(row.is_some_and(|row| row.tick >= turn.began))
}

/// Returns true if a turn has a call with this id in a message before `end`. A removed message may have
/// contained it.
pub(super) fn calls_in(
    read: &dyn StoreRead,
    site: CallSite,
    end: u32,
    is_wanted: &dyn Fn(&str) -> bool,
) -> StoreResult<bool> {
    let mut found = false;
    each_message(read, site, end, &mut |message| {
        found |= message.is_none_or(|m| m.tool_calls().any(|call| is_wanted(&call.id)));
    })?;
    Ok(found)
}

/// Visits the messages of a turn before the sequence `end`; a removed message is `None`.
pub(super) fn each_message(
    read: &dyn StoreRead,
    site: CallSite,
    end: u32,
    visit: &mut dyn FnMut(Option<&Message>),
) -> StoreResult<()> {
    let Some(row) = read.turn(site.loop_key, site.turn)? else {
        return Ok(());
    };
    read.messages(site.loop_key, row.first_seq..end, &mut |row| {
        if row.turn.is_some_and(|turn| turn > site.turn) {
            return Ok(ControlFlow::Break(()));
        }
        if row.body.head.is_none() {
            visit(None);
        } else if let Some(message) = store::decode(read, row.body)?.message() {
            visit(Some(message));
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Returns the call above that a result answers, if nothing was appended to the call's turn since.
fn expected(
    read: &dyn StoreRead,
    above: &[(LoopRow, Cut)],
    turn: &Turn,
    id: &str,
) -> StoreResult<Option<CallSite>> {
    let site = above.iter().find_map(|(row, cut)| {
        let made = row.progress.open_calls.get(id)?;
        (*made < cut.whole).then_some(CallSite {
            loop_key: row.key,
            turn: *made,
        })
    });
    let Some(site) = site else { return Ok(None) };
    let first = read.turn(site.loop_key, site.turn)?;
    let was_there = first.is_some_and(|row| row.tick < turn.began);
    Ok(was_there.then_some(site))
}
