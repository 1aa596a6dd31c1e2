//! The contract of a database, on a file or in memory.

use std::any::Any;

use super::SqliteStore;
use crate::model::SessionId;
use crate::store::WriteWork;
use crate::store::database::{Database, RecountWork, ScanWork};
use crate::store::error::StoreResult;
use crate::store::listing::{SessionCursor, SessionFilter, SessionView};
use crate::store::query::{QueryLimits, QueryRows, Record};
use crate::store::removal::ScrubState;
use crate::store::stats::Stats;

impl SqliteStore {
    /// Returns the store behind `database` if its backend is SQLite.
    pub fn downcast(database: &dyn Database) -> Option<&Self> {
        database.as_any()?.downcast_ref()
    }
}

impl Database for SqliteStore {
    fn place(&self) -> String {
        let path = self.path().map(|path| path.display().to_string());
        path.unwrap_or_else(|| ":memory:".into())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn query_within(&self, sql: &str, limits: QueryLimits) -> StoreResult<QueryRows> {
        self.query_within(sql, &[], limits)
    }

    fn listed_sessions(&self, filter: &SessionFilter) -> StoreResult<Vec<(SessionCursor, Record)>> {
        self.listed_sessions(filter)
    }

    fn run_rows(&self, session: Option<&SessionId>) -> StoreResult<Vec<Record>> {
        self.run_rows(session)
    }

    fn session_view(&self, session: &SessionId) -> StoreResult<SessionView> {
        self.session_view(session)
    }

    fn stats(&self) -> StoreResult<Stats> {
        self.stats()
    }

    fn scan(&self, work: ScanWork<'_>) -> StoreResult<()> {
        self.scan(|scan| work(scan))
    }

    fn removing(&self, work: WriteWork<'_>) -> StoreResult<()> {
        self.removing(|write| work(write))
    }

    fn recounting(&self, work: RecountWork<'_>) -> StoreResult<()> {
        self.recounting(|write| work(write))
    }

    fn scrub(&self) -> StoreResult<ScrubState> {
        self.scrub()
    }

    fn integrity_problems(&self) -> StoreResult<Vec<String>> {
        self.integrity_problems()
    }

    fn schema_problems(&self) -> StoreResult<Vec<String>> {
        self.schema_problems()
    }

    fn index_problems(&self) -> StoreResult<Vec<String>> {
        self.index_problems()
    }
}
