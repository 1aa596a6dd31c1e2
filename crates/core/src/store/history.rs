//! The turns and events that a source recorded, without second copies of messages.
//!
//! A source records each turn and event with complete copies of messages. Such a copy is stored as `{"$seq":n}`,
//! where n is the message's sequence in its loop. An object of the source that looks like this gets one more `$` in
//! its key, which is removed again on reading.

use sha2::{Digest as _, Sha256};

use super::{StoreError, StoreResult};
use crate::model::Json;

/// Replaces each object in `history` that equals a stored message by its sequence.
///
/// `find` returns the sequence of the message with a [`history_fingerprint`].
///
/// # Errors
/// If `history` is not JSON or nests too deeply.
pub fn shorten_history(
    history: &str,
    find: &dyn Fn(&[u8; 32]) -> Option<u32>,
) -> serde_json::Result<String> {
    let json = Json::parse(history)?;
    let mut out = String::with_capacity(json.as_str().len());
    shorten(&HistoryNode::parse(json.as_str()), find, &mut out);
    Ok(out)
}

/// Restores the messages; `message` returns the message with a sequence.
///
/// # Errors
/// If `message` fails, or `history` is damaged.
pub fn restore_history(
    history: &str,
    message: &mut dyn FnMut(u32) -> StoreResult<Json>,
) -> StoreResult<String> {
    let json = Json::parse(history)
        .map_err(|error| StoreError::Damaged(format!("recorded turns are not JSON: {error}")))?;
    let mut out = String::with_capacity(json.as_str().len());
    restore(&HistoryNode::parse(json.as_str()), message, &mut out)?;
    Ok(out)
}

/// Returns the digest of a JSON value that ignores the order of keys.
pub fn history_fingerprint(json: &Json) -> [u8; 32] {
    HistoryNode::parse(json.as_str()).fingerprint()
}

/// A value within compact JSON; keys keep their quotes.
enum HistoryNode<'a> {
    Scalar(&'a str),
    Array(Vec<HistoryNode<'a>>),
    Object(Vec<(&'a str, HistoryNode<'a>)>),
}

impl<'a> HistoryNode<'a> {
    /// Reads compact, valid JSON as [`Json`] holds it.
    fn parse(text: &'a str) -> Self {
        Parser { text, at: 0 }.value()
    }

    fn fingerprint(&self) -> [u8; 32] {
        let mut text = String::new();
        self.write_sorted(&mut text);
        Sha256::digest(text).into()
    }

    fn write_sorted(&self, out: &mut String) {
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::Array(values) => write_list(out, values, |value, out| {
                value.write_sorted(out);
            }),
            Self::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_by_key(|(key, _)| *key);
                write_fields(out, fields.into_iter(), |value, out| {
                    value.write_sorted(out);
                });
            }
        }
    }
}

/// True if an object can be a message: it has a role, and no key twice.
fn may_be_message(fields: &[(&str, HistoryNode<'_>)]) -> bool {
    let mut keys: Vec<&str> = fields.iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    keys.binary_search(&"\"role\"").is_ok() && keys.windows(2).all(|pair| pair[0] != pair[1])
}

/// Returns the number of `$` before `seq`, if the object has just this key.
fn count_marks(fields: &[(&str, HistoryNode<'_>)]) -> Option<usize> {
    let [(key, _)] = fields else { return None };
    let dollars = key.strip_prefix('"')?.strip_suffix("seq\"")?;
    let only = !dollars.is_empty() && dollars.bytes().all(|byte| byte == b'$');
    only.then_some(dollars.len())
}

fn shorten(node: &HistoryNode<'_>, find: &dyn Fn(&[u8; 32]) -> Option<u32>, out: &mut String) {
    match node {
        HistoryNode::Scalar(text) => out.push_str(text),
        HistoryNode::Array(values) => {
            write_list(out, values, |value, out| shorten(value, find, out));
        }
        HistoryNode::Object(fields) => {
            let seq = may_be_message(fields)
                .then(|| find(&node.fingerprint()))
                .flatten();
            match (seq, count_marks(fields)) {
                (Some(seq), _) => out.push_str(&format!("{{\"$seq\":{seq}}}")),
                (None, Some(dollars)) => write_marked(out, dollars + 1, |out| {
                    shorten(&fields[0].1, find, out);
                }),
                (None, None) => write_fields(out, fields.iter(), |value, out| {
                    shorten(value, find, out);
                }),
            }
        }
    }
}

fn restore(
    node: &HistoryNode<'_>,
    message: &mut dyn FnMut(u32) -> StoreResult<Json>,
    out: &mut String,
) -> StoreResult<()> {
    let mut result = Ok(());
    let mut inner = |value: &HistoryNode<'_>, out: &mut String| {
        if result.is_ok() {
            result = restore(value, message, out);
        }
    };
    match node {
        HistoryNode::Scalar(text) => out.push_str(text),
        HistoryNode::Array(values) => write_list(out, values, inner),
        HistoryNode::Object(fields) => match count_marks(fields) {
            Some(1) => {
                out.push_str(message(reference(&fields[0].1)?)?.as_str());
            }
            Some(dollars) => write_marked(out, dollars - 1, |out| inner(&fields[0].1, out)),
            None => write_fields(out, fields.iter(), inner),
        },
    }
    result
}

fn reference(node: &HistoryNode<'_>) -> StoreResult<u32> {
    let seq = match node {
        HistoryNode::Scalar(text) => text.parse().ok(),
        _ => None,
    };
    seq.ok_or_else(|| StoreError::Damaged("recorded turns refer to no message".into()))
}

fn write_marked(out: &mut String, dollars: usize, value: impl FnOnce(&mut String)) {
    out.push_str("{\"");
    out.push_str(&"$".repeat(dollars));
    out.push_str("seq\":");
    value(out);
    out.push('}');
}

fn write_list(
    out: &mut String,
    values: &[HistoryNode<'_>],
    mut write: impl FnMut(&HistoryNode<'_>, &mut String),
) {
    out.push('[');
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(value, out);
    }
    out.push(']');
}

fn write_fields<'n, 'a: 'n>(
    out: &mut String,
    fields: impl Iterator<Item = &'n (&'a str, HistoryNode<'a>)>,
    mut write: impl FnMut(&HistoryNode<'_>, &mut String),
) {
    out.push('{');
    for (at, (key, value)) in fields.enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(key);
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(b']')
    }

    fn value(&mut self) -> HistoryNode<'a> {
        match self.peek() {
            b'[' => HistoryNode::Array(self.items(b']', Self::value)),
            b'{' => HistoryNode::Object(self.items(b'}', |parser| {
                let key = parser.scalar();
                // The colon.
                parser.at += 1;
                (key, parser.value())
            })),
            _ => HistoryNode::Scalar(self.scalar()),
        }
    }

    /// Reads the items between brackets.
    fn items<T>(&mut self, close: u8, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut items = Vec::new();
        self.at += 1;
        while self.at < self.text.len() && self.peek() != close {
            items.push(item(self));
            if self.peek() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        items
    }

    fn scalar(&mut self) -> &'a str {
        let start = self.at;
        let bytes = self.text.as_bytes();
        if self.peek() == b'"' {
            self.at += 1;
            while self.at < bytes.len() && bytes[self.at] != b'"' {
                self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
            }
            self.at += 1;
        } else {
            while !matches!(self.peek(), b',' | b':' | b']' | b'}') {
                self.at += 1;
            }
        }
        self.text.get(start..self.at).unwrap_or_default()
    }
}
