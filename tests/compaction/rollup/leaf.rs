//! A leaf that its own tool compacted in the middle: the rollup is on the loop that continues.

use super::*;
use loopstore::compact::CompactTrigger;

/// Returns a transcript of two prompts whose tool compacted everything in the middle of the second loop.
fn compacted_by_its_tool(summary: &str) -> String {
    let mut lines = Vec::new();
    let mut parent = "null".to_owned();
    let mut add = |kind: &str, uuid: &str, rest: &str| {
        lines.push(format!(
            r#"{{"type":"{kind}","uuid":"{uuid}","parentUuid":{parent},"sessionId":"t","timestamp":"2026-01-01T00:00:{:02}Z",{rest}}}"#,
            lines.len()
        ));
        parent = format!("\"{uuid}\"");
    };
    let user = |text: &str| format!(r#""message":{{"role":"user","content":"{text}"}}"#);
    let answer = |id: &str, text: &str| {
        format!(
            r#""message":{{"id":"{id}","role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}"#
        )
    };
    add("user", "u1", &user(&"the first prompt ".repeat(20)));
    add("assistant", "a1", &answer("m1", "the first answer"));
    add("user", "u2", &user(&"the second prompt ".repeat(20)));
    add("assistant", "a2", &answer("m2", "before the compaction"));
    let boundary = r#""subtype":"compact_boundary","logicalParentUuid":"a2","content":"c","compactMetadata":{"trigger":"auto","preTokens":9}"#;
    add("system", "b", boundary);
    let summary = format!("{},\"isCompactSummary\":true", user(summary));
    add("user", "s", &summary);
    for turn in 0..6 {
        let text = format!("after {turn} {}", "and some more words ".repeat(20));
        add(
            "assistant",
            &format!("x{turn}"),
            &answer(&format!("n{turn}"), &text),
        );
        add(
            "user",
            &format!("y{turn}"),
            &user("go on").replace("go on", "<bash-input>ls</bash-input>"),
        );
    }
    lines.join("\n") + "\n"
}

fn imported(summary: &str) -> (SqliteStore, SessionId) {
    let store = SqliteStore::in_memory().unwrap();
    import_into(&store, summary);
    (store, SessionId::new("t").unwrap())
}

fn import_into(store: &dyn Database, summary: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jsonl");
    std::fs::write(&file, compacted_by_its_tool(summary)).unwrap();
    let options = loopstore_transcripts::ImportOptions::default();
    loopstore_transcripts::import_paths(store, &[file], &options, &mut |_| {}).unwrap();
}

/// Keeps only the last turn at the end, whatever the plan, which leaves a gap.
struct Gap;

impl BlockCompactionStrategy for Gap {
    fn name(&self) -> &str {
        "gap"
    }

    fn keep_recent(
        &self,
        slice: &LoopSlice<'_>,
        _: &CompactionConfig,
    ) -> Result<Option<Recent>, StrategyError> {
        let last = slice.layout().end() - 1;
        let turns = store::Turns { first: last, last };
        let replaced = Vec::new();
        Ok(Some(Recent { turns, replaced }))
    }

    fn keep_compacted(
        &self,
        _: &LoopSlice<'_>,
        _: store::Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(Summary::default())
    }
}

#[test]
fn a_rollup_on_the_leaf_is_gone_on_from() {
    let (store, session) = imported("THE TOOL'S SUMMARY");
    let seen = || build_context_from_session(&store, &session, &BuildOptions::default()).unwrap();
    let texts = |context: &Context| {
        let all = context.messages.iter().filter_map(AgentMessage::message);
        all.flat_map(Message::texts).collect::<Vec<_>>().join("\n")
    };
    let before = texts(&seen());
    assert!(before.starts_with("THE TOOL'S SUMMARY") && !before.contains("the first prompt"));
    assert!(before.contains("after 0") && before.contains("after 5"));
    let kinds = "SELECT kind FROM v_compaction_blocks ORDER BY generation";
    assert_eq!(query(&store, kinds), r#"[["rollup"]]"#);

    let mut gap = request();
    gap.policy.compaction.block_strategy = Some(std::sync::Arc::new(Gap));
    let refused = compact_session_loops(&store, &session, &gap).unwrap();
    assert_eq!(refused.outcome, CompactOutcome::Failed, "{refused:?}");
    assert_eq!(texts(&seen()), before);

    let report = compact_session_loops(&store, &session, &request()).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    let after = texts(&seen());
    assert!(after.contains("THE TOOL'S SUMMARY"), "{after}");
    assert!(!after.contains("the first prompt") && after.contains("after 5"));
    let aged = format!("after 0 {}", "and some more words ".repeat(20));
    assert!(before.contains(&aged) && !after.contains(&aged));
    assert_eq!(seen().tokens, report.after.tokens);
    assert_eq!(query(&store, kinds), r#"[["rollup"], ["rollup"]]"#);
    let again = compact_session_loops(&store, &session, &request()).unwrap();
    assert_eq!(again.outcome, CompactOutcome::NotNeeded);
    let problems = loopstore_verify::verify(&store).unwrap();
    assert!(problems.ok, "{:?}", problems.problems);
    undo(&store, &session, &FlipRequest::default()).unwrap();
    assert_eq!(texts(&seen()), before);
}

/// Adds a turn of a call and its result to the loop.
fn append_turn(store: &SqliteStore, session: &SessionId, at: u32) {
    let call = Content::tool_call(
        format!("c{at}"),
        "read",
        Json::parse(r#"{"path":"a.rs"}"#).unwrap(),
    );
    let answer = AssistantMessage {
        content: vec![Content::text(format!("step {at}")), call],
        ..AssistantMessage::default()
    };
    let result = ToolResultMessage {
        tool_call_id: format!("c{at}"),
        tool_name: "read".into(),
        content: vec![Content::text(format!(
            "order_{at}: {}",
            "some words ".repeat(40)
        ))],
        ..ToolResultMessage::default()
    };
    let place = || TurnId::new("l", 100 + at);
    let messages = [Message::Assistant(answer), Message::ToolResult(result)];
    let messages = messages.map(|message| AgentMessage::from(message).in_turn(place()).into());
    store::write(store, |write| {
        let leaf = write.session(session)?.and_then(|row| row.current_loop);
        append::append(
            write,
            leaf.unwrap(),
            messages.into(),
            &HeuristicTokenCounter,
        )
    })
    .unwrap();
}

fn small(window: u64) -> CompactRequest {
    let mut request = CompactRequest::default();
    request.policy.window.max_context_tokens = window;
    request.policy.compaction.room_turns = 0;
    request.policy.compaction.max_summary_tokens = 200;
    request.policy.compaction.max_rollup_tokens = 300;
    request
}

#[test]
fn the_text_on_the_leaf_stays_bounded_however_long_the_loop() {
    let (store, session) = imported("THE TOOL'S SUMMARY");
    let mut runs = 0;
    for at in 0..200 {
        append_turn(&store, &session, at);
        let report = compact_session_loops(&store, &session, &small(3_000)).unwrap();
        match report.outcome {
            CompactOutcome::NotNeeded => continue,
            CompactOutcome::Committed => runs += 1,
            _ => panic!("{report:?}"),
        }
        assert!(report.fallback.is_none(), "turn {at}: {report:?}");
        let text = "SELECT tokens FROM v_context WHERE section IN ('rollup', 'compacted')";
        let text = query(&store, text);
        let tokens: u64 = text
            .trim_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .unwrap();
        assert!(tokens <= 300, "turn {at}: {text}");
    }
    assert!((3..=40).contains(&runs), "{runs} compactions");
    let lots = "SELECT DISTINCT disposition FROM v_coverage c JOIN v_compaction_blocks b \
                USING (loop_id, generation) WHERE b.is_active ORDER BY 1";
    assert_eq!(query(&store, lots), r#"[["kept"], ["rolled_up"]]"#);
    let problems = loopstore_verify::verify(&store).unwrap();
    assert!(problems.ok, "{:?}", problems.problems);
}

#[test]
fn a_tools_own_summary_that_fills_the_window_is_made_anew() {
    let (store, session) = imported(&"invoice 4711 was paid ".repeat(400));
    let report = compact_session_loops(&store, &session, &small(1_000)).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert!(report.after.tokens <= 1_000, "{report:?}");
    let seen = build_context_from_session(&store, &session, &BuildOptions::default()).unwrap();
    let texts = seen.messages[0]
        .message()
        .unwrap()
        .texts()
        .collect::<String>();
    assert!(texts.contains("invoice 4711"), "{texts}");
    assert!(loopstore_verify::verify(&store).unwrap().ok);
}

#[test]
fn without_a_rollup_for_older_loops_the_text_gets_what_a_loop_gets() {
    let (store, session) = imported("THE TOOL'S SUMMARY");
    let mut request = small(3_000);
    request.policy.compaction.max_rollup_tokens = 0;
    request.trigger = CompactTrigger::Length;
    for at in 0..30 {
        append_turn(&store, &session, at);
    }
    let report = compact_session_loops(&store, &session, &request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    let seen = build_context_from_session(&store, &session, &BuildOptions::default()).unwrap();
    let summary = &seen.messages[0];
    assert!(
        (1..=200).contains(&HeuristicTokenCounter.message_tokens(summary)),
        "{summary:?}"
    );
}

/// Reports one request to a model for each text.
struct Asks;

impl Asks {
    fn with_request(mut summary: Summary) -> Summary {
        summary.notes.calls = 1;
        summary
    }
}

impl BlockCompactionStrategy for Asks {
    fn name(&self) -> &str {
        "asks"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: store::Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let made = DefaultBlockCompaction.keep_compacted(slice, turns, config)?;
        Ok(Self::with_request(made))
    }

    fn rollup(
        &self,
        slice: &RollupSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(Self::with_request(
            DefaultBlockCompaction.rollup(slice, config)?,
        ))
    }
}

#[test]
fn the_text_on_the_leaf_is_asked_for_and_counted_once() {
    let (store, session) = imported("THE TOOL'S SUMMARY");
    let mut asks = request();
    asks.policy.compaction.block_strategy = Some(std::sync::Arc::new(Asks));
    let report = compact_session_loops(&store, &session, &asks).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    let usage: serde_json::Value = report.usage.unwrap().read().unwrap();
    assert_eq!(usage["calls"], 1, "{usage}");
}

#[test]
fn the_tail_of_a_loop_behind_is_compacted_and_its_last_turns_are_kept() {
    let store = Store::in_memory().unwrap();
    import_into(store.database(), "THE TOOL'S SUMMARY");
    let chat = store.session("t").unwrap();
    for at in 0..60 {
        append_turn(
            SqliteStore::downcast(store.database()).unwrap(),
            chat.id(),
            at,
        );
    }
    // A prompt begins a loop after the long one.
    chat.end_loop(LoopStatus::Completed).unwrap();
    chat.append([
        Message::user("Go on, please."),
        Message::assistant("On it."),
    ])
    .unwrap();
    let before = chat.context().unwrap().tokens;
    assert!(before > 6_000, "{before}");
    let mut request = small(5_000);
    request.policy.compaction.keep_recent = KeepRecent::Turns(200);
    let report = chat.compact(&request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert_eq!(report.fallback.as_deref(), Some("last_turns"));
    let target = request.policy.target().tokens;
    assert!(
        (target * 85 / 100..=target).contains(&report.after.tokens),
        "{report:?}"
    );
    let seen = chat.context().unwrap();
    assert_eq!(seen.tokens, report.after.tokens);
    let all = seen.messages.iter().filter_map(AgentMessage::message);
    let texts = all.flat_map(Message::texts).collect::<Vec<_>>().join("\n");
    assert!(texts.contains("order_59") && texts.contains("Go on, please."));
    assert!(texts.contains("THE TOOL'S SUMMARY"), "{texts}");
    assert!(
        loopstore_verify::verify(chat.store().database())
            .unwrap()
            .ok
    );
    // With fewer turns kept, the rest of that loop becomes part of its text.
    let mut few = small(3_000);
    few.policy.compaction.keep_recent = KeepRecent::Turns(4);
    let report = chat.compact(&few).unwrap();
    assert_eq!(
        (report.outcome, report.fallback),
        (CompactOutcome::Committed, None)
    );
    assert!(report.after.tokens < 1_500, "{:?}", report.after);
}
