-- Who builds a context on behalf of an agent can leave a manifest: which messages the model was
-- given, as references and one hash. No message is copied; what the references show can be built
-- again as of that moment, and `verify` does so.

CREATE TABLE manifests (
    key         INTEGER PRIMARY KEY,
    manifest_id TEXT NOT NULL UNIQUE CHECK (length(manifest_id) > 0),
    session     INTEGER NOT NULL REFERENCES sessions (key),
    -- The leaf.
    loop        INTEGER NOT NULL REFERENCES loops (key),
    -- The moment: everything with this tick or an earlier one had happened.
    tick        INTEGER NOT NULL,
    recorded_at TEXT NOT NULL,
    -- What became of loops before the scope; with skip the first part is where the context begins.
    older_loops TEXT NOT NULL CHECK (older_loops IN ('skip', 'rollup')),
    -- The parts in order: [[loop, section, block, first sequence, last sequence, messages], …].
    -- Without sequences the messages are those of the block.
    parts       TEXT NOT NULL CHECK (json_valid(parts)),
    messages    INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    -- What the tokens were counted with.
    counter     TEXT NOT NULL,
    -- SHA-256 over the digests of the messages in order.
    sha256      BLOB NOT NULL,
    digest      BLOB NOT NULL
) STRICT;
CREATE INDEX manifests_session ON manifests (session);
CREATE INDEX manifests_loop ON manifests (loop);

CREATE TRIGGER manifests_no_update
BEFORE UPDATE ON manifests
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'a manifest is never changed');
END;

CREATE TRIGGER manifests_no_delete
BEFORE DELETE ON manifests
WHEN NOT EXISTS (SELECT 1 FROM maintenance WHERE session = OLD.session AND closed_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'a manifest is never deleted');
END;

CREATE TRIGGER manifests_no_replace
BEFORE INSERT ON manifests
WHEN EXISTS (SELECT 1 FROM manifests WHERE key = NEW.key OR manifest_id = NEW.manifest_id)
BEGIN
    SELECT RAISE(ABORT, 'a manifest is never replaced');
END;

-- Manifests: what a model was given. sha256 is over the digests of the messages in order. parts is a
-- JSON array in order: {loop, section, generation, from_seq, to_seq, messages}; without sequences the
-- messages are those of the block of that generation.
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
