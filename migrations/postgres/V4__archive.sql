-- Archived loops, as in SQLite (V11): the content of their messages is moved into packs, runs of messages
-- compressed together. The rows in `messages` stay with place, sizes, digest and chain; head and body are
-- NULL. Packs come and go only while a receipt of kind `archive` (or of a removal) is open.

CREATE TABLE packs (
    session  BIGINT NOT NULL,
    loop     BIGINT NOT NULL,
    -- The first and the last message; all between are in it.
    seq      BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    -- The content before it was compressed.
    bytes    BIGINT NOT NULL,
    -- SHA-256 of the columns before but the session, and the content.
    digest   BYTEA NOT NULL,
    -- Heads and bodies as raw DEFLATE.
    content  BYTEA NOT NULL,
    PRIMARY KEY (session, loop, seq),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);
-- It is compressed already.
ALTER TABLE packs ALTER COLUMN content SET STORAGE EXTERNAL;

-- What the views tell of archived messages: usage and model of an answer, ids and names of its calls,
-- which call a result answers. Derived from the head, as JSON of the same form.
CREATE TABLE packed_heads (
    session BIGINT NOT NULL,
    loop    BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    head    TEXT NOT NULL,
    PRIMARY KEY (session, loop, seq),
    FOREIGN KEY (session, loop) REFERENCES loops (session, key)
);

-- As every table that holds something of a tenant.
DO $$
DECLARE
    name TEXT;
    own TEXT := $own$tenant = (SELECT coalesce(
        (SELECT t.tenant FROM tenant_roles t WHERE t.role = quote_ident(current_user)::REGROLE), ''
    ))$own$;
    of_session TEXT := '(SELECT s.session FROM sessions s WHERE s.session = %1$I.session) = session';
BEGIN
    FOREACH name IN ARRAY ARRAY['packs', 'packed_heads'] LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN tenant TEXT NOT NULL DEFAULT ''''', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I USING (%s) WITH CHECK (%s)',
            name, own, own || ' AND ' || format(of_session, name)
        );
    END LOOP;
END
$$;

CREATE FUNCTION loopstore_packs_with_receipt() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT loopstore_is_open(NEW.session) THEN
        RAISE EXCEPTION 'a pack is only written while a receipt is open'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER packs_no_insert BEFORE INSERT ON packs FOR EACH ROW
EXECUTE FUNCTION loopstore_packs_with_receipt();
CREATE TRIGGER packs_no_update BEFORE UPDATE ON packs FOR EACH ROW
EXECUTE FUNCTION loopstore_never('a pack is never changed');
CREATE TRIGGER packs_no_delete BEFORE DELETE ON packs FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('a pack is never deleted');
CREATE TRIGGER packs_no_truncate BEFORE TRUNCATE ON packs
EXECUTE FUNCTION loopstore_never('what is stored is never truncated');
CREATE TRIGGER packed_heads_no_insert BEFORE INSERT ON packed_heads FOR EACH ROW
EXECUTE FUNCTION loopstore_packs_with_receipt();
CREATE TRIGGER packed_heads_no_update BEFORE UPDATE ON packed_heads FOR EACH ROW
EXECUTE FUNCTION loopstore_never('what is told of an archived message is never changed');
CREATE TRIGGER packed_heads_no_delete BEFORE DELETE ON packed_heads FOR EACH ROW
EXECUTE FUNCTION loopstore_only_with_receipt('what is told of an archived message is never deleted');
CREATE TRIGGER packed_heads_no_truncate BEFORE TRUNCATE ON packed_heads
EXECUTE FUNCTION loopstore_never('what is stored is never truncated');

-- Internal. Messages with their largest text back in its place. `json` is the head where it is JSON, or
-- what is told of an archived message; `payload` is the whole message, NULL when it was redacted or
-- archived.
CREATE OR REPLACE VIEW message_content AS
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
    END AS text
FROM messages m CROSS JOIN LATERAL (
    SELECT loopstore_json(coalesce(m.head, (
        SELECT p.head FROM packed_heads p
        WHERE p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
    ))) AS json OFFSET 0
) h;

-- The others read heads by themselves.
CREATE OR REPLACE VIEW v_turns AS
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
        FROM messages m CROSS JOIN LATERAL (
            SELECT loopstore_json(coalesce(m.head, (
                SELECT p.head FROM packed_heads p
                WHERE p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
            ))) AS json OFFSET 0
        ) j
        WHERE m.session = t.session AND m.loop = t.loop AND m.seq >= t.first_seq
            AND m.seq < t.end_seq AND m.role = 1
    ) u;

CREATE OR REPLACE VIEW v_tool_calls AS
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
    CROSS JOIN LATERAL (
        SELECT loopstore_json(coalesce(m.head, (
            SELECT p.head FROM packed_heads p
            WHERE p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
        ))) AS json OFFSET 0
    ) h
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
                AND loopstore_text(loopstore_value(loopstore_json(coalesce(x.head, (
                    SELECT p.head FROM packed_heads p
                    WHERE p.session = x.session AND p.loop = x.loop AND p.seq = x.seq
                ))), 'toolCallId')) = call.id
            UNION ALL
            -- A turn that answers another one's call names it: [loop,turn]. Only few do.
            SELECT 2, x.loop, t.turn, x.seq
            FROM turn_bounds t JOIN messages x ON x.session = t.session AND x.loop = t.loop
                AND x.seq >= t.first_seq AND x.seq < t.end_seq
            WHERE t.session = l.session AND t.answers IS NOT NULL
                AND (t.loop = l.key AND t.turn > m.turn
                    OR l.open_calls IS NOT NULL AND t.loop > l.key)
                AND strpos(t.answers, '[' || l.key || ',' || m.turn || ']') > 0 AND x.role = 2
                AND loopstore_text(loopstore_value(loopstore_json(coalesce(x.head, (
                    SELECT p.head FROM packed_heads p
                    WHERE p.session = x.session AND p.loop = x.loop AND p.seq = x.seq
                ))), 'toolCallId')) = call.id
        ) found
        JOIN message_content x
            ON x.session = l.session AND x.loop = found.loop AND x.seq = found.seq
        ORDER BY found.rank, found.loop, found.turn, found.seq LIMIT 1
    ) r ON TRUE;

CREATE OR REPLACE VIEW reported_usage AS
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
    CROSS JOIN LATERAL (
        SELECT loopstore_json(coalesce(m.head, (
            SELECT p.head FROM packed_heads p
            WHERE p.session = m.session AND p.loop = m.loop AND p.seq = m.seq
        ))) AS json OFFSET 0
    ) j
    CROSS JOIN LATERAL (SELECT j.json, loopstore_value(j.json, 'usage') AS usage OFFSET 0) u
WHERE m.role = 1 AND json_typeof(u.usage) = 'object';
