//! Sessions written for other agents: the path and the content of the file, and the command that starts the agent with
//! it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use insta::assert_snapshot;
use loopstore::{Content, Database, Json, Message, Store};
use serde_json::{Value, json};

use crate::commands::stage::{CommandOutput, Stage, answer};

const AGENTS: [&str; 4] = ["claude-code", "codex", "pi", "opencode"];

/// Variables that set the folders of agents.
const VARIABLES: [&str; 5] = [
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "PI_CODING_AGENT_DIR",
    "PI_CODING_AGENT_SESSION_DIR",
    "XDG_DATA_HOME",
];

/// Runs a line with a home folder of its own and these variables.
fn say(stage: &Stage, line: &str, variables: &[(&str, &str)]) -> CommandOutput {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut command = stage.command(&words);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.env("HOME", stage.path("home"));
    command.envs(variables.iter().copied());
    stage.said(&command.output().unwrap())
}

/// Runs a line with `--json` and returns its texts unchanged.
fn json(stage: &Stage, line: &str, variables: &[(&str, &str)]) -> Value {
    let words: Vec<&str> = line.split_whitespace().chain(["--json"]).collect();
    let mut command = stage.command(&words);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.env("HOME", stage.path("home"));
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn store(stage: &Stage) -> Store {
    let database: Arc<dyn Database> = Arc::new(stage.store());
    Store::from(database)
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn a_session_is_written_where_its_agent_looks_for_it_and_read_again_as_the_same() {
    let stage = Stage::new();
    let original = stage.json("export work --format openai");
    for agent in AGENTS {
        let told = json(&stage, &format!("resume work --for {agent} --cwd /"), &[]);
        let (id, file) = (&told["agent_session_id"], told["file"].as_str().unwrap());
        let id = id.as_str().unwrap();
        let below = Path::new(file).strip_prefix(stage.path("home")).unwrap();
        let (folder, start) = match agent {
            "claude-code" => (".claude/projects/-", format!("claude --resume {id}")),
            "codex" => (".codex/sessions", format!("codex resume {id}")),
            "pi" => (".pi/agent/sessions/----", format!("pi --session {file}")),
            _ => (
                ".local/share/opencode/import",
                format!("opencode import {file} && opencode --session {id}"),
            ),
        };
        assert!(below.starts_with(folder), "{agent}: {below:?}");
        assert!(below.to_str().unwrap().contains(id), "{agent}: {below:?}");
        assert_eq!(told["start"], format!("cd / && {start}"), "{agent}");
        assert_eq!(told["session_id"], "work");
        assert_eq!(told["agent"], agent);
        let import = format!("--db {agent}.db import {file}");
        assert_eq!(stage.say(&import).code, 0, "{agent}");
        let again = stage.json(&format!("--db {agent}.db export {id} --format openai"));
        assert_eq!(again["messages"], original["messages"], "{agent}");
    }
}

#[test]
fn the_lines_say_where_the_file_is_what_is_missing_and_how_to_go_on() {
    let stage = Stage::new();
    let chat = store(&stage).session("sealed").unwrap();
    let item = json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAA="});
    let sealed = || Content::sealed("openai", Json::of(&item).unwrap());
    let thought = Content::thinking("Hm.", None);
    chat.append([
        Message::user("Go."),
        answer(vec![sealed(), sealed(), thought, Content::text("I do.")]),
        Message::assistant("").with_tool_call("c1", "look", json!({})),
    ])
    .unwrap();
    drop(chat);
    let said = say(&stage, "resume sealed --for claude-code --cwd /", &[]);
    assert_snapshot!(said.to_string(), @"
    Wrote 4 messages (58 tokens) for claude-code to FOLDER/home/.claude/projects/-/RUN.jsonl
    Start it with: cd / && claude --resume RUN
    It is all that was said; --max-tokens N writes the compacted context that fits N.
    1 time: thinking that the provider does not accept was left out
    2 times: state or an item of another provider was left out (reasoning of openai)
    1 time: a call has no result; `[no result recorded]` stands in for it
    ");
    let said = say(&stage, "resume sealed --for pi --cwd / -o it.jsonl", &[]);
    assert_snapshot!(said.to_string(), @"
    Wrote 4 messages (58 tokens) for pi to FOLDER/it.jsonl
    Start it with: cd / && pi --session FOLDER/it.jsonl
    It is all that was said; --max-tokens N writes the compacted context that fits N.
    2 times: state or an item of another provider was left out (reasoning of openai)
    1 time: a call has no result; `[no result recorded]` stands in for it
    ");
    let told = json(&stage, "resume sealed --for claude-code --cwd /", &[]);
    assert_eq!(
        told["left_out"],
        json!([
            {"kind": "thinking_dropped", "count": 1},
            {"kind": "foreign_dropped", "provider": "openai", "item": "reasoning", "count": 2},
        ])
    );
    assert_eq!(
        told["mended"],
        json!([{"kind": "result_added", "count": 1}])
    );
    assert_eq!(told["messages"], 4);
}

#[test]
fn nothing_that_is_there_is_ever_replaced_and_no_half_file_is_left() {
    let stage = Stage::new();
    std::fs::write(stage.path("there.jsonl"), "mine").unwrap();
    std::os::unix::fs::symlink("nowhere", stage.path("link.jsonl")).unwrap();
    for (file, why) in [
        ("there.jsonl", "something is there already"),
        ("link.jsonl", "something is there already"),
        ("loopstore.db", "it is the database"),
        ("absent/a.jsonl", "No such file"),
        ("no/such/folder/a.jsonl", "No such file"),
    ] {
        let said = stage.say(&format!("resume work --for codex -o {file}"));
        assert_eq!(said.code, 1, "{file}\n{said}");
        assert!(said.err.contains(why), "{file}\n{said}");
    }
    assert_eq!(std::fs::read(stage.path("there.jsonl")).unwrap(), b"mine");
    assert!(!stage.path("nowhere").exists());
    let parts = files(stage.path("").as_path()).into_iter();
    let parts = parts.filter(|path| path.extension().is_some_and(|end| end == "part"));
    assert_eq!(parts.count(), 0);
    // A second run writes a second file.
    say(&stage, "resume work --for claude-code", &[]);
    say(&stage, "resume work --for claude-code", &[]);
    assert_eq!(files(&stage.path("home")).len(), 2);
}

#[test]
fn a_window_gets_the_context_that_fits_it_and_the_session_stays_as_it_is() {
    let stage = Stage::new();
    let whole = stage.json("resume work --for codex -o whole.jsonl");
    let small = stage.json("resume work --for codex --max-tokens 3000 -o small.jsonl");
    let (whole, small) = (whole["tokens"].as_u64(), small["tokens"].as_u64());
    assert!(small < whole && small <= Some(3000), "{small:?} {whole:?}");
    assert_eq!(stage.json("history work"), json!([]));
    // A session that is compacted already is written compacted.
    stage.json("compact work --max-tokens 3000 --force");
    let context = stage.json("context work")["tokens"].as_u64();
    let fits = stage.json("resume work --for codex --max-tokens 100k -o fits.jsonl");
    assert_eq!(fits["tokens"].as_u64(), context);
    let again = stage.json("resume work --for codex -o again.jsonl");
    assert_eq!(again["tokens"].as_u64(), whole);
    let none = stage.say("resume work --for codex --max-tokens 5 -o none.jsonl");
    assert_eq!(none.code, 1, "{none}");
    assert!(none.err.contains("not even the last turn fits"), "{none}");
    assert!(!stage.path("none.jsonl").exists());
}

#[test]
fn only_the_chain_of_the_loop_that_is_named_is_written() {
    let stage = Stage::new();
    let told = stage.json("resume work --for pi --loop ask -o ask.jsonl");
    let chain = stage.json("export work --format openai --loop ask");
    let chain = chain["messages"].as_array().unwrap().len();
    assert_eq!(told["messages"], chain);
    assert_eq!(
        stage.say("resume work --for pi --loop zzz -o z.jsonl").code,
        1
    );
}

#[test]
fn no_name_that_a_transcript_chose_leads_the_file_elsewhere() {
    let stage = Stage::empty();
    let id = "../../../evil/$(touch pwned)";
    let chat = store(&stage).session(id).unwrap();
    chat.append([Message::user("../../up\u{202e}"), Message::assistant("No.")])
        .unwrap();
    chat.set_project("../../../etc").unwrap();
    drop(chat);
    for agent in AGENTS {
        let mut command = stage.command(&["resume", id, "--for", agent]);
        let output = command.env("HOME", stage.path("home")).output().unwrap();
        let said = stage.said(&output);
        assert_eq!(said.code, 0, "{said}");
        assert!(!said.out.contains("evil"), "{said}");
    }
    let found = files(stage.path("").as_path());
    let here = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        !name.starts_with("loopstore.db")
    };
    let elsewhere = found.iter().filter(here);
    let elsewhere: Vec<_> = elsewhere
        .filter(|path| !path.starts_with(stage.path("home")))
        .collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    assert_eq!(files(&stage.path("home")).len(), 4);
}

/// Claude Code builds the path of its folder from composed letters, and hashes a long path as its program does.
#[test]
fn a_folder_with_taken_apart_letters_or_a_long_path_has_the_name_that_claude_code_looks_for() {
    let stage = Stage::new();
    let resumed = |folder: &Path, path: &str| {
        let line = format!("resume work --for claude-code --cwd {}", folder.display());
        let told = json(&stage, &line, &[("PATH", path)]);
        let file = PathBuf::from(told["file"].as_str().unwrap());
        let name = file
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        (name.to_owned(), std::fs::read_to_string(&file).unwrap())
    };
    let apart = stage.path("cafe\u{301}");
    std::fs::create_dir(&apart).unwrap();
    let (name, text) = resumed(&apart, "");
    assert!(name.ends_with("-caf-"), "{name}");
    assert!(
        text.contains("/caf\u{e9}\"") && !text.contains("cafe\u{301}"),
        "{text}"
    );

    let long = stage.path(&format!("{0}/{0}", "x".repeat(150)));
    std::fs::create_dir_all(&long).unwrap();
    let by_program = |start: &str| {
        let bin = stage.path("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("claude"), start).unwrap();
        let _ = std::fs::remove_dir_all(stage.path("home/.claude/projects"));
        resumed(&long, bin.to_str().unwrap()).0
    };
    let (native, script) = (by_program("\x7fELF"), by_program("#!/usr/bin/env node\n"));
    assert_eq!(native[..201], script[..201]);
    assert_ne!(native, script);
    // An existing folder is used, whichever version is installed.
    assert_eq!(resumed(&long, "").0, script);
    std::fs::remove_dir_all(stage.path("home/.claude/projects")).unwrap();
    assert_eq!(resumed(&long, "").0, native);
}

#[test]
fn the_agents_own_variables_say_where_its_sessions_are() {
    let stage = Stage::new();
    let own = stage.path("own");
    let own = own.to_str().unwrap();
    for (agent, variable, value, below) in [
        ("claude-code", "CLAUDE_CONFIG_DIR", own, "own/projects/-"),
        ("codex", "CODEX_HOME", own, "own/sessions"),
        ("pi", "PI_CODING_AGENT_DIR", "~/p", "home/p/sessions/----"),
        ("pi", "PI_CODING_AGENT_SESSION_DIR", own, "own"),
        ("opencode", "XDG_DATA_HOME", own, "own/opencode/import"),
    ] {
        let line = format!("resume work --for {agent} --cwd /");
        let told = json(&stage, &line, &[(variable, value)]);
        let file = Path::new(told["file"].as_str().unwrap());
        assert!(file.is_file(), "{variable}: {file:?}");
        assert!(file.starts_with(stage.path(below)), "{variable}: {file:?}");
        // An empty variable is ignored.
        let told = json(&stage, &line, &[(variable, "")]);
        let file = Path::new(told["file"].as_str().unwrap());
        assert!(file.starts_with(stage.path("home")), "{variable}: {file:?}");
    }
}

#[test]
fn without_a_home_a_file_must_be_named() {
    let stage = Stage::new();
    let run = |args: &[&str]| {
        let mut command = stage.command(args);
        for name in VARIABLES {
            command.env_remove(name);
        }
        stage.said(&command.env_remove("HOME").output().unwrap())
    };
    let said = run(&["resume", "work", "--for", "codex"]);
    assert_eq!(said.code, 1, "{said}");
    assert!(
        said.err
            .contains("set HOME or CODEX_HOME, or name a file with -o"),
        "{said}"
    );
    let said = run(&["resume", "work", "--for", "codex", "-o", "a.jsonl"]);
    assert_eq!(said.code, 0, "{said}");
}

#[test]
fn what_is_asked_wrongly_is_told_with_what_would_be_right() {
    let stage = Stage::new();
    let said = stage.say("resume work --for emacs");
    assert_eq!(said.code, 2, "{said}");
    assert!(
        said.err.contains("claude-code, codex, pi, opencode"),
        "{said}"
    );
    assert_eq!(stage.say("resume work").code, 2);
    assert_eq!(stage.say("resume nobody --for pi").code, 1);
    let said = stage.say("resume work --for pi --cwd nowhere -o a.jsonl");
    assert_eq!(said.code, 1, "{said}");
    assert!(
        said.err.contains("nowhere is no folder to work in"),
        "{said}"
    );
    let said = stage.say("resume work --for pi --cwd loopstore.db -o a.jsonl");
    assert!(said.err.contains("no folder to work in"), "{said}");
}

#[test]
fn a_file_elsewhere_comes_with_the_line_that_brings_it_home() {
    let stage = Stage::new();
    let told = json(
        &stage,
        "resume work --for claude-code --cwd / -o a.jsonl",
        &[],
    );
    let (id, home) = (
        told["agent_session_id"].as_str().unwrap(),
        stage.path("home"),
    );
    let (file, home) = (stage.path("a.jsonl"), home.display());
    let folder = format!("{home}/.claude/projects/-");
    let start = format!(
        "cd / && mkdir -p {folder} && cp {} {folder}/{id}.jsonl && claude --resume {id}",
        file.display()
    );
    assert_eq!(told["start"], start);
}
