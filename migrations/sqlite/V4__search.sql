-- `loopstore search` looks words up in an index of all messages. The index is no part of the record:
-- an append never writes it (that would make recording several times slower). It catches up when
-- it is searched or told to, and can be thrown away and made anew from the messages at any time.
--
-- It holds no text, only where which word stands (contentless). loopstore itself splits text into
-- words, the same way for what is stored and what is asked; the tokenizer only parts them at the
-- spaces between.

-- The rowid of a message is (page << 6) | (sequence & 63).
CREATE VIRTUAL TABLE message_index USING fts5 (
    words,
    -- The tools that the message calls or answers for, each as one word.
    tools,
    content = '', contentless_delete = 1, tokenize = 'ascii'
);

-- Pages of 64 messages of a loop. Numbered one after another, the rowids of neighbours are close,
-- and FTS5 notes what lies between them: one byte for each word of a message instead of the five that
-- (loop << 32) | sequence would take, up to half of the index.
CREATE TABLE index_pages (
    number INTEGER PRIMARY KEY,
    loop   INTEGER NOT NULL,
    -- sequence >> 6 of its messages.
    part   INTEGER NOT NULL,
    UNIQUE (loop, part)
) STRICT;

CREATE TABLE indexed_loops (
    loop        INTEGER PRIMARY KEY,
    -- Messages before this sequence are in the index.
    indexed_seq INTEGER NOT NULL
) STRICT;

-- Where the tick of a session is still this one, none of its messages is missing in the index.
CREATE TABLE indexed_sessions (
    session INTEGER PRIMARY KEY,
    tick    INTEGER NOT NULL
) STRICT;

CREATE TABLE index_state (
    key     INTEGER PRIMARY KEY CHECK (key = 1),
    -- The version of the rule that splits text into words.
    version INTEGER NOT NULL
) STRICT;

-- A key may be given again to another loop or session.
CREATE TRIGGER loops_leave_the_index
AFTER DELETE ON loops
BEGIN
    DELETE FROM index_pages WHERE loop = OLD.key;
    DELETE FROM indexed_loops WHERE loop = OLD.key;
    DELETE FROM indexed_sessions WHERE session = OLD.session;
END;

CREATE TRIGGER sessions_leave_the_index
AFTER DELETE ON sessions
BEGIN
    DELETE FROM indexed_sessions WHERE session = OLD.key;
END;
