//! A context that is kept between model calls.
//!
//! An agent builds a context before each model call, and most of it is the same as before the last call:
//! final messages and blocks never change. So the context up to the last final message is kept, with the
//! loops that it was built from, each with its active block and its live edits. As long as the new chain begins with these,
//! only later messages are read. Any other change (a compaction, an edit, an undo, another branch, a removal) shows
//! in the chain or in the receipts, and the whole context is read again.

use std::sync::Arc;

use super::build::{Builder, finish};
use super::{
    BuildError, BuildOptions, Chain, Context, SystemPrompt, SystemPrompts, find_leaf, keys_of,
    system_prompt, too_large,
};
use crate::compaction::Budget;
use crate::model::{LoopId, SealingProvider, SessionId};
use crate::provider::context_management::ContextManagement;
use crate::store::active_blocks::ChainLink;
use crate::store::{
    self, BlockKey, LoopKey, RunKey, SessionStore, StoreError, StoreRead, StoreResult,
};

/// A context that is kept between calls: unchanged parts are neither read nor parsed again. It belongs to
/// one store, as keys are valid in one store only.
#[derive(Clone, Debug, Default)]
pub struct KeptContext {
    built: Option<BuiltContext>,
    prompt: Option<KeptPrompt>,
}

/// A system prompt with the values that it was read at.
#[derive(Clone, Debug)]
struct KeptPrompt {
    prompt: SystemPrompt,
    which: SystemPrompts,
    leaf: LoopKey,
    /// The tokens of the system messages of the leaf.
    tokens: u64,
    last_receipt: i64,
}

/// A context with the loops that it was built from.
#[derive(Clone, Debug)]
struct BuiltContext {
    context: Arc<Context>,
    loops: Vec<ShownLoop>,
    stable: StablePart,
    last_receipt: i64,
}

/// The part of a loop that a context showed: its active block, its edits, and the messages before a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownLoop {
    loop_key: LoopKey,
    block: Option<BlockKey>,
    end_seq: u32,
    /// The runs with live edits of its messages.
    edits: Vec<RunKey>,
}

/// The beginning of a context that only a removal can change.
#[derive(Clone, Debug, Default)]
struct StablePart {
    /// The sequence after the last of its messages of the leaf.
    end_seq: u32,
    messages: usize,
    tokens: u64,
    bytes: u64,
    parts: Vec<super::Part>,
}

impl KeptContext {
    /// Returns the context of a leaf as it is now: the same as from [`build_context_from_session`], but only
    /// new messages are read.
    ///
    /// # Errors
    /// As [`build_context_from_session`].
    ///
    /// [`build_context_from_session`]: super::build_context_from_session
    pub fn refresh(
        &mut self,
        store: &dyn SessionStore,
        session: &SessionId,
        leaf: LoopId,
        provider: Option<SealingProvider>,
        budget: Budget,
        context_management: ContextManagement,
    ) -> Result<Arc<Context>, BuildError> {
        let options = BuildOptions {
            context_management,
            leaf: Some(leaf),
            provider,
            budget: Some(budget.tokens),
            max_bytes: budget.bytes,
            ..BuildOptions::default()
        };
        let before = self.built.take();
        let prompt = self.prompt.as_ref().map(|kept| &kept.prompt);
        // A failure of the backend is the outer error, a context that does not fit the inner one.
        let next = store::read(store, |read| {
            match refreshed(read, session, &options, before, prompt) {
                Err(BuildError::Store(error)) => Err(error),
                other => Ok(other),
            }
        })??;
        Ok(Arc::clone(&self.built.insert(next).context))
    }

    /// Returns the system prompt of a leaf as it is now; the next context has it. It is read again only if a
    /// system message was appended, a loop began, or something was removed.
    ///
    /// # Errors
    /// If the session or the loop does not exist, or the store fails.
    pub fn system_prompt(
        &mut self,
        store: &dyn SessionStore,
        session: &SessionId,
        leaf: &LoopId,
        which: SystemPrompts,
    ) -> StoreResult<&SystemPrompt> {
        let before = self.prompt.take();
        let kept = store::read(store, |read| {
            let (owner, leaf) = keys_of(read, session, Some(leaf))?;
            let (row, last_receipt) = (read.loop_by_key(leaf)?, read.last_receipt(owner)?);
            let tokens = row.progress.system_tokens;
            let is_same = |kept: &KeptPrompt| {
                (kept.leaf, kept.tokens) == (leaf, tokens)
                    && (kept.last_receipt, kept.which) == (last_receipt, which)
            };
            if let Some(kept) = before.filter(is_same) {
                return Ok(kept);
            }
            Ok(KeptPrompt {
                prompt: system_prompt(read, owner, (leaf, row.totals.next_seq), &[], which)?,
                which,
                leaf,
                tokens,
                last_receipt,
            })
        })?;
        Ok(&self.prompt.insert(kept).prompt)
    }
}

fn refreshed(
    read: &dyn StoreRead,
    session: &SessionId,
    options: &BuildOptions,
    before: Option<BuiltContext>,
    prompt: Option<&SystemPrompt>,
) -> Result<BuiltContext, BuildError> {
    let (owner, leaf, view) = find_leaf(read, session, options)?;
    let chain = Chain::load_active(read, (owner, leaf), view, options)?;
    if let Some(error) = too_large(chain.size(), options) {
        return Err(error);
    }
    let last_receipt = read.last_receipt(owner)?;
    let links = &chain.links[chain.start..];
    let before = before.filter(|kept| {
        kept.last_receipt == last_receipt && begins_with(links, &kept.loops, &kept.stable)
    });
    let mut next = build_on(read, session, &chain, options.provider, before)?;
    let size = chain.size();
    if (next.context.tokens, next.context.bytes) != (size.tokens, size.bytes) {
        // The tokens were recounted meanwhile.
        next = build_on(read, session, &chain, options.provider, None)?;
    }
    next.last_receipt = last_receipt;
    if let Some(prompt) = prompt.filter(|prompt| **prompt != next.context.system) {
        Arc::make_mut(&mut next.context).system = prompt.clone();
    }
    if next.context.context_management != options.context_management {
        let context = Arc::make_mut(&mut next.context);
        context
            .context_management
            .clone_from(&options.context_management);
    }
    Ok(next)
}

/// True if a chain begins with these loops, unchanged; the last of them may have grown.
fn begins_with(links: &[ChainLink], loops: &[ShownLoop], stable: &StablePart) -> bool {
    let Some((last, before)) = loops.split_last() else {
        return false;
    };
    let Some(leaf) = links.get(before.len()) else {
        return false;
    };
    let last_now = ShownLoop {
        end_seq: last.end_seq,
        ..shown_loop(leaf)
    };
    let is_same = |(link, old): (&ChainLink, &ShownLoop)| shown_loop(link) == *old;
    links.iter().zip(before).all(is_same) && last_now == *last && leaf.end_seq >= stable.end_seq
}

fn shown_loop(link: &ChainLink) -> ShownLoop {
    ShownLoop {
        loop_key: link.row.key,
        block: link.block.as_ref().map(|block| block.key),
        end_seq: link.end_seq,
        edits: link
            .edits
            .as_ref()
            .map_or_else(Vec::new, |edits| edits.runs().to_vec()),
    }
}

/// Builds the context of a chain; `kept` is its beginning.
fn build_on(
    read: &dyn StoreRead,
    session: &SessionId,
    chain: &Chain,
    provider: Option<SealingProvider>,
    kept: Option<BuiltContext>,
) -> StoreResult<BuiltContext> {
    let leaf = chain.leaf()?;
    let links = &chain.links[chain.start..];
    let mut builder = Builder::new(read, session.clone(), leaf.row.loop_id.clone());
    let mut from = 0;
    if let Some(kept) = kept {
        let stable = kept.stable;
        // The context is copied only if the caller still uses the last one.
        let mut context = Arc::unwrap_or_clone(kept.context);
        context.messages.truncate(stable.messages);
        (context.tokens, context.bytes) = (stable.tokens, stable.bytes);
        (context.leaf, context.parts) = (leaf.row.loop_id.clone(), stable.parts);
        builder.context = context;
        from = kept.loops.len();
        let link = &links[from - 1];
        match from == links.len() {
            true => return close(read, builder, chain, provider, stable.end_seq),
            false => builder.add_tail(link, stable.end_seq..link.end_seq)?,
        }
    }
    builder.expect(chain.size().messages);
    let Some((last, before)) = links[from..].split_last() else {
        return Err(StoreError::Damaged("a chain without loops".into()));
    };
    for link in before {
        builder.add_loop(link)?;
    }
    let covered = last.block.as_ref().map_or(0, |block| block.through);
    let end_seq = covered.max(last.row.totals.sealed_seq.min(last.end_seq));
    builder.add_loop(&ChainLink {
        end_seq,
        ..(*last).clone()
    })?;
    close(read, builder, chain, provider, end_seq)
}

/// Adds the rest of the leaf, and records which part of the context is stable.
fn close(
    read: &dyn StoreRead,
    mut builder: Builder<'_>,
    chain: &Chain,
    provider: Option<SealingProvider>,
    from: u32,
) -> StoreResult<BuiltContext> {
    let leaf = chain.leaf()?;
    let sealed_seq = leaf
        .row
        .totals
        .sealed_seq
        .clamp(from, leaf.end_seq.max(from));
    builder.add_tail(leaf, from..sealed_seq)?;
    let stable = StablePart {
        end_seq: sealed_seq,
        messages: builder.context.messages.len(),
        tokens: builder.context.tokens,
        bytes: builder.context.bytes,
        parts: builder.context.parts.clone(),
    };
    builder.add_tail(leaf, sealed_seq..leaf.end_seq)?;
    let mut context = builder.context;
    finish(read, &mut context, chain, provider)?;
    Ok(BuiltContext {
        context: Arc::new(context),
        loops: chain.links[chain.start..].iter().map(shown_loop).collect(),
        stable,
        last_receipt: 0,
    })
}
