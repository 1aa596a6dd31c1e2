//! Removing content: the rows of a session, their texts, and in the end their bytes.

pub(crate) mod content;
pub(super) mod scrub;

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;

use super::reader::{SqliteReader, packed};
use super::scan::{owner_of, shower_of};
use super::write::bind;
use super::{SqliteStore, schema};
use crate::model::Time;
use crate::store::audit::{self, AuditEntry, DIGESTED};
use crate::store::columns::Columns;
use crate::store::error::{StoreError, StoreResult};
use crate::store::mapping::{EDIT_COLUMNS, edit_values, signed};
use crate::store::removal::*;
use crate::store::scan::{BlobOwner, MessagePlace, ScanEdits, TextCell, TextForm};
use crate::store::values::BoundValue;
use crate::store::{
    BlockKey, BlockRow, EditRow, ReadLoops, RunKey, SessionKey, SourceKey, StoreWrite,
    StoredMessage, digest,
};
use content::{ContentTable, TABLES, place_of};

impl SqliteStore {
    /// Runs `work` in a write transaction in which content can be removed.
    pub(crate) fn removing<T>(
        &self,
        work: impl FnOnce(&mut dyn StoreWrite) -> StoreResult<T>,
    ) -> StoreResult<T> {
        if self.options.read_only {
            return Err(StoreError::ReadOnly);
        }
        self.transaction(|connection| {
            schema::check_still_counts_with(connection, self.options.counter.name())?;
            work(&mut self.reader(connection))
        })
    }
}

fn damaged(what: &str, key: i64) -> StoreError {
    StoreError::Damaged(format!("{what} {key} is not what was stored"))
}

impl SqliteReader<'_> {
    /// Returns the rows of a session in a table that have a text in a column.
    fn cells(
        &self,
        table: &ContentTable,
        column: &str,
        session: SessionKey,
    ) -> StoreResult<Vec<(i64, String)>> {
        let (name, key, of) = (table.name, table.key, table.of_session);
        let sql = format!(
            "SELECT {key} AS cell, {column} AS text FROM {name}
             WHERE {key} IN ({of}) AND {column} IS NOT NULL ORDER BY {key}"
        );
        self.all(&sql, [session.0], |row| {
            Ok((row.get("cell")?, row.get("text")?))
        })
    }

    /// Checks that the digest of a row fits, and that of the run of a block.
    fn check_row(&self, table: &str, key: i64) -> StoreResult<()> {
        let row = audit::row_digest(self, table, key)?;
        if row.stored != row.derived {
            return Err(damaged(table, key));
        }
        match row.run {
            Some(run) => self.check_row("runs", run.0),
            None => Ok(()),
        }
    }

    /// Derives the digest of a changed row anew, and that of the run of a block, and notes it in the audit
    /// chain.
    fn renew_row(&self, table: &str, key: i64) -> StoreResult<()> {
        let row = audit::row_digest(self, table, key)?;
        if row.stored == row.derived {
            return Ok(());
        }
        if let Some(kind) = row.kind {
            let (digest, was) = (row.derived, Some(row.stored));
            self.write_audit(row.session, &AuditEntry { kind, digest, was })?;
        }
        let sql = format!("UPDATE {table} SET digest = ?2 WHERE key = ?1");
        self.run(&sql, params![key, row.derived])?;
        match row.run {
            Some(run) => self.renew_row("runs", run.0),
            None => Ok(()),
        }
    }

    fn change_column(
        &self,
        table: &ContentTable,
        (column, form): (&'static str, TextForm),
        session: SessionKey,
        change: &mut dyn FnMut(TextCell<'_>) -> StoreResult<Option<String>>,
        touched: &mut BTreeSet<i64>,
    ) -> StoreResult<u64> {
        let place = place_of(table.name, column);
        let mut changed = 0;
        for (key, text) in self.cells(table, column, session)? {
            let cell = TextCell {
                place,
                form,
                text: &text,
            };
            let Some(new) = change(cell)? else { continue };
            if touched.insert(key) && DIGESTED.contains(&table.name) {
                self.check_row(table.name, key)?;
            }
            let (name, id) = (table.name, table.key);
            // The old text too: the keys of a session's appends have no key of their own.
            let sql = format!("UPDATE {name} SET {column} = ?2 WHERE {id} = ?1 AND {column} = ?3");
            self.run(&sql, params![key, new, text])?;
            changed += 1;
        }
        Ok(changed)
    }

    fn remove_rows(&self, session: SessionKey) -> StoreResult<BTreeMap<&'static str, u64>> {
        let mut rows = BTreeMap::new();
        for table in &TABLES {
            let (name, key, of) = (table.name, table.key, table.of_session);
            let sql = format!("DELETE FROM {name} WHERE {key} IN ({of})");
            let gone = self.run(&sql, [session.0])?;
            if gone > 0 {
                rows.insert(name, gone as u64);
            }
        }
        Ok(rows)
    }

    /// Returns the keys of the blobs that a session shows.
    fn blobs_shown(&self, session: SessionKey) -> StoreResult<Vec<i64>> {
        let Some(table) = content::named("blob_refs") else {
            return Ok(Vec::new());
        };
        let of = table.of_session;
        let sql = format!("SELECT DISTINCT blob FROM blob_refs WHERE owner IN ({of})");
        self.all(&sql, [session.0], |row| row.get("blob"))
    }

    fn update_message(&self, table: &str, id: i64, new: &StoredMessage) -> StoreResult<()> {
        let lines = if table == "messages" {
            ", lines = ?7"
        } else {
            ""
        };
        let sql = format!(
            "UPDATE {table} SET head = ?2, body = ?3, body_block = ?4, tokens = ?5, bytes = ?6,
                 salt = NULL{lines}
             WHERE id = ?1"
        );
        let (tokens, bytes) = (signed(new.tokens)?, signed(new.bytes)?);
        let (head, text, block) = (&new.head, &new.text, new.text_block);
        match lines.is_empty() {
            true => self.run(&sql, params![id, head, text, block, tokens, bytes]),
            false => self.run(
                &sql,
                params![id, head, text, block, tokens, bytes, new.lines],
            ),
        }
        .map(|_| ())
    }
}

impl WriteReceipts for SqliteReader<'_> {
    fn open_receipt(
        &mut self,
        session: SessionKey,
        kind: &str,
        opened_at: &str,
    ) -> StoreResult<i64> {
        self.run(
            "INSERT INTO maintenance (session, kind, opened_at, detail) VALUES (?1, ?2, ?3, '{}')",
            params![session.0, kind, opened_at],
        )?;
        Ok(self.connection.last_insert_rowid())
    }

    fn close_receipt(&mut self, key: i64, detail: &str) -> StoreResult<()> {
        self.run(
            "UPDATE maintenance SET closed_at = ?2, detail = ?3 WHERE key = ?1",
            params![key, Time::now().as_str(), detail],
        )?;
        Ok(())
    }

    fn note_scrub(&mut self) -> StoreResult<()> {
        scrub::note(self)
    }
}

impl RemoveSessions for SqliteReader<'_> {
    fn remove_session(&mut self, session: SessionKey) -> StoreResult<SessionRemoved> {
        for row in self.loops(session)? {
            match self.remove_from_index(row.key, 0) {
                // Its words go when the index is made anew.
                Err(StoreError::IndexDamaged(_)) => {}
                done => done?,
            }
        }
        let blobs = self.blobs_shown(session)?;
        let mut removed = SessionRemoved {
            rows: self.remove_rows(session)?,
            shared_blobs: 0,
        };
        for blob in blobs {
            match self.remove_unshown(blob)? {
                false => removed.shared_blobs += 1,
                true => *removed.rows.entry("blobs").or_default() += 1,
            }
        }
        Ok(removed)
    }

    fn remove_source(&mut self, source: SourceKey) -> StoreResult<u64> {
        let shared = self.shared_parts(source)?;
        self.drop_source_parts(source, 0)?;
        self.run("DELETE FROM source_sessions WHERE source = ?1", [source.0])?;
        self.run("DELETE FROM sources WHERE key = ?1", [source.0])?;
        Ok(shared)
    }

    fn unlink_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()> {
        let sql = "DELETE FROM source_sessions WHERE session = ?1 AND source = ?2";
        self.run(sql, [session.0, source.0]).map(drop)
    }
}

impl ChangeTexts for SqliteReader<'_> {
    fn change_texts(
        &mut self,
        session: SessionKey,
        change: &mut dyn FnMut(TextCell<'_>) -> StoreResult<Option<String>>,
    ) -> StoreResult<TextsChanged> {
        let mut all = TextsChanged::default();
        for table in &TABLES {
            let mut touched = BTreeSet::new();
            for text in content::texts(table.name)
                .filter(|(_, form)| !matches!(form, TextForm::Edit | TextForm::Id))
            {
                let changed = self.change_column(table, text, session, change, &mut touched)?;
                if changed > 0 {
                    all.counts.insert(place_of(table.name, text.0), changed);
                }
            }
            for key in touched
                .into_iter()
                .filter(|_| DIGESTED.contains(&table.name))
            {
                self.renew_row(table.name, key)?;
            }
        }
        Ok(all)
    }
}

impl RedactMessages for SqliteReader<'_> {
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
        match place {
            MessagePlace::InLoop(loop_key, seq) => {
                self.take_apart(loop_key, seq)?;
                self.update_message("messages", packed(loop_key.0, seq), new)?;
            }
            MessagePlace::InBlock(block, ordinal) => {
                self.update_message("block_messages", packed(block.0, ordinal), new)?;
            }
        }
        let owner = owner_of(place);
        self.run("DELETE FROM redactions WHERE owner = ?1", [owner])?;
        self.run(
            "INSERT INTO redactions (owner, receipt, salt, digest) VALUES (?1, ?2, ?3, ?4)",
            params![owner, receipt, salt, new.digest],
        )?;
        Ok(())
    }

    fn forget_blob(&mut self, owner: BlobOwner, name: &[u8; 32]) -> StoreResult<()> {
        let sql = "SELECT key FROM blobs WHERE sha256 = ?1";
        let Some(blob) = self.first(sql, [name], |row| row.get::<i64>("key"))? else {
            return Ok(());
        };
        let sql = "DELETE FROM blob_refs WHERE owner = ?1 AND blob = ?2";
        self.run(sql, [shower_of(owner), blob])?;
        self.remove_unshown(blob).map(drop)
    }

    fn resize_quote(
        &mut self,
        block: BlockKey,
        ordinal: u32,
        quote: &StoredMessage,
    ) -> StoreResult<()> {
        self.update_message("block_messages", packed(block.0, ordinal), quote)
    }

    fn rewrite_edits(&mut self, run: RunKey, edits: &[EditRow]) -> StoreResult<()> {
        self.check_row("runs", run.0)?;
        let mut loops = BTreeSet::new();
        for (edit, stored) in self.edits_and_digests(run)? {
            loops.insert(edit.loop_key);
            if digest::edit(&edit) != stored {
                return Err(damaged("an edit of run", run.0));
            }
        }
        let columns: Vec<&str> = EDIT_COLUMNS.split(',').map(str::trim).collect();
        let set = (1..).zip(&columns);
        let set: Vec<String> = set
            .map(|(number, column)| format!("{column} = ?{number}"))
            .collect();
        let (set, id) = (set.join(", "), columns.len() + 1);
        let sql = format!("UPDATE edits SET {set} WHERE id = ?{id}");
        for (ordinal, edit) in (0u32..).zip(edits) {
            let mut values = edit_values(edit)?;
            values.push(BoundValue::Text(edit.text.as_deref()));
            values.push(BoundValue::Integer(Some(packed(run.0, ordinal))));
            self.run(&sql, bind(values))?;
        }
        self.put_packed_edits(run, edits)?;
        let left = u32::try_from(edits.len()).unwrap_or(u32::MAX);
        let ids = [packed(run.0, left), packed(run.0, u32::MAX)];
        let fewer = self.run("DELETE FROM edits WHERE id BETWEEN ?1 AND ?2", ids)?;
        let sql =
            "UPDATE loops SET edits = (SELECT count(*) FROM edits WHERE loop = ?1) WHERE key = ?1";
        for key in loops.iter().filter(|_| fewer > 0) {
            self.run(sql, [key.0])?;
        }
        let sql = "UPDATE sessions SET edits = edits - ?2
             WHERE key = (SELECT session FROM runs WHERE key = ?1)";
        self.run(
            sql,
            params![run.0, i64::try_from(fewer).unwrap_or(i64::MAX)],
        )?;
        self.renew_row("runs", run.0)
    }

    fn resize_block(&mut self, block: &BlockRow) -> StoreResult<()> {
        self.check_row("blocks", block.key.0)?;
        self.run(
            "UPDATE blocks SET tokens_covered = ?2, tokens_block = ?3, bytes_block = ?4
             WHERE key = ?1",
            [
                block.key.0,
                signed(block.tokens_covered)?,
                signed(block.size.tokens)?,
                signed(block.size.bytes)?,
            ],
        )?;
        self.renew_row("blocks", block.key.0)
    }
}

impl StoreRemove for SqliteReader<'_> {}

impl SqliteReader<'_> {
    /// Visits the texts of a session, ids too.
    pub(super) fn read_texts(
        &self,
        session: SessionKey,
        visit: &mut dyn FnMut(TextCell<'_>) -> StoreResult<()>,
    ) -> StoreResult<()> {
        for table in &TABLES {
            for (column, form) in content::texts(table.name) {
                let place = place_of(table.name, column);
                for (_, text) in self.cells(table, column, session)? {
                    let text = &text;
                    visit(TextCell { place, form, text })?;
                }
            }
        }
        Ok(())
    }

    /// Removes a blob that nothing shows any more; returns whether it was one.
    fn remove_unshown(&self, blob: i64) -> StoreResult<bool> {
        let sql = "DELETE FROM blobs WHERE key = ?1
             AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE blob = ?1)";
        Ok(self.run(sql, [blob])? > 0)
    }

    /// Counts the parts of a kept file that another one has too.
    fn shared_parts(&self, source: SourceKey) -> StoreResult<u64> {
        let count = self.first(
            "SELECT count(*) AS n FROM source_parts p WHERE p.id BETWEEN ?1 AND ?2
             AND EXISTS (
                 SELECT 1 FROM source_parts o WHERE o.piece = p.piece
                     AND o.id NOT BETWEEN ?1 AND ?2
             )",
            [packed(source.0, 0), packed(source.0, u32::MAX)],
            |row| row.get("n"),
        )?;
        Ok(count.unwrap_or(0))
    }
}
