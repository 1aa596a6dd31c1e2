//! The choice of the sessions that are pruned.

use loopstore::extend::{SessionFilter, lease};
use loopstore::{extend as store, *};
use loopstore_admin::retention::{KeepReason, PruneReport, PruneRequest, prune, set_protected};
use loopstore_transcripts::{OpenAiChat, Source, import_source};

use crate::support::removal::*;

const DAY: i64 = 24 * 60 * 60 * 1000;

fn days_ago(days: i64) -> String {
    let now = Time::now().millis().unwrap();
    Time::from_millis(now - days * DAY)
        .unwrap()
        .as_str()
        .to_owned()
}

/// Creates a session of an agent that was active this many days ago, started by a parent.
fn old(store: &SqliteStore, id: &str, agent: &str, days: i64, parent: Option<&str>) {
    told(store, id);
    store::write(store, |write| {
        let mut row = write.session(&session(id))?.unwrap();
        row.agent_id = Some(agent.into());
        row.last_active_at = Some(days_ago(days));
        let mut told: Session = serde_json::from_str(&row.meta).unwrap();
        let spawn = parent.map(|id| format!("{{\"parent_session_id\":\"{id}\"}}"));
        told.parent_spawn_ref = spawn.map(|json| serde_json::from_str(&json).unwrap());
        row.meta = serde_json::to_string(&told).unwrap();
        write.update_session(&row)?;
        for mut row in write.loops(row.key)? {
            row.status = LoopStatus::Completed;
            write.update_loop(&row)?;
        }
        Ok(())
    })
    .unwrap();
}

fn aged(days: i64) -> PruneRequest {
    PruneRequest {
        older_than: Some(days * DAY),
        ..PruneRequest::default()
    }
}

fn gone(report: &PruneReport) -> Vec<&str> {
    report
        .pruned
        .iter()
        .map(|one| one.session_id.as_str())
        .collect()
}

fn stage() -> (Stage, SqliteStore) {
    let stage = Stage::new();
    let store = stage.store();
    old(&store, "oldest", "a", 90, None);
    old(&store, "older", "b", 60, None);
    old(&store, "old", "a", 40, None);
    old(&store, "new", "a", 0, None);
    (stage, store)
}

#[test]
fn old_sessions_go_and_a_dry_run_tells_the_same() {
    let (_stage, store) = stage();
    let dry_run = true;
    let told = prune(
        &store,
        &PruneRequest {
            dry_run,
            ..aged(30)
        },
    )
    .unwrap();
    assert_eq!(gone(&told), ["oldest", "older", "old"]);
    assert_eq!(number(&store, "SELECT count(*) AS n FROM sessions"), 4);
    assert_eq!(number(&store, "SELECT count(*) AS n FROM maintenance"), 0);
    let done = prune(&store, &aged(30)).unwrap();
    assert_eq!(gone(&done), gone(&told));
    let receipts = "SELECT count(*) AS n FROM maintenance
         WHERE kind = 'prune' AND closed_at IS NOT NULL";
    assert_eq!(number(&store, receipts), 3);
    assert_eq!(number(&store, "SELECT count(*) AS n FROM sessions"), 1);
    assert_whole(&store);
    assert!(prune(&store, &aged(30)).unwrap().pruned.is_empty());
}

#[test]
fn the_newest_stay_and_other_agents_are_not_counted() {
    let (_stage, store) = stage();
    let request = |keep_last, agent: Option<&str>| PruneRequest {
        keep_last: Some(keep_last),
        agent: agent.map(str::to_owned),
        dry_run: true,
        ..PruneRequest::default()
    };
    let of = |request: &PruneRequest| prune(&store, request).unwrap();
    assert_eq!(gone(&of(&request(2, None))), ["oldest", "older"]);
    assert_eq!(gone(&of(&request(2, Some("a")))), ["oldest"]);
    assert!(of(&request(usize::MAX, None)).pruned.is_empty());
    let both = PruneRequest {
        older_than: Some(50 * DAY),
        ..request(3, None)
    };
    assert_eq!(gone(&of(&both)), ["oldest"]);
    assert_eq!(
        gone(&of(&request(0, Some("x'; DROP TABLE sessions; --")))),
        [""; 0]
    );
    let nothing = prune(&store, &PruneRequest::default());
    assert!(matches!(nothing, Err(StoreError::Invalid(_))));
}

#[test]
fn pinned_and_driven_sessions_stay() {
    let (_stage, store) = stage();
    set_protected(&store, &session("oldest"), true).unwrap();
    let now = Time::now().millis().unwrap();
    let _held = store::write(&store, |write| {
        let owner = write.session(&session("older"))?.unwrap();
        let key = write.loops(owner.key)?[0].key;
        lease::acquire(write, key, "me", 60_000, now)
    })
    .unwrap();
    let report = prune(&store, &aged(30)).unwrap();
    assert_eq!(gone(&report), ["old"]);
    let why: Vec<(&str, KeepReason)> = report
        .kept
        .iter()
        .map(|one| (one.session_id.as_str(), one.why))
        .collect();
    assert_eq!(
        why,
        [
            ("oldest", KeepReason::Protected),
            ("older", KeepReason::Open)
        ]
    );
    set_protected(&store, &session("oldest"), false).unwrap();
    assert_eq!(gone(&prune(&store, &aged(30)).unwrap()), ["oldest"]);
    assert!(set_protected(&store, &session("nobody"), true).is_err());
}

#[test]
fn sessions_that_started_each_other_go_together_or_stay() {
    let (_stage, store) = stage();
    old(&store, "parent", "a", 80, None);
    old(&store, "child", "a", 70, Some("parent"));
    old(&store, "grandchild", "a", 2, Some("child"));
    let report = prune(&store, &aged(50)).unwrap();
    assert_eq!(gone(&report), ["oldest", "older"]);
    assert!(report.kept.iter().all(|one| one.why == KeepReason::Linked));
    assert_eq!(report.kept.len(), 2);
    let report = prune(&store, &aged(1)).unwrap();
    assert_eq!(gone(&report), ["old", "parent", "child", "grandchild"]);
    assert_whole(&store);
}

#[test]
fn only_messages_and_a_new_branch_keep_an_old_session() {
    type Happens = fn(&SqliteStore, &SessionId);
    let happens: [(&str, bool, Happens); 3] = [
        ("compacted", false, |store, id| {
            let mut request = CompactRequest {
                trigger: CompactTrigger::Force,
                ..CompactRequest::default()
            };
            request.policy.compaction.keep_recent = KeepRecent::Turns(1);
            request.policy.compaction.max_summary_tokens = 50;
            let report = compact_session_loops(store, id, &request).unwrap();
            assert!(report.run.is_some(), "{report:?}");
        }),
        // A forked session is about to be continued.
        ("forked", true, |store, id| {
            store::write(store, |write| {
                let parent = write.session(id)?.and_then(|row| row.current_loop).unwrap();
                let fork = store::session::Fork {
                    loop_id: LoopId::new("branch").unwrap(),
                    turn: 0,
                    seq: None,
                    tag: "t".into(),
                };
                store::session::fork(write, parent, &fork)
            })
            .unwrap();
        }),
        ("noted", false, |store, id| {
            let options = BuildOptions {
                record: true,
                ..BuildOptions::default()
            };
            build_context_from_session(store, id, &options).unwrap();
        }),
    ];
    for (what, is_kept, happen) in happens {
        let (_stage, store) = stage();
        let before = store::read(&store, |read| read.session(&session("oldest"))).unwrap();
        happen(&store, &session("oldest"));
        let after = store::read(&store, |read| read.session(&session("oldest"))).unwrap();
        let active = |row: Option<store::SessionRow>| row.unwrap().last_active_at;
        assert_eq!(active(after), active(before), "{what}");
        let report = prune(&store, &aged(30)).unwrap();
        assert_eq!(gone(&report).contains(&"oldest"), !is_kept, "{what}");
        let kept = report.kept.iter().map(|one| one.session_id.as_str());
        assert_eq!(
            kept.collect::<Vec<_>>().contains(&"oldest"),
            is_kept,
            "{what}"
        );
    }
}

/// Creates a session without a known time: from a transcript without times that is not a file.
fn undated(store: &SqliteStore) -> SessionId {
    let mut chat = std::io::Cursor::new(r#"[{"role":"user","content":"When was that?"}]"#);
    let mut source = Source {
        path: std::path::Path::new("no/such/file.json"),
        reader: &mut chat,
    };
    let report = import_source(store, &OpenAiChat, &mut source, None).unwrap();
    report.sessions[0].clone()
}

#[test]
fn a_session_without_any_time_has_no_age_and_comes_behind_all_others() {
    let (_stage, store) = stage();
    let id = undated(&store);
    store::write(&store, |write| {
        let key = write
            .session(&id)?
            .and_then(|row| row.current_loop)
            .unwrap();
        store::append::set_status(write, key, LoopStatus::Completed)
    })
    .unwrap();
    let report = prune(&store, &aged(0)).unwrap();
    assert!(!gone(&report).contains(&id.as_str()), "{report:?}");
    let kept = report.kept.iter().find(|one| one.session_id == id).unwrap();
    assert_eq!(kept.why, KeepReason::Undated);
    let rows = store.session_rows(&SessionFilter::default()).unwrap();
    let last = rows.last().unwrap();
    assert_eq!(last.text("session_id").as_deref(), Some(id.as_str()));
    assert_eq!(last.text("last_active_at"), None);
    let newest = PruneRequest {
        keep_last: Some(rows.len() - 1),
        ..PruneRequest::default()
    };
    assert_eq!(gone(&prune(&store, &newest).unwrap()), [id.as_str()]);
}
