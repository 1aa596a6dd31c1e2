//! The operator's tasks: creating tenants, warnings for owners and superusers, and opening old databases.

use std::collections::BTreeSet;

use loopstore::extend as store;
use loopstore::*;
use loopstore_postgres::{Engine, PostgresStore, tenant};
use loopstore_testing::postgres::{Client, NoTls};

use super::{Tenants, quoted};
use crate::commands::command;
use crate::shards;
use crate::support::histories::{History, user};
use crate::support::server;

fn sessions(store: &dyn SessionStore) -> Vec<String> {
    let rows = store::read(store, |read| read.sessions()).unwrap();
    let ids: BTreeSet<String> = rows.iter().map(|row| row.session_id.to_string()).collect();
    ids.into_iter().collect()
}

#[test]
fn a_tenant_has_a_name_that_can_be_stored_and_a_role_that_sees_one_tenant() {
    for (engine, long) in [(Engine::Plain { partitions: 1 }, 101), (Engine::Citus, 22)] {
        for name in ["", &"é".repeat(long), "a\0b"] {
            assert!(tenant(engine, name, "role").is_err(), "{name:?}");
        }
        assert!(tenant(engine, &"é".repeat(long - 1), "role").is_ok());
    }
    let Some(own) = Tenants::new(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    for (rights, fits) in [
        ("SUPERUSER", false),
        ("BYPASSRLS", false),
        ("REPLICATION", false),
        ("CREATEROLE", false),
        ("LOGIN", true),
    ] {
        let role = format!("{rights} of {}", own.database);
        let sql = format!("CREATE ROLE {} {rights};", quoted(&role));
        own.server.run(&own.database, &sql).unwrap();
        let kind = match own.server.is_cluster() {
            true => "citus",
            false => "plain",
        };
        let args = [
            "schema",
            "--engine",
            kind,
            "--tenant",
            "it's",
            "--grant-to",
            &role,
        ];
        let (code, script, _) = command(folder.path(), "none.db", &args);
        assert_eq!(code, Some(0));
        let done = own.server.run(&own.database, &script);
        assert_eq!(done.is_ok(), fits, "{rights}: {done:?}");
        if fits {
            // The same role for another tenant: the last call wins.
            own.server.run(&own.database, &script).unwrap();
            let script = tenant(own.server.engine(), "other", &role).unwrap();
            own.server.run(&own.database, &script).unwrap();
            let address = own.server.address_as(&role, &own.database);
            let mut client = Client::connect(&address, NoTls).unwrap();
            let row = client.query_one("SELECT loopstore_tenant()", &[]).unwrap();
            assert_eq!(row.get::<_, String>(0), "other");
        }
    }
    let (code, _, told) = command(folder.path(), "none.db", &["schema", "--tenant", "x"]);
    assert_eq!(code, Some(2), "{told}");
    let long = "x".repeat(201);
    let args = ["schema", "--tenant", &long, "--grant-to", "x"];
    let (code, _, told) = command(folder.path(), "none.db", &args);
    assert_eq!(code, Some(2));
    assert!(told.contains("1 to 200 bytes"), "{told}");
}

#[test]
fn one_id_in_two_tenants_is_two_sessions_and_a_role_may_be_renamed() {
    let Some(own) = Tenants::new(1) else { return };
    for which in [0, 1] {
        let store = own.store(which);
        History::new(&store, "same").append(0, vec![user(&format!("I am {which}"), 0)]);
    }
    let mut owner = own.server.client(&own.database);
    let new = format!("renamed of {}", own.database);
    let sql = format!(
        "ALTER ROLE {} RENAME TO {}",
        quoted(&own.roles[0]),
        quoted(&new)
    );
    owner.batch_execute(&sql).unwrap();
    let address = own.server.address_as(&new, &own.database);
    let store = PostgresStore::open(&address).unwrap();
    for (store, text) in [(store, "I am 0"), (own.store(1), "I am 1")] {
        assert_eq!(sessions(&store), ["same"]);
        let id = SessionId::new("same").unwrap();
        let context = build_context_from_session(&store, &id, &BuildOptions::default()).unwrap();
        let told = serde_json::to_string(&context.messages).unwrap();
        assert!(told.contains(text), "{told}");
        let report = loopstore_verify::verify(&store).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
}

#[test]
fn a_database_keeps_its_sessions_when_it_gets_tenants_and_its_owner_sees_only_those() {
    let Some(server) = server::server() else {
        return;
    };
    // On a cluster, a superuser runs the script.
    if server.is_cluster() {
        return;
    }
    let name = server.database();
    let mut admin = server.client(&name);
    let role = |what: &str| format!("{what} of {name}");
    for who in ["owner", "writer", "guest", "keeper"] {
        let sql = format!("CREATE ROLE {} LOGIN", quoted(&role(who)));
        admin.batch_execute(&sql).unwrap();
    }
    let sql = format!(
        "GRANT CREATE ON SCHEMA public TO {owner}; GRANT {owner} TO {}",
        quoted(&role("keeper")),
        owner = quoted(&role("owner")),
    );
    admin.batch_execute(&sql).unwrap();
    let open = |who: &str| PostgresStore::open(&server.address_as(&role(who), &name));
    let owner = open("owner").unwrap();
    History::new(&owner, "old").append(0, vec![user("from before", 0)]);
    let mut client = Client::connect(&server.address_as(&role("owner"), &name), NoTls).unwrap();
    client
        .batch_execute(&loopstore_postgres::grants(&role("writer")))
        .unwrap();
    History::new(&open("writer").unwrap(), "of a writer");
    // The owner of the tables creates a tenant; no other role is needed.
    for who in ["guest", "keeper"] {
        client
            .batch_execute(&tenant(server.engine(), "guests", &role(who)).unwrap())
            .unwrap();
    }
    let guest = open("guest").unwrap();
    assert_eq!(sessions(&guest), [""; 0]);
    History::new(&guest, "old").append(0, vec![user("from a guest", 0)]);
    History::new(&guest, "of a guest");
    for store in [owner, open("owner").unwrap(), open("writer").unwrap()] {
        assert_eq!(sessions(&store), ["of a writer", "old"]);
        assert!(loopstore_verify::verify(&store).unwrap().ok);
    }
    // A superuser sees all rows, which the store could not separate.
    let Err(error) = PostgresStore::open(&server.address(&name)) else {
        panic!("it opened");
    };
    assert!(matches!(error, OpenError::EveryTenant { .. }), "{error}");
    let option = format!(
        "?options=-c%20role%3D{}",
        role("guest").replace(' ', "%5C%20")
    );
    let address = server.address(&name) + &option;
    let instead = PostgresStore::open(&address).unwrap();
    assert_eq!(sessions(&instead), ["of a guest", "old"]);
    // The owner of the tables may remove the rows of the tenant, and nothing else.
    let folder = tempfile::tempdir().unwrap();
    let keeper = server.address_as(&role("keeper"), &name);
    let (code, _, told) = command(folder.path(), &keeper, &["erase", "old", "--yes"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(sessions(&guest), ["of a guest"]);
    assert_eq!(sessions(&open("owner").unwrap()), ["of a writer", "old"]);
    let address = server.address_as(&role("guest"), &name);
    let (code, _, told) = command(folder.path(), &address, &["erase", "of a guest", "--yes"]);
    assert_eq!(code, Some(1));
    assert!(told.contains("this role may not do that"), "{told}");
}

#[test]
fn a_barrier_that_was_taken_down_is_found() {
    let Some(own) = Tenants::new(2) else { return };
    let problems = || own.store(0).schema_problems().unwrap();
    assert_eq!(problems(), [""; 0]);
    own.server
        .client(&own.database)
        .batch_execute(
            "ALTER TABLE messages DISABLE ROW LEVEL SECURITY;
             ALTER TABLE turns_p1 NO FORCE ROW LEVEL SECURITY;
             ALTER VIEW v_turns RESET (security_invoker)",
        )
        .unwrap();
    assert_eq!(
        problems(),
        [
            "the table messages does not keep tenants apart",
            "the table turns_p1 does not keep tenants apart",
            "the view v_turns does not keep tenants apart",
        ]
    );
}

#[test]
fn each_statement_of_a_tenants_hot_path_touches_one_partition() {
    let Some(own) = Tenants::new(4) else { return };
    let mut owner = own.server.client(&own.database);
    for (name, value) in shards::EXPLAIN {
        let sql = format!(
            "ALTER ROLE {} SET {name} = '{value}'",
            quoted(&own.roles[0])
        );
        owner.batch_execute(&sql).unwrap();
    }
    shards::check_plans(&own.store(0), own.server);
}

#[test]
fn row_level_security_is_off_before_there_is_a_tenant() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let sql = "SELECT count(*) FROM pg_class WHERE relrowsecurity AND relname <> 'tenant_roles'";
    let mut client = server.client(&name);
    assert_eq!(client.query_one(sql, &[]).unwrap().get::<_, i64>(0), 0);
}
