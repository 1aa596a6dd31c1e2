//! The same lines through plain SQLite: the rows, counters, digests and indexes of an import, and
//! nothing read but where a line ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::{Connection, TransactionBehavior, params};
use sha2::{Digest, Sha256};

use super::Result;

/// Lines of a turn: an answer and its result.
const TURN: i64 = 2;

/// Stores the files, one transaction each; returns the seconds.
pub fn import(files: &[PathBuf], db: &Path) -> Result<f64> {
    let mut connection = Connection::open(db)?;
    connection.execute_batch(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE loops (key INTEGER PRIMARY KEY, loop_id TEXT NOT NULL UNIQUE, messages INTEGER,
             tokens INTEGER, bytes INTEGER, chain BLOB) STRICT;
         CREATE TABLE turns (id INTEGER PRIMARY KEY, first_seq INTEGER, messages INTEGER,
             tokens INTEGER, bytes INTEGER, tick INTEGER) STRICT;
         CREATE TABLE messages (id INTEGER PRIMARY KEY, turn INTEGER, role INTEGER, tick INTEGER,
             tokens INTEGER, bytes INTEGER, created_at INTEGER, origin BLOB, salt BLOB, digest BLOB,
             chain BLOB, head TEXT, body TEXT) STRICT;",
    )?;
    let begun = Instant::now();
    for (at, file) in (1..).zip(files) {
        import_file(&mut connection, at, file)?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn import_file(connection: &mut Connection, key: i64, file: &Path) -> Result<()> {
    let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let mut message = write.prepare_cached(
            "INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        let mut turn = write.prepare_cached("INSERT INTO turns VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let mut owner =
            write.prepare_cached("INSERT OR REPLACE INTO loops VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let (mut tokens, mut bytes, mut chain) = (0_i64, 0_i64, [0_u8; 32]);
        let mut lines = BufReader::with_capacity(128 << 10, File::open(file)?);
        let mut line = String::new();
        for seq in 0_i64.. {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                break;
            }
            let salt: [u8; 16] = seq.to_le_bytes().repeat(2).try_into().unwrap_or_default();
            let origin: [u8; 32] = Sha256::digest(&line).into();
            let digest: [u8; 32] = Sha256::new()
                .chain_update(salt)
                .chain_update(&line)
                .finalize()
                .into();
            chain = Sha256::new()
                .chain_update(chain)
                .chain_update(digest)
                .finalize()
                .into();
            let size = i64::try_from(line.len())?;
            (tokens, bytes) = (tokens + size / 4, bytes + size);
            let head = &line[..line.len().min(160)];
            message.execute(params![
                (key << 32) | seq,
                seq / TURN,
                seq % 2,
                seq,
                size / 4,
                size,
                seq,
                origin,
                salt,
                digest,
                chain,
                head,
                line
            ])?;
            if seq % TURN == 0 {
                turn.execute(params![
                    (key << 32) | (seq / TURN),
                    seq,
                    seq,
                    tokens,
                    bytes,
                    seq
                ])?;
            }
            // A loop's counters change with each batch.
            if seq % 256 == 0 {
                owner.execute(params![key, key.to_string(), seq, tokens, bytes, chain])?;
            }
        }
    }
    write.commit()?;
    Ok(())
}
