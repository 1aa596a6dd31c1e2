//! Transcripts that one database imported, imported again in the other one.

use std::path::PathBuf;

use loopstore::Store;
use loopstore_testing::root;
use loopstore_transcripts::{ImportOptions, ImportReport, import_paths};

use crate::stage::{assert_same, ids, memory, whole};

/// Transcripts with session ids, and some without.
const FORMATS: [&str; 8] = [
    "aider",
    "claude-code",
    "codex",
    "gemini-cli",
    "mini-swe-agent",
    "openai-chat",
    "pi",
    "swe-agent",
];

fn import(store: &Store, format: &str) -> ImportReport {
    let path: PathBuf = root::path("tests/fixtures").join(format);
    let options = ImportOptions::default();
    import_paths(store.database(), &[path], &options, &mut |_| {}).unwrap()
}

#[test]
fn a_transcript_that_the_other_database_imported_adds_nothing() {
    for format in FORMATS {
        let (a, b) = (memory(), memory());
        let first = import(&a, format);
        assert!(first.added_messages > 0, "{format}");
        let report = whole(&a, &b);
        assert_eq!(report.sent.len(), ids(&a).len());
        assert_same(&a, &b);
        let again = import(&b, format);
        assert_eq!(again.added_messages, 0, "{format}");
        assert_eq!(ids(&a), ids(&b), "{format}");
        whole(&a, &b);
        assert_same(&a, &b);
        assert_eq!(import(&a, format).added_messages, 0, "{format}");
    }
}

#[test]
fn a_transcript_that_both_imported_is_one_session() {
    for format in FORMATS {
        let (a, b) = (memory(), memory());
        import(&a, format);
        import(&b, format);
        let count = ids(&a).len();
        assert_eq!(ids(&b).len(), count, "{format}");
        let report = whole(&a, &b);
        assert!(
            report
                .merged
                .iter()
                .all(|merged| merged.branches.is_empty()),
            "{format}: {report:?}"
        );
        assert_same(&a, &b);
        for store in [&a, &b] {
            assert_eq!(import(store, format).added_messages, 0, "{format}");
        }
    }
}
