//! Packs: they do not overlap, and no message of a pack is also in its row. Errors of decompression and digests
//! are found where the messages are read.

use std::collections::BTreeMap;

use loopstore::extend::{LoopKey, LoopRow, MessageRow, StoreResult};
use loopstore::internal::view_head;

use super::report::{ProblemKind, Subject};
use super::verify::Verify;

/// The packs of a loop, while its messages are read in order.
#[derive(Default)]
pub(super) struct Packs {
    /// The first and the last message of each pack.
    spans: Vec<(u32, u32)>,
    /// The heads of messages that are not compared yet.
    heads: BTreeMap<u32, String>,
}

impl Packs {
    /// Reads the packs of a loop.
    pub(super) fn of(verify: &mut Verify<'_>, row: &LoopRow, place: &str) -> StoreResult<Self> {
        let (scan, key) = (verify.scan, row.key);
        let mut packs = Self::default();
        let heads = scan.packed_heads(key, 0..u32::MAX);
        let heads = verify.found.readable(place, heads)?;
        packs.heads.extend(heads.into_iter().flatten());
        let mut from = Some(0);
        while let Some(next) = from {
            let row = scan.next_pack(key, next);
            let Some(Some(row)) = verify.found.readable(place, row)? else {
                break;
            };
            verify.found.subject = Subject::Message(key, row.first);
            let before = packs.spans.last().map(|(_, last)| *last);
            if row.last < row.first || before.is_some_and(|last| last >= row.first) {
                let detail = format!(
                    "the pack of messages {} to {} overlaps",
                    row.first, row.last
                );
                verify.found.add(ProblemKind::Sequence, place, detail);
            }
            packs.spans.push((row.first, row.last));
            from = row.first.checked_add(1);
        }
        packs.check_unpacked(verify, key, place)?;
        Ok(packs)
    }

    /// Checks that the content of a pack is not in the rows too.
    fn check_unpacked(
        &self,
        verify: &mut Verify<'_>,
        key: LoopKey,
        place: &str,
    ) -> StoreResult<()> {
        let mut from = Some(0).filter(|_| !self.spans.is_empty());
        while let Some(next) = from {
            let run = verify.scan.unpacked(key, next);
            let Some(Some(run)) = verify.found.readable(place, run)? else {
                break;
            };
            for seq in run.clone().filter(|seq| self.holds(*seq)) {
                verify.found.subject = Subject::Message(key, seq);
                let detail = "its content is in a pack and in its row";
                let place = format!("{place}, message {seq}");
                verify.found.add(ProblemKind::Digest, place, detail);
            }
            from = Some(run.end);
        }
        Ok(())
    }

    fn holds(&self, seq: u32) -> bool {
        let after = self.spans.partition_point(|(first, _)| *first <= seq);
        let span = after.checked_sub(1).and_then(|at| self.spans.get(at));
        span.is_some_and(|(_, last)| seq <= *last)
    }

    /// Compares the head of a message with the message.
    pub(super) fn check(
        &mut self,
        verify: &mut Verify<'_>,
        row: &MessageRow,
        place: &str,
    ) -> StoreResult<()> {
        let is_packed = self.holds(row.seq);
        let heads = self.heads.remove(&row.seq);
        let body = Some(&row.body).filter(|body| is_packed && body.head.is_some());
        let expected = body.map(view_head).transpose()?.flatten();
        if heads != expected {
            let detail = "what the views tell of it as archived is not what it says";
            verify.found.add(ProblemKind::Digest, place, detail);
        }
        Ok(())
    }
}
