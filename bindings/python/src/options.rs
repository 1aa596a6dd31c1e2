//! Policies of compactions.

use loopstore::Policy;
pub use loopstore_bindings::options::{OpenOptions, provider_named};
use pyo3::prelude::*;

use crate::errors::CallError;
use crate::summarizer::summarizer;

/// The settings as JSON, the provider that contexts are made for, and a named callable that writes the summaries.
pub type GivenPolicy<'a> = (&'a [u8], Option<String>, Option<(Py<PyAny>, String)>);

/// Returns the policy.
pub fn policy((settings, provider, callable): GivenPolicy<'_>) -> Result<Policy, CallError> {
    let policy = loopstore_bindings::options::policy(settings, provider.as_deref())?;
    Ok(match summarizer(callable) {
        Some(summarizer) => policy.summarizer(summarizer),
        None => policy,
    })
}
