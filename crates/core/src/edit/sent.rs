//! The conversation that a provider or an agent cleared: the context before an answer, with the places of its messages.

use std::collections::HashSet;
use std::sync::Arc;

use super::chain_messages::{ChainMessages, Place};
use super::resolve::is_bound;
use crate::context::{BuildOptions, Chain, placed_messages, view_for};
use crate::model::{AgentMessage, EditAction, Role, SealingProvider};
use crate::provider::context_management::BlockPlace;
use crate::store::active_blocks::depth_of;
use crate::store::{EditedMessage, LoopRow, MessageEdit, SessionRow, StoreRead, StoreResult};

/// The messages before an answer. Content that was cleared before is in them in full.
pub(super) struct SentMessages {
    pub(super) messages: Vec<AgentMessage>,
    /// The origin of each message; `None` for a message of a summary.
    pub(super) origins: Vec<Option<SentOrigin>>,
    /// The blocks that were cleared before.
    pub(super) cleared: HashSet<BlockPlace>,
    /// The index of the message with the provider's compaction.
    pub(super) compaction: Option<usize>,
}

/// The origin of a message.
pub(super) struct SentOrigin {
    pub(super) place: Place,
    /// The numbers of its parts in the recorded message.
    parts: Vec<u32>,
}

impl SentOrigin {
    /// Returns the number of a part in the recorded message.
    pub(super) fn part(&self, block: usize) -> Option<u32> {
        self.parts.get(block).copied()
    }
}

impl SentMessages {
    /// Reads the context of a leaf, without the parts of the answer that are already stored.
    pub(super) fn load(
        read: &dyn StoreRead,
        recorded: &mut ChainMessages<'_>,
        (owner, leaf): (&SessionRow, &LoopRow),
        (provider, response): (Option<SealingProvider>, Option<&str>),
    ) -> StoreResult<Self> {
        let options = BuildOptions::default();
        let keys = (owner.key, leaf.key);
        let chain = Chain::load_active(read, keys, view_for(provider), &options)?;
        let shown = placed_messages(read, &chain, provider)?;
        let mut all = shown.messages;
        while let Some(last) = all.pop_if(|(_, message)| is_part_of(message, response)) {
            drop(last);
        }
        let mut sent = Self {
            messages: Vec::with_capacity(all.len()),
            origins: Vec::with_capacity(all.len()),
            cleared: HashSet::new(),
            compaction: shown.compaction.filter(|at| *at < all.len()),
        };
        for (place, message) in all {
            let depth = place.and_then(|(key, _)| depth_of(&recorded.links, key));
            let place = depth.zip(place).map(|(depth, (_, seq))| (depth, seq));
            sent.push(recorded, place, message)?;
        }
        Ok(sent)
    }

    fn push(
        &mut self,
        recorded: &mut ChainMessages<'_>,
        place: Option<Place>,
        mut message: AgentMessage,
    ) -> StoreResult<()> {
        let Some(place) = place else {
            self.messages.push(message);
            self.origins.push(None);
            return Ok(());
        };
        let edits = recorded.links[place.0].edits.as_ref().map(Arc::clone);
        let edit = edits.as_ref().and_then(|edits| edits.at(place.1));
        let parts = match edit {
            Some(MessageEdit::Parts(edited)) => {
                self.restore(recorded, place, edited, &mut message)?
            }
            _ => all_parts(&message),
        };
        self.messages.push(message);
        self.origins.push(Some(SentOrigin { place, parts }));
        Ok(())
    }

    /// Gives a message the recorded form of what was cleared, and returns the numbers of its parts. Removed parts stay
    /// away, except for thinking.
    fn restore(
        &mut self,
        recorded: &mut ChainMessages<'_>,
        place: Place,
        edited: EditedMessage<'_>,
        message: &mut AgentMessage,
    ) -> StoreResult<Vec<u32>> {
        let original = recorded.at(place)?.map(|original| original.message.clone());
        let (Some(original), Some(shown)) = (original, message.message_mut()) else {
            return Ok(all_parts(message));
        };
        let at = self.messages.len();
        let (mut parts, mut content) = (Vec::new(), Vec::new());
        for (number, part) in (0u32..).zip(original.content()) {
            let action = edited.action(number);
            if action == Some(EditAction::Removed) && !is_bound(part) {
                continue;
            }
            if matches!(action, Some(EditAction::Removed | EditAction::Cleared)) {
                let block = content.len();
                self.cleared.insert(BlockPlace { message: at, block });
            }
            parts.push(number);
            content.push(part.clone());
        }
        *shown.content_mut() = content;
        Ok(parts)
    }

    /// Returns the messages without some blocks, and without messages of which no block is left.
    pub(super) fn without(&self, blocks: impl Fn(BlockPlace) -> bool) -> Vec<AgentMessage> {
        let mut left = Vec::with_capacity(self.messages.len());
        for (at, message) in self.messages.iter().enumerate() {
            let count = message
                .message()
                .map_or(0, |message| message.content().len());
            let is_gone = |block: usize| blocks(BlockPlace { message: at, block });
            if !(0..count).any(is_gone) {
                left.push(message.clone());
                continue;
            }
            let mut message = message.clone();
            if let Some(inner) = message.message_mut() {
                let mut block = 0..count;
                let mut is_kept = || block.next().is_some_and(|block| !is_gone(block));
                inner.content_mut().retain(|_| is_kept());
            }
            let is_empty = message
                .message()
                .is_some_and(|inner| inner.content().is_empty());
            left.extend((!is_empty).then_some(message));
        }
        left
    }
}

fn all_parts(message: &AgentMessage) -> Vec<u32> {
    let count = message
        .message()
        .map_or(0, |message| message.content().len());
    (0u32..).take(count).collect()
}

/// True if a message is a part of the answer.
fn is_part_of(message: &AgentMessage, response: Option<&str>) -> bool {
    let own = match message {
        AgentMessage::Llm(message) if message.message.role() == Role::Assistant => {
            message.response()
        }
        _ => None,
    };
    own.is_some() && own == response
}
