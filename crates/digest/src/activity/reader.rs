//! Reads messages in order, and records the effects of their calls.

mod calls;

use std::collections::{HashMap, VecDeque};

use super::actions::{self, CallAction};
use super::files::FileIndex;
use super::hits::files_found;
use super::log::{CallEnd, CallLog, CallPosition, EndedCall};
use super::outcome::{self, CallOutcome, outcome, refusal_words, refused};
use super::plan::PlanChange;
use super::shell;
use super::tables::{results, tools};
use super::work::{AgentPlan, AgentWork, PendingCall, PlanItem, PlanState, SourceTurn};
use calls::CallKey;
use loopstore_model::{Author, Content, Message, ToolCall, ToolResultMessage};

/// The most running calls, and the most items of a plan.
const MOST_OPEN: usize = 2_000;
const MOST_ITEMS: usize = 500;
/// The bytes at each end of a text that are searched for the working folder.
const SCANNED_BYTES: usize = 2_048;
/// The longest answer that is recorded with its call, in bytes.
const LONGEST_ANSWER: usize = 120;

/// The work of an agent, collected message by message.
///
/// ```
/// use loopstore_digest::activity::{Activity, FileAct, SourceTurn};
/// use loopstore_model::Message;
/// use serde_json::json;
///
/// let mut activity = Activity::default();
/// let place = SourceTurn { loop_name: None, turn: 0 };
/// let edit = json!({"file_path": "src/a.rs", "old_string": "1", "new_string": "2"});
/// activity.add_message(&Message::assistant("").with_tool_call("c1", "Edit", edit), &place);
/// activity.add_message(&Message::tool_result("c1", "done"), &place);
/// assert_eq!(activity.work().files[0].events[0].act, FileAct::Edited);
/// ```
#[derive(Default)]
pub struct Activity {
    work: AgentWork,
    /// The key of each call in `work.calls`.
    known: Vec<CallKey>,
    files: FileIndex,
    /// The actions of calls without a result, by call id. Some agents use an id twice.
    pending: HashMap<String, VecDeque<CallAction>>,
    /// The background runs by their id, each with the id of its call and its action.
    background: HashMap<String, (String, CallAction)>,
    folder: Option<String>,
    /// The working folder that a harness named last.
    cwd: Option<String>,
    /// The ended calls, if they are logged.
    log: Option<CallLog>,
    /// The file that an editor has open.
    open_file: Option<String>,
    /// A command in the text of an answer. The next message shows whether it was run.
    written: Option<(CallAction, SourceTurn)>,
}

impl Activity {
    /// Returns an activity that continues from the work of an earlier document ([`crate::document_work`]).
    pub fn restore(work: AgentWork) -> Self {
        let known = work.calls.iter().map(|history| {
            let key = match history.is_command {
                true => shell::normalised(&history.description),
                false => history.description.clone(),
            };
            let is_open = history.failure.is_some() && history.passed.is_none();
            let read = match history.is_command {
                true => shell::read(&history.description, false),
                false => shell::CommandLine::default(),
            };
            CallKey {
                key,
                folder: read.folder,
                from_document: true,
                unresolved: if is_open { read.runners } else { Vec::new() },
            }
        });
        let known = known.collect();
        // The result may still come. The document has the description of the call, not its arguments.
        let pending = work.running.iter().map(|call| {
            let action = CallAction {
                description: call.description.clone(),
                key: call.description.clone(),
                ..CallAction::default()
            };
            (call.id.clone(), VecDeque::from([action]))
        });
        Self {
            known,
            files: FileIndex::of(&work.files),
            pending: pending.collect(),
            work,
            ..Self::default()
        }
    }

    /// Returns the work so far.
    pub fn work(&self) -> &AgentWork {
        &self.work
    }

    /// Logs every call from now on; [`take_ended`](Self::take_ended) returns the calls that have ended.
    pub fn log_calls(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Sets the position of the next message, by which the log names calls.
    pub fn set_position(&mut self, message: u64) {
        if let Some(log) = &mut self.log {
            log.message = message;
        }
    }

    /// Returns the logged calls that have ended since the last time, oldest first.
    pub fn take_ended(&mut self) -> Vec<EndedCall> {
        self.log
            .as_mut()
            .map(|log| std::mem::take(&mut log.ended))
            .unwrap_or_default()
    }

    /// Returns the calls that have no result, by their positions.
    pub fn unanswered(&self) -> Vec<EndedCall> {
        let pending = self.pending.values().flatten();
        let background = self.background.values().map(|(_, action)| action);
        let open = pending.chain(background);
        let mut calls: Vec<EndedCall> = open
            .map(|action| self.ended_call(action, CallEnd::NoResult, ""))
            .collect();
        calls.sort_by_key(|call| call.position);
        calls
    }

    fn ended_call(&self, action: &CallAction, end: CallEnd, text: &str) -> EndedCall {
        let folder = self.folder.as_deref();
        EndedCall::of(action, end, text, self.cwd.as_deref(), folder)
    }

    /// True if the next result of a call is the report of a sub-agent.
    pub(crate) fn is_delegated(&self, call_id: &str) -> bool {
        let next = self.pending.get(call_id).and_then(VecDeque::front);
        next.is_some_and(|action| action.delegates)
    }

    /// Calls `each` with every turn in the work.
    pub(crate) fn each_place(&mut self, each: &mut dyn FnMut(&mut SourceTurn)) {
        self.work.each_place(each);
    }

    /// Returns the work.
    pub fn into_work(self) -> AgentWork {
        self.work
    }

    /// Reads the next message, which belongs to the turn `place`.
    pub fn add_message(&mut self, message: &Message, place: &SourceTurn) {
        match message {
            Message::Assistant(answer) => {
                self.written = None;
                let (mut calls, mut index) = (false, 0);
                for block in &answer.content {
                    if let Content::ToolCall(call) = block {
                        calls = true;
                        self.call(call, Some(index), place);
                        index += 1;
                    }
                }
                let text = message.texts().last().filter(|_| !calls);
                if let Some(line) = text.and_then(fenced) {
                    let mut action = actions::command(line, None, true);
                    action.position = self.position(None);
                    self.written = Some((action, place.clone()));
                }
            }
            Message::ToolResult(result) => {
                let mut texts = message.texts();
                let first = texts.next().unwrap_or("");
                let rest: Vec<&str> = texts.collect();
                if rest.is_empty() {
                    self.result(result, first, place);
                } else {
                    let whole = [&[first], rest.as_slice()].concat().join("\n");
                    self.result(result, &whole, place);
                }
            }
            Message::User(user) => {
                let by_harness = user.author == Some(Author::Harness);
                for text in message.texts() {
                    self.read_harness_text(text, by_harness, place);
                }
            }
        }
    }

    /// Reads a text in the user's name for the working folder, the output of a command, and the end of a background
    /// task.
    fn read_harness_text(&mut self, text: &str, by_harness: bool, place: &SourceTurn) {
        self.record_folder(text);
        if let Some((action, of)) = self.written.take()
            && (by_harness || is_observation(text))
        {
            let outcome = outcome(text, false, action.kind_as_command());
            self.record_effects(action, &outcome, text, &of);
        }
        if let Some((_, note)) = text.split_once("<task-notification>") {
            let field = |name: &str| {
                let (_, behind) = note.split_once(&format!("<{name}>"))?;
                Some(behind.split_once('<')?.0.trim())
            };
            let state = field("status").unwrap_or("");
            if let Some((id, action)) = field("task-id").and_then(|id| self.background.remove(id)) {
                let failed = results::FAILED_TASKS.contains(&state);
                let failure = failed.then(|| outcome::short(field("summary").unwrap_or(state)));
                let outcome = CallOutcome {
                    failed,
                    failure,
                    ..CallOutcome::default()
                };
                self.close(&id);
                self.record_effects(action, &outcome, "", place);
            }
        }
    }

    fn record_folder<'a>(&mut self, text: &'a str) {
        let head = &text[..text.floor_char_boundary(SCANNED_BYTES)];
        let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(SCANNED_BYTES))..];
        for (mark, end) in results::FOLDER_MARKS {
            let behind = |text: &'a str| {
                let at = memchr::memmem::rfind(text.as_bytes(), mark.as_bytes())?;
                Some(&text[at + mark.len()..])
            };
            let found = behind(tail).or_else(|| behind(head));
            let folder = found.and_then(|behind| Some(behind.split_once(*end)?.0.trim()));
            if let Some(folder) =
                folder.filter(|folder| folder.starts_with('/') && !folder.contains('\n'))
            {
                self.folder = Some(folder.to_owned());
                self.cwd.clone_from(&self.folder);
                return;
            }
        }
    }

    fn position(&self, call: Option<u32>) -> CallPosition {
        let message = self.log.as_ref().map_or(0, |log| log.message);
        CallPosition { message, call }
    }

    fn call(&mut self, call: &ToolCall, index: Option<u32>, place: &SourceTurn) {
        let mut action = actions::read_call(call);
        action.position = self.position(index);
        if action.is_hosted {
            return;
        }
        let queue = self.pending.entry(call.id.clone()).or_default();
        // Some transcripts record a call twice.
        if queue
            .back()
            .is_some_and(|last| last.description == action.description && last.key == action.key)
        {
            return;
        }
        self.work.running.push(PendingCall {
            id: call.id.clone(),
            description: action.description.clone(),
            place: place.clone(),
        });
        queue.push_back(action);
        if self.work.running.len() > MOST_OPEN {
            let oldest: Vec<PendingCall> = self.work.running.drain(..MOST_OPEN / 4).collect();
            for call in oldest {
                self.pending.remove(&call.id);
                self.background.retain(|_, (id, _)| *id != call.id);
            }
        }
    }

    /// Returns the id under which the call of a result is recorded. A document has no ids of running calls: if one
    /// call without an id is running, a result with an unknown id belongs to it.
    fn known_call_id<'a>(&self, id: &'a str) -> &'a str {
        let mut nameless = self.work.running.iter().filter(|call| call.id.is_empty());
        let is_the_only = nameless.next().is_some() && nameless.next().is_none();
        match is_the_only && !self.pending.contains_key(id) {
            true => "",
            false => id,
        }
    }

    fn result(&mut self, of: &ToolResultMessage, text: &str, place: &SourceTurn) {
        let (id, is_error) = (self.known_call_id(&of.tool_call_id).to_owned(), of.is_error);
        let id = &*id;
        let Some(queue) = self.pending.get_mut(id) else {
            return;
        };
        let action = queue.pop_front();
        if queue.is_empty() {
            self.pending.remove(id);
        }
        let Some(action) = action else { return };
        let words = of.texts_of_person().find_map(refusal_words);
        let refused = is_error.then(|| refused(text, words)).flatten();
        let outcome = refused.unwrap_or_else(|| outcome(text, is_error, action.kind()));
        if let Some(name) = outcome.background.clone().filter(|_| !outcome.failed) {
            self.background.insert(name, (id.to_owned(), action));
            return;
        }
        self.close(id);
        self.record_folder(text);
        if let Some(about) = action.about.as_deref() {
            self.record_background_end(about, &action, text, is_error, place);
        }
        self.record_effects(action, &outcome, text, place);
    }

    /// Records the end of a background run, if `text` reports it.
    fn record_background_end(
        &mut self,
        about: &str,
        asked: &CallAction,
        text: &str,
        is_error: bool,
        place: &SourceTurn,
    ) {
        let Some((_, action)) = self.background.get(about) else {
            return;
        };
        let head = &text[..text.floor_char_boundary(SCANNED_BYTES)];
        let field = head
            .split_once("<status>")
            .and_then(|(_, behind)| Some(behind.split_once('<')?.0.trim()));
        let name = asked.description.to_ascii_lowercase();
        let was_ended = !is_error
            && (tools::ENDING_BACKGROUND
                .iter()
                .any(|end| name.starts_with(end)));
        let outcome = outcome(text, false, action.kind_as_command());
        let is_over =
            outcome.ended || field.is_some_and(|state| results::ENDED_TASKS.contains(&state));
        if (is_over || was_ended)
            && let Some((id, action)) = self.background.remove(about)
        {
            self.close(&id);
            self.record_effects(action, &outcome, text, place);
        }
    }

    fn close(&mut self, id: &str) {
        if let Some(at) = self.work.running.iter().rposition(|call| call.id == id) {
            self.work.running.remove(at);
        }
    }

    /// Records the effects of a call that has ended.
    fn record_effects(
        &mut self,
        mut action: CallAction,
        outcome: &CallOutcome,
        text: &str,
        place: &SourceTurn,
    ) {
        let changes = !action.files.is_empty() || action.edits_open_file;
        let unchanged = !action.is_command && changes && outcome::reports_no_change(text);
        let failed = outcome.failed && !commits_nothing(&action, text) || unchanged;
        // A search neither changes a file nor shows one.
        let looks = !failed && !action.runs && !action.delegates && action.files.is_empty();
        if !failed {
            if action.edits_open_file
                && let Some(open) = &self.open_file
            {
                use super::patch::{FileEffect, FileOperation};
                action
                    .files
                    .push(FileEffect::new(open.clone(), FileOperation::Edit));
            }
            if action.opens
                && let Some(file) = action.files.last()
            {
                self.open_file = Some(file.path.clone());
            }
            if self.folder.is_none() {
                self.folder.clone_from(&action.folder);
            }
            self.log_ended(&action, CallEnd::Succeeded, text);
            let folder = action.folder.as_deref().or(self.folder.as_deref());
            let created = (!action.is_command)
                .then(|| reports_created(text))
                .flatten();
            for change in std::mem::take(&mut action.files) {
                self.files
                    .record(&mut self.work.files, change, folder, created, place);
            }
            if let Some(change) = action.plan.take() {
                self.plan(change, place);
            }
        }
        if failed {
            self.log_ended(&action, CallEnd::Failed, text);
        }
        let line = match failed {
            true => Some(outcome.failure.clone().unwrap_or_else(|| {
                let line = text.lines().find(|line| !line.trim().is_empty());
                outcome::short(line.unwrap_or("failed"))
            })),
            false => None,
        };
        let answered = || answer(text).filter(|_| action.runs && !action.is_command && !failed);
        let found = || {
            looks
                .then(|| files_found(&action.description, outcome::output_of(text)))
                .flatten()
        };
        let result = outcome.result.clone().or_else(answered).or_else(found);
        self.record_call(action, line, outcome.refused, result, place);
    }

    fn log_ended(&mut self, action: &CallAction, end: CallEnd, text: &str) {
        if self.log.is_some() {
            let ended = self.ended_call(action, end, text);
            self.log.get_or_insert_default().ended.push(ended);
        }
    }

    fn plan(&mut self, change: PlanChange, place: &SourceTurn) {
        let old = self
            .work
            .plan
            .take()
            .map_or_else(Vec::new, |plan| plan.items);
        let items = match change {
            PlanChange::Whole(items) => items,
            PlanChange::Add(text) => {
                let mut items = old;
                if items.len() < MOST_ITEMS {
                    items.push(PlanItem {
                        text,
                        state: PlanState::Pending,
                    });
                }
                items
            }
            PlanChange::Update {
                number,
                text,
                state,
            } => {
                let mut items = old;
                if let Some(item) = number.checked_sub(1).and_then(|at| items.get_mut(at)) {
                    item.text = text.unwrap_or_else(|| std::mem::take(&mut item.text));
                    item.state = state.unwrap_or(item.state);
                }
                items
            }
        };
        // An empty list means that there is no plan any more.
        self.work.plan = (!items.is_empty()).then(|| AgentPlan {
            items,
            place: place.clone(),
        });
    }
}

/// True if a commit found nothing to commit, for which git exits with an error.
fn commits_nothing(action: &CallAction, text: &str) -> bool {
    let mut runners = action.runners.iter();
    runners.any(|runner| runner.name == "git commit") && text.contains("nothing to commit")
}

/// Returns the answer of a tool if it is one short line.
fn answer(text: &str) -> Option<String> {
    let line = text.trim();
    let is_short = !line.is_empty() && line.len() <= LONGEST_ANSWER && !line.contains('\n');
    is_short.then(|| outcome::short(line))
}

/// Returns the command of an answer that has exactly one fenced block, in the language of a shell.
pub(super) fn fenced(text: &str) -> Option<&str> {
    let mut parts = text.split("```");
    let (_, block) = (parts.next()?, parts.next()?);
    parts.next()?;
    if parts.next().is_some() {
        return None;
    }
    let (language, line) = block.split_once('\n')?;
    let language = language.trim();
    let is_shell = language.is_empty() || results::SHELL_FENCES.contains(&language);
    (is_shell && !line.trim().is_empty()).then_some(line)
}

/// True if a text in the user's name is the output of a command.
fn is_observation(text: &str) -> bool {
    let text = text.trim();
    results::OBSERVATION_STARTS
        .iter()
        .any(|start| text.starts_with(start))
        || results::OBSERVATION_ENDS
            .iter()
            .any(|end| text.ends_with(end))
}

/// Returns whether the result of a write says that the file is new or existed; `None` if it says neither.
fn reports_created(text: &str) -> Option<bool> {
    let head = text[..text.floor_char_boundary(200)].to_ascii_lowercase();
    let first = head.lines().next()?;
    let has = |words: &[&str]| words.iter().any(|word| first.contains(word));
    if has(results::CREATED) && !has(results::NOT_CREATED) {
        return Some(true);
    }
    has(results::OVERWRITTEN).then_some(false)
}

#[cfg(test)]
mod tests;
