//! Messages of other programs in a conversation, and rig's messages after a compaction.

use loopstore::{Content, EntryQuery, KeepRecent, Message as Stored, Policy};
use rig_core::memory::ConversationMemory;
use rig_core::message::{
    AssistantContent, CallId, LocalCallId, Message, StopReason, ToolCall, ToolFunction, ToolName,
    ToolResultContent, UserContent,
};
use serde_json::json;

use crate::support::{fill, id, memory};

#[tokio::test]
async fn what_another_program_appended_is_not_seen() {
    let memory = memory();
    let session = memory.session(&id("c")).unwrap();
    let call = Stored::assistant("I look.")
        .with_thinking("Where?", None)
        .with_tool_call("c1", "forecast", json!({"days": 3}))
        .with_tool_call("c2", "forecast", json!({"days": 4}));
    session
        .append([
            Stored::user("Will it rain?").with_image("aGVsbG8=", "image/png"),
            call,
        ])
        .unwrap();
    session
        .append([
            Stored::tool_result("c1", "Rain."),
            Stored::tool_result("c2", "Sun.").with_error(),
        ])
        .unwrap();
    session
        .append([Stored::assistant("From noon on.")])
        .unwrap();
    let shown = memory.load(&id("c")).await.unwrap();
    let [
        Message::User { content: prompt },
        Message::Assistant(answer),
        Message::User { content: results },
        _,
    ] = shown.as_slice()
    else {
        panic!("{shown:?}");
    };
    assert!(matches!(
        prompt.as_slice(),
        [UserContent::Text(_), UserContent::Image(_)]
    ));
    assert!(matches!(
        answer.content.as_slice(),
        [
            AssistantContent::Reasoning(_),
            AssistantContent::Text(_),
            AssistantContent::ToolCall(_),
            AssistantContent::ToolCall(_)
        ]
    ));
    // The results of one answer are one message, as rig has it.
    let errors: Vec<(String, bool)> = results
        .iter()
        .filter_map(|block| match block {
            UserContent::ToolResult(result) => Some((result.call.to_string(), result.is_error)),
            _ => None,
        })
        .collect();
    assert_eq!(errors, [("c1".to_owned(), false), ("c2".to_owned(), true)]);
}

#[tokio::test]
async fn an_answer_of_another_program_that_was_cut_off_is_sent_to_the_model_again() {
    let memory = memory();
    let session = memory.session(&id("c")).unwrap();
    let mut cut = Stored::assistant("It will");
    if let Stored::Assistant(answer) = &mut cut {
        answer.stop_reason = Some("aborted".into());
    }
    session
        .append([Stored::user("Will it rain?"), cut])
        .unwrap();
    let shown = memory.load(&id("c")).await.unwrap();
    let Some(Message::Assistant(answer)) = shown.last() else {
        panic!("{shown:?}");
    };
    assert!(matches!(answer.stop, Some(StopReason::Aborted(_))));
}

#[tokio::test]
async fn an_output_that_a_compaction_cut_comes_back_whole_or_without_its_id() {
    let memory = memory().with_policy(
        Policy::new(20_000)
            .keep_recent(KeepRecent::Turns(2))
            .keep_first(0)
            .tool_output_lines(5),
    );
    fill(&memory, "c", 20).await;
    let function = ToolFunction::new(ToolName::new("list").unwrap(), json!({}));
    let call = ToolCall::new(CallId::from(LocalCallId::new()), function);
    let lines: Vec<String> = (0..400)
        .map(|line| format!("line {line} of the listing"))
        .collect();
    let result = call.result(vec![ToolResultContent::text(lines.join("\n"))]);
    let turn = vec![
        Message::user("List it."),
        Message::from(AssistantContent::ToolCall(call.clone())),
        Message::from(UserContent::ToolResult(result)),
        Message::assistant("Listed."),
    ];
    memory.append(&id("c"), turn).await.unwrap();
    let session = memory.session(&id("c")).unwrap();
    let mut request = session.policy().request();
    request.trigger = loopstore::CompactTrigger::Force;
    session.compact(&request).unwrap();
    let shown = memory.load(&id("c")).await.unwrap();
    let cut = shown.iter().find_map(|message| match message {
        Message::User { content } => match content.as_slice() {
            [UserContent::ToolResult(result)] => Some(result.clone()),
            _ => None,
        },
        _ => None,
    });
    let cut = cut.unwrap();
    assert_eq!(cut.call, call.id);
    let said = cut.content[0].as_text().unwrap();
    assert!(said.contains("line 0 ") && said.len() < 1_000, "{said}");
    assert_eq!(session.entries(&EntryQuery::new()).unwrap().len(), 44);
}

#[tokio::test]
async fn what_is_said_in_a_message_of_rig_is_not_found_by_its_words() {
    let memory = memory();
    memory
        .append(&id("c"), crate::support::turn_with_tool())
        .await
        .unwrap();
    let session = memory.session(&id("c")).unwrap();
    for words in ["rain?", "Oslo", "forecast", "noon"] {
        assert!(
            !session.store().search(words).unwrap().hits.is_empty(),
            "{words}"
        );
    }
    let entries = session.entries(&EntryQuery::new()).unwrap();
    let calls: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry.message.message())
        .flat_map(Stored::tool_calls)
        .collect();
    assert_eq!(calls[0].name, "forecast");
    assert!(
        matches!(entries[2].message.message().unwrap(), Stored::ToolResult(result) if result.tool_call_id == "call-1")
    );
    assert!(matches!(
        entries[3].message.message().unwrap().content(),
        [Content::Text(_)]
    ));
}
