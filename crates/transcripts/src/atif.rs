//! Trajectories in Harbor's Agent Trajectory Interchange Format (ATIF), of any version: a document, a list of documents,
//! or one on each line.
//!
//! Each prompt begins a loop. The results of a step are with its calls. Embedded trajectories are the sessions of
//! sub-agents. Copied steps after others are what a compaction left of the history. Documents with the rows of a session
//! are read by [`SessionLines`](super::SessionLines).

use std::collections::HashMap;
use std::path::Path;

use loopstore::model::{ChildLoopRef, Extra, LoopStatus, ParentSpawnRef, SessionId};
use serde_json::value::RawValue;

use super::authors::by_harness;
use super::extension::extension;
use super::fields::{Fields, list, shown};
use super::json_stream::{JsonDocument, LineCounter, documents};
use super::key_outline::KeyOutline;
use super::openai_chat::{head, run_extra};
use super::transcript::{Style, TranscriptBuilder};
use super::values::{json, user, with_extra_source};
use super::{
    FoundEffect, Identity, ImportError, Importer, MAX_RECORD_BYTES, SessionHead, SessionLines,
    Sink, Source, holds_conversation,
};
use loopstore_atif::foreign::{ForeignStep, without_rows};
use loopstore_atif::form::{Step, StepSource};
use loopstore_atif::messages::{content_of, message_of, result_of};

/// The strategy of compactions whose steps name none.
const TOOL: &str = "atif";
/// The maximum number of levels of sub-agents.
const MAX_DEPTH: usize = 32;

/// Reads ATIF trajectories.
#[derive(Clone, Copy, Debug, Default)]
pub struct Atif;

impl Importer for Atif {
    fn format(&self) -> &'static str {
        "atif"
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        if SessionLines.detect(path, head) {
            return false;
        }
        let outline = KeyOutline::of(head);
        let at = |prefix: &str| {
            let has = |key: &str| outline.has(&format!("{prefix}{key}"));
            let is_named = has("schema_version") && (has("agent") || has("steps"));
            is_named || has("steps[].step_id") && has("steps[].source")
        };
        at("") || at("[].")
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        holds_conversation(documents(source, sink, &mut run)?)
    }
}

/// Reads one document. Returns true if it has any messages.
fn run(document: JsonDocument<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let JsonDocument {
        text,
        mut fields,
        line,
        nth,
    } = document;
    let Some(steps) = fields.take("steps").and_then(list) else {
        sink.skip(Some(line), "its `steps` are missing or no list".into());
        return Ok(false);
    };
    let embedded = fields.take("subagent_trajectories").and_then(list);
    let (head, notes) = session_head(&mut fields, nth)?;
    for note in notes {
        sink.skip(Some(line), note);
    }
    let mut reader = TrajectoryReader {
        lines: LineCounter::new(text, line),
        transcript: TranscriptBuilder::new(sink, head, Style::Document),
    };
    let calls = reader.steps(&steps)?;
    reader.subagents(0, &embedded.unwrap_or_default(), &calls, 0)?;
    reader.transcript.finish()
}

/// Returns the description of a session, and the reasons why fields are not used.
fn session_head(
    fields: &mut Fields<'_>,
    nth: u64,
) -> Result<(SessionHead, Vec<String>), ImportError> {
    let own = fields.text("session_id");
    let own = own.or_else(|| fields.text("trajectory_id"));
    let agent = fields.object("agent").text("name");
    let more = fields.take("extra");
    let title = more.and_then(|more| Fields::parse(more.get()).ok()?.text("title"));
    let (mut extra, mut notes) = run_extra(fields);
    match without_rows(more) {
        Ok((more, had_rows)) => {
            more.into_iter()
                .for_each(|more| extra.insert("extra", more));
            if had_rows {
                let why = "the rows of loopstore in `extra` are not read as a part of this format; \
                           an import for which no format is named restores the session";
                notes.push(why.into());
            }
        }
        Err(reason) => notes.push(format!("field `extra`: {reason}")),
    }
    let mut head = head(nth.to_string(), extra)?;
    if let Some(id) = own.and_then(|id| SessionId::new(id).ok()) {
        head.identity = Identity::Own(id.clone());
        head.session.session_id = id;
    }
    head.session.agent_id = agent;
    head.title = title;
    Ok((head, notes))
}

/// The calls that started sub-agents, by the id of the trajectory.
type StartingCalls = HashMap<String, String>;

struct TrajectoryReader<'a, 'b> {
    lines: LineCounter<'a>,
    transcript: TranscriptBuilder<'b>,
}

impl<'a> TrajectoryReader<'a, '_> {
    fn skip(&mut self, part: &str, reason: String) {
        let line = self.lines.of(part);
        self.transcript.skip(line, reason);
    }

    /// Reads the steps of the selected session.
    fn steps(&mut self, steps: &[&'a RawValue]) -> Result<StartingCalls, ImportError> {
        let mut calls = StartingCalls::new();
        let mut has_original = false;
        let mut carried: Vec<Step> = Vec::new();
        for (nth, raw) in steps.iter().enumerate() {
            let read = match raw.get().len() > MAX_RECORD_BYTES {
                true => Err("longer than 64 MiB".into()),
                false => ForeignStep::read(raw),
            };
            let step = match read {
                Ok(step) => step,
                Err(reason) => {
                    self.skip(raw.get(), format!("step {}: {reason}", nth + 1));
                    continue;
                }
            };
            for reason in &step.notes {
                self.skip(raw.get(), format!("step {}: {reason}", nth + 1));
            }
            match &step.step {
                Some(of) if of.is_copied_context && has_original => {
                    carried.extend(step.step);
                    continue;
                }
                Some(of) => has_original |= !of.is_copied_context,
                None => {}
            }
            self.compaction(std::mem::take(&mut carried))?;
            self.emit(step, raw, &mut calls)?;
        }
        self.compaction(carried)?;
        if !self.transcript.is_unfinished() {
            self.transcript.ended_as(Some(LoopStatus::Completed));
        }
        Ok(calls)
    }

    fn emit(
        &mut self,
        read: ForeignStep,
        raw: &RawValue,
        calls: &mut StartingCalls,
    ) -> Result<(), ImportError> {
        let Some(step) = &read.step else {
            let record = json(raw).map_err(ImportError::NoTranscript)?;
            let record = extension(Some(&read.source), record);
            return self.transcript.extension(record, raw.get().as_bytes());
        };
        let has_message = step.message.as_str() != "\"\"";
        let message = with_extra_source(message_of(step), read.rest.clone());
        let bytes = read.text.as_bytes();
        match step.source {
            StepSource::User => {
                self.transcript.ended_as(Some(LoopStatus::Completed));
                self.transcript.prompt("", message, bytes)?;
            }
            StepSource::Agent => self.transcript.answer(String::new, message, bytes)?,
            StepSource::System if has_message || step.results().is_empty() => {
                self.transcript.extension(message, bytes)?;
            }
            StepSource::System => {}
        }
        for result in step.results() {
            let call = result.source_call_id.clone().filter(|id| !id.is_empty());
            for subagent in &result.subagent_trajectory_ref {
                if let (Some(id), Some(call)) = (&subagent.trajectory_id, &call) {
                    calls.insert(id.clone(), call.clone());
                }
            }
            let Some(content) = &result.content else {
                continue;
            };
            let text = serde_json::to_string(result).unwrap_or_default();
            match call {
                Some(_) => {
                    let message = result_of(step, result);
                    self.transcript
                        .result(String::new, message, text.as_bytes())?;
                }
                None => {
                    let message = by_harness(user(content_of(content), None));
                    self.transcript.observation(message, text.as_bytes())?;
                }
            }
        }
        Ok(())
    }

    /// Adds the compaction that left these steps of the history.
    fn compaction(&mut self, carried: Vec<Step>) -> Result<(), ImportError> {
        let Some(first) = carried.first() else {
            return Ok(());
        };
        let record = first.extra.as_ref().map(|extra| Fields::parse(extra.get()));
        let record = record.and_then(Result::ok).unwrap_or_default();
        let record = record
            .get("compaction")
            .and_then(|record| json(record).ok());
        let record = record.unwrap_or_default();
        let strategy = Fields::parse(record.as_str()).unwrap_or_default();
        let strategy = strategy.text("strategy").unwrap_or_else(|| TOOL.into());
        let mut messages = Vec::new();
        for step in &carried {
            let message = match step.source {
                StepSource::System => by_harness(user(content_of(&step.message), None)),
                StepSource::User | StepSource::Agent => message_of(step),
            };
            messages.push(message);
            let results = step.results().iter();
            let results = results.filter(|result| result.source_call_id.is_some());
            messages.extend(results.map(|result| result_of(step, result)));
        }
        let effect = FoundEffect::Summary {
            messages,
            first_kept: None,
        };
        // The next steps belong to another loop.
        self.transcript.end_loop()?;
        self.transcript.compaction(&strategy, effect, record)
    }

    /// Reads the embedded trajectories of session number `parent`.
    fn subagents(
        &mut self,
        parent: usize,
        embedded: &[&'a RawValue],
        calls: &StartingCalls,
        depth: usize,
    ) -> Result<(), ImportError> {
        for (nth, raw) in embedded.iter().enumerate() {
            let place = |reason: &str| format!("embedded trajectory {}: {reason}", nth + 1);
            if depth >= MAX_DEPTH {
                self.skip(raw.get(), place("nested too deeply"));
                continue;
            }
            let mut fields = match Fields::parse(raw.get()) {
                Ok(fields) => fields,
                Err(reason) => {
                    self.skip(raw.get(), place(&reason));
                    continue;
                }
            };
            let Some(steps) = fields.take("steps").and_then(list) else {
                self.skip(raw.get(), place("its `steps` are missing or no list"));
                continue;
            };
            if is_only_context(&steps) {
                self.skip(raw.get(), place("it only repeats context"));
                continue;
            }
            let inner = fields.take("subagent_trajectories").and_then(list);
            let id = fields.text("trajectory_id");
            let id = id.unwrap_or_else(|| (nth + 1).to_string());
            let call = calls.get(&id);
            let (head, notes) = self.subagent_head(parent, &mut fields, &id, call)?;
            notes
                .into_iter()
                .for_each(|note| self.skip(raw.get(), note));
            let number = self.transcript.add_session(head);
            self.transcript.select(number)?;
            let started = self.steps(&steps)?;
            if let Some(call) = call {
                self.link(parent, number, call);
            }
            self.subagents(number, &inner.unwrap_or_default(), &started, depth + 1)?;
        }
        Ok(())
    }

    fn subagent_head(
        &self,
        parent: usize,
        fields: &mut Fields<'_>,
        id: &str,
        call: Option<&String>,
    ) -> Result<(SessionHead, Vec<String>), ImportError> {
        let (mut head, notes) = session_head(fields, 0)?;
        let main = self.transcript.head(parent);
        let name = format!("{}/{id}", main.session.session_id);
        head.identity = match (&main.identity, SessionId::new(name.as_str())) {
            (Identity::Own(_), Ok(own)) => {
                head.session.session_id = own.clone();
                Identity::Own(own)
            }
            (Identity::Own(_), Err(_)) => Identity::Key(shown(&name)),
            (Identity::Key(key) | Identity::Series(key), _) => Identity::Key(format!("{key}/{id}")),
        };
        let site = call.and_then(|call| self.transcript.call(parent, call));
        head.session.parent_spawn_ref = Some(ParentSpawnRef {
            parent_session_id: main.session.session_id.clone(),
            parent_loop_id: site.map(|(_, loop_id)| loop_id.clone()),
            tool_call_id: call.cloned(),
            tool_name: site.map(|(tool, _)| tool.to_owned()),
            extra: Extra::default(),
        });
        Ok((head, notes))
    }

    /// Records in session number `parent` which loop of the selected session a call started.
    fn link(&mut self, parent: usize, child: usize, call: &str) {
        let Some(first) = self.transcript.loop_at(0) else {
            return;
        };
        let child_loop_id = first.id.clone();
        let tool = self.transcript.call(parent, call).map(|(tool, _)| tool);
        let child = ChildLoopRef {
            tool_call_id: Some(call.to_owned()),
            tool_name: tool.map(str::to_owned),
            child_loop_id,
            child_session_id: Some(self.transcript.head(child).session.session_id.clone()),
            extra: Extra::default(),
        };
        self.transcript.started(parent, call, child);
    }
}

/// True if a trajectory only repeats the context of another.
fn is_only_context(steps: &[&RawValue]) -> bool {
    let is_copied = |raw: &&RawValue| {
        let fields = Fields::parse(raw.get()).unwrap_or_default();
        fields.read("is_copied_context") == Some(true)
    };
    !steps.is_empty() && steps.iter().all(is_copied)
}
