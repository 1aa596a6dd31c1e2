//! The hooks of a policy that are functions of the other language: the approval of a compaction, and the warning before
//! one.
//!
//! An error of such a function commits nothing, and is the error of the call that called the function: [`with_hooks`].

use std::cell::RefCell;
use std::collections::BTreeMap;

use loopstore::compact::{Approval, CompactionHook, Proposal, ProposedBlock, WindowWarning};
use loopstore::{AgentMessage, CancelFlag, Policy};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::errors::{CallError, with_causes};

/// A function of the other language.
pub trait HookFunction: Send + Sync {
    /// Calls the function with JSON and returns its answer as JSON. If `cancel` is set, a function that waits is not
    /// waited for any longer.
    fn call(&self, json: Vec<u8>, cancel: &CancelFlag) -> Result<Vec<u8>, CallError>;
}

/// The hooks of a policy.
#[derive(Default)]
pub struct Functions {
    pub approve: Option<Box<dyn HookFunction>>,
    pub warn: Option<Box<dyn HookFunction>>,
    /// The fraction of the window from which `warn` is called.
    pub warn_at: Option<f64>,
}

impl Functions {
    /// Adds the hooks to a policy.
    pub fn add_to(self, policy: Policy) -> Result<Policy, CallError> {
        let Self {
            approve,
            warn,
            warn_at,
        } = self;
        let policy = match (&warn, warn_at) {
            (None, None) => policy,
            (Some(_), Some(fraction)) => policy.warn_at(percent(fraction)?),
            _ => {
                let text = "a policy has both `warn` and the fraction of the window from which it is called, or neither";
                return Err(CallError::Input(text.into()));
            }
        };
        Ok(match approve.is_some() || warn.is_some() {
            true => policy.hook(FunctionHook { approve, warn }),
            false => policy,
        })
    }
}

fn percent(fraction: f64) -> Result<u8, CallError> {
    match (0.01..=1.0).contains(&fraction) {
        true => Ok((fraction * 100.0).round() as u8),
        false => Err(CallError::Input(format!(
            "the fraction of the window from which `warn` is called is a number from 0.01 to 1, not {fraction}"
        ))),
    }
}

/// The state of the call that runs on this thread: compactions call their hooks on the thread of the call.
#[derive(Default)]
struct RunningHook {
    cancel: CancelFlag,
    failed: Option<CallError>,
}

thread_local! {
    static CALL: RefCell<RunningHook> = RefCell::default();
}

/// Runs a call whose compactions may call hooks. If a hook fails, the call fails with the error of the hook.
pub fn with_hooks<T>(
    cancel: &CancelFlag,
    work: impl FnOnce() -> Result<T, CallError>,
) -> Result<T, CallError> {
    let own = RunningHook {
        cancel: cancel.clone(),
        failed: None,
    };
    // A hook may itself make a call.
    let outer = CALL.replace(own);
    let done = work();
    match CALL.replace(outer).failed {
        Some(error) => Err(error),
        None => done,
    }
}

struct FunctionHook {
    approve: Option<Box<dyn HookFunction>>,
    warn: Option<Box<dyn HookFunction>>,
}

impl CompactionHook for FunctionHook {
    fn approve(&self, proposal: &Proposal<'_>) -> Approval {
        let Some(function) = &self.approve else {
            return Approval::Commit;
        };
        let decided = written(proposal)
            .and_then(|json| function.call(json, proposal.cancel))
            .and_then(|answer| decision(&answer));
        decided.unwrap_or_else(|error| {
            let text = text_of(&error);
            note(error, proposal.cancel);
            Approval::Postpone(format!("`approve` failed: {text}"))
        })
    }

    fn warn(&self, warning: &WindowWarning) {
        let Some(function) = &self.warn else {
            return;
        };
        let cancel = CALL.with_borrow(|call| call.cancel.clone());
        let json = serde_json::to_vec(warning).map_err(CallError::from);
        if let Err(error) = json.and_then(|json| function.call(json, &cancel)) {
            note(error, &cancel);
        }
    }
}

/// Notes the error of a hook, unless the call was cancelled: the hook ended for that reason.
fn note(error: CallError, cancel: &CancelFlag) {
    if !cancel.is_cancelled() {
        CALL.with_borrow_mut(|call| {
            call.failed.get_or_insert(error);
        });
    }
}

fn text_of(error: &CallError) -> String {
    match error {
        CallError::Raised(text, _) | CallError::Input(text) => text.clone(),
        CallError::Core(error) => with_causes(error),
        _ => "the function could not be called".into(),
    }
}

#[derive(Serialize)]
struct ProposalJson<'a> {
    session_id: &'a str,
    loop_id: &'a str,
    strategy: &'a str,
    tokens_before: u64,
    tokens_after: u64,
    bytes_before: u64,
    bytes_after: u64,
    messages_before: u64,
    messages_after: u64,
    blocks: Vec<BlockJson<'a>>,
    messages: Vec<AgentMessage>,
}

#[derive(Serialize)]
struct BlockJson<'a> {
    loop_id: &'a str,
    kind: &'a str,
    turns: Option<(u32, u32)>,
    text: Option<&'a str>,
}

fn written(proposal: &Proposal<'_>) -> Result<Vec<u8>, CallError> {
    let blocks = proposal.blocks.iter();
    let blocks = blocks.map(|block: &ProposedBlock| BlockJson {
        loop_id: block.loop_id.as_str(),
        kind: block.kind.as_str(),
        turns: block.turns.map(|turns| (turns.first, turns.last)),
        text: block.text.as_deref(),
    });
    let json = serde_json::to_vec(&ProposalJson {
        session_id: proposal.session_id.as_str(),
        loop_id: proposal.loop_id.as_str(),
        strategy: proposal.strategy,
        tokens_before: proposal.before.tokens,
        tokens_after: proposal.after.tokens,
        bytes_before: proposal.before.bytes,
        bytes_after: proposal.after.bytes,
        messages_before: proposal.before.messages,
        messages_after: proposal.after.messages,
        blocks: blocks.collect(),
        messages: proposal.messages()?,
    });
    Ok(json?)
}

/// An answer other than `true` and `false`: exactly one of its fields is set.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DecisionJson {
    refuse: Option<String>,
    postpone: Option<String>,
    rewrite: Option<BTreeMap<usize, String>>,
}

/// Reads the answer of `approve`.
fn decision(json: &[u8]) -> Result<Approval, CallError> {
    let wrong = |text: String| {
        CallError::Input(format!(
            "`approve` returned {text}; it returns true, false, or one of `refuse` and `postpone` with a reason and \
             `rewrite` with texts by the positions of their blocks"
        ))
    };
    let answer: Value = serde_json::from_slice(json)?;
    let answer: DecisionJson = match answer {
        Value::Bool(true) => return Ok(Approval::Commit),
        Value::Bool(false) => return Ok(Approval::Refuse("`approve` refused it".into())),
        Value::Object(_) => {
            serde_json::from_slice(json).map_err(|error| wrong(error.to_string()))?
        }
        other => return Err(wrong(format!("`{other}`"))),
    };
    match (answer.refuse, answer.postpone, answer.rewrite) {
        (Some(reason), None, None) => Ok(Approval::Refuse(reason)),
        (None, Some(reason), None) => Ok(Approval::Postpone(reason)),
        (None, None, Some(texts)) => Ok(Approval::Rewrite(texts.into_iter().collect())),
        _ => Err(wrong("no decision, or several".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_decision() {
        let read = |json: &str| decision(json.as_bytes()).map_err(|error| text_of(&error));
        assert_eq!(read("true"), Ok(Approval::Commit));
        assert!(matches!(read("false"), Ok(Approval::Refuse(_))));
        let refused = Ok(Approval::Refuse("no".into()));
        assert_eq!(read(r#"{"refuse": "no"}"#), refused);
        assert_eq!(read(r#"{"refuse": "no", "postpone": null}"#), refused);
        let postponed = Ok(Approval::Postpone("later".into()));
        assert_eq!(read(r#"{"postpone": "later"}"#), postponed);
        let rewritten = Ok(Approval::Rewrite(vec![(0, "a".into()), (12, "b".into())]));
        assert_eq!(read(r#"{"rewrite": {"12": "b", "0": "a"}}"#), rewritten);
        let wrong = [
            "null",
            "1",
            r#""yes""#,
            "[]",
            "{}",
            r#"{"refuse": "no", "postpone": "later"}"#,
            r#"{"refuse": true}"#,
            r#"{"rewrite": {"first": "a"}}"#,
            r#"{"rewrite": {"-1": "a"}}"#,
            r#"{"rewrite": {"0": 7}}"#,
            r#"{"rewrite": ["a"]}"#,
            r#"{"reject": "no"}"#,
        ];
        for json in wrong {
            let text = read(json).unwrap_err();
            assert!(text.contains("`approve` returned"), "{json}: {text}");
        }
    }

    #[test]
    fn the_share_of_a_warning_is_checked() {
        for fraction in [0.0, 0.009, 1.01, 80.0, -0.5, f64::NAN, f64::INFINITY] {
            assert!(percent(fraction).is_err(), "{fraction}");
        }
        assert_eq!(percent(0.8).ok(), Some(80));
        assert_eq!(percent(1.0).ok(), Some(100));
        let alone = Functions {
            warn_at: Some(0.8),
            ..Functions::default()
        };
        assert!(alone.add_to(Policy::default()).is_err());
    }
}
