//! Halves of surrogate pairs. JSON can contain them as escapes (a program that cuts a text by UTF-16 units
//! leaves half an emoji), and no UTF-8 text can.

use std::borrow::Cow;

use memchr::memmem;

/// The length of an escaped unit of UTF-16, such as `\ud83d`, in bytes.
const ESCAPE: usize = 6;
/// The escaped replacement character, which is as long as the half that it replaces.
const REPLACEMENT: &str = "\\ufffd";

/// Replaces the halves in JSON text that have no other half; returns their number too.
pub fn replace_lone(json: &str) -> (Cow<'_, str>, u64) {
    if !may_hold(json.as_bytes()) {
        return (Cow::Borrowed(json), 0);
    }
    let (mut mended, mut taken, mut at, mut count) = (String::new(), 0, 0, 0);
    while let Some(found) = memchr::memchr(b'\\', &json.as_bytes()[at..]) {
        at += found;
        let Some(unit) = unit_at(json, at) else {
            // The escape is another one, of two bytes.
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
                count += 1;
                at += ESCAPE;
                taken = at;
            }
            _ => at += ESCAPE,
        }
    }
    if count == 0 {
        return (Cow::Borrowed(json), 0);
    }
    mended.push_str(&json[taken..]);
    (Cow::Owned(mended), count)
}

/// True if the bytes may contain an escaped surrogate.
pub(crate) fn may_hold(json: &[u8]) -> bool {
    memmem::find(json, b"\\ud").is_some() || memmem::find(json, b"\\uD").is_some()
}

/// Returns the escaped unit at a byte.
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
            // This is not JSON, and must not panic.
            ("\"\\", "\"\\"),
            ("\"\\ud8", "\"\\ud8"),
            ("\"\\ud83é", "\"\\ud83é"),
            ("\"\\é\\ud83d", "\"\\é\\ufffd"),
            ("\\u+123", "\\u+123"),
        ] {
            assert_eq!(replace_lone(json).0, mended, "{json}");
        }
    }

    #[test]
    fn what_is_replaced_can_be_read() {
        let text: String = serde_json::from_str(&replace_lone(r#""a\ud83db\\\ude00""#).0).unwrap();
        assert_eq!(text, "a\u{fffd}b\\\u{fffd}");
    }
}
