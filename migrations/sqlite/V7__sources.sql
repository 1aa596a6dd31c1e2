-- The files that sessions were imported from, byte for byte: `loopstore export --format original`
-- gives them back. A file is stored as pieces of at most 1 MiB, each compressed and stored once. A
-- file that grew gets new parts behind the old ones. Sessions imported before this version, or with
-- --no-source, have none.

CREATE TABLE sources (
    key       INTEGER PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
    format    TEXT NOT NULL,
    -- The whole path of the file.
    path      TEXT NOT NULL,
    bytes     INTEGER NOT NULL,
    -- SHA-256 of the SHA-256 of each part, in order.
    digest    BLOB NOT NULL,
    -- When it last came with something new.
    kept_at   TEXT NOT NULL
) STRICT;

-- Which sessions a file holds something of.
CREATE TABLE source_sessions (
    session INTEGER NOT NULL REFERENCES sessions (key),
    source  INTEGER NOT NULL REFERENCES sources (key),
    PRIMARY KEY (session, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX source_sessions_source ON source_sessions (source);

CREATE TABLE source_pieces (
    key    INTEGER PRIMARY KEY,
    -- Of the bytes as they stood in the file, and how many these are.
    sha256 BLOB NOT NULL UNIQUE,
    bytes  INTEGER NOT NULL,
    -- The bytes as raw DEFLATE.
    data   BLOB NOT NULL
) STRICT;

CREATE TABLE source_parts (
    -- (source << 32) | number
    id    INTEGER PRIMARY KEY,
    piece INTEGER NOT NULL REFERENCES source_pieces (key)
) STRICT;
CREATE INDEX source_parts_piece ON source_parts (piece);

CREATE TRIGGER source_pieces_no_update
BEFORE UPDATE ON source_pieces
BEGIN
    SELECT RAISE(ABORT, 'a piece of a source is never changed');
END;

CREATE TRIGGER source_pieces_no_delete
BEFORE DELETE ON source_pieces
WHEN EXISTS (SELECT 1 FROM source_parts WHERE piece = OLD.key)
BEGIN
    SELECT RAISE(ABORT, 'a piece of a source is never deleted while a source needs it');
END;

CREATE TRIGGER source_pieces_no_replace
BEFORE INSERT ON source_pieces
WHEN EXISTS (SELECT 1 FROM source_pieces WHERE key = NEW.key OR sha256 = NEW.sha256)
BEGIN
    SELECT RAISE(ABORT, 'a piece of a source is never replaced');
END;
