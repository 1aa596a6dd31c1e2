//! Many agents on one database, each with a `loopstore append` process of its own.

use loopstore_verify::verify;

use crate::support::amount::amount;
use crate::support::append_process::AppendProcess;
use crate::support::histories::open;
use crate::support::proof;

const ROUNDS: usize = 3;

#[test]
fn many_processes_with_a_door_each_lose_nothing_and_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loopstore.db");
    drop(open(&file));
    let count = amount("LOOPSTORE_PROCESSES", 40) as usize;
    let mut processes: Vec<AppendProcess> = (0..count)
        .map(|at| AppendProcess::open(&file, &format!("agent-{at}")))
        .collect();
    for round in 0..ROUNDS {
        // All are sent a message at once, and each gets its answer.
        for process in &mut processes {
            process.tell(&format!("prompt {round}"));
        }
        for process in &mut processes {
            process.acknowledged().unwrap();
        }
    }
    let mut memory: Vec<u64> = processes.iter().map(AppendProcess::memory).collect();
    memory.sort_unstable();
    println!(
        "{count} processes, each idle with a session open: {} KiB at the median, {} KiB at most",
        memory[count / 2],
        memory[count - 1]
    );
    for process in processes {
        assert_eq!(process.close(), "");
    }
    let store = open(&file);
    let sql = "SELECT count(*), count(DISTINCT session_id) FROM v_messages";
    let row = &store.query(sql).unwrap().rows[0];
    let stored: (usize, usize) = (row[0].read().unwrap(), row[1].read().unwrap());
    assert_eq!(stored, (ROUNDS * count, count));
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    let command = "LOOPSTORE_PROCESSES=200 cargo test --test faults crowd::append_processes";
    proof::tally(
        "process with a door of its own, beside others",
        count as u64,
        command,
    );
}
