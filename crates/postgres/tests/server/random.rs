//! The same random histories on both backends give the same contexts, byte by byte.

use loopstore::context::{AsOf, build_context_as_of};
use loopstore::*;
use loopstore_admin::retention::{ArchiveRequest, UnarchiveRequest, archive, unarchive};
use loopstore_export::{ExportForm, export};
use loopstore_verify::verify;

use crate::support::amount::amount;
use crate::support::histories::{History, Random, loop_id};
use crate::support::server;
use crate::support::views;

/// Returns every context that a model could see of a session, as JSON.
fn contexts(store: &dyn SessionStore, history: &History<'_>) -> Vec<String> {
    let json = |context: &Context| {
        let messages = serde_json::to_string(&context.messages).unwrap();
        format!("{} {} {:?}", messages, context.tokens, context.faults)
    };
    let mut all = Vec::new();
    for at in 0..history.loops {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        let built = build_context_from_session(store, &history.session, &options).unwrap();
        all.push(json(&built));
        for turn in 0..history.row(at).totals.turns {
            let moment = AsOf::Turn {
                loop_id: loop_id(at),
                turn,
            };
            let built = build_context_as_of(store, &history.session, moment).unwrap();
            all.push(json(&built));
        }
    }
    all
}

/// Plays one history on both backends.
fn play(postgres: &dyn Database, seed: u64) {
    let sqlite = SqliteStore::in_memory().unwrap();
    let id = format!("session-{seed}");
    let mut twins = [&sqlite as &dyn SessionStore, postgres as &dyn SessionStore]
        .map(|store| (History::new(store, &id), Random::new(seed)));
    let steps = 12 + seed % 20;
    for step in 0..steps {
        for (history, random) in &mut twins {
            history.step(random);
            if step % 7 == 6 {
                history.end_loop(history.loops / 2);
            }
        }
        let [(one, _), (two, _)] = &twins;
        assert_eq!(
            (one.loops, one.committed, one.next_id),
            (two.loops, two.committed, two.next_id),
            "seed {seed}"
        );
    }
    let [(one, _), (two, _)] = &twins;
    assert_eq!(
        contexts(&sqlite, one),
        contexts(postgres, two),
        "seed {seed}"
    );
    views::compare(&sqlite, postgres, &one.session);
    archived(&twins, [&sqlite, postgres]);
}

/// Archives the ended loops on both backends and restores them: both are read as before.
fn archived(twins: &[(History<'_>, Random); 2], stores: [&dyn Database; 2]) {
    let [(one, _), (two, _)] = twins;
    let before = contexts(one.store, one);
    let request = ArchiveRequest {
        session: Some(one.session.clone()),
        shown: true,
        ..ArchiveRequest::default()
    };
    let moved = stores.map(|store| {
        let report = archive(store, &request).unwrap();
        (
            report.messages,
            report.bytes_before,
            report.loops.len(),
            report.kept,
        )
    });
    assert_eq!(moved[0], moved[1]);
    assert_eq!(contexts(one.store, one), before);
    assert_eq!(contexts(two.store, two), before);
    views::compare(stores[0], stores[1], &one.session);
    let lines = stores.map(|store| lines_of(store, &one.session));
    if one.next_id % 2 == 0 {
        let request = UnarchiveRequest {
            session: Some(one.session.clone()),
            ..UnarchiveRequest::default()
        };
        for (store, before) in stores.into_iter().zip(lines) {
            assert_eq!(unarchive(store, &request).unwrap().messages, moved[0].0);
            assert_eq!(lines_of(store, &one.session), before);
        }
    }
}

fn lines_of(store: &dyn SessionStore, session: &SessionId) -> String {
    let mut bytes = Vec::new();
    export(store, session, None, ExportForm::Lines, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn random_histories_give_the_same_contexts_and_views_on_both_backends() {
    let Some(store) = server::store() else { return };
    let histories = amount("LOOPSTORE_HISTORIES", 12);
    for seed in 1..=histories.min(200) {
        play(&store, seed);
    }
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}
