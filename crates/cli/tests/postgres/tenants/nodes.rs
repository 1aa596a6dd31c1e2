//! Tenants on a Citus cluster: at every node, in every shard, and with the functions that Citus lets every role call.

use std::collections::BTreeMap;

use loopstore::extend::{self as store};
use loopstore::*;
use loopstore_postgres::{Engine, PostgresStore, grants, tenant};
use loopstore_testing::postgres::{Client, NoTls};
use serde_json::Value;

use super::rows::{insert, literal, put_under_another_key, refusal, row_of, with_equal_rows};
use super::{Tenants, quoted};
use crate::commands::command;
use crate::support::histories::{History, answer, result, user};
use crate::support::server::{self, PostgresServer};

fn cluster() -> Option<&'static PostgresServer> {
    server::server().filter(|server| server.is_cluster())
}

/// Returns the address of each node for a role, the coordinator first.
fn nodes(own: &Tenants, role: &str) -> Vec<String> {
    let encoded: String = role.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let workers = own.server.workers(&own.database).into_iter();
    let workers = workers.map(|address| address.replace("{role}", &encoded));
    let coordinator = own.server.address_as(role, &own.database);
    std::iter::once(coordinator).chain(workers).collect()
}

/// Connects to a node such that shards are visible and may be written.
fn connect(address: &str) -> Client {
    let mut client = Client::connect(address, NoTls).unwrap();
    for sql in [
        "SET citus.override_table_visibility = off",
        "SET citus.enable_manual_changes_to_shards = on",
    ] {
        client.batch_execute(sql).unwrap();
    }
    client
}

/// Returns the shards on a node, each with the name of its table.
fn parts(own: &Tenants, client: &mut Client) -> Vec<(String, String)> {
    let sql = "SELECT relname::TEXT, regexp_replace(relname, '_[0-9]+$', '') FROM pg_class
        WHERE relnamespace = 'public'::REGNAMESPACE AND relkind = 'r' AND relname ~ '_[0-9]+$'
        ORDER BY 1";
    let tables = own.tables();
    let rows = client.query(sql, &[]).unwrap();
    let parts = rows.iter().map(|row| (row.get(0), row.get(1)));
    parts.filter(|(_, table)| tables.contains(table)).collect()
}

/// Returns the result of the check of the cluster's tenants.
fn checked(own: &Tenants) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let args = ["schema", "--engine", "citus", "--check", "--json"];
    let (_, out, err) = command(folder.path(), &own.owner(), &args);
    let said: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out} {err}"));
    let checks = said["checks"].as_array().unwrap();
    let of_tenants = checks.iter().find(|check| check["name"] == "tenants");
    let of_tenants = of_tenants.unwrap_or_else(|| panic!("{said}"));
    let detail = of_tenants["detail"].as_str().unwrap().to_owned();
    (of_tenants["ok"] == true, detail)
}

/// Returns statements by which a role may try to act as another; their effects are checked afterwards.
fn impersonations(own: &Tenants, prefix: &str) -> Vec<String> {
    let (ann, ben) = (&own.roles[0], &own.roles[1]);
    let mark = format!("{prefix}{}", own.names[0]);
    let (own_mark, ann_mark) = (format!("{prefix}{}", own.names[1]), quoted(&mark));
    let on_all = |sql: &str| format!("SELECT * FROM run_command_on_all_nodes({})", literal(sql));
    let alter = format!("ALTER ROLE {} BYPASSRLS", quoted(ben));
    vec![
        format!("SET ROLE {ann_mark}"),
        format!("GRANT {ann_mark} TO {}", quoted(ben)),
        format!("GRANT {} TO {}", quoted(ben), ann_mark),
        format!("GRANT {} TO {}", quoted(&own_mark), quoted(ann)),
        format!("REVOKE {} FROM {}", quoted(&own_mark), quoted(ben)),
        on_all(&format!("GRANT {ann_mark} TO {}", quoted(ben))),
        on_all("ALTER TABLE messages DISABLE ROW LEVEL SECURITY"),
        on_all("CREATE OR REPLACE FUNCTION loopstore_tenant() RETURNS TEXT LANGUAGE sql AS $$ SELECT 'a'::TEXT $$"),
        format!("SELECT citus_run_local_command({})", literal(&alter)),
        format!("SELECT alter_role_if_exists({}, {})", literal(ben), literal(&alter)),
        format!(
            "SELECT worker_create_or_alter_role({}, {}, {})",
            literal(ben),
            literal("CREATE ROLE x"),
            literal(&alter)
        ),
        "SELECT worker_create_or_replace_object('CREATE OR REPLACE FUNCTION public.loopstore_own_tenant()
             RETURNS TEXT LANGUAGE sql AS ''SELECT NULL::TEXT''')"
            .into(),
        "SELECT loopstore_keep_apart()".into(),
        format!(
            "SELECT loopstore_put_into_tenant({}, {})",
            literal(&quoted(ben)),
            literal(&own.names[0])
        ),
        format!(
            "INSERT INTO tenant_roles VALUES ({}, {})",
            literal(&quoted(ben)),
            literal(&own.names[0])
        ),
        "SELECT worker_apply_shard_ddl_command(shardid, 'ALTER TABLE messages DISABLE ROW LEVEL SECURITY')
             FROM pg_dist_shard WHERE logicalrelid = 'messages'::REGCLASS"
            .into(),
        "SELECT undistribute_table('messages')".into(),
        "SELECT citus_drop_all_shards('messages', 'public', 'messages')".into(),
        "SELECT run_command_on_shards('messages', 'DELETE FROM %s')".into(),
        "SELECT run_command_on_shards('notes', 'UPDATE %s SET note = ''mine''')".into(),
        "SELECT run_command_on_placements('session_names', 'UPDATE %s SET leaves = TRUE')".into(),
        "SET citus.allow_nested_distributed_execution = on".into(),
        "SET citus.propagate_set_commands = 'local'".into(),
        "SET application_name = 'citus_internal gpid=10000000001'".into(),
    ]
}

#[test]
fn on_a_cluster_no_sql_at_any_node_reads_or_writes_the_rows_of_another() {
    if cluster().is_none() {
        return;
    }
    let own = with_equal_rows(1).unwrap();
    let [ann, ben] = [0, 1].map(|which| literal(&own.names[which]));
    let of_ann = |own: &Tenants| own.seen(&mut own.client(0));
    let before = of_ann(&own);
    let mut owner = own.server.client(&own.database);
    let prefix: String = owner
        .query_one("SELECT loopstore_tenant_prefix()", &[])
        .unwrap()
        .get(0);
    let mut tried = BTreeMap::new();
    for (own_node, node) in nodes(&own, "postgres")
        .iter()
        .zip(nodes(&own, &own.roles[1]))
    {
        let (mut all, mut client) = (connect(own_node), connect(&node));
        for (part, table) in parts(&own, &mut all) {
            let sql = format!("SELECT count(*) FROM {part} WHERE tenant <> {ben}");
            assert_eq!(
                client.query_one(&sql, &[]).unwrap().get::<_, i64>(0),
                0,
                "{sql}"
            );
            for sql in [
                format!("UPDATE {part} SET tenant = {ben} WHERE tenant = {ann}"),
                format!("DELETE FROM {part} WHERE tenant = {ann}"),
            ] {
                assert_eq!(client.execute(&sql, &[]).unwrap_or(0), 0, "{sql}");
            }
            let sql = format!("SELECT count(*) FROM {part} WHERE tenant = {ann}");
            if all.query_one(&sql, &[]).unwrap().get::<_, i64>(0) > 0 {
                let row = row_of(&mut all, &part, &ann);
                let as_ann = refusal(&mut client, &insert(&part, &row, &ann, ""));
                assert!(as_ann.is_some(), "{part}");
                let as_ben = refusal(&mut client, &insert(&part, &row, &ben, ""));
                put_under_another_key(&mut client, &part, &row, &ben);
                // Names and heads belong to each tenant.
                let may_be = ["session_names", "heads"].contains(&table.as_str());
                assert!(as_ben.is_some() || may_be, "{part}");
                *tried.entry(table).or_insert(0) += 1;
            }
        }
        for sql in impersonations(&own, &prefix) {
            client.batch_execute(&sql).ok();
        }
        for table in own.tables() {
            let sql = format!("SELECT count(*) FROM {table} WHERE tenant <> {ben}");
            assert_eq!(
                client.query_one(&sql, &[]).unwrap().get::<_, i64>(0),
                0,
                "{sql}"
            );
        }
        // Settings of a transaction are propagated to the nodes.
        let mut transaction = client.transaction().unwrap();
        for sql in [
            "SET LOCAL search_path = pg_temp, public, pg_catalog",
            "SET LOCAL row_security = on",
        ] {
            transaction.batch_execute(sql).unwrap();
        }
        // Rights on views exist on the coordinator only.
        let sql = "SELECT count(*) FROM messages WHERE body LIKE '%annonly%'";
        assert_eq!(transaction.query_one(sql, &[]).unwrap().get::<_, i64>(0), 0);
    }
    assert_eq!(tried.len(), own.tables().len(), "{tried:?}");
    assert_eq!(of_ann(&own), before);
    assert_eq!(checked(&own), (true, "2, kept apart on all nodes".into()));
}

#[test]
fn on_a_cluster_a_check_finds_where_tenants_are_no_longer_kept_apart() {
    if cluster().is_none() {
        return;
    }
    let own = Tenants::new(1).unwrap();
    assert_eq!(checked(&own), (true, "2, kept apart on all nodes".into()));
    let worker = nodes(&own, "postgres").pop().unwrap();
    let mut worker = connect(&worker);
    worker
        .batch_execute("SET citus.enable_ddl_propagation = off")
        .unwrap();
    let part = parts(&own, &mut worker)
        .into_iter()
        .find(|(_, table)| table == "messages")
        .unwrap()
        .0;
    let mark = format!("loopstore_tenant_prefix() || {}", literal(&own.names[0]));
    let granted = |verb: &str, to: &str| {
        format!(
            "DO $do$ BEGIN EXECUTE format('{verb} %I {to} %I', {mark}, {}); END $do$",
            literal(&own.roles[1])
        )
    };
    for (wrong, right, told) in [
        (
            format!("ALTER TABLE {part} NO FORCE ROW LEVEL SECURITY"),
            format!("ALTER TABLE {part} FORCE ROW LEVEL SECURITY"),
            part.as_str(),
        ),
        (
            "CREATE POLICY mine ON turns USING (TRUE)".to_owned(),
            "DROP POLICY mine ON turns".to_owned(),
            "turns",
        ),
        (
            "ALTER VIEW v_turns RESET (security_invoker)".to_owned(),
            "ALTER VIEW v_turns SET (security_invoker = true)".to_owned(),
            "v_turns",
        ),
        (
            granted("GRANT", "TO"),
            granted("REVOKE", "FROM"),
            "says otherwise who is in which tenant",
        ),
        (
            "ALTER FUNCTION loopstore_tenant() SECURITY DEFINER".to_owned(),
            "ALTER FUNCTION loopstore_tenant() SECURITY INVOKER".to_owned(),
            "says otherwise who is in which tenant",
        ),
    ] {
        worker.batch_execute(&wrong).unwrap();
        let (ok, detail) = checked(&own);
        assert!(!ok && detail.contains(told), "{wrong}: {detail}");
        worker.batch_execute(&right).unwrap();
        assert!(checked(&own).0, "{right}");
    }
    let mut owner = own.server.client(&own.database);
    owner.batch_execute(&granted("GRANT", "TO")).unwrap();
    let (ok, detail) = checked(&own);
    assert!(
        !ok && detail.contains("sees more than one tenant"),
        "{detail}"
    );
    // A role of two tenants has the rows of neither.
    let error = own
        .client(1)
        .query("SELECT * FROM sessions", &[])
        .unwrap_err();
    let told = error.as_db_error().unwrap().message().to_owned();
    assert!(told.contains("in more than one tenant"), "{told}");
    owner.batch_execute(&granted("REVOKE", "FROM")).unwrap();
    let sql = "ALTER TABLE notes DROP CONSTRAINT notes_of_tenant";
    owner.batch_execute(sql).unwrap();
    let (ok, detail) = checked(&own);
    assert!(!ok && detail.contains("notes"), "{detail}");
    owner
        .batch_execute("SELECT loopstore_keep_apart()")
        .unwrap();
    assert!(checked(&own).0);
}

#[test]
fn on_a_cluster_a_turn_of_a_tenant_is_a_plain_commit_on_one_node() {
    if cluster().is_none() {
        return;
    }
    let own = Tenants::new(1).unwrap();
    let store = own.store(0);
    let history = History::new(&store, "s");
    let mut client = own.server.client(&own.database);
    let mut in_two_phases = || -> i64 {
        let sql = "SELECT count(*) FROM pg_dist_transaction";
        client.query_one(sql, &[]).unwrap().get(0)
    };
    let before = in_two_phases();
    for turn in 0..4 {
        let call = format!("call-{turn}");
        let seen = vec![
            Content::text("line\n"),
            Content::image("aGVsbG8=", "image/png"),
        ];
        let turn = vec![
            user("please", turn),
            answer("yes", &[&call], turn),
            result(&call, seen, turn),
        ];
        history.append(0, turn);
    }
    assert_eq!(in_two_phases(), before);
    let report = loopstore_verify::verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

#[test]
fn on_a_cluster_who_is_in_no_tenant_keeps_the_sessions_that_were_there() {
    let Some(server) = cluster() else { return };
    let name = server.prepared();
    let owner = PostgresStore::open(&server.address(&name)).unwrap();
    History::new(&owner, "old").append(0, vec![user("from before", 0)]);
    let role = |what: &str| format!("{what} of {name}");
    for who in ["writer", "guest"] {
        let sql = format!("CREATE ROLE {} LOGIN;", quoted(&role(who)));
        server.run(&name, &sql).unwrap();
    }
    server.run(&name, &grants(&role("writer"))).unwrap();
    // The script for a single server is rejected here.
    let plain = tenant(Engine::Plain { partitions: 1 }, "guests", &role("guest")).unwrap();
    let error = server.run(&name, &plain).unwrap_err();
    let told = error.as_db_error().unwrap();
    assert!(
        told.hint().unwrap_or_default().contains("--engine citus"),
        "{told:?}"
    );
    let script = tenant(Engine::Citus, "guests", &role("guest")).unwrap();
    server.run(&name, &script).unwrap();
    let open = |who: &str| PostgresStore::open(&server.address_as(&role(who), &name)).unwrap();
    let sessions = |store: &dyn SessionStore| -> Vec<String> {
        let rows = store::read(store, |read| read.sessions()).unwrap();
        rows.iter().map(|row| row.session_id.to_string()).collect()
    };
    let (writer, guest) = (open("writer"), open("guest"));
    assert_eq!(
        (sessions(&writer), sessions(&guest)),
        (vec!["old".to_owned()], vec![])
    );
    // The same id in two tenants.
    History::new(&guest, "old").append(0, vec![user("from a guest", 0)]);
    History::new(&writer, "new").append(0, vec![user("from a writer", 0)]);
    assert_eq!(sessions(&guest), ["old"]);
    assert_eq!(sessions(&writer).len(), 2);
    for store in [&writer, &guest] {
        let report = loopstore_verify::verify(store).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
    let Err(error) = PostgresStore::open(&server.address(&name)) else {
        panic!("it opened");
    };
    assert!(matches!(error, OpenError::EveryTenant { .. }), "{error}");
}
