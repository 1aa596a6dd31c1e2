//! A long session: the page stays small, and the part that is needed to open it is smaller.

use std::time::Instant;

use loopstore::*;

use crate::commands::stage::{LoopSpec, Stage, add_loop, session, turns};
use crate::support::amount::amount;
use crate::support::page::Page;

/// Records loops of some turns each, and returns the number of messages.
pub fn long(stage: &Stage, loops: u32, turns_each: u32, lines: u32) -> usize {
    let store = stage.store();
    let key = session(&store, "long", "A long one");
    for at in 0..loops {
        let (id, parent) = (format!("loop-{at}"), format!("loop-{}", at.max(1) - 1));
        let spec = LoopSpec {
            id: &id,
            parent: (at > 0).then_some((&*parent, None)),
            kind: ContinuationKind::Default,
            status: LoopStatus::Completed,
        };
        add_loop(
            &store,
            key,
            spec,
            turns(&format!("{at} asks"), turns_each, lines),
        );
    }
    (loops * (turns_each * 2 + 1)) as usize
}

/// Returns the number of loops; a full measurement takes 500, with some 50,000 messages.
pub fn loops() -> u32 {
    amount("LOOPSTORE_REPORT_LOOPS", 30) as u32
}

#[test]
fn a_long_session_is_small_and_its_index_smaller() {
    let stage = Stage::empty();
    let messages = long(&stage, loops(), 50, 12);
    stage.say("compact long --max-tokens 20000");
    let store = stage.store();
    let begun = Instant::now();
    let page = Page::of(&store, "long");
    println!(
        "{messages} messages, {} bytes, {:?}",
        page.html.len(),
        begun.elapsed()
    );
    let entries = page.entries();
    let own = entries.iter().filter(|entry| entry.get("l").is_some());
    assert_eq!(own.count(), messages);
    let pieces = page.pieces();
    let sizes = pieces
        .iter()
        .map(|piece| serde_json::to_string(piece).unwrap().len());
    let (whole, largest) = sizes.fold((0, 0), |(sum, most), size| (sum + size, most.max(size)));
    let index = serde_json::to_string(&page.index).unwrap().len();
    // A page is compressed, and the index has only a line of figures for each message.
    assert!(
        page.html.len() < 100_000 + whole / 3,
        "{} of {whole}",
        page.html.len()
    );
    assert!(index < 50_000 + messages * 120, "{index}");
    // A click reads one piece, which is small.
    assert!(largest < 400_000, "{largest}");
}
