//! A disk that fails or is full, or permissions that are lost, at any call of an operation: the error names the cause,
//! nothing is half done, and the same store works when the cause is gone.

use std::path::Path;

use loopstore::extend::search::index;
use loopstore::*;
use loopstore_admin::backup::{BackupError, backup};
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_transcripts::{ImportError, ImportOptions, import_paths};

use crate::crash::shim::{Act, Shim, calls, in_own_process};
use crate::crash::stage::*;
use crate::support::amount::amount;

/// The cause that an error names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Io,
    Full,
    ReadOnly,
    /// The store was not opened; the cause is in the error.
    NotOpened,
    /// SQLite reports a failed read as damage of the file system.
    Damaged,
    /// The file is not the database.
    OtherFile,
    /// The write may have been committed.
    Unconfirmed,
}

fn why(error: &StoreError) -> Cause {
    match error {
        StoreError::Io(_) => Cause::Io,
        StoreError::Full => Cause::Full,
        StoreError::ReadOnly => Cause::ReadOnly,
        StoreError::Damaged(_) => Cause::Damaged,
        StoreError::Unconfirmed(_) => Cause::Unconfirmed,
        StoreError::Other(cause) if cause.is::<OpenError>() => Cause::NotOpened,
        other => panic!("{other:?}"),
    }
}

fn cause_of_open(error: &OpenError) -> Cause {
    match error {
        OpenError::Other { .. } | OpenError::ReadOnly { .. } => Cause::NotOpened,
        OpenError::Damaged { .. } => Cause::Damaged,
        other => panic!("{other:?}"),
    }
}

struct Operation {
    name: &'static str,
    before: Option<fn() -> Vec<u8>>,
    /// Gets no store if the operation is opening one.
    run: fn(Option<&SqliteStore>, &Path) -> Result<(), Cause>,
    opens: bool,
    /// True for several transactions: if interrupted, the operation may be half done, and repeating it completes it.
    in_steps: bool,
}

impl Operation {
    const PLAIN: Self = Self {
        name: "",
        before: Some(initial_bytes),
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

fn initial_bytes() -> Vec<u8> {
    bytes_of(|store| drop(tell(store, "s")))
}

fn open(_: Option<&SqliteStore>, file: &Path) -> Result<(), Cause> {
    let opened = crate::support::keyed::open(file);
    opened.map(drop).map_err(|error| cause_of_open(&error))
}

fn import(store: Option<&SqliteStore>, _: &Path) -> Result<(), Cause> {
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

fn remove(store: Option<&SqliteStore>, _: &Path) -> Result<(), Cause> {
    let request = EraseRequest::new(session("secret"));
    let done = erase(store.unwrap(), &request);
    done.map(drop).map_err(|error| why(&error))
}

fn copy(store: Option<&SqliteStore>, file: &Path) -> Result<(), Cause> {
    let to = file.with_file_name("copy.db");
    let made = backup(store.unwrap(), &to, true, &mut |_, _| {});
    let why = match made {
        Ok(_) => None,
        Err(BackupError::Store(error)) => Some(why(&error)),
        Err(BackupError::Open(error)) => Some(cause_of_open(&error)),
        Err(BackupError::Write { .. }) => Some(Cause::OtherFile),
        // A page that cannot be read is reported as damaged.
        Err(BackupError::Damaged(_)) => Some(Cause::Damaged),
        Err(other) => panic!("{other:?}"),
    };
    why.map_or(Ok(()), Err)
}

/// The faults: the affected calls, the fault, and true if it affects all later calls too.
const FAULTS: [(i64, Act, bool); 5] = [
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
    /// Runs the operation with one fault at one call. Returns true if there were that many calls.
    fn fail_at(&self, fault: (i64, Act, bool), at: u64) -> bool {
        let case = format!("{}, {fault:?} at {at}", self.operation.name);
        let (kinds, act, lasting) = fault;
        let file = self.place();
        let store = (!self.operation.opens).then(|| crate::support::keyed::open(&file).unwrap());
        match lasting {
            true => self.shim.fail_from(kinds, at, act),
            false => self.shim.fail_at(kinds, at, act),
        }
        let done = (self.operation.run)(store.as_ref(), &file);
        let has_failed = self.shim.stop_failing() >= at;
        if let Err(why) = done {
            assert!(has_failed, "{case}: {why:?}");
            assert!(act == Act::Fail || why != Cause::Damaged, "{case}");
        }
        self.check(&case, store, &file, done);
        has_failed
    }

    /// Checks that the same store, or the next process that opens the file, finds the state before or after the
    /// operation, and can continue.
    fn check(&self, case: &str, store: Option<SqliteStore>, file: &Path, done: Result<(), Cause>) {
        let store = store.unwrap_or_else(|| {
            crate::support::keyed::open(file).unwrap_or_else(|error| panic!("{case}: {error:?}"))
        });
        let now = state(&store);
        let copy = file.with_file_name("copy.db");
        if copy.exists() {
            // The copy has its name only if it is complete.
            let copy = crate::support::keyed::open(&copy).unwrap();
            assert_whole(&copy, case);
            assert!(state(&copy) == self.before, "{case}");
        }
        let may_be_after = self.operation.in_steps || done == Err(Cause::Unconfirmed);
        let is_after = done.is_ok() || (may_be_after && now == self.after);
        let is_done = done.is_ok() || (done == Err(Cause::Unconfirmed) && is_after);
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

    /// Returns an empty folder with the database.
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
        self.shim.stop_failing()
    }
}

fn try_troubles(shim: &Shim, operation: &Operation, salt: u64) {
    let trial = Trial::new(shim, operation);
    let mut random = random(200 + salt);
    let mut tried = 0;
    let begun = std::time::Instant::now();
    let all = trial.calls(255);
    for fault in FAULTS {
        let calls = trial.calls(fault.0);
        let samples = amount("LOOPSTORE_FAULTS", 1).min(calls);
        for sample in 0..samples {
            let (from, to) = (sample * calls / samples, (sample + 1) * calls / samples);
            trial.fail_at(fault, 1 + from + random.below(to - from));
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
    let Some(shim) =
        in_own_process("crash::faults::a_store_outlives_faults_while_it_appends_and_compacts")
    else {
        return;
    };
    (0..2).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}

#[test]
fn a_store_outlives_faults_while_it_imports_and_copies() {
    let Some(shim) =
        in_own_process("crash::faults::a_store_outlives_faults_while_it_imports_and_copies")
    else {
        return;
    };
    (2..4).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}

#[test]
fn a_database_outlives_faults_while_it_is_opened() {
    let Some(shim) = in_own_process("crash::faults::a_database_outlives_faults_while_it_is_opened")
    else {
        return;
    };
    (4..6).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}

#[test]
fn a_store_outlives_faults_while_it_erases_and_indexes() {
    let Some(shim) =
        in_own_process("crash::faults::a_store_outlives_faults_while_it_erases_and_indexes")
    else {
        return;
    };
    (6..8).for_each(|at| try_troubles(&shim, &OPERATIONS[at], at as u64));
}
