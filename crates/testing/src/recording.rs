//! A sink that records the output of an importer and checks its order.

use std::collections::{HashMap, HashSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use loopstore::{AgentMessage, LoopId, LoopRecord, Role, TurnMap};
use loopstore_transcripts::{
    FoundCompaction, ImportError, Importer, SessionHead, Sink, Source, read_transcript,
};

/// A loop with the records of it.
#[derive(Debug)]
pub struct FoundLoop {
    pub record: LoopRecord,
    pub messages: Vec<AgentMessage>,
    pub raw: Vec<String>,
    pub compactions: Vec<FoundCompaction>,
}

/// A session with its loops in the order of their beginning.
#[derive(Debug)]
pub struct FoundSession {
    pub head: SessionHead,
    pub loops: Vec<FoundLoop>,
}

impl FoundSession {
    pub fn messages(&self) -> impl Iterator<Item = &AgentMessage> {
        self.loops.iter().flat_map(|found| &found.messages)
    }

    pub fn count(&self, role: Role) -> usize {
        self.messages()
            .filter(|message| message.role() == role)
            .count()
    }

    pub fn loop_ids(&self) -> Vec<&str> {
        self.loops
            .iter()
            .map(|found| found.record.loop_id.as_str())
            .collect()
    }
}

impl FoundLoop {
    /// The messages of each turn, by their role's first letter.
    pub fn turns(&self) -> Vec<String> {
        let map = TurnMap::from_messages(&self.messages);
        let letters = |(from, to): (usize, usize)| {
            self.messages[from..to]
                .iter()
                .map(|message| &message.role().as_str()[..1])
                .collect()
        };
        (0..map.turn_count())
            .filter_map(|turn| map.turn_msg_range(turn))
            .map(letters)
            .collect()
    }
}

#[derive(Debug, Default)]
pub struct Recording {
    pub sessions: Vec<FoundSession>,
    pub skipped: Vec<(Option<u64>, String)>,
    at: HashMap<LoopId, usize>,
}

impl Recording {
    fn current(&mut self) -> &mut FoundSession {
        self.sessions
            .last_mut()
            .expect("a session before its loops")
    }

    pub fn reasons(&self) -> String {
        let line = |(line, reason): &(Option<u64>, String)| format!("{line:?} {reason}\n");
        self.skipped.iter().map(line).collect()
    }
}

impl Sink for Recording {
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError> {
        assert!(head.session.loops.is_empty());
        self.at.clear();
        self.sessions.push(FoundSession {
            head,
            loops: Vec::new(),
        });
        Ok(())
    }

    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
        assert!(record.messages.is_empty());
        if let Some(at) = self.at.get(&record.loop_id).copied() {
            // Fields that the importer learns later.
            let before = &mut self.current().loops[at].record;
            assert_eq!(before.parent_loop_id, record.parent_loop_id);
            *before = record;
            return Ok(());
        }
        let later: HashSet<&str> = self
            .current()
            .loops
            .iter()
            .filter_map(|found| found.record.parent_loop_id.as_ref().map(LoopId::as_str))
            .collect();
        assert!(
            !later.contains(record.loop_id.as_str()),
            "a parent after its child"
        );
        let nth = self.current().loops.len();
        self.at.insert(record.loop_id.clone(), nth);
        let found = FoundLoop {
            record,
            messages: Vec::new(),
            raw: Vec::new(),
            compactions: Vec::new(),
        };
        self.current().loops.push(found);
        Ok(())
    }

    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let again = serde_json::to_string(&message).expect("a message is JSON");
        assert_eq!(
            serde_json::from_str::<AgentMessage>(&again).expect("it is read back"),
            message
        );
        let at = self.at[loop_id];
        let found = &mut self.current().loops[at];
        assert!(
            found.compactions.is_empty(),
            "a message after the loop's compaction"
        );
        found.messages.push(message);
        found
            .raw
            .push(String::from_utf8(raw.to_vec()).expect("raw is text"));
        Ok(())
    }

    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError> {
        let at = self.at[&found.loop_id];
        self.current().loops[at].compactions.push(found);
        Ok(())
    }

    fn skip(&mut self, line: Option<u64>, reason: String) {
        self.skipped.push((line, reason));
    }
}

/// Imports `bytes` and returns the recording and the result.
pub fn try_import(importer: &dyn Importer, bytes: &[u8]) -> (Recording, Result<(), ImportError>) {
    let mut recording = Recording::default();
    let mut reader = Cursor::new(bytes);
    let mut source = Source {
        path: Path::new("some.json"),
        reader: &mut reader,
    };
    let end = read_transcript(importer, &mut source, &mut recording);
    (recording, end)
}

/// Imports `text`, which must hold at least one session.
pub fn import(importer: &dyn Importer, text: &str) -> Recording {
    let (recording, end) = try_import(importer, text.as_bytes());
    end.unwrap_or_else(|error| panic!("{error}\n{}", recording.reasons()));
    recording
}

/// Imports a file of `tests/fixtures`, which its importer must detect.
pub fn import_fixture(importer: &dyn Importer, name: &str) -> Recording {
    import_file(importer, &super::root::fixture(name))
}

pub fn import_file(importer: &dyn Importer, path: &Path) -> Recording {
    let text = std::fs::read_to_string(path).expect("a fixture is there");
    let head = &text.as_bytes()[..text.len().min(64 << 10)];
    assert!(
        importer.detect(path, head),
        "{} is not detected",
        path.display()
    );
    import(importer, &text)
}

/// The folder of recorded transcripts, if there is one.
pub fn real_transcripts() -> Option<PathBuf> {
    std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from)
}
