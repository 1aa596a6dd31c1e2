//! Reads messages and earlier documents into a [`DocumentRecord`].

mod leaves;

use std::sync::Arc;

use serde_json::Value;

use self::leaves::leaves;
use super::model_sections::{ModelSection, sections_of};
use super::read::{self, DocumentPart};
use super::record::{DocumentRecord, ForeignSummary, SpeakerRole, Statement};
use super::specification::{NamedInPrompt, specification_in};
use super::speech::replaced_values;
use super::values::scan::{ScannedValue, scan};
use super::values::{FactSource, Shape, ValueLedger, is_value};
use crate::activity::noise::clean;
use crate::activity::outcome::{output_of, refusal_words};
use crate::activity::{Activity, SourceTurn, is_search_setting};
use loopstore_model::author::own_words;
use loopstore_model::compaction::{LoopMessage, image_facts};
use loopstore_model::{
    AssistantMessage, Author, Content, Int, Message, Time, ToolCall, ToolResultMessage, UserMessage,
};

/// A prompt with more values than this is taken for a pasted document: its values count less.
const MAX_PROMPT_VALUES: usize = 24;
/// The most facts, of some hundred bytes each, so that years of work do not fill the memory. Beyond it, the worse half
/// is dropped; no page has room for it.
const MOST_FACTS: usize = 1 << 18;
/// The most bytes of statements. Beyond it, the oldest statements of messages with calls are dropped.
const MOST_STATED: usize = 1 << 24;
/// Keys of the address of a thing itself, among those that end as links of an API's answer do.
const OWN_ADDRESS: [&str; 3] = ["base_url", "clone_url", "html_url"];
/// A text of the harness is split into sentences if it is longer than this, in bytes; shorter ones are notices.
const LONG_NOTICE: usize = 2_000;

/// Collects the content of messages and earlier documents.
#[derive(Default)]
pub(super) struct Gatherer {
    record: DocumentRecord,
    /// The bytes of all statements.
    stated: usize,
    /// A text of the harness before any other message.
    notice: Option<Statement>,
    /// The names in the last prompt, whose texts the next calls may fetch.
    named: NamedInPrompt,
}

impl Gatherer {
    /// Reads the messages of a loop.
    pub(super) fn messages(&mut self, loop_name: Option<&Arc<str>>, messages: &[LoopMessage]) {
        for placed in messages {
            let place = SourceTurn {
                loop_name: loop_name.cloned(),
                turn: placed.turn,
            };
            let Some(message) = placed.message.message() else {
                continue;
            };
            let is_report = match message {
                Message::ToolResult(result) => {
                    self.record.activity.is_delegated(&result.tool_call_id) && !result.is_error
                }
                _ => false,
            };
            self.record.activity.add_message(message, &place);
            match message {
                Message::User(user) => self.user(message, user, &place),
                Message::Assistant(answer) => self.answer(answer, &place),
                Message::ToolResult(result) => self.result(result, is_report, &place),
            }
            self.images(message.content(), &place);
            self.forget_some();
        }
    }

    fn forget_some(&mut self) {
        if self.record.values.facts.len() > MOST_FACTS {
            self.record.values.forget(MOST_FACTS / 2);
        }
        if self.stated > MOST_STATED {
            let mut excess = self.stated - MOST_STATED / 2;
            // Announcements of calls first. Prompts and reports alone may exceed the limit too.
            for only_announced in [true, false] {
                self.record.statements.retain(|statement| {
                    let may_go = !only_announced || (statement.has_calls && !statement.is_prompt());
                    let goes = excess > 0 && may_go;
                    excess -= if goes {
                        statement.text.len().min(excess)
                    } else {
                        0
                    };
                    !goes
                });
            }
            self.stated = MOST_STATED / 2;
        }
    }

    /// Records type and size of images; the store keeps the originals.
    fn images(&mut self, content: &[Content], place: &SourceTurn) {
        let values = &mut self.record.values;
        for block in content {
            if let Content::Image(image) = block {
                let label = values.label("image");
                values.add(&image_facts(image), label, FactSource::Field, place);
            }
        }
    }

    fn add_statement(&mut self, statement: Statement) {
        if !statement.text.trim().is_empty() {
            self.record.values.position(&statement.place);
            self.stated += statement.text.len();
            self.record.statements.push(statement);
        }
    }

    /// Reads a message in the user's name: a prompt with the harness's text around it, or only a harness's text.
    fn user(&mut self, message: &Message, user: &UserMessage, place: &SourceTurn) {
        self.record_time(user.timestamp.as_ref());
        let speaker = match message.author() {
            Author::Agent => SpeakerRole::Parent,
            Author::Human | Author::Harness => SpeakerRole::Human,
        };
        let day = day_of(user.timestamp.as_ref());
        let own: Vec<&str> = message.prompt_texts().collect();
        if speaker == SpeakerRole::Human && !own.is_empty() {
            self.named.prompt(&own.join("\n"));
        }
        for text in &own {
            self.prompt_values(text, place);
            self.add_statement(Statement::new(speaker, place.clone(), day.clone(), text));
        }
        let label = self.record.values.label("harness");
        for text in texts(&user.content) {
            let around = own.iter().find_map(|own| text.split_once(own));
            let (before, after) = around.unwrap_or((text, ""));
            if own.is_empty() && self.is_first(place) {
                self.record.values.position(place);
                let (place, day) = (place.clone(), day.clone());
                let mut notice = Statement::new(SpeakerRole::Harness, place, day, text);
                notice.is_task = true;
                self.notice = Some(notice).filter(|notice| !notice.text.is_empty());
            }
            for text in [before, after] {
                self.mentions(text, label, place);
                if text.len() > LONG_NOTICE {
                    let day = day.clone();
                    self.add_statement(Statement::new(
                        SpeakerRole::Harness,
                        place.clone(),
                        day,
                        text,
                    ));
                }
            }
        }
    }

    /// True if nothing was said or done before. A later text of a harness may be the result of a tool.
    fn is_first(&self, place: &SourceTurn) -> bool {
        let record = &self.record;
        place.turn == 0
            && self.notice.is_none()
            && record.statements.is_empty()
            && record.activity.work().is_empty()
    }

    fn prompt_values(&mut self, text: &str, place: &SourceTurn) {
        let values = &mut self.record.values;
        let label = values.label("user");
        let mut all = Vec::new();
        scan(text, &mut |found| all.push(found));
        let is_document = all.len() > MAX_PROMPT_VALUES;
        for found in all {
            let source = match (is_document, found.quoted) {
                (false, true) => FactSource::QuotedByUser,
                (false, false) => FactSource::FromUser,
                (true, true) => FactSource::Quoted,
                (true, false) => FactSource::Mentioned,
            };
            add_found(values, found, label, source, place);
        }
        replaced_values(text, &mut |value| values.replace(value, place));
    }

    fn answer(&mut self, message: &AssistantMessage, place: &SourceTurn) {
        self.record_time(message.timestamp.as_ref());
        let label = self.record.values.label("answer");
        let calls = message
            .content
            .iter()
            .filter(|block| matches!(block, Content::ToolCall(_)));
        let has_calls = calls.count() > 0;
        let day = day_of(message.timestamp.as_ref());
        for text in texts(&message.content) {
            self.mentions(text, label, place);
            let mut statement =
                Statement::new(SpeakerRole::Agent, place.clone(), day.clone(), text);
            statement.has_calls = has_calls;
            self.add_statement(statement);
        }
        for block in &message.content {
            if let Content::ToolCall(call) = block {
                self.call(call, place);
            }
        }
    }

    fn call(&mut self, call: &ToolCall, place: &SourceTurn) {
        let values = &mut self.record.values;
        let tool = values.label(&call.name);
        if let Ok(arguments) = call.arguments.read::<Value>() {
            self.named.call(&call.id, &arguments);
            leaves(&arguments, &call.name, &mut |key, text, is_key| {
                if is_search_setting(&call.name, key) {
                    return;
                }
                let label = values.label(key);
                let commands = commands(text);
                for beginning in beginnings(text, &commands) {
                    values.add_piece(beginning, label, place);
                }
                let mut used = |value: &str| {
                    if let Some(at) = values.add(value, label, FactSource::Used, place) {
                        values.facts[at].tool = Some(tool);
                    }
                };
                let is_whole = is_value(text);
                if is_whole {
                    used(text);
                }
                // A command line that is too long to be a value is recorded by its commands. A text of several lines
                // need not be a command line.
                if is_whole || text.contains('\n') {
                    for command in commands {
                        values.add_piece(command, label, place);
                    }
                } else {
                    commands.into_iter().for_each(used);
                }
                if !is_whole && !is_key {
                    scan(text, &mut |found| {
                        add_found(values, found, label, FactSource::WithinArgument, place);
                    });
                }
            });
        }
    }

    /// Reads a result. `is_report`: it is the report of a sub-agent.
    fn result(&mut self, message: &ToolResultMessage, is_report: bool, place: &SourceTurn) {
        self.record_time(message.timestamp.as_ref());
        if is_report {
            let day = day_of(message.timestamp.as_ref());
            for text in texts(&message.content) {
                let (place, day) = (place.clone(), day.clone());
                self.add_statement(Statement::new(SpeakerRole::SubAgent, place, day, text));
            }
        }
        if self.named.fetches(&message.tool_call_id) && !is_report && !message.is_error {
            let output = texts(&message.content)
                .next()
                .map(|text| clean(output_of(&text[own_words(text)])));
            if let Some(text) = output.and_then(|output| specification_in(&output)) {
                let (place, day) = (place.clone(), day_of(message.timestamp.as_ref()));
                self.add_statement(Statement::new(SpeakerRole::Tool, place, day, &text));
            }
        }
        let tool = match &*message.tool_name {
            "" => "result",
            name => name,
        };
        let label = self.record.values.label(tool);
        for text in texts(&message.content) {
            match structured(text) {
                Some(value) => self.fields(&value, tool, place),
                None if is_report => self.reported(&clean(text), label, place),
                None => self.mentions(&clean(output_of(text)), label, place),
            }
        }
        // The reason of a refusal is a statement of a person, if the format marks it as such: a tool may return the
        // same words.
        for words in message.texts_of_person().filter_map(refusal_words) {
            let (place, day) = (place.clone(), day_of(message.timestamp.as_ref()));
            self.add_statement(Statement::new(SpeakerRole::Human, place, day, words));
        }
    }

    fn fields(&mut self, value: &Value, tool: &str, place: &SourceTurn) {
        let values = &mut self.record.values;
        leaves(value, tool, &mut |key, text, is_key| {
            let label = values.label(key);
            // An API's answer links to everything around a thing; the address of the thing itself has a plain name.
            let source = match key.ends_with("_url") && !OWN_ADDRESS.contains(&key) {
                true => FactSource::Mentioned,
                false => FactSource::Field,
            };
            let added = values.add(text, label, source, place);
            if !is_key && (added.is_none() || text.contains(' ')) {
                scan(text, &mut |found| {
                    add_found(values, found, label, FactSource::Mentioned, place);
                });
            }
        });
    }

    fn mentions(&mut self, text: &str, label: usize, place: &SourceTurn) {
        let values = &mut self.record.values;
        scan(text, &mut |found| {
            let source = if found.quoted {
                FactSource::Quoted
            } else {
                FactSource::Mentioned
            };
            add_found(values, found, label, source, place);
        });
    }

    /// Reads values of a sub-agent's report. The agent continues with the things that the report names, so quoted
    /// values count as fields.
    fn reported(&mut self, text: &str, label: usize, place: &SourceTurn) {
        let values = &mut self.record.values;
        scan(text, &mut |found| {
            let source = match (found.quoted, Shape::of(found.value).names_one_thing()) {
                (true, true) => FactSource::Field,
                (true, false) => FactSource::Quoted,
                (false, _) => FactSource::Mentioned,
            };
            add_found(values, found, label, source, place);
        });
    }

    fn record_time(&mut self, timestamp: Option<&Int>) {
        if let Some(timestamp) = timestamp {
            self.record.timestamp = Some(timestamp.clone());
        }
    }

    /// Reads an earlier summary. A summary that is no digest is kept unchanged, as one of the turn `turn`.
    pub(super) fn summary(&mut self, loop_name: Option<&Arc<str>>, turn: u32, text: &str) {
        match read::document(text, turn) {
            Some(sections) => {
                self.document(loop_name, sections);
                self.forget_some();
            }
            None => self.foreign_summary(loop_name, turn, text),
        }
    }

    /// Keeps the summary of another program unchanged, as one of the turn `turn`.
    pub(super) fn foreign_summary(&mut self, loop_name: Option<&Arc<str>>, turn: u32, text: &str) {
        let place = SourceTurn {
            loop_name: loop_name.cloned(),
            turn,
        };
        let label = self.record.values.label("summary");
        self.mentions(text, label, &place);
        // A later summary of a loop replaces the earlier one.
        self.record
            .foreign_summaries
            .retain(|carried| carried.place.loop_name != place.loop_name);
        self.record.foreign_summaries.push(ForeignSummary {
            place,
            text: text.trim().to_owned(),
        });
        self.forget_some();
    }

    /// Adds the parts of a document. `loop_name` is the loop of turns without a name.
    fn document(&mut self, loop_name: Option<&Arc<str>>, sections: Vec<DocumentPart>) {
        let mut sections: Vec<DocumentPart> = sections;
        let mut places: Vec<SourceTurn> = Vec::new();
        for section in &mut sections {
            section.each_place(&mut |place| {
                place.loop_name = place.loop_name.take().or_else(|| loop_name.cloned());
                places.push(place.clone());
            });
        }
        // `L2` comes before `L10`.
        places.sort_by_key(|place| {
            let name = place.loop_name.clone();
            (name.as_ref().map_or(0, |name| name.len()), name, place.turn)
        });
        for place in &places {
            self.record.values.position(place);
        }
        let is_conversation = sections
            .iter()
            .any(|section| matches!(section, DocumentPart::Conversation));
        for section in sections {
            match section {
                DocumentPart::Conversation => {}
                DocumentPart::Statement(statement) => {
                    match statement.speaker {
                        SpeakerRole::Human => self.prompt_values(&statement.text, &statement.place),
                        speaker => {
                            let label = self.record.values.label(speaker.name());
                            self.mentions(&statement.text, label, &statement.place);
                        }
                    }
                    self.add_statement(statement);
                }
                DocumentPart::Instruction(instruction) => {
                    self.record.instructions.push(instruction);
                }
                DocumentPart::ForeignSummary(carried) => {
                    self.record.foreign_summaries.push(carried);
                }
                DocumentPart::Model(section) => self.add_model_section(section),
                DocumentPart::Work(work) => {
                    let values = &mut self.record.values;
                    let label = values.label("path");
                    for file in &work.files {
                        if let Some(last) = file.events.last() {
                            values.add(&file.path, label, FactSource::KeptUsed, &last.place);
                        }
                    }
                    let before = std::mem::take(&mut self.record.activity);
                    self.record.activity = Activity::restore(before.into_work().joined(*work));
                }
                DocumentPart::Values(line) => self.add_value_line(line, is_conversation),
            }
        }
        // A document has prompts and other statements in separate sections.
        let mut statements = std::mem::take(&mut self.record.statements);
        statements.sort_by_key(|statement| self.record.values.position_of(&statement.place));
        self.record.statements = statements;
    }

    /// Adds a section that a model wrote. It replaces the earlier one with the same heading and loop.
    fn add_model_section(&mut self, section: ModelSection) {
        let label = self.record.values.label("summary");
        self.mentions(&section.lines.join("\n"), label, &section.place);
        let is_older = |other: &ModelSection| {
            other.heading == section.heading && other.place.loop_name == section.place.loop_name
        };
        self.record.model_sections.retain(|other| !is_older(other));
        self.record.model_sections.push(section);
    }

    /// Adds a model's answer, which covers everything read so far; `turn` is the last turn of it. Returns false if the
    /// answer has no section.
    pub(super) fn add_model_answer(
        &mut self,
        loop_name: Option<&Arc<str>>,
        turn: u32,
        answer: &str,
    ) -> bool {
        let place = SourceTurn {
            loop_name: loop_name.cloned(),
            turn,
        };
        let sections = sections_of(answer);
        let says_something = !sections.is_empty();
        if says_something {
            self.record.values.position(&place);
            // The model has read them, and its prompt asks it to include them.
            self.record.foreign_summaries.clear();
        }
        for (heading, lines) in sections {
            // The answer covers the other loops too.
            self.record
                .model_sections
                .retain(|given| given.heading != heading);
            let place = place.clone();
            self.add_model_section(ModelSection {
                heading,
                place,
                is_new: true,
                lines,
            });
        }
        says_something
    }

    /// Adds only the sections of an earlier document that a model wrote.
    pub(super) fn add_model_sections_of(&mut self, turn: u32, text: &str) {
        let sections = read::document(text, turn).unwrap_or_default();
        for section in sections {
            if let DocumentPart::Model(given) = section {
                self.record.values.position(&given.place);
                self.add_model_section(given);
            }
        }
    }

    /// Adds a line of values of a document. In a conversation without calls, its used values were given by people.
    fn add_value_line(&mut self, line: super::values::line::ValueLine, is_conversation: bool) {
        let values = &mut self.record.values;
        let tool = line.tool.map(|tool| values.label(&tool));
        let label = values.label(&line.label);
        for entry in line.entries {
            let source = match (entry.used, is_conversation) {
                (true, true) => FactSource::FromUser,
                (true, false) => FactSource::KeptUsed,
                (false, _) => FactSource::KeptSeen,
            };
            if let Some(at) = values.add(&entry.value, label, source, &entry.place) {
                let fact = &mut values.facts[at];
                fact.tool = fact.tool.or(tool);
            }
        }
    }

    /// Returns the record.
    pub(super) fn finish(mut self) -> DocumentRecord {
        // Without any prompt, the first text of the harness is the task.
        let statements = &mut self.record.statements;
        if !statements.iter().any(Statement::is_prompt) {
            if let Some(notice) = self.notice.take() {
                statements.retain(|stated| {
                    stated.speaker != SpeakerRole::Harness || stated.text != notice.text
                });
                statements.insert(0, notice);
            }
            // The same if it was read from a document.
            if let Some(first) = statements.first_mut() {
                first.is_task = first.speaker == SpeakerRole::Harness && first.place.turn == 0;
            }
        }
        self.record
    }
}

/// Returns the day of a time in milliseconds since 1970, as `2031-04-01`; empty if there is none.
fn day_of(timestamp: Option<&Int>) -> String {
    let time = timestamp.and_then(|time| Time::from_millis(time.get()));
    let day = time.and_then(|time| time.as_str().get(..10).map(str::to_owned));
    day.unwrap_or_default()
}

fn texts(content: &[Content]) -> impl Iterator<Item = &str> {
    content.iter().filter_map(|block| match block {
        Content::Text(text) => Some(text.text.as_str()),
        _ => None,
    })
}

fn add_found(
    ledger: &mut ValueLedger,
    found: ScannedValue<'_>,
    label: usize,
    source: FactSource,
    place: &SourceTurn,
) {
    let label = match found.label {
        Some(name) => ledger.label(name),
        None => label,
    };
    ledger.add_value(found.value, label, source, place);
}

/// The most commands of a line that are recorded individually.
const MOST_COMMANDS: usize = 6;

/// Returns the commands of a line of 2 to [`MOST_COMMANDS`], each of which may be run again alone; else nothing.
fn commands(line: &str) -> Vec<&str> {
    let parts: Vec<&str> = line.split(CHAIN).take(MOST_COMMANDS + 1).collect();
    match parts.len() {
        2..=MOST_COMMANDS => parts.into_iter().map(str::trim).collect(),
        _ => Vec::new(),
    }
}

/// Returns the beginnings of a line that have at least two commands, but not all.
fn beginnings<'a>(line: &'a str, commands: &[&str]) -> impl Iterator<Item = &'a str> {
    let ends = line.match_indices(CHAIN).skip(1).map(|(at, _)| at);
    let several = commands.len().saturating_sub(2);
    ends.take(several).map(|end| line[..end].trim())
}

/// The separator of commands of which the second runs only if the first succeeds.
const CHAIN: &str = " && ";

fn structured(text: &str) -> Option<Value> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests;
