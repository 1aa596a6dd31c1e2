//! Makes the rows of an edit, with their sizes.

use super::chain_messages::{ChainMessages, Place};
use super::report::{EditReport, EditedMessage};
use super::resolve::{Form, MessageSelection, Origin, Selection};
use crate::model::{Content, EditAction, LoopId};
use crate::store::edit_sizes::edited_sizes;
use crate::store::{EditRow, EditedPart, LoopKey, SessionRow, Size, StoreResult, codec};
use crate::tokens::TokenCounter;

/// The rows of an edit, and the report of them.
#[derive(Default)]
pub(super) struct ResolvedEdit {
    pub(super) rows: Vec<EditRow>,
    pub(super) report: EditReport,
}

/// Makes the rows of a selection.
pub(super) fn make(
    messages: &mut ChainMessages<'_>,
    selection: Selection,
    (owner, counter): (&SessionRow, &dyn TokenCounter),
) -> StoreResult<ResolvedEdit> {
    let mut made = ResolvedEdit::default();
    made.report.skipped = selection.skipped;
    // The index of the last message that is removed as a whole, in its loop.
    let mut last: Option<(usize, usize)> = None;
    for (place, selected) in selection.messages {
        match selected {
            MessageSelection::Whole(origin) => {
                let at = made.remove_whole(messages, place, origin, last)?;
                last = at.map(|at| (place.0, at));
            }
            MessageSelection::Parts(parts) => {
                for (number, (form, origin)) in parts {
                    let part = (number, form, origin);
                    made.edit_part(messages, place, part, (owner, counter))?;
                }
            }
        }
    }
    Ok(made)
}

impl ResolvedEdit {
    /// Removes a message, together with the one before it if that is removed too; returns its index in its loop.
    fn remove_whole(
        &mut self,
        messages: &mut ChainMessages<'_>,
        place: Place,
        origin: Origin,
        last: Option<(usize, usize)>,
    ) -> StoreResult<Option<usize>> {
        let link = &messages.links[place.0];
        let (key, loop_id) = (link.row.key, link.row.loop_id.clone());
        let own = messages.of(place.0)?;
        let Ok(at) = own.binary_search_by_key(&place.1, |message| message.seq) else {
            return Ok(None);
        };
        let (size, turn) = (own[at].size, own[at].turn);
        self.list(
            origin,
            EditedMessage {
                loop_id,
                turn,
                seq: place.1,
                part: None,
                action: EditAction::Removed,
                tokens_before: size.tokens,
                tokens_after: 0,
            },
        );
        let goes_on = last.is_some_and(|(depth, before)| depth == place.0 && before + 1 == at);
        let row = self
            .rows
            .last_mut()
            .filter(|row| goes_on && row.part.is_none());
        match row.filter(|row| row.loop_key == key) {
            Some(row) => {
                row.seqs.1 = place.1;
                row.before.add(size);
            }
            None => self.rows.push(EditRow {
                loop_key: key,
                seqs: (place.1, place.1),
                part: None,
                action: EditAction::Removed,
                text: None,
                before: size,
                after: Size::default(),
                salt: codec::random_salt()?,
            }),
        }
        Ok(Some(at))
    }

    fn edit_part(
        &mut self,
        messages: &mut ChainMessages<'_>,
        place: Place,
        (number, form, origin): (u32, Form, Origin),
        (owner, counter): (&SessionRow, &dyn TokenCounter),
    ) -> StoreResult<()> {
        let link = &messages.links[place.0];
        let (key, loop_id): (LoopKey, LoopId) = (link.row.key, link.row.loop_id.clone());
        let Some(message) = messages.at(place)? else {
            return Ok(());
        };
        let (turn, content) = (message.turn, message.message.content());
        let Some(part) = content.get(number as usize) else {
            return Ok(());
        };
        let (action, text) = match form {
            Form::Removed => (EditAction::Removed, None),
            Form::Cleared => {
                let session = owner.session_id.as_str();
                (
                    EditAction::Cleared,
                    Some(marker(part, session, &loop_id, turn)),
                )
            }
            Form::Replaced(text) => (EditAction::Replaced, Some(text)),
        };
        let (before, after) = edited_sizes(part, text.as_deref(), counter)?;
        self.rows.push(EditRow {
            loop_key: key,
            seqs: (place.1, place.1),
            part: Some(EditedPart {
                number,
                of: u32::try_from(content.len()).unwrap_or(u32::MAX),
            }),
            action,
            text,
            before,
            after,
            salt: codec::random_salt()?,
        });
        self.list(
            origin,
            EditedMessage {
                loop_id,
                turn,
                seq: place.1,
                part: Some(number),
                action,
                tokens_before: before.tokens,
                tokens_after: after.tokens,
            },
        );
        Ok(())
    }

    fn list(&mut self, origin: Origin, edited: EditedMessage) {
        let list = match origin {
            Origin::Named => &mut self.report.edits,
            Origin::Paired => &mut self.report.paired,
            Origin::Bound => &mut self.report.bound,
        };
        list.push(edited);
    }
}

/// Returns what is shown in place of a cleared part: one line with its size, and how to read it. The arguments of a
/// call become empty.
fn marker(part: &Content, session: &str, loop_id: &LoopId, turn: u32) -> String {
    let size = match part {
        Content::ToolCall(_) => return "{}".into(),
        Content::Text(text) => {
            let (bytes, lines) = (text.text.len(), text.text.lines().count());
            format!("{} bytes, {} lines", grouped(bytes), grouped(lines))
        }
        Content::Image(image) => {
            format!("{}, {} bytes", image.mime_type, grouped(image.data.len()))
        }
        _ => {
            let bytes = serde_json::to_vec(part).map_or(0, |json| json.len());
            format!("{} bytes", grouped(bytes))
        }
    };
    format!(
        "[cleared: {size}; expand turn {turn} of loop {loop_id}, session {session}, to read it]"
    )
}

/// Returns a number with a comma between each three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Json;

    #[test]
    fn a_marker_is_one_line_with_the_size_and_the_way_to_the_text() {
        let loop_id = LoopId::of("loop-1");
        let text = Content::text("line\n".repeat(3_000));
        let shown = marker(&text, "weather", &loop_id, 12);
        assert_eq!(
            shown,
            "[cleared: 15,000 bytes, 3,000 lines; expand turn 12 of loop loop-1, session weather, to read it]"
        );
        let call = Content::tool_call("c", "ls", Json::parse(r#"{"path":"/"}"#).unwrap());
        assert_eq!(marker(&call, "weather", &loop_id, 0), "{}");
    }

    #[test]
    fn digits_are_grouped() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
