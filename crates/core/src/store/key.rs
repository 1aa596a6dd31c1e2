//! The key of an encrypted database.

use zeroize::{Zeroize, Zeroizing};

/// A longer key than this is a mistake, for example a file with something else.
const MAX_BYTES: usize = 1024;

/// The key of an encrypted database (feature `sqlcipher`). The key is wiped from memory when it is
/// dropped, and its `Debug` shows nothing of it.
///
/// 64 hexadecimal digits are a key of 256 bits and are used unchanged. Any other text is a passphrase:
/// SQLCipher derives the key from it, which takes about a tenth of a second for each connection.
///
/// ```
/// use loopstore::{Key, SqliteOptions};
///
/// let key = Key::parse(b"correct horse battery staple\n".to_vec())?;
/// assert_eq!(format!("{key:?}"), "Key(..)");
/// let options = SqliteOptions::new().key(key);
/// # drop(options);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Key(Zeroizing<String>);

/// An error on parsing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is empty.
    #[error("the key is empty")]
    Empty,
    /// The text is longer than a key can be.
    #[error("a key has at most {MAX_BYTES} bytes")]
    TooLong,
    /// The bytes are not text, or contain a NUL.
    #[error("the key is not valid text; use 32 random bytes as 64 hexadecimal digits")]
    NotText,
}

impl Key {
    /// Parses the text of a key. One final line break is not part of it.
    ///
    /// # Errors
    /// If the bytes are empty, too long or not text.
    pub fn parse(mut bytes: Vec<u8>) -> Result<Self, KeyError> {
        let given = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let given = given.strip_suffix(b"\r").unwrap_or(given);
        let made = Self::of(given);
        bytes.zeroize();
        made
    }

    /// Returns the key with these 256 bits.
    #[must_use]
    pub fn raw(bytes: &[u8; 32]) -> Self {
        let mut digits = Zeroizing::new(String::with_capacity(64));
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                digits.extend(char::from_digit(u32::from(digit), 16));
            }
        }
        Self(digits)
    }

    fn of(given: &[u8]) -> Result<Self, KeyError> {
        if given.is_empty() {
            return Err(KeyError::Empty);
        }
        if given.len() > MAX_BYTES {
            return Err(KeyError::TooLong);
        }
        match std::str::from_utf8(given) {
            Ok(text) if !text.contains('\0') => Ok(Self(Zeroizing::new(text.to_owned()))),
            _ => Err(KeyError::NotText),
        }
    }

    /// Returns the key as a literal of SQL in the form that SQLCipher expects.
    pub fn literal(&self) -> Zeroizing<String> {
        let text = self.0.as_str();
        // Allocated at full size: a text that grows leaves copies in memory.
        let mut literal = Zeroizing::new(String::with_capacity(2 * text.len() + 8));
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            literal.push_str("\"x'");
            literal.push_str(text);
            literal.push_str("'\"");
            return literal;
        }
        literal.push('\'');
        for c in text.chars() {
            if c == '\'' {
                literal.push('\'');
            }
            literal.push(c);
        }
        literal.push('\'');
        literal
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, KeyError> {
        Key::parse(text.into()).map(|key| key.literal().to_string())
    }

    #[test]
    fn a_key_becomes_one_literal_whatever_it_holds() {
        assert_eq!(parsed("it's\r\n").unwrap(), "'it''s'");
        assert_eq!(
            parsed("'; DROP TABLE x --").unwrap(),
            "'''; DROP TABLE x --'"
        );
        let digits = "0f".repeat(32);
        assert_eq!(parsed(&digits).unwrap(), format!("\"x'{digits}'\""));
        assert_eq!(*Key::raw(&[15; 32]).literal(), *format!("\"x'{digits}'\""));
        assert_eq!(parsed("\n"), Err(KeyError::Empty));
        assert_eq!(parsed("a\0b"), Err(KeyError::NotText));
        assert_eq!(parsed(&"k".repeat(1025)), Err(KeyError::TooLong));
        assert_eq!(Key::parse(vec![0xff, 0xfe]).unwrap_err(), KeyError::NotText);
    }
}
