//! Finding sessions, loops and blobs by a part of their names.

use loopstore::SqliteStore;
use loopstore_core::store::lookup::{blob, session};
use loopstore_core::store::session::create_session;
use loopstore_core::store::{self, StoreError, StoreResult};
use loopstore_model::{LoopId, Session, SessionId};

fn found(store: &SqliteStore, given: &str) -> StoreResult<String> {
    store::read(store, |read| {
        session(read, given).map(|row| row.session_id.to_string())
    })
}

#[test]
fn a_blob_is_found_by_the_beginning_of_its_digits() {
    let store = SqliteStore::in_memory().unwrap();
    let loop_key = store::write(&store, |write| {
        let session = Session::new(SessionId::new("s").unwrap(), "agent");
        let key = create_session(write, &session, None, None)?;
        let record = loopstore_model::LoopRecord::new(LoopId::new("l").unwrap(), None);
        store::session::create_loop(write, key, &record)
    })
    .unwrap();
    // SHA-256: 2cf24dba… and 486ea462….
    let images = ["aGVsbG8=", "d29ybGQ="].map(|data| {
        let content = loopstore_model::Content::image(data, "image/png");
        let mut message = loopstore_model::Message::user("see");
        message.content_mut().push(content);
        loopstore_model::AgentMessage::from(message).into()
    });
    store::write(&store, |write| {
        let counter = loopstore_model::tokens::HeuristicTokenCounter;
        store::append::append(write, loop_key, images.into(), &counter)
    })
    .unwrap();
    let found = |given: &str| store::read(&store, |read| blob(read, given).map(hex::encode));
    let whole = found("2").unwrap();
    assert!(whole.starts_with("2cf24dba"));
    for given in ["2c", "2CF", "2cf24dba5", &whole] {
        assert_eq!(found(given).unwrap(), whole);
    }
    let longer = format!("{whole}0");
    for missing in ["", "2d", "+2", "2g", "é", "2c%", &longer] {
        let error = found(missing).unwrap_err();
        assert!(matches!(error, StoreError::NoBlob(_)), "{missing}: {error}");
    }
}

#[test]
fn a_session_comes_before_its_own_sub_agents() {
    let store = SqliteStore::in_memory().unwrap();
    let started_by = [
        ("0197-kite", None),
        ("0197-kite/agent-a", Some("0197-kite")),
        ("0197-kite/agent-a/agent-b", Some("0197-kite/agent-a")),
        ("0197-lark", None),
        ("team", None),
        ("team/a", None),
    ];
    store::write(&store, |write| {
        for (id, parent) in started_by {
            let mut session = Session::new(SessionId::new(id).unwrap(), "agent");
            session.parent_spawn_ref = parent.map(|parent| loopstore_model::ParentSpawnRef {
                parent_session_id: SessionId::new(parent).unwrap(),
                parent_loop_id: None,
                tool_call_id: None,
                tool_name: None,
                extra: Default::default(),
            });
            create_session(write, &session, None, None)?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(found(&store, "0197-k").unwrap(), "0197-kite");
    assert_eq!(found(&store, "0197-kite/").unwrap(), "0197-kite/agent-a");
    // What it did not start is another session.
    for several in ["0197", "tea"] {
        let error = found(&store, several).unwrap_err();
        assert!(matches!(error, StoreError::Ambiguous { .. }), "{error}");
    }
}

#[test]
fn a_whole_id_wins_over_longer_ones_and_a_beginning_must_be_unique() {
    let store = SqliteStore::in_memory().unwrap();
    store::write(&store, |write| {
        for id in ["ab", "abc", "abd", "x%", "xy"] {
            let session = Session::new(SessionId::new(id).unwrap(), "agent");
            create_session(write, &session, None, None)?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(found(&store, "ab").unwrap(), "ab");
    assert_eq!(found(&store, "abd").unwrap(), "abd");
    assert_eq!(found(&store, "xy").unwrap(), "xy");
    assert_eq!(
        found(&store, "a").unwrap_err().to_string(),
        "`a` matches 3 ids: `ab`, `abc`, `abd`; give more characters"
    );
    for missing in ["", "%", "abcd", "x_"] {
        let error = found(&store, missing).unwrap_err();
        assert!(matches!(error, StoreError::NoSession(_)), "{error}");
    }
}
