//! The test's side of `shim.c`: compiles it, sets the calls that fail, reads its log.

use crate::support::process;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The kinds of calls that are counted, as bits; `shim.c` has the same.
pub mod calls {
    pub const WRITE: i64 = 1;
    pub const TRUNCATE: i64 = 2;
    pub const SYNC: i64 = 4;
    pub const REMOVE: i64 = 8;
    pub const RENAME: i64 = 16;
    pub const CREATE: i64 = 32;
    pub const OPEN: i64 = 128;
    /// All calls that change stored data.
    pub const CHANGES: i64 = WRITE | TRUNCATE | SYNC | REMOVE | RENAME | CREATE;
}

/// The effect on the selected call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    KillBefore = 1,
    KillAfter,
    /// Half of the bytes are written, then the process is killed.
    KillHalf,
    /// EIO.
    Fail,
    /// Half of the bytes are written, then ENOSPC.
    Full,
    /// EACCES.
    Denied,
}

/// The words of the control file, in order.
#[derive(Clone, Copy)]
enum Word {
    Kinds,
    At,
    Act,
    Lasting,
    Count,
    Clock,
    ReadOnly,
}

const WORDS: u64 = 7;

/// The environment of a process with the shim.
pub struct Shim {
    control: PathBuf,
    log: PathBuf,
    folder: PathBuf,
    _own: Option<tempfile::TempDir>,
}

impl Shim {
    /// Creates a shim that watches a folder.
    pub fn on(folder: &Path) -> Self {
        let own = crate::crash::stage::folder();
        let shim = Self {
            control: own.path().join("control"),
            log: own.path().join("log"),
            folder: folder.to_owned(),
            _own: Some(own),
        };
        std::fs::write(&shim.control, [0; 8 * WORDS as usize]).unwrap();
        shim
    }

    /// Returns the shim of this process, if it has one.
    pub fn of_this_process() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Some(Self {
            control: path("SHIM_CONTROL")?,
            log: path("SHIM_LOG").unwrap_or_default(),
            folder: path("SHIM_FOLDER")?,
            _own: None,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets the environment of a command to run with the shim.
    pub fn apply_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", library())
            .env("SHIM_CONTROL", &self.control)
            .env("SHIM_FOLDER", &self.folder);
    }

    /// Sets the environment of a command to run with the shim and log its writes.
    pub fn apply_logging(&self, command: &mut Command) {
        self.apply_to(command);
        command.env("SHIM_LOG", &self.log);
    }

    /// Makes the call number `at` (from 1) of those that are counted from now on fail.
    pub fn fail_at(&self, kinds: i64, at: u64, act: Act) {
        self.tell(kinds, at, act as i64, 0);
    }

    /// Makes that call and all later ones fail.
    pub fn fail_from(&self, kinds: i64, at: u64, act: Act) {
        self.tell(kinds, at, act as i64, 1);
    }

    /// Only counts calls from now on.
    pub fn watch(&self, kinds: i64) {
        self.tell(kinds, 0, 0, 0);
    }

    /// Makes no further call fail. Returns the number of counted calls.
    pub fn stop_failing(&self) -> u64 {
        let count = self.count();
        self.tell(0, 0, 0, 0);
        count
    }

    fn tell(&self, kinds: i64, at: u64, act: i64, lasting: i64) {
        self.put(Word::Kinds, 0);
        self.put(Word::At, at.cast_signed());
        self.put(Word::Act, act);
        self.put(Word::Lasting, lasting);
        self.put(Word::Count, 0);
        self.put(Word::Kinds, kinds);
    }

    /// Returns the number of counted calls.
    pub fn count(&self) -> u64 {
        let mut word = [0; 8];
        let file = File::open(&self.control).unwrap();
        file.read_exact_at(&mut word, Word::Count as u64 * 8)
            .unwrap();
        u64::from_ne_bytes(word)
    }

    /// Sets the number of seconds by which the wall clock is ahead.
    pub fn set_clock(&self, seconds: i64) {
        self.put(Word::Clock, seconds);
    }

    /// Sets whether the folder is on a read-only disk.
    pub fn set_read_only(&self, read_only: bool) {
        self.put(Word::ReadOnly, read_only.into());
    }

    fn put(&self, word: Word, value: i64) {
        let file = OpenOptions::new().write(true).open(&self.control).unwrap();
        file.write_all_at(&value.to_ne_bytes(), word as u64 * 8)
            .unwrap();
    }

    /// Records in the log that something was acknowledged.
    pub fn mark(&self, text: &str) {
        let mut record = Vec::new();
        record.push(b'k');
        record.extend((-1_i32).to_ne_bytes());
        record.extend(0_i64.to_ne_bytes());
        record.extend(u32::try_from(text.len()).unwrap().to_ne_bytes());
        record.extend(text.as_bytes());
        let mut log = OpenOptions::new().append(true).open(&self.log).unwrap();
        log.write_all(&record).unwrap();
    }

    /// Reads the log.
    pub fn events(&self) -> Vec<Event> {
        read_log(&std::fs::read(&self.log).unwrap())
    }
}

/// A change of a process to its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Open {
        fd: i32,
        name: String,
        is_new: bool,
        cuts: bool,
    },
    Close(i32),
    Write {
        fd: i32,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        fd: i32,
        length: usize,
    },
    Sync(i32),
    Remove(String),
    Move {
        from: String,
        to: String,
    },
    Mark(String),
}

fn read_log(log: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = log;
    let mut moved = String::new();
    while let Some((head, more)) = rest.split_at_checked(17) {
        let fd = i32::from_ne_bytes(head[1..5].try_into().unwrap());
        let at = i64::from_ne_bytes(head[5..13].try_into().unwrap()) as usize;
        let length = u32::from_ne_bytes(head[13..17].try_into().unwrap()) as usize;
        let (bytes, more) = more.split_at(length);
        rest = more;
        let text = || String::from_utf8(bytes.to_vec()).unwrap();
        events.push(match head[0] {
            what @ (b'c' | b'o') => Event::Open {
                fd,
                name: text(),
                is_new: what == b'c',
                cuts: at != 0,
            },
            b'x' => Event::Close(fd),
            b'w' => Event::Write {
                fd,
                at,
                bytes: bytes.to_vec(),
            },
            b't' => Event::Truncate { fd, length: at },
            b's' => Event::Sync(fd),
            b'u' => Event::Remove(text()),
            b'm' => {
                moved = text();
                continue;
            }
            b'n' => Event::Move {
                from: std::mem::take(&mut moved),
                to: text(),
            },
            b'k' => Event::Mark(text()),
            what => panic!("{what}"),
        });
    }
    assert!(rest.is_empty());
    events
}

/// Compiles the shim, once per run of the tests.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/crash/shim.c");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim.so");
        // Another run may be using the existing library.
        let fresh = library.with_extension(format!("{}", std::process::id()));
        let done = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"])
            .args([&fresh, &source])
            .args(["-ldl", "-lpthread"])
            .status()
            .expect("a C compiler");
        assert!(done.success());
        std::fs::rename(fresh, &library).unwrap();
        library
    })
}

/// Runs one test of this program in a separate process, with a shim on a new folder, and checks that it passed. Returns
/// the shim in that process, `None` in this one.
pub fn in_own_process(test: &str) -> Option<Shim> {
    if let Some(shim) = Shim::of_this_process() {
        return Some(shim);
    }
    let folder = crate::crash::stage::folder();
    let shim = Shim::on(folder.path());
    print!("{}", process::passed(&mut command_for(test, &shim)));
    None
}

/// Returns a command that runs one test of this program with a shim.
pub fn command_for(test: &str, shim: &Shim) -> Command {
    let mut command = process::test(test);
    shim.apply_to(&mut command);
    command
}
