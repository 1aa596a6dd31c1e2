//! A summariser whose answer is a future, for models with async clients.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use tokio::runtime::Handle;

use super::summarizer::{LOOK, Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};

/// A [`Summarizer`] whose answer is a future. The future runs as a task of a runtime and blocks none of the runtime's
/// threads. At the request's deadline, or when the request is cancelled, the task is aborted and the future dropped.
///
/// ```
/// use loopstore_summarize::{FutureSummarizer, SummarizeCompaction, SummaryAnswer, SummaryRequest};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let model = FutureSummarizer::new("model", |request: SummaryRequest| async move {
///     // Here an async client sends `request.system` and `request.prompt`.
///     let text = format!("a summary of at most {} tokens", request.max_tokens);
///     Ok(SummaryAnswer { text, ..SummaryAnswer::default() })
/// });
/// let strategy = SummarizeCompaction::new(std::sync::Arc::new(model));
/// # drop(strategy);
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FutureSummarizer<F> {
    name: String,
    summarize: Arc<F>,
    runtime: Handle,
}

impl<F, A> FutureSummarizer<F>
where
    F: Fn(SummaryRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<SummaryAnswer, SummarizerError>> + Send + 'static,
{
    /// Returns a summariser on the current runtime. [`Summarizer::name`] describes `name`.
    ///
    /// # Panics
    /// If there is no current runtime.
    pub fn new(name: impl Into<String>, summarize: F) -> Self {
        Self::on(Handle::current(), name, summarize)
    }

    /// Returns a summariser on a runtime. The runtime must make progress while a compaction waits; a single-threaded
    /// runtime makes none while its own thread compacts.
    pub fn on(runtime: Handle, name: impl Into<String>, summarize: F) -> Self {
        Self {
            name: name.into(),
            summarize: Arc::new(summarize),
            runtime,
        }
    }
}

impl<F, A> Summarizer for FutureSummarizer<F>
where
    F: Fn(SummaryRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<SummaryAnswer, SummarizerError>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let (send, receive) = mpsc::channel();
        let (summarize, request_copy) = (Arc::clone(&self.summarize), request.clone());
        // The closure is called within the task, so that it runs on the runtime too.
        let task = self.runtime.spawn(async move {
            // The receiver is gone if the request has timed out or was cancelled.
            let _ = send.send(summarize(request_copy).await);
        });
        loop {
            match receive.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the summariser panicked, or its runtime shut down";
                    return Err(SummarizerError::Failed(why.into()));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = request.time_left() {
                        task.abort();
                        return Err(error);
                    }
                }
            }
        }
    }
}
