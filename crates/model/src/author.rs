//! The author of a message: a person, an agent, or the harness, which is the program that runs the agent.
//!
//! A harness writes much in the user's name: notifications, reminders, the output of commands, attached files. Code
//! that looks for a person's request must skip these.

mod frames;

use super::content::{Content, Text};
use super::json::Json;
use super::message::{Message, Role, ToolResultMessage};
#[doc(hidden)]
pub use frames::{is_frame, own_words, without_frames};

/// The author of a message.
///
/// In the JSON of a message it is the field `author`. If the field is absent, the author of a user message is a
/// person, that of an answer an agent, and that of any other message the harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Author {
    /// `human`: a person.
    Human,
    /// `agent`: the model, or a parent agent that gives a sub-agent its task.
    Agent,
    /// `harness`: the program that runs the agent.
    Harness,
}

impl Author {
    /// Every author.
    pub const ALL: [Self; 3] = [Self::Human, Self::Agent, Self::Harness];

    /// Returns the author of a message of this role without the field `author`.
    pub fn of_role(role: Role) -> Self {
        match role {
            Role::User => Self::Human,
            Role::Assistant => Self::Agent,
            Role::ToolResult | Role::Extension => Self::Harness,
        }
    }

    /// Returns the name in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Agent => "agent",
            Self::Harness => "harness",
        }
    }

    /// Returns the author with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|author| author.as_str() == name)
    }
}

/// The field of a text block that marks a block which a harness added to a person's message; its value is then
/// `harness`.
#[doc(hidden)]
pub const BLOCK_AUTHOR: &str = "author";

/// True if a harness added the block to a person's message.
#[doc(hidden)]
pub fn is_injected(text: &Text) -> bool {
    let author = text.extra.get(BLOCK_AUTHOR).map(Json::read::<String>);
    author.is_some_and(|author| author.is_ok_and(|author| author == Author::Harness.as_str()))
}

impl Message {
    /// Returns the author of the message.
    ///
    /// ```
    /// use loopstore_model::{Author, Message};
    ///
    /// assert_eq!(Message::user("Will it rain?").author(), Author::Human);
    /// let reminder = Message::user("It is noon.").with_author(Author::Harness);
    /// assert_eq!(reminder.author(), Author::Harness);
    /// ```
    pub fn author(&self) -> Author {
        let author = match self {
            Self::User(m) => m.author,
            Self::Assistant(m) => m.author,
            Self::ToolResult(m) => m.author,
        };
        author.unwrap_or(Author::of_role(self.role()))
    }

    /// Sets the author.
    #[must_use]
    pub fn with_author(mut self, author: Author) -> Self {
        let author = Some(author);
        match &mut self {
            Self::User(m) => m.author = author,
            Self::Assistant(m) => m.author = author,
            Self::ToolResult(m) => m.author = author,
        }
        self
    }

    /// True if the message is a prompt: a user message of a person or a parent agent.
    pub fn is_prompt(&self) -> bool {
        self.role() == Role::User && self.author() != Author::Harness
    }

    /// Returns the text of a prompt without the harness's text before and after it; `None` if the message is no prompt
    /// or nothing is left.
    ///
    /// ```
    /// use loopstore_model::Message;
    ///
    /// let prompt = Message::user("<system-reminder>Be brief.</system-reminder>\nWill it rain?");
    /// assert_eq!(prompt.prompt_text().as_deref(), Some("Will it rain?"));
    /// ```
    pub fn prompt_text(&self) -> Option<String> {
        let texts: Vec<&str> = self.prompt_texts().collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Returns the texts of [`Message::prompt_text`], block by block.
    #[doc(hidden)]
    pub fn prompt_texts(&self) -> impl Iterator<Item = &str> {
        let is_prompt = self.is_prompt();
        let own = own_texts(self.content()).map(without_frames);
        own.filter(move |text| is_prompt && !text.is_empty())
    }
}

impl ToolResultMessage {
    /// Returns the texts that a person wrote in place of a tool's result, each with the text that the harness put
    /// before it.
    #[doc(hidden)]
    pub fn texts_of_person(&self) -> impl Iterator<Item = &str> {
        let is_persons = self.author == Some(Author::Human);
        own_texts(&self.content).filter(move |_| is_persons)
    }
}

/// Returns the texts of blocks that no harness added.
fn own_texts(content: &[Content]) -> impl Iterator<Item = &str> {
    content.iter().filter_map(|block| match block {
        Content::Text(text) if !is_injected(text) => Some(text.text.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_a_persons_or_a_parents() {
        let said = Message::user("Go.");
        assert!(said.is_prompt());
        assert!(said.clone().with_author(Author::Agent).is_prompt());
        let reminder = said.with_author(Author::Harness);
        assert!(!reminder.is_prompt() && reminder.prompt_text().is_none());
        assert!(
            !Message::assistant("Go.")
                .with_author(Author::Human)
                .is_prompt()
        );
    }
}
