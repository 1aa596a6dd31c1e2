//! The search for secrets in one text: by rules, by known secrets, and by parts of known secrets.

use std::ops::Range;

use super::classify::{entropy, is_made_of_words, is_single_word, looks_random};
use super::finding::{self, Finding, FoundBy};
use super::known::{KnownSecret, MIN_KNOWN};
use super::pieces::{self, SecretForm};
use super::policy::Confidence;
use super::rules::{SecretMatch, rules};
use super::views::{MappedText, plain, views};
use super::{Redactor, marker};
use loopstore_model::redaction::{MARKER, secret_id};

/// The longest name that is checked together with its value, in bytes.
const MAX_NAME: usize = 100;

/// The longest marker, in bytes.
const MAX_MARKER: usize = 160;

/// The least length of a line of a private key that is searched for alone.
const MIN_KEY_LINE: usize = 40;

/// The entropy, in bits per byte, from which a value is certainly random.
const CERTAIN_ENTROPY: f64 = 2.75;

/// A secret found in a text.
#[derive(Clone, Debug)]
pub(super) struct SecretHit {
    pub(super) range: Range<usize>,
    pub(super) rule: usize,
    /// The digits of the value's digest.
    pub(super) id: String,
    pub(super) confidence: Confidence,
    pub(super) found_by: FoundBy,
}

impl SecretHit {
    pub(super) fn rule_name(&self) -> &'static str {
        rules().name(self.rule)
    }

    pub(super) fn marker(&self) -> String {
        marker(self.rule_name(), &self.id)
    }

    fn of_known(range: Range<usize>, secret: &KnownSecret, found_by: FoundBy) -> Self {
        Self {
            range,
            rule: secret.rule,
            id: secret.id.clone(),
            confidence: secret.confidence,
            found_by,
        }
    }
}

impl Redactor {
    /// Returns the number of occurrences of known secrets and their parts in a text; with `in_doubt` including parts
    /// that other texts may contain: a part that looks like a word, or the frame of a key.
    #[doc(hidden)]
    pub fn count_in(&self, text: &str, in_doubt: bool) -> u64 {
        let views = views(text);
        let markers = markers(text);
        let mut found = Vec::new();
        self.add_known(text, &markers, &mut found);
        self.add_pieces(&views, &markers, &mut found);
        let counts = |one: &&SecretHit| {
            let found = &text[one.range.clone()];
            let is_own = match one.found_by {
                FoundBy::Part => pieces::is_no_word(found),
                _ => !pieces::is_bare_frame(found),
            };
            in_doubt || is_own
        };
        found.iter().filter(counts).count() as u64
    }

    /// Returns the secrets to replace in a text, in order. `name` is the name of its field.
    pub(super) fn find(&mut self, name: Option<&str>, text: &str) -> Vec<SecretHit> {
        let views = views(text);
        let mut hits = Vec::new();
        for view in &views {
            hits.extend(placed(view, rules().find(&view.text)));
            hits.extend(name.into_iter().flat_map(|name| with_name(name, view)));
        }
        let markers = markers(text);
        hits.retain(|hit| {
            self.policy.applies(rules().name(hit.rule))
                && is_new(&text[hit.range.clone()], &hit.range, &markers)
        });
        let (mut found, held) = self.decide(text, hits);
        self.add_known(text, &markers, &mut found);
        if self.replaces_pieces {
            self.add_pieces(&views, &markers, &mut found);
        }
        self.record_findings(text, &found, held);
        found
    }

    /// Divides matches into those that are replaced, which become known, and those that are only reported.
    fn decide(&mut self, text: &str, hits: Vec<SecretMatch>) -> (Vec<SecretHit>, Vec<SecretHit>) {
        let (mut taken, mut held) = (Vec::new(), Vec::new());
        for hit in hits {
            match self.is_replaced(text, &hit) {
                Some(true) => taken.push(hit),
                Some(false) => held.push(hit),
                None => {}
            }
        }
        let taken = merged(taken);
        let ranges: Vec<_> = taken.iter().map(|hit| hit.range.clone()).collect();
        held.retain(|hit| !overlaps(&ranges, &hit.range));
        let found: Vec<SecretHit> = taken
            .into_iter()
            .filter_map(|hit| self.redaction(text, hit))
            .collect();
        let held = merged(held)
            .into_iter()
            .filter_map(|hit| self.redaction(text, hit))
            .collect();
        for one in &found {
            self.remember(one, &text[one.range.clone()]);
        }
        (found, held)
    }

    /// True if a match is replaced, false if it is only reported; `None` if it is allowed.
    fn is_replaced(&self, text: &str, hit: &SecretMatch) -> Option<bool> {
        let is_certain = hit.confidence >= self.policy.min_confidence;
        if self.policy.allow.is_empty() && self.policy.confirm.is_empty() {
            return Some(is_certain);
        }
        let value = plain(&text[hit.range.clone()]);
        let (value, id) = (value.trim(), self.id_of(value.trim()));
        if self.allows(value, &id) {
            return None;
        }
        let confirmed = &self.policy.confirm;
        Some(is_certain || confirmed.contains(value) || confirmed.contains(&id))
    }

    fn allows(&self, value: &str, id: &str) -> bool {
        let allow = &self.policy.allow;
        let bare = value.trim_end_matches([',', ';', '.', ':', '!', '?', ')']);
        [value, bare, id].iter().any(|one| allow.contains(*one))
    }

    fn redaction(&self, text: &str, hit: SecretMatch) -> Option<SecretHit> {
        let secret = plain(&text[hit.range.clone()]);
        let id = self.id_of(secret.trim());
        (!self.allows(secret.trim(), &id)).then_some(SecretHit {
            range: hit.range,
            rule: hit.rule,
            id,
            confidence: hit.confidence,
            found_by: FoundBy::Rule,
        })
    }

    /// Counts secrets that are not replaced, and keeps the findings if they are wanted.
    fn record_findings(&mut self, text: &str, found: &[SecretHit], mut held: Vec<SecretHit>) {
        let ranges: Vec<_> = found.iter().map(|one| one.range.clone()).collect();
        held.retain(|one| !overlaps(&ranges, &one.range));
        for one in &held {
            *self
                .held_back
                .entry(one.rule_name().to_owned())
                .or_default() += 1;
        }
        let Some(findings) = &mut self.findings else {
            return;
        };
        let mut all: Vec<(&SecretHit, bool)> = found.iter().map(|one| (one, true)).collect();
        all.extend(held.iter().map(|one| (one, false)));
        all.sort_by_key(|(one, _)| one.range.start);
        let ranges: Vec<_> = all.iter().map(|(one, _)| one.range.clone()).collect();
        for (at, (one, replaced)) in all.into_iter().enumerate() {
            let value = plain(&text[one.range.clone()]);
            findings.push(Finding {
                id: one.id.clone(),
                rule: one.rule_name().to_owned(),
                confidence: one.confidence,
                found_by: one.found_by,
                replaced,
                masked: finding::masked(&value),
                length: value.trim().chars().count(),
                context: finding::context(text, &ranges, at),
            });
        }
    }

    /// Returns the digits of the keyed digest of a value.
    pub(super) fn id_of(&self, secret: &str) -> String {
        secret_id(&self.key, secret)
    }

    fn remember(&mut self, one: &SecretHit, written: &str) {
        let Some(known) = &mut self.known else { return };
        let form = rules().form(one.rule);
        let secret = plain(written);
        let is_word = one.confidence < Confidence::High && is_made_of_words(&secret);
        let known_secret = KnownSecret {
            rule: one.rule,
            id: one.id.clone(),
            confidence: one.confidence,
            is_word,
        };
        let is_certain = one.confidence == Confidence::High || is_surely_random(&secret);
        if self.learns_pieces && is_certain && self.pieces.learn(form, &secret, self.cut.len()) {
            self.cut.push(known_secret.clone());
        }
        let lines = secret.lines().map(str::trim);
        let is_key = form == SecretForm::PrivateKey;
        let lines = lines.filter(|line| is_key && line.len() >= MIN_KEY_LINE);
        for text in [written, &secret].into_iter().chain(lines) {
            if is_distinctive(text) && !text.starts_with("-----") {
                known.insert(text, known_secret.clone());
            }
        }
    }

    /// Adds known secrets that no rule finds in the text.
    fn add_known(&self, text: &str, markers: &[Range<usize>], found: &mut Vec<SecretHit>) {
        let Some(known) = &self.known else { return };
        let taken: Vec<_> = found.iter().map(|one| one.range.clone()).collect();
        let more = known.find(text).into_iter();
        let more = more.filter(|(range, _)| !overlaps(&taken, range) && !overlaps(markers, range));
        found
            .extend(more.map(|(range, secret)| SecretHit::of_known(range, secret, FoundBy::Value)));
        found.sort_by_key(|one| one.range.start);
    }

    /// Adds parts of known secrets; a part next to a whole secret is joined to it.
    fn add_pieces(
        &self,
        views: &[MappedText<'_>],
        markers: &[Range<usize>],
        found: &mut Vec<SecretHit>,
    ) {
        for piece in self.pieces.find(views) {
            if let (false, Some(secret)) =
                (overlaps(markers, &piece.range), self.cut.get(piece.secret))
            {
                found.push(SecretHit::of_known(piece.range, secret, FoundBy::Part));
            }
        }
        found.sort_by_key(|one| (one.range.start, one.found_by == FoundBy::Part));
        found.dedup_by(|later, one| {
            let is_one = later.range.start < one.range.end;
            if is_one {
                let end = one.range.end.max(later.range.end);
                if one.found_by == FoundBy::Part && later.found_by != FoundBy::Part {
                    let start = one.range.start;
                    std::mem::swap(one, later);
                    one.range.start = start;
                }
                one.range.end = end;
            }
            is_one
        });
    }
}

/// True if a value is certainly random, so that its parts are parts of a secret too.
fn is_surely_random(secret: &str) -> bool {
    looks_random(secret)
        && !is_made_of_words(secret)
        && entropy(secret.as_bytes()) >= CERTAIN_ENTROPY
}

/// True if a secret is no word that any text may contain.
fn is_distinctive(secret: &str) -> bool {
    let has = |kind: fn(char) -> bool| u8::from(secret.chars().any(kind));
    let kinds = has(|c| c.is_ascii_lowercase())
        + has(|c| c.is_ascii_uppercase())
        + has(|c| c.is_ascii_digit())
        + has(|c| !c.is_ascii_alphanumeric());
    secret.len() >= MIN_KNOWN && kinds >= 2 && !is_single_word(secret)
}

/// Returns the ranges of markers.
fn markers(text: &str) -> Vec<Range<usize>> {
    let found = text.match_indices(MARKER);
    let ends = |at: usize| {
        let rest = text.as_bytes()[at..].iter().take(MAX_MARKER);
        let end = rest.into_iter().position(|byte| *byte == b']')?;
        Some(at..at + end + 1)
    };
    found.filter_map(|(at, _)| ends(at)).collect()
}

/// True if a range overlaps one of those that are in order.
fn overlaps(sorted: &[Range<usize>], range: &Range<usize>) -> bool {
    let at = sorted.partition_point(|one| one.end <= range.start);
    sorted.get(at).is_some_and(|one| one.start < range.end)
}

/// True if a match neither is a marker, nor overlaps one. The rest of a private key around a marker is replaced whole.
fn is_new(secret: &str, range: &Range<usize>, markers: &[Range<usize>]) -> bool {
    secret.contains("-----BEGIN") || !overlaps(markers, range)
}

fn placed(view: &MappedText<'_>, hits: Vec<SecretMatch>) -> Vec<SecretMatch> {
    let place = |hit: SecretMatch| SecretMatch {
        range: view.place(hit.range),
        ..hit
    };
    hits.into_iter().map(place).collect()
}

/// Returns the matches that only the name of the field shows.
fn with_name(name: &str, view: &MappedText<'_>) -> Vec<SecretMatch> {
    if name.len() > MAX_NAME || view.text.is_empty() || !rules().has_keyword(name) {
        return Vec::new();
    }
    let before = format!("{name}=\"");
    let whole = format!("{before}{}\"", view.text);
    let shift = before.len();
    let end = shift + view.text.len();
    let mut hits = rules().find(&whole);
    hits.retain(|hit| hit.range.start >= shift && hit.range.start < end);
    for hit in &mut hits {
        hit.range = hit.range.start - shift..hit.range.end.min(end) - shift;
    }
    placed(view, hits)
}

/// Joins overlapping matches; the rule with priority gives the name.
fn merged(mut hits: Vec<SecretMatch>) -> Vec<SecretMatch> {
    hits.sort_by_key(|hit| (hit.range.start, hit.range.end));
    let mut merged: Vec<SecretMatch> = Vec::new();
    for hit in hits {
        match merged
            .last_mut()
            .filter(|last| hit.range.start < last.range.end)
        {
            Some(last) => {
                last.range.end = last.range.end.max(hit.range.end);
                last.rule = last.rule.min(hit.rule);
                last.confidence = last.confidence.max(hit.confidence);
            }
            None => merged.push(hit),
        }
    }
    merged
}
