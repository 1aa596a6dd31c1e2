//! A compaction whose future is dropped commits nothing.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use loopstore::compaction::*;
use loopstore::*;

use crate::support::asynchronous::*;
use crate::support::hang::HUNG;

/// Signals that it was called, and returns its text when it is released.
struct Waits {
    asked: Sender<CancelFlag>,
    go_on: Mutex<Receiver<()>>,
}

impl BlockCompactionStrategy for Waits {
    fn name(&self) -> &str {
        "waits"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        self.asked.send(slice.cancel().clone()).unwrap();
        self.go_on.lock().unwrap().recv_timeout(HUNG).unwrap();
        DefaultBlockCompaction.keep_compacted(slice, turns, config)
    }
}

/// Polls the future of `begin` until the strategy is called, drops the future, and releases the strategy.
fn dropped_while_the_strategy_works<F: Future>(begin: impl FnOnce(AsyncSession) -> F) {
    let runtime = runtime();
    let store = runtime.block_on(filled());
    let before = runtime.block_on(chat(&store).context()).unwrap();
    let ((asked, is_asked), (go, go_on)) = (channel(), channel());
    let policy = Policy::new(1_500).strategy(Waits {
        asked,
        go_on: Mutex::new(go_on),
    });
    let inside = runtime.enter();
    let mut future = Box::pin(begin(chat(&store).with_policy(policy)));
    let flag = loop {
        assert!(poll_for(future.as_mut(), Duration::ZERO).is_none());
        if let Ok(flag) = is_asked.recv_timeout(Duration::from_millis(1)) {
            break flag;
        }
    };
    assert!(!flag.is_cancelled());
    drop(future);
    assert!(flag.is_cancelled(), "the strategy could have seen it");
    // At most this many polls; the future may be done before.
    for _ in 0..100 {
        let _ = go.send(());
    }
    drop(inside);
    // Waits for the tasks that still run on the pool.
    drop(runtime);
    let store = store.blocking();
    assert_eq!(store.session("s").unwrap().context().unwrap(), before);
    let runs = store.database().run_rows(None).unwrap();
    let told = |run: &extend::sqlite::Record| {
        let text = |name| run.text(name);
        (text("outcome"), text("error"))
    };
    let (outcome, error) = (Some("failed".to_owned()), Some("cancelled".to_owned()));
    assert_eq!(
        runs.iter().map(told).collect::<Vec<_>>(),
        [(outcome, error)]
    );
}

#[test]
fn a_dropped_prepare_commits_nothing() {
    dropped_while_the_strategy_works(|chat| async move { chat.prepare().await.map(drop) });
    dropped_while_the_strategy_works(
        |chat| async move { chat.prepare_for_length().await.map(drop) },
    );
}

#[test]
fn a_dropped_compaction_commits_nothing() {
    dropped_while_the_strategy_works(|chat| async move {
        let policy = chat.blocking().policy().clone();
        let request = CompactRequest {
            trigger: CompactTrigger::Force,
            ..policy.request()
        };
        chat.compact(&request).await.map(drop)
    });
}

#[test]
fn one_that_was_not_polled_does_nothing_and_one_that_is_done_stays() {
    let runtime = runtime();
    runtime.block_on(async {
        let store = filled().await;
        let chat = chat(&store).with_policy(Policy::new(1_500));
        drop(chat.prepare());
        assert!(
            store
                .blocking()
                .database()
                .run_rows(None)
                .unwrap()
                .is_empty()
        );
        assert!(chat.prepare().await.unwrap().was_compacted());
        let own = CancelFlag::new();
        let request = CompactRequest {
            trigger: CompactTrigger::Force,
            cancel: own.clone(),
            ..CompactRequest::default()
        };
        own.cancel();
        let report = chat.compact(&request).await.unwrap();
        assert_eq!(report.error.as_deref(), Some("cancelled"));
    });
}
