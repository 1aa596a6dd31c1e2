//! What a provider would object to in a list of messages.

use std::collections::HashMap;

use crate::model::{AgentMessage, Message};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A tool result whose call is not before it.
    ResultWithoutCall,
    /// A tool call whose result is not after it.
    CallWithoutResult,
    /// A call id that an earlier call has too.
    DuplicateCallId,
}

/// A fault of a message. It never stops a build.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// Which message, counted from 0.
    pub message: usize,
    /// The call.
    pub tool_call_id: String,
}

/// Returns the faults of `messages`. With `in_flight`, calls after the last user message or
/// answer are still being worked on and no fault.
pub fn faults_of(messages: &[AgentMessage], in_flight: bool) -> Vec<Fault> {
    let mut open: HashMap<&str, usize> = HashMap::new();
    let mut answered: HashMap<&str, usize> = HashMap::new();
    let mut faults = Vec::new();
    let mut last_answer = None;
    for (at, message) in messages.iter().enumerate() {
        let Some(message) = message.message() else {
            continue;
        };
        let mut fault = |kind, id: &str| {
            faults.push(Fault {
                kind,
                message: at,
                tool_call_id: id.to_owned(),
            });
        };
        match message {
            Message::User(_) => last_answer = None,
            Message::Assistant(_) => {
                last_answer = Some(at);
                for call in message.tool_calls() {
                    if open.insert(&call.id, at).is_some() || answered.contains_key(&*call.id) {
                        fault(FaultKind::DuplicateCallId, &call.id);
                    }
                }
            }
            Message::ToolResult(result) => match open.remove(&*result.tool_call_id) {
                Some(call) => {
                    answered.insert(&result.tool_call_id, call);
                }
                None => fault(FaultKind::ResultWithoutCall, &result.tool_call_id),
            },
        }
    }
    for (id, at) in open {
        if !(in_flight && last_answer == Some(at)) {
            let kind = FaultKind::CallWithoutResult;
            faults.push(Fault {
                kind,
                message: at,
                tool_call_id: id.to_owned(),
            });
        }
    }
    faults.sort_by(|a, b| (a.message, &a.tool_call_id).cmp(&(b.message, &b.tool_call_id)));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, Content, Json, ToolResultMessage};

    fn call(id: &str) -> AgentMessage {
        let content = vec![Content::tool_call(id, "ls", Json::null())];
        Message::Assistant(AssistantMessage {
            content,
            ..Default::default()
        })
        .into()
    }

    fn result(id: &str) -> AgentMessage {
        let tool_call_id = id.to_owned();
        Message::ToolResult(ToolResultMessage {
            tool_call_id,
            ..Default::default()
        })
        .into()
    }

    fn kinds(messages: &[AgentMessage], in_flight: bool) -> Vec<(FaultKind, usize)> {
        faults_of(messages, in_flight)
            .into_iter()
            .map(|f| (f.kind, f.message))
            .collect()
    }

    #[test]
    fn pairs_are_no_fault_and_halves_are() {
        assert_eq!(kinds(&[call("a"), result("a")], false), []);
        assert_eq!(
            kinds(&[result("a")], false),
            [(FaultKind::ResultWithoutCall, 0)]
        );
        assert_eq!(
            kinds(&[call("a")], false),
            [(FaultKind::CallWithoutResult, 0)]
        );
        assert_eq!(
            kinds(&[call("a"), result("a"), call("a"), result("a")], false),
            [(FaultKind::DuplicateCallId, 2)]
        );
    }

    #[test]
    fn the_last_calls_of_a_running_loop_are_in_flight() {
        assert_eq!(kinds(&[call("a")], true), []);
        let aborted = [call("a"), Message::user("go on").into(), call("b")];
        assert_eq!(kinds(&aborted, true), [(FaultKind::CallWithoutResult, 0)]);
    }
}
