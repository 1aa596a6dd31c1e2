//! A session with pins and quotes, during all operations on its database.

use crate::histories::{History, answer, loop_id, user};
use crate::whole::assert_whole;
use loopstore::extend::Database;
use loopstore::*;
use loopstore_admin::retention::{
    ArchiveRequest, EraseRequest, KeepReason, PruneRequest, RedactRequest, UnarchiveRequest,
    archive, erase, prune, redact_session, set_protected, unarchive,
};

const SECRET: &str = "hunter2hunter2";

/// The number of pinned messages.
const PINNED: usize = 5 * 2 + 1;

/// Five loops, of each of which a turn is pinned: two are quoted by a rollup, the others by summaries.
pub fn pinned<'a>(store: &'a dyn Database, id: &str) -> History<'a> {
    let mut history = History::new(store, id);
    for at in 0..5 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        for turn in 0..4 {
            let text = match turn {
                1 => format!("git clone https://me:{SECRET}@example.org/{id}/{at}"),
                _ => format!("Part {at}.{turn}. {}", "Nails. ".repeat(60)),
            };
            let messages = vec![user(&text, turn), answer(&"Wood. ".repeat(60), &[], turn)];
            history.append(at, messages);
        }
        let turn = if at == 4 { 3 } else { 1 };
        assert!(history.pin(at, PinRef::turn(loop_id(at).as_str(), turn)));
    }
    assert_eq!(history.compact(4, (0, 1), true)["outcome"], "committed");
    // Another pin, in a loop that the rollup covers: the rollup is written again.
    assert!(history.pin(4, PinRef::message("loop-0", 2, 4)));
    for turn in 4..8 {
        let text = format!("Part {turn}. {}", "More. ".repeat(90));
        history.append(
            4,
            vec![user(&text, turn), answer(&"Wood. ".repeat(60), &[], turn)],
        );
    }
    assert_eq!(history.compact(4, (0, 1), false)["outcome"], "committed");
    (0..5).for_each(|at| history.end_loop(at));
    history
}

/// Returns the context at the end of each loop, and its pins.
pub fn seen(store: &dyn Database, id: &SessionId) -> Vec<String> {
    let mut seen = Vec::new();
    for at in 0..5 {
        let leaf = loop_id(at);
        let options = BuildOptions {
            leaf: Some(leaf.clone()),
            check: true,
            ..BuildOptions::default()
        };
        let context = build_context_from_session(store, id, &options).unwrap();
        let counter = store.counter();
        let tokens = context.messages.iter().map(|m| counter.message_tokens(m));
        assert_eq!(tokens.sum::<u64>(), context.tokens, "{leaf}");
        let pinned = pins(store, id, Some(&leaf)).unwrap().pins;
        let messages = serde_json::to_string(&context.messages).unwrap();
        seen.push(format!("{messages} {:?} {pinned:?}", context.parts));
    }
    let labels = ["[Pinned, ", "[Kept prompt, "];
    let quotes = labels.map(|label| seen[4].matches(label).count());
    let quotes: usize = quotes.iter().sum();
    assert_eq!(quotes, PINNED, "{}", seen[4]);
    seen
}

pub fn number(store: &dyn Database, sql: &str) -> i64 {
    let rows = store.query_within(sql, extend::sqlite::QueryLimits::default());
    rows.unwrap().records()[0].number("n").unwrap()
}

pub fn an_archived_session_shows_its_quotes(store: &dyn Database) {
    let history = pinned(store, "s");
    let before = seen(store, &history.session);
    let request = ArchiveRequest {
        session: Some(history.session.clone()),
        loops: (0..5).map(loop_id).collect(),
        shown: true,
        ..ArchiveRequest::default()
    };
    let report = archive(store, &request).unwrap();
    assert!(!report.loops.is_empty(), "{report:?}");
    assert_eq!(seen(store, &history.session), before);
    assert_whole(store);
    // Archived messages can be pinned, quoted and unpinned.
    assert!(history.pin(4, PinRef::message("loop-0", 3, 6)));
    let request = UnarchiveRequest {
        session: Some(history.session.clone()),
        ..UnarchiveRequest::default()
    };
    unarchive(store, &request).unwrap();
    let now = pins(store, &history.session, None).unwrap().pins;
    assert_eq!(now.len(), PINNED + 1);
    assert_whole(store);
}

pub fn a_redaction_reaches_quotes_and_what_blocks_cover(store: &dyn Database) {
    let history = pinned(store, "s");
    let before = seen(store, &history.session);
    assert!(before[4].matches(SECRET).count() >= 5);
    let covered = "SELECT CAST(sum(tokens_covered) AS BIGINT) AS n FROM blocks";
    let then = number(store, covered);
    let report = redact_session(store, &RedactRequest::new(history.session.clone())).unwrap();
    assert!(report.left.is_empty(), "{report:?}");
    let after = seen(store, &history.session);
    assert!(
        !after.iter().any(|seen| seen.contains(SECRET)),
        "{after:#?}"
    );
    assert!(after[4].contains("example.org/s/0"));
    assert_ne!(number(store, covered), then);
    assert_whole(store);
    // The coverage of each block equals the current sizes of its originals.
    let rollups = "SELECT b.loop, b.tokens_covered AS n FROM blocks b WHERE b.kind = 'rollup'
        ORDER BY b.key";
    let rows = store.query_within(rollups, extend::sqlite::QueryLimits::default());
    let rows = rows.unwrap().records();
    assert!(rows.len() > 1, "one was written anew");
    for row in rows {
        let key = row.number("loop").unwrap();
        let whole =
            format!("SELECT CAST(sum(tokens) AS BIGINT) AS n FROM loops WHERE key <= {key}");
        assert_eq!(row.number("n"), Some(number(store, &whole)));
    }
}

pub fn what_is_erased_or_pruned_leaves_no_pin_behind(store: &dyn Database) {
    let erased = pinned(store, "erased").session;
    let old = pinned(store, "old").session;
    let kept = pinned(store, "kept").session;
    let before = seen(store, &kept);
    let pins = "SELECT count(*) AS n FROM pins";
    let quotes = "SELECT count(*) AS n FROM block_messages WHERE quotes IS NOT NULL";
    let all = (number(store, pins), number(store, quotes));
    let request = EraseRequest {
        force: true,
        ..EraseRequest::new(erased)
    };
    let report = erase(store, &request).unwrap();
    assert_eq!(
        report.counts["pins"],
        all.0.cast_unsigned() / 3,
        "{report:?}"
    );
    assert_eq!(
        (number(store, pins), number(store, quotes)),
        (all.0 / 3 * 2, all.1 / 3 * 2)
    );
    assert_whole(store);
    // A session is protected from pruning by its own mark, not by its pins.
    set_protected(store, &kept, true).unwrap();
    let request = PruneRequest {
        older_than: Some(0),
        ..PruneRequest::default()
    };
    let report = prune(store, &request).unwrap();
    let pruned: Vec<&SessionId> = report.pruned.iter().map(|one| &one.session_id).collect();
    assert_eq!(pruned, [&old], "{report:?}");
    assert!(matches!(report.kept[0].why, KeepReason::Protected));
    assert_eq!(
        (number(store, pins), number(store, quotes)),
        (all.0 / 3, all.1 / 3)
    );
    assert_eq!(seen(store, &kept), before);
    assert_whole(store);
}
