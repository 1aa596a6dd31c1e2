-- The schema of a loopstore database in PostgreSQL: tables, triggers, tenants, views.
--
-- `session`, the integer key of a session, is the first column of every primary key and foreign key, so that
-- the tables can be partitioned or distributed by it. The exceptions are session_names (found by public id),
-- sources (a file may contain many sessions) and store_meta. The key of a session contains the time of its
-- creation in milliseconds. The key of a loop, run, block, flip, manifest, blob, call or receipt is (session
-- << 23) | number, so that the key of a row identifies its session and no central sequence assigns keys.
-- Turns and messages are numbered within their loop, from 0. The number of a message is called its sequence.
-- Every row that belongs to a session names its tenant.
--
-- The statements that make and alter one table have no empty line between them: the statement that
-- distributes the table is inserted after them. All statements have forms that a distributed server accepts
-- too: functions that read tables are in PL/pgSQL, column lists contain joins instead of subqueries, and
-- triggers read no rows of other sessions.

-- The settings of the database, one value per row.
CREATE TABLE store_meta (
    -- token_counter, import_key or created_at. The names recount and scrub exist only while that work is
    -- unfinished.
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- One row per session: the history of one agent.
CREATE TABLE sessions (
    session        BIGINT PRIMARY KEY CHECK (session > 0 AND session < 1::BIGINT << 40),
    session_id     TEXT NOT NULL CHECK (session_id <> ''),
    agent_id       TEXT,
    title          TEXT,
    -- Both times are ISO-8601 text.
    created_at     TEXT,
    last_active_at TEXT,
    -- The key of the loop that was last created or appended to.
    current_loop   BIGINT,
    -- A counter that every committed append, loop start, run, undo and redo raises. A read as of an earlier
    -- point compares ticks, never times.
    tick           BIGINT NOT NULL DEFAULT 0,
    -- The format that the session was imported from.
    source         TEXT,
    -- The folder that the agent worked in.
    project        TEXT,
    -- The public id of the session that started this session.
    started_by     TEXT,
    -- The session's JSON without its loops.
    meta           TEXT NOT NULL,
    -- The number and the chain digest of the newest audit row of the session.
    audit_seq      BIGINT NOT NULL DEFAULT 0,
    audit          BYTEA NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    -- The number of rows in edits, whatever their runs.
    edits          BIGINT NOT NULL DEFAULT 0,
    tenant         TEXT NOT NULL DEFAULT ''
);
CREATE INDEX sessions_started_by ON sessions (started_by) WHERE started_by IS NOT NULL;
CREATE INDEX sessions_active ON sessions (last_active_at COLLATE "C" DESC NULLS LAST, session DESC);

-- Public ids of sessions. Each id is unique, which a table that is distributed by session cannot enforce.
CREATE TABLE session_names (
    session_id TEXT NOT NULL,
    session    BIGINT NOT NULL,
    -- True while the session is being erased. Only then can its name be deleted. The receipt itself is stored
    -- with the session, possibly on another node.
    leaves     BOOLEAN NOT NULL DEFAULT FALSE,
    tenant     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session_id, tenant)
);

-- The log of everything that was done to a session, in order, as a chain of digests. Each session has one
-- chain, and all receipts of a tenant share one chain. A deleted row is therefore detectable, including the
-- newest row. A run, flip, pin, hide, manifest or import is written only right after its row here.
CREATE TABLE audit (
    -- The key of the session. 0 is the chain of the receipts, which outlive their sessions.
    session   BIGINT NOT NULL,
    -- The number of the row in its chain, from 1 without gaps.
    audit_seq BIGINT NOT NULL,
    kind      TEXT NOT NULL
        CHECK (kind IN ('run', 'flip', 'pin', 'hide', 'manifest', 'import', 'receipt')),
    -- The digest of the recorded row.
    digest    BYTEA NOT NULL,
    -- The digest that the recorded row had before: when it was begun, or before it was redacted.
    was       BYTEA,
    -- SHA-256 of the previous chain digest and this row.
    chain     BYTEA NOT NULL,
    tenant    TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, audit_seq, tenant)
);

-- The newest row of the audit chain of a tenant's receipts. The newest row of a session's chain is in
-- sessions.
CREATE TABLE receipt_chain (
    session   BIGINT NOT NULL CHECK (session = 0),
    audit_seq BIGINT NOT NULL,
    audit     BYTEA NOT NULL,
    tenant    TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, tenant)
);

-- The heads: the last rows of all audit chains at one time. The text that a user keeps is the digest of the
-- content.
CREATE TABLE heads (
    -- SHA-256 of the content before compression.
    sha256   BYTEA NOT NULL,
    taken_at TEXT NOT NULL,
    -- JSON, compressed as raw DEFLATE: the number and the chain digest of the last row of each audit chain,
    -- and of the last final message of each loop.
    content  BYTEA NOT NULL,
    tenant   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (sha256, tenant)
);

-- One row per loop: one user prompt and everything until the agent stops. Loops form trees through their
-- parents.
CREATE TABLE loops (
    session         BIGINT NOT NULL REFERENCES sessions,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    loop_id         TEXT NOT NULL CHECK (loop_id <> ''),
    -- The key of the parent. A parent is always stored before its children, so that no cycle can exist.
    parent          BIGINT CHECK (parent < key),
    -- The id of the parent in the source. The parent may belong to another session.
    parent_loop_id  TEXT,
    -- The last turn of the parent that belongs to this chain. NULL if no turn of the parent does.
    parent_turn     BIGINT,
    -- The last sequence of the parent that belongs to this chain, if the chain leaves the parent within
    -- parent_turn. NULL if all of parent_turn belongs to the chain.
    parent_seq      BIGINT CHECK (parent_seq IS NULL OR parent_turn IS NOT NULL),
    kind            TEXT NOT NULL,
    status          TEXT NOT NULL,
    started_at      TEXT,
    ended_at        TEXT,
    -- The session's tick when the loop was created.
    tick            BIGINT NOT NULL,
    -- The sequence of the next message, and so the number of messages of the loop, extensions included.
    next_seq        BIGINT NOT NULL DEFAULT 0,
    -- Messages before this sequence belong to final turns and can never be replaced.
    sealed_seq      BIGINT NOT NULL DEFAULT 0,
    -- True if the loop has messages that are not in the search index yet.
    unindexed       BOOLEAN NOT NULL DEFAULT FALSE,
    turns           BIGINT NOT NULL DEFAULT 0,
    -- The number of complete turns.
    complete        BIGINT NOT NULL DEFAULT 0,
    messages        BIGINT NOT NULL DEFAULT 0,
    tokens          BIGINT NOT NULL DEFAULT 0,
    bytes           BIGINT NOT NULL DEFAULT 0,
    -- Tokens of the extensions of kind system: the default size of the system prompt.
    system_tokens   BIGINT NOT NULL DEFAULT 0,
    -- The newest generation of a block of this loop.
    generation      BIGINT NOT NULL DEFAULT 0,
    -- The sequence of the last answer whose provider reported token counts, and the number of tokens that its
    -- call read and wrote. NULL if there is no such answer, or if a run, an undo or a redo came after it.
    reported_seq    bigint,
    reported_tokens bigint,
    -- The turn index of the last turn, as the source counts turns.
    last_turn_index BIGINT,
    -- The open calls as JSON: {"call id": turn}. NULL if there are none.
    open_calls      TEXT,
    -- The chain digest of the last message.
    chain           BYTEA NOT NULL,
    -- The loop's JSON without messages, turns and events.
    meta            TEXT NOT NULL,
    -- Recorded turns and events as JSON, with the sequences of stored messages instead of the messages.
    history         TEXT,
    -- The number of rows in edits whose messages belong to the loop, whatever their runs. A read of a loop
    -- without edits looks for none.
    edits           BIGINT NOT NULL DEFAULT 0,
    tenant          TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key),
    UNIQUE (session, loop_id),
    FOREIGN KEY (session, parent) REFERENCES loops (session, key)
);
CREATE INDEX loops_parent ON loops (session, parent) WHERE parent IS NOT NULL;
CREATE INDEX loops_at_work ON loops (session, key) WHERE status IN ('Pending', 'Running');
-- Finds loops that a search must read or add to the index first.
CREATE INDEX loops_unindexed ON loops (session, key) WHERE unindexed;

CREATE INDEX loops_with_system_messages ON loops (session, key) WHERE system_tokens > 0;
-- Finds loops that continue a loop of another session.
CREATE INDEX loops_elsewhere ON loops (parent_loop_id)
    WHERE parent IS NULL AND parent_loop_id IS NOT NULL;

-- One row per turn: a group of adjacent messages that a plan keeps or compacts together. The totals are
-- cumulative, so that the size of a range of turns is a subtraction and a plan reads no message.
CREATE TABLE turns (
    session      BIGINT NOT NULL,
    loop         BIGINT NOT NULL,
    turn         BIGINT NOT NULL,
    first_seq    BIGINT NOT NULL,
    -- Totals of the loop from its start to the end of this turn, without extensions.
    messages     BIGINT NOT NULL,
    prompts      BIGINT NOT NULL,
    tokens       BIGINT NOT NULL,
    bytes        BIGINT NOT NULL,
    turn_index   BIGINT,
    -- True if the model answered.
    answered     BOOLEAN NOT NULL,
    -- Other turns with calls that this turn answers: [[loop, turn], …]. NULL if there are none.
    answers      TEXT,
    -- The session's tick at the last append to this turn.
    tick         BIGINT NOT NULL,
    -- The times of the first and the last message, in milliseconds since the epoch.
    started_at   BIGINT,
    ended_at     BIGINT,
    tenant       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop, turn),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
-- Nearly all calls are answered in their own turn, so that this index has few rows.
CREATE INDEX turns_answers ON turns (session, loop, turn) WHERE answers IS NOT NULL;

-- The original messages, one per row.
CREATE TABLE messages (
    session    BIGINT NOT NULL,
    loop       BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    -- The number of the turn. NULL for an extension before the first turn.
    turn       BIGINT,
    -- 0 user, 1 assistant, 2 tool result, 3 extension
    role       BIGINT NOT NULL CHECK (role BETWEEN 0 AND 3),
    -- The author of the words: 0 human, 1 agent, 2 harness
    author     BIGINT NOT NULL CHECK (author BETWEEN 0 AND 2),
    tick       BIGINT NOT NULL,
    tokens     BIGINT NOT NULL,
    -- The size of the message's JSON in bytes.
    bytes      BIGINT NOT NULL,
    -- The number of lines of the longest text of a tool result.
    lines      BIGINT,
    -- Milliseconds since the epoch.
    created_at BIGINT,
    -- The content block whose text is in body.
    body_block BIGINT,
    -- The digest of the record that the message was imported from, keyed with import_key.
    origin     BYTEA,
    salt       BYTEA,
    -- digest is SHA-256 of the salt and the stored bytes. chain links the digests of all messages of the loop
    -- up to this one.
    digest     BYTEA NOT NULL,
    chain      BYTEA NOT NULL,
    -- The message's JSON, in which the largest text is empty. NULL if the message was redacted or archived.
    head       TEXT,
    body       TEXT,
    -- True if body contains U+0000, which PostgreSQL cannot store. Then body contains U+0001 and '0' instead
    -- of U+0000, and U+0001 and '1' instead of U+0001.
    escaped    BOOLEAN NOT NULL DEFAULT FALSE,
    tenant     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop, seq),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- Finds the prompts of sessions and loops, which lists show as titles.
CREATE INDEX messages_prompts ON messages (session, author, loop, seq) WHERE role = 0 AND author < 2;

-- Images and other binary content. The same content is stored only once per session. The JSON of a message
-- refers to the content by its SHA-256.
CREATE TABLE blobs (
    session BIGINT NOT NULL REFERENCES sessions,
    key     BIGINT NOT NULL CHECK (key >> 23 = session),
    sha256  BYTEA NOT NULL,
    bytes   BIGINT NOT NULL,
    data    BYTEA NOT NULL,
    tenant  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key),
    UNIQUE (session, sha256)
);
-- The data of blobs is already compressed.
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX blobs_sha256 ON blobs (sha256);

-- The messages that show a blob. owner and number are the loop and the sequence of a message. If in_block is
-- true, the reference belongs to the messages of a block.
CREATE TABLE blob_refs (
    session  BIGINT NOT NULL,
    owner    BIGINT NOT NULL,
    number   BIGINT NOT NULL,
    in_block BOOLEAN NOT NULL,
    blob     BIGINT NOT NULL,
    tenant   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, owner, number, in_block, blob),
    FOREIGN KEY (session, blob) REFERENCES blobs (session, key)
);
CREATE INDEX blob_refs_blob ON blob_refs (session, blob);

-- One row per compaction run. Attempts that failed, gained nothing or lost a race have a row too.
CREATE TABLE runs (
    session         BIGINT NOT NULL REFERENCES sessions,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    run_id          TEXT NOT NULL CHECK (run_id <> '' AND strpos(run_id, ':') = 0),
    -- The leaf that the run was made on, and the number of its complete turns in the plan.
    loop            BIGINT NOT NULL,
    turns           BIGINT NOT NULL,
    tick            BIGINT NOT NULL,
    trigger         TEXT NOT NULL,
    strategy        TEXT NOT NULL,
    round           BIGINT NOT NULL,
    outcome         TEXT NOT NULL
        CHECK (outcome IN (
            'running', 'committed', 'no_gain', 'vetoed', 'failed', 'conflict', 'interrupted'
        )),
    fallback        TEXT,
    error           TEXT,
    scope           TEXT NOT NULL,
    older_loops     TEXT NOT NULL CHECK (older_loops IN ('skip', 'rollup')),
    counter         TEXT NOT NULL,
    tokens_before   BIGINT NOT NULL,
    tokens_after    BIGINT NOT NULL,
    bytes_before    BIGINT NOT NULL,
    bytes_after     BIGINT NOT NULL,
    messages_before BIGINT NOT NULL,
    messages_after  BIGINT NOT NULL,
    started_at      TEXT NOT NULL,
    duration_ms     BIGINT NOT NULL,
    -- The whole requested configuration, as JSON.
    config          TEXT NOT NULL,
    -- The tokens that summarisers reported, as JSON.
    usage           TEXT,
    -- The digest of layouts, inputs, strategy and text-shaping configuration.
    plan            BYTEA NOT NULL,
    -- The record that another tool made of its own compaction.
    record          TEXT,
    -- The events compactionStarted and compactionEnded, as JSON.
    events          TEXT,
    -- The configuration that was reached, as JSON, if it differs from the requested one.
    reached         TEXT,
    -- SHA-256 of this row and of the digests of its blocks. NULL while the run is open. The rows of a closed
    -- run never change. The rows of an open run have no effect on a context.
    digest          BYTEA,
    -- The edits of the run, after its key, position and id, in the form that contexts are built from: derived from
    -- the rows of edits and written with them. NULL without edits.
    edits           BYTEA,
    tenant          TEXT NOT NULL DEFAULT '',
    CHECK ((digest IS NULL) = (outcome = 'running')),
    PRIMARY KEY (session, key),
    UNIQUE (session, run_id),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX runs_loop ON runs (session, loop, tick);
CREATE INDEX runs_tick ON runs (session, tick, key);
-- Finds the newest runs that changed contexts.
CREATE INDEX runs_committed ON runs (session, tick) WHERE outcome = 'committed';
-- Finds runs that are still open.
CREATE INDEX runs_open ON runs (session, key) WHERE digest IS NULL;
-- Finds the runs with edits.
CREATE INDEX runs_edited ON runs (session, tick) WHERE edits IS NOT NULL AND outcome = 'committed';

-- One row per undo or redo of a run. The newest row that applies to a chain decides whether the run is live
-- there.
CREATE TABLE flips (
    session BIGINT NOT NULL REFERENCES sessions,
    key     BIGINT NOT NULL CHECK (key >> 23 = session),
    run     BIGINT NOT NULL,
    kind    TEXT NOT NULL CHECK (kind IN ('undo', 'redo')),
    -- The leaf at which the row was made, and the number of its complete turns at that time.
    loop    BIGINT NOT NULL,
    turns   BIGINT NOT NULL,
    tick    BIGINT NOT NULL,
    at      TEXT NOT NULL,
    reason  TEXT,
    digest  BYTEA NOT NULL,
    tenant  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key),
    FOREIGN KEY (session, run) REFERENCES runs (session, key),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX flips_run ON flips (session, run, tick);
CREATE INDEX flips_tick ON flips (session, tick);
CREATE INDEX flips_loop ON flips (session, loop, tick);

-- Pins and unpins of messages. Every later compaction keeps a pinned message word for word. The newest row
-- that applies to a chain decides whether the message is pinned there.
CREATE TABLE pins (
    session      BIGINT NOT NULL REFERENCES sessions,
    key          BIGINT NOT NULL CHECK (key >> 23 = session),
    kind         TEXT NOT NULL CHECK (kind IN ('pin', 'unpin')),
    -- The loop and the sequence of the message.
    message_loop BIGINT NOT NULL,
    seq          BIGINT NOT NULL CHECK (seq BETWEEN 0 AND 4294967295),
    -- The leaf at which the row was made, and the number of its complete turns at that time.
    loop         BIGINT NOT NULL,
    turns        BIGINT NOT NULL,
    tick         BIGINT NOT NULL,
    at           TEXT NOT NULL,
    digest       BYTEA NOT NULL,
    tenant       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key),
    FOREIGN KEY (session, message_loop) REFERENCES loops (session, key),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX pins_message ON pins (session, message_loop, seq, tick);
CREATE INDEX pins_loop ON pins (session, loop);

-- One row per hide or unhide of a session. A hidden session is in no list and no search. Each row gives the
-- session another id, so that its former id can be used again. The newest row of a session decides.
CREATE TABLE hides (
    session    BIGINT NOT NULL REFERENCES sessions,
    key        BIGINT NOT NULL CHECK (key >> 23 = session),
    kind       TEXT NOT NULL CHECK (kind IN ('hide', 'unhide')),
    -- The id of the session before this row.
    was        TEXT NOT NULL,
    -- The id of the session after this row.
    session_id TEXT NOT NULL CHECK (session_id <> ''),
    tick       BIGINT NOT NULL,
    at         TEXT NOT NULL,
    digest     BYTEA NOT NULL,
    tenant     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key)
);
CREATE INDEX hides_was ON hides (was);

-- One row per block. A run writes a block for one loop. The block keeps the first and the last turns of the
-- loop and shows its own messages instead of the turns between. Kept turns are read from the original
-- messages.
CREATE TABLE blocks (
    session         BIGINT NOT NULL REFERENCES sessions,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    loop            BIGINT NOT NULL,
    generation      BIGINT NOT NULL CHECK (generation > 0),
    run             BIGINT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN (
            'current', 'earlier', 'rollup', 'sealed:openai', 'sealed:anthropic'
        )),
    -- The rollup that this rollup extends.
    extends         BIGINT,
    -- The turn ranges of the sections, both ends inclusive. NULL if the block has no such section.
    first_start     BIGINT,
    first_end       BIGINT,
    compacted_start BIGINT,
    compacted_end   BIGINT,
    recent_start    BIGINT,
    recent_end      BIGINT,
    -- Messages before this sequence are covered by the block. Later messages are the tail.
    through         BIGINT NOT NULL,
    -- The tokens of the covered messages, and the sizes of the messages that the sections show instead.
    tokens_covered  BIGINT NOT NULL,
    tokens_block    BIGINT NOT NULL,
    bytes_block     BIGINT NOT NULL,
    messages_block  BIGINT NOT NULL,
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
    digest          BYTEA NOT NULL,
    tenant          TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key),
    UNIQUE (session, loop, generation),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key),
    FOREIGN KEY (session, run) REFERENCES runs (session, key),
    FOREIGN KEY (session, extends) REFERENCES blocks (session, key),
    -- The sections are consecutive and begin at turn 0.
    CHECK ((first_start IS NULL) = (first_end IS NULL)
        AND coalesce(first_start = 0 AND first_end >= 0, TRUE)),
    CHECK ((compacted_start IS NULL) = (compacted_end IS NULL)
        AND coalesce(compacted_start = coalesce(first_end + 1, 0)
            AND compacted_end >= compacted_start, TRUE)),
    CHECK ((recent_start IS NULL) = (recent_end IS NULL)
        AND coalesce(recent_start = coalesce(compacted_end + 1, first_end + 1, 0)
            AND recent_end >= recent_start, TRUE))
);
CREATE INDEX blocks_run ON blocks (session, run);
CREATE INDEX blocks_extends ON blocks (session, extends) WHERE extends IS NOT NULL;

-- The messages of blocks: messages that replace the compacted turns, and kept messages that were truncated.
CREATE TABLE block_messages (
    session    BIGINT NOT NULL,
    block      BIGINT NOT NULL,
    ordinal    BIGINT NOT NULL,
    -- 1 compacted, 2 recent
    section    BIGINT NOT NULL CHECK (section IN (1, 2)),
    -- The sequence of the original message that this message replaces or quotes.
    replaces   BIGINT,
    -- The loop of a pinned message that the compacted section quotes. The text is read from the original
    -- message.
    quotes     BIGINT,
    -- NULL if the original message is dropped.
    role       BIGINT CHECK (role BETWEEN 0 AND 3),
    tokens     BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    body_block BIGINT,
    salt       BYTEA,
    digest     BYTEA NOT NULL,
    head       TEXT,
    body       TEXT,
    -- True if body is escaped, as in messages.
    escaped    BOOLEAN NOT NULL DEFAULT FALSE,
    tenant     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, block, ordinal),
    FOREIGN KEY (session, block) REFERENCES blocks (session, key),
    FOREIGN KEY (session, quotes) REFERENCES loops (session, key)
);
CREATE INDEX block_messages_quotes ON block_messages (session, quotes) WHERE quotes IS NOT NULL;

-- The edits of runs: messages, or parts of a message, that contexts show in another form or not at all. A
-- message itself never changes. An edit applies where its run is live.
CREATE TABLE edits (
    session       BIGINT NOT NULL,
    run           BIGINT NOT NULL,
    ordinal       BIGINT NOT NULL,
    -- The loop and the sequences of the messages, both ends inclusive.
    loop          BIGINT NOT NULL,
    from_seq      BIGINT NOT NULL CHECK (from_seq BETWEEN 0 AND 4294967295),
    to_seq        BIGINT NOT NULL CHECK (to_seq BETWEEN from_seq AND 4294967295),
    -- The edited part of one message, from 0, and the number of its parts. NULL if messages are removed as a
    -- whole.
    part          BIGINT CHECK (part >= 0),
    parts         BIGINT CHECK (parts > part),
    action        TEXT NOT NULL CHECK (action IN ('removed', 'cleared', 'replaced')),
    -- What a context shows in place of the part.
    text          TEXT,
    -- True if text is escaped, as in messages.
    escaped       BOOLEAN NOT NULL DEFAULT FALSE,
    -- The size of the messages or the part as recorded, and the size of what is shown instead.
    tokens_before BIGINT NOT NULL CHECK (tokens_before >= 0),
    tokens_after  BIGINT NOT NULL CHECK (tokens_after >= 0),
    bytes_before  BIGINT NOT NULL CHECK (bytes_before >= 0),
    bytes_after   BIGINT NOT NULL CHECK (bytes_after >= 0),
    -- The number of messages that are removed as a whole.
    messages      BIGINT NOT NULL CHECK (messages >= 0),
    salt          BYTEA NOT NULL,
    -- SHA-256 of the salt and of this row without its tokens.
    digest        BYTEA NOT NULL,
    tenant        TEXT NOT NULL DEFAULT '',
    CHECK ((part IS NULL) = (parts IS NULL)),
    CHECK (part IS NULL OR from_seq = to_seq),
    CHECK (part IS NOT NULL OR action = 'removed'),
    CHECK ((text IS NULL) = (action = 'removed')),
    PRIMARY KEY (session, run, ordinal),
    FOREIGN KEY (session, run) REFERENCES runs (session, key),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX edits_loop ON edits (session, loop, from_seq);

-- The record of what a block did with each message that it covers, as ranges. The ranges of a block have no
-- gaps and no overlaps.
CREATE TABLE coverage (
    session     BIGINT NOT NULL,
    block       BIGINT NOT NULL,
    ordinal     BIGINT NOT NULL,
    loop        BIGINT NOT NULL,
    -- Both ends are inclusive. NULL for a loop without messages.
    from_seq    BIGINT,
    to_seq      BIGINT,
    from_turn   BIGINT,
    to_turn     BIGINT,
    disposition TEXT NOT NULL
        CHECK (disposition IN (
            'kept', 'truncated', 'summarised', 'dropped', 'rolled_up', 'sealed', 'removed'
        )),
    CHECK ((from_seq IS NULL) = (to_seq IS NULL)
        AND coalesce(from_seq BETWEEN 0 AND to_seq, TRUE)),
    CHECK ((from_turn IS NULL) = (to_turn IS NULL)
        AND coalesce(from_turn BETWEEN 0 AND to_turn, TRUE)),
    tenant      TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, block, ordinal),
    FOREIGN KEY (session, block) REFERENCES blocks (session, key),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- One row per manifest: the messages that a model received, as references and one hash. No message is copied.
-- The referenced content can be built again as of the recorded tick, and `verify` does so.
CREATE TABLE manifests (
    session     BIGINT NOT NULL REFERENCES sessions,
    key         BIGINT NOT NULL CHECK (key >> 23 = session),
    manifest_id TEXT NOT NULL CHECK (manifest_id <> ''),
    -- The leaf of the context.
    loop        BIGINT NOT NULL,
    -- The session's tick at that time. The context includes the effects of all changes with this tick or an
    -- earlier one.
    tick        BIGINT NOT NULL,
    recorded_at TEXT NOT NULL,
    -- The treatment of loops before the scope. With skip, the context begins with the first part.
    older_loops TEXT NOT NULL CHECK (older_loops IN ('skip', 'rollup')),
    -- The parts in order: [[loop, section, block, first sequence, last sequence, messages], …]. A part
    -- without sequences consists of the messages of its block.
    parts       TEXT NOT NULL,
    messages    BIGINT NOT NULL,
    tokens      BIGINT NOT NULL,
    bytes       BIGINT NOT NULL,
    -- The token counter.
    counter     TEXT NOT NULL,
    -- SHA-256 of the digests of the messages, in order.
    sha256      BYTEA NOT NULL,
    digest      BYTEA NOT NULL,
    tenant      TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key),
    UNIQUE (session, manifest_id),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- The origins of sessions: one row per file that added content to a session.
CREATE TABLE imports (
    session     BIGINT NOT NULL REFERENCES sessions,
    key         BIGINT NOT NULL CHECK (key >> 23 = session),
    format      TEXT NOT NULL,
    path        TEXT NOT NULL,
    file_name   TEXT NOT NULL,
    -- The key of the record in the file, for formats whose sessions have no id.
    record_key  TEXT,
    imported_at TEXT NOT NULL,
    digest      BYTEA NOT NULL,
    tenant      TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key)
);
CREATE INDEX imports_identity ON imports (format, file_name, record_key);

-- The receipts of every erasure, redaction, pruning and archiving. While a receipt is open, the triggers
-- allow changes to rows of its session. A receipt outlives an erased session, so that the table has no
-- foreign key.
CREATE TABLE maintenance (
    session   BIGINT NOT NULL,
    key       BIGINT NOT NULL CHECK (key >> 23 = session),
    kind      TEXT NOT NULL CHECK (kind IN ('erase', 'redact', 'prune', 'archive')),
    opened_at TEXT NOT NULL,
    closed_at TEXT,
    detail    TEXT NOT NULL,
    tenant    TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key)
);
CREATE INDEX maintenance_open ON maintenance (session) WHERE closed_at IS NULL;

-- The remainders of redacted messages. A redacted message keeps its digest and its place in the chain, and
-- loses its salt. Without the salt, a guess of the removed text cannot be tested. The remaining text has its
-- own salt and digest in this table.
CREATE TABLE redactions (
    session  BIGINT NOT NULL,
    -- The loop and the sequence of a message. If in_block is true, the block and the ordinal of a block
    -- message.
    owner    BIGINT NOT NULL,
    number   BIGINT NOT NULL,
    in_block BOOLEAN NOT NULL,
    -- The receipt of the last redaction that changed the message.
    receipt  BIGINT NOT NULL,
    -- SHA-256 of the salt and the stored bytes, as in messages.
    salt     BYTEA NOT NULL,
    digest   BYTEA NOT NULL,
    tenant   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, owner, number, in_block),
    FOREIGN KEY (session, receipt) REFERENCES maintenance (session, key)
);

-- The content of archived messages. A pack contains consecutive messages, compressed together. The rows in
-- messages keep their place, sizes, digest and chain, and their head and body are NULL. Packs can be written
-- and deleted only while a receipt of kind `archive` or of a removal is open.
CREATE TABLE packs (
    session  BIGINT NOT NULL,
    loop     BIGINT NOT NULL,
    -- The sequence of the first message.
    seq      BIGINT NOT NULL,
    -- The sequence of the last message. The pack contains all messages between.
    last_seq BIGINT NOT NULL,
    -- The size of the content before compression, in bytes.
    bytes    BIGINT NOT NULL,
    -- SHA-256 of the columns before except session, and of the content.
    digest   BYTEA NOT NULL,
    -- Heads and bodies, compressed with Brotli (RFC 7932).
    content  BYTEA NOT NULL,
    tenant   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop, seq),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
-- The content is already compressed.
ALTER TABLE packs ALTER COLUMN content SET STORAGE EXTERNAL;

-- The fields of archived messages that the views show, as JSON: a prompt as one line, the usage and the model
-- of an answer, the ids and names of its calls, and the id of the call that a result answers. All are derived
-- from the message.
CREATE TABLE packed_heads (
    session BIGINT NOT NULL,
    loop    BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    head    TEXT NOT NULL,
    tenant  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop, seq),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- The decisions about a session, one row per session.
CREATE TABLE session_flags (
    session   BIGINT PRIMARY KEY REFERENCES sessions,
    -- The time since which prune skips the session, as ISO-8601 text. NULL if prune may remove the session.
    protected_at TEXT,
    -- True if imports into the session are redacted before they are stored. The flag can never be cleared.
    redacts   BOOLEAN NOT NULL DEFAULT FALSE,
    tenant    TEXT NOT NULL DEFAULT ''
);

-- The exclusive rights to write to a loop, one row per loop. A row remains after its lease is released, so
-- that a token is never assigned twice.
CREATE TABLE leases (
    session    BIGINT NOT NULL,
    loop       BIGINT NOT NULL,
    owner      TEXT NOT NULL,
    -- Raised each time the lease is taken or revoked.
    token      BIGINT NOT NULL CHECK (token > 0),
    -- The duration of the lease in milliseconds.
    ttl        BIGINT NOT NULL CHECK (ttl > 0),
    -- Milliseconds since the epoch, by the clock of the process that wrote them.
    renewed_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    -- True if the holder released the lease, or if it was revoked.
    released   BOOLEAN NOT NULL,
    tenant     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- Tool calls, written before the tool runs. After a crash they show which calls may have had an effect.
CREATE TABLE started_calls (
    session         BIGINT NOT NULL,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    loop            BIGINT NOT NULL,
    call_id         TEXT NOT NULL,
    -- The number of the call among the calls of the loop with the same call id, from 0. Some models number
    -- their calls anew in each turn.
    nth             BIGINT NOT NULL,
    tool_name       TEXT NOT NULL,
    -- The arguments as JSON. NULL after the result is stored, because the message of the call contains them.
    arguments       TEXT,
    idempotency_key TEXT NOT NULL,
    -- The index of the turn in the source.
    turn_index      BIGINT,
    -- The time of the first start, as ISO-8601 text.
    started_at      TEXT NOT NULL,
    -- The number of starts.
    attempts        BIGINT NOT NULL,
    -- The time of the result, as ISO-8601 text. NULL if there is no result.
    finished_at     TEXT,
    tenant          TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, key),
    UNIQUE (session, loop, call_id, nth),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX started_calls_open ON started_calls (session, key) WHERE finished_at IS NULL;

-- The keys that callers gave their appends, with the position of the messages of each append. An append with
-- a key that is already stored appends nothing.
CREATE TABLE append_keys (
    session    BIGINT NOT NULL REFERENCES sessions,
    -- Keys are listed in the order of their bytes.
    name       TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    -- The loop of the last message, and the sequences and turns of the append in that loop. The ends are
    -- exclusive.
    loop       BIGINT NOT NULL,
    first_seq  BIGINT NOT NULL,
    end_seq    BIGINT NOT NULL,
    first_turn BIGINT NOT NULL,
    end_turn   BIGINT NOT NULL,
    -- The tokens of all messages of the append.
    tokens     BIGINT NOT NULL,
    tenant     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, name)
);

-- Turns and events of an unfinished loop as JSON, with the sequences of stored messages instead of the
-- messages. When the loop ends, its notes are moved to loops.history.
CREATE TABLE notes (
    session BIGINT NOT NULL,
    loop    BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    -- 0 event, 1 turn
    kind    BIGINT NOT NULL CHECK (kind IN (0, 1)),
    note    TEXT NOT NULL,
    tenant  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop, ordinal),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- The files that sessions were imported from, byte for byte. A file may contain many sessions, so that the
-- rows of these tables belong to a file and not to a session. `key` contains the time of its creation in
-- milliseconds.
CREATE TABLE sources (
    key     BIGINT PRIMARY KEY,
    format  TEXT NOT NULL,
    -- The full path of the file.
    path    TEXT NOT NULL,
    bytes   BIGINT NOT NULL,
    -- SHA-256 of the SHA-256 values of the parts, in order.
    digest  BYTEA NOT NULL,
    -- The time of the last import that added content of the file.
    kept_at TEXT NOT NULL,
    tenant  TEXT NOT NULL DEFAULT ''
);

-- The sessions that have content from each file.
CREATE TABLE source_sessions (
    session BIGINT NOT NULL,
    source  BIGINT NOT NULL,
    tenant  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, source)
);
CREATE INDEX source_sessions_source ON source_sessions (source);

-- The content of the kept files.
CREATE TABLE source_pieces (
    source BIGINT NOT NULL REFERENCES sources,
    -- SHA-256 and number of the bytes before compression.
    sha256 BYTEA NOT NULL,
    bytes  BIGINT NOT NULL,
    -- The bytes, compressed as raw DEFLATE.
    data   BYTEA NOT NULL,
    tenant TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (source, sha256)
);
ALTER TABLE source_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX source_pieces_sha256 ON source_pieces (sha256);

-- The pieces of each file.
CREATE TABLE source_parts (
    source BIGINT NOT NULL,
    number BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    tenant TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (source, number),
    FOREIGN KEY (source, sha256) REFERENCES source_pieces
);
CREATE INDEX source_parts_sha256 ON source_parts (source, sha256);

-- The index of `loopstore search`. The index is derived from the messages, and can be deleted and rebuilt at
-- any time. An append never writes the index. loopstore itself splits text into words.
CREATE TABLE message_words (
    session BIGINT NOT NULL,
    loop    BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    -- The words in order, with a space before and after each. Phrases are searched in this text.
    words   TEXT NOT NULL,
    -- The same words, each once. The index on this column finds the rows that may contain a phrase.
    lexemes TSVECTOR NOT NULL,
    -- The tools that the message calls or contains results of.
    tools   TEXT[] NOT NULL,
    tenant  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop, seq)
);
CREATE INDEX message_words_lexemes ON message_words USING gin (lexemes);

-- The indexed part of each loop.
CREATE TABLE indexed_loops (
    session     BIGINT NOT NULL,
    loop        BIGINT NOT NULL,
    -- Messages before this sequence are in the index.
    indexed_seq BIGINT NOT NULL,
    tenant      TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session, loop)
);

-- The version of the index, in one row per tenant.
CREATE TABLE index_state (
    key     BIGINT NOT NULL CHECK (key = 1),
    -- The version of the rule that splits text into words.
    version BIGINT NOT NULL,
    tenant  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (key, tenant)
);

-- ------------------------------------------------------------------------------------------------
-- Original messages are immutable. An insert over a stored row is an update or fails on the primary key, so
-- that the triggers check only updates and deletes. The functions set their own search path, so that a
-- temporary table of a caller cannot replace `maintenance`.

CREATE FUNCTION loopstore_is_open(which BIGINT) RETURNS BOOLEAN
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM maintenance WHERE session = which AND closed_at IS NULL);
END
$$;

-- Allows a change or a deletion of a row only while a receipt of its session is open.
CREATE FUNCTION loopstore_only_with_receipt() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_is_open(OLD.session) THEN
        RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION loopstore_never() RETURNS TRIGGER
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END
$$;

-- True if the row at a sequence of a loop can be deleted: the sequence is not final, or a receipt is open.
CREATE FUNCTION loopstore_may_go(which BIGINT, loop_key BIGINT, seq BIGINT) RETURNS BOOLEAN
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM loops l WHERE l.session = which AND l.key = loop_key AND l.sealed_seq <= seq
    ) OR loopstore_is_open(which);
END
$$;

-- LOOP is a keyword of PL/pgSQL, so that the column name must be quoted.
CREATE FUNCTION loopstore_message_goes() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_may_go(OLD.session, OLD."loop", OLD.seq) THEN
        RAISE EXCEPTION 'final messages cannot be deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION loopstore_turn_goes() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_may_go(OLD.session, OLD."loop", OLD.first_seq) THEN
        RAISE EXCEPTION 'final turns cannot be deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;

-- Rows that belong to a message can be deleted with it. Rows that belong to a block can be deleted only while
-- a receipt is open.
CREATE FUNCTION loopstore_owned_goes() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF OLD.in_block AND NOT loopstore_is_open(OLD.session)
        OR NOT loopstore_may_go(OLD.session, OLD.owner, OLD.number)
    THEN
        RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;

-- Rejects every change except new counts of the sizes. A recount with another token counter changes sizes.
CREATE TRIGGER messages_no_update BEFORE UPDATE ON messages FOR EACH ROW
WHEN ((NEW.session, NEW.loop, NEW.seq, NEW.turn, NEW.role, NEW.author, NEW.tick, NEW.created_at,
        NEW.body_block, NEW.origin, NEW.salt, NEW.digest, NEW.chain, NEW.head, NEW.body, NEW.escaped)
    IS DISTINCT FROM (OLD.session, OLD.loop, OLD.seq, OLD.turn, OLD.role, OLD.author, OLD.tick,
        OLD.created_at, OLD.body_block, OLD.origin, OLD.salt, OLD.digest, OLD.chain, OLD.head, OLD.body, OLD.escaped))
EXECUTE FUNCTION loopstore_only_with_receipt('stored messages are immutable');
CREATE TRIGGER messages_no_delete BEFORE DELETE ON messages FOR EACH ROW
EXECUTE FUNCTION loopstore_message_goes();

CREATE TRIGGER turns_stay BEFORE UPDATE ON turns FOR EACH ROW
WHEN ((NEW.session, NEW.loop, NEW.turn, NEW.first_seq, NEW.turn_index)
    IS DISTINCT FROM (OLD.session, OLD.loop, OLD.turn, OLD.first_seq, OLD.turn_index))
EXECUTE FUNCTION loopstore_only_with_receipt('the positions of turns are immutable');
CREATE TRIGGER turns_no_delete BEFORE DELETE ON turns FOR EACH ROW
EXECUTE FUNCTION loopstore_turn_goes();

CREATE TRIGGER sessions_keep_their_clock BEFORE UPDATE ON sessions FOR EACH ROW
WHEN (NEW.session <> OLD.session OR NEW.tick < OLD.tick OR NEW.edits < OLD.edits)
EXECUTE FUNCTION loopstore_only_with_receipt('session ids are immutable, and session ticks cannot decrease');
-- Rejects another key, a lower tick and another session id. Only a hide or unhide changes the session id: the
-- newest row of the session in hides must contain both the old id and the new id.
CREATE FUNCTION loopstore_session_is_renamed() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_is_open(OLD.session) AND NOT EXISTS (
        SELECT 1 FROM hides h
        WHERE h.session = OLD.session AND h.was = OLD.session_id AND h.session_id = NEW.session_id
            AND h.key = (SELECT max(n.key) FROM hides n WHERE n.session = OLD.session)
    ) THEN
        RAISE EXCEPTION 'session ids are immutable, and session ticks cannot decrease'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER sessions_keep_their_id BEFORE UPDATE ON sessions FOR EACH ROW
WHEN (NEW.session_id <> OLD.session_id)
EXECUTE FUNCTION loopstore_session_is_renamed();
-- Rejects clearing redacts and replacing protected_at by another time. A session can be protected and
-- released again, and redaction of its imports can be switched on.
CREATE TRIGGER session_flags_stay BEFORE UPDATE ON session_flags FOR EACH ROW
WHEN (NEW.session <> OLD.session OR NEW.redacts < OLD.redacts OR NEW.protected_at <> OLD.protected_at)
EXECUTE FUNCTION loopstore_only_with_receipt('session flags cannot be cleared');
CREATE TRIGGER session_flags_no_delete BEFORE DELETE ON session_flags FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('session flags cannot be deleted');
CREATE TRIGGER sessions_no_delete BEFORE DELETE ON sessions FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('sessions cannot be deleted');

CREATE FUNCTION loopstore_session_audited() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.audit_seq <= OLD.audit_seq OR NOT EXISTS (
        SELECT 1 FROM audit a
        WHERE a.session = NEW.session AND a.audit_seq = NEW.audit_seq AND a.chain = NEW.audit
            AND a.tenant = NEW.tenant
    ) THEN
        RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER sessions_keep_their_audit BEFORE UPDATE ON sessions FOR EACH ROW
WHEN (NEW.audit_seq <> OLD.audit_seq OR NEW.audit <> OLD.audit)
EXECUTE FUNCTION loopstore_session_audited('audit chains cannot be shortened');
CREATE TRIGGER sessions_begin_unaudited BEFORE INSERT ON sessions FOR EACH ROW
WHEN (NEW.audit_seq <> 0 OR NEW.audit <> decode(repeat('00', 32), 'hex'))
EXECUTE FUNCTION loopstore_session_audited('audit chains must be empty when their session is created');
CREATE TRIGGER receipt_chain_follows BEFORE UPDATE ON receipt_chain FOR EACH ROW
EXECUTE FUNCTION loopstore_session_audited('receipt chains cannot be shortened');
CREATE TRIGGER receipt_chain_begins_empty BEFORE INSERT ON receipt_chain FOR EACH ROW
WHEN (NEW.audit_seq <> 0 OR NEW.audit <> decode(repeat('00', 32), 'hex'))
EXECUTE FUNCTION loopstore_session_audited('receipt chains must be empty when their database is created');
CREATE TRIGGER receipt_chain_no_delete BEFORE DELETE ON receipt_chain FOR EACH ROW
EXECUTE FUNCTION loopstore_never('receipt chains cannot be deleted');

CREATE FUNCTION loopstore_audit_follows() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    newest BIGINT;
BEGIN
    IF NEW.session = 0 THEN
        SELECT c.audit_seq INTO newest FROM receipt_chain c
        WHERE c.session = 0 AND c.tenant = NEW.tenant;
    ELSE
        SELECT s.audit_seq INTO newest FROM sessions s WHERE s.session = NEW.session;
    END IF;
    IF NEW.audit_seq IS DISTINCT FROM newest + 1 THEN
        RAISE EXCEPTION 'audit rows must be consecutive'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER audit_follows BEFORE INSERT ON audit FOR EACH ROW
EXECUTE FUNCTION loopstore_audit_follows();

CREATE FUNCTION loopstore_audit_is_newest() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.session = 0 THEN
        UPDATE receipt_chain SET audit_seq = NEW.audit_seq, audit = NEW.chain
        WHERE session = 0 AND tenant = NEW.tenant;
    ELSE
        UPDATE sessions SET audit_seq = NEW.audit_seq, audit = NEW.chain
        WHERE session = NEW.session;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER audit_is_newest AFTER INSERT ON audit FOR EACH ROW
EXECUTE FUNCTION loopstore_audit_is_newest();
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit FOR EACH ROW
EXECUTE FUNCTION loopstore_never('audit rows are immutable');
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('audit rows cannot be deleted');
CREATE TRIGGER heads_stay BEFORE UPDATE OR DELETE ON heads FOR EACH ROW
EXECUTE FUNCTION loopstore_never('message heads are immutable');

-- True if the newest row of a session's audit chain records this change.
CREATE FUNCTION loopstore_is_audited(which BIGINT, what TEXT, the_digest BYTEA) RETURNS BOOLEAN
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM sessions s
            JOIN audit a ON a.session = s.session AND a.audit_seq = s.audit_seq
        WHERE s.session = which AND a.kind = what AND a.digest = the_digest
    );
END
$$;

-- Rejects a row unless the newest row of the audit chain records it.
CREATE FUNCTION loopstore_audited() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_is_audited(NEW.session, TG_ARGV[0], NEW.digest) THEN
        RAISE EXCEPTION '% need a row in the audit chain', TG_ARGV[1]
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER session_names_no_update BEFORE UPDATE ON session_names FOR EACH ROW
WHEN ((NEW.session_id, NEW.session, NEW.tenant) IS DISTINCT FROM (OLD.session_id, OLD.session, OLD.tenant)
    OR NOT NEW.leaves)
EXECUTE FUNCTION loopstore_never('session ids cannot be reused');
CREATE TRIGGER session_names_no_delete BEFORE DELETE ON session_names FOR EACH ROW
WHEN (NOT OLD.leaves)
EXECUTE FUNCTION loopstore_never('sessions cannot be deleted');

CREATE TRIGGER loops_stay_sealed BEFORE UPDATE ON loops FOR EACH ROW
WHEN ((NEW.session, NEW.key, NEW.loop_id, NEW.parent, NEW.parent_turn, NEW.parent_seq, NEW.tick)
        IS DISTINCT FROM (OLD.session, OLD.key, OLD.loop_id, OLD.parent, OLD.parent_turn, OLD.parent_seq,
            OLD.tick)
    OR NEW.sealed_seq < OLD.sealed_seq OR NEW.edits < OLD.edits)
EXECUTE FUNCTION loopstore_only_with_receipt('the parent and the final turns of a loop are immutable');
CREATE TRIGGER loops_no_delete BEFORE DELETE ON loops FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('loops cannot be deleted');

CREATE TRIGGER blobs_no_update BEFORE UPDATE ON blobs FOR EACH ROW
EXECUTE FUNCTION loopstore_never('blobs are immutable');
CREATE TRIGGER blobs_no_delete BEFORE DELETE ON blobs FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('blobs cannot be deleted');
CREATE TRIGGER blob_refs_no_update BEFORE UPDATE ON blob_refs FOR EACH ROW
EXECUTE FUNCTION loopstore_never('blob references are immutable');
CREATE TRIGGER blob_refs_no_delete BEFORE DELETE ON blob_refs FOR EACH ROW
EXECUTE FUNCTION loopstore_owned_goes('blob references cannot be deleted');

CREATE TRIGGER runs_begin_open BEFORE INSERT ON runs FOR EACH ROW
WHEN (NEW.digest IS NOT NULL)
EXECUTE FUNCTION loopstore_never('runs must be open when they are written');
-- Rejects every change except closing the run. Only the packed edits of an open run can be written, and those of a
-- closed run while a recount with another token counter changes the sizes of edits.
CREATE FUNCTION loopstore_run_stays() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    same RECORD := NEW;
BEGIN
    same.edits := OLD.edits;
    IF NOT loopstore_is_open(OLD.session) AND (
        same IS DISTINCT FROM OLD
        OR OLD.digest IS NOT NULL AND NOT EXISTS (SELECT 1 FROM store_meta WHERE name = 'recount')
    ) THEN
        RAISE EXCEPTION 'runs are immutable' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER runs_no_update BEFORE UPDATE ON runs FOR EACH ROW
WHEN (OLD.digest IS NOT NULL OR NEW.digest IS NULL
    OR (NEW.session, NEW.key, NEW.run_id, NEW.loop, NEW.turns)
        IS DISTINCT FROM (OLD.session, OLD.key, OLD.run_id, OLD.loop, OLD.turns))
EXECUTE FUNCTION loopstore_run_stays();
CREATE TRIGGER runs_audited BEFORE UPDATE ON runs FOR EACH ROW
WHEN (NEW.digest IS DISTINCT FROM OLD.digest)
EXECUTE FUNCTION loopstore_audited('run', 'closed runs');
-- Rejects closing a run if the coverage of one of its blocks does not end where the block ends. The insert of
-- each row has already checked that the ranges are consecutive.
CREATE FUNCTION loopstore_run_is_whole() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM blocks b
        WHERE b.session = OLD.session AND b.run = OLD.key AND b.through <> coalesce((
            SELECT c.to_seq + 1 FROM coverage c
            WHERE c.session = OLD.session AND c.block = b.key AND c.loop = b.loop
            ORDER BY c.ordinal DESC LIMIT 1
        ), 0)
    ) THEN
        RAISE EXCEPTION 'coverage must end where its block ends'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER runs_close_whole BEFORE UPDATE ON runs FOR EACH ROW
WHEN (OLD.digest IS NULL)
EXECUTE FUNCTION loopstore_run_is_whole();
CREATE TRIGGER runs_no_delete BEFORE DELETE ON runs FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('runs cannot be deleted');
CREATE TRIGGER flips_stay BEFORE UPDATE OR DELETE ON flips FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('undos and redos are immutable');
CREATE TRIGGER flips_audited BEFORE INSERT ON flips FOR EACH ROW
EXECUTE FUNCTION loopstore_audited('flip', 'undos and redos');

CREATE TRIGGER pins_stay BEFORE UPDATE OR DELETE ON pins FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('pins are immutable');
CREATE TRIGGER pins_audited BEFORE INSERT ON pins FOR EACH ROW
EXECUTE FUNCTION loopstore_audited('pin', 'pins');

CREATE TRIGGER hides_stay BEFORE UPDATE OR DELETE ON hides FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('hides are immutable');
CREATE TRIGGER hides_audited BEFORE INSERT ON hides FOR EACH ROW
EXECUTE FUNCTION loopstore_audited('hide', 'hides');

-- Rejects blocks, and rows that belong to blocks, unless their run is open.
CREATE FUNCTION loopstore_run_is_open() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    fits BOOLEAN;
BEGIN
    IF TG_ARGV[0] = 'block' THEN
        SELECT r.digest IS NULL INTO fits FROM runs r
        WHERE r.session = NEW.session AND r.key = NEW.run;
    ELSE
        SELECT r.digest IS NULL INTO fits
        FROM blocks b JOIN runs r ON r.session = b.session AND r.key = b.run
        WHERE b.session = NEW.session AND b.key = NEW.block;
    END IF;
    IF fits IS NOT TRUE THEN
        RAISE EXCEPTION 'the run is closed: it takes no more blocks or messages'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER blocks_of_open_run BEFORE INSERT ON blocks FOR EACH ROW
EXECUTE FUNCTION loopstore_run_is_open('block');
CREATE TRIGGER block_messages_of_open_run BEFORE INSERT ON block_messages FOR EACH ROW
EXECUTE FUNCTION loopstore_run_is_open('message');
CREATE TRIGGER edits_of_open_run BEFORE INSERT ON edits FOR EACH ROW
EXECUTE FUNCTION loopstore_run_is_open('block');
-- Rejects every change except new token counts, which a recount with another token counter writes.
CREATE TRIGGER edits_no_update BEFORE UPDATE ON edits FOR EACH ROW
WHEN ((NEW.session, NEW.run, NEW.ordinal, NEW.loop, NEW.from_seq, NEW.to_seq, NEW.part, NEW.parts,
        NEW.action, NEW.text, NEW.escaped, NEW.bytes_before, NEW.bytes_after, NEW.messages, NEW.salt,
        NEW.digest)
    IS DISTINCT FROM (OLD.session, OLD.run, OLD.ordinal, OLD.loop, OLD.from_seq, OLD.to_seq, OLD.part,
        OLD.parts, OLD.action, OLD.text, OLD.escaped, OLD.bytes_before, OLD.bytes_after, OLD.messages,
        OLD.salt, OLD.digest))
EXECUTE FUNCTION loopstore_only_with_receipt('edits are immutable');
CREATE TRIGGER edits_no_delete BEFORE DELETE ON edits FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('edits cannot be deleted');

-- Rejects a row that does not fit. Rows of earlier loops must come first. The ranges of the block's own loop
-- must be consecutive, and each disposition must be one that the section of the turns allows.
CREATE FUNCTION loopstore_coverage_fits() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM blocks b JOIN runs r ON r.session = b.session AND r.key = b.run
            LEFT JOIN coverage p ON p.session = b.session AND p.block = b.key
                AND p.ordinal = NEW.ordinal - 1
        WHERE b.session = NEW.session AND b.key = NEW.block AND r.digest IS NULL
            AND (p.ordinal IS NOT NULL OR NEW.ordinal = 0)
            AND CASE
                WHEN NEW."loop" <> b."loop" THEN (b.kind = 'rollup' OR b.kind LIKE 'sealed:%')
                    AND p.loop IS DISTINCT FROM b.loop
                    AND ((NEW.disposition = 'removed' AND EXISTS (
                        SELECT 1 FROM edits e
                        WHERE e.session = NEW.session AND e.loop = NEW.loop AND e.action = 'removed'
                            AND e.from_seq <= NEW.to_seq AND e.to_seq >= NEW.from_seq
                    ))
                        OR NEW.disposition = CASE WHEN b.kind = 'rollup' THEN 'rolled_up' ELSE 'sealed' END OR (NEW.disposition = 'kept' AND EXISTS (
                        SELECT 1 FROM block_messages x
                        WHERE x.session = NEW.session AND x.block = NEW.block AND x.quotes = NEW.loop
                            AND x.replaces BETWEEN NEW.from_seq AND NEW.to_seq
                    )))
                ELSE NEW.from_seq
                        = CASE WHEN p.loop = b.loop THEN p.to_seq + 1 ELSE NEW.from_seq END
                    AND NEW.to_seq < b.through
                    AND CASE
                        WHEN NEW.from_turn >= b.first_start AND NEW.to_turn <= b.first_end
                            THEN NEW.disposition = 'kept'
                        WHEN NEW.from_turn >= b.compacted_start AND NEW.to_turn <= b.compacted_end
                            THEN NEW.disposition IN ('summarised', 'dropped')
                                OR (NEW.disposition = 'removed' AND EXISTS (
                                    SELECT 1 FROM edits e
                                    WHERE e.session = NEW.session AND e.loop = NEW.loop AND e.action = 'removed'
                                        AND e.from_seq <= NEW.to_seq AND e.to_seq >= NEW.from_seq
                                ))
                                OR (NEW.disposition = 'rolled_up' AND b.kind = 'rollup')
                                OR (NEW.disposition = 'sealed' AND b.kind LIKE 'sealed:%')
                                OR (NEW.disposition = 'kept' AND EXISTS (
                                    SELECT 1 FROM block_messages x
                                    WHERE x.session = NEW.session AND x.block = NEW.block AND x.quotes = NEW.loop
                                        AND x.replaces BETWEEN NEW.from_seq AND NEW.to_seq
                                ))
                        WHEN NEW.from_turn >= b.recent_start AND NEW.to_turn <= b.recent_end
                            THEN NEW.disposition IN ('kept', 'truncated', 'dropped')
                                OR (NEW.disposition = 'sealed' AND b.kind LIKE 'sealed:%')
                    END
            END
    ) THEN
        RAISE EXCEPTION 'coverage row does not fit its run, or the sections of its block'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER coverage_fits BEFORE INSERT ON coverage FOR EACH ROW
EXECUTE FUNCTION loopstore_coverage_fits();

-- Rejects every change except new token counts. A recount with another token counter changes both counts, and
-- the digest does not include them.
CREATE TRIGGER blocks_no_update BEFORE UPDATE ON blocks FOR EACH ROW
WHEN ((NEW.session, NEW.key, NEW.loop, NEW.generation, NEW.run, NEW.kind, NEW.extends,
        NEW.first_start, NEW.first_end, NEW.compacted_start, NEW.compacted_end, NEW.recent_start,
        NEW.recent_end, NEW.through, NEW.bytes_block, NEW.messages_block, NEW.strategy,
        NEW.shaping, NEW.created_at, NEW.extra, NEW.edits, NEW.digest)
    IS DISTINCT FROM (OLD.session, OLD.key, OLD.loop, OLD.generation, OLD.run, OLD.kind, OLD.extends,
        OLD.first_start, OLD.first_end, OLD.compacted_start, OLD.compacted_end, OLD.recent_start,
        OLD.recent_end, OLD.through, OLD.bytes_block, OLD.messages_block, OLD.strategy,
        OLD.shaping, OLD.created_at, OLD.extra, OLD.edits, OLD.digest))
EXECUTE FUNCTION loopstore_only_with_receipt('blocks are immutable');
CREATE TRIGGER blocks_no_delete BEFORE DELETE ON blocks FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('blocks cannot be deleted');
CREATE TRIGGER block_messages_no_update BEFORE UPDATE ON block_messages FOR EACH ROW
WHEN ((NEW.session, NEW.block, NEW.ordinal, NEW.section, NEW.replaces, NEW.quotes, NEW.role,
        NEW.body_block, NEW.salt, NEW.digest, NEW.head, NEW.body, NEW.escaped)
    IS DISTINCT FROM (OLD.session, OLD.block, OLD.ordinal, OLD.section, OLD.replaces, OLD.quotes, OLD.role,
        OLD.body_block, OLD.salt, OLD.digest, OLD.head, OLD.body, OLD.escaped))
EXECUTE FUNCTION loopstore_only_with_receipt('block messages are immutable');
CREATE TRIGGER block_messages_no_delete BEFORE DELETE ON block_messages FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('block messages cannot be deleted');
CREATE TRIGGER coverage_stays BEFORE UPDATE OR DELETE ON coverage FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('coverage rows are immutable');

CREATE TRIGGER manifests_stay BEFORE UPDATE OR DELETE ON manifests FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('manifests are immutable');
CREATE TRIGGER manifests_audited BEFORE INSERT ON manifests FOR EACH ROW
EXECUTE FUNCTION loopstore_audited('manifest', 'manifests');
CREATE TRIGGER imports_stay BEFORE UPDATE OR DELETE ON imports FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('import notes are immutable');
CREATE TRIGGER imports_audited BEFORE INSERT ON imports FOR EACH ROW
EXECUTE FUNCTION loopstore_audited('import', 'import notes');

CREATE TRIGGER maintenance_no_delete BEFORE DELETE ON maintenance FOR EACH ROW
EXECUTE FUNCTION loopstore_never('receipts cannot be deleted');
CREATE TRIGGER maintenance_begins_open BEFORE INSERT ON maintenance FOR EACH ROW
WHEN (NEW.closed_at IS NOT NULL)
EXECUTE FUNCTION loopstore_never('receipts must be open when they are written');
-- Rejects every change except closing the receipt, which may also complete detail.
CREATE TRIGGER maintenance_only_closes BEFORE UPDATE ON maintenance FOR EACH ROW
WHEN (OLD.closed_at IS NOT NULL OR NEW.closed_at IS NULL
    OR (NEW.session, NEW.key, NEW.kind, NEW.opened_at)
        IS DISTINCT FROM (OLD.session, OLD.key, OLD.kind, OLD.opened_at))
EXECUTE FUNCTION loopstore_never('receipts are immutable');

CREATE TRIGGER redactions_no_update BEFORE UPDATE ON redactions FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('redaction remainders are immutable');
CREATE TRIGGER redactions_no_delete BEFORE DELETE ON redactions FOR EACH ROW
EXECUTE FUNCTION loopstore_owned_goes('redaction remainders cannot be deleted');

CREATE TRIGGER leases_never_go_back BEFORE UPDATE ON leases FOR EACH ROW
WHEN (NEW.session <> OLD.session OR NEW.loop <> OLD.loop OR NEW.token < OLD.token)
EXECUTE FUNCTION loopstore_never('lease tokens cannot decrease');
CREATE TRIGGER leases_no_delete BEFORE DELETE ON leases FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('leases are released, not deleted');

CREATE TRIGGER started_calls_stay BEFORE UPDATE ON started_calls FOR EACH ROW
WHEN ((NEW.session, NEW.key, NEW.loop, NEW.call_id, NEW.nth, NEW.tool_name, NEW.idempotency_key,
        NEW.started_at)
    IS DISTINCT FROM (OLD.session, OLD.key, OLD.loop, OLD.call_id, OLD.nth, OLD.tool_name,
        OLD.idempotency_key, OLD.started_at)
    OR OLD.finished_at IS NOT NULL
    OR (NEW.arguments IS DISTINCT FROM OLD.arguments AND NEW.finished_at IS NULL))
EXECUTE FUNCTION loopstore_only_with_receipt('started calls can only be finished');
CREATE TRIGGER started_calls_no_delete BEFORE DELETE ON started_calls FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('started calls cannot be deleted');
CREATE TRIGGER append_keys_stay BEFORE UPDATE OR DELETE ON append_keys FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('append keys are immutable');
CREATE TRIGGER notes_no_update BEFORE UPDATE ON notes FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('notes are immutable');

CREATE TRIGGER source_pieces_no_update BEFORE UPDATE ON source_pieces FOR EACH ROW
EXECUTE FUNCTION loopstore_never('source pieces are immutable');

-- Rejects a change of import_key or created_at, and of the name of any setting. Without its import_key a
-- database cannot distinguish a known record from a new one.
CREATE TRIGGER store_meta_no_update BEFORE UPDATE ON store_meta FOR EACH ROW
WHEN (OLD.name IN ('import_key', 'created_at') OR NEW.name <> OLD.name)
EXECUTE FUNCTION loopstore_never('the key and creation time of a database are immutable');
CREATE TRIGGER store_meta_no_delete BEFORE DELETE ON store_meta FOR EACH ROW
WHEN (OLD.name NOT IN ('recount', 'scrub'))
EXECUTE FUNCTION loopstore_never('database settings cannot be deleted');

CREATE FUNCTION loopstore_written_with_receipt() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_is_open(NEW.session) THEN
        RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER redactions_no_insert BEFORE INSERT ON redactions FOR EACH ROW
EXECUTE FUNCTION loopstore_written_with_receipt(
    'redaction remainders can only be written while a receipt is open');

CREATE TRIGGER packs_no_insert BEFORE INSERT ON packs FOR EACH ROW
EXECUTE FUNCTION loopstore_written_with_receipt('packs can only be written while a receipt is open');
CREATE TRIGGER packs_no_update BEFORE UPDATE ON packs FOR EACH ROW
EXECUTE FUNCTION loopstore_never('packs are immutable');
CREATE TRIGGER packs_no_delete BEFORE DELETE ON packs FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('packs cannot be deleted');
CREATE TRIGGER packed_heads_no_insert BEFORE INSERT ON packed_heads FOR EACH ROW
EXECUTE FUNCTION loopstore_written_with_receipt('packs can only be written while a receipt is open');
CREATE TRIGGER packed_heads_no_update BEFORE UPDATE ON packed_heads FOR EACH ROW
EXECUTE FUNCTION loopstore_never('archived message heads are immutable');
CREATE TRIGGER packed_heads_no_delete BEFORE DELETE ON packed_heads FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('archived message heads cannot be deleted');

-- Rejects TRUNCATE, which fires no row triggers.
DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['store_meta', 'sessions', 'session_names', 'loops', 'turns', 'messages',
        'blobs', 'blob_refs', 'runs', 'flips', 'pins', 'hides', 'blocks', 'block_messages', 'edits', 'coverage', 'manifests',
        'imports', 'maintenance', 'redactions', 'leases', 'started_calls', 'append_keys', 'source_pieces',
        'packs', 'packed_heads', 'audit', 'receipt_chain', 'heads']
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE TRUNCATE ON %I
             EXECUTE FUNCTION loopstore_never(''what is stored is never truncated'')',
            name || '_no_truncate', name
        );
    END LOOP;
END
$$;

-- ------------------------------------------------------------------------------------------------
-- Many tenants in one database, separated by row-level security.
--
-- `tenant_roles` defines the tenant whose rows a role can read and write. Only the owner of the tables can
-- write `tenant_roles`, and no setting that a client can change affects it. A role without a row there
-- belongs to the unnamed tenant ''. Every row names its tenant. The rows of a session have the tenant of the
-- session.
--
-- A database without tenants has none of these costs: row-level security is switched on, and tenants are
-- filled in, when the first role is added.

CREATE TABLE tenant_roles (
    -- The role is stored as its number, so that a renamed role stays in its tenant.
    role   REGROLE PRIMARY KEY,
    tenant TEXT NOT NULL CHECK (tenant <> '' AND octet_length(tenant) <= 200)
);
-- A role reads only its own row and cannot list the tenants. The owner reads all rows.
ALTER TABLE tenant_roles ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_role ON tenant_roles FOR SELECT USING (role = quote_ident(current_user)::REGROLE);

-- Returns the tenant of the current role, for the rows that the role adds. The function sets its own search
-- path, because a caller may have functions and operators of the same names.
CREATE FUNCTION loopstore_tenant() RETURNS TEXT
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce(
        (SELECT t.tenant FROM tenant_roles t WHERE t.role = quote_ident(current_user)::REGROLE), ''
    );
END
$$;

-- The tables whose rows belong to tenants, each with the reference that must belong to the same tenant when a
-- row is added or changed. Foreign keys bypass row-level security. Without the check, a role could add a row
-- to a session of another tenant, where the row would be invisible and could still cause conflicts. A receipt
-- outlives its session, and a trigger rejects changes to the receipt.
DO $$
DECLARE
    one RECORD;
    -- The same as loopstore_tenant(), which takes several times as long.
    own TEXT := $own$tenant = (SELECT coalesce(
        (SELECT t.tenant FROM tenant_roles t WHERE t.role = quote_ident(current_user)::REGROLE), ''
    ))$own$;
    of_session TEXT := '(SELECT s.session FROM sessions s WHERE s.session = %1$I.session) = session';
    of_source TEXT := '(SELECT f.key FROM sources f WHERE f.key = %1$I.source) = source';
BEGIN
    FOR one IN SELECT * FROM (VALUES
        ('sessions', NULL), ('sources', NULL), ('index_state', NULL), ('maintenance', NULL),
        ('audit', NULL), ('receipt_chain', NULL), ('heads', NULL), ('session_names', of_session), ('loops', of_session), ('turns', of_session),
        ('messages', of_session), ('blobs', of_session), ('blob_refs', of_session),
        ('runs', of_session), ('flips', of_session), ('pins', of_session), ('hides', of_session), ('blocks', of_session),
        ('block_messages', of_session), ('edits', of_session), ('coverage', of_session), ('manifests', of_session),
        ('imports', of_session), ('redactions', of_session), ('session_flags', of_session),
        ('leases', of_session), ('started_calls', of_session), ('append_keys', of_session),
        ('notes', of_session),
        ('message_words', of_session), ('indexed_loops', of_session), ('packs', of_session),
        ('packed_heads', of_session),
        ('source_sessions', of_session || ' AND ' || of_source),
        ('source_pieces', of_source), ('source_parts', of_source)
    ) AS t (name, rule)
    LOOP
        EXECUTE format(
            'CREATE POLICY tenant ON %I USING (%s) WITH CHECK (%s)',
            one.name, own, own || coalesce(' AND ' || format(one.rule, one.name), '')
        );
    END LOOP;
END
$$;
CREATE POLICY of_own_session ON maintenance AS RESTRICTIVE FOR INSERT
    WITH CHECK ((SELECT s.session FROM sessions s WHERE s.session = maintenance.session) = session);
CREATE POLICY of_own_session ON audit AS RESTRICTIVE FOR INSERT WITH CHECK (
    session = 0 OR (SELECT s.session FROM sessions s WHERE s.session = audit.session) = session
);

-- Enables row-level security for every table that has a policy for tenants, and for the partitions of such
-- tables, which no role can read by their own names. Makes every view read with the rights of its reader.
-- Tables and views that are already set are not altered.
CREATE FUNCTION loopstore_keep_apart() RETURNS VOID
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    one RECORD;
BEGIN
    IF current_setting('server_version_num')::INT < 150000 THEN
        RAISE EXCEPTION 'tenants need PostgreSQL 15 or later'
            USING HINT = 'Views of earlier versions ask with the rights of their owner.';
    END IF;
    IF NOT EXISTS (
        SELECT 1 FROM pg_policy WHERE polrelid = 'sessions'::REGCLASS AND polname = 'tenant'
    ) THEN
        RAISE EXCEPTION 'tenants cannot be kept apart here: the tables were made without policies';
    END IF;
    FOR one IN
        SELECT c.oid::REGCLASS AS name, p.polname IS NOT NULL AS has_policy
        FROM pg_class c
            LEFT JOIN pg_policy p ON p.polrelid = c.oid AND p.polname = 'tenant'
            LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
            LEFT JOIN pg_policy of_whole ON of_whole.polrelid = i.inhparent
                AND of_whole.polname = 'tenant'
        WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind IN ('r', 'p')
            AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
            AND (p.polname IS NOT NULL OR of_whole.polname IS NOT NULL)
        ORDER BY c.oid
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', one.name);
        IF one.has_policy THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN tenant SET DEFAULT loopstore_tenant()', one.name);
        END IF;
    END LOOP;
    FOR one IN
        SELECT c.oid::REGCLASS AS name FROM pg_class c
        WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind = 'v'
            AND NOT coalesce('security_invoker=true' = ANY (c.reloptions), FALSE)
    LOOP
        EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', one.name);
    END LOOP;
    -- A role that lists or searches all its sessions reads none of another tenant.
    CREATE INDEX IF NOT EXISTS sessions_tenant ON sessions (tenant, session);
END
$$;

-- Enables row-level security when a tenant is added, and rejects a role that can bypass it.
CREATE FUNCTION loopstore_tenant_comes() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name TEXT;
BEGIN
    SELECT r.rolname INTO name FROM pg_roles r JOIN tenant_roles t ON t.role = r.oid
    WHERE r.rolsuper OR r.rolbypassrls OR r.rolreplication OR r.rolcreaterole;
    IF FOUND THEN
        RAISE EXCEPTION 'the role % may see more than one tenant', quote_ident(name)
            USING HINT = 'A tenant''s role is no superuser and has none of BYPASSRLS, REPLICATION and CREATEROLE.';
    END IF;
    PERFORM loopstore_keep_apart();
    RETURN NULL;
END
$$;
CREATE TRIGGER tenant_comes AFTER INSERT OR UPDATE ON tenant_roles
FOR EACH STATEMENT EXECUTE FUNCTION loopstore_tenant_comes();

-- `loopstore recount` recounts all tokens. A write of another open connection takes a shared lock that
-- conflicts with the lock of a recount, and then checks the counter. The write either ends before the recount
-- begins, or fails.
CREATE FUNCTION loopstore_count_lock() RETURNS BIGINT LANGUAGE sql IMMUTABLE RETURN 5499263;

CREATE FUNCTION loopstore_counts_with(counter TEXT) RETURNS VOID
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    stored TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(loopstore_count_lock());
    SELECT value INTO stored FROM store_meta
    WHERE name IN ('recount', 'token_counter') ORDER BY name LIMIT 1;
    IF stored IS DISTINCT FROM counter THEN
        RAISE EXCEPTION 'the database counts tokens with another counter since it was opened, or is being recounted; open it again'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$;

-- ------------------------------------------------------------------------------------------------
-- The views: the stable way to read a database with SQL, with the same columns and the same rows as in
-- SQLite.
--
-- The name, the place and the meaning of a view's column never change. New columns are added at the end.
-- Views whose name begins with `v_` are for all readers. All other views, and the functions whose name begins
-- with `loopstore_`, are internal and may change. A query for one session reads only the chains of that
-- session.
--
-- No row may make a view fail. JSON that other programs wrote is read with the functions below. Numbers that
-- other programs wrote are added as DOUBLE PRECISION, which does not overflow.

-- The JSON of a text, unchanged. NULL if the text is not JSON. Characters that PostgreSQL cannot represent
-- (U+0000, half of a UTF-16 pair) become U+FFFD, because the JSON functions of PostgreSQL reject them.
CREATE FUNCTION loopstore_json(given TEXT) RETURNS JSON LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF strpos(given, '\u') = 0 THEN
        RETURN given::JSON;
    END IF;
    BEGIN
        PERFORM given::JSONB;
        RETURN given::JSON;
    EXCEPTION WHEN OTHERS THEN
        RETURN regexp_replace(given, '\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\\ufffd', 'g')::JSON;
    END;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- A JSON value as text. A string has no quotes.
CREATE FUNCTION loopstore_text(given JSON) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT given #>> '{}'
$$;

-- The value of a key. NULL if there is no such key, or if the JSON is not an object.
CREATE FUNCTION loopstore_value(given JSON, key TEXT) RETURNS JSON LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE json_typeof(given) WHEN 'object' THEN nullif((given -> key)::TEXT, 'null')::JSON END
$$;

-- The number in a JSON value. 0 if the value is not a number.
CREATE FUNCTION loopstore_number(given JSON) RETURNS DOUBLE PRECISION LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF json_typeof(given) = 'number' THEN
        RETURN (given #>> '{}')::DOUBLE PRECISION;
    END IF;
    RETURN 0;
EXCEPTION WHEN OTHERS THEN
    RETURN 0;
END
$$;

-- A sum of tokens as a whole number from 0 to 10^12, so that sums over rows do not overflow.
CREATE FUNCTION loopstore_whole(given DOUBLE PRECISION) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN given >= 1e12 THEN 1000000000000
        WHEN given > 0 THEN trunc(given)::BIGINT
        ELSE 0
    END
$$;

-- Milliseconds since the epoch as ISO-8601 text.
CREATE FUNCTION loopstore_time(ms BIGINT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN ms BETWEEN -62135596800000 AND 253402300799999
        THEN to_char(TIMESTAMP '1970-01-01' + ms * INTERVAL '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    END
$$;

-- The original body, with U+FFFD instead of U+0000.
CREATE FUNCTION loopstore_body(body TEXT, escaped BOOLEAN) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN escaped THEN replace(replace(body, chr(1) || '0', chr(65533)), chr(1) || '1', chr(1))
        ELSE body
    END
$$;

-- A message with its largest text restored. All other text is exactly as it was stored.
CREATE FUNCTION loopstore_payload(head JSON, block BIGINT, body TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE AS $$
    SELECT '{' || string_agg(
        to_json(field.key)::TEXT || ':' || CASE
            WHEN field.key = 'content' AND json_typeof(field.value) = 'array' THEN (
                SELECT '[' || coalesce(string_agg(
                    CASE WHEN item.place = block + 1 THEN (
                        SELECT '{' || string_agg(
                            to_json(part.key)::TEXT || ':'
                                || CASE part.key WHEN 'text' THEN to_json(body)::TEXT ELSE part.value::TEXT END,
                            ',' ORDER BY part.place
                        ) || '}'
                        FROM json_each(item.value) WITH ORDINALITY AS part (key, value, place)
                    )
                    ELSE item.value::TEXT END,
                    ',' ORDER BY item.place
                ), '') || ']'
                FROM json_array_elements(field.value) WITH ORDINALITY AS item (value, place)
            )
            ELSE field.value::TEXT
        END,
        ',' ORDER BY field.place
    ) || '}'
    FROM json_each(head) WITH ORDINALITY AS field (key, value, place)
$$;

-- The texts of a message, joined with line breaks.
CREATE FUNCTION loopstore_texts(head JSON, block BIGINT, body TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(
        CASE WHEN item.place = block + 1 THEN body
            ELSE loopstore_text(loopstore_value(item.value, 'text')) END,
        chr(10) ORDER BY item.place
    )
    FROM json_array_elements(
        CASE json_typeof(loopstore_value(head, 'content')) WHEN 'array' THEN head -> 'content' ELSE '[]' END
    ) WITH ORDINALITY AS item (value, place)
    WHERE loopstore_text(loopstore_value(item.value, 'type')) = 'text'
$$;

-- The first text of a JSON value, at any depth, that contains a patch. NULL if there is none.
CREATE FUNCTION loopstore_patch(given JSON) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    WITH RECURSIVE part (value, place) AS (
        SELECT given, ARRAY[]::BIGINT[]
        UNION ALL
        SELECT inner_part.value, part.place || inner_part.place
        FROM part CROSS JOIN LATERAL (
            SELECT item.value, item.place FROM json_array_elements(
                CASE json_typeof(part.value) WHEN 'array' THEN part.value ELSE '[]' END
            ) WITH ORDINALITY AS item (value, place)
            UNION ALL
            SELECT field.value, field.place FROM json_each(
                CASE json_typeof(part.value) WHEN 'object' THEN part.value ELSE '{}' END
            ) WITH ORDINALITY AS field (key, value, place)
        ) inner_part
    )
    SELECT loopstore_text(part.value) FROM part
    WHERE json_typeof(part.value) = 'string'
        AND strpos(loopstore_text(part.value), '*** Begin Patch') > 0
    ORDER BY part.place LIMIT 1
$$;

-- A prompt as one line, as the library shows it: without the elements of harnesses at the beginning and at
-- the end, with folded white space, cut after a word to 100 characters. NULL if the prompt has no text.
CREATE FUNCTION loopstore_prompt(head TEXT, block BIGINT, body TEXT) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    line TEXT;
    words TEXT;
    element TEXT;
    left_alone BOOLEAN := FALSE;
BEGIN
    SELECT string_agg(
        CASE WHEN item.place = block + 1 THEN body
            ELSE loopstore_text(loopstore_value(item.value, 'text')) END,
        chr(10) ORDER BY item.place
    )
    INTO line
    FROM loopstore_json(head) j (json) CROSS JOIN LATERAL json_array_elements(
        CASE json_typeof(loopstore_value(j.json, 'content')) WHEN 'array' THEN j.json -> 'content' ELSE '[]' END
    ) WITH ORDINALITY AS item (value, place)
    WHERE loopstore_text(loopstore_value(item.value, 'type')) = 'text'
        AND loopstore_text(loopstore_value(item.value, 'author')) IS DISTINCT FROM 'harness';
    WHILE NOT left_alone LOOP
        left_alone := TRUE;
        line := btrim(line, E' \t\n\r\f\v');
        FOREACH element IN ARRAY ARRAY[
        'bash-input', 'bash-stderr', 'bash-stdout', 'command-args', 'command-contents',
        'command-message', 'command-name', 'ide_diagnostics', 'ide_opened_file',
        'ide_selection', 'local-command-caveat', 'local-command-stderr',
        'local-command-stdout', 'new-diagnostics', 'session-start-hook', 'system-reminder',
        'system_reminder', 'task-notification', 'user-memory-input', 'user-prompt-submit-hook',
        'collaboration_mode', 'environment_context', 'hook_prompt', 'permissions instructions',
        'subagent_notification', 'turn_aborted', 'user_instructions', 'user_shell_command',
        'current_datetime', 'EXTRA_INFO', 'environment_details', 'hook_context',
        'session_context'
        ]
        LOOP
            IF starts_with(line, '<' || element) THEN
                IF substr(line, 2 + length(element), 1) IN ('>', ' ', E'\n')
                    AND strpos(line, '</' || element || '>') > 0
                THEN
                    line := substr(line, strpos(line, '</' || element || '>') + 3 + length(element));
                    left_alone := FALSE;
                    EXIT;
                END IF;
            ELSIF right(line, 3 + length(element)) = '</' || element || '>'
                AND strpos(line, '<' || element) > 0
            THEN
                line := left(line, strpos(line, '<' || element) - 1);
                left_alone := FALSE;
                EXIT;
            END IF;
        END LOOP;
    END LOOP;
    line := btrim(regexp_replace(left(line, 2000), E'[ \t\n\r\f\v]+', ' ', 'g'));
    IF length(line) <= 100 THEN
        RETURN nullif(line, '');
    END IF;
    words := regexp_replace(left(line, 100), ' ?[^ ]*$', '');
    RETURN CASE WHEN length(words) > 50 THEN words ELSE rtrim(left(line, 99)) END || '…';
END
$$;

-- Internal. Messages with their largest text restored. `json` is the head if the head is JSON, or the packed
-- head of an archived message. `payload` is the whole message, and NULL if the message was redacted or
-- archived.
CREATE VIEW message_content AS
SELECT
    m.session, m.loop, m.seq, m.turn, m.role, m.tokens, m.bytes, m.created_at, h.json,
    CASE
        WHEN m.head IS NOT NULL AND m.body_block >= 0 AND json_typeof(h.json) = 'object'
        THEN loopstore_payload(h.json, m.body_block, loopstore_body(m.body, m.escaped))
        ELSE m.head
    END AS payload,
    CASE
        WHEN m.role = 3 THEN NULL
        WHEN m.head IS NOT NULL AND h.json IS NOT NULL
        THEN loopstore_texts(h.json, m.body_block, loopstore_body(m.body, m.escaped))
        ELSE loopstore_body(m.body, m.escaped)
    END AS text,
    m.author
FROM messages m
    LEFT JOIN packed_heads p ON p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
    CROSS JOIN LATERAL loopstore_json(coalesce(m.head, p.head)) h (json);

-- Internal. Turns with the sequences of their messages: first_seq <= seq < end_seq.
CREATE VIEW turn_bounds AS
SELECT
    t.session, t.loop, t.turn, t.turn_index, t.started_at, t.ended_at, t.messages, t.tokens, t.answers,
    t.first_seq, coalesce(n.first_seq, 4294967296) AS end_seq
FROM turns t
    LEFT JOIN turns n ON n.session = t.session AND n.loop = t.loop AND n.turn = t.turn + 1;

-- Internal. Loops that no child continues from their last turn, and the current loop of each session.
CREATE VIEW leaves AS
SELECT l.session, l.key, l.loop_id
FROM loops l
    JOIN sessions s ON s.session = l.session
    LEFT JOIN LATERAL (
        SELECT max(coalesce(c.parent_turn - (c.parent_seq IS NOT NULL)::INT, -1)) AS turn
        FROM loops c WHERE c.session = l.session AND c.parent = l.key
    ) last_child ON TRUE
WHERE l.key = s.current_loop OR last_child.turn IS NULL OR last_child.turn < l.turns - 1;

-- Internal. The chain of a leaf. `cut` is the number of turns of the loop that belong to the chain as a
-- whole. `part` is the last sequence of the next turn that belongs to the chain, if the chain leaves the loop
-- within that turn. `depth` counts from 0 at the root. The key of a parent is smaller than the key of its
-- child, so that the recursion always ends.
CREATE FUNCTION loopstore_chain(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (loop BIGINT, depth BIGINT, cut BIGINT, part BIGINT) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE up (loop, parent, parent_turn, parent_seq, cut, part, distance) AS (
        SELECT l.key, l.parent, l.parent_turn, l.parent_seq, 4294967296, NULL::BIGINT, 0::BIGINT
        FROM loops l WHERE l.session = of_session AND l.key = leaf
        UNION ALL
        SELECT p.key, p.parent, p.parent_turn, p.parent_seq,
            coalesce(up.parent_turn + (up.parent_seq IS NULL)::INT, 0), up.parent_seq, up.distance + 1
        FROM up JOIN loops p ON p.session = of_session AND p.key = up.parent AND p.key < up.loop
    )
    SELECT up.loop, count(*) OVER () - 1 - up.distance, up.cut, up.part FROM up;
END
$$;

-- Internal. The active block of each loop of a chain. `block` is the active block, and `plain` is the active
-- block if rollups are ignored. `run` is the newest live run of the chain. A run or flip applies to a chain
-- if its loop is on the chain and had no turn beyond its cut at that time. A run is live if it is committed
-- and its newest flip that applies is not an undo. The active block is the newest generation from a live run.
CREATE FUNCTION loopstore_active_by_loop(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (loop BIGINT, depth BIGINT, cut BIGINT, block BIGINT, plain BIGINT, run BIGINT,
    part BIGINT)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH
    chain AS (SELECT * FROM loopstore_chain(of_session, leaf)),
    -- Every run and every flip that applies. Runs of a provider are ignored, because only that provider can
    -- read their opaque items. Runs with edits have no blocks.
    changes AS (
        SELECT r.key AS run, CASE r.trigger WHEN 'edit' THEN 'edit' ELSE 'run' END AS word,
            r.tick AS tick, NULL::BIGINT AS flip
        FROM chain c JOIN runs r ON r.session = of_session AND r.loop = c.loop
        WHERE r.outcome = 'committed' AND r.turns <= c.cut
            AND (r.strategy NOT LIKE 'provider:%' OR r.trigger = 'edit')
        UNION ALL
        SELECT f.run AS run, f.kind AS word, f.tick AS tick, f.key AS flip
        FROM chain c JOIN flips f ON f.session = of_session AND f.loop = c.loop
        WHERE f.turns <= c.cut
    ),
    judged AS (
        SELECT changes.run, changes.word, changes.tick, first_value(changes.word) OVER (
            PARTITION BY changes.run ORDER BY changes.flip IS NULL, changes.tick DESC, changes.flip DESC
        ) AS last_word
        FROM changes
    ),
    live AS (
        SELECT judged.run,
            first_value(judged.run) OVER (ORDER BY judged.tick DESC, judged.run DESC) AS newest
        FROM judged
        WHERE judged.word = 'run' AND judged.last_word <> 'undo'
    ),
    -- What live edits removed or replaced.
    rewritten AS (
        SELECT r.run_id, e.loop, e.from_seq, e.to_seq
        FROM judged j JOIN runs r ON r.session = of_session AND r.key = j.run
            JOIN edits e ON e.session = of_session AND e.run = r.key
        WHERE j.word = 'edit' AND j.last_word <> 'undo' AND e.action <> 'cleared'
    ),
    best AS (
        SELECT b.loop, max(b.generation) AS generation,
            max(b.generation) FILTER (WHERE b.kind <> 'rollup') AS plain
        FROM live JOIN blocks b ON b.session = of_session AND b.run = live.run
        WHERE (SELECT s.edits = 0 FROM sessions s WHERE s.session = of_session)
            OR b.edits IS NOT DISTINCT FROM (
                SELECT '["' || string_agg(w.run_id, '","' ORDER BY w.run_id COLLATE "C") || '"]'
                FROM (
                    SELECT DISTINCT w.run_id
                    FROM rewritten w
                        LEFT JOIN turns t ON t.session = of_session AND t.loop = b.loop
                            AND t.turn = b.compacted_start
                        LEFT JOIN turns n ON n.session = of_session AND n.loop = b.loop
                            AND n.turn = b.compacted_end + 1
                    WHERE (w.loop < b.loop AND b.kind = 'rollup')
                        OR (w.loop = b.loop AND w.to_seq >= t.first_seq
                            AND w.from_seq < least(n.first_seq, b.through))
                        OR (w.loop = b.loop AND t.first_seq IS NOT NULL AND EXISTS (
                            SELECT 1 FROM messages m
                            WHERE m.session = of_session AND m.loop = w.loop
                                AND m.seq BETWEEN w.from_seq AND w.to_seq AND m.seq < t.first_seq
                                AND m.role = 0 AND m.author < 2
                        ))
                ) w
            )
        GROUP BY b.loop
    )
    SELECT c.loop, c.depth, c.cut,
        (SELECT b.key FROM blocks b
         WHERE b.session = of_session AND b.loop = c.loop AND b.generation = best.generation),
        (SELECT b.key FROM blocks b
         WHERE b.session = of_session AND b.loop = c.loop AND b.generation = best.plain),
        (SELECT max(live.newest) FROM live), c.part
    FROM chain c LEFT JOIN best ON best.loop = c.loop;
END
$$;

-- Internal. The active blocks of the chain of a leaf, from the anchor of the active rollup on.
CREATE FUNCTION loopstore_active_blocks(of_session BIGINT, leaf BIGINT) RETURNS TABLE (block BIGINT)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT f.block
    FROM (
        SELECT f.block, f.depth,
            max(CASE WHEN o.kind = 'rollup' THEN f.depth ELSE 0 END) OVER () AS anchor
        FROM loopstore_active_by_loop(of_session, leaf) f
            JOIN blocks o ON o.session = of_session AND o.key = f.block
    ) f
    WHERE f.depth >= f.anchor;
END
$$;

-- Internal. A field of a configuration as text, or the default.
CREATE FUNCTION loopstore_setting(config JSON, name TEXT, usual TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(loopstore_text(loopstore_value(config, name)), usual)
$$;

-- Internal. The loops that the context of a leaf shows, each with its active block. If the newest live run
-- skips older loops, these are the loops in its scope, or else the loops from the anchor of the active rollup
-- on. `turns` and `end_seq` are the ends of the part of a loop that belongs to the chain.
CREATE FUNCTION loopstore_context_loops(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (loop BIGINT, depth BIGINT, turns BIGINT, end_seq BIGINT, block BIGINT, part BIGINT)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH
    link AS (
        SELECT f.loop, f.depth, least(f.cut + (f.part IS NOT NULL)::INT, l.turns) AS turns, f.part,
            -- The window does not count an incomplete turn of the leaf.
            CASE l.key
                WHEN leaf THEN l.complete
                ELSE least(f.cut + (f.part IS NOT NULL)::INT, l.turns)
            END AS complete,
            CASE
                WHEN f.part IS NOT NULL THEN f.part + 1
                WHEN f.cut < l.turns THEN coalesce(
                    (SELECT t.first_seq FROM turns t
                     WHERE t.session = of_session AND t.loop = f.loop AND t.turn = f.cut),
                    l.next_seq
                )
                ELSE l.next_seq
            END AS end_seq,
            CASE WHEN r.older_loops = 'skip' THEN f.plain ELSE f.block END AS block,
            coalesce(r.older_loops, 'rollup') AS older_loops, r.scope,
            loopstore_json(coalesce(r.reached, r.config)) AS config
        FROM loopstore_active_by_loop(of_session, leaf) f
            JOIN loops l ON l.session = of_session AND l.key = f.loop
            LEFT JOIN runs r ON r.session = of_session AND r.key = f.run
    ),
    sized AS (
        SELECT k.*, b.kind,
            loopstore_setting(k.config, 'recent_window', 'chain') AS recent_window,
            loopstore_setting(k.config, 'keep_recent_turns', '10')::DOUBLE PRECISION AS keep_recent_turns,
            loopstore_setting(k.config, 'max_context_tokens', '128000')::DOUBLE PRECISION
                - loopstore_setting(k.config, 'system_tokens', '0')::DOUBLE PRECISION AS budget,
            -- Active tokens. Only a budget needs them.
            CASE
                WHEN k.older_loops <> 'skip' OR k.scope <> 'token-budget' THEN 0
                WHEN b.key IS NULL AND k.part IS NOT NULL THEN (
                    SELECT coalesce(sum(m.tokens), 0) FROM messages m
                    WHERE m.session = of_session AND m.loop = k.loop AND m.seq < k.end_seq AND m.role <> 3
                )
                WHEN b.key IS NULL THEN (
                    SELECT t.tokens FROM turns t
                    WHERE t.session = of_session AND t.loop = k.loop AND t.turn = k.turns - 1
                )
                ELSE b.tokens_block + (
                    SELECT coalesce(sum(m.tokens), 0) FROM messages m
                    WHERE m.session = of_session AND m.loop = k.loop
                        AND m.seq >= b.through AND m.seq < k.end_seq AND m.role <> 3
                )
            END AS tokens
        FROM link k LEFT JOIN blocks b ON b.session = of_session AND b.key = k.block
    ),
    placed AS (
        SELECT sized.*,
            max(sized.depth) OVER () - sized.depth AS distance,
            max(CASE WHEN sized.kind = 'rollup' THEN sized.depth ELSE 0 END) OVER () AS anchor,
            sum(coalesce(sized.tokens, 0)) OVER (ORDER BY sized.depth DESC) AS tokens_from_here,
            coalesce(sum(sized.complete) OVER (
                ORDER BY sized.depth DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), 0) AS turns_after
        FROM sized
    )
    SELECT placed.loop, placed.depth, placed.turns, placed.end_seq, placed.block, placed.part
    FROM placed
    WHERE CASE
        WHEN placed.older_loops <> 'skip' THEN placed.depth >= placed.anchor
        WHEN placed.distance = 0 THEN TRUE
        WHEN placed.recent_window = 'chain' AND placed.turns > 0
            AND placed.turns_after < placed.keep_recent_turns THEN TRUE
        WHEN placed.scope ~ '^fixed:[0-9]{1,9}$'
        THEN placed.distance <= substr(placed.scope, 7)::BIGINT
        ELSE placed.tokens_from_here <= placed.budget
    END;
END
$$;

-- Internal. The messages of the chain of a leaf with live edits. A message that is not shown has the `form`
-- 'removed', else 'edited'. `tokens` is added to those of the message as recorded.
CREATE FUNCTION loopstore_edited_messages(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (loop BIGINT, seq BIGINT, form TEXT, tokens BIGINT)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    IF (SELECT s.edits FROM sessions s WHERE s.session = of_session) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH
    chain AS (SELECT c.loop, c.cut FROM loopstore_chain(of_session, leaf) c),
    edit AS (
        SELECT e.*, r.tick
        FROM chain c
            JOIN runs r ON r.session = of_session AND r.loop = c.loop
            JOIN edits e ON e.session = of_session AND e.run = r.key
        WHERE r.outcome = 'committed' AND r.trigger = 'edit' AND r.turns <= c.cut
            AND coalesce((
                SELECT f.kind <> 'undo'
                FROM flips f JOIN chain k ON k.loop = f.loop AND f.turns <= k.cut
                WHERE f.session = of_session AND f.run = r.key ORDER BY f.tick DESC, f.key DESC LIMIT 1
            ), TRUE)
    ),
    removed AS (
        SELECT DISTINCT m.loop, m.seq
        FROM edit e JOIN messages m ON m.session = of_session AND m.loop = e.loop
            AND m.seq BETWEEN e.from_seq AND e.to_seq AND m.role <> 3
        WHERE e.part IS NULL
    ),
    form AS (
        SELECT e.loop, e.from_seq AS seq, e.parts, e.action, e.tokens_after - e.tokens_before AS tokens,
            row_number() OVER (
                PARTITION BY e.loop, e.from_seq, e.part
                ORDER BY e.action = 'removed' DESC, e.tick DESC, e.run DESC, e.ordinal DESC
            ) AS place
        FROM edit e WHERE e.part IS NOT NULL
    )
    SELECT r.loop, r.seq, 'removed', 0::BIGINT FROM removed r
    UNION ALL
    SELECT f.loop, f.seq,
        CASE
            WHEN count(*) FILTER (WHERE f.action = 'removed') >= max(f.parts) THEN 'removed'
            ELSE 'edited'
        END,
        sum(f.tokens)::BIGINT
    FROM form f
    WHERE f.place = 1
        AND NOT EXISTS (SELECT 1 FROM removed r WHERE r.loop = f.loop AND r.seq = f.seq)
    GROUP BY f.loop, f.seq;
END
$$;

-- Internal. The parts of the context of a leaf. The function reads tables and no views, for the same reason
-- as loopstore_usage_below.
CREATE FUNCTION loopstore_parts(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (ordinal BIGINT, loop BIGINT, section TEXT, from_turn BIGINT, to_turn BIGINT,
    messages BIGINT, tokens BIGINT)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH
    slot AS (
        SELECT k.loop, k.depth, k.turns, k.end_seq, k.part, b.key AS block, b.through, name.place,
            name.section,
            CASE name.section
                WHEN 'first' THEN b.first_start
                WHEN 'recent' THEN b.recent_start
                WHEN 'raw' THEN 0
                WHEN 'tail' THEN NULL
                ELSE b.compacted_start
            END AS from_turn,
            CASE name.section
                WHEN 'first' THEN b.first_end
                WHEN 'recent' THEN b.recent_end
                WHEN 'raw' THEN k.turns - 1
                WHEN 'tail' THEN NULL
                ELSE b.compacted_end
            END AS to_turn
        FROM loopstore_context_loops(of_session, leaf) k
            LEFT JOIN blocks b ON b.session = of_session AND b.key = k.block
            CROSS JOIN (
                VALUES (0, 'rollup'), (1, 'first'), (2, 'compacted'), (3, 'recent'), (4, 'tail'), (5, 'raw')
            ) AS name (place, section)
        WHERE (b.key IS NULL) = (name.section = 'raw')
            AND CASE name.section
                WHEN 'rollup' THEN b.kind = 'rollup'
                WHEN 'compacted' THEN b.kind <> 'rollup'
                ELSE TRUE
            END
    ),
    -- The range of the original messages of a section: those of its turns that the block covers.
    bounded AS (
        SELECT slot.*,
            CASE slot.section
                WHEN 'tail' THEN slot.through
                ELSE (SELECT t.first_seq FROM turns t
                      WHERE t.session = of_session AND t.loop = slot.loop AND t.turn = slot.from_turn)
            END AS first_seq,
            CASE slot.section
                WHEN 'tail' THEN slot.end_seq
                -- least() ignores NULL: there is no next turn after the last one.
                ELSE (SELECT least(n.first_seq, slot.end_seq, slot.through)
                      FROM turns t
                          LEFT JOIN turns n ON n.session = of_session AND n.loop = slot.loop
                              AND n.turn = slot.to_turn + 1
                      WHERE t.session = of_session AND t.loop = slot.loop AND t.turn = slot.to_turn)
            END AS last_seq
        FROM slot
    ),
    edited AS (SELECT e.* FROM loopstore_edited_messages(of_session, leaf) e),
    measured AS (
        SELECT bounded.*, size.n, size.tokens, size.low, size.high
        FROM (
            SELECT b.*, b.section NOT IN ('rollup', 'compacted') AND (
                SELECT l.edits > 0 FROM loops l WHERE l.session = of_session AND l.key = b.loop
            ) AS has_edits
            FROM bounded b
        ) bounded CROSS JOIN LATERAL (
            -- Message by message, if some have edits. A message that the block drops stays dropped.
            SELECT count(*) AS n,
                coalesce(sum(
                    CASE
                        WHEN e.form = 'edited' THEN m.tokens + e.tokens
                        ELSE coalesce(x.tokens, m.tokens)
                    END
                ), 0)::BIGINT AS tokens,
                min(m.turn) AS low, max(m.turn) AS high
            FROM messages m
                LEFT JOIN edited e ON e.loop = m.loop AND e.seq = m.seq
                LEFT JOIN block_messages x ON bounded.section = 'recent' AND x.session = of_session
                    AND x.block = bounded.block AND x.section = 2 AND x.replaces = m.seq
            WHERE bounded.has_edits AND m.session = of_session AND m.loop = bounded.loop
                AND m.seq >= CASE bounded.section WHEN 'raw' THEN 0 ELSE bounded.first_seq END
                AND m.seq < CASE bounded.section WHEN 'raw' THEN bounded.end_seq ELSE bounded.last_seq END
                AND m.role <> 3 AND e.form IS DISTINCT FROM 'removed'
                AND (x.ordinal IS NULL OR x.role IS NOT NULL)
            UNION ALL
            SELECT t.messages AS n, t.tokens, NULL::BIGINT AS low, NULL::BIGINT AS high
            FROM turns t
            WHERE NOT bounded.has_edits AND bounded.section = 'raw' AND bounded.part IS NULL AND t.session = of_session
                AND t.loop = bounded.loop AND t.turn = bounded.to_turn
            UNION ALL
            SELECT count(*), coalesce(sum(m.tokens), 0)::BIGINT, NULL, NULL
            FROM messages m
            WHERE NOT bounded.has_edits AND bounded.section = 'raw' AND bounded.part IS NOT NULL AND m.session = of_session
                AND m.loop = bounded.loop AND m.seq < bounded.end_seq AND m.role <> 3
            UNION ALL
            SELECT count(*), coalesce(sum(x.tokens), 0)::BIGINT, NULL, NULL
            FROM block_messages x
            WHERE bounded.section IN ('rollup', 'compacted') AND x.session = of_session
                AND x.block = bounded.block AND x.section = 1 AND x.role <> 3
            UNION ALL
            SELECT count(*), coalesce(sum(m.tokens), 0)::BIGINT, min(m.turn), max(m.turn)
            FROM messages m
            WHERE NOT bounded.has_edits AND bounded.section IN ('first', 'tail') AND m.session = of_session
                AND m.loop = bounded.loop AND m.seq >= bounded.first_seq AND m.seq < bounded.last_seq
                AND m.role <> 3
            UNION ALL
            -- Original messages without those that the block replaces, and the messages that replace them.
            SELECT coalesce(sum(s.n), 0)::BIGINT, coalesce(sum(s.tokens), 0)::BIGINT, NULL, NULL
            FROM (
                SELECT 1 AS n, m.tokens FROM messages m
                WHERE NOT bounded.has_edits AND bounded.section = 'recent' AND m.session = of_session
                    AND m.loop = bounded.loop
                    AND m.seq >= bounded.first_seq AND m.seq < bounded.last_seq AND m.role <> 3
                    AND m.seq NOT IN (
                        SELECT x.replaces FROM block_messages x
                        WHERE x.session = of_session AND x.block = bounded.block AND x.section = 2
                            AND x.replaces IS NOT NULL
                    )
                UNION ALL
                SELECT 1, x.tokens FROM block_messages x
                WHERE NOT bounded.has_edits AND bounded.section = 'recent' AND x.session = of_session
                    AND x.block = bounded.block AND x.section = 2 AND x.role <> 3
            ) s
        ) size
        WHERE size.n > 0
    )
    SELECT row_number() OVER (ORDER BY measured.depth, measured.place) - 1, measured.loop,
        measured.section, coalesce(measured.from_turn, measured.low),
        coalesce(measured.to_turn, measured.high), measured.n, measured.tokens
    FROM measured;
END
$$;

-- Sessions with the totals of their loops. Totals do not include extensions. title is the title of the
-- session, or else its prompt as a line of at most 100 characters. The prompt is the first one of a person,
-- or else of a parent agent. project is the folder that the agent worked in.
CREATE VIEW v_sessions AS
SELECT
    s.session_id, s.agent_id,
    CASE WHEN btrim(s.title) <> '' THEN s.title ELSE p.prompt END AS title,
    s.created_at, s.last_active_at,
    c.loop_id AS current_loop_id,
    t.loops, t.turns, t.messages, t.tokens, s.source, p.prompt, s.project,
    h.hidden_at
FROM sessions s
    LEFT JOIN LATERAL (
        SELECT CASE n.kind WHEN 'hide' THEN n.at END AS hidden_at FROM hides n
        WHERE n.session = s.session ORDER BY n.key DESC LIMIT 1
    ) h ON TRUE
    -- Prompts without text, such as a single image, are skipped.
    LEFT JOIN LATERAL (
        SELECT CASE
            WHEN m.head IS NULL THEN loopstore_text(loopstore_value(loopstore_json(h.head), 'prompt'))
            ELSE loopstore_prompt(m.head, m.body_block, loopstore_body(m.body, m.escaped))
        END AS prompt
        FROM messages m
            LEFT JOIN packed_heads h ON h.session = m.session AND h.loop = m.loop AND h.seq = m.seq
        WHERE m.session = s.session AND m.role = 0 AND m.author < 2
            AND (m.head IS NULL AND h.head IS NOT NULL OR strpos(m.head, '"text"') > 0)
        ORDER BY m.author, m.loop, m.seq LIMIT 1
    ) p ON TRUE
    LEFT JOIN loops c ON c.session = s.session AND c.key = s.current_loop
    CROSS JOIN LATERAL (
        SELECT count(*) AS loops, coalesce(sum(l.turns), 0)::BIGINT AS turns,
            coalesce(sum(l.messages), 0)::BIGINT AS messages,
            coalesce(sum(l.tokens), 0)::BIGINT AS tokens
        FROM loops l WHERE l.session = s.session
    ) t;

-- Loops. parent_turn is the last turn of the parent that belongs to the loop's chain. parent_seq is the last
-- message of the parent that belongs to the chain, if the chain leaves the parent within parent_turn.
-- continuation_kind is Initial, Default, Compaction, Rerun:TAG, Branch:TAG, or the JSON of a kind that this
-- version does not know. archived is true if no message of the loop has content left. prompt is the first
-- prompt of the loop, as a line like the prompts of v_sessions.
CREATE VIEW v_loops AS
SELECT
    s.session_id, l.loop_id, l.parent_loop_id, l.parent_turn,
    CASE
        WHEN json_typeof(k.kind) = 'string' THEN loopstore_text(k.kind)
        WHEN json_typeof(loopstore_value(k.kind, 'Rerun')) = 'object'
        THEN 'Rerun:' || coalesce(loopstore_text(loopstore_value(k.kind -> 'Rerun', 'tag')), '')
        WHEN json_typeof(loopstore_value(k.kind, 'Branch')) = 'object'
        THEN 'Branch:' || coalesce(loopstore_text(loopstore_value(k.kind -> 'Branch', 'tag')), '')
        ELSE l.kind
    END AS continuation_kind,
    l.status, l.started_at, l.ended_at, l.turns, l.messages, l.tokens,
    (l.next_seq > 0 AND kept.is_there IS NULL)::INT AS archived,
    p.prompt, l.parent_seq
FROM sessions s
    JOIN loops l ON l.session = s.session
    CROSS JOIN LATERAL loopstore_json(l.kind) k (kind)
    LEFT JOIN LATERAL (
        SELECT TRUE AS is_there FROM messages m
        WHERE m.session = l.session AND m.loop = l.key AND m.head IS NOT NULL LIMIT 1
    ) kept ON TRUE
    LEFT JOIN LATERAL (
        SELECT CASE
            WHEN m.head IS NULL THEN loopstore_text(loopstore_value(loopstore_json(h.head), 'prompt'))
            ELSE loopstore_prompt(m.head, m.body_block, loopstore_body(m.body, m.escaped))
        END AS prompt
        FROM messages m
            LEFT JOIN packed_heads h ON h.session = m.session AND h.loop = m.loop AND h.seq = m.seq
        WHERE m.session = l.session AND m.loop = l.key AND m.role = 0 AND m.author < 2
            AND (m.head IS NULL AND h.head IS NOT NULL OR strpos(m.head, '"text"') > 0)
        ORDER BY m.author, m.seq LIMIT 1
    ) p ON TRUE;

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
    loopstore_time(t.started_at) AS started_at,
    loopstore_time(t.ended_at) AS ended_at,
    t.messages - coalesce(p.messages, 0) AS messages,
    t.tokens - coalesce(p.tokens, 0) AS tokens,
    loopstore_whole(u.input) AS input_tokens,
    loopstore_whole(u.output) AS output_tokens
FROM sessions s
    JOIN loops l ON l.session = s.session
    JOIN turn_bounds t ON t.session = l.session AND t.loop = l.key
    LEFT JOIN turns p ON p.session = t.session AND p.loop = t.loop AND p.turn = t.turn - 1
    LEFT JOIN messages f ON f.session = t.session AND f.loop = t.loop AND f.seq = t.first_seq
    CROSS JOIN LATERAL (
        SELECT
            sum(loopstore_number(loopstore_value(loopstore_value(j.json, 'usage'), 'input'))) AS input,
            sum(loopstore_number(loopstore_value(loopstore_value(j.json, 'usage'), 'output'))) AS output
        FROM messages m
            LEFT JOIN packed_heads h ON h.session = m.session AND h.loop = m.loop AND h.seq = m.seq
            CROSS JOIN LATERAL loopstore_json(coalesce(m.head, h.head)) j (json)
        WHERE m.session = t.session AND m.loop = t.loop AND m.seq >= t.first_seq
            AND m.seq < t.end_seq AND m.role = 1
    ) u;

-- Messages. turn is NULL before the first turn. text is NULL for an extension, whose payload contains
-- everything, and for a message without text blocks. payload is NULL if the message was redacted or archived.
CREATE VIEW v_messages AS
SELECT
    s.session_id, l.loop_id, m.seq, m.turn, t.turn_index,
    CASE m.role
        WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' WHEN 2 THEN 'toolResult' ELSE 'extension'
    END AS role,
    m.text, m.tokens, m.bytes,
    loopstore_time(m.created_at) AS created_at,
    m.payload,
    CASE m.author WHEN 0 THEN 'human' WHEN 1 THEN 'agent' ELSE 'harness' END AS author
FROM sessions s
    JOIN loops l ON l.session = s.session
    JOIN message_content m ON m.session = l.session AND m.loop = l.key
    LEFT JOIN turns t ON t.session = m.session AND t.loop = m.loop AND t.turn = m.turn;

-- Tool calls with their results. The result is the first one with the id of the call in the same turn, or
-- else in a later turn of the loop, or else in a later loop of the session. result_loop_id is the loop of the
-- result.
CREATE VIEW v_tool_calls AS
SELECT
    s.session_id, l.loop_id, m.turn,
    call.id AS tool_call_id,
    loopstore_text(loopstore_value(call.value, 'name')) AS tool_name,
    (call.value -> 'arguments')::TEXT AS arguments,
    m.seq AS call_seq,
    r.seq AS result_seq,
    r.text AS result_text,
    CASE (loopstore_value(r.json, 'isError'))::TEXT WHEN 'true' THEN 1 WHEN 'false' THEN 0 END AS is_error,
    n.loop_id AS result_loop_id
FROM sessions s
    JOIN loops l ON l.session = s.session
    JOIN messages m ON m.session = l.session AND m.loop = l.key AND m.role = 1
    LEFT JOIN packed_heads p ON p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
    CROSS JOIN LATERAL loopstore_json(coalesce(m.head, p.head)) h (json)
    CROSS JOIN LATERAL (
        SELECT item.value, item.place, loopstore_text(loopstore_value(item.value, 'id')) AS id
        FROM json_array_elements(
            CASE json_typeof(loopstore_value(h.json, 'content'))
                WHEN 'array' THEN h.json -> 'content' ELSE '[]' END
        ) WITH ORDINALITY AS item (value, place)
        WHERE loopstore_text(loopstore_value(item.value, 'type')) = 'toolCall'
    ) call
    LEFT JOIN LATERAL (
        SELECT x.* FROM (
            SELECT 1 AS rank, x.loop, t.turn, x.seq
            FROM turn_bounds t JOIN messages x ON x.session = t.session AND x.loop = t.loop
                AND x.seq > m.seq AND x.seq < t.end_seq
                LEFT JOIN packed_heads h ON h.session = x.session AND h.loop = x.loop AND h.seq = x.seq
            WHERE t.session = l.session AND t.loop = l.key AND t.turn = m.turn AND x.role = 2
                AND loopstore_text(loopstore_value(loopstore_json(coalesce(x.head, h.head)), 'toolCallId')) = call.id
            UNION ALL
            -- A turn that answers a call of another turn contains [loop,turn] of that turn. Few turns do.
            SELECT 2, x.loop, t.turn, x.seq
            FROM turn_bounds t JOIN messages x ON x.session = t.session AND x.loop = t.loop
                AND x.seq >= t.first_seq AND x.seq < t.end_seq
                LEFT JOIN packed_heads h ON h.session = x.session AND h.loop = x.loop AND h.seq = x.seq
            WHERE t.session = l.session AND t.answers IS NOT NULL
                AND (t.loop = l.key AND t.turn > m.turn
                    OR l.open_calls IS NOT NULL AND t.loop > l.key)
                AND strpos(t.answers, '[' || l.key || ',' || m.turn || ']') > 0 AND x.role = 2
                AND loopstore_text(loopstore_value(loopstore_json(coalesce(x.head, h.head)), 'toolCallId')) = call.id
        ) found
        JOIN message_content x
            ON x.session = l.session AND x.loop = found.loop AND x.seq = found.seq
        ORDER BY found.rank, found.loop, found.turn, found.seq LIMIT 1
    ) r ON TRUE
    LEFT JOIN loops n ON n.session = r.session AND n.key = r.loop;

-- Files that tool calls name, from their arguments alone. A call that writes a text has the action written, a
-- call that replaces a part edited; created, edited, deleted and moved come from patches. Command lines of
-- shells are not read, and a call that failed is in the view: see is_error. `loopstore blame` knows both.
CREATE VIEW v_file_changes AS
SELECT
    c.session_id, c.loop_id, c.turn, c.tool_call_id, c.tool_name, file.path, file.action,
    c.call_seq, c.result_seq, c.is_error, c.result_loop_id
FROM v_tool_calls c
    CROSS JOIN LATERAL loopstore_json(c.arguments) a (json)
    CROSS JOIN LATERAL (
        SELECT named.path, CASE WHEN named.old THEN 'edited' ELSE 'written' END AS action
        FROM (
            SELECT
                (SELECT loopstore_text(a.json -> name.key) FROM unnest(ARRAY[
                    'file_path', 'filePath', 'path', 'absolute_path', 'target_file', 'filename',
                    'notebook_path'
                ]) WITH ORDINALITY AS name (key, place)
                WHERE json_typeof(a.json -> name.key) = 'string' ORDER BY name.place LIMIT 1) AS path,
                EXISTS (SELECT 1 FROM unnest(ARRAY[
                    'old_string', 'oldString', 'oldText', 'old_str', 'old_text', 'edits', 'insert_line',
                    'new_source', 'code_edit'
                ]) AS name (key) WHERE (a.json -> name.key) IS NOT NULL) AS old,
                EXISTS (SELECT 1 FROM unnest(ARRAY['content', 'contents', 'file_text']) AS name (key)
                    WHERE json_typeof(a.json -> name.key) = 'string') AS whole
            WHERE json_typeof(a.json) = 'object'
        ) named
        WHERE named.path IS NOT NULL AND (named.old OR named.whole)
        UNION ALL
        SELECT header.path, header.action
        FROM (
            SELECT
                btrim(substr(line.text, strpos(line.text, ':') + 1), E' \t\r') AS path,
                CASE substr(line.text, 5, greatest(strpos(line.text, ':') - 5, 0))
                    WHEN 'Add File' THEN 'created'
                    WHEN 'Update File' THEN 'edited'
                    WHEN 'Delete File' THEN 'deleted'
                    WHEN 'Move to' THEN 'moved'
                END AS action
            FROM regexp_split_to_table(
                CASE WHEN strpos(c.arguments, '*** Begin Patch') > 0 THEN loopstore_patch(a.json) END,
                E'\n'
            ) AS line (text)
            WHERE left(line.text, 4) = '*** '
        ) header
        WHERE header.action IS NOT NULL AND header.path <> ''
    ) file;

-- Commits that tool calls made, as git printed them: `[branch id] subject`. commit_id may be shortened. Only
-- calls whose arguments contain git and commit, cherry-pick or revert are read.
CREATE VIEW v_commits AS
SELECT
    c.session_id, c.loop_id, c.turn, c.tool_call_id,
    made.part[2] AS commit_id,
    nullif(branch.name, 'detached HEAD') AS branch,
    made.part[3] AS subject,
    c.call_seq, c.result_seq, c.result_loop_id
FROM v_tool_calls c
    CROSS JOIN LATERAL (
        SELECT regexp_match(
            btrim(line.text, E' \t\r'),
            -- The part before the id is the branch; it ends at the first `] `.
            '^\[((?:(?!\] )[^[])* )([0-9a-f]{7,64})\] (.*)$'
        ) AS part
        FROM regexp_split_to_table(
            CASE WHEN strpos(c.arguments, 'git') > 0 AND (
                strpos(c.arguments, 'commit') > 0 OR strpos(c.arguments, 'cherry-pick') > 0
                OR strpos(c.arguments, 'revert') > 0
            ) THEN c.result_text END, E'\n') AS line (text)
    ) made
    CROSS JOIN LATERAL btrim(replace(made.part[1], '(root-commit)', '')) AS branch (name)
WHERE made.part IS NOT NULL AND branch.name <> '';

-- The chain of each leaf, from the root (depth 0). A leaf is a loop that no child continues from its last
-- turn, or the current loop of a session.
CREATE VIEW v_chain AS
SELECT s.session_id, f.loop_id AS leaf_loop_id, l.loop_id, c.depth
FROM sessions s
    JOIN leaves f ON f.session = s.session
    CROSS JOIN LATERAL loopstore_chain(f.session, f.key) c
    JOIN loops l ON l.session = f.session AND l.key = c.loop;

-- Compaction runs, one row per attempt. is_live is evaluated at the run's own loop. turns is the number of
-- complete turns that the loop had. config is the requested configuration. reached is the configuration that
-- was reached, if it differs from config.
CREATE VIEW v_compaction_runs AS
SELECT
    s.session_id, r.run_id, l.loop_id, r.trigger, r.strategy, r.round, r.outcome,
    (r.outcome = 'committed' AND coalesce(f.kind <> 'undo', TRUE))::INT AS is_live,
    r.fallback, r.error, r.tokens_before, r.tokens_after, r.bytes_before, r.bytes_after,
    r.messages_before, r.messages_after, r.started_at, r.duration_ms, r.config,
    r.turns, r.scope, r.older_loops, r.counter, r.usage, r.reached
FROM sessions s
    JOIN runs r ON r.session = s.session
    JOIN loops l ON l.session = r.session AND l.key = r.loop
    LEFT JOIN LATERAL (
        SELECT f.kind FROM flips f
        WHERE f.session = r.session AND f.run = r.key AND f.loop + 0 = r.loop
        ORDER BY f.tick DESC, f.key DESC LIMIT 1
    ) f ON TRUE;

-- The events of each run: compactionStarted, then compactionEnded. payload is the whole event as JSON. at is
-- the time of the event.
CREATE VIEW v_compaction_events AS
SELECT
    s.session_id, r.run_id, l.loop_id, r.tick,
    loopstore_text(loopstore_value(event.value, 'type')) AS kind,
    loopstore_text(loopstore_value(event.value, 'timestamp')) AS at,
    event.value::TEXT AS payload
FROM sessions s
    JOIN runs r ON r.session = s.session
    JOIN loops l ON l.session = r.session AND l.key = r.loop
    CROSS JOIN LATERAL loopstore_json(r.events) noted (json)
    CROSS JOIN LATERAL json_array_elements(
        CASE json_typeof(noted.json) WHEN 'array' THEN noted.json ELSE '[]' END
    ) WITH ORDINALITY AS event (value, place)
WHERE json_typeof(event.value) = 'object';

-- Blocks. extends is LOOP#GENERATION of the rollup that a rollup extends. ratio is tokens_block divided by
-- tokens_covered. is_active is evaluated at the loop of the block's run. A block of a provider, with opaque
-- items, is active only in contexts for that provider.
CREATE VIEW v_compaction_blocks AS
SELECT
    s.session_id, l.loop_id, b.generation, r.run_id, b.kind,
    base_loop.loop_id || '#' || base.generation AS extends,
    b.first_start AS keep_first_start, b.first_end AS keep_first_end,
    b.compacted_start AS keep_compacted_start, b.compacted_end AS keep_compacted_end,
    b.recent_start AS keep_recent_start, b.recent_end AS keep_recent_end,
    b.tokens_covered, b.tokens_block,
    b.tokens_block::DOUBLE PRECISION / nullif(b.tokens_covered, 0) AS ratio,
    CASE
        WHEN b.kind LIKE 'sealed:%' THEN (coalesce(
            (SELECT f.kind <> 'undo' FROM flips f
             WHERE f.session = r.session AND f.run = r.key AND f.loop + 0 = r.loop
             ORDER BY f.tick DESC, f.key DESC LIMIT 1),
            TRUE
        ) AND NOT EXISTS (
            SELECT 1 FROM blocks n
            WHERE n.session = b.session AND n.loop = b.loop AND n.generation > b.generation
                AND (n.kind = b.kind OR n.kind NOT LIKE 'sealed:%')
                AND coalesce(
                    (SELECT f.kind <> 'undo' FROM flips f
                     WHERE f.session = n.session AND f.run = n.run AND f.loop + 0 = r.loop
                     ORDER BY f.tick DESC, f.key DESC LIMIT 1),
                    TRUE
                )
        ))::INT
        ELSE (b.key = ANY (leaf.active))::INT
    END AS is_active,
    b.created_at
FROM sessions s
    -- The active blocks are the same for all runs of a loop.
    JOIN LATERAL (
        SELECT n.loop, ARRAY(SELECT a.block FROM loopstore_active_blocks(n.session, n.loop) a) AS active
        FROM runs n WHERE n.session = s.session GROUP BY n.session, n.loop
    ) leaf ON TRUE
    JOIN runs r ON r.session = s.session AND r.loop = leaf.loop
    JOIN blocks b ON b.session = r.session AND b.run = r.key
    JOIN loops l ON l.session = b.session AND l.key = b.loop
    LEFT JOIN blocks base ON base.session = b.session AND base.key = b.extends
    LEFT JOIN loops base_loop ON base_loop.session = base.session AND base_loop.key = base.loop;

-- Edits. from_turn and to_turn are the turns of the first and the last message. part is NULL for whole messages.
-- is_live is evaluated at the loop of the run.
CREATE VIEW v_edits AS
SELECT
    s.session_id, r.run_id, l.loop_id,
    (SELECT m.turn FROM messages m
     WHERE m.session = e.session AND m.loop = e.loop AND m.seq = e.from_seq) AS from_turn,
    (SELECT m.turn FROM messages m
     WHERE m.session = e.session AND m.loop = e.loop AND m.seq = e.to_seq) AS to_turn,
    e.from_seq, e.to_seq, e.part, e.action,
    loopstore_body(e.text, e.escaped) AS text, e.tokens_before, e.tokens_after,
    (r.outcome = 'committed' AND coalesce(
        (SELECT f.kind <> 'undo' FROM flips f
         WHERE f.session = r.session AND f.run = r.key AND f.loop + 0 = r.loop
         ORDER BY f.tick DESC, f.key DESC LIMIT 1),
        TRUE
    ))::INT AS is_live,
    r.started_at AS created_at
FROM sessions s
    JOIN runs r ON r.session = s.session
    JOIN edits e ON e.session = r.session AND e.run = r.key
    JOIN loops l ON l.session = e.session AND l.key = e.loop;

-- Pins and unpins of messages. pinned is 1 or 0. author is the author of the message. from_loop_id and
-- from_turns are the leaf and its number of complete turns when the row was made. is_last is 1 for the newest
-- row of a message.
CREATE VIEW v_pins AS
SELECT
    s.session_id, l.loop_id, m.turn, p.seq,
    (p.kind = 'pin')::INT AS pinned,
    CASE m.author WHEN 0 THEN 'human' WHEN 1 THEN 'agent' WHEN 2 THEN 'harness' END AS author,
    p.at AS created_at,
    (NOT EXISTS (
        SELECT 1 FROM pins n
        WHERE n.session = p.session AND n.message_loop = p.message_loop AND n.seq = p.seq
            AND (n.tick > p.tick OR (n.tick = p.tick AND n.key > p.key))
    ))::INT AS is_last,
    f.loop_id AS from_loop_id, p.turns AS from_turns
FROM sessions s
    JOIN pins p ON p.session = s.session
    JOIN loops l ON l.session = p.session AND l.key = p.message_loop
    JOIN loops f ON f.session = p.session AND f.key = p.loop
    LEFT JOIN messages m ON m.session = p.session AND m.loop = p.message_loop AND m.seq = p.seq;

-- The record of what blocks did with the messages that they cover. block_loop_id is the loop of the block.
-- loop_id is the loop of the covered messages.
CREATE VIEW v_coverage AS
SELECT
    s.session_id, h.loop_id AS block_loop_id, b.generation, l.loop_id,
    c.from_seq, c.to_seq, c.from_turn, c.to_turn, c.disposition
FROM sessions s
    JOIN loops h ON h.session = s.session
    JOIN blocks b ON b.session = h.session AND b.loop = h.key
    JOIN coverage c ON c.session = b.session AND c.block = b.key
    JOIN loops l ON l.session = c.session AND l.key = c.loop;

-- The context that the next model call of each leaf would see, part by part in order. rollup is the text of
-- the active rollup. first, compacted and recent are the sections of the active block of a loop. tail
-- contains the turns after the block. raw is a loop without a block. Parts without messages are omitted.
CREATE VIEW v_context AS
SELECT
    s.session_id, f.loop_id AS leaf_loop_id, part.ordinal, l.loop_id, part.section, part.from_turn,
    part.to_turn, part.messages, part.tokens
FROM sessions s
    JOIN leaves f ON f.session = s.session
    CROSS JOIN LATERAL loopstore_parts(f.session, f.key) part
    JOIN loops l ON l.session = f.session AND l.key = part.loop;

-- Internal. The usage that an answer's provider reported. No row if the answer contains none.
CREATE FUNCTION loopstore_reported(head TEXT)
RETURNS TABLE (model TEXT, input DOUBLE PRECISION, output DOUBLE PRECISION, cache_read DOUBLE PRECISION,
    cache_write DOUBLE PRECISION, reasoning DOUBLE PRECISION, total DOUBLE PRECISION, cost DOUBLE PRECISION)
LANGUAGE sql IMMUTABLE AS $$
    SELECT
        loopstore_text(loopstore_value(j.json, 'model')) AS model,
        loopstore_number(loopstore_value(v.usage, 'input')) AS input,
        loopstore_number(loopstore_value(v.usage, 'output')) AS output,
        loopstore_number(loopstore_value(v.usage, 'cache_read')) AS cache_read,
        loopstore_number(loopstore_value(v.usage, 'cache_write')) AS cache_write,
        loopstore_number(loopstore_value(v.usage, 'reasoning')) AS reasoning,
        CASE json_typeof(loopstore_value(v.usage, 'total_tokens'))
            WHEN 'number' THEN loopstore_number(loopstore_value(v.usage, 'total_tokens'))
            ELSE loopstore_number(loopstore_value(v.usage, 'input'))
                + loopstore_number(loopstore_value(v.usage, 'output'))
                + loopstore_number(loopstore_value(v.usage, 'cache_read'))
                + loopstore_number(loopstore_value(v.usage, 'cache_write'))
        END AS total,
        CASE json_typeof(loopstore_value(v.usage, 'cost'))
            WHEN 'object' THEN loopstore_number(loopstore_value(v.usage -> 'cost', 'total'))
            ELSE loopstore_number(loopstore_value(v.usage, 'cost'))
        END AS cost
    FROM loopstore_json(head) j (json)
        CROSS JOIN LATERAL loopstore_value(j.json, 'usage') v (usage)
    WHERE json_typeof(v.usage) = 'object'
$$;

-- Internal. The usage that providers reported, one row per answer.
CREATE VIEW reported_usage AS
SELECT m.session, m.loop, m.seq, u.model, u.input, u.output, u.cache_read, u.cache_write, u.reasoning,
    u.total, u.cost
FROM messages m
    LEFT JOIN packed_heads p ON p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
    CROSS JOIN LATERAL loopstore_reported(coalesce(m.head, p.head)) u
WHERE m.role = 1;

-- Tokens that providers reported, by loop and model. total is the total of the provider, or else the sum of
-- input, output and both caches.
CREATE VIEW v_usage AS
SELECT
    s.session_id, l.loop_id, u.model,
    loopstore_whole(sum(u.input)) AS input,
    loopstore_whole(sum(u.output)) AS output,
    loopstore_whole(sum(u.cache_read)) AS cache_read,
    loopstore_whole(sum(u.cache_write)) AS cache_write,
    loopstore_whole(sum(u.reasoning)) AS reasoning,
    loopstore_whole(sum(u.total)) AS total
FROM sessions s
    JOIN loops l ON l.session = s.session
    JOIN reported_usage u ON u.session = l.session AND u.loop = l.key
GROUP BY s.session_id, l.loop_id, u.model;

-- Internal. The usage that providers reported for a session and all sessions below it. These sessions may be
-- on several nodes, and no single statement can follow references across nodes, so that the function reads
-- one level after another. Sessions that were already found are skipped, so that a cycle ends. The function
-- reads tables and no views, because a node grants rights on tables only.
CREATE FUNCTION loopstore_usage_below(of_session BIGINT, of_id TEXT)
RETURNS TABLE (sessions BIGINT, input DOUBLE PRECISION, output DOUBLE PRECISION, total DOUBLE PRECISION,
    cost DOUBLE PRECISION)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    met BIGINT[] := ARRAY[of_session];
    ids TEXT[] := ARRAY[of_id];
    next BIGINT[];
    one BIGINT;
    own RECORD;
BEGIN
    LOOP
        SELECT array_agg(c.session), array_agg(c.session_id) INTO next, ids
        FROM sessions c WHERE c.started_by = ANY (ids) AND c.session <> ALL (met);
        EXIT WHEN next IS NULL;
        met := met || next;
    END LOOP;
    sessions := cardinality(met);
    input := 0;
    output := 0;
    total := 0;
    cost := 0;
    FOREACH one IN ARRAY met LOOP
        SELECT coalesce(sum(u.input), 0) AS input, coalesce(sum(u.output), 0) AS output,
            coalesce(sum(u.total), 0) AS total, coalesce(sum(u.cost), 0) AS cost
        INTO own
        FROM messages m
            LEFT JOIN packed_heads p ON p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
            CROSS JOIN LATERAL loopstore_reported(coalesce(m.head, p.head)) u
        WHERE m.session = one AND m.role = 1;
        input := input + own.input;
        output := output + own.output;
        total := total + own.total;
        cost := cost + own.cost;
    END LOOP;
    RETURN NEXT;
END
$$;

-- Sessions as a tree: the session, loop and tool call that started each session, and the usage that providers
-- reported for it. Columns that begin with tree_ include all sessions below it. cost is the sum of usage.cost
-- (or usage.cost.total), in the currency of the provider.
CREATE VIEW v_session_tree AS
SELECT
    s.session_id,
    s.started_by AS parent_session_id,
    loopstore_text(loopstore_value(spawn.ref, 'parent_loop_id')) AS parent_loop_id,
    loopstore_text(loopstore_value(spawn.ref, 'tool_call_id')) AS tool_call_id,
    loopstore_whole(own.input) AS input,
    loopstore_whole(own.output) AS output,
    loopstore_whole(own.total) AS total,
    coalesce(own.cost, 0) AS cost,
    tree.sessions AS tree_sessions,
    loopstore_whole(tree.input) AS tree_input,
    loopstore_whole(tree.output) AS tree_output,
    loopstore_whole(tree.total) AS tree_total,
    coalesce(tree.cost, 0) AS tree_cost
FROM sessions s
    CROSS JOIN LATERAL loopstore_value(loopstore_json(s.meta), 'parent_spawn_ref') spawn (ref)
    CROSS JOIN LATERAL (
        SELECT sum(u.input) AS input, sum(u.output) AS output, sum(u.total) AS total, sum(u.cost) AS cost
        FROM reported_usage u WHERE u.session = s.session
    ) own
    CROSS JOIN LATERAL loopstore_usage_below(s.session, s.session_id) tree;

-- Manifests: the messages that a model received. sha256 is the hash of the digests of the messages, in order.
-- parts is a JSON array in order: {loop, section, generation, from_seq, to_seq, messages}. A part without
-- sequences consists of the messages of the block of that generation.
CREATE VIEW v_manifests AS
SELECT
    s.session_id, m.manifest_id, l.loop_id, m.recorded_at, m.older_loops, m.messages, m.tokens,
    m.bytes, m.counter, encode(m.sha256, 'hex') AS sha256, shown.parts
FROM sessions s
    JOIN manifests m ON m.session = s.session
    JOIN loops l ON l.session = m.session AND l.key = m.loop
    CROSS JOIN LATERAL (
        SELECT '[' || coalesce(string_agg(
            '{"loop":' || coalesce(to_json(n.loop_id)::TEXT, 'null')
            || ',"section":' || (part.value -> 1)::TEXT
            || ',"generation":' || coalesce(b.generation::TEXT, 'null')
            || ',"from_seq":' || (part.value -> 3)::TEXT
            || ',"to_seq":' || (part.value -> 4)::TEXT
            || ',"messages":' || (part.value -> 5)::TEXT || '}',
            ',' ORDER BY part.place
        ), '') || ']' AS parts
        -- The table must come first. If the table is distributed, a join to the rows of a function would read
        -- the whole table, and Citus fails on such a join under row-level security.
        FROM manifests o
            CROSS JOIN LATERAL json_array_elements(loopstore_json(m.parts))
                WITH ORDINALITY AS part (value, place)
            LEFT JOIN loops n ON n.session = m.session AND n.key = (part.value ->> 0)::BIGINT
            LEFT JOIN blocks b ON b.session = m.session AND b.key = (part.value ->> 2)::BIGINT
        WHERE o.session = m.session AND o.key = m.key AND json_typeof(part.value) = 'array'
    ) shown;

-- The receipts of every erasure, redaction, pruning and archiving, including those of erased sessions.
-- closed_at is NULL while the operation is unfinished. messages and sources count the redacted messages and
-- the removed kept files. detail is JSON: {receipt, digest}.
CREATE VIEW v_receipts AS
SELECT
    coalesce(
        loopstore_text(loopstore_value(said.receipt, 'session')),
        (SELECT s.session_id FROM sessions s WHERE s.session = m.session)
    ) AS session_id,
    m.key AS receipt, m.kind, m.opened_at, m.closed_at,
    loopstore_text(loopstore_value(said.receipt, 'reason')) AS reason,
    CASE json_typeof(gone.messages) WHEN 'array' THEN json_array_length(gone.messages) ELSE 0 END AS messages,
    CASE json_typeof(gone.sources) WHEN 'array' THEN json_array_length(gone.sources) ELSE 0 END AS sources,
    m.detail
FROM maintenance m
    CROSS JOIN LATERAL loopstore_value(loopstore_json(m.detail), 'receipt') said (receipt)
    CROSS JOIN LATERAL (
        SELECT loopstore_value(said.receipt, 'messages') AS messages,
            loopstore_value(said.receipt, 'sources') AS sources
    ) gone;
