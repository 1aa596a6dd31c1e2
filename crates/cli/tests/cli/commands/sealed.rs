//! State that only a provider can read: what is shown of it, and what is kept.

use serde_json::{Value, json};

use super::appending::append;
use super::stage::Stage;

const CIPHER: &str = "gAAAAABkeepthis";

fn reasoning() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "encrypted_content": CIPHER,
        "summary": [{"type": "summary_text", "text": "Rain likely."}]})
}

fn compaction() -> Value {
    json!({"type": "compaction", "id": "cmp_1", "encrypted_content": CIPHER})
}

/// A stage with a session `s` that holds both.
fn stage() -> Stage {
    let stage = Stage::empty();
    let block = |item: Value| json!({"type": "sealed", "provider": "openai", "item": item});
    let line = json!([
        {"role": "user", "content": [{"type": "text", "text": "Will it rain?"}]},
        {"role": "assistant", "content": [
            block(reasoning()), block(compaction()), {"type": "text", "text": "Yes."}]},
    ]);
    let output = append(&stage, &["s"], format!("{line}\n").as_bytes());
    assert!(output.status.success(), "{output:?}");
    stage
}

#[test]
fn nobody_is_shown_the_ciphertext_of_sealed_state() {
    let stage = stage();
    let [reasoning, compaction] = [reasoning(), compaction()].map(|item| item.to_string().len());
    let labels = [
        format!("(sealed reasoning of openai, {reasoning} bytes)"),
        format!("(sealed compaction of openai, {compaction} bytes)"),
    ];
    for line in [
        "context s",
        "expand s --turns 0",
        "export s --format markdown",
        "replay s",
        "recall rain",
    ] {
        let said = stage.say(line).to_string();
        assert!(!said.contains(CIPHER), "{line}: {said}");
        assert!(said.contains("Rain likely."), "{line}: {said}");
        for label in &labels {
            assert!(said.contains(label), "{line}: {said}");
        }
    }
    for line in ["show s", "search rain", "context s --format openai"] {
        let said = stage.say(line).to_string();
        assert!(!said.contains(CIPHER), "{line}: {said}");
    }
    stage.say("report s -o page.html");
    let page = std::fs::read_to_string(stage.path("page.html")).unwrap();
    assert!(!page.contains(CIPHER));
}

#[test]
fn words_of_ciphertext_are_not_searched_but_a_summary_of_reasoning_is() {
    let stage = stage();
    let hits = |word: &str| stage.json(&format!("search {word}"))["hits"].clone();
    assert_eq!(hits(CIPHER), json!([]));
    assert_eq!(hits("rs_1"), json!([]));
    assert_eq!(hits("likely").as_array().unwrap().len(), 1);
}

#[test]
fn json_gives_sealed_state_as_it_came_and_a_copy_is_the_same() {
    let stage = stage();
    let context = stage.json("context s");
    let item = |at: usize| context["messages"][1]["content"][at]["item"].clone();
    assert_eq!([item(0), item(1)], [reasoning(), compaction()]);
    stage.say("export s --format jsonl -o s.jsonl");
    let lines = std::fs::read_to_string(stage.path("s.jsonl")).unwrap();
    assert!(lines.contains(&compaction().to_string()), "{lines}");
    stage.say("import s.jsonl --db copy.db");
    let copy = stage.json("context s --db copy.db");
    assert_eq!(copy["messages"], context["messages"]);
}
