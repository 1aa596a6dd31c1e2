//! Each named operation does what its synchronous one does.

use loopstore::compact::{CompactOutcome, FlipRequest};
use loopstore::extend::session::Fork;
use loopstore::*;

use super::stage::*;

async fn filled() -> AsyncDatabase {
    let store = store_with(&["l"]);
    for at in 0..30 {
        store.append(&session_id(), None, turn(at)).await.unwrap();
    }
    store
}

async fn tokens(store: &AsyncDatabase) -> u64 {
    let context = store
        .build_context(&session_id(), BuildOptions::default())
        .await
        .unwrap();
    context.tokens
}

#[test]
fn compact_undo_redo() {
    runtime().block_on(async {
        let store = filled().await;
        let before = tokens(&store).await;
        let request = CompactRequest {
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        let report = store.compact(&session_id(), request).await.unwrap();
        assert_eq!(report.outcome, CompactOutcome::Committed);
        let after = tokens(&store).await;
        assert!(after < before);
        let flip = FlipRequest::default;
        store.undo(&session_id(), flip()).await.unwrap();
        assert_eq!(tokens(&store).await, before);
        store.redo(&session_id(), flip()).await.unwrap();
        assert_eq!(tokens(&store).await, after);
    });
}

#[test]
fn maybe_compact_fits_the_window() {
    runtime().block_on(async {
        let store = filled().await;
        let window = ContextConfig {
            max_context_tokens: 1500,
            ..ContextConfig::default()
        };
        let next = store
            .maybe_compact(&session_id(), None, CompactionConfig::default(), window)
            .await
            .unwrap();
        assert!(next.context.tokens <= 1500);
        assert_eq!(next.reports[0].outcome, CompactOutcome::Committed);
    });
}

#[test]
fn fork_and_search() {
    runtime().block_on(async {
        let store = filled().await;
        let branch = Fork {
            loop_id: loop_id("branch"),
            turn: 3,
            tag: "try".into(),
        };
        store
            .fork(&session_id(), Some(&loop_id("l")), branch)
            .await
            .unwrap();
        let context = store
            .build_context(&session_id(), BuildOptions::default())
            .await
            .unwrap();
        assert_eq!(context.messages.len(), 4 * 3);
        let query = SearchQuery::new("\"Answer 7\"");
        let found = store.search(query.clone()).await.unwrap();
        assert_eq!(found.hits.len(), 1);
        assert_eq!(found, search(&**store.blocking(), &query).unwrap());
    });
}
