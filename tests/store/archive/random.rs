//! Random histories in which random loops are archived and unarchived at random times: everything reads as before, and
//! as in a twin without archived loops.

use crate::archive::seen::{contexts, everything};
use crate::support::amount::amount;
use crate::support::archive::play;

#[test]
fn archived_loops_read_as_if_they_were_not() {
    let histories = amount("LOOPSTORE_HISTORIES", 8);
    let moved: u32 = (0..histories)
        .map(|seed| {
            play(
                seed,
                &|store, history| everything(store, history),
                &|store, history| contexts(store, history),
            )
        })
        .sum();
    assert!(u64::from(moved) > histories / 2, "{moved} in {histories}");
}
