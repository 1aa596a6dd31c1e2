//! Compaction by a model, which is a real server on loopback.

use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::commands::stage::{CommandOutput, Stage};
use crate::support::http_server::{HttpServer, ServedResponse};
use crate::support::{hang, process};

const KEY: &str = "sk-very-secret-0123456789";

const ANSWER: &str = "## Task\nMend the parser.\n\n## Plan\n- [ ] docs\n\n\
    ## Done, decided and found\n- use 42";

fn openai() -> ServedResponse {
    let body = json!({"model": "gpt-test-1", "choices": [{"message": {"content": ANSWER}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 50}});
    ServedResponse::Answers(200, "", body.to_string().into_bytes())
}

fn anthropic() -> ServedResponse {
    let body = json!({"model": "claude-test-1", "content": [{"type": "text", "text": ANSWER}],
        "usage": {"input_tokens": 900, "output_tokens": 60}});
    ServedResponse::Answers(200, "", body.to_string().into_bytes())
}

/// Runs a line with these variables, without those that a developer may have set.
fn say(stage: &Stage, line: &str, variables: &[(&str, &str)]) -> CommandOutput {
    let mut command = stage.command(&line.split_whitespace().collect::<Vec<_>>());
    for provider in ["OPENAI", "ANTHROPIC"] {
        for name in ["API_KEY", "BASE_URL", "MODEL"] {
            command.env_remove(format!("{provider}_{name}"));
        }
    }
    command.envs(variables.iter().copied());
    stage.said(&command.output().unwrap())
}

const COMPACT: &str = "compact work --max-tokens 9000 --strategy summarize";

fn bodies(server: &HttpServer) -> Vec<Value> {
    let requests = server.requests();
    let bodies = requests.iter().map(|r| r.split_once("\r\n\r\n").unwrap().1);
    bodies
        .map(|body| serde_json::from_str(body).unwrap())
        .collect()
}

#[test]
fn a_model_writes_the_summaries() {
    let (stage, server) = (Stage::new(), HttpServer::start(vec![openai()]));
    let line = format!("{COMPACT} --base-url {} --summary-model gpt-x", server.url);
    let said = say(&stage, &line, &[("OPENAI_API_KEY", KEY)]);
    assert_snapshot!(said, @"
    Run RUN: committed
    tokens    10,012 -> 4,178 (42 %)
    messages  49 -> 28
    strategy  summarize, N ms
    model     gpt-test-1, 3 calls, 3,000 tokens in, 150 tokens out

    LOOP   BLOCK  KIND     FIRST  COMPACTED  RECENT  KEPT  TRUNCATED  SUMMARISED  DROPPED  ROLLED UP
    ask        1  earlier  -      0-2        -          0          0           7        0          0
    build      1  earlier  -      0-5        -          0          0          13        0          0
    test       1  current  0-1    2-3        4-13      15         10           4        0          0
    ");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[0].contains(&format!("authorization: Bearer {KEY}\r\n")));
    let body = &bodies(&server)[0];
    assert_eq!(
        (&body["model"], &body["temperature"]),
        (&json!("gpt-x"), &json!(0.3))
    );
    let context = stage.say("context work").out;
    assert!(
        context.contains("> ## Task\n> Mend the parser.\n"),
        "{context}"
    );
    let runs = stage.json("history");
    assert_eq!(runs[0]["strategy"], "summarize");
    for file in ["loopstore.db", "loopstore.db-wal"] {
        if let Ok(bytes) = std::fs::read(stage.path(file)) {
            assert!(
                !bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()),
                "{file}"
            );
        }
    }
    assert!(!said.to_string().contains(KEY));
}

#[test]
fn the_environment_names_server_and_model() {
    let (stage, server) = (Stage::new(), HttpServer::start(vec![anthropic()]));
    let options = "--provider anthropic --temperature none --summary-role assistant --timeout 20";
    let variables = [
        ("ANTHROPIC_API_KEY", KEY),
        ("ANTHROPIC_BASE_URL", &server.url),
        ("ANTHROPIC_MODEL", "claude-x"),
        // The model of another provider.
        ("OPENAI_MODEL", "gpt-x"),
    ];
    let said = say(&stage, &format!("{COMPACT} {options} --json"), &variables);
    let report = said.json();
    assert_eq!(report["outcome"], "committed", "{said}");
    assert_eq!(report["fallback"], Value::Null);
    assert_eq!(report["usage"]["model"], "claude-test-1");
    let requests = server.requests();
    assert!(
        requests[0].starts_with("POST /v1/messages "),
        "{}",
        requests[0]
    );
    assert!(requests[0].contains(&format!("x-api-key: {KEY}\r\n")));
    let body = &bodies(&server)[0];
    assert_eq!(
        (&body["model"], body.get("temperature")),
        (&json!("claude-x"), None)
    );
    let context = stage.json("context work");
    let summary = &context["messages"][0];
    assert_eq!(summary["role"], "assistant");
    let text = summary["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("## Plan\n* [ ] docs\n"), "{text}");
}

#[test]
fn a_server_without_keys_gets_none() {
    let (stage, server) = (Stage::new(), HttpServer::start(vec![openai()]));
    let line = format!("{COMPACT} --base-url {} --summary-model local", server.url);
    assert_eq!(say(&stage, &line, &[("OPENAI_API_KEY", "")]).code, 0);
    assert!(!server.requests()[0].contains("authorization"));
}

#[test]
fn a_model_that_refuses_is_replaced_and_named() {
    let body = json!({"error": {"type": "bad", "message": format!("{KEY} is no key")}});
    let part = ServedResponse::Answers(400, "", body.to_string().into_bytes());
    let (stage, server) = (Stage::new(), HttpServer::start(vec![part]));
    let line = format!("{COMPACT} --base-url {} --summary-model gpt-x", server.url);
    assert_snapshot!(say(&stage, &line, &[("OPENAI_API_KEY", KEY)]), @"
    Run RUN: committed
    tokens    10,012 -> 4,116 (41 %)
    messages  49 -> 28
    strategy  summarize, N ms
    model     no answer, 3 calls
    fallback  digest: it stands in for the strategy's own text
    error     the summariser answered 400: bad: [key] is no key

    LOOP   BLOCK  KIND     FIRST  COMPACTED  RECENT  KEPT  TRUNCATED  SUMMARISED  DROPPED  ROLLED UP
    ask        1  earlier  -      0-2        -          0          0           7        0          0
    build      1  earlier  -      0-5        -          0          0          13        0          0
    test       1  current  0-1    2-3        4-13      15         10           4        0          0
    ");
}

#[test]
fn a_dry_run_asks_no_model() {
    let (stage, server) = (Stage::new(), HttpServer::start(vec![openai()]));
    let line = format!(
        "{COMPACT} --base-url {} --summary-model gpt-x --dry-run",
        server.url
    );
    assert_snapshot!(say(&stage, &line, &[("OPENAI_API_KEY", KEY)]), @"
    Dry run: would be committed
    tokens    10,012 -> 4,116 (41 %)
    messages  49 -> 28
    strategy  summarize, N ms
    fallback  digest: it stands in for the strategy's own text

    LOOP   BLOCK  KIND     FIRST  COMPACTED  RECENT  KEPT  TRUNCATED  SUMMARISED  DROPPED  ROLLED UP
    ask        -  earlier  -      0-2        -          0          0           7        0          0
    build      -  earlier  -      0-5        -          0          0          13        0          0
    test       -  current  0-1    2-3        4-13      15         10           4        0          0
    --- stderr
    note: a dry run does not call the model; the digest stands in for its summaries
    ");
    assert!(server.requests().is_empty());
    assert_eq!(stage.json("history"), json!([]));
}

/// Runs `compact` with a command that writes the summaries.
fn by_command(stage: &Stage, command: &str, more: &[&str]) -> CommandOutput {
    let mut arguments: Vec<&str> = COMPACT.split_whitespace().collect();
    arguments.extend(["--command", command]);
    arguments.extend(more);
    stage.said(&stage.command(&arguments).output().unwrap())
}

#[test]
fn a_command_writes_the_summaries() {
    let stage = Stage::new();
    let said = by_command(&stage, "echo '**Task:** Mend the parser.'", &[]);
    assert_eq!(said.code, 0, "{said}");
    assert!(said.out.contains("model     command echo "), "{said}");
    let context = stage.say("context work").out;
    assert!(
        context.contains("> ## Task\n> Mend the parser.\n"),
        "{context}"
    );
    // A model whose server has stopped.
    let stage = Stage::new();
    let said = by_command(&stage, "echo no such model >&2; exit 7", &["--json"]);
    let report = said.json();
    assert_eq!(
        (&report["outcome"], &report["fallback"], &report["error"]),
        (
            &json!("committed"),
            &json!("digest"),
            &json!("the command exited with 7: no such model")
        )
    );
}

#[test]
fn a_dry_run_shows_what_a_model_would_be_sent() {
    let stage = Stage::new();
    // A dry run needs neither a model nor a key.
    let said = say(&stage, &format!("{COMPACT} --dry-run --show-prompt"), &[]);
    assert_eq!(said.code, 0, "{said}");
    let prompts = stage.json(&format!("{} --dry-run --show-prompt", COMPACT.trim_end()));
    let prompts = prompts["prompts"].as_array().unwrap().clone();
    let about: Vec<(&Value, &Value)> = prompts
        .iter()
        .map(|prompt| (&prompt["loop_id"], &prompt["turns"]))
        .collect();
    assert_eq!(
        about,
        [
            (&json!("ask"), &json!([0, 2])),
            (&json!("build"), &json!([0, 5])),
            (&json!("test"), &json!([2, 3])),
        ]
    );
    for prompt in &prompts {
        for part in ["system", "prompt"] {
            assert!(said.out.contains(prompt[part].as_str().unwrap()), "{said}");
        }
    }
    assert!(
        said.out.contains("=== turns 0-2 of ask: system\n"),
        "{said}"
    );
    // Exactly this prompt is sent.
    let file = stage.path("sent");
    let command = format!("cat >> {}; echo 'Go on.'", file.display());
    by_command(&stage, &command, &[]);
    let sent = std::fs::read_to_string(file).unwrap();
    for prompt in &prompts {
        let (system, prompt) = (prompt["system"].as_str(), prompt["prompt"].as_str());
        let whole = format!("{}\n\n{}\n", system.unwrap(), prompt.unwrap());
        assert!(sent.contains(&whole), "{sent}");
    }
    assert_eq!(stage.json("history").as_array().unwrap().len(), 1);
}

#[test]
fn an_interrupt_ends_in_the_digest() {
    let silent = ServedResponse::Silent(2 * hang::HUNG);
    let (stage, server) = (Stage::new(), HttpServer::start(vec![silent]));
    let program = assert_cmd::cargo::cargo_bin("loopstore");
    let line = format!(
        "{COMPACT} --base-url {} --summary-model gpt-x --json",
        server.url
    );
    let child = std::process::Command::new(program)
        .args(line.split_whitespace())
        .current_dir(stage.path(""))
        .env("LOOPSTORE_DB", "loopstore.db")
        .env_remove("OPENAI_API_KEY")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    hang::until("somebody asks", || !server.requests().is_empty());
    process::signal("INT", child.id());
    let said = stage.said(&child.wait_with_output().unwrap());
    let report = said.json();
    assert_eq!(
        (said.code, &report["outcome"]),
        (0, &json!("committed")),
        "{said}"
    );
    assert_eq!(
        (&report["fallback"], &report["error"]),
        (&json!("digest"), &json!("the summary was cancelled"))
    );
    assert!(said.err.starts_with("interrupted: "), "{said}");
    assert_eq!(stage.json("verify")["ok"], true);
}

#[test]
fn what_is_missing_is_said() {
    let stage = Stage::new();
    let refused = |line: &str, variables: &[(&str, &str)]| {
        let said = say(&stage, line, variables);
        assert_eq!((said.code, &*said.out), (2, ""), "{line}: {said}");
        said
    };
    assert_snapshot!(refused(COMPACT, &[]), @"
    --- stderr
    error: no model given; use --summary-model, set OPENAI_MODEL, or give --command
    --- exit 2
    ");
    let named = format!("{COMPACT} --summary-model gpt-x");
    assert_snapshot!(refused(&named, &[]), @"
    --- stderr
    error: no API key: set OPENAI_API_KEY, or give --base-url for a server that needs none
    --- exit 2
    ");
    assert_snapshot!(refused(&named, &[("OPENAI_BASE_URL", "localhost")]), @"
    --- stderr
    error: the base URL must begin with http:// or https://
    --- exit 2
    ");
    assert_snapshot!(refused("compact work --summary-model gpt-x", &[]), @"
    --- stderr
    error: --summary-model needs `--strategy summarize`
    --- exit 2
    ");
    for options in [
        "--provider nobody",
        "--timeout 0",
        "--timeout 99999999999",
        "--temperature hot",
        "--temperature 3",
        "--summary-role system",
        "--base-url https://",
    ] {
        refused(&format!("{named} {options}"), &[]);
    }
    refused(&format!("{COMPACT} --command true --provider openai"), &[]);
    refused(&format!("{COMPACT} --command true --show-prompt"), &[]);
    for options in [
        "--timeout 3",
        "--command true",
        "--dry-run --show-prompt",
        "--provider openai",
    ] {
        refused(&format!("compact work {options}"), &[]);
    }
    refused("compact work --strategy one-liner --summary-role user", &[]);
    assert_eq!(stage.json("history"), json!([]));
}
