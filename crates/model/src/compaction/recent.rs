//! The amount that is kept at the end of a chain.

use std::fmt;
use std::str::FromStr;

use super::config::UnknownWord;

/// The amount that is kept at the end of a chain, rounded up to whole turns.
///
/// ```
/// use loopstore_model::compaction::KeepRecent;
///
/// assert_eq!("10".parse(), Ok(KeepRecent::Turns(10)));
/// assert_eq!("user-turns:6".parse(), Ok(KeepRecent::UserTurns(6)));
/// assert_eq!(KeepRecent::Messages(20).to_string(), "messages:20");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepRecent {
    /// A number of turns.
    Turns(u32),
    /// The turns from the N-th last prompt on. A user message of the harness is not a prompt.
    UserTurns(u32),
    /// The last turns that contain this number of messages.
    Messages(u32),
}

impl Default for KeepRecent {
    fn default() -> Self {
        Self::Turns(10)
    }
}

impl KeepRecent {
    /// Returns the number of turns, prompts or messages.
    pub fn count(self) -> u32 {
        match self {
            Self::Turns(count) | Self::UserTurns(count) | Self::Messages(count) => count,
        }
    }
}

impl fmt::Display for KeepRecent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turns(count) => write!(f, "{count}"),
            Self::UserTurns(count) => write!(f, "user-turns:{count}"),
            Self::Messages(count) => write!(f, "messages:{count}"),
        }
    }
}

impl FromStr for KeepRecent {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let (what, count) = text.split_once(':').unwrap_or(("turns", text));
        let made = match what {
            "turns" => Self::Turns,
            "user-turns" => Self::UserTurns,
            "messages" => Self::Messages,
            _ => return Err(UnknownWord::new(text, KNOWN)),
        };
        let count = count.parse().map_err(|_| UnknownWord::new(text, KNOWN))?;
        Ok(made(count))
    }
}

const KNOWN: &str = "N, user-turns:N, messages:N";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for keep in [
            KeepRecent::Turns(0),
            KeepRecent::UserTurns(6),
            KeepRecent::Messages(10),
        ] {
            assert_eq!(keep.to_string().parse(), Ok(keep));
        }
        assert_eq!("turns:3".parse(), Ok(KeepRecent::Turns(3)));
        for bad in ["", "-1", "messages", "messages:", "words:3", "4294967296"] {
            assert!(bad.parse::<KeepRecent>().is_err(), "{bad}");
        }
    }
}
