//! Content that is sent back unchanged to the provider that made it.

use std::borrow::Cow;

use super::{Mending, MendingKind};
use crate::Form;
use crate::kept::KeptItem;
use loopstore_model::{AgentMessage, Content, Json, Message, SealingProvider};

/// Returns the original item or block of a block, if it was read from `form`.
pub fn original_item(block: &Content, form: Form) -> Option<Json> {
    match block {
        // Chat completions cannot represent items of Responses.
        Content::Sealed(_) if form == Form::OpenAiChat => None,
        Content::Sealed(sealed) => {
            (sealed.provider == form.provider()).then(|| sealed.item.clone())
        }
        Content::Other(json) => {
            let kept = KeptItem::of(json).filter(|kept| kept.form() == Some(form));
            kept.map(|kept| kept.item)
        }
        _ => None,
    }
}

/// Returns the provider and type of a block, if only its provider accepts it.
pub(super) fn owner(block: &Content) -> Option<(String, Option<String>)> {
    match block {
        Content::Sealed(sealed) => Some((sealed.provider.clone(), sealed.kind())),
        Content::Other(json) => {
            let kept = KeptItem::of(json)?;
            Some((kept.provider(), kept.item.type_name()))
        }
        _ => None,
    }
}

/// Returns the messages from the newest compaction of Anthropic on, and the number of messages before it, which the
/// provider ignores.
pub(super) fn from_compaction<'a>(
    messages: &'a [AgentMessage],
    mended: &mut Vec<Mending>,
) -> (usize, Cow<'a, [AgentMessage]>) {
    let place = |message: &AgentMessage| {
        let Some(Message::Assistant(answer)) = message.message() else {
            return None;
        };
        answer.content.iter().rposition(is_compaction)
    };
    let newest = messages.iter().enumerate().rev();
    let mut newest = newest.filter_map(|(at, message)| Some((at, place(message)?)));
    let Some((start, block)) = newest.next() else {
        return (0, Cow::Borrowed(messages));
    };
    let before = (messages[..start].iter().enumerate())
        .filter(|(_, message)| message.message().is_some())
        .map(|(at, _)| at);
    let left_out = before.chain((block > 0).then_some(start));
    mended.extend(left_out.map(|at| Mending::of(MendingKind::CompactedDropped, at)));
    let mut rest = messages[start..].to_vec();
    let first = rest.first_mut().and_then(AgentMessage::message_mut);
    if let Some(first) = first {
        first.content_mut().drain(..block);
    }
    (start, Cow::Owned(rest))
}

fn is_compaction(block: &Content) -> bool {
    match block {
        Content::Sealed(sealed) => {
            sealed.provider == Form::Anthropic.provider()
                && sealed.kind().as_deref() == Some("compaction")
        }
        _ => false,
    }
}

/// Returns the messages without the inactive compactions of `provider`: all but those of the message `compaction`,
/// which may have several.
pub(super) fn without_inactive<'a>(
    all: &'a [AgentMessage],
    compaction: Option<usize>,
    provider: Option<SealingProvider>,
    mended: &mut Vec<Mending>,
) -> Cow<'a, [AgentMessage]> {
    let Some(provider) = provider else {
        return Cow::Borrowed(all);
    };
    let is_own = |block: &Content| block.as_compaction().is_some_and(|(by, _)| by == provider);
    let mut messages = Cow::Borrowed(all);
    for (at, message) in all.iter().enumerate() {
        let content = message.message().map_or(&[][..], Message::content);
        let active = match compaction == Some(at) {
            true => message.last_compaction().map(|(place, _)| place),
            false => None,
        };
        let goes = |(place, block): (usize, &Content)| is_own(block) && active < Some(place);
        if !content.iter().enumerate().any(goes) {
            continue;
        }
        mended.push(Mending {
            provider: Some(provider.as_str().to_owned()),
            item: Some("compaction".to_owned()),
            ..Mending::of(MendingKind::CompactionDropped, at)
        });
        let Some(own) = messages.to_mut()[at].message_mut() else {
            continue;
        };
        let mut place = 0;
        own.content_mut().retain(|block| {
            let stays = !goes((place, block));
            place += 1;
            stays
        });
    }
    messages
}

/// Returns the messages without the reasoning that only `provider` can read: sealed, or under its signature.
pub(super) fn without_reasoning<'a>(
    all: &'a [AgentMessage],
    provider: SealingProvider,
    mended: &mut Vec<Mending>,
) -> Cow<'a, [AgentMessage]> {
    let goes = |block: &Content| match block {
        Content::Sealed(sealed) => {
            sealed.provider == provider.as_str() && sealed.compaction().is_none()
        }
        Content::Thinking(_) => {
            provider == SealingProvider::Anthropic && block.is_signed_thinking()
        }
        _ => false,
    };
    let mut messages = Cow::Borrowed(all);
    for (at, message) in all.iter().enumerate() {
        let content = message.message().map_or(&[][..], Message::content);
        let gone = content.iter().filter(|block| goes(block));
        mended.extend(gone.map(|block| Mending {
            provider: Some(provider.as_str().to_owned()),
            item: match block {
                Content::Sealed(sealed) => sealed.kind(),
                _ => Some("thinking".to_owned()),
            },
            ..Mending::of(MendingKind::ReasoningDropped, at)
        }));
        if content.iter().any(goes)
            && let Some(own) = messages.to_mut()[at].message_mut()
        {
            own.content_mut().retain(|block| !goes(block));
        }
    }
    messages
}
