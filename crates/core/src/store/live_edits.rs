//! The edits of messages that are live from a leaf, and the form in which contexts show edited messages.
//!
//! An edit is live if its run counts from the leaf and is live, as for a block. If a live edit removes a message as a
//! whole, contexts do not show the message. Else each part is shown on its own: a part that a live edit removes is not
//! shown, and of live edits that clear or replace a part the newest wins. A message without a part is not shown. So
//! the edits of different runs combine, and an undo of one brings back exactly what only that one hid.

use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::append::recorded_size;
use super::columns::damaged;
use super::packed_edits::{PackedEdit, PackedSection, section_edits};
use super::rows::{EditRow, RunKey, Size};
use super::{ContentNeed, LoopKey, StoreRead, StoreResult};
use crate::model::{AgentMessage, Content, EditAction, Json};

/// The live edits of the messages of one loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveEdits {
    /// The ranges of messages that are removed as a whole, in order and apart from each other.
    removed: Vec<RemovedRange>,
    /// The edited parts of the other messages, by sequence and number.
    parts: Vec<EditedForm>,
    /// The indexes of the first parts of messages. A binary search for each message costs a hundredth of a build.
    starts: PartStarts,
    /// The texts of the parts.
    texts: String,
    /// The messages that runs removed or replaced, or of which they removed or replaced a part.
    rewritten: Vec<(Arc<str>, (u32, u32))>,
    /// The runs of the edits, in order.
    runs: Vec<RunKey>,
}

/// The index of the first part of each message from the first edited to the last edited.
#[derive(Clone, Debug, Default, PartialEq)]
struct PartStarts {
    /// The sequence of the first message.
    first: u32,
    /// The number of parts of the messages before each message, and at the end the number of all parts. Empty if the
    /// edited messages are too far apart.
    before: Vec<u32>,
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EditedMessage<'a> {
    /// The edited parts, by number.
    parts: &'a [EditedForm],
    texts: &'a str,
}

/// The form of an edited part.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EditedForm {
    /// The sequence of its message.
    seq: u32,
    number: u32,
    /// The number of parts of the message.
    of: u32,
    action: EditAction,
    /// The range of its text in the texts of the loop; `None` if nothing is shown.
    text: Option<(usize, usize)>,
    before: Size,
    after: Size,
}

/// The live edit of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MessageEdit<'a> {
    /// The message is not shown.
    Removed,
    /// Some parts have another form.
    Parts(EditedMessage<'a>),
}

/// The live edits of one loop, from one run after another.
#[derive(Default)]
pub(super) struct EditCollector {
    edits: LiveEdits,
    /// The texts of the parts. They are checked together: a check of each costs as much as reading its edit.
    texts: Vec<u8>,
}

impl EditCollector {
    /// Reserves memory for these sections: to grow step by step costs as much as adding them.
    pub(super) fn reserve(&mut self, sections: &[PackedSection]) {
        let bytes = sections.iter().map(|section| section.content.len()).sum();
        self.texts.reserve(bytes);
        self.edits.parts.reserve(sections.len());
        self.edits.runs.reserve(sections.len());
    }

    /// Adds the edits of a live run whose messages belong to the loop. Runs are added in the order of their ticks.
    pub(super) fn add_rows<'a>(
        &mut self,
        (run, run_id): (RunKey, &str),
        edits: impl Iterator<Item = &'a EditRow>,
    ) {
        let mut id = None;
        for edit in edits {
            self.edits.runs.push(run);
            if edit.action.is_rewriting() {
                let id = id.get_or_insert_with(|| Arc::from(run_id));
                self.edits.rewritten.push((Arc::clone(id), edit.seqs));
            }
            let start = self.texts.len();
            self.texts
                .extend(edit.text.as_deref().unwrap_or_default().as_bytes());
            let packed = PackedEdit {
                seqs: edit.seqs,
                part: edit.part,
                action: edit.action,
                text_end: edit.text.as_deref().map(str::len),
                before: edit.before,
                after: edit.after,
            };
            self.edits.add(packed, start, start);
        }
    }

    /// Adds edits of a live run as [`add_rows`](Self::add_rows) does, from a section of its packed edits. The id of the
    /// run is read only if the run removes or replaces something.
    ///
    /// # Errors
    /// If the section or the id is damaged.
    pub(super) fn add_section(
        &mut self,
        run: RunKey,
        run_id: &[u8],
        section: &[u8],
    ) -> StoreResult<()> {
        self.edits.runs.push(run);
        let base = self.texts.len();
        let mut start = base;
        let mut rewritten = Vec::new();
        let texts = section_edits(section, &mut |edit| {
            if edit.action.is_rewriting() {
                rewritten.push(edit.seqs);
            }
            self.edits.add(edit, base, start);
            start = edit.text_end.map_or(start, |end| base + end);
        })?;
        self.texts.extend_from_slice(texts);
        if !rewritten.is_empty() {
            let id: Arc<str> = std::str::from_utf8(run_id).map_err(damaged)?.into();
            let rewritten = rewritten.into_iter().map(|seqs| (Arc::clone(&id), seqs));
            self.edits.rewritten.extend(rewritten);
        }
        Ok(())
    }

    /// Combines the edits that were added; returns `None` if there are none.
    ///
    /// # Errors
    /// If the texts are damaged.
    pub(super) fn combined(self) -> StoreResult<Option<LiveEdits>> {
        let mut edits = self.edits;
        if edits.runs.is_empty() {
            return Ok(None);
        }
        edits.texts = String::from_utf8(self.texts).map_err(damaged)?;
        // An end within a character would not be an end of a text.
        let mut ends = edits.parts.iter().filter_map(|form| form.text);
        if let Some((_, end)) = ends.find(|(_, end)| !edits.texts.is_char_boundary(*end)) {
            return Err(damaged(format!(
                "a text of an edit ends within a character, at byte {end}"
            )));
        }
        edits.combine();
        Ok(Some(edits))
    }
}

impl LiveEdits {
    /// Adds an edit whose text begins at `start`; the end of the text is relative to `base`.
    fn add(&mut self, edit: PackedEdit, base: usize, start: usize) {
        match edit.part {
            None => self.removed.push(RemovedRange {
                seqs: edit.seqs,
                size: Some(edit.before),
            }),
            Some(part) => self.parts.push(EditedForm {
                seq: edit.seqs.0,
                number: part.number,
                of: part.of,
                action: edit.action,
                text: edit.text_end.map(|end| (start, base + end)),
                before: edit.before,
                after: edit.after,
            }),
        }
    }

    /// Combines the edits that were added.
    fn combine(&mut self) {
        self.runs.sort_unstable();
        self.runs.dedup();
        self.join_removed();
        let place = |form: &EditedForm| (form.seq, form.number);
        if !self.parts.is_sorted_by_key(place) {
            // Edits of one part keep the order of their runs.
            self.parts.sort_by_key(place);
        }
        // The removal of a part wins, else the newest edit.
        self.parts.dedup_by(|next, known| {
            let is_same = place(next) == place(known);
            if is_same && known.action != EditAction::Removed {
                *known = *next;
            }
            is_same
        });
        if !self.removed.is_empty() {
            let removed = &self.removed;
            self.parts
                .retain(|form| removed_at(removed, form.seq).is_none());
        }
        self.starts = PartStarts::of(&self.parts);
    }

    /// Joins the ranges of removed messages.
    fn join_removed(&mut self) {
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
    }

    /// Returns the edited parts of some messages.
    fn parts_in(&self, seqs: &Range<u32>) -> &[EditedForm] {
        let start = self.parts.partition_point(|form| form.seq < seqs.start);
        let after = &self.parts[start..];
        &after[..after.partition_point(|form| form.seq < seqs.end)]
    }

    /// Returns the edited parts of a message.
    fn parts_of(&self, seq: u32) -> &[EditedForm] {
        if let Some(parts) = self.starts.parts_of(seq) {
            return self.parts.get(parts).unwrap_or_default();
        }
        let start = self.parts.partition_point(|form| form.seq < seq);
        let after = &self.parts[start..];
        // A message has few parts.
        let count = after.iter().take_while(|form| form.seq == seq).count();
        &after[..count]
    }

    /// Returns the edit of a message.
    pub fn at(&self, seq: u32) -> Option<MessageEdit<'_>> {
        if removed_at(&self.removed, seq).is_some() {
            return Some(MessageEdit::Removed);
        }
        let parts = self.parts_of(seq);
        let message = EditedMessage {
            parts,
            texts: &self.texts,
        };
        if parts.is_empty() {
            return None;
        }
        Some(match message.is_shown() {
            true => MessageEdit::Parts(message),
            false => MessageEdit::Removed,
        })
    }

    /// Returns the content of a message that its form in contexts is made from.
    pub fn content_need(&self, seq: u32) -> ContentNeed {
        match self.at(seq) {
            None => ContentNeed::Whole,
            Some(MessageEdit::Removed) => ContentNeed::Nothing,
            Some(MessageEdit::Parts(message)) => message.content_need(),
        }
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
        let touches =
            move |(_, edited): &&(Arc<str>, (u32, u32))| edited.0 < end && edited.1 >= from;
        let runs = self.rewritten.iter().filter(touches);
        runs.map(|(run, _)| &**run)
    }

    /// Returns the runs of the edits, in order. The rows of a run never change, so the same runs mean the same edits.
    pub fn runs(&self) -> &[RunKey] {
        &self.runs
    }

    /// True if one of these messages has an edit.
    pub fn touches(&self, seqs: &Range<u32>) -> bool {
        let (from, end) = (seqs.start, seqs.end);
        from < end
            && (!self.parts_in(seqs).is_empty()
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
        for parts in self
            .parts_in(seqs)
            .chunk_by(|one, next| one.seq == next.seq)
        {
            let texts = &self.texts;
            let message = EditedMessage { parts, texts };
            if message.is_shown() {
                let (before, after) = message.size();
                less.add(before);
                more.add(after);
            } else if let Some(form) = parts.first() {
                let seqs = form.seq..form.seq.saturating_add(1);
                less.add(recorded_size(read, loop_key, seqs)?);
            }
        }
        let mut size = size;
        size.add(more);
        Ok(size.without(less))
    }
}

impl PartStarts {
    /// The largest number of messages for each edited part, on average.
    const SPREAD: usize = 8;

    /// Returns the indexes for parts in order.
    fn of(parts: &[EditedForm]) -> Self {
        let mut starts = Self::default();
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return starts;
        };
        let messages = ((last.seq - first.seq) as usize).saturating_add(1);
        let Ok(count) = u32::try_from(parts.len()) else {
            return starts;
        };
        if messages > Self::SPREAD.saturating_mul(parts.len()) {
            return starts;
        }
        starts.first = first.seq;
        starts.before.reserve(messages + 1);
        for (at, form) in (0..count).zip(parts) {
            let through = (form.seq - first.seq) as usize + 1;
            if starts.before.len() < through {
                starts.before.resize(through, at);
            }
        }
        starts.before.push(count);
        starts
    }

    /// Returns the indexes of the parts of a message; `None` if they are not known.
    fn parts_of(&self, seq: u32) -> Option<Range<usize>> {
        if self.before.is_empty() {
            return None;
        }
        let at = seq.checked_sub(self.first).map(|at| at as usize);
        let of = at.and_then(|at| self.before.get(at..)?.first_chunk());
        let [start, end] = of.copied().unwrap_or_default();
        Some(start as usize..end as usize)
    }
}

fn removed_at(removed: &[RemovedRange], seq: u32) -> Option<&RemovedRange> {
    let after = removed.partition_point(|range| range.seqs.0 <= seq);
    let last = removed.get(after.checked_sub(1)?)?;
    (seq <= last.seqs.1).then_some(last)
}

impl EditedMessage<'_> {
    fn form(&self, part: u32) -> Option<&EditedForm> {
        self.parts.iter().find(|form| form.number == part)
    }

    /// True if the part is not shown.
    pub fn removes(&self, part: u32) -> bool {
        self.action(part) == Some(EditAction::Removed)
    }

    /// Returns the action of the live edit of a part.
    pub fn action(&self, part: u32) -> Option<EditAction> {
        self.form(part).map(|form| form.action)
    }

    /// True if a part is cleared.
    pub fn has_cleared(&self) -> bool {
        let mut forms = self.parts.iter();
        forms.any(|form| form.action == EditAction::Cleared)
    }

    /// Returns the number of parts that are not shown.
    pub fn removed(&self) -> usize {
        let removed = |form: &&EditedForm| form.action == EditAction::Removed;
        self.parts.iter().filter(removed).count()
    }

    /// Returns the number of parts of the message.
    fn count(&self) -> usize {
        self.parts.first().map_or(0, |form| form.of as usize)
    }

    /// True if a part of the message is shown.
    fn is_shown(&self) -> bool {
        self.removed() < self.count()
    }

    fn content_need(&self) -> ContentNeed {
        // If every part is edited, so is the one whose text is stored apart.
        match self.parts.len() < self.count() {
            true => ContentNeed::Whole,
            false => ContentNeed::Head,
        }
    }

    /// Returns the size of the edited parts as recorded and as shown.
    fn size(&self) -> (Size, Size) {
        let (mut before, mut after) = (Size::default(), Size::default());
        for form in self.parts {
            before.add(form.before);
            after.add(form.after);
            if form.action == EditAction::Removed {
                // The comma of a part that is gone.
                before.bytes += 1;
            }
        }
        (before, after)
    }

    /// Returns the size of the message as contexts show it.
    pub fn resized(&self, size: Size) -> Size {
        let (before, after) = self.size();
        let mut size = size;
        size.add(after);
        size.without(before)
    }

    fn text(&self, form: &EditedForm) -> Option<&str> {
        let (start, end) = form.text?;
        self.texts.get(start..end)
    }

    /// Changes a message into the form that contexts show.
    pub fn apply(&self, message: &mut AgentMessage) {
        let Some(message) = message.message_mut() else {
            return;
        };
        let content = message.content_mut();
        for form in self.parts.iter().rev() {
            let at = form.number as usize;
            match (self.text(form), content.get_mut(at)) {
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
        for form in self.parts {
            let text = self.text(form).unwrap_or_default();
            hash.update(form.number.to_le_bytes());
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
