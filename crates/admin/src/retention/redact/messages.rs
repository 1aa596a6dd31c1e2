//! The messages of a session and its blocks, read and written again.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use loopstore::extend::{
    BlockKey, LoopRow, StoreError, StoreResult, StoreWrite, StoredMessage, codec, decode,
    scan::{BlobOwner, MessagePlace, StoreScan},
};
use loopstore::model::AgentMessage;

/// A message and its text.
pub(super) struct RedactableText {
    pub(super) place: MessagePlace,
    /// The turn of the message; for a message of a block, the turn that it represents.
    pub(super) turn: Option<u32>,
    pub(super) stored: StoredMessage,
    pub(super) message: AgentMessage,
}

/// Removes the references to blobs that an owner no longer shows.
pub(super) fn forget_blobs(
    write: &mut dyn StoreWrite,
    owner: BlobOwner,
    shown: &[[u8; 32]],
) -> StoreResult<()> {
    for name in write.blobs_of(owner)? {
        if !shown.contains(&name) {
            write.forget_blob(owner, &name)?;
        }
    }
    Ok(())
}

pub(super) fn forget_blobs_of_block(
    write: &mut dyn StoreWrite,
    block: BlockKey,
) -> StoreResult<()> {
    let owner = BlobOwner::Block(block);
    if write.blobs_of(owner)?.is_empty() {
        return Ok(());
    }
    let mut shown = Vec::new();
    for message in write.block_messages(block)? {
        if let Some(body) = message.body {
            codec::decode(body, &mut |name| {
                shown.push(*name);
                write.blob(name)
            })?;
        }
    }
    forget_blobs(write, owner, &shown)
}

/// Rejects a message whose stored digest does not match: after a redaction the damage could not be found any
/// more.
pub(super) fn check(read: &dyn StoreWrite, target: &RedactableText) -> StoreResult<()> {
    let stored = &target.stored;
    let (salt, digest) = match (stored.salt, read.redaction(target.place)?) {
        (Some(salt), _) => (salt, stored.digest),
        (None, Some(redaction)) => (redaction.salt, redaction.digest),
        (None, None) => return Err(StoreError::Damaged("a message without its salt".into())),
    };
    let head = stored.head.as_deref().unwrap_or_default();
    let text = stored.text.as_deref();
    let derived = codec::message_digest(&salt, stored.role, head, stored.text_block, text);
    match derived == digest {
        true => Ok(()),
        false => Err(StoreError::Damaged(
            "a message is not what was stored".into(),
        )),
    }
}

/// Visits the messages of a loop and of the blocks on it, except those without content.
pub(super) fn for_each_message(
    read: &dyn StoreScan,
    row: &LoopRow,
    visit: &mut dyn FnMut(RedactableText) -> StoreResult<()>,
) -> StoreResult<()> {
    let mut turns = BTreeMap::new();
    read.messages(row.key, 0..row.totals.next_seq, &mut |found| {
        let place = MessagePlace::InLoop(row.key, found.seq);
        turns.extend(found.turn.map(|turn| (found.seq, turn)));
        say(read, (place, found.turn), found.body, visit)?;
        Ok(ControlFlow::Continue(()))
    })?;
    for block in read.blocks_of_loop(row.key)? {
        for (ordinal, message) in (0..).zip(read.block_messages(block.key)?) {
            if let Some(body) = message.body {
                let place = MessagePlace::InBlock(block.key, ordinal);
                let turn = message.replaces.and_then(|seq| turns.get(&seq).copied());
                say(read, (place, turn), body, visit)?;
            }
        }
    }
    Ok(())
}

fn say(
    read: &dyn StoreScan,
    (place, turn): (MessagePlace, Option<u32>),
    stored: StoredMessage,
    visit: &mut dyn FnMut(RedactableText) -> StoreResult<()>,
) -> StoreResult<()> {
    if stored.head.is_none() {
        return Ok(());
    }
    let message = decode(read, stored.clone())?;
    visit(RedactableText {
        place,
        turn,
        stored,
        message,
    })
}
