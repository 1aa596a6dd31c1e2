//! The sync of one session.

use loopstore::*;
use loopstore_sync::{SyncFilter, SyncOptions, sync};

use crate::stage::{assert_same, both, contexts, ids, loops, memory, messages, whole};

fn say(store: &Store, id: &str, texts: &[&str]) {
    let chat = store.session(id).unwrap();
    for text in texts {
        chat.append([
            Message::user(*text),
            Message::assistant(format!("re: {text}")),
        ])
        .unwrap();
    }
}

#[test]
fn the_union_of_sessions_is_in_both() {
    let (a, b) = (memory(), memory());
    say(&a, "weather", &["Will it rain?"]);
    say(&b, "dinner", &["What is there?"]);
    let report = whole(&a, &b);
    assert_eq!((report.sent.len(), report.fetched.len()), (1, 1));
    assert_same(&a, &b);
    assert_eq!(ids(&a).len(), 2);
    assert_eq!(whole(&b, &a).unchanged, 2);
}

#[test]
fn a_session_that_one_continued_is_continued_in_the_other() {
    let (a, b) = (memory(), memory());
    say(&a, "weather", &["Will it rain?"]);
    whole(&a, &b);
    say(&b, "weather", &["And tomorrow?"]);
    let report = whole(&a, &b);
    assert_eq!(report.updated_here.len(), 1);
    assert_same(&a, &b);
}

#[test]
fn a_session_that_both_continued_has_two_branches() {
    let (a, b) = (memory(), memory());
    let id = SessionId::new("weather").unwrap();
    say(&a, "weather", &["Will it rain?"]);
    whole(&a, &b);
    say(&a, "weather", &["And tomorrow?", "And then?"]);
    say(&b, "weather", &["Thanks."]);
    let before: Vec<String> = [&a, &b]
        .into_iter()
        .flat_map(|store| contexts(store, &id).into_values())
        .collect();
    let report = whole(&a, &b);
    assert_eq!(report.merged.len(), 1);
    assert_same(&a, &b);
    let after: Vec<String> = contexts(&a, &id).into_values().collect();
    for context in before {
        assert!(after.contains(&context), "{context} is not among {after:?}");
    }
    assert!(messages(&a, &id).values().all(|count| *count == 1));
    assert_eq!(whole(&a, &b).unchanged, 1);
    // Each branch goes on, in another database each.
    let leaves = loops(&a, &id);
    assert!(leaves.len() >= 2, "{leaves:?}");
    say(&a, "weather", &["More here"]);
    whole(&b, &a);
    assert_same(&a, &b);
}

#[test]
fn a_dry_run_writes_nothing() {
    let (a, b) = (memory(), memory());
    say(&a, "weather", &["Will it rain?"]);
    let options = SyncOptions {
        dry_run: true,
        ..SyncOptions::default()
    };
    let report = sync(a.database(), b.database(), &options, &mut |_, _| {}).unwrap();
    assert_eq!((report.sent.len(), report.dry_run), (1, true));
    assert_eq!(ids(&b), []);
}

#[test]
fn only_the_selected_sessions_are_brought_together() {
    let (a, b) = (memory(), memory());
    say(&a, "weather", &["Will it rain?"]);
    let options = SyncOptions {
        filter: SyncFilter {
            project: Some("elsewhere".into()),
            since: None,
        },
        ..SyncOptions::default()
    };
    let report = sync(a.database(), b.database(), &options, &mut |_, _| {}).unwrap();
    assert_eq!(report.sent, []);
    assert_eq!(ids(&b), []);
    let since = |time: &str| SyncOptions {
        filter: SyncFilter {
            project: None,
            since: Some(time.into()),
        },
        ..SyncOptions::default()
    };
    sync(
        a.database(),
        b.database(),
        &since("2999-01-01T00:00:00Z"),
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(ids(&b), []);
    sync(
        a.database(),
        b.database(),
        &since("2001-01-01T00:00:00Z"),
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(ids(&b).len(), 1);
}

#[test]
fn a_session_in_use_is_left_and_named() {
    use loopstore::extend::lease::{Acquire, acquire};
    let (a, b) = (memory(), memory());
    say(&a, "weather", &["Will it rain?"]);
    whole(&a, &b);
    say(&b, "weather", &["And tomorrow?"]);
    let id = SessionId::new("weather").unwrap();
    let lease = loopstore::extend::write(a.database(), |write| {
        let row = write.session(&id)?.unwrap();
        let key = row.current_loop.unwrap();
        acquire(
            write,
            key,
            "an agent",
            60_000,
            loopstore_model::clock::now(),
        )
    });
    assert!(matches!(lease.unwrap(), Acquire::Acquired(_)));
    let report = both(&a, &b);
    assert!(report.failed[0].reason.contains("an agent"), "{report:?}");
}
