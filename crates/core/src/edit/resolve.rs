//! Adds to the targets of an edit what belongs to them: the other halves of pairs, and bound content.

use std::collections::{BTreeMap, VecDeque};

use super::chain_messages::{ChainMessages, Place};
use super::refused;
use super::report::SkippedMessage;
use super::request::EditRequest;
use super::targets::Targets;
use crate::model::{Content, EditAction, Json, Message, Role};
use crate::store::{EditRefusal, StoreResult};

/// The reason why a message is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The request names it.
    Named,
    /// It is the other half of a pair.
    Paired,
    /// Its provider bound it to an edited part.
    Bound,
}

/// The new form of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Removed,
    Cleared,
    Replaced(String),
}

/// The edit of one message.
#[derive(Clone, Debug)]
pub(super) enum MessageSelection {
    Whole(Origin),
    Parts(BTreeMap<u32, (Form, Origin)>),
}

/// The messages to edit.
#[derive(Default)]
pub(super) struct Selection {
    pub(super) messages: BTreeMap<Place, MessageSelection>,
    pub(super) skipped: Vec<SkippedMessage>,
    /// Removals that are not done yet.
    queue: VecDeque<(Place, Option<u32>, Origin)>,
}

/// Parts of a message that an edit of its text concerns.
pub(super) fn is_text(part: &Content) -> bool {
    matches!(
        part,
        Content::Text(_) | Content::Image(_) | Content::Other(_)
    )
}

/// True for content that a provider takes back only with the answer that it belongs to.
pub(super) fn is_bound(part: &Content) -> bool {
    match part {
        Content::Sealed(sealed) => sealed.kind().as_deref() != Some("compaction"),
        part => part.is_signed_thinking(),
    }
}

impl Selection {
    /// Resolves a request against the messages of a chain.
    pub(super) fn of(messages: &mut ChainMessages<'_>, request: &EditRequest) -> StoreResult<Self> {
        check_text(request)?;
        let mut targets = Targets::of(messages, request)?;
        targets.found.sort_unstable();
        targets.found.dedup();
        let mut selection = Self::default();
        match (request.action, &request.text) {
            (EditAction::Removed, _) => {
                for (place, part) in &targets.found {
                    selection.queue.push_back((*place, *part, Origin::Named));
                }
            }
            (EditAction::Cleared, _) => selection.clear(messages, &mut targets)?,
            (EditAction::Replaced, text) => {
                selection.replace(messages, &targets, text.as_deref().unwrap_or_default())?;
            }
        }
        selection.remove_queued(messages)?;
        selection.skipped = targets.skipped;
        Ok(selection)
    }

    fn clear(
        &mut self,
        messages: &mut ChainMessages<'_>,
        targets: &mut Targets,
    ) -> StoreResult<()> {
        for (place, part) in std::mem::take(&mut targets.found) {
            let Some(message) = messages.at(place)? else {
                continue;
            };
            let turn = message.turn;
            let all = (0u32..).zip(message.message.content());
            let asked = all.filter(|(number, _)| part.is_none_or(|part| part == *number));
            let mut cleared = Vec::new();
            for (number, content) in asked {
                match content {
                    content if is_text(content) && is_worth_clearing(content) => {
                        cleared.push((number, Form::Cleared));
                    }
                    Content::ToolCall(call) if call.arguments.as_str().len() > 2 => {
                        cleared.push((number, Form::Cleared));
                    }
                    // Thinking and opaque items have no cleared form.
                    content if part.is_some() && content.is_thinking() => {
                        cleared.push((number, Form::Removed));
                    }
                    _ => {}
                }
            }
            cleared.retain(|(number, _)| !messages.is_removed(place, Some(*number)));
            match cleared.is_empty() {
                true => targets.skip(messages, place, turn, "not larger than its marker"),
                false => self.set_parts(messages, place, cleared)?,
            }
        }
        Ok(())
    }

    fn replace(
        &mut self,
        messages: &mut ChainMessages<'_>,
        targets: &Targets,
        text: &str,
    ) -> StoreResult<()> {
        let [(place, part)] = targets.found[..] else {
            let why = "one text replaces one message or part; name exactly one";
            return Err(refused(EditRefusal::Text(why)));
        };
        let Some(message) = messages.at(place)? else {
            return Ok(());
        };
        let content = message.message.content();
        let mut forms = Vec::new();
        match part {
            Some(part) => {
                let is_call = matches!(content.get(part as usize), Some(Content::ToolCall(_)));
                let is_object = Json::parse(text).is_ok_and(|json| json.as_str().starts_with('{'));
                if is_call && !is_object {
                    let why = "the arguments of a call are a JSON object; give one";
                    return Err(refused(EditRefusal::Text(why)));
                }
                forms.push((part, Form::Replaced(text.to_owned())));
            }
            None => {
                let texts = (0u32..).zip(content).filter(|(_, part)| is_text(part));
                for (number, _) in texts {
                    forms.push(match forms.is_empty() {
                        true => (number, Form::Replaced(text.to_owned())),
                        false => (number, Form::Removed),
                    });
                }
                if forms.is_empty() {
                    let why = "the message has no text to replace; name a part";
                    return Err(refused(EditRefusal::Text(why)));
                }
            }
        }
        forms.retain(|(number, form)| {
            *form != Form::Removed || !messages.is_removed(place, Some(*number))
        });
        self.set_parts(messages, place, forms)
    }

    /// Gives parts of a message their forms.
    fn set_parts(
        &mut self,
        messages: &mut ChainMessages<'_>,
        place: Place,
        forms: Vec<(u32, Form)>,
    ) -> StoreResult<()> {
        let parts = self.messages.entry(place);
        let parts = parts.or_insert_with(|| MessageSelection::Parts(BTreeMap::new()));
        if let MessageSelection::Parts(parts) = parts {
            for (number, form) in forms {
                parts.entry(number).or_insert((form, Origin::Named));
            }
        }
        self.queue_bound(messages, place)
    }

    /// Queues the removal of the content that is bound to a message of which a part is edited. If the provider would
    /// reject what is left of the cycle after the last prompt, that of the whole turn goes too.
    fn queue_bound(&mut self, messages: &mut ChainMessages<'_>, place: Place) -> StoreResult<()> {
        let Some(message) = messages.at(place)? else {
            return Ok(());
        };
        if message.message.role() != Role::Assistant {
            return Ok(());
        }
        let (turn, mut bound) = (message.turn, bound_parts(&message.message, place));
        let has_bound = !bound.is_empty();
        if has_bound {
            for other in messages.of(place.0)? {
                let is_other = other.turn == turn && other.seq != place.1;
                if is_other && other.message.role() == Role::Assistant {
                    bound.extend(bound_parts(&other.message, (place.0, other.seq)));
                }
            }
        }
        self.queue.extend(
            bound
                .into_iter()
                .map(|(place, part)| (place, Some(part), Origin::Bound)),
        );
        Ok(())
    }

    pub(super) fn remove_queued(&mut self, messages: &mut ChainMessages<'_>) -> StoreResult<()> {
        loop {
            while let Some((place, part, origin)) = self.queue.pop_front() {
                // What another run removes too is a row of this run as well: its undo must not part a pair.
                let is_done = origin == Origin::Named && messages.is_removed(place, part);
                if !self.has(place, part) && !is_done {
                    self.remove(messages, place, part, origin)?;
                }
            }
            let emptied = self.emptied(messages)?;
            if emptied.is_empty() {
                return Ok(());
            }
            for (place, origin) in emptied {
                self.messages.remove(&place);
                self.queue.push_back((place, None, origin));
            }
        }
    }

    /// True if the message, or the part, is selected already.
    fn has(&self, place: Place, part: Option<u32>) -> bool {
        match (self.messages.get(&place), part) {
            (None, _) => false,
            (Some(MessageSelection::Whole(_)), _) => true,
            (Some(MessageSelection::Parts(parts)), Some(part)) => parts
                .get(&part)
                .is_some_and(|(form, _)| *form == Form::Removed),
            (Some(MessageSelection::Parts(_)), None) => false,
        }
    }

    fn remove(
        &mut self,
        messages: &mut ChainMessages<'_>,
        place: Place,
        part: Option<u32>,
        origin: Origin,
    ) -> StoreResult<()> {
        let Some(message) = messages.at(place)? else {
            return Ok(());
        };
        let role = message.message.role();
        let calls: Vec<String> = match part {
            None => message
                .message
                .tool_calls()
                .map(|call| call.id.clone())
                .collect(),
            Some(part) => match message.message.content().get(part as usize) {
                Some(Content::ToolCall(call)) => vec![call.id.clone()],
                _ => Vec::new(),
            },
        };
        let answered = match &message.message {
            Message::ToolResult(result) if part.is_none() => Some(result.tool_call_id.clone()),
            _ => None,
        };
        if messages.is_pinned(place) {
            let loop_id = messages.links[place.0].row.loop_id.to_string();
            return Err(refused(EditRefusal::Pinned {
                loop_id,
                seq: place.1,
            }));
        }
        match part {
            None => {
                self.messages.insert(place, MessageSelection::Whole(origin));
            }
            Some(part) => {
                let parts = self.messages.entry(place);
                let parts = parts.or_insert_with(|| MessageSelection::Parts(BTreeMap::new()));
                if let MessageSelection::Parts(parts) = parts {
                    parts.insert(part, (Form::Removed, origin));
                }
            }
        }
        for call in calls {
            for result in messages.results(place, &call)? {
                self.queue.push_back((result, None, Origin::Paired));
            }
        }
        if let Some(call) = answered
            && let Some((call, part)) = messages.call(Some(place), &call)?
        {
            self.queue.push_back((call, Some(part), Origin::Paired));
        }
        match role {
            Role::Assistant if origin != Origin::Bound => self.queue_bound(messages, place),
            _ => Ok(()),
        }
    }

    /// Returns the messages of which no part is left: they are removed as a whole, with their pairs.
    fn emptied(&self, messages: &mut ChainMessages<'_>) -> StoreResult<Vec<(Place, Origin)>> {
        let mut emptied = Vec::new();
        for (place, selected) in &self.messages {
            let MessageSelection::Parts(parts) = selected else {
                continue;
            };
            let Some(message) = messages.at(*place)? else {
                continue;
            };
            let (all, role) = (message.message.content().len(), message.message.role());
            let removed = parts
                .values()
                .filter(|(form, _)| *form == Form::Removed)
                .count();
            let is_gone = |number: &u32| {
                let own = parts
                    .get(number)
                    .is_some_and(|(form, _)| *form == Form::Removed);
                own || messages.is_removed(*place, Some(*number))
            };
            let all_gone = (0..all as u32).all(|number| is_gone(&number));
            // A result needs its call removed, whichever run removed its other parts.
            if removed == all || all_gone && role == Role::ToolResult {
                let first = parts.values().map(|(_, origin)| *origin).next();
                emptied.push((*place, first.unwrap_or(Origin::Named)));
            }
        }
        Ok(emptied)
    }
}

fn bound_parts(message: &Message, place: Place) -> Vec<(Place, u32)> {
    let parts = (0u32..).zip(message.content());
    let bound = parts.filter(|(_, part)| is_bound(part));
    bound.map(|(number, _)| (place, number)).collect()
}

/// The bytes below which a text is not longer than its marker.
const LEAST_BYTES: usize = 160;

fn is_worth_clearing(part: &Content) -> bool {
    match part {
        Content::Text(text) => text.text.len() >= LEAST_BYTES,
        Content::Image(_) => true,
        Content::Other(json) => json.as_str().len() >= LEAST_BYTES,
        _ => false,
    }
}

fn check_text(request: &EditRequest) -> StoreResult<()> {
    let why = match (request.action, &request.text) {
        (EditAction::Replaced, None) => "a replacement needs a text; give one",
        (EditAction::Removed | EditAction::Cleared, Some(_)) => {
            "only a replacement has a text; leave it out"
        }
        _ => return Ok(()),
    };
    Err(refused(EditRefusal::Text(why)))
}
