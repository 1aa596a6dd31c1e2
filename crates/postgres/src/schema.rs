//! Opening a database: the version of the server, its settings, the migrations.
//!
//! To change the schema: until 0.1.0 is released, edit `migrations/V1__store.sql` (its checksum distinguishes
//! the formats); afterwards add `migrations/V<n>__<what>.sql`. A table with rows of a session has a column
//! `tenant` and a policy of that name, as the tables in V1; in a database with tenants, bind the table and its
//! views to them after the migration.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

#[cfg(debug_assertions)]
use loopstore_core::failpoints::{self, Failpoint};
use loopstore_core::store::OpenError;
use loopstore_core::store::counter_choice::OtherCounter;
use loopstore_core::store::migrations::{Applied, Migrations};
use loopstore_model::Time;
use tokio_postgres::Row;

use super::cluster;
use super::connection::{Connection, Param};
use super::errors::{
    StatementError, describe, driver_text, from_connecting, is_serialization_failure,
};
use super::options::PostgresOptions;
use super::pooler::Pooling;
use super::url::Address;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The oldest version of the server that has the required triggers on partitioned tables.
const OLDEST: i64 = 14;

/// The key of the lock under which the tables are created: `LOOP` in ASCII.
const MIGRATION_LOCK: i64 = 0x4C4F_4F50;

/// Returns the migrations of this program. The number of the last one is the newest format that the program
/// reads and writes.
pub(super) fn migrations() -> &'static Migrations {
    fn embedded() -> Migrations {
        Migrations::embedded(&embedded::migrations::runner())
    }
    static EMBEDDED: LazyLock<Migrations> = LazyLock::new(embedded);
    #[cfg(debug_assertions)]
    static LATER: LazyLock<Migrations> = LazyLock::new(|| {
        embedded().and_later(
            "ALTER TABLE leases ADD COLUMN made_up TEXT NOT NULL DEFAULT 'later';
             UPDATE turns SET ended_at = ended_at;",
        )
    });
    #[cfg(debug_assertions)]
    if failpoints::is_active(Failpoint::LaterFormat) {
        return &LATER;
    }
    &EMBEDDED
}

/// Selects whether tenants are kept apart.
const SELECT_SEPARATION: &str =
    "SELECT (SELECT relrowsecurity FROM pg_class WHERE oid = 'sessions'::REGCLASS)";

pub(super) fn other(address: &Address, cause: impl std::fmt::Display) -> OpenError {
    OpenError::Server {
        place: address.place.clone(),
        detail: cause.to_string(),
    }
}

/// The condition under which `synchronous_commit` is set: an acknowledged commit must be on disk, whatever the
/// server's default is.
const IF_ASYNCHRONOUS: &str = "WHERE current_setting('synchronous_commit') = 'off'";

/// Returns the settings of `connect` for a transaction that may run in any server process. Each is a statement
/// of its own, as the nodes of a cluster receive the whole text that contains it.
pub(super) fn in_each_transaction(options: &PostgresOptions) -> [String; 3] {
    [
        "SET LOCAL citus.propagate_set_commands = 'local'".to_owned(),
        format!("SET LOCAL lock_timeout = {}", options.lock_timeout()),
        format!("SELECT set_config('synchronous_commit', 'on', TRUE) {IF_ASYNCHRONOUS}"),
    ]
}

const OPTIONS_ARE_LOST: &str = "`options` does not reach each transaction through a pooler; set it with \
    ALTER ROLE or ALTER DATABASE instead, or say `pooling=session` if the pooler keeps a connection for \
    each session (pool_mode = session) and passes `options` on";

const NO_MIGRATION: &str = "the tables are not there or not up to date, and are not made through a pooler, \
    which may change connections between transactions; open the database once through an address of the \
    server itself, or say `pooling=session` if the pooler keeps a connection for each session (pool_mode = \
    session)";

/// Connects, and applies the settings of each connection.
pub(super) fn connect(
    address: &Address,
    options: &PostgresOptions,
) -> Result<Connection, OpenError> {
    let mut link = address.connect(options.limit)?;
    let failed = |error: StatementError| from_connecting(&address.place, error);
    let is_shared = match address.pooling {
        Pooling::Unknown => link.is_pooled().map_err(failed)?,
        Pooling::Session => false,
        Pooling::Transaction => true,
    };
    link.share(is_shared);
    if is_shared && address.has_options {
        return Err(other(address, OPTIONS_ARE_LOST));
    }
    if is_shared {
        return Ok(link);
    }
    // With this, settings of a transaction reach the nodes of a Citus cluster; other servers ignore it.
    let settings = format!(
        "SET lock_timeout = {};
         SET citus.propagate_set_commands = 'local';
         SELECT set_config('synchronous_commit', 'on', FALSE) {IF_ASYNCHRONOUS}",
        options.lock_timeout()
    );
    link.batch(&settings).map_err(failed)?;
    Ok(link)
}

/// Checks the server, creates the tables if there are none or migrates them, and rejects tables of a newer or
/// of an unreleased format.
pub(super) fn prepare(
    link: &mut Connection,
    address: &Address,
    options: &mut PostgresOptions,
) -> Result<(), OpenError> {
    if !link.is_shared() {
        return prepare_at_one(link, address, options);
    }
    // All statements run in one server process.
    let failed = |error: StatementError| from_connecting(&address.place, error);
    link.batch("BEGIN").map_err(failed)?;
    prepare_at_one(link, address, options)?;
    link.batch("COMMIT").map_err(failed)
}

fn prepare_at_one(
    link: &mut Connection,
    address: &Address,
    options: &mut PostgresOptions,
) -> Result<(), OpenError> {
    check_server(link, address)?;
    cluster::prepare(link, address, options)?;
    let known = migrations().newest();
    let found = match format_of(link, address)? {
        // Another process may be creating the tables: they are complete once the lock is free.
        Err(OpenError::Damaged { .. }) => {
            lock_migrations(link, address)?;
            unlock_migrations(link, address)?;
            format_of(link, address)??
        }
        found => found?,
    };
    let path = PathBuf::from(&address.place);
    if found > known {
        return Err(OpenError::Newer { path, found, known });
    }
    if found == 0 && (options.read_only || !options.create) {
        return Err(OpenError::Missing { path });
    }
    if found < known && options.read_only {
        return Err(OpenError::Older { path, found, known });
    }
    if found < known && link.is_shared() {
        return Err(other(address, NO_MIGRATION));
    }
    if found < known {
        migrate(link, address)?;
    }
    check_tenant(link, address, options)?;
    if !options.read_only {
        write_meta(link, options).map_err(|error| other(address, describe(&error)))?;
    }
    check_counter(link, address, options)
}

/// Returns the row of a query that always has one row.
pub(super) fn only(
    link: &mut Connection,
    sql: &str,
    params: &[Param<'_>],
) -> Result<Row, StatementError> {
    let row = link.first(sql, params)?;
    row.ok_or_else(|| StatementError::Local("a question was answered with nothing".into()))
}

fn check_server(link: &mut Connection, address: &Address) -> Result<(), OpenError> {
    let sql = "SELECT current_setting('server_version_num')::BIGINT / 10000,
        current_setting('server_encoding')";
    let row = only(link, sql, &[]).map_err(|error| from_connecting(&address.place, error))?;
    let (version, encoding): (i64, String) = (row.get(0), row.get(1));
    if version < OLDEST {
        return Err(OpenError::OldServer {
            place: address.place.clone(),
            found: version,
            oldest: OLDEST,
        });
    }
    match encoding.as_str() {
        "UTF8" => Ok(()),
        other_encoding => Err(other(
            address,
            format!("its texts are in {other_encoding}; loopstore needs a database in UTF8"),
        )),
    }
}

/// Returns the number of the last migration that was applied, 0 if there are no tables; or the error of damaged
/// tables.
fn format_of(
    link: &mut Connection,
    address: &Address,
) -> Result<Result<i64, OpenError>, OpenError> {
    let failed = |error: StatementError| other(address, describe(&error));
    let sql = "SELECT to_regclass('refinery_schema_history') IS NOT NULL,
        to_regclass('store_meta') IS NOT NULL";
    let row = only(link, sql, &[]).map_err(failed)?;
    let (has_history, has_tables): (bool, bool) = (row.get(0), row.get(1));
    let history = match has_history {
        true => history(link).map_err(failed)?,
        false => Vec::new(),
    };
    Ok(migrations().last_applied(Path::new(&address.place), &history, has_tables))
}

fn history(link: &mut Connection) -> Result<Vec<Applied>, StatementError> {
    let sql = "SELECT version::BIGINT, name::TEXT, applied_on::TEXT, checksum::TEXT
        FROM refinery_schema_history ORDER BY version";
    let rows = link.query(sql, &[])?;
    let applied = rows.iter().map(|row| Applied {
        version: row.get(0),
        name: row.get(1),
        applied_on: row.get(2),
        checksum: row.get(3),
    });
    Ok(applied.collect())
}

fn lock_migrations(link: &mut Connection, address: &Address) -> Result<(), OpenError> {
    let lock = format!("SELECT pg_advisory_lock({MIGRATION_LOCK})");
    link.batch(&lock)
        .map_err(|error| other(address, describe(&error)))
}

fn unlock_migrations(link: &mut Connection, address: &Address) -> Result<(), OpenError> {
    let unlock = format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})");
    link.batch(&unlock)
        .map_err(|error| other(address, describe(&error)))
}

/// Runs the migrations in one transaction, in one process at a time.
fn migrate(link: &mut Connection, address: &Address) -> Result<(), OpenError> {
    let failed = |error: StatementError| other(address, describe(&error));
    lock_migrations(link, address)?;
    // The functions keep the search path of their creation. `pg_temp` is last in it, so that temporary tables
    // cannot replace those of the store.
    let sql =
        "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', FALSE)";
    only(link, sql, &[]).map_err(failed)?;
    let done = link.migrate(&migrations().runner()).map_err(failed)?;
    let done = done.map_err(|error| unfinished(address, &error));
    let done = done.and_then(|()| {
        let sql =
            format!("SELECT loopstore_keep_apart() FROM ({SELECT_SEPARATION}) t (yes) WHERE yes");
        link.batch(&sql).map_err(failed)
    });
    link.batch("RESET search_path").map_err(failed)?;
    unlock_migrations(link, address)?;
    done
}

/// Rejects a role that sees every tenant: public ids are unique within a tenant only, and would be ambiguous. A
/// recount requires such a role, since the counter belongs to the whole database.
fn check_tenant(
    link: &mut Connection,
    address: &Address,
    options: &PostgresOptions,
) -> Result<(), OpenError> {
    let sql = format!("{SELECT_SEPARATION}, row_security_active('sessions')");
    let row = only(link, &sql, &[]).map_err(|error| other(address, describe(&error)))?;
    let (are_apart, sees_one): (bool, bool) = (row.get(0), row.get(1));
    match (options.other_counter == OtherCounter::Recount, sees_one) {
        (false, false) if are_apart => Err(OpenError::EveryTenant {
            place: address.place.clone(),
        }),
        (true, true) => Err(other(
            address,
            "tenants are kept apart here, and a recount is of all of them; it takes a superuser, or a \
             role with BYPASSRLS that may write all tables",
        )),
        _ => Ok(()),
    }
}

/// Converts an error of the migrations, none of which was kept.
fn unfinished(address: &Address, error: &refinery::Error) -> OpenError {
    let cause = std::error::Error::source(error);
    let Some(cause) = cause.and_then(|cause| cause.downcast_ref::<tokio_postgres::Error>()) else {
        return other(address, error);
    };
    match cause.code() {
        Some(code) if is_serialization_failure(code.code()) => OpenError::Busy,
        _ => other(address, driver_text(cause)),
    }
}

/// Writes the properties of the database once.
fn write_meta(link: &mut Connection, options: &PostgresOptions) -> Result<(), StatementError> {
    let entries: i64 = only(link, "SELECT count(*) FROM store_meta", &[])?.get(0);
    if entries >= 3 {
        return Ok(());
    }
    let mut key = [0u8; 32];
    // If the system has no random numbers, no message could be stored either.
    let has_key = getrandom::fill(&mut key).is_ok();
    let values = [
        ("token_counter", options.counter.name().to_owned()),
        ("import_key", hex::encode(key)),
        ("created_at", Time::now().as_str().to_owned()),
    ];
    for (name, value) in values.iter().filter(|_| has_key) {
        link.execute(
            "INSERT INTO store_meta (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            &[name, value],
        )?;
    }
    Ok(())
}

/// Compares the counter of the database with the counter of the options.
fn check_counter(
    link: &mut Connection,
    address: &Address,
    options: &mut PostgresOptions,
) -> Result<(), OpenError> {
    let sql = "SELECT (SELECT value FROM store_meta WHERE name = 'token_counter'),
        (SELECT value FROM store_meta WHERE name = 'recount')";
    let row = only(link, sql, &[]).map_err(|error| other(address, describe(&error)))?;
    let (stored, recounting): (Option<String>, Option<String>) = (row.get(0), row.get(1));
    let stored = stored.ok_or_else(|| OpenError::Damaged {
        path: PathBuf::from(&address.place),
        detail: "its token counter is not noted".into(),
    })?;
    let recounting = recounting.map(|note| loopstore_core::store::recount::counter_of(&note));
    let given = options.counter.clone();
    options.counter = options.other_counter.choose(given, stored, recounting)?;
    Ok(())
}

/// Returns the tables, views, functions and triggers that the migrations create, as `KIND name`.
pub(super) fn objects() -> Vec<String> {
    let scripts = migrations().scripts().iter();
    let lines = scripts.flat_map(|script| script.sql().unwrap_or_default().lines());
    let made = lines.filter_map(|line| {
        let (kind, rest) = line.strip_prefix("CREATE ")?.split_once(' ')?;
        let name = rest.split([' ', '(']).next()?;
        let is_listed = matches!(kind, "TABLE" | "VIEW" | "FUNCTION" | "TRIGGER");
        is_listed.then(|| format!("{kind} {name}"))
    });
    made.collect()
}
