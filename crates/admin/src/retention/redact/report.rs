//! The request and the report of a redaction.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use loopstore::model::{LoopId, SessionId};
use loopstore_files::copies::UnfinishedCopy;
use loopstore_redact::{Finding, FoundBy, RedactionPolicy};
use serde::Serialize;

use crate::retention::{Leftover, files::KeptFile, leftovers::ContentRemnant};

/// A request to redact a session.
#[derive(Clone, Debug)]
pub struct RedactRequest {
    /// The session.
    pub session: SessionId,
    /// The reason; it is stored in the receipt.
    pub reason: Option<String>,
    /// True to remove also kept source files that contain other sessions.
    pub with_files: bool,
    /// True to change nothing and only report the secrets found.
    pub dry_run: bool,
    /// The policy that selects the secrets to replace.
    pub policy: RedactionPolicy,
    /// True to replace also all images, and other attached files, by a line of text.
    pub without_images: bool,
}

impl RedactRequest {
    /// Returns a request to redact a session and to remove the kept files that contain no other session.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            reason: None,
            with_files: false,
            dry_run: false,
            policy: RedactionPolicy::default(),
            without_images: false,
        }
    }
}

/// The result of a redaction, or of its dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedactReport {
    /// The session.
    pub session_id: SessionId,
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The receipt; `None` if nothing was redacted, or for a dry run.
    pub receipt: Option<i64>,
    /// The number of replaced secrets by type.
    pub secrets: BTreeMap<String, u64>,
    /// The number of replaced parts of secrets whose rest had been cut off.
    pub pieces: u64,
    /// The number of images and other attached files that were replaced by a line of text.
    #[serde(skip_serializing_if = "is_zero")]
    pub images: u64,
    /// The number of secrets by type that were not replaced, since their confidence is too low.
    pub held_back: BTreeMap<String, u64>,
    /// For a dry run, each secret found, masked, with its places.
    pub findings: Vec<FoundSecret>,
    /// The number of changed messages, including messages of blocks.
    pub messages: u64,
    /// The messages that contain secrets.
    pub places: Vec<RedactedMessage>,
    /// The number of other changed texts, by table and column.
    pub texts: BTreeMap<String, u64>,
    /// The number of source files that were removed, since they contain the secrets.
    pub sources: u64,
    /// Other sessions with content in these files.
    pub source_of: Vec<SessionId>,
    /// All kept source files of the session, including files that stay for other sessions.
    pub files: Vec<KeptFile>,
    /// The places that still contain parts of the secrets.
    pub left: Vec<ContentRemnant>,
    /// The places where bytes of the secrets may remain.
    pub leftover: Leftover,
    /// Unfinished copies that killed processes left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<UnfinishedCopy>,
}

/// A secret in a session, masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundSecret {
    /// The secret, with the text around its first place.
    #[serde(flatten)]
    pub finding: Finding,
    /// The number of occurrences.
    pub count: u64,
    /// The places where the secret occurs.
    pub places: Vec<FindingPlace>,
}

/// A place in a session where a secret occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FindingPlace {
    /// A message of a loop.
    Message {
        /// The loop.
        loop_id: LoopId,
        /// The generation of the block whose message it is; `None`: an original.
        generation: Option<u32>,
        /// The sequence of the message, or its index in the block.
        seq: u32,
    },
    /// Another text.
    Text {
        /// The table and column.
        text: String,
    },
}

/// Collects the secrets of a session, each once.
#[derive(Default)]
pub(super) struct FindingList {
    list: Vec<FoundSecret>,
    known: HashMap<(String, FoundBy, bool), usize>,
}

impl FindingList {
    /// Adds the findings of a place.
    pub(super) fn add(&mut self, findings: Vec<Finding>, place: &FindingPlace) {
        for finding in findings {
            // A value is the same secret whether a rule found it or it was known before.
            let is_part = finding.found_by == FoundBy::Part;
            let found_by = if is_part {
                FoundBy::Part
            } else {
                FoundBy::Rule
            };
            let key = (finding.id.clone(), found_by, finding.replaced);
            let at = *self.known.entry(key).or_insert(self.list.len());
            if at == self.list.len() {
                let (count, places) = (0, Vec::new());
                self.list.push(FoundSecret {
                    finding,
                    count,
                    places,
                });
            }
            let one = &mut self.list[at];
            one.count += 1;
            if one.places.last() != Some(place) {
                one.places.push(place.clone());
            }
        }
    }

    /// Returns the secrets: those to be replaced first, then by confidence.
    pub(super) fn into_sorted(self) -> Vec<FoundSecret> {
        let mut list = self.list;
        list.sort_by_key(|one| {
            let of = &one.finding;
            let is_part = of.found_by == FoundBy::Part;
            (!of.replaced, is_part, Reverse(of.confidence))
        });
        list
    }
}

/// A message in which secrets were replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedactedMessage {
    /// Its loop.
    pub loop_id: LoopId,
    /// The generation of the block whose message it is; `None`: an original.
    pub generation: Option<u32>,
    /// The sequence of the message, or its index in the block.
    pub seq: u32,
    /// The number of secrets by type.
    pub secrets: BTreeMap<String, u64>,
    /// The number of parts of secrets.
    pub pieces: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl RedactReport {
    pub(super) fn nothing(session: SessionId, dry_run: bool) -> Self {
        Self {
            session_id: session,
            dry_run,
            receipt: None,
            secrets: BTreeMap::new(),
            pieces: 0,
            images: 0,
            held_back: BTreeMap::new(),
            findings: Vec::new(),
            messages: 0,
            places: Vec::new(),
            texts: BTreeMap::new(),
            sources: 0,
            source_of: Vec::new(),
            files: Vec::new(),
            left: Vec::new(),
            leftover: Leftover::None,
            copies: Vec::new(),
        }
    }
}
