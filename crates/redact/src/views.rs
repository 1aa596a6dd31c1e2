//! Views of a text: as written, and with its JSON escapes decoded.
//!
//! Tool outputs contain JSON as text, which may contain JSON again: `\/`, `\n` within a private key and `\u0041` must
//! not hide a secret. Each view maps its bytes to positions of the text.

use std::borrow::Cow;
use std::ops::Range;

/// The number of levels of escapes that are decoded: JSON in JSON in JSON.
const MAX_LEVELS: usize = 3;

/// A text, and the position of each of its bytes in the original.
pub(super) struct MappedText<'a> {
    pub(super) text: Cow<'a, str>,
    /// The positions of all bytes and of the end; `None` if they are unchanged.
    places: Option<Vec<usize>>,
}

impl MappedText<'_> {
    /// Returns the range of the original for a range of the view.
    pub(super) fn place(&self, range: Range<usize>) -> Range<usize> {
        match &self.places {
            None => range,
            Some(places) => {
                let at = |end: usize| places.get(end).or(places.last()).copied().unwrap_or(0);
                at(range.start)..at(range.end)
            }
        }
    }
}

/// Returns the text, and its views with one, two and three levels of escapes decoded.
pub(super) fn views(text: &str) -> Vec<MappedText<'_>> {
    let mut views = vec![MappedText {
        text: Cow::Borrowed(text),
        places: None,
    }];
    while views.len() <= MAX_LEVELS {
        match views.last().and_then(without_escapes) {
            Some((text, places)) => views.push(MappedText {
                text: Cow::Owned(text),
                places: Some(places),
            }),
            None => break,
        }
    }
    views
}

/// Returns a text with all escapes decoded: the secret itself, however it is written.
pub(super) fn plain(text: &str) -> String {
    views(text)
        .pop()
        .map_or_else(String::new, |view| view.text.into_owned())
}

/// Decodes one level of escapes; `None` if there is none.
fn without_escapes(view: &MappedText<'_>) -> Option<(String, Vec<usize>)> {
    let text: &str = &view.text;
    let first = text.find('\\')?;
    let origin = |at: usize| view.place(at..at).start;
    let mut out = String::with_capacity(text.len());
    let mut places = Vec::with_capacity(text.len() + 1);
    let (mut at, mut changed) = (0, false);
    while at < text.len() {
        let rest = &text[at..];
        let (c, taken) = match (at >= first).then(|| escape(rest)).flatten() {
            Some(found) => {
                changed = true;
                found
            }
            None => {
                let c = rest.chars().next()?;
                (c, c.len_utf8())
            }
        };
        out.push(c);
        // All bytes of a character map to the beginning of its escape, and the next byte to the end.
        places.resize(out.len(), origin(at));
        at += taken;
    }
    places.push(origin(text.len()));
    changed.then_some((out, places))
}

/// Returns the character of the escape at the beginning of a text, and the length of the escape.
fn escape(text: &str) -> Option<(char, usize)> {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'\\') {
        return None;
    }
    Some(match bytes.get(1)? {
        b'n' => ('\n', 2),
        b'r' => ('\r', 2),
        b't' => ('\t', 2),
        b'b' => ('\u{8}', 2),
        b'f' => ('\u{c}', 2),
        b'"' => ('"', 2),
        b'/' => ('/', 2),
        b'\\' => ('\\', 2),
        b'u' => return unicode(text),
        _ => return None,
    })
}

fn unicode(text: &str) -> Option<(char, usize)> {
    let unit = |from: usize| u16::from_str_radix(text.get(from..from + 4)?, 16).ok();
    let first = unit(2)?;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Some((c, 6));
    }
    let second = text.get(6..8).filter(|begin| *begin == "\\u");
    let second = second.and_then(|_| unit(8))?;
    let mut decoded = char::decode_utf16([first, second]);
    Some((decoded.next()?.ok()?, 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_taken_away_level_by_level_and_places_stay_known() {
        let text = r#"é {\"k\":\"a\\\/b\\u0041\"} \ud83d\ude00 \x"#;
        let views = views(text);
        assert_eq!(views[1].text, r#"é {"k":"a\/b\u0041"} 😀 \x"#);
        assert_eq!(views[2].text, r#"é {"k":"a/bA"} 😀 \x"#);
        for view in &views {
            let at = view.text.find('b').unwrap();
            let place = view.place(at..at + 2);
            assert!(text[place].starts_with('b'));
            assert_eq!(view.place(0..view.text.len()), 0..text.len());
        }
        assert_eq!(plain(r"a\\\/b"), "a/b");
        assert_eq!(plain(r"\u00e"), r"\u00e");
    }
}
