//! Providers that compact by themselves.

use super::content::{Content, Sealed};
use super::message::AgentMessage;

/// A provider that gives out compactions which only it can read.
///
/// Such a compaction is a run of its own strategy, active in contexts for that provider and in no other.
///
/// ```
/// use loopstore::SealingProvider;
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

/// What the strategies of such runs begin with.
const PREFIX: &str = "provider:";

impl SealingProvider {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    /// Returns its name, as sealed content has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// Returns the strategy of its compactions.
    pub fn strategy(self) -> String {
        format!("{PREFIX}{}", self.as_str())
    }

    /// Returns whose compactions have this strategy.
    pub fn of_strategy(strategy: &str) -> Option<Self> {
        let name = strategy.strip_prefix(PREFIX)?;
        Self::ALL
            .into_iter()
            .find(|provider| provider.as_str() == name)
    }
}

impl Sealed {
    /// Returns who compacted, if this is a compaction.
    pub fn compaction(&self) -> Option<SealingProvider> {
        let mut known = SealingProvider::ALL.into_iter();
        let by = known.find(|provider| provider.as_str() == self.provider)?;
        (self.kind().as_deref() == Some("compaction")).then_some(by)
    }
}

impl Content {
    /// Returns the provider's compaction, if this is one.
    #[doc(hidden)]
    pub fn as_compaction(&self) -> Option<(SealingProvider, &Sealed)> {
        match self {
            Self::Sealed(sealed) => Some((sealed.compaction()?, sealed)),
            _ => None,
        }
    }
}

impl AgentMessage {
    /// Returns the last compaction of a provider among the model's own blocks, with its place.
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
