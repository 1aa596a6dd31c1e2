//! A text as the difference to another text that the receiver has: lines that it has are named by their positions,
//! all others are sent.
//!
//! The sender needs only a short hash of each line of the receiver. A wrong match of a hash is found by the digest
//! of the whole text.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::document::SessionText;
use crate::wire::MAX_CONTENT;

/// The bytes of the hash of a line.
pub(crate) const HASH_BYTES: usize = 8;

const COPY: u8 = b'=';
const LINE: u8 = b'+';

/// Returns the hashes of the lines of a text.
pub(crate) fn hashes(text: &SessionText) -> Vec<u8> {
    let mut hashes = Vec::with_capacity(text.lines.len() * HASH_BYTES);
    for line in &text.lines {
        hashes.extend_from_slice(&hash(line));
    }
    hashes
}

fn hash(line: &str) -> [u8; HASH_BYTES] {
    let digest: [u8; 32] = Sha256::digest(line).into();
    let mut short = [0; HASH_BYTES];
    short.copy_from_slice(&digest[..HASH_BYTES]);
    short
}

/// Returns the difference of a text to the text with these hashes.
pub(crate) fn encode(text: &SessionText, have: &[u8]) -> Vec<u8> {
    let mut known: HashMap<&[u8], u32> = HashMap::new();
    for (at, hash) in (0..).zip(have.chunks_exact(HASH_BYTES)) {
        known.entry(hash).or_insert(at);
    }
    let mut out = Vec::new();
    let mut copied: Option<(u32, u32)> = None;
    for line in &text.lines {
        let at = known.get(&hash(line)[..]).copied();
        match (at, &mut copied) {
            (Some(at), Some((from, count))) if from.checked_add(*count) == Some(at) => *count += 1,
            (Some(at), _) => {
                put_copy(&mut out, copied.replace((at, 1)));
            }
            (None, _) => {
                put_copy(&mut out, copied.take());
                out.push(LINE);
                put_number(&mut out, line.len());
                out.extend_from_slice(line.as_bytes());
            }
        }
    }
    put_copy(&mut out, copied);
    out
}

fn put_copy(out: &mut Vec<u8>, copied: Option<(u32, u32)>) {
    if let Some((from, count)) = copied {
        out.push(COPY);
        out.extend_from_slice(&from.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
    }
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Returns the text of a difference to `base`, whose digest must be `digest`.
///
/// # Errors
/// If the difference is not one to this text; with the reason.
pub(crate) fn decode(
    delta: &[u8],
    base: &SessionText,
    digest: &[u8; 32],
) -> Result<SessionText, String> {
    let mut text = SessionText::default();
    let (mut rest, mut bytes) = (delta, 0u64);
    while let Some((kind, after)) = rest.split_first() {
        let (number, after) = number(after)?;
        match *kind {
            COPY => {
                let (count, after) = self::number(after)?;
                rest = after;
                let range = number.checked_add(count).map(|end| number..end);
                let lines = range.and_then(|range| base.lines.get(range));
                let lines = lines.ok_or("it names lines that are not there")?;
                bytes += lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
                text.lines.extend_from_slice(lines);
            }
            LINE => {
                let line = after.get(..number).ok_or("it was cut off")?;
                rest = &after[number..];
                let line = std::str::from_utf8(line).map_err(|_| "a line is not UTF-8")?;
                if line.contains('\n') {
                    return Err("a line has a line end".into());
                }
                bytes += line.len() as u64 + 1;
                text.lines.push(line.to_owned());
            }
            _ => return Err("it has an unknown part".into()),
        }
        if bytes > MAX_CONTENT {
            return Err("it is too large".into());
        }
    }
    match text.digest() == *digest {
        true => Ok(text),
        false => Err("it does not match its digest".into()),
    }
}

fn number(bytes: &[u8]) -> Result<(usize, &[u8]), String> {
    match bytes.split_first_chunk::<4>() {
        Some((number, rest)) => Ok((u32::from_le_bytes(*number) as usize, rest)),
        None => Err("it was cut off".into()),
    }
}
