//! Policies of compactions.

use loopstore::Policy;
use loopstore_bindings::options;
use napi::bindgen_prelude::Function;
use napi_derive::napi;

use crate::summarizer::{JsSummarizer, RequestArgs};
use crate::work::thrown;

/// The policy of compactions.
#[napi]
#[derive(Clone)]
pub struct NativePolicy {
    pub(crate) policy: Policy,
}

#[napi]
impl NativePolicy {
    /// Reads settings as JSON, the provider that contexts go to, and a function with its name that writes the
    /// summaries: it gets the number of a request and the request as JSON, and calls `answerSummary`.
    #[napi(constructor)]
    pub fn new(
        settings: String,
        provider: Option<String>,
        name: Option<String>,
        #[napi(ts_arg_type = "((request: number, json: string) => void) | undefined | null")]
        summarizer: Option<Function<'_, RequestArgs, ()>>,
    ) -> napi::Result<Self> {
        let policy = options::policy(settings.as_bytes(), provider.as_deref()).map_err(thrown)?;
        Ok(match summarizer {
            None => Self { policy },
            Some(function) => {
                let name = name.unwrap_or_else(|| "javascript".into());
                Self {
                    policy: policy.summarizer(JsSummarizer::new(&function, name)?),
                }
            }
        })
    }
}
