//! The edits that a report of cleared content stands for.

use std::collections::{BTreeMap, HashSet};

use super::applied::ReportedEdits;
use super::chain_messages::{ChainMessages, Place};
use super::check_faults;
use super::resolve::{Form, MessageSelection, Origin, Selection, is_bound, is_text};
use super::sent::SentMessages;
use crate::context::faults_of;
use crate::model::{Content, EditAction, Role};
use crate::provider::Conversation;
use crate::provider::context_management::{
    BlockPlace, ContextManagement, EditedRequest, ResolvedEdits, ResolvedThinking, ResolvedToolUse,
    UnresolvedEdit, resolve,
};
use crate::store::{LoopRow, MessageEdit, StoreResult};

/// The messages that a report concerns.
#[derive(Default)]
pub(super) struct ReportSelection {
    pub(super) selection: Selection,
    /// The number of tool uses with a new edit.
    pub(super) tool_uses: u64,
    /// The number of turns whose thinking has a new edit.
    pub(super) thinking: u64,
    /// A sentence for each part of the report that is not recorded as an edit.
    pub(super) notes: Vec<String>,
    blocked: Blocked,
}

/// The numbers of cleared results and turns that cannot be edited.
#[derive(Default)]
struct Blocked {
    pinned: u64,
    in_flight: u64,
    summarised: u64,
}

impl ReportSelection {
    /// Finds the messages of a report.
    pub(super) fn of(
        recorded: &mut ChainMessages<'_>,
        sent: &SentMessages,
        leaf: &LoopRow,
        reported: &ReportedEdits<'_>,
    ) -> StoreResult<Self> {
        let own = reported.own_setting();
        let setting = own.as_ref().or(reported.setting);
        let mut found = Self::default();
        let resolved = found.resolve(sent, reported, setting);
        for tool_use in &resolved.tool_uses {
            let text = reported.text_for(&tool_use.tool_call_id);
            let is_new = found.clear_tool_use(recorded, sent, (tool_use, text))?;
            found.tool_uses += u64::from(is_new);
        }
        if is_safe(sent, &resolved.thinking, !leaf.status.is_ended()) {
            for turn in &resolved.thinking {
                let is_new = found.remove_thinking(recorded, sent, turn)?;
                found.thinking += u64::from(is_new);
            }
        } else {
            found.notes.push(format!(
                "{} is still shown: without it the provider would refuse the conversation",
                counted(
                    resolved.thinking.len() as u64,
                    "turn of cleared thinking",
                    "turns of cleared thinking"
                ),
            ));
        }
        found.selection.remove_queued(recorded)?;
        found.note_blocked();
        Ok(found)
    }

    /// Resolves the report, and notes what has no counterpart.
    fn resolve(
        &mut self,
        sent: &SentMessages,
        reported: &ReportedEdits<'_>,
        setting: Option<&ContextManagement>,
    ) -> ResolvedEdits {
        let request = EditedRequest {
            cleared: sent.cleared.clone(),
            sends_cleared_thinking: reported.sends_cleared_thinking,
            ..EditedRequest::new(
                Conversation {
                    compaction: sent.compaction,
                    ..Conversation::of(&sent.messages)
                },
                setting,
            )
        };
        let mut found = resolve(reported.report, &request);
        let (by, is_named) = (reported.name(), reported.names_calls());
        for unresolved in std::mem::take(&mut found.unresolved) {
            self.notes.push(note_of(&unresolved, by, is_named));
            // The provider saw another conversation than this one: the oldest here need not be its oldest.
            match unresolved {
                UnresolvedEdit::ToolUses(_) if !is_named => found.tool_uses.clear(),
                UnresolvedEdit::Thinking(_) => found.thinking.clear(),
                UnresolvedEdit::ToolUses(_) | UnresolvedEdit::Other(_) => {}
            }
        }
        found
    }

    /// Clears the result of a tool use, or shows a text in its place; returns true if that is new.
    fn clear_tool_use(
        &mut self,
        recorded: &mut ChainMessages<'_>,
        sent: &SentMessages,
        (found, text): (&ResolvedToolUse, Option<&str>),
    ) -> StoreResult<bool> {
        let mut is_new = false;
        let mut results: Vec<usize> = found.result.iter().map(|block| block.message).collect();
        results.dedup();
        for at in results {
            let Some(place) = self.editable(recorded, sent, at)? else {
                continue;
            };
            let is_whole = sent.messages[at].role() == Role::ToolResult;
            let numbers = found.result.iter().filter(|block| block.message == at);
            let numbers: Vec<Option<u32>> = numbers
                .map(|block| sent.origins[at].as_ref()?.part(block.block))
                .collect();
            let form = match text {
                Some(text) => Form::Replaced(text.to_owned()),
                None => Form::Cleared,
            };
            is_new |= self.add_parts(recorded, place, form, &|number, part| {
                is_text(part) && (is_whole || numbers.contains(&Some(number)))
            })?;
        }
        if found.is_input_cleared
            && let Some(place) = self.editable(recorded, sent, found.call.message)?
        {
            is_new |= self.add_parts(recorded, place, Form::Cleared, &|_, part| {
                matches!(part, Content::ToolCall(call)
                    if call.id == found.tool_call_id && call.arguments.as_str().len() > 2)
            })?;
        }
        Ok(is_new)
    }

    /// Removes the thinking of a turn; returns true if that is new.
    fn remove_thinking(
        &mut self,
        recorded: &mut ChainMessages<'_>,
        sent: &SentMessages,
        turn: &ResolvedThinking,
    ) -> StoreResult<bool> {
        let mut is_new = false;
        for block in &turn.blocks {
            let Some(place) = self.editable(recorded, sent, block.message)? else {
                continue;
            };
            let own = sent.origins[block.message].as_ref();
            let own = own.and_then(|origin| origin.part(block.block));
            is_new |= self.add_parts(recorded, place, Form::Removed, &|number, part| {
                Some(number) == own && is_bound(part)
            })?;
        }
        Ok(is_new)
    }

    /// Returns the place of a message that can be edited.
    fn editable(
        &mut self,
        recorded: &mut ChainMessages<'_>,
        sent: &SentMessages,
        at: usize,
    ) -> StoreResult<Option<Place>> {
        let Some(origin) = &sent.origins[at] else {
            self.blocked.summarised += 1;
            return Ok(None);
        };
        let place = origin.place;
        let Some(turn) = recorded.at(place)?.map(|message| message.turn) else {
            return Ok(None);
        };
        if recorded.is_pinned(place) {
            self.blocked.pinned += 1;
            return Ok(None);
        }
        if recorded.is_in_flight(place.0, turn) {
            self.blocked.in_flight += 1;
            return Ok(None);
        }
        Ok(Some(place))
    }

    /// Adds the edits of some parts of a message that have no such edit yet.
    fn add_parts(
        &mut self,
        recorded: &mut ChainMessages<'_>,
        place: Place,
        form: Form,
        is_wanted: &dyn Fn(u32, &Content) -> bool,
    ) -> StoreResult<bool> {
        let Some(message) = recorded.at(place)? else {
            return Ok(false);
        };
        let all = (0u32..).zip(message.message.content());
        let wanted = all.filter(|(number, part)| is_wanted(*number, part));
        let mut wanted: Vec<u32> = wanted.map(|(number, _)| number).collect();
        if let Some(edit) = recorded.edit(place) {
            wanted.retain(|number| match edit {
                MessageEdit::Removed => false,
                MessageEdit::Parts(edited) => !matches!(
                    edited.action(*number),
                    Some(EditAction::Removed | EditAction::Cleared)
                ),
            });
        }
        if wanted.is_empty() {
            return Ok(false);
        }
        // Thinking goes as what the provider bound, so that no more of its turn goes with it.
        let origin = match form {
            Form::Removed => Origin::Bound,
            _ => Origin::Named,
        };
        let parts = self.selection.messages.entry(place);
        let parts = parts.or_insert_with(|| MessageSelection::Parts(BTreeMap::new()));
        if let MessageSelection::Parts(parts) = parts {
            for (at, number) in wanted.into_iter().enumerate() {
                // One text replaces all texts of a result.
                let form = match &form {
                    Form::Replaced(_) if at > 0 => Form::Removed,
                    form => form.clone(),
                };
                parts.insert(number, (form, origin));
            }
        }
        Ok(true)
    }

    fn note_blocked(&mut self) {
        let Blocked {
            pinned,
            in_flight,
            summarised,
        } = self.blocked;
        let reasons = [
            (pinned, "pinned and still shown"),
            (in_flight, "of a turn in flight and still shown"),
            (summarised, "behind a summary, which is unchanged"),
        ];
        for (count, reason) in reasons.into_iter().filter(|(count, _)| *count > 0) {
            let verb = if count == 1 { "is" } else { "are" };
            let what = counted(
                count,
                "message with cleared content",
                "messages with cleared content",
            );
            self.notes.push(format!("{what} {verb} {reason}"));
        }
    }
}

/// True if the thinking of some turns can be left out of the conversation.
fn is_safe(sent: &SentMessages, turns: &[ResolvedThinking], in_flight: bool) -> bool {
    if turns.is_empty() {
        return true;
    }
    let gone: HashSet<BlockPlace> = turns
        .iter()
        .flat_map(|turn| turn.blocks.iter().copied())
        .collect();
    let is_thinking = |place: BlockPlace| {
        let message = sent.messages[place.message].message();
        message.is_some_and(|message| message.content().get(place.block).is_some_and(is_bound))
    };
    let was_gone = |place: BlockPlace| sent.cleared.contains(&place) && is_thinking(place);
    let before = sent.without(was_gone);
    let after = sent.without(|place| was_gone(place) || gone.contains(&place));
    let faults = [&before, &after].map(|messages| faults_of(messages, in_flight));
    !after.is_empty() && check_faults(&faults[0], &faults[1]).is_ok()
}

/// Returns the sentence about a part of a report that has no counterpart.
fn note_of(unresolved: &UnresolvedEdit, by: &str, is_named: bool) -> String {
    match unresolved {
        UnresolvedEdit::ToolUses(missing) if is_named => {
            let what = counted(*missing, "call", "calls");
            format!("{what} that `{by}` reports as cleared: not in the context")
        }
        UnresolvedEdit::ToolUses(missing) => {
            let what = counted(*missing, "tool use", "tool uses");
            format!(
                "`{by}` reports {what} more as cleared than the context has: none of this report is cleared here"
            )
        }
        UnresolvedEdit::Thinking(missing) => {
            let what = counted(*missing, "turn", "turns");
            format!(
                "`{by}` reports cleared thinking of {what} more than the context has: none of this report is cleared here"
            )
        }
        UnresolvedEdit::Other(name) if name.is_empty() => {
            format!("an edit without a type that `{by}` reports is only kept in the report")
        }
        UnresolvedEdit::Other(name) => {
            let name: String = name.chars().take(64).collect();
            format!(
                "the edit `{name}` that `{by}` reports is not known or not valid, and only kept in the report"
            )
        }
    }
}

/// Returns a number with its noun.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}
