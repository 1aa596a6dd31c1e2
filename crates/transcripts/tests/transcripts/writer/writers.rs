//! Blocks have several writers: a compaction by loopstore, a compaction found in a transcript, and the restore of an
//! exported session. The stored coverage must not depend on the writer.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{SessionLines, Source, import_source};

use super::script::*;

/// Returns three loops of two turns, each followed by a note that no context shows.
fn with_notes() -> Vec<Step> {
    let mut steps = vec![Step::Own("s")];
    for (id, parent) in [("a", None), ("b", Some("a")), ("c", Some("b"))] {
        steps.push(begin(id, parent));
        steps.extend(work(id, id));
        steps.push(note(id, "progress", "all done"));
    }
    steps
}

fn compacted_by_us() -> SqliteStore {
    let store = imported(&with_notes());
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: 0,
                keep_recent: KeepRecent::Turns(1),
                compaction_scope: CompactionScope::FixedCount(0),
                block_strategy: Some(Arc::new(DefaultBlockCompaction)),
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    let report = compact_session_loops(&store, &session("s"), &request).unwrap();
    assert_eq!(report.error, None);
    store
}

fn restored(store: &SqliteStore) -> SqliteStore {
    let mut text = Vec::new();
    export(store, &session("s"), None, ExportForm::Lines, &mut text).unwrap();
    let copy = SqliteStore::in_memory().unwrap();
    let mut source = Source {
        path: Path::new("s.jsonl"),
        reader: &mut Cursor::new(text),
    };
    import_source(&copy, &SessionLines, &mut source, None).unwrap();
    copy
}

#[test]
fn a_loop_that_is_rolled_up_is_covered_through_its_last_message_whoever_writes() {
    let rolled_up = "SELECT loop_id, from_seq, to_seq, from_turn, to_turn FROM v_coverage
        WHERE disposition = 'rolled_up' AND loop_id IN ('a', 'b') ORDER BY loop_id";
    let found = with_summary();
    let ours = compacted_by_us();
    for store in [&found, &ours, &restored(&found), &restored(&ours)] {
        // The compaction did not read the note after a loop.
        assert_eq!(rows(store, rolled_up), [r#""a" 0 3 0 1"#, r#""b" 0 3 0 1"#]);
        assert!(loopstore_verify::verify(store).unwrap().ok);
    }
}

/// Returns a summary of the first two loops and the first turn of the third.
fn with_summary() -> SqliteStore {
    let mut steps = with_notes();
    steps.push(summary("c", "sum", Some(("c", 1))));
    imported(&steps)
}
