//! A faulty third-party strategy.

use std::sync::Mutex;

use loopstore::BlockCompactionStrategy;
use loopstore::compaction::{
    CompactionConfig, Draft, LoopSlice, Recent, RollupSlice, StrategyError, Summary,
};
use loopstore::extend::Turns;
use loopstore::model::{AgentMessage, Content};

use crate::support::histories::Random;
use crate::valid::messages::Maker;

/// Keeps odd sections, drops and alters the messages that it keeps, and returns any text as a summary.
pub struct Odd(Mutex<(Random, Maker)>);

impl Odd {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new((Random::new(seed), Maker::default())))
    }

    fn messages(&self) -> Vec<AgentMessage> {
        let (random, maker) = &mut *self.0.lock().unwrap();
        // Mostly text of any role: an empty message or half of a pair is rejected.
        if !random.one_in(4) {
            let text = vec![Content::text("all of it \n")];
            let mut said = maker.answer(random);
            *said.content_mut() = text;
            return vec![said.into()];
        }
        (0..random.below(4)).map(|_| maker.any(random)).collect()
    }

    fn below(&self, n: u64) -> u64 {
        self.0.lock().unwrap().0.below(n)
    }

    /// Drops or alters some messages.
    fn replaced(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
    ) -> Result<Vec<(u32, Option<AgentMessage>)>, StrategyError> {
        let mut replaced = Vec::new();
        for placed in slice.messages(turns)? {
            match self.below(60) {
                0 => replaced.push((placed.seq, None)),
                1 => replaced.push((placed.seq, Some(self.altered(placed.message)))),
                _ => {}
            }
        }
        Ok(replaced)
    }

    fn altered(&self, mut message: AgentMessage) -> AgentMessage {
        let kind = self.below(3);
        if let AgentMessage::Llm(message) = &mut message {
            message.message.content_mut().retain(|block| match kind {
                0 => !matches!(block, Content::Thinking(_)),
                1 => !matches!(block, Content::ToolCall(_)),
                _ => !matches!(block, Content::Text(_)),
            });
        }
        message
    }
}

impl BlockCompactionStrategy for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn keep_compacted(
        &self,
        _slice: &LoopSlice<'_>,
        turns: Turns,
        _config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(Summary {
            messages: self.messages(),
            turns: (turns.first..=turns.last).collect(),
            ..Summary::default()
        })
    }

    fn rollup(
        &self,
        _slice: &RollupSlice<'_>,
        _config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(Summary {
            messages: self.messages(),
            ..Summary::default()
        })
    }

    fn compact(
        &self,
        slice: &LoopSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Draft, StrategyError> {
        let end = slice.layout().end();
        // Mostly the planned sections: others separate pairs and are rejected.
        let (from, to) = if self.below(3) == 0 {
            let from = self.below(u64::from(end) + 1) as u32;
            (from, from + self.below(u64::from(end - from) + 1) as u32)
        } else {
            let from = slice.layout().first.map_or(0, Turns::end);
            (
                from,
                slice.layout().recent.map_or(end, |recent| recent.first),
            )
        };
        let recent = match Turns::of(to..end) {
            Some(turns) => Some(Recent {
                turns,
                replaced: self.replaced(slice, turns)?,
            }),
            None => None,
        };
        let compacted = match Turns::of(from..to) {
            Some(turns) => Some((turns, self.keep_compacted(slice, turns, config)?)),
            None => None,
        };
        Ok(Draft {
            first: Turns::of(0..from),
            compacted,
            recent,
        })
    }
}
