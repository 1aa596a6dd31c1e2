//! A copy of the whole database while other connections write.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::encryption::unlock;
use super::schema::{PAGE_BYTES, connect, open_locked};
use super::{SqliteStore, from_open, from_sqlite};
use crate::store::error::{StoreError, StoreResult};

/// Pages copied between two reports of progress.
const PAGES_PER_STEP: i32 = 1024;

impl SqliteStore {
    /// Copies one snapshot of the database into the empty file `to`. `progress` is called with the number of pages
    /// copied and the total.
    ///
    /// Writers do not wait; transactions that commit meanwhile are not in the copy.
    ///
    /// # Errors
    /// If the database cannot be read, or the file cannot be written; the file then contains an incomplete copy.
    pub fn copy_to(&self, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> StoreResult<()> {
        self.snapshot(|connection| {
            // The snapshot begins with the first read. While it is held, the copy never has to
            // begin anew, however often others write.
            connection
                .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
                .map_err(from_sqlite)?;
            let mut copy = open_locked(to, OpenFlags::default()).map_err(from_sqlite)?;
            unlock(&copy, self.options.key.as_ref()).map_err(from_open)?;
            copy_pages(connection, &mut copy, progress)?;
            copy.close().map_err(|(_, error)| from_sqlite(error))
        })
    }

    /// Writes the rows of one snapshot of the database into the empty file `to`: a copy without free pages. Writers
    /// do not wait.
    ///
    /// # Errors
    /// As [`SqliteStore::copy_to`].
    pub fn vacuum_into(&self, to: &Path) -> StoreResult<()> {
        if self.options.key.is_some() {
            return self.copy_and_vacuum(to);
        }
        let to = to.to_str().ok_or_else(|| {
            StoreError::Invalid(format!(
                "{} is not UTF-8, which this copy takes",
                to.display()
            ))
        })?;
        self.with_reader(|connection| {
            // The statement writes to another file, which a connection that only reads would refuse.
            let may_write = |may: bool| connection.pragma_update(None, "query_only", !may);
            let was: bool = connection
                .pragma_query_value(None, "query_only", |row| row.get(0))
                .map_err(from_sqlite)?;
            may_write(true).map_err(from_sqlite)?;
            // The file may have been made with larger pages.
            let copied = connection
                .pragma_update(None, "page_size", PAGE_BYTES)
                .and_then(|()| connection.execute("VACUUM INTO ?1", [to]));
            may_write(!was).map_err(from_sqlite)?;
            copied.map(|_| ()).map_err(from_sqlite)
        })
    }

    /// Copies all pages and then rewrites the copy: of an encrypted database `VACUUM INTO` takes over
    /// the key, but not the size of the pages.
    fn copy_and_vacuum(&self, to: &Path) -> StoreResult<()> {
        self.copy_to(to, &mut |_, _| ())?;
        let options = self.options.clone().read_only(false);
        let copy = connect(to, &options).map_err(from_open)?;
        copy.execute_batch("PRAGMA temp_store = memory; VACUUM")
            .map_err(from_sqlite)?;
        copy.close().map_err(|(_, error)| from_sqlite(error))
    }
}

fn copy_pages(
    from: &Connection,
    to: &mut Connection,
    progress: &mut dyn FnMut(u64, u64),
) -> StoreResult<()> {
    let backup = Backup::new(from, to).map_err(from_sqlite)?;
    loop {
        let step = backup.step(PAGES_PER_STEP).map_err(from_sqlite)?;
        let seen = backup.progress();
        let pages = |count: i32| u64::try_from(count).unwrap_or(0);
        let all = pages(seen.pagecount);
        progress(all.saturating_sub(pages(seen.remaining)), all);
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => return Err(StoreError::Busy),
        }
    }
}
