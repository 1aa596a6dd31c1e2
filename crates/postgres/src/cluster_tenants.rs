//! The check that a cluster keeps its tenants apart: on each node, in each table, partition and view.

use super::cluster::Checks;
use super::connection::Connection;
use super::ddl::literal;
use super::errors::StatementError;
use super::schema::{objects, only};

/// Selects, on a node, the tables, their shards and the views that are open to every tenant. A shard has the
/// name of its table and a number.
const OPEN: &str = "
    SELECT coalesce(string_agg(c.relname::TEXT, ', ' ORDER BY c.relname), '') FROM pg_class c
    WHERE c.relnamespace = (SCHEMA)::REGNAMESPACE AND CASE
        WHEN c.relkind = 'v' AND c.relname = ANY (VIEWS)
        THEN NOT coalesce('security_invoker=true' = ANY (c.reloptions), FALSE)
        WHEN c.relkind IN ('r', 'p') AND regexp_replace(c.relname, '_[0-9]+$', '') = ANY (TABLES)
        THEN NOT (c.relrowsecurity AND c.relforcerowsecurity)
            OR (
                SELECT count(*) <> 1 OR bool_or(NOT p.polpermissive OR p.polname <> 'tenant'
                    OR pg_get_expr(p.polqual, c.oid) !~ '^\\(tenant = [a-z_.]*loopstore_own_tenant\\(\\)\\)$'
                    OR pg_get_expr(p.polwithcheck, c.oid) IS DISTINCT FROM pg_get_expr(p.polqual, c.oid))
                FROM pg_policy p WHERE p.polrelid = c.oid
            )
        ELSE FALSE
    END";

/// Selects, on a node, the tenant of each role, and the functions that return it.
const TENANT_ROLES: &str = "
    SELECT coalesce((
        SELECT string_agg(DISTINCT pg_get_userbyid(m.roleid) || ' ' || pg_get_userbyid(m.member)
            || ' ' || m.admin_option || ' ' || r.rolcanlogin, E'\\n')
        FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
        WHERE starts_with(r.rolname, PREFIX)
    ), '') || E'\\n' || coalesce((
        SELECT string_agg(f.proname || ' ' || f.provolatile::TEXT || ' ' || f.prosecdef || ' '
            || coalesce(f.proconfig::TEXT, '') || ' ' || f.prosrc, E'\\n' ORDER BY f.proname)
        FROM pg_proc f
        WHERE f.pronamespace = (SCHEMA)::REGNAMESPACE
            AND f.proname IN ('loopstore_tenant_prefix', 'loopstore_tenant', 'loopstore_own_tenant')
    ), '')";

/// Selects the roles that could see more than one tenant.
const UNRESTRICTED_ROLES: &str = "
    SELECT coalesce(string_agg(DISTINCT r.rolname::TEXT, ', '), '')
    FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member
    WHERE starts_with(pg_get_userbyid(m.roleid), loopstore_tenant_prefix()) AND NOT m.admin_option
        AND (r.rolsuper OR r.rolbypassrls OR r.rolreplication OR r.rolcreaterole OR (
            SELECT count(DISTINCT o.roleid) FROM pg_auth_members o
            WHERE o.member = m.member AND NOT o.admin_option
                AND starts_with(pg_get_userbyid(o.roleid), loopstore_tenant_prefix())
        ) > 1)";

/// Selects the number of tenants, and whether the tables keep them apart.
const TENANTS: &str = "
    SELECT (SELECT count(DISTINCT roleid) FROM pg_auth_members
            WHERE starts_with(pg_get_userbyid(roleid), loopstore_tenant_prefix())),
        (SELECT relrowsecurity FROM pg_class WHERE oid = 'sessions'::REGCLASS),
        current_schema()::TEXT, loopstore_tenant_prefix()";

/// Selects the tables whose rows have the tenant of their session or file, but no foreign key that ensures it.
const WITHOUT_REFERENCE: &str = "
    SELECT coalesce(string_agg(c.relname::TEXT, ', ' ORDER BY c.relname), '')
    FROM pg_dist_partition d JOIN pg_class c ON c.oid = d.logicalrelid
    WHERE c.relname = ANY ($1) AND EXISTS (
            SELECT 1 FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attname IN ('session', 'source') AND NOT a.attisdropped
        )
        AND c.relname <> ALL (ARRAY['sessions', 'session_names', 'audit', 'receipt_chain', 'maintenance'])
        AND NOT EXISTS (
            SELECT 1 FROM pg_constraint f
            WHERE f.conrelid = c.oid AND f.conname = c.relname || '_of_tenant' AND f.convalidated
        )";

/// The tables without rows of a tenant.
const COMMON: [&str; 2] = ["store_meta", "tenant_roles"];

/// Returns the tables and views of the schema with rows of a tenant.
fn known(kind: &str) -> Vec<String> {
    let all = objects().into_iter();
    let names = all.filter_map(|name| Some(name.strip_prefix(kind)?.trim_start().to_owned()));
    names
        .filter(|name| !COMMON.contains(&name.as_str()))
        .collect()
}

fn array(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
    format!("ARRAY[{}]", names.join(", "))
}

/// Runs a query on every node; returns each result with the name of its node.
fn query_all_nodes(
    link: &mut Connection,
    question: &str,
) -> Result<Vec<(String, bool, String)>, StatementError> {
    let sql = format!(
        "SELECT n.nodename || ':' || n.nodeport, a.success, coalesce(a.result, '')
         FROM run_command_on_all_nodes({}) a JOIN pg_dist_node n USING (nodeid) ORDER BY n.groupid",
        literal(question)
    );
    let rows = link.query(&sql, &[])?;
    let answers = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
    Ok(answers.collect())
}

/// Checks that tenants are kept apart, if the cluster has tenants.
pub(super) fn run_checks(link: &mut Connection, checks: &mut Checks) -> Result<(), StatementError> {
    let row = only(link, TENANTS, &[])?;
    let (count, is_on): (i64, bool) = (row.get(0), row.get(1));
    let (schema, prefix): (String, String) = (row.get(2), row.get(3));
    if count == 0 && !is_on {
        let detail = "there are none; whoever has rights to the tables sees all sessions";
        checks.add("tenants", true, detail);
        return Ok(());
    }
    let tables = known("TABLE ");
    let fill = |sql: &str| {
        sql.replace(
            "SCHEMA",
            &literal(&format!("\"{}\"", schema.replace('"', "\"\""))),
        )
        .replace("PREFIX", &literal(&prefix))
        .replace("VIEWS", &array(&known("VIEW ")))
        .replace("TABLES", &array(&tables))
    };
    let mut wrong = Vec::new();
    for (node, answered, open) in query_all_nodes(link, &fill(OPEN))? {
        match (answered, open.is_empty()) {
            (false, _) => wrong.push(format!("{node} does not say: {open}")),
            (true, false) => wrong.push(format!("open to every tenant on {node}: {open}")),
            (true, true) => {}
        }
    }
    let roles = query_all_nodes(link, &fill(TENANT_ROLES))?;
    let own = roles.first().map(|(_, _, roles)| roles.clone());
    for (node, answered, roles) in roles {
        if !answered || Some(&roles) != own.as_ref() {
            wrong.push(format!(
                "{node} says otherwise who is in which tenant than the coordinator"
            ));
        }
    }
    let sees_more: String = only(link, UNRESTRICTED_ROLES, &[])?.get(0);
    if !sees_more.is_empty() {
        wrong.push(format!("sees more than one tenant: {sees_more}"));
    }
    let without: String = only(link, WITHOUT_REFERENCE, &[&tables])?.get(0);
    if !without.is_empty() {
        wrong.push(format!(
            "rows may come to the sessions of another tenant in: {without}"
        ));
    }
    match wrong.is_empty() {
        true => checks.add("tenants", true, format!("{count}, kept apart on all nodes")),
        false => checks.add(
            "tenants",
            false,
            format!(
                "{}; SELECT loopstore_keep_apart() on the coordinator puts up what is missing there",
                wrong.join("; ")
            ),
        ),
    }
    Ok(())
}
