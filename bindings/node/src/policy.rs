//! Policies of compactions.

use loopstore::Policy;
use loopstore_bindings::hooks::{Functions, HookFunction};
use loopstore_bindings::options;
use napi::bindgen_prelude::Function;
use napi_derive::napi;

use crate::callback::{JsCallback, RequestArgs};
use crate::hooks::JsHook;
use crate::summarizer::JsSummarizer;
use crate::work::thrown;

/// The policy of compactions.
#[napi]
#[derive(Clone)]
pub struct NativePolicy {
    pub(crate) policy: Policy,
}

#[napi]
impl NativePolicy {
    /// Reads settings as JSON, the provider that contexts go to, a function with its name that writes the summaries,
    /// and the hooks `approve` and `warn` with the fraction of the window from which `warn` is called. Each function
    /// gets the number of a request and the request as JSON, and calls `answerRequest`.
    #[napi(constructor)]
    pub fn new(
        settings: String,
        provider: Option<String>,
        name: Option<String>,
        #[napi(ts_arg_type = "((request: number, json: string) => void) | undefined | null")]
        summarizer: Option<Function<'_, RequestArgs, ()>>,
        #[napi(ts_arg_type = "((request: number, json: string) => void) | undefined | null")]
        approve: Option<Function<'_, RequestArgs, ()>>,
        #[napi(ts_arg_type = "((request: number, json: string) => void) | undefined | null")]
        warn: Option<Function<'_, RequestArgs, ()>>,
        warn_at: Option<f64>,
    ) -> napi::Result<Self> {
        let policy = options::policy(settings.as_bytes(), provider.as_deref()).map_err(thrown)?;
        let policy = match summarizer {
            None => policy,
            Some(function) => policy.summarizer(JsSummarizer {
                function: JsCallback::new(&function)?,
                name: name.unwrap_or_else(|| "javascript".into()),
            }),
        };
        let hook = |function: Option<Function<'_, RequestArgs, ()>>| {
            let callback = function.map(|function| JsCallback::new(&function));
            let hook = |callback| Box::new(JsHook(callback)) as Box<dyn HookFunction>;
            napi::Result::Ok(callback.transpose()?.map(hook))
        };
        let functions = Functions {
            approve: hook(approve)?,
            warn: hook(warn)?,
            warn_at,
        };
        Ok(Self {
            policy: functions.add_to(policy).map_err(thrown)?,
        })
    }
}
