//! Properties of all random histories.

use std::collections::HashMap;

use super::{calls, config, origin, result, says, user};
use loopstore::compaction::ContextConfig;
use loopstore::extend::compaction::{compact_messages, keep_within_budget};
use loopstore::{AgentMessage, HeuristicTokenCounter, Json, Message, TokenCounter, total_tokens};
use proptest::prelude::*;

/// Returns the sorted ids of calls that have a later result, and of results that have an earlier call.
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

/// True if each call and result that was paired in `before` is paired in `after`.
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
enum MessageStep {
    User(usize),
    Says(usize),
    Calls(u8),
    /// The result of one of the calls so far, or of none.
    Result(u8, usize),
    Note(usize),
}

fn steps() -> impl Strategy<Value = Vec<MessageStep>> {
    let step = prop_oneof![
        2 => (0usize..400).prop_map(MessageStep::User),
        2 => (0usize..400).prop_map(MessageStep::Says),
        3 => (1u8..4).prop_map(MessageStep::Calls),
        6 => (any::<u8>(), 0usize..40).prop_map(|(which, lines)| MessageStep::Result(which, lines)),
        1 => (0usize..50).prop_map(MessageStep::Note),
    ];
    prop::collection::vec(step, 0..60)
}

fn history(steps: &[MessageStep]) -> Vec<AgentMessage> {
    let (mut open, mut next): (Vec<String>, u32) = (Vec::new(), 0);
    let mut messages = Vec::new();
    for step in steps {
        messages.push(match step {
            MessageStep::User(size) => user(&"u".repeat(*size)),
            MessageStep::Says(size) => says(&"a".repeat(*size)),
            MessageStep::Calls(count) => {
                let ids: Vec<String> = (0..*count)
                    .map(|n| format!("c{}", next + u32::from(n)))
                    .collect();
                next += u32::from(*count);
                let message = calls(&ids.iter().map(String::as_str).collect::<Vec<_>>());
                open.extend(ids);
                message
            }
            MessageStep::Result(which, lines) => {
                // Mostly the newest calls, sometimes an old one, sometimes none at all.
                let back = usize::from(*which) % 4;
                let id = match open.len().checked_sub(back + 1) {
                    Some(at) => open.remove(at),
                    None => format!("lost{}", messages.len()),
                };
                result(&id, &"line of output\n".repeat(*lines))
            }
            MessageStep::Note(size) => {
                AgentMessage::extension("note", Json::string(&"n".repeat(*size)))
            }
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

/// Counts no tokens for messages except for their markers, and more for a longer marker.
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
