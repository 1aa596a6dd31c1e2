//! aider: `.aider.chat.history.md`, a Markdown file per project that contains all chats, one after the other.
//!
//! Lines of a person begin with `#### ` and lines of aider itself with `> `; both end with two spaces. All other lines
//! are the model's. A chat is a session, identified by the time at which it began; a chat without a prompt is left out.
//! Commands (`/add`, `/run`) are by the harness, except those that ask the model. No model sees the messages of aider
//! itself.

mod blocks;

use std::path::Path;

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Int, Json, LoopStatus, Message, SessionId,
    Time, Usage,
};

use self::blocks::{ChatBlock, ChatBlocks, ChatSpeaker};
use super::authors::by_harness;
use super::signs::CHAT_HISTORY;
use super::transcript::{Style, TranscriptBuilder, session};
use super::{Identity, ImportError, Importer, SessionHead, Sink, Source, holds_conversation};

const TOOL: &str = "aider";
/// The beginning of the line that starts a chat.
const STARTED: &str = "# aider chat started at ";
/// Commands whose text goes to the model.
const ASKING: [&str; 5] = ["/ask", "/architect", "/code", "/context", "/ok"];

/// Reads aider's chat histories.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aider;

impl Importer for Aider {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        let named = path.file_name().is_some_and(|name| {
            let name = name.as_encoded_bytes();
            name.ends_with(CHAT_HISTORY.as_bytes())
        });
        let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
        head.trim_ascii_start().starts_with(STARTED.as_bytes())
            || named && memchr::memmem::find(head, STARTED.as_bytes()).is_some()
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut blocks = ChatBlocks::new(source);
        let mut chats = Chats::default();
        let (mut next, mut any) = (blocks.next()?, false);
        while let Some(first) = next.take() {
            let began = match &first.speaker {
                ChatSpeaker::Start(at) => at.as_str(),
                _ => "",
            };
            let mut chat = Chat::new(&mut *sink, chats.head(began)?);
            chat.block(first)?;
            while let Some(block) = blocks.next()? {
                if matches!(block.speaker, ChatSpeaker::Start(_)) {
                    next = Some(block);
                    break;
                }
                chat.block(block)?;
            }
            any |= chat.end()?;
        }
        holds_conversation(any)
    }

    fn rewrites(&self) -> bool {
        true
    }
}

/// The chats of a file, as far as they were read.
#[derive(Default)]
struct Chats {
    started: Vec<String>,
}

impl Chats {
    /// Returns the head of a chat that began at a time; a second chat of the same time gets a number.
    fn head(&mut self, at: &str) -> Result<SessionHead, ImportError> {
        let earlier = self.started.iter().filter(|known| *known == at).count();
        self.started.push(at.to_owned());
        let key = match earlier {
            0 => at.to_owned(),
            nth => format!("{at}/{nth}"),
        };
        let id =
            SessionId::new(TOOL).map_err(|error| ImportError::NoTranscript(error.to_string()))?;
        // The file does not record a time zone.
        let time = (!at.is_empty()).then(|| Time::from_text(at.replacen(' ', "T", 1)));
        Ok(SessionHead {
            identity: Identity::Key(key),
            session: session(id, TOOL, time),
            title: None,
            project: None,
        })
    }
}

/// A chat that is being read.
struct Chat<'a> {
    transcript: TranscriptBuilder<'a>,
    /// The last answer: a line of aider after it may give its tokens.
    answer: Option<ChatBlock>,
    model: Option<String>,
}

impl<'a> Chat<'a> {
    fn new(sink: &'a mut dyn Sink, head: SessionHead) -> Self {
        Self {
            transcript: TranscriptBuilder::new(sink, head, Style::Document),
            answer: None,
            model: None,
        }
    }

    fn block(&mut self, block: ChatBlock) -> Result<(), ImportError> {
        if let Some(reason) = block.fault {
            self.transcript.skip(block.line, reason);
        }
        match block.speaker {
            ChatSpeaker::Start(_) => Ok(()),
            ChatSpeaker::Model => {
                self.end_answer(None)?;
                self.answer = Some(block);
                Ok(())
            }
            ChatSpeaker::Person => {
                self.end_answer(None)?;
                let message = AgentMessage::from(Message::user(block.text.as_str()));
                let raw = block.raw.as_bytes();
                match is_command(&block.text) {
                    true => self.transcript.input(by_harness(message), raw, false),
                    false => {
                        self.transcript.ended_as(Some(LoopStatus::Completed));
                        self.transcript.prompt("", message, raw)
                    }
                }
            }
            ChatSpeaker::Aider => {
                // The part for the model follows as an answer; each line is a record.
                for line in block.raw.lines() {
                    let text = line.trim_start_matches('>').trim();
                    self.model = model(text).or(self.model.take());
                    self.end_answer(usage(text))?;
                    let message = AgentMessage::extension(TOOL, Json::string(text));
                    self.transcript.extension(message, line.as_bytes())?;
                }
                Ok(())
            }
        }
    }

    fn end_answer(&mut self, usage: Option<Usage>) -> Result<(), ImportError> {
        let Some(block) = self.answer.take() else {
            return Ok(());
        };
        let message = Message::Assistant(AssistantMessage {
            content: vec![Content::text(block.text.as_str())],
            model: self.model.clone(),
            usage,
            ..AssistantMessage::default()
        });
        let raw = block.raw.as_bytes();
        self.transcript.answer(String::new, message.into(), raw)
    }

    fn end(mut self) -> Result<bool, ImportError> {
        self.end_answer(None)?;
        if !self.transcript.is_unfinished() {
            self.transcript.ended_as(Some(LoopStatus::Completed));
        }
        self.transcript.finish()
    }
}

/// True if a line of a person is a command to aider that the model does not see.
fn is_command(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    let asks = ASKING.contains(&word) && text.trim() != word;
    text.starts_with('!') || word.starts_with('/') && !word[1..].contains('/') && !asks
}

/// Returns the model that a line of aider names: `Model: gpt-4o with diff edit format`.
fn model(line: &str) -> Option<String> {
    let words = ["Model: ", "Models: ", "Main model: "];
    let named = words.iter().find_map(|word| line.strip_prefix(word))?;
    let name = named.split([' ', ',']).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Reads a count as aider writes it: `830`, `5.2k`, `1.1M`.
fn count(text: &str) -> Option<Int> {
    let (number, unit) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let count = number.replace(',', "").parse::<f64>().ok()? * unit;
    (0.0..1e15)
        .contains(&count)
        .then(|| Int::from(count.round() as i64))
}

/// Returns the token usage of an answer from a line of aider: `Tokens: 5.2k sent, 100 received. Cost: $0.03 message,
/// …`.
fn usage(line: &str) -> Option<Usage> {
    let line = line.strip_prefix("Tokens: ")?;
    let (tokens, cost) = line
        .split_once(". Cost: ")
        .unwrap_or((line.trim_end_matches('.'), ""));
    let of = |what: &str| -> Option<Int> {
        let mut parts = tokens.split(", ").map(str::trim);
        let found = parts.find_map(|part| part.strip_suffix(what))?;
        count(found.trim())
    };
    let mut extra = Extra::default();
    let amount = cost
        .strip_prefix('$')
        .and_then(|rest| rest.split(' ').next());
    if let Some(amount) = amount.filter(|amount| amount.parse::<f64>().is_ok())
        && let Ok(amount) = Json::parse(amount)
    {
        extra.insert("cost", amount);
    }
    Some(Usage {
        input: of("sent")?,
        output: of("received").unwrap_or_else(|| 0.into()),
        reasoning: None,
        cache_read: of("cache hit"),
        cache_write: of("cache write"),
        total_tokens: None,
        extra,
    })
}
