//! A Python callable that writes summaries.

use std::time::Duration;

use loopstore::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};
use loopstore_bindings::summaries;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Cancels a call from another thread.
#[pyclass(frozen, name = "CancelFlag", module = "loopstore._loopstore")]
pub struct PyCancelFlag(pub loopstore::CancelFlag);

#[pymethods]
impl PyCancelFlag {
    #[new]
    fn new() -> Self {
        Self(loopstore::CancelFlag::new())
    }

    fn cancel(&self) {
        self.0.cancel();
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Calls a Python callable, which gets a dictionary and returns JSON.
pub struct PythonSummarizer {
    pub callable: Py<PyAny>,
    pub name: String,
}

impl PythonSummarizer {
    fn ask(&self, py: Python<'_>, request: &SummaryRequest, left: Duration) -> PyResult<Vec<u8>> {
        let arguments = PyDict::new(py);
        arguments.set_item("system", &request.system)?;
        arguments.set_item("prompt", &request.prompt)?;
        arguments.set_item("asked_tokens", request.asked_tokens)?;
        arguments.set_item("max_tokens", request.max_tokens)?;
        arguments.set_item("temperature", request.temperature)?;
        arguments.set_item("timeout", left.as_secs_f64())?;
        self.callable.call1(py, (arguments,))?.extract(py)
    }
}

impl Summarizer for PythonSummarizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let left = request.time_left()?;
        // The calling thread may outlive the interpreter.
        let answer = Python::try_attach(|py| {
            self.ask(py, request, left)
                .map_err(|error| SummarizerError::Failed(error.to_string()))
        });
        let answer = answer.ok_or(SummarizerError::Cancelled)??;
        summaries::answer(&answer)
    }
}

/// Returns the summariser of a callable and its name.
pub fn summarizer(given: Option<(Py<PyAny>, String)>) -> Option<PythonSummarizer> {
    given.map(|(callable, name)| PythonSummarizer { callable, name })
}
