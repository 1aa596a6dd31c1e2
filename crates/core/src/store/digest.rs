//! Digests of runs, flips, pins, blocks, manifests and notes of imports: `verify` finds a changed bit in any row.
//!
//! Each is SHA-256 over the fields in the order of the table, each with its length. Token counts of
//! a block are left out: they depend on the counter, and a recount rewrites them. They follow from
//! the messages, and `verify` derives them again. A run names its counter, and its figures stay.

use sha2::{Digest as _, Sha256};

use super::rows::{
    BlockMessage, BlockRow, CoverageRow, EditRow, FlipRow, HideRow, ImportNote, ManifestRow,
    PinRow, RunRow, Section, Size, Turns,
};

pub(super) struct FieldDigest(Sha256);

impl FieldDigest {
    pub(super) fn new(kind: &str) -> Self {
        let mut fields = Self(Sha256::new());
        fields.text(kind);
        fields
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(super) fn number(&mut self, number: i64) {
        self.0.update(number.to_le_bytes());
    }

    pub(super) fn count(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn maybe(&mut self, text: Option<&str>) {
        self.count(u64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn pair(&mut self, pair: Option<(u32, u32)>) {
        let (a, b) = pair.map_or((-1, -1), |(a, b)| (i64::from(a), i64::from(b)));
        self.number(a);
        self.number(b);
    }

    fn turns(&mut self, turns: Option<Turns>) {
        self.pair(turns.map(|turns| (turns.first, turns.last)));
    }

    fn size(&mut self, size: Size) {
        self.count(size.tokens);
        self.count(size.bytes);
        self.count(size.messages);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Returns the digest of a run and of the digests of its blocks, in the order of their keys, and of its edits.
pub fn run(row: &RunRow, parts: &[[u8; 32]]) -> [u8; 32] {
    let mut fields = FieldDigest::new("run");
    fields.text(&row.run_id);
    fields.number(row.session.0);
    fields.number(row.point.loop_key.0);
    fields.count(u64::from(row.point.turns));
    fields.number(row.tick);
    fields.text(&row.trigger);
    fields.text(&row.strategy);
    fields.count(u64::from(row.round));
    fields.text(row.outcome.as_str());
    fields.maybe(row.fallback.as_deref());
    fields.maybe(row.error.as_deref());
    fields.text(&row.scope);
    fields.text(&row.older_loops);
    fields.text(&row.counter);
    fields.size(row.before);
    fields.size(row.after);
    fields.text(&row.started_at);
    fields.count(row.duration_ms);
    fields.text(&row.config);
    fields.maybe(row.usage.as_deref());
    fields.bytes(&row.plan);
    fields.maybe(row.record.as_deref());
    fields.maybe(row.events.as_deref());
    fields.maybe(row.reached.as_deref());
    fields.count(parts.len() as u64);
    for part in parts {
        fields.bytes(part);
    }
    fields.finish()
}

/// Returns the digest of a flip.
pub fn flip(row: &FlipRow) -> [u8; 32] {
    let mut fields = FieldDigest::new("flip");
    fields.number(row.run.0);
    fields.count(u64::from(row.redo));
    fields.number(row.point.loop_key.0);
    fields.count(u64::from(row.point.turns));
    fields.number(row.tick);
    fields.text(&row.at);
    fields.maybe(row.reason.as_deref());
    fields.finish()
}

/// Returns the digest of a pin.
pub fn pin(row: &PinRow) -> [u8; 32] {
    let mut fields = FieldDigest::new("pin");
    fields.number(row.loop_key.0);
    fields.count(u64::from(row.seq));
    fields.count(u64::from(row.pinned));
    fields.number(row.point.loop_key.0);
    fields.count(u64::from(row.point.turns));
    fields.number(row.tick);
    fields.text(&row.at);
    fields.finish()
}

/// Returns the digest of a hide.
pub fn hide(row: &HideRow) -> [u8; 32] {
    let mut fields = FieldDigest::new("hide");
    fields.count(u64::from(row.hidden));
    fields.text(row.was.as_str());
    fields.text(row.session_id.as_str());
    fields.number(row.tick);
    fields.text(&row.at);
    fields.finish()
}

/// Returns the digest of the note of an import.
pub fn import(row: &ImportNote) -> [u8; 32] {
    let mut fields = FieldDigest::new("import");
    fields.number(row.session.0);
    fields.text(&row.from.format);
    fields.text(&row.from.path);
    fields.text(&row.from.file_name);
    fields.maybe(row.from.record_key.as_deref());
    fields.text(&row.imported_at);
    fields.finish()
}

/// Returns the digest of a manifest.
pub fn manifest(row: &ManifestRow) -> [u8; 32] {
    let mut fields = FieldDigest::new("manifest");
    fields.text(&row.manifest_id);
    fields.number(row.session.0);
    fields.number(row.leaf.0);
    fields.number(row.tick);
    fields.text(&row.recorded_at);
    fields.text(&row.older_loops);
    fields.size(row.size);
    fields.text(&row.counter);
    fields.bytes(&row.sha256);
    for part in &row.parts {
        fields.number(part.loop_key.0);
        fields.text(&part.section);
        fields.number(part.block.map_or(0, |block| block.0));
        fields.pair(part.seqs);
        fields.count(part.messages);
    }
    fields.finish()
}

/// Returns the digest of an edit.
pub fn edit(row: &EditRow) -> [u8; 32] {
    let mut fields = FieldDigest::new("edit");
    fields.bytes(&row.salt);
    fields.number(row.loop_key.0);
    fields.pair(Some(row.seqs));
    fields.pair(row.part.map(|part| (part.number, part.of)));
    fields.text(row.action.as_str());
    fields.maybe(row.text.as_deref());
    for size in [row.before, row.after] {
        fields.count(size.bytes);
        fields.count(size.messages);
    }
    fields.finish()
}

/// Returns the digest of a block, its coverage and its messages.
pub fn block(row: &BlockRow, messages: &[BlockMessage], coverage: &[CoverageRow]) -> [u8; 32] {
    let mut fields = FieldDigest::new("block");
    fields.number(row.loop_key.0);
    fields.count(u64::from(row.generation));
    fields.number(row.run.0);
    fields.text(row.kind.as_str());
    fields.number(row.extends.map_or(0, |block| block.0));
    fields.turns(row.layout.first);
    fields.turns(row.layout.compacted);
    fields.turns(row.layout.recent);
    fields.count(u64::from(row.through));
    fields.count(row.size.bytes);
    fields.count(row.size.messages);
    fields.text(&row.strategy);
    fields.text(&row.shaping);
    fields.text(&row.created_at);
    fields.maybe(row.extra.as_deref());
    fields.count(row.edits.len() as u64);
    for run in &row.edits {
        fields.text(run);
    }
    fields.count(messages.len() as u64);
    for message in messages {
        fields.count(u64::from(message.section == Section::Recent));
        fields.number(message.replaces.map_or(-1, i64::from));
        if let Some(loop_key) = message.quotes {
            fields.number(loop_key.0);
        }
        fields.bytes(message.body.as_ref().map_or(&[], |body| &body.digest));
    }
    for row in coverage {
        fields.number(row.loop_key.0);
        fields.pair(row.seqs);
        fields.pair(row.turns);
        fields.text(row.disposition.as_str());
    }
    fields.finish()
}
