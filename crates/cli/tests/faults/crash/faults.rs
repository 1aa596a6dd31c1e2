//! A disk that fails or is full, and permissions that are lost, at any call of an operation: an error
//! that says so, nothing half done, and the same store goes on when the cause is gone.

use std::path::Path;

use loopstore::extend::search::index;
use loopstore::*;
use loopstore_admin::backup::{BackupError, backup};
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_transcripts::{ImportError, ImportOptions, import_paths};

use crate::crash::shim::{Act, Shim, alone, calls};
use crate::crash::stage::*;
use crate::support::amount::amount;

/// What can be told from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Io,
    Full,
    ReadOnly,
    /// When opening; the cause is in the error.
    NotOpened,
    /// SQLite takes a read that fails for damage of the file system.
    Damaged,
    /// A file that is not the database.
    OtherFile,
    /// It may be there.
    Unconfirmed,
}

fn why(error: &StoreError) -> Why {
    match error {
        StoreError::Io(_) => Why::Io,
        StoreError::Full => Why::Full,
        StoreError::ReadOnly => Why::ReadOnly,
        StoreError::Damaged(_) => Why::Damaged,
        StoreError::Unconfirmed(_) => Why::Unconfirmed,
        StoreError::Other(cause) if cause.is::<OpenError>() => Why::NotOpened,
        other => panic!("{other:?}"),
    }
}

fn why_not_opened(error: &OpenError) -> Why {
    match error {
        OpenError::Other { .. } | OpenError::ReadOnly { .. } => Why::NotOpened,
        OpenError::Damaged { .. } => Why::Damaged,
        other => panic!("{other:?}"),
    }
}

struct Operation {
    name: &'static str,
    before: Option<fn() -> Vec<u8>>,
    /// Is given no store if opening is what is tried.
    run: fn(Option<&SqliteStore>, &Path) -> Result<(), Why>,
    opens: bool,
    /// More than one transaction: cut off, it may be half done, and is finished by doing it again.
    in_steps: bool,
}

impl Operation {
    const PLAIN: Self = Self {
        name: "",
        before: Some(told),
        run: |_, _| Ok(()),
        opens: false,
        in_steps: false,
    };
}

const OPERATIONS: [Operation; 8] = [
    Operation {
        name: "append",
        run: |store, _| append(store.unwrap(), 7).map_err(|error| why(&error)),
        ..Operation::PLAIN
    },
    Operation {
        name: "compact",
        run: |store, _| match crate::crash::power::compact(store.unwrap()) {
            Ok(outcome) => {
                assert_eq!(outcome, "committed");
                Ok(())
            }
            Err(error) => Err(why(&error)),
        },
        ..Operation::PLAIN
    },
    Operation {
        name: "import",
        run: import,
        ..Operation::PLAIN
    },
    Operation {
        name: "backup",
        run: copy,
        ..Operation::PLAIN
    },
    Operation {
        name: "create",
        before: None,
        run: open,
        opens: true,
        ..Operation::PLAIN
    },
    Operation {
        name: "migrate",
        before: Some(crate::crash::commands::old),
        run: open,
        opens: true,
        ..Operation::PLAIN
    },
    Operation {
        name: "erase",
        before: Some(crate::crash::commands::two_sessions),
        run: remove,
        in_steps: true,
        ..Operation::PLAIN
    },
    Operation {
        name: "index",
        run: |store, _| match index(store.unwrap(), &mut |_| {}) {
            Ok(_) => Ok(()),
            Err(error) => Err(why(&error)),
        },
        in_steps: true,
        ..Operation::PLAIN
    },
];

fn told() -> Vec<u8> {
    bytes_of(|store| drop(tell(store, "s")))
}

fn open(_: Option<&SqliteStore>, file: &Path) -> Result<(), Why> {
    let opened = crate::support::keyed::open(file);
    opened.map(drop).map_err(|error| why_not_opened(&error))
}

fn import(store: Option<&SqliteStore>, _: &Path) -> Result<(), Why> {
    let path = fixture("openai-chat/messages.json");
    let done = import_paths(
        store.unwrap(),
        &[path],
        &ImportOptions::default(),
        &mut |_| {},
    );
    match done {
        Ok(report) => {
            assert_eq!(report.skipped, []);
            Ok(())
        }
        Err(ImportError::Store(error)) => Err(why(&error)),
        Err(other) => panic!("{other:?}"),
    }
}

fn remove(store: Option<&SqliteStore>, _: &Path) -> Result<(), Why> {
    let request = EraseRequest::new(session("secret"));
    let done = erase(store.unwrap(), &request);
    done.map(drop).map_err(|error| why(&error))
}

fn copy(store: Option<&SqliteStore>, file: &Path) -> Result<(), Why> {
    let to = file.with_file_name("copy.db");
    let made = backup(store.unwrap(), &to, true, &mut |_, _| {});
    let why = match made {
        Ok(_) => None,
        Err(BackupError::Store(error)) => Some(why(&error)),
        Err(BackupError::Open(error)) => Some(why_not_opened(&error)),
        Err(BackupError::Write { .. }) => Some(Why::OtherFile),
        // A page that cannot be read is one that does not fit.
        Err(BackupError::Damaged(_)) => Some(Why::Damaged),
        Err(other) => panic!("{other:?}"),
    };
    why.map_or(Ok(()), Err)
}

/// What goes wrong: which calls, how, and whether from then on.
const TROUBLES: [(i64, Act, bool); 5] = [
    (255, Act::Fail, false),
    (255, Act::Fail, true),
    (calls::WRITE | calls::CREATE, Act::Full, false),
    (calls::WRITE | calls::CREATE, Act::Full, true),
    (calls::OPEN, Act::Denied, true),
];

struct Trial<'a> {
    shim: &'a Shim,
    operation: &'a Operation,
    bytes: Option<Vec<u8>>,
    before: State,
    after: State,
}

impl Trial<'_> {
    /// Runs it with one trouble at one call; returns whether there were so many calls.
    fn strike(&self, trouble: (i64, Act, bool), at: u64) -> bool {
        let case = format!("{}, {trouble:?} at {at}", self.operation.name);
        let (kinds, act, lasting) = trouble;
        let file = self.place();
        let store = (!self.operation.opens).then(|| crate::support::keyed::open(&file).unwrap());
        match lasting {
            true => self.shim.strike_from(kinds, at, act),
            false => self.shim.strike(kinds, at, act),
        }
        let done = (self.operation.run)(store.as_ref(), &file);
        let is_struck = self.shim.rest() >= at;
        if let Err(why) = done {
            assert!(is_struck, "{case}: {why:?}");
            assert!(act == Act::Fail || why != Why::Damaged, "{case}");
        }
        self.check(&case, store, &file, done);
        is_struck
    }

    /// The same store, or whoever opens the file next, finds all as it was or as it is to be, and
    /// goes on.
    fn check(&self, case: &str, store: Option<SqliteStore>, file: &Path, done: Result<(), Why>) {
        let store = store.unwrap_or_else(|| {
            crate::support::keyed::open(file).unwrap_or_else(|error| panic!("{case}: {error:?}"))
        });
        let now = state(&store);
        let copy = file.with_file_name("copy.db");
        if copy.exists() {
            // It has its name only if it is whole.
            let copy = crate::support::keyed::open(&copy).unwrap();
            assert_whole(&copy, case);
            assert!(state(&copy) == self.before, "{case}");
        }
        let may_be_after = self.operation.in_steps || done == Err(Why::Unconfirmed);
        let is_after = done.is_ok() || (may_be_after && now == self.after);
        let is_done = done.is_ok() || (done == Err(Why::Unconfirmed) && is_after);
        let expected = if is_after { &self.after } else { &self.before };
        assert_eq!(
            differing(&now, expected),
            Vec::<String>::new(),
            "{case}, {is_done}"
        );
        if !is_done {
            (self.operation.run)(Some(&store), file)
                .unwrap_or_else(|why| panic!("{case}: {why:?}"));
            assert!(state(&store) == self.after, "{case}");
        }
        assert_whole(&store, case);
        if self.before.contains_key("s") {
            append(&store, 8).unwrap_or_else(|error| panic!("{case}: {error}"));
        }
        let now = state(&store);
        drop(store);
        let store = crate::support::keyed::open(file).unwrap();
        assert!(state(&store) == now, "{case}: after closing");
        assert_whole(&store, case);
    }

    /// An empty folder with the database.
    fn place(&self) -> std::path::PathBuf {
        let folder = self.shim.folder();
        std::fs::remove_dir_all(folder).unwrap();
        std::fs::create_dir(folder).unwrap();
        let file = folder.join("a.db");
        if let Some(bytes) = &self.bytes {
            std::fs::write(&file, bytes).unwrap();
        }
        file
    }

    fn new<'a>(shim: &'a Shim, operation: &'a Operation) -> Trial<'a> {
        let mut trial = Trial {
            shim,
            operation,
            bytes: operation.before.map(|make| make()),
            before: State::new(),
            after: State::new(),
        };
        let file = trial.place();
        let store = crate::support::keyed::open(&file).unwrap();
        trial.before = state(&store);
        (operation.run)(Some(&store), &file).unwrap();
        trial.after = state(&store);
        trial
    }

    fn calls(&self, kinds: i64) -> u64 {
        let file = self.place();
        let store = (!self.operation.opens).then(|| crate::support::keyed::open(&file).unwrap());
        self.shim.watch(kinds);
        (self.operation.run)(store.as_ref(), &file).unwrap();
        self.shim.rest()
    }
}

fn try_troubles(shim: &Shim, operation: &Operation, salt: u64) {
    let trial = Trial::new(shim, operation);
    let mut random = random(200 + salt);
    let mut tried = 0;
    let begun = std::time::Instant::now();
    let all = trial.calls(255);
    for trouble in TROUBLES {
        let calls = trial.calls(trouble.0);
        let samples = amount("LOOPSTORE_FAULTS", 1).min(calls);
        for sample in 0..samples {
            let (from, to) = (sample * calls / samples, (sample + 1) * calls / samples);
            trial.strike(trouble, 1 + from + random.below(to - from));
            tried += 1;
        }
    }
    println!(
        "{}: {all} calls, {tried} faults, {:?}",
        operation.name,
        begun.elapsed()
    );
    let command = "LOOPSTORE_FAULTS=500 cargo test --test faults crash";
    crate::support::proof::tally("EIO, full disk or lost permission", tried, command);
}

#[test]
fn a_store_outlives_faults_while_it_appends_and_compacts() {
    let Some(shim) = alone("crash::faults::a_store_outlives_faults_while_it_appends_and_compacts")
    else {
        return;
    };
    (0..2).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}

#[test]
fn a_store_outlives_faults_while_it_imports_and_copies() {
    let Some(shim) = alone("crash::faults::a_store_outlives_faults_while_it_imports_and_copies")
    else {
        return;
    };
    (2..4).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}

#[test]
fn a_database_outlives_faults_while_it_is_opened() {
    let Some(shim) = alone("crash::faults::a_database_outlives_faults_while_it_is_opened") else {
        return;
    };
    (4..6).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}

#[test]
fn a_store_outlives_faults_while_it_erases_and_indexes() {
    let Some(shim) = alone("crash::faults::a_store_outlives_faults_while_it_erases_and_indexes")
    else {
        return;
    };
    (6..8).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}
