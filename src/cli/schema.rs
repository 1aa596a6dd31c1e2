//! `loopstore schema`

use loopstore::store::postgres::{Engine, grants, schema, tenant};

use super::error::CliError;
use super::{App, Done};

/// Print what makes the tables of a PostgreSQL database, partitioned or for Citus
///
/// A database that `loopstore` opens for writing gets plain tables by itself. Whoever wants them
/// partitioned by session, or distributed over the nodes of a Citus cluster, runs this script in an
/// empty database first: `loopstore schema --partitions 16 | psql -v ON_ERROR_STOP=1 NAME`.
#[derive(clap::Args)]
pub struct Args {
    /// What the tables are made for.
    #[arg(long, value_enum, default_value = "plain")]
    engine: Kind,
    /// Partition the tables by the hash of the session into so many parts (plain).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    /// Print instead what lets this role append and compact, and change or remove nothing.
    #[arg(long, value_name = "ROLE", conflicts_with_all = ["engine", "partitions"])]
    grant_to: Option<String>,
    /// With --grant-to: on the rows of this tenant alone, which no other tenant sees or writes. Needs
    /// PostgreSQL 15; several roles may be one tenant.
    #[arg(long, value_name = "NAME", requires = "grant_to")]
    tenant: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// One PostgreSQL server.
    Plain,
    /// A Citus cluster.
    Citus,
}

/// Prints the script.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let engine = match args.engine {
        Kind::Plain => Engine::Plain {
            partitions: args.partitions,
        },
        Kind::Citus if args.partitions > 1 => {
            let why = "Citus makes its own parts; --partitions is for --engine plain";
            return Err(CliError::Usage(why.into()));
        }
        Kind::Citus => Engine::Citus,
    };
    let script = match (&args.grant_to, &args.tenant) {
        (Some(role), Some(name)) => {
            tenant(name, role).map_err(|error| CliError::Usage(error.to_string()))?
        }
        (Some(role), None) => grants(role),
        (None, _) => schema(engine),
    };
    match app.json {
        true => app.out.json(&serde_json::json!({"sql": script}))?,
        false => app.out.text(script.trim_end())?,
    }
    Ok(Done::Well)
}
