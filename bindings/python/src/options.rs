//! Policies of compactions.

use loopstore::Policy;
pub use loopstore_bindings::options::{OpenOptions, provider_named};
use pyo3::prelude::*;

use crate::errors::CallError;
use crate::hooks::{GivenHooks, functions};
use crate::summarizer::summarizer;

/// The settings as JSON, the provider that contexts are made for, a named callable that writes the summaries, and the
/// hooks.
pub type GivenPolicy<'a> = (
    &'a [u8],
    Option<String>,
    Option<(Py<PyAny>, String)>,
    GivenHooks,
);

/// Returns the policy.
pub fn policy((settings, provider, callable, hooks): GivenPolicy<'_>) -> Result<Policy, CallError> {
    let policy = loopstore_bindings::options::policy(settings, provider.as_deref())?;
    let policy = match summarizer(callable) {
        Some(summarizer) => policy.summarizer(summarizer),
        None => policy,
    };
    functions(hooks).add_to(policy)
}
