//! The quotes of a block are in the context, and a search reports them so.

use crate::histories::{History, answer, loop_id, user};
use loopstore::extend::{Disposition, SessionStore};
use loopstore::search::{SearchHit, SearchQuery, search};
use loopstore::{PinRef, PinRequest, unpin};

/// Returns a session of five loops of four turns, each with a word of its own.
fn session_of_words(store: &dyn SessionStore) -> History<'_> {
    let mut history = History::new(store, "s");
    for at in 0..5 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        for turn in 0..4 {
            let text = format!("the word is loop{at}turn{turn}. {}", "Nails. ".repeat(60));
            let messages = vec![user(&text, turn), answer(&"Wood. ".repeat(60), &[], turn)];
            history.append(at, messages);
        }
    }
    history
}

fn hit(store: &dyn SessionStore, at: usize, turn: u32) -> SearchHit {
    let word = format!("loop{at}turn{turn}");
    let results = search(store, &SearchQuery::new(word.as_str())).unwrap();
    assert_eq!(results.hits.len(), 1, "{word}");
    let hit = results.hits[0].clone();
    for hidden in [true, false] {
        let query = SearchQuery {
            hidden: Some(hidden),
            ..SearchQuery::new(word.as_str())
        };
        let found = search(store, &query).unwrap().hits.len();
        assert_eq!(found, usize::from(hit.hidden == hidden), "{word}: {hit:?}");
    }
    hit
}

fn message(at: usize, turn: u32) -> PinRef {
    PinRef::message(loop_id(at).as_str(), turn, 2 * turn)
}

pub fn what_a_block_quotes_is_not_told_as_hidden(store: &dyn SessionStore) {
    use Disposition::{Kept, RolledUp};
    let mut history = session_of_words(store);
    for at in [0, 1, 3, 4] {
        assert!(history.pin(4, message(at, 1)));
    }
    assert_eq!(history.compact(4, (0, 1), true)["outcome"], "committed");
    // Loops 0 and 1 are in the rollup on loop 1; loops 2 and 3 have their own summaries.
    for (at, other) in [
        (0, Some(RolledUp)),
        (1, Some(RolledUp)),
        (3, None),
        (4, None),
    ] {
        let quoted = hit(store, at, 1);
        assert_eq!(
            (quoted.hidden, quoted.disposition),
            (false, Some(Kept)),
            "{quoted:?}"
        );
        assert!(quoted.run_id.is_some(), "{quoted:?}");
        let beside = hit(store, at, 2);
        assert!(beside.hidden && beside.disposition.is_some(), "{beside:?}");
        assert!(other.is_none() || beside.disposition == other, "{beside:?}");
    }
    let last = hit(store, 4, 3);
    assert_eq!((last.hidden, last.disposition), (false, Some(Kept)));
    // A pin alone shows nothing, and its end hides nothing: the next compaction does.
    assert!(history.pin(4, message(0, 2)));
    let leaf = Some(loop_id(4));
    let request = |of| PinRequest {
        of,
        leaf: leaf.clone(),
    };
    for at in [0, 3] {
        unpin(store, &history.session, &request(message(at, 1))).unwrap();
    }
    assert!(hit(store, 0, 2).hidden);
    assert!(!hit(store, 0, 1).hidden && !hit(store, 3, 1).hidden);
    assert_eq!(history.compact(4, (0, 1), true)["outcome"], "committed");
    assert!(!hit(store, 0, 2).hidden);
    assert!(hit(store, 0, 1).hidden && hit(store, 3, 1).hidden);
    // After the undo, the context is as before.
    assert!(history.flip(4, false));
    assert!(!hit(store, 0, 1).hidden && hit(store, 0, 2).hidden);
    assert!(history.flip(4, false));
    let raw = hit(store, 0, 2);
    assert_eq!(
        (raw.hidden, raw.run_id, raw.disposition),
        (false, None, None)
    );
}
