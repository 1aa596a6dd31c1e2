//! The schema as an operator runs it: plain, partitioned, or distributed by Citus.
//!
//! The store creates plain tables itself. Partitions and distribution are the operator's choice and are created
//! before the store first opens the database; the script also records the migrations that it replaces.

use loopstore_core::store::{StoreError, StoreResult};

use super::schema::migrations;

/// The kind of server that the tables are created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// One PostgreSQL server. Each table is partitioned by the hash of its session.
    Plain {
        /// The number of partitions of each table; 1 for plain tables.
        partitions: u32,
    },
    /// A Citus cluster. Each table is distributed by its session, and all rows of a session are on one node.
    Citus,
}

/// The tables that are partitioned or distributed by their session. A table comes before the tables that refer to it.
pub const BY_SESSION: [&str; 30] = [
    "sessions",
    "audit",
    "receipt_chain",
    "loops",
    "turns",
    "messages",
    "blobs",
    "blob_refs",
    "runs",
    "flips",
    "pins",
    "hides",
    "blocks",
    "block_messages",
    "edits",
    "coverage",
    "manifests",
    "imports",
    "maintenance",
    "redactions",
    "session_flags",
    "leases",
    "started_calls",
    "append_keys",
    "notes",
    "source_sessions",
    "packs",
    "packed_heads",
    "message_words",
    "indexed_loops",
];

/// The tables of kept files, and the column that each is distributed by.
const BY_SOURCE: [(&str, &str); 3] = [
    ("sources", "key"),
    ("source_pieces", "source"),
    ("source_parts", "source"),
];

/// Returns the SQL script that creates the tables.
///
/// ```
/// use loopstore_postgres::{Engine, schema};
///
/// let script = schema(Engine::Plain { partitions: 16 });
/// assert!(script.contains("PARTITION BY HASH"));
/// ```
pub fn schema(engine: Engine) -> String {
    let mut script = String::from(
        "BEGIN;
-- The functions keep this path: temporary tables cannot stand in for those of the store.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', TRUE);\n\n",
    );
    if engine == Engine::Citus {
        script.push_str(BEFORE_CITUS);
    }
    for migration in migrations().scripts() {
        let sql = migration.sql().unwrap_or_default();
        let sql = match engine {
            Engine::Plain { partitions } if partitions > 1 => partitioned(sql, partitions),
            Engine::Citus => distributed(sql),
            Engine::Plain { .. } => sql.to_owned(),
        };
        script.push_str(sql.trim_end());
        script.push_str("\n\n");
    }
    script.push_str(&history());
    script.push_str("\nCOMMIT;\n");
    script
}

/// Tables of which a recorder updates some columns: totals, clocks, leases, marks, and runs, which it closes.
const UPDATED: &str = "sessions, loops, turns, runs, session_flags, leases, started_calls, sources, \
    indexed_loops, index_state, message_words";

/// Tables of which a recorder deletes rows: messages that are not sealed, notes of a loop that ended, and the
/// index.
const EMPTIED: &str = "messages, turns, blob_refs, redactions, notes, source_parts, source_pieces, \
    message_words, indexed_loops, index_state";

/// Returns the SQL script that grants a role the rights to append and to compact. The role can neither overwrite
/// messages, blocks and runs nor open a receipt, without which no content can be removed.
///
/// ```
/// let script = loopstore_postgres::grants("recorder");
/// assert!(script.contains("REVOKE INSERT ON maintenance FROM \"recorder\""));
/// ```
pub fn grants(role: &str) -> String {
    let role = identifier(role);
    format!(
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};
GRANT INSERT ON {}, session_names, sources, source_pieces, source_parts, index_state TO {role};
REVOKE INSERT ON maintenance FROM {role};
GRANT UPDATE ON {UPDATED} TO {role};
GRANT DELETE ON {EMPTIED} TO {role};
",
        BY_SESSION.join(", ")
    )
}

/// The maximum length of a tenant's name in bytes, since an index contains it. On a cluster the name is also a
/// part of the name of a role.
const LONGEST_TENANT: usize = 200;
const LONGEST_TENANT_OF_CITUS: usize = 42;

/// Returns the SQL script that makes a role a role of the tenant `name`: it has the rights of [`grants`] on the rows
/// of this tenant alone. A tenant may have several roles. The owner of the tables runs the script; on a cluster the
/// owner also needs the right to create roles.
///
/// # Errors
/// If the name is empty, longer than 200 bytes (42 on a cluster) or contains U+0000.
///
/// # Examples
/// ```
/// use loopstore_postgres::{Engine, tenant};
///
/// let script = tenant(Engine::Plain { partitions: 1 }, "acme", "acme_agents")?;
/// assert!(script.contains("'acme'"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tenant(engine: Engine, name: &str, role: &str) -> StoreResult<String> {
    let longest = match engine {
        Engine::Plain { .. } => LONGEST_TENANT,
        Engine::Citus => LONGEST_TENANT_OF_CITUS,
    };
    if name.is_empty() || name.len() > longest || name.contains('\0') {
        return Err(StoreError::Invalid(format!(
            "the name of a tenant has 1 to {longest} bytes, none of them zero"
        )));
    }
    let (role_name, tenant_name) = (literal(&identifier(role)), literal(name));
    let (before, noted) = match engine {
        Engine::Plain { .. } => (
            "",
            format!(
                "INSERT INTO tenant_roles (role, tenant) VALUES ({role_name}, {tenant_name})
ON CONFLICT (role) DO UPDATE SET tenant = excluded.tenant;"
            ),
        ),
        Engine::Citus => (
            "SET LOCAL citus.multi_shard_modify_mode = 'sequential';\n",
            format!("SELECT loopstore_put_into_tenant({role_name}, {tenant_name});"),
        ),
    };
    Ok(format!(
        "BEGIN;
{before}-- Nobody makes objects among those of the store but its owner.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
{}-- The first role of a tenant switches row-level security on.
{noted}
COMMIT;
",
        grants(role)
    ))
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a text as an SQL literal that is valid with any `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Returns the statements that record the migrations, so that the store accepts the tables as of this format.
fn history() -> String {
    let mut sql = String::from(
        "CREATE TABLE IF NOT EXISTS refinery_schema_history (
    version INT4 PRIMARY KEY, name VARCHAR(255), applied_on VARCHAR(255), checksum VARCHAR(255)
);
INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES\n",
    );
    let rows: Vec<String> = migrations()
        .scripts()
        .iter()
        .map(|one| {
            format!(
                "    ({}, '{}', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), '{}')",
                one.version(), one.name(), one.checksum()
            )
        })
        .collect();
    sql.push_str(&rows.join(",\n"));
    sql.push_str(";\n");
    sql
}

/// Appends the text that `then` returns for a table to each paragraph that creates or alters the table. The
/// statement that creates the table ends with `end` there.
fn after_tables(sql: &str, end: &str, then: impl Fn(&str) -> Option<String>) -> String {
    let paragraphs = sql.trim_end().split("\n\n").map(|paragraph| {
        let made = paragraph
            .find("CREATE TABLE ")
            .map(|at| &paragraph[at + 13..]);
        let name = made.and_then(|rest| rest.split(' ').next());
        match name.and_then(&then) {
            Some(then) => {
                let made = paragraph.replacen("\n);", &format!("\n{end}"), 1);
                format!("{made}\n{then}")
            }
            None => paragraph.to_owned(),
        }
    });
    paragraphs.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn partitioned(sql: &str, partitions: u32) -> String {
    after_tables(sql, ") PARTITION BY HASH (session);", |name| {
        let part = |number| {
            format!(
                "CREATE TABLE {name}_p{number} PARTITION OF {name}
    FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number});"
            )
        };
        let parts: Vec<String> = (0..partitions).map(part).collect();
        BY_SESSION.contains(&name).then(|| parts.join("\n"))
    })
}

/// The settings of a cluster while the tables are created.
const BEFORE_CITUS: &str = "\
-- The triggers look at rows of their own session only, which lie on the same node.
SET LOCAL citus.enable_unsafe_triggers = on;
-- Functions are made on all nodes, in the same transaction as tables.
SET LOCAL citus.multi_shard_modify_mode = 'sequential';

";

/// The separation of tenants on a cluster, where no policy may query a table. One server has another one: its
/// statements stay prepared, and a value that is read when they are planned would not be read again.
const CITUS_TENANTS: &str = include_str!("../citus/tenants.sql");

/// The paragraphs of the schema of one server that `CITUS_TENANTS` replaces: at the first of them it is
/// inserted, the rest is removed.
const TENANTS_OF_ONE_SERVER: [&str; 4] = [
    "CREATE FUNCTION loopstore_tenant()",
    "CREATE POLICY tenant ",
    "CREATE FUNCTION loopstore_keep_apart()",
    "CREATE FUNCTION loopstore_tenant_comes()",
];

/// Distributes each table when it is created, before foreign keys and triggers are added.
fn distributed(sql: &str) -> String {
    let whole = after_tables(sql, ");", |name| {
        Some(format!("SELECT {};", placement(name)))
    });
    let of_cluster = |paragraph: &str| {
        let place = TENANTS_OF_ONE_SERVER
            .iter()
            .position(|part| paragraph.contains(part));
        match place {
            None => Some(allow_queries_on_nodes(paragraph)),
            Some(0) => Some(CITUS_TENANTS.trim_end().to_owned()),
            Some(_) => None,
        }
    };
    let parts = whole.split("\n\n").filter_map(of_cluster);
    parts.collect::<Vec<_>>().join("\n\n")
}

/// The functions that views call for the rows of one session: they run on a node and query tables there.
const CALLED_BY_VIEWS: [&str; 6] = [
    "loopstore_chain",
    "loopstore_active_by_loop",
    "loopstore_active_blocks",
    "loopstore_context_loops",
    "loopstore_parts",
    "loopstore_usage_below",
];

/// Allows the functions that views call to query from a node. A server without Citus accepts the setting from a
/// superuser only, so that the migrations cannot contain it.
fn allow_queries_on_nodes(paragraph: &str) -> String {
    let is_asked = CALLED_BY_VIEWS
        .iter()
        .any(|name| paragraph.contains(&format!("CREATE FUNCTION {name}(")));
    match is_asked {
        true => paragraph.replacen(
            "LANGUAGE plpgsql STABLE AS $$",
            "LANGUAGE plpgsql STABLE SET citus.allow_nested_distributed_execution = on AS $$",
            1,
        ),
        false => paragraph.to_owned(),
    }
}

/// Returns the column by which a table is distributed, and the table with which it is colocated. A table
/// without a column is copied to all nodes.
pub(super) fn placement_of(name: &str) -> (Option<&'static str>, Option<&'static str>) {
    if let Some((_, column)) = BY_SOURCE.iter().find(|(table, _)| *table == name) {
        return (Some(column), (name != "sources").then_some("sources"));
    }
    match name {
        "sessions" => (Some("session"), None),
        "session_names" => (Some("session_id"), None),
        _ if BY_SESSION.contains(&name) => (Some("session"), Some("sessions")),
        _ => (None, None),
    }
}

/// Returns the call that distributes a table.
fn placement(name: &str) -> String {
    let (column, colocated) = placement_of(name);
    let Some(column) = column else {
        return format!("create_reference_table('{name}')");
    };
    let colocated = colocated.unwrap_or("none");
    format!("create_distributed_table('{name}', '{column}', colocate_with => '{colocated}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables that are not distributed by their session.
    const OTHERS: [&str; 8] = [
        "heads",
        "store_meta",
        "session_names",
        "sources",
        "source_pieces",
        "source_parts",
        "index_state",
        "tenant_roles",
    ];

    #[test]
    fn every_table_is_by_session_or_has_a_reason() {
        let known = super::super::schema::objects();
        let tables = known.iter().filter_map(|name| name.strip_prefix("TABLE "));
        for table in tables {
            assert!(
                BY_SESSION.contains(&table) != OTHERS.contains(&table),
                "{table}"
            );
        }
        let script = schema(Engine::Plain { partitions: 4 });
        assert_eq!(
            script.matches("PARTITION BY HASH (session)").count(),
            BY_SESSION.len()
        );
        assert_eq!(script.matches("PARTITION OF").count(), 4 * BY_SESSION.len());
        let script = schema(Engine::Citus);
        let count = script.matches("create_distributed_table(").count();
        assert_eq!(count, BY_SESSION.len() + 1 + BY_SOURCE.len());
        assert_eq!(script.matches("create_reference_table(").count(), 4);
        // Not for a table that is distributed already.
        for (table, column) in [
            ("blobs", "data"),
            ("packs", "content"),
            ("source_pieces", "data"),
        ] {
            let at = |text: &str| script.find(text).unwrap_or_else(|| panic!("{text}"));
            let stored = at(&format!(
                "ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE"
            ));
            assert!(stored < at(&format!("create_distributed_table('{table}'")));
        }
        // On a cluster no policy queries a table.
        let policies = script.split("CREATE POLICY tenant ").skip(1);
        let policies: Vec<&str> = policies
            .map(|policy| policy.split(';').next().unwrap_or_default())
            .collect();
        assert_eq!(policies.len(), 1);
        assert!(!policies[0].contains("SELECT"));
        for part in TENANTS_OF_ONE_SERVER {
            let sql: String = migrations()
                .scripts()
                .iter()
                .filter_map(|one| one.sql())
                .collect();
            assert!(sql.contains(part), "{part}");
            assert_eq!(script.matches(part).count(), 1, "{part}");
        }
        let nested = "SET citus.allow_nested_distributed_execution = on";
        assert_eq!(script.matches(nested).count(), CALLED_BY_VIEWS.len());
        assert!(!schema(Engine::Plain { partitions: 1 }).contains("SET citus."));
    }
}
