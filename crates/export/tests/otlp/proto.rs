//! The messages of `opentelemetry-proto` accept every line, of fixtures, recorded transcripts and random histories.

use std::path::{Path, PathBuf};

use loopstore::extend::{SessionStore, StoreRead, read};
use loopstore::{SessionId, SqliteStore};
use loopstore_export::OtlpContent;
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::json;

use crate::stage::traces;
use crate::support::edited_histories;
use crate::support::needs::{PROVIDER_TYPES, find};
use crate::support::validated_lines::ValidatedLines;

/// The lines to parse.
struct RequestFile {
    lines: ValidatedLines,
    spans: u64,
    sessions: u64,
}

impl RequestFile {
    fn new() -> Self {
        Self {
            lines: ValidatedLines::new(),
            spans: 0,
            sessions: 0,
        }
    }

    fn add(&mut self, store: &dyn SessionStore, id: &SessionId) {
        for content in [OtlpContent::Included, OtlpContent::Omitted] {
            let traces = traces(store, id, content);
            self.lines.add(&traces.text);
            self.spans += traces.report.spans;
        }
        self.sessions += 1;
    }

    /// Parses the lines with the interpreter.
    fn parse(self, python: &Path) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otlp/proto.py");
        let last = self.lines.validate(python, &script);
        assert_eq!(last, json!({"spans": self.spans}));
    }
}

fn sessions(store: &dyn SessionStore) -> Vec<SessionId> {
    let ids = |read: &dyn StoreRead| read.session_ids("", u32::MAX);
    read(store, ids).unwrap()
}

#[test]
fn the_messages_of_otlp_take_every_transcript() {
    let Some(python) = find(&PROVIDER_TYPES) else {
        return;
    };
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")];
    folders.extend(std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from));
    let mut file = RequestFile::new();
    for folder in &folders {
        for format in std::fs::read_dir(folder).unwrap() {
            let path = format.unwrap().path();
            if !path.is_dir() {
                continue;
            }
            let store = SqliteStore::in_memory().unwrap();
            // A folder may contain only files that other tests expect to be rejected.
            if import_paths(&store, &[path], &ImportOptions::default(), &mut |_| {}).is_ok() {
                sessions(&store).iter().for_each(|id| file.add(&store, id));
            }
        }
    }
    assert!(file.sessions >= 50, "{}", file.sessions);
    file.parse(&python);
}

#[test]
fn the_messages_of_otlp_take_histories_with_edits() {
    let Some(python) = find(&PROVIDER_TYPES) else {
        return;
    };
    let mut file = RequestFile::new();
    for seed in 0..8 {
        let store = SqliteStore::in_memory().unwrap();
        edited_histories::play(&store, seed, 24);
        sessions(&store).iter().for_each(|id| file.add(&store, id));
    }
    file.parse(&python);
}
