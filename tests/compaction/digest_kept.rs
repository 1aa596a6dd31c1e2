//! Documents with room for little keep instructions, statements with those that they replace, and statements of substance.

use loopstore::extend::compaction::{DigestInput, digest_of};
use loopstore::{
    AgentMessage, AssistantMessage, Content, HeuristicTokenCounter, Json, LoopMessage, Message,
    ToolResultMessage,
};

fn user(text: &str) -> AgentMessage {
    Message::user(text).into()
}

fn agent(text: &str) -> AgentMessage {
    Message::assistant(text).into()
}

fn called(id: &str, tool: &str, arguments: &str) -> AgentMessage {
    let call = Content::tool_call(id, tool, Json::parse(arguments).unwrap());
    Message::Assistant(AssistantMessage {
        content: vec![call],
        ..AssistantMessage::default()
    })
    .into()
}

fn answered(id: &str, text: &str) -> AgentMessage {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "bash".into(),
        content: vec![Content::text(text)],
        ..ToolResultMessage::default()
    })
    .into()
}

/// Returns the document of messages, each pair of which is a turn.
fn document(messages: &[AgentMessage], budget: u64) -> String {
    let placed = messages
        .iter()
        .enumerate()
        .map(|(seq, message)| LoopMessage {
            turn: seq as u32 / 2,
            seq: seq as u32,
            message: message.clone(),
        });
    let part = DigestInput::Messages {
        loop_name: None,
        messages: placed.collect(),
    };
    digest_of(&mut std::iter::once(part), budget, &HeuristicTokenCounter).text
}

/// Returns a talk with an instruction, a plan that is taken back, and much that says nothing.
fn talk() -> Vec<AgentMessage> {
    let mut messages = vec![
        user("Let us plan the trip to Cascais with Ms Ito."),
        agent("Happy to help. What should I keep in mind?"),
        user("Absolutely never book a seat on the upper deck."),
        agent("Got it."),
        user("For the crossing, let us take the night ferry."),
        agent("Understood. Want me to book it?"),
        user("Actually, scratch that. Let us take the day train instead."),
        agent("Noted. Switching to the day train."),
    ];
    for _ in 0..12 {
        messages.push(user("By the way, do you like fiction?"));
        messages.push(agent("Fair point. Let me know when you want to go on."));
    }
    messages
}

#[test]
fn an_instruction_stands_in_the_smallest_document_that_has_room_for_it_and_once() {
    let messages = talk();
    for budget in 26..400 {
        let text = document(&messages, budget);
        let count = text.matches("never book a seat on the upper deck").count();
        assert_eq!(count, 1, "{budget}: {text}");
    }
}

#[test]
fn a_plan_that_was_taken_back_never_stands_without_what_replaced_it() {
    let messages = talk();
    for budget in 5..400 {
        let text = document(&messages, budget);
        let is_whole = !text.contains("night ferry") || text.contains("day train");
        assert!(is_whole, "{budget}: {text}");
    }
    assert!(document(&messages, 100).contains("day train"));
}

#[test]
fn words_that_say_nothing_are_left_out() {
    let text = document(&talk(), 400);
    for nothing in ["Fair point", "Got it", "Let me know", "Happy to help"] {
        assert!(!text.contains(nothing), "{text}");
    }
    assert!(text.contains("trip to Cascais with Ms Ito"), "{text}");
}

#[test]
fn instructions_that_do_not_fit_are_counted_and_nothing_else_stands() {
    let mut messages = talk();
    for pier in 1..9 {
        messages.push(user(&format!(
            "Never moor at pier {pier}77 of the old harbour of Belem."
        )));
        messages.push(agent("Noted."));
    }
    let text = document(&messages, 60);
    assert!(text.contains(" more)"), "{text}");
    let others = text
        .lines()
        .filter(|line| line.starts_with("- ") && !line.contains("ever "));
    assert_eq!(others.count(), 0, "{text}");
}

#[test]
fn the_text_of_what_a_prompt_names_is_kept_as_the_words_of_a_tool() {
    let issue = "title: The ferry sails without its lamp\nThe lamp of the ferry is dark when it sails at night.\n\
        ## Acceptance criteria\n- The lamp must be lit before the ferry leaves the quay.\n- A test covers the lamp.";
    let mut messages = vec![
        user("Please work on issue 17."),
        called("a", "bash", r#"{"command":"gh issue view 17"}"#),
        answered("a", issue),
    ];
    for at in 0..20 {
        let id = format!("c{at}");
        messages.push(called(
            &id,
            "bash",
            &format!(r#"{{"command":"cat quay_{at}.rs"}}"#),
        ));
        messages.push(answered(&id, &format!("fn quay_{at}() {{ lift({at}) }}")));
    }
    let text = document(&messages, 300);
    let line = text
        .lines()
        .find(|line| line.contains("must be lit"))
        .unwrap();
    assert!(line.contains(" tool: "), "{text}");
    assert!(!text.contains("## Standing instructions"), "{text}");
}
