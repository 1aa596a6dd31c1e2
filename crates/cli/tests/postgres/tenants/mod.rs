//! Many tenants in one database: no tenant can read or write the rows of another, whatever it sends.
//!
//! Only row-level security separates them, so the roles here get all other rights on all tables. Tables, views and
//! functions are taken from the catalogue, so that new ones are tested without a change here.

mod calls;
mod nodes;
mod operator;
mod rows;
mod writes;

use std::collections::BTreeMap;
use std::path::Path;

use loopstore::extend::{self as store, AppendKey, CallRow, Note, SessionFlags, lease, session};
use loopstore::*;
use loopstore_postgres::{Engine, PostgresStore, schema};
use loopstore_testing::postgres::{Client, NoTls};

use super::commands::{command, transcript, writing_transcript};
use crate::support::histories::{History, answer, loop_id, result, user};
use crate::support::server::{self, PostgresServer};

/// Tables without rows of tenants.
const COMMON: [&str; 3] = ["store_meta", "refinery_schema_history", "tenant_roles"];

/// A database with two tenants.
pub struct Tenants {
    pub server: &'static PostgresServer,
    pub database: String,
    /// The roles, and their tenants.
    pub roles: [String; 2],
    pub names: [String; 2],
}

/// Returns a name quoted for SQL.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Tenants {
    /// Creates a database with partitioned tables and two roles with difficult names; `None` if there is no server, or
    /// if it is a cluster, whose tables have no partitions.
    pub fn new(partitions: u32) -> Option<Self> {
        let server = server::server()?;
        if server.is_cluster() && partitions > 1 {
            return None;
        }
        let database = server.database();
        let engine = match server.engine() {
            Engine::Plain { .. } => Engine::Plain { partitions },
            Engine::Citus => Engine::Citus,
        };
        server.run(&database, &schema(engine)).unwrap();
        let longest = if server.is_cluster() { 42 } else { 200 };
        let own = Self {
            server,
            roles: [
                format!("Ann's \"role\" \\ of {database}"),
                format!("ann's.\"role\" \\ of {database}"),
            ],
            names: [
                "a'; DROP TABLE sessions; -- \\' \"é\u{202e}$$:x".to_owned(),
                "b".repeat(longest),
            ],
            database,
        };
        // The first opening records the settings of the database.
        drop(PostgresStore::open(&own.owner()).unwrap());
        for (role, name) in own.roles.iter().zip(&own.names) {
            server.make_tenant(&own.database, name, role);
        }
        Some(own)
    }

    pub fn owner(&self) -> String {
        self.server.address(&self.database)
    }

    pub fn address(&self, which: usize) -> String {
        self.server.address_as(&self.roles[which], &self.database)
    }

    pub fn store(&self, which: usize) -> PostgresStore {
        PostgresStore::open(&self.address(which)).unwrap()
    }

    /// Connects as a tenant, without the store.
    pub fn client(&self, which: usize) -> Client {
        Client::connect(&self.address(which), NoTls).unwrap()
    }

    /// Returns the tables, partitions and views, each with its kind.
    pub fn relations(&self) -> Vec<(String, String)> {
        let sql =
            "SELECT relname::TEXT, CASE WHEN relispartition THEN 'part' ELSE relkind::TEXT END
             FROM pg_class
             WHERE relnamespace = 'public'::REGNAMESPACE AND relkind IN ('r', 'p', 'v')
                 AND NOT starts_with(relname, 'citus_')
             ORDER BY relname";
        let rows = self.server.client(&self.database).query(sql, &[]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Returns the tables with rows of tenants.
    pub fn tables(&self) -> Vec<String> {
        let all = self.relations().into_iter();
        let tables = all.filter(|(name, kind)| {
            matches!(kind.as_str(), "r" | "p") && !COMMON.contains(&name.as_str())
        });
        tables.map(|(name, _)| name).collect()
    }

    /// Returns every row that a connection sees, by table and view.
    pub fn seen(&self, client: &mut Client) -> BTreeMap<String, Vec<String>> {
        let mut seen = BTreeMap::new();
        for (name, _) in self.relations() {
            if name != "store_meta" {
                let sql = format!("SELECT t::TEXT AS t FROM {name} t ORDER BY 1");
                let rows = client
                    .query(&sql, &[])
                    .unwrap_or_else(|error| panic!("{name}: {error:?}"));
                seen.insert(name, rows.iter().map(|row| row.get(0)).collect());
            }
        }
        seen
    }

    /// Returns all rows of each table, of all tenants, as one text per table.
    pub fn stored(&self, owner: &mut Client) -> Vec<String> {
        let tables = self.tables().into_iter();
        let stored = tables.map(|name| {
            let sql = format!("SELECT t::TEXT FROM {name} t ORDER BY 1");
            let rows = owner.query(&sql, &[]).unwrap();
            let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            format!("{name} {}", rows.join("|"))
        });
        stored.collect()
    }

    /// Adds rows to every table, with the same ids for each tenant.
    pub fn add_rows(&self, which: usize, folder: &Path) {
        let word = ["annonly", "benonly"][which];
        let store = self.store(which);
        let mut history = History::new(&store, "shared");
        for turn in 0..8 {
            let call = format!("call-{turn}");
            let image = Content::image(["aGVsbG8=", "d29ybGQh"][which], "image/png");
            let text = Content::text(format!("{word}\n").repeat(40));
            history.append(
                0,
                vec![
                    user(word, turn),
                    answer(&format!("{word} ").repeat(40), &[&call], turn),
                    result(&call, vec![text, image], turn),
                ],
            );
        }
        history.start_loop(Some(0), Some(4));
        history.append(1, vec![user(word, 9)]);
        assert_eq!(history.compact(0, (1, 1), false)["outcome"], "committed");
        assert!(history.flip(0, false) && history.flip(0, true));
        let of = PinRef::turn("loop-0", 1);
        pin(&store, &history.session, &PinRequest { of, leaf: None }).unwrap();
        let target = EditTarget::Message(loop_id(0), 3, 10);
        edit(
            &store,
            &history.session,
            &EditRequest::replace(target, word),
        )
        .unwrap();
        let row = history.row(1);
        store::write(&store, |write| {
            let _held = lease::acquire(write, row.key, word, 600_000, 0)?;
            write.insert_call(&call_row(row.key, word))?;
            write.insert_append_key(row.session, &append_key(row.key, "key"))?;
            write.insert_note(row.key, &Note::Event(format!("\"{word}\"")))?;
            let flags = SessionFlags {
                protected_at: Some("2026-01-01T00:00:00Z".into()),
                ..write.flags(row.session)?
            };
            write.put_flags(row.session, &flags)
        })
        .unwrap();
        History::new(&store, "put away");
        store::write(&store, |write| {
            let id = SessionId::new("put away").unwrap();
            let row = write.session(&id)?.unwrap();
            session::hide(write, row.key)
        })
        .unwrap();
        let mut old = History::new(&store, "old");
        old.append(0, vec![user(&word.repeat(90), 0), answer(word, &["c"], 0)]);
        old.append(0, vec![result("c", vec![Content::text(word)], 0)]);
        old.end_loop(0);
        old.start_loop(Some(0), None);
        let text = transcript().replace("the parser", &format!("{word} ghp_{}", "a1B2".repeat(9)));
        // The stored source of the redacted session is removed.
        std::fs::write(
            folder.join("kept.jsonl"),
            text.replace("\"pair\"", "\"kept\""),
        )
        .unwrap();
        std::fs::write(folder.join("pair.jsonl"), text).unwrap();
        let wrote = writing_transcript().replace("Write a lamp", word);
        std::fs::write(folder.join("wrote.jsonl"), wrote).unwrap();
        for args in [
            &["import", "pair.jsonl"] as &[&str],
            &["context", "pair", "--record"],
            &["redact", "pair", "--yes"],
            &["import", "kept.jsonl"],
            &["import", "wrote.jsonl"],
            &["archive", "old", "--shown"],
            &["index"],
            &["verify", "--head"],
        ] {
            let done = command(folder, &self.address(which), args);
            assert_eq!(done.0, Some(0), "{args:?}: {done:?}");
        }
    }
}

pub fn append_key(loop_key: store::LoopKey, name: &str) -> AppendKey {
    AppendKey {
        name: name.into(),
        loop_key,
        seqs: 0..1,
        turns: 0..1,
        tokens: 1,
    }
}

pub fn call_row(loop_key: store::LoopKey, word: &str) -> CallRow {
    CallRow {
        loop_key,
        call_id: "c".into(),
        nth: 0,
        tool_name: word.into(),
        arguments: None,
        idempotency_key: word.into(),
        turn_index: None,
        started_at: "2026-01-01T00:00:00Z".into(),
        attempts: 1,
        finished_at: None,
    }
}
