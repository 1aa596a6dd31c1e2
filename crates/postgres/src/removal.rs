//! Removing content: the rows of a session and their texts.
//!
//! Every table has the session as a column, so that the name of a table is enough; the contents of its columns
//! are listed once for all backends.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::internal::content::{place_of, table_names, texts};
use loopstore_core::store::audit::AuditEntry;
use loopstore_core::store::audit::{DIGESTED, row_digest};
use loopstore_core::store::codec::role_number;
use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::{EDIT_COLUMNS, edit_values, signed};
use loopstore_core::store::removal::*;
use loopstore_core::store::scan::{BlobOwner, MessagePlace, ScanEdits, TextCell, TextForm};
use loopstore_core::store::values::BoundValue;
use loopstore_core::store::{
    BlockKey, BlockRow, EditRow, ReadSessions, RunKey, SessionKey, SourceKey, StoreError,
    StoreResult, StoredMessage, digest,
};
use loopstore_model::Time;

use super::connection::Param;
use super::keys::session_of;
use super::row::escaped;
use super::scan::{owner_of, shower_of};
use super::transaction::PostgresTransaction;

fn damaged(what: &str, key: i64) -> StoreError {
    StoreError::Damaged(format!("{what} {key} is not what was stored"))
}

/// A text in a row: the position of the row, its key if digests depend on it, and the text.
struct Cell {
    place: String,
    key: i64,
    text: String,
}

impl PostgresTransaction<'_> {
    fn cells(&self, table: &str, column: &str, session: SessionKey) -> StoreResult<Vec<Cell>> {
        let key = if DIGESTED.contains(&table) {
            "key"
        } else {
            "0::BIGINT"
        };
        let sql = format!(
            "SELECT ctid::TEXT AS place, {key} AS key, {column} AS text FROM {table}
             WHERE session = $1 AND {column} IS NOT NULL ORDER BY ctid"
        );
        self.all(session.0, &sql, &[&session.0], |row| {
            Ok(Cell {
                place: row.get("place")?,
                key: row.get("key")?,
                text: row.get("text")?,
            })
        })
    }

    /// Checks the digest of a row, and the digest of the run if the row belongs to a block.
    fn check_row(&self, table: &str, key: i64) -> StoreResult<()> {
        let row = row_digest(self, table, key)?;
        if row.stored != row.derived {
            return Err(damaged(table, key));
        }
        match row.run {
            Some(run) => self.check_row("runs", run.0),
            None => Ok(()),
        }
    }

    /// Derives the digest of a changed row again, and the digest of the run if the row belongs to a block, and
    /// records it in the audit chain.
    fn renew_row(&self, table: &str, key: i64) -> StoreResult<()> {
        let row = row_digest(self, table, key)?;
        if row.stored == row.derived {
            return Ok(());
        }
        if let Some(kind) = row.kind {
            let (digest, was) = (row.derived, Some(row.stored));
            self.write_audit(row.session, &AuditEntry { kind, digest, was })?;
        }
        let session = session_of(key);
        let sql = format!("UPDATE {table} SET digest = $3 WHERE session = $1 AND key = $2");
        self.run(session, &sql, &[&session, &key, &&row.derived[..]])?;
        match row.run {
            Some(run) => self.renew_row("runs", run.0),
            None => Ok(()),
        }
    }

    /// Visits the texts of a session, including ids.
    pub(super) fn read_texts(
        &self,
        session: SessionKey,
        visit: &mut dyn FnMut(TextCell<'_>) -> StoreResult<()>,
    ) -> StoreResult<()> {
        for table in table_names() {
            for (column, form) in texts(table) {
                let place = place_of(table, column);
                for cell in self.cells(table, column, session)? {
                    let text = &cell.text;
                    visit(TextCell { place, form, text })?;
                }
            }
        }
        Ok(())
    }

    fn change_column(
        &self,
        table: &'static str,
        (column, form): (&'static str, TextForm),
        session: SessionKey,
        change: &mut dyn FnMut(TextCell<'_>) -> StoreResult<Option<String>>,
        touched: &mut BTreeSet<i64>,
    ) -> StoreResult<u64> {
        let place = place_of(table, column);
        let mut changed = 0;
        for cell in self.cells(table, column, session)? {
            let text = &cell.text;
            let Some(new) = change(TextCell { place, form, text })? else {
                continue;
            };
            if DIGESTED.contains(&table) && touched.insert(cell.key) {
                self.check_row(table, cell.key)?;
            }
            let sql = format!(
                "UPDATE {table} SET {column} = $3 WHERE session = $1 AND ctid = $2::TEXT::TID"
            );
            self.run(session.0, &sql, &[&session.0, &cell.place, &new])?;
            changed += 1;
        }
        Ok(changed)
    }

    fn remove_rows_of(&self, table: &str, session: SessionKey) -> StoreResult<u64> {
        let sql = format!("DELETE FROM {table} WHERE session = $1");
        self.run(session.0, &sql, &[&session.0])
    }

    /// Removes the name of a session. The row is searched for on its own, since its table is distributed by the
    /// name.
    fn remove_name(&self, session: SessionKey) -> StoreResult<()> {
        let id = self.session_by_key(session)?.session_id;
        for sql in [
            "UPDATE session_names SET leaves = TRUE WHERE session_id = $2 AND session = $1",
            "DELETE FROM session_names WHERE session_id = $2 AND session = $1",
        ] {
            self.run(session.0, sql, &[&session.0, &id.as_str()])?;
        }
        Ok(())
    }

    /// Removes the blobs of a session; returns the number of blobs that no other session has, and of those that
    /// another session has too.
    fn remove_blobs(&self, session: SessionKey) -> StoreResult<(u64, u64)> {
        let sql = "SELECT count(*) AS n FROM blobs WHERE session = $1 AND sha256 IN (
                 SELECT o.sha256 FROM blobs o WHERE o.session <> $1
             )";
        let shared = self.first(session.0, sql, &[&session.0], |row| row.get("n"))?;
        let gone = self.remove_rows_of("blobs", session)?;
        let shared = shared.unwrap_or(0);
        Ok((gone.saturating_sub(shared), shared))
    }

    /// Counts the parts of a kept file that another file contains too.
    fn shared_parts(&self, source: SourceKey) -> StoreResult<u64> {
        let sql = "SELECT count(*) AS n FROM source_parts WHERE source = $1 AND sha256 IN (
                 SELECT o.sha256 FROM source_pieces o WHERE o.source <> $1
             )";
        let count = self.first_of_any(sql, &[&source.0], |row| row.get("n"))?;
        Ok(count.unwrap_or(0))
    }

    fn update_message(&self, place: MessagePlace, new: &StoredMessage) -> StoreResult<()> {
        let owner = owner_of(place);
        let session = session_of(owner.key);
        let (table, of, number, lines) = match place {
            MessagePlace::InLoop(..) => ("messages", "loop", "seq", ", lines = $11"),
            MessagePlace::InBlock(..) => ("block_messages", "block", "ordinal", ""),
        };
        // The role is written again, since it distinguishes a message from a dropped one.
        let sql = format!(
            "UPDATE {table} SET head = $4, body = $5, escaped = $6, body_block = $7, tokens = $8,
                 bytes = $9, role = $10, salt = NULL{lines}
             WHERE session = $1 AND {of} = $2 AND {number} = $3"
        );
        let safe = escaped(new.text.as_deref());
        let text = safe.as_deref().or(new.text.as_deref());
        let is_escaped = safe.is_some();
        let (block, many) = (new.text_block.map(i64::from), new.lines.map(i64::from));
        let (tokens, bytes) = (signed(new.tokens)?, signed(new.bytes)?);
        let role = i64::from(role_number(new.role));
        let mut params: Vec<Param<'_>> = vec![
            &session,
            &owner.key,
            &owner.number,
            &new.head,
            &text,
            &is_escaped,
            &block,
            &tokens,
            &bytes,
            &role,
        ];
        if !lines.is_empty() {
            params.push(&many);
        }
        self.run(session, &sql, &params).map(drop)
    }
}

impl WriteReceipts for PostgresTransaction<'_> {
    fn open_receipt(
        &mut self,
        session: SessionKey,
        kind: &str,
        opened_at: &str,
    ) -> StoreResult<i64> {
        let key = self.next_key("maintenance", session.0)?;
        self.run(
            session.0,
            "INSERT INTO maintenance (session, key, kind, opened_at, detail)
             VALUES ($1, $2, $3, $4, '{}')",
            &[&session.0, &key, &kind, &opened_at],
        )?;
        Ok(key)
    }

    fn close_receipt(&mut self, key: i64, detail: &str) -> StoreResult<()> {
        let session = session_of(key);
        self.run(
            session,
            "UPDATE maintenance SET closed_at = $3, detail = $4 WHERE session = $1 AND key = $2",
            &[&session, &key, &Time::now().as_str(), &detail],
        )?;
        Ok(())
    }

    fn note_scrub(&mut self) -> StoreResult<()> {
        self.execute(
            "INSERT INTO store_meta (name, value) VALUES ('scrub', $1)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            &[&loopstore_model::clock::new_uuid().to_string()],
        )?;
        Ok(())
    }
}

impl RemoveSessions for PostgresTransaction<'_> {
    fn remove_session(&mut self, session: SessionKey) -> StoreResult<SessionRemoved> {
        for table in ["message_words", "indexed_loops"] {
            self.remove_rows_of(table, session)?;
        }
        let mut removed = SessionRemoved {
            rows: BTreeMap::new(),
            shared_blobs: 0,
        };
        for table in table_names() {
            if table == "sessions" {
                let (gone, shared) = self.remove_blobs(session)?;
                removed.shared_blobs = shared;
                if gone > 0 {
                    removed.rows.insert("blobs", gone);
                }
                self.remove_name(session)?;
            }
            let gone = self.remove_rows_of(table, session)?;
            if gone > 0 {
                removed.rows.insert(table, gone);
            }
        }
        Ok(removed)
    }

    fn remove_source(&mut self, source: SourceKey) -> StoreResult<u64> {
        let shared = self.shared_parts(source)?;
        for sql in [
            "DELETE FROM source_parts WHERE source = $1",
            "DELETE FROM source_pieces WHERE source = $1",
            "DELETE FROM source_sessions WHERE source = $1",
            "DELETE FROM sources WHERE key = $1",
        ] {
            self.execute(sql, &[&source.0])?;
        }
        Ok(shared)
    }

    fn unlink_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()> {
        let sql = "DELETE FROM source_sessions WHERE session = $1 AND source = $2";
        self.run(session.0, sql, &[&session.0, &source.0]).map(drop)
    }
}

impl ChangeTexts for PostgresTransaction<'_> {
    fn change_texts(
        &mut self,
        session: SessionKey,
        change: &mut dyn FnMut(TextCell<'_>) -> StoreResult<Option<String>>,
    ) -> StoreResult<TextsChanged> {
        let mut all = TextsChanged::default();
        for table in table_names() {
            let mut touched = BTreeSet::new();
            for text in
                texts(table).filter(|(_, form)| !matches!(form, TextForm::Edit | TextForm::Id))
            {
                let changed = self.change_column(table, text, session, change, &mut touched)?;
                if changed > 0 {
                    all.counts.insert(place_of(table, text.0), changed);
                }
            }
            for key in touched {
                self.renew_row(table, key)?;
            }
        }
        Ok(all)
    }
}

impl RedactMessages for PostgresTransaction<'_> {
    fn redact_message(
        &mut self,
        place: MessagePlace,
        new: &StoredMessage,
        receipt: i64,
    ) -> StoreResult<()> {
        let Some(salt) = new.salt else {
            return Err(StoreError::Invalid(
                "a redacted message needs a salt".into(),
            ));
        };
        if let MessagePlace::InLoop(loop_key, seq) = place {
            self.take_apart(loop_key, seq)?;
        }
        self.update_message(place, new)?;
        let owner = owner_of(place);
        let session = session_of(owner.key);
        self.run(
            session,
            "INSERT INTO redactions (session, owner, number, in_block, receipt, salt, digest)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (session, owner, number, in_block) DO UPDATE SET
                 receipt = excluded.receipt, salt = excluded.salt, digest = excluded.digest",
            &[
                &session,
                &owner.key,
                &owner.number,
                &owner.in_block,
                &receipt,
                &&salt[..],
                &&new.digest[..],
            ],
        )?;
        Ok(())
    }

    fn forget_blob(&mut self, owner: BlobOwner, name: &[u8; 32]) -> StoreResult<()> {
        let owner = shower_of(owner);
        let session = session_of(owner.key);
        let sql = "SELECT key FROM blobs WHERE session = $1 AND sha256 = $2";
        let blob = self.first(session, sql, &[&session, &&name[..]], |row| row.get("key"))?;
        let Some(blob): Option<i64> = blob else {
            return Ok(());
        };
        let sql = "DELETE FROM blob_refs WHERE session = $1 AND owner = $2 AND number = $3
             AND in_block = $4 AND blob = $5";
        let params: [Param<'_>; 5] = [&session, &owner.key, &owner.number, &owner.in_block, &blob];
        self.run(session, sql, &params)?;
        let sql = "DELETE FROM blobs WHERE session = $1 AND key = $2 AND NOT EXISTS (
                 SELECT 1 FROM blob_refs WHERE session = $1 AND blob = $2
             )";
        self.run(session, sql, &[&session, &blob]).map(drop)
    }

    fn resize_quote(
        &mut self,
        block: BlockKey,
        ordinal: u32,
        quote: &StoredMessage,
    ) -> StoreResult<()> {
        self.update_message(MessagePlace::InBlock(block, ordinal), quote)
    }

    fn rewrite_edits(&mut self, run: RunKey, edits: &[EditRow]) -> StoreResult<()> {
        self.check_row("runs", run.0)?;
        let session = session_of(run.0);
        let mut loops = BTreeSet::new();
        for (edit, stored) in self.edits_and_digests(run)? {
            loops.insert(edit.loop_key);
            if digest::edit(&edit) != stored {
                return Err(damaged("an edit of run", run.0));
            }
        }
        let columns = format!("{EDIT_COLUMNS}, escaped");
        for (ordinal, edit) in (0i64..).zip(edits) {
            let text = edit.text.as_deref();
            let safe = escaped(text);
            let mut values = edit_values(edit)?;
            values.push(BoundValue::Text(safe.as_deref().or(text)));
            values.push(BoundValue::Flag(safe.is_some()));
            let key = [("session", session), ("run", run.0), ("ordinal", ordinal)];
            self.update(session, "edits", &columns, values, key)?;
        }
        self.put_packed_edits(run, edits)?;
        let left = i64::try_from(edits.len()).unwrap_or(i64::MAX);
        let sql = "DELETE FROM edits WHERE session = $1 AND run = $2 AND ordinal >= $3";
        let fewer = self.run(session, sql, &[&session, &run.0, &left])?;
        let sql = "UPDATE loops SET edits = (
                 SELECT count(*) FROM edits WHERE session = $1 AND loop = $2
             ) WHERE session = $1 AND key = $2";
        for key in loops.iter().filter(|_| fewer > 0) {
            self.run(session, sql, &[&session, &key.0])?;
        }
        let fewer = i64::try_from(fewer).unwrap_or(i64::MAX);
        let sql = "UPDATE sessions SET edits = edits - $2 WHERE session = $1";
        self.run(session, sql, &[&session, &fewer])?;
        self.renew_row("runs", run.0)
    }

    fn resize_block(&mut self, block: &BlockRow) -> StoreResult<()> {
        let key = block.key.0;
        let session = session_of(key);
        self.check_row("blocks", key)?;
        self.run(
            session,
            "UPDATE blocks SET tokens_covered = $3, tokens_block = $4, bytes_block = $5
             WHERE session = $1 AND key = $2",
            &[
                &session,
                &key,
                &signed(block.tokens_covered)?,
                &signed(block.size.tokens)?,
                &signed(block.size.bytes)?,
            ],
        )?;
        self.renew_row("blocks", key)
    }
}

impl StoreRemove for PostgresTransaction<'_> {}
