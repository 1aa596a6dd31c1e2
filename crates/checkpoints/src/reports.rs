//! Reports of Anthropic in the answers of a graph: what the provider cleared before the model read the messages.
//!
//! LangChain keeps the fields of a response in the field `response_metadata` of the answer, whose form both languages
//! store in the field `langgraph` of the message.

use loopstore::model::AppliedEdits;
use loopstore::provider::context_management::read_report;
use loopstore::{AgentMessage, Json, Role};
use serde::Deserialize;

/// The field of a message with what only LangChain knows.
const MARK: &str = "langgraph";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Marked {
    fields: ReportFields,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReportFields {
    response_metadata: Option<Json>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseMetadata {
    context_management: Option<Json>,
}

/// Returns the report of an answer; `None` if nothing was cleared. An answer that JSON cannot represent is stored in
/// LangGraph's own encoding, and its report is not read.
pub(crate) fn report_of(message: &AgentMessage) -> Option<AppliedEdits> {
    let AgentMessage::Llm(llm) = message else {
        return None;
    };
    let marked = llm
        .extra
        .get(MARK)
        .filter(|_| message.role() == Role::Assistant)?;
    // Most answers have no report, and their fields need not be parsed.
    if !marked.as_str().contains("applied_edits") {
        return None;
    }
    let fields = marked.read::<Marked>().ok()?.fields;
    let metadata: ResponseMetadata = fields.response_metadata?.read().ok()?;
    let report = read_report(&metadata.context_management?)?;
    (!report.edits.is_empty()).then_some(report)
}
