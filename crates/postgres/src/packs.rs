//! Packs of archived messages as rows.

use std::ops::Range;

use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::{pack_row, signed};
use loopstore_core::store::packs::open;
use loopstore_core::store::packs::{Pack, PackRow};
use loopstore_core::store::removal::MovePacks;
use loopstore_core::store::scan::{MOST_UNPACKED, ScanPacks};
use loopstore_core::store::{LoopKey, StoreError, StoreResult};

use super::connection::Param;
use super::keys::session_of;
use super::row::escaped;
use super::transaction::PostgresTransaction;

const PACK: &str = "SELECT seq, last_seq, bytes, digest FROM packs";

impl PostgresTransaction<'_> {
    fn pack(&self, sql: &str, loop_key: LoopKey, seq: u32) -> StoreResult<Option<PackRow>> {
        let session = session_of(loop_key.0);
        let params: [Param<'_>; 3] = [&session, &loop_key.0, &i64::from(seq)];
        self.first(session, sql, &params, pack_row)
    }

    /// Writes the content of a pack back into the rows, and removes it.
    pub(super) fn write_back_pack(&self, loop_key: LoopKey, first: u32) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        let pack = open(self, loop_key, first)?;
        pack.each(&mut |seq, head, text| {
            let safe = escaped(text);
            let (text, is_escaped) = (safe.as_deref().or(text), safe.is_some());
            let sql = "UPDATE messages SET head = $4, body = $5, escaped = $6
                 WHERE session = $1 AND loop = $2 AND seq = $3 AND head IS NULL AND body IS NULL";
            let at = i64::from(seq);
            let params: [Param<'_>; 6] = [&session, &loop_key.0, &at, &head, &text, &is_escaped];
            match self.run(session, sql, &params)? {
                1 => Ok(()),
                _ => Err(StoreError::Damaged(format!(
                    "message {seq} is in a pack and has no empty row"
                ))),
            }
        })?;
        let (from, to) = (i64::from(first), i64::from(pack.row().last));
        for table in ["packs", "packed_heads"] {
            let sql = format!(
                "DELETE FROM {table} WHERE session = $1 AND loop = $2 AND seq BETWEEN $3 AND $4"
            );
            self.run(session, &sql, &[&session, &loop_key.0, &from, &to])?;
        }
        Ok(())
    }

    /// Unpacks the pack that contains a message, if the message is archived.
    pub(super) fn take_apart(&self, loop_key: LoopKey, seq: u32) -> StoreResult<()> {
        match self.pack_at(loop_key, seq)? {
            Some(pack) => self.write_back_pack(loop_key, pack.first),
            None => Ok(()),
        }
    }
}

impl ScanPacks for PostgresTransaction<'_> {
    fn pack_at(&self, loop_key: LoopKey, seq: u32) -> StoreResult<Option<PackRow>> {
        let sql = format!(
            "{PACK} WHERE session = $1 AND loop = $2 AND seq <= $3 ORDER BY seq DESC LIMIT 1"
        );
        let row = self.pack(&sql, loop_key, seq)?;
        Ok(row.filter(|row| seq <= row.last))
    }

    fn next_pack(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<PackRow>> {
        let sql =
            format!("{PACK} WHERE session = $1 AND loop = $2 AND seq >= $3 ORDER BY seq LIMIT 1");
        self.pack(&sql, loop_key, from)
    }

    fn pack_content(&self, loop_key: LoopKey, first: u32) -> StoreResult<Vec<u8>> {
        let session = session_of(loop_key.0);
        let sql = "SELECT content FROM packs WHERE session = $1 AND loop = $2 AND seq = $3";
        let params: [Param<'_>; 3] = [&session, &loop_key.0, &i64::from(first)];
        let content = self.first(session, sql, &params, |row| row.get("content"))?;
        content.ok_or_else(|| StoreError::Damaged("a pack without its row".into()))
    }

    fn packed_heads(&self, loop_key: LoopKey, seqs: Range<u32>) -> StoreResult<Vec<(u32, String)>> {
        let session = session_of(loop_key.0);
        let (from, to) = (i64::from(seqs.start), i64::from(seqs.end));
        let sql = "SELECT seq, head FROM packed_heads
             WHERE session = $1 AND loop = $2 AND seq >= $3 AND seq < $4 ORDER BY seq";
        self.all(session, sql, &[&session, &loop_key.0, &from, &to], |row| {
            Ok((row.get("seq")?, row.get("head")?))
        })
    }

    fn unpacked(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<Range<u32>>> {
        let session = session_of(loop_key.0);
        let sql = "SELECT seq FROM messages
             WHERE session = $1 AND loop = $2 AND seq >= $3 AND head IS NOT NULL
             ORDER BY seq LIMIT 1";
        let params: [Param<'_>; 3] = [&session, &loop_key.0, &i64::from(from)];
        let Some(first) = self.first(session, sql, &params, |row| row.get("seq"))? else {
            return Ok(None);
        };
        let sql = "SELECT seq, head IS NOT NULL AS is_there FROM messages
             WHERE session = $1 AND loop = $2 AND seq >= $3 ORDER BY seq LIMIT $4";
        let (at, most) = (i64::from(first), i64::from(MOST_UNPACKED));
        let params: [Param<'_>; 4] = [&session, &loop_key.0, &at, &most];
        let rows = self.all(session, sql, &params, |row| {
            Ok((row.get::<u32>("seq")?, row.get::<bool>("is_there")?))
        })?;
        let follow = (first..).zip(rows);
        let follow = follow.take_while(|(next, (seq, is_there))| seq == next && *is_there);
        let count = u32::try_from(follow.count()).unwrap_or(0);
        Ok(Some(first..first.saturating_add(count)))
    }
}

impl MovePacks for PostgresTransaction<'_> {
    fn put_pack(&mut self, loop_key: LoopKey, pack: &Pack) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        let PackRow { first, last, .. } = pack.row;
        let (from, to) = (i64::from(first), i64::from(last));
        let sql = "UPDATE messages SET head = NULL, body = NULL, escaped = FALSE
             WHERE session = $1 AND loop = $2 AND seq BETWEEN $3 AND $4 AND head IS NOT NULL";
        let changed = self.run(session, sql, &[&session, &loop_key.0, &from, &to])?;
        if changed != pack.row.messages() {
            let why = format!("messages {first} to {last} are not all there");
            return Err(StoreError::Invalid(why));
        }
        self.run(
            session,
            "INSERT INTO packs (session, loop, seq, last_seq, bytes, digest, content)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                &session,
                &loop_key.0,
                &from,
                &to,
                &signed(pack.row.bytes)?,
                &&pack.row.digest[..],
                &pack.content,
            ],
        )?;
        for (seq, head) in &pack.heads {
            self.run(
                session,
                "INSERT INTO packed_heads (session, loop, seq, head) VALUES ($1, $2, $3, $4)",
                &[&session, &loop_key.0, &i64::from(*seq), head],
            )?;
        }
        Ok(())
    }

    fn take_pack(&mut self, loop_key: LoopKey, first: u32) -> StoreResult<()> {
        self.write_back_pack(loop_key, first)
    }
}
