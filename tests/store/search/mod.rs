//! Search: what is recorded is found at once, what is gone is not, and recording does not pay for it.

mod finding;
mod index;
mod questions;
mod random;
mod reference;

use loopstore::extend::SessionStore;
use loopstore::search::{SearchQuery, SearchResults, search};

/// Returns the hits for `text` as `loop:seq`, the best first.
fn found(store: &dyn SessionStore, text: &str) -> Vec<String> {
    let query = SearchQuery {
        limit: Some(100_000),
        ..SearchQuery::new(text)
    };
    let results = search(store, &query).unwrap();
    places(&results)
}

fn places(results: &SearchResults) -> Vec<String> {
    let place = |hit: &loopstore::SearchHit| format!("{}:{}", hit.loop_id, hit.seq);
    results.hits.iter().map(place).collect()
}
