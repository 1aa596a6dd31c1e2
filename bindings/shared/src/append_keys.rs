//! Append keys, and lists of them.

use loopstore::KeyQuery;

/// Returns the query for the keys with a prefix, in the order of their bytes.
pub fn query(
    prefix: String,
    after: Option<String>,
    before: Option<String>,
    descending: bool,
    limit: Option<usize>,
) -> KeyQuery {
    let mut query = KeyQuery::prefix(prefix);
    if let Some(after) = after {
        query = query.after(after);
    }
    if let Some(before) = before {
        query = query.before(before);
    }
    if descending {
        query = query.descending();
    }
    if let Some(limit) = limit {
        query = query.limit(limit);
    }
    query
}
