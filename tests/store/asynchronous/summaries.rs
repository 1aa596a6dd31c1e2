//! An asynchronous summariser: no thread of the runtime waits for it, and none is left running.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use loopstore::compact::CompactOutcome;
use loopstore::*;

use crate::support::asynchronous::*;

fn request(summarizer: impl Summarizer + 'static, timeout: Duration) -> CompactRequest {
    let options = SummarizeOptions {
        timeout,
        ..SummarizeOptions::default()
    };
    let strategy = SummarizeCompaction::new(Arc::new(summarizer)).options(options);
    let mut request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    request.policy.compaction.block_strategy = Some(Arc::new(strategy));
    request
}

/// Counts its drops.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_future_summarises_on_a_runtime_of_one_thread() {
    runtime().block_on(async {
        let chat = chat(&filled().await);
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let asked = Arc::new(tokio::sync::Notify::new());
        let waiting = Arc::clone(&asked);
        let model = FutureSummarizer::new("model", move |request: SummaryRequest| {
            let (send, waiting) = (send.clone(), Arc::clone(&waiting));
            async move {
                send.send(request.prompt.len()).unwrap();
                // It ends only if another task of the same thread runs meanwhile.
                waiting.notified().await;
                Ok(SummaryAnswer {
                    text: "It rains.".to_owned(),
                    ..SummaryAnswer::default()
                })
            }
        });
        let other = tokio::spawn(async move {
            let length = receive.recv().await.unwrap();
            asked.notify_one();
            length
        });
        let request = request(model, Duration::from_secs(60));
        let report = chat.compact(&request).await.unwrap();
        assert_eq!(report.outcome, CompactOutcome::Committed);
        assert_eq!((&*report.strategy, report.fallback), ("summarize", None));
        assert!(other.await.unwrap() > 0);
    });
}

#[test]
fn a_future_that_takes_too_long_is_dropped_and_the_digest_stands_in() {
    let (begun, dropped) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    runtime().block_on(async {
        let chat = chat(&filled().await);
        let (starts, ends) = (Arc::clone(&begun), Arc::clone(&dropped));
        let model = FutureSummarizer::new("model", move |_: SummaryRequest| {
            starts.fetch_add(1, Ordering::SeqCst);
            let counted = Counted(Arc::clone(&ends));
            async move {
                let _counted = counted;
                std::future::pending().await
            }
        });
        let request = request(model, Duration::from_millis(50));
        let report = chat.compact(&request).await.unwrap();
        assert_eq!(report.outcome, CompactOutcome::Committed);
        assert_eq!(report.fallback.as_deref(), Some("digest"));
        // The runtime drops an aborted task when it next polls it.
        while dropped.load(Ordering::SeqCst) < begun.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    });
    assert!(begun.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_panic_in_a_future_is_a_reason_for_the_digest() {
    runtime().block_on(async {
        let chat = chat(&filled().await);
        let model =
            FutureSummarizer::new(
                "model",
                |_: SummaryRequest| async move { panic!("on purpose") },
            );
        let request = request(model, Duration::from_secs(60));
        let report = chat.compact(&request).await.unwrap();
        assert_eq!(report.fallback.as_deref(), Some("digest"));
    });
}
