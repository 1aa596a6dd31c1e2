//! Forks that cut inside a turn, compared with a twin whose parent has only the messages before the cut.

use crate::whole::assert_whole;
use loopstore::{extend as store, *};
use loopstore_copy::copy;
use serde_json::json;

fn look(calls: &[&str]) -> Message {
    let look = Message::assistant("I look.");
    calls
        .iter()
        .fold(look, |look, id| look.with_tool_call(*id, "look", json!({})))
}

pub fn what_comes_behind_the_cut_is_not_on_the_branch(store: &Store) {
    let chat = store.session("talk").unwrap();
    chat.append([Message::user("One?"), look(&["a", "b"])])
        .unwrap();
    chat.append([
        Message::tool_result("a", "found a"),
        Message::tool_result("b", "found b"),
    ])
    .unwrap();
    chat.append([Message::assistant("Both.")]).unwrap();
    let side = chat.fork_at(TurnRef::within("loop-1", 0, 2)).unwrap();
    let shown = |chat: &SessionHandle| chat.context().unwrap().messages.len();
    assert_eq!((shown(&side), shown(&chat)), (3, 5));
    assert_eq!(side.entries(&EntryQuery::new()).unwrap().len(), 3);
    // The call whose result is after the cut is open here, and its result is added to it.
    assert!(matches!(
        side.start_call("b").unwrap(),
        CallState::New { .. }
    ));
    side.append([Message::tool_result("b", "found another b")])
        .unwrap();
    side.append([Message::assistant("Both, again.")]).unwrap();
    assert_eq!(shown(&side), 5);
    assert!(side.context().unwrap().faults.is_empty());
    assert_eq!(shown(&chat), 5);
    // The message of the branch is in its context, the message after the cut is not.
    let context = format!("{:?}", side.context().unwrap().messages);
    assert!(context.contains("another b") && !context.contains("found b"));
    // A pin after the cut does not belong to the branch.
    assert!(side.pin(PinRef::message("loop-1", 0, 3)).is_err());
    side.pin(PinRef::message("loop-1", 0, 0)).unwrap();
    assert_eq!(side.pins().unwrap().len(), 1);
    let sql = "SELECT parent_turn, parent_seq FROM v_loops WHERE loop_id = 'loop-2'";
    let row = &store
        .database()
        .query_within(sql, Default::default())
        .unwrap()
        .records()[0];
    assert_eq!(
        (row.number("parent_turn"), row.number("parent_seq")),
        (Some(0), Some(2))
    );
    assert_whole(store.database());
}

pub fn a_cut_at_the_end_of_a_turn_is_that_of_the_turn(store: &Store) {
    let chat = store.session("talk").unwrap();
    chat.append([Message::user("One?"), Message::assistant("One.")])
        .unwrap();
    let side = chat.fork_at(TurnRef::within("loop-1", 0, 1)).unwrap();
    let row = |side: &SessionHandle| {
        let leaf = side.leaf().unwrap().unwrap();
        store::read(store.database(), |read| {
            let key = read.session(side.id())?.unwrap().key;
            Ok(read.loop_by_id(key, &leaf)?.unwrap())
        })
        .unwrap()
    };
    assert_eq!(
        (row(&side).parent_turn, row(&side).parent_seq),
        (Some(0), None)
    );
    for bad in [
        TurnRef::within("loop-1", 0, 2),
        TurnRef::within("loop-1", 1, 0),
        TurnRef::new("loop-1", 1),
    ] {
        assert!(chat.fork_at(bad).is_err());
    }
    // An open turn has no end yet.
    chat.append([Message::user("Two?")]).unwrap();
    let chat = store
        .session("talk")
        .unwrap()
        .at_loop(&LoopId::new("loop-1").unwrap())
        .unwrap();
    let leaf = chat.leaf().unwrap().unwrap();
    assert!(chat.fork_at(TurnRef::new(leaf.as_str(), 0)).is_err());
    let side = chat.fork_at(TurnRef::within(leaf.as_str(), 0, 0)).unwrap();
    assert_eq!(row(&side).parent_seq, Some(0));
    assert_whole(store.database());
}

pub fn a_run_counts_as_for_a_cut_at_the_turn_before(store: &Store) {
    let chat = store.session("talk").unwrap();
    for round in 0..3 {
        let call = format!("c{round}");
        chat.append([
            Message::user(format!("Question {round}: {}", "words ".repeat(40))),
            look(&[&call]),
        ])
        .unwrap();
        chat.append([Message::tool_result(&call, "line\n".repeat(200))])
            .unwrap();
        chat.append([Message::assistant("Done.")]).unwrap();
        let request = CompactRequest {
            trigger: CompactTrigger::Force,
            ..CompactRequest::default()
        };
        chat.compact(&request).unwrap();
    }
    let leaf = chat.leaf().unwrap().unwrap();
    // The state before the last loop had a complete turn.
    let side = chat.fork_at(TurnRef::within(leaf.as_str(), 0, 1)).unwrap();
    let at_start = chat.context_as_of(AsOf::turn("loop-2", 1)).unwrap();
    let seen = side.context().unwrap().messages;
    let own = seen.len() - 2;
    assert_eq!(
        seen[..own].len(),
        at_start.messages.len()
            - usize::from(own < at_start.messages.len()) * (at_start.messages.len() - own)
    );
    let before = chat.context().unwrap().messages;
    side.append([Message::tool_result("c2", "another")])
        .unwrap();
    side.compact(&CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    })
    .unwrap();
    assert_eq!(chat.context().unwrap().messages, before);
    let _ = side.undo();
    assert_whole(store.database());
}

pub fn a_cut_inside_a_turn_is_copied_and_comes_back_from_lines(store: &Store) {
    let chat = store.session("talk").unwrap();
    chat.append([Message::user("One?"), look(&["a"])]).unwrap();
    chat.append([Message::tool_result("a", "found a")]).unwrap();
    let side = chat.fork_at(TurnRef::within("loop-1", 0, 1)).unwrap();
    side.append([Message::tool_result("a", "other")]).unwrap();
    let (other, folder) = (Store::in_memory().unwrap(), tempfile::tempdir().unwrap());
    let report = copy(
        store.database(),
        other.database(),
        folder.path(),
        &mut |_, _| {},
    )
    .unwrap();
    assert!(report.is_whole(), "{report:?}");
    let there = other.session("talk").unwrap();
    assert_eq!(
        there.context().unwrap().messages,
        side.context().unwrap().messages
    );
    assert_whole(other.database());
    // The document of phi-core contains it too.
    let whole = side.load_whole().unwrap();
    let text = serde_json::to_string(&whole).unwrap();
    assert!(text.contains("\"parent_seq\":1"), "{text}");
}
