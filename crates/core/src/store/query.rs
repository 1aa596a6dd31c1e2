//! The rows that a query in SQL returns, and the limits of a query.

use std::sync::Arc;
use std::time::Duration;

use crate::model::Json;

/// The rows that a query returned.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryRows {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The values, row by row; a blob is hexadecimal text.
    pub rows: Vec<Vec<Json>>,
    /// True if there were more rows than the limit.
    pub is_cut: bool,
}

/// The limits of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryLimits {
    /// The largest number of rows.
    pub rows: Option<usize>,
    /// The longest run time.
    pub time: Option<Duration>,
}

impl QueryRows {
    /// Returns the names of the columns. A repeated name gets a number, so that each name is unique.
    pub fn unique_columns(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter().enumerate() {
            let mut name = column.clone();
            let mut number = 1;
            while names.contains(&name) || (number > 1 && self.columns[at + 1..].contains(&name)) {
                number += 1;
                name = format!("{column}_{number}");
            }
            names.push(name);
        }
        names
    }

    /// Returns the rows as records.
    pub fn records(&self) -> Vec<Record> {
        self.clone().into_records()
    }

    /// Returns the rows as records, without a copy.
    pub fn into_records(self) -> Vec<Record> {
        let names = self.unique_columns().into_iter().map(Arc::from);
        let names: Vec<Arc<str>> = names.collect();
        let record = |row: Vec<Json>| Record(names.iter().cloned().zip(row).collect());
        self.rows.into_iter().map(record).collect()
    }
}

/// One row: its columns by name, in order. The rows of a query share the names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record(Vec<(Arc<str>, Json)>);

impl Record {
    /// Returns the value of a column; `null` if there is no such column.
    pub fn get(&self, column: &str) -> Json {
        let found = self.0.iter().find(|(name, _)| **name == *column);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// Returns the text of a column; `None` if the value is not a text.
    pub fn text(&self, column: &str) -> Option<String> {
        self.get(column).read().ok()
    }

    /// Returns the number in a column; `None` if the value is not a number.
    pub fn number(&self, column: &str) -> Option<i64> {
        self.get(column).read().ok()
    }

    /// Returns the columns in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Sets the value of a column; a missing column is added.
    pub fn set(&mut self, column: &str, value: Json) {
        match self.0.iter_mut().find(|(name, _)| **name == *column) {
            Some((_, old)) => *old = value,
            None => self.push(column, value),
        }
    }

    /// Removes a column and returns its value.
    pub fn take(&mut self, column: &str) -> Option<Json> {
        let at = self.0.iter().position(|(name, _)| **name == *column)?;
        Some(self.0.remove(at).1)
    }

    /// Adds a column.
    pub fn push(&mut self, column: impl Into<Arc<str>>, value: Json) {
        self.0.push((column.into(), value));
    }
}

impl serde::Serialize for Record {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}
