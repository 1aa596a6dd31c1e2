//! Compactions that only their provider can read: runs that apply to that provider alone.

use loopstore::model::*;
use loopstore::provider::{self, Form, MendingKind, ProviderError, ProviderRequest};
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_verify::verify;
use serde_json::{Value, json};

pub const SECRET: &str = "https://me:hunter2hunter2@example.org/x";

pub fn form(provider: SealingProvider) -> Form {
    match provider {
        SealingProvider::OpenAi => Form::OpenAiResponses,
        SealingProvider::Anthropic => Form::Anthropic,
    }
}

/// Returns the answer of a provider that compacts within it.
pub fn compacted(provider: SealingProvider, text: &str) -> Value {
    match provider {
        SealingProvider::OpenAi => json!([
            {"type": "compaction", "id": "cmp_1", "encrypted_content": text},
            {"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "Rain.", "annotations": []}]},
        ]),
        SealingProvider::Anthropic => json!({"role": "assistant", "content": [
            {"type": "compaction", "content": text},
            {"type": "text", "text": "Rain."},
        ]}),
    }
}

pub fn policy(provider: Option<SealingProvider>) -> Policy {
    let policy = Policy::new(100_000);
    match provider {
        Some(provider) => policy.provider(provider),
        None => policy,
    }
}

pub fn say(chat: &SessionHandle, provider: SealingProvider, answer: &Value) {
    chat.append(provider::read(form(provider), answer).unwrap())
        .unwrap();
}

/// Appends two answered prompts, a third whose answer begins with a compaction, and a fourth prompt.
pub fn conversation(chat: &SessionHandle, provider: SealingProvider) {
    for hour in 0..2 {
        chat.append([
            Message::user(format!("Hour {hour}?")),
            Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(100))),
        ])
        .unwrap();
    }
    chat.append([Message::user("And then?")]).unwrap();
    say(chat, provider, &compacted(provider, "sealed bytes"));
    chat.append([Message::user("Thanks. Tomorrow?")]).unwrap();
}

pub fn texts(context: &Context) -> String {
    serde_json::to_string(&context.messages).unwrap()
}

/// Opens a session with a new handle, as another program would: the state of a handle must not matter.
pub fn chat(store: &Store, id: &str, provider: Option<SealingProvider>) -> SessionHandle {
    store.session(id).unwrap().with_policy(policy(provider))
}

pub fn live_runs(store: &Store, id: &SessionId) -> Vec<(String, bool)> {
    let rows = store.database().run_rows(Some(id)).unwrap();
    rows.iter()
        .map(|row| {
            (
                row.text("strategy").unwrap(),
                row.number("is_live") == Some(1),
            )
        })
        .collect()
}

pub fn it_stands_for_what_is_before_for_its_provider_and_for_nobody_else(store: &Store) {
    for own in SealingProvider::ALL {
        let id = format!("sealed-{}", own.as_str());
        conversation(&chat(store, &id, None), own);
        for reader in [
            None,
            Some(SealingProvider::OpenAi),
            Some(SealingProvider::Anthropic),
        ] {
            let chat = chat(store, &id, reader);
            let context = chat.context().unwrap();
            let prepared = chat.prepare().unwrap();
            assert_eq!(prepared.context.messages, context.messages);
            let is_own = reader == Some(own);
            assert_eq!(
                context.messages.len(),
                if is_own { 2 } else { 7 },
                "{reader:?}"
            );
            assert_eq!(context.compaction, is_own.then_some(0));
            assert_eq!(texts(&context).contains("Hour 1?"), !is_own);
            for to in Form::ALL {
                let request = prepared.to(to);
                if is_own && to != form(own) {
                    assert!(matches!(
                        request,
                        Err(ProviderError::BuiltForAnother { .. })
                    ));
                    continue;
                }
                let request = request.unwrap();
                let sent = request.to_string().contains("sealed bytes");
                assert_eq!(sent, is_own, "{own:?} for {reader:?} in {to}");
                if sent {
                    let first = match own {
                        SealingProvider::OpenAi => &request["input"][0],
                        SealingProvider::Anthropic => &request["messages"][0]["content"][0],
                    };
                    let given = compacted(own, "sealed bytes");
                    let given = match own {
                        SealingProvider::OpenAi => &given[0],
                        SealingProvider::Anthropic => &given["content"][0],
                    };
                    assert_eq!(first, given, "as it came, and first");
                }
            }
        }
        let report = verify(store.database()).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
}

pub fn undo_and_redo_turn_it_over_and_repair_compacts_the_originals(store: &Store) {
    for own in SealingProvider::ALL {
        let id = format!("turned-{}", own.as_str());
        let chat = chat(store, &id, Some(own));
        conversation(&chat, own);
        let name = own.strategy();
        assert_eq!(live_runs(store, chat.id()), [(name.clone(), true)]);
        let sealed = chat.context().unwrap();
        let undone = chat.undo().unwrap();
        assert!(undone.tokens_before < undone.tokens_after);
        let open = chat.context().unwrap();
        assert_eq!((open.messages.len(), open.compaction), (7, None));
        // The item is still in its answer, and is not sent.
        let request = ProviderRequest::of_context(form(own), &open).unwrap();
        let kinds: Vec<_> = request.mended.iter().map(|mending| mending.kind).collect();
        assert_eq!(kinds, [MendingKind::CompactionDropped]);
        assert!(
            !serde_json::to_string(&request)
                .unwrap()
                .contains("sealed bytes")
        );
        chat.redo().unwrap();
        assert_eq!(chat.context().unwrap().messages, sealed.messages);

        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig {
                    max_context_tokens: 400,
                    ..ContextConfig::default()
                },
                CompactionConfig {
                    keep_first_turns: 0,
                    keep_recent: KeepRecent::Turns(1),
                    ..CompactionConfig::default()
                },
            ),
            ..CompactRequest::default()
        };
        let repaired = chat.repair(&request).unwrap();
        assert_eq!(repaired.undone.len(), 1);
        assert_eq!(repaired.missing, 0);
        assert!(repaired.run_id.is_some(), "{repaired:?}");
        let request = chat.prepare().unwrap().to(form(own)).unwrap().to_string();
        assert!(!request.contains("sealed bytes"));
        // A second repair finds nothing to do.
        let again = chat.repair(&CompactRequest::default()).unwrap();
        assert_eq!((again.undone.len(), again.run_id), (0, None));
        let report = verify(store.database()).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
}

pub fn redacting_a_message_takes_the_sealed_state_with_it(store: &Store) {
    for own in SealingProvider::ALL {
        let id = format!("secret-{}", own.as_str());
        let chat = chat(store, &id, Some(own));
        chat.append([
            Message::user(format!("Clone {SECRET}")),
            Message::assistant("Done."),
            Message::user("And then?"),
        ])
        .unwrap();
        say(&chat, own, &compacted(own, "sealed bytes"));
        chat.append([Message::user("Tomorrow?")]).unwrap();
        assert_eq!(chat.context().unwrap().messages.len(), 2);
        redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
        let whole = serde_json::to_string(&chat.load_whole().unwrap()).unwrap();
        assert!(!whole.contains("sealed bytes"), "{whole}");
        assert!(!whole.contains("hunter2"));
        let context = chat.context().unwrap();
        assert_eq!((context.messages.len(), context.compaction), (5, None));
        let report = verify(store.database()).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
}
