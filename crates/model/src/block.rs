//! The overlay that a compaction puts on a loop.

use super::json::{Int, json_object};
use super::{AgentMessage, Time};

json_object! {
    /// Turns of one loop, by position from 0; both ends are inclusive.
    pub struct TurnRange {
        /// The first turn.
        must start: Int = "startTurn",
        /// The last turn.
        must end: Int = "endTurn",
    }
}

impl TurnRange {
    /// Returns the range from `start` to `end`, both inclusive.
    pub fn new(start: u32, end: u32) -> Self {
        Self {
            start: i64::from(start).into(),
            end: i64::from(end).into(),
            extra: Default::default(),
        }
    }

    /// Returns the first and the last turn; `None` if one is no turn number or the last is before the first.
    pub fn bounds(&self) -> Option<(u32, u32)> {
        let start = u32::try_from(self.start.get()).ok()?;
        let end = u32::try_from(self.end.get()).ok()?;
        (start <= end).then_some((start, end))
    }
}

json_object! {
    /// Turns and the messages that replace them in a context.
    pub struct CompactedSection {
        /// The turns.
        must range: TurnRange = "range",
        /// The messages that replace the turns; may be empty.
        list messages: Vec<AgentMessage> = "messages",
    }
}

json_object! {
    /// The overlay that a compaction puts on one loop. The loop's messages are unchanged.
    ///
    /// A block on the loop that was current has up to three sections. A block on an earlier loop has no `keep_first`,
    /// unless it shows the whole loop unchanged. A section without turns is absent.
    pub struct CompactionBlock {
        /// Turns at the start that are kept unchanged.
        maybe keep_first: TurnRange = "keep_first",
        /// Turns in the middle, replaced by a summary.
        maybe keep_compacted: CompactedSection = "keep_compacted",
        /// Turns at the end, kept with long tool outputs cut.
        maybe keep_recent: CompactedSection = "keep_recent",
        /// When the block was made.
        maybe created_at: Time = "createdAt",
    }
}
