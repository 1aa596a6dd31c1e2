//! A folder with an encrypted database of known content.

use std::path::{Path, PathBuf};

use loopstore::{Durability, Key, SearchQuery, SqliteOptions, SqliteStore, search};

use crate::histories::{History, answer, user};

/// Words that are in every session, in messages, summaries and the index.
pub const WORDS: [&str; 3] = ["marigold", "quicksilver", "xylophone"];

pub fn key() -> Key {
    Key::raw(&[0x5c; 32])
}

pub fn options() -> SqliteOptions {
    SqliteOptions::new().durability(Durability::Normal)
}

/// Records a session, compacts it and searches it, so that every kind of row is there.
pub fn fill(store: &SqliteStore, id: &str) {
    let mut history = History::new(store, id);
    for turn in 0..30 {
        let long = WORDS.join(" and ").repeat(40);
        history.append(0, vec![user(&long, turn), answer(&long, &[], turn)]);
    }
    assert_eq!(history.compact(0, (1, 2), true)["outcome"], "committed");
    let found = search(store, &SearchQuery::new("marigold")).unwrap();
    assert!(!found.hits.is_empty());
}

/// Returns the names of the files in a folder that hold one of the words, in either encoding or
/// as FTS5 keeps it.
pub fn telling(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        let bytes = std::fs::read(file).unwrap();
        let has = |word: &str| {
            bytes
                .windows(word.len())
                .any(|part| part == word.as_bytes())
        };
        // FTS5 omits the prefix that a term shares with the one before.
        WORDS.iter().any(|word| has(word) || has(&word[2..])) || has("CREATE TABLE")
    });
    files.sort();
    files
}
