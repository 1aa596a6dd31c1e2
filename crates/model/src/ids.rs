//! The ids of sessions and loops.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The longest id in bytes.
#[doc(hidden)]
pub const MAX_ID_BYTES: usize = 512;

/// The error for a text that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// The text is empty.
    #[error("an id must not be empty")]
    Empty,
    /// The text is longer than 512 bytes.
    #[error("an id has at most {MAX_ID_BYTES} bytes, this one has {0}")]
    TooLong(usize),
}

fn check(text: &str) -> Result<(), InvalidId> {
    match text.len() {
        0 => Err(InvalidId::Empty),
        n if n > MAX_ID_BYTES => Err(InvalidId::TooLong(n)),
        _ => Ok(()),
    }
}

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Returns `text` as an id.
            ///
            /// # Errors
            /// If `text` is empty or longer than 512 bytes.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                check(&text)?;
                Ok(Self(text))
            }

            /// Returns the text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }
    };
}

id! {
    /// The id of a session: a non-empty text of at most 512 bytes. Generated ids are UUIDv7.
    SessionId
}

id! {
    /// The id of a loop, unique within its session: a non-empty text of at most 512 bytes.
    LoopId
}

impl SessionId {
    /// Returns a new id, a UUIDv7.
    pub fn generate() -> Self {
        Self(crate::clock::new_uuid().to_string())
    }
}

impl LoopId {
    /// Returns a text as an id without a check; an invalid id matches no loop.
    #[doc(hidden)]
    pub fn of(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns a new id, a UUIDv7.
    pub fn generate() -> Self {
        Self(crate::clock::new_uuid().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_bounded_and_not_empty() {
        assert_eq!(SessionId::new(""), Err(InvalidId::Empty));
        assert_eq!(LoopId::new("x".repeat(513)), Err(InvalidId::TooLong(513)));
        assert!(LoopId::new("x".repeat(512)).is_ok());
        assert!(serde_json::from_str::<SessionId>("\"\"").is_err());
    }

    #[test]
    fn generated_ids_are_uuid_v7() {
        let id = SessionId::generate();
        assert_eq!(
            uuid::Uuid::parse_str(id.as_str()).map(|u| u.get_version_num()),
            Ok(7)
        );
    }
}
