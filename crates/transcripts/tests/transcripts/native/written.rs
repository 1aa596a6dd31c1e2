//! Hand-written conversations with parts that are missing, late, opaque, failed or foreign.

use loopstore::provider::{MendingKind, NO_RESULT};
use loopstore::{AgentMessage, Author, Content, Json, Message, ToolResultMessage, TurnId};
use loopstore_export::{MendingCount, NativeAgent, NativeSession, write_native};
use serde_json::{Value, json};

use super::{PIXEL, WrittenFile, content_of, harness, image, plain, write_and_read};

fn user(text: &str) -> AgentMessage {
    Message::user(text).into()
}

fn assistant(text: &str) -> AgentMessage {
    Message::assistant(text).into()
}

fn call(id: &str) -> AgentMessage {
    let call = Message::assistant("I look.").with_tool_call(id, "read", json!({"path": "a"}));
    call.into()
}

fn result(id: &str, text: &str) -> AgentMessage {
    Message::tool_result(id, text).into()
}

fn answer(content: Vec<Content>) -> AgentMessage {
    let mut answer = Message::assistant("");
    *answer.content_mut() = content;
    if let Message::Assistant(answer) = &mut answer {
        answer.provider = Some("anthropic".into());
    }
    answer.into()
}

fn sealed(provider: &str, item: &Value) -> Content {
    Content::sealed(provider, Json::of(item).unwrap())
}

fn count(counts: &[MendingCount], kind: MendingKind) -> u64 {
    let counts = counts.iter().filter(|count| count.kind == kind);
    counts.map(|count| count.count).sum()
}

fn each(messages: &[AgentMessage], check: impl Fn(NativeAgent, WrittenFile)) {
    for agent in NativeAgent::ALL {
        check(agent, write_and_read(agent, messages));
    }
}

#[test]
fn a_call_without_its_result_gets_one_that_says_so_and_a_stray_result_is_told() {
    let messages = [user("Go."), call("c1"), user("And?"), result("c9", "lost")];
    each(&messages, |agent, written| {
        let content = plain(&written.messages);
        let none = json!(["toolResult", "c1", "read", true, NO_RESULT]);
        assert_eq!(content[3], none, "{agent:?}");
        assert_eq!(content[4], json!(["user", "And?"]), "{agent:?}");
        let head = "Result of tool call c9, which is not shown here:";
        assert_eq!(content[5], json!(["user", head]), "{agent:?}");
        assert_eq!(content[6], json!(["user", "lost"]), "{agent:?}");
        assert_eq!(content.len(), 7, "{agent:?}");
        let report = written.report;
        assert_eq!(count(&report.left_out, MendingKind::ResultDropped), 0);
        assert_eq!(count(&report.mended, MendingKind::ResultTold), 1);
        assert_eq!(count(&report.mended, MendingKind::ResultAdded), 1);
        assert_eq!(report.messages, 5);
    });
}

#[test]
fn a_late_result_stands_behind_its_call() {
    let messages = [user("Go."), call("c1"), user("And?"), result("c1", "here")];
    each(&messages, |agent, written| {
        let content = plain(&written.messages);
        assert_eq!(content[3][4], "here", "{agent:?}");
        assert_eq!(content[4], json!(["user", "And?"]), "{agent:?}");
        let moved = count(&written.report.mended, MendingKind::ResultMoved);
        assert_eq!(moved, 1, "{agent:?}");
    });
}

#[test]
fn calls_of_one_id_keep_their_own_results() {
    let messages = [
        user("Go."),
        call("c 1"),
        result("c 1", "first"),
        call("c 1"),
        result("c 1", "second"),
    ];
    each(&messages, |agent, written| {
        let content = plain(&written.messages);
        assert_eq!(content[2][1], content[3][1], "{agent:?}");
        assert_eq!(content[5][1], content[6][1], "{agent:?}");
        assert_ne!(content[2][1], content[5][1], "{agent:?}");
        assert_eq!(
            (&content[3][4], &content[6][4]),
            (&json!("first"), &json!("second"))
        );
    });
}

#[test]
fn a_conversation_that_begins_with_an_answer_gets_something_to_answer() {
    each(&[assistant("Yes."), user("Go.")], |agent, written| {
        let content = plain(&written.messages);
        let opening = json!(["user", "[what came before is not included]"]);
        assert_eq!(content[0], opening, "{agent:?}");
        assert_eq!(content[1], json!(["assistant", "Yes."]), "{agent:?}");
        assert_eq!(count(&written.report.mended, MendingKind::UserAdded), 1);
    });
}

#[test]
fn answers_that_follow_each_other_stay_two() {
    let messages = [user("Go."), assistant("One."), assistant("Two.")];
    each(&messages, |agent, written| {
        assert_eq!(
            written
                .messages
                .iter()
                .filter(|m| m.message().is_some())
                .count(),
            3,
            "{agent:?}"
        );
    });
}

#[test]
fn pieces_of_one_answer_are_written_as_one() {
    let piece = |text: &str| assistant(text).in_turn(TurnId::new("l", 0));
    let messages = [user("Go."), piece("One."), piece("Two.")];
    each(&messages, |agent, written| {
        assert_eq!(written.report.messages, 2, "{agent:?}");
        assert_eq!(plain(&written.messages), plain(&messages), "{agent:?}");
        assert_eq!(count(&written.report.mended, MendingKind::Merged), 1);
    });
}

#[test]
fn a_piece_of_which_nothing_is_left_does_not_join_two_answers() {
    let piece = |turn: u32, content: Vec<Content>| answer(content).in_turn(TurnId::new("l", turn));
    let item = json!({"type": "reasoning", "encrypted_content": "gAAA="});
    let messages = [
        user("Go."),
        piece(0, vec![Content::text("One.")]),
        piece(1, vec![sealed("elsewhere", &item)]),
        piece(1, vec![Content::text("Two.")]),
    ];
    each(&messages, |agent, written| {
        assert_eq!(written.report.messages, 3, "{agent:?}");
        let merged = count(&written.report.mended, MendingKind::Merged);
        assert_eq!(merged, 0, "{agent:?}");
    });
}

#[test]
fn sealed_state_goes_to_its_provider_and_is_counted_for_others() {
    let reasoning = json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAA="});
    let compaction = json!({"type": "compaction", "encrypted_content": "gBBB="});
    let redacted = json!({"type": "redacted_thinking", "data": "RRRR"});
    let messages = [
        user("Go."),
        answer(vec![
            sealed("openai", &reasoning),
            sealed("openai", &compaction),
            sealed("anthropic", &redacted),
            Content::text("Done."),
        ]),
    ];
    each(&messages, |agent, written| {
        let report = &written.report;
        let left_out: Vec<(String, u64)> = report
            .left_out
            .iter()
            .map(|count| {
                let is_compaction = count.item.as_deref() == Some("compaction");
                let kind = match is_compaction {
                    true => MendingKind::CompactionDropped,
                    false => MendingKind::ForeignDropped,
                };
                assert_eq!(count.kind, kind);
                let (provider, item) = (count.provider.as_ref(), count.item.as_ref());
                (
                    format!("{} {}", provider.unwrap(), item.unwrap()),
                    count.count,
                )
            })
            .collect();
        let missing = |names: &[&str]| -> Vec<(String, u64)> {
            names.iter().map(|name| ((*name).to_owned(), 1)).collect()
        };
        match agent {
            NativeAgent::Codex => {
                let others = ["anthropic redacted_thinking", "openai compaction"];
                assert_eq!(left_out, missing(&others));
                assert!(written.file.contains("gAAA="));
            }
            _ => {
                let others = ["openai reasoning", "openai compaction"];
                assert_eq!(left_out, missing(&others), "{agent:?}");
                assert!(written.file.contains("RRRR"), "{agent:?}");
            }
        }
        // It is read again as opaque state.
        let sealed = content_of(&written.messages);
        let sealed = sealed.iter().filter(|block| block[0] == "sealed");
        assert_eq!(sealed.count(), 1, "{agent:?}");
        assert!(!written.file.contains("gBBB="), "{agent:?}");
    });
}

#[test]
fn signed_thinking_keeps_its_signature_and_unsigned_is_not_sent_as_signed() {
    let messages = [
        user("Go."),
        answer(vec![
            Content::thinking("Signed.", Some("c2ln".into())),
            Content::thinking("Plain.", None),
            Content::text("Done."),
        ]),
    ];
    each(&messages, |agent, written| {
        let kept: Vec<(String, Option<String>)> = written
            .messages
            .iter()
            .filter_map(AgentMessage::message)
            .flat_map(|message| message.content().to_vec())
            .filter_map(|block| match block {
                Content::Thinking(block) => Some((block.thinking, block.signature)),
                _ => None,
            })
            .collect();
        let signed = ("Signed.".to_owned(), Some("c2ln".to_owned()));
        let plain = ("Plain.".to_owned(), None);
        let wanted = match agent {
            NativeAgent::ClaudeCode => vec![signed],
            NativeAgent::Codex => Vec::new(),
            _ => vec![signed, plain],
        };
        assert_eq!(kept, wanted, "{agent:?}");
        let left_out = count(&written.report.left_out, MendingKind::ThinkingDropped);
        assert_eq!(left_out as usize, 2 - wanted.len(), "{agent:?}");
    });
}

#[test]
fn what_failed_is_still_told_from_what_did_not() {
    let failed = |text: &str| {
        let mut result = Message::tool_result("c1", text).with_error();
        result.content_mut().push(image());
        result
    };
    let messages = [
        user("Go."),
        call("c1"),
        failed("no such file").into(),
        call("c2"),
        result("c2", "fine"),
    ];
    each(&messages, |agent, written| {
        let content = plain(&written.messages);
        let results: Vec<&Value> = content.iter().filter(|b| b[0] == "toolResult").collect();
        assert_eq!(results[0][3], true, "{agent:?}");
        assert_eq!(results[0][4], "no such file", "{agent:?}");
        assert_eq!(results[1][3], false, "{agent:?}");
        // The file contains the image once.
        assert_eq!(written.file.matches(PIXEL).count(), 1, "{agent:?}");
        let moved = count(&written.report.mended, MendingKind::ImageMoved);
        let takes = matches!(agent, NativeAgent::Codex | NativeAgent::Pi);
        assert_eq!(moved, u64::from(!takes), "{agent:?}");
    });
}

#[test]
fn what_no_agent_can_show_is_left_out_and_counted() {
    let tiff = Content::image("AAAA", "image/tiff");
    let other = Content::Other(Json::parse(r#"{"type":"audio","data":"AAAA"}"#).unwrap());
    let mut prompt = Message::user("Look.");
    prompt.content_mut().extend([tiff, other.clone()]);
    let empty = Message::user("  \n");
    let messages = [
        prompt.into(),
        empty.into(),
        answer(vec![other]),
        assistant("Done."),
    ];
    each(&messages, |agent, written| {
        let content = plain(&written.messages);
        let note =
            "[image left out: its 3 bytes, declared as image/tiff, are not PNG, JPEG, GIF or WebP]";
        let shown = [
            json!(["user", "Look."]),
            json!(["user", note]),
            json!(["assistant", "Done."]),
        ];
        assert_eq!(content, shown);
        let report = written.report;
        assert_eq!(count(&report.left_out, MendingKind::BlockDropped), 2);
        assert_eq!(count(&report.left_out, MendingKind::ImageReplaced), 1);
        assert_eq!(count(&report.left_out, MendingKind::EmptyDropped), 2);
        assert_eq!(report.messages, 2, "{agent:?}");
    });
}

#[test]
fn a_custom_tool_of_codex_is_given_its_text_again() {
    let patch = "*** Begin Patch\n*** End Patch";
    let mut call = Content::tool_call("c1", "apply_patch", Json::string(patch));
    if let Content::ToolCall(call) = &mut call {
        call.extra.insert("form", Json::string("custom"));
    }
    let messages = [user("Go."), answer(vec![call]), result("c1", "Success.")];
    let written = write_and_read(NativeAgent::Codex, &messages);
    assert!(written.file.contains(r#""type":"custom_tool_call","#));
    assert!(
        written
            .file
            .contains(r#""type":"custom_tool_call_output","#)
    );
    assert_eq!(plain(&written.messages)[1][3], patch);
    // Other agents require an object.
    let written = write_and_read(NativeAgent::ClaudeCode, &messages);
    assert_eq!(plain(&written.messages)[1][3], json!({"arguments": patch}));
}

#[test]
fn what_a_harness_said_does_not_become_a_persons_prompt() {
    let messages = [
        user("Go."),
        assistant("Yes."),
        harness("The state so far: none."),
        assistant("I see."),
        user("On."),
        harness("It is noon."),
    ];
    each(&messages, |agent, written| {
        // OpenCode begins a loop with every user message.
        if agent != NativeAgent::OpenCode {
            assert_eq!(written.loops, 2, "{agent:?}");
        }
        if matches!(agent, NativeAgent::ClaudeCode | NativeAgent::OpenCode) {
            let authors = written.messages.iter().filter_map(AgentMessage::message);
            let authors = authors.filter(|message| message.author() == Author::Harness);
            assert_eq!(authors.count(), 2, "{agent:?}");
        }
    });
}

#[test]
fn an_answer_that_was_stopped_is_still_one() {
    let mut stopped = Message::assistant("I beg");
    if let Message::Assistant(answer) = &mut stopped {
        answer.stop_reason = Some("aborted".into());
    }
    let messages = [user("Go."), stopped.into(), user("On.")];
    each(&messages, |agent, written| {
        assert_eq!(plain(&written.messages), plain(&messages), "{agent:?}");
        let reasons: Vec<_> = written
            .messages
            .iter()
            .filter_map(|message| match message.message() {
                Some(Message::Assistant(answer)) => answer.stop_reason.as_deref(),
                _ => None,
            })
            .collect();
        if matches!(agent, NativeAgent::Pi | NativeAgent::OpenCode) {
            assert_eq!(reasons, ["aborted"], "{agent:?}");
        }
    });
}

#[test]
fn a_stopped_answer_with_calls_is_not_one_that_agents_leave_out() {
    let mut stopped = call("c1").message().unwrap().clone();
    if let Message::Assistant(answer) = &mut stopped {
        answer.stop_reason = Some("aborted".into());
    }
    each(&[user("Go."), stopped.into()], |agent, written| {
        assert!(!written.file.contains("aborted"), "{agent:?}");
        assert!(!written.file.contains("AbortedError"), "{agent:?}");
    });
}

#[test]
fn numbers_of_arguments_keep_their_digits() {
    let arguments = Json::parse(r#"{"b":1.50,"a":123456789012345678901234567890}"#).unwrap();
    let call = Content::tool_call("c1", "count", arguments);
    let messages = [user("Go."), answer(vec![call]), result("c1", "1")];
    each(&messages, |agent, written| {
        let quoted = written.file.replace('\\', "");
        let digits = r#"{"b":1.50,"a":123456789012345678901234567890}"#;
        assert!(quoted.contains(digits), "{agent:?}\n{}", written.file);
    });
}

#[test]
fn times_never_go_back_and_never_come() {
    let at = |mut message: Message, at: i64| -> AgentMessage {
        let time = Some(at.into());
        match &mut message {
            Message::User(m) => m.timestamp = time,
            Message::Assistant(m) => m.timestamp = time,
            Message::ToolResult(ToolResultMessage { timestamp, .. }) => *timestamp = time,
        }
        message.into()
    };
    let messages = [
        at(Message::user("Go."), 2_000_000_000),
        at(Message::assistant("Yes."), 1_000_000_000),
        at(Message::user("On."), i64::MAX),
        at(Message::assistant("No."), -5),
    ];
    each(&messages, |agent, written| {
        let times: Vec<i64> = written
            .messages
            .iter()
            .filter_map(|message| message.message()?.timestamp())
            .collect();
        assert!(times.is_sorted(), "{agent:?} {times:?}");
        assert_eq!(times[..2], [2_000_000_000; 2], "{agent:?}");
        assert!(times[2] > 1_700_000_000_000 && times[2] < 100_000_000_000_000);
    });
}

#[test]
fn nothing_at_all_is_a_file_that_no_reader_chokes_on() {
    for agent in NativeAgent::ALL {
        let session = NativeSession::new(agent, "/work/app");
        let mut file = Vec::new();
        let report = write_native(&session, &[], &mut file).unwrap();
        assert_eq!(report.messages, 0);
        let text = String::from_utf8(file).unwrap();
        for line in text.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
}

#[test]
fn no_folder_or_title_leads_the_file_elsewhere() {
    for folder in ["/../../etc", "/a\nb", "/\u{0}", "../x", ""] {
        for agent in NativeAgent::ALL {
            let session = NativeSession::new(agent, folder).with_title(Some("../../t".into()));
            let place = session.place();
            assert!(place.is_relative(), "{agent:?} {place:?}");
            let up = std::path::Component::ParentDir;
            assert!(
                place.components().all(|part| part != up),
                "{agent:?} {place:?}"
            );
            assert_eq!(
                place.file_name().unwrap().to_str(),
                Some(&*session.file_name())
            );
        }
    }
}

#[test]
fn every_file_of_a_session_has_an_id_of_its_own() {
    for agent in NativeAgent::ALL {
        let ids = [0; 100].map(|_| NativeSession::new(agent, "/a").id().to_owned());
        let distinct: std::collections::HashSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{agent:?}");
    }
}
