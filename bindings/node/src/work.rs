//! Calls on worker threads, and their errors.

use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loopstore_bindings::errors::ErrorField;
use loopstore_bindings::{CallError, caught};
use napi::bindgen_prelude::{AsyncTask, Either, Object, ToNapiValue, TypeName, Uint8Array};
use napi::{Env, Error, Status, Task};
use napi_derive::napi;
use serde::Serialize;

/// Cancels a call from another thread.
#[napi(js_name = "CancelFlag")]
pub struct JsCancelFlag {
    flag: loopstore::CancelFlag,
}

#[napi]
impl JsCancelFlag {
    #[napi(constructor)]
    pub fn new() -> Self {
        Self {
            flag: loopstore::CancelFlag::new(),
        }
    }

    /// Cancels the call: a call that has not begun does nothing.
    #[napi]
    pub fn cancel(&self) {
        self.flag.cancel();
    }
}

/// Returns the flag of a call.
pub fn flag(given: Option<&JsCancelFlag>) -> loopstore::CancelFlag {
    given.map(|given| given.flag.clone()).unwrap_or_default()
}

/// An error as it is passed to TypeScript.
#[derive(Serialize)]
struct Thrown<'a> {
    class: &'a str,
    text: String,
    fields: HashMap<&'a str, ErrorField>,
}

/// Returns the error that the TypeScript part converts to one of its classes.
pub fn thrown(failure: CallError) -> Error {
    let request = match &failure {
        CallError::Raised(_, error) => error.downcast_ref::<u32>().copied(),
        _ => None,
    };
    let (class, text, mut fields) = failure.describe(build);
    // TypeScript keeps the error of a function under the number of its request.
    fields.extend(request.map(|request| ("raised_by", ErrorField::Number(request.into()))));
    let thrown = Thrown {
        class,
        text,
        fields: fields.into_iter().collect(),
    };
    let json = serde_json::to_string(&thrown);
    Error::new(
        Status::GenericFailure,
        json.unwrap_or_else(|error| error.to_string()),
    )
}

/// Returns the command that builds the package with a feature.
fn build(feature: &str) -> String {
    format!("npm run build -- --features {feature}")
}

fn cancelled() -> CallError {
    CallError::Named("AbortError", "the call was aborted".into())
}

type Job<T> = Box<dyn FnOnce() -> Result<T, CallError> + Send>;

/// A call on a thread of Node's pool.
pub struct BlockingTask<T> {
    cancel: loopstore::CancelFlag,
    job: Option<Job<T>>,
}

impl<T: ToNapiValue + TypeName + Send + 'static> Task for BlockingTask<T> {
    type Output = T;
    type JsValue = T;

    fn compute(&mut self) -> napi::Result<T> {
        let job = self.job.take();
        let done = caught(|| match job {
            Some(job) if !self.cancel.is_cancelled() => job(),
            _ => Err(cancelled()),
        });
        done.map_err(thrown)
    }

    fn resolve(&mut self, _env: Env, output: T) -> napi::Result<T> {
        Ok(output)
    }
}

/// The promise of a call.
pub type Promised<T> = AsyncTask<BlockingTask<T>>;

/// Runs `job` on a thread of Node's pool, unless it is cancelled before it begins.
pub fn promised<T: ToNapiValue + TypeName + Send + 'static>(
    cancel: Option<&JsCancelFlag>,
    job: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> Promised<T> {
    AsyncTask::new(BlockingTask {
        cancel: flag(cancel),
        job: Some(Box::new(job)),
    })
}

type Resolver<T> = Box<dyn FnOnce(Env) -> napi::Result<T> + Send>;

/// Runs `job` on a new thread, since the job may wait for JavaScript, which may need Node's pool. The job is
/// cancelled when the environment ends.
pub fn on_thread<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    cancel: loopstore::CancelFlag,
    job: impl FnOnce(loopstore::CancelFlag) -> Result<T, CallError> + Send + 'static,
) -> napi::Result<Object<'env>> {
    let (deferred, promise) = env.create_deferred::<T, Resolver<T>>()?;
    let calls = RunningCalls::of(env)?;
    let thread = std::thread::Builder::new().name("loopstore".into());
    let spawned = thread.spawn(move || {
        let under_way = calls.begin(cancel.clone());
        let done = caught(|| match cancel.is_cancelled() {
            true => Err(cancelled()),
            false => job(cancel.clone()),
        });
        drop(under_way);
        match done {
            Ok(output) => deferred.resolve(Box::new(move |_| Ok(output))),
            Err(failure) => deferred.reject(thrown(failure)),
        }
    });
    match spawned {
        Ok(_) => Ok(promise),
        Err(error) => Err(thrown(no_thread(error))),
    }
}

/// Runs `job`, which takes long, on a new thread: a job on Node's pool would hold back the end of the process.
pub fn spawn_job<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    cancel: Option<&JsCancelFlag>,
    job: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> napi::Result<Object<'env>> {
    on_thread(env, flag(cancel), |_| job())
}

/// Runs `job`, which only reads and takes long, on a new thread. Once it is cancelled its promise is rejected, and
/// nothing waits for its end.
pub fn spawn_read<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    cancel: Option<&JsCancelFlag>,
    job: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> napi::Result<Object<'env>> {
    match cancel {
        None => spawn_job(env, None, job),
        Some(_) => on_thread(env, flag(cancel), |cancel| unless_cancelled(&cancel, job)),
    }
}

/// Runs `job` on another thread, and waits for it until the flag is set.
fn unless_cancelled<T: Send + 'static>(
    cancel: &loopstore::CancelFlag,
    job: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> Result<T, CallError> {
    /// The interval in which the flag is checked.
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("loopstore".into());
    let spawned = thread.spawn(move || {
        let _ = sender.send(caught(job));
    });
    spawned.map_err(no_thread)?;
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => return Err(cancelled()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(CallError::Closed),
        }
    }
}

fn no_thread(error: std::io::Error) -> CallError {
    CallError::File(format!("no thread can be started: {error}"))
}

/// The calls on own threads of one environment: the main thread's or a worker's.
#[derive(Clone, Default)]
struct RunningCalls(Arc<Mutex<CallFlags>>);

#[derive(Default)]
struct CallFlags {
    next: u64,
    flags: HashMap<u64, loopstore::CancelFlag>,
    has_ended: bool,
}

impl RunningCalls {
    /// Returns the calls of this thread's environment, whose end cancels them.
    fn of(env: &Env) -> napi::Result<Self> {
        thread_local! {
            static CALLS: std::cell::RefCell<Option<RunningCalls>> = const { std::cell::RefCell::new(None) };
        }
        CALLS.with_borrow_mut(|kept| {
            if let Some(calls) = kept {
                return Ok(calls.clone());
            }
            let calls = Self::default();
            env.add_env_cleanup_hook(calls.clone(), |calls| {
                let mut under_way = calls.lock();
                under_way.has_ended = true;
                for flag in under_way.flags.values() {
                    flag.cancel();
                }
            })?;
            *kept = Some(calls.clone());
            Ok(calls)
        })
    }

    fn lock(&self) -> MutexGuard<'_, CallFlags> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, flag: loopstore::CancelFlag) -> RunningCallGuard {
        let mut under_way = self.lock();
        if under_way.has_ended {
            flag.cancel();
        }
        let id = under_way.next;
        under_way.next += 1;
        under_way.flags.insert(id, flag);
        RunningCallGuard {
            calls: self.clone(),
            id,
        }
    }
}

struct RunningCallGuard {
    calls: RunningCalls,
    id: u64,
}

impl Drop for RunningCallGuard {
    fn drop(&mut self) {
        self.calls.lock().flags.remove(&self.id);
    }
}

/// JSON from JavaScript: a text, or its bytes.
pub type GivenJson = Either<String, Uint8Array>;

/// Copies JSON, since JavaScript may change the buffer during the call.
pub fn bytes(given: GivenJson) -> Vec<u8> {
    match given {
        Either::A(text) => text.into_bytes(),
        Either::B(bytes) => bytes.to_vec(),
    }
}

/// Writes a value as JSON.
pub fn json(found: &impl Serialize) -> Result<String, CallError> {
    Ok(serde_json::to_string(found)?)
}

/// Reads JSON that was written as bytes.
pub fn text(json: Vec<u8>) -> Result<String, CallError> {
    String::from_utf8(json).map_err(|error| CallError::Input(error.to_string()))
}

/// Reads a count from a float, the only number type of JavaScript.
pub fn whole(name: &str, given: Option<f64>) -> Result<Option<u64>, CallError> {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    match given {
        None => Ok(None),
        Some(number) if number.fract() == 0.0 && (0.0..=SAFE).contains(&number) => {
            Ok(Some(number as u64))
        }
        Some(number) => Err(CallError::Input(format!(
            "{name} is a whole number from 0, not {number}"
        ))),
    }
}

/// Reads a required number.
pub fn number(name: &str, given: f64) -> Result<u64, CallError> {
    let number = whole(name, Some(given))?;
    Ok(number.unwrap_or_default())
}

/// Reads the number of a turn or a message.
pub fn index(name: &str, given: f64) -> Result<u32, CallError> {
    let number = number(name, given)?;
    let too_large = |_| CallError::Input(format!("{name} is too large: {given}"));
    u32::try_from(number).map_err(too_large)
}
