//! Hidden sessions: they are in no list and no search, their ids are free, and their record is complete in
//! every export and import.

use crate::whole::assert_whole;
use loopstore::extend::lookup;
use loopstore::{extend as store, *};
use loopstore_admin::retention::{EraseRequest, PruneRequest, erase, prune};
use loopstore_copy::copy;

pub fn say(chat: &SessionHandle, what: &str) {
    chat.append([Message::user(what), Message::assistant("Noted.")])
        .unwrap();
}

pub fn ids(store: &Store, hidden: bool) -> Vec<String> {
    let filter = SessionFilter {
        hidden,
        ..SessionFilter::default()
    };
    let mut ids: Vec<_> = store
        .sessions(&filter)
        .unwrap()
        .iter()
        .map(|row| row.session_id.to_string())
        .collect();
    ids.sort();
    ids
}

pub fn texts(chat: &SessionHandle) -> String {
    format!("{:?}", chat.entries(&EntryQuery::new()).unwrap())
}

pub fn what_is_hidden_is_in_no_list_and_its_id_is_free(store: &Store) {
    let chat = store.session("weather").unwrap();
    say(&chat, "Will the marmot whistle?");
    chat.append_once("key", [Message::user("Whistle again?")])
        .unwrap();
    let before = texts(&chat);
    let hidden = chat.hide().unwrap();
    assert!(!chat.exists().unwrap());
    assert_eq!(ids(store, false), [""; 0]);
    assert_eq!(ids(store, true), [hidden.as_str()]);
    assert_eq!(store.search("marmot").unwrap().hits.len(), 0);
    assert_eq!(store.recall("marmot", 2_000).unwrap().parts.len(), 0);
    let found = store::read(store.database(), |read| {
        lookup::sessions_beginning(read, "wea", 9)
    });
    assert_eq!(found.unwrap(), []);
    // A hidden session is opened by its new id.
    let old = store.session(&hidden).unwrap();
    assert_eq!(texts(&old), before);
    assert_eq!(old.recall("marmot", 2_000).unwrap().parts.len(), 1);
    let row = old.summary().unwrap().unwrap();
    assert!(row.hidden_at.is_some());
    assert_eq!(
        row,
        store
            .sessions(&SessionFilter {
                hidden: true,
                ..SessionFilter::default()
            })
            .unwrap()[0]
    );
    // The session of the id is new, and has no keys.
    assert_eq!(chat.appended("key").unwrap(), None);
    say(&chat, "Will the lark sing?");
    assert_eq!(chat.entries(&EntryQuery::new()).unwrap().len(), 2);
    assert_eq!(ids(store, false), ["weather"]);
    assert_eq!(store.search("lark").unwrap().hits.len(), 1);
    assert_eq!(chat.summary().unwrap().unwrap().hidden_at, None);
    // The same id can be hidden several times.
    let second = chat.hide().unwrap();
    assert_ne!(second, hidden);
    assert_eq!(ids(store, true).len(), 2);
    assert_whole(store.database());
}

pub fn what_was_hidden_comes_back_whole(store: &Store) {
    let chat = store.session("weather").unwrap();
    say(&chat, "Will the marmot whistle?");
    say(&chat, "And tomorrow?");
    let request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    chat.compact(&request).unwrap();
    let (before, seen) = (texts(&chat), chat.context().unwrap().messages);
    let hidden = chat.hide().unwrap();
    say(&chat, "Another.");
    let old = store.session(&hidden).unwrap();
    let taken = old.unhide("weather").unwrap_err();
    assert!(taken.to_string().contains("weather"), "{taken}");
    assert!(matches!(old.unhide(""), Err(Error::Id(_))));
    let back = old.unhide("weather of old").unwrap();
    assert_eq!(
        (texts(&back), back.context().unwrap().messages),
        (before, seen)
    );
    assert_eq!(ids(store, true), [""; 0]);
    assert_eq!(store.search("marmot").unwrap().hits.len(), 1);
    say(&back, "It goes on.");
    assert!(
        back.unhide("again")
            .unwrap_err()
            .to_string()
            .contains("not hidden")
    );
    assert!(!old.exists().unwrap());
    assert_whole(store.database());
}

pub fn what_cannot_be_hidden_is_refused(store: &Store) {
    let nobody = store.session("nobody").unwrap();
    assert!(matches!(
        nobody.hide(),
        Err(Error::NotFound {
            what: "session",
            ..
        })
    ));
    assert!(matches!(nobody.unhide("x"), Err(Error::NotFound { .. })));
    let chat = store.session("weather").unwrap();
    say(&chat, "Will it rain?");
    let held = store::write(store.database(), |write| {
        let (_, key) = write.current(chat.id())?.unwrap();
        store::lease::acquire(
            write,
            key,
            "other",
            3_600_000,
            Time::now().millis().unwrap(),
        )
    });
    assert!(matches!(chat.hide(), Err(Error::LoopHeld { .. })));
    drop(held);
    assert_whole(store.database());
    let other = store.session("other").unwrap();
    say(&other, "Hello?");
    let hidden = store.session(other.hide().unwrap()).unwrap();
    assert!(
        hidden
            .hide()
            .unwrap_err()
            .to_string()
            .contains("hidden already")
    );
    // An id of the maximum length.
    let long = store.session("é".repeat(256)).unwrap();
    say(&long, "Hello?");
    let id = long.hide().unwrap();
    assert!(id.as_str().len() <= 512 && id.as_str().starts_with("éé"));
}

pub fn a_hidden_session_can_be_erased_and_pruned(store: &Store) {
    for name in ["one", "two"] {
        let chat = store.session(name).unwrap();
        say(&chat, "Will it rain?");
        chat.end_loop(LoopStatus::Completed).unwrap();
    }
    let (one, two) = (
        store.session("one").unwrap().hide().unwrap(),
        store.session("two").unwrap().hide().unwrap(),
    );
    say(&store.session("one").unwrap(), "Still here.");
    erase(store.database(), &EraseRequest::new(one)).unwrap();
    assert_eq!(ids(store, true), [two.as_str()]);
    assert_eq!(ids(store, false), ["one"]);
    let request = PruneRequest {
        keep_last: Some(1),
        ..PruneRequest::default()
    };
    prune(store.database(), &request).unwrap();
    assert_eq!(ids(store, true).len() + ids(store, false).len(), 1);
    assert_whole(store.database());
}

pub fn a_copy_follows_what_was_hidden(store: &Store) {
    let folder = tempfile::tempdir().unwrap();
    let other = Store::in_memory().unwrap();
    let bring = || {
        let report = copy(
            store.database(),
            other.database(),
            folder.path(),
            &mut |_, _| {},
        )
        .unwrap();
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(
            (ids(&other, false), ids(&other, true)),
            (ids(store, false), ids(store, true))
        );
        assert_whole(other.database());
    };
    let chat = store.session("weather").unwrap();
    say(&chat, "Will the marmot whistle?");
    let request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    chat.compact(&request).unwrap();
    bring();
    let hidden = chat.hide().unwrap();
    say(&chat, "Another session.");
    bring();
    assert_eq!(
        texts(&other.session(&hidden).unwrap()),
        texts(&store.session(&hidden).unwrap())
    );
    assert_eq!(texts(&other.session("weather").unwrap()), texts(&chat));
    let back = store.session(&hidden).unwrap().unhide("back").unwrap();
    say(&back, "Once more.");
    back.hide().unwrap();
    bring();
    // The export can be imported into an empty database too.
    let empty = Store::in_memory().unwrap();
    let report = copy(
        store.database(),
        empty.database(),
        folder.path(),
        &mut |_, _| {},
    )
    .unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(ids(&empty, true), ids(store, true));
    assert_whole(empty.database());
}
