//! Messages of a write that are not sent yet: all go in one statement, before the next one. A turn of four
//! messages takes one round trip instead of four, an import one for hundreds of messages.

use loopstore_core::store::codec::{author_number, role_number};
use loopstore_core::store::mapping::signed;
use loopstore_core::store::{LoopKey, MessageRow, StoreResult};

use super::connection::Param;
use super::keys::session_of;
use super::row::escaped;
use super::transaction::PostgresTransaction;
use super::values::{rows_of_values, wide};

/// The number of messages, and of their bytes, at which they are sent.
const MOST_MESSAGES: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// The numbers of rows that one statement writes, so that few statements are prepared: the largest that is not
/// more than the rows left, then single rows.
const ROWS_AT_ONCE: [usize; 3] = [MOST_MESSAGES, 64, 16];

/// Messages of one loop.
#[derive(Default)]
pub(super) struct Pending {
    loop_key: i64,
    text_bytes: usize,
    rows: Vec<PendingRow>,
}

struct PendingRow {
    seq: i64,
    turn: Option<i64>,
    role: i64,
    author: i64,
    tick: i64,
    tokens: i64,
    bytes: i64,
    lines: Option<i64>,
    created_at: Option<i64>,
    body_block: Option<i64>,
    origin: Option<Vec<u8>>,
    salt: Option<Vec<u8>>,
    digest: Vec<u8>,
    chain: Vec<u8>,
    head: Option<String>,
    body: Option<String>,
    escaped: bool,
}

const COLUMNS: &str =
    "session, loop, seq, turn, role, author, tick, tokens, bytes, lines, created_at, body_block,
    origin, salt, digest, chain, head, body, escaped";

impl PendingRow {
    /// Returns the values of the columns after session and loop.
    fn params(&self) -> [Param<'_>; 17] {
        [
            &self.seq,
            &self.turn,
            &self.role,
            &self.author,
            &self.tick,
            &self.tokens,
            &self.bytes,
            &self.lines,
            &self.created_at,
            &self.body_block,
            &self.origin,
            &self.salt,
            &self.digest,
            &self.chain,
            &self.head,
            &self.body,
            &self.escaped,
        ]
    }
}

impl Pending {
    fn push(&mut self, row: &MessageRow) -> StoreResult<()> {
        let body = &row.body;
        let safe = escaped(body.text.as_deref());
        let escaped = safe.is_some();
        let text = safe.or_else(|| body.text.clone());
        self.text_bytes += body.head.as_ref().map_or(0, String::len);
        self.text_bytes += text.as_ref().map_or(0, String::len);
        self.rows.push(PendingRow {
            seq: row.seq.into(),
            turn: wide(row.turn),
            role: role_number(body.role).into(),
            author: author_number(body.author).into(),
            tick: row.tick,
            tokens: signed(body.tokens)?,
            bytes: signed(body.bytes)?,
            lines: wide(body.lines),
            created_at: row.created_at,
            body_block: wide(body.text_block),
            origin: row.origin.map(Vec::from),
            salt: body.salt.map(Vec::from),
            digest: body.digest.into(),
            chain: row.chain.into(),
            head: body.head.clone(),
            body: text,
            escaped,
        });
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= MOST_MESSAGES || self.text_bytes >= MOST_BYTES
    }
}

impl PostgresTransaction<'_> {
    /// Adds a message to the pending ones; the session is locked already.
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

    /// Sends the pending messages.
    pub(super) fn flush(&self) -> StoreResult<()> {
        if self.pending.borrow().rows.is_empty() {
            return Ok(());
        }
        let pending = self.pending.take();
        let session = session_of(pending.loop_key);
        let mut left = &pending.rows[..];
        while !left.is_empty() {
            let mut sizes = ROWS_AT_ONCE.into_iter();
            let at_once = sizes.find(|rows| *rows <= left.len());
            let (rows, others) = left.split_at(at_once.unwrap_or(left.len()));
            let mut params: Vec<Param<'_>> = vec![&session, &pending.loop_key];
            params.extend(rows.iter().flat_map(PendingRow::params));
            let values = rows_of_values(2, 17, rows.len());
            let sql = format!("INSERT INTO messages ({COLUMNS}) VALUES {values}");
            self.execute(&sql, &params)?;
            left = others;
        }
        Ok(())
    }
}
