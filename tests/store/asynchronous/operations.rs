//! Each named operation does what its synchronous one does.

use loopstore::compact::CompactOutcome;
use loopstore::*;

use crate::support::asynchronous::*;

async fn tokens(chat: &AsyncSession) -> u64 {
    chat.context().await.unwrap().tokens
}

#[test]
fn compact_undo_redo() {
    runtime().block_on(async {
        let chat = chat(&filled().await);
        let before = tokens(&chat).await;
        let request = CompactRequest {
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        let report = chat.compact(&request).await.unwrap();
        assert_eq!(report.outcome, CompactOutcome::Committed);
        let after = tokens(&chat).await;
        assert!(after < before);
        chat.undo().await.unwrap();
        assert_eq!(tokens(&chat).await, before);
        chat.redo().await.unwrap();
        assert_eq!(tokens(&chat).await, after);
    });
}

#[test]
fn prepare_fits_the_window() {
    runtime().block_on(async {
        let chat = chat(&filled().await).with_policy(Policy::new(1500));
        let ready = chat.prepare().await.unwrap();
        assert!(ready.context.tokens <= 1500);
        assert_eq!(ready.compactions[0].outcome, CompactOutcome::Committed);
    });
}

#[test]
fn fork_and_search() {
    runtime().block_on(async {
        let store = filled().await;
        let chat = chat(&store);
        let side = chat.fork_at(TurnRef::new("l", 3)).await.unwrap();
        assert_eq!(side.context().await.unwrap().messages.len(), 4 * 3);
        assert_eq!(chat.context().await.unwrap().messages.len(), 30 * 3);
        let again = chat.at_loop(&side.leaf().await.unwrap().unwrap()).await;
        assert_eq!(
            again.unwrap().context().await.unwrap().messages.len(),
            4 * 3
        );
        let nowhere = chat.at_loop(&loop_id("nowhere")).await;
        assert!(matches!(nowhere, Err(Error::NotFound { what: "loop", .. })));
        let query = SearchQuery::new("\"Answer 7\"");
        let found = store.search(query.clone()).await.unwrap();
        assert_eq!(found.hits.len(), 1);
        assert_eq!(found, store.blocking().search(query).unwrap());
    });
}

#[test]
fn pin_and_unpin() {
    runtime().block_on(async {
        let chat = chat(&filled().await);
        let same = chat.blocking().clone();
        let of = PinRef::turn("l", 2);
        let report = chat.pin(of.clone()).await.unwrap();
        assert!(report.messages.iter().all(|message| message.changed));
        let pinned = chat.pins().await.unwrap();
        assert_eq!(pinned, same.pins().unwrap());
        assert_eq!(pinned.len(), report.messages.len());
        let again = same.pin(of.clone()).unwrap();
        assert!(again.messages.iter().all(|message| !message.changed));
        let request = CompactRequest {
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        chat.compact(&request).await.unwrap();
        let quotes = |context: Context| {
            let texts = format!("{:?}", context.messages);
            let labels = ["[Pinned, t2, ", "[Kept prompt, t2, "];
            labels
                .map(|label| texts.matches(label).count())
                .iter()
                .sum::<usize>()
        };
        assert_eq!(quotes(chat.context().await.unwrap()), pinned.len());
        let ended = chat.unpin(of.clone()).await.unwrap();
        assert_eq!(ended.outcome, "unpinned");
        assert_eq!(chat.pins().await.unwrap(), []);
        for nowhere in [of, PinRef::turn("l", 900), PinRef::turn("nowhere", 0)] {
            let found = chat.unpin(nowhere.clone()).await.unwrap_err().to_string();
            assert_eq!(found, same.unpin(nowhere).unwrap_err().to_string());
        }
        let missing = PinRef::message("l", 0, 900);
        let found = chat.pin(missing.clone()).await.unwrap_err().to_string();
        assert_eq!(found, same.pin(missing).unwrap_err().to_string());
    });
}
