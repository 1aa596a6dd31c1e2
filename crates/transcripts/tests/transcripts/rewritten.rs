//! Rewritten transcripts that begin with a provider's compaction: only an earlier import contains the messages that the
//! compaction replaces.

use std::path::{Path, PathBuf};

use loopstore::*;
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::{Value, json};

const CIPHER: &str = "gAAAAABkeepthis";

fn prompt(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn answer(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// Returns the conversation before the compaction, and the prompt after it.
fn before() -> Vec<Value> {
    vec![
        prompt("Who mends the roof of house 7?"),
        answer("Ann mends it."),
        prompt("And the door?"),
        answer("Ben mends the door."),
    ]
}

fn responses() -> Vec<Value> {
    vec![
        json!({"type": "compaction", "id": "cmp_1", "encrypted_content": CIPHER}),
        prompt("And the window?"),
        answer("Cem mends the window."),
    ]
}

fn store() -> Store {
    Store::in_memory().unwrap()
}

/// Writes a transcript and imports it. Returns the id of the stored session.
fn imported(store: &Store, file: &Path, text: &str) -> SessionId {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
    came_in(store, file)
}

fn came_in(store: &Store, file: &Path) -> SessionId {
    let files = [PathBuf::from(file)];
    // Lines of items alone do not identify their format.
    let is_items = file.ends_with("chat.jsonl");
    let options = ImportOptions {
        format: is_items.then(|| "responses".into()),
        ..ImportOptions::default()
    };
    let report = import_paths(store.database(), &files, &options, &mut |_| ()).unwrap();
    assert!(report.skipped.is_empty(), "{report:?}");
    let found = &report.sessions;
    assert_eq!(found.len(), 1, "{report:?}");
    found[0].clone()
}

/// Returns items of Responses as lines.
fn lines(items: &[Value]) -> String {
    let line = |item: &Value| {
        let mut item = item.clone();
        if item.get("type").is_none() {
            item["type"] = "message".into();
        }
        format!("{item}\n")
    };
    items.iter().map(line).collect()
}

fn repaired(store: &Store, id: &SessionId) -> RepairReport {
    repair_session(store.database(), id, &CompactRequest::default()).unwrap()
}

fn within(max_context_tokens: u64) -> CompactRequest {
    CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens,
                ..ContextConfig::default()
            },
            CompactionConfig::default(),
        ),
        ..CompactRequest::default()
    }
}

/// Appends until the window is full, and compacts.
fn compacted_later(store: &Store, id: &SessionId) {
    let more = (0..60).flat_map(|n| {
        [
            Message::user(format!("And part {n}?")),
            Message::assistant("Dan does. ".repeat(90)),
        ]
    });
    store.session(id.as_str()).unwrap().append(more).unwrap();
    let later = compact_session_loops(store.database(), id, &within(6_000)).unwrap();
    assert!(later.run.is_some(), "{later:?}");
}

/// Returns the context for other providers, and for the provider itself.
fn shown(store: &Store, id: &SessionId) -> String {
    let ways = [
        None,
        Some(SealingProvider::OpenAi),
        Some(SealingProvider::Anthropic),
    ];
    let texts = ways.map(|provider| {
        let options = BuildOptions {
            provider,
            ..BuildOptions::default()
        };
        let context = build_context_from_session(store.database(), id, &options).unwrap();
        let request = provider::ProviderRequest::new(provider::Form::OpenAiChat, &context.messages);
        serde_json::to_string(&request).unwrap()
    });
    let [one, two, three] = texts;
    assert!(one == two && two == three, "{one}\n{two}\n{three}");
    one
}

fn is_sound(store: &Store) {
    let report = loopstore_verify::verify(store.database()).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// Checks that the context begins with the originals and continues with the later messages.
fn holds_all(text: &str) {
    let at = |words: &str| {
        let found = text.find(words);
        found.unwrap_or_else(|| panic!("`{words}` is lost: {text}"))
    };
    let places = [
        "house 7",
        "Ann mends",
        "Ben mends",
        "And the window",
        "Cem mends",
    ]
    .map(at);
    assert!(places.is_sorted(), "{text}");
    assert!(!text.contains(CIPHER), "{text}");
}

#[test]
fn the_originals_of_a_file_that_was_written_anew_are_those_of_its_earlier_import() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.jsonl");
    let store = store();
    let first = imported(&store, &file, &lines(&before()));
    let second = imported(&store, &file, &lines(&responses()));
    assert_ne!(first, second);
    let dry = CompactRequest {
        dry_run: true,
        ..CompactRequest::default()
    };
    let would = repair_session(store.database(), &second, &dry).unwrap();
    let report = repaired(&store, &second);
    for told in [&would, &report] {
        assert_eq!((told.undone.len(), told.missing), (1, 0), "{told:?}");
        let from = told.originals.as_ref().unwrap();
        assert_eq!(from.session_id, first.as_str());
    }
    holds_all(&shown(&store, &second));
    is_sound(&store);
    // The repair is done, and a later compaction does not repeat it.
    assert_eq!(repaired(&store, &second).undone, [""; 0]);
    compacted_later(&store, &second);
    let text = shown(&store, &second);
    assert!(
        text.contains("house 7") && text.contains("Ben mends"),
        "{text}"
    );
    is_sound(&store);
}

#[test]
fn long_originals_come_back_as_the_document_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.jsonl");
    let store = store();
    let mut long = before();
    for n in 0..80 {
        long.push(prompt(&format!("And room {n}?")));
        long.push(answer(&"It is looked after. ".repeat(40)));
    }
    imported(&store, &file, &lines(&long));
    let id = imported(&store, &file, &lines(&responses()));
    let report = repair_session(store.database(), &id, &within(5_000)).unwrap();
    assert_eq!((report.missing, report.originals.is_some()), (0, true));
    let context = build_context_from_session(store.database(), &id, &BuildOptions::default());
    let tokens = context.unwrap().tokens;
    assert!((500..5_000).contains(&tokens), "{tokens}");
    let text = shown(&store, &id);
    assert!(
        text.contains("house 7") && text.contains("Cem mends"),
        "{text}"
    );
    is_sound(&store);
}

#[test]
fn what_the_answer_says_beside_its_compaction_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.json");
    let store = store();
    let messages = |list: &[Value]| json!({"model": "claude", "messages": list}).to_string();
    let first = imported(&store, &file, &messages(&before()));
    let anew = [
        json!({"role": "assistant", "content": [
            {"type": "compaction", "content": CIPHER},
            {"type": "text", "text": "I go on with the window."}]}),
        prompt("And the window?"),
        answer("Cem mends the window."),
    ];
    let second = imported(&store, &file, &messages(&anew));
    let report = repaired(&store, &second);
    assert_eq!((report.undone.len(), report.missing), (1, 0), "{report:?}");
    assert_eq!(report.originals.unwrap().session_id, first.as_str());
    let text = shown(&store, &second);
    holds_all(&text);
    assert!(text.contains("I go on with the window."), "{text}");
    compacted_later(&store, &second);
    let text = shown(&store, &second);
    for words in ["house 7", "Ben mends", "I go on with the window."] {
        assert!(text.contains(words), "{words}: {text}");
    }
    is_sound(&store);
}

#[test]
fn a_session_whose_transcript_was_written_anew_holds_them_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder
        .path()
        .join("rollout-2026-01-05T09-00-00-0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001.jsonl");
    let record = |kind: &str, payload: Value| json!({"timestamp": "2026-01-05T09:00:00.000Z", "type": kind, "payload": payload});
    let rollout = |head: &[Value], items: Vec<Value>| {
        let items = items.into_iter().map(|mut item| {
            if item.get("type").is_none() {
                let kind = match item["role"] == "user" {
                    true => "input_text",
                    false => "output_text",
                };
                item["type"] = "message".into();
                item["content"] = json!([{"type": kind, "text": item["content"]}]);
            }
            record("response_item", item)
        });
        let all: Vec<Value> = head.iter().cloned().chain(items).collect();
        lines(&all)
    };
    let meta = record(
        "session_meta",
        json!({"id": "0198aaaa-bbbb-7ccc-8ddd-eeeeffff0001", "cwd": "/w", "originator": "codex_cli_rs"}),
    );
    let turn = record("turn_context", json!({"cwd": "/w", "model": "a-model"}));
    let store = store();
    let first = imported(
        &store,
        &file,
        &rollout(std::slice::from_ref(&meta), before()),
    );
    let second = imported(
        &store,
        &file,
        &rollout(&[vec![meta], vec![turn; 4]].concat(), responses()),
    );
    assert_eq!(first, second);
    let report = repaired(&store, &second);
    assert_eq!((report.undone.len(), report.missing), (1, 0), "{report:?}");
    assert_eq!(report.originals.unwrap().session_id, first.as_str());
    holds_all(&shown(&store, &second));
    is_sound(&store);
}

#[test]
fn what_is_said_after_a_cleared_session_is_never_taken_for_what_stood_there() {
    let file = crate::agents::openai_agents::file_of(&before());
    let store = store();
    let first = came_in(&store, &file.path);
    file.clear();
    file.add("s", &responses());
    let second = came_in(&store, &file.path);
    assert_eq!(first, second);
    let context = store.session("s").unwrap().context().unwrap();
    let text = serde_json::to_string(&context.messages).unwrap();
    assert!(
        text.contains("Cem mends") && !text.contains("Ann mends"),
        "{text}"
    );
    let report = repaired(&store, &second);
    assert_eq!((report.undone.len(), report.missing), (1, 0), "{report:?}");
    assert_eq!(report.originals.unwrap().session_id, first.as_str());
    holds_all(&shown(&store, &second));
    is_sound(&store);
}

#[test]
fn no_other_file_and_no_hidden_session_is_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("here/chat.jsonl");
    let store = store();
    imported(
        &store,
        &folder.path().join("there/chat.jsonl"),
        &lines(&before()),
    );
    let first = imported(&store, &file, &lines(&before()[2..]));
    store.session(first.as_str()).unwrap().hide().unwrap();
    let second = imported(&store, &file, &lines(&responses()));
    let report = repaired(&store, &second);
    assert_eq!((report.undone.len(), report.missing), (1, 1), "{report:?}");
    assert_eq!(report.originals, None);
    assert!(!shown(&store, &second).contains("mends the door"));
    is_sound(&store);
}
