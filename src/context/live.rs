//! A context that is kept from call to call.
//!
//! An agent builds a context before each model call, and most of it is what the call before saw: sealed
//! messages and blocks never change. So what is kept is the context up to the last sealed message, with
//! what it stood on: each loop of the chain with its block in force. As long as the new chain begins with
//! these, only what came after is read. Whatever else happened (a compaction, an undo, another branch, a
//! removal) shows in the chain or in the receipts, and all is read anew.

use super::build::{Builder, in_flight};
use super::{
    BuildError, BuildOptions, Chain, Context, Purpose, faults_of, find_leaf, settings, too_large,
};
use crate::compaction::Budget;
use crate::model::{LoopId, SessionId};
use crate::store::active_blocks::ChainLink;
use crate::store::{BlockKey, LoopKey, SessionStore, StoreError, StoreRead, StoreResult};

/// The context of a session for an agent that asks before each model call: what is still as it was is
/// neither read nor parsed again.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, append, session};
/// use loopstore::*;
///
/// let store = SqliteStore::in_memory()?;
/// let id = SessionId::new("s")?;
/// let loop_key = store::write(&store, |write| {
///     let key = session::create_session(write, &Session::new(id.clone(), "agent"), None, None)?;
///     session::create_loop(write, key, &LoopRecord::new(LoopId::generate(), None))
/// })?;
/// let mut live = LiveContext::new(&store, id);
/// for said in ["Will it rain?", "And tomorrow?"] {
///     let prompt = AgentMessage::from(Message::user(said));
///     store::write(&store, |write| {
///         append::append(write, loop_key, vec![prompt.into()], &HeuristicTokenCounter)
///     })?;
///     let context = live.refresh()?;
///     assert!(!context.messages.is_empty());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LiveContext<'a> {
    /// Keys mean something in one store only.
    store: &'a dyn SessionStore,
    session: SessionId,
    options: BuildOptions,
    kept: Option<KeptContext>,
}

/// A context with what it stands on.
#[derive(Clone, Debug)]
struct KeptContext {
    context: Context,
    stands: Vec<Stand>,
    sealed: SealedPart,
    last_receipt: i64,
}

/// What a loop showed: its block in force, and the messages before a sequence.
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

impl<'a> LiveContext<'a> {
    /// The context of a session's current loop, whichever that is.
    pub fn new(store: &'a dyn SessionStore, session: SessionId) -> Self {
        Self {
            store,
            session,
            options: BuildOptions::default(),
            kept: None,
        }
    }

    /// Stays with this leaf.
    #[must_use]
    pub fn of_leaf(mut self, leaf: LoopId) -> Self {
        self.options.leaf = Some(leaf);
        self.kept = None;
        self
    }

    /// Refuses a context of more tokens or, if given, bytes of JSON.
    #[must_use]
    pub fn within(mut self, tokens: u64, bytes: Option<u64>) -> Self {
        (self.options.budget, self.options.max_bytes) = (Some(tokens), bytes);
        self
    }

    /// Returns the context as it was last read, `None` if it never was or could not be.
    pub fn context(&self) -> Option<&Context> {
        self.kept.as_ref().map(|kept| &kept.context)
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    pub(crate) fn leaf(&self) -> Option<&LoopId> {
        self.options.leaf.as_ref()
    }

    pub(crate) fn limit(&mut self, budget: Budget) {
        (self.options.budget, self.options.max_bytes) = (Some(budget.tokens), budget.bytes);
    }

    /// Returns the context as it is now: the same that [`build_context_from_session`] gives, for the
    /// price of what is new.
    ///
    /// # Errors
    /// As [`build_context_from_session`].
    ///
    /// [`build_context_from_session`]: super::build_context_from_session
    pub fn refresh(&mut self) -> Result<&Context, BuildError> {
        let mut done = Ok(());
        self.store.read(&mut |read| {
            done = self.refresh_from(read);
            Ok(())
        })?;
        done?;
        Ok(self
            .context()
            .ok_or_else(|| StoreError::Invalid("the store did not run the read".into()))?)
    }

    fn refresh_from(&mut self, read: &dyn StoreRead) -> Result<(), BuildError> {
        let (owner, leaf, view) = find_leaf(read, &self.session, &self.options)?;
        let plan = settings(read, owner, leaf, view, &self.options)?;
        let chain = Chain::load(read, leaf, view, &plan.config, &plan.window, Purpose::Build)?;
        if let Some(error) = too_large(chain.size(), &self.options) {
            return Err(error);
        }
        let last_receipt = read.last_receipt(owner)?;
        let links = &chain.links[chain.start..];
        let kept = self.kept.take().filter(|kept| {
            kept.last_receipt == last_receipt && begins_with(links, &kept.stands, &kept.sealed)
        });
        let mut next = go_on(read, &self.session, &chain, kept)?;
        let size = chain.size();
        if (next.context.tokens, next.context.bytes) != (size.tokens, size.bytes) {
            // Tokens were counted anew.
            next = go_on(read, &self.session, &chain, None)?;
        }
        next.last_receipt = last_receipt;
        self.kept = Some(next);
        Ok(())
    }
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
    kept: Option<KeptContext>,
) -> StoreResult<KeptContext> {
    let leaf = chain.leaf()?;
    let links = &chain.links[chain.start..];
    let mut builder = Builder::new(read, session.clone(), leaf.row.loop_id.clone());
    let mut from = 0;
    if let Some(kept) = kept {
        let sealed = kept.sealed;
        let mut context = kept.context;
        context.messages.truncate(sealed.messages);
        (context.tokens, context.bytes) = (sealed.tokens, sealed.bytes);
        (context.leaf, context.parts) = (leaf.row.loop_id.clone(), sealed.parts);
        builder.context = context;
        from = kept.stands.len();
        let link = &links[from - 1];
        match from == links.len() {
            true => return close(builder, links, chain, sealed.end_seq),
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
    close(builder, links, chain, end_seq)
}

/// Adds what of the leaf is not there yet; notes how much of that is sealed.
fn close(
    mut builder: Builder<'_>,
    links: &[ChainLink],
    chain: &Chain,
    from: u32,
) -> StoreResult<KeptContext> {
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
    context.faults = faults_of(&context.messages, in_flight(leaf));
    Ok(KeptContext {
        context,
        stands: links.iter().map(stand).collect(),
        sealed,
        last_receipt: 0,
    })
}
