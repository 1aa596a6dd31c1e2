//! Databases that are rejected on opening, and a server that becomes unavailable.

use std::time::Duration;

use loopstore::extend as store;
use loopstore::*;
use loopstore_postgres::{PostgresOptions, PostgresStore};

use super::commands::{command, transcript};
use crate::support::histories::{History, user};
use crate::support::needs;
use crate::support::server::{self, PASSWORD, PostgresServer, free_port};

fn opening(address: &str) -> OpenError {
    match PostgresStore::open(address) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[test]
fn what_keeps_a_database_from_opening_is_told_without_the_password() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let tcp = server.tcp_address(&name);
    drop(PostgresStore::open(&tcp).unwrap());
    let wrong = tcp.replace(PASSWORD, "not-s3cret");
    let missing = server.tcp_address("nowhere");
    let away = tcp.replace(&server.port.to_string(), &free_port().to_string());
    let tls = format!("{tcp}?sslmode=require");
    let read_only = PostgresStore::open_with(
        &server.tcp_address(&server.database()),
        PostgresOptions::new().read_only(true),
    );
    let Err(empty) = read_only else {
        panic!("it opened")
    };
    let errors = [
        opening(&wrong),
        opening(&missing),
        opening(&away),
        opening(&tls),
        opening("postgres://me:s3cret@"),
        empty,
    ];
    let kinds = errors.each_ref().map(|error| match error {
        OpenError::Refused { .. } => "refused",
        OpenError::NoDatabase { .. } => "no database",
        OpenError::Unreachable { .. } => "unreachable",
        OpenError::Address { .. } => "address",
        OpenError::Missing { .. } => "missing",
        _ => "other",
    });
    assert_eq!(
        kinds,
        [
            "refused",
            "no database",
            "unreachable",
            "unreachable",
            "address",
            "missing"
        ],
        "{errors:?}"
    );
    for error in &errors {
        let told = format!("{error} {error:?}");
        assert!(!told.contains("s3cret"), "{told}");
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up_and_the_next_one_asked() {
    let Some(server) = server::server() else {
        return;
    };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let name = server.prepared();
    let error = opening(&format!(
        "postgres://me@127.0.0.1:{port}/{name}?connect_timeout=1"
    ));
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    let folder = server.folder.to_str().unwrap().replace('/', "%2F");
    let both = format!(
        "postgres://postgres@127.0.0.1:{port},{folder}:{}/{name}?connect_timeout=1",
        server.port
    );
    History::new(&PostgresStore::open(&both).unwrap(), "s");
}

#[test]
fn a_newer_format_and_another_counter_are_refused() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let mut client = server.client(&name);
    client
        .batch_execute("UPDATE store_meta SET value = 'other' WHERE name = 'token_counter'")
        .unwrap();
    assert!(matches!(
        opening(&server.address(&name)),
        OpenError::Counter { .. }
    ));
    client
        .batch_execute(
            "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
             SELECT 999, name, applied_on, checksum FROM refinery_schema_history LIMIT 1",
        )
        .unwrap();
    let error = opening(&server.address(&name));
    assert!(
        matches!(error, OpenError::Newer { found: 999, .. }),
        "{error}"
    );
}

/// Checks that opening is rejected, for writing and for reading.
fn assert_rejected(sql: &str, is_expected: impl Fn(&OpenError) -> bool) {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let mut client = server.client(&name);
    client.batch_execute(sql).unwrap();
    for read_only in [false, true] {
        let options = PostgresOptions::new().read_only(read_only);
        let refused = PostgresStore::open_with(&server.address(&name), options).err();
        let refused = refused.unwrap_or_else(|| panic!("{sql}: it opens"));
        assert!(is_expected(&refused), "{sql}: {refused:?}");
    }
}

#[test]
fn a_format_that_was_never_released_is_refused() {
    for sql in [
        "UPDATE refinery_schema_history SET checksum = '77'",
        "UPDATE refinery_schema_history SET checksum = 'no number'",
        "UPDATE refinery_schema_history SET name = 'other'",
        // A database with several migrations, as unreleased programs created it.
        "UPDATE refinery_schema_history SET checksum = '77';
         INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
         SELECT v, 'views', applied_on, '78' FROM refinery_schema_history, generate_series(2, 4) v",
    ] {
        assert_rejected(sql, |error| {
            let says = error.to_string();
            assert!(says.contains("with the program that wrote it"), "{says}");
            matches!(error, OpenError::Unreleased { .. })
        });
    }
}

#[test]
fn a_history_that_lost_its_rows_is_refused() {
    for sql in [
        "DELETE FROM refinery_schema_history",
        "DROP TABLE refinery_schema_history",
        "UPDATE refinery_schema_history SET version = 7",
        "UPDATE refinery_schema_history SET version = 0",
        "UPDATE refinery_schema_history SET checksum = NULL",
        "UPDATE refinery_schema_history SET applied_on = 'yesterday'",
        "DROP TABLE store_meta",
    ] {
        assert_rejected(sql, |error| matches!(error, OpenError::Damaged { .. }));
    }
}

#[test]
fn tables_of_which_only_the_history_was_begun_open_as_empty() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.database();
    let sql = "CREATE TABLE refinery_schema_history (version INT4 PRIMARY KEY, name VARCHAR(255),
        applied_on VARCHAR(255), checksum VARCHAR(255))";
    server.client(&name).batch_execute(sql).unwrap();
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    let sessions = store::read(&store, |read| read.sessions()).unwrap();
    assert!(sessions.is_empty());
}

/// A program with one more format upgrades the database, and this program then rejects it.
#[test]
#[cfg(debug_assertions)]
fn a_database_of_an_older_format_is_brought_up_to_date() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let address = server.address(&name);
    History::new(&PostgresStore::open(&address).unwrap(), "s");
    let run = |line: &str| {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("loopstore"));
        command.env("LOOPSTORE_BROKEN", "later-format");
        command.args(["--db", &address]).args(line.split(' '));
        command.output().unwrap()
    };
    let only_reads = run("sessions");
    let says = String::from_utf8_lossy(&only_reads.stderr);
    assert!(says.contains("older loopstore (format 1, now 2)"), "{says}");
    for line in ["protect s", "protect s --off", "sessions"] {
        let output = run(line);
        assert!(output.status.success(), "{line}: {output:?}");
    }
    let sql = "SELECT count(*) FROM refinery_schema_history WHERE version IN (1, 2)";
    let applied: i64 = server.client(&name).query_one(sql, &[]).unwrap().get(0);
    assert_eq!(applied, 2);
    let refused = opening(&address);
    assert!(
        matches!(
            refused,
            OpenError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn two_that_make_the_tables_at_once_both_succeed() {
    let Some(server) = server::server() else {
        return;
    };
    let address = server.address(&server.database());
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| PostgresStore::open(&address).map(drop)))
            .collect();
        for one in opened {
            one.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_pool_without_a_free_connection_and_a_slow_statement_are_told() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let address = format!(
        "{}?options=-c%20statement_timeout%3D300",
        server.address(&name)
    );
    let options = PostgresOptions::new()
        .connections(1)
        .patience(Duration::from_millis(100));
    let store = PostgresStore::open_with(&address, options).unwrap();
    let loop_key = History::new(&store, "s").row(0).key;
    std::thread::scope(|scope| {
        let crowded = store::read(&store, |read| {
            read.loop_by_key(loop_key)?;
            let other = scope.spawn(|| store::read(&store, |read| read.sessions()).map(drop));
            Ok(other.join().unwrap())
        })
        .unwrap();
        assert!(
            matches!(crowded, Err(StoreError::PoolTimeout(1))),
            "{crowded:?}"
        );
    });
    // Another transaction holds the lock that this write needs.
    let mut client = server.client(&name);
    let mut lock = client.transaction().unwrap();
    lock.batch_execute("SELECT 1 FROM sessions FOR UPDATE")
        .unwrap();
    let held = store::write(&store, |write| write.loop_by_key(loop_key).map(drop));
    assert!(matches!(held, Err(StoreError::Busy)), "{held:?}");
    lock.rollback().unwrap();
    let mut lock = client.transaction().unwrap();
    lock.batch_execute("LOCK TABLE loops IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    let patient = PostgresOptions::new().patience(Duration::from_secs(30));
    let patient = PostgresStore::open_with(&address, patient).unwrap();
    let slow = store::write(&patient, |write| write.loop_by_key(loop_key).map(drop));
    assert!(matches!(slow, Err(StoreError::TimedOut)), "{slow:?}");
    lock.rollback().unwrap();
    store::write(&store, |write| write.loop_by_key(loop_key).map(drop)).unwrap();
}

#[test]
fn a_lost_connection_loses_the_write_and_the_next_one_connects_again() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    let history = History::new(&store, "s");
    let loop_key = history.row(0).key;
    let mut client = server.client("postgres");
    let mut cut = move || {
        let sql = format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
        );
        client.query(&sql, &[]).unwrap();
    };
    let lost = store::write(&store, |write| {
        write.loop_by_key(loop_key)?;
        cut();
        write.loop_by_key(loop_key).map(drop)
    });
    assert!(matches!(lost, Err(StoreError::Connection(_))), "{lost:?}");
    history.append(0, vec![user("hello", 0)]);
    // An idle connection that the server closed is detected before anything is acknowledged.
    cut();
    history.append(0, vec![user("again", 1)]);
    // An error during the commit leaves the outcome unknown.
    let unknown = store::write(&store, |write| {
        write.loop_by_key(loop_key)?;
        cut();
        Ok(())
    });
    assert!(
        matches!(unknown, Err(StoreError::Unconfirmed(_))),
        "{unknown:?}"
    );
    assert_eq!(history.row(0).totals.next_seq, 2);
}

#[test]
fn a_store_goes_on_when_its_server_comes_back_and_knows_several_hosts() {
    let Some(bin) = needs::find(&needs::POSTGRES) else {
        return;
    };
    let own = PostgresServer::start(&bin);
    let name = own.database();
    let folder = own.folder.to_str().unwrap().replace('/', "%2F");
    let nobody = free_port();
    let address = format!(
        "postgres://postgres@127.0.0.1:{nobody},{folder}:{}/{name}?connect_timeout=2",
        own.port
    );
    let store = PostgresStore::open(&address).unwrap();
    let history = History::new(&store, "s");
    history.append(0, vec![user("hello", 0)]);
    drop(own);
    let gone = store::read(&store, |read| read.sessions());
    assert!(matches!(gone, Err(StoreError::Connection(_))), "{gone:?}");
    let told = format!("{:?}", gone.err());
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn a_transaction_that_goes_on_after_a_refusal_is_not_committed() {
    let Some(store) = server::store() else { return };
    let row = History::new(&store, "s").row(0);
    let done = store::write(&store, |write| {
        let session = write.session_by_key(row.session)?;
        // The caller ignores the error.
        let _ = write.insert_session(&session);
        Ok(())
    });
    assert!(matches!(done, Err(StoreError::Invalid(_))), "{done:?}");
}

#[test]
fn a_password_stands_in_no_output_of_any_command_that_fails() {
    let Some(server) = server::server() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pair.jsonl"), transcript()).unwrap();
    let tcp = server.tcp_address(&server.prepared());
    let (secret, port) = ("0pen-sesam3", server.port.to_string());
    let hide = |address: &str| address.replace(PASSWORD, secret);
    let addresses = [
        hide(&tcp),
        hide(&server.tcp_address("nowhere")),
        hide(&tcp.replace(&port, &free_port().to_string())) + "?connect_timeout=1",
        hide(&format!("{tcp}?sslmode=verify-full")),
        hide(&format!("{tcp}?sslmode={secret}")),
        hide(&format!("{tcp}?connect_timeout={secret}")),
        format!("postgres://me:{secret}@127.0.0.1:none/agents"),
        format!("postgres://me:{secret}?@127.0.0.1:{port}/agents"),
        format!("postgres://127.0.0.1:{port}/agents?user=me&password={secret}"),
        format!("postgres://me:{secret}"),
    ];
    let commands = [
        &["import", "pair.jsonl", "--json"] as &[&str],
        &["recount", "--json"],
    ];
    for address in &addresses {
        for args in commands {
            let (code, out, err) = command(folder.path(), address, args);
            assert_ne!(code, Some(0), "{args:?}");
            assert!(!err.contains("panicked"), "{err}");
            for told in [out, err] {
                assert!(!told.contains(secret), "{args:?}: {told}");
            }
        }
    }
    // The address is an argument too, and it is correct while the work fails.
    let args = ["copy", "--to", &addresses[0], "--json"];
    let (_, out, err) = command(folder.path(), &tcp, &args);
    let (_, other_out, other_err) = command(folder.path(), &tcp, &["sql", "SELECT 1/0", "--json"]);
    for told in [out, err, other_out, other_err] {
        assert!(!told.contains(secret) && !told.contains(PASSWORD), "{told}");
    }
    let options = PostgresOptions::new();
    let store = PostgresStore::open_with(&tcp, options.clone()).unwrap();
    let told = format!("{options:?} {}", store.place());
    assert!(!told.contains(PASSWORD), "{told}");
}
