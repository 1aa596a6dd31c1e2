//! The text of one file as the recorded changes leave it, and the change that wrote each line.
//!
//! A file that was never written as a whole is known in pieces: the texts that its edits name. Where they are in the
//! file is not known until they are found in the file on disk.

use loopstore_digest::activity::{Hunk, HunkLine, TextChange, TextReplacement};

use crate::lines::matched;
use crate::place::{DiskIndex, place};

/// A change, by its number.
pub(crate) type ChangeNumber = u32;

/// The most pieces of one file.
const MOST_PIECES: usize = 10_000;

/// A text with the change that wrote each of its lines; `None` if no recorded change did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    /// For each part between line ends, one more than there are line ends.
    pub(crate) by: Vec<Option<ChangeNumber>>,
    /// True if the first or the last line may be a part of a line.
    pub(crate) is_partial: bool,
}

/// The text of a file as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Document {
    /// The whole text.
    pub(crate) whole: Option<Piece>,
    /// The texts of edits that are not in `whole`, oldest first.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) is_deleted: bool,
    /// The changes of the file, by their positions, each with the reason for which it could not be followed.
    pub(crate) history: Vec<(usize, Option<UnfollowedReason>)>,
}

/// A reason why a change could not be followed line by line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnfollowedReason {
    /// The text that the change replaces was not found in the text that was followed so far.
    OldTextNotFound,
    /// The text that the change replaces occurs several times; the first was taken.
    SeveralPlaces,
    /// The call does not contain the text that it writes: a redirection of a shell, `sed -i`, a copy.
    TextNotRecorded,
    /// The file was set back to a version of its repository.
    Reverted,
    /// A command failed, and a part of it may have changed the file.
    FailedCommand,
    /// No result of the call is recorded.
    NoResult,
    /// The message of the call was redacted or removed.
    Removed,
}

impl UnfollowedReason {
    /// Returns the reason as a sentence part for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::OldTextNotFound => "the replaced text was not found",
            Self::SeveralPlaces => "the replaced text occurs several times; the first was taken",
            Self::TextNotRecorded => "the call does not contain the written text",
            Self::Reverted => "the file was set back to a version of its repository",
            Self::FailedCommand => "a failed command may have changed the file",
            Self::NoResult => "no result of the call is recorded",
            Self::Removed => "the message of the call was removed",
        }
    }
}

impl Piece {
    pub(crate) fn of(text: &str, by: Option<ChangeNumber>) -> Self {
        Self {
            text: text.to_owned(),
            by: vec![by; text.split('\n').count()],
            is_partial: false,
        }
    }

    /// Returns the lines, without the empty part after the last line end.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, Option<ChangeNumber>)> {
        let count = match self.text.ends_with('\n') || self.text.is_empty() {
            true => self.by.len() - 1,
            false => self.by.len(),
        };
        self.text
            .split('\n')
            .map(|line| line.strip_suffix('\r').unwrap_or(line))
            .zip(self.by.iter().copied())
            .take(count)
    }

    /// Replaces ranges of bytes, which are in order and apart, by one text. Lines that stay keep their changes.
    fn replace(&mut self, ranges: &[(usize, usize)], new: &str, by: ChangeNumber) {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return;
        };
        let begin = self.text[..first.0].rfind('\n').map_or(0, |at| at + 1);
        let end = self.text[last.1..]
            .find('\n')
            .map_or(self.text.len(), |at| last.1 + at);
        let mut changed = String::new();
        let mut at = begin;
        for (from, to) in ranges {
            changed.push_str(&self.text[at..*from]);
            changed.push_str(new);
            at = *to;
        }
        changed.push_str(&self.text[at..end]);
        self.rewrite(begin, end, &changed, by);
    }

    /// Replaces the lines from the byte `begin` to the byte `end`, the ends of lines, by the lines of a text.
    fn rewrite(&mut self, begin: usize, end: usize, changed: &str, by: ChangeNumber) {
        let line_ends = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
        let first = line_ends(&self.text[..begin]);
        let is_end = end == self.text.len();
        let old = parts(&self.text[begin..end], is_end);
        let new = parts(changed, is_end);
        let lines = first..first + self.text[begin..end].split('\n').count();
        let kept = &self.by[lines.clone()];
        let mut by_line: Vec<Option<ChangeNumber>> = matched(&old, &new)
            .into_iter()
            .map(|line| line.map_or(Some(by), |line| kept[line]))
            .collect();
        by_line.resize(changed.split('\n').count(), Some(by));
        let by = by_line;
        self.by.splice(lines, by);
        self.text.replace_range(begin..end, changed);
    }

    /// Returns the byte at which a line begins; the end of the text for later lines.
    fn line_start(&self, line: usize) -> usize {
        if line == 0 {
            return 0;
        }
        let mut ends = self.text.match_indices('\n');
        ends.nth(line - 1).map_or(self.text.len(), |(at, _)| at + 1)
    }

    /// Inserts lines before the byte `at`, the beginning of a line or the end of the text. `text` has no line end after
    /// its last line: editors insert a text that ends with one as a line and an empty line.
    fn insert_lines(&mut self, at: usize, text: &str, by: ChangeNumber) {
        let has_no_end =
            at == self.text.len() && !self.text.is_empty() && !self.text.ends_with('\n');
        let text = match has_no_end {
            true => format!("\n{text}"),
            false => format!("{text}\n"),
        };
        self.replace(&[(at, at)], &text, by);
    }
}

/// Returns the parts of a text between line ends. The empty part after the last line end of a file is no line: it must
/// not become the beginning of an empty line that is added.
fn parts(text: &str, is_end: bool) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split('\n').collect();
    if is_end {
        parts.pop_if(|last| last.is_empty());
    }
    parts
}

impl Document {
    /// Applies a change of the text. Returns the reason if it could not be followed as it was made.
    pub(crate) fn change(
        &mut self,
        change: &TextChange,
        by: ChangeNumber,
    ) -> Option<UnfollowedReason> {
        self.is_deleted = false;
        match change {
            TextChange::Write(text) => {
                self.write(text, by);
                None
            }
            TextChange::Append(text) => {
                match &mut self.whole {
                    Some(whole) => {
                        let end = whole.text.len();
                        whole.replace(&[(end, end)], text, by);
                    }
                    None => self.add_piece(Piece::of(text, Some(by))),
                }
                None
            }
            TextChange::Insert { after, text } => {
                match &mut self.whole {
                    Some(whole) => {
                        let at = whole.line_start(*after as usize);
                        whole.insert_lines(at, text, by);
                    }
                    None => self.add_piece(Piece::of(text, Some(by))),
                }
                None
            }
            TextChange::Lines { first, last, text } => {
                let Some(whole) = &mut self.whole else {
                    self.add_piece(Piece::of(text, Some(by)));
                    return None;
                };
                let from = whole.line_start((*first).max(1) as usize - 1);
                let to = whole.line_start((*last).max(*first - u32::from(*first > 0)) as usize);
                let mut text = text.clone();
                let is_followed = to.max(from) < whole.text.len() || whole.text.ends_with('\n');
                if !text.is_empty() && !text.ends_with('\n') && is_followed {
                    text.push('\n');
                }
                whole.replace(&[(from, to.max(from))], &text, by);
                None
            }
            TextChange::Replace(edits) => {
                let mut reason = None;
                for edit in edits {
                    reason = reason.or(self.replace(edit, by));
                }
                reason
            }
            TextChange::Hunks(hunks) => {
                let (mut reason, mut cursor) = (None, 0);
                for hunk in hunks {
                    reason = reason.or(self.hunk(hunk, &mut cursor, by));
                }
                reason
            }
        }
    }

    /// Sets the whole text. Lines that stay keep their changes.
    fn write(&mut self, text: &str, by: ChangeNumber) {
        let mut piece = Piece::of(text, Some(by));
        if let Some(whole) = &self.whole {
            let (old, new) = (parts(&whole.text, true), parts(text, true));
            for (at, line) in matched(&old, &new).into_iter().enumerate() {
                if let Some(line) = line {
                    piece.by[at] = whole.by[line];
                }
            }
        } else if !self.pieces.is_empty() {
            let lines: Vec<&str> = piece.lines().map(|(line, _)| line).collect();
            let index = DiskIndex::new(&lines);
            let mut kept = vec![None; lines.len()];
            place(&self.pieces, &index, &mut kept);
            for (by, kept) in piece.by.iter_mut().zip(kept) {
                *by = kept.or(*by);
            }
        }
        self.whole = Some(piece);
        self.pieces.clear();
    }

    /// Forgets the text: the file was written with an unknown text.
    pub(crate) fn forget(&mut self) {
        self.whole = None;
        self.pieces.clear();
        self.is_deleted = false;
    }

    fn add_piece(&mut self, piece: Piece) {
        if self.pieces.len() < MOST_PIECES {
            self.pieces.push(piece);
        }
    }

    fn replace(&mut self, edit: &TextReplacement, by: ChangeNumber) -> Option<UnfollowedReason> {
        if edit.old.is_empty() {
            self.write(&edit.new, by);
            return None;
        }
        let pieces = self.pieces.iter_mut().rev();
        let found = self.whole.iter_mut().chain(pieces).find_map(|piece| {
            let ranges: Vec<(usize, usize)> = piece
                .text
                .match_indices(&edit.old)
                .take(if edit.all { usize::MAX } else { 2 })
                .map(|(at, old)| (at, at + old.len()))
                .collect();
            (!ranges.is_empty()).then_some((piece, ranges))
        });
        if let Some((piece, mut ranges)) = found {
            let is_several = ranges.len() > 1 && !edit.all;
            if is_several {
                ranges.truncate(1);
            }
            piece.replace(&ranges, &edit.new, by);
            return is_several.then_some(UnfollowedReason::SeveralPlaces);
        }
        let mut piece = Piece::of(&edit.old, None);
        piece.is_partial = true;
        let end = piece.text.len();
        piece.replace(&[(0, end)], &edit.new, by);
        self.add_piece(piece);
        self.missing()
    }

    /// Returns the reason if a text that is not known should have been in the whole text.
    fn missing(&self) -> Option<UnfollowedReason> {
        let has_whole = self.whole.is_some();
        has_whole.then_some(UnfollowedReason::OldTextNotFound)
    }

    /// Applies a hunk at or after the line `cursor`.
    fn hunk(
        &mut self,
        hunk: &Hunk,
        cursor: &mut usize,
        by: ChangeNumber,
    ) -> Option<UnfollowedReason> {
        let (mut old, mut new): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for line in &hunk.lines {
            match line {
                HunkLine::Kept(line) => {
                    old.push(line);
                    new.push(line);
                }
                HunkLine::Removed(line) => old.push(line),
                HunkLine::Added(line) => new.push(line),
            }
        }
        if let Some(whole) = &mut self.whole
            && let Some(at) = find_hunk(whole, hunk, &old, cursor)
        {
            whole.replace_lines(at, old.len(), &new, by);
            *cursor = at + new.len();
            return None;
        }
        for piece in self.pieces.iter_mut().rev().filter(|_| !old.is_empty()) {
            if let Some(at) = find_hunk(piece, hunk, &old, &mut 0) {
                piece.replace_lines(at, old.len(), &new, by);
                return None;
            }
        }
        let mut piece = Piece::of(&old.join("\n"), None);
        let end = piece.text.len();
        piece.rewrite(0, end, &new.join("\n"), by);
        self.add_piece(piece);
        self.missing()
    }
}

impl Piece {
    /// Replaces `count` lines from the line `at`.
    fn replace_lines(&mut self, at: usize, count: usize, new: &[&str], by: ChangeNumber) {
        let begin = self.line_start(at);
        if count == 0 {
            if !new.is_empty() {
                self.insert_lines(begin, &new.join("\n"), by);
            }
            return;
        }
        let end = self.line_start(at + count);
        let has_end = end > begin && self.text[..end].ends_with('\n');
        match (has_end, new.is_empty()) {
            // The line ends go with the lines.
            (_, true) => self.replace(&[(begin, end)], "", by),
            (true, false) => self.rewrite(begin, end - 1, &new.join("\n"), by),
            (false, false) => self.rewrite(begin, end, &new.join("\n"), by),
        }
    }
}

/// Returns the line at which the old lines of a hunk are: exactly, else without white space at the ends of lines, else
/// at their beginnings too, as the programs that apply patches search them.
fn find_hunk(piece: &Piece, hunk: &Hunk, old: &[&str], cursor: &mut usize) -> Option<usize> {
    let lines: Vec<&str> = piece.lines().map(|(line, _)| line).collect();
    if let Some(below) = &hunk.below {
        let from = (*cursor).min(lines.len());
        let named = lines[from..]
            .iter()
            .position(|line| line.trim() == below.trim());
        if let Some(at) = named {
            *cursor = from + at + 1;
        }
    }
    let hinted = hunk.first_line.map(|line| line.max(1) as usize - 1);
    if old.is_empty() {
        return Some(hinted.unwrap_or(lines.len()).min(lines.len()));
    }
    type Same = fn(&str, &str) -> bool;
    let same: [Same; 3] = [
        |line, old| line == old,
        |line, old| line.trim_end() == old.trim_end(),
        |line, old| line.trim() == old.trim(),
    ];
    let last = lines.len().checked_sub(old.len())?;
    for same in same {
        let is_at = |at: &usize| {
            let part = &lines[*at..*at + old.len()];
            part.iter().zip(old).all(|(line, old)| same(line, old))
        };
        // Of several places, the one nearest to the line that the patch names.
        let found = match hinted {
            Some(hint) => (0..=last).filter(is_at).min_by_key(|at| at.abs_diff(hint)),
            None => (*cursor..=last)
                .find(is_at)
                .or_else(|| (0..(*cursor).min(last + 1)).find(is_at)),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests;
