//! Reading everything, row by row, for `verify`.

use super::reader::{SqliteReader, packed};
use crate::store::audit::{AuditChain, AuditEnd, RECEIPTS};
use crate::store::columns::{Columns, missing};
use crate::store::error::StoreResult;
use crate::store::mapping::*;
use crate::store::scan::{
    BlobOwner, Continuations, MessagePlace, ScanAudit, ScanBlobs, ScanBlocks, ScanHides, ScanLoops,
    ScanManifests, ScanMessages, ScanPins, ScanReceipts, ScanRuns, ScanSessions, ScanSources,
    StoreScan, TextCell,
};
use crate::store::*;

/// Rows that belong to nothing, which no foreign key finds: a table, the condition on its row `t`.
pub(super) const STRAYS: [(&str, &str, &str); 13] = [
    (
        "messages",
        "id",
        "NOT EXISTS (SELECT 1 FROM loops WHERE key = t.id >> 32)",
    ),
    (
        "turns",
        "id",
        "NOT EXISTS (SELECT 1 FROM loops WHERE key = t.id >> 32)",
    ),
    (
        "block_messages",
        "id",
        "NOT EXISTS (SELECT 1 FROM blocks WHERE key = t.id >> 32)",
    ),
    (
        "edits",
        "id",
        "NOT EXISTS (SELECT 1 FROM runs WHERE key = t.id >> 32)",
    ),
    (
        "coverage",
        "id",
        "NOT EXISTS (SELECT 1 FROM blocks WHERE key = t.id >> 32)",
    ),
    (
        "blob_refs",
        "owner",
        "CASE WHEN t.owner >= 0 THEN NOT EXISTS (SELECT 1 FROM messages WHERE id = t.owner)
         ELSE NOT EXISTS (SELECT 1 FROM blocks WHERE key = -t.owner >> 32) END",
    ),
    (
        "redactions",
        "owner",
        "CASE WHEN t.owner >= 0 THEN NOT EXISTS (SELECT 1 FROM messages WHERE id = t.owner)
         ELSE NOT EXISTS (SELECT 1 FROM block_messages WHERE id = -t.owner) END",
    ),
    (
        "packs",
        "id",
        "NOT EXISTS (SELECT 1 FROM messages WHERE id = t.id)",
    ),
    (
        "packed_heads",
        "id",
        "NOT EXISTS (SELECT 1 FROM messages WHERE id = t.id)",
    ),
    (
        "audit",
        "session",
        "t.session <> 0 AND NOT EXISTS (SELECT 1 FROM sessions WHERE key = t.session)",
    ),
    (
        "source_parts",
        "id",
        "NOT EXISTS (SELECT 1 FROM sources WHERE key = t.id >> 32)",
    ),
    (
        "source_pieces",
        "key",
        "NOT EXISTS (SELECT 1 FROM source_parts WHERE piece = t.key)",
    ),
    (
        "block_messages",
        "id",
        "role IS NULL AND (tokens <> 0 OR bytes <> 0 OR body_block IS NOT NULL
             OR salt IS NOT NULL OR digest <> zeroblob(32) OR head IS NOT NULL
             OR body IS NOT NULL)",
    ),
];

impl SqliteReader<'_> {
    /// Returns the newest row of an audit chain.
    pub(super) fn audit_end(&self, session: SessionKey) -> StoreResult<AuditEnd> {
        let sql = match session {
            RECEIPTS => "SELECT audit_seq, audit AS chain FROM receipt_chain WHERE session = ?1",
            _ => "SELECT audit_seq, audit AS chain FROM sessions WHERE key = ?1",
        };
        self.one(sql, [session.0], |row| audit_end(row))?
            .ok_or_else(|| missing("the audit chain of session", session.0))
    }

    fn keys<T>(&self, sql: &str, of: i64, key: fn(i64) -> T) -> StoreResult<Vec<T>> {
        let keys = self.all(sql, [of], |row| row.get::<i64>("key"))?;
        Ok(keys.into_iter().map(key).collect())
    }

    /// Returns the number of the first row from `from` on of a loop in `table`.
    fn next_of(&self, table: &str, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>> {
        let sql = format!(
            "SELECT id AS next FROM {table} WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT 1"
        );
        let ids = [packed(loop_key.0, from), packed(loop_key.0, u32::MAX)];
        self.first(&sql, ids, |row| row.number("next"))
    }
}

/// Returns the key of a message among the redacted ones.
pub(super) fn owner_of(place: MessagePlace) -> i64 {
    match place {
        MessagePlace::InLoop(loop_key, seq) => packed(loop_key.0, seq),
        MessagePlace::InBlock(block, ordinal) => -packed(block.0, ordinal),
    }
}

/// Returns the key of an owner among those that show blobs.
pub(super) fn shower_of(owner: BlobOwner) -> i64 {
    match owner {
        BlobOwner::Message(loop_key, seq) => packed(loop_key.0, seq),
        BlobOwner::Block(block) => -packed(block.0, 0),
    }
}

impl ScanSessions for SqliteReader<'_> {
    fn session_keys(&self) -> StoreResult<Vec<SessionKey>> {
        // NOT INDEXED: what the table holds counts, not what a damaged index says of it.
        let sql = "SELECT key FROM sessions NOT INDEXED WHERE key >= ?1 ORDER BY key";
        self.keys(sql, i64::MIN, SessionKey)
    }

    fn continuations(&self, session: SessionKey) -> StoreResult<Continuations> {
        Ok(Continuations {
            by: self.keys(
                "SELECT DISTINCT c.session AS key
                 FROM loops p CROSS JOIN loops c ON c.parent_loop_id = p.loop_id
                 WHERE p.session = ?1 AND c.parent IS NULL AND c.parent_loop_id IS NOT NULL
                     AND c.session <> ?1
                 ORDER BY c.session",
                session.0,
                SessionKey,
            )?,
            of: self.keys(
                "SELECT DISTINCT p.session AS key
                 FROM loops c CROSS JOIN loops p ON p.loop_id = c.parent_loop_id
                 WHERE c.session = ?1 AND c.parent IS NULL AND c.parent_loop_id IS NOT NULL
                     AND p.session <> ?1
                 ORDER BY p.session",
                session.0,
                SessionKey,
            )?,
        })
    }

    fn texts(
        &self,
        session: SessionKey,
        visit: &mut dyn FnMut(TextCell<'_>) -> StoreResult<()>,
    ) -> StoreResult<()> {
        self.read_texts(session, visit)
    }
}

impl ScanLoops for SqliteReader<'_> {
    fn loop_keys(&self, session: SessionKey) -> StoreResult<Vec<LoopKey>> {
        self.keys(
            "SELECT key FROM loops WHERE session = ?1 ORDER BY key",
            session.0,
            LoopKey,
        )
    }
}

impl ScanMessages for SqliteReader<'_> {
    fn next_turn(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>> {
        self.next_of("turns", loop_key, from)
    }

    fn next_message(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>> {
        self.next_of("messages", loop_key, from)
    }

    fn redaction(&self, place: MessagePlace) -> StoreResult<Option<Redaction>> {
        self.first(
            "SELECT receipt, salt, digest FROM redactions WHERE owner = ?1",
            [owner_of(place)],
            |row| redaction(row),
        )
    }
}

impl ScanBlobs for SqliteReader<'_> {
    fn blobs_of(&self, owner: BlobOwner) -> StoreResult<Vec<[u8; 32]>> {
        self.all(
            "SELECT b.sha256 FROM blob_refs r JOIN blobs b ON b.key = r.blob WHERE r.owner = ?1",
            [shower_of(owner)],
            |row| row.get("sha256"),
        )
    }

    fn next_blob(&self, after: i64) -> StoreResult<Option<i64>> {
        self.first(
            "SELECT key FROM blobs NOT INDEXED WHERE key > ?1 ORDER BY key LIMIT 1",
            [after],
            |row| row.get("key"),
        )
    }

    fn blob_row(&self, key: i64) -> StoreResult<StoredBlob> {
        let sql = "SELECT sha256, bytes, data FROM blobs WHERE key = ?1";
        let row = self.first(sql, [key], |row| stored_blob(row))?;
        row.ok_or_else(|| missing("blob", key))
    }
}

impl ScanRuns for SqliteReader<'_> {
    fn run_keys(&self, session: SessionKey) -> StoreResult<Vec<RunKey>> {
        self.keys(
            "SELECT key FROM runs WHERE session = ?1 ORDER BY tick, key",
            session.0,
            RunKey,
        )
    }

    fn run_and_digest(&self, key: RunKey) -> StoreResult<(RunRow, Option<[u8; 32]>)> {
        let sql = format!("SELECT key, {RUN_COLUMNS} FROM runs WHERE key = ?1");
        self.first(&sql, [key.0], |row| Ok((run_row(row)?, row.get("digest")?)))?
            .ok_or_else(|| missing("run", key.0))
    }

    fn part_digests(&self, run: RunKey) -> StoreResult<Vec<[u8; 32]>> {
        let blocks = "SELECT digest FROM blocks WHERE run = ?1 ORDER BY key";
        let mut digests: Vec<[u8; 32]> = self.all(blocks, [run.0], |row| row.get("digest"))?;
        let edits = "SELECT digest FROM edits WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
        let ids = [packed(run.0, 0), packed(run.0, u32::MAX)];
        digests.extend(self.all(edits, ids, |row| row.get::<[u8; 32]>("digest"))?);
        Ok(digests)
    }

    fn flip_keys(&self, session: SessionKey) -> StoreResult<Vec<FlipKey>> {
        self.keys(
            "SELECT key FROM flips WHERE session = ?1 ORDER BY tick, key",
            session.0,
            FlipKey,
        )
    }

    fn flip_and_digest(&self, key: FlipKey) -> StoreResult<(FlipRow, [u8; 32])> {
        self.first(
            &format!("SELECT {FLIP_COLUMNS} FROM flips WHERE key = ?1"),
            [key.0],
            |row| with_digest(row, flip_row),
        )?
        .ok_or_else(|| missing("flip", key.0))
    }
}

impl ScanPins for SqliteReader<'_> {
    fn pin_keys(&self, session: SessionKey) -> StoreResult<Vec<PinKey>> {
        let sql = "SELECT key FROM pins WHERE session = ?1 ORDER BY tick, key";
        self.keys(sql, session.0, PinKey)
    }

    fn pin_and_digest(&self, key: PinKey) -> StoreResult<(PinRow, [u8; 32])> {
        self.first(
            &format!("SELECT {PIN_COLUMNS} FROM pins WHERE key = ?1"),
            [key.0],
            |row| with_digest(row, pin_row),
        )?
        .ok_or_else(|| missing("pin", key.0))
    }
}

impl ScanHides for SqliteReader<'_> {
    fn hide_keys(&self, session: SessionKey) -> StoreResult<Vec<HideKey>> {
        let sql = "SELECT key FROM hides WHERE session = ?1 ORDER BY key";
        self.keys(sql, session.0, HideKey)
    }

    fn hide_and_digest(&self, key: HideKey) -> StoreResult<(HideRow, [u8; 32])> {
        self.first(
            &format!("SELECT {HIDE_COLUMNS} FROM hides WHERE key = ?1"),
            [key.0],
            |row| with_digest(row, hide_row),
        )?
        .ok_or_else(|| missing("hide", key.0))
    }
}

impl ScanBlocks for SqliteReader<'_> {
    fn block_keys(&self, loop_key: LoopKey) -> StoreResult<Vec<BlockKey>> {
        self.keys(
            "SELECT key FROM blocks WHERE loop = ?1 ORDER BY generation, key",
            loop_key.0,
            BlockKey,
        )
    }

    fn block_and_digest(&self, key: BlockKey) -> StoreResult<(BlockRow, [u8; 32])> {
        let sql = format!("SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE key = ?1");
        self.first(&sql, [key.0], |row| with_digest(row, block_row))?
            .ok_or_else(|| missing("block", key.0))
    }
}

impl ScanManifests for SqliteReader<'_> {
    fn manifest_keys(&self, session: SessionKey) -> StoreResult<Vec<ManifestKey>> {
        self.keys(
            "SELECT key FROM manifests WHERE session = ?1 ORDER BY key",
            session.0,
            ManifestKey,
        )
    }

    fn manifest_and_digest(&self, key: ManifestKey) -> StoreResult<(ManifestRow, [u8; 32])> {
        let sql = format!("SELECT key, {MANIFEST_COLUMNS} FROM manifests WHERE key = ?1");
        self.first(&sql, [key.0], |row| with_digest(row, manifest_row))?
            .ok_or_else(|| missing("manifest", key.0))
    }
}

impl ScanAudit for SqliteReader<'_> {
    fn audit_chain(&self, session: SessionKey) -> StoreResult<AuditChain> {
        let end = self.audit_end(session)?;
        let rows = self.all(
            "SELECT audit_seq, kind, digest, was, chain FROM audit
             WHERE session = ?1 ORDER BY audit_seq",
            [session.0],
            |row| audit_row(row),
        )?;
        Ok(AuditChain { end, rows })
    }

    fn receipt_chains(&self) -> StoreResult<Vec<AuditChain>> {
        Ok(vec![self.audit_chain(RECEIPTS)?])
    }

    fn head(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        let sql = "SELECT content FROM heads WHERE sha256 = ?1";
        self.first(sql, [sha256], |row| row.get("content"))
    }
}

impl ScanSources for SqliteReader<'_> {
    fn import_keys(&self, session: SessionKey) -> StoreResult<Vec<i64>> {
        let sql = "SELECT key FROM imports WHERE session = ?1 ORDER BY key";
        self.all(sql, [session.0], |row| row.get("key"))
    }

    fn import_and_digest(&self, key: i64) -> StoreResult<(ImportNote, [u8; 32])> {
        let sql = format!("SELECT key, {IMPORT_COLUMNS} FROM imports WHERE key = ?1");
        self.first(&sql, [key], |row| with_digest(row, import_note))?
            .ok_or_else(|| missing("import", key))
    }

    fn source_keys(&self) -> StoreResult<Vec<SourceKey>> {
        let sql = "SELECT key FROM sources ORDER BY key";
        self.all(sql, [], |row| row.get("key"))
    }

    fn sessions_of(&self, source: SourceKey) -> StoreResult<Vec<SessionKey>> {
        self.keys(
            "SELECT session AS key FROM source_sessions WHERE source = ?1 ORDER BY session",
            source.0,
            SessionKey,
        )
    }

    fn source_row(&self, key: SourceKey) -> StoreResult<SourceRow> {
        let sql = "SELECT key, format, path, bytes, digest FROM sources WHERE key = ?1";
        let row = self.first(sql, [key.0], |row| source_row(row))?;
        row.ok_or_else(|| missing("source", key.0))
    }
}

impl ScanReceipts for SqliteReader<'_> {
    fn receipts(&self) -> StoreResult<Vec<ReceiptRow>> {
        self.all(
            "SELECT key, session, kind, opened_at, closed_at, detail FROM maintenance ORDER BY key",
            [],
            |row| receipt_row(row),
        )
    }
}

impl StoreScan for SqliteReader<'_> {
    fn strays(&self, limit: u32) -> StoreResult<Vec<String>> {
        let mut found = Vec::new();
        for (table, key, condition) in STRAYS {
            let sql = format!("SELECT {key} AS key FROM {table} t WHERE {condition} LIMIT ?1");
            for key in self.all(&sql, [limit], |row| row.get::<i64>("key"))? {
                found.push(format!("{table}, row {key}"));
            }
        }
        Ok(found)
    }
}
