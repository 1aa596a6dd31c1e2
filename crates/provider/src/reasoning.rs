//! Reasoning that servers of chat completions return in fields next to the content of an answer.
//!
//! Some of these servers reject a tool call without its reasoning. The text becomes thinking, which is counted and
//! compacted like any other, and is sent back in the same fields.

use super::returned::ReturnedFields;
use loopstore_model::{Content, Extra, Json, Thinking};

/// The fields with reasoning as a text.
pub const TEXTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// The field with reasoning as a list of the server's own items.
pub const DETAILS: &str = "reasoning_details";

/// The extra field of thinking with the names of its fields in the answer.
const FIELDS: &str = "fields";

/// Returns the reasoning of an answer as thinking: a block for each different text.
pub fn thinking(texts: Vec<(&'static str, String)>, details: Option<Json>) -> Vec<Content> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for (field, text) in texts {
        match found.iter_mut().find(|(known, _)| *known == text) {
            Some((_, fields)) => fields.push(field),
            None => found.push((text, vec![field])),
        }
    }
    if let (true, Some(details)) = (found.is_empty(), &details) {
        found.push((text_of(details), Vec::new()));
    }
    let block = |(at, (thinking, fields)): (usize, (String, Vec<&str>))| {
        let mut extra = Extra::default();
        extra.insert(FIELDS, Json::of(&fields).unwrap_or_default());
        if let (0, Some(details)) = (at, &details) {
            extra.insert(DETAILS, details.clone());
        }
        Content::Thinking(Thinking {
            thinking,
            signature: None,
            extra,
        })
    };
    found.into_iter().enumerate().map(block).collect()
}

/// Returns the readable text of the items.
fn text_of(details: &Json) -> String {
    #[derive(serde::Deserialize)]
    struct Item {
        text: Option<String>,
        summary: Option<String>,
    }
    let items: Vec<Json> = details.read().unwrap_or_default();
    let items = items.iter().filter_map(|item| item.read::<Item>().ok());
    let texts: Vec<String> = items
        .filter_map(|item| item.text.or(item.summary))
        .collect();
    texts.concat()
}

/// Returns the names of the fields that a block was read from; `None` if it is no such thinking.
fn fields_of(block: &Content) -> Option<(&Thinking, Vec<String>)> {
    let Content::Thinking(thinking) = block else {
        return None;
    };
    let fields = thinking.extra.get(FIELDS)?.read().ok()?;
    Some((thinking, fields))
}

/// True if a block is thinking that is sent back in a field of its answer.
pub fn is_returned(block: &Content) -> bool {
    fields_of(block).is_some()
}

/// Returns the fields in which the thinking of an answer is sent back.
pub(super) fn returned(content: &[Content], back: &mut ReturnedFields) {
    let blocks: Vec<_> = content.iter().filter_map(fields_of).collect();
    for name in TEXTS {
        let in_field = blocks
            .iter()
            .filter(|(_, fields)| fields.iter().any(|one| one == name));
        let texts: Vec<&str> = in_field.map(|(block, _)| block.thinking.as_str()).collect();
        if !texts.is_empty() {
            back.set(name, Json::string(&texts.concat()));
        }
    }
    let details = blocks
        .iter()
        .find_map(|(block, _)| block.extra.get(DETAILS));
    if let Some(details) = details {
        back.set(DETAILS, details.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(content: &[Content]) -> String {
        let mut back = ReturnedFields::default();
        returned(content, &mut back);
        serde_json::to_string(&back).unwrap()
    }

    #[test]
    fn reasoning_goes_back_in_the_fields_that_it_came_in() {
        let details =
            Json::parse(r#"[{"type":"reasoning.text","text":"hm","signature":"s"}]"#).unwrap();
        let same = vec![(TEXTS[0], "hm".to_owned()), (TEXTS[1], "hm".to_owned())];
        let blocks = thinking(same, None);
        assert_eq!(blocks.len(), 1);
        assert_eq!(
            back(&blocks),
            r#"{"reasoning_content":"hm","reasoning":"hm"}"#
        );
        let blocks = thinking(Vec::new(), Some(details.clone()));
        assert!(matches!(&blocks[0], Content::Thinking(one) if one.thinking == "hm"));
        assert_eq!(
            back(&blocks),
            format!(r#"{{"reasoning_details":{}}}"#, details.as_str())
        );
        assert_eq!(back(&[Content::thinking("mine", None)]), "{}");
    }
}
