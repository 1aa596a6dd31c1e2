use super::file::{KEYS, MAX_BYTES};
use super::*;
use crate::compaction::RunConfig;

/// Every key, each with another value than its default.
const WHOLE: &str = r#"
policy = "target"
policy_param = { trigger = 0.7, target = 0.4, max_attempts = 3 }
max_bytes = 20_000_000
system_tokens = 4_000
model = "my-model-2031"
keep_first = 1
keep_recent = "messages:12"
room_turns = 3
keep_prompts = 2_500
max_summary_tokens = 3_000
max_rollup_tokens = 1_000
tool_output_lines = 20
scope = "token-budget"
older_loops = "skip"
recent_window = "loop"
strategy = "one-liner"
clear_tool_results = { keep = 5, at_least = 2_000, exclude_tools = ["Read"] }

[models]
"my-model" = 64_000
"#;

fn run_config(settings: &Settings) -> RunConfig {
    let request = settings.policy().unwrap().request();
    let policy = &request.policy;
    RunConfig::new(&**request.strategy(), &policy.compaction, &policy.window)
}

fn refusal(text: &str) -> String {
    Settings::from_toml(text).unwrap_err().to_string()
}

#[test]
fn each_key_sets_what_it_names() {
    let settings = Settings::from_toml(WHOLE).unwrap();
    let made = run_config(&settings);
    assert_eq!(made.max_context_tokens, 64_000);
    assert_eq!(made.max_context_bytes, Some(20_000_000));
    assert_eq!(made.system_tokens, 4_000);
    assert_eq!(made.keep_first_turns, 1);
    assert_eq!(made.keep_recent, "messages:12");
    assert_eq!(made.keep_prompts_tokens, 2_500);
    let policy = settings.policy().unwrap();
    assert_eq!(policy.compaction.room_turns, 3);
    assert_eq!(made.max_summary_tokens, 3_000);
    assert_eq!(made.max_rollup_tokens, 1_000);
    assert_eq!(made.tool_output_max_lines, 20);
    assert_eq!(made.scope, "token-budget");
    assert_eq!(made.older_loops, "skip");
    assert_eq!(made.recent_window, "loop");
    assert_eq!(made.strategy, "one-liner");
    let policy = CompactionPolicy::Target {
        trigger: 0.7,
        target: 0.4,
        max_attempts: 3,
    };
    assert_eq!(made.policy, policy);
    let clear = ClearToolResults::new().keep(5).at_least(2_000);
    let clear = Some(clear.exclude_tools(["Read"]));
    assert_eq!(settings.policy().unwrap().clear_tool_results, clear);
}

#[test]
fn an_empty_text_is_the_default_policy() {
    // But that summaries follow the window.
    let mut by_window = RunConfig::default();
    by_window.max_summary_tokens = 27_200;
    by_window.max_rollup_tokens = 27_200;
    by_window.shaping = "summary=27200 lines=50".into();
    assert_eq!(run_config(&Settings::from_toml("").unwrap()), by_window);
    let target = run_config(&Settings::from_toml("policy = 'target'").unwrap());
    assert_eq!(target.max_context_tokens, 64_000);
    assert_eq!(target.keep_recent, "user-turns:6");
}

#[test]
fn the_keys_are_those_that_serde_lists() {
    let error = toml::from_str::<Settings>("_ = 0").unwrap_err();
    let listed: Vec<&str> = error.message().split('`').skip(3).step_by(2).collect();
    assert_eq!(listed, KEYS);
}

#[test]
fn bad_texts_are_refused_with_their_line() {
    for (text, line, said) in [
        (
            "policy = 'target'\nkeep_recnt = 3",
            2,
            "did you mean `keep_recent`?",
        ),
        ("keep-recent = 3", 1, "did you mean `keep_recent`?"),
        ("zebra = 3", 1, "unknown key `zebra`; known are policy, "),
        (
            "\n[policy_param]\n\ntriggr = 1",
            4,
            "`headroom` has no parameter `triggr`; known are",
        ),
        (
            "policy = 'target'\npolicy_param.triggr = 1",
            2,
            "did you mean `trigger`?",
        ),
        ("policy_param.compact_at_pct = nan", 1, "not a JSON number"),
        (
            "policy = 'reserves'\npolicy_param.system = -1",
            2,
            "`system`: invalid value",
        ),
        (
            "policy = 'targett'",
            1,
            "`targett` is not one of headroom, reserves, target",
        ),
        ("policy = true", 1, "expected a string or a whole number"),
        ("max_tokens = '128k'", 1, "expected a nonzero u64"),
        ("\nmax_tokens = 0", 2, "expected a nonzero u64"),
        ("keep_first = -1", 1, "expected u32"),
        (
            "keep_recent = 'words:3'",
            1,
            "`words:3` is not one of N, user-turns:N",
        ),
        ("scope = 3", 1, "`3` is not one of fixed:N, token-budget"),
        ("strategy = 'summary'", 1, "one-liner, digest, summarize"),
        ("model = 4", 1, "expected a string"),
        (
            "clear_tool_results = true",
            1,
            "expected a table of `keep`, `at_least`, `exclude_tools` and `by_provider`",
        ),
        (
            "\nclear_tool_results = { keeep = 5 }",
            2,
            "unknown key `keeep`; did you mean `keep`?",
        ),
        ("[clear_tool_results]\nat_least = -1", 2, "expected u64"),
        (
            "clear_tool_results = { exclude_tools = 'Read' }",
            1,
            "expected a sequence",
        ),
        ("models = 4", 1, "expected a map"),
        ("[models]\na = 1\nb = 'many'", 3, "expected a nonzero u64"),
        (
            "[models]\na = 1\nkeep_first = 2",
            3,
            "move it above `[models]`",
        ),
        ("keep_first = 1\nkeep_first = 2", 2, "duplicate key"),
        ("keep_first = 1\nmodel = \"cut off", 2, "string"),
        ("keep_first =", 1, ""),
        ("[models", 1, ""),
        ("\0", 1, ""),
    ] {
        let refused = refusal(text);
        let place = format!("line {line}: ");
        assert!(
            refused.starts_with(&place) && refused.contains(said),
            "{text}\n{refused}"
        );
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
    let deep = format!("model = {}", "[".repeat(100_000));
    assert!(refusal(&deep).starts_with("line 1: "));
    assert!(refusal(&format!("{} = 1", "k".repeat(100_000))).contains("unknown key"));
}

#[test]
fn no_beginning_of_a_text_panics() {
    for end in (0..=WHOLE.len()).filter(|end| WHOLE.is_char_boundary(*end)) {
        if let Err(error) = Settings::from_toml(&WHOLE[..end]) {
            assert!(error.to_string().starts_with("line "), "{error}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_errors_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str| {
        let error = Settings::load(folder.path().join(name)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("{name}`")), "{text}");
        text
    };
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    assert!(refused("none").contains("cannot read"));
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    assert!(refused("folder").contains("directory"));
    write("latin1", b"keep_first = 1\nmodel = \"caf\xe9\"\n");
    assert!(refused("latin1").ends_with(", line 2: the text is not UTF-8"));
    write("huge", &vec![b'\n'; MAX_BYTES as usize + 1]);
    assert!(refused("huge").contains("larger than"));
    write("wrong", b"\n\nkeep_frist = 1");
    assert!(refused("wrong").contains(", line 3: unknown key `keep_frist`"));
    write("good", WHOLE.as_bytes());
    let loaded = Settings::load(folder.path().join("good")).unwrap();
    assert_eq!(loaded, Settings::from_toml(WHOLE).unwrap());
}

#[test]
fn what_stands_above_wins() {
    let file = Settings::from_toml(WHOLE).unwrap();
    assert_eq!(Settings::default().or(file.clone()), file);
    assert_eq!(file.clone().or(Settings::default()), file);
    let over = |text: &str| Settings::from_toml(text).unwrap().or(file.clone());
    assert_eq!(over("keep_first = 7").keep_first, Some(7));
    let clear = over("clear_tool_results = { by_provider = true }").clear_tool_results;
    assert_eq!(clear, Some(ClearToolResults::new().by_provider(true)));
    let clear = over("clear_tool_results = {}").clear_tool_results;
    assert_eq!(clear, Some(ClearToolResults::default()));
    // The window, or the model whose window it is.
    let wide = Settings::from_toml("max_tokens = 9_000").unwrap();
    assert_eq!(wide.clone().or(file.clone()).window(), Ok(Some(9_000)));
    assert_eq!(file.clone().or(wide).window(), Ok(Some(64_000)));
    let both = Settings::from_toml("max_tokens = 9_000\nmodel = 'gpt-4'").unwrap();
    assert_eq!(both.window(), Ok(Some(9_000)));
    // Parameters of one policy are not those of another.
    assert!(over("policy = 'headroom'").policy_param.is_empty());
    let same = over("policy = 'target'\npolicy_param.target = 0.2").policy_param;
    assert_eq!(same["target"].as_f64(), Some(0.2));
    assert_eq!(same["trigger"].as_f64(), Some(0.7));
}

#[test]
fn what_settings_cannot_give_is_an_error() {
    let unknown = Settings::from_toml("model = 'somebody-elses'").unwrap();
    assert!(matches!(unknown.policy(), Err(SettingsError::Model(_))));
    let asked = Settings::from_toml("strategy = 'summarize'").unwrap();
    assert!(matches!(
        asked.policy(),
        Err(SettingsError::NeedsSummarizer)
    ));
}

#[test]
fn the_guides_example_names_every_key() {
    let guide = include_str!("../../../docs/guide.md");
    let example = guide.split("\n```toml\n").nth(1).unwrap();
    let example = example.split("\n```\n").next().unwrap();
    let settings = Settings::from_toml(example).unwrap();
    assert_eq!(settings.window(), Ok(Some(64_000)));
    assert_eq!(run_config(&settings).system_tokens, 4_000);
    for key in KEYS {
        assert!(example.contains(key), "{key}");
    }
}
