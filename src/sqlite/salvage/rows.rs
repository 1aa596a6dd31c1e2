//! Copies a table of which some pages cannot be read.
//!
//! A scan ends at the first damaged page. The rows behind it are found again by their keys: each
//! search goes its own way through the tree, so that a page costs only what is on it.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::LostRows;
use crate::sqlite::from_sqlite;
use crate::store::error::{StoreError, StoreResult};

/// The statements of one table.
struct TableStatements<'a> {
    from: &'a Connection,
    to: &'a Connection,
    name: &'a str,
    columns: Vec<String>,
    /// The primary key of a table without rowids.
    key: Vec<String>,
    has_rowid: bool,
}

/// The reason a scan ended.
enum ScanEnd {
    /// There are no more rows.
    Done,
    /// The next row cannot be had.
    Damaged(String),
}

/// Copies what can be read of a table, and notes the rest in `lost`.
pub(super) fn copy_table(
    from: &Connection,
    to: &Connection,
    name: &str,
    lost: &mut Vec<LostRows>,
) -> StoreResult<()> {
    let table = TableStatements::new(from, to, name).map_err(from_sqlite)?;
    if table.has_rowid {
        table.copy_by_rowid(lost)
    } else {
        table.copy_from_both_ends(lost)
    }
}

impl<'a> TableStatements<'a> {
    fn new(from: &'a Connection, to: &'a Connection, name: &'a str) -> rusqlite::Result<Self> {
        let mut statement = to.prepare("SELECT name, pk FROM pragma_table_info(?1)")?;
        let rows = statement.query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let columns: Vec<(String, i64)> = rows.collect::<rusqlite::Result<_>>()?;
        let mut key: Vec<&(String, i64)> = columns.iter().filter(|(_, pk)| *pk > 0).collect();
        key.sort_by_key(|(_, pk)| *pk);
        let without: bool = to.query_row(
            "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main'",
            [name],
            |row| row.get(0),
        )?;
        Ok(Self {
            from,
            to,
            name,
            key: key.into_iter().map(|(name, _)| name.clone()).collect(),
            columns: columns.iter().map(|(name, _)| name.clone()).collect(),
            has_rowid: !without,
        })
    }

    fn copy_by_rowid(&self, lost: &mut Vec<LostRows>) -> StoreResult<()> {
        let mut next = i64::MIN;
        loop {
            let mut last = None;
            let ScanEnd::Damaged(reason) = self.scan_from(next, &mut last, lost)? else {
                return Ok(());
            };
            let start = match last {
                None => next,
                Some(i64::MAX) => return Ok(()),
                Some(last) => last + 1,
            };
            let Some(after) = self.step_over(start, &reason, lost)? else {
                return Ok(());
            };
            next = after;
        }
    }

    /// Copies rows in order from `next` on; `last` is the key of the last one that was read.
    fn scan_from(
        &self,
        next: i64,
        last: &mut Option<i64>,
        lost: &mut Vec<LostRows>,
    ) -> StoreResult<ScanEnd> {
        let (columns, name) = (self.listed(), self.name);
        let sql = format!(
            "SELECT {columns}, rowid FROM {name} NOT INDEXED WHERE rowid >= ?1 ORDER BY rowid"
        );
        let mut statement = self.from.prepare_cached(&sql).map_err(from_sqlite)?;
        let mut rows = statement.query([next]).map_err(from_sqlite)?;
        loop {
            let row = match damage(rows.next())? {
                Ok(None) => return Ok(ScanEnd::Done),
                Ok(Some(row)) => row,
                Err(reason) => return Ok(ScanEnd::Damaged(reason)),
            };
            let values = damage(self.values(row))?;
            let key = damage(row.get::<_, i64>(self.columns.len()))?;
            let (Ok(values), Ok(key)) = (values, key) else {
                return Ok(ScanEnd::Damaged("its values cannot be read".into()));
            };
            // A page that stands in another one's place may lead backwards.
            if key < next || last.is_some_and(|last| key <= last) {
                return Ok(ScanEnd::Damaged("its rows are out of order".into()));
            }
            *last = Some(key);
            if let Err(reason) = self.insert("INSERT", &values)? {
                lost.push(self.lost((key, key), &reason));
            }
        }
    }

    /// Notes what cannot be read from `start` on, and returns where rows begin again.
    fn step_over(
        &self,
        start: i64,
        reason: &str,
        lost: &mut Vec<LostRows>,
    ) -> StoreResult<Option<i64>> {
        match self.key_from(start)? {
            // The row is there; what is on its other pages is not.
            Ok(Some(key)) if key >= start => {
                lost.push(self.lost((key, key), reason));
                Ok(key.checked_add(1))
            }
            Ok(Some(_)) | Err(_) => {
                let next = self.leap(start)?;
                let last = next.map_or(i64::MAX, |next| next - 1);
                lost.push(self.lost((start, last), reason));
                Ok(next)
            }
            Ok(None) => {
                lost.push(self.lost((start, i64::MAX), reason));
                Ok(None)
            }
        }
    }

    /// Returns the first key from `start` on; the inner error is damage.
    fn key_from(&self, start: i64) -> StoreResult<Result<Option<i64>, String>> {
        let name = self.name;
        let sql = format!(
            "SELECT rowid FROM {name} NOT INDEXED WHERE rowid >= ?1 ORDER BY rowid LIMIT 1"
        );
        let mut statement = self.from.prepare_cached(&sql).map_err(from_sqlite)?;
        let mut rows = statement.query([start]).map_err(from_sqlite)?;
        damage(rows.next().and_then(|row| match row {
            Some(row) => row.get(0).map(Some),
            None => Ok(None),
        }))
    }

    /// Returns a key from which on the table can be read again, `None` if there is none: in growing
    /// steps, so that a good page between two damaged ones is hardly missed, then back by halves.
    fn leap(&self, start: i64) -> StoreResult<Option<i64>> {
        // Keys below 1 are few; from there the steps would be too wide for the others.
        if start < 1 {
            return Ok(Some(1));
        }
        let reads = |key: i64| -> StoreResult<bool> {
            Ok(match self.key_from(key)? {
                Ok(found) => found.is_none_or(|found| found >= key),
                Err(_) => false,
            })
        };
        let (mut bad, mut step) = (start, 1i64);
        let mut good = loop {
            let Some(key) = start.checked_add(step) else {
                return Ok(None);
            };
            if reads(key)? {
                break key;
            }
            bad = key;
            step = step.saturating_add((step / 4).max(1));
        };
        while good - bad > 1 {
            let middle = bad + (good - bad) / 2;
            if reads(middle)? {
                good = middle;
            } else {
                bad = middle;
            }
        }
        Ok(Some(good))
    }

    /// Copies a table without rowids: from its beginning, and after damage from its end.
    fn copy_from_both_ends(&self, lost: &mut Vec<LostRows>) -> StoreResult<()> {
        for (direction, insert) in [("ASC", "INSERT"), ("DESC", "INSERT OR IGNORE")] {
            let order: Vec<String> = self
                .key
                .iter()
                .map(|c| format!("{c} {direction}"))
                .collect();
            let (columns, name, order) = (self.listed(), self.name, order.join(", "));
            let sql = format!("SELECT {columns} FROM {name} NOT INDEXED ORDER BY {order}");
            let mut statement = self.from.prepare(&sql).map_err(from_sqlite)?;
            let mut rows = statement.query([]).map_err(from_sqlite)?;
            let reason = loop {
                match damage(rows.next())? {
                    Ok(None) => return Ok(()),
                    Err(reason) => break reason,
                    Ok(Some(row)) => {
                        let taken = match damage(self.values(row))? {
                            Ok(values) => self.insert(insert, &values)?,
                            Err(reason) => Err(reason),
                        };
                        if let Err(reason) = taken {
                            lost.push(self.unknown(&reason));
                        }
                    }
                }
            };
            if direction == "ASC" {
                lost.push(self.unknown(&reason));
            }
        }
        Ok(())
    }

    fn listed(&self) -> String {
        self.columns.join(", ")
    }

    fn values(&self, row: &Row<'_>) -> rusqlite::Result<Vec<Value>> {
        (0..self.columns.len()).map(|at| row.get(at)).collect()
    }

    /// Writes a row; the inner error says why the new database does not take it.
    fn insert(&self, insert: &str, values: &[Value]) -> StoreResult<Result<(), String>> {
        let places = vec!["?"; self.columns.len()].join(", ");
        let (columns, name) = (self.listed(), self.name);
        let sql = format!("{insert} INTO {name} ({columns}) VALUES ({places})");
        let mut statement = self.to.prepare_cached(&sql).map_err(from_sqlite)?;
        match statement.execute(params_from_iter(values)) {
            Ok(_) => Ok(Ok(())),
            Err(error) => match from_sqlite(error) {
                StoreError::Invalid(reason) | StoreError::Damaged(reason) => Ok(Err(reason)),
                other => Err(other),
            },
        }
    }

    fn lost(&self, keys: (i64, i64), reason: &str) -> LostRows {
        LostRows {
            keys: Some(keys),
            ..self.unknown(reason)
        }
    }

    fn unknown(&self, reason: &str) -> LostRows {
        LostRows {
            table: self.name.to_owned(),
            keys: None,
            reason: reason.to_owned(),
        }
    }
}

/// Takes damage out of an error; any other one is passed on.
fn damage<T>(result: rusqlite::Result<T>) -> StoreResult<Result<T, String>> {
    match result.map_err(from_sqlite) {
        Ok(value) => Ok(Ok(value)),
        Err(StoreError::Damaged(reason)) => Ok(Err(reason)),
        // A disk that cannot read a page, and a length beyond all limits.
        Err(StoreError::Io(cause) | StoreError::Other(cause)) => Ok(Err(cause.to_string())),
        Err(other) => Err(other),
    }
}
