//! The rollout of Codex: items as the model sees them, in order, and events that show them to a person.

use std::io::{self, Write};

use loopstore::model::{Content, Int, Json, Time, Usage};
use loopstore::provider;
use loopstore_provider::CallItem;
use loopstore_provider::call_item;
use loopstore_provider::data_url;
use loopstore_provider::kept_item;
use loopstore_transcripts::internal::reports_failure;
use serde::Serialize;

use super::conversation::{
    AnswerStep, ConversationStep, InputStep, NativeConversation, ToolReturn,
};
use super::{NativeForm, NativeSession, line};

/// The newest version whose records were seen.
const VERSION: &str = "0.142.0";

/// The text of Codex before the output of a failed command: a result has no other mark.
const FAILED: &str = "Exit code: 1\nOutput:\n";

/// The end of a task.
const ENDED: RolloutEvent<'static> = RolloutEvent::TaskComplete {
    turn_id: "",
    last_agent_message: None,
};

pub(super) struct CodexForm;

impl NativeForm for CodexForm {
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

    /// Searches that the provider carries out have no result.
    fn item_of(&self, block: &Content) -> Option<Json> {
        let item = kept_item(block, provider::Form::OpenAiResponses)?;
        (item.type_name()? == "web_search_call").then_some(item)
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
        let mut rollout = Rollout {
            out,
            tokens: [0; 5],
            is_open: false,
        };
        rollout.meta(session, begun)?;
        for step in steps {
            match step {
                ConversationStep::Input(input) => rollout.write_input(input)?,
                ConversationStep::Answer(answered) => rollout.write_answer(answered)?,
            }
        }
        match steps.last() {
            // The record after an item of the user shows its kind.
            Some(ConversationStep::Input(last)) if !last.is_prompt => rollout.event(last.at, ENDED),
            _ => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct RolloutRecord<P> {
    timestamp: Time,
    r#type: &'static str,
    payload: P,
}

/// The header of a rollout. It has no provider: Codex does not resume a session of another provider than its own.
#[derive(Serialize)]
struct RolloutMeta<'a> {
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
enum RolloutItem<'a> {
    Message {
        role: &'static str,
        content: Vec<ItemPart<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'a Json>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: ItemOutput<'a>,
    },
    CustomToolCallOutput {
        call_id: &'a str,
        output: ItemOutput<'a>,
    },
    #[serde(untagged)]
    Call(CallItem),
    /// An opaque item of the provider, unchanged.
    #[serde(untagged)]
    Opaque(&'a Json),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ItemPart<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
    InputImage { image_url: String },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ItemOutput<'a> {
    Text(String),
    List(Vec<ItemPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum RolloutEvent<'a> {
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
    total_token_usage: RolloutUsage,
    last_token_usage: RolloutUsage,
    model_context_window: Option<u64>,
}

#[derive(Serialize)]
struct RolloutUsage {
    input_tokens: i64,
    cached_input_tokens: i64,
    output_tokens: i64,
    reasoning_output_tokens: i64,
    total_tokens: i64,
}

impl From<[i64; 5]> for RolloutUsage {
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
    /// The tokens so far, as [`RolloutUsage`] has them.
    tokens: [i64; 5],
    /// True if the next item would be a part of the last answer.
    is_open: bool,
}

impl Rollout<'_> {
    fn meta(&mut self, session: &NativeSession, begun: i64) -> io::Result<()> {
        let meta = RolloutMeta {
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
        let record = RolloutRecord {
            timestamp: time(at),
            r#type: kind,
            payload,
        };
        line(self.out, &record)
    }

    fn item(&mut self, at: i64, item: RolloutItem<'_>) -> io::Result<()> {
        self.record("response_item", at, item)
    }

    fn event(&mut self, at: i64, event: RolloutEvent<'_>) -> io::Result<()> {
        self.record("event_msg", at, event)
    }

    fn write_input(&mut self, input: &InputStep) -> io::Result<()> {
        self.is_open = false;
        let item = RolloutItem::Message {
            role: "user",
            content: parts(&input.content),
            phase: None,
        };
        self.item(input.at, item)?;
        if !input.is_prompt {
            return Ok(());
        }
        let texts = input.content.iter().filter_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        let shown = RolloutEvent::UserMessage {
            message: texts.collect::<Vec<_>>().join("\n"),
            images: [],
            local_images: [],
            text_elements: [],
        };
        self.event(input.at, shown)
    }

    fn write_answer(&mut self, answered: &AnswerStep<'_>) -> io::Result<()> {
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
                    let shown = RolloutEvent::AgentMessage {
                        message: text,
                        phase,
                    };
                    self.event(at, shown)?;
                    let item = RolloutItem::Message {
                        role: "assistant",
                        content: vec![ItemPart::OutputText { text }],
                        phase,
                    };
                    self.item(at, item)?;
                }
                Content::ToolCall(call) => {
                    let item = call_item(call);
                    if item.is_custom() {
                        custom.push(call.id.as_str());
                    }
                    self.item(at, RolloutItem::Call(item))?;
                }
                Content::Sealed(sealed) => self.item(at, RolloutItem::Opaque(&sealed.item))?,
                Content::Other(_) => {
                    if let Some(item) = CodexForm.item_of(block) {
                        self.item(at, RolloutItem::Opaque(&item))?;
                    }
                }
                Content::Image(_) | Content::Thinking(_) => {}
            }
        }
        for returned in &answered.results {
            let call_id = returned.result.tool_call_id.as_str();
            let output = output(returned);
            let item = match custom.contains(&call_id) {
                true => RolloutItem::CustomToolCallOutput { call_id, output },
                false => RolloutItem::FunctionCallOutput { call_id, output },
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
        // Unchanged counts are those of the call before.
        self.is_open &= last == [0; 5];
        let rate_limits = None;
        self.event(at, RolloutEvent::TokenCount { info, rate_limits })
    }
}

fn time(at: i64) -> Time {
    Time::from_millis(at).unwrap_or_else(Time::now)
}

fn parts(content: &[Content]) -> Vec<ItemPart<'_>> {
    content.iter().filter_map(part).collect()
}

fn part(block: &Content) -> Option<ItemPart<'_>> {
    match block {
        Content::Text(text) => Some(ItemPart::InputText { text: &text.text }),
        Content::Image(image) => {
            data_url(image).map(|image_url| ItemPart::InputImage { image_url })
        }
        _ => None,
    }
}

/// Returns the output of a tool: plain text if it has no images.
fn output(returned: &ToolReturn) -> ItemOutput<'_> {
    let result = &returned.result;
    let text = returned.text();
    let mark = match result.is_error && !reports_failure(&text) {
        true => FAILED,
        false => "",
    };
    if returned.images().next().is_none() {
        return ItemOutput::Text(format!("{mark}{text}"));
    }
    let mut parts = parts(&result.content);
    if !mark.is_empty() {
        parts.insert(0, ItemPart::InputText { text: mark });
    }
    ItemOutput::List(parts)
}
