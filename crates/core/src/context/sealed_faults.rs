//! Faults of opaque content in a context for its provider.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::{Context, ContextFault, FaultKind};
use crate::model::{AgentMessage, Content, Json, Message, Role, SealingProvider};
use crate::overlay::{SealedRecord, has_originals};
use crate::store::{BlockCore, SessionKey, StoreRead, StoreResult};

/// Returns the faults of the opaque content of a context that goes to `provider` and begins with the
/// compaction of `anchor`, if there is one.
///
/// # Errors
/// If the store fails.
pub(crate) fn sealed_faults(
    read: &dyn StoreRead,
    context: &Context,
    anchor: Option<&BlockCore>,
    provider: SealingProvider,
) -> StoreResult<Vec<ContextFault>> {
    let mut faults = Vec::new();
    let mut add = |kind, message| {
        faults.push(ContextFault {
            kind,
            message,
            tool_call_id: None,
        });
    };
    let mut unknown = Vec::new();
    for (at, message) in context.messages.iter().enumerate() {
        if is_foreign(message, provider) {
            add(FaultKind::ForeignSealed, at);
        }
        for (place, item) in compactions(message, provider) {
            if context.compaction != Some(at) {
                unknown.push((at, place, item.clone()));
            }
        }
    }
    if let Some(anchor) = anchor {
        let at = context.compaction.unwrap_or_default();
        if context.compaction.is_none() {
            // The block replaces the messages before it, and its own content is gone.
            add(FaultKind::OrphanedSealed, at);
        } else {
            let own = compactions(&context.messages[at], provider);
            if own.len() > 1 {
                add(FaultKind::SecondCompaction, at);
            }
            let first = context.messages.iter().position(is_shown);
            let leads = first == Some(at) && own.first().is_some_and(|(place, _)| *place == 0);
            if provider == SealingProvider::Anthropic && !leads {
                add(FaultKind::MisplacedCompaction, at);
            }
            let recorded = SealedRecord::recorded(&read.run_by_key(anchor.run)?);
            let is_altered = |recorded: String| {
                let last = own.last();
                last.is_some_and(|(_, item)| recorded != SealedRecord::digest(item))
            };
            if recorded.is_some_and(is_altered) {
                add(FaultKind::AlteredSealed, at);
            }
        }
        if !has_originals(read, anchor)? {
            add(FaultKind::OriginalsMissing, at);
        }
    }
    if !unknown.is_empty() {
        let session = read.session(&context.session)?.map(|row| row.key);
        let known = known_items(read, session)?;
        for (at, place, item) in unknown {
            let is_answer = context.messages[at].role() == Role::Assistant;
            if !is_answer || (provider == SealingProvider::Anthropic && place > 0) {
                add(FaultKind::MisplacedCompaction, at);
            } else if !known.contains(&SealedRecord::digest(&item)) {
                let second = context.compaction.is_some();
                add(
                    match second {
                        true => FaultKind::SecondCompaction,
                        false => FaultKind::OrphanedSealed,
                    },
                    at,
                );
            }
        }
    }
    Ok(faults)
}

fn is_shown(message: &AgentMessage) -> bool {
    message.role() != Role::Extension
}

fn is_foreign(message: &AgentMessage, provider: SealingProvider) -> bool {
    let content = message.message().map_or(&[][..], Message::content);
    content.iter().any(|block| match block {
        Content::Sealed(sealed) => sealed.provider != provider.as_str(),
        _ => false,
    })
}

/// Returns the provider's compactions in a message, with their positions.
pub(crate) fn compactions(
    message: &AgentMessage,
    provider: SealingProvider,
) -> Vec<(usize, &Json)> {
    let content = message.message().map_or(&[][..], Message::content);
    let own = content.iter().enumerate().filter_map(|(place, block)| {
        let (by, sealed) = block.as_compaction()?;
        (by == provider).then_some((place, &sealed.item))
    });
    own.collect()
}

/// Returns the digests of the compactions that runs of a session recorded, whether they count or not.
fn known_items(read: &dyn StoreRead, session: Option<SessionKey>) -> StoreResult<HashSet<String>> {
    let mut known = HashSet::new();
    let Some(session) = session else {
        return Ok(known);
    };
    read.runs(session, &mut |run| {
        if run.sealed_by().is_some()
            && let Some(record) = SealedRecord::of(&run)
        {
            known.insert(record.sha256);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(known)
}
