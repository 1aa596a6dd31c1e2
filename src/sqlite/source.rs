//! The rows of kept files.

use rusqlite::params;

use super::reader::{SqliteReader, packed};
use crate::model::Time;
use crate::store::audit::{AuditEntry, AuditKind};
use crate::store::columns::Columns;
use crate::store::error::{StoreError, StoreResult};
use crate::store::mapping::{
    IMPORT_COLUMNS, import_note, import_values, signed, source_part, source_row,
};
use crate::store::{
    ImportNote, ImportRow, ReadSources, SessionKey, SourceKey, SourcePart, SourcePiece, SourceRow,
    WriteSources, digest,
};

impl SqliteReader<'_> {
    pub(super) fn drop_source_parts(&self, source: SourceKey, number: u32) -> StoreResult<()> {
        let (from, to) = (packed(source.0, number), packed(source.0, u32::MAX));
        let pieces = self.all(
            "SELECT DISTINCT piece FROM source_parts WHERE id BETWEEN ?1 AND ?2",
            [from, to],
            |row| row.get::<i64>("piece"),
        )?;
        self.run(
            "DELETE FROM source_parts WHERE id BETWEEN ?1 AND ?2",
            [from, to],
        )?;
        for piece in pieces {
            self.run(
                "DELETE FROM source_pieces WHERE key = ?1
                 AND NOT EXISTS (SELECT 1 FROM source_parts WHERE piece = ?1)",
                [piece],
            )?;
        }
        Ok(())
    }
}

impl ReadSources for SqliteReader<'_> {
    fn import_key(&self) -> StoreResult<Vec<u8>> {
        self.first(
            "SELECT value FROM store_meta WHERE name = 'import_key'",
            [],
            |row| row.get("value"),
        )?
        .ok_or_else(|| StoreError::Damaged("the import key is missing".into()))
    }

    fn imports(&self, session: SessionKey) -> StoreResult<Vec<ImportRow>> {
        let sql =
            format!("SELECT key, {IMPORT_COLUMNS} FROM imports WHERE session = ?1 ORDER BY key");
        self.all(&sql, [session.0], |row| Ok(import_note(row)?.from))
    }

    fn imported(
        &self,
        format: &str,
        file_name: &str,
        record_key: &str,
    ) -> StoreResult<Vec<SessionKey>> {
        self.all(
            "SELECT DISTINCT session FROM imports
             WHERE format = ?1 AND file_name = ?2 AND record_key = ?3 ORDER BY session",
            [format, file_name, record_key],
            |row| row.get("session"),
        )
    }

    fn sources(&self, session: SessionKey) -> StoreResult<Vec<SourceRow>> {
        self.all(
            "SELECT s.key, s.format, s.path, s.bytes, s.digest
             FROM source_sessions l JOIN sources s ON s.key = l.source
             WHERE l.session = ?1 ORDER BY s.key",
            [session.0],
            |row| source_row(row),
        )
    }

    fn source_parts(&self, source: SourceKey) -> StoreResult<Vec<SourcePart>> {
        self.all(
            "SELECT i.sha256, i.bytes
             FROM source_parts p JOIN source_pieces i ON i.key = p.piece
             WHERE p.id BETWEEN ?1 AND ?2 ORDER BY p.id",
            [packed(source.0, 0), packed(source.0, u32::MAX)],
            |row| source_part(row),
        )
    }

    fn source_piece(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        let sql = "SELECT data FROM source_pieces WHERE sha256 = ?1";
        self.first(sql, [sha256], |row| row.get("data"))
    }
}

impl WriteSources for SqliteReader<'_> {
    fn insert_import(&mut self, session: SessionKey, from: &ImportRow) -> StoreResult<()> {
        let row = ImportNote::now(session, from);
        let digest = digest::import(&row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Import, digest))?;
        self.insert("imports", IMPORT_COLUMNS, import_values(&row, &digest)?)
    }

    fn insert_source(&mut self, row: &SourceRow) -> StoreResult<SourceKey> {
        self.run(
            "INSERT INTO sources (format, path, bytes, digest, kept_at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                row.format,
                row.path,
                signed(row.bytes)?,
                row.digest,
                Time::now().as_str()
            ],
        )?;
        Ok(SourceKey(self.connection.last_insert_rowid()))
    }

    fn update_source(&mut self, row: &SourceRow) -> StoreResult<()> {
        self.run(
            "UPDATE sources SET path = ?2, bytes = ?3, digest = ?4, kept_at = ?5 WHERE key = ?1",
            params![
                row.key.0,
                row.path,
                signed(row.bytes)?,
                row.digest,
                Time::now().as_str()
            ],
        )?;
        Ok(())
    }

    fn link_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()> {
        self.run(
            "INSERT OR IGNORE INTO source_sessions (session, source) VALUES (?1, ?2)",
            [session.0, source.0],
        )?;
        Ok(())
    }

    fn put_source_part(
        &mut self,
        source: SourceKey,
        number: u32,
        piece: &SourcePiece,
    ) -> StoreResult<()> {
        self.run(
            "INSERT INTO source_pieces (sha256, bytes, data)
             SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM source_pieces WHERE sha256 = ?1)",
            params![piece.sha256, signed(piece.bytes)?, piece.data],
        )?;
        self.run(
            "INSERT INTO source_parts (id, piece)
             SELECT ?1, key FROM source_pieces WHERE sha256 = ?2",
            params![packed(source.0, number), piece.sha256],
        )?;
        Ok(())
    }

    fn remove_source_parts(&mut self, source: SourceKey, number: u32) -> StoreResult<()> {
        self.drop_source_parts(source, number)
    }
}
