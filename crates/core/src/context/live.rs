//! A context that is kept from call to call.
//!
//! An agent builds a context before each model call, and most of it is what the call before saw: sealed
//! messages and blocks never change. So what is kept is the context up to the last sealed message, with
//! what it stood on: each loop of the chain with its active block. As long as the new chain begins with
//! these, only what came after is read. Whatever else happened (a compaction, an undo, another branch, a
//! removal) shows in the chain or in the receipts, and all is read anew.

use std::sync::Arc;

use super::build::{Builder, finish};
use super::{
    BuildError, BuildOptions, Chain, Context, SystemPrompt, SystemPrompts, find_leaf, keys_of,
    system_prompt, too_large,
};
use crate::compaction::Budget;
use crate::model::{LoopId, SealingProvider, SessionId};
use crate::store::active_blocks::ChainLink;
use crate::store::{self, BlockKey, LoopKey, SessionStore, StoreError, StoreRead, StoreResult};

/// A context that is kept: what is still as it was is neither read nor parsed again. It goes with one
/// store, as keys mean something in one store only.
#[derive(Clone, Debug, Default)]
pub struct KeptContext {
    built: Option<BuiltContext>,
    prompt: Option<KeptPrompt>,
}

/// A system prompt with what it was read from.
#[derive(Clone, Debug)]
struct KeptPrompt {
    prompt: SystemPrompt,
    which: SystemPrompts,
    leaf: LoopKey,
    /// The tokens of the system messages of the leaf.
    tokens: u64,
    last_receipt: i64,
}

/// A context with what it stands on.
#[derive(Clone, Debug)]
struct BuiltContext {
    context: Arc<Context>,
    stands: Vec<Stand>,
    sealed: SealedPart,
    last_receipt: i64,
}

/// What a loop showed: its active block, and the messages before a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stand {
    loop_key: LoopKey,
    block: Option<BlockKey>,
    end_seq: u32,
}

/// How much of a context can only change by removal.
#[derive(Clone, Debug, Default)]
struct SealedPart {
    /// The sequence after the last such message of the leaf.
    end_seq: u32,
    messages: usize,
    tokens: u64,
    bytes: u64,
    parts: Vec<super::Part>,
}

impl KeptContext {
    /// Returns the context of a leaf as it is now: the same that [`build_context_from_session`] gives, for
    /// the price of what is new.
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
    ) -> Result<Arc<Context>, BuildError> {
        let options = BuildOptions {
            leaf: Some(leaf),
            provider,
            budget: Some(budget.tokens),
            max_bytes: budget.bytes,
            ..BuildOptions::default()
        };
        let before = self.built.take();
        let prompt = self.prompt.as_ref().map(|kept| &kept.prompt);
        // The backend's own failure comes back as such, a context that does not fit as the inner one.
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
    /// If the session or the loop is not there, or the store fails.
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
    let (_, chain) = Chain::load_active(read, (owner, leaf), view, options)?;
    if let Some(error) = too_large(chain.size(), options) {
        return Err(error);
    }
    let last_receipt = read.last_receipt(owner)?;
    let links = &chain.links[chain.start..];
    let before = before.filter(|kept| {
        kept.last_receipt == last_receipt && begins_with(links, &kept.stands, &kept.sealed)
    });
    let mut next = go_on(read, session, &chain, options.provider, before)?;
    let size = chain.size();
    if (next.context.tokens, next.context.bytes) != (size.tokens, size.bytes) {
        // Tokens were counted anew.
        next = go_on(read, session, &chain, options.provider, None)?;
    }
    next.last_receipt = last_receipt;
    if let Some(prompt) = prompt.filter(|prompt| **prompt != next.context.system) {
        Arc::make_mut(&mut next.context).system = prompt.clone();
    }
    Ok(next)
}

/// Whether a chain begins with loops that show what they showed; the last of them may have gone on.
fn begins_with(links: &[ChainLink], stands: &[Stand], sealed: &SealedPart) -> bool {
    let Some((last, before)) = stands.split_last() else {
        return false;
    };
    let Some(leaf) = links.get(before.len()) else {
        return false;
    };
    let goes_on = Stand {
        end_seq: last.end_seq,
        ..stand(leaf)
    };
    let is_same = |(link, old): (&ChainLink, &Stand)| stand(link) == *old;
    links.iter().zip(before).all(is_same) && goes_on == *last && leaf.end_seq >= sealed.end_seq
}

fn stand(link: &ChainLink) -> Stand {
    Stand {
        loop_key: link.row.key,
        block: link.block.as_ref().map(|block| block.key),
        end_seq: link.end_seq,
    }
}

/// Builds the context of a chain, of which `kept` is the beginning.
fn go_on(
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
        let sealed = kept.sealed;
        // Nothing is copied unless the one that was given out last is still in use.
        let mut context = Arc::unwrap_or_clone(kept.context);
        context.messages.truncate(sealed.messages);
        (context.tokens, context.bytes) = (sealed.tokens, sealed.bytes);
        (context.leaf, context.parts) = (leaf.row.loop_id.clone(), sealed.parts);
        builder.context = context;
        from = kept.stands.len();
        let link = &links[from - 1];
        match from == links.len() {
            true => return close(read, builder, chain, provider, sealed.end_seq),
            false => builder.add_tail(link, sealed.end_seq..link.end_seq)?,
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

/// Adds what of the leaf is not there yet; notes how much of that is sealed.
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
    let sealed = SealedPart {
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
        stands: chain.links[chain.start..].iter().map(stand).collect(),
        sealed,
        last_receipt: 0,
    })
}
