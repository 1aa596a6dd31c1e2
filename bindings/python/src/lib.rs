//! The native part of the Python package `loopstore`.
//!
//! It contains handles and passes JSON as bytes; the public classes (with docstrings, dictionaries and the
//! async interface) are Python in `python/loopstore`. Each call releases the GIL, rejects a store from before a
//! fork, and turns a panic into an exception: `call` in `guard.rs`.

mod checkpoints;
mod decode;
mod errors;
mod guard;
mod hooks;
mod options;
mod session;
mod store;
mod summarizer;

use pyo3::prelude::*;

#[pymodule]
mod _loopstore {
    use std::ffi::OsString;

    use pyo3::prelude::*;
    use pyo3::types::PyBytes;

    use crate::guard;
    use crate::options::{self, GivenPolicy};

    #[pymodule_export]
    use crate::checkpoints::PyCheckpoints;
    #[pymodule_export]
    use crate::session::PySession;
    #[pymodule_export]
    use crate::store::PyStore;
    #[pymodule_export]
    use crate::summarizer::PyCancelFlag;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("COUNTERS", loopstore::COUNTERS.to_vec())
    }

    /// Runs the command line and returns its exit code.
    #[pyfunction]
    fn run_command(py: Python<'_>, args: Vec<OsString>) -> PyResult<u8> {
        guard::call(py, || Ok(loopstore_cli::run(args)))
    }

    /// Decodes JSON to Python objects.
    #[pyfunction]
    fn decode<'py>(json: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        let py = json.py();
        match crate::decode::decode(py, json.as_bytes()) {
            Some(value) => Ok(value),
            None => py.import("json")?.call_method1("loads", (json,)),
        }
    }

    /// Fails if a policy is not valid.
    #[pyfunction]
    fn check_policy(py: Python<'_>, given: GivenPolicy<'_>) -> PyResult<()> {
        guard::call(py, || options::policy(given).map(drop))
    }

    /// Returns `True` if another copy of SQLite in this process may have the same database open.
    #[pyfunction]
    fn allows_other_copies() -> bool {
        loopstore::SqliteStore::allows_other_copies()
    }

    /// Waits until no call is running.
    #[pyfunction]
    fn before_fork(py: Python<'_>) {
        guard::before_fork(py);
    }

    /// Allows calls again.
    #[pyfunction]
    fn after_fork(in_child: bool) {
        guard::after_fork(in_child);
    }

    /// Panics, for tests of the error of a panic.
    #[pyfunction]
    fn _panic(py: Python<'_>, message: String) -> PyResult<()> {
        guard::call(py, || std::panic::resume_unwind(Box::new(message)))
    }
}
