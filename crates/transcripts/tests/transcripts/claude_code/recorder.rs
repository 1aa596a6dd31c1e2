//! A sink that records all calls and checks the contract.

use std::io::Cursor;
use std::path::Path;

use loopstore::{AgentMessage, Json, LoopId, LoopRecord, LoopStatus, Message, Role};
use loopstore_transcripts::{
    ClaudeCode, FoundCompaction, FoundEffect, ImportError, SessionHead, Sink, Source,
    read_transcript,
};

/// A recorded loop.
pub struct TestLoop {
    pub record: LoopRecord,
    pub messages: Vec<(AgentMessage, Vec<u8>)>,
}

/// A recorded session.
pub struct TestSession {
    pub head: SessionHead,
    pub loops: Vec<TestLoop>,
    /// The compactions, each with the number of messages of the loop so far.
    pub compactions: Vec<(FoundCompaction, usize)>,
}

#[derive(Default)]
pub struct Recorder {
    pub sessions: Vec<TestSession>,
    pub skipped: Vec<(Option<u64>, String)>,
    pub error: Option<String>,
}

impl Recorder {
    /// Imports `bytes` as the file `path`.
    pub fn of(path: impl AsRef<Path>, bytes: &[u8]) -> Self {
        let mut recorder = Self::default();
        let mut reader = Cursor::new(bytes.to_vec());
        let mut source = Source {
            path: path.as_ref(),
            reader: &mut reader,
        };
        if let Err(error) = read_transcript(&ClaudeCode, &mut source, &mut recorder) {
            recorder.error = Some(error.to_string());
        }
        recorder
    }

    /// Imports a transcript in `tests/fixtures/claude-code`.
    pub fn of_fixture(name: &str) -> Self {
        let path = Path::new("../../tests/fixtures/claude-code").join(name);
        let recorder = Self::of(&path, &std::fs::read(&path).unwrap());
        assert_eq!(recorder.error, None);
        recorder
    }

    pub fn messages(&self) -> impl Iterator<Item = &(AgentMessage, Vec<u8>)> {
        self.sessions
            .iter()
            .flat_map(|session| &session.loops)
            .flat_map(|l| &l.messages)
    }

    /// Returns the reasons of all skips, with their lines.
    pub fn skips(&self) -> Vec<String> {
        let line = |line: &Option<u64>| line.map_or("-".into(), |line| line.to_string());
        self.skipped
            .iter()
            .map(|(at, reason)| format!("{}: {reason}", line(at)))
            .collect()
    }

    /// Returns the sessions as a text to compare: loops with parent, kind and status, messages with turn.
    pub fn outline(&self) -> String {
        let mut out = String::new();
        for session in &self.sessions {
            session.outline(&mut out);
        }
        out
    }
}

impl TestSession {
    pub fn find(&self, loop_id: &str) -> &TestLoop {
        self.loops
            .iter()
            .find(|l| l.record.loop_id.as_str() == loop_id)
            .unwrap()
    }

    fn outline(&self, out: &mut String) {
        let session = &self.head.session;
        *out += &format!("session {}", session.session_id);
        if let Some(title) = &self.head.title {
            *out += &format!(" \"{title}\"");
        }
        if let Some(parent) = &session.parent_spawn_ref {
            let loop_id = parent.parent_loop_id.as_ref().map_or("?", |id| id.as_str());
            let call = parent.tool_call_id.as_deref().unwrap_or("?");
            let tool = parent.tool_name.as_deref().unwrap_or("?");
            *out += &format!(" from {} {loop_id} {call} {tool}", parent.parent_session_id);
        }
        *out += "\n";
        for found in &self.loops {
            let record = &found.record;
            let parent = match (&record.parent_loop_id, &record.parent_turn) {
                (Some(parent), Some(turn)) => format!(" after {parent}:{}", turn.get()),
                _ => String::new(),
            };
            let kind = Json::of(record.continuation_kind.as_ref().unwrap()).unwrap();
            let kind = kind.as_str().replace('"', "");
            *out += &format!(
                "  loop {} {kind}{parent} {}\n",
                record.loop_id,
                record.status.as_str()
            );
            for (message, _) in &found.messages {
                *out += &format!("    {}\n", line_of(message));
            }
        }
        for (compaction, after) in &self.compactions {
            let effect = match &compaction.effect {
                FoundEffect::Summary {
                    messages,
                    first_kept,
                } => {
                    let kept = first_kept.as_ref().map(|(l, t)| format!(" keeps {l}:{t}"));
                    format!("summary of {}{}", messages.len(), kept.unwrap_or_default())
                }
                FoundEffect::EditedResults { tool_call_ids, .. } => {
                    format!("cleared {}", tool_call_ids.join(" "))
                }
                FoundEffect::SummaryWithin { .. } => "summary within".into(),
                FoundEffect::Block(_) => "block".into(),
            };
            let trigger = compaction.trigger.as_deref().unwrap_or("?");
            *out += &format!(
                "  {trigger} compaction in {}@{after}: {effect}\n",
                compaction.loop_id
            );
        }
    }
}

fn line_of(message: &AgentMessage) -> String {
    let turn = message
        .turn_index()
        .map_or("-".into(), |turn| turn.to_string());
    let said = match message {
        AgentMessage::Extension(extension) => return format!("- note {}", extension.kind),
        AgentMessage::Llm(llm) => &llm.message,
    };
    let short = |text: &str| {
        text.lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(60)
            .collect()
    };
    let texts: Vec<String> = said.texts().map(short).collect();
    let calls: Vec<&str> = said.tool_calls().map(|call| call.id.as_str()).collect();
    let mut line = format!("{turn} {} {}", message.role().as_str(), texts.join(" | "));
    if !calls.is_empty() {
        line += &format!(" [{}]", calls.join(" "));
    }
    if let Message::ToolResult(result) = said {
        let failed = if result.is_error { " failed" } else { "" };
        line += &format!(" <{} {}{failed}>", result.tool_call_id, result.tool_name);
    }
    line.trim_end().to_owned()
}

impl Sink for Recorder {
    fn session(&mut self, head: SessionHead) -> Result<(), ImportError> {
        assert!(head.session.loops.is_empty());
        self.sessions.push(TestSession {
            head,
            loops: Vec::new(),
            compactions: Vec::new(),
        });
        Ok(())
    }

    fn begin_loop(&mut self, record: LoopRecord) -> Result<(), ImportError> {
        assert!(record.messages.is_empty());
        let loops = &mut self.sessions.last_mut().expect("a session first").loops;
        if let Some(parent) = &record.parent_loop_id {
            assert!(
                loops.iter().any(|l| l.record.loop_id == *parent),
                "parent first"
            );
        }
        match loops
            .iter_mut()
            .find(|l| l.record.loop_id == record.loop_id)
        {
            Some(found) => found.record = record,
            None => {
                assert_eq!(record.status, LoopStatus::Running);
                loops.push(TestLoop {
                    record,
                    messages: Vec::new(),
                });
            }
        }
        Ok(())
    }

    fn message(
        &mut self,
        loop_id: &LoopId,
        message: AgentMessage,
        raw: &[u8],
    ) -> Result<(), ImportError> {
        let loops = &mut self.sessions.last_mut().expect("a session first").loops;
        let found = loops
            .iter_mut()
            .find(|l| l.record.loop_id == *loop_id)
            .expect("a loop first");
        if message.role() != Role::Extension {
            let last = found
                .messages
                .iter()
                .rev()
                .find_map(|(m, _)| m.turn_index());
            let turn = message.turn_index().expect("a turn");
            let may = |last: i64| turn == last || turn == last + 1;
            assert!(last.map_or(turn == 0, may), "turn {turn} after {last:?}");
        }
        let json = serde_json::to_string(&message).unwrap();
        let again: AgentMessage = serde_json::from_str(&json).unwrap();
        assert_eq!(
            serde_json::to_string(&again).unwrap(),
            json,
            "JSON survives"
        );
        found.messages.push((message, raw.to_vec()));
        Ok(())
    }

    fn compaction(&mut self, found: FoundCompaction) -> Result<(), ImportError> {
        let session = self.sessions.last_mut().expect("a session first");
        let after = session.find(found.loop_id.as_str()).messages.len();
        if let FoundEffect::Summary {
            first_kept: Some((kept, turn)),
            ..
        } = &found.effect
        {
            let kept = session.find(kept.as_str());
            let turns = kept.messages.iter().filter_map(|(m, _)| m.turn_index());
            assert!(
                turns.max() >= Some(i64::from(*turn)),
                "the first kept turn is known"
            );
        }
        session.compactions.push((found, after));
        Ok(())
    }

    fn skip(&mut self, line: Option<u64>, reason: String) {
        self.skipped.push((line, reason));
    }
}
