//! Compaction without a session: each level by example, and all of them against the algorithm
//! that they come from.

use std::collections::HashMap;

use loopstore::compaction::{
    CompactionStrategy, ContextConfig, DefaultCompaction, compact_messages, keep_within_budget,
    one_liner, truncate_head_tail,
};
use loopstore::{
    AgentMessage, AssistantMessage, Content, HeuristicTokenCounter, Json, Message, TokenCounter,
    ToolResultMessage, message_tokens, total_tokens,
};
use proptest::prelude::*;

fn user(text: &str) -> AgentMessage {
    Message::user(text).into()
}

fn says(text: &str) -> AgentMessage {
    let content = vec![Content::text(text)];
    Message::Assistant(AssistantMessage {
        content,
        ..Default::default()
    })
    .into()
}

fn calls(ids: &[&str]) -> AgentMessage {
    let call = |id: &&str| Content::tool_call(*id, "ls", Json::parse("{}").unwrap());
    let content = ids.iter().map(call).collect();
    Message::Assistant(AssistantMessage {
        content,
        ..Default::default()
    })
    .into()
}

fn result(id: &str, text: &str) -> AgentMessage {
    let content = vec![Content::text(text)];
    let (tool_call_id, tool_name) = (id.into(), "ls".into());
    Message::ToolResult(ToolResultMessage {
        tool_call_id,
        tool_name,
        content,
        ..Default::default()
    })
    .into()
}

fn config(budget: u64, keep_first: usize, keep_recent: usize) -> ContextConfig {
    ContextConfig {
        max_context_tokens: budget + 1000,
        system_prompt_tokens: 1000,
        keep_first,
        keep_recent,
        tool_output_max_lines: 4,
    }
}

fn compact(messages: &[AgentMessage], config: &ContextConfig) -> Vec<AgentMessage> {
    let compacted = DefaultCompaction.compact(messages.to_vec(), config);
    let budget = config.max_context_tokens - config.system_prompt_tokens;
    assert!(
        total_tokens(&compacted) <= budget,
        "{compacted:?} is over {budget}"
    );
    compacted
}

fn long() -> String {
    "word ".repeat(80)
}

#[test]
fn what_fits_is_left_alone() {
    let messages = [
        user("a"),
        calls(&["1"]),
        result("1", &"line\n".repeat(9)),
        says("done"),
    ];
    assert_eq!(
        compact(&messages, &config(total_tokens(&messages), 0, 0)),
        messages
    );
}

#[test]
fn level_one_cuts_tool_outputs_only() {
    let lines = "0123456789abcdef0123456789abcdef\n".repeat(20);
    let messages = [
        user(&lines),
        calls(&["1"]),
        result("1", &lines),
        says("done"),
    ];
    let mut expected = messages.to_vec();
    expected[2] = result("1", &truncate_head_tail(&lines, 4).unwrap());
    assert_eq!(
        compact(&messages, &config(total_tokens(&messages) - 1, 0, 0)),
        expected
    );
}

#[test]
fn level_two_makes_old_answers_lines_and_drops_their_results() {
    let messages = [
        user("do"),
        calls(&["1", "2"]),
        result("1", &long()),
        result("2", &long()),
        result("lost", "x"),
        says("short"),
        user("more"),
        says(&long()),
    ];
    let expected = [
        user("do"),
        user("[Summary] [Assistant used 2 tool(s)]"),
        user("[Summary] short"),
        user("more"),
        says(&long()),
    ];
    assert_eq!(compact(&messages, &config(150, 0, 2)), expected);
}

#[test]
fn level_two_keeps_a_call_whose_result_is_recent_if_it_fits() {
    let messages = [
        user(&long()),
        says(&long()),
        calls(&["1"]),
        result("1", "r"),
        says("done"),
    ];
    let kept = [
        user(&long()),
        user("[Summary] [Assistant response]"),
        calls(&["1"]),
        result("1", "r"),
        says("done"),
    ];
    assert_eq!(compact(&messages, &config(total_tokens(&kept), 0, 2)), kept);
}

#[test]
fn level_two_drops_a_recent_result_whose_call_does_not_fit() {
    let call = Content::tool_call("1", "ls", Json::string(&long()));
    let call = Message::Assistant(AssistantMessage {
        content: vec![call],
        ..Default::default()
    });
    let messages = [user("do"), call.into(), result("1", "r"), says("done")];
    let expected = [
        user("do"),
        user("[Summary] [Assistant used 1 tool(s)]"),
        says("done"),
    ];
    assert_eq!(compact(&messages, &config(60, 0, 2)), expected);
}

#[test]
fn level_three_drops_the_middle_behind_a_marker() {
    let mut messages = vec![user("first")];
    messages.extend((0..12).map(|_| user(&long())));
    messages.push(user("last"));
    let expected = [
        user("first"),
        user("[Context compacted: 12 messages removed to fit context window]"),
        user("last"),
    ];
    assert_eq!(compact(&messages, &config(200, 1, 1)), expected);
}

#[test]
fn level_three_joins_a_first_call_with_its_dropped_result() {
    let messages = [
        user("a"),
        user("b"),
        user(&long()),
        user(&long()),
        calls(&["1"]),
        result("1", "r"),
    ];
    let marker = "[Context compacted: 3 messages removed to fit context window]";
    let expected = [user("a"), user(marker), calls(&["1"]), result("1", "r")];
    assert_eq!(
        compact(&messages, &config(total_tokens(&expected), 1, 1)),
        expected
    );
    let expected = [
        user("a"),
        user("[Context compacted: 5 messages removed to fit context window]"),
    ];
    assert_eq!(
        compact(&messages, &config(total_tokens(&expected) + 12, 1, 1)),
        expected
    );
}

#[test]
fn at_last_the_newest_that_fit_stay_and_the_marker_counts() {
    let messages: Vec<_> = (0..5).map(|_| user(&long())).collect();
    let marker = user("[Context compacted: 4 messages removed]");
    let one = message_tokens(&messages[0]);
    let counter = &HeuristicTokenCounter;
    let keep = |budget| keep_within_budget(messages.clone(), budget, counter);
    assert_eq!(
        keep(one + message_tokens(&marker)),
        [marker, messages[4].clone()]
    );
    let alone = user("[Context compacted: 5 messages removed]");
    assert_eq!(
        keep(one + message_tokens(&alone) - 1),
        std::slice::from_ref(&alone)
    );
    assert_eq!(keep(message_tokens(&alone) - 1), []);
    assert_eq!(keep(5 * one), messages);
}

#[test]
fn a_budget_below_the_system_prompt_gives_nothing() {
    let config = ContextConfig {
        max_context_tokens: 10,
        system_prompt_tokens: 11,
        ..ContextConfig::default()
    };
    assert_eq!(DefaultCompaction.compact(vec![user("a")], &config), []);
    assert_eq!(DefaultCompaction.compact(Vec::new(), &config), []);
}

#[test]
fn a_reused_call_id_belongs_to_the_last_call_before() {
    let turn = |text: &str| [calls(&["x"]), result("x", text)];
    let messages: Vec<_> = (0..30).flat_map(|n| turn(&n.to_string())).collect();
    let compacted = compact(&messages, &config(100, 0, 3));
    let call = compacted.iter().position(|m| *m == calls(&["x"])).unwrap();
    assert_eq!(compacted[call..], [turn("28"), turn("29")].concat());
}

/// The algorithm as its description has it; only a budget below the system prompt is 0.
mod origin {
    use super::*;

    pub fn compact_messages(
        messages: &[AgentMessage],
        config: &ContextConfig,
    ) -> Vec<AgentMessage> {
        let budget = config
            .max_context_tokens
            .saturating_sub(config.system_prompt_tokens);
        if total_tokens(messages) <= budget {
            return messages.to_vec();
        }
        let compacted = level1(messages, config.tool_output_max_lines);
        if total_tokens(&compacted) <= budget {
            return compacted;
        }
        let compacted = level2(&compacted, config.keep_recent);
        if total_tokens(&compacted) <= budget {
            return compacted;
        }
        level3(&compacted, config, budget)
    }

    fn level1(messages: &[AgentMessage], max_lines: usize) -> Vec<AgentMessage> {
        let mut messages = messages.to_vec();
        for message in &mut messages {
            if let Some(Message::ToolResult(result)) = message.message_mut() {
                for block in &mut result.content {
                    if let Content::Text(text) = block {
                        text.text = cut(&text.text, max_lines);
                    }
                }
            }
        }
        messages
    }

    fn cut(text: &str, max_lines: usize) -> String {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() <= max_lines {
            return text.into();
        }
        let head = max_lines / 2;
        let tail = max_lines - head;
        let omitted = lines.len() - head - tail;
        lines[0..head].join("\n")
            + &format!("\n\n[... {omitted} lines truncated ...]\n\n")
            + &lines[lines.len() - tail..].join("\n")
    }

    fn level2(messages: &[AgentMessage], keep_recent: usize) -> Vec<AgentMessage> {
        if messages.len() <= keep_recent {
            return messages.to_vec();
        }
        let boundary = messages.len() - keep_recent;
        let is_result = |m: &AgentMessage| matches!(m.message(), Some(Message::ToolResult(_)));
        let (mut result, mut i) = (Vec::new(), 0);
        while i < boundary {
            match messages[i].message() {
                Some(Message::Assistant(answer)) => {
                    result.push(user(&one_liner(answer)));
                    i += 1;
                    while i < boundary && is_result(&messages[i]) {
                        i += 1;
                    }
                    continue;
                }
                Some(Message::ToolResult(_)) => {
                    i += 1;
                    continue;
                }
                _ => result.push(messages[i].clone()),
            }
            i += 1;
        }
        result.extend_from_slice(&messages[boundary..]);
        result
    }

    fn level3(messages: &[AgentMessage], config: &ContextConfig, budget: u64) -> Vec<AgentMessage> {
        let len = messages.len();
        let first_end = config.keep_first.min(len);
        let recent_start = len.saturating_sub(config.keep_recent);
        if first_end >= recent_start {
            return keep_within_budget(messages, budget);
        }
        let removed = recent_start - first_end;
        let text = format!("[Context compacted: {removed} messages removed to fit context window]");
        let result = [
            &messages[..first_end],
            &[user(&text)],
            &messages[recent_start..],
        ]
        .concat();
        if total_tokens(&result) > budget {
            keep_within_budget(&result, budget)
        } else {
            result
        }
    }

    pub fn keep_within_budget(messages: &[AgentMessage], budget: u64) -> Vec<AgentMessage> {
        let (mut result, mut remaining) = (Vec::new(), budget);
        for message in messages.iter().rev() {
            let tokens = message_tokens(message);
            if tokens > remaining {
                break;
            }
            remaining -= tokens;
            result.insert(0, message.clone());
        }
        if result.len() < messages.len() {
            let removed = messages.len() - result.len();
            result.insert(
                0,
                user(&format!("[Context compacted: {removed} messages removed]")),
            );
        }
        result
    }
}

/// Ids of calls that have a result after them, and the reverse; sorted.
fn paired_ids(messages: &[AgentMessage]) -> (Vec<&str>, Vec<&str>) {
    let mut open: HashMap<&str, bool> = HashMap::new();
    let mut results = Vec::new();
    for message in messages.iter().filter_map(AgentMessage::message) {
        match message {
            Message::ToolResult(result) => {
                if let Some(answered) = open.get_mut(result.tool_call_id.as_str()) {
                    *answered = true;
                    results.push(result.tool_call_id.as_str());
                }
            }
            _ => open.extend(message.tool_calls().map(|call| (call.id.as_str(), false))),
        }
    }
    let mut calls: Vec<&str> = open
        .into_iter()
        .filter(|(_, answered)| *answered)
        .map(|(id, _)| id)
        .collect();
    calls.sort_unstable();
    results.sort_unstable();
    (calls, results)
}

fn all_ids(messages: &[AgentMessage]) -> (Vec<&str>, Vec<&str>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for message in messages.iter().filter_map(AgentMessage::message) {
        match message {
            Message::ToolResult(result) => results.push(result.tool_call_id.as_str()),
            _ => calls.extend(message.tool_calls().map(|call| call.id.as_str())),
        }
    }
    (calls, results)
}

/// Whether each call and each result that had its other half in `before` has it in `after`.
fn parts_no_pair(before: &[AgentMessage], after: &[AgentMessage]) -> bool {
    let (paired_calls, paired_results) = paired_ids(before);
    let (calls, results) = all_ids(after);
    let (whole_calls, whole_results) = paired_ids(after);
    calls
        .iter()
        .all(|id| !paired_calls.contains(id) || whole_calls.contains(id))
        && results
            .iter()
            .all(|id| !paired_results.contains(id) || whole_results.contains(id))
}

#[derive(Clone, Debug)]
enum Step {
    User(usize),
    Says(usize),
    Calls(u8),
    /// The result of one of the calls so far, or of none.
    Result(u8, usize),
    Note(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0usize..400).prop_map(Step::User),
        2 => (0usize..400).prop_map(Step::Says),
        3 => (1u8..4).prop_map(Step::Calls),
        6 => (any::<u8>(), 0usize..40).prop_map(|(which, lines)| Step::Result(which, lines)),
        1 => (0usize..50).prop_map(Step::Note),
    ];
    prop::collection::vec(step, 0..60)
}

fn history(steps: &[Step]) -> Vec<AgentMessage> {
    let (mut open, mut next): (Vec<String>, u32) = (Vec::new(), 0);
    let mut messages = Vec::new();
    for step in steps {
        messages.push(match step {
            Step::User(size) => user(&"u".repeat(*size)),
            Step::Says(size) => says(&"a".repeat(*size)),
            Step::Calls(count) => {
                let ids: Vec<String> = (0..*count)
                    .map(|n| format!("c{}", next + u32::from(n)))
                    .collect();
                next += u32::from(*count);
                let message = calls(&ids.iter().map(String::as_str).collect::<Vec<_>>());
                open.extend(ids);
                message
            }
            Step::Result(which, lines) => {
                // Mostly the newest calls, sometimes an old one, sometimes none at all.
                let back = usize::from(*which) % 4;
                let id = match open.len().checked_sub(back + 1) {
                    Some(at) => open.remove(at),
                    None => format!("lost{}", messages.len()),
                };
                result(&id, &"line of output\n".repeat(*lines))
            }
            Step::Note(size) => AgentMessage::extension("note", Json::string(&"n".repeat(*size))),
        });
    }
    messages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_history_fits_with_pairs_whole_and_equals_its_origin_where_that_is_sound(
        steps in steps(),
        share in 0u64..110,
        keep_first in 0usize..6,
        keep_recent in 0usize..14,
        lines in 0usize..12,
    ) {
        let messages = history(&steps);
        let budget = total_tokens(&messages) * share / 100;
        let config = ContextConfig {
            tool_output_max_lines: lines,
            ..config(budget, keep_first, keep_recent)
        };
        let compacted = compact_messages(messages.clone(), &config, &HeuristicTokenCounter);
        prop_assert!(total_tokens(&compacted) <= budget);
        prop_assert!(parts_no_pair(&messages, &compacted));
        let origin = origin::compact_messages(&messages, &config);
        if total_tokens(&origin) <= budget && parts_no_pair(&messages, &origin) {
            prop_assert_eq!(&compacted, &origin);
        }
        let kept = keep_within_budget(messages.clone(), budget, &HeuristicTokenCounter);
        prop_assert!(total_tokens(&kept) <= budget);
        prop_assert!(parts_no_pair(&messages, &kept));
        let origin = origin::keep_within_budget(&messages, budget);
        if total_tokens(&origin) <= budget && parts_no_pair(&messages, &origin) {
            prop_assert_eq!(&kept, &origin);
        }
    }
}

/// Charges nothing for messages but for their markers, more for a longer one.
struct Odd;

impl TokenCounter for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn text_tokens(&self, text: &str) -> u64 {
        text.len() as u64
    }

    fn message_tokens(&self, message: &AgentMessage) -> u64 {
        let text = message
            .message()
            .and_then(|m| m.texts().next())
            .unwrap_or_default();
        if text.starts_with("[Context") {
            text.len() as u64
        } else {
            u64::from(text.len() > 9)
        }
    }
}

#[test]
fn an_odd_counter_is_obeyed_too() {
    let messages: Vec<_> = (0..60)
        .flat_map(|n: u32| {
            [
                calls(&[&n.to_string()]),
                result(&n.to_string(), &"x".repeat(n as usize)),
            ]
        })
        .collect();
    for budget in 0..80 {
        let kept = keep_within_budget(messages.clone(), budget, &Odd);
        assert!(kept.iter().map(|m| Odd.message_tokens(m)).sum::<u64>() <= budget);
        assert!(parts_no_pair(&messages, &kept));
    }
}
