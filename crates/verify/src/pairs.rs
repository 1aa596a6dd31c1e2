//! Calls and results: a block of loopstore never separates them.

use std::collections::BTreeSet;

use loopstore::extend::{CallSite, StoreResult};
use loopstore::model::Message;

use super::blocks::WholeBlock;
use super::calls::{calls_in, each_message};
use super::report::ProblemKind;
use super::verify::Verify;

/// Checks the calls and results that a block covers.
pub(super) fn check(verify: &mut Verify<'_>, block: &WholeBlock) -> StoreResult<()> {
    if block.row.layout.compacted.is_none() {
        return Ok(());
    }
    let (key, end) = (block.row.loop_key, block.row.layout.end());
    let answers = verify.scan.answers(key, 0..end);
    let answers = verify.found.readable(&block.place, answers)?;
    for (turn, sites) in answers.into_iter().flatten() {
        for call in sites.into_iter().filter(|site| site.loop_key == key) {
            if is_compacted(block, turn) == is_compacted(block, call.turn) {
                continue;
            }
            let parted = is_parted(verify, block, turn, call);
            if verify.found.readable(&block.place, parted)? == Some(true) {
                let made = call.turn;
                let detail = format!("a call in turn {made} is parted from its result in {turn}");
                verify.found.add(ProblemKind::Pairs, &block.place, detail);
            }
        }
    }
    Ok(())
}

fn is_compacted(block: &WholeBlock, turn: u32) -> bool {
    block.section(turn) == Some(1)
}

/// True if the block itself covers the result: a late result in a covered turn belongs to the tail.
fn is_parted(
    verify: &Verify<'_>,
    block: &WholeBlock,
    turn: u32,
    call: CallSite,
) -> StoreResult<bool> {
    let (loop_key, through) = (block.row.loop_key, block.row.through);
    let mut ids = BTreeSet::new();
    let results = CallSite { loop_key, turn };
    each_message(verify.scan, results, through, &mut |message| {
        if let Some(Message::ToolResult(result)) = message {
            ids.insert(result.tool_call_id.clone());
        }
    })?;
    let is_answered = |id: &str| ids.contains(id);
    Ok(!ids.is_empty() && calls_in(verify.scan, call, through, &is_answered)?)
}
