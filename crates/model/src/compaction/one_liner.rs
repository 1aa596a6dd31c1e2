//! The strategy of phi-core: one line for each answer.

use super::config::CompactionConfig;
use super::slice::{LoopSlice, ReadError, RollupSlice};
use super::strategy::{BlockCompactionStrategy, StrategyError, Summary};
use crate::tokens::estimate_tokens;
use crate::{AgentMessage, AssistantMessage, Content, Message, Turns, UserMessage};

/// Longer texts are left out of a one-liner, in bytes.
const SHORT_TEXT_BYTES: usize = 200;

/// Returns the line of an answer: `[Summary] ` and the answer's texts of at most 200 bytes, joined by spaces. If
/// there is no such text, the line has the number of tool calls; without calls it is `[Assistant response]`.
///
/// ```
/// use loopstore_model::compaction::one_liner;
/// use loopstore_model::{AssistantMessage, Content};
///
/// let content = vec![Content::text("The roof leaks.")];
/// let answer = AssistantMessage { content, ..AssistantMessage::default() };
/// assert_eq!(one_liner(&answer), "[Summary] The roof leaks.");
/// ```
pub fn one_liner(message: &AssistantMessage) -> String {
    format!("[Summary] {}", gist(&message.content))
}

fn gist(content: &[Content]) -> String {
    let short: Vec<&str> = content
        .iter()
        .filter_map(|block| match block {
            Content::Text(text) if text.text.len() <= SHORT_TEXT_BYTES => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    let calls = content
        .iter()
        .filter(|block| matches!(block, Content::ToolCall(_)))
        .count();
    match (short.is_empty(), calls) {
        (false, _) => short.join(" "),
        (true, 0) => "[Assistant response]".into(),
        (true, calls) => format!("[Assistant used {calls} tool(s)]"),
    }
}

/// The first line of a rollup of lines.
const ROLLUP_HEAD: &str = "[Summary of earlier loops]";

/// Returns a rollup with the lines of the loops' summaries and a line for each answer, the newest that fit `most`
/// tokens.
pub(super) fn rollup_of_lines(slice: &RollupSlice<'_>, most: u64) -> Result<Summary, ReadError> {
    let mut lines: Vec<String> = Vec::new();
    for at in 0..slice.loops().len() {
        for (turn, message) in slice.messages(at)? {
            match message.message() {
                Some(Message::Assistant(answer)) => lines.push(one_liner(answer)),
                Some(prompt @ Message::User(_)) if turn.is_none() => {
                    lines.extend(prompt.texts().flat_map(str::lines).map(str::to_owned));
                }
                _ => {}
            }
        }
    }
    lines.retain(|line| line != ROLLUP_HEAD && !line.is_empty());
    let message = |lines: &[String]| {
        AgentMessage::from(Message::user(format!(
            "{ROLLUP_HEAD}\n{}",
            lines.join("\n")
        )))
    };
    // A longer list never has fewer tokens.
    let counter = slice.counter();
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if counter.message_tokens(&message(&lines[middle..])) <= most {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let mut summary = Summary::default();
    if low < lines.len() {
        summary.messages.push(message(&lines[low..]));
    }
    Ok(summary)
}

/// The strategy of phi-core: a summary with one line for each answer, up to the most tokens of a summary.
///
/// Prompts and tool results are dropped. A line costs the estimated tokens of its text.
///
/// ```
/// use loopstore_model::compaction::{BlockCompactionStrategy, CompactionConfig, DefaultBlockCompaction};
/// use std::sync::Arc;
///
/// let mut config = CompactionConfig::default();
/// config.block_strategy = Some(Arc::new(DefaultBlockCompaction));
/// assert_eq!(DefaultBlockCompaction.name(), "one-liner");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultBlockCompaction;

impl BlockCompactionStrategy for DefaultBlockCompaction {
    fn is_own(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        "one-liner"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let mut summary = Summary::default();
        let mut left = config.max_summary_tokens;
        for placed in slice.messages(turns)? {
            let Some(Message::Assistant(answer)) = placed.message.message() else {
                continue;
            };
            let line = one_liner(answer);
            let Some(rest) = left.checked_sub(estimate_tokens(&line)) else {
                break;
            };
            left = rest;
            summary.turns.insert(placed.turn);
            // The time of the answer: a summary must not depend on the time of the compaction.
            summary
                .messages
                .push(AgentMessage::from(Message::User(UserMessage {
                    content: vec![Content::text(line)],
                    timestamp: answer.timestamp.clone(),
                    ..UserMessage::default()
                })));
        }
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{MemoryTurns, check_promises, texts};
    use super::*;
    use crate::compaction::CancelFlag;
    use crate::tokens::HeuristicTokenCounter;
    use crate::{Json, LoopId};

    #[test]
    fn answers_leave_a_line_each_until_the_tokens_are_used_up() {
        check_promises(&DefaultBlockCompaction);
        let config = CompactionConfig {
            max_summary_tokens: 20,
            ..CompactionConfig::default()
        };
        let slice = MemoryTurns::work(6, 1).slice(1, 1);
        let draft = DefaultBlockCompaction.compact(&slice, &config).unwrap();
        let lines = [
            "[Summary] [Assistant used 1 tool(s)]",
            "[Summary] Mended /src/part_1/mod.rs.",
        ];
        assert_eq!(texts(&draft), lines);
        let (_, summary) = draft.compacted.unwrap();
        assert_eq!(summary.turns.into_iter().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_rollup_keeps_the_newest_lines_that_fit() {
        let loops = ["monday", "tuesday"].map(|id| LoopId::new(id).unwrap());
        let shown = |at: usize| {
            let answer = AssistantMessage {
                content: vec![Content::text(format!("Done {at}."))],
                ..AssistantMessage::default()
            };
            let summary = Message::user("[Summary of earlier loops]\n[Summary] Begun.");
            let earlier = (at == 0).then(|| (None, summary.into()));
            let answer = (Some(3), Message::Assistant(answer).into());
            Ok(earlier.into_iter().chain([answer]).collect())
        };
        let slice = RollupSlice {
            loops: loops.to_vec(),
            extends: true,
            round: 2,
            counter: &HeuristicTokenCounter,
            cancel: &CancelFlag::new(),
            read: &shown,
            strategy: &|_| Ok(None),
            task: &|| Ok(None),
        };
        let text = |most| {
            let summary = rollup_of_lines(&slice, most).unwrap();
            let message = summary.messages.first().and_then(AgentMessage::message);
            message.map(|message| message.texts().collect::<String>())
        };
        let all =
            "[Summary of earlier loops]\n[Summary] Begun.\n[Summary] Done 0.\n[Summary] Done 1.";
        assert_eq!(text(100).as_deref(), Some(all));
        let newest = "[Summary of earlier loops]\n[Summary] Done 1.";
        assert_eq!(text(16).as_deref(), Some(newest));
        assert_eq!(text(5), None);
    }

    fn line(content: Vec<Content>) -> String {
        one_liner(&AssistantMessage {
            content,
            ..Default::default()
        })
    }

    #[test]
    fn short_texts_are_joined_and_long_ones_left_out() {
        let call = Content::tool_call("c", "ls", Json::null());
        let texts = vec![
            Content::text("One."),
            Content::text("x".repeat(201)),
            call,
            Content::text("é".repeat(100)),
        ];
        assert_eq!(line(texts), format!("[Summary] One. {}", "é".repeat(100)));
    }

    #[test]
    fn without_a_short_text_the_tools_are_counted() {
        let call = Content::tool_call("c", "ls", Json::null());
        let long = Content::text("é".repeat(101));
        let calls = vec![long.clone(), call.clone(), call];
        assert_eq!(line(calls), "[Summary] [Assistant used 2 tool(s)]");
        assert_eq!(line(vec![long]), "[Summary] [Assistant response]");
        assert_eq!(line(Vec::new()), "[Summary] [Assistant response]");
    }
}
