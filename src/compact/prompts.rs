//! The prompts of people that a compaction keeps word for word, up to the configured tokens: quoted as pinned messages
//! are, the newest first.
//!
//! Which prompts are hidden depends on the plan, and the plan depends on the size of the quotes. So a candidate is made
//! again until the prompts that it hides are those that it quotes.

use std::collections::BTreeSet;

use super::fallback::BYTES_OF_A_TOKEN;
use super::planner::{CandidatePlanner, StepPlanner};
use crate::compaction::RunConfig;
use crate::context::Chain;
use crate::model::Size;
use crate::overlay::PinnedMessage;
use crate::store::{self, LoopKey, QuotingBlock, StoreRead, StoreResult, quote_body};

/// No loop has this key. A quote in a block of another loop names the loop, so it has the most tokens.
const ANY_LOOP: LoopKey = LoopKey(0);

/// The prompts that a context hides, the newest first.
#[derive(Default)]
pub(super) struct HiddenPrompts {
    /// The prompts to quote.
    wanted: Vec<PinnedMessage>,
    all: Vec<PinnedMessage>,
}

/// The numbers of prompts that a compaction quotes, and of the others: those that exceed the configured tokens, and
/// those that edits removed or cleared.
#[derive(Clone, Copy, Default)]
pub(super) struct PromptCounts {
    pub(super) kept: u64,
    pub(super) left_out: u64,
}

impl CandidatePlanner<'_> {
    /// Returns the most that quotes of prompts add to a context.
    pub(super) fn prompts_size(&self) -> Size {
        let most = self.request.policy.compaction.keep_prompts_tokens;
        let prompts = self.snapshot.prompts.iter();
        let prompts = prompts.filter(|prompt| prompt.can_be_quoted);
        let tokens = prompts.map(|prompt| prompt.tokens).sum::<u64>().min(most);
        Size {
            tokens,
            bytes: tokens.saturating_mul(BYTES_OF_A_TOKEN),
            messages: 0,
        }
    }
}

impl StepPlanner<'_> {
    /// Finds the prompts that a chain hides, and those of them that fit the tokens of the step, the newest first. A
    /// prompt that is removed, or larger than all of these tokens, is skipped; after the first other one that does not
    /// fit, no older one is quoted.
    pub(super) fn hidden_prompts(&self, chain: &Chain) -> StoreResult<HiddenPrompts> {
        let most = self.step.config.keep_prompts_tokens;
        let mut hidden = HiddenPrompts::default();
        if self.snapshot.prompts.is_empty() {
            return Ok(hidden);
        }
        let (mut left, counter) = (most, self.planner.store.counter());
        store::read(self.planner.store, |read| {
            for prompt in &self.snapshot.prompts {
                let message = prompt.message;
                if !is_hidden(chain, &message) {
                    continue;
                }
                hidden.all.push(message);
                if left == 0 || prompt.tokens > most || !prompt.can_be_quoted {
                    continue;
                }
                let block = QuotingBlock {
                    loop_key: ANY_LOOP,
                    edits: &prompt.edits,
                };
                let tokens = quote_body(read, counter, block, message.place())?.tokens;
                match left.checked_sub(tokens) {
                    Some(rest) => {
                        hidden.wanted.push(message);
                        left = rest;
                    }
                    None if tokens > most => {}
                    None => left = 0,
                }
            }
            Ok(hidden)
        })
    }

    /// True if the step quotes the prompts that it is to quote.
    pub(super) fn quotes(&self, hidden: &HiddenPrompts) -> bool {
        let quoted = hidden.all.iter().filter(|prompt| self.has_pin(prompt));
        quoted.eq(&hidden.wanted)
    }

    fn has_pin(&self, message: &PinnedMessage) -> bool {
        self.pins.binary_search(message).is_ok()
    }

    /// Quotes other prompts from now on.
    pub(super) fn quote_prompts(&mut self, hidden: HiddenPrompts) {
        self.planner.kept_prompts.replace(hidden.wanted);
        self.pins = self.planner.pins_of(&self.step);
    }

    /// Counts the prompts that the step quotes, and the others.
    pub(super) fn count(&self, hidden: &HiddenPrompts) -> PromptCounts {
        let kept = hidden.all.iter().filter(|prompt| self.has_pin(prompt));
        let kept = kept.count() as u64;
        PromptCounts {
            kept,
            left_out: hidden.all.len() as u64 - kept,
        }
    }
}

/// True if a block of the chain hides a message.
fn is_hidden(chain: &Chain, message: &PinnedMessage) -> bool {
    let mut links = chain.links.iter().skip(chain.start);
    links.any(|link| {
        let hides = |block: &store::BlockCore| {
            let is_rollup = block.kind.covers_earlier_loops();
            message.is_hidden(link.row.key, block.layout.compacted, is_rollup)
        };
        link.block.as_ref().is_some_and(hides)
    })
}

/// True if a block of the chain was made by a run that kept prompts: it may have quotes of messages that are not pinned.
pub(super) fn may_be_quoted(read: &dyn StoreRead, chain: &Chain) -> StoreResult<bool> {
    // A run wrote blocks of several loops.
    let blocks = chain.links.iter().filter_map(|link| link.block.as_ref());
    let runs: BTreeSet<_> = blocks.map(|block| block.run).collect();
    for run in runs {
        let config = read.run_by_key(run)?.config;
        let config: Option<RunConfig> = serde_json::from_str(&config).ok();
        if config.is_some_and(|config| config.keep_prompts_tokens > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}
