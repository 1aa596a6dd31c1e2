//! What messages say, for a build: no more columns than it needs, and texts where they lie.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use tokio_postgres::Row;

use super::connection::Param;
use super::keys::session_of;
use super::row::{Fields, unescaped};
use super::transaction::{Transaction, paged};
use crate::store::codec::role_from_number;
use crate::store::error::StoreResult;
use crate::store::{LoopKey, MessageRef, Proof, StoreRead, StoredMessageRef, VisitMessageRef};

/// Messages that are fetched at a time: mostly the whole end of a loop.
const PAGE: i64 = 256;

fn text<'a>(row: &'a Fields<'_>) -> StoreResult<Option<Cow<'a, str>>> {
    let text: Option<&str> = row.get("body")?;
    Ok(match (text, row.get("escaped")?) {
        (Some(text), true) => Some(unescaped(text)?.into()),
        (text, _) => text.map(Cow::Borrowed),
    })
}

fn proof(row: &Fields<'_>) -> StoreResult<Proof> {
    Ok(Proof {
        salt: row.maybe_bytes("salt")?,
        digest: row.bytes("digest")?,
    })
}

impl Transaction<'_> {
    /// Visits what some messages say. What has no content here is read the long way, which knows where
    /// it may lie instead.
    pub(super) fn read_said(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        if seqs.is_empty() {
            return Ok(());
        }
        let session = session_of(loop_key.0);
        self.lock(session)?;
        let (first, end) = (i64::from(seqs.start), i64::from(seqs.end));
        let of_proof = if proofs { "salt, digest, " } else { "" };
        let sql = format!(
            "SELECT seq, turn, role, tokens, bytes, body_block, {of_proof}head, body, escaped
             FROM messages WHERE session = $1 AND loop = $2 AND seq >= $3 AND seq < $4
             ORDER BY seq LIMIT {PAGE}"
        );
        paged(
            PAGE,
            |row: &Row| row.try_get::<_, i64>("seq").unwrap_or(end),
            |after| {
                let from = after.map_or(first, |after| after + 1);
                let params: [Param<'_>; 4] = [&session, &loop_key.0, &from, &end];
                self.ask(&sql, &params)
            },
            &mut |row: Row| self.say(loop_key, &Fields(&row), proofs, visit),
        )
    }

    fn say(
        &self,
        loop_key: LoopKey,
        row: &Fields<'_>,
        proofs: bool,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<ControlFlow<()>> {
        let seq = row.small("seq")?;
        let head: Option<&str> = row.get("head")?;
        if head.is_none() {
            let mut flow = ControlFlow::Continue(());
            self.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
                flow = visit(&MessageRef::of(&row, proofs))?;
                Ok(ControlFlow::Break(()))
            })?;
            return Ok(flow);
        }
        let text = text(row)?;
        let proof = proofs.then(|| proof(row)).transpose()?;
        visit(&MessageRef {
            seq,
            turn: row.maybe_small("turn")?,
            said: StoredMessageRef {
                role: role_from_number(row.get("role")?)?,
                tokens: row.unsigned("tokens")?,
                bytes: row.unsigned("bytes")?,
                text_block: row.maybe_small("body_block")?,
                proof,
                head,
                text: text.as_deref(),
            },
        })
    }
}
