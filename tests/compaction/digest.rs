//! The digest: within its budget, readable again, honest about where each fact comes from.

use std::collections::BTreeMap;

use loopstore::extend::compaction::{Digest, DigestInput, digest_of};
use loopstore::{
    AgentMessage, AssistantMessage, Content, HeuristicTokenCounter, Json, Message, Placed, Role,
    TokenCounter, ToolResultMessage, message_tokens,
};
use proptest::prelude::*;

fn user(text: &str) -> AgentMessage {
    Message::user(text).into()
}

fn call(id: &str, tool: &str, arguments: &str) -> AgentMessage {
    Message::Assistant(AssistantMessage {
        content: vec![Content::tool_call(
            id,
            tool,
            Json::parse(arguments).unwrap(),
        )],
        ..AssistantMessage::default()
    })
    .into()
}

fn result(id: &str, tool: &str, text: &str, is_error: bool) -> AgentMessage {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: tool.into(),
        content: vec![Content::text(text)],
        is_error,
        timestamp: None,
        ..ToolResultMessage::default()
    })
    .into()
}

fn placed(messages: Vec<(u32, AgentMessage)>) -> Vec<Placed> {
    let place = |(seq, (turn, message))| Placed {
        turn,
        seq: seq as u32,
        message,
    };
    messages.into_iter().enumerate().map(place).collect()
}

fn digest(messages: Vec<Placed>, budget: u64) -> Digest {
    let part = DigestInput::Messages { of: None, messages };
    digest_of(&mut std::iter::once(part), budget, &HeuristicTokenCounter)
}

fn again(text: &str, budget: u64) -> Digest {
    let part = DigestInput::Summary {
        of: None,
        turn: 0,
        text: text.into(),
    };
    digest_of(&mut std::iter::once(part), budget, &HeuristicTokenCounter)
}

fn story() -> Vec<Placed> {
    placed(vec![
        (
            0,
            user("Rebook ticket 4WQ150 for Ms Ito. Never charge card 9911."),
        ),
        (
            0,
            call("a", "find", r#"{"ticket_id":"4WQ150","limit":250}"#),
        ),
        (
            0,
            result(
                "a",
                "find",
                r#"{"ticket_id":"4WQ150","seat":"17C","price":420}"#,
                false,
            ),
        ),
        (
            1,
            call("b", "rebook", r#"{"ticket_id":"4WQ150","to":"JG7FMM"}"#),
        ),
        (1, result("b", "rebook", "date is missing", true)),
        (
            2,
            call(
                "c",
                "rebook",
                r#"{"ticket_id":"4WQ150","to":"JG7FMM","date":"2031-04-01"}"#,
            ),
        ),
        (2, result("c", "rebook", "done: receipt=R-77120", false)),
        (3, user("Thanks. Use window seats from now on.")),
        (3, call("d", "notify", r#"{"mail":"ito@mail.example"}"#)),
    ])
}

#[test]
fn a_digest_tells_the_task_the_facts_and_what_is_unfinished() {
    let digest = digest(story(), 400);
    let expected = [
        "[Digest of turns 0..3; expand]",
        "The task: Rebook ticket 4WQ150 for Ms Ito. Never charge card 9911. (t0)",
        "User said: Use window seats from now on. (t3)",
        "rebook:to: JG7FMM (t2)",
        "Went wrong: date is missing (t1) ok at t2",
        "find:limit: 250 (t0)",
        "rebook:ticket_id: 4WQ150 (t2)",
    ];
    for line in expected {
        assert!(
            digest.text.lines().any(|l| l == line),
            "{line}\n{}",
            digest.text
        );
    }
    for fact in [
        "JG7FMM (t2)",
        "2031-04-01 (t2)",
        "ito@mail.example (t3)",
        "R-77120 (t2)",
        "420 (t0)",
    ] {
        assert!(digest.text.contains(fact), "{fact}\n{}", digest.text);
    }
    assert!(
        digest.text.contains("No result yet: notify "),
        "{}",
        digest.text
    );
    let turns: Vec<u32> = digest.places.iter().map(|place| place.turn).collect();
    assert_eq!(turns, [0, 1, 2, 3]);
}

#[test]
fn only_the_turns_that_are_named_are_covered() {
    let digest = digest(story(), 40);
    let named: std::collections::BTreeSet<u32> = facts(&digest.text).map(|f| f.1).collect();
    let turns: std::collections::BTreeSet<u32> = digest.places.iter().map(|p| p.turn).collect();
    assert_eq!(named, turns, "{}", digest.text);
    assert!(turns.len() < 4);
}

#[test]
fn the_task_is_whole_where_it_leaves_room_for_facts() {
    let task = format!(
        "Move all bookings of room K12. {}",
        "Ask before each. ".repeat(20)
    );
    let mut messages = story();
    messages[0].message = user(&task);
    let line = format!("The task: {} (t0)", task.trim());
    for (budget, is_whole) in [(120, false), (230, true), (400, true)] {
        let digest = digest(messages.clone(), budget);
        assert_eq!(
            digest.text.contains(&line),
            is_whole,
            "{budget}\n{}",
            digest.text
        );
        assert!(
            digest.text.contains("JG7FMM (t2)"),
            "{budget}\n{}",
            digest.text
        );
    }
}

#[test]
fn what_was_used_again_is_kept_before_what_was_used_once() {
    let mut messages = vec![(0, user("Look after the orders."))];
    for turn in 0..40 {
        let order = if turn % 8 == 1 {
            "AX9904".into()
        } else {
            format!("BY{turn}77")
        };
        let id = format!("c{turn}");
        messages.push((
            turn,
            call(&id, "open", &format!(r#"{{"order":"{order}"}}"#)),
        ));
        messages.push((turn, result(&id, "open", "ok", false)));
    }
    let digest = digest(placed(messages), 40);
    assert!(digest.text.contains("AX9904 (t33)"), "{}", digest.text);
    assert!(digest.text.contains("BY3977"), "{}", digest.text);
    assert!(!digest.text.contains("BY277"), "{}", digest.text);
}

#[test]
fn a_pasted_document_does_not_crowd_out_what_calls_used() {
    let pasted: String = (0..60)
        .map(|n| format!("See part P{n}Z of the manual.\n"))
        .collect();
    let mut messages = story();
    messages.insert(
        3,
        Placed {
            turn: 0,
            seq: 0,
            message: user(&format!("For reference:\n{pasted}")),
        },
    );
    let digest = digest(messages, 100);
    for fact in ["JG7FMM (t2)", "ito@mail.example (t3)", "R-77120 (t2)"] {
        assert!(digest.text.contains(fact), "{fact}\n{}", digest.text);
    }
}

#[test]
fn nothing_fits_in_no_budget() {
    for budget in 0..=5 {
        let digest = digest(story(), budget);
        assert_eq!(digest.message(Role::User), None, "{budget}");
        assert!(digest.places.is_empty());
    }
}

#[test]
fn a_rollup_names_the_loop_of_each_fact() {
    let part = |of: &str| DigestInput::Messages {
        of: Some(of.into()),
        messages: story(),
    };
    let mut parts = [part("L1"), part("L2")].into_iter();
    let first = digest_of(&mut parts, 300, &HeuristicTokenCounter);
    assert!(first.text.contains("JG7FMM (L2 t2)"), "{}", first.text);
    assert!(
        first
            .text
            .contains("The task: Rebook ticket 4WQ150 for Ms Ito. Never charge card 9911. (L1 t0)")
    );
    let before = DigestInput::Summary {
        of: None,
        turn: 0,
        text: first.text,
    };
    let mut parts = [before, part("L3")].into_iter();
    let second = digest_of(&mut parts, 300, &HeuristicTokenCounter);
    assert!(second.text.contains("JG7FMM (L3 t2)"), "{}", second.text);
    assert!(second.text.contains("(L1 t0)"));
}

#[test]
fn a_summary_in_words_is_read_as_well() {
    let digest = again(
        "We agreed on port 8443. The key lies in /etc/app/key.pem.",
        100,
    );
    assert!(digest.text.contains("8443") && digest.text.contains("/etc/app/key.pem"));
}

/// A counter by words, to which bytes say little.
struct Words;

impl TokenCounter for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn text_tokens(&self, text: &str) -> u64 {
        text.split([' ', '_', '-', '/', '\n']).count() as u64
    }
}

#[test]
fn the_budget_holds_for_any_counter() {
    for budget in [8, 20, 50, 100, 200] {
        let part = DigestInput::Messages {
            of: None,
            messages: story(),
        };
        let digest = digest_of(&mut std::iter::once(part), budget, &Words);
        let spent = digest
            .message(Role::User)
            .map_or(0, |m| Words.message_tokens(&m));
        assert!(spent <= budget, "{spent} of {budget}");
    }
}

/// The facts of a text, read without the library: what stands before each `(tN)`.
fn facts(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().skip(1).flat_map(|line| {
        let mut from = 0;
        let mut found = Vec::new();
        while let Some(open) = line[from..].find(" (t").map(|at| from + at) {
            let digits = line[open + 3..]
                .find(')')
                .map(|end| &line[open + 3..open + 3 + end]);
            if let Some(turn) = digits.and_then(|d| d.parse().ok()) {
                found.push((&line[from..open], turn));
            }
            from = open + 3;
        }
        found
    })
}

fn odd_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}[0-9]{1,6}",
        "[ -~]{0,60}",
        "[a-z/._ ()\"'`«»⟦⟧,;:=]{0,40} \\(t[0-9]{1,2}\\)[a-z, ;]{0,9}",
        "[一-龥ぁ-んA-Z0-9。「」]{0,30}",
        "[🦀🎉é\u{0}-\u{1f}\u{85}\u{2028}a-z]{0,20}",
        "(/[a-z]{1,9}){1,6}\\.[a-z]{2}",
        "([a-z]{1,6}[:=] ?[A-Z0-9]{2,6}\n){1,6}",
        "[x9]{200,3000}",
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Prompt(String),
    Call(String, String, String, Option<(String, bool)>),
    Say(String),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = proptest::option::of((odd_text(), any::<bool>()));
    let key = prop_oneof!["[a-z_]{1,9}", odd_text()];
    prop_oneof![
        1 => odd_text().prop_map(Step::Prompt),
        1 => odd_text().prop_map(Step::Say),
        4 => ("[a-zA-Z]{1,6}", key, odd_text(), outcome)
            .prop_map(|(tool, key, value, outcome)| Step::Call(tool, key, value, outcome)),
    ]
}

fn history(steps: Vec<Step>) -> Vec<Placed> {
    let mut messages = Vec::new();
    for (turn, step) in (0..).zip(steps) {
        let id = format!("c{turn}");
        match step {
            Step::Prompt(text) => messages.push((turn, user(&text))),
            Step::Say(text) => messages.push((
                turn,
                Message::Assistant(AssistantMessage {
                    content: vec![Content::text(text)],
                    ..AssistantMessage::default()
                })
                .into(),
            )),
            Step::Call(tool, key, value, outcome) => {
                let arguments = serde_json::json!({ key: value, "number": turn * 1000 });
                messages.push((turn, call(&id, &tool, &arguments.to_string())));
                if let Some((text, is_error)) = outcome {
                    messages.push((turn, result(&id, &tool, &text, is_error)));
                }
            }
        }
    }
    placed(messages)
}

/// Everything that a turn says, as a digest would write it on one line.
fn said_by_turn(messages: &[Placed]) -> BTreeMap<u32, String> {
    let mut said: BTreeMap<u32, String> = BTreeMap::new();
    for placed in messages {
        let text = said.entry(placed.turn).or_default();
        for block in placed.message.message().unwrap().content() {
            match block {
                Content::Text(block) => text.push_str(&block.text),
                Content::ToolCall(call) => {
                    let arguments: serde_json::Value = call.arguments.read().unwrap();
                    text.push_str(&call.name);
                    for (key, value) in arguments.as_object().unwrap() {
                        text.push_str(&format!("\n{key}\n{}", value.as_str().unwrap_or_default()));
                        text.push_str(&format!("\n{value}\n"));
                    }
                    text.push_str(call.arguments.as_str());
                }
                _ => {}
            }
            text.push('\n');
        }
    }
    said
}

fn values_of(text: &str) -> Vec<(String, u32)> {
    let mut all = Vec::new();
    let notes = [
        "The task: ",
        "User said: ",
        "Went wrong: ",
        "Last answer: ",
        "No result yet: ",
    ];
    for line in text.lines().skip(1) {
        if notes.iter().any(|note| line.starts_with(note)) || line == "Seen:" {
            continue;
        }
        let mut rest = line.split_once(": ").unwrap().1;
        while !rest.is_empty() {
            let close = rest.chars().next().and_then(|open| match open {
                '"' => Some('"'),
                '`' => Some('`'),
                '«' => Some('»'),
                '⟦' => Some('⟧'),
                _ => None,
            });
            let (value, after) = match close {
                Some(close) => {
                    let open = rest.chars().next().unwrap().len_utf8();
                    rest[open..].split_once(&format!("{close} (t")).unwrap()
                }
                None => rest.split_once(" (t").unwrap(),
            };
            let (turn, after) = after.split_once(')').unwrap();
            all.push((value.to_owned(), turn.parse().unwrap()));
            let after = after.strip_prefix(" failed").unwrap_or(after);
            rest = after.get(2..).unwrap_or_default();
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_digest_is_within_budget_honest_and_the_same_each_time(
        steps in proptest::collection::vec(step(), 1..24),
        budget in 0_u64..600,
    ) {
        let messages = history(steps);
        let first = digest(messages.clone(), budget);
        prop_assert_eq!(&first, &digest(messages.clone(), budget));
        let spent = first.message(Role::User).map_or(0, |m| message_tokens(&m));
        prop_assert!(spent <= budget, "{} of {}", spent, budget);
        let said = said_by_turn(&messages);
        let values = values_of(&first.text);
        for (value, turn) in &values {
            prop_assert!(said[turn].contains(value.as_str()), "{} of turn {}\n{}", value, turn, first.text);
            prop_assert!(first.places.iter().any(|place| place.turn == *turn));
        }
        let lines: Vec<&str> = first.text.lines().collect();
        let labelled = lines.iter().filter(|line| line.contains(": ") && line.contains(" (t")).count();
        prop_assert!(values.is_empty() || 2 * labelled >= lines.len(), "{}", first.text);
    }

    #[test]
    fn a_digest_is_read_back_whole(
        steps in proptest::collection::vec(step(), 1..16),
        budget in 60_u64..600,
    ) {
        let first = digest(history(steps), budget);
        // With room for all of it and more, nothing that was told is lost.
        let second = again(&first.text, budget * 3 + 200);
        for (value, turn) in values_of(&first.text) {
            prop_assert!(second.text.contains(&value), "{}\n{}\n{}", value, first.text, second.text);
            prop_assert!(second.places.iter().any(|place| place.turn <= turn));
        }
        let third = again(&second.text, budget * 3 + 200);
        prop_assert_eq!(values_of(&second.text).len(), values_of(&third.text).len());
    }
}
