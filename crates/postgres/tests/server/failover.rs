//! A primary is killed and a standby takes over: with synchronous replication no acknowledged turn is lost, and
//! clients continue.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use loopstore::extend as store;
use loopstore::extend::append::append;
use loopstore::*;
use loopstore_postgres::PostgresStore;

use crate::support::hang;
use crate::support::histories::{History, user};
use crate::support::needs;
use crate::support::server::{self, PostgresServer, as_owner, free_port};

/// Starts a primary and a standby that follows it; prints their folder. Both are stopped at the end of the
/// input.
const SCRIPT: &str = r#"
set -e
cd /
dir=$(mktemp -d /tmp/loopstore-pg.XXXXXX)
trap 'kill -QUIT $one $two 2>/dev/null || true; wait || true; rm -rf "$dir"' EXIT
wait_for() { until "$BIN/pg_isready" -q -h "$dir" -p "$1"; do sleep 0.05; done; }
"$BIN/initdb" -D "$dir/one" -U postgres -E UTF8 --locale=C.UTF-8 -A trust --no-sync > "$dir/log" 2>&1
options="-k $dir -c listen_addresses= -c fsync=off -c shared_buffers=32MB"
"$BIN/postgres" -D "$dir/one" -p "$ONE" $options >> "$dir/log" 2>&1 &
one=$!
wait_for "$ONE"
"$BIN/createdb" -h "$dir" -p "$ONE" -U postgres agents
"$BIN/pg_basebackup" -h "$dir" -p "$ONE" -U postgres -D "$dir/two" -R -X stream -c fast >> "$dir/log" 2>&1
echo "primary_conninfo = 'host=$dir port=$ONE user=postgres application_name=two'" >> "$dir/two/postgresql.auto.conf"
"$BIN/postgres" -D "$dir/two" -p "$TWO" $options >> "$dir/log" 2>&1 &
two=$!
wait_for "$TWO"
"$BIN/psql" -q -h "$dir" -p "$ONE" -U postgres -c "ALTER SYSTEM SET synchronous_standby_names = 'two'" \
    -c "SELECT pg_reload_conf()" postgres > /dev/null
echo "$dir $one"
# The first line asks for the failover.
read -r _ || exit 0
kill -9 $one
"$BIN/pg_ctl" -D "$dir/two" promote -w >> "$dir/log" 2>&1
echo promoted
read -r _ || true
"#;

struct Pair {
    shell: Child,
    folder: String,
    ports: [u16; 2],
}

impl Pair {
    fn start() -> Option<Self> {
        let bin = needs::find(&needs::POSTGRES)?;
        let ports = [free_port(), free_port()];
        let mut shell = as_owner("sh")
            .args(["-c", SCRIPT])
            .env("BIN", bin)
            .env("ONE", ports[0].to_string())
            .env("TWO", ports[1].to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = line_of(&mut shell);
        let folder = line.split(' ').next().unwrap().to_owned();
        assert!(!folder.is_empty(), "the servers did not start");
        Some(Self {
            shell,
            folder,
            ports,
        })
    }

    fn address(&self) -> String {
        let (folder, [one, two]) = (self.folder.replace('/', "%2F"), self.ports);
        format!("postgres://postgres@{folder}:{one},{folder}:{two}/agents?connect_timeout=2")
    }

    /// Kills the primary and promotes the standby.
    fn fail_over(&mut self) {
        use std::io::Write;
        self.shell
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"now\n")
            .unwrap();
        assert_eq!(line_of(&mut self.shell), "promoted");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().unwrap();
    }
}

/// Reads one line, byte by byte, so that nothing after it is consumed.
fn line_of(shell: &mut Child) -> String {
    use std::io::Read;
    let out = shell.stdout.as_mut().unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    while out.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn no_acknowledged_turn_is_lost_when_the_primary_is_killed() {
    let Some(mut pair) = Pair::start() else {
        return;
    };
    let store = PostgresStore::open(&pair.address()).unwrap();
    let loop_key = History::new(&store, "s").row(0).key;
    let (acknowledged, unknown) = (AtomicU32::new(0), AtomicU32::new(0));
    let (over, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut after = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut turn, mut after) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let is_over = over.load(Ordering::Relaxed);
                let done = store::write(&store, |write| {
                    let new = vec![user(&format!("turn {turn}"), turn).into()];
                    append(write, loop_key, new, &HeuristicTokenCounter)
                });
                match done {
                    Ok(_) => {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                        after += u32::from(is_over);
                    }
                    Err(StoreError::Unconfirmed(_)) => {
                        unknown.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(StoreError::Connection(_)) => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    Err(error) => panic!("{error:?}"),
                }
                turn += 1;
            }
            after
        });
        let wait_for = |count: u32| {
            hang::until("something is written", || {
                acknowledged.load(Ordering::Relaxed) >= count
            });
        };
        wait_for(30);
        pair.fail_over();
        over.store(true, Ordering::Relaxed);
        wait_for(acknowledged.load(Ordering::Relaxed) + 20);
        stop.store(true, Ordering::Relaxed);
        after = writer.join().unwrap();
    });
    assert!(after >= 10);
    let totals = store::read(&store, |read| read.loop_by_key(loop_key))
        .unwrap()
        .totals;
    let (sure, perhaps) = (acknowledged.into_inner(), unknown.into_inner());
    assert!(
        (sure..=sure + perhaps).contains(&totals.next_seq),
        "{sure} acknowledged, {perhaps} unknown, {} stored",
        totals.next_seq
    );
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

#[test]
fn a_server_that_has_not_heard_of_a_database_yet_is_passed_over() {
    let Some(first) = server::server() else {
        return;
    };
    let name = first.prepared();
    let late = PostgresServer::start(&first.bin);
    let both = |database: &str| {
        let later = late.address(database);
        let (host, _) = later.rsplit_once('/').unwrap();
        first
            .address(database)
            .replacen("postgres://postgres@", &format!("{host},"), 1)
    };
    let store = PostgresStore::open(&both(&name)).unwrap();
    History::new(&store, "s").append(0, vec![user("hello", 0)]);
    // If no host has the database, the error says so.
    let Err(error) = PostgresStore::open(&both("nowhere")) else {
        panic!("it opened");
    };
    assert!(matches!(error, OpenError::NoDatabase { .. }), "{error:?}");
}
