//! Python callables that are hooks of a policy.

use loopstore::CancelFlag;
use loopstore_bindings::hooks::{Functions, HookFunction};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::CallError;
use crate::summarizer::PyCancelFlag;

/// The callables `approve` and `warn`, and the fraction of the window from which `warn` is called.
pub type GivenHooks = (Option<Py<PyAny>>, Option<Py<PyAny>>, Option<f64>);

/// A callable that gets JSON and the flag of the call, and returns JSON.
struct PythonFunction(Py<PyAny>);

impl HookFunction for PythonFunction {
    fn call(&self, json: Vec<u8>, cancel: &CancelFlag) -> Result<Vec<u8>, CallError> {
        // The calling thread may outlive the interpreter.
        let answer = Python::try_attach(|py| {
            let arguments = (PyBytes::new(py, &json), PyCancelFlag(cancel.clone()));
            self.0.call1(py, arguments)?.extract(py)
        });
        let answer: PyResult<Vec<u8>> = answer.ok_or(CallError::Closed)?;
        answer.map_err(|error| CallError::Raised(error.to_string(), Box::new(error)))
    }
}

/// Returns the hooks of a policy.
pub fn functions((approve, warn, warn_at): GivenHooks) -> Functions {
    let function = |callable| Box::new(PythonFunction(callable)) as Box<dyn HookFunction>;
    Functions {
        approve: approve.map(function),
        warn: warn.map(function),
        warn_at,
    }
}
