//! The program is killed at each step of every command that writes. Afterwards each session is in the state before or
//! after the command, and running the command again has the usual result.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use loopstore::PinRef;
use loopstore::extend::sqlite::format_version;
use loopstore::search::{SearchQuery, search};
use loopstore_admin::retention::{ArchiveRequest, archive};

use crate::crash::shim::{Act, Shim, calls};
use crate::crash::stage::*;
use crate::support::amount::amount;

/// A text in the form of a GitHub token; the session that contains it is named `secret`.
const SECRET: &str = "ghp_zq7xw8e9r1t2y3u4i5o6p7a8s9d1f2g3h4j5";

struct Case {
    name: &'static str,
    /// Returns the database before the command.
    before: Option<fn() -> Vec<u8>>,
    args: fn(&Path) -> Vec<String>,
    /// True if the command fails when it is repeated.
    is_once: bool,
    /// A further check of the folder after the command has succeeded.
    after: fn(&Path),
}

impl Case {
    const PLAIN: Self = Self {
        name: "",
        before: Some(two_sessions),
        args: |_| Vec::new(),
        is_once: false,
        after: |_| {},
    };
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn import_all(_: &Path) -> Vec<String> {
    let mut args = words("import");
    for name in ["openai-chat", "codex", "phi-core"] {
        args.push(fixture(name).to_str().unwrap().to_owned());
    }
    args
}

fn copy_to(folder: &Path, more: &str) -> Vec<String> {
    let to = folder.join("copy.db").to_str().unwrap().to_owned();
    let mut args = words("backup --force");
    args.push(to);
    args.extend(words(more));
    args
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "import",
            args: import_all,
            ..Case::PLAIN
        },
        Case {
            name: "import into a new database",
            before: None,
            args: import_all,
            ..Case::PLAIN
        },
        Case {
            name: "compact",
            args: |_| words("compact s --max-tokens 400 --keep-first 1 --keep-recent 1"),
            ..Case::PLAIN
        },
        Case {
            name: "pin",
            args: |_| words("pin s loop-0:2"),
            ..Case::PLAIN
        },
        Case {
            name: "unpin",
            before: Some(pinned),
            args: |_| words("unpin s loop-0:2:8"),
            is_once: true,
            ..Case::PLAIN
        },
        Case {
            name: "compact with pins",
            before: Some(pinned),
            args: |_| words("compact s --max-tokens 400 --keep-first 1 --keep-recent 1"),
            ..Case::PLAIN
        },
        Case {
            name: "undo",
            before: Some(|| compacted(0)),
            args: |_| words("undo s"),
            is_once: true,
            ..Case::PLAIN
        },
        Case {
            name: "redo",
            before: Some(|| compacted(1)),
            args: |_| words("redo s"),
            is_once: true,
            ..Case::PLAIN
        },
        Case {
            name: "backup",
            args: |folder| copy_to(folder, ""),
            after: is_copied,
            ..Case::PLAIN
        },
        Case {
            name: "compact backup",
            args: |folder| copy_to(folder, "--compact"),
            after: is_copied,
            ..Case::PLAIN
        },
        Case {
            name: "copy to another database",
            args: |folder| {
                let to = folder.join("copy.db");
                words(&format!("copy --to {}", to.display()))
            },
            after: is_copied,
            ..Case::PLAIN
        },
        Case {
            name: "migrate",
            before: Some(old),
            args: |_| words("protect s"),
            ..Case::PLAIN
        },
        Case {
            name: "redact",
            args: |_| words("redact secret --yes"),
            after: no_secret,
            ..Case::PLAIN
        },
        Case {
            name: "prune",
            args: |_| words("prune --keep-last 1 --yes"),
            after: no_secret,
            ..Case::PLAIN
        },
        Case {
            name: "erase",
            args: |_| words("erase secret --yes"),
            after: no_secret,
            ..Case::PLAIN
        },
        Case {
            name: "archive",
            args: |_| words("archive --all --shown"),
            ..Case::PLAIN
        },
        Case {
            name: "unarchive",
            before: Some(archived),
            args: |_| words("unarchive --all"),
            ..Case::PLAIN
        },
        Case {
            name: "index",
            args: |_| words("index"),
            after: is_indexed,
            ..Case::PLAIN
        },
        Case {
            name: "index anew",
            args: |_| words("index --rebuild"),
            after: is_indexed,
            ..Case::PLAIN
        },
        Case {
            name: "recover",
            before: Some(running),
            args: |_| words("recover --all"),
            ..Case::PLAIN
        },
    ]
}

/// Creates an older session with a secret, and one without.
pub fn two_sessions() -> Vec<u8> {
    bytes_of(|store| {
        let secret = tell(store, "secret");
        secret.append(1, vec![crate::support::histories::user(SECRET, 1)]);
        secret.end_loop(1);
        tell(store, "s");
    })
}

fn pinned() -> Vec<u8> {
    bytes_of(|store| {
        let history = tell(store, "s");
        assert!(history.pin(1, PinRef::message("loop-0", 2, 8)));
        assert!(history.pin(1, PinRef::message("loop-0", 3, 12)));
    })
}

fn compacted(flips: u32) -> Vec<u8> {
    bytes_of(|store| {
        let mut history = tell(store, "s");
        assert_eq!(history.compact(1, (1, 1), false)["outcome"], "committed");
        (0..flips).for_each(|_| assert!(history.flip(1, false)));
    })
}

fn archived() -> Vec<u8> {
    bytes_of(|store| {
        tell(store, "other");
        tell(store, "s");
        let all = ArchiveRequest {
            shown: true,
            ..ArchiveRequest::default()
        };
        assert_eq!(archive(store, &all).unwrap().loops.len(), 4);
    })
}

fn running() -> Vec<u8> {
    bytes_of(|store| {
        let mut history = tell(store, "s");
        history.start_loop(Some(1), None);
        history.append(2, turn(0));
    })
}

mod embedded {
    refinery::embed_migrations!("../../migrations/sqlite");
}

/// Returns a file in the previous format with current rows.
pub fn old() -> Vec<u8> {
    let folder = folder();
    let (file, today) = (folder.path().join("old.db"), folder.path().join("today.db"));
    std::fs::write(&today, compacted(0)).unwrap();
    let mut old = crate::support::keyed::raw(&file).unwrap();
    old.execute_batch("PRAGMA page_size = 8192; PRAGMA application_id = 0x4C4F4F50")
        .unwrap();
    embedded::migrations::runner().run(&mut old).unwrap();
    let tables = "SELECT name, (SELECT group_concat(name) FROM pragma_table_info(t.name, 'main'))
        FROM sqlite_schema t WHERE type = 'table' AND name NOT LIKE 'refinery%'
            AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'message_index%'";
    let columns: Vec<(String, String)> = old
        .prepare(tables)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    // The triggers reject rows that were not written by a store.
    let triggers: Vec<(String, String)> = old
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for (name, _) in &triggers {
        old.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    crate::support::keyed::attach_today(&old, &today);
    for (table, columns) in columns {
        let copy = format!(
            "DELETE FROM main.{table}; INSERT INTO main.{table} ({columns}) SELECT {columns} FROM today.{table}"
        );
        old.execute_batch(&copy).unwrap();
    }
    for (_, sql) in &triggers {
        old.execute_batch(sql).unwrap();
    }
    let format = format_version() - 1;
    old.execute_batch(&format!(
        "DETACH today; PRAGMA user_version = {format}; PRAGMA journal_mode = wal"
    ))
    .unwrap();
    drop(old);
    std::fs::read(file).unwrap()
}

/// Checks that the copy is complete; an incomplete copy does not have the name yet.
fn is_copied(folder: &Path) {
    let copy = crate::support::keyed::open(folder.join("copy.db")).unwrap();
    assert_whole(&copy, "the copy");
    assert_eq!(state(&copy).len(), 2);
}

/// Checks that no byte of the secret is left.
fn no_secret(folder: &Path) {
    let store = crate::support::keyed::open(folder.join("a.db")).unwrap();
    assert!(!store.needs_scrub().unwrap());
    drop(store);
    let bytes = std::fs::read(folder.join("a.db")).unwrap();
    let core = &SECRET.as_bytes()[4..];
    assert!(!bytes.windows(core.len()).any(|part| part == core));
}

fn is_indexed(folder: &Path) {
    let store = crate::support::keyed::open(folder.join("a.db")).unwrap();
    let hits = search(&store, &SearchQuery::new("prompt")).unwrap().hits;
    let said = "SELECT count(*) FROM v_messages WHERE text LIKE 'prompt%'";
    let said: usize = store.query(said).unwrap().rows[0][0].read().unwrap();
    let found: usize = hits.iter().map(|hit| 1 + hit.also.len()).sum();
    assert_eq!(found, said);
}

/// One case with its databases.
struct Trial {
    case: Case,
    before: Option<Vec<u8>>,
    states: (State, State),
    /// The number of calls of the command that change stored data.
    points: u64,
}

impl Trial {
    /// Runs the command once without a kill.
    fn new(case: Case) -> Self {
        let before = case.before.map(|make| make());
        let mut trial = Self {
            case,
            before,
            states: Default::default(),
            points: 0,
        };
        let (folder, file) = trial.place();
        if trial.before.is_some() {
            // Reading would upgrade an older file.
            let other = folder.path().join("other.db");
            std::fs::copy(&file, &other).unwrap();
            trial.states.0 = state(&crate::support::keyed::open(other).unwrap());
        }
        let shim = Shim::on(folder.path());
        shim.watch(calls::CHANGES);
        let done = trial.run(&file, Some(&shim));
        assert!(done.status.success(), "{}: {done:?}", trial.case.name);
        trial.points = shim.stop_failing();
        trial.states.1 = state(&crate::support::keyed::open(&file).unwrap());
        (trial.case.after)(folder.path());
        trial
    }

    fn place(&self) -> (tempfile::TempDir, PathBuf) {
        let folder = folder();
        let file = folder.path().join("a.db");
        if let Some(bytes) = &self.before {
            std::fs::write(&file, bytes).unwrap();
        }
        (folder, file)
    }

    fn run(&self, file: &Path, shim: Option<&Shim>) -> Output {
        let mut command = crate::support::command::loopstore();
        command.args((self.case.args)(file.parent().unwrap()));
        command.arg("--db").arg(file).stdin(Stdio::null());
        if let Some(shim) = shim {
            shim.apply_to(&mut command);
        }
        command.output().unwrap()
    }

    /// Kills the command at one call; with `is_shared`, another process has the database open.
    fn kill(&self, kinds: i64, at: u64, act: Act, is_shared: bool) {
        let told = format!("{}, {act:?} {at} of {}", self.case.name, self.points);
        let (folder, file) = self.place();
        let other = is_shared.then(|| crate::support::keyed::open(&file).unwrap());
        if let Some(other) = &other {
            state(other);
        }
        let shim = Shim::on(folder.path());
        shim.fail_at(kinds, at, act);
        let killed = self.run(&file, Some(&shim));
        assert!(
            killed.status.code().is_none() || is_shared,
            "{told}: {killed:?}"
        );
        let store = other.unwrap_or_else(|| crate::support::keyed::open(&file).unwrap());
        assert_whole(&store, &told);
        let now = state(&store);
        let (before, after) = &self.states;
        for id in differing(&now, before) {
            assert_eq!(now.get(&id), after.get(&id), "{told}: session {id}");
        }
        let again = self.run(&file, None);
        let was_done = self.case.is_once && now == *after;
        assert!(again.status.success() || was_done, "{told}: {again:?}");
        let now = state(&store);
        assert_eq!(differing(&now, after), Vec::<String>::new(), "{told}");
        if now.contains_key("s") {
            append(&store, 1).unwrap();
        }
        assert_whole(&store, &told);
        drop(store);
        (self.case.after)(folder.path());
    }
}

/// Distributes the kills over all steps; with enough kills, each step gets one.
fn kill(cases: Vec<Case>) {
    let share = amount("LOOPSTORE_KILLS", 28).div_ceil(14);
    let acts = [Act::KillHalf, Act::KillBefore, Act::KillAfter];
    for (number, case) in (0..).zip(cases) {
        let begun = std::time::Instant::now();
        let trial = Trial::new(case);
        let mut random = random(number);
        let all = 3 * trial.points;
        let kills = share.min(all);
        let from = random.below(all);
        for kill in 0..kills {
            let place = (from + kill * all / kills) % all;
            let is_shared = trial.before.is_some() && kill % 2 == 1;
            let act = acts[(place % 3) as usize];
            trial.kill(calls::CHANGES, 1 + place / 3, act, is_shared);
        }
        println!(
            "{}: {} steps, {kills} kills, {:?}",
            trial.case.name,
            trial.points,
            begun.elapsed()
        );
        crate::support::proof::tally(
            "command that writes, killed",
            kills,
            crate::crash::killed::KILLS,
        );
    }
}

fn some(wanted: impl Fn(usize) -> bool) {
    let cases = cases().into_iter().enumerate();
    let wanted = cases.filter(|(at, _)| wanted(*at));
    kill(wanted.map(|(_, case)| case).collect());
}

#[test]
fn a_killed_command_leaves_each_session_as_it_was_or_as_it_is_to_be() {
    some(|at| at % 2 == 0);
}

#[test]
fn a_migration_that_is_killed_between_its_commits_is_done_by_the_next_who_opens() {
    let migrate = cases().into_iter().find(|case| case.name == "migrate");
    let trial = Trial::new(migrate.unwrap());
    let (folder, file) = trial.place();
    let shim = Shim::on(folder.path());
    shim.watch(calls::SYNC);
    trial.run(&file, Some(&shim));
    for sync in 1..=shim.stop_failing() {
        trial.kill(calls::SYNC, sync, Act::KillAfter, false);
    }
}

#[test]
fn running_a_killed_command_again_ends_as_if_it_had_not_been_killed() {
    some(|at| at % 2 == 1);
}
