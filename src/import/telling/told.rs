//! What is known of a loop that was begun.

use super::Spot;
use crate::model::{
    ChildLoopRef, ContinuationKind, Json, LoopId, LoopRecord, LoopStatus, Message, Time,
};

/// A loop that was begun.
pub(super) struct Told {
    pub(super) id: LoopId,
    pub(super) parent: Option<Spot>,
    pub(super) kind: ContinuationKind,
    pub(super) started: Option<Time>,
    pub(super) ended: Option<Time>,
    pub(super) model: Option<(String, Option<String>)>,
    pub(super) turn: u32,
    pub(super) is_empty: bool,
    pub(super) answered: bool,
    /// Whether something was said that wants an answer.
    pub(super) waiting: bool,
    pub(super) interrupted: bool,
    /// Calls of the last turn without a result: id and tool.
    pub(super) open: Vec<(String, String)>,
    /// The last turn that another loop goes on from.
    pub(super) last_child: Option<u32>,
    /// Sub-agents that were started.
    pub(super) children: Vec<ChildLoopRef>,
    pub(super) is_changed: bool,
}

impl Told {
    /// A loop that begins now.
    pub(super) fn new(
        id: LoopId,
        parent: Option<Spot>,
        kind: ContinuationKind,
        now: Option<Time>,
    ) -> Self {
        Self {
            id,
            parent,
            kind,
            started: now.clone(),
            ended: now,
            model: None,
            turn: 0,
            is_empty: true,
            answered: false,
            waiting: false,
            interrupted: false,
            open: Vec::new(),
            last_child: None,
            children: Vec::new(),
            is_changed: true,
        }
    }

    /// Takes an answer: a turn of its own unless it is the first after what was said.
    pub(super) fn answer(&mut self, message: &Message) {
        self.turn += u32::from(self.answered);
        self.answered = true;
        self.waiting = false;
        self.interrupted = false;
        self.open.clear();
        if let Message::Assistant(answer) = message {
            let found = || Some((answer.model.clone()?, answer.provider.clone()));
            self.model = self.model.take().or_else(found);
        }
        for call in message.tool_calls() {
            if call.extra.get("form").is_none_or(|form| !is_hosted(form)) {
                self.open.push((call.id.clone(), call.name.clone()));
            }
        }
    }

    /// Describes the loop as it stands; without a status it goes on.
    pub(super) fn record(&self, parent: Option<LoopId>, status: Option<LoopStatus>) -> LoopRecord {
        let mut record = LoopRecord::new(self.id.clone(), parent);
        record.parent_turn = self.parent.map(|(_, turn)| i64::from(turn).into());
        record.continuation_kind = Some(self.kind.clone());
        record.started_at.clone_from(&self.started);
        if let Some((model, provider)) = &self.model {
            let config = serde_json::json!({ "model": model, "provider": provider });
            record.config = Json::of(&config).ok();
        }
        record.child_loop_refs.clone_from(&self.children);
        record.status = status.unwrap_or(LoopStatus::Running);
        if record.status != LoopStatus::Running {
            record.ended_at.clone_from(&self.ended);
        }
        record
    }

    /// Where the loop stands; `is_last` if the transcript ends in it.
    pub(super) fn status(&self, is_last: bool) -> LoopStatus {
        let open = !self.open.is_empty();
        if self.interrupted {
            LoopStatus::Aborted
        } else if is_last && (open || self.waiting) {
            LoopStatus::Running
        } else if open || (self.waiting && !self.answered) || self.is_empty {
            LoopStatus::Aborted
        } else {
            LoopStatus::Completed
        }
    }
}

/// Whether a call was carried out by the provider, so that no result comes.
fn is_hosted(form: &Json) -> bool {
    form.read::<String>()
        .is_ok_and(|form| form == "web_search_call")
}
