//! Mutated transcripts of every format.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use loopstore::SqliteStore;
use loopstore_transcripts::{Source, import_source, importers};
use loopstore_verify::verify;

use crate::hostile::mutate::mutated;
use crate::hostile::{InputGuard, inputs};
use crate::support::histories::Random;
use crate::support::process;

/// Returns the fixture files that are transcripts.
fn fixtures() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![crate::support::root::path("tests/fixtures")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(end) if end == "json" || end == "jsonl" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "{found:?}");
    found
}

/// The number of files that are imported into a database before it is verified.
const FILES_PER_STORE: u64 = 60;

#[test]
fn mutated_transcripts_are_imported_or_refused() {
    if !process::is_alone("hostile::transcripts::mutated_transcripts_are_imported_or_refused") {
        return;
    }
    crate::support::proof::activate();
    let fixtures: Vec<(PathBuf, Vec<u8>)> = fixtures()
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    let mut came_in = 0;
    let wanted = inputs(600);
    for batch in 0..wanted.div_ceil(FILES_PER_STORE) {
        let store = SqliteStore::in_memory().unwrap();
        for number in 0..FILES_PER_STORE {
            let seed = batch * FILES_PER_STORE + number + 1;
            let mut random = Random::new(seed);
            let (path, whole) = &fixtures[seed as usize % fixtures.len()];
            let bytes = mutated(whole, &mut random);
            let _tried = InputGuard::new(format!("seed {seed}, {}", path.display()));
            came_in += u64::from(import(&store, path, &bytes));
        }
        let report = verify(&store).unwrap();
        assert!(report.ok, "batch {batch}: {:#?}", report.problems);
    }
    assert!(came_in > wanted / 10, "{came_in}: the test tests nothing");
    crate::support::proof::tally("mutated transcript", wanted, crate::hostile::INPUTS);
}

#[test]
#[cfg(debug_assertions)]
fn a_panic_is_found_out() {
    let test = "hostile::transcripts::mutated_transcripts_are_imported_or_refused";
    crate::support::proof::catches(test, "panic", &[], "a fault that is built in");
}

/// Imports bytes with the importer that detects them; the user may select any other one.
fn import(store: &SqliteStore, path: &Path, bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(64 << 10)];
    let mut came_in = false;
    for importer in importers() {
        let is_own = importer.detect(path, head);
        if !is_own && !bytes.len().is_multiple_of(8) {
            continue;
        }
        let mut reader = Cursor::new(bytes.to_vec());
        let mut source = Source {
            path,
            reader: &mut reader,
        };
        let report = import_source(store, *importer, &mut source, None);
        came_in |= report.is_ok_and(|report| report.messages > 0);
        if is_own {
            break;
        }
    }
    came_in
}
