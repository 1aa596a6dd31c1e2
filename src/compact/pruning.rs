//! Pruning of the turns kept at the end: the sizes of their messages in each form, and the pruned messages.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use super::candidate::CompactionCandidate;
use super::planner::{CandidatePlanner, StepPlanner};
use super::room::{MessageForms, TurnForms};
use crate::compaction::plan::ChainTurn;
use crate::compaction::{
    LoopMessage, OutputSize, PrunedMessage, Pruning, Recent, StrategyError, cut_tool_result,
};
use crate::model::{AgentMessage, Layout, Role, Size, Turns};
use crate::overlay::turn_seqs;
use crate::store::{self, MessageEdit};

impl CandidatePlanner<'_> {
    /// Returns the turns that a candidate keeps at the end, newest first.
    pub(super) fn kept_at_the_end(
        &self,
        candidate: &CompactionCandidate,
    ) -> Result<Vec<Rc<TurnForms>>, StrategyError> {
        let mut kept_turns = Vec::new();
        for (depth, kept) in candidate.planned.iter().rev().filter(|(_, kept)| !kept.raw) {
            for turn in (kept.recent..kept.turns).rev() {
                let at = ChainTurn {
                    depth: *depth,
                    turn,
                };
                kept_turns.push(self.forms_of(at)?);
            }
        }
        Ok(kept_turns)
    }

    /// Returns the forms of a turn's messages; each turn is read once.
    pub(super) fn forms_of(&self, at: ChainTurn) -> Result<Rc<TurnForms>, StrategyError> {
        if let Some(known) = self.forms.borrow().get(&at) {
            return Ok(known.clone());
        }
        let only = Turns::only(at.turn);
        let layout = Layout {
            recent: Some(only),
            ..Layout::default()
        };
        let through = self.through(at.depth, &layout)?;
        let slice = self.slice(at.depth, &layout, through)?;
        let key = self.snapshot.chain.links[at.depth].row.key;
        let mut stored: HashMap<u32, Size> = HashMap::new();
        store::read(self.store, |read| {
            let seqs = turn_seqs(read, key, only, through)?;
            read.sizes(key, seqs, &mut |message| {
                stored.insert(message.seq, message.size);
                Ok(ControlFlow::Continue(()))
            })
        })?;
        let messages = slice.messages(only)?;
        let edits = self.snapshot.chain.links[at.depth].edits.as_deref();
        let forms = messages.iter().map(|placed| {
            let size = stored.get(&placed.seq).copied().unwrap_or_default();
            if let Some(MessageEdit::Parts(edited)) = edits.and_then(|edits| edits.at(placed.seq)) {
                return MessageForms::fixed(edited.resized(size));
            }
            self.forms_of_message(at.depth, placed, size)
        });
        let forms = Rc::new(TurnForms {
            at,
            messages: forms.collect(),
        });
        self.forms.borrow_mut().insert(at, forms.clone());
        Ok(forms)
    }

    fn forms_of_message(&self, depth: usize, placed: &LoopMessage, stored: Size) -> MessageForms {
        let counter = self.store.counter();
        let measure = |message: &AgentMessage| OutputSize {
            tokens: counter.message_tokens(message),
            bytes: serde_json::to_vec(message).map_or(0, |json| json.len() as u64),
        };
        let cut = cut_tool_result(
            &placed.message,
            self.request.policy.compaction.tool_output_max_lines,
        );
        let whole = match &cut {
            Some(cut) => measure(cut),
            None => OutputSize {
                tokens: stored.tokens,
                bytes: stored.bytes,
            },
        };
        let pruning = Pruning {
            thinking: placed.seq < self.snapshot.current_cycle(depth),
            images: true,
            output_tokens: None,
        };
        let bare = match pruning.prune(cut.as_ref().unwrap_or(&placed.message), counter) {
            PrunedMessage::Whole => whole,
            PrunedMessage::Shorter(message) => measure(&message),
            PrunedMessage::Gone => OutputSize {
                tokens: 0,
                bytes: 0,
            },
        };
        MessageForms {
            whole,
            bare,
            is_output: placed.message.role() == Role::ToolResult,
        }
    }
}

impl StepPlanner<'_> {
    /// Returns what the step leaves of the turns kept at the end of a loop.
    pub(super) fn pruned(&self, depth: usize, recent: Recent) -> Result<Recent, StrategyError> {
        let Some(prune) = self.step.prune else {
            return Ok(recent);
        };
        let Recent { turns, replaced } = recent;
        let layout = Layout {
            recent: Some(turns),
            ..Layout::default()
        };
        let through = self.planner.through(depth, &layout)?;
        let slice = self.planner.slice(depth, &layout, through)?;
        let mut replaced: BTreeMap<u32, Option<AgentMessage>> = replaced.into_iter().collect();
        for placed in slice.messages(turns)? {
            let turn = placed.turn;
            let is_bare = !prune.keeps_whole(ChainTurn { depth, turn });
            let pruning = Pruning {
                thinking: is_bare && placed.seq < self.snapshot.current_cycle(depth),
                images: is_bare,
                output_tokens: prune.output_tokens,
            };
            let shown = match replaced.get(&placed.seq) {
                Some(None) => continue,
                Some(Some(cut)) => cut,
                None => &placed.message,
            };
            match pruning.prune(shown, slice.counter()) {
                PrunedMessage::Whole => {}
                PrunedMessage::Shorter(message) => {
                    replaced.insert(placed.seq, Some(*message));
                }
                PrunedMessage::Gone => {
                    replaced.insert(placed.seq, None);
                }
            }
        }
        let replaced = replaced.into_iter().collect();
        Ok(Recent { turns, replaced })
    }
}
