//! Restores of edited messages and parts.

use loopstore::{
    BuildOptions, EditRefusal, EditRequest, EditTarget, FlipRequest, build_context_from_session,
    restore, undo,
};

use super::edits::{apply, context, edited_session, flip, message, remove, text};
use super::*;
use crate::whole::assert_whole;

fn part(turn: u32, seq: u32, part: u32) -> EditTarget {
    EditTarget::Part(loop_id(0), turn, seq, part)
}

/// Restores a target, and returns the runs that were undone.
fn restored(history: &History<'_>, target: EditTarget) -> Vec<String> {
    let done = restore(history.store, &history.session, None, &[target]).unwrap();
    done.into_iter().map(|report| report.run_id).collect()
}

fn refused(history: &History<'_>, target: EditTarget) -> EditRefusal {
    match restore(history.store, &history.session, None, &[target]) {
        Err(StoreError::EditRefused(why)) => why,
        other => panic!("{other:?}"),
    }
}

pub fn a_part_is_restored_without_the_other_edits_of_its_message(store: &dyn Database) {
    let history = edited_session(store, "s");
    let before = context(&history);
    // The text and the image of a result, each by a run of its own, and both halves of a pair.
    let cleared = apply(&history, &EditRequest::clear([part(1, 5, 0)]));
    let dropped = remove(&history, part(1, 5, 1));
    let call = remove(&history, part(3, 10, 1));
    assert_eq!(call.paired.len(), 1);
    assert_eq!(
        refused(&history, part(1, 4, 0)),
        EditRefusal::NotEdited,
        "the answer of the turn"
    );
    assert!(matches!(
        refused(&history, part(1, 5, 2)),
        EditRefusal::NoPart { parts: 2, .. }
    ));
    assert_eq!(restored(&history, part(1, 5, 1)), [dropped.run_id.unwrap()]);
    let shown = text(&context(&history));
    assert!(shown.contains("[cleared: 200 bytes"), "{shown}");
    assert_eq!(restored(&history, part(1, 5, 0)), [cleared.run_id.unwrap()]);
    // A call comes back with its result.
    assert_eq!(restored(&history, part(3, 10, 1)), [call.run_id.unwrap()]);
    assert_eq!(context(&history).messages, before.messages);
    assert_whole(store);
}

pub fn a_restore_of_a_part_names_what_else_would_come_back(store: &dyn Database) {
    let history = edited_session(store, "s");
    let both = EditRequest::clear([part(1, 5, 0), part(2, 8, 0)]);
    let run = apply(&history, &both).run_id.unwrap();
    let others = |target| match refused(&history, target) {
        EditRefusal::OtherTargets { run: named, others } if named == run => others,
        other => panic!("{other:?}"),
    };
    assert_eq!(others(part(1, 5, 0)), "loop-0:2:8:0");
    assert_eq!(others(part(2, 8, 0)), "loop-0:1:5:0");
    let targets = [part(1, 5, 0), part(2, 8, 0)];
    let done = restore(store, &history.session, None, &targets).unwrap();
    assert_eq!((done.len(), &done[0].run_id), (1, &run));
    // A message that was removed as a whole comes back with all of its parts.
    let run = remove(&history, message(1, 5)).run_id.unwrap();
    let others = |target| match refused(&history, target) {
        EditRefusal::OtherTargets { run: named, others } if named == run => others,
        other => panic!("{other:?}"),
    };
    assert_eq!(others(part(1, 5, 0)), "loop-0:1:5:1");
    let turns = EditTarget::Turns(loop_id(0), 3..=6);
    let run = remove(&history, turns).run_id.unwrap();
    let others = |target| match refused(&history, target) {
        EditRefusal::OtherTargets { run: named, others } if named == run => others,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        others(part(3, 9, 0)),
        "loop-0:3:10, loop-0:3:11, loop-0:4:12, loop-0:4:13, loop-0:4:14 and 6 more"
    );
    assert_whole(store);
}

pub fn a_restore_that_would_leave_a_fault_is_refused(store: &dyn Database) {
    let history = edited_session(store, "s");
    let mut prompt = user("hello", 8);
    if let Some(inner) = prompt.message_mut() {
        inner.content_mut().push(Content::text(""));
    }
    history.append(0, vec![prompt, answer("so", &[], 8)]);
    history.append(0, turn(9));
    let filled = apply(&history, &EditRequest::replace(part(8, 24, 1), "and you"));
    remove(&history, part(8, 24, 0));
    let before = context(&history);
    assert!(text(&before).contains("and you") && !text(&before).contains("hello"));
    // Only an empty text would be left of the prompt.
    assert!(matches!(
        refused(&history, part(8, 24, 1)),
        EditRefusal::Fault { .. }
    ));
    let request = FlipRequest {
        run: filled.run_id,
        ..FlipRequest::default()
    };
    assert!(matches!(
        undo(store, &history.session, &request),
        Err(StoreError::EditRefused(EditRefusal::Fault { .. }))
    ));
    assert_eq!(context(&history).messages, before.messages);
    assert_whole(store);
}

pub fn what_was_recorded_with_a_fault_comes_back(store: &dyn Database) {
    let history = edited_session(store, "s");
    // A call that never got its result, and a later one with the id of another.
    history.append(0, vec![user("run", 8), answer("so", &["lost"], 8)]);
    let output = vec![Content::text("again")];
    let again = [
        user("again", 9),
        answer("so", &["call-2"], 9),
        result("call-2", output, 9),
    ];
    history.append(0, again.into());
    let shown = || {
        let built = build_context_from_session(store, &history.session, &BuildOptions::default());
        built.unwrap()
    };
    let before = shown();
    assert!(before.faults.len() >= 2, "{:?}", before.faults);
    let turns = EditTarget::Turns(loop_id(0), 8..=9);
    let report = remove(&history, turns.clone());
    // The result of the first call with that id stays.
    assert_eq!((report.edits.len(), report.paired.len()), (5, 0));
    let run = report.run_id.unwrap();
    assert!(shown().faults.is_empty());
    assert_eq!(restored(&history, turns), [run]);
    assert_eq!(shown().messages, before.messages);
    flip(&history, None, true);
    flip(&history, None, false);
    assert_eq!(shown().messages, before.messages);
    assert_whole(store);
}
