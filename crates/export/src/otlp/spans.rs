//! The spans of one loop: its agent, its answers and its tools.

use std::ops::ControlFlow;

use loopstore::extend::{self as store, LoopKey, MessageRow, StoreResult, Tick, codec};
use loopstore::model::{
    AgentMessage, AssistantMessage, ContinuationKind, ExtensionMessage, LlmMessage, LoopStatus,
    Message, Time, ToolResultMessage, extension_kinds,
};

use super::history::{TokenSums, add_usage};
use super::parts::{instructions_json, messages_json, opaque_items, system_texts};
use super::report::LoopGaps;
use super::tools::{SpanPlace, add_result, tool_span};
use super::wire::{
    CLIENT, INTERNAL, OtlpAttributes, OtlpEvent, OtlpLink, OtlpSpan, OtlpStatus, UnixNano, word,
};
use super::{OtlpExport, OtlpGap, ids};
use crate::{ExportError, ExportRange};

/// The walk over the messages of a loop.
pub(super) struct LoopSpans<'a, 'b> {
    export: &'a mut OtlpExport<'b>,
    range: &'a ExportRange,
    trace_id: String,
    agent_span: String,
    /// The loop and those before it on its chain, from the loop to the root, with the turns that belong to the chain.
    chain: Vec<(LoopKey, u32)>,
    start: UnixNano,
    /// The time of the message before.
    last: UnixNano,
    end: UnixNano,
    /// The messages since the last answer.
    inputs: Vec<Message>,
    system: Vec<String>,
    answer: Option<ModelCall>,
    totals: Option<TokenSums>,
    provider: Option<String>,
    /// The messages before the first answer, and the last answer, in the form of the conventions.
    prompt: Option<String>,
    reply: Option<String>,
    calls: u64,
    gaps: LoopGaps,
}

/// A call of the model: its answer, which may be several messages.
struct ModelCall {
    seq: u32,
    turn: Option<u32>,
    tick: Tick,
    start: UnixNano,
    end: UnixNano,
    messages: Vec<LlmMessage>,
}

impl<'a, 'b> LoopSpans<'a, 'b> {
    pub(super) fn new(
        export: &'a mut OtlpExport<'b>,
        range: &'a ExportRange,
    ) -> Result<Self, ExportError> {
        let (row, session) = (&range.row, &export.session.session_id);
        let trace_id = export.trace_id(&row.loop_id);
        let agent_span = ids::agent_span_id(session, &row.loop_id);
        let mut chain = Vec::new();
        let mut cut = u32::MAX;
        export.read.walk(row.key, &mut |found| {
            chain.push((found.key, cut));
            cut = found.parent_cut().whole;
            Ok(ControlFlow::Continue(()))
        })?;
        let start = start_of(export, range)?;
        Ok(Self {
            export,
            range,
            trace_id,
            agent_span,
            chain,
            start,
            last: start,
            end: start,
            inputs: Vec::new(),
            system: Vec::new(),
            answer: None,
            totals: None,
            provider: None,
            prompt: None,
            reply: None,
            calls: 0,
            gaps: LoopGaps::default(),
        })
    }

    /// Writes the spans; that of the agent is the last.
    pub(super) fn write(mut self) -> Result<(), ExportError> {
        let (read, range) = (self.export.read, self.range);
        crate::each_message(read, range, &mut |row| self.message(row))?;
        self.finish_answer()?;
        let mut events = self.unanswered_input()?;
        let names = &self.export.names;
        let content = self.export.content;
        events.extend(
            self.export
                .history
                .events(read, range.row.key, names, content)?,
        );
        let span = self.agent(events);
        self.export.write_span(&span)?;
        self.export.report.merge(self.gaps);
        Ok(())
    }

    fn message(&mut self, row: MessageRow) -> Result<(), ExportError> {
        let (seq, turn, tick) = (row.seq, row.turn, row.tick);
        let at = self.time(row.created_at);
        match self.decode(row)? {
            AgentMessage::Extension(note) => self.note(&note),
            AgentMessage::Llm(llm) => match &llm.message {
                Message::Assistant(_) => {
                    if self.answer.as_ref().is_none_or(|open| open.turn != turn) {
                        self.finish_answer()?;
                        let start = self.start_of_call(at);
                        self.answer = Some(ModelCall {
                            seq,
                            turn,
                            tick,
                            start,
                            end: at,
                            messages: Vec::new(),
                        });
                    }
                    for call in llm.message.tool_calls() {
                        let place = place(
                            self.export.session,
                            self.range,
                            &self.trace_id,
                            &self.agent_span,
                            self.export.content,
                        );
                        self.export.tools.begin(&place, turn, at, call);
                    }
                    if let Some(answer) = &mut self.answer {
                        answer.end = at.max(answer.end);
                        answer.messages.push(llm);
                    }
                }
                Message::ToolResult(result) => {
                    self.finish_answer()?;
                    self.result(seq, at, result)?;
                    self.inputs.push(llm.message);
                }
                Message::User(_) => {
                    self.finish_answer()?;
                    self.inputs.push(llm.message);
                }
            },
        }
        self.last = at;
        self.end = self.end.max(at);
        Ok(())
    }

    /// Decodes a message. Without content, images are not read.
    fn decode(&self, row: MessageRow) -> StoreResult<AgentMessage> {
        match self.export.has_content() {
            true => store::decode(self.export.read, row.body),
            false => codec::decode(row.body, &mut |_| Ok(None)),
        }
    }

    /// Returns the time of a message, else that of the message before.
    fn time(&mut self, at: Option<i64>) -> UnixNano {
        let known = at.and_then(UnixNano::from_millis);
        if known.is_none() {
            self.gaps.add(OtlpGap::TimeMissing);
        }
        known.unwrap_or(self.last)
    }

    /// Returns the start of a call whose answer begins at `at`: the time of its last input.
    fn start_of_call(&mut self, at: UnixNano) -> UnixNano {
        if self.last > at {
            self.gaps.add(OtlpGap::TimeReversed);
        }
        self.last.min(at)
    }

    fn note(&mut self, note: &ExtensionMessage) {
        match note.kind.as_str() {
            extension_kinds::SYSTEM => self.system.extend(system_texts(&note.data)),
            extension_kinds::REMOVED => self.gaps.add(OtlpGap::MessageRemoved),
            _ => self.gaps.add(OtlpGap::NoteOmitted),
        }
    }

    /// Writes the span of the tool that a result belongs to.
    fn result(
        &mut self,
        seq: u32,
        at: UnixNano,
        result: &ToolResultMessage,
    ) -> Result<(), ExportError> {
        let content = self.export.content;
        let loops = self.chain.iter().map(|(key, _)| *key);
        let open = self.export.tools.end(loops, result);
        let mut span = match open {
            Some(span) => span,
            None => {
                self.gaps.add(OtlpGap::CallMissing);
                let session = self.export.session;
                let id = ids::result_span_id(&session.session_id, &self.range.row.loop_id, seq);
                let (trace, agent) = (&self.trace_id, &self.agent_span);
                let place = place(session, self.range, trace, agent, content);
                let mut span = tool_span(&place, id, &result.tool_name, &result.tool_call_id, at);
                span.attributes.flag("loopstore.tool.call_missing");
                span
            }
        };
        if at < span.start_time_unix_nano {
            self.gaps.add(OtlpGap::TimeReversed);
        }
        span.end_time_unix_nano = at.max(span.start_time_unix_nano);
        add_result(&mut span, result, content)?;
        self.export.write_span(&span)
    }

    /// Writes the span of the answer that has been read.
    fn finish_answer(&mut self) -> Result<(), ExportError> {
        let Some(call) = self.answer.take() else {
            return Ok(());
        };
        let session = &self.export.session.session_id;
        let mut attributes = OtlpAttributes::default();
        attributes.text("gen_ai.operation.name", "chat");
        let named = |field: fn(&AssistantMessage) -> Option<&String>| {
            let answers = call
                .messages
                .iter()
                .filter_map(|llm| assistant(&llm.message));
            answers.filter_map(field).next_back().cloned()
        };
        let content = self.export.content;
        let model = named(|answer| answer.model.as_ref());
        let model = model.map(|name| content.name(&name).to_owned());
        let provider = provider_of(
            named(|answer| answer.provider.as_ref()),
            model.as_deref(),
            &mut self.gaps,
        );
        let provider = content.name(&provider).to_owned();
        attributes.text("gen_ai.provider.name", provider.as_str());
        self.provider.get_or_insert(provider);
        attributes.text("gen_ai.conversation.id", session.as_str());
        if model.is_none() {
            self.gaps.add(OtlpGap::ModelMissing);
        }
        attributes.text_if("gen_ai.response.model", model.as_deref());
        let response = call.messages.iter().find_map(LlmMessage::response);
        let response = response.and_then(|id| serde_json::from_str::<String>(id).ok());
        attributes.text_if("gen_ai.response.id", response);
        let stop = named(|answer| answer.stop_reason.as_ref());
        let error = named(|answer| answer.error_message.as_ref());
        if let Some(stop) = &stop {
            attributes.list("gen_ai.response.finish_reasons", [finish_reason(stop)]);
        }
        if self.export.history.is_compacted(&self.chain, call.tick) {
            attributes.flag("gen_ai.conversation.compacted");
        }
        self.add_usage_of(&call, &mut attributes);
        attributes.text("loopstore.loop.id", self.range.row.loop_id.as_str());
        if let Some(turn) = call.turn {
            attributes.int("loopstore.turn", u64::from(turn));
        }
        attributes.int("loopstore.seq", u64::from(call.seq));
        self.add_content(&call, &mut attributes)?;
        let status = error_status(stop.as_deref(), error, self.export.has_content());
        if let Some((kind, _)) = &status {
            attributes.text("error.type", *kind);
        }
        self.calls += 1;
        let span = OtlpSpan {
            trace_id: self.trace_id.clone(),
            span_id: ids::chat_span_id(session, &self.range.row.loop_id, call.seq),
            parent_span_id: Some(self.agent_span.clone()),
            name: match &model {
                Some(model) => format!("chat {model}"),
                None => "chat".to_owned(),
            },
            kind: CLIENT,
            start_time_unix_nano: call.start,
            end_time_unix_nano: call.end,
            attributes,
            events: Vec::new(),
            links: Vec::new(),
            status: status.map(|(_, status)| status),
        };
        self.export.write_span(&span)
    }

    fn add_usage_of(&mut self, call: &ModelCall, attributes: &mut OtlpAttributes) {
        let answers = call
            .messages
            .iter()
            .filter_map(|llm| assistant(&llm.message));
        let mut sums: Option<TokenSums> = None;
        for usage in answers.filter_map(|answer| answer.usage.as_ref()) {
            sums.get_or_insert_default().add(TokenSums::of(usage));
        }
        match sums {
            None => self.gaps.add(OtlpGap::UsageMissing),
            Some(sums) => {
                add_usage(attributes, &sums);
                self.totals.get_or_insert_default().add(sums);
            }
        }
    }

    /// Adds the messages of a call: those since the call before, and the answer.
    fn add_content(
        &mut self,
        call: &ModelCall,
        attributes: &mut OtlpAttributes,
    ) -> Result<(), ExportError> {
        let inputs = std::mem::take(&mut self.inputs);
        let system = std::mem::take(&mut self.system);
        let answers = || call.messages.iter().map(|llm| &llm.message);
        let opaque = inputs.iter().chain(answers()).map(opaque_items).sum();
        self.gaps.add_many(OtlpGap::OpaqueOmitted, opaque);
        attributes.int("loopstore.input.messages", inputs.len() as u64);
        if !self.export.has_content() {
            return Ok(());
        }
        if !system.is_empty() {
            attributes.text("gen_ai.system_instructions", instructions_json(&system)?);
        }
        let input = messages_json(&inputs, false)?;
        let output = messages_json(answers(), true)?;
        attributes.text("gen_ai.input.messages", input.as_str());
        attributes.text("gen_ai.output.messages", output.as_str());
        self.prompt.get_or_insert(input);
        self.reply = Some(output);
        Ok(())
    }

    /// Returns the event of the messages that no answer follows.
    fn unanswered_input(&mut self) -> Result<Vec<OtlpEvent>, ExportError> {
        let inputs = std::mem::take(&mut self.inputs);
        let system = std::mem::take(&mut self.system);
        if inputs.is_empty() && system.is_empty() {
            return Ok(Vec::new());
        }
        let count = (inputs.len() + system.len()) as u64;
        self.gaps.add_many(OtlpGap::InputUnanswered, count);
        let opaque = inputs.iter().map(opaque_items).sum();
        self.gaps.add_many(OtlpGap::OpaqueOmitted, opaque);
        let mut attributes = OtlpAttributes::default();
        attributes.int("loopstore.input.messages", inputs.len() as u64);
        if self.export.has_content() {
            if !system.is_empty() {
                attributes.text("gen_ai.system_instructions", instructions_json(&system)?);
            }
            attributes.text("gen_ai.input.messages", messages_json(&inputs, false)?);
        }
        Ok(vec![OtlpEvent {
            time_unix_nano: self.last,
            name: "loopstore.unanswered_input",
            attributes,
        }])
    }

    /// Returns the span of the agent.
    fn agent(&mut self, events: Vec<OtlpEvent>) -> OtlpSpan {
        let (row, session) = (&self.range.row, self.export.session);
        let mut attributes = OtlpAttributes::default();
        attributes.text("gen_ai.operation.name", "invoke_agent");
        attributes.text_if("gen_ai.provider.name", self.provider.take());
        attributes.text("gen_ai.conversation.id", session.session_id.as_str());
        let agent = session.agent_id.as_deref();
        let agent = agent.map(|name| self.export.content.name(name));
        attributes.text_if("gen_ai.agent.name", agent);
        if let Some(totals) = &self.totals {
            add_usage(&mut attributes, totals);
        }
        attributes.text("loopstore.loop.id", row.loop_id.as_str());
        attributes.text("loopstore.loop.status", word(row.status.as_str()));
        let kind: Option<ContinuationKind> = serde_json::from_str(&row.kind).ok();
        let kind = kind.as_ref().map_or("Other", kind_word);
        attributes.text("loopstore.loop.kind", kind);
        attributes.int("loopstore.loop.calls", self.calls);
        attributes.text_if("gen_ai.input.messages", self.prompt.take());
        attributes.text_if("gen_ai.output.messages", self.reply.take());
        for (gap, count) in self.gaps.counts() {
            attributes.int(&format!("loopstore.gap.{}", gap.as_str()), count);
        }
        let name = match agent {
            Some(agent) => format!("invoke_agent {agent}"),
            None => "invoke_agent".to_owned(),
        };
        let is_failed = matches!(row.status, LoopStatus::Rejected | LoopStatus::Aborted);
        if is_failed {
            attributes.text("error.type", row.status.as_str().to_ascii_lowercase());
        }
        let ended = row.ended_at.as_deref().and_then(time_of);
        let end = ended.map_or(self.end, |ended| ended.max(self.end));
        OtlpSpan {
            trace_id: self.trace_id.clone(),
            span_id: self.agent_span.clone(),
            parent_span_id: (self.export.origin.as_ref()).map(|origin| origin.span_id.clone()),
            name,
            kind: INTERNAL,
            start_time_unix_nano: self.start,
            end_time_unix_nano: end,
            attributes,
            events,
            links: self.links(),
            status: is_failed.then(|| OtlpStatus::error(None)),
        }
    }

    /// Returns the link to the loop that this one continues.
    fn links(&self) -> Vec<OtlpLink> {
        let row = &self.range.row;
        let Some(parent) = row.parent_loop_id.as_ref().filter(|_| row.parent.is_some()) else {
            return Vec::new();
        };
        let mut attributes = OtlpAttributes::default();
        attributes.text("loopstore.link", "continues");
        attributes.text("loopstore.loop.id", parent.as_str());
        if let Some(turn) = row.parent_turn {
            attributes.int("loopstore.turn", u64::from(turn));
        }
        vec![OtlpLink {
            trace_id: self.export.trace_id(parent),
            span_id: ids::agent_span_id(&self.export.session.session_id, parent),
            attributes,
        }]
    }
}

fn place<'p>(
    session: &'p store::SessionRow,
    range: &'p ExportRange,
    trace_id: &'p str,
    agent_span: &'p str,
    content: super::OtlpContent,
) -> SpanPlace<'p> {
    SpanPlace {
        session: &session.session_id,
        key: range.row.key,
        loop_id: &range.row.loop_id,
        trace_id,
        agent_span,
        content,
    }
}

fn assistant(message: &Message) -> Option<&AssistantMessage> {
    match message {
        Message::Assistant(answer) => Some(answer),
        _ => None,
    }
}

fn time_of(text: &str) -> Option<UnixNano> {
    UnixNano::from_millis(Time::from_text(text).millis()?)
}

/// Returns the start of a loop: its own, else that of its first turn with a time, else that of the session.
fn start_of(export: &OtlpExport<'_>, range: &ExportRange) -> StoreResult<UnixNano> {
    let (row, session) = (&range.row, export.session);
    if let Some(start) = row.started_at.as_deref().and_then(time_of) {
        return Ok(start);
    }
    let turns = export.read.turns(row.key, 0..row.totals.turns)?;
    let first = turns
        .iter()
        .find_map(|turn| UnixNano::from_millis(turn.started_at?));
    let created = || session.created_at.as_deref().and_then(time_of);
    Ok(first.or_else(created).unwrap_or_default())
}

fn kind_word(kind: &ContinuationKind) -> &'static str {
    match kind {
        ContinuationKind::Initial => "Initial",
        ContinuationKind::Default => "Default",
        ContinuationKind::Rerun { .. } => "Rerun",
        ContinuationKind::Branch { .. } => "Branch",
        ContinuationKind::Compaction => "Compaction",
        ContinuationKind::Other(_) => "Other",
    }
}

/// Returns a reason to stop in the words of the conventions.
fn finish_reason(reason: &str) -> String {
    match reason {
        "toolUse" => "tool_call",
        "aborted" => "error",
        "refusal" | "safety" => "content_filter",
        reason => word(reason),
    }
    .to_owned()
}

/// Returns the type and the status of an answer that is an error.
fn error_status(
    stop: Option<&str>,
    message: Option<String>,
    has_content: bool,
) -> Option<(&'static str, OtlpStatus)> {
    let kind = match stop {
        Some("aborted") => "aborted",
        Some("error") => "_OTHER",
        _ if message.is_some() => "_OTHER",
        _ => return None,
    };
    Some((kind, OtlpStatus::error(message.filter(|_| has_content))))
}

/// Returns the provider in the words of the conventions, else as the source names it. Without a name, the model
/// decides.
fn provider_of(provider: Option<String>, model: Option<&str>, gaps: &mut LoopGaps) -> String {
    if let Some(name) = provider {
        return match name.as_str() {
            "google" | "gemini" => "gcp.gemini".to_owned(),
            "google-vertex" | "vertex" | "vertexai" => "gcp.vertex_ai".to_owned(),
            "bedrock" | "amazon-bedrock" => "aws.bedrock".to_owned(),
            "azure" => "azure.ai.openai".to_owned(),
            "mistral" => "mistral_ai".to_owned(),
            "xai" => "x_ai".to_owned(),
            _ => name,
        };
    }
    gaps.add(OtlpGap::ProviderMissing);
    let model = model.unwrap_or_default();
    let known = [
        ("claude", "anthropic"),
        ("gpt-", "openai"),
        ("o1", "openai"),
        ("o3", "openai"),
        ("o4", "openai"),
        ("codex", "openai"),
        ("gemini", "gcp.gemini"),
        ("deepseek", "deepseek"),
        ("mistral", "mistral_ai"),
        ("grok", "x_ai"),
    ];
    let of_model = known.iter().find(|(prefix, _)| model.starts_with(prefix));
    of_model.map_or("unknown", |(_, name)| name).to_owned()
}
