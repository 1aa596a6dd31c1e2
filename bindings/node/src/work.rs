//! Calls on worker threads, and their errors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopstore_bindings::errors::Field;
use loopstore_bindings::{Failure, caught};
use napi::bindgen_prelude::{AsyncTask, Either, Object, ToNapiValue, TypeName, Uint8Array};
use napi::{Env, Error, Status, Task};
use napi_derive::napi;
use serde::Serialize;

/// Cancels a call from another thread.
#[napi]
pub struct CancelFlag {
    flag: loopstore::CancelFlag,
}

#[napi]
impl CancelFlag {
    #[napi(constructor)]
    pub fn new() -> Self {
        Self {
            flag: loopstore::CancelFlag::new(),
        }
    }

    /// Cancels the call: one that has not begun does nothing.
    #[napi]
    pub fn cancel(&self) {
        self.flag.cancel();
    }
}

/// Returns the flag of a call.
pub fn flag(given: Option<&CancelFlag>) -> loopstore::CancelFlag {
    given.map(|given| given.flag.clone()).unwrap_or_default()
}

/// What goes over the border in place of an error.
#[derive(Serialize)]
struct Thrown<'a> {
    class: &'a str,
    text: String,
    fields: HashMap<&'a str, Field>,
}

/// Makes the error that the TypeScript part makes an error of its own of.
pub fn thrown(failure: Failure) -> Error {
    let (class, text, fields) = failure.describe(build);
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

/// Says how the package is built with a feature.
fn build(feature: &str) -> String {
    format!("npm run build -- --features {feature}")
}

fn cancelled() -> Failure {
    Failure::Named("AbortError", "the call was aborted before it began".into())
}

type Job<T> = Box<dyn FnOnce() -> Result<T, Failure> + Send>;

/// A call on a thread of Node's pool.
pub struct Work<T> {
    cancel: loopstore::CancelFlag,
    job: Option<Job<T>>,
}

impl<T: ToNapiValue + TypeName + Send + 'static> Task for Work<T> {
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
pub type Promised<T> = AsyncTask<Work<T>>;

/// Runs `job` on a thread of Node's pool, unless it is cancelled before it begins.
pub fn promised<T: ToNapiValue + TypeName + Send + 'static>(
    cancel: Option<&CancelFlag>,
    job: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Promised<T> {
    AsyncTask::new(Work {
        cancel: flag(cancel),
        job: Some(Box::new(job)),
    })
}

type Resolver<T> = Box<dyn FnOnce(Env) -> napi::Result<T> + Send>;

/// Runs `job` on a thread of its own: it may wait for JavaScript, which may itself need Node's pool. When the
/// environment ends, it is cancelled.
pub fn on_thread<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    cancel: loopstore::CancelFlag,
    job: impl FnOnce(loopstore::CancelFlag) -> Result<T, Failure> + Send + 'static,
) -> napi::Result<Object<'env>> {
    let (deferred, promise) = env.create_deferred::<T, Resolver<T>>()?;
    let calls = Calls::of(env)?;
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
        Err(error) => Err(thrown(Failure::File(format!(
            "no thread can be started: {error}"
        )))),
    }
}

/// The calls on own threads of one environment: the main thread's or a worker's.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<UnderWay>>);

#[derive(Default)]
struct UnderWay {
    next: u64,
    flags: HashMap<u64, loopstore::CancelFlag>,
    has_ended: bool,
}

impl Calls {
    /// Returns those of the environment of this thread, whose end cancels them.
    fn of(env: &Env) -> napi::Result<Self> {
        thread_local! {
            static CALLS: std::cell::RefCell<Option<Calls>> = const { std::cell::RefCell::new(None) };
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

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, flag: loopstore::CancelFlag) -> CallUnderWay {
        let mut under_way = self.lock();
        if under_way.has_ended {
            flag.cancel();
        }
        let id = under_way.next;
        under_way.next += 1;
        under_way.flags.insert(id, flag);
        CallUnderWay {
            calls: self.clone(),
            id,
        }
    }
}

struct CallUnderWay {
    calls: Calls,
    id: u64,
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        self.calls.lock().flags.remove(&self.id);
    }
}

/// JSON as JavaScript has it: a text, or its bytes.
pub type GivenJson = Either<String, Uint8Array>;

/// Copies JSON, as JavaScript may change it meanwhile.
pub fn bytes(given: GivenJson) -> Vec<u8> {
    match given {
        Either::A(text) => text.into_bytes(),
        Either::B(bytes) => bytes.to_vec(),
    }
}

/// Writes what was found as JSON.
pub fn json(found: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string(found)?)
}

/// Reads JSON that was written as bytes.
pub fn text(json: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(json).map_err(|error| Failure::Input(error.to_string()))
}

/// Reads a count; JavaScript has only floats.
pub fn whole(name: &str, given: Option<f64>) -> Result<Option<u64>, Failure> {
    const SAFE: f64 = 9_007_199_254_740_991.0;
    match given {
        None => Ok(None),
        Some(number) if number.fract() == 0.0 && (0.0..=SAFE).contains(&number) => {
            Ok(Some(number as u64))
        }
        Some(number) => Err(Failure::Input(format!(
            "{name} is a whole number from 0, not {number}"
        ))),
    }
}

/// Reads a number that has to be there.
pub fn number(name: &str, given: f64) -> Result<u64, Failure> {
    let number = whole(name, Some(given))?;
    Ok(number.unwrap_or_default())
}

/// Reads a turn's or a message's number.
pub fn index(name: &str, given: f64) -> Result<u32, Failure> {
    let number = number(name, given)?;
    let too_large = |_| Failure::Input(format!("{name} is too large: {given}"));
    u32::try_from(number).map_err(too_large)
}
