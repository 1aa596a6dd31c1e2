//! Detection of secrets in texts and messages, and their replacement by markers.
//!
//! A marker is `[REDACTED:type:digest]`: the name of the rule that found the secret, and six hexadecimal digits of a
//! digest keyed with a random key of the database. Equal secrets have equal markers, and without the database nobody
//! can test guesses of the secret.
//!
//! Each secret found has a [`Confidence`]. A [`RedactionPolicy`] decides which secrets are replaced; the others are
//! only reported.
//!
//! Secrets that are split across content blocks, and secrets in the pixels of an image, are not found.
//!
//! The crate accesses no database: `loopstore` decides which messages are redacted, and records it. The rules are those
//! of gitleaks and some of loopstore's own, in `rules/`.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod classify;
mod finding;
mod json;
mod known;
mod pieces;
mod policy;
mod rules;
mod sealed;
mod search;
mod views;

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use known::{KnownSecret, KnownSecrets};
use loopstore_model::redaction::{MARKER, append_key_marker};
use loopstore_model::{AgentMessage, Content, Json, Message, image_data};
use pieces::SecretPieces;
use sealed::unsign;
use views::views;

pub use finding::{Finding, FoundBy};
pub use policy::{Confidence, RedactionPolicy, UnknownRule, rule_names};
#[doc(hidden)]
pub use sealed::{drop_sealed, sealed_parts};

/// The number of digits of the digest in a marker.
const MARKER_DIGITS: usize = 6;

/// A redactor, which replaces secrets by markers and counts them.
///
/// # Examples
/// ```
/// use loopstore_redact::Redactor;
///
/// let mut redactor = Redactor::new(b"a random key");
/// let found = redactor.text("git clone https://me:hunter2@example.org/x");
/// assert!(found.unwrap().starts_with("git clone https://me:[REDACTED:url-password:"));
/// assert_eq!(redactor.text("nothing here"), None);
/// assert_eq!(redactor.counts()["url-password"], 1);
/// ```
#[derive(Clone, Debug)]
pub struct Redactor {
    key: Vec<u8>,
    policy: RedactionPolicy,
    counts: BTreeMap<String, u64>,
    /// Secrets that were found and not replaced, by type.
    held_back: BTreeMap<String, u64>,
    /// The secrets that were found; `None` if they are not remembered.
    known: Option<KnownSecrets>,
    /// The parts of the secrets that were found.
    pieces: SecretPieces,
    /// The secrets that have such parts.
    cut: Vec<KnownSecret>,
    /// True if parts of the secrets found next are recorded.
    learns_pieces: bool,
    /// True if parts are replaced.
    replaces_pieces: bool,
    /// The number of parts that were replaced.
    pieces_replaced: u64,
    /// The findings; `None` if they are not kept.
    findings: Option<Vec<Finding>>,
}

/// The numbers of secrets that were replaced, and of secrets that were found and not replaced.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct RedactionCounts {
    /// Secrets that were replaced, by type.
    #[doc(hidden)]
    pub secrets: BTreeMap<String, u64>,
    /// Parts of secrets that were replaced.
    #[doc(hidden)]
    pub pieces: u64,
    /// Secrets that were found and not replaced, by type.
    #[doc(hidden)]
    pub held_back: BTreeMap<String, u64>,
}

impl Redactor {
    /// Returns a redactor whose markers are keyed with `key`.
    pub fn new(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            policy: RedactionPolicy::default(),
            counts: BTreeMap::new(),
            held_back: BTreeMap::new(),
            known: None,
            pieces: SecretPieces::default(),
            cut: Vec::new(),
            learns_pieces: false,
            replaces_pieces: false,
            pieces_replaced: 0,
            findings: None,
        }
    }

    /// Sets the policy, which decides which secrets are replaced. Without a policy all secrets are replaced.
    #[must_use]
    pub fn with_policy(mut self, policy: RedactionPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Makes the redactor remember the secrets that it finds, and replace them in later texts even if no rule finds
    /// them there. An example is a password that a summary repeats without the name before it.
    #[must_use]
    pub fn remembering(mut self) -> Self {
        self.known.get_or_insert_default();
        self
    }

    /// Returns the number of secrets that were replaced, by type.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Returns the number of secrets that were not replaced, since their confidence is too low, by type.
    pub fn held_back(&self) -> &BTreeMap<String, u64> {
        &self.held_back
    }

    /// Returns the secrets of a text, masked, and does not change the counts.
    ///
    /// # Examples
    /// ```
    /// use loopstore_redact::{Confidence, Redactor};
    ///
    /// let mut redactor = Redactor::new(b"a random key");
    /// let found = redactor.findings("export DB_PASSWORD=QuietRiverStone");
    /// assert_eq!((found[0].rule.as_str(), found[0].confidence), ("password", Confidence::Medium));
    /// assert_eq!(found[0].masked, "Q…e");
    /// ```
    pub fn findings(&mut self, text: &str) -> Vec<Finding> {
        let before = self.findings.replace(Vec::new());
        self.find(None, text);
        std::mem::replace(&mut self.findings, before).unwrap_or_default()
    }

    /// Makes the redactor keep its findings for [`Redactor::take_findings`].
    #[doc(hidden)]
    pub fn keep_findings(&mut self) {
        self.findings.get_or_insert_default();
    }

    /// Returns the findings since the last call of this function.
    #[doc(hidden)]
    pub fn take_findings(&mut self) -> Vec<Finding> {
        let findings = self.findings.as_mut();
        findings.map(std::mem::take).unwrap_or_default()
    }

    /// Returns the counts since the last call of this function.
    #[doc(hidden)]
    pub fn take_counts(&mut self) -> RedactionCounts {
        RedactionCounts {
            secrets: std::mem::take(&mut self.counts),
            pieces: std::mem::take(&mut self.pieces_replaced),
            held_back: std::mem::take(&mut self.held_back),
        }
    }

    /// If `learns` is true, records parts of the secrets that are found from now on. Do not record parts while
    /// redacting summaries: in a cut text, ordinary words may look like a secret.
    #[doc(hidden)]
    pub fn learn_pieces(&mut self, learns: bool) {
        self.learns_pieces = learns;
    }

    /// Compares the recorded parts with an original text, and drops the parts that are ordinary words of that text.
    #[doc(hidden)]
    pub fn compare(&mut self, original: &str) {
        self.pieces.compare(&views(original));
    }

    /// Makes the redactor also replace the recorded parts of secrets.
    #[doc(hidden)]
    pub fn replace_pieces(&mut self) {
        self.pieces.settle();
        self.learns_pieces = false;
        self.replaces_pieces = true;
    }

    /// True if bytes, such as those of a binary file, contain a known secret or a part of one.
    #[doc(hidden)]
    pub fn is_in_bytes(&self, bytes: &[u8]) -> bool {
        self.pieces.are_in_bytes(bytes)
    }

    /// Returns the text with secrets replaced; `None` if nothing is replaced.
    pub fn text(&mut self, text: &str) -> Option<String> {
        self.named(None, text)
    }

    /// Returns JSON with the secrets in its strings replaced, keys included; `None` if nothing is replaced. A text
    /// that is not JSON is redacted as text.
    pub fn json(&mut self, text: &str) -> Option<String> {
        self.of_form(text, false)
    }

    /// Returns the replacement of a whole append key that contains a secret; `None` if it contains none.
    #[doc(hidden)]
    pub fn append_key(&mut self, name: &str) -> Option<String> {
        self.text(name).map(|_| append_key_marker(&self.key, name))
    }

    /// Redacts JSON as [`Redactor::json`] does, except fields with ids of sessions and loops.
    #[doc(hidden)]
    pub fn meta(&mut self, text: &str) -> Option<String> {
        self.of_form(text, true)
    }

    fn of_form(&mut self, text: &str, keep_ids: bool) -> Option<String> {
        match Json::parse(text) {
            Ok(json) => self.in_json(json.as_str(), keep_ids),
            Err(_) => self.text(text),
        }
    }

    /// Returns the message with secrets replaced; `None` if nothing is replaced. Thinking that changes loses its
    /// signature, which would be invalid. A sealed item whose text would change is removed.
    ///
    /// # Errors
    /// If the message cannot be written as JSON.
    pub fn message(&mut self, message: &AgentMessage) -> serde_json::Result<Option<AgentMessage>> {
        let mut new = self.value(message, false)?;
        if let Some(new) = &mut new {
            unsign(message, new);
        }
        if self.replaces_pieces && self.is_in_bytes_of(new.as_ref().unwrap_or(message)) {
            self.replace_in_bytes(new.get_or_insert_with(|| message.clone()));
        }
        Ok(new)
    }

    fn is_in_bytes_of(&self, message: &AgentMessage) -> bool {
        let content = message.message().map_or(&[][..], Message::content);
        content.iter().any(|block| self.is_in_block(block))
    }

    /// True if the bytes of an image or a signature contain a secret.
    fn is_in_block(&self, block: &Content) -> bool {
        match block {
            Content::Image(image) => {
                let bytes = image_data(image);
                let bytes = bytes.as_deref().unwrap_or(image.data.as_bytes());
                self.is_in_bytes(bytes)
            }
            Content::Thinking(thinking) => {
                let signature = thinking.signature.as_deref().unwrap_or_default();
                self.is_in_bytes(signature.as_bytes())
            }
            _ => false,
        }
    }

    /// Removes images and signatures that contain a secret, since no part of them can be replaced.
    fn replace_in_bytes(&mut self, message: &mut AgentMessage) {
        let content = message.message_mut().map(Message::content_mut);
        for block in content.into_iter().flatten() {
            if !self.is_in_block(block) {
                continue;
            }
            self.pieces_replaced += 1;
            match block {
                Content::Thinking(thinking) => thinking.signature = None,
                _ => *block = Content::text(marker("image", &self.id_of("image"))),
            }
        }
    }

    /// Redacts a value by its JSON; `None` if nothing was found. Fields with ids of sessions and loops are unchanged.
    ///
    /// # Errors
    /// If the value cannot be written as JSON or read again.
    #[doc(hidden)]
    pub fn described<T: Serialize + DeserializeOwned>(
        &mut self,
        value: &T,
    ) -> serde_json::Result<Option<T>> {
        self.value(value, true)
    }

    fn value<T: Serialize + DeserializeOwned>(
        &mut self,
        value: &T,
        keep_ids: bool,
    ) -> serde_json::Result<Option<T>> {
        let text = serde_json::to_string(value)?;
        let new = self.in_json(&text, keep_ids);
        new.map(|new| serde_json::from_str(&new)).transpose()
    }

    /// Redacts the value of a field, whose name may show that it is a secret.
    fn named(&mut self, name: Option<&str>, text: &str) -> Option<String> {
        let found = self.find(name, text);
        if found.is_empty() {
            return None;
        }
        let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
        for one in found {
            out.push_str(&text[copied..one.range.start]);
            out.push_str(&one.marker());
            copied = one.range.end;
            match one.found_by {
                FoundBy::Part => self.pieces_replaced += 1,
                _ => *self.counts.entry(one.rule_name().to_owned()).or_default() += 1,
            }
        }
        out.push_str(&text[copied..]);
        Some(out)
    }
}

/// Adds `counts` to `sums`, type by type.
#[doc(hidden)]
pub fn add_counts(sums: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (kind, count) in counts {
        *sums.entry(kind.clone()).or_default() += count;
    }
}

/// Returns the marker of a secret.
fn marker(rule: &str, id: &str) -> String {
    format!("{MARKER}{rule}:{}]", &id[..MARKER_DIGITS])
}
