//! Ids of traces and spans, derived from the ids of the store.

use loopstore::model::{LoopId, SessionId};
use sha2::{Digest, Sha256};

/// Returns the id of the trace of a loop: 16 bytes as hex.
pub(super) fn trace_id(session: &SessionId, loop_id: &LoopId) -> String {
    hex::encode(&digest(&["trace", session.as_str(), loop_id.as_str()])[..16])
}

/// Returns the id of the `invoke_agent` span of a loop: 8 bytes as hex.
pub(super) fn agent_span_id(session: &SessionId, loop_id: &LoopId) -> String {
    span_id(&["invoke_agent", session.as_str(), loop_id.as_str()])
}

/// Returns the id of the `chat` span of the answer that begins with the message `seq`.
pub(super) fn chat_span_id(session: &SessionId, loop_id: &LoopId, seq: u32) -> String {
    span_id(&["chat", session.as_str(), loop_id.as_str(), &seq.to_string()])
}

/// Returns the id of the `execute_tool` span of a call; `nth` counts the calls of the loop with this id, from 0.
pub(super) fn tool_span_id(
    session: &SessionId,
    loop_id: &LoopId,
    call_id: &str,
    nth: u32,
) -> String {
    span_id(&[
        "execute_tool",
        session.as_str(),
        loop_id.as_str(),
        call_id,
        &nth.to_string(),
    ])
}

/// Returns the id of the `execute_tool` span of a result, the message `seq`, whose call is not recorded.
pub(super) fn result_span_id(session: &SessionId, loop_id: &LoopId, seq: u32) -> String {
    span_id(&[
        "tool_result",
        session.as_str(),
        loop_id.as_str(),
        &seq.to_string(),
    ])
}

fn span_id(parts: &[&str]) -> String {
    hex::encode(&digest(parts)[..8])
}

/// Returns the digest of the parts. Each is preceded by its length, so that no two lists have the same bytes.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"loopstore otlp 1");
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_depend_on_each_part_and_stay_the_same() {
        let session = |id| SessionId::new(id).unwrap();
        let loop_id = |id| LoopId::new(id).unwrap();
        let one = tool_span_id(&session("s"), &loop_id("l"), "c1", 0);
        assert_eq!(one.len(), 16);
        assert_eq!(one, tool_span_id(&session("s"), &loop_id("l"), "c1", 0));
        assert_ne!(one, tool_span_id(&session("s"), &loop_id("l"), "c1", 1));
        assert_ne!(one, tool_span_id(&session("s"), &loop_id("lc"), "1", 0));
        assert_eq!(trace_id(&session("s"), &loop_id("l")).len(), 32);
        assert_eq!(
            agent_span_id(&session("s"), &loop_id("l")),
            "c2d3156883decd4a",
            "the ids of earlier exports"
        );
    }
}
