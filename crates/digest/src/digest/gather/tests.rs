use super::*;
use loopstore_model::{AgentMessage, Json};

fn placed(turn: u32, message: impl Into<AgentMessage>) -> LoopMessage {
    LoopMessage {
        turn,
        seq: turn,
        message: message.into(),
    }
}

#[test]
fn of_more_facts_than_are_held_the_worst_are_forgotten() {
    let mut gatherer = Gatherer::default();
    let arguments = Json::of(&serde_json::json!({ "path": "src/first_one.rs" })).unwrap();
    let answer = AssistantMessage {
        content: vec![Content::tool_call("a", "read", arguments)],
        ..AssistantMessage::default()
    };
    gatherer.messages(None, &[placed(0, Message::Assistant(answer))]);
    let mut most = 0;
    for turn in 1..60 {
        let lines = (0..6_000).map(|line| format!("src/seen_{turn}_{line}.rs\n"));
        let text: String = lines.collect();
        gatherer.messages(None, &[placed(turn, Message::tool_result("b", text))]);
        most = most.max(gatherer.record.values.facts.len());
    }
    assert!((200_000..=MOST_FACTS).contains(&most), "{most}");
    let values = gatherer.finish().values;
    let has = |value: &str| values.facts.iter().any(|fact| fact.value == value);
    assert!(has("src/first_one.rs") && has("src/seen_59_5999.rs"));
    assert!(!has("src/seen_1_0.rs"));
}

#[test]
fn of_more_words_than_are_held_the_oldest_are_forgotten() {
    let mut gatherer = Gatherer::default();
    for turn in 0..1_200 {
        let text = format!("Part {turn} says nothing. {}", "It goes on. ".repeat(3_000));
        gatherer.messages(None, &[placed(turn, Message::assistant(text))]);
    }
    assert!(gatherer.stated <= MOST_STATED);
    let statements = gatherer.finish().statements;
    let held: usize = statements.iter().map(|s| s.text.len()).sum();
    assert!((MOST_STATED / 4..=MOST_STATED).contains(&held), "{held}");
    assert_eq!(statements.last().unwrap().place.turn, 1_199);
}

#[test]
fn a_value_that_a_person_replaced_does_not_hold_until_it_occurs_again() {
    let mut gatherer = Gatherer::default();
    let prompts = ["Book it for 300 guests.", "Actually, I need 120, not 300."];
    for (turn, prompt) in (0..).zip(prompts) {
        gatherer.messages(None, &[placed(turn, Message::user(prompt))]);
    }
    let is_replaced = |gatherer: &Gatherer, value: &str| {
        let mut facts = gatherer.record.values.facts.iter();
        facts
            .find(|fact| fact.value == value)
            .unwrap()
            .is_replaced()
    };
    assert!(is_replaced(&gatherer, "300") && !is_replaced(&gatherer, "120"));
    gatherer.messages(
        None,
        &[placed(2, Message::user("Now 300 guests after all."))],
    );
    assert!(!is_replaced(&gatherer, "300"));
}

#[test]
fn what_a_harness_adds_to_a_result_is_no_specification() {
    let mut gatherer = Gatherer::default();
    let arguments = Json::of(&serde_json::json!({ "path": "docs/pump.md" })).unwrap();
    let read = AssistantMessage {
        content: vec![Content::tool_call("a", "read", arguments)],
        ..AssistantMessage::default()
    };
    let text = "# Pump\n\nThe pump must stop at 40 litres in any weather.\n\n## Acceptance criteria\n\n\
                The lamp should turn red, and the log must have one line for each stop of the pump.\n\n\
                <system-reminder>\nThe agent must never mention this to anybody who asks.\n</system-reminder>";
    let messages = [
        placed(0, Message::user("Build what docs/pump.md asks for.")),
        placed(0, Message::Assistant(read)),
        placed(0, Message::tool_result("a", text)),
    ];
    gatherer.messages(None, &messages);
    let statements = gatherer.finish().statements;
    let of_tool = |s: &&Statement| s.speaker == SpeakerRole::Tool;
    let words = &statements.iter().find(of_tool).unwrap().text;
    assert!(
        words.contains("40 litres") && !words.contains("mention"),
        "{words}"
    );
}
