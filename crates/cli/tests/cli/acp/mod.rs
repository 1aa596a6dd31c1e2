//! `loopstore acp`: the command between an editor and an agent.

mod adapters;
mod process;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// An editor that has started an agent.
struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Editor {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let output = BufReader::new(output);
        Self {
            child,
            input,
            output,
        }
    }

    fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input
            .as_mut()
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }

    /// Sends a request and returns its response, with the messages before it. Requests of the agent are answered: a
    /// permission is given.
    fn call(&mut self, id: u32, method: &str, params: Value) -> (Value, Vec<Value>) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut before = Vec::new();
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).unwrap();
            assert!(
                length > 0,
                "the agent ended before its answer to {method}: {before:?}"
            );
            let message: Value = serde_json::from_str(&line).unwrap();
            match message.get("method") {
                None if message["id"] == id => return (message, before),
                Some(_) if !message["id"].is_null() => {
                    let option = &message["params"]["options"][0]["optionId"];
                    let outcome = json!({"outcome": "selected", "optionId": option});
                    let result = json!({"outcome": outcome});
                    self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
                }
                _ => {}
            }
            before.push(message);
        }
    }

    /// Closes the input and returns the exit status.
    fn finish(mut self) -> std::process::ExitStatus {
        self.input = None;
        self.child.wait().unwrap()
    }
}
