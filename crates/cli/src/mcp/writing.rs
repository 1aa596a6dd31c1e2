//! The tools that write, each available only if it was allowed: pinning, compaction and its undo, and edits. None of them
//! removes or changes a stored message.

use clap::ValueEnum;
use loopstore::compact::{CompactOutcome, FlipRequest};
use loopstore::context::system_tokens;
use loopstore::{
    CompactTrigger, Database, PinRef, PinRequest, SessionId, compact_session_loops, pin, undo,
};
use serde::Deserialize;
use serde_json::json;

use super::super::compact;
use super::editing::{CLEAR, DROP};
use super::scope::CallTarget;
use super::tools::{CallArguments, Lookup, ToolAnswer, ToolSpec, cut, loop_of, message, read};

/// The maximum size of a text that an agent gives as a reason, and of an error that it gets, in bytes.
pub(super) const MAX_TEXT: usize = 300;

/// The maximum number of pinned or edited messages in a list.
pub(super) const NAMED: usize = 10;

/// A tool that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WritingTool {
    /// Pin a message, so that every later compaction keeps it.
    Remember,
    /// Compact the session.
    Compact,
    /// Undo the last compaction or edit.
    Undo,
    /// Remove messages from contexts.
    Drop,
    /// Show a marker in contexts in place of messages.
    Clear,
}

impl WritingTool {
    /// Returns the tool.
    pub fn spec(self) -> &'static ToolSpec {
        match self {
            Self::Remember => &REMEMBER,
            Self::Compact => &COMPACT,
            Self::Undo => &UNDO,
            Self::Drop => &DROP,
            Self::Clear => &CLEAR,
        }
    }
}

static REMEMBER: ToolSpec = ToolSpec {
    name: "remember",
    about: "Keep a message of the recorded history word for word through every later compaction, where you \
            will need exactly these words: a decision, a requirement, a value. Name it by the loop, turn and \
            message that `recall` and `search_history` give. Few and short ones: they count in every \
            context from now on.",
    properties: r#"{
        "loop_id": {"type": "string", "description": "the loop [default: the current one]"},
        "turn": {"type": "integer", "minimum": 0, "description": "the turn"},
        "message": {"type": "integer", "minimum": 0, "description": "the message [default: what a person or you wrote in the turn]"}
    }"#,
    required: &["turn"],
    answer: remember,
};

static COMPACT: ToolSpec = ToolSpec {
    name: "compact",
    about: "Compact the session now, before its context is full: between two tasks, when what was done can \
            be a summary. It counts from the next context on; the messages stay stored, and `recall` finds \
            them.",
    properties: r#"{
        "max_tokens": {"type": "integer", "minimum": 1, "description": "the window of your model in tokens [default: 128000]"},
        "loop_id": {"type": "string", "description": "the loop [default: the current one]"}
    }"#,
    required: &[],
    answer: compacted,
};

static UNDO: ToolSpec = ToolSpec {
    name: "undo",
    about: "Undo the last compaction, if its summary lost what you need word for word: from the next \
            context on the original messages are there again, with their tokens.",
    properties: r#"{
        "loop_id": {"type": "string", "description": "the loop [default: the current one]"},
        "reason": {"type": "string", "description": "why; recorded with it"}
    }"#,
    required: &[],
    answer: undone,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberArgs {
    loop_id: Option<String>,
    turn: u32,
    message: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactToolArgs {
    max_tokens: Option<u64>,
    loop_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndoToolArgs {
    loop_id: Option<String>,
    reason: Option<String>,
}

fn remember(
    _: &Lookup,
    store: &dyn Database,
    asked: &CallTarget,
    given: CallArguments,
) -> Result<ToolAnswer, String> {
    let session = asked.one()?;
    let args: RememberArgs = read(given)?;
    let loop_id = match loop_of(store, session, args.loop_id.as_deref())? {
        Some(given) => given,
        None => current_loop(store, session)?,
    };
    let of = PinRef {
        loop_id,
        turn: args.turn,
        seq: args.message,
    };
    let report = pin(store, session, &PinRequest { of, leaf: None }).map_err(message)?;
    let messages: Vec<_> = report
        .messages
        .iter()
        .take(NAMED)
        .map(|pinned| {
            json!({"loop_id": pinned.loop_id, "turn": pinned.turn, "message": pinned.seq,
                "was_pinned": !pinned.changed})
        })
        .collect();
    Ok(ToolAnswer::json(json!({
        "session_id": session,
        "pinned": report.messages.len(),
        "messages": messages,
    })))
}

pub(super) fn current_loop(
    store: &dyn Database,
    session: &SessionId,
) -> Result<loopstore::LoopId, String> {
    let found = loopstore::extend::read(store, |read| {
        let session = loopstore::extend::session_of(read, session)?;
        Ok(loopstore::extend::leaf_of(read, &session, None)?
            .core
            .loop_id)
    });
    found.map_err(message)
}

fn compacted(
    _: &Lookup,
    store: &dyn Database,
    asked: &CallTarget,
    given: CallArguments,
) -> Result<ToolAnswer, String> {
    let session = asked.one()?;
    let args: CompactToolArgs = read(given)?;
    let leaf = loop_of(store, session, args.loop_id.as_deref())?;
    let system = system_tokens(store, session, leaf.as_ref()).map_err(message)?;
    let mut request = compact::request_for(args.max_tokens, system, leaf).map_err(message)?;
    // The agent decides when to compact, so no policy applies.
    request.trigger = CompactTrigger::Length;
    let report = compact_session_loops(store, session, &request).map_err(message)?;
    if report.outcome == CompactOutcome::Failed {
        let why = report.error.unwrap_or_default();
        return Err(format!("nothing was compacted: {}", cut(&why, MAX_TEXT)));
    }
    let error = report.error.as_deref().map(|error| cut(error, MAX_TEXT));
    Ok(ToolAnswer::json(json!({
        "session_id": session,
        "run_id": report.run,
        "outcome": report.outcome,
        "tokens_before": report.before.tokens,
        "tokens_after": report.after.tokens,
        "error": error,
    })))
}

fn undone(
    _: &Lookup,
    store: &dyn Database,
    asked: &CallTarget,
    given: CallArguments,
) -> Result<ToolAnswer, String> {
    let session = asked.one()?;
    let args: UndoToolArgs = read(given)?;
    let reason = args.reason.map(|reason| cut(&reason, MAX_TEXT).to_owned());
    let request = FlipRequest {
        leaf: loop_of(store, session, args.loop_id.as_deref())?,
        run: None,
        reason,
    };
    let report = undo(store, session, &request).map_err(message)?;
    let mut parts = serde_json::to_value(&report).map_err(message)?;
    parts["session_id"] = json!(session);
    Ok(ToolAnswer::json(parts))
}
