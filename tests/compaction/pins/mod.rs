//! Pins: every compaction keeps a pinned message unchanged.

mod random;

use loopstore::compact::CompactOutcome;
use loopstore::extend::sqlite::{QueryLimits, QueryRows};
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_verify::verify;

/// Records some turns: a prompt, and answers with a call and its result.
fn chat(store: &Store, turns: u32) -> SessionHandle {
    let chat = store.session("s").unwrap();
    chat.append([Message::user("Repair the roof.")]).unwrap();
    for turn in 1..=turns {
        let call = format!("call-{turn}");
        let lines: String = (0..60)
            .map(|line| format!("line {line} of {turn}\n"))
            .collect();
        let answer = Message::assistant(format!("I look at plank {turn}. {}", "Wood. ".repeat(40)));
        let answer = answer.with_tool_call(&call, "look", serde_json::json!({ "plank": turn }));
        let result = Message::tool_result(&call, lines);
        chat.append([answer, result]).unwrap();
    }
    chat
}

fn forced(keep: (u32, u32)) -> CompactRequest {
    CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: keep.0,
                keep_recent: KeepRecent::Turns(keep.1),
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    }
}

fn compact(chat: &SessionHandle, keep: (u32, u32)) -> CompactReport {
    let report = chat.compact(&forced(keep)).unwrap();
    assert!(report.run.is_some(), "{report:?}");
    assert_eq!(report.error, None);
    report
}

pub(super) fn texts(context: &Context) -> Vec<String> {
    let text = |message: &AgentMessage| {
        let inner = message.message().unwrap();
        inner.texts().collect::<Vec<_>>().join("\n")
    };
    context.messages.iter().map(text).collect()
}

/// True for the text of a quote: of a pinned message, or of a prompt that is kept.
pub(super) fn is_quote(text: &str) -> bool {
    text.starts_with("[Pinned, ") || text.starts_with("[Kept prompt, ")
}

fn quotes(context: &Context) -> Vec<String> {
    let mut quotes = texts(context);
    quotes.retain(|text| is_quote(text));
    quotes
}

fn rows(store: &Store, sql: &str) -> QueryRows {
    store
        .database()
        .query_within(sql, QueryLimits::default())
        .unwrap()
}

pub(super) fn assert_sound(store: &Store) {
    let report = verify(store.database()).unwrap();
    assert_eq!(report.problems, []);
}

/// Checks the tokens of a context against those of the store's counter.
pub(super) fn assert_counted(store: &Store, context: &Context) {
    let counter = store.database().counter();
    let tokens: u64 = context
        .messages
        .iter()
        .map(|m| counter.message_tokens(m))
        .sum();
    assert_eq!(context.tokens, tokens);
    let parts: u64 = context.parts.iter().map(|part| part.tokens).sum();
    assert_eq!(parts, tokens);
}

#[test]
fn a_pinned_message_is_quoted_behind_the_summary() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, 20);
    let report = chat.pin(PinRef::turn("loop-1", 5)).unwrap();
    let seqs: Vec<u32> = report.messages.iter().map(|message| message.seq).collect();
    assert_eq!((seqs, report.outcome), (vec![11], "pinned"));
    let before = chat.context().unwrap();
    let report = compact(&chat, (1, 3));
    assert_eq!(
        report.blocks[0].coverage.get(extend::Disposition::Kept),
        3 + 3 + 1
    );
    let context = chat.context().unwrap();
    let original = texts(&before)[11].clone();
    let call = "look {\"plank\":6}";
    assert_eq!(
        quotes(&context),
        [format!("[Pinned, t5, assistant]\n{original}\n{call}")]
    );
    assert_eq!(report.after.tokens, context.tokens);
    assert_counted(&store, &context);
    assert_sound(&store);
    // After the pin is removed, the message is gone with the next compaction, and not before.
    chat.unpin(PinRef::turn("loop-1", 5)).unwrap();
    assert_eq!(chat.context().unwrap(), context);
    compact(&chat, (1, 2));
    assert_eq!(quotes(&chat.context().unwrap()), [""; 0]);
    let runs = rows(&store, "SELECT count(*) AS n FROM v_compaction_runs");
    assert_eq!(runs.records()[0].get("n").as_str(), "2");
    chat.undo().unwrap();
    assert_eq!(chat.context().unwrap().messages, context.messages);
    chat.undo().unwrap();
    assert_eq!(chat.context().unwrap().messages, before.messages);
    assert_sound(&store);
}

#[test]
fn a_pinned_result_of_the_last_turns_is_not_cut() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, 12);
    chat.pin(PinRef::message("loop-1", 11, 24)).unwrap();
    compact(&chat, (0, 3));
    let context = chat.context().unwrap();
    let whole = texts(&context)
        .iter()
        .filter(|text| text.contains("line 33 of 12"))
        .count();
    assert_eq!(whole, 1);
    assert_eq!(quotes(&context), [""; 0]);
    // Once the message has aged it is quoted, never as a result without its call.
    for turn in 13..=20 {
        chat.append([Message::assistant(format!(
            "Done with {turn}. {}",
            "Nails. ".repeat(50)
        ))])
        .unwrap();
    }
    compact(&chat, (0, 3));
    let context = chat.context().unwrap();
    assert_eq!(quotes(&context).len(), 1);
    assert!(quotes(&context)[0].starts_with("[Pinned, t11, result]\nline 0 of 12\n"));
    assert!(quotes(&context)[0].ends_with("line 59 of 12\n"));
    assert_eq!(context.faults, []);
    assert_sound(&store);
}

#[test]
fn pins_that_exceed_the_window_are_an_error_with_both_numbers() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, 20);
    let wall = "Brick. ".repeat(3_000);
    chat.append([Message::user(wall)]).unwrap();
    let leaf = chat.leaf().unwrap().unwrap();
    chat.pin(PinRef::turn(leaf.as_str(), 0)).unwrap();
    for turn in 0..10 {
        chat.append([Message::assistant(format!("Brick {turn} is laid."))])
            .unwrap();
    }
    let mut request = forced((0, 2));
    request.policy.window.max_context_tokens = 4_000;
    let report = chat.compact(&request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Failed);
    let too_small = report.too_small.unwrap();
    assert!(
        too_small.needed > 5_000 && too_small.budget <= 4_000,
        "{too_small:?}"
    );
    chat.unpin(PinRef::turn(leaf.as_str(), 0)).unwrap();
    assert_eq!(chat.compact(&request).unwrap().error, None);
}

#[test]
fn a_pinned_message_of_a_rolled_up_loop_is_quoted_by_every_later_rollup() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("s").unwrap();
    for at in 0..8 {
        chat.append([Message::user(format!("Task {at}: paint wall {at}."))])
            .unwrap();
        for turn in 0..6 {
            let said = format!("Wall {at}, coat {turn}: {}", "paint ".repeat(90));
            chat.append([Message::assistant(said)]).unwrap();
        }
        if at == 1 {
            chat.pin(PinRef::turn("loop-1", 3)).unwrap();
            chat.pin(PinRef::message("loop-2", 0, 0)).unwrap();
        }
        if at >= 3 {
            let mut request = forced((0, 2));
            request.trigger = CompactTrigger::Length;
            request.policy.compaction.compaction_scope = CompactionScope::FixedCount(1);
            let report = chat.compact(&request).unwrap();
            assert_eq!(
                (report.outcome, &report.error),
                (CompactOutcome::Committed, &None)
            );
            let quotes = quotes(&chat.context().unwrap());
            assert_eq!(quotes.len(), 2, "{quotes:?}");
            assert!(quotes[0].contains("Wall 0, coat 3"), "{quotes:?}");
            assert!(quotes[1].ends_with("Task 1: paint wall 1."), "{quotes:?}");
            assert_counted(&store, &chat.context().unwrap());
            assert_sound(&store);
        }
    }
    let sql = "SELECT loop_id, from_seq, to_seq FROM v_coverage c WHERE disposition = 'kept'
               AND block_loop_id <> loop_id";
    assert!(!rows(&store, sql).records().is_empty());
    chat.unpin(PinRef::turn("loop-1", 3)).unwrap();
    compact(&chat, (0, 2));
    assert_eq!(quotes(&chat.context().unwrap()).len(), 1);
    assert_sound(&store);
}

#[test]
fn a_message_that_is_hidden_already_is_quoted_by_the_next_compaction() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, 20);
    compact(&chat, (0, 3));
    chat.pin(PinRef::message("loop-1", 4, 10)).unwrap();
    assert_eq!(quotes(&chat.context().unwrap()), [""; 0]);
    compact(&chat, (0, 3));
    let found = quotes(&chat.context().unwrap());
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("line 59 of 5"));
    assert_sound(&store);
}

#[test]
fn a_quote_shows_what_a_redaction_left() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, 4);
    chat.append([Message::user("git clone https://me:hunter2@example.org/x")])
        .unwrap();
    let leaf = chat.leaf().unwrap().unwrap();
    for turn in 0..20 {
        let said = format!("Plank {turn} is nailed. {}", "Nails. ".repeat(80));
        chat.append([Message::assistant(said)]).unwrap();
    }
    chat.pin(PinRef::turn(leaf.as_str(), 0)).unwrap();
    compact(&chat, (0, 2));
    assert!(quotes(&chat.context().unwrap())[0].contains("hunter2"));
    let reason = Some("a password".to_owned());
    let request = RedactRequest {
        reason,
        ..RedactRequest::new(chat.id().clone())
    };
    let report = redact_session(store.database(), &request).unwrap();
    assert!(report.left.is_empty());
    let context = chat.context().unwrap();
    let quotes = quotes(&context);
    assert!(
        !quotes[0].contains("hunter2") && quotes[0].contains("example.org/x"),
        "{quotes:?}"
    );
    assert_counted(&store, &context);
    assert_sound(&store);
}

#[test]
fn a_fork_sees_the_pins_of_before_it_and_no_others() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, 10);
    chat.pin(PinRef::message("loop-1", 2, 5)).unwrap();
    for turn in 0..6 {
        chat.append([Message::assistant(format!("Later {turn}."))])
            .unwrap();
    }
    chat.pin(PinRef::message("loop-1", 3, 7)).unwrap();
    let side = chat.fork_at(TurnRef::new("loop-1", 11)).unwrap();
    side.append([Message::user("Another way.")]).unwrap();
    let seqs = |chat: &SessionHandle| -> Vec<u32> {
        chat.pins().unwrap().iter().map(|pin| pin.seq).collect()
    };
    assert_eq!((seqs(&side), seqs(&chat)), (vec![5], vec![5, 7]));
    side.unpin(PinRef::message("loop-1", 2, 5)).unwrap();
    assert_eq!((seqs(&side), seqs(&chat)), (vec![], vec![5, 7]));
    assert_sound(&store);
}

#[test]
fn what_cannot_be_pinned_is_refused_with_the_reason() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, 3);
    let error = |of| chat.pin(of).unwrap_err().to_string();
    let missing = error(PinRef::turn("loop-1", 9));
    assert!(
        missing.contains("loop `loop-1` has no turn 9; its last turn is 2"),
        "{missing}"
    );
    let missing = error(PinRef::message("loop-1", 1, 9));
    assert!(
        missing.contains("turn 1 of loop `loop-1` has no message 9"),
        "{missing}"
    );
    assert!(error(PinRef::turn("loop-7", 0)).contains("loop-7"));
    let evil = error(PinRef::turn("x'; DROP TABLE pins; --", 0));
    assert!(evil.contains("DROP TABLE"), "{evil}");
    let never = chat
        .unpin(PinRef::turn("loop-1", 1))
        .unwrap_err()
        .to_string();
    assert!(
        never.contains("no message of turn 1 of loop `loop-1` is pinned"),
        "{never}"
    );
    // Pinning twice is the same as pinning once.
    assert!(chat.pin(PinRef::turn("loop-1", 1)).unwrap().messages[0].changed);
    assert!(!chat.pin(PinRef::turn("loop-1", 1)).unwrap().messages[0].changed);
    assert_eq!(chat.pins().unwrap().len(), 1);
    assert_sound(&store);
}
