//! Edits that Anthropic reports become runs of edits: at each call the context is what the model read. The provider
//! is played by its documented rule: of the tool uses all but the newest `keep` are cleared, oldest first, none of an
//! excluded tool, and only if they have `clear_at_least` tokens; thinking stays in the newest turns.

use std::collections::{BTreeSet, HashSet};

use loopstore::extend as store;
use loopstore::model::*;
use loopstore::provider::{Form, read};
use loopstore::*;
use loopstore_testing::conformance::sealed_runs::policy;
use loopstore_verify::verify;
use serde_json::{Value, json};

/// The setting of the requests.
#[derive(Clone, Default)]
struct Setting {
    /// The number of tool uses from which on the provider clears.
    trigger: usize,
    keep: usize,
    clear_at_least: usize,
    exclude: Vec<&'static str>,
    inputs: bool,
    /// The turns whose thinking stays; `None` if thinking is not cleared.
    thinking: Option<usize>,
}

impl Setting {
    fn edits(&self) -> Value {
        let mut edits = Vec::new();
        if let Some(keep) = self.thinking {
            let keep = json!({"type": "thinking_turns", "value": keep});
            edits.push(json!({"type": "clear_thinking_20251015", "keep": keep}));
        }
        edits.push(json!({
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": self.trigger},
            "keep": {"type": "tool_uses", "value": self.keep},
            "clear_at_least": {"type": "input_tokens", "value": self.clear_at_least},
            "exclude_tools": self.exclude,
            "clear_tool_inputs": self.inputs,
        }));
        json!(edits)
    }
}

/// The content that the provider cleared from a request.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cleared {
    calls: BTreeSet<String>,
    /// The indices of the messages without their thinking.
    thinking: BTreeSet<usize>,
    turns: usize,
}

impl Cleared {
    fn report(&self, setting: Option<&Setting>) -> Value {
        let mut applied = Vec::new();
        if self.turns > 0 {
            applied.push(json!({"type": "clear_thinking_20251015",
                "cleared_thinking_turns": self.turns, "cleared_input_tokens": 100 * self.turns}));
        }
        if !self.calls.is_empty() {
            applied.push(json!({"type": "clear_tool_uses_20250919",
                "cleared_tool_uses": self.calls.len(), "cleared_input_tokens": 1_000}));
        }
        match setting {
            Some(setting) => json!({"applied_edits": applied, "edits": setting.edits()}),
            None => json!({"applied_edits": applied}),
        }
    }
}

fn text_of(message: &Message) -> String {
    message.texts().collect::<Vec<_>>().join("\n")
}

/// The provider's rule.
fn clear(sent: &[AgentMessage], setting: &Setting) -> Cleared {
    let mut cleared = Cleared::default();
    if let Some(keep) = setting.thinking {
        let (mut turns, mut open) = (Vec::new(), Vec::new());
        for (at, message) in sent.iter().enumerate() {
            match message.role() {
                Role::User => turns.push(std::mem::take(&mut open)),
                Role::Assistant if has_thinking(message) => open.push(at),
                _ => {}
            }
        }
        turns.push(open);
        turns.retain(|turn: &Vec<usize>| !turn.is_empty());
        turns.truncate(turns.len().saturating_sub(keep));
        cleared.turns = turns.len();
        cleared.thinking = turns.into_iter().flatten().collect();
    }
    let uses: Vec<&ToolCall> = sent
        .iter()
        .filter_map(AgentMessage::message)
        .flat_map(Message::tool_calls)
        .collect();
    if uses.len() < setting.trigger {
        return cleared;
    }
    let old = uses[..uses.len().saturating_sub(setting.keep)].iter();
    let old: BTreeSet<String> = old
        .filter(|call| !setting.exclude.contains(&call.name.as_str()))
        .map(|call| call.id.clone())
        .collect();
    let size = |message: &AgentMessage| match message.message() {
        Some(Message::ToolResult(result)) if old.contains(&result.tool_call_id) => {
            text_of(&Message::ToolResult(result.clone())).len() / 4
        }
        _ => 0,
    };
    if sent.iter().map(size).sum::<usize>() >= setting.clear_at_least {
        cleared.calls = old;
    }
    cleared
}

fn has_thinking(message: &AgentMessage) -> bool {
    let content = message.message().map_or(&[][..], Message::content);
    content
        .iter()
        .any(|part| matches!(part, Content::Thinking(_)))
}

/// The messages as the model read them, with `#` for each cleared result.
fn read_by_model(sent: &[AgentMessage], cleared: &Cleared, inputs: bool) -> Vec<String> {
    let mut seen = Vec::new();
    for (at, message) in sent.iter().enumerate() {
        let Some(message) = message.message() else {
            continue;
        };
        let mut line = format!("{:?}:", message.role());
        for part in message.content() {
            line += &match (part, message) {
                (Content::Thinking(_), _) if cleared.thinking.contains(&at) => continue,
                (Content::Thinking(thinking), _) => format!(" ({})", thinking.thinking),
                (Content::ToolCall(call), _) if inputs && cleared.calls.contains(&call.id) => {
                    format!(" {} {{}}", call.name)
                }
                (Content::ToolCall(call), _) => {
                    format!(" {} {}", call.name, call.arguments.as_str())
                }
                (_, Message::ToolResult(result))
                    if cleared.calls.contains(&result.tool_call_id) =>
                {
                    " #".into()
                }
                (Content::Text(text), _) if text.text.starts_with("[cleared: ") => " #".into(),
                (Content::Text(text), _) => format!(" {}", text.text),
                (part, _) => format!(" {part:?}"),
            };
        }
        seen.push(line);
    }
    seen
}

/// An answer of the provider.
fn answer(number: usize, call: Option<(&str, &str)>, report: Option<Value>) -> Vec<AgentMessage> {
    let mut content = vec![
        json!({"type": "thinking", "thinking": format!("thought {number}"), "signature": "c2ln"}),
    ];
    content.push(match call {
        Some((id, tool)) => json!({"type": "tool_use", "id": id, "name": tool, "input": {"path": format!("src/{number}.rs")}}),
        None => json!({"type": "text", "text": format!("answer {number}")}),
    });
    let mut answer = json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant",
        "model": "claude-sonnet-4-5", "content": content, "stop_reason": "tool_use",
        "usage": {"input_tokens": 40, "output_tokens": 12}});
    if let Some(report) = report {
        answer["context_management"] = report;
    }
    read(Form::Anthropic, &answer).unwrap()
}

/// The agent's way to keep the conversation.
#[derive(Clone, Copy, PartialEq)]
enum Agent {
    /// It sends the context of the store.
    OfStore,
    /// It sends all that it has, each time, and appends step by step.
    OfItsOwn,
    /// It sends all that it has, and appends all at the end.
    AppendsOnce,
}

/// A conversation of `prompts` prompts with `calls` calls each, and what the model read at each call.
fn converse(
    agent: Agent,
    setting: &Setting,
    tells: bool,
    (prompts, calls): (usize, usize),
) -> (SessionHandle, Vec<Vec<String>>) {
    let chat = Store::in_memory().unwrap().session("edited").unwrap();
    let (mut own, mut seen, mut number) = (Vec::new(), Vec::new(), 0);
    let append = |own: &mut Vec<AgentMessage>, messages: Vec<AgentMessage>| {
        if agent != Agent::AppendsOnce {
            let done = chat.append(messages.clone()).unwrap();
            assert_eq!(done.notes, Vec::<String>::new());
        }
        own.extend(messages);
    };
    for prompt in 0..prompts {
        append(
            &mut own,
            vec![Message::user(format!("prompt {prompt}")).into()],
        );
        for call in 0..=calls {
            let sent = match agent {
                Agent::OfStore => chat.context().unwrap().messages,
                _ => own.clone(),
            };
            let cleared = clear(&sent, setting);
            seen.push(read_by_model(&sent, &cleared, setting.inputs));
            let report = cleared.report(tells.then_some(setting));
            let id = format!("toolu_{number}");
            let tool = ["read", "memory", "list"][number % 3];
            let made = (call < calls).then_some((id.as_str(), tool));
            append(&mut own, answer(number, made, Some(report)));
            if made.is_some() {
                let text = format!(
                    "result {number} {}",
                    "line\n".repeat(100 * (1 + number % 2))
                );
                append(&mut own, vec![Message::tool_result(&id, text).into()]);
            }
            number += 1;
        }
    }
    if agent == Agent::AppendsOnce {
        chat.append(own).unwrap();
    }
    (chat, seen)
}

/// The messages that the model read at each call, as the store has them.
fn recorded(chat: &SessionHandle) -> Vec<Vec<String>> {
    let answers = chat
        .entries(&EntryQuery::new().roles([Role::Assistant]).limit(10_000))
        .unwrap();
    let before = answers.iter().map(|entry| {
        let (loop_id, seq) = (entry.loop_id.clone(), entry.seq);
        let context = chat.context_as_of(AsOf::Before { loop_id, seq }).unwrap();
        assert_eq!(context.faults, []);
        read_by_model(&context.messages, &Cleared::default(), false)
    });
    before.collect()
}

fn is_sound(chat: &SessionHandle) {
    let found = verify(chat.store().database()).unwrap();
    assert_eq!(found.problems, []);
}

fn runs(chat: &SessionHandle) -> Vec<store::RunRow> {
    let mut runs = Vec::new();
    store::read(chat.store().database(), |read| {
        let session = read.session(chat.id())?.unwrap().key;
        read.runs(session, &mut |run| {
            runs.push(run);
            Ok(std::ops::ControlFlow::Continue(()))
        })
    })
    .unwrap();
    runs.reverse();
    runs
}

#[test]
fn the_context_of_each_call_is_what_the_model_read() {
    let settings = [
        Setting {
            keep: 2,
            trigger: 4,
            ..Setting::default()
        },
        Setting {
            keep: 0,
            trigger: 3,
            exclude: vec!["memory"],
            ..Setting::default()
        },
        Setting {
            keep: 1,
            trigger: 1,
            clear_at_least: 400,
            inputs: true,
            ..Setting::default()
        },
        Setting {
            keep: 3,
            trigger: 6,
            thinking: Some(1),
            exclude: vec!["read", "list"],
            ..Setting::default()
        },
        Setting {
            keep: 2,
            trigger: 5,
            thinking: Some(2),
            inputs: true,
            clear_at_least: 150,
            ..Setting::default()
        },
    ];
    for (at, setting) in settings.iter().enumerate() {
        for agent in [Agent::OfStore, Agent::OfItsOwn, Agent::AppendsOnce] {
            let (chat, seen) = converse(agent, setting, true, (4, 3));
            assert_eq!(recorded(&chat), seen, "setting {at}");
            is_sound(&chat);
        }
    }
}

#[test]
fn without_the_setting_the_oldest_are_taken() {
    let setting = Setting {
        keep: 2,
        trigger: 4,
        thinking: Some(1),
        ..Setting::default()
    };
    for agent in [Agent::OfStore, Agent::OfItsOwn] {
        let (chat, seen) = converse(agent, &setting, false, (4, 3));
        assert_eq!(recorded(&chat), seen);
        let runs = runs(&chat);
        assert!(
            runs.iter()
                .all(|run| run.is_edit() && run.strategy == "provider:anthropic")
        );
        assert!(
            runs[0]
                .config
                .contains("without the setting of the request"),
            "{}",
            runs[0].config
        );
    }
}

#[test]
fn a_run_of_reported_edits_is_no_sealed_compaction() {
    let setting = Setting {
        keep: 1,
        trigger: 2,
        ..Setting::default()
    };
    let (chat, _) = converse(Agent::OfStore, &setting, true, (2, 3));
    let policy = policy(Some(SealingProvider::Anthropic));
    let own = chat.clone().with_policy(policy).context().unwrap();
    assert_eq!(
        (own.messages, own.faults),
        (chat.context().unwrap().messages, vec![])
    );
    let repaired = chat.repair(&CompactRequest::default()).unwrap();
    assert!(repaired.undone.is_empty());
    let runs = runs(&chat);
    assert!(
        runs.iter()
            .all(|run| run.sealed_by().is_none() && run.record.is_some())
    );
    // Undone like any other run, last first.
    let before = chat.context().unwrap();
    let undone = chat.undo().unwrap();
    assert_eq!(undone.run_id, runs.last().unwrap().run_id);
    assert!(undone.tokens_after > undone.tokens_before);
    chat.redo().unwrap();
    assert_eq!(chat.context().unwrap().messages, before.messages);
    is_sound(&chat);
}

#[test]
fn a_fork_before_the_call_has_the_edits_of_its_point_only() {
    let setting = Setting {
        keep: 1,
        trigger: 2,
        ..Setting::default()
    };
    let (chat, _) = converse(Agent::OfItsOwn, &setting, true, (1, 5));
    let early = chat
        .fork_at(TurnRef::new("loop-1", 1))
        .unwrap()
        .context()
        .unwrap();
    let marks = |messages: &[AgentMessage]| {
        let seen = read_by_model(messages, &Cleared::default(), false);
        seen.iter().filter(|line| line.ends_with('#')).count()
    };
    assert_eq!(marks(&early.messages), 1);
    assert_eq!(marks(&chat.context().unwrap().messages), 4);
}

#[test]
fn an_append_that_is_repeated_writes_no_second_run() {
    let setting = Setting {
        keep: 0,
        trigger: 1,
        ..Setting::default()
    };
    let (chat, _) = converse(Agent::OfStore, &setting, true, (1, 1));
    let before = runs(&chat).len();
    let last = answer(
        90,
        None,
        Some(json!({"applied_edits": [
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1}]})),
    );
    for _ in 0..2 {
        chat.append_once("call 90", last.clone()).unwrap();
    }
    // Nothing new was cleared either: the result was cleared before.
    assert_eq!(runs(&chat).len(), before);
}

#[test]
fn an_answer_in_parts_is_edited_before_its_first_part() {
    let chat = Store::in_memory().unwrap().session("parts").unwrap();
    let report =
        json!({"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1}]});
    let mut all: Vec<AgentMessage> = vec![Message::user("Will it rain?").into()];
    all.extend(answer(1, Some(("a", "read")), None));
    all.push(Message::tool_result("a", "rain ".repeat(90)).into());
    all.extend(answer(2, None, None));
    let mut end = answer(2, None, Some(report));
    end[0].message_mut().unwrap().content_mut().remove(0);
    all.extend(end);
    let done = chat.append(all).unwrap();
    assert_eq!((done.seqs, done.turns, done.begun.len()), (0..5, 0..2, 1));
    let before = AsOf::Before {
        loop_id: done.loop_id,
        seq: 3,
    };
    let seen = read_by_model(
        &chat.context_as_of(before).unwrap().messages,
        &Cleared::default(),
        false,
    );
    assert_eq!(seen[2], "ToolResult: #");
}

#[test]
fn pinned_messages_stay_and_are_named() {
    let chat = Store::in_memory().unwrap().session("pinned").unwrap();
    chat.append([Message::user("Will it rain?")]).unwrap();
    chat.append(answer(1, Some(("a", "read")), None)).unwrap();
    chat.append([Message::tool_result("a", "rain ".repeat(90))])
        .unwrap();
    chat.append(answer(2, Some(("b", "read")), None)).unwrap();
    chat.append([Message::tool_result("b", "sun ".repeat(90))])
        .unwrap();
    chat.pin(PinRef::message("loop-1", 0, 2)).unwrap();
    let report =
        json!({"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2}]});
    let done = chat.append(answer(3, None, Some(report))).unwrap();
    assert_eq!(
        done.notes,
        ["1 message with cleared content is pinned and still shown"]
    );
    let seen = read_by_model(
        &chat.context().unwrap().messages,
        &Cleared::default(),
        false,
    );
    assert!(
        seen[2].contains("rain") && seen[4].ends_with('#'),
        "{seen:?}"
    );
    assert!(
        runs(&chat)[0].config.contains("cleared 1 tool use"),
        "{}",
        runs(&chat)[0].config
    );
}

#[test]
fn bad_reports_are_named_and_nothing_is_cleared() {
    let uses = |count: Value| json!({"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": count}]});
    let thinking = |count: Value| json!({"applied_edits": [{"type": "clear_thinking_20251015", "cleared_thinking_turns": count}]});
    let not_valid = "is not known or not valid";
    let more = "more as cleared than the context has";
    let cases = [
        (uses(json!(-1)), not_valid),
        (uses(json!(null)), not_valid),
        (uses(json!("8")), not_valid),
        (uses(json!(1_000_000_000_000u64)), more),
        (uses(json!(4)), more),
        (thinking(json!(-7)), not_valid),
        (thinking(json!({"n": 1})), not_valid),
        (
            thinking(json!(9_000_000_000_000_000_000u64)),
            "more than the context has",
        ),
        (
            json!({"applied_edits": [{"type": "clear_images_2027", "cleared": 3}]}),
            "the edit `clear_images_2027`",
        ),
        (
            json!({"applied_edits": [{"cleared": 3}, 7, null, []]}),
            "an edit without a type",
        ),
        (json!({"applied_edits": 7}), "cannot be read"),
        (json!([1]), "cannot be read"),
        (json!("cleared"), "cannot be read"),
    ];
    for (report, expected) in cases {
        let (chat, _) = converse(
            Agent::OfStore,
            &Setting {
                trigger: 99,
                ..Setting::default()
            },
            true,
            (1, 3),
        );
        let before = chat.context().unwrap().messages;
        let last = answer(90, None, Some(report.clone()));
        let done = chat.append(last.clone()).unwrap();
        assert!(
            done.notes.iter().any(|note| note.contains(expected)),
            "{report}: {:?}",
            done.notes
        );
        assert!(runs(&chat).is_empty(), "{report}");
        let after = chat.context().unwrap().messages;
        assert_eq!(after[..before.len()], before, "{report}");
        assert_eq!(after.len(), before.len() + 1);
    }
    // An answer before anything else.
    let chat = Store::in_memory().unwrap().session("first").unwrap();
    let done = chat.append(answer(1, None, Some(uses(json!(2))))).unwrap();
    assert!(
        done.notes[0].contains("nothing is recorded before the answer"),
        "{:?}",
        done.notes
    );
}

#[test]
fn reports_of_named_calls_clear_these_calls() {
    let (chat, _) = converse(
        Agent::OfStore,
        &Setting {
            trigger: 99,
            ..Setting::default()
        },
        true,
        (1, 3),
    );
    let mut last = answer(90, None, None).remove(0);
    let named = ClearedToolUses::of_calls(vec!["toolu_1".into(), "gone".into()]);
    let report = AppliedEdits::new("some-agent", vec![AppliedEdit::ClearedToolUses(named)]);
    last.set_applied_edits(&report).unwrap();
    let done = chat.append([last]).unwrap();
    assert_eq!(
        done.notes,
        ["1 call that `some-agent` reports as cleared: not in the context"]
    );
    let run = runs(&chat).remove(0);
    assert_eq!(run.strategy, "some-agent");
    assert!(run.config.contains("named in its report"), "{}", run.config);
    let cleared: HashSet<usize> = read_by_model(
        &chat.context().unwrap().messages,
        &Cleared::default(),
        false,
    )
    .iter()
    .enumerate()
    .filter(|(_, line)| line.ends_with('#'))
    .map(|(at, _)| at)
    .collect();
    assert_eq!(cleared, HashSet::from([4]));
}
