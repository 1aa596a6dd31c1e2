//! Images and other attached files of messages, which a redaction replaces by a line of text if it is asked to.

use loopstore::model::{AgentMessage, Content};
use loopstore::tokens::image_bytes;

/// The types of blocks of providers that hold or name a file.
const FILE_TYPES: [&str; 9] = [
    "audio",
    "document",
    "file",
    "image",
    "image_url",
    "input_audio",
    "input_file",
    "input_image",
    "video",
];

/// Returns the message without its attached files, and their number; `None` if it has none. Each is replaced by one
/// text, so that the parts of the message keep their numbers.
pub(super) fn without_images(message: &AgentMessage) -> Option<(AgentMessage, u64)> {
    let has_any = message.message()?.content().iter().any(is_attached);
    let mut changed = has_any.then(|| message.clone())?;
    let mut count = 0;
    for block in changed.message_mut()?.content_mut() {
        if let Some(text) = replacement(block) {
            *block = Content::text(text);
            count += 1;
        }
    }
    Some((changed, count))
}

fn is_attached(block: &Content) -> bool {
    replacement(block).is_some()
}

fn replacement(block: &Content) -> Option<String> {
    match block {
        Content::Image(image) => {
            let is_plain =
                |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '+' | '-');
            let kind: String = image
                .mime_type
                .chars()
                .take(40)
                .filter(|c| is_plain(*c))
                .collect();
            Some(format!("[{kind} left out: {} bytes]", image_bytes(image)))
        }
        Content::Other(json) => {
            let kind = json.type_name()?;
            let bytes = json.as_str().len();
            (FILE_TYPES.contains(&&*kind)).then(|| format!("[{kind} left out: {bytes} bytes]"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::model::{Json, Message};

    #[test]
    fn each_attached_file_becomes_one_text() {
        let mut message = Message::user("Look.").with_image("aGVsbG8=", "image/png\n<b>");
        let file = r#"{"type":"input_file","file_data":"c2VjcmV0"}"#;
        let other = r#"{"type":"tool_reference","name":"x"}"#;
        for json in [file, other] {
            message
                .content_mut()
                .push(Content::Other(Json::parse(json).unwrap()));
        }
        let (changed, count) = without_images(&message.clone().into()).unwrap();
        let content = changed.message().unwrap().content();
        assert_eq!((content.len(), count), (4, 2));
        assert_eq!(content[1], Content::text("[image/pngb left out: 5 bytes]"));
        assert_eq!(content[2], Content::text("[input_file left out: 44 bytes]"));
        assert_eq!(content[3], message.content()[3]);
        assert!(without_images(&changed).is_none());
    }
}
