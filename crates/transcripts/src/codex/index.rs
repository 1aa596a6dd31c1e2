//! The first pass: determines the role of each record.

use loopstore::model::Usage;

use super::bare::folder_in;
use super::items::{is_answer, is_result, usage};
use super::words::ADDED;
use crate::MAX_RECORD_BYTES;
use crate::fields::{Fields, list};
use crate::lines::SourceLocation;
use crate::values::{object_in, text_of};

/// The author of a user item, if the item shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemAuthor {
    /// The item does not begin like an item that Codex adds.
    Person,
    /// The item begins with a tag, like many that Codex adds.
    Unknown,
    Codex,
}

/// The fields of the first `session_meta`.
#[derive(Debug, Default)]
pub(super) struct RolloutMeta {
    pub(super) id: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) project: Option<String>,
    /// The session that started this one.
    pub(super) parent: Option<String>,
    /// True if the task of the session comes from another agent or from Codex itself.
    pub(super) is_subagent: bool,
}

/// A step of the second pass, in the order of the file.
#[derive(Debug)]
pub(super) enum IndexStep {
    /// The first `session_meta`.
    Meta(SourceLocation),
    /// A record that no model sees.
    Extension(SourceLocation),
    /// A record of an interrupted run.
    Aborted(SourceLocation),
    /// A record that rolls the last turns back.
    RolledBack(SourceLocation),
    Unreadable(SourceLocation),
    /// An event that repeats an item, or a record whose role is not known yet.
    Copy,
    /// A `developer` or `system` item.
    System(SourceLocation),
    /// A user item: a prompt, with the name of its loop, or a text that Codex added.
    User {
        place: SourceLocation,
        prompt: Option<String>,
    },
    /// An answer, by its number, at the position of its first item.
    Answer(usize),
    Result(SourceLocation),
    Compacted(SourceLocation),
}

/// The items of one call of the model.
#[derive(Debug)]
pub(super) struct AnswerItems {
    pub(super) places: Vec<SourceLocation>,
    bytes: usize,
    pub(super) usage: Option<Usage>,
    pub(super) model: Option<String>,
}

/// A user item that may be a prompt.
#[derive(Debug)]
struct PromptCandidate {
    step: usize,
    author: ItemAuthor,
    name: String,
}

/// The facts that the first pass collects.
#[derive(Debug, Default)]
pub(super) struct CodexIndex {
    pub(super) steps: Vec<IndexStep>,
    pub(super) answers: Vec<AnswerItems>,
    pub(super) meta: Option<RolloutMeta>,
    /// The last name of the thread.
    pub(super) title: Option<String>,
    /// The first folder that a text about the environment names.
    pub(super) folder: Option<String>,
    pub(super) started: Option<String>,
    pub(super) ended: Option<String>,
    /// True if the last answer may continue.
    is_open: bool,
    turn: Option<String>,
    model: Option<String>,
    /// The token counts of the session so far, as text.
    counted: Option<String>,
    /// User items that no event has announced as a prompt.
    candidates: Vec<PromptCandidate>,
    /// True if an event may still announce the last of them.
    is_fresh: bool,
    /// True if an event announced a prompt whose item follows.
    is_announced: bool,
    has_prompts: bool,
    /// The step, line and text of an event that the next item may repeat.
    copied: Option<(usize, u64, String)>,
}

impl CodexIndex {
    /// Indexes the next record.
    pub(super) fn record(&mut self, record: &Fields<'_>, place: SourceLocation) {
        if let Some(time) = record.text("timestamp") {
            self.started.get_or_insert_with(|| time.clone());
            self.ended = Some(time);
        }
        let payload = record.child("payload");
        let kind = record.text("type");
        self.drop_copy(payload.as_ref());
        let step = match (kind.as_deref(), &payload) {
            (Some("session_meta"), Some(meta)) if self.meta.is_none() => {
                self.meta = Some(read_meta(meta));
                IndexStep::Meta(place)
            }
            (Some("response_item"), Some(item)) => return self.item(item, place),
            (Some("compacted"), Some(_)) => {
                self.is_open = false;
                self.is_fresh = false;
                IndexStep::Compacted(place)
            }
            (Some("turn_context"), Some(context)) => {
                self.turn = context.text("turn_id").or(self.turn.take());
                self.model = context.text("model").or(self.model.take());
                IndexStep::Extension(place)
            }
            (Some("event_msg"), Some(event)) => self.event(event, place),
            _ => IndexStep::Extension(place),
        };
        self.steps.push(step);
    }

    /// Indexes bytes that are not a record, which are kept as an extension.
    pub(super) fn unreadable(&mut self, place: SourceLocation) {
        self.steps.push(IndexStep::Unreadable(place));
    }

    /// Decides what only the end of the file shows. A transcript without events has no announcements of prompts, and in
    /// one that ends with an item the announcement is still to come.
    ///
    /// Returns the line of a record at the end whose role depends on the next record.
    pub(super) fn finish(&mut self) -> Option<u64> {
        let unclear = self.candidates.last().filter(|candidate| {
            let is_last = candidate.step + 1 == self.steps.len();
            is_last && self.is_fresh && candidate.author == ItemAuthor::Unknown
        });
        if let Some(step) = unclear.map(|candidate| candidate.step)
            && let IndexStep::User { place, .. } = &self.steps[step]
        {
            let line = place.line;
            self.steps[step] = IndexStep::Copy;
            return Some(line);
        }
        let undecided = match (self.has_prompts, self.is_fresh) {
            (false, _) => 0,
            (true, true) => self.candidates.len().saturating_sub(1),
            (true, false) => self.candidates.len(),
        };
        for candidate in self.candidates.split_off(undecided) {
            if candidate.author == ItemAuthor::Person {
                self.name(candidate);
            }
        }
        let (step, line, _) = self.copied.take()?;
        self.steps[step] = IndexStep::Copy;
        Some(line)
    }

    /// Drops the event before an item if the item repeats it.
    fn drop_copy(&mut self, item: Option<&Fields<'_>>) {
        let Some((step, _, message_text)) = self.copied.take() else {
            return;
        };
        let texts = item.and_then(|item| item.get("content")).and_then(list);
        let texts = texts.unwrap_or_default().into_iter();
        let texts: Vec<String> = texts
            .filter_map(|part| text_of(object_in(Some(part))?.get("text")))
            .collect();
        if texts.join("\n") == message_text || texts.concat() == message_text {
            self.steps[step] = IndexStep::Copy;
        }
    }

    fn name(&mut self, candidate: PromptCandidate) {
        if let Some(IndexStep::User { prompt, .. }) = self.steps.get_mut(candidate.step) {
            *prompt = Some(candidate.name);
        }
    }

    fn event(&mut self, event: &Fields<'_>, place: SourceLocation) -> IndexStep {
        match event.text("type").as_deref() {
            Some("user_message") => {
                let has_item = self.take_announcement();
                return match has_item && is_bare(event) {
                    true => IndexStep::Copy,
                    false => IndexStep::Extension(place),
                };
            }
            Some("agent_message") if is_bare(event) => {
                let message_text = event.text("message");
                self.copied =
                    message_text.map(|message_text| (self.steps.len(), place.line, message_text));
            }
            Some("thread_name_updated") => {
                self.title = event.text("thread_name").or(self.title.take());
            }
            Some("token_count") => self.tokens(event),
            Some("task_started" | "turn_started") => {
                self.is_open = false;
                self.turn = event.text("turn_id").or(self.turn.take());
            }
            Some("task_complete" | "turn_complete") => {
                self.is_open = false;
                // No later event announces the last item as a prompt.
                self.is_fresh = false;
            }
            Some("turn_aborted") => {
                self.is_open = false;
                return IndexStep::Aborted(place);
            }
            Some("thread_rolled_back") => {
                self.is_open = false;
                self.is_fresh = false;
                return IndexStep::RolledBack(place);
            }
            _ => {}
        }
        IndexStep::Extension(place)
    }

    /// Handles the event that announces a prompt. It comes after the item of the prompt, in some versions before it.
    /// Returns true if the item was found.
    fn take_announcement(&mut self) -> bool {
        self.has_prompts = true;
        let candidate = self.candidates.pop_if(|_| self.is_fresh);
        self.is_fresh = false;
        match candidate {
            Some(candidate) => {
                self.name(candidate);
                true
            }
            None => {
                self.is_announced = true;
                false
            }
        }
    }

    /// Handles the token counts of a call. Unchanged counts belong to the call before.
    fn tokens(&mut self, event: &Fields<'_>) {
        let Some(info) = event.child("info") else {
            return;
        };
        let key = ["total_token_usage", "last_token_usage"];
        let counts = key.iter().find_map(|key| info.get(key));
        let counts = counts.map(|counts| counts.get().to_owned());
        if counts.is_none() || counts == self.counted {
            return;
        }
        self.counted = counts;
        self.is_open = false;
        if let Some(answer) = self.answers.last_mut()
            && answer.usage.is_none()
        {
            answer.usage = info.get("last_token_usage").and_then(usage);
        }
    }

    fn item(&mut self, item: &Fields<'_>, place: SourceLocation) {
        let kind = item.text("type").unwrap_or_default();
        let role = item.text("role").unwrap_or_default();
        if is_answer(&kind, &role) {
            return self.answer(place);
        }
        let step = match (kind.as_str(), role.as_str()) {
            ("message", "user") => return self.user(item, place),
            ("message", "developer" | "system") => IndexStep::System(place),
            _ if is_result(&kind) => IndexStep::Result(place),
            _ => {
                self.steps.push(IndexStep::Extension(place));
                return;
            }
        };
        self.is_open = false;
        self.is_fresh = false;
        self.steps.push(step);
    }

    fn answer(&mut self, place: SourceLocation) {
        self.is_fresh = false;
        if let Some(answer) = self.answers.last_mut().filter(|_| self.is_open)
            && answer.bytes + place.len <= MAX_RECORD_BYTES
        {
            answer.bytes += place.len;
            answer.places.push(place);
            return;
        }
        self.steps.push(IndexStep::Answer(self.answers.len()));
        self.answers.push(AnswerItems {
            places: vec![place],
            bytes: place.len,
            usage: None,
            model: self.model.clone(),
        });
        self.is_open = true;
    }

    fn user(&mut self, item: &Fields<'_>, place: SourceLocation) {
        self.is_open = false;
        if self.folder.is_none() {
            let text = first_text(item);
            self.folder = folder_in(&text).map(str::to_owned);
        }
        let turn = turn_of(item).or_else(|| self.turn.clone());
        let candidate = PromptCandidate {
            step: self.steps.len(),
            author: author(item),
            name: turn.unwrap_or_else(|| format!("line-{}", place.line)),
        };
        self.steps.push(IndexStep::User {
            place,
            prompt: None,
        });
        if self.is_announced && candidate.author != ItemAuthor::Codex {
            self.is_announced = false;
            return self.name(candidate);
        }
        self.is_fresh = true;
        self.candidates.push(candidate);
    }
}

fn read_meta(meta: &Fields<'_>) -> RolloutMeta {
    let spawned = |source| {
        object_in(object_in(object_in(Some(source))?.get("subagent"))?.get("thread_spawn"))
    };
    let parent = meta.get("source").and_then(spawned);
    let source = object_in(meta.get("source"));
    RolloutMeta {
        id: meta.text("id").or_else(|| meta.text("session_id")),
        provider: meta.text("model_provider"),
        project: meta.text("cwd"),
        parent: parent.and_then(|parent| parent.text("parent_thread_id")),
        is_subagent: source.is_some_and(|source| source.get("subagent").is_some()),
    }
}

fn turn_of(item: &Fields<'_>) -> Option<String> {
    let at = ["metadata", "internal_chat_message_metadata_passthrough"];
    at.iter()
        .find_map(|key| text_of(object_in(item.get(key))?.get("turn_id")))
}

/// Returns the first text of an item.
fn first_text(item: &Fields<'_>) -> String {
    let parts = item.get("content").and_then(list).unwrap_or_default();
    let mut texts = parts.into_iter().filter_map(|part| {
        let part = object_in(Some(part))?;
        part.text("text")
    });
    texts.next().unwrap_or_default()
}

fn author(item: &Fields<'_>) -> ItemAuthor {
    let message_text = first_text(item);
    let message_text = message_text.trim_start();
    if ADDED.iter().any(|words| message_text.starts_with(words)) {
        ItemAuthor::Codex
    } else if begins_with_tag(message_text) {
        ItemAuthor::Unknown
    } else {
        ItemAuthor::Person
    }
}

/// True if an event has no other field than its message; empty fields do not count.
fn is_bare(event: &Fields<'_>) -> bool {
    const KNOWN: [&str; 3] = ["type", "message", "phase"];
    let mut others = event.iter().filter(|(key, _)| !KNOWN.contains(key));
    others.all(|(_, value)| matches!(value.get(), "null" | "[]" | "{}" | "\"\""))
}

fn begins_with_tag(text: &str) -> bool {
    let Some((name, _)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
        return false;
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_- ".contains(c);
    !name.is_empty() && name.len() < 80 && name.chars().all(is_word)
}
