//! The bare ceiling: the statements of the store through the crate `postgres`, prepared and batched as the
//! store does it, on the same tables with the same triggers. Rows, counters and digests were made by the store
//! and are only sent here. Nothing is read that a program could know.

use std::error::Error;

use postgres::{Client, NoTls, Row, Statement};

use crate::plain::Plain;

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

const LOCK: &str = "SELECT 1 FROM sessions WHERE session = $1 FOR NO KEY UPDATE";

const MESSAGES: &str = "INSERT INTO messages (session, loop, seq, turn, role, tick, tokens, bytes,
         lines, created_at, body_block, origin, salt, digest, chain, head, body, escaped, author)
     SELECT $1, $2, r.seq, r.turn, r.role, r.tick, r.tokens, r.bytes, r.lines, r.created_at,
         r.body_block, NULL, r.salt, r.digest, r.chain, r.head, r.body, r.escaped,
         least(r.role, 2)
     FROM unnest($3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[],
             $8::BIGINT[], $9::BIGINT[], $10::BIGINT[], $11::BIGINT[], $12::BYTEA[], $13::BYTEA[],
             $14::BYTEA[], $15::TEXT[], $16::TEXT[], $17::BOOLEAN[])
         AS r (seq, turn, role, tick, tokens, bytes, lines, created_at, body_block, salt, digest,
             chain, head, body, escaped)";

const TURN: &str = "INSERT INTO turns (session, loop, turn, first_seq, messages, prompts, tokens,
         bytes, turn_index, answered, answers, tick, started_at, ended_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULL, $11, $12, $13)
     ON CONFLICT (session, loop, turn) DO UPDATE SET first_seq = excluded.first_seq,
         messages = excluded.messages, prompts = excluded.prompts, tokens = excluded.tokens,
         bytes = excluded.bytes, turn_index = excluded.turn_index, answered = excluded.answered,
         answers = excluded.answers, tick = excluded.tick, started_at = excluded.started_at,
         ended_at = excluded.ended_at";

const LOOP: &str = "UPDATE loops SET next_seq = $3, sealed_seq = $3, turns = $4, complete = $4,
         messages = $5, tokens = $6, bytes = $7, last_turn_index = $8, open_calls = NULL, chain = $9
     WHERE session = $1 AND key = $2";

const SESSION: &str = "UPDATE sessions SET last_active_at = $2, current_loop = $3, tick = $4
     WHERE session = $1";

/// The messages of a turn, a list for each column, and its row.
#[derive(Default)]
pub struct Turn {
    seq: Vec<i64>,
    turn: Vec<Option<i64>>,
    role: Vec<i64>,
    tick: Vec<i64>,
    tokens: Vec<i64>,
    bytes: Vec<i64>,
    lines: Vec<Option<i64>>,
    created_at: Vec<Option<i64>>,
    body_block: Vec<Option<i64>>,
    salt: Vec<Option<Vec<u8>>>,
    digest: Vec<Vec<u8>>,
    chain: Vec<Vec<u8>>,
    head: Vec<Option<String>>,
    body: Vec<Option<String>>,
    escaped: Vec<bool>,
    number: i64,
    first_seq: i64,
    /// The messages, prompts, tokens and bytes of the loop so far.
    totals: [i64; 4],
    turn_index: Option<i64>,
    answered: bool,
    last_tick: i64,
    times: [Option<i64>; 2],
}

impl Turn {
    fn push(&mut self, row: &Row) {
        self.seq.push(row.get("seq"));
        self.turn.push(row.get("turn"));
        self.role.push(row.get("role"));
        self.tick.push(row.get("tick"));
        self.tokens.push(row.get("tokens"));
        self.bytes.push(row.get("bytes"));
        self.lines.push(row.get("lines"));
        self.created_at.push(row.get("created_at"));
        self.body_block.push(row.get("body_block"));
        self.salt.push(row.get("salt"));
        self.digest.push(row.get("digest"));
        self.chain.push(row.get("chain"));
        self.head.push(row.get("head"));
        self.body.push(row.get("body"));
        self.escaped.push(row.get("escaped"));
    }
}

/// Reads the turns from `first` on that the store has written to a loop.
pub fn turns_of(
    client: &mut Client,
    [session, loop_key]: [i64; 2],
    first: i64,
) -> Outcome<Vec<Turn>> {
    let mut turns = Vec::new();
    let rows = client.query(
        "SELECT * FROM turns WHERE session = $1 AND loop = $2 AND turn >= $3 ORDER BY turn",
        &[&session, &loop_key, &first],
    )?;
    for row in &rows {
        let mut turn = Turn {
            number: row.get("turn"),
            first_seq: row.get("first_seq"),
            totals: ["messages", "prompts", "tokens", "bytes"].map(|name| row.get(name)),
            turn_index: row.get("turn_index"),
            answered: row.get("answered"),
            last_tick: row.get("tick"),
            times: ["started_at", "ended_at"].map(|name| row.get(name)),
            ..Turn::default()
        };
        let messages = client.query(
            "SELECT * FROM messages WHERE session = $1 AND loop = $2 AND turn = $3 ORDER BY seq",
            &[&session, &loop_key, &turn.number],
        )?;
        messages.iter().for_each(|row| turn.push(row));
        turns.push(turn);
    }
    Ok(turns)
}

/// Writes turns to an existing loop.
pub struct Writer {
    client: Client,
    key: [i64; 2],
    statements: [Statement; 5],
}

impl Writer {
    pub fn new(address: &str, key: [i64; 2]) -> Outcome<Self> {
        let mut client = Client::connect(address, NoTls)?;
        let statements = [LOCK, MESSAGES, TURN, LOOP, SESSION].map(|sql| client.prepare(sql));
        let [lock, messages, turn, of_loop, session] = statements;
        Ok(Self {
            client,
            key,
            statements: [lock?, messages?, turn?, of_loop?, session?],
        })
    }

    /// Appends a turn in a transaction.
    pub fn append(&mut self, turn: &Turn) -> Outcome<()> {
        let Self {
            client,
            key: [session, loop_key],
            statements: [lock, messages, row, of_loop, of_session],
        } = self;
        client.batch_execute(BEGIN_WRITE)?;
        client.query(lock, &[session])?;
        client.execute(
            messages,
            &[
                session,
                loop_key,
                &turn.seq,
                &turn.turn,
                &turn.role,
                &turn.tick,
                &turn.tokens,
                &turn.bytes,
                &turn.lines,
                &turn.created_at,
                &turn.body_block,
                &turn.salt,
                &turn.digest,
                &turn.chain,
                &turn.head,
                &turn.body,
                &turn.escaped,
            ],
        )?;
        let [count, prompts, tokens, bytes] = turn.totals;
        client.execute(
            row,
            &[
                session,
                loop_key,
                &turn.number,
                &turn.first_seq,
                &count,
                &prompts,
                &tokens,
                &bytes,
                &turn.turn_index,
                &turn.answered,
                &turn.last_tick,
                &turn.times[0],
                &turn.times[1],
            ],
        )?;
        let end = turn.first_seq + turn.seq.len() as i64;
        let (turns, chain) = (turn.number + 1, turn.chain.last());
        client.execute(
            of_loop,
            &[
                session,
                loop_key,
                &end,
                &turns,
                &count,
                &tokens,
                &bytes,
                &turn.turn_index,
                &chain,
            ],
        )?;
        let now = "2026-01-01T00:00:00.000Z";
        client.execute(of_session, &[session, &now, loop_key, &turn.last_tick])?;
        client.batch_execute("COMMIT")?;
        Ok(())
    }
}

/// Reads a session's context.
pub struct Reader {
    client: Client,
    statements: [Statement; 4],
}

impl Reader {
    pub fn new(address: &str) -> Outcome<Self> {
        let mut client = Client::connect(address, NoTls)?;
        let [session, chain, of_block, originals] = [
            "SELECT s.session, s.current_loop FROM session_names n
             JOIN sessions s ON s.session = n.session WHERE n.session_id = $1",
            "WITH RECURSIVE chain AS (
                 SELECT l.key, l.parent FROM loops l WHERE l.session = $1 AND l.key = $2
                 UNION ALL
                 SELECT l.key, l.parent FROM chain c
                 JOIN loops l ON l.session = $1 AND l.key = c.parent AND l.key < c.key
             )
             SELECT c.key, b.key AS block, b.recent_start FROM chain c
             LEFT JOIN LATERAL (
                 SELECT b.key, b.recent_start FROM blocks b
                 WHERE b.session = $1 AND b.loop = c.key ORDER BY b.generation DESC LIMIT 1
             ) b ON TRUE",
            "SELECT head, body, body_block FROM block_messages
             WHERE session = $1 AND block = $2 ORDER BY ordinal",
            "SELECT head, body, body_block FROM messages
             WHERE session = $1 AND loop = $2 ORDER BY seq",
        ]
        .map(|sql| client.prepare(sql));
        Ok(Self {
            client,
            statements: [session?, chain?, of_block?, originals?],
        })
    }

    /// Returns the messages of the context.
    pub fn build(&mut self, id: &str) -> Outcome<Vec<Plain>> {
        let Self { client, statements } = self;
        let [session, chain, of_block, originals] = statements;
        client.batch_execute(BEGIN_READ)?;
        let row = client.query_one(session, &[&id])?;
        let (session, leaf): (i64, Option<i64>) = (row.get(0), row.get(1));
        let mut messages = Vec::new();
        for link in client.query(chain, &[&session, &leaf])?.iter().rev() {
            let (loop_key, block): (i64, Option<i64>) = (link.get(0), link.get(1));
            let rows = match block {
                Some(block) if link.get::<_, Option<i64>>(2).is_none() => {
                    client.query(of_block, &[&session, &block])?
                }
                _ => client.query(originals, &[&session, &loop_key])?,
            };
            for row in &rows {
                messages.push(parsed(row)?);
            }
        }
        client.batch_execute("ROLLBACK")?;
        Ok(messages)
    }
}

fn parsed(row: &Row) -> Outcome<Plain> {
    let mut message: Plain = serde_json::from_str(row.get(0))?;
    if let (Some(text), Some(at)) = (
        row.get::<_, Option<String>>(1),
        row.get::<_, Option<i64>>(2),
    ) {
        message.put_text(at as usize, text);
    }
    Ok(message)
}
