//! What pruning finds among the turns kept at the end, and what it leaves of them.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use super::candidate::Candidate;
use super::planner::{Attempt, Planner};
use crate::compaction::{OutputSize, Pruned, Pruning, Recent, StrategyError, cut_recent};
use crate::model::{AgentMessage, Layout, Role};
use crate::overlay::turn_seqs;
use crate::store;

impl Planner<'_> {
    /// Returns each tool output among the turns that a candidate keeps at the end, not pruned.
    pub(super) fn outputs(&self, candidate: &Candidate) -> Result<Vec<OutputSize>, StrategyError> {
        let (mut outputs, counter) = (Vec::new(), self.store.counter());
        for (depth, kept) in &candidate.planned {
            let layout = kept.layout();
            let (false, Some(turns)) = (kept.raw, layout.recent) else {
                continue;
            };
            let through = self.through(*depth, &layout)?;
            let slice = self.slice(*depth, &layout, through)?;
            let cut = cut_recent(&slice, &candidate.step.config)?;
            let output = |message: &AgentMessage| OutputSize {
                tokens: counter.message_tokens(message),
                bytes: serde_json::to_vec(message).map_or(0, |json| json.len() as u64),
            };
            let cut: HashMap<u32, OutputSize> = cut
                .iter()
                .flat_map(|recent| &recent.replaced)
                .filter_map(|(seq, message)| Some((*seq, output(message.as_ref()?))))
                .collect();
            let key = self.snapshot.chain.links[*depth].row.key;
            store::read(self.store, |read| {
                let seqs = turn_seqs(read, key, turns, through)?;
                read.sizes(key, seqs, &mut |message| {
                    if message.role == Role::ToolResult {
                        let whole = OutputSize {
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
        let is_leaf = depth + 1 == self.snapshot.chain.links.len();
        let mut replaced: BTreeMap<u32, Option<AgentMessage>> = replaced.into_iter().collect();
        for placed in slice.messages(turns)? {
            let is_last = is_leaf && placed.turn == turns.last;
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
        let replaced = replaced.into_iter().collect();
        Ok(Recent { turns, replaced })
    }
}
