//! The original algorithm as described, except that a budget below the system prompt is 0.

use super::user;
use loopstore::compaction::ContextConfig;
use loopstore::extend::compaction::one_liner;
use loopstore::{AgentMessage, Content, Message, message_tokens, total_tokens};

pub fn compact_messages(messages: &[AgentMessage], config: &ContextConfig) -> Vec<AgentMessage> {
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
