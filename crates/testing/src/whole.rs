//! The assertion at the end of most tests of a database: `verify` finds no damage.

use loopstore::Database;
use loopstore_verify::verify;

/// Asserts that every digest, reference and total of a database agrees with its rows, and its index with both.
pub fn assert_whole(database: &dyn Database) {
    let report = verify(database).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    assert!(report.index.is_empty(), "{:?}", report.index);
}
