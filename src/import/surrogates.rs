//! Halves of surrogate pairs: JSON can spell them, as in a text that a program cut in the middle of an
//! emoji, and no text can hold them.

use std::borrow::Cow;

use memchr::memmem;

/// An escaped unit of UTF-16, as `\ud83d`, in bytes.
const ESCAPE: usize = 6;
/// What stands in place of a half, escaped: the character for what cannot be read.
const REPLACEMENT: &str = "\\ufffd";

/// Replaces the halves in a JSON document that stand alone.
pub(super) fn replace_lone(json: &str) -> Cow<'_, str> {
    if memmem::find(json.as_bytes(), b"\\u").is_none() {
        return Cow::Borrowed(json);
    }
    let (mut mended, mut taken, mut at) = (String::new(), 0, 0);
    while let Some(found) = memchr::memchr(b'\\', &json.as_bytes()[at..]) {
        at += found;
        let Some(unit) = unit_at(json, at) else {
            // Another escape, of two bytes.
            at = (at + 2).min(json.len());
            continue;
        };
        let next = unit_at(json, at + ESCAPE);
        match unit {
            0xD800..0xDC00 if next.is_some_and(|low| (0xDC00..0xE000).contains(&low)) => {
                at += 2 * ESCAPE;
            }
            0xD800..0xE000 => {
                mended.push_str(&json[taken..at]);
                mended.push_str(REPLACEMENT);
                at += ESCAPE;
                taken = at;
            }
            _ => at += ESCAPE,
        }
    }
    if taken == 0 {
        return Cow::Borrowed(json);
    }
    mended.push_str(&json[taken..]);
    Cow::Owned(mended)
}

/// Reads the unit that is escaped at a byte.
fn unit_at(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_that_stand_alone_are_replaced() {
        for (json, mended) in [
            (r#""plain""#, r#""plain""#),
            (r#""\u00e9\n""#, r#""\u00e9\n""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\uD83D""#, r#""\ufffd""#),
            (
                r#""é\ude00\ud83dx\ud83d\u0041""#,
                r#""é\ufffd\ufffdx\ufffd\u0041""#,
            ),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d \\\ud83d""#, r#""\\ud83d \\\ufffd""#),
            // No JSON, and no reason to panic.
            ("\"\\", "\"\\"),
            ("\"\\ud8", "\"\\ud8"),
            ("\"\\ud83é", "\"\\ud83é"),
            ("\"\\é\\ud83d", "\"\\é\\ufffd"),
            ("\\u+123", "\\u+123"),
        ] {
            assert_eq!(replace_lone(json), mended, "{json}");
        }
    }

    #[test]
    fn what_is_replaced_can_be_read() {
        let text: String = serde_json::from_str(&replace_lone(r#""a\ud83db\\\ude00""#)).unwrap();
        assert_eq!(text, "a\u{fffd}b\\\u{fffd}");
    }
}
