//! A session as traces of OpenTelemetry, by the semantic conventions for generative AI.
//!
//! The output is an OTLP JSON file: each line is one `ExportTraceServiceRequest`, which any collector reads. A loop is
//! a trace with an `invoke_agent` span; below it are a `chat` span for each call of the model and an `execute_tool`
//! span for each tool call. The loops of a sub-agent belong to the trace of the loop that started the sub-agent.
//! Compactions, edits, undos and redos are events of the `invoke_agent` span of their loop.
//!
//! Trace and span ids are derived from the ids of sessions, loops, messages and calls. So a second export has the
//! same bytes, and the exports of a session and of its sub-agents fit together.
//!
//! Attributes without a name in the conventions begin with `loopstore.`. Message lists are texts of JSON: the
//! conventions allow it for spans, the numbers of a tool's arguments keep their digits, and no nesting exceeds what
//! readers of protocol buffers accept.

mod history;
mod ids;
mod parts;
mod report;
mod request_lines;
mod spans;
mod tools;
mod wire;

use std::collections::HashMap;
use std::io::Write;

use loopstore::extend::{LoopKey, SessionRow, StoreRead};
use loopstore::model::{LoopId, Session};

use super::{ExportError, stretches};
use history::SessionHistory;
use request_lines::RequestLines;
use spans::LoopSpans;
use tools::PendingTools;

pub use report::{OtlpGap, OtlpReport};

/// The content of an OTLP export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpContent {
    /// Prompts, answers, thinking, arguments and results of tools, texts of compactions and edits, titles.
    Included,
    /// None of these texts: only ids, times, models, names of tools and agents, and counts. A name that is no plain
    /// word is `other`.
    Omitted,
}

impl OtlpContent {
    /// Returns a name as it is, or without content only if it is a plain word.
    fn name(self, name: &str) -> &str {
        match self {
            Self::Included => name,
            Self::Omitted => wire::word(name),
        }
    }
}

/// Writes the session.
pub(super) fn write(
    read: &dyn StoreRead,
    session: &SessionRow,
    leaf: Option<&LoopId>,
    content: OtlpContent,
    out: &mut dyn Write,
) -> Result<OtlpReport, ExportError> {
    let loops = stretches(read, session, leaf, leaf.is_some())?;
    let mut export = OtlpExport {
        read,
        session,
        content,
        origin: TraceOrigin::of(read, session)?,
        names: loops
            .iter()
            .map(|range| (range.row.key, range.row.loop_id.clone()))
            .collect(),
        history: SessionHistory::of(read, session)?,
        lines: RequestLines::new(out, session, content)?,
        tools: PendingTools::default(),
        report: OtlpReport::default(),
    };
    for range in &loops {
        LoopSpans::new(&mut export, range)?.write()?;
    }
    export.write_unanswered()?;
    export.lines.finish()?;
    Ok(export.report)
}

/// The state of an export.
struct OtlpExport<'a> {
    read: &'a dyn StoreRead,
    session: &'a SessionRow,
    content: OtlpContent,
    origin: Option<TraceOrigin>,
    /// The loops that are written.
    names: HashMap<LoopKey, LoopId>,
    history: SessionHistory,
    lines: RequestLines<'a>,
    tools: PendingTools,
    report: OtlpReport,
}

impl OtlpExport<'_> {
    fn has_content(&self) -> bool {
        self.content == OtlpContent::Included
    }

    /// Returns the trace of a loop of the session.
    fn trace_id(&self, loop_id: &LoopId) -> String {
        match &self.origin {
            Some(origin) => origin.trace_id.clone(),
            None => ids::trace_id(&self.session.session_id, loop_id),
        }
    }

    /// Writes the calls without a result.
    fn write_unanswered(&mut self) -> Result<(), ExportError> {
        for span in self.tools.take_unanswered() {
            self.report.add(OtlpGap::ResultMissing);
            self.write_span(&span)?;
        }
        Ok(())
    }

    fn write_span(&mut self, span: &wire::OtlpSpan) -> Result<(), ExportError> {
        self.report.spans += 1;
        self.report.events += span.events.len() as u64;
        self.lines.push(span)
    }
}

/// The trace and the span in which a session of a sub-agent was started.
struct TraceOrigin {
    trace_id: String,
    span_id: String,
}

/// The maximum number of sessions that started each other.
const MAX_DEPTH: usize = 64;

impl TraceOrigin {
    /// Returns the origin of a session; `None` if no loop of another session started it.
    fn of(read: &dyn StoreRead, session: &SessionRow) -> Result<Option<Self>, ExportError> {
        let starter = |row: &SessionRow| {
            let session: Session = serde_json::from_str(&row.meta).ok()?;
            session.parent_spawn_ref
        };
        let Some(first) = starter(session) else {
            return Ok(None);
        };
        let Some(mut loop_id) = first.parent_loop_id else {
            return Ok(None);
        };
        let mut parent = first.parent_session_id;
        let span_id = match &first.tool_call_id {
            Some(call) => ids::tool_span_id(&parent, &loop_id, call, 0),
            None => ids::agent_span_id(&parent, &loop_id),
        };
        for _ in 0..MAX_DEPTH {
            let Some(above) = read.session(&parent)?.and_then(|row| starter(&row)) else {
                break;
            };
            let Some(id) = above.parent_loop_id else {
                break;
            };
            (parent, loop_id) = (above.parent_session_id, id);
        }
        Ok(Some(Self {
            trace_id: ids::trace_id(&parent, &loop_id),
            span_id,
        }))
    }
}
