//! Messages in the form of the conventions: a role, and parts.

use std::borrow::Cow;

use loopstore::model::{AgentMessage, Author, Content, Image, Json, Message, Sealed};
use serde::{Deserialize, Serialize};

/// A message of `gen_ai.input.messages` or `gen_ai.output.messages`.
#[derive(Serialize)]
pub(super) struct TracedMessage<'a> {
    role: &'static str,
    /// The author, if the role does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    parts: Vec<TracedPart<'a>>,
}

/// A part, or an item of a provider as it is, which has a type of its own.
#[derive(Serialize)]
#[serde(untagged)]
enum TracedPart<'a> {
    Known(KnownPart<'a>),
    Item(&'a Json),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KnownPart<'a> {
    Text {
        content: &'a str,
    },
    Reasoning {
        content: Cow<'a, str>,
    },
    ToolCall {
        id: &'a str,
        name: &'a str,
        arguments: &'a Json,
    },
    ToolCallResponse {
        id: &'a str,
        response: ToolResponse<'a>,
    },
    Blob {
        mime_type: &'a str,
        modality: &'static str,
        content: &'a str,
    },
    Compaction {
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
    ServerToolCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        name: String,
        server_tool_call: &'a Json,
    },
    ServerToolCallResponse {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        server_tool_call_response: &'a Json,
    },
    /// State that only its provider can read, by its kind and size.
    Opaque {
        provider: &'a str,
        kind: Option<String>,
        bytes: usize,
    },
    /// A block without a type.
    Unknown {
        content: &'a Json,
    },
}

/// The response of a tool: its text, or its blocks.
#[derive(Serialize)]
#[serde(untagged)]
enum ToolResponse<'a> {
    Text(&'a str),
    Parts(Vec<TracedPart<'a>>),
}

/// Returns the messages as a text of JSON. Messages of one answer become one message.
pub(super) fn messages_json<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    is_output: bool,
) -> serde_json::Result<String> {
    let mut list: Vec<TracedMessage<'_>> = Vec::new();
    for message in messages {
        let next = traced(message);
        match list.last_mut() {
            Some(last) if is_output => last.parts.extend(next.parts),
            _ => list.push(next),
        }
    }
    serde_json::to_string(&list)
}

/// Returns the result of a tool as a text: its own, or its blocks as JSON.
pub(super) fn result_text(content: &[Content]) -> serde_json::Result<String> {
    match response(content) {
        ToolResponse::Text(text) => Ok(text.to_owned()),
        parts @ ToolResponse::Parts(_) => serde_json::to_string(&parts),
    }
}

/// Returns the texts of a system prompt as `gen_ai.system_instructions`.
pub(super) fn instructions_json(texts: &[String]) -> serde_json::Result<String> {
    let parts = texts.iter().map(|content| KnownPart::Text { content });
    serde_json::to_string(&parts.collect::<Vec<_>>())
}

/// Returns the texts of a system message as importers and appends store it: `{"content"}` with a text or a list of
/// texts, or only a text. Any other data is one text of JSON.
pub(super) fn system_texts(data: &Json) -> Vec<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SystemData {
        Text(String),
        Message { content: SystemContent },
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SystemContent {
        Text(String),
        List(Vec<ListedText>),
    }
    #[derive(Deserialize)]
    struct ListedText {
        text: String,
    }
    match data.read() {
        Ok(
            SystemData::Text(text)
            | SystemData::Message {
                content: SystemContent::Text(text),
            },
        ) => vec![text],
        Ok(SystemData::Message {
            content: SystemContent::List(texts),
        }) => texts.into_iter().map(|one| one.text).collect(),
        Err(_) => vec![data.as_str().to_owned()],
    }
}

/// Returns the number of items of a message that only their provider can read.
pub(super) fn opaque_items(message: &Message) -> u64 {
    let is_opaque = |block: &&Content| {
        matches!(block, Content::Sealed(sealed) if matches!(sealed_part(sealed),
            TracedPart::Known(KnownPart::Opaque { .. })))
    };
    message.content().iter().filter(is_opaque).count() as u64
}

/// Returns the text of a message of a block.
pub(super) fn shown_message(message: &AgentMessage) -> Option<&Message> {
    match message {
        AgentMessage::Llm(llm) => Some(&llm.message),
        AgentMessage::Extension(_) => None,
    }
}

fn traced(message: &Message) -> TracedMessage<'_> {
    let (role, own) = match message {
        Message::User(_) => ("user", Author::Human),
        Message::Assistant(_) => ("assistant", Author::Agent),
        Message::ToolResult(_) => ("tool", Author::Harness),
    };
    let author = message.author();
    let parts = match message {
        Message::ToolResult(result) => {
            vec![TracedPart::Known(KnownPart::ToolCallResponse {
                id: &result.tool_call_id,
                response: response(&result.content),
            })]
        }
        _ => message.content().iter().map(part).collect(),
    };
    TracedMessage {
        role,
        name: (author != own).then_some(author.as_str()),
        parts,
    }
}

fn response(content: &[Content]) -> ToolResponse<'_> {
    match content {
        [] => ToolResponse::Text(""),
        [Content::Text(text)] => ToolResponse::Text(&text.text),
        blocks => ToolResponse::Parts(blocks.iter().map(part).collect()),
    }
}

fn part(block: &Content) -> TracedPart<'_> {
    TracedPart::Known(match block {
        Content::Text(text) => KnownPart::Text {
            content: &text.text,
        },
        Content::Thinking(thinking) => KnownPart::Reasoning {
            content: Cow::Borrowed(&thinking.thinking),
        },
        Content::ToolCall(call) => KnownPart::ToolCall {
            id: &call.id,
            name: &call.name,
            arguments: &call.arguments,
        },
        Content::Image(image) => blob(image),
        Content::Sealed(sealed) => return sealed_part(sealed),
        Content::Other(json) => return item(json),
    })
}

fn blob(image: &Image) -> KnownPart<'_> {
    let modality = match image.mime_type.split('/').next() {
        Some("audio") => "audio",
        Some("video") => "video",
        Some("application" | "text") => "document",
        _ => "image",
    };
    KnownPart::Blob {
        mime_type: &image.mime_type,
        modality,
        content: &image.data,
    }
}

/// The fields of an item of a provider that decide its part.
#[derive(Deserialize)]
struct ItemHead {
    r#type: String,
    #[serde(default)]
    id: Option<Json>,
    #[serde(default)]
    name: Option<Json>,
    #[serde(default)]
    tool_use_id: Option<Json>,
    #[serde(default)]
    content: Option<Json>,
}

/// Returns an item with a type of its own as a part.
fn item(json: &Json) -> TracedPart<'_> {
    let Ok(head) = json.read::<ItemHead>() else {
        return TracedPart::Known(KnownPart::Unknown { content: json });
    };
    let text = |field: Option<Json>| field.and_then(|field| field.read::<String>().ok());
    match head.r#type.as_str() {
        "server_tool_use" | "mcp_tool_use" => TracedPart::Known(KnownPart::ServerToolCall {
            id: text(head.id),
            name: text(head.name).unwrap_or_default(),
            server_tool_call: json,
        }),
        kind if kind.ends_with("_tool_result") => {
            TracedPart::Known(KnownPart::ServerToolCallResponse {
                id: text(head.tool_use_id),
                server_tool_call_response: json,
            })
        }
        _ => TracedPart::Item(json),
    }
}

/// Returns the part of state that belongs to a provider: what is readable of it, or its kind and size.
fn sealed_part(sealed: &Sealed) -> TracedPart<'_> {
    if let Some(content) = sealed.readable() {
        let content = Cow::Owned(content);
        return TracedPart::Known(KnownPart::Reasoning { content });
    }
    let kind = sealed.kind();
    let opaque = |kind| {
        TracedPart::Known(KnownPart::Opaque {
            provider: &sealed.provider,
            kind,
            bytes: sealed.item.as_str().len(),
        })
    };
    match kind.as_deref() {
        Some("compaction") => {
            let head = sealed.item.read::<ItemHead>().ok();
            let content = head.and_then(|head| head.content?.read().ok());
            match content {
                None => opaque(kind),
                content => TracedPart::Known(KnownPart::Compaction { content }),
            }
        }
        None | Some("reasoning" | "redacted_thinking") => opaque(kind),
        Some(_) => item(&sealed.item),
    }
}
