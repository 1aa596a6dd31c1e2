//! The texts that a strategy made, so that it is asked for each once.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::compaction::{Draft, StrategyError, SummaryNotes};
use crate::model::Layout;

/// What a text is made for. A strategy that is asked for the same again would say the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextKey {
    pub(super) depth: usize,
    /// The planned sections; `None`: a rollup of the loops through this one.
    pub(super) layout: Option<Layout>,
    /// Tokens that the text may have.
    pub(super) tokens: u64,
    /// Whether the digest stands in for a text that is longer.
    pub(super) stands_in: bool,
}

/// A plan settles again, and a step of the fallback follows another: what was made once is kept. All
/// that it changes is how often a strategy is asked.
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

    /// Notes that a text has more tokens than it may have.
    pub(super) fn note_long(&self) {
        self.0.borrow_mut().has_long = true;
    }

    /// Whether a text has more tokens than it may have.
    pub(super) fn has_long(&self) -> bool {
        self.0.borrow().has_long
    }

    /// Returns what was noted of all texts, also of those that went into no block.
    pub(super) fn notes(&self) -> SummaryNotes {
        self.0.borrow().notes.clone()
    }
}
