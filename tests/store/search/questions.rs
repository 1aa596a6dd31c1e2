//! Questions of people about recorded transcripts, if both are available: the folder that `LOOPSTORE_REAL_TRANSCRIPTS`
//! names, and `exam/questions.jsonl` next to it.
//!
//! A question names its session and the messages that answer it; some have no answer in the data.

use loopstore::SqliteStore;
use loopstore::search::{SearchQuery, search_sessions};
use loopstore_testing::questions::{ExamQuestion, ask, imported, material, places};

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
    for ExamQuestion {
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
