//! Reading messages page by page (from the end, after a position, of some kinds only) returns the same as filtering all
//! messages.

use loopstore::*;
use loopstore_testing::conformance::entries::talk;
use proptest::prelude::*;

/// A query, as numbers.
type QueryNumbers = (
    u8,
    Option<usize>,
    Option<usize>,
    Option<usize>,
    Option<usize>,
);

fn queries() -> impl Strategy<Value = QueryNumbers> {
    let some = || prop::option::of(0usize..24);
    (0u8..5, some(), some(), some(), some())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_page_is_the_one_cut_out_of_all(
        queries in prop::collection::vec(queries(), 12),
        whole in any::<bool>(),
    ) {
        let store = Store::in_memory().unwrap();
        let (chat, _) = talk(&store);
        let scope = match whole {
            true => EntryQuery::whole_session(),
            false => EntryQuery::new(),
        };
        let all = chat.entries(&scope).unwrap();
        for (filter, after, before, last, limit) in queries {
            let mut query = match filter {
                0 => scope.clone(),
                1 => scope.clone().roles([Role::User, Role::ToolResult]),
                2 => scope.clone().kinds(["mood", "nobody"]),
                3 => scope.clone().kinds(["state"]).roles([Role::Assistant]),
                _ => scope.clone().kinds(["state"]).roles([Role::Extension]),
            };
            let takes = |entry: &Entry| {
                let kind = match &entry.message {
                    AgentMessage::Extension(extension) => extension.kind.as_str(),
                    AgentMessage::Llm(_) => "",
                };
                match filter {
                    0 => true,
                    1 => matches!(entry.message.role(), Role::User | Role::ToolResult),
                    2 => kind == "mood",
                    3 => kind == "state" || entry.message.role() == Role::Assistant,
                    _ => !kind.is_empty(),
                }
            };
            let place = |at: Option<usize>| at.filter(|at| *at < all.len());
            let (mut from, mut to) = (0, all.len());
            if let Some(at) = place(after) {
                query = query.after(all[at].position());
                from = at + 1;
            }
            if let Some(at) = place(before) {
                query = query.before(all[at].position());
                to = at.max(from);
            }
            let mut wanted: Vec<Entry> = all[from.min(to)..to].iter().filter(|entry| takes(entry)).cloned().collect();
            if let Some(count) = last {
                query = query.last(count);
                wanted.drain(..wanted.len().saturating_sub(count));
            }
            if let Some(count) = limit {
                query = query.limit(count);
                wanted.truncate(count);
            }
            prop_assert_eq!(chat.count_entries(&query).unwrap(), wanted.len() as u64);
            prop_assert_eq!(chat.entries(&query).unwrap(), wanted);
        }
    }
}
