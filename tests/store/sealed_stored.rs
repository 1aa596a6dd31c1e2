//! Imports and exports of providers' compactions, and damage of the stored compactions.

use std::path::Path;

use loopstore::context::FaultKind;
use loopstore::extend::{Database, append};
use loopstore::provider::Form;
use loopstore::{extend as store, provider, *};
use loopstore_copy::copy;
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};
use loopstore_verify::{ProblemKind, verify};
use serde_json::{Value, json};

use crate::support::keyed;

const TOKEN: &str = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";

fn import(store: &dyn Database, name: &str, text: &str, redact: bool) -> ImportReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let options = ImportOptions {
        redact,
        ..ImportOptions::default()
    };
    import_paths(store, &[path], &options, &mut |_| {}).unwrap()
}

fn exported(store: &dyn Database, id: &SessionId, form: ExportForm) -> String {
    let mut out = Vec::new();
    export(store, id, None, form, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn context(store: &dyn Database, id: &SessionId, provider: SealingProvider) -> Context {
    let options = BuildOptions {
        provider: Some(provider),
        ..BuildOptions::default()
    };
    build_context_from_session(store, id, &options).unwrap()
}

fn strategies(store: &dyn Database, id: &SessionId) -> Vec<String> {
    let rows = store.run_rows(Some(id)).unwrap();
    rows.iter()
        .map(|row| row.text("strategy").unwrap())
        .collect()
}

fn sealed_problems(store: &dyn Database) -> Vec<String> {
    let report = verify(store).unwrap();
    let sealed = report.problems.into_iter();
    let sealed = sealed.filter(|problem| problem.kind == ProblemKind::Sealed);
    sealed.map(|problem| problem.detail).collect()
}

fn assert_sound(store: &dyn Database) {
    let report = verify(store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

fn say(text: &str) -> Value {
    json!({"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn ask(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn reasoning(sealed: &str) -> Value {
    json!({"type": "reasoning", "id": "rs_1", "encrypted_content": sealed, "summary": []})
}

fn compaction(sealed: &str) -> Value {
    json!({"type": "compaction", "id": "cmp_1", "encrypted_content": sealed})
}

/// Returns a Codex rollout with these items; `compacted` is a record of its own.
fn rollout(items: &[Value]) -> String {
    let record = |kind: &str, payload: &Value| {
        json!({"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}).to_string()
    };
    let mut lines = vec![record("session_meta", &json!({"id": "rollout"}))];
    lines.extend(items.iter().map(|item| match item["type"] == "compacted" {
        true => record("compacted", &item["payload"]),
        false => record("response_item", item),
    }));
    lines.join("\n")
}

fn replaced(sealed: &str) -> Value {
    json!({"type": "compacted", "payload": {"message": "", "replacement_history": [
        ask("Will it rain?"), {"type": "compaction", "encrypted_content": sealed}]}})
}

/// Returns files in each form that contains compactions, with their provider.
fn transcripts() -> Vec<(&'static str, SealingProvider, String)> {
    use SealingProvider::{Anthropic, OpenAi};
    let items = [
        ask("Will it rain?"),
        say("Yes."),
        ask("And then?"),
        compaction("sealed bytes"),
        say("Hail."),
        ask("Thanks."),
    ];
    let replaced = [
        ask("Will it rain?"),
        say("Yes."),
        replaced("sealed bytes"),
        ask("And then?"),
        say("Hail."),
    ];
    let anthropic = json!({"messages": [
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": [{"type": "compaction", "content": "sealed bytes"},
            {"type": "text", "text": "Hail."}]},
        {"role": "user", "content": "Thanks."}]});
    vec![
        ("rollout-items.jsonl", OpenAi, rollout(&items)),
        ("rollout-replaced.jsonl", OpenAi, rollout(&replaced)),
        ("request.json", OpenAi, json!({"input": items}).to_string()),
        ("messages.json", Anthropic, anthropic.to_string()),
    ]
}

fn form(provider: SealingProvider) -> Form {
    match provider {
        SealingProvider::OpenAi => Form::OpenAiResponses,
        SealingProvider::Anthropic => Form::Anthropic,
    }
}

#[test]
fn every_transcript_with_a_compaction_makes_a_run_and_comes_out_and_in_as_it_was() {
    for (name, own, text) in transcripts() {
        let store = SqliteStore::in_memory().unwrap();
        let report = import(&store, name, &text, false);
        let id = &report.sessions[0];
        assert_eq!(strategies(&store, id), [own.strategy()], "{name}");
        let sealed = context(&store, id, own);
        assert!(sealed.compaction.is_some(), "{name}");
        assert_eq!(sealed.faults, [], "{name}");
        assert_sound(&store);
        let again = import(&store, name, &text, false);
        assert_eq!(again.added_messages, 0, "{name}");
        assert_eq!(strategies(&store, id).len(), 1, "{name}");

        // In the provider's form the compaction follows the messages that it was made from.
        let request = exported(&store, id, ExportForm::Request(form(own)));
        assert_eq!(
            request.matches("sealed bytes").count(),
            1,
            "{name}: {request}"
        );
        if own == SealingProvider::OpenAi {
            let at = |what: &str| request.find(what).unwrap();
            assert!(at("Yes.") < at("sealed bytes"), "{name}");
            assert!(at("sealed bytes") < at("Hail."), "{name}");
            let back = SqliteStore::in_memory().unwrap();
            let report = import(&back, "request.json", &request, false);
            assert_eq!(
                strategies(&back, &report.sessions[0]),
                [own.strategy()],
                "{name}"
            );
        }

        // loopstore's own lines, and a copy: the same session, byte for byte.
        let lines = exported(&store, id, ExportForm::Lines);
        let back = SqliteStore::in_memory().unwrap();
        let report = import(&back, "lines.jsonl", &lines, false);
        assert_eq!(report.sessions, std::slice::from_ref(id), "{name}");
        let folder = tempfile::tempdir().unwrap();
        let copied = SqliteStore::in_memory().unwrap();
        copy(&store, &copied, folder.path(), &mut |_, _| {}).unwrap();
        for (what, other) in [("lines", &back), ("copy", &copied)] {
            assert_sound(other);
            assert_eq!(
                exported(other, id, ExportForm::Lines),
                lines,
                "{name}: {what}"
            );
            assert_eq!(
                context(other, id, own).messages,
                sealed.messages,
                "{name}: {what}"
            );
        }
        let mut broken: Vec<&str> = lines.lines().collect();
        broken.pop();
        let cut = broken.join("\n");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut.jsonl");
        std::fs::write(&path, cut).unwrap();
        let cut = SqliteStore::in_memory().unwrap();
        drop(import_paths(
            &cut,
            &[path],
            &ImportOptions::default(),
            &mut |_| {},
        ));
        assert_sound(&cut);
    }
}

#[test]
fn an_import_that_redacts_drops_what_was_sealed_over_a_secret() {
    let secret = format!("clone with {TOKEN}");
    let call = json!({"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": secret});
    let items = |output: &Value| {
        vec![
            ask("Will it rain?"),
            reasoning("before"),
            say("Yes."),
            ask("And then?"),
            reasoning("same turn"),
            call.clone(),
            output.clone(),
            ask("Well?"),
            compaction("over it"),
            say("Hail."),
            ask("Thanks."),
        ]
    };
    let plain = json!({"type": "function_call_output", "call_id": "c1", "output": "done"});
    let mut with_replaced = items(&output);
    with_replaced[8] = replaced("over it");
    for (items, goes) in [
        (items(&output), true),
        (items(&plain), false),
        (with_replaced, true),
    ] {
        let store = SqliteStore::in_memory().unwrap();
        let report = import(&store, "rollout.jsonl", &rollout(&items), true);
        let id = &report.sessions[0];
        let whole = exported(&store, id, ExportForm::Lines);
        assert!(!whole.contains(TOKEN));
        assert!(whole.contains("\"before\""), "{whole}");
        assert_eq!(whole.contains("\"same turn\""), !goes, "{whole}");
        let in_messages = whole.contains("\"over it\"");
        assert_eq!(in_messages, !goes, "{whole}");
        assert_eq!(strategies(&store, id).is_empty(), goes);
        assert_sound(&store);
        // Nothing of it is imported again.
        let again = import(&store, "rollout.jsonl", &rollout(&items), true);
        assert_eq!(again.added_messages, 0);
        assert_eq!(exported(&store, id, ExportForm::Lines), whole);
    }
}

/// Alters a stored compaction without regard to the guards.
fn tamper(path: &Path, table: &str, column: &str) {
    let connection = keyed::raw(path).unwrap();
    let mut names = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?1")
        .unwrap();
    let names: Vec<String> = names
        .query_map([table], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for name in names {
        connection
            .execute_batch(&format!("DROP TRIGGER {name}"))
            .unwrap();
    }
    let sql = format!(
        "UPDATE {table} SET {column} = replace({column}, 'sealed bytes', 'forged bytes')
         WHERE {column} LIKE '%sealed bytes%'"
    );
    assert_eq!(connection.execute(&sql, []).unwrap(), 1, "{table}");
}

#[test]
fn an_altered_compaction_is_found_by_verify_and_by_a_build() {
    let tables = ["messages", "messages", "messages", "messages"];
    for ((name, own, text), table) in transcripts().into_iter().zip(tables) {
        let table = match name {
            "rollout-replaced.jsonl" => "block_messages",
            _ => table,
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let store = SqliteStore::open(&path).unwrap();
        let id = import(&store, name, &text, false).sessions[0].clone();
        drop(store);
        tamper(&path, table, "head");
        let store = SqliteStore::open(&path).unwrap();
        let details = sealed_problems(&store);
        assert_eq!(details.len(), 1, "{name}: {details:?}");
        assert!(details[0].starts_with("altered"), "{name}: {details:?}");
        let kinds: Vec<_> = context(&store, &id, own)
            .faults
            .into_iter()
            .map(|f| f.kind)
            .collect();
        assert_eq!(kinds, [FaultKind::AlteredSealed], "{name}");
        repair_session(&store, &id, &CompactRequest::default()).unwrap();
        assert_eq!(sealed_problems(&store), [""; 0], "{name}");
        assert_eq!(context(&store, &id, own).compaction, None, "{name}");
    }
}

#[test]
fn a_compaction_that_no_run_tells_of_is_found_and_repaired() {
    let store = Store::in_memory().unwrap();
    let own = SealingProvider::OpenAi;
    let chat = store
        .session("orphan")
        .unwrap()
        .with_policy(Policy::new(100_000).provider(own));
    chat.append([Message::user("Will it rain?"), Message::assistant("Yes.")])
        .unwrap();
    // Without the front door nothing writes the run.
    let items = json!([compaction("sealed bytes"), say("Hail.")]);
    let messages = provider::read(Form::OpenAiResponses, &items).unwrap();
    let messages = messages.into_iter().map(Into::into).collect();
    let database = store.database();
    store::write(database, |write| {
        let session = write.session(chat.id())?.unwrap();
        let key = session.current_loop.unwrap();
        append::append(write, key, messages, database.counter())
    })
    .unwrap();
    let details = sealed_problems(database);
    assert_eq!(details.len(), 1, "{details:?}");
    assert!(
        details[0].starts_with("orphaned: no run tells"),
        "{details:?}"
    );
    let context = chat.context().unwrap();
    assert_eq!((context.messages.len(), context.compaction), (3, None));
    assert_eq!(context.faults[0].kind, FaultKind::OrphanedSealed);
    let request = chat.prepare().unwrap().to(Form::OpenAiResponses).unwrap();
    assert!(!request.to_string().contains("sealed bytes"));
    let repaired = chat.repair(&CompactRequest::default()).unwrap();
    assert_eq!((repaired.undone.len(), repaired.missing), (1, 0));
    assert_sound(database);
    assert_eq!(chat.context().unwrap().faults, []);
}
