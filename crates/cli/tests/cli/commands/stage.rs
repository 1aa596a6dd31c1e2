//! A folder with a database, in which the program is run.

use std::fmt;
use std::path::PathBuf;
use std::process::Output;

use assert_cmd::Command;
use loopstore::extend as store;
use loopstore::extend::append::append;
use loopstore::extend::session::{create_loop, create_session};
use loopstore::extend::write;
use loopstore::*;

/// Variables that move the folders of agents, and the state of their hooks, out of the home folder.
pub const AGENTS_HOMES: [&str; 9] = [
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "PI_CODING_AGENT_DIR",
    "PI_CODING_AGENT_SESSION_DIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "OPENCODE_CONFIG_DIR",
];

/// The output of a run of the program.
pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.out)?;
        if !self.err.is_empty() {
            write!(f, "--- stderr\n{}", self.err)?;
        }
        if self.code != 0 {
            write!(f, "--- exit {}", self.code)?;
        }
        Ok(())
    }
}

impl CommandOutput {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{self}"))
    }
}

pub struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    /// Creates a folder without a database.
    pub fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    /// Creates a folder with a database of three sessions.
    pub fn new() -> Self {
        let stage = Self::empty();
        let store = stage.store();
        work(&store);
        session(&store, "worker", "Another one");
        messy(&store);
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store(&self) -> SqliteStore {
        crate::support::keyed::open(self.path("loopstore.db")).unwrap()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::cargo_bin("loopstore").unwrap();
        command
            .args(args)
            .current_dir(self.folder.path())
            .env_remove("LOOPSTORE_CONFIG")
            .env("COLUMNS", "110");
        // The tests neither read nor change the configuration of the user.
        command.env("HOME", self.path("home"));
        for variable in AGENTS_HOMES {
            command.env_remove(variable);
        }
        // Commands about the agents of the user work with the user's own database, as they do for everybody.
        match args.first() {
            Some(&("install" | "hook" | "doctor")) => command.env_remove("LOOPSTORE_DB"),
            _ => command.env("LOOPSTORE_DB", "loopstore.db"),
        };
        command
    }

    /// Runs the program. Values that differ from run to run are replaced in its output.
    pub fn run(&self, args: &[&str]) -> CommandOutput {
        self.said(&self.command(args).output().unwrap())
    }

    /// Returns the output of a program, with values replaced that differ from run to run.
    pub fn said(&self, output: &Output) -> CommandOutput {
        let text = |bytes| self.scrub(std::str::from_utf8(bytes).unwrap());
        CommandOutput {
            code: output.status.code().unwrap(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Runs a line, split at spaces.
    pub fn say(&self, line: &str) -> CommandOutput {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a line in a shell, as if it had been pasted.
    pub fn paste(&self, line: &str) -> CommandOutput {
        let program = assert_cmd::cargo::cargo_bin("loopstore");
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).current_dir(self.folder.path());
        shell.env("PATH", path).env("LOOPSTORE_DB", "loopstore.db");
        self.said(&shell.output().unwrap())
    }

    /// Runs a line that must succeed, and parses its output.
    pub fn json(&self, line: &str) -> serde_json::Value {
        let said = self.say(&format!("{line} --json"));
        assert_eq!(said.code, 0, "{said}");
        said.json()
    }

    fn scrub(&self, text: &str) -> String {
        let folder = self.folder.path().to_string_lossy();
        let text = text.replace(&*folder, "FOLDER");
        let lines: Vec<String> = text.lines().map(scrub_line).collect();
        let end = if text.ends_with('\n') { "\n" } else { "" };
        lines.join("\n") + end
    }
}

fn scrub_line(line: &str) -> String {
    for name in ["file size", "log size", "message size"] {
        if line.starts_with(name) {
            return format!("{name} SIZE");
        }
    }
    let mut line = line.to_owned();
    for name in [
        "\"duration_ms\": ",
        "\"file_bytes\": ",
        "\"wal_bytes\": ",
        "\"seconds\": ",
    ] {
        if let Some(at) = line.find(name) {
            let from = at + name.len();
            let end = line[from..].find(',').map_or(line.len(), |end| from + end);
            line.replace_range(from..end, "0");
        }
    }
    scrub_words(&line)
}

/// Replaces run ids, the current time and durations.
fn scrub_words(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let before = out
            .chars()
            .last()
            .is_none_or(|c| !c.is_alphanumeric() && c != '-');
        let length = if before { variable(rest) } else { None };
        match length {
            Some((length, name)) => {
                out.push_str(name);
                rest = &rest[length..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

fn variable(text: &str) -> Option<(usize, &'static str)> {
    let fits = |pattern: &str| {
        let bytes = text.as_bytes();
        bytes.len() >= pattern.len()
            && pattern.bytes().zip(bytes).all(|(want, found)| match want {
                b'x' => found.is_ascii_hexdigit(),
                b'9' => found.is_ascii_digit(),
                b'_' => *found == b' ' || *found == b'T',
                want => want == *found,
            })
    };
    if fits("xxxxxxxx-xxxx-7xxx-xxxx-xxxxxxxxxxxx") {
        return Some((36, "RUN"));
    }
    // The short form of an id of this time.
    if fits("01xxxxxx-xxxx") {
        let kept = text
            .bytes()
            .take_while(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
        return Some((kept.count(), "RUN"));
    }
    if fits("2999-99-99_99:99:99") && !text.starts_with("2026-01-0") {
        let more = text[19..].bytes();
        let more = more.take_while(|b| b.is_ascii_digit() || matches!(b, b'.' | b'Z'));
        return Some((19 + more.count(), "NOW"));
    }
    let digits = text
        .bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .count();
    let is_duration = |unit: &str| digits > 0 && text[digits..].starts_with(unit);
    if is_duration(" ms") {
        return Some((digits + 3, "N ms"));
    }
    if is_duration(" s).") {
        return Some((digits + 2, "N s"));
    }
    None
}

fn time(ms: i64) -> Option<Time> {
    // 2026-01-05 09:00:00 UTC
    Time::from_millis(1_767_603_600_000 + ms)
}

pub fn session(store: &SqliteStore, id: &str, title: &str) -> store::SessionKey {
    let mut session = Session::new(SessionId::new(id).unwrap(), "agent");
    session.created_at = time(0);
    session.last_active_at = time(0);
    write(store, |write| {
        create_session(write, &session, Some(title.into()), None)
    })
    .unwrap()
}

pub struct LoopSpec<'a> {
    pub id: &'a str,
    pub parent: Option<(&'a str, Option<u32>)>,
    pub kind: ContinuationKind,
    pub status: LoopStatus,
}

pub fn add_loop(
    store: &SqliteStore,
    session: store::SessionKey,
    spec: LoopSpec<'_>,
    messages: Vec<AgentMessage>,
) {
    let parent = spec.parent.map(|(id, _)| LoopId::new(id).unwrap());
    let mut record = LoopRecord::new(LoopId::new(spec.id).unwrap(), parent);
    record.started_at = time(0);
    record.status = spec.status;
    record.continuation_kind = Some(spec.kind);
    record.parent_turn = spec
        .parent
        .and_then(|(_, turn)| turn)
        .map(|t| i64::from(t).into());
    write(store, |write| {
        let key = create_loop(write, session, &record)?;
        let messages = messages.into_iter().map(Into::into).collect();
        append(write, key, messages, store.counter())
    })
    .unwrap();
}

/// Returns the turns of a loop: a prompt, then calls with long results, then an answer.
pub fn turns(prompt: &str, count: u32, lines: u32) -> Vec<AgentMessage> {
    let mut messages = vec![Message::user(prompt)];
    let mut placed = Vec::new();
    for turn in 0..count {
        let call = format!("{}-{turn}", prompt.split(' ').next().unwrap());
        let text = format!("Turn {turn} of: {prompt}");
        let arguments = Json::parse(&format!("{{\"path\":\"src/{turn}.rs\"}}")).unwrap();
        let content = vec![
            Content::text(text),
            Content::tool_call(&call, "read_file", arguments),
        ];
        messages.push(answer(content));
        messages.push(result(&call, &lines_of(lines)));
        let id = TurnId::new("source", turn);
        placed.extend(
            messages
                .drain(..)
                .map(|m| at_some_time(m).in_turn(id.clone())),
        );
    }
    placed
}

fn lines_of(count: u32) -> String {
    let lines: Vec<String> = (1..=count)
        .map(|n| format!("line {n} of the file"))
        .collect();
    lines.join("\n")
}

pub fn answer(content: Vec<Content>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        ..Default::default()
    })
}

pub fn result(call: &str, text: &str) -> Message {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: call.into(),
        tool_name: "read_file".into(),
        content: vec![Content::text(text)],
        ..Default::default()
    })
}

fn at_some_time(mut message: Message) -> AgentMessage {
    let at = Some(1_767_603_660_000.into());
    match &mut message {
        Message::User(m) => m.timestamp = at,
        Message::Assistant(m) => m.timestamp = at,
        Message::ToolResult(m) => m.timestamp = at,
    }
    message.into()
}

/// Creates three loops that continue one another, and a branch of the first.
fn work(store: &SqliteStore) {
    let key = session(store, "work", "Repair the build");
    let spec = |id, parent, kind| LoopSpec {
        id,
        parent,
        kind,
        status: LoopStatus::Completed,
    };
    let ask = spec("ask", None, ContinuationKind::Initial);
    add_loop(store, key, ask, turns("ask what is broken", 3, 80));
    let tag = "other".to_owned();
    let kind = ContinuationKind::Branch { tag };
    add_loop(
        store,
        key,
        spec("try", Some(("ask", Some(0))), kind),
        turns("try it", 2, 5),
    );
    let build = spec("build", Some(("ask", None)), ContinuationKind::Default);
    add_loop(store, key, build, turns("build it", 6, 80));
    let test = spec("test", Some(("build", None)), ContinuationKind::Default);
    add_loop(store, key, test, turns("test it", 14, 80));
}

/// Creates a session whose texts do harm if they are interpreted.
fn messy(store: &SqliteStore) {
    let key = session(
        store,
        "mess'; DROP TABLE sessions;--",
        "<b>\u{1b}[31mred\u{7}</b>",
    );
    let spec = LoopSpec {
        id: "a:b\u{1b}[2J",
        parent: None,
        kind: ContinuationKind::Initial,
        status: LoopStatus::Completed,
    };
    let thinking = vec![
        Content::thinking("hm", Some("c2ln".into())),
        Content::thinking("unsigned", None),
        Content::text("I look."),
        Content::tool_call("c.1", "ls\u{1b}]0;x\u{7}", Json::null()),
        Content::tool_call("c.2", "ls", Json::parse("[1.50]").unwrap()),
    ];
    let mut picture = result("c.1", "see\u{1b}[1m");
    picture
        .content_mut()
        .push(Content::image("aGVsbG8=", "image/png"));
    let mut messages: Vec<AgentMessage> = vec![
        AgentMessage::extension("system", Json::string("Be kind.")),
        at_some_time(Message::user("one\r\u{202e}two")),
        at_some_time(Message::user("three")),
        at_some_time(answer(thinking)),
        at_some_time(picture),
        at_some_time(result("c.9", "lost")),
        at_some_time(answer(vec![Content::text("")])),
        at_some_time(answer(vec![Content::text("done")])),
    ];
    messages.push(at_some_time(Message::user("thanks")));
    add_loop(store, key, spec, messages);
    // The system prompt has the time of its append, which differs from run to run.
    write(store, |write| {
        let mut row = write.session_by_key(key)?;
        row.last_active_at = Some("2026-01-05T09:01:00.000Z".into());
        write.update_session(&row)
    })
    .unwrap();
}
