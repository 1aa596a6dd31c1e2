//! A Citus cluster: what is not supported there, the output of `--check`, and the cost of a hot write on the nodes.
//!
//! Tests that need a real cluster run if `LOOPSTORE_CITUS` names one (`.ci/citus`); the tests of histories, commands
//! and views then run on it too.

use std::time::{Duration, Instant};

use loopstore::extend as store;
use loopstore::*;
use loopstore_postgres::{PostgresOptions, PostgresStore};
use serde_json::Value;

use crate::commands::command;
use crate::support::citus::Cluster;
use crate::support::histories::{History, answer, result, user};
use crate::support::server;

/// The SQL that makes a plain server look like a node of a cluster; the group of the coordinator is 0.
fn disguise(group: u32) -> String {
    format!(
        "SET allow_system_table_mods = on;
         INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
         VALUES (99999, 'citus', 10, 2200, FALSE, '13.2');
         CREATE TABLE pg_dist_local_group (groupid INT NOT NULL);
         INSERT INTO pg_dist_local_group VALUES ({group});
         CREATE TABLE pg_dist_partition (logicalrelid REGCLASS NOT NULL);
         CREATE FUNCTION citus_version() RETURNS TEXT LANGUAGE sql RETURN 'Citus 13.2 on nothing';"
    )
}

fn opening(address: &str) -> OpenError {
    match PostgresStore::open(address) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[test]
fn a_cluster_without_distributed_tables_and_a_worker_are_refused_and_nothing_is_made_there() {
    let Some(server) = server::server() else {
        return;
    };
    if Cluster::from_environment().is_some() {
        return;
    }
    for (group, prepared, told) in [
        (0, false, "there are no tables yet"),
        (0, true, "its tables lie on the coordinator alone"),
        (3, false, "connect to its coordinator"),
    ] {
        let name = if prepared {
            server.prepared()
        } else {
            server.database()
        };
        let mut client = server.client(&name);
        client.batch_execute(&disguise(group)).unwrap();
        let error = opening(&server.address(&name));
        assert!(error.to_string().contains(told), "{error}");
        let kind = matches!(
            (group, &error),
            (0, OpenError::Undistributed { .. }) | (3, OpenError::Worker { .. })
        );
        assert!(kind, "{error:?}");
        let sql = "SELECT to_regclass('refinery_schema_history') IS NOT NULL";
        let made: bool = client.query_one(sql, &[]).unwrap().get(0);
        assert_eq!(made, prepared, "{told}");
    }
}

#[test]
fn a_check_says_what_a_server_lacks_to_be_a_cluster() {
    let Some(server) = server::server() else {
        return;
    };
    if Cluster::from_environment().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let checked = |address: &str, more: &[&str]| {
        let args = [&["schema", "--engine", "citus", "--check"], more].concat();
        command(folder.path(), address, &args)
    };
    let name = server.database();
    let address = server.tcp_address(&name);
    let (code, out, _) = checked(&address, &["--json"]);
    assert_eq!(code, Some(1));
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["ok"], false);
    assert_eq!(said["checks"][0]["name"], "citus");
    let (code, out, _) = checked(&address, &[]);
    assert_eq!(code, Some(1));
    assert!(out.contains("CREATE EXTENSION citus"), "{out}");
    assert!(!out.contains(server::PASSWORD));
    server.client(&name).batch_execute(&disguise(2)).unwrap();
    let (code, out, _) = checked(&address, &[]);
    assert_eq!(code, Some(1));
    assert!(
        out.contains("NOT coordinator: this server is a worker"),
        "{out}"
    );
    // The command works on a server and on a cluster.
    for (database, args) in [
        (
            "some.db",
            &["schema", "--engine", "citus", "--check"] as &[&str],
        ),
        (address.as_str(), &["schema", "--check"]),
    ] {
        let (code, _, err) = command(folder.path(), database, args);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("--check"), "{err}");
    }
    let (code, _, err) = checked(&server.tcp_address("nowhere"), &[]);
    assert_eq!(code, Some(1), "{err}");
}

/// Returns the server of the cluster, if there is one.
fn cluster() -> Option<&'static server::PostgresServer> {
    Cluster::from_environment().and_then(|_| server::server())
}

#[test]
fn on_a_cluster_a_check_finds_all_in_order_or_what_was_left_out() {
    let Some(server) = cluster() else { return };
    let folder = tempfile::tempdir().unwrap();
    let args = ["schema", "--engine", "citus", "--check", "--json"];
    let checked = |database: &str| {
        let (_, out, err) = command(folder.path(), &server.address(database), &args);
        serde_json::from_str::<Value>(&out).unwrap_or_else(|_| panic!("{out} {err}"))
    };
    let wrong = |said: &Value| -> Vec<String> {
        let checks = said["checks"].as_array().unwrap().iter();
        let wrong = checks.filter(|check| check["ok"] == false);
        wrong
            .map(|check| check["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let empty = server.database();
    assert!(wrong(&checked(&empty)).contains(&"tables".to_owned()));
    let error = opening(&server.address(&empty));
    assert!(matches!(error, OpenError::Undistributed { .. }), "{error}");
    let name = server.prepared();
    // The servers of tests run without fsync.
    let said = checked(&name);
    assert!(
        wrong(&said).iter().all(|name| name == "durability"),
        "{said}"
    );
    let mut client = server.client(&name);
    client
        .batch_execute("SELECT undistribute_table('index_state')")
        .unwrap();
    assert!(wrong(&checked(&name)).contains(&"placement".to_owned()));
}

#[test]
fn on_a_cluster_who_waits_for_another_writer_is_told_busy_in_time() {
    let Some(server) = cluster() else { return };
    let name = server.prepared();
    let patience = Duration::from_millis(700);
    let options = PostgresOptions::new().patience(patience);
    let held = PostgresStore::open(&server.address(&name)).unwrap();
    let waits = PostgresStore::open_with(&server.address(&name), options).unwrap();
    let history = History::new(&held, "s");
    history.append(0, vec![user("hello", 0)]);
    let row = history.row(0);
    let begun = store::write(&held, |write| {
        write.loop_by_key(row.key)?;
        let since = Instant::now();
        let done = store::write(&waits, |write| write.session_by_key(row.session).map(drop));
        assert!(matches!(done, Err(StoreError::Busy)), "{done:?}");
        Ok(since.elapsed())
    });
    let waited = begun.unwrap();
    assert!(waited >= patience && waited < patience * 6, "{waited:?}");
}

#[test]
fn on_a_cluster_an_append_is_a_plain_commit_on_one_node() {
    let Some(server) = cluster() else { return };
    let name = server.prepared();
    let store = PostgresStore::open(&server.address(&name)).unwrap();
    let histories: Vec<_> = (0..4)
        .map(|at| History::new(&store, &format!("s-{at}")))
        .collect();
    let mut client = server.client(&name);
    // A two-phase commit leaves a row here until the cluster has cleaned up.
    let mut prepared = || -> i64 {
        let sql = "SELECT count(*) FROM pg_dist_transaction";
        client.query_one(sql, &[]).unwrap().get(0)
    };
    let before = prepared();
    for history in &histories {
        for turn in 0..4 {
            let call = format!("call-{turn}");
            let text = vec![
                Content::text("line\n"),
                Content::image("aGVsbG8=", "image/png"),
            ];
            history.append(
                0,
                vec![
                    user("please", turn),
                    answer("yes", &[&call], turn),
                    result(&call, text, turn),
                ],
            );
        }
    }
    assert_eq!(prepared(), before);
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}
