//! Appends with keys: many in one commit, each once, found by key and listed in byte order, compared with a sorted map.

use std::collections::BTreeMap;

use loopstore::*;
use loopstore_testing::conformance::keys::{LETTERS, state};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(0..LETTERS.len(), 1..4)
        .prop_map(|at| at.into_iter().map(|at| LETTERS[at]).collect())
}

/// A query: the prefix, the bounds, true if from the end, and the limit.
type QueryFields = (String, Option<String>, Option<String>, bool, Option<usize>);

fn agrees(store: &Store, names: &[String], asked: &[QueryFields]) -> Result<(), TestCaseError> {
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
        agrees(&Store::in_memory().unwrap(), &names, &asked)?;
    }
}
