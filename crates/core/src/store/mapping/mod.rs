//! Conversion of rows from columns and into values, once for both backends.

mod blocks;
mod edits;
mod loops;
mod messages;
mod recording;
mod runs;
mod sessions;
mod sources;

pub use blocks::*;
pub use edits::*;
pub use loops::*;
pub use messages::*;
pub use recording::*;
pub use runs::*;
pub use sessions::*;
pub use sources::*;

use super::columns::Columns;
use super::error::StoreResult;
pub use super::values::signed;

/// Reads a row and its stored digest.
pub fn with_digest<C: Columns, T>(
    row: &C,
    from_row: fn(&C) -> StoreResult<T>,
) -> StoreResult<(T, [u8; 32])> {
    Ok((from_row(row)?, row.get("digest")?))
}
