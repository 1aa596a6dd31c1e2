//! `eval recall` and `eval cost`: the share of evidence that a search finds, and what contexts cost.

use insta::assert_snapshot;

use crate::commands::stage::Stage;

const CASE: &str = r#"{
    "sessions": [
        {"id": "may", "messages": [
            {"id": "m1", "author": "user", "text": "Which port does the gateway listen on?"},
            {"id": "m2", "author": "assistant", "text": "It listens on 8443, behind the load balancer."}]},
        {"id": "june", "messages": [
            {"id": "j1", "author": "user", "text": "The kite needs a longer tail."},
            {"id": "j2", "author": "assistant", "text": "I sewed one of two metres."}]}],
    "questions": [
        {"question": "What port does the gateway use?", "evidence": ["m1", "m2"]},
        {"question": "How long is the tail of the kite?", "evidence": ["j2"]},
        {"question": "Who sold the boat?", "evidence": []}]}"#;

#[test]
fn the_recall_of_searches_is_measured_by_messages_and_sessions() {
    let stage = Stage::empty();
    std::fs::write(stage.path("case.json"), CASE).unwrap();
    let said = stage.say("eval recall case.json --at 1 --at 2").out;
    assert!(said.starts_with("1 case, 2 questions; 1 question without evidence skipped\n"));
    assert!(said.contains("any@2") && !said.contains("any@5"), "{said}");
    let report = stage.json("eval recall case.json --role user");
    assert_eq!(report["questions"], 2);
    assert_eq!(report["skipped"], 1);
    // The answers are messages of the agent.
    assert_eq!(report["messages"][2]["all"], 0.0);
    assert_eq!(report["sessions"][0]["any"], 1.0);
}

#[test]
fn cases_without_evidence_or_with_unknown_evidence_are_named() {
    let stage = Stage::empty();
    let unknown = CASE.replace(r#"["j2"]"#, r#"["j9"]"#);
    for (name, text) in [
        ("broken", "{"),
        ("silent", r#"{"sessions": [], "questions": []}"#),
        ("unknown", &unknown),
    ] {
        std::fs::write(stage.path(&format!("{name}.json")), text).unwrap();
    }
    assert_snapshot!(stage.say("eval recall broken.json"), @"
    --- stderr
    error: broken.json: EOF while parsing an object at line 1 column 1
    --- exit 1
    ");
    assert_snapshot!(stage.say("eval recall silent.json"), @"
    --- stderr
    error: silent.json: there are no messages
    --- exit 1
    ");
    assert_snapshot!(stage.say("eval recall unknown.json"), @"
    --- stderr
    error: no message has the id `j9`, which is evidence
    --- exit 1
    ");
    assert_eq!(stage.say("eval recall").code, 2);
    assert_eq!(stage.say("eval recall silent.json --at 0").code, 2);
}

/// Returns a transcript in which an agent reads one file again and again.
fn transcript() -> String {
    let mut messages = Vec::new();
    for step in 0..40 {
        let id = format!("c{step}");
        let lines = format!("line {step} of the file\n").repeat(60);
        messages.extend([
            serde_json::json!({"role": "user", "content": format!("Do step {step}.")}),
            serde_json::json!({"role": "assistant", "content": "I look.", "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "Read", "arguments": "{\"file_path\": \"/a.rs\"}"}}]}),
            serde_json::json!({"role": "tool", "tool_call_id": id, "content": lines}),
            serde_json::json!({"role": "assistant", "content": format!("Step {step} is done.")}),
        ]);
    }
    serde_json::Value::from(messages).to_string()
}

#[test]
fn the_cost_of_each_policy_is_measured_call_by_call() {
    let stage = Stage::empty();
    std::fs::write(stage.path("work.json"), transcript()).unwrap();
    let report = stage.json("eval cost work.json");
    let of = |policy: &str| {
        let results = report["results"].as_array().unwrap();
        let one = results.iter().find(|one| one["policy"] == policy);
        one.unwrap().clone()
    };
    assert_eq!(of("never")["calls"], 80);
    assert_eq!(of("never")["compactions"], 0);
    for policy in ["headroom", "target", "clear", "clear-first"] {
        assert!(of(policy)["broken"].as_f64().unwrap() > 0.0, "{policy}");
        // Clearing alone leaves what is no result of a tool.
        assert_eq!(of(policy)["over"] == 0, policy != "clear", "{policy}");
    }
    // Without a cache, everything that is sent has the same price.
    let flat = "eval cost work.json --price-cached 1 --price-written 1";
    let flat = stage.json(flat);
    assert_eq!(flat["results"][1]["broken"], 0.0);
    let said = stage.say("eval cost work.json --window 3k");
    assert!(said.out.contains("BILL OF ONE") && said.out.contains("clear-first"));
    assert_eq!(stage.say("eval cost").code, 2);
    assert_eq!(stage.say("eval cost work.json --price-cached free").code, 2);
}

#[test]
fn transcripts_that_are_too_short_for_a_compaction_are_refused() {
    let stage = Stage::empty();
    std::fs::write(
        stage.path("short.json"),
        r#"[{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]"#,
    )
    .unwrap();
    assert_snapshot!(stage.say("eval cost short.json"), @"
    --- stderr
    error: 1 session imported, and none is long enough to be compacted
    --- exit 1
    ");
}
