-- The views: the stable way to read a database from SQL, with the same columns and the same rows as
-- in SQLite.
--
-- A column of a view never changes its name, place or meaning; new ones come at the end. Views whose
-- name begins with `v_` are for everyone; what begins with `loopstore_` is parts of these and may
-- change. A query for one session walks the chains of that session only.
--
-- No row may make a view fail. What others wrote as JSON goes through the functions below; numbers
-- that others chose are added as DOUBLE PRECISION, which does not overflow.

-- JSON as it stands, NULL if it is none. In JSON that says what PostgreSQL cannot hold (U+0000, half a
-- pair of UTF-16) that becomes U+FFFD: no function of its own would take it.
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

-- A value of JSON as text, strings without their quotes.
CREATE FUNCTION loopstore_text(given JSON) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT given #>> '{}'
$$;

-- The value of a key, NULL if there is none or the JSON is no object.
CREATE FUNCTION loopstore_value(given JSON, key TEXT) RETURNS JSON LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE json_typeof(given) WHEN 'object' THEN nullif((given -> key)::TEXT, 'null')::JSON END
$$;

-- The number that a value of JSON is, 0 if it is none.
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

-- A sum as a whole number: what is too large is the largest.
CREATE FUNCTION loopstore_whole(given DOUBLE PRECISION) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN given >= 9223372036854775807 THEN 9223372036854775807
        WHEN given <= -9223372036854775808 THEN (-9223372036854775808)::BIGINT
        ELSE trunc(coalesce(given, 0))::BIGINT
    END
$$;

-- Milliseconds since the epoch as ISO-8601 text.
CREATE FUNCTION loopstore_time(ms BIGINT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN ms BETWEEN -62135596800000 AND 253402300799999
        THEN to_char(TIMESTAMP '1970-01-01' + ms * INTERVAL '1 millisecond', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    END
$$;

-- A body as it was, but that U+0000 is U+FFFD.
CREATE FUNCTION loopstore_body(body TEXT, escaped BOOLEAN) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN escaped THEN replace(replace(body, chr(1) || '0', chr(65533)), chr(1) || '1', chr(1))
        ELSE body
    END
$$;

-- A message with its largest text back in its place, word for word: all else stands as it was stored.
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

-- The texts of a message, one below the other.
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

-- Internal. Messages with their largest text back in its place. `json` is the head where it is JSON;
-- `payload` is the whole message, NULL when it was redacted or archived.
CREATE VIEW message_content AS
SELECT
    m.session, m.loop, m.seq, m.turn, m.role, m.tokens, m.bytes, m.created_at, h.json,
    CASE
        WHEN m.body_block >= 0 AND json_typeof(h.json) = 'object'
        THEN loopstore_payload(h.json, m.body_block, loopstore_body(m.body, m.escaped))
        ELSE m.head
    END AS payload,
    CASE
        WHEN m.role = 3 THEN NULL
        WHEN h.json IS NOT NULL
        THEN loopstore_texts(h.json, m.body_block, loopstore_body(m.body, m.escaped))
        ELSE loopstore_body(m.body, m.escaped)
    END AS text
FROM messages m CROSS JOIN LATERAL (SELECT loopstore_json(m.head) AS json OFFSET 0) h;

-- Internal. Turns with the sequences of the messages that they hold: first_seq <= seq < end_seq.
CREATE VIEW turn_bounds AS
SELECT
    t.session, t.loop, t.turn, t.turn_index, t.started_at, t.ended_at, t.messages, t.tokens, t.answers,
    t.first_seq,
    coalesce(
        (SELECT n.first_seq FROM turns n
         WHERE n.session = t.session AND n.loop = t.loop AND n.turn = t.turn + 1),
        4294967296
    ) AS end_seq
FROM turns t;

-- Internal. Loops that no child continues from their last turn, and each session's current loop.
CREATE VIEW leaves AS
SELECT l.session, l.key, l.loop_id
FROM loops l
WHERE l.key = (SELECT s.current_loop FROM sessions s WHERE s.session = l.session)
    OR NOT EXISTS (
        SELECT 1 FROM loops c
        WHERE c.session = l.session AND c.parent = l.key
            AND coalesce(c.parent_turn, -1) >= l.turns - 1
    );

-- Internal. The chain of a leaf. `cut` is how many of a loop's turns belong to the chain, `depth`
-- counts from 0 at the root. A parent's key is smaller than its child's, so that the walk ends
-- whatever is stored.
CREATE FUNCTION loopstore_chain(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (loop BIGINT, depth BIGINT, cut BIGINT) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE up (loop, parent, parent_turn, cut, distance) AS (
        SELECT l.key, l.parent, l.parent_turn, 4294967296, 0::BIGINT
        FROM loops l WHERE l.session = of_session AND l.key = leaf
        UNION ALL
        SELECT p.key, p.parent, p.parent_turn, coalesce(up.parent_turn + 1, 0), up.distance + 1
        FROM up JOIN loops p ON p.session = of_session AND p.key = up.parent AND p.key < up.loop
    )
    SELECT up.loop, count(*) OVER () - 1 - up.distance, up.cut FROM up
$$;

-- Internal. What is in force on each loop of a chain: `block`, and `plain` if rollups do not count;
-- `run` is the newest live run of the chain. A run or flip counts if its loop is on the chain and had
-- then no turn beyond its cut; a run is live if it committed and the last flip of it that counts is no
-- undo; in force is the newest generation of such a run.
CREATE FUNCTION loopstore_in_force(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (loop BIGINT, depth BIGINT, cut BIGINT, block BIGINT, plain BIGINT, run BIGINT)
LANGUAGE sql STABLE AS $$
    WITH
    chain AS (SELECT * FROM loopstore_chain(of_session, leaf)),
    -- Every run that counts, and every flip.
    said (run, word, tick, flip) AS (
        SELECT r.key, 'run', r.tick, NULL::BIGINT
        FROM chain c JOIN runs r ON r.session = of_session AND r.loop = c.loop
        WHERE r.outcome = 'committed' AND r.turns <= c.cut
        UNION ALL
        SELECT f.run, f.kind, f.tick, f.key
        FROM chain c JOIN flips f ON f.session = of_session AND f.loop = c.loop
        WHERE f.turns <= c.cut
    ),
    judged (run, word, tick, last_word) AS (
        SELECT said.run, said.word, said.tick, first_value(said.word) OVER (
            PARTITION BY said.run ORDER BY said.flip IS NULL, said.tick DESC, said.flip DESC
        )
        FROM said
    ),
    live (run, newest) AS (
        SELECT judged.run, first_value(judged.run) OVER (ORDER BY judged.tick DESC, judged.run DESC)
        FROM judged
        WHERE judged.word = 'run' AND judged.last_word <> 'undo'
    ),
    best (loop, generation, plain) AS (
        SELECT b.loop, max(b.generation), max(b.generation) FILTER (WHERE b.kind <> 'rollup')
        FROM live JOIN blocks b ON b.session = of_session AND b.run = live.run
        GROUP BY b.loop
    )
    SELECT c.loop, c.depth, c.cut,
        (SELECT b.key FROM blocks b
         WHERE b.session = of_session AND b.loop = c.loop AND b.generation = best.generation),
        (SELECT b.key FROM blocks b
         WHERE b.session = of_session AND b.loop = c.loop AND b.generation = best.plain),
        (SELECT max(live.newest) FROM live)
    FROM chain c LEFT JOIN best ON best.loop = c.loop
$$;

-- Internal. A field of a configuration as text.
CREATE FUNCTION loopstore_setting(config JSON, name TEXT, usual TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(loopstore_text(loopstore_value(config, name)), usual)
$$;

-- Internal. The loops that the context of a leaf shows, with the block in force on each: those from
-- the anchor of the rollup in force on or, if the newest live run skips older loops, those in its
-- scope. `turns` and `end_seq` are where a loop's cut is.
CREATE FUNCTION loopstore_context_loops(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (loop BIGINT, depth BIGINT, turns BIGINT, end_seq BIGINT, block BIGINT)
LANGUAGE sql STABLE AS $$
    WITH
    link AS (
        SELECT f.loop, f.depth, least(f.cut, l.turns) AS turns,
            -- For the window, the leaf's turn in flight is no turn.
            CASE l.key WHEN leaf THEN l.complete ELSE least(f.cut, l.turns) END AS complete,
            CASE
                WHEN f.cut < l.turns THEN coalesce(
                    (SELECT t.first_seq FROM turns t
                     WHERE t.session = of_session AND t.loop = f.loop AND t.turn = f.cut),
                    l.next_seq
                )
                ELSE l.next_seq
            END AS end_seq,
            CASE WHEN r.older_loops = 'skip' THEN f.plain ELSE f.block END AS block,
            coalesce(r.older_loops, 'rollup') AS older_loops, r.scope,
            loopstore_json(r.config) AS config
        FROM loopstore_in_force(of_session, leaf) f
            JOIN loops l ON l.session = of_session AND l.key = f.loop
            LEFT JOIN runs r ON r.session = of_session AND r.key = f.run
    ),
    sized AS (
        SELECT k.*, b.kind,
            loopstore_setting(k.config, 'recent_window', 'chain') AS recent_window,
            loopstore_setting(k.config, 'keep_recent_turns', '10')::DOUBLE PRECISION AS keep_recent_turns,
            loopstore_setting(k.config, 'max_context_tokens', '128000')::DOUBLE PRECISION
                - loopstore_setting(k.config, 'system_tokens', '0')::DOUBLE PRECISION AS budget,
            -- Tokens in force: only a budget asks for them.
            CASE
                WHEN k.older_loops <> 'skip' OR k.scope <> 'token-budget' THEN 0
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
    SELECT placed.loop, placed.depth, placed.turns, placed.end_seq, placed.block
    FROM placed
    WHERE CASE
        WHEN placed.older_loops <> 'skip' THEN placed.depth >= placed.anchor
        WHEN placed.distance = 0 THEN TRUE
        WHEN placed.recent_window = 'chain' AND placed.turns > 0
            AND placed.turns_after < placed.keep_recent_turns THEN TRUE
        WHEN placed.scope ~ '^fixed:[0-9]{1,9}$'
        THEN placed.distance <= substr(placed.scope, 7)::BIGINT
        ELSE placed.tokens_from_here <= placed.budget
    END
$$;

-- Internal. The parts of the context of a leaf.
CREATE FUNCTION loopstore_parts(of_session BIGINT, leaf BIGINT)
RETURNS TABLE (ordinal BIGINT, loop BIGINT, section TEXT, from_turn BIGINT, to_turn BIGINT,
    messages BIGINT, tokens BIGINT)
LANGUAGE sql STABLE AS $$
    WITH
    slot AS (
        SELECT k.loop, k.depth, k.turns, k.end_seq, b.key AS block, b.through, name.place, name.section,
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
    -- Where the originals of a section lie: those of its turns that the block covers.
    bounded AS (
        SELECT slot.*,
            CASE slot.section
                WHEN 'tail' THEN slot.through
                ELSE (SELECT t.first_seq FROM turn_bounds t
                      WHERE t.session = of_session AND t.loop = slot.loop AND t.turn = slot.from_turn)
            END AS first_seq,
            CASE slot.section
                WHEN 'tail' THEN slot.end_seq
                ELSE (SELECT least(t.end_seq, slot.end_seq, slot.through) FROM turn_bounds t
                      WHERE t.session = of_session AND t.loop = slot.loop AND t.turn = slot.to_turn)
            END AS last_seq
        FROM slot
    ),
    measured AS (
        SELECT bounded.*, size.n, size.tokens, size.low, size.high
        FROM bounded CROSS JOIN LATERAL (
            SELECT t.messages AS n, t.tokens, NULL::BIGINT AS low, NULL::BIGINT AS high
            FROM turns t
            WHERE bounded.section = 'raw' AND t.session = of_session AND t.loop = bounded.loop
                AND t.turn = bounded.to_turn
            UNION ALL
            SELECT count(*), coalesce(sum(x.tokens), 0)::BIGINT, NULL, NULL
            FROM block_messages x
            WHERE bounded.section IN ('rollup', 'compacted') AND x.session = of_session
                AND x.block = bounded.block AND x.section = 1 AND x.role <> 3
            UNION ALL
            SELECT count(*), coalesce(sum(m.tokens), 0)::BIGINT, min(m.turn), max(m.turn)
            FROM messages m
            WHERE bounded.section IN ('first', 'tail') AND m.session = of_session
                AND m.loop = bounded.loop AND m.seq >= bounded.first_seq AND m.seq < bounded.last_seq
                AND m.role <> 3
            UNION ALL
            -- Originals, less those that the block replaces, and what it puts there.
            SELECT coalesce(sum(s.n), 0)::BIGINT, coalesce(sum(s.tokens), 0)::BIGINT, NULL, NULL
            FROM (
                SELECT 1 AS n, m.tokens FROM messages m
                WHERE bounded.section = 'recent' AND m.session = of_session AND m.loop = bounded.loop
                    AND m.seq >= bounded.first_seq AND m.seq < bounded.last_seq AND m.role <> 3
                    AND m.seq NOT IN (
                        SELECT x.replaces FROM block_messages x
                        WHERE x.session = of_session AND x.block = bounded.block AND x.section = 2
                            AND x.replaces IS NOT NULL
                    )
                UNION ALL
                SELECT 1, x.tokens FROM block_messages x
                WHERE bounded.section = 'recent' AND x.session = of_session
                    AND x.block = bounded.block AND x.section = 2 AND x.role <> 3
            ) s
        ) size
        WHERE size.n > 0
    )
    SELECT row_number() OVER (ORDER BY measured.depth, measured.place) - 1, measured.loop,
        measured.section, coalesce(measured.from_turn, measured.low),
        coalesce(measured.to_turn, measured.high), measured.n, measured.tokens
    FROM measured
$$;

-- Sessions with the totals of their loops. Extension messages are in no total.
CREATE VIEW v_sessions AS
SELECT
    s.session_id, s.agent_id, s.title, s.created_at, s.last_active_at,
    (SELECT l.loop_id FROM loops l WHERE l.session = s.session AND l.key = s.current_loop)
        AS current_loop_id,
    t.loops, t.turns, t.messages, t.tokens, s.source
FROM sessions s CROSS JOIN LATERAL (
    SELECT count(*) AS loops, coalesce(sum(l.turns), 0)::BIGINT AS turns,
        coalesce(sum(l.messages), 0)::BIGINT AS messages, coalesce(sum(l.tokens), 0)::BIGINT AS tokens
    FROM loops l WHERE l.session = s.session
) t;

-- Loops. parent_turn is the last turn of the parent that belongs to the loop's chain.
-- continuation_kind is Initial, Default, Compaction, Rerun:TAG, Branch:TAG, or the JSON of a kind
-- that this version does not know. archived tells that no message of the loop has content left.
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
    (l.next_seq > 0 AND NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.session = l.session AND m.loop = l.key AND m.head IS NOT NULL
    ))::INT AS archived
FROM sessions s
    JOIN loops l ON l.session = s.session
    CROSS JOIN LATERAL (SELECT loopstore_json(l.kind) AS kind OFFSET 0) k;

-- Turns. triggered_by is User if a user message begins the turn, Branch for the first turn of a
-- branch that none begins, else Continuation. input_tokens and output_tokens are what providers
-- reported for the turn's answers.
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
        FROM messages m CROSS JOIN LATERAL (SELECT loopstore_json(m.head) AS json OFFSET 0) j
        WHERE m.session = t.session AND m.loop = t.loop AND m.seq >= t.first_seq
            AND m.seq < t.end_seq AND m.role = 1
    ) u;

-- Messages. turn is NULL before the first turn, text for an extension (its payload has it all) and
-- for a message without text blocks, payload when the message was redacted or archived.
CREATE VIEW v_messages AS
SELECT
    s.session_id, l.loop_id, m.seq, m.turn, t.turn_index,
    CASE m.role
        WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' WHEN 2 THEN 'toolResult' ELSE 'extension'
    END AS role,
    m.text, m.tokens, m.bytes,
    loopstore_time(m.created_at) AS created_at,
    m.payload
FROM sessions s
    JOIN loops l ON l.session = s.session
    JOIN message_content m ON m.session = l.session AND m.loop = l.key
    LEFT JOIN turns t ON t.session = m.session AND t.loop = m.loop AND t.turn = m.turn;

-- Tool calls with their results: the first result with the call's id in the same turn, else in a
-- later turn of the loop, else in a later loop of the session (result_loop_id tells which).
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
    (SELECT n.loop_id FROM loops n WHERE n.session = r.session AND n.key = r.loop) AS result_loop_id
FROM sessions s
    JOIN loops l ON l.session = s.session
    JOIN messages m ON m.session = l.session AND m.loop = l.key AND m.role = 1
    CROSS JOIN LATERAL (SELECT loopstore_json(m.head) AS json OFFSET 0) h
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
            WHERE t.session = l.session AND t.loop = l.key AND t.turn = m.turn AND x.role = 2
                AND loopstore_text(loopstore_value(loopstore_json(x.head), 'toolCallId')) = call.id
            UNION ALL
            -- A turn that answers another one's call names it: [loop,turn]. Only few do.
            SELECT 2, x.loop, t.turn, x.seq
            FROM turn_bounds t JOIN messages x ON x.session = t.session AND x.loop = t.loop
                AND x.seq >= t.first_seq AND x.seq < t.end_seq
            WHERE t.session = l.session AND t.answers IS NOT NULL
                AND (t.loop = l.key AND t.turn > m.turn
                    OR l.open_calls IS NOT NULL AND t.loop > l.key)
                AND strpos(t.answers, '[' || l.key || ',' || m.turn || ']') > 0 AND x.role = 2
                AND loopstore_text(loopstore_value(loopstore_json(x.head), 'toolCallId')) = call.id
        ) found
        JOIN message_content x
            ON x.session = l.session AND x.loop = found.loop AND x.seq = found.seq
        ORDER BY found.rank, found.loop, found.turn, found.seq LIMIT 1
    ) r ON TRUE;

-- The chain of each leaf, from the root (depth 0). A leaf is a loop that no child continues from
-- its last turn, or the session's current loop.
CREATE VIEW v_chain AS
SELECT s.session_id, f.loop_id AS leaf_loop_id, l.loop_id, c.depth
FROM sessions s
    JOIN leaves f ON f.session = s.session
    CROSS JOIN LATERAL loopstore_chain(f.session, f.key) c
    JOIN loops l ON l.session = f.session AND l.key = c.loop;

-- Compaction runs: the audit row of every attempt. is_live is as seen from the run's own loop.
-- turns is how many complete turns that loop had.
CREATE VIEW v_compaction_runs AS
SELECT
    s.session_id, r.run_id, l.loop_id, r.trigger, r.strategy, r.round, r.outcome,
    (r.outcome = 'committed' AND coalesce(
        (SELECT f.kind <> 'undo' FROM flips f
         WHERE f.session = r.session AND f.run = r.key AND f.loop = r.loop
         ORDER BY f.tick DESC, f.key DESC LIMIT 1),
        TRUE
    ))::INT AS is_live,
    r.fallback, r.error, r.tokens_before, r.tokens_after, r.bytes_before, r.bytes_after,
    r.messages_before, r.messages_after, r.started_at, r.duration_ms, r.config,
    r.turns, r.scope, r.older_loops, r.counter, r.usage
FROM sessions s
    JOIN runs r ON r.session = s.session
    JOIN loops l ON l.session = r.session AND l.key = r.loop;

-- Blocks. extends is LOOP#GENERATION of the rollup that a rollup goes on from; ratio is tokens_block
-- by tokens_covered. is_active tells whether the block is in force as seen from its run's own loop.
CREATE VIEW v_compaction_blocks AS
SELECT
    s.session_id, l.loop_id, b.generation, r.run_id, b.kind,
    (SELECT n.loop_id || '#' || o.generation
     FROM blocks o JOIN loops n ON n.session = o.session AND n.key = o.loop
     WHERE o.session = b.session AND o.key = b.extends) AS extends,
    b.first_start AS keep_first_start, b.first_end AS keep_first_end,
    b.compacted_start AS keep_compacted_start, b.compacted_end AS keep_compacted_end,
    b.recent_start AS keep_recent_start, b.recent_end AS keep_recent_end,
    b.tokens_covered, b.tokens_block,
    b.tokens_block::DOUBLE PRECISION / nullif(b.tokens_covered, 0) AS ratio,
    EXISTS (
        SELECT 1
        FROM (
            SELECT f.block, f.depth,
                max(CASE WHEN o.kind = 'rollup' THEN f.depth ELSE 0 END) OVER () AS anchor
            FROM loopstore_in_force(r.session, r.loop) f
                JOIN blocks o ON o.session = r.session AND o.key = f.block
        ) f
        WHERE f.block = b.key AND f.depth >= f.anchor
    )::INT AS is_active,
    b.created_at
FROM sessions s
    JOIN runs r ON r.session = s.session
    JOIN blocks b ON b.session = r.session AND b.run = r.key
    JOIN loops l ON l.session = b.session AND l.key = b.loop;

-- What blocks did to what they cover. The block stands on block_loop_id; loop_id is what it covers.
CREATE VIEW v_coverage AS
SELECT
    s.session_id, h.loop_id AS block_loop_id, b.generation, l.loop_id,
    c.from_seq, c.to_seq, c.from_turn, c.to_turn, c.disposition
FROM sessions s
    JOIN loops h ON h.session = s.session
    JOIN blocks b ON b.session = h.session AND b.loop = h.key
    JOIN coverage c ON c.session = b.session AND c.block = b.key
    JOIN loops l ON l.session = c.session AND l.key = c.loop;

-- What the next model call of each leaf would see, part by part in order. rollup is the text of the
-- rollup in force, first, compacted and recent are the sections of the block in force on a loop,
-- tail is what came after it, raw is a loop without a block. Parts without messages are left out.
CREATE VIEW v_context AS
SELECT
    s.session_id, f.loop_id AS leaf_loop_id, part.ordinal, l.loop_id, part.section, part.from_turn,
    part.to_turn, part.messages, part.tokens
FROM sessions s
    JOIN leaves f ON f.session = s.session
    CROSS JOIN LATERAL loopstore_parts(f.session, f.key) part
    JOIN loops l ON l.session = f.session AND l.key = part.loop;

-- Internal. What providers reported, answer by answer.
CREATE VIEW reported_usage AS
SELECT
    m.session, m.loop, m.seq,
    loopstore_text(loopstore_value(u.json, 'model')) AS model,
    loopstore_number(loopstore_value(u.usage, 'input')) AS input,
    loopstore_number(loopstore_value(u.usage, 'output')) AS output,
    loopstore_number(loopstore_value(u.usage, 'cache_read')) AS cache_read,
    loopstore_number(loopstore_value(u.usage, 'cache_write')) AS cache_write,
    loopstore_number(loopstore_value(u.usage, 'reasoning')) AS reasoning,
    CASE json_typeof(loopstore_value(u.usage, 'total_tokens'))
        WHEN 'number' THEN loopstore_number(loopstore_value(u.usage, 'total_tokens'))
        ELSE loopstore_number(loopstore_value(u.usage, 'input'))
            + loopstore_number(loopstore_value(u.usage, 'output'))
            + loopstore_number(loopstore_value(u.usage, 'cache_read'))
            + loopstore_number(loopstore_value(u.usage, 'cache_write'))
    END AS total,
    CASE json_typeof(loopstore_value(u.usage, 'cost'))
        WHEN 'object' THEN loopstore_number(loopstore_value(u.usage -> 'cost', 'total'))
        ELSE loopstore_number(loopstore_value(u.usage, 'cost'))
    END AS cost
FROM messages m
    CROSS JOIN LATERAL (SELECT loopstore_json(m.head) AS json OFFSET 0) j
    CROSS JOIN LATERAL (SELECT j.json, loopstore_value(j.json, 'usage') AS usage OFFSET 0) u
WHERE m.role = 1 AND json_typeof(u.usage) = 'object';

-- Tokens that providers reported, by loop and model. total is the provider's own, or else the sum
-- of input, output and both caches.
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

-- Sessions as a tree: which session, loop and tool call started each, and what providers reported
-- for it alone and (tree_) for it and all sessions below it. cost is what providers reported as
-- usage.cost (or usage.cost.total), in their currency.
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
    CROSS JOIN LATERAL (
        SELECT loopstore_value(loopstore_json(s.meta), 'parent_spawn_ref') AS ref OFFSET 0
    ) spawn
    CROSS JOIN LATERAL (
        SELECT sum(u.input) AS input, sum(u.output) AS output, sum(u.total) AS total, sum(u.cost) AS cost
        FROM reported_usage u WHERE u.session = s.session
    ) own
    CROSS JOIN LATERAL (
        -- UNION drops what was seen, so that a circle ends.
        WITH RECURSIVE below (session, session_id) AS (
            SELECT s.session, s.session_id
            UNION
            SELECT c.session, c.session_id FROM below b JOIN sessions c ON c.started_by = b.session_id
        )
        SELECT count(*) AS sessions, sum(x.input) AS input, sum(x.output) AS output,
            sum(x.total) AS total, sum(x.cost) AS cost
        FROM below b CROSS JOIN LATERAL (
            SELECT sum(u.input) AS input, sum(u.output) AS output, sum(u.total) AS total,
                sum(u.cost) AS cost
            FROM reported_usage u WHERE u.session = b.session
        ) x
    ) tree;

-- Manifests: what a model was given. sha256 is over the digests of the messages in order. parts is a
-- JSON array in order: {loop, section, generation, from_seq, to_seq, messages}; without sequences the
-- messages are those of the block of that generation.
CREATE VIEW v_manifests AS
SELECT
    s.session_id, m.manifest_id, l.loop_id, m.recorded_at, m.older_loops, m.messages, m.tokens,
    m.bytes, m.counter, encode(m.sha256, 'hex') AS sha256,
    (
        SELECT '[' || coalesce(string_agg(
            '{"loop":' || coalesce(to_json(
                (SELECT n.loop_id FROM loops n
                 WHERE n.session = m.session AND n.key = (part.value ->> 0)::BIGINT)
            )::TEXT, 'null')
            || ',"section":' || (part.value -> 1)::TEXT
            || ',"generation":' || coalesce(
                (SELECT b.generation FROM blocks b
                 WHERE b.session = m.session AND b.key = (part.value ->> 2)::BIGINT)::TEXT,
                'null'
            )
            || ',"from_seq":' || (part.value -> 3)::TEXT
            || ',"to_seq":' || (part.value -> 4)::TEXT
            || ',"messages":' || (part.value -> 5)::TEXT || '}',
            ',' ORDER BY part.place
        ), '') || ']'
        FROM json_array_elements(loopstore_json(m.parts)) WITH ORDINALITY AS part (value, place)
        WHERE json_typeof(part.value) = 'array'
    ) AS parts
FROM sessions s
    JOIN manifests m ON m.session = s.session
    JOIN loops l ON l.session = m.session AND l.key = m.loop;
