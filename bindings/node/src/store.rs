//! A store, and the calls on all its sessions.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loopstore::extend::sqlite::QueryLimits;
use loopstore::search::search_sessions;
use loopstore::{Error, Policy, SessionId, SqliteStore};
use loopstore_bindings::options::OpenOptions;
use loopstore_bindings::queries::{GivenFilter, GivenQuery};
use loopstore_bindings::redaction::GivenRedaction;
use loopstore_bindings::{CallError, Handle};
use loopstore_transcripts::{ImportOptions, Source, import_paths, import_source, importers};
use napi::Env;
use napi::bindgen_prelude::Object;
use napi_derive::napi;

use crate::policy::NativePolicy;
use crate::session::JsSession;
use crate::work::{
    GivenJson, JsCancelFlag, Promised, bytes, json, number, promised, spawn_job, spawn_read,
    thrown, whole,
};

/// A database of sessions.
#[napi]
pub struct NativeStore {
    handle: Arc<Handle>,
    policy: Policy,
}

/// The options of a store.
#[napi(object, object_to_js = false)]
pub struct NativeOpenOptions {
    pub counter: Option<String>,
    pub durability: Option<String>,
    pub key: Option<GivenJson>,
    pub read_only: Option<bool>,
}

impl NativeOpenOptions {
    fn read(self) -> OpenOptions {
        OpenOptions {
            counter: self.counter,
            durability: self.durability,
            key: self.key.map(bytes),
            read_only: self.read_only.unwrap_or_default(),
        }
    }
}

/// The options of an import.
#[napi(object, object_to_js = false)]
pub struct NativeImport {
    pub paths: Vec<String>,
    pub format: Option<String>,
    pub session: Option<String>,
    pub redact: bool,
    /// The redaction policy, as JSON.
    pub redaction: String,
    pub keep_source: bool,
}

/// An answer as JSON, and as text.
#[napi(object, object_from_js = false)]
pub struct NativeRecall {
    pub answer: String,
    pub text: String,
}

impl NativeStore {
    /// Returns the shared state of the store's classes.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Runs `work` on the store and returns its JSON.
    fn json(
        &self,
        work: impl FnOnce(&loopstore::Store) -> Result<String, CallError> + Send + 'static,
    ) -> Promised<String> {
        let handle = Arc::clone(&self.handle);
        promised(None, move || work(&handle.store()?))
    }

    /// Runs `work`, which only reads and takes long, on the store and returns its JSON.
    fn read<'env>(
        &self,
        env: &'env Env,
        cancel: Option<&JsCancelFlag>,
        work: impl FnOnce(&loopstore::Store) -> Result<String, CallError> + Send + 'static,
    ) -> napi::Result<Object<'env>> {
        let handle = Arc::clone(&self.handle);
        spawn_read(env, cancel, move || work(&handle.store()?))
    }
}

fn opening(
    policy: &NativePolicy,
    open: impl FnOnce() -> Result<loopstore::Store, CallError> + Send + 'static,
) -> Promised<NativeStore> {
    let NativePolicy { policy } = policy.clone();
    promised(None, move || {
        Ok(NativeStore {
            handle: Arc::new(Handle::new(open()?)),
            policy,
        })
    })
}

#[cfg(feature = "postgres")]
fn connected(url: &str, options: OpenOptions) -> Result<loopstore::Store, CallError> {
    Ok(loopstore_postgres::PostgresStore::open_with(url, options.postgres()?)?.into())
}

#[cfg(not(feature = "postgres"))]
fn connected(_url: &str, _options: OpenOptions) -> Result<loopstore::Store, CallError> {
    Err(CallError::Feature("postgres"))
}

#[napi]
impl NativeStore {
    #[napi(ts_return_type = "Promise<NativeStore>")]
    pub fn open(
        path: String,
        policy: &NativePolicy,
        options: NativeOpenOptions,
    ) -> Promised<NativeStore> {
        let options = options.read();
        opening(policy, move || {
            Ok(SqliteStore::open_with(&path, options.sqlite()?)?.into())
        })
    }

    #[napi(ts_return_type = "Promise<NativeStore>")]
    pub fn in_memory(policy: &NativePolicy, options: NativeOpenOptions) -> Promised<NativeStore> {
        let options = options.read();
        opening(policy, move || {
            Ok(SqliteStore::in_memory_with(options.sqlite()?)?.into())
        })
    }

    #[napi(ts_return_type = "Promise<NativeStore>")]
    pub fn connect(
        url: String,
        policy: &NativePolicy,
        options: NativeOpenOptions,
    ) -> Promised<NativeStore> {
        let options = options.read();
        opening(policy, move || connected(&url, options))
    }

    /// Returns the location of the database, without user and password.
    #[napi]
    pub fn place(&self) -> napi::Result<String> {
        let store = self.handle.store().map_err(thrown)?;
        Ok(store.database().place())
    }

    /// Closes the store once the running calls have ended.
    #[napi]
    pub fn close(&self) -> napi::Result<()> {
        self.handle.close().map_err(thrown)
    }

    #[napi]
    pub fn is_closed(&self) -> napi::Result<bool> {
        self.handle.is_closed().map_err(thrown)
    }

    /// Returns a session's handle.
    #[napi]
    pub fn session(&self, id: String, policy: Option<&NativePolicy>) -> napi::Result<JsSession> {
        let policy = policy.map_or_else(|| self.policy.clone(), |given| given.policy.clone());
        let made = || {
            let session = self.handle.store()?.session(&id)?.with_policy(policy);
            JsSession::of(&self.handle, session)
        };
        made().map_err(thrown)
    }

    /// Finds messages, or sessions.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn search<'env>(
        &self,
        env: &'env Env,
        text: String,
        query: String,
        by_session: bool,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        self.read(env, cancel, move |store| {
            let query = GivenQuery::of(text, query.as_bytes())?;
            match by_session {
                true => {
                    let found = search_sessions(store.database(), &query).map_err(Error::from)?;
                    json(&found)
                }
                false => json(&store.search(query)?),
            }
        })
    }

    /// Returns an answer and its text.
    #[napi(ts_return_type = "Promise<NativeRecall>")]
    pub fn recall<'env>(
        &self,
        env: &'env Env,
        question: String,
        query: String,
        tokens: f64,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        let handle = Arc::clone(&self.handle);
        spawn_read(env, cancel, move || {
            let query = GivenQuery::of(question, query.as_bytes())?;
            let tokens = number("maxTokens", tokens)?;
            let answer = handle.store()?.recall(query, tokens)?;
            Ok(NativeRecall {
                answer: json(&answer)?,
                text: answer.text(),
            })
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn sessions(&self, filter: String) -> Promised<String> {
        self.json(move |store| json(&GivenFilter::rows(filter.as_bytes(), store)?))
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn history(&self, session: Option<String>) -> Promised<String> {
        self.json(move |store| {
            let session = session.map(SessionId::new).transpose()?;
            json(&store.database().run_rows(session.as_ref())?)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn sql<'env>(
        &self,
        env: &'env Env,
        query: String,
        max_rows: Option<f64>,
        timeout: Option<f64>,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        self.read(env, cancel, move |store| {
            let time = timeout.map(Duration::try_from_secs_f64).transpose();
            let limits = QueryLimits {
                rows: whole("maxRows", max_rows)?.map(|rows| rows as usize),
                time: time.map_err(|error| CallError::Input(format!("timeout: {error}")))?,
            };
            json(&store.database().query_within(&query, limits)?.records())
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn import_paths<'env>(
        &self,
        env: &'env Env,
        given: NativeImport,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        let handle = Arc::clone(&self.handle);
        spawn_job(env, cancel, move || {
            let store = handle.store()?;
            let options = ImportOptions {
                format: given.format,
                session: given.session.map(SessionId::new).transpose()?,
                without_source: !given.keep_source,
                redact: given.redact,
                redaction: GivenRedaction::of(given.redaction.as_bytes())?,
                ..ImportOptions::default()
            };
            let paths: Vec<PathBuf> = given.paths.into_iter().map(PathBuf::from).collect();
            let report = import_paths(store.database(), &paths, &options, &mut |_| {})?;
            json(&report)
        })
    }

    /// Imports a transcript from memory; its name may matter to the format.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn import_bytes(
        &self,
        name: String,
        transcript: GivenJson,
        format: String,
    ) -> Promised<String> {
        let transcript = bytes(transcript);
        self.json(move |store| {
            let importer = importers().iter().find(|one| one.format() == format);
            let importer = importer.ok_or_else(|| {
                let known: Vec<_> = importers().iter().map(|one| one.format()).collect();
                let known = known.join(", ");
                CallError::Input(format!("unknown format `{format}`; known are {known}"))
            })?;
            let name = PathBuf::from(name);
            let mut reader = Cursor::new(transcript);
            let mut source = Source {
                path: &name,
                reader: &mut reader,
            };
            let report = import_source(store.database(), *importer, &mut source, None)?;
            json(&report)
        })
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn stats(&self) -> Promised<String> {
        self.json(|store| json(&store.database().stats()?))
    }

    #[napi(ts_return_type = "Promise<string>")]
    pub fn verify<'env>(
        &self,
        env: &'env Env,
        cancel: Option<&JsCancelFlag>,
    ) -> napi::Result<Object<'env>> {
        self.read(env, cancel, |store| {
            json(&loopstore_verify::verify(store.database())?)
        })
    }
}
