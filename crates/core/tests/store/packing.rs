//! Packing the parts of a file that grows meanwhile.

use std::io::Write as _;

use loopstore::SqliteStore;
use loopstore_core::store::packing::Packing;
use loopstore_core::store::source::{MAX_PART_BYTES, keep_packed, write_out};
use loopstore_core::store::{self, SessionStore as _, session};
use loopstore_model::{Session, SessionId};

/// Packs a file of so many bytes, lets it grow, keeps it, and returns whether all of it is there.
fn keeps_what_grew(bytes: usize, more: usize, stops_after: usize) -> bool {
    let store = SqliteStore::in_memory().unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut text: Vec<u8> = (0..bytes).map(|at| (at / 1_000) as u8).collect();
    file.write_all(&text).unwrap();
    let pieces: Vec<_> = std::thread::scope(|scope| {
        let packing = Packing::start(scope, file.path(), || false).unwrap();
        packing.take(stops_after).collect()
    });
    file.write_all(&vec![b'x'; more]).unwrap();
    text.resize(bytes + more, b'x');
    let (mut out, mut pieces) = (Vec::new(), pieces.into_iter());
    let new = Session::new(SessionId::new("s").unwrap(), "a");
    let key = store::write(&store, |write| {
        let key = session::create_session(write, &new, None, None)?;
        let file = file.as_file_mut();
        keep_packed(write, file, &mut pieces, "f", "path", &[key]).unwrap();
        Ok(key)
    });
    let key = key.unwrap();
    let written = |read: &dyn store::StoreRead| {
        let sources = read.sources(key)?;
        write_out(read, &sources[0], &mut out).unwrap();
        Ok(())
    };
    store.read(Box::new(written)).unwrap();
    out == text
}

#[test]
fn what_a_file_grew_by_after_it_was_packed_is_kept_too() {
    for bytes in [
        0,
        10,
        MAX_PART_BYTES,
        3 * MAX_PART_BYTES + 7,
        5 * MAX_PART_BYTES + 7,
    ] {
        for (more, stops_after) in [(0, 99), (1, 99), (2 * MAX_PART_BYTES, 99), (5, 2), (5, 0)] {
            assert!(
                keeps_what_grew(bytes, more, stops_after),
                "{bytes} {more} {stops_after}"
            );
        }
    }
}
