//! Arbitrary SQL of one tenant against the rows of another.

use loopstore_testing::postgres::Client;

use super::{COMMON, Tenants, quoted};

/// Returns the code of the error of an SQL statement, in a transaction that is rolled back.
pub fn refusal(client: &mut Client, sql: &str) -> Option<String> {
    let mut transaction = client.transaction().unwrap();
    let error = transaction.batch_execute(sql).err()?;
    Some(
        error
            .code()
            .unwrap_or_else(|| panic!("{sql}: {error:?}"))
            .code()
            .to_owned(),
    )
}

pub fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Returns a database in which both tenants have equal rows, after checking that neither sees those of the other.
pub fn with_equal_rows(partitions: u32) -> Option<Tenants> {
    let own = Tenants::new(partitions)?;
    let folder = tempfile::tempdir().unwrap();
    let mut clients = [0, 1].map(|which| own.client(which));
    own.add_rows(1, folder.path());
    let before = own.seen(&mut clients[1]);
    let nothing = own.seen(&mut clients[0]);
    own.add_rows(0, folder.path());
    assert_eq!(
        own.seen(&mut clients[1]),
        before,
        "what another does is seen"
    );
    let seen = own.seen(&mut clients[0]);
    for (name, kind) in own.relations() {
        if COMMON.contains(&name.as_str()) {
            continue;
        }
        assert_eq!(
            nothing[&name], [""; 0],
            "{name} was seen by who has nothing"
        );
        // Partitions cannot be accessed by name.
        let is_empty = seen[&name].is_empty();
        assert_eq!(
            is_empty,
            kind == "part",
            "{name} ({kind}) is to hold something"
        );
    }
    Some(own)
}

fn attack(own: &Tenants) {
    let mut owner = own.server.client(&own.database);
    let (ann, ben) = (literal(&own.names[0]), literal(&own.names[1]));
    let of_ann = |owner: &mut Client| {
        let rows = own.tables().into_iter().map(|table| {
            // A rewritten row has another version; distributed tables do not show it.
            let version = match own.server.is_cluster() {
                true => "",
                false => "t.ctid::TEXT || t.xmin::TEXT || ",
            };
            let sql =
                format!("SELECT {version}t::TEXT FROM {table} t WHERE tenant = {ann} ORDER BY 1");
            let rows = owner.query(&sql, &[]).unwrap();
            (
                table,
                rows.iter().map(|row| row.get(0)).collect::<Vec<String>>(),
            )
        });
        rows.collect::<Vec<_>>()
    };
    let before = of_ann(&mut owner);
    let mut client = own.client(1);
    for (table, kind) in own.relations() {
        if COMMON.contains(&table.as_str()) || kind == "v" {
            continue;
        }
        for sql in [
            format!("UPDATE {table} SET tenant = tenant WHERE tenant = {ann}"),
            format!("UPDATE {table} SET tenant = {ben} WHERE tenant = {ann}"),
            format!("DELETE FROM {table} WHERE tenant = {ann}"),
            format!("DELETE FROM {table} WHERE tenant <> {ben}"),
        ] {
            assert_eq!(client.execute(&sql, &[]).unwrap(), 0, "{sql}");
        }
        if kind != "part" {
            // A row cannot be moved to another tenant.
            let sql = format!("UPDATE {table} SET tenant = {ann}");
            let code = refusal(&mut client, &sql);
            assert!(
                matches!(code.as_deref(), Some("42501" | "23001")),
                "{sql}: {code:?}"
            );
            put_beside(own, &mut client, &table, [&ann, &ben]);
        }
    }
    for sql in impersonations(own) {
        let code = refusal(&mut client, &sql);
        assert_eq!(code.as_deref(), Some("42501"), "{sql}");
    }
    assert_eq!(of_ann(&mut owner), before);
}

/// Returns the columns of a table, and a row of this tenant as SQL values.
pub fn row_of(owner: &mut Client, table: &str, tenant: &str) -> Vec<(String, String)> {
    let sql = "SELECT quote_ident(attname) FROM pg_attribute
        WHERE attrelid = $1::TEXT::REGCLASS AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let columns = owner.query(sql, &[&table]).unwrap();
    let columns: Vec<String> = columns.iter().map(|row| row.get(0)).collect();
    let values = columns
        .iter()
        .map(|name| format!("quote_nullable({name}::TEXT)"));
    let values = values.collect::<Vec<_>>().join(", ");
    let sql = format!("SELECT ARRAY[{values}] FROM {table} t WHERE tenant = {tenant} LIMIT 1");
    let row: Vec<String> = owner.query_one(&sql, &[]).unwrap().get(0);
    columns.into_iter().zip(row).collect()
}

/// Returns a statement that adds a row to a table for this tenant.
pub fn insert(table: &str, row: &[(String, String)], tenant: &str, end: &str) -> String {
    let of = |(name, value): &(String, String)| {
        // A new session has no row in its audit chain.
        let value = match (table.starts_with("sessions"), name.as_str()) {
            (_, "tenant") => tenant.to_owned(),
            (true, "audit_seq") => "0".to_owned(),
            (true, "audit") => format!("'\\x{}'", "00".repeat(32)),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    let (names, values): (Vec<String>, Vec<String>) = row.iter().map(of).unzip();
    let (names, values) = (names.join(", "), values.join(", "));
    format!("INSERT INTO {table} ({names}) VALUES ({values}) {end}")
}

/// Adds a copy of another tenant's row to a table of a cluster, as a row of one's own in the other's session and with
/// an unused key: the reference to the session or file rejects it.
pub fn put_under_another_key(
    client: &mut Client,
    table: &str,
    row: &[(String, String)],
    tenant: &str,
) {
    let sql = "SELECT DISTINCT quote_ident(a.attname), a.atttypid::REGTYPE::TEXT
        FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = $1::TEXT::REGCLASS AND i.indisunique AND a.attname NOT IN ('session', 'tenant')
            AND (a.attname <> 'source' OR starts_with($1, 'source_sessions'))";
    let keys = client.query(sql, &[&table]).unwrap();
    let keys: Vec<(String, String)> = keys.iter().map(|key| (key.get(0), key.get(1))).collect();
    let kind = table.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_');
    if keys.is_empty() || ["sources", "session_names", "heads", "index_state"].contains(&kind) {
        return;
    }
    let other = |(name, value): &(String, String)| {
        let kind = keys.iter().find(|(key, _)| key == name);
        let value = match kind.map(|(_, kind)| kind.as_str()) {
            Some("bigint") => format!("({value}::BIGINT + 777)"),
            Some("text") => format!("({value} || 'x')"),
            Some("bytea") => format!("({value}::BYTEA || '\\x00'::BYTEA)"),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    let row: Vec<(String, String)> = row.iter().map(other).collect();
    let code = refusal(client, &insert(table, &row, tenant, ""));
    // Or a guard, which is checked first.
    assert!(
        matches!(code.as_deref(), Some("23503" | "23001")),
        "{table}: {code:?}"
    );
}

/// Adds copies of another tenant's rows to a table: unchanged, and as rows of one's own in the other's session.
fn put_beside(own: &Tenants, client: &mut Client, table: &str, [ann, ben]: [&str; 2]) {
    let mut owner = own.server.client(&own.database);
    let row = row_of(&mut owner, table, ann);
    let insert = |tenant: &str, end: &str| insert(table, &row, tenant, end);
    // Guards for rows that need a receipt, an open run or a row of the audit chain are checked before the policy.
    let refused = match table {
        "packs" | "packed_heads" | "redactions" | "runs" | "flips" | "pins" | "hides"
        | "blocks" | "block_messages" | "edits" | "coverage" | "manifests" | "imports"
        | "maintenance" | "audit" | "receipt_chain" => "23001",
        _ => "42501",
    };
    assert_eq!(
        refusal(client, &insert(ann, "")).as_deref(),
        Some(refused),
        "{table}"
    );
    let is_cluster = own.server.is_cluster();
    let own = refusal(client, &insert(ben, ""));
    let own = own.as_deref();
    match table {
        // The number of a session or file is the millisecond of its creation, so it is visible that a number is used.
        "sessions" | "sources" => {
            assert_eq!(own, Some("23505"));
            let key = if table == "sessions" {
                "session"
            } else {
                "key"
            };
            let end = format!("ON CONFLICT ({key}) DO UPDATE SET tenant = {ben}");
            assert_eq!(
                refusal(client, &insert(ben, &end)).as_deref(),
                Some("42501")
            );
        }
        // There is one row for each tenant.
        "index_state" => assert_eq!(own, Some("23505")),
        // Heads belong to no session, and each tenant has its own.
        "heads" => assert_eq!(own, None),
        // On a cluster a name may be on another node than its session, and is accepted as one's own.
        "session_names" if is_cluster => assert!(matches!(own, None | Some("23505")), "{own:?}"),
        // On a cluster a reference rejects it, after the key was checked.
        _ if is_cluster && refused == "42501" => {
            assert!(matches!(own, Some("23503" | "23505")), "{table}: {own:?}");
            put_under_another_key(client, table, &row, ben);
        }
        _ => assert_eq!(own, Some(refused), "{table}"),
    }
}

/// Returns statements by which a role may try to act as another; all of them are rejected.
fn impersonations(own: &Tenants) -> Vec<String> {
    let (ann, ben) = (&own.roles[0], &own.roles[1]);
    let (role, name) = (quoted(ann), literal(&own.names[0]));
    vec![
        format!("SET ROLE {role}"),
        format!("SET SESSION AUTHORIZATION {role}"),
        format!(
            "INSERT INTO tenant_roles VALUES ({}, {name})",
            literal(&role)
        ),
        format!("UPDATE tenant_roles SET tenant = {name}"),
        "DELETE FROM tenant_roles".into(),
        format!("ALTER ROLE {} BYPASSRLS", quoted(ben)),
        "SET row_security = off; SELECT * FROM messages".into(),
        "ALTER TABLE messages DISABLE ROW LEVEL SECURITY".into(),
        "DROP POLICY tenant ON messages".into(),
        "CREATE TABLE public.mine ()".into(),
        "ALTER VIEW v_messages RESET (security_invoker)".into(),
        "UPDATE store_meta SET value = '' WHERE FALSE; TRUNCATE notes".into(),
    ]
}

#[test]
fn no_sql_of_a_tenant_reads_or_writes_the_rows_of_another() {
    let Some(own) = with_equal_rows(1) else {
        return;
    };
    attack(&own);
    try_to_read(&own);
}

#[test]
fn nor_in_partitioned_tables_nor_in_their_parts() {
    let Some(own) = with_equal_rows(2) else {
        return;
    };
    attack(&own);
}

/// Tries to read through functions, operators and temporary tables of a tenant, and through those of the views.
fn try_to_read(own: &Tenants) {
    let mut owner = own.server.client(&own.database);
    let role = quoted(&own.roles[1]);
    owner
        .batch_execute(&format!("CREATE SCHEMA mine AUTHORIZATION {role}"))
        .unwrap();
    let mut client = own.client(1);
    // The functions have a low cost, so that the planner would call them first; and names shadow those of the server.
    for sql in [
        "CREATE FUNCTION mine.peek(given TEXT) RETURNS BOOLEAN COST 0.0000001 LANGUAGE plpgsql AS $$
         BEGIN
             IF given LIKE '%annonly%' THEN
                 RAISE EXCEPTION 'I see %', given;
             END IF;
             RETURN TRUE;
         END $$"
            .to_owned(),
        format!(
            "CREATE FUNCTION mine.quote_ident(TEXT) RETURNS TEXT LANGUAGE sql AS $$ SELECT {}::TEXT $$",
            literal(&quoted(&own.roles[0]))
        ),
        "CREATE FUNCTION mine.yes(REGROLE, REGROLE) RETURNS BOOLEAN LANGUAGE sql AS 'SELECT TRUE'".into(),
        "CREATE OPERATOR mine.= (LEFTARG = REGROLE, RIGHTARG = REGROLE, FUNCTION = mine.yes)".into(),
        "CREATE TEMP TABLE tenant_roles (role REGROLE, tenant TEXT)".into(),
        format!(
            "INSERT INTO tenant_roles VALUES ({}::REGROLE, {})",
            literal(&role),
            literal(&own.names[0])
        ),
        "SET search_path = mine, pg_temp, public, pg_catalog".into(),
        "SET loopstore.tenant = 'a'".into(),
    ] {
        client
            .batch_execute(&sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    for (name, _) in own.relations() {
        if name != "store_meta" {
            let sql = format!("SELECT count(*) FROM public.{name} t WHERE mine.peek(t::TEXT)");
            client
                .query(&sql, &[])
                .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
    }
    let tenant: String = client
        .query_one("SELECT public.loopstore_tenant()", &[])
        .unwrap()
        .get(0);
    assert_eq!(tenant, own.names[1]);
    // The functions of the views, with keys of another tenant.
    let sql = format!(
        "SELECT session, key FROM loops WHERE tenant = {} AND parent IS NULL LIMIT 1",
        literal(&own.names[0])
    );
    let row = owner.query_one(&sql, &[]).unwrap();
    let (session, key): (i64, i64) = (row.get(0), row.get(1));
    let functions = owner
        .query(
            "SELECT proname::TEXT, pronargs::BIGINT FROM pg_proc
             WHERE pronamespace = 'public'::REGNAMESPACE AND pronargs > 0
                 AND 20 = ALL (proargtypes::OID[])",
            &[],
        )
        .unwrap();
    assert!(functions.len() >= 6);
    for function in functions {
        let (name, count): (String, i64) = (function.get(0), function.get(1));
        let said = |client: &mut Client, [session, key]: [i64; 2]| {
            let args = [session, key, 0].map(|value| value.to_string());
            let args = args[..usize::try_from(count).unwrap()].join(", ");
            let sql = format!("SELECT f::TEXT FROM public.{name}({args}) f");
            let rows = match client.query(&sql, &[]) {
                Ok(rows) => rows,
                // On a cluster, functions of triggers can be called from nowhere else.
                Err(error) if own.server.is_cluster() => return vec![Some(error.to_string())],
                Err(error) => panic!("{sql}: {error:?}"),
            };
            rows.iter()
                .map(|row| row.get::<_, Option<String>>(0))
                .collect::<Vec<_>>()
        };
        if name != "loopstore_time" {
            let nothing = said(&mut client, [1, 1 << 23]);
            assert_eq!(said(&mut client, [session, key]), nothing, "{name}");
        }
    }
}
