//! The rows of kept files. A file may hold many sessions, so its rows are by its own key.

use loopstore::extend::{
    SessionKey, SourceKey, SourcePart, SourcePiece, SourceRow, StoreError, StoreResult,
};
use loopstore::internal::mapping::{signed, source_part, source_row};
use loopstore::internal::{Columns, missing};
use loopstore::model::Time;

use super::connection::Param;
use super::transaction::PostgresTransaction;

const SOURCE: &str = "SELECT s.key, s.format, s.path, s.bytes, s.digest FROM sources s";

impl PostgresTransaction<'_> {
    pub(super) fn sources_of(&self, session: SessionKey) -> StoreResult<Vec<SourceRow>> {
        let sql = format!(
            "{SOURCE} WHERE s.key IN (
                 SELECT l.source FROM source_sessions l WHERE l.session = $1
             ) ORDER BY s.key"
        );
        self.all(session.0, &sql, &[&session.0], source_row)
    }

    pub(super) fn source_keys_of_all(&self) -> StoreResult<Vec<SourceKey>> {
        let sql = "SELECT key FROM sources ORDER BY key";
        self.all_of_any(sql, &[], |row| row.get("key"))
    }

    pub(super) fn source(&self, key: SourceKey) -> StoreResult<SourceRow> {
        let row =
            self.first_of_any(&format!("{SOURCE} WHERE s.key = $1"), &[&key.0], source_row)?;
        row.ok_or_else(|| missing("source", key.0))
    }

    pub(super) fn parts_of(&self, source: SourceKey) -> StoreResult<Vec<SourcePart>> {
        let sql = "SELECT i.sha256, i.bytes
             FROM source_parts p JOIN source_pieces i ON i.source = $1 AND i.sha256 = p.sha256
             WHERE p.source = $1 ORDER BY p.number";
        self.all_of_any(sql, &[&source.0], source_part)
    }

    pub(super) fn piece(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        let sql = "SELECT data FROM source_pieces WHERE sha256 = $1 LIMIT 1";
        self.first_of_any(sql, &[&&sha256[..]], |row| row.get("data"))
    }

    pub(super) fn add_source(&self, row: &SourceRow) -> StoreResult<SourceKey> {
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

    pub(super) fn change_source(&self, row: &SourceRow) -> StoreResult<()> {
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

    pub(super) fn add_source_link(
        &self,
        session: SessionKey,
        source: SourceKey,
    ) -> StoreResult<()> {
        let sql = "INSERT INTO source_sessions (session, source) VALUES ($1, $2)
             ON CONFLICT DO NOTHING";
        self.run(session.0, sql, &[&session.0, &source.0]).map(drop)
    }

    pub(super) fn add_source_part(
        &self,
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

    pub(super) fn drop_source_parts(&self, source: SourceKey, number: u32) -> StoreResult<()> {
        let params: [Param<'_>; 2] = [&source.0, &i64::from(number)];
        let sql = "DELETE FROM source_parts WHERE source = $1 AND number >= $2";
        self.execute(sql, &params)?;
        let sql = "DELETE FROM source_pieces i WHERE i.source = $1 AND NOT EXISTS (
                 SELECT 1 FROM source_parts p WHERE p.source = $1 AND p.sha256 = i.sha256
             )";
        self.execute(sql, &[&source.0]).map(drop)
    }
}
