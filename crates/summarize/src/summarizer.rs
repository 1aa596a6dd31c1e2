//! The trait of whatever writes a summary, and a call of it that cannot hang.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use loopstore_model::Usage;
use loopstore_model::compaction::CancelFlag;

/// Writes a summary from a prompt: a model behind HTTP, a local one, or a test.
pub trait Summarizer: Send + Sync {
    /// Names the summariser and its model; stored with what it made. It must hold no secret.
    fn name(&self) -> &str;

    /// Writes the summary. It should give up at the request's deadline and when it is cancelled;
    /// the caller does not wait longer. An answer without the sections that the prompt asks for counts
    /// as none.
    ///
    /// # Errors
    /// Why there is no answer; the run's audit row says so.
    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError>;
}

/// What a summariser is asked.
#[derive(Clone, Debug)]
pub struct SummaryRequest {
    /// Who the summariser is.
    pub system: String,
    /// What it is to summarise, and how.
    pub prompt: String,
    /// Tokens that the prompt asks for.
    pub asked_tokens: u64,
    /// Tokens after which the answer may be cut.
    pub max_tokens: u64,
    /// The temperature; `None` leaves it to the model.
    pub temperature: Option<f64>,
    /// When the answer comes too late.
    pub deadline: Instant,
    /// Set by the caller who no longer wants the answer.
    pub cancel: CancelFlag,
}

impl SummaryRequest {
    /// Returns the time left, unless there is none or the request was cancelled.
    ///
    /// # Errors
    /// [`SummarizerError::Timeout`] or [`SummarizerError::Cancelled`].
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

/// What a summariser gave back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SummaryAnswer {
    /// The summary.
    pub text: String,
    /// The model that wrote it.
    pub model: Option<String>,
    /// Tokens as reported.
    pub usage: Option<Usage>,
    /// How long it took.
    pub duration: Duration,
}

/// Why a summariser gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SummarizerError {
    /// Nobody answered, or the connection broke.
    #[error("cannot reach the summariser: {0}")]
    Unreachable(String),
    /// It refused with an HTTP status.
    #[error("the summariser answered {status}{}", colon(.detail))]
    Status {
        /// The status.
        status: u16,
        /// What the answer said of it; may be empty.
        detail: String,
    },
    /// It took too long.
    #[error("the summariser did not answer in time")]
    Timeout,
    /// The caller no longer wants the answer.
    #[error("the summary was cancelled")]
    Cancelled,
    /// The answer has more bytes than allowed.
    #[error("the answer is longer than {0} bytes")]
    TooLong(u64),
    /// The answer is not what such a summariser gives.
    #[error("cannot read the answer: {0}")]
    Unreadable(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

fn colon(detail: &str) -> impl fmt::Display {
    match detail {
        "" => String::new(),
        detail => format!(": {detail}"),
    }
}

/// How often a waiting caller looks at its cancel flag.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A summariser that keeps to the deadline says more of why; this is how long it is waited for.
const GRACE: Duration = Duration::from_millis(250);

/// Asks a summariser from a thread of its own, which is left behind if it does not keep to the
/// request's deadline: a summariser that hangs must not hang the agent.
pub(super) fn ask(
    summarizer: &Arc<dyn Summarizer>,
    request: &SummaryRequest,
) -> Result<SummaryAnswer, SummarizerError> {
    let (send, receive) = mpsc::channel();
    let (worker, asked) = (Arc::clone(summarizer), request.clone());
    std::thread::Builder::new()
        .name("summarizer".into())
        .spawn(move || {
            // Nobody listens any more once the deadline has passed.
            let _ = send.send(worker.summarize(&asked));
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
