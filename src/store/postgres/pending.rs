//! Messages that a write has said and not sent yet: they go together, in one statement, before the next
//! one. A turn of four messages is so one round trip instead of four, and an import one for hundreds.

use super::connection::Param;
use super::keys::session_of;
use super::row::escaped;
use super::transaction::Transaction;
use super::write::{signed, wide};
use crate::store::codec::role_number;
use crate::store::error::StoreResult;
use crate::store::{LoopKey, MessageRow};

/// So many messages, or bytes of them, are not kept waiting.
const MOST_MESSAGES: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// Messages of one loop, a list for each column.
#[derive(Default)]
pub(super) struct Pending {
    loop_key: i64,
    text_bytes: usize,
    seq: Vec<i64>,
    turn: Vec<Option<i64>>,
    role: Vec<i64>,
    tick: Vec<i64>,
    tokens: Vec<i64>,
    bytes: Vec<i64>,
    lines: Vec<Option<i64>>,
    created_at: Vec<Option<i64>>,
    body_block: Vec<Option<i64>>,
    origin: Vec<Option<Vec<u8>>>,
    salt: Vec<Option<Vec<u8>>>,
    digest: Vec<Vec<u8>>,
    chain: Vec<Vec<u8>>,
    head: Vec<Option<String>>,
    body: Vec<Option<String>>,
    escaped: Vec<bool>,
}

impl Pending {
    fn push(&mut self, row: &MessageRow) -> StoreResult<()> {
        let body = &row.body;
        let (tokens, bytes) = (signed(body.tokens)?, signed(body.bytes)?);
        let safe = escaped(body.text.as_deref());
        self.escaped.push(safe.is_some());
        let text = safe.or_else(|| body.text.clone());
        self.text_bytes += body.head.as_ref().map_or(0, String::len);
        self.text_bytes += text.as_ref().map_or(0, String::len);
        self.seq.push(row.seq.into());
        self.turn.push(wide(row.turn));
        self.role.push(role_number(body.role).into());
        self.tick.push(row.tick);
        self.tokens.push(tokens);
        self.bytes.push(bytes);
        self.lines.push(wide(body.lines));
        self.created_at.push(row.created_at);
        self.body_block.push(wide(body.text_block));
        self.origin.push(row.origin.map(Vec::from));
        self.salt.push(body.salt.map(Vec::from));
        self.digest.push(body.digest.into());
        self.chain.push(row.chain.into());
        self.head.push(body.head.clone());
        self.body.push(text);
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.seq.len() >= MOST_MESSAGES || self.text_bytes >= MOST_BYTES
    }
}

const INSERT: &str = "INSERT INTO messages (session, loop, seq, turn, role, tick, tokens, bytes,
         lines, created_at, body_block, origin, salt, digest, chain, head, body, escaped)
     SELECT $1, $2, r.seq, r.turn, r.role, r.tick, r.tokens, r.bytes, r.lines, r.created_at,
         r.body_block, r.origin, r.salt, r.digest, r.chain, r.head, r.body, r.escaped
     FROM unnest($3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[],
             $8::BIGINT[], $9::BIGINT[], $10::BIGINT[], $11::BIGINT[], $12::BYTEA[], $13::BYTEA[],
             $14::BYTEA[], $15::BYTEA[], $16::TEXT[], $17::TEXT[], $18::BOOLEAN[])
         AS r (seq, turn, role, tick, tokens, bytes, lines, created_at, body_block, origin, salt,
             digest, chain, head, body, escaped)";

impl Transaction<'_> {
    /// Adds a message to those that wait; the session is locked already.
    pub(super) fn put_off(&self, loop_key: LoopKey, row: &MessageRow) -> StoreResult<()> {
        self.lock(session_of(loop_key.0))?;
        if self.pending.borrow().loop_key != loop_key.0 {
            self.flush()?;
        }
        let mut pending = self.pending.borrow_mut();
        pending.loop_key = loop_key.0;
        pending.push(row)?;
        let is_full = pending.is_full();
        drop(pending);
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Sends the messages that wait.
    pub(super) fn flush(&self) -> StoreResult<()> {
        if self.pending.borrow().seq.is_empty() {
            return Ok(());
        }
        let rows = self.pending.take();
        let session = session_of(rows.loop_key);
        let params: [Param<'_>; 18] = [
            &session,
            &rows.loop_key,
            &rows.seq,
            &rows.turn,
            &rows.role,
            &rows.tick,
            &rows.tokens,
            &rows.bytes,
            &rows.lines,
            &rows.created_at,
            &rows.body_block,
            &rows.origin,
            &rows.salt,
            &rows.digest,
            &rows.chain,
            &rows.head,
            &rows.body,
            &rows.escaped,
        ];
        self.tell(INSERT, &params).map(drop)
    }
}
