//! Codex's rollout: items as the model sees them, in order, and events that show them to a person.

use std::io::{self, Write};

use loopstore::model::{Content, Int, Json, Time, Usage};
use loopstore::provider;
use loopstore_provider::CallItem;
use loopstore_provider::call_item;
use loopstore_provider::data_url;
use loopstore_provider::kept_item;
use loopstore_transcripts::internal::says_failed;
use serde::Serialize;

use super::conversation::{Answered, Conversation, Returned, Said, Step};
use super::{Form, NativeSession, line};

/// The newest version whose records were seen.
const VERSION: &str = "0.142.0";

/// What Codex puts before the output of a command that failed: a result has no other mark.
const FAILED: &str = "Exit code: 1\nOutput:\n";

/// Nothing more comes of what was asked.
const ENDED: Event<'static> = Event::TaskComplete {
    turn_id: "",
    last_agent_message: None,
};

pub(super) struct Codex;

impl Form for Codex {
    fn name_length(&self) -> usize {
        64
    }

    fn call_id(&self) -> Option<usize> {
        Some(64)
    }

    fn takes_thinking(&self, block: &Content) -> bool {
        match block {
            Content::Sealed(sealed) => {
                sealed.provider == "openai" && sealed.kind().as_deref() == Some("reasoning")
            }
            _ => false,
        }
    }

    /// Searches that the provider carries out have no result to go with them.
    fn item_of(&self, block: &Content) -> Option<Json> {
        let item = kept_item(block, provider::Form::OpenAiResponses)?;
        (item.type_name()? == "web_search_call").then_some(item)
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
        let mut rollout = Rollout {
            out,
            tokens: [0; 5],
            is_open: false,
        };
        rollout.meta(session, begun)?;
        for step in steps {
            match step {
                Step::Said(said) => rollout.said(said)?,
                Step::Answered(answered) => rollout.answered(answered)?,
            }
        }
        match steps.last() {
            // What an item in the user's name is shows in the record behind it.
            Some(Step::Said(last)) if !last.is_prompt => rollout.event(last.at, ENDED),
            _ => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct Record<P> {
    timestamp: Time,
    r#type: &'static str,
    payload: P,
}

/// It names no provider: Codex refuses to go on with a session of another than it is set to.
#[derive(Serialize)]
struct Meta<'a> {
    id: &'a str,
    session_id: &'a str,
    timestamp: Time,
    cwd: &'a str,
    originator: &'static str,
    cli_version: &'static str,
    source: &'static str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Part<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a Json>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
    CustomToolCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
    #[serde(untagged)]
    Call(CallItem),
    /// What the provider made, as it came.
    #[serde(untagged)]
    Sealed(&'a Json),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
    InputImage { image_url: String },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(String),
    List(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event<'a> {
    UserMessage {
        message: String,
        images: [&'static str; 0],
        local_images: [&'static str; 0],
        text_elements: [&'static str; 0],
    },
    AgentMessage {
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a Json>,
    },
    TokenCount {
        info: TokenInfo,
        rate_limits: Option<&'static str>,
    },
    TaskComplete {
        turn_id: &'static str,
        last_agent_message: Option<&'static str>,
    },
}

#[derive(Serialize)]
struct TokenInfo {
    total_token_usage: Tokens,
    last_token_usage: Tokens,
    model_context_window: Option<u64>,
}

#[derive(Serialize)]
struct Tokens {
    input_tokens: i64,
    cached_input_tokens: i64,
    output_tokens: i64,
    reasoning_output_tokens: i64,
    total_tokens: i64,
}

impl From<[i64; 5]> for Tokens {
    fn from([input, cached, output, reasoning, total]: [i64; 5]) -> Self {
        Self {
            input_tokens: input,
            cached_input_tokens: cached,
            output_tokens: output,
            reasoning_output_tokens: reasoning,
            total_tokens: total,
        }
    }
}

struct Rollout<'a> {
    out: &'a mut dyn Write,
    /// The tokens so far, as [`Tokens`] has them.
    tokens: [i64; 5],
    /// Whether an item that follows would be a part of the last answer.
    is_open: bool,
}

impl Rollout<'_> {
    fn meta(&mut self, session: &NativeSession, begun: i64) -> io::Result<()> {
        let meta = Meta {
            id: session.id(),
            session_id: session.id(),
            timestamp: time(begun),
            cwd: session.folder(),
            originator: "loopstore",
            cli_version: VERSION,
            source: "cli",
        };
        self.record("session_meta", begun, meta)
    }

    fn record(&mut self, kind: &'static str, at: i64, payload: impl Serialize) -> io::Result<()> {
        let record = Record {
            timestamp: time(at),
            r#type: kind,
            payload,
        };
        line(self.out, &record)
    }

    fn item(&mut self, at: i64, item: Item<'_>) -> io::Result<()> {
        self.record("response_item", at, item)
    }

    fn event(&mut self, at: i64, event: Event<'_>) -> io::Result<()> {
        self.record("event_msg", at, event)
    }

    fn said(&mut self, said: &Said) -> io::Result<()> {
        self.is_open = false;
        let item = Item::Message {
            role: "user",
            content: parts(&said.content),
            phase: None,
        };
        self.item(said.at, item)?;
        if !said.is_prompt {
            return Ok(());
        }
        let texts = said.content.iter().filter_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        let shown = Event::UserMessage {
            message: texts.collect::<Vec<_>>().join("\n"),
            images: [],
            local_images: [],
            text_elements: [],
        };
        self.event(said.at, shown)
    }

    fn answered(&mut self, answered: &Answered<'_>) -> io::Result<()> {
        let at = answered.at;
        if self.is_open {
            self.event(at, ENDED)?;
        }
        self.is_open = answered.results.is_empty();
        let mut custom = Vec::new();
        for block in &answered.answer.content {
            match block {
                Content::Text(text) => {
                    let (text, phase) = (text.text.as_str(), text.extra.get("phase"));
                    let shown = Event::AgentMessage {
                        message: text,
                        phase,
                    };
                    self.event(at, shown)?;
                    let item = Item::Message {
                        role: "assistant",
                        content: vec![Part::OutputText { text }],
                        phase,
                    };
                    self.item(at, item)?;
                }
                Content::ToolCall(call) => {
                    let item = call_item(call);
                    if item.is_custom() {
                        custom.push(call.id.as_str());
                    }
                    self.item(at, Item::Call(item))?;
                }
                Content::Sealed(sealed) => self.item(at, Item::Sealed(&sealed.item))?,
                Content::Other(_) => {
                    if let Some(item) = Codex.item_of(block) {
                        self.item(at, Item::Sealed(&item))?;
                    }
                }
                Content::Image(_) | Content::Thinking(_) => {}
            }
        }
        for returned in &answered.results {
            let call_id = returned.result.tool_call_id.as_str();
            let output = output(returned);
            let item = match custom.contains(&call_id) {
                true => Item::CustomToolCallOutput { call_id, output },
                false => Item::FunctionCallOutput { call_id, output },
            };
            self.item(returned.at, item)?;
        }
        match &answered.answer.usage {
            Some(usage) => self.tokens(at, usage),
            None => Ok(()),
        }
    }

    fn tokens(&mut self, at: i64, usage: &Usage) -> io::Result<()> {
        let (input, output) = (usage.input.get(), usage.output.get());
        let count = |count: &Option<Int>| count.as_ref().map_or(0, Int::get);
        let last = [
            input,
            count(&usage.cache_read),
            output,
            count(&usage.reasoning),
            input.saturating_add(output),
        ];
        for (total, count) in self.tokens.iter_mut().zip(last) {
            *total = total.saturating_add(count);
        }
        let info = TokenInfo {
            total_token_usage: self.tokens.into(),
            last_token_usage: last.into(),
            model_context_window: None,
        };
        // Counts that did not move are those of the call before.
        self.is_open &= last == [0; 5];
        let rate_limits = None;
        self.event(at, Event::TokenCount { info, rate_limits })
    }
}

fn time(at: i64) -> Time {
    Time::from_millis(at).unwrap_or_else(Time::now)
}

fn parts(content: &[Content]) -> Vec<Part<'_>> {
    content.iter().filter_map(part).collect()
}

fn part(block: &Content) -> Option<Part<'_>> {
    match block {
        Content::Text(text) => Some(Part::InputText { text: &text.text }),
        Content::Image(image) => data_url(image).map(|image_url| Part::InputImage { image_url }),
        _ => None,
    }
}

/// Returns what a tool gave back: text if that is all there is.
fn output(returned: &Returned) -> Output<'_> {
    let result = &returned.result;
    let text = returned.text();
    let mark = match result.is_error && !says_failed(&text) {
        true => FAILED,
        false => "",
    };
    if returned.images().next().is_none() {
        return Output::Text(format!("{mark}{text}"));
    }
    let mut parts = parts(&result.content);
    if !mark.is_empty() {
        parts.insert(0, Part::InputText { text: mark });
    }
    Output::List(parts)
}
