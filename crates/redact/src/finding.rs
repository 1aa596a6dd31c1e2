//! Findings: secrets of a text, masked.

use std::ops::Range;

use serde::Serialize;

use super::policy::Confidence;

/// The characters of context on each side of a finding.
const CONTEXT: usize = 40;

/// The way in which a secret was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// By the rule.
    Rule,
    /// By its value, which a rule found in another text.
    Value,
    /// By a part of a value that a rule found in another text.
    Part,
}

/// A secret in a text, masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Hexadecimal digits of a digest of the value, keyed with the key of the database; the marker has the first six.
    /// The id can be used instead of the value to allow or confirm the secret.
    pub id: String,
    /// The name of the rule.
    pub rule: String,
    /// The confidence of the rule.
    pub confidence: Confidence,
    /// The way in which the secret was recognised.
    pub found_by: FoundBy,
    /// True if the secret is replaced; else it is only reported.
    pub replaced: bool,
    /// The first and last characters of the secret.
    pub masked: String,
    /// The length of the secret in characters.
    pub length: usize,
    /// The text around the secret, with other secrets masked too.
    pub context: String,
}

/// Returns the first and last characters of a value, at most an eighth of it on each side.
pub(super) fn masked(value: &str) -> String {
    let value = value.trim();
    let count = value.chars().count();
    let (first, last) = ((count / 8).min(4), (count / 12).min(2));
    let head: String = value.chars().take(first).collect();
    let tail: String = value.chars().skip(count - last).collect();
    format!("{head}…{tail}")
}

/// Returns the text around the range `found[at]`. All ranges of `found`, which are in order, are masked.
pub(super) fn context(text: &str, found: &[Range<usize>], at: usize) -> String {
    let here = &found[at];
    let mut start = here.start.saturating_sub(CONTEXT);
    let mut end = here.end.saturating_add(CONTEXT).min(text.len());
    while !text.is_char_boundary(start) {
        start += 1;
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let earlier = found[..at].iter().rev();
    let earlier = earlier.take_while(|range| range.end > start).count();
    let mut out = String::new();
    let mut copied = start;
    for range in &found[at - earlier..] {
        if range.start >= end {
            break;
        }
        out.push_str(text.get(copied..range.start).unwrap_or_default());
        out.push_str(&masked(&text[range.clone()]));
        copied = copied.max(range.end);
    }
    out.push_str(text.get(copied..end).unwrap_or_default());
    let is_space = |c: char| c.is_whitespace() || c.is_control();
    let words: Vec<&str> = out
        .split(is_space)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_shows_little() {
        assert_eq!(masked("hunter2"), "…");
        assert_eq!(masked("QuietRiverStone"), "Q…e");
        assert_eq!(masked(&"sk-abc".repeat(10)), "sk-a…bc");
        assert_eq!(masked("é".repeat(16).as_str()), "éé…é");
    }

    #[test]
    fn a_context_masks_its_neighbours() {
        let text = format!("{} key=aaaaaaaa and\nkey=bbbbbbbb é", "x".repeat(60));
        let at = |what: &str| text.find(what).map(|at| at..at + 8).unwrap();
        let found = [at("aaaaaaaa"), at("bbbbbbbb")];
        let shown = context(&text, &found, 1);
        assert!(shown.ends_with("x key=a… and key=b… é"), "{shown}");
        let shown = context(&text, &found, 0);
        assert!(shown.ends_with("x key=a… and key=b… é"), "{shown}");
    }
}
