//! The report page of a session with archived loops.

use loopstore::SqliteStore;

use crate::support::amount::amount;
use crate::support::archive::play;
use crate::support::histories::History;
use crate::support::page::Page;

/// Returns a page without the time at which it was made.
fn untimed(store: &SqliteStore, history: &History<'_>) -> Vec<String> {
    let Page { html, mut index } = Page::of(store, history.session.as_str());
    assert!(index["made_at"].take().is_string());
    let (before, rest) = html.split_once("id=\"index\">").unwrap();
    let (_, after) = rest.split_once("</script>").unwrap();
    vec![format!("{before}{index}{after}")]
}

#[test]
fn the_page_stays_the_same_when_loops_are_archived() {
    let histories = amount("LOOPSTORE_HISTORIES", 8);
    let moved: u32 = (0..histories)
        .map(|seed| play(seed, &untimed, &|_, _| Vec::new()))
        .sum();
    assert!(u64::from(moved) > histories / 2, "{moved} in {histories}");
}
