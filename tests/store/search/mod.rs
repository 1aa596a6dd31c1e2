//! Search: recorded messages are found at once, removed ones are not, and recording does not get slower.

mod finding;
mod index;
mod questions;
mod random;
mod reference;

use loopstore::extend::SessionStore;
use loopstore::search::{SearchQuery, SearchResults, search};

/// Returns the hits for `text` as `loop:seq`, in the order of the ranking.
fn found(store: &dyn SessionStore, text: &str) -> Vec<String> {
    let query = SearchQuery {
        limit: Some(100_000),
        ..SearchQuery::new(text)
    };
    let results = search(store, &query).unwrap();
    places(&results)
}

/// Returns the hits, each followed by its near duplicates.
fn places(results: &SearchResults) -> Vec<String> {
    let mut places = Vec::new();
    for hit in &results.hits {
        places.push(format!("{}:{}", hit.loop_id, hit.seq));
        let also = hit.also.iter();
        places.extend(also.map(|also| format!("{}:{}", also.loop_id, also.seq)));
    }
    places
}
