//! Reports against a model of the provider, which clears the JSON of the request.

use std::collections::HashSet;
use std::num::NonZeroU32;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::context_management::{ClearThinking, ClearToolInputs, ClearToolUses, KeptThinking};
use crate::{Form, ProviderRequest, read};
use loopstore_model::{ClearedThinking, ClearedToolUses, Message};

const NAMES: [&str; 3] = ["ls", "cat", "web_search"];

#[derive(Clone, Debug)]
enum EditStep {
    Prompt,
    /// An answer with thinking or without, with calls of tools by their names, and of a tool that the provider runs.
    Answer {
        thinks: bool,
        calls: Vec<usize>,
        server: bool,
    },
}

fn step() -> impl Strategy<Value = EditStep> {
    let calls = prop::collection::vec(0..NAMES.len(), 0..3);
    let answer = (any::<bool>(), calls, prop::bool::weighted(0.2));
    prop_oneof![
        1 => Just(EditStep::Prompt),
        4 => answer.prop_map(|(thinks, calls, server)| EditStep::Answer { thinks, calls, server }),
    ]
}

/// Returns the messages of steps, as they are read from a request.
fn conversation(steps: &[EditStep]) -> Vec<AgentMessage> {
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    for (at, step) in steps.iter().enumerate() {
        let EditStep::Answer {
            thinks,
            calls,
            server,
        } = step
        else {
            messages.push(json!({"role": "user", "content": "go on"}));
            continue;
        };
        let mut content = Vec::new();
        if *thinks {
            content
                .push(json!({"type": "thinking", "thinking": format!("t{at}"), "signature": "s"}));
        }
        content.push(json!({"type": "text", "text": format!("a{at}")}));
        if *server {
            let id = format!("srv{at}");
            content.push(
                json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}),
            );
            content
                .push(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}));
        }
        let mut results = Vec::new();
        for (nth, name) in calls.iter().enumerate() {
            let id = format!("c{at}-{nth}");
            content.push(json!({"type": "tool_use", "id": id, "name": NAMES[*name], "input": {}}));
            results.push(json!({"type": "tool_result", "tool_use_id": id, "content": "done"}));
        }
        messages.push(json!({"role": "assistant", "content": content}));
        if !results.is_empty() {
            messages.push(json!({"role": "user", "content": results}));
        }
    }
    read(Form::Anthropic, &json!(messages)).unwrap()
}

/// Returns the blocks of the messages of the request, each with the role of its message.
fn sent(messages: &[AgentMessage]) -> Vec<(String, Value)> {
    let request = ProviderRequest::new(Form::Anthropic, messages);
    let request = serde_json::to_value(request).unwrap();
    let mut blocks = Vec::new();
    for message in request["messages"].as_array().unwrap() {
        let role = message["role"].as_str().unwrap();
        let content = message["content"].as_array().unwrap().iter();
        blocks.extend(content.map(|block| (role.to_owned(), block.clone())));
    }
    blocks
}

/// Returns the tool uses that the provider clears: all but the newest that it keeps, of all uses or of those that are
/// not excluded.
fn cleared_uses(messages: &[AgentMessage], setting: &ClearToolUses, of_all: bool) -> Vec<String> {
    let is_use =
        |block: &Value| ["tool_use", "server_tool_use"].contains(&block["type"].as_str().unwrap());
    let blocks = sent(messages).into_iter().map(|(_, block)| block);
    let mut uses: Vec<Value> = blocks.filter(is_use).collect();
    let is_excluded = |block: &Value| {
        setting
            .exclude_tools
            .iter()
            .any(|name| block["name"] == **name)
    };
    if !of_all {
        uses.retain(|block| !is_excluded(block));
    }
    uses.truncate(uses.len().saturating_sub(setting.kept()));
    uses.retain(|block| !is_excluded(block));
    let id = |block: &Value| block["id"].as_str().unwrap().to_owned();
    uses.iter().map(id).collect()
}

/// Returns the texts of the thinking that the provider clears, by turn.
fn cleared_thinking(messages: &[AgentMessage], kept: usize, by_answer: bool) -> Vec<Vec<String>> {
    let mut turns = vec![Vec::new()];
    for (role, block) in sent(messages) {
        let ends = by_answer || block["type"] != "tool_result";
        if role == "user" && ends {
            turns.push(Vec::new());
        } else if let Some(text) = block["thinking"].as_str() {
            turns.last_mut().unwrap().push(text.to_owned());
        }
    }
    turns.retain(|turn| !turn.is_empty());
    turns.truncate(turns.len().saturating_sub(kept));
    turns
}

fn uses(count: u32) -> AppliedEdits {
    let edit = AppliedEdit::ClearedToolUses(ClearedToolUses::new(count));
    AppliedEdits::new("provider:anthropic", vec![edit])
}

fn thinking(turns: u32) -> AppliedEdits {
    let edit = AppliedEdit::ClearedThinking(ClearedThinking::new(turns));
    AppliedEdits::new("provider:anthropic", vec![edit])
}

fn ids(resolved: &ResolvedEdits) -> Vec<&str> {
    let uses = resolved.tool_uses.iter();
    uses.map(|found| found.tool_call_id.as_str()).collect()
}

fn clears_uses(keep: u32, exclude: &[&str]) -> ContextManagement {
    ContextManagement {
        clear_tool_uses: Some(ClearToolUses {
            keep: Some(keep),
            exclude_tools: exclude.iter().map(|&name| name.to_owned()).collect(),
            ..ClearToolUses::default()
        }),
        ..ContextManagement::default()
    }
}

fn missing(resolved: &ResolvedEdits) -> u64 {
    let counts = resolved.unresolved.iter().map(|edit| match edit {
        UnresolvedEdit::ToolUses(count) | UnresolvedEdit::Thinking(count) => *count,
        UnresolvedEdit::Other(_) => 0,
    });
    counts.sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_tool_uses_are_those_that_the_provider_cleared(
        steps in prop::collection::vec(step(), 0..20),
        keep in 0..6u32,
        excluded in prop::sample::subsequence(NAMES.to_vec(), 0..3),
        of_all in any::<bool>(),
    ) {
        let messages = conversation(&steps);
        let setting = clears_uses(keep, &excluded);
        let cleared = cleared_uses(&messages, setting.clear_tool_uses.as_ref().unwrap(), of_all);
        let request = EditedRequest::new(Conversation::of(&messages), Some(&setting));
        let resolved = resolve(&uses(cleared.len() as u32), &request);
        prop_assert_eq!(ids(&resolved), cleared);
        prop_assert_eq!(missing(&resolved), 0);
    }

    #[test]
    fn no_tool_use_that_stays_is_found_and_every_count_adds_up(
        steps in prop::collection::vec(step(), 0..20),
        keep in 0..6u32,
        excluded in prop::sample::subsequence(NAMES.to_vec(), 0..3),
        count in 0..40u32,
        before in prop::collection::vec(any::<bool>(), 60),
        counts_cleared in any::<bool>(),
    ) {
        let messages = conversation(&steps);
        let none = clears_uses(0, &[]);
        let all = EditedRequest::new(Conversation::of(&messages), Some(&none));
        let all = resolve(&uses(1_000), &all).tool_uses;
        let setting = clears_uses(keep, &excluded);
        let mut request = EditedRequest::new(Conversation::of(&messages), Some(&setting));
        let cleared = all.iter().zip(before).filter(|(_, before)| *before);
        request.cleared = cleared.flat_map(|(found, _)| found.result.clone()).collect();
        request.counts_cleared = counts_cleared;
        let resolved = resolve(&uses(count), &request);
        let found = resolved.tool_uses.len() as u64;
        prop_assert_eq!(found + resolved.repeated_tool_uses + missing(&resolved), u64::from(count));
        prop_assert!(counts_cleared || resolved.repeated_tool_uses == 0);
        let newest = all.len().saturating_sub(keep as usize);
        for one in &resolved.tool_uses {
            let at = all.iter().position(|other| other.call == one.call).unwrap();
            prop_assert!(at < newest);
            prop_assert!(one.result.iter().all(|place| !request.cleared.contains(place)));
            prop_assert_eq!(one.result.len(), 1);
            let messages = &messages[one.call.message];
            let Content::ToolCall(call) = &messages.message().unwrap().content()[one.call.block] else {
                continue;
            };
            prop_assert!(!excluded.contains(&call.name.as_str()));
        }
        let places: HashSet<_> = resolved.tool_uses.iter().map(|found| found.call).collect();
        prop_assert_eq!(places.len() as u64, found, "none twice");
    }

    #[test]
    fn the_thinking_is_what_the_provider_cleared(
        steps in prop::collection::vec(step(), 0..20),
        keep in 1..4u32,
        by_answer in any::<bool>(),
    ) {
        let messages = conversation(&steps);
        let cleared = cleared_thinking(&messages, keep as usize, by_answer);
        let setting = ContextManagement {
            clear_thinking: Some(ClearThinking {
                keep: NonZeroU32::new(keep).map(KeptThinking::Turns),
            }),
            ..ContextManagement::default()
        };
        let request = EditedRequest::new(Conversation::of(&messages), Some(&setting));
        let resolved = resolve(&thinking(cleared.len() as u32), &request);
        let text = |place: &BlockPlace| {
            let content = messages[place.message].message().unwrap().content();
            match &content[place.block] {
                Content::Thinking(block) => block.thinking.clone(),
                other => panic!("{other:?}"),
            }
        };
        let found = resolved.thinking.iter();
        let found: Vec<Vec<_>> = found.map(|turn| turn.blocks.iter().map(text).collect()).collect();
        prop_assert_eq!(found, cleared);
        prop_assert_eq!(missing(&resolved), 0);
    }

    #[test]
    fn the_newest_thinking_stays_and_every_turn_is_counted(
        steps in prop::collection::vec(step(), 0..20),
        keep in prop::option::of(1..4u32),
        count in 0..20u32,
        before in prop::collection::hash_set((0..40usize, Just(0usize)), 0..10),
        counts_cleared in any::<bool>(),
    ) {
        let messages = conversation(&steps);
        let setting = keep.map(|keep| ContextManagement {
            clear_thinking: Some(ClearThinking {
                keep: NonZeroU32::new(keep).map(KeptThinking::Turns),
            }),
            ..ContextManagement::default()
        });
        let mut request = EditedRequest::new(Conversation::of(&messages), setting.as_ref());
        request.cleared = before.into_iter().map(|(message, block)| BlockPlace { message, block }).collect();
        request.counts_cleared = counts_cleared;
        let resolved = resolve(&thinking(count), &request);
        let found = resolved.thinking.len() as u64;
        prop_assert_eq!(found + resolved.repeated_thinking + missing(&resolved), u64::from(count));
        let blocks: Vec<_> = resolved.thinking.iter().flat_map(|turn| &turn.blocks).collect();
        prop_assert!(blocks.iter().all(|place| !request.cleared.contains(place)));
        if keep.is_some() {
            let newest = messages.iter().rposition(|message| {
                message.message().unwrap().content().iter().any(Content::is_thinking)
            });
            prop_assert!(blocks.iter().all(|place| Some(place.message) != newest));
        }
    }
}

fn call(id: &str, name: &str) -> AgentMessage {
    Message::assistant("")
        .with_tool_call(id, name, json!({"n": 1}))
        .into()
}

#[test]
fn named_calls_are_found_wherever_they_are() {
    let messages = [
        call("a", "ls"),
        Message::tool_result("a", "1").into(),
        call("b", "ls"),
        Message::tool_result("b", "2").into(),
        call("a", "ls"),
        Message::tool_result("a", "3").into(),
    ];
    let edit = |ids: &[&str]| {
        let ids = ids.iter().map(|&id| id.to_owned()).collect();
        let edit = AppliedEdit::ClearedToolUses(ClearedToolUses::of_calls(ids));
        AppliedEdits::new("claude-code", vec![edit])
    };
    let mut request = EditedRequest::new(Conversation::of(&messages), None);
    let resolved = resolve(&edit(&["b", "none"]), &request);
    assert_eq!(ids(&resolved), ["b"]);
    assert_eq!(resolved.unresolved, [UnresolvedEdit::ToolUses(1)]);
    let resolved = resolve(&edit(&["a", "a"]), &request);
    let results = resolved
        .tool_uses
        .iter()
        .map(|found| found.result[0].message);
    assert_eq!(results.collect::<Vec<_>>(), [1, 5]);
    request.cleared.insert(BlockPlace {
        message: 3,
        block: 0,
    });
    let resolved = resolve(&edit(&["b"]), &request);
    assert_eq!(
        (resolved.tool_uses.len(), resolved.repeated_tool_uses),
        (0, 1)
    );
}

#[test]
fn arguments_are_cleared_as_the_setting_says() {
    let messages = [
        call("a", "ls"),
        Message::tool_result("a", "1").into(),
        call("b", "cat"),
        Message::tool_result("b", "2").into(),
    ];
    let cleared = |inputs: ClearToolInputs| {
        let mut setting = clears_uses(0, &[]);
        if let Some(uses) = &mut setting.clear_tool_uses {
            uses.clear_tool_inputs = inputs;
        }
        let request = EditedRequest::new(Conversation::of(&messages), Some(&setting));
        let found = resolve(&uses(2), &request).tool_uses;
        [found[0].is_input_cleared, found[1].is_input_cleared]
    };
    assert_eq!(cleared(ClearToolInputs::None), [false, false]);
    assert_eq!(cleared(ClearToolInputs::All), [true, true]);
    assert_eq!(
        cleared(ClearToolInputs::Of(vec!["cat".into()])),
        [false, true]
    );
}

#[test]
fn a_tool_is_excluded_under_the_name_that_was_sent() {
    let messages = [
        call("a", "files.ls"),
        Message::tool_result("a", "1").into(),
        call("b", "cat"),
        Message::tool_result("b", "2").into(),
    ];
    for name in ["files.ls", "files_ls"] {
        let setting = clears_uses(0, &[name]);
        let request = EditedRequest::new(Conversation::of(&messages), Some(&setting));
        let resolved = resolve(&uses(2), &request);
        assert_eq!(ids(&resolved), ["b"]);
        assert_eq!(resolved.unresolved, [UnresolvedEdit::ToolUses(1)]);
    }
}

#[test]
fn what_a_compaction_replaces_is_not_sent() {
    let compacted = json!([
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "compaction", "content": "So far.", "encrypted_content": null},
            {"type": "tool_use", "id": "b", "name": "ls", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "2"}]},
    ]);
    let mut messages = vec![call("a", "ls"), Message::tool_result("a", "1").into()];
    messages.extend(read(Form::Anthropic, &compacted).unwrap());
    let mut conversation = Conversation::of(&messages);
    conversation.compaction = Some(2);
    let mut report = uses(1);
    report.edits.extend(thinking(1).edits);
    let resolved = resolve(&report, &EditedRequest::new(conversation, None));
    assert_eq!(ids(&resolved), ["b"]);
    assert_eq!(
        resolved.tool_uses[0].call,
        BlockPlace {
            message: 2,
            block: 2
        }
    );
    assert_eq!(resolved.unresolved, [UnresolvedEdit::Thinking(1)]);
    // Without its run the compaction itself is not sent.
    conversation.compaction = None;
    let resolved = resolve(&report, &EditedRequest::new(conversation, None));
    assert_eq!(ids(&resolved), ["a"]);
    assert_eq!(
        resolved.thinking[0].blocks,
        [BlockPlace {
            message: 2,
            block: 0
        }]
    );
}

#[test]
fn an_unknown_edit_is_named_and_edits_of_one_kind_continue() {
    let messages = conversation(&[
        EditStep::Answer {
            thinks: true,
            calls: vec![0, 1],
            server: true,
        },
        EditStep::Prompt,
        EditStep::Answer {
            thinks: true,
            calls: vec![],
            server: false,
        },
    ]);
    let mut report = uses(1);
    report.edits.extend(uses(2).edits);
    report.edits.extend(thinking(1).edits);
    report.edits.extend(thinking(1).edits);
    let other = loopstore_model::Json::parse(r#"{"type":"clear_images_2027"}"#).unwrap();
    report.edits.push(AppliedEdit::Other(other));
    let resolved = resolve(
        &report,
        &EditedRequest::new(Conversation::of(&messages), None),
    );
    assert_eq!(ids(&resolved), ["srv0", "c0-0", "c0-1"]);
    assert_eq!(resolved.thinking.len(), 2);
    let unknown = UnresolvedEdit::Other("clear_images_2027".into());
    assert_eq!(resolved.unresolved, [unknown]);
}
