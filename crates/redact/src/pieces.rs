//! Pieces of secrets: the parts of a secret that a shortened text contains.
//!
//! No rule recognises half a token. So a secret that was found whole is remembered by its windows: every eight
//! consecutive characters, without white space, since line ends change when a text is shortened. Consecutive windows in
//! a text are a piece.
//!
//! Some parts of a secret are not random: the frame of a private key, the scheme of an address and the prefix of a
//! token are not remembered. Other parts that an original contains alone are classified: a mixture of letters and
//! digits is a secret that was cut there, a word is ignored in all texts.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::classify::looks_random;
use super::views::MappedText;

/// The length of the smallest piece, in characters.
const WINDOW: usize = 8;

/// The factor of the rolling hash.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number of bits of the filter, which rules out most windows of a text at once. A session with thirty thousand
/// secrets has a million windows.
const SIEVE_BITS: u32 = 23;

/// The least length of a line of a private key that counts as a secret by itself.
const MIN_KEY_WORD: usize = 16;

/// The length of the longest prefix, as in `sk-ant-api03-`, in characters.
const MAX_PREFIX: usize = 16;

/// A piece of a secret in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretPiece {
    pub(super) range: Range<usize>,
    /// The index of the secret.
    pub(super) secret: usize,
}

/// The form of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretForm {
    /// A private key in its frame.
    PrivateKey,
    /// A token with a prefix that all of its kind have.
    Token,
    /// No form: a password that a person made up.
    Free,
}

/// The windows of secrets.
#[derive(Clone, Debug, Default)]
pub(super) struct SecretPieces {
    /// The secret of each window.
    windows: HashMap<u64, usize>,
    sieve: Vec<u64>,
    /// The secrets without white space.
    wholes: HashSet<String>,
    /// The windows that are words.
    free: HashSet<u64>,
}

impl SecretPieces {
    /// Remembers a secret without escapes; returns true if it is new.
    pub(super) fn learn(&mut self, form: SecretForm, secret: &str, number: usize) -> bool {
        let core = core_of(form, secret);
        if self.wholes.contains(&core) {
            return false;
        }
        each_window(&core, &mut |_, hash, _| {
            self.windows.entry(hash).or_insert(number);
            let (word, bit) = sieve_place(hash);
            self.sieve.resize(1 << (SIEVE_BITS - 6), 0);
            self.sieve[word] |= bit;
        });
        self.wholes.insert(core)
    }

    /// Reads an original: pieces that it contains alone and that are words are no secrets.
    pub(super) fn compare(&mut self, views: &[MappedText<'_>]) {
        // Escapes would split a whole secret.
        let Some(plain) = views.last() else { return };
        for piece in self.find_in(&plain.text) {
            let text = squeezed(&plain.text[piece.range]);
            if !self.wholes.contains(&text) && !looks_random(&text) {
                each_window(&text, &mut |_, hash, _| {
                    self.free.insert(hash);
                });
            }
        }
    }

    /// Drops the windows that are words.
    pub(super) fn settle(&mut self) {
        for hash in self.free.drain() {
            self.windows.remove(&hash);
        }
    }

    /// Returns the pieces in a text, with or without its escapes.
    pub(super) fn find(&self, views: &[MappedText<'_>]) -> Vec<SecretPiece> {
        let mut found = Vec::new();
        for view in views {
            found.extend(
                self.find_in(&view.text)
                    .into_iter()
                    .map(|piece| SecretPiece {
                        range: view.place(piece.range),
                        ..piece
                    }),
            );
        }
        found
    }

    /// True if bytes that are no text contain a piece that is no word.
    pub(super) fn are_in_bytes(&self, bytes: &[u8]) -> bool {
        if self.windows.is_empty() {
            return false;
        }
        let text = String::from_utf8_lossy(bytes);
        let mut pieces = self.find_in(&text).into_iter();
        pieces.any(|piece| is_no_word(&text[piece.range]))
    }

    fn find_in(&self, text: &str) -> Vec<SecretPiece> {
        let mut found: Vec<(usize, SecretPiece)> = Vec::new();
        if self.windows.is_empty() {
            return Vec::new();
        }
        each_window(text, &mut |at, hash, range| {
            let (word, bit) = sieve_place(hash);
            if self.sieve.get(word).is_none_or(|bits| bits & bit == 0) {
                return;
            }
            let Some(secret) = self.windows.get(&hash).copied() else {
                return;
            };
            match found.last_mut() {
                Some((end, piece)) if at <= *end => {
                    piece.range.end = range.end;
                    *end = at + WINDOW;
                }
                _ => found.push((at + WINDOW, SecretPiece { range, secret })),
            }
        });
        found.into_iter().map(|(_, piece)| piece).collect()
    }
}

fn sieve_place(hash: u64) -> (usize, u64) {
    let at = hash >> (64 - SIEVE_BITS);
    ((at >> 6) as usize, 1 << (at & 63))
}

/// Calls a function with each window of a text: its index, hash and range.
fn each_window(text: &str, visit: &mut impl FnMut(usize, u64, Range<usize>)) {
    const OLDEST: u64 = FACTOR.wrapping_pow(WINDOW as u32);
    let mut last = [(0, 0); WINDOW];
    let (mut hash, mut count) = (0u64, 0usize);
    for (at, c) in text.char_indices() {
        if c.is_whitespace() {
            continue;
        }
        let value = u64::from(u32::from(c)) + 1;
        let (_, gone) = std::mem::replace(&mut last[count % WINDOW], (at, value));
        hash = hash.wrapping_mul(FACTOR).wrapping_add(value);
        hash = hash.wrapping_sub(OLDEST.wrapping_mul(gone));
        count += 1;
        if let Some(number) = count.checked_sub(WINDOW) {
            let (start, _) = last[count % WINDOW];
            visit(number, mixed(hash), start..at + c.len_utf8());
        }
    }
}

/// Spreads a hash over all bits, as the filter uses the first ones.
fn mixed(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(FACTOR)
}

/// True if a piece, without its white space, is no word or name.
pub(super) fn is_no_word(piece: &str) -> bool {
    looks_random(&squeezed(piece))
}

/// True if a text is only the frame of a private key, which all keys of a kind share.
pub(super) fn is_bare_frame(text: &str) -> bool {
    text.contains("PRIVATE KEY-----") && key_of(text).is_empty()
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Returns the part of a secret that may be random, without white space.
fn core_of(form: SecretForm, secret: &str) -> String {
    if form == SecretForm::PrivateKey {
        return key_of(secret);
    }
    let scheme = |at: usize| {
        let mut before = secret[..at].chars();
        before.all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    };
    let address = secret.find("://").filter(|at| scheme(*at));
    let secret = address.map_or(secret, |at| &secret[at + 3..]);
    squeezed(&secret[prefix_of(form, secret)..])
}

/// Returns the length of the prefix that all secrets of a kind share: `sk_live_`, or the header of a JSON web token; 0
/// for other secrets.
fn prefix_of(form: SecretForm, secret: &str) -> usize {
    if secret.starts_with("eyJ") {
        return secret.find('.').map_or(0, |at| at + 1);
    }
    if form == SecretForm::Free {
        return 0;
    }
    let is_sign = |(at, c): &(usize, char)| "_-.".contains(*c) && !looks_random(&secret[..*at]);
    let signs = secret.char_indices().take(MAX_PREFIX).filter(is_sign);
    let end = signs.last().map_or(0, |(at, _)| at + 1);
    let is_prefix = secret.len() >= end + WINDOW;
    end * usize::from(is_prefix)
}

/// Returns the base64 of a private key within its frame, without headers. If the end is cut off, words that do not
/// belong to the key may follow.
fn key_of(secret: &str) -> String {
    let begin = secret.find("-----BEGIN").map(|at| at + "-----".len());
    let begin = begin.and_then(|at| Some(at + secret[at..].find("-----")? + "-----".len()));
    let body = &secret[begin.unwrap_or(0)..];
    let end = body.find("-----END");
    let body = &body[..end.unwrap_or(body.len())];
    let is_digit = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let lines = body.lines().filter(|line| !line.contains(": "));
    let words: Vec<&str> = lines
        .flat_map(str::split_whitespace)
        .filter(|word| word.chars().all(is_digit))
        .collect();
    let is_whole = |at: usize| end.is_some() && at + 1 == words.len();
    let digits = words.iter().enumerate();
    let digits = digits.filter(|(at, word)| word.len() >= MIN_KEY_WORD || is_whole(*at));
    digits.map(|(_, word)| *word).collect()
}

#[cfg(test)]
mod tests {
    use super::super::views::views;
    use super::*;

    const TOKEN: &str = "ghp_k3J9xQ2mZ7vR4tB8nW1cY6pL5sD0fG";

    fn learned(form: SecretForm, secret: &str) -> SecretPieces {
        let mut pieces = SecretPieces::default();
        pieces.learn(form, secret, 0);
        pieces
    }

    fn found<'a>(pieces: &SecretPieces, text: &'a str) -> Vec<&'a str> {
        let found = pieces.find(&views(text)).into_iter();
        found.map(|piece| &text[piece.range]).collect()
    }

    #[test]
    fn the_frame_of_a_key_is_no_secret() {
        for frame in [
            "User said: -----END RSA PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----",
        ] {
            assert!(is_bare_frame(frame), "{frame}");
        }
        for key in [
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq98hcl\n-----END RSA PRIVATE KEY-----",
            "MIIEpAIBAAKCAQEA7bq98hcl\n-----END RSA PRIVATE KEY-----",
            "hunter2hunter2",
        ] {
            assert!(!is_bare_frame(key), "{key}");
        }
    }

    #[test]
    fn what_is_left_of_a_cut_secret_is_found_from_eight_characters_on() {
        let pieces = learned(SecretForm::Token, TOKEN);
        assert_eq!(found(&pieces, "see mZ7vR4tB… there"), ["mZ7vR4tB"]);
        assert_eq!(found(&pieces, "see mZ7vR4t… there"), [""; 0]);
        assert_eq!(found(&pieces, "é ghp_k3J9xQ2m / cY6pL5sD0 é").len(), 2);
        assert_eq!(found(&pieces, "mZ7v\n  R4tB"), ["mZ7v\n  R4tB"]);
        let escaped = r#"{\"a\":\"mZ7v\\u00524tB8n\\n\"}"#;
        assert_eq!(found(&pieces, escaped).last(), Some(&r"mZ7v\\u00524tB8n"));
        assert_eq!(found(&pieces, TOKEN), [&TOKEN[4..]]);
    }

    #[test]
    fn of_a_private_key_only_its_digits_are_remembered() {
        let key = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n\
            MIIEowIBAAKCAQEA0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0u\nV1wX2yZ3aB4=\n\
            -----END RSA PRIVATE KEY-----";
        let pieces = learned(SecretForm::PrivateKey, key);
        assert_eq!(found(&pieces, "-----BEGIN RSA PRIVATE KEY-----").len(), 0);
        assert_eq!(found(&pieces, "Proc-Type: 4,ENCRYPTED").len(), 0);
        assert_eq!(found(&pieces, "2eF3gH4i and V1wX2yZ3aB4=").len(), 2);
        let cut = "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA0aB1 please take this key";
        assert_eq!(key_of(cut), "MIIEowIBAAKCAQEA0aB1");
    }

    #[test]
    fn what_all_secrets_of_a_kind_begin_with_is_no_piece() {
        let key = "sk_live_k3J9xQ2mZ7vR4tB8nW1c";
        assert_eq!(core_of(SecretForm::Token, key), key[8..]);
        assert_eq!(core_of(SecretForm::Free, key), key);
        assert_eq!(
            core_of(SecretForm::Token, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.x"),
            "eyJzdWIi.x"
        );
    }

    #[test]
    fn a_word_that_a_secret_shares_with_an_original_goes_free() {
        let mut pieces = learned(SecretForm::Free, "administrator-x7Kq2Zt9");
        pieces.compare(&views("ask the administrator; it ended in x7Kq2Zt9"));
        pieces.settle();
        assert_eq!(found(&pieces, "administrator"), [""; 0]);
        assert_eq!(found(&pieces, "x7Kq2Zt9"), ["x7Kq2Zt9"]);
        let hook = "https://hooks.example.com/T01/B7x9Kq2Zt";
        assert_eq!(
            found(&learned(SecretForm::Token, hook), "https://a.b"),
            [""; 0]
        );
    }
}
