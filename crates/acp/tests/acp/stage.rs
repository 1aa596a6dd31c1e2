//! An editor, and agents that follow a script.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use loopstore::model::AgentMessage;
use loopstore::{EntryQuery, Store};
use loopstore_acp::{Proxy, ProxyOptions, ProxyReport, StoreOpener};
use serde_json::{Value, json};

use crate::support::keyed;

/// A folder with a database.
pub struct Stage(tempfile::TempDir);

impl Stage {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn store(&self) -> Store {
        Store::from(keyed::open(self.path("loopstore.db")).unwrap())
    }

    pub fn opener(&self) -> StoreOpener {
        let path = self.path("loopstore.db");
        Box::new(move || {
            let store = keyed::open(path).map_err(|error| error.to_string())?;
            Ok(Store::from(store))
        })
    }

    /// Returns an agent that answers the n-th line with the n-th list of lines, and ends after the last or with its
    /// input. It keeps what it reads.
    pub fn agent(&self, steps: &[Vec<Value>]) -> Command {
        let received = self.path("received");
        let _ = std::fs::remove_file(&received);
        let mut script = String::new();
        for (number, lines) in steps.iter().enumerate() {
            let file = self.path(&format!("step-{number}"));
            let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
            std::fs::write(&file, lines.concat()).unwrap();
            script += &format!(
                "IFS= read -r line || exit 0\nprintf '%s\\n' \"$line\" >> '{}'\ncat '{}'\n",
                received.display(),
                file.display()
            );
        }
        shell(&script)
    }

    /// Returns the messages that the agent has read.
    pub fn received(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("received")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Starts a connection to an agent.
    pub fn connect(&self, agent: Command) -> Editor {
        Editor::start(agent, ProxyOptions::default(), self.opener())
    }

    /// Returns all messages of a session.
    pub fn messages(&self, session: &str) -> Vec<AgentMessage> {
        messages(&self.store(), session)
    }

    /// Checks that the database is whole.
    pub fn verify(&self) {
        let report = loopstore_verify::verify(self.store().database()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// Returns all messages of a session.
pub fn messages(store: &Store, session: &str) -> Vec<AgentMessage> {
    let session = store.session(session).unwrap();
    let entries = session.entries(&EntryQuery::whole_session()).unwrap();
    entries.into_iter().map(|entry| entry.message).collect()
}

/// Returns an agent that is a script.
pub fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// An editor that is connected to an agent.
pub struct Editor {
    input: Option<PipeWriter>,
    output: BufReader<PipeReader>,
    proxy: JoinHandle<std::io::Result<ProxyReport>>,
}

impl Editor {
    pub fn start(agent: Command, options: ProxyOptions, open: StoreOpener) -> Self {
        let (agents_input, input) = pipe().unwrap();
        let (output, agents_output) = pipe().unwrap();
        let proxy = Proxy::new(agent, options);
        let proxy = std::thread::spawn(move || proxy.run(agents_input, agents_output, open));
        Self {
            input: Some(input),
            output: BufReader::new(output),
            proxy,
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request and returns its response, with the messages before it.
    pub fn call(&mut self, id: u32, method: &str, params: Value) -> (Value, Vec<Value>) {
        self.send(&request(id, method, params));
        let mut before = Vec::new();
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(message);
        }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    pub fn receive(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Reads the output to its end.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut self.output, &mut bytes).unwrap();
        bytes
    }

    /// Returns the agent's input, to be written by another thread.
    pub fn input_for_thread(&mut self) -> PipeWriter {
        self.input.take().unwrap()
    }

    /// Closes the stream of the agent's output, and waits for the agent's end.
    pub fn hang_up(self) -> ProxyReport {
        let Self {
            input,
            output,
            proxy,
        } = self;
        drop(output);
        let report = proxy.join().unwrap().unwrap();
        drop(input);
        report
    }

    /// Closes the agent's input.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Closes the agent's input and waits for its end.
    pub fn finish(mut self) -> ProxyReport {
        self.close();
        self.rest();
        self.proxy.join().unwrap().unwrap()
    }
}

pub fn request(id: u32, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub fn result(id: impl Into<Value>, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "result": result})
}

pub fn update(session: &str, update: Value) -> Value {
    let params = json!({"sessionId": session, "update": update});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
}

pub fn chunk(session: &str, kind: &str, text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    update(session, json!({"sessionUpdate": kind, "content": content}))
}

pub fn text_prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Returns the result of `initialize` by an agent with these capabilities.
pub fn initialized(capabilities: Value) -> Value {
    let info = json!({"name": "scripted", "version": "1.2"});
    let result =
        json!({"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info});
    self::result(0, result)
}

pub fn initialize(folder: &Path) -> (Value, Value) {
    let new = json!({"cwd": folder, "mcpServers": []});
    (json!({"protocolVersion": 1, "clientCapabilities": {}}), new)
}
