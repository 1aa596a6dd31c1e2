//! State that only a provider can read: how it is shown, and that it is kept.

use std::sync::Arc;

use loopstore::provider::{self, Form};
use loopstore::{Database, SqliteStore, Store};
use serde_json::{Value, json};

use super::appending::append;
use super::stage::Stage;
use crate::support::conversations::{list, request, reversed};
use crate::support::histories::Random;

const CIPHER: &str = "gAAAAABkeepthis";

fn reasoning() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "encrypted_content": CIPHER,
        "summary": [{"type": "summary_text", "text": "Rain likely."}]})
}

fn compaction() -> Value {
    json!({"type": "compaction", "id": "cmp_1", "encrypted_content": CIPHER})
}

/// Creates a stage with a session `s` that contains both kinds.
fn stage() -> Stage {
    let stage = Stage::empty();
    let block = |item: Value| json!({"type": "sealed", "provider": "openai", "item": item});
    let kept = |item: Value| json!({"type": "providerItem", "form": "responses", "item": item});
    let program = json!({"type": "program", "id": "pr_a", "call_id": "p", "code": "open(window)",
        "fingerprint": CIPHER});
    let searched = json!({"type": "file_search_call", "id": "fs_a", "status": "completed",
        "queries": ["rain"], "results": [{"encrypted_content": CIPHER}]});
    let line = json!([
        {"role": "user", "content": [{"type": "text", "text": "Will it rain?"}]},
        {"role": "assistant", "content": [block(reasoning()), block(compaction()), kept(program),
            kept(searched), {"type": "text", "text": "Yes."}]},
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

/// Returns a conversation in each form, with the name of the request's field for it.
fn conversations() -> [(&'static str, &'static str, Value); 3] {
    let anthropic = json!([
        {"role": "user", "content": [{"type": "text", "text": "Will it rain?"}]},
        {"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": CIPHER},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "rain"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]},
            {"type": "document", "source": {"type": "file", "file_id": "f1"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
    ]);
    let responses = json!([
        {"role": "user", "content": "Will it rain?"},
        reasoning(),
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+ umbrella"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "assistant", "content": "Yes."},
    ]);
    let chat = json!([
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "assistant", "content": "Yes."},
    ]);
    [
        ("anthropic", "messages", anthropic),
        ("responses", "input", responses),
        ("openai", "messages", chat),
    ]
}

#[test]
fn each_form_goes_in_and_comes_out_as_it_was() {
    for (form, key, conversation) in conversations() {
        let stage = Stage::empty();
        let line = format!("{conversation}\n");
        let output = append(&stage, &["s", "--format", form], line.as_bytes());
        assert!(output.status.success(), "{form}: {output:?}");
        let request = stage.json(&format!("context s --format {form}"));
        assert_eq!(request[key], conversation, "{form}");
        assert_eq!(request["mended"], json!([]), "{form}");
        let other = if form == "anthropic" {
            "responses"
        } else {
            "anthropic"
        };
        let said = stage
            .say(&format!("context s --format {other}"))
            .to_string();
        assert!(!said.contains(CIPHER), "{form}: {said}");
        let note = "state or an item of another provider was left out";
        assert_eq!(said.contains(note), form != "openai", "{form}: {said}");
    }
}

#[test]
fn conversations_of_every_kind_of_item_come_in_as_the_library_takes_them() {
    for seed in 200..206 {
        for form in Form::ALL {
            let request = request(form, &mut Random::new(seed));
            // The reversed keys are in an order that no map produces, so they show that the text itself is kept.
            let text = reversed(&json!(list(&request)));
            let stage = Stage::empty();
            let output = append(
                &stage,
                &["s", "--format", form.as_str()],
                format!("{text}\n").as_bytes(),
            );
            assert!(output.status.success(), "{form} {seed}: {output:?}");
            let library = Arc::new(SqliteStore::in_memory().unwrap());
            let database: Arc<dyn Database> = library.clone();
            let chat = Store::from(database).session("s").unwrap();
            chat.append(provider::read_str(form, &text).unwrap())
                .unwrap();
            let payloads = |store: &SqliteStore| {
                let sql = "SELECT loop_id, seq, turn, role, payload FROM v_messages ORDER BY 1, 2";
                store.query(sql).unwrap().rows
            };
            let appended = payloads(&stage.store());
            assert_eq!(appended, payloads(&library), "{form} {seed}");
            assert!(appended.len() > 1, "{form} {seed}");
        }
    }
}

#[test]
fn what_is_exported_in_a_form_is_imported_as_the_same_conversation() {
    for (form, key, conversation) in conversations() {
        let stage = Stage::empty();
        let line = format!("{conversation}\n");
        append(&stage, &["s", "--format", form], line.as_bytes());
        stage.say(&format!("export s --format {form} -o exported.json"));
        let report = stage.json("import exported.json --db copy.db");
        assert_eq!(report["skipped"], json!([]), "{form}");
        let sessions = stage.json("sessions --db copy.db");
        let id = sessions[0]["session_id"].as_str().unwrap().to_owned();
        let copy = stage.json(&format!("context {id} --format {form} --db copy.db"));
        assert_eq!(copy[key], conversation, "{form}");
        let format = format!("import exported.json --db forced.db --format {form}");
        if form != "openai" {
            assert_eq!(
                stage.json(&format)["messages"],
                report["messages"],
                "{form}"
            );
        }
    }
}

/// Creates a stage with a session `s` that Anthropic compacted within its second answer.
fn compacted() -> Stage {
    let stage = Stage::empty();
    let lines = [
        json!({"role": "user", "content": "Will it rain?"}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}),
        json!({"role": "user", "content": "And tomorrow?"}),
        json!({"role": "assistant", "content": [
            {"type": "compaction", "content": CIPHER}, {"type": "text", "text": "Hail."}]}),
        json!({"role": "user", "content": "Thanks."}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let output = append(&stage, &["s", "--format", "anthropic"], lines.as_bytes());
    assert!(output.status.success(), "{output:?}");
    stage
}

#[test]
fn a_context_for_the_provider_begins_with_its_compaction_until_a_repair() {
    let stage = compacted();
    let run = stage.json("history s")[0].clone();
    assert_eq!(run["strategy"], "provider:anthropic");
    assert_eq!(run["outcome"], "committed");
    let count = |line: &str| stage.json(line)["messages"].as_array().unwrap().len();
    assert_eq!(count("context s"), 5);
    assert_eq!(count("context s --for openai"), 5);
    assert_eq!(count("context s --for anthropic"), 2);
    for line in [
        "context s --format anthropic",
        "export s --format anthropic",
    ] {
        let request = stage.json(line);
        let first = &request["messages"][0]["content"][0];
        assert_eq!(
            *first,
            json!({"type": "compaction", "content": CIPHER}),
            "{line}"
        );
        assert!(!request.to_string().contains("Will it rain?"), "{line}");
    }
    // A reader for no particular provider gets a note on what is not shown.
    let note = "note: anthropic compacted this session itself, and reads ";
    assert!(stage.say("context s").err.starts_with(note));
    assert_eq!(stage.say("context s --for anthropic").err, "");
    assert!(
        stage
            .say("show s")
            .out
            .contains("(sealed:anthropic, active for anthropic only)")
    );
    for line in ["undo s", "redo s"] {
        let said = stage.say(line).out;
        let end = "of what anthropic reads, from loop loop-3; nothing changed for others\n";
        assert!(said.ends_with(end), "{said}");
    }
    let covered = stage.json("sql SELECT/**/disposition/**/FROM/**/v_coverage");
    assert!(covered.to_string().contains("\"sealed\""), "{covered}");
    let active = "sql SELECT/**/kind,is_active/**/FROM/**/v_compaction_blocks";
    let block = json!([{"kind": "sealed:anthropic", "is_active": 1}]);
    assert_eq!(stage.json(active), block);
    let said = stage
        .say("context s --for anthropic --format openai")
        .to_string();
    assert!(
        said.contains("the context was built for anthropic"),
        "{said}"
    );
    assert!(
        stage
            .say("context s --for google")
            .to_string()
            .contains("one of: openai, anthropic")
    );
    assert_eq!(stage.json("repair s --for openai")["undone"], json!([]));

    let report = stage.json("repair s");
    assert_eq!(report["undone"], json!([run["run_id"]]));
    assert_eq!(
        (&report["missing"], &report["session_id"]),
        (&json!(0), &json!("s"))
    );
    let request = stage.json("context s --format anthropic").to_string();
    assert!(
        request.contains("Will it rain?") && !request.contains(CIPHER),
        "{request}"
    );
    // The compaction is undone from the leaf on; the earlier loop that contains it is unchanged.
    assert_eq!(stage.json(active)[0]["is_active"], 1);
    assert_eq!(count("context s --for anthropic"), 5);
    assert_eq!(stage.say("context s").err, "");
    let said = stage.say("repair s").to_string();
    assert!(said.contains("Nothing to repair"), "{said}");
    assert_eq!(stage.json("verify")["ok"], true);
}

#[test]
fn reasoning_that_its_provider_cannot_read_any_more_is_left_out_when_asked() {
    let stage = stage();
    let request = |flag: &str| stage.json(&format!("context s --for anthropic {flag}"));
    let whole = request("--format responses");
    assert!(whole.to_string().contains("rs_1"), "{whole}");
    let without = request("--format responses --drop-reasoning");
    assert!(!without.to_string().contains("rs_1"), "{without}");
    let mended = without["mended"].as_array().unwrap();
    let is_told = |one: &&Value| one["kind"] == "reasoning_dropped" && one["item"] == "reasoning";
    assert_eq!(mended.iter().filter(is_told).count(), 1, "{without}");
    // The option applies to its own call only; stored reasoning stays.
    assert_eq!(request("--format responses"), whole);
    for line in [
        "context s --drop-reasoning",
        "context s --format openai --drop-reasoning",
    ] {
        let said = stage.say(line);
        assert_eq!(said.code, 2, "{said}");
        let why = "--drop-reasoning needs --format responses or anthropic";
        assert!(said.to_string().contains(why), "{said}");
    }
}

#[test]
fn a_repair_of_no_session_is_an_error() {
    let stage = compacted();
    assert_eq!(stage.say("repair nobody").code, 1);
    assert_eq!(stage.say("repair").code, 2);
}
