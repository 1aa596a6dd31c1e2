//! A database with every kind of audited row, and copies of it to attack.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loopstore::extend::{self as store, ImportRow, session};
use loopstore::{
    BuildOptions, PinRef, PinRequest, SessionId, SqliteStore, build_context_from_session, unpin,
};
use loopstore_admin::retention::{EraseRequest, RedactRequest, erase, redact_session};
use loopstore_verify::{VerifyReport, verify};
use rusqlite::Connection;

use crate::support::histories::{History, answer, loop_id, open, result, user};
use crate::support::keyed;
use loopstore::model::Content;

pub struct Stage {
    folder: tempfile::TempDir,
    file: PathBuf,
    /// The current contexts of all loops.
    pub contexts: BTreeMap<String, String>,
}

pub fn long(text: &str) -> String {
    format!("{text}: {}", "a sentence that takes its place, ".repeat(6))
}

impl Stage {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("whole.db");
        let store = open(&file);
        for session in ["s", "t", "gone"] {
            fill(&store, session);
        }
        let gone = SessionId::new("gone").unwrap();
        let request = EraseRequest {
            force: true,
            ..EraseRequest::new(gone)
        };
        erase(&store, &request).unwrap();
        let request = RedactRequest {
            reason: Some("a password".into()),
            ..RedactRequest::new(SessionId::new("t").unwrap())
        };
        let report = redact_session(&store, &request);
        assert!(report.unwrap().messages > 3);
        let report = verify(&store).unwrap();
        assert!(report.ok, "{:#?}", report.problems);
        let contexts = contexts(&store);
        assert!(contexts.len() > 4, "{contexts:#?}");
        drop(store);
        keyed::raw(&file).unwrap().execute_batch("VACUUM").unwrap();
        Self {
            folder,
            file,
            contexts,
        }
    }

    /// Copies the file.
    pub fn copy(&self) -> PathBuf {
        let copy = self.folder.path().join("attacked.db");
        for end in ["", "-wal", "-shm", "-queue"] {
            let _ = std::fs::remove_file(format!("{}{end}", copy.display()));
        }
        std::fs::copy(&self.file, &copy).unwrap();
        copy
    }
}

/// Records a session with a chain of loops, pins, blocks of three kinds with quotes, an undo and a redo, a manifest and
/// a note.
fn fill(store: &SqliteStore, session: &str) {
    let mut history = History::new(store, session);
    for at in 0..3 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        for turn in 0..6 {
            let call = format!("{session}-{at}-{turn}");
            let output = vec![Content::text("line\n".repeat(30))];
            history.append(
                at,
                vec![
                    user(&long("clone https://me:hunter2@example.org/x"), turn),
                    answer(&long("working"), &[&call], turn),
                    result(&call, output, turn),
                ],
            );
        }
        let pinned = PinRef::turn(loop_id(at).as_str(), 2);
        assert!(history.pin(at, pinned.clone()));
        assert_eq!(history.compact(at, (1, 2), false)["outcome"], "committed");
        if at == 1 {
            let leaf = Some(loop_id(at));
            unpin(store, &history.session, &PinRequest { of: pinned, leaf }).unwrap();
        }
    }
    assert!(history.flip(2, false) && history.flip(2, true) && history.flip(2, false));
    let recorded = BuildOptions {
        record: true,
        ..BuildOptions::default()
    };
    build_context_from_session(store, &history.session, &recorded).unwrap();
    store::write(store, |write| {
        let row = write.session(&history.session)?.unwrap();
        let from = ImportRow {
            format: "pi".into(),
            path: "/some/where.jsonl".into(),
            file_name: "where.jsonl".into(),
            record_key: None,
        };
        write.insert_import(row.key, &from)?;
        session::hide(write, row.key)?;
        session::unhide(write, row.key, &history.session)
    })
    .unwrap();
}

/// Returns the context at the end of each loop, or the error.
pub fn contexts(store: &SqliteStore) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let leaves = store::read(store, |read| {
        let mut leaves = Vec::new();
        for session in read.sessions()? {
            for row in read.loops(session.key)? {
                leaves.push((session.session_id.clone(), row.loop_id.clone()));
            }
        }
        Ok(leaves)
    });
    let Ok(leaves) = leaves else {
        return all;
    };
    for (session, leaf) in leaves {
        let name = format!("{session}/{leaf}");
        let options = BuildOptions {
            leaf: Some(leaf),
            ..BuildOptions::default()
        };
        if let Ok(context) = build_context_from_session(store, &session, &options) {
            let text = serde_json::to_string(&context.messages).unwrap();
            all.insert(name, text);
        }
    }
    all
}

/// Verifies a file that was attacked; `None` if it cannot be opened.
pub fn verified(file: &Path) -> Option<(SqliteStore, VerifyReport)> {
    let store = keyed::open(file).ok()?;
    let report = verify(&store).ok()?;
    Some((store, report))
}

/// Opens a file as a plain shell does: with triggers, and foreign keys off.
pub fn shell(file: &Path) -> Connection {
    let connection = keyed::raw(file).unwrap();
    connection
        .execute_batch("PRAGMA synchronous = off; PRAGMA foreign_keys = off")
        .unwrap();
    connection
}
