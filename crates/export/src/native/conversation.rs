//! A conversation as every agent wants it: what is said, and answers with the results of their calls.

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

use super::Form;

/// The steps of a conversation.
pub(super) struct Conversation<'a> {
    pub(super) steps: Vec<Step<'a>>,
    pub(super) mended: Vec<Mending>,
}

/// What an agent's transcript is made of.
pub(super) enum Step<'a> {
    Said(Said),
    Answered(Box<Answered<'a>>),
}

impl Step<'_> {
    /// Returns milliseconds since the epoch.
    pub(super) fn at(&self) -> i64 {
        match self {
            Self::Said(said) => said.at,
            Self::Answered(answered) => answered.at,
        }
    }
}

/// Something in the user's name.
pub(super) struct Said {
    pub(super) content: Vec<Content>,
    /// Milliseconds since the epoch.
    pub(super) at: i64,
    /// Whether a person, or a parent agent, asks for something.
    pub(super) is_prompt: bool,
}

/// One call of the model.
pub(super) struct Answered<'a> {
    pub(super) answer: AssistantMessage,
    /// Milliseconds since the epoch.
    pub(super) at: i64,
    /// The results of its calls, in the order of the calls.
    pub(super) results: Vec<Returned>,
    /// What the transcript that it came from said of it besides.
    pub(super) source: Option<&'a Json>,
}

/// What a tool gave back.
pub(super) struct Returned {
    pub(super) result: ToolResultMessage,
    /// Milliseconds since the epoch.
    pub(super) at: i64,
}

impl Answered<'_> {
    /// Why the answer failed, if nothing came of it: `aborted` or `error`. Agents leave such an answer out
    /// of what they send, and its calls with it.
    pub(super) fn failure(&self) -> Option<&str> {
        let reason = self.answer.stop_reason.as_deref();
        let is_failure = |reason: &&str| matches!(*reason, "error" | "aborted");
        reason
            .filter(is_failure)
            .filter(|_| self.results.is_empty())
    }
}

impl Returned {
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

impl<'a> Conversation<'a> {
    /// Prepares messages for a form; no time in it is after `now`.
    pub(super) fn of(messages: &'a [AgentMessage], form: &dyn Form, now: i64) -> Self {
        let naming = Naming {
            is_plain: match form.call_id() {
                Some(_) => |_| true,
                None => is_word,
            },
            id: form.call_id().unwrap_or(usize::MAX),
            name: form.name_length(),
        };
        let mut mended = Vec::new();
        // The agent goes on with a prompt: no call of the transcript can get its result any more.
        let paired = pair(messages, false, &naming, &mut mended);
        let times = messages.iter().filter_map(AgentMessage::message);
        let first = times.filter_map(Message::timestamp).find(|at| *at > 0);
        let mut steps = Steps {
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

    /// Returns how many messages there are.
    pub(super) fn messages(&self) -> u64 {
        let count = |step: &Step<'_>| match step {
            Step::Said(_) => 1,
            Step::Answered(answered) => 1 + answered.results.len() as u64,
        };
        self.steps.iter().map(count).sum()
    }
}

/// Steps in the making.
struct Steps<'a, 'f> {
    form: &'f dyn Form,
    now: i64,
    /// The time of the newest step.
    last: i64,
    messages: &'a [AgentMessage],
    mended: Vec<Mending>,
    /// The names of tools, by the ids of their calls.
    names: HashMap<String, String>,
    /// Images of failed calls, which are shown after the results.
    images: Vec<Content>,
    /// Whether the last answer goes on in the next message.
    goes_on: bool,
    out: Vec<Step<'a>>,
}

impl<'a> Steps<'a, '_> {
    fn add(&mut self, placed: IndexedMessage) {
        // Without turns nothing says that two answers are pieces of one.
        let at = placed.at;
        let goes_on = placed.goes_on && self.messages[at].turn_index().is_some();
        let time = self.time(placed.message.timestamp());
        let is_prompt = placed.message.is_prompt();
        match placed.message {
            Message::ToolResult(result) => self.result(at, time, result),
            Message::User(said) => {
                self.flush_images();
                self.said(at, time, said, is_prompt);
            }
            Message::Assistant(answer) => {
                self.flush_images();
                let is_written = self.answer(at, time, answer);
                // A piece that says nothing parts nothing, and begins nothing.
                self.goes_on = goes_on && (is_written || self.goes_on);
            }
        }
    }

    /// Returns the time of a step: agents put messages in the order of their times.
    fn time(&mut self, recorded: Option<i64>) -> i64 {
        self.last = recorded.unwrap_or(self.last).clamp(self.last, self.now);
        self.last
    }

    fn said(&mut self, at: usize, time: i64, mut said: UserMessage, is_prompt: bool) {
        self.retain(at, Role::User, &mut said.content);
        if said.content.is_empty() {
            return self.mend(MendingKind::EmptyDropped, at);
        }
        self.out.push(Step::Said(Said {
            content: said.content,
            at: time,
            is_prompt,
        }));
    }

    /// Adds an answer, and returns whether anything is left of it.
    fn answer(&mut self, at: usize, time: i64, mut answer: AssistantMessage) -> bool {
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
        if let (true, Some(Step::Answered(last))) = (self.goes_on, self.out.last_mut()) {
            last.answer.content.append(&mut answer.content);
            last.answer.stop_reason = answer.stop_reason.or(last.answer.stop_reason.take());
            last.answer.usage = answer.usage.or(last.answer.usage.take());
            self.mend(MendingKind::Merged, at);
            return true;
        }
        if self.out.is_empty() {
            self.open(at, time);
        }
        let source = match &self.messages[at] {
            AgentMessage::Llm(message) => message.extra.get("source"),
            AgentMessage::Extension(_) => None,
        };
        self.out.push(Step::Answered(Box::new(Answered {
            answer,
            at: time,
            results: Vec::new(),
            source,
        })));
        true
    }

    /// No provider takes a conversation that begins with an answer.
    fn open(&mut self, at: usize, time: i64) {
        self.mend(MendingKind::UserAdded, at);
        self.out.push(Step::Said(Said {
            content: vec![Content::text(OPENING)],
            at: time,
            is_prompt: false,
        }));
    }

    fn result(&mut self, at: usize, time: i64, mut result: ToolResultMessage) {
        self.retain(at, Role::ToolResult, &mut result.content);
        if let Some(name) = self.names.get(&result.tool_call_id) {
            result.tool_name.clone_from(name);
        }
        if result.is_error && !self.form.shows_images_of_errors() {
            self.part_images(at, &mut result);
        }
        // A pair stands behind its answer.
        if let Some(Step::Answered(last)) = self.out.last_mut() {
            last.results.push(Returned { result, at: time });
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
            self.out.push(Step::Said(Said {
                content,
                at: self.last,
                is_prompt: false,
            }));
        }
    }

    /// Leaves out the blocks that the form does not take, and texts of white space, which providers refuse.
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
