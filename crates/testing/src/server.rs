//! The PostgreSQL server of the tests: in a temporary folder, on loopback and a socket in that folder, one for
//! each test program, with a database for each test.
//!
//! The server belongs to a shell that waits for the end of its input: when the test program ends in any way,
//! the shell stops the server and removes the folder. For root, all of it runs as the user `postgres` (or
//! `nobody`), as the server rejects root.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use loopstore_postgres::{Engine, PostgresOptions, PostgresStore, schema, tenant};
use postgres::{Client, NoTls};

use super::citus::Cluster;
use super::needs;

/// The password of the user `postgres`, which only TCP requires.
pub const PASSWORD: &str = "s3cret-of-the-tests";

/// Starts the server and prints its folder. Texts are sorted by the rules of English, so that an order that was
/// left to the database shows; a server that was built without ICU cannot do this.
const SCRIPT: &str = r#"
set -e
cd /
dir=$(mktemp -d /tmp/loopstore-pg.XXXXXX)
printf '%s' "$PASSWORD" > "$dir/password"
case "$("$BIN/pg_config" --configure 2>/dev/null)" in
    *--without-icu*) order= ;;
    *) order="--locale-provider=icu --icu-locale=en-US" ;;
esac
"$BIN/initdb" -D "$dir/data" -U postgres -E UTF8 --locale=C.UTF-8 $order \
    --auth-local=trust --auth-host=scram-sha-256 --pwfile="$dir/password" \
    --no-sync > "$dir/log" 2>&1 || { cat "$dir/log" >&2; rm -rf "$dir"; exit 1; }
"$BIN/postgres" -D "$dir/data" -k "$dir" -p "$PORT" -c listen_addresses=127.0.0.1 -c fsync=off \
    -c max_connections=200 -c shared_buffers=64MB -c max_prepared_transactions=0 \
    -c client_min_messages=warning >> "$dir/log" 2>&1 &
server=$!
until "$BIN/pg_isready" -q -h "$dir" -p "$PORT"; do
    kill -0 $server || { cat "$dir/log" >&2; rm -rf "$dir"; exit 1; }
    sleep 0.05
done
echo "$dir"
read -r _ || true
kill -QUIT $server
wait $server || true
rm -rf "$dir"
"#;

/// A server that runs.
pub struct PostgresServer {
    /// The shell that waits for the end of its input; `None` for a cluster that was started elsewhere.
    shell: Option<Child>,
    pub bin: PathBuf,
    pub folder: PathBuf,
    pub port: u16,
    /// The cluster of which this server is the coordinator, if there is one.
    cluster: Option<Cluster>,
}

/// Returns the user who may start a server, if this user may not.
pub fn owner() -> Option<&'static str> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    if !is_root {
        return None;
    }
    let has = |name: &str| {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        users
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")))
    };
    Some(if has("postgres") {
        "postgres"
    } else {
        "nobody"
    })
}

/// Returns a command that runs as a user who may start a server.
pub fn as_owner(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let Some(user) = owner() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={user}"), "--init-groups"])
        .arg(format!("--regid={user}"))
        .arg(program);
    command
}

/// Returns a free port.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl PostgresServer {
    /// Starts a server.
    pub fn start(bin: &Path) -> Self {
        let port = free_port();
        let mut shell = as_owner("sh")
            .args(["-c", SCRIPT])
            .env("BIN", bin)
            .env("PORT", port.to_string())
            .env("PASSWORD", PASSWORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = shell.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the server did not start");
        Self {
            shell: Some(shell),
            bin: bin.to_owned(),
            folder: line.trim_end().into(),
            port,
            cluster: None,
        }
    }

    /// Returns the coordinator of a running cluster.
    fn of(cluster: Cluster) -> Self {
        Self {
            shell: None,
            bin: PathBuf::new(),
            folder: PathBuf::new(),
            port: 0,
            cluster: Some(cluster),
        }
    }

    /// Returns the address of a database through the socket.
    pub fn address(&self, database: &str) -> String {
        if let Some(cluster) = &self.cluster {
            return cluster.address(database);
        }
        let folder = self.folder.to_str().unwrap().replace('/', "%2F");
        format!("postgres://postgres@{folder}:{}/{database}", self.port)
    }

    /// Returns the address of a database through the socket for some role.
    pub fn address_as(&self, role: &str, database: &str) -> String {
        let encoded: String = role.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.address(database)
            .replacen("postgres@", &format!("{encoded}@"), 1)
    }

    /// Returns the address of a database through TCP.
    pub fn tcp_address(&self, database: &str) -> String {
        if self.cluster.is_some() {
            return self.address(database);
        }
        format!(
            "postgres://postgres:{PASSWORD}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// Connects to a database without the store.
    pub fn client(&self, database: &str) -> Client {
        Client::connect(&self.address(database), NoTls).unwrap()
    }

    /// Makes an empty database and returns its name.
    pub fn database(&self) -> String {
        self.database_like("template1")
    }

    fn database_like(&self, template: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if let Some(cluster) = &self.cluster {
            return cluster.database(number);
        }
        let name = format!("test_{number}");
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template}");
        self.client("postgres").batch_execute(&sql).unwrap();
        name
    }

    /// Makes a database that a store may open: an empty one, or one with distributed tables on a cluster, where
    /// a store makes none.
    pub fn openable(&self) -> String {
        match self.cluster {
            Some(_) => self.prepared(),
            None => self.database(),
        }
    }

    /// Makes a database with the tables of a store and returns its name.
    pub fn prepared(&self) -> String {
        if let Some(cluster) = &self.cluster {
            let name = self.database();
            cluster.run(&name, &schema(Engine::Citus)).unwrap();
            // The first program that opens the database writes its properties.
            drop(PostgresStore::open(&self.address(&name)).unwrap());
            self.have_tenant(&name);
            return name;
        }
        static TEMPLATE: OnceLock<String> = OnceLock::new();
        let template = TEMPLATE.get_or_init(|| {
            let name = self.database();
            drop(PostgresStore::open(&self.address(&name)).unwrap());
            name
        });
        let name = self.database_like(template);
        self.have_tenant(&name);
        name
    }

    /// True if this is a cluster.
    pub fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// Returns the addresses of a database on the workers of a cluster, with `{role}` in place of the role.
    pub fn workers(&self, database: &str) -> Vec<String> {
        let cluster = self.cluster.as_ref().expect("this is no cluster");
        let nodes = cluster.workers().into_iter();
        nodes
            .map(|(host, port)| format!("postgres://{{role}}@{host}:{port}/{database}"))
            .collect()
    }

    /// Returns the kind of server that the tables are made for.
    pub fn engine(&self) -> Engine {
        match self.cluster {
            Some(_) => Engine::Citus,
            None => Engine::Plain { partitions: 1 },
        }
    }

    /// Runs a script as an operator does.
    pub fn run(&self, database: &str, script: &str) -> Result<(), postgres::Error> {
        match &self.cluster {
            Some(cluster) => cluster.run(database, script),
            None => self.client(database).batch_execute(script),
        }
    }

    /// Makes a role with all rights to all tables a tenant.
    pub fn make_tenant(&self, database: &str, name: &str, role: &str) {
        let quoted = format!("\"{}\"", role.replace('"', "\"\""));
        let made = format!("CREATE ROLE {quoted} LOGIN;");
        self.run(database, &made).unwrap();
        let script = tenant(self.engine(), name, role).unwrap();
        self.run(database, &script).unwrap();
        let all = format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {quoted};
REVOKE INSERT, UPDATE, DELETE ON tenant_roles FROM {quoted};"
        );
        self.run(database, &all).unwrap();
    }

    /// With `LOOPSTORE_AS_TENANT` set, tests work on a database as one of two tenants.
    fn have_tenant(&self, database: &str) {
        if std::env::var_os("LOOPSTORE_AS_TENANT").is_some() {
            self.make_tenant(database, "one", &format!("one of {database}"));
            self.make_tenant(database, "two", &format!("two of {database}"));
        }
    }

    /// Returns the address of a database of its own that a store may open.
    pub fn openable_address(&self) -> String {
        match std::env::var_os("LOOPSTORE_AS_TENANT") {
            Some(_) => self.user_address(&self.prepared()),
            None => self.tcp_address(&self.openable()),
        }
    }

    /// Returns the address of a database for the role that tests use.
    pub fn user_address(&self, database: &str) -> String {
        match std::env::var_os("LOOPSTORE_AS_TENANT") {
            Some(_) => self.address_as(&format!("one of {database}"), database),
            None => self.address(database),
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(shell) = &mut self.shell {
            drop(shell.stdin.take());
            shell.wait().unwrap();
        }
    }
}

/// Returns the server of this test program; `None` if PostgreSQL is not installed. With `LOOPSTORE_CITUS` it is
/// the coordinator of that cluster.
#[track_caller]
pub fn server() -> Option<&'static PostgresServer> {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    if let Some(cluster) = Cluster::from_environment() {
        return Some(SERVER.get_or_init(|| PostgresServer::of(cluster)));
    }
    let bin = needs::find(&needs::POSTGRES)?;
    Some(SERVER.get_or_init(|| PostgresServer::start(&bin)))
}

/// Returns a store in a database of its own.
#[track_caller]
pub fn store() -> Option<PostgresStore> {
    let server = server()?;
    let options = PostgresOptions::new().connections(8);
    Some(PostgresStore::open_with(&server.user_address(&server.prepared()), options).unwrap())
}
