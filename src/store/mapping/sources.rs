//! Kept files, and packs of archived messages.

use crate::store::columns::Columns;
use crate::store::packs::PackRow;
use crate::store::{SourcePart, SourceRow, StoreResult};

pub(in crate::store) fn source_row(row: &impl Columns) -> StoreResult<SourceRow> {
    Ok(SourceRow {
        key: row.get("key")?,
        format: row.get("format")?,
        path: row.get("path")?,
        bytes: row.get("bytes")?,
        digest: row.get("digest")?,
    })
}

pub(in crate::store) fn source_part(row: &impl Columns) -> StoreResult<SourcePart> {
    Ok(SourcePart {
        sha256: row.get("sha256")?,
        bytes: row.get("bytes")?,
    })
}

pub(in crate::store) fn pack_row(row: &impl Columns) -> StoreResult<PackRow> {
    Ok(PackRow {
        first: row.number("seq")?,
        last: row.get("last_seq")?,
        bytes: row.get("bytes")?,
        digest: row.get("digest")?,
    })
}
