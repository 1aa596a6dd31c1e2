//! Messages for mistyped ids, commands and options.

use loopstore::{Session, SessionId, StoreError, extend as store};

use super::{Stage, keyed};
use crate::support::amount::is_long;

#[test]
fn the_nearest_ids_are_named() {
    let stage = Stage::of(&["kite-1", "kite-2", "worker", "other/agent-d1g"]);
    insta::assert_snapshot!(stage.refused("show kiet-1"), @"error: no session `kiet-1`; did you mean `kite-1` or `kite-2`?");
    insta::assert_snapshot!(stage.refused("show wroker"), @"error: no session `wroker`; did you mean `worker`?");
    insta::assert_snapshot!(stage.refused("export agent-d1 --format markdown"), @"error: no session `agent-d1`; did you mean `other/agent-d1g`?");
    insta::assert_snapshot!(stage.refused("context kite-1 --loop kite-1.q1"), @"error: no loop `kite-1.q1` in this session; did you mean `kite-1.p1`?");
    insta::assert_snapshot!(stage.refused("fork kite-1 --loop kite1.p1 --turn 0"), @"error: no loop `kite1.p1` in this session; did you mean `kite-1.p1`?");
    insta::assert_snapshot!(stage.refused("erase wroker --yes"), @"error: no session `wroker`; did you mean `worker`?");
    insta::assert_snapshot!(stage.refused("show zebra"), @r"
    error: no session `zebra`
    hint: `loopstore sessions` lists the sessions
    ");
    insta::assert_snapshot!(stage.refused("show kite"), @"error: `kite` matches 2 ids: `kite-1`, `kite-2`; give more characters");
}

#[test]
fn the_nearest_run_is_named() {
    let (stage, run) = Stage::demo();
    let mistyped = run.replace(&run[10..12], "zz");
    let said = stage.refused(&format!("undo demo --run {mistyped}"));
    assert!(said.contains(&format!("did you mean `{run}`?")), "{said}");
}

#[test]
fn views_and_commands_are_named_too() {
    let stage = Stage::of(&["kite-1"]);
    let output = stage.run(&["sql", "SELECT * FROM v_sesions"]);
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @"error: the query failed: no such table: v_sesions; did you mean `v_sessions` or `v_session_tree`?");
    insta::assert_snapshot!(stage.refused("sesions"), @r#"
    error: unrecognized subcommand 'sesions'

      tip: a similar subcommand exists: 'sessions'

    Usage: loopstore [OPTIONS] [COMMAND]

    For more information, try '--help'.
    "#);
    for mistyped in ["prun", "eras", "redac", "erasee"] {
        let said = stage.refused(mistyped);
        let proposed = ["prune", "erase", "redact"]
            .iter()
            .any(|name| said.contains(&format!("'{name}'")));
        assert!(!proposed, "{said}");
    }
    assert!(stage.refused("redoo").contains("'redo'"));
    insta::assert_snapshot!(stage.refused("show"), @r"
    error: the following required arguments were not provided:
      <SESSION>

    Usage: loopstore show <SESSION>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(stage.refused("compact kite-1 --strategy digset"), @r#"
    error: invalid value 'digset' for '--strategy <STRATEGY>'
      [possible values: one-liner, digest, summarize]

      tip: a similar value exists: 'digest'

    For more information, try '--help'.
    "#);
}

#[test]
fn a_usage_line_asks_for_nothing_that_the_environment_says() {
    let stage = Stage::of(&["kite-1"]);
    let output = std::process::Command::new(super::program())
        .args(["fork", "kite-1"])
        .current_dir(stage.folder())
        .env("LOOPSTORE_DB", "loopstore.db")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Usage: loopstore fork"), "{said}");
    assert!(!said.contains("--db"), "{said}");
}

#[test]
fn what_people_type_elsewhere_works_too() {
    let stage = Stage::of(&["kite-1", "kite-2"]);
    let listed = stage.run(&["sessions"]).stdout;
    for alias in ["ls", "list"] {
        assert_eq!(stage.run(&[alias]).stdout, listed, "{alias}");
    }
    let found = stage.run(&["search", "rain"]).stdout;
    assert!(!found.is_empty());
    assert_eq!(stage.run(&["find", "rain"]).stdout, found);
    assert!(stage.refused("watch no-such-file").contains("no-such-file"));
}

/// With `LOOPSTORE_LONG`, a hundred thousand sessions.
#[test]
fn very_many_sessions_are_no_obstacle() {
    let count = if is_long() { 100_000 } else { 20_000 };
    // The beginnings are distributed as those of random ids.
    let id = |at: u32| format!("{:08x}-{at}", at.wrapping_mul(2_654_435_761));
    let stage = Stage::of(&[]);
    let store = keyed::open(stage.folder().join("loopstore.db")).unwrap();
    store::write(&store, |write| {
        for at in 0..count {
            let session = Session::new(SessionId::new(id(at)).unwrap(), "agent");
            store::session::create_session(write, &session, None, None)?;
        }
        Ok::<_, StoreError>(())
    })
    .unwrap();
    drop(store);
    let meant = id(count - 7);
    let said = stage.refused(&format!("show {}", meant.replace('-', "+")));
    assert!(said.contains(&format!("did you mean `{meant}`?")), "{said}");
}
