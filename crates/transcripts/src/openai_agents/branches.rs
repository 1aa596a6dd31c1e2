//! Conversations with branches: a row whose parent is not the row before it begins a branch.

use super::database::AgentBranches;
use super::emit::{AgentsEmitter, SessionRecord};
use crate::ImportError;
use crate::decode::repaired;
use crate::transcript::Emitted;

impl AgentsEmitter<'_> {
    /// Reads a conversation along its branches. At the end, the current position is on the branch that was written
    /// last.
    pub(super) fn branched(&mut self, branches: AgentBranches) -> Result<(), ImportError> {
        let (order, tip) = (branches.order.clone(), branches.tip);
        self.branches = branches;
        for row in &order {
            match self.file.item(*row, &self.branches) {
                Ok(item) => self.row(item)?,
                Err(reason) => self.skip(format!("row {row}: {reason}")),
            }
        }
        self.flush_output()?;
        let current = tip.and_then(|tip| self.tree.last_at(&tip.to_string()));
        let newest = self.tree.newest().map(|newest| newest.entry);
        let is_elsewhere = |current: &Emitted| newest != Some(current.entry);
        match current.filter(is_elsewhere) {
            Some(current) => {
                let name = format!("branch-{}", order.len());
                self.transcript.go_back(Some(current.at), name)
            }
            None => Ok(()),
        }
    }

    /// Begins a loop if a message does not continue the current position, and returns true if so. If the branch leaves
    /// a turn in the middle, the beginning of the turn is repeated.
    pub(super) fn branch(
        &mut self,
        row: SessionRecord,
        is_prompt: bool,
    ) -> Result<bool, ImportError> {
        let Some(parent) = row.parent() else {
            return Ok(false);
        };
        let parent = Some(parent.as_deref());
        let begun = self
            .transcript
            .branch(&self.tree, parent, row.name(), is_prompt)?;
        let is_begun = begun.is_some();
        for emitted in begun.unwrap_or_default() {
            self.repeat(emitted)?;
        }
        Ok(is_begun)
    }

    fn repeat(&mut self, emitted: Emitted) -> Result<(), ImportError> {
        let rows = self.entries.get(emitted.entry).cloned();
        let mut items = Vec::new();
        for row in rows.unwrap_or_default() {
            match self.file.item(row, &self.branches) {
                Ok(mut item) => {
                    // The damage was reported at the first reading.
                    item.data = repaired(item.data.as_bytes()).0.into_owned();
                    items.push(item);
                }
                Err(reason) => self.skip(format!("row {row}: {reason}")),
            }
        }
        self.repeat_rows(&items)?;
        if let Some(at) = self.transcript.last_turn() {
            self.tree.emit(at, emitted.entry);
        }
        Ok(())
    }
}
