//! What is to be redacted, and what was.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::admin::retention::Leftover;
use crate::admin::retention::files::KeptFile;
use crate::admin::retention::left::LeftPlace;
use crate::model::{LoopId, SessionId};

/// What is to be redacted.
#[derive(Clone, Debug)]
pub struct RedactRequest {
    /// The session.
    pub session: SessionId,
    /// Why; it stays in the receipt.
    pub reason: Option<String>,
    /// Also kept files that hold other sessions too.
    pub with_files: bool,
    /// Only tell.
    pub dry_run: bool,
}

impl RedactRequest {
    /// A request to redact a session and the files that hold nothing else.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            reason: None,
            with_files: false,
            dry_run: false,
        }
    }
}

/// What was redacted, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedactReport {
    /// The session.
    pub session_id: SessionId,
    /// Whether it was only told.
    pub dry_run: bool,
    /// The receipt; `None`: there was nothing to redact, or it was only told.
    pub receipt: Option<i64>,
    /// Secrets that were replaced, by type.
    pub secrets: BTreeMap<String, u64>,
    /// Parts of these that were replaced where the rest had been cut off.
    pub pieces: u64,
    /// Messages that changed, those of blocks included.
    pub messages: u64,
    /// Where these are.
    pub places: Vec<RedactedMessage>,
    /// Other texts that changed, by table and column.
    pub texts: BTreeMap<String, u64>,
    /// Kept source files that went: they hold the secrets too.
    pub sources: u64,
    /// Other sessions that these files held something of.
    pub source_of: Vec<SessionId>,
    /// All kept source files of the session, also those that stay for others.
    pub files: Vec<KeptFile>,
    /// Where something of the secrets still stands.
    pub left: Vec<LeftPlace>,
    /// Whether bytes are left.
    pub leftover: Leftover,
}

/// A message in which secrets were replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedactedMessage {
    /// Its loop.
    pub loop_id: LoopId,
    /// The generation of the block whose message it is; `None`: an original.
    pub generation: Option<u32>,
    /// Its sequence, or its place in the block.
    pub seq: u32,
    /// Secrets, by type.
    pub secrets: BTreeMap<String, u64>,
    /// Parts of secrets.
    pub pieces: u64,
}

impl RedactReport {
    pub(super) fn nothing(session: SessionId, dry_run: bool) -> Self {
        Self {
            session_id: session,
            dry_run,
            receipt: None,
            secrets: BTreeMap::new(),
            pieces: 0,
            messages: 0,
            places: Vec::new(),
            texts: BTreeMap::new(),
            sources: 0,
            source_of: Vec::new(),
            files: Vec::new(),
            left: Vec::new(),
            leftover: Leftover::None,
        }
    }
}
