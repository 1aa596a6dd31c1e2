//! Copies the readable rows of a damaged database into a new, consistent database.
//!
//! The rows are copied unchanged, under the same keys, so digests, ticks and names stay. Then the new database is
//! checked as by `verify`, and inconsistent rows are removed from it: a loop ends before its first missing or damaged
//! message, a run is removed with all its blocks if one of them is incomplete, and a loop without its parent becomes
//! a root. Rows that follow from the messages (turns, totals) are derived again. Archived messages become plain rows.
//! Nothing is written to the source.

mod mending;

use std::path::Path;

use loopstore::extend::{
    Key, OpenError,
    sqlite::{Durability, SqliteOptions, SqliteStore},
};
use loopstore::internal::{LostRows, counter_of, place_of};
use loopstore::{HeuristicTokenCounter, TokenCounter, counter_named};
use loopstore_verify::Checked;
use serde::Serialize;

use crate::backup::{BackupError, checked_copy};

/// A row or range of rows that could not be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UncopiedRows {
    /// The kind of the row: `message`, `loop`, `run`; for rows of other tables the name of the table.
    pub kind: String,
    /// The place of the row: `session S, loop L, messages 3 to 9`.
    #[serde(rename = "where")]
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// The report of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SalvageReport {
    /// True if nothing was lost.
    pub ok: bool,
    /// The number of rows in the new database, by kind.
    pub kept: Checked,
    /// The lost rows. Rows that vanished without a trace cannot be listed.
    pub lost: Vec<UncopiedRows>,
    /// The size of the new database in bytes.
    pub bytes: u64,
}

/// Writes the readable rows of the database at `database` to a new database at `to`, which passes
/// [`verify`](loopstore_verify::verify). With `force`, an existing file is replaced. `key` is the key of an encrypted
/// database; the new database has the same key.
///
/// # Errors
/// If not even the names of the tables can be read, or `to` cannot be written. `to` is unchanged then.
///
/// # Examples
/// ```
/// use loopstore_admin::salvage::salvage;
/// use loopstore::Store;
///
/// let folder = tempfile::tempdir()?;
/// let (damaged, whole) = (folder.path().join("agent.db"), folder.path().join("whole.db"));
/// # drop(Store::open(&damaged)?);
/// let report = salvage(&damaged, None, &whole, false)?;
/// for lost in &report.lost {
///     println!("{}: {}", lost.place, lost.reason);
/// }
/// assert!(loopstore_verify::verify(Store::open(&whole)?.database())?.ok);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn salvage(
    database: &Path,
    key: Option<&Key>,
    to: &Path,
    force: bool,
) -> Result<SalvageReport, BackupError> {
    let database = &*place_of(database)?;
    let counter = match counter_of(database, key)? {
        None => std::sync::Arc::new(HeuristicTokenCounter),
        Some(name) => counter_named(&name).ok_or_else(|| OpenError::Counter {
            given: HeuristicTokenCounter.name().to_owned(),
            stored: name,
        })?,
    };
    let mut lost = Vec::new();
    let (bytes, kept) = checked_copy(Some(database), key, to, force, &mut |path| {
        let options = SqliteOptions::new()
            .counter(counter.clone())
            // The whole file is synced before it is renamed.
            .durability(Durability::Normal)
            .allow_network(true)
            .maybe_key(key);
        let store = SqliteStore::open_with(path, options)
            .map_err(|error| loopstore::extend::StoreError::Other(Box::new(error)))?;
        let mut mended = Vec::new();
        let unread = store.take_over(database, &mut |mender| {
            mended = mending::mend(mender, &*counter)?;
            Ok(())
        })?;
        lost = unread.iter().map(UncopiedRows::of).chain(mended).collect();
        Ok(())
    })?;
    Ok(SalvageReport {
        ok: lost.is_empty(),
        kept,
        lost,
        bytes,
    })
}

impl UncopiedRows {
    /// Describes rows by their keys; the keys of messages and turns contain their loop.
    fn of(rows: &LostRows) -> Self {
        let kind = match rows.table.as_str() {
            "messages" => "message",
            "turns" => "turn",
            "loops" => "loop",
            "sessions" => "session",
            "runs" => "run",
            "flips" => "flip",
            "pins" => "pin",
            "hides" => "hide",
            "blocks" => "block",
            "manifests" => "manifest",
            "notes" => "note",
            "blobs" => "blob",
            "started_calls" => "call",
            "packs" => "pack",
            other => other,
        };
        let packed = |key: i64| format!("loop with key {}, {kind} {}", key >> 32, key as u32);
        let one = |key: i64| match kind {
            "message" | "turn" | "note" | "pack" => packed(key),
            _ => format!("{kind} with key {key}"),
        };
        let place = match rows.keys {
            None => format!("table {}", rows.table),
            Some((first, last)) if first == last => one(first),
            Some((i64::MIN, i64::MAX)) => format!("table {}, any row", rows.table),
            Some((i64::MIN, last)) => format!("anything up to {}", one(last)),
            Some((first, i64::MAX)) => format!("anything from {} on", one(first)),
            Some((first, last)) => format!("anything from {} to {}", one(first), one(last)),
        };
        Self {
            kind: kind.to_owned(),
            place,
            reason: rows.reason.clone(),
        }
    }
}
