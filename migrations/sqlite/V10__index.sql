-- SQLite before 3.43 does not know `contentless_delete`, and programs that look at every table refuse
-- the whole file for it. So the index does without: it is made anew when something is taken out, which
-- only removal asks for.

DROP TABLE message_index;

CREATE VIRTUAL TABLE message_index USING fts5 (
    words,
    -- The tools that the message calls or answers for, each as one word.
    tools,
    content = '', tokenize = 'ascii'
);

-- The number of a page is not given again: words of a message that is gone may be left under it.
DROP TABLE index_pages;

CREATE TABLE index_pages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    loop   INTEGER NOT NULL,
    -- sequence >> 6 of its messages.
    part   INTEGER NOT NULL,
    UNIQUE (loop, part)
) STRICT;

DELETE FROM indexed_loops;
DELETE FROM indexed_sessions;
DELETE FROM index_state;
