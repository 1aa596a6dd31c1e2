//! The rules that find secrets.
//!
//! `rules/own.toml` has loopstore's own rules, `rules/gitleaks.toml` those of gitleaks as published. Rules for paths or
//! for files of one kind are left out.
//!
//! A rule runs only on a text with one of its keywords, and its expression is compiled at the first run. The
//! expressions of gitleaks require a space, a quote or the end of the text after a secret; here a secret ends where its
//! form ends ([`pattern`]).
//!
//! Each match has a [`Confidence`]. A rule for a distinctive form has high confidence. A rule for a name before the
//! secret (`secret = …`) checks how random the value is, and whether it is made of words.

mod pattern;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder};
use regex::bytes::{Captures, Regex};
use serde::Deserialize;

use super::classify::{entropy, is_made_of_words, is_path, is_uuid, looks_random};
use super::pieces::{SecretForm, is_bare_frame};
use super::policy::Confidence;
use pattern::{compile, with_own_end};

const OWN: &str = include_str!("rules/own.toml");
const GITLEAKS: &str = include_str!("rules/gitleaks.toml");

/// The rule for any name before a secret, which has the lowest priority.
const GENERIC: &str = "generic-api-key";

/// The rule for private keys, which have a frame.
const PRIVATE_KEY: &str = "private-key";

/// The part of gitleaks' expressions between a name and its secret.
const ASSIGNMENT: &str = r"\|\||:|=>|\?=|,)";

#[derive(Default, Deserialize)]
struct File {
    #[serde(default)]
    allowlist: Allow,
    #[serde(default)]
    gitleaks: Adjustments,
    rules: Vec<RuleText>,
}

/// Additions to rules of gitleaks.
#[derive(Default, Deserialize)]
struct Adjustments {
    medium: Vec<String>,
    random: Vec<String>,
    without: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleText {
    id: String,
    regex: Option<String>,
    path: Option<String>,
    #[serde(default)]
    keywords: Vec<String>,
    secret_group: Option<usize>,
    entropy: Option<f64>,
    #[serde(default)]
    allowlists: Vec<Allow>,
    confidence: Option<Confidence>,
    /// True if a value made of words is no secret.
    #[serde(default)]
    random: bool,
    /// True if a value made of words has low confidence, unless it has a digit and is no path.
    #[serde(default, rename = "words_are_low")]
    words_are_low: bool,
}

/// Values that look like a secret and are none.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allow {
    #[serde(default)]
    regexes: Vec<String>,
    regex_target: Option<String>,
    #[serde(default)]
    stopwords: Vec<String>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(skip)]
    compiled: OnceLock<(Vec<Regex>, Option<AhoCorasick>)>,
}

/// A rule.
struct Rule {
    form: RuleText,
    compiled: OnceLock<Option<Regex>>,
    /// The kind of the rule, which decides the confidence of a match.
    kind: RuleKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleKind {
    /// A rule of loopstore, with the stated confidence.
    Own(Confidence),
    /// A rule of gitleaks for a form.
    Form,
    /// A rule of gitleaks for a name before the secret.
    Named,
    /// The rule [`GENERIC`].
    Generic,
}

/// All rules with their keywords.
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Values that loopstore's rules without a form never match.
    no_values: Allow,
    /// Values that gitleaks' rules without a form never match.
    allowed: Allow,
    keywords: Option<AhoCorasick>,
    /// The rule of each keyword.
    of_keyword: Vec<usize>,
    /// Rules without a keyword.
    always: BTreeSet<usize>,
}

/// A match of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretMatch {
    pub(super) range: Range<usize>,
    /// The index of its rule; a smaller index has priority.
    pub(super) rule: usize,
    pub(super) confidence: Confidence,
}

/// Returns the rules.
pub(super) fn rules() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(Rules::load)
}

impl Allow {
    fn compiled(&self) -> &(Vec<Regex>, Option<AhoCorasick>) {
        self.compiled.get_or_init(|| {
            let regexes = self.regexes.iter().filter_map(|one| compile(one)).collect();
            let mut words = AhoCorasickBuilder::new();
            words.ascii_case_insensitive(true);
            let has_words = !self.stopwords.is_empty();
            let words = has_words.then(|| words.build(&self.stopwords).ok());
            (regexes, words.flatten())
        })
    }

    fn contains(&self, whole: &[u8], secret: &[u8]) -> bool {
        // Rules for the path or line of a file do not apply to messages.
        let target = match self.regex_target.as_deref() {
            Some("line") => return false,
            Some("match") => whole,
            _ => secret,
        };
        if !self.paths.is_empty() {
            return false;
        }
        let (regexes, words) = self.compiled();
        regexes.iter().any(|one| one.is_match(target))
            || words.as_ref().is_some_and(|words| words.is_match(secret))
    }
}

impl Rules {
    fn load() -> Self {
        // Both files are compiled in, and a test parses them.
        let read = |text: &str| toml::from_str::<File>(text).unwrap_or_default();
        let (own, leaks) = (read(OWN), read(GITLEAKS));
        let adjusted = own.gitleaks;
        let mut rules: Vec<Rule> = own.rules.into_iter().map(Rule::own).collect();
        let leaks_rules = leaks.rules.into_iter();
        let leaks_rules = leaks_rules.filter(|rule| !adjusted.without.contains(&rule.id));
        rules.extend(leaks_rules.map(|rule| Rule::of_gitleaks(rule, &adjusted)));
        rules.retain(|rule| rule.form.regex.is_some() && rule.form.path.is_none());
        rules.sort_by_key(|rule| rule.kind == RuleKind::Generic);
        let mut allowed = leaks.allowlist;
        allowed.paths.clear();
        Self::new(rules, own.allowlist, allowed)
    }

    fn new(rules: Vec<Rule>, no_values: Allow, allowed: Allow) -> Self {
        let (mut words, mut of_keyword, mut always) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (at, rule) in rules.iter().enumerate() {
            if rule.form.keywords.is_empty() {
                always.insert(at);
            }
            for word in &rule.form.keywords {
                words.push(word.to_lowercase());
                of_keyword.push(at);
            }
        }
        let keywords = AhoCorasickBuilder::new()
            .ascii_case_insensitive(true)
            .build(&words)
            .ok();
        Self {
            rules,
            no_values,
            allowed,
            keywords,
            of_keyword,
            always,
        }
    }

    /// Returns the name of a rule, which is the type of its secrets.
    pub(super) fn name(&self, rule: usize) -> &str {
        self.rules.get(rule).map_or("secret", |rule| &rule.form.id)
    }

    /// Returns the names of all rules, sorted.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        self.rules.iter().map(|rule| &*rule.form.id).collect()
    }

    /// Returns the form of the secrets of a rule.
    pub(super) fn form(&self, rule: usize) -> SecretForm {
        let Some(rule) = self.rules.get(rule) else {
            return SecretForm::Free;
        };
        match rule.kind {
            _ if rule.form.id == PRIVATE_KEY => SecretForm::PrivateKey,
            RuleKind::Own(Confidence::High) | RuleKind::Form => SecretForm::Token,
            RuleKind::Named => SecretForm::Token,
            _ => SecretForm::Free,
        }
    }

    /// True if a text contains a keyword of a rule.
    pub(super) fn has_keyword(&self, text: &str) -> bool {
        let keywords = self.keywords.as_ref();
        !self.always.is_empty() || keywords.is_none_or(|words| words.is_match(text))
    }

    /// Returns the matches in a text; several rules may match one secret.
    pub(super) fn find(&self, text: &str) -> Vec<SecretMatch> {
        let mut hits = Vec::new();
        for rule in self.rules_with_keyword(text) {
            self.run(rule, text, &mut hits);
        }
        hits
    }

    /// Returns the rules with a keyword in the text.
    fn rules_with_keyword(&self, text: &str) -> BTreeSet<usize> {
        let mut awake = self.always.clone();
        let Some(keywords) = &self.keywords else {
            return (0..self.rules.len()).collect();
        };
        for found in keywords.find_overlapping_iter(text) {
            awake.insert(self.of_keyword[found.pattern().as_usize()]);
            if awake.len() == self.rules.len() {
                break;
            }
        }
        awake
    }

    fn run(&self, at: usize, text: &str, hits: &mut Vec<SecretMatch>) {
        let rule = &self.rules[at];
        let Some(regex) = rule.regex() else { return };
        let bytes = text.as_bytes();
        let mut from = 0;
        while from <= bytes.len() {
            let Some(captures) = regex.captures_at(bytes, from) else {
                return;
            };
            let whole = captures.get(0).map_or(from..from, |found| found.range());
            let secret = rule.secret_of(&captures).unwrap_or_else(|| whole.clone());
            if let Some(confidence) =
                self.judge(rule, &bytes[whole.clone()], &bytes[secret.clone()])
            {
                let range = whole_characters(text, secret.clone());
                hits.push(SecretMatch {
                    range,
                    rule: at,
                    confidence,
                });
            }
            // The end of a match may be the beginning of the next.
            from = secret.end.max(whole.start + 1);
        }
    }

    /// Returns the confidence of a match; `None` if it is no secret.
    fn judge(&self, rule: &Rule, whole: &[u8], secret: &[u8]) -> Option<Confidence> {
        let mut lists = rule.form.allowlists.iter();
        if secret.is_empty() || lists.any(|allow| allow.contains(whole, secret)) {
            return None;
        }
        let text = String::from_utf8_lossy(secret);
        // Source code and documents contain the frame without a key.
        if rule.form.id == PRIVATE_KEY && is_bare_frame(&text) {
            return None;
        }
        if rule.form.random && (!looks_random(&text) || is_made_of_words(&text)) {
            return None;
        }
        let is_random_enough = rule
            .form
            .entropy
            .is_none_or(|least| entropy(secret) > least);
        let is_low = match rule.kind {
            RuleKind::Own(Confidence::High) => return Some(Confidence::High),
            // A check for randomness would only let dummy values through.
            RuleKind::Form if is_random_enough && rule.form.confidence.is_none() => {
                return Some(Confidence::High);
            }
            RuleKind::Form => false,
            RuleKind::Own(_) if self.no_values.contains(whole, secret) => return None,
            RuleKind::Own(confidence) => {
                // Many passwords are a word with a number, while paths are not.
                let has_digit = secret.iter().any(u8::is_ascii_digit);
                let is_words = is_made_of_words(&text) && (!has_digit || is_path(&text));
                confidence == Confidence::Low || (rule.form.words_are_low && is_words)
            }
            _ if !is_random_enough || self.allowed.contains(whole, secret) => return None,
            RuleKind::Named => is_made_of_words(&text),
            RuleKind::Generic => {
                let is_name = !looks_random(&text) || is_made_of_words(&text);
                is_name || is_uuid(&text) || names_an_id(whole, secret)
            }
        };
        Some(match is_low {
            true => Confidence::Low,
            false => Confidence::Medium,
        })
    }
}

impl Rule {
    fn own(form: RuleText) -> Self {
        let kind = RuleKind::Own(form.confidence.unwrap_or(Confidence::Medium));
        Self {
            form,
            compiled: OnceLock::new(),
            kind,
        }
    }

    fn of_gitleaks(mut form: RuleText, adjusted: &Adjustments) -> Self {
        let is_named = form
            .regex
            .as_ref()
            .is_some_and(|one| one.contains(ASSIGNMENT));
        let kind = match form.id == GENERIC {
            true => RuleKind::Generic,
            false if is_named => RuleKind::Named,
            false => RuleKind::Form,
        };
        form.random |= adjusted.random.contains(&form.id);
        if adjusted.medium.contains(&form.id) {
            form.confidence = Some(Confidence::Medium);
        }
        Self {
            form,
            compiled: OnceLock::new(),
            kind,
        }
    }

    fn regex(&self) -> Option<&Regex> {
        let pattern = self.form.regex.as_deref()?;
        self.compiled
            .get_or_init(|| compile(&with_own_end(pattern)))
            .as_ref()
    }

    /// Returns the group of the secret: the named one, else the first that matched.
    fn secret_of(&self, captures: &Captures<'_>) -> Option<Range<usize>> {
        let group = |at| captures.get(at).filter(|found| !found.is_empty());
        let found = match self.form.secret_group {
            Some(at) => group(at),
            None => (1..captures.len()).find_map(group),
        };
        found.map(|found| found.range())
    }
}

/// True if the name before a value says that it is an id: `apiCallId`, `key_id`.
fn names_an_id(whole: &[u8], secret: &[u8]) -> bool {
    let before = whole.windows(secret.len()).position(|part| part == secret);
    let before = &whole[..before.unwrap_or(0)];
    let end = before.iter().rposition(u8::is_ascii_alphanumeric);
    let name = &before[..end.map_or(0, |at| at + 1)];
    [&b"Id"[..], b"ID", b"_id", b"-id"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Widens a range to whole characters.
fn whole_characters(text: &str, mut range: Range<usize>) -> Range<usize> {
    while !text.is_char_boundary(range.start) {
        range.start -= 1;
    }
    while !text.is_char_boundary(range.end) {
        range.end += 1;
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_read_and_compiled() {
        let rules = rules();
        let count = |own: bool| {
            let rules = rules.rules.iter();
            rules
                .filter(|rule| matches!(rule.kind, RuleKind::Own(_)) == own)
                .count()
        };
        assert!(count(true) > 40 && count(false) > 200);
        for rule in &rules.rules {
            assert!(rule.regex().is_some(), "{}", rule.form.id);
            // Conditions on the line of a file are ignored.
            let applies = |allow: &&Allow| allow.regex_target.as_deref() != Some("line");
            for allow in rule.form.allowlists.iter().filter(applies) {
                let compiled = allow.compiled().0.len();
                assert_eq!(compiled, allow.regexes.len(), "{}", rule.form.id);
            }
        }
        for allow in [&rules.allowed, &rules.no_values] {
            assert!(!allow.regexes.is_empty());
            assert_eq!(allow.compiled().0.len(), allow.regexes.len());
        }
        assert_eq!(rules.name(rules.rules.len() - 1), GENERIC);
    }

    #[test]
    fn every_adjusted_rule_is_one_of_gitleaks() {
        let own: File = toml::from_str(OWN).unwrap();
        let leaks: File = toml::from_str(GITLEAKS).unwrap();
        let adjusted = own.gitleaks;
        for id in [adjusted.medium, adjusted.random, adjusted.without].concat() {
            assert!(leaks.rules.iter().any(|rule| rule.id == id), "{id}");
        }
    }
}
