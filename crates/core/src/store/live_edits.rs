//! The edits of messages that are live from a leaf, and the form in which contexts show edited messages.
//!
//! An edit is live if its run counts from the leaf and is live, as for a block. If a live edit removes a message as a
//! whole, contexts do not show the message. Else each part is shown on its own: a part that a live edit removes is not
//! shown, and of live edits that clear or replace a part the newest wins. A message without a part is not shown. So
//! the edits of different runs combine, and an undo of one brings back exactly what only that one hid.

use std::collections::BTreeMap;
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::append::recorded_size;
use super::rows::{EditRow, RunEdit, RunKey, Size};
use super::{LoopKey, StoreRead, StoreResult};
use crate::model::{AgentMessage, Content, EditAction, Json};

/// The live edits of the messages of one loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveEdits {
    /// The ranges of messages that are removed as a whole, in order and apart from each other.
    removed: Vec<RemovedRange>,
    /// The other edited messages, by sequence.
    edited: BTreeMap<u32, EditedMessage>,
    /// The messages that runs removed or replaced, or of which they removed or replaced a part.
    rewritten: Vec<(String, (u32, u32))>,
    /// The runs of the edits, in order.
    runs: Vec<RunKey>,
}

/// Messages that are removed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RemovedRange {
    /// Both ends are inclusive.
    seqs: (u32, u32),
    /// The size of the messages, if it is known: that of the only edit of the range.
    size: Option<Size>,
}

/// A message of which some parts are edited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EditedMessage {
    /// The number of its parts.
    of: u32,
    /// The edited parts.
    parts: BTreeMap<u32, EditedForm>,
}

/// The form of an edited part.
#[derive(Clone, Debug, PartialEq)]
struct EditedForm {
    action: EditAction,
    text: Option<String>,
    before: Size,
    after: Size,
}

/// The live edit of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MessageEdit<'a> {
    /// The message is not shown.
    Removed,
    /// Some parts have another form.
    Parts(&'a EditedMessage),
}

impl LiveEdits {
    /// Returns the effect of these edits, which are live, in the order of their ticks; `None` if there are none.
    pub fn of(edits: Vec<RunEdit>) -> Option<Self> {
        if edits.is_empty() {
            return None;
        }
        let mut all = Self::default();
        for RunEdit {
            run, run_id, edit, ..
        } in edits
        {
            all.runs.push(run);
            if edit.action.is_rewriting() {
                all.rewritten.push((run_id, edit.seqs));
            }
            all.add(edit);
        }
        all.runs.sort_unstable();
        all.runs.dedup();
        all.finish();
        Some(all)
    }

    fn add(&mut self, edit: EditRow) {
        let Some(part) = edit.part else {
            self.removed.push(RemovedRange {
                seqs: edit.seqs,
                size: Some(edit.before),
            });
            return;
        };
        let message = self.edited.entry(edit.seqs.0).or_default();
        message.of = part.of;
        let form = EditedForm {
            action: edit.action,
            text: edit.text,
            before: edit.before,
            after: edit.after,
        };
        let known = message.parts.entry(part.number).or_insert(form.clone());
        if known.action != EditAction::Removed {
            *known = form;
        }
    }

    /// Joins the ranges of removed messages, and forgets the parts of removed messages.
    fn finish(&mut self) {
        self.removed.sort_by_key(|range| range.seqs);
        let mut joined: Vec<RemovedRange> = Vec::with_capacity(self.removed.len());
        for range in std::mem::take(&mut self.removed) {
            match joined.last_mut() {
                Some(last) if range.seqs.0 <= last.seqs.1 => {
                    last.seqs.1 = last.seqs.1.max(range.seqs.1);
                    last.size = None;
                }
                _ => joined.push(range),
            }
        }
        self.removed = joined;
        let removed = &self.removed;
        self.edited
            .retain(|seq, _| removed_at(removed, *seq).is_none());
    }

    /// Returns the edit of a message.
    pub fn at(&self, seq: u32) -> Option<MessageEdit<'_>> {
        if removed_at(&self.removed, seq).is_some() {
            return Some(MessageEdit::Removed);
        }
        self.edited.get(&seq).map(|message| match message.size() {
            None => MessageEdit::Removed,
            Some(_) => MessageEdit::Parts(message),
        })
    }

    /// True if contexts do not show the message.
    pub fn removes(&self, seq: u32) -> bool {
        matches!(self.at(seq), Some(MessageEdit::Removed))
    }

    /// True if one of these messages is removed or replaced as a whole or in part.
    pub fn rewrites(&self, seqs: &Range<u32>) -> bool {
        self.rewriting(seqs).next().is_some()
    }

    /// Returns the ids of the runs that removed or replaced something of these messages.
    pub fn rewriting(&self, seqs: &Range<u32>) -> impl Iterator<Item = &str> {
        let (from, end) = (seqs.start, seqs.end);
        let touches = move |(_, edited): &&(String, (u32, u32))| edited.0 < end && edited.1 >= from;
        let runs = self.rewritten.iter().filter(touches);
        runs.map(|(run, _)| run.as_str())
    }

    /// Returns the runs of the edits, in order. The rows of a run never change, so the same runs mean the same edits.
    pub fn runs(&self) -> &[RunKey] {
        &self.runs
    }

    /// True if one of these messages has an edit.
    pub fn touches(&self, seqs: &Range<u32>) -> bool {
        let (from, end) = (seqs.start, seqs.end);
        from < end
            && (self.edited.range(from..end).next().is_some()
                || self
                    .removed
                    .iter()
                    .any(|range| range.seqs.0 < end && range.seqs.1 >= from))
    }

    /// Returns the size of some messages as contexts show them, from `size`, their size as recorded.
    ///
    /// # Errors
    /// If the store fails.
    pub fn resized(
        &self,
        read: &dyn StoreRead,
        loop_key: LoopKey,
        seqs: &Range<u32>,
        size: Size,
    ) -> StoreResult<Size> {
        let (mut less, mut more) = (Size::default(), Size::default());
        for range in &self.removed {
            let part = seqs.start.max(range.seqs.0)..seqs.end.min(range.seqs.1.saturating_add(1));
            if part.is_empty() {
                continue;
            }
            let is_whole = part.start == range.seqs.0 && part.end - 1 == range.seqs.1;
            match range.size.filter(|_| is_whole) {
                Some(size) => less.add(size),
                None => less.add(recorded_size(read, loop_key, part)?),
            }
        }
        for (seq, message) in self.edited.range(seqs.start..seqs.end.max(seqs.start)) {
            match message.size() {
                Some((before, after)) => {
                    less.add(before);
                    more.add(after);
                }
                None => less.add(recorded_size(read, loop_key, *seq..seq.saturating_add(1))?),
            }
        }
        let mut size = size;
        size.add(more);
        Ok(size.without(less))
    }
}

fn removed_at(removed: &[RemovedRange], seq: u32) -> Option<&RemovedRange> {
    let after = removed.partition_point(|range| range.seqs.0 <= seq);
    let last = removed.get(after.checked_sub(1)?)?;
    (seq <= last.seqs.1).then_some(last)
}

impl EditedMessage {
    /// True if the part is not shown.
    pub fn removes(&self, part: u32) -> bool {
        let form = self.parts.get(&part);
        form.is_some_and(|form| form.action == EditAction::Removed)
    }

    /// Returns the action of the live edit of a part.
    pub fn action(&self, part: u32) -> Option<EditAction> {
        self.parts.get(&part).map(|form| form.action)
    }

    /// Returns the number of parts that are not shown.
    pub fn removed(&self) -> usize {
        let removed = |form: &&EditedForm| form.action == EditAction::Removed;
        self.parts.values().filter(removed).count()
    }

    /// Returns the size of the edited parts as recorded and as shown; `None` if no part of the message is shown.
    fn size(&self) -> Option<(Size, Size)> {
        let (mut before, mut after, mut removed) = (Size::default(), Size::default(), 0);
        for form in self.parts.values() {
            before.add(form.before);
            after.add(form.after);
            if form.action == EditAction::Removed {
                removed += 1;
                // The comma of a part that is gone.
                before.bytes += 1;
            }
        }
        (removed < self.of).then_some((before, after))
    }

    /// Returns the size of the message as contexts show it.
    pub fn resized(&self, size: Size) -> Size {
        let (before, after) = self.size().unwrap_or_default();
        let mut size = size;
        size.add(after);
        size.without(before)
    }

    /// Changes a message into the form that contexts show.
    pub fn apply(&self, message: &mut AgentMessage) {
        let Some(message) = message.message_mut() else {
            return;
        };
        let content = message.content_mut();
        for (number, form) in self.parts.iter().rev() {
            let at = *number as usize;
            match (&form.text, content.get_mut(at)) {
                (Some(text), Some(part)) => set_text(part, text),
                (None, Some(_)) => {
                    content.remove(at);
                }
                // A redacted message may have fewer parts.
                (_, None) => {}
            }
        }
    }

    /// Returns the digest of the form of a message with this digest.
    pub fn digest(&self, original: &[u8; 32]) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"edited");
        hash.update(original);
        for (number, form) in &self.parts {
            let text = form.text.as_deref().unwrap_or_default();
            hash.update(number.to_le_bytes());
            hash.update([u8::from(form.text.is_some())]);
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.finalize().into()
    }
}

/// Gives a part another text. A call keeps its id and its name: the text is its new arguments.
pub fn set_text(part: &mut Content, text: &str) {
    match part {
        Content::ToolCall(call) => {
            call.arguments = Json::parse(text).unwrap_or_default();
        }
        _ => *part = Content::text(text),
    }
}
