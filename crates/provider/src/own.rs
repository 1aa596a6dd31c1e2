//! Messages in loopstore's own form, including the short form that a person may write.

use serde::Deserialize;
use serde_json::value::RawValue;

use loopstore_model::AgentMessage;

/// The error of reading messages in loopstore's own form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnFormError {
    /// The text is no JSON.
    #[error("this is not JSON: {why}")]
    NotJson {
        /// The defect and its position.
        why: String,
    },
    /// A message has another form.
    #[error(
        "message {at} is not in loopstore's own form: {why}; for messages of a provider name the format: \
         openai, responses or anthropic"
    )]
    NoMessage {
        /// The index of the message, from 0.
        at: usize,
        /// The defect and its position in the message.
        why: String,
    },
}

/// Reads messages in loopstore's own form: one message, or a list of messages. The field `content` may be a text
/// instead of a list of blocks.
///
/// # Errors
/// If the text is no JSON, or a message has another form.
///
/// # Examples
/// ```
/// use loopstore_model::Message;
/// use loopstore_provider as provider;
///
/// let short = provider::read_own(r#"{"role":"user","content":"Will it rain?"}"#)?;
/// assert_eq!(short, [Message::user("Will it rain?").into()]);
/// assert!(provider::read_own(r#"[{"role":"poet","content":"It will."}]"#).is_err());
/// # Ok::<(), provider::OwnFormError>(())
/// ```
pub fn read_own(text: &str) -> Result<Vec<AgentMessage>, OwnFormError> {
    let is_list = text.trim_ascii_start().starts_with('[');
    if is_list && let Ok(messages) = serde_json::from_str(text) {
        return Ok(messages);
    }
    let not_json = |error: serde_json::Error| OwnFormError::NotJson {
        why: error.to_string(),
    };
    let list: Vec<&RawValue> = match is_list {
        true => serde_json::from_str(text).map_err(not_json)?,
        false => vec![serde_json::from_str(text).map_err(not_json)?],
    };
    let messages = list.into_iter().enumerate();
    messages.map(|(at, one)| message(at, one.get())).collect()
}

fn message(at: usize, text: &str) -> Result<AgentMessage, OwnFormError> {
    serde_json::from_str(text)
        .or_else(|error| match with_block(text) {
            Some(spelled_out) => serde_json::from_str(&spelled_out),
            None => Err(error),
        })
        .map_err(|error| OwnFormError::NoMessage {
            at,
            why: error.to_string(),
        })
}

/// Returns a message whose `content` is a text with a list of one block instead; `None` for any other message. The rest
/// of the message keeps its text.
fn with_block(message: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        content: &'a RawValue,
    }

    let outer: Outer<'_> = serde_json::from_str(message).ok()?;
    let content = outer.content.get();
    let at = (content.as_ptr() as usize).checked_sub(message.as_ptr() as usize)?;
    let (before, rest) = message.split_at_checked(at)?;
    let after = rest.strip_prefix(content)?;
    content
        .starts_with('"')
        .then(|| format!(r#"{before}[{{"type":"text","text":{content}}}]{after}"#))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore_model::Message;

    #[test]
    fn a_text_in_place_of_blocks_leaves_all_else_as_it_is() {
        let text = r#"[{"n":1.50, "content" : "a \"quote\" é" ,"role":"user","b":{"content":"c"}},
            {"role":"assistant","content":[]}]"#;
        let read = read_own(text).unwrap();
        let again = serde_json::to_string(&read[0]).unwrap();
        assert!(again.contains(r#""text":"a \"quote\" é""#), "{again}");
        assert!(again.contains(r#""n":1.50"#), "{again}");
        assert!(again.contains(r#""b":{"content":"c"}"#), "{again}");
        assert_eq!(read.len(), 2);
        let result = r#"{"role":"toolResult","toolCallId":"c","content":"done"}"#;
        assert_eq!(
            read_own(result).unwrap(),
            [Message::tool_result("c", "done").into()]
        );
    }

    #[test]
    fn what_is_no_message_is_told_with_its_place() {
        for (text, told) in [
            ("", "not JSON"),
            ("hello", "not JSON"),
            (r#"{"role":"user","content":"#, "not JSON"),
            (r#"{"role":"user","content":"a"} {}"#, "not JSON"),
            ("[1,]", "not JSON"),
            (r#""hello""#, "message 0 is not"),
            (r#"{"role":"user","content":7}"#, "message 0 is not"),
            (
                r#"{"role":"user","content":{"text":"a"}}"#,
                "message 0 is not",
            ),
            (
                r#"{"content":"a","content":"b","role":"user"}"#,
                "message 0 is not",
            ),
            (r#"{"role":"user"}"#, "message 0 is not"),
            (
                r#"[{"role":"user","content":"a"},{"role":"tool","content":"b"}]"#,
                "message 1 is not",
            ),
            ("[null]", "message 0 is not"),
        ] {
            let error = read_own(text).unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
