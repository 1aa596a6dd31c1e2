//! Random messages with every fault that a source may have.

use loopstore::model::*;

use crate::support::histories::Random;

const TEXTS: [&str; 8] = [
    "",
    " ",
    "\n\t\u{3000}",
    "done",
    "trailing \n",
    "é – 漢字",
    "{\"role\":\"user\"}",
    "[Summary] of nothing",
];

const ARGUMENTS: [&str; 9] = [
    "null",
    "{}",
    "{\"x\":12}",
    "[1.50]",
    "\"{\\\"a\\\":1}\"",
    "\"{broken\"",
    "\"\"",
    "true",
    "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]",
];

/// Generates messages, and remembers the open calls for later ones.
#[derive(Default)]
pub struct Maker {
    made: u64,
    open: Vec<String>,
    used: Vec<String>,
}

impl Maker {
    pub fn text(&mut self, random: &mut Random) -> String {
        self.made += 1;
        if random.one_in(4) {
            return TEXTS[random.below(TEXTS.len() as u64) as usize].to_owned();
        }
        format!("{} ", self.made) + &"words of it\n".repeat(random.below(30) as usize)
    }

    fn id(&mut self, random: &mut Random) -> String {
        self.made += 1;
        let number = self.made;
        let id = match random.below(14) {
            0 => String::new(),
            1 => "ü–漢字 a.b".to_owned(),
            2 => "x".repeat(300),
            3 => "x".repeat(290) + &number.to_string(),
            4 => "x".repeat(40),
            5 if !self.used.is_empty() => {
                self.used[random.below(self.used.len() as u64) as usize].clone()
            }
            6 => format!("call.{number}"),
            _ => format!("call-{number}"),
        };
        self.used.push(id.clone());
        id
    }

    fn call(&mut self, random: &mut Random) -> Content {
        let id = self.id(random);
        let name = match random.below(8) {
            0 => String::new(),
            1 => "mcp.server/read".to_owned(),
            2 => "n".repeat(200),
            3 => "読む".to_owned(),
            _ => "read_file".to_owned(),
        };
        let arguments = ARGUMENTS[random.below(ARGUMENTS.len() as u64) as usize];
        self.open.push(id.clone());
        Content::tool_call(id, name, Json::parse(arguments).unwrap())
    }

    fn image(random: &mut Random) -> Content {
        let data = ["iVBORw0KGgo=", "/9j/4A==", "d29ybGQh", "not base64", ""];
        let types = [
            "image/png",
            "image/png",
            "image/jpg",
            "IMAGE/GIF",
            "image/svg+xml",
            "",
        ];
        let data = data[random.below(data.len() as u64) as usize];
        Content::image(data, types[random.below(types.len() as u64) as usize])
    }

    fn thinking(&mut self, random: &mut Random) -> Content {
        self.made += 1;
        let text = format!("thought {}", self.made);
        match random.below(8) {
            0 => Content::thinking(text, None),
            1 => Content::thinking(text, Some(String::new())),
            2 => {
                let sealed = format!("{{\"type\":\"redacted_thinking\",\"data\":\"{text}\"}}");
                Content::sealed("anthropic", Json::parse(&sealed).unwrap())
            }
            4 => {
                let sealed = format!("{{\"type\":\"reasoning\",\"encrypted_content\":\"{text}\"}}");
                Content::sealed("openai", Json::parse(&sealed).unwrap())
            }
            5 => {
                let sealed =
                    format!("{{\"type\":\"compaction\",\"encrypted_content\":\"{text}\"}}");
                Content::sealed("openai", Json::parse(&sealed).unwrap())
            }
            3 => Content::Other(Json::parse("{\"type\":\"redacted_thinking\"}").unwrap()),
            _ => Content::thinking(text, Some("c2ln".into())),
        }
    }

    /// Returns a random block, which may be invalid in its place.
    fn block(&mut self, random: &mut Random) -> Content {
        match random.below(9) {
            0 => Self::image(random),
            1 => self.thinking(random),
            2 => self.call(random),
            3 => Content::Other(Json::parse("{\"type\":\"audio\",\"data\":\"AA\"}").unwrap()),
            _ => Content::text(self.text(random)),
        }
    }

    fn blocks(&mut self, random: &mut Random) -> Vec<Content> {
        (0..random.below(3)).map(|_| self.block(random)).collect()
    }

    pub fn prompt(&mut self, random: &mut Random) -> Message {
        let content = match random.below(5) {
            0 => self.blocks(random),
            1 => vec![Content::text(self.text(random)), Self::image(random)],
            _ => vec![Content::text(self.text(random))],
        };
        Message::User(UserMessage {
            content,
            timestamp: None,
            ..UserMessage::default()
        })
    }

    pub fn answer(&mut self, random: &mut Random) -> Message {
        let mut content = Vec::new();
        if random.one_in(2) {
            content.push(self.thinking(random));
        }
        if random.one_in(2) {
            content.push(Content::text(self.text(random)));
        }
        for _ in 0..random.below(3) {
            content.push(self.call(random));
        }
        if random.one_in(6) {
            content.extend(self.blocks(random));
        }
        Message::Assistant(AssistantMessage {
            content,
            ..AssistantMessage::default()
        })
    }

    /// Returns the result of an open call, of an answered call, or of no call.
    pub fn result(&mut self, random: &mut Random) -> Message {
        let tool_call_id = match random.below(12) {
            0 => self.id(random),
            _ => match self.open.len() as u64 {
                0 => "lost".to_owned(),
                open => self.open.remove(random.below(open) as usize),
            },
        };
        let content = match random.below(6) {
            0 => Vec::new(),
            1 => vec![Self::image(random)],
            2 => vec![Content::text(self.text(random)), Self::image(random)],
            3 => self.blocks(random),
            _ => vec![Content::text(self.text(random))],
        };
        Message::ToolResult(ToolResultMessage {
            tool_call_id,
            tool_name: "read_file".into(),
            content,
            is_error: random.one_in(4),
            timestamp: None,
            ..ToolResultMessage::default()
        })
    }

    pub fn any(&mut self, random: &mut Random) -> AgentMessage {
        match random.below(8) {
            0 => AgentMessage::extension("note", Json::string("a note")),
            1 | 2 => self.prompt(random).into(),
            3..=5 => self.answer(random).into(),
            _ => self.result(random).into(),
        }
    }

    /// Returns the messages of one turn; some calls stay open, and some results come in another turn.
    pub fn turn(&mut self, random: &mut Random, turn: Option<u32>) -> Vec<AgentMessage> {
        let mut messages: Vec<Message> = Vec::new();
        if random.one_in(3) {
            messages.push(self.prompt(random));
        }
        if random.one_in(6) {
            messages.push(self.result(random));
        }
        for _ in 0..1 + u64::from(random.one_in(6)) {
            messages.push(self.answer(random));
        }
        while !self.open.is_empty() && !random.one_in(5) {
            messages.push(self.result(random));
        }
        if random.one_in(10) {
            messages.push(self.prompt(random));
        }
        let in_turn = |message: Message| match turn {
            Some(turn) => AgentMessage::from(message).in_turn(TurnId::new("l", turn)),
            None => message.into(),
        };
        let mut messages: Vec<AgentMessage> = messages.into_iter().map(in_turn).collect();
        if random.one_in(6) {
            messages.push(AgentMessage::extension("system", Json::string("Be brief.")));
        }
        messages
    }
}
