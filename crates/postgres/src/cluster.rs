//! A Citus cluster: opening a database on one, and the check of its setup.
//!
//! A store writes and reads through the coordinator alone: a worker has the tables but not all other objects of
//! the database, and an advisory lock is local to one node. A store does not create tables on a cluster itself:
//! they would be stored, with all rows, on the coordinator.

use loopstore_core::store::OpenError;

use super::cluster_tenants;
use super::connection::Connection;
use super::ddl::{BY_SESSION, placement_of};
use super::errors::{StatementError, describe};
use super::options::PostgresOptions;
use super::schema::{connect, only, other};
use super::url::Address;

/// Selects the group of this node if Citus is installed (the coordinator is 0), and whether the table of
/// sessions exists and is distributed.
const NODE: &str = "SELECT g.groupid::BIGINT, to_regclass('sessions') IS NOT NULL,
        EXISTS (SELECT 1 FROM pg_dist_partition WHERE logicalrelid = to_regclass('sessions'))
    FROM pg_dist_local_group g";

/// A query that returns true if a node acknowledges a commit before it is on disk.
const ACKNOWLEDGES_EARLY: &str = "SELECT coalesce(bool_or(result = 'off'), FALSE)
    FROM run_command_on_workers('SHOW synchronous_commit')";

fn has_citus(link: &mut Connection) -> Result<bool, StatementError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus')";
    Ok(only(link, sql, &[])?.get(0))
}

/// Rejects a database of a cluster whose tables are not distributed, and a worker. Records the settings that
/// each transaction has to send to the nodes.
pub(super) fn prepare(
    link: &mut Connection,
    address: &Address,
    options: &mut PostgresOptions,
) -> Result<(), OpenError> {
    let failed = |error: StatementError| other(address, describe(&error));
    if !has_citus(link).map_err(failed)? {
        return Ok(());
    }
    let place = address.place.clone();
    let row = only(link, NODE, &[]).map_err(failed)?;
    let (group, is_there, is_distributed): (i64, bool, bool) = (row.get(0), row.get(1), row.get(2));
    if group != 0 {
        return Err(OpenError::Worker { place });
    }
    if !is_distributed {
        let detail = match is_there {
            true => "its tables lie on the coordinator alone",
            false => "there are no tables yet",
        };
        let detail = detail.to_owned();
        return Err(OpenError::Undistributed { place, detail });
    }
    let forgets: bool = only(link, ACKNOWLEDGES_EARLY, &[]).map_err(failed)?.get(0);
    options.on_nodes = vec![format!(
        "SET LOCAL lock_timeout = {}",
        options.lock_timeout()
    )];
    if forgets {
        // An acknowledged commit must be on disk on each node.
        options
            .on_nodes
            .push("SET LOCAL synchronous_commit = 'on'".to_owned());
    }
    Ok(())
}

/// The report of a check of a cluster's setup.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ClusterReport {
    /// True if every check passed.
    pub ok: bool,
    /// The hosts and the name of the database, without user and password.
    pub database: String,
    /// The checks, in order.
    pub checks: Vec<ClusterCheck>,
}

/// A check of the setup.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ClusterCheck {
    /// The name of the check: `citus`, `coordinator`, `workers`, `transactions`, `durability`, `tables`, `placement`
    /// or `tenants`.
    pub name: &'static str,
    /// True if the check passed.
    pub ok: bool,
    /// The finding, with the remedy if the check failed.
    pub detail: String,
}

/// The checks made so far.
pub(super) struct Checks(Vec<ClusterCheck>);

impl Checks {
    pub(super) fn add(&mut self, name: &'static str, ok: bool, detail: impl Into<String>) {
        let detail = detail.into();
        self.0.push(ClusterCheck { name, ok, detail });
    }
}

/// Checks if the database at `address` belongs to a Citus cluster with the setup that a store requires. Changes
/// nothing.
///
/// # Errors
/// If the server cannot be reached or rejects a query.
pub fn check_cluster(address: &str) -> Result<ClusterReport, OpenError> {
    let address = Address::parse(address, false)?;
    let mut link = connect(&address, &PostgresOptions::default())?;
    let mut checks = Checks(Vec::new());
    let done = run_checks(&mut link, &mut checks);
    done.map_err(|error| other(&address, describe(&error)))?;
    Ok(ClusterReport {
        ok: checks.0.iter().all(|check| check.ok),
        database: address.place,
        checks: checks.0,
    })
}

/// Runs the checks in order; stops at the first whose failure makes the next one impossible.
fn run_checks(link: &mut Connection, checks: &mut Checks) -> Result<(), StatementError> {
    if !has_citus(link)? {
        let detail =
            "the extension citus is not in this database; run CREATE EXTENSION citus on all nodes";
        checks.add("citus", false, detail);
        return Ok(());
    }
    let version: String = only(link, "SELECT citus_version()", &[])?.get(0);
    let short = version.split(" on ").next().unwrap_or_default();
    checks.add("citus", true, short);
    let sql = "SELECT groupid::BIGINT FROM pg_dist_local_group";
    let group: i64 = only(link, sql, &[])?.get(0);
    if group != 0 {
        let detail = "this server is a worker; give the address of the coordinator";
        checks.add("coordinator", false, detail);
        return Ok(());
    }
    let sql = "SELECT nodename || ':' || nodeport FROM pg_dist_node WHERE groupid = 0";
    let own = link.first(sql, &[])?.map(|row| row.get::<_, String>(0));
    match own {
        Some(own) => checks.add("coordinator", true, format!("the nodes know it as {own}")),
        None => checks.add(
            "coordinator",
            false,
            "the nodes do not know the coordinator; run citus_set_coordinator_host",
        ),
    }
    workers(link, checks)?;
    if tables(link, checks)? {
        cluster_tenants::run_checks(link, checks)?;
    }
    Ok(())
}

/// Checks that there are workers, that they answer, and that an acknowledged commit is on their disks.
fn workers(link: &mut Connection, checks: &mut Checks) -> Result<(), StatementError> {
    let sql =
        "SELECT count(*), count(*) FILTER (WHERE isactive AND metadatasynced AND shouldhaveshards)
        FROM pg_dist_node WHERE groupid > 0";
    let row = only(link, sql, &[])?;
    let (all, ready): (i64, i64) = (row.get(0), row.get(1));
    if all == 0 {
        checks.add(
            "workers",
            false,
            "there is none; run citus_add_node for each",
        );
        return Ok(());
    }
    let sql = "SELECT nodename || ':' || nodeport || ' (' || result || ')'
        FROM run_command_on_workers('SELECT 1') WHERE NOT success";
    let silent: Vec<String> = link.query(sql, &[])?.iter().map(|row| row.get(0)).collect();
    match (ready == all, silent.is_empty()) {
        (_, false) => checks.add(
            "workers",
            false,
            format!("no answer from {}", silent.join(", ")),
        ),
        (false, _) => checks.add(
            "workers",
            false,
            format!(
                "{ready} of {all} are active, hold shards and know the tables; see pg_dist_node"
            ),
        ),
        _ => checks.add("workers", true, format!("{all}, all active")),
    }
    if !silent.is_empty() {
        return Ok(());
    }
    let sql = "SELECT coalesce(string_agg(nodename || ':' || nodeport, ', '), '')
        FROM run_command_on_all_nodes('SHOW max_prepared_transactions')
            JOIN pg_dist_node n USING (nodeid) WHERE result = '0'";
    let unable: String = only(link, sql, &[])?.get(0);
    match unable.is_empty() {
        true => checks.add(
            "transactions",
            true,
            "writes to several nodes are kept by all or none",
        ),
        false => checks.add(
            "transactions",
            false,
            format!(
                "{unable}: set max_prepared_transactions to the number of connections, at least"
            ),
        ),
    }
    let sql = "SELECT coalesce(string_agg(nodename || ':' || nodeport, ', '), '')
        FROM run_command_on_all_nodes('SHOW fsync') JOIN pg_dist_node n USING (nodeid)
        WHERE result = 'off'";
    let forgetful: String = only(link, sql, &[])?.get(0);
    match forgetful.is_empty() {
        true => checks.add(
            "durability",
            true,
            "every node writes what it commits to its disk",
        ),
        false => checks.add(
            "durability",
            false,
            format!(
                "{forgetful}: fsync is off, so that a crash of the machine damages what is stored"
            ),
        ),
    }
    Ok(())
}

/// Checks that all tables exist and are distributed as they should be; returns true if all exist.
fn tables(link: &mut Connection, checks: &mut Checks) -> Result<bool, StatementError> {
    let sql = "SELECT c.relname::TEXT, p.partmethod::TEXT,
            CASE WHEN p.partmethod = 'h' THEN column_to_column_name(c.oid, p.partkey) END,
            p.colocationid::BIGINT
        FROM pg_class c LEFT JOIN pg_dist_partition p ON p.logicalrelid = c.oid
        WHERE c.relnamespace = current_schema()::REGNAMESPACE AND c.relkind IN ('r', 'p')";
    type Table = (String, Option<String>, Option<String>, Option<i64>);
    let found: Vec<Table> = link
        .query(sql, &[])?
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect();
    let known = super::schema::objects();
    let known: Vec<&str> = known
        .iter()
        .filter_map(|name| name.strip_prefix("TABLE "))
        .collect();
    let of = |name: &str| found.iter().find(|(table, ..)| table == name);
    let missing: Vec<&str> = known
        .iter()
        .copied()
        .filter(|name| of(name).is_none())
        .collect();
    if missing.len() == known.len() {
        let detail = "there are none; run the printed script in this empty database";
        checks.add("tables", false, detail);
        return Ok(false);
    }
    match missing.is_empty() {
        true => checks.add("tables", true, format!("all {} are there", known.len())),
        false => checks.add("tables", false, format!("missing: {}", missing.join(", "))),
    }
    let group = |name: &str| of(name).and_then(|(.., group)| *group);
    let wrong: Vec<&str> = known
        .iter()
        .copied()
        .filter(|name| !missing.contains(name))
        .filter(|name| {
            let Some((_, method, column, _)) = of(name) else {
                return true;
            };
            let (wanted, colocated) = placement_of(name);
            match wanted {
                None => method.as_deref() != Some("n"),
                Some(wanted) => {
                    column.as_deref() != Some(wanted)
                        || colocated.is_some_and(|colocated| group(name) != group(colocated))
                }
            }
        })
        .collect();
    match wrong.is_empty() {
        true => checks.add(
            "placement",
            true,
            format!("{} tables lie with their session, the others as they should", BY_SESSION.len()),
        ),
        false => checks.add(
            "placement",
            false,
            format!(
                "not distributed as they should be: {}; make them anew with the printed script, in an empty \
                 database",
                wrong.join(", ")
            ),
        ),
    }
    Ok(missing.is_empty())
}
