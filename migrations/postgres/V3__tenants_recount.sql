-- Many tenants in one database, kept apart by row-level security.
--
-- Whose rows a role sees and writes is noted in `tenant_roles`, which only the owner of the tables may
-- write; no setting that a client can change says so. A role that is not noted there is in the unnamed
-- tenant ''. Every row names its tenant; the rows of a session have that of the session.
--
-- A database without tenants pays for none of this: row-level security is switched on, and tenants are
-- filled in, when the first role is noted.

CREATE TABLE tenant_roles (
    -- A role is noted by its number, so that it stays in its tenant when it is renamed.
    role   REGROLE PRIMARY KEY,
    tenant TEXT NOT NULL CHECK (tenant <> '' AND octet_length(tenant) <= 200)
);
-- Which tenants there are is nobody's business. The owner sees all of it.
ALTER TABLE tenant_roles ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_role ON tenant_roles FOR SELECT USING (role = quote_ident(current_user)::REGROLE);

-- The tenant of the role that asks, for what it adds. It has a search path of its own: whoever asks may
-- have functions and operators that bear the names of others.
CREATE FUNCTION loopstore_tenant() RETURNS TEXT
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce(
        (SELECT t.tenant FROM tenant_roles t WHERE t.role = quote_ident(current_user)::REGROLE), ''
    );
END
$$;

-- The tables that hold something of a tenant, and what must be the tenant's own for a row to be added
-- or changed: references pass row-level security by, so that a row could otherwise be put into the
-- session of somebody else, unseen but in the way. A receipt outlives its session; that it is never
-- changed is what a trigger sees to.
DO $$
DECLARE
    one RECORD;
    -- As loopstore_tenant(), which takes several times as long.
    own TEXT := $own$tenant = (SELECT coalesce(
        (SELECT t.tenant FROM tenant_roles t WHERE t.role = quote_ident(current_user)::REGROLE), ''
    ))$own$;
    of_session TEXT := '(SELECT s.session FROM sessions s WHERE s.session = %1$I.session) = session';
    of_source TEXT := '(SELECT f.key FROM sources f WHERE f.key = %1$I.source) = source';
BEGIN
    FOR one IN SELECT * FROM (VALUES
        ('sessions', NULL), ('sources', NULL), ('index_state', NULL), ('maintenance', NULL),
        ('session_names', of_session), ('loops', of_session), ('turns', of_session),
        ('messages', of_session), ('blobs', of_session), ('blob_refs', of_session),
        ('runs', of_session), ('flips', of_session), ('blocks', of_session),
        ('block_messages', of_session), ('coverage', of_session), ('manifests', of_session),
        ('imports', of_session), ('redactions', of_session), ('session_flags', of_session),
        ('leases', of_session), ('started_calls', of_session), ('notes', of_session),
        ('message_words', of_session), ('indexed_loops', of_session),
        ('indexed_sessions', of_session), ('source_sessions', of_session || ' AND ' || of_source),
        ('source_pieces', of_source), ('source_parts', of_source)
    ) AS t (name, rule)
    LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN tenant TEXT NOT NULL DEFAULT ''''', one.name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I USING (%s) WITH CHECK (%s)',
            one.name, own, own || coalesce(' AND ' || format(one.rule, one.name), '')
        );
    END LOOP;
END
$$;
CREATE POLICY of_own_session ON maintenance AS RESTRICTIVE FOR INSERT
    WITH CHECK ((SELECT s.session FROM sessions s WHERE s.session = maintenance.session) = session);

-- Public ids are each tenant's own, and so is the state of its index.
ALTER TABLE session_names DROP CONSTRAINT session_names_pkey, ADD PRIMARY KEY (session_id, tenant);
ALTER TABLE index_state DROP CONSTRAINT index_state_pkey, ADD PRIMARY KEY (key, tenant);

-- Switches row-level security on for every table that has a policy for tenants, and for the parts of
-- those that are partitioned, which are closed to whoever names them; lets every view ask with the
-- rights of its reader. What is so already is not touched.
CREATE FUNCTION loopstore_keep_apart() RETURNS VOID
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    one RECORD;
BEGIN
    IF current_setting('server_version_num')::INT < 150000 THEN
        RAISE EXCEPTION 'tenants need PostgreSQL 15 or later'
            USING HINT = 'Views of earlier versions ask with the rights of their owner.';
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
    -- Who lists its sessions, or searches them all, reads those of no other tenant.
    CREATE INDEX IF NOT EXISTS sessions_tenant ON sessions (tenant, session);
END
$$;

-- There is no tenant without the barrier, nor one with a role that passes it by.
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

-- `loopstore recount` counts the tokens of everything anew. A write of somebody who has the database open
-- takes a share of the lock that a recount holds, and then looks: it either ends before the recount begins,
-- or is told.
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
