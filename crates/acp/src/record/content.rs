//! Content blocks of the protocol as blocks of messages.

use loopstore::model::{Author, Content, Extra, Json, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
        mime_type: String,
    },
    #[serde(rename_all = "camelCase")]
    ResourceLink {
        name: String,
        uri: String,
    },
    Resource {
        resource: Resource,
    },
}

#[derive(Deserialize)]
struct Resource {
    uri: String,
    text: String,
}

/// Returns a block of a message. A block without a counterpart is kept as it is.
pub(crate) fn block(raw: &RawValue) -> Content {
    match serde_json::from_str(raw.get()) {
        Ok(Block::Text { text }) => Content::text(text),
        Ok(Block::Image { data, mime_type }) => Content::image(data, mime_type),
        Ok(Block::ResourceLink { name, uri }) => Content::text(format!("[{name}]({uri})")),
        Ok(Block::Resource { resource }) => attached(&resource),
        Err(_) => other(raw),
    }
}

/// Returns the text of a text block.
pub(crate) fn text(raw: &RawValue) -> Option<String> {
    match serde_json::from_str(raw.get()) {
        Ok(Block::Text { text }) => Some(text),
        _ => None,
    }
}

fn other(raw: &RawValue) -> Content {
    match Json::parse(raw.get()) {
        Ok(json) => Content::Other(json),
        Err(_) => Content::text("[a block that is not valid]"),
    }
}

/// Returns a file that the editor attached: not the words of a person.
fn attached(resource: &Resource) -> Content {
    let mut extra = Extra::default();
    extra.insert("author", Json::string(Author::Harness.as_str()));
    Content::Text(Text {
        text: format!("{}:\n{}", resource.uri, resource.text),
        extra,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Content {
        block(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn every_kind_of_block_is_kept() {
        assert_eq!(read(r#"{"type":"text","text":"a"}"#), Content::text("a"));
        let image = read(r#"{"type":"image","data":"QQ==","mimeType":"image/png"}"#);
        assert_eq!(image, Content::image("QQ==", "image/png"));
        let link = read(r#"{"type":"resource_link","name":"a.rs","uri":"file:///a.rs"}"#);
        assert_eq!(link, Content::text("[a.rs](file:///a.rs)"));
        let file = read(r#"{"type":"resource","resource":{"uri":"file:///a","text":"b"}}"#);
        assert!(
            matches!(file, Content::Text(text) if text.text == "file:///a:\nb" && !text.extra.is_empty())
        );
        for text in [
            r#"{"type":"audio","data":"QQ==","mimeType":"audio/wav"}"#,
            r#"{"type":"resource","resource":{"uri":"file:///a","blob":"QQ=="}}"#,
            r#"{"type":"text"}"#,
            "7",
        ] {
            assert!(
                matches!(read(text), Content::Other(json) if json.as_str() == text),
                "{text}"
            );
        }
    }
}
