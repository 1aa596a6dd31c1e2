//! Power loss: one process runs and is logged; then the files are made as they could be on a disk that lost power at
//! some write. The files open, in the state after one of the steps: with `Durability::Full` not before the last
//! acknowledged step, with `Durability::Normal` possibly an earlier one.

use std::path::{Path, PathBuf};

use CrashStep::*;
use loopstore::compact::FlipRequest;
use loopstore::extend::session::{create_loop, create_session};
use loopstore::{CompactionConfig, ContextConfig, Policy, extend as store, *};
use loopstore_admin::backup::backup;
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::crash::disk::{Disk, Files, Unsynced};
use crate::crash::shim::{Event, Shim, command_for};
use crate::crash::stage::*;
use crate::support::amount::amount;
use crate::support::histories::loop_id;

/// A step changes the state at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashStep {
    Create,
    Begin,
    Append(u32),
    /// Pins the prompt of a turn.
    Pin(u32),
    Unpin(u32),
    Compact,
    Undo,
    Redo,
    /// Copies the log into the file, and restarts or truncates the log.
    Checkpoint(&'static str),
    Import,
    Backup,
    Erase,
    /// Closes the database, which removes the log.
    Close,
}

const SCRIPT: [CrashStep; 30] = [
    Create,
    Begin,
    Append(0),
    Append(1),
    Append(2),
    Pin(1),
    Compact,
    Append(3),
    Checkpoint("PASSIVE"),
    Append(4),
    Undo,
    Append(5),
    Checkpoint("RESTART"),
    Append(6),
    Unpin(1),
    Pin(2),
    Redo,
    Close,
    Append(7),
    Import,
    Checkpoint("TRUNCATE"),
    Append(8),
    Backup,
    Append(9),
    Erase,
    Append(10),
    Close,
    Append(11),
    Unpin(2),
    Close,
];

struct Player {
    file: PathBuf,
    durability: Durability,
    store: Option<SqliteStore>,
}

impl Player {
    fn new(file: &Path, durability: Durability) -> Self {
        Self {
            file: file.to_owned(),
            durability,
            store: None,
        }
    }

    fn store(&mut self) -> &SqliteStore {
        let options = crate::support::keyed::options().durability(self.durability);
        let open = || SqliteStore::open_with(&self.file, options).unwrap();
        self.store.get_or_insert_with(open)
    }

    fn play(&mut self, step: CrashStep) {
        match step {
            Close => self.store = None,
            Checkpoint(how) => self.checkpoint(how),
            Backup => {
                let to = self.file.with_file_name("copy.db");
                backup(self.store(), &to, false, &mut |_, _| {}).unwrap();
            }
            step => change(self.store(), step),
        }
    }

    fn checkpoint(&self, how: &str) {
        let connection = crate::support::keyed::raw(&self.file).unwrap();
        let level = match self.durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        connection
            .pragma_update(None, "synchronous", level)
            .unwrap();
        let sql = format!("PRAGMA wal_checkpoint({how})");
        let busy: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(busy, 0);
    }
}

fn change(store: &SqliteStore, step: CrashStep) {
    let flip = FlipRequest::default();
    match step {
        Begin => store::write(store, |write| {
            let record = Session::new(session("s"), "agent");
            let key = create_session(write, &record, None, None)?;
            create_loop(write, key, &LoopRecord::new(loop_id(1), None)).map(|_| ())
        })
        .unwrap(),
        Append(number) => append(store, number).unwrap(),
        Pin(turn) => drop(pin(store, &session("s"), &prompt_of(turn)).unwrap()),
        Unpin(turn) => drop(unpin(store, &session("s"), &prompt_of(turn)).unwrap()),
        Compact => assert_eq!(compact(store).unwrap(), "committed"),
        Undo => drop(undo(store, &session("s"), &flip).unwrap()),
        Redo => drop(redo(store, &session("s"), &flip).unwrap()),
        Import => {
            let path = fixture("openai-chat/messages.json");
            let options = ImportOptions::default();
            import_paths(store, &[path], &options, &mut |_| {}).unwrap();
        }
        Erase => {
            let request = EraseRequest::new(session("messages-0"));
            erase(store, &request).unwrap();
        }
        _ => {}
    }
}

/// Returns the pin of a turn's prompt. Turns have four messages each.
fn prompt_of(turn: u32) -> PinRequest {
    let of = PinRef::message(loop_id(1).as_str(), turn, 4 * turn);
    PinRequest { of, leaf: None }
}

fn name_of(durability: Durability) -> &'static str {
    match durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    }
}

/// The process that is logged.
#[test]
fn a_process_that_works() {
    let (Some(shim), Ok(wanted)) = (
        Shim::of_this_process(),
        std::env::var("LOOPSTORE_DURABILITY"),
    ) else {
        return;
    };
    let both = [Durability::Full, Durability::Normal];
    let durability = both.into_iter().find(|one| name_of(*one) == wanted);
    let mut player = Player::new(&shim.folder().join("a.db"), durability.unwrap());
    for (at, step) in SCRIPT.into_iter().enumerate() {
        player.play(step);
        shim.mark(&at.to_string());
    }
}

fn log_of(durability: Durability) -> Vec<Event> {
    let folder = folder();
    let shim = Shim::on(folder.path());
    let mut command = command_for("crash::power::a_process_that_works", &shim);
    shim.apply_logging(&mut command);
    command.env("LOOPSTORE_DURABILITY", name_of(durability));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    shim.events()
}

/// Returns the state after each step.
fn states() -> Vec<State> {
    let folder = folder();
    let mut player = Player::new(&folder.path().join("a.db"), Durability::Normal);
    let after = |step| {
        player.play(step);
        state(player.store())
    };
    SCRIPT.into_iter().map(after).collect()
}

/// A power loss.
struct Loss<'a> {
    told: String,
    durability: Durability,
    /// The number of acknowledged steps.
    acknowledged: usize,
    states: &'a [State],
}

impl Loss<'_> {
    fn check(&self, files: &Files) {
        let folder = folder();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        self.check_database(&folder.path().join("a.db"));
        self.check_copy(files, &folder.path().join("copy.db"));
    }

    fn check_database(&self, file: &Path) {
        let store = crate::support::keyed::open(file)
            .unwrap_or_else(|error| panic!("{}: {error:?}", self.told));
        assert_whole(&store, &self.told);
        let now = state(&store);
        // The interrupted step may be stored, too.
        let last = self.acknowledged.min(SCRIPT.len() - 1);
        let first = match self.durability {
            Durability::Full => self.acknowledged.saturating_sub(1),
            Durability::Normal => 0,
        };
        let mut allowed = self.states[first..=last].iter();
        let found = allowed.any(|state| *state == now);
        assert!(
            found,
            "{}: not the state of steps {first} to {last}",
            self.told
        );
        if now.contains_key("s") {
            append(&store, 99).unwrap();
            assert_whole(&store, &self.told);
        }
    }

    /// Checks that a copy with its name is complete, and that it has its name once this was acknowledged.
    fn check_copy(&self, files: &Files, copy: &Path) {
        let at = SCRIPT.iter().position(|step| *step == Backup).unwrap();
        if !files.contains_key("copy.db") {
            assert!(self.acknowledged <= at, "{}: no copy", self.told);
            return;
        }
        let copy = crate::support::keyed::open(copy).unwrap();
        assert_whole(&copy, &self.told);
        assert!(state(&copy) == self.states[at], "{}", self.told);
    }
}

/// Checks some positions of the log, or all of them.
fn lose_power(durability: Durability) {
    let begun = std::time::Instant::now();
    let (events, states) = (log_of(durability), states());
    let moments = events.len() as u64 + 1;
    let samples = amount("LOOPSTORE_LOSSES", 24).min(moments);
    let is_all = samples == moments;
    let mut random = random(durability as u64);
    let mut disk = Disk::default();
    let (mut played, mut acknowledged, mut losses) = (0, 0, 0);
    for sample in 0..samples {
        let (from, to) = (sample * moments / samples, (sample + 1) * moments / samples);
        let moment = (from + random.below(to - from)) as usize;
        for event in &events[played..moment] {
            disk.play(event);
            acknowledged += usize::from(matches!(event, Event::Mark(_)));
        }
        played = moment;
        let one = Unsynced::ALL[random.below(4) as usize];
        let wanted = if is_all { &Unsynced::ALL[..] } else { &[one] };
        for files in wanted {
            let names = Unsynced::ALL[random.below(3) as usize];
            let told = format!(
                "{durability:?}, {moment} of {}, {files:?}, names {names:?}",
                events.len()
            );
            let loss = Loss {
                told,
                durability,
                acknowledged,
                states: &states,
            };
            loss.check(&disk.after_loss(*files, names, &mut random));
            losses += 1;
        }
    }
    println!(
        "{durability:?}: {moments} moments, {losses} losses, {:?}",
        begun.elapsed()
    );
    let kind = format!("power loss, `Durability::{durability:?}`");
    let command = "LOOPSTORE_LOSSES=2000 cargo test --test faults crash";
    crate::support::proof::tally(&kind, losses, command);
}

#[test]
fn what_was_acknowledged_outlasts_a_power_loss() {
    lose_power(Durability::Full);
}

/// A process that acknowledges a write before it is synced.
#[test]
#[cfg(debug_assertions)]
fn an_answer_before_the_disk_has_it_is_found_out() {
    let test = "crash::power::what_was_acknowledged_outlasts_a_power_loss";
    crate::support::proof::catches(test, "early-answer", &[], "not the state of steps");
}

#[test]
fn with_normal_durability_a_power_loss_costs_the_last_steps_and_none_before() {
    lose_power(Durability::Normal);
}

/// A migration and the record that it was applied are committed together.
#[test]
fn a_creation_that_is_cut_off_between_its_commits_opens_as_empty() {
    let events = log_of(Durability::Full);
    let (mut disk, mut random) = (Disk::default(), random(1));
    let (mut syncs, empty) = (0, [State::new()]);
    let creation = events
        .iter()
        .take_while(|event| !matches!(event, Event::Mark(_)));
    for event in creation {
        disk.play(event);
        if !matches!(event, Event::Sync(_)) {
            continue;
        }
        syncs += 1;
        let loss = Loss {
            told: format!("sync {syncs}"),
            durability: Durability::Full,
            acknowledged: 0,
            states: &empty,
        };
        loss.check(&disk.after_loss(Unsynced::Lost, Unsynced::Lost, &mut random));
    }
    assert!(syncs > 5);
}

/// The file has the content that was written last: the checks above detect a disk that loses synced data.
#[test]
fn a_disk_that_forgets_what_it_synced_is_found_out() {
    let events = log_of(Durability::Full);
    let mut disk = Disk::default();
    for event in &events {
        if !matches!(event, Event::Sync(_)) {
            disk.play(event);
        }
    }
    let lost = disk.after_loss(Unsynced::Lost, Unsynced::Kept, &mut random(0));
    let loss = Loss {
        told: String::new(),
        durability: Durability::Full,
        acknowledged: SCRIPT.len(),
        states: &states(),
    };
    let folder = folder();
    let file = folder.path().join("a.db");
    std::fs::write(&file, &lost["a.db"]).unwrap();
    let checked = std::panic::catch_unwind(|| loss.check_database(&file));
    assert!(checked.is_err());
}

/// Runs one attempt with a narrow policy. Returns its outcome.
pub fn compact(store: &SqliteStore) -> Result<String, StoreError> {
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: 1,
                keep_recent: KeepRecent::Turns(1),
                max_summary_tokens: 60,
                ..CompactionConfig::default()
            },
        ),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    let report = compact_session_loops(store, &session("s"), &request)?;
    let report = serde_json::to_value(report).unwrap();
    Ok(report["outcome"].as_str().unwrap().to_owned())
}
