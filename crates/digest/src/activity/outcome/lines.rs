//! Finds the line of an output that states its result.

use std::borrow::Cow;

use memchr::memmem;

use super::super::tables::output;
use super::{is_frame_line, short};

/// Returns the line that states the failure; `None` if nothing was printed. `looks`: the command is a utility.
pub(super) fn decisive_line(head: &str, tail: &str, looks: bool) -> Option<String> {
    let traced = traceback(tail).or_else(|| traceback(head));
    // A utility may show any text. Its own error is the last line and begins with its name.
    let marked = || match looks {
        true => complaint(tail).map(Cow::Borrowed),
        false => [head, tail].into_iter().find_map(marked),
    };
    let last = || {
        let mut lines = tail.lines().rev().map(str::trim);
        lines.find(|line| line.chars().any(char::is_alphanumeric) && !is_frame_line(line))
    };
    let line = traced
        .or_else(marked)
        .or_else(|| last().map(Cow::Borrowed))?;
    Some(short(untagged(&line)))
}

fn untagged(line: &str) -> &str {
    let line = line.trim().trim_start_matches("<tool_use_error>");
    line.trim_end_matches("</tool_use_error>")
        .trim_end_matches("</output>")
}

/// Returns the last line of the last Python traceback: the first one after its frames that is not indented.
fn traceback(text: &str) -> Option<Cow<'_, str>> {
    let at = memmem::rfind(text.as_bytes(), b"Traceback (most recent call last)")?;
    let mut lines = text[at..].lines().skip(1);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with([' ', '\t', '|']))?;
    Some(Cow::Borrowed(line))
}

/// Returns the last line that has a mark of an error and begins with the name of a program.
fn complaint(tail: &str) -> Option<&str> {
    let mut lines = tail.lines().rev().map(str::trim).take(50);
    lines.find(|line| {
        let name = line.split(' ').next().unwrap_or("");
        let is_name = name.len() > 1 && name.ends_with(':') && !name.starts_with(['"', '\'', '-']);
        is_name && !is_frame_line(line) && rank(line).is_some()
    })
}

/// Returns the first line with the strongest mark of an error, followed by its position in the source.
fn marked(text: &str) -> Option<Cow<'_, str>> {
    let mut best: Option<(u8, Cow<'_, str>)> = None;
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(rank) = rank(line) else { continue };
        if best.as_ref().is_some_and(|(better, _)| *better <= rank) || is_frame_line(line) {
            continue;
        }
        let next = lines.peek().copied().unwrap_or_default();
        let line = if line.contains("panicked at") && line.ends_with(':') && !next.is_empty() {
            // The message of a Rust panic is on the next line.
            Cow::Borrowed(next)
        } else if let Some(place) = next.strip_prefix("--> ") {
            Cow::Owned(format!("{line} ({place})"))
        } else {
            Cow::Borrowed(line)
        };
        best = Some((rank, line));
        if rank == 0 {
            break;
        }
    }
    best.map(|(_, line)| line)
}

/// True if a line begins with a position in a source: `a.go:81:15: …`, `src/a.ts(3,4): …`.
fn is_located(line: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || "/._-@+~\\".contains(c);
    let Some(end) = line.find(|c| !name(c)) else {
        return false;
    };
    let (path, rest) = line.split_at(end);
    let has_ending = path.rsplit_once('.').is_some_and(|(before, ending)| {
        !before.is_empty() && ending.starts_with(|c: char| c.is_alphabetic())
    });
    let rest = rest.strip_prefix([':', '(']).unwrap_or_default();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let behind = &rest[digits..];
    has_ending && digits > 0 && behind.starts_with([':', ',', ')']) && behind.contains(": ")
}

/// Returns how strongly a line is marked as an error, 0 to 3; 0 is the strongest.
fn rank(line: &str) -> Option<u8> {
    if line.is_empty() || line.len() > 2_000 {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    if output::NO_ERRORS.iter().any(|none| lower.contains(none)) {
        return None;
    }
    let is_word_start = |at: usize| at == 0 || !lower.as_bytes()[at - 1].is_ascii_alphanumeric();
    let errors = memmem::find_iter(lower.as_bytes(), "error");
    let strong = errors.into_iter().any(|at| {
        let behind = &lower[at + 5..];
        // `error:`, `error[E0308]:`, `TypeError: `, `error TS2304:`
        behind.starts_with(": ")
            || behind.starts_with(":\u{a0}")
            || behind.starts_with('[') && behind.contains("]:")
            || is_word_start(at) && behind.starts_with(" ts") && behind.contains(':')
            || is_word_start(at) && behind.starts_with(" in ")
    });
    let begins = |starts: &[&str]| starts.iter().any(|start| lower.starts_with(start));
    if strong
        || begins(output::ERROR_STARTS)
        || lower.contains("panicked at")
        || lower.contains("exception:")
    {
        return Some(0);
    }
    let is_remark = || lower.contains("warning") || lower.contains("note:");
    let is_failed = line.contains("FAILED")
        || begins(output::FAILED_STARTS)
        || line.starts_with(['✗', '✖', '×', '●']);
    if is_failed || lower.contains("assertion") || is_located(line) && !is_remark() {
        return Some(1);
    }
    if output::PROBLEMS.iter().any(|mark| lower.contains(mark)) {
        return Some(2);
    }
    let is_error_word = lower
        .split(|c: char| !c.is_alphanumeric())
        .any(|word| output::ERROR_WORDS.contains(&word));
    is_error_word.then_some(3)
}

/// Returns the last line that counts passes or failures.
pub(super) fn counts(tail: &str) -> Option<String> {
    let lines = tail
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let mut lines = lines
        .take(40)
        .filter(|line| line.len() <= 300 && !is_frame_line(line));
    let line = lines.find(|line| counted(line).next().is_some())?;
    Some(short(
        line.trim_matches(|c: char| c == '=' || c == '-' || c == ' '),
    ))
}

/// Returns the counts of a line: `12 passed`, `pass 3`, `0 issues`.
fn counted(line: &str) -> impl Iterator<Item = (u64, &str)> {
    let words: Vec<&str> = line
        .split(|c: char| !c.is_alphanumeric() && c != '.' && c != '/' && c != '_' && c != '-')
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !word.is_empty())
        .collect();
    let known = |word: &str| {
        output::COUNTED
            .iter()
            .find(|known| known.eq_ignore_ascii_case(word))
            .copied()
    };
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Ok(number) = word.parse::<u64>() else {
            continue;
        };
        let next = words.get(at + 1).and_then(|next| known(next));
        // Bun and Node write the word first, alone on its line.
        let before = (words.len() == 2 && at == 1)
            .then(|| known(words[0]))
            .flatten();
        // `3 files` on a line with a path is not the result of a run.
        let is_plain = |what: &&str| !output::GENERIC.contains(what) || !line.contains('/');
        if let Some(what) = next.or(before).filter(is_plain) {
            found.push((number, what));
        }
    }
    found.into_iter()
}

pub(super) fn counts_passes(line: &str) -> bool {
    counted(line).any(|(number, what)| number > 0 && output::PASSES.contains(&what))
}

pub(super) fn counts_failures(line: &str) -> bool {
    counted(line).any(|(number, what)| number > 0 && output::FAILURES.contains(&what))
}

/// True if the visible part of a build's output shows a failure: a line with the strongest mark, or a count of
/// errors.
pub(super) fn shows_errors(tail: &str) -> bool {
    let counts_some = |line: &str| {
        counted(line).any(|(number, what)| number > 0 && output::BUILD_ERRORS.contains(&what))
    };
    let mut lines = tail.lines().map(str::trim);
    lines.any(|line| !is_frame_line(line) && (rank(line) == Some(0) || counts_some(line)))
}
