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

/// Returns the hits, each followed by those that say nearly the same.
fn places(results: &SearchResults) -> Vec<String> {
    let mut places = Vec::new();
    for hit in &results.hits {
        places.push(format!("{}:{}", hit.loop_id, hit.seq));
        let also = hit.also.iter();
        places.extend(also.map(|also| format!("{}:{}", also.loop_id, also.seq)));
    }
    places
}
