-- The views: the stable way to read a database from SQL.
--
-- A column of a view never changes its name, place or meaning; new ones come at the end. Views
-- whose name begins with `v_` are for everyone; the others are parts of these and may change.
--
-- A view takes no parameters, and SQLite does not carry a condition into a recursive query. So
-- where an answer belongs to one leaf, it is a scalar subquery that names that leaf and returns
-- its rows as a JSON array, which json_each() takes apart: a query for one session then walks the
-- chains of that session only.
--
-- No row may make a view fail. JSON is looked at only where json_valid() says that it is JSON, and
-- numbers that others chose are added with total(), which does not overflow.

-- Internal. Messages with their largest text back in its place. `json` is the head where it is
-- JSON; `payload` is the whole message, NULL when it was redacted or archived. NOT INDEXED, since
-- SQLite would rather index all messages by role than search the range of a loop's keys.
CREATE VIEW message_content AS
SELECT
    m.id, m.turn, m.role, m.tokens, m.bytes, m.created_at,
    CASE WHEN json_valid(m.head) THEN m.head END AS json,
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

-- Internal. Turns with the keys of the messages that they hold: first_id <= id < end_id.
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

-- Internal. Loops that no child continues from their last turn, and each session's current loop.
CREATE VIEW leaves AS
SELECT l.key, l.session, l.loop_id
FROM loops l
WHERE l.key = (SELECT s.current_loop FROM sessions s WHERE s.key = l.session)
    OR NOT EXISTS (
        SELECT 1 FROM loops c
        WHERE c.parent = l.key AND c.session = l.session
            AND coalesce(c.parent_turn, -1) >= l.turns - 1
    );

-- Internal. The chain of the loop `leaf`, as far as the loop `oldest`; both must be given, and a
-- key smaller than every loop of the chain means all of it. `cut` is how many of a loop's turns
-- belong to the chain, `depth` counts from 0 at the old end. A parent's key is smaller than its
-- child's, so that the walk ends whatever is stored.
CREATE VIEW chain_of AS
SELECT
    leaf.key AS leaf, oldest.key AS oldest,
    link.value ->> 0 AS loop, link.value ->> 1 AS depth, link.value ->> 2 AS cut
FROM loops leaf CROSS JOIN loops oldest CROSS JOIN json_each((
    WITH RECURSIVE up (loop, parent, parent_turn, cut, distance) AS (
        SELECT leaf.key, leaf.parent, leaf.parent_turn, 4294967296, 0
        UNION ALL
        SELECT p.key, p.parent, p.parent_turn, coalesce(up.parent_turn + 1, 0), up.distance + 1
        FROM up CROSS JOIN loops p ON p.key = up.parent
        WHERE p.key < up.loop AND p.key >= oldest.key AND p.session = leaf.session
    )
    SELECT json_group_array(json_array(loop, depth, cut))
    FROM (SELECT loop, count(*) OVER () - 1 - distance AS depth, cut FROM up)
)) link;

-- Internal. What is in force on each loop of a chain (see chain_of): `block`, and `plain` if
-- rollups do not count; `run` is the newest live run of the chain. A run or flip counts if its loop
-- is on the chain and had then no turn beyond its cut; a run is live if it committed and the last
-- flip of it that counts is no undo; in force is the newest generation of such a run.
CREATE VIEW in_force AS
SELECT
    leaf.key AS leaf, oldest.key AS oldest,
    link.value ->> 0 AS loop, link.value ->> 1 AS depth, link.value ->> 2 AS cut,
    (SELECT b.key FROM blocks b
     WHERE b.loop = link.value ->> 0 AND b.generation = link.value ->> 3) AS block,
    (SELECT b.key FROM blocks b
     WHERE b.loop = link.value ->> 0 AND b.generation = link.value ->> 4) AS plain,
    link.value ->> 5 AS run
FROM loops leaf CROSS JOIN loops oldest CROSS JOIN json_each((
    WITH
    chain (loop, depth, cut) AS (
        SELECT c.loop, c.depth, c.cut FROM chain_of c
        WHERE c.leaf = leaf.key AND c.oldest = oldest.key
    ),
    -- Every run that counts, and every flip.
    said (run, word, tick, flip) AS (
        SELECT r.key, 'run', r.tick, NULL
        FROM chain c CROSS JOIN runs r ON r.loop = c.loop
        WHERE r.outcome = 'committed' AND r.turns <= c.cut
        UNION ALL
        SELECT f.run, f.kind, f.tick, f.key
        FROM chain c CROSS JOIN flips f ON f.loop = c.loop
        WHERE f.turns <= c.cut
    ),
    judged (run, word, tick, last_word) AS (
        SELECT run, word, tick, first_value(word) OVER (
            PARTITION BY run ORDER BY flip IS NULL, tick DESC, flip DESC
        )
        FROM said
    ),
    live (run, newest) AS (
        SELECT run, first_value(run) OVER (ORDER BY tick DESC, run DESC)
        FROM judged
        WHERE word = 'run' AND last_word <> 'undo'
    ),
    -- Loops and blocks meet by grouping: a join would search the chain once for each.
    met (loop, depth, cut, generation, plain, newest) AS (
        SELECT loop, depth, cut, NULL, NULL, NULL FROM chain
        UNION ALL
        SELECT b.loop, NULL, NULL, b.generation,
            CASE WHEN b.kind <> 'rollup' THEN b.generation END, live.newest
        FROM live LEFT JOIN blocks b ON b.run = live.run
    )
    SELECT json_group_array(json_array(loop, depth, cut, generation, plain, newest))
    FROM (
        SELECT loop, max(depth) AS depth, max(cut) AS cut, max(generation) AS generation,
            max(plain) AS plain, max(max(newest)) OVER () AS newest
        FROM met GROUP BY loop
    )
    WHERE depth IS NOT NULL
)) link;

-- Internal. The loops that the context of a leaf shows, with the block in force on each: those
-- from the anchor of the rollup in force on or, if the newest live run skips older loops, those in
-- its scope. `turns` and `end_seq` are where a loop's cut is.
CREATE VIEW context_loops AS
SELECT
    leaf.key AS leaf,
    link.value ->> 0 AS loop, link.value ->> 1 AS depth, link.value ->> 2 AS turns,
    link.value ->> 3 AS end_seq, link.value ->> 4 AS block
FROM loops leaf CROSS JOIN json_each((
    WITH
    link (loop, depth, turns, complete, end_seq, block, older_loops, scope, config) AS (
        SELECT f.loop, f.depth, min(f.cut, l.turns),
            -- For the window, the leaf's turn in flight is no turn.
            CASE l.key WHEN leaf.key THEN l.complete ELSE min(f.cut, l.turns) END,
            CASE
                WHEN f.cut < l.turns THEN coalesce(
                    (SELECT t.first_seq FROM turns t WHERE t.id = (f.loop << 32) + f.cut),
                    l.next_seq
                )
                ELSE l.next_seq
            END,
            CASE WHEN r.older_loops = 'skip' THEN f.plain ELSE f.block END,
            coalesce(r.older_loops, 'rollup'), r.scope,
            CASE WHEN json_valid(r.config) THEN r.config ELSE '{}' END
        FROM in_force f CROSS JOIN loops l ON l.key = f.loop LEFT JOIN runs r ON r.key = f.run
        WHERE f.leaf = leaf.key AND f.oldest = (SELECT min(key) FROM loops)
    ),
    sized AS (
        SELECT k.*, b.kind,
            coalesce(json_extract(k.config, '$.recent_window'), 'chain') AS recent_window,
            coalesce(json_extract(k.config, '$.keep_recent_turns'), 10) AS keep_recent_turns,
            coalesce(json_extract(k.config, '$.max_context_tokens'), 128000)
                - coalesce(json_extract(k.config, '$.system_tokens'), 0) AS budget,
            -- Tokens in force: only a budget asks for them.
            CASE
                WHEN k.older_loops <> 'skip' OR k.scope <> 'token-budget' THEN 0
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
    SELECT json_group_array(json_array(loop, depth, turns, end_seq, block))
    FROM placed
    WHERE CASE
        WHEN older_loops <> 'skip' THEN depth >= anchor
        WHEN distance = 0 THEN 1
        WHEN recent_window = 'chain' AND turns > 0 AND turns_after < keep_recent_turns THEN 1
        WHEN scope LIKE 'fixed:%' THEN distance <= CAST(substr(scope, 7) AS INTEGER)
        ELSE tokens_from_here <= budget
    END
)) link;

-- Sessions with the totals of their loops. Extension messages are in no total.
CREATE VIEW v_sessions AS
SELECT
    s.session_id, s.agent_id, s.title, s.created_at, s.last_active_at,
    (SELECT l.loop_id FROM loops l WHERE l.key = s.current_loop) AS current_loop_id,
    (SELECT count(*) FROM loops l WHERE l.session = s.key) AS loops,
    (SELECT CAST(total(l.turns) AS INTEGER) FROM loops l WHERE l.session = s.key) AS turns,
    (SELECT CAST(total(l.messages) AS INTEGER) FROM loops l WHERE l.session = s.key) AS messages,
    (SELECT CAST(total(l.tokens) AS INTEGER) FROM loops l WHERE l.session = s.key) AS tokens,
    s.source
FROM sessions s;

-- Loops. parent_turn is the last turn of the parent that belongs to the loop's chain.
-- continuation_kind is Initial, Default, Compaction, Rerun:TAG, Branch:TAG, or the JSON of a kind
-- that this version does not know. archived tells that no message of the loop has content left.
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
    ) AS archived
FROM sessions s JOIN loops l ON l.session = s.key;

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
    strftime('%Y-%m-%dT%H:%M:%fZ', t.started_at / 1000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', t.ended_at / 1000.0, 'unixepoch') AS ended_at,
    t.messages - coalesce(p.messages, 0) AS messages,
    t.tokens - coalesce(p.tokens, 0) AS tokens,
    (SELECT CAST(total(json_extract(m.json, '$.usage.input')) AS INTEGER)
     FROM message_content m
     WHERE m.id >= t.first_id AND m.id < t.end_id AND m.role = 1) AS input_tokens,
    (SELECT CAST(total(json_extract(m.json, '$.usage.output')) AS INTEGER)
     FROM message_content m
     WHERE m.id >= t.first_id AND m.id < t.end_id AND m.role = 1) AS output_tokens
FROM sessions s
    JOIN loops l ON l.session = s.key
    CROSS JOIN turn_bounds t ON t.id >= l.key << 32 AND t.id < (l.key + 1) << 32
    LEFT JOIN turns p ON p.id = t.id - 1 AND t.turn > 0
    LEFT JOIN messages f ON f.id = t.first_id;

-- Messages. turn is NULL before the first turn, text for an extension (its payload has it all) and
-- for a message without text blocks, payload when the message was redacted or archived.
CREATE VIEW v_messages AS
SELECT
    s.session_id, l.loop_id, m.id & 4294967295 AS seq, m.turn, t.turn_index,
    CASE m.role
        WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' WHEN 2 THEN 'toolResult' ELSE 'extension'
    END AS role,
    m.text, m.tokens, m.bytes,
    strftime('%Y-%m-%dT%H:%M:%fZ', m.created_at / 1000.0, 'unixepoch') AS created_at,
    m.payload
FROM sessions s
    JOIN loops l ON l.session = s.key
    CROSS JOIN message_content m ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32
    LEFT JOIN turns t ON t.id = (l.key << 32) + m.turn;

-- Tool calls with their results: the first result with the call's id in the same turn, else in a
-- later turn of the loop, else in a later loop of the session (result_loop_id tells which).
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
        -- A turn that answers another one's call names it: [loop,turn]. Only few do.
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

-- The chain of each leaf, from the root (depth 0). A leaf is a loop that no child continues from
-- its last turn, or the session's current loop.
CREATE VIEW v_chain AS
SELECT s.session_id, f.loop_id AS leaf_loop_id, l.loop_id, c.depth
FROM sessions s
    JOIN leaves f ON f.session = s.key
    CROSS JOIN chain_of c ON c.leaf = f.key AND c.oldest = (SELECT min(key) FROM loops)
    CROSS JOIN loops l ON l.key = c.loop;

-- Compaction runs: the audit row of every attempt. is_live is as seen from the run's own loop.
-- turns is how many complete turns that loop had.
CREATE VIEW v_compaction_runs AS
SELECT
    s.session_id, r.run_id, l.loop_id, r.trigger, r.strategy, r.round, r.outcome,
    r.outcome = 'committed' AND coalesce(
        (SELECT f.kind <> 'undo' FROM flips f WHERE f.run = r.key AND f.loop = r.loop
         ORDER BY f.tick DESC, f.key DESC LIMIT 1),
        1
    ) AS is_live,
    r.fallback, r.error, r.tokens_before, r.tokens_after, r.bytes_before, r.bytes_after,
    r.messages_before, r.messages_after, r.started_at, r.duration_ms, r.config,
    r.turns, r.scope, r.older_loops, r.counter, r.usage
FROM sessions s JOIN runs r ON r.session = s.key CROSS JOIN loops l ON l.key = r.loop;

-- Blocks. extends is LOOP#GENERATION of the rollup that a rollup goes on from; ratio is tokens_block
-- by tokens_covered. is_active tells whether the block is in force as seen from its run's own loop.
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
    known.value ->> 1 AS is_active,
    b.created_at
FROM sessions s
    JOIN runs r ON r.session = s.key
    -- The run's blocks, and what is in force on the part of its chain where they stand.
    CROSS JOIN json_each((
        SELECT json_group_array(json_array(block, is_active))
        FROM (
            SELECT block, max(is_active) AS is_active
            FROM (
                SELECT b.key AS block, 0 AS is_active, 1 AS own FROM blocks b WHERE b.run = r.key
                UNION ALL
                SELECT f.block,
                    f.depth >= max(CASE WHEN b.kind = 'rollup' THEN f.depth ELSE 0 END) OVER (),
                    0
                FROM in_force f CROSS JOIN blocks b ON b.key = f.block
                WHERE f.leaf = r.loop
                    AND f.oldest = (SELECT min(b.loop) FROM blocks b WHERE b.run = r.key)
            )
            GROUP BY block HAVING max(own)
        )
    )) known
    CROSS JOIN blocks b ON b.key = known.value ->> 0
    CROSS JOIN loops l ON l.key = b.loop;

-- What blocks did to what they cover. The block stands on block_loop_id; loop_id is what it covers.
CREATE VIEW v_coverage AS
SELECT
    s.session_id, h.loop_id AS block_loop_id, b.generation, l.loop_id,
    c.from_seq, c.to_seq, c.from_turn, c.to_turn, c.disposition
FROM sessions s
    JOIN loops h ON h.session = s.key
    JOIN blocks b ON b.loop = h.key
    JOIN coverage c ON c.id >= b.key << 32 AND c.id < (b.key + 1) << 32
    JOIN loops l ON l.key = c.loop;

-- What the next model call of each leaf would see, part by part in order. rollup is the text of the
-- rollup in force, first, compacted and recent are the sections of the block in force on a loop,
-- tail is what came after it, raw is a loop without a block. Parts without messages are left out.
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
            SELECT k.loop, k.depth, k.turns, k.end_seq, b.key AS block, b.through, name.key AS place,
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
        -- Where the originals of a section lie: those of its turns that the block covers.
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
                    -- Originals, less those that the block replaces, and what it puts there.
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
        )
        SELECT json_group_array(
            json_array(ordinal, loop, section, from_turn, to_turn, messages, tokens)
        )
        FROM (
            SELECT row_number() OVER (ORDER BY depth, place) - 1 AS ordinal, loop, section,
                coalesce(from_turn, size ->> 2) AS from_turn,
                coalesce(to_turn, size ->> 3) AS to_turn,
                size ->> 0 AS messages, size ->> 1 AS tokens
            FROM measured
            WHERE size ->> 0 > 0
        )
    )) part
    CROSS JOIN loops l ON l.key = part.value ->> 1;

-- Tokens that providers reported, by loop and model. total is the provider's own, or else the sum
-- of input, output and both caches.
CREATE VIEW v_usage AS
SELECT
    s.session_id, l.loop_id,
    json_extract(m.json, '$.model') AS model,
    CAST(total(json_extract(m.json, '$.usage.input')) AS INTEGER) AS input,
    CAST(total(json_extract(m.json, '$.usage.output')) AS INTEGER) AS output,
    CAST(total(json_extract(m.json, '$.usage.cache_read')) AS INTEGER) AS cache_read,
    CAST(total(json_extract(m.json, '$.usage.cache_write')) AS INTEGER) AS cache_write,
    CAST(total(json_extract(m.json, '$.usage.reasoning')) AS INTEGER) AS reasoning,
    CAST(total(coalesce(
        json_extract(m.json, '$.usage.total_tokens'),
        coalesce(json_extract(m.json, '$.usage.input'), 0)
            + coalesce(json_extract(m.json, '$.usage.output'), 0)
            + coalesce(json_extract(m.json, '$.usage.cache_read'), 0)
            + coalesce(json_extract(m.json, '$.usage.cache_write'), 0)
    )) AS INTEGER) AS total
FROM sessions s
    JOIN loops l ON l.session = s.key
    CROSS JOIN message_content m ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32
WHERE m.role = 1 AND json_type(m.json, '$.usage') = 'object'
GROUP BY s.session_id, l.loop_id, model;
