//! OpenCode's export, which its `import` reads: messages with their parts, a call and its result in one.

mod form;

use std::io::{self, Write};

use chrono::{DateTime, Utc};
use loopstore::model::{Content, Image, SessionId, ToolCall};
use loopstore::provider::NO_RESULT;
use loopstore_model::author::is_injected;
use loopstore_provider::arguments_object;
use loopstore_provider::data_url;
use serde::Deserialize;

use self::form::{
    Block, Completed, Created, Empty, Failure, FailureText, Info, Message, MessageInfo, Model,
    OfRole, Part, Place, Signature, Signed, Span, State, Tokens, Updated,
};
use super::conversation::{Answered, Conversation, Returned, Said, Step};
use super::{Form, NativeSession, is_of_anthropic};

/// The newest version whose exports were seen.
const VERSION: &str = "1.14.30";

/// The agent that answers.
const AGENT: &str = "build";

/// Ids hold a time in steps of a 4,096th of a millisecond, of which the lowest 48 bits count.
const STEPS: u64 = 0x1000;
const BITS: u64 = (1 << 48) - 1;

/// So long before the present the first id lies: those that OpenCode makes afterwards are greater.
const BEFORE: u64 = 1 << 24;

pub(super) struct OpenCode;

/// Makes the id of a session: the newest one is the least.
pub(super) fn session_id(now: DateTime<Utc>) -> String {
    id("ses", !clock(now))
}

fn clock(now: DateTime<Utc>) -> u64 {
    let millis = now.timestamp_millis().unsigned_abs();
    millis.wrapping_mul(STEPS)
}

fn id(kind: &str, number: u64) -> String {
    let random = SessionId::generate().as_str().replace('-', "");
    let end = &random[random.len() - 14..];
    format!("{kind}_{:012x}{end}", number & BITS)
}

impl Form for OpenCode {
    /// OpenCode itself leaves out what another model signed.
    fn takes_thinking(&self, block: &Content) -> bool {
        matches!(block, Content::Thinking(_)) || is_of_anthropic(block)
    }

    fn shows_images_of_errors(&self) -> bool {
        false
    }

    fn write(
        &self,
        session: &NativeSession,
        conversation: &Conversation<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let steps = &conversation.steps;
        let begun = steps
            .first()
            .map_or(session.now.timestamp_millis(), Step::at);
        let mut document = Document {
            session,
            next: clock(session.now).wrapping_sub(BEFORE),
            prompt: String::new(),
            is_first: true,
            out,
        };
        document.begin(begun)?;
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Said(said) => document.said(said, model_of(&steps[at..]))?,
                Step::Answered(answered) => document.answered(answered)?,
            }
        }
        document.out.write_all(b"]}\n")
    }
}

/// Returns the model that answers first.
fn model_of<'a>(steps: &'a [Step<'_>]) -> Model<'a> {
    let mut answers = steps.iter().filter_map(|step| match step {
        Step::Answered(answered) => Some(Model::of(answered)),
        Step::Said(_) => None,
    });
    answers.next().unwrap_or(Model::UNKNOWN)
}

struct Document<'a> {
    session: &'a NativeSession,
    next: u64,
    /// The message that answers are to.
    prompt: String,
    is_first: bool,
    out: &'a mut dyn Write,
}

impl<'s> Document<'s> {
    fn begin(&mut self, created: i64) -> io::Result<()> {
        let session = self.session;
        let info = Info {
            id: session.id(),
            slug: session.id(),
            project_id: "global",
            directory: session.folder(),
            title: session.title.as_deref().unwrap_or("Resumed session"),
            version: VERSION,
            time: Updated {
                created,
                updated: session.now.timestamp_millis(),
            },
        };
        self.out.write_all(b"{\"info\":")?;
        serde_json::to_writer(&mut *self.out, &info)?;
        self.out.write_all(b",\"messages\":[")
    }

    fn id(&mut self, kind: &str) -> String {
        self.next = self.next.wrapping_add(1);
        id(kind, self.next)
    }

    fn message(&mut self, id: &str, of: OfRole<'_>, blocks: Vec<Block<'_>>) -> io::Result<()> {
        let session_id = self.session.id();
        let parts = blocks.into_iter().map(|block| self.part(id, block));
        let parts = parts.collect();
        let info = MessageInfo {
            id,
            session_id,
            agent: AGENT,
            of,
        };
        if !std::mem::take(&mut self.is_first) {
            self.out.write_all(b",")?;
        }
        serde_json::to_writer(&mut *self.out, &Message { info, parts })?;
        Ok(())
    }

    fn part<'a>(&mut self, message_id: &'a str, block: Block<'a>) -> Part<'a>
    where
        's: 'a,
    {
        let session = self.session;
        Part {
            id: self.id("prt"),
            session_id: session.id(),
            message_id,
            block,
        }
    }

    fn said(&mut self, said: &Said, model: Model<'_>) -> io::Result<()> {
        let id = self.id("msg");
        let blocks = said.content.iter();
        let blocks = blocks.filter_map(|block| said_block(block, said.is_prompt));
        let blocks = blocks.collect();
        let time = Created { created: said.at };
        self.message(&id, OfRole::User { time, model }, blocks)?;
        self.prompt = id;
        Ok(())
    }

    fn answered(&mut self, answered: &Answered<'_>) -> io::Result<()> {
        let (answer, id) = (&answered.answer, self.id("msg"));
        let mut blocks = vec![Block::StepStart];
        for block in &answer.content {
            let block = match block {
                Content::ToolCall(call) => Some(self.called(&id, call, answered)),
                block => shown(block, answered.at),
            };
            blocks.extend(block);
        }
        let folder = self.session.folder();
        let completed = answered.results.last().map_or(answered.at, |last| last.at);
        let parent = self.prompt.clone();
        let of = OfRole::Assistant {
            parent_id: &parent,
            model: Model::of(answered),
            mode: AGENT,
            path: Place {
                cwd: folder,
                root: folder,
            },
            cost: 0,
            tokens: answer.usage.as_ref().map(Tokens::of).unwrap_or_default(),
            time: Completed {
                created: answered.at,
                completed,
            },
            finish: finish(answered),
            error: failure(answered),
        };
        self.message(&id, of, blocks)
    }

    /// Returns a call with its result.
    fn called<'a>(
        &mut self,
        message_id: &'a str,
        call: &'a ToolCall,
        answered: &'a Answered<'_>,
    ) -> Block<'a>
    where
        's: 'a,
    {
        let mut results = answered.results.iter();
        let returned = results.find(|returned| returned.result.tool_call_id == call.id);
        let time = Span {
            start: answered.at,
            end: returned.map_or(answered.at, |returned| returned.at),
        };
        let input = arguments_object(call);
        let is_error = returned.is_none_or(|returned| returned.result.is_error);
        let text = returned.map_or_else(|| NO_RESULT.to_owned(), Returned::text);
        let state = match is_error {
            true => State::Error {
                input,
                error: text,
                time,
            },
            false => State::Completed {
                input,
                output: text,
                title: "",
                metadata: Empty {},
                time,
                attachments: returned
                    .into_iter()
                    .flat_map(Returned::images)
                    .filter_map(file)
                    .map(|block| self.part(message_id, block))
                    .collect(),
            },
        };
        Block::Tool {
            call_id: &call.id,
            tool: &call.name,
            state,
        }
    }
}

fn said_block(block: &Content, is_prompt: bool) -> Option<Block<'_>> {
    match block {
        Content::Text(text) => Some(Block::Text {
            text: &text.text,
            synthetic: !is_prompt || is_injected(text),
        }),
        Content::Image(image) => file(image),
        _ => None,
    }
}

fn file(image: &Image) -> Option<Block<'_>> {
    Some(Block::File {
        mime: &image.mime_type,
        url: data_url(image)?,
    })
}

/// Returns a block of an answer that is no call.
fn shown(block: &Content, at: i64) -> Option<Block<'_>> {
    let time = Span { start: at, end: at };
    Some(match block {
        Content::Text(text) => Block::Text {
            text: &text.text,
            synthetic: false,
        },
        Content::Thinking(thinking) => Block::Reasoning {
            text: &thinking.thinking,
            time,
            metadata: thinking.signature.as_deref().map(|signature| Signed {
                anthropic: Signature::Signature(signature),
            }),
        },
        Content::Sealed(sealed) => {
            #[derive(Deserialize)]
            struct Redacted {
                data: String,
            }
            let redacted: Redacted = sealed.item.read().ok()?;
            Block::Reasoning {
                text: "",
                time,
                metadata: Some(Signed {
                    anthropic: Signature::RedactedData(redacted.data),
                }),
            }
        }
        Content::Image(_) | Content::ToolCall(_) | Content::Other(_) => return None,
    })
}

fn finish<'a>(answered: &'a Answered<'_>) -> Option<&'a str> {
    match (answered.failure(), answered.results.is_empty()) {
        (Some(_), _) => None,
        (None, false) => Some("tool-calls"),
        (None, true) => match answered.answer.stop_reason.as_deref() {
            Some("length") => Some("length"),
            _ => Some("stop"),
        },
    }
}

fn failure<'a>(answered: &'a Answered<'_>) -> Option<Failure<'a>> {
    let name = match answered.failure()? {
        "aborted" => "MessageAbortedError",
        _ => "UnknownError",
    };
    let message = answered.answer.error_message.as_deref().unwrap_or(name);
    let data = FailureText { message };
    Some(Failure { name, data })
}
