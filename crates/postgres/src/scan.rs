//! Reading of all rows for `verify`.

use super::source::SOURCE;
use loopstore_core::store::audit::{AuditChain, AuditEnd};
use loopstore_core::store::columns::{Columns, missing};
use loopstore_core::store::mapping::*;
use loopstore_core::store::scan::{
    BlobOwner, Continuations, MessagePlace, ScanAudit, ScanBlobs, ScanBlocks, ScanHides, ScanLoops,
    ScanManifests, ScanMessages, ScanPins, ScanReceipts, ScanRuns, ScanSessions, ScanSources,
    StoreScan, TextCell,
};
use loopstore_core::store::*;

use super::connection::Param;
use super::keys::session_of;
use super::transaction::PostgresTransaction;
use super::write::Owner;

/// Orphaned rows that no foreign key finds: a table with its row `t`, the name for the report, and the
/// condition. A table with another distribution is joined as a whole (OFFSET 0).
const STRAYS: [(&str, &str, &str); 8] = [
    (
        "blob_refs t",
        "t.owner || '/' || t.number",
        "CASE WHEN t.in_block
             THEN NOT EXISTS (SELECT 1 FROM blocks WHERE session = t.session AND key = t.owner)
             ELSE NOT EXISTS (SELECT 1 FROM messages
                 WHERE session = t.session AND loop = t.owner AND seq = t.number) END",
    ),
    (
        "redactions t",
        "t.owner || '/' || t.number",
        "CASE WHEN t.in_block
             THEN NOT EXISTS (SELECT 1 FROM block_messages
                 WHERE session = t.session AND block = t.owner AND ordinal = t.number)
             ELSE NOT EXISTS (SELECT 1 FROM messages
                 WHERE session = t.session AND loop = t.owner AND seq = t.number) END",
    ),
    (
        "packs t",
        "t.loop || '/' || t.seq",
        "NOT EXISTS (SELECT 1 FROM messages
             WHERE session = t.session AND loop = t.loop AND seq = t.seq)",
    ),
    (
        "packed_heads t",
        "t.loop || '/' || t.seq",
        "NOT EXISTS (SELECT 1 FROM messages
             WHERE session = t.session AND loop = t.loop AND seq = t.seq)",
    ),
    (
        "session_names t LEFT JOIN (SELECT session, session_id FROM sessions OFFSET 0) s
             ON s.session = t.session AND s.session_id = t.session_id",
        "t.session_id",
        "s.session IS NULL",
    ),
    (
        "source_sessions t LEFT JOIN (SELECT session FROM sessions OFFSET 0) s
                 ON s.session = t.session
             LEFT JOIN (SELECT key FROM sources OFFSET 0) f ON f.key = t.source",
        "t.session || '/' || t.source",
        "s.session IS NULL OR f.key IS NULL",
    ),
    (
        "source_pieces t",
        "encode(t.sha256, 'hex')",
        "NOT EXISTS (SELECT 1 FROM source_parts
             WHERE source = t.source AND sha256 = t.sha256)",
    ),
    (
        "block_messages t",
        "t.block || '/' || t.ordinal",
        "role IS NULL AND (tokens <> 0 OR bytes <> 0 OR body_block IS NOT NULL
             OR salt IS NOT NULL OR digest <> decode(repeat('00', 32), 'hex')
             OR head IS NOT NULL OR body IS NOT NULL)",
    ),
];

impl PostgresTransaction<'_> {
    /// Returns the keys that a query over a session selects; $2 may be the key of the row that the query is
    /// about.
    fn keys<T>(&self, sql: &str, of: i64, key: fn(i64) -> T) -> StoreResult<Vec<T>> {
        let keys = self.all(of, sql, &[&of], |row| row.get::<i64>("key"))?;
        Ok(keys.into_iter().map(key).collect())
    }

    fn next_of(&self, sql: &str, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>> {
        let session = session_of(loop_key.0);
        let params: [Param<'_>; 3] = [&session, &loop_key.0, &i64::from(from)];
        self.first(session, sql, &params, |row| row.get("next"))
    }
}

/// Returns the key of a message in the table of redactions.
pub(super) fn owner_of(place: MessagePlace) -> Owner {
    match place {
        MessagePlace::InLoop(loop_key, seq) => Owner::message(loop_key, seq),
        MessagePlace::InBlock(block, ordinal) => Owner::block(block, ordinal),
    }
}

/// Returns the key of an owner in the table of references to blobs.
pub(super) fn shower_of(owner: BlobOwner) -> Owner {
    match owner {
        BlobOwner::Message(loop_key, seq) => Owner::message(loop_key, seq),
        BlobOwner::Block(block) => Owner::block(block, 0),
    }
}

impl ScanSessions for PostgresTransaction<'_> {
    fn session_keys(&self) -> StoreResult<Vec<SessionKey>> {
        let sql = "SELECT session FROM sessions ORDER BY session";
        self.all_of_any(sql, &[], |row| row.get("session"))
    }

    fn continuations(&self, session: SessionKey) -> StoreResult<Continuations> {
        // Each side is a query of its own: a join of loops by their names would join all shards with all.
        let names = |sql| -> StoreResult<Vec<String>> {
            self.all(session.0, sql, &[&session.0], |row| row.get("name"))
        };
        let others = |sql, names: Vec<String>| match names.is_empty() {
            true => Ok(Vec::new()),
            false => self.all_of_any(sql, &[&names, &session.0], |row| row.get("session")),
        };
        let own = names("SELECT loop_id AS name FROM loops WHERE session = $1")?;
        let parents = names(
            "SELECT DISTINCT parent_loop_id AS name FROM loops
             WHERE session = $1 AND parent IS NULL AND parent_loop_id IS NOT NULL",
        )?;
        Ok(Continuations {
            by: others(
                "SELECT DISTINCT session FROM loops
                 WHERE parent_loop_id = ANY ($1) AND parent IS NULL AND parent_loop_id IS NOT NULL
                     AND session <> $2
                 ORDER BY session",
                own,
            )?,
            of: others(
                "SELECT DISTINCT session FROM loops WHERE loop_id = ANY ($1) AND session <> $2
                 ORDER BY session",
                parents,
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

impl ScanLoops for PostgresTransaction<'_> {
    fn loop_keys(&self, session: SessionKey) -> StoreResult<Vec<LoopKey>> {
        let sql = "SELECT key FROM loops WHERE session = $1 ORDER BY key";
        self.keys(sql, session.0, LoopKey)
    }
}

impl ScanMessages for PostgresTransaction<'_> {
    fn next_turn(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>> {
        let sql = "SELECT turn AS next FROM turns
             WHERE session = $1 AND loop = $2 AND turn >= $3 ORDER BY turn LIMIT 1";
        self.next_of(sql, loop_key, from)
    }

    fn next_message(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>> {
        let sql = "SELECT seq AS next FROM messages
             WHERE session = $1 AND loop = $2 AND seq >= $3 ORDER BY seq LIMIT 1";
        self.next_of(sql, loop_key, from)
    }

    fn redaction(&self, place: MessagePlace) -> StoreResult<Option<Redaction>> {
        let owner = owner_of(place);
        let session = session_of(owner.key);
        let sql = "SELECT receipt, salt, digest FROM redactions
             WHERE session = $1 AND owner = $2 AND number = $3 AND in_block = $4";
        let params: [Param<'_>; 4] = [&session, &owner.key, &owner.number, &owner.in_block];
        self.first(session, sql, &params, redaction)
    }
}

impl ScanBlobs for PostgresTransaction<'_> {
    fn blobs_of(&self, owner: BlobOwner) -> StoreResult<Vec<[u8; 32]>> {
        let owner = shower_of(owner);
        let session = session_of(owner.key);
        let sql = "SELECT b.sha256 FROM blob_refs r
                 JOIN blobs b ON b.session = $1 AND b.key = r.blob
             WHERE r.session = $1 AND r.owner = $2 AND r.number = $3 AND r.in_block = $4";
        let params: [Param<'_>; 4] = [&session, &owner.key, &owner.number, &owner.in_block];
        self.all(session, sql, &params, |row| row.get("sha256"))
    }

    fn next_blob(&self, after: i64) -> StoreResult<Option<i64>> {
        let sql = "SELECT key FROM blobs WHERE (session, key) > ($1, $2)
             ORDER BY session, key LIMIT 1";
        let params: [Param<'_>; 2] = [&session_of(after), &after];
        self.first_of_any(sql, &params, |row| row.get("key"))
    }

    fn blob_row(&self, key: i64) -> StoreResult<StoredBlob> {
        let session = session_of(key);
        let sql = "SELECT sha256, bytes, data FROM blobs WHERE session = $1 AND key = $2";
        let row = self.first(session, sql, &[&session, &key], stored_blob)?;
        row.ok_or_else(|| missing("blob", key))
    }
}

impl ScanRuns for PostgresTransaction<'_> {
    fn run_keys(&self, session: SessionKey) -> StoreResult<Vec<RunKey>> {
        let sql = "SELECT key FROM runs WHERE session = $1 ORDER BY tick, key";
        self.keys(sql, session.0, RunKey)
    }

    fn run_and_digest(&self, key: RunKey) -> StoreResult<(RunRow, Option<[u8; 32]>)> {
        let session = session_of(key.0);
        let sql = format!("SELECT key, {RUN_COLUMNS} FROM runs WHERE session = $1 AND key = $2");
        let row = self.first(session, &sql, &[&session, &key.0], |row| {
            Ok((run_row(row)?, row.get("digest")?))
        })?;
        row.ok_or_else(|| missing("run", key.0))
    }

    fn part_digests(&self, run: RunKey) -> StoreResult<Vec<[u8; 32]>> {
        let session = session_of(run.0);
        let mut digests: Vec<[u8; 32]> = Vec::new();
        for sql in [
            "SELECT digest FROM blocks WHERE session = $1 AND run = $2 ORDER BY key",
            "SELECT digest FROM edits WHERE session = $1 AND run = $2 ORDER BY ordinal",
        ] {
            digests.extend(self.all(session, sql, &[&session, &run.0], |row| {
                row.get::<[u8; 32]>("digest")
            })?);
        }
        Ok(digests)
    }

    fn flip_keys(&self, session: SessionKey) -> StoreResult<Vec<FlipKey>> {
        let sql = "SELECT key FROM flips WHERE session = $1 ORDER BY tick, key";
        self.keys(sql, session.0, FlipKey)
    }

    fn flip_and_digest(&self, key: FlipKey) -> StoreResult<(FlipRow, [u8; 32])> {
        let session = session_of(key.0);
        let sql = format!("SELECT {FLIP_COLUMNS} FROM flips WHERE session = $1 AND key = $2");
        let row = self.first(session, &sql, &[&session, &key.0], |row| {
            with_digest(row, flip_row)
        })?;
        row.ok_or_else(|| missing("flip", key.0))
    }
}

impl ScanPins for PostgresTransaction<'_> {
    fn pin_keys(&self, session: SessionKey) -> StoreResult<Vec<PinKey>> {
        let sql = "SELECT key FROM pins WHERE session = $1 ORDER BY tick, key";
        self.keys(sql, session.0, PinKey)
    }

    fn pin_and_digest(&self, key: PinKey) -> StoreResult<(PinRow, [u8; 32])> {
        let session = session_of(key.0);
        let sql = format!("SELECT {PIN_COLUMNS} FROM pins WHERE session = $1 AND key = $2");
        let row = self.first(session, &sql, &[&session, &key.0], |row| {
            with_digest(row, pin_row)
        })?;
        row.ok_or_else(|| missing("pin", key.0))
    }
}

impl ScanHides for PostgresTransaction<'_> {
    fn hide_keys(&self, session: SessionKey) -> StoreResult<Vec<HideKey>> {
        let sql = "SELECT key FROM hides WHERE session = $1 ORDER BY key";
        self.keys(sql, session.0, HideKey)
    }

    fn hide_and_digest(&self, key: HideKey) -> StoreResult<(HideRow, [u8; 32])> {
        let session = session_of(key.0);
        let sql = format!("SELECT {HIDE_COLUMNS} FROM hides WHERE session = $1 AND key = $2");
        let row = self.first(session, &sql, &[&session, &key.0], |row| {
            with_digest(row, hide_row)
        })?;
        row.ok_or_else(|| missing("hide", key.0))
    }
}

impl ScanBlocks for PostgresTransaction<'_> {
    fn block_keys(&self, loop_key: LoopKey) -> StoreResult<Vec<BlockKey>> {
        let session = session_of(loop_key.0);
        let sql =
            "SELECT key FROM blocks WHERE session = $1 AND loop = $2 ORDER BY generation, key";
        self.all(session, sql, &[&session, &loop_key.0], |row| row.get("key"))
    }

    fn block_and_digest(&self, key: BlockKey) -> StoreResult<(BlockRow, [u8; 32])> {
        let session = session_of(key.0);
        let sql =
            format!("SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE session = $1 AND key = $2");
        let row = self.first(session, &sql, &[&session, &key.0], |row| {
            with_digest(row, block_row)
        })?;
        row.ok_or_else(|| missing("block", key.0))
    }
}

impl ScanManifests for PostgresTransaction<'_> {
    fn manifest_keys(&self, session: SessionKey) -> StoreResult<Vec<ManifestKey>> {
        let sql = "SELECT key FROM manifests WHERE session = $1 ORDER BY key";
        self.keys(sql, session.0, ManifestKey)
    }

    fn manifest_and_digest(&self, key: ManifestKey) -> StoreResult<(ManifestRow, [u8; 32])> {
        let session = session_of(key.0);
        let sql = format!(
            "SELECT key, {MANIFEST_COLUMNS} FROM manifests WHERE session = $1 AND key = $2"
        );
        let row = self.first(session, &sql, &[&session, &key.0], |row| {
            with_digest(row, manifest_row)
        })?;
        row.ok_or_else(|| missing("manifest", key.0))
    }
}

impl ScanAudit for PostgresTransaction<'_> {
    fn audit_chain(&self, session: SessionKey) -> StoreResult<AuditChain> {
        let end = self.session_audit(session)?;
        let sql = "SELECT audit_seq, kind, digest, was, chain FROM audit
             WHERE session = $1 ORDER BY audit_seq";
        let rows = self.all(session.0, sql, &[&session.0], audit_row)?;
        Ok(AuditChain { end, rows })
    }

    fn receipt_chains(&self) -> StoreResult<Vec<AuditChain>> {
        let sql = "SELECT tenant, audit_seq, audit AS chain FROM receipt_chain ORDER BY tenant";
        let ends: Vec<(String, AuditEnd)> =
            self.all_of_any(sql, &[], |row| Ok((row.get("tenant")?, audit_end(row)?)))?;
        let chains = ends.into_iter().map(|(tenant, end)| {
            let sql = "SELECT audit_seq, kind, digest, was, chain FROM audit
                 WHERE session = 0 AND tenant = $1 ORDER BY audit_seq";
            let rows = self.all_of_any(sql, &[&tenant], audit_row)?;
            Ok(AuditChain { end, rows })
        });
        chains.collect()
    }

    fn head(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        let sql = "SELECT content FROM heads WHERE sha256 = $1";
        self.first_of_any(sql, &[&&sha256[..]], |row| row.get("content"))
    }
}

impl ScanSources for PostgresTransaction<'_> {
    fn import_keys(&self, session: SessionKey) -> StoreResult<Vec<i64>> {
        let sql = "SELECT key FROM imports WHERE session = $1 ORDER BY key";
        self.all(session.0, sql, &[&session.0], |row| row.get("key"))
    }

    fn import_and_digest(&self, key: i64) -> StoreResult<(ImportNote, [u8; 32])> {
        let session = session_of(key);
        let sql =
            format!("SELECT key, {IMPORT_COLUMNS} FROM imports WHERE session = $1 AND key = $2");
        let row = self.first(session, &sql, &[&session, &key], |row| {
            with_digest(row, import_note)
        })?;
        row.ok_or_else(|| missing("import", key))
    }

    fn source_keys(&self) -> StoreResult<Vec<SourceKey>> {
        let sql = "SELECT key FROM sources ORDER BY key";
        self.all_of_any(sql, &[], |row| row.get("key"))
    }

    fn sessions_of(&self, source: SourceKey) -> StoreResult<Vec<SessionKey>> {
        let sql = "SELECT session FROM source_sessions WHERE source = $1 ORDER BY session";
        self.all_of_any(sql, &[&source.0], |row| row.get("session"))
    }

    fn source_row(&self, key: SourceKey) -> StoreResult<SourceRow> {
        let row =
            self.first_of_any(&format!("{SOURCE} WHERE s.key = $1"), &[&key.0], source_row)?;
        row.ok_or_else(|| missing("source", key.0))
    }
}

impl ScanReceipts for PostgresTransaction<'_> {
    fn receipts(&self) -> StoreResult<Vec<ReceiptRow>> {
        let sql = "SELECT key, session, kind, opened_at, closed_at, detail FROM maintenance
             ORDER BY opened_at COLLATE \"C\", key";
        self.all_of_any(sql, &[], receipt_row)
    }
}

impl StoreScan for PostgresTransaction<'_> {
    fn strays(&self, limit: u32) -> StoreResult<Vec<String>> {
        let mut found = Vec::new();
        for (table, name, condition) in STRAYS {
            let sql = format!("SELECT {name} AS name FROM {table} WHERE {condition} LIMIT $1");
            let table = table.split(' ').next().unwrap_or_default();
            let names =
                self.all_of_any(&sql, &[&i64::from(limit)], |row| row.get::<String>("name"))?;
            found.extend(names.iter().map(|name| format!("{table}, row {name}")));
        }
        Ok(found)
    }
}
