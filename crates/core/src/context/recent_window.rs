//! The reach of the recent window.

use std::ops::ControlFlow;

use crate::compaction::{CompactionConfig, KeepRecent, RecentWindow};
use crate::model::{Role, Turns};
use crate::overlay::turn_seqs;
use crate::store::active_blocks::ChainLink;
use crate::store::{MessageSize, StoreRead, StoreResult};

/// A count of the turns that the recent window takes, loop by loop from the leaf.
pub(super) struct WindowReach {
    keep: KeepRecent,
    window: RecentWindow,
    /// The rest to find: turns, user turns or messages.
    left: u32,
    turns: u32,
}

impl WindowReach {
    pub(super) fn new(config: &CompactionConfig) -> Self {
        Self {
            keep: config.keep_recent,
            window: config.recent_window,
            left: config.keep_recent.count(),
            turns: 0,
        }
    }

    /// Counts the turns of the next loop.
    pub(super) fn add_loop(&mut self, read: &dyn StoreRead, link: &ChainLink) -> StoreResult<()> {
        for turn in (0..link.complete).rev() {
            if self.left == 0 {
                break;
            }
            let found = self.found_in(read, link, turn)?;
            self.left = self.left.saturating_sub(found);
            self.turns += 1;
        }
        if self.window == RecentWindow::CurrentLoop {
            self.left = 0;
        }
        Ok(())
    }

    /// True if the loop before is needed too.
    pub(super) fn wants_more(&self) -> bool {
        self.left > 0
    }

    /// Returns the number of turns in the window. A window in turns is not limited to the existing turns.
    pub(super) fn turns(&self) -> u32 {
        match self.keep {
            KeepRecent::Turns(turns) => turns,
            KeepRecent::UserTurns(_) | KeepRecent::Messages(_) => self.turns,
        }
    }

    fn found_in(&self, read: &dyn StoreRead, link: &ChainLink, turn: u32) -> StoreResult<u32> {
        let counts = |message: &MessageSize| match self.keep {
            KeepRecent::Turns(_) => false,
            KeepRecent::UserTurns(_) => message.is_prompt(),
            KeepRecent::Messages(_) => message.role != Role::Extension,
        };
        if let KeepRecent::Turns(_) = self.keep {
            return Ok(1);
        }
        let only = Turns::only(turn);
        let mut found = 0;
        let seqs = turn_seqs(read, link.row.key, only, link.end_seq)?;
        read.sizes(link.row.key, seqs, &mut |message| {
            found += u32::from(counts(&message));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}
