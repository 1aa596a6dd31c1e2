//! Refusals by a person, with the reason that the person gave.

use super::super::tables::results;

pub(super) struct UserRefusal<'a> {
    pub(super) words: Option<&'a str>,
}

/// Returns the reason that a person gave for refusing a call. `text` is a result that the harness marked as an
/// error; the output of a program may contain the same words without any refusal.
pub fn refusal_words(text: &str) -> Option<&str> {
    refusal(text)?.words
}

/// Returns the refusal if the first sentence of the error says that the user refused the call.
pub(super) fn refusal(text: &str) -> Option<UserRefusal<'_>> {
    let text = text.trim();
    let text = text.strip_prefix("<tool_use_error>").unwrap_or(text);
    let text = text.strip_prefix("Error:").unwrap_or(text).trim_start();
    let head = &text[..text.floor_char_boundary(160)];
    let first = head
        .split(['\n', ':'])
        .next()
        .unwrap_or(head)
        .to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| first.contains(word));
    let has_subject = results::REFUSAL_SUBJECTS
        .iter()
        .any(|start| first.starts_with(start));
    let by_user = has(results::REFUSED_BY_USER);
    let is_refusal = has_subject && has(results::REFUSING) && has(results::REFUSED)
        || by_user && first.len() < 80
        || results::REFUSALS
            .iter()
            .any(|start| first.starts_with(start));
    if !is_refusal {
        return None;
    }
    let at = results::REASON_MARKS
        .iter()
        .find_map(|mark| Some(text.find(mark)? + mark.len()));
    let words = at.map(|at| &text[at..]).map(|words| {
        let end = words.find(results::REASON_END).unwrap_or(words.len());
        let words = words[..end]
            .trim()
            .trim_end_matches("</tool_use_error>")
            .trim();
        let inner = words.strip_prefix("<feedback>");
        inner.map_or(words, |inner| {
            inner.split("</feedback>").next().unwrap_or(inner).trim()
        })
    });
    // Some harnesses write a reason of their own if the person gave none.
    let own = |words: &&str| {
        results::REASONS_OF_HARNESS
            .iter()
            .any(|own| words.starts_with(own))
    };
    Some(UserRefusal {
        words: words.filter(|words| !words.is_empty() && !own(words)),
    })
}
