//! Rows put together from columns, once for both backends, and values that several columns share on
//! their way back.

mod blocks;
mod loops;
mod messages;
mod recording;
mod runs;
mod sessions;
mod sources;

pub(super) use blocks::*;
pub(super) use loops::*;
pub(super) use messages::*;
pub(super) use recording::*;
pub(super) use runs::*;
pub(super) use sessions::*;
pub(super) use sources::*;

use super::columns::Columns;
use super::error::StoreResult;
pub(super) use super::values::signed;

/// Reads a row and its stored digest.
pub(super) fn with_digest<C: Columns, T>(
    row: &C,
    from_row: fn(&C) -> StoreResult<T>,
) -> StoreResult<(T, [u8; 32])> {
    Ok((from_row(row)?, row.get("digest")?))
}
