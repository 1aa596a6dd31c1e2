//! Turns in memory, for tests of strategies without a store (feature `testing`).

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use super::CompactionConfig;
use super::slice::{LoopMessage, LoopSlice, ReadError, TurnReader};
use super::strategy::{BlockCompactionStrategy, Draft};
use crate::tokens::{HeuristicTokenCounter, TokenCounter};
use crate::{
    AgentMessage, AssistantMessage, Content, Json, Layout, LoopId, Message, SessionId,
    ToolResultMessage, Turns,
};

/// One loop, message by message.
#[derive(Clone, Default)]
pub struct MemoryTurns {
    messages: Vec<LoopMessage>,
    earlier: Vec<AgentMessage>,
    is_unreadable: bool,
}

impl MemoryTurns {
    /// Returns a loop of `turns` turns. Each turn has a prompt, an answer with a call, a result of `lines` lines and
    /// a last answer, and names its own file.
    pub fn work(turns: u32, lines: usize) -> Self {
        let mut work = Self::default();
        for turn in 0..turns {
            let (id, path) = (format!("call-{turn}"), format!("/src/part_{turn}/mod.rs"));
            let arguments = Json::string(&path);
            let listing = (0..lines).map(|line| format!("{line}: of {path}\n"));
            work.add(
                turn,
                Message::user(format!(
                    "Mend {path}, please. {}",
                    "So it goes. ".repeat(20)
                )),
            );
            work.add(
                turn,
                answer(vec![Content::tool_call(&id, "read", arguments)]),
            );
            work.add(
                turn,
                Message::ToolResult(ToolResultMessage {
                    tool_call_id: id,
                    tool_name: "read".into(),
                    content: vec![Content::text(listing.collect::<String>())],
                    ..ToolResultMessage::default()
                }),
            );
            work.add(turn, answer(vec![Content::text(format!("Mended {path}."))]));
        }
        work
    }

    fn add(&mut self, turn: u32, message: Message) {
        let (seq, message) = (self.messages.len() as u32, message.into());
        self.messages.push(LoopMessage { turn, seq, message });
    }

    /// Sets the text of the active block.
    pub fn with_earlier(mut self, text: &str) -> Self {
        self.earlier = vec![Message::user(text).into()];
        self
    }

    /// Returns the loop as a slice with `first` turns kept at the start and `recent` at the end.
    pub fn slice(&self, first: u32, recent: u32) -> LoopSlice<'static> {
        let turns = self.messages.last().map_or(0, |placed| placed.turn + 1);
        let layout = Layout {
            first: Turns::of(0..first),
            compacted: Turns::of(first..turns - recent),
            recent: Turns::of(turns - recent..turns),
        };
        let id = LoopId::new("monday").unwrap();
        LoopSlice::new(self.clone(), &HeuristicTokenCounter, id, layout)
    }
}

impl TurnReader for MemoryTurns {
    fn session_id(&self) -> Result<SessionId, ReadError> {
        SessionId::new("weather").map_err(ReadError::new)
    }

    fn tokens(&self, turns: Turns) -> Result<u64, ReadError> {
        let messages = self.messages(turns)?;
        let tokens = |placed: &LoopMessage| HeuristicTokenCounter.message_tokens(&placed.message);
        Ok(messages.iter().map(tokens).sum())
    }

    fn messages(&self, turns: Turns) -> Result<Vec<LoopMessage>, ReadError> {
        if self.is_unreadable {
            return Err(ReadError::new("no disk"));
        }
        let messages = self.messages.iter();
        let messages = messages.filter(|placed| turns.contains(placed.turn));
        Ok(messages.cloned().collect())
    }

    fn first_prompt(&self) -> Result<Option<AgentMessage>, ReadError> {
        let mut messages = self.messages.iter().map(|placed| &placed.message);
        let says = |message: &&AgentMessage| {
            message
                .message()
                .is_some_and(|message| message.prompt_text().is_some())
        };
        Ok(messages.find(says).cloned())
    }

    fn earlier_messages(&self) -> Result<Vec<AgentMessage>, ReadError> {
        Ok(self.earlier.clone())
    }
}

fn answer(content: Vec<Content>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        ..AssistantMessage::default()
    })
}

/// Returns the texts that replace the compacted turns.
pub fn texts(draft: &Draft) -> Vec<String> {
    let summary = draft
        .compacted
        .iter()
        .flat_map(|(_, summary)| &summary.messages);
    let text = |message: &AgentMessage| {
        let texts = message.message().into_iter().flat_map(Message::texts);
        texts.collect::<Vec<_>>().join("\n")
    };
    summary.map(text).collect()
}

/// Checks the requirements on every strategy; panics if one is violated.
pub fn check_promises(strategy: &dyn BlockCompactionStrategy) {
    let config = CompactionConfig {
        tool_output_max_lines: 4,
        max_summary_tokens: 300,
        ..CompactionConfig::default()
    };
    let work = MemoryTurns::work(8, 9);
    let slice = work.slice(1, 2);
    let draft = strategy.compact(&slice, &config).unwrap();
    assert_eq!(draft.layout(), *slice.layout(), "the planned sections");
    let recent = draft.recent.as_ref().unwrap();
    let cut: Vec<u32> = recent.replaced.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(cut, [26, 30], "long results are cut");
    let (turns, summary) = draft.compacted.as_ref().unwrap();
    assert!(summary.turns.iter().all(|turn| turns.contains(*turn)));
    let tokens = |message| HeuristicTokenCounter.message_tokens(message);
    let made: u64 = summary.messages.iter().map(tokens).sum();
    assert!(made <= 300, "{made} tokens");
    let again = strategy.compact(&work.slice(1, 2), &config).unwrap();
    assert_eq!(
        texts(&again),
        texts(&draft),
        "the same input gives the same text"
    );
    let unreadable = MemoryTurns {
        is_unreadable: true,
        ..work
    };
    let error = strategy
        .compact(&unreadable.slice(1, 2), &config)
        .unwrap_err();
    assert_eq!(error.to_string(), "no disk");
}
