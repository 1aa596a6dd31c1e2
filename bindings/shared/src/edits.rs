//! Edits as JSON: their targets, as text or as fields, and their conditions.

use loopstore::{EditAction, EditFilter, EditRequest, EditTarget, LoopId, SessionHandle};
use serde::Deserialize;
use serde_json::Value;

use crate::errors::CallError;

/// The request of an edit.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GivenEdit {
    targets: Vec<Value>,
    /// Words that the messages contain.
    #[serde(rename = "match")]
    words: Option<String>,
    tool: Option<String>,
    larger: Option<u64>,
    older_than: Option<u32>,
    text: Option<String>,
    dry_run: bool,
    reason: Option<String>,
}

/// A target as fields: a call, or turns, a message or a part of it.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TargetFields {
    call: Option<String>,
    loop_id: Option<String>,
    turn: Option<u32>,
    last_turn: Option<u32>,
    seq: Option<u32>,
    part: Option<u32>,
}

/// Edits messages of a session; the action is a word, the request and the report are JSON.
pub fn edit(session: &SessionHandle, action: &str, request: &[u8]) -> Result<Vec<u8>, CallError> {
    let given: GivenEdit = serde_json::from_slice(request)?;
    let mut targets = read_targets(given.targets)?;
    let filter = EditFilter {
        words: given.words,
        tool: given.tool,
        larger: given.larger,
        older_than: given.older_than,
    };
    if filter != EditFilter::default() {
        targets.push(EditTarget::Matching(filter));
    }
    if targets.is_empty() {
        let text =
            "nothing to edit: name a target, or give `match`, `tool`, `larger` or `older_than`";
        return Err(CallError::Input(text.into()));
    }
    let request = EditRequest {
        text: given.text,
        dry_run: given.dry_run,
        reason: given.reason,
        ..EditRequest::new(action_named(action)?, targets)
    };
    Ok(serde_json::to_vec(&session.edit(&request)?)?)
}

/// Restores edited messages; the targets and the reports of the undone runs are JSON.
pub fn restore(session: &SessionHandle, targets: &[u8]) -> Result<Vec<u8>, CallError> {
    let targets = read_targets(serde_json::from_slice(targets)?)?;
    if targets.is_empty() {
        let text = "nothing to restore: name a turn, a message or a call";
        return Err(CallError::Input(text.into()));
    }
    Ok(serde_json::to_vec(&session.restore(&targets)?)?)
}

fn action_named(name: &str) -> Result<EditAction, CallError> {
    Ok(match name {
        "removed" => EditAction::Removed,
        "cleared" => EditAction::Cleared,
        "replaced" => EditAction::Replaced,
        other => {
            let text = format!("unknown action `{other}`; known are removed, cleared, replaced");
            return Err(CallError::Input(text));
        }
    })
}

fn read_targets(given: Vec<Value>) -> Result<Vec<EditTarget>, CallError> {
    let targets = given.into_iter().map(|target| match target {
        Value::String(text) => parse_target(&text),
        fields => serde_json::from_value::<TargetFields>(fields)?.target(),
    });
    targets.collect()
}

impl TargetFields {
    fn target(self) -> Result<EditTarget, CallError> {
        let is_place = self.loop_id.is_some()
            || self.turn.is_some()
            || self.last_turn.is_some()
            || self.seq.is_some()
            || self.part.is_some();
        let wrong = "a target has `call`, or `loop_id` and `turn`, with `last_turn`, or `seq` and then `part`";
        let wrong = || CallError::Input(wrong.into());
        if let Some(call) = self.call {
            return match is_place || call.is_empty() {
                true => Err(wrong()),
                false => Ok(EditTarget::Call(call)),
            };
        }
        let (Some(loop_id), Some(turn)) = (self.loop_id, self.turn) else {
            return Err(wrong());
        };
        let loop_id = LoopId::new(loop_id)?;
        Ok(match (self.last_turn, self.seq, self.part) {
            (None, Some(seq), Some(part)) => EditTarget::Part(loop_id, turn, seq, part),
            (None, Some(seq), None) => EditTarget::Message(loop_id, turn, seq),
            (last, None, None) => turns(loop_id, turn, last.unwrap_or(turn))?,
            _ => return Err(wrong()),
        })
    }
}

fn turns(loop_id: LoopId, first: u32, last: u32) -> Result<EditTarget, CallError> {
    if first > last {
        let text = format!("the range {first}..{last} of turns ends before it begins");
        return Err(CallError::Input(text));
    }
    Ok(EditTarget::Turns(loop_id, first..=last))
}

/// Parses a target: `LOOP:TURN`, `LOOP:FIRST..LAST`, `LOOP:TURN:SEQ`, `LOOP:TURN:SEQ:PART`, else the id of a call.
/// The numbers are read from the end, as the id of a loop may contain colons.
pub fn parse_target(text: &str) -> Result<EditTarget, CallError> {
    let text = text.trim();
    if text.is_empty() {
        let text = "a target is LOOP:TURN, LOOP:FIRST..LAST, LOOP:TURN:SEQ or the id of a call";
        return Err(CallError::Input(text.into()));
    }
    let range = text.rsplit_once(':').and_then(|(loop_id, range)| {
        let (first, last) = range.split_once("..")?;
        Some((loop_id, first.parse().ok()?, last.parse().ok()?))
    });
    if let Some((loop_id, first, last)) = range {
        return turns(LoopId::new(loop_id)?, first, last);
    }
    let (mut loop_id, mut numbers) = (text, Vec::new());
    while let Some((rest, number)) = loop_id.rsplit_once(':')
        && numbers.len() < 3
        && let Ok(number) = number.parse::<u32>()
    {
        loop_id = rest;
        numbers.insert(0, number);
    }
    Ok(match numbers[..] {
        [turn] => turns(LoopId::new(loop_id)?, turn, turn)?,
        [turn, seq] => EditTarget::Message(LoopId::new(loop_id)?, turn, seq),
        [turn, seq, part] => EditTarget::Part(LoopId::new(loop_id)?, turn, seq, part),
        _ => EditTarget::Call(text.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::{Message, Store};

    fn loop_id(id: &str) -> LoopId {
        LoopId::new(id).unwrap()
    }

    #[test]
    fn a_target_is_read_from_its_end() {
        for (text, target) in [
            ("loop-1:2", EditTarget::Turns(loop_id("loop-1"), 2..=2)),
            ("loop-1:2..4", EditTarget::Turns(loop_id("loop-1"), 2..=4)),
            ("a:b:2:3", EditTarget::Message(loop_id("a:b"), 2, 3)),
            ("loop-1:2:3:0", EditTarget::Part(loop_id("loop-1"), 2, 3, 0)),
            ("toolu_01", EditTarget::Call("toolu_01".into())),
            ("call:x", EditTarget::Call("call:x".into())),
        ] {
            assert_eq!(parse_target(text).unwrap(), target, "{text}");
        }
        for text in ["", " ", ":2", "loop-1:4..2"] {
            assert!(parse_target(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_is_read_or_rejected_with_a_reason() {
        let session = Store::in_memory().unwrap().session("s").unwrap();
        session
            .append([Message::user("a"), Message::assistant("b")])
            .unwrap();
        session
            .append([Message::user("c"), Message::assistant("d")])
            .unwrap();
        for (json, wrong) in [
            (r#"{}"#, "nothing to edit"),
            (r#"{"targets": [7]}"#, "invalid type"),
            (r#"{"targets": [{"turn": 1}]}"#, "a target has"),
            (r#"{"targets": [{"call": "c", "turn": 1}]}"#, "a target has"),
            (r#"{"targets": [{"loop_id": "l", "turn": -1}]}"#, "-1"),
            (r#"{"words": "a"}"#, "unknown field"),
        ] {
            let error = format!(
                "{:?}",
                edit(&session, "removed", json.as_bytes()).unwrap_err()
            );
            assert!(error.contains(wrong), "{json}: {error}");
        }
        assert!(edit(&session, "dropped", br#"{"match": "a"}"#).is_err());
        let whole = session.context().unwrap().messages;
        edit(
            &session,
            "removed",
            br#"{"targets": [{"loop_id": "loop-1", "turn": 0}]}"#,
        )
        .unwrap();
        assert_eq!(session.context().unwrap().messages.len(), 2);
        assert!(restore(&session, b"[]").is_err());
        restore(&session, br#"["loop-1:0"]"#).unwrap();
        assert_eq!(session.context().unwrap().messages, whole);
    }
}
