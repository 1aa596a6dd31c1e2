-- What redaction, pruning and erasing need. A message that was redacted keeps its digest and its place
-- in the chain, and loses the salt: what stood there can no longer be tried out. What stands there
-- now has a digest of its own.

CREATE TABLE redactions (
    -- A message, or as a negative number a message of a block.
    owner   INTEGER PRIMARY KEY,
    -- The receipt of the last redaction that changed it.
    receipt INTEGER NOT NULL REFERENCES maintenance (key),
    -- SHA-256 of salt and stored bytes, as messages have it.
    salt    BLOB NOT NULL,
    digest  BLOB NOT NULL
) STRICT;
CREATE INDEX redactions_receipt ON redactions (receipt);

CREATE TRIGGER redactions_no_update
BEFORE UPDATE ON redactions
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE m.closed_at IS NULL AND l.key = CASE
        WHEN OLD.owner >= 0 THEN OLD.owner >> 32
        ELSE (SELECT loop FROM blocks WHERE key = -OLD.owner >> 32)
    END
)
BEGIN
    SELECT RAISE(ABORT, 'what is left of a redacted message is never changed');
END;

-- It goes with its message.
CREATE TRIGGER redactions_no_delete
BEFORE DELETE ON redactions
WHEN CASE
        WHEN OLD.owner >= 0 THEN EXISTS (SELECT 1 FROM messages WHERE id = OLD.owner)
        ELSE EXISTS (SELECT 1 FROM block_messages WHERE id = -OLD.owner)
    END
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE m.closed_at IS NULL AND l.key = CASE
            WHEN OLD.owner >= 0 THEN OLD.owner >> 32
            ELSE (SELECT loop FROM blocks WHERE key = -OLD.owner >> 32)
        END
    )
BEGIN
    SELECT RAISE(ABORT, 'what is left of a redacted message is never deleted');
END;

CREATE TRIGGER redactions_no_replace
BEFORE INSERT ON redactions
WHEN EXISTS (SELECT 1 FROM redactions WHERE owner = NEW.owner)
BEGIN
    SELECT RAISE(ABORT, 'what is left of a redacted message is never replaced');
END;

-- What was decided about a session. A row goes with its session.
CREATE TABLE session_flags (
    session   INTEGER PRIMARY KEY REFERENCES sessions (key) ON DELETE CASCADE,
    -- ISO-8601 text: since when prune leaves it alone; NULL: it does not.
    pinned_at TEXT,
    -- Whether what is imported into it is redacted first.
    redacts   INTEGER NOT NULL DEFAULT 0 CHECK (redacts IN (0, 1))
) STRICT;

-- That bytes of what was removed may still be in the file stands in store_meta until they are gone.
DROP TRIGGER store_meta_no_delete;

CREATE TRIGGER store_meta_no_delete
BEFORE DELETE ON store_meta
WHEN OLD.name NOT IN ('recount', 'scrub')
BEGIN
    SELECT RAISE(ABORT, 'what a database is written with is never deleted');
END;

-- Notes are redacted too.
DROP TRIGGER notes_no_update;

CREATE TRIGGER notes_no_update
BEFORE UPDATE ON notes
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'a note is never changed');
END;
