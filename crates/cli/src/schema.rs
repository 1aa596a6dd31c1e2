//! `loopstore schema`

use loopstore_postgres::{ClusterReport, Engine, check_cluster, grants, schema, tenant};
use loopstore_terminal::{App, CliError, Done};

/// Print the DDL of a PostgreSQL database, partitioned or for Citus
///
/// A database that `loopstore` opens for writing gets plain tables by itself. To partition them by
/// session, or to distribute them over the nodes of a Citus cluster, run this script in an empty
/// database first: `loopstore schema --partitions 16 | psql -v ON_ERROR_STOP=1 NAME`.
#[derive(clap::Args)]
pub struct SchemaArgs {
    /// The kind of server.
    #[arg(long, value_enum, default_value = "plain")]
    engine: SchemaEngine,
    /// The number of hash partitions of the tables, by session (plain).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    /// With --engine citus: look instead whether the cluster that --db names is set up as it should be, and
    /// exit with 1 if not. Changes nothing.
    #[arg(long, conflicts_with = "partitions")]
    check: bool,
    /// Print instead the grants with which this role can append and compact, but not change or remove.
    #[arg(long, value_name = "ROLE", conflicts_with_all = ["partitions", "check"])]
    grant_to: Option<String>,
    /// With --grant-to: only for the rows of this tenant, which no other tenant can see or write. Needs
    /// PostgreSQL 15; a tenant may have several roles. On a cluster with --engine citus.
    #[arg(long, value_name = "NAME", requires = "grant_to")]
    tenant: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SchemaEngine {
    /// One PostgreSQL server.
    Plain,
    /// A Citus cluster.
    Citus,
}

/// Prints the script, or the result of a check of a cluster.
pub fn run(app: &mut App, args: &SchemaArgs) -> Result<Done, CliError> {
    if args.check {
        return check(app, args.engine);
    }
    let engine = match args.engine {
        SchemaEngine::Plain => Engine::Plain {
            partitions: args.partitions,
        },
        SchemaEngine::Citus if args.partitions > 1 => {
            let why = "Citus shards by itself; --partitions needs --engine plain";
            return Err(CliError::Usage(why.into()));
        }
        SchemaEngine::Citus => Engine::Citus,
    };
    let script = match (&args.grant_to, &args.tenant) {
        (Some(role), Some(name)) => {
            tenant(engine, name, role).map_err(|error| CliError::Usage(error.to_string()))?
        }
        (Some(role), None) => grants(role),
        (None, _) => schema(engine),
    };
    app.print(&serde_json::json!({"sql": script}), || {
        script.trim_end().to_owned()
    })?;
    Ok(Done::Well)
}

fn check(app: &mut App, engine: SchemaEngine) -> Result<Done, CliError> {
    if !matches!(engine, SchemaEngine::Citus) {
        let why = "--check looks at a cluster; it needs --engine citus";
        return Err(CliError::Usage(why.into()));
    }
    let Some(address) = app.address() else {
        let why = "--check needs the address of the coordinator, as --db postgres://HOST/NAME";
        return Err(CliError::Usage(why.into()));
    };
    let report = check_cluster(address)?;
    app.print(&report, || summary(&report))?;
    Ok(if report.ok { Done::Well } else { Done::Badly })
}

/// Returns a report as text for people.
fn summary(report: &ClusterReport) -> String {
    let mut lines = vec![match report.ok {
        true => format!("{} is set up as it should be", report.database),
        false => format!("{} is not set up as it should be", report.database),
    }];
    lines.extend(report.checks.iter().map(|check| {
        let mark = if check.ok { "ok " } else { "NOT" };
        format!("  {mark} {}: {}", check.name, check.detail)
    }));
    lines.join("\n")
}
