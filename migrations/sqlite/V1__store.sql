-- The tables of a loopstore database.
--
-- Public ids stand only on sessions, loops and runs; everything else refers by integer. The key of
-- a message or turn holds its loop: (loop << 32) | number, so that a loop's rows lie together and
-- no second index is needed. Turn numbers are positions of turn groups, from 0.

CREATE TABLE store_meta (
    -- What the value is: token_counter, import_key, created_at.
    name  TEXT PRIMARY KEY NOT NULL,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    key            INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL UNIQUE CHECK (length(session_id) > 0),
    agent_id       TEXT,
    title          TEXT,
    created_at     TEXT,
    last_active_at TEXT,
    -- The loop last appended to or created.
    current_loop   INTEGER,
    -- Raised by every committed append, loop start, run, undo and redo.
    tick           INTEGER NOT NULL DEFAULT 0,
    -- The format that the session was imported from.
    source         TEXT,
    -- The interchange form without its loops.
    meta           TEXT NOT NULL
) STRICT;

CREATE TABLE loops (
    key             INTEGER PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
    session         INTEGER NOT NULL REFERENCES sessions (key),
    loop_id         TEXT NOT NULL CHECK (length(loop_id) > 0),
    -- A parent is always stored before its children, so that no cycle can exist.
    parent          INTEGER REFERENCES loops (key) CHECK (parent < key),
    -- The parent as the source names it; it may lie in another session.
    parent_loop_id  TEXT,
    -- Last turn of the parent that belongs to this chain; NULL: none.
    parent_turn     INTEGER,
    kind            TEXT NOT NULL,
    status          TEXT NOT NULL,
    started_at      TEXT,
    ended_at        TEXT,
    tick            INTEGER NOT NULL,
    -- Rows in messages, extensions included.
    next_seq        INTEGER NOT NULL DEFAULT 0,
    -- Messages before this sequence are sealed.
    sealed_seq      INTEGER NOT NULL DEFAULT 0,
    turns           INTEGER NOT NULL DEFAULT 0,
    -- Turns that are not in flight.
    complete        INTEGER NOT NULL DEFAULT 0,
    messages        INTEGER NOT NULL DEFAULT 0,
    tokens          INTEGER NOT NULL DEFAULT 0,
    bytes           INTEGER NOT NULL DEFAULT 0,
    -- Tokens of extensions of kind system: the default of the system prompt's size.
    system_tokens   INTEGER NOT NULL DEFAULT 0,
    -- The newest generation of a block on this loop.
    generation      INTEGER NOT NULL DEFAULT 0,
    -- The source's turn index of the last group.
    last_turn_index INTEGER,
    -- Calls without a result: {"call id": turn}; NULL: none.
    open_calls      TEXT,
    -- Digest chain up to the last message.
    chain           BLOB NOT NULL,
    -- The interchange form without messages, turns and events.
    meta            TEXT NOT NULL,
    -- Recorded turns and events, in which a message that is stored stands as its sequence.
    history         TEXT,
    UNIQUE (session, loop_id)
) STRICT;
CREATE INDEX loops_parent ON loops (parent);

CREATE TABLE turns (
    -- (loop << 32) | turn
    id           INTEGER PRIMARY KEY,
    first_seq    INTEGER NOT NULL,
    -- Totals of the loop from its start through this turn; extensions do not count.
    messages     INTEGER NOT NULL,
    prompts      INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    turn_index   INTEGER,
    -- Whether the model answered.
    answered     INTEGER NOT NULL,
    -- Other turns that hold a call answered here: [[loop, turn], …]; NULL: none.
    answers      TEXT,
    -- Tick of the last append to this turn.
    tick         INTEGER NOT NULL,
    -- Milliseconds since the epoch of its first and last message.
    started_at   INTEGER,
    ended_at     INTEGER
) STRICT;
-- Calls are nearly always answered in their own turn.
CREATE INDEX turns_answers ON turns (id) WHERE answers IS NOT NULL;

CREATE TABLE messages (
    -- (loop << 32) | sequence
    id         INTEGER PRIMARY KEY,
    -- NULL for an extension before the first turn.
    turn       INTEGER,
    -- 0 user, 1 assistant, 2 tool result, 3 extension
    role       INTEGER NOT NULL CHECK (role BETWEEN 0 AND 3),
    tick       INTEGER NOT NULL,
    tokens     INTEGER NOT NULL,
    -- Size of the message's JSON.
    bytes      INTEGER NOT NULL,
    -- Lines of the longest text of a tool result.
    lines      INTEGER,
    -- Milliseconds since the epoch.
    created_at INTEGER,
    -- The content block whose text stands in body.
    body_block INTEGER,
    -- Digest of the record that the message was imported from, keyed with import_key.
    origin     BLOB,
    salt       BLOB,
    -- SHA-256 of salt and stored bytes, and the chain of these through the loop.
    digest     BLOB NOT NULL,
    chain      BLOB NOT NULL,
    -- The interchange form, its largest text left empty; NULL when redacted or archived.
    head       TEXT,
    body       TEXT
) STRICT;

CREATE TABLE blobs (
    key    INTEGER PRIMARY KEY,
    sha256 BLOB NOT NULL UNIQUE,
    bytes  INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT;

-- Who shows a blob: a message, or as a negative number a block message.
CREATE TABLE blob_refs (
    owner INTEGER NOT NULL,
    blob  INTEGER NOT NULL REFERENCES blobs (key),
    PRIMARY KEY (owner, blob)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_refs_blob ON blob_refs (blob);

CREATE TABLE runs (
    key             INTEGER PRIMARY KEY,
    session         INTEGER NOT NULL REFERENCES sessions (key),
    run_id          TEXT NOT NULL UNIQUE CHECK (length(run_id) > 0 AND instr(run_id, ':') = 0),
    -- The point: the leaf, and its complete turns in the plan.
    loop            INTEGER NOT NULL REFERENCES loops (key),
    turns           INTEGER NOT NULL,
    tick            INTEGER NOT NULL,
    trigger         TEXT NOT NULL,
    strategy        TEXT NOT NULL,
    round           INTEGER NOT NULL,
    outcome         TEXT NOT NULL CHECK (outcome IN ('committed', 'no_gain', 'vetoed', 'failed', 'conflict')),
    fallback        TEXT,
    error           TEXT,
    scope           TEXT NOT NULL,
    older_loops     TEXT NOT NULL CHECK (older_loops IN ('skip', 'rollup')),
    counter         TEXT NOT NULL,
    tokens_before   INTEGER NOT NULL,
    tokens_after    INTEGER NOT NULL,
    bytes_before    INTEGER NOT NULL,
    bytes_after     INTEGER NOT NULL,
    messages_before INTEGER NOT NULL,
    messages_after  INTEGER NOT NULL,
    started_at      TEXT NOT NULL,
    duration_ms     INTEGER NOT NULL,
    -- The whole configuration as JSON.
    config          TEXT NOT NULL,
    -- Tokens that summarisers reported, as JSON.
    usage           TEXT,
    -- Digest of layouts, inputs, strategy and text-shaping configuration.
    plan            BLOB NOT NULL,
    -- What another tool recorded of its own compaction.
    record          TEXT,
    digest          BLOB NOT NULL
) STRICT;
CREATE INDEX runs_loop ON runs (loop, tick);
CREATE INDEX runs_session ON runs (session, tick);

CREATE TABLE flips (
    key     INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (key),
    run     INTEGER NOT NULL REFERENCES runs (key),
    kind    TEXT NOT NULL CHECK (kind IN ('undo', 'redo')),
    -- The point: the leaf, and its complete turns.
    loop    INTEGER NOT NULL REFERENCES loops (key),
    turns   INTEGER NOT NULL,
    tick    INTEGER NOT NULL,
    at      TEXT NOT NULL,
    reason  TEXT,
    digest  BLOB NOT NULL
) STRICT;
CREATE INDEX flips_run ON flips (run, tick);
CREATE INDEX flips_loop ON flips (loop, tick);
CREATE INDEX flips_session ON flips (session);

CREATE TABLE blocks (
    key             INTEGER PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
    loop            INTEGER NOT NULL REFERENCES loops (key),
    generation      INTEGER NOT NULL CHECK (generation > 0),
    run             INTEGER NOT NULL REFERENCES runs (key),
    kind            TEXT NOT NULL CHECK (kind IN ('current', 'earlier', 'rollup')),
    -- The rollup that this one goes on from.
    extends         INTEGER REFERENCES blocks (key),
    -- Turn ranges of the sections, both ends inclusive, NULL when absent.
    first_start     INTEGER,
    first_end       INTEGER,
    compacted_start INTEGER,
    compacted_end   INTEGER,
    recent_start    INTEGER,
    recent_end      INTEGER,
    -- Sequences before this one are covered; later ones are the tail.
    through         INTEGER NOT NULL,
    -- Tokens of what is covered, and what the sections show instead.
    tokens_covered  INTEGER NOT NULL,
    tokens_block    INTEGER NOT NULL,
    bytes_block     INTEGER NOT NULL,
    messages_block  INTEGER NOT NULL,
    strategy        TEXT NOT NULL,
    -- Configuration that shapes the text.
    shaping         TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    -- Fields of a foreign block.
    extra           TEXT,
    -- SHA-256 of this row, its coverage and the digests of its messages.
    digest          BLOB NOT NULL,
    UNIQUE (loop, generation),
    CHECK ((first_start IS NULL) = (first_end IS NULL)),
    CHECK ((compacted_start IS NULL) = (compacted_end IS NULL)),
    CHECK ((recent_start IS NULL) = (recent_end IS NULL))
) STRICT;
CREATE INDEX blocks_run ON blocks (run);
CREATE INDEX blocks_extends ON blocks (extends) WHERE extends IS NOT NULL;

CREATE TABLE block_messages (
    -- (block << 32) | ordinal
    id         INTEGER PRIMARY KEY,
    -- 1 compacted, 2 recent
    section    INTEGER NOT NULL CHECK (section IN (1, 2)),
    -- The original that this one replaces.
    replaces   INTEGER,
    -- NULL: the original is dropped.
    role       INTEGER CHECK (role BETWEEN 0 AND 3),
    tokens     INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    body_block INTEGER,
    salt       BLOB,
    digest     BLOB NOT NULL,
    head       TEXT,
    body       TEXT
) STRICT;

CREATE TABLE coverage (
    -- (block << 32) | ordinal
    id          INTEGER PRIMARY KEY,
    loop        INTEGER NOT NULL REFERENCES loops (key),
    -- Both ends inclusive; NULL for a loop without messages.
    from_seq    INTEGER,
    to_seq      INTEGER,
    from_turn   INTEGER,
    to_turn     INTEGER,
    disposition TEXT NOT NULL
        CHECK (disposition IN ('kept', 'truncated', 'summarised', 'dropped', 'rolled_up'))
) STRICT;
CREATE INDEX coverage_loop ON coverage (loop);

CREATE TABLE imports (
    key         INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES sessions (key),
    format      TEXT NOT NULL,
    path        TEXT NOT NULL,
    file_name   TEXT NOT NULL,
    -- The record's own key, for formats whose sessions have no id.
    record_key  TEXT,
    imported_at TEXT NOT NULL
) STRICT;
CREATE INDEX imports_session ON imports (session);
CREATE INDEX imports_identity ON imports (format, file_name, record_key);

-- The receipts of everything that removed content.
CREATE TABLE maintenance (
    key       INTEGER PRIMARY KEY,
    session   INTEGER NOT NULL,
    kind      TEXT NOT NULL CHECK (kind IN ('erase', 'redact', 'prune', 'archive')),
    opened_at TEXT NOT NULL,
    closed_at TEXT,
    detail    TEXT NOT NULL
) STRICT;
CREATE INDEX maintenance_open ON maintenance (session) WHERE closed_at IS NULL;

-- Originals are immutable. A BEFORE INSERT trigger also stops INSERT OR REPLACE, which deletes
-- without firing a delete trigger. No trigger names columns (UPDATE OF): `SET rowid = ...` changes a
-- key under another name and would pass.

CREATE TRIGGER messages_no_update
BEFORE UPDATE ON messages
WHEN (NEW.id IS NOT OLD.id OR NEW.turn IS NOT OLD.turn OR NEW.role IS NOT OLD.role
        OR NEW.tick IS NOT OLD.tick OR NEW.created_at IS NOT OLD.created_at
        OR NEW.body_block IS NOT OLD.body_block OR NEW.origin IS NOT OLD.origin
        OR NEW.salt IS NOT OLD.salt OR NEW.digest IS NOT OLD.digest
        OR NEW.chain IS NOT OLD.chain OR NEW.head IS NOT OLD.head OR NEW.body IS NOT OLD.body)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a stored message is never changed');
END;

CREATE TRIGGER messages_no_delete
BEFORE DELETE ON messages
WHEN (OLD.id & 4294967295) < (SELECT sealed_seq FROM loops WHERE key = OLD.id >> 32)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a sealed message is never deleted');
END;

CREATE TRIGGER messages_no_replace
BEFORE INSERT ON messages
WHEN EXISTS (SELECT 1 FROM messages WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'a stored message is never replaced');
END;

CREATE TRIGGER loops_stay_sealed
BEFORE UPDATE ON loops
WHEN (NEW.key IS NOT OLD.key OR NEW.session IS NOT OLD.session OR NEW.loop_id IS NOT OLD.loop_id
        OR NEW.parent IS NOT OLD.parent OR NEW.parent_turn IS NOT OLD.parent_turn
        OR NEW.tick IS NOT OLD.tick OR NEW.sealed_seq < OLD.sealed_seq)
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'the place of a loop in its tree and its seal never change');
END;

CREATE TRIGGER loops_no_delete
BEFORE DELETE ON loops
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'a loop is never deleted');
END;

CREATE TRIGGER loops_no_replace
BEFORE INSERT ON loops
WHEN EXISTS (
    SELECT 1 FROM loops
    WHERE key = NEW.key OR (session = NEW.session AND loop_id = NEW.loop_id)
)
BEGIN
    SELECT RAISE(ABORT, 'a loop is never replaced');
END;

CREATE TRIGGER blobs_no_update
BEFORE UPDATE ON blobs
BEGIN
    SELECT RAISE(ABORT, 'a blob is never changed');
END;

CREATE TRIGGER blobs_no_delete
BEFORE DELETE ON blobs
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'a blob is never deleted');
END;

CREATE TRIGGER blobs_no_replace
BEFORE INSERT ON blobs
WHEN EXISTS (SELECT 1 FROM blobs WHERE key = NEW.key OR sha256 = NEW.sha256)
BEGIN
    SELECT RAISE(ABORT, 'a blob is never replaced');
END;

CREATE TRIGGER runs_no_update
BEFORE UPDATE ON runs
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'a run is never changed');
END;

CREATE TRIGGER runs_no_delete
BEFORE DELETE ON runs
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'a run is never deleted');
END;

CREATE TRIGGER runs_no_replace
BEFORE INSERT ON runs
WHEN EXISTS (SELECT 1 FROM runs WHERE key = NEW.key OR run_id = NEW.run_id)
BEGIN
    SELECT RAISE(ABORT, 'a run is never replaced');
END;

CREATE TRIGGER flips_no_update
BEFORE UPDATE ON flips
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'an undo or redo is never changed');
END;

CREATE TRIGGER flips_no_delete
BEFORE DELETE ON flips
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'an undo or redo is never deleted');
END;

CREATE TRIGGER flips_no_replace
BEFORE INSERT ON flips
WHEN EXISTS (SELECT 1 FROM flips WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'an undo or redo is never replaced');
END;

CREATE TRIGGER blocks_no_update
BEFORE UPDATE ON blocks
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'a block is never changed');
END;

CREATE TRIGGER blocks_no_delete
BEFORE DELETE ON blocks
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'a block is never deleted');
END;

CREATE TRIGGER blocks_no_replace
BEFORE INSERT ON blocks
WHEN EXISTS (
    SELECT 1 FROM blocks
    WHERE key = NEW.key OR (loop = NEW.loop AND generation = NEW.generation)
)
BEGIN
    SELECT RAISE(ABORT, 'a block is never replaced');
END;

CREATE TRIGGER block_messages_no_update
BEFORE UPDATE ON block_messages
WHEN (NEW.id IS NOT OLD.id OR NEW.section IS NOT OLD.section OR NEW.replaces IS NOT OLD.replaces
        OR NEW.role IS NOT OLD.role OR NEW.body_block IS NOT OLD.body_block
        OR NEW.salt IS NOT OLD.salt OR NEW.digest IS NOT OLD.digest
        OR NEW.head IS NOT OLD.head OR NEW.body IS NOT OLD.body)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
            JOIN blocks b ON b.loop = l.key
        WHERE b.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a message of a block is never changed');
END;

CREATE TRIGGER block_messages_no_delete
BEFORE DELETE ON block_messages
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        JOIN blocks b ON b.loop = l.key
    WHERE b.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'a message of a block is never deleted');
END;

CREATE TRIGGER block_messages_no_replace
BEFORE INSERT ON block_messages
WHEN EXISTS (SELECT 1 FROM block_messages WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'a message of a block is never replaced');
END;

CREATE TRIGGER coverage_no_update
BEFORE UPDATE ON coverage
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'coverage is never changed');
END;

CREATE TRIGGER coverage_no_delete
BEFORE DELETE ON coverage
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'coverage is never deleted');
END;

CREATE TRIGGER coverage_no_replace
BEFORE INSERT ON coverage
WHEN EXISTS (SELECT 1 FROM coverage WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'coverage is never replaced');
END;

CREATE TRIGGER maintenance_no_delete
BEFORE DELETE ON maintenance
BEGIN
    SELECT RAISE(ABORT, 'a receipt is never deleted');
END;

-- Closing is the one change, and may complete the detail.
CREATE TRIGGER maintenance_only_closes
BEFORE UPDATE ON maintenance
WHEN OLD.closed_at IS NOT NULL OR NEW.closed_at IS NULL OR NEW.key IS NOT OLD.key
    OR NEW.session IS NOT OLD.session OR NEW.kind IS NOT OLD.kind
    OR NEW.opened_at IS NOT OLD.opened_at
BEGIN
    SELECT RAISE(ABORT, 'a receipt is never changed');
END;

CREATE TRIGGER maintenance_no_replace
BEFORE INSERT ON maintenance
WHEN EXISTS (SELECT 1 FROM maintenance WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'a receipt is never replaced');
END;

-- What the rest hangs on: a plain sqlite3 shell has foreign keys off, so they do not defend it.

CREATE TRIGGER sessions_keep_their_id
BEFORE UPDATE ON sessions
WHEN (NEW.key IS NOT OLD.key OR NEW.session_id IS NOT OLD.session_id OR NEW.tick < OLD.tick)
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.key AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'the id and the clock of a session never go back');
END;

CREATE TRIGGER sessions_no_delete
BEFORE DELETE ON sessions
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.key AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'a session is never deleted');
END;

CREATE TRIGGER sessions_no_replace
BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM sessions WHERE key = NEW.key OR session_id = NEW.session_id)
BEGIN
    SELECT RAISE(ABORT, 'a session is never replaced');
END;

CREATE TRIGGER turns_stay
BEFORE UPDATE ON turns
WHEN (NEW.id IS NOT OLD.id OR NEW.first_seq IS NOT OLD.first_seq
        OR NEW.turn_index IS NOT OLD.turn_index)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a turn never moves');
END;

CREATE TRIGGER turns_no_delete
BEFORE DELETE ON turns
WHEN OLD.first_seq < (SELECT sealed_seq FROM loops WHERE key = OLD.id >> 32)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a sealed turn is never deleted');
END;

-- An append writes the totals of its turn over the old ones; it fires this trigger too.
CREATE TRIGGER turns_no_replace
BEFORE INSERT ON turns
WHEN EXISTS (
    SELECT 1 FROM turns
    WHERE id = NEW.id AND (first_seq IS NOT NEW.first_seq OR turn_index IS NOT NEW.turn_index)
)
BEGIN
    SELECT RAISE(ABORT, 'a turn is never replaced');
END;

CREATE TRIGGER blob_refs_no_update
BEFORE UPDATE ON blob_refs
BEGIN
    SELECT RAISE(ABORT, 'a reference to a blob is never changed');
END;

-- Unsealed messages may go with what they refer to.
CREATE TRIGGER blob_refs_no_delete
BEFORE DELETE ON blob_refs
WHEN NOT EXISTS (
        SELECT 1 FROM loops l
        WHERE OLD.owner >= 0 AND l.key = OLD.owner >> 32
            AND (OLD.owner & 4294967295) >= l.sealed_seq
    )
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE m.closed_at IS NULL AND l.key = CASE
            WHEN OLD.owner >= 0 THEN OLD.owner >> 32
            ELSE (SELECT loop FROM blocks WHERE key = -OLD.owner >> 32)
        END
    )
BEGIN
    SELECT RAISE(ABORT, 'a reference to a blob is never deleted');
END;

CREATE TRIGGER imports_no_update
BEFORE UPDATE ON imports
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'the note of an import is never changed');
END;

CREATE TRIGGER imports_no_delete
BEFORE DELETE ON imports
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'the note of an import is never deleted');
END;

CREATE TRIGGER imports_no_replace
BEFORE INSERT ON imports
WHEN EXISTS (SELECT 1 FROM imports WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'the note of an import is never replaced');
END;

-- Without its key a database cannot tell a record that it knows from a new one.
CREATE TRIGGER store_meta_no_update
BEFORE UPDATE ON store_meta
WHEN OLD.name IN ('import_key', 'created_at') OR NEW.name IS NOT OLD.name
BEGIN
    SELECT RAISE(ABORT, 'the key and the birth of a database never change');
END;

CREATE TRIGGER store_meta_no_delete
BEFORE DELETE ON store_meta
BEGIN
    SELECT RAISE(ABORT, 'what a database is written with is never deleted');
END;

CREATE TRIGGER store_meta_no_replace
BEFORE INSERT ON store_meta
WHEN EXISTS (SELECT 1 FROM store_meta WHERE name = NEW.name)
BEGIN
    SELECT RAISE(ABORT, 'what a database is written with is never replaced');
END;
