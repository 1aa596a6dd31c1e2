//! Decides whether the end of a transcript can be read without the records before it.

use std::collections::HashSet;
use std::io::Cursor;

use loopstore::model::LoopId;

use super::record::{ClaudeRecord, RecordKind, RecordTitle, Speech, read_head};
use crate::lines::ValueReader;

/// The records at the end of a transcript that were read so far.
#[derive(Default)]
struct TranscriptEnd {
    records: HashSet<String>,
    calls: HashSet<String>,
}

/// True if the end of a transcript that begins with the prompt of the loop `first` can be read by itself: no record in
/// it depends on an earlier record, call or sub-agent, or is a compaction, and its title is that of the session.
pub(super) fn is_readable_alone(end: &[u8], first: &LoopId, title: Option<&str>) -> bool {
    let mut reader = Cursor::new(end);
    let Ok(mut lines) = ValueReader::new(&mut reader) else {
        return false;
    };
    let mut known = TranscriptEnd::default();
    loop {
        match lines.next_as(read_head) {
            Ok(Some((_, Ok(head)))) => {
                if !known.takes(head, first, title) {
                    return false;
                }
            }
            // A line that is not a record belongs to the current position, and its end may be truncated.
            Ok(Some((_, Err(_)))) if !known.records.is_empty() => {}
            Ok(None) => return !known.records.is_empty(),
            Ok(Some(_)) | Err(_) => return false,
        }
    }
}

impl TranscriptEnd {
    fn takes(&mut self, head: ClaudeRecord, first: &LoopId, title: Option<&str>) -> bool {
        let is_message = matches!(head.kind, RecordKind::User | RecordKind::Assistant);
        let is_plain = is_message || head.kind == RecordKind::Extension;
        let is_of_agent = head.sidechain == Some(true) || head.agent.is_some();
        if !is_plain || is_of_agent || !head.title.as_ref().is_none_or(|new| is_title(new, title)) {
            return false;
        }
        let hangs_here = match (&head.uuid, &head.parent) {
            // Only a prompt certainly begins a loop.
            (Some(uuid), _) if self.records.is_empty() => {
                uuid == first.as_str() && head.speech == Some(Speech::Prompt)
            }
            (Some(_), Some(parent)) => self.records.contains(parent),
            (Some(_), None) => false,
            (None, _) => !is_message && !self.records.is_empty(),
        };
        if !hangs_here || !head.results.iter().all(|id| self.calls.contains(id)) {
            return false;
        }
        self.records.extend(head.uuid);
        self.calls
            .extend(head.calls.into_iter().map(|call| call.id));
        true
    }
}

fn is_title(new: &RecordTitle, title: Option<&str>) -> bool {
    match new {
        RecordTitle::Given(text) | RecordTitle::Made(text) | RecordTitle::About(_, text) => {
            Some(text.as_str()) == title
        }
    }
}
