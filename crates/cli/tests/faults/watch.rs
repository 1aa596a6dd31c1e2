//! `import --watch` in a separate process: growing files are imported until it is stopped.
#![cfg(unix)]

use crate::support::hang::HUNG;
use crate::support::process;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

/// A program that watches the folder `logs`.
struct WatchProcess {
    folder: tempfile::TempDir,
    child: Child,
    lines: Receiver<String>,
}

impl WatchProcess {
    fn new(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        std::fs::write(folder.path().join("logs/notes.txt"), "no transcript").unwrap();
        let mut child = crate::support::command::loopstore()
            .args(["import", "--watch", "logs"])
            .args(args)
            .current_dir(folder.path())
            .env("LOOPSTORE_DB", "loopstore.db")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = channel();
        let outputs: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for output in outputs {
            let send = send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = send.send(line);
                }
            });
        }
        Self {
            folder,
            child,
            lines,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("logs").join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(HUNG).expect("a line is told")
    }

    fn json(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Stops it as Ctrl-C does, and returns the exit code and the remaining output.
    fn stop(mut self) -> (Option<i32>, Vec<String>, tempfile::TempDir) {
        process::signal("INT", self.child.id());
        let code = self.child.wait().unwrap().code();
        (code, self.lines.iter().collect(), self.folder)
    }
}

fn prompt(uuid: &str, parent: &str, text: &str) -> String {
    format!(
        r#"{{"type":"user","uuid":"{uuid}","parentUuid":{parent},"sessionId":"s","timestamp":"2026-02-02T02:40:00Z","message":{{"role":"user","content":"{text}"}}}}"#
    )
}

fn answer(uuid: &str, parent: &str, text: &str) -> String {
    format!(
        r#"{{"type":"assistant","uuid":"{uuid}","parentUuid":"{parent}","sessionId":"s","timestamp":"2026-02-02T02:40:01Z","message":{{"id":"m-{uuid}","role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

fn texts(folder: &tempfile::TempDir) -> String {
    let store = crate::support::keyed::open(folder.path().join("loopstore.db")).unwrap();
    let rows = store
        .query("SELECT session_id, text FROM v_messages ORDER BY 1, seq")
        .unwrap()
        .rows;
    format!("{rows:?}")
}

#[test]
fn what_grows_comes_in_line_by_line_and_once() {
    let watching = WatchProcess::new(&["--json"]);
    assert_eq!(
        watching.json(),
        serde_json::json!({ "event": "watching", "files": 1 })
    );
    watching.append("s.jsonl", &format!("{}\n", prompt("a", "null", "one")));
    let told = watching.json();
    assert_eq!(
        (&told["event"], &told["added_messages"]),
        (&"imported".into(), &1.into())
    );
    assert_eq!(told["file"], "logs/s.jsonl");
    // A record is written in two halves: it is imported when it is whole, and the half is not reported.
    let record = answer("b", "a", "two");
    watching.append("s.jsonl", &record[..40]);
    std::thread::sleep(Duration::from_millis(1200));
    watching.append("s.jsonl", &format!("{}\n", &record[40..]));
    let told = watching.json();
    assert_eq!(
        (&told["added_messages"], &told["skipped"]),
        (&1.into(), &serde_json::json!([]))
    );
    // A new file, of another format, in a new folder.
    std::fs::create_dir(watching.path("more")).unwrap();
    watching.append("more/chat.json", r#"[{"role":"user","content":"three"}]"#);
    assert_eq!(watching.json()["file"], "logs/more/chat.json");
    watching.append("s.jsonl", "nonsense\n");
    assert_eq!(watching.json()["skipped"][0]["line"], 3);
    let (code, rest, folder) = watching.stop();
    assert_eq!(code, Some(0));
    assert_eq!(rest, [r#"{"event":"stopped","added_messages":3}"#]);
    assert_eq!(
        texts(&folder),
        r#"[["chat-0", "three"], ["s", "one"], ["s", "two"], ["s", null]]"#
    );
}

#[test]
fn people_get_sentences() {
    let watching = WatchProcess::new(&[]);
    assert_eq!(watching.line(), "Watching 1 file; press Ctrl-C to stop.");
    watching.append("s.jsonl", &format!("{}\n", prompt("a", "null", "one")));
    assert_eq!(watching.line(), "logs/s.jsonl: 1 message new (session s)");
    let (code, rest, _) = watching.stop();
    assert_eq!(
        (code, rest),
        (Some(0), vec!["Stopped: 1 message imported.".to_owned()])
    );
}

#[test]
fn what_came_in_unredacted_before_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.jsonl");
    std::fs::write(&file, format!("{}\n", prompt("a", "null", "one"))).unwrap();
    let run = |args: &[&str]| {
        let mut command = crate::support::command::loopstore();
        command.arg("import").args(args).arg("s.jsonl");
        command
            .current_dir(folder.path())
            .env("LOOPSTORE_DB", "loopstore.db");
        command
    };
    assert!(run(&[]).output().unwrap().status.success());
    let mut child = run(&["--watch", "--redact"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        line.contains("was imported before without --redact"),
        "{line}"
    );
}
