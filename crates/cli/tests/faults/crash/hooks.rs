//! A hook of an agent on a full or failing disk: the agent gets exit code 0 and a complete answer or none, and the next
//! hook on a working disk records everything.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::crash::shim::{Act, Shim, calls};
use crate::crash::stage::{assert_whole, folder};
use crate::support::amount::amount;

const TURNS: usize = 20;

/// Returns a transcript of Claude Code: prompts, answers and the results of their calls.
fn transcript() -> String {
    let record = |number: usize, kind: &str, message: Value| {
        let parent = number.checked_sub(1).map(|parent| format!("u{parent}"));
        let time = format!("2026-03-01T10:{:02}:{:02}.000Z", number / 60, number % 60);
        json!({"parentUuid": parent, "isSidechain": false, "cwd": "/work", "sessionId": "s",
            "version": "2.1.300", "type": kind, "message": message, "uuid": format!("u{number}"),
            "timestamp": time})
        .to_string()
            + "\n"
    };
    let turn = |turn: usize| {
        let ask = json!({"role": "user", "content": format!("Which port has part {turn}?")});
        let call = json!({"type": "tool_use", "id": format!("c{turn}"), "name": "Edit",
            "input": {"file_path": format!("/work/part{turn}.rs"), "old_string": "a", "new_string": "b"}});
        let answer = json!({"id": format!("m{turn}"), "type": "message", "role": "assistant", "model": "m", "content": [
                {"type": "text", "text": format!("It has {}. {}", 40_000 + turn, "word ".repeat(200))}, call]});
        let result = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": format!("c{turn}"), "content": "done"}]});
        record(3 * turn, "user", ask)
            + &record(3 * turn + 1, "assistant", answer)
            + &record(3 * turn + 2, "user", result)
    };
    (0..TURNS).map(turn).collect()
}

/// Calls a hook whose home and database are in the folder.
fn hook(folder: &Path, event: &str, shim: Option<&Shim>) -> Output {
    let mut command = crate::support::command::loopstore();
    command
        .args(["hook", "claude-code", event, "--db"])
        .arg(folder.join("a.db"))
        .env("HOME", folder)
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(shim) = shim {
        shim.apply_to(&mut command);
    }
    let input = json!({"session_id": "s", "transcript_path": folder.join("s.jsonl"), "cwd": "/work",
        "hook_event_name": event, "source": "compact"});
    let mut hook = command.spawn().unwrap();
    let mut stdin = hook.stdin.take().unwrap();
    stdin.write_all(input.to_string().as_bytes()).unwrap();
    drop(stdin);
    hook.wait_with_output().unwrap()
}

/// Checks that an answer is complete, in the form that the agent expects, or absent.
fn assert_unnoticed(output: &Output, case: &str) {
    assert!(output.status.success(), "{case}: {output:?}");
    assert!(output.stderr.is_empty(), "{case}: {output:?}");
    if !output.stdout.is_empty() {
        let answer: Value = serde_json::from_slice(&output.stdout).expect(case);
        let text = &answer["hookSpecificOutput"]["additionalContext"];
        assert!(text.is_string(), "{case}: {answer}");
    }
}

#[test]
fn an_agent_notices_nothing_of_a_disk_that_is_full_or_fails() {
    let stage = folder();
    let place = |name: &str| {
        let folder = stage.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("s.jsonl"), transcript()).unwrap();
        drop(crate::support::keyed::open(folder.join("a.db")).unwrap());
        folder
    };
    let sound = place("sound");
    let shim = Shim::on(&sound);
    shim.watch(calls::CHANGES);
    let answered = hook(&sound, "SessionStart", Some(&shim));
    assert_unnoticed(&answered, "a sound disk");
    assert!(!answered.stdout.is_empty());
    let steps = shim.stop_failing();
    let tried = amount("LOOPSTORE_FAULTS", 8).min(steps);
    for trial in 0..tried {
        let at = 1 + trial * steps / tried;
        for (act, lasting) in [(Act::Full, true), (Act::Full, false), (Act::Fail, true)] {
            let case = format!("{act:?} at {at} of {steps}, lasting: {lasting}");
            let folder = place(&case.replace(' ', "-"));
            let shim = Shim::on(&folder);
            match lasting {
                true => shim.fail_from(calls::CHANGES, at, act),
                false => shim.fail_at(calls::CHANGES, at, act),
            }
            let output = hook(&folder, "SessionStart", Some(&shim));
            assert!(shim.stop_failing() >= at, "{case}: nothing was struck");
            assert_unnoticed(&output, &case);
            assert_unnoticed(&hook(&folder, "Stop", None), &case);
            let store = crate::support::keyed::open(folder.join("a.db")).unwrap();
            let said = "SELECT count(*) FROM v_messages WHERE session_id = 's'";
            let messages: usize = store.query(said).unwrap().rows[0][0].read().unwrap();
            assert_eq!(messages, 3 * TURNS, "{case}");
            assert_whole(&store, &case);
        }
    }
}
