//! What a compaction tells its caller.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{CompactRequest, Ground};
use crate::model::{Json, LoopId};
use crate::store::{BlockKind, Disposition, Size, Turns};

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactOutcome {
    /// The trigger did not fire, or there was nothing to do. It leaves no run.
    NotNeeded,
    /// The blocks are in force.
    Committed,
    /// The context would not have become smaller.
    NoGain,
    /// A hook said no.
    Vetoed,
    /// The strategy or a check failed.
    Failed,
    /// Another run came first.
    Conflict,
}

/// How many messages of what a block covers were treated how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoverageCounts([u64; 5]);

impl CoverageCounts {
    /// Returns the count of one disposition.
    pub fn get(&self, disposition: Disposition) -> u64 {
        self.0[disposition as usize]
    }

    pub(crate) fn add(&mut self, disposition: Disposition, messages: u64) {
        self.0[disposition as usize] += messages;
    }
}

impl Serialize for CoverageCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(5))?;
        for disposition in Disposition::ALL {
            map.serialize_entry(disposition.as_str(), &self.get(disposition))?;
        }
        map.end()
    }
}

/// A block that a run wrote, or would write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// The loop.
    pub loop_id: LoopId,
    /// Its number on the loop; `None` if it was not written.
    pub generation: Option<u32>,
    /// What it is.
    pub kind: BlockKind,
    /// Turns kept word for word.
    pub keep_first: Option<Turns>,
    /// Turns replaced.
    pub keep_compacted: Option<Turns>,
    /// Turns kept at the end.
    pub keep_recent: Option<Turns>,
    /// What happened to the messages that it covers.
    pub coverage: CoverageCounts,
}

impl Serialize for BlockReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let range = |turns: Option<Turns>| turns.map(|turns| [turns.first, turns.last]);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("loop", &self.loop_id)?;
        map.serialize_entry("generation", &self.generation)?;
        map.serialize_entry("kind", self.kind.as_str())?;
        map.serialize_entry("keep_first", &range(self.keep_first))?;
        map.serialize_entry("keep_compacted", &range(self.keep_compacted))?;
        map.serialize_entry("keep_recent", &range(self.keep_recent))?;
        map.serialize_entry("coverage", &self.coverage)?;
        map.end()
    }
}

/// The audit row of an attempt, as its caller gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactReport {
    /// The run; `None` if it left no row.
    pub run: Option<String>,
    /// How it ended.
    pub outcome: CompactOutcome,
    /// What made the text.
    pub strategy: String,
    /// The last fallback that it needed.
    pub fallback: Option<String>,
    /// The context before.
    pub before: Size,
    /// The context after, or as it would have been.
    pub after: Size,
    /// The blocks.
    pub blocks: Vec<BlockReport>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// What the summarisers reported: tokens, model, calls and milliseconds.
    pub usage: Option<Json>,
    /// What went wrong.
    pub error: Option<String>,
}

impl CompactReport {
    pub(super) fn new(request: &CompactRequest, ground: &Ground) -> Self {
        let size = ground.chain.size();
        Self {
            strategy: request.config.block_strategy.name().to_owned(),
            before: size,
            after: size,
            ..Self::default()
        }
    }
}

impl Serialize for CompactReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("run", &self.run)?;
        map.serialize_entry("outcome", &self.outcome)?;
        map.serialize_entry("strategy", &self.strategy)?;
        map.serialize_entry("fallback", &self.fallback)?;
        map.serialize_entry("tokens_before", &self.before.tokens)?;
        map.serialize_entry("tokens_after", &self.after.tokens)?;
        map.serialize_entry("bytes_before", &self.before.bytes)?;
        map.serialize_entry("bytes_after", &self.after.bytes)?;
        map.serialize_entry("messages_before", &self.before.messages)?;
        map.serialize_entry("messages_after", &self.after.messages)?;
        map.serialize_entry("loops_compacted", &self.blocks.len())?;
        map.serialize_entry("blocks", &self.blocks)?;
        map.serialize_entry("duration_ms", &self.duration_ms)?;
        map.serialize_entry("usage", &self.usage)?;
        map.serialize_entry("error", &self.error)?;
        map.end()
    }
}
