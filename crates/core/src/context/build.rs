//! Reads the messages of a context.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use foldhash::fast::RandomState;

use super::chain::Chain;
use super::manifest::Outline;
use super::sealed_faults::sealed_faults;
use super::{BuildOptions, Context, Part, PartSection, SystemPrompt, faults_of, system_prompt};
use crate::compaction::ContextMessage;
use crate::model::{AgentMessage, LoopId, Role, SealingProvider, SessionId};
use crate::overlay::turn_seqs;
use crate::provider::context_management::ContextManagement;
use crate::store::active_blocks::ChainLink;
use crate::store::{
    self, BlockCore, BlockKey, BlockKind, BlockMessage, EditedMessage, LoopKey, MessageEdit,
    MessageRef, NewBlock, Proof, Section, Size, StoreError, StoreRead, StoreResult, StoredMessage,
    StoredMessageRef, Turns, codec,
};

/// Reads the context of a chain and, if requested, its composition.
pub fn build(
    read: &dyn StoreRead,
    session: &SessionId,
    chain: &Chain,
    options: &BuildOptions,
) -> StoreResult<(Context, Outline)> {
    let leaf = chain.leaf()?;
    let mut builder = Builder::new(read, session.clone(), leaf.row.loop_id.clone());
    (builder.with_outline, builder.check) = (options.record, options.check);
    builder.expect(chain.size().messages);
    for link in chain.links.iter().skip(chain.start) {
        builder.add_loop(link)?;
    }
    let mut context = builder.context;
    let end = (leaf.row.key, leaf.end_seq);
    context
        .context_management
        .clone_from(&options.context_management);
    let which = options.system_prompts;
    context.system = system_prompt(read, leaf.row.session, end, &chain.links, which)?;
    finish(read, &mut context, chain, options.provider)?;
    Ok((context, builder.outline))
}

/// Reads the messages of a chain's context, each with the loop and the sequence of its original; `None` for a message
/// of a summary. The first message of the provider's compaction is returned too, by its index, if one is active.
pub fn placed_messages(
    read: &dyn StoreRead,
    chain: &Chain,
    provider: Option<SealingProvider>,
) -> StoreResult<PlacedMessages> {
    let mut builder = Builder::new(read, SessionId::generate(), LoopId::generate());
    for link in chain.links.iter().skip(chain.start) {
        builder.add_loop(link)?;
    }
    let messages = builder.context.messages;
    Ok(PlacedMessages {
        compaction: compaction_in(&messages, chain, provider),
        messages: builder.places.into_iter().zip(messages).collect(),
    })
}

/// The messages of a context with their places.
pub struct PlacedMessages {
    /// Each message, with the loop and the sequence of its original.
    pub messages: Vec<(Option<(LoopKey, u32)>, AgentMessage)>,
    /// The index of the message with the provider's compaction that replaces all messages before it.
    pub compaction: Option<usize>,
}

/// Returns the index of the message with the compaction of a provider that replaces all messages before it.
fn compaction_in(
    messages: &[AgentMessage],
    chain: &Chain,
    provider: Option<SealingProvider>,
) -> Option<usize> {
    let provider = provider.filter(|_| sealed_anchor(chain).is_some())?;
    let is_own = |by: SealingProvider| by == provider;
    let mut answers = messages.iter();
    answers.position(|message| message.last_compaction().is_some_and(|(_, by)| is_own(by)))
}

/// Completes a context that has its messages: the provider and its compaction, `in_flight` and the faults.
pub(super) fn finish(
    read: &dyn StoreRead,
    context: &mut Context,
    chain: &Chain,
    provider: Option<SealingProvider>,
) -> StoreResult<()> {
    let leaf = chain.leaf()?;
    context.provider = provider;
    context.compaction = compaction_in(&context.messages, chain, provider);
    context.in_flight = in_flight(leaf);
    context.faults = faults_of(&context.messages, context.in_flight);
    if let Some(provider) = provider {
        let sealed = sealed_faults(read, context, sealed_anchor(chain), provider)?;
        context.faults.extend(sealed);
        context.faults.sort_by_key(|fault| fault.message);
    }
    Ok(())
}

/// Returns the provider's compaction that the context of a chain begins with.
fn sealed_anchor(chain: &Chain) -> Option<&BlockCore> {
    let block = chain.links.get(chain.start)?.block.as_ref()?;
    block.kind.is_sealed().then_some(block)
}

/// True if the leaf of a context is running.
pub(super) fn in_flight(leaf: &ChainLink) -> bool {
    // A loop that grew after the moment was running then.
    leaf.end_seq < leaf.row.totals.next_seq || !leaf.row.status.is_ended()
}

/// Reads the composition of the context of these loops, without the content of the messages.
pub(super) fn outline_of<'a>(
    read: &dyn StoreRead,
    links: impl Iterator<Item = &'a ChainLink>,
) -> StoreResult<Outline> {
    let mut outline = Outline::default();
    for link in links {
        let mut builder = Builder::new(read, SessionId::generate(), link.row.loop_id.clone());
        (builder.with_outline, builder.only_outline) = (true, true);
        builder.outline = outline;
        builder.add_loop(link)?;
        outline = builder.outline;
    }
    Ok(outline)
}

/// Reads the parts of a chain's context from stored sizes; only the messages of blocks are read, and none
/// is parsed.
pub(super) fn parts_of(read: &dyn StoreRead, chain: &Chain) -> StoreResult<Vec<Part>> {
    let leaf = chain.leaf()?;
    let mut builder = Builder::new(read, SessionId::generate(), leaf.row.loop_id.clone());
    builder.only_parts = true;
    for link in chain.links.iter().skip(chain.start) {
        builder.add_loop(link)?;
    }
    Ok(builder.context.parts)
}

/// Returns the messages that a chain would show with blocks that are not written yet.
pub fn messages_with(
    read: &dyn StoreRead,
    chain: &Chain,
    fresh: &[&NewBlock],
) -> StoreResult<Vec<AgentMessage>> {
    let mut builder = Builder::new(read, SessionId::generate(), LoopId::generate());
    builder.fresh = fresh;
    for link in chain.links.iter().skip(chain.start) {
        builder.add_loop(link)?;
    }
    Ok(builder.context.messages)
}

/// Returns the originals of a chain, whatever blocks are active.
pub fn originals_of(read: &dyn StoreRead, chain: &[ChainLink]) -> StoreResult<Vec<AgentMessage>> {
    let mut builder = Builder::new(read, SessionId::generate(), LoopId::generate());
    for link in chain {
        builder.add_originals(link, PartSection::Raw, 0..link.end_seq, None)?;
    }
    Ok(builder.context.messages)
}

/// Returns the messages that one loop shows; with `quotes`, also the pinned messages that its block quotes.
pub fn shown_messages(
    read: &dyn StoreRead,
    link: &ChainLink,
    quotes: bool,
) -> StoreResult<Vec<ContextMessage>> {
    let mut builder = Builder::new(read, SessionId::generate(), link.row.loop_id.clone());
    builder.without_quotes = !quotes;
    builder.add_loop(link)?;
    Ok(builder
        .turns
        .into_iter()
        .zip(builder.context.messages)
        .collect())
}

pub(super) struct Builder<'a> {
    read: &'a dyn StoreRead,
    /// Blocks that are not written yet.
    fresh: &'a [&'a NewBlock],
    pub(super) context: Context,
    /// The turn of each message's original; `None` for a message of a summary.
    turns: Vec<Option<u32>>,
    /// The place of each message's original; `None` for a message of a summary.
    places: Vec<Option<(LoopKey, u32)>>,
    outline: Outline,
    with_outline: bool,
    /// True to compare each message with its digest.
    check: bool,
    /// True to collect no messages.
    only_outline: bool,
    /// True to collect no messages and read no originals.
    only_parts: bool,
    /// True to leave out pinned messages that blocks quote.
    without_quotes: bool,
}

/// The replacements of originals, by their sequence; `None` if an original is dropped.
type Replacements = HashMap<u32, Option<StoredMessage>, RandomState>;

fn not_its_digest(link: &ChainLink, place: MessageOrigin) -> StoreError {
    let of = match place.seq {
        Some(seq) => format!("message {seq}"),
        None => "a summary".to_owned(),
    };
    let loop_key = &link.row.loop_id;
    StoreError::Damaged(format!(
        "{of} of loop {loop_key} is not what its digest says"
    ))
}

/// The origin of a message.
#[derive(Clone, Copy)]
struct MessageOrigin {
    block: Option<BlockKey>,
    /// The sequence of the original; `None` for a message of a summary.
    seq: Option<u32>,
    turn: Option<u32>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(read: &'a dyn StoreRead, session: SessionId, leaf: LoopId) -> Self {
        let context = Context {
            session,
            leaf,
            messages: Vec::new(),
            tokens: 0,
            bytes: 0,
            parts: Vec::new(),
            faults: Vec::new(),
            provider: None,
            compaction: None,
            in_flight: false,
            system: SystemPrompt::default(),
            context_management: ContextManagement::default(),
            manifest: None,
        };
        Self {
            read,
            fresh: &[],
            context,
            turns: Vec::new(),
            places: Vec::new(),
            outline: Outline::default(),
            with_outline: false,
            check: false,
            only_outline: false,
            only_parts: false,
            without_quotes: false,
        }
    }
}

impl Builder<'_> {
    /// Reserves space for this number of messages; an implausible number is ignored.
    pub(super) fn expect(&mut self, messages: u64) {
        let most = usize::try_from(messages).map_or(0, |messages| messages.min(10_000));
        self.context.messages.reserve(most);
        self.turns.reserve(most);
    }

    pub(super) fn add_loop(&mut self, link: &ChainLink) -> StoreResult<()> {
        let Some(block) = &link.block else {
            return self.add_originals(link, PartSection::Raw, 0..link.end_seq, None);
        };
        let fresh = self.fresh.iter().find(|fresh| fresh.row.core == *block);
        let own = match (fresh, block.layout.compacted.or(block.layout.recent)) {
            (Some(fresh), _) => fresh.messages.clone(),
            (None, Some(_)) => self.read.block_messages(block.key)?,
            (None, None) => Vec::new(),
        };
        if let Some(turns) = block.layout.first {
            self.add_originals(link, PartSection::First, self.seqs(block, turns)?, None)?;
        }
        let (compacted, recent): (Vec<_>, Vec<_>) = own
            .into_iter()
            .partition(|message| message.section == Section::Compacted);
        if let Some(turns) = block.layout.compacted {
            self.add_summary(link, block, turns, compacted)?;
        }
        if let Some(turns) = block.layout.recent {
            let seqs = self.seqs(block, turns)?;
            self.add_originals(link, PartSection::Recent, seqs, Some(recent))?;
        }
        self.add_originals(link, PartSection::Tail, block.through..link.end_seq, None)
    }

    /// Appends messages of a loop after its block, or of a loop without one.
    pub(super) fn add_tail(&mut self, link: &ChainLink, seqs: Range<u32>) -> StoreResult<()> {
        let section = match link.block {
            Some(_) => PartSection::Tail,
            None => PartSection::Raw,
        };
        self.add_originals(link, section, seqs, None)
    }

    fn seqs(&self, block: &BlockCore, turns: Turns) -> StoreResult<Range<u32>> {
        turn_seqs(self.read, block.loop_key, turns, block.through)
    }

    fn add_summary(
        &mut self,
        link: &ChainLink,
        block: &BlockCore,
        turns: Turns,
        messages: Vec<BlockMessage>,
    ) -> StoreResult<()> {
        let section = match block.kind {
            BlockKind::Rollup => PartSection::Rollup,
            BlockKind::Sealed(_) => PartSection::Sealed,
            BlockKind::Current | BlockKind::Earlier => PartSection::Compacted,
        };
        let mut part = self.part(link, section, turns.first);
        part.to_turn = turns.last;
        let place = MessageOrigin {
            block: Some(block.key),
            seq: None,
            turn: None,
        };
        for message in messages {
            let quoted = message.quoted();
            // The summary of another tool may contain extensions, which never enter a context.
            let stored = message.body.filter(|body| body.role != Role::Extension);
            match (stored, quoted) {
                (Some(stored), Some(of)) => {
                    self.push_quote((link, block), &mut part, &stored, (place, of))?;
                }
                (Some(stored), None) => self.push_own(link, &mut part, stored, place)?,
                (None, _) => {}
            }
        }
        self.close(part);
        Ok(())
    }

    /// Adds originals; those that the section replaces are added in their new form.
    fn add_originals(
        &mut self,
        link: &ChainLink,
        section: PartSection,
        seqs: Range<u32>,
        replaced: Option<Vec<BlockMessage>>,
    ) -> StoreResult<()> {
        let mut replaced: Replacements = replaced
            .into_iter()
            .flatten()
            .filter_map(|message| Some((message.replaces?, message.body)))
            .collect();
        if self.only_parts {
            return self.measure_originals(link, section, seqs, &replaced);
        }
        let mut part: Option<Part> = None;
        let block = link.block.as_ref().map(|block| block.key);
        let read = self.read;
        let edits = link.edits.as_deref().filter(|edits| edits.touches(&seqs));
        let (proofs, check) = (self.with_outline || self.check, self.check);
        let mut visit = |row: &MessageRef<'_>| -> StoreResult<ControlFlow<()>> {
            let Some(turn) = row.turn.filter(|_| row.message.role != Role::Extension) else {
                return Ok(ControlFlow::Continue(()));
            };
            let other = replaced.remove(&row.seq);
            if let Some(None) = other {
                return Ok(ControlFlow::Continue(()));
            }
            let edit = edits.and_then(|edits| edits.at(row.seq));
            if let Some(MessageEdit::Removed) = edit {
                return Ok(ControlFlow::Continue(()));
            }
            let part = part.get_or_insert_with(|| self.part(link, section, turn));
            part.to_turn = turn;
            let place = MessageOrigin {
                block: block.filter(|_| section != PartSection::Tail),
                seq: Some(row.seq),
                turn: Some(turn),
            };
            match (edit, other.flatten()) {
                (Some(MessageEdit::Parts(edited)), _) => {
                    self.push_edited(link, part, &row.message, (place, edited))?;
                }
                (_, Some(other)) => self.push_own(link, part, other, place)?,
                (_, None) => self.push(link, part, &row.message, place)?,
            }
            Ok(ControlFlow::Continue(()))
        };
        match edits.filter(|_| !check) {
            Some(edits) => {
                let need = |seq: u32| edits.content_need(seq);
                read.message_refs_as_needed(link.row.key, seqs, proofs, &need, &mut visit)?;
            }
            // A check compares also what contexts do not show with its digest.
            None => read.message_refs(link.row.key, seqs, proofs, &mut visit)?,
        }
        part.into_iter().for_each(|part| self.close(part));
        Ok(())
    }

    /// Adds the part for originals, from their sizes.
    fn measure_originals(
        &mut self,
        link: &ChainLink,
        section: PartSection,
        seqs: Range<u32>,
        replaced: &Replacements,
    ) -> StoreResult<()> {
        let mut part: Option<Part> = None;
        let read = self.read;
        let edits = link.edits.as_deref().filter(|edits| edits.touches(&seqs));
        read.sizes(link.row.key, seqs, &mut |row| {
            let turn = row.turn.filter(|_| row.role != Role::Extension);
            let edit = edits.and_then(|edits| edits.at(row.seq));
            let tokens = match (replaced.get(&row.seq), edit) {
                (Some(None), _) | (_, Some(MessageEdit::Removed)) => None,
                (_, Some(MessageEdit::Parts(edited))) => Some(edited.resized(row.size).tokens),
                (Some(Some(other)), None) => Some(other.tokens),
                (None, None) => Some(row.size.tokens),
            };
            if let (Some(turn), Some(tokens)) = (turn, tokens) {
                let part = part.get_or_insert_with(|| self.part(link, section, turn));
                part.to_turn = turn;
                part.messages += 1;
                part.tokens += tokens;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        part.into_iter().for_each(|part| self.close(part));
        Ok(())
    }

    fn part(&self, link: &ChainLink, section: PartSection, turn: u32) -> Part {
        Part {
            loop_id: link.row.loop_id.clone(),
            section,
            from_turn: turn,
            to_turn: turn,
            messages: 0,
            tokens: 0,
        }
    }

    /// Adds a message of the loop.
    fn push(
        &mut self,
        link: &ChainLink,
        part: &mut Part,
        stored: &StoredMessageRef<'_>,
        place: MessageOrigin,
    ) -> StoreResult<()> {
        if self.note(link, part, stored, place)? {
            let message = store::decode_ref(self.read, stored)?;
            self.context.messages.push(message);
        }
        Ok(())
    }

    /// Adds a message of the loop in the form that edits give it.
    fn push_edited(
        &mut self,
        link: &ChainLink,
        part: &mut Part,
        stored: &StoredMessageRef<'_>,
        (place, edited): (MessageOrigin, EditedMessage<'_>),
    ) -> StoreResult<()> {
        if self.check && !codec::fits_digest(stored) {
            return Err(not_its_digest(link, place));
        }
        let size = edited.resized(Size {
            tokens: stored.tokens,
            bytes: stored.bytes,
            messages: 1,
        });
        let proof = stored.proof.map(|proof| Proof {
            salt: None,
            digest: edited.digest(&proof.digest),
        });
        let shown = StoredMessageRef {
            tokens: size.tokens,
            bytes: size.bytes,
            proof,
            ..*stored
        };
        if self.note(link, part, &shown, place)? {
            let mut message = store::decode_ref(self.read, stored)?;
            edited.apply(&mut message);
            self.context.messages.push(message);
        }
        Ok(())
    }

    /// Adds a message of the active block, without another copy of its text.
    fn push_own(
        &mut self,
        link: &ChainLink,
        part: &mut Part,
        stored: StoredMessage,
        place: MessageOrigin,
    ) -> StoreResult<()> {
        if self.note(link, part, &stored.as_stored_ref(), place)? {
            let message = store::decode(self.read, stored)?;
            self.context.messages.push(message);
        }
        Ok(())
    }

    /// Adds a pinned message as the active block quotes it.
    fn push_quote(
        &mut self,
        (link, block): (&ChainLink, &BlockCore),
        part: &mut Part,
        stored: &StoredMessage,
        (place, of): (MessageOrigin, (LoopKey, u32)),
    ) -> StoreResult<()> {
        if self.without_quotes {
            return Ok(());
        }
        if self.check {
            store::check_quoted(self.read, of, &stored.digest)?;
        }
        if self.note(link, part, &stored.as_stored_ref(), place)? {
            let message = store::quote(self.read, block.quoting(), of)?;
            self.context.messages.push(message);
        }
        Ok(())
    }

    /// Records a message, and returns `true` if the message itself is to be collected.
    fn note(
        &mut self,
        link: &ChainLink,
        part: &mut Part,
        stored: &StoredMessageRef<'_>,
        place: MessageOrigin,
    ) -> StoreResult<bool> {
        let MessageOrigin { block, seq, turn } = place;
        if self.with_outline {
            let section = part.section;
            self.outline
                .add(link.row.key, section, block, seq, stored)?;
        }
        if self.only_outline {
            return Ok(false);
        }
        if self.check && !codec::fits_digest(stored) {
            return Err(not_its_digest(link, place));
        }
        part.messages += 1;
        part.tokens += stored.tokens;
        if self.only_parts {
            return Ok(false);
        }
        self.turns.push(turn);
        self.places.push(seq.map(|seq| (link.row.key, seq)));
        self.context.tokens += stored.tokens;
        self.context.bytes += stored.bytes;
        Ok(true)
    }

    fn close(&mut self, part: Part) {
        if part.messages == 0 {
            return;
        }
        match self
            .context
            .parts
            .last_mut()
            .filter(|last| last.goes_on_with(&part))
        {
            Some(last) => {
                last.to_turn = part.to_turn;
                last.messages += part.messages;
                last.tokens += part.tokens;
            }
            None => self.context.parts.push(part),
        }
    }
}
