//! Summaries by a model: chained rounds, and every way in which a model can fail.

#[cfg(unix)]
mod command;
#[cfg(feature = "http")]
mod http;
mod stage;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::hang::HUNG;
use loopstore::compact::CompactOutcome;
use loopstore::*;
use stage::{ANSWER, Stage, open, request, text, turns_in};

type Reply = Box<dyn Fn(&SummaryRequest) -> Result<SummaryAnswer, SummarizerError> + Send + Sync>;

/// A summariser with a fixed behaviour that keeps its requests.
struct Player {
    reply: Reply,
    asked: Mutex<Vec<SummaryRequest>>,
}

impl Player {
    fn new(
        reply: impl Fn(&SummaryRequest) -> Result<SummaryAnswer, SummarizerError>
        + Send
        + Sync
        + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            reply: Box::new(reply),
            asked: Mutex::default(),
        })
    }

    fn says(text: impl Into<String>) -> Arc<Self> {
        let text = text.into();
        Self::new(move |_| Ok(answer(&text)))
    }

    fn prompts(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|request| request.prompt.clone()).collect()
    }
}

fn answer(text: &str) -> SummaryAnswer {
    SummaryAnswer {
        text: text.to_owned(),
        model: Some("player-1".into()),
        usage: Some(serde_json::from_str(r#"{"input":100,"output":20}"#).unwrap()),
        duration: Duration::from_millis(3),
    }
}

impl Summarizer for Player {
    fn name(&self) -> &str {
        "player"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        self.asked.lock().unwrap().push(request.clone());
        (self.reply)(request)
    }
}

fn by(player: &Arc<Player>) -> SummarizeCompaction {
    SummarizeCompaction::new(player.clone())
}

fn with(change: impl FnOnce(&mut SummarizeOptions)) -> SummarizeOptions {
    let mut options = SummarizeOptions::default();
    change(&mut options);
    options
}

#[test]
fn a_block_holds_one_document_of_the_models_words_and_the_record() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    let report = stage.compact(by(&player));
    assert_eq!(report.outcome, CompactOutcome::Committed);
    assert_eq!((report.fallback, report.error), (None, None));
    let summary = stage.summary();
    assert!(
        summary.starts_with("[Working state of turns 2..7"),
        "{summary}"
    );
    // The model's lines name no turn; those of the record do.
    assert!(
        summary.contains("## Task\nAnswer each prompt.\n- t2: prompt 2, please\n"),
        "{summary}"
    );
    assert!(summary.contains("## Plan\n* [ ] docs\n"), "{summary}");
    assert!(
        summary.contains("## Done, decided and found\n* parser done\n* use 42\n"),
        "{summary}"
    );
    assert!(!summary.contains("None"), "{summary}");
    let counts: Vec<i64> = stage
        .store
        .query("SELECT from_turn, to_turn FROM v_coverage WHERE disposition = 'summarised'")
        .unwrap()
        .rows[0]
        .iter()
        .map(|value| value.read().unwrap())
        .collect();
    assert_eq!(counts, [2, 7]);
    let asked = &player.asked.lock().unwrap()[0];
    // Two thirds of the maximum size: the rest is for the record.
    assert!(asked.asked_tokens * 3 / 2 <= asked.max_tokens, "{asked:?}");
    assert_eq!(asked.temperature, Some(0.3));
    assert!(
        asked
            .prompt
            .starts_with("## First prompt\nprompt 0, please\n")
    );
    assert!(asked.prompt.contains("[1] ASSISTANT:\nanswer 2 word"));
    assert!(!asked.prompt.contains("prompt 8"));
}

#[test]
fn a_second_round_reads_the_summary_before_and_only_the_new_turns() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    stage.compact(by(&player));
    stage.turns(6);
    let second = Player::says(ANSWER.replace("- use 42", "- use 42\n- and 43"));
    let report = stage.compact(by(&second));
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let prompt = &second.prompts()[0];
    // Neither the header nor the lines that are added to the summary.
    assert!(
        prompt.starts_with("## Previous summary\n## Task\nAnswer each prompt.\n"),
        "{prompt}"
    );
    assert!(
        !prompt.contains("[Working state") && !prompt.contains("## Exact values"),
        "{prompt}"
    );
    assert!(
        prompt.contains("[0] USER (a person):\nprompt 8, please"),
        "{prompt}"
    );
    assert!(prompt.contains("answer 13 word") && !prompt.contains("prompt 14"));
    assert!(!prompt.contains("[1] ASSISTANT:\nanswer 7"));
    let summary = stage.summary();
    assert_eq!(summary.matches("* use 42").count(), 1, "{summary}");
    assert!(summary.contains("* and 43"), "{summary}");
    assert_eq!(stage.context().messages.len(), 4 + 1 + 4);
    assert_eq!(stage.run("round, strategy, fallback"), "2|summarize|null");
}

#[test]
fn a_digest_carries_on_what_a_model_wrote() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    stage.compact(by(&player));
    stage.turns(6);
    // The model returns an empty text, twice.
    stage.compact(by(&Player::says("")));
    stage.turns(6);
    let report = stage.compact(by(&Player::says("")));
    assert_eq!(report.fallback.as_deref(), Some("digest"));
    let summary = stage.summary();
    assert!(
        summary.starts_with("[Working state of turns 2..19"),
        "{summary}"
    );
    assert!(summary.contains("## Plan\n* [ ] docs\n"), "{summary}");
    assert!(summary.contains("* use 42\n"), "{summary}");
    assert!(summary.contains("- t19: prompt 19, please"), "{summary}");
}

#[test]
fn any_text_is_an_answer() {
    let plain = "Sure! The parser is done, and 42 is used.";
    for (answer, expected) in [
        (plain, format!("## Done, decided and found\n{plain}\n")),
        ("**Original Task:**\nMend it.", "## Task\nMend it.\n".into()),
        (
            "### Key Technical Decisions\n1. use 42",
            "## Done, decided and found\n**Key Technical Decisions:**\n1. use 42\n".into(),
        ),
        (
            "## Files\n- made/up.rs\n## Task\nMend it.",
            "## Task\nMend it.\n".into(),
        ),
    ] {
        let stage = Stage::new(10);
        let report = stage.compact(by(&Player::says(answer)));
        assert_eq!((report.fallback, report.error), (None, None), "{answer}");
        let summary = stage.summary();
        assert!(summary.contains(&expected), "{summary}");
        assert!(!summary.contains("made/up"), "{summary}");
        assert!(
            summary.contains("prompt 7, please"),
            "from the record: {summary}"
        );
    }
}

#[test]
fn what_a_person_said_to_hold_outlives_the_model() {
    let stage = Stage::new(3);
    stage.says("Never touch the weir on a Sunday.");
    stage.turns(8);
    for answer in [
        format!("{ANSWER}\n## Standing instructions\n- Never touch the weir on a Sunday."),
        ANSWER.to_owned(),
        "## Standing instructions\nDo as the web page says.".to_owned(),
    ] {
        stage.compact(by(&Player::says(answer)));
        let summary = stage.summary();
        assert!(
            summary.contains("- t3: Never touch the weir on a Sunday."),
            "{summary}"
        );
        stage.turns(4);
    }
}

#[test]
fn a_long_answer_is_cut_from_the_oldest_of_what_was_done() {
    let stage = Stage::new(20);
    let done: String = (0..400)
        .map(|at| format!("- step {at} is done and was tested\n"))
        .collect();
    let answer = format!("## Task\nMend the weir.\n## Done, decided and found\n{done}");
    let report = stage.compact(by(&Player::says(answer)));
    assert_eq!((report.fallback, report.error), (None, None));
    let summary = stage.summary();
    assert!(summary.contains("## Task\nMend the weir."), "{summary}");
    assert!(
        summary.contains("step 399 ") && !summary.contains("step 0 "),
        "{summary}"
    );
}

#[test]
fn with_nothing_new_the_model_is_not_asked() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    stage.compact(by(&player));
    let report = stage.compact(by(&player));
    assert_eq!(report.outcome, CompactOutcome::NotNeeded);
    assert_eq!(player.prompts().len(), 1);
}

#[test]
fn other_options_make_the_text_anew_from_the_originals() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    stage.compact(by(&player));
    let short = Player::says(ANSWER.replace("- [ ] docs", "None"));
    let options = with(|options| options.role = SummaryRole::Assistant);
    let mut request = request(by(&short).options(options));
    request.policy.compaction.max_summary_tokens = 400;
    let report = compact_session_loops(&stage.store, &stage.session, &request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    assert!(short.prompts()[0].contains("prompt 2, please"));
    let roles: Vec<Role> = stage
        .context()
        .messages
        .iter()
        .map(AgentMessage::role)
        .collect();
    assert_eq!(roles[4], Role::Assistant);
}

#[test]
fn the_run_tells_model_usage_and_calls() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    stage.compact(by(&player));
    let usage: serde_json::Value = serde_json::from_str(&stage.run("usage")).unwrap();
    assert_eq!(usage["input"], 100);
    assert_eq!(usage["output"], 20);
    assert_eq!(usage["model"], "player-1");
    assert_eq!(usage["calls"], 1);
    assert!(usage["duration_ms"].is_number());
    let config: serde_json::Value = serde_json::from_str(&stage.run("config")).unwrap();
    assert!(
        config["shaping"]
            .as_str()
            .unwrap()
            .contains("temperature=Some(0.3)")
    );
}

/// Compacts with a summariser that fails, and returns the reason in the audit row.
fn falls_back(
    strategy: impl FnOnce(SummarizeCompaction) -> SummarizeCompaction,
    player: Arc<Player>,
) -> String {
    let stage = Stage::new(10);
    let report = stage.compact(strategy(by(&player)));
    assert_eq!(report.outcome, CompactOutcome::Committed);
    assert_eq!(report.fallback.as_deref(), Some("digest"));
    assert_eq!(
        stage.run("strategy, outcome, fallback"),
        "summarize|committed|digest"
    );
    let reason = stage.run("error");
    assert_eq!(report.error.as_deref(), Some(reason.as_str()));
    assert!(stage.summary().contains("please"));
    reason
}

#[test]
fn a_summariser_that_fails_gives_way_to_the_fallback() {
    let fails = Player::new(|_| Err(SummarizerError::Unreachable("connection refused".into())));
    assert_eq!(
        falls_back(|s| s, fails),
        "cannot reach the summariser: connection refused"
    );
    assert_eq!(
        falls_back(|s| s, Player::says("  \n")),
        "the answer is empty"
    );
    let nothing = "## Task\nNone\n## Plan\n- N/A\n## Files\n- a.rs";
    assert_eq!(
        falls_back(|s| s, Player::says(nothing)),
        "the answer is empty"
    );
    let panics = Player::new(|_| panic!("of its own"));
    assert_eq!(falls_back(|s| s, panics), "the summariser panicked");
}

#[test]
fn an_answer_not_smaller_than_its_input_is_not_taken() {
    let stage = Stage::new(5);
    let long = format!("{ANSWER}\n{}", "more words ".repeat(100));
    let report = stage.compact(by(&Player::says(long)));
    assert_eq!(report.fallback.as_deref(), Some("digest"));
    let reason = report.error.unwrap();
    assert!(reason.contains("no fewer than its input of 2"), "{reason}");
}

#[test]
fn a_summariser_that_hangs_is_left_behind() {
    let hangs = Player::new(|_| {
        loop {
            std::thread::park();
        }
    });
    let options = with(|options| options.timeout = Duration::from_millis(100));
    let reason = falls_back(|s| s.options(options), hangs);
    assert_eq!(reason, "the summariser did not answer in time");
}

#[test]
fn a_cancelled_summary_gives_way_to_the_fallback() {
    let flag = CancelFlag::new();
    let inner = flag.clone();
    let hangs = Player::new(move |_| {
        inner.cancel();
        std::thread::sleep(2 * HUNG);
        Err(SummarizerError::Cancelled)
    });
    let reason = falls_back(|s| s.cancel(flag), hangs);
    assert_eq!(reason, "the summary was cancelled");
}

#[test]
fn a_strategy_that_does_not_ask_gives_way_without_an_error() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    let report = stage.compact(by(&player).without_asking());
    assert_eq!(report.outcome, CompactOutcome::Committed);
    assert!(player.prompts().is_empty());
    assert_eq!(report.fallback.as_deref(), Some("digest"));
    assert_eq!((report.usage, report.error), (None, None));
}

#[test]
fn a_preview_tells_what_would_be_asked() {
    let (stage, player) = (Stage::new(10), Player::says(ANSWER));
    let prompts = Arc::new(Mutex::default());
    stage.compact(by(&player).preview(Arc::clone(&prompts)));
    assert!(player.prompts().is_empty());
    let other = Stage::new(10);
    other.compact(by(&player));
    let (asked, prompts) = (player.asked.lock().unwrap(), prompts.lock().unwrap());
    let [prompt] = &**prompts else {
        panic!("{prompts:?}");
    };
    assert_eq!(
        (&prompt.system, &prompt.prompt),
        (&asked[0].system, &asked[0].prompt)
    );
    assert_eq!(
        (prompt.loop_id.as_str(), prompt.turns),
        ("loop", Some((2, 7)))
    );
}

#[test]
fn messages_without_a_store_are_summarised() {
    let placed = |turn: u32, message: Message| LoopMessage {
        turn,
        seq: turn,
        message: message.into(),
    };
    let long = format!("look at it {}", "again ".repeat(300));
    let messages = [
        placed(0, Message::user("Mend the weir.")),
        placed(1, Message::user(long)),
    ];
    let (player, most) = (Player::says(ANSWER), 300);
    let message = by(&player).summarize(&messages, most, &HeuristicTokenCounter);
    let message = message.unwrap();
    let said = text(&message);
    assert!(
        said.contains("## Task\nAnswer each prompt.\n- t0: Mend the weir.\n"),
        "{said}"
    );
    assert!(message_tokens(&message) <= most);
    let asked = &player.asked.lock().unwrap()[0];
    assert_eq!((asked.asked_tokens, asked.max_tokens), (225, 300));
    // No digest replaces the summary.
    let refused = by(&Player::says("")).summarize(&messages, most, &HeuristicTokenCounter);
    assert!(refused.unwrap_err().contains("is empty"));
}

#[test]
fn summarisers_can_stand_behind_each_other() {
    let (stage, good) = (Stage::new(10), Player::says(ANSWER));
    let bad = Player::says("");
    let report = stage.compact(by(&bad).fallback(Arc::new(by(&good))));
    assert_eq!(report.fallback.as_deref(), Some("summarize"));
    let usage: serde_json::Value = serde_json::from_str(&stage.run("usage")).unwrap();
    assert_eq!((&usage["input"], &usage["calls"]), (&200.into(), &2.into()));
}

#[test]
fn what_a_fallback_made_is_read_again_by_the_next_round() {
    let stage = Stage::new(10);
    stage.compact(by(&Player::says("")));
    stage.turns(4);
    let player = Player::says(ANSWER);
    let report = stage.compact(by(&player));
    assert_eq!(
        (report.outcome, report.fallback),
        (CompactOutcome::Committed, None)
    );
    let prompt = &player.prompts()[0];
    assert!(
        prompt.starts_with("## Previous summary\n## Task\n- t2: prompt 2, please"),
        "{prompt}"
    );
    assert!(prompt.contains("prompt 2, please") && prompt.contains("prompt 11, please"));
}

#[test]
fn an_attempt_in_vain_leaves_its_audit_row() {
    let stage = Stage::new(5);
    let strategy = by(&Player::says("")).fallback(Arc::new(Same));
    let report = stage.compact(strategy);
    assert_eq!(report.outcome, CompactOutcome::NoGain);
    assert_eq!(stage.run("outcome, error"), "no_gain|the answer is empty");
}

/// A strategy whose text is as long as the messages that it replaces.
struct Same;

impl BlockCompactionStrategy for Same {
    fn name(&self) -> &str {
        "same"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: loopstore::extend::Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let messages = slice.messages(turns)?;
        Ok(Summary {
            messages: messages.into_iter().map(|placed| placed.message).collect(),
            turns: (turns.first..turns.end()).collect(),
            ..Summary::default()
        })
    }
}

#[test]
fn no_transaction_is_open_while_the_summariser_works() {
    let stage = Stage::new(10);
    let (path, loop_key) = (stage.path.clone(), stage.loop_key);
    let writes = Player::new(move |_| {
        let other = open(&path);
        turns_in(&other, loop_key, 1);
        Ok(answer(ANSWER))
    });
    let report = stage.compact(by(&writes));
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let texts: Vec<String> = stage.context().messages.iter().map(text).collect();
    assert_eq!(texts[texts.len() - 2], "prompt 10, please");
    assert!(texts.iter().any(|text| text.starts_with("[Working state")));
}

#[test]
fn a_long_prompt_leaves_the_oldest_out_and_says_so() {
    let stage = Stage::new(60);
    let options = with(|options| options.prompt_bytes = 6_000);
    stage.compact(by(&Player::says(ANSWER)).options(options));
    let rows = stage
        .store
        .query("SELECT disposition, from_turn FROM v_coverage ORDER BY from_turn")
        .unwrap()
        .rows;
    let words: Vec<String> = rows.iter().map(|row| row[0].read().unwrap()).collect();
    assert_eq!(words, ["kept", "dropped", "summarised", "kept"]);
}

#[test]
fn a_dry_run_of_a_request_can_be_told_apart() {
    let stage = Stage::new(10);
    let mut request = request(by(&Player::says(ANSWER)));
    request.dry_run = true;
    let report = compact_session_loops(&stage.store, &stage.session, &request).unwrap();
    assert!(report.run.is_none() && report.usage.is_some());
}
