//! JavaScript functions that a waiting call requests answers from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use napi::Status;
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;

/// The number of a request, and the request as JSON.
pub type RequestArgs = FnArgs<(u32, String)>;
/// A weak reference: the promise of the call keeps the process alive.
type RequestFunction = ThreadsafeFunction<RequestArgs, (), RequestArgs, Status, false, true>;

/// The interval in which a waiting request checks whether it is still wanted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A JavaScript function that answers requests with `answer_request`. It is called once more, without a text, if a
/// request ends before its answer.
pub struct JsCallback(RequestFunction);

/// The end of a request without an answer.
pub enum NoAnswer<E> {
    /// The function failed: the number of the request, and the text of the error.
    Failed(u32, String),
    /// The caller does not wait any longer.
    Unwanted(E),
    /// The environment of the function has ended.
    Ended,
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
pub fn answer_request(request: u32, answer: Option<String>, error: Option<String>) {
    let outcome = answer.ok_or_else(|| error.unwrap_or_else(|| "no answer".into()));
    let sender = waiting().remove(&request);
    if let Some(sender) = sender {
        let _ = sender.send(outcome);
    }
}

impl JsCallback {
    pub fn new(function: &Function<'_, RequestArgs, ()>) -> napi::Result<Self> {
        let function = function
            .build_threadsafe_function::<RequestArgs>()
            .callee_handled::<false>()
            .weak::<true>()
            .build()?;
        Ok(Self(function))
    }

    /// Calls the function with JSON, and returns its answer. `check` fails once the answer is not wanted any more.
    pub fn request<E>(
        &self,
        json: String,
        check: impl Fn() -> Result<(), E>,
    ) -> Result<String, NoAnswer<E>> {
        let (sender, receiver) = channel();
        let pending = PendingRequest::begin(sender);
        if !self.call(pending.0, json) {
            return Err(NoAnswer::Ended);
        }
        loop {
            if let Err(error) = check() {
                self.call(pending.0, String::new());
                return Err(NoAnswer::Unwanted(error));
            }
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(answer) => return answer.map_err(|text| NoAnswer::Failed(pending.0, text)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(NoAnswer::Ended),
            }
        }
    }

    /// Calls the function; `false` if its environment has ended.
    fn call(&self, request: u32, json: String) -> bool {
        let arguments = FnArgs::from((request, json));
        let status = self
            .0
            .call(arguments, ThreadsafeFunctionCallMode::NonBlocking);
        status == Status::Ok
    }
}
