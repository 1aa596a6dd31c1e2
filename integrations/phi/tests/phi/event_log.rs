//! The log of events: ordinals, flushes, restarts, and a database that cannot be written.

use loopstore::*;
use loopstore_phi::{PhiEventLog, PhiSessionStore};

use phi_core::AgentEvent;
use phi_core::session::{EventLog, SessionError, SessionStore};

use super::stage::*;

fn event(n: u64) -> AgentEvent {
    AgentEvent::InputRejected {
        loop_id: format!("s.mock.{n}"),
        reason: format!("number {n}"),
    }
}

fn number(event: &AgentEvent) -> u64 {
    match event {
        AgentEvent::InputRejected { reason, .. } => reason[7..].parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn numbers(log: &PhiEventLog, session: &str, since: u64) -> Vec<(u64, u64)> {
    let read = log.read_since(session, since).await.unwrap();
    read.iter()
        .map(|(at, event)| (*at, number(event)))
        .collect()
}

#[test]
fn ordinals_are_contiguous_for_each_session_and_a_flush_makes_them_readable() {
    runtime().block_on(async {
        let log = PhiEventLog::new(in_memory());
        for n in 1..=50 {
            assert_eq!(log.append("a", event(n)).await.unwrap(), n);
            assert_eq!(log.append("b", event(n + 100)).await.unwrap(), n);
        }
        log.flush("a").await.unwrap();
        let all: Vec<(u64, u64)> = (1..=50).map(|n| (n, n)).collect();
        assert_eq!(numbers(&log, "a", 0).await, all);
        assert_eq!(numbers(&log, "a", 47).await, all[47..]);
        assert_eq!(numbers(&log, "b", 49).await, [(50, 150)]);
        for since in [50, 51, u64::MAX] {
            assert!(numbers(&log, "a", since).await.is_empty());
        }
        assert!(numbers(&log, "nobody", 0).await.is_empty());
    });
}

#[test]
fn ordinals_go_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    for round in 0..3 {
        runtime().block_on(async {
            let log = PhiEventLog::new(open(&path));
            for n in 1..=4 {
                let n = round * 4 + n;
                assert_eq!(log.append("s", event(n)).await.unwrap(), n);
            }
            log.flush("s").await.unwrap();
        });
    }
    let all = runtime().block_on(async { numbers(&PhiEventLog::new(open(&path)), "s", 0).await });
    assert_eq!(all, (1..=12).map(|n| (n, n)).collect::<Vec<_>>());
}

#[test]
fn many_tasks_get_each_ordinal_once() {
    runtime().block_on(async {
        let log = PhiEventLog::new(in_memory());
        let tasks: Vec<_> = (1..=100)
            .map(|n| {
                let log = log.clone();
                tokio::spawn(async move { (log.append("s", event(n)).await.unwrap(), n) })
            })
            .collect();
        let mut given = Vec::new();
        for task in tasks {
            given.push(task.await.unwrap());
        }
        given.sort_unstable();
        log.flush("s").await.unwrap();
        assert_eq!(numbers(&log, "s", 0).await, given);
        assert!(given.iter().map(|one| one.0).eq(1..=100));
    });
}

#[test]
fn a_dropped_flush_loses_nothing() {
    runtime().block_on(async {
        let log = PhiEventLog::new(in_memory());
        for n in 1..=40 {
            log.append("s", event(n)).await.unwrap();
            let mut flush = std::pin::pin!(log.flush("s"));
            let waker = std::task::Waker::noop();
            let _ = flush
                .as_mut()
                .poll(&mut std::task::Context::from_waker(waker));
        }
        log.flush("s").await.unwrap();
        let all: Vec<(u64, u64)> = (1..=40).map(|n| (n, n)).collect();
        assert_eq!(numbers(&log, "s", 0).await, all);
    });
}

#[test]
fn what_another_log_wrote_is_not_overwritten() {
    runtime().block_on(async {
        let store = in_memory();
        let (one, other) = (PhiEventLog::new(store.clone()), PhiEventLog::new(store));
        one.append("s", event(1)).await.unwrap();
        one.flush("s").await.unwrap();
        other.append("s", event(2)).await.unwrap();
        other.flush("s").await.unwrap();
        one.append("s", event(3)).await.unwrap();
        let refused = one.flush("s").await.unwrap_err();
        assert!(matches!(refused, SessionError::Io(_)), "{refused}");
        assert_eq!(numbers(&one, "s", 0).await, [(1, 1), (2, 2)]);
    });
}

#[test]
fn a_locked_database_is_told_and_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let options =
        crate::support::keyed::options().busy_timeout(std::time::Duration::from_millis(20));
    let store = Store::from(SqliteStore::open_with(&path, options).unwrap());
    runtime().block_on(async {
        let log = PhiEventLog::new(store.into());
        log.append("s", event(1)).await.unwrap();
        log.flush("s").await.unwrap();
        let other = crate::support::keyed::raw(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        log.append("s", event(2)).await.unwrap();
        log.append("s", event(3)).await.unwrap();
        let refused = log.flush("s").await.unwrap_err();
        assert!(matches!(&refused, SessionError::Locked { session_id } if session_id == "s"));
        other.execute_batch("ROLLBACK").unwrap();
        log.flush("s").await.unwrap();
        assert_eq!(numbers(&log, "s", 0).await, [(1, 1), (2, 2), (3, 3)]);
    });
}

#[test]
fn logs_are_no_sessions_of_the_store_in_no_context_and_not_searched() {
    runtime().block_on(async {
        let store = in_memory();
        let log = PhiEventLog::new(store.clone());
        log.append("s", event(1)).await.unwrap();
        log.flush("s").await.unwrap();
        let sessions = PhiSessionStore::new(store.clone());
        assert!(sessions.list_ids().await.unwrap().is_empty());
        let chat = store.session("phi-core-events/s").unwrap();
        assert!(chat.context().await.unwrap().messages.is_empty());
        let found = store.search(SearchQuery::new("number")).await.unwrap();
        assert!(found.hits.is_empty());
    });
}
