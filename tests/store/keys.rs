//! Appends under keys: many in one commit, each once, found again by key and listed in the order of bytes;
//! against a sorted map.

use std::collections::BTreeMap;

use loopstore::*;
use proptest::prelude::*;
use serde_json::json;

use crate::stores::stores;

fn state(number: usize) -> [AgentMessage; 1] {
    [AgentMessage::extension(
        "state",
        json!({ "n": number }).into(),
    )]
}

fn keys(listed: &[KeyedAppend]) -> Vec<&str> {
    listed.iter().map(|append| append.key.as_str()).collect()
}

#[test]
fn a_batch_is_one_commit_and_each_key_counts_once() {
    for store in stores() {
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
}

#[test]
fn a_batch_with_a_bad_part_leaves_nothing() {
    for store in stores() {
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
        // A loop that another program drives refuses the whole batch.
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
}

#[test]
fn messages_of_a_batch_make_turns_and_loops_as_single_appends_do() {
    for store in stores() {
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
}

#[test]
fn keys_of_one_session_are_not_those_of_another() {
    for store in stores() {
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
}

const LETTERS: [&str; 9] = [
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

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(0..LETTERS.len(), 1..4)
        .prop_map(|at| at.into_iter().map(|at| LETTERS[at]).collect())
}

/// A prefix, what comes before and after, whether from the end, and how many.
type Asked = (String, Option<String>, Option<String>, bool, Option<usize>);

fn agrees(store: &Store, names: &[String], asked: &[Asked]) -> Result<(), TestCaseError> {
    let chat = store.session("graph").unwrap();
    let mut all = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        let done = chat.append_batch([(Some(name.as_str()), state(number))]);
        let done = done.unwrap().remove(0);
        all.entry(name.as_bytes()).or_insert(done.seqs);
    }
    for (prefix, after, before, descending, limit) in asked {
        let mut query = KeyQuery::prefix(prefix);
        let is_in = |name: &[u8]| {
            name.starts_with(prefix.as_bytes())
                && after.as_ref().is_none_or(|after| name > after.as_bytes())
                && before
                    .as_ref()
                    .is_none_or(|before| name < before.as_bytes())
        };
        let mut wanted: Vec<_> = all.iter().filter(|(name, _)| is_in(name)).collect();
        if let Some(after) = after {
            query = query.after(after);
        }
        if let Some(before) = before {
            query = query.before(before);
        }
        if *descending {
            query = query.descending();
            wanted.reverse();
        }
        if let Some(limit) = limit {
            query = query.limit(*limit);
            wanted.truncate(*limit);
        }
        let found = chat.append_keys(&query).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|at| (at.key.as_bytes(), at.appended.seqs.clone()))
            .collect();
        let wanted: Vec<_> = wanted
            .into_iter()
            .map(|(name, seqs)| (*name, seqs.clone()))
            .collect();
        prop_assert_eq!(found, wanted);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn keys_are_listed_as_a_sorted_map_lists_them(
        names in prop::collection::vec(name(), 1..40),
        asked in prop::collection::vec(
            (
                prop_oneof![Just(String::new()), name()],
                prop::option::of(name()),
                prop::option::of(name()),
                any::<bool>(),
                prop::option::of(0usize..6),
            ),
            12,
        ),
    ) {
        for store in stores() {
            agrees(&store, &names, &asked)?;
        }
    }
}
