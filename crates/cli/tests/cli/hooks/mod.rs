//! Hooks of agents: their input, the recorded sessions, their installation, and `doctor`.

mod doctor;
mod failing;
mod inside;
mod installing;
mod recording;
mod redacting;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::commands::stage::{CommandOutput, Stage};

/// Creates a folder with an empty database.
fn stage() -> Stage {
    let stage = Stage::empty();
    drop(stage.store());
    stage
}

/// Calls a hook, which must succeed with any input.
fn call(stage: &Stage, agent: &str, event: &str, input: &[u8]) -> CommandOutput {
    let mut command = stage.command(&["hook", agent, event]);
    let begun = Instant::now();
    let output = command.write_stdin(input).output().unwrap();
    let took = begun.elapsed();
    let said = stage.said(&output);
    assert_eq!((said.code, &*said.err), (0, ""), "{agent} {event}: {said}");
    // The promised time, with an allowance for a busy machine.
    assert!(took < Duration::from_secs(20), "{took:?}");
    said
}

/// Returns the last entry of the log of hooks.
fn logged(stage: &Stage) -> Value {
    let log = stage.path("home/.local/state/loopstore/hooks.jsonl");
    let text = std::fs::read_to_string(log).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Copies a fixture into the stage, under a name of its own.
fn transcript(stage: &Stage, fixture: &str, name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let to = stage.path(name);
    std::fs::copy(fixtures.join(fixture), &to).unwrap();
    to
}

fn event(path: &Path, session: &str, name: &str) -> Value {
    json!({"session_id": session, "transcript_path": path, "cwd": "/work", "hook_event_name": name})
}

/// Returns the number of stored messages of a session; 0 if it is not stored.
fn stored(stage: &Stage, session: &str) -> u64 {
    let query = format!("SELECT count(*) AS n FROM v_messages WHERE session_id = '{session}'");
    let said = stage.run(&["sql", "--json", &query]);
    said.json()[0]["n"]
        .as_u64()
        .unwrap_or_else(|| panic!("{said}"))
}

/// Returns this number of turns of Claude Code (prompts and answers), linked to each other.
fn claude_code(session: &str, turns: std::ops::Range<usize>, text: &str) -> String {
    let record = |number: usize, kind: &str, message: Value| {
        let parent = number.checked_sub(1).map(|parent| format!("u{parent}"));
        json!({"parentUuid": parent, "isSidechain": false, "cwd": "/work", "sessionId": session,
            "version": "2.1.300", "type": kind, "message": message, "uuid": format!("u{number}"),
            "timestamp": format!("2026-03-01T10:{:02}:{:02}.000Z", number / 60 % 60, number % 60)})
        .to_string()
            + "\n"
    };
    let turn = |turn: usize| {
        let ask = json!({"role": "user", "content": format!("Look at src/part{turn}.rs: {text}")});
        let call = json!({"type": "tool_use", "id": format!("c{turn}"), "name": "Edit",
            "input": {"file_path": format!("/work/src/part{turn}.rs"), "old_string": "a", "new_string": "b"}});
        let answer = json!({"id": format!("m{turn}"), "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": format!("I change port {}.", 40_000 + turn)}, call]});
        let result = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": format!("c{turn}"), "content": "done"}]});
        record(3 * turn, "user", ask)
            + &record(3 * turn + 1, "assistant", answer)
            + &record(3 * turn + 2, "user", result)
    };
    turns.map(turn).collect()
}

/// Returns this number of turns of pi (prompts and answers).
fn pi(session: &str, turns: usize) -> String {
    let time = "2026-04-01T06:00:00.000Z";
    let head =
        json!({"type": "session", "version": 3, "id": session, "timestamp": time, "cwd": "/srv"});
    let mut lines = vec![head.to_string()];
    for turn in 0..turns {
        let ask = json!({"role": "user", "content": [
            {"type": "text", "text": format!("Look at /srv/part{turn}.rs and repair it. {LONG}")}]});
        let say = json!({"role": "assistant", "provider": "anthropic", "model": "m",
            "stopReason": "stop", "content": [
                {"type": "text", "text": format!("/srv/part{turn}.rs listens on {}. {LONG}", 40_000 + turn)}]});
        for (at, message) in [(2 * turn, ask), (2 * turn + 1, say)] {
            let parent = at.checked_sub(1).map(|at| format!("e{at}"));
            lines.push(
                json!({"type": "message", "id": format!("e{at}"), "parentId": parent,
                "timestamp": time, "message": message})
                .to_string(),
            );
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the input of OpenCode's plugin with this number of turns (prompts and answers).
fn opencode(session: &str, turns: usize) -> Value {
    let message = |at: usize, role: &str, text: String| {
        let id = format!("msg_{at:04}");
        let parent = at.checked_sub(1).map(|at| format!("msg_{at:04}"));
        json!({"info": {"id": id, "sessionID": session, "role": role, "parentID": parent,
                "providerID": "acme", "modelID": "m", "finish": "stop",
                "time": {"created": 1_770_000_000_000_u64 + at as u64, "completed": 1_770_000_000_001_u64 + at as u64}},
            "parts": [{"type": "text", "text": text, "id": format!("prt_{at}"), "messageID": id}]})
    };
    let turn = |turn: usize| {
        [
            message(
                2 * turn,
                "user",
                format!("Look at /srv/part{turn}.rs and repair it. {LONG}"),
            ),
            message(
                2 * turn + 1,
                "assistant",
                format!("/srv/part{turn}.rs listens on {}. {LONG}", 40_000 + turn),
            ),
        ]
    };
    let messages: Vec<Value> = (0..turns).flat_map(turn).collect();
    json!({"info": {"id": session, "projectID": "p", "directory": "/srv", "title": "Parts",
        "time": {"created": 1_770_000_000_000_u64, "updated": 1_770_000_090_000_u64}}, "messages": messages})
}

/// A text that no later turn needs.
const LONG: &str = "And so it goes on, with many words that say little, as people do when they think aloud \
    about what they have seen and what they may do next, and whether it would be any better.";
