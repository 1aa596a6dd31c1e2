//! A database behind a stream: the same result, and nothing half when the stream is cut or hostile.

use std::io::{self, Cursor, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use loopstore::*;
use loopstore_sync::{OpenRequest, SyncError, SyncOptions, SyncReport, serve, sync_stream};
use loopstore_testing::amount::amount;
use loopstore_testing::histories::{History, Random};
use loopstore_verify::verify;

use crate::stage::{assert_same, ids, memory, whole};

/// A stream that ends after a number of bytes.
struct Cut<T> {
    inner: T,
    left: Arc<AtomicI64>,
}

impl<T> Cut<T> {
    fn spend(&self, bytes: usize) -> io::Result<usize> {
        let left = self.left.fetch_sub(bytes as i64, Ordering::SeqCst);
        match left {
            left if left <= 0 => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
            left => Ok(bytes.min(left as usize)),
        }
    }
}

impl<T: Read> Read for Cut<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.spend(buffer.len().min(64))?;
        self.inner.read(&mut buffer[..most])
    }
}

impl<T: Write> Write for Cut<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.spend(bytes.len().min(64))?;
        self.inner.write(&bytes[..most])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Brings two databases together over a stream that ends after a number of bytes.
fn over(here: &Store, there: &Path, bytes: i64) -> Result<SyncReport, SyncError> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let left = Arc::new(AtomicI64::new(bytes));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let open = &mut |_: &OpenRequest| -> Result<Box<dyn Database>, String> {
                Ok(Box::new(SqliteStore::open(there).unwrap()))
            };
            // The stream ends when the other side is dropped.
            let _ = serve(&theirs, &theirs, false, open);
        });
        let cut = |stream: &UnixStream| Cut {
            inner: stream.try_clone().unwrap(),
            left: left.clone(),
        };
        let streams = (cut(&ours), cut(&ours));
        let options = SyncOptions::default();
        let result = sync_stream(here.database(), streams, "", &options, &mut |_, _| {});
        ours.shutdown(std::net::Shutdown::Both).unwrap();
        result
    })
}

fn histories(store: &Store, name: &str, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut history = History::new(store.database(), &format!("{name}-{seed}"));
        let mut random = Random::new(seed);
        (0..10).for_each(|_| history.step(&mut random));
    }
}

#[test]
fn a_stream_gives_what_files_give() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.db");
    let (a, b) = (memory(), Store::open(&path).unwrap());
    histories(&a, "a", 0..4);
    histories(&b, "b", 4..8);
    let report = over(&a, &path, i64::MAX / 2).unwrap();
    assert_eq!((report.sent.len(), report.fetched.len()), (4, 4));
    assert!(report.bytes_sent > 0);
    assert_same(&a, &b);
    let again = over(&a, &path, i64::MAX / 2).unwrap();
    assert_eq!(again.unchanged, 8);
    // The hashes of 1,024 buckets, and no session.
    assert!(again.bytes_received < 50_000, "{again:?}");
}

#[test]
fn a_long_session_that_grew_is_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.db");
    let (a, b) = (memory(), Store::open(&path).unwrap());
    let chat = a.session("long").unwrap();
    for turn in 0..200 {
        let text = format!("{turn}: {}", "words ".repeat(500));
        chat.append([Message::user(text), Message::assistant("ok")])
            .unwrap();
    }
    over(&a, &path, i64::MAX / 2).unwrap();
    chat.append([Message::user("one more")]).unwrap();
    let report = over(&a, &path, i64::MAX / 2).unwrap();
    assert_eq!(report.updated_there.len(), 1);
    assert!(report.bytes_sent < 100_000, "{report:?}");
    assert_same(&a, &b);
}

#[test]
fn a_stream_that_ends_at_any_byte_leaves_nothing_half() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.db");
    let (a, b) = (memory(), Store::open(&path).unwrap());
    histories(&a, "a", 0..3);
    histories(&b, "b", 3..6);
    let mut random = Random::new(7);
    for _ in 0..amount("LOOPSTORE_SYNC_CUTS", 40) {
        let bytes = random.below(400_000) as i64;
        if over(&a, &path, bytes).is_ok() {
            break;
        }
        for database in [&a, &b] {
            let report = verify(database.database()).unwrap();
            assert!(report.ok, "{:?}", report.problems);
        }
    }
    over(&a, &path, i64::MAX / 2).unwrap();
    assert_same(&a, &b);
    assert_eq!(ids(&a).len(), 6);
    assert_eq!(whole(&a, &b).unchanged, 6);
}

/// Answers with these bytes.
fn answered(bytes: &[u8]) -> String {
    let here = memory();
    histories(&here, "a", 0..1);
    let streams = (Cursor::new(bytes.to_vec()), io::sink());
    let options = SyncOptions::default();
    let result = sync_stream(here.database(), streams, "", &options, &mut |_, _| {});
    assert!(verify(here.database()).unwrap().ok);
    result.unwrap_err().to_string()
}

fn message(json: &str) -> Vec<u8> {
    let mut frame = vec![b'M'];
    frame.extend_from_slice(&(json.len() as u32).to_le_bytes());
    frame.extend_from_slice(json.as_bytes());
    frame
}

#[test]
fn bad_answers_end_the_sync_with_an_error() {
    let greeting = b"loopstore-sync 1\n";
    let with = |rest: &[u8]| [&greeting[..], rest].concat();
    let info =
        message(r#"{"answer":"info","value":{"place":"x","counter":"heuristic","receipts":"00"}}"#);
    assert!(answered(b"").contains("without an answer"));
    assert!(answered(b"Welcome to host\n$ ").contains("Welcome to host"));
    assert!(answered(&with(b"")).contains("did not open"));
    assert!(answered(&with(b"X\0\0\0\0")).contains("message is missing"));
    assert!(answered(&with(b"M\xff\xff\xff\xff")).contains("at most"));
    assert!(answered(&with(b"M\x0a\0\0\0abc")).contains("ended"));
    assert!(answered(&with(&message("{}"))).contains("unknown message"));
    assert!(answered(&with(&message(&"[".repeat(100_000)))).contains("unknown message"));
    assert!(answered(&with(&info)).contains("ended"));
    let wrong = message(r#"{"answer":"finished"}"#);
    assert!(answered(&with(&[info, wrong].concat())).contains("unexpected"));
}

#[test]
fn bad_requests_are_refused_and_write_nothing() {
    let greeting = b"loopstore-sync 1\n";
    let open = message(
        r#"{"request":"open","database":"","counter":"heuristic","dry_run":false,"filter":{"project":null,"since":null}}"#,
    );
    let empty = b"D\0\0\0\0";
    let data = |bytes: &[u8]| {
        let mut frame = vec![b'D'];
        frame.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        frame.extend_from_slice(bytes);
        frame.extend_from_slice(empty);
        frame
    };
    let digest = "00".repeat(32);
    let store = message(&format!(
        r#"{{"request":"store","id":"x","expected":null,"digest":"{digest}"}}"#
    ));
    let erase = message(
        r#"{"request":"remove","kind":"erase","opened_at":"2026-01-01T00:00:00.000Z","session":"a-0","key":1,"detail":"{}"}"#,
    );
    let requests: [Vec<u8>; 7] = [
        [store.clone(), data(b"+\xff\xff\xff\xff")].concat(),
        [store.clone(), data(b"=\0\0\0\0\x01\0\0\0")].concat(),
        [store.clone(), data(b"?????")].concat(),
        [store, data(b"")].concat(),
        erase,
        message(r#"{"request":"entries","buckets":[65535]}"#),
        message(r#"{"request":"load","id":"\u0000"}"#),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("there.db");
    let there = Store::open(&path).unwrap();
    histories(&there, "a", 0..1);
    for request in requests {
        let input = [&greeting[..], &open, &request].concat();
        let mut output = Vec::new();
        let opener = &mut |_: &OpenRequest| -> Result<Box<dyn Database>, String> {
            Ok(Box::new(SqliteStore::open(&path).unwrap()))
        };
        // Refused with an answer, or the stream is not understood.
        let _ = serve(Cursor::new(input), &mut output, false, opener);
        assert_eq!(ids(&there).len(), 1);
        assert!(verify(there.database()).unwrap().ok);
    }
}
