//! Sessions that one database hid: they get the later id in the other one, and no session is left behind.

use loopstore::extend::{self as store, session};
use loopstore::*;
use loopstore_testing::histories::{History, user};

use crate::stage::{assert_same, ids, memory, messages, whole};

fn texts(ids: &[SessionId]) -> Vec<&str> {
    ids.iter().map(SessionId::as_str).collect()
}

#[test]
fn a_session_that_was_hidden_before_its_first_message_is_one_session() {
    let (a, b) = (memory(), memory());
    History::new(a.database(), "talk");
    whole(&a, &b);
    let hidden = a.session("talk").unwrap().hide().unwrap();
    let continued = History {
        store: b.database(),
        session: SessionId::new("talk").unwrap(),
        loops: 1,
        committed: 0,
        next_id: 0,
        open: Vec::new(),
    };
    continued.append(0, vec![user("Will it rain?", 1)]);
    whole(&a, &b);
    assert_same(&a, &b);
    assert_eq!(messages(&a, &hidden).len(), 1);
    assert_eq!(ids(&a), [hidden]);
}

#[test]
fn a_session_that_was_hidden_before_its_first_loop_is_one_session() {
    let (a, b) = (memory(), memory());
    let new = Session::new(SessionId::new("talk").unwrap(), "agent");
    store::write(a.database(), |write| {
        session::create_session(write, &new, None, None)
    })
    .unwrap();
    whole(&a, &b);
    let hidden = a.session("talk").unwrap().hide().unwrap();
    let talk = b.session("talk").unwrap();
    talk.append([Message::user("Will it rain?")]).unwrap();
    whole(&b, &a);
    assert_eq!(ids(&a), [hidden]);
    assert_same(&a, &b);
}

#[test]
fn a_new_session_with_the_id_of_a_hidden_one_arrives_too() {
    for is_reverse in [false, true] {
        let (a, b) = (memory(), memory());
        // Both begin in the same way, so they cannot be told from each other.
        History::new(a.database(), "talk");
        let hidden = a.session("talk").unwrap().hide().unwrap();
        whole(&a, &b);
        let new = History::new(a.database(), "talk");
        new.append(0, vec![user("Will it rain?", 1)]);
        match is_reverse {
            false => whole(&a, &b),
            true => whole(&b, &a),
        };
        assert_eq!(texts(&ids(&b)), ["talk", hidden.as_str()]);
        assert_same(&a, &b);
    }
}

#[test]
fn a_hidden_session_and_a_new_one_with_its_id_stay_two() {
    for is_reverse in [false, true] {
        let (a, b) = (memory(), memory());
        let old = a.session("talk").unwrap();
        old.append([Message::user("Will it rain?")]).unwrap();
        whole(&a, &b);
        let hidden = old.hide().unwrap();
        let new = a.session("talk").unwrap();
        new.append([Message::user("What is there to eat?")])
            .unwrap();
        match is_reverse {
            false => whole(&a, &b),
            true => whole(&b, &a),
        };
        assert_eq!(texts(&ids(&b)), ["talk", hidden.as_str()]);
        assert_eq!(messages(&b, &hidden).len(), 1);
        assert_same(&a, &b);
    }
}

#[test]
fn a_session_that_was_hidden_and_shown_again_gets_the_last_id() {
    let (a, b) = (memory(), memory());
    let talk = a.session("talk").unwrap();
    talk.append([Message::user("Will it rain?")]).unwrap();
    whole(&a, &b);
    let hidden = talk.hide().unwrap();
    whole(&a, &b);
    a.session(hidden.as_str()).unwrap().unhide("talk").unwrap();
    let other = b.session(hidden.as_str()).unwrap();
    other.append([Message::user("And tomorrow?")]).unwrap();
    whole(&a, &b);
    assert_eq!(texts(&ids(&a)), ["talk"]);
    assert_same(&a, &b);
}
