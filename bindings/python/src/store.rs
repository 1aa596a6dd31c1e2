//! A store, and the calls on all its sessions.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loopstore::extend::sqlite::QueryLimits;
use loopstore::search::search_sessions;
use loopstore::{Error, Policy, SessionId, SqliteStore};
use loopstore_bindings::queries::{GivenFilter, GivenQuery};
use loopstore_bindings::redaction::GivenRedaction;
use loopstore_redact::RedactionPolicy;
use loopstore_transcripts::{ImportOptions, Source, import_paths, import_source, importers};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::CallError;
use crate::guard::{Handle, call};
use crate::options::{GivenPolicy, OpenOptions, policy};
use crate::session::PySession;

/// A database of sessions.
#[pyclass(frozen, name = "Store", module = "loopstore._loopstore")]
pub struct PyStore {
    handle: Arc<Handle>,
    policy: Policy,
}

impl PyStore {
    /// Returns the shared state of the store's classes.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    fn opened(store: loopstore::Store, policy: Policy) -> Self {
        Self {
            handle: Arc::new(Handle::new(store)),
            policy,
        }
    }

    /// Runs `work` on the store and returns its JSON.
    fn json<'py>(
        &self,
        py: Python<'py>,
        work: impl FnOnce(&loopstore::Store) -> Result<Vec<u8>, CallError> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let json = call(py, || work(&self.handle.store()?))?;
        Ok(PyBytes::new(py, &json))
    }
}

#[pymethods]
impl PyStore {
    #[staticmethod]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        given: GivenPolicy<'_>,
        counter: Option<String>,
        durability: Option<String>,
        key: Option<Vec<u8>>,
        read_only: bool,
    ) -> PyResult<Self> {
        let options = OpenOptions {
            counter,
            durability,
            key,
            read_only,
        };
        call(py, || {
            let policy = policy(given)?;
            let store = SqliteStore::open_with(&path, options.sqlite()?)?;
            Ok(Self::opened(store.into(), policy))
        })
    }

    #[staticmethod]
    fn in_memory(
        py: Python<'_>,
        given: GivenPolicy<'_>,
        counter: Option<String>,
    ) -> PyResult<Self> {
        let options = OpenOptions {
            counter,
            durability: None,
            key: None,
            read_only: false,
        };
        call(py, || {
            let policy = policy(given)?;
            let store = SqliteStore::in_memory_with(options.sqlite()?)?;
            Ok(Self::opened(store.into(), policy))
        })
    }

    #[staticmethod]
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables))]
    fn connect(
        py: Python<'_>,
        url: String,
        given: GivenPolicy<'_>,
        counter: Option<String>,
        read_only: bool,
    ) -> PyResult<Self> {
        #[cfg(not(feature = "postgres"))]
        return call(py, || Err(CallError::Feature("postgres")));
        #[cfg(feature = "postgres")]
        {
            let options = OpenOptions {
                counter,
                durability: None,
                key: None,
                read_only,
            };
            call(py, || {
                let policy = policy(given)?;
                let store =
                    loopstore_postgres::PostgresStore::open_with(&url, options.postgres()?)?;
                Ok(Self::opened(store.into(), policy))
            })
        }
    }

    /// Returns the location of the database, without user and password.
    fn place(&self, py: Python<'_>) -> PyResult<String> {
        call(py, || Ok(self.handle.store()?.database().place()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.handle.close())
    }

    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        call(py, || self.handle.is_closed())
    }

    fn session(
        &self,
        py: Python<'_>,
        id: &str,
        given: Option<GivenPolicy<'_>>,
    ) -> PyResult<PySession> {
        call(py, || {
            let policy = match given {
                Some(given) => policy(given)?,
                None => self.policy.clone(),
            };
            let session = self.handle.store()?.session(id)?.with_policy(policy);
            PySession::of(&self.handle, session)
        })
    }

    /// Finds messages, or sessions.
    fn search<'py>(
        &self,
        py: Python<'py>,
        text: String,
        query: &[u8],
        by_session: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            let query = GivenQuery::of(text, query)?;
            Ok(match by_session {
                true => {
                    let found = search_sessions(store.database(), &query).map_err(Error::from)?;
                    serde_json::to_vec(&found)?
                }
                false => serde_json::to_vec(&store.search(query)?)?,
            })
        })
    }

    /// Returns an answer and its text.
    fn recall<'py>(
        &self,
        py: Python<'py>,
        question: String,
        query: &[u8],
        tokens: u64,
    ) -> PyResult<(Bound<'py, PyBytes>, String)> {
        let (json, text) = call(py, || {
            let query = GivenQuery::of(question, query)?;
            let answer = self.handle.store()?.recall(query, tokens)?;
            Ok((serde_json::to_vec(&answer)?, answer.text()))
        })?;
        Ok((PyBytes::new(py, &json), text))
    }

    fn sessions<'py>(&self, py: Python<'py>, filter: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            Ok(serde_json::to_vec(&GivenFilter::rows(filter, store)?)?)
        })
    }

    fn history<'py>(
        &self,
        py: Python<'py>,
        session: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            let session = session.map(SessionId::new).transpose()?;
            Ok(serde_json::to_vec(
                &store.database().run_rows(session.as_ref())?,
            )?)
        })
    }

    fn sql<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        max_rows: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            let time = timeout.map(Duration::try_from_secs_f64).transpose();
            let time = time.map_err(|error| CallError::Input(format!("timeout: {error}")))?;
            let limits = QueryLimits {
                rows: max_rows,
                time,
            };
            let rows = store.database().query_within(query, limits)?;
            Ok(serde_json::to_vec(&rows.records())?)
        })
    }

    fn import_paths<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<PathBuf>,
        format: Option<String>,
        session: Option<&str>,
        redaction: Option<&[u8]>,
        keep_source: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            let options = ImportOptions {
                format,
                session: session.map(SessionId::new).transpose()?,
                without_source: !keep_source,
                redact: redaction.is_some(),
                redaction: match redaction {
                    Some(given) => GivenRedaction::of(given)?,
                    None => RedactionPolicy::default(),
                },
                ..ImportOptions::default()
            };
            let report = import_paths(store.database(), &paths, &options, &mut |_| {})?;
            Ok(serde_json::to_vec(&report)?)
        })
    }

    /// Imports a transcript from memory; its name may matter to the format.
    fn import_bytes<'py>(
        &self,
        py: Python<'py>,
        name: PathBuf,
        transcript: &[u8],
        format: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            let importer = importers().iter().find(|one| one.format() == format);
            let importer = importer.ok_or_else(|| {
                let known: Vec<_> = importers().iter().map(|one| one.format()).collect();
                let known = known.join(", ");
                CallError::Input(format!("unknown format `{format}`; known are {known}"))
            })?;
            let mut reader = Cursor::new(transcript);
            let mut source = Source {
                path: &name,
                reader: &mut reader,
            };
            let report = import_source(store.database(), *importer, &mut source, None)?;
            Ok(serde_json::to_vec(&report)?)
        })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            Ok(serde_json::to_vec(&store.database().stats()?)?)
        })
    }

    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.json(py, |store| {
            let report = loopstore_verify::verify(store.database())?;
            Ok(serde_json::to_vec(&report)?)
        })
    }
}
