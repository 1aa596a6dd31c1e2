//! A conversation in the form that every agent needs: inputs, and answers with the results of their calls.

use std::collections::HashMap;

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Image, Json, Message, Role, ToolResultMessage,
    UserMessage,
};
use loopstore::provider::{Mending, MendingKind};
use loopstore_provider::OPENING;
use loopstore_provider::images_of;
use loopstore_provider::pairs::IndexedMessage;
use loopstore_provider::pairs::Naming;
use loopstore_provider::pairs::is_word;
use loopstore_provider::pairs::pair;

use super::NativeForm;

/// The steps of a conversation.
pub(super) struct NativeConversation<'a> {
    pub(super) steps: Vec<ConversationStep<'a>>,
    pub(super) mended: Vec<Mending>,
}

/// A step of a transcript.
pub(super) enum ConversationStep<'a> {
    Input(InputStep),
    Answer(Box<AnswerStep<'a>>),
}

impl ConversationStep<'_> {
    /// Returns milliseconds since the epoch.
    pub(super) fn at(&self) -> i64 {
        match self {
            Self::Input(input) => input.at,
            Self::Answer(answered) => answered.at,
        }
    }
}

/// A message with the role of the user.
pub(super) struct InputStep {
    pub(super) content: Vec<Content>,
    /// Milliseconds since the epoch.
    pub(super) at: i64,
    /// True for a prompt of a person or a parent agent.
    pub(super) is_prompt: bool,
}

/// One call of the model.
pub(super) struct AnswerStep<'a> {
    pub(super) answer: AssistantMessage,
    /// Milliseconds since the epoch.
    pub(super) at: i64,
    /// The results of its calls, in the order of the calls.
    pub(super) results: Vec<ToolReturn>,
    /// The fields that the original transcript had in addition.
    pub(super) source: Option<&'a Json>,
}

/// The result of a tool.
pub(super) struct ToolReturn {
    pub(super) result: ToolResultMessage,
    /// Milliseconds since the epoch.
    pub(super) at: i64,
}

impl AnswerStep<'_> {
    /// Returns the reason of a failed answer without results: `aborted` or `error`. Agents leave such an answer out
    /// of their requests, with its calls.
    pub(super) fn failure(&self) -> Option<&str> {
        let reason = self.answer.stop_reason.as_deref();
        let is_failure = |reason: &&str| matches!(*reason, "error" | "aborted");
        reason
            .filter(is_failure)
            .filter(|_| self.results.is_empty())
    }
}

impl ToolReturn {
    /// Returns all texts as one.
    pub(super) fn text(&self) -> String {
        let texts = self.result.content.iter().filter_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    pub(super) fn images(&self) -> impl Iterator<Item = &Image> {
        self.result.content.iter().filter_map(|block| match block {
            Content::Image(image) => Some(image),
            _ => None,
        })
    }
}

impl<'a> NativeConversation<'a> {
    /// Prepares messages for a format; no time in it is after `now`.
    pub(super) fn of(messages: &'a [AgentMessage], form: &dyn NativeForm, now: i64) -> Self {
        let naming = Naming {
            is_plain: match form.call_id() {
                Some(_) => |_| true,
                None => is_word,
            },
            id: form.call_id().unwrap_or(usize::MAX),
            name: form.name_length(),
        };
        let mut mended = Vec::new();
        // The agent continues with a prompt: no call of the transcript can get its result any more.
        let paired = pair(messages, false, &naming, &mut mended);
        let times = messages.iter().filter_map(AgentMessage::message);
        let first = times.filter_map(Message::timestamp).find(|at| *at > 0);
        let mut steps = ConversationBuilder {
            form,
            now,
            last: first.unwrap_or(now).min(now),
            messages,
            mended,
            names: HashMap::new(),
            images: Vec::new(),
            goes_on: false,
            out: Vec::new(),
        };
        for placed in paired {
            steps.add(placed);
        }
        steps.flush_images();
        let mut mended = steps.mended;
        mended.sort_by_key(|mending| mending.message);
        Self {
            steps: steps.out,
            mended,
        }
    }

    /// Returns the number of messages.
    pub(super) fn messages(&self) -> u64 {
        let count = |step: &ConversationStep<'_>| match step {
            ConversationStep::Input(_) => 1,
            ConversationStep::Answer(answered) => 1 + answered.results.len() as u64,
        };
        self.steps.iter().map(count).sum()
    }
}

/// A builder of the steps.
struct ConversationBuilder<'a, 'f> {
    form: &'f dyn NativeForm,
    now: i64,
    /// The time of the newest step.
    last: i64,
    messages: &'a [AgentMessage],
    mended: Vec<Mending>,
    /// The names of tools, by the ids of their calls.
    names: HashMap<String, String>,
    /// Images of failed calls, which are shown after the results.
    images: Vec<Content>,
    /// True if the last answer continues in the next message.
    goes_on: bool,
    out: Vec<ConversationStep<'a>>,
}

impl<'a> ConversationBuilder<'a, '_> {
    fn add(&mut self, placed: IndexedMessage) {
        // Without turns it is unknown if two answers are pieces of one.
        let at = placed.at;
        let goes_on = placed.continues_answer && self.messages[at].turn_index().is_some();
        let time = self.time(placed.message.timestamp());
        let is_prompt = placed.message.is_prompt();
        match placed.message {
            Message::ToolResult(result) => self.add_result(at, time, result),
            Message::User(prompt) => {
                self.flush_images();
                self.add_input(at, time, prompt, is_prompt);
            }
            Message::Assistant(answer) => {
                self.flush_images();
                let is_written = self.add_answer(at, time, answer);
                // An empty piece neither ends nor begins an answer.
                self.goes_on = goes_on && (is_written || self.goes_on);
            }
        }
    }

    /// Returns the time of a step: agents put messages in the order of their times.
    fn time(&mut self, recorded: Option<i64>) -> i64 {
        self.last = recorded.unwrap_or(self.last).clamp(self.last, self.now);
        self.last
    }

    fn add_input(&mut self, at: usize, time: i64, mut input: UserMessage, is_prompt: bool) {
        self.retain(at, Role::User, &mut input.content);
        if input.content.is_empty() {
            return self.mend(MendingKind::EmptyDropped, at);
        }
        self.out.push(ConversationStep::Input(InputStep {
            content: input.content,
            at: time,
            is_prompt,
        }));
    }

    /// Adds an answer; returns false if nothing is left of it.
    fn add_answer(&mut self, at: usize, time: i64, mut answer: AssistantMessage) -> bool {
        self.retain(at, Role::Assistant, &mut answer.content);
        if answer.content.is_empty() {
            self.mend(MendingKind::EmptyDropped, at);
            return false;
        }
        for block in &answer.content {
            if let Content::ToolCall(call) = block {
                self.names.insert(call.id.clone(), call.name.clone());
            }
        }
        if let (true, Some(ConversationStep::Answer(last))) = (self.goes_on, self.out.last_mut()) {
            last.answer.content.append(&mut answer.content);
            last.answer.stop_reason = answer.stop_reason.or(last.answer.stop_reason.take());
            last.answer.usage = answer.usage.or(last.answer.usage.take());
            self.mend(MendingKind::Merged, at);
            return true;
        }
        if self.out.is_empty() {
            self.add_opening(at, time);
        }
        let source = match &self.messages[at] {
            AgentMessage::Llm(message) => message.extra.get("source"),
            AgentMessage::Extension(_) => None,
        };
        self.out.push(ConversationStep::Answer(Box::new(AnswerStep {
            answer,
            at: time,
            results: Vec::new(),
            source,
        })));
        true
    }

    /// Adds an opening: no provider accepts a conversation that begins with an answer.
    fn add_opening(&mut self, at: usize, time: i64) {
        self.mend(MendingKind::UserAdded, at);
        self.out.push(ConversationStep::Input(InputStep {
            content: vec![Content::text(OPENING)],
            at: time,
            is_prompt: false,
        }));
    }

    fn add_result(&mut self, at: usize, time: i64, mut result: ToolResultMessage) {
        self.retain(at, Role::ToolResult, &mut result.content);
        if let Some(name) = self.names.get(&result.tool_call_id) {
            result.tool_name.clone_from(name);
        }
        if result.is_error && !self.form.shows_images_of_errors() {
            self.part_images(at, &mut result);
        }
        // A result follows its answer.
        if let Some(ConversationStep::Answer(last)) = self.out.last_mut() {
            last.results.push(ToolReturn { result, at: time });
        }
    }

    fn part_images(&mut self, at: usize, result: &mut ToolResultMessage) {
        let is_image = |block: &Content| matches!(block, Content::Image(_));
        let content = std::mem::take(&mut result.content);
        let (mut images, rest): (Vec<_>, Vec<_>) = content.into_iter().partition(is_image);
        result.content = rest;
        if !images.is_empty() {
            let id = &result.tool_call_id;
            self.images.push(Content::text(images_of(id)));
            self.images.append(&mut images);
            let moved = Mending::of_call(MendingKind::ImageMoved, at, id);
            self.mended.push(moved);
        }
    }

    fn flush_images(&mut self) {
        let content = std::mem::take(&mut self.images);
        if !content.is_empty() {
            self.goes_on = false;
            self.out.push(ConversationStep::Input(InputStep {
                content,
                at: self.last,
                is_prompt: false,
            }));
        }
    }

    /// Drops the blocks that the format does not have, and texts of white space, which providers reject.
    fn retain(&mut self, at: usize, role: Role, content: &mut Vec<Content>) {
        let (form, mended) = (self.form, &mut self.mended);
        content.retain(|block| {
            if matches!(block, Content::Text(text) if text.text.trim().is_empty()) {
                return false;
            }
            let is_taken = form.takes(block, role);
            if !is_taken {
                let mut mending = Mending::left_out(block, at);
                if block.as_compaction().is_some() {
                    mending.kind = MendingKind::CompactionDropped;
                }
                mended.push(mending);
            }
            is_taken
        });
    }

    fn mend(&mut self, kind: MendingKind, at: usize) {
        self.mended.push(Mending::of(kind, at));
    }
}
