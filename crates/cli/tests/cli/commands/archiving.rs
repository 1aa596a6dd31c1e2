//! `archive` and related commands.

use assert_cmd::Command;
use serde_json::Value;

use crate::support::archive::line;
use crate::support::histories::open;

struct ArchivedSession {
    folder: tempfile::TempDir,
}

impl ArchivedSession {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder.path().join("a.db"));
        let mut history = line(&store, "sess", 3, 4);
        assert_eq!(history.compact(3, (0, 1), true)["outcome"], "committed");
        line(&store, "other", 1, 2);
        Self { folder }
    }

    fn run(&self, args: &str) -> (i32, String, String) {
        let mut command = Command::cargo_bin("loopstore").unwrap();
        command.args(args.split_whitespace()).arg("--db");
        let output = command
            .arg(self.folder.path().join("a.db"))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        (code, text(output.stdout), text(output.stderr))
    }

    fn said(&self, args: &str) -> String {
        let (code, out, err) = self.run(args);
        format!("{out}{err}exit {code}")
    }

    fn json(&self, args: &str) -> Value {
        let (code, out, err) = self.run(&format!("{args} --json"));
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }
}

#[test]
fn cold_loops_are_archived_and_brought_back() {
    let stage = ArchivedSession::new();
    insta::assert_snapshot!(stage.said("archive se --dry-run"), @"
    Would archive 3 loops: 36 messages, 16.2 KiB before, 3.1 KiB after.
    session sess, loop loop-0: 12 messages, 5.4 KiB before, 1.0 KiB after
    session sess, loop loop-1: 12 messages, 5.4 KiB before, 1.0 KiB after
    session sess, loop loop-2: 12 messages, 5.4 KiB before, 1.0 KiB after
    1 loop left: not ended
    exit 0
    ");
    insta::assert_snapshot!(stage.said("archive --all"), @"
    Archived 3 loops: 36 messages, 16.2 KiB before, 3.1 KiB after.
    session sess, loop loop-0: 12 messages, 5.4 KiB before, 1.0 KiB after
    session sess, loop loop-1: 12 messages, 5.4 KiB before, 1.0 KiB after
    session sess, loop loop-2: 12 messages, 5.4 KiB before, 1.0 KiB after
    2 loops left: not ended
    1 loop left: shown by a context
    note: the file keeps its size and reuses the freed space; `loopstore backup --compact DEST` writes a smaller copy
    exit 0
    ");
    insta::assert_snapshot!(stage.said("archive --all"), @r"
    Archived nothing.
    2 loops left: not ended
    1 loop left: shown by a context
    exit 0
    ");
    let shown = stage.said("show sess");
    assert_eq!(shown.matches("; archived").count(), 3, "{shown}");
    insta::assert_snapshot!(stage.said("unarchive sess --loop loop-1"), @"
    Unarchived 1 loop: 12 messages, 1.0 KiB before, 5.4 KiB after.
    session sess, loop loop-1: 12 messages, 1.0 KiB before, 5.4 KiB after
    exit 0
    ");
    let report = stage.json("unarchive --all");
    assert_eq!(report["messages"], 24);
    assert_eq!(report["loops"][0]["loop_id"], "loop-0");
    assert_eq!(stage.said("unarchive sess"), "Unarchived nothing.\nexit 0");
    assert_eq!(stage.run("verify").0, 0);
}

#[test]
fn one_loop_is_archived_by_its_name() {
    let stage = ArchivedSession::new();
    let report = stage.json("archive other --loop loop-0 --reason cold");
    assert_eq!(report["loops"][0]["session_id"], "other");
    assert_eq!(report["messages"], 6);
    assert_eq!(report["receipts"].as_array().unwrap().len(), 1);
    let running = stage.said("archive other --loop loop-1");
    assert!(running.contains("loop loop-1 has not ended"), "{running}");
    let nobody = stage.said("archive other --loop nobody");
    assert!(nobody.ends_with("exit 1"), "{nobody}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let stage = ArchivedSession::new();
    for args in [
        "archive",
        "archive sess --all",
        "archive --all --loop loop-0",
        "archive sess --loop loop-0 --shown",
        "archive --all --older-than 3",
        "unarchive",
        "unarchive sess --all",
        "unarchive --all --loop loop-0",
    ] {
        assert_eq!(stage.run(args).0, 2, "{args}");
    }
    let young = stage.json("archive --all --older-than 1d");
    assert_eq!(young["messages"], 0);
}
