//! Old tool results are cleared before anything is compacted, and nothing is compacted if that is enough.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loopstore::compact::{CompactOutcome, NotNeeded, TokenSource};
use loopstore::provider::{self, Form};
use loopstore::*;
use serde_json::json;

use crate::support::requests::is_valid;

/// A model that counts its calls.
struct Counting(Arc<AtomicUsize>);

impl Summarizer for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let text = "## Task\nWatch the weather.\n\n## Plan\nStay inside: it rains.".to_owned();
        Ok(SummaryAnswer {
            text,
            ..SummaryAnswer::default()
        })
    }
}

/// A session with a window of 8,000 tokens, which is compacted at 6,800.
struct Weather {
    store: Arc<SqliteStore>,
    chat: SessionHandle,
    calls: Arc<AtomicUsize>,
}

impl Weather {
    fn new(clear: ClearToolResults) -> Self {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let policy = Policy::new(8_000)
            .keep_first(1)
            .keep_recent(KeepRecent::Turns(3))
            .summarizer(Counting(calls.clone()))
            .clear_tool_results(clear);
        let shared = Store::from(Arc::clone(&store) as Arc<dyn Database>);
        let chat = shared.session("weather").unwrap().with_policy(policy);
        chat.append([Message::user("How is the weather?")]).unwrap();
        Self { store, chat, calls }
    }

    /// Appends a call for each hour with a result of 1,000 tokens; the tools take turns.
    fn watch(&self, hours: Range<u32>) {
        for hour in hours {
            let id = format!("c{hour}");
            let tool = ["radar", "gauge"][hour as usize % 2];
            let call = Message::assistant(format!("I look at hour {hour}."));
            let call = call.with_tool_call(&id, tool, Json::parse("{}").unwrap());
            let text = format!("rain-{hour} {}", "wet ".repeat(1_000));
            let result = Message::tool_result(&id, text);
            self.chat.append([call, result]).unwrap();
        }
        self.chat.append([Message::assistant("It rains.")]).unwrap();
    }

    /// Appends prompts of so many words, and an answer to each.
    fn talk(&self, words: usize) {
        for step in 0..8 {
            let prompt = Message::user(format!("step {step} {}", "word ".repeat(words)));
            let answer = Message::assistant("Noted.");
            self.chat.append([prompt, answer]).unwrap();
        }
    }

    fn request(&self) -> CompactRequest {
        self.chat.policy().request()
    }

    /// Returns the hours whose results the context shows.
    fn shown(&self) -> Vec<u32> {
        let text = self.texts();
        let is_shown = |hour: &u32| text.contains(&format!("rain-{hour} wet"));
        (0..40).filter(is_shown).collect()
    }

    fn texts(&self) -> String {
        let messages = self.chat.context().unwrap().messages;
        let inner = messages.iter().filter_map(AgentMessage::message);
        inner
            .flat_map(Message::texts)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Returns the bytes of the context.
    fn bytes(&self) -> String {
        serde_json::to_string(&self.chat.context().unwrap().messages).unwrap()
    }

    /// Returns the runs, oldest first.
    fn runs(&self) -> String {
        let sql =
            "SELECT strategy, trigger, outcome FROM v_compaction_runs ORDER BY started_at, round";
        let rows = self.store.query(sql).unwrap().rows;
        serde_json::to_string(&rows).unwrap()
    }

    fn model_calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

fn clear() -> ClearToolResults {
    ClearToolResults::new().keep(2)
}

#[test]
fn a_provider_that_clears_gets_the_setting_and_no_run_is_written() {
    let weather = Weather::new(
        clear()
            .at_least(500)
            .exclude_tools(["gauge"])
            .by_provider(true),
    );
    weather.watch(0..3);
    let ready = weather.chat.prepare().unwrap();
    let request = ready.to(Form::Anthropic).unwrap();
    let policy = weather.chat.policy();
    assert_eq!(
        request["context_management"],
        json!({"edits": [{
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": policy.target().tokens / 2},
            "keep": {"type": "tool_uses", "value": 2},
            "clear_at_least": {"type": "input_tokens", "value": 500},
            "exclude_tools": ["gauge"],
        }]})
    );
    let context = weather.chat.context().unwrap();
    let built = provider::ProviderRequest::of_context(Form::Anthropic, &context);
    assert_eq!(serde_json::to_value(built.unwrap()).unwrap(), request);
    for form in [Form::OpenAiChat, Form::OpenAiResponses] {
        assert_eq!(ready.to(form).unwrap().get("context_management"), None);
    }
    // A kept context follows the policy.
    let shared = Store::from(Arc::clone(&weather.store) as Arc<dyn Database>);
    let own = shared
        .session("weather")
        .unwrap()
        .with_policy(Policy::new(200_000));
    let plain = own.prepare().unwrap().to(Form::Anthropic).unwrap();
    assert_eq!(plain.get("context_management"), None);
    weather.watch(3..8);
    let ready = weather.chat.prepare().unwrap();
    assert_eq!(
        (ready.cleared.is_none(), ready.not_cleared.is_none()),
        (true, true)
    );
    assert!(!weather.runs().contains("clear"));
}

#[test]
fn the_oldest_results_are_cleared_and_the_newest_stay() {
    let weather = Weather::new(clear());
    weather.watch(0..5);
    let ready = weather.chat.prepare().unwrap();
    assert_eq!((ready.cleared, ready.not_cleared), (None, None));
    weather.watch(5..8);
    let before = weather.bytes();
    let ready = weather.chat.prepare().unwrap();
    let cleared = ready.cleared.clone().unwrap();
    assert_eq!(cleared.edits.len(), 6);
    assert!(cleared.edits.is_sorted_by_key(|edit| edit.seq));
    assert_eq!(weather.shown(), [6, 7]);
    assert_eq!(weather.texts().matches("[cleared: ").count(), 6);
    assert_eq!(cleared.tokens_after, ready.context.tokens);
    assert_eq!(cleared.tokens_before, ready.asked_about.tokens);
    // It was enough: nothing is compacted, and no model is called.
    assert!(ready.compactions.is_empty() && !ready.was_compacted());
    assert_eq!(weather.model_calls(), 0);
    assert_eq!(weather.runs(), r#"[["clear","edit","committed"]]"#);
    is_valid(ready.messages()).unwrap();
    assert!(ready.context.faults.is_empty());
    // Nothing is new, so nothing is written.
    let again = weather.chat.prepare().unwrap();
    assert_eq!((again.cleared, again.not_cleared), (None, None));
    assert_eq!(again.context.messages, ready.context.messages);
    assert_eq!(weather.runs(), r#"[["clear","edit","committed"]]"#);
    let undone = weather.chat.undo().unwrap();
    assert_eq!(Some(undone.run_id), cleared.run_id);
    assert_eq!(weather.bytes(), before);
}

#[test]
fn a_later_clearing_clears_what_is_new_and_counts_the_rest() {
    let weather = Weather::new(clear());
    weather.watch(0..8);
    weather.chat.prepare().unwrap();
    weather.watch(8..13);
    let cleared = weather.chat.prepare().unwrap().cleared.unwrap();
    assert_eq!((cleared.edits.len(), cleared.skipped.len()), (5, 6));
    let is_counted = |skipped: &SkippedMessage| skipped.reason == "edited already";
    assert!(cleared.skipped.iter().all(is_counted));
    assert_eq!(weather.shown(), [11, 12]);
    assert_eq!(weather.model_calls(), 0);
}

#[test]
fn results_of_excluded_tools_stay() {
    let weather = Weather::new(clear().exclude_tools(["radar"]));
    weather.watch(0..8);
    let cleared = weather.chat.prepare().unwrap().cleared.unwrap();
    assert_eq!(weather.shown(), [0, 2, 4, 6, 7]);
    let reasons: Vec<_> = cleared.skipped.iter().map(|one| one.reason).collect();
    assert_eq!(reasons, ["of an excluded tool"; 3]);
}

#[test]
fn a_clearing_that_frees_too_little_writes_nothing() {
    let weather = Weather::new(clear().at_least(100_000));
    weather.watch(0..8);
    let ready = weather.chat.prepare().unwrap();
    assert_eq!(ready.cleared, None);
    let why = ready.not_cleared.unwrap();
    assert!(why.contains("at least 100000 are required"), "{why}");
    assert_eq!(weather.runs(), r#"[["summarize","headroom","committed"]]"#);
    assert_eq!(weather.texts().matches("[cleared: ").count(), 0);
    assert!(weather.model_calls() > 0);
    // Nothing to clear is a reason too, and no error.
    let weather = Weather::new(clear());
    let long = Message::user("word ".repeat(6_000));
    weather
        .chat
        .append([long, Message::assistant("Yes.")])
        .unwrap();
    weather.watch(0..2);
    let report = weather.chat.compact(&weather.request()).unwrap();
    let why = report.not_cleared.unwrap();
    assert!(why.starts_with("nothing to edit"), "{why}");
}

#[test]
fn what_clearing_cannot_free_is_compacted_and_both_are_undone() {
    let weather = Weather::new(clear());
    weather.talk(700);
    weather.watch(0..6);
    let before = weather.bytes();
    let ready = weather.chat.prepare().unwrap();
    let cleared = ready.cleared.clone().unwrap();
    assert!(ready.was_compacted(), "{:?}", ready.compactions);
    let compaction = &ready.compactions[0];
    assert_eq!(compaction.before.tokens, cleared.tokens_after);
    assert_eq!(compaction.asked_about.tokens, cleared.tokens_before);
    assert!(weather.model_calls() > 0);
    let runs = r#"[["clear","edit","committed"],["summarize","headroom","committed"]]"#;
    assert_eq!(weather.runs(), runs);
    is_valid(ready.messages()).unwrap();
    assert!(ready.context.tokens <= 6_800);
    let json = serde_json::to_value(compaction).unwrap();
    assert_eq!(json["cleared"]["run_id"], json!(cleared.run_id));
    assert_eq!(json.get("not_cleared"), None);
    weather.chat.undo().unwrap();
    assert_eq!(weather.texts().matches("[cleared: ").count(), 4);
    weather.chat.undo().unwrap();
    assert_eq!(weather.bytes(), before);
}

#[test]
fn results_behind_a_summary_are_no_targets() {
    let weather = Weather::new(clear().at_least(100_000));
    weather.watch(0..8);
    assert!(weather.chat.prepare().unwrap().was_compacted());
    let shown = weather.shown();
    let later = weather.chat.policy().clone().clear_tool_results(clear());
    let chat = weather.chat.with_policy(later);
    let weather = Weather { chat, ..weather };
    weather.watch(8..14);
    let cleared = weather.chat.prepare().unwrap().cleared.unwrap();
    assert_eq!(cleared.edits.len(), shown.len() + 4);
    assert_eq!(weather.shown(), [12, 13]);
}

#[test]
fn pinned_results_and_the_turn_in_flight_are_skipped_and_counted() {
    let weather = Weather::new(clear().keep(0));
    weather.watch(0..8);
    weather.chat.pin(PinRef::message("loop-1", 0, 2)).unwrap();
    let call = Message::assistant("One more.");
    let call = call.with_tool_call("last", "radar", Json::parse("{}").unwrap());
    let call = call.with_tool_call("open", "gauge", Json::parse("{}").unwrap());
    let result = Message::tool_result("last", "rain-20 wet ".repeat(100));
    weather.chat.append([call, result]).unwrap();
    let cleared = weather.chat.prepare().unwrap().cleared.unwrap();
    let mut reasons: Vec<_> = cleared.skipped.iter().map(|one| one.reason).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["in flight", "pinned"]);
    assert_eq!(weather.shown(), [0, 20]);
}

#[test]
fn a_dry_run_shows_what_it_would_clear_and_writes_nothing() {
    let weather = Weather::new(clear());
    weather.watch(0..8);
    let before = weather.bytes();
    let mut request = weather.request();
    request.dry_run = true;
    let report = weather.chat.compact(&request).unwrap();
    let cleared = report.cleared.unwrap();
    assert_eq!((cleared.run_id, cleared.edits.len()), (None, 6));
    assert_eq!(report.outcome, CompactOutcome::NotNeeded);
    assert_eq!(report.not_needed, Some(NotNeeded::Trigger));
    assert_eq!(report.after.tokens, cleared.tokens_after);
    assert_eq!((weather.bytes(), weather.runs()), (before, "[]".into()));
}

#[test]
fn a_compaction_that_somebody_requires_clears_nothing() {
    for trigger in [CompactTrigger::Force, CompactTrigger::Length] {
        let weather = Weather::new(clear());
        weather.watch(0..8);
        let request = CompactRequest {
            trigger,
            ..weather.request()
        };
        let report = weather.chat.compact(&request).unwrap();
        assert_eq!((report.cleared, report.not_cleared), (None, None));
        assert_eq!(report.outcome, CompactOutcome::Committed);
    }
}

#[test]
fn the_count_of_the_provider_decides_whether_clearing_is_enough() {
    // By the store's own count, nothing has to be done in either case.
    for (hours, compacted) in [(4, false), (3, true)] {
        let weather = Weather::new(clear().at_least(0));
        weather.talk(200);
        weather.watch(0..hours);
        let answer = json!({"role": "assistant", "content": [{"type": "text", "text": "Wet."}],
            "usage": {"input_tokens": 7_890, "output_tokens": 10}});
        let answer = provider::read(Form::Anthropic, &answer).unwrap();
        weather.chat.append(answer).unwrap();
        let ready = weather.chat.prepare().unwrap();
        assert_eq!(ready.asked_about.source, TokenSource::Reported);
        assert_eq!(ready.asked_about.tokens, 7_900);
        assert!(ready.cleared.is_some());
        assert_eq!(ready.was_compacted(), compacted, "{:?}", ready.compactions);
    }
}

#[test]
fn two_handles_clear_the_same_results_once() {
    let weather = Weather::new(clear());
    weather.watch(0..8);
    let reports: Vec<_> = std::thread::scope(|scope| {
        let handles = [(); 4].map(|()| scope.spawn(|| weather.chat.prepare().unwrap()));
        handles.map(|handle| handle.join().unwrap()).into()
    });
    let cleared = reports.iter().filter(|ready| ready.cleared.is_some());
    assert_eq!(cleared.count(), 1);
    assert_eq!(weather.shown(), [6, 7]);
    assert_eq!(weather.runs().matches("clear").count(), 1);
}
