//! Some turns of a session.

use loopstore::*;
use loopstore_share::{ShareCut, ShareError, ShareRequest, SharedSession};
use loopstore_verify::verify;

use crate::stage::{assert_absent, imported, lines, share, texts};
use crate::support::histories::{History, answer, loop_id, result, user};
use crate::support::removal::session;

/// Records two loops of six turns, each with words of its own, a compaction and edits.
fn recorded(store: &SqliteStore) -> History<'_> {
    let mut history = History::new(store, "s");
    turns(&history, 0);
    assert_eq!(history.compact(0, (1, 1), true)["outcome"], "committed");
    history.end_loop(0);
    history.start_loop(Some(0), None);
    turns(&history, 1);
    let target = EditTarget::Message(loop_id(1), 2, 2 * 4);
    edit(
        store,
        &history.session,
        &EditRequest::replace(target, "replaced-by-hand"),
    )
    .unwrap();
    let target = EditTarget::Turns(loop_id(1), 3..=3);
    edit(store, &history.session, &EditRequest::remove([target])).unwrap();
    history
}

fn turns(history: &History<'_>, at: usize) {
    for turn in 0..6 {
        let call = format!("call-{at}-{turn}");
        let word = |what: &str| format!("{what}-of-loop{at}turn{turn}");
        history.append(
            at,
            vec![
                user(&word("question"), turn),
                answer(
                    &format!("{} {}", word("thought"), "words ".repeat(40)),
                    &[&call],
                    turn,
                ),
                result(&call, vec![Content::text(word("output"))], turn),
                answer(&word("answer"), &[], turn),
            ],
        );
    }
}

fn cut(from: Option<(usize, u32)>, to: Option<u32>) -> ShareRequest {
    ShareRequest {
        cut: Some(ShareCut {
            leaf: Some(loop_id(1)),
            from: from.map(|(at, turn)| (loop_id(at), turn)),
            to,
        }),
        ..ShareRequest::new(session("s"))
    }
}

#[test]
fn a_cut_has_its_turns_and_no_word_of_others() {
    let store = SqliteStore::in_memory().unwrap();
    recorded(&store);
    let shared = share(&store, &cut(Some((0, 4)), Some(1)));
    let report = shared.report.cut.unwrap();
    assert_eq!((report.loops, report.turns, report.messages), (2, 4, 16));
    assert_eq!(report.compactions_left_out, 1);
    let all = texts(&shared.page).concat();
    for (at, turn) in [(0, 4), (0, 5), (1, 0), (1, 1)] {
        for what in ["question", "thought", "output", "answer"] {
            assert!(
                all.contains(&format!("{what}-of-loop{at}turn{turn}")),
                "{what} {at} {turn}"
            );
        }
    }
    for (at, turn) in [(0, 0), (0, 1), (0, 3), (1, 2), (1, 5)] {
        assert_absent(&shared.page, &format!("of-loop{at}turn{turn}"));
    }
    let copy = imported(&shared.page).unwrap();
    assert!(verify(&copy).unwrap().ok);
    // The turns are still turns, and the second loop continues the first.
    let rows = copy
        .query("SELECT group_concat(turns) AS t FROM v_loops")
        .unwrap();
    assert_eq!(rows.records()[0].text("t").unwrap(), "2,2");
    let built = build_context_from_session(&copy, &session("s"), &BuildOptions::default());
    let built = built.unwrap();
    assert_eq!(built.messages.len(), 16);
    assert!(built.faults.is_empty());
}

#[test]
fn a_cut_shows_what_edits_left() {
    let store = SqliteStore::in_memory().unwrap();
    recorded(&store);
    let shared = share(&store, &cut(Some((1, 1)), Some(4)));
    let report = shared.report.cut.unwrap();
    assert_eq!((report.loops, report.turns, report.edited), (1, 3, 5));
    assert_absent(&shared.page, "of-loop1turn3");
    assert_absent(&shared.page, "question-of-loop1turn2");
    let all = texts(&shared.page).concat();
    assert!(all.contains("replaced-by-hand") && all.contains("answer-of-loop1turn2"));
    // The original keeps its edits and its compaction.
    assert!(lines(&store, &session("s")).contains("question-of-loop1turn2"));
}

#[test]
fn an_open_end_reaches_the_end_of_the_chain() {
    let store = SqliteStore::in_memory().unwrap();
    recorded(&store);
    let from = share(&store, &cut(Some((1, 4)), None)).report.cut.unwrap();
    assert_eq!((from.loops, from.turns), (1, 2));
    let to = share(&store, &cut(None, Some(0))).report.cut.unwrap();
    assert_eq!((to.loops, to.turns), (2, 7));
}

#[test]
fn an_impossible_cut_is_refused() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded(&store);
    history.start_loop(Some(0), Some(2));
    for (request, why) in [
        (
            cut(Some((1, 3)), Some(1)),
            "turn 3 of loop `loop-1` is after turn 1",
        ),
        (
            cut(Some((0, 9)), None),
            "loop `loop-0` has no turn 9 here; it has 6, counted from 0",
        ),
        (
            cut(None, Some(6)),
            "loop `loop-1` has no turn 6 here; it has 6, counted from 0",
        ),
        (
            cut(Some((2, 0)), None),
            "loop `loop-2` is not on the chain of the cut",
        ),
    ] {
        match SharedSession::prepare(&store, &request) {
            Err(ShareError::Cut(text)) => assert_eq!(text, why),
            Err(other) => panic!("{other}: {why}"),
            Ok(_) => panic!("{why}"),
        }
    }
}
