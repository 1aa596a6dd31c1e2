//! The command ends as its agent, and its own end is the end of the agent's input.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::Editor;
use crate::commands::stage::Stage;

/// Returns the command with an agent that is a script.
fn acp(stage: &Stage, options: &[&str], script: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("loopstore"));
    command.args(["--db", "loopstore.db", "acp"]).args(options);
    command.args(["--", "sh", "-c", script]);
    command
        .current_dir(stage.path(""))
        .env_remove("LOOPSTORE_DB");
    command
}

/// An agent that answers a session, then an update for each line.
const AGENT: &str = r#"
read -r line
echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r line
echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"ls","status":"completed"}}}'
cat > /dev/null
touch ended
"#;

fn prompt(editor: &mut Editor) {
    editor.call(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
    let prompt = json!([{"type": "text", "text": "Will it rain?"}]);
    let params = json!({"sessionId": "s", "prompt": prompt});
    let request = json!({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params});
    editor.send(&request);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut editor.output, &mut line).unwrap();
    assert!(line.contains("toolCallId"), "{line}");
}

fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn messages(stage: &Stage) -> u64 {
    let said = stage.run(&["sql", "--json", "SELECT count(*) AS n FROM v_messages"]);
    if said.code != 0 {
        0
    } else {
        said.json()[0]["n"].as_u64().unwrap()
    }
}

#[test]
fn the_exit_status_and_the_streams_are_the_agents() {
    let stage = Stage::empty();
    let output = |script: &str| {
        acp(&stage, &[], script)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let agents = output("echo out; echo err >&2; exit 37");
    let texts = (&*agents.stdout, &*agents.stderr);
    let note = "err\nloopstore acp: not recorded: 1 lines that are not JSON objects\n";
    assert_eq!(texts, (&b"out\n"[..], note.as_bytes()));
    assert_eq!(agents.status.code(), Some(37));
    assert_eq!(output("kill -TERM $$").status.signal(), Some(15));
    assert_eq!(output("kill -KILL $$").status.signal(), Some(9));
    let said = stage.say("acp -- /no/agent");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("cannot start `/no/agent`"), "{said}");
}

#[test]
fn a_killed_proxy_is_the_end_of_the_agents_input_and_what_was_complete_is_stored() {
    let stage = Stage::empty();
    let mut editor = Editor::start(acp(&stage, &[], AGENT));
    prompt(&mut editor);
    wait_for(|| messages(&stage) == 3);
    editor.child.kill().unwrap();
    editor.child.wait().unwrap();
    let ended = stage.path("ended");
    wait_for(|| ended.exists());
    // Its lease has ended with it.
    let recovered = stage.json("recover");
    assert_eq!(recovered["aborted"][0]["session_id"], "s", "{recovered}");
    assert_eq!(stage.json("verify")["ok"], true);
    let found = stage.json("search rain");
    assert_eq!(found["hits"][0]["session_id"], "s");
}

#[test]
fn a_signal_is_the_agents_to_answer() {
    let stage = Stage::empty();
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut editor = Editor::start(acp(&stage, &[], script));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut editor.output, &mut line).unwrap();
    let id = editor.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(editor.child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_database_that_cannot_be_opened_is_named_and_the_agent_works() {
    let stage = Stage::empty();
    std::fs::write(
        stage.path("loopstore.db"),
        "this is no database, whatever its name says\n".repeat(100),
    )
    .unwrap();
    let output = acp(
        &stage,
        &[],
        AGENT.replace("cat > /dev/null", "exit 4").as_str(),
    )
    .stdin(Stdio::null())
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(
        note.starts_with("loopstore acp: nothing is recorded: "),
        "{note}"
    );
    assert!(!Path::new(&stage.path("ended")).exists());
}
