//! Messages in their stored form, with the values that an append needs.
//!
//! Encoding is most of the work of an append and needs no transaction: an import does it on the thread
//! that reads.

use super::StoreResult;
use super::append::NewMessage;
use super::codec;
use super::rows::{Blob, StoredMessage};
use crate::model::{AgentMessage, AppliedEdits, Author, Message, Role, SealingProvider};
use crate::tokens::{TokenCounter, reported_tokens};

/// A message in its stored form, ready to be written.
#[derive(Debug)]
pub struct EncodedMessage {
    pub(super) body: StoredMessage,
    pub(super) blobs: Vec<Blob>,
    pub(super) origin: Option<[u8; 32]>,
    /// The turn index that its source gave it.
    pub(super) turn_index: Option<i64>,
    /// Milliseconds since the epoch.
    pub(super) created_at: Option<i64>,
    /// True for a system prompt.
    pub(super) is_system: bool,
    /// Ids of the calls that it makes.
    pub(super) calls: Vec<String>,
    /// The id of the call that it answers.
    pub(super) answers: Option<String>,
    /// The tokens that the provider reported for the call, if the message is an answer.
    pub(super) reported: Option<u64>,
    /// The provider, if the message contains a provider's compaction.
    pub(super) compaction: Option<SealingProvider>,
    /// The report of cleared content, if the message is an answer with one.
    pub(super) edits: Option<Box<AppliedEdits>>,
    /// The id of the response that it is a part of, as JSON, if it has a report.
    pub(super) response: Option<String>,
}

impl EncodedMessage {
    /// Encodes a message.
    ///
    /// # Errors
    /// As [`codec::encode`].
    pub fn of(new: NewMessage, counter: &dyn TokenCounter) -> StoreResult<Self> {
        let NewMessage { message, origin } = new;
        let put = Self::around(&message);
        let (body, blobs) = codec::encode(message, counter)?;
        Ok(Self {
            blobs,
            origin,
            ..put(body)
        })
    }

    /// Returns a stored message in this form.
    pub(super) fn stored(message: &AgentMessage, body: StoredMessage) -> Self {
        Self::around(message)(body)
    }

    /// Reads the values that an append needs from a message; returns a function that adds the stored form.
    fn around(message: &AgentMessage) -> impl FnOnce(StoredMessage) -> Self + use<> {
        let turn_index = message.turn_index();
        let is_system = matches!(message, AgentMessage::Extension(e) if e.kind == "system");
        let (mut created_at, mut calls, mut answers) = (None, Vec::new(), None);
        let (mut reported, mut compaction) = (None, None);
        let edits = message.applied_edits().filter(|edits| !edits.is_empty());
        let response = match message {
            AgentMessage::Llm(message) if edits.is_some() => message.response(),
            _ => None,
        };
        let response = response.map(str::to_owned);
        if let Some(inner) = message.message() {
            created_at = inner.timestamp();
            calls = inner.tool_calls().map(|call| call.id.clone()).collect();
            match inner {
                Message::User(_) => {}
                Message::Assistant(answer) => {
                    reported = answer.usage.as_ref().and_then(reported_tokens);
                    compaction = message.last_compaction().map(|(_, provider)| provider);
                }
                Message::ToolResult(result) => answers = Some(result.tool_call_id.clone()),
            }
        }
        move |body| Self {
            body,
            blobs: Vec::new(),
            origin: None,
            turn_index,
            created_at,
            is_system,
            calls,
            answers,
            reported,
            compaction,
            edits: edits.map(Box::new),
            response,
        }
    }

    /// Returns the report of cleared content of an answer, and the id of its response, as JSON.
    pub fn applied_edits(&self) -> Option<(&AppliedEdits, Option<&str>)> {
        Some((self.edits.as_deref()?, self.response.as_deref()))
    }

    /// Returns the role of the message.
    pub fn role(&self) -> Role {
        self.body.role
    }

    /// Returns the author of the message.
    pub fn author(&self) -> Author {
        self.body.author
    }

    /// Returns the turn index that the source gave the message.
    pub fn turn_index(&self) -> Option<i64> {
        self.turn_index
    }

    /// Returns the time of the message in milliseconds since the epoch.
    pub fn created_at(&self) -> Option<i64> {
        self.created_at
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// If the stored form cannot be decoded, which is a bug of loopstore.
    pub fn into_message(self) -> StoreResult<AgentMessage> {
        let blobs = self.blobs;
        codec::decode(self.body, &mut |sha256| {
            let blob = blobs.iter().find(|blob| blob.sha256 == *sha256);
            Ok(blob.map(|blob| blob.data.clone()))
        })
    }
}
