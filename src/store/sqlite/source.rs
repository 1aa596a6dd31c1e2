//! The rows of kept files.

use rusqlite::params;

use super::read::{SqliteReader, packed};
use crate::model::Time;
use crate::store::columns::{Columns, missing};
use crate::store::error::StoreResult;
use crate::store::mapping::{signed, source_part, source_row};
use crate::store::{SessionKey, SourceKey, SourcePart, SourcePiece, SourceRow};

impl SqliteReader<'_> {
    pub(super) fn sources_of(&self, session: SessionKey) -> StoreResult<Vec<SourceRow>> {
        self.all(
            "SELECT s.key, s.format, s.path, s.bytes, s.digest
             FROM source_sessions l JOIN sources s ON s.key = l.source
             WHERE l.session = ?1 ORDER BY s.key",
            [session.0],
            |row| source_row(row),
        )
    }

    pub(super) fn source_keys_of_all(&self) -> StoreResult<Vec<SourceKey>> {
        let sql = "SELECT key FROM sources ORDER BY key";
        self.all(sql, [], |row| row.get("key"))
    }

    pub(super) fn source(&self, key: SourceKey) -> StoreResult<SourceRow> {
        let sql = "SELECT key, format, path, bytes, digest FROM sources WHERE key = ?1";
        let row = self.first(sql, [key.0], |row| source_row(row))?;
        row.ok_or_else(|| missing("source", key.0))
    }

    pub(super) fn parts_of(&self, source: SourceKey) -> StoreResult<Vec<SourcePart>> {
        self.all(
            "SELECT i.sha256, i.bytes
             FROM source_parts p JOIN source_pieces i ON i.key = p.piece
             WHERE p.id BETWEEN ?1 AND ?2 ORDER BY p.id",
            [packed(source.0, 0), packed(source.0, u32::MAX)],
            |row| source_part(row),
        )
    }

    pub(super) fn piece(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        let sql = "SELECT data FROM source_pieces WHERE sha256 = ?1";
        self.first(sql, [sha256], |row| row.get("data"))
    }

    pub(super) fn add_source(&self, row: &SourceRow) -> StoreResult<SourceKey> {
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

    pub(super) fn change_source(&self, row: &SourceRow) -> StoreResult<()> {
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

    pub(super) fn add_source_link(
        &self,
        session: SessionKey,
        source: SourceKey,
    ) -> StoreResult<()> {
        self.run(
            "INSERT OR IGNORE INTO source_sessions (session, source) VALUES (?1, ?2)",
            [session.0, source.0],
        )?;
        Ok(())
    }

    pub(super) fn add_source_part(
        &self,
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
