//! What is said to somebody who mistyped.

use std::time::{Duration, Instant};

use super::{Stage, keyed};

#[test]
fn the_nearest_ids_are_named() {
    let stage = Stage::of(&["kite-1", "kite-2", "worker", "other/agent-d1g"]);
    insta::assert_snapshot!(stage.refused("show kiet-1"), @"");
    insta::assert_snapshot!(stage.refused("show wroker"), @"");
    insta::assert_snapshot!(stage.refused("export agent-d1 --format markdown"), @"");
    insta::assert_snapshot!(stage.refused("context kite-1 --loop kite-1.q1"), @"");
    insta::assert_snapshot!(stage.refused("fork kite-1 --loop kite1.p1 --turn 0"), @"");
    insta::assert_snapshot!(stage.refused("erase wroker --yes"), @"");
    insta::assert_snapshot!(stage.refused("show zebra"), @"");
    insta::assert_snapshot!(stage.refused("show kite"), @"");
}

#[test]
fn the_nearest_run_is_named() {
    let stage = Stage::of(&["kite-1"]);
    let output = stage.run(&["compact", "kite-1", "--force", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = report["run"].as_str().unwrap();
    let mistyped = run.replace(&run[10..12], "zz");
    let said = stage.refused(&format!("undo kite-1 --run {mistyped}"));
    assert!(said.contains(&format!("did you mean `{run}`?")), "{said}");
}

#[test]
fn views_and_commands_are_named_too() {
    let stage = Stage::of(&["kite-1"]);
    let output = stage.run(&["sql", "SELECT * FROM v_sesions"]);
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @"");
    insta::assert_snapshot!(stage.refused("sesions"), @"");
    insta::assert_snapshot!(stage.refused("compact kite-1 --strategy digset"), @"");
}

#[test]
fn a_hundred_thousand_sessions_are_no_obstacle() {
    let stage = Stage::of(&[]);
    let store = keyed::open(stage.folder().join("loopstore.db")).unwrap();
    loopstore::store::write(&store, |write| {
        for at in 0..100_000_u32 {
            let id = format!("{:08x}-{at}", at.wrapping_mul(2_654_435_761));
            let session = loopstore::Session::new(loopstore::SessionId::new(id).unwrap(), "a");
            loopstore::store::session::create_session(write, &session, None, None)?;
        }
        Ok::<_, loopstore::StoreError>(())
    })
    .unwrap();
    drop(store);
    let begun = Instant::now();
    // 77777 * 2654435761 modulo 2^32 is 0x…; the last digits are turned round.
    let id = format!("{:08x}-77777", 77_777_u32.wrapping_mul(2_654_435_761));
    let said = stage.refused(&format!("show {}", id.replace("-77777", "+77777")));
    assert!(said.contains(&format!("did you mean `{id}`?")), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}
