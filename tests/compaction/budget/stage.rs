//! A session with one loop, and compactions of it.

use loopstore::compaction::*;
use loopstore::model::*;
use loopstore::*;

use crate::support::histories::{History, answer, result, user};

/// Returns a request to compact to this number of tokens, with one turn kept at the start and four at the end, and no
/// room for later turns: so each step has its own size.
pub fn request(max_context_tokens: u64) -> CompactRequest {
    CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens,
                ..ContextConfig::default()
            },
            CompactionConfig {
                room_turns: 0,
                keep_first_turns: 1,
                keep_recent: KeepRecent::Turns(4),
                max_summary_tokens: 100,
                ..CompactionConfig::default()
            },
        ),
        ..CompactRequest::default()
    }
}

pub fn compact(history: &History<'_>, request: &CompactRequest) -> CompactReport {
    compact_session_loops(history.store, &history.session, request).unwrap()
}

pub fn context(history: &History<'_>) -> Context {
    build_context_from_session(history.store, &history.session, &BuildOptions::default()).unwrap()
}

/// Appends turns of a prompt, a call with an output of `bytes`, and an answer.
pub fn work(history: &History<'_>, turns: std::ops::Range<u32>, bytes: usize) {
    for turn in turns {
        let call = format!("c{turn}");
        history.append(
            history.loops - 1,
            vec![
                user(&format!("please do step {turn}"), turn),
                answer(&format!("doing step {turn}"), &[&call], turn),
                result(&call, vec![output(turn, bytes)], turn),
            ],
        );
    }
}

fn output(turn: u32, bytes: usize) -> Content {
    Content::text(format!("begin-{turn} {} end-{turn}", "x".repeat(bytes)))
}

pub fn texts(context: &Context) -> String {
    let inner = context.messages.iter().filter_map(AgentMessage::message);
    inner
        .flat_map(Message::texts)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the maximum tokens of a context for which the default policy does not compact.
pub fn target(request: &CompactRequest) -> u64 {
    request.policy.target().tokens
}
