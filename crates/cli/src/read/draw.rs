//! Turns as text for people: words whole, tool calls folded to a line, changes of files as diffs.

use loopstore_admin::inspect::{ChangedFile, DiffLine};
use loopstore_admin::replay::{ChangeKind, ReplayChange};
use loopstore_terminal::text;

use super::entries::{CallEntry, ReadEntry, ReadTurn, ResultEntry};
use super::markdown;
use super::styled::{Look, Span, clean, draw, plain, span, wrap};

/// The most lines of a diff, and of the text of an error.
const MOST_LINES: usize = 40;
const MOST_ERROR_LINES: usize = 3;
/// The indents of texts, and of what belongs to a call.
const TEXT: &str = "  ";
const UNDER_CALL: &str = "    ";

/// Draws turns.
pub struct Drawing {
    /// The width of the terminal, if the output is one.
    pub width: Option<usize>,
    /// True if the terminal takes colours.
    pub is_coloured: bool,
    /// True if nothing is folded.
    pub is_full: bool,
    /// The number of notes that were left out.
    pub notes: u64,
}

impl Drawing {
    /// Returns the lines of a turn, with a heading if the name of its loop is given.
    pub fn turn(&mut self, turn: &ReadTurn, loop_name: Option<&str>) -> String {
        let mut lines: Vec<Vec<Span>> = Vec::new();
        if let Some(name) = loop_name {
            lines.push(vec![]);
            lines.push(heading(name, turn.turn, turn.at.as_deref()));
        }
        for entry in &turn.entries {
            self.entry(entry, &mut lines);
        }
        self.drawn(&lines)
    }

    /// Returns the line of a compaction, an edit, an undo or a redo by a run.
    pub fn change(&self, change: &ReplayChange, run_name: &str) -> String {
        let word = match change.change {
            ChangeKind::Compacted => format!("compacted by {}", text::line(&change.strategy)),
            ChangeKind::Edited => "edited".to_owned(),
            ChangeKind::Undone => "undone".to_owned(),
            ChangeKind::Redone => "redone".to_owned(),
        };
        let sizes = match change.change {
            ChangeKind::Compacted | ChangeKind::Edited => format!(
                ": {} to {} tokens",
                text::number(change.tokens_before),
                text::number(change.tokens_after)
            ),
            ChangeKind::Undone | ChangeKind::Redone => String::new(),
        };
        let line = format!(
            "── {word}{sizes}; run {}, {}",
            text::line(run_name),
            text::time(&change.at)
        );
        self.drawn(&[vec![], vec![span(line, Look::Dim)]])
    }

    fn drawn(&self, lines: &[Vec<Span>]) -> String {
        let line = |line: &Vec<Span>| draw(line, self.is_coloured) + "\n";
        lines.iter().map(line).collect()
    }

    fn entry(&mut self, entry: &ReadEntry, lines: &mut Vec<Vec<Span>>) {
        match entry {
            ReadEntry::Text { role, author, text } => self.words(role, author, text, lines),
            ReadEntry::Thinking { text } => self.aside("thinking", text, lines),
            ReadEntry::Call(call) => self.call(call, lines),
            ReadEntry::Result(result) => {
                let name = match &*result.tool {
                    "" => text::line(&result.tool_call_id),
                    tool => text::line(tool),
                };
                self.folded(&format!("result of {name}"), Some(result), lines);
                self.result_text(result, lines);
            }
            ReadEntry::Image { mime_type, bytes } => {
                let label = format!("image {}, {}", text::line(mime_type), text::bytes(*bytes));
                lines.push(vec![span(format!("▸ {label}"), Look::Dim)]);
            }
            ReadEntry::Opaque { label } => {
                let label = format!("▸ {}", text::line(label));
                lines.push(vec![span(label, Look::Dim)]);
            }
            ReadEntry::Error { text } => {
                lines.push(vec![span("✗ error", Look::Removed)]);
                lines.extend(plain(text, Look::Removed, self.width, TEXT));
            }
            ReadEntry::Note { name, text } if self.is_full => {
                self.aside(&format!("note {}", text::line(name)), text, lines);
            }
            ReadEntry::Note { .. } => self.notes += 1,
        }
    }

    /// Adds the words of somebody.
    fn words(&self, role: &str, author: &str, content: &str, lines: &mut Vec<Vec<Span>>) {
        if author == "harness" {
            return self.aside("harness", content, lines);
        }
        let is_person = author == "human";
        let name = match (role, author) {
            ("user", "agent") => "user (agent)".to_owned(),
            (role, _) => role.to_owned(),
        };
        let look = if is_person { Look::Person } else { Look::Agent };
        lines.push(vec![]);
        lines.push(vec![span(name, look)]);
        let content = content.trim_matches(['\n', '\r']);
        lines.extend(match self.width {
            // A file or a pipe gets the text that was recorded.
            Some(_) if role == "assistant" => markdown::lines(content, self.width, TEXT),
            _ => plain(content, Look::Plain, self.width, TEXT),
        });
    }

    /// Adds a text that is folded to a line.
    fn aside(&self, name: &str, content: &str, lines: &mut Vec<Vec<Span>>) {
        if self.is_full {
            lines.push(vec![]);
            lines.push(vec![span(name, Look::Dim)]);
            lines.extend(plain(content, Look::Dim, self.width, TEXT));
            return;
        }
        let size = format!(" ({})", text::bytes(content.len() as u64));
        let first = content.trim().lines().next().unwrap_or_default();
        let line = self.fitted(&format!("▸ {name}: {}", text::line(first)), &size);
        lines.push(vec![span(line, Look::Dim)]);
    }

    fn call(&self, call: &CallEntry, lines: &mut Vec<Vec<Span>>) {
        let tool = text::line(&call.tool);
        let description = text::line(&call.description);
        let name = match description.starts_with(&tool) {
            true => description,
            false => format!("{tool} {description}"),
        };
        self.folded(name.trim_end(), call.result.as_ref(), lines);
        if self.is_full {
            self.arguments(call, lines);
        }
        let has_failed = call.result.as_ref().is_some_and(|result| result.failed);
        for file in call.changes.iter().filter(|_| !has_failed) {
            self.changed(file, lines);
        }
        if let Some(result) = &call.result {
            self.result_text(result, lines);
        }
    }

    /// Adds the line of a call: its name, and the size of its result.
    fn folded(&self, name: &str, result: Option<&ResultEntry>, lines: &mut Vec<Vec<Span>>) {
        let (state, size) = match result {
            None => ("no result", String::new()),
            Some(result) => {
                let size = match result.bytes {
                    0 => "no output".to_owned(),
                    bytes => format!(
                        "{}, {}",
                        text::count(result.lines, "line"),
                        text::bytes(bytes)
                    ),
                };
                (if result.failed { "failed" } else { "" }, size)
            }
        };
        let parts = [state, &size].map(str::to_owned);
        let end = parts.iter().filter(|part| !part.is_empty()).cloned();
        let end = format!(": {}", end.collect::<Vec<_>>().join(", "));
        let line = self.fitted(&format!("▸ {name}"), &end);
        // Only the end is cut off the name.
        let at = line.len() - end.len();
        let look = match state {
            "" => Look::Dim,
            _ => Look::Removed,
        };
        lines.push(vec![
            span(&line[..at], Look::Plain),
            span(&line[at..], look),
        ]);
    }

    /// Returns a line that fits the terminal together with its end.
    fn fitted(&self, line: &str, end: &str) -> String {
        let line = match self.width {
            Some(width) => {
                let room = width.saturating_sub(text::columns(end)).max(20);
                text::fit(line, room).into_owned()
            }
            None => line.to_owned(),
        };
        line + end
    }

    fn arguments(&self, call: &CallEntry, lines: &mut Vec<Vec<Span>>) {
        for argument in &call.arguments {
            let name = text::line(&argument.name);
            match argument.text.contains('\n') {
                false => {
                    let line = [
                        span(format!("{name}: "), Look::Dim),
                        span(clean(&argument.text), Look::Plain),
                    ];
                    lines.extend(wrap(&line, self.width, UNDER_CALL, UNDER_CALL));
                }
                true => {
                    lines.push(vec![span(format!("{UNDER_CALL}{name}:"), Look::Dim)]);
                    let indent = format!("{UNDER_CALL}  ");
                    lines.extend(plain(&argument.text, Look::Plain, self.width, &indent));
                }
            }
        }
    }

    fn changed(&self, file: &ChangedFile, lines: &mut Vec<Vec<Span>>) {
        let path = match &*file.path {
            "" => "the open file".to_owned(),
            path => text::line(path),
        };
        let from = file.moved_from.as_deref().map(text::line);
        let from = from.map_or_else(String::new, |from| format!(" from {from}"));
        let line = format!("{UNDER_CALL}{} {path}{from}", file.action);
        lines.push(vec![span(line, Look::Dim)]);
        let most = match self.is_full {
            true => usize::MAX,
            false => MOST_LINES,
        };
        for line in file.diff.iter().take(most) {
            let (sign, content) = line.parts();
            let look = match line {
                DiffLine::Kept(_) => Look::Plain,
                DiffLine::Removed(_) => Look::Removed,
                DiffLine::Added(_) => Look::Added,
                DiffLine::At(_) => Look::Code,
            };
            let line = format!("{sign} {}", text::line(&clean(content)));
            lines.push(vec![span(UNDER_CALL, Look::Dim), span(line, look)]);
        }
        let more = file.diff.len().saturating_sub(most);
        if more > 0 {
            let more = text::count(more as u64, "more line");
            let line = format!("{UNDER_CALL}… {more}; --full shows them");
            lines.push(vec![span(line, Look::Dim)]);
        }
    }

    /// Adds the text of a result: all of it, or the beginning of an error.
    fn result_text(&self, result: &ResultEntry, lines: &mut Vec<Vec<Span>>) {
        if self.is_full {
            lines.extend(plain(&result.text, Look::Dim, self.width, UNDER_CALL));
        } else if result.failed {
            let content = result.text.trim();
            let first: Vec<&str> = content.lines().take(MOST_ERROR_LINES).collect();
            for line in first {
                let line = format!("{UNDER_CALL}{}", text::line(line));
                lines.push(vec![span(self.fitted(&line, ""), Look::Removed)]);
            }
        }
    }
}

/// Returns the heading of a turn: its address as commands read it, and its time.
fn heading(loop_name: &str, turn: u32, at: Option<&str>) -> Vec<Span> {
    let at = at.map_or_else(String::new, |at| format!(", {}", text::time(at)));
    let line = format!("── {}:{turn}{at}", text::line(loop_name));
    vec![span(line, Look::Dim)]
}
