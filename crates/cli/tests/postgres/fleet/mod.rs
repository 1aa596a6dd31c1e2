//! Many writers on a cluster that fails over all the time, with a pooler and without one.
//!
//! `LOOPSTORE_FAILOVERS=100` fails over a hundred times (`-- --nocapture` shows each).

mod cluster;
mod lease;
mod writers;

use loopstore_postgres::PostgresStore;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::amount::amount;
use crate::support::{hang, proof};
use cluster::{Fault, Fleet};
use lease::LeasePeriods;
use writers::Writer;

const WRITERS: usize = 32;

/// The time in which a client must recover once there is a leader again.
const MARGIN: Duration = Duration::from_secs(5);

/// The failovers of a test.
#[derive(Default)]
struct Times {
    /// The duration of each failover, and that of the slowest client after it.
    by_fault: BTreeMap<Fault, Vec<(Duration, Duration)>>,
    late: usize,
}

fn writers(fleet: &Fleet, name: &str) -> Vec<Writer> {
    let address = |at: usize| match at % 8 {
        7 => fleet.hosts(),
        1 | 3 | 5 => fleet.shared(),
        _ => fleet.kept(),
    };
    let writer = |at| Writer::new(format!("{name}-{at:02}"), address(at));
    (0..WRITERS).map(writer).collect()
}

/// Stops the other threads, also after a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes the leader fail this many times while all clients write.
fn play(fleet: &mut Fleet, name: &str, count: usize, is_synchronous: bool) {
    let (all, holdings, stop) = (
        writers(fleet, name),
        LeasePeriods::default(),
        AtomicBool::new(false),
    );
    lease::begin(&writers::open(&fleet.hosts()), name);
    let faults: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| fleet.has_cuts || *fault != Fault::Cut)
        .collect();
    let mut times = Times::default();
    let contenders = [fleet.kept(), fleet.shared(), fleet.hosts()];
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let (stop, holdings) = (&stop, &holdings);
        let mut threads: Vec<_> = all
            .iter()
            .map(|writer| scope.spawn(move || writer.run(stop)))
            .collect();
        threads.extend(
            contenders
                .iter()
                .map(|address| scope.spawn(move || holdings.contend(name, address, stop))),
        );
        let all_wrote_after = |moment: Instant| {
            hang::until("each client goes on", || {
                let panicked = threads.iter().any(|thread| thread.is_finished());
                assert!(!panicked, "a client ended");
                all.iter()
                    .all(|writer| writer.first_after(moment).is_some())
            });
        };
        all_wrote_after(Instant::now());
        for at in 0..count {
            let fault = faults[at % faults.len()];
            let leader = fleet.wait_until_whole(is_synchronous);
            let (begun, next, led) = fleet.fail_over(fault, leader);
            all_wrote_after(led);
            let took = led - begun;
            let until = |writer: &Writer| writer.first_after(led).unwrap() - begun;
            let slowest = all.iter().map(until).max().unwrap();
            times.late += all
                .iter()
                .filter(|writer| until(writer) > took + MARGIN)
                .count();
            println!(
                "{name} {at:3} {fault:?} of node {leader}: node {next} leads after {took:.1?}, the slowest \
                 client went on after {slowest:.1?}"
            );
            let of_fault = times.by_fault.entry(fault).or_default();
            of_fault.push((took, slowest));
            fleet.remedy(fault, leader);
        }
        fleet.wait_until_whole(is_synchronous);
        all_wrote_after(Instant::now());
    });
    report(name, &times, &all, count);
    let leader = fleet.wait_until_whole(is_synchronous);
    let lost = missing(fleet, leader, &all);
    match is_synchronous {
        true => {
            assert_eq!(lost, 0, "acknowledged turns were lost");
            let changed = holdings.check();
            println!("{name}: the lease changed hands {changed} times, and never had two holders");
        }
        false => println!("{name}: {lost} acknowledged turns were lost"),
    }
}

fn report(name: &str, times: &Times, all: &[Writer], count: usize) {
    for (fault, times) in &times.by_fault {
        let took = times.iter().map(|(took, _)| *took);
        let after = times.iter().map(|(took, slowest)| *slowest - *took);
        println!(
            "{name}: {} × {fault:?}, a failover took up to {:.1?}, clients went on up to {:.1?} later",
            times.len(),
            took.max().unwrap(),
            after.max().unwrap()
        );
    }
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for (error, count) in all.iter().flat_map(Writer::errors) {
        *errors.entry(error).or_default() += count;
    }
    let turns: usize = all.iter().map(Writer::count).sum();
    println!(
        "{name}: {turns} turns acknowledged over {count} failovers; {} times a client went on more than \
         {MARGIN:?} after a failover; errors {errors:?}",
        times.late
    );
}

/// Checks that each key is stored once and in order. Returns the number of acknowledged keys that are missing.
fn missing(fleet: &Fleet, leader: usize, all: &[Writer]) -> usize {
    let mut client = fleet.client(leader, "agents").unwrap();
    let sql = "SELECT text FROM v_messages WHERE session_id = $1 ORDER BY loop_id, seq";
    let mut lost = 0;
    for writer in all {
        let rows = client.query(sql, &[&writer.session]).unwrap();
        let stored = rows.iter().map(|row| row.get::<_, String>(0));
        let stored: Vec<usize> = stored.map(|text| text.parse().unwrap()).collect();
        let is_ordered = stored.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(
            is_ordered,
            "{}: twice, or in another order: {stored:?}",
            writer.session
        );
        let acknowledged = writer.count();
        // One more key may be stored without having been acknowledged.
        assert!(stored.iter().all(|key| *key <= acknowledged));
        let there = stored.iter().filter(|key| **key < acknowledged).count();
        lost += acknowledged - there;
    }
    lost
}

#[test]
fn no_acknowledged_turn_is_lost_or_doubled_and_no_lease_held_twice_while_a_cluster_fails_over() {
    let Some(mut fleet) = Fleet::start() else {
        return;
    };
    let count = amount("LOOPSTORE_FAILOVERS", 2) as usize;
    drop(PostgresStore::open(&fleet.hosts()).unwrap());
    play(&mut fleet, "synchronous", count, true);
    // Then commits wait for no standby: the keys that are lost are counted.
    fleet.be_asynchronous();
    play(&mut fleet, "asynchronous", (count / 4).max(1), false);
    let store = PostgresStore::open(&fleet.hosts()).unwrap();
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
    let command = "LOOPSTORE_FAILOVERS=100 cargo test -p loopstore-cli --features postgres --test postgres fleet";
    proof::tally(
        "failover of a cluster under 32 writers",
        count as u64,
        command,
    );
}
