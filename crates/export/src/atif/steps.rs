//! The steps of one trajectory, written as they are complete.

use std::collections::HashMap;
use std::io::Write;

use loopstore::extend::{self as store, LoopRow, MessageRow, StoreRead, codec};
use loopstore::model::{AgentMessage, Json, LoopId, Message, Role};
use loopstore_atif::form::{Observation, ObservationResult, Step, StepSource, SubagentRef};
use loopstore_atif::stored::{StepMessage, StoredExtra, StoredStep};
use serde_json::json;
use serde_json::value::RawValue;

use super::parts::{result_of, step_of, time_text};
use crate::ExportError;
use crate::omissions::{OmissionCounts, OmissionKind};

/// The sums of the metrics of all steps.
#[derive(Default)]
pub(super) struct MetricTotals {
    prompt: i64,
    completion: i64,
    cached: i64,
    cost: f64,
    has_cost: bool,
    has_tokens: bool,
}

/// Writes steps.
pub(super) struct StepWriter<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) omitted: &'a mut OmissionCounts,
    /// True if each step has the rows of its messages.
    pub(super) with_rows: bool,
    /// The sub-agents of calls, until the step of the call is written.
    pub(super) subagents: HashMap<String, Vec<SubagentRef>>,
    pub(super) count: u64,
    totals: MetricTotals,
    open: Option<OpenStep>,
    /// Records before the next step.
    waiting: Vec<StepEntry>,
    /// The chain of digests of the loop so far.
    chain: [u8; 32],
}

/// A step to which results may be added.
struct OpenStep {
    step: Step,
    loop_id: Option<LoopId>,
    entries: Vec<StepEntry>,
    /// Fields of `extra` beside the rows.
    extra: Option<(&'static str, Json)>,
}

/// A message of a step.
struct StepEntry {
    stored: StepMessage,
    message: Option<AgentMessage>,
    in_step: bool,
}

impl<'a> StepWriter<'a> {
    /// Returns a writer of the steps of one trajectory.
    pub(super) fn new(
        out: &'a mut dyn Write,
        omitted: &'a mut OmissionCounts,
        with_rows: bool,
    ) -> Self {
        Self {
            out,
            omitted,
            with_rows,
            subagents: HashMap::new(),
            count: 0,
            totals: MetricTotals::default(),
            open: None,
            waiting: Vec::new(),
            chain: [0; 32],
        }
    }

    /// Begins the messages of a loop; `chain` is the chain of digests before the first of them.
    pub(super) fn begin_loop(&mut self, chain: [u8; 32]) {
        self.chain = chain;
    }

    /// Adds a stored message.
    pub(super) fn message(
        &mut self,
        read: &dyn StoreRead,
        of: &LoopRow,
        row: MessageRow,
    ) -> Result<(), ExportError> {
        // A message without its content has no source of its time: the chain has it.
        let stamped = row.chain != codec::chain(&self.chain, &row.body.digest, None);
        self.chain = row.chain;
        let (role, removed) = (row.body.role, row.body.head.is_none());
        let stored = StepMessage {
            seq: row.seq,
            turn: row.turn,
            tokens: row.body.tokens,
            tick: row.tick,
            created_at: row.created_at,
            stamped,
            salt: row.body.salt.as_ref().map(hex::encode),
            digest: hex::encode(row.body.digest),
            removed,
            ..StepMessage::default()
        };
        let message = match removed {
            true => None,
            false => Some(store::decode(read, row.body)?),
        };
        self.add(Some(&of.loop_id), stored, role, message)
    }

    /// Adds a message of a context, which repeats messages of the history or replaces them.
    pub(super) fn copied(&mut self, message: &AgentMessage) -> Result<(), ExportError> {
        let stored = StepMessage::default();
        self.add(None, stored, message.role(), Some(message.clone()))?;
        if let Some(open) = &mut self.open {
            open.step.is_copied_context = true;
        }
        Ok(())
    }

    /// Adds a step with the texts that a compaction put in place of messages.
    pub(super) fn compaction(&mut self, text: &str, record: Json) -> Result<(), ExportError> {
        self.flush()?;
        let mut step = Step::new(StepSource::System, Json::string(text));
        step.is_copied_context = true;
        self.open = Some(OpenStep {
            step,
            loop_id: None,
            entries: Vec::new(),
            extra: Some(("compaction", record)),
        });
        self.flush()
    }

    fn add(
        &mut self,
        loop_id: Option<&LoopId>,
        stored: StepMessage,
        role: Role,
        message: Option<AgentMessage>,
    ) -> Result<(), ExportError> {
        let entry = StepEntry {
            stored,
            message,
            in_step: true,
        };
        if entry.message.is_none() {
            self.omitted.add(OmissionKind::RemovedMessage);
        }
        if role == Role::ToolResult {
            return self.result(loop_id, entry);
        }
        let step = match &entry.message {
            Some(message) => step_of(message, self.omitted),
            None => empty_step(role),
        };
        let Some(mut step) = step else {
            self.record(entry);
            return Ok(());
        };
        self.flush()?;
        let created = entry.stored.created_at.and_then(time_text);
        step.timestamp = step.timestamp.take().or(created);
        let mut entries = std::mem::take(&mut self.waiting);
        entries.push(entry);
        self.open = Some(OpenStep {
            step,
            loop_id: loop_id.cloned(),
            entries,
            extra: None,
        });
        Ok(())
    }

    /// Adds a record that has no step of its own.
    fn record(&mut self, mut entry: StepEntry) {
        self.omitted.add(OmissionKind::Record);
        entry.in_step = false;
        match &mut self.open {
            Some(open) => open.entries.push(entry),
            None => self.waiting.push(entry),
        }
    }

    fn result(
        &mut self,
        loop_id: Option<&LoopId>,
        mut entry: StepEntry,
    ) -> Result<(), ExportError> {
        let may_continue = |open: &OpenStep| {
            open.step.source == StepSource::Agent || open.step.observation.is_some()
        };
        if !self.open.as_ref().is_some_and(may_continue) {
            self.flush()?;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let open = self.open.get_or_insert_with(|| OpenStep {
            step: Step::new(StepSource::System, Json::string("")),
            loop_id: loop_id.cloned(),
            entries: waiting,
            extra: None,
        });
        let mut result = match &entry.message {
            Some(AgentMessage::Llm(llm)) => match &llm.message {
                Message::ToolResult(result) => {
                    let calls = &open.step.tool_calls;
                    let has_call = calls.iter().any(|c| c.tool_call_id == result.tool_call_id);
                    result_of(llm, result, has_call, self.omitted)
                }
                Message::User(_) | Message::Assistant(_) => ObservationResult::default(),
            },
            _ => ObservationResult {
                content: Some(Json::string("")),
                ..ObservationResult::default()
            },
        };
        if let Some(refs) =
            (result.source_call_id.as_ref()).and_then(|call| self.subagents.remove(call))
        {
            result.subagent_trajectory_ref = refs;
        }
        let results = &mut open.step.observation.get_or_insert_default().results;
        entry.stored.result = Some(results.len());
        results.push(result);
        open.entries.push(entry);
        Ok(())
    }

    /// Ends the loop: no result of the next loop belongs to its last step.
    pub(super) fn end_loop(&mut self, loop_id: &LoopId) -> Result<(), ExportError> {
        self.flush()?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        // A loop with records only.
        self.open = Some(OpenStep {
            step: Step::new(StepSource::System, Json::string("")),
            loop_id: Some(loop_id.clone()),
            entries: std::mem::take(&mut self.waiting),
            extra: None,
        });
        self.flush()
    }

    /// Writes the open step.
    pub(super) fn flush(&mut self) -> Result<(), ExportError> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        self.count += 1;
        open.step.step_id = self.count;
        self.add_subagents(&mut open.step);
        self.totals.add(&open.step);
        open.step.extra = self.extra(&mut open)?;
        let separator: &[u8] = if self.count > 1 { b",\n" } else { b"\n" };
        self.out.write_all(separator)?;
        serde_json::to_writer(&mut *self.out, &open.step)?;
        Ok(())
    }

    /// Adds the references to sub-agents whose calls have no result.
    fn add_subagents(&mut self, step: &mut Step) {
        for call in &step.tool_calls {
            let Some(refs) = self.subagents.remove(&call.tool_call_id) else {
                continue;
            };
            let seen: &mut Observation = step.observation.get_or_insert_default();
            seen.results.push(ObservationResult {
                source_call_id: Some(call.tool_call_id.clone()),
                subagent_trajectory_ref: refs,
                ..ObservationResult::default()
            });
        }
    }

    fn extra(&self, open: &mut OpenStep) -> Result<Option<Box<RawValue>>, ExportError> {
        if let Some((key, value)) = &open.extra {
            let text = format!("{{\"{key}\":{}}}", value.as_str());
            return Ok(Some(RawValue::from_string(text)?));
        }
        let Some(loop_id) = open.loop_id.take().filter(|_| self.with_rows) else {
            return Ok(None);
        };
        let mut messages = Vec::new();
        for mut entry in std::mem::take(&mut open.entries) {
            if let Some(message) = &entry.message {
                entry.stored.describe(&open.step, entry.in_step, message)?;
            }
            messages.push(entry.stored);
        }
        let loopstore = StoredStep { loop_id, messages };
        let text = serde_json::to_string(&StoredExtra { loopstore })?;
        Ok(Some(RawValue::from_string(text)?))
    }

    /// Returns the value of `final_metrics`.
    pub(super) fn final_metrics(&self) -> serde_json::Value {
        let mut metrics = json!({ "total_steps": self.count });
        let totals = &self.totals;
        if totals.has_tokens {
            metrics["total_prompt_tokens"] = totals.prompt.into();
            metrics["total_completion_tokens"] = totals.completion.into();
            metrics["total_cached_tokens"] = totals.cached.into();
        }
        if totals.has_cost {
            metrics["total_cost_usd"] = totals.cost.into();
        }
        metrics
    }
}

impl MetricTotals {
    fn add(&mut self, step: &Step) {
        let Some(metrics) = &step.metrics else {
            return;
        };
        let count = |count: Option<i64>| count.unwrap_or(0);
        self.has_tokens = true;
        self.prompt = self.prompt.saturating_add(count(metrics.prompt_tokens));
        let completion = count(metrics.completion_tokens);
        self.completion = self.completion.saturating_add(completion);
        self.cached = self.cached.saturating_add(count(metrics.cached_tokens));
        let cost = metrics.cost_usd.as_ref().and_then(|cost| cost.read().ok());
        if let Some(cost) = cost {
            let cost: f64 = cost;
            let sum = self.cost + cost;
            self.has_cost = true;
            self.cost = if sum.is_finite() { sum } else { self.cost };
        }
    }
}

/// Returns the step of a message whose content was removed.
fn empty_step(role: Role) -> Option<Step> {
    let source = match role {
        Role::User => StepSource::User,
        Role::Assistant => StepSource::Agent,
        Role::ToolResult | Role::Extension => return None,
    };
    Some(Step::new(source, Json::string("")))
}
