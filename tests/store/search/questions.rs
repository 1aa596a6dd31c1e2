//! Questions as people ask them over recorded transcripts, if both are at hand: the folder that
//! `LOOPSTORE_REAL_TRANSCRIPTS` names, and `exam/questions.jsonl` beside it.
//!
//! A question names its session and the messages that answer it; some have no answer in the data.

use std::collections::HashSet;
use std::path::PathBuf;

use loopstore::SqliteStore;
use loopstore::extend::SessionStore;
#[cfg(feature = "postgres")]
use loopstore::search::SessionHit;
use loopstore::search::{SearchHit, SearchQuery, SearchResults, search, search_sessions};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde::Deserialize;

#[derive(Deserialize)]
struct Question {
    id: u32,
    question: String,
    session: Option<String>,
    evidence: Vec<Place>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Hash)]
struct Place {
    r#loop: String,
    seq: u32,
}

/// Returns the folder of transcripts and the questions, if they are at hand.
fn material() -> Option<(PathBuf, Vec<Question>)> {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from) else {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing measured");
        return None;
    };
    let file = folder.join("../exam/questions.jsonl");
    let lines = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let questions = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    Some((folder, questions.collect()))
}

fn imported<S: SessionStore>(store: S, folder: &std::path::Path) -> S {
    import_paths(
        &store,
        &[folder.to_owned()],
        &ImportOptions::default(),
        &mut |_| {},
    )
    .unwrap();
    store
}

fn places(hits: &[SearchHit]) -> HashSet<Place> {
    let place = |loop_id: &loopstore::model::LoopId, seq| Place {
        r#loop: loop_id.to_string(),
        seq,
    };
    let also = hits.iter().flat_map(|hit| &hit.also);
    let also = also.map(|also| place(&also.loop_id, also.seq));
    let own = hits.iter().map(|hit| place(&hit.loop_id, hit.seq));
    own.chain(also).collect()
}

fn ask(store: &dyn SessionStore, question: &str) -> SearchResults {
    let query = SearchQuery {
        limit: Some(10),
        ..SearchQuery::new(question)
    };
    search(store, &query).unwrap()
}

fn share(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

#[test]
fn people_find_what_they_ask_for() {
    let Some((folder, questions)) = material() else {
        return;
    };
    let store = imported(SqliteStore::in_memory().unwrap(), &folder);
    let (mut recall, mut first, mut best_session) = (Vec::new(), Vec::new(), Vec::new());
    let (mut answered, mut unanswered) = (Vec::new(), Vec::new());
    for Question {
        id,
        question,
        session,
        evidence,
    } in questions
    {
        let found = ask(&store, &question);
        let relevance = found
            .hits
            .iter()
            .map(|hit| hit.relevance)
            .fold(0.0, f64::max);
        let Some(session) = session else {
            unanswered.push(relevance);
            continue;
        };
        answered.push(relevance);
        let places = places(&found.hits);
        let held = evidence
            .iter()
            .filter(|place| places.contains(place))
            .count();
        recall.push(held as f64 / evidence.len() as f64);
        let of_first = found.hits.first().map(|hit| hit.session_id.to_string());
        let is_first = of_first.as_ref() == Some(&session);
        first.push(f64::from(u8::from(is_first)));
        let sessions = search_sessions(&store, &SearchQuery::new(&*question)).unwrap();
        let best = sessions
            .sessions
            .first()
            .map(|best| best.session_id.to_string());
        let is_best = best.as_ref() == Some(&session);
        best_session.push(f64::from(u8::from(is_best)));
        if held < evidence.len() || !is_first || !is_best {
            println!(
                "{id}: {held} of {} {is_first} {is_best} {question}",
                evidence.len()
            );
        }
    }
    let (recall, first, best_session) = (share(&recall), share(&first), share(&best_session));
    println!(
        "recall {recall:.3}, session of the first hit {first:.3}, best session {best_session:.3}"
    );
    unanswered.sort_by(f64::total_cmp);
    answered.sort_by(f64::total_cmp);
    println!("relevance: answered {answered:.2?}\nunanswered {unanswered:.2?}");
    assert!(recall >= 0.92, "{recall}");
    assert!(
        first >= 0.90 && best_session >= 0.90,
        "{first}, {best_session}"
    );
}

/// Both backends give the same hits in the same order.
#[test]
#[cfg(feature = "postgres")]
fn both_backends_have_the_same_order() {
    let Some((folder, questions)) = material() else {
        return;
    };
    let Some(other) = crate::support::server::store() else {
        return;
    };
    let store = imported(SqliteStore::in_memory().unwrap(), &folder);
    let other = imported(other, &folder);
    for Question { id, question, .. } in questions {
        let one = ask(&store, &question);
        assert!(one == ask(&other, &question), "{id}: {question}");
        let sessions = |store: &dyn SessionStore| {
            let query = question.as_str().into();
            let found = search_sessions(store, &query).unwrap();
            let pair = |hit: SessionHit| (hit.session_id, hit.score, hit.hits);
            found.sessions.into_iter().map(pair).collect::<Vec<_>>()
        };
        assert!(sessions(&store) == sessions(&other), "{id}: {question}");
    }
}
