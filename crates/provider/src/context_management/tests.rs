//! The report of an answer and the setting of a request, on their way through messages.

use serde_json::{Value, json};

use super::{ClearThinking, ClearToolUses, ContextManagement, KeptThinking};
use crate::{Conversation, Form, ProviderRequest, read, read_str, write};
use loopstore_model::{AgentMessage, AppliedEdit, AppliedEdits, Json, Message};

/// An answer of the provider with this field `context_management`.
fn answer(report: Value) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "It will."}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 40, "output_tokens": 12},
        "context_management": report})
}

fn documented() -> Value {
    answer(json!({"applied_edits": [
        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 3, "cleared_input_tokens": 15_000},
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000},
    ]}))
}

fn only(answer: &Value) -> AgentMessage {
    let mut messages = read(Form::Anthropic, answer).unwrap();
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

fn source(message: &mut AgentMessage) -> Option<Json> {
    message.extra_mut().get("source").cloned()
}

#[test]
fn an_answer_carries_its_report() {
    let mut message = only(&documented());
    let report = message.applied_edits().unwrap();
    assert_eq!(report.strategy, "provider:anthropic");
    let [
        AppliedEdit::ClearedThinking(thinking),
        AppliedEdit::ClearedToolUses(uses),
    ] = &*report.edits
    else {
        panic!("{report:?}");
    };
    assert_eq!((thinking.turns.get(), uses.count.get()), (3, 8));
    assert_eq!(source(&mut message), None, "it is there once");
    let stored = serde_json::to_string(&message).unwrap();
    let again: AgentMessage = serde_json::from_str(&stored).unwrap();
    assert_eq!((&again, again.applied_edits()), (&message, Some(report)));
    let from_text = read_str(Form::Anthropic, &documented().to_string()).unwrap();
    assert_eq!(from_text, [message]);
}

#[test]
fn an_answer_to_which_no_edit_was_applied_has_no_report() {
    for nothing in [json!({"applied_edits": []}), json!(null), json!({})] {
        let mut message = only(&answer(nothing));
        assert_eq!(message.applied_edits(), None);
        assert_eq!(source(&mut message), None);
    }
}

#[test]
fn a_report_of_another_shape_stays_among_the_unknown_fields() {
    for other in [json!([1]), json!(7), json!({"applied_edits": {"n": 1}})] {
        let mut message = only(&answer(other.clone()));
        assert_eq!(message.applied_edits(), None);
        let kept = source(&mut message).unwrap().read::<Value>().unwrap();
        assert_eq!(kept, json!({"context_management": other}));
    }
}

#[test]
fn no_request_contains_a_report() {
    let messages = [Message::user("Will it rain?").into(), only(&documented())];
    for form in Form::ALL {
        let request = write(form, &Conversation::of(&messages))
            .unwrap()
            .to_string();
        for word in [
            "applied",
            "appliedEdits",
            "cleared",
            "context_management",
            "provider:",
        ] {
            assert!(!request.contains(word), "{form}: {request}");
        }
    }
}

#[test]
fn the_setting_is_written_for_its_provider_only_and_a_written_request_is_read() {
    let messages = [Message::user("Will it rain?").into()];
    let setting = ContextManagement {
        clear_tool_uses: Some(ClearToolUses::default()),
        clear_thinking: Some(ClearThinking {
            keep: Some(KeptThinking::All),
        }),
    };
    for form in Form::ALL {
        let plain = ProviderRequest::new(form, &messages);
        let with = plain.clone().with_context_management(setting.clone());
        let (plain, mut with) = (
            serde_json::to_value(plain),
            serde_json::to_value(with).unwrap(),
        );
        assert_eq!(read(form, &with).unwrap(), messages);
        let written = with.as_object_mut().unwrap().remove("context_management");
        assert_eq!(written.is_some(), form == Form::Anthropic, "{form}");
        assert_eq!(with, plain.unwrap());
        let read_again = written.map(|written| serde_json::from_value(written).unwrap());
        assert!(read_again.is_none_or(|read: ContextManagement| read == setting));
    }
    let none = ProviderRequest::new(Form::Anthropic, &messages)
        .with_context_management(ContextManagement::default());
    let none = serde_json::to_value(none).unwrap();
    assert_eq!(none.get("context_management"), None);
}

#[test]
fn loopstores_own_form_has_the_report_of_any_agent() {
    let mut message = AgentMessage::from(Message::assistant("It will."));
    let edits = vec![AppliedEdit::Other(
        Json::parse(r#"{"type":"masked","n":1.50}"#).unwrap(),
    )];
    let report = AppliedEdits::new("gemini", edits);
    message.set_applied_edits(&report).unwrap();
    let stored = serde_json::to_string(&message).unwrap();
    let again = crate::read_own(&stored).unwrap();
    assert_eq!(again[0].applied_edits(), Some(report));
}
