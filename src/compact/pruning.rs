//! What pruning finds among the turns kept at the end, and what it leaves of them.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use super::candidate::Candidate;
use super::planner::{Attempt, Planner};
use crate::compaction::{Output, Pruned, Pruning, Recent, StrategyError, cut_recent};
use crate::model::{AgentMessage, Layout, Role};
use crate::overlay::{through, turn_seqs};
use crate::store;

impl Planner<'_> {
    /// Returns each tool output among the turns that a candidate keeps at the end, not pruned.
    pub(super) fn outputs(&self, candidate: &Candidate) -> Result<Vec<Output>, StrategyError> {
        let (mut outputs, counter) = (Vec::new(), self.store.counter());
        for (depth, kept) in &candidate.planned {
            let layout = kept.layout();
            let (false, Some(turns)) = (kept.raw, layout.recent) else {
                continue;
            };
            let cut = cut_recent(&self.slice(*depth, &layout)?, &candidate.step.config)?;
            let output = |message: &AgentMessage| Output {
                tokens: counter.message_tokens(message),
                bytes: serde_json::to_vec(message).map_or(0, |json| json.len() as u64),
            };
            let cut: HashMap<u32, Output> = cut
                .iter()
                .flat_map(|recent| &recent.replaced)
                .filter_map(|(seq, message)| Some((*seq, output(message.as_ref()?))))
                .collect();
            let link = &self.snapshot.chain.links[*depth];
            store::read(self.store, |read| {
                let end = through(read, link, layout.end())?;
                let seqs = turn_seqs(read, link.row.key, turns, end)?;
                read.sizes(link.row.key, seqs, &mut |message| {
                    if message.role == Role::ToolResult {
                        let whole = Output {
                            tokens: message.size.tokens,
                            bytes: message.size.bytes,
                        };
                        outputs.push(cut.get(&message.seq).copied().unwrap_or(whole));
                    }
                    Ok(ControlFlow::Continue(()))
                })
            })?;
        }
        Ok(outputs)
    }
}

impl Attempt<'_> {
    /// Prunes the turns kept at the end of a loop as far as the step says.
    pub(super) fn prune(&self, depth: usize, recent: &mut Recent) -> Result<(), StrategyError> {
        let Some(prune) = self.step.prune else {
            return Ok(());
        };
        let layout = Layout {
            recent: Some(recent.turns),
            ..Layout::default()
        };
        let slice = self.planner.slice(depth, &layout)?;
        let is_leaf = depth + 1 == self.snapshot.chain.links.len();
        let mut replaced: BTreeMap<u32, Option<AgentMessage>> = recent.replaced.drain(..).collect();
        for placed in slice.messages(recent.turns)? {
            let is_last = is_leaf && placed.turn == recent.turns.last;
            let pruning = Pruning {
                thinking: placed.seq < self.snapshot.current_cycle(depth),
                images: !is_last || prune.last_images,
                output_tokens: prune.output_tokens,
            };
            let shown = match replaced.get(&placed.seq) {
                Some(None) => continue,
                Some(Some(cut)) => cut,
                None => &placed.message,
            };
            match pruning.prune(shown, slice.counter()) {
                Pruned::Whole => {}
                Pruned::Shorter(message) => {
                    replaced.insert(placed.seq, Some(*message));
                }
                Pruned::Gone => {
                    replaced.insert(placed.seq, None);
                }
            }
        }
        recent.replaced = replaced.into_iter().collect();
        Ok(())
    }
}
