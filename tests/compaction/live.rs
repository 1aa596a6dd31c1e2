//! A handle keeps its context from call to call: it equals the context that is built from scratch, whatever happened
//! between, and unchanged parts are not read again.

use crate::support::amount::amount;
use crate::support::histories::{History, Random, answer, loop_id, open, user};
use crate::support::keyed;
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};

/// Returns a handle whose contexts are never compacted.
fn chat(store: &Store) -> SessionHandle {
    let chat = store.session("s").unwrap();
    chat.with_policy(Policy::new(1 << 40))
}

/// Returns the context that is built from scratch.
fn built(chat: &SessionHandle) -> Context {
    let options = BuildOptions {
        leaf: chat.leaf().unwrap(),
        ..BuildOptions::default()
    };
    build_context_from_session(chat.store().database(), chat.id(), &options).unwrap()
}

#[test]
fn it_is_what_a_build_gives_after_random_changes() {
    for seed in 0..amount("LOOPSTORE_HISTORIES", 40) {
        let store = Store::in_memory().unwrap();
        // Every change is made without the handles: appends, compactions, undos, branches.
        let mut history = History::new(store.database(), "s");
        let mut random = Random::new(seed);
        let line = chat(&store);
        let mut branch = chat(&store).at_loop(&loop_id(0)).unwrap();
        // A returned context does not change when more is read.
        let mut given_out = Vec::new();
        for step in 0..60 {
            history.step(&mut random);
            if random.one_in(12) {
                let at = random.below(history.loops as u64) as usize;
                branch = chat(&store).at_loop(&loop_id(at)).unwrap();
            }
            // A handle that was not used for some time has more to read.
            for (chat, often) in [(&line, 2), (&branch, 3)] {
                if random.one_in(often) {
                    let ready = chat.prepare().unwrap();
                    let fresh = built(chat);
                    assert_eq!(*ready.context, fresh, "seed {seed}, step {step}");
                    if random.one_in(3) {
                        given_out.push((ready, fresh));
                    }
                }
            }
        }
        for (ready, then) in given_out {
            assert_eq!(*ready.context, then, "seed {seed}");
        }
    }
}

#[test]
fn what_was_seen_before_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.db");
    let store = Store::from(open(&path));
    let history = History::new(store.database(), "s");
    for turn in 0..100 {
        history.append(
            0,
            vec![user("Will it rain?", turn), answer("No.", &[], turn)],
        );
    }
    let chat = chat(&store);
    let before = chat.prepare().unwrap();
    // Makes every sealed message unreadable.
    let raw = keyed::raw(&path).unwrap();
    let sealed = history.row(0).totals.sealed_seq;
    raw.execute_batch("DROP TRIGGER messages_no_update")
        .unwrap();
    let sql = "UPDATE messages SET head = '{' WHERE (id & 4294967295) < ?1";
    assert_eq!(raw.execute(sql, [sealed]).unwrap(), sealed as usize);
    assert!(sealed > 190 && chat.context().is_err());

    let row = history.row(0);
    assert_eq!(row.totals.turns, 100);
    let after = chat.prepare().unwrap();
    assert_eq!(after.context, before.context);
    history.append(0, vec![user("And tomorrow?", 100)]);
    assert_eq!(chat.prepare().unwrap().messages().len(), 201);
}

#[test]
fn what_was_redacted_is_gone_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::from(open(&folder.path().join("some.db")));
    let history = History::new(store.database(), "s");
    // As long as its marker, so that the size does not change.
    let secret = "s3cr3t".repeat(5);
    let address = format!("use postgres://me:{secret}@host/db");
    history.append(0, vec![user(&address, 0), answer("yes", &[], 0)]);
    history.append(0, vec![user("and now", 1), answer("done", &[], 1)]);
    let chat = chat(&store);
    let before = chat.prepare().unwrap().context;
    assert!(format!("{before:?}").contains(&secret));

    redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
    let after = chat.prepare().unwrap().context;
    assert_eq!((after.tokens, after.bytes), (before.tokens, before.bytes));
    assert!(!format!("{after:?}").contains(&secret));
    assert_eq!(*after, built(&chat));
}

#[test]
fn an_agent_that_compacts_keeps_one_within_its_window() {
    let store = Store::in_memory().unwrap();
    let history = History::new(store.database(), "s");
    let chat = chat(&store).with_policy(Policy::new(3_000));
    let mut committed = 0;
    for turn in 0..60 {
        let long = format!("step {turn} {}", "of a long way ".repeat(20));
        history.append(0, vec![user(&long, turn), answer(&long, &[], turn)]);
        let ready = chat.prepare().unwrap();
        assert!(ready.context.tokens <= 3_000);
        assert_eq!(*ready.context, built(&chat));
        committed += u32::from(ready.was_compacted());
    }
    assert!(committed > 1);
}

#[test]
fn one_that_does_not_fit_is_an_error_and_one_that_is_not_there_is_empty() {
    let store = Store::in_memory().unwrap();
    let history = History::new(store.database(), "s");
    history.append(0, vec![user("a few words", 0)]);
    let tight = chat(&store).with_policy(Policy::new(1));
    assert!(matches!(tight.prepare(), Err(Error::BudgetTooSmall { .. })));
    assert_eq!(chat(&store).prepare().unwrap().messages().len(), 1);

    let stranger = store.session("x' OR 1=1 --").unwrap();
    assert!(stranger.prepare().unwrap().messages().is_empty());
}
