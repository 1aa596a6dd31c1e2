//! A failing hook does not disturb the agent, and the log contains the error.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{call, claude_code, event, logged, stage, stored};
use crate::commands::stage::Stage;

/// Calls a hook that must fail without output, and returns the error in the log.
fn failure(stage: &Stage, agent: &str, event: &str, input: &[u8]) -> String {
    let said = call(stage, agent, event, input);
    assert_eq!(said.out, "", "{agent} {event}");
    let logged = logged(stage);
    assert_eq!(logged["event"], event);
    logged["failure"].as_str().unwrap().to_owned()
}

#[test]
fn an_agent_notices_nothing_of_wrong_input() {
    let stage = stage();
    let hostile = event(
        "/work/../../etc/passwd".as_ref(),
        "../../etc/passwd",
        "Stop",
    )
    .to_string();
    let elsewhere = event("/etc/passwd".as_ref(), "s", "Stop").to_string();
    let device = event("/dev/zero".as_ref(), "s", "Stop").to_string();
    let absent = event("/work/none.jsonl".as_ref(), "s", "Stop").to_string();
    let huge = vec![b' '; (4 << 20) + 1];
    let inputs: [&[u8]; 11] = [
        b"",
        b"nonsense",
        b"{\"session_id\": \"s\", \"transcript_pa",
        b"[]",
        b"{}",
        b"\xff\xfe\x00",
        &huge,
        hostile.as_bytes(),
        elsewhere.as_bytes(),
        device.as_bytes(),
        absent.as_bytes(),
    ];
    for agent in ["claude-code", "codex", "pi", "opencode"] {
        for input in inputs {
            let why = failure(&stage, agent, "Stop", input);
            assert!(!why.is_empty() && why.chars().count() <= 400, "{why}");
        }
    }
    let why = failure(&stage, "claude-code", "Stop", hostile.as_bytes());
    assert!(
        why.contains("the session's id holds other characters"),
        "{why}"
    );
    let why = failure(&stage, "claude-code", "Stop", elsewhere.as_bytes());
    assert!(
        why.contains("/etc/passwd is not the path of a transcript"),
        "{why}"
    );
}

#[test]
fn an_agent_notices_nothing_of_wrong_arguments() {
    let stage = stage();
    for line in [
        "hook",
        "hook vim Stop",
        "hook claude-code",
        "hook pi a b c d",
        "hook --nonsense",
    ] {
        let said = stage.say(line);
        assert_eq!((said.code, &*said.out, &*said.err), (0, "", ""), "{line}");
        assert!(
            logged(&stage)["failure"]
                .as_str()
                .unwrap()
                .contains("other arguments")
        );
    }
    let said = stage.say("--key-command false hook claude-code Stop");
    assert_eq!((said.code, &*said.out, &*said.err), (0, "", ""));
    // `--help` is answered as usual.
    let said = stage.say("hook --help");
    assert!(said.code == 0 && said.out.contains("Usage"), "{said}");
}

#[test]
fn an_agent_notices_nothing_of_a_transcript_of_something_else() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    let input = event(&path, "s1", "Stop").to_string();
    for content in [
        "",
        "nonsense\n",
        "{\"parentUuid\":\"u11\",\"isSide",
        "{\"type\":\"session\"}\n",
    ] {
        std::fs::write(&path, content).unwrap();
        assert!(!failure(&stage, "claude-code", "Stop", input.as_bytes()).is_empty());
        assert_eq!(stored(&stage, "s1"), 0);
    }
}

#[test]
fn an_agent_notices_nothing_of_a_database_that_cannot_be_written() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..3, "please")).unwrap();
    let input = event(&path, "s1", "Stop").to_string();
    let hook = |db: &str, variable: (&str, &str)| {
        let mut command = stage.command(&["--db", db, "hook", "claude-code", "Stop"]);
        command
            .env(variable.0, variable.1)
            .write_stdin(input.as_bytes());
        let said = stage.said(&command.output().unwrap());
        assert_eq!((said.code, &*said.out, &*said.err), (0, "", ""), "{db}");
        logged(&stage)["failure"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(hook("none.db", ("A", "b")).contains("none.db"));
    assert!(
        !stage.path("none.db").exists(),
        "a mistyped database must not come to be"
    );
    std::fs::write(stage.path("text.db"), "It is no database. ".repeat(100)).unwrap();
    assert!(!hook("text.db", ("A", "b")).is_empty());
    assert!(!hook("s1.jsonl/x.db", ("A", "b")).is_empty());
    #[cfg(debug_assertions)]
    {
        let mut newer = stage.command(&["--db", "newer.db", "import", "s1.jsonl"]);
        assert!(
            newer
                .env("LOOPSTORE_BROKEN", "later-format")
                .output()
                .unwrap()
                .status
                .success()
        );
        let why = hook("newer.db", ("A", "b"));
        assert!(why.contains("newer"), "{why}");
    }
    assert_eq!(hook("loopstore.db", ("A", "b")), "");
}

#[cfg(debug_assertions)]
#[test]
fn an_agent_notices_nothing_of_a_panic() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..1, &"word ".repeat(20_000))).unwrap();
    let mut command = stage.command(&["hook", "claude-code", "Stop"]);
    command.env("LOOPSTORE_BROKEN", "panic");
    command.write_stdin(event(&path, "s1", "Stop").to_string());
    let said = stage.said(&command.output().unwrap());
    assert_eq!((said.code, &*said.out, &*said.err), (0, "", ""));
    let why = logged(&stage)["failure"].as_str().unwrap().to_owned();
    assert!(why.contains("panic"), "{why}");
    assert_eq!(stored(&stage, "s1"), 0);
}

#[test]
fn an_agent_waits_two_seconds_for_a_database_that_another_program_holds() {
    let stage = stage();
    let path = stage.path("s1.jsonl");
    std::fs::write(&path, claude_code("s1", 0..3, "please")).unwrap();
    let other = crate::support::keyed::raw(stage.path("loopstore.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    let input = event(&path, "s1", "Stop").to_string();
    let why = failure(&stage, "claude-code", "Stop", input.as_bytes());
    assert!(
        begun.elapsed() >= Duration::from_millis(1_500),
        "{:?}",
        begun.elapsed()
    );
    assert!(why.contains("ended after 2 seconds"), "{why}");
    other.execute_batch("ROLLBACK").unwrap();
    call(&stage, "claude-code", "Stop", input.as_bytes());
    assert_eq!(stored(&stage, "s1"), 9);
}

#[test]
fn an_agent_that_never_ends_its_input_is_not_kept_waiting() {
    let stage = stage();
    let command = stage.command(&["hook", "claude-code", "Stop"]);
    let mut hook = std::process::Command::new(command.get_program());
    hook.args(command.get_args())
        .env("HOME", stage.path("home"));
    hook.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut hook = hook.current_dir(stage.path("")).spawn().unwrap();
    let mut stdin = hook.stdin.take().unwrap();
    stdin.write_all(b"{\"session_id\":").unwrap();
    let output = hook.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    drop(stdin);
    assert!(
        logged(&stage)["failure"]
            .as_str()
            .unwrap()
            .contains("ended after")
    );
}

#[test]
fn an_agent_notices_nothing_where_nothing_can_be_noted() {
    let stage = stage();
    std::fs::write(stage.path("home"), "no folder").unwrap();
    let said = call(&stage, "claude-code", "Stop", b"nonsense");
    assert_eq!(said.out, "");
}

#[test]
fn the_log_stays_small_and_keeps_the_last_calls() {
    let stage = stage();
    let folder = stage.path("home/.local/state/loopstore");
    std::fs::create_dir_all(&folder).unwrap();
    let line = json!({"at": "2026-01-01T00:00:00Z", "agent": "pi", "event": "x", "milliseconds": 1,
        "failure": "f".repeat(300)});
    let log = folder.join("hooks.jsonl");
    std::fs::write(&log, format!("{line}\n").repeat(400)).unwrap();
    call(&stage, "claude-code", "Stop", b"nonsense");
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(
        text.len() < 128 << 10 && text.len() > 32 << 10,
        "{}",
        text.len()
    );
    assert!(
        text.lines()
            .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
    );
    assert_eq!(logged(&stage)["agent"], "claude-code");
}
