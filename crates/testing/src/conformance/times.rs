//! The times of messages, and how the store treats given times.

use loopstore::context::AsOf;
use loopstore::extend::SessionFilter;
use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::ImportOptions;
use loopstore_verify::verify;

pub fn now() -> i64 {
    Time::now().millis().unwrap()
}

pub fn message_at(text: &str, at: i64) -> Message {
    Message::User(UserMessage {
        timestamp: Some(at.into()),
        ..match Message::user(text) {
            Message::User(message) => message,
            _ => unreachable!(),
        }
    })
}

pub fn times(chat: &SessionHandle) -> Vec<Option<i64>> {
    let entries = chat.entries(&EntryQuery::whole_session()).unwrap();
    entries.iter().map(|entry| entry.created_at).collect()
}

pub fn every_message_of_an_append_gets_its_time_and_comes_back_as_it_was(store: &Store) {
    let chat = store.session("chat").unwrap();
    let note = AgentMessage::extension("note", Json::string("aside"));
    let given: Vec<AgentMessage> = vec![
        message_at("Will it rain?", 1_700_000_000_123).into(),
        note,
        Message::assistant("It will.").into(),
        Message::user("And tomorrow?").into(),
    ];
    let before = now();
    chat.append(given.clone()).unwrap();
    let after = now();
    let found = times(&chat);
    assert_eq!(found[0], Some(1_700_000_000_123));
    let stamps: Vec<i64> = found[1..].iter().map(|time| time.unwrap()).collect();
    assert!(
        stamps.iter().all(|at| (before..=after).contains(at)),
        "{stamps:?}"
    );
    let entries = chat.entries(&EntryQuery::whole_session()).unwrap();
    for (entry, given) in entries.iter().zip(&given) {
        let own = |message: &AgentMessage| message.message().and_then(Message::timestamp);
        assert_eq!(own(&entry.message), own(given));
    }
    assert!(verify(store.database()).unwrap().problems.is_empty());
}

pub fn what_was_appended_is_found_by_its_time(store: &Store) {
    let before = now() - 1;
    let chat = store.session("chat").unwrap();
    chat.append([Message::user("Will the kite fly?")]).unwrap();
    let query = |since, until| SearchQuery {
        since,
        until,
        ..SearchQuery::new("kite")
    };
    let count = |query| store.search(query).unwrap().hits.len();
    assert_eq!(count(query(Some(before), None)), 1);
    assert_eq!(count(query(None, Some(before))), 0);
    let at_time = |at: i64| {
        let at = Time::from_millis(at).unwrap();
        AsOf::time(store.database(), chat.id(), None, &at)
    };
    assert!(at_time(before).is_err());
    let context = chat.context_as_of(at_time(now()).unwrap()).unwrap();
    assert_eq!(context.messages.len(), 1);
}

/// The sessions have times with offsets; one is later than another only by its zone.
pub fn sessions_are_listed_by_instants_whatever_their_offsets(store: &Store) {
    let chat = |id: &str, at: &str| {
        let mut new = Session::new(SessionId::new(id).unwrap(), "agent");
        new.created_at = Some(Time::from_text(at));
        new.last_active_at = Some(Time::from_text(at));
        extend::write(store.database(), |write| {
            extend::session::create_session(write, &new, None, None)
        })
        .unwrap();
    };
    chat("midnight", "2026-03-02T09:00:00+09:00");
    chat("soon", "soon");
    chat("six", "2026-03-02T06:00:00Z");
    chat("five", "2026-03-02T00:00:00-05:00");
    let list = |filter: &SessionFilter| -> Vec<String> {
        let rows = store.database().session_rows(filter).unwrap();
        rows.iter()
            .filter_map(|row| row.text("session_id"))
            .collect()
    };
    let all = list(&SessionFilter::default());
    assert_eq!(all, ["six", "five", "midnight", "soon"]);
    let since = |at: &str| SessionFilter {
        since: Some(Time::from_text(at)),
        ..SessionFilter::default()
    };
    assert_eq!(list(&since("2026-03-02T07:00:00+02:00")), ["six", "five"]);
    // The same order in pages.
    let mut page = SessionFilter {
        limit: Some(1),
        ..SessionFilter::default()
    };
    let mut paged = Vec::new();
    while let Some(row) = store.sessions(&page).unwrap().pop() {
        page.after = Some(row.cursor().clone());
        paged.push(row.session_id.to_string());
    }
    assert_eq!(paged, all);
    let sql =
        "SELECT session_id FROM v_sessions ORDER BY last_active_at IS NULL, last_active_at DESC";
    let rows = store
        .database()
        .query_within(sql, extend::sqlite::QueryLimits::default());
    let ids: Vec<String> = rows
        .unwrap()
        .records()
        .iter()
        .filter_map(|row| row.text("session_id"))
        .collect();
    assert_eq!(ids, all);
}

pub fn times_survive_a_trip_through_lines_and_are_in_no_other_form(store: &Store) {
    let file = tempfile::tempdir().unwrap();
    let chat = store.session("chat").unwrap();
    chat.append([
        message_at("Will it rain?", 5),
        Message::assistant("It will."),
    ])
    .unwrap();
    let written = |form| {
        let mut bytes = Vec::new();
        export(store.database(), chat.id(), None, form, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let document = written(ExportForm::PhiCore);
    assert_eq!(document.matches("\"timestamp\":5").count(), 1, "{document}");
    let answer = document.split("It will.").nth(1).unwrap();
    assert!(!answer.contains("\"timestamp\":1"), "{document}");
    let path = file.path().join("chat.jsonl");
    std::fs::write(&path, written(ExportForm::Lines)).unwrap();
    let other = Store::in_memory().unwrap();
    let options = ImportOptions::default();
    let report =
        loopstore_transcripts::import_paths(other.database(), &[path], &options, &mut |_| {})
            .unwrap();
    assert_eq!(report.skipped, []);
    let same = other.session("chat").unwrap();
    assert_eq!(times(&same), times(&chat));
    assert!(verify(other.database()).unwrap().problems.is_empty());
}

fn refused(
    chat: &SessionHandle,
    key: &str,
    messages: Vec<Message>,
) -> (String, std::ops::Range<u32>, String) {
    let error = chat.append_once(key, messages).unwrap_err();
    let text = error.to_string();
    match error {
        Error::KeyTaken {
            key: named,
            loop_id,
            seqs,
        } => {
            assert_eq!(named, key);
            (loop_id, seqs, text)
        }
        other => panic!("{other:?}"),
    }
}

pub fn other_messages_under_a_known_key_are_refused_and_the_first_are_named(store: &Store) {
    let chat = store.session("chat").unwrap();
    let first = vec![
        Message::user("Will it rain?"),
        Message::assistant("It will."),
    ];
    let once = chat.append_once("k", first.clone()).unwrap();
    let again = chat.append_once("k", first.clone()).unwrap();
    assert!(again.duplicate && again.seqs == once.seqs);
    for other in [
        vec![],
        vec![first[0].clone()],
        vec![first[0].clone(), Message::assistant("It won't.")],
        vec![first[1].clone(), first[0].clone()],
        [first.clone(), vec![Message::user("And?")]].concat(),
        vec![message_at("Will it rain?", 7), first[1].clone()],
    ] {
        let (loop_id, seqs, text) = refused(&chat, "k", other);
        assert_eq!((loop_id.as_str(), seqs), ("loop-1", 0..2));
        let wanted = "append key `k` already belongs to messages 0 to 1 of loop `loop-1`; \
                 append other messages under a key of their own";
        assert_eq!(text, wanted);
    }
    assert_eq!(times(&chat).len(), 2);
    // A duplicate in a batch is skipped: the first one counts.
    let batch = chat
        .append_batch([(Some("k"), vec![Message::user("Other")])])
        .unwrap();
    assert!(batch[0].duplicate);
}

pub fn an_append_over_several_loops_is_known_again_whole(store: &Store) {
    let chat = store.session("chat").unwrap();
    chat.append([Message::user("Before"), Message::assistant("Yes.")])
        .unwrap();
    let talk = |last: &str| {
        let mut all = Vec::new();
        for number in 0..3 {
            all.push(Message::user(format!("Question {number}")));
            all.push(Message::assistant(format!("Answer {number}{last}")));
        }
        all
    };
    let once = chat.append_once("k", talk("")).unwrap();
    assert_eq!(once.begun.len(), 3);
    chat.append([Message::user("After")]).unwrap();
    assert!(chat.append_once("k", talk("")).unwrap().duplicate);
    refused(&chat, "k", talk("!"));
    let mut other = talk("");
    other[0] = Message::user("Question 9");
    refused(&chat, "k", other);
    let mut more = talk("");
    more.insert(0, Message::user("More"));
    refused(&chat, "k", more);
}
