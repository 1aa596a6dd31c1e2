//! Each step of the fallback.

use loopstore::compact::{BudgetUnit, CompactOutcome, NotNeeded};
use loopstore::context::{BuildError, PartSection};
use loopstore::extend as store;
use loopstore::extend::Disposition;
use loopstore::model::*;
use loopstore::*;

use crate::budget::stage::*;
use crate::support::histories::{History, answer, result, user};

fn assert_fits(
    store: &SqliteStore,
    history: &History<'_>,
    request: &CompactRequest,
    report: &CompactReport,
) {
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    let seen = context(history);
    assert_eq!(seen.tokens, report.after.tokens);
    assert_eq!(seen.bytes, report.after.bytes);
    assert!(seen.tokens <= target(request), "{report:?}");
    assert_eq!(seen.faults, []);
    let verified = loopstore_verify::verify(store).unwrap();
    assert!(verified.ok, "{:?}", verified.problems);
    let again = compact(history, request);
    assert_eq!(again.outcome, CompactOutcome::NotNeeded, "{again:?}");
}

#[test]
fn what_fits_is_given_up_by_no_step() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let request = request(1_200);
    let report = compact(&history, &request);
    assert_eq!(report.fallback, None);
    assert_fits(&store, &history, &request, &report);
}

#[test]
fn the_longest_outputs_are_pruned_first_and_no_more_than_it_takes() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..8, 400);
    work(&history, 8..9, 20_000);
    work(&history, 9..10, 400);
    let request = request(2_000);
    let report = compact(&history, &request);
    assert_eq!(report.fallback.as_deref(), Some("prune"));
    assert_eq!(report.blocks[0].coverage.get(Disposition::Truncated), 1);
    assert_fits(&store, &history, &request, &report);
    assert!(
        report.after.tokens + 40 > target(&request) * 8 / 10,
        "{report:?}"
    );
    let texts = texts(&context(&history));
    assert!(texts.contains("begin-8 x") && texts.contains("x end-8"));
    assert!(texts.contains(" bytes pruned ...]"));
    assert!(texts.contains(&format!("begin-9 {} end-9", "x".repeat(400))));
}

fn thinking(text: &str, turn: u32) -> AgentMessage {
    AgentMessage::from(Message::Assistant(AssistantMessage {
        content: vec![
            Content::thinking("t".repeat(2_000), Some("signed".into())),
            Content::text(text),
        ],
        ..AssistantMessage::default()
    }))
    .in_turn(TurnId::new("l", turn))
}

#[test]
fn thinking_before_the_last_user_message_goes_and_after_it_stays() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..6, 400);
    for turn in 6..9 {
        history.append(
            0,
            vec![
                user("go on", turn),
                thinking(&format!("thought {turn}"), turn),
            ],
        );
    }
    history.append(0, vec![answer("", &[], 9)]);
    let request = request(1_400);
    let report = compact(&history, &request);
    assert_eq!(report.fallback.as_deref(), Some("prune"));
    assert_fits(&store, &history, &request, &report);
    let coverage = &report.blocks[0].coverage;
    assert_eq!(coverage.get(Disposition::Truncated), 2);
    assert!(coverage.get(Disposition::Dropped) >= 1, "the empty answer");
    let seen = context(&history);
    let thoughts = seen.messages.iter().filter_map(AgentMessage::message);
    let thoughts = thoughts.flat_map(Message::content);
    let thoughts = thoughts.filter(|block| matches!(block, Content::Thinking(_)));
    assert_eq!(thoughts.count(), 1);
    assert!(texts(&seen).contains("thought 6"));
}

#[test]
fn the_first_turns_go_before_the_last_ones() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    history.append(
        0,
        vec![user(&"a long task ".repeat(400), 0), answer("yes", &[], 0)],
    );
    work(&history, 1..12, 400);
    let request = request(1_200);
    let report = compact(&history, &request);
    assert_eq!(report.fallback.as_deref(), Some("keep_first"));
    assert_eq!(report.blocks[0].keep_first, None);
    assert_eq!(report.blocks[0].keep_recent.unwrap().first, 8);
    assert_fits(&store, &history, &request, &report);
    // The remaining room is used for the outputs.
    assert!(texts(&context(&history)).contains(&"x".repeat(400)));
}

#[test]
fn then_only_the_last_turns_that_fit_are_kept() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..3, 100);
    for turn in 3..12 {
        let text = format!("answer {turn} {}", "word ".repeat(160));
        history.append(0, vec![user("go on", turn), answer(&text, &[], turn)]);
    }
    let request = request(1_000);
    let report = compact(&history, &request);
    assert_eq!(report.fallback.as_deref(), Some("last_turns"));
    assert_eq!(report.blocks[0].keep_recent.unwrap().first, 9);
    assert!(report.blocks[0].coverage.get(Disposition::Summarised) > 0);
    assert_fits(&store, &history, &request, &report);
}

#[test]
fn loops_before_go_into_the_rollup_when_only_the_last_turns_fit() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    for at in 0..5 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        work(&history, 0..6, 900);
    }
    for older_loops in [OlderLoops::Rollup, OlderLoops::Skip] {
        let mut request = request(900);
        request.policy.compaction.max_summary_tokens = 400;
        request.policy.compaction.older_loops = older_loops;
        let report = compact(&history, &request);
        assert_eq!(report.fallback.as_deref(), Some("last_turns"));
        assert_fits(&store, &history, &request, &report);
        let first = &context(&history).parts[0];
        match older_loops {
            OlderLoops::Rollup => assert_eq!(first.section, PartSection::Rollup),
            OlderLoops::Skip => assert_eq!(first.loop_id.as_str(), "loop-4"),
        }
        undo(&store, &history.session, &Default::default()).unwrap();
    }
}

#[test]
fn a_rollup_that_has_become_too_large_is_made_anew() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    for at in 0..4 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        work(&history, 0..6, 900);
    }
    let mut wide = request(4_000);
    wide.policy.compaction.compaction_scope = CompactionScope::FixedCount(0);
    wide.policy.compaction.max_rollup_tokens = 1_000;
    let report = compact(&history, &wide);
    assert_eq!(
        report.blocks[0].kind,
        store::BlockKind::Rollup,
        "{report:?}"
    );
    let size = context(&history).parts[0].tokens;
    assert!(size > 100, "{size}");
    let mut narrow = request(600);
    narrow.policy.compaction.compaction_scope = CompactionScope::FixedCount(0);
    let report = compact(&history, &narrow);
    assert_eq!(report.fallback.as_deref(), Some("last_turns"));
    assert_fits(&store, &history, &narrow, &report);
    assert!(context(&history).parts[0].tokens <= 255);
}

#[test]
fn in_the_end_nothing_is_said_of_what_is_not_kept() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..9, 400);
    // In flight, and as large as the target.
    history.append(0, vec![user(&"look ".repeat(672), 9)]);
    let request = request(1_000);
    let report = compact(&history, &request);
    assert_eq!(report.fallback.as_deref(), Some("last_turns"));
    let block = &report.blocks[0];
    assert_eq!(block.coverage.get(Disposition::Dropped), 27);
    assert_fits(&store, &history, &request, &report);
    assert_eq!(context(&history).messages.len(), 1);
}

#[test]
fn a_budget_that_nothing_fits_is_told_once() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..9, 400);
    history.append(0, vec![user(&"look ".repeat(1_000), 9)]);
    let request = request(1_000);
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Failed);
    let too_small = report.too_small.unwrap();
    assert!(too_small.needed > 1_250, "{too_small}");
    assert_eq!(too_small.budget, 1_000);
    assert_eq!(too_small.unit, BudgetUnit::Tokens);
    assert!(
        report
            .error
            .unwrap()
            .contains("not even the last turn fits")
    );
    let again = compact(&history, &request);
    assert_eq!(again.outcome, CompactOutcome::NotNeeded, "{again:?}");
    let run = report.run.unwrap();
    assert_eq!(again.not_needed, Some(NotNeeded::TriedBefore { run }));
    let runs = store
        .query("SELECT outcome FROM v_compaction_runs")
        .unwrap();
    assert_eq!(format!("{:?}", runs.rows), r#"[["failed"]]"#);
    let options = BuildOptions {
        budget: Some(1_000),
        ..BuildOptions::default()
    };
    let error = build_context_from_session(&store, &history.session, &options).unwrap_err();
    assert!(
        matches!(error, BuildError::NeedsCompaction { budget: 1_000, .. }),
        "{error}"
    );
}

fn picture(turn: u32, bytes: usize) -> Vec<AgentMessage> {
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(vec![turn as u8; bytes]);
    let call = format!("c{turn}");
    vec![
        answer("a picture", &[&call], turn),
        result(&call, vec![Content::image(data, "image/png")], turn),
    ]
}

#[test]
fn images_cannot_wedge_a_session() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..4, 100);
    (4..8).for_each(|turn| history.append(0, picture(turn, 30_000)));
    let mut request = request(1_000_000);
    request.policy.window.max_context_bytes = Some(100_000);
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert_eq!(report.fallback.as_deref(), Some("prune"));
    assert!(report.after.bytes <= 85_000, "{report:?}");
    let seen = context(&history);
    assert_eq!(seen.bytes, report.after.bytes);
    let texts = texts(&seen);
    assert_eq!(
        texts
            .matches("[image: image/png, 30000 bytes, blob ")
            .count(),
        3
    );
    // The last turn keeps its image while that fits.
    let images = seen.messages.iter().filter_map(AgentMessage::message);
    let images = images.flat_map(Message::content);
    assert_eq!(images.filter(|b| matches!(b, Content::Image(_))).count(), 1);
    request.policy.window.max_context_bytes = Some(20_000);
    let report = compact(&history, &request);
    assert_eq!(report.fallback.as_deref(), Some("last_turns"), "{report:?}");
    assert!(context(&history).bytes <= 17_000);
    let verified = loopstore_verify::verify(&store).unwrap();
    assert!(verified.ok, "{:?}", verified.problems);
}

#[test]
fn a_digest_says_which_images_it_stands_for() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..2, 100);
    history.append(0, picture(2, 9_000));
    work(&history, 3..9, 400);
    let mut request = request(2_000);
    request.policy.compaction.max_summary_tokens = 400;
    request.trigger = CompactTrigger::Length;
    compact(&history, &request);
    let texts = texts(&context(&history));
    let line = texts.lines().find(|line| line.starts_with("image: "));
    let line = line.unwrap_or_else(|| panic!("{texts}")).to_owned();
    let value = line.trim_start_matches("image: ").trim_end_matches(" (t2)");
    let value = value.trim_matches('"');
    assert!(value.starts_with("image/png, 9000 bytes, blob "), "{line}");
    let blob = value.rsplit(' ').next().unwrap();
    let stored = store.query("SELECT lower(hex(sha256)) FROM blobs").unwrap();
    assert_eq!(format!("{:?}", stored.rows), format!("[[\"{blob}\"]]"));
    // The next digest is made from this one.
    work(&history, 9..20, 400);
    assert_eq!(
        compact(&history, &request).outcome,
        CompactOutcome::Committed
    );
    let next = crate::budget::stage::texts(&context(&history));
    assert!(next.contains(&line), "{next}");
}

#[test]
fn a_turn_in_flight_is_never_touched() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..9, 400);
    let asked = format!("now this {}", "please ".repeat(60));
    history.append(0, vec![user(&asked, 9)]);
    let request = request(700);
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    let seen = context(&history);
    assert!(seen.tokens <= target(&request));
    assert!(texts(&seen).ends_with(&asked));
}

/// Returns a text that is far too long.
struct Verbose;

impl BlockCompactionStrategy for Verbose {
    fn name(&self) -> &str {
        "verbose"
    }

    fn keep_compacted(
        &self,
        _: &LoopSlice<'_>,
        turns: Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let text = format!("{turns:?} {}", "and so on ".repeat(300));
        Ok(Summary {
            messages: vec![Message::user(text).into()],
            turns: (turns.first..turns.end()).collect(),
            ..Summary::default()
        })
    }
}

#[test]
fn the_digest_stands_in_for_a_text_that_is_too_long() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    work(&history, 12..13, 6_000);
    let mut request = request(1_200);
    request.policy.compaction.block_strategy = Some(std::sync::Arc::new(Verbose));
    let report = compact(&history, &request);
    assert_fits(&store, &history, &request, &report);
    let error = report.error.as_deref().unwrap();
    assert!(error.contains("the text of `verbose` has 7"), "{error}");
    assert!(texts(&context(&history)).contains("[Working state"));
    let row = "SELECT strategy, error FROM v_compaction_runs";
    let row = format!("{:?}", store.query(row).unwrap().rows);
    assert!(
        row.contains("verbose") && row.contains("it may have 100"),
        "{row}"
    );

    // If the window has room for the text, it is used unchanged.
    undo(&store, &history.session, &Default::default()).unwrap();
    request.policy.window.max_context_tokens = 3_500;
    request.trigger = CompactTrigger::Length;
    let report = compact(&history, &request);
    assert_eq!((report.fallback, report.error), (None, None));
    assert!(texts(&context(&history)).contains("and so on"));
}

#[test]
fn a_text_that_is_only_too_long_is_all_that_is_given_up() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..13, 800);
    let mut request = request(1_700);
    request.policy.compaction.block_strategy = Some(std::sync::Arc::new(Verbose));
    let report = compact(&history, &request);
    assert_eq!(report.fallback.as_deref(), Some("digest"), "{report:?}");
    assert_eq!(report.blocks[0].keep_first.unwrap().last, 0);
    assert_eq!(report.blocks[0].coverage.get(Disposition::Truncated), 0);
    assert_fits(&store, &history, &request, &report);
}

#[test]
fn a_context_is_never_left_empty() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    work(&history, 0..9, 4_000);
    // The agent has begun a loop without any message.
    history.start_loop(Some(0), None);
    let mut request = request(60);
    request.policy.compaction.recent_window = RecentWindow::CurrentLoop;
    request.policy.compaction.compaction_scope = CompactionScope::FixedCount(0);
    request.policy.compaction.max_rollup_tokens = 5;
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    let seen = context(&history);
    assert!(
        texts(&seen).contains("Earlier turns were left out"),
        "{seen:?}"
    );
    assert!(seen.tokens <= target(&request));
}

/// Some sources record the blocks of an answer one by one, without turns.
#[test]
fn thinking_alone_is_never_parted_from_its_answer() {
    for (first, recent) in [(2, 4), (1, 3), (1, 4), (2, 3)] {
        let store = SqliteStore::in_memory().unwrap();
        let history = History::new(&store, "s");
        let plain = |message: Message| AgentMessage::from(message);
        let said = |content| {
            plain(Message::Assistant(AssistantMessage {
                content,
                ..AssistantMessage::default()
            }))
        };
        history.append(0, vec![plain(Message::user("look "))]);
        for at in 0..9 {
            let thinking = Content::thinking("hm", Some("signed".into()));
            history.append(0, vec![said(vec![thinking])]);
            let text = format!("step {at} {}", "word ".repeat(100));
            history.append(0, vec![said(vec![Content::text(text)])]);
        }
        let mut request = request(1_200);
        request.policy.compaction.keep_first_turns = first;
        request.policy.compaction.keep_recent = KeepRecent::Turns(recent);
        let report = compact(&history, &request);
        assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
        assert_eq!(context(&history).faults, []);
    }
}
