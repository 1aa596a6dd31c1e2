//! Copies of threads with compactions, and checkpoints of runs in many threads.

use loopstore::{AsOf, EditFilter, EditRequest, EditTarget, Policy, SessionHandle};
use loopstore_verify::verify;

use super::*;

fn handle(saver: &Checkpoints, thread: &str) -> SessionHandle {
    let handle = saver.store().session(thread).unwrap();
    handle.with_policy(Policy::new(8_000))
}

fn compacted(saver: &Checkpoints) {
    let long = "the words of a long answer ".repeat(100);
    let mut stored = put_list(saver, "a", None, 0, json!([{"new": [user("0")]}]));
    for n in 1..40 {
        let text = format!("{n} {long}");
        let message = match n % 2 {
            0 => user(&text),
            _ => answer(&text),
        };
        let parts = json!([{"kept": segments(&stored), "new": [message]}]);
        stored = put_list(saver, &format!("b{n:03}"), None, n, parts);
        if n == 20 || n == 39 {
            assert!(handle(saver, "t").prepare().unwrap().was_compacted(), "{n}");
        }
    }
}

fn shown(handle: &SessionHandle) -> Any {
    let context = handle.context().unwrap();
    assert_eq!(context.faults, []);
    json!([context.tokens, context.messages])
}

#[test]
fn a_copy_has_the_compactions_with_their_undos_and_says_the_same_as_of_then() {
    let saver = python();
    compacted(&saver);
    saver.copy_thread("t", "u").unwrap();
    let [source, copy] = ["t", "u"].map(|thread| handle(&saver, thread));
    let whole = shown(&copy);
    assert_eq!(whole, shown(&source));
    // From here on the two sessions are independent.
    copy.undo().unwrap();
    assert_eq!(shown(&source), whole);
    assert_ne!(shown(&copy), whole);
    saver.copy_thread("u", "v").unwrap();
    let third = handle(&saver, "v");
    assert_eq!(shown(&third), shown(&copy));
    third.redo().unwrap();
    assert_eq!(shown(&third), whole);
    for turn in [0, 1] {
        let then = ["loop-5", "loop-11", "loop-20"].map(|id| {
            let at = AsOf::turn(id, turn);
            let of = |handle: &SessionHandle| {
                let context = handle.context_as_of(at.clone());
                context.ok().map(|context| json!(context.messages))
            };
            (of(&source), of(&third))
        });
        for (one, other) in then {
            assert_eq!(one, other);
        }
    }
    assert_eq!(state(&saver, "b039").len(), 40);
    let report = verify(saver.store().database()).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn a_copy_has_the_edits_with_their_undos() {
    let saver = python();
    compacted(&saver);
    let source = handle(&saver, "t");
    let before = shown(&source);
    let long = EditFilter {
        larger: Some(1_000),
        ..EditFilter::default()
    };
    let request = EditRequest::clear([EditTarget::Matching(long)]);
    assert!(!source.edit(&request).unwrap().edits.is_empty());
    saver.copy_thread("t", "u").unwrap();
    let copy = handle(&saver, "u");
    assert_ne!(shown(&copy), before);
    assert_eq!(shown(&copy), shown(&source));
    copy.undo().unwrap();
    assert_eq!(shown(&copy), before);
    let report = verify(saver.store().database()).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn the_checkpoints_of_a_run_are_found_in_all_threads_and_those_of_others_stay() {
    let saver = python();
    for n in 0..30 {
        let run = format!("run-{}", n % 3);
        for id in ["a", "b"] {
            let ns = if id == "a" { "" } else { "sub" };
            let form = json!({"id": id, "ns": ns, "metadata": {"run_id": run}});
            saver.put(&format!("t{n:02}"), checkpoint(form)).unwrap();
        }
    }
    // Another run stores it again, so it belongs to that run now.
    let form = json!({"id": "a", "metadata": {"run_id": "run-1"}});
    saver.put("t00", checkpoint(form)).unwrap();
    saver.put("t03", checkpoint(json!({"id": "a"}))).unwrap();
    saver.delete_thread("t06", crate::OnDelete::Hide).unwrap();
    let deleted = saver.delete_for_runs(&["run-0".into(), "run-0".into(), "nothing".into()]);
    assert_eq!(deleted.unwrap(), 16);
    let left = saver.list(&ListQuery::default()).unwrap();
    assert_eq!(left.len(), 2 * 20 + 2);
    assert_eq!(left.iter().filter(|left| left.thread == "t00").count(), 1);
    assert_eq!(saver.delete_for_runs(&["run-0".into()]).unwrap(), 0);
    assert_eq!(saver.delete_for_runs(&["run-1".into()]).unwrap(), 21);
}
