//! Rejected commands and their messages.

use insta::assert_snapshot;

use crate::commands::stage::{Stage, session};

#[test]
fn a_missing_database_is_not_created() {
    let stage = Stage::empty();
    for line in [
        "sessions",
        "show x",
        "context x",
        "compact x",
        "compact x --dry-run",
        "history",
        "undo x",
        "redo x",
        "diff x",
        "fork x --loop l --turn 0",
        "context x --record",
        "stats",
        "verify",
        "sql x",
        "search x",
        "recall x",
        "index",
        "expand x --turns 0",
    ] {
        let said = stage.say(line);
        assert_eq!(said.code, 1, "{line}: {said}");
        assert!(said.out.is_empty(), "{line}: {said}");
        assert!(!stage.path("loopstore.db").exists(), "{line}");
    }
    assert_snapshot!(stage.say("sessions"), @r#"
    --- stderr
    error: loopstore.db: there is no database here
    hint: check --db, or create a database with `loopstore import`
    --- exit 1
    "#);
}

#[test]
fn other_files_are_no_database() {
    let stage = Stage::empty();
    std::fs::write(stage.path("notes.txt"), "not a database, just text").unwrap();
    std::fs::create_dir(stage.path("folder")).unwrap();
    assert_snapshot!(stage.say("sessions --db notes.txt"), @r#"
    --- stderr
    error: notes.txt: this is not a loopstore database
    hint: check --db: what it names is something else
    --- exit 1
    "#);
    assert_snapshot!(stage.say("sessions --db folder"), @r#"
    --- stderr
    error: folder: this is not a loopstore database
    hint: check --db: what it names is something else
    --- exit 1
    "#);
    assert_snapshot!(stage.say("import notes.txt --db folder"), @r#"
    --- stderr
    error: folder: this is not a loopstore database
    hint: check --db: what it names is something else
    --- exit 1
    "#);
    // The command in a hint contains the database of the failed command.
    assert_snapshot!(stage.say("sessions --db no.db"), @r#"
    --- stderr
    error: no.db: there is no database here
    hint: check --db, or create a database with `loopstore --db no.db import`
    --- exit 1
    "#);
    assert_eq!(stage.say("sessions --db no/such/folder.db").code, 1);
    let text = std::fs::read_to_string(stage.path("notes.txt")).unwrap();
    assert_eq!(text, "not a database, just text");
}

#[test]
fn a_newer_database_is_refused() {
    let stage = Stage::new();
    let connection = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(connection);
    let said = stage.say("sessions");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("newer loopstore (format 999"), "{said}");
    assert_eq!(stage.say("undo work").code, 1);
}

#[test]
fn unknown_and_ambiguous_ids_say_what_there_is() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("show nope"), @r#"
    --- stderr
    error: no session `nope`
    hint: `loopstore sessions` lists the sessions
    --- exit 1
    "#);
    assert_snapshot!(stage.say("show wor"), @r#"
    --- stderr
    error: `wor` matches 2 ids: `work`, `worker`; give more characters
    --- exit 1
    "#);
    assert_snapshot!(stage.say("context work --loop nope"), @r"
    --- stderr
    error: no loop `nope` in this session
    hint: `loopstore show work` lists the loops
    --- exit 1
    ");
    assert_snapshot!(stage.say("compact work --loop t"), @r#"
    --- stderr
    error: `t` matches 2 ids: `test`, `try`; give more characters
    --- exit 1
    "#);
    assert_eq!(stage.run(&["show", ""]).code, 1);
    assert_eq!(stage.run(&["show", &"x".repeat(10_000)]).code, 1);
    // A session with exactly this id is preferred to one whose id only begins with it.
    assert_eq!(stage.json("show work")["session_id"], "work");
}

#[test]
fn a_session_without_loops_has_no_context() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("context worker"), @r#"
    --- stderr
    error: session `worker` has no loops yet
    --- exit 1
    "#);
    assert_snapshot!(stage.say("compact worker"), @r#"
    --- stderr
    error: session `worker` has no loops yet
    --- exit 1
    "#);
}

#[test]
fn usage_errors_exit_with_2() {
    let stage = Stage::new();
    for line in [
        "nonsense",
        "show",
        "show work work",
        "context work --format nope",
        "context work --format text --json",
        "context work --scope some",
        "context work --scope fixed:-1",
        "context work --older-loops maybe",
        "context work --max-tokens -1",
        "context work --max-tokens many",
        "context work --max-tokens 18446744073709551616",
        "context work --as-of :3",
        "context work --as-of test:-1",
        "context work --as-of test:99999999999",
        "compact work --max-tokens 0",
        "compact work --max-tokens -5",
        "compact work --keep-first -1",
        "compact work --keep-recent 4294967296",
        "compact work --scope fixed:",
        "compact work --scope FIXED:3",
        "compact work --recent-window all",
        "compact work --strategy magic",
        "completions cmd",
        "sql",
        "stats more",
    ] {
        let said = stage.say(line);
        assert_eq!(said.code, 2, "{line}: {said}");
        assert!(
            said.out.is_empty() != line.ends_with("--json") && !said.err.is_empty(),
            "{line}: {said}"
        );
    }
    assert_snapshot!(stage.say("compact work --scope some"), @"
    --- stderr
    error: invalid value 'some' for '--scope <SCOPE>': `some` is not one of fixed:N, token-budget

    For more information, try '--help'.
    --- exit 2
    ");
}

#[cfg(not(feature = "http"))]
#[test]
fn a_model_cannot_be_asked_without_http() {
    let stage = Stage::new();
    assert_snapshot!(stage.say("compact work --strategy summarize --summary-model gpt-x"), @"
    --- stderr
    error: this loopstore was built without summarisers over HTTP: give --command, or build it with `--features http`
    --- exit 2
    ");
    assert_eq!(stage.say("compact work --summary-model gpt-x").code, 2);
}

#[test]
fn sql_only_reads() {
    let stage = Stage::new();
    for query in [
        "DELETE FROM messages",
        "DROP TABLE sessions",
        "UPDATE sessions SET title = 'x'",
        "PRAGMA user_version = 3",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "BEGIN",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
        "SELECT * FROM nothing",
        "",
        "/* nothing */",
        "\u{1b}[31m",
    ] {
        let said = stage.run(&["sql", query]);
        assert_eq!(said.code, 1, "{query}: {said}");
        assert!(!said.err.contains('\u{1b}'), "{said}");
    }
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
                   SELECT max(x) FROM n";
    assert_snapshot!(stage.run(&["sql", "--timeout", "1", endless]), @r#"
    --- stderr
    error: the query timed out
    --- exit 1
    "#);
    assert_snapshot!(stage.run(&["sql", "DELETE FROM messages"]), @r#"
    --- stderr
    error: only a single SELECT is allowed here
    --- exit 1
    "#);
    assert_snapshot!(stage.run(&["sql", "SELECT nope FROM v_sessions"]), @r#"
    --- stderr
    error: the query failed: no such column: nope in SELECT nope FROM v_sessions at offset 7
    --- exit 1
    "#);
    let files = std::fs::read_dir(stage.path("")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(
        names
            .into_iter()
            .all(|name| name.starts_with("loopstore.db"))
    );
}

#[test]
fn ids_are_text_and_nothing_more() {
    let stage = Stage::new();
    let id = "x' OR '1'='1<script>\u{1b}[31m%_";
    session(&stage.store(), id, "");
    let shown = stage.run(&["show", id, "--json"]);
    assert_eq!(shown.json()["session_id"], id);
    for hostile in ["' OR 1=1 --", "%", "_ork", "wor*", "\u{1b}[31mwork"] {
        let said = stage.run(&["show", hostile]);
        assert_eq!(said.code, 1, "{said}");
        assert!(!said.err.contains('\u{1b}'), "{said}");
    }
    assert_eq!(stage.json("stats")["sessions"], 4);
}

#[test]
fn a_file_that_may_not_be_written_is_refused_with_a_reason() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    let folder = stage.path("");
    let read_only = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    read_only(&stage.path("loopstore.db"), 0o400);
    read_only(&folder, 0o500);
    let is_root = std::fs::write(stage.path("probe"), "").is_ok();
    let said = stage.say("compact work --max-tokens 9000");
    read_only(&folder, 0o700);
    // Permissions do not apply to root.
    if !is_root {
        assert_eq!(said.code, 1, "{said}");
        assert!(said.err.contains("hint: "), "{said}");
    }
}

#[test]
fn verify_finds_no_damage_in_a_sound_database() {
    let stage = Stage::new();
    stage.say("compact work --max-tokens 9000");
    assert_snapshot!(stage.say("verify"), @"
    No damage found.
    Checked: audit 1, blobs 1, block messages 13, blocks 3, coverage 24, flips 0, hides 0, loops 5, manifests 0, messages 63, pins 0, receipts 0, runs 1, sessions 3, sources 0, turns 33.
    ");
    let report = stage.json("verify");
    assert_eq!(
        (&report["ok"], &report["problems"]),
        (&true.into(), &serde_json::json!([]))
    );
}

#[test]
fn verify_exits_with_3_if_there_is_damage() {
    let stage = Stage::new();
    let connection = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    connection
        .execute_batch(
            "PRAGMA writable_schema = 1;
             DELETE FROM sqlite_schema WHERE type = 'trigger';",
        )
        .unwrap();
    drop(connection);
    let connection = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    connection
        .execute(
            "UPDATE messages SET body = body || '!' WHERE body LIKE 'line 1%'",
            [],
        )
        .unwrap();
    drop(connection);
    let said = stage.say("verify");
    assert_eq!(said.code, 3, "{said}");
    let said = stage.say("verify --json");
    assert_eq!(said.code, 3);
    assert_eq!(said.json()["ok"], false);
}

#[cfg(not(feature = "browse"))]
#[test]
fn a_command_that_the_build_lacks_is_told() {
    assert_snapshot!(Stage::new().say("browse"), @r#"
    --- stderr
    error: this loopstore was built without `browse`; build it with `--features browse`: `cargo install --path crates/cli --features browse`
    --- exit 2
    "#);
}

/// A reading command, after the creation of the database was killed: the database is empty, and nothing is damaged.
#[test]
fn a_database_whose_creation_was_killed_reads_as_empty() {
    let stages = [
        "",
        "PRAGMA journal_mode = wal;",
        "PRAGMA journal_mode = wal; PRAGMA application_id = 0x4C4F4F50;",
    ];
    for (at, sql) in stages.into_iter().enumerate() {
        let stage = Stage::empty();
        let file = stage.path("loopstore.db");
        std::fs::write(&file, []).unwrap();
        crate::support::keyed::raw(&file)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
        let said = stage.say("sessions");
        assert_eq!((said.code, &*said.err), (0, ""), "{at}: {said}");
        assert!(said.out.starts_with("No sessions yet"), "{at}: {said}");
        assert_eq!(stage.say("verify").code, 0, "{at}");
    }
    // The journal of an unfinished transaction.
    let stage = Stage::empty();
    std::fs::write(stage.path("loopstore.db"), [0; 4096]).unwrap();
    let journal =
        b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\0\0\0\0\x12\x34\x56\x78\0\0\0\0\0\0\x02\0\0\0\x10\0";
    let journal = [&journal[..], &[0; 512 - 28]].concat();
    std::fs::write(stage.path("loopstore.db-journal"), journal).unwrap();
    let said = stage.say("sessions");
    assert_eq!((said.code, &*said.err), (0, ""), "{said}");
    // Everything that the killed creation had written, except the token counter and the mark of the file.
    let stage = Stage::empty();
    drop(stage.store());
    let raw = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    raw.execute_batch(
        "DROP TRIGGER store_meta_no_delete; DELETE FROM store_meta; PRAGMA user_version = 0",
    )
    .unwrap();
    let trigger = include_str!("../../../../../migrations/sqlite/V1__store.sql");
    let trigger = &trigger[trigger.find("CREATE TRIGGER store_meta_no_delete").unwrap()..];
    let trigger = &trigger[..trigger.find("END;").unwrap() + 4];
    raw.execute_batch(trigger).unwrap();
    drop(raw);
    let said = stage.say("sessions");
    assert_eq!((said.code, &*said.err), (0, ""), "{said}");
}

#[test]
fn objects_that_are_not_of_the_store_are_named_with_what_to_do() {
    let stage = Stage::new();
    let raw = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    raw.execute_batch(
        "CREATE TABLE loot (text);
         CREATE TRIGGER \"spy\u{1b}[2J\" AFTER UPDATE ON messages BEGIN INSERT INTO loot VALUES (OLD.head); END",
    )
    .unwrap();
    let said = stage.say("redact work --yes");
    let named = "trigger `spy\\u{1b}[2J` on `messages`";
    assert!(said.code == 1 && said.err.contains(named), "{said}");
    assert!(
        said.err.contains("DROP TRIGGER") && said.err.contains("--salvage"),
        "{said}"
    );
    let said = stage.say("verify");
    assert!(said.code != 0 && said.out.contains(named), "{said}");
    // The recorded session can be read, searched and continued.
    assert_eq!(stage.say("show work").code, 0);
    assert_eq!(stage.say("search build").code, 0);
    let said = stage.say("verify --salvage clean.db");
    assert!(stage.path("clean.db").exists(), "{said}");
    assert_eq!(stage.say("--db clean.db verify").code, 0);
    assert_eq!(stage.say("--db clean.db protect work").code, 0);
}

/// Without handling, the signal of the system would end the process without a message.
#[test]
fn a_write_beyond_the_limit_of_a_file_is_an_error() {
    let stage = Stage::empty();
    let program = assert_cmd::cargo::cargo_bin("loopstore");
    let output = std::process::Command::new("sh")
        .current_dir(stage.path("").as_path())
        .env("LOOPSTORE_DB", "loopstore.db")
        .args(["-c", "ulimit -f 64; echo '{\"role\":\"user\",\"content\":\"hi\"}' | \"$0\" --db small.db append s"])
        .arg(program)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.starts_with("error: ") && told.contains("hint: "),
        "{told}"
    );
}
