-- Many tenants on a cluster. These statements replace the separation of tenants on one server. A policy of a
-- distributed table cannot contain a subquery or a function that reads a table, so that only the system
-- catalogue can define the rows that a role sees. Each tenant has a role without rights, called its mark. A
-- role belongs to a tenant while it is a direct member of the mark. The name of a mark is a prefix that only
-- this database has, and the name of the tenant. Citus creates roles and memberships on all nodes, including
-- nodes that are added later. No client can log in as a mark.

-- The prefix is random, because all databases of a cluster share their roles. A renamed database keeps its
-- prefix.
DO $$
BEGIN
    EXECUTE format(
        'CREATE FUNCTION loopstore_tenant_prefix() RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
        format('SELECT %L', 'loopstore:' || left(replace(gen_random_uuid()::TEXT, '-', ''), 10) || ':')
    );
END
$$;

-- Returns the tenant of the current role, for the rows that the role adds. The right to grant a mark does not
-- make a role a member of the tenant, and no role belongs to two tenants. The function sets its own search
-- path, because a caller may have functions and operators of the same names.
CREATE FUNCTION loopstore_tenant() RETURNS TEXT
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
    prefix TEXT := loopstore_tenant_prefix();
    own TEXT[];
BEGIN
    own := ARRAY(
        SELECT DISTINCT substr(pg_get_userbyid(m.roleid)::TEXT, length(prefix) + 1) FROM pg_auth_members m
        WHERE m.member = quote_ident(current_user)::REGROLE AND NOT m.admin_option
            AND starts_with(pg_get_userbyid(m.roleid)::TEXT, prefix)
    );
    IF cardinality(own) > 1 THEN
        RAISE EXCEPTION 'the role % is in more than one tenant', quote_ident(current_user)
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN coalesce(own[1], '');
END
$$;

-- Returns the same tenant, for policies. A STABLE function would run for each row, because there is no
-- subquery that runs it once. An IMMUTABLE function runs when a statement is planned. Under row-level
-- security a statement is planned anew for each role, and the nodes plan each statement when they receive it.
CREATE FUNCTION loopstore_own_tenant() RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN loopstore_tenant();
END
$$;

-- Every table whose rows belong to tenants has a policy.
DO $$
DECLARE
    one RECORD;
BEGIN
    FOR one IN
        SELECT d.logicalrelid AS name FROM pg_dist_partition d
            JOIN pg_attribute a ON a.attrelid = d.logicalrelid AND a.attname = 'tenant' AND NOT a.attisdropped
        WHERE d.logicalrelid NOT IN (SELECT 'tenant_roles'::REGCLASS)
        ORDER BY d.logicalrelid
    LOOP
        EXECUTE format(
            'CREATE POLICY tenant ON %s USING (tenant = loopstore_own_tenant())
             WITH CHECK (tenant = loopstore_own_tenant())', one.name);
    END LOOP;
END
$$;

-- A receipt can be opened only for a session of the same tenant. A receipt outlives its session, so that the
-- table has no foreign key.
CREATE FUNCTION loopstore_receipt_of_own_session() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM sessions s WHERE s.session = NEW.session AND s.tenant = NEW.tenant
    ) THEN
        RAISE EXCEPTION 'a receipt is never opened for the session of another tenant'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

-- Enables row-level security for every table that has a policy for tenants, and makes every view read with
-- the rights of its reader. Foreign keys check what a policy cannot check: a row has the tenant of its
-- session, or of its file. Tables and views that are already set are not altered.
CREATE FUNCTION loopstore_keep_apart() RETURNS VOID
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    one RECORD;
BEGIN
    PERFORM set_config('citus.multi_shard_modify_mode', 'sequential', TRUE),
        set_config('citus.enable_unsafe_triggers', 'on', TRUE);
    -- Foreign keys need these indexes. A role that lists or searches all its sessions reads none of another
    -- tenant.
    CREATE UNIQUE INDEX IF NOT EXISTS sessions_tenant ON sessions (tenant, session);
    CREATE UNIQUE INDEX IF NOT EXISTS sources_tenant ON sources (tenant, key);
    FOR one IN
        SELECT c.oid::REGCLASS AS name FROM pg_dist_partition d JOIN pg_class c ON c.oid = d.logicalrelid
            JOIN pg_policy p ON p.polrelid = c.oid AND p.polname = 'tenant'
        WHERE NOT (c.relrowsecurity AND c.relforcerowsecurity)
        ORDER BY c.oid
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', one.name);
        EXECUTE format('ALTER TABLE %s ALTER COLUMN tenant SET DEFAULT loopstore_tenant()', one.name);
    END LOOP;
    -- Tables that are not stored with their session or file get no foreign key, and neither do tables that
    -- outlive it. The audit chain has a trigger.
    FOR one IN
        SELECT c.relname, r.place, r.of FROM pg_dist_partition d JOIN pg_class c ON c.oid = d.logicalrelid
            JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
            JOIN pg_policy p ON p.polrelid = c.oid AND p.polname = 'tenant'
            JOIN (VALUES ('session', 'sessions (session, tenant)'), ('source', 'sources (key, tenant)'))
                AS r (place, of) ON r.place = a.attname
        WHERE c.relname <> ALL (ARRAY['sessions', 'session_names', 'audit', 'receipt_chain', 'maintenance'])
            AND NOT (c.relname = 'source_sessions' AND a.attname = 'source')
            AND NOT EXISTS (
                SELECT 1 FROM pg_constraint f
                WHERE f.conrelid = c.oid AND f.conname = c.relname || '_of_tenant'
            )
        ORDER BY c.oid
    LOOP
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I FOREIGN KEY (%I, tenant) REFERENCES %s',
            one.relname, one.relname || '_of_tenant', one.place, one.of);
    END LOOP;
    IF NOT EXISTS (
        SELECT 1 FROM pg_trigger WHERE tgrelid = 'maintenance'::REGCLASS AND tgname = 'receipts_of_own_session'
    ) THEN
        CREATE TRIGGER receipts_of_own_session BEFORE INSERT ON maintenance FOR EACH ROW
        EXECUTE FUNCTION loopstore_receipt_of_own_session();
    END IF;
    FOR one IN
        SELECT c.oid::REGCLASS AS name FROM pg_class c
        WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind = 'v'
            AND NOT coalesce('security_invoker=true' = ANY (c.reloptions), FALSE)
    LOOP
        EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', one.name);
    END LOOP;
END
$$;

-- Adds a role to a tenant and removes it from its former tenant. Enables row-level security, and rejects a
-- role that can bypass it.
CREATE FUNCTION loopstore_put_into_tenant(role REGROLE, tenant TEXT) RETURNS VOID
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    prefix TEXT := loopstore_tenant_prefix();
    mark TEXT := prefix || tenant;
    one RECORD;
BEGIN
    IF tenant = '' OR octet_length(mark) > 63 THEN
        RAISE EXCEPTION 'the name of a tenant on a cluster has 1 to % bytes', 63 - octet_length(prefix);
    END IF;
    IF EXISTS (
        SELECT 1 FROM pg_roles r WHERE r.oid = role
            AND (r.rolsuper OR r.rolbypassrls OR r.rolreplication OR r.rolcreaterole)
    ) THEN
        RAISE EXCEPTION 'the role % may see more than one tenant', role
            USING HINT = 'A tenant''s role is no superuser and has none of BYPASSRLS, REPLICATION and CREATEROLE.';
    END IF;
    PERFORM loopstore_keep_apart();
    IF to_regrole(quote_ident(mark)) IS NULL THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', mark);
    END IF;
    FOR one IN
        SELECT DISTINCT pg_get_userbyid(m.roleid) AS mark FROM pg_auth_members m
        WHERE m.member = role AND starts_with(pg_get_userbyid(m.roleid)::TEXT, prefix)
            AND pg_get_userbyid(m.roleid) <> mark
    LOOP
        EXECUTE format('REVOKE %I FROM %s', one.mark, role);
    END LOOP;
    EXECUTE format('GRANT %I TO %s', mark, role);
END
$$;

-- The table tenant_roles is for one server and stays empty on a cluster.
CREATE FUNCTION loopstore_tenant_comes() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'tenants of a cluster are not noted in tenant_roles'
        USING HINT = 'Take the script of: loopstore schema --engine citus --tenant NAME --grant-to ROLE';
END
$$;
CREATE TRIGGER tenant_comes AFTER INSERT OR UPDATE ON tenant_roles
FOR EACH STATEMENT EXECUTE FUNCTION loopstore_tenant_comes();
