//! The rules that find secrets, and where they come from.
//!
//! The rule set is that of the crate `secrets_scanner`, which puts together those of gitleaks and
//! other scanners and keeps them up to date. `own.toml` adds what is missing there. Rules that look
//! at a path only, or at files of one kind, are left out.
//!
//! A rule runs only where one of its keywords stands, and its expression is compiled when it first
//! runs. Where a rule knows a secret by its own form, a look at how random it is would only let
//! dummies through; a rule that knows it by the name before it (`secret = …`) needs that look.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder};
use regex::bytes::{Captures, Regex, RegexBuilder};
use secrets_scanner::rules::BUNDLED_RULES;
use serde::Deserialize;

const OWN: &str = include_str!("own.toml");

/// The rule that goes by a name before the secret alone; it has the last word.
const GENERIC: &str = "generic-api-key";

/// What stands between a name and its secret in the expressions of gitleaks.
const ASSIGNMENT: &str = r"\|\||:|=>|\?=|,)";

/// The most bytes of a compiled expression.
const MAX_COMPILED: usize = 64 << 20;

#[derive(Deserialize)]
struct File {
    allowlist: Option<Allow>,
    rules: Vec<RuleText>,
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
}

/// What is no secret though it looks like one.
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
    compiled: OnceLock<Vec<Regex>>,
}

/// One rule.
struct Rule {
    form: RuleText,
    compiled: OnceLock<Option<Regex>>,
    /// Whether it knows a secret by what stands before it.
    is_loose: bool,
}

/// All rules, and the words that wake them.
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Allowed whatever the rule that goes by a name says.
    allowed: Allow,
    keywords: Option<AhoCorasick>,
    /// The rule of each keyword.
    of_keyword: Vec<usize>,
    /// Rules without a keyword.
    always: BTreeSet<usize>,
}

/// Where a rule found a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretMatch {
    pub(super) range: Range<usize>,
    /// The place of its rule: a smaller one knows more.
    pub(super) rule: usize,
}

/// Returns the rules.
pub(super) fn rules() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(Rules::load)
}

fn compile(pattern: &str) -> Option<Regex> {
    // Bytes: without Unicode the expressions stay small and mean what they mean to gitleaks.
    let build = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        builder.unicode(false).size_limit(MAX_COMPILED).build().ok()
    };
    // To Go a brace that counts nothing is itself.
    build(pattern).or_else(|| build(&with_plain_braces(pattern)))
}

/// Puts a backslash before each opening brace that counts nothing.
fn with_plain_braces(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut is_escaped = false;
    for (at, c) in pattern.char_indices() {
        let counts = pattern[at + c.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        if c == '{' && !is_escaped && !counts {
            out.push('\\');
        }
        out.push(c);
        is_escaped = c == '\\' && !is_escaped;
    }
    out
}

impl Allow {
    fn regexes(&self) -> &[Regex] {
        self.compiled
            .get_or_init(|| self.regexes.iter().filter_map(|one| compile(one)).collect())
    }

    fn holds(&self, whole: &[u8], secret: &[u8]) -> bool {
        // What goes by the path or the line of a file does not fit here.
        let target = match self.regex_target.as_deref() {
            Some("line") => return false,
            Some("match") => whole,
            _ => secret,
        };
        if !self.paths.is_empty() {
            return false;
        }
        let low = String::from_utf8_lossy(secret).to_lowercase();
        self.regexes().iter().any(|one| one.is_match(target))
            || self
                .stopwords
                .iter()
                .any(|word| low.contains(word.as_str()))
    }
}

impl Rules {
    fn load() -> Self {
        // Both are part of the program; a test reads them.
        let read = |text: &str| toml::from_str::<File>(text).ok();
        let (own, leaks) = (read(OWN), read(BUNDLED_RULES));
        let mut rules: Vec<Rule> = Vec::new();
        rules.extend(own.into_iter().flat_map(|file| file.rules).map(Rule::new));
        let mut allowed = Allow::default();
        if let Some(file) = leaks {
            allowed = file.allowlist.unwrap_or_default();
            allowed.paths.clear();
            rules.extend(file.rules.into_iter().map(Rule::new));
        }
        rules.retain(|rule| rule.form.regex.is_some() && rule.form.path.is_none());
        rules.sort_by_key(|rule| rule.form.id == GENERIC);
        Self::with(rules, allowed)
    }

    fn with(rules: Vec<Rule>, allowed: Allow) -> Self {
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
            allowed,
            keywords,
            of_keyword,
            always,
        }
    }

    /// Returns the name of a rule: the type of the secrets that it finds.
    pub(super) fn name(&self, rule: usize) -> &str {
        self.rules.get(rule).map_or("secret", |rule| &rule.form.id)
    }

    /// Finds secrets; several rules may find one.
    pub(super) fn find(&self, text: &str) -> Vec<SecretMatch> {
        let mut hits = Vec::new();
        for rule in self.awake(text) {
            self.run(rule, text, &mut hits);
        }
        hits
    }

    /// Returns the rules of which a keyword stands in the text.
    fn awake(&self, text: &str) -> BTreeSet<usize> {
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
            if self.is_secret(rule, &bytes[whole.clone()], &bytes[secret.clone()]) {
                let range = whole_characters(text, secret.clone());
                hits.push(SecretMatch { range, rule: at });
            }
            // What ends one match may begin the next.
            from = secret.end.max(whole.start + 1);
        }
    }

    fn is_secret(&self, rule: &Rule, whole: &[u8], secret: &[u8]) -> bool {
        if secret.is_empty() {
            return false;
        }
        let least = rule.form.entropy.filter(|_| rule.is_loose);
        let is_random = least.is_none_or(|least| entropy(secret) > least);
        let mut allows = rule.form.allowlists.iter();
        let is_allowed = allows.any(|allow| allow.holds(whole, secret))
            || (rule.is_loose && self.allowed.holds(whole, secret));
        is_random && !is_allowed
    }
}

impl Rule {
    fn new(form: RuleText) -> Self {
        let is_loose = form
            .regex
            .as_ref()
            .is_some_and(|one| one.contains(ASSIGNMENT));
        Self {
            form,
            compiled: OnceLock::new(),
            is_loose,
        }
    }

    fn regex(&self) -> Option<&Regex> {
        let pattern = self.form.regex.as_deref()?;
        self.compiled.get_or_init(|| compile(pattern)).as_ref()
    }

    /// Returns the group that holds the secret: the one named, else the first that took part.
    fn secret_of(&self, captures: &Captures<'_>) -> Option<Range<usize>> {
        let group = |at| captures.get(at).filter(|found| !found.is_empty());
        let found = match self.form.secret_group {
            Some(at) => group(at),
            None => (1..captures.len()).find_map(group),
        };
        found.map(|found| found.range())
    }
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

/// Returns the entropy in bits a byte.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let all = bytes.len() as f64;
    let part = |count: &u32| f64::from(*count) / all;
    let some = counts.iter().filter(|count| **count > 0).map(part);
    some.map(|part| -part * part.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_read_and_compiled() {
        let rules = rules();
        assert!(rules.rules.len() > 200, "{}", rules.rules.len());
        for rule in &rules.rules {
            assert!(rule.regex().is_some(), "{}", rule.form.id);
            // What goes by the line of a file is not asked.
            let asked = |allow: &&Allow| allow.regex_target.as_deref() != Some("line");
            for allow in rule.form.allowlists.iter().filter(asked) {
                assert_eq!(
                    allow.regexes().len(),
                    allow.regexes.len(),
                    "{}",
                    rule.form.id
                );
            }
        }
        assert_eq!(rules.allowed.regexes().len(), rules.allowed.regexes.len());
        assert_eq!(rules.name(rules.rules.len() - 1), GENERIC);
    }
}
