//! Sessions saved and loaded: by the adapter, and as files by phi-core's own functions.

use std::path::PathBuf;

use loopstore::extend as store;
use loopstore::extend::append;
use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_phi::PhiSessionStore;
use loopstore_transcripts::{ImportOptions, import_paths};
use phi_core::context::{DefaultBlockCompaction, compact_session_loops};
use phi_core::session::{SessionError, SessionStore, load_session, save_session};

use super::defects::WIDE;
use super::stage::*;
use super::world::World;

/// Returns a random session, ended, with blocks of phi-core.
async fn grown(seed: u64) -> phi_core::Session {
    let mut world = World::new(seed);
    let config = world.config();
    for _ in 0..world.random.below(12) + 2 {
        let leaf = world.leaf;
        match world.random.below(8) {
            0..=4 => {
                let turn = world.turn();
                world.session.loops[leaf].messages.extend(turn);
            }
            5 => world.begin_loop(Some(leaf), None),
            _ => {
                let id = world.leaf().loop_id.clone();
                let session = &mut world.session;
                let strategy = DefaultBlockCompaction;
                compact_session_loops(session, &id, &strategy, &config, WIDE, None).await;
            }
        }
    }
    for record in &mut world.session.loops {
        record.status = phi_core::LoopStatus::Completed;
        record.ended_at = Some(record.started_at);
    }
    world.session
}

#[test]
fn random_sessions_come_back_as_they_were_saved() {
    runtime().block_on(async {
        for seed in 1..=150 {
            let session = grown(seed).await;
            let store = PhiSessionStore::new(in_memory());
            for _ in 0..2 {
                store.save(&session).await.unwrap();
                let loaded = store.load("s").await.unwrap();
                assert_eq!(json(&loaded), json(&session), "seed {seed}");
            }
        }
    });
}

#[test]
fn files_of_phi_core_come_in_and_go_out_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
    for seed in 1..=40 {
        let session = runtime().block_on(grown(seed));
        let path: PathBuf = save_session(&session, &inside).unwrap();
        let store = SqliteStore::in_memory().unwrap();
        let report = import_paths(&store, &[path], &ImportOptions::default(), &mut |_| {});
        assert!(report.unwrap().skipped.is_empty());
        let mut text = Vec::new();
        let id = SessionId::new("s").unwrap();
        export(&store, &id, None, ExportForm::PhiCore, &mut text).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("s.json"), text).unwrap();
        let loaded = load_session("s", &outside).unwrap();
        assert_eq!(json(&loaded), json(&session), "seed {seed}");
    }
}

#[test]
fn a_session_that_grows_is_added_to() {
    runtime().block_on(async {
        let store = PhiSessionStore::new(in_memory());
        let mut world = World::new(3);
        for round in 0..6 {
            let turn = world.turn();
            let leaf = world.leaf;
            world.session.loops[leaf].messages.extend(turn);
            store.save(&world.session).await.unwrap();
            let loaded = store.load("s").await.unwrap();
            assert_eq!(json(&loaded), json(&world.session), "round {round}");
            if round % 2 == 1 {
                world.begin_loop(Some(leaf), None);
            }
        }
    });
}

#[test]
fn a_changed_message_is_refused_and_nothing_of_the_save_is_kept() {
    runtime().block_on(async {
        let store = PhiSessionStore::new(in_memory());
        let session = grown(5).await;
        store.save(&session).await.unwrap();
        let mut changed = session.clone();
        let messages = &mut changed.loops[0].messages;
        let other = phi_core::Message::user("something else");
        messages[0] = phi_core::AgentMessage::from(other);
        let mut added = World::new(99);
        messages.extend(added.turn());
        let refused = store.save(&changed).await.unwrap_err();
        assert!(refused.to_string().contains("never rewritten"), "{refused}");
        assert_eq!(json(&store.load("s").await.unwrap()), json(&session));
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    runtime().block_on(async {
        let store = PhiSessionStore::new(in_memory());
        for id in ["nobody", "", "\n"] {
            for error in [
                store.load(id).await.unwrap_err(),
                store.delete(id).await.unwrap_err(),
            ] {
                assert!(
                    matches!(&error, SessionError::NotFound { session_id } if session_id == id),
                    "{error}"
                );
            }
        }
        store.save(&grown(1).await).await.unwrap();
        let refused = store.delete("s").await.unwrap_err();
        assert!(
            refused.to_string().contains("retention::erase"),
            "{refused}"
        );
        let all = store.list_for_agent("agent").await.unwrap();
        assert_eq!(all.len(), 1);
        assert!(store.list_for_agent("other").await.unwrap().is_empty());
    });
}

/// Fields that phi-core requires and loopstore does not are filled in.
#[test]
fn a_session_of_another_origin_loads_too() {
    let store = SqliteStore::in_memory().unwrap();
    store::write(&store, |write| {
        let mut record = Session::new(SessionId::new("bare").unwrap(), "");
        record.agent_id = None;
        let key = store::session::create_session(write, &record, None, None)?;
        let first = LoopRecord::new(LoopId::new("bare.1").unwrap(), None);
        let loop_key = store::session::create_loop(write, key, &first)?;
        let call = Content::tool_call("c", "look", Json::parse("{}").unwrap());
        let messages = vec![
            Message::user("Hello").into(),
            Message::Assistant(AssistantMessage {
                content: vec![call],
                ..AssistantMessage::default()
            })
            .into(),
            Message::ToolResult(ToolResultMessage {
                tool_call_id: "c".into(),
                ..ToolResultMessage::default()
            })
            .into(),
        ];
        let new = messages.into_iter().map(|m: AgentMessage| m.into());
        append::append(write, loop_key, new.collect(), &HeuristicTokenCounter)
    })
    .unwrap();
    let store = PhiSessionStore::new(Store::from(store).into());
    let session = runtime().block_on(store.load("bare")).unwrap();
    assert_eq!(session.loops[0].messages.len(), 3);
    assert_eq!(session.agent_id, "");
}
