//! The turns of a tool-using agent, with which the figures of the guide were measured: an answer of 600 bytes
//! with 1 or 2 calls, as many results, and a prompt before every eighth turn.

use loopstore::*;

use super::Random;

/// The number of turns of one loop.
pub const IN_A_LOOP: u32 = 96;
/// The number of turns from one prompt to the next.
const PROMPT_EVERY: u32 = 8;
/// The median size of a tool's output in bytes, and the deviation of its logarithm: the 99th percentile is
/// about 55 KB.
const OUTPUT: (f64, f64) = (1_500.0, 1.58);

/// A generator of turns.
pub struct Turns {
    pub random: Random,
    made: u32,
    /// The bytes of an answer, and the median of a tool's output.
    sizes: (usize, f64),
}

impl Turns {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random(0x9E37_79B9_7F4A_7C15 ^ seed),
            made: 0,
            sizes: (600, OUTPUT.0),
        }
    }

    /// Returns a generator of turns of a few words each, so that ten million messages fit on a disk.
    pub fn small(seed: u64) -> Self {
        Self {
            sizes: (40, 30.0),
            ..Self::new(seed)
        }
    }

    /// True if the next turn begins a loop.
    pub fn begins(&self) -> bool {
        self.made.is_multiple_of(IN_A_LOOP)
    }

    /// Returns the messages of the next turn.
    pub fn next_turn(&mut self) -> Vec<AgentMessage> {
        let turn = self.made % IN_A_LOOP;
        self.made += 1;
        let mut messages = Vec::new();
        if turn.is_multiple_of(PROMPT_EVERY) {
            messages.push(Message::user(self.random.text(120)));
        }
        let ids: Vec<String> = (0..=self.random.below(2))
            .map(|_| format!("call_{:010x}", self.random.below(1 << 40)))
            .collect();
        messages.push(self.answer(&ids));
        messages.extend(ids.into_iter().map(|id| self.result(id)));
        let place = |message| AgentMessage::from(message).in_turn(TurnId::new("l", turn));
        messages.into_iter().map(place).collect()
    }

    fn answer(&mut self, ids: &[String]) -> Message {
        let mut content = vec![Content::text(self.random.text(self.sizes.0))];
        for id in ids {
            let path = serde_json::json!({ "path": self.random.text(30) });
            let path = Json::of(&path).unwrap_or_default();
            content.push(Content::tool_call(id.as_str(), "read", path));
        }
        Message::Assistant(AssistantMessage {
            content,
            model: Some("model".into()),
            stop_reason: Some("toolUse".into()),
            timestamp: Some(self.time()),
            ..AssistantMessage::default()
        })
    }

    fn result(&mut self, id: String) -> Message {
        let bytes = self.random.log_normal(self.sizes.1, OUTPUT.1).max(1);
        Message::ToolResult(ToolResultMessage {
            tool_call_id: id,
            tool_name: "read".into(),
            content: vec![Content::text(self.random.tool_text(bytes))],
            timestamp: Some(self.time()),
            ..ToolResultMessage::default()
        })
    }

    fn time(&self) -> Int {
        (1_767_225_600_000 + i64::from(self.made) * 1_000).into()
    }
}

/// Returns turns with about this number of messages in total.
pub fn of_messages(turns: &mut Turns, messages: usize) -> Vec<Vec<AgentMessage>> {
    let (mut made, mut count) = (Vec::new(), 0);
    while count < messages {
        let turn = turns.next_turn();
        count += turn.len();
        made.push(turn);
    }
    made
}
