//! Compactions in the first pass: a boundary record, the summary after it, and the records that were kept.

use super::index::{ClaudeIndex, KnownRecord};
use super::record::ClaudeRecord;
use super::track::{Boundary, SummaryStep, TrackStep};
use crate::lines::SourceLocation;

impl ClaudeIndex {
    /// Handles a boundary record, which marks the point of a compaction; its summary follows.
    pub(super) fn boundary(&mut self, track: usize, head: &ClaudeRecord, place: SourceLocation) {
        if self.tracks[track].loops.is_empty() {
            return self.note(track, head, place);
        }
        let logical = head.logical_parent.clone();
        let request = ClaudeRecord {
            uuid: head.uuid.clone(),
            parent: logical,
            time: head.time.clone(),
            ..ClaudeRecord::default()
        };
        let loop_no = self.loop_for(track, &request, place, true);
        let known = &self.known;
        let first_kept = head.preserved.uuids.iter().find_map(|uuid| {
            known
                .get(uuid)
                .filter(|known| known.track() == track)
                .and_then(KnownRecord::at)
        });
        let state = &mut self.tracks[track];
        state.current = Some(loop_no);
        let at = state.end();
        state.boundary = Some(Boundary {
            place,
            loop_no,
            first_kept,
        });
        if let Some(tail) = &head.preserved.tail
            && let Some(known) = self.known.get_mut(tail)
            && known.track() == track
        {
            known.set_at(at);
        }
        self.know(track, head, place, at);
    }

    /// Handles the summary that replaces everything before it.
    pub(super) fn summary(&mut self, track: usize, head: &ClaudeRecord, place: SourceLocation) {
        let state = &mut self.tracks[track];
        if state.loops.is_empty() {
            return self.added(track, head, place);
        }
        let boundary = state.boundary.take();
        let loop_no = boundary
            .as_ref()
            .map(|b| b.loop_no)
            .or(state.current)
            .unwrap_or_default();
        let at = state.end();
        let first_kept = boundary.as_ref().and_then(|b| b.first_kept);
        let boundary = boundary.map(|b| b.place);
        state.push(
            loop_no,
            TrackStep::Summary {
                loop_no,
                found: Box::new(SummaryStep {
                    boundary,
                    summary: place,
                    first_kept,
                }),
            },
        );
        self.know(track, head, place, at);
    }
}
