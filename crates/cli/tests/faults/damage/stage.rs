//! A database with every kind of page: small pages, forks, blocks, images, free pages.

use std::path::{Path, PathBuf};

use loopstore::model::Content;
use loopstore::{BuildOptions, SqliteStore, build_context_from_session};

use crate::support::histories::{History, Random, answer, result, user};
use crate::support::plain::open;

pub struct Stage {
    pub folder: tempfile::TempDir,
    pub file: PathBuf,
}

impl Stage {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("whole.db");
        let store = open(&file);
        let mut random = Random::new(3);
        for session in ["s", "t"] {
            record(&store, session, &mut random);
        }
        loopstore::extend::search::index(&store, &mut |_| {}).unwrap();
        drop(store);
        make_small(&file);
        Self { folder, file }
    }

    /// Writes `bytes` as a database in a folder of its own.
    pub fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        for end in ["-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(companion(&path, end));
        }
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

pub fn companion(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

pub fn record(store: &SqliteStore, session: &str, random: &mut Random) {
    let mut history = History::new(store, session);
    for turn in 0..12 {
        let call = format!("{session}-{turn}");
        let output = vec![
            Content::text(format!("line {turn}\n").repeat(20 + 40 * (turn as usize % 3))),
            Content::image("aGVsbG8=", "image/png"),
        ];
        history.append(
            0,
            vec![
                user(&format!("please look at the kite number {turn}"), turn),
                answer("I look at it", &[&call], turn),
                result(&call, output, turn),
            ],
        );
    }
    assert_eq!(history.compact(0, (1, 2), false)["outcome"], "committed");
    for _ in 0..12 {
        history.step(random);
    }
    let recorded = BuildOptions {
        record: true,
        ..BuildOptions::default()
    };
    // Their ids fill an index.
    for _ in 0..8 {
        build_context_from_session(store, &history.session, &recorded).unwrap();
    }
}

/// Rewrites the file with small pages, so that each tree has inner pages, and leaves free pages.
fn make_small(file: &Path) {
    let connection = crate::support::plain::raw(file).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = delete; PRAGMA page_size = 512; VACUUM;
             CREATE TABLE gone (x);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
             INSERT INTO gone SELECT zeroblob(400) FROM n;
             DROP TABLE gone; PRAGMA journal_mode = wal;",
        )
        .unwrap();
}
