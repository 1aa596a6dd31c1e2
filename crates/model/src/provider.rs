//! Providers that compact contexts themselves.

use super::content::{Content, Sealed};
use super::message::AgentMessage;

/// A provider whose compactions only the provider can read.
///
/// Such a compaction is recorded as a run with its own strategy name. Its block is active only in contexts for the
/// provider.
///
/// ```
/// use loopstore_model::SealingProvider;
///
/// let openai = SealingProvider::of_strategy("provider:openai");
/// assert_eq!(openai, Some(SealingProvider::OpenAi));
/// assert_eq!(SealingProvider::of_strategy("digest"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SealingProvider {
    /// OpenAI's Responses: `compaction` items.
    OpenAi,
    /// Anthropic's messages: `compaction` blocks.
    Anthropic,
}

/// The beginning of the names of such strategies.
const PREFIX: &str = "provider:";

impl SealingProvider {
    /// All providers.
    pub const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// Returns the name of the provider in sealed content.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// Returns the name of the strategy of the provider's compactions.
    pub fn strategy(self) -> String {
        format!("{PREFIX}{}", self.as_str())
    }

    /// Returns the provider whose compactions have this strategy.
    pub fn of_strategy(strategy: &str) -> Option<Self> {
        let name = strategy.strip_prefix(PREFIX)?;
        Self::ALL
            .into_iter()
            .find(|provider| provider.as_str() == name)
    }
}

impl Sealed {
    /// Returns the provider if the item is a compaction.
    pub fn compaction(&self) -> Option<SealingProvider> {
        let mut known = SealingProvider::ALL.into_iter();
        let by = known.find(|provider| provider.as_str() == self.provider)?;
        (self.kind().as_deref() == Some("compaction")).then_some(by)
    }
}

impl Content {
    /// Returns the provider and the block if the block is a provider's compaction.
    #[doc(hidden)]
    pub fn as_compaction(&self) -> Option<(SealingProvider, &Sealed)> {
        match self {
            Self::Sealed(sealed) => Some((sealed.compaction()?, sealed)),
            _ => None,
        }
    }
}

impl AgentMessage {
    /// Returns the index and provider of the last compaction among the blocks of an answer.
    #[doc(hidden)]
    pub fn last_compaction(&self) -> Option<(usize, SealingProvider)> {
        let Some(super::Message::Assistant(answer)) = self.message() else {
            return None;
        };
        let blocks = answer.content.iter().enumerate().rev();
        let mut found = blocks.filter_map(|(at, block)| Some((at, block.as_compaction()?.0)));
        found.next()
    }
}
