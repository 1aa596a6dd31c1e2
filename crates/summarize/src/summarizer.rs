//! The trait of summarisers, and a call of one with a deadline.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use loopstore_model::Usage;
use loopstore_model::compaction::CancelFlag;

/// A summariser, which writes a summary from a prompt: a model over HTTP, a local model, or a test.
pub trait Summarizer: Send + Sync {
    /// Returns the name of the summariser and its model, which is stored with its summaries. It must not contain a
    /// secret.
    fn name(&self) -> &str;

    /// Returns the summary. The call should end at the request's deadline and when the request is cancelled, since
    /// the caller does not wait longer. An answer that has none of the sections that the prompt requests counts as no
    /// answer.
    ///
    /// # Errors
    /// If the summariser returns no answer. The audit row of the run has the error.
    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError>;
}

/// A request to a summariser.
#[derive(Clone, Debug)]
pub struct SummaryRequest {
    /// The system text: the role of the summariser.
    pub system: String,
    /// The prompt: the input and the instructions.
    pub prompt: String,
    /// The tokens that the prompt requests.
    pub asked_tokens: u64,
    /// The tokens after which the answer may be cut.
    pub max_tokens: u64,
    /// The temperature; the model's default if `None`.
    pub temperature: Option<f64>,
    /// The deadline of the answer.
    pub deadline: Instant,
    /// The flag with which the caller cancels the request.
    pub cancel: CancelFlag,
}

impl SummaryRequest {
    /// Returns the time until the deadline.
    ///
    /// # Errors
    /// [`SummarizerError::Timeout`] after the deadline, [`SummarizerError::Cancelled`] if the request was cancelled.
    pub fn time_left(&self) -> Result<Duration, SummarizerError> {
        if self.cancel.is_cancelled() {
            return Err(SummarizerError::Cancelled);
        }
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(SummarizerError::Timeout),
            left => Ok(left),
        }
    }
}

/// The answer of a summariser.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SummaryAnswer {
    /// The summary.
    pub text: String,
    /// The model that wrote it.
    pub model: Option<String>,
    /// The tokens that the model reported.
    pub usage: Option<Usage>,
    /// The duration of the call.
    pub duration: Duration,
}

/// The error of a summariser.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SummarizerError {
    /// The connection failed, or the server did not answer.
    #[error("cannot reach the summariser: {0}")]
    Unreachable(String),
    /// The server rejected the request with an HTTP status.
    #[error("the summariser answered {status}{}", colon(.detail))]
    Status {
        /// The status.
        status: u16,
        /// The message of the server; may be empty.
        detail: String,
    },
    /// The deadline has passed.
    #[error("the summariser did not answer in time")]
    Timeout,
    /// The request was cancelled.
    #[error("the summary was cancelled")]
    Cancelled,
    /// The answer has more bytes than allowed.
    #[error("the answer is longer than {0} bytes")]
    TooLong(u64),
    /// The answer has an unexpected form.
    #[error("cannot read the answer: {0}")]
    Unreadable(String),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

fn colon(detail: &str) -> impl fmt::Display {
    match detail {
        "" => String::new(),
        detail => format!(": {detail}"),
    }
}

/// The interval at which a waiting caller checks its cancel flag.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// The time to wait after the deadline for the error of a summariser that keeps to it, which has more detail.
const GRACE: Duration = Duration::from_millis(250);

/// Calls a summariser on a thread of its own, which is abandoned at the request's deadline: a summariser that hangs
/// must not block the agent.
pub(super) fn call_with_deadline(
    summarizer: &Arc<dyn Summarizer>,
    request: &SummaryRequest,
) -> Result<SummaryAnswer, SummarizerError> {
    let (send, receive) = mpsc::channel();
    let (worker, request_copy) = (Arc::clone(summarizer), request.clone());
    std::thread::Builder::new()
        .name("summarizer".into())
        .spawn(move || {
            // The receiver is gone after the deadline.
            let _ = send.send(worker.summarize(&request_copy));
        })
        .map_err(|error| {
            SummarizerError::Failed(format!("no thread for the summariser: {error}"))
        })?;
    let last = request.deadline + GRACE;
    loop {
        match receive.recv_timeout(LOOK) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SummarizerError::Failed("the summariser panicked".into()));
            }
            Err(RecvTimeoutError::Timeout) if request.cancel.is_cancelled() => {
                return Err(SummarizerError::Cancelled);
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= last => {
                return Err(SummarizerError::Timeout);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
