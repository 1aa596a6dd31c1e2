//! Compactions that only their provider can read: runs that count for that provider alone.

use loopstore::context::FaultKind;
use loopstore::model::*;
use loopstore::provider::{self, Form, MendingKind, ProviderError, ProviderRequest};
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_verify::verify;
use proptest::prelude::*;
use serde_json::{Value, json};

const SECRET: &str = "https://me:hunter2hunter2@example.org/x";

/// A store on each backend.
fn stores() -> Vec<Store> {
    let mut stores = vec![Store::in_memory().unwrap()];
    let folder = tempfile::tempdir().unwrap().keep();
    stores.push(Store::open(folder.join("agent.db")).unwrap());
    stores.extend(crate::stores::on_a_server());
    stores
}

pub fn form(provider: SealingProvider) -> Form {
    match provider {
        SealingProvider::OpenAi => Form::OpenAiResponses,
        SealingProvider::Anthropic => Form::Anthropic,
    }
}

/// What a provider puts out when it compacts within an answer.
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

/// Two answered prompts, a third whose answer begins with a compaction, and a fourth prompt.
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

fn texts(context: &Context) -> String {
    serde_json::to_string(&context.messages).unwrap()
}

/// Opens a session anew, as another program would: what a handle keeps must not matter.
pub fn chat(store: &Store, id: &str, provider: Option<SealingProvider>) -> SessionHandle {
    store.session(id).unwrap().with_policy(policy(provider))
}

fn live_runs(store: &Store, id: &SessionId) -> Vec<(String, bool)> {
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

#[test]
fn it_stands_for_what_is_before_for_its_provider_and_for_nobody_else() {
    for (at, store) in stores().iter().enumerate() {
        for own in SealingProvider::ALL {
            let id = format!("sealed-{at}-{}", own.as_str());
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
}

#[test]
fn undo_and_redo_turn_it_over_and_repair_compacts_the_originals() {
    for (at, store) in stores().iter().enumerate() {
        for own in SealingProvider::ALL {
            let id = format!("turned-{at}-{}", own.as_str());
            let chat = chat(store, &id, Some(own));
            conversation(&chat, own);
            let name = own.strategy();
            assert_eq!(live_runs(store, chat.id()), [(name.clone(), true)]);
            let sealed = chat.context().unwrap();
            let undone = chat.undo().unwrap();
            assert!(undone.tokens_before < undone.tokens_after);
            let open = chat.context().unwrap();
            assert_eq!((open.messages.len(), open.compaction), (7, None));
            // The item still stands in its answer; it is not sent.
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
                config: CompactionConfig {
                    keep_first_turns: 0,
                    keep_recent: KeepRecent::Turns(1),
                    ..CompactionConfig::default()
                },
                window: ContextConfig {
                    max_context_tokens: 400,
                    ..ContextConfig::default()
                },
                ..CompactRequest::default()
            };
            let repaired = chat.repair(&request).unwrap();
            assert_eq!(repaired.undone.len(), 1);
            assert_eq!(repaired.missing, 0);
            assert!(repaired.run_id.is_some(), "{repaired:?}");
            let request = chat.prepare().unwrap().to(form(own)).unwrap().to_string();
            assert!(!request.contains("sealed bytes"));
            // There is nothing more to repair.
            let again = chat.repair(&CompactRequest::default()).unwrap();
            assert_eq!((again.undone.len(), again.run_id), (0, None));
            let report = verify(store.database()).unwrap();
            assert!(report.ok, "{:?}", report.problems);
        }
    }
}

#[test]
fn originals_that_nobody_stored_are_told_as_missing() {
    for own in SealingProvider::ALL {
        let store = Store::in_memory().unwrap();
        let chat = chat(&store, "late", Some(own));
        say(&chat, own, &compacted(own, "sealed bytes"));
        chat.append([Message::user("Tomorrow?")]).unwrap();
        let kinds: Vec<_> = chat
            .context()
            .unwrap()
            .faults
            .iter()
            .map(|f| f.kind)
            .collect();
        assert_eq!(kinds, [FaultKind::OriginalsMissing]);
        let repaired = chat.repair(&CompactRequest::default()).unwrap();
        assert_eq!((repaired.undone.len(), repaired.missing), (1, 1));
    }
}

#[test]
fn what_another_provider_made_is_named_and_never_sent() {
    for own in SealingProvider::ALL {
        for reader in SealingProvider::ALL
            .into_iter()
            .filter(|reader| *reader != own)
        {
            let store = Store::in_memory().unwrap();
            let chat = chat(&store, "mixed", Some(reader));
            conversation(&chat, own);
            let faults = chat.context().unwrap().faults;
            assert!(
                faults
                    .iter()
                    .any(|fault| fault.kind == FaultKind::ForeignSealed)
            );
            let request = chat.prepare().unwrap().to(form(reader)).unwrap();
            assert!(!request.to_string().contains("sealed bytes"));
            assert!(request.to_string().contains("Hour 0?"));
        }
    }
}

#[test]
fn a_compaction_without_its_run_and_a_second_one_are_faults() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, "second", Some(SealingProvider::Anthropic));
    chat.append([Message::user("Will it rain?")]).unwrap();
    let twice = json!({"role": "assistant", "content": [
        {"type": "compaction", "content": "one"}, {"type": "compaction", "content": "two"},
        {"type": "text", "text": "Rain."},
    ]});
    say(&chat, SealingProvider::Anthropic, &twice);
    chat.append([Message::user("Tomorrow?")]).unwrap();
    let report = verify(store.database()).unwrap();
    let details: Vec<_> = report
        .problems
        .iter()
        .map(|problem| &problem.detail)
        .collect();
    assert!(
        details.iter().any(|detail| detail.starts_with("second")),
        "{details:?}"
    );
    let repaired = chat.repair(&CompactRequest::default()).unwrap();
    assert_eq!(repaired.undone.len(), 1);
    let report = verify(store.database()).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

#[test]
fn redacting_a_message_takes_the_sealed_state_with_it() {
    let all = stores();
    let cases = all
        .iter()
        .flat_map(|store| SealingProvider::ALL.map(|own| (store, own)));
    for (store, own) in cases {
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

#[test]
fn a_redacted_reasoning_item_goes_whole() {
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, "reasoning", Some(SealingProvider::OpenAi));
    chat.append([Message::user("Will it rain?")]).unwrap();
    let answer = json!([
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "bound",
            "summary": [{"type": "summary_text", "text": format!("Clone {SECRET}")}]},
        {"type": "message", "role": "assistant", "content": "Rain."},
    ]);
    say(&chat, SealingProvider::OpenAi, &answer);
    redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
    let request = chat
        .prepare()
        .unwrap()
        .to(Form::OpenAiResponses)
        .unwrap()
        .to_string();
    assert!(
        !request.contains("bound") && !request.contains("hunter2"),
        "{request}"
    );
    assert!(request.contains("Rain."));
}

/// A provider that refuses what the real ones refuse, with their typed errors.
pub struct StrictProvider {
    pub own: SealingProvider,
    /// The sealed items that it gave out and still knows.
    pub known: Vec<String>,
}

impl StrictProvider {
    /// Looks at a request.
    pub fn answer(&self, request: &Value) -> Result<(), Value> {
        let items = items(self.own, request);
        let of_kind = |kinds: &[&str]| -> Vec<usize> {
            let fits = |at: &usize| kinds.iter().any(|kind| items[*at]["type"] == *kind);
            (0..items.len()).filter(fits).collect()
        };
        let sealed = of_kind(&["compaction"]);
        if sealed.len() > 1 {
            return self.refuse("second_compaction", "at most one compaction is allowed");
        }
        let is_misplaced = sealed.first().is_some_and(|at| *at > 0);
        if self.own == SealingProvider::Anthropic && is_misplaced {
            return self.refuse("misplaced_compaction", "a compaction must come first");
        }
        let is_known = |at: &usize| self.known.contains(&items[*at].to_string());
        if !sealed.iter().all(is_known) {
            return self.refuse(
                "invalid_encrypted_content",
                "the compaction was not verified",
            );
        }
        let reasoning = of_kind(&["reasoning", "thinking", "redacted_thinking"]);
        if !reasoning.iter().all(is_known) {
            return self.refuse(
                "invalid_encrypted_content",
                "the reasoning was not decrypted",
            );
        }
        Ok(())
    }

    fn refuse(&self, code: &str, message: &str) -> Result<(), Value> {
        Err(match self.own {
            SealingProvider::OpenAi => json!({"error": {
                "type": "invalid_request_error", "param": "input", "code": code, "message": message}}),
            SealingProvider::Anthropic => json!({"type": "error", "error": {
                "type": "invalid_request_error", "message": message}}),
        })
    }
}

/// The items of a request, or the blocks of its messages.
pub fn items(own: SealingProvider, request: &Value) -> Vec<&Value> {
    match own {
        SealingProvider::OpenAi => request["input"].as_array().unwrap().iter().collect(),
        SealingProvider::Anthropic => {
            let messages = request["messages"].as_array().unwrap();
            let blocks = messages
                .iter()
                .filter_map(|message| message["content"].as_array());
            blocks.flatten().collect()
        }
    }
}

#[test]
fn a_provider_that_forgot_its_compaction_takes_the_session_again_after_a_repair() {
    for own in SealingProvider::ALL {
        let store = Store::in_memory().unwrap();
        let chat = chat(&store, "refused", Some(own));
        conversation(&chat, own);
        let given = compacted(own, "sealed bytes");
        let item = match own {
            SealingProvider::OpenAi => &given[0],
            SealingProvider::Anthropic => &given["content"][0],
        };
        let mut provider = StrictProvider {
            own,
            known: vec![item.to_string()],
        };
        let request = || chat.prepare().unwrap().to(form(own)).unwrap();
        assert_eq!(
            provider.answer(&request()),
            Ok(()),
            "as it came, in its place"
        );
        provider.known.clear();
        let error = provider.answer(&request()).unwrap_err();
        assert_eq!(error["error"]["message"], "the compaction was not verified");
        chat.repair(&CompactRequest::default()).unwrap();
        assert_eq!(provider.answer(&request()), Ok(()));
        assert!(
            request().to_string().contains("Hour 0?"),
            "the originals went out"
        );
        // The next compaction of the provider's counts again.
        say(&chat, own, &compacted(own, "new bytes"));
        chat.append([Message::user("Thanks.")]).unwrap();
        assert!(request().to_string().contains("new bytes"));
        assert!(provider.answer(&request()).is_err());
    }
}

#[test]
fn a_compaction_of_ours_after_the_providers_takes_its_place_for_everybody() {
    for own in SealingProvider::ALL {
        let store = Store::in_memory().unwrap();
        let chat = chat(&store, "after", Some(own));
        conversation(&chat, own);
        for hour in 0..20 {
            let said = format!("Hour {hour}: {}", "hail, ".repeat(200));
            chat.append([Message::assistant(said)]).unwrap();
        }
        let small = Policy::new(4_000).provider(own);
        let small = store.session("after").unwrap().with_policy(small);
        let prepared = small.prepare().unwrap();
        assert!(prepared.was_compacted());
        assert!(prepared.context.tokens < 4_000);
        let provider = StrictProvider {
            own,
            known: Vec::new(),
        };
        let request = prepared.to(form(own)).unwrap();
        let is_sent = request.to_string().contains("sealed bytes");
        assert_eq!(provider.answer(&request).is_err(), is_sent);
        assert_eq!(is_sent, prepared.context.compaction.is_some());
    }
}

/// What happens in a conversation.
#[derive(Clone, Copy, Debug)]
enum Event {
    Prompt { has_secret: bool },
    Answer,
    Thinks { has_secret: bool },
    Compacts,
    Undo,
    Redo,
    Compact,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        any::<bool>().prop_map(|has_secret| Event::Prompt { has_secret }),
        Just(Event::Answer),
        any::<bool>().prop_map(|has_secret| Event::Thinks { has_secret }),
        Just(Event::Compacts),
        Just(Event::Undo),
        Just(Event::Redo),
        Just(Event::Compact),
    ];
    prop::collection::vec(one, 1..14)
}

/// Plays events of one provider's conversation; each sealed item names its number.
fn play(chat: &SessionHandle, own: SealingProvider, events: &[Event]) {
    for (nth, event) in events.iter().enumerate() {
        let said = |has_secret: bool| match has_secret {
            true => format!("{nth}: clone {SECRET}"),
            false => format!("{nth}: {}", "rain, ".repeat(20)),
        };
        match *event {
            Event::Prompt { has_secret } => {
                chat.append([Message::user(said(has_secret))]).unwrap();
            }
            Event::Answer => {
                chat.append([Message::assistant(said(false))]).unwrap();
            }
            Event::Thinks { has_secret } => {
                let text = said(has_secret);
                let answer = match own {
                    SealingProvider::OpenAi => json!([
                        {"type": "reasoning", "id": format!("rs_{nth}"),
                            "encrypted_content": format!("bound-{nth}"),
                            "summary": [{"type": "summary_text", "text": text}]},
                        {"type": "message", "role": "assistant", "content": "So."},
                    ]),
                    SealingProvider::Anthropic => json!({"role": "assistant", "content": [
                        {"type": "thinking", "thinking": text, "signature": format!("bound-{nth}")},
                        {"type": "redacted_thinking", "data": format!("bound-{nth}")},
                        {"type": "text", "text": "So."},
                    ]}),
                };
                say(chat, own, &answer);
            }
            Event::Compacts => say(chat, own, &compacted(own, &format!("sealed-{nth}"))),
            // There may be nothing to turn over.
            Event::Undo => drop(chat.undo()),
            Event::Redo => drop(chat.redo()),
            Event::Compact => {
                let request = CompactRequest {
                    trigger: CompactTrigger::Force,
                    ..policy(None)
                        .keep_first(0)
                        .keep_recent(KeepRecent::Turns(1))
                        .request()
                };
                // Nothing was said yet, perhaps.
                drop(chat.compact(&request));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Wherever compactions, undos and a redaction fall: what is sealed goes to its provider only, an active
    /// compaction stands first, and nothing sealed outlives what it was made from.
    #[test]
    fn sealed_state_stays_whole_and_with_its_provider(events in events(), at in 0..2usize) {
        let own = SealingProvider::ALL[at];
        let store = Store::in_memory().unwrap();
        let chat = chat(&store, "random", Some(own));
        chat.append([Message::user("Begin.")]).unwrap();
        play(&chat, own, &events);
        let check = |step: &str| {
            for reader in [None, Some(SealingProvider::OpenAi), Some(SealingProvider::Anthropic)] {
                let context = store.session("random").unwrap().with_policy(policy(reader))
                    .context().unwrap();
                for to in Form::ALL {
                    let Ok(request) = ProviderRequest::of_context(to, &context) else {
                        assert!(context.compaction.is_some() && to != form(own), "{step}");
                        continue;
                    };
                    let request = serde_json::to_value(&request).unwrap();
                    let text = request.to_string();
                    let is_own = to == form(own);
                    assert!(is_own || !(text.contains("sealed-") || text.contains("bound-")), "{step}");
                    let sealed = text.matches("sealed-").count();
                    assert_eq!(sealed, usize::from(context.compaction.is_some()), "{step}: {text}");
                    if to == Form::Anthropic && sealed == 1 {
                        assert_eq!(&request["messages"][0]["content"][0]["type"], "compaction");
                    }
                }
            }
        };
        check("as recorded");
        let secret = events.iter().position(|event| matches!(event,
            Event::Prompt { has_secret: true } | Event::Thinks { has_secret: true }));
        redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
        check("redacted");
        if let (Some(secret), Ok(session)) = (secret, chat.load_whole()) {
            let whole = serde_json::to_string(&session).unwrap();
            assert!(!whole.contains("hunter2"));
            let told = |nth: usize, what: &str| whole.contains(&format!("\"{what}-{nth}\""));
            for (nth, event) in events.iter().enumerate() {
                match event {
                    Event::Thinks { has_secret: true } => assert!(!told(nth, "bound"), "{nth}"),
                    Event::Compacts if nth > secret => assert!(!told(nth, "sealed"), "{nth}"),
                    _ => {}
                }
            }
        }
        let report = verify(store.database()).unwrap();
        prop_assert!(report.ok, "{:?}", report.problems);
    }
}
