-- The schema of a loopstore database.
--
-- A session contains loops. A loop is one user prompt and everything until the agent stops. A loop contains
-- turns. A turn is one model call with its input messages and its tool results. A turn contains messages.
-- Each compaction is recorded as a run. A run writes blocks for loops. A block defines the text that a
-- context shows instead of original messages. Original messages are never changed.
--
-- Only sessions, loops, runs and manifests have public text ids. All other references are integer keys. The
-- key of a message or turn contains the key of its loop: (loop << 32) | number. Therefore the rows of a loop
-- are adjacent in the file and need no second index. Turns and messages are numbered within their loop, from
-- 0. The number of a message is called its sequence.
--
-- Query the views whose names begin with `v_`, because their columns are stable. Tables may change between
-- versions.
--
-- Triggers reject forbidden changes from every program, including a plain sqlite3 shell, where foreign keys
-- are off. A removal first writes a receipt into the table maintenance. While the receipt is open, the
-- triggers allow the removal to change rows of its session. Three rules apply to all triggers:
--
-- - A BEFORE INSERT trigger `_no_replace` also rejects INSERT OR REPLACE, which deletes rows without firing a
--   delete trigger.
-- - No trigger names columns (UPDATE OF), because `SET rowid = ...` changes a key under another name and
--   would not fire such a trigger.
-- - Every trigger fails with ABORT, except those that fire when an append inserts a message and when it writes
--   the totals of its loop and session. ABORT makes SQLite copy every page that a statement is about to change,
--   so that the statement can be rolled back. FAIL does not copy pages. FAIL rejects the same rows, but a
--   statement over many rows stops at the rejected row and keeps the changes before that row.

-- store meta --------------------------------------------------------------------------------------

CREATE TABLE store_meta (
    -- The settings of the database, one value per row.

    -- token_counter, import_key or created_at. The names recount and scrub exist only while that work is
    -- unfinished.
    name  TEXT PRIMARY KEY NOT NULL,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Rejects a change of import_key or created_at, and of the name of any setting. Without its import_key a
-- database cannot distinguish a known record from a new one.
CREATE TRIGGER store_meta_no_update
BEFORE UPDATE ON store_meta
WHEN OLD.name IN ('import_key', 'created_at') OR NEW.name IS NOT OLD.name
BEGIN
    SELECT RAISE(ABORT, 'the key and creation time of a database are immutable');
END;

-- Rejects a deletion of any setting except `recount` and `scrub`. `recount` contains the progress of a
-- recount until the recount is done. `scrub` records that bytes of removed content may still be in the file.
CREATE TRIGGER store_meta_no_delete
BEFORE DELETE ON store_meta
WHEN OLD.name NOT IN ('recount', 'scrub')
BEGIN
    SELECT RAISE(ABORT, 'database settings cannot be deleted');
END;

CREATE TRIGGER store_meta_no_replace
BEFORE INSERT ON store_meta
WHEN EXISTS (SELECT 1 FROM store_meta WHERE name = NEW.name)
BEGIN
    SELECT RAISE(ABORT, 'database settings cannot be replaced');
END;

-- sessions ----------------------------------------------------------------------------------------

CREATE TABLE sessions (
    -- One row per session: the history of one agent.

    key            INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL UNIQUE CHECK (length(session_id) > 0),
    agent_id       TEXT,
    title          TEXT,
    -- Both times are ISO-8601 text.
    created_at     TEXT,
    last_active_at TEXT,
    -- The key of the loop that was last created or appended to.
    current_loop   INTEGER,
    -- A counter that every committed append, loop start, run, undo and redo raises. A read as of an earlier
    -- point compares ticks, never times.
    tick           INTEGER NOT NULL DEFAULT 0,
    -- The format that the session was imported from.
    source         TEXT,
    -- The folder that the agent worked in.
    project        TEXT,
    -- The session's JSON without its loops.
    meta           TEXT NOT NULL,
    -- The number and the chain digest of the newest audit row of the session.
    audit_seq      INTEGER NOT NULL DEFAULT 0,
    audit          BLOB NOT NULL DEFAULT (zeroblob(32)),
    -- The number of rows in edits, whatever their runs.
    edits          INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The id of the session that started this session. CAST gives both sides of a comparison the same affinity.
-- Without CAST, SQLite does not use the index.
CREATE INDEX sessions_started_by ON sessions (
    CAST(
        CASE WHEN json_valid(meta)
            THEN json_extract(meta, '$.parent_spawn_ref.parent_session_id') END
        AS TEXT
    )
);

-- Serves the list of sessions, page by page.
CREATE INDEX sessions_active ON sessions (last_active_at);

-- Rejects another key, a lower tick and another session id. Only a hide or unhide changes the session id: the
-- newest row of the session in hides must contain both the old id and the new id.
CREATE TRIGGER sessions_keep_their_id
BEFORE UPDATE ON sessions
WHEN (NEW.key IS NOT OLD.key OR NEW.tick < OLD.tick OR NEW.edits < OLD.edits
        OR NEW.session_id IS NOT OLD.session_id AND NOT EXISTS (
            SELECT 1 FROM hides h
            WHERE h.key = (SELECT max(key) FROM hides WHERE session = OLD.key)
                AND h.was = OLD.session_id AND h.session_id = NEW.session_id
        ))
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.key AND closed_at IS NULL)
BEGIN
    SELECT RAISE(FAIL, 'session ids are immutable, and session ticks cannot decrease');
END;

CREATE TRIGGER sessions_keep_their_audit
BEFORE UPDATE ON sessions
WHEN (NEW.audit_seq IS NOT OLD.audit_seq OR NEW.audit IS NOT OLD.audit)
    AND (NEW.audit_seq <= OLD.audit_seq OR NOT EXISTS (
        SELECT 1 FROM audit
        WHERE session = NEW.key AND audit_seq = NEW.audit_seq AND chain = NEW.audit
    ))
BEGIN
    SELECT RAISE(FAIL, 'audit chains cannot be shortened');
END;

CREATE TRIGGER sessions_no_delete
BEFORE DELETE ON sessions
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.key AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'sessions cannot be deleted');
END;

CREATE TRIGGER sessions_no_replace
BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM sessions WHERE key = NEW.key OR session_id = NEW.session_id)
BEGIN
    SELECT RAISE(ABORT, 'sessions cannot be replaced');
END;

CREATE TRIGGER sessions_begin_unaudited
BEFORE INSERT ON sessions
WHEN NEW.audit_seq <> 0 OR NEW.audit IS NOT zeroblob(32)
BEGIN
    SELECT RAISE(ABORT, 'audit chains must be empty when their session is created');
END;

-- audit -------------------------------------------------------------------------------------------

CREATE TABLE audit (
    -- The log of everything that was done to a session, in order, as a chain of digests. Each session has one
    -- chain, and all receipts share one chain. A deleted row is therefore detectable, including the newest
    -- row. A run, flip, pin, hide, manifest or import is written only right after its row here.

    -- The key of the session. 0 is the chain of the receipts, which outlive their sessions.
    session   INTEGER NOT NULL,
    -- The number of the row in its chain, from 1 without gaps.
    audit_seq INTEGER NOT NULL,
    kind      TEXT NOT NULL
        CHECK (kind IN ('run', 'flip', 'pin', 'hide', 'manifest', 'import', 'receipt')),
    -- The digest of the recorded row.
    digest    BLOB NOT NULL,
    -- The digest that the recorded row had before: when it was begun, or before it was redacted.
    was       BLOB,
    -- SHA-256 of the previous chain digest and this row.
    chain     BLOB NOT NULL,
    PRIMARY KEY (session, audit_seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER audit_follows
BEFORE INSERT ON audit
WHEN NEW.audit_seq IS NOT 1 + CASE NEW.session
    WHEN 0 THEN (SELECT audit_seq FROM receipt_chain WHERE session = 0)
    ELSE (SELECT audit_seq FROM sessions WHERE key = NEW.session)
END
BEGIN
    SELECT RAISE(ABORT, 'audit rows must be consecutive');
END;

CREATE TRIGGER audit_is_newest
AFTER INSERT ON audit
BEGIN
    UPDATE sessions SET audit_seq = NEW.audit_seq, audit = NEW.chain WHERE key = NEW.session;
    UPDATE receipt_chain SET audit_seq = NEW.audit_seq, audit = NEW.chain
    WHERE session = NEW.session;
END;

CREATE TRIGGER audit_no_update
BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'audit rows are immutable');
END;

CREATE TRIGGER audit_no_delete
BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'audit rows cannot be deleted');
END;

CREATE TABLE receipt_chain (
    -- The newest row of the audit chain of all receipts. The newest row of a session's chain is in sessions.

    session   INTEGER PRIMARY KEY CHECK (session = 0),
    audit_seq INTEGER NOT NULL,
    audit     BLOB NOT NULL
) STRICT;

INSERT INTO receipt_chain (session, audit_seq, audit) VALUES (0, 0, zeroblob(32));

CREATE TRIGGER receipt_chain_follows
BEFORE UPDATE ON receipt_chain
WHEN NEW.session IS NOT OLD.session OR NEW.audit_seq <= OLD.audit_seq OR NOT EXISTS (
    SELECT 1 FROM audit WHERE session = 0 AND audit_seq = NEW.audit_seq AND chain = NEW.audit
)
BEGIN
    SELECT RAISE(ABORT, 'receipt chains cannot be shortened');
END;

CREATE TRIGGER receipt_chain_no_delete
BEFORE DELETE ON receipt_chain
BEGIN
    SELECT RAISE(ABORT, 'receipt chains cannot be deleted');
END;

CREATE TRIGGER receipt_chain_no_replace
BEFORE INSERT ON receipt_chain
WHEN EXISTS (SELECT 1 FROM receipt_chain)
BEGIN
    SELECT RAISE(ABORT, 'receipt chains cannot be replaced');
END;

-- spent keys --------------------------------------------------------------------------------------

CREATE TABLE spent_keys (
    -- The highest keys of deleted loops, runs and blocks. A key is never assigned twice. A compaction that
    -- waits for a model still uses its keys after a removal, and they must not refer to rows of another
    -- session.

    name TEXT PRIMARY KEY NOT NULL CHECK (name IN ('loops', 'runs', 'blocks')),
    key  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER spent_keys_only_rise
BEFORE UPDATE ON spent_keys
WHEN NEW.name IS NOT OLD.name OR NEW.key < OLD.key
BEGIN
    SELECT RAISE(ABORT, 'keys cannot be reused');
END;

CREATE TRIGGER spent_keys_no_delete
BEFORE DELETE ON spent_keys
BEGIN
    SELECT RAISE(ABORT, 'keys cannot be reused');
END;

-- heads -------------------------------------------------------------------------------------------

CREATE TABLE heads (
    -- The heads: the last rows of all audit chains at one time. The text that a user keeps is the digest of
    -- the content.

    key      INTEGER PRIMARY KEY,
    -- SHA-256 of the content before compression.
    sha256   BLOB NOT NULL UNIQUE,
    taken_at TEXT NOT NULL,
    -- JSON, compressed as raw DEFLATE: the number and the chain digest of the last row of each audit chain,
    -- and of the last final message of each loop.
    content  BLOB NOT NULL
) STRICT;

CREATE TRIGGER heads_no_update
BEFORE UPDATE ON heads
BEGIN
    SELECT RAISE(ABORT, 'message heads are immutable');
END;

CREATE TRIGGER heads_no_delete
BEFORE DELETE ON heads
BEGIN
    SELECT RAISE(ABORT, 'message heads cannot be deleted');
END;

CREATE TRIGGER heads_no_replace
BEFORE INSERT ON heads
WHEN EXISTS (SELECT 1 FROM heads WHERE key = NEW.key OR sha256 = NEW.sha256)
BEGIN
    SELECT RAISE(ABORT, 'message heads cannot be replaced');
END;

-- session flags -----------------------------------------------------------------------------------

CREATE TABLE session_flags (
    -- The decisions about a session, one row per session. A row is deleted with its session.

    session   INTEGER PRIMARY KEY REFERENCES sessions (key) ON DELETE CASCADE,
    -- The time since which prune skips the session, as ISO-8601 text. NULL if prune may remove the session.
    protected_at TEXT,
    -- True if imports into the session are redacted before they are stored. The flag can never be cleared.
    redacts   INTEGER NOT NULL DEFAULT 0 CHECK (redacts IN (0, 1))
) STRICT;

-- Rejects clearing redacts and replacing protected_at by another time. A session can be protected and
-- released again, and redaction of its imports can be switched on.
CREATE TRIGGER session_flags_stay
BEFORE UPDATE ON session_flags
WHEN (NEW.session IS NOT OLD.session OR NEW.redacts < OLD.redacts OR NEW.protected_at <> OLD.protected_at)
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'session flags cannot be cleared');
END;

CREATE TRIGGER session_flags_no_delete
BEFORE DELETE ON session_flags
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'session flags cannot be deleted');
END;

-- Rejects a row that would clear redacts or replace protected_at. An upsert fires this trigger too.
CREATE TRIGGER session_flags_no_replace
BEFORE INSERT ON session_flags
WHEN EXISTS (
    SELECT 1 FROM session_flags
    WHERE session = NEW.session AND (NEW.redacts < redacts OR NEW.protected_at <> protected_at)
) AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = NEW.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'session flags cannot be replaced');
END;

-- loops -------------------------------------------------------------------------------------------

CREATE TABLE loops (
    -- One row per loop: one user prompt and everything until the agent stops. Loops form trees through their
    -- parents.

    key             INTEGER PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
    session         INTEGER NOT NULL REFERENCES sessions (key),
    loop_id         TEXT NOT NULL CHECK (length(loop_id) > 0),
    -- The key of the parent. A parent is always stored before its children, so that no cycle can exist.
    parent          INTEGER REFERENCES loops (key) CHECK (parent < key),
    -- The id of the parent in the source. The parent may belong to another session.
    parent_loop_id  TEXT,
    -- The last turn of the parent that belongs to this chain. NULL if no turn of the parent does.
    parent_turn     INTEGER,
    -- The last sequence of the parent that belongs to this chain, if the chain leaves the parent within
    -- parent_turn. NULL if all of parent_turn belongs to the chain.
    parent_seq      INTEGER CHECK (parent_seq IS NULL OR parent_turn IS NOT NULL),
    kind            TEXT NOT NULL,
    status          TEXT NOT NULL,
    started_at      TEXT,
    ended_at        TEXT,
    -- The session's tick when the loop was created.
    tick            INTEGER NOT NULL,
    -- The sequence of the next message, and so the number of messages of the loop, extensions included.
    next_seq        INTEGER NOT NULL DEFAULT 0,
    -- Messages before this sequence belong to final turns and can never be replaced.
    sealed_seq      INTEGER NOT NULL DEFAULT 0,
    -- True if the loop has messages that are not in the search index yet. The value has no meaning before the
    -- index was filled.
    unindexed       INTEGER NOT NULL DEFAULT 0 CHECK (unindexed IN (0, 1)),
    turns           INTEGER NOT NULL DEFAULT 0,
    -- The number of complete turns.
    complete        INTEGER NOT NULL DEFAULT 0,
    messages        INTEGER NOT NULL DEFAULT 0,
    tokens          INTEGER NOT NULL DEFAULT 0,
    bytes           INTEGER NOT NULL DEFAULT 0,
    -- Tokens of the extensions of kind system: the default size of the system prompt.
    system_tokens   INTEGER NOT NULL DEFAULT 0,
    -- The newest generation of a block of this loop.
    generation      INTEGER NOT NULL DEFAULT 0,
    -- The sequence of the last answer whose provider reported token counts, and the number of tokens that its
    -- call read and wrote. Both refer to a context without the runs, undos and redos that came after the
    -- answer.
    reported_seq    INTEGER,
    reported_tokens INTEGER,
    -- The turn index of the last turn, as the source counts turns.
    last_turn_index INTEGER,
    -- The open calls as JSON: {"call id": turn}. NULL if there are none.
    open_calls      TEXT,
    -- The chain digest of the last message.
    chain           BLOB NOT NULL,
    -- The loop's JSON without messages, turns and events.
    meta            TEXT NOT NULL,
    -- Recorded turns and events as JSON, with the sequences of stored messages instead of the messages.
    history         TEXT,
    -- The number of rows in edits whose messages belong to the loop, whatever their runs. A read of a loop
    -- without edits looks for none.
    edits           INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session, loop_id)
) STRICT;

CREATE INDEX loops_parent ON loops (parent);

-- Finds loops that continue a loop of another session.
CREATE INDEX loops_elsewhere ON loops (parent_loop_id)
    WHERE parent IS NULL AND parent_loop_id IS NOT NULL;

-- The loops of a session in the order of their creation. A query uses the index only if it contains `key >
-- 0`. Without that condition the planner would also use the index to look up a loop by its key, and read all
-- loops of the session.
CREATE INDEX loops_session ON loops (session) WHERE key > 0;

-- Finds unfinished loops, for a recorder that restarts.
CREATE INDEX loops_at_work ON loops (session) WHERE status IN ('Pending', 'Running');

-- Finds loops that a search must read or add to the index first.
CREATE INDEX loops_unindexed ON loops (key) WHERE unindexed;

-- Finds loops with a system prompt, for the build of a context.
CREATE INDEX loops_with_system_messages ON loops (session) WHERE system_tokens > 0;

CREATE TRIGGER loops_stay_sealed
BEFORE UPDATE ON loops
WHEN (NEW.key IS NOT OLD.key OR NEW.session IS NOT OLD.session OR NEW.loop_id IS NOT OLD.loop_id
        OR NEW.parent IS NOT OLD.parent OR NEW.parent_turn IS NOT OLD.parent_turn
        OR NEW.parent_seq IS NOT OLD.parent_seq
        OR NEW.tick IS NOT OLD.tick OR NEW.sealed_seq < OLD.sealed_seq OR NEW.edits < OLD.edits)
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(FAIL, 'the parent and the final turns of a loop are immutable');
END;

CREATE TRIGGER loops_no_delete
BEFORE DELETE ON loops
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'loops cannot be deleted');
END;

CREATE TRIGGER loops_no_replace
BEFORE INSERT ON loops
WHEN EXISTS (
    SELECT 1 FROM loops
    WHERE key = NEW.key OR (session = NEW.session AND loop_id = NEW.loop_id)
)
BEGIN
    SELECT RAISE(ABORT, 'loops cannot be replaced');
END;

CREATE TRIGGER loops_spent
AFTER DELETE ON loops
WHEN OLD.key > coalesce((SELECT key FROM spent_keys WHERE name = 'loops'), 0)
BEGIN
    INSERT INTO spent_keys (name, key) VALUES ('loops', OLD.key)
    ON CONFLICT (name) DO UPDATE SET key = excluded.key;
END;

-- turns -------------------------------------------------------------------------------------------

CREATE TABLE turns (
    -- One row per turn: a group of adjacent messages that a plan keeps or compacts together. The totals are
    -- cumulative, so that the size of a range of turns is a subtraction and a plan reads no message.

    -- (loop << 32) | turn
    id           INTEGER PRIMARY KEY,
    first_seq    INTEGER NOT NULL,
    -- Totals of the loop from its start to the end of this turn, without extensions.
    messages     INTEGER NOT NULL,
    prompts      INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    turn_index   INTEGER,
    -- True if the model answered.
    answered     INTEGER NOT NULL,
    -- Other turns with calls that this turn answers: [[loop, turn], …]. NULL if there are none.
    answers      TEXT,
    -- The session's tick at the last append to this turn.
    tick         INTEGER NOT NULL,
    -- The times of the first and the last message, in milliseconds since the epoch.
    started_at   INTEGER,
    ended_at     INTEGER
) STRICT;

-- Nearly all calls are answered in their own turn, so that this index has few rows.
CREATE INDEX turns_answers ON turns (id) WHERE answers IS NOT NULL;

CREATE TRIGGER turns_stay
BEFORE UPDATE ON turns
WHEN (NEW.id IS NOT OLD.id OR NEW.first_seq IS NOT OLD.first_seq
        OR NEW.turn_index IS NOT OLD.turn_index)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'the positions of turns are immutable');
END;

CREATE TRIGGER turns_no_delete
BEFORE DELETE ON turns
WHEN OLD.first_seq < (SELECT sealed_seq FROM loops WHERE key = OLD.id >> 32)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'final turns cannot be deleted');
END;

-- Rejects a row that would change first_seq or turn_index. The upsert of an append, which replaces the totals
-- of its turn, fires this trigger too.
CREATE TRIGGER turns_no_replace
BEFORE INSERT ON turns
WHEN EXISTS (
    SELECT 1 FROM turns
    WHERE id = NEW.id AND (first_seq IS NOT NEW.first_seq OR turn_index IS NOT NEW.turn_index)
)
BEGIN
    SELECT RAISE(ABORT, 'turns cannot be replaced');
END;

-- messages ----------------------------------------------------------------------------------------

CREATE TABLE messages (
    -- The original messages, one per row. The rows of a loop are adjacent, and a range of keys is a range of
    -- messages.

    -- (loop << 32) | sequence
    id         INTEGER PRIMARY KEY,
    -- The number of the turn. NULL for an extension before the first turn.
    turn       INTEGER,
    -- 0 user, 1 assistant, 2 tool result, 3 extension
    role       INTEGER NOT NULL CHECK (role BETWEEN 0 AND 3),
    -- The author of the words: 0 human, 1 agent, 2 harness
    author     INTEGER NOT NULL CHECK (author BETWEEN 0 AND 2),
    -- The session's tick at the append.
    tick       INTEGER NOT NULL,
    tokens     INTEGER NOT NULL,
    -- The size of the message's JSON in bytes.
    bytes      INTEGER NOT NULL,
    -- The number of lines of the longest text of a tool result.
    lines      INTEGER,
    -- Milliseconds since the epoch.
    created_at INTEGER,
    -- The content block whose text is in body.
    body_block INTEGER,
    -- The digest of the record that the message was imported from, keyed with import_key.
    origin     BLOB,
    salt       BLOB,
    -- digest is SHA-256 of the salt and the stored bytes. chain links the digests of all messages of the loop
    -- up to this one.
    digest     BLOB NOT NULL,
    chain      BLOB NOT NULL,
    -- The message's JSON, in which the largest text is empty. NULL if the message was redacted or archived.
    head       TEXT,
    -- The largest text of the message.
    body       TEXT
) STRICT;

-- Finds the prompts of sessions and loops, which lists show as titles.
CREATE INDEX messages_prompts ON messages (id, author) WHERE role = 0 AND author < 2;

-- Rejects every change except new counts of the sizes. A recount with another token counter changes sizes.
CREATE TRIGGER messages_no_update
BEFORE UPDATE ON messages
WHEN (NEW.id IS NOT OLD.id OR NEW.turn IS NOT OLD.turn OR NEW.role IS NOT OLD.role
        OR NEW.author IS NOT OLD.author
        OR NEW.tick IS NOT OLD.tick OR NEW.created_at IS NOT OLD.created_at
        OR NEW.body_block IS NOT OLD.body_block OR NEW.origin IS NOT OLD.origin
        OR NEW.salt IS NOT OLD.salt OR NEW.digest IS NOT OLD.digest
        OR NEW.chain IS NOT OLD.chain OR NEW.head IS NOT OLD.head OR NEW.body IS NOT OLD.body)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'stored messages are immutable');
END;

CREATE TRIGGER messages_no_delete
BEFORE DELETE ON messages
WHEN (OLD.id & 4294967295) < (SELECT sealed_seq FROM loops WHERE key = OLD.id >> 32)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'final messages cannot be deleted');
END;

CREATE TRIGGER messages_no_replace
BEFORE INSERT ON messages
WHEN EXISTS (SELECT 1 FROM messages WHERE id = NEW.id)
BEGIN
    SELECT RAISE(FAIL, 'stored messages cannot be replaced');
END;

-- blobs -------------------------------------------------------------------------------------------

CREATE TABLE blobs (
    -- Images and other binary content. The same content is stored only once. The JSON of a message refers to
    -- the content by its SHA-256.

    key    INTEGER PRIMARY KEY,
    sha256 BLOB NOT NULL UNIQUE,
    bytes  INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT;

CREATE TRIGGER blobs_no_update
BEFORE UPDATE ON blobs
BEGIN
    SELECT RAISE(ABORT, 'blobs are immutable');
END;

CREATE TRIGGER blobs_no_delete
BEFORE DELETE ON blobs
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'blobs cannot be deleted');
END;

CREATE TRIGGER blobs_no_replace
BEFORE INSERT ON blobs
WHEN EXISTS (SELECT 1 FROM blobs WHERE key = NEW.key OR sha256 = NEW.sha256)
BEGIN
    SELECT RAISE(ABORT, 'blobs cannot be replaced');
END;

-- blob refs ---------------------------------------------------------------------------------------

CREATE TABLE blob_refs (
    -- The messages that show a blob. owner is the id of a message, or the negative id of a block message.

    owner INTEGER NOT NULL,
    blob  INTEGER NOT NULL REFERENCES blobs (key),
    PRIMARY KEY (owner, blob)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_refs_blob ON blob_refs (blob);

CREATE TRIGGER blob_refs_no_update
BEFORE UPDATE ON blob_refs
BEGIN
    SELECT RAISE(ABORT, 'blob references are immutable');
END;

-- Rejects the deletion of references of final messages and of block messages. References of messages that are
-- not final are deleted with the messages.
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
    SELECT RAISE(ABORT, 'blob references cannot be deleted');
END;

-- runs --------------------------------------------------------------------------------------------

CREATE TABLE runs (
    -- One row per compaction run. Attempts that failed, gained nothing or lost a race have a row too.

    key             INTEGER PRIMARY KEY,
    session         INTEGER NOT NULL REFERENCES sessions (key),
    run_id          TEXT NOT NULL UNIQUE CHECK (length(run_id) > 0 AND instr(run_id, ':') = 0),
    -- The leaf that the run was made on, and the number of its complete turns in the plan.
    loop            INTEGER NOT NULL REFERENCES loops (key),
    turns           INTEGER NOT NULL,
    tick            INTEGER NOT NULL,
    trigger         TEXT NOT NULL,
    strategy        TEXT NOT NULL,
    round           INTEGER NOT NULL,
    outcome         TEXT NOT NULL
        CHECK (outcome IN (
            'running', 'committed', 'no_gain', 'vetoed', 'failed', 'conflict', 'interrupted'
        )),
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
    -- The whole requested configuration, as JSON.
    config          TEXT NOT NULL,
    -- The tokens that summarisers reported, as JSON.
    usage           TEXT,
    -- The digest of layouts, inputs, strategy and text-shaping configuration.
    plan            BLOB NOT NULL,
    -- The record that another tool made of its own compaction.
    record          TEXT,
    -- The events compactionStarted and compactionEnded, as JSON.
    events          TEXT,
    -- The configuration that was reached, as JSON, if it differs from the requested one.
    reached         TEXT,
    -- SHA-256 of this row and of the digests of its blocks. NULL while the run is open. The rows of a closed
    -- run never change. The rows of an open run have no effect on a context.
    digest          BLOB,
    -- The edits of the run, after its key, position and id, in the form that contexts are built from: derived from
    -- the rows of edits and written with them. NULL without edits.
    edits           BLOB,
    CHECK ((digest IS NULL) = (outcome = 'running'))
) STRICT;

CREATE INDEX runs_loop ON runs (loop, tick);

CREATE INDEX runs_session ON runs (session, tick);

-- Finds the newest runs that changed contexts.
CREATE INDEX runs_committed ON runs (session, tick) WHERE outcome = 'committed';

-- Finds the newest runs that say how contexts are built: a session may have many runs of edits.
CREATE INDEX runs_compactions ON runs (session, tick) WHERE trigger <> 'edit';

-- Finds runs that are still open.
CREATE INDEX runs_open ON runs (session) WHERE digest IS NULL;

-- Has the packed edits of committed runs, so that a context reads only this index: a row of runs costs twice as much.
CREATE INDEX runs_edited ON runs (session, tick, key, edits)
WHERE edits IS NOT NULL AND outcome = 'committed';

CREATE TRIGGER runs_begin_open
BEFORE INSERT ON runs
WHEN NEW.digest IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'runs must be open when they are written');
END;

-- Rejects every change except closing the run. Only the packed edits of an open run can be written, and those of a
-- closed run while a recount with another token counter changes the sizes of edits.
CREATE TRIGGER runs_no_update
BEFORE UPDATE ON runs
WHEN (OLD.digest IS NOT NULL OR NEW.digest IS NULL OR NEW.key IS NOT OLD.key
        OR NEW.session IS NOT OLD.session OR NEW.run_id IS NOT OLD.run_id
        OR NEW.loop IS NOT OLD.loop OR NEW.turns IS NOT OLD.turns)
    AND NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
    AND NOT (
        (OLD.digest IS NULL OR EXISTS (SELECT 1 FROM store_meta WHERE name = 'recount'))
        AND (
            NEW.key, NEW.session, NEW.run_id, NEW.loop, NEW.turns, NEW.tick, NEW.trigger, NEW.strategy,
            NEW.round, NEW.outcome, NEW.fallback, NEW.error, NEW.scope, NEW.older_loops, NEW.counter,
            NEW.tokens_before, NEW.tokens_after, NEW.bytes_before, NEW.bytes_after, NEW.messages_before,
            NEW.messages_after, NEW.started_at, NEW.duration_ms, NEW.config, NEW.usage, NEW.plan,
            NEW.record, NEW.events, NEW.reached, NEW.digest
        ) IS (
            OLD.key, OLD.session, OLD.run_id, OLD.loop, OLD.turns, OLD.tick, OLD.trigger, OLD.strategy,
            OLD.round, OLD.outcome, OLD.fallback, OLD.error, OLD.scope, OLD.older_loops, OLD.counter,
            OLD.tokens_before, OLD.tokens_after, OLD.bytes_before, OLD.bytes_after, OLD.messages_before,
            OLD.messages_after, OLD.started_at, OLD.duration_ms, OLD.config, OLD.usage, OLD.plan,
            OLD.record, OLD.events, OLD.reached, OLD.digest
        )
    )
BEGIN
    SELECT RAISE(ABORT, 'runs are immutable');
END;

CREATE TRIGGER runs_close_audited
BEFORE UPDATE ON runs
WHEN NEW.digest IS NOT OLD.digest AND NOT EXISTS (
    SELECT 1 FROM sessions s JOIN audit a ON a.session = s.key AND a.audit_seq = s.audit_seq
    WHERE s.key = NEW.session AND a.kind = 'run' AND a.digest = NEW.digest
        AND a.was IS coalesce(OLD.digest, a.was)
)
BEGIN
    SELECT RAISE(ABORT, 'closed runs need a row in the audit chain');
END;

-- Rejects closing a run if the coverage of one of its blocks does not end where the block ends. The insert of
-- each row has already checked that the ranges are consecutive.
CREATE TRIGGER runs_close_whole
BEFORE UPDATE ON runs
WHEN OLD.digest IS NULL AND EXISTS (
    SELECT 1 FROM blocks b
    WHERE b.run = OLD.key AND b.through <> coalesce((
        SELECT c.to_seq + 1 FROM coverage c
        WHERE c.id >= b.key << 32 AND c.id < (b.key + 1) << 32 AND c.loop = b.loop
        ORDER BY c.id DESC LIMIT 1
    ), 0)
)
BEGIN
    SELECT RAISE(ABORT, 'coverage must end where its block ends');
END;

CREATE TRIGGER runs_no_delete
BEFORE DELETE ON runs
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'runs cannot be deleted');
END;

CREATE TRIGGER runs_no_replace
BEFORE INSERT ON runs
WHEN EXISTS (SELECT 1 FROM runs WHERE key = NEW.key OR run_id = NEW.run_id)
BEGIN
    SELECT RAISE(ABORT, 'runs cannot be replaced');
END;

CREATE TRIGGER runs_spent
AFTER DELETE ON runs
WHEN OLD.key > coalesce((SELECT key FROM spent_keys WHERE name = 'runs'), 0)
BEGIN
    INSERT INTO spent_keys (name, key) VALUES ('runs', OLD.key)
    ON CONFLICT (name) DO UPDATE SET key = excluded.key;
END;

-- flips -------------------------------------------------------------------------------------------

CREATE TABLE flips (
    -- One row per undo or redo of a run. The newest row that applies to a chain decides whether the run is
    -- live there.

    key     INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (key),
    run     INTEGER NOT NULL REFERENCES runs (key),
    kind    TEXT NOT NULL CHECK (kind IN ('undo', 'redo')),
    -- The leaf at which the row was made, and the number of its complete turns at that time.
    loop    INTEGER NOT NULL REFERENCES loops (key),
    turns   INTEGER NOT NULL,
    tick    INTEGER NOT NULL,
    at      TEXT NOT NULL,
    reason  TEXT,
    digest  BLOB NOT NULL
) STRICT;

CREATE INDEX flips_run ON flips (run, tick);

CREATE INDEX flips_loop ON flips (loop, tick);

CREATE INDEX flips_session ON flips (session, tick);

CREATE TRIGGER flips_no_update
BEFORE UPDATE ON flips
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'undos and redos are immutable');
END;

CREATE TRIGGER flips_no_delete
BEFORE DELETE ON flips
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'undos and redos cannot be deleted');
END;

CREATE TRIGGER flips_no_replace
BEFORE INSERT ON flips
WHEN EXISTS (SELECT 1 FROM flips WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'undos and redos cannot be replaced');
END;

CREATE TRIGGER flips_audited
BEFORE INSERT ON flips
WHEN NOT EXISTS (
    SELECT 1 FROM sessions s JOIN audit a ON a.session = s.key AND a.audit_seq = s.audit_seq
    WHERE s.key = NEW.session AND a.kind = 'flip' AND a.digest = NEW.digest
)
BEGIN
    SELECT RAISE(ABORT, 'undos and redos need a row in the audit chain');
END;

-- pins --------------------------------------------------------------------------------------------

CREATE TABLE pins (
    -- Pins and unpins of messages. Every later compaction keeps a pinned message word for word. The newest
    -- row that applies to a chain decides whether the message is pinned there.

    key          INTEGER PRIMARY KEY,
    session      INTEGER NOT NULL REFERENCES sessions (key),
    kind         TEXT NOT NULL CHECK (kind IN ('pin', 'unpin')),
    -- The loop and the sequence of the message.
    message_loop INTEGER NOT NULL REFERENCES loops (key),
    seq          INTEGER NOT NULL CHECK (seq BETWEEN 0 AND 4294967295),
    -- The leaf at which the row was made, and the number of its complete turns at that time.
    loop         INTEGER NOT NULL REFERENCES loops (key),
    turns        INTEGER NOT NULL,
    tick         INTEGER NOT NULL,
    at           TEXT NOT NULL,
    digest       BLOB NOT NULL
) STRICT;

CREATE INDEX pins_session ON pins (session, tick);

CREATE INDEX pins_message ON pins (message_loop, seq, tick);

CREATE INDEX pins_loop ON pins (loop);

CREATE TRIGGER pins_no_update
BEFORE UPDATE ON pins
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'pins are immutable');
END;

CREATE TRIGGER pins_no_delete
BEFORE DELETE ON pins
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'pins cannot be deleted');
END;

CREATE TRIGGER pins_no_replace
BEFORE INSERT ON pins
WHEN EXISTS (SELECT 1 FROM pins WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'pins cannot be replaced');
END;

CREATE TRIGGER pins_audited
BEFORE INSERT ON pins
WHEN NOT EXISTS (
    SELECT 1 FROM sessions s JOIN audit a ON a.session = s.key AND a.audit_seq = s.audit_seq
    WHERE s.key = NEW.session AND a.kind = 'pin' AND a.digest = NEW.digest
)
BEGIN
    SELECT RAISE(ABORT, 'pins need a row in the audit chain');
END;

-- hides -------------------------------------------------------------------------------------------

CREATE TABLE hides (
    -- One row per hide or unhide of a session. A hidden session is in no list and no search. Each row gives
    -- the session another id, so that its former id can be used again. The newest row of a session decides.

    key        INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL REFERENCES sessions (key),
    kind       TEXT NOT NULL CHECK (kind IN ('hide', 'unhide')),
    -- The id of the session before this row.
    was        TEXT NOT NULL,
    -- The id of the session after this row.
    session_id TEXT NOT NULL CHECK (length(session_id) > 0),
    tick       INTEGER NOT NULL,
    at         TEXT NOT NULL,
    digest     BLOB NOT NULL
) STRICT;

CREATE INDEX hides_session ON hides (session);

CREATE INDEX hides_was ON hides (was);

CREATE TRIGGER hides_no_update
BEFORE UPDATE ON hides
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'hides are immutable');
END;

CREATE TRIGGER hides_no_delete
BEFORE DELETE ON hides
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'hides cannot be deleted');
END;

CREATE TRIGGER hides_no_replace
BEFORE INSERT ON hides
WHEN EXISTS (SELECT 1 FROM hides WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'hides cannot be replaced');
END;

CREATE TRIGGER hides_audited
BEFORE INSERT ON hides
WHEN NOT EXISTS (
    SELECT 1 FROM sessions s JOIN audit a ON a.session = s.key AND a.audit_seq = s.audit_seq
    WHERE s.key = NEW.session AND a.kind = 'hide' AND a.digest = NEW.digest
)
BEGIN
    SELECT RAISE(ABORT, 'hides need a row in the audit chain');
END;

-- blocks ------------------------------------------------------------------------------------------

CREATE TABLE blocks (
    -- One row per block. A run writes a block for one loop. The block keeps the first and the last turns of
    -- the loop and shows its own messages instead of the turns between. Kept turns are read from the original
    -- messages.

    key             INTEGER PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
    loop            INTEGER NOT NULL REFERENCES loops (key),
    generation      INTEGER NOT NULL CHECK (generation > 0),
    run             INTEGER NOT NULL REFERENCES runs (key),
    kind            TEXT NOT NULL CHECK (kind IN (
            'current', 'earlier', 'rollup', 'sealed:openai', 'sealed:anthropic'
        )),
    -- The rollup that this rollup extends.
    extends         INTEGER REFERENCES blocks (key),
    -- The turn ranges of the sections, both ends inclusive. NULL if the block has no such section.
    first_start     INTEGER,
    first_end       INTEGER,
    compacted_start INTEGER,
    compacted_end   INTEGER,
    recent_start    INTEGER,
    recent_end      INTEGER,
    -- Messages before this sequence are covered by the block. Later messages are the tail.
    through         INTEGER NOT NULL,
    -- The tokens of the covered messages, and the sizes of the messages that the sections show instead.
    tokens_covered  INTEGER NOT NULL,
    tokens_block    INTEGER NOT NULL,
    bytes_block     INTEGER NOT NULL,
    messages_block  INTEGER NOT NULL,
    strategy        TEXT NOT NULL,
    -- The configuration that shapes the text.
    shaping         TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    -- The JSON of a block that another program made, without its messages.
    extra           TEXT,
    -- The ids of the runs with edits that the text was made with, as a sorted JSON array: the live runs that
    -- removed or replaced something of a message that the block hides. NULL if there were none. The block is
    -- active only while these are the live ones.
    edits           TEXT,
    -- SHA-256 of this row without its tokens, of its coverage and of the digests of its messages.
    digest          BLOB NOT NULL,
    UNIQUE (loop, generation),
    -- The sections are consecutive and begin at turn 0.
    CHECK ((first_start IS NULL) = (first_end IS NULL)
        AND ifnull(first_start = 0 AND first_end >= 0, 1)),
    CHECK ((compacted_start IS NULL) = (compacted_end IS NULL)
        AND ifnull(compacted_start = ifnull(first_end + 1, 0)
            AND compacted_end >= compacted_start, 1)),
    CHECK ((recent_start IS NULL) = (recent_end IS NULL)
        AND ifnull(recent_start = coalesce(compacted_end + 1, first_end + 1, 0)
            AND recent_end >= recent_start, 1))
) STRICT;

CREATE INDEX blocks_run ON blocks (run);

CREATE INDEX blocks_extends ON blocks (extends) WHERE extends IS NOT NULL;

-- Rejects every change except new token counts. A recount with another token counter changes both counts, and
-- the digest does not include them.
CREATE TRIGGER blocks_no_update
BEFORE UPDATE ON blocks
WHEN (NEW.key IS NOT OLD.key OR NEW.loop IS NOT OLD.loop OR NEW.generation IS NOT OLD.generation
        OR NEW.run IS NOT OLD.run OR NEW.kind IS NOT OLD.kind OR NEW.extends IS NOT OLD.extends
        OR NEW.first_start IS NOT OLD.first_start OR NEW.first_end IS NOT OLD.first_end
        OR NEW.compacted_start IS NOT OLD.compacted_start
        OR NEW.compacted_end IS NOT OLD.compacted_end
        OR NEW.recent_start IS NOT OLD.recent_start OR NEW.recent_end IS NOT OLD.recent_end
        OR NEW.through IS NOT OLD.through OR NEW.bytes_block IS NOT OLD.bytes_block
        OR NEW.messages_block IS NOT OLD.messages_block OR NEW.strategy IS NOT OLD.strategy
        OR NEW.shaping IS NOT OLD.shaping OR NEW.created_at IS NOT OLD.created_at
        OR NEW.extra IS NOT OLD.extra OR NEW.edits IS NOT OLD.edits OR NEW.digest IS NOT OLD.digest)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.loop AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'blocks are immutable');
END;

CREATE TRIGGER blocks_no_delete
BEFORE DELETE ON blocks
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'blocks cannot be deleted');
END;

CREATE TRIGGER blocks_no_replace
BEFORE INSERT ON blocks
WHEN EXISTS (
    SELECT 1 FROM blocks
    WHERE key = NEW.key OR (loop = NEW.loop AND generation = NEW.generation)
)
BEGIN
    SELECT RAISE(ABORT, 'blocks cannot be replaced');
END;

CREATE TRIGGER blocks_of_open_run
BEFORE INSERT ON blocks
WHEN NOT EXISTS (SELECT 1 FROM runs WHERE key = NEW.run AND digest IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'the run is closed: it takes no more blocks');
END;

CREATE TRIGGER blocks_spent
AFTER DELETE ON blocks
WHEN OLD.key > coalesce((SELECT key FROM spent_keys WHERE name = 'blocks'), 0)
BEGIN
    INSERT INTO spent_keys (name, key) VALUES ('blocks', OLD.key)
    ON CONFLICT (name) DO UPDATE SET key = excluded.key;
END;

-- block messages ----------------------------------------------------------------------------------

CREATE TABLE block_messages (
    -- The messages of blocks: messages that replace the compacted turns, and kept messages that were
    -- truncated.

    -- (block << 32) | ordinal
    id         INTEGER PRIMARY KEY,
    -- 1 compacted, 2 recent
    section    INTEGER NOT NULL CHECK (section IN (1, 2)),
    -- The sequence of the original message that this message replaces or quotes.
    replaces   INTEGER,
    -- The loop of a pinned message that the compacted section quotes. The text is read from the original
    -- message.
    quotes     INTEGER REFERENCES loops (key),
    -- NULL if the original message is dropped.
    role       INTEGER CHECK (role BETWEEN 0 AND 3),
    tokens     INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    body_block INTEGER,
    salt       BLOB,
    digest     BLOB NOT NULL,
    head       TEXT,
    body       TEXT
) STRICT;

CREATE INDEX block_messages_quotes ON block_messages (quotes) WHERE quotes IS NOT NULL;

CREATE TRIGGER block_messages_no_update
BEFORE UPDATE ON block_messages
WHEN (NEW.id IS NOT OLD.id OR NEW.section IS NOT OLD.section OR NEW.replaces IS NOT OLD.replaces
        OR NEW.quotes IS NOT OLD.quotes OR NEW.role IS NOT OLD.role OR NEW.body_block IS NOT OLD.body_block
        OR NEW.salt IS NOT OLD.salt OR NEW.digest IS NOT OLD.digest
        OR NEW.head IS NOT OLD.head OR NEW.body IS NOT OLD.body)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
            JOIN blocks b ON b.loop = l.key
        WHERE b.key = OLD.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'block messages are immutable');
END;

CREATE TRIGGER block_messages_no_delete
BEFORE DELETE ON block_messages
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        JOIN blocks b ON b.loop = l.key
    WHERE b.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'block messages cannot be deleted');
END;

CREATE TRIGGER block_messages_no_replace
BEFORE INSERT ON block_messages
WHEN EXISTS (SELECT 1 FROM block_messages WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'block messages cannot be replaced');
END;

CREATE TRIGGER block_messages_of_open_run
BEFORE INSERT ON block_messages
WHEN NOT EXISTS (
    SELECT 1 FROM blocks b JOIN runs r ON r.key = b.run
    WHERE b.key = NEW.id >> 32 AND r.digest IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'the run is closed: its blocks take no more messages');
END;

-- edits -------------------------------------------------------------------------------------------

CREATE TABLE edits (
    -- The edits of runs: messages, or parts of a message, that contexts show in another form or not at all.
    -- A message itself never changes. An edit applies where its run is live.

    -- (run << 32) | ordinal
    id            INTEGER PRIMARY KEY,
    -- The loop and the sequences of the messages, both ends inclusive.
    loop          INTEGER NOT NULL REFERENCES loops (key),
    from_seq      INTEGER NOT NULL CHECK (from_seq BETWEEN 0 AND 4294967295),
    to_seq        INTEGER NOT NULL CHECK (to_seq BETWEEN from_seq AND 4294967295),
    -- The edited part of one message, from 0, and the number of its parts. NULL if messages are removed as a
    -- whole.
    part          INTEGER CHECK (part >= 0),
    parts         INTEGER CHECK (parts > part),
    action        TEXT NOT NULL CHECK (action IN ('removed', 'cleared', 'replaced')),
    -- What a context shows in place of the part.
    text          TEXT,
    -- The size of the messages or the part as recorded, and the size of what is shown instead.
    tokens_before INTEGER NOT NULL CHECK (tokens_before >= 0),
    tokens_after  INTEGER NOT NULL CHECK (tokens_after >= 0),
    bytes_before  INTEGER NOT NULL CHECK (bytes_before >= 0),
    bytes_after   INTEGER NOT NULL CHECK (bytes_after >= 0),
    -- The number of messages that are removed as a whole.
    messages      INTEGER NOT NULL CHECK (messages >= 0),
    salt          BLOB NOT NULL,
    -- SHA-256 of the salt and of this row without its tokens.
    digest        BLOB NOT NULL,
    CHECK ((part IS NULL) = (parts IS NULL)),
    CHECK (part IS NULL OR from_seq = to_seq),
    CHECK (part IS NOT NULL OR action = 'removed'),
    CHECK ((text IS NULL) = (action = 'removed'))
) STRICT;

CREATE INDEX edits_loop ON edits (loop, from_seq);

-- Rejects every change except new token counts, which a recount with another token counter writes.
CREATE TRIGGER edits_no_update
BEFORE UPDATE ON edits
WHEN (NEW.id IS NOT OLD.id OR NEW.loop IS NOT OLD.loop OR NEW.from_seq IS NOT OLD.from_seq
        OR NEW.to_seq IS NOT OLD.to_seq OR NEW.part IS NOT OLD.part OR NEW.parts IS NOT OLD.parts
        OR NEW.action IS NOT OLD.action OR NEW.text IS NOT OLD.text
        OR NEW.bytes_before IS NOT OLD.bytes_before OR NEW.bytes_after IS NOT OLD.bytes_after
        OR NEW.messages IS NOT OLD.messages OR NEW.salt IS NOT OLD.salt
        OR NEW.digest IS NOT OLD.digest)
    AND NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = OLD.loop AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'edits are immutable');
END;

CREATE TRIGGER edits_no_delete
BEFORE DELETE ON edits
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'edits cannot be deleted');
END;

CREATE TRIGGER edits_no_replace
BEFORE INSERT ON edits
WHEN EXISTS (SELECT 1 FROM edits WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'edits cannot be replaced');
END;

-- Rejects edits of messages of another session too.
CREATE TRIGGER edits_of_open_run
BEFORE INSERT ON edits
WHEN NOT EXISTS (
    SELECT 1 FROM runs r JOIN loops l ON l.session = r.session
    WHERE r.key = NEW.id >> 32 AND r.digest IS NULL AND l.key = NEW.loop
)
BEGIN
    SELECT RAISE(ABORT, 'the run is closed: it takes no more edits');
END;

-- coverage ----------------------------------------------------------------------------------------

CREATE TABLE coverage (
    -- The record of what a block did with each message that it covers, as ranges. The ranges of a block have
    -- no gaps and no overlaps.

    -- (block << 32) | ordinal
    id          INTEGER PRIMARY KEY,
    loop        INTEGER NOT NULL REFERENCES loops (key),
    -- Both ends are inclusive. NULL for a loop without messages.
    from_seq    INTEGER,
    to_seq      INTEGER,
    from_turn   INTEGER,
    to_turn     INTEGER,
    disposition TEXT NOT NULL
        CHECK (disposition IN (
            'kept', 'truncated', 'summarised', 'dropped', 'rolled_up', 'sealed', 'removed'
        )),
    CHECK ((from_seq IS NULL) = (to_seq IS NULL) AND ifnull(from_seq BETWEEN 0 AND to_seq, 1)),
    CHECK ((from_turn IS NULL) = (to_turn IS NULL) AND ifnull(from_turn BETWEEN 0 AND to_turn, 1))
) STRICT;

CREATE INDEX coverage_loop ON coverage (loop);

CREATE TRIGGER coverage_no_update
BEFORE UPDATE ON coverage
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'coverage rows are immutable');
END;

CREATE TRIGGER coverage_no_delete
BEFORE DELETE ON coverage
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'coverage rows cannot be deleted');
END;

CREATE TRIGGER coverage_no_replace
BEFORE INSERT ON coverage
WHEN EXISTS (SELECT 1 FROM coverage WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'coverage rows cannot be replaced');
END;

-- Rejects a row that does not fit. Rows of earlier loops must come first. The ranges of the block's own loop
-- must be consecutive, and each disposition must be one that the section of the turns allows. SQLite builds a
-- temporary table at each row for an IN with three or more values, which costs more than the rest of the
-- trigger.
CREATE TRIGGER coverage_fits
BEFORE INSERT ON coverage
WHEN NOT EXISTS (
    SELECT 1 FROM blocks b JOIN runs r ON r.key = b.run
        LEFT JOIN coverage p ON p.id = NEW.id - 1 AND p.id >= b.key << 32
    WHERE b.key = NEW.id >> 32 AND r.digest IS NULL
        AND (p.id IS NOT NULL OR NEW.id = b.key << 32)
        AND CASE NEW.loop = b.loop
            WHEN 0 THEN (b.kind = 'rollup' OR b.kind LIKE 'sealed:%') AND p.loop IS NOT b.loop
                AND ((NEW.disposition = 'removed' AND EXISTS (
                    SELECT 1 FROM edits e
                    WHERE e.loop = NEW.loop AND e.action = 'removed'
                        AND e.from_seq <= NEW.to_seq AND e.to_seq >= NEW.from_seq
                ))
                    OR NEW.disposition = iif(b.kind = 'rollup', 'rolled_up', 'sealed') OR (NEW.disposition = 'kept' AND EXISTS (
                    SELECT 1 FROM block_messages x
                    WHERE x.id >= b.key << 32 AND x.id < (b.key + 1) << 32
                        AND x.quotes = NEW.loop AND x.replaces BETWEEN NEW.from_seq AND NEW.to_seq
                )))
            ELSE NEW.from_seq = iif(p.loop = b.loop, p.to_seq + 1, NEW.from_seq)
                AND NEW.to_seq < b.through
                AND CASE
                    WHEN NEW.from_turn >= b.first_start AND NEW.to_turn <= b.first_end
                        THEN NEW.disposition = 'kept'
                    WHEN NEW.from_turn >= b.compacted_start AND NEW.to_turn <= b.compacted_end
                        THEN NEW.disposition IN ('summarised', 'dropped')
                            OR (NEW.disposition = 'removed' AND EXISTS (
                                SELECT 1 FROM edits e
                                WHERE e.loop = NEW.loop AND e.action = 'removed'
                                    AND e.from_seq <= NEW.to_seq AND e.to_seq >= NEW.from_seq
                            ))
                            OR (NEW.disposition = 'rolled_up' AND b.kind = 'rollup')
                            OR (NEW.disposition = 'sealed' AND b.kind LIKE 'sealed:%')
                            OR (NEW.disposition = 'kept' AND EXISTS (
                                SELECT 1 FROM block_messages x
                                WHERE x.id >= b.key << 32 AND x.id < (b.key + 1) << 32
                                    AND x.quotes = NEW.loop
                                    AND x.replaces BETWEEN NEW.from_seq AND NEW.to_seq
                            ))
                    WHEN NEW.from_turn >= b.recent_start AND NEW.to_turn <= b.recent_end
                        THEN NEW.disposition = 'kept' OR NEW.disposition = 'truncated'
                            OR NEW.disposition = 'dropped'
                            OR (NEW.disposition = 'sealed' AND b.kind LIKE 'sealed:%')
                END
        END
)
BEGIN
    SELECT RAISE(ABORT, 'coverage row does not fit its run, or the sections of its block');
END;

-- manifests ---------------------------------------------------------------------------------------

CREATE TABLE manifests (
    -- One row per manifest: the messages that a model received, as references and one hash. No message is
    -- copied. The referenced content can be built again as of the recorded tick, and `verify` does so.

    key         INTEGER PRIMARY KEY,
    manifest_id TEXT NOT NULL UNIQUE CHECK (length(manifest_id) > 0),
    session     INTEGER NOT NULL REFERENCES sessions (key),
    -- The leaf of the context.
    loop        INTEGER NOT NULL REFERENCES loops (key),
    -- The session's tick at that time. The context includes the effects of all changes with this tick or an
    -- earlier one.
    tick        INTEGER NOT NULL,
    recorded_at TEXT NOT NULL,
    -- The treatment of loops before the scope. With skip, the context begins with the first part.
    older_loops TEXT NOT NULL CHECK (older_loops IN ('skip', 'rollup')),
    -- The parts in order: [[loop, section, block, first sequence, last sequence, messages], …]. A part
    -- without sequences consists of the messages of its block.
    parts       TEXT NOT NULL CHECK (json_valid(parts)),
    messages    INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    -- The token counter.
    counter     TEXT NOT NULL,
    -- SHA-256 of the digests of the messages, in order.
    sha256      BLOB NOT NULL,
    digest      BLOB NOT NULL
) STRICT;

CREATE INDEX manifests_session ON manifests (session);

CREATE INDEX manifests_loop ON manifests (loop);

CREATE TRIGGER manifests_no_update
BEFORE UPDATE ON manifests
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'manifests are immutable');
END;

CREATE TRIGGER manifests_no_delete
BEFORE DELETE ON manifests
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'manifests cannot be deleted');
END;

CREATE TRIGGER manifests_no_replace
BEFORE INSERT ON manifests
WHEN EXISTS (SELECT 1 FROM manifests WHERE key = NEW.key OR manifest_id = NEW.manifest_id)
BEGIN
    SELECT RAISE(ABORT, 'manifests cannot be replaced');
END;

CREATE TRIGGER manifests_audited
BEFORE INSERT ON manifests
WHEN NOT EXISTS (
    SELECT 1 FROM sessions s JOIN audit a ON a.session = s.key AND a.audit_seq = s.audit_seq
    WHERE s.key = NEW.session AND a.kind = 'manifest' AND a.digest = NEW.digest
)
BEGIN
    SELECT RAISE(ABORT, 'manifests need a row in the audit chain');
END;

-- imports -----------------------------------------------------------------------------------------

CREATE TABLE imports (
    -- The origins of sessions: one row per file that added content to a session.

    key         INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES sessions (key),
    format      TEXT NOT NULL,
    path        TEXT NOT NULL,
    file_name   TEXT NOT NULL,
    -- The key of the record in the file, for formats whose sessions have no id.
    record_key  TEXT,
    imported_at TEXT NOT NULL,
    digest      BLOB NOT NULL
) STRICT;

CREATE INDEX imports_session ON imports (session);

-- Finds the session of a transcript whose format has no session ids.
CREATE INDEX imports_identity ON imports (format, file_name, record_key);

CREATE TRIGGER imports_no_update
BEFORE UPDATE ON imports
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'import notes are immutable');
END;

CREATE TRIGGER imports_no_delete
BEFORE DELETE ON imports
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'import notes cannot be deleted');
END;

CREATE TRIGGER imports_no_replace
BEFORE INSERT ON imports
WHEN EXISTS (SELECT 1 FROM imports WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'import notes cannot be replaced');
END;

CREATE TRIGGER imports_audited
BEFORE INSERT ON imports
WHEN NOT EXISTS (
    SELECT 1 FROM sessions s JOIN audit a ON a.session = s.key AND a.audit_seq = s.audit_seq
    WHERE s.key = NEW.session AND a.kind = 'import' AND a.digest = NEW.digest
)
BEGIN
    SELECT RAISE(ABORT, 'import notes need a row in the audit chain');
END;

-- sources -----------------------------------------------------------------------------------------

CREATE TABLE sources (
    -- The files that sessions were imported from, byte for byte. `loopstore export --format original` writes
    -- them. A file is stored as pieces of at most 1 MiB. Each piece is compressed and stored once. If a file
    -- grew, its new parts are added after the existing ones. Imports with --no-source store no file.

    key       INTEGER PRIMARY KEY CHECK (key BETWEEN 1 AND 2147483647),
    format    TEXT NOT NULL,
    -- The full path of the file.
    path      TEXT NOT NULL,
    bytes     INTEGER NOT NULL,
    -- SHA-256 of the SHA-256 values of the parts, in order.
    digest    BLOB NOT NULL,
    -- The time of the last import that added content of the file.
    kept_at   TEXT NOT NULL
) STRICT;

-- source sessions ---------------------------------------------------------------------------------

CREATE TABLE source_sessions (
    -- The sessions that have content from each file.

    session INTEGER NOT NULL REFERENCES sessions (key),
    source  INTEGER NOT NULL REFERENCES sources (key),
    PRIMARY KEY (session, source)
) STRICT, WITHOUT ROWID;

CREATE INDEX source_sessions_source ON source_sessions (source);

-- source pieces -----------------------------------------------------------------------------------

CREATE TABLE source_pieces (
    -- The content of the kept files.

    key    INTEGER PRIMARY KEY,
    -- SHA-256 and number of the bytes before compression.
    sha256 BLOB NOT NULL UNIQUE,
    bytes  INTEGER NOT NULL,
    -- The bytes, compressed as raw DEFLATE.
    data   BLOB NOT NULL
) STRICT;

CREATE TRIGGER source_pieces_no_update
BEFORE UPDATE ON source_pieces
BEGIN
    SELECT RAISE(ABORT, 'source pieces are immutable');
END;

CREATE TRIGGER source_pieces_no_delete
BEFORE DELETE ON source_pieces
WHEN EXISTS (SELECT 1 FROM source_parts WHERE piece = OLD.key)
BEGIN
    SELECT RAISE(ABORT, 'source pieces in use cannot be deleted');
END;

CREATE TRIGGER source_pieces_no_replace
BEFORE INSERT ON source_pieces
WHEN EXISTS (SELECT 1 FROM source_pieces WHERE key = NEW.key OR sha256 = NEW.sha256)
BEGIN
    SELECT RAISE(ABORT, 'source pieces cannot be replaced');
END;

-- source parts ------------------------------------------------------------------------------------

CREATE TABLE source_parts (
    -- The pieces of each file.

    -- (source << 32) | number, in the order of the file
    id    INTEGER PRIMARY KEY,
    piece INTEGER NOT NULL REFERENCES source_pieces (key)
) STRICT;

CREATE INDEX source_parts_piece ON source_parts (piece);

-- maintenance -------------------------------------------------------------------------------------

CREATE TABLE maintenance (
    -- The receipts of every erasure, redaction, pruning and archiving. While a receipt is open, the triggers
    -- allow changes to rows of its session.

    key       INTEGER PRIMARY KEY,
    session   INTEGER NOT NULL,
    kind      TEXT NOT NULL CHECK (kind IN ('erase', 'redact', 'prune', 'archive')),
    opened_at TEXT NOT NULL,
    closed_at TEXT,
    detail    TEXT NOT NULL
) STRICT;

CREATE INDEX maintenance_open ON maintenance (session) WHERE closed_at IS NULL;

CREATE TRIGGER maintenance_no_delete
BEFORE DELETE ON maintenance
BEGIN
    SELECT RAISE(ABORT, 'receipts cannot be deleted');
END;

-- Rejects every change except closing the receipt, which may also complete detail.
CREATE TRIGGER maintenance_only_closes
BEFORE UPDATE ON maintenance
WHEN OLD.closed_at IS NOT NULL OR NEW.closed_at IS NULL OR NEW.key IS NOT OLD.key
    OR NEW.session IS NOT OLD.session OR NEW.kind IS NOT OLD.kind
    OR NEW.opened_at IS NOT OLD.opened_at
BEGIN
    SELECT RAISE(ABORT, 'receipts are immutable');
END;

CREATE TRIGGER maintenance_begins_open
BEFORE INSERT ON maintenance
WHEN NEW.closed_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'receipts must be open when they are written');
END;

CREATE TRIGGER maintenance_no_replace
BEFORE INSERT ON maintenance
WHEN EXISTS (SELECT 1 FROM maintenance WHERE key = NEW.key)
BEGIN
    SELECT RAISE(ABORT, 'receipts cannot be replaced');
END;

-- redactions --------------------------------------------------------------------------------------

CREATE TABLE redactions (
    -- The remainders of redacted messages. A redacted message keeps its digest and its place in the chain,
    -- and loses its salt. Without the salt, a guess of the removed text cannot be tested. The remaining text
    -- has its own salt and digest in this table.

    -- The id of a message, or the negative id of a block message.
    owner   INTEGER PRIMARY KEY,
    -- The receipt of the last redaction that changed the message.
    receipt INTEGER NOT NULL REFERENCES maintenance (key),
    -- SHA-256 of the salt and the stored bytes, as in messages.
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
    SELECT RAISE(ABORT, 'redaction remainders are immutable');
END;

CREATE TRIGGER redactions_no_insert
BEFORE INSERT ON redactions
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE m.closed_at IS NULL AND l.key = CASE
        WHEN NEW.owner >= 0 THEN NEW.owner >> 32
        ELSE (SELECT loop FROM blocks WHERE key = -NEW.owner >> 32)
    END
)
BEGIN
    SELECT RAISE(ABORT, 'redaction remainders can only be written while a receipt is open');
END;

-- Rejects the deletion of a row while its message exists.
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
    SELECT RAISE(ABORT, 'redaction remainders cannot be deleted');
END;

CREATE TRIGGER redactions_no_replace
BEFORE INSERT ON redactions
WHEN EXISTS (SELECT 1 FROM redactions WHERE owner = NEW.owner)
BEGIN
    SELECT RAISE(ABORT, 'redaction remainders cannot be replaced');
END;

-- packs -------------------------------------------------------------------------------------------

CREATE TABLE packs (
    -- The content of archived messages. A pack contains consecutive messages, compressed together. The rows
    -- in messages keep their place, sizes, digest and chain, and their head and body are NULL. Packs can be
    -- written and deleted only while a receipt of kind `archive` or of a removal is open.

    -- (loop << 32) | sequence of the first message
    id       INTEGER PRIMARY KEY,
    -- The sequence of the last message. The pack contains all messages between.
    last_seq INTEGER NOT NULL,
    -- The size of the content before compression, in bytes.
    bytes    INTEGER NOT NULL,
    -- SHA-256 of the columns before and of the content.
    digest   BLOB NOT NULL,
    -- Heads and bodies, compressed with Brotli (RFC 7932).
    content  BLOB NOT NULL
) STRICT;

CREATE TRIGGER packs_no_insert
BEFORE INSERT ON packs
WHEN EXISTS (SELECT 1 FROM packs WHERE id = NEW.id)
    OR NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = NEW.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'packs can only be written while a receipt is open, and cannot be replaced');
END;

CREATE TRIGGER packs_no_update
BEFORE UPDATE ON packs
BEGIN
    SELECT RAISE(ABORT, 'packs are immutable');
END;

CREATE TRIGGER packs_no_delete
BEFORE DELETE ON packs
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'packs cannot be deleted');
END;

-- packed heads ------------------------------------------------------------------------------------

CREATE TABLE packed_heads (
    -- The fields of archived messages that the views show, as JSON: a prompt as one line, the usage and the
    -- model of an answer, the ids and names of its calls, and the id of the call that a result answers. All
    -- are derived from the message.

    -- The loop and the sequence of the message.
    id   INTEGER PRIMARY KEY,
    head TEXT NOT NULL
) STRICT;

CREATE TRIGGER packed_heads_no_insert
BEFORE INSERT ON packed_heads
WHEN EXISTS (SELECT 1 FROM packed_heads WHERE id = NEW.id)
    OR NOT EXISTS (
        SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
        WHERE l.key = NEW.id >> 32 AND m.closed_at IS NULL
    )
BEGIN
    SELECT RAISE(ABORT, 'archived message heads cannot be replaced');
END;

CREATE TRIGGER packed_heads_no_update
BEFORE UPDATE ON packed_heads
BEGIN
    SELECT RAISE(ABORT, 'archived message heads are immutable');
END;

CREATE TRIGGER packed_heads_no_delete
BEFORE DELETE ON packed_heads
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'archived message heads cannot be deleted');
END;

-- leases ------------------------------------------------------------------------------------------

CREATE TABLE leases (
    -- The exclusive rights to write to a loop, one row per loop. A row remains after its lease is released,
    -- so that a token is never assigned twice. Leases, started calls and notes are not part of any digest.
    -- They are deleted with their loop.

    loop       INTEGER PRIMARY KEY REFERENCES loops (key) ON DELETE CASCADE,
    owner      TEXT NOT NULL,
    -- Raised each time the lease is taken or revoked.
    token      INTEGER NOT NULL CHECK (token > 0),
    -- The duration of the lease in milliseconds.
    ttl        INTEGER NOT NULL CHECK (ttl > 0),
    -- Milliseconds since the epoch, by the clock of the process that wrote them.
    renewed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    -- True if the holder released the lease, or if it was revoked.
    released   INTEGER NOT NULL
) STRICT;

CREATE TRIGGER leases_never_go_back
BEFORE UPDATE ON leases
WHEN NEW.loop IS NOT OLD.loop OR NEW.token < OLD.token
BEGIN
    SELECT RAISE(ABORT, 'lease tokens cannot decrease');
END;

CREATE TRIGGER leases_no_delete
BEFORE DELETE ON leases
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
) AND EXISTS (SELECT 1 FROM loops WHERE key = OLD.loop)
BEGIN
    SELECT RAISE(ABORT, 'leases are released, not deleted');
END;

CREATE TRIGGER leases_no_replace
BEFORE INSERT ON leases
WHEN EXISTS (SELECT 1 FROM leases WHERE loop = NEW.loop)
BEGIN
    SELECT RAISE(ABORT, 'leases cannot be replaced');
END;

-- started calls -----------------------------------------------------------------------------------

CREATE TABLE started_calls (
    -- Tool calls, written before the tool runs. After a crash they show which calls may have had an effect.

    key             INTEGER PRIMARY KEY,
    loop            INTEGER NOT NULL REFERENCES loops (key) ON DELETE CASCADE,
    call_id         TEXT NOT NULL,
    -- The number of the call among the calls of the loop with the same call id, from 0. Some models number
    -- their calls anew in each turn.
    nth             INTEGER NOT NULL,
    tool_name       TEXT NOT NULL,
    -- The arguments as JSON. NULL after the result is stored, because the message of the call contains them.
    arguments       TEXT,
    idempotency_key TEXT NOT NULL,
    -- The index of the turn in the source.
    turn_index      INTEGER,
    -- The time of the first start, as ISO-8601 text.
    started_at      TEXT NOT NULL,
    -- The number of starts.
    attempts        INTEGER NOT NULL,
    -- The time of the result, as ISO-8601 text. NULL if there is no result.
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
    SELECT RAISE(ABORT, 'started calls can only be finished');
END;

CREATE TRIGGER started_calls_no_delete
BEFORE DELETE ON started_calls
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.loop AND m.closed_at IS NULL
) AND EXISTS (SELECT 1 FROM loops WHERE key = OLD.loop)
BEGIN
    SELECT RAISE(ABORT, 'started calls cannot be deleted');
END;

CREATE TRIGGER started_calls_no_replace
BEFORE INSERT ON started_calls
WHEN EXISTS (
    SELECT 1 FROM started_calls
    WHERE key = NEW.key OR (loop = NEW.loop AND call_id = NEW.call_id AND nth = NEW.nth)
)
BEGIN
    SELECT RAISE(ABORT, 'started calls cannot be replaced');
END;

-- append keys -------------------------------------------------------------------------------------

CREATE TABLE append_keys (
    -- The keys that callers gave their appends, with the position of the messages of each append. An append
    -- with a key that is already stored appends nothing.

    session    INTEGER NOT NULL REFERENCES sessions (key),
    name       TEXT NOT NULL CHECK (length(name) > 0),
    -- The loop of the last message, and the sequences and turns of the append in that loop. The ends are
    -- exclusive.
    loop       INTEGER NOT NULL,
    first_seq  INTEGER NOT NULL,
    end_seq    INTEGER NOT NULL,
    first_turn INTEGER NOT NULL,
    end_turn   INTEGER NOT NULL,
    -- The tokens of all messages of the append.
    tokens     INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER append_keys_no_update
BEFORE UPDATE ON append_keys
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'append keys are immutable');
END;

CREATE TRIGGER append_keys_no_delete
BEFORE DELETE ON append_keys
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'append keys cannot be deleted');
END;

CREATE TRIGGER append_keys_no_replace
BEFORE INSERT ON append_keys
WHEN EXISTS (SELECT 1 FROM append_keys WHERE session = NEW.session AND name = NEW.name)
BEGIN
    SELECT RAISE(ABORT, 'append keys cannot be replaced');
END;

-- notes -------------------------------------------------------------------------------------------

CREATE TABLE notes (
    -- Turns and events of an unfinished loop as JSON, with the sequences of stored messages instead of the
    -- messages. When the loop ends, its notes are moved to loops.history.

    -- (loop << 32) | ordinal
    id   INTEGER PRIMARY KEY,
    -- 0 event, 1 turn
    kind INTEGER NOT NULL CHECK (kind IN (0, 1)),
    note TEXT NOT NULL
) STRICT;

-- Rejects every change except redaction.
CREATE TRIGGER notes_no_update
BEFORE UPDATE ON notes
WHEN NOT EXISTS (
    SELECT 1 FROM maintenance m JOIN loops l ON l.session = m.session
    WHERE l.key = OLD.id >> 32 AND m.closed_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'notes are immutable');
END;

CREATE TRIGGER notes_no_replace
BEFORE INSERT ON notes
WHEN EXISTS (SELECT 1 FROM notes WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'notes cannot be replaced');
END;

-- Deletes the notes of a deleted loop, because notes have no foreign key that could cascade.
CREATE TRIGGER loops_take_their_notes
AFTER DELETE ON loops
BEGIN
    DELETE FROM notes WHERE id >= OLD.key << 32 AND id < (OLD.key + 1) << 32;
END;

-- message index -----------------------------------------------------------------------------------

CREATE VIRTUAL TABLE message_index USING fts5 (
    -- The index of `loopstore search`. The index is derived from the messages, and can be deleted and rebuilt
    -- at any time. An append never writes the index, because that would make recording several times slower.
    -- A search or an explicit command brings the index up to date.
    --
    -- The index contains no text, only the positions of words. loopstore itself splits stored text and
    -- queries into words by the same rule, and the tokenizer only separates the words at spaces. The rowid of
    -- a message is (page << 6) | (sequence & 63). The table has no `contentless_delete`, because SQLite
    -- before 3.43 does not support the option, and programs that read every table would then reject the whole
    -- file. Therefore a removal rebuilds the index.

    words,
    -- The tools that the message calls or contains results of, each as one word.
    tools,
    content = '', tokenize = 'ascii'
);

-- index pages -------------------------------------------------------------------------------------

CREATE TABLE index_pages (
    -- Pages of 64 messages of a loop. Pages are numbered consecutively, so that the rowids of neighbours are
    -- close. FTS5 stores the difference of two rowids: one byte for each word of a message, instead of five
    -- bytes with (loop << 32) | sequence, which is up to half of the index. The number of a page is never
    -- assigned again, because words of deleted messages may remain under the number.

    number INTEGER PRIMARY KEY AUTOINCREMENT,
    loop   INTEGER NOT NULL,
    -- sequence >> 6 of the messages of the page.
    part   INTEGER NOT NULL,
    UNIQUE (loop, part)
) STRICT;

-- indexed loops -----------------------------------------------------------------------------------

CREATE TABLE indexed_loops (
    -- The indexed part of each loop.

    loop        INTEGER PRIMARY KEY,
    -- Messages before this sequence are in the index.
    indexed_seq INTEGER NOT NULL
) STRICT;

-- index state -------------------------------------------------------------------------------------

CREATE TABLE index_state (
    -- The version and the progress of the index, in one row.

    key      INTEGER PRIMARY KEY CHECK (key = 1),
    -- The version of the rule that splits text into words. 0 if the index was never filled or was deleted.
    version  INTEGER NOT NULL,
    -- The sum of indexed_seq in indexed_loops.
    messages INTEGER NOT NULL
) STRICT;

INSERT INTO index_state VALUES (1, 0, 0);

-- Deletes the index rows of a deleted loop. Otherwise a loop with the same key would inherit them.
CREATE TRIGGER loops_leave_the_index
AFTER DELETE ON loops
BEGIN
    DELETE FROM index_pages WHERE loop = OLD.key;
    DELETE FROM indexed_loops WHERE loop = OLD.key;
END;

-- ------------------------------------------------------------------------------------------------
-- The views: the stable way to read a database with SQL.
--
-- The name, the place and the meaning of a view's column never change. New columns are added at the end.
-- Views whose name begins with `v_` are for all readers. All other views are internal and may change.
--
-- A view has no parameters, and SQLite does not apply an outer condition inside a recursive query. Therefore
-- a result that belongs to one leaf is a scalar subquery: it names the leaf and returns its rows as a JSON
-- array, and json_each() expands the array. A query for one session then reads only the chains of that
-- session.
--
-- No row may make a view fail. JSON is read only if json_valid() accepts it. Numbers that other programs
-- wrote are added with total(), which does not overflow.

-- Internal. Messages with their largest text restored. `json` is the head if the head is JSON, or the packed
-- head of an archived message. `payload` is the whole message, and NULL if the message was redacted or
-- archived. Without NOT INDEXED, SQLite would search the index of all messages by role instead of the key
-- range of a loop.
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
    END AS text,
    m.author
FROM messages m NOT INDEXED;

-- Internal. The elements that harnesses add to a person's message.
CREATE VIEW harness_elements (name) AS
VALUES
    ('bash-input'), ('bash-stderr'), ('bash-stdout'), ('command-args'), ('command-contents'),
    ('command-message'), ('command-name'), ('ide_diagnostics'), ('ide_opened_file'),
    ('ide_selection'), ('local-command-caveat'), ('local-command-stderr'),
    ('local-command-stdout'), ('new-diagnostics'), ('session-start-hook'), ('system-reminder'),
    ('system_reminder'), ('task-notification'), ('user-memory-input'),
    ('user-prompt-submit-hook'), ('collaboration_mode'), ('environment_context'),
    ('hook_prompt'), ('permissions instructions'), ('subagent_notification'), ('turn_aborted'),
    ('user_instructions'), ('user_shell_command'), ('current_datetime'), ('EXTRA_INFO'),
    ('environment_details'), ('hook_context'), ('session_context');

-- Internal. Prompts, one line each, as the library shows them: without the elements of harnesses at the
-- beginning and at the end, with folded white space, cut after a word to 100 characters. NULL if the prompt
-- has no text.
CREATE VIEW prompt_lines AS
SELECT m.id, CASE WHEN m.head IS NULL THEN (
    SELECT json_extract(p.head, '$.prompt') FROM packed_heads p
    WHERE p.id = m.id AND json_valid(p.head)
) ELSE (
    WITH RECURSIVE
    prompt (text) AS MATERIALIZED (
        SELECT group_concat(
            CASE
                WHEN block.key = m.body_block THEN m.body
                ELSE json_extract(block.value, '$.text')
            END,
            char(10)
        )
        FROM json_each(CASE WHEN json_valid(m.head) THEN m.head END, '$.content') block
        WHERE CASE block.type
            WHEN 'object'
            THEN json_extract(block.value, '$.type') = 'text'
                AND json_extract(block.value, '$.author') IS NOT 'harness'
        END
    ),
    bare (step, text) AS (
        SELECT 0, trim(text, char(9, 10, 11, 12, 13, 32)) FROM prompt
        UNION ALL
        SELECT b.step + 1, trim(
            CASE
                WHEN substr(b.text, 1, 1 + length(e.name)) = '<' || e.name
                THEN substr(
                    b.text, instr(b.text, '</' || e.name || '>') + 3 + length(e.name)
                )
                ELSE substr(b.text, 1, instr(b.text, '<' || e.name) - 1)
            END,
            char(9, 10, 11, 12, 13, 32)
        )
        FROM bare b CROSS JOIN harness_elements e
        WHERE b.step < 100 AND (substr(b.text, 1, 1) = '<' OR substr(b.text, -1) = '>') AND CASE
            WHEN substr(b.text, 1, 1 + length(e.name)) = '<' || e.name
            THEN substr(b.text, 2 + length(e.name), 1) IN ('>', ' ', char(10))
                AND instr(b.text, '</' || e.name || '>') > 0
            ELSE substr(b.text, - 3 - length(e.name)) = '</' || e.name || '>'
                AND instr(b.text, '<' || e.name) > 0
        END
    ),
    spaced (text) AS MATERIALIZED (
        SELECT replace(replace(replace(replace(replace(
            substr(text, 1, 2000),
            char(9), ' '), char(10), ' '), char(11), ' '), char(12), ' '), char(13), ' ')
        FROM bare ORDER BY step DESC LIMIT 1
    ),
    -- Folds a run of spaces into one: ' ' becomes ' ' and a mark, then each mark before a ' ' is removed with
    -- that ' '.
    folded (text) AS MATERIALIZED (
        SELECT trim(replace(replace(replace(text, ' ', ' ' || char(1)), char(1) || ' ', ''), char(1), ''))
        FROM spaced
    ),
    -- `words` is the beginning of the text without its last word.
    cut (text, words) AS MATERIALIZED (
        SELECT text, rtrim(rtrim(substr(text, 1, 100), replace(substr(text, 1, 100), ' ', '')))
        FROM folded
    )
    SELECT CASE
        WHEN length(text) <= 100 THEN nullif(text, '')
        WHEN length(words) > 50 THEN words || '…'
        ELSE rtrim(substr(text, 1, 99)) || '…'
    END
    FROM cut
) END AS line
FROM messages m;

-- Internal. The first prompt of each loop: the first one of a person, or else of a parent agent. Prompts
-- without text, such as a single image, are skipped.
CREATE VIEW loop_prompts AS
SELECT l.key AS loop, (
    SELECT m.id FROM messages m INDEXED BY messages_prompts
    WHERE m.id >= l.key << 32 AND m.id < (l.key + 1) << 32 AND m.role = 0 AND m.author < 2
        AND CASE
            WHEN m.head IS NULL THEN EXISTS (SELECT 1 FROM packed_heads p WHERE p.id = m.id)
            ELSE instr(m.head, '"text"')
        END
    ORDER BY m.author, m.id LIMIT 1
) AS id
FROM loops l;

-- Internal. The first prompt of each session: that of its oldest loop with a first prompt.
CREATE VIEW session_prompts AS
SELECT s.key AS session, (
    SELECT m.id
    FROM loops l CROSS JOIN messages m INDEXED BY messages_prompts
        ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32 AND m.role = 0 AND m.author < 2
    WHERE l.session = s.key AND CASE
        WHEN m.head IS NULL THEN EXISTS (SELECT 1 FROM packed_heads p WHERE p.id = m.id)
        ELSE instr(m.head, '"text"')
    END
    ORDER BY m.author, m.id LIMIT 1
) AS id
FROM sessions s;

-- Internal. Turns with the keys of their messages: first_id <= id < end_id.
CREATE VIEW turn_bounds AS
SELECT
    t.id, t.id & 4294967295 AS turn, t.turn_index, t.started_at, t.ended_at, t.messages, t.tokens,
    t.answers,
    ((t.id >> 32) << 32) + t.first_seq AS first_id,
    coalesce(
        (SELECT ((t.id >> 32) << 32) + n.first_seq FROM turns n WHERE n.id = t.id + 1),
        ((t.id >> 32) + 1) << 32
    ) AS end_id
FROM turns t;

-- Internal. Loops that no child continues from their last turn, and the current loop of each session.
CREATE VIEW leaves AS
SELECT l.key, l.session, l.loop_id
FROM loops l
WHERE l.key = (SELECT s.current_loop FROM sessions s WHERE s.key = l.session)
    OR NOT EXISTS (
        SELECT 1 FROM loops c
        WHERE c.parent = l.key AND c.session = l.session
            AND coalesce(c.parent_turn, -1) >= l.turns - 1 AND c.parent_seq IS NULL
    );

-- Internal. The chain of the loop `leaf`, back to the loop `oldest`. A query must give both. If `oldest` is
-- smaller than every key of the chain, the view returns the whole chain. `cut` is the number of turns of the
-- loop that belong to the chain as a whole. `part` is the last sequence of the next turn that belongs to the
-- chain, if the chain leaves the loop within that turn. `depth` counts from 0 at the old end. The key of a
-- parent is smaller than the key of its child, so that the recursion always ends.
CREATE VIEW chain_of AS
SELECT
    leaf.key AS leaf, oldest.key AS oldest,
    link.value ->> 0 AS loop, link.value ->> 1 AS depth, link.value ->> 2 AS cut,
    link.value ->> 3 AS part
FROM loops leaf CROSS JOIN loops oldest CROSS JOIN json_each((
    WITH RECURSIVE up (loop, parent, parent_turn, parent_seq, cut, part, distance) AS (
        SELECT leaf.key, leaf.parent, leaf.parent_turn, leaf.parent_seq, 4294967296, NULL, 0
        UNION ALL
        SELECT p.key, p.parent, p.parent_turn, p.parent_seq,
            coalesce(up.parent_turn + (up.parent_seq IS NULL), 0), up.parent_seq, up.distance + 1
        FROM up CROSS JOIN loops p ON p.key = up.parent
        WHERE p.key < up.loop AND p.key >= oldest.key AND p.session = leaf.session
    )
    SELECT json_group_array(json_array(loop, depth, cut, part))
    FROM (SELECT loop, count(*) OVER () - 1 - distance AS depth, cut, part FROM up)
)) link;

-- Internal. The active block of each loop of a chain (see chain_of). `block` is the active block, and `plain`
-- is the active block if rollups are ignored. `run` is the newest live run of the chain. A run or flip
-- applies to a chain if its loop is on the chain and had no turn beyond its cut at that time. A run is live
-- if it is committed and its newest flip that applies is not an undo. The active block is the newest
-- generation from a live run whose text was made with exactly the edits that are live.
CREATE VIEW active_by_loop AS
SELECT
    leaf.key AS leaf, oldest.key AS oldest,
    link.value ->> 0 AS loop, link.value ->> 1 AS depth, link.value ->> 2 AS cut,
    (SELECT b.key FROM blocks b
     WHERE b.loop = link.value ->> 0 AND b.generation = link.value ->> 3) AS block,
    (SELECT b.key FROM blocks b
     WHERE b.loop = link.value ->> 0 AND b.generation = link.value ->> 4) AS plain,
    link.value ->> 5 AS run, link.value ->> 6 AS part
FROM loops leaf CROSS JOIN loops oldest CROSS JOIN json_each((
    WITH
    chain (loop, depth, cut, part) AS (
        SELECT c.loop, c.depth, c.cut, c.part FROM chain_of c
        WHERE c.leaf = leaf.key AND c.oldest = oldest.key
    ),
    -- Every run and every flip that applies. Runs of a provider are ignored, because only that provider can
    -- read their opaque items. Runs with edits have no blocks.
    changes (run, word, tick, flip) AS (
        SELECT r.key, iif(r.trigger = 'edit', 'edit', 'run'), r.tick, NULL
        FROM chain c CROSS JOIN runs r ON r.loop = c.loop
        WHERE r.outcome = 'committed' AND r.turns <= c.cut
            AND (r.strategy NOT LIKE 'provider:%' OR r.trigger = 'edit')
        UNION ALL
        SELECT f.run, f.kind, f.tick, f.key
        FROM chain c CROSS JOIN flips f ON f.loop = c.loop
        WHERE f.turns <= c.cut
    ),
    judged (run, word, tick, last_word) AS (
        SELECT run, word, tick, first_value(word) OVER (
            PARTITION BY run ORDER BY flip IS NULL, tick DESC, flip DESC
        )
        FROM changes
    ),
    live (run, newest) AS (
        SELECT run, first_value(run) OVER (ORDER BY tick DESC, run DESC)
        FROM judged
        WHERE word = 'run' AND last_word <> 'undo'
    ),
    -- What live edits removed or replaced.
    rewritten (run_id, loop, from_seq, to_seq) AS (
        SELECT r.run_id, e.loop, e.from_seq, e.to_seq
        FROM judged j CROSS JOIN runs r ON r.key = j.run
            CROSS JOIN edits e ON e.id >= r.key << 32 AND e.id < (r.key + 1) << 32
        WHERE j.word = 'edit' AND j.last_word <> 'undo' AND e.action <> 'cleared'
    ),
    -- Loops and blocks are joined by grouping, because a join would search the chain once for each of them.
    met (loop, depth, cut, part, generation, plain, newest) AS (
        SELECT loop, depth, cut, part, NULL, NULL, NULL FROM chain
        UNION ALL
        SELECT b.loop, NULL, NULL, NULL, b.generation,
            CASE WHEN b.kind <> 'rollup' THEN b.generation END, live.newest
        FROM live LEFT JOIN blocks b ON b.run = live.run
            AND CASE (SELECT s.edits FROM sessions s WHERE s.key = leaf.session)
                WHEN 0 THEN 1
                ELSE b.edits IS (
                    SELECT iif(count(*) > 0, json_group_array(run_id), NULL)
                    FROM (
                        SELECT DISTINCT w.run_id
                        FROM rewritten w
                            LEFT JOIN turns t ON t.id = (b.loop << 32) + b.compacted_start
                            LEFT JOIN turns n ON n.id = (b.loop << 32) + b.compacted_end + 1
                        WHERE (w.loop < b.loop AND b.kind = 'rollup')
                            OR (w.loop = b.loop AND w.to_seq >= t.first_seq
                                AND w.from_seq < min(coalesce(n.first_seq, b.through), b.through))
                            OR (w.loop = b.loop AND t.first_seq IS NOT NULL AND EXISTS (
                                SELECT 1 FROM messages m
                                WHERE m.id BETWEEN (w.loop << 32) + w.from_seq AND (w.loop << 32) + w.to_seq
                                    AND m.id < (w.loop << 32) + t.first_seq
                                    AND m.role = 0 AND m.author < 2
                            ))
                        ORDER BY w.run_id
                    )
                )
            END
    )
    SELECT json_group_array(json_array(loop, depth, cut, generation, plain, newest, part))
    FROM (
        SELECT loop, max(depth) AS depth, max(cut) AS cut, max(part) AS part, max(generation) AS generation,
            max(plain) AS plain, max(max(newest)) OVER () AS newest
        FROM met GROUP BY loop
    )
    WHERE depth IS NOT NULL
)) link;

-- Internal. The messages of the chain of the loop `leaf` with live edits. A message that is not shown has the
-- `form` 'removed', else 'edited'. `tokens` is added to those of the message as recorded.
CREATE VIEW edited_messages AS
SELECT leaf.key AS leaf, edited.value ->> 0 AS id, edited.value ->> 1 AS form, edited.value ->> 2 AS tokens
FROM loops leaf CROSS JOIN json_each(
    CASE (SELECT s.edits FROM sessions s WHERE s.key = leaf.session) WHEN 0 THEN '[]' ELSE (
        WITH
        chain (loop, cut) AS (
            SELECT c.loop, c.cut FROM chain_of c
            WHERE c.leaf = leaf.key AND c.oldest = (SELECT min(key) FROM loops)
        ),
        live (run, tick) AS (
            SELECT r.key, r.tick
            FROM chain c CROSS JOIN runs r ON r.loop = c.loop
            WHERE r.outcome = 'committed' AND r.trigger = 'edit' AND r.turns <= c.cut
                AND coalesce((
                    SELECT f.kind <> 'undo'
                    FROM flips f JOIN chain k ON k.loop = f.loop AND f.turns <= k.cut
                    WHERE f.run = r.key ORDER BY f.tick DESC, f.key DESC LIMIT 1
                ), 1)
        ),
        edit AS (
            SELECT e.*, live.tick
            FROM live CROSS JOIN edits e ON e.id >= live.run << 32 AND e.id < (live.run + 1) << 32
        ),
        removed (id) AS (
            SELECT m.id
            FROM edit e CROSS JOIN messages m
                ON m.id BETWEEN (e.loop << 32) + e.from_seq AND (e.loop << 32) + e.to_seq AND m.role <> 3
            WHERE e.part IS NULL
        ),
        form AS (
            SELECT (loop << 32) + from_seq AS id, parts, action, tokens_after - tokens_before AS tokens,
                row_number() OVER (
                    PARTITION BY loop, from_seq, part
                    ORDER BY action = 'removed' DESC, tick DESC, id DESC
                ) AS place
            FROM edit WHERE part IS NOT NULL
        )
        SELECT json_group_array(json_array(id, form, tokens))
        FROM (
            SELECT DISTINCT id, 'removed' AS form, 0 AS tokens FROM removed
            UNION ALL
            SELECT id, iif(sum(action = 'removed') >= max(parts), 'removed', 'edited'), sum(tokens)
            FROM form
            WHERE place = 1 AND id NOT IN (SELECT id FROM removed)
            GROUP BY id
        )
    ) END
) edited;

-- Internal. The loops that the context of a leaf shows, each with its active block. If the newest live run
-- skips older loops, these are the loops in its scope, or else the loops from the anchor of the active rollup
-- on. `turns` and `end_seq` are the ends of the part of a loop that belongs to the chain.
CREATE VIEW context_loops AS
SELECT
    leaf.key AS leaf,
    link.value ->> 0 AS loop, link.value ->> 1 AS depth, link.value ->> 2 AS turns,
    link.value ->> 3 AS end_seq, link.value ->> 4 AS block, link.value ->> 5 AS part
FROM loops leaf CROSS JOIN json_each((
    WITH
    link (loop, depth, turns, complete, end_seq, part, block, older_loops, scope, config) AS (
        SELECT f.loop, f.depth, min(f.cut + (f.part IS NOT NULL), l.turns),
            -- The window does not count an incomplete turn of the leaf.
            CASE l.key
                WHEN leaf.key THEN l.complete
                ELSE min(f.cut + (f.part IS NOT NULL), l.turns)
            END,
            CASE
                WHEN f.part IS NOT NULL THEN f.part + 1
                WHEN f.cut < l.turns THEN coalesce(
                    (SELECT t.first_seq FROM turns t WHERE t.id = (f.loop << 32) + f.cut),
                    l.next_seq
                )
                ELSE l.next_seq
            END,
            f.part,
            CASE WHEN r.older_loops = 'skip' THEN f.plain ELSE f.block END,
            coalesce(r.older_loops, 'rollup'), r.scope,
            CASE
                WHEN json_valid(coalesce(r.reached, r.config)) THEN coalesce(r.reached, r.config)
                ELSE '{}'
            END
        FROM active_by_loop f CROSS JOIN loops l ON l.key = f.loop LEFT JOIN runs r ON r.key = f.run
        WHERE f.leaf = leaf.key AND f.oldest = (SELECT min(key) FROM loops)
    ),
    sized AS (
        SELECT k.*, b.kind,
            coalesce(json_extract(k.config, '$.recent_window'), 'chain') AS recent_window,
            coalesce(json_extract(k.config, '$.keep_recent_turns'), 10) AS keep_recent_turns,
            coalesce(json_extract(k.config, '$.max_context_tokens'), 128000)
                - coalesce(json_extract(k.config, '$.system_tokens'), 0) AS budget,
            -- Active tokens. Only a budget needs them.
            CASE
                WHEN k.older_loops <> 'skip' OR k.scope <> 'token-budget' THEN 0
                WHEN b.key IS NULL AND k.part IS NOT NULL THEN (
                    SELECT total(m.tokens) FROM messages m
                    WHERE m.id >= (k.loop << 32) AND m.id < (k.loop << 32) + k.end_seq AND m.role <> 3
                )
                WHEN b.key IS NULL THEN (
                    SELECT t.tokens FROM turns t WHERE t.id = (k.loop << 32) + k.turns - 1
                        AND k.turns > 0
                )
                ELSE b.tokens_block + (
                    SELECT total(m.tokens) FROM messages m
                    WHERE m.id >= (k.loop << 32) + b.through
                        AND m.id < (k.loop << 32) + k.end_seq AND m.role <> 3
                )
            END AS tokens
        FROM link k LEFT JOIN blocks b ON b.key = k.block
    ),
    placed AS (
        SELECT sized.*,
            max(depth) OVER () - depth AS distance,
            max(CASE WHEN kind = 'rollup' THEN depth ELSE 0 END) OVER () AS anchor,
            total(tokens) OVER (ORDER BY depth DESC) AS tokens_from_here,
            total(complete) OVER (
                ORDER BY depth DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS turns_after
        FROM sized
    )
    SELECT json_group_array(json_array(loop, depth, turns, end_seq, block, part))
    FROM placed
    WHERE CASE
        WHEN older_loops <> 'skip' THEN depth >= anchor
        WHEN distance = 0 THEN 1
        WHEN recent_window = 'chain' AND turns > 0 AND turns_after < keep_recent_turns THEN 1
        WHEN scope LIKE 'fixed:%' THEN distance <= CAST(substr(scope, 7) AS INTEGER)
        ELSE tokens_from_here <= budget
    END
)) link;

-- Sessions with the totals of their loops. Totals do not include extensions. title is the title of the
-- session, or else its prompt as a line of at most 100 characters. The prompt is the first one of a person,
-- or else of a parent agent. project is the folder that the agent worked in.
CREATE VIEW v_sessions AS
SELECT
    s.session_id, s.agent_id,
    CASE
        WHEN trim(s.title) <> '' THEN s.title
        ELSE (SELECT p.line FROM session_prompts f CROSS JOIN prompt_lines p ON p.id = f.id
              WHERE f.session = s.key)
    END AS title,
    s.created_at, s.last_active_at,
    (SELECT l.loop_id FROM loops l WHERE l.key = s.current_loop) AS current_loop_id,
    (SELECT count(*) FROM loops l WHERE l.session = s.key) AS loops,
    (SELECT CAST(total(l.turns) AS INTEGER) FROM loops l WHERE l.session = s.key) AS turns,
    (SELECT CAST(total(l.messages) AS INTEGER) FROM loops l WHERE l.session = s.key) AS messages,
    (SELECT CAST(total(l.tokens) AS INTEGER) FROM loops l WHERE l.session = s.key) AS tokens,
    s.source,
    (SELECT p.line FROM session_prompts f CROSS JOIN prompt_lines p ON p.id = f.id
     WHERE f.session = s.key) AS prompt,
    s.project,
    (SELECT CASE h.kind WHEN 'hide' THEN h.at END FROM hides h
     WHERE h.key = (SELECT max(n.key) FROM hides n WHERE n.session = s.key)) AS hidden_at
FROM sessions s;

-- Loops. parent_turn is the last turn of the parent that belongs to the loop's chain. parent_seq is the last
-- message of the parent that belongs to the chain, if the chain leaves the parent within parent_turn.
-- continuation_kind is Initial, Default, Compaction, Rerun:TAG, Branch:TAG, or the JSON of a kind that this
-- version does not know. archived is true if no message of the loop has content left. prompt is the first
-- prompt of the loop, as a line like the prompts of v_sessions.
CREATE VIEW v_loops AS
SELECT
    s.session_id, l.loop_id, l.parent_loop_id, l.parent_turn,
    CASE
        WHEN NOT json_valid(l.kind) THEN l.kind
        WHEN json_type(l.kind) = 'text' THEN json_extract(l.kind, '$')
        WHEN json_type(l.kind, '$.Rerun') = 'object'
        THEN 'Rerun:' || coalesce(json_extract(l.kind, '$.Rerun.tag'), '')
        WHEN json_type(l.kind, '$.Branch') = 'object'
        THEN 'Branch:' || coalesce(json_extract(l.kind, '$.Branch.tag'), '')
        ELSE l.kind
    END AS continuation_kind,
    l.status, l.started_at, l.ended_at, l.turns, l.messages, l.tokens,
    l.next_seq > 0 AND NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.id >= l.key << 32 AND m.id < (l.key + 1) << 32 AND m.head IS NOT NULL
    ) AS archived,
    (SELECT p.line FROM loop_prompts f CROSS JOIN prompt_lines p ON p.id = f.id
     WHERE f.loop = l.key) AS prompt,
    l.parent_seq
FROM sessions s JOIN loops l ON l.session = s.key;

-- Turns. triggered_by is User if a user message begins the turn, Branch for the first turn of a branch that
-- no user message begins, and else Continuation. input_tokens and output_tokens are the tokens that providers
-- reported for the answers of the turn. All views limit reported tokens to 10^12, so that false numbers of a
-- provider or a file cannot overflow a sum over rows.
CREATE VIEW v_turns AS
SELECT
    s.session_id, l.loop_id, t.turn, t.turn_index,
    CASE
        WHEN f.role = 0 THEN 'User'
        WHEN t.turn = 0 AND l.kind LIKE '{"Branch"%' THEN 'Branch'
        ELSE 'Continuation'
    END AS triggered_by,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.started_at / 1000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.ended_at / 1000.0, 'unixepoch') AS ended_at,
    t.messages - coalesce(p.messages, 0) AS messages,
    t.tokens - coalesce(p.tokens, 0) AS tokens,
    (SELECT CAST(max(0, min(total(json_extract(m.json, '$.usage.input')), 1e12)) AS INTEGER)
     FROM message_content m
     WHERE m.id >= t.first_id AND m.id < t.end_id AND m.role = 1) AS input_tokens,
    (SELECT CAST(max(0, min(total(json_extract(m.json, '$.usage.output')), 1e12)) AS INTEGER)
     FROM message_content m
     WHERE m.id >= t.first_id AND m.id < t.end_id AND m.role = 1) AS output_tokens
FROM sessions s
    JOIN loops l ON l.session = s.key
    CROSS JOIN turn_bounds t ON t.id >= l.key << 32 AND t.id < (l.key + 1) << 32
    LEFT JOIN turns p ON p.id = t.id - 1 AND t.turn > 0
    LEFT JOIN messages f ON f.id = t.first_id;

-- Messages. turn is NULL before the first turn. text is NULL for an extension, whose payload contains
-- everything, and for a message without text blocks. payload is NULL if the message was redacted or archived.
CREATE VIEW v_messages AS
SELECT
    s.session_id, l.loop_id, m.id & 4294967295 AS seq, m.turn, t.turn_index,
    CASE m.role
        WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' WHEN 2 THEN 'toolResult' ELSE 'extension'
    END AS role,
    m.text, m.tokens, m.bytes,
    strftime('%Y-%m-%dT%H:%M:%fZ', m.created_at / 1000.0, 'unixepoch') AS created_at,
    m.payload,
    CASE m.author WHEN 0 THEN 'human' WHEN 1 THEN 'agent' ELSE 'harness' END AS author
FROM sessions s
    JOIN loops l ON l.session = s.key
    CROSS JOIN message_content m ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32
    LEFT JOIN turns t ON t.id = (l.key << 32) + m.turn;

-- Tool calls with their results. The result is the first one with the id of the call in the same turn, or
-- else in a later turn of the loop, or else in a later loop of the session. result_loop_id is the loop of the
-- result.
CREATE VIEW v_tool_calls AS
SELECT
    s.session_id, l.loop_id, m.turn,
    call.value ->> '$.id' AS tool_call_id,
    call.value ->> '$.name' AS tool_name,
    call.value -> '$.arguments' AS arguments,
    m.id & 4294967295 AS call_seq,
    r.id & 4294967295 AS result_seq,
    r.text AS result_text,
    json_extract(r.json, '$.isError') AS is_error,
    (SELECT n.loop_id FROM loops n WHERE n.key = r.id >> 32) AS result_loop_id
FROM sessions s
    JOIN loops l ON l.session = s.key
    CROSS JOIN message_content m
        ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32 AND m.role = 1
    CROSS JOIN json_each(m.json, '$.content') call
    LEFT JOIN message_content r ON r.id = coalesce(
        (
            SELECT x.id FROM turn_bounds t CROSS JOIN message_content x
                ON x.id > m.id AND x.id < t.end_id
            WHERE t.id = (l.key << 32) + m.turn AND x.role = 2
                AND json_extract(x.json, '$.toolCallId') = call.value ->> '$.id'
            ORDER BY x.id LIMIT 1
        ),
        -- A turn that answers a call of another turn contains [loop,turn] of that turn. Few turns do.
        (
            SELECT x.id FROM turn_bounds t CROSS JOIN message_content x
                ON x.id >= t.first_id AND x.id < t.end_id
            WHERE t.answers IS NOT NULL
                AND t.id > (l.key << 32) + m.turn AND t.id < (l.key + 1) << 32
                AND instr(t.answers, '[' || l.key || ',' || m.turn || ']') AND x.role = 2
                AND json_extract(x.json, '$.toolCallId') = call.value ->> '$.id'
            ORDER BY t.id, x.id LIMIT 1
        ),
        (
            SELECT x.id FROM loops n
                CROSS JOIN turn_bounds t ON t.id >= n.key << 32 AND t.id < (n.key + 1) << 32
                CROSS JOIN message_content x ON x.id >= t.first_id AND x.id < t.end_id
            WHERE l.open_calls IS NOT NULL AND n.session = l.session AND n.key > l.key
                AND t.answers IS NOT NULL
                AND instr(t.answers, '[' || l.key || ',' || m.turn || ']') AND x.role = 2
                AND json_extract(x.json, '$.toolCallId') = call.value ->> '$.id'
            ORDER BY x.id LIMIT 1
        )
    )
WHERE CASE call.type WHEN 'object' THEN json_extract(call.value, '$.type') END = 'toolCall';

-- Files that tool calls name, from their arguments alone. A call that writes a text has the action written, a
-- call that replaces a part edited; created, edited, deleted and moved come from patches. Command lines of
-- shells are not read, and a call that failed is in the view: see is_error. `loopstore blame` knows both.
CREATE VIEW v_file_changes AS
SELECT
    c.session_id, c.loop_id, c.turn, c.tool_call_id, c.tool_name,
    file.value ->> 0 AS path,
    file.value ->> 1 AS action,
    c.call_seq, c.result_seq, c.is_error, c.result_loop_id
FROM v_tool_calls c
    CROSS JOIN json_each((
        WITH
        named (path, old, whole) AS (
            SELECT
                (SELECT a.value FROM json_each(
                    '["file_path", "filePath", "path", "absolute_path", "target_file", "filename", "notebook_path"]'
                ) name JOIN json_each(c.arguments) a ON a.key = name.value AND a.type = 'text'
                ORDER BY name.key LIMIT 1),
                EXISTS (SELECT 1 FROM json_each(c.arguments) a WHERE a.key IN (
                    'old_string', 'oldString', 'oldText', 'old_str', 'old_text', 'edits', 'insert_line',
                    'new_source', 'code_edit'
                )),
                EXISTS (SELECT 1 FROM json_each(c.arguments) a
                    WHERE a.key IN ('content', 'contents', 'file_text') AND a.type = 'text')
            WHERE json_type(c.arguments) = 'object'
        ),
        -- The lines of a patch. Backslashes become another escape first, so that each \n left is a line end.
        lines (line, place) AS (
            SELECT line.value, line.key
            FROM json_each(CASE WHEN instr(c.arguments, '*** Begin Patch') > 0 THEN
                '[' || replace(replace(json_quote(CASE json_type(c.arguments)
                    WHEN 'text' THEN json_extract(c.arguments, '$')
                    WHEN 'object' THEN (
                        SELECT a.atom FROM json_tree(c.arguments) a
                        WHERE a.type = 'text' AND instr(a.atom, '*** Begin Patch') > 0 LIMIT 1
                    )
                END), '\\', '\u005c'), '\n', '","') || ']'
            END) line
        )
        SELECT json_group_array(json_array(path, action)) FROM (
            SELECT path, iif(old, 'edited', 'written') AS action FROM named
            WHERE path IS NOT NULL AND (old OR whole)
            UNION ALL
            SELECT * FROM (
                SELECT
                    trim(substr(line, instr(line, ':') + 1), ' ' || char(9, 13)) AS path,
                    CASE substr(line, 5, instr(line, ':') - 5)
                        WHEN 'Add File' THEN 'created'
                        WHEN 'Update File' THEN 'edited'
                        WHEN 'Delete File' THEN 'deleted'
                        WHEN 'Move to' THEN 'moved'
                    END AS action
                FROM lines WHERE substr(line, 1, 4) = '*** ' ORDER BY place
            ) WHERE action IS NOT NULL AND path <> ''
        )
    )) file;

-- Commits that tool calls made, as git printed them: `[branch id] subject`. commit_id may be shortened. Only
-- calls whose arguments contain git and commit, cherry-pick or revert are read.
CREATE VIEW v_commits AS
SELECT
    c.session_id, c.loop_id, c.turn, c.tool_call_id,
    made.value ->> 0 AS commit_id,
    made.value ->> 1 AS branch,
    made.value ->> 2 AS subject,
    c.call_seq, c.result_seq, c.result_loop_id
FROM v_tool_calls c
    CROSS JOIN json_each((
        WITH
        lines (line, place) AS (
            SELECT trim(line.value, ' ' || char(9, 13)), line.key
            FROM json_each(CASE WHEN instr(c.arguments, 'git') > 0 AND (
                instr(c.arguments, 'commit') > 0 OR instr(c.arguments, 'cherry-pick') > 0
                OR instr(c.arguments, 'revert') > 0
            ) THEN
                '[' || replace(replace(json_quote(c.result_text), '\\', '\u005c'), '\n', '","') || ']'
            END) line
        ),
        parted (inside, subject, place) AS (
            SELECT substr(line, 2, instr(line, '] ') - 2), substr(line, instr(line, '] ') + 2), place
            FROM lines WHERE substr(line, 1, 1) = '[' AND instr(line, '] ') > 2
        ),
        -- `branch` is the text up to the last space.
        named (id, branch, subject, place) AS (
            SELECT substr(inside, length(rtrim(inside, replace(inside, ' ', ''))) + 1),
                rtrim(inside, replace(inside, ' ', '')), subject, place
            FROM parted
        )
        SELECT json_group_array(json_array(id, branch, subject)) FROM (
            SELECT id, nullif(trim(replace(branch, '(root-commit)', '')), 'detached HEAD') AS branch, subject
            FROM named
            WHERE length(id) BETWEEN 7 AND 64 AND id NOT GLOB '*[^0-9a-f]*'
                AND trim(replace(branch, '(root-commit)', '')) <> '' AND instr(branch, '[') = 0
            ORDER BY place
        )
    )) made;

-- The chain of each leaf, from the root (depth 0). A leaf is a loop that no child continues from its last
-- turn, or the current loop of a session.
CREATE VIEW v_chain AS
SELECT s.session_id, f.loop_id AS leaf_loop_id, l.loop_id, c.depth
FROM sessions s
    JOIN leaves f ON f.session = s.key
    CROSS JOIN chain_of c ON c.leaf = f.key AND c.oldest = (SELECT min(key) FROM loops)
    CROSS JOIN loops l ON l.key = c.loop;

-- Compaction runs, one row per attempt. is_live is evaluated at the run's own loop. turns is the number of
-- complete turns that the loop had. config is the requested configuration. reached is the configuration that
-- was reached, if it differs from config. (`+f.loop` disables an index: a run has few flips, and a loop may
-- have many.)
CREATE VIEW v_compaction_runs AS
SELECT
    s.session_id, r.run_id, l.loop_id, r.trigger, r.strategy, r.round, r.outcome,
    r.outcome = 'committed' AND coalesce(
        (SELECT f.kind <> 'undo' FROM flips f WHERE f.run = r.key AND +f.loop = r.loop
         ORDER BY f.tick DESC, f.key DESC LIMIT 1),
        1
    ) AS is_live,
    r.fallback, r.error, r.tokens_before, r.tokens_after, r.bytes_before, r.bytes_after,
    r.messages_before, r.messages_after, r.started_at, r.duration_ms, r.config,
    r.turns, r.scope, r.older_loops, r.counter, r.usage, r.reached
FROM sessions s JOIN runs r ON r.session = s.key CROSS JOIN loops l ON l.key = r.loop;

-- The events of each run: compactionStarted, then compactionEnded. payload is the whole event as JSON. at is
-- the time of the event.
CREATE VIEW v_compaction_events AS
SELECT
    s.session_id, r.run_id, l.loop_id, r.tick,
    event.value ->> '$.type' AS kind,
    event.value ->> '$.timestamp' AS at,
    event.value AS payload
FROM sessions s
    JOIN runs r ON r.session = s.key
    CROSS JOIN loops l ON l.key = r.loop
    CROSS JOIN json_each(CASE WHEN json_valid(r.events) THEN r.events ELSE '[]' END) event
WHERE event.type = 'object';

-- Blocks. extends is LOOP#GENERATION of the rollup that a rollup extends. ratio is tokens_block divided by
-- tokens_covered. is_active is evaluated at the loop of the block's run. A block of a provider, with opaque
-- items, is active only in contexts for that provider.
CREATE VIEW v_compaction_blocks AS
SELECT
    s.session_id, l.loop_id, b.generation, r.run_id, b.kind,
    (SELECT n.loop_id || '#' || o.generation FROM blocks o CROSS JOIN loops n ON n.key = o.loop
     WHERE o.key = b.extends) AS extends,
    b.first_start AS keep_first_start, b.first_end AS keep_first_end,
    b.compacted_start AS keep_compacted_start, b.compacted_end AS keep_compacted_end,
    b.recent_start AS keep_recent_start, b.recent_end AS keep_recent_end,
    b.tokens_covered, b.tokens_block,
    b.tokens_block * 1.0 / nullif(b.tokens_covered, 0) AS ratio,
    CASE
        WHEN b.kind LIKE 'sealed:%' THEN coalesce(
            (SELECT f.kind <> 'undo' FROM flips f WHERE f.run = r.key AND +f.loop = r.loop
             ORDER BY f.tick DESC, f.key DESC LIMIT 1),
            1
        ) AND NOT EXISTS (
            SELECT 1 FROM blocks n
            WHERE n.loop = b.loop AND n.generation > b.generation
                AND (n.kind = b.kind OR n.kind NOT LIKE 'sealed:%')
                AND coalesce(
                    (SELECT f.kind <> 'undo' FROM flips f WHERE f.run = n.run AND +f.loop = r.loop
                     ORDER BY f.tick DESC, f.key DESC LIMIT 1),
                    1
                )
        )
        ELSE known.value ->> 1
    END AS is_active,
    b.created_at
FROM sessions s
    -- The loops that runs were made on. The active blocks are the same for all runs of a loop. The planner
    -- begins with the run if the run id is given, or else with the sessions. likelihood() marks the condition
    -- on the sessions as rare, because the planner would otherwise read the loop of a run once for each run.
    JOIN loops leaf ON s.key = +leaf.session AND likelihood(s.session_id <> '', 0.00001)
        AND leaf.key IN (SELECT r.loop FROM runs r WHERE r.session = s.key)
    -- The blocks of these runs, and the active blocks of the part of the chain that contains them.
    JOIN json_each((
        SELECT json_group_array(json_array(block, is_active))
        FROM (
            SELECT block, max(is_active) AS is_active
            FROM (
                SELECT b.key AS block, 0 AS is_active, 1 AS own
                FROM runs r CROSS JOIN blocks b ON b.run = r.key WHERE r.loop = leaf.key
                UNION ALL
                SELECT f.block,
                    f.depth >= max(CASE WHEN b.kind = 'rollup' THEN f.depth ELSE 0 END) OVER (),
                    0
                FROM active_by_loop f CROSS JOIN blocks b ON b.key = f.block
                WHERE f.leaf = leaf.key AND f.oldest = (
                    SELECT min(b.loop)
                    FROM runs r CROSS JOIN blocks b ON b.run = r.key WHERE r.loop = leaf.key
                )
            )
            GROUP BY block HAVING max(own)
        )
    )) known
    CROSS JOIN blocks b ON b.key = known.value ->> 0
    JOIN runs r ON r.key = b.run AND leaf.key = +r.loop
    CROSS JOIN loops l ON l.key = b.loop;

-- Edits. from_turn and to_turn are the turns of the first and the last message. part is NULL for whole messages.
-- is_live is evaluated at the loop of the run.
CREATE VIEW v_edits AS
SELECT
    s.session_id, r.run_id, l.loop_id,
    (SELECT m.turn FROM messages m WHERE m.id = (e.loop << 32) + e.from_seq) AS from_turn,
    (SELECT m.turn FROM messages m WHERE m.id = (e.loop << 32) + e.to_seq) AS to_turn,
    e.from_seq, e.to_seq, e.part, e.action, e.text, e.tokens_before, e.tokens_after,
    r.outcome = 'committed' AND coalesce(
        (SELECT f.kind <> 'undo' FROM flips f WHERE f.run = r.key AND +f.loop = r.loop
         ORDER BY f.tick DESC, f.key DESC LIMIT 1),
        1
    ) AS is_live,
    r.started_at AS created_at
FROM sessions s
    JOIN runs r ON r.session = s.key
    CROSS JOIN edits e ON e.id >= r.key << 32 AND e.id < (r.key + 1) << 32
    CROSS JOIN loops l ON l.key = e.loop;

-- Pins and unpins of messages. pinned is 1 or 0. author is the author of the message. from_loop_id and
-- from_turns are the leaf and its number of complete turns when the row was made. is_last is 1 for the newest
-- row of a message.
CREATE VIEW v_pins AS
SELECT
    s.session_id, l.loop_id, m.turn, p.seq,
    p.kind = 'pin' AS pinned,
    CASE m.author WHEN 0 THEN 'human' WHEN 1 THEN 'agent' WHEN 2 THEN 'harness' END AS author,
    p.at AS created_at,
    NOT EXISTS (
        SELECT 1 FROM pins n
        WHERE n.message_loop = p.message_loop AND n.seq = p.seq
            AND (n.tick > p.tick OR (n.tick = p.tick AND n.key > p.key))
    ) AS is_last,
    f.loop_id AS from_loop_id, p.turns AS from_turns
FROM sessions s
    JOIN pins p ON p.session = s.key
    JOIN loops l ON l.key = p.message_loop
    JOIN loops f ON f.key = p.loop
    LEFT JOIN messages m ON m.id = (p.message_loop << 32) + p.seq;

-- The record of what blocks did with the messages that they cover. block_loop_id is the loop of the block.
-- loop_id is the loop of the covered messages.
CREATE VIEW v_coverage AS
SELECT
    s.session_id, h.loop_id AS block_loop_id, b.generation, l.loop_id,
    c.from_seq, c.to_seq, c.from_turn, c.to_turn, c.disposition
FROM sessions s
    JOIN loops h ON h.session = s.key
    JOIN blocks b ON b.loop = h.key
    JOIN coverage c ON c.id >= b.key << 32 AND c.id < (b.key + 1) << 32
    JOIN loops l ON l.key = c.loop;

-- The context that the next model call of each leaf would see, part by part in order. rollup is the text of
-- the active rollup. first, compacted and recent are the sections of the active block of a loop. tail
-- contains the turns after the block. raw is a loop without a block. Parts without messages are omitted.
CREATE VIEW v_context AS
SELECT
    s.session_id, f.loop_id AS leaf_loop_id,
    part.value ->> 0 AS ordinal,
    l.loop_id,
    part.value ->> 2 AS section,
    part.value ->> 3 AS from_turn,
    part.value ->> 4 AS to_turn,
    part.value ->> 5 AS messages,
    part.value ->> 6 AS tokens
FROM sessions s
    JOIN leaves f ON f.session = s.key
    CROSS JOIN json_each((
        WITH
        slot AS (
            SELECT k.loop, k.depth, k.turns, k.end_seq, k.part, b.key AS block, b.through, name.key AS place,
                name.value AS section,
                CASE name.value
                    WHEN 'first' THEN b.first_start
                    WHEN 'recent' THEN b.recent_start
                    WHEN 'raw' THEN 0
                    WHEN 'tail' THEN NULL
                    ELSE b.compacted_start
                END AS from_turn,
                CASE name.value
                    WHEN 'first' THEN b.first_end
                    WHEN 'recent' THEN b.recent_end
                    WHEN 'raw' THEN k.turns - 1
                    WHEN 'tail' THEN NULL
                    ELSE b.compacted_end
                END AS to_turn
            FROM context_loops k
                LEFT JOIN blocks b ON b.key = k.block
                CROSS JOIN json_each(
                    '["rollup", "first", "compacted", "recent", "tail", "raw"]'
                ) name
            WHERE k.leaf = f.key
                AND (b.key IS NULL) = (name.value = 'raw')
                AND CASE name.value
                    WHEN 'rollup' THEN b.kind = 'rollup'
                    WHEN 'compacted' THEN b.kind <> 'rollup'
                    ELSE 1
                END
        ),
        -- The range of the original messages of a section: those of its turns that the block covers.
        bounded AS (
            SELECT slot.*,
                CASE section
                    WHEN 'tail' THEN (loop << 32) + through
                    ELSE (SELECT t.first_id FROM turn_bounds t WHERE t.id = (loop << 32) + from_turn)
                END AS first_id,
                CASE section
                    WHEN 'tail' THEN (loop << 32) + end_seq
                    ELSE (
                        SELECT min(t.end_id, (loop << 32) + min(end_seq, through))
                        FROM turn_bounds t WHERE t.id = (loop << 32) + to_turn
                    )
                END AS end_id
            FROM slot
        ),
        measured AS (
            SELECT bounded.*,
                CASE
                    WHEN section = 'raw' AND part IS NOT NULL THEN (
                        SELECT json_array(count(*), CAST(total(m.tokens) AS INTEGER))
                        FROM messages m
                        WHERE m.id >= (loop << 32) AND m.id < (loop << 32) + end_seq AND m.role <> 3
                    )
                    WHEN section = 'raw' THEN (
                        SELECT json_array(t.messages, t.tokens)
                        FROM turns t WHERE t.id = (loop << 32) + to_turn AND to_turn >= 0
                    )
                    WHEN section IN ('rollup', 'compacted') THEN (
                        SELECT json_array(count(*), CAST(total(x.tokens) AS INTEGER))
                        FROM block_messages x
                        WHERE x.id >= block << 32 AND x.id < (block + 1) << 32
                            AND x.section = 1 AND x.role <> 3
                    )
                    WHEN section IN ('first', 'tail') THEN (
                        SELECT json_array(count(*), CAST(total(m.tokens) AS INTEGER),
                            min(m.turn), max(m.turn))
                        FROM messages m
                        WHERE m.id >= first_id AND m.id < end_id AND m.role <> 3
                    )
                    -- Original messages without those that the block replaces, and the messages that replace
                    -- them.
                    ELSE (
                        SELECT json_array(CAST(total(n) AS INTEGER), CAST(total(tokens) AS INTEGER))
                        FROM (
                            SELECT 1 AS n, m.tokens FROM messages m
                            WHERE m.id >= first_id AND m.id < end_id AND m.role <> 3
                            UNION ALL
                            SELECT -1, -m.tokens FROM messages m
                            WHERE m.role <> 3 AND m.id >= first_id AND m.id < end_id
                                AND m.id IN (
                                    SELECT (loop << 32) + x.replaces FROM block_messages x
                                    WHERE x.id >= block << 32 AND x.id < (block + 1) << 32
                                        AND x.section = 2
                                )
                            UNION ALL
                            SELECT 1, x.tokens FROM block_messages x
                            WHERE x.id >= block << 32 AND x.id < (block + 1) << 32
                                AND x.section = 2 AND x.role <> 3
                        )
                    )
                END AS size
            FROM bounded
        ),
        -- The sizes with live edits. A message that the block drops stays dropped, and of one that the block
        -- shortens the edited form is shown.
        edited AS (
            SELECT loop, depth, place, section, from_turn, to_turn,
                CASE
                    WHEN section IN ('rollup', 'compacted')
                        OR (SELECT l.edits FROM loops l WHERE l.key = measured.loop) = 0 THEN size
                    ELSE (
                        SELECT json_array(
                            (size ->> 0) - coalesce(sum(form = 'removed'), 0),
                            (size ->> 1) + coalesce(
                                sum(iif(form = 'removed', 0, recorded + tokens) - shown), 0
                            ),
                            size ->> 2, size ->> 3
                        )
                        FROM (
                            SELECT e.form, e.tokens, m.tokens AS recorded,
                                coalesce(
                                    (SELECT iif(x.role IS NULL, -1, x.tokens) FROM block_messages x
                                     WHERE measured.section = 'recent' AND x.section = 2
                                         AND x.id >= measured.block << 32
                                         AND x.id < (measured.block + 1) << 32
                                         AND x.replaces = m.id - (measured.loop << 32)),
                                    m.tokens
                                ) AS shown
                            FROM edited_messages e CROSS JOIN messages m ON m.id = e.id
                            WHERE e.leaf = f.key
                                AND m.id >= iif(
                                    measured.section = 'raw', measured.loop << 32, measured.first_id
                                )
                                AND m.id < iif(
                                    measured.section = 'raw', (measured.loop << 32) + measured.end_seq,
                                    measured.end_id
                                )
                        )
                        WHERE shown >= 0
                    )
                END AS size
            FROM measured
        )
        SELECT json_group_array(
            json_array(ordinal, loop, section, from_turn, to_turn, messages, tokens)
        )
        FROM (
            SELECT row_number() OVER (ORDER BY depth, place) - 1 AS ordinal, loop, section,
                coalesce(from_turn, size ->> 2) AS from_turn,
                coalesce(to_turn, size ->> 3) AS to_turn,
                size ->> 0 AS messages, size ->> 1 AS tokens
            FROM edited
            WHERE size ->> 0 > 0
        )
    )) part
    CROSS JOIN loops l ON l.key = part.value ->> 1;

-- Tokens that providers reported, by loop and model. total is the total of the provider, or else the sum of
-- input, output and both caches.
CREATE VIEW v_usage AS
SELECT
    s.session_id, l.loop_id,
    json_extract(m.json, '$.model') AS model,
    CAST(max(0, min(total(json_extract(m.json, '$.usage.input')), 1e12)) AS INTEGER) AS input,
    CAST(max(0, min(total(json_extract(m.json, '$.usage.output')), 1e12)) AS INTEGER) AS output,
    CAST(max(0, min(total(json_extract(m.json, '$.usage.cache_read')), 1e12)) AS INTEGER) AS cache_read,
    CAST(max(0, min(total(json_extract(m.json, '$.usage.cache_write')), 1e12)) AS INTEGER) AS cache_write,
    CAST(max(0, min(total(json_extract(m.json, '$.usage.reasoning')), 1e12)) AS INTEGER) AS reasoning,
    CAST(max(0, min(total(coalesce(
        json_extract(m.json, '$.usage.total_tokens'),
        coalesce(json_extract(m.json, '$.usage.input'), 0)
            + coalesce(json_extract(m.json, '$.usage.output'), 0)
            + coalesce(json_extract(m.json, '$.usage.cache_read'), 0)
            + coalesce(json_extract(m.json, '$.usage.cache_write'), 0)
    )), 1e12)) AS INTEGER) AS total
FROM sessions s
    JOIN loops l ON l.session = s.key
    CROSS JOIN message_content m ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32
WHERE m.role = 1 AND json_type(m.json, '$.usage') = 'object'
GROUP BY s.session_id, l.loop_id, model;

-- Manifests: the messages that a model received. sha256 is the hash of the digests of the messages, in order.
-- parts is a JSON array in order: {loop, section, generation, from_seq, to_seq, messages}. A part without
-- sequences consists of the messages of the block of that generation.
CREATE VIEW v_manifests AS
SELECT
    s.session_id, m.manifest_id, l.loop_id, m.recorded_at, m.older_loops, m.messages, m.tokens,
    m.bytes, m.counter, lower(hex(m.sha256)) AS sha256,
    (
        SELECT json_group_array(json_object(
            'loop', (SELECT n.loop_id FROM loops n WHERE n.key = part.value ->> 0),
            'section', part.value ->> 1,
            'generation', (SELECT b.generation FROM blocks b WHERE b.key = part.value ->> 2),
            'from_seq', part.value ->> 3,
            'to_seq', part.value ->> 4,
            'messages', part.value ->> 5
        ))
        FROM json_each(CASE WHEN json_valid(m.parts) THEN m.parts ELSE '[]' END) part
        WHERE part.type = 'array'
    ) AS parts
FROM sessions s JOIN manifests m ON m.session = s.key CROSS JOIN loops l ON l.key = m.loop;

-- Internal. Sessions with the session, loop and call that started them, and with the usage that providers
-- reported.
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

-- Sessions as a tree: the session, loop and tool call that started each session, and the usage that providers
-- reported for it. Columns that begin with tree_ include all sessions below it. cost is the sum of usage.cost
-- (or usage.cost.total), in the currency of the provider.
CREATE VIEW v_session_tree AS
SELECT
    s.session_id, s.parent_session_id, s.parent_loop_id, s.tool_call_id,
    CAST(max(0, min(own.value ->> 0, 1e12)) AS INTEGER) AS input,
    CAST(max(0, min(own.value ->> 1, 1e12)) AS INTEGER) AS output,
    CAST(max(0, min(own.value ->> 2, 1e12)) AS INTEGER) AS total,
    own.value ->> 3 AS cost,
    tree.value ->> 0 AS tree_sessions,
    CAST(max(0, min(tree.value ->> 1, 1e12)) AS INTEGER) AS tree_input,
    CAST(max(0, min(tree.value ->> 2, 1e12)) AS INTEGER) AS tree_output,
    CAST(max(0, min(tree.value ->> 3, 1e12)) AS INTEGER) AS tree_total,
    tree.value ->> 4 AS tree_cost
FROM session_spend s
-- SQLite computes a row of json_each() once, and a column of a view each time a query names the column.
CROSS JOIN json_each(json_array(json(s.spend))) own
CROSS JOIN json_each((
    -- UNION removes sessions that were already found, so that a cycle ends.
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

-- The receipts of every erasure, redaction, pruning and archiving, including those of erased sessions.
-- closed_at is NULL while the operation is unfinished. messages and sources count the redacted messages and
-- the removed kept files. detail is JSON: {receipt, digest}.
CREATE VIEW v_receipts AS
SELECT
    coalesce(
        CASE WHEN json_valid(m.detail) THEN json_extract(m.detail, '$.receipt.session') END,
        (SELECT s.session_id FROM sessions s WHERE s.key = m.session)
    ) AS session_id,
    m.key AS receipt, m.kind, m.opened_at, m.closed_at,
    CASE WHEN json_valid(m.detail) THEN json_extract(m.detail, '$.receipt.reason') END AS reason,
    coalesce(CASE WHEN json_valid(m.detail)
        THEN json_array_length(m.detail, '$.receipt.messages') END, 0) AS messages,
    coalesce(CASE WHEN json_valid(m.detail)
        THEN json_array_length(m.detail, '$.receipt.sources') END, 0) AS sources,
    m.detail
FROM maintenance m;
