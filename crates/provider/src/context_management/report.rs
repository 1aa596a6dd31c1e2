//! The report in an answer: the field `context_management` with its list `applied_edits`.

use loopstore_model::json::json_object;
use loopstore_model::{
    AppliedEdit, AppliedEdits, ClearedThinking, ClearedToolUses, Extra, Int, Json, SealingProvider,
};

json_object! {
    /// The field of an answer.
    pub struct AnswerReport {
        /// The edits.
        list applied_edits: Vec<Json> = "applied_edits",
        /// The edits that the request asked for. The provider does not write them: a caller who knows them adds them.
        maybe edits: Json = "edits",
    }
}

json_object! {
    /// The report of an edit `clear_tool_uses_20250919`.
    pub struct ToolUsesReport {
        /// The type of the edit.
        must name: String = "type",
        /// The number of tool uses.
        must cleared_tool_uses: Int = "cleared_tool_uses",
        /// The number of tokens.
        maybe cleared_input_tokens: Int = "cleared_input_tokens",
    }
}

json_object! {
    /// The report of an edit `clear_thinking_20251015`.
    pub struct ThinkingReport {
        /// The type of the edit.
        must name: String = "type",
        /// The number of turns.
        must cleared_thinking_turns: Int = "cleared_thinking_turns",
        /// The number of tokens.
        maybe cleared_input_tokens: Int = "cleared_input_tokens",
    }
}

/// The field with what a report has besides.
const SOURCE: &str = "source";

/// Reads the field `context_management` of an answer, as its JSON. Returns `None` if the value is not such a report;
/// the edits are empty if nothing was cleared. Edits of an unknown type are kept whole, and unknown fields in the
/// field `source`. If the caller added the `edits` of the request to the field, they are the setting of the report.
///
/// ```
/// use loopstore_model::{AppliedEdit, Json};
/// use loopstore_provider::context_management::read_report;
///
/// let report = Json::parse(
///     r#"{"applied_edits": [
///         {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50000}
///     ]}"#,
/// )?;
/// let edits = read_report(&report).unwrap();
/// assert_eq!(edits.strategy, "provider:anthropic");
/// assert!(matches!(&edits.edits[0], AppliedEdit::ClearedToolUses(uses) if uses.count.get() == 8));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn read_report(report: &Json) -> Option<AppliedEdits> {
    let report: AnswerReport = report.read().ok()?;
    let edits = report.applied_edits.into_iter().map(edit).collect();
    let mut applied = AppliedEdits::new(SealingProvider::Anthropic.strategy(), edits);
    applied.setting = report.edits.and_then(|edits| setting(&edits));
    applied.extra = kept(&report.extra);
    Some(applied)
}

/// Returns the setting of a request with these edits, in the form of its field.
fn setting(edits: &Json) -> Option<Json> {
    #[derive(serde::Serialize)]
    struct Setting<'a> {
        edits: &'a Json,
    }
    Json::of(&Setting { edits }).ok()
}

fn edit(raw: Json) -> AppliedEdit {
    let known = match raw.type_name().as_deref() {
        Some("clear_tool_uses_20250919") => tool_uses(&raw),
        Some("clear_thinking_20251015") => thinking(&raw),
        _ => None,
    };
    known.unwrap_or(AppliedEdit::Other(raw))
}

fn tool_uses(raw: &Json) -> Option<AppliedEdit> {
    let report: ToolUsesReport = raw.read().ok()?;
    Some(AppliedEdit::ClearedToolUses(ClearedToolUses {
        count: amount(report.cleared_tool_uses)?,
        tokens: report.cleared_input_tokens,
        tool_call_ids: None,
        extra: kept(&report.extra),
    }))
}

fn thinking(raw: &Json) -> Option<AppliedEdit> {
    let report: ThinkingReport = raw.read().ok()?;
    Some(AppliedEdit::ClearedThinking(ClearedThinking {
        turns: amount(report.cleared_thinking_turns)?,
        tokens: report.cleared_input_tokens,
        extra: kept(&report.extra),
    }))
}

fn amount(count: Int) -> Option<Int> {
    (count.get() >= 0).then_some(count)
}

/// Returns the unknown fields, unless they are `null`, in the field `source`.
fn kept(unknown: &Extra) -> Extra {
    let mut extra = Extra::default();
    let mut fields = Extra::default();
    for (key, value) in unknown.iter().filter(|(_, value)| !value.is_null()) {
        fields.insert(key, value.clone());
    }
    if !fields.is_empty()
        && let Ok(fields) = Json::of(&SourceFields { extra: fields })
    {
        extra.insert(SOURCE, fields);
    }
    extra
}

json_object! {
    /// The unknown fields of a report.
    pub struct SourceFields {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(report: &str) -> Option<String> {
        let read = read_report(&Json::parse(report).unwrap())?;
        Some(serde_json::to_string(&read).unwrap())
    }

    #[test]
    fn known_edits_are_read_and_others_are_kept() {
        let report = r#"{"applied_edits":[
            {"type":"clear_thinking_20251015","cleared_thinking_turns":3,"cleared_input_tokens":15000},
            {"type":"clear_tool_uses_20250919","cleared_tool_uses":8,"cleared_input_tokens":50000,"n":1.50},
            {"type":"clear_images_2027","cleared":1},
            {"type":"clear_tool_uses_20250919","cleared_tool_uses":-1}],"later":true,"none":null}"#;
        let expected = concat!(
            r#"{"strategy":"provider:anthropic","edits":["#,
            r#"{"type":"clearedThinking","turns":3,"tokens":15000},"#,
            r#"{"type":"clearedToolUses","count":8,"tokens":50000,"source":{"n":1.50}},"#,
            r#"{"type":"clear_images_2027","cleared":1},"#,
            r#"{"type":"clear_tool_uses_20250919","cleared_tool_uses":-1}],"source":{"later":true}}"#,
        );
        assert_eq!(read(report).as_deref(), Some(expected));
    }

    #[test]
    fn the_edits_of_the_request_are_the_setting() {
        let report = r#"{"applied_edits":[{"type":"clear_tool_uses_20250919","cleared_tool_uses":1}],
            "edits":[{"type":"clear_tool_uses_20250919","keep":{"type":"tool_uses","value":1}}]}"#;
        let expected = concat!(
            r#"{"strategy":"provider:anthropic","edits":[{"type":"clearedToolUses","count":1}],"#,
            r#""setting":{"edits":[{"type":"clear_tool_uses_20250919","keep":{"type":"tool_uses","value":1}}]}}"#,
        );
        assert_eq!(read(report).as_deref(), Some(expected));
    }

    #[test]
    fn another_shape_is_no_report() {
        for other in [
            "7",
            "[]",
            r#"{"applied_edits":7}"#,
            r#"{"applied_edits":null}"#,
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        let nothing = r#"{"strategy":"provider:anthropic","edits":[]}"#;
        assert_eq!(read(r#"{"applied_edits":[]}"#).as_deref(), Some(nothing));
    }
}
