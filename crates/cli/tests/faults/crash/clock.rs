//! A system clock before 1970, as on a board without a battery: commands work, with the times of that clock.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::crash::shim::Shim;
use crate::crash::stage::folder;

fn run(folder: &Path, shim: &Shim, args: &[&str], input: &str) -> Output {
    let mut command = crate::support::command::loopstore();
    command
        .arg("--db")
        .arg(folder.join("a.db"))
        .args(args)
        .env("HOME", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    shim.apply_to(&mut command);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn a_clock_before_1970_stops_nothing() {
    let folder = folder();
    let shim = Shim::on(folder.path());
    let now = loopstore::Time::now().millis().unwrap() / 1000;
    // The second day of 1969.
    shim.set_clock(86_400 - 365 * 86_400 - now);
    let word = "word ".repeat(400);
    let mut messages = String::new();
    for turn in 0..12 {
        messages += &format!("{{\"role\":\"user\",\"content\":\"Question {turn} {word}\"}}\n");
        messages += &format!("{{\"role\":\"assistant\",\"content\":\"Answer {turn} {word}\"}}\n");
    }
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    let runs: [(&[&str], &str); 9] = [
        (&["append", "s", "--format", "openai"], &messages),
        (&["compact", "s", "--force"], ""),
        (&["undo", "s"], ""),
        (&["fork", "s", "--loop", "loop-3", "--turn", "0"], ""),
        (&["context", "s"], ""),
        (&["sessions"], ""),
        (&["show", "s"], ""),
        (&["report", "s", "-o", page], ""),
        (&["verify"], ""),
    ];
    for (args, input) in runs {
        let done = run(folder.path(), &shim, args, input);
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{args:?}: {told}");
    }
    let found = run(folder.path(), &shim, &["--json", "sessions"], "");
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(
        found.contains("\"last_active_at\": \"1969-01-02T"),
        "{found}"
    );
}
