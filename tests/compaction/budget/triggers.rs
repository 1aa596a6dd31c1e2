//! The three triggers on a real session, hooks and events.

use std::sync::{Arc, Mutex};

use loopstore::compact::{CompactOutcome, NotNeeded};
use loopstore::model::*;
use loopstore::*;

use crate::budget::stage::*;
use crate::support::histories::{History, answer, result, user};

#[test]
fn the_last_user_turns_are_kept_whole() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    // A user message every third turn.
    for turn in 0..30 {
        let mut messages = Vec::new();
        if turn % 3 == 0 {
            messages.push(user(&format!("question {turn}"), turn));
        }
        messages.push(answer(&"word ".repeat(200), &[], turn));
        history.append(0, messages);
    }
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: 9_000,
                ..ContextConfig::default()
            },
            CompactionConfig::target(),
        ),
        ..CompactRequest::default()
    };
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert_eq!(report.fallback.as_deref(), Some("last_turns"));
    let mut wide = request;
    wide.policy.window.max_context_tokens = 10_000;
    undo(&store, &history.session, &Default::default()).unwrap();
    wide.policy.compaction.policy = CompactionPolicy::Target {
        trigger: 0.75,
        target: 0.60,
        max_attempts: 2,
    };
    let report = compact(&history, &wide);
    assert_eq!(report.fallback, None, "{report:?}");
    let kept = report.blocks[0].keep_recent.unwrap();
    assert_eq!((kept.first, kept.last), (12, 29));
    let row = store.query("SELECT trigger FROM v_compaction_runs ORDER BY started_at DESC LIMIT 1");
    assert_eq!(format!("{:?}", row.unwrap().rows), r#"[["target"]]"#);
}

#[test]
fn the_last_messages_are_kept_and_so_few_never_compacted() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: 16_000,
                ..ContextConfig::default()
            },
            CompactionConfig::reserves(),
        ),
        ..CompactRequest::default()
    };
    for turn in 0..3 {
        let call = format!("c{turn}");
        let long = Content::text("x".repeat(8_000));
        history.append(
            0,
            vec![
                user("go on", turn),
                answer("yes", &[&call], turn),
                result(&call, vec![long], turn),
            ],
        );
    }
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::NotNeeded, "nine messages");
    assert_eq!(report.not_needed, Some(NotNeeded::Trigger));
    work(&history, 3..4, 8_000);
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert!(report.after.tokens < 4_000);
}

#[test]
fn a_provider_that_stops_for_length_skips_the_trigger() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..30, 2_000);
    let mut request = request(1_000_000);
    assert_eq!(
        compact(&history, &request).outcome,
        CompactOutcome::NotNeeded
    );
    request.trigger = CompactTrigger::Length;
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed);
    let again = compact(&history, &request);
    assert_eq!(
        again.outcome,
        CompactOutcome::NotNeeded,
        "nothing new: {again:?}"
    );
    assert_eq!(again.not_needed, Some(NotNeeded::Unchanged));
    assert_eq!(report.not_needed, None);
    let rows = store
        .query("SELECT trigger FROM v_compaction_runs")
        .unwrap();
    assert_eq!(format!("{:?}", rows.rows), r#"[["length"]]"#);
}

#[derive(Default)]
struct Watch {
    no: bool,
    seen: Mutex<Vec<String>>,
}

impl CompactionHook for Watch {
    fn before(&self, event: &CompactionStarted) -> Decision {
        let line = format!("{} {}", event.trigger, event.messages_before);
        self.seen.lock().unwrap().push(line);
        match self.no {
            true => Decision::Veto("not now".into()),
            false => Decision::Proceed,
        }
    }

    fn after(&self, event: &CompactionEnded) {
        let line = format!("{:?} {}", event.outcome, event.messages_after);
        self.seen.lock().unwrap().push(line);
    }
}

#[test]
fn hooks_are_called_around_and_may_say_no() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let before = context(&history);
    let watch = |no| {
        let watch = Arc::new(Watch {
            no,
            ..Watch::default()
        });
        let mut request = request(1_200);
        request.policy.hooks.push(watch.clone());
        (watch, request)
    };
    let (no, vetoed) = watch(true);
    let report = compact(&history, &vetoed);
    assert_eq!(report.outcome, CompactOutcome::Vetoed);
    assert_eq!(report.error.as_deref(), Some("not now"));
    assert_eq!(*no.seen.lock().unwrap(), ["headroom 36", "Vetoed 36"]);
    assert_eq!(context(&history), before);

    let (yes, dry) = watch(false);
    compact(
        &history,
        &CompactRequest {
            dry_run: true,
            ..dry.clone()
        },
    );
    assert!(yes.seen.lock().unwrap().is_empty());
    let report = compact(&history, &dry);
    assert_eq!(
        report.outcome,
        CompactOutcome::Committed,
        "a veto is for once"
    );
    let seen = yes.seen.lock().unwrap().clone();
    assert_eq!(
        seen,
        [
            "headroom 36".to_owned(),
            format!("Committed {}", report.after.messages)
        ]
    );
    compact(&history, &dry);
    assert_eq!(yes.seen.lock().unwrap().len(), 2, "nothing fired");

    let rows = store.query(
        "SELECT outcome, json_extract(events, '$[0].type'), json_extract(events, '$[1].outcome'),
             json_extract(events, '$[0].tokensBefore') > json_extract(events, '$[1].tokensAfter')
         FROM runs ORDER BY tick",
    );
    assert_eq!(
        format!("{:?}", rows.unwrap().rows),
        r#"[["vetoed", "compactionStarted", "vetoed", 0], ["committed", "compactionStarted", "committed", 1]]"#
    );
}

/// Returns an answer whose provider counted `tokens` for its call.
fn counted(turn: u32, tokens: u64) -> AgentMessage {
    let mut message = answer(&format!("answer {turn}"), &[], turn);
    let Some(Message::Assistant(inner)) = message.message_mut() else {
        unreachable!("an answer");
    };
    let usage = format!(r#"{{"input":10,"output":30,"cache_read":{}}}"#, tokens - 40);
    inner.usage = Some(serde_json::from_str(&usage).unwrap());
    message
}

fn asked_about(history: &History<'_>, request: &CompactRequest) -> (u64, TokenSource) {
    let dry = CompactRequest {
        dry_run: true,
        ..request.clone()
    };
    let about = compact(history, &dry).asked_about;
    (about.tokens, about.source)
}

#[test]
fn what_the_provider_counted_decides_and_a_restart_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).unwrap();
    let mut history = History::new(&store, "s");
    work(&history, 0..20, 400);
    let mut request = request(10_000);
    let estimate = context(&history).tokens;
    assert_eq!(
        asked_about(&history, &request),
        (estimate, TokenSource::Estimate)
    );
    // The provider counts far more than the store, since it includes the system prompt.
    history.append(0, vec![user("and now?", 20), counted(20, 8_900)]);
    request.policy.window.system_prompt_tokens = 300;
    assert_eq!(
        asked_about(&history, &request),
        (8_600, TokenSource::Reported)
    );
    // Later messages are estimated: a prompt of 1 + 4 tokens, in a new loop.
    history.start_loop(Some(0), None);
    history.append(1, vec![user("go", 0)]);
    assert_eq!(
        asked_about(&history, &request),
        (8_605, TokenSource::Reported)
    );
    let (session, loops) = (history.session.clone(), history.loops);
    drop(store);

    let store = SqliteStore::open(&path).unwrap();
    let history = History {
        store: &store,
        session,
        loops,
        committed: 0,
        next_id: 0,
        open: Vec::new(),
    };
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert_eq!(
        (report.asked_about.tokens, report.before.tokens < 3_000),
        (8_605, true)
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["asked_about"],
        serde_json::json!({"tokens": 8_605, "source": "reported"})
    );
    let events = store.query("SELECT events FROM runs").unwrap();
    assert!(
        format!("{:?}", events.rows).contains("reported"),
        "{events:?}"
    );
    // The context has changed since, so the count does not apply to it.
    let (after, source) = asked_about(&history, &request);
    assert_eq!(
        (after, source),
        (report.after.tokens, TokenSource::Estimate)
    );
    history.append(1, vec![counted(0, 2_000)]);
    assert_eq!(
        asked_about(&history, &request),
        (1_700, TokenSource::Reported)
    );
    undo(&store, &history.session, &Default::default()).unwrap();
    assert_eq!(asked_about(&history, &request).1, TokenSource::Estimate);
}

#[test]
fn what_was_counted_beyond_a_cut_does_not_count() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    history.append(0, vec![user("one", 0), counted(0, 1_000)]);
    history.append(0, vec![user("two", 1), counted(1, 5_000)]);
    assert_eq!(asked_about(&history, &request(10_000)).0, 5_000);
    history.start_loop(Some(0), Some(0));
    history.append(1, vec![user("else", 0)]);
    assert_eq!(
        asked_about(&history, &request(10_000)).1,
        TokenSource::Estimate
    );
    // When an importer replaces the turn, its count is gone too.
    history.start_loop(Some(0), Some(1));
    assert_eq!(
        asked_about(&history, &request(10_000)),
        (5_000, TokenSource::Reported)
    );
}

#[test]
fn few_messages_that_the_window_does_not_hold_fire_reserves() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..3, 2_000);
    let mut request = request(928);
    request.policy.compaction = CompactionConfig::reserves();
    assert!(context(&history).tokens > 928);
    let report = compact(&history, &request);
    assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
    assert!(report.after.tokens <= 928);
    request.policy.window.max_context_tokens = 2_000;
    let again = compact(&history, &request);
    assert_eq!(again.not_needed, Some(NotNeeded::Trigger));
}
