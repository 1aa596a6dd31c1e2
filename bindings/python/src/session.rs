//! A session's handle.

use std::path::PathBuf;
use std::sync::Arc;

use loopstore::{LoopId, SessionHandle};
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_bindings::calls::{
    AsOfInput, context, flip_request, flipped, pair, pin_ref, record_context,
};
use loopstore_bindings::entries::GivenEntries;
use loopstore_bindings::items::ItemForm;
use loopstore_bindings::prepare::{compact, prepare};
use loopstore_bindings::queries::GivenQuery;
use loopstore_bindings::views::{self, ExpandOptions};
use loopstore_bindings::{append_keys, edits, entries, items, loops, messages, redaction};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::CallError;
use crate::guard::{Handle, call};
use crate::options::{GivenPolicy, policy, provider_named};
use crate::summarizer::PyCancelFlag;

/// The session of an agent.
#[pyclass(frozen, name = "Session", module = "loopstore._loopstore")]
pub struct PySession {
    handle: Arc<Handle>,
    key: u64,
    id: String,
}

/// The result of an append: its loop, turns, sequences, tokens, the loops that it began, true for a duplicate, and
/// notes on completed tool calls.
type AppendedTuple = (
    String,
    (u32, u32),
    (u32, u32),
    u64,
    Vec<String>,
    bool,
    Vec<String>,
);

/// The state of a call, its key, and the message that finished it.
type CallTuple<'py> = (&'static str, Option<String>, Option<Bound<'py, PyBytes>>);

impl PySession {
    pub fn of(handle: &Arc<Handle>, session: SessionHandle) -> Result<Self, CallError> {
        let id = session.id().to_string();
        Ok(Self {
            handle: Arc::clone(handle),
            key: handle.keep(session)?,
            id,
        })
    }

    fn session(&self) -> Result<SessionHandle, CallError> {
        self.handle.session(self.key)
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(SessionHandle) -> Result<T, CallError> + Send,
    ) -> PyResult<T> {
        call(py, || work(self.session()?))
    }

    /// Runs `work` on the session and returns its JSON.
    fn json<'py>(
        &self,
        py: Python<'py>,
        work: impl FnOnce(SessionHandle) -> Result<Vec<u8>, CallError> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let json = self.call(py, work)?;
        Ok(PyBytes::new(py, &json))
    }

    /// Returns a handle of the same session that `work` made.
    fn other(
        &self,
        py: Python<'_>,
        work: impl FnOnce(SessionHandle) -> Result<SessionHandle, CallError> + Send,
    ) -> PyResult<Self> {
        self.call(py, |session| Self::of(&self.handle, work(session)?))
    }
}

impl Drop for PySession {
    fn drop(&mut self) {
        self.handle.forget(self.key);
    }
}

fn appended(done: loopstore::Appended) -> AppendedTuple {
    (
        done.loop_id.to_string(),
        pair(&done.turns),
        pair(&done.seqs),
        done.tokens,
        done.begun.iter().map(ToString::to_string).collect(),
        done.duplicate,
        done.notes,
    )
}

#[pymethods]
impl PySession {
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    fn with_policy(&self, py: Python<'_>, given: GivenPolicy<'_>) -> PyResult<Self> {
        self.other(py, |session| Ok(session.with_policy(policy(given)?)))
    }

    /// Returns a handle of the session for contexts that go to a provider.
    fn for_provider(&self, py: Python<'_>, provider: &str) -> PyResult<Self> {
        self.other(py, |session| {
            let policy = session.policy().clone();
            Ok(session.with_policy(policy.provider(provider_named(provider)?)))
        })
    }

    fn leaf(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.call(py, |session| {
            Ok(session.leaf()?.map(|leaf| leaf.to_string()))
        })
    }

    fn append(
        &self,
        py: Python<'_>,
        form: &str,
        messages: &[u8],
        key: Option<&str>,
    ) -> PyResult<AppendedTuple> {
        self.call(py, |session| {
            let messages = messages::read(form, messages)?;
            let done = match key {
                Some(key) => session.append_once(key, messages)?,
                None => session.append(messages)?,
            };
            Ok(appended(done))
        })
    }

    fn context<'py>(
        &self,
        py: Python<'py>,
        form: &str,
        max_tokens: Option<u64>,
        max_bytes: Option<u64>,
        at: AsOfInput,
        check: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let context = context(&session, max_tokens, max_bytes, at, check)?;
            messages::write(form, &context)
        })
    }

    /// Records the context of the next model call, and returns its manifest as JSON.
    fn record_context<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| record_context(&session))
    }

    fn open_calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| messages::open_calls(&session))
    }

    /// Returns the context in a form, and its description.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        form: &str,
        for_length: bool,
        cancel: &PyCancelFlag,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let cancel = cancel.0.clone();
        let (context, about) =
            self.call(py, |session| prepare(&session, form, for_length, cancel))?;
        Ok((PyBytes::new(py, &context), PyBytes::new(py, &about)))
    }

    fn compact<'py>(
        &self,
        py: Python<'py>,
        force: bool,
        dry_run: bool,
        given: Option<GivenPolicy<'_>>,
        cancel: &PyCancelFlag,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let cancel = cancel.0.clone();
        self.json(py, |session| {
            let policy = given.map(policy).transpose()?;
            compact(&session, force, dry_run, policy, cancel)
        })
    }

    fn undo<'py>(
        &self,
        py: Python<'py>,
        run: Option<String>,
        reason: Option<String>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let request = flip_request(&session, run, reason)?;
            flipped(loopstore::undo(
                session.store().database(),
                session.id(),
                &request,
            )?)
        })
    }

    fn redo<'py>(
        &self,
        py: Python<'py>,
        run: Option<String>,
        reason: Option<String>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let request = flip_request(&session, run, reason)?;
            flipped(loopstore::redo(
                session.store().database(),
                session.id(),
                &request,
            )?)
        })
    }

    fn edit<'py>(
        &self,
        py: Python<'py>,
        action: &str,
        request: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| edits::edit(&session, action, request))
    }

    fn restore<'py>(&self, py: Python<'py>, targets: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| edits::restore(&session, targets))
    }

    fn fork(&self, py: Python<'_>, loop_id: String, turn: u32, seq: Option<u32>) -> PyResult<Self> {
        self.other(py, |session| loops::fork(&session, loop_id, turn, seq))
    }

    fn at_loop(&self, py: Python<'_>, loop_id: String) -> PyResult<Self> {
        self.other(py, |session| Ok(session.at_loop(&LoopId::new(loop_id)?)?))
    }

    fn begin_loop(
        &self,
        py: Python<'_>,
        id: Option<String>,
        fresh: bool,
        agent: Option<String>,
        kind: Option<&[u8]>,
    ) -> PyResult<String> {
        self.call(py, |session| {
            loops::begin_loop(&session, id, fresh, agent, kind)
        })
    }

    fn end_loop(&self, py: Python<'_>, status: &str) -> PyResult<()> {
        self.call(py, |session| loops::end_loop(&session, status))
    }

    /// Returns the state of a call, its key, and the message that finished it.
    fn start_call<'py>(&self, py: Python<'py>, call_id: &str) -> PyResult<CallTuple<'py>> {
        let (state, key, message) =
            self.call(py, |session| loops::start_call(&session, call_id))?;
        Ok((state, key, message.map(|json| PyBytes::new(py, &json))))
    }

    fn child(&self, py: Python<'_>, call_id: &str, id: &str) -> PyResult<Self> {
        self.other(py, |session| Ok(session.child(call_id, id)?))
    }

    fn pin<'py>(
        &self,
        py: Python<'py>,
        loop_id: String,
        turn: u32,
        seq: Option<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            Ok(serde_json::to_vec(
                &session.pin(pin_ref(loop_id, turn, seq))?,
            )?)
        })
    }

    fn unpin<'py>(
        &self,
        py: Python<'py>,
        loop_id: String,
        turn: u32,
        seq: Option<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            Ok(serde_json::to_vec(
                &session.unpin(pin_ref(loop_id, turn, seq))?,
            )?)
        })
    }

    fn pins<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| Ok(serde_json::to_vec(&session.pins()?)?))
    }

    /// Finds messages of the session.
    fn search<'py>(
        &self,
        py: Python<'py>,
        text: String,
        query: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let mut query = GivenQuery::of(text, query)?;
            query.session = Some(session.id().clone());
            Ok(serde_json::to_vec(&session.store().search(query)?)?)
        })
    }

    fn history<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let rows = session.store().database().run_rows(Some(session.id()))?;
            Ok(serde_json::to_vec(&rows)?)
        })
    }

    /// Returns an answer and its text.
    fn recall<'py>(
        &self,
        py: Python<'py>,
        question: &str,
        tokens: u64,
    ) -> PyResult<(Bound<'py, PyBytes>, String)> {
        let (json, text) = self.call(py, |session| {
            let answer = session.recall(question, tokens)?;
            Ok((serde_json::to_vec(&answer)?, answer.text()))
        })?;
        Ok((PyBytes::new(py, &json), text))
    }

    fn expand<'py>(
        &self,
        py: Python<'py>,
        turns: (u32, u32),
        loop_id: Option<String>,
        matching: Option<String>,
        max_tokens: Option<u64>,
        start: Option<String>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let options = ExpandOptions {
            turns,
            loop_id,
            matching,
            max_tokens,
            start,
        };
        self.json(py, |session| views::expand(&session, options))
    }

    /// Returns the rows of the session, its loops and the blocks on them.
    fn show<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| views::show(&session))
    }

    /// Returns an export, or writes it to a file.
    fn export<'py>(
        &self,
        py: Python<'py>,
        format: &str,
        loop_id: Option<String>,
        path: Option<PathBuf>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.call(py, |session| views::export(&session, format, loop_id, path))?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Returns the report of the session, or writes it to a file.
    fn report<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathBuf>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.call(py, |session| views::report(&session, path))?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Appends several times in one transaction: a key and messages each.
    fn append_batch(
        &self,
        py: Python<'_>,
        form: &str,
        parts: Vec<(Option<String>, PyBackedBytes)>,
    ) -> PyResult<Vec<AppendedTuple>> {
        self.call(py, |session| {
            let parts = parts
                .into_iter()
                .map(|(key, messages)| Ok::<_, CallError>((key, messages::read(form, &messages)?)));
            let done = session.append_batch(parts.collect::<Result<Vec<_>, _>>()?)?;
            Ok(done.into_iter().map(appended).collect())
        })
    }

    /// Returns the result of the append under a key.
    fn appended(&self, py: Python<'_>, key: &str) -> PyResult<Option<AppendedTuple>> {
        self.call(py, |session| Ok(session.appended(key)?.map(appended)))
    }

    /// Lists appends with keys, in the order of the bytes of the keys.
    fn append_keys(
        &self,
        py: Python<'_>,
        prefix: String,
        after: Option<String>,
        before: Option<String>,
        descending: bool,
        limit: Option<usize>,
    ) -> PyResult<Vec<(String, AppendedTuple)>> {
        let query = append_keys::query(prefix, after, before, descending, limit);
        self.call(py, |session| {
            let found = session.append_keys(&query)?.into_iter();
            Ok(found.map(|one| (one.key, appended(one.appended))).collect())
        })
    }

    /// Returns stored messages with their positions.
    fn entries<'py>(&self, py: Python<'py>, query: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let found = session.entries(&GivenEntries::of(query)?)?;
            Ok(serde_json::to_vec(&entries::rows(&found))?)
        })
    }

    fn count_entries(&self, py: Python<'_>, query: &[u8]) -> PyResult<u64> {
        self.call(py, |session| {
            Ok(session.count_entries(&GivenEntries::of(query)?)?)
        })
    }

    fn exists(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |session| Ok(session.exists()?))
    }

    fn hide(&self, py: Python<'_>) -> PyResult<String> {
        self.call(py, |session| Ok(session.hide()?.to_string()))
    }

    fn unhide(&self, py: Python<'_>, id: &str) -> PyResult<Self> {
        self.other(py, |session| Ok(session.unhide(id)?))
    }

    fn erase<'py>(&self, py: Python<'py>, reason: Option<String>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let request = EraseRequest {
                reason,
                ..EraseRequest::new(session.id().clone())
            };
            let report = erase(session.store().database(), &request)?;
            Ok(serde_json::to_vec(&report)?)
        })
    }

    fn redact<'py>(&self, py: Python<'py>, request: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let report = redaction::redact(&session, request)?;
            Ok(serde_json::to_vec(&report)?)
        })
    }

    /// Appends items of the Responses API, which are returned unchanged.
    fn append_items(&self, py: Python<'_>, items: &[u8]) -> PyResult<()> {
        self.call(py, |session| {
            session.append(items::read(items)?)?;
            Ok(())
        })
    }

    /// Returns the items of the context, at most the last `limit`.
    fn items<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            items::write(&session, ItemForm::Responses, limit)
        })
    }

    /// Removes the last item.
    fn pop_item<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let item = self.call(py, |session| items::pop(&session, ItemForm::Responses))?;
        Ok(item.map(|item| PyBytes::new(py, &item)))
    }

    /// Returns all items, and the position of the last message, for a compaction by the provider.
    fn items_to_seal<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, String, u32)>> {
        let found = self.call(py, |session| items::snapshot(&session, ItemForm::Responses))?;
        Ok(found.map(|(items, loop_id, seq)| (PyBytes::new(py, &items), loop_id, seq)))
    }

    /// Records a compaction by the provider.
    fn seal_items(&self, py: Python<'_>, items: &[u8], loop_id: String, seq: u32) -> PyResult<()> {
        self.call(py, |session| {
            items::record_compaction(&session, items::read(items)?, loop_id, seq)
        })
    }

    fn set_title(&self, py: Python<'_>, title: String) -> PyResult<()> {
        self.call(py, |session| Ok(session.set_title(title)?))
    }

    fn set_project(&self, py: Python<'_>, folder: String) -> PyResult<()> {
        self.call(py, |session| Ok(session.set_project(folder)?))
    }
}
