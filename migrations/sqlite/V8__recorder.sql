-- What a recorder needs besides messages: who drives a loop, which tool calls have started, and what
-- was told of turns and events while a loop runs. Nothing here is part of a digest. All of it goes
-- with its loop.

-- Who may write to a loop. A row stays when its lease is let go, so that a token is never given
-- twice.
CREATE TABLE leases (
    loop       INTEGER PRIMARY KEY REFERENCES loops (key) ON DELETE CASCADE,
    owner      TEXT NOT NULL,
    -- Raised each time that the lease is taken, or taken away.
    token      INTEGER NOT NULL CHECK (token > 0),
    -- Milliseconds.
    ttl        INTEGER NOT NULL CHECK (ttl > 0),
    -- Milliseconds since the epoch, by the clock of whoever wrote them.
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    -- Whether the holder has let it go, or it was taken away.
    released   INTEGER NOT NULL
) STRICT;

CREATE TRIGGER leases_never_go_back
BEFORE UPDATE ON leases
WHEN NEW.loop IS NOT OLD.loop OR NEW.token < OLD.token
BEGIN
    SELECT RAISE(ABORT, 'the token of a lease never goes back');
END;

CREATE TRIGGER leases_no_delete
BEFORE DELETE ON leases
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
) AND EXISTS (SELECT 1 FROM loops WHERE key = OLD.loop)
BEGIN
    SELECT RAISE(ABORT, 'a lease is let go, never deleted');
END;

CREATE TRIGGER leases_no_replace
BEFORE INSERT ON leases
WHEN EXISTS (SELECT 1 FROM leases WHERE loop = NEW.loop)
BEGIN
    SELECT RAISE(ABORT, 'a lease is never replaced');
END;

-- Tool calls, written before the tool runs.
CREATE TABLE started_calls (
    key             INTEGER PRIMARY KEY,
    loop            INTEGER NOT NULL REFERENCES loops (key) ON DELETE CASCADE,
    call_id         TEXT NOT NULL,
    -- Counts the calls of the loop with this id from 0: some models number theirs anew each turn.
    nth             INTEGER NOT NULL,
    tool_name       TEXT NOT NULL,
    -- JSON. NULL once the result is stored: the message of the call has them.
    arguments       TEXT,
    idempotency_key TEXT NOT NULL,
    -- The source's index of the turn.
    turn_index      INTEGER,
    -- ISO-8601 text; when it was first started.
    started_at      TEXT NOT NULL,
    -- How often it was started.
    attempts        INTEGER NOT NULL,
    -- ISO-8601 text; NULL: there is no result.
    finished_at     TEXT,
    UNIQUE (loop, call_id, nth)
) STRICT;
CREATE INDEX started_calls_open ON started_calls (loop) WHERE finished_at IS NULL;

CREATE TRIGGER started_calls_stay
BEFORE UPDATE ON started_calls
WHEN (NEW.key IS NOT OLD.key OR NEW.loop IS NOT OLD.loop OR NEW.call_id IS NOT OLD.call_id
        OR NEW.nth IS NOT OLD.nth OR NEW.tool_name IS NOT OLD.tool_name
        OR NEW.idempotency_key IS NOT OLD.idempotency_key
        OR NEW.started_at IS NOT OLD.started_at OR OLD.finished_at IS NOT NULL
        OR (NEW.arguments IS NOT OLD.arguments AND NEW.finished_at IS NULL))
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.loop AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'a started call is never changed but to finish it');
END;

CREATE TRIGGER started_calls_no_delete
BEFORE DELETE ON started_calls
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
) AND EXISTS (SELECT 1 FROM loops WHERE key = OLD.loop)
BEGIN
    SELECT RAISE(ABORT, 'a started call is never deleted');
END;

CREATE TRIGGER started_calls_no_replace
BEFORE INSERT ON started_calls
WHEN EXISTS (
    SELECT 1 FROM started_calls
    WHERE key = NEW.key OR (loop = NEW.loop AND call_id = NEW.call_id AND nth = NEW.nth)
)
BEGIN
    SELECT RAISE(ABORT, 'a started call is never replaced');
END;

-- Turns and events of a loop that runs, in which a stored message stands as its sequence. When the
-- loop ends they go into loops.history.
CREATE TABLE notes (
    -- (loop << 32) | ordinal
    id   INTEGER PRIMARY KEY,
    -- 0 an event, 1 a turn
    kind INTEGER NOT NULL CHECK (kind IN (0, 1)),
    note TEXT NOT NULL
) STRICT;

CREATE TRIGGER notes_no_update
BEFORE UPDATE ON notes
BEGIN
    SELECT RAISE(ABORT, 'a note is never changed');
END;

CREATE TRIGGER notes_no_replace
BEFORE INSERT ON notes
WHEN EXISTS (SELECT 1 FROM notes WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'a note is never replaced');
END;

-- Notes have no reference that could cascade.
CREATE TRIGGER loops_take_their_notes
AFTER DELETE ON loops
BEGIN
    DELETE FROM notes WHERE id >= OLD.key << 32 AND id < (OLD.key + 1) << 32;
END;

CREATE INDEX loops_at_work ON loops (session) WHERE status IN ('Pending', 'Running');

-- The session that started this one. CAST, so that both sides of a comparison have one affinity:
-- without it the index is not used.
CREATE INDEX sessions_started_by ON sessions (
    CAST(
        CASE WHEN json_valid(meta)
            THEN json_extract(meta, '$.parent_spawn_ref.parent_session_id') END
        AS TEXT
    )
);

-- Internal. Sessions with where they were started and what providers reported for them.
CREATE VIEW session_spend AS
SELECT
    s.key, s.session_id,
    CASE WHEN json_valid(s.meta)
        THEN json_extract(s.meta, '$.parent_spawn_ref.parent_session_id') END AS parent_session_id,
    CASE WHEN json_valid(s.meta)
        THEN json_extract(s.meta, '$.parent_spawn_ref.parent_loop_id') END AS parent_loop_id,
    CASE WHEN json_valid(s.meta)
        THEN json_extract(s.meta, '$.parent_spawn_ref.tool_call_id') END AS tool_call_id,
    (
        SELECT json_array(
            total(json_extract(m.json, '$.usage.input')),
            total(json_extract(m.json, '$.usage.output')),
            total(coalesce(
                json_extract(m.json, '$.usage.total_tokens'),
                coalesce(json_extract(m.json, '$.usage.input'), 0)
                    + coalesce(json_extract(m.json, '$.usage.output'), 0)
                    + coalesce(json_extract(m.json, '$.usage.cache_read'), 0)
                    + coalesce(json_extract(m.json, '$.usage.cache_write'), 0)
            )),
            total(CASE json_type(m.json, '$.usage.cost')
                WHEN 'object' THEN json_extract(m.json, '$.usage.cost.total')
                ELSE json_extract(m.json, '$.usage.cost')
            END)
        )
        FROM loops l
            CROSS JOIN message_content m ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32
        WHERE l.session = s.key AND m.role = 1 AND json_type(m.json, '$.usage') = 'object'
    ) AS spend
FROM sessions s;

-- Sessions as a tree: which session, loop and tool call started each, and what providers reported
-- for it alone and (tree_) for it and all sessions below it. cost is what providers reported as
-- usage.cost (or usage.cost.total), in their currency.
CREATE VIEW v_session_tree AS
SELECT
    s.session_id, s.parent_session_id, s.parent_loop_id, s.tool_call_id,
    CAST(own.value ->> 0 AS INTEGER) AS input,
    CAST(own.value ->> 1 AS INTEGER) AS output,
    CAST(own.value ->> 2 AS INTEGER) AS total,
    own.value ->> 3 AS cost,
    tree.value ->> 0 AS tree_sessions,
    CAST(tree.value ->> 1 AS INTEGER) AS tree_input,
    CAST(tree.value ->> 2 AS INTEGER) AS tree_output,
    CAST(tree.value ->> 3 AS INTEGER) AS tree_total,
    tree.value ->> 4 AS tree_cost
FROM session_spend s
-- A row of json_each() is computed once; a column of a view each time that it is named.
CROSS JOIN json_each(json_array(json(s.spend))) own
CROSS JOIN json_each((
    -- UNION drops what was seen, so that a circle ends.
    WITH RECURSIVE below (session_id) AS (
        SELECT s.session_id
        UNION
        SELECT c.session_id FROM below b CROSS JOIN sessions c
            ON CAST(
                CASE WHEN json_valid(c.meta)
                    THEN json_extract(c.meta, '$.parent_spawn_ref.parent_session_id') END
                AS TEXT
            ) = b.session_id
    )
    SELECT json_array(json_array(
        count(*), total(sum.value ->> 0), total(sum.value ->> 1), total(sum.value ->> 2),
        total(sum.value ->> 3)
    ))
    FROM below b
        CROSS JOIN session_spend x ON x.session_id = b.session_id
        CROSS JOIN json_each(json_array(json(x.spend))) sum
)) tree;
