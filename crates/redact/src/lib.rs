//! Finding secrets and putting markers in their places.
//!
//! A marker is `[REDACTED:type:digest]`: the name of the rule that found the secret, and six
//! hexadecimal digits of a digest that is keyed with a random key of the database. Equal secrets have
//! equal markers, and without the database nobody can try out what stood there.
//!
//! What is found has a [`Confidence`], and a [`RedactionPolicy`] says what of it is replaced; the rest is only
//! reported.
//!
//! A secret that is split across content blocks is not found, nor one in the pixels of an image.
//!
//! The crate reads no database: which messages are redacted, and what is recorded of it, is the task of
//! `loopstore`. The rules are those of gitleaks and some of our own, in `rules/`.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod finding;
mod json;
mod known;
mod looks;
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
use pieces::Pieces;
use sealed::unsign;
use views::views;

pub use finding::{Finding, FoundBy};
pub use policy::{Confidence, RedactionPolicy, UnknownRule, rule_names};
#[doc(hidden)]
pub use sealed::drop_sealed;

/// The digits of a digest in a marker.
const MARKER_DIGITS: usize = 6;

/// Replaces secrets by markers and counts them.
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
    /// Secrets that were found; `None`: they are not remembered.
    known: Option<KnownSecrets>,
    /// Finds parts of those.
    pieces: Pieces,
    /// The secrets of which there are pieces.
    cut: Vec<KnownSecret>,
    /// True if parts of what is found are looked for too.
    learns_pieces: bool,
    /// True if parts are replaced.
    replaces_pieces: bool,
    /// The number of parts that were replaced.
    pieces_replaced: u64,
    /// What was found; `None`: it is not kept.
    findings: Option<Vec<Finding>>,
}

/// The numbers of what was replaced and what was not.
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
    /// A redactor whose markers are keyed with `key`.
    pub fn new(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            policy: RedactionPolicy::default(),
            counts: BTreeMap::new(),
            held_back: BTreeMap::new(),
            known: None,
            pieces: Pieces::default(),
            cut: Vec::new(),
            learns_pieces: false,
            replaces_pieces: false,
            pieces_replaced: 0,
            findings: None,
        }
    }

    /// Replaces what a policy says, and not all that is found.
    #[must_use]
    pub fn with_policy(mut self, policy: RedactionPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Remembers what it finds, and from then on replaces it also where no rule would find it: a
    /// password that a summary tells without saying that it is one.
    #[must_use]
    pub fn remembering(mut self) -> Self {
        self.known.get_or_insert_default();
        self
    }

    /// Returns how many secrets were replaced, by type.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Returns how many secrets were found and not replaced, as their confidence is too low, by type.
    pub fn held_back(&self) -> &BTreeMap<String, u64> {
        &self.held_back
    }

    /// Returns the secrets in a text, masked, and changes nothing.
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

    /// Keeps what is found from now on, for [`Redactor::take_findings`].
    #[doc(hidden)]
    pub fn keep_findings(&mut self) {
        self.findings.get_or_insert_default();
    }

    /// Returns what was found since the last time.
    #[doc(hidden)]
    pub fn take_findings(&mut self) -> Vec<Finding> {
        let findings = self.findings.as_mut();
        findings.map(std::mem::take).unwrap_or_default()
    }

    /// Returns the counts since the last time.
    #[doc(hidden)]
    pub fn take_counts(&mut self) -> RedactionCounts {
        RedactionCounts {
            secrets: std::mem::take(&mut self.counts),
            pieces: std::mem::take(&mut self.pieces_replaced),
            held_back: std::mem::take(&mut self.held_back),
        }
    }

    /// Sets whether parts of what is found next are to be looked for too. A summary that cuts a text may make
    /// its own words look like a secret.
    #[doc(hidden)]
    pub fn learn_pieces(&mut self, learns: bool) {
        self.learns_pieces = learns;
    }

    /// Compares what was found with an original, which may have words in common with a secret.
    #[doc(hidden)]
    pub fn compare(&mut self, original: &str) {
        self.pieces.compare(&views(original));
    }

    /// Replaces parts of the secrets that were found, too, from now on.
    #[doc(hidden)]
    pub fn replace_pieces(&mut self) {
        self.pieces.settle();
        self.learns_pieces = false;
        self.replaces_pieces = true;
    }

    /// Whether a secret that was found, or a part of one, stands in bytes that are no text.
    #[doc(hidden)]
    pub fn is_in_bytes(&self, bytes: &[u8]) -> bool {
        self.pieces.are_in_bytes(bytes)
    }

    /// Redacts a text; `None` if nothing is replaced.
    pub fn text(&mut self, text: &str) -> Option<String> {
        self.named(None, text)
    }

    /// Redacts JSON, string by string, keys too; `None` if nothing was found. Text that is no JSON is
    /// redacted as text.
    pub fn json(&mut self, text: &str) -> Option<String> {
        self.of_form(text, false)
    }

    /// Redacts the key of an append: as a whole; `None` if nothing is replaced.
    #[doc(hidden)]
    pub fn append_key(&mut self, name: &str) -> Option<String> {
        self.text(name).map(|_| append_key_marker(&self.key, name))
    }

    /// Redacts JSON in which fields that name sessions and loops stay.
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

    /// Redacts a message; `None` if nothing was found. Thinking that changes loses its signature: it
    /// would no longer hold. A sealed item that would change is left out.
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

    /// Whether what is not read as text holds a secret: the bytes of an image, a signature.
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

    /// Takes out images and signatures that hold a secret: no part of them could be replaced.
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

    /// Redacts a value by its JSON; `None` if nothing was found. Fields that name sessions and loops
    /// stay.
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

    /// Redacts the value of a field: its name may tell that it is a secret.
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

/// Adds numbers of secrets by type.
#[doc(hidden)]
pub fn add_counts(sums: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (kind, count) in counts {
        *sums.entry(kind.clone()).or_default() += count;
    }
}

/// Returns the marker that stands for a secret of a type.
fn marker(rule: &str, id: &str) -> String {
    format!("{MARKER}{rule}:{}]", &id[..MARKER_DIGITS])
}
