//! Packs of archived messages as rows.

use std::ops::Range;

use rusqlite::params;
use rusqlite::types::Value;

use super::from_sqlite;
use super::reader::{SqliteReader, number, packed};
use crate::store::LoopKey;
use crate::store::columns::Columns;
use crate::store::error::{StoreError, StoreResult};
use crate::store::mapping::{pack_row, signed};
use crate::store::packs::{Pack, PackRow, open};
use crate::store::removal::MovePacks;
use crate::store::scan::{MOST_UNPACKED, ScanPacks};

/// The columns of a message but for its content.
const BESIDE_CONTENT: &str =
    "id, turn, role, author, tick, tokens, bytes, lines, created_at, body_block,
    origin, salt, digest, chain";

const WRITE_BACK: &str = "UPDATE messages SET head = ?2, body = ?3
    WHERE id = ?1 AND head IS NULL AND body IS NULL";

impl SqliteReader<'_> {
    fn beside_content(&self, ids: [i64; 2]) -> StoreResult<Vec<Vec<Value>>> {
        let sql = format!(
            "SELECT {BESIDE_CONTENT} FROM messages WHERE id BETWEEN ?1 AND ?2
                 AND head IS NOT NULL ORDER BY id"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(from_sqlite)?;
        let columns = statement.column_count();
        let rows = statement.query_map(ids, |row| (0..columns).map(|at| row.get(at)).collect());
        rows.and_then(Iterator::collect).map_err(from_sqlite)
    }

    /// Writes the content of a pack back into the rows, and removes it.
    pub(super) fn write_back_pack(&self, loop_key: LoopKey, first: u32) -> StoreResult<()> {
        let pack = open(self, loop_key, first)?;
        pack.each(&mut |seq, head, text| match self
            .run(WRITE_BACK, params![packed(loop_key.0, seq), head, text])?
        {
            1 => Ok(()),
            _ => Err(StoreError::Damaged(format!(
                "message {seq} is in a pack and has no empty row"
            ))),
        })?;
        self.remove_packs(loop_key, first, pack.row().last)
    }

    /// Removes the packs that begin within a range, and what is told of its messages.
    pub(super) fn remove_packs(&self, loop_key: LoopKey, first: u32, last: u32) -> StoreResult<()> {
        let ids = [packed(loop_key.0, first), packed(loop_key.0, last)];
        self.run("DELETE FROM packs WHERE id BETWEEN ?1 AND ?2", ids)?;
        self.run("DELETE FROM packed_heads WHERE id BETWEEN ?1 AND ?2", ids)?;
        Ok(())
    }

    /// Writes back what can be read of all packs, and removes them. What a damaged one held is in no row
    /// then.
    pub(super) fn empty_packs(&self) -> StoreResult<()> {
        let mut next = Some(i64::MIN);
        while let Some(from) = next {
            let sql = "SELECT id FROM packs WHERE id >= ?1 ORDER BY id LIMIT 1";
            let Some(id) = self.first(sql, [from], |row| row.get::<i64>("id"))? else {
                break;
            };
            let opened = open(self, LoopKey(id >> 32), number(id));
            let emptied = opened.and_then(|pack| {
                pack.each(&mut |seq, head, text| {
                    let id = packed(id >> 32, seq);
                    self.run(WRITE_BACK, params![id, head, text]).map(drop)
                })
            });
            match emptied {
                Err(StoreError::Damaged(_)) => {}
                emptied => emptied?,
            }
            next = id.checked_add(1);
        }
        self.run("DELETE FROM packs", []).map(drop)
    }

    /// Takes the pack apart that a message is in, if it is archived.
    pub(super) fn take_apart(&self, loop_key: LoopKey, seq: u32) -> StoreResult<()> {
        match self.pack_at(loop_key, seq)? {
            Some(pack) => self.write_back_pack(loop_key, pack.first),
            None => Ok(()),
        }
    }
}

impl ScanPacks for SqliteReader<'_> {
    fn pack_at(&self, loop_key: LoopKey, seq: u32) -> StoreResult<Option<PackRow>> {
        let row = self.first(
            "SELECT id AS seq, last_seq, bytes, digest FROM packs WHERE id BETWEEN ?1 AND ?2
             ORDER BY id DESC LIMIT 1",
            [packed(loop_key.0, 0), packed(loop_key.0, seq)],
            |row| pack_row(row),
        )?;
        Ok(row.filter(|row| seq <= row.last))
    }

    fn next_pack(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<PackRow>> {
        self.first(
            "SELECT id AS seq, last_seq, bytes, digest FROM packs WHERE id BETWEEN ?1 AND ?2
             ORDER BY id LIMIT 1",
            [packed(loop_key.0, from), packed(loop_key.0, u32::MAX)],
            |row| pack_row(row),
        )
    }

    fn pack_content(&self, loop_key: LoopKey, first: u32) -> StoreResult<Vec<u8>> {
        let sql = "SELECT content FROM packs WHERE id = ?1";
        let content = self.first(sql, [packed(loop_key.0, first)], |row| row.get("content"))?;
        content.ok_or_else(|| StoreError::Damaged("a pack without its row".into()))
    }

    fn packed_heads(&self, loop_key: LoopKey, seqs: Range<u32>) -> StoreResult<Vec<(u32, String)>> {
        self.all(
            "SELECT id AS seq, head FROM packed_heads WHERE id >= ?1 AND id < ?2 ORDER BY id",
            [packed(loop_key.0, seqs.start), packed(loop_key.0, seqs.end)],
            |row| Ok((row.number("seq")?, row.get("head")?)),
        )
    }

    fn unpacked(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<Range<u32>>> {
        let end = packed(loop_key.0, u32::MAX);
        let sql = "SELECT id FROM messages WHERE id BETWEEN ?1 AND ?2 AND head IS NOT NULL
             ORDER BY id LIMIT 1";
        let first = self.first(sql, [packed(loop_key.0, from), end], |row| row.get("id"))?;
        let Some(first) = first else {
            return Ok(None);
        };
        let sql = "SELECT id, head IS NOT NULL AS is_there FROM messages
             WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3";
        let limit = i64::from(MOST_UNPACKED);
        let mut next = first;
        self.each(
            sql,
            [first, end, limit],
            |row| Ok((row.get("id")?, row.get("is_there")?)),
            &mut |(id, is_there): (i64, bool)| {
                if id != next || !is_there {
                    return Ok(std::ops::ControlFlow::Break(()));
                }
                next = id + 1;
                Ok(std::ops::ControlFlow::Continue(()))
            },
        )?;
        let first = number(first);
        Ok(Some(
            first..first + number(next - packed(loop_key.0, first)),
        ))
    }
}

impl MovePacks for SqliteReader<'_> {
    fn put_pack(&mut self, loop_key: LoopKey, pack: &Pack) -> StoreResult<()> {
        let PackRow { first, last, .. } = pack.row;
        let ids = [packed(loop_key.0, first), packed(loop_key.0, last)];
        let rows = self.beside_content(ids)?;
        if rows.len() as u64 != pack.row.messages() {
            let why = format!("messages {first} to {last} are not all there");
            return Err(StoreError::Invalid(why));
        }
        self.run("DELETE FROM messages WHERE id BETWEEN ?1 AND ?2", ids)?;
        let sql = format!(
            "INSERT INTO messages ({BESIDE_CONTENT})
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        );
        for row in rows {
            self.run(&sql, rusqlite::params_from_iter(row))?;
        }
        self.run(
            "INSERT INTO packs (id, last_seq, bytes, digest, content) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![
                ids[0],
                last,
                signed(pack.row.bytes)?,
                pack.row.digest,
                pack.content
            ],
        )?;
        for (seq, head) in &pack.heads {
            self.run(
                "INSERT INTO packed_heads (id, head) VALUES (?1, ?2)",
                params![packed(loop_key.0, *seq), head],
            )?;
        }
        Ok(())
    }

    fn take_pack(&mut self, loop_key: LoopKey, first: u32) -> StoreResult<()> {
        self.write_back_pack(loop_key, first)
    }
}
