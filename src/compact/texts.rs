//! The texts that a strategy made, so that the strategy is called once for each.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::compaction::{Draft, StrategyError, SummaryNotes};
use crate::model::{AgentMessage, Layout};

/// The key of a text. A strategy that is called with the same key again would return the same text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextKey {
    pub(super) depth: usize,
    /// The planned sections; `None`: a rollup of the loops through this one.
    pub(super) layout: Option<Layout>,
    /// Tokens that the text may have.
    pub(super) tokens: u64,
    /// True if the digest replaces a text that is too long.
    pub(super) stands_in: bool,
}

/// A plan is settled several times, and steps of the fallback follow each other: each text is kept. This
/// changes only the number of calls of the strategy.
#[derive(Default)]
pub(super) struct Texts(RefCell<Memo>);

#[derive(Default)]
struct Memo {
    drafts: HashMap<TextKey, Draft>,
    notes: SummaryNotes,
    has_long: bool,
}

impl Texts {
    /// Returns a draft that was made before, or makes and keeps it.
    pub(super) fn get_or_make(
        &self,
        key: TextKey,
        make: impl FnOnce() -> Result<Draft, StrategyError>,
    ) -> Result<Draft, StrategyError> {
        if let Some(draft) = self.0.borrow().drafts.get(&key) {
            return Ok(draft.clone());
        }
        let draft = make()?;
        let mut made = self.0.borrow_mut();
        if let Some(notes) = draft.notes() {
            made.notes.add(notes);
        }
        made.drafts.insert(key, draft.clone());
        Ok(draft)
    }

    /// Changes the text of the loop at a depth, whatever the sections: its first message is passed to `change`, and the
    /// others are removed. `author` is recorded as the strategy. Returns false if no text was made for the loop.
    pub(super) fn replace(
        &self,
        depth: usize,
        author: &str,
        change: impl Fn(&mut AgentMessage),
    ) -> bool {
        let mut memo = self.0.borrow_mut();
        let mut is_replaced = false;
        for (_, draft) in memo.drafts.iter_mut().filter(|(key, _)| key.depth == depth) {
            let Some((_, summary)) = &mut draft.compacted else {
                continue;
            };
            summary.messages.truncate(1);
            for message in &mut summary.messages {
                change(message);
                is_replaced = true;
            }
            summary.notes.fallback = Some(author.to_owned());
        }
        if is_replaced {
            memo.notes.fallback = Some(author.to_owned());
        }
        is_replaced
    }

    /// Notes that a text has more tokens than it may have.
    pub(super) fn note_long(&self) {
        self.0.borrow_mut().has_long = true;
    }

    /// True if a text has more tokens than it may have.
    pub(super) fn has_long(&self) -> bool {
        self.0.borrow().has_long
    }

    /// Returns the notes of all texts, including texts that are in no block.
    pub(super) fn notes(&self) -> SummaryNotes {
        self.0.borrow().notes.clone()
    }
}
