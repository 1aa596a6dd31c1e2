//! Helpers: exports, imports, and everything that can be read of a session, as text.

use std::io::Cursor;
use std::path::Path;

use loopstore::context::{AsOf, build_context_from_session};
use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportError, ImportReport, SessionLines, Source, import_source};
use loopstore_verify::verify;

use crate::support::histories::{History, Random};

pub fn exported(store: &SqliteStore, id: &SessionId) -> String {
    let mut bytes = Vec::new();
    export(store, id, None, ExportForm::Lines, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

pub fn imported(store: &SqliteStore, text: &str) -> Result<ImportReport, ImportError> {
    let mut reader = Cursor::new(text.as_bytes().to_vec());
    let mut source = Source {
        path: Path::new("s.jsonl"),
        reader: &mut reader,
    };
    import_source(store, &SessionLines, &mut source, None)
}

/// Returns the reason why an import was rejected.
pub fn refused(store: &SqliteStore, text: &str) -> String {
    imported(store, text).unwrap_err().to_string()
}

/// Returns the rows of every table that an import may write to, without keys.
pub fn rows(store: &SqliteStore) -> Vec<String> {
    let tables = [
        "sessions",
        "loops",
        "turns",
        "messages",
        "runs",
        "edits",
        "flips",
        "pins",
        "hides",
        "blocks",
        "block_messages",
        "coverage",
        "manifests",
        "notes",
        "started_calls",
        "imports",
        "sources",
        "blobs",
        "blob_refs",
    ];
    tables.map(|table| count(store, table)).to_vec()
}

pub fn count(store: &SqliteStore, table: &str) -> String {
    let rows = store
        .query(&format!("SELECT count(*) FROM {table}"))
        .unwrap();
    format!("{table} {}", rows.rows[0][0].as_str())
}

pub fn sound(store: &SqliteStore) {
    let report = verify(store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}

fn context(store: &SqliteStore, id: &SessionId, options: &BuildOptions) -> String {
    let context = build_context_from_session(store, id, options).unwrap();
    let messages = serde_json::to_string(&context.messages).unwrap();
    format!("{messages} {:?} {:?}", context.parts, context.faults)
}

/// Returns the context of each loop and as of each run, and the output of `history` and the views.
pub fn all_that_is_seen(store: &SqliteStore, id: &SessionId, loops: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for at in 0..loops {
        let options = BuildOptions {
            leaf: Some(crate::support::histories::loop_id(at)),
            ..BuildOptions::default()
        };
        seen.push(context(store, id, &options));
    }
    let runs = store
        .query("SELECT run_id FROM v_compaction_runs WHERE outcome = 'committed' ORDER BY run_id")
        .unwrap();
    for run in runs.rows {
        let options = BuildOptions {
            as_of: Some(AsOf::Run(run[0].read().unwrap())),
            ..BuildOptions::default()
        };
        seen.push(context(store, id, &options));
    }
    for view in [
        "v_sessions",
        "v_loops ORDER BY loop_id",
        "v_turns ORDER BY loop_id, turn",
        "v_compaction_runs ORDER BY run_id",
        "v_compaction_blocks ORDER BY loop_id, generation",
        "v_edits ORDER BY run_id, loop_id, from_seq, part",
        "v_pins ORDER BY created_at, loop_id, seq",
        "v_coverage ORDER BY block_loop_id, generation, loop_id, from_seq",
        "v_chain ORDER BY leaf_loop_id, depth",
        "v_manifests ORDER BY manifest_id",
    ] {
        let rows = store.query(&format!("SELECT * FROM {view}")).unwrap();
        seen.push(format!("{view} {:?}", rows.rows));
    }
    seen
}

pub fn grown<'a>(store: &'a SqliteStore, random: &mut Random, steps: usize) -> History<'a> {
    let mut history = History::new(store, "s");
    for _ in 0..steps {
        history.step(random);
    }
    history
}
