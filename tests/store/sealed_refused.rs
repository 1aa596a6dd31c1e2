//! A provider over HTTP that rejects opaque content as the real ones do, and an agent that continues all the same: it
//! repairs the session, or leaves out reasoning that no provider can read any more.

use std::sync::{Arc, Mutex};

use loopstore::model::*;
use loopstore::provider;
use loopstore::*;
use loopstore_recorder::RecorderOptions;
use loopstore_recorder::SessionRecorder;
use loopstore_verify::verify;
use serde_json::{Value, json};

use super::sealed_runs::{StrictProvider, items};
use crate::support::conformance::sealed_runs::{chat, compacted, conversation, form, say};
use crate::support::events::{begins, ends, record_all, start, turn_end, turn_start};
use crate::support::http_server::{HttpServer, ServedResponse, post};

/// The types of opaque items.
const SEALED: [&str; 4] = ["compaction", "reasoning", "thinking", "redacted_thinking"];

/// A provider and its server.
struct Hosted {
    provider: Arc<Mutex<StrictProvider>>,
    server: HttpServer,
}

impl Hosted {
    fn start(own: SealingProvider) -> Self {
        let known = Vec::new();
        let provider = Arc::new(Mutex::new(StrictProvider { own, known }));
        let judge = Arc::clone(&provider);
        let judge = move |body: &str| {
            let request: Value = serde_json::from_str(body).unwrap();
            match judge.lock().unwrap().answer(&request) {
                Ok(()) => (200, message_item(own, "I go on.").to_string()),
                Err(error) => (400, error.to_string()),
            }
        };
        let server = HttpServer::start(vec![ServedResponse::Judges(Arc::new(judge))]);
        Self { provider, server }
    }

    /// Registers the opaque items of an answer as the provider's own.
    fn register(&self, own: SealingProvider, answer: &Value) {
        let request = match own {
            SealingProvider::OpenAi => json!({ "input": answer }),
            SealingProvider::Anthropic => json!({ "messages": [answer] }),
        };
        let given = items(own, &request).into_iter();
        let given = given.filter(|item| SEALED.iter().any(|kind| item["type"] == *kind));
        let given = given.map(Value::to_string);
        self.provider.lock().unwrap().known.extend(given);
    }

    fn forget(&self) {
        self.provider.lock().unwrap().known.clear();
    }
}

fn message_item(own: SealingProvider, text: &str) -> Value {
    match own {
        SealingProvider::OpenAi => json!([{"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}]),
        SealingProvider::Anthropic => {
            json!({"role": "assistant", "content": [{"type": "text", "text": text}]})
        }
    }
}

fn thought(own: SealingProvider) -> Value {
    match own {
        SealingProvider::OpenAi => json!([
            {"type": "reasoning", "id": "rs_1", "encrypted_content": "bound bytes", "summary": []},
            {"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "So.", "annotations": []}]}]),
        SealingProvider::Anthropic => json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "bound bytes"},
            {"type": "redacted_thinking", "data": "bound bytes"},
            {"type": "text", "text": "So."}]}),
    }
}

/// Calls the model until it answers. Returns the messages of the rejections before.
fn call(chat: &SessionHandle, own: SealingProvider, hosted: &Hosted) -> Vec<String> {
    let mut refusals = Vec::new();
    let mut drop_reasoning = false;
    loop {
        let prepared = chat.prepare().unwrap();
        let request = match drop_reasoning {
            true => prepared.to_without_reasoning(form(own)),
            false => prepared.to(form(own)),
        };
        let (status, body) = post(&hosted.server.url, &request.unwrap().to_string());
        let body: Value = serde_json::from_str(&body).unwrap();
        if status == 200 {
            say(chat, own, &body);
            return refusals;
        }
        let message = body["error"]["message"].as_str().unwrap().to_owned();
        match message.contains("reasoning") {
            true => drop_reasoning = true,
            false => drop(chat.repair(&CompactRequest::default()).unwrap()),
        }
        refusals.push(message);
        assert!(refusals.len() < 4, "a dead end: {refusals:?}");
    }
}

fn assert_sound(store: &Store) {
    let report = verify(store.database()).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

#[test]
fn an_agent_goes_on_after_its_provider_forgot_a_compaction_and_the_reasoning() {
    for own in SealingProvider::ALL {
        let store = Store::in_memory().unwrap();
        let chat = chat(&store, "refused", Some(own));
        let hosted = Hosted::start(own);
        conversation(&chat, own);
        hosted.register(own, &compacted(own, "sealed bytes"));
        say(&chat, own, &thought(own));
        hosted.register(own, &thought(own));
        chat.append([Message::user("Well?")]).unwrap();
        assert_eq!(
            call(&chat, own, &hosted),
            [""; 0],
            "as it came, all is taken"
        );

        let before = chat.load_whole().unwrap();
        hosted.forget();
        chat.append([Message::user("Go on.")]).unwrap();
        let refusals = call(&chat, own, &hosted);
        let expected = [
            "the compaction was not verified",
            "the reasoning was not decrypted",
        ];
        assert_eq!(refusals, expected, "{own:?}");
        let last = hosted.server.requests().pop().unwrap();
        assert!(
            !last.contains("sealed bytes") && !last.contains("bound bytes"),
            "{last}"
        );
        assert!(last.contains("Hour 0?"), "the originals go out: {last}");

        // The stored session is unchanged.
        let after = serde_json::to_string(&chat.load_whole().unwrap()).unwrap();
        assert!(after.contains("sealed bytes") && after.contains("bound bytes"));
        let messages = |session: &Session| session.loops[0].messages.clone();
        let after = messages(&chat.load_whole().unwrap());
        assert_eq!(after[..messages(&before).len()], messages(&before));
        assert_sound(&store);
    }
}

#[test]
fn what_a_provider_would_refuse_never_goes_out() {
    for own in SealingProvider::ALL {
        let hosted = Hosted::start(own);
        let second = match own {
            SealingProvider::OpenAi => json!([
                {"type": "compaction", "id": "a", "encrypted_content": "one"},
                {"type": "compaction", "id": "b", "encrypted_content": "two"}, message_item(own, "So.")[0]]),
            SealingProvider::Anthropic => json!({"role": "assistant", "content": [
                {"type": "compaction", "content": "one"}, {"type": "compaction", "content": "two"},
                {"type": "text", "text": "So."}]}),
        };
        let late = match own {
            SealingProvider::OpenAi => json!([
                message_item(own, "Wait.")[0], {"type": "compaction", "id": "a", "encrypted_content": "one"}]),
            SealingProvider::Anthropic => json!({"role": "assistant", "content": [
                {"type": "text", "text": "Wait."}, {"type": "compaction", "content": "one"},
                {"type": "text", "text": "So."}]}),
        };
        for (what, answer) in [("second", second), ("late", late)] {
            let store = Store::in_memory().unwrap();
            let chat = chat(&store, what, Some(own));
            chat.append([Message::user("Will it rain?"), Message::assistant("Yes.")])
                .unwrap();
            chat.append([Message::user("And then?")]).unwrap();
            say(&chat, own, &answer);
            hosted.register(own, &answer);
            chat.append([Message::user("Thanks.")]).unwrap();
            let raw = match own {
                SealingProvider::OpenAi => json!({ "input": answer }),
                SealingProvider::Anthropic => json!({ "messages": [answer] }),
            };
            let (status, body) = post(&hosted.server.url, &raw.to_string());
            match (own, what) {
                (_, "second") => assert!(status == 400 && body.contains("at most one"), "{body}"),
                (SealingProvider::Anthropic, _) => {
                    assert!(status == 400 && body.contains("must come first"), "{body}");
                }
                (SealingProvider::OpenAi, _) => assert_eq!(status, 200, "{body}"),
            }
            assert_eq!(call(&chat, own, &hosted), [""; 0], "{own:?}: {what}");
        }
    }
}

#[test]
fn a_recorded_session_goes_on_after_a_repair() {
    for own in SealingProvider::ALL {
        let store = Store::in_memory().unwrap();
        let hosted = Hosted::start(own);
        let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
        record_all(&mut recorder, vec![start("a")]);
        let answers = [message_item(own, "Yes."), compacted(own, "sealed bytes")];
        for (turn, answer) in (0..).zip(answers) {
            hosted.register(own, &answer);
            let mut messages = vec![AgentMessage::from(Message::user(format!("Hour {turn}?")))];
            messages.extend(provider::read(form(own), &answer).unwrap());
            record_all(&mut recorder, vec![turn_start("a", turn)]);
            for message in messages {
                record_all(
                    &mut recorder,
                    vec![begins("a", &message), ends("a", &message)],
                );
            }
            record_all(&mut recorder, vec![turn_end("a")]);
        }
        let policy = Policy::new(100_000).provider(own);
        let chat = store.session("s").unwrap().with_policy(policy);
        let ask = || {
            let request = chat.prepare().unwrap().to(form(own)).unwrap().to_string();
            (post(&hosted.server.url, &request).0, request)
        };
        let (status, request) = ask();
        assert_eq!(status, 200);
        assert!(
            request.contains("sealed bytes") && !request.contains("Hour 0?"),
            "{request}"
        );
        hosted.forget();
        assert_eq!(ask().0, 400);
        assert_eq!(
            chat.repair(&CompactRequest::default())
                .unwrap()
                .undone
                .len(),
            1
        );
        let (status, request) = ask();
        assert_eq!(status, 200);
        assert!(
            !request.contains("sealed bytes") && request.contains("Hour 0?"),
            "{request}"
        );
        // The loop still has its driver, and continues.
        record_all(&mut recorder, vec![turn_start("a", 2)]);
        let message = AgentMessage::from(Message::user("Hour 2?"));
        record_all(
            &mut recorder,
            vec![begins("a", &message), ends("a", &message)],
        );
        assert!(ask().1.contains("Hour 2?"));
        assert_sound(&store);
    }
}
