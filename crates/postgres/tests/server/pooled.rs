//! A PgBouncer between loopstore and the server, which gives each transaction one of a few connections: the
//! supported functions, and the rejected ones with their messages.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use loopstore::*;
use loopstore_postgres::PostgresStore;

use crate::support::histories::{History, user};
use crate::support::server::{self, PostgresServer, as_owner, free_port, owner};
use crate::support::{hang, needs};

/// A pooler in front of the server of the tests.
struct Pooler {
    process: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Pooler {
    /// Starts a pooler with two connections to a database of the server.
    fn start(server: &PostgresServer, mode: &str) -> Option<Self> {
        let program = needs::find(&needs::PGBOUNCER)?;
        let folder = tempfile::tempdir().unwrap();
        let (at, port) = (folder.path().display(), free_port());
        let config: PathBuf = folder.path().join("ini");
        let mut file = std::fs::File::create(&config).unwrap();
        std::fs::write(folder.path().join("users"), "\"postgres\" \"\"\n").unwrap();
        writeln!(
            file,
            "[databases]\n* = host={} port={} user=postgres\n[pgbouncer]\npool_mode = {mode}\n\
             default_pool_size = 2\nunix_socket_dir = {at}\nlisten_port = {port}\nauth_type = trust\n\
             auth_file = {at}/users\nignore_startup_parameters = options",
            server.folder.display(),
            server.port
        )
        .unwrap();
        drop(file);
        if let Some(owner) = owner() {
            let mut chown = Command::new("chown");
            let done = chown.args(["-R", owner]).arg(folder.path()).status();
            assert!(done.unwrap().success());
        }
        let process = as_owner(program)
            .arg("-q")
            .arg(config)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let socket = folder.path().join(format!(".s.PGSQL.{port}"));
        hang::until("the pooler listens", || socket.exists());
        Some(Self {
            process,
            folder,
            port,
        })
    }

    fn address(&self, database: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn stores_that_share_two_connections_of_a_server_append_side_by_side_and_lose_nothing() {
    let Some(server) = server::server() else {
        return;
    };
    let Some(pooler) = Pooler::start(server, "transaction") else {
        return;
    };
    let name = server.prepared();
    // The server may acknowledge before a commit is on disk; a store that writes overrides it.
    server
        .client(&name)
        .batch_execute(&format!(
            "ALTER DATABASE {name} SET synchronous_commit = off;
             CREATE FUNCTION forgets() RETURNS TRIGGER LANGUAGE plpgsql AS $$
             BEGIN
                 IF current_setting('synchronous_commit') = 'off' THEN
                     RAISE EXCEPTION 'this commit may be forgotten';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER forgets BEFORE INSERT ON loops FOR EACH ROW EXECUTE FUNCTION forgets()"
        ))
        .unwrap();
    std::thread::scope(|scope| {
        for at in 0..8 {
            let address = pooler.address(&name);
            scope.spawn(move || {
                let store = Store::from(PostgresStore::open(&address).unwrap());
                let chat = store.session(format!("s{at}")).unwrap();
                for turn in 0..20 {
                    let key = turn.to_string();
                    chat.append_once(&key, [Message::user(format!("{at} {turn}"))])
                        .unwrap();
                }
                assert_eq!(chat.context().unwrap().messages.len(), 20);
            });
        }
    });
    // No trigger but the store's own may be on its tables.
    let drop_trigger = "DROP TRIGGER forgets ON loops; DROP FUNCTION forgets()";
    server.client(&name).batch_execute(drop_trigger).unwrap();
    let store = PostgresStore::open(&pooler.address(&name)).unwrap();
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
    let rows = store.query_within(
        "SELECT count(*), count(DISTINCT session_id) FROM v_messages",
        loopstore::extend::sqlite::QueryLimits::default(),
    );
    let rows = rows.unwrap().rows;
    let counts: Vec<u64> = rows[0].iter().map(|value| value.read().unwrap()).collect();
    assert_eq!(counts, [160, 8]);
}

fn refusal(opened: Result<PostgresStore, OpenError>) -> String {
    match opened {
        Ok(_) => panic!("it opened"),
        Err(error @ OpenError::Server { .. }) => error.to_string(),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn what_a_pooler_would_take_apart_is_refused_with_what_to_do() {
    let Some(server) = server::server() else {
        return;
    };
    let Some(pooler) = Pooler::start(server, "transaction") else {
        return;
    };
    // Tables are made under a lock of the connection.
    let name = server.database();
    let said = refusal(PostgresStore::open(&pooler.address(&name)));
    assert!(said.contains("an address of the server itself"), "{said}");
    drop(PostgresStore::open(&server.address(&name)).unwrap());
    let store = PostgresStore::open(&pooler.address(&name)).unwrap();
    History::new(&store, "s").append(0, vec![user("hello", 0)]);
    // A role that is assumed would apply to some transactions only.
    let with_options = format!("{}?options=-c%20role%3Dpostgres", pooler.address(&name));
    let said = refusal(PostgresStore::open(&with_options));
    assert!(said.contains("ALTER ROLE"), "{said}");
}

#[test]
fn a_pooler_that_is_said_to_keep_connections_and_does_not_is_found_out() {
    let Some(server) = server::server() else {
        return;
    };
    let Some(pooler) = Pooler::start(server, "transaction") else {
        return;
    };
    let name = server.prepared();
    let address = format!("{}?pooling=session", pooler.address(&name));
    // Each store keeps one of the two connections busy in turn, so that statements are prepared where they are
    // not found.
    let said = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|at| {
                let address = &address;
                scope.spawn(move || {
                    let store = match PostgresStore::open(address) {
                        Ok(store) => Store::from(store),
                        Err(error) => return error.to_string(),
                    };
                    let chat = store.session(format!("s{at}")).unwrap();
                    let append = |turn: usize| chat.append([Message::user(turn.to_string())]);
                    let failed = (0..200).find_map(|turn| append(turn).err());
                    failed.map_or_else(String::new, |error| error.to_string())
                })
            })
            .collect();
        let said = threads.into_iter().map(|thread| thread.join().unwrap());
        said.collect::<Vec<_>>().join("\n")
    });
    assert!(said.contains("pooling=transaction"), "{said}");
}

#[test]
fn a_pooler_that_keeps_connections_takes_tables_and_options_where_the_address_says_so() {
    let Some(server) = server::server() else {
        return;
    };
    let Some(pooler) = Pooler::start(server, "session") else {
        return;
    };
    let name = server.database();
    let store = PostgresStore::open(&format!("{}?pooling=session", pooler.address(&name)));
    let store = store.unwrap();
    let history = History::new(&store, "s");
    history.append(0, vec![user("hello", 0)]);
    // Without the setting of the address, a pooler of this kind is detected.
    let store = PostgresStore::open(&pooler.address(&name)).unwrap();
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}
