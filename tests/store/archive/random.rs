//! Random histories in which random loops are archived at random times and brought back: everything reads
//! as before, and as in a twin in which nothing ever was.

use loopstore::*;

use crate::archive::seen::{contexts, everything, same};
use crate::support::amount::amount;
use crate::support::archive::*;
use crate::support::histories::{History, Random};

/// Archives something, or brings something back; returns whether messages were moved.
fn move_something(store: &SqliteStore, history: &History<'_>, random: &mut Random) -> bool {
    let ended = |at: &usize| {
        let row = history.row(*at);
        row.status.is_ended() && row.totals.sealed_seq == row.totals.next_seq
    };
    let ended: Vec<usize> = (0..history.loops).filter(ended).collect();
    let report = match random.below(4) {
        0 => archive_cold(store),
        1 => bring_back(store),
        _ if ended.is_empty() => return false,
        _ => {
            let one = ended[random.below(ended.len() as u64) as usize];
            archive_loops(store, &history.session, &[one])
        }
    };
    report.messages > 0
}

/// Plays one history with archiving and one without.
fn play(seed: u64) -> u32 {
    let [mine, twin] = [(); 2].map(|()| SqliteStore::in_memory().unwrap());
    let mut mine_history = History::new(&mine, "s");
    let mut twin_history = History::new(&twin, "s");
    let [mut random, mut again, mut moves] = [seed, seed, !seed].map(Random::new);
    let mut moved = 0;
    for step in 0..16 + seed % 24 {
        mine_history.step(&mut random);
        twin_history.step(&mut again);
        if moves.one_in(6) {
            let at = moves.below(mine_history.loops as u64) as usize;
            mine_history.end_loop(at);
            twin_history.end_loop(at);
        }
        if !moves.one_in(4) {
            continue;
        }
        let before = everything(&mine, &mine_history);
        if move_something(&mine, &mine_history, &mut moves) {
            moved += 1;
            let when = format!("seed {seed}, step {step}");
            same(&before, &everything(&mine, &mine_history), &when);
            assert_whole(&mine);
        }
    }
    let when = format!("seed {seed}, beside its twin");
    let seen = contexts(&twin, &twin_history);
    same(&seen, &contexts(&mine, &mine_history), &when);
    assert_whole(&mine);
    moved
}

#[test]
fn archived_loops_read_as_if_they_were_not() {
    let histories = amount("LOOPSTORE_HISTORIES", 8);
    let moved: u32 = (0..histories).map(play).sum();
    assert!(u64::from(moved) > histories / 2, "{moved} in {histories}");
}
