//! Finds texts of edits in a file, where their place is not recorded.

use std::collections::HashMap;

use crate::document::{ChangeNumber, Piece};

/// The fewest letters and digits of a text that is found by itself: a brace is in every file.
const LEAST_LETTERS: usize = 6;

/// The lines of a file, and where each text is.
pub(crate) struct DiskIndex<'a> {
    lines: &'a [&'a str],
    places: HashMap<&'a str, Vec<usize>>,
}

impl<'a> DiskIndex<'a> {
    pub(crate) fn new(lines: &'a [&'a str]) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, line) in lines.iter().enumerate() {
            places.entry(line).or_default().push(at);
        }
        Self { lines, places }
    }
}

/// Lines of a piece. An end that may be a part of a line is compared as one.
#[derive(Clone, Copy)]
struct SameLines<'a> {
    lines: &'a [(&'a str, Option<ChangeNumber>)],
    begins_within: bool,
    ends_within: bool,
}

/// The result of a search for a run.
enum Found {
    Once(usize),
    Several,
    Never,
}

/// Gives each line of a file the change of the newest piece that contains it, and returns the number of written lines
/// whose place is not known. Lines that have a change keep it.
pub(crate) fn place(
    pieces: &[Piece],
    index: &DiskIndex<'_>,
    by: &mut [Option<ChangeNumber>],
) -> u64 {
    let mut unplaced = 0;
    for piece in pieces.iter().rev() {
        let lines: Vec<_> = piece.lines().collect();
        let run = SameLines {
            lines: &lines,
            begins_within: piece.is_partial,
            ends_within: piece.is_partial && !piece.text.ends_with('\n'),
        };
        unplaced += place_run(run.trimmed(), index, by);
    }
    unplaced
}

fn place_run(run: SameLines<'_>, index: &DiskIndex<'_>, by: &mut [Option<ChangeNumber>]) -> u64 {
    match run.find(index) {
        Found::Once(at) => {
            run.mark(at, by);
            return 0;
        }
        Found::Several => return run.written(),
        Found::Never => {}
    }
    // A later change within the run: what is left of it are parts.
    let parts = run.parts();
    if parts.len() == 1 && parts[0].lines.len() == run.lines.len() {
        return run.single_lines().map(|line| line.place(index, by)).sum();
    }
    let mut unplaced = 0;
    for part in parts {
        unplaced += match part.find(index) {
            Found::Once(at) => {
                part.mark(at, by);
                0
            }
            Found::Several => part.written(),
            Found::Never => part.single_lines().map(|line| line.place(index, by)).sum(),
        };
    }
    unplaced
}

impl<'a> SameLines<'a> {
    /// Returns the run without an empty first part, after which a line begins.
    fn trimmed(self) -> Self {
        match self.lines {
            [("", None), rest @ ..] if self.begins_within && !rest.is_empty() => Self {
                lines: rest,
                begins_within: false,
                ..self
            },
            _ => self,
        }
    }

    fn written(&self) -> u64 {
        self.lines.iter().filter(|(_, by)| by.is_some()).count() as u64
    }

    /// Returns the runs of lines that one change wrote.
    fn parts(&self) -> Vec<SameLines<'a>> {
        let mut parts = Vec::new();
        let mut first = 0;
        while first < self.lines.len() {
            let by = self.lines[first].1;
            let count = self.lines[first..].iter().take_while(|(_, of)| *of == by);
            let end = first + count.count();
            if by.is_some() {
                parts.push(self.part(first, end));
            }
            first = end;
        }
        parts
    }

    fn part(&self, first: usize, end: usize) -> SameLines<'a> {
        SameLines {
            lines: &self.lines[first..end],
            begins_within: self.begins_within && first == 0,
            ends_within: self.ends_within && end == self.lines.len(),
        }
    }

    fn single_lines(&self) -> impl Iterator<Item = SameLines<'a>> {
        let run = *self;
        (0..run.lines.len()).map(move |at| run.part(at, at + 1))
    }

    fn place(&self, index: &DiskIndex<'_>, by: &mut [Option<ChangeNumber>]) -> u64 {
        match self.find(index) {
            Found::Once(at) => {
                self.mark(at, by);
                0
            }
            Found::Several | Found::Never => self.written(),
        }
    }

    fn mark(&self, at: usize, by: &mut [Option<ChangeNumber>]) {
        for (line, (_, change)) in by[at..].iter_mut().zip(self.lines) {
            if line.is_none() {
                *line = *change;
            }
        }
    }

    /// Returns where the run is in the file, if it is there once.
    fn find(&self, index: &DiskIndex<'_>) -> Found {
        if !self.is_distinct() || self.lines.len() > index.lines.len() {
            return Found::Never;
        }
        let mut found = Found::Never;
        let mut see = |at: usize| {
            if self.is_at(at, index.lines) {
                found = match found {
                    Found::Never => Found::Once(at),
                    Found::Once(_) | Found::Several => Found::Several,
                };
            }
            matches!(found, Found::Several)
        };
        match self.rarest(index) {
            // A line of the run that is nowhere in the file.
            Some((_, [])) => {}
            Some((line, places)) => {
                let starts = places.iter().filter_map(|at| at.checked_sub(line));
                for at in starts {
                    if see(at) {
                        break;
                    }
                }
            }
            None => {
                for at in 0..index.lines.len() {
                    if see(at) {
                        break;
                    }
                }
            }
        }
        found
    }

    /// Returns the whole line of the run that is at the fewest places, with these.
    fn rarest<'i>(&self, index: &'i DiskIndex<'_>) -> Option<(usize, &'i [usize])> {
        let last = self.lines.len() - 1;
        let whole = (0..=last)
            .filter(|at| !(*at == 0 && self.begins_within || *at == last && self.ends_within));
        let places = |at: usize| {
            let places = index.places.get(self.lines[at].0);
            (at, places.map_or(&[][..], Vec::as_slice))
        };
        whole.map(places).min_by_key(|(_, places)| places.len())
    }

    /// True if the run has enough letters and digits to be told from other texts.
    fn is_distinct(&self) -> bool {
        let letters = self.lines.iter().flat_map(|(line, _)| line.chars());
        letters
            .filter(|c| c.is_alphanumeric())
            .nth(LEAST_LETTERS - 1)
            .is_some()
    }

    fn is_at(&self, at: usize, lines: &[&str]) -> bool {
        let Some(there) = lines.get(at..at + self.lines.len()) else {
            return false;
        };
        let last = self.lines.len() - 1;
        there
            .iter()
            .zip(self.lines)
            .enumerate()
            .all(|(nth, (line, (own, _)))| {
                match (
                    nth == 0 && self.begins_within,
                    nth == last && self.ends_within,
                ) {
                    (true, true) => line.contains(own),
                    (true, false) => line.ends_with(own),
                    (false, true) => line.starts_with(own),
                    (false, false) => line == own,
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places an edit of an unknown file, and returns the lines of the file that it has written.
    fn placed(old: &[&str], new: &[&str], is_partial: bool, file: &str) -> (Vec<usize>, u64) {
        let kept = |line: &&str| if old.contains(line) { None } else { Some(7) };
        let piece = Piece {
            text: new.join("\n"),
            by: new.iter().map(kept).collect(),
            is_partial,
        };
        let lines: Vec<&str> = file.split('\n').collect();
        let mut by = vec![None; lines.len()];
        let unplaced = place(&[piece], &DiskIndex::new(&lines), &mut by);
        let marked = (0..by.len()).filter(|at| by[*at].is_some());
        (marked.collect(), unplaced)
    }

    #[test]
    fn an_edit_is_found_where_its_text_is() {
        let file = "fn first() {\n}\nfn second() {\n    work();\n}";
        assert_eq!(
            placed(
                &["fn second() {"],
                &["fn second() {", "    work();"],
                true,
                file
            ),
            (vec![3], 0)
        );
        // A part of a line.
        assert_eq!(placed(&[], &["second() {"], true, file), (vec![2], 0));
        assert_eq!(placed(&[], &["second() {"], false, file), (vec![], 1));
    }

    #[test]
    fn what_is_everywhere_or_nowhere_is_not_placed() {
        let file = "same line\nsame line\n}\nother();";
        assert_eq!(placed(&[], &["same line"], false, file), (vec![], 1));
        assert_eq!(placed(&[], &["}"], false, file), (vec![], 1));
        assert_eq!(placed(&[], &["gone away"], false, file), (vec![], 1));
        assert_eq!(
            placed(&[], &["a", "b", "c", "d", "e"], false, "a"),
            (vec![], 5)
        );
    }

    #[test]
    fn parts_of_a_changed_edit_are_placed_each() {
        let edit = ["let first = 1;", "context();", "let second = 2;"];
        let file = "let first = 1;\nchanged context();\nlet second = 2;";
        assert_eq!(placed(&["context();"], &edit, false, file), (vec![0, 2], 0));
    }
}
