//! Values of rows as parameters of a statement.

use loopstore_core::store::StoreResult;
use loopstore_core::store::values::BoundValue;

use super::connection::Param;
use super::transaction::PostgresTransaction;

pub(super) fn wide(number: Option<u32>) -> Option<i64> {
    number.map(i64::from)
}

/// Returns `rows` rows of VALUES: each begins with the `shared` first parameters and continues with `own`
/// parameters of its own. Rows from an array would do on one server; where tables are distributed they are
/// copied in, which requires a commit in two phases and is rejected under row-level security.
pub(super) fn rows_of_values(shared: usize, own: usize, rows: usize) -> String {
    let mut sql = String::new();
    for row in 0..rows {
        sql.push_str(if row == 0 { "(" } else { ", (" });
        let first = 1 + shared + row * own;
        for (place, number) in (1..=shared).chain(first..first + own).enumerate() {
            sql.push_str(if place == 0 { "$" } else { ", $" });
            sql.push_str(&number.to_string());
        }
        sql.push(')');
    }
    sql
}

pub(super) fn param<'a>(value: &'a BoundValue<'_>) -> Param<'a> {
    match value {
        BoundValue::Integer(number) => number,
        BoundValue::Text(text) => text,
        BoundValue::Json(text) => text,
        BoundValue::Bytes(bytes) => bytes,
        BoundValue::Digest(digest) => digest,
        BoundValue::Flag(flag) => flag,
    }
}

impl PostgresTransaction<'_> {
    /// Inserts a row into a table that is not on a hot path.
    pub(super) fn insert(
        &self,
        session: i64,
        table: &str,
        columns: &str,
        values: &[BoundValue<'_>],
    ) -> StoreResult<()> {
        let params: Vec<Param<'_>> = values.iter().map(param).collect();
        let places = rows_of_values(0, values.len(), 1);
        let sql = format!("INSERT INTO {table} ({columns}) VALUES {places}");
        self.run(session, &sql, &params).map(drop)
    }

    /// Writes columns of the row that has these values in the columns of its key.
    pub(super) fn update<const N: usize>(
        &self,
        session: i64,
        table: &str,
        columns: &str,
        mut values: Vec<BoundValue<'_>>,
        key: [(&str, i64); N],
    ) -> StoreResult<()> {
        let (places, written) = (rows_of_values(0, values.len(), 1), values.len());
        let of = (written + 1..).zip(key);
        let of: Vec<String> = of
            .map(|(place, (column, _))| format!("{column} = ${place}"))
            .collect();
        let of = of.join(" AND ");
        let sql = format!("UPDATE {table} SET ({columns}) = ROW{places} WHERE {of}");
        values.extend(key.map(|(_, number)| BoundValue::Integer(Some(number))));
        let params: Vec<Param<'_>> = values.iter().map(param).collect();
        self.run(session, &sql, &params).map(drop)
    }
}
