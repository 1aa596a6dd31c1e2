//! The outcome of a call, read from the lines that the harness puts around the output, never from its prose.

mod lines;
pub(crate) mod refusal;

use super::noise::clean;
use super::tables::results;
use lines::{counts, counts_failures, counts_passes, decisive_line, shows_errors};
use refusal::refusal;
pub use refusal::refusal_words;

/// The longest line that is kept, in bytes.
const LONGEST_LINE: usize = 200;
/// The bytes at each end of an output that are read.
const SCANNED_BYTES: usize = 64 << 10;

/// The outcome of a call.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallOutcome {
    pub(super) failed: bool,
    /// True if a person refused the call.
    pub(super) refused: bool,
    /// The line that states the failure.
    pub(super) failure: Option<String>,
    /// The line that counts passes and failures.
    pub(super) result: Option<String>,
    /// The id of the run that continues in the background.
    pub(super) background: Option<String>,
    /// True if the result reports an exit code: a run in the background has ended.
    pub(super) ended: bool,
}

/// Reads an error that says that the call was refused. `words`: the reason that the person gave, if the format
/// marks it as the person's. An unmarked reason may come from a program, so `None` is returned for it, and the
/// error is read as any other.
pub(super) fn refused(text: &str, words: Option<&str>) -> Option<CallOutcome> {
    let line = match (words, refusal(text)?.words) {
        (Some(words), _) => format!("refused: {}", words.lines().next().unwrap_or(words)),
        (None, Some(_)) => return None,
        (None, None) => "refused".to_owned(),
    };
    Some(CallOutcome {
        failed: true,
        refused: true,
        failure: Some(short(&line)),
        ..CallOutcome::default()
    })
}

/// The properties of a call that decide how its result is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallKind {
    /// An exit code in the lines around the output decides.
    pub(super) is_command: bool,
    /// The command builds, tests or runs something.
    pub(super) runs: bool,
    /// The exit code is that of a viewer at the end of a pipe.
    pub(super) hides_exit: bool,
}

/// Returns the outcome of a call from its result.
pub(super) fn outcome(text: &str, is_error: bool, kind: CallKind) -> CallOutcome {
    let CallKind {
        is_command, runs, ..
    } = kind;
    let unpacked = if is_command { unwrap_json(text) } else { None };
    let (text, code) = match &unpacked {
        Some((output, code)) => (&**output, Some(*code)),
        None => (text, None),
    };
    let ends = ends_of(text);
    let frame = match is_command {
        true => frame(ends.head, ends.tail),
        false => Frame::default(),
    };
    let code = code.or(frame.code);
    let background = background(ends.head).filter(|_| code.is_none());
    let mut failed = is_error || frame.timed_out || code.is_some_and(|code| code != 0);
    if !failed && !runs {
        return CallOutcome {
            background,
            ended: code.is_some(),
            ..CallOutcome::default()
        };
    }
    let ends = ends_of(body(text));
    let tail = clean(ends.tail);
    let result = match runs && background.is_none() {
        true => counts(&tail),
        false => None,
    };
    // A pipe hides the exit code of its first command.
    failed |= result.as_deref().is_some_and(counts_failures);
    let has_passed = result.as_deref().is_some_and(counts_passes);
    failed |= runs && kind.hides_exit && !has_passed && shows_errors(&tail);
    let looks = is_command && !runs;
    let line = match failed {
        true => decisive_line(&clean(ends.head), &tail, looks),
        false => None,
    };
    // `grep` exits with 1 if it finds nothing, `diff` if there is a difference.
    failed &= line.is_some() || !looks || code != Some(1);
    let failure = failed.then(|| line.unwrap_or_else(|| exit_line(code)));
    CallOutcome {
        failed,
        refused: false,
        failure,
        result,
        background,
        ended: code.is_some(),
    }
}

fn exit_line(code: Option<i64>) -> String {
    code.map_or("failed".to_owned(), |code| format!("exit code {code}"))
}

/// Returns output and exit code of a result that is a JSON object with both.
pub(super) fn unwrap_json(text: &str) -> Option<(String, i64)> {
    let text = text.trim();
    if !text.starts_with('{') || !text.ends_with('}') || text.len() > 1 << 20 {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let inside = results::EXIT_OBJECTS
        .iter()
        .filter_map(|key| value.get(key));
    let code = inside.chain([&value]).find_map(|of| {
        results::EXIT_FIELDS
            .iter()
            .find_map(|key| of.get(key)?.as_i64())
    })?;
    let output: Vec<&str> = results::OUTPUT_FIELDS
        .iter()
        .filter_map(|key| value.get(key)?.as_str())
        .filter(|part| !part.is_empty())
        .collect();
    Some((output.join("\n"), code))
}

struct Ends<'a> {
    head: &'a str,
    tail: &'a str,
}

fn ends_of(text: &str) -> Ends<'_> {
    Ends {
        head: &text[..text.floor_char_boundary(SCANNED_BYTES)],
        tail: &text[text.ceil_char_boundary(text.len().saturating_sub(SCANNED_BYTES))..],
    }
}

#[derive(Default)]
struct Frame {
    code: Option<i64>,
    timed_out: bool,
}

/// Reads the lines that a harness puts before and after an output.
fn frame(head: &str, tail: &str) -> Frame {
    let first = head.lines().take(8);
    let last = tail.lines().rev().take(8);
    let mut frame = Frame::default();
    for line in first.chain(last) {
        frame.code = frame.code.or_else(|| exit_code(line));
        frame.timed_out |= is_timeout(line);
    }
    frame
}

/// Returns the exit code of a line that reports nothing else.
fn exit_code(line: &str) -> Option<i64> {
    if line.len() > 120 || !line.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let (mut code, mut named) = (None, false);
    for word in line
        .split(|c: char| !is_part(c))
        .filter(|word| !word.is_empty())
    {
        let lower = word.to_ascii_lowercase();
        if let Ok(number) = lower.parse::<i64>() {
            if code.replace(number).is_some_and(|other| other != number) && !line.contains("</") {
                return None;
            }
        } else if !results::EXIT_LINE_WORDS.contains(&&*lower) {
            return None;
        } else {
            named |= results::EXIT_WORDS.contains(&&*lower);
        }
    }
    code.filter(|_| named)
}

fn is_timeout(line: &str) -> bool {
    let line = line
        .trim_start_matches(['[', '<', ' '])
        .to_ascii_lowercase();
    line.len() < 200
        && line.contains("timed out")
        && results::TIMEOUT_SUBJECTS
            .iter()
            .any(|start| line.starts_with(start))
}

/// Returns the id of a run that continues in the background, as the harness reports it.
fn background(head: &str) -> Option<String> {
    head.lines().take(12).find_map(|line| {
        let is_frame = results::BACKGROUND_LINES
            .iter()
            .any(|start| line.trim_start().starts_with(start));
        let mark = results::BACKGROUND_MARKS
            .iter()
            .find(|mark| is_frame && line.contains(**mark))?;
        // A sub-agent that has ended has an id too.
        if *mark == results::AGENT_ID && !head.starts_with(results::BACKGROUND_AGENT) {
            return None;
        }
        let id = line.split(mark).nth(1)?;
        let is_id = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let end = id.find(|c| !is_id(c)).unwrap_or(id.len());
        (end > 0).then(|| id[..end].to_owned())
    })
}

/// Returns the output of a command without the harness's lines before it.
fn body(text: &str) -> &str {
    let mut at = 0;
    for (nth, line) in text.split_inclusive('\n').take(10).enumerate() {
        if let Some(inside) = line.strip_prefix("Output:") {
            let skipped = line.len() - inside.trim_start_matches(' ').len();
            return if nth == 0 {
                text
            } else {
                &text[at + skipped..]
            };
        }
        let is_field = line.split_once(':').is_some_and(|(key, _)| key.len() < 24)
            || line.starts_with("Process ")
            || line.starts_with('<');
        if line.starts_with("<output>") {
            return &text[at + "<output>".len()..];
        }
        if !is_field {
            break;
        }
        at += line.len();
    }
    text
}

/// Returns the part of a result that is scanned for values. The harness's lines with times and counts are left out,
/// unless the command still runs: then they hold its id.
pub(crate) fn output_of(text: &str) -> &str {
    let begins_with_frame = text.lines().next().is_some_and(is_frame_line);
    match begins_with_frame && background(ends_of(text).head).is_none() {
        true => body(text),
        false => text,
    }
}

/// True if the harness wrote the line.
fn is_frame_line(line: &str) -> bool {
    let is_tag = line.starts_with('<') && line.ends_with('>') && !line.contains(' ');
    is_tag
        || exit_code(line).is_some()
        || results::FRAME_LINES
            .iter()
            .any(|start| line.starts_with(start))
}

/// True if an editor reports that it changed nothing, though the call succeeded.
pub(super) fn reports_no_change(text: &str) -> bool {
    let head = text.trim_start_matches(['<', '[', '\n', ' ']);
    let head = head[..head.floor_char_boundary(120)].to_ascii_lowercase();
    results::UNCHANGED
        .iter()
        .any(|start| head.starts_with(start))
}

/// Returns a line without control characters, cut to [`LONGEST_LINE`] bytes.
pub(super) fn short(line: &str) -> String {
    let line = line.trim();
    let cut = &line[..line.floor_char_boundary(LONGEST_LINE)];
    match cut.contains(char::is_control) {
        true => cut
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
        false => cut.to_owned(),
    }
}

#[cfg(test)]
mod tests;
