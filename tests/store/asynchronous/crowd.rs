//! Many concurrent tasks.

use std::collections::BTreeMap;

use loopstore::*;

use crate::support::asynchronous::*;

const TASKS: u32 = 24;
const TURNS: u32 = 8;

#[test]
fn many_tasks_write_read_and_search_at_once() {
    let names: Vec<String> = (0..4).map(|n| format!("l{n}")).collect();
    let store = store_with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    runtime().block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(write_turns(store.clone(), task)))
            .collect();
        let reader = tokio::spawn(read_meanwhile(store.clone()));
        for task in tasks {
            task.await.unwrap();
        }
        reader.await.unwrap();
    });
    let mut times: BTreeMap<u32, u32> = BTreeMap::new();
    for name in &names {
        let stored = stored(&store, name);
        assert!(stored.chunks(3).all(|turn| turn == [turn[0]; 3]));
        for index in stored {
            *times.entry(index).or_default() += 1;
        }
    }
    assert_eq!(times.len() as u32, TASKS * TURNS);
    assert!(times.values().all(|count| *count == 3));
}

/// Appends turns of its own to a loop that other tasks write to as well.
async fn write_turns(store: AsyncStore, task: u32) {
    let id = loop_id(&format!("l{}", task % 4));
    for nth in 0..TURNS {
        let turn = turn(id.as_str(), task * TURNS + nth);
        let chat = chat(&store).at_loop(&id).await.unwrap();
        chat.append(turn).await.unwrap();
    }
}

/// Checks that every context and every search result shows whole turns only.
async fn read_meanwhile(store: AsyncStore) {
    for _ in 0..20 {
        let chat = chat(&store).at_loop(&loop_id("l1")).await.unwrap();
        let context = chat.context().await.unwrap();
        assert_eq!(context.messages.len() % 3, 0);
        assert!(context.faults.is_empty());
        store.search(SearchQuery::new("answer")).await.unwrap();
    }
}
