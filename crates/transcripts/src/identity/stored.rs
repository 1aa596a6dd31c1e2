//! The messages of a stored loop that an import can recognise.

use std::collections::HashSet;
use std::ops::ControlFlow;

use loopstore::extend::{LoopRow, StoreRead, StoreResult};
use loopstore::model::Role;

use super::incoming::is_voice;
use crate::matching::{RecordDigest, is_revised};

/// A stored message.
pub(crate) struct StoredEntry {
    pub(super) seq: u32,
    pub(super) role: Role,
    pub(super) is_voice: bool,
    /// The digest of its record; `None` if the message was recorded here.
    pub(super) digest: Option<RecordDigest>,
    /// The time of the message in milliseconds since the epoch.
    pub(super) created_at: Option<i64>,
    pub(super) turn: Option<u32>,
}

impl StoredEntry {
    pub(super) fn is_note(&self) -> bool {
        self.role == Role::Extension
    }
}

/// A stored loop.
pub(crate) struct StoredLoop {
    pub(crate) row: LoopRow,
    /// The messages that were imported from a transcript; in loopstore's own form also those that were recorded here.
    pub(super) entries: Vec<StoredEntry>,
    /// Digests of the changed records that are stored.
    pub(crate) revised: HashSet<RecordDigest>,
    /// True if the loop contains messages that were not imported.
    pub(crate) has_recorded: bool,
}

impl StoredLoop {
    /// Reads a loop.
    pub(super) fn load(read: &dyn StoreRead, row: LoopRow, own_form: bool) -> StoreResult<Self> {
        let (mut entries, mut revised) = (Vec::new(), HashSet::new());
        let mut has_recorded = false;
        read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
            revised.extend(message.origin.filter(is_revised));
            let digest = message.origin.filter(|origin| !is_revised(origin));
            has_recorded |= message.origin.is_none() && message.body.role != Role::Extension;
            if digest.is_some() || own_form {
                entries.push(StoredEntry {
                    seq: message.seq,
                    role: message.body.role,
                    is_voice: is_voice(message.body.role, message.body.author),
                    digest,
                    created_at: message.created_at,
                    turn: message.turn,
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self {
            row,
            entries,
            revised,
            has_recorded,
        })
    }

    /// True if the loop has messages, none of which can be compared with a record.
    pub(super) fn is_incomparable(&self) -> bool {
        self.row.totals.next_seq > 0 && self.entries.is_empty() && self.revised.is_empty()
    }

    pub(super) fn entry(&self, seq: u32) -> Option<&StoredEntry> {
        let at = self.entries.binary_search_by_key(&seq, |entry| entry.seq);
        self.entries.get(at.ok()?)
    }

    /// Returns the turn of a message, and the message itself if the turn goes on after it with messages that a branch
    /// from the message must not show. Results of the calls of the turn belong to the branch too, unless it has
    /// results of its own.
    pub(super) fn cut_after(&self, seq: u32, has_own_results: bool) -> Option<(u32, Option<u32>)> {
        let turn = self.entry(seq)?.turn?;
        let after = self.entries.iter().filter(|entry| entry.seq > seq);
        let mut of_turn = after.filter(|entry| entry.turn == Some(turn) && !entry.is_note());
        let continues = of_turn.any(|entry| has_own_results || entry.role != Role::ToolResult);
        Some((turn, continues.then_some(seq)))
    }
}
