//! Notes of imports, kept files, and packs of archived messages.

use crate::store::columns::Columns;
use crate::store::packs::PackRow;
use crate::store::values::{BoundValue, values};
use crate::store::{ImportNote, ImportRow, SourcePart, SourceRow, StoreResult};

/// The columns of the values of an import.
pub const IMPORT_COLUMNS: &str =
    "session, format, path, file_name, record_key, imported_at, digest";

/// Returns the values of an import, in the order of [`IMPORT_COLUMNS`].
pub fn import_values<'a>(
    row: &'a ImportNote,
    digest: &'a [u8; 32],
) -> StoreResult<Vec<BoundValue<'a>>> {
    let from = &row.from;
    Ok(values![
        &row.session,
        &from.format,
        &from.path,
        &from.file_name,
        &from.record_key,
        &row.imported_at,
        digest,
    ])
}

/// Reads an import from its columns.
pub fn import_note(row: &impl Columns) -> StoreResult<ImportNote> {
    Ok(ImportNote {
        key: row.get("key")?,
        session: row.get("session")?,
        from: ImportRow {
            format: row.get("format")?,
            path: row.get("path")?,
            file_name: row.get("file_name")?,
            record_key: row.get("record_key")?,
        },
        imported_at: row.get("imported_at")?,
    })
}

/// Reads a kept file from its columns.
pub fn source_row(row: &impl Columns) -> StoreResult<SourceRow> {
    Ok(SourceRow {
        key: row.get("key")?,
        format: row.get("format")?,
        path: row.get("path")?,
        bytes: row.get("bytes")?,
        digest: row.get("digest")?,
    })
}

/// Reads a part of a kept file from its columns.
pub fn source_part(row: &impl Columns) -> StoreResult<SourcePart> {
    Ok(SourcePart {
        sha256: row.get("sha256")?,
        bytes: row.get("bytes")?,
    })
}

/// Reads a pack without its content from its columns.
pub fn pack_row(row: &impl Columns) -> StoreResult<PackRow> {
    Ok(PackRow {
        first: row.number("seq")?,
        last: row.get("last_seq")?,
        bytes: row.get("bytes")?,
        digest: row.get("digest")?,
    })
}
