//! A running Citus cluster: `LOOPSTORE_CITUS` is the address of its coordinator
//! (`postgres://USER@HOST:PORT/NAME`), where the user may create databases and connects to the workers without
//! a password. `.ci/citus` starts one. Each test has a database of its own on all nodes.

use std::sync::Mutex;

use postgres::{Client, NoTls};

/// The coordinator of a cluster.
pub struct Cluster {
    /// The address up to the name of the database.
    reach: String,
    maintenance: String,
    /// The nodes of a database are created one after another.
    making: Mutex<()>,
}

impl Cluster {
    /// Returns the cluster that the environment names.
    pub fn from_environment() -> Option<Self> {
        let address = std::env::var("LOOPSTORE_CITUS").ok()?;
        let (reach, maintenance) = address.rsplit_once('/').expect("LOOPSTORE_CITUS is no URL");
        Some(Self {
            reach: reach.to_owned(),
            maintenance: maintenance.to_owned(),
            making: Mutex::new(()),
        })
    }

    /// Returns the address of a database on the coordinator.
    pub fn address(&self, database: &str) -> String {
        format!("{}/{database}", self.reach)
    }

    fn client(address: &str) -> Client {
        Client::connect(address, NoTls).unwrap_or_else(|error| panic!("{address}: {error:?}"))
    }

    /// Runs a script in a database, each statement on its own as `psql` sends it: a cluster passes the whole
    /// text of a statement on to its nodes.
    pub fn run(&self, database: &str, script: &str) -> Result<(), postgres::Error> {
        let mut client = Self::client(&self.address(database));
        let (mut statement, mut in_body) = (String::new(), false);
        for line in script.lines() {
            statement.push_str(line);
            statement.push('\n');
            in_body ^= line.ends_with("$$") || line.starts_with("$$");
            if !in_body && line.ends_with(';') {
                client.batch_execute(&statement)?;
                statement.clear();
            }
        }
        Ok(())
    }

    /// Returns where the workers are.
    pub fn workers(&self) -> Vec<(String, i32)> {
        let sql = "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid > 0 AND isactive
            ORDER BY groupid";
        let mut all = Self::client(&self.address(&self.maintenance));
        let nodes = all.query(sql, &[]).unwrap();
        let workers: Vec<(String, i32)> =
            nodes.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(!workers.is_empty(), "the cluster has no workers");
        workers
    }

    /// Creates an empty database on all nodes, connects the nodes, and returns its name.
    pub fn database(&self, number: u32) -> String {
        let name = format!("test_{}_{number}", std::process::id());
        let _one = self.making.lock().unwrap();
        let mut all = Self::client(&self.address(&self.maintenance));
        let workers = self.workers();
        let (user, _) = self
            .reach
            .split_once('@')
            .expect("no user in LOOPSTORE_CITUS");
        let make = format!("CREATE DATABASE {name}");
        for (host, port) in &workers {
            let reach = format!("{user}@{host}:{port}");
            let mut worker = Self::client(&format!("{reach}/{}", self.maintenance));
            worker.batch_execute(&make).unwrap();
            let mut worker = Self::client(&format!("{reach}/{name}"));
            worker.batch_execute("CREATE EXTENSION citus").unwrap();
        }
        all.batch_execute(&make).unwrap();
        let mut coordinator = Self::client(&self.address(&name));
        let of = "SELECT nodename, nodeport FROM pg_dist_node WHERE groupid = 0";
        let own = all.query_one(of, &[]).unwrap();
        let (host, port): (String, i32) = (own.get(0), own.get(1));
        coordinator
            .batch_execute(&format!(
                "CREATE EXTENSION citus; SELECT citus_set_coordinator_host('{host}', {port})"
            ))
            .unwrap();
        for (host, port) in &workers {
            let add = format!("SELECT citus_add_node('{host}', {port})");
            coordinator.batch_execute(&add).unwrap();
        }
        name
    }
}
