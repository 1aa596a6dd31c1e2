//! Items of this crate that the crates of its workspace use beyond the public ones. They are no part of the
//! public interface and change without notice.

pub use crate::clock::new_uuid;
pub use crate::store::audit::{DIGESTED, RowDigest, row_digest};
pub use crate::store::codec::unhex;
pub use crate::store::columns::{ColumnValue, Columns, FromColumn, damaged, missing};
pub use crate::store::listing::{
    ListedSession, LoopSums, SessionList, sessions as list_sessions, sort_by_start, view_of,
    with_flips,
};
pub use crate::store::migrations::{Applied, Migrations};
pub use crate::store::packs::{LastPack, Unpacked, fill, open};
pub use crate::store::recount::{counter_of, run};
pub use crate::store::sqlite::content::{place_of, table_names, texts};
pub use crate::store::values::{BoundValue, ToValue};

/// Rows made of columns, and the values of the columns of a row.
pub mod mapping {
    pub use crate::store::mapping::*;
}
