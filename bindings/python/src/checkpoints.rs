//! Checkpoints of LangGraph; the saver itself is `loopstore/langgraph.py`.

use std::sync::Arc;

use loopstore_bindings::checkpoints::answer;
use loopstore_checkpoints::{
    Bodies, Checkpoints, Language, ListQuery, NewCheckpoint, NewWrites, OnDelete, Strategy,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::CallError;
use crate::guard::{Handle, call};
use crate::store::PyStore;

/// The checkpoints of a store.
#[pyclass(frozen, name = "Checkpoints", module = "loopstore._loopstore")]
pub struct PyCheckpoints {
    handle: Arc<Handle>,
}

impl PyCheckpoints {
    fn kept(&self) -> Result<Checkpoints, CallError> {
        Ok(Checkpoints::new(self.handle.store()?, Language::Python))
    }
}

#[pymethods]
impl PyCheckpoints {
    #[new]
    fn new(store: &PyStore) -> Self {
        Self {
            handle: Arc::clone(store.handle()),
        }
    }

    /// Stores a checkpoint. Instead of an error the result may request another call: `missing` lists channels
    /// whose values are needed, `stale` names a thread that was deleted since the caller read it.
    fn put<'py>(
        &self,
        py: Python<'py>,
        thread: &str,
        checkpoint: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let json = call(py, || {
            let new: NewCheckpoint = serde_json::from_slice(checkpoint)?;
            answer(self.kept()?.put(thread, new))
        })?;
        Ok(PyBytes::new(py, &json))
    }

    /// Stores the writes of a task; the result is that of `put`.
    fn put_writes<'py>(
        &self,
        py: Python<'py>,
        thread: &str,
        writes: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let json = call(py, || {
            let new: NewWrites = serde_json::from_slice(writes)?;
            answer(self.kept()?.put_writes(thread, new))
        })?;
        Ok(PyBytes::new(py, &json))
    }

    /// Returns a checkpoint; without `all_bodies`, unchanged messages are null.
    fn get<'py>(
        &self,
        py: Python<'py>,
        thread: &str,
        ns: &str,
        id: Option<&str>,
        all_bodies: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bodies = match all_bodies {
            true => Bodies::All,
            false => Bodies::Changed,
        };
        let json = call(py, || {
            let found = self.kept()?.get_with(thread, ns, id, bodies)?;
            Ok(found.map(|found| serde_json::to_vec(&found)).transpose()?)
        })?;
        Ok(json.map(|json| PyBytes::new(py, &json)))
    }

    fn list<'py>(&self, py: Python<'py>, query: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let json = call(py, || {
            let query: ListQuery = serde_json::from_slice(query)?;
            Ok(serde_json::to_vec(&self.kept()?.list(&query)?)?)
        })?;
        Ok(PyBytes::new(py, &json))
    }

    fn history<'py>(
        &self,
        py: Python<'py>,
        thread: &str,
        ns: &str,
        id: Option<&str>,
        channels: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let json = call(py, || {
            let channels: Vec<String> = serde_json::from_slice(channels)?;
            let found = self.kept()?.history(thread, ns, id, &channels)?;
            Ok(serde_json::to_vec(&found)?)
        })?;
        Ok(PyBytes::new(py, &json))
    }

    fn delete_thread(&self, py: Python<'_>, thread: &str, erase: bool) -> PyResult<()> {
        let how = if erase {
            OnDelete::Erase
        } else {
            OnDelete::Hide
        };
        call(py, || Ok(self.kept()?.delete_thread(thread, how)?))
    }

    fn copy_thread(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        call(py, || Ok(self.kept()?.copy_thread(source, target)?))
    }

    fn prune(&self, py: Python<'_>, thread: &str, keep_latest: bool) -> PyResult<usize> {
        let strategy = if keep_latest {
            Strategy::KeepLatest
        } else {
            Strategy::Delete
        };
        call(py, || Ok(self.kept()?.prune(thread, strategy)?))
    }

    fn delete_for_runs(&self, py: Python<'_>, runs: &[u8]) -> PyResult<usize> {
        call(py, || {
            let runs: Vec<String> = serde_json::from_slice(runs)?;
            Ok(self.kept()?.delete_for_runs(&runs)?)
        })
    }
}
