//! Rollouts from before September 2025, whose records have no envelope. The first record is the session metadata, items
//! are without an envelope, and lines of state are between them.

use loopstore::model::Json;

use super::items::{is_answer, is_result};
use crate::fields::Fields;
use crate::key_outline::KeyOutline;

/// True if a line can only be part of such a rollout.
pub(super) fn is_bare(line: &KeyOutline) -> bool {
    let is_header = line.has("id")
        && line.has("timestamp")
        && (line.has("instructions") || line.has("git"))
        && !line.has("type");
    is_header || line.has("record_type")
}

/// Returns a record with the envelope that later versions write around it, if it lacks one.
pub(super) fn enveloped(json: &str, record: &Fields<'_>) -> Option<String> {
    if record.get("payload").is_some() {
        return None;
    }
    let (kind, role) = (record.text("type"), record.text("role"));
    let of_session = record.text("id").and(record.text("timestamp"));
    match (kind, record.text("record_type"), of_session) {
        (None, None, Some(time)) => {
            let time = Json::string(&time);
            let time = time.as_str();
            Some(format!(
                r#"{{"timestamp":{time},"type":"session_meta","payload":{json}}}"#
            ))
        }
        (None, Some(kind), _) => {
            let kind = Json::string(&kind);
            let kind = kind.as_str();
            Some(format!(r#"{{"type":{kind},"payload":{json}}}"#))
        }
        (Some(kind), None, _) if is_item(&kind, &role.unwrap_or_default()) => {
            Some(format!(r#"{{"type":"response_item","payload":{json}}}"#))
        }
        _ => None,
    }
}

/// Reads a record, with the envelope that later versions write around it.
pub(super) fn with_envelope<T>(
    json: &str,
    read: impl FnOnce(&str, Fields<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let record = Fields::parse(json)?;
    match enveloped(json, &record) {
        None => read(json, record),
        Some(json) => read(&json, Fields::parse(&json)?),
    }
}

fn is_item(kind: &str, role: &str) -> bool {
    kind == "message" && !role.is_empty() || is_answer(kind, role) || is_result(kind)
}

/// Returns the folder that a text about the environment names.
pub(super) fn folder_in(text: &str) -> Option<&str> {
    let rest = text.trim_start().strip_prefix("<environment_context>")?;
    let (_, rest) = rest.split_once("<cwd>")?;
    let (folder, _) = rest.split_once("</cwd>")?;
    Some(folder.trim()).filter(|folder| !folder.is_empty())
}
