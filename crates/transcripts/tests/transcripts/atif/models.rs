//! The models of the package `atif` accept every trajectory that is written.

use std::path::{Path, PathBuf};

use loopstore::extend::SessionStore;
use loopstore::{SessionId, SqliteStore, Store};
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::json;

use super::stage::{odd_session, written};
use crate::session_jsonl::stage::grown;
use crate::support::amount::amount;
use crate::support::edited_histories::play;
use crate::support::histories::Random;
use crate::support::needs::{PROVIDER_TYPES, find};
use crate::support::root::fixture;
use crate::support::validated_lines::ValidatedLines;

/// The trajectories to validate, one per line.
struct Trajectories {
    lines: ValidatedLines,
    count: u64,
}

impl Trajectories {
    fn new() -> Self {
        let lines = ValidatedLines::new();
        Self { lines, count: 0 }
    }

    /// Adds a session: the whole, and the chain of its current loop.
    fn add(&mut self, store: &dyn SessionStore, id: &SessionId) {
        self.add_text(id.as_str(), &written(store, id).0);
        let current = loopstore::extend::read(store, |read| {
            let row = loopstore::extend::session_of(read, id)?;
            row.current_loop
                .map(|key| read.loop_by_key(key))
                .transpose()
        });
        if let Some(row) = current.unwrap() {
            let mut bytes = Vec::new();
            let leaf = Some(&row.loop_id);
            export(store, id, leaf, ExportForm::Atif, &mut bytes).unwrap();
            self.add_text(id.as_str(), std::str::from_utf8(&bytes).unwrap());
        }
    }

    fn add_text(&mut self, name: &str, text: &str) {
        let name = json!(name);
        let text = text.replace('\n', " ");
        self.lines
            .add(&format!("{{\"name\":{name},\"document\":{text}}}\n"));
        self.count += 1;
    }

    fn add_folder(&mut self, folder: PathBuf) -> usize {
        let store = SqliteStore::in_memory().unwrap();
        let options = ImportOptions::default();
        // A folder may contain only files that other tests expect to be rejected.
        let Ok(report) = import_paths(&store, &[folder], &options, &mut |_| {}) else {
            return 0;
        };
        report.sessions.iter().for_each(|id| self.add(&store, id));
        report.sessions.len()
    }

    fn validate(self, python: &Path) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/atif/models.py");
        let last = self.lines.validate(python, &script);
        assert_eq!(last, json!({"judged": self.count}));
    }
}

#[test]
fn the_models_take_what_is_written_of_every_transcript() {
    let Some(python) = find(&PROVIDER_TYPES) else {
        return;
    };
    let mut folders = vec![fixture("")];
    folders.extend(std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from));
    let (mut trajectories, mut count) = (Trajectories::new(), 0);
    for folder in folders {
        for format in std::fs::read_dir(folder).unwrap() {
            let path = format.unwrap().path();
            if path.is_dir() {
                count += trajectories.add_folder(path);
            }
        }
    }
    assert!(count >= 50, "{count}");
    trajectories.validate(&python);
}

#[test]
fn the_models_take_compactions_edits_and_odd_content() {
    let Some(python) = find(&PROVIDER_TYPES) else {
        return;
    };
    let mut trajectories = Trajectories::new();
    for seed in 0..amount("LOOPSTORE_HISTORIES", 12) {
        let store = SqliteStore::in_memory().unwrap();
        let history = grown(&store, &mut Random::new(seed), 50);
        trajectories.add(&store, &history.session);
        let store = SqliteStore::in_memory().unwrap();
        play(&store, seed, 30);
        trajectories.add(&store, &SessionId::new(format!("s{seed}")).unwrap());
    }
    let store = Store::in_memory().unwrap();
    let id = odd_session(&store);
    trajectories.add(store.database(), &id);
    // A session without loops.
    store.session("empty").unwrap();
    trajectories.validate(&python);
}
