//! The rows of kept files. A file may contain many sessions, so its rows are keyed by the file.

use loopstore_core::store::audit::{AuditEntry, AuditKind};
use loopstore_core::store::columns::{Columns, damaged};
use loopstore_core::store::mapping::{
    IMPORT_COLUMNS, import_note, import_values, signed, source_part, source_row,
};
use loopstore_core::store::values::BoundValue;
use loopstore_core::store::{
    ImportNote, ImportRow, ReadSources, SessionKey, SourceKey, SourcePart, SourcePiece, SourceRow,
    StoreError, StoreResult, WriteSources, digest,
};
use loopstore_model::Time;

use super::connection::Param;
use super::transaction::PostgresTransaction;

pub(super) const SOURCE: &str = "SELECT s.key, s.format, s.path, s.bytes, s.digest FROM sources s";

impl ReadSources for PostgresTransaction<'_> {
    fn import_key(&self) -> StoreResult<Vec<u8>> {
        let sql = "SELECT value FROM store_meta WHERE name = 'import_key'";
        let hex = self.first_of_any(sql, &[], |row| row.get::<String>("value"))?;
        let key = hex
            .as_deref()
            .and_then(loopstore_core::store::codec::unhex::<32>);
        key.map(Vec::from)
            .ok_or_else(|| damaged("the import key is missing"))
    }

    fn imports(&self, session: SessionKey) -> StoreResult<Vec<ImportRow>> {
        let sql =
            format!("SELECT key, {IMPORT_COLUMNS} FROM imports WHERE session = $1 ORDER BY key");
        self.all(session.0, &sql, &[&session.0], |row| {
            Ok(import_note(row)?.from)
        })
    }

    fn imported(
        &self,
        format: &str,
        file_name: &str,
        record_key: &str,
    ) -> StoreResult<Vec<SessionKey>> {
        // A caller that finds no session may be about to create it.
        self.lock_name(&["import", format, file_name, record_key])?;
        let sql = "SELECT DISTINCT session FROM imports
             WHERE format = $1 AND file_name = $2 AND record_key = $3 ORDER BY session";
        self.all_of_any(sql, &[&format, &file_name, &record_key], |row| {
            row.get("session")
        })
    }

    fn sources(&self, session: SessionKey) -> StoreResult<Vec<SourceRow>> {
        let sql = format!(
            "{SOURCE} WHERE s.key IN (
                 SELECT l.source FROM source_sessions l WHERE l.session = $1
             ) ORDER BY s.key"
        );
        self.all(session.0, &sql, &[&session.0], source_row)
    }

    fn source_parts(&self, source: SourceKey) -> StoreResult<Vec<SourcePart>> {
        let sql = "SELECT i.sha256, i.bytes
             FROM source_parts p JOIN source_pieces i ON i.source = $1 AND i.sha256 = p.sha256
             WHERE p.source = $1 ORDER BY p.number";
        self.all_of_any(sql, &[&source.0], source_part)
    }

    fn source_piece(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        let sql = "SELECT data FROM source_pieces WHERE sha256 = $1 LIMIT 1";
        self.first_of_any(sql, &[&&sha256[..]], |row| row.get("data"))
    }
}

impl WriteSources for PostgresTransaction<'_> {
    fn insert_import(&mut self, session: SessionKey, from: &ImportRow) -> StoreResult<()> {
        let row = ImportNote::now(session, from);
        let digest = digest::import(&row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Import, digest))?;
        let key = self.next_key("imports", session.0)?;
        let mut values = import_values(&row, &digest)?;
        values.push(BoundValue::Integer(Some(key)));
        self.insert(
            session.0,
            "imports",
            &format!("{IMPORT_COLUMNS}, key"),
            &values,
        )
    }

    fn insert_source(&mut self, row: &SourceRow) -> StoreResult<SourceKey> {
        let birth = self.birth()?;
        for key in birth.. {
            let stored = self.execute(
                "INSERT INTO sources (key, format, path, bytes, digest, kept_at)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (key) DO NOTHING",
                &[
                    &key,
                    &row.format,
                    &row.path,
                    &signed(row.bytes)?,
                    &&row.digest[..],
                    &Time::now().as_str(),
                ],
            )?;
            if stored == 1 {
                return Ok(SourceKey(key));
            }
        }
        Err(StoreError::Busy)
    }

    fn update_source(&mut self, row: &SourceRow) -> StoreResult<()> {
        self.execute(
            "UPDATE sources SET path = $2, bytes = $3, digest = $4, kept_at = $5 WHERE key = $1",
            &[
                &row.key.0,
                &row.path,
                &signed(row.bytes)?,
                &&row.digest[..],
                &Time::now().as_str(),
            ],
        )?;
        Ok(())
    }

    fn link_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()> {
        let sql = "INSERT INTO source_sessions (session, source) VALUES ($1, $2)
             ON CONFLICT DO NOTHING";
        self.run(session.0, sql, &[&session.0, &source.0]).map(drop)
    }

    fn put_source_part(
        &mut self,
        source: SourceKey,
        number: u32,
        piece: &SourcePiece,
    ) -> StoreResult<()> {
        let name = &piece.sha256[..];
        self.execute(
            "INSERT INTO source_pieces (source, sha256, bytes, data) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            &[&source.0, &name, &signed(piece.bytes)?, &piece.data],
        )?;
        self.execute(
            "INSERT INTO source_parts (source, number, sha256) VALUES ($1, $2, $3)",
            &[&source.0, &i64::from(number), &name],
        )?;
        Ok(())
    }

    fn remove_source_parts(&mut self, source: SourceKey, number: u32) -> StoreResult<()> {
        let params: [Param<'_>; 2] = [&source.0, &i64::from(number)];
        let sql = "DELETE FROM source_parts WHERE source = $1 AND number >= $2";
        self.execute(sql, &params)?;
        let sql = "DELETE FROM source_pieces i WHERE i.source = $1 AND NOT EXISTS (
                 SELECT 1 FROM source_parts p WHERE p.source = $1 AND p.sha256 = i.sha256
             )";
        self.execute(sql, &[&source.0]).map(drop)
    }
}
