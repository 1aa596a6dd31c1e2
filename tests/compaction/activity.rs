//! The activity of agents, derived from transcripts of other tools.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use loopstore::extend::compaction::{Activity, AgentWork, FileAct, SourceTurn};
use loopstore::{AgentMessage, LoopId, LoopRecord, Role};
use loopstore_transcripts::{FoundCompaction, ImportError, SessionHead, Sink, Source, importers};

use crate::support::root::fixture;

/// The messages of each session.
#[derive(Default)]
struct Sessions(Vec<Vec<AgentMessage>>);

impl Sink for Sessions {
    fn session(&mut self, _: SessionHead) -> Result<(), ImportError> {
        self.0.push(Vec::new());
        Ok(())
    }

    fn begin_loop(&mut self, _: LoopRecord) -> Result<(), ImportError> {
        Ok(())
    }

    fn message(&mut self, _: &LoopId, message: AgentMessage, _: &[u8]) -> Result<(), ImportError> {
        self.0.last_mut().unwrap().push(message);
        Ok(())
    }

    fn compaction(&mut self, _: FoundCompaction) -> Result<(), ImportError> {
        Ok(())
    }

    fn skip(&mut self, _: Option<u64>, _: String) {}
}

/// Returns the work in each session of a file that an importer recognises.
fn works(path: &Path) -> Vec<AgentWork> {
    let bytes = std::fs::read(path).unwrap();
    let head = &bytes[..bytes.len().min(64 << 10)];
    let Some(importer) = importers().iter().find(|i| i.detect(path, head)) else {
        return Vec::new();
    };
    let mut sessions = Sessions::default();
    let mut reader = Cursor::new(&bytes);
    let mut source = Source {
        path,
        reader: &mut reader,
    };
    if importer.import(&mut source, &mut sessions).is_err() {
        return Vec::new();
    }
    sessions.0.iter().map(|messages| work(messages)).collect()
}

fn work(messages: &[AgentMessage]) -> AgentWork {
    let mut activity = Activity::default();
    let mut turn = 0;
    for message in messages {
        turn += u32::from(message.role() == Role::Assistant);
        if let Some(message) = message.message() {
            activity.add_message(
                message,
                &SourceTurn {
                    loop_name: None,
                    turn,
                },
            );
        }
        // Continuing from the summarised records gives the same as continuing from all of them.
        if turn % 7 == 3 {
            let before = activity.work().clone();
            assert_eq!(Activity::restore(before.clone()).into_work(), before);
        }
    }
    activity.into_work()
}

fn only(name: &str) -> AgentWork {
    works(&fixture(name)).into_iter().next().unwrap()
}

fn acts(work: &AgentWork) -> Vec<(&str, Vec<FileAct>)> {
    let files = work.files.iter();
    files
        .map(|file| {
            let acts = file.events.iter().map(|event| event.act.clone());
            (file.path.as_str(), acts.collect())
        })
        .collect()
}

#[test]
fn files_are_told_whatever_the_tool() {
    use FileAct::{Edited, Read};
    let lantern = only("swe-agent/lantern.traj.json");
    assert_eq!(acts(&lantern), [("lamp.py", vec![Read, Edited])]);
    let harbour = only("opencode/harbour.json");
    assert_eq!(acts(&harbour), [("tides.csv", vec![Read])]);
    let weir = only("retention/weir.json");
    let edited: Vec<&str> = acts(&weir)
        .into_iter()
        .filter(|(_, acts)| acts.contains(&Edited))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        edited,
        [
            "/srv/weir/src/alarm/level.rs",
            "/srv/weir/src/gauge/window.rs"
        ]
    );
}

#[test]
fn attempts_and_open_calls_are_told() {
    let harbour = only("opencode/harbour.json");
    let failed = &harbour.calls[0];
    assert_eq!(failed.description, "tide --now");
    assert_eq!(failed.failure.as_ref().unwrap().1, "tide: not found");
    assert_eq!(harbour.running.len(), 1);
    let openhands = only("openhands/events.jsonl");
    let refused = openhands
        .calls
        .iter()
        .find(|a| a.description == "pwd")
        .unwrap();
    assert_eq!(refused.failure.as_ref().unwrap().1, "refused: not now");
    let weir = only("retention/weir.json");
    let tests = weir
        .calls
        .iter()
        .find(|a| a.description.starts_with("cargo test"));
    let tests = tests.unwrap();
    assert_eq!(
        (tests.times, tests.result.as_deref()),
        (2, Some("3 passed"))
    );
    let mini = only("mini-swe-agent/bare.traj.json");
    assert_eq!(mini.calls[0].description, "ls");
    let text = only("swe-agent/text.traj.json");
    assert_eq!(text.calls[0].description, "ls");
}

fn walk(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(&path, each),
            false => each(&path),
        }
    }
}

#[test]
fn what_holds_in_any_transcript_holds() {
    let real = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from);
    for folder in [Some(fixture("")), real].into_iter().flatten() {
        walk(&folder, &mut |path| works(path).iter().for_each(sane));
    }
}

fn sane(work: &AgentWork) {
    for file in &work.files {
        assert!(!file.path.trim().is_empty() && !file.path.contains(['\n', '\0']));
        assert!(!file.events.is_empty());
        assert!(file.events.is_sorted_by_key(|event| &event.place));
        assert!(file.events.iter().all(|event| event.symbols.len() <= 4));
        let reads = file
            .events
            .iter()
            .filter(|event| event.act == FileAct::Read);
        assert!(reads.count() <= 1);
    }
    for attempt in &work.calls {
        assert!(
            !attempt.description.contains('\n')
                && attempt.description.len() < 500
                && attempt.times > 0
        );
        assert!(
            attempt.is_command
                || attempt.runs
                || attempt.failure.is_some()
                || attempt.result.is_some()
        );
        let failed = attempt.failure.as_ref();
        assert!(
            failed.is_none_or(|(at, line)| !line.is_empty()
                && line.len() <= 200
                && *at <= attempt.last)
        );
        assert!(
            attempt.passed.is_none()
                || failed.is_some_and(|(at, _)| *at <= *attempt.passed.as_ref().unwrap())
        );
    }
    assert!(work.calls.is_sorted_by_key(|attempt| &attempt.last));
    assert!(work.running.is_sorted_by_key(|call| &call.place));
    if let Some(plan) = &work.plan {
        assert!(!plan.items.is_empty() && plan.items.iter().all(|item| !item.text.is_empty()));
    }
}
