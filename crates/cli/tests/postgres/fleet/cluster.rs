//! Three nodes of Patroni with etcd, and a PgBouncer that follows the leader: real programs in a temporary folder,
//! which end with this process (`cluster.sh`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use loopstore_testing::postgres::{self, Client, NoTls};

use crate::support::server::{free_port, owner};
use crate::support::{hang, needs};

const SCRIPT: &str = include_str!("cluster.sh");

/// The seconds after which an unresponsive leader loses its role. Patroni recommends 30.
const TTL: &str = "6";

/// A fault of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// All of its processes are killed.
    Kill,
    /// All of its network traffic is dropped.
    Cut,
    /// An operator switches over to another node.
    SwitchOver,
    /// Its processes are frozen, until a watchdog resets the machine.
    Freeze,
    /// It is stopped as a service is.
    Stop,
}

impl Fault {
    pub const ALL: [Self; 5] = [
        Self::Kill,
        Self::Cut,
        Self::SwitchOver,
        Self::Freeze,
        Self::Stop,
    ];

    fn command(self) -> &'static str {
        match self {
            Self::Kill => "kill9",
            Self::Cut => "cut",
            Self::SwitchOver => "switch_over",
            Self::Freeze => "freeze",
            Self::Stop => "stop",
        }
    }

    /// Returns the command that lets the node rejoin.
    fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Kill | Self::Stop => Some("start"),
            Self::Cut => Some("heal"),
            Self::Freeze => Some("reset"),
            Self::SwitchOver => None,
        }
    }
}

/// The running programs.
pub struct Fleet {
    shell: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: String,
    ports: Vec<u16>,
    bouncer: u16,
    /// True if its network can be cut.
    pub has_cuts: bool,
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

/// Returns a command in a network namespace of its own, whose processes and mounts end with the first process.
fn isolated_command() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork"]);
    command.args(["--kill-child", "--mount-proc"]);
    command
}

impl Fleet {
    /// Starts the cluster with a synchronous standby, and creates an empty database; `None` if a program is missing.
    #[track_caller]
    pub fn start() -> Option<Self> {
        let bin = needs::find(&needs::POSTGRES)?;
        let patroni = needs::find(&needs::PATRONI)?;
        let (etcd, pgbouncer) = (needs::find(&needs::ETCD)?, needs::find(&needs::PGBOUNCER)?);
        let bash = needs::find(&needs::BASH)?;
        let has_cuts = is_root() && needs::find(&needs::IP).is_some() && {
            let tried = isolated_command()
                .args(["ip", "link", "set", "lo", "up"])
                .status();
            tried.is_ok_and(|status| status.success())
        };
        if !has_cuts {
            println!("NOT CHECKED: network cuts, which need root and namespaces");
        }
        let mut command = match has_cuts {
            true => isolated_command(),
            false => Command::new("env"),
        };
        let ports: Vec<u16> = (0..9).map(|_| free_port()).collect();
        let names = [
            "PORT1", "PORT2", "PORT3", "REST1", "REST2", "REST3", "BOUNCER", "ETCD", "PEER",
        ];
        for (name, port) in names.iter().zip(&ports) {
            command.env(name, port.to_string());
        }
        let mut shell = command
            .arg(bash)
            .args(["-c", SCRIPT])
            .env("PATRONICTL", patroni.with_file_name("patronictl"))
            .env("CUTS", if has_cuts { "yes" } else { "" })
            .env("OWNER", owner().unwrap_or_default())
            .env("TTL", TTL)
            .env("BIN", bin)
            .env("PATRONI", patroni)
            .env("ETCD_BIN", etcd)
            .env("PGBOUNCER", pgbouncer)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (shell.stdin.take(), shell.stdout.take().unwrap());
        let mut fleet = Self {
            shell,
            input,
            output: BufReader::new(output),
            folder: String::new(),
            bouncer: ports[6],
            ports: ports[..3].to_vec(),
            has_cuts,
        };
        fleet.folder = fleet.line();
        assert!(!fleet.folder.is_empty(), "the programs did not start");
        let leader = fleet.wait_until_whole(true);
        let mut client = fleet.client(leader, "postgres").unwrap();
        client.batch_execute("CREATE DATABASE agents").unwrap();
        Some(fleet)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
    }

    fn done(&mut self) {
        let said = self.line();
        assert_eq!(said, "done", "see {}/log", self.folder);
    }

    fn socket(&self, folder: &str, port: u16) -> String {
        format!("{}%2F{folder}:{port}", self.folder.replace('/', "%2F"))
    }

    fn node(&self, node: usize) -> String {
        self.socket(&format!("s{node}"), self.ports[node - 1])
    }

    /// Returns the address of the pooler in session mode.
    pub fn kept(&self) -> String {
        let socket = self.socket("b", self.bouncer);
        format!("postgres://postgres@{socket}/kept?connect_timeout=5&pooling=session")
    }

    /// Returns the address of the pooler in transaction mode.
    pub fn shared(&self) -> String {
        let socket = self.socket("b", self.bouncer);
        format!("postgres://postgres@{socket}/shared?connect_timeout=5")
    }

    /// Returns the address of all nodes, without a pooler.
    pub fn hosts(&self) -> String {
        let nodes = [1, 2, 3].map(|node| self.node(node)).join(",");
        format!("postgres://postgres@{nodes}/agents?connect_timeout=2")
    }

    /// Connects to a node without the store.
    pub fn client(&self, node: usize, database: &str) -> Result<Client, postgres::Error> {
        let address = format!("postgres://postgres@{}/{database}", self.node(node));
        Client::connect(&address, NoTls)
    }

    fn leads(&self, node: usize) -> bool {
        let sql = "SELECT NOT pg_is_in_recovery()";
        let asked = self.client(node, "postgres");
        asked.is_ok_and(|mut client| client.query_one(sql, &[]).is_ok_and(|row| row.get(0)))
    }

    /// Waits until a node other than `gone` leads. Returns the node and the time.
    fn next_leader(&self, gone: usize) -> (usize, Instant) {
        let mut found = None;
        hang::until("a node leads", || {
            let mut others = (1..=3).filter(|node| *node != gone);
            found = others.find(|node| self.leads(*node));
            found.is_some()
        });
        (found.unwrap(), Instant::now())
    }

    /// Waits until both other nodes follow the leader, one of them synchronously if required, and one may take over.
    /// Returns the leader: on a busy machine another node may have taken over meanwhile.
    pub fn wait_until_whole(&mut self, is_synchronous: bool) -> usize {
        let mut found = None;
        hang::until("both follow", || {
            std::thread::sleep(Duration::from_millis(200));
            found = (1..=3).find(|node| self.has_followers(*node, is_synchronous));
            found.is_some() && (!is_synchronous || self.may_fail_over())
        });
        found.unwrap()
    }

    fn may_fail_over(&mut self) -> bool {
        self.tell("may_fail_over");
        self.line() == "done"
    }

    fn has_followers(&self, node: usize, is_synchronous: bool) -> bool {
        let sql = "SELECT NOT pg_is_in_recovery(), count(*) FILTER (WHERE state = 'streaming'),
            count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication";
        let Ok(mut client) = self.client(node, "postgres") else {
            return false;
        };
        let Ok(row) = client.query_one(sql, &[]) else {
            return false;
        };
        let (leads, streaming, synchronous): (bool, i64, i64) =
            (row.get(0), row.get(1), row.get(2));
        leads && streaming == 2 && (synchronous > 0) == is_synchronous
    }

    /// Applies a fault to the leader. Returns the time of the fault, the next leader, and the time at which it took
    /// over.
    pub fn fail_over(&mut self, fault: Fault, leader: usize) -> (Instant, usize, Instant) {
        let begun = Instant::now();
        self.tell(&format!("{} {leader}", fault.command()));
        let (next, led) = self.next_leader(leader);
        self.done();
        (begun, next, led)
    }

    /// Lets the node rejoin.
    pub fn remedy(&mut self, fault: Fault, node: usize) {
        if let Some(command) = fault.remedy() {
            self.tell(&format!("{command} {node}"));
            self.done();
        }
    }

    /// Makes commits wait for no standby from now on.
    pub fn be_asynchronous(&mut self) {
        self.tell("be_asynchronous");
        self.done();
        self.wait_until_whole(false);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the programs said:");
            for log in ["log", "log.1", "log.2", "log.3"] {
                let text = std::fs::read(format!("{}/{log}", self.folder)).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                let lines: Vec<&str> = text.lines().collect();
                let last = &lines[lines.len().saturating_sub(25)..];
                println!("{log}: {}", last.join("\n"));
            }
        }
        drop(self.input.take());
        let _ = self.shell.wait();
    }
}
