//! The statements of the PostgreSQL backend are in forms that a Citus cluster accepts. Forms that a real
//! cluster rejected, or ran on every shard, are searched for in all statements, which are read from the source.

use std::path::Path;

/// Returns the tables that are distributed by their session.
fn by_session() -> Vec<String> {
    let ddl = source("src/ddl.rs");
    let list = ddl.split("pub const BY_SESSION").nth(1).unwrap();
    let list = list.split("];").next().unwrap();
    let names: Vec<String> = literals(list);
    assert!(names.len() >= 29, "{names:?}");
    names
}

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the string literals in Rust source, with their escapes.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, from) = rest.split_at(at);
        if let Some(comment) = from.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(after) = from.strip_prefix("'\"'") {
            rest = after;
        } else if !from.starts_with('"') {
            rest = &from[1..];
        } else if before.ends_with('#') {
            let (text, after) = from[1..].split_once("\"#").unwrap();
            found.push(text.to_owned());
            rest = after;
        } else {
            let bytes = from.as_bytes();
            let mut end = 1;
            while bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            found.push(from[1..end].to_owned());
            rest = &from[end + 1..];
        }
    }
    found
}

/// Returns SQL on one line.
fn folded(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the statements of the backend, and parts of statements, each with its file.
fn statements() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        // Unit tests may contain any SQL; the DDL is checked separately.
        let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
        if name == "ddl.rs" {
            continue;
        }
        let verbs = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ", "JOIN "];
        let texts = literals(source).into_iter().map(|text| folded(&text));
        let texts = texts.filter(|text| verbs.iter().any(|verb| text.contains(verb)));
        all.extend(texts.map(|text| (name.clone(), text)));
    }
    assert!(all.len() > 150, "{} statements", all.len());
    all
}

/// Returns the problem of an insert: rows of a query are copied in, which takes a commit in two phases, and a
/// query among the values is rejected.
fn wrong_with_insert(sql: &str) -> Option<&'static str> {
    let (_, insert) = sql.split_once("INSERT INTO ")?;
    let insert = insert.split(" ON CONFLICT").next()?;
    insert
        .contains("SELECT")
        .then_some("an INSERT takes its rows from a query")
}

/// Returns the problem of an update: it changes the column that determines the shard of a row.
fn wrong_with_update(sql: &str) -> Option<&'static str> {
    let (_, set) = sql.split_once(" SET ")?;
    let set = set.split(" WHERE ").next()?;
    let columns = set.trim_start_matches('(');
    let moves = columns.starts_with("session =")
        || columns.starts_with("session,")
        || set.contains(", session =");
    (sql.starts_with("UPDATE ") && moves).then_some("an UPDATE writes the session")
}

/// Returns the problem of a join: it joins rows of different sessions.
fn wrong_with_join(sql: &str, by_session: &[String]) -> Option<&'static str> {
    let mut joins = sql.split("JOIN ").skip(1);
    let is_apart = joins.any(|join| {
        let table = join.split([' ', ')']).next().unwrap_or_default();
        if !by_session.iter().any(|name| name == table) {
            return false;
        }
        // Up to the next part of the statement.
        let ends = [
            " WHERE ",
            " GROUP BY ",
            " ORDER BY ",
            " LEFT ",
            " CROSS ",
            " UNION ",
        ];
        let end = ends.iter().filter_map(|end| join.find(end)).min();
        let condition = &join[..end.unwrap_or(join.len())];
        !condition.contains("session = ") && !condition.contains("session_id = ")
    });
    is_apart.then_some("a JOIN does not name the session")
}

#[test]
fn no_statement_is_one_that_a_cluster_refuses_or_runs_on_every_shard() {
    let tables = by_session();
    let mut wrong = Vec::new();
    for (file, sql) in statements() {
        let found = [
            wrong_with_insert(&sql),
            wrong_with_update(&sql),
            wrong_with_join(&sql, &tables),
        ];
        wrong.extend(
            found
                .into_iter()
                .flatten()
                .map(|why| format!("{file}: {why}: {sql}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_cluster_refused_is_found_by_what_looks_for_it() {
    let tables = by_session();
    for sql in [
        "INSERT INTO loops (session, key) VALUES ($1, (SELECT coalesce(max(key), $2) FROM loops))",
        "INSERT INTO coverage (session, block) SELECT $1, * FROM unnest($2::BIGINT[])",
    ] {
        assert!(wrong_with_insert(sql).is_some(), "{sql}");
    }
    let sql = "INSERT INTO loops (session, key) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    assert!(wrong_with_insert(sql).is_none());
    let sql = "UPDATE runs SET (session, run_id) = ROW ($1, $2) WHERE session = $1";
    assert!(wrong_with_update(sql).is_some());
    let sql = "UPDATE runs SET (run_id, loop) = ROW ($2, $3) WHERE session = $1";
    assert!(wrong_with_update(sql).is_none());
    let sql =
        "SELECT 1 FROM loops c JOIN loops p ON p.loop_id = c.parent_loop_id WHERE c.session = $1";
    assert!(wrong_with_join(sql, &tables).is_some());
    let sql = "SELECT 1 FROM loops l LEFT JOIN leases d ON d.session = $1 AND d.loop = l.key";
    assert!(wrong_with_join(sql, &tables).is_none());
}

/// Returns the functions of the schema: name, text before the body, and body.
fn functions() -> Vec<(String, String, String)> {
    let schema = source("migrations/V1__store.sql");
    let schema = schema + &source("citus/tenants.sql");
    let mut all = Vec::new();
    for made in schema.split("CREATE FUNCTION ").skip(1) {
        let name = made.split('(').next().unwrap().to_owned();
        let Some((head, rest)) = made.split_once("AS $$") else {
            continue;
        };
        let body = rest.split("$$").next().unwrap();
        let lines = body
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let body = folded(&lines.collect::<Vec<_>>().join("\n"));
        all.push((name, folded(head), body));
    }
    assert!(all.len() > 30, "{} functions", all.len());
    all
}

/// Returns true if some SQL reads one of these tables.
fn reads(sql: &str, table: &str) -> bool {
    let mut words = sql.split([' ', ',', '(', ')', ';']);
    let mut before = "";
    words.any(|word| {
        let found = word == table && ["FROM", "JOIN", "UPDATE", "INTO"].contains(&before);
        before = word;
        found
    })
}

#[test]
fn a_function_that_reads_tables_is_no_plain_sql_and_one_of_a_trigger_stays_with_its_session() {
    let mut tables = by_session();
    tables.extend(["session_names", "sources", "source_pieces", "source_parts"].map(String::from));
    let mut triggers = 0;
    for (name, head, body) in functions() {
        let read: Vec<&String> = tables.iter().filter(|table| reads(&body, table)).collect();
        if read.is_empty() {
            continue;
        }
        // A function in SQL is inlined into the statement, which would then query from a shard.
        assert!(head.contains("LANGUAGE plpgsql"), "{name}");
        if !head.contains("RETURNS TRIGGER") {
            continue;
        }
        triggers += 1;
        for table in read {
            assert!(by_session().contains(table), "{name} reads {table}");
        }
        // Each query contains the session of the row.
        let queries = body.split([';', '(']).filter(|part| {
            let part = part.trim_start();
            part.starts_with("SELECT ") && tables.iter().any(|table| reads(part, table))
        });
        for query in queries {
            assert!(query.contains("session = "), "{name}: {query}");
        }
    }
    assert!(
        triggers >= 5,
        "{triggers} functions of triggers read tables"
    );
}

#[test]
fn what_views_call_for_the_rows_of_a_session_may_ask_from_a_shard() {
    let schema = source("migrations/V1__store.sql");
    let ddl = source("src/ddl.rs");
    let list = ddl.split("const ASKED_BY_VIEWS").nth(1).unwrap();
    let may_ask = literals(list.split("];").next().unwrap());
    let views: Vec<&str> = schema.split("CREATE VIEW ").skip(1).collect();
    assert!(views.len() > 15);
    let of_views: String = views
        .iter()
        .map(|view| view.split(";\n").next().unwrap())
        .collect();
    let mut called = 0;
    for (name, _, body) in functions() {
        let reads_tables = by_session().iter().any(|table| reads(&body, table));
        if reads_tables && of_views.contains(&format!("{name}(")) {
            called += 1;
            assert!(may_ask.contains(&name), "{name}");
            // On a node, a role has rights on the tables only.
            for view in &views {
                let view = view.split([' ', '\n']).next().unwrap();
                assert!(!reads(&body, view), "{name} reads {view}");
            }
        }
    }
    assert!(called >= 3, "{called} functions");
    // A recursion over sessions on several nodes is no single statement.
    assert!(!of_views.contains("WITH RECURSIVE"));
}

/// Returns true if tables are joined to rows that come first and belong to no table.
fn joins_to_no_table(sql: &str) -> bool {
    sql.split(" FROM ").skip(1).any(|from| {
        let first = from.split(' ').next().unwrap_or_default();
        let ends = [" WHERE ", " GROUP BY ", " ORDER BY "];
        let end = ends.iter().filter_map(|end| from.find(end)).min();
        first.contains('(') && from[..end.unwrap_or(from.len())].contains("LEFT JOIN")
    })
}

#[test]
fn no_view_joins_tables_to_rows_of_none_which_a_coordinator_does_not_survive() {
    let schema = source("migrations/V1__store.sql");
    for view in schema.split("CREATE VIEW ").skip(1) {
        let view = folded(view.split(";\n").next().unwrap());
        assert!(!joins_to_no_table(&view), "{view}");
    }
    // Under row-level security, Citus 13.2 crashes while planning these.
    for sql in [
        "SELECT 1 FROM (VALUES (1)) v (n) LEFT JOIN manifests x ON x.key = v.n WHERE TRUE",
        "SELECT 1 FROM json_array_elements(m.parts) AS part (value) LEFT JOIN loops n ON TRUE",
    ] {
        assert!(joins_to_no_table(sql), "{sql}");
    }
}
