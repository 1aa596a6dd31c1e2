//! The packed form of the edits of a run: all of them in one value, which contexts are built from.
//!
//! A context with a thousand live edits would read a thousand rows of `edits`, which costs more than the messages
//! that they edit. So a run has its edits a second time, in a column of its own row. The column is derived from the rows
//! of `edits` and written together with them; `verify` compares the two.
//!
//! The packed form begins with the run: its key, its position, and its id. A context with a thousand live runs reads one
//! column of each: every other column costs a fifth of what the run costs. The length in bytes of what follows comes
//! next, so that the packed edits of several runs can be read from one buffer.
//!
//! Sections follow, each with consecutive edits of one loop. A section is the key of its loop, its length in bytes, and
//! its content: the number of edits, the bytes of their texts, the edits, and the texts. Numbers have seven bits in a
//! byte, the lowest first; the eighth bit is set if another byte follows.

use std::ops::Range;

use super::columns::damaged;
use super::error::StoreResult;
use super::rows::{EditRow, EditedPart, LoopKey, PackedRun, Point, RunKey, Size};
use crate::model::EditAction;

/// The bit of the first byte of an edit that is set if the edit has a part; the bits below are the action.
const HAS_PART: u8 = 4;
/// The largest number of bytes of a number.
const NUMBER_BYTES: usize = 10;

/// An edit in the packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedEdit {
    /// The sequences of the messages, both ends inclusive.
    pub seqs: (u32, u32),
    /// The edited part of one message; `None` if messages are removed as a whole.
    pub part: Option<EditedPart>,
    /// The action.
    pub action: EditAction,
    /// The end of the text of the edit in the texts of its section; the text begins at the end of the one before.
    /// `None` if nothing is shown.
    pub text_end: Option<usize>,
    /// The size of the messages or the part as recorded.
    pub before: Size,
    /// The size of what is shown instead.
    pub after: Size,
}

/// A run in the packed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedHead {
    /// The run.
    pub run: RunKey,
    /// The position at which the run was made.
    pub point: Point,
    /// The range of the public id of the run in the packed edits.
    pub run_id: Range<usize>,
}

/// The consecutive edits of one loop in the packed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedSection {
    /// The loop of the edited messages.
    pub loop_key: LoopKey,
    /// The index of the run.
    pub run: usize,
    /// The range of the content in the packed edits.
    pub content: Range<usize>,
}

/// Returns the packed form of the edits of a run.
pub fn pack(run: &PackedRun, edits: &[EditRow]) -> Vec<u8> {
    let sections = pack_sections(edits);
    let mut packed = Vec::new();
    put_number(&mut packed, run.run.0.cast_unsigned());
    put_number(&mut packed, run.point.loop_key.0.cast_unsigned());
    put_number(&mut packed, run.point.turns.into());
    put_number(&mut packed, run.run_id.len() as u64);
    packed.extend(run.run_id.as_bytes());
    put_number(&mut packed, sections.len() as u64);
    packed.extend(sections);
    packed
}

fn pack_sections(edits: &[EditRow]) -> Vec<u8> {
    let mut packed = Vec::new();
    for section in edits.chunk_by(|one, next| one.loop_key == next.loop_key) {
        let Some(first) = section.first() else {
            continue;
        };
        let content = pack_section(section);
        put_number(&mut packed, first.loop_key.0.cast_unsigned());
        put_number(&mut packed, content.len() as u64);
        packed.extend(content);
    }
    packed
}

fn pack_section(edits: &[EditRow]) -> Vec<u8> {
    let mut packed = Vec::new();
    let texts = edits.iter().filter_map(|edit| edit.text.as_deref());
    put_number(&mut packed, edits.len() as u64);
    put_number(
        &mut packed,
        texts.clone().map(|text| text.len() as u64).sum(),
    );
    for edit in edits {
        let of_part = if edit.part.is_some() { HAS_PART } else { 0 };
        packed.push(of_part | action_number(edit.action));
        put_number(&mut packed, edit.seqs.0.into());
        match edit.part {
            Some(part) => {
                put_number(&mut packed, part.number.into());
                put_number(&mut packed, part.of.into());
            }
            None => {
                put_number(&mut packed, edit.seqs.1.saturating_sub(edit.seqs.0).into());
                put_number(&mut packed, edit.before.messages);
            }
        }
        put_number(&mut packed, edit.before.tokens);
        put_number(&mut packed, edit.before.bytes);
        if let Some(text) = &edit.text {
            put_number(&mut packed, edit.after.tokens);
            put_number(&mut packed, edit.after.bytes);
            put_number(&mut packed, text.len() as u64);
        }
    }
    texts.for_each(|text| packed.extend(text.as_bytes()));
    packed
}

fn action_number(action: EditAction) -> u8 {
    match action {
        EditAction::Removed => 0,
        EditAction::Cleared => 1,
        EditAction::Replaced => 2,
    }
}

fn put_number(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

/// Returns the runs of packed edits, and the sections of all of them in order.
///
/// # Errors
/// If the bytes are no packed edits.
pub fn read_runs(packed: &[u8]) -> StoreResult<(Vec<PackedHead>, Vec<PackedSection>)> {
    // A run with one edit has about a hundred bytes; to grow step by step costs as much as reading the heads.
    let count = packed.len() / 96 + 1;
    let (mut runs, mut sections) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut cursor = PackedCursor { bytes: packed };
    while !cursor.bytes.is_empty() {
        let (head, end) = cursor.head(packed.len()).ok_or_else(unreadable)?;
        while packed.len() - cursor.bytes.len() < end {
            let (loop_key, content) = cursor.section(packed.len()).ok_or_else(unreadable)?;
            sections.push(PackedSection {
                loop_key,
                run: runs.len(),
                content,
            });
        }
        if packed.len() - cursor.bytes.len() != end {
            return Err(unreadable());
        }
        runs.push(head);
    }
    Ok((runs, sections))
}

/// Visits the edits of a section in order, and returns the bytes of their texts, one text after another. The caller must
/// check that they are UTF-8 and that no text ends within a character.
///
/// # Errors
/// If the bytes are no section of packed edits.
pub fn section_edits<'a>(
    section: &'a [u8],
    visit: &mut dyn FnMut(PackedEdit),
) -> StoreResult<&'a [u8]> {
    read_section(section, visit).ok_or_else(unreadable)
}

fn read_section<'a>(section: &'a [u8], visit: &mut dyn FnMut(PackedEdit)) -> Option<&'a [u8]> {
    let mut cursor = PackedCursor { bytes: section };
    let count = cursor.number()?;
    let texts = usize::try_from(cursor.number()?).ok()?;
    let (edits, texts) = cursor
        .bytes
        .split_at_checked(cursor.bytes.len().checked_sub(texts)?)?;
    cursor.bytes = edits;
    let mut text_end = 0;
    for _ in 0..count {
        visit(cursor.edit(&mut text_end)?);
    }
    (cursor.bytes.is_empty() && text_end == texts.len()).then_some(texts)
}

#[cold]
fn unreadable() -> super::error::StoreError {
    damaged(
        "the packed edits of a run cannot be read; export the session and import it into a new database",
    )
}

/// A position in packed edits.
struct PackedCursor<'a> {
    bytes: &'a [u8],
}

impl PackedCursor<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(first.into());
        }
        let mut number = u64::from(first & 0x7F);
        for place in 1..NUMBER_BYTES {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    #[inline]
    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// Reads a length, and returns the range of as many bytes of `total` in all; they are skipped.
    #[inline]
    fn range(&mut self, total: usize) -> Option<Range<usize>> {
        let length = usize::try_from(self.number()?).ok()?;
        let start = total - self.bytes.len();
        self.bytes = self.bytes.get(length..)?;
        Some(start..start + length)
    }

    /// Returns a run, and the end of its sections.
    #[inline]
    fn head(&mut self, total: usize) -> Option<(PackedHead, usize)> {
        let run = RunKey(self.number()?.cast_signed());
        let loop_key = LoopKey(self.number()?.cast_signed());
        let turns = self.small()?;
        let run_id = self.range(total)?;
        let length = usize::try_from(self.number()?).ok()?;
        let end = (total - self.bytes.len()).checked_add(length)?;
        let point = Point { loop_key, turns };
        let head = PackedHead { run, point, run_id };
        (end <= total).then_some((head, end))
    }

    /// Returns the loop of a section, and the range of its content.
    #[inline]
    fn section(&mut self, total: usize) -> Option<(LoopKey, Range<usize>)> {
        let loop_key = LoopKey(self.number()?.cast_signed());
        Some((loop_key, self.range(total)?))
    }

    #[inline]
    fn edit(&mut self, text_end: &mut usize) -> Option<PackedEdit> {
        let first = self.byte()?;
        let action = match first & (HAS_PART - 1) {
            0 => EditAction::Removed,
            1 => EditAction::Cleared,
            2 => EditAction::Replaced,
            _ => return None,
        };
        let from = self.small()?;
        let (mut to, mut part, mut before) = (from, None, Size::default());
        if first & HAS_PART != 0 {
            let (number, of) = (self.small()?, self.small()?);
            part = Some(EditedPart { number, of });
        } else {
            to = from.checked_add(self.small()?)?;
            before.messages = self.number()?;
        }
        (before.tokens, before.bytes) = (self.number()?, self.number()?);
        let mut after = Size::default();
        let is_shown = action != EditAction::Removed;
        if is_shown {
            (after.tokens, after.bytes) = (self.number()?, self.number()?);
            let length = usize::try_from(self.number()?).ok()?;
            *text_end = text_end.checked_add(length)?;
        }
        Some(PackedEdit {
            seqs: (from, to),
            part,
            action,
            text_end: is_shown.then_some(*text_end),
            before,
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(loop_key: i64, seq: u32, text: Option<&str>) -> EditRow {
        let size = |tokens: u64| Size {
            tokens,
            bytes: tokens * 4,
            messages: 0,
        };
        EditRow {
            loop_key: LoopKey(loop_key),
            seqs: (seq, seq),
            part: Some(EditedPart { number: 1, of: 300 }),
            action: text.map_or(EditAction::Removed, |_| EditAction::Cleared),
            text: text.map(str::to_owned),
            before: size(100_000),
            after: size(text.map_or(0, |text| text.len() as u64)),
            salt: [7; 16],
        }
    }

    fn some() -> Vec<EditRow> {
        let mut whole = edit(1 << 40, 200, None);
        (whole.seqs.1, whole.part, whole.before.messages) = (u32::MAX, None, 90);
        let mut replaced = edit(3, 9, Some(""));
        replaced.action = EditAction::Replaced;
        vec![
            edit(3, 0, Some("grün")),
            edit(3, 1, None),
            replaced,
            whole,
            edit(3, 12, Some("after another loop")),
        ]
    }

    fn run(key: i64) -> PackedRun {
        PackedRun {
            run: RunKey(key),
            run_id: format!("run-{key}"),
            point: Point {
                loop_key: LoopKey(key << 20),
                turns: 300,
            },
        }
    }

    /// Reads packed edits of any number of runs; the salts are not in them.
    fn unpack(packed: &[u8]) -> StoreResult<Vec<EditRow>> {
        let mut edits = Vec::new();
        for section in read_runs(packed)?.1 {
            let (loop_key, mut found) = (section.loop_key, Vec::new());
            let content = &packed[section.content];
            let texts = section_edits(content, &mut |edit| found.push(edit))?;
            let texts = std::str::from_utf8(texts).map_err(damaged)?;
            let mut start = 0;
            edits.extend(found.into_iter().map(|edit| EditRow {
                loop_key,
                seqs: edit.seqs,
                part: edit.part,
                action: edit.action,
                text: edit.text_end.map(|end| {
                    let range = std::mem::replace(&mut start, end)..end;
                    texts.get(range).unwrap_or_default().into()
                }),
                before: edit.before,
                after: edit.after,
                salt: [7; 16],
            }));
        }
        Ok(edits)
    }

    #[test]
    fn packed_edits_are_read_as_they_were() {
        assert_eq!(unpack(&pack(&run(7), &some())).unwrap(), some());
        assert_eq!(unpack(&[]).unwrap(), []);
    }

    #[test]
    fn packed_edits_of_several_runs_are_read_from_one_buffer() {
        let edits = some();
        let keys = [1, 1 << 33, i64::MAX];
        let packs = keys.map(|key| pack(&run(key), if key == 1 { &edits[..1] } else { &edits }));
        let packed = packs.concat();
        let (runs, sections) = read_runs(&packed).unwrap();
        let found = runs.iter().map(|head| PackedRun {
            run: head.run,
            run_id: String::from_utf8(packed[head.run_id.clone()].into()).unwrap(),
            point: head.point,
        });
        assert_eq!(found.collect::<Vec<_>>(), keys.map(run));
        let of_runs: Vec<usize> = sections.iter().map(|section| section.run).collect();
        assert_eq!(of_runs, [0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(
            unpack(&packed).unwrap(),
            [&edits[..1], &edits, &edits].concat()
        );
    }

    #[test]
    fn damaged_bytes_are_an_error_and_never_a_panic() {
        let packed = pack(&run(7), &some());
        for end in 1..packed.len() {
            assert!(unpack(&packed[..end]).is_err(), "{end}");
        }
        for at in 0..packed.len() {
            for bit in 0..8 {
                let mut damaged = packed.clone();
                damaged[at] ^= 1 << bit;
                let _ = unpack(&damaged);
                let _ = unpack(&[&packed[..], &damaged].concat());
            }
        }
        assert!(unpack(&[0x80; 40]).is_err());
        assert!(unpack(&[0xFF; 40]).is_err());
    }
}
