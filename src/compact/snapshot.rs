//! The snapshot from which a compaction is planned: the chain in one read transaction.

use std::ops::ControlFlow;

use serde::Serialize;

use super::growth::{growth_of, is_handed_over};
use super::prompts::may_be_quoted;
use super::request::{CompactRequest, CompactTrigger};
use crate::compaction::growth::Growth;
use crate::compaction::has_no_content;
use crate::compaction::plan::{ChainTurn, ForeignAnswer, LoopFacts};
use crate::context::{BuildOptions, Chain, Purpose, keys_of, view_for};
use crate::model::{Role, SessionId, Turns};
use crate::overlay::{ChainPins, PersonPrompt, next_round, prompts_of_people, turn_seqs};
use crate::store::active_blocks::{ChainLink, ChainView};
use crate::store::{
    self, BlockCore, BlockKey, LiveEdits, LoopKey, Point, RunKey, SessionKey, SessionStore, Size,
    StoreRead, StoreResult,
};

/// The result of evaluating the trigger.
pub(super) enum TriggerCheck {
    /// The trigger did not fire for a context of this size, evaluated with these tokens.
    NotFired(Size, ContextTokens),
    Fired(Box<Snapshot>),
}

/// The size of a context with which a trigger is evaluated, without the system prompt and the tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContextTokens {
    /// Tokens of its messages.
    pub tokens: u64,
    /// The source of the count.
    pub source: TokenSource,
}

/// The source of a count of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The store's [`TokenCounter`](crate::TokenCounter).
    #[default]
    Estimate,
    /// The model's provider, up to the last answer with reported usage. The messages after that answer are estimated.
    Reported,
}

/// The chain of a leaf with everything that a plan and its commit need. It is never changed.
pub(super) struct Snapshot {
    pub(super) session: SessionKey,
    pub(super) leaf: LoopKey,
    /// As the plan sees it: through the active blocks, or raw with `force`.
    pub(super) chain: Chain,
    /// The first loop that can be planned: the anchor of the active rollup, or the one after it if
    /// the anchor has no turns but those in the rollup's text.
    pub(super) base: usize,
    /// The facts of the loops from `base` on, counted from there.
    pub(super) facts: Vec<LoopFacts>,
    /// The block on each loop of the chain that is really active, whatever `force` says.
    pub(super) active_blocks: Vec<(LoopKey, Option<BlockKey>)>,
    /// The runs whose edits are live, by loop.
    pub(super) edits: Vec<(LoopKey, Vec<RunKey>)>,
    /// The anchor of the rollup that is really active.
    anchor: Option<LoopKey>,
    /// The size that the gain is measured against: the context as it is built now, or the originals with
    /// `force`.
    pub(super) before: Size,
    /// The size that the trigger was evaluated with.
    pub(super) asked_about: ContextTokens,
    /// Digests of what could still be replaced of the loops before the leaf.
    pub(super) open: Vec<[u8; 32]>,
    /// The last receipt of a removal: what is planned was read after it.
    pub(super) last_receipt: i64,
    /// The number that the run would have.
    pub(super) round: u32,
    /// The size of a typical turn, and the size to come down to.
    pub(super) growth: Growth,
    /// The last user message of the chain: the depth of its loop, and its sequence.
    pub(super) last_user: (usize, u32),
    /// The messages to keep word for word.
    pub(super) pins: ChainPins,
    /// The prompts of people that are not pinned, the newest first; empty if no prompts are to be kept.
    pub(super) prompts: Vec<PersonPrompt>,
}

impl Snapshot {
    /// Evaluates the trigger from stored totals, and reads the rest if it fires. `counted` is the size to evaluate, if
    /// it is known better than from the totals.
    pub(super) fn load(
        store: &dyn SessionStore,
        session: &SessionId,
        request: &CompactRequest,
        counted: Option<ContextTokens>,
    ) -> StoreResult<TriggerCheck> {
        store::read(store, |read| {
            let (session, leaf) = keys_of(read, session, request.leaf.as_ref())?;
            let before = match request.trigger {
                CompactTrigger::Force => None,
                _ => Some(active_size(read, session, leaf, request)?),
            };
            let before = before.map(|(size, about)| (size, counted.unwrap_or(about)));
            let waits = |(size, about): &(Size, ContextTokens)| {
                request.trigger == CompactTrigger::Policy && !fires(request, *size, *about)
            };
            if let Some((size, about)) = before.filter(waits) {
                return Ok(TriggerCheck::NotFired(size, about));
            }
            let snapshot = Self::of(read, session, leaf, before, request)?;
            Ok(TriggerCheck::Fired(Box::new(snapshot)))
        })
    }

    fn of(
        read: &dyn StoreRead,
        session: SessionKey,
        leaf: LoopKey,
        before: Option<(Size, ContextTokens)>,
        request: &CompactRequest,
    ) -> StoreResult<Self> {
        let load = |view| {
            let (config, window) = (&request.policy.compaction, &request.policy.window);
            Chain::load(read, leaf, view, config, window, Purpose::Plan)
        };
        let real = load(ChainView::default())?;
        let active_blocks = real.links.iter().map(ChainLink::active_block).collect();
        let edits = real.links.iter().filter_map(ChainLink::edit_runs).collect();
        let mut pins = ChainPins::load(read, session, leaf)?;
        let mut prompts = Vec::new();
        if request.policy.compaction.keep_prompts_tokens > 0 {
            prompts = prompts_of_people(read, leaf)?;
            prompts.retain(|prompt| pins.messages.binary_search(&prompt.message).is_err());
            pins.any = true;
        }
        pins.any = pins.any || may_be_quoted(read, &real)?;
        let anchor = real.links.first().filter(|link| link.is_anchor());
        let anchor = anchor.map(|link| link.row.key);
        let chain = if request.trigger == CompactTrigger::Force {
            let raw = ChainView {
                raw: true,
                ..ChainView::default()
            };
            load(raw)?.hiding_as(&real)
        } else {
            real
        };
        chain.leaf()?;
        let is_behind = chain.links.len() > 1 && chain.links[0].is_anchor();
        let is_whole = chain.facts[0].rolled_up >= chain.facts[0].turns;
        let base = usize::from(is_behind && is_whole);
        let (before, asked_about) = before.unwrap_or_else(|| {
            let size = chain.size();
            (size, ContextTokens::estimated(size))
        });
        Ok(Self {
            session,
            leaf,
            before,
            asked_about,
            open: open_digests(read, &chain.links)?,
            base,
            facts: facts_from(&chain.facts, base),
            active_blocks,
            edits,
            anchor,
            last_receipt: read.last_receipt(session)?,
            round: next_round(read, session, leaf)?,
            last_user: last_user(read, &chain.links)?,
            growth: growth_of(read, &chain.links, &request.policy)?,
            pins: pins.without_rewritten(read, session, leaf)?,
            prompts,
            chain,
        })
    }

    /// Returns the last loop.
    pub(super) fn leaf(&self) -> &ChainLink {
        &self.chain.links[self.chain.links.len() - 1]
    }

    /// Returns the point of a run on this chain.
    pub(super) fn point(&self) -> Point {
        Point {
            loop_key: self.leaf,
            turns: self.leaf().complete,
        }
    }

    /// True if a block or a rollup is active for a loop, whatever `force` says.
    pub(super) fn block_applies(&self, depth: usize) -> bool {
        let key = self.chain.links[depth].row.key;
        let blocks = &self.active_blocks;
        let place = blocks.binary_search_by_key(&key, |(loop_key, _)| *loop_key);
        place.is_ok_and(|at| blocks[at].1.is_some())
            || self.anchor.is_some_and(|anchor| key <= anchor)
    }

    /// Returns the rollup that is active for the plan. Its block is on the first loop.
    pub(super) fn rollup(&self) -> Option<&BlockCore> {
        let first = self.chain.links.first().filter(|link| link.is_anchor())?;
        first.block.as_ref()
    }

    /// Returns the active rollup, if its block is on this loop.
    pub(super) fn rollup_on(&self, depth: usize) -> Option<&BlockCore> {
        self.rollup().filter(|_| depth == 0)
    }

    /// Returns the first sequence of a loop that comes after the last user message of the chain:
    /// from there on a provider wants the thinking that it signed back.
    pub(super) fn current_cycle(&self, depth: usize) -> u32 {
        match depth.cmp(&self.last_user.0) {
            std::cmp::Ordering::Less => u32::MAX,
            std::cmp::Ordering::Equal => self.last_user.1,
            std::cmp::Ordering::Greater => 0,
        }
    }
}

/// True if the policy requires that a context of this size is compacted.
pub(super) fn fires(request: &CompactRequest, size: Size, about: ContextTokens) -> bool {
    let tokens = about.tokens;
    let policy = &request.policy;
    let size = Size { tokens, ..size };
    let is_held = is_handed_over(policy) && policy.window.budget().fits(size);
    !is_held && policy.compaction.should_compact(&policy.window, size)
}

/// Returns the digests of the messages of earlier loops that their writers may still replace: a
/// block over them must not outlive that.
pub(super) fn open_digests(
    read: &dyn StoreRead,
    links: &[ChainLink],
) -> StoreResult<Vec<[u8; 32]>> {
    let mut digests = Vec::new();
    for link in links.iter().rev().skip(1) {
        let open = link.row.totals.sealed_seq..link.end_seq;
        if open.is_empty() {
            continue;
        }
        read.messages(link.row.key, open, &mut |row| {
            digests.push(row.body.digest);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(digests)
}

impl ContextTokens {
    /// The size of a context by the store's counter.
    pub(crate) fn estimated(size: Size) -> Self {
        Self {
            tokens: size.tokens,
            source: TokenSource::Estimate,
        }
    }
}

/// A provider's count is ignored if it is so many times smaller than the store's own. Tokenizers differ by
/// a factor of two or three; placeholders and counts without cached tokens differ by more.
const IMPLAUSIBLE: u64 = 4;

/// Returns the size of the context as it is built now: with the scope of the newest live run, not
/// with that of the next one. Also returns its tokens as the provider counted them, if it did.
pub(super) fn active_size(
    read: &dyn StoreRead,
    session: SessionKey,
    leaf: LoopKey,
    request: &CompactRequest,
) -> StoreResult<(Size, ContextTokens)> {
    let view = view_for(request.policy.provider);
    let chain = Chain::load_active(read, (session, leaf), view, &BuildOptions::default())?;
    let size = chain.size();
    let is_plausible = |tokens: &u64| tokens.saturating_mul(IMPLAUSIBLE) >= size.tokens;
    let about = match reported(read, &chain)?.filter(is_plausible) {
        None => ContextTokens::estimated(size),
        Some(tokens) => ContextTokens {
            tokens: tokens.saturating_sub(request.policy.window.system_prompt_tokens),
            source: TokenSource::Reported,
        },
    };
    Ok((size, about))
}

/// Returns the tokens that the provider of the last answer on the chain counted, with the system prompt and the
/// tools, plus estimates of the messages after it.
fn reported(read: &dyn StoreRead, chain: &Chain) -> StoreResult<Option<u64>> {
    let mut after = 0u64;
    let links = chain.links.iter().zip(&chain.shown).skip(chain.start);
    for (link, shown) in links.rev() {
        let Some(reported) = link.row.totals.reported else {
            after = after.saturating_add(shown.tokens);
            continue;
        };
        let (session, key) = (link.row.session, link.row.key);
        // An answer behind the cut belongs to another chain, and one before a compaction or an undo to
        // another context: neither counts the messages before it.
        if reported.seq >= link.end_seq
            || read.is_overlaid_since(session, key, reported.seq)? != Some(false)
        {
            return Ok(None);
        }
        read.sizes(
            link.row.key,
            reported.seq + 1..link.end_seq,
            &mut |message| {
                if message.role != Role::Extension {
                    after = after.saturating_add(message.size.tokens);
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        return Ok(Some(reported.tokens.saturating_add(after)));
    }
    Ok(None)
}

/// Returns the facts of the loops from `base` on, counted from there.
fn facts_from(facts: &[LoopFacts], base: usize) -> Vec<LoopFacts> {
    let shifted = |answer: &ForeignAnswer| {
        let depth = answer.call.depth.checked_sub(base)?;
        let call = ChainTurn {
            depth,
            ..answer.call
        };
        Some(ForeignAnswer { call, ..*answer })
    };
    let of_loop = |facts: &LoopFacts| {
        let before = facts
            .answers
            .iter()
            .filter(|answer| answer.call.depth < base);
        let orphans = before.map(|answer| answer.turn);
        LoopFacts {
            answers: facts.answers.iter().filter_map(shifted).collect(),
            orphans: orphans.chain(facts.orphans.iter().copied()).collect(),
            ..facts.clone()
        }
    };
    facts[base..].iter().map(of_loop).collect()
}

/// Returns the position of the last user message of a chain; the very beginning if it has none. An
/// empty message does not count: no provider gets it, so it begins nothing.
fn last_user(read: &dyn StoreRead, links: &[ChainLink]) -> StoreResult<(usize, u32)> {
    for (depth, link) in links.iter().enumerate().rev() {
        let key = link.row.key;
        for turn in (0..link.turns).rev() {
            let mut prompts = Vec::new();
            let seqs = turn_seqs(read, key, Turns::only(turn), link.end_seq)?;
            read.sizes(key, seqs, &mut |message| {
                let is_removed = |edits: &&LiveEdits| edits.removes(message.seq);
                let edits = link.edits.as_deref();
                if message.role == Role::User && edits.filter(is_removed).is_none() {
                    prompts.push(message.seq);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            for seq in prompts.into_iter().rev() {
                let mut is_blank = false;
                read.messages(key, seq..seq.saturating_add(1), &mut |row| {
                    let message = store::decode(read, row.body)?;
                    is_blank = message.message().is_none_or(has_no_content);
                    Ok(ControlFlow::Break(()))
                })?;
                if !is_blank {
                    return Ok((depth, seq));
                }
            }
        }
    }
    Ok((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_counted_from_the_base() {
        let mut facts = vec![LoopFacts::default(), LoopFacts::default()];
        let call = |depth| ChainTurn { depth, turn: 0 };
        facts[1].answers = vec![
            ForeignAnswer {
                turn: 1,
                call: call(0),
            },
            ForeignAnswer {
                turn: 1,
                call: call(1),
            },
        ];
        let shifted = facts_from(&facts, 1);
        assert_eq!(
            shifted[0].answers,
            [ForeignAnswer {
                turn: 1,
                call: call(0)
            }]
        );
    }
}
