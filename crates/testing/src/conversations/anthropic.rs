//! Messages in Anthropic's form.

use serde_json::{Value, json};

use super::{PIXEL, one_of};
use crate::histories::Random;

pub fn messages(random: &mut Random) -> Vec<Value> {
    let is_compacted = random.one_in(3);
    let mut messages = Vec::new();
    if !is_compacted {
        messages
            .push(json!({"role": "user", "content": [{"type": "text", "text": "Will it rain?"}]}));
    }
    let mut marks = 0;
    for turn in 0..1 + random.below(4) {
        let (mut answer, mut back) = (thinking(random), Vec::new());
        if turn == 0 && is_compacted {
            let kept = one_of(
                random,
                vec![
                    json!({"type": "compaction", "content": "So far.", "encrypted_content": null}),
                    json!({"type": "compaction", "content": "So far.", "encrypted_content": "gAAA=",
                        "signature": "c2ln", "tool_changes": []}),
                ],
            );
            answer.insert(0, kept);
        }
        for nth in 0..1 + random.below(4) {
            let (blocks, result) = piece(random.below(KINDS), &format!("{turn}_{nth}"), random);
            answer.extend(blocks);
            back.extend(result);
        }
        back.push(prompt(random));
        if marks < 2 && random.one_in(3) {
            marks += 1;
            let last = back.last_mut().and_then(Value::as_object_mut).unwrap();
            last.insert("cache_control".into(), json!({"type": "ephemeral"}));
        }
        messages.push(json!({"role": "assistant", "content": answer}));
        messages.push(json!({"role": "user", "content": back}));
    }
    messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}));
    messages
}

/// Returns the first blocks of an answer.
fn thinking(random: &mut Random) -> Vec<Value> {
    match random.below(4) {
        0 => vec![json!({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"})],
        1 => vec![json!({"type": "redacted_thinking", "data": "c2VhbGVk+/="})],
        2 => vec![
            json!({"type": "redacted_thinking", "data": "c2VhbGVk"}),
            json!({"type": "thinking", "thinking": "", "signature": "c2ln"}),
        ],
        _ => Vec::new(),
    }
}

/// Returns a message of a user.
fn prompt(random: &mut Random) -> Value {
    let source = json!({"type": "base64", "media_type": "image/png", "data": PIXEL});
    one_of(
        random,
        vec![
            json!({"type": "text", "text": "And? é – 漢字"}),
            json!({"type": "image", "source": source}),
            json!({"type": "image", "source": {"type": "url", "url": "https://a.test/b.png"}}),
            json!({"type": "image", "source": {"type": "file", "file_id": "f1"}}),
            json!({"type": "document", "title": "Rain", "citations": {"enabled": true},
                "source": {"type": "text", "media_type": "text/plain", "data": "rain"}}),
            json!({"type": "document", "source": {"type": "file", "file_id": "f1"}}),
            json!({"type": "search_result", "title": "Rain", "source": "a",
                "content": [{"type": "text", "text": "rain"}]}),
            json!({"type": "container_upload", "file_id": "f1"}),
        ],
    )
}

/// The number of kinds of pieces.
pub const KINDS: u64 = 10;

/// Returns blocks of an answer, and their results.
fn piece(kind: u64, n: &str, random: &mut Random) -> (Vec<Value>, Vec<Value>) {
    let (id, served) = (format!("toolu_{n}"), format!("srvtoolu_{n}"));
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {"z": 1}});
    match kind {
        0 => (vec![json!({"type": "text", "text": "So far."})], vec![]),
        1 => (vec![call(&id)], vec![result(&id, random)]),
        2 => (
            vec![call(&id), call(&format!("{id}b"))],
            vec![result(&id, random), result(&format!("{id}b"), random)],
        ),
        3 => (
            vec![
                json!({"type": "server_tool_use", "id": served, "name": "web_search",
                    "input": {"query": "rain"}}),
                json!({"type": "web_search_tool_result", "tool_use_id": served,
                    "content": [{"type": "web_search_result", "title": "Rain",
                        "url": "https://a.test", "encrypted_content": "gAAA=", "page_age": null}]}),
                json!({"type": "text", "text": "Rain.", "citations": [{
                    "type": "web_search_result_location", "cited_text": "rain",
                    "encrypted_index": "gBBB=", "title": null, "url": "https://a.test"}]}),
            ],
            vec![],
        ),
        4 => (
            vec![
                json!({"type": "server_tool_use", "id": served, "name": "web_fetch",
                    "input": {"url": "https://a.test"}}),
                json!({"type": "web_fetch_tool_result", "tool_use_id": served,
                    "content": {"type": "web_fetch_tool_result_error", "error_code": "unavailable"}}),
            ],
            vec![],
        ),
        5 => (
            vec![
                json!({"type": "server_tool_use", "id": served, "name": "bash_code_execution",
                    "input": {"command": "ls"}}),
                json!({"type": "bash_code_execution_tool_result", "tool_use_id": served,
                    "content": {"type": "bash_code_execution_result", "stdout": "a", "stderr": "",
                        "return_code": 0, "content": []}}),
            ],
            vec![],
        ),
        6 => (
            vec![
                json!({"type": "server_tool_use", "id": served, "name": "code_execution",
                    "input": {"code": "1 + 1"}}),
                json!({"type": "code_execution_tool_result", "tool_use_id": served,
                    "content": {"type": "code_execution_result", "stdout": "2", "stderr": "",
                        "return_code": 0, "content": []}}),
            ],
            vec![],
        ),
        7 => (
            vec![
                json!({"type": "mcp_tool_use", "id": served, "name": "t", "server_name": "s",
                    "input": {}}),
                json!({"type": "mcp_tool_result", "tool_use_id": served, "is_error": false,
                    "content": [{"type": "text", "text": "ok"}]}),
            ],
            vec![],
        ),
        8 => (
            vec![
                json!({"type": "tool_use", "id": id, "name": "look", "input": {},
                "caller": {"type": "direct"}}),
            ],
            vec![result(&id, random)],
        ),
        _ => (
            vec![
                json!({"type": "server_tool_use", "id": served, "name": "tool_search_tool_bm25",
                    "input": {"query": "rain"}}),
                json!({"type": "tool_search_tool_result", "tool_use_id": served,
                    "content": {"type": "tool_search_tool_search_result",
                        "tool_references": [{"type": "tool_reference", "tool_name": "look"}]}}),
            ],
            vec![],
        ),
    }
}

fn result(id: &str, random: &mut Random) -> Value {
    let source = json!({"type": "base64", "media_type": "image/png", "data": PIXEL});
    let content = one_of(
        random,
        vec![
            json!([{"type": "text", "text": "rain"}]),
            json!([]),
            json!([{"type": "image", "source": source}, {"type": "text", "text": "seen"}]),
            json!([{"type": "document", "source": {"type": "url", "url": "https://a.test/b.pdf"}}]),
            json!([{"type": "search_result", "title": "Rain", "source": "a", "content": []}]),
            json!([{"type": "tool_reference", "tool_name": "look"}]),
        ],
    );
    let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
    if random.one_in(4) {
        result["content"] = json!([{"type": "text", "text": "gone"}]);
        result["is_error"] = json!(true);
    }
    result
}
