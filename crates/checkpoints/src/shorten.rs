//! Ids, versions and times in a text as bytes: half the length, which no general compression reaches.
//!
//! JSON has no control characters, so that such a byte can mark the value after it.

const UUID: u8 = 1;
const VERSION: u8 = 2;
const TIME: u8 = 3;

/// `0123abcd-0123-0123-0123-0123456789ab`
const UUID_LEN: usize = 36;
/// `0000000123.0123456789`: number and random part of a version.
const VERSION_LEN: usize = 21;
/// `2026-01-31T23:59:59.000000+00:00`
const TIME_LEN: usize = 32;
/// The parts of a time: their start, their end, and the number of values of each.
const TIME_PARTS: [(usize, usize, u64); 7] = [
    (0, 4, 10_000),
    (5, 7, 13),
    (8, 10, 32),
    (11, 13, 24),
    (14, 16, 60),
    (17, 19, 60),
    (20, 26, 1_000_000),
];
const TIME_FRAME: &[u8; TIME_LEN] = b"0000-00-00T00:00:00.000000+00:00";

/// Replaces these values in a text by bytes. The text has no control characters.
pub(crate) fn shortened(text: &[u8]) -> Vec<u8> {
    let mut short = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        // Each of these values follows the quote of a string.
        let found = match first {
            b'"' => uuid(behind)
                .or_else(|| version(behind))
                .or_else(|| time(behind)),
            _ => None,
        };
        short.push(*first);
        rest = behind;
        if let Some((bytes, length)) = found {
            short.extend(bytes);
            rest = behind.get(length..).unwrap_or_default();
        }
    }
    short
}

/// Reads a text that `shortened` wrote; the error is a text.
pub(crate) fn lengthened(short: &[u8]) -> Result<Vec<u8>, String> {
    let mut text = Vec::with_capacity(short.len() * 2);
    let mut rest = short;
    while let Some((first, behind)) = rest.split_first() {
        let length = match *first {
            UUID => 16,
            VERSION => 9,
            TIME => 8,
            _ => {
                text.push(*first);
                rest = behind;
                continue;
            }
        };
        let (bytes, after) = behind
            .split_at_checked(length)
            .ok_or("a packed record ends within an id")?;
        match *first {
            UUID => put_uuid(&mut text, bytes),
            VERSION => put_version(&mut text, bytes),
            _ => put_time(&mut text, bytes)?,
        }
        rest = after;
    }
    Ok(text)
}

type ShortForm = Option<(Vec<u8>, usize)>;

fn uuid(text: &[u8]) -> ShortForm {
    let text = text.get(..UUID_LEN)?;
    let mut short = vec![UUID];
    for (part, length) in text.split(|byte| *byte == b'-').zip([8, 4, 4, 4, 12]) {
        if part.len() != length {
            return None;
        }
        short.extend(unhex(part)?);
    }
    (short.len() == 17).then_some((short, UUID_LEN))
}

fn put_uuid(text: &mut Vec<u8>, bytes: &[u8]) {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push(b'-');
        }
        text.extend(format!("{byte:02x}").bytes());
    }
}

fn version(text: &[u8]) -> ShortForm {
    let text = text.get(..VERSION_LEN)?;
    let (number, random) = (text.get(..10)?, text.get(11..)?);
    if text.get(10) != Some(&b'.') {
        return None;
    }
    let number = u32::try_from(digits(number)?).ok()?;
    let mut short = vec![VERSION];
    short.extend(number.to_be_bytes());
    short.extend(unhex(random)?);
    Some((short, VERSION_LEN))
}

fn put_version(text: &mut Vec<u8>, bytes: &[u8]) {
    let (number, random) = bytes.split_at(4.min(bytes.len()));
    let number = number
        .iter()
        .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    text.extend(format!("{number:010}.").bytes());
    for byte in random {
        text.extend(format!("{byte:02x}").bytes());
    }
}

fn time(text: &[u8]) -> ShortForm {
    let text = text.get(..TIME_LEN)?;
    let is_framed = TIME_FRAME
        .iter()
        .zip(text)
        .enumerate()
        .all(|(at, (frame, byte))| frame == byte || *frame == b'0' && at < 26);
    if !is_framed {
        return None;
    }
    let mut number = 0;
    for (from, to, count) in TIME_PARTS {
        let part = digits(text.get(from..to)?)?;
        if part >= count {
            return None;
        }
        number = number * count + part;
    }
    let mut short = vec![TIME];
    short.extend(number.to_be_bytes());
    Some((short, TIME_LEN))
}

fn put_time(text: &mut Vec<u8>, bytes: &[u8]) -> Result<(), String> {
    let mut number = bytes
        .iter()
        .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let mut whole = *TIME_FRAME;
    for (from, to, count) in TIME_PARTS.into_iter().rev() {
        let width = to - from;
        let part = format!("{:0width$}", number % count);
        if let Some(place) = whole.get_mut(from..to) {
            place.copy_from_slice(part.as_bytes());
        }
        number /= count;
    }
    if number > 0 {
        return Err("a packed record holds a time that is none".into());
    }
    text.extend(whole);
    Ok(())
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number * 10 + digit)
    })
}

/// Reads digits as `{:02x}` writes them.
fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    text.chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes_back(text: &str) -> usize {
        let short = shortened(text.as_bytes());
        assert_eq!(lengthened(&short).unwrap(), text.as_bytes(), "{text}");
        short.len()
    }

    #[test]
    fn ids_versions_and_times_come_back_as_they_were() {
        assert_eq!(comes_back("\"1f1e8d3e-c6e6-66f2-85d9-60ece7bc0f2a\""), 19);
        assert_eq!(comes_back("\"0000001499.9289d9cf14\""), 12);
        assert_eq!(comes_back("\"2026-11-25T13:27:12.756887+00:00\""), 11);
        assert_eq!(comes_back("\"9999-12-31T23:59:59.999999+00:00\""), 11);
    }

    #[test]
    fn what_only_looks_like_one_is_left_as_it_is() {
        for text in [
            "\"1F1E8D3E-C6E6-66F2-85D9-60ECE7BC0F2A\"",
            "\"1f1e8d3e-c6e6-66f2-85d9-60ece7bc0f2\"",
            "\"1f1e8d3ec-6e6-66f2-85d9-60ece7bc0f2a\"",
            "\"1f1e8d3e-c6e6-66f2-85d960ece7bc0f2abc\"",
            "\"9999999999.9289d9cf14\"",
            "\"0000001499,9289d9cf14\"",
            "\"000000149x.9289d9cf14\"",
            "\"2026-13-25T13:27:12.756887+00:00\"",
            "\"2026-11-25T13:27:60.756887+00:00\"",
            "\"2026-11-25T13:27:12.756887+01:00\"",
            "\"2026-11-25 13:27:12.756887+00:00\"",
            "\"",
            "",
            "\"\u{e4}\u{1f600}\"",
        ] {
            assert_eq!(comes_back(text), text.len(), "{text}");
        }
    }

    #[test]
    fn bytes_that_nothing_wrote_are_errors_or_text() {
        for short in [&[UUID][..], &[UUID, 0, 0], &[VERSION], &[TIME, 255]] {
            lengthened(short).unwrap_err();
        }
        lengthened(&[TIME, 255, 255, 255, 255, 255, 255, 255, 255]).unwrap_err();
    }
}
