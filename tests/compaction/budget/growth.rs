//! The room that a compaction leaves for the turns after it, and the document in small windows.

use loopstore::compact::{CompactOutcome, NotNeeded};
use loopstore::*;

use crate::budget::stage::texts;
use crate::support::histories::Random;

/// Appends a prompt and an answer of about so many tokens together, with words that no other turn has.
fn talk(chat: &SessionHandle, turn: u64, tokens: u64) {
    let words = |from: u64, tokens: u64| {
        let words = (0..tokens / 2).map(|at| format!("w{:x}", from + at));
        words.collect::<Vec<_>>().join(" ")
    };
    let prompt = format!("Look at sluice {turn}: {}", words(turn * 7_919, tokens / 4));
    let answer = format!("Sluice {turn} holds. {}", words(turn * 104_729, tokens / 2));
    chat.append([Message::user(prompt), Message::assistant(answer)])
        .unwrap();
}

/// Returns the tokens up to which the default policy does not fire.
fn limit(window: u64) -> u64 {
    Policy::new(window).target().tokens
}

#[test]
fn a_small_window_is_compacted_once_in_several_turns() {
    for (tokens, most) in [(60, 12), (120, 22), (250, 40)] {
        let chat = Store::in_memory().unwrap().session("s").unwrap();
        let chat = chat.with_policy(Policy::new(3_000));
        let mut committed = 0;
        for turn in 0..120 {
            talk(&chat, turn, tokens);
            let ready = chat.prepare().unwrap();
            for report in &ready.compactions {
                committed += usize::from(report.outcome == CompactOutcome::Committed);
                assert!(report.room >= 2 * report.turn_tokens, "{report:?}");
            }
            // The document is never given up for turns.
            let has_document = texts(&ready.context).contains("[Working state");
            assert_eq!(has_document, committed > 0);
        }
        assert!(
            committed <= most,
            "{committed} compactions, turns of {tokens}"
        );
    }
}

#[test]
fn a_compaction_leaves_room_or_is_not_made_and_says_why() {
    let mut counts = [0; 3];
    for seed in 0..16 {
        let mut random = Random::new(seed);
        let window = [600, 1_000, 3_000, 9_000][random.below(4) as usize];
        let usual = [20, 100, 400][random.below(3) as usize];
        let chat = Store::in_memory().unwrap().session("s").unwrap();
        let chat = chat.with_policy(Policy::new(window));
        for turn in 0..60 {
            // Some turns are far larger than the others.
            let large = if random.one_in(9) {
                1 + random.below(8)
            } else {
                1
            };
            talk(&chat, turn, (usual + random.below(usual)) * large);
            let report = chat.compact(&chat.policy().request()).unwrap();
            let several = (2 * report.turn_tokens).min(limit(window) / 4);
            let why = report.error.as_deref().unwrap_or_default();
            match report.outcome {
                CompactOutcome::Committed if report.room >= several => counts[0] += 1,
                CompactOutcome::Committed => {
                    assert!(report.before.tokens > window, "seed {seed}: {report:?}");
                    assert!(
                        why.contains("use a larger window"),
                        "seed {seed}: {report:?}"
                    );
                    counts[1] += 1;
                }
                CompactOutcome::NoGain => {
                    assert!(report.before.tokens <= window, "seed {seed}: {report:?}");
                    assert!(!why.is_empty(), "seed {seed}: {report:?}");
                    counts[2] += 1;
                }
                CompactOutcome::NotNeeded => {}
                CompactOutcome::Failed => assert!(report.too_small.is_some(), "{report:?}"),
                outcome => panic!("seed {seed}: {outcome:?}"),
            }
        }
    }
    assert!(counts[0] > 25, "{counts:?}");
}

#[test]
fn what_left_too_little_room_is_compacted_when_the_window_is_full() {
    let chat = Store::in_memory().unwrap().session("s").unwrap();
    let chat = chat.with_policy(Policy::new(3_000));
    for turn in 0..6 {
        talk(&chat, turn, 90);
    }
    // A turn in flight is never compacted, and this one takes most of the window.
    let call = Message::assistant("I look.").with_tool_call("c", "look", serde_json::json!({}));
    let open = Message::assistant("").with_tool_call("d", "look", serde_json::json!({}));
    let long = |words: usize| "sluice ".repeat(words);
    chat.append([Message::user("Look at all."), call]).unwrap();
    chat.append([Message::tool_result("c", "fine")]).unwrap();
    let open = open.with_tool_call("e", "look", serde_json::json!({}));
    let open = open.with_tool_call("f", "look", serde_json::json!({}));
    let first = Message::tool_result("d", long(1_370));
    chat.append([open, first]).unwrap();
    let report = chat.compact(&chat.policy().request()).unwrap();
    assert_eq!(report.outcome, CompactOutcome::NoGain, "{report:?}");
    let why = report.error.unwrap();
    assert!(
        why.contains("leaves room for") && why.contains("nothing was compacted"),
        "{why}"
    );
    let run = report.run.unwrap();
    let again = chat.compact(&chat.policy().request()).unwrap();
    assert_eq!(again.not_needed, Some(NotNeeded::TriedBefore { run }));
    // The plan is still the same, but the context does not fit the window any more.
    chat.append([Message::tool_result("e", long(300))]).unwrap();
    let report = chat.prepare().unwrap();
    assert!(report.was_compacted(), "{:?}", report.compactions);
}

#[test]
fn the_document_comes_before_a_last_turn_that_leaves_it_no_room() {
    let chat = Store::in_memory().unwrap().session("s").unwrap();
    let chat = chat.with_policy(Policy::new(3_000));
    chat.append([
        Message::user("Never open sluice 7."),
        Message::assistant("Sluice 7 stays closed."),
    ])
    .unwrap();
    for turn in 0..6 {
        talk(&chat, turn, 100);
    }
    talk(&chat, 6, 3_600);
    let ready = chat.prepare().unwrap();
    let report = &ready.compactions[0];
    assert_eq!(report.fallback.as_deref(), Some("no_turns"), "{report:?}");
    assert_eq!(ready.context.messages.len(), 1);
    let text = texts(&ready.context);
    assert!(text.contains("Never open sluice 7."), "{text}");
    // The session goes on behind that text.
    talk(&chat, 7, 100);
    assert_eq!(chat.prepare().unwrap().context.messages.len(), 3);
}

#[test]
fn a_size_to_hand_over_is_used_for_the_document() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    let rule = "Under no circumstances store passwords in plaintext.";
    for turn in 0..12 {
        let prompt = match turn {
            1 => rule.to_owned(),
            _ => format!("Look at sluice {turn} and say what you see there."),
        };
        let answer = format!(
            "Sluice {turn} holds; its gate number {} is closed.",
            turn * 31
        );
        chat.append([Message::user(prompt), Message::assistant(answer)])
            .unwrap();
    }
    for window in [120, 200, 300] {
        let request = Policy::new(window).request();
        let report = chat.compact(&request).unwrap();
        assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
        assert!(report.after.tokens <= window, "{report:?}");
        assert!(report.after.tokens >= window * 3 / 4, "{report:?}");
        let text = texts(&chat.context().unwrap());
        assert!(text.starts_with("[Working state"), "{window}: {text}");
        assert!(text.contains(rule) || window < 300, "{window}: {text}");
        let again = chat.compact(&request).unwrap();
        assert_eq!(again.outcome, CompactOutcome::NotNeeded, "{again:?}");
        assert!(loopstore_verify::verify(store.database()).unwrap().ok);
        chat.undo().unwrap();
    }
}
