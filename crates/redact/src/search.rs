//! Finding what is to be replaced in one text: by rules, by what was found before, by parts of it.

use std::ops::Range;

use super::finding::{self, Finding, FoundBy};
use super::known::{KnownSecret, MIN_KNOWN};
use super::looks::{entropy, is_made_of_words, is_single_word, looks_random};
use super::pieces::{self, SecretForm};
use super::policy::Confidence;
use super::rules::{SecretMatch, rules};
use super::views::{MappedText, plain, views};
use super::{Redactor, marker};
use loopstore_model::redaction::{MARKER, secret_id};

/// Names longer than this are not looked at together with their value.
const MAX_NAME: usize = 100;

/// A marker is not longer.
const MAX_MARKER: usize = 160;

/// A line of a private key from this length on is looked for by itself.
const MIN_KEY_LINE: usize = 40;

/// The bits a byte of a value that is surely random.
const CERTAIN_ENTROPY: f64 = 2.75;

/// A secret in a text.
#[derive(Clone, Debug)]
pub(super) struct Redaction {
    pub(super) range: Range<usize>,
    pub(super) rule: usize,
    /// The digits that stand for its value.
    pub(super) id: String,
    pub(super) confidence: Confidence,
    pub(super) found_by: FoundBy,
}

impl Redaction {
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
    /// Returns how often a secret that was found stands in a text, or a part of one; with `in_doubt` also what
    /// other texts have too: a part that looks like a word, or the frame of a key.
    #[doc(hidden)]
    pub fn count_in(&self, text: &str, in_doubt: bool) -> u64 {
        let views = views(text);
        let markers = markers(text);
        let mut found = Vec::new();
        self.add_known(text, &markers, &mut found);
        self.add_pieces(&views, &markers, &mut found);
        let counts = |one: &&Redaction| {
            let found = &text[one.range.clone()];
            let is_own = match one.found_by {
                FoundBy::Part => pieces::is_no_word(found),
                _ => !pieces::is_bare_frame(found),
            };
            in_doubt || is_own
        };
        found.iter().filter(counts).count() as u64
    }

    /// Returns what is to be replaced in a text, in order; `name` is that of the field that holds it.
    pub(super) fn find(&mut self, name: Option<&str>, text: &str) -> Vec<Redaction> {
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
        self.note(text, &found, held);
        found
    }

    /// Divides matches into those that are replaced, which are remembered, and those that are only reported.
    fn decide(&mut self, text: &str, hits: Vec<SecretMatch>) -> (Vec<Redaction>, Vec<Redaction>) {
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
        let found: Vec<Redaction> = taken
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

    fn redaction(&self, text: &str, hit: SecretMatch) -> Option<Redaction> {
        let secret = plain(&text[hit.range.clone()]);
        let id = self.id_of(secret.trim());
        (!self.allows(secret.trim(), &id)).then_some(Redaction {
            range: hit.range,
            rule: hit.rule,
            id,
            confidence: hit.confidence,
            found_by: FoundBy::Rule,
        })
    }

    /// Counts what is not replaced, and keeps what was found if that is asked for.
    fn note(&mut self, text: &str, found: &[Redaction], mut held: Vec<Redaction>) {
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
        let mut all: Vec<(&Redaction, bool)> = found.iter().map(|one| (one, true)).collect();
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

    /// Returns the digits that stand for a value: of a digest that is keyed.
    pub(super) fn id_of(&self, secret: &str) -> String {
        secret_id(&self.key, secret)
    }

    fn remember(&mut self, one: &Redaction, written: &str) {
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
            if can_be_told_apart(text) && !text.starts_with("-----") {
                known.insert(text, known_secret.clone());
            }
        }
    }

    /// Adds secrets that were found before and that no rule finds here.
    fn add_known(&self, text: &str, markers: &[Range<usize>], found: &mut Vec<Redaction>) {
        let Some(known) = &self.known else { return };
        let taken: Vec<_> = found.iter().map(|one| one.range.clone()).collect();
        let more = known.find(text).into_iter();
        let more = more.filter(|(range, _)| !overlaps(&taken, range) && !overlaps(markers, range));
        found
            .extend(more.map(|(range, secret)| Redaction::of_known(range, secret, FoundBy::Value)));
        found.sort_by_key(|one| one.range.start);
    }

    /// Adds parts of secrets that were found before; what touches a whole one becomes a part of that.
    fn add_pieces(
        &self,
        views: &[MappedText<'_>],
        markers: &[Range<usize>],
        found: &mut Vec<Redaction>,
    ) {
        for piece in self.pieces.find(views) {
            if let (false, Some(secret)) =
                (overlaps(markers, &piece.range), self.cut.get(piece.secret))
            {
                found.push(Redaction::of_known(piece.range, secret, FoundBy::Part));
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

/// True if a value is random beyond doubt, so that a part of it is a part of a secret too.
fn is_surely_random(secret: &str) -> bool {
    looks_random(secret)
        && !is_made_of_words(secret)
        && entropy(secret.as_bytes()) >= CERTAIN_ENTROPY
}

/// True if a secret is no word that may stand anywhere.
fn can_be_told_apart(secret: &str) -> bool {
    let has = |kind: fn(char) -> bool| u8::from(secret.chars().any(kind));
    let kinds = has(|c| c.is_ascii_lowercase())
        + has(|c| c.is_ascii_uppercase())
        + has(|c| c.is_ascii_digit())
        + has(|c| !c.is_ascii_alphanumeric());
    secret.len() >= MIN_KNOWN && kinds >= 2 && !is_single_word(secret)
}

/// Returns where markers stand.
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

/// True if a match is no marker, no part of one and nothing around one. What is left of a private key goes whole.
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

/// Finds what only the name of the field shows.
fn with_name(name: &str, view: &MappedText<'_>) -> Vec<SecretMatch> {
    if name.len() > MAX_NAME || view.text.is_empty() || !rules().wakes(name) {
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

/// Makes one of matches that touch the same bytes; the rule that knows most gives its name.
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
