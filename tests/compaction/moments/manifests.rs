//! Contexts that are built again from the ids of their manifests.

use loopstore::context::BuildError;
use loopstore::extend::{self as store, StoreError, append};
use loopstore::*;
use loopstore_admin::retention::{RedactRequest, redact_session};

fn texts(context: &Context) -> Vec<String> {
    let messages = context.messages.iter().filter_map(AgentMessage::message);
    messages
        .flat_map(Message::texts)
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_redaction_redacts_a_recorded_context() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("chat").unwrap();
    let secret = "git clone https://me:hunter2hunter2@example.org/x";
    chat.append([Message::user(secret), Message::assistant("Cloned.")])
        .unwrap();
    let manifest = chat.record_context().unwrap().manifest.unwrap();
    let at = AsOf::manifest(manifest);
    assert_eq!(texts(&chat.context_as_of(at.clone()).unwrap())[0], secret);
    redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
    let again = texts(&chat.context_as_of(at).unwrap());
    assert_eq!(again, texts(&chat.context().unwrap()));
    assert!(!again.concat().contains("hunter2"), "{again:?}");
}

#[test]
fn another_message_in_a_recorded_context_is_an_error() {
    let store = Store::in_memory().unwrap();
    let chat = store.session("chat").unwrap();
    chat.append([Message::user("Will it rain?")]).unwrap();
    let manifest = chat.record_context().unwrap().manifest.unwrap();
    let (other, database) = (AsOf::manifest("another"), store.database());
    assert!(matches!(
        chat.context_as_of(other),
        Err(Error::NotFound { .. })
    ));
    // The message is of a turn in flight, which may be replaced.
    let leaf = store::read(database, |read| Ok(read.current(chat.id())?.unwrap().1)).unwrap();
    let new = vec![AgentMessage::from(Message::user("Will it snow?")).into()];
    store::write(database, |write| {
        append::replace_last_turn(write, leaf, new, &HeuristicTokenCounter)
    })
    .unwrap();
    let options = BuildOptions {
        as_of: Some(AsOf::manifest(manifest)),
        ..BuildOptions::default()
    };
    let built = build_context_from_session(database, chat.id(), &options);
    let Err(BuildError::Store(StoreError::Invalid(why))) = built else {
        panic!("{built:?}");
    };
    assert!(why.contains("replaced"), "{why}");
}
