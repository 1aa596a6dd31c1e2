//! Compactions that a provider made on request, replacing everything up to one message.

use loopstore::provider;
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};
use loopstore_verify::verify;
use serde_json::{Value, json};

use crate::support::conformance::sealed_runs::{chat, form};
use crate::support::histories::Random;

/// Returns the provider's replacement of a conversation.
fn replacement(own: SealingProvider) -> Vec<AgentMessage> {
    let items = match own {
        SealingProvider::OpenAi => json!([
            {"role": "user", "content": "The question that it keeps."},
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed bytes"},
        ]),
        SealingProvider::Anthropic => json!([
            {"role": "assistant", "content": [{"type": "compaction", "content": "sealed bytes"}]},
        ]),
    };
    provider::read(form(own), &items).unwrap()
}

fn texts(chat: &SessionHandle) -> Vec<String> {
    let context = chat.context().unwrap();
    let texts = context.messages.iter().map(|message| {
        let message = message.message().unwrap();
        match message.content() {
            [Content::Sealed(_)] => "(sealed)".to_owned(),
            _ => message.texts().collect(),
        }
    });
    texts.collect()
}

fn last(chat: &SessionHandle) -> EntryRef {
    let entry = chat.entries(&EntryQuery::new().last(1)).unwrap().pop();
    let entry = entry.unwrap();
    EntryRef::new(entry.loop_id.as_str(), entry.seq)
}

fn is_sound(store: &Store) {
    let report = verify(store.database()).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
}

fn sent(chat: &SessionHandle, own: SealingProvider) -> Value {
    chat.prepare().unwrap().to(form(own)).unwrap()
}

#[test]
fn what_was_said_meanwhile_follows_it_wherever_it_stands() {
    // The answer of the current turn, another prompt, both, and nothing at all.
    let meanwhile = [
        vec![],
        vec![Message::assistant("Late answer.")],
        vec![Message::user("Next?")],
        vec![Message::assistant("Late answer."), Message::user("Next?")],
    ];
    for own in SealingProvider::ALL {
        for later in &meanwhile {
            let store = Store::in_memory().unwrap();
            let chat = chat(&store, "s", Some(own));
            chat.append([Message::user("Where?"), Message::assistant("Here.")])
                .unwrap();
            chat.append([Message::assistant("And there."), Message::assistant("So.")])
                .unwrap();
            let asked = last(&chat);
            chat.append(later.clone()).unwrap();
            let before = texts(&chat);
            let run = chat
                .record_compaction(own, &asked, replacement(own))
                .unwrap();
            assert!(run.starts_with(own.as_str()), "{run}");
            let mut expected = match own {
                SealingProvider::OpenAi => vec!["The question that it keeps.", "(sealed)"],
                SealingProvider::Anthropic => vec!["(sealed)"],
            };
            let later = later.iter().map(|message| match message {
                Message::Assistant(_) => "Late answer.",
                _ => "Next?",
            });
            expected.extend(later);
            assert_eq!(texts(&chat), expected, "{own:?}");
            assert!(chat.context().unwrap().faults.is_empty());
            assert!(sent(&chat, own).to_string().contains("sealed bytes"));
            is_sound(&store);
            // For all other providers nothing changed.
            let other = crate::support::conformance::sealed_runs::chat(&store, "s", None);
            assert_eq!(texts(&other), before);
            chat.undo().unwrap();
            assert_eq!(texts(&chat), before);
            chat.redo().unwrap();
            assert_eq!(texts(&chat), expected);
            is_sound(&store);
        }
    }
}

#[test]
fn a_turn_that_goes_on_shows_only_what_came_after_the_message() {
    let own = SealingProvider::OpenAi;
    let store = Store::in_memory().unwrap();
    let chat = chat(&store, "s", Some(own));
    chat.append([Message::user("Where?"), Message::assistant("Here.")])
        .unwrap();
    let call = Message::assistant("I look.").with_tool_call("c1", "look", Json::null());
    chat.append([call, Message::tool_result("c1", "dark")])
        .unwrap();
    let asked = last(&chat);
    let late = Message::assistant("More.").with_tool_call("c2", "look", Json::null());
    chat.append([late, Message::tool_result("c2", "light")])
        .unwrap();
    chat.record_compaction(own, &asked, replacement(own))
        .unwrap();
    let expected = ["The question that it keeps.", "(sealed)", "More.", "light"];
    assert_eq!(texts(&chat), expected);
    // A later one replaces the first one too.
    let asked = last(&chat);
    chat.append([Message::user("Next?")]).unwrap();
    chat.record_compaction(own, &asked, replacement(own))
        .unwrap();
    let expected = ["The question that it keeps.", "(sealed)", "Next?"];
    assert_eq!(texts(&chat), expected);
    is_sound(&store);
}

#[test]
fn what_stands_for_nothing_is_refused_and_changes_nothing() {
    let own = SealingProvider::OpenAi;
    let store = Store::in_memory().unwrap();
    let nobody = chat(&store, "nobody", Some(own));
    let first = EntryRef::new("loop-1", 0);
    let error = nobody.record_compaction(own, &first, replacement(own));
    assert!(matches!(error, Err(Error::NotFound { .. })), "{error:?}");

    let chat = chat(&store, "s", Some(own));
    chat.append([Message::user("Where?"), Message::assistant("Here.")])
        .unwrap();
    let asked = last(&chat);
    let before = texts(&chat);
    let refused = |at: &EntryRef, messages: Vec<AgentMessage>| {
        chat.record_compaction(own, at, messages)
            .unwrap_err()
            .to_string()
    };
    let plain = vec![AgentMessage::from(Message::assistant("A summary."))];
    assert!(refused(&asked, plain).contains("no compaction of openai"));
    let foreign = replacement(SealingProvider::Anthropic);
    assert!(refused(&asked, foreign).contains("no compaction of openai"));
    assert!(refused(&asked, Vec::new()).contains("no compaction of openai"));
    let hostile = EntryRef::new("'; DROP TABLE loops; --", 0);
    assert!(refused(&hostile, replacement(own)).contains("DROP TABLE"));
    let beyond = EntryRef::new(asked.loop_id.as_str(), u32::MAX);
    assert!(refused(&beyond, replacement(own)).contains("taken back"));
    // The first turn continues after its prompt, which alone cannot be replaced.
    assert!(refused(&first, replacement(own)).contains("nothing was said"));
    // Another branch does not contain the message.
    let branch = chat
        .fork_at(TurnRef::new(asked.loop_id.as_str(), 0))
        .unwrap();
    branch.append([Message::user("Or there?")]).unwrap();
    let elsewhere = last(&branch);
    assert!(refused(&elsewhere, replacement(own)).contains("taken back"));
    assert_eq!(texts(&chat), before);
    is_sound(&store);
}

#[test]
fn redacting_what_it_was_made_of_takes_it_also_where_the_turn_is_shown_again() {
    let own = SealingProvider::OpenAi;
    let secret = "https://me:hunter2hunter2@example.org/x";
    for (asked_text, said_text, goes) in [(secret, "So.", true), ("So?", secret, false)] {
        let store = Store::in_memory().unwrap();
        let chat = chat(&store, "s", Some(own));
        chat.append([Message::user("Where?"), Message::assistant("Here.")])
            .unwrap();
        // The first turn of its loop, which continues after the message.
        chat.append([Message::user(asked_text)]).unwrap();
        let asked = last(&chat);
        chat.append([Message::assistant(said_text)]).unwrap();
        chat.record_compaction(own, &asked, replacement(own))
            .unwrap();
        assert!(sent(&chat, own).to_string().contains("sealed bytes"));
        let request = RedactRequest::new(chat.id().clone());
        redact_session(store.database(), &request).unwrap();
        let chat = crate::support::conformance::sealed_runs::chat(&store, "s", Some(own));
        let shown = sent(&chat, own).to_string();
        assert_eq!(shown.contains("sealed bytes"), !goes, "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        is_sound(&store);
    }
}

#[test]
fn at_any_message_of_any_conversation_all_that_came_after_it_is_there() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let own = SealingProvider::OpenAi;
        let store = Store::in_memory().unwrap();
        let chat = chat(&store, "s", Some(own));
        let mut said = Vec::new();
        for at in 0..random.below(12) + 3 {
            let text = format!("Message {at}.");
            let message = match random.below(3) {
                0 => Message::user(text.clone()),
                _ => Message::assistant(text.clone()),
            };
            let done = chat.append([message]).unwrap();
            let place = EntryRef::new(done.loop_id.as_str(), done.seqs.end - 1);
            said.push((place, text, done.turns.end - 1));
        }
        let at = random.below(said.len() as u64) as usize;
        let Ok(_) = chat.record_compaction(own, &said[at].0, replacement(own)) else {
            // Only within the first turn of all.
            assert!(!said[..=at].iter().any(|(_, _, turn)| *turn > 0), "{seed}");
            assert_eq!(texts(&chat).len(), said.len(), "{seed}");
            continue;
        };
        let shown = texts(&chat);
        // The first turn of a loop that continues is shown whole.
        let (place, _, turn) = &said[at];
        let goes_on = said.get(at + 1).is_some_and(|(next, _, next_turn)| {
            (&next.loop_id, next_turn) == (&place.loop_id, turn)
        });
        let from = match goes_on && *turn == 0 {
            true => said
                .iter()
                .position(|(other, ..)| other.loop_id == place.loop_id),
            false => Some(at + 1),
        };
        let after = said[from.unwrap()..]
            .iter()
            .map(|(_, text, _)| text.clone());
        let expected: Vec<String> = ["The question that it keeps.", "(sealed)"]
            .into_iter()
            .map(str::to_owned)
            .chain(after)
            .collect();
        assert_eq!(shown, expected, "{seed}");
        assert!(
            sent(&chat, own).to_string().contains("sealed bytes"),
            "{seed}"
        );
        is_sound(&store);
    }
}
