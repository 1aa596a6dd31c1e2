//! A message on its way from the importer to the store.

use loopstore::extend::StoreResult;
use loopstore::extend::append::NewMessage;
use loopstore::internal::EncodedMessage;
use loopstore::model::{AgentMessage, AppliedEdits, Author, Message, Role};
use loopstore::tokens::TokenCounter;

use super::matching::RecordDigest;

/// A message, already in its stored form unless the reader expects it to be stored.
pub(super) enum PendingMessage {
    Plain(Box<AgentMessage>),
    Encoded(Box<EncodedMessage>),
}

impl PendingMessage {
    /// Returns the message in its stored form.
    pub(super) fn encoded(
        message: AgentMessage,
        origin: RecordDigest,
        counter: &dyn TokenCounter,
    ) -> StoreResult<Self> {
        let origin = Some(origin);
        let new = NewMessage { message, origin };
        Ok(Self::Encoded(Box::new(EncodedMessage::of(new, counter)?)))
    }

    pub(super) fn role(&self) -> Role {
        match self {
            Self::Plain(message) => message.role(),
            Self::Encoded(message) => message.role(),
        }
    }

    pub(super) fn author(&self) -> Author {
        match self {
            Self::Plain(message) => message.author(),
            Self::Encoded(message) => message.author(),
        }
    }

    /// Returns the index of the turn, if the source gives one.
    pub(super) fn turn_index(&self) -> Option<i64> {
        match self {
            Self::Plain(message) => message.turn_index(),
            Self::Encoded(message) => message.turn_index(),
        }
    }

    /// Returns the time of the message in milliseconds since the epoch.
    pub(super) fn created_at(&self) -> Option<i64> {
        match self {
            Self::Plain(message) => message.message().and_then(Message::timestamp),
            Self::Encoded(message) => message.created_at(),
        }
    }

    /// Returns the report of cleared content of an answer, and the id of its response, as JSON.
    pub(super) fn applied_edits(&self) -> Option<(AppliedEdits, Option<String>)> {
        match self {
            Self::Plain(message) => {
                let report = message
                    .applied_edits()
                    .filter(|report| !report.is_empty())?;
                let response = match &**message {
                    AgentMessage::Llm(answer) => answer.response().map(str::to_owned),
                    AgentMessage::Extension(_) => None,
                };
                Some((report, response))
            }
            Self::Encoded(message) => {
                let (report, response) = message.applied_edits()?;
                Some((report.clone(), response.map(str::to_owned)))
            }
        }
    }

    pub(super) fn into_message(self) -> StoreResult<AgentMessage> {
        match self {
            Self::Plain(message) => Ok(*message),
            Self::Encoded(message) => message.into_message(),
        }
    }

    /// Returns the stored form, made from a record with this digest.
    pub(super) fn into_encoded(
        self,
        origin: RecordDigest,
        counter: &dyn TokenCounter,
    ) -> StoreResult<EncodedMessage> {
        match self {
            Self::Encoded(message) => Ok(*message),
            Self::Plain(message) => {
                let new = NewMessage {
                    message: *message,
                    origin: Some(origin),
                };
                EncodedMessage::of(new, counter)
            }
        }
    }
}

impl From<AgentMessage> for PendingMessage {
    fn from(message: AgentMessage) -> Self {
        Self::Plain(Box::new(message))
    }
}
