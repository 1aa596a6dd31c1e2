-- The tables of a loopstore database in PostgreSQL.
--
-- `session`, the integer key of a session, leads every primary key and every reference but those of
-- session_names (found by public id), sources (a file may hold many sessions) and store_meta, so that
-- the tables can be partitioned or distributed by it. It holds the milliseconds of its birth; the key
-- of a loop, run, block, flip, manifest, blob, call or receipt is (session << 23) | number, so that
-- whoever has a key knows its session, and no key comes from a central sequence. Turn numbers are
-- positions of turn groups, from 0.

CREATE TABLE store_meta (
    -- What the value is: token_counter, import_key, created_at.
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE sessions (
    session        BIGINT PRIMARY KEY CHECK (session > 0 AND session < 1::BIGINT << 40),
    session_id     TEXT NOT NULL CHECK (session_id <> ''),
    agent_id       TEXT,
    title          TEXT,
    created_at     TEXT,
    last_active_at TEXT,
    -- The loop last appended to or created.
    current_loop   BIGINT,
    -- Raised by every committed append, loop start, run, undo and redo.
    tick           BIGINT NOT NULL DEFAULT 0,
    -- The format that the session was imported from.
    source         TEXT,
    -- The public id of the session that started this one.
    started_by     TEXT,
    -- The interchange form without its loops.
    meta           TEXT NOT NULL
);
CREATE INDEX sessions_started_by ON sessions (started_by) WHERE started_by IS NOT NULL;
CREATE INDEX sessions_active ON sessions (last_active_at COLLATE "C" DESC NULLS LAST, session DESC);

-- Public ids, each once: a table that is distributed by session cannot promise that.
CREATE TABLE session_names (
    session_id TEXT PRIMARY KEY,
    session    BIGINT NOT NULL
);

CREATE TABLE loops (
    session         BIGINT NOT NULL REFERENCES sessions,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    loop_id         TEXT NOT NULL CHECK (loop_id <> ''),
    -- A parent is always stored before its children, so that no cycle can exist.
    parent          BIGINT CHECK (parent < key),
    -- The parent as the source names it; it may lie in another session.
    parent_loop_id  TEXT,
    -- Last turn of the parent that belongs to this chain; NULL: none.
    parent_turn     BIGINT,
    kind            TEXT NOT NULL,
    status          TEXT NOT NULL,
    started_at      TEXT,
    ended_at        TEXT,
    tick            BIGINT NOT NULL,
    -- Rows in messages, extensions included.
    next_seq        BIGINT NOT NULL DEFAULT 0,
    -- Messages before this sequence are sealed.
    sealed_seq      BIGINT NOT NULL DEFAULT 0,
    turns           BIGINT NOT NULL DEFAULT 0,
    -- Turns that are not in flight.
    complete        BIGINT NOT NULL DEFAULT 0,
    messages        BIGINT NOT NULL DEFAULT 0,
    tokens          BIGINT NOT NULL DEFAULT 0,
    bytes           BIGINT NOT NULL DEFAULT 0,
    -- Tokens of extensions of kind system: the default of the system prompt's size.
    system_tokens   BIGINT NOT NULL DEFAULT 0,
    -- The newest generation of a block on this loop.
    generation      BIGINT NOT NULL DEFAULT 0,
    -- The source's turn index of the last group.
    last_turn_index BIGINT,
    -- Calls without a result: {"call id": turn}; NULL: none.
    open_calls      TEXT,
    -- Digest chain up to the last message.
    chain           BYTEA NOT NULL,
    -- The interchange form without messages, turns and events.
    meta            TEXT NOT NULL,
    -- Recorded turns and events, in which a message that is stored stands as its sequence.
    history         TEXT,
    PRIMARY KEY (session, key),
    UNIQUE (session, loop_id),
    FOREIGN KEY (session, parent) REFERENCES loops (session, key)
);
CREATE INDEX loops_parent ON loops (session, parent) WHERE parent IS NOT NULL;
CREATE INDEX loops_at_work ON loops (session, key) WHERE status IN ('Pending', 'Running');
-- Sessions that go on from a loop of another one.
CREATE INDEX loops_elsewhere ON loops (parent_loop_id)
    WHERE parent IS NULL AND parent_loop_id IS NOT NULL;

CREATE TABLE turns (
    session      BIGINT NOT NULL,
    loop         BIGINT NOT NULL,
    turn         BIGINT NOT NULL,
    first_seq    BIGINT NOT NULL,
    -- Totals of the loop from its start through this turn; extensions do not count.
    messages     BIGINT NOT NULL,
    prompts      BIGINT NOT NULL,
    tokens       BIGINT NOT NULL,
    bytes        BIGINT NOT NULL,
    turn_index   BIGINT,
    -- Whether the model answered.
    answered     BOOLEAN NOT NULL,
    -- Other turns that hold a call answered here: [[loop, turn], …]; NULL: none.
    answers      TEXT,
    -- Tick of the last append to this turn.
    tick         BIGINT NOT NULL,
    -- Milliseconds since the epoch of its first and last message.
    started_at   BIGINT,
    ended_at     BIGINT,
    PRIMARY KEY (session, loop, turn),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
-- Calls are nearly always answered in their own turn.
CREATE INDEX turns_answers ON turns (session, loop, turn) WHERE answers IS NOT NULL;

CREATE TABLE messages (
    session    BIGINT NOT NULL,
    loop       BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    -- NULL for an extension before the first turn.
    turn       BIGINT,
    -- 0 user, 1 assistant, 2 tool result, 3 extension
    role       BIGINT NOT NULL CHECK (role BETWEEN 0 AND 3),
    tick       BIGINT NOT NULL,
    tokens     BIGINT NOT NULL,
    -- Size of the message's JSON.
    bytes      BIGINT NOT NULL,
    -- Lines of the longest text of a tool result.
    lines      BIGINT,
    -- Milliseconds since the epoch.
    created_at BIGINT,
    -- The content block whose text stands in body.
    body_block BIGINT,
    -- Digest of the record that the message was imported from, keyed with import_key.
    origin     BYTEA,
    salt       BYTEA,
    -- SHA-256 of salt and stored bytes, and the chain of these through the loop.
    digest     BYTEA NOT NULL,
    chain      BYTEA NOT NULL,
    -- The interchange form, its largest text left empty; NULL when redacted or archived.
    head       TEXT,
    body       TEXT,
    -- Whether body holds U+0000, which PostgreSQL does not take: there U+0001 and '0' stand for it,
    -- and U+0001 and '1' for U+0001.
    escaped    BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (session, loop, seq),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- Images and other binary content, once in a session however often they appear there.
CREATE TABLE blobs (
    session BIGINT NOT NULL REFERENCES sessions,
    key     BIGINT NOT NULL CHECK (key >> 23 = session),
    sha256  BYTEA NOT NULL,
    bytes   BIGINT NOT NULL,
    data    BYTEA NOT NULL,
    PRIMARY KEY (session, key),
    UNIQUE (session, sha256)
);
-- What is in blobs is compressed already.
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX blobs_sha256 ON blobs (sha256);

-- Who shows a blob: a message, by loop and sequence, or with in_block the messages of a block.
CREATE TABLE blob_refs (
    session  BIGINT NOT NULL,
    owner    BIGINT NOT NULL,
    number   BIGINT NOT NULL,
    in_block BOOLEAN NOT NULL,
    blob     BIGINT NOT NULL,
    PRIMARY KEY (session, owner, number, in_block, blob),
    FOREIGN KEY (session, blob) REFERENCES blobs (session, key)
);
CREATE INDEX blob_refs_blob ON blob_refs (session, blob);

CREATE TABLE runs (
    session         BIGINT NOT NULL REFERENCES sessions,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    run_id          TEXT NOT NULL CHECK (run_id <> '' AND strpos(run_id, ':') = 0),
    -- The point: the leaf, and its complete turns in the plan.
    loop            BIGINT NOT NULL,
    turns           BIGINT NOT NULL,
    tick            BIGINT NOT NULL,
    trigger         TEXT NOT NULL,
    strategy        TEXT NOT NULL,
    round           BIGINT NOT NULL,
    outcome         TEXT NOT NULL CHECK (outcome IN ('committed', 'no_gain', 'vetoed', 'failed', 'conflict')),
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
    -- The whole configuration as JSON.
    config          TEXT NOT NULL,
    -- Tokens that summarisers reported, as JSON.
    usage           TEXT,
    -- Digest of layouts, inputs, strategy and text-shaping configuration.
    plan            BYTEA NOT NULL,
    -- What another tool recorded of its own compaction.
    record          TEXT,
    -- The events of the run, as JSON: compactionStarted and compactionEnded.
    events          TEXT,
    digest          BYTEA NOT NULL,
    PRIMARY KEY (session, key),
    UNIQUE (session, run_id),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX runs_loop ON runs (session, loop, tick);
CREATE INDEX runs_tick ON runs (session, tick, key);

CREATE TABLE flips (
    session BIGINT NOT NULL REFERENCES sessions,
    key     BIGINT NOT NULL CHECK (key >> 23 = session),
    run     BIGINT NOT NULL,
    kind    TEXT NOT NULL CHECK (kind IN ('undo', 'redo')),
    -- The point: the leaf, and its complete turns.
    loop    BIGINT NOT NULL,
    turns   BIGINT NOT NULL,
    tick    BIGINT NOT NULL,
    at      TEXT NOT NULL,
    reason  TEXT,
    digest  BYTEA NOT NULL,
    PRIMARY KEY (session, key),
    FOREIGN KEY (session, run) REFERENCES runs (session, key),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX flips_run ON flips (session, run, tick);
CREATE INDEX flips_loop ON flips (session, loop, tick);

CREATE TABLE blocks (
    session         BIGINT NOT NULL REFERENCES sessions,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    loop            BIGINT NOT NULL,
    generation      BIGINT NOT NULL CHECK (generation > 0),
    run             BIGINT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN ('current', 'earlier', 'rollup')),
    -- The rollup that this one goes on from.
    extends         BIGINT,
    -- Turn ranges of the sections, both ends inclusive, NULL when absent.
    first_start     BIGINT,
    first_end       BIGINT,
    compacted_start BIGINT,
    compacted_end   BIGINT,
    recent_start    BIGINT,
    recent_end      BIGINT,
    -- Sequences before this one are covered; later ones are the tail.
    through         BIGINT NOT NULL,
    -- Tokens of what is covered, and what the sections show instead.
    tokens_covered  BIGINT NOT NULL,
    tokens_block    BIGINT NOT NULL,
    bytes_block     BIGINT NOT NULL,
    messages_block  BIGINT NOT NULL,
    strategy        TEXT NOT NULL,
    -- Configuration that shapes the text.
    shaping         TEXT NOT NULL,
    created_at      TEXT NOT NULL,
    -- Fields of a foreign block.
    extra           TEXT,
    -- SHA-256 of this row, its coverage and the digests of its messages.
    digest          BYTEA NOT NULL,
    PRIMARY KEY (session, key),
    UNIQUE (session, loop, generation),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key),
    FOREIGN KEY (session, run) REFERENCES runs (session, key),
    FOREIGN KEY (session, extends) REFERENCES blocks (session, key),
    CHECK ((first_start IS NULL) = (first_end IS NULL)),
    CHECK ((compacted_start IS NULL) = (compacted_end IS NULL)),
    CHECK ((recent_start IS NULL) = (recent_end IS NULL))
);
CREATE INDEX blocks_run ON blocks (session, run);
CREATE INDEX blocks_extends ON blocks (session, extends) WHERE extends IS NOT NULL;

CREATE TABLE block_messages (
    session    BIGINT NOT NULL,
    block      BIGINT NOT NULL,
    ordinal    BIGINT NOT NULL,
    -- 1 compacted, 2 recent
    section    BIGINT NOT NULL CHECK (section IN (1, 2)),
    -- The original that this one replaces.
    replaces   BIGINT,
    -- NULL: the original is dropped.
    role       BIGINT CHECK (role BETWEEN 0 AND 3),
    tokens     BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    body_block BIGINT,
    salt       BYTEA,
    digest     BYTEA NOT NULL,
    head       TEXT,
    body       TEXT,
    -- As in messages.
    escaped    BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (session, block, ordinal),
    FOREIGN KEY (session, block) REFERENCES blocks (session, key)
);

CREATE TABLE coverage (
    session     BIGINT NOT NULL,
    block       BIGINT NOT NULL,
    ordinal     BIGINT NOT NULL,
    loop        BIGINT NOT NULL,
    -- Both ends inclusive; NULL for a loop without messages.
    from_seq    BIGINT,
    to_seq      BIGINT,
    from_turn   BIGINT,
    to_turn     BIGINT,
    disposition TEXT NOT NULL
        CHECK (disposition IN ('kept', 'truncated', 'summarised', 'dropped', 'rolled_up')),
    PRIMARY KEY (session, block, ordinal),
    FOREIGN KEY (session, block) REFERENCES blocks (session, key),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- Which messages a context was made of, as references and one hash.
CREATE TABLE manifests (
    session     BIGINT NOT NULL REFERENCES sessions,
    key         BIGINT NOT NULL CHECK (key >> 23 = session),
    manifest_id TEXT NOT NULL CHECK (manifest_id <> ''),
    -- The leaf.
    loop        BIGINT NOT NULL,
    -- The moment: everything with this tick or an earlier one had happened.
    tick        BIGINT NOT NULL,
    recorded_at TEXT NOT NULL,
    -- What became of loops before the scope; with skip the first part is where the context begins.
    older_loops TEXT NOT NULL CHECK (older_loops IN ('skip', 'rollup')),
    -- The parts in order: [[loop, section, block, first sequence, last sequence, messages], …].
    -- Without sequences the messages are those of the block.
    parts       TEXT NOT NULL,
    messages    BIGINT NOT NULL,
    tokens      BIGINT NOT NULL,
    bytes       BIGINT NOT NULL,
    -- What the tokens were counted with.
    counter     TEXT NOT NULL,
    -- SHA-256 over the digests of the messages in order.
    sha256      BYTEA NOT NULL,
    digest      BYTEA NOT NULL,
    PRIMARY KEY (session, key),
    UNIQUE (session, manifest_id),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

CREATE TABLE imports (
    session     BIGINT NOT NULL REFERENCES sessions,
    number      BIGINT NOT NULL,
    format      TEXT NOT NULL,
    path        TEXT NOT NULL,
    file_name   TEXT NOT NULL,
    -- The record's own key, for formats whose sessions have no id.
    record_key  TEXT,
    imported_at TEXT NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE INDEX imports_identity ON imports (format, file_name, record_key);

-- The receipts of everything that removed content. A session that was erased keeps its receipts, so
-- there is no reference to it.
CREATE TABLE maintenance (
    session   BIGINT NOT NULL,
    key       BIGINT NOT NULL CHECK (key >> 23 = session),
    kind      TEXT NOT NULL CHECK (kind IN ('erase', 'redact', 'prune', 'archive')),
    opened_at TEXT NOT NULL,
    closed_at TEXT,
    detail    TEXT NOT NULL,
    PRIMARY KEY (session, key)
);
CREATE INDEX maintenance_open ON maintenance (session) WHERE closed_at IS NULL;

-- A message that was redacted keeps its digest and its place in the chain, and loses the salt. What
-- stands there now has a digest of its own.
CREATE TABLE redactions (
    session  BIGINT NOT NULL,
    -- A message, by loop and sequence, or with in_block a message of a block.
    owner    BIGINT NOT NULL,
    number   BIGINT NOT NULL,
    in_block BOOLEAN NOT NULL,
    -- The receipt of the last redaction that changed it.
    receipt  BIGINT NOT NULL,
    -- SHA-256 of salt and stored bytes, as messages have it.
    salt     BYTEA NOT NULL,
    digest   BYTEA NOT NULL,
    PRIMARY KEY (session, owner, number, in_block),
    FOREIGN KEY (session, receipt) REFERENCES maintenance (session, key)
);

-- What was decided about a session.
CREATE TABLE session_flags (
    session   BIGINT PRIMARY KEY REFERENCES sessions,
    -- ISO-8601 text: since when prune leaves it alone; NULL: it does not.
    pinned_at TEXT,
    -- Whether what is imported into it is redacted first.
    redacts   BOOLEAN NOT NULL DEFAULT FALSE
);

-- Who may write to a loop. A row stays when its lease is let go, so that a token is never given
-- twice.
CREATE TABLE leases (
    session    BIGINT NOT NULL,
    loop       BIGINT NOT NULL,
    owner      TEXT NOT NULL,
    -- Raised each time that the lease is taken, or taken away.
    token      BIGINT NOT NULL CHECK (token > 0),
    -- Milliseconds.
    ttl        BIGINT NOT NULL CHECK (ttl > 0),
    -- Milliseconds since the epoch, by the clock of whoever wrote them.
    renewed_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    -- Whether the holder has let it go, or it was taken away.
    released   BOOLEAN NOT NULL,
    PRIMARY KEY (session, loop),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- Tool calls, written before the tool runs.
CREATE TABLE started_calls (
    session         BIGINT NOT NULL,
    key             BIGINT NOT NULL CHECK (key >> 23 = session),
    loop            BIGINT NOT NULL,
    call_id         TEXT NOT NULL,
    -- Counts the calls of the loop with this id from 0: some models number theirs anew each turn.
    nth             BIGINT NOT NULL,
    tool_name       TEXT NOT NULL,
    -- JSON. NULL once the result is stored: the message of the call has them.
    arguments       TEXT,
    idempotency_key TEXT NOT NULL,
    -- The source's index of the turn.
    turn_index      BIGINT,
    -- ISO-8601 text; when it was first started.
    started_at      TEXT NOT NULL,
    -- How often it was started.
    attempts        BIGINT NOT NULL,
    -- ISO-8601 text; NULL: there is no result.
    finished_at     TEXT,
    PRIMARY KEY (session, key),
    UNIQUE (session, loop, call_id, nth),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
CREATE INDEX started_calls_open ON started_calls (session, key) WHERE finished_at IS NULL;

-- Turns and events of a loop that runs, in which a stored message stands as its sequence. When the
-- loop ends they go into loops.history.
CREATE TABLE notes (
    session BIGINT NOT NULL,
    loop    BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    -- 0 an event, 1 a turn
    kind    BIGINT NOT NULL CHECK (kind IN (0, 1)),
    note    TEXT NOT NULL,
    PRIMARY KEY (session, loop, ordinal),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- The files that sessions were imported from, byte for byte. A file may hold many sessions, so these
-- tables are by file. `key` holds the milliseconds of its birth.
CREATE TABLE sources (
    key     BIGINT PRIMARY KEY,
    format  TEXT NOT NULL,
    -- The whole path of the file.
    path    TEXT NOT NULL,
    bytes   BIGINT NOT NULL,
    -- SHA-256 of the SHA-256 of each part, in order.
    digest  BYTEA NOT NULL,
    -- When it last came with something new.
    kept_at TEXT NOT NULL
);

-- Which sessions a file holds something of.
CREATE TABLE source_sessions (
    session BIGINT NOT NULL,
    source  BIGINT NOT NULL,
    PRIMARY KEY (session, source)
);
CREATE INDEX source_sessions_source ON source_sessions (source);

CREATE TABLE source_pieces (
    source BIGINT NOT NULL REFERENCES sources,
    -- Of the bytes as they stood in the file, and how many these are.
    sha256 BYTEA NOT NULL,
    bytes  BIGINT NOT NULL,
    -- The bytes as raw DEFLATE.
    data   BYTEA NOT NULL,
    PRIMARY KEY (source, sha256)
);
ALTER TABLE source_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX source_pieces_sha256 ON source_pieces (sha256);

CREATE TABLE source_parts (
    source BIGINT NOT NULL,
    number BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    PRIMARY KEY (source, number),
    FOREIGN KEY (source, sha256) REFERENCES source_pieces
);
CREATE INDEX source_parts_sha256 ON source_parts (source, sha256);

-- The index of messages is no part of the record: an append never writes it, and it can be made anew
-- at any time. loopstore itself splits text into words.
CREATE TABLE message_words (
    session BIGINT NOT NULL,
    loop    BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    -- The words in order, a space before and after each: what a phrase is looked for in.
    words   TEXT NOT NULL,
    -- The same words, each once, for the index to find where a phrase can be.
    lexemes TSVECTOR NOT NULL,
    -- The tools that the message calls or answers for.
    tools   TEXT[] NOT NULL,
    PRIMARY KEY (session, loop, seq)
);
CREATE INDEX message_words_lexemes ON message_words USING gin (lexemes);

CREATE TABLE indexed_loops (
    session     BIGINT NOT NULL,
    loop        BIGINT NOT NULL,
    -- Messages before this sequence are in the index.
    indexed_seq BIGINT NOT NULL,
    PRIMARY KEY (session, loop)
);

-- Where the tick of a session is still this one, none of its messages is missing in the index.
CREATE TABLE indexed_sessions (
    session BIGINT PRIMARY KEY,
    tick    BIGINT NOT NULL
);

CREATE TABLE index_state (
    key     BIGINT PRIMARY KEY CHECK (key = 1),
    -- The version of the rule that splits text into words.
    version BIGINT NOT NULL
);

-- Originals are immutable. An insert over a stored row is an update or fails on its primary key, so
-- the triggers look at updates and deletes. The functions have a search path of their own: a temporary
-- table of a caller must not stand in for `maintenance`.

CREATE FUNCTION loopstore_is_open(which BIGINT) RETURNS BOOLEAN
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM maintenance WHERE session = which AND closed_at IS NULL)
$$;

-- Lets a row go or change only while a receipt of its session is open.
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

-- Whether what stands at a sequence of a loop may go: it is not sealed, or a receipt is open.
CREATE FUNCTION loopstore_may_go(which BIGINT, in_loop BIGINT, seq BIGINT) RETURNS BOOLEAN
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM loops WHERE session = which AND key = in_loop AND sealed_seq <= seq)
        OR loopstore_is_open(which)
$$;

-- LOOP is a word of PL/pgSQL, so that the column stands in quotes.
CREATE FUNCTION loopstore_message_goes() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_may_go(OLD.session, OLD."loop", OLD.seq) THEN
        RAISE EXCEPTION 'a sealed message is never deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION loopstore_turn_goes() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_may_go(OLD.session, OLD."loop", OLD.first_seq) THEN
        RAISE EXCEPTION 'a sealed turn is never deleted' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;

-- What hangs on a message goes with it; what hangs on a block only with a receipt.
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

CREATE TRIGGER messages_no_update BEFORE UPDATE ON messages FOR EACH ROW
WHEN ((NEW.session, NEW.loop, NEW.seq, NEW.turn, NEW.role, NEW.tick, NEW.created_at, NEW.body_block,
        NEW.origin, NEW.salt, NEW.digest, NEW.chain, NEW.head, NEW.body, NEW.escaped)
    IS DISTINCT FROM (OLD.session, OLD.loop, OLD.seq, OLD.turn, OLD.role, OLD.tick, OLD.created_at,
        OLD.body_block, OLD.origin, OLD.salt, OLD.digest, OLD.chain, OLD.head, OLD.body, OLD.escaped))
EXECUTE FUNCTION loopstore_only_with_receipt('a stored message is never changed');
CREATE TRIGGER messages_no_delete BEFORE DELETE ON messages FOR EACH ROW
EXECUTE FUNCTION loopstore_message_goes();

CREATE TRIGGER turns_stay BEFORE UPDATE ON turns FOR EACH ROW
WHEN ((NEW.session, NEW.loop, NEW.turn, NEW.first_seq, NEW.turn_index)
    IS DISTINCT FROM (OLD.session, OLD.loop, OLD.turn, OLD.first_seq, OLD.turn_index))
EXECUTE FUNCTION loopstore_only_with_receipt('a turn never moves');
CREATE TRIGGER turns_no_delete BEFORE DELETE ON turns FOR EACH ROW
EXECUTE FUNCTION loopstore_turn_goes();

CREATE TRIGGER sessions_keep_their_id BEFORE UPDATE ON sessions FOR EACH ROW
WHEN (NEW.session <> OLD.session OR NEW.session_id <> OLD.session_id OR NEW.tick < OLD.tick)
EXECUTE FUNCTION loopstore_only_with_receipt('the id and the clock of a session never go back');
CREATE TRIGGER sessions_no_delete BEFORE DELETE ON sessions FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a session is never deleted');

CREATE TRIGGER session_names_no_update BEFORE UPDATE ON session_names FOR EACH ROW
EXECUTE FUNCTION loopstore_never('the id of a session is never given to another one');
CREATE TRIGGER session_names_no_delete BEFORE DELETE ON session_names FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a session is never deleted');

CREATE TRIGGER loops_stay_sealed BEFORE UPDATE ON loops FOR EACH ROW
WHEN ((NEW.session, NEW.key, NEW.loop_id, NEW.parent, NEW.parent_turn, NEW.tick)
        IS DISTINCT FROM (OLD.session, OLD.key, OLD.loop_id, OLD.parent, OLD.parent_turn, OLD.tick)
    OR NEW.sealed_seq < OLD.sealed_seq)
EXECUTE FUNCTION loopstore_only_with_receipt('the place of a loop in its tree and its seal never change');
CREATE TRIGGER loops_no_delete BEFORE DELETE ON loops FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a loop is never deleted');

CREATE TRIGGER blobs_no_update BEFORE UPDATE ON blobs FOR EACH ROW
EXECUTE FUNCTION loopstore_never('a blob is never changed');
CREATE TRIGGER blobs_no_delete BEFORE DELETE ON blobs FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a blob is never deleted');
CREATE TRIGGER blob_refs_no_update BEFORE UPDATE ON blob_refs FOR EACH ROW
EXECUTE FUNCTION loopstore_never('a reference to a blob is never changed');
CREATE TRIGGER blob_refs_no_delete BEFORE DELETE ON blob_refs FOR EACH ROW
EXECUTE FUNCTION loopstore_owned_goes('a reference to a blob is never deleted');

CREATE TRIGGER runs_stay BEFORE UPDATE OR DELETE ON runs FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a run is never changed');
CREATE TRIGGER flips_stay BEFORE UPDATE OR DELETE ON flips FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('an undo or redo is never changed');

-- Token counts depend on the counter and may be counted anew.
CREATE TRIGGER blocks_no_update BEFORE UPDATE ON blocks FOR EACH ROW
WHEN ((NEW.session, NEW.key, NEW.loop, NEW.generation, NEW.run, NEW.kind, NEW.extends,
        NEW.first_start, NEW.first_end, NEW.compacted_start, NEW.compacted_end, NEW.recent_start,
        NEW.recent_end, NEW.through, NEW.bytes_block, NEW.messages_block, NEW.strategy,
        NEW.shaping, NEW.created_at, NEW.extra, NEW.digest)
    IS DISTINCT FROM (OLD.session, OLD.key, OLD.loop, OLD.generation, OLD.run, OLD.kind, OLD.extends,
        OLD.first_start, OLD.first_end, OLD.compacted_start, OLD.compacted_end, OLD.recent_start,
        OLD.recent_end, OLD.through, OLD.bytes_block, OLD.messages_block, OLD.strategy,
        OLD.shaping, OLD.created_at, OLD.extra, OLD.digest))
EXECUTE FUNCTION loopstore_only_with_receipt('a block is never changed');
CREATE TRIGGER blocks_no_delete BEFORE DELETE ON blocks FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a block is never deleted');
CREATE TRIGGER block_messages_no_update BEFORE UPDATE ON block_messages FOR EACH ROW
WHEN ((NEW.session, NEW.block, NEW.ordinal, NEW.section, NEW.replaces, NEW.role, NEW.body_block,
        NEW.salt, NEW.digest, NEW.head, NEW.body, NEW.escaped)
    IS DISTINCT FROM (OLD.session, OLD.block, OLD.ordinal, OLD.section, OLD.replaces, OLD.role,
        OLD.body_block, OLD.salt, OLD.digest, OLD.head, OLD.body, OLD.escaped))
EXECUTE FUNCTION loopstore_only_with_receipt('a message of a block is never changed');
CREATE TRIGGER block_messages_no_delete BEFORE DELETE ON block_messages FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a message of a block is never deleted');
CREATE TRIGGER coverage_stays BEFORE UPDATE OR DELETE ON coverage FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('coverage is never changed');

CREATE TRIGGER manifests_stay BEFORE UPDATE OR DELETE ON manifests FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a manifest is never changed');
CREATE TRIGGER imports_stay BEFORE UPDATE OR DELETE ON imports FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('the note of an import is never changed');

CREATE TRIGGER maintenance_no_delete BEFORE DELETE ON maintenance FOR EACH ROW
EXECUTE FUNCTION loopstore_never('a receipt is never deleted');
-- Closing is the one change, and may complete the detail.
CREATE TRIGGER maintenance_only_closes BEFORE UPDATE ON maintenance FOR EACH ROW
WHEN (OLD.closed_at IS NOT NULL OR NEW.closed_at IS NULL
    OR (NEW.session, NEW.key, NEW.kind, NEW.opened_at)
        IS DISTINCT FROM (OLD.session, OLD.key, OLD.kind, OLD.opened_at))
EXECUTE FUNCTION loopstore_never('a receipt is never changed');

CREATE TRIGGER redactions_no_update BEFORE UPDATE ON redactions FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('what is left of a redacted message is never changed');
CREATE TRIGGER redactions_no_delete BEFORE DELETE ON redactions FOR EACH ROW
EXECUTE FUNCTION loopstore_owned_goes('what is left of a redacted message is never deleted');

CREATE TRIGGER leases_never_go_back BEFORE UPDATE ON leases FOR EACH ROW
WHEN (NEW.session <> OLD.session OR NEW.loop <> OLD.loop OR NEW.token < OLD.token)
EXECUTE FUNCTION loopstore_never('the token of a lease never goes back');
CREATE TRIGGER leases_no_delete BEFORE DELETE ON leases FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a lease is let go, never deleted');

CREATE TRIGGER started_calls_stay BEFORE UPDATE ON started_calls FOR EACH ROW
WHEN ((NEW.session, NEW.key, NEW.loop, NEW.call_id, NEW.nth, NEW.tool_name, NEW.idempotency_key,
        NEW.started_at)
    IS DISTINCT FROM (OLD.session, OLD.key, OLD.loop, OLD.call_id, OLD.nth, OLD.tool_name,
        OLD.idempotency_key, OLD.started_at)
    OR OLD.finished_at IS NOT NULL
    OR (NEW.arguments IS DISTINCT FROM OLD.arguments AND NEW.finished_at IS NULL))
EXECUTE FUNCTION loopstore_only_with_receipt('a started call is never changed but to finish it');
CREATE TRIGGER started_calls_no_delete BEFORE DELETE ON started_calls FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a started call is never deleted');
CREATE TRIGGER notes_no_update BEFORE UPDATE ON notes FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a note is never changed');

CREATE TRIGGER source_pieces_no_update BEFORE UPDATE ON source_pieces FOR EACH ROW
EXECUTE FUNCTION loopstore_never('a piece of a source is never changed');

-- Without its key a database cannot tell a record that it knows from a new one.
CREATE TRIGGER store_meta_no_update BEFORE UPDATE ON store_meta FOR EACH ROW
WHEN (OLD.name IN ('import_key', 'created_at') OR NEW.name <> OLD.name)
EXECUTE FUNCTION loopstore_never('the key and the birth of a database never change');
CREATE TRIGGER store_meta_no_delete BEFORE DELETE ON store_meta FOR EACH ROW
WHEN (OLD.name NOT IN ('recount', 'scrub'))
EXECUTE FUNCTION loopstore_never('what a database is written with is never deleted');

-- TRUNCATE fires no trigger for rows.
DO $$
DECLARE
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY['store_meta', 'sessions', 'session_names', 'loops', 'turns', 'messages',
        'blobs', 'blob_refs', 'runs', 'flips', 'blocks', 'block_messages', 'coverage', 'manifests',
        'imports', 'maintenance', 'redactions', 'leases', 'started_calls', 'source_pieces']
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE TRUNCATE ON %I
             EXECUTE FUNCTION loopstore_never(''what is stored is never truncated'')',
            name || '_no_truncate', name
        );
    END LOOP;
END
$$;
