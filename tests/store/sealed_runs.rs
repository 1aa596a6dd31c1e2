//! Compactions that only their provider can read: runs that are active for that provider alone.

use loopstore::context::FaultKind;
use loopstore::model::*;
use loopstore::provider::{Form, ProviderRequest};
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_testing::conformance::sealed_runs::{
    SECRET, chat, compacted, conversation, form, policy, say,
};
use loopstore_verify::verify;
use proptest::prelude::*;
use serde_json::{Value, json};

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

/// A provider that rejects what the real ones reject, with their typed errors.
pub struct StrictProvider {
    pub own: SealingProvider,
    /// The opaque items that it issued and still knows.
    pub known: Vec<String>,
}

impl StrictProvider {
    /// Validates a request.
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

/// Returns the items of a request, or the blocks of its messages.
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
        // The provider's next compaction is active again.
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

/// An event in a conversation.
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

/// Applies events of one provider's conversation; each opaque item contains its number.
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
            // There may be nothing to undo.
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
                // There may be no message yet.
                drop(chat.compact(&request));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any order of compactions, undos and a redaction: opaque content goes to its provider only, an active
    /// compaction comes first, and no opaque content outlives its source.
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
