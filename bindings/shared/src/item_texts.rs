//! The texts of items, without the strings that their messages also contain.

use std::borrow::Cow;

use loopstore::{AgentMessage, Content, Json, Message};
use serde::Deserialize;

use crate::json_text::{string_end, write_string};

/// The mark in place of a string; a number and `}` follow. As text it occurs in no string of JSON.
const MARK: &str = r#"{"$loopstore":"#;
/// Shorter strings are not replaced.
const SHORT: usize = 32;

/// Returns the kept text of an item, with marks in place of the strings that its message contains.
pub(crate) fn shortened(message: &AgentMessage, item: &str) -> Json {
    let (text, marks) = marked(message, item);
    match Json::parse(&text) {
        Ok(json) if json.as_str().matches(MARK).count() == marks => json,
        // It nests too deep for another value, or has such a mark of its own.
        _ => Json::string(item),
    }
}

/// Puts marks in an item, and counts them.
fn marked(message: &AgentMessage, item: &str) -> (String, usize) {
    let strings: Vec<_> = content(message).iter().map(string_of).collect();
    if strings.iter().all(|string| string.len() < SHORT) {
        return (item.to_owned(), 0);
    }
    let (mut out, mut rest) = (String::with_capacity(item.len()), item);
    let mut marks = 0;
    while let Some(start) = rest.find('"') {
        let (before, from) = rest.split_at(start);
        let end = string_end(from).map_or(from.len(), |(end, _)| end);
        let (literal, after) = from.split_at(end);
        out.push_str(before);
        let is_name = after.trim_start().starts_with(':');
        let place = match literal.len() < SHORT || is_name {
            true => None,
            false => read(literal).and_then(|text| strings.iter().position(|one| *one == text)),
        };
        match place {
            Some(place) => {
                out.push_str(&format!("{MARK}{place}}}"));
                marks += 1;
            }
            None => out.push_str(literal),
        }
        rest = after;
    }
    (out + rest, marks)
}

/// Reads a string of JSON.
fn read(literal: &str) -> Option<Cow<'_, str>> {
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    match inner.contains('\\') {
        true => serde_json::from_str(literal).ok().map(Cow::Owned),
        false => Some(Cow::Borrowed(inner)),
    }
}

/// Writes an item from its kept text.
pub(crate) fn write_whole(out: &mut String, message: &AgentMessage, kept: &Json) {
    let text = kept.as_str();
    if text.starts_with('"')
        && let Ok(item) = kept.read::<Cow<'_, str>>()
    {
        return out.push_str(&item);
    }
    let (begin, mut rest) = (out.len(), text);
    while let Some((before, after)) = rest.split_once(MARK) {
        let mark = after.split_once('}');
        let Some((Ok(place), behind)) = mark.map(|(at, behind)| (at.parse::<usize>(), behind))
        else {
            // The item itself had such a mark.
            out.truncate(begin);
            return out.push_str(text);
        };
        out.push_str(before);
        let string = content(message).get(place).map(string_of);
        write_string(out, &string.unwrap_or_default());
        rest = behind;
    }
    out.push_str(rest);
}

fn content(message: &AgentMessage) -> &[Content] {
    message.message().map(Message::content).unwrap_or_default()
}

/// Returns the string of a block that an item may contain as well.
fn string_of(block: &Content) -> Cow<'_, str> {
    match block {
        Content::Text(text) => Cow::Borrowed(text.text.as_str()),
        Content::Thinking(thinking) => Cow::Borrowed(thinking.thinking.as_str()),
        Content::ToolCall(call) => Cow::Borrowed(call.arguments.as_str()),
        Content::Image(image) => {
            Cow::Owned(format!("data:{};base64,{}", image.mime_type, image.data))
        }
        Content::Sealed(sealed) => Cow::Owned(encrypted(sealed.item.as_str())),
        _ => Cow::Borrowed(""),
    }
}

/// Returns the encrypted part of an opaque item.
fn encrypted(item: &str) -> String {
    #[derive(Deserialize)]
    struct Encrypted {
        encrypted_content: String,
    }
    let found: Option<Encrypted> = serde_json::from_str(item).ok();
    found
        .map(|found| found.encrypted_content)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_comes_back_whatever_it_holds() {
        let long = "A text that is long enough to be replaced by a mark.";
        let message = AgentMessage::from(Message::user(long));
        let items = [
            format!(r#"{{"content":"{long}"}}"#),
            format!(r#"{{"{long}":"{long}","b":["{long}","{long} "]}}"#),
            format!(r#"{{"content":"{long}","x":{{"$loopstore":0}}}}"#),
            format!(r#"{{"content":"{long}","x":{{"$loopstore":7,"y":1}}}}"#),
            format!(r#"{{"content":"{long}","x":{{ "\u0024loopstore" : 0}}}}"#),
            format!(
                r#"{{"content":"{long}","x":{}0{}}}"#,
                "[".repeat(128),
                "]".repeat(128)
            ),
            r#"{"x":{"$loopstore":0}}"#.to_owned(),
        ];
        for item in items {
            let kept = shortened(&message, &item);
            let mut out = String::new();
            write_whole(&mut out, &message, &kept);
            assert_eq!(out, item);
        }
        let kept = shortened(&message, &format!(r#"{{"content":"{long}"}}"#));
        assert_eq!(kept.as_str(), r#"{"content":{"$loopstore":0}}"#);
    }
}
