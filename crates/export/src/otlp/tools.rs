//! Tool calls from the answer that makes them to the message with the result.

use std::collections::{BTreeMap, HashMap};

use loopstore::extend::LoopKey;
use loopstore::model::{LoopId, SessionId, ToolCall, ToolResultMessage};

use super::parts::result_text;
use super::wire::{INTERNAL, OtlpAttributes, OtlpSpan, OtlpStatus, UnixNano};
use super::{OtlpContent, ids};
use crate::ExportError;

/// The calls without a result so far, by loop. The result of a call may be in a later loop.
#[derive(Default)]
pub(super) struct PendingTools {
    /// In the order of the calls, so that every export has the same order.
    calls: BTreeMap<(LoopKey, u32), PendingTool>,
    /// For each loop and id, the number of calls so far.
    counts: HashMap<(LoopKey, String), u32>,
    next: u32,
}

struct PendingTool {
    call_id: String,
    span: OtlpSpan,
}

/// The session, the loop and the trace of a span.
pub(super) struct SpanPlace<'a> {
    pub(super) session: &'a SessionId,
    pub(super) key: LoopKey,
    pub(super) loop_id: &'a LoopId,
    pub(super) trace_id: &'a str,
    pub(super) agent_span: &'a str,
    pub(super) content: OtlpContent,
}

impl PendingTools {
    /// Adds a call that an answer made in `turn` at `start`.
    pub(super) fn begin(
        &mut self,
        place: &SpanPlace<'_>,
        turn: Option<u32>,
        start: UnixNano,
        call: &ToolCall,
    ) {
        let count = self.counts.entry((place.key, call.id.clone())).or_default();
        let id = ids::tool_span_id(place.session, place.loop_id, &call.id, *count);
        *count += 1;
        let mut span = tool_span(place, id, &call.name, &call.id, start);
        if let Some(turn) = turn {
            span.attributes.int("loopstore.turn", u64::from(turn));
        }
        if place.content == OtlpContent::Included {
            let arguments = call.arguments.as_str();
            span.attributes
                .text("gen_ai.tool.call.arguments", arguments);
        }
        let call_id = call.id.clone();
        self.calls
            .insert((place.key, self.next), PendingTool { call_id, span });
        self.next += 1;
    }

    /// Returns the span of the oldest open call with this id in one of the loops, the first loop first.
    pub(super) fn end(
        &mut self,
        loops: impl IntoIterator<Item = LoopKey>,
        result: &ToolResultMessage,
    ) -> Option<OtlpSpan> {
        let key = loops.into_iter().find_map(|key| {
            let mut open = self.calls.range((key, 0)..=(key, u32::MAX));
            open.find(|(_, call)| call.call_id == result.tool_call_id)
                .map(|(key, _)| *key)
        })?;
        self.calls.remove(&key).map(|call| call.span)
    }

    /// Returns the spans of the calls without a result.
    pub(super) fn take_unanswered(&mut self) -> Vec<OtlpSpan> {
        let calls = std::mem::take(&mut self.calls).into_values();
        let unanswered = calls.map(|mut call| {
            call.span.attributes.flag("loopstore.tool.result_missing");
            call.span
        });
        unanswered.collect()
    }
}

/// Returns the span of a tool that ends when it starts.
pub(super) fn tool_span(
    place: &SpanPlace<'_>,
    span_id: String,
    name: &str,
    call_id: &str,
    at: UnixNano,
) -> OtlpSpan {
    let name = place.content.name(name);
    let mut attributes = OtlpAttributes::default();
    attributes.text("gen_ai.operation.name", "execute_tool");
    attributes.text("gen_ai.conversation.id", place.session.as_str());
    attributes.text("gen_ai.tool.name", name);
    attributes.text("gen_ai.tool.call.id", call_id);
    attributes.text("loopstore.loop.id", place.loop_id.as_str());
    OtlpSpan {
        trace_id: place.trace_id.to_owned(),
        span_id,
        parent_span_id: Some(place.agent_span.to_owned()),
        name: format!("execute_tool {name}").trim_end().to_owned(),
        kind: INTERNAL,
        start_time_unix_nano: at,
        end_time_unix_nano: at,
        attributes,
        events: Vec::new(),
        links: Vec::new(),
        status: None,
    }
}

/// Adds the result to the span of its tool.
pub(super) fn add_result(
    span: &mut OtlpSpan,
    result: &ToolResultMessage,
    content: OtlpContent,
) -> Result<(), ExportError> {
    if content == OtlpContent::Included {
        let text = result_text(&result.content)?;
        span.attributes.text("gen_ai.tool.call.result", text);
    }
    if result.is_error {
        span.attributes.text("error.type", "tool_error");
        span.status = Some(OtlpStatus::error(None));
    }
    Ok(())
}
