//! A JavaScript function that writes summaries.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loopstore::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};
use loopstore_bindings::summaries;
use napi::Status;
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;

/// The number of a request, and the request as JSON.
pub type RequestArgs = FnArgs<(u32, String)>;
/// A weak reference: the promise of the call keeps the process alive.
type RequestFunction = ThreadsafeFunction<RequestArgs, (), RequestArgs, Status, false, true>;

/// The interval in which a waiting request checks its cancellation.
const LOOK: Duration = Duration::from_millis(50);

/// Calls a JavaScript function, which answers with `answer_summary`. The function is called once more, without a text,
/// if the request ends before its answer.
pub struct JsSummarizer {
    function: RequestFunction,
    name: String,
}

impl JsSummarizer {
    pub fn new(function: &Function<'_, RequestArgs, ()>, name: String) -> napi::Result<Self> {
        let function = function
            .build_threadsafe_function::<RequestArgs>()
            .callee_handled::<false>()
            .weak::<true>()
            .build()?;
        Ok(Self { function, name })
    }
}

type AnswerResult = Result<String, String>;

static WAITING: LazyLock<Mutex<HashMap<u32, Sender<AnswerResult>>>> = LazyLock::new(Mutex::default);

fn waiting() -> MutexGuard<'static, HashMap<u32, Sender<AnswerResult>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that waits for its answer.
struct PendingRequest(u32);

impl PendingRequest {
    fn begin(sender: Sender<AnswerResult>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        waiting().insert(id, sender);
        Self(id)
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        waiting().remove(&self.0);
    }
}

/// Answers a request with JSON, or with an error. The answer to a request that has ended is dropped.
// Only Node calls this function.
#[cfg_attr(test, allow(dead_code))]
#[napi]
pub fn answer_summary(request: u32, answer: Option<String>, error: Option<String>) {
    let outcome = answer.ok_or_else(|| error.unwrap_or_else(|| "no answer".into()));
    let sender = waiting().remove(&request);
    if let Some(sender) = sender {
        let _ = sender.send(outcome);
    }
}

impl Summarizer for JsSummarizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let arguments = summaries::request(request, request.time_left()?);
        let (sender, receiver) = channel();
        let waiting = PendingRequest::begin(sender);
        let arguments = FnArgs::from((waiting.0, arguments));
        let status = self
            .function
            .call(arguments, ThreadsafeFunctionCallMode::NonBlocking);
        if status != Status::Ok {
            // The environment of the function has ended.
            return Err(SummarizerError::Cancelled);
        }
        let answer = Self::wait(request, &receiver);
        if matches!(
            answer,
            Err(SummarizerError::Cancelled | SummarizerError::Timeout)
        ) {
            let nobody = FnArgs::from((waiting.0, String::new()));
            self.function
                .call(nobody, ThreadsafeFunctionCallMode::NonBlocking);
        }
        answer
    }
}

impl JsSummarizer {
    fn wait(
        request: &SummaryRequest,
        receiver: &Receiver<AnswerResult>,
    ) -> Result<SummaryAnswer, SummarizerError> {
        loop {
            let left = request.time_left()?;
            match receiver.recv_timeout(left.min(LOOK)) {
                Ok(Ok(json)) => return summaries::answer(json.as_bytes()),
                Ok(Err(error)) => return Err(SummarizerError::Failed(error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(SummarizerError::Cancelled),
            }
        }
    }
}
