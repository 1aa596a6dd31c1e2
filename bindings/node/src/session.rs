//! A session's handle.

use std::path::PathBuf;
use std::sync::Arc;

use loopstore::{
    CallState, CompactRequest, CompactTrigger, ContinuationKind, Error, KeyQuery, LoopId, LoopSpec,
    LoopStatus, Policy, SessionHandle, TurnRef,
};
use loopstore_admin::inspect::ExpandRequest;
use loopstore_admin::retention::EraseRequest;
use loopstore_admin::{inspect, retention};
use loopstore_bindings::calls::{context, flip_request, leaf, pair, pin_ref, written};
use loopstore_bindings::entries::GivenEntries;
use loopstore_bindings::item_changes::Change;
use loopstore_bindings::items::ItemForm;
use loopstore_bindings::options::provider_named;
use loopstore_bindings::queries::GivenQuery;
use loopstore_bindings::{Failure, Handle, entries, item_changes, items, messages, redaction};
use loopstore_export::{ExportForm, export};
use loopstore_report::{ReportOptions, write_report};
use napi::Env;
use napi::bindgen_prelude::{Buffer, Object, ToNapiValue, TypeName};
use napi_derive::napi;
use serde_json::json;

use crate::policy::NativePolicy;
use crate::store::NativeRecall;
use crate::work::{
    CancelFlag, GivenJson, Promised, bytes, flag, index, json, number, on_thread, promised, text,
    thrown, whole,
};

/// One agent's history.
#[napi]
pub struct NativeSession {
    handle: Arc<Handle>,
    key: u64,
    id: String,
    /// Whether a JavaScript function writes the summaries.
    asks: bool,
}

/// Where an append went.
#[napi(object, object_from_js = false)]
pub struct Appended {
    /// The loop that holds the last of the messages.
    pub loop_id: String,
    /// The turns that they belong to in that loop, those included that they joined: the first, and the one
    /// after the last.
    #[napi(ts_type = "[first: number, end: number]")]
    pub turns: Vec<u32>,
    /// Their sequences in that loop: the first, and the one after the last.
    #[napi(ts_type = "[first: number, end: number]")]
    pub seqs: Vec<u32>,
    /// The tokens of all of them.
    pub tokens: f64,
    /// The loops that they began, in order.
    pub begun: Vec<String>,
    /// Whether the session had an append of this key before, and nothing was appended now.
    pub duplicate: bool,
    /// What was completed in tool calls and results that came without an id or a name: a sentence for each.
    pub notes: Vec<String>,
}

impl From<loopstore::Appended> for Appended {
    fn from(done: loopstore::Appended) -> Self {
        let ends = |range| {
            let (first, end) = pair(range);
            vec![first, end]
        };
        Self {
            loop_id: done.loop_id.to_string(),
            turns: ends(&done.turns),
            seqs: ends(&done.seqs),
            tokens: done.tokens as f64,
            begun: done.begun.iter().map(ToString::to_string).collect(),
            duplicate: done.duplicate,
            notes: done.notes,
        }
    }
}

/// The messages of one append, and its key.
#[napi(object, object_to_js = false)]
pub struct NativePart {
    pub key: Option<String>,
    pub messages: GivenJson,
}

/// An append that has a key.
#[napi(object, object_from_js = false)]
pub struct KeyedAppend {
    /// The key.
    pub key: String,
    /// Where its messages are.
    pub appended: Appended,
}

/// A moment: a run, a turn of a loop, or a time.
#[napi(object, object_to_js = false)]
pub struct NativeMoment {
    pub run: Option<String>,
    pub loop_id: Option<String>,
    pub turn: Option<f64>,
    pub time: Option<String>,
}

/// A context, and what was done to get it, as JSON.
#[napi(object, object_from_js = false)]
pub struct NativePrepared {
    pub request: String,
    pub about: String,
}

/// The state of a call, its key, and the message that finished it as JSON.
#[napi(object, object_from_js = false)]
pub struct NativeCall {
    pub state: String,
    pub key: Option<String>,
    pub message: Option<String>,
}

/// Which keys are listed.
#[napi(object, object_to_js = false)]
pub struct NativeKeys {
    pub prefix: String,
    pub after: Option<String>,
    pub before: Option<String>,
    pub descending: bool,
    pub limit: Option<f64>,
}

/// Which turns are expanded.
#[napi(object, object_to_js = false)]
pub struct NativeExpand {
    pub first: f64,
    pub last: f64,
    pub loop_id: Option<String>,
    pub matching: Option<String>,
    pub max_tokens: Option<f64>,
    pub start: Option<String>,
}

impl NativeSession {
    pub fn of(handle: &Arc<Handle>, session: SessionHandle, asks: bool) -> Result<Self, Failure> {
        let id = session.id().to_string();
        Ok(Self {
            handle: Arc::clone(handle),
            key: handle.keep(session)?,
            id,
            asks,
        })
    }

    fn session(&self) -> Result<SessionHandle, Failure> {
        self.handle.session(self.key)
    }

    /// Runs `work` on the session. A call that fails at once fails in its promise too.
    fn call<T: ToNapiValue + TypeName + Send + 'static>(
        &self,
        cancel: Option<&CancelFlag>,
        work: impl FnOnce(SessionHandle) -> Result<T, Failure> + Send + 'static,
    ) -> Promised<T> {
        let session = self.session();
        promised(cancel, move || work(session?))
    }

    /// Returns a handle of the same session that `work` makes on a worker thread.
    fn other(
        &self,
        work: impl FnOnce(SessionHandle) -> Result<SessionHandle, Failure> + Send + 'static,
    ) -> Promised<Self> {
        let (handle, asks) = (Arc::clone(&self.handle), self.asks);
        self.call(None, move |session| Self::of(&handle, work(session)?, asks))
    }
}

impl Drop for NativeSession {
    fn drop(&mut self) {
        self.handle.forget(self.key);
    }
}

fn prepared(
    session: &SessionHandle,
    form: &str,
    for_length: bool,
    cancel: loopstore::CancelFlag,
) -> Result<NativePrepared, Failure> {
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
    Ok(NativePrepared {
        request: text(messages::write(form, &ready.context)?)?,
        about: json(&about)?,
    })
}

fn compacted(
    session: &SessionHandle,
    force: bool,
    dry_run: bool,
    policy: Option<Policy>,
    cancel: loopstore::CancelFlag,
) -> Result<String, Failure> {
    let policy = policy.as_ref().unwrap_or_else(|| session.policy());
    let request = CompactRequest {
        trigger: match force {
            true => CompactTrigger::Force,
            false => CompactTrigger::Policy,
        },
        dry_run,
        cancel,
        ..policy.request()
    };
    json(&session.compact(&request)?)
}

#[napi]
impl NativeSession {
    #[napi(getter)]
    pub fn id(&self) -> &str {
        &self.id
    }

    #[napi]
    pub fn with_policy(&self, policy: &NativePolicy) -> napi::Result<NativeSession> {
        let made = || {
            let session = self.session()?.with_policy(policy.policy.clone());
            Self::of(&self.handle, session, policy.asks)
        };
        made().map_err(thrown)
    }

    /// Returns the same handle for contexts that go to a provider.
    #[napi]
    pub fn for_provider(&self, provider: String) -> napi::Result<NativeSession> {
        let made = || {
            let session = self.session()?;
            let policy = session.policy().clone();
            let session = session.with_policy(policy.provider(provider_named(&provider)?));
            Self::of(&self.handle, session, self.asks)
        };
        made().map_err(thrown)
    }

    #[napi(ts_return_type = "Promise<string | null>")]
    pub fn leaf(&self) -> Promised<Option<String>> {
        self.call(None, |session| {
            Ok(session.leaf()?.map(|leaf| leaf.to_string()))
        })
    }

    #[napi(ts_return_type = "Promise<Appended>")]
    pub fn append(
        &self,
        form: String,
        given: GivenJson,
        key: Option<String>,
        cancel: Option<&CancelFlag>,
    ) -> Promised<Appended> {
        let given = bytes(given);
        self.call(cancel, move |session| {
            let messages = messages::read(&form, &given)?;
            let done = match key {
                Some(key) => session.append_once(&key, messages)?,
                None => session.append(messages)?,
            };
            Ok(done.into())
        })
    }

    /// Appends several times in one transaction.
    #[napi(ts_return_type = "Promise<Array<Appended>>")]
    pub fn append_batch(
        &self,
        form: String,
        parts: Vec<NativePart>,
        cancel: Option<&CancelFlag>,
    ) -> Promised<Vec<Appended>> {
        let parts: Vec<_> = parts
            .into_iter()
            .map(|part| (part.key, bytes(part.messages)))
            .collect();
        self.call(cancel, move |session| {
            let parts = parts
                .into_iter()
                .map(|(key, given)| Ok::<_, Failure>((key, messages::read(&form, &given)?)));
            let done = session.append_batch(parts.collect::<Result<Vec<_>, _>>()?)?;
            Ok(done.into_iter().map(Into::into).collect())
        })
    }

    /// Returns where the messages of a key are.
    #[napi(ts_return_type = "Promise<Appended | null>")]
    pub fn appended(&self, key: String) -> Promised<Option<Appended>> {
        self.call(None, move |session| {
            Ok(session.appended(&key)?.map(Into::into))
        })
    }

    /// Lists keys in the order of their bytes, with where their messages are.
    #[napi(ts_return_type = "Promise<Array<KeyedAppend>>")]
    pub fn append_keys(&self, given: NativeKeys) -> Promised<Vec<KeyedAppend>> {
        self.call(None, move |session| {
            let mut query = KeyQuery::prefix(given.prefix);
            if let Some(after) = given.after {
                query = query.after(after);
            }
            if let Some(before) = given.before {
                query = query.before(before);
            }
            if given.descending {
                query = query.descending();
            }
            if let Some(limit) = whole("limit", given.limit)? {
                query = query.limit(limit as usize);
            }
            let found = session.append_keys(&query)?.into_iter();
            let found = found.map(|one| KeyedAppend {
                key: one.key,
                appended: one.appended.into(),
            });
            Ok(found.collect())
        })
    }

    /// Returns stored messages with their places.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn entries(&self, query: String) -> Promised<String> {
        self.call(None, move |session| {
            let found = session.entries(&GivenEntries::of(query.as_bytes())?)?;
            json(&entries::rows(&found))
        })
    }

    #[napi(ts_return_type = "Promise<number>")]
    pub fn count_entries(&self, query: String) -> Promised<f64> {
        self.call(None, move |session| {
            Ok(session.count_entries(&GivenEntries::of(query.as_bytes())?)? as f64)
        })
    }

    #[napi(ts_return_type = "Promise<boolean>")]
    pub fn exists(&self) -> Promised<bool> {
        self.call(None, |session| Ok(session.exists()?))
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn hide(&self) -> Promised<String> {
        self.call(None, |session| Ok(session.hide()?.to_string()))
    }

    #[napi(ts_return_type = "Promise<NativeSession>")]
    pub fn unhide(&self, id: String) -> Promised<NativeSession> {
        self.other(move |session| Ok(session.unhide(id)?))
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn erase(&self, reason: Option<String>) -> Promised<String> {
        self.call(None, move |session| {
            let request = EraseRequest {
                reason,
                ..EraseRequest::new(session.id().clone())
            };
            json(&retention::erase(session.store().database(), &request)?)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn redact(&self, request: String) -> Promised<String> {
        self.call(None, move |session| {
            json(&redaction::redact(&session, request.as_bytes())?)
        })
    }

    /// Returns a context as JSON in bytes.
    #[napi(ts_return_type = "Promise<Buffer>")]
    pub fn context_bytes(
        &self,
        form: String,
        max_tokens: Option<f64>,
        max_bytes: Option<f64>,
        at: NativeMoment,
        check: bool,
        cancel: Option<&CancelFlag>,
    ) -> Promised<Buffer> {
        self.call(cancel, move |session| {
            let given = (max_tokens, max_bytes);
            Ok(build(&session, &form, given, at, check)?.into())
        })
    }

    /// Returns a context as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn context(
        &self,
        form: String,
        max_tokens: Option<f64>,
        max_bytes: Option<f64>,
        at: NativeMoment,
        check: bool,
        cancel: Option<&CancelFlag>,
    ) -> Promised<String> {
        self.call(cancel, move |session| {
            text(build(&session, &form, (max_tokens, max_bytes), at, check)?)
        })
    }

    /// Returns the context in a form, and what was done to get it.
    #[napi(ts_return_type = "Promise<NativePrepared>")]
    pub fn prepare<'env>(
        &self,
        env: &'env Env,
        form: String,
        for_length: bool,
        cancel: Option<&CancelFlag>,
    ) -> napi::Result<Object<'env>> {
        let session = self.session().map_err(thrown)?;
        on_thread(env, flag(cancel), move |cancel| {
            prepared(&session, &form, for_length, cancel)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn compact<'env>(
        &self,
        env: &'env Env,
        force: bool,
        dry_run: bool,
        policy: Option<&NativePolicy>,
        cancel: Option<&CancelFlag>,
    ) -> napi::Result<Object<'env>> {
        let policy = policy.map(|given| given.policy.clone());
        let session = self.session().map_err(thrown)?;
        on_thread(env, flag(cancel), move |cancel| {
            compacted(&session, force, dry_run, policy, cancel)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn undo(&self, run: Option<String>, reason: Option<String>) -> Promised<String> {
        self.call(None, move |session| {
            let request = flip_request(&session, run, reason)?;
            let database = session.store().database();
            json(&loopstore::undo(database, session.id(), &request)?)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn redo(&self, run: Option<String>, reason: Option<String>) -> Promised<String> {
        self.call(None, move |session| {
            let request = flip_request(&session, run, reason)?;
            let database = session.store().database();
            json(&loopstore::redo(database, session.id(), &request)?)
        })
    }

    #[napi(ts_return_type = "Promise<NativeSession>")]
    pub fn fork(&self, loop_id: String, turn: f64, seq: Option<f64>) -> Promised<NativeSession> {
        self.other(move |session| {
            LoopId::new(loop_id.as_str())?;
            let turn = index("turn", turn)?;
            let seq = seq.map(|seq| index("seq", seq)).transpose()?;
            Ok(session.fork_at(match seq {
                Some(seq) => TurnRef::within(loop_id, turn, seq),
                None => TurnRef::new(loop_id, turn),
            })?)
        })
    }

    #[napi(ts_return_type = "Promise<NativeSession>")]
    pub fn at_loop(&self, loop_id: String) -> Promised<NativeSession> {
        self.other(move |session| Ok(session.at_loop(&LoopId::new(loop_id)?)?))
    }

    /// Begins a loop; `kind` is JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn begin_loop(
        &self,
        id: Option<String>,
        fresh: bool,
        agent: Option<String>,
        kind: Option<String>,
    ) -> Promised<String> {
        self.call(None, move |session| {
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
                spec = spec.kind(serde_json::from_str::<ContinuationKind>(&kind)?);
            }
            Ok(session.begin_loop(spec)?.to_string())
        })
    }

    #[napi(ts_return_type = "Promise<void>")]
    pub fn end_loop(&self, status: String) -> Promised<()> {
        self.call(None, move |session| {
            match LoopStatus::from(status.as_str()) {
                LoopStatus::Other(_) => Err(Failure::Input(format!(
                    "unknown status `{status}`; known are Completed, Rejected, Aborted"
                ))),
                status => Ok(session.end_loop(status)?),
            }
        })
    }

    /// Returns the calls that wait for their results as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn open_calls(&self) -> Promised<String> {
        self.call(None, move |session| text(messages::open_calls(&session)?))
    }

    #[napi(ts_return_type = "Promise<NativeCall>")]
    pub fn start_call(&self, call_id: String) -> Promised<NativeCall> {
        self.call(None, move |session| {
            let (state, key, message) = match session.start_call(&call_id)? {
                CallState::New { key } => ("new", Some(key), None),
                CallState::Started { key } => ("started", Some(key), None),
                CallState::Finished(message) => ("finished", None, Some(json(&message)?)),
            };
            Ok(NativeCall {
                state: state.into(),
                key,
                message,
            })
        })
    }

    #[napi(ts_return_type = "Promise<NativeSession>")]
    pub fn child(&self, call_id: String, id: String) -> Promised<NativeSession> {
        self.other(move |session| Ok(session.child(&call_id, id)?))
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn pin(&self, loop_id: String, turn: f64, seq: Option<f64>) -> Promised<String> {
        self.call(None, move |session| {
            let seq = seq.map(|seq| index("seq", seq)).transpose()?;
            json(&session.pin(pin_ref(loop_id, index("turn", turn)?, seq))?)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn unpin(&self, loop_id: String, turn: f64, seq: Option<f64>) -> Promised<String> {
        self.call(None, move |session| {
            let seq = seq.map(|seq| index("seq", seq)).transpose()?;
            json(&session.unpin(pin_ref(loop_id, index("turn", turn)?, seq))?)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn pins(&self) -> Promised<String> {
        self.call(None, |session| json(&session.pins()?))
    }

    /// Finds messages of the session.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn search(
        &self,
        given: String,
        query: String,
        cancel: Option<&CancelFlag>,
    ) -> Promised<String> {
        self.call(cancel, move |session| {
            let mut query = GivenQuery::of(given, query.as_bytes())?;
            query.session = Some(session.id().clone());
            json(&session.store().search(query)?)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn history(&self) -> Promised<String> {
        self.call(None, |session| {
            json(&session.store().database().run_rows(Some(session.id()))?)
        })
    }

    /// Returns an answer and its text.
    #[napi(ts_return_type = "Promise<NativeRecall>")]
    pub fn recall(
        &self,
        question: String,
        tokens: f64,
        cancel: Option<&CancelFlag>,
    ) -> Promised<NativeRecall> {
        self.call(cancel, move |session| {
            let answer = session.recall(&question, number("maxTokens", tokens)?)?;
            Ok(NativeRecall {
                answer: json(&answer)?,
                text: answer.text(),
            })
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn expand(&self, given: NativeExpand) -> Promised<String> {
        self.call(None, move |session| {
            let (first, last) = (index("first", given.first)?, index("last", given.last)?);
            let mut request = ExpandRequest::turns(first, last);
            request.loop_id = match given.loop_id {
                Some(id) => Some(LoopId::new(id)?),
                None => Some(leaf(&session)?),
            };
            request.matching = given.matching;
            request.max_tokens = whole("maxTokens", given.max_tokens)?;
            let start = given.start.as_deref().map(str::parse).transpose();
            request.from = start.map_err(Failure::Input)?;
            let found = inspect::expand(session.store().database(), session.id(), &request);
            json(&found.map_err(Error::from)?)
        })
    }

    /// Returns the rows of the session, its loops and the blocks on them.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn show(&self) -> Promised<String> {
        self.call(None, |session| {
            let view = session.store().database().session_view(session.id())?;
            let loops = view.loops.iter().map(|(row, blocks)| (row, blocks));
            json(&(&view.session, loops.collect::<Vec<_>>()))
        })
    }

    /// Returns an export, or writes it to a file.
    #[napi(ts_return_type = "Promise<Buffer | null>")]
    pub fn export(
        &self,
        format: String,
        loop_id: Option<String>,
        path: Option<String>,
    ) -> Promised<Option<Buffer>> {
        self.call(None, move |session| {
            let form: ExportForm = format.parse()?;
            let leaf = loop_id.map(LoopId::new).transpose()?;
            let database = session.store().database();
            let bytes = written(path.map(PathBuf::from), |out| {
                export(database, session.id(), leaf.as_ref(), form, out)?;
                Ok(())
            })?;
            Ok(bytes.map(Into::into))
        })
    }

    /// Returns the page of the session, or writes it to a file.
    #[napi(ts_return_type = "Promise<string | null>")]
    pub fn report(&self, path: Option<String>) -> Promised<Option<String>> {
        self.call(None, move |session| {
            let options = ReportOptions {
                leaf: session.leaf()?,
                ..ReportOptions::default()
            };
            let database = session.store().database();
            let page = written(path.map(PathBuf::from), |out| {
                write_report(database, session.id(), &options, out)?;
                Ok(())
            })?;
            page.map(text).transpose()
        })
    }

    /// Appends items of the Agents SDK, which come back as they are: each with the item of the Responses API
    /// that says the same, or null.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn append_items(&self, given: GivenJson) -> Promised<()> {
        let given = bytes(given);
        self.call(None, move |session| {
            session.append(items::read_agents(&given)?)?;
            Ok(())
        })
    }

    /// Changes the end of the items once: takes what is expected from it, and appends.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn change_items(
        &self,
        key: String,
        digest: String,
        expected: Option<String>,
        given: GivenJson,
    ) -> Promised<()> {
        let given = bytes(given);
        self.call(None, move |session| {
            let expected = expected.as_deref().map(serde_json::from_str).transpose()?;
            let change = Change {
                key: &key,
                digest: &digest,
                expected,
                messages: items::read_agents(&given)?,
            };
            item_changes::apply(&session, ItemForm::Agents, &change)
        })
    }

    /// Returns the items of the context, the last `limit` of them if that is given.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn items(&self, limit: Option<f64>) -> Promised<String> {
        self.call(None, move |session| {
            let limit = whole("limit", limit)?.map(|limit| limit as usize);
            text(items::write(&session, ItemForm::Agents, limit)?)
        })
    }

    /// Takes the last item back.
    #[napi(ts_return_type = "Promise<string | null>")]
    pub fn pop_item(&self) -> Promised<Option<String>> {
        self.call(None, |session| {
            items::pop(&session, ItemForm::Agents)?
                .map(text)
                .transpose()
        })
    }

    /// Puts items over all that is there, as the provider's own compaction does; tells whether anything was.
    #[napi(ts_return_type = "Promise<boolean>")]
    pub fn seal_items(&self, given: GivenJson) -> Promised<bool> {
        let given = bytes(given);
        self.call(None, move |session| {
            let Some((_, loop_id, seq)) = items::snapshot(&session, ItemForm::Agents)? else {
                return Ok(false);
            };
            items::seal(&session, items::read_agents(&given)?, loop_id, seq)?;
            Ok(true)
        })
    }

    #[napi(ts_return_type = "Promise<void>")]
    pub fn set_title(&self, title: String) -> Promised<()> {
        self.call(None, move |session| Ok(session.set_title(title)?))
    }

    #[napi(ts_return_type = "Promise<void>")]
    pub fn set_project(&self, folder: String) -> Promised<()> {
        self.call(None, move |session| Ok(session.set_project(folder)?))
    }
}

fn build(
    session: &SessionHandle,
    form: &str,
    (max_tokens, max_bytes): (Option<f64>, Option<f64>),
    at: NativeMoment,
    check: bool,
) -> Result<Vec<u8>, Failure> {
    let place = match (at.loop_id, at.turn) {
        (Some(loop_id), Some(turn)) => Some((loop_id, index("turn", turn)?)),
        (None, None) => None,
        _ => return Err(Failure::Input("a turn is named with its loop".into())),
    };
    let context = context(
        session,
        whole("maxTokens", max_tokens)?,
        whole("maxBytes", max_bytes)?,
        (at.run, place, at.time),
        check,
    )?;
    messages::write(form, &context)
}
