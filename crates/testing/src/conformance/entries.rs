//! Stored messages are returned one by one: pages from the end, after a position, of some kinds only; compared
//! with a full read.

use loopstore::*;
use serde_json::json;

fn note(kind: &str, number: usize) -> AgentMessage {
    AgentMessage::extension(kind, json!({ "n": number }).into())
}

fn long_way(chat: &SessionHandle, loops: &[(&str, usize)]) -> Vec<(String, u32, AgentMessage)> {
    let mut all = Vec::new();
    for (id, end) in loops {
        let record = chat.load_loop(&LoopId::new(*id).unwrap()).unwrap();
        let messages = record.messages.into_iter().take(*end).enumerate();
        all.extend(messages.map(|(seq, message)| ((*id).to_owned(), seq as u32, message)));
    }
    all
}

fn places(entries: &[Entry]) -> Vec<(String, u32, AgentMessage)> {
    let place = |entry: &Entry| (entry.loop_id.to_string(), entry.seq, entry.message.clone());
    entries.iter().map(place).collect()
}

/// Three loops and a branch from the middle of the first, with notes everywhere.
pub fn talk(store: &Store) -> (SessionHandle, SessionHandle) {
    let chat = store.session("talk").unwrap();
    chat.append([note("before", 0)]).unwrap();
    for round in 0..3 {
        let call = Message::assistant("I look.").with_tool_call("c", "look", json!({}));
        chat.append([
            AgentMessage::from(Message::user(format!("Question {round}?"))),
            note("mood", round),
        ])
        .unwrap();
        chat.append([AgentMessage::from(call), note("mood", round + 10)])
            .unwrap();
        chat.append([Message::tool_result("c", "found")]).unwrap();
        chat.append([
            AgentMessage::from(Message::assistant(format!("Answer {round}."))),
            note("state", round),
        ])
        .unwrap();
    }
    let side = chat.fork_at(TurnRef::new("loop-1", 0)).unwrap();
    side.append([Message::user("Or this?"), Message::assistant("Or that.")])
        .unwrap();
    (chat, side)
}

pub fn a_line_is_told_up_to_its_cuts_and_a_session_whole(store: &Store) {
    let (chat, side) = talk(store);
    let all = EntryQuery::new();
    let line = [("loop-1", 99), ("loop-2", 99), ("loop-3", 99)];
    assert_eq!(places(&chat.entries(&all).unwrap()), long_way(&chat, &line));
    // The first turn of the first loop ends before its second answer.
    let branch = [("loop-1", 6), ("loop-4", 99)];
    let entries = side.entries(&all).unwrap();
    assert_eq!(places(&entries), long_way(&chat, &branch));
    assert_eq!(entries[0].turn, None);
    assert_eq!((entries[1].turn, entries[5].turn), (Some(0), Some(0)));
    assert_eq!(side.count_entries(&all).unwrap(), entries.len() as u64);
    let whole = EntryQuery::whole_session();
    let loops = [
        ("loop-1", 99),
        ("loop-2", 99),
        ("loop-3", 99),
        ("loop-4", 99),
    ];
    assert_eq!(
        places(&side.entries(&whole).unwrap()),
        long_way(&chat, &loops)
    );
    assert_eq!(chat.count_entries(&whole).unwrap(), 8 + 7 + 7 + 2);
}

pub fn what_a_compaction_hides_is_told_all_the_same(store: &Store) {
    let (chat, _) = talk(store);
    let before = chat.entries(&EntryQuery::new()).unwrap();
    let request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    chat.compact(&request).unwrap();
    assert_eq!(chat.entries(&EntryQuery::new()).unwrap(), before);
}

pub fn a_time_is_that_of_the_message_else_that_of_its_append(store: &Store) {
    let chat = store.session("times").unwrap();
    let prompt = UserMessage {
        timestamp: Some(1_700_000_000_123.into()),
        ..UserMessage::default()
    };
    let before = Time::now().millis().unwrap();
    chat.append([Message::User(prompt), Message::assistant("Yes.")])
        .unwrap();
    let after = Time::now().millis().unwrap();
    let entries = chat.entries(&EntryQuery::new()).unwrap();
    let times: Vec<_> = entries.iter().map(|entry| entry.created_at).collect();
    assert_eq!(times[0], Some(1_700_000_000_123));
    assert!((before..=after).contains(&times[1].unwrap()), "{times:?}");
    // The message itself is returned unchanged.
    assert_eq!(entries[1].message.message().unwrap().timestamp(), None);
}

pub fn a_session_that_is_not_there_has_none_and_a_place_must_be_there(store: &Store) {
    let nobody = store.session("nobody").unwrap();
    assert_eq!(nobody.entries(&EntryQuery::new().last(3)).unwrap(), []);
    assert_eq!(
        nobody.count_entries(&EntryQuery::whole_session()).unwrap(),
        0
    );
    let (chat, side) = talk(store);
    for (loop_id, seq) in [("loop-9", 0), ("loop-3", 99), ("loop-4", 0)] {
        let at = EntryRef::new(loop_id, seq);
        let (after, before) = (
            EntryQuery::new().after(at.clone()),
            EntryQuery::new().before(at),
        );
        for query in [after.clone().last(1), after, before.clone().last(1), before] {
            let error = chat.entries(&query).unwrap_err().to_string();
            assert_eq!(error, format!("no message `{loop_id}:{seq}`"));
            assert_eq!(chat.count_entries(&query).unwrap_err().to_string(), error);
        }
    }
    // After the cut of the branch, but in the session.
    let hidden = EntryRef::new("loop-1", 7);
    assert!(
        side.entries(&EntryQuery::new().after(hidden.clone()))
            .is_err()
    );
    let whole = EntryQuery::whole_session().after(hidden);
    assert_eq!(side.entries(&whole).unwrap().len(), 7 + 7 + 2);
    // The two are adjacent.
    let (first, last) = (EntryRef::new("loop-1", 0), EntryRef::new("loop-3", 0));
    let none = EntryQuery::new().after(last).before(first);
    assert_eq!(chat.entries(&none).unwrap(), []);
}
