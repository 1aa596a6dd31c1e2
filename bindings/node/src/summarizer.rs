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

/// The number of a request, and what is asked.
pub type Asked = FnArgs<(u32, String)>;
/// It does not keep the process alive: the promise of the call does.
type Asking = ThreadsafeFunction<Asked, (), Asked, Status, false, true>;

/// How often a request that waits looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// Asks a JavaScript function, which answers with `answer_summary`. A request is told once more, without a text,
/// when nobody waits for its answer any more.
pub struct JsSummarizer {
    function: Asking,
    name: String,
}

impl JsSummarizer {
    pub fn new(function: &Function<'_, Asked, ()>, name: String) -> napi::Result<Self> {
        let function = function
            .build_threadsafe_function::<Asked>()
            .callee_handled::<false>()
            .weak::<true>()
            .build()?;
        Ok(Self { function, name })
    }
}

type Said = Result<String, String>;

static WAITING: LazyLock<Mutex<HashMap<u32, Sender<Said>>>> = LazyLock::new(Mutex::default);

fn waiting() -> MutexGuard<'static, HashMap<u32, Sender<Said>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that waits for its answer.
struct Waiting(u32);

impl Waiting {
    fn begin(sender: Sender<Said>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        waiting().insert(id, sender);
        Self(id)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        waiting().remove(&self.0);
    }
}

/// Answers a request with JSON, or with what went wrong. One that nobody waits for any more is let go.
// Only Node calls it.
#[cfg_attr(test, allow(dead_code))]
#[napi]
pub fn answer_summary(request: u32, answer: Option<String>, error: Option<String>) {
    let said = answer.ok_or_else(|| error.unwrap_or_else(|| "no answer".into()));
    let sender = waiting().remove(&request);
    if let Some(sender) = sender {
        let _ = sender.send(said);
    }
}

impl Summarizer for JsSummarizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let asked = summaries::request(request, request.time_left()?);
        let (sender, receiver) = channel();
        let waiting = Waiting::begin(sender);
        let asked = FnArgs::from((waiting.0, asked));
        let status = self
            .function
            .call(asked, ThreadsafeFunctionCallMode::NonBlocking);
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
        receiver: &Receiver<Said>,
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
