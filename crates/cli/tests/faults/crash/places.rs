//! Files and folders that are not writable, disappear, are replaced or are locked by others; a clock that is set back;
//! unusual names.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use loopstore::search::{SearchQuery, search};
use loopstore::{extend as store, *};
use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};
use loopstore_transcripts::{ImportError, ImportOptions, Watch, import_paths};

use crate::crash::shim::{Act, Shim, calls, in_own_process};
use crate::crash::stage::*;
use crate::support::{command as program, needs};

fn initial_bytes() -> Vec<u8> {
    bytes_of(|store| drop(tell(store, "s")))
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let file = folder.path().join("a.db");
    std::fs::write(&file, initial_bytes()).unwrap();
    (folder, file)
}

fn loopstore(file: &Path, line: &str) -> Command {
    let mut command = program::loopstore();
    command.args(line.split_whitespace()).arg("--db").arg(file);
    command
}

/// Returns all that the program printed to stderr, without the folder.
fn complaint(output: &Output, folder: &Path) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    said.replace(folder.to_str().unwrap(), "FOLDER")
}

/// Returns the number of files in a folder, without the lock files of writers.
fn databases(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with("-queue")).count()
}

fn size(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

const READING: [&str; 13] = [
    "sessions",
    "show s",
    "context s",
    "history",
    "search prompt",
    "recall prompt",
    "expand s --turns 0..1",
    "export s --format markdown",
    "replay s --instant",
    "diff s",
    "stats",
    "verify",
    "sql --json SELECT(1)",
];

#[test]
fn commands_that_read_work_where_nothing_can_be_written() {
    let (folder, file) = place();
    let shim = Shim::on(folder.path());
    shim.set_read_only(true);
    let run = |line: &str| {
        let mut command = loopstore(&file, line);
        shim.apply_to(&mut command);
        command.output().unwrap()
    };
    for line in READING {
        let output = run(line);
        assert!(output.status.success(), "{line}: {output:?}");
    }
    let elsewhere = crate::crash::stage::folder();
    let copy = elsewhere.path().join("copy.db");
    let output = run(&format!("backup {}", copy.display()));
    assert!(output.status.success(), "{output:?}");
    insta::assert_snapshot!(complaint(&run("undo s"), folder.path()), @r"
    error: FOLDER/a.db: cannot open the database: unable to open database file: Error code 14: unable to open database file
    hint: check that the folder exists and that both it and the file are writable: SQLite keeps its log beside the file
    ");
    std::fs::write(&file, crate::crash::commands::old()).unwrap();
    let said = complaint(&run("sessions"), folder.path());
    assert!(
        said.contains("written by an older loopstore (format "),
        "{said}"
    );
    let names = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(names.count(), 1, "nothing is left beside the file");
}

#[test]
fn what_stands_in_a_log_only_is_not_left_out_in_silence() {
    let (folder, file) = place();
    let store = crate::support::keyed::open(&file).unwrap();
    append(&store, 1).unwrap();
    // The state that a killed process leaves.
    let left = crate::crash::stage::folder();
    let moved = left.path().join("a.db");
    for end in ["", "-wal"] {
        let beside = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        std::fs::copy(beside(&file), beside(&moved)).unwrap();
    }
    drop((store, folder));
    let shim = Shim::on(left.path());
    shim.set_read_only(true);
    let mut command = loopstore(&moved, "sessions");
    shim.apply_to(&mut command);
    insta::assert_snapshot!(complaint(&command.output().unwrap(), left.path()), @"error: FOLDER/a.db: the write-ahead log holds changes that are not in the file yet, and reading them needs a writable folder; copy the file together with its `-wal` and open the copy");
    let store = crate::support::keyed::open(&moved).unwrap();
    assert_whole(&store, "where it can be written");
}

/// Permissions do not apply to root, so root runs this as another user.
#[test]
fn a_user_who_may_only_read_can_read() {
    let (folder, file) = place();
    let program = assert_cmd::cargo::cargo_bin("loopstore");
    let mut command = if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        if needs::missing(&needs::SETPRIV) {
            return;
        }
        // The program may be in a folder that only root can read.
        let own = folder.path().join("program");
        std::fs::copy(program, &own).unwrap();
        let mut command = Command::new("setpriv");
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        command.args(nobody).arg(own);
        command
    } else {
        Command::new(program)
    };
    command = program::with_failpoints(command);
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&file, 0o444);
    mode(folder.path(), 0o555);
    let output = command
        .args(["--json", "stats", "--db"])
        .arg(&file)
        .output();
    mode(folder.path(), 0o755);
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"sessions\": 1"));
}

#[test]
fn a_store_that_only_reads_notices_that_somebody_writes_after_all() {
    let Some(shim) = in_own_process(
        "crash::places::a_store_that_only_reads_notices_that_somebody_writes_after_all",
    ) else {
        return;
    };
    let file = shim.folder().join("a.db");
    std::fs::write(&file, initial_bytes()).unwrap();
    shim.set_read_only(true);
    let reader =
        SqliteStore::open_with(&file, crate::support::keyed::options().read_only(true)).unwrap();
    let hits = search(&reader, &SearchQuery::new("prompt")).unwrap().hits;
    let found: usize = hits.iter().map(|hit| 1 + hit.also.len()).sum();
    assert_eq!(found, 7);
    assert_whole(&reader, "read only");
    shim.set_read_only(false);
    let before = state(&reader);
    let writer = crate::support::keyed::open(&file).unwrap();
    // Nothing has changed yet.
    assert!(state(&reader) == before);
    append(&writer, 1).unwrap();
    assert!(matches!(
        reader.query("SELECT 1"),
        Err(StoreError::FileReplaced)
    ));
    drop(writer);
    assert!(matches!(
        reader.query("SELECT 1"),
        Err(StoreError::FileReplaced)
    ));
    let reader =
        SqliteStore::open_with(&file, crate::support::keyed::options().read_only(true)).unwrap();
    assert!(state(&reader) != before);
}

fn is_moved<T: std::fmt::Debug>(done: Result<T, StoreError>, case: &str) {
    assert!(
        matches!(done, Err(StoreError::FileReplaced)),
        "{case}: {done:?}"
    );
}

/// Changes the files of an open store; afterwards no write may be lost.
fn moved(case: &str, harm: fn(&Path), mend: fn(&Path)) {
    let (folder, file) = place();
    let store = crate::support::keyed::open(&file).unwrap();
    append(&store, 1).unwrap();
    let before = state(&store);
    let files = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    harm(&file);
    let sizes = || [&file, &files(&file)].map(|path| path.metadata().map(|data| data.len()).ok());
    let found = sizes();
    is_moved(append(&store, 2), case);
    is_moved(store.query("SELECT 1"), case);
    assert_eq!(sizes(), found, "{case}");
    mend(&file);
    // A store whose files were replaced stays closed; the next one does not have to wait for it.
    is_moved(append(&store, 2), case);
    let again = crate::support::keyed::open(&file).unwrap();
    assert_eq!(state(&again), before, "{case}");
    append(&again, 2).unwrap();
    assert_whole(&again, case);
    drop((store, again));
    let store = crate::support::keyed::open(&file).unwrap();
    assert!(state(&store) != before, "{case}");
    assert_whole(&store, case);
    drop(folder);
}

fn away(file: &Path, end: &str) -> (PathBuf, PathBuf) {
    let from = PathBuf::from(format!("{}{end}", file.display()));
    (from.clone(), from.with_extension(format!("away{end}")))
}

fn put_away(file: &Path, end: &str) {
    let (from, to) = away(file, end);
    std::fs::rename(from, to).unwrap();
}

fn bring_back(file: &Path, end: &str) {
    let (from, to) = away(file, end);
    std::fs::rename(to, from).unwrap();
}

#[test]
fn nothing_is_written_to_a_file_that_is_not_there_any_more() {
    moved(
        "the file is gone",
        |file| put_away(file, ""),
        |file| bring_back(file, ""),
    );
    moved(
        "another file is in its place",
        |file| {
            put_away(file, "");
            std::fs::write(file, bytes_of(|store| drop(tell(store, "another")))).unwrap();
        },
        |file| bring_back(file, ""),
    );
    moved(
        "the log is gone",
        |file| put_away(file, "-wal"),
        |file| bring_back(file, "-wal"),
    );
}

#[test]
fn a_store_stays_where_it_is_when_the_process_goes_elsewhere() {
    let Some(shim) =
        in_own_process("crash::places::a_store_stays_where_it_is_when_the_process_goes_elsewhere")
    else {
        return;
    };
    std::env::set_current_dir(shim.folder()).unwrap();
    std::fs::write("a.db", initial_bytes()).unwrap();
    let store = crate::support::keyed::open("a.db").unwrap();
    std::env::set_current_dir("/").unwrap();
    append(&store, 1).unwrap();
    assert_whole(&store, "elsewhere");
}

#[test]
fn a_name_is_a_name_whatever_it_looks_like() {
    let Some(shim) = in_own_process("crash::places::a_name_is_a_name_whatever_it_looks_like")
    else {
        return;
    };
    std::env::set_current_dir(shim.folder()).unwrap();
    let names = [
        "file:a.db",
        "file:b.db?mode=memory",
        ":memory:",
        "c?d#e%41.db",
        "-f g.db",
        "é.db",
    ];
    for name in names {
        std::fs::write(name, initial_bytes()).unwrap();
        let store =
            crate::support::keyed::open(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        append(&store, 1).unwrap();
        drop(store);
        shim.set_read_only(true);
        let store = SqliteStore::open_with(name, crate::support::keyed::options().read_only(true));
        let store = store.unwrap_or_else(|error| panic!("{name}: {error}"));
        let turns = store.query("SELECT turns FROM v_sessions").unwrap();
        assert_eq!(turns.rows[0][0].as_str(), "8", "{name}");
        shim.set_read_only(false);
    }
    assert_eq!(databases(Path::new(".")), names.len());
}

/// As with `ulimit -f` in a shell; the signal is ignored, as under a service manager.
#[test]
fn an_import_that_may_not_make_the_file_larger_says_so_and_goes_on_later() {
    if needs::missing(&needs::BASH) {
        return;
    }
    let (folder, file) = place();
    let before = state(&crate::support::keyed::open(&file).unwrap());
    let import = |limit: u64| {
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\"");
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .arg(assert_cmd::cargo::cargo_bin("loopstore"));
        command = program::with_failpoints(command);
        command.args(["import", "--db"]).arg(&file);
        command.arg(fixture("openai-chat/messages.json"));
        command.output().unwrap()
    };
    let output = import(64);
    insta::assert_snapshot!(complaint(&output, folder.path()), @r"
    error: cannot read or write the database files: disk I/O error: Error code 778: disk I/O error
    hint: check the disk, and the permissions of the files
    ");
    let store = crate::support::keyed::open(&file).unwrap();
    assert!(state(&store) == before);
    assert_whole(&store, "limited");
    assert!(import(1 << 20).status.success());
    assert!(state(&store).len() > before.len());
    assert_whole(&store, "unlimited");
}

#[test]
fn a_store_that_waited_too_long_is_busy_and_then_usable() {
    let (_folder, file) = place();
    let patience = Duration::from_millis(60);
    let options = || crate::support::keyed::options().busy_timeout(patience);
    let store = SqliteStore::open_with(&file, options()).unwrap();
    let other = crate::support::keyed::raw(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    assert!(matches!(append(&store, 1), Err(StoreError::Busy)));
    assert!(begun.elapsed() >= patience);
    let read = |store: &SqliteStore| state(store).len();
    assert_eq!(read(&store), 1, "who reads does not wait");
    assert_eq!(read(&SqliteStore::open_with(&file, options()).unwrap()), 1);
    other.execute_batch("ROLLBACK").unwrap();
    append(&store, 1).unwrap();
    assert_whole(&store, "after waiting");
}

#[test]
fn what_a_watch_could_not_store_is_told_once_and_tried_again() {
    let (_folder, file) = place();
    let options = crate::support::keyed::options().busy_timeout(Duration::from_millis(20));
    let store = SqliteStore::open_with(&file, options).unwrap();
    let other = crate::support::keyed::raw(&file).unwrap();
    let path = fixture("openai-chat/messages.json");
    let mut watch = Watch::new(vec![path], ImportOptions::default());
    let mut look = || {
        let mut results = Vec::new();
        watch.look(&store, &|| false, &mut |progress| {
            results.push(progress.result);
        });
        results
    };
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = look();
    let is_busy = matches!(refused[..], [Err(ImportError::Store(StoreError::Busy))]);
    assert!(is_busy, "{refused:?}");
    assert!(look().is_empty());
    other.execute_batch("ROLLBACK").unwrap();
    let came = look();
    assert!(matches!(&came[..], [Ok(report)] if report.added_messages > 0));
}

/// A full disk is not an error of one file, so the rest is not skipped because of it.
#[test]
fn an_import_of_many_files_ends_where_the_disk_is_full() {
    let Some(shim) =
        in_own_process("crash::places::an_import_of_many_files_ends_where_the_disk_is_full")
    else {
        return;
    };
    let paths = [
        "openai-chat/messages.json",
        "openai-chat/runs.json",
        "phi-core/tree.json",
    ];
    let paths = paths.map(fixture);
    let import = |store: &SqliteStore, paths: &[PathBuf]| {
        import_paths(store, paths, &ImportOptions::default(), &mut |_| {})
    };
    let open = |name: &str| crate::support::keyed::open(shim.folder().join(name)).unwrap();
    let first = open("first.db");
    shim.watch(calls::WRITE);
    import(&first, &paths[..1]).unwrap();
    let needed = shim.stop_failing();
    let store = open("all.db");
    shim.fail_from(calls::WRITE, needed + 4, Act::Full);
    let refused = import(&store, &paths);
    let is_full = matches!(refused, Err(ImportError::Store(StoreError::Full)));
    assert!(is_full, "{refused:?}");
    shim.stop_failing();
    assert!(state(&store) == state(&first));
    import(&store, &paths).unwrap();
    assert_eq!(state(&store).len(), 4);
    assert_whole(&store, "afterwards");
}

#[test]
fn an_older_file_that_somebody_writes_is_busy_and_then_opens() {
    let (_folder, file) = place();
    std::fs::write(&file, crate::crash::commands::old()).unwrap();
    let options = || crate::support::keyed::options().busy_timeout(Duration::from_millis(60));
    let other = crate::support::keyed::raw(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = SqliteStore::open_with(&file, options());
    assert!(
        matches!(refused, Err(OpenError::Busy)),
        "{:?}",
        refused.err()
    );
    other.execute_batch("ROLLBACK").unwrap();
    let store = SqliteStore::open_with(&file, options()).unwrap();
    assert_whole(&store, "after waiting");
}

#[test]
fn a_clock_that_goes_back_changes_no_order_and_holds_no_lease() {
    let Some(shim) =
        in_own_process("crash::places::a_clock_that_goes_back_changes_no_order_and_holds_no_lease")
    else {
        return;
    };
    let file = shim.folder().join("a.db");
    std::fs::write(&file, initial_bytes()).unwrap();
    let store = crate::support::keyed::open(&file).unwrap();
    const DAY: i64 = 86_400;
    for (number, clock) in [(1, 0), (2, -400 * DAY), (3, DAY), (4, -DAY)] {
        shim.set_clock(clock);
        append(&store, number).unwrap();
        assert_eq!(crate::crash::power::compact(&store).unwrap(), "committed");
        let flip = compact::FlipRequest::default();
        undo(&store, &session("s"), &flip).unwrap();
    }
    let prompts =
        "SELECT text FROM v_messages WHERE loop_id = 'loop-1' AND role = 'user' ORDER BY seq";
    let text = |row: &Vec<Json>| row[0].read::<String>().unwrap();
    let prompts: Vec<String> = store
        .query(prompts)
        .unwrap()
        .rows
        .iter()
        .map(text)
        .collect();
    let expected = (0..5).map(|number| format!("prompt {number}"));
    assert_eq!(prompts, expected.collect::<Vec<_>>());
    leases_end(&shim, &store);
    assert_whole(&store, "after all");
}

/// A driver dies while the clock is a day ahead; with the correct clock another one takes over soon.
fn leases_end(shim: &Shim, store: &SqliteStore) {
    let ttl = Duration::from_millis(50);
    let options = |owner: &str| RecorderOptions {
        owner: owner.into(),
        ttl,
        ..RecorderOptions::default()
    };
    let id = LoopId::new("driven").unwrap();
    shim.set_clock(86_400);
    let start = loopstore_recorder::event::AgentStart::new(session("s"), id.clone());
    let mut gone = SessionRecorder::new(store, options("gone"));
    gone.record(AgentEvent::AgentStart(start)).unwrap();
    shim.set_clock(0);
    let mut next = SessionRecorder::new(store, options("next"));
    assert!(
        next.resume(&session("s"), &id).is_err(),
        "it is not freed early"
    );
    std::thread::sleep(2 * ttl);
    next.resume(&session("s"), &id).unwrap();
    assert!(gone.heartbeat(&id).is_err());
}

#[test]
fn an_import_that_fails_leaves_nothing_that_was_not_there() {
    let folder = folder();
    let (file, notes) = (folder.path().join("a.db"), folder.path().join("notes.txt"));
    std::fs::write(&notes, "no transcript").unwrap();
    let import = || {
        let output = loopstore(&file, "import").arg(&notes).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    };
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    import();
    assert_eq!(names(), 1);
    // An existing file stays, even an empty one.
    drop(crate::support::keyed::open(&file).unwrap());
    let before = size(&file);
    import();
    assert_eq!(size(&file), before);
}

#[test]
fn a_database_is_only_removed_while_it_is_empty_and_whoever_has_it_open_is_told() {
    let folder = folder();
    let file = folder.path().join("a.db");
    let (maker, other) = (
        crate::support::keyed::open(&file).unwrap(),
        crate::support::keyed::open(&file).unwrap(),
    );
    assert!(maker.remove_if_empty().unwrap());
    let begin = |store: &SqliteStore| {
        let record = Session::new(session("s"), "agent");
        store::write(store, |write| {
            store::session::create_session(write, &record, None, None)
        })
    };
    is_moved(begin(&other), "removed");
    drop(other);
    assert_eq!(databases(folder.path()), 0);
    let (maker, other) = (
        crate::support::keyed::open(&file).unwrap(),
        crate::support::keyed::open(&file).unwrap(),
    );
    begin(&other).unwrap();
    assert!(!maker.remove_if_empty().unwrap());
    drop(other);
    let sessions = crate::support::keyed::open(&file)
        .unwrap()
        .stats()
        .unwrap()
        .sessions;
    assert_eq!(sessions, 1);
}
