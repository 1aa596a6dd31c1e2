//! A process that is killed while it appends turn by turn: each acknowledged turn is stored exactly once, and another
//! process can continue with all of them.

use std::process::Output;

use loopstore::*;

use crate::crash::shim::{Act, Shim, calls, command_for};
use crate::crash::stage::*;
use crate::support::amount::amount;

const TURNS: u32 = 5;

/// The command for a long run.
pub const KILLS: &str = "LOOPSTORE_KILLS=1000 cargo test --test faults crash";

/// Returns the number of turns of the second loop, which begins with one.
fn turns(store: &SqliteStore) -> u32 {
    let sql = "SELECT turns FROM v_loops WHERE loop_id = 'loop-1'";
    store.query(sql).unwrap().rows[0][0].read().unwrap()
}

/// The process that is killed.
#[test]
fn a_process_that_appends() {
    if std::env::var_os("LOOPSTORE_APPENDS").is_none() {
        return;
    }
    let shim = Shim::of_this_process().unwrap();
    let store = crate::support::keyed::open(shim.folder().join("a.db")).unwrap();
    for number in turns(&store)..TURNS {
        append(&store, number).unwrap();
        println!("told {number}");
    }
}

fn run(shim: &Shim) -> Output {
    let mut command = command_for("crash::killed::a_process_that_appends", shim);
    command.env("LOOPSTORE_APPENDS", "yes").output().unwrap()
}

/// Returns the last turn that was acknowledged.
fn last_acknowledged(output: &Output) -> u32 {
    let said = String::from_utf8_lossy(&output.stdout);
    let mut lines = said.lines().filter_map(|line| line.split("told ").nth(1));
    lines
        .next_back()
        .map_or(0, |number| number.parse().unwrap())
}

#[test]
fn a_killed_writer_loses_no_turn_that_it_acknowledged() {
    let bytes = bytes_of(|store| drop(tell(store, "s")));
    let unkilled = bytes_of(|store| {
        tell(store, "s");
        (1..TURNS).for_each(|number| append(store, number).unwrap());
    });
    let whole = folder();
    std::fs::write(whole.path().join("a.db"), &unkilled).unwrap();
    let expected = state(&crate::support::keyed::open(whole.path().join("a.db")).unwrap());
    let place = || {
        let folder = folder();
        std::fs::write(folder.path().join("a.db"), &bytes).unwrap();
        let shim = Shim::on(folder.path());
        (folder, shim)
    };
    let (_folder, shim) = place();
    shim.watch(calls::CHANGES);
    assert!(run(&shim).status.success());
    let points = shim.stop_failing();
    let acts = [Act::KillHalf, Act::KillBefore, Act::KillAfter];
    let all = 3 * points;
    let kills = amount("LOOPSTORE_KILLS", 10).min(all);
    let mut random = random(100);
    for kill in 0..kills {
        let (from, to) = (kill * all / kills, (kill + 1) * all / kills);
        let at = from + random.below(to - from);
        let (folder, shim) = place();
        let (point, act) = (1 + at / 3, acts[(at % 3) as usize]);
        shim.fail_at(calls::CHANGES, point, act);
        let output = run(&shim);
        let case = format!("{act:?} {point} of {points}");
        assert_eq!(output.status.code(), None, "{case}: {output:?}");
        let store = crate::support::keyed::open(folder.path().join("a.db")).unwrap();
        assert_whole(&store, &case);
        let (acknowledged, found) = (last_acknowledged(&output), turns(&store) - 1);
        // One more turn may have been committed without having been acknowledged.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&found),
            "{case}: {acknowledged}, {found}"
        );
        drop(store);
        shim.stop_failing();
        let output = run(&shim);
        assert!(output.status.success(), "{case}: {output:?}");
        let store = crate::support::keyed::open(folder.path().join("a.db")).unwrap();
        assert!(state(&store) == expected, "{case}");
        assert_whole(&store, &case);
    }
    println!("append: {points} steps, {kills} kills");
    crate::support::proof::tally("process that appends, killed", kills, KILLS);
}

#[test]
#[cfg(debug_assertions)]
fn a_turn_in_two_transactions_is_found_out() {
    let test = "crash::killed::a_killed_writer_loses_no_turn_that_it_acknowledged";
    let more = [("LOOPSTORE_KILLS", "60")];
    crate::support::proof::catches(test, "split-transaction", &more, "Kill");
}
