//! The policy that decides which secrets are replaced.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::rules::rules;

/// The confidence that a match is a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A value after a name such as `key`, which may be a path, an identifier or a digest.
    Low,
    /// A value that looks like a secret, after a name for a secret.
    #[default]
    Medium,
    /// A secret with a distinctive form: a key of a known service, a private key.
    High,
}

impl Confidence {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The policy of a redaction. By default, all secrets with medium or high confidence are replaced.
///
/// # Examples
/// ```
/// use loopstore_redact::{RedactionPolicy, Redactor};
///
/// let policy = RedactionPolicy::default().allow("hunter2");
/// let mut redactor = Redactor::new(b"a random key").with_policy(policy);
/// assert_eq!(redactor.text("https://me:hunter2@example.org"), None);
/// assert!(redactor.text("https://me:hunter3@example.org").is_some());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactionPolicy {
    /// Values, or ids of [findings](super::Finding), that are not secrets.
    pub allow: BTreeSet<String>,
    /// Values, or ids of findings, that are replaced regardless of their confidence.
    pub confirm: BTreeSet<String>,
    /// The rules that apply; all if empty.
    pub only: BTreeSet<String>,
    /// The lowest confidence with which a secret is replaced; others are only reported.
    pub min_confidence: Confidence,
}

impl RedactionPolicy {
    /// Adds a value, or the id of a finding, that is not a secret.
    #[must_use]
    pub fn allow(mut self, value: impl Into<String>) -> Self {
        self.allow.insert(value.into().trim().to_owned());
        self
    }

    /// Adds the lines of an allow file: each a value or the id of a finding. Empty lines, and lines that begin
    /// with `#`, are skipped.
    #[must_use]
    pub fn allow_lines(self, text: &str) -> Self {
        let lines = text.lines().map(str::trim);
        let values = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        values.fold(self, Self::allow)
    }

    /// Adds a rule. Once a rule is added, only added rules apply.
    ///
    /// # Errors
    /// If there is no such rule; the error lists the names of all rules.
    pub fn only(mut self, rule: impl Into<String>) -> Result<Self, UnknownRule> {
        let rule = rule.into();
        if !rules().names().contains(&*rule) {
            return Err(UnknownRule(rule));
        }
        self.only.insert(rule);
        Ok(self)
    }

    /// Sets the lowest confidence with which a secret is replaced.
    #[must_use]
    pub fn min_confidence(mut self, confidence: Confidence) -> Self {
        self.min_confidence = confidence;
        self
    }

    /// True if a rule applies.
    pub(super) fn applies(&self, rule: &str) -> bool {
        self.only.is_empty() || self.only.contains(rule)
    }
}

/// The error for a rule that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown rule `{0}`")]
pub struct UnknownRule(pub String);

/// Returns the names of the rules, which are the types of the secrets that they find.
///
/// # Examples
/// ```
/// let names: Vec<&str> = loopstore_redact::rule_names().collect();
/// assert!(names.contains(&"github-pat") && names.contains(&"password"));
/// ```
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    rules().names().into_iter()
}
