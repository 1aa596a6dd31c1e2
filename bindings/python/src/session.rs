//! A session's handle.

use std::path::PathBuf;
use std::sync::Arc;

use loopstore::{
    CallState, CompactRequest, CompactTrigger, ContinuationKind, Error, KeyQuery, LoopId, LoopSpec,
    LoopStatus, SessionHandle, TurnRef,
};
use loopstore_admin::inspect::ExpandRequest;
use loopstore_admin::retention::EraseRequest;
use loopstore_admin::{inspect, retention};
use loopstore_bindings::calls::{
    Moment, context, flip_request, flipped, leaf, pair, pin_ref, written,
};
use loopstore_bindings::entries::GivenEntries;
use loopstore_bindings::items::ItemForm;
use loopstore_bindings::queries::GivenQuery;
use loopstore_bindings::{entries, items, messages, redaction};
use loopstore_export::{ExportForm, export};
use loopstore_report::{ReportOptions, write_report};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::errors::Failure;
use crate::guard::{Handle, call};
use crate::options::{GivenPolicy, policy, provider_named};
use crate::summarizer::CancelFlag;

/// One agent's history.
#[pyclass(frozen, module = "loopstore._loopstore")]
pub struct Session {
    handle: Arc<Handle>,
    key: u64,
    id: String,
}

/// Where an append went: loop, turns, sequences, tokens, loops that began, whether it was known, and what was
/// completed in its tool calls.
type Appended = (
    String,
    (u32, u32),
    (u32, u32),
    u64,
    Vec<String>,
    bool,
    Vec<String>,
);

/// The state of a call, its key, and the message that finished it.
type KnownCall<'py> = (&'static str, Option<String>, Option<Bound<'py, PyBytes>>);

impl Session {
    pub fn of(handle: &Arc<Handle>, session: SessionHandle) -> Result<Self, Failure> {
        let id = session.id().to_string();
        Ok(Self {
            handle: Arc::clone(handle),
            key: handle.keep(session)?,
            id,
        })
    }

    fn session(&self) -> Result<SessionHandle, Failure> {
        self.handle.session(self.key)
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(SessionHandle) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        call(py, || work(self.session()?))
    }

    /// Runs `work` on the session and returns the JSON of what it gives.
    fn json<'py>(
        &self,
        py: Python<'py>,
        work: impl FnOnce(SessionHandle) -> Result<Vec<u8>, Failure> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let json = self.call(py, work)?;
        Ok(PyBytes::new(py, &json))
    }

    /// Returns a handle of the same session that `work` made.
    fn other(
        &self,
        py: Python<'_>,
        work: impl FnOnce(SessionHandle) -> Result<SessionHandle, Failure> + Send,
    ) -> PyResult<Self> {
        self.call(py, |session| Self::of(&self.handle, work(session)?))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.handle.forget(self.key);
    }
}

fn appended(done: loopstore::Appended) -> Appended {
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
impl Session {
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    fn with_policy(&self, py: Python<'_>, given: GivenPolicy<'_>) -> PyResult<Self> {
        self.other(py, |session| Ok(session.with_policy(policy(given)?)))
    }

    /// Returns the same handle for contexts that go to a provider.
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
    ) -> PyResult<Appended> {
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
        at: Moment,
        check: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let context = context(&session, max_tokens, max_bytes, at, check)?;
            messages::write(form, &context)
        })
    }

    fn open_calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| messages::open_calls(&session))
    }

    /// Returns the context in a form, and what was done to get it.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        form: &str,
        for_length: bool,
        cancel: &CancelFlag,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let cancel = cancel.0.clone();
        let (context, about) = self.call(py, |session| {
            let trigger = match for_length {
                true => CompactTrigger::Length,
                false => CompactTrigger::Policy,
            };
            let ready = session.prepare_by(trigger, cancel)?;
            let about = json!({
                "loop_id": ready.context.leaf,
                "tokens": ready.context.tokens,
                "bytes": ready.context.bytes,
                "faults": ready.context.faults,
                "open_calls": ready.context.open_calls(),
                "mended": messages::mended(form, &ready.context)?,
                "compactions": ready.compactions,
                "was_compacted": ready.was_compacted(),
            });
            Ok((
                messages::write(form, &ready.context)?,
                serde_json::to_vec(&about)?,
            ))
        })?;
        Ok((PyBytes::new(py, &context), PyBytes::new(py, &about)))
    }

    fn compact<'py>(
        &self,
        py: Python<'py>,
        force: bool,
        dry_run: bool,
        given: Option<GivenPolicy<'_>>,
        cancel: &CancelFlag,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let cancel = cancel.0.clone();
        self.json(py, |session| {
            let request = match given {
                Some(given) => policy(given)?.request(),
                None => session.policy().request(),
            };
            let request = CompactRequest {
                trigger: match force {
                    true => CompactTrigger::Force,
                    false => CompactTrigger::Policy,
                },
                dry_run,
                cancel,
                ..request
            };
            Ok(serde_json::to_vec(&session.compact(&request)?)?)
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

    fn fork(&self, py: Python<'_>, loop_id: String, turn: u32, seq: Option<u32>) -> PyResult<Self> {
        self.other(py, |session| {
            LoopId::new(loop_id.as_str())?;
            Ok(session.fork_at(match seq {
                Some(seq) => TurnRef::within(loop_id, turn, seq),
                None => TurnRef::new(loop_id, turn),
            })?)
        })
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
            let mut spec = match fresh {
                true => LoopSpec::fresh(),
                false => LoopSpec::new(),
            };
            if let Some(id) = id {
                spec = spec.id(LoopId::new(id)?);
            }
            if let Some(agent) = agent {
                spec = spec.agent(agent);
            }
            if let Some(kind) = kind {
                spec = spec.kind(serde_json::from_slice::<ContinuationKind>(kind)?);
            }
            Ok(session.begin_loop(spec)?.to_string())
        })
    }

    fn end_loop(&self, py: Python<'_>, status: &str) -> PyResult<()> {
        self.call(py, |session| match LoopStatus::from(status) {
            LoopStatus::Other(_) => Err(Failure::Input(format!(
                "unknown status `{status}`; known are Completed, Rejected, Aborted"
            ))),
            status => Ok(session.end_loop(status)?),
        })
    }

    /// Returns the state of a call, its key, and the message that finished it.
    fn start_call<'py>(&self, py: Python<'py>, call_id: &str) -> PyResult<KnownCall<'py>> {
        let (state, key, message) = self.call(py, |session| {
            Ok(match session.start_call(call_id)? {
                CallState::New { key } => ("new", Some(key), None),
                CallState::Started { key } => ("started", Some(key), None),
                CallState::Finished(message) => {
                    ("finished", None, Some(serde_json::to_vec(&message)?))
                }
            })
        })?;
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
        start: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let mut request = ExpandRequest::turns(turns.0, turns.1);
            request.loop_id = match loop_id {
                Some(id) => Some(LoopId::new(id)?),
                None => Some(leaf(&session)?),
            };
            request.matching = matching;
            request.max_tokens = max_tokens;
            request.from = start.map(str::parse).transpose().map_err(Failure::Input)?;
            let found = inspect::expand(session.store().database(), session.id(), &request);
            Ok(serde_json::to_vec(&found.map_err(Error::from)?)?)
        })
    }

    /// Returns the rows of the session, its loops and the blocks on them.
    fn show<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let view = session.store().database().session_view(session.id())?;
            let loops: Vec<_> = view
                .loops
                .iter()
                .map(|(row, blocks)| (row, blocks))
                .collect();
            Ok(serde_json::to_vec(&(&view.session, loops))?)
        })
    }

    /// Returns an export, or writes it to a file.
    fn export<'py>(
        &self,
        py: Python<'py>,
        format: &str,
        loop_id: Option<String>,
        path: Option<PathBuf>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.call(py, |session| {
            let form: ExportForm = format.parse()?;
            let leaf = loop_id.map(LoopId::new).transpose()?;
            let database = session.store().database();
            written(path, |out| {
                export(database, session.id(), leaf.as_ref(), form, out)?;
                Ok(())
            })
        })?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Returns the page of the session, or writes it to a file.
    fn report<'py>(
        &self,
        py: Python<'py>,
        path: Option<PathBuf>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.call(py, |session| {
            let options = ReportOptions {
                leaf: session.leaf()?,
                ..ReportOptions::default()
            };
            let database = session.store().database();
            written(path, |out| {
                write_report(database, session.id(), &options, out)?;
                Ok(())
            })
        })?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Appends several times in one transaction: a key and messages each.
    fn append_batch(
        &self,
        py: Python<'_>,
        form: &str,
        parts: Vec<(Option<String>, PyBackedBytes)>,
    ) -> PyResult<Vec<Appended>> {
        self.call(py, |session| {
            let parts = parts
                .into_iter()
                .map(|(key, messages)| Ok::<_, Failure>((key, messages::read(form, &messages)?)));
            let done = session.append_batch(parts.collect::<Result<Vec<_>, _>>()?)?;
            Ok(done.into_iter().map(appended).collect())
        })
    }

    /// Returns where the messages of a key are.
    fn appended(&self, py: Python<'_>, key: &str) -> PyResult<Option<Appended>> {
        self.call(py, |session| Ok(session.appended(key)?.map(appended)))
    }

    /// Lists keys in the order of their bytes, with where their messages are.
    fn append_keys(
        &self,
        py: Python<'_>,
        prefix: String,
        after: Option<String>,
        before: Option<String>,
        descending: bool,
        limit: Option<usize>,
    ) -> PyResult<Vec<(String, Appended)>> {
        let mut query = KeyQuery::prefix(prefix);
        if let Some(after) = after {
            query = query.after(after);
        }
        if let Some(before) = before {
            query = query.before(before);
        }
        if descending {
            query = query.descending();
        }
        if let Some(limit) = limit {
            query = query.limit(limit);
        }
        self.call(py, |session| {
            let found = session.append_keys(&query)?.into_iter();
            Ok(found.map(|one| (one.key, appended(one.appended))).collect())
        })
    }

    /// Returns stored messages with their places.
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
            let report = retention::erase(session.store().database(), &request)?;
            Ok(serde_json::to_vec(&report)?)
        })
    }

    fn redact<'py>(&self, py: Python<'py>, request: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            let report = redaction::redact(&session, request)?;
            Ok(serde_json::to_vec(&report)?)
        })
    }

    /// Appends items of Responses, which come back as they are.
    fn append_items(&self, py: Python<'_>, items: &[u8]) -> PyResult<()> {
        self.call(py, |session| {
            session.append(items::read(items)?)?;
            Ok(())
        })
    }

    /// Returns the items of the context, the last `limit` of them if that is given.
    fn items<'py>(&self, py: Python<'py>, limit: Option<usize>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |session| {
            items::write(&session, ItemForm::Responses, limit)
        })
    }

    /// Takes the last item back.
    fn pop_item<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let item = self.call(py, |session| items::pop(&session, ItemForm::Responses))?;
        Ok(item.map(|item| PyBytes::new(py, &item)))
    }

    /// Returns all items, and the place of the last message, for a compaction by the provider.
    fn items_to_seal<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, String, u32)>> {
        let found = self.call(py, |session| items::snapshot(&session, ItemForm::Responses))?;
        Ok(found.map(|(items, loop_id, seq)| (PyBytes::new(py, &items), loop_id, seq)))
    }

    /// Records what the provider's own compaction gave.
    fn seal_items(&self, py: Python<'_>, items: &[u8], loop_id: String, seq: u32) -> PyResult<()> {
        self.call(py, |session| {
            items::seal(&session, items::read(items)?, loop_id, seq)
        })
    }

    fn set_title(&self, py: Python<'_>, title: String) -> PyResult<()> {
        self.call(py, |session| Ok(session.set_title(title)?))
    }

    fn set_project(&self, py: Python<'_>, folder: String) -> PyResult<()> {
        self.call(py, |session| Ok(session.set_project(folder)?))
    }
}
