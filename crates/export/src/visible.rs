//! Text for people: characters that control a terminal, reverse a line or are invisible are escaped.

use std::borrow::Cow;

/// Returns the text with escapes such as `\u{1b}` for control characters except line ends and tabs, characters that
/// reverse the direction of a line or end it, and characters without width, which can hide words
/// in a text. A joiner stays between letters and signs beyond ASCII, where scripts and emoji need it.
///
/// ```
/// use loopstore_export::visible;
///
/// assert_eq!(visible("a\u{1b}[31mb\n\u{e0041}"), "a\\u{1b}[31mb\n\\u{e0041}");
/// assert_eq!(visible("👩\u{200d}🚀"), "👩\u{200d}🚀");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let joins = is_joiner(c) && is_joined(before) && is_joined(chars.peek().copied());
        match is_invisible(c) && !joins {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
        before = Some(c);
    }
    Cow::Owned(out)
}

fn is_invisible(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || turns_or_ends_a_line(c)
        || matches!(c,
            // Soft hyphen, grapheme joiner, fillers and vowels without a form.
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{ffa0}'
            // Zero-width spaces and joiners, invisible operators, the byte order mark.
            | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
            // Variations, but for those of emoji and text.
            | '\u{fe00}'..='\u{fe0d}' | '\u{fff0}'..='\u{fffb}'
            // Shorthand and musical controls, tags and further variations.
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn turns_or_ends_a_line(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// True for a letter or sign that may be next to a joiner.
fn is_joined(c: Option<char>) -> bool {
    c.is_some_and(|c| !c.is_ascii() && !is_invisible(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_written_out() {
        let tags: String = "ignore"
            .chars()
            .filter_map(|c| char::from_u32(0xe0000 + c as u32))
            .collect();
        let shown = visible(&tags);
        assert!(
            shown.is_ascii() && shown.starts_with("\\u{e0069}"),
            "{shown}"
        );
        for hidden in [
            "\u{200b}", "\u{200d}", "\u{2060}", "\u{feff}", "\u{ad}", "\u{202e}", "\u{2066}",
            "\u{7f}", "\u{9b}", "\r",
        ] {
            let text = format!("pass{hidden}word");
            let shown = visible(&text);
            assert!(
                shown.starts_with("pass\\u{") && shown.ends_with("}word"),
                "{shown}"
            );
        }
        assert_eq!(visible("\u{200d}"), "\\u{200d}");
        // Several in a row are escaped even between such letters.
        assert_eq!(visible("ن\u{200c}\u{200c}م"), "ن\\u{200c}\\u{200c}م");
    }

    #[test]
    fn text_of_every_script_stays() {
        for text in [
            "plain\ttext\n",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "👨\u{200d}👩\u{200d}👧",
            "❤\u{fe0f}",
            "日本語",
            "e\u{301}",
        ] {
            assert_eq!(visible(text), text);
        }
    }
}
