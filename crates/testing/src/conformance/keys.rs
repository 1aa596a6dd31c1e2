//! Appends with keys: many in one commit, each once, found by key and listed in the order of bytes; compared
//! with a sorted map.

use loopstore::*;
use serde_json::json;

pub fn state(number: usize) -> [AgentMessage; 1] {
    [AgentMessage::extension(
        "state",
        json!({ "n": number }).into(),
    )]
}

fn keys(listed: &[KeyedAppend]) -> Vec<&str> {
    listed.iter().map(|append| append.key.as_str()).collect()
}

pub fn a_batch_is_one_commit_and_each_key_counts_once(store: &Store) {
    let chat = store.session("graph").unwrap();
    chat.append_once("b", state(0)).unwrap();
    let parts = [("a", 1), ("b", 2), ("a", 3), ("c", 4)];
    let done = chat
        .append_batch(parts.map(|(key, number)| (Some(key), state(number))))
        .unwrap();
    let duplicates: Vec<_> = done.iter().map(|part| part.duplicate).collect();
    assert_eq!(duplicates, [false, true, true, false]);
    assert_eq!(done[2].seqs, done[0].seqs);
    assert_eq!(chat.entries(&EntryQuery::new()).unwrap().len(), 3);
    let listed = chat.append_keys(&KeyQuery::new()).unwrap();
    assert_eq!(keys(&listed), ["a", "b", "c"]);
    for append in listed {
        let at = append.appended;
        assert_eq!(chat.appended(&append.key).unwrap(), Some(at.clone()));
        let found = chat
            .entries(&EntryQuery::of_loop(at.loop_id, at.seqs))
            .unwrap();
        let number = ["b", "a", "", "", "c"]
            .iter()
            .position(|key| *key == append.key);
        assert_eq!(found[0].message, state(number.unwrap())[0]);
    }
}

pub fn a_batch_with_a_bad_part_leaves_nothing(store: &Store) {
    let chat = store.session("graph").unwrap();
    let long = "k".repeat(513);
    for bad in ["", long.as_str()] {
        let error = chat.append_batch([(Some("good"), state(1)), (Some(bad), state(2))]);
        assert!(matches!(error.unwrap_err(), Error::Id(_)));
        assert_eq!(chat.appended(bad).unwrap(), None);
    }
    assert_eq!(chat.appended("good").unwrap(), None);
    assert_eq!(chat.leaf().unwrap(), None);
    assert_eq!(chat.append_keys(&KeyQuery::new()).unwrap(), []);
    // A loop that another program drives makes the whole batch fail.
    chat.append([Message::user("Will it rain?")]).unwrap();
    let loop_id = chat.leaf().unwrap().unwrap();
    let _held = extend::write(store.database(), |write| {
        let session = write.session(chat.id())?.unwrap().key;
        let key = write.loop_by_id(session, &loop_id)?.unwrap().key;
        extend::lease::acquire(
            write,
            key,
            "other",
            3_600_000,
            Time::now().millis().unwrap(),
        )
    })
    .unwrap();
    let error = chat.append_batch([(Some("good"), state(1)), (None, state(2))]);
    assert!(matches!(error.unwrap_err(), Error::LoopHeld { .. }));
    assert_eq!(chat.appended("good").unwrap(), None);
}

pub fn messages_of_a_batch_make_turns_and_loops_as_single_appends_do(store: &Store) {
    let steps = [
        vec![Message::user("One?"), Message::assistant("One.")],
        vec![Message::user("Two?")],
        vec![Message::assistant("Two.")],
    ];
    let (single, batch) = (
        store.session("single").unwrap(),
        store.session("batch").unwrap(),
    );
    let one_by_one: Vec<_> = steps
        .clone()
        .into_iter()
        .map(|step| single.append(step).unwrap())
        .collect();
    let at_once = batch
        .append_batch(steps.map(|step| (None::<&str>, step)))
        .unwrap();
    assert_eq!(at_once, one_by_one);
    assert_eq!(batch.leaf().unwrap().unwrap().as_str(), "loop-2");
}

pub fn keys_of_one_session_are_not_those_of_another(store: &Store) {
    let (one, two) = (store.session("one").unwrap(), store.session("two").unwrap());
    one.append_once("k", state(1)).unwrap();
    two.append_once("k", state(2)).unwrap();
    two.append_once("l", state(3)).unwrap();
    assert_eq!(keys(&one.append_keys(&KeyQuery::new()).unwrap()), ["k"]);
    assert_eq!(
        keys(&two.append_keys(&KeyQuery::new()).unwrap()),
        ["k", "l"]
    );
}

pub const LETTERS: [&str; 9] = [
    "a",
    "B",
    "b",
    "/",
    "%",
    "_",
    "\u{e4}",
    "\u{d7ff}",
    "\u{10ffff}",
];
