//! The export of OpenCode, which its `import` reads: messages with their parts, a call and its result in one.

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
    CompletedTime, CreatedTime, Empty, MessageError, MessageErrorText, MessageInfo, MessagePath,
    Model, OfRole, OpenCodeMessage, OpenCodePart, OpenCodeUsage, PartBlock, SessionInfo, Signature,
    SignedMetadata, TimeSpan, ToolState, UpdatedTime,
};
use super::conversation::{
    AnswerStep, ConversationStep, InputStep, NativeConversation, ToolReturn,
};
use super::{NativeForm, NativeSession, is_of_anthropic};

/// The newest version whose exports were seen.
const VERSION: &str = "1.14.30";

/// The agent that answers.
const AGENT: &str = "build";

/// Ids hold a time in steps of a 4,096th of a millisecond, of which the lowest 48 bits count.
const STEPS: u64 = 0x1000;
const BITS: u64 = (1 << 48) - 1;

/// The distance of the first id from the present: later ids of OpenCode are greater.
const BEFORE: u64 = 1 << 24;

pub(super) struct OpenCodeForm;

/// Returns the id of a session: the newest one is the least.
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

impl NativeForm for OpenCodeForm {
    /// OpenCode itself leaves out the signed thinking of another model.
    fn takes_thinking(&self, block: &Content) -> bool {
        matches!(block, Content::Thinking(_)) || is_of_anthropic(block)
    }

    fn shows_images_of_errors(&self) -> bool {
        false
    }

    fn write(
        &self,
        session: &NativeSession,
        conversation: &NativeConversation<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let steps = &conversation.steps;
        let begun = steps
            .first()
            .map_or(session.now.timestamp_millis(), ConversationStep::at);
        let mut document = DocumentWriter {
            session,
            next: clock(session.now).wrapping_sub(BEFORE),
            prompt: String::new(),
            is_first: true,
            out,
        };
        document.begin(begun)?;
        for (at, step) in steps.iter().enumerate() {
            match step {
                ConversationStep::Input(input) => {
                    document.write_input(input, model_of(&steps[at..]))?;
                }
                ConversationStep::Answer(answered) => document.write_answer(answered)?,
            }
        }
        document.out.write_all(b"]}\n")
    }
}

/// Returns the model of the first answer.
fn model_of<'a>(steps: &'a [ConversationStep<'_>]) -> Model<'a> {
    let mut answers = steps.iter().filter_map(|step| match step {
        ConversationStep::Answer(answered) => Some(Model::of(answered)),
        ConversationStep::Input(_) => None,
    });
    answers.next().unwrap_or(Model::UNKNOWN)
}

struct DocumentWriter<'a> {
    session: &'a NativeSession,
    next: u64,
    /// The message that is answered.
    prompt: String,
    is_first: bool,
    out: &'a mut dyn Write,
}

impl<'s> DocumentWriter<'s> {
    fn begin(&mut self, created: i64) -> io::Result<()> {
        let session = self.session;
        let info = SessionInfo {
            id: session.id(),
            slug: session.id(),
            project_id: "global",
            directory: session.folder(),
            title: session.title.as_deref().unwrap_or("Resumed session"),
            version: VERSION,
            time: UpdatedTime {
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

    fn message(&mut self, id: &str, of: OfRole<'_>, blocks: Vec<PartBlock<'_>>) -> io::Result<()> {
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
        serde_json::to_writer(&mut *self.out, &OpenCodeMessage { info, parts })?;
        Ok(())
    }

    fn part<'a>(&mut self, message_id: &'a str, block: PartBlock<'a>) -> OpenCodePart<'a>
    where
        's: 'a,
    {
        let session = self.session;
        OpenCodePart {
            id: self.id("prt"),
            session_id: session.id(),
            message_id,
            block,
        }
    }

    fn write_input(&mut self, input: &InputStep, model: Model<'_>) -> io::Result<()> {
        let id = self.id("msg");
        let blocks = input.content.iter();
        let blocks = blocks.filter_map(|block| input_block(block, input.is_prompt));
        let blocks = blocks.collect();
        let time = CreatedTime { created: input.at };
        self.message(&id, OfRole::User { time, model }, blocks)?;
        self.prompt = id;
        Ok(())
    }

    fn write_answer(&mut self, answered: &AnswerStep<'_>) -> io::Result<()> {
        let (answer, id) = (&answered.answer, self.id("msg"));
        let mut blocks = vec![PartBlock::StepStart];
        for block in &answer.content {
            let block = match block {
                Content::ToolCall(call) => Some(self.call_block(&id, call, answered)),
                block => answer_block(block, answered.at),
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
            path: MessagePath {
                cwd: folder,
                root: folder,
            },
            cost: 0,
            tokens: answer
                .usage
                .as_ref()
                .map(OpenCodeUsage::of)
                .unwrap_or_default(),
            time: CompletedTime {
                created: answered.at,
                completed,
            },
            finish: finish(answered),
            error: failure(answered),
        };
        self.message(&id, of, blocks)
    }

    /// Returns a call with its result.
    fn call_block<'a>(
        &mut self,
        message_id: &'a str,
        call: &'a ToolCall,
        answered: &'a AnswerStep<'_>,
    ) -> PartBlock<'a>
    where
        's: 'a,
    {
        let mut results = answered.results.iter();
        let returned = results.find(|returned| returned.result.tool_call_id == call.id);
        let time = TimeSpan {
            start: answered.at,
            end: returned.map_or(answered.at, |returned| returned.at),
        };
        let input = arguments_object(call);
        let is_error = returned.is_none_or(|returned| returned.result.is_error);
        let text = returned.map_or_else(|| NO_RESULT.to_owned(), ToolReturn::text);
        let state = match is_error {
            true => ToolState::Error {
                input,
                error: text,
                time,
            },
            false => ToolState::Completed {
                input,
                output: text,
                title: "",
                metadata: Empty {},
                time,
                attachments: returned
                    .into_iter()
                    .flat_map(ToolReturn::images)
                    .filter_map(file)
                    .map(|block| self.part(message_id, block))
                    .collect(),
            },
        };
        PartBlock::Tool {
            call_id: &call.id,
            tool: &call.name,
            state,
        }
    }
}

fn input_block(block: &Content, is_prompt: bool) -> Option<PartBlock<'_>> {
    match block {
        Content::Text(text) => Some(PartBlock::Text {
            text: &text.text,
            synthetic: !is_prompt || is_injected(text),
        }),
        Content::Image(image) => file(image),
        _ => None,
    }
}

fn file(image: &Image) -> Option<PartBlock<'_>> {
    Some(PartBlock::File {
        mime: &image.mime_type,
        url: data_url(image)?,
    })
}

/// Returns a block of an answer that is not a call.
fn answer_block(block: &Content, at: i64) -> Option<PartBlock<'_>> {
    let time = TimeSpan { start: at, end: at };
    Some(match block {
        Content::Text(text) => PartBlock::Text {
            text: &text.text,
            synthetic: false,
        },
        Content::Thinking(thinking) => PartBlock::Reasoning {
            text: &thinking.thinking,
            time,
            metadata: thinking
                .signature
                .as_deref()
                .map(|signature| SignedMetadata {
                    anthropic: Signature::Signature(signature),
                }),
        },
        Content::Sealed(sealed) => {
            #[derive(Deserialize)]
            struct Redacted {
                data: String,
            }
            let redacted: Redacted = sealed.item.read().ok()?;
            PartBlock::Reasoning {
                text: "",
                time,
                metadata: Some(SignedMetadata {
                    anthropic: Signature::RedactedData(redacted.data),
                }),
            }
        }
        Content::Image(_) | Content::ToolCall(_) | Content::Other(_) => return None,
    })
}

fn finish<'a>(answered: &'a AnswerStep<'_>) -> Option<&'a str> {
    match (answered.failure(), answered.results.is_empty()) {
        (Some(_), _) => None,
        (None, false) => Some("tool-calls"),
        (None, true) => match answered.answer.stop_reason.as_deref() {
            Some("length") => Some("length"),
            _ => Some("stop"),
        },
    }
}

fn failure<'a>(answered: &'a AnswerStep<'_>) -> Option<MessageError<'a>> {
    let name = match answered.failure()? {
        "aborted" => "MessageAbortedError",
        _ => "UnknownError",
    };
    let message = answered.answer.error_message.as_deref().unwrap_or(name);
    let data = MessageErrorText { message };
    Some(MessageError { name, data })
}
