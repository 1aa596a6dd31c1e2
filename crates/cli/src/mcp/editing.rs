//! The tools that edit contexts: `drop` and `clear`. The messages stay stored and unchanged.

use loopstore::{
    Database, EditAction, EditFilter, EditReport, EditRequest, EditTarget, EditedMessage, LoopId,
    edit,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::scope::CallTarget;
use super::tools::{CallArguments, Lookup, ToolAnswer, ToolSpec, cut, loop_of, message, read};
use super::writing::{MAX_TEXT, NAMED, current_loop};

pub(super) static DROP: ToolSpec = ToolSpec {
    name: "drop",
    about: "Remove messages from your context that only take space or mislead: a failed detour, a wrong result. \
            They stay stored: `recall` and `expand` still read them, and `undo` takes the removal back. A tool call \
            and its result go together. Name a turn, a message or a call, or give conditions; see with \
            `dry_run` what would go.",
    properties: TARGETS,
    required: &[],
    answer: dropped,
};

pub(super) static CLEAR: ToolSpec = ToolSpec {
    name: "clear",
    about: "Show a marker of one line in your context in place of long texts that you no longer need, such as \
            old tool results: {\"larger\": 4096, \"older_than\": 5, \"tool\": \"read\"}. The marker names the \
            size and how to read the text, which stays stored; `undo` takes it back. See with `dry_run` what \
            would be cleared.",
    properties: TARGETS,
    required: &[],
    answer: cleared,
};

const TARGETS: &str = r#"{
    "loop_id": {"type": "string", "description": "the loop of the turn [default: the current one]"},
    "turn": {"type": "integer", "minimum": 0, "description": "the turn"},
    "last_turn": {"type": "integer", "minimum": 0, "description": "the last turn of a range"},
    "message": {"type": "integer", "minimum": 0, "description": "only this message of the turn"},
    "part": {"type": "integer", "minimum": 0, "description": "only this part of the message, from 0"},
    "call": {"type": "string", "description": "the id of a tool call, in place of a turn"},
    "match": {"type": "string", "description": "messages that contain these words, in place of a turn"},
    "tool": {"type": "string", "description": "results of this tool, in place of a turn"},
    "larger": {"type": "integer", "minimum": 0, "description": "messages of more than this number of bytes"},
    "older_than": {"type": "integer", "minimum": 0, "description": "messages that at least this number of turns follow"},
    "dry_run": {"type": "boolean", "description": "only report what would be edited"},
    "reason": {"type": "string", "description": "why; recorded with it"}
}"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditToolArgs {
    loop_id: Option<String>,
    turn: Option<u32>,
    last_turn: Option<u32>,
    message: Option<u32>,
    part: Option<u32>,
    call: Option<String>,
    #[serde(rename = "match")]
    words: Option<String>,
    tool: Option<String>,
    larger: Option<u64>,
    older_than: Option<u32>,
    #[serde(default)]
    dry_run: bool,
    reason: Option<String>,
}

impl EditToolArgs {
    fn filter(&self) -> EditFilter {
        EditFilter {
            words: self.words.clone(),
            tool: self.tool.clone(),
            larger: self.larger,
            older_than: self.older_than,
        }
    }

    /// Returns the target; `loop_id` is the loop of a turn.
    fn target(
        &self,
        loop_id: impl FnOnce() -> Result<LoopId, String>,
    ) -> Result<EditTarget, String> {
        let filter = self.filter();
        let has_filter = filter != EditFilter::default();
        let in_turn = self.last_turn.is_some() || self.message.is_some() || self.part.is_some();
        match (self.turn, &self.call, has_filter) {
            (None, Some(call), false) if !in_turn => Ok(EditTarget::Call(call.clone())),
            (None, None, true) if !in_turn => Ok(EditTarget::Matching(filter)),
            (Some(turn), None, false) => self.place(turn, loop_id()?),
            _ => Err("name one target: `turn` (with `last_turn`, or with `message` and `part`), `call`, or \
                      conditions (`match`, `tool`, `larger`, `older_than`)"
                .into()),
        }
    }

    fn place(&self, turn: u32, loop_id: LoopId) -> Result<EditTarget, String> {
        match (self.last_turn, self.message, self.part) {
            (None, Some(seq), Some(part)) => Ok(EditTarget::Part(loop_id, turn, seq, part)),
            (None, Some(seq), None) => Ok(EditTarget::Message(loop_id, turn, seq)),
            (last, None, None) if last.is_none_or(|last| turn <= last) => {
                Ok(EditTarget::Turns(loop_id, turn..=last.unwrap_or(turn)))
            }
            _ => Err(
                "a turn has `last_turn`, not before `turn`, or `message` and then `part`".into(),
            ),
        }
    }
}

fn dropped(
    _: &Lookup,
    store: &dyn Database,
    asked: &CallTarget,
    given: CallArguments,
) -> Result<ToolAnswer, String> {
    edited(store, asked, given, EditAction::Removed)
}

fn cleared(
    _: &Lookup,
    store: &dyn Database,
    asked: &CallTarget,
    given: CallArguments,
) -> Result<ToolAnswer, String> {
    edited(store, asked, given, EditAction::Cleared)
}

fn edited(
    store: &dyn Database,
    asked: &CallTarget,
    given: CallArguments,
    action: EditAction,
) -> Result<ToolAnswer, String> {
    let session = asked.one()?;
    let args: EditToolArgs = read(given)?;
    let target = args.target(|| match loop_of(store, session, args.loop_id.as_deref())? {
        Some(given) => Ok(given),
        None => current_loop(store, session),
    })?;
    let reason = args
        .reason
        .as_deref()
        .map(|reason| cut(reason, MAX_TEXT).to_owned());
    let request = EditRequest {
        dry_run: args.dry_run,
        reason,
        ..EditRequest::new(action, [target])
    };
    let report = edit(store, session, &request).map_err(message)?;
    let mut parts = parts_of(&report);
    parts["session_id"] = json!(session);
    Ok(ToolAnswer::json(parts))
}

/// Returns a report as an answer: the number of messages of each list, and the first of them.
fn parts_of(report: &EditReport) -> Value {
    let named = |edits: &[EditedMessage]| -> Vec<Value> {
        let edits = edits.iter().take(NAMED);
        let edits = edits.map(|edit| {
            json!({"loop_id": edit.loop_id, "turn": edit.turn, "message": edit.seq, "part": edit.part,
                "tokens_before": edit.tokens_before, "tokens_after": edit.tokens_after})
        });
        edits.collect()
    };
    json!({
        "run_id": report.run_id,
        "edited": report.edits.len(),
        "messages": named(&report.edits),
        "paired": report.paired.len(),
        "bound": report.bound.len(),
        "skipped": report.skipped.len(),
        "stale": report.stale,
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
    })
}
