//! A session's handle.

mod forms;

use std::path::PathBuf;
use std::sync::Arc;

use loopstore::{LoopId, SessionHandle};
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_bindings::calls::{context, flip_request, pin_ref, record_context};
use loopstore_bindings::entries::GivenEntries;
use loopstore_bindings::options::provider_named;
use loopstore_bindings::prepare::{compact, prepare};
use loopstore_bindings::queries::GivenQuery;
use loopstore_bindings::views::{self, ExpandOptions};
use loopstore_bindings::{
    CallError, Handle, append_keys, edits, entries, loops, messages, redaction,
};
use napi::Env;
use napi::bindgen_prelude::{Buffer, Object, ToNapiValue, TypeName};
use napi_derive::napi;

use crate::policy::NativePolicy;
use crate::store::NativeRecall;
use crate::work::{
    GivenJson, JsCancelFlag, Promised, bytes, flag, index, json, number, on_thread, promised,
    spawn_read, text, thrown, whole,
};
use forms::{
    JsAppended, JsKeyedAppend, NativeAsOf, NativeCall, NativeExpand, NativeKeys, NativePart,
    NativePrepared,
};

/// One agent's history.
#[napi(js_name = "NativeSession")]
pub struct JsSession {
    handle: Arc<Handle>,
    key: u64,
    id: String,
}

impl JsSession {
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

    /// Runs `work` on the session. A call that fails at once fails in its promise too.
    fn call<T: ToNapiValue + TypeName + Send + 'static>(
        &self,
        cancel: Option<&JsCancelFlag>,
        work: impl FnOnce(SessionHandle) -> Result<T, CallError> + Send + 'static,
    ) -> Promised<T> {
        let session = self.session();
        promised(cancel, move || work(session?))
    }

    /// Runs `work`, which only reads and takes long, on the session.
    fn read<'env, T: ToNapiValue + Send + 'static>(
        &self,
        env: &'env Env,
        cancel: Option<&JsCancelFlag>,
        work: impl FnOnce(SessionHandle) -> Result<T, CallError> + Send + 'static,
    ) -> napi::Result<Object<'env>> {
        let session = self.session();
        spawn_read(env, cancel, move || work(session?))
    }

    /// Returns a handle of the same session that `work` makes on a worker thread.
    fn other(
        &self,
        work: impl FnOnce(SessionHandle) -> Result<SessionHandle, CallError> + Send + 'static,
    ) -> Promised<Self> {
        let handle = Arc::clone(&self.handle);
        self.call(None, move |session| Self::of(&handle, work(session)?))
    }
}

impl Drop for JsSession {
    fn drop(&mut self) {
        self.handle.forget(self.key);
    }
}

#[napi]
impl JsSession {
    #[napi(getter)]
    pub fn id(&self) -> &str {
        &self.id
    }

    #[napi]
    pub fn with_policy(&self, policy: &NativePolicy) -> napi::Result<JsSession> {
        let made = || {
            let session = self.session()?.with_policy(policy.policy.clone());
            Self::of(&self.handle, session)
        };
        made().map_err(thrown)
    }

    /// Returns a handle of the session for contexts that go to a provider.
    #[napi]
    pub fn for_provider(&self, provider: String) -> napi::Result<JsSession> {
        let made = || {
            let session = self.session()?;
            let policy = session.policy().clone();
            let session = session.with_policy(policy.provider(provider_named(&provider)?));
            Self::of(&self.handle, session)
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
        cancel: Option<&JsCancelFlag>,
    ) -> Promised<JsAppended> {
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
        cancel: Option<&JsCancelFlag>,
    ) -> Promised<Vec<JsAppended>> {
        let parts: Vec<_> = parts
            .into_iter()
            .map(|part| (part.key, bytes(part.messages)))
            .collect();
        self.call(cancel, move |session| {
            let parts = parts
                .into_iter()
                .map(|(key, given)| Ok::<_, CallError>((key, messages::read(&form, &given)?)));
            let done = session.append_batch(parts.collect::<Result<Vec<_>, _>>()?)?;
            Ok(done.into_iter().map(Into::into).collect())
        })
    }

    /// Returns the result of the append under a key.
    #[napi(ts_return_type = "Promise<Appended | null>")]
    pub fn appended(&self, key: String) -> Promised<Option<JsAppended>> {
        self.call(None, move |session| {
            Ok(session.appended(&key)?.map(Into::into))
        })
    }

    /// Lists appends with keys, in the order of the bytes of the keys.
    #[napi(ts_return_type = "Promise<Array<KeyedAppend>>")]
    pub fn append_keys(&self, given: NativeKeys) -> Promised<Vec<JsKeyedAppend>> {
        self.call(None, move |session| {
            let limit = whole("limit", given.limit)?.map(|limit| limit as usize);
            let query = append_keys::query(
                given.prefix,
                given.after,
                given.before,
                given.descending,
                limit,
            );
            let found = session.append_keys(&query)?.into_iter();
            let found = found.map(|one| JsKeyedAppend {
                key: one.key,
                appended: one.appended.into(),
            });
            Ok(found.collect())
        })
    }

    /// Returns stored messages with their positions.
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
    pub fn unhide(&self, id: String) -> Promised<JsSession> {
        self.other(move |session| Ok(session.unhide(id)?))
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn erase(&self, reason: Option<String>) -> Promised<String> {
        self.call(None, move |session| {
            let request = EraseRequest {
                reason,
                ..EraseRequest::new(session.id().clone())
            };
            json(&erase(session.store().database(), &request)?)
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
        at: NativeAsOf,
        check: bool,
        cancel: Option<&JsCancelFlag>,
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
        at: NativeAsOf,
        check: bool,
        cancel: Option<&JsCancelFlag>,
    ) -> Promised<String> {
        self.call(cancel, move |session| {
            text(build(&session, &form, (max_tokens, max_bytes), at, check)?)
        })
    }

    /// Records the context of the next model call, and returns its manifest as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn record_context(&self) -> Promised<String> {
        self.call(None, move |session| text(record_context(&session)?))
    }

    /// Returns the context in a form, and its description.
    #[napi(ts_return_type = "Promise<NativePrepared>")]
    pub fn prepare<'env>(
        &self,
        env: &'env Env,
        form: String,
        for_length: bool,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        let session = self.session().map_err(thrown)?;
        on_thread(env, flag(cancel), move |cancel| {
            let (request, about) = prepare(&session, &form, for_length, cancel)?;
            Ok(NativePrepared {
                request: text(request)?,
                about: text(about)?,
            })
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn compact<'env>(
        &self,
        env: &'env Env,
        force: bool,
        dry_run: bool,
        policy: Option<&NativePolicy>,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        let policy = policy.map(|given| given.policy.clone());
        let session = self.session().map_err(thrown)?;
        on_thread(env, flag(cancel), move |cancel| {
            text(compact(&session, force, dry_run, policy, cancel)?)
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

    /// Edits messages; the request is JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn edit(&self, action: String, request: String) -> Promised<String> {
        self.call(None, move |session| {
            text(edits::edit(&session, &action, request.as_bytes())?)
        })
    }

    /// Restores edited messages; the targets are JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn restore(&self, targets: String) -> Promised<String> {
        self.call(None, move |session| {
            text(edits::restore(&session, targets.as_bytes())?)
        })
    }

    #[napi(ts_return_type = "Promise<NativeSession>")]
    pub fn fork(&self, loop_id: String, turn: f64, seq: Option<f64>) -> Promised<JsSession> {
        self.other(move |session| {
            let turn = index("turn", turn)?;
            let seq = seq.map(|seq| index("seq", seq)).transpose()?;
            loops::fork(&session, loop_id, turn, seq)
        })
    }

    #[napi(ts_return_type = "Promise<NativeSession>")]
    pub fn at_loop(&self, loop_id: String) -> Promised<JsSession> {
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
            loops::begin_loop(
                &session,
                id,
                fresh,
                agent,
                kind.as_deref().map(str::as_bytes),
            )
        })
    }

    #[napi(ts_return_type = "Promise<void>")]
    pub fn end_loop(&self, status: String) -> Promised<()> {
        self.call(None, move |session| loops::end_loop(&session, &status))
    }

    /// Returns the open calls as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn open_calls(&self) -> Promised<String> {
        self.call(None, move |session| text(messages::open_calls(&session)?))
    }

    #[napi(ts_return_type = "Promise<NativeCall>")]
    pub fn start_call(&self, call_id: String) -> Promised<NativeCall> {
        self.call(None, move |session| {
            let (state, key, message) = loops::start_call(&session, &call_id)?;
            Ok(NativeCall {
                state: state.into(),
                key,
                message: message.map(text).transpose()?,
            })
        })
    }

    #[napi(ts_return_type = "Promise<NativeSession>")]
    pub fn child(&self, call_id: String, id: String) -> Promised<JsSession> {
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
    pub fn search<'env>(
        &self,
        env: &'env Env,
        given: String,
        query: String,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        self.read(env, cancel, move |session| {
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
    pub fn recall<'env>(
        &self,
        env: &'env Env,
        question: String,
        tokens: f64,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        self.read(env, cancel, move |session| {
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
            let turns = (index("first", given.first)?, index("last", given.last)?);
            let options = ExpandOptions {
                turns,
                loop_id: given.loop_id,
                matching: given.matching,
                max_tokens: whole("maxTokens", given.max_tokens)?,
                start: given.start,
            };
            text(views::expand(&session, options)?)
        })
    }

    /// Returns the rows of the session, its loops and the blocks on them.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn show(&self) -> Promised<String> {
        self.call(None, |session| text(views::show(&session)?))
    }

    /// Returns an export, or writes it to a file.
    #[napi(ts_return_type = "Promise<Buffer | null>")]
    pub fn export<'env>(
        &self,
        env: &'env Env,
        format: String,
        loop_id: Option<String>,
        path: Option<String>,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        self.read(env, cancel, move |session| {
            let bytes = views::export(&session, &format, loop_id, path.map(PathBuf::from))?;
            Ok(bytes.map(Buffer::from))
        })
    }

    /// Returns the report of the session, or writes it to a file.
    #[napi(ts_return_type = "Promise<string | null>")]
    pub fn report<'env>(
        &self,
        env: &'env Env,
        path: Option<String>,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        self.read(env, cancel, move |session| {
            let page = views::report(&session, path.map(PathBuf::from))?;
            page.map(text).transpose()
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
    at: NativeAsOf,
    check: bool,
) -> Result<Vec<u8>, CallError> {
    let place = match (at.loop_id, at.turn) {
        (Some(loop_id), Some(turn)) => Some((loop_id, index("turn", turn)?)),
        (None, None) => None,
        _ => return Err(CallError::Input("a turn is named with its loop".into())),
    };
    let context = context(
        session,
        whole("maxTokens", max_tokens)?,
        whole("maxBytes", max_bytes)?,
        (at.run, place, at.time, at.manifest),
        check,
    )?;
    messages::write(form, &context)
}

// After the class: its macro must be expanded before further methods of it.
mod items;
