//! A sync of 100,000 sessions of which ten changed: `cargo bench --bench sync`.
//!
//! Two files have the same sessions; then five of them continue in each file. They are brought together over a stream.
//! The bytes may be at most 50 times those of the changed sessions and 64 KiB more for the hashes of the buckets, and
//! the sync may take at most 60 seconds.

mod workload;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use loopstore::extend::append::{self, NewMessage};
use loopstore::extend::{self as store, session};
use loopstore::*;
use loopstore_sync::{OpenRequest, SyncOptions, SyncReport, serve, sync_stream};
use workload::judge;

const SESSIONS: usize = 100_000;
const AT_ONCE: usize = 1_000;
const CHANGED: usize = 5;
const SECONDS: f64 = 60.0;
/// The largest number of bytes for a changed session; its texts have about 1,000.
const BYTES: f64 = 50_000.0;

type Failure = Box<dyn std::error::Error>;

fn id(number: usize) -> Result<SessionId, Failure> {
    Ok(SessionId::new(format!("session-{number}"))?)
}

fn fill(store: &SqliteStore) -> Result<(), Failure> {
    for first in (0..SESSIONS).step_by(AT_ONCE) {
        let ids = (first..first + AT_ONCE).map(id);
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        store::write(store, |write| {
            for id in &ids {
                let key =
                    session::create_session(write, &Session::new(id.clone(), "a"), None, None)?;
                let mut record = LoopRecord::new(LoopId::generate(), None);
                record.status = LoopStatus::Completed;
                let key = session::create_loop(write, key, &record)?;
                let words = "a word ".repeat(60);
                let new = [Message::user(words.clone()), Message::assistant(words)];
                let new = new.map(|message| NewMessage::from(AgentMessage::from(message)));
                append::append(write, key, new.into(), &HeuristicTokenCounter)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn change(store: &Store, first: usize) -> Result<(), Failure> {
    for number in first..first + CHANGED {
        let chat = store.session(id(number)?)?;
        chat.append([Message::user("more"), Message::assistant("yes")])?;
    }
    Ok(())
}

fn over(here: &Store, there: &Path) -> Result<SyncReport, Failure> {
    let (ours, theirs) = UnixStream::pair()?;
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let open = &mut |_: &OpenRequest| -> Result<Box<dyn Database>, String> {
                let opened = SqliteStore::open(there).map_err(|error| error.to_string())?;
                Ok(Box::new(opened))
            };
            serve(&theirs, &theirs, false, open)
        });
        let options = SyncOptions::default();
        let report = sync_stream(
            here.database(),
            (&ours, &ours),
            "",
            &options,
            &mut |_, _| {},
        );
        ours.shutdown(std::net::Shutdown::Both)?;
        let answered = answering.join();
        let report = report?;
        match answered {
            Ok(answered) => answered?,
            Err(_) => return Err("the other side ended with a panic".into()),
        }
        Ok(report)
    })
}

fn run() -> Result<bool, Failure> {
    let mut met = true;
    let folder = tempfile::tempdir()?;
    let (here, there) = (
        folder.path().join("here.db"),
        folder.path().join("there.db"),
    );
    {
        let options = SqliteOptions::new().durability(Durability::Normal);
        fill(&SqliteStore::open_with(&here, options)?)?;
        let store = SqliteStore::open(&here)?;
        loopstore_admin::backup::backup(&store, &there, false, &mut |_, _| {})?;
    }
    let store = Store::open(&here)?;
    change(&store, 0)?;
    change(&Store::open(&there)?, CHANGED)?;
    let begun = Instant::now();
    let report = over(&store, &there)?;
    let seconds = begun.elapsed().as_secs_f64();
    let changed = report.updated_here.len() + report.updated_there.len();
    let bytes = report.bytes_sent + report.bytes_received;
    println!("{SESSIONS} sessions, {changed} changed: {seconds:.2} s, {bytes} bytes");
    if changed != 2 * CHANGED {
        return Err(format!("{changed} sessions were brought together").into());
    }
    judge("seconds of a sync", seconds, SECONDS, &mut met);
    let each = (bytes as f64 - 65_536.0) / changed as f64;
    judge("bytes for a changed session", each, BYTES, &mut met);
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
