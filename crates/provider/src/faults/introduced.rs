//! The faults that an overlay introduces.

use std::collections::{HashMap, HashSet};

use super::{ContextFault, FaultKind, faults_of, is_silent, thinking, turn_of};
use loopstore_model::AgentMessage;

/// Returns the faults that an overlay introduces: the faults of `shown` that `originals` do not have.
///
/// `originals` are the messages that the overlay replaces, together with the messages of `shown` around them. Faults
/// are compared by kind and call, not by position, and counted. Faults of an id that several calls of the originals
/// have are ignored, since its calls cannot be matched. An empty message is compared by role and turn. Signed thinking
/// is compared with that of the originals, see [`FaultKind::ThinkingParted`].
pub fn introduced(
    originals: &[AgentMessage],
    shown: &[AgentMessage],
    in_flight: bool,
) -> Vec<ContextFault> {
    let mut known = OriginalCounts::of(originals, faults_of(originals, in_flight));
    let mut new = faults_of(shown, in_flight);
    new.retain(|fault| known.is_introduced(fault, shown));
    for fault in thinking::parted_from(originals, shown) {
        if !new.contains(&fault) {
            new.push(fault);
        }
    }
    new.sort_by_key(|fault| fault.message);
    new
}

/// The role and the turn of a message.
type RoleAndTurn = (&'static str, Option<(String, i64)>);

fn place_of(message: &AgentMessage) -> RoleAndTurn {
    let turn = turn_of(message).map(|(loop_key, turn)| (loop_key.to_owned(), turn));
    (message.role().as_str(), turn)
}

/// The faults of the originals, with their numbers.
struct OriginalCounts {
    calls: HashMap<(FaultKind, Option<String>), usize>,
    silent: HashMap<RoleAndTurn, usize>,
    /// Ids that several calls have.
    shared: HashSet<String>,
}

impl OriginalCounts {
    fn of(originals: &[AgentMessage], faults: Vec<ContextFault>) -> Self {
        let mut known = Self {
            calls: HashMap::new(),
            silent: HashMap::new(),
            shared: HashSet::new(),
        };
        for fault in faults {
            if fault.kind == FaultKind::DuplicateCallId {
                known.shared.extend(fault.tool_call_id.clone());
            }
            let key = (fault.kind, fault.tool_call_id);
            *known.calls.entry(key).or_default() += 1;
        }
        for message in originals {
            if message.message().is_some_and(is_silent) {
                *known.silent.entry(place_of(message)).or_default() += 1;
            }
        }
        known
    }

    /// True if the originals do not have a fault of `shown`; else one fault of the originals is used up.
    fn is_introduced(&mut self, fault: &ContextFault, shown: &[AgentMessage]) -> bool {
        let id = &fault.tool_call_id;
        let is_shared = id.as_ref().is_some_and(|id| self.shared.contains(id));
        if is_shared && fault.kind != FaultKind::ThinkingParted {
            return false;
        }
        match shown.get(fault.message) {
            Some(message) if fault.kind == FaultKind::EmptyContent => {
                !use_up(self.silent.get_mut(&place_of(message)))
            }
            _ => !use_up(self.calls.get_mut(&(fault.kind, id.clone()))),
        }
    }
}

fn use_up(left: Option<&mut usize>) -> bool {
    match left {
        Some(left @ 1..) => {
            *left -= 1;
            true
        }
        _ => false,
    }
}
