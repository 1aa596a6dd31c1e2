//! Finding secrets and putting markers in their places.
//!
//! A marker is `[REDACTED:type:digest]`: the name of the rule that found the secret, and six
//! hexadecimal digits of a digest that is keyed with a random key of the database. Equal secrets have
//! equal markers, and without the database nobody can try out what stood there.
//!
//! A secret that is split across content blocks is not found, nor one in the pixels of an image.

mod json;
mod pieces;
mod rules;
mod views;

use std::collections::BTreeMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::model::{AgentMessage, Content, Json, Message, image_data};
use pieces::Pieces;
use rules::{SecretMatch, rules};
use views::{MappedText, plain, views};

/// How a marker begins.
const MARKER: &str = "[REDACTED:";
/// Names longer than this are not looked at together with their value.
const MAX_NAME: usize = 100;
/// A secret shorter than this is not looked for where no rule finds it.
const MIN_KNOWN: usize = 6;
/// A line of a private key from this length on is looked for by itself.
const MIN_KEY_LINE: usize = 40;

/// Replaces secrets by markers and counts them.
///
/// # Examples
/// ```
/// use loopstore::redact::Redactor;
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
    counts: BTreeMap<String, u64>,
    /// Secrets that were found, by what is written for them; `None`: they are not remembered.
    known: Option<BTreeMap<String, KnownSecret>>,
    /// Finds those; `None` after another one was added.
    finder: Option<AhoCorasick>,
    /// Finds parts of those.
    pieces: Pieces,
    /// The secrets of which there are pieces.
    cut: Vec<KnownSecret>,
    /// Whether parts of what is found are looked for too.
    learns_pieces: bool,
    /// Whether parts are replaced.
    replaces_pieces: bool,
    /// How many parts were replaced.
    pieces_replaced: u64,
}

/// A secret that was found.
#[derive(Clone, Debug)]
struct KnownSecret {
    rule: String,
    marker: String,
}

/// What is to be replaced.
struct Redactions {
    range: Range<usize>,
    rule: String,
    marker: String,
    /// Whether it is only a part of a secret.
    is_piece: bool,
}

impl Redactor {
    /// A redactor whose markers are keyed with `key`.
    pub fn new(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            counts: BTreeMap::new(),
            known: None,
            finder: None,
            pieces: Pieces::default(),
            cut: Vec::new(),
            learns_pieces: true,
            replaces_pieces: false,
            pieces_replaced: 0,
        }
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

    /// Forgets the counts, not what was found.
    pub(crate) fn reset_counts(&mut self) {
        self.counts.clear();
        self.pieces_replaced = 0;
    }

    /// Returns how many secrets were replaced since the last time, by type, and how many parts of some.
    pub(crate) fn take_counts(&mut self) -> (BTreeMap<String, u64>, u64) {
        let pieces = std::mem::take(&mut self.pieces_replaced);
        (std::mem::take(&mut self.counts), pieces)
    }

    /// Whether parts of what is found next are to be looked for too. A summary that cuts a text may make
    /// its own words look like a secret.
    pub(crate) fn learn_pieces(&mut self, learns: bool) {
        self.learns_pieces = learns;
    }

    /// Compares what was found with an original, which may have words in common with a secret.
    pub(crate) fn compare(&mut self, original: &str) {
        self.pieces.compare(&views(original));
    }

    /// Replaces parts of the secrets that were found, too, from now on.
    pub(crate) fn replace_pieces(&mut self) {
        self.pieces.settle();
        self.learns_pieces = false;
        self.replaces_pieces = true;
    }

    /// Returns how often a secret that was found stands in a text, or a part of one; with `in_doubt` also what
    /// other texts have too: a part that looks like a word, or the frame of a key.
    pub(crate) fn count_in(&mut self, text: &str, in_doubt: bool) -> u64 {
        let views = views(text);
        let markers = markers(text);
        let mut found = Vec::new();
        self.add_known(text, &markers, &mut found);
        self.add_pieces(&views, &markers, &mut found);
        let counts = |one: &&Redactions| {
            let found = &text[one.range.clone()];
            let is_own = match one.is_piece {
                true => pieces::is_no_word(found),
                false => !pieces::is_bare_frame(found),
            };
            in_doubt || is_own
        };
        found.iter().filter(counts).count() as u64
    }

    /// Whether a secret that was found, or a part of one, stands in bytes that are no text.
    pub(crate) fn is_in_bytes(&self, bytes: &[u8]) -> bool {
        self.pieces.are_in_bytes(bytes)
    }

    /// Redacts a text; `None` if nothing was found.
    pub fn text(&mut self, text: &str) -> Option<String> {
        self.named(None, text)
    }

    /// Redacts JSON, string by string, keys too; `None` if nothing was found. Text that is no JSON is
    /// redacted as text.
    pub fn json(&mut self, text: &str) -> Option<String> {
        self.of_form(text, false)
    }

    /// Redacts JSON in which fields that name sessions and loops stay.
    pub(crate) fn meta(&mut self, text: &str) -> Option<String> {
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
                _ => *block = Content::text(format!("{MARKER}image:{}]", self.digest("image"))),
            }
        }
    }

    /// Redacts a value by its JSON; `None` if nothing was found. Fields that name sessions and loops
    /// stay.
    ///
    /// # Errors
    /// If the value cannot be written as JSON or read again.
    pub(crate) fn described<T: Serialize + DeserializeOwned>(
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
            out.push_str(&one.marker);
            copied = one.range.end;
            match one.is_piece {
                true => self.pieces_replaced += 1,
                false => *self.counts.entry(one.rule).or_default() += 1,
            }
        }
        out.push_str(&text[copied..]);
        Some(out)
    }

    fn find(&mut self, name: Option<&str>, text: &str) -> Vec<Redactions> {
        let mut hits = Vec::new();
        let views = views(text);
        for view in &views {
            hits.extend(placed(view, rules().find(&view.text)));
            hits.extend(name.into_iter().flat_map(|name| with_name(name, view)));
        }
        let markers = markers(text);
        hits.retain(|hit| is_new(&text[hit.range.clone()], &hit.range, &markers));
        let mut found: Vec<Redactions> = merged(hits)
            .into_iter()
            .map(|hit| self.marked(text, hit))
            .collect();
        self.add_known(text, &markers, &mut found);
        if self.replaces_pieces {
            self.add_pieces(&views, &markers, &mut found);
        }
        found
    }

    fn marked(&mut self, text: &str, hit: SecretMatch) -> Redactions {
        let rule = rules().name(hit.rule).to_owned();
        let secret = plain(&text[hit.range.clone()]);
        let marker = format!("{MARKER}{rule}:{}]", self.digest(secret.trim()));
        self.remember(&rule, &marker, &text[hit.range.clone()], &secret);
        Redactions {
            range: hit.range,
            rule,
            marker,
            is_piece: false,
        }
    }

    /// Returns the first digits of the keyed digest of a secret.
    fn digest(&self, secret: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(b"loopstore redaction");
        hash.update((self.key.len() as u64).to_le_bytes());
        hash.update(&self.key);
        hash.update(secret);
        let digest = hash.finalize();
        digest[..3]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    fn remember(&mut self, rule: &str, marker: &str, written: &str, secret: &str) {
        let Some(known) = &mut self.known else { return };
        if self.learns_pieces && self.pieces.learn(rule, secret, self.cut.len()) {
            let (rule, marker) = (rule.to_owned(), marker.to_owned());
            self.cut.push(KnownSecret { rule, marker });
        }
        let lines = secret.lines().map(str::trim);
        let lines = lines.filter(|line| line.len() >= MIN_KEY_LINE && rule == "private-key");
        for text in [written, secret].into_iter().chain(lines) {
            if can_be_told_apart(text) && !text.starts_with("-----") && !known.contains_key(text) {
                let (rule, marker) = (rule.to_owned(), marker.to_owned());
                known.insert(text.to_owned(), KnownSecret { rule, marker });
                self.finder = None;
            }
        }
    }

    /// Adds secrets that were found before and that no rule finds here.
    fn add_known(&mut self, text: &str, markers: &[Range<usize>], found: &mut Vec<Redactions>) {
        let Some(known) = self.known.as_ref().filter(|known| !known.is_empty()) else {
            return;
        };
        if self.finder.is_none() {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::LeftmostLongest);
            self.finder = builder.build(known.keys()).ok();
        }
        let Some(finder) = &self.finder else { return };
        let mut more = Vec::new();
        for one in finder.find_iter(text) {
            let range = one.range();
            let taken = found.iter().map(|one| &one.range).chain(markers);
            let is_free = !taken.into_iter().any(|other| meet(other, &range));
            if let (true, Some(known)) = (is_free, known.get(&text[range.clone()])) {
                more.push(Redactions {
                    range,
                    rule: known.rule.clone(),
                    marker: known.marker.clone(),
                    is_piece: false,
                });
            }
        }
        found.extend(more);
        found.sort_by_key(|one| one.range.start);
    }

    /// Adds parts of secrets that were found before; what touches a whole one becomes a part of that.
    fn add_pieces(
        &self,
        views: &[MappedText<'_>],
        markers: &[Range<usize>],
        found: &mut Vec<Redactions>,
    ) {
        for piece in self.pieces.find(views) {
            let is_free = !markers.iter().any(|marker| meet(marker, &piece.range));
            if let (true, Some(secret)) = (is_free, self.cut.get(piece.secret)) {
                found.push(Redactions {
                    range: piece.range,
                    rule: secret.rule.clone(),
                    marker: secret.marker.clone(),
                    is_piece: true,
                });
            }
        }
        found.sort_by_key(|one| (one.range.start, one.is_piece));
        found.dedup_by(|later, one| {
            let is_one = later.range.start < one.range.end;
            if is_one {
                one.range.end = one.range.end.max(later.range.end);
                if one.is_piece && !later.is_piece {
                    one.rule = std::mem::take(&mut later.rule);
                    one.marker = std::mem::take(&mut later.marker);
                    one.is_piece = false;
                }
            }
            is_one
        });
    }
}

/// Whether a secret is no word that may stand anywhere.
fn can_be_told_apart(secret: &str) -> bool {
    let has = |kind: fn(char) -> bool| u8::from(secret.chars().any(kind));
    let kinds = has(|c| c.is_ascii_lowercase())
        + has(|c| c.is_ascii_uppercase())
        + has(|c| c.is_ascii_digit())
        + has(|c| !c.is_ascii_alphanumeric());
    secret.len() >= MIN_KNOWN && kinds >= 2
}

/// Returns where markers stand.
fn markers(text: &str) -> Vec<Range<usize>> {
    let found = text.match_indices(MARKER);
    let ends = |at: usize| text[at..].find(']').map(|end| at..at + end + 1);
    found.filter_map(|(at, _)| ends(at)).collect()
}

fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whether a find is no marker, no part of one and nothing around one. What is left of a private key
/// goes whole.
fn is_new(secret: &str, range: &Range<usize>, markers: &[Range<usize>]) -> bool {
    secret.contains("-----BEGIN") || !markers.iter().any(|marker| meet(marker, range))
}

fn placed(view: &MappedText<'_>, hits: Vec<SecretMatch>) -> Vec<SecretMatch> {
    let place = |hit: SecretMatch| SecretMatch {
        range: view.place(hit.range),
        ..hit
    };
    hits.into_iter().map(place).collect()
}

/// Finds what only the name of the field tells.
fn with_name(name: &str, view: &MappedText<'_>) -> Vec<SecretMatch> {
    if name.len() > MAX_NAME || view.text.is_empty() {
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

/// Makes one of finds that touch the same bytes; the rule that knows most gives its name.
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
            }
            None => merged.push(hit),
        }
    }
    merged
}

/// Takes the signature from thinking that is no longer what was signed, and takes out the sealed items that
/// are no longer what their provider gave.
fn unsign(before: &AgentMessage, after: &mut AgentMessage) {
    let old = before.message().map(Message::content).unwrap_or_default();
    let Some(new) = after.message_mut() else {
        return;
    };
    let mut old = old.iter();
    new.content_mut().retain_mut(|new| {
        let old = old.next();
        match (old, &mut *new) {
            (Some(Content::Thinking(old)), Content::Thinking(new))
                if old.thinking != new.thinking =>
            {
                new.signature = None;
            }
            (Some(old), Content::Sealed(_)) => return old == new,
            (Some(old), Content::Other(json)) if is_signed(json) => return old == new,
            _ => {}
        }
        true
    });
}

/// Takes out all sealed content with the signatures of thinking, or only compactions; returns whether there
/// was any.
pub(crate) fn drop_sealed(message: &mut AgentMessage, all: bool) -> bool {
    let Some(inner) = message.message_mut() else {
        return false;
    };
    let content = inner.content_mut();
    let before = content.len();
    content.retain(|block| !goes(block, all));
    let mut dropped = content.len() < before;
    if all {
        for block in content {
            if let Content::Thinking(thinking) = block {
                dropped |= thinking.signature.take().is_some();
            }
        }
    }
    dropped
}

fn goes(block: &Content, all: bool) -> bool {
    match block {
        Content::Sealed(sealed) => all || sealed.compaction().is_some(),
        Content::Other(json) => all && is_signed(json),
        _ => false,
    }
}

/// Whether an item of a provider holds what only the provider can read.
fn is_signed(item: &Json) -> bool {
    item.as_str().contains("\"encrypted_")
}
