//! A summariser without a model, which measures what a text loses on the way to a summariser.

use std::collections::HashSet;

use loopstore::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};

/// The bytes of an answer other than its values.
const FRAME: usize = 40;

/// Answers with the values of its prompt, newest first: every word with a digit, `/`, `_`, `@` or `.` between white
/// space, quotes and brackets.
pub struct Extractor;

impl Summarizer for Extractor {
    fn name(&self) -> &str {
        "extractor"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let prompt = &request.prompt;
        let (_, after) = prompt.split_once("\n## Messages to summarize\n").unwrap();
        let (messages, _) = after.rsplit_once("\n## What to write\n").unwrap();
        let room = (request.asked_tokens as usize * 4).saturating_sub(FRAME);
        let text = format!("## Done, decided and found\n{}", values(messages, room));
        Ok(SummaryAnswer {
            text,
            ..SummaryAnswer::default()
        })
    }
}

fn values(text: &str, room: usize) -> String {
    let is_between = |c: char| c.is_whitespace() || "\"'`,;()[]{}<>|\\".contains(c);
    let is_value = |word: &&str| {
        (3..=120).contains(&word.len())
            && word.contains(|c: char| c.is_ascii_digit() || "/_@.".contains(c))
    };
    let (mut seen, mut found, mut used) = (HashSet::new(), Vec::new(), 0);
    let words = text.rsplit(is_between);
    for word in words
        .map(|word| word.trim_matches(['.', ':']))
        .filter(is_value)
    {
        if !seen.insert(word) {
            continue;
        }
        if used + word.len() + 1 > room {
            break;
        }
        used += word.len() + 1;
        found.push(word);
    }
    found.join(" ")
}
