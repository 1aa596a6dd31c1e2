//! The system prompt of a context, in trees of loops with and without system messages.

use loopstore::compact::{CompactRequest, compact_session_loops};
use loopstore::context::{BuildOptions, Context, build_context_from_session};
use loopstore::*;

use crate::support::histories::{History, Random, answer, loop_id, user};

/// An item of a loop, in the order of the appends.
#[derive(Clone, Debug)]
enum Item {
    Turn,
    Prompt(String),
}

fn prompts(items: &[Item]) -> Vec<&String> {
    let mut texts = Vec::new();
    for item in items {
        if let Item::Prompt(text) = item {
            texts.push(text);
        }
    }
    texts
}

fn context(store: &SqliteStore, id: &SessionId, leaf: usize) -> Context {
    let options = BuildOptions {
        leaf: Some(loop_id(leaf)),
        ..BuildOptions::default()
    };
    build_context_from_session(store, id, &options).unwrap()
}

fn turn(number: u32) -> Vec<AgentMessage> {
    let text = format!("Step {number}.");
    vec![user(&text, number), answer(&text, &[], number)]
}

/// Checks that the prompt of a leaf is the newest on its chain, wherever the context begins.
fn check_prompts(store: &SqliteStore, id: &SessionId, chains: &[Vec<Item>]) {
    for (leaf, items) in chains.iter().enumerate() {
        let (found, expected) = (context(store, id, leaf).system, prompts(items));
        let text = |message: &AgentMessage| match message {
            AgentMessage::Extension(extension) => extension.data.clone(),
            other => panic!("{other:?}"),
        };
        let found_texts: Vec<Json> = found.messages.iter().map(text).collect();
        let expected_texts: Vec<Json> = expected
            .last()
            .map(|text| Json::string(text))
            .into_iter()
            .collect();
        assert_eq!(found_texts, expected_texts, "loop {leaf}");
        let is_partial = expected.len() > 1;
        assert_eq!(found.is_partial, is_partial, "loop {leaf}: {items:?}");
        assert_eq!(found.tokens > 0, !expected.is_empty(), "loop {leaf}");
    }
}

#[test]
fn a_prompt_is_the_newest_of_its_chain_in_any_tree() {
    for seed in 0..12 {
        let random = &mut Random::new(seed);
        let store = SqliteStore::in_memory().unwrap();
        let mut history = History::new(&store, "s");
        let id = SessionId::new("s").unwrap();
        // For each loop: all items on its chain, and the number of its own.
        let mut chains: Vec<Vec<Item>> = vec![Vec::new()];
        let mut own = vec![0];
        for step in 0..240 {
            let at = random.below(chains.len() as u64) as usize;
            match random.below(8) {
                0..=2 => {
                    history.append(at, turn(step));
                    chains[at].push(Item::Turn);
                }
                3 | 4 => {
                    let text = format!("Rule {step}.");
                    let prompt = AgentMessage::extension("system", Json::string(&text));
                    history.append(at, vec![prompt]);
                    chains[at].push(Item::Prompt(text));
                }
                _ => {
                    let turns = |items: &[Item]| {
                        let is_turn = |item: &&Item| matches!(item, Item::Turn);
                        items.iter().filter(is_turn).count()
                    };
                    let all = turns(&chains[at][own[at]..]);
                    // A loop without a turn continues from its parent as a whole.
                    let kept = all.min(1 + random.below(all.max(1) as u64) as usize);
                    history.start_loop(Some(at), kept.checked_sub(1).map(|turn| turn as u32));
                    let mut items = chains[at].clone();
                    if kept < all {
                        let mut left = kept;
                        let end = items[own[at]..].iter().position(|item| {
                            let is_next = matches!(item, Item::Turn) && left == 0;
                            left -= usize::from(matches!(item, Item::Turn) && left > 0);
                            is_next
                        });
                        items.truncate(own[at] + end.unwrap());
                    }
                    own.push(items.len());
                    chains.push(items);
                }
            }
        }
        check_prompts(&store, &id, &chains);
        // With a summary of all loops before it a context begins with the leaf, but its prompt does not.
        let leaf = chains.len() - 1;
        history.append(leaf, turn(1000));
        let request = CompactRequest {
            leaf: Some(loop_id(leaf)),
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        compact_session_loops(&store, &id, &request).unwrap();
        check_prompts(&store, &id, &chains);
    }
}
