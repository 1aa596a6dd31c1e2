//! The actions of edits.

use serde::{Deserialize, Serialize};

/// The action of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EditAction {
    /// Contexts do not show the messages or the part.
    Removed,
    /// Contexts show a marker of one line in place of the part.
    Cleared,
    /// Contexts show another text in place of the part.
    Replaced,
}

impl EditAction {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Removed, Self::Cleared, Self::Replaced];

    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Cleared => "cleared",
            Self::Replaced => "replaced",
        }
    }

    /// Returns the action for a word in SQL and JSON.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }

    /// True if the words of the message must not come back in a summary.
    pub fn is_rewriting(self) -> bool {
        self != Self::Cleared
    }
}
