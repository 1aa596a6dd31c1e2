-- Archived loops. The content of their messages is moved into packs: runs of messages, compressed
-- together. The rows in `messages` stay with place, sizes, digest and chain; head and body are NULL.
-- Packs come and go only while a receipt of kind `archive` (or of a removal) is open.

CREATE TABLE packs (
    -- (loop << 32) | sequence of the first message
    id       INTEGER PRIMARY KEY,
    -- The last message; all between are in it.
    last_seq INTEGER NOT NULL,
    -- The content before it was compressed.
    bytes    INTEGER NOT NULL,
    -- SHA-256 of the columns before and the content.
    digest   BLOB NOT NULL,
    -- Heads and bodies as raw DEFLATE.
    content  BLOB NOT NULL
) STRICT;

-- What the views tell of archived messages: usage and model of an answer, ids and names of its calls,
-- which call a result answers. Derived from the head, as JSON of the same form.
CREATE TABLE packed_heads (
    -- The message.
    id   INTEGER PRIMARY KEY,
    head TEXT NOT NULL
) STRICT;

CREATE TRIGGER packs_no_insert
BEFORE INSERT ON packs
WHEN EXISTS (SELECT 1 FROM packs WHERE id = NEW.id)
    OR NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = NEW.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a pack is only written while a receipt is open, and never replaced');
END;

CREATE TRIGGER packs_no_update
BEFORE UPDATE ON packs
BEGIN
    SELECT RAISE(ABORT, 'a pack is never changed');
END;

CREATE TRIGGER packs_no_delete
BEFORE DELETE ON packs
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'a pack is never deleted');
END;

CREATE TRIGGER packed_heads_no_insert
BEFORE INSERT ON packed_heads
WHEN EXISTS (SELECT 1 FROM packed_heads WHERE id = NEW.id)
    OR NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = NEW.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'what is told of an archived message is never replaced');
END;

CREATE TRIGGER packed_heads_no_update
BEFORE UPDATE ON packed_heads
BEGIN
    SELECT RAISE(ABORT, 'what is told of an archived message is never changed');
END;

CREATE TRIGGER packed_heads_no_delete
BEFORE DELETE ON packed_heads
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'what is told of an archived message is never deleted');
END;

-- Internal. Messages with their largest text back in its place. `json` is the head where it is
-- JSON, or what is told of an archived message; `payload` is the whole message, NULL when it was
-- redacted or archived. NOT INDEXED, since SQLite would rather index all messages by role than search
-- the range of a loop's keys.
DROP VIEW message_content;

CREATE VIEW message_content AS
SELECT
    m.id, m.turn, m.role, m.tokens, m.bytes, m.created_at,
    CASE
        WHEN json_valid(m.head) THEN m.head
        WHEN m.head IS NULL THEN (
            SELECT p.head FROM packed_heads p WHERE p.id = m.id AND json_valid(p.head)
        )
    END AS json,
    CASE
        WHEN m.body_block >= 0 AND json_valid(m.head)
        THEN json_set(m.head, '$.content[' || m.body_block || '].text', m.body)
        ELSE m.head
    END AS payload,
    CASE
        WHEN m.role = 3 THEN NULL
        WHEN json_valid(m.head) THEN (
            SELECT group_concat(
                CASE
                    WHEN block.key = m.body_block THEN m.body
                    ELSE json_extract(block.value, '$.text')
                END,
                char(10)
            )
            FROM json_each(m.head, '$.content') block
            WHERE CASE block.type WHEN 'object' THEN json_extract(block.value, '$.type') END
                = 'text'
        )
        ELSE m.body
    END AS text
FROM messages m NOT INDEXED;
