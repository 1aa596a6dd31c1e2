//! The figures of a database.

/// Figures of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Sessions.
    pub sessions: i64,
    /// Loops.
    pub loops: i64,
    /// Turns.
    pub turns: i64,
    /// Messages, extensions not counted.
    pub messages: i64,
    /// Extension messages.
    pub extensions: i64,
    /// Tokens of the messages.
    pub tokens: i64,
    /// Bytes of the messages as JSON.
    pub bytes: i64,
    /// Compaction runs.
    pub runs: i64,
    /// Blocks that these runs wrote.
    pub blocks: i64,
    /// Images and other binary content.
    pub blobs: i64,
    /// Bytes of these blobs.
    pub blob_bytes: i64,
    /// Size of the database file in bytes.
    pub file_bytes: i64,
    /// Size of the write-ahead log in bytes.
    pub wal_bytes: i64,
}
