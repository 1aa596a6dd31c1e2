//! Settings from a file, and windows from the names of models.

use insta::assert_snapshot;

use crate::commands::stage::Stage;

fn with_file(name: &str, text: &str) -> Stage {
    let stage = Stage::new();
    std::fs::write(stage.path(name), text).unwrap();
    stage
}

fn outcome(stage: &Stage, line: &str) -> String {
    let report = stage.json(&format!("compact work --dry-run {line}"));
    report["outcome"].as_str().unwrap().to_owned()
}

#[test]
fn a_file_stands_for_options_and_options_win() {
    let text = "max_tokens = 9_000\nkeep_first = 0\nkeep_recent = \"messages:4\"\n";
    let stage = with_file("agent.toml", text);
    assert_eq!(outcome(&stage, ""), "not_needed");
    let by_file = stage.json("compact work --dry-run --config agent.toml");
    let by_options =
        "compact work --dry-run --max-tokens 9000 --keep-first 0 --keep-recent messages:4";
    let by_options = stage.json(by_options);
    for key in ["outcome", "blocks", "tokens_after", "strategy"] {
        assert_eq!(by_file[key], by_options[key], "{key}");
    }
    assert_eq!(by_file["outcome"], "committed");
    let wide = "--config agent.toml --max-tokens 128k";
    assert_eq!(outcome(&stage, wide), "not_needed");
    let other = stage.json("compact work --dry-run --config agent.toml --keep-recent 10");
    assert_ne!(other["blocks"], by_file["blocks"]);
}

#[test]
fn the_environment_names_the_file_where_no_option_does() {
    let stage = with_file("agent.toml", "max_tokens = 9_000");
    std::fs::write(stage.path("wide.toml"), "max_tokens = 128_000").unwrap();
    let tried = |env: &str, line: &str| {
        let line = format!("compact work --dry-run --json {line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = stage.command(&words);
        let said = stage.said(&command.env("LOOPSTORE_CONFIG", env).output().unwrap());
        said.json()["outcome"].clone()
    };
    assert_eq!(tried("agent.toml", ""), "committed");
    assert_eq!(tried("", ""), "not_needed");
    assert_eq!(tried("agent.toml", "--config wide.toml"), "not_needed");
}

#[test]
fn a_policy_has_its_parameters_from_the_file() {
    let text =
        "policy = \"target\"\nmax_tokens = 20_000\n[policy_param]\ntrigger = 0.4\ntarget = 0.3";
    let stage = with_file("agent.toml", text);
    assert_eq!(outcome(&stage, "--config agent.toml"), "committed");
    let later = "--config agent.toml --policy-param trigger=0.9";
    assert_eq!(outcome(&stage, later), "not_needed");
    // The settings of another policy do not apply.
    let other = "--config agent.toml --policy headroom";
    assert_eq!(outcome(&stage, other), "not_needed");
}

#[test]
fn a_file_clears_tool_results_and_an_option_wins() {
    let text = "max_tokens = 11_500\nclear_tool_results = { keep = 1, at_least = 100 }";
    let stage = with_file("agent.toml", text);
    let report = stage.json("compact work --dry-run --config agent.toml");
    let cleared = report["cleared"]["edits"].as_array().unwrap().len();
    let kept =
        "compact work --dry-run --config agent.toml --clear-tool-results 2 --clear-at-least 1";
    let report = stage.json(kept);
    let fewer = report["cleared"]["edits"].as_array().unwrap().len();
    assert_eq!(fewer + 1, cleared);
}

#[test]
fn a_file_leaves_the_clearing_to_anthropic() {
    let text = "max_tokens = 11_500\nclear_tool_results = { keep = 1, by_provider = true }
        strategy = \"summarize\"";
    let stage = with_file("agent.toml", text);
    let digest = "compact work --dry-run --config agent.toml --strategy digest";
    let report = stage.json(digest);
    assert_eq!(report.get("cleared"), None);
    let wide = "context work --config agent.toml --max-tokens 128k";
    let request = stage.json(&format!("{wide} --format anthropic"));
    let edit = &request["context_management"]["edits"][0];
    assert_eq!(
        (&edit["keep"]["value"], &edit["trigger"]["type"]),
        (&1.into(), &"input_tokens".into())
    );
    let other = stage.json(&format!("{wide} --format openai"));
    assert_eq!(other.get("context_management"), None);
    let without = stage.json("context work --format anthropic");
    assert_eq!(without.get("context_management"), None);
}

#[test]
fn the_window_comes_from_the_name_of_the_model() {
    let stage = with_file("agent.toml", "model = \"tiny-2\"\n[models]\ntiny = 9_000\n");
    assert_eq!(outcome(&stage, "--model gpt-4-0613"), "committed");
    assert_eq!(outcome(&stage, "--model gpt-4o"), "not_needed");
    let wide = "--model gpt-4-0613 --max-tokens 128k";
    assert_eq!(outcome(&stage, wide), "not_needed");
    assert_eq!(outcome(&stage, "--config agent.toml"), "committed");
    let other = "--config agent.toml --model gpt-4o";
    assert_eq!(outcome(&stage, other), "not_needed");
    assert_snapshot!(stage.say("compact work --model tiny"), @r#"
    --- stderr
    error: the context window of the model `tiny` is not known; give it with --max-tokens N, or add `"tiny" = N` under [models] in the file of --config
    --- exit 2
    "#);
    for (window, code) in [
        ("--model gpt-4-0613", 1),
        ("--model gpt-4o", 0),
        ("--model gpt-4-0613 --max-tokens 128k", 0),
        ("--config agent.toml", 1),
        ("--config agent.toml --model gpt-4o", 0),
        ("--model tiny", 2),
    ] {
        let said = stage.say(&format!("context work {window}"));
        assert_eq!(said.code, code, "{window}\n{said}");
    }
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let stage = with_file("agent.toml", "max_tokens = 9_000\nkeep_recnt = 3\n");
    std::fs::write(stage.path("wrong.toml"), "keep_first = \"two\"").unwrap();
    std::fs::write(stage.path("cut.toml"), "model = \"gpt").unwrap();
    std::fs::write(stage.path("latin1.toml"), b"model = \"caf\xe9\"").unwrap();
    let clear = "[clear_tool_results]\nkep = 5";
    std::fs::write(stage.path("keep.toml"), clear).unwrap();
    std::fs::create_dir(stage.path("folder")).unwrap();
    assert_snapshot!(stage.say("compact work --config agent.toml"), @"
    --- stderr
    error: `agent.toml`, line 2: unknown key `keep_recnt`; did you mean `keep_recent`?
    --- exit 2
    ");
    for (file, said) in [
        ("wrong.toml", "`wrong.toml`, line 1: invalid type"),
        ("cut.toml", "`cut.toml`, line 1: "),
        (
            "keep.toml",
            "`keep.toml`, line 2: unknown key `kep`; did you mean `keep`?",
        ),
        (
            "latin1.toml",
            "`latin1.toml`, line 1: the text is not UTF-8",
        ),
        ("folder", "`folder`: Is a directory"),
        ("none", "`none`: No such file"),
    ] {
        for command in ["compact", "context"] {
            let refused = stage.say(&format!("{command} work --config {file}"));
            assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{file}");
            assert!(refused.err.contains(said), "{}", refused.err);
        }
    }
}

#[test]
fn a_summary_model_is_not_the_agents_model() {
    let stage = with_file("agent.toml", "strategy = \"summarize\"");
    let refused = stage.say("compact work --summary-model gpt-x");
    assert!(refused.err.contains("--summary-model needs"), "{refused}");
    let digest = "--config agent.toml --strategy digest --model gpt-4";
    assert_eq!(outcome(&stage, digest), "committed");
}
