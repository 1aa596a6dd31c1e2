//! The texts of a patch.

use super::{Hunk, HunkLine, TextChange};

/// The most files of one patch.
const MOST_FILES: usize = 500;

/// Returns the texts of a patch by path: between `*** Begin Patch` and `*** End Patch`, or a unified diff. Empty for
/// any other text.
pub(in super::super::super) fn patch_texts(text: &str) -> Vec<(String, TextChange)> {
    if let Some(at) = text.find("*** Begin Patch") {
        return marked(&text[at..]);
    }
    match text.contains("+++ ") || text.contains("rename to ") {
        true => unified(text),
        false => Vec::new(),
    }
}

/// A file of a patch, while it is read.
struct PatchedFile {
    path: String,
    is_new: bool,
    is_deleted: bool,
    reader: HunkReader,
}

impl PatchedFile {
    fn new(path: &str, is_new: bool, is_deleted: bool) -> Self {
        Self {
            path: path.to_owned(),
            is_new,
            is_deleted,
            reader: HunkReader::default(),
        }
    }

    fn text(self) -> Option<(String, TextChange)> {
        let hunks = self.reader.finish();
        if self.is_deleted {
            return None;
        }
        let change = match self.is_new {
            true => TextChange::Write(added(&hunks)),
            false => TextChange::Hunks(hunks),
        };
        Some((self.path, change))
    }
}

fn added(hunks: &[Hunk]) -> String {
    let mut text = String::new();
    for line in hunks.iter().flat_map(|hunk| &hunk.lines) {
        if let HunkLine::Added(line) = line {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn texts(files: Vec<PatchedFile>) -> Vec<(String, TextChange)> {
    files.into_iter().filter_map(PatchedFile::text).collect()
}

fn marked(text: &str) -> Vec<(String, TextChange)> {
    let mut files: Vec<PatchedFile> = Vec::new();
    for line in text.lines() {
        let header = |name: &str| line.strip_prefix(name).map(str::trim);
        let begun = header("*** Add File:")
            .map(|path| PatchedFile::new(path, true, false))
            .or_else(|| header("*** Update File:").map(|path| PatchedFile::new(path, false, false)))
            .or_else(|| header("*** Delete File:").map(|path| PatchedFile::new(path, false, true)));
        if let Some(file) = begun {
            if files.len() == MOST_FILES {
                break;
            }
            files.push(file);
        } else if line.starts_with("*** End Patch") {
            break;
        } else if let Some(file) = files.last_mut() {
            match header("*** Move to:") {
                Some(to) => file.path = to.to_owned(),
                None if line.starts_with("*** ") => {}
                None => file.reader.line(line),
            }
        }
    }
    texts(files)
}

fn unified(text: &str) -> Vec<(String, TextChange)> {
    let mut files: Vec<PatchedFile> = Vec::new();
    let mut old = None;
    let mut moved = None;
    for line in text.lines() {
        let name = |rest: &str| {
            let path = rest.split('\t').next().unwrap_or(rest).trim();
            let bare = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/"));
            bare.unwrap_or(path).to_owned()
        };
        let in_hunk = files.last().is_some_and(|file| file.reader.is_in_hunk());
        if files.len() > MOST_FILES {
            break;
        } else if let Some(rest) = line.strip_prefix("--- ").filter(|_| !in_hunk) {
            old = Some(name(rest));
        } else if let Some(rest) = line.strip_prefix("+++ ").filter(|_| !in_hunk) {
            let Some(before) = old.take() else { continue };
            let path = name(rest);
            if moved.take().is_some_and(|to| to == path) {
                continue;
            }
            let shown = if path == "/dev/null" { &before } else { &path };
            files.push(PatchedFile::new(
                shown,
                before == "/dev/null",
                path == "/dev/null",
            ));
        } else if let Some(rest) = line.strip_prefix("rename to ").filter(|_| !in_hunk) {
            let to = rest.trim().to_owned();
            files.push(PatchedFile::new(&to, false, false));
            moved = Some(to);
        } else if let Some(file) = files.last_mut() {
            file.reader.line(line);
        }
    }
    texts(files)
}

/// Reads the lines of hunks.
#[derive(Default)]
struct HunkReader {
    hunks: Vec<Hunk>,
    /// The old and new lines that a unified hunk still has, by its header.
    left: Option<(u32, u32)>,
}

impl HunkReader {
    /// True if the header of the hunk says that more lines follow.
    fn is_in_hunk(&self) -> bool {
        self.left.is_some_and(|(old, new)| old > 0 || new > 0)
    }

    fn line(&mut self, line: &str) {
        if self.left == Some((0, 0)) && !line.starts_with("@@") {
            return;
        }
        if !self.is_in_hunk()
            && let Some(rest) = line.strip_prefix("@@")
        {
            self.begin(rest);
            return;
        }
        let text = |line: &str| line.get(1..).unwrap_or_default().to_owned();
        let read = match line.bytes().next() {
            Some(b'+') => HunkLine::Added(text(line)),
            Some(b'-') => HunkLine::Removed(text(line)),
            Some(b' ') => HunkLine::Kept(text(line)),
            // Editors strip the space of an empty line.
            None => HunkLine::Kept(String::new()),
            // `\ No newline at end of file`
            Some(b'\\') => return,
            Some(_) if self.hunks.is_empty() || self.left.is_some() => return,
            Some(_) => HunkLine::Kept(line.to_owned()),
        };
        if let Some((old, new)) = &mut self.left {
            *old -= u32::from(!matches!(read, HunkLine::Added(_))).min(*old);
            *new -= u32::from(!matches!(read, HunkLine::Removed(_))).min(*new);
        }
        if self.hunks.is_empty() {
            self.hunks.push(Hunk::default());
        }
        if let Some(hunk) = self.hunks.last_mut() {
            hunk.lines.push(read);
        }
    }

    fn begin(&mut self, rest: &str) {
        // Headers without lines name the place of the next hunk.
        self.hunks.pop_if(|hunk| hunk.lines.is_empty());
        let ranges = rest
            .split_once("@@")
            .and_then(|(ranges, below)| Some((range(ranges)?, below)));
        let (first_line, below) = match ranges {
            Some(((first, old, new), below)) => {
                self.left = Some((old, new));
                // A range without lines names the line before it.
                (Some(first + u32::from(old == 0)), below)
            }
            None => (None, rest),
        };
        let below = below.trim().trim_end_matches("@@").trim_end();
        self.hunks.push(Hunk {
            first_line,
            below: (!below.is_empty()).then(|| below.to_owned()),
            lines: Vec::new(),
        });
    }

    fn finish(mut self) -> Vec<Hunk> {
        for hunk in &mut self.hunks {
            // Without counts, an empty line may belong to the text around the patch.
            while self.left.is_none()
                && hunk.lines.last() == Some(&HunkLine::Kept(String::new()))
                && hunk
                    .lines
                    .iter()
                    .any(|line| matches!(line, HunkLine::Kept(text) if !text.is_empty()))
            {
                hunk.lines.pop();
            }
        }
        self.hunks.retain(|hunk| !hunk.lines.is_empty());
        self.hunks
    }
}

/// Reads ` -1,3 +1,4 `: the first old line, and the numbers of old and new lines.
fn range(text: &str) -> Option<(u32, u32, u32)> {
    let (old, new) = text.trim().split_once(' ')?;
    let part = |text: &str, mark: char| {
        let text = text.trim().strip_prefix(mark)?;
        let (first, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((first.parse::<u32>().ok()?, count.parse::<u32>().ok()?))
    };
    let ((first, old), (_, new)) = (part(old, '-')?, part(new, '+')?);
    (first < u32::MAX).then_some((first, old, new))
}

/// Returns the hunks of a unified diff of one file.
pub(super) fn hunks(text: &str) -> Vec<Hunk> {
    let mut reader = HunkReader::default();
    text.lines().for_each(|line| reader.line(line));
    reader.finish()
}

/// Returns search and replace blocks as hunks.
pub(super) fn blocks(text: &str) -> Vec<Hunk> {
    let mut found = Vec::new();
    for block in text.split("<<<<<<< SEARCH").skip(1) {
        let Some((_, block)) = block.split_once('\n') else {
            continue;
        };
        let block = format!("\n{block}");
        let Some((old, rest)) = block.split_once("\n=======") else {
            continue;
        };
        let Some((new, _)) = rest.split_once(">>>>>>> REPLACE") else {
            continue;
        };
        let old = old.strip_prefix('\n').unwrap_or(old);
        let (_, new) = new.split_once('\n').unwrap_or(("", new));
        let mut lines: Vec<HunkLine> = Vec::new();
        lines.extend(old.lines().map(|line| HunkLine::Removed(line.to_owned())));
        lines.extend(new.lines().map(|line| HunkLine::Added(line.to_owned())));
        found.push(Hunk {
            lines,
            ..Hunk::default()
        });
    }
    found
}
