//! Many agents at one database, each a process with a front door of its own.

use loopstore_verify::verify;

use crate::support::amount::amount;
use crate::support::door::Door;
use crate::support::histories::open;
use crate::support::proof;

const ROUNDS: usize = 3;

#[test]
fn many_processes_with_a_door_each_lose_nothing_and_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doors.db");
    drop(open(&file));
    let count = amount("LOOPSTORE_PROCESSES", 40) as usize;
    let mut doors: Vec<Door> = (0..count)
        .map(|at| Door::open(&file, &format!("agent-{at}")))
        .collect();
    for round in 0..ROUNDS {
        // All at once, and each has its answer.
        for door in &mut doors {
            door.tell(&format!("prompt {round}"));
        }
        for door in &mut doors {
            door.acknowledged().unwrap();
        }
    }
    let mut memory: Vec<u64> = doors.iter().map(Door::memory).collect();
    memory.sort_unstable();
    println!(
        "{count} processes, each idle with a session open: {} KiB at the median, {} KiB at most",
        memory[count / 2],
        memory[count - 1]
    );
    for door in doors {
        assert_eq!(door.close(), "");
    }
    let store = open(&file);
    let sql = "SELECT count(*), count(DISTINCT session_id) FROM v_messages";
    let row = &store.query(sql).unwrap().rows[0];
    let stored: (usize, usize) = (row[0].read().unwrap(), row[1].read().unwrap());
    assert_eq!(stored, (ROUNDS * count, count));
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    let command = "LOOPSTORE_PROCESSES=200 cargo test --test faults crowd::doors";
    proof::tally(
        "process with a door of its own, beside others",
        count as u64,
        command,
    );
}
