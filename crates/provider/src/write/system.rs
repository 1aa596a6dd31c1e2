//! System messages, which every form has before the conversation.

use serde::Deserialize;
use serde_json::Value;

use super::{Mending, MendingKind};
use loopstore_model::{AgentMessage, ExtensionMessage};

/// A system message of a request.
#[derive(Clone, Debug)]
pub(super) struct SystemMessage {
    /// True if its role was `developer`.
    pub(super) is_developer: bool,
    /// The texts, none of them empty.
    pub(super) texts: Vec<SystemText>,
}

/// A text of a system message.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SystemText {
    pub(super) text: String,
    /// The cache mark of Anthropic: the prompt is cached up to this text.
    #[serde(default)]
    pub(super) cache_control: Option<Value>,
}

/// Returns the system messages that are not empty.
pub(super) fn take(messages: &[AgentMessage], mended: &mut Vec<Mending>) -> Vec<SystemMessage> {
    let mut taken = Vec::new();
    let mut is_behind = false;
    for (at, message) in messages.iter().enumerate() {
        match message {
            AgentMessage::Llm(_) => is_behind = true,
            AgentMessage::Extension(note) if note.kind == "system" => {
                let kind = match texts(note) {
                    None => Some(MendingKind::BlockDropped),
                    Some(texts) if texts.is_empty() => Some(MendingKind::EmptyDropped),
                    Some(texts) => {
                        let form = note.extra.get("form");
                        taken.push(SystemMessage {
                            is_developer: form.is_some_and(|form| form.as_str() == "\"developer\""),
                            texts,
                        });
                        is_behind.then_some(MendingKind::SystemMoved)
                    }
                };
                mended.extend(kind.map(|kind| Mending::of(kind, at)));
            }
            AgentMessage::Extension(_) => {}
        }
    }
    taken
}

/// Returns all texts as one.
pub(super) fn joined(system: &[SystemMessage]) -> String {
    let texts = system.iter().flat_map(|message| &message.texts);
    texts
        .map(|text| text.text.as_str())
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Reads a system message as importers and `read` store it: `{"content"}` with a text or a list of texts, or only a
/// text.
fn texts(note: &ExtensionMessage) -> Option<Vec<SystemText>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Data {
        Text(String),
        Message { content: Parts },
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Parts {
        Text(String),
        List(Vec<SystemText>),
    }
    let texts = match note.data.read().ok()? {
        Data::Text(text)
        | Data::Message {
            content: Parts::Text(text),
        } => vec![SystemText {
            text,
            cache_control: None,
        }],
        Data::Message {
            content: Parts::List(parts),
        } => parts,
    };
    let is_not_blank = |text: &SystemText| !text.text.trim().is_empty();
    Some(texts.into_iter().filter(is_not_blank).collect())
}
