//! Programs that the model writes to call tools, and their outputs. The provider rejects an output or a call of a
//! program without the program; a compaction or a fork may have removed one of both.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;

use super::pairs::IndexedMessage;
use super::sealed::original_item;
use super::{Mending, MendingKind};
use crate::Form;
use loopstore_model::{Content, Json, Message, ToolCall};

const PROGRAM: &str = "program";
const OUTPUT: &str = "program_output";

/// Leaves out blocks of a missing program, and a program without an output that a prompt follows. A program without an
/// output that no prompt follows may still be running.
pub(super) fn without_parted(messages: &mut [IndexedMessage], mended: &mut Vec<Mending>) {
    let whole = whole_programs(messages);
    let mut known: HashSet<String> = HashSet::new();
    for placed in messages {
        let Message::Assistant(answer) = &mut placed.message else {
            continue;
        };
        answer.content.retain_mut(|block| {
            if let Content::ToolCall(call) = block {
                if caller_of(call).is_some_and(|program| !known.contains(&program)) {
                    forget_caller(call);
                }
                return true;
            }
            let Some((kind, id)) = part_of(block) else {
                return true;
            };
            let stays = match kind {
                ProgramPart::Program => whole.contains(&id),
                ProgramPart::Output => known.contains(&id),
            };
            if kind == ProgramPart::Program && stays {
                known.insert(id);
            } else if !stays {
                mended.push(Mending {
                    provider: Some(Form::OpenAiResponses.provider().to_owned()),
                    item: Some(kind.name().to_owned()),
                    ..Mending::of(MendingKind::PartedDropped, placed.at)
                });
            }
            stays
        });
    }
}

/// Returns the programs with an output, and those that may still be running.
fn whole_programs(messages: &[IndexedMessage]) -> HashSet<String> {
    let (mut open, mut whole) = (HashSet::new(), HashSet::new());
    for placed in messages {
        match &placed.message {
            Message::User(_) => open.clear(),
            Message::ToolResult(_) => {}
            Message::Assistant(answer) => {
                for (kind, id) in answer.content.iter().filter_map(part_of) {
                    if kind == ProgramPart::Program {
                        open.insert(id);
                    } else if open.remove(&id) {
                        whole.insert(id);
                    }
                }
            }
        }
    }
    whole.extend(open);
    whole
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramPart {
    Program,
    Output,
}

impl ProgramPart {
    fn name(self) -> &'static str {
        match self {
            Self::Program => PROGRAM,
            Self::Output => OUTPUT,
        }
    }
}

/// Returns the part of a program that a block is, and the id of the program's call.
fn part_of(block: &Content) -> Option<(ProgramPart, String)> {
    #[derive(Deserialize)]
    struct Named {
        call_id: String,
    }
    let Content::Other(_) = block else {
        return None;
    };
    let item = original_item(block, Form::OpenAiResponses)?;
    let part = match item.type_name()?.as_ref() {
        PROGRAM => ProgramPart::Program,
        OUTPUT => ProgramPart::Output,
        _ => return None,
    };
    Some((part, item.read::<Named>().ok()?.call_id))
}

/// Returns the program that made a call.
fn caller_of(call: &ToolCall) -> Option<String> {
    #[derive(Deserialize)]
    struct Caller {
        r#type: String,
        caller_id: String,
    }
    #[derive(Deserialize)]
    struct Source {
        caller: Caller,
    }
    let Source { caller } = call.extra.get("source")?.read().ok()?;
    (caller.r#type == PROGRAM).then_some(caller.caller_id)
}

fn forget_caller(call: &mut ToolCall) {
    let source = call
        .extra
        .get("source")
        .map(Json::read::<BTreeMap<String, Json>>);
    let Some(Ok(mut source)) = source else { return };
    source.remove("caller");
    if let Ok(source) = Json::of(&source) {
        call.extra.insert("source", source);
    }
}
