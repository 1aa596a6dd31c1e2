//! A recount on a server: the figures are those of a file, and no program writes with the old counter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loopstore::extend::{self as store, sqlite};
use loopstore::*;
use loopstore_postgres::{PostgresOptions, PostgresStore, recount, tenant};
use loopstore_verify::verify;

use crate::support::histories::{History, Random, user};
use crate::support::letters::LETTERS;
use crate::support::{keyed, server, views};

fn letters() -> PostgresOptions {
    PostgresOptions::new().counter(Arc::new(LETTERS))
}

/// Returns the totals of the loops of a session.
fn totals(store: &dyn SessionStore, session: &SessionId) -> Vec<String> {
    let rows = store::read(store, |read| {
        let key = read.session(session)?.unwrap().key;
        read.loops(key)
    });
    let rows = rows.unwrap().into_iter();
    rows.map(|row| format!("{} {:?}", row.loop_id, row.progress.system_tokens))
        .collect()
}

#[test]
fn a_recount_gives_the_figures_of_a_file() {
    let Some(server) = server::server() else {
        return;
    };
    let address = server.address(&server.prepared());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let options = || keyed::options().durability(Durability::Normal);
    let mut sessions = Vec::new();
    {
        let file = SqliteStore::open_with(&path, options()).unwrap();
        let there = PostgresStore::open(&address).unwrap();
        for seed in 60..64 {
            let id = format!("session-{seed}");
            for store in [&file as &dyn SessionStore, &there] {
                let (mut history, mut random) = (History::new(store, &id), Random::new(seed));
                (0..25).for_each(|_| history.step(&mut random));
            }
            sessions.push(SessionId::new(id).unwrap());
        }
    }
    let compare = |file: &SqliteStore, there: &PostgresStore| {
        for session in &sessions {
            views::compare(file, there, session);
            assert_eq!(totals(file, session), totals(there, session));
        }
        assert!(verify(there).unwrap().ok);
    };
    let mut seen = 0;
    let anew = options().counter(Arc::new(LETTERS));
    let one = sqlite::recount(&path, anew, &mut |_| ()).unwrap();
    let two = recount(&address, letters(), &mut |progress| {
        seen = progress.messages;
        assert!(progress.messages <= progress.all_messages);
    });
    assert_eq!(two.unwrap(), one);
    assert!(one.blocks > 0 && seen == one.messages, "{one:?}");
    let file = SqliteStore::open_with(&path, options().counter(Arc::new(LETTERS))).unwrap();
    let there = PostgresStore::open_with(&address, letters()).unwrap();
    compare(&file, &there);
    drop((file, there));
    // And back.
    sqlite::recount(&path, options(), &mut |_| ()).unwrap();
    recount(&address, PostgresOptions::new(), &mut |_| ()).unwrap();
    let file = SqliteStore::open_with(&path, options()).unwrap();
    compare(&file, &PostgresStore::open(&address).unwrap());
}

#[test]
fn a_recount_that_is_cut_off_goes_on_and_keeps_writers_with_the_old_counter_out() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let address = server.address(&name);
    let before = PostgresStore::open(&address).unwrap();
    for number in 0..3 {
        let history = History::new(&before, &format!("s{number}"));
        history.append(0, vec![user("some words", 0)]);
    }
    let history = History::new(&before, "of before");
    let mut steps = 0;
    let cut = catch_unwind(AssertUnwindSafe(|| {
        recount(&address, letters(), &mut |_| {
            steps += 1;
            assert!(steps < 2, "the process ends");
        })
    }));
    assert!(cut.is_err());
    for options in [PostgresOptions::new(), letters()] {
        let Err(error) = PostgresStore::open_with(&address, options) else {
            panic!("it opened");
        };
        assert!(matches!(error, OpenError::Recounting { .. }), "{error}");
    }
    let refused = |store: &PostgresStore| {
        let loop_key = history.row(0).key;
        let done = store::write(store, |write| write.remove_notes(loop_key));
        let error = done.unwrap_err().to_string();
        assert!(error.contains("open it again"), "{error}");
    };
    refused(&before);
    let report = recount(&address, letters(), &mut |_| ()).unwrap();
    assert!(report.resumed);
    refused(&before);
    let after = PostgresStore::open_with(&address, letters()).unwrap();
    assert!(verify(&after).unwrap().ok);
    drop(after);
    // In a database with tenants, a recount applies to all of them.
    let role = format!("counter of {name}");
    let mut client = server.client(&name);
    client
        .batch_execute(&format!("CREATE ROLE \"{role}\" LOGIN"))
        .unwrap();
    client
        .batch_execute(&tenant(server.engine(), "one", &role).unwrap())
        .unwrap();
    let of_one = server.address_as(&role, &name);
    let error = recount(&of_one, PostgresOptions::new(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("a recount is of all"), "{error}");
    recount(&address, PostgresOptions::new(), &mut |_| ()).unwrap();
    assert!(PostgresStore::open(&of_one).is_ok());
}
