//! A request that is written for a provider can be read again: as the same messages if the form can represent them, and
//! always as messages that are written in the same way.

use loopstore::model::*;
use loopstore::provider::{self, Form, MendingKind, ProviderRequest};
use serde_json::Value;

use crate::support::histories::Random;
use crate::valid::messages::Maker;

fn written(form: Form, messages: &[AgentMessage]) -> Value {
    serde_json::to_value(ProviderRequest::new(form, messages)).unwrap()
}

/// Returns a conversation that a form can represent except for what the table in `provider` lists.
fn conversation(random: &mut Random) -> Vec<AgentMessage> {
    let mut messages: Vec<AgentMessage> = Vec::new();
    if random.one_in(2) {
        let data = Json::parse(r#"{"content":"Be brief."}"#).unwrap();
        messages.push(AgentMessage::extension("system", data));
    }
    for turn in 0..1 + random.below(5) {
        let mut prompt = Message::user(format!("Prompt {turn}: é – 漢字\n\t\"quoted\""));
        if random.one_in(3) {
            prompt = prompt.with_image("iVBORw0KGgo=", "image/png");
        }
        messages.push(prompt.into());
        let mut answer = Message::assistant(if random.one_in(4) { "" } else { "I look." });
        let calls = random.below(3);
        if random.one_in(2) {
            answer = answer.with_thinking(format!("thought {turn}"), Some("c2ln"));
        }
        let id = |call| format!("c{turn}-{call}");
        for call in 0..calls {
            let arguments = serde_json::json!({"turn": turn, "nested": [null, 1.5, {"a": "b"}]});
            answer = answer.with_tool_call(id(call), "read_file", arguments);
        }
        if answer.texts().count() + answer.tool_calls().count() > 0 {
            messages.push(answer.into());
        }
        for call in 0..calls {
            let mut result = Message::tool_result(id(call), "line 1\nline 2");
            match random.below(4) {
                0 => result = result.with_error(),
                1 => result = result.with_image("/9j/4A==", "image/jpeg"),
                2 => result.content_mut().clear(),
                _ => {}
            }
            if let Message::ToolResult(result) = &mut result {
                result.tool_name = "read_file".into();
            }
            messages.push(result.into());
        }
        // Without an answer, two prompts would follow each other.
        if messages
            .last()
            .is_some_and(|last| last.role() != Role::Assistant)
        {
            messages.push(Message::assistant("Done.").into());
        }
    }
    messages
}

/// Removes the parts that a form cannot represent.
fn representable(form: Form, messages: &[AgentMessage]) -> Vec<AgentMessage> {
    let mut representable = Vec::new();
    let mut images: Vec<Content> = Vec::new();
    for message in messages {
        if message.role() != Role::ToolResult && !images.is_empty() {
            let content = std::mem::take(&mut images);
            let message = UserMessage {
                content,
                timestamp: None,
                ..UserMessage::default()
            };
            representable.push(AgentMessage::from(Message::User(message)));
        }
        let mut message = message.clone();
        match message.message_mut() {
            Some(Message::Assistant(answer)) if form != Form::Anthropic => {
                let is_kept = |block: &Content| !matches!(block, Content::Thinking(_));
                answer.content.retain(is_kept);
            }
            Some(Message::ToolResult(result)) if form != Form::Anthropic => {
                result.is_error = false;
                if form == Form::OpenAiChat {
                    let is_image = |block: &Content| matches!(block, Content::Image(_));
                    let (moved, kept) = result.content.drain(..).partition(is_image);
                    result.content = kept;
                    let moved: Vec<Content> = moved;
                    if !moved.is_empty() {
                        let call = &result.tool_call_id;
                        images.push(Content::text(format!("Images that tool call {call} gave:")));
                        images.extend(moved);
                    }
                }
            }
            _ => {}
        }
        representable.push(message);
    }
    representable
}

#[test]
fn a_conversation_comes_back_as_far_as_the_form_holds_it() {
    for seed in 0..400 {
        let messages = conversation(&mut Random::new(seed));
        for form in Form::ALL {
            let request = written(form, &messages);
            let read = provider::read(form, &request).unwrap();
            assert_eq!(
                read,
                representable(form, &messages),
                "{seed} {form} {request:#}"
            );
            let list = request.get("messages").or(request.get("input")).unwrap();
            let is_system = |m: &AgentMessage| matches!(m, AgentMessage::Extension(_));
            let without = read
                .into_iter()
                .filter(|m| !is_system(m) || form == Form::OpenAiChat);
            assert_eq!(
                provider::read(form, list).unwrap(),
                without.collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn whatever_is_written_is_read_and_written_as_it_was() {
    let mut sealed = 0;
    for seed in 0..1_500 {
        let mut random = Random::new(seed);
        let mut maker = Maker::default();
        let count = 1 + random.below(12);
        let messages: Vec<AgentMessage> = (0..count).map(|_| maker.any(&mut random)).collect();
        for form in Form::ALL {
            let request = written(form, &messages);
            let read = provider::read(form, &request).unwrap();
            let blocks = read.iter().filter_map(AgentMessage::message);
            let blocks = blocks.flat_map(Message::content);
            sealed += blocks
                .filter(|block| matches!(block, Content::Sealed(_)))
                .count();
            let again = ProviderRequest::new(form, &read);
            // Only joining of messages is left to be mended.
            let mended = again.mended.iter().map(|mending| mending.kind);
            let mended: Vec<_> = mended.filter(|kind| *kind != MendingKind::Merged).collect();
            assert_eq!(mended, [], "{seed} {form} {request:#}");
            let again = serde_json::to_value(again).unwrap();
            assert_eq!(again, request, "{seed} {form}");
        }
    }
    assert!(sealed > 50, "{sealed}");
}

#[test]
fn system_messages_come_first() {
    let system = |data: &str| AgentMessage::extension("system", Json::parse(data).unwrap());
    let mut developer = system(r#"{"content":[{"type":"text","text":"No jokes."}]}"#);
    developer
        .extra_mut()
        .insert("form", Json::string("developer"));
    let messages = [
        system(r#"{"content":"Be brief."}"#),
        AgentMessage::from(Message::user("hi")),
        developer,
        system("12"),
        AgentMessage::extension("note", Json::string("for no model")),
    ];
    let write = |form| {
        let request = ProviderRequest::new(form, &messages);
        let mended = request.mended.iter().map(|m| (m.kind, m.message));
        let expected = [
            (MendingKind::SystemMoved, 2),
            (MendingKind::BlockDropped, 3),
        ];
        assert_eq!(mended.collect::<Vec<_>>(), expected);
        serde_json::to_string(&request).unwrap()
    };
    assert_eq!(
        write(Form::OpenAiChat),
        r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"developer","content":"No jokes."},{"role":"user","content":"hi"}]}"#
    );
    assert_eq!(
        write(Form::OpenAiResponses),
        r#"{"instructions":"Be brief.\n\nNo jokes.","input":[{"role":"user","content":"hi"}]}"#
    );
    assert_eq!(
        write(Form::Anthropic),
        r#"{"system":[{"type":"text","text":"Be brief."},{"type":"text","text":"No jokes."}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#
    );
}
