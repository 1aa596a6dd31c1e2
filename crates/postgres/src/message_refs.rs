//! The contents of messages for a build: only the columns that it needs, and texts without a copy.

use std::ops::{ControlFlow, Range};

use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::proof;
use loopstore_core::store::{
    LoopKey, MessageRef, ReadMessages, StoreResult, StoredMessageRef, VisitMessageRef,
};

use super::connection::Param;
use super::keys::session_of;
use super::row::PostgresRow;
use super::transaction::{PostgresTransaction, paged};

/// The number of messages that are fetched at a time: mostly the whole end of a loop.
const PAGE: i64 = 256;

impl PostgresTransaction<'_> {
    /// Visits the contents of messages. A message without content in its row is read by the general function,
    /// which looks in the other places.
    pub(super) fn read_refs(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        if seqs.is_empty() {
            return Ok(());
        }
        self.read_refs_without(loop_key, seqs, proofs, &[], visit)
    }

    /// Visits the contents of messages as [`read_refs`](Self::read_refs) does, without the texts of some.
    pub(super) fn read_refs_without(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        without_text: &[i64],
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        self.lock(session)?;
        let (first, end) = (i64::from(seqs.start), i64::from(seqs.end));
        let body = match without_text.is_empty() {
            true => "body",
            false => "CASE WHEN seq = ANY ($5) THEN NULL ELSE body END AS body",
        };
        let of_proof = if proofs { "salt, digest, " } else { "" };
        let sql = format!(
            "SELECT seq, turn, created_at, role, tokens, bytes, body_block, {of_proof}head, {body}, escaped
             FROM messages WHERE session = $1 AND loop = $2 AND seq >= $3 AND seq < $4
             ORDER BY seq LIMIT {PAGE}"
        );
        paged(
            PAGE,
            |row: &PostgresRow| row.get("seq").unwrap_or(end),
            |after| {
                let from = after.map_or(first, |after| after + 1);
                let params: [Param<'_>; 5] = [&session, &loop_key.0, &from, &end, &without_text];
                let known = if without_text.is_empty() { 4 } else { 5 };
                self.ask(&sql, &params[..known])
            },
            &mut |row: PostgresRow| self.say(loop_key, &row, proofs, visit),
        )
    }

    pub(super) fn say(
        &self,
        loop_key: LoopKey,
        row: &PostgresRow,
        proofs: bool,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<ControlFlow<()>> {
        let seq = row.get("seq")?;
        let head: Option<&str> = row.get("head")?;
        if head.is_none() {
            let mut flow = ControlFlow::Continue(());
            self.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
                flow = visit(&MessageRef::of(&row, proofs))?;
                Ok(ControlFlow::Break(()))
            })?;
            return Ok(flow);
        }
        let text = row.content("body")?;
        let proof = proofs.then(|| proof(row)).transpose()?;
        visit(&MessageRef {
            seq,
            turn: row.get("turn")?,
            created_at: row.get("created_at")?,
            message: StoredMessageRef {
                role: row.get("role")?,
                tokens: row.get("tokens")?,
                bytes: row.get("bytes")?,
                text_block: row.get("body_block")?,
                proof,
                head,
                text: text.as_deref(),
            },
        })
    }
}
